"""From a snapshot and a view to the lines of the whole screen. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from training_monitor.policy.fleet_values import FleetSnapshot
from training_monitor.tui.comparison_screen import render_comparison
from training_monitor.tui.detail_screen import render_detail
from training_monitor.tui.main_screen import render_main
from training_monitor.tui.pages import render_alerts, render_confirm, render_help
from training_monitor.tui.text import fit_line
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
        return _too_small(view, width, height)
    if view.screen in _SCREENS_WITH_HISTORY:
        return _SCREENS_WITH_HISTORY[view.screen](snapshot, view, width, height, recent)
    return _SCREENS[view.screen](snapshot, view, width, height)


def _too_small(view: View, width: int, height: int) -> Frame:
    glyphs = view.options.glyphs
    hint = f"too small: {LEAST_WIDTH}x{LEAST_HEIGHT} is needed; q quits"
    blank = (fit_line([], width, glyphs),) * (height - 1)
    return Frame((fit_line([(hint, "warn")], width, glyphs), *blank), view)
