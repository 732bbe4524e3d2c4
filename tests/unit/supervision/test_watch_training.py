"""watch_training against a target in memory: how a watch ends, who is told, outages, and killed watchers."""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import BUSY, EPOCH, IDLE, NO_TOKEN, Behaviour, FakeClock, FakeStream, gpu_answer
from tests.sweeps import cases_of
from tests.unit.killing import Killed, KillingEverything, KillingTransport
from tests.unit.supervision.test_terminate import FILES, HUB, Bench as TerminateBench
from training_monitor.cli.parsing import build_parser
from training_monitor.core.errors import CommandTimedOut, JobNotFound, SettingsError, TargetUnreachable
from training_monitor.core.models import Progress
from training_monitor.core.outcomes import TerminationPlan, WatchReport
from training_monitor.core.store import Store
from training_monitor.core.values import LogUpdate, TrainingStatus
from training_monitor.supervision.terminate import is_terminating
from training_monitor.supervision.watch import watch_training
from training_monitor.supervision.watch_state import NOT_STALLING
from training_monitor.supervision.watcher import Callback, TrainingWatcher

HANGS = Behaviour(total=2000, hang_after=600, save_every=100)
FINISHES = Behaviour(total=500, save_every=100)
SAVE = TerminationPlan(upload_to=(HUB,), destroy=True)
JOB = {"job_id": "process:training", "output_dir": "/checkpoints", "name": "my run"}


class Bench(TerminateBench):
    """A training on a rented instance, whose GPU is idle when it makes no steps, and people who are told."""

    runs_for = 0.0

    def __init__(self, folder: Path, does: Behaviour = HANGS, target: str = "vast://7") -> None:
        super().__init__(folder, does, target, gpus=gpu_answer(BUSY, 500), prints_every=10)
        if does.hang_after:
            self.clock.at(does.hang_after, lambda: setattr(self.there, "gpus", gpu_answer(IDLE)))
        self.statuses: list[TrainingStatus] = []
        self.stopping = threading.Event()
        self.sleeps: list[float] = []  # how long this machine is suspended after the next look

    def _look(self, status: TrainingStatus) -> None:
        self.statuses.append(status)
        if self.sleeps:
            self.clock.sleep(self.sleeps.pop())

    def watch(
        self, plan: TerminationPlan | None = None, *, store: Store | None = None, job: Any = FILES, **config: Any
    ) -> WatchReport | None:
        store = store or Store(self.folder)
        watcher = self.watcher(store, job, **{"poll_interval": 60, "grace_period": 300, **config})
        told: dict[str, Any] = {"on_status": self._look, "on_event": self.events.append, "stopping": self.stopping}
        with self.outbox(store) as outbox:
            return watch_training(watcher, plan=plan, outbox=outbox, **told)

    def watched(self, plan: TerminationPlan | None = None, **options: Any) -> WatchReport:
        report = self.watch(plan, **options)
        assert report
        return report


class ToldLines(TrainingWatcher):
    """A watcher that is told the lines of the log by the test."""

    def follow(self, callback: Callback, *, polls: bool) -> Callable[[], None]:
        self.callback = callback
        return lambda: None

    def say(self, line: str, *, finished: bool | None = None) -> None:
        self.callback(LogUpdate(line, Progress(finished=finished), NOT_STALLING, self.clock.time()))


def times_of_looks(folder: Path, *lines: tuple[str, bool | None], most: int = 5) -> list[float]:
    """The seconds between the looks at a run that goes on, after each of which the same lines come."""
    bench, told = Bench(folder, Behaviour(total=100_000), "local"), list[LogUpdate]()
    options: dict[str, Any] = {"store": Store(bench.folder), "transport": bench.transport, "clock": bench.clock}
    watcher = ToldLines("local", FILES, {"poll_interval": 60}, **options)

    def look(status: TrainingStatus) -> None:
        bench.statuses.append(status)
        for line, finished in lines:
            watcher.say(line, finished=finished)
        if len(bench.statuses) == most:
            bench.stopping.set()

    watch_training(watcher, on_status=look, on_line=told.append, stopping=bench.stopping)
    assert [each.line for each in told] == [line for line, _ in lines] * most
    at = [each.timestamp for each in bench.statuses]
    return [round(after - before) for before, after in pairwise(at)]


# ---------------------------------------------------------------- how it ends


TRACEBACK = ("[rank0]: Traceback (most recent call last):", None)


@pytest.mark.parametrize(
    ("lines", "times"),
    [
        ((TRACEBACK, TRACEBACK), [3, 60, 3, 60]),  # soon, but not two in a row
        ((("Training complete", True), ("saved", True)), [3, 60, 60, 60]),
        ((("step 5/25", None), ("0 errors", None)), [5, 60, 60, 60]),  # the second look always comes soon
    ],
)
def test_a_traceback_and_a_first_completion_bring_the_next_look_soon(
    tmp_path: Path, lines: Any, times: list[float]
) -> None:
    assert times_of_looks(tmp_path, *lines) == times


def test_when_the_next_look_is_due_is_known_also_where_a_line_brings_it_soon(tmp_path: Path) -> None:
    bench, left = Bench(tmp_path, Behaviour(total=100_000), "local"), list[float | None]()
    options: dict[str, Any] = {"store": Store(bench.folder), "transport": bench.transport, "clock": bench.clock}
    watcher = ToldLines("local", FILES, {"poll_interval": 60}, **options)

    def note() -> None:
        at = watcher.next_look_at
        left.append(None if at is None else at - bench.clock.time())

    bench.clock.at(1, note)
    bench.clock.at(10, note)
    bench.clock.at(20, lambda: watcher.say("Traceback (most recent call last):"))
    bench.clock.at(22, note)
    bench.clock.at(90, bench.stopping.set)
    assert watcher.next_look_at is None
    watch_training(watcher, on_line=lambda update: None, stopping=bench.stopping)
    second, usual, hurried = (each or 0.0 for each in left)
    assert 0 < second <= 5 and 50 <= usual <= 55 and 0 < hurried <= 3


@pytest.mark.parametrize("job", [FILES, JOB])
def test_a_finished_run_is_saved_as_complete_and_its_instance_destroyed(tmp_path: Path, job: Any) -> None:
    bench = Bench(tmp_path, FINISHES)
    bench.transport.stream = lambda *_, **__: pytest.fail("no stream") if job is FILES else FakeStream()  # type: ignore[method-assign]
    report = bench.watched(SAVE, job=job)
    assert report.end == "finished" and report.termination and report.termination.success
    assert report.status and report.status.progress.step == 500
    milestones = ["milestone_25", "milestone_50", "milestone_75"]
    assert bench.told == [*milestones, "finished", "upload_finished", "instance_destroyed"]
    assert "terminated early" not in bench.there.uploads[0]
    assert bench.vast.destroyed == ["7"] and bench.there.stops == []


@pytest.mark.parametrize(
    ("does", "job", "reason", "exit_code"),
    [
        (
            Behaviour(crash_after=120, last_words="torch.OutOfMemoryError: CUDA out of memory"),
            FILES,
            "out of memory",
            None,
        ),
        (Behaviour(crash_after=120, exit_code=3), "process:training", "exit code 3", 3),
        (Behaviour(crash_after=200), FILES, "failed at step 200 of 300 without a message, probably killed", None),
    ],
)
def test_a_run_that_fails_is_told_with_the_reason(
    tmp_path: Path, does: Behaviour, job: Any, reason: str, exit_code: int | None
) -> None:
    bench = Bench(tmp_path, does, target="local")
    report = bench.watched(job=job)
    assert report.end == "failed" and reason in report.reason and report.termination is None
    assert report.status and report.status.exit_code == exit_code and bench.told[-1] == "failed"


def test_a_run_that_was_stopped_by_a_person_is_stopped(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Behaviour(total=5000), target="local")
    bench.clock.at(100, bench.there.stop_by_person)
    report = bench.watched(job="process:training")
    assert report.end == "stopped" and report.reason.endswith("stopped by a person") and bench.told[-1] == "ended"


def test_the_end_of_a_watch_is_not_the_end_of_the_run(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Behaviour(total=5000))
    bench.clock.at(200, bench.stopping.set)
    assert bench.watch(SAVE) is None
    assert bench.there.training.exit(bench.there.now) is None and bench.vast.destroyed == []


def test_every_notice_names_the_run_its_host_and_a_command_that_can_be_typed(tmp_path: Path) -> None:
    for name, does, target, job in (("a", HANGS, "vast://7", FILES), ("b", FINISHES, "local", JOB)):
        bench = Bench(tmp_path / name, does, target)
        bench.watched(SAVE if target == "vast://7" else None, job=job)
        assert len(bench.notices) >= 4
        for notice in bench.notices:
            assert (notice.training, notice.target) == (job.get("name") or job["log_file"], target)
            program, *words = shlex.split(notice.command or "")
            args = build_parser().parse_args(words)
            assert program == "training-monitor" and args.subcommand in ("check", "rent instances")
            if args.subcommand == "check":
                assert (args.target, args.what) == (target, job.get("job_id") or job["log_file"])


# ---------------------------------------------------------------- stalls


def test_a_hang_is_reported_then_ended_saved_and_destroyed(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    report = bench.watched(SAVE)
    assert report.end == "terminated" and report.termination and report.termination.success
    assert report.reason == "Stall detected, grace period expired"
    kinds = ["milestone_25", "stall_detected", "terminated", "upload_finished", "instance_destroyed"]
    assert bench.told == kinds
    [stopped] = bench.there.stops
    first = next(each for each in bench.statuses if each.stall.is_stalling)
    assert bench.statuses[-1].timestamp - first.timestamp == 300 and stopped >= 600 + 300


@pytest.mark.parametrize("plan", [None, SAVE])
def test_a_hang_without_a_plan_or_a_visible_process_ends_nothing(tmp_path: Path, plan: TerminationPlan | None) -> None:
    bench = Bench(tmp_path)
    if plan:
        bench.clock.at(500, lambda: setattr(bench.there, "has_pid_file", False))
    bench.clock.at(4000, bench.stopping.set)
    assert bench.watch(plan) is None and bench.there.stops == []
    assert plan or bench.told == ["milestone_25", "stall_detected"]


def test_a_run_that_goes_on_within_its_grace_period_is_left_alone(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Behaviour(total=1200, save_every=None))
    job = bench.there.training
    bench.clock.at(900, lambda: freeze(bench, 700))
    report = bench.watched(SAVE, job=FILES)
    assert report.end == "finished" and bench.there.stops == [] and job.step(bench.there.now) == 1200
    assert [kind for kind in bench.told if kind in ("stall_detected", "recovered")] == ["stall_detected", "recovered"]


def freeze(bench: Bench, seconds: float) -> None:
    """The training makes no steps for a while, and goes on where it was."""
    job = bench.there.training
    job.first_step, job.started = job.step(bench.there.now), bench.there.now + seconds
    bench.there.gpus = gpu_answer(IDLE)
    bench.clock.at(bench.clock.elapsed + seconds, lambda: setattr(bench.there, "gpus", gpu_answer(BUSY, 500)))


def test_a_run_whose_log_nobody_can_read_steps_from_is_never_ended(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Behaviour(total=100_000, quiet=True))
    bench.there.gpus = ""
    for second in range(0, 2500, 500):
        bench.clock.at(second, lambda: bench.there.write("shard done, all is well\n"))
    bench.clock.at(3000, bench.stopping.set)
    assert bench.watch(SAVE) is None
    assert bench.there.stops == [] and bench.vast.destroyed == []


class Heard(list[Any]):
    """Events, the first of a kind with something that happens then."""

    def __init__(self, kind: str, act: Callable[[], None]) -> None:
        super().__init__()
        self.kind, self.act = kind, act

    def append(self, event: Any) -> None:
        super().append(event)
        if event.kind == self.kind:
            self.kind = ""
            self.act()


@pytest.mark.parametrize("job", [FILES, JOB])
@pytest.mark.parametrize("dies", [False, True])
def test_a_run_that_makes_steps_again_during_the_roll_call_is_not_ended(tmp_path: Path, job: Any, dies: bool) -> None:
    bench = Bench(tmp_path, Behaviour(total=2000, hang_after=600, save_every=100))
    bench.transport.stream = lambda *_, **__: FakeStream()  # type: ignore[method-assign]

    def recover() -> None:
        bench.there.training.go_on(bench.clock.time())
        bench.there.gpus = gpu_answer(BUSY, 500)
        if dies:
            raise Killed

    bench.events = Heard("explained", recover)
    if dies:
        with pytest.raises(Killed):
            bench.watch(SAVE, job=job)
        bench.clock.sleep(120)
    report = bench.watched(SAVE, job=job)
    assert report.end == "finished" and bench.there.stops == [] and "terminated early" not in bench.there.uploads[0]
    assert [event.text for event in bench.events if "so it is not terminated" in event.text]


@pytest.mark.parametrize("job", [FILES, JOB])
def test_a_run_that_fails_during_the_roll_call_has_failed(tmp_path: Path, job: Any) -> None:
    bench = Bench(tmp_path)
    bench.transport.stream = lambda *_, **__: FakeStream()  # type: ignore[method-assign]
    ended = lambda: replace(HANGS, crash_after=bench.clock.elapsed)  # noqa: E731
    bench.events = Heard("explained", lambda: setattr(bench.there.training, "behaviour", ended()))
    assert bench.watched(SAVE, job=job).end == "failed" and "terminated" not in bench.told


@pytest.mark.parametrize("what", ["starts again", "hides"])
def test_a_run_that_starts_again_or_hides_during_the_roll_call_is_not_ended(tmp_path: Path, what: str) -> None:
    bench = Bench(tmp_path)

    def change() -> None:
        bench.there.gpus = gpu_answer(BUSY, 500)
        if what == "starts again":
            return bench.there.begin_again(Behaviour(total=2000, evaluates=(0.0, 240.0)))
        bench.there.has_pid_file = False
        bench.there.training.go_on(bench.clock.time())
        bench.clock.at(bench.clock.elapsed + 90, lambda: setattr(bench.there, "has_pid_file", True))

    bench.events = Heard("explained", change)
    assert bench.watched(SAVE).end == "finished" and bench.there.stops == []


@pytest.mark.parametrize("error", [Killed, TargetUnreachable("the reply is lost")])
def test_a_run_that_makes_steps_after_its_stop_was_asked_for_is_terminated(tmp_path: Path, error: Any) -> None:
    bench = Bench(tmp_path)
    stop = bench.there._end

    def lose(given: dict[str, str]) -> str:
        bench.there._end = stop  # type: ignore[method-assign]
        bench.there.training.go_on(bench.clock.time())  # it saves a checkpoint first
        bench.there.training.stopped_at = bench.clock.time() + 40
        raise error

    bench.there._end = lose  # type: ignore[method-assign]
    try:
        report = bench.watched(SAVE)
    except Killed:
        report = bench.watched(SAVE)
    assert report.end == "terminated" and not [each for each in bench.said("detected") if "no longer hangs" in each]


@pytest.mark.parametrize("obeys", [False, True])
@pytest.mark.parametrize("dies", [False, True])
def test_a_run_whose_stop_is_put_off_for_long_is_looked_at_again(tmp_path: Path, obeys: bool, dies: bool) -> None:
    bench, away = Bench(tmp_path), list[float]()
    stop, run = bench.there._end, bench.there.training

    def lose(given: dict[str, str]) -> str:
        if not away:
            away.append(bench.clock.elapsed + 1200)
            run.go_on(bench.clock.time() + 300)
            run.stopped_at = bench.clock.time() + 40 if obeys else None
            bench.there.gpus = gpu_answer(BUSY, 500)
            if dies:
                raise Killed
        if bench.clock.elapsed < away[0]:
            raise TargetUnreachable("the reply is lost")
        return stop(given)

    bench.there._end = lose  # type: ignore[method-assign]
    try:
        report = bench.watched(SAVE)
    except Killed:
        bench.clock.sleep(1200)
        report = bench.watched(SAVE)
    assert report.end == ("terminated" if obeys else "finished")


def test_a_person_ends_a_run_that_recovered_after_its_termination_had_begun(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Behaviour(total=2000, hang_after=600, save_every=100))

    def recover() -> None:
        bench.there.training.go_on(bench.clock.time())
        raise Killed

    bench.events = Heard("explained", recover)
    with pytest.raises(Killed):
        bench.watch(SAVE)
    assert bench.terminate(SAVE).stopped and len(bench.there.stops) == 1


def test_a_run_that_recovers_while_it_could_not_be_stopped_is_not_ended(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Behaviour(total=2000, hang_after=600, save_every=100))

    def lose() -> None:
        begin = bench.clock.elapsed
        bench.there.unreachable(begin, begin + 600)
        bench.clock.at(begin + 300, lambda: bench.there.training.go_on(bench.clock.time()))
        bench.there.gpus = gpu_answer(BUSY, 500)

    bench.events = Heard("explained", lose)
    assert bench.watched(SAVE).end == "finished" and bench.there.stops == []
    assert len(bench.said("explained")) == 1


def test_the_hard_limit_ends_a_run_that_makes_progress(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Behaviour(total=5000))
    report = bench.watched(SAVE, soft_limit=300, hard_limit=600)
    assert report.end == "terminated" and "Hard limit" in report.reason
    assert "soft_limit" in bench.told and 600 <= bench.there.stops[0] < 660


def test_the_hard_limit_ends_a_hang_that_alone_would_only_be_reported(tmp_path: Path) -> None:
    bench = busy_hang(tmp_path)
    bench.clock.at(9000, bench.stopping.set)
    report = bench.watched(SAVE, hard_limit=4000)
    assert report.end == "terminated" and "Hard limit" in report.reason
    assert 4000 <= bench.there.stops[0] < 4100 and len(bench.said("explained")) == 1


def busy_hang(folder: Path) -> Bench:
    """A training that hangs while its GPUs are busy at real power: an endless loop, say."""
    bench = Bench(folder, Behaviour(total=4000, hang_after=300, save_every=100))
    bench.clock.at(301, lambda: setattr(bench.there, "gpus", gpu_answer(BUSY, 500)))
    return bench


def test_a_hang_with_busy_gpus_is_only_reported(tmp_path: Path) -> None:
    bench = busy_hang(tmp_path)
    bench.clock.at(4000, bench.stopping.set)
    assert bench.watch(SAVE) is None and bench.there.stops == []
    [notice] = [each for each in bench.notices if each.kind == "stall_detected"]
    assert "No action will be taken" in notice.text and "--terminate-busy" in notice.text
    assert [event for event in bench.said("detected") if "; Latest checkpoint: step 300" in event and ".;" not in event]


def test_a_hang_with_busy_gpus_is_ended_on_request_after_another_look(tmp_path: Path) -> None:
    bench = busy_hang(tmp_path)
    report = bench.watched(SAVE, terminate_busy=True)
    assert report.end == "terminated" and report.termination and report.termination.success
    [stopped] = bench.there.stops
    first = next(each for each in bench.statuses if each.stall.is_stalling)
    assert first.timestamp - EPOCH >= 300 + 1800 and first.stall.signals["pause"] == "busy"
    last, again = bench.statuses[-2:]
    assert last.timestamp - first.timestamp == 300 and 0 < again.timestamp - last.timestamp <= 5 <= stopped
    assert "Auto-terminating in 5 minutes" in next(each for each in bench.notices if "stall" in each.kind).text


def test_a_busy_hang_that_makes_a_step_between_the_two_looks_goes_on(tmp_path: Path) -> None:
    bench = busy_hang(tmp_path)

    def wake(status: TrainingStatus) -> None:
        told = [each.timestamp for each in bench.statuses if each.stall.is_stalling]
        if status.stall.is_stalling and status.timestamp - told[0] >= 300 and not bench.there.write_count:
            bench.there.write_count = 1
            bench.there.write("step 301/4000 loss 0.3\n")

    bench.there.write_count = 0  # type: ignore[attr-defined]
    look = bench._look
    bench._look = lambda status: (look(status), wake(status))  # type: ignore[method-assign]
    bench.clock.at(3000, bench.stopping.set)
    assert bench.watch(SAVE, terminate_busy=True) is None
    assert bench.there.stops == [] and "recovered" in bench.told


def test_a_limit_is_said_once_also_to_who_listens_to_events(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Behaviour(total=1000))
    bench.watched(soft_limit=100, cost_per_hour=3600, budget=1)
    assert bench.told.count("soft_limit") == bench.told.count("budget_passed") == 1
    assert len([event for event in bench.events if "Limit Passed" in event.text]) == 1


def test_a_run_that_is_to_be_ended_needs_a_pid_file(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="pid_file"):
        Bench(tmp_path).watch(TerminationPlan(), job={"log_file": "/run/train.log"})


# ---------------------------------------------------------------- no answer


@pytest.mark.parametrize("error", [TargetUnreachable("connection refused"), CommandTimedOut("no answer within 30 s")])
def test_an_outage_is_told_once_as_an_event_and_concludes_nothing(tmp_path: Path, error: Any) -> None:
    bench = Bench(tmp_path, Behaviour(total=3000))
    bench.there.unreachable(500, 2500, error)
    report = bench.watched(SAVE)
    assert report.end == "finished" and bench.there.stops == []
    assert len(bench.said("unreachable")) == 1
    assert len([text for text in bench.said("reached") if "responds again" in text]) == 1
    assert not {"stall_detected", "recovered"} & set(bench.told)


@pytest.mark.parametrize("blind", ["outage", "suspended"])
def test_a_hang_has_its_whole_grace_period_after_a_time_without_looks(tmp_path: Path, blind: str) -> None:
    bench, back = Bench(tmp_path), 2500
    if blind == "outage":
        bench.there.unreachable(950, back)
    else:
        back = 900 + 86_400
        bench.clock.at(900, lambda: bench.sleeps.append(86_400))
    report = bench.watched(SAVE)
    assert report.end == "terminated" and bench.told.count("stall_detected") == 1
    assert bench.there.stops[0] >= back + 300 and "recovered" not in bench.told


def test_the_first_look_raises_what_keeps_it_from_asking(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.there.unreachable(0, 10)
    with pytest.raises(TargetUnreachable):
        bench.watch()
    with pytest.raises(JobNotFound):
        Bench(tmp_path, target="local").watch(job="process:nope")


def test_a_watcher_that_is_started_again_during_an_outage_waits(tmp_path: Path) -> None:
    bench = Bench(tmp_path, FINISHES)
    bench.clock.at(100, bench.stopping.set)
    assert bench.watch() is None
    bench.stopping.clear()
    bench.there.unreachable(bench.clock.elapsed, 300)
    assert bench.watched().end == "finished"


def test_a_job_that_the_target_forgot_is_lost_and_that_is_told(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Behaviour(total=5000), target="local")
    bench.clock.at(200, bench.there.jobs.clear)
    bench.there._print_steps = lambda: None  # type: ignore[method-assign]
    report = bench.watched(SAVE, job=JOB)
    assert report.end == "lost" and "process:training" in report.reason and report.termination is None
    assert bench.told == ["ended"] and "lost" in dict(bench.notices[0].fields)["Reason"]


# ---------------------------------------------------------------- outages that last


def test_each_outage_of_ten_minutes_and_its_end_are_reported_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Behaviour(total=3600, save_every=None))
    for begin, end in ((200, 1400), (1700, 2200), (2500, 3300)):  # the one in the middle is too short
        bench.there.unreachable(begin, end)
    bench.watched()
    notices = [notice for notice in bench.notices if "reach" in notice.kind]
    assert [notice.kind for notice in notices] == ["unreachable", "reached"] * 2
    gone, back = notices[:2]
    assert (gone.priority, gone.target, gone.command) == ("high", "vast://7", "training-monitor doctor vast://7")
    assert dict(gone.fields)["For"] == "10m" and "Error" in dict(gone.fields)
    assert dict(back.fields)["After"].startswith("21m") and back.training == "my run"


def test_how_long_an_outage_lasts_until_it_is_told_can_be_set(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Behaviour(total=1000, save_every=None))
    bench.there.unreachable(500, 800)
    bench.watched(outage_after=120)
    assert dict(next(each for each in bench.notices if each.kind == "unreachable").fields)["For"] == "2m"


@pytest.mark.parametrize("killed_at", [900, 1200])
def test_an_outage_is_told_once_over_watchers_that_are_killed(tmp_path: Path, killed_at: float) -> None:
    bench = Bench(tmp_path, Behaviour(total=3000, save_every=None))
    bench.there.unreachable(500, 2500)
    bench.clock.at(killed_at, die)
    with pytest.raises(Killed):
        bench.watch()
    assert bench.told.count("unreachable") == (killed_at > 1150)
    bench.watched()
    assert (bench.told.count("unreachable"), bench.told.count("reached")) == (1, 1)


def die() -> None:
    raise Killed


def test_a_state_folder_out_of_use_ends_no_watch_and_is_told_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Behaviour(total=3000, save_every=None))
    state, away = Path(bench.folder), Path(bench.folder + " away")
    bench.clock.at(500, lambda: state.rename(away))
    bench.clock.at(2500, lambda: away.rename(state))
    assert bench.watched().end == "finished"
    assert [kind for kind in bench.told if "state" in kind] == ["state_unwritable", "state_writable"]
    assert not {"unreachable", "reached"} & set(bench.told)


class Pings:
    """Stands where a `Heartbeat` is given, and counts."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.at = clock, list[float]()

    def beat(self) -> None:
        self.at.append(self.clock.elapsed)


def test_every_look_that_saw_something_is_pinged_and_no_blind_one(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Behaviour(total=3000, save_every=None))
    bench.there.unreachable(500, 1500)
    pings = Pings(bench.clock)
    watch_training(bench.watcher(poll_interval=60), heartbeat=pings, on_status=bench.statuses.append)  # type: ignore[arg-type]
    assert len(pings.at) == len(bench.statuses) > 30
    assert [at for at in pings.at if 500 <= at < 1500] == []


# ---------------------------------------------------------------- killed


BRIEF = {
    "hangs": Behaviour(total=2000, hang_after=220, save_every=100),
    "finishes": Behaviour(total=260, save_every=100),  # between two milestones at each look, also some seconds later
}
QUICK = {"poll_interval": 100, "stall_after": 60, "grace_period": 100}


def every_second(acts: int, is_odd: bool) -> Sequence[int]:
    """Return the odd or the even acts, and with TRAINING_MONITOR_FUZZ all: after one is nearly before the next."""
    return range(1, acts + 1) if os.environ.get("TRAINING_MONITOR_FUZZ") else range(2 - is_odd, acts + 1, 2)


def expected(bench: Bench, report: WatchReport) -> tuple[Any, ...]:
    saved = report.termination
    assert saved
    return (
        report.end,
        report.reason,
        saved.success,
        saved.gone,
        [each.replace("instance_gone", "instance_destroyed") for each in bench.told],  # as far as somebody heard of it
        bench.vast.destroyed,
        bench.there.uploads,
    )


@pytest.mark.parametrize("does", BRIEF.values(), ids=BRIEF)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_watcher_killed_at_any_write_acts_once(memory_path: Path, does: Behaviour, after: bool) -> None:
    whole = Bench(memory_path / "whole", does)
    store = KillingEverything(whole.folder, 0, after=after)
    result = expected(whole, whole.watched(SAVE, store=store, **QUICK))
    assert store.death.acts > 15 and result[2:4] == (True, True)
    for number in cases_of(every_second(store.death.acts, after)):
        bench = Bench(memory_path / str(number), does)
        with pytest.raises(Killed):
            bench.watch(SAVE, store=KillingEverything(bench.folder, number, after=after), **QUICK)
        assert expected(bench, bench.watched(SAVE, **QUICK)) == result, number


@pytest.mark.parametrize("does", BRIEF.values(), ids=BRIEF)
def test_a_watcher_killed_at_any_question_acts_once(memory_path: Path, does: Behaviour) -> None:
    whole = Bench(memory_path / "whole", does)
    counting = KillingTransport(whole.there.answer, 0, after=True)
    whole.transport = whole.vast.attach(counting)
    result = expected(whole, whole.watched(SAVE, **QUICK))
    for number in cases_of(every_second(counting.death.acts, does is BRIEF["hangs"])):
        bench = Bench(memory_path / str(number), does)
        killing = KillingTransport(bench.there.answer, number, after=True)
        alive, bench.transport = bench.transport, bench.vast.attach(killing)
        with pytest.raises(Killed):
            bench.watch(SAVE, **QUICK)
        bench.transport = alive
        assert expected(bench, bench.watched(SAVE, **QUICK)) == result, number


def test_a_watch_called_again_tries_a_failed_upload_again_and_then_does_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, FINISHES)
    bench.there.hub = NO_TOKEN
    result = expected(bench, bench.watched(SAVE))
    assert result[:4] == ("finished", result[1], False, False)
    assert expected(bench, bench.watched(SAVE))[:4] == result[:4]
    assert not is_terminating(bench.watcher())
    bench.there.hub = type(bench.there).hub
    result = expected(bench, bench.watched(SAVE))
    assert result[:4] == ("finished", result[1], True, True)
    assert expected(bench, bench.watched(SAVE)) == result


def test_the_next_start_of_the_same_files_is_watched_as_a_run_of_its_own(tmp_path: Path) -> None:
    bench = Bench(tmp_path, FINISHES, target="local")
    bench.watched(SAVE)
    bench.there.begin_again(Behaviour(total=600, save_every=100))
    first = bench.told
    assert bench.watched(SAVE).end == "finished"
    assert bench.told[len(first) :].count("finished") == 1 and len(bench.there.uploads) == 2
