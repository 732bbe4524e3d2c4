"""The live state of a fleet as server-sent events: each change is encoded once, whoever gets it.

A browser gets the whole state first, and then what changed since the state it has: one that is slow misses states in
between, never the newest, and one that comes back within the life of this process gets the changes only.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from training_monitor.core.engine import start_thread
from training_monitor.core.logger import get_logger

RETRY_SECONDS = 2.0
BEAT_SECONDS = 10.0  # after which a connection without news says that it lives
LEAST_PAUSE = 1.0  # seconds between two states
SHARE = 4.0  # a state is made at most every so many times as long as it takes


class State(NamedTuple):
    """What the page shows: each part as JSON; rows by the id of their member, the worst first."""

    head: str
    alerts: str
    rows: Mapping[str, str]


@dataclass(slots=True)
class _Version:
    """The state with that number, and since which number each of its parts is as it is."""

    number: int = 0
    state: State = State("null", "[]", {})
    head: int = 0
    alerts: int = 0
    order: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    messages: dict[int, bytes] = field(default_factory=dict)  # by the number that a browser has

    def after(self, state: State) -> _Version | None:
        """Return the version with a new state; None where nothing has changed."""
        number, before = self.number + 1, self.state
        rows = {key: self.rows[key] if before.rows.get(key) == text else number for key, text in state.rows.items()}
        made = _Version(
            number,
            state,
            self.head if before.head == state.head else number,
            self.alerts if before.alerts == state.alerts else number,
            self.order if [*before.rows] == [*rows] else number,
            rows,
        )
        return made if number in (made.head, made.alerts, made.order, *rows.values()) else None

    def changes_since(self, number: int) -> str:
        """Return the parts that changed since then as JSON."""
        state, is_whole = self.state, number == 0
        changed = [text for key, text in state.rows.items() if self.rows[key] > number]
        parts = [f'"whole":{"true" if is_whole else "false"}', f'"rows":[{",".join(changed)}]']
        if is_whole or self.head > number:
            parts.append(f'"head":{state.head}')
        if is_whole or self.alerts > number:
            parts.append(f'"alerts":{state.alerts}')
        if is_whole or self.order > number:
            parts.append(f'"order":{json.dumps([*state.rows])}')
        return f"{{{','.join(parts)}}}"


class Feed:
    """Makes states in a thread of its own and hands their changes to any number of connections.

    Args:
        make: returns the state of now; called by that thread only.
    """

    def __init__(self, make: Callable[[], State]) -> None:
        self._make, self._boot = make, secrets.token_hex(4)
        self._version = _Version()
        self._made_at: float | None = None
        self._is_new = threading.Condition()
        self._news, self._closing = threading.Event(), threading.Event()

    def start(self) -> None:
        """Start the thread. Raises TrainingMonitorError when the machine has no thread left."""
        self._news.set()
        start_thread(self._run, "web")

    def note_change(self) -> None:
        """Make a new state soon; may be called from any thread."""
        self._news.set()

    def close(self) -> None:
        """End the thread and all connections."""
        self._closing.set()
        self._news.set()
        with self._is_new:
            self._is_new.notify_all()

    @property
    def is_closed(self) -> bool:
        return self._closing.is_set()

    def number_of(self, last_id: str | None) -> int:
        """Return the number of the state that a browser has, by its Last-Event-ID; 0 for none of this process."""
        boot, _, number = (last_id or "").partition("-")
        if boot != self._boot or not (number.isascii() and number.isdigit() and len(number) < 12):
            return 0
        return int(number) if int(number) <= self._version.number else 0

    def wait(self, number: int, seconds: float = BEAT_SECONDS) -> tuple[int, bytes]:
        """Wait for a state after that number; return the newest number and its event, or a beat without news."""
        with self._is_new:
            self._is_new.wait_for(lambda: self._version.number > number or self.is_closed, seconds)
            version = self._version
            if version.number <= number:
                return number, self._event("beat")
            if number not in version.messages:
                version.messages[number] = self._event("state", version, version.changes_since(number))
            return version.number, version.messages[number]

    def _event(self, kind: str, version: _Version | None = None, changes: str = "null") -> bytes:
        times = json.dumps({"now": time.time(), "made_at": self._made_at})
        name = f"id: {self._boot}-{version.number}\n" if version else ""
        return f'{name}event: {kind}\ndata: {{"times":{times},"changes":{changes}}}\n\n'.encode()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._news.wait()
            self._news.clear()
            began = time.monotonic()
            try:
                self._take(self._make())
            except Exception:  # the page says how old its state is
                get_logger().exception("the state of the web page could not be computed")
            took = time.monotonic() - began
            self._closing.wait(max(LEAST_PAUSE, SHARE * took))

    def _take(self, state: State) -> None:
        made = self._version.after(state)
        with self._is_new:
            self._made_at = time.time()
            if made:
                self._version = made
                self._is_new.notify_all()
