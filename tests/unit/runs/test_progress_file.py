"""Progress and control files: ours, those of the earlier ttop, and what somebody else may have written there."""

from __future__ import annotations

import json
import math
from datetime import datetime, timezone
from typing import Any

import pytest

from training_monitor.core.errors import ParseError
from training_monitor.runs.progress_file import (
    MAX_FILE_BYTES,
    MAX_VALUE,
    Edit,
    NotAProgressFile,
    parse_control_file,
    parse_progress_file,
)
from training_monitor.runs.values import Estimate, OwnResources, Run, Variable
from training_monitor.targets.proc_stat import Identity

SPAN = {"rate": 4.5, "elapsed": 10, "remaining": 20.5, "total": 30.5, "durations": [244.0, 240.0]}
DOCUMENT: dict[str, Any] = {
    "format": 1,
    "status": "RUNNING",
    "start_time": 1760000000.0,
    "updated_at": 1760000010.25,
    "end_time": None,
    "error_message": None,
    "exit_code": 139,
    "metadata": {
        "run_name": "llama",
        "pid": 4711,
        "start_ticks": 123456,
        "hostname": "gpu-1",
        "boot_id": "5b0c",
        "pid_namespace": "pid:[4026531836]",
        "script_name": "train.py",
        "wandb_url": "https://wandb.ai/x",
        "stdout_path": "/home/me/a b/stdout.log",
        "stderr_path": "pipe:[123]",
    },
    "state": {
        "phase": "training",
        "epoch": 2,
        "total_epochs": 10,
        "batch": 120,
        "total_batches": 1000,
        "validation_batch": None,
        "total_validation_batches": 100,
        "step": 1120,
        "total_steps": 9000,
        "step_at": 1760000010.2,
    },
    "estimates": {"run": SPAN, "epoch": SPAN, "training": SPAN, "validation": {"durations": [24.0]}},
    "metrics": {"loss": 1.25, "note": "ok", "done": False, "nothing": None},
    "history": {"loss": {"steps": [1, 2, 3, 4, 5, 6], "values": [2.5, 2, "nan", "inf", None, 1.25]}},
    "variables": {"lr": {"value": 0.0003, "type": "float", "edit": "9f2c", "error": None, "applied_at": 1760000009.0}},
    "resources": {"cpu_percent": 101.2, "rss_bytes": 2147483648, "threads": 12, "gpu_mib": 40211.0},
}


def read(document: object, control: str | None = None) -> Run:
    text = document if isinstance(document, str) else json.dumps(document)
    return parse_progress_file(text, Run("llama", "/p/llama.json", "/p/c.json"), control)


def changed(*keys: str, value: object) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(DOCUMENT))
    place = document
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    return document


def test_every_key_of_the_format_arrives() -> None:
    run = read(DOCUMENT)
    assert (run.name, run.path, run.control_path, run.folder) == ("llama", "/p/llama.json", "/p/c.json", None)
    assert (run.status, run.phase, run.epoch, run.total_epochs) == ("RUNNING", "training", 2, 10)
    assert (run.batch, run.total_batches, run.step, run.total_steps) == (120, 1000, 1120, 9000)
    assert run.step_at == 1760000010.2
    assert (run.validation_batch, run.total_validation_batches, run.validation_seconds) == (None, 100, 24.0)
    assert run.run == run.epoch_time == run.training == Estimate(4.5, 10.0, 20.5, 30.5)
    assert run.validation == Estimate()
    assert run.metrics == {"loss": 1.25, "note": "ok", "done": False, "nothing": None}
    steps, values = run.history["loss"].steps, run.history["loss"].values
    assert values[:2] == (2.5, 2.0) and math.isnan(values[2] or 0) and values[3:] == (math.inf, None, 1.25)
    assert steps == (1, 2, 3, 4, 5, 6)
    assert run.process == Identity(4711, 123456, "gpu-1", "5b0c", "pid:[4026531836]")
    assert (run.started_at, run.updated_at, run.ended_at) == (1760000000.0, 1760000010.25, None)
    assert (run.script, run.wandb_url) == ("train.py", "https://wandb.ai/x")
    assert run.resources == OwnResources(101.2, 2147483648, 40211.0, 12)
    assert run.variables == (Variable("lr", 0.0003, "float", "9f2c"),)
    assert run.error is None


def test_a_path_is_absolute_and_whole_or_not_known() -> None:
    run = read(DOCUMENT)
    assert run.stdout_path == "/home/me/a b/stdout.log" and run.stderr_path is None
    for value in ["relative.log", "/x" * 3000, "/a\0b", 5, ["/x"], ""]:
        assert read(changed("metadata", "stdout_path", value=value)).stdout_path is None


def test_a_file_of_the_earlier_ttop_is_read() -> None:
    started = datetime(2025, 10, 9, 8, 0, 0, 500000)
    run = read(
        {
            "metadata": {"pid": 77, "hostname": "h", "script_name": "t.py", "start_time": started.isoformat()},
            "status": "FINISHED",
            "end_time": "2025-10-09T09:00:00Z",
            "error_message": "",
            "state": {"phase": "batch", "epoch": 3, "batch": 5, "total_epochs": 3, "total_batches": 5},
            "timing": {},
            "estimates": {"run": {"rate": None}, "dataset_ratio": None},
            "metrics": {"loss": NAN, "learning_rate": 0.1, "samples_processed": 4},
            "resources": {"cpu": 5, "pids": [1, 2]},
        }
    )
    assert (run.status, run.epoch, run.batch) == ("FINISHED", 3, 5)
    assert run.started_at == started.timestamp()
    assert run.ended_at == datetime(2025, 10, 9, 9, tzinfo=timezone.utc).timestamp()
    assert run.process == Identity(77, None, "h")
    assert run.metrics["loss"] == "nan"
    assert (run.updated_at, run.step, run.resources) == (None, None, OwnResources())


NAN = float("nan")
WRONG = (None, True, "text", -1, -1.5, NAN, math.inf, 10**400, 10**30, [], {}, [[]], {"a": {}}, "\ud800", "9" * 5000)


PLACES = (
    "start_time updated_at metadata.pid metadata.start_ticks state.epoch state.step_at estimates estimates.run "
    "estimates.run.rate estimates.validation.durations metrics metrics.loss history attempt earlier_attempts "
    "metadata.config metadata.run_name history.loss variables variables.lr variables.lr.value variables.lr.type "
    "resources resources.rss_bytes"
)


def test_a_wrong_value_hides_no_other(subtests: pytest.Subtests) -> None:
    for value in WRONG:
        for place in PLACES.split():
            with subtests.test(value=value, place=place):
                run = read(changed(*place.split("."), value=value))
                assert (run.status, run.phase, run.error) == ("RUNNING", "training", None)
                numbers = (run.epoch, run.started_at, run.run.rate, run.validation_seconds, run.resources.rss_bytes)
                for number in numbers:
                    assert number is None or 0 <= number < 10**31


def test_a_status_a_count_and_an_exit_code_that_are_none_are_not_known() -> None:
    for status in (["RUNNING"], "running"):
        assert read(changed("status", value=status)).status is None
    for written, epoch in ((True, None), (1.5, None), (3.0, 3)):
        assert read(changed("state", "epoch", value=written)).epoch == epoch
    for written, known in [(0, 0), (139, 139), *((value, None) for value in (-9, 256, "139", True, 1.5, [], None))]:
        assert read(DOCUMENT | {"exit_code": written}).exit_code == known, written
    assert read({key: value for key, value in DOCUMENT.items() if key != "exit_code"}).exit_code is None


def test_names_texts_and_points_are_bounded() -> None:
    document = changed("metrics", value={"a\nb": "x" * 5000, "m" * 5000: 1, "list": [1]})
    run = read(document | {"error_message": "E" * 10**6})
    assert run.metrics == {"a\nb": "x" * 200, "m" * 100: 1}
    assert len(run.error_message or "") == 4000
    numbers = list(range(1000))
    history = read(changed("history", value={"loss": {"steps": numbers, "values": numbers}})).history["loss"]
    assert len(history.steps) == 64 and history.steps[-1] == 999
    assert list(history.steps) == sorted(history.steps) == list(history.values)


def test_points_that_are_none_are_left_out_or_not_known() -> None:
    for wrong in WRONG:
        history = read(changed("history", "loss", value={"steps": [1, wrong], "values": [wrong, 2]})).history["loss"]
        assert history.steps == (1,) and (history.values[0] is None or isinstance(history.values[0], float))
    attempts = [{"status": wrong, "step": wrong, "start_time": wrong} for wrong in (*WRONG, "FAILED")]
    assert [each.status for each in read(changed("earlier_attempts", value=attempts)).earlier] == ["FAILED"]
    for value in (None, [], {"loss": 1}, {"loss": {"steps": [1], "values": None}}, {"loss": {}}):
        assert read(changed("history", value=value)).history == {}


def test_what_is_no_json_is_an_error_and_json_of_something_else_is_told_apart() -> None:
    for text in ["", "{", '{"status": "RUNNING"', "nul", "[" * 10**5, '{"a":' * 10**5, "\0"]:
        with pytest.raises(ParseError) as raised:
            read(text)
        assert not isinstance(raised.value, NotAProgressFile)
        assert len(str(raised.value)) < 1000
    with pytest.raises(ParseError, match="longer than"):
        read('{"status": "RUNNING", "x": "' + "x" * MAX_FILE_BYTES + '"}')
    for document in [[], 5, None, "text", {}, {"status": "done"}, {"metadata": {"total_size": 5}, "weight_map": {}}]:
        with pytest.raises(NotAProgressFile):
            read(json.dumps(document))


def test_a_variable_has_its_value_and_type_also_where_it_cannot_be_edited(subtests: pytest.Subtests) -> None:
    for entry, value, kind in [
        ({"value": "(0.9, 0.999)", "type": "tuple"}, "(0.9, 0.999)", "tuple"),
        ({"value": "None", "type": "NoneType"}, "None", "NoneType"),
        ({"value": [1, 2], "type": "float"}, "[1, 2]", "list"),
        ([1, 2], "[1, 2]", "list"),  # of the earlier ttop, as the next ones
        (None, None, "NoneType"),
        (0.5, 0.5, "float"),
    ]:
        with subtests.test(entry=entry, value=value, kind=kind):
            [variable] = read(changed("variables", "lr", value=entry)).variables
            assert (variable.value, variable.type) == (value, kind)
            assert variable.is_editable == (kind == "float")


def control(**edits: object) -> str:
    return json.dumps({"edits": edits})


def pending(text: str | None) -> str | None:
    [variable] = read(DOCUMENT, text).variables
    return variable.pending


def test_an_edit_is_pending_until_the_run_answers_with_its_id() -> None:
    assert pending(control(lr={"value": "0.1", "edit": "new", "edited_at": 5.0})) == "0.1"
    assert pending(control(lr={"value": "0.1", "edit": "9f2c", "edited_at": 5.0})) is None
    assert pending(control(other={"value": "0.1", "edit": "new"})) is None
    for text in [None, "", "{", "[]", "nul", '{"edits": 5}', '{"edits": {"lr": {}}}', '{"lr": null}']:
        assert pending(text) is None


def test_a_plain_mapping_written_by_hand_is_understood() -> None:
    edits = {"lr": "0.0001", "on": "true", "n": "5", "name": " a b ", "nan": "nan"}
    found = parse_control_file('{"lr": 0.0001, "on": true, "n": 5, "name": " a b ", "no": [1], "nan": NaN}')
    assert found == {name: Edit(text, text) for name, text in edits.items()}
    assert pending('{"lr": 0.5}') == "0.5"
    [variable] = read(changed("variables", "lr", "edit", value="0.5"), '{"lr": 0.5}').variables
    assert variable.pending is None  # it was answered by its text
    assert parse_control_file(control(a={"value": "x" * (MAX_VALUE + 1), "edit": "e"}, b="y")) == {"b": Edit("y", "y")}
