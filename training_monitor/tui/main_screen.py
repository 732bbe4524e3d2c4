"""The main screen: the table, and around it what the fleet comes to, what happened, and a log. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from training_monitor.policy.fleet_values import FleetSnapshot
from training_monitor.policy.training_metrics import KEPT_LOGS, TrainingMetrics
from training_monitor.tui.columns import Member, heading, table_columns, table_line
from training_monitor.tui.panels import alert_panel, footer, header, log_panel, stale_line, summary_lines
from training_monitor.tui.text import Line, fit_line, safe
from training_monitor.tui.view import Frame, View, health_of, member_row, selected_index, visible_rows

LOW = 14  # below this many lines there is only the table
_TALL = 40  # from here on the summary may take a third line
_LEAST_LOG = 3


@dataclass(frozen=True, slots=True)
class Heights:
    """How many lines each part gets; the log's with its title."""

    table: int
    alerts: int
    log: int
    summary: int


def render_main(snapshot: FleetSnapshot, view: View, width: int, height: int) -> Frame:
    """Draw the table with its panels.

    Args:
        snapshot: what is known of the fleet; only the rows on the screen are formatted.
        view: the cursor stays on its member, wherever that is sorted to.
        width, height: cells of the terminal, each at least 1.
    """
    rows = visible_rows(snapshot, view)
    index = selected_index(rows, view)
    stale = stale_line(snapshot, view, width)
    heights = share(height - len(stale), len(rows), len(snapshot.alerts), view)
    row = rows[index] if rows else None
    lines = (
        header(snapshot, view, len(rows), width),
        *stale,
        *table_lines(snapshot, view, rows, index, (width, heights.table)),
        *alert_panel(snapshot, view, width, heights.alerts),
        *log_panel(snapshot, view, rows, row, (width, heights.log)),
        *summary_lines(snapshot, view, width, heights.summary),
        footer(view, width),
    )
    page = max(1, heights.table - 1)
    if row is None or member_row(snapshot, view.selected):  # also one that is only hidden by the filter
        return Frame(lines, replace(view, page=page, index=index))
    return Frame(lines, replace(view, page=page, index=index, selected=row.key))


def share(height: int, members: int, alerts: int, view: View) -> Heights:
    """Share the lines between header and keys among the parts; what the table does not need the log gets."""
    if height < LOW:
        return Heights(height - 3, 0, 0, 1)
    summary = 3 if height >= _TALL else 2
    free = height - 2 - summary
    alert_lines = min(alerts, max(2, free // 8))
    log = max(_LEAST_LOG, free // 4)
    table = free - alert_lines - log
    spare = max(0, table - 1 - max(1, members))
    gained = spare if view.all_logs else min(spare, max(0, KEPT_LOGS + 1 - log))
    more_alerts = min(spare - gained, alerts - alert_lines)
    return Heights(table - gained - more_alerts, alert_lines + more_alerts, log + gained, summary)


def table_lines(
    snapshot: FleetSnapshot, view: View, rows: Sequence[TrainingMetrics], index: int, size: tuple[int, int]
) -> tuple[Line, ...]:
    """The headings and the rows around that of `index`, -1 for none, in exactly `size` (width, height)."""
    width, height = size
    glyphs = view.options.glyphs
    columns = table_columns(snapshot.rows, width)
    room = height - 1
    top = max(0, min(index - room // 2, len(rows) - room))
    lines = []
    for number, row in enumerate(rows[top : top + room], top):
        member = Member(row, health_of(row, snapshot, view), snapshot.timestamp, glyphs)
        chosen, marked = number == index, row.key in view.marked
        lines.append(table_line(member, columns, width, selected=chosen, marked=marked))
    if not rows:
        lines = [fit_line([("  " + _why_empty(snapshot, view), "dim")], width, glyphs)]
    blank = [fit_line([], width, glyphs)] * (room - len(lines))
    return (heading(columns, width, view.sort, glyphs), *lines, *blank)


def _why_empty(snapshot: FleetSnapshot, view: View) -> str:
    if snapshot.rows and view.words:
        return f"nothing matches {safe(view.words, view.options.glyphs)}: Esc takes the filter away"
    if snapshot.rows:
        return f"nobody is in the group {safe(view.group, view.options.glyphs)}: Tab goes to the next"
    if snapshot.error is not None:
        return "nothing is known yet: the last try failed"
    if snapshot.listed_at is None:
        return "asking ..."
    return "no instance is to be shown: none runs"
