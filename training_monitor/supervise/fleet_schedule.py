"""Which members of a fleet are asked next, and by how many threads. Not locked: the caller holds a lock.

A member is asked once a round, never twice at a time. One that does not answer is asked at growing intervals, after all
others, and by a part of the threads alone: many that hang leave the rest to those that answer.

No more threads work than it needs to be through in time, so that what a person does meanwhile is answered at once. One
that waits for a slow member does not count as working.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil

MOST_THREADS, MOST_FOR_SILENT, LEAST_AT_WORK = 48, 12, 4
USUAL_SECONDS, SLOW_SECONDS = 0.5, 2.0  # that a look takes; from where on it is slow
LONGEST_WAIT = 300.0


def wait_after(failures: int, interval: float) -> float:
    """Seconds until something that failed so often in a row is asked again; 0 after a success."""
    return 0.0 if not failures else max(interval, min(LONGEST_WAIT, interval * 2.0 ** min(failures, 30)))


@dataclass
class Schedule:
    """`interval` is the time between two rounds, in seconds; times are those of a clock that never jumps."""

    interval: float
    threads: int = 0
    _waiting: dict[str, None] = field(default_factory=dict)
    _in_flight: dict[str, tuple[float, bool]] = field(default_factory=dict)  # since when, whether it was silent before
    _asked: set[str] = field(default_factory=set)
    _failures: dict[str, int] = field(default_factory=dict)
    _not_before: dict[str, float] = field(default_factory=dict)

    @property
    def is_waiting(self) -> bool:
        """Whether somebody is still to be asked in this round."""
        return bool(self._waiting)

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._in_flight

    def begin_round(self, *, forced: bool) -> None:
        """All may be asked again; `forced`: those that do not answer, too."""
        self._asked.clear()
        if forced:
            self._not_before.clear()

    def add(self, keys: Iterable[str], now: float) -> None:
        """Let those be asked that were not yet in this round, and are due."""
        for key in keys:
            if key not in self._asked and key not in self._in_flight and self._not_before.get(key, now) <= now:
                self._asked.add(key)
                self._waiting[key] = None

    def missing_threads(self, now: float) -> int:
        """How many more threads have something to do; they count as begun."""
        at_work = self.threads - sum(now - since >= SLOW_SECONDS for since, _ in self._in_flight.values())
        wanted = LEAST_AT_WORK + ceil(len(self._asked) * USUAL_SECONDS / self.interval)
        more = max(0, min(MOST_THREADS - self.threads, wanted - at_work, len(self._waiting)))
        self.threads += more
        return more

    def take(self, now: float) -> str | None:
        """The next one to ask; None when there is none, and then the thread has ended."""
        silent = sum(was_silent for _, was_silent in self._in_flight.values())
        answering = (key for key in self._waiting if not self._failures.get(key))
        key = next(answering, None)
        if key is None and silent < MOST_FOR_SILENT:
            key = next(iter(self._waiting), None)
        if key is None:
            self.threads -= 1
            return None
        del self._waiting[key]
        self._in_flight[key] = (now, bool(self._failures.get(key)))
        return key

    def end(self, key: str, now: float, *, answered: bool) -> None:
        """Somebody asked it, and it answered or did not."""
        del self._in_flight[key]
        if answered:
            self._failures.pop(key, None)
            self._not_before.pop(key, None)
            return
        self._failures[key] = self._failures.get(key, 0) + 1
        self._not_before[key] = now + wait_after(self._failures[key], self.interval)

    def forget(self, keys: Iterable[str]) -> None:
        """Keep nothing of members that are no more."""
        for key in keys:
            for kept in (self._waiting, self._failures, self._not_before):
                kept.pop(key, None)
            self._asked.discard(key)
