"""What `watch` prints of each look where it shows no screen."""

from __future__ import annotations

from argparse import Namespace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from training_monitor.cli.commands.watch import _Display
from training_monitor.core.models import JobStatus, Progress
from training_monitor.core.values import StallAnalysis, TrainingStatus, Verdict

STALL = StallAnalysis(False, None, "none", "making progress", "continue", 9, 90)


def printed(capsys: pytest.CaptureFixture[str], verdict: Verdict, **seen: Any) -> str:
    values: dict[str, Any] = {"is_running": True, "progress": Progress(step=9), "stall": STALL, "checkpoints": None}
    values |= {"recent_output": "", "timestamp": 0.0, "status": JobStatus.RUNNING, "verdict": verdict}
    watcher = cast("Any", SimpleNamespace(missing_log=None, job=SimpleNamespace(job_id=None)))
    _Display(watcher, Namespace(subcommand="watch", json=False)).status(TrainingStatus(**(values | seen)))
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
