"""From a snapshot of runs and a view to the lines of the whole screen. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from training_monitor.policy.run_values import RunsSnapshot
from training_monitor.tui.screens import LEAST_HEIGHT, LEAST_WIDTH, too_small
from training_monitor.tui.top_editor import render_editor
from training_monitor.tui.top_keys import keys_of
from training_monitor.tui.top_main import render_main
from training_monitor.tui.top_pages import (
    render_confirm,
    render_detail,
    render_help,
    render_messages,
    render_signals,
)
from training_monitor.tui.top_view import TopFrame, TopView
from training_monitor.tui.top_viewer import render_output

_SCREENS: Mapping[str, Callable[[RunsSnapshot, TopView, int, int], TopFrame]] = {
    "main": render_main,
    "filter": render_main,
    "detail": render_detail,
    "editor": render_editor,
    "edit": render_editor,
    "output": render_output,
    "search": render_output,
    "signals": render_signals,
    "confirm": render_confirm,
    "messages": render_messages,
    "help": render_help,
}


def render_top(snapshot: RunsSnapshot, view: TopView, width: int, height: int) -> TopFrame:
    """Draw the screen that the view is on.

    Args:
        snapshot: what is known of the runs.
        view: where the person is.
        width, height: of the terminal, in cells.

    Returns:
        Exactly `height` lines of exactly `width` cells each, and the view as it is shown.
    """
    width, height = max(1, width), max(1, height)
    if width >= LEAST_WIDTH and height >= LEAST_HEIGHT:
        return _SCREENS[view.screen](snapshot, view, width, height)
    lines = too_small(keys_of(view), width, height, view.options.glyphs)
    return TopFrame(lines, replace(view, headings=(), page=0))  # a click hits nothing that is not drawn
