"""`report_of`: a report is made of the values that have its keys."""

from __future__ import annotations

from typing import TypedDict

import pytest

from training_monitor.core.models import Checkpoint
from training_monitor.core.reports import report_of


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
