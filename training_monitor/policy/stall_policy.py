"""The limits from which on a training stalls or is slow: the one place with them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from training_monitor.errors import SettingsError

USUAL_THRESHOLD = 300.0  # seconds, of `auto_restart` and its like
MOST_SAMPLES = 720  # six hours at one every 30 s
_SHORT_PAUSES = ("idle_pause", "spinning_pause", "quiet_pause", "spoken_pause", "unknown_pause", "early_pause")
_UNSEEN_PAUSES = ("idle_pause", "spoken_pause", "unknown_pause")
_LONG_PAUSES = ("busy_pause", "startup_pause")


@dataclass(frozen=True, slots=True)
class StallPolicy:
    """Times in seconds.

    `*_pause` are the shortest pauses that count as a hang, by what is known about them: GPUs idle and processes out of
    sight, GPUs spinning, processes in sight that neither compute nor write (`quiet`), a log that still speaks, nothing
    known, something at work, no step yet. `pause_factor` and `cadence_factor` are how many times the run's own longest
    pause of that kind, and its usual time between steps, a pause must last. `speed_drop_threshold` is the share of its
    past speed below which a run is slow; `eta_convergence_threshold` the share of elapsed time by which its ETA should
    at least have shrunk, over `eta_seconds` or more.
    """

    min_samples: int = 4
    eta_convergence_threshold: float = 0.5
    speed_drop_threshold: float = 0.5
    grace_period: float = 900.0
    idle_pause: float = 560.0
    spinning_pause: float = 120.0
    spoken_pause: float = 400.0
    unknown_pause: float = 320.0
    busy_pause: float = 1800.0
    startup_pause: float = 1800.0
    pause_factor: float = 2.2
    cadence_factor: float = 3.0
    warmup_steps: int = 4
    warmup_seconds: float = 120.0
    slow_seconds: float = 300.0
    quiet_pause: float = 135.0
    eta_seconds: float = 900.0
    early_pause: float = 900.0

    def __post_init__(self) -> None:
        for name in ("eta_convergence_threshold", "speed_drop_threshold"):
            if not 0 < getattr(self, name) < 1:
                raise SettingsError(name, getattr(self, name), "a share between 0 and 1")
        if not 2 <= self.min_samples <= MOST_SAMPLES:
            raise SettingsError("min_samples", self.min_samples, f"2 to {MOST_SAMPLES}")
        for name in ("grace_period", *_SHORT_PAUSES, *_LONG_PAUSES):
            if not getattr(self, name) >= 0:
                raise SettingsError(name, getattr(self, name), "seconds, from 0")

    @property
    def shortest_pause(self) -> float:
        """No shorter one is a hang."""
        return min(float(getattr(self, name)) for name in (*_SHORT_PAUSES, *_LONG_PAUSES))


DEFAULT_POLICY = StallPolicy()


def stall_policy(stagnation_threshold: float | None = None, **others: Any) -> StallPolicy:
    """The limits with a caller's own `stagnation_threshold`, in seconds; None: the defaults.

    It is the shortest pause that counts as a stall, four times as long while GPUs or processes work, or before the
    first step. From 300 s on, which is the default of the functions that take it, it shortens no pause that may be an
    evaluation or a save out of sight. `others` are fields of `StallPolicy`.
    """
    if stagnation_threshold is None:
        return StallPolicy(**others)
    pauses = dict.fromkeys(_SHORT_PAUSES, stagnation_threshold)
    if stagnation_threshold >= USUAL_THRESHOLD:
        pauses |= {name: max(pauses[name], getattr(DEFAULT_POLICY, name)) for name in _UNSEEN_PAUSES}
    return StallPolicy(**{**pauses, **dict.fromkeys(_LONG_PAUSES, 4 * stagnation_threshold), **others})
