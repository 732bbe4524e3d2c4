"""Which runs are shown, and in which order."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.runs.run_world import run
from training_monitor.core.errors import SettingsError
from training_monitor.core.values import Verdict
from training_monitor.runs.rows import IN_FILES, filter_rows, loss_of, percent_done, sort_rows, worst_first
from training_monitor.runs.values import CANCELED, FAILED, FINISHED, RUNNING, UNKNOWN, RunRow, natural_key


def row(name: str, status: str = RUNNING, **changes: Any) -> RunRow:
    seen = {key: changes.pop(key) for key in ("cpu_percent", "rate", "eta_seconds", "verdict") if key in changes}
    return RunRow(run(name, **changes), status, **seen)


def names(rows: Any) -> list[str]:
    return [each.run.name for each in rows]


ROWS = (row("llama-7b"), row("LLAMA 70b", FAILED), row("gpt ünïcode", UNKNOWN), row("\n[31m", RUNNING))


def test_status_and_words_are_both_to_fit() -> None:
    for status, words, expected in [
        (None, "", ["llama-7b", "LLAMA 70b", "gpt ünïcode", "\n[31m"]),
        (FAILED, "", ["LLAMA 70b"]),
        (UNKNOWN, "", ["gpt ünïcode"]),
        (None, "LLama", ["llama-7b", "LLAMA 70b"]),
        (None, " 70  llama ", ["LLAMA 70b"]),
        (RUNNING, "70", []),
        (None, "ÜNÏ", ["gpt ünïcode"]),
        (None, ".*", []),
    ]:
        assert names(filter_rows(ROWS, status, words)) == expected, status


def test_names_stand_in_natural_order_whatever_digits_are_in_them() -> None:
    given = ["run10", "run9", "Run9", "run", "9", "10", "run²", "run٣", "", "run9b10", "run9b9", "1" * 5000]
    ordered = sorted(given, key=natural_key)
    assert [each for each in ordered if each in ("run9", "run10", "run")] == ["run", "run9", "run10"]
    assert ordered.index("run9b9") < ordered.index("run9b10") and ordered[0] == ""
    assert sorted(reversed(ordered), key=natural_key) == ordered


def test_rows_sort_by_value_then_name_with_unknown_last() -> None:
    rows = [row("c", rate=2.0), row("b10", rate=None), row("b9", rate=None), row("z", rate=2.0), row("a", rate=10.0)]
    assert names(sort_rows(rows, "Rate", False)) == ["c", "z", "a", "b9", "b10"]
    assert names(sort_rows(rows, "Rate", True)) == ["a", "c", "z", "b9", "b10"]
    with pytest.raises(SettingsError, match="Status"):
        sort_rows(ROWS, "Sttus", False)
    titles = [column.title for column in IN_FILES]
    assert [column.place for column in IN_FILES] == [*range(1, 31)]
    assert titles[24] == "Wandb URL" and titles[:6] == ["Run Name", "Status", "Phase", "Epoch", "Batch", "Run Elapsed"]


def test_members_are_sorted_worst_first_then_running_first() -> None:
    ok, failed = Verdict("running", "ok", ""), Verdict("failed", "failed", "")
    rows = [
        row("done", FINISHED, verdict=Verdict("finished", "ok", "")),
        row("canceled", CANCELED, verdict=Verdict("stopped", "warning", "")),
        row("fine", verdict=ok),
        row("far", UNKNOWN),
        row("slow", verdict=Verdict("slow", "warning", "")),
        row("oom", FAILED, verdict=failed),
        row("stalled", verdict=Verdict("stalled", "failed", "")),
        row("a-fine", verdict=ok),
    ]
    assert names(worst_first(rows)) == ["stalled", "oom", "slow", "far", "fine", "a-fine", "done", "canceled"]


def test_progress_is_that_of_the_whole_run_and_unknown_without_its_length() -> None:
    for known, percent in [
        ({}, None),
        ({"step": 250, "total_steps": 1000}, 25.0),
        ({"step": 1001, "total_steps": 1000}, 100.0),
        ({"step": 250}, None),
        ({"step": 5, "total_steps": 0}, None),
        ({"epoch": 2, "total_epochs": 4, "batch": 50, "total_batches": 100}, 37.5),
        ({"epoch": 2, "batch": 50, "total_batches": 100}, None),
        ({"epoch": 3, "total_epochs": 4}, 50.0),
        ({"epoch": 1, "total_epochs": 0}, None),
    ]:
        assert percent_done(row("a", **known)) == percent, known


def test_a_loss_is_that_of_the_curve_and_nan_stands_last() -> None:
    assert loss_of(row("a", metrics={"train_loss": 0.5, "validation_loss": 9.0}).run) == 0.5
    assert loss_of(row("a", metrics={"loss": None, "training_loss": "inf"}).run) == float("inf")
    assert loss_of(row("a", metrics={"loss": 2.0, "train_loss": 0.5}).run) == 2.0
    rows = [row(name, metrics={"loss": loss}) for name, loss in [("n", "nan"), ("i", "inf"), ("m", "-inf"), ("x", 1)]]
    rows += [row("f", metrics={"loss": float("nan")}), row("t", metrics={"loss": "low"}), row("b", metrics={})]
    assert names(sort_rows(rows, "Loss", False))[:3] == ["m", "x", "i"]
    assert names(sort_rows(rows, "Loss", True))[:3] == ["i", "x", "m"]
    assert set(names(sort_rows(rows, "Loss", True))[3:]) == {"n", "f", "t", "b"}


@pytest.mark.parametrize("value", [True, None, "low", ""])
def test_a_loss_that_is_no_number_is_not_known(value: Any) -> None:
    assert loss_of(row("a", metrics={"loss": value}).run) is None
