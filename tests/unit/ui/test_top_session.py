"""What the session of `top` does beside its keys: begins at a run, opens panes, drops a message that is answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.unit.ui.top_runs import ROWS, SNAPSHOT
from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.results import CommandResult
from training_monitor.runs.collector import RunCollector
from training_monitor.runs.values import Message, RunsSnapshot
from training_monitor.targets.transport import LocalTransport
from training_monitor.ui.kit.view import Do
from training_monitor.ui.top import app
from training_monitor.ui.top.app import _TopSession, open_pane
from training_monitor.ui.top.view import EditVariable, TopView


class Collector:
    """A collector with given runs, which acts at once."""

    most_threads = 0

    def __init__(self, snapshot: RunsSnapshot) -> None:
        self.shown, self.said, self.acted = snapshot, list[Message](), list[str]()
        self.source = SimpleNamespace(edit=lambda run, values: None)

    def snapshot(self) -> RunsSnapshot:
        return self.shown

    def messages(self) -> tuple[Message, ...]:
        return tuple(self.said)

    def expand(self, pids: object) -> None:
        pass

    def act(self, description: str, call: Any) -> None:
        self.acted.append(description)
        self.said.append(Message(0.0, call()))


def session(begin: tuple[str, str] | None = None, snapshot: RunsSnapshot = SNAPSHOT) -> tuple[_TopSession, Collector]:
    collector = Collector(snapshot)
    return _TopSession(cast(RunCollector, collector), begin, ["top", "/runs"]), collector


def test_the_message_of_an_edit_goes_away_when_the_run_answers() -> None:
    running, collector = session()
    run, name = ROWS[0].run, ROWS[0].run.variables[0].name
    running.obey(TopView(), EditVariable(run, name, "0.1"))
    _, view = running.look(TopView())
    assert view.message.endswith("VALUE changes when the run applies it")
    assert running.look(view)[1].message == view.message

    def with_variable(**changes: object) -> RunsSnapshot:
        variables = tuple(replace(each, **changes) if each.name == name else each for each in run.variables)
        return replace(SNAPSHOT, rows=(replace(ROWS[0], run=replace(run, variables=variables)),))

    collector.shown = with_variable(pending="0.1")
    assert running.look(view)[1].message == view.message
    collector.shown = with_variable(pending=None, edit="its number")
    assert running.look(view)[1].message == ""


def test_a_screen_begins_at_the_run_that_is_named_once_it_is_there() -> None:
    name = ROWS[0].run.name
    running, collector = session(("editor", name), replace(SNAPSHOT, rows=()))
    _, view = running.look(TopView())
    assert view.screen == "main" and view.message == f"run {name} does not exist yet"
    collector.shown = SNAPSHOT
    _, view = running.look(view)
    assert view.screen == "editor" and view.selected.path == ROWS[0].run.path
    assert running.look(replace(view, screen="main"))[1].screen == "main"


def test_a_pane_of_tmux_starts_the_same_command_at_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Sequence[str]] = []
    code = 0

    def run(self: LocalTransport, argv: Sequence[str], *, timeout: float) -> CommandResult:
        started.append(argv)
        return CommandResult(tuple(argv), code, "", "no space for new pane", 0.0)

    monkeypatch.setattr(app.LocalTransport, "run", run)
    running, collector = session()
    running.obey(TopView(width=200), Do("pane", ("output", "/runs/a.json")))
    running.obey(TopView(width=80), Do("pane", ("editor", "/runs/a.json")))
    assert [argv[:3] for argv in started] == [["tmux", "split-window", "-h"], ["tmux", "split-window", "-v"]]
    assert [argv[-3:] for argv in started] == [
        ["top", "/runs", "--output=/runs/a.json"],
        ["top", "/runs", "--edit=/runs/a.json"],
    ]
    assert collector.said[0].text == "opened a tmux pane with the output of a.json"
    code = 1
    with pytest.raises(TrainingMonitorError, match="tmux: no space for new pane"):
        open_pane(["top"], "output", "/runs/a.json", wide=False)
