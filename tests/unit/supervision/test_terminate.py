"""terminate_training against a target in memory: its phases, what it does when killed, and what it keeps.

Uploads go through uploads/hugging_face.py: the target answers its scripts and runs its process job.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import LISTED, MISSING, NO_TOKEN, Behaviour, FakeClock, FakeTraining, FakeTransport, FakeVast, is_call
from tests.sweeps import cases_of
from tests.unit.killing import Killed, KillingEverything, KillingTransport
from training_monitor.core.errors import (
    AlreadySupervised,
    LocalFailure,
    SettingsError,
    TargetUnreachable,
    TrainingMonitorError,
)
from training_monitor.core.models import Event
from training_monitor.core.outcomes import TerminationPlan, TerminationReport
from training_monitor.core.results import CommandResult
from training_monitor.core.store import Store
from training_monitor.core.values import Notice
from training_monitor.notify import WebList
from training_monitor.notify.notifier import TrainingNotifier
from training_monitor.notify.outbox import Outbox
from training_monitor.supervision.terminate import is_terminating, past_termination, terminate_training
from training_monitor.supervision.watcher import TrainingWatcher

FILES = {"log_file": "/run/train.log", "pid_file": "/run/train.pid", "output_dir": "/checkpoints", "name": "my run"}
RUNS = Behaviour(total=100_000)
HUB, OTHER = "hf:me/model", "hf:you/model"
SIGNED = "https://storage.example/model?X-Amz-Signature=5ecre7"
SAVE = TerminationPlan("it hangs", (HUB,))
SAVE_AND_DESTROY = TerminationPlan("it hangs", (HUB,), destroy=True)


class Bench:
    """A training, people who are told, and an account with one instance."""

    runs_for = 125.0

    def __init__(self, folder: Path, does: Behaviour = RUNS, target: str = "vast://7", **there: Any) -> None:
        self.folder, self.target = str(folder / "state"), target
        self.clock = FakeClock()
        self.there = FakeTraining(self.clock, does=does, **there)
        self.vast = FakeVast()
        self.transport = self.vast.attach(FakeTransport(self.there.answer))
        self.events: list[Event] = []
        self.clock.sleep(self.runs_for)

    def watcher(self, store: Store | None = None, job: Any = FILES, **config: Any) -> TrainingWatcher:
        store = store or Store(self.folder)
        return TrainingWatcher(self.target, job, config, store=store, transport=self.transport, clock=self.clock)

    def outbox(self, store: Store) -> Outbox:
        return Outbox(TrainingNotifier([WebList()], store=Store(self.folder)), store)

    def terminate(
        self, plan: TerminationPlan | None = None, *, store: Store | None = None, **options: Any
    ) -> TerminationReport:
        store = store or Store(self.folder)
        with self.outbox(store) as outbox:
            return terminate_training(self.watcher(store, **options), plan, outbox=outbox, on_event=self.events.append)

    def poll(self) -> None:
        self.watcher().poll()

    @property
    def notices(self) -> list[Notice]:
        """The notices that were posted, in order."""
        return [kept.notice for kept in reversed(Store(self.folder).recent_notices())]

    @property
    def told(self) -> list[str]:
        return [notice.kind for notice in self.notices]

    def said(self, kind: str) -> list[str]:
        return [event.text for event in self.events if event.kind == kind]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


# ---------------------------------------------------------------- the sequence


def test_a_run_is_stopped_listed_uploaded_told_and_its_instance_destroyed(bench: Bench) -> None:
    order: list[str] = []
    answer, marks = bench.there.answer, {": pid_file stop": "stop", ": job_start start": "upload"}

    def record(script: str) -> tuple[str, int]:
        found = answer(script)
        order.extend(name for mark, name in marks.items() if mark in script)
        return found

    bench.transport.answer = record
    bench.vast.on_destroy = lambda: order.append("destroy")
    report = bench.terminate(SAVE_AND_DESTROY)
    assert (report.success, report.reason, report.stopped, report.left) == (True, "it hangs", True, ())
    assert [each.step for each in report.checkpoints] == [50, 100]
    assert report.checkpoint and report.checkpoint.path == "/checkpoints/step_100"
    [upload] = report.uploads
    assert upload.verified and [file.path for file in upload.files] == ["model.safetensors"]
    assert (report.destroyed, report.kept, report.errors) == (True, None, ())
    assert bench.told == ["terminated", "upload_finished", "instance_destroyed"]
    assert bench.vast.destroyed == ["7"] and order == ["stop", "upload", "destroy"]
    assert bench.there.starts[0].started >= (bench.there.training.stopped_at or 1e99)
    assert past_termination(bench.watcher()) == report and not is_terminating(bench.watcher())


def test_without_a_plan_it_is_stopped_if_need_be_twice_and_nothing_else(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Behaviour(total=100_000, unkillable=1))
    report = bench.terminate()
    assert report.success and report.stopped and report.uploads == report.left == ()
    assert (report.destroyed, report.kept) == (False, "its checkpoint was not saved elsewhere: no upload was requested")
    assert bench.there.uploads == [] and bench.vast.destroyed == []


def test_a_process_job_is_stopped_by_its_id(tmp_path: Path) -> None:
    bench = Bench(tmp_path, target="local")
    report = bench.terminate(SAVE_AND_DESTROY, job={"job_id": "process:training", "output_dir": "/checkpoints"})
    assert report.success and bench.there.training.stopped_by == "a person" and bench.there.held
    assert report.destroyed is None and bench.vast.destroyed == [], "no rented instance"


@pytest.mark.parametrize("end", [None, "finished"])
def test_a_run_that_is_over_is_saved_and_a_finished_one_not_marked_incomplete(tmp_path: Path, end: str | None) -> None:
    bench = Bench(tmp_path, Behaviour(total=100))
    report = bench.terminate(SAVE if end is None else TerminationPlan("finished", (HUB,), end="finished"))
    assert report.success and report.stopped and bench.there.stops == []
    [command] = bench.there.uploads
    assert ("terminated early" in command) == ("terminated" in bench.told) == (end is None)
    assert bench.told[-2:] == ["upload_finished", "instance_destroyed"]


def test_an_unfinished_one_is_marked_with_how_far_it_came_and_why(bench: Bench) -> None:
    bench.poll()
    bench.terminate(SAVE)
    [command] = bench.there.uploads
    assert "terminated early" in command and "Reason: it hangs" in command
    assert re.search(r"Target steps: 100.?000", command) and "Completed steps: 100 " in command


@pytest.mark.parametrize("job", [FILES, "process:training"])
def test_what_waits_for_a_disk_is_tried_again_and_then_reported(tmp_path: Path, job: Any) -> None:
    bench = Bench(tmp_path, Behaviour(total=100_000, unkillable=99), target="local")
    report = bench.terminate(SAVE if job is FILES else None, job=job)
    assert (report.success, report.stopped) == (False, False) and "4242 D" in report.left[0]
    assert any("4242 D" in text for text in bench.said("detected"))
    assert job is not FILES or len(bench.there.stops) == 3 and report.uploads[0].verified


# ---------------------------------------------------------------- uploads


def test_the_next_destination_is_tried_until_one_has_it(bench: Bench) -> None:
    answer, bench.there.hub = bench.there.answer, NO_TOKEN

    def second_works(script: str) -> tuple[str, int]:
        if "you/model" in script:
            bench.there.hub = LISTED
        return answer(script)

    bench.transport.answer = second_works
    report = bench.terminate(TerminationPlan("x", (HUB, OTHER, "hf:nobody/model"), destroy=True))
    assert [each.verified for each in report.uploads] == [False, True] and report.success
    assert bench.told == ["terminated", "upload_finished", "instance_destroyed"]


@pytest.mark.parametrize("hub", [NO_TOKEN, MISSING])
def test_an_instance_whose_checkpoint_did_not_arrive_is_kept_and_that_is_told(bench: Bench, hub: str) -> None:
    bench.there.hub = hub
    report = bench.terminate(SAVE_AND_DESTROY)
    assert (report.success, report.destroyed, bench.vast.destroyed) == (False, False, [])
    assert report.kept and "not saved elsewhere" in report.kept and not report.uploads[0].verified
    assert bench.told == ["terminated", "upload_failed", "instance_kept"]


@pytest.mark.parametrize("upload_to", [(), (HUB,)])
def test_only_who_says_so_loses_what_was_not_saved(bench: Bench, upload_to: tuple[str, ...]) -> None:
    bench.there.hub = NO_TOKEN
    report = bench.terminate(TerminationPlan("x", upload_to, destroy=True, destroy_without_upload=True))
    assert report.destroyed is True and bench.vast.destroyed == ["7"]
    assert report.success is not bool(upload_to)


def test_without_a_complete_checkpoint_nothing_is_uploaded_and_the_instance_is_kept(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Behaviour(total=100_000, save_every=None))
    bench.there.checkpoints = {40: "truncated: 3 of 9 bytes"}
    report = bench.terminate(SAVE_AND_DESTROY)
    assert report.checkpoint is None and "step 40: step_40/model" in str(report.uploads[0].error)
    assert report.destroyed is False and bench.there.uploads == []


def test_a_presigned_url_is_in_no_notice_event_or_report(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Behaviour(total=100_000, save_every=None))
    report = bench.terminate(TerminationPlan("x", (SIGNED,), destroy=True))
    assert "5ecre7" not in repr((report, bench.notices, bench.events))


@pytest.mark.parametrize(
    ("plan", "job", "key"),
    [
        (TerminationPlan(upload_to=("ftp://x",)), FILES, "destination"),
        (TerminationPlan(upload_to=(HUB,)), {**FILES, "output_dir": None}, "output_dir"),
        (TerminationPlan(upload_to=(HUB, "s3://bucket/models")), FILES, "credentials"),
    ],
)
def test_a_plan_that_cannot_be_done_is_refused_before_anything_is(
    bench: Bench, plan: TerminationPlan, job: Any, key: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        bench.terminate(plan, job=job)
    assert caught.value.key == key and bench.there.stops == [] and not is_terminating(bench.watcher())


# ---------------------------------------------------------------- no answer


@pytest.mark.parametrize(
    ("seconds", "error"),
    [(1200, TargetUnreachable("connection refused")), (60, LocalFailure("sh could not be started"))],
)
def test_a_target_that_comes_back_is_terminated_as_if_nothing_had_happened(
    bench: Bench, seconds: float, error: TrainingMonitorError
) -> None:
    bench.there.unreachable(bench.clock.elapsed, bench.clock.elapsed + seconds, error)
    report = bench.terminate(SAVE_AND_DESTROY)
    assert report.success and report.errors == report.left == () and bench.said("unreachable")


def test_half_an_hour_without_an_answer_gives_it_up_keeps_the_instance_and_tells(bench: Bench) -> None:
    begin = bench.clock.elapsed
    bench.there.unreachable(begin, begin + 1e6)
    report = bench.terminate(SAVE_AND_DESTROY)
    assert (report.success, report.stopped, report.destroyed) == (False, None, False)
    assert bench.vast.destroyed == [] and "instance_kept" in bench.told
    assert 1800 <= bench.clock.elapsed - begin <= 2000
    assert "gave up after 30m" in report.errors[0] and "connection refused" in report.errors[0]
    assert report.kept and "no upload was requested" not in report.kept and "gave up" in report.kept


def test_a_target_that_goes_away_before_the_upload_is_given_up_and_kept(bench: Bench) -> None:
    upload = bench.there.answer

    def lose(script: str) -> tuple[str, int]:
        if is_call(script, "upload_sources"):
            bench.there.unreachable(bench.clock.elapsed, 1e9)
        return upload(script)

    bench.transport.answer = lose
    report = bench.terminate(SAVE_AND_DESTROY)
    assert report.stopped is True and report.destroyed is False and report.checkpoint
    assert report.errors[0].startswith("uploading: gave up")


def test_an_unsaved_instance_is_not_destroyed_because_a_listing_lacks_it(bench: Bench) -> None:
    bench.vast.lies = 6
    report = bench.terminate(TerminationPlan(destroy=True))
    assert (report.destroyed, report.gone, bench.vast.instances) == (False, False, ["7"])
    assert report.kept and "no upload was requested" in report.kept


def test_an_instance_that_went_by_itself_is_told_as_gone_and_not_as_destroyed(bench: Bench) -> None:
    bench.there.unreachable(bench.clock.elapsed, 1e9)
    bench.vast.instances.clear()
    report = bench.terminate(TerminationPlan("it hangs", unreachable_seconds=60, destroy_without_upload=True))
    assert (report.destroyed, report.gone) == (None, True)
    assert "instance_gone" in bench.told and "instance_destroyed" not in bench.told
    assert bench.said("stopped")[-1] == "vast://7 is gone"


@pytest.mark.parametrize("is_silent", [True, False])
def test_an_instance_that_stays_or_cannot_be_listed_is_not_destroyed(bench: Bench, is_silent: bool) -> None:
    run = bench.vast.run

    def silent(words: tuple[str, ...], program: str | None) -> CommandResult:
        return CommandResult(words, 0, "", "", 0.0) if words[2] == "instances" else run(words, program)

    if is_silent:
        bench.transport._programs[0] = (("vastai",), silent)
    bench.vast.refuses = not is_silent
    report = bench.terminate(SAVE_AND_DESTROY)
    assert (report.success, report.destroyed) == (False, False) and "instance_kept" in bench.told
    assert ("the instance may be gone" if is_silent else "still exists") in (report.kept or "")


def test_a_pid_file_that_is_gone_ends_nothing_and_leaves_nothing_to_go_on_with(bench: Bench) -> None:
    bench.there.has_pid_file = False
    with pytest.raises(SettingsError, match="no such file"):
        bench.terminate(SAVE_AND_DESTROY)
    assert bench.there.stops == [] and bench.vast.destroyed == []
    bench.there.has_pid_file = True
    assert bench.terminate(TerminationPlan("another plan", destroy=False)).reason == "another plan"


# ---------------------------------------------------------------- killed


def assert_done_once(bench: Bench, report: TerminationReport, *, was_killed: bool = False) -> None:
    assert (report.success, report.reason, report.stopped, report.gone) == (True, "it hangs", True, True)
    assert report.destroyed is True or was_killed  # nobody heard that it was destroyed
    assert [each.verified for each in report.uploads] == [True]
    assert report.checkpoint and report.checkpoint.step == 100
    ended = "instance_destroyed" if report.destroyed else "instance_gone"
    assert sorted(bench.told) == [ended, "terminated", "upload_finished"]
    assert bench.vast.destroyed == ["7"] and bench.there.training.exit(bench.there.now)
    [command] = bench.there.uploads
    assert "Completed steps: 100 " in command and "Reason: it hangs" in command


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_any_write_and_called_again_it_does_everything_once(memory_path: Path, after: bool) -> None:
    whole = Bench(memory_path / "whole")
    whole.poll()
    store = KillingEverything(whole.folder, 0, after=after)
    assert_done_once(whole, whole.terminate(SAVE_AND_DESTROY, store=store))
    assert store.death.acts > 7
    for number in cases_of(range(1, store.death.acts + 1)):
        bench = Bench(memory_path / str(number))
        bench.poll()
        with pytest.raises(Killed):
            bench.terminate(SAVE_AND_DESTROY, store=KillingEverything(bench.folder, number, after=after))
        if after and number == store.death.acts:  # its result is on disk
            past = past_termination(bench.watcher())
            assert past
            assert_done_once(bench, past)
            continue
        assert_done_once(bench, bench.terminate(SAVE_AND_DESTROY), was_killed=True)
        assert bench.there.uploads == whole.there.uploads


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_any_question_and_called_again_it_does_everything_once(memory_path: Path, after: bool) -> None:
    whole = Bench(memory_path / "whole")
    whole.poll()
    counting = KillingTransport(whole.there.answer, 0, after=after)
    whole.transport = whole.vast.attach(counting)
    assert_done_once(whole, whole.terminate(SAVE_AND_DESTROY))
    assert counting.death.acts > 10
    for number in cases_of(range(1, counting.death.acts + 1)):
        bench = Bench(memory_path / str(number))
        bench.poll()
        killing = KillingTransport(bench.there.answer, number, after=after)
        alive, bench.transport = bench.transport, bench.vast.attach(killing)
        with pytest.raises(Killed):
            bench.terminate(SAVE_AND_DESTROY)
        bench.transport = alive
        assert_done_once(bench, bench.terminate(SAVE_AND_DESTROY), was_killed=True)


def test_it_goes_on_with_the_plan_it_began_with(bench: Bench) -> None:
    with pytest.raises(Killed):
        bench.terminate(SAVE_AND_DESTROY, store=KillingEverything(bench.folder, 1, after=True))
    assert is_terminating(bench.watcher())
    assert_done_once(bench, bench.terminate(TerminationPlan("something else")), was_killed=True)


def test_two_at_once_are_one_too_many(bench: Bench) -> None:
    watcher = bench.watcher()
    key = f"terminate {watcher.key.removeprefix('watch ')}"
    with Store(bench.folder).hold(key), pytest.raises(AlreadySupervised):
        bench.terminate()
    assert bench.there.stops == []


def test_a_training_that_was_started_again_meanwhile_is_not_ended_by_the_old_plan(bench: Bench) -> None:
    bench.poll()
    with pytest.raises(Killed):
        bench.terminate(store=KillingEverything(bench.folder, 2, after=False))
    bench.there.begin_again(RUNS, pid=222)
    bench.terminate()
    assert bench.there.training.stopped_at is None
