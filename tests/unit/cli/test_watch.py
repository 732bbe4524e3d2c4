"""What `watch` prints of each look where it shows no screen."""

from __future__ import annotations

from argparse import Namespace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from training_monitor.cli.commands.watch import _Display
from training_monitor.cli.live import LiveLine
from training_monitor.core.models import JobStatus, Progress
from training_monitor.core.values import LogUpdate, StallAnalysis, TrainingStatus, Verdict

STALL = StallAnalysis(False, None, "none", "making progress", "continue", 9, 90)


def display() -> _Display:
    watcher = cast("Any", SimpleNamespace(missing_log=None, job=SimpleNamespace(job_id=None)))
    shows = _Display(watcher, Namespace(subcommand="watch", json=False))
    shows._live = LiveLine(0.0)
    return shows


def status(verdict: Verdict, **seen: Any) -> TrainingStatus:
    values: dict[str, Any] = {"is_running": True, "progress": Progress(step=9), "stall": STALL, "checkpoints": None}
    values |= {"recent_output": "", "timestamp": 0.0, "status": JobStatus.RUNNING, "verdict": verdict}
    return TrainingStatus(**(values | seen))


def printed(capsys: pytest.CaptureFixture[str], verdict: Verdict, **seen: Any) -> str:
    display().status(status(verdict, **seen))
    return capsys.readouterr().out.strip()


@pytest.mark.parametrize(
    ("verdict", "end"),
    [
        (Verdict("failed", "failed", "failed at step 9: out of memory"), "FAILED: failed at step 9: out of memory"),
        (Verdict("suspended", "warning", "step 9: suspended"), "suspended: step 9: suspended"),
        (Verdict("running", "failed", "the loss is nan; step 9"), "RUNNING: the loss is nan; step 9"),
        (Verdict("running", "ok", "step 9"), "step 9"),
    ],
)
def test_a_line_of_watch_names_a_state_that_is_not_ok(
    capsys: pytest.CaptureFixture[str], verdict: Verdict, end: str
) -> None:
    assert printed(capsys, verdict).endswith(f"  {end}")


def test_a_stall_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    stalled = StallAnalysis(True, "hang_idle", "high", "no step for 5m", "alert", 9, 90)
    line = printed(capsys, Verdict("stalled", "failed", "no step for 5m"), stall=stalled)
    assert line.count("no step for 5m") == 1


@pytest.mark.parametrize("state", ["slow", "suspended"])
def test_a_run_that_is_slow_or_suspended_is_not_called_stalled(capsys: pytest.CaptureFixture[str], state: str) -> None:
    found = StallAnalysis(True, state, "high", "reason", "alert", 9, 90)
    shows = display()
    shows.status(status(Verdict(state, "warning", "step 9: reason"), stall=found))
    shows.line(LogUpdate("step 10", Progress(step=10), found, 1.0))
    looked, line = capsys.readouterr().out.splitlines()
    assert looked.endswith(f"  {state}: step 9: reason") and line.endswith(f"  {state}: reason")


def test_a_look_at_the_step_of_the_last_line_is_not_printed_again(capsys: pytest.CaptureFixture[str]) -> None:
    shows = display()
    shows.line(LogUpdate("step 9", Progress(step=9), STALL, 1.0))
    shows.status(status(Verdict("running", "ok", "step 9")))
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_a_state_is_printed_at_once_after_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    shows = display()
    shows._live = LiveLine(60.0)
    shows.line(LogUpdate("step 9", Progress(step=9), STALL, 1.0))
    shows.status(status(Verdict("failed", "failed", "failed at step 9")))
    assert capsys.readouterr().out.splitlines()[1].endswith("FAILED: failed at step 9")
