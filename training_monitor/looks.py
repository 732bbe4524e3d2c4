"""What was seen of one training, by whichever command: kept in the store, so that the next command judges with it.

A look is remembered under its target and its training: its job id, or else the path of its log, or its process. `check`
in one terminal, `watch` in another and `auto_restart` beside them add to the same past.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from training_monitor.models import Failure, JobStatus
from training_monitor.store import Store
from training_monitor.targets.target import Target
from training_monitor.verdicts import Observation
from training_monitor.watching import WatchedJob

WINDOW = 720  # observations that are judged at most
KEEP_SECONDS = 10.0  # at least between two looks in the store: who looks more often has the rest in memory
KNOWN_SECONDS = 600.0  # after a longer time without a look, the log is asked again when its newest step was made
_DEFAULTS = {each.name: each.default for each in fields(Observation)}


def encode_observation(observation: Observation) -> dict[str, Any]:
    """JSON-ready, without what is not known."""
    plain = {name: getattr(observation, name) for name in _DEFAULTS}
    known = {name: value for name, value in plain.items() if value != _DEFAULTS[name]}
    if observation.failure:
        known["failure"] = asdict(observation.failure)
    return known


def decode_observation(kept: Mapping[str, Any]) -> Observation | None:
    """The observation that was encoded; None for anything else. What a later version added is left out."""
    known = {name: value for name, value in kept.items() if name in _DEFAULTS}
    try:
        known["status"] = JobStatus(known.get("status", JobStatus.UNKNOWN))
        known["failure"] = Failure(**known["failure"]) if known.get("failure") else None
        known["gpu_errors"] = tuple(known.get("gpu_errors", ()))
        return Observation(**{"step": None, **known, "timestamp": float(known["timestamp"])})
    except (TypeError, ValueError, KeyError):
        return None


def look_key(target: Target, job: WatchedJob, path: str | None) -> str:
    """What tells a training from all others, however a command came to know it; `path` is where its log lies."""
    named = job.job_id or path or job.log_file or " ".join(job.log_paths) or f"pid {job.pid}"
    return f"{target} {named}"


class Looks:
    """The observations of one training, oldest first; with a store and a key, also those that others made before."""

    def __init__(self, store: Store | None = None, key: str = "") -> None:
        self.store, self.key = store, key
        kept = store.looks(key) if store and key else []
        self._seen = deque(filter(None, map(decode_observation, kept)), maxlen=WINDOW)
        self._kept_at = self._seen[-1].timestamp if self._seen else None

    def add(self, observation: Observation) -> None:
        """Remember one more; those of a time that is still to come are of a clock that was set back since."""
        while self._seen and self._seen[-1].timestamp >= observation.timestamp:
            self._seen.pop()
        self._seen.append(observation)
        is_due = self._kept_at is None or abs(observation.timestamp - self._kept_at) >= KEEP_SECONDS
        if self.store and self.key and is_due:
            self.store.add_look(self.key, observation.timestamp, encode_observation(observation))
            self._kept_at = observation.timestamp

    def all(self) -> tuple[Observation, ...]:
        """Oldest first."""
        return tuple(self._seen)

    def is_known(self, now: float) -> bool:
        """Whether it was looked at lately, so that the next look need not ask for its past."""
        return self.last is not None and 0 <= now - self.last.timestamp <= KNOWN_SECONDS

    @property
    def last(self) -> Observation | None:
        return self._seen[-1] if self._seen else None

