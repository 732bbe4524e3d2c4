"""How a run is watched: intervals, when it counts as stalled, and its limits. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from training_monitor.errors import SettingsError, closest
from training_monitor.policy.stall import StallPolicy, stall_policy
from training_monitor.units import known_number

OUTAGE_AFTER = 600.0  # seconds: shorter outages pass by themselves, and nobody can do anything about them
STALL_DETECTION = ("enabled", "min_samples", "eta_convergence_threshold", "speed_drop_threshold")


@dataclass(frozen=True, slots=True)
class WatchConfig:
    """Times in seconds, costs in any one currency.

    A run that stalls is told of, and is to be ended when it has not gone on within `grace_period`; `stop_grace` is what
    its processes get between TERM and KILL. `stall_after` is the shortest time without a step that counts as a stall,
    four times as long while GPUs or log show work, or before the first step; None: what `StallPolicy` says. Beyond
    `soft_limit` of run time somebody is told, beyond `hard_limit` it is to be ended. `cost_per_hour` and `budget` tell
    when the money is spent. `milestones` are per cent of its steps. A target that cannot be asked for `outage_after`,
    or a state folder here that cannot be used for so long, is told. `terminate_busy`: where stalls are ended, so is a
    hang that shows signs of work, such as GPUs that compute.
    """

    poll_interval: float = 60.0
    grace_period: float = 900.0
    stall_detection: bool = True
    min_samples: int = 4
    eta_convergence_threshold: float = 0.5
    speed_drop_threshold: float = 0.5
    stop_grace: float = 10.0
    stall_after: float | None = None
    soft_limit: float | None = None
    hard_limit: float | None = None
    cost_per_hour: float | None = None
    budget: float | None = None
    milestones: tuple[float, ...] = (25, 50, 75)
    outage_after: float = OUTAGE_AFTER
    terminate_busy: bool = False

    def __post_init__(self) -> None:
        for name in ("poll_interval", "stall_after", "soft_limit", "hard_limit", "cost_per_hour", "budget"):
            value = getattr(self, name)
            if value is not None and not _is_number(value, above=0.0):
                raise SettingsError(name, value, "a number above 0")
        for name in ("grace_period", "stop_grace", "outage_after"):
            if not _is_number(getattr(self, name), above=-1.0) or getattr(self, name) < 0:
                raise SettingsError(name, getattr(self, name), "seconds, from 0")
        for name in ("stall_detection", "terminate_busy"):
            if not isinstance(getattr(self, name), bool):
                raise SettingsError(name, getattr(self, name), "true or false")
        if not isinstance(self.min_samples, int):
            raise SettingsError("min_samples", self.min_samples, "a whole number")
        for name in ("eta_convergence_threshold", "speed_drop_threshold"):
            if not _is_number(getattr(self, name), above=0.0):
                raise SettingsError(name, getattr(self, name), "a share between 0 and 1")
        several = isinstance(self.milestones, (tuple, list))
        if not several or not all(_is_number(each, above=0.0) and each < 100 for each in self.milestones):
            raise SettingsError("milestones", self.milestones, "per cent between 0 and 100")
        if self.soft_limit and self.hard_limit and self.soft_limit > self.hard_limit:
            raise SettingsError("soft_limit", self.soft_limit, f"at most the hard limit, {self.hard_limit:g}")
        _ = self.stall_policy  # which checks the rest

    @property
    def stall_policy(self) -> StallPolicy:
        return stall_policy(
            self.stall_after,
            min_samples=self.min_samples,
            eta_convergence_threshold=self.eta_convergence_threshold,
            speed_drop_threshold=self.speed_drop_threshold,
            grace_period=self.grace_period,
        )


def read_watch_config(*tables: Mapping[str, Any]) -> WatchConfig:
    """A configuration out of tables such as a settings file has; a later one overrides, None is not given.

    `stall_detection` is true, false, or a table of enabled, min_samples, eta_convergence_threshold and
    speed_drop_threshold. Raises SettingsError, also for a key that is none.
    """
    values: dict[str, Any] = {}
    for table in tables:
        flat = dict(table)
        detection = flat.get("stall_detection")
        if isinstance(detection, Mapping):
            if unknown := [key for key in detection if key not in STALL_DETECTION]:
                key = f"stall_detection.{unknown[0]}"
                raise SettingsError("setting of a watch", key, closest(unknown[0], STALL_DETECTION))
            flat["stall_detection"] = detection.get("enabled")
            flat.update({key: value for key, value in detection.items() if key != "enabled"})
        values.update({key: value for key, value in flat.items() if value is not None})
    names = [each.name for each in fields(WatchConfig)]
    if unknown := [key for key in values if key not in names]:
        raise SettingsError("setting of a watch", unknown[0], closest(unknown[0], names))
    if isinstance(values.get("milestones"), list):
        values["milestones"] = tuple(values["milestones"])
    return WatchConfig(**values)


def _is_number(value: object, *, above: float) -> bool:
    number = known_number(value)
    return number is not None and number > above
