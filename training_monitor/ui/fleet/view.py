"""The view of a fleet: which members are shown, in which order and columns, and which are marked. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from training_monitor.core.regex import regex
from training_monitor.core.units import known_number
from training_monitor.fleet.attention import acknowledged_members, rank, worst_first
from training_monitor.fleet.columns import FleetColumn
from training_monitor.fleet.metrics import FLEET_COLUMNS, Health, Thresholds, TrainingMetrics
from training_monitor.fleet.rows import is_rented
from training_monitor.fleet.values import FleetSample, FleetSnapshot
from training_monitor.ui.kit.charts import draw_curve
from training_monitor.ui.kit.text import (
    NOT_KNOWN,
    UNKNOWN_SIGN,
    Glyphs,
    Line,
    cells,
    clip,
    clip_middle,
    format_age,
    format_bar,
    format_number,
    format_percent,
    format_price,
    format_seconds,
    format_total,
    gain,
    last_cells,
    safe,
)
from training_monitor.ui.kit.view import MARGIN, Column, Layout, Table, View, fit_columns, row_line
from training_monitor.verdict.judge import ENDS

KEPT_LINES = 500
Recent = Callable[[str], Sequence[FleetSample]]
Losses = Callable[[str], Sequence[float | None]]
_Order = Callable[[TrainingMetrics, Health | None], Any]
LEVEL_STYLES = {"healthy": "good", "warning": "warn", "error": "bad"}
LEVEL_WORDS = {"healthy": "ok", "warning": "warn", "error": "error"}
_BAR_FROM = 15  # cells that the progress column needs to show a bar
_PROGRESS_TEXT = 9
_STEPPING = ("running", "slow", "stalled", "suspended", "NaN")  # states
_REASON_FROM = 28  # cells that the health column needs to show a part of the whole reason
_LEVEL_SIGNS = {"healthy": "", "warning": "! ", "error": "!! "}  # of ASCII; "? " for all else
_GPU_MAKERS = regex(r"NVIDIA |GeForce |Tesla |RTX ")
_FORMATS: dict[str, Callable[[Any], str]] = {  # by unit
    "number": format_number,
    "percent": format_percent,
    "share": lambda value: f"{100.0 * value:.0f}",
    "price": format_price,
    "total": format_total,
    "duration": format_seconds,
}
_SHOWN = [each for each in FLEET_COLUMNS if each.title]
# What a growing width is spent on, in this order; the rest goes to HEALTH.
STEPS = ", ".join(
    f"{title} {width}"
    for _, title, width in sorted((at, each.title, width) for each in _SHOWN for at, width in each.widths.items())
)


@dataclass(frozen=True, slots=True)
class FleetView(View):
    """The view of a fleet; `screen` can also be detail, comparison or alerts.

    Attributes:
        thresholds: the limits beyond which a value is worth a warning.
        recent: returns the samples of a member by its key, oldest first; losses: their losses alone.
        group: only its members are shown; None: all.
        marked: keys of members.
        asked: keys of members with a requested action, and when it was requested (the snapshot's time).
        all_logs: the log panel shows all members' lines.
        log_lines: those of all members, each with the member's key, in order of arrival.
        log_windows: the last window of each member's log.
        steps: of each member its step, and when that was made, epoch seconds, None if unknown.
        alert: number of the selected line of alerts, from 0 for the newest.
        alert_lines: (line, member's key) of the alerts on the main screen as it was drawn.
    """

    title: str = "fleet"
    selected: str = ""
    thresholds: Thresholds = Thresholds()
    recent: Recent = field(default=lambda key: (), compare=False)
    losses: Losses = field(default=lambda key: (), compare=False)
    group: str | None = None
    marked: frozenset[str] = frozenset()
    asked: tuple[tuple[str, float], ...] = ()
    all_logs: bool = False
    log_lines: tuple[tuple[str, str], ...] = ()
    log_windows: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    steps: Mapping[str, tuple[int | None, float | None]] = field(default_factory=dict)
    alert: int = 0
    alert_lines: tuple[tuple[int, str], ...] = ()


def follow(view: FleetView, rows: Sequence[TrainingMetrics]) -> FleetView:
    """Add the new lines of the members' logs, those of the one seen last at the end; note when steps were made."""
    steps = {row.key: _last_step(view.steps.get(row.key), row) for row in rows}
    view = view if steps == view.steps else replace(view, steps=steps)
    windows = {row.key: tuple(row.recent_logs) for row in rows}
    if windows == view.log_windows:
        return view
    times = {row.key: row.last_updated or 0.0 for row in rows}
    gained = [
        (key, line)
        for key in sorted(windows, key=times.__getitem__)
        for line in gain(view.log_windows.get(key, ()), windows[key])
    ]
    return replace(view, log_lines=(*view.log_lines, *gained)[-KEPT_LINES:], log_windows=windows)


def _last_step(known: tuple[int | None, float | None] | None, row: TrainingMetrics) -> tuple[int | None, float | None]:
    """Return the step of a row, and when it was made: by the first verdict on it, or before the look that saw it."""
    if known and known[0] is not None and known[0] != row.step:
        return row.step, row.last_updated
    if known and known[0] == row.step and known[1] is not None:
        return known
    silence = row.verdict.seconds_without_step if row.verdict else None
    return row.step, None if silence is None or row.last_updated is None else row.last_updated - silence


def step_age(row: TrainingMetrics, now: float, view: FleetView) -> float | None:
    """Return the seconds since the last step of a training that should make some; None if unknown."""
    if row.state() not in _STEPPING:
        return None
    at = view.steps.get(row.key, (None, None))[1] or _last_step(None, row)[1]
    return None if at is None else max(0.0, now - at)


def health_of(row: TrainingMetrics, snapshot: FleetSnapshot, view: FleetView) -> Health:
    """Return the health of a member by the view's thresholds."""
    return row.health(view.thresholds, snapshot.timestamp)


def state_and_reason(row: TrainingMetrics, health: Health) -> str:
    """Return the state of a member and why it is in it, as one sentence."""
    state = row.state()
    if row.verdict is not None and row.verdict.state == state and state in ENDS:  # the judge begins with it
        return health.reason
    return state if health.reason == state else f"{state}: {health.beside_state}"


def marked_rows(snapshot: FleetSnapshot, view: FleetView) -> list[TrainingMetrics]:
    """Return the marked members that still exist, also those hidden by the filter."""
    return [row for row in snapshot.rows if row.key in view.marked]


def member_row(snapshot: FleetSnapshot, key: str) -> TrainingMetrics | None:
    """Return the member with that key; None when it is not in the fleet."""
    return next((row for row in snapshot.rows if row.key == key), None)


def label(row: TrainingMetrics) -> str:
    """Return a short label: the name, and where it runs unless that is here."""
    where = str(row.instance_id)
    if row.name in ("", where):
        return where
    return row.name if where == "local" else f"{row.name} {where}" if is_rented(row) else f"{row.name} on {where}"


# ---------------------------------------------------------------- filter and order


def filtered_rows(snapshot: FleetSnapshot, view: FleetView) -> list[TrainingMetrics]:
    """Return the rows of the group that match the filter, in the fleet's order."""
    rows = [row for row in snapshot.rows if view.group is None or view.group in row.groups]
    for word in view.words.lower().split():
        rows = [row for row in rows if word in _searched(row, snapshot, view)]
    return rows


def visible_rows(snapshot: FleetSnapshot, view: FleetView) -> list[TrainingMetrics]:
    """Return the filtered rows, sorted; unknown values come last in either direction."""
    rows = filtered_rows(snapshot, view)
    if view.sort not in ORDERS:
        rows = worst_first(rows, view.thresholds, snapshot.timestamp, acknowledged_members(snapshot.alerts))
        return rows[::-1] if view.reverse else rows
    order = ORDERS[view.sort]
    values = {id(row): order(row, health_of(row, snapshot, view) if view.sort == "HEALTH" else None) for row in rows}
    with_value = [row for row in rows if values[id(row)] is not None]
    with_value.sort(key=lambda row: values[id(row)], reverse=view.reverse)
    return with_value + [row for row in rows if values[id(row)] is None]


def _searched(row: TrainingMetrics, snapshot: FleetSnapshot, view: FleetView) -> str:
    health = health_of(row, snapshot, view)
    texts = (row.instance_id, row.name, row.gpu_type or "", row.status, row.state(), health.level, health.reason)
    return "\n".join(map(str, texts)).lower()


def _by_value(column: FleetColumn, row: TrainingMetrics, _: Health | None) -> Any:
    """Return what a value is sorted by: nan as the greatest number, and texts without regard to case."""
    value = column.value(row)
    if isinstance(value, str):
        return value.lower() or None
    return float("inf") if value is not None and value != value else value


def _by_id(row: TrainingMetrics, _: Health | None) -> Any:
    number = known_number(row.instance_id)
    return (1, 0.0, str(row.instance_id).lower()) if number is None else (0, number, "")


ORDERS: dict[str, _Order] = {each.title: partial(_by_value, each) for each in _SHOWN if each.letter} | {
    "ID": _by_id,
    "HEALTH": lambda row, health: health and (rank(row, health), health.reason),
}
TABLE: Table[FleetView, FleetSnapshot, TrainingMetrics] = Table(
    "member",
    visible_rows,
    lambda row: row.key,
    lambda view: replace(view, group=None, words=""),
    tuple(ORDERS),
    "the worst first",
    falling=tuple(each.title for each in _SHOWN if each.falling),
)


# ---------------------------------------------------------------- the columns


class Member(NamedTuple):
    """The contents of a table row: metrics, health, time (epoch seconds), glyphs, losses, and age of the last step."""

    row: TrainingMetrics
    health: Health
    now: float
    glyphs: Glyphs
    losses: Losses = lambda key: ()
    step_age: float | None = None


def member_of(row: TrainingMetrics, snapshot: FleetSnapshot, view: FleetView) -> Member:
    """Return a row with its health by the view's thresholds."""
    age = step_age(row, snapshot.timestamp, view)
    return Member(row, health_of(row, snapshot, view), snapshot.timestamp, view.glyphs, view.losses, age)


# ---------------------------------------------------------------- cells


def format_value(column: FleetColumn, row: TrainingMetrics) -> str:
    """Format a value by its unit."""
    value = column.value(row)
    return NOT_KNOWN if value is None else _FORMATS.get(column.unit, column.unit.format)(value)


def format_progress(metrics: TrainingMetrics) -> str:
    """Format the progress: `E1/3 70%`; the step if the total is unknown."""
    percent, parts = metrics.progress_percentage(), []
    if metrics.epoch is not None:
        total = f"/{metrics.total_epochs}" if metrics.total_epochs else ""
        parts.append(f"E{round(metrics.epoch, 1):g}{total}")
    if percent is not None:
        parts.append(f"{int(percent)}%")
    elif metrics.step is not None:
        parts.append(f"step {metrics.step}")
    return " ".join(parts) or NOT_KNOWN


def format_steps(metrics: TrainingMetrics) -> str:
    """Format the steps: 700/1000."""
    if metrics.step is None:
        return NOT_KNOWN
    return f"{metrics.step}/{metrics.total_steps}" if metrics.total_steps else str(metrics.step)


def _show_value(column: FleetColumn, member: Member, width: int) -> str:
    text = format_value(column, member.row)
    return text if text == NOT_KNOWN else column.cell.format(text)


def show_status(member: Member, width: int) -> str:
    """Format the state with its sign, and the age of the last step behind it, where there is room."""
    state, level, glyphs = member.row.state(), member.health.level, member.glyphs
    word, sign = safe(state, glyphs), f"{glyphs.signs.get(state, UNKNOWN_SIGN)} "
    if glyphs.ascii:
        sign = _LEVEL_SIGNS.get(level, "? ")
    elif level == "error" and state in ("running", "NaN"):
        sign = f"{glyphs.signs['stalled']} "
    elif level == "warning" and state == "running":
        sign = f"{glyphs.signs['slow']} "
    age = "" if member.step_age is None else f" {format_age(member.step_age)}"
    return clip(f"{sign}{word}{age}" if cells(sign + word + age) <= width else f"{sign}{word}", width, glyphs)


def _show_gpu(member: Member, width: int) -> str:
    text = safe(member.row.gpu_type or NOT_KNOWN, member.glyphs)
    text = text if cells(text) <= width else _GPU_MAKERS.sub("", text)
    while cells(text) > width and text.count(" ") > text.count("x "):  # the model is before its memory, after `8x `
        text = text.rpartition(" ")[0]
    return text


def _show_progress(member: Member, width: int) -> str:
    text = format_progress(member.row)
    percent = member.row.progress_percentage()
    if cells(text) > width:
        return text.split()[-1]
    if width < _BAR_FROM or percent is None:
        return text
    room = width - max(_PROGRESS_TEXT, cells(text)) - 1
    return f"{format_bar(percent, room, member.glyphs)} {text}" if room > 2 else text


def show_health(member: Member, width: int) -> str:
    """Format why the member is in its state: the reason, in brief where there is little room for it."""
    health, state = member.health, member.row.state()
    whole = safe("" if health.reason == state else health.beside_state, member.glyphs)
    brief = "" if health.brief == state else health.brief
    if width >= _REASON_FROM or cells(whole) <= width or not (brief or health.level == "healthy"):
        return whole
    return safe(brief, member.glyphs)


def _show_id(member: Member, width: int) -> str:
    """Format the id of an instance; of the address of another target rather the end, which tells more."""
    text = safe(member.row.instance_id, member.glyphs) or NOT_KNOWN
    return text if isinstance(member.row.instance_id, int) else last_cells(text, width, member.glyphs)


def _show_name(member: Member, width: int) -> str:
    name = safe(member.row.name or member.row.instance_id, member.glyphs)
    return clip_middle(name, width, member.glyphs) or NOT_KNOWN


_DRAWN: dict[str, Callable[[Member, int], str]] = {  # what the width or the glyphs change
    "ID": _show_id,
    "NAME": _show_name,
    "GPU": _show_gpu,
    "STATUS": show_status,
    "PROGRESS": _show_progress,
    "STEP": lambda member, width: format_steps(member.row),
    "TREND": lambda member, width: draw_curve(member.losses(member.row.key), width, member.glyphs),
    "HEALTH": show_health,
}
_TITLES = [each.title for each in _SHOWN]
COLUMNS: tuple[Column[Member], ...] = tuple(
    Column(each.title, each.align, _DRAWN.get(each.title) or partial(_show_value, each), each.heading)
    for each in sorted(_SHOWN, key=lambda each: _TITLES.index(each.beside or each.title))
)


def table_columns(rows: Sequence[TrainingMetrics], width: int) -> Layout[Member]:
    """Return the columns with their widths, from left to right."""
    named = max((cells(row.name or str(row.instance_id)) for row in rows), default=0)
    places = {str(row.instance_id) for row in rows if row.name not in ("", str(row.instance_id))} - {"local"}
    unused = {each.title: 0 for each in _SHOWN if each.optional and all(each.value(row) is None for row in rows)}
    needs = {"NAME": max(8, named), "ID": max(map(len, places), default=0), **unused}
    return fit_columns(COLUMNS, STEPS, width - MARGIN, needs, "HEALTH")


def table_line(
    member: Member, layout: Layout[Member], view: FleetView, *, selected: bool = False, marked: bool = False
) -> Line:
    """Format one member. Stale ones are dim; its health and the values that are the reason have the health's colour."""
    base = "selected" if selected else "dim" if member.row.stale_since is not None else ""
    level = base or LEVEL_STYLES.get(member.health.level, "")
    fields = {*member.health.fields} | {"progress_percentage" for field in member.health.fields if field == "step"}
    why = [each.title for each in _SHOWN if each.attribute in fields and each.title != "TREND"]
    margin = (">" if selected else " ") + ("*" if marked else " ")
    return row_line(margin, layout, member, dict.fromkeys([*why, "STATUS", "HEALTH"], level), view, base)
