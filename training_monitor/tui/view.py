"""What a person looks at: which screen, which member is selected, how it is sorted and filtered. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from training_monitor.policy.fleet_values import FleetSample, FleetSnapshot
from training_monitor.policy.training_metrics import Health, Thresholds, TrainingMetrics
from training_monitor.tui.log_feed import LogFeed
from training_monitor.tui.text import UNICODE, Glyphs, Line
from training_monitor.units import known_number

Recent = Callable[[str], Sequence[FleetSample]]


@dataclass(frozen=True, slots=True)
class Options:
    """What does not change while the screen is shown."""

    title: str = "fleet"
    read_only: bool = False
    glyphs: Glyphs = UNICODE
    thresholds: Thresholds = Thresholds()


@dataclass(frozen=True, slots=True)
class Request:
    """`action` (stop, destroy) on the members `keys`, once the person has typed `phrase`."""

    action: str
    keys: tuple[str, ...]
    phrase: str


@dataclass(frozen=True, slots=True)
class View:
    """Where a person is.

    Attributes:
        screen: main, filter (main while its filter is typed), detail, comparison, alerts, help or confirm.
        back: the screen that Esc goes back to.
        selected: key of the member the cursor is on; `index` is its row, for when it is gone.
        page: how many rows fit on the screen; scroll: how many lines of a long page are above it; back_scroll: how
            many were above the one that Esc goes back to.
        group: only its members are shown; None: all.
        sort: title of the column, empty for the fleet's own order.
        words: what the filter looks for; typed: what is being typed.
        marked: keys. request: what is to be confirmed. message: said in the last line until the next key.
        asked: keys of members that were to be stopped or destroyed, and when (the snapshot's time).
        all_logs: the log panel shows all members' lines.
    """

    options: Options = Options()
    screen: str = "main"
    back: str = "main"
    selected: str = ""
    index: int = 0
    page: int = 10
    scroll: int = 0
    back_scroll: int = 0
    group: str | None = None
    sort: str = ""
    reverse: bool = False
    words: str = ""
    typed: str = ""
    marked: frozenset[str] = frozenset()
    request: Request | None = None
    message: str = ""
    asked: tuple[tuple[str, float], ...] = ()
    all_logs: bool = False
    feed: LogFeed = LogFeed()


@dataclass(frozen=True, slots=True)
class Frame:
    """A screen's lines, and the view they show: its cursor on a row that is there, scrolled no further than the end."""

    lines: tuple[Line, ...]
    view: View


def health_of(row: TrainingMetrics, snapshot: FleetSnapshot, view: View) -> Health:
    """How a member is, by the thresholds of this fleet."""
    return row.health(view.options.thresholds, snapshot.timestamp)


# ---------------------------------------------------------------- which rows, in which order


def visible_rows(snapshot: FleetSnapshot, view: View) -> list[TrainingMetrics]:
    """The rows of the group that the filter lets through, sorted; what is not known comes last either way."""
    rows = [row for row in snapshot.rows if view.group is None or view.group in row.groups]
    if words := view.words.lower().split():
        rows = [row for row in rows if all(word in _searched(row, snapshot, view) for word in words)]
    if view.sort not in ORDERS:
        return rows[::-1] if view.reverse else rows
    order = ORDERS[view.sort]
    values = {id(row): order(row, health_of(row, snapshot, view) if view.sort == "HEALTH" else None) for row in rows}
    with_value = [row for row in rows if values[id(row)] is not None]
    with_value.sort(key=lambda row: values[id(row)], reverse=view.reverse)
    return with_value + [row for row in rows if values[id(row)] is None]


def _searched(row: TrainingMetrics, snapshot: FleetSnapshot, view: View) -> str:
    health = health_of(row, snapshot, view)
    texts = (row.instance_id, row.name, row.gpu_type or "", row.status, health.level, health.reason)
    return "\n".join(map(str, texts)).lower()


def selected_index(rows: Sequence[TrainingMetrics], view: View) -> int:
    """The row of the selected member; where it is not shown, the row that is now in its place. 0 without rows."""
    found = next((index for index, row in enumerate(rows) if row.key == view.selected), None)
    return max(0, min(view.index, len(rows) - 1)) if found is None else found


def selected_row(snapshot: FleetSnapshot, view: View) -> TrainingMetrics | None:
    """The member the cursor is on; None when no row is shown."""
    rows = visible_rows(snapshot, view)
    return rows[selected_index(rows, view)] if rows else None


def marked_rows(snapshot: FleetSnapshot, view: View) -> list[TrainingMetrics]:
    """The marked members that are still there, whether the filter shows them or not."""
    return [row for row in snapshot.rows if row.key in view.marked]


def member_row(snapshot: FleetSnapshot, key: str) -> TrainingMetrics | None:
    """The member of that key; None when it is not in the fleet."""
    return next((row for row in snapshot.rows if row.key == key), None)


def label(row: TrainingMetrics) -> str:
    """What people call a member, in few characters: its id, and its name where that says more."""
    shown = str(row.instance_id)
    return shown if row.name in ("", shown) else f"{shown} {row.name}"


_Order = Callable[[TrainingMetrics, Health | None], Any]
_WORST_FIRST = {"error": 0, "warning": 1, "unknown": 2, "healthy": 3}


def _number(value: float | None) -> float | None:
    return float("inf") if value is not None and value != value else value


def _by_id(row: TrainingMetrics, _: Health | None) -> Any:
    number = known_number(row.instance_id)
    return (1, 0.0, str(row.instance_id).lower()) if number is None else (0, number, "")


def _by_eta(row: TrainingMetrics, _: Health | None) -> Any:
    return row.seconds_left()


ORDERS: dict[str, _Order] = {
    "ID": _by_id,
    "NAME": lambda row, _: row.name.lower() or None,
    "GPU": lambda row, _: row.gpu_type and row.gpu_type.lower(),
    "STATUS": lambda row, _: row.status,
    "PROGRESS": lambda row, _: _number(row.progress_percentage()),
    "GPU%": lambda row, _: _number(row.gpu_util),
    "MEM%": lambda row, _: _number(row.memory_util),
    "DISK%": lambda row, _: _number(row.disk_util),
    "LOSS": lambda row, _: _number(row.loss),
    "$/H": lambda row, _: _number(row.cost_per_hour),
    "TOTAL": lambda row, _: _number(row.total_cost),
    "ETA": _by_eta,
    "HEALTH": lambda _, health: health and (_WORST_FIRST.get(health.level, 2), health.reason),
}
