"""The screens that are a page of text: alerts, help, and what is asked before something is done. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from training_monitor.policy.fleet_values import FleetSnapshot
from training_monitor.policy.training_metrics import TrainingMetrics
from training_monitor.tui.columns import Column, Member, heading, table_columns, table_line
from training_monitor.tui.keys import keys_of
from training_monitor.tui.numbers_text import format_price, format_total
from training_monitor.tui.panels import alert_line, footer, header, member_names
from training_monitor.tui.text import Piece, broken, clip, panel, safe, wrap
from training_monitor.tui.view import Frame, View, health_of, visible_rows
from training_monitor.units import plural

_HELP_SECTIONS = {
    "main": "the table",
    "filter": "while the filter is typed",
    "detail": "one member",
    "comparison": "comparison, alerts",
    "confirm": "stop and destroy",
}
_INDENT = 4
_MEANS = {
    "stop": "Their trainings end. A stopped instance keeps its disk, which still costs; it may not start again.",
    "destroy": "The machines and all that is on their disks are gone for good. What was not copied is lost.",
}


def page(
    snapshot: FleetSnapshot, view: View, title: Sequence[Piece], body: Sequence[Sequence[Piece]], size: tuple[int, int]
) -> Frame:
    """A header, a title, as much of the body as fits from `view.scroll` on, and the keys; `size` is (width, height)."""
    width, height = size
    room = max(1, height - 3)
    lines, scroll = panel(title, body, view.scroll, (width, room), view.options.glyphs)
    above = header(snapshot, view, len(visible_rows(snapshot, view)), width)
    return Frame((above, *lines, footer(view, width)), replace(view, scroll=scroll, page=room))


def render_alerts(snapshot: FleetSnapshot, view: View, width: int, height: int) -> Frame:
    """Draw all alerts, the newest first."""
    names = member_names(snapshot)
    body = [alert_line(alert, names, width, view.options.glyphs) for alert in reversed(snapshot.alerts)]
    title = [(plural(len(body), "alert"), "bold"), (", the newest first", "")]
    return page(snapshot, view, title, body or [[("nothing happened so far", "dim")]], (width, height))


def render_help(snapshot: FleetSnapshot, view: View, width: int, height: int) -> Frame:
    """Draw what every key does, out of the tables that `update` reads."""
    body: list[list[Piece]] = []
    for screen, heading_text in _HELP_SECTIONS.items():
        if screen == "confirm" and view.options.read_only:
            continue
        body += [[(heading_text, "bold")]] + [
            [(f"  {key.shown:<10}", "good"), (key.help, "")] for key in keys_of(replace(view, screen=screen))
        ]
    return page(snapshot, view, [("keys", "bold")], body, (width, height))


def render_confirm(snapshot: FleetSnapshot, view: View, width: int, height: int) -> Frame:
    """Draw what would be done to whom, what they cost, and what is to be typed."""
    request, glyphs = view.request, view.options.glyphs
    if request is None:
        return page(snapshot, view, [], [], (width, height))
    rows = [row for row in snapshot.rows if row.key in request.keys]
    columns = table_columns(rows, width)
    body: list[Sequence[Piece]] = [[(line, "bold")] for line in _what_to_type(request.phrase, width)]
    body += [[(line, "warn")] for line in wrap(f"{_MEANS[request.action]} {_costs(rows)}", width, glyphs)]
    body += [[], heading(columns, width, "", glyphs)]
    body += [line for row in rows for line in _asked_lines(row, snapshot, view, columns, width)]
    title = [(f"{request.action} {plural(len(request.keys), 'member')}?", "bad")]
    return page(snapshot, view, title, body, (width, height))


def _what_to_type(phrase: str, width: int) -> Sequence[str]:
    """What is to be done to go on; the phrase is never broken or cut."""
    line = f"To go on, type exactly   {phrase}   and press Enter."
    return [line] if len(line) <= width else ["To go on, type exactly", f"  {phrase}", "and press Enter."]


def _asked_lines(
    row: TrainingMetrics, snapshot: FleetSnapshot, view: View, columns: Sequence[tuple[Column, int]], width: int
) -> list[Sequence[Piece]]:
    """A member that is asked for; by its whole key too where another one looks like it in so narrow a column."""
    glyphs = view.options.glyphs
    its_width = next(its_width for column, its_width in columns if column.title == "ID")
    shown = [clip(safe(each.instance_id, glyphs), its_width, glyphs) for each in (row, *snapshot.rows)]
    key = broken(safe(row.key, glyphs), width - _INDENT) if shown.count(shown[0]) > 2 else ()
    line = table_line(_member(row, snapshot, view), columns, width)
    return [line, *([(" " * _INDENT + part, "")] for part in key)]


def _member(row: TrainingMetrics, snapshot: FleetSnapshot, view: View) -> Member:
    return Member(row, health_of(row, snapshot, view), snapshot.timestamp, view.options.glyphs)


def _costs(rows: Sequence[TrainingMetrics]) -> str:
    rows = list({row.instance_id: row for row in rows}.values())  # several of one machine cost what it costs
    prices = [row.cost_per_hour for row in rows if row.cost_per_hour is not None]
    totals = [row.total_cost for row in rows if row.total_cost is not None]
    if not prices:
        return "What they cost is not known."
    spent = f", and {_at_least(totals, rows)}{format_total(sum(totals))} so far" if totals else ""
    return f"They cost {_at_least(prices, rows)}{format_price(sum(prices))}/h{spent}."


def _at_least(known: Sequence[float], rows: Sequence[TrainingMetrics]) -> str:
    return "at least " if len(known) < len(rows) else ""
