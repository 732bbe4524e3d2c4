"""VastAIMonitor: a fleet of the instances of a vast.ai account, or of simulated ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from training_monitor.core.arguments import checked
from training_monitor.fleet.fleet import DEFAULT_CONFIG, FleetMonitor
from training_monitor.fleet.mock import MockFleet


@checked
class VastAIMonitor(FleetMonitor):
    """Watch the instances of a vast.ai account. With `use_mock`, watch simulated instances; this needs no account.

    Args:
        instance_ids: the IDs of the instances; None: all instances of the account that are not stopped.
        use_mock: watch simulated instances (a `MockFleet`) instead.
        more: other keyword arguments, which are passed to FleetMonitor.
    """

    def __new__(cls, instance_ids: Sequence[int] | None = None, use_mock: bool = False, **more: Any) -> Any:
        if not use_mock:
            return super().__new__(cls)
        return MockFleet(instance_ids or (), **{name: more[name] for name in ("config", "clock") if name in more})

    def __init__(self, instance_ids: Sequence[int] | None = None, use_mock: bool = False, **more: Any) -> None:
        config, targets = more.get("config", DEFAULT_CONFIG), [f"vast://{number}" for number in instance_ids or ()]
        specs = [spec for target in targets for spec in config.specs_of(target)]
        super().__init__(specs, whole_account=instance_ids is None, **more)
