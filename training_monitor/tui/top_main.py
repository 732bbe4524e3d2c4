"""The main screen of `top`: the table of runs, and below it what they use. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from training_monitor.policy.run_values import RunsSnapshot
from training_monitor.tui.text import Line, fit_line, safe
from training_monitor.tui.top_columns import heading, lay_out, table_line
from training_monitor.tui.top_panels import LOW, detail_line, footer, header, stale_line, usage_lines
from training_monitor.tui.top_view import Item, Place, TopFrame, TopView, selected_index, shown_items

_MOST_USAGE = 3  # lines


def render_main(snapshot: RunsSnapshot, view: TopView, width: int, height: int) -> TopFrame:
    """Draw the table and what is around it; only the rows on the screen are formatted.

    Args:
        snapshot: what is known of the runs.
        view: the cursor stays on its row, wherever that is sorted to.
        width, height: cells of the terminal, each at least 1.
    """
    items = shown_items(snapshot, view)
    index = selected_index(items, view)
    stale = stale_line(snapshot, view, width)
    last = footer(view, width, height)
    usage = usage_lines(snapshot, view, width, 1 if height < LOW else _MOST_USAGE)
    room = max(1, height - 3 - len(stale) - len(usage) - len(last))
    view = _scrolled(replace(view, index=index, page=room), items, snapshot)
    shown = items[view.top : view.top + room]
    layout = lay_out(shown, snapshot.usage, view, width)
    rows = [
        table_line(item, layout, snapshot.usage, width, view, selected=number == index)
        for number, item in enumerate(shown, view.top)
    ]
    lines = (
        header(snapshot, view, width),
        *stale,
        heading(layout, width, view.sort, view.options.glyphs),
        *_filled(rows or [why_empty(snapshot, view, width)], room, width, view),
        detail_line(items[index] if items else None, view, width),
        *usage,
        *last,
    )
    drawn = replace(view, across=layout.across, headings=layout.headings(), heading_line=1 + len(stale))
    return TopFrame(lines, drawn)


def _scrolled(view: TopView, items: Sequence[Item], snapshot: RunsSnapshot) -> TopView:
    """The cursor on a row that is there, and the table scrolled no more than it takes to show it."""
    top = max(0, min(view.top, view.index, len(items) - view.page), view.index - view.page + 1)
    view = replace(view, top=top)
    if not items or items[view.index].place == view.selected or _is_only_hidden(view.selected, snapshot, view):
        return view
    return replace(view, selected=items[view.index].place)


def _is_only_hidden(place: Place, snapshot: RunsSnapshot, view: TopView) -> bool:
    """Whether the selected run is there, and only the filter does not show it."""
    items = shown_items(snapshot, replace(view, words="", status=None))
    return place in [item.place for item in items]


def _filled(rows: Sequence[Line], room: int, width: int, view: TopView) -> tuple[Line, ...]:
    blank = fit_line([], width, view.options.glyphs)
    return (*rows, *[blank] * (room - len(rows)))


def why_empty(snapshot: RunsSnapshot, view: TopView, width: int) -> Line:
    """What stands in a table without rows."""
    glyphs = view.options.glyphs
    if snapshot.rows:
        wanted = " ".join(text for text in (view.status or "", safe(view.words, glyphs)) if text)
        text = f"no run is {wanted}: Esc shows all"
    elif snapshot.error is not None:
        text = "nothing is known yet: the last look failed"
    elif snapshot.is_refreshing:
        text = "looking ..."
    else:
        text = 'no runs here yet: TrainingMonitor("FOLDER/RUN.json") in a script writes one'
    return fit_line([(f"  {text}", "dim")], width, glyphs)
