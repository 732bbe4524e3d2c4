"""VastAIMonitor: a fleet of rented machines by their numbers, or of made-up ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from training_monitor.policy.fleet_config import FleetConfig
from training_monitor.supervise.fleet import DEFAULT_CONFIG, FleetMonitor
from training_monitor.supervise.mock_fleet import MockFleet


class VastAIMonitor(FleetMonitor):
    """The instances of a vast.ai account. With `use_mock` it is a `MockFleet`, which needs no account.

    Args:
        instance_ids: their numbers; None: all of the account that are not stopped.
        use_mock: show made-up ones instead.
        more: as of FleetMonitor.
    """

    def __new__(cls, instance_ids: Sequence[int] | None = None, use_mock: bool = False, **more: Any) -> Any:
        if use_mock:
            return MockFleet(instance_ids or (), **{name: more[name] for name in ("config", "clock") if name in more})
        return super().__new__(cls)

    def __init__(self, instance_ids: Sequence[int] | None = None, use_mock: bool = False, **more: Any) -> None:
        config: FleetConfig = more.get("config", DEFAULT_CONFIG)
        entries = [entry for number in instance_ids or () for entry in config.entries_of(f"vast://{number}")]
        super().__init__(entries, whole_account=instance_ids is None, **more)
