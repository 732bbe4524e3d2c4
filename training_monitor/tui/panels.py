"""The parts around the table: header, alerts, logs, summary, and the line of keys. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from training_monitor.policy.fleet_values import FleetAlert, FleetSnapshot, FleetSummary
from training_monitor.policy.training_metrics import TrainingMetrics
from training_monitor.tui.columns import LEVEL_STYLES, LEVEL_WORDS
from training_monitor.tui.keys import TABLES, keys_of
from training_monitor.tui.numbers_text import format_age, format_clock, format_price, format_total
from training_monitor.tui.text import Glyphs, Line, Piece, fit, fit_line, flow, last_cells, rule, safe
from training_monitor.tui.view import View, health_of, label, member_row
from training_monitor.units import format_duration, plural

_LABEL = 12  # cells of a member's name before its lines
_ALERT_STYLES = {"error": "bad", "warning": "warn"}
_PROMPTS = {"filter": "/", "confirm": "> "}
_PROMPT_CELLS = 3  # of a prompt, and of the cursor after what is typed
_COUNTED = ("healthy", "warning", "error", "unknown")


# ---------------------------------------------------------------- header


def header(snapshot: FleetSnapshot, view: View, shown: int, width: int) -> Line:
    """Title, group, how many members, how old it all is, and what is wrong with the listing."""
    glyphs = view.options.glyphs
    total = len(snapshot.rows)
    counted = plural(total, "member") if shown == total else f"{shown} of {plural(total, 'member')}"
    group = "all" if view.group is None else f"group {safe(view.group, glyphs)}"
    parts: list[Piece] = [
        (f" {safe(view.options.title, glyphs)} ", "title"),
        (f"  {group}, {counted}", "bold"),
    ]
    parts += [("  PAUSED", "warn")] if snapshot.paused else []
    parts += [(f"  filter: {safe(view.words, glyphs)}", "warn")] if view.words else []
    if view.sort or view.reverse:
        arrow = glyphs.falling if view.reverse else glyphs.rising
        parts.append((f"  {arrow} {view.sort or 'order'}", "dim"))
    parts += [("  read-only", "dim")] if view.options.read_only else []
    parts.append((f"  {_freshness(snapshot)}", ""))
    parts += [("  refreshing", "dim")] if snapshot.refreshing else []
    return fit_line(parts, width, glyphs)


def stale_line(snapshot: FleetSnapshot, view: View, width: int) -> tuple[Line, ...]:
    """Why the last listing failed, and since when what is shown is old; nothing while it works."""
    if snapshot.error is None:
        return ()
    glyphs = view.options.glyphs
    text = f"stale since {format_clock(snapshot.stale_since)}: {safe(snapshot.error, glyphs)}"
    return (fit_line([(text, "bad")], width, glyphs),)


def _freshness(snapshot: FleetSnapshot) -> str:
    seen = [row.last_updated for row in snapshot.rows if row.last_updated is not None]
    newest = max([*seen, *([] if snapshot.listed_at is None else [snapshot.listed_at])], default=None)
    return "nothing seen yet" if newest is None else f"refreshed {format_age(snapshot.timestamp - newest)} ago"


# ---------------------------------------------------------------- alerts and logs


def alert_line(alert: FleetAlert, names: Mapping[str, str], width: int, glyphs: Glyphs) -> Line:
    """When, whom, what."""
    style = _ALERT_STYLES.get(alert.level, "")
    who = safe(names.get(alert.key, alert.key), glyphs)
    pieces = [
        (f"{format_clock(alert.timestamp)} ", "dim"),
        (f"{safe(alert.level, glyphs):<7} ", style),
        (f"{who}: " if who else "", "bold"),
        (safe(alert.text, glyphs), style),
    ]
    return fit_line(pieces, width, glyphs)


def member_names(snapshot: FleetSnapshot) -> dict[str, str]:
    """What people call each member, by its key."""
    return {row.key: label(row) for row in snapshot.rows}


def alert_panel(snapshot: FleetSnapshot, view: View, width: int, height: int) -> tuple[Line, ...]:
    """The last alerts, the newest at the bottom."""
    names = member_names(snapshot)
    shown = snapshot.alerts[-height:] if height else ()
    return tuple(alert_line(alert, names, width, view.options.glyphs) for alert in shown)


def log_panel(
    snapshot: FleetSnapshot,
    view: View,
    rows: Sequence[TrainingMetrics],
    row: TrainingMetrics | None,
    size: tuple[int, int],
) -> tuple[Line, ...]:
    """A title, and the last lines of the selected member, or of all that are shown; `size` is (width, height)."""
    width, height = size
    glyphs = view.options.glyphs
    if height < 2:
        return ()
    if view.all_logs:
        shown = {each.key for each in rows}
        feed = [(key, line) for key, line in view.feed.lines if key in shown][1 - height :]
        title: list[Piece] = [("logs of all", "bold")]
        lines = [_log_line(snapshot, key, line, width, glyphs) for key, line in feed]
    else:
        title = [("log", "bold")] if row is None else _about(snapshot, view, row)
        logs = [] if row is None else list(row.recent_logs)[1 - height :]
        lines = [fit_line([(safe(line, glyphs), "")], width, glyphs) for line in logs]
    lines = lines or [fit_line([("no log lines yet", "dim")], width, glyphs)]
    blank = [fit_line([], width, glyphs)] * (height - 1 - len(lines))
    return (rule(title, width, glyphs), *lines, *blank)


def _about(snapshot: FleetSnapshot, view: View, row: TrainingMetrics) -> list[Piece]:
    glyphs, health = view.options.glyphs, health_of(row, snapshot, view)
    style = LEVEL_STYLES.get(health.level, "")
    return [(f"{safe(label(row), glyphs)} ", "bold"), (f"{health.level}: {safe(health.reason, glyphs)}", style)]


def _log_line(snapshot: FleetSnapshot, key: str, line: str, width: int, glyphs: Glyphs) -> Line:
    row = member_row(snapshot, key)
    name = fit(safe(row.name or row.instance_id if row else key, glyphs), _LABEL, glyphs)
    return fit_line([(f"{name} ", "dim"), (safe(line, glyphs), "")], width, glyphs)


# ---------------------------------------------------------------- summary


def summary_lines(snapshot: FleetSnapshot, view: View, width: int, height: int) -> tuple[Line, ...]:
    """Counts, what it costs, what it will cost, and how long the credit lasts."""
    summary = snapshot.summary
    is_part = view.group is not None or view.words
    scope: list[Piece] = [(f"of all {plural(len(snapshot.rows), 'member')}:", "dim")] if is_part else []
    segments = [scope, _counts(summary), *([(text, "")] for text in _money(summary))]
    lines = flow([each for each in segments if each], width, height, view.options.glyphs)
    return (*lines, *[fit_line([], width, view.options.glyphs)] * (height - len(lines)))


def _counts(summary: FleetSummary) -> list[Piece]:
    pieces: list[Piece] = []
    for level in _COUNTED:
        if count := summary.levels.get(level, 0):
            text = f"{count} {LEVEL_WORDS.get(level, level)}"
            pieces += [*([(", ", "dim")] if pieces else []), (text, LEVEL_STYLES.get(level, ""))]
    return pieces


def _money(summary: FleetSummary) -> list[str]:
    parts = []
    if summary.dollars_per_hour:
        parts.append(f"{_at_least(summary.unpriced)}{format_price(summary.dollars_per_hour)}/h")
    elif summary.unpriced:
        parts.append("nobody knows the price")
    if summary.dollars_spent:
        parts.append(f"spent {_at_least(summary.without_total)}{format_total(summary.dollars_spent)}")
    if summary.credit is not None:
        most = "at most " if summary.unpriced else ""
        hours = summary.credit_hours
        lasts = "" if hours is None else f" lasts {most}{format_duration(hours * 3600)}"
        parts.append(f"credit {format_total(summary.credit)}{lasts}")
    if summary.seconds_to_completion is not None:
        dollars, least = summary.dollars_to_completion, _at_least(summary.without_price)
        cost = "" if dollars is None else f"{least}{format_total(dollars)} "
        parts.append(f"to completion {cost}in {format_duration(summary.seconds_to_completion)}")
    if summary.without_eta:
        parts.append(f"{summary.without_eta} without ETA")
    if summary.hidden:
        hidden = summary.hidden_dollars_per_hour
        parts.append(f"{summary.hidden} not shown" + (f": {format_price(hidden)}/h of that" if hidden else ""))
    return parts


def _at_least(unknown: int) -> str:
    """What goes before a sum in which so many numbers are not known."""
    return "at least " if unknown else ""


# ---------------------------------------------------------------- last line


def footer(view: View, width: int) -> Line:
    """What is typed, a message, or the keys of this screen."""
    glyphs = view.options.glyphs
    if view.screen in _PROMPTS:
        typed = last_cells(safe(view.typed, glyphs), width - _PROMPT_CELLS, glyphs)
        return fit_line([(_PROMPTS[view.screen], "bold"), (f"{typed}_", ""), *_hint(view)], width, glyphs)
    if view.message:
        return fit_line([(safe(view.message, glyphs), "warn")], width, glyphs)
    words = [[(key.shown.split()[0], "bold"), (f" {key.word}", "dim")] for key in keys_of(view) if key.word]
    return flow(words, width, 1, glyphs)[0]


def _hint(view: View) -> list[Piece]:
    words = "  ".join(f"{key.shown} {key.word}" for key in TABLES[view.screen] if key.word)
    return [(f"   {words}", "dim")]
