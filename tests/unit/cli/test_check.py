"""What `check` prints of its report: one block for one training, one line each for several."""

from __future__ import annotations

import time
from typing import Any

import pytest

from training_monitor.cli.commands.check import show

UNKNOWN = dict.fromkeys(
    ("step", "total_steps", "epoch", "progress", "loss", "steps_per_second", "eta_seconds", "seconds_without_step")
    + ("limit_seconds", "job_id", "pid", "script", "command", "log", "checkpoint")
    + ("explanation", "explained_at", "explained_job_id")
)


def job(name: str, state: str, verdict: str, reason: str, **known: Any) -> dict[str, Any]:
    lists: dict[str, Any] = {"gpus": [], "remedies": [], "errors": []}
    return {**UNKNOWN, **lists, "name": name, "state": state, "verdict": verdict, "reason": reason, **known}


STALLED = job("pid 7", "stalled", "failed", "no step for 5m, limit 2m15s", step=40, total_steps=500)
STALLED |= {"eta_seconds": 115.0, "pid": 7, "script": "train.py"}
RUNNING = job("pid 8", "running", "ok", "step 9 of 90, 4 steps/s", step=9, total_steps=90, steps_per_second=4.0)
RUNNING |= {"seconds_without_step": 3.0, "log": "/tmp/train.log"}


def shown(capsys: pytest.CaptureFixture[str], *jobs: dict[str, Any]) -> list[str]:
    show({"jobs": list(jobs), "remedies": [], "not_seen": []})  # type: ignore[typeddict-item]
    return capsys.readouterr().out.splitlines()


def test_several_trainings_have_a_line_each_with_the_step_once_and_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, STALLED, RUNNING) == [
        "STALLED   train.py (pid 7) step 40/500        no step for 5m, limit 2m15s",
        "RUNNING   pid 8            step 9/90          4 steps/s, last step 3s ago (/tmp/train.log)",
    ]


def test_the_pace_has_the_unit_of_the_verdict_and_a_stall_no_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    slow = {**RUNNING, "reason": "step 9 of 90, 4 s/step", "steps_per_second": 0.25}
    lines = shown(capsys, slow)
    assert lines[0].endswith(", 4 s/step") and lines[1].endswith("  4 s/step")
    assert not [line for line in shown(capsys, STALLED) if "ETA" in line]


@pytest.mark.parametrize(
    ("of", "whose"),
    [("process:train-attempt-1", "process:train-attempt-1"), ("process:train-attempt-2", "it"), (None, "it")],
)
def test_what_the_last_roll_call_said_is_told_with_its_age_and_its_attempt(
    capsys: pytest.CaptureFixture[str], of: str | None, whose: str
) -> None:
    told = {"explanation": "rank 1 is late\nRUNNING", "explained_at": time.time() - 300.0, "explained_job_id": of}
    lines = shown(capsys, {**RUNNING, "job_id": "process:train-attempt-2", **told})
    at = next(index for index, line in enumerate(lines) if line.startswith("  why "))
    assert lines[at] == f"  why        5m ago, before {whose} was terminated: rank 1 is late"
    assert lines[at + 1] == f"{' ' * 13}RUNNING"  # foreign text makes no line that looks like one of ours


def test_several_trainings_fit_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "64")
    monkeypatch.setenv("NO_COLOR", "1")
    named = {**RUNNING, "name": "訓練-" + "long-name" * 6}
    assert shown(capsys, named, RUNNING) == [
        f"RUNNING   {named['name']}",
        "          step 9/90          4 steps/s, last step 3s ago",
        "          (/tmp/train.log)",
        "RUNNING   pid 8              step 9/90          4 steps/s, last",
        "          step 3s ago (/tmp/train.log)",
    ]
