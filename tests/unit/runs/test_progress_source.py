"""The progress file of a TrainingMonitor as output: what it tells, once, and how old its newest step is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.models import LogCursor, NewLog, Reply
from training_monitor.logs.events import find_phase
from training_monitor.logs.sources import PROGRESS, source_named
from training_monitor.logs.training_log import parse_progress
from training_monitor.runs.progress_source import ProgressSource
from training_monitor.runs.values import Run

STATE = {"phase": "training", "epoch": 2, "total_epochs": 5, "batch": 73, "total_batches": 200, "step": 273}
DOCUMENT = {
    "status": "RUNNING",
    "updated_at": 1000.0,
    "start_time": 900.0,
    "state": {**STATE, "step_at": 999.0},
    "estimates": {"run": {"rate": 9.8}},
    "metrics": {"loss": 2.5},
    "metadata": {"pid": 1},
}


def document(**changes: Any) -> dict[str, Any]:
    """The document with changes; those of `state` are added to it."""
    return {**DOCUMENT, **changes, "state": {**DOCUMENT["state"], **changes.get("state", {})}}  # type: ignore[dict-item]


def head(size: int, age: int = 3) -> str:
    return f"state=read\nheld=0\nreset=\noffset={size}\ninode=7\ncheck=\nskipped=0\nage={age}\nlog\n"


def read(text: str, cursor: LogCursor | None = None, age: int = 3) -> NewLog:
    question = source_named(f"{PROGRESS}/p/run.json", "run").read(cursor, 1000)
    return question.parse(Reply(f"{head(len(text), age)}{text}", 0, 0.1))


def read_run(printed: str) -> Run:
    return ProgressSource("/p/run.json", "run").read_run().parse(Reply(printed, 0, 0.1))


def test_the_whole_run_can_be_read_but_not_another_file() -> None:
    history = {"loss": {"steps": [1, 2], "values": [3.0, "nan"]}}
    run = read_run(f"{head(0)}{json.dumps(document(history=history, attempt=2))}")
    assert run.attempt == 2 and run.history["loss"].steps == (1, 2) and run.path == "/p/run.json"
    for printed in ("state=missing\n", f"{head(0)}no JSON", f"{head(0)}{{}}"):
        with pytest.raises(TrainingMonitorError, match="/p/run.json"):
            read_run(printed)


def test_it_tells_step_total_epoch_loss_rate_and_the_age_of_the_newest_step() -> None:
    told = parse_progress(read(json.dumps(document())).text)
    assert (told.step, told.total_steps, told.loss, told.steps_per_second) == (273, 1000, 2.5, 9.8)
    assert told.epochs_done == pytest.approx(1.36) and told.finished is None
    assert read(json.dumps(document(state={"step_at": 400.0}))).age == 603.0
    assert read(json.dumps(document(state={"step_at": None, "step": None, "batch": None}))).age == 103.0  # the start


def test_what_was_told_is_not_told_again() -> None:
    first = read(json.dumps(document()))
    assert first.cursor
    again = read(json.dumps(document(updated_at=1002.0)), first.cursor)
    assert (again.text, again.age) == ("", 6.0)
    assert again.cursor == first.cursor
    later = read(json.dumps(document(state={"step": 280, "step_at": 1000.0})), again.cursor)
    assert later.text.startswith("step: 280") and later.cursor and later.cursor.offset > first.cursor.offset


@pytest.mark.parametrize(
    ("phase", "shown"),
    [("validation", "evaluation"), ("saving checkpoint", "checkpoint"), ("loading", None), ("epoch 7/9, step 4", None)],
)
def test_a_phase_is_told_and_never_taken_for_a_step(phase: str, shown: str | None) -> None:
    text = read(json.dumps(document(state={"phase": phase}))).text
    assert find_phase(text) == shown and parse_progress(text).step == 273


def test_the_end_and_the_error_are_told() -> None:
    ended = read(json.dumps(document(status="FINISHED"))).text
    assert parse_progress(ended).finished is True
    failed = read(json.dumps(document(status="FAILED", error_message="RuntimeError: CUDA out of memory"))).text
    assert "RuntimeError: CUDA out of memory\n" in failed and not parse_progress(failed).finished
    assert parse_progress(read(json.dumps(document(status="CANCELED"))).text).finished is None


def test_a_file_that_is_gone_or_no_progress_file_is_said_to_be_so() -> None:
    question = source_named(f"{PROGRESS}/p/run.json", "run").read(None, 1000)
    assert question.parse(Reply("state=missing\n", 0, 0.1)).missing
    with pytest.raises(ValueError, match="not a progress file"):
        read('{"loss": 1}')
