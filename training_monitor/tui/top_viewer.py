"""The output viewer: the windows of stdout and stderr, wrapped or cut, and where in the file they are. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from training_monitor.policy.run_values import RunsSnapshot
from training_monitor.tui.text import MOST_CHARACTERS, Line, Piece, broken, cells, fit_line, rule, safe, wrap
from training_monitor.tui.top_pages import GONE
from training_monitor.tui.top_panels import footer, header
from training_monitor.tui.top_view import BOTH, Pane, TopFrame, TopView, run_row
from training_monitor.units import format_bytes

_NO_PATH = (
    "the run names no file for its {}: TrainingMonitor(..., tee_outputs=True) writes one, and so does a script"
    " that is started with its output sent to a file"
)


def shown_panes(view: TopView) -> tuple[Pane, ...]:
    """The panes that Tab has chosen."""
    return tuple(pane for pane in view.panes if view.shown in (pane.name, BOTH))


def pane_height(view: TopView, height: int) -> int:
    """How many lines each pane has on a screen of `height` lines."""
    free = height - 1 - len(footer(view, 1, height))
    return max(1, free // (2 if view.shown == BOTH else 1) - 1)


def render_output(snapshot: RunsSnapshot, view: TopView, width: int, height: int) -> TopFrame:
    """Draw the chosen outputs; what is hidden is named in the line above them."""
    glyphs = view.options.glyphs
    room = pane_height(view, height)
    panes = shown_panes(view)
    lines: list[Line] = [header(snapshot, view, width)]
    for pane in panes:
        lines += [_title(pane, snapshot, view, width), *_window(pane, view, width, room)]
    if not panes:
        lines.append(fit_line([("opening ...", "dim")], width, glyphs))
    below = footer(view, width, height)
    blank = [fit_line([], width, glyphs)] * (height - len(lines) - len(below))
    return TopFrame((*lines, *blank, *below), replace(view, page=room))


def _title(pane: Pane, snapshot: RunsSnapshot, view: TopView, width: int) -> Line:
    glyphs = view.options.glyphs
    row = run_row(snapshot, view.selected.path)
    name = "" if row is None else f"{safe(row.run.name, glyphs)} "
    hidden = [other.name for other in view.panes if other not in shown_panes(view)]
    parts: list[Piece] = [(f"{name}{pane.name}", "bold"), (f"  {position_text(pane)}", "")]
    parts += [("  following", "good")] if pane.follows and pane.path and not pane.error else []
    said = pane.note or (pane.error if pane.lines else "")
    parts += [(f"  {safe(said, glyphs)}", "warn")] if said else []
    parts += [(f"  {GONE}", "warn")] if row is None else []
    parts += [(f"  hidden: {', '.join(hidden)} (Tab)", "dim")] if hidden else []
    parts += [(f"  from column {view.aside + 1}", "dim")] if view.aside else []
    return rule(parts, width, glyphs)


def position_text(pane: Pane) -> str:
    """Where the window begins: per cent and bytes."""
    if pane.start is None or pane.size is None:
        return ""
    percent = 100 if pane.follows or not pane.size else min(100, 100 * pane.start // pane.size)
    return f"{percent}%  {format_bytes(pane.start)} of {format_bytes(pane.size)}"


def _window(pane: Pane, view: TopView, width: int, room: int) -> list[Line]:
    glyphs = view.options.glyphs
    if pane.path is None:
        rows = wrap(_NO_PATH.format(pane.name), width, glyphs)[:room]
    elif pane.error and not pane.lines:
        rows = wrap(safe(pane.error, glyphs), width, glyphs)[:room]
    else:
        rows = _rows(pane, view, width, room)
    style = "warn" if pane.path is None or (pane.error and not pane.lines) else ""
    drawn = [fit_line(_marked(row, safe(view.searched, glyphs), style), width, glyphs) for row in rows]
    return drawn + [fit_line([], width, glyphs)] * (room - len(drawn))


def _rows(pane: Pane, view: TopView, width: int, room: int) -> list[str]:
    """The window's lines, broken or shifted; while it follows the end is seen, else the beginning."""
    glyphs = view.options.glyphs
    texts = ["".join(safe(part, glyphs) for part in _parts(line)) for line in pane.lines[-room:]]
    if not view.wraps:
        return [_shifted(text, view.aside) for text in texts]
    rows = [row for text in texts for row in broken(text, width)]
    return rows[-room:] if pane.follows else rows[:room]


def _marked(row: str, words: str, style: str) -> list[Piece]:
    """The row with what was searched for standing out."""
    if not words.strip():
        return [(row, style)]
    parts = re.split(f"({re.escape(words)})", row, flags=re.IGNORECASE)
    return [(part, "selected" if number % 2 else style) for number, part in enumerate(parts)]


def _parts(line: str) -> Sequence[str]:
    """The whole of a long line in pieces of which nothing is left out."""
    return [line[start : start + MOST_CHARACTERS] for start in range(0, len(line), MOST_CHARACTERS)]


def _shifted(text: str, aside: int) -> str:
    """The text without its first cells; of a wide character that is cut through half is a blank."""
    left = aside
    for place, char in enumerate(text):
        if left <= 0 and cells(char) > 0:  # not an accent of what is left of the screen
            return " " * -left + text[place:]
        left -= cells(char)
    return ""
