"""Poll many things in the background and keep a snapshot that can be read without waiting.

A subclass of `Engine` says what to poll (`keys`, `look`) and what to do with the results (`fail`, `show`, `judge`). All
threads are daemons, so that the program can exit while a machine hangs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from math import ceil, inf
from typing import ClassVar, TypeVar

from training_monitor.core.clock import Clock
from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.logger import get_logger

# Of the 32 programs that may run at a time, four are left for other things than looks: acts, and notices.
MOST_THREADS, MOST_FOR_SILENT, LEAST_AT_WORK = 28, 12, 4
USUAL_SECONDS, SLOW_SECONDS = 0.5, 2.0  # how long a look usually takes; from here on a look is slow
LONGEST_BACKOFF = 300.0
SHOW_SECONDS, SHOW_TIMES = 0.25, 10.0  # between two snapshots at least: seconds, and how many times the last one's
BUSY, BUSY_SECONDS = 0.8, 0.01  # looks that used this share of a core for so many seconds never wait
MORE_SECONDS = 1.0  # after which more threads are started past slow looks
MOST_WORDS = 500  # characters of an unexpected error
_LEAST_PAUSE = 0.05  # before the next round, after one that took longer than the interval
_LONGEST_WAIT = 3600.0
_Result = TypeVar("_Result")


class Engine:
    """Run looks at a set of keys: one look per key and round, never two at the same time for one key.

    A round starts every `interval` seconds. It ends when every look has returned or failed, and at the latest when the
    next round starts. Failing keys are retried with exponential backoff.

    Attributes:
        subject: a noun for the keys, used in messages and thread names.
        most_threads: maximum number of simultaneous looks; 0 runs them one after the other in the scheduling thread.
        longest_backoff: the longest retry interval of a failing key, in seconds.
        urgent: keys that keep their place in the order even after failures.
    """

    subject: ClassVar[str]
    most_threads: ClassVar[int] = MOST_THREADS
    longest_backoff: ClassVar[float] = LONGEST_BACKOFF
    urgent: ClassVar[Collection[str]] = ()

    def __init__(self, interval: float, clock: Clock) -> None:
        self.interval, self.clock = interval, clock
        self._lock = threading.Lock()  # held only briefly
        self._idle = threading.Condition(self._lock)
        self._asking_all, self._showing = threading.Lock(), threading.Lock()
        self._news, self._closing = threading.Event(), threading.Event()
        self._schedule = Schedule(interval, max(1, self.most_threads), self.longest_backoff, self.urgent)
        self._listeners: list[Callable[[], None]] = []
        self._paused = self._changed = self._round_open = False
        self._next_round = self._show_next = -inf
        self._begun, self._used = 0.0, 0.0  # since keys were added: the time, and CPU seconds of looks
        self._forced_at = inf  # monotonic time of the next forced round
        self._thread: threading.Thread | None = None

    # ------------------------------------------------------------ for subclasses

    def keys(self) -> Iterable[str]:
        """Return the keys to look at now. Keys that were never looked at take their turn in this order."""
        raise NotImplementedError

    def look(self, key: str) -> None:
        """Look at one key and store the result. Raises TrainingMonitorError if the look fails."""
        raise NotImplementedError

    def fail(self, key: str, error: TrainingMonitorError) -> None:
        """Store the error of a failed look."""
        raise NotImplementedError

    def show(self) -> None:
        """Build a new snapshot from the stored results."""

    def judge(self) -> None:
        """Evaluate a round that has ended; called after `show`."""

    # ------------------------------------------------------------ for callers

    def start(self) -> None:
        """Start the background thread if it is not running. Raises TrainingMonitorError if no thread can be started."""
        with self._lock:
            self._thread = self._thread or begin_thread(self._run, self.subject)
        if self._thread is None:
            what = f"cannot start a thread to watch the {self.subject}"
            raise TrainingMonitorError(what, hint="stop other programs on this machine")

    def close(self) -> None:
        """Stop starting looks; does not wait for those in progress."""
        self._closing.set()
        self._news.set()
        with self._idle:
            self._idle.notify_all()

    def refresh(self) -> None:
        """Look at all keys now, including keys in backoff, even while paused.

        Keys whose look is already in progress are looked at once more afterwards, because that result may be out of
        date.
        """
        self._ask_after(0.0)

    def set_paused(self, paused: bool) -> None:
        """Pause or resume looking."""
        self._paused = paused
        self._news.set()
        self._tell_listeners()

    def listen(self, changed: Callable[[], None]) -> None:
        """Register `changed`, to be called from any thread whenever there is a new snapshot to display."""
        with self._lock:
            self._listeners.append(changed)

    def ask_all(self) -> None:
        """Look at all keys once and wait for all results. Never raises."""
        with self._asking_all:
            if not self._closing.is_set():
                self._begin_round(forced=True)
            while not self._is_over(MORE_SECONDS):
                self._begin_looks()
            self._end_round()

    @property
    def is_refreshing(self) -> bool:
        """Return whether any look is waiting or in progress."""
        with self._lock:
            return not self._schedule.is_idle

    # ------------------------------------------------------------ rounds

    def _run(self) -> None:
        """Look, show and judge until the engine is closed."""
        while not self._closing.is_set():
            self._news.clear()
            try:
                wait = self._step()
            except Exception:  # one failed round must not end the loop
                get_logger().exception("a round of looks at the %s failed", self.subject)
                wait = self.interval
            if not self._closing.is_set():
                self.clock.wait(self._news, min(wait, _LONGEST_WAIT))

    def _step(self) -> float:
        """Do what is due and return the seconds until something may be due again."""
        now = self.clock.monotonic()
        is_forced = now >= self._forced_at
        if is_forced or (not self._paused and now >= self._next_round):
            if self._round_open:
                self._end_round()
            self._begin_round(forced=is_forced)
        if self._round_open and not self.is_refreshing:
            self._end_round()
        if self._changed and self.clock.monotonic() >= self._show_next:
            self._show()
        waits = [self._forced_at, inf if self._paused else self._next_round]
        if self._schedule.is_waiting:
            self._begin_looks()
            waits.append(now + MORE_SECONDS)
        if self._changed:
            waits.append(self._show_next + 0.01)
        return max(0.0, min(waits) - self.clock.monotonic())

    def _ask_after(self, seconds: float) -> None:
        """Force a round in `seconds`."""
        self._forced_at = min(self._forced_at, self.clock.monotonic() + seconds)
        self._news.set()

    def _begin_round(self, *, forced: bool) -> None:
        if forced:
            self._forced_at = inf
        self._round_open, self._next_round = True, self.clock.monotonic() + self.interval
        with self._lock:
            self._schedule.begin_round(forced=forced)
        self._ask_more()

    def _ask_more(self) -> None:
        """Start the looks that are due and have not run in this round."""
        keys = tuple(self.keys())
        with self._lock:
            self._begun, self._used = time.monotonic(), 0.0
            self._schedule.add(keys, self.clock.monotonic())
        self._begin_looks()

    def _end_round(self) -> None:
        """Show and judge the results."""
        self._round_open = False
        self._next_round = max(self._next_round, self.clock.monotonic() + _LEAST_PAUSE)
        self._show()
        self.judge()

    def _is_over(self, seconds: float) -> bool:
        """Wait at most `seconds` until no look is left, and return whether that is so or the engine was closed."""
        with self._idle:
            return self._idle.wait_for(lambda: self._closing.is_set() or self._schedule.is_idle, seconds)

    # ------------------------------------------------------------ looks

    def _begin_looks(self) -> None:
        with self._lock:
            threads = self._schedule.missing_threads(self.clock.monotonic(), self._most_at_work())
        if threads and not self.most_threads:
            return self._work()
        begun = sum(begin_thread(self._work, "look") is not None for _ in range(threads))
        with self._lock:
            self._schedule.threads -= threads - begun

    def _work(self) -> None:
        """Look at keys until none is waiting."""
        used = time.thread_time()
        while True:
            with self._lock:
                most, now = self._most_at_work(), self.clock.monotonic()
                key = None if self._closing.is_set() else self._schedule.take(now, most)
            if key is None:
                return
            answered = self._look(key)
            with self._idle:
                self._used -= used
                used = time.thread_time()
                self._used += used
                self._schedule.end(key, self.clock.monotonic(), answered=answered)
                is_over = self._schedule.is_idle
                if is_over:
                    self._idle.notify_all()
            self._note_change()
            if is_over:
                self._news.set()

    def _most_at_work(self) -> int:
        """Return how many threads are useful: one if no look waits. More would only take turns, at a quarter more."""
        took = time.monotonic() - self._begun
        return 1 if took > BUSY_SECONDS and self._used > BUSY * took else self._schedule.most_threads

    def _look(self, key: str) -> bool:
        """Look at one key and return whether it answered. Never raises: one key must not end the looks at others."""
        try:
            try:
                self.look(key)
                return True
            except TrainingMonitorError as error:
                self.fail(key, error)
            except Exception as error:
                get_logger().exception("%s: the look failed", key or self.subject)
                self.fail(key, TrainingMonitorError(f"the query failed: {error!r}"[:MOST_WORDS]))
        except Exception:
            get_logger().exception("%s: the failure could not be processed", key or self.subject)
        return False

    # ------------------------------------------------------------ showing

    def _note_change(self) -> None:
        """Wake the loop for the first change since the last snapshot: others wait for the next one anyway."""
        if not self._changed:
            self._changed = True
            self._news.set()

    def _show(self) -> None:
        with self._showing:
            began, self._changed = self.clock.monotonic(), False
            self.show()
            now = self.clock.monotonic()
            self._show_next = now + max(SHOW_SECONDS, SHOW_TIMES * (now - began))
        self._tell_listeners()

    def _tell_listeners(self) -> None:
        with self._lock:
            listeners = () if self._closing.is_set() else tuple(self._listeners)
        for changed in listeners:
            try:
                changed()
            except Exception:  # a failing screen must not stop the loop
                get_logger().exception("a listener failed")


def start_thread(work: Callable[[], None], name: str) -> threading.Thread:
    """Start a daemon thread. Raises TrainingMonitorError when the machine has no thread left."""
    thread = threading.Thread(target=work, name=f"training_monitor {name}", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise TrainingMonitorError(
            f"cannot start a thread for: {name}", hint="stop other programs on this machine"
        ) from error
    return thread


def begin_thread(work: Callable[[], None], name: str) -> threading.Thread | None:
    """Start a daemon thread; None when the machine has no thread left, so that the caller can retry later."""
    try:
        return start_thread(work, name)
    except TrainingMonitorError as error:
        get_logger().warning("%s", error.what)
        return None


def finish_within(
    seconds: float, work: Callable[[], _Result], name: str, *, break_off: Callable[[], None] | None = None
) -> _Result:
    """Run `work` in a thread and return its result; on timeout call `break_off` and abandon the thread.

    Raises:
        TimeoutError: `work` was not done within `seconds`.
        Exception: whatever `work` raised.
    """
    import concurrent.futures

    future: concurrent.futures.Future[_Result] = concurrent.futures.Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    start_thread(run, name)
    try:
        return future.result(seconds)
    except concurrent.futures.TimeoutError:  # not the built-in TimeoutError in Python 3.10
        if break_off:
            break_off()
        raise TimeoutError from None


def wait_after(failures: int, interval: float, longest: float = LONGEST_BACKOFF) -> float:
    """Return the seconds until a retry after so many failures in a row; 0 after a success."""
    return 0.0 if not failures else max(interval, min(longest, interval * 2.0 ** min(failures, 30)))


@dataclass
class Schedule:
    """Which key is looked at next, and by how many threads. Not locked: the caller holds a lock.

    A key that was never looked at comes first, then the one whose last look began longest ago. Failing keys come after
    all others and may use only `MOST_FOR_SILENT` threads, so that many hanging targets do not starve those that answer;
    if there are always others, one failing key at a time is looked at after it has waited for an interval. No more
    threads run than it takes to finish the round in time, so that the user interface stays responsive; a thread that
    waits for a slow look does not count as working.

    `interval` is the time between two rounds in seconds; times are those of a monotonic clock.
    """

    interval: float
    most_threads: int = MOST_THREADS
    longest_backoff: float = LONGEST_BACKOFF
    urgent: Collection[str] = ()
    threads: int = 0
    _waiting: dict[str, tuple[float, int]] = field(default_factory=dict)  # since when, and its number
    _others: list[tuple[float, int, str]] = field(default_factory=list)  # heap of last look, number and key
    _silent: list[tuple[float, int, str]] = field(default_factory=list)  # the same of failing keys
    _numbers: count[int] = field(default_factory=count)
    _in_flight: dict[str, tuple[float, bool]] = field(default_factory=dict)  # start time, whether it was failing before
    _looked: dict[str, float] = field(default_factory=dict)  # when the last look that ended began
    _asked: set[str] = field(default_factory=set)
    _again: set[str] = field(default_factory=set)  # in flight, and to be looked at once more
    _failures: dict[str, int] = field(default_factory=dict)
    _not_before: dict[str, float] = field(default_factory=dict)

    @property
    def is_waiting(self) -> bool:
        """Whether any key is still to be looked at in this round."""
        return bool(self._waiting)

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._in_flight

    def seconds_late(self, now: float) -> float | None:
        """Return for how long beyond one interval a key that answers has waited for its look; 0 when all are in time.

        Returns:
            None if no look has ended yet, or no key answers.
        """
        if len(self._looked) == len(self._failures):
            return None
        waiting = (since for key, (since, _) in self._waiting.items() if not self._is_silent(key))
        return max(0.0, now - min(waiting, default=now) - self.interval)

    def begin_round(self, *, forced: bool) -> None:
        """Let every key be looked at again; `forced` ignores backoff and repeats the looks in flight."""
        self._asked.clear()
        if forced:
            self._not_before.clear()
            self._again.update(self._in_flight)

    def add(self, keys: Iterable[str], now: float) -> None:
        """Queue the keys that are due and have not been queued in this round."""
        for key in keys:
            if key not in self._asked and key not in self._in_flight and self._not_before.get(key, now) <= now:
                self._asked.add(key)
                if key not in self._waiting:
                    self._queue(key, now)

    def _queue(self, key: str, now: float) -> None:
        number = next(self._numbers)
        self._waiting[key] = now, number
        heappush(self._silent if self._is_silent(key) else self._others, (self._looked.get(key, -inf), number, key))

    def missing_threads(self, now: float, most: int = MOST_THREADS) -> int:
        """Return how many more threads are useful so that at most `most` work, and count them as started."""
        wanted = LEAST_AT_WORK + ceil(len(self._asked) * USUAL_SECONDS / self.interval)
        more = min(self.most_threads - self.threads, min(most, wanted) - self._at_work(now), len(self._waiting))
        self.threads += max(0, more)
        return max(0, more)

    def _at_work(self, now: float) -> int:
        return self.threads - sum(now - since >= SLOW_SECONDS for since, _ in self._in_flight.values())

    def take(self, now: float, most: int = MOST_THREADS) -> str | None:
        """Return the next key; None ends the thread: there is no key for it, or more than `most` threads work."""
        if most < self.threads and most < self._at_work(now):
            self.threads -= 1
            return None
        silent = sum(was_silent for _, was_silent in self._in_flight.values())
        key, failing = self._first(self._others), self._first(self._silent)
        is_overdue = failing is not None and now - self._waiting[failing][0] >= self.interval
        if key is None or (is_overdue and not silent):
            key = failing if silent < MOST_FOR_SILENT else None
        if key is None:
            self.threads -= 1
            return None
        heappop(self._silent if key == failing else self._others)
        del self._waiting[key]
        self._in_flight[key] = (now, self._is_silent(key))
        return key

    def _first(self, heap: list[tuple[float, int, str]]) -> str | None:
        """Return the first key of a heap that still waits."""
        while heap:
            _, number, key = heap[0]
            if self._waiting.get(key, (0.0, -1))[1] == number:
                return key
            heappop(heap)
        return None

    def _is_silent(self, key: str) -> bool:
        return key in self._failures and key not in self.urgent

    def end(self, key: str, now: float, *, answered: bool) -> None:
        """Record that the look at a key ended, and whether it answered."""
        self._looked[key], _ = self._in_flight.pop(key)
        if answered:
            self._failures.pop(key, None)
            self._not_before.pop(key, None)
        else:
            self._failures[key] = self._failures.get(key, 0) + 1
            self._not_before[key] = now + wait_after(self._failures[key], self.interval, self.longest_backoff)
        if key in self._again:
            self._again.remove(key)
            self._queue(key, now)

    def forget(self, keys: Iterable[str]) -> None:
        """Drop everything about keys that no longer exist."""
        for key in keys:
            for kept in (self._waiting, self._looked, self._failures, self._not_before):
                kept.pop(key, None)
            self._asked.discard(key)
            self._again.discard(key)
