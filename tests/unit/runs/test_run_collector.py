"""RunCollector over a folder in memory: what stays when a look fails or hangs, when it looks, what acts come to."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.fakes import EPOCH, FakeClock
from tests.unit.fleet.fleet_world import eventually
from tests.unit.runs.run_world import look, machine, process, run
from training_monitor.core.engine import MOST_WORDS
from training_monitor.core.errors import TargetUnreachable, TrainingMonitorError
from training_monitor.runs.collector import MOST_ACTS, MOST_MESSAGES, RunCollector
from training_monitor.runs.values import KILLED, FolderLook, Limits, Message

PATIENCE = 10.0


class Folder:
    """A RemoteRuns with one run; `answer` gives its looks, and is told how many there were."""

    def __init__(self, clock: FakeClock, answer: Callable[[int], FolderLook] | None = None) -> None:
        self.clock, self.answer = clock, answer or self.usual
        self.looks: list[float] = []
        self.threads_of: list[frozenset[int]] = []
        self.at_once = self.most_at_once = 0
        self.read_output = self.edit = self.send_signal = self.measure = self.delete = nobody_does

    def usual(self, number: int) -> FolderLook:
        return self.at(self.clock.elapsed, cpu_ticks=int(self.clock.elapsed * 50))

    def at(self, elapsed: float, **changes: Any) -> FolderLook:
        sample = machine(process(100, **changes), at=10_000.0 + elapsed)
        return look(run(updated_at=EPOCH + elapsed), sample, timestamp=EPOCH + elapsed)

    def look(self, threads_of: frozenset[int]) -> FolderLook:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            self.looks.append(self.clock.elapsed)
            self.threads_of.append(threads_of)
            return self.answer(len(self.looks))
        finally:
            self.at_once -= 1


def nobody_does(*_: Any) -> Any:
    raise AssertionError("nobody reads, edits, signals, measures or deletes")


def collect(answer: Callable[[int], FolderLook] | None = None, **options: Any) -> tuple[RunCollector, Folder]:
    clock = FakeClock()
    folder = Folder(clock, answer)
    return RunCollector(folder, where="/runs", clock=clock, **options), folder


def fail_with(error: Exception) -> Callable[..., Any]:
    def call(*_: object) -> Any:
        raise error

    return call


def run_until(collector: RunCollector, folder: Folder, elapsed: float) -> list[float]:
    """Let it look until so many seconds have passed. Returns when it looked."""
    folder.clock.at(elapsed, collector.close)
    collector.start()
    assert eventually(lambda: folder.clock.elapsed >= elapsed, PATIENCE)
    return folder.looks


def test_a_look_in_the_calling_thread_shows_the_runs_and_the_next_their_cpu() -> None:
    collector, folder = collect(limits=Limits(cpus=2.0))
    assert collector.look_once().rows[0].cpu_percent == 99.0
    folder.clock.sleep(2)
    snapshot = collector.look_once()
    assert snapshot.rows[0].cpu_percent == 50.0 and snapshot.usage.max_cores == 2.0
    assert snapshot.timestamp == EPOCH + 2 and collector.snapshot() == snapshot


def test_a_run_that_makes_no_batch_stalls_and_is_well_again_with_the_next_one() -> None:
    collector, folder = collect()

    def answer(number: int) -> FolderLook:
        now = EPOCH + folder.clock.elapsed
        hung = 600 <= folder.clock.elapsed < 4200
        begun = 600 if hung else int(folder.clock.elapsed)
        counted = {"step": 1 + begun, "step_at": EPOCH + begun, "epoch": 1, "total_epochs": 1}
        sample = machine(process(100), at=10_000.0 + folder.clock.elapsed)
        return look(run(updated_at=now, batch=1 + begun, total_batches=9000, **counted), sample, timestamp=now)

    folder.answer, states = answer, []
    for _ in range(200):
        (row,) = collector.look_once().rows
        states.append(row.verdict.state)
        assert (row.eta_seconds is None) == (row.verdict.state not in ("running", "slow")) and row.status == "RUNNING"
        folder.clock.sleep(24)
    assert states[:26] == ["running"] * 26 and states[150] == "stalled" and states[-1] == "running"
    stalled = states[states.index("stalled") : 176 - 1]
    assert set(stalled) == {"stalled"}


def test_time_in_which_a_run_could_not_be_seen_is_not_watched() -> None:
    """It hides for half an hour, and its clock says that the last batch began before that."""
    collector, folder = collect()

    def answer(number: int) -> FolderLook:
        elapsed = folder.clock.elapsed
        is_hidden, step = 300 < elapsed < 2100, int(min(elapsed, 300))
        counted = {"step": 1 + step, "batch": 1 + step, "step_at": EPOCH + step, "epoch": 1, "total_epochs": 1}
        sample = None if is_hidden else machine(process(100), at=10_000.0 + elapsed)
        updated_at = EPOCH + (300 if is_hidden else elapsed)
        seen = run(updated_at=updated_at, total_batches=9000, **counted)
        return look(seen, sample, timestamp=EPOCH + elapsed)

    folder.answer, states = answer, {}
    for _ in range(120):
        states[folder.clock.elapsed] = collector.look_once().rows[0].verdict.state
        folder.clock.sleep(20)
    assert {states[each] for each in states if 340 < each < 2100} == {"unknown"}
    assert [states[each] for each in (2100, 2120)] == ["unknown", "unknown"] and states[2380] == "stalled"


def test_a_run_that_is_gone_is_forgotten_and_looks_compare_with_one_a_second_old() -> None:
    collector, folder = collect(lambda number: look(run() if number == 1 else (), machine(process(100))))
    assert len(collector.look_once().rows) == 1 and collector.look_once().rows == ()
    assert collector._past == {}
    collector, folder = collect()
    for _ in range(8):
        snapshot = collector.look_once()
        folder.clock.sleep(0.3)
    assert snapshot.rows[0].cpu_percent == pytest.approx(50.0, abs=3)


def test_it_looks_every_interval_from_the_beginning_of_a_look_on() -> None:
    collector, folder = collect(interval=2.0)

    def slow(number: int) -> FolderLook:
        folder.clock.elapsed += 0.5 if number != 3 else 7.0
        return folder.usual(number)

    folder.answer = slow
    assert run_until(collector, folder, 16)[:6] == pytest.approx([0, 2, 4, 11.05, 13.05, 15.05])


def test_failed_looks_keep_the_rows_and_back_off() -> None:
    collector, folder = collect(interval=2.0)
    seen = []

    def failing(number: int) -> FolderLook:
        seen.append(collector.snapshot())
        if 2 <= number <= 8:
            raise TargetUnreachable(f"no route {number}", target="ssh://gpu-7")
        return folder.usual(number)

    folder.answer = failing
    times = run_until(collector, folder, 170)
    assert [later - earlier for earlier, later in zip(times[1:8], times[2:9])] == [4, 8, 16, 30, 30, 30, 30]
    first, last, after = seen[0], seen[8], seen[9]
    assert (first.rows, first.error, first.where) == ((), None, "/runs")
    assert last.error == "ssh://gpu-7: no route 8" and last.stale_since == EPOCH + 2
    assert [row.run.name for row in last.rows] == ["llama"] and last.timestamp == EPOCH
    assert (after.error, after.stale_since, len(after.rows)) == (None, None, 1)


def test_a_look_that_breaks_in_a_way_nobody_thought_of_is_an_error_as_well() -> None:
    error = collect(fail_with(ValueError("x" * 2000)))[0].look_once().error
    assert error and error.startswith("the query failed: ValueError") and len(error) == MOST_WORDS


def test_a_hanging_look_delays_nothing_and_is_discarded() -> None:
    collector, folder = collect()
    collector.look_once()
    hangs, released = threading.Event(), threading.Event()

    def hanging(number: int) -> FolderLook:
        hangs.set()
        assert released.wait(PATIENCE)
        return look((), machine())

    folder.answer = hanging
    collector.start()
    assert hangs.wait(PATIENCE)
    assert collector.snapshot().is_refreshing and len(collector.snapshot().rows) == 1
    collector.close()
    released.set()
    assert eventually(lambda: not collector.snapshot().is_refreshing, PATIENCE)
    assert len(collector.snapshot().rows) == 1 and len(folder.looks) == 2


def test_there_are_never_two_looks_at_once() -> None:
    collector, folder = collect()
    barrier = threading.Barrier(6)

    def look_too() -> None:
        barrier.wait(PATIENCE)
        collector.look_once()

    threads = [threading.Thread(target=look_too) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert (len(folder.looks), folder.most_at_once) == (6, 1)


def test_a_refresh_during_a_look_is_followed_by_another_look_at_once() -> None:
    collector, folder = collect(interval=1000.0)

    def asking(number: int) -> FolderLook:
        if number < 4:
            collector.refresh()
        return folder.usual(number)

    folder.answer = asking
    assert run_until(collector, folder, 500) == pytest.approx([0, 0, 0, 0], abs=0.01)


def test_starting_twice_starts_one_thread() -> None:
    collector, folder = collect(interval=100.0)
    begun = threading.Event()

    def waiting(number: int) -> FolderLook:
        assert begun.wait(PATIENCE)
        return folder.usual(number)

    folder.answer = waiting
    folder.clock.at(150, collector.close)
    collector.start()
    collector.start()
    begun.set()
    assert eventually(lambda: folder.clock.elapsed >= 150, PATIENCE) and folder.looks == [0, 100]


def test_threads_are_read_of_what_is_expanded_from_the_next_look_on() -> None:
    collector, folder = collect(interval=1000.0)

    def expanding(number: int) -> FolderLook:
        collector.expand(frozenset({100, number}) if number < 3 else frozenset({100}))
        return folder.usual(number)

    folder.answer = expanding
    run_until(collector, folder, 500)
    assert folder.threads_of == [frozenset(), frozenset({100, 1}), frozenset({100, 2})]


def test_what_is_wrong_with_the_machine_and_its_gpus_is_told() -> None:
    without_gpus = look(run(), machine(gpu_error="nvidia-smi is not installed here"))
    answers = [without_gpus, look(run(), None, machine_error="no /proc")]
    collector, _ = collect(lambda number: answers[number - 1])
    assert not collector.snapshot().is_refreshing
    first, second = collector.look_once(), collector.look_once()
    assert (first.gpu_error, first.machine_error) == ("nvidia-smi is not installed here", None)
    assert first.rows[0].status == KILLED  # one look tells it
    assert (second.gpu_error, second.machine_error) == (None, "no /proc")


def test_listeners_get_every_look_and_their_errors_are_ignored() -> None:
    collector, folder = collect()
    heard: list[str | None] = []
    collector.listen(fail_with(ValueError("mine")))
    collector.listen(lambda: heard.append(collector.snapshot().error))
    collector.look_once()
    folder.answer = fail_with(TrainingMonitorError("gone"))
    collector.look_once()
    assert heard == [None, "gone"]
    collector.close()
    collector.look_once()
    assert len(heard) == 2


def texts(collector: RunCollector) -> list[str]:
    return [message.text for message in collector.messages()]


def test_what_an_act_came_to_is_a_message_and_the_runs_are_looked_at_again() -> None:
    collector, folder = collect(interval=1000.0)

    def acting(number: int) -> FolderLook:
        if number == 1:
            collector.act("TERM to llama", lambda: "process 100 is gone")
            assert eventually(collector.messages, PATIENCE)
        return folder.usual(number)

    folder.answer = acting
    assert run_until(collector, folder, 500) == pytest.approx([0, 0], abs=0.01)
    assert collector.messages() == (Message(EPOCH, "process 100 is gone"),)


def test_an_act_that_fails_says_why() -> None:
    for error, said in [
        (TrainingMonitorError("not the same process", hint="look again"), "not the same process. Try: look again"),
        (KeyError("x"), "KeyError('x')"),
    ]:
        collector, _ = collect()
        collector.act("delete llama", fail_with(error))
        assert eventually(collector.messages, PATIENCE)
        assert texts(collector) == [f"failed to delete llama: {said}"]


def test_acts_that_hang_hold_up_nobody_and_are_not_too_many() -> None:
    collector, _ = collect()
    released, ended = threading.Event(), list[bool]()

    def hanging() -> str:
        ended.append(released.wait(PATIENCE))
        return "done"

    for _ in range(MOST_ACTS + 1):
        collector.act("hang", hanging)
    [refused] = texts(collector)
    assert refused.startswith(f"failed to hang: {MOST_ACTS} other actions are running")
    released.set()
    assert eventually(lambda: len(collector.messages()) == MOST_ACTS + 1, PATIENCE) and ended == [True] * MOST_ACTS
    collector.act("after", lambda: "done")
    assert eventually(lambda: texts(collector)[-1] == "done", PATIENCE)


def test_messages_are_bounded_in_number_and_length() -> None:
    collector, _ = collect()
    for number in range(MOST_MESSAGES + 5):
        collector.tell(f"{number} " + "x" * 1000)
    messages = texts(collector)
    assert len(messages) == MOST_MESSAGES and messages[0].startswith("5 ") and len(messages[0]) == MOST_WORDS


def test_acts_under_way_are_waited_for_and_their_messages_are_there_then() -> None:
    collector, folder = collect()
    assert collector.wait_for_acts(60.0) == () and folder.clock.slept == []
    released = threading.Event()

    def slow() -> str:
        assert released.wait(PATIENCE)
        return "deleted llama"

    collector.act("delete llama", slow)
    assert collector.acts() == ("delete llama",)
    assert collector.wait_for_acts(2.0) == ("delete llama",) and folder.clock.elapsed == pytest.approx(2.0)
    folder.clock.at(3.0, lambda: (released.set(), eventually(collector.messages, PATIENCE)))
    assert collector.wait_for_acts(60.0) == ()
    assert texts(collector) == ["deleted llama"] and collector.acts() == ()


def test_two_acts_of_one_name_are_two() -> None:
    collector, _ = collect()
    released = threading.Event()
    collector.act("CONT to llama", lambda: str(released.wait(PATIENCE)))
    collector.act("CONT to llama", lambda: "done")
    assert eventually(collector.messages, PATIENCE)
    assert collector.acts() == ("CONT to llama",)
    released.set()
    assert eventually(lambda: not collector.acts(), PATIENCE)
