"""The fleet's main screen: the table, and below it alerts, a log and a summary. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from training_monitor.core.units import format_duration, name_some, plural
from training_monitor.fleet.attention import group_alerts, pressing_last
from training_monitor.fleet.metrics import DEFAULT_THRESHOLDS, Thresholds, TrainingMetrics
from training_monitor.fleet.rows import HEALTH_LEVELS, summarize
from training_monitor.fleet.values import FleetAlert, FleetSnapshot, FleetSummary
from training_monitor.ui.fleet.facts import Body, curves_of, facts_of
from training_monitor.ui.fleet.view import (
    LEVEL_STYLES,
    LEVEL_WORDS,
    TABLE,
    FleetView,
    filtered_rows,
    health_of,
    label,
    member_of,
    state_and_reason,
    table_columns,
    table_line,
)
from training_monitor.ui.kit.page import header
from training_monitor.ui.kit.text import (
    UNICODE,
    UNKNOWN_WORD,
    Glyphs,
    Line,
    Piece,
    cells,
    clip_middle,
    fill,
    fit,
    flow,
    format_age,
    format_moment,
    format_price,
    format_total,
    rule,
)
from training_monitor.ui.kit.view import Frame, heading_line, place_headings

LOW = 12  # below this many lines only the table is shown
_TALL = 37  # from this many lines on the summary may take three
_WIDE = 100  # cells from which the header has room for a filter and the order
_LEAST_LOG = 3
_LEAST_CURVES, _MOST_CURVES = 4, 14
_LEAST_NAME = 20
_NAME_EACH = 40  # cells of the screen for each member that an alert names
_NO_LOG = "no log lines yet"
_LABEL = 12  # least cells of the members' names before their log lines
_ALERT_STYLES = {"error": "bad", "warning": "warn"}


def draw_header(snapshot: FleetSnapshot, view: FleetView) -> Line:
    """Draw group, number of members, filter, and the age of the data."""
    shown, total = len(filtered_rows(snapshot, view)), len(snapshot.rows)
    counted = plural(total, "member") if shown == total else f"{shown} of {plural(total, 'member')}"
    counted = counted if total or _is_empty(snapshot) else f"{UNKNOWN_WORD} members"
    group = "all" if view.group is None else f"group {view.safe(view.group)}"
    seen = [row.last_updated for row in snapshot.rows if row.last_updated is not None]
    newest = max([*seen, *([] if snapshot.listed_at is None else [snapshot.listed_at])], default=None)
    now, age = snapshot.timestamp, "nothing seen yet"
    if newest is not None:
        age = f"refreshed {format_moment(newest, now)}, {format_age(now - newest)} ago"
    has_room = view.width >= _WIDE or not view.words  # else the age would be cut
    order = "  worst first" if has_room and not view.sort and not view.reverse else ""
    tail = [(order, "dim"), (f"  {age}", ""), ("  refreshing" if snapshot.refreshing and has_room else "", "dim")]
    filters = [f"filter: {view.words}" if view.words else "", snapshot.lateness]
    return header(view, f"{group}, {counted}", snapshot.paused, filters, tail)


def draw_main(snapshot: FleetSnapshot, view: FleetView) -> Frame[FleetView]:
    """Draw the table with its panels; only the rows on the screen are formatted."""
    rows = TABLE.rows(snapshot, view)
    groups = group_alerts(alert for alert in snapshot.alerts if not alert.acknowledged)
    told = pressing_last(groups, snapshot.timestamp)
    table, alerts, log, summary = _shared(view.height, len(rows), len(told), view)
    told = sorted(told[-alerts:], key=lambda group: group[0].timestamp) if alerts else []
    view = TABLE.scrolled(snapshot, view, rows, max(1, table - 1))
    layout = table_columns(snapshot.rows, view.width)
    names, width = member_names(snapshot), moment_width(told, snapshot.timestamp)
    lines = (
        *_table_lines(snapshot, view, rows[view.top : view.top + view.page], table),
        *(alert_line(group, names, view, snapshot.timestamp, width=width) for group in told),
        *_log_panel(snapshot, view, rows, log),
        *_summary_lines(snapshot, view, summary),
    )
    places = tuple((view.heading_line + table + number, group[0].key) for number, group in enumerate(told))
    return Frame(lines, replace(view, headings=place_headings(layout), alert_lines=places))


def _shared(height: int, members: int, alerts: int, view: FleetView) -> tuple[int, int, int, int]:
    """Return the lines for table, alerts, panel (with its title) and summary; spare ones of the table go there."""
    if height < LOW:
        return height - 1, 0, 0, 1
    summary = 3 if height >= _TALL else 2
    free = height - summary
    alert_lines = min(alerts, max(2, free // 8))
    log = max(_LEAST_LOG, free // 4)
    table = free - alert_lines - log
    spare = max(0, table - 1 - max(1, members))
    more_alerts = min(spare // 3, alerts - alert_lines)
    return table - spare, alert_lines + more_alerts, log + spare - more_alerts, summary


def table_text(
    snapshot: FleetSnapshot, width: int, glyphs: Glyphs = UNICODE, thresholds: Thresholds = DEFAULT_THRESHOLDS
) -> list[Line]:
    """Format all members, the worst first, and the summary as lines of `width` cells."""
    view = FleetView(glyphs=glyphs, width=width, index=-1, thresholds=thresholds)
    lines = _table_lines(snapshot, view, TABLE.rows(snapshot, view), 0)
    summary = _summary_lines(snapshot, view, 3)
    return [*lines, *(line for line in summary if any(text.strip() for text, _ in line))]


def _table_lines(
    snapshot: FleetSnapshot, view: FleetView, rows: Sequence[TrainingMetrics], height: int
) -> tuple[Line, ...]:
    """Format the heading and the rows; the first row has the number `view.top`."""
    layout = table_columns(snapshot.rows, view.width)
    lines = [
        table_line(
            member_of(row, snapshot, view), layout, view, selected=number == view.index, marked=row.key in view.marked
        )
        for number, row in enumerate(rows, view.top)
    ]
    lines = lines or [view.line([("  " + _why_empty(snapshot, view), "dim")])]
    return fill([heading_line(layout, view, view.sort), *lines], view.width, height)


def _why_empty(snapshot: FleetSnapshot, view: FleetView) -> str:
    if snapshot.rows and view.words:
        return f"no member matches {view.safe(view.words)}: Esc clears the filter"
    if snapshot.rows:
        return f"group {view.safe(view.group)} has no members: Tab shows the next group"
    if _is_empty(snapshot):
        return "no instances to show: none is running"
    return "querying ..." if snapshot.error is None else "no data yet: the last query failed"


def _is_empty(snapshot: FleetSnapshot) -> bool:
    """Return whether there is no member, as far as the last look could see."""
    return not snapshot.rows and snapshot.error is None and snapshot.listed_at is not None


# ---------------------------------------------------------------- alerts and logs


def member_names(snapshot: FleetSnapshot) -> dict[str, str]:
    """Return the label of each member, by key."""
    return {row.key: label(row) for row in snapshot.rows}


def moment_width(groups: Sequence[Sequence[FleetAlert]], now: float) -> int:
    """Return the cells of the longest time of some alerts."""
    return max((len(format_moment(group[0].timestamp, now)) for group in groups), default=0)


def alert_line(
    group: Sequence[FleetAlert],
    names: Mapping[str, str],
    view: FleetView,
    now: float,
    *,
    width: int,
    margin: str = "",
    base: str = "",
) -> Line:
    """Format the time, in `width` cells, level, member and text of an alert, or of those of one kind on several."""
    first, over = group[0], max((alert.ended or 0.0 for alert in group), default=0.0)
    past = f"resolved after {format_duration(over - first.timestamp)}: " if over else ""
    style = base or ("dim" if past or first.acknowledged else _ALERT_STYLES.get(first.level, ""))
    who, said = _who_and_what(group, names, view)
    pieces = [
        (f"{margin}{format_moment(first.timestamp, now):<{width}} ", base or "dim"),
        (f"{view.safe(first.level):<7} ", style),
        (f"{who}: " if who else "", base or "bold"),
        (f"{past}{'acknowledged: ' if first.acknowledged else ''}{said}", style),
    ]
    return view.line(pieces, base)


def _who_and_what(group: Sequence[FleetAlert], names: Mapping[str, str], view: FleetView) -> tuple[str, str]:
    """Return whom alerts are about, and what they say; the same text of several members once."""
    most = max(_LEAST_NAME, view.width // 4)
    told = [
        (clip_middle(view.safe(names.get(alert.key, alert.key)), most, view.glyphs), view.safe(alert.text))
        for alert in group
    ]
    texts = {text for _, text in told}
    if len(texts) == 1:
        most = max(1, view.width // _NAME_EACH)
        return name_some([name for name, _ in told], most), texts.pop()
    return f"{len(told)} members", "; ".join(f"{name}: {text}" for name, text in told)


def _log_panel(
    snapshot: FleetSnapshot, view: FleetView, rows: Sequence[TrainingMetrics], height: int
) -> tuple[Line, ...]:
    """Format a title and the last lines of the selected member, or of all shown members."""
    glyphs, row = view.glyphs, rows[view.index] if rows else None
    if height < 2:
        return ()
    if view.all_logs:
        shown = {each.key for each in rows}
        feed = [(key, line) for key, line in view.log_lines if key in shown][1 - height :]
        title: list[Piece] = [("logs of all", "bold")]
        names = {each.key: view.safe(each.name or each.instance_id) for each in rows}
        room = max(_LABEL, min(view.width // 4, max((cells(names[key]) for key, _ in feed), default=0)))
        lines = [
            view.line([(fit(clip_middle(names[key], room, glyphs), room + 1, glyphs), "dim"), (view.safe(line), "")])
            for key, line in feed
        ]
    else:
        title = [("log", "bold")] if row is None else _about(row, snapshot, view)
        lines = [] if row is None else [view.line(line) for line in _known(row, snapshot, view, height - 1)]
    lines = lines or [view.line([(_NO_LOG if rows else "", "dim")])]
    return fill([rule(title, view.width, glyphs), *lines], view.width, height)


def _known(row: TrainingMetrics, snapshot: FleetSnapshot, view: FleetView, height: int) -> Body:
    """Return the end of a member's log, and above it its facts and its curves where there is room."""
    log = [[(view.safe(line), "")] for line in row.recent_logs][-height:] or [[(_NO_LOG, "dim")]]
    facts, above = facts_of(row, snapshot, view), Body()
    room = height - len(log)
    if room > len(facts):
        above += [*facts, []]
        room -= len(facts) + 1
    if room > _LEAST_CURVES:
        above += [*curves_of(row, view, min(room - 1, _MOST_CURVES)), []]
    return [*above, *log]


def _about(row: TrainingMetrics, snapshot: FleetSnapshot, view: FleetView) -> list[Piece]:
    health = health_of(row, snapshot, view)
    style = LEVEL_STYLES.get(health.level, "")
    return [(f"{view.safe(label(row))} ", "bold"), (view.safe(state_and_reason(row, health)), style)]


# ---------------------------------------------------------------- summary


def _summary_lines(snapshot: FleetSnapshot, view: FleetView, height: int) -> tuple[Line, ...]:
    """Format the counts, the cost so far and to completion of what is shown, and how long the credit lasts."""
    summary, scope = snapshot.summary, list[Piece]()
    if view.group is not None or view.words:
        rows = filtered_rows(snapshot, view)
        summary = summary_of(rows, snapshot, view)
        scope = [(f"{len(rows)} of {plural(len(snapshot.rows), 'member')}{':' if rows else ''}", "dim")]
    segments = [scope, _counts(summary), *([(text, "")] for text in _money(summary))]
    return fill(flow([each for each in segments if each], view.width, height, view.glyphs), view.width, height)


def summary_of(rows: Sequence[TrainingMetrics], snapshot: FleetSnapshot, view: FleetView) -> FleetSummary:
    """Sum up a part of the fleet; the credit is that of all."""
    summary = summarize(rows, listed=None, shown=set(), credit=None, thresholds=view.thresholds, now=snapshot.timestamp)
    return replace(summary, credit=snapshot.summary.credit, credit_hours=snapshot.summary.credit_hours)


def _counts(summary: FleetSummary) -> list[Piece]:
    pieces: list[Piece] = []
    for level in HEALTH_LEVELS:
        if count := summary.levels.get(level, 0):
            text = f"{count} {LEVEL_WORDS.get(level, level)}"
            pieces += [*([(", ", "dim")] if pieces else []), (text, LEVEL_STYLES.get(level, ""))]
    return pieces


def _money(summary: FleetSummary) -> list[str]:
    parts = []
    if summary.dollars_per_hour:
        parts.append(f"{at_least(summary.unpriced)}{format_price(summary.dollars_per_hour)}/h")
    elif summary.unpriced:
        parts.append("price unknown")
    if summary.dollars_spent:
        parts.append(f"spent {at_least(summary.without_total)}{format_total(summary.dollars_spent)}")
    if summary.credit is not None:
        most = "at most " if summary.unpriced else ""
        hours = summary.credit_hours
        lasts = "" if hours is None else f" lasts {most}{format_duration(hours * 3600)}"
        parts.append(f"credit {format_total(summary.credit)}{lasts}")
    if summary.seconds_to_completion is not None:
        dollars, least = summary.dollars_to_completion, at_least(summary.without_price)
        cost = "" if dollars is None else f" for {least}{format_total(dollars)}"
        parts.append(f"all done in {format_duration(summary.seconds_to_completion)}{cost}")
    if summary.without_eta:
        parts.append(f"{summary.without_eta} without ETA")
    if summary.hidden:
        hidden = summary.hidden_dollars_per_hour
        parts.append(f"{summary.hidden} not shown" + (f" ({format_price(hidden)}/h)" if hidden else ""))
    if summary.left_out:
        parts.append(f"{plural(summary.left_out, 'training')} without a row")
    return parts


def at_least(unknown: int) -> str:
    """Return the prefix of a sum that lacks `unknown` values."""
    return "at least " if unknown else ""
