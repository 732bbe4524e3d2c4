"""Moments on the screens of `top` that a random walk seldom comes to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.ui.top_runs import NOW, ROWS, SNAPSHOT, ended, identity, row, text_of
from tests.unit.ui.top_screens import is_change, render_top, update
from training_monitor.runs.values import FINISHED, RunRow, Variable
from training_monitor.ui.top.view import Place, SendSignal, TopView


def pressed(view: TopView, *keys: str, rows: Sequence[RunRow] = ROWS) -> TopView:
    for key in keys:
        view, commands = update(view, key, replace(SNAPSHOT, rows=tuple(rows)))
        assert not any(is_change(command) for command in commands)
    return view


def at(found: RunRow) -> TopView:
    return TopView(selected=Place(found.run.path))


@pytest.mark.parametrize("again", [{"process": identity(9)}, {"started_at": NOW - 60}])
def test_a_run_started_again_is_not_deleted_as_the_earlier_one(again: dict[str, Any]) -> None:
    view = pressed(at(ROWS[4]), "c", *"yes")
    view = pressed(view, "enter", rows=[ended("done", FINISHED, **again)])
    assert view.message == "not deleted: done: it has restarted since your request; try again"


def test_a_run_that_ended_while_its_variable_was_typed_is_not_edited() -> None:
    view = pressed(at(ROWS[0]), "e", "enter", *"1")
    view = pressed(view, "enter", rows=[ended("llama", FINISHED)])
    assert (view.screen, view.message) == ("editor", "the run has ended: no process would read the new value")


def test_two_runs_of_one_process_get_a_signal_once() -> None:
    both = (row("a"), row("b"))
    view = pressed(TopView(), "l", "enter", rows=both)
    assert isinstance(view.request, SendSignal) and view.request.targets == (identity(4711),)
    view = pressed(TopView(), "l", "down", "down", "enter", rows=both)
    assert isinstance(view.request, SendSignal)
    assert [each.pid for each in view.request.targets] == [4711, 4720, 4730]


def test_a_run_below_another_one_gets_what_is_for_a_runs_own_process() -> None:
    outer = row("outer")
    inner = row("inner", {"process": identity(4720)}, tree=(ROWS[0].tree[3],))
    for rows in ((outer, inner), (inner, outer)):
        view = pressed(TopView(), "l", "enter", rows=rows)
        assert isinstance(view.request, SendSignal) and view.request.signal == "TERM"
        assert {each.pid for each in view.request.targets} == {4711, 4720}


def test_a_page_shows_nothing_as_unknown_and_makes_room_for_its_counts() -> None:
    found = row("x", {"metrics": {"loss": None}, "history": {}, "variables": (Variable("stage", None, "str"),)})
    text = shown(replace(at(found), screen="detail"), found, 80, 40)
    assert "  loss      -\n" in text and "stage=-" in text
    found = ended("n" * 200, FINISHED, error_message="word " * 300)
    assert re.search(r"n… \(\d+ more", shown(replace(at(found), screen="detail"), found, 40, 10))


def test_a_process_deep_in_a_tree_is_seen_on_a_narrow_screen() -> None:
    deep = replace(ROWS[0].tree[0], depth=30, name="worker")
    found = row("x", tree=(ROWS[0].tree[0], deep))
    view = replace(at(found), expanded=frozenset([found.run.path]))
    assert "    [P] wor… PID 4711" in shown(view, found, 40, 12)


def test_the_page_of_a_run_that_a_filter_hides_acts_on_that_run() -> None:
    view = pressed(replace(at(ROWS[0]), screen="detail", words="nobody has this name"), "k")
    assert isinstance(view.request, SendSignal) and view.request.what == "run llama"


def shown(view: TopView, found: RunRow, width: int, height: int) -> str:
    return text_of(render_top(replace(SNAPSHOT, rows=(found,)), view, width, height).lines)
