"""Who is asked next: once a round, never twice at a time, in order of the last look, the silent ones rarely.

What else an engine does is shown by those who inherit it: test_fleet*.py, test_run_collector.py, test_mock_fleet.py.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.fakes import FakeClock
from training_monitor.core.clock import Clock, SystemClock
from training_monitor.core.engine import (
    LEAST_AT_WORK,
    MOST_FOR_SILENT,
    MOST_THREADS,
    SLOW_SECONDS,
    Engine,
    Schedule,
    wait_after,
)
from training_monitor.core.errors import TrainingMonitorError
from training_monitor.targets.transport import MOST_PROGRAMS


def taken(schedule: Schedule) -> list[str]:
    """All that one thread after another gets to ask now."""
    found = []
    for _ in range(schedule.missing_threads(0)):
        while key := schedule.take(0):
            found.append(key)
    return found


def begin(schedule: Schedule, keys: list[str], now: float, *, forced: bool = False) -> None:
    schedule.begin_round(forced=forced)
    schedule.add(keys, now)


def test_each_is_asked_once_in_a_round_however_often_it_is_added() -> None:
    schedule = Schedule(10)
    begin(schedule, ["a", "b", "a"], 0)
    schedule.add(["b"], 0)
    assert taken(schedule) == ["a", "b"]
    for key in "ab":
        schedule.end(key, 1, answered=True)
    schedule.add(["a"], 1)
    assert schedule.is_idle
    begin(schedule, ["a"], 10)
    assert taken(schedule) == ["a"]


@pytest.mark.parametrize(("forced", "answered"), [(False, True), (True, True), (True, False)])
def test_a_look_in_progress_is_repeated_after_its_end_by_a_forced_round_only(forced: bool, answered: bool) -> None:
    schedule = Schedule(10)
    schedule.add(["a"], 0)
    assert taken(schedule) == ["a"]
    begin(schedule, ["a"], 10, forced=forced)
    assert taken(schedule) == [] and not schedule.is_idle
    schedule.end("a", 11, answered=answered)
    assert taken(schedule) == (["a"] if forced else [])
    if forced:
        schedule.end("a", 12, answered=True)
    assert schedule.is_idle


def test_an_urgent_notice_is_retried_alone_and_never_silent() -> None:
    schedule = Schedule(10, urgent=("now",))
    silent = [f"silent {number}" for number in range(MOST_FOR_SILENT + 1)]
    keys = [*silent, "now"]
    schedule.add(keys, 0)
    taken_with_failures(schedule, keys)
    begin(schedule, keys, 100, forced=True)
    schedule.threads = len(keys)
    assert [schedule.take(100) for _ in keys] == ["now", *silent[:MOST_FOR_SILENT], None]


def test_a_failing_key_waits_twice_as_long_each_time_unless_a_round_is_forced() -> None:
    assert [wait_after(count, 10) for count in range(7)] == [0, 20, 40, 80, 160, 300, 300]
    assert wait_after(10_000, 10) == 300 and wait_after(3, 600) == 600
    schedule = Schedule(10)
    schedule.add(["a"], 0)
    taken(schedule)
    schedule.end("a", 5, answered=False)
    for now, expected in ((24.9, []), (25, ["a"])):
        begin(schedule, ["a"], now)
        assert taken(schedule) == expected
    schedule.end("a", 30, answered=False)
    begin(schedule, ["a"], 31, forced=True)
    assert taken(schedule) == ["a"]
    schedule.end("a", 32, answered=True)
    begin(schedule, ["a"], 32)
    assert taken(schedule) == ["a"]


def test_those_that_did_not_answer_come_last_and_never_hold_all_threads() -> None:
    schedule = Schedule(10)
    silent = [f"silent {number}" for number in range(50)]
    schedule.add(silent, 0)
    for key in taken_with_failures(schedule, silent):
        assert key in silent
    begin(schedule, [*silent, "good"], 100, forced=True)
    asked = []
    for now in range(100, 150):  # a second after the other, while all that are asked hang
        asked += [schedule.take(now) for _ in range(schedule.missing_threads(now))]
    assert schedule.threads <= MOST_THREADS < MOST_PROGRAMS
    assert asked[0] == "good" and len([key for key in asked if key]) == MOST_FOR_SILENT + 1
    schedule.add(["another"], 100)
    assert schedule.missing_threads(150) and schedule.take(150) == "another"


def look_at(schedule: Schedule, count: int, begin: float, *, answered: bool = True) -> list[str]:
    """Look at so many keys one after the other, each for a second; return those."""
    found = []
    for now in range(count):
        schedule.missing_threads(begin + now)
        if key := schedule.take(begin + now):
            schedule.end(key, begin + now + 1, answered=answered)
            found.append(key)
    return found


def test_the_key_whose_last_look_is_the_oldest_comes_first_and_a_new_one_before_it() -> None:
    schedule = Schedule(10)
    schedule.add(["a", "b", "c"], 0)
    assert look_at(schedule, 3, 0) == ["a", "b", "c"]
    begin(schedule, ["c", "b", "new", "a"], 10)
    assert look_at(schedule, 4, 10) == ["new", "a", "b", "c"]


def test_with_too_many_keys_for_an_interval_all_are_looked_at_equally_often() -> None:
    schedule, keys = Schedule(10), [f"member {number}" for number in range(25)]
    found = []
    for start in range(0, 100, 10):
        begin(schedule, keys, start)
        found += look_at(schedule, 10, start)
    assert found == keys * 4


def test_a_failing_key_is_looked_at_although_others_always_wait() -> None:
    schedule, keys = Schedule(10), [f"member {number}" for number in range(25)]
    schedule.add(["silent"], 0)
    look_at(schedule, 1, 0, answered=False)
    found = []
    for start in range(20, 100, 10):
        begin(schedule, ["silent", *keys], start)
        found += look_at(schedule, 10, start)
    assert found.index("silent") == 20  # it is due in the second round, and has waited for that in the third


def test_looks_are_late_by_what_a_key_waits_beyond_an_interval() -> None:
    schedule, keys = Schedule(10), [f"member {number}" for number in range(25)]
    schedule.add(keys, 0)
    assert schedule.seconds_late(9) is None
    late = []
    for start in range(0, 60, 10):
        begin(schedule, keys, start)
        look_at(schedule, 10, start)
        late.append(schedule.seconds_late(start + 10))
    assert late == [0, 10, 10, 10, 10, 10]


def test_lateness_is_unknown_while_no_key_answers_and_waits_for_good_keys_only() -> None:
    schedule = Schedule(10)
    schedule.add(["good", "hangs", "silent"], 0)
    assert look_at(schedule, 1, 0) == ["good"] and schedule.take(1) == "hangs"
    assert look_at(schedule, 1, 1, answered=False) == ["silent"]
    begin(schedule, ["good", "hangs", "silent"], 100, forced=True)
    assert schedule.take(100) == "good"
    schedule.end("good", 101, answered=True)
    assert schedule.seconds_late(1000) == 0
    schedule = Schedule(10)
    schedule.add(["a", "b"], 0)
    look_at(schedule, 2, 0, answered=False)
    assert schedule.seconds_late(100) is None


class Counted(str):
    """A key that counts how often it is looked up."""

    __slots__ = ()
    lookups = 0

    def __hash__(self) -> int:
        Counted.lookups += 1
        return super().__hash__()


@pytest.mark.parametrize("answered", [True, False])
def test_ten_thousand_keys_cost_as_many_lookups_each_as_ten(answered: bool) -> None:
    def lookups(number: int) -> float:
        schedule, keys = Schedule(10), [Counted(f"member {each}") for each in range(number)]
        Counted.lookups = 0
        for now in (0.0, 1000.0, 2000.0):
            begin(schedule, keys, now)
            schedule.threads = 1
            while key := schedule.take(now):
                schedule.end(key, now + 1, answered=answered)
        return Counted.lookups / number

    assert lookups(10_000) <= lookups(10)


def taken_with_failures(schedule: Schedule, keys: list[str]) -> list[str]:
    schedule.missing_threads(0)
    found = []
    for _ in keys:
        key = schedule.take(0)
        assert key
        found.append(key)
        schedule.end(key, 0, answered=False)
    schedule.threads = 0
    return found


def test_nothing_is_kept_of_those_that_are_forgotten() -> None:
    schedule = Schedule(10)
    schedule.add(["a", "b"], 0)
    schedule.missing_threads(0)
    assert schedule.take(0) == "a"
    schedule.end("a", 0, answered=False)
    schedule.forget(["a", "b"])
    assert schedule.take(0) is None and schedule.is_idle
    begin(schedule, ["a"], 0)
    assert not schedule.is_idle


def test_slow_members_get_threads_of_their_own() -> None:
    schedule = Schedule(10)
    schedule.add([f"member {number}" for number in range(50)], 0)
    first = schedule.missing_threads(0)
    assert first == LEAST_AT_WORK + 3
    assert all(schedule.take(0) for _ in range(first))
    assert schedule.missing_threads(SLOW_SECONDS - 0.1) == 0
    assert schedule.missing_threads(SLOW_SECONDS) == first
    assert Schedule(10, threads=MOST_THREADS).missing_threads(0) == 0


def test_where_one_thread_is_enough_the_others_end_but_for_those_that_wait_for_a_slow_look() -> None:
    schedule = Schedule(10)
    schedule.add([f"member {number}" for number in range(50)], 0)
    started = schedule.missing_threads(0)
    keys = [schedule.take(0) for _ in range(started)]
    for key in keys[1:]:
        schedule.end(str(key), 0.001, answered=True)
    assert [schedule.take(0.001, 1) for _ in keys[2:]] == [None] * (started - 2)
    assert schedule.threads == 2 and schedule.missing_threads(0.001, 1) == 0
    assert schedule.take(0.001, 1) is None and schedule.threads == 1  # its look is not slow yet
    assert schedule.missing_threads(SLOW_SECONDS, 1) == 1 and schedule.take(SLOW_SECONDS, 1)
    assert schedule.missing_threads(SLOW_SECONDS) == started - 1


class Counter(Engine):
    """Counts looks at one thing; `fault` is raised by whatever takes in a failure."""

    subject, most_threads = "counters", 0

    def __init__(self) -> None:
        super().__init__(10.0, FakeClock())
        self.count = 0

    def keys(self) -> list[str]:
        return ["a"]

    def look(self, key: str) -> None:
        self.count += 1
        raise TrainingMonitorError("no answer")

    def fail(self, key: str, error: str) -> None:
        raise ZeroDivisionError(error)


def test_a_snapshot_that_takes_long_is_made_less_often() -> None:
    class Slow(Counter):
        def show(self) -> None:
            times.append(self.clock.monotonic())
            self.clock.sleep(2.0)

    engine, times = Slow(), list[float]()
    engine.set_paused(True)  # no rounds, which show at their end in any case
    for _ in range(60):
        engine._note_change()
        engine._step()
        engine.clock.sleep(1.0)
    pauses = [after - before for before, after in zip(times, times[1:])]
    assert len(pauses) == 2 and all(22 <= pause < 24 for pause in pauses), pauses


def test_where_no_thread_is_left_starting_says_so_and_may_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, told = Counter(), threading.Event()

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(TrainingMonitorError, match="cannot start a thread to watch the counters"):
            engine.start()
    engine.listen(told.set)
    engine.listen(engine.close)
    engine.start()
    assert told.wait(20) and engine.count == 1


def test_a_failure_that_cannot_be_taken_in_ends_nothing() -> None:
    engine = Counter()
    engine.ask_all()
    engine.ask_all()
    assert engine.count == 2 and not engine.is_refreshing


ARENAS = """
import ctypes, sys, threading
from training_monitor.core.long_running import prepare_for_long
if sys.argv[2] == "few":
    prepare_for_long()
libc, barrier = ctypes.CDLL(None), threading.Barrier(20)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
def take():
    barrier.wait()
    for _ in range(100):
        libc.malloc(5000)
threads = [threading.Thread(target=take) for _ in range(20)]
[each.start() for each in threads]
[each.join() for each in threads]
file = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


def test_threads_share_two_arenas_of_malloc(tmp_path: Path) -> None:
    def arenas(how: str) -> int:
        report = tmp_path / how
        subprocess.run([sys.executable, "-c", ARENAS, str(report), how], check=True)
        return report.read_text().count("<heap nr=")

    if not hasattr(ctypes.CDLL(None), "malloc_info"):
        pytest.skip("no glibc: it has no arenas to limit")
    assert arenas("few") <= 2 < arenas("many")


class Many(Engine):
    """Looks at 300 keys, and counts the shown and judged rounds."""

    subject = "many"

    def __init__(self, clock: Clock) -> None:
        super().__init__(3600.0, clock)
        self.looks, self.judged = 0, threading.Event()

    def keys(self) -> list[str]:
        return [str(number) for number in range(300)]

    def look(self, key: str) -> None:
        time.sleep(0.005)
        with self._lock:
            self.looks += 1

    def judge(self) -> None:
        self.judged.set()


def test_looks_that_never_wait_are_made_by_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    class Busy(Many):
        def look(self, key: str) -> None:
            by.append(threading.get_ident())
            time.sleep(0.001)  # lets the others run

    by = list[int]()
    Busy(SystemClock()).ask_all()
    assert len(by) == 300 and len(set(by)) > 1
    by.clear()
    monkeypatch.setattr("training_monitor.core.engine.BUSY", -1.0)  # whatever they use of the processor is much
    monkeypatch.setattr("training_monitor.core.engine.BUSY_SECONDS", 0.0)
    Busy(SystemClock()).ask_all()
    assert len(by) == 300 and len(set(by)) == 1


class CountingClock(SystemClock):
    """Counts the waits of a loop, which are its wake-ups."""

    waits = 0

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.waits += 1
        return super().wait(event, seconds)


def test_a_round_of_many_looks_wakes_its_loop_a_few_times() -> None:
    clock = CountingClock()
    many = Many(clock)
    many.start()
    assert many.judged.wait(30) and many.looks == 300
    many.close()
    assert clock.waits < 50
