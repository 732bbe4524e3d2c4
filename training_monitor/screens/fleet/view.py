"""The view of a fleet: which members are shown, in which order, and which are marked. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from training_monitor.core.frozen import dataclass
from training_monitor.core.units import known_number
from training_monitor.fleet.metrics import Health, Thresholds, TrainingMetrics
from training_monitor.fleet.values import FleetSample, FleetSnapshot
from training_monitor.screens.kit.table import Table
from training_monitor.screens.kit.text import gain
from training_monitor.screens.kit.view import View

KEPT_LINES = 500
Recent = Callable[[str], Sequence[FleetSample]]
_Order = Callable[[TrainingMetrics, Health | None], Any]
_WORST_FIRST = {"error": 0, "warning": 1, "unknown": 2, "healthy": 3}


def _nothing(key: str) -> Sequence[FleetSample]:
    return ()


@dataclass(frozen=True, slots=True)
class FleetView(View):
    """The view of a fleet; `screen` can also be detail, comparison or alerts.

    Attributes:
        thresholds: the limits beyond which a value is worth a warning.
        recent: returns the samples of a member by its key, oldest first.
        group: only its members are shown; None: all.
        marked: keys of members.
        asked: keys of members with a requested action, and when it was requested (the snapshot's time).
        all_logs: the log panel shows all members' lines.
        log_lines: those of all members, each with the member's key, in order of arrival.
        log_windows: the last window of each member's log.
    """

    title: str = "fleet"
    selected: str = ""
    thresholds: Thresholds = Thresholds()
    recent: Recent = field(default=_nothing, compare=False)
    group: str | None = None
    marked: frozenset[str] = frozenset()
    asked: tuple[tuple[str, float], ...] = ()
    all_logs: bool = False
    log_lines: tuple[tuple[str, str], ...] = ()
    log_windows: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def follow(view: FleetView, rows: Iterable[TrainingMetrics]) -> FleetView:
    """Add the new lines of the members' logs; the member seen last comes last."""
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


def health_of(row: TrainingMetrics, snapshot: FleetSnapshot, view: FleetView) -> Health:
    """Return the health of a member by the view's thresholds."""
    return row.health(view.thresholds, snapshot.timestamp)


def marked_rows(snapshot: FleetSnapshot, view: FleetView) -> list[TrainingMetrics]:
    """Return the marked members that still exist, also those hidden by the filter."""
    return [row for row in snapshot.rows if row.key in view.marked]


def member_row(snapshot: FleetSnapshot, key: str) -> TrainingMetrics | None:
    """Return the member with that key; None when it is not in the fleet."""
    return next((row for row in snapshot.rows if row.key == key), None)


def label(row: TrainingMetrics) -> str:
    """Return a short label: the id, and the name if it differs."""
    shown = str(row.instance_id)
    return shown if row.name in ("", shown) else f"{shown} {row.name}"


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
        return rows[::-1] if view.reverse else rows
    order = ORDERS[view.sort]
    values = {id(row): order(row, health_of(row, snapshot, view) if view.sort == "HEALTH" else None) for row in rows}
    with_value = [row for row in rows if values[id(row)] is not None]
    with_value.sort(key=lambda row: values[id(row)], reverse=view.reverse)
    return with_value + [row for row in rows if values[id(row)] is None]


def _searched(row: TrainingMetrics, snapshot: FleetSnapshot, view: FleetView) -> str:
    health = health_of(row, snapshot, view)
    texts = (row.instance_id, row.name, row.gpu_type or "", row.status, health.level, health.reason)
    return "\n".join(map(str, texts)).lower()


def _number(value: float | None) -> float | None:
    return float("inf") if value is not None and value != value else value


def _by_id(row: TrainingMetrics, _: Health | None) -> Any:
    number = known_number(row.instance_id)
    return (1, 0.0, str(row.instance_id).lower()) if number is None else (0, number, "")


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
    "ETA": lambda row, _: row.seconds_left(),
    "HEALTH": lambda _, health: health and (_WORST_FIRST.get(health.level, 2), health.reason),
}
TABLE: Table[FleetView, FleetSnapshot, TrainingMetrics] = Table(
    "member",
    visible_rows,
    lambda row: row.key,
    lambda view: replace(view, group=None, words=""),
    tuple(ORDERS),
    "in the fleet's own order",
)
