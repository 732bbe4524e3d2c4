"""Says on stderr what is waited for where nothing was said for a while: a silent command looks like a hung one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from training_monitor.cli.output import hint
from training_monitor.clock import SYSTEM_CLOCK, Clock
from training_monitor.units import format_duration

SAID_EVERY = 30.0  # seconds of silence


class Waiting:
    """What is waited for, by name: whoever has news of it begins its silence anew.

        with Waiting() as waiting:
            waiting.on("market", "asking vast.ai what is for rent")

    Each silence of `every` seconds is told in a line, by a thread while the block lasts.
    """

    def __init__(
        self, tell: Callable[[str], None] = hint, *, every: float = SAID_EVERY, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._tell, self._every, self._clock = tell, every, clock
        self._lock, self._closing = threading.Lock(), threading.Event()
        self._waits: dict[str, tuple[Callable[[], str | None], float, float]] = {}  # what, since when, last told when
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Waiting:  # noqa: PYI034 (Self is not in Python 3.10)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closing.set()
        self._thread.join()

    def on(self, name: str, what: str | Callable[[], str | None]) -> None:
        """From now on this is waited for; a callable is asked when it is to be told, and None ends the waiting."""
        now = self._clock.monotonic()
        with self._lock:
            self._waits[name] = (what if callable(what) else lambda: what, now, now)

    def end(self, name: str) -> None:
        """This is not waited for any more."""
        with self._lock:
            self._waits.pop(name, None)

    def look(self) -> None:
        """Tell of each silence that is long enough."""
        now = self._clock.monotonic()
        with self._lock:
            due = {name: wait for name, wait in self._waits.items() if now - wait[2] >= self._every}
        for name, (what, since, told) in due.items():
            text = what()
            with self._lock:
                if self._waits.get(name) != (what, since, told):
                    continue  # there was news meanwhile
                if text is None:
                    del self._waits[name]
                    continue
                self._waits[name] = (what, since, now)
            self._tell(f"{text}: no news for {format_duration(now - since)}")

    def _run(self) -> None:
        while not self._clock.wait(self._closing, 1.0):
            self.look()
