"""A command that ignores its checkpoint is reported, and lost steps are counted only where counters can be compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes import Behaviour
from tests.unit.supervision.test_auto_restart import Bench
from training_monitor.core.models import Checkpoint, Event, JobStatus, JobView
from training_monitor.core.reports import AttemptReport
from training_monitor.core.store import Store
from training_monitor.logs.training_log import parse_progress
from training_monitor.notify.notifier import TrainingNotifier
from training_monitor.notify.outbox import Outbox
from training_monitor.supervision.counters import with_saved
from training_monitor.supervision.restart_notices import RestartNotices
from training_monitor.supervision.run_state import RunState, note_look, plan_attempt

CRASH = Behaviour(total=300, save_every=20, crash_after=50)
CONFIG = {"command": "python train.py"}


def test_a_command_that_ignores_its_checkpoint_is_reported_at_the_first_look(bench: Bench, tmp_path: Path) -> None:
    ignores = Behaviour(total=300, save_every=20, crash_after=90, ignores_checkpoint=True)
    bench.jobs.behaviours = [CRASH, ignores, Behaviour(total=300, save_every=20, ignores_checkpoint=True)]
    store = Store(str(tmp_path / "told"))
    outbox = Outbox(TrainingNotifier([], store=store), store)
    notices = RestartNotices(outbox, "local", "run")

    def hear(event: Event) -> None:
        bench.events.append(event)
        notices.show(event)

    report = bench.restart(on_event=hear, check_interval=5)
    outbox.close()
    assert bench.said("ignored") == [
        "attempt 2 should have resumed from step_40, but its log begins at step 1: set a resume argument",
        "attempt 3 should have resumed from step_80, but its log begins at step 1: set a resume argument",
    ]
    assert [each["resume_problem"] for each in report["attempts"]] == [None, *bench.said("ignored")]
    assert [each["start_step"] for each in report["attempts"]] == [0, 0, 0]
    assert ([each["steps_lost"] for each in report["attempts"]], report["steps_lost"]) == ([50, 90, None], 140)
    looks = [event for event in bench.events if event.attempt == 2 and event.view and event.view.progress.step]
    assert looks[0].kind == "ignored"
    told = [kept.notice for kept in reversed(store.recent_notices()) if kept.notice.kind == "checkpoint_ignored"]
    assert [dict(each.fields)["Issue"] for each in told] == bench.said("ignored")


def test_a_command_that_was_given_the_option_is_not_told_to_give_it(bench: Bench) -> None:
    bench.jobs.behaviours = [CRASH, Behaviour(total=300, save_every=20, ignores_checkpoint=True)]
    bench.restart(job_config={**CONFIG, "resume_argument": "--resume"}, check_interval=5)
    assert bench.said("ignored")[0].endswith("begins at step 1: the script ignores the checkpoint passed to it")


def test_a_command_that_resumes_is_not_reported(bench: Bench) -> None:
    bench.jobs.behaviours = [CRASH, CRASH, Behaviour(total=300, save_every=20)]
    report = bench.restart(check_interval=5)
    assert bench.said("ignored") == [] and report["steps_lost"] == 10 + 10
    assert [each["start_step"] for each in report["attempts"]] == [0, 40, 80]


@pytest.mark.parametrize("line", ["step {done}/{left} loss 0.5", "Epoch 1/3 | batch {done}/900 | loss 0.5"])
def test_lost_steps_are_unknown_if_counters_cannot_be_compared(bench: Bench, line: str) -> None:
    crash = Behaviour(total=300, save_every=20, crash_after=50, line=line)
    bench.jobs.behaviours = [crash, crash, Behaviour(total=300, save_every=20, line=line)]
    report = bench.restart(check_interval=5)
    assert bench.said("ignored") == [] and report["steps_lost"] is None


def attempts_after(*looks: list[str], saved: dict[int, float], checkpoint: int | None = None) -> AttemptReport:
    """The record of one attempt after looks every ten seconds; `saved` are steps and seconds before its end."""
    given = Checkpoint(f"/c/{checkpoint}", checkpoint, 9, True) if checkpoint else None
    run = plan_attempt(RunState("k", "local", "run", "/c", 0.0), "process:run-attempt-1", given, (), 0.0)
    for number, lines in enumerate(looks, 1):
        text = "".join(f"{line}\n" for line in lines)
        view = JobView("process:run-attempt-1", JobStatus.RUNNING, progress=parse_progress(text), log_tail=text)
        run = note_look(run, view, 10.0 * number)
    listed = [Checkpoint(f"/c/{step}", step, 9, True, age=age) for step, age in saved.items()]
    [attempt] = with_saved(run.attempts, listed, 10.0 * len(looks))
    return attempt


def steps(*numbers: int, total: int = 1000) -> list[str]:
    return [f"step {number}/{total} loss 0.5" for number in numbers]


def test_an_attempt_counts_the_job_if_its_steps_agree_with_what_it_saved() -> None:
    for looks, saved, checkpoint, counts in (
        ([steps(100, 200, 230)], {100: 8, 200: 4}, None, True),
        ([steps(130, 140)], {}, 120, True),
        ([steps(100, 200, 230)], {1: 8, 2: 4}, None, False),  # named by epoch
        ([steps(1, 7, 2, total=8)], {1: 8, 2: 4}, None, False),
        ([steps(7, total=8), steps(2, total=8)], {1: 8, 2: 4}, None, False),
        ([steps(130, 140)], {}, None, None),  # nothing to compare with
        ([steps(1, 140)], {}, 120, None),
    ):
        attempt = attempts_after(*looks, saved=saved, checkpoint=checkpoint)
        assert attempt["counts_job"] is counts, (looks, saved)


def test_a_bar_at_zero_before_it_goes_on_is_not_the_first_step() -> None:
    assert attempts_after(steps(0, 51), saved={}, checkpoint=50)["first_step"] == 51
    assert attempts_after(steps(0), steps(0, 51), saved={}, checkpoint=50)["first_step"] == 51
