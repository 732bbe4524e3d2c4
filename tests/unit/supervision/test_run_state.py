"""What a run remembers of its attempts: whether they made a step, and when the loss became NaN."""

from __future__ import annotations

from training_monitor.core.models import Checkpoint, JobStatus, JobView
from training_monitor.logs.training_log import parse_progress
from training_monitor.supervision.run_state import RunState, checkpoint_problem, note_look, plan_attempt, update_attempt


def look(*lines: str) -> JobView:
    text = "".join(f"{line}\n" for line in lines)
    return JobView("process:run-attempt-1", JobStatus.RUNNING, progress=parse_progress(text), log_tail=text)


def refused_steps(run: RunState, now: float = 1100.0) -> list[int]:
    """Steps of the checkpoints that are not to be used; all were saved a minute ago."""
    saved = [Checkpoint(f"/c/step_{step}", step, 9, True, age=60.0) for step in (50, 91, 100, 150)]
    return [each.step for each in saved if checkpoint_problem(run, each, now)]


def test_a_checkpoint_saved_after_the_loss_became_nan_is_refused() -> None:
    run = plan_attempt(RunState("k", "local", "run", "/c", 1000.0), "process:run-attempt-1", None, (), 1000.0)
    run = note_look(run, look("step 90/300 loss 0.5", "step 110/300 loss nan", "step 160/300 loss nan"), 1090.0)
    assert run.attempts[-1]["nan_step"] == 91 and refused_steps(run) == [91, 100, 150]
    later = update_attempt(run, ended_at=1100.0)
    assert refused_steps(later) == [91, 100, 150] and refused_steps(later, now=2000.0) == []  # written again since


def test_a_loss_that_is_finite_again_refuses_no_checkpoint() -> None:
    run = plan_attempt(RunState("k", "local", "run", "/c", 1000.0), "process:run-attempt-1", None, (), 1000.0)
    run = note_look(run, look("step 90/300 loss nan"), 1050.0)
    run = note_look(run, look("step 90/300 loss nan", "step 100/300 loss 0.4"), 1090.0)
    assert run.attempts[-1]["nan_step"] is None and refused_steps(run) == []
