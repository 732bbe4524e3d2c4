"""The screens of `top`, as the tests draw them and press their keys."""

from __future__ import annotations

from collections.abc import Sequence

from training_monitor.runs.values import RunsSnapshot
from training_monitor.ui.kit import keys, page
from training_monitor.ui.kit.view import Frame
from training_monitor.ui.top.app import APP
from training_monitor.ui.top.view import Command, EditVariable, SendSignal, TopView

TABLES = {name: screen.keys for name, screen in APP.screens.items()}
TYPING = frozenset(name for name, screen in APP.screens.items() if screen.prompt)


def update(view: TopView, key: str, snapshot: RunsSnapshot) -> tuple[TopView, Sequence[Command]]:
    return keys.update(APP, view, key, snapshot)


def keys_of(view: TopView) -> Sequence[keys.Key]:
    return keys.keys_of(APP, view)


def is_change(command: Command) -> bool:
    """Whether a command changes what is monitored."""
    return isinstance(command, (SendSignal, EditVariable)) or command.name == "delete"


def render_top(snapshot: RunsSnapshot, view: TopView, width: int, height: int) -> Frame[TopView]:
    return page.render_screen(APP, snapshot, view, width, height)
