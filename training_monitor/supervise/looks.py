"""What was seen of one training, by whichever command: kept in the store, so that the next command judges with it.

A look is remembered under its target and its training: its job id, or else the path of its log, or its process. `check`
in one terminal, `watch` in another and `auto_restart` beside them add to the same past.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from training_monitor.models import Failure, JobStatus, Observation
from training_monitor.store import Store

WINDOW = 720  # observations that are judged at most
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


class Looks:
    """The observations of one training, oldest first; with a store, also those that were made by others before.

    `key` names target and training, see `look_key`; until it is known, nothing is read or written.
    """

    def __init__(self, store: Store | None = None) -> None:
        self.store, self.key = store, ""
        self._seen: deque[Observation] = deque(maxlen=WINDOW)

    def open(self, key: str) -> None:
        """Take in what is remembered under a key; does nothing when that was done before."""
        if key == self.key:
            return
        self.key = key
        kept = [decode_observation(each) for each in self.store.looks(key)] if self.store else []
        self._seen = deque(sorted([*filter(None, kept), *self._seen], key=_time_of), maxlen=WINDOW)

    def add(self, observation: Observation) -> None:
        """Remember one more; those of a time that is still to come are of a clock that was set back since."""
        while self._seen and self._seen[-1].timestamp >= observation.timestamp:
            self._seen.pop()
        self._seen.append(observation)
        if self.store and self.key:
            self.store.add_look(self.key, observation.timestamp, encode_observation(observation))

    def all(self) -> tuple[Observation, ...]:
        """Oldest first."""
        return tuple(self._seen)

    @property
    def last(self) -> Observation | None:
        return self._seen[-1] if self._seen else None


def _time_of(observation: Observation) -> float:
    return observation.timestamp
