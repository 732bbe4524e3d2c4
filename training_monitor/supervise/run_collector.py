"""RunCollector: looks at a folder of runs again and again, in a thread; a snapshot of what is known never waits.

Threads: one that looks, and one for each act that is under way. All are daemons: whoever leaves does not wait for a
machine that hangs. One look at a time: the next begins `interval` after the last one began, and never makes up for any.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from training_monitor.clock import SYSTEM_CLOCK, Clock
from training_monitor.errors import TrainingMonitorError
from training_monitor.policy.run_rows import judge_look
from training_monitor.policy.run_values import FolderLook, Limits, RunRow, RunSource, RunsSnapshot, Usage
from training_monitor.policy.run_verdicts import add_look, judge_run, observe_run
from training_monitor.supervise.fleet_schedule import wait_after
from training_monitor.supervise.logs import get_logger
from training_monitor.supervise.threads import begin_thread
from training_monitor.verdicts import Observation

MOST_ACTS, MOST_MESSAGES, MOST_WORDS = 16, 100, 500  # acts at a time; messages kept; characters of one
_LEAST_PAUSE = 0.05  # between two looks that take longer than the interval
_LONGEST_WAIT = 30.0  # seconds between two looks that fail
_LEAST_SPAN = 1.0  # seconds between the two looks that CPU shares are of: ticks are 10 ms long
_NO_LIMITS = Limits()


class RunCollector:
    """Keeps what is known of a folder of runs.

    When a look fails, the rows of the last good one stay, and the snapshot says why and since when; the looks that
    follow come at growing intervals, until one succeeds.

    Args:
        source: where the folder is; screens and acts use it too.
        interval: seconds from the beginning of a look to that of the next.
        limits: of what the uses are parts.
        where: what people call the folder.
    """

    def __init__(
        self,
        source: RunSource,
        *,
        interval: float = 2.0,
        limits: Limits = _NO_LIMITS,
        where: str,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.source, self.interval, self.clock = source, interval, clock
        self._limits = limits
        self._lock = threading.Lock()  # held for moments
        self._looking = threading.Lock()  # held for a look
        self._news, self._closing = threading.Event(), threading.Event()
        self._view = RunsSnapshot((), Usage(), clock.time(), where)
        self._before: FolderLook | None = None
        self._past: dict[str, tuple[Observation, ...]] = {}  # by the path of a run
        self._expanded: frozenset[int] = frozenset()
        self._messages: deque[str] = deque(maxlen=MOST_MESSAGES)
        self._listeners: list[Callable[[], None]] = []
        self._acts: list[str] = []  # those under way, by their descriptions
        self._acted = threading.Event()  # set when one of them has ended
        self._failures, self._begun = 0, False

    # ------------------------------------------------------------ looking

    def start(self) -> None:
        """Begin to look, in the background; does nothing when it has begun."""
        with self._lock:
            begun, self._begun = self._begun, True
        if not begun and not begin_thread(self._run, "look at runs"):
            self._begun = False
            raise TrainingMonitorError("there is no thread left to look at the runs", hint="end other programs here")

    def close(self) -> None:
        """Look no more; what is under way is not waited for, and what it finds is dropped."""
        self._closing.set()
        self._news.set()

    def snapshot(self) -> RunsSnapshot:
        """What is known now; its `timestamp` is that of the last look that succeeded, by the clock here."""
        with self._lock:
            return replace(self._view, is_refreshing=self._looking.locked())

    def refresh(self) -> None:
        """Look at once, or again at once when a look is under way: that one may be too old already."""
        self._news.set()

    def expand(self, pids: frozenset[int]) -> None:
        """Read the threads of these processes, and of no others, from the next look on."""
        with self._lock:
            news, self._expanded = pids - self._expanded, pids
        if news:
            self.refresh()

    def listen(self, callback: Callable[[], None]) -> None:
        """Call `callback` from now on, from any thread, after every look and with every message."""
        with self._lock:
            self._listeners.append(callback)

    def look_once(self) -> RunsSnapshot:
        """Look in the calling thread, after one that is under way; a failure is in the snapshot. Raises nothing."""
        with self._looking:
            try:
                look = self.source.look(self._expanded)
                self._take(look)
            except TrainingMonitorError as error:
                self._fail(str(error))
            except Exception as error:  # whatever is wrong with one look, the next one is tried
                get_logger().exception("a look at the runs failed")
                self._fail(f"the look failed: {error!r}")
        self._tell_listeners()
        return self.snapshot()

    def _run(self) -> None:
        while not self._closing.is_set():
            began = self.clock.monotonic()
            self._news.clear()
            self.look_once()
            if not self._closing.is_set():
                rest = began + self._wait_seconds() - self.clock.monotonic()
                self.clock.wait(self._news, max(_LEAST_PAUSE, rest))

    def _wait_seconds(self) -> float:
        """From the beginning of this look to that of the next."""
        return max(self.interval, min(_LONGEST_WAIT, wait_after(self._failures, self.interval)))

    def _take(self, look: FolderLook) -> None:
        rows, usage = judge_look(look, self._before, self._limits)
        rows = self._judge(rows, look)
        if _is_later(look, self._before):
            self._before = look
        self._failures = 0
        with self._lock:
            if self._closing.is_set():
                return
            self._view = RunsSnapshot(
                rows,
                usage,
                self.clock.time(),
                self._view.where,
                machine_error=look.machine_error,
                gpu_error=look.machine.gpu_error if look.machine else None,
            )

    def _judge(self, rows: tuple[RunRow, ...], look: FolderLook) -> tuple[RunRow, ...]:
        """The rows with the verdict on each, by this look and those before it."""
        now, past = self.clock.time(), self._past
        self._past = {row.run.path: add_look(past.get(row.run.path, ()), observe_run(row, look, now)) for row in rows}
        return tuple(judge_run(row, self._past[row.run.path], now) for row in rows)

    def _fail(self, error: str) -> None:
        self._failures += 1
        with self._lock:
            if not self._closing.is_set():
                since = self._view.stale_since or self.clock.time()
                self._view = replace(self._view, error=error[:MOST_WORDS], stale_since=since)

    # ------------------------------------------------------------ acting

    def act(self, description: str, call: Callable[[], str]) -> None:
        """Call `call` in a thread of its own; what it returns, or why it failed, becomes a message. Raises nothing.

        The runs are looked at again after it.
        """
        with self._lock:
            is_one_too_many = len(self._acts) >= MOST_ACTS
            if not is_one_too_many:
                self._acts.append(description)
        if is_one_too_many:
            self.tell(f"{description}: not done: {MOST_ACTS} others are under way. Try: again when one has ended")
        elif not begin_thread(lambda: self._act(description, call), "act"):
            self._end_act(description, "not done: there is no thread left here. Try: again")

    def acts(self) -> tuple[str, ...]:
        """The acts that are under way, by their descriptions."""
        with self._lock:
            return tuple(self._acts)

    def wait_for_acts(self, seconds: float) -> tuple[str, ...]:
        """Wait until no act is under way, so many seconds at most. Returns those that still are."""
        end = self.clock.monotonic() + seconds
        while (left := self.acts()) and (rest := end - self.clock.monotonic()) > 0:
            self.clock.wait(self._acted, rest)
            self._acted.clear()
        return left

    def _act(self, description: str, call: Callable[[], str]) -> None:
        try:
            result = call()
        except TrainingMonitorError as error:
            result = str(error)
        except Exception as error:
            get_logger().exception("%s failed", description)
            result = f"failed: {error!r}"
        self.refresh()
        self._end_act(description, result)

    def _end_act(self, description: str, result: str) -> None:
        with self._lock:  # whoever sees that it is under way no more can read what came of it
            self._acts.remove(description)
            self._add(f"{description}: {result}")
        self._acted.set()
        self._tell_listeners()

    def tell(self, message: str) -> None:
        """Add a message."""
        with self._lock:
            self._add(message)
        self._tell_listeners()

    def _add(self, message: str) -> None:
        self._messages.append(message[:MOST_WORDS])

    def messages(self) -> tuple[str, ...]:
        """What came of the last acts, oldest first."""
        with self._lock:
            return tuple(self._messages)

    def _tell_listeners(self) -> None:
        with self._lock:
            listeners = () if self._closing.is_set() else tuple(self._listeners)
        for callback in listeners:
            try:
                callback()
            except Exception:  # of whoever listens; the looks go on
                get_logger().exception("a listener failed")


def _is_later(look: FolderLook, before: FolderLook | None) -> bool:
    """Whether CPU shares of the next look are to be of the time since this one, and not since the one before."""
    if look.machine is None or before is None or before.machine is None:
        return look.machine is not None
    since = look.machine.at - before.machine.at
    return not 0 <= since < _LEAST_SPAN or look.machine.identity.boot_id != before.machine.identity.boot_id
