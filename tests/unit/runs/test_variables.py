"""Edited variables: typed, applied between two steps, answered."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

import pytest

from training_monitor.runs.progress_file import Edit, convert
from training_monitor.runs.record import TrackedVariables, read_only_text, type_name


def asked(**values: str) -> dict[str, Edit]:
    return {name: Edit(value, f"id-of-{value}") for name, value in values.items()}


def tracking(*mappings: Mapping[str, object]) -> TrackedVariables:
    tracked = TrackedVariables()
    for each in mappings:
        tracked.track(each)
    return tracked


def test_a_text_becomes_a_value_of_the_type() -> None:
    for kind, texts in {
        "float": {"0.0001": 0.0001, " 1e-4 ": 0.0001},
        "int": {"64": 64, "64.0": 64, "1e3": 1000},
        "bool": {"TRUE": True, "yes": True, "0": False, "off": False},
        "str": {" a b\n": " a b\n", "": ""},
    }.items():
        for text, value in texts.items():
            converted = convert(text, kind)
            assert converted == value and type(converted) is type(value)


def test_a_text_that_is_none_of_the_type_is_refused() -> None:
    for kind, texts in {
        "float": ["nan", "inf", "1e999", "", "1,5"],
        "int": ["0x10", "64.5", "1e999", "nan", "-", "9" * 1001],
        "bool": ["maybe", "2", ""],
        "str": ["x" * 1001],
    }.items():
        for text in texts:
            with pytest.raises(ValueError, match="expected|longer"):
                convert(text, kind)


def test_an_edit_waits_for_the_safe_point_and_appears_in_the_dict_of_the_script() -> None:
    mine = {"learning_rate": 0.1, "batch_size": 8}
    tracked = tracking(mine)
    assert tracked.take(asked(learning_rate="0.01"))
    assert mine["learning_rate"] == 0.1 and not tracked.answers
    assert tracked.apply(5.0) == [("learning_rate", 0.1, 0.01)]
    assert mine == {"learning_rate": 0.01, "batch_size": 8} == tracked.values
    answer = tracked.answers["learning_rate"]
    assert (answer.edit, answer.error, answer.applied_at) == ("id-of-0.01", None, 5.0)


def test_a_mapping_that_refuses_a_value_is_answered_and_hinders_no_other_edit() -> None:
    class Frozen(dict[str, object]):
        def __setitem__(self, name: str, value: object) -> None:
            raise TypeError("frozen")

        def __getitem__(self, name: str) -> object:
            raise KeyError(name)

    mine = {"b": 1}
    tracked = tracking(Frozen(a=1), mine)
    tracked.take(asked(a="2", b="3"))
    assert [name for name, _, _ in tracked.apply(1.0)] == ["b"] and mine == {"b": 3}
    assert tracked.answers["a"].error == "TypeError: frozen" and tracked.current("a") == 1


def test_the_same_edit_is_applied_once_and_a_later_one_replaces_one_that_waits() -> None:
    tracked = tracking({"x": 1})
    assert tracked.take(asked(x="2")) and tracked.take(asked(x="2"))
    assert len(tracked.apply(0.0)) == 1
    assert not tracked.take(asked(x="2")) and tracked.apply(0.0) == []
    tracked.take(asked(x="4"))
    tracked.take(asked(x="3"))
    assert tracked.apply(0.0) == [("x", 2, 3)]


def test_what_cannot_be_converted_or_is_of_an_earlier_run_is_answered_only() -> None:
    tracked = tracking({"x": 1})
    tracked.take(asked(x="2"))
    assert not tracked.take(asked(x="many"))
    assert tracked.apply(0.0) == [] and tracked.values["x"] == 1
    assert "whole number" in str(tracked.answers["x"].error)
    tracked = tracking({"x": 1})
    assert not tracked.take(asked(x="2"), of_earlier_run=True)
    assert "earlier" in str(tracked.answers["x"].error)
    assert not tracked.take(asked(x="2"))
    assert tracked.take(asked(x="5"))


def test_edits_of_unknown_variables_and_of_lists_change_nothing() -> None:
    mine: dict[str, object] = {"layers": [1, 2], "lr": 0.1}
    tracked = tracking(mine)
    assert not tracked.take(asked(layers="3", other="4"))
    assert tracked.answers["layers"].error == "values of type list cannot be edited" and "other" not in tracked.answers
    mine["lr"] = [0.1, 0.2]  # it became one
    assert not tracked.take(asked(lr="3")) and tracked.kind("lr") is None
    assert tracked.apply(0.0) == [] and mine == {"layers": [1, 2], "lr": [0.1, 0.2]}


class Tensor:
    """Its text would wait for a GPU."""

    shape = (3, 4)

    def __repr__(self) -> str:
        raise AssertionError("asked")


class Broken(PurePosixPath):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Hidden:
    """As a proxy for something that is not there."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError("unbound")


def test_a_value_that_hides_its_class_or_holds_itself_is_shown() -> None:
    tracked = tracking({"x": Hidden()})
    assert tracked.kind("x") is None and read_only_text(tracked.current("x")) == "<Hidden>"
    endless: list[object] = []
    endless.append(endless)
    assert read_only_text(endless) == "[[[[[...]]]]]"
    assert [type_name(value) for value in (True, 1, 1.0, "1", None, [1])] == ["bool", "int", "float", "str", None, None]


def test_a_value_that_cannot_be_edited_is_shown_by_its_text() -> None:
    for value, text in [
        ((0.9, 0.999), "(0.9, 0.999)"),
        ([1, [2, None]], "[1, [2, None]]"),
        ({"a": (True, "x")}, "{'a': (True, 'x')}"),
        (None, "None"),
        (PurePosixPath("/data/a"), "/data/a"),
        (Fraction(1, 4), "1/4"),
        ([Tensor(), Tensor], "[<Tensor>, <class 'tests.unit.runs.test_variables.Tensor'>]"),
        (Broken("/x"), "(its text raises RuntimeError)"),
        (["password=hunter22222"], "['password=***"),
        (list(range(10_000)), f"[{', '.join(map(str, range(50)))}, ...]"),
    ]:
        assert read_only_text(value).startswith(text) and len(read_only_text(value)) <= 1000, value


def test_a_mapping_that_cannot_be_written_or_that_the_script_changes_is_current() -> None:
    tracked = tracking(MappingProxyType({"x": 1}))
    tracked.take(asked(x="2"))
    tracked.apply(0.0)
    assert tracked.values["x"] == 2 == tracked.current("x")
    mine: dict[str, object] = {"x": 1}
    tracked = tracking(mine)
    mine["x"] = 7
    assert tracked.current("x") == 7
    del mine["x"]
    assert tracked.current("x") == 1


def test_a_change_is_told_once_for_all_or_by_name() -> None:
    tracked = tracking({"x": 1, "batch_size": 2})
    tracked.take(asked(x="2", batch_size="4"))
    tracked.apply(0.0)
    assert tracked.tell("x") == [("x", 1, 2)] and tracked.tell("x") == []
    assert tracked.tell() == [("batch_size", 2, 4)] and tracked.tell() == []
    assert tracked.summary() == "batch_size: 2 -> 4"
    assert tracked.needs_dataloader() and not tracked.needs_dataloader()


def test_callbacks_hear_of_their_variable_and_one_that_fails_hinders_no_other() -> None:
    tracked, heard = TrackedVariables(), list[tuple[str, int, int]]()

    def fails(*change: object) -> None:
        raise RuntimeError("no")

    tracked.call_back(fails)
    tracked.call_back(lambda *change: heard.append(change), "x")
    failures = tracked.tell_callbacks([("x", 1, 2), ("y", 1, 2)])
    assert heard == [("x", 1, 2)]
    assert len(failures) == 2 and "RuntimeError: no" in failures[0]


def test_a_name_that_is_no_short_text_and_too_many_are_refused() -> None:
    wrong: list[Any] = [5, "", "x" * 101, None]
    for name in wrong:
        with pytest.raises(ValueError, match="name"):
            tracking({name: 1})
    with pytest.raises(ValueError, match="at most 200"):
        tracking({str(number): number for number in range(201)})
