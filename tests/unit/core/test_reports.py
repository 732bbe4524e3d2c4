"""Reports are made of the values that have their keys; what public values have beside a dataclass."""

from __future__ import annotations

import copy
import importlib
import pickle
from dataclasses import dataclass, field, is_dataclass, replace
from typing import TypedDict

import pytest

from tests.unit.core.test_public_api import PACKAGES
from training_monitor.core.fields import MOST_TEXT, PublicValue, keys_of, shared_fields
from training_monitor.core.models import Checkpoint, Event, JobView, Progress
from training_monitor.core.reports import report_of
from training_monitor.core.values import WatchedJob


class Saved(TypedDict):
    step: int | None
    path: str
    problem: str | None


def test_a_value_has_what_a_report_asks_for_the_last_and_the_named_one_first() -> None:
    report = report_of(Saved, Checkpoint("/c/5", 5, 10, True))
    assert list(report.items()) == [("step", 5), ("path", "/c/5"), ("problem", None)]
    report = report_of(Saved, Checkpoint("/c/5", 5, 10, True), {"step": 6, "path": "/c/6"}, path="/c/7")
    assert report == {"step": 6, "path": "/c/7", "problem": None}
    assert report_of(Saved, None, path="/c") == {"step": None, "path": "/c", "problem": None}
    with pytest.raises(KeyError, match="step"):
        report_of(Saved, path="/c", problem=None)


def test_shared_fields_and_keys_are_those_of_the_last_value_that_has_them() -> None:
    job, progress = WatchedJob(job_id="process:a", pid_file=None), Progress(step=3, loss=0.5)
    assert shared_fields(Progress, job) == {}
    assert shared_fields(JobView, job, Event("started", "", "process:b")) == {"job_id": "process:b"}
    assert Progress(**shared_fields(Progress, Checkpoint("/c/5", 5, 10, True), progress)) == progress
    keys = keys_of(Checkpoint("/c/5", 5, 10, True), size_bytes="size", age="", modified_at="", problem="")
    assert keys == {"path": "/c/5", "step": 5, "size": 10, "complete": True}


@dataclass(frozen=True, slots=True, repr=False)
class Sample(PublicValue):
    step: int
    secret: str = field(default="", repr=False)
    text: str = ""


def test_a_public_value_has_a_short_repr_no_dictionary_and_can_be_copied() -> None:
    assert repr(Sample(1, "word", "a")) == "Sample(step=1, text='a')"
    long = repr(Sample(1, text="x" * 10_000))
    assert len(long) < MOST_TEXT + 50 and "..." in long
    value = Sample(1, "word")
    assert not hasattr(value, "__dict__")
    assert copy.copy(value) == copy.deepcopy(value) == pickle.loads(pickle.dumps(value)) == replace(value) == value


def test_every_public_dataclass_is_one() -> None:
    for package in PACKAGES:
        module = importlib.import_module(package)
        for found in (getattr(module, name) for name in module.__all__):
            if isinstance(found, type) and is_dataclass(found):
                assert issubclass(found, PublicValue) and not found.__dataclass_params__.repr, found
