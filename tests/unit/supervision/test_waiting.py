"""wait_for against a target in memory: what ends a wait, what does not, and waits that are taken up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import BUSY, EPOCH, IDLE, Behaviour, FakeClock, FakeTraining, FakeTransport, gpu_answer, is_call
from tests.sweeps import cases_of
from tests.unit.killing import Killed, KillingStore, KillingTransport
from training_monitor.core.errors import JobNotFound, SettingsError, StateError, TargetNotFound
from training_monitor.core.outcomes import WaitReport
from training_monitor.core.records import format_record, read_record
from training_monitor.core.store import Store
from training_monitor.supervision.kept_waits import (
    ENDED_SECONDS,
    LEFT_SECONDS,
    MOST_ENDED,
    AskedWait,
    WaitState,
    forget_old_waits,
    list_waits,
    load_wait,
    save_wait,
)
from training_monitor.supervision.waiting import ABSENT_SECONDS, continue_wait, wait_for

JOB = "process:training"
HANDLE = "mine"
LISTS = ("find_trainings", "ray", "ray_signs", "recent_logs")  # what else is there cannot be asked


class There(FakeTraining):
    """The target; other trainings on it cannot be listed."""

    def act(self, script: str) -> tuple[str, int]:
        return ("", 1) if any(is_call(script, each) for each in LISTS) else super().act(script)


class World:
    """A training, and somebody who waits for it."""

    def __init__(self, folder: Path, does: Behaviour = Behaviour(total=1000)) -> None:  # noqa: B008
        self.folder, self.clock = str(folder / "state"), FakeClock()
        self.there = There(self.clock, does=does, gpus=gpu_answer(BUSY, 500))
        self.transport = FakeTransport(self.there.answer)
        self.said: list[str] = []

    @property
    def reach(self) -> dict[str, Any]:
        return {"store": Store(self.folder), "transport": self.transport, "clock": self.clock}

    @property
    def looks(self) -> int:
        return sum(any(is_call(each, "job", "look") for each in asked) for asked in self.transport.asked)

    def wait(self, *conditions: str, handle: str | None = HANDLE, **options: Any) -> WaitReport:
        given: dict[str, Any] = self.reach | {"checkpoint_dir": "/checkpoints", "on_look": self.said.append} | options
        return wait_for("local", JOB, conditions, handle=handle, **given)

    def go_on(self, handle: str = HANDLE, **options: Any) -> WaitReport:
        return continue_wait(handle, **(self.reach | options))

    def use_gpus(self, elapsed: float, utilization: int) -> None:
        answer = gpu_answer(utilization, 500 if utilization == BUSY else 60)
        self.clock.at(elapsed, lambda: setattr(self.there, "gpus", answer))


# ---------------------------------------------------------------- what ends it


def test_a_step_that_was_waited_for_ends_it_with_all_that_is_known(tmp_path: Path) -> None:
    world = World(tmp_path)
    report = world.wait("step=100")
    assert report.outcome == "met" and report.condition == "step=100" and report.conditions == ("step=100",)
    assert report.reason == f"reached step {report.step} of 1000"
    assert (report.verdict, report.state, report.name, report.job_id) == ("ok", "running", JOB, JOB)
    assert report.step is not None and 100 <= report.step <= 111 and report.total_steps == 1000 and report.loss == 0.5
    assert report.seconds == pytest.approx(world.clock.elapsed) and report.unseen_seconds == 0
    assert (report.target, report.handle, report.errors) == ("local", HANDLE, ())
    assert read_record(WaitReport, format_record(report)) == report


@pytest.mark.parametrize(
    ("conditions", "outcome", "condition", "more"),
    [
        (("failed", "finished"), "met", "finished", ""),
        (("step=301", "epoch=9"), "missed", None, ", but the condition step=301 or epoch=9 was not met"),
    ],
)
def test_a_training_that_finishes_ends_it(
    tmp_path: Path, conditions: tuple[str, ...], outcome: str, condition: str | None, more: str
) -> None:
    report = World(tmp_path, Behaviour(total=300)).wait(*conditions)
    assert (report.outcome, report.condition, report.state, report.verdict) == (outcome, condition, "finished", "ok")
    assert report.reason == f"finished at step 300 of 300{more}"


@pytest.mark.parametrize("asked", [True, False])
def test_a_training_that_fails_ends_it_whether_asked_for_or_not(tmp_path: Path, asked: bool) -> None:
    world = World(tmp_path, Behaviour(total=1000, crash_after=70, exit_code=137))
    report = world.wait("step=500", *(["failed"] if asked else []))
    assert (report.outcome, report.condition) == (("met", "failed") if asked else ("missed", None))
    assert (report.state, report.verdict, report.step) == ("failed", "failed", 70)
    assert report.reason.startswith("failed at step 70 of 1000") and asked != report.reason.endswith("was not met")


def test_a_training_that_a_person_stops_or_that_fails_at_the_last_moment_ends_it(tmp_path: Path) -> None:
    world = World(tmp_path / "stopped")
    world.clock.at(50, world.there.stop_by_person)
    report = world.wait("finished")
    assert (report.outcome, report.state) == ("missed", "stopped")
    report = World(tmp_path, Behaviour(crash_after=70)).wait("step=500", timeout=70, interval=70)
    assert (report.outcome, report.state) == ("missed", "failed"), "no timeout"


@pytest.mark.parametrize("asked", [True, False])
def test_a_stall_ends_it_whether_asked_for_or_not(tmp_path: Path, asked: bool) -> None:
    world = World(tmp_path, Behaviour(total=1000, hang_after=100))
    world.use_gpus(100, IDLE)
    report = world.wait("stalled" if asked else "step=500")
    assert (report.outcome, report.condition) == (("met", "stalled") if asked else ("missed", None))
    assert (report.state, report.verdict) == ("stalled", "failed") and "no step for" in report.reason
    assert world.there.running()  # it is only looked at


def test_time_that_runs_out_ends_it_with_what_is_known(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.clock.sleep(50)
    assert world.wait("step=40", handle="first").seconds == 0
    report = world.wait("step=500", "failed", timeout=100)
    assert (report.outcome, report.condition, report.state, report.seconds) == ("timeout", None, "running", 100)
    assert report.reason.startswith("the condition step=500 or failed was not met within 1m40s; step 150 of 1000")


def test_gpus_that_are_idle_for_long_enough_end_it(tmp_path: Path) -> None:
    world = World(tmp_path, Behaviour(total=10_000))
    for elapsed, utilization in ((100, IDLE), (300, BUSY), (400, IDLE)):
        world.use_gpus(elapsed, utilization)
    report = world.wait("gpu-idle=5m")
    assert report.condition == "gpu-idle=5m" and 700 <= report.seconds <= 800
    assert report.reason.startswith("its GPUs have been idle for 5m")


def test_gpus_that_could_not_be_seen_for_long_were_not_idle_meanwhile(tmp_path: Path) -> None:
    world = World(tmp_path, Behaviour(total=10_000))
    world.use_gpus(0, IDLE)
    world.there.unreachable(100, 1000)
    report = world.wait("gpu-idle=10m", stagnation_threshold=1e6)
    assert 1600 <= report.seconds <= 1800 and 850 <= report.unseen_seconds <= 1100


def test_gpus_that_cannot_be_read_are_not_idle_and_that_is_told(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.there.gpus = ""
    report = world.wait("gpu-idle=10s", timeout=100)
    assert report.outcome == "timeout" and len(report.errors) == 1
    assert report.errors[0].startswith("its GPUs could not be queried: ") and report.errors[0] in report.reason


# ---------------------------------------------------------------- checkpoints, lines


def test_a_checkpoint_ends_it_once_it_is_complete(tmp_path: Path) -> None:
    world = World(tmp_path, Behaviour(total=1000, save_every=None))
    checkpoints = world.there.checkpoints
    checkpoints[50] = None
    world.clock.at(100, lambda: checkpoints.update({100: "cut short"}))
    world.clock.at(200, lambda: checkpoints.update({100: None}))
    report = world.wait("checkpoint")
    assert report.condition == "checkpoint" and 200 <= report.seconds <= 225
    assert report.checkpoint and report.checkpoint.path == "/checkpoints/step_100"
    assert report.reason == "a new complete checkpoint: step 100, /checkpoints/step_100"


def test_the_last_checkpoint_of_a_training_counts_before_its_end(tmp_path: Path) -> None:
    report = World(tmp_path, Behaviour(total=300, save_every=300)).wait("checkpoint", interval=1000)
    assert (report.outcome, report.condition, report.state) == ("met", "checkpoint", "finished")


def rotate(there: There) -> None:
    there.log, there.inode = "needle\n", 8


@pytest.mark.parametrize(
    ("act", "condition", "line"),
    [
        (lambda there: there.write("val_acc=0.93 \x1b[32mgood\x1b[0m\n"), "log=val_acc=0[.]9", "val_acc=0.93 good"),
        (rotate, "log=^needle$", "needle"),
        (lambda there: there.write("up with token=hf_AbCdEfGhIjKlMnOp\n"), "log=up with", "up with token=***"),
    ],
    ids=["a colour", "a rotation", "a secret"],
)
def test_a_new_line_ends_it_and_an_old_one_does_not(
    tmp_path: Path, act: Callable[[There], None], condition: str, line: str
) -> None:
    world = World(tmp_path)
    world.there.write("val_acc=0.91\n")
    world.clock.at(100, lambda: act(world.there))
    report = world.wait(condition)
    assert report.line == line and 100 <= report.seconds <= 112
    assert report.reason == f"its log contains: {line}" and "hf_AbC" not in format_record(report)


def test_an_unfinished_last_line_counts_and_the_end_of_a_log_without_a_cursor(tmp_path: Path) -> None:
    world = World(tmp_path / "unfinished", Behaviour(crash_after=100))
    world.clock.at(100, lambda: world.there.write("no end: needle"))
    assert world.wait("log=needle").line == "no end: needle"
    other = World(tmp_path)
    job, other.there.has_log = other.there.training, False

    def whole_log(now: float) -> tuple[str, float]:
        return "".join(f"step {each}/1000 loss 0.5\n" for each in range(1, job.step(now) + 1)), now

    job.log = whole_log  # type: ignore[method-assign]
    other.clock.sleep(50)
    assert other.wait("log=step (49|60)/").line == "step 60/1000 loss 0.5"


# ---------------------------------------------------------------- what does not end it


@pytest.mark.parametrize(("condition", "total", "end"), [("step=800", 1000, 700), ("finished", 300, 7000)])
def test_an_outage_ends_nothing_and_is_told_at_the_end(tmp_path: Path, condition: str, total: int, end: float) -> None:
    world = World(tmp_path, Behaviour(total=total))
    world.there.unreachable(100, end)
    report = world.wait(condition)
    assert report.condition == condition and report.seconds >= end and end - 200 < report.unseen_seconds <= end
    assert "the training could not be observed" in report.reason
    assert any("cannot be reached" in said for said in world.said)


def test_time_runs_out_also_while_it_cannot_be_seen_and_nothing_is_known_then(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.there.unreachable(100, 10_000)
    report = world.wait("step=500", timeout=300)
    assert (report.outcome, report.verdict, report.state, report.seconds) == ("timeout", "unknown", "unknown", 300)
    assert "cannot be reached" in report.reason and 190 <= report.unseen_seconds <= 215


def test_a_restart_under_the_same_name_ends_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.clock.at(100, lambda: world.there.begin_again(Behaviour(total=1000)))
    report = world.wait("step=500")
    assert report.outcome == "met" and 600 <= report.seconds <= 661


def test_a_training_that_is_not_there_for_a_moment_comes_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    job = world.there.training

    def lose() -> None:
        del world.there.jobs["training"]

    world.there.unreachable(100, 160, TargetNotFound("no such pod"))
    world.wait("step=300", handle="pod")
    assert world.there.training is job
    world.there._print_steps = lambda: None  # type: ignore[method-assign]  # it reads the training
    world.clock.at(world.clock.elapsed + 5, lose)
    world.clock.at(world.clock.elapsed + 60, lambda: world.there.jobs.update(training=job))
    assert world.wait("step=600", handle="job").outcome == "met"


def test_a_training_that_is_there_no_more_ends_it_as_unknown(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.there.unreachable(100, 10_000, TargetNotFound("no such pod"))
    report = world.wait("step=500")
    assert (report.outcome, report.state) == ("unknown", "unknown") and "no such pod" in report.reason
    assert 100 + ABSENT_SECONDS <= report.seconds <= 130 + ABSENT_SECONDS


def test_a_long_wait_takes_few_looks(tmp_path: Path) -> None:
    world = World(tmp_path, Behaviour(total=12_000))
    world.wait("finished")
    assert world.clock.elapsed >= 12_000 and world.looks < 250


def test_a_missing_training_raises_and_leaves_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    with pytest.raises(JobNotFound, match="process:nowhere"):
        wait_for("local", "process:nowhere", handle=HANDLE, **world.reach)
    assert load_wait(Store(world.folder), HANDLE) is None


@pytest.mark.parametrize("handle", ["", "a b", "../x", "-x", "x" * 101, "é"])
def test_a_handle_is_a_plain_name(tmp_path: Path, handle: str) -> None:
    with pytest.raises(JobNotFound, match="no saved wait has the handle 'mine'"):
        World(tmp_path).go_on()
    if handle:
        with pytest.raises(SettingsError, match="handle"):
            World(tmp_path).wait("finished", handle=handle)
    with pytest.raises(SettingsError, match="handle"):
        World(tmp_path).go_on(handle)


# ---------------------------------------------------------------- taken up


def test_a_wait_that_has_ended_gives_its_result_again_and_takes_no_other_condition(tmp_path: Path) -> None:
    world = World(tmp_path)
    report = world.wait("step=100")
    asked = len(world.transport.asked)
    assert world.go_on() == world.wait("step=100") == report
    for condition, timeout in (("step=101", None), ("step=100", 60.0)):
        with pytest.raises(SettingsError, match="another name, because .* a wait for step=100 of local process:tr"):
            world.wait(condition, timeout=timeout)
    assert len(world.transport.asked) == asked


def test_a_wait_without_a_handle_gets_one(tmp_path: Path) -> None:
    world = World(tmp_path)
    handles = {world.wait("step=100", handle=None).handle for _ in range(3)}
    assert len(handles) == 3 and {each.handle for each in list_waits(Store(world.folder))} == handles


def test_it_can_be_stopped_from_outside_and_taken_up_with_the_same_deadline(tmp_path: Path) -> None:
    world, stopping = World(tmp_path), threading.Event()
    world.clock.at(100, stopping.set)
    report = world.wait("step=900", timeout=500, stopping=stopping)
    assert (report.outcome, report.condition) == ("interrupted", None) and 100 <= report.seconds <= 102
    assert world.there.running()
    world.clock.sleep(100)
    report = world.go_on()
    assert (report.outcome, report.seconds) == ("timeout", 500) and 95 <= report.unseen_seconds <= 120


def test_a_passed_deadline_ends_after_one_more_look(tmp_path: Path) -> None:
    for name, step, outcome in (("late", 900, "timeout"), ("in time", 200, "met")):
        world, stopping = World(tmp_path / name), threading.Event()
        world.clock.at(100, stopping.set)
        world.wait(f"step={step}", timeout=150, stopping=stopping)
        world.clock.sleep(200)
        assert world.go_on().outcome == outcome


class KilledWorld(World):
    """A wait for a line, a checkpoint or a failure, with a life in which these come one after the other."""

    CASES = (
        (("log=needle",), "log=needle"),
        (("checkpoint", "step=600"), "checkpoint"),
        (("step=300", "failed"), "step=300"),
        (("failed", "step=800"), "failed"),
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, Behaviour(total=1000, save_every=200, crash_after=500))
        self.clock.sleep(100)
        self.clock.at(160, lambda: self.there.write("needle 1\n"))
        self.clock.at(161, lambda: self.there.write("hay\n"))


def outcome_of(report: WaitReport) -> tuple[object, ...]:
    return report.outcome, report.condition, report.line, report.checkpoint, report.state, report.job_id


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("conditions", "met"), KilledWorld.CASES)
def test_killed_at_any_act_and_taken_up_it_ends_the_same(
    memory_path: Path, conditions: tuple[str, ...], met: str, after: bool
) -> None:
    """Killed before or after each of its writes, and before or after each of its questions."""
    whole = KilledWorld(memory_path / "whole")
    store = KillingStore(whole.folder, 0, after=after)
    killing = KillingTransport(whole.there.answer, 0, after=after)
    expected = outcome_of(whole.wait(*conditions, interval=20, store=store, transport=killing))
    assert expected[:2] == ("met", met) and min(store.death.acts, killing.death.acts) >= 4
    for kind, acts in (("write", store.death.acts), ("question", killing.death.acts)):
        for at in cases_of(range(1, acts + 1), 6):
            world = KilledWorld(memory_path / f"{kind} {at}")
            store = KillingStore(world.folder, at if kind == "write" else 0, after=after)
            killing = KillingTransport(world.there.answer, at if kind == "question" else 0, after=after)
            with pytest.raises(Killed):
                world.wait(*conditions, interval=20, store=store, transport=killing)
            assert outcome_of(world.wait(*conditions, interval=20)) == expected, (kind, at)


def test_a_full_disk_here_ends_nothing_and_is_told(tmp_path: Path) -> None:
    class Full(Store):
        saves = 0

        def save_run(self, key: str, state: object, *, finished: bool) -> None:
            self.saves += 1
            if self.saves > 3:
                raise StateError("no space left")
            super().save_run(key, state, finished=finished)

    world = World(tmp_path)
    report = world.wait("step=500", store=Full(world.folder))
    assert report.outcome == "met" and report.errors == ("the wait cannot be resumed with its handle: no space left",)


def test_the_waits_are_listed_the_last_written_first(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "state"))
    asked = AskedWait("local", "train.log", ("finished",))
    for handle in ("one", "two", "three"):
        save_wait(store, handle, WaitState(asked, EPOCH))
        time.sleep(0.01)
    assert [each.handle for each in list_waits(store)] == ["three", "two", "one"]
    assert list_waits(store)[0].asked == asked and list_waits(store)[0].result is None


def test_old_waits_are_forgotten_and_their_locks_with_them(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.wait("step=100", handle="ended")
    store, asked = Store(world.folder), AskedWait("local", None, ("finished",))
    save_wait(store, "left", WaitState(asked, EPOCH))
    store.save_run("something else", {}, finished=True)
    locks = Path(world.folder) / "locks"
    assert len(list(locks.iterdir())) == 1
    for days, left in (
        (ENDED_SECONDS - 60, {"ended", "left"}),
        (ENDED_SECONDS + 60, {"left"}),
        (LEFT_SECONDS + 60, set()),
    ):
        forget_old_waits(store, time.time() + days)
        assert {each.handle for each in list_waits(store)} == left
    assert not list(locks.iterdir()) and store.load_run("something else", dict, finished=True) == {}


def test_only_the_last_that_ended_are_kept(tmp_path: Path) -> None:
    world = World(tmp_path)
    result, store = world.wait("step=1", handle="first"), Store(world.folder)
    state = load_wait(store, "first")
    assert state and state.result == result
    with store.transaction(durable=False) as execute:
        row = [(f"wait more{n}", format_record(state), 1, time.time()) for n in range(MOST_ENDED)]
        execute("INSERT INTO runs VALUES (?, ?, ?, ?)", each=row)
    forget_old_waits(store, time.time())
    handles = {each.handle for each in list_waits(store)}
    assert len(handles) == MOST_ENDED and "first" not in handles
