"""Reports and values are made of the values that have their keys and fields."""

from __future__ import annotations

from typing import TypedDict

import pytest

from training_monitor.core.fields import keys_of, shared_fields
from training_monitor.core.json_schema import json_schema
from training_monitor.core.models import Checkpoint, Event, JobView, Progress
from training_monitor.core.reports import document, key_types, list_of, report_of
from training_monitor.core.values import WatchedJob


class Saved(TypedDict):
    step: int | None
    path: str
    problem: str | None


def test_a_report_has_its_keys_in_their_order_and_no_others() -> None:
    report = report_of(Saved, Checkpoint("/c/5", 5, 10, True))
    assert list(report.items()) == [("step", 5), ("path", "/c/5"), ("problem", None)]


def test_a_later_value_goes_before_an_earlier_one_and_a_named_one_before_all() -> None:
    report = report_of(Saved, Checkpoint("/c/5", 5, 10, True), {"step": 6, "path": "/c/6"}, path="/c/7")
    assert report == {"step": 6, "path": "/c/7", "problem": None}


def test_without_a_value_what_nothing_has_is_unknown() -> None:
    assert report_of(Saved, None, path="/c") == {"step": None, "path": "/c", "problem": None}
    with pytest.raises(KeyError, match="step"):
        report_of(Saved, path="/c", problem=None)


def test_shared_fields_are_those_of_the_last_value_that_has_them() -> None:
    job, progress = WatchedJob(job_id="process:a", pid_file=None), Progress(step=3, loss=0.5)
    assert shared_fields(Progress, job) == {}
    assert shared_fields(JobView, job, Event("started", "", "process:b")) == {"job_id": "process:b"}
    assert Progress(**shared_fields(Progress, Checkpoint("/c/5", 5, 10, True), progress)) == progress


def test_keys_of_a_value_are_renamed_or_left_out() -> None:
    keys = keys_of(Checkpoint("/c/5", 5, 10, True), size_bytes="size", age="", modified_at="", problem="")
    assert keys == {"path": "/c/5", "step": 5, "size": 10, "complete": True}


def test_a_document_has_the_keys_of_its_parts_and_its_schema_follows() -> None:
    file = document("File", "", key_types(Saved, problem=""), size=int)
    folder = document(
        "Folder", "All files.", key_types(Checkpoint, age="", modified_at="", problem="why"), files=list_of(file)
    )
    assert list(folder.__annotations__) == ["path", "step", "size_bytes", "complete", "why", "files"]
    items = json_schema(folder)["properties"]["files"]["items"]
    assert items["properties"] == {
        "step": {"type": ["integer", "null"]},
        "path": {"type": "string"},
        "size": {"type": "integer"},
    }
    assert report_of(file, Checkpoint("/c/5", 5, 10, True), size=3) == {"step": 5, "path": "/c/5", "size": 3}
