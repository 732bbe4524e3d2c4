"""The variable editor: what a run uses, what was asked of it, and what it made of that. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from training_monitor.policy.run_values import RunsSnapshot, Variable
from training_monitor.tui.columns import fit_columns
from training_monitor.tui.numbers_text import NOT_KNOWN
from training_monitor.tui.text import Glyphs, Piece, cells, fit, safe
from training_monitor.tui.top_acts import edited
from training_monitor.tui.top_pages import GONE, page, page_room, progress_line, resource_line, run_title
from training_monitor.tui.top_panels import problem_of
from training_monitor.tui.top_view import TopFrame, TopView
from training_monitor.units import plural

_TITLES = ("NAME", "VALUE", "PENDING", "TYPE", "STATE")
_STEPS = (
    ("NAME", 10),
    ("VALUE", 10),
    ("STATE", 10),
    ("TYPE", 5),
    ("PENDING", 10),
    ("NAME", 24),
    ("VALUE", 16),
    ("PENDING", 16),
    ("STATE", 30),
    # Long texts, while there is room.
    *((title, width) for width in range(24, 129, 8) for title in ("VALUE", "PENDING")),
)
_USUAL = 16  # cells of a value
_ABOVE = 3  # lines of the body before the variables


def render_editor(snapshot: RunsSnapshot, view: TopView, width: int, height: int) -> TopFrame:
    """Draw the run's process and resources, as new as on the main screen, and its variables."""
    glyphs = view.options.glyphs
    row, chosen = edited(view, snapshot)
    if row is None:
        return page(snapshot, view, [("variables", "bold")], [[(GONE, "warn")]], (width, height))
    variables = row.run.variables
    if chosen is None and variables and view.screen == "editor":  # not while a value is typed that is for another one
        chosen = variables[0]
        view = replace(view, variable=chosen.name)
    problem = problem_of(row)
    body: list[Sequence[Piece]] = [
        [(safe(problem, glyphs), "warn")] if problem else [(safe(progress_line(row), glyphs), "")],
        [(resource_line(row), "dim")],
    ]
    widths = _widths(variables, width, glyphs)
    if variables:
        body.append(_line({title: title for title in _TITLES}, widths, glyphs, "dim"))
        body += [_variable_line(each, widths, glyphs, "selected" if each is chosen else "") for each in variables]
    else:
        body += [[], [("it has none to edit: monitor.track_variables({...}) in the script names some", "dim")]]
    title = [*run_title(row, glyphs), (f"  {plural(len(variables), 'variable')}", "")]
    at = _ABOVE + variables.index(chosen) if chosen else 0
    return page(
        snapshot, _scrolled_to(view, at, page_room(snapshot, view, width, height)), title, body, (width, height)
    )


def _scrolled_to(view: TopView, line: int, room: int) -> TopView:
    scroll = max(line - room + 1, min(view.scroll, max(0, line - _ABOVE)))
    return replace(view, scroll=max(0, scroll))


def state_of(variable: Variable) -> tuple[str, str]:
    """What became of the last edit, or that there can be none, and its style; nothing where there was none."""
    if variable.pending is not None:
        return "pending", "warn"
    if variable.error:
        return f"refused: {variable.error}", "bad"
    if not variable.is_editable:
        return "read-only", "dim"
    return ("applied", "good") if variable.edit is not None else ("", "")


def _widths(variables: Sequence[Variable], width: int, glyphs: Glyphs) -> dict[str, int]:
    longest = max((cells(each.name) for each in variables), default=0)
    needs = {"NAME": max(10, longest)}
    for title, texts in (
        ("VALUE", [each.value for each in variables]),
        ("PENDING", [each.pending for each in variables]),
    ):
        needs[title] = max([_USUAL, *(cells(safe(text, glyphs)) for text in texts)])
    return fit_columns(_STEPS, width - 2, needs, "STATE")


def _variable_line(variable: Variable, widths: dict[str, int], glyphs: Glyphs, style: str) -> list[Piece]:
    state, colour = state_of(variable)
    texts = {
        "NAME": safe(variable.name, glyphs),
        "VALUE": NOT_KNOWN if variable.value is None else safe(variable.value, glyphs),
        "TYPE": safe(variable.type, glyphs),
        "STATE": safe(state, glyphs),
        "PENDING": "" if variable.pending is None else safe(variable.pending, glyphs),
    }
    return _line(texts, widths, glyphs, style, colour)


def _line(texts: dict[str, str], widths: dict[str, int], glyphs: Glyphs, style: str, colour: str = "") -> list[Piece]:
    pieces: list[Piece] = [("> " if style == "selected" else "  ", style)]
    for title in _TITLES:
        if title in widths:
            its_style = style or (colour if title == "STATE" else "")
            pieces += [(fit(texts[title], widths[title], glyphs), its_style), (" ", style)]
    return pieces
