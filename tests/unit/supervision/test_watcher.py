"""TrainingWatcher against a target in memory: one round trip a poll, and what survives in the store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import BUSY, IDLE, Behaviour, FakeClock, FakeTraining, FakeTransport, gpu_answer, is_call, read_cursor
from training_monitor.core.errors import (
    CommandError,
    CommandTimedOut,
    JobNotFound,
    SettingsError,
    TargetUnreachable,
    TrainingMonitorError,
)
from training_monitor.core.models import JobStatus, Question
from training_monitor.core.records import format_record
from training_monitor.core.store import Store
from training_monitor.core.values import TrainingStatus, WatchedJob
from training_monitor.supervision.watch_state import LAYOUT, Told, WatchState
from training_monitor.supervision.watcher import TrainingWatcher, watched_job

FILES = {"log_file": "/run/train.log", "pid_file": "/run/train.pid", "output_dir": "/checkpoints"}
LONG = Behaviour(total=100_000)
Job = WatchedJob | str | Mapping[str, str]


class Bench:
    """A training, and watchers of it that share a store."""

    def __init__(self, folder: Path, does: Behaviour = LONG) -> None:
        self.folder = str(folder / "state")
        self.clock = FakeClock()
        self.there = FakeTraining(self.clock, does=does, gpus=gpu_answer(BUSY, 500))
        self.transport = FakeTransport(self.there.answer)

    def watcher(self, job: Job = FILES, config: Any = None, **more: Any) -> TrainingWatcher:
        options: dict[str, Any] = {"store": Store(self.folder), "transport": self.transport, "clock": self.clock}
        return TrainingWatcher("local", job, config, **(options | more))

    def polls(self, watcher: TrainingWatcher, count: int = 1) -> list[TrainingStatus]:
        found = []
        for _ in range(count):
            self.clock.sleep(60)
            found.append(watcher.poll())
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


# ---------------------------------------------------------------- what is watched


def test_a_job_is_an_id_a_table_or_a_value() -> None:
    assert watched_job("process:run") == WatchedJob(job_id="process:run")
    assert watched_job({"log_file": "/l", "name": "mine"}) == WatchedJob(log_file="/l", name="mine")
    assert watched_job(WatchedJob("raysubmit_1")) == WatchedJob("raysubmit_1")
    assert watched_job({"log_paths": ("/a/*", "/b")}).label == "/a/* /b"


def test_runs_known_by_different_patterns_are_kept_apart(bench: Bench) -> None:
    keys = [bench.watcher(WatchedJob(log_paths=paths)).key for paths in (("/a/*",), ("/b/*",), ("/a/*", "/b/*"))]
    assert len(set(keys)) == 3 and "None" not in "".join(keys)


def test_two_kinds_at_once_none_and_unknown_keys_are_refused(subtests: pytest.Subtests) -> None:
    for job, key in [
        ({"job_id": "a", "log_file": "/l"}, "job"),
        ({}, "job"),
        ({"pid_file": "/p"}, "job"),
        ({"job_id": "a", "pid_file": "/p"}, "pid_file"),
        ({"log_file": "/l", "logfile": "/l"}, "job"),
        ({"log_file": ""}, "log_file"),
        ({"log_file": "/l", "log_paths": ("/a/*",)}, "job"),
        ({"job_id": "a", "log_paths": ("/a/*",)}, "job"),
        ({"log_paths": "/a/*"}, "log_paths"),
        ({"log_paths": ("/a/*", "")}, "log_paths"),
        ({"log_paths": ("/a\0",)}, "log_paths"),
        ({"log_paths": (7,)}, "log_paths"),
        ({"log_file": "/l", "name": "a\0b"}, "name"),
        ("", "job_id"),
    ]:
        with subtests.test(job=job, key=key):
            with pytest.raises(SettingsError) as caught:
                watched_job(job)
            assert caught.value.key == key


@pytest.mark.parametrize("config", [{"poll_intervall": 5}, {"poll_interval": 0}])
def test_a_wrong_configuration_is_refused_before_anything_is_asked(bench: Bench, config: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="poll_interval"):
        bench.watcher(config=config)
    assert bench.transport.asked == []


@pytest.mark.parametrize("job", [FILES, {"log_file": "/run/train.log"}, "process:training"])
def test_each_way_of_naming_a_run_shows_the_same_progress(bench: Bench, job: Job) -> None:
    [status] = bench.polls(bench.watcher(job))
    assert (status.is_running, status.progress.step, status.status) == (True, 60, JobStatus.RUNNING)
    assert status.runtime == 60 and status.recent_output.strip().endswith("step 60/100000 loss 0.5")


@pytest.mark.parametrize(("job", "questions"), [(FILES, 6), ("process:training", 4)])
def test_a_poll_is_one_round_trip(bench: Bench, job: Job, questions: int) -> None:
    bench.polls(bench.watcher(job), 5)
    first = questions + 1  # which asks how the log counts as well
    assert [len(scripts) for scripts in bench.transport.asked] == [first, *[questions] * 4]


def test_the_log_is_read_behind_the_cursor_and_judging_again_asks_nothing(bench: Bench) -> None:
    watcher = bench.watcher()
    bench.polls(watcher, 3)
    first, *later = [read_cursor(script) for script in bench.there.log_reads]
    assert first == (None, 0)
    assert len({offset for _, offset in later}) == 2
    assert watcher.state.totals.as_dict()["last_step"] == 180
    assert not watcher.check_for_stall().is_stalling and len(bench.transport.asked) == 3


# ---------------------------------------------------------------- the store


def test_another_watcher_goes_on_where_the_first_one_was_but_not_for_another_run(bench: Bench) -> None:
    first = bench.watcher()
    [before] = bench.polls(first)
    [after] = bench.polls(bench.watcher())
    assert len(after.totals["loss_history"]) == 120 > len(before.totals["loss_history"])
    assert not bench.watcher({"log_file": "/other.log"}).state.looks.all()


def test_a_new_watcher_at_every_poll_sees_the_hang_that_one_watcher_sees(tmp_path: Path) -> None:
    kinds: list[list[str | None]] = []
    for number, fresh in enumerate((False, True)):
        bench = Bench(tmp_path / str(number), Behaviour(total=1000, hang_after=600))
        bench.clock.at(600, lambda bench=bench: setattr(bench.there, "gpus", gpu_answer(IDLE)))  # type: ignore[misc]
        watcher = bench.watcher()
        statuses = [bench.polls(bench.watcher() if fresh else watcher)[0] for _ in range(30)]
        kinds.append([status.stall.kind for status in statuses])
    assert kinds[0] == kinds[1] and kinds[0][-1] == "hang_idle" and kinds[0][5] is None


def test_what_was_told_is_kept_with_what_was_seen(bench: Bench) -> None:
    watcher = bench.watcher()
    bench.polls(watcher)
    watcher.save_alerts(Told(episode=4))
    other = bench.watcher()
    assert other.state.alerts == Told(episode=4) and len(other.state.looks.all()) == 1
    bench.polls(other)
    assert bench.watcher().state.alerts == Told(episode=4)


@pytest.mark.parametrize("old", [{}, {"layout": 0}, {"layout": LAYOUT + 1, "cursor": None}, {"output": [[1]]}])
def test_a_state_of_another_layout_is_begun_anew(bench: Bench, old: dict[str, Any]) -> None:
    Store(bench.folder).save_run(bench.watcher().key, old, finished=False)
    assert format_record(bench.watcher().state) == format_record(WatchState())


@pytest.mark.parametrize("error", [TargetUnreachable("connection refused"), CommandTimedOut("no answer within 30 s")])
def test_a_target_that_cannot_be_asked_raises_and_counts_nothing(bench: Bench, error: TrainingMonitorError) -> None:
    watcher = bench.watcher()
    bench.polls(watcher, 2)
    before, kept = format_record(watcher.state), Store(bench.folder).load_run(watcher.key, dict)
    bench.there.unreachable(bench.clock.elapsed, bench.clock.elapsed + 90, error)
    with pytest.raises(CommandError, match=str(error)):
        bench.polls(watcher)
    assert format_record(watcher.state) == before and Store(bench.folder).load_run(watcher.key, dict) == kept
    [status] = bench.polls(watcher)
    assert status.progress.step == 240 and len(watcher.state.looks.all()) == 3


def test_a_log_that_cannot_be_read_raises_and_counts_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = bench.watcher()
    bench.polls(watcher)
    monkeypatch.setattr(bench.there, "_read_log", lambda script: "state=denied\n")
    with pytest.raises(CommandError, match="no permission"):
        bench.polls(watcher)
    assert len(watcher.state.looks.all()) == 1
    with pytest.raises(JobNotFound, match="process:nope"):
        bench.watcher("process:nope").poll()


def test_what_cannot_be_asked_leaves_the_rest(bench: Bench) -> None:
    watcher = bench.watcher()
    bench.there.gpus = ""
    listed = bench.there._list_checkpoints
    bench.there._list_checkpoints = lambda: "state=no permission to enter it\n"  # type: ignore[method-assign]
    [status] = bench.polls(watcher)
    assert status.progress.step == 60 and status.is_running
    assert status.checkpoints is None and any("permission" in error for error in status.errors)
    bench.there._list_checkpoints = listed  # type: ignore[method-assign]
    bench.there.has_pid_file = False
    [status] = bench.polls(watcher)
    assert status.is_running is None and status.status is JobStatus.UNKNOWN
    assert status.message and "no such file" in status.message
    bench.there.has_pid_file, bench.there.has_log = True, False
    [status] = bench.polls(bench.watcher({**FILES, "log_file": "/run/other.log"}))
    assert status.is_running is True and status.progress.step is None and status.recent_output == ""


# ---------------------------------------------------------------- what is seen


def test_checkpoints_are_those_of_the_output_directory(bench: Bench) -> None:
    watcher = bench.watcher()
    [status] = bench.polls(watcher, 2)[-1:]
    assert status.checkpoints is not None and [each.step for each in status.checkpoints] == [50, 100]
    assert watcher.get_checkpoints() == list(status.checkpoints)
    without = bench.watcher({"log_file": "/run/train.log"})
    assert without.poll().checkpoints is None
    with pytest.raises(SettingsError, match="output_dir"):
        without.get_checkpoints()


def listings(bench: Bench) -> int:
    """How often the checkpoints were listed."""
    return sum(is_call(script, "checkpoints") for scripts in bench.transport.asked for script in scripts)


def test_checkpoints_are_listed_as_rarely_as_it_is_told_and_grow_old_meanwhile(bench: Bench) -> None:
    bench.clock.sleep(120)
    watcher = bench.watcher()
    watcher.list_seconds = 60.0
    first = watcher.poll()
    assert listings(bench) == 1 and first.checkpoints
    bench.clock.sleep(30)
    second = watcher.poll()
    assert listings(bench) == 1 and second.checkpoints == first.checkpoints
    ages = [(before.age, after.age) for before, after in zip(first.checkpoints, second.checkpoints or ())]
    assert ages and all(before is not None and after == before + 30 for before, after in ages)
    bench.clock.sleep(30)
    assert len(watcher.poll().checkpoints or ()) > len(first.checkpoints) and listings(bench) == 2


def test_the_last_checkpoints_of_a_run_that_has_ended_are_listed_at_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Behaviour(total=100, save_every=50))
    watcher = bench.watcher()
    watcher.list_seconds = 600.0
    bench.clock.sleep(60)
    assert [each.step for each in watcher.poll().checkpoints or ()] == [50]
    bench.clock.sleep(60)
    ended = watcher.poll()
    assert ended.is_running is False and [each.step for each in ended.checkpoints or ()] == [50, 100]
    assert watcher.last_look and watcher.last_look.checkpoints == ended.checkpoints


def test_a_rotated_log_loses_nothing_and_a_new_start_is_a_new_generation(bench: Bench) -> None:
    watcher = bench.watcher()
    bench.polls(watcher)
    bench.there.log, bench.there.inode = "", 8
    [status] = bench.polls(watcher)
    assert len(status.totals["loss_history"]) == 120
    bench.there.begin_again(LONG, first_step=120)
    assert [status.generation for status in bench.polls(watcher, 2)] == [1, 1]


# ---------------------------------------------------------------- stopping


def test_a_stopped_training_is_seen_ended(bench: Bench) -> None:
    watcher = bench.watcher()
    bench.polls(watcher)
    assert watcher.stop_training() is True and len(bench.there.stops) == 1
    [status] = bench.polls(watcher)
    assert status.is_running is False and not status.stall.is_stalling
    assert watcher.stop_training() is True and len(bench.there.stops) == 1


def test_what_not_even_sigkill_ended_is_not_called_stopped(tmp_path: Path) -> None:
    watcher = Bench(tmp_path, Behaviour(total=1000, unkillable=1)).watcher()
    assert (watcher.stop_training(), watcher.stop_training()) == (False, True)


def test_a_job_of_which_something_is_left_is_not_called_stopped(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Behaviour(total=1000, unkillable=1))
    assert bench.watcher("process:training").stop_training() is False


def test_a_log_alone_or_a_pid_file_that_is_gone_stops_nothing(bench: Bench) -> None:
    bench.there.has_pid_file = False
    for job, problem in ((FILES, "no such file"), ({"log_file": "/run/train.log"}, "pid_file")):
        with pytest.raises(SettingsError, match=problem):
            bench.watcher(job).stop_training()
    assert bench.there.stops == []


def test_an_ended_run_does_not_stall_also_when_it_is_judged_later(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Behaviour(total=1000, crash_after=300))
    bench.there.gpus = gpu_answer(IDLE)
    watcher = bench.watcher()
    statuses = bench.polls(watcher, 25)
    assert statuses[-1].is_running is False and not statuses[-1].stall.is_stalling
    assert not watcher.check_for_stall().is_stalling


def test_the_grace_of_a_stop_is_in_its_question(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []
    made = Question.__init__

    def record(self: Question[Any], name: str, *rest: Any, **more: Any) -> None:
        made(self, name, *rest, **more)
        if name == "stop":
            limits.append(self.limit)

    monkeypatch.setattr(Question, "__init__", record)
    bench.watcher(config={"stop_grace": 33}).stop_training()
    assert limits == [63.0]
