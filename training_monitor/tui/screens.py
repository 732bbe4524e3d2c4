"""From a snapshot and a view to the lines of the whole screen. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from training_monitor.policy.fleet_values import FleetSnapshot
from training_monitor.tui.comparison_screen import render_comparison
from training_monitor.tui.detail_screen import render_detail
from training_monitor.tui.key_table import Key
from training_monitor.tui.keys import keys_of
from training_monitor.tui.main_screen import render_main
from training_monitor.tui.pages import render_alerts, render_confirm, render_help
from training_monitor.tui.text import Glyphs, Line, fit_line
from training_monitor.tui.view import Frame, Recent, View

LEAST_WIDTH, LEAST_HEIGHT = 40, 10

_SCREENS: Mapping[str, Callable[[FleetSnapshot, View, int, int], Frame]] = {
    "main": render_main,
    "filter": render_main,
    "alerts": render_alerts,
    "help": render_help,
    "confirm": render_confirm,
}
_SCREENS_WITH_HISTORY: Mapping[str, Callable[[FleetSnapshot, View, int, int, Recent], Frame]] = {
    "detail": render_detail,
    "comparison": render_comparison,
}


def render(snapshot: FleetSnapshot, view: View, width: int, height: int, recent: Recent) -> Frame:
    """Draw the screen that the view is on.

    Args:
        snapshot: what is known of the fleet; its `timestamp` is the time that ages are counted to.
        view: where the person is.
        width, height: of the terminal, in cells.
        recent: what was seen of a member by its key, oldest first.

    Returns:
        Exactly `height` lines of exactly `width` cells each, and the view as it is shown.
    """
    width, height = max(1, width), max(1, height)
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return Frame(too_small(keys_of(view), width, height, view.options.glyphs), view)
    if view.screen in _SCREENS_WITH_HISTORY:
        return _SCREENS_WITH_HISTORY[view.screen](snapshot, view, width, height, recent)
    return _SCREENS[view.screen](snapshot, view, width, height)


def too_small(keys: Iterable[Key[Any, Any, Any]], width: int, height: int, glyphs: Glyphs) -> tuple[Line, ...]:
    """What a terminal without room for a screen shows: what is needed, and which of its keys leads out."""
    out = "q quits" if any("q" in key.names for key in keys) else "Esc cancels"
    hint = f"too small: {LEAST_WIDTH}x{LEAST_HEIGHT} is needed; {out}"
    return (fit_line([(hint, "warn")], width, glyphs), *[fit_line([], width, glyphs)] * (height - 1))
