"""What was seen of one training, by whichever command: kept in the store, so that the next command judges with it.

A look is remembered under its target and its training: its job id, or else the path of its log, or its process. `check`
in one terminal, `watch` in another and `auto_restart` beside them add to the same past.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from training_monitor.errors import TrainingMonitorError
from training_monitor.models import Failure, JobStatus
from training_monitor.policy.stall_history import place_of, thin_looks
from training_monitor.store import MOST_LOOKS, Store
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
    """The observations of one training, oldest first; with a store and a key, also those that others made before.

    `problem` is why they cannot be kept in the store any more; they are kept in memory then.
    """

    def __init__(self, store: Store | None = None, key: str = "") -> None:
        self.store, self.key = store, key
        self.problem: str | None = None
        self._seen = self._stored()
        self._kept = self._seen[-2:]  # the newest in the store

    def _stored(self) -> list[Observation]:
        kept = self.store.looks(self.key) if self.store and self.key else []
        return [each for each in map(decode_observation, kept) if each]

    def add(self, observation: Observation) -> None:
        """Remember one more; those of a time that is still to come are of a clock that was set back since."""
        self._seen = [each for each in self._seen if each.timestamp < observation.timestamp]
        self._kept = [each for each in self._kept if each.timestamp < observation.timestamp]
        self._seen = thin_looks([*self._seen, observation], WINDOW)
        if self.store and self.key and self._is_worth_keeping(observation):
            try:
                self._keep(self.store, observation)
            except TrainingMonitorError as error:  # a full disk here is no reason to stop watching there
                self.store, self.problem = None, error.what

    def _is_worth_keeping(self, observation: Observation) -> bool:
        """Whether the store has none of the last seconds, or would tell another silence without it."""
        return (
            not self._kept
            or observation.timestamp - self._kept[-1].timestamp >= KEEP_SECONDS
            or place_of(observation) not in (place_of(self._kept[-1]), None)
        )

    def _keep(self, store: Store, observation: Observation) -> None:
        """Add it to the store; one at an older place goes if that came shortly after the one before."""
        before, last = self._kept[:-1], self._kept[-1:]
        is_close = bool(before) and last[0].timestamp - before[0].timestamp < KEEP_SECONDS
        replaced = last[0] if is_close and place_of(last[0]) != place_of(observation) else None
        self._kept = [*(before if replaced else last), observation]
        count = store.add_look(
            self.key,
            observation.timestamp,
            encode_observation(observation),
            replaces=replaced.timestamp if replaced else None,
        )
        if count > MOST_LOOKS:
            store.keep_looks(self.key, [each.timestamp for each in thin_looks(self._stored(), MOST_LOOKS)])

    def all(self) -> tuple[Observation, ...]:
        """Oldest first."""
        return tuple(self._seen)

    def is_known(self, now: float) -> bool:
        """Whether it was looked at lately, so that the next look need not ask for its past."""
        return self.last is not None and 0 <= now - self.last.timestamp <= KNOWN_SECONDS

    @property
    def last(self) -> Observation | None:
        return self._seen[-1] if self._seen else None

