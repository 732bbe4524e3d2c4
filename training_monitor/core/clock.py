"""The one source of time and waiting for loops, so that tests never sleep."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    def time(self) -> float:
        """Return the UTC time in epoch seconds."""

    def monotonic(self) -> float:
        """Return the seconds of a monotonic clock; only differences are meaningful."""

    def sleep(self, seconds: float) -> None: ...

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait at most `seconds` for `event`; return True when it is set."""


class SystemClock:
    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))

    def wait(self, event: threading.Event, seconds: float) -> bool:
        return event.wait(max(0.0, seconds))

    def __repr__(self) -> str:
        return "SYSTEM_CLOCK"


SYSTEM_CLOCK = SystemClock()


class Reach:
    """Whether a target answers. An outage begins with the last answer before it; sleep does not count."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._answered_at, self.is_lost = clock, clock.monotonic(), False

    def miss(self) -> bool:
        """Note a look without an answer; return whether it is the first one."""
        was_lost, self.is_lost = self.is_lost, True
        return not was_lost

    def answer(self) -> float | None:
        """Note an answer; return the seconds since the one before if looks had none in between."""
        was_lost, self.is_lost = self.is_lost, False
        before, self._answered_at = self._answered_at, self._clock.monotonic()
        return self._answered_at - before if was_lost else None
