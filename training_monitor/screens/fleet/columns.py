"""The columns of the table of members, and the order in which they get space. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from training_monitor.core.frozen import dataclass
from training_monitor.core.regex import regex
from training_monitor.core.units import format_duration
from training_monitor.fleet.metrics import Health, TrainingMetrics
from training_monitor.fleet.values import FleetSnapshot
from training_monitor.screens.fleet.view import FleetView, health_of
from training_monitor.screens.kit.table import MARGIN, Column, Layout, fit_columns, row_line
from training_monitor.screens.kit.text import (
    NOT_KNOWN,
    UNKNOWN_SIGN,
    UNKNOWN_WORD,
    Glyphs,
    Line,
    cells,
    format_age,
    format_bar,
    format_number,
    format_percent,
    format_price,
    format_total,
    safe,
)

LEVEL_STYLES = {"healthy": "good", "warning": "warn", "error": "bad"}
LEVEL_WORDS = {"healthy": "ok", "warning": "warn", "error": "error"}
_BAR_FROM = 15  # cells that the progress column needs to show a bar
_PROGRESS_TEXT = 8
_REASON_FROM = 14  # cells that the health column needs to show the reason
_GPU_MAKERS = regex(r"NVIDIA |GeForce |Tesla |RTX ")
# What a growing width is spent on, in this order; the rest goes to HEALTH.
STEPS = """
    ID 8, HEALTH 6, STATUS 6, PROGRESS 8, GPU% 4, LOSS 6, ETA 6, ID 14, $/H 6, GPU 8, TOTAL 6, MEM% 4, DISK% 5,
    PROGRESS 15, STATUS 10, PROGRESS 19, HEALTH 24, NAME 14, STEPS/S 7, ID 22, STEP 13, GPU 12, PROGRESS 24, HEALTH 36,
    TEMP 4, RAM% 4, NAME 24, ID 34
"""


@dataclass(frozen=True, slots=True)
class Member:
    """The contents of a table row: the metrics, their health, the time (epoch seconds) and the glyphs."""

    row: TrainingMetrics
    health: Health
    now: float
    glyphs: Glyphs


def member_of(row: TrainingMetrics, snapshot: FleetSnapshot, view: FleetView) -> Member:
    """Return a row with its health by the view's thresholds."""
    return Member(row, health_of(row, snapshot, view), snapshot.timestamp, view.glyphs)


# ---------------------------------------------------------------- cells


def format_eta(metrics: TrainingMetrics) -> str:
    """Format the ETA: 45m, 2h05m."""
    left = metrics.seconds_left()
    return NOT_KNOWN if left is None else format_duration(left)


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


def _plain(show: Callable[[TrainingMetrics], str]) -> Callable[[Member, int], str]:
    return lambda member, width: show(member.row)


def _outside(show: Callable[[TrainingMetrics], object]) -> Callable[[Member, int], str]:
    return lambda member, width: safe(show(member.row) or NOT_KNOWN, member.glyphs)


def show_status(member: Member, width: int) -> str:
    """Format the status with its sign, truncated if it does not fit."""
    word = safe(member.row.status, member.glyphs)
    sign = "" if member.glyphs.ascii else f"{member.glyphs.signs.get(member.row.status, UNKNOWN_SIGN)} "
    return sign + (word[: max(1, width - cells(sign))] if word.isascii() else word)


def _show_gpu(member: Member, width: int) -> str:
    text = safe(member.row.gpu_type or NOT_KNOWN, member.glyphs)
    return text if cells(text) <= width else _GPU_MAKERS.sub("", text)


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
    """Format the level, the age of a stale row, and the reason if there is room."""
    word = LEVEL_WORDS.get(member.health.level, UNKNOWN_WORD)
    stale = member.row.stale_since
    age = "" if stale is None else f" {format_age(member.now - stale)}"
    return f"{word}{age} {safe(member.health.reason, member.glyphs)}" if width >= _REASON_FROM else f"{word}{age}"


def _show_temperature(row: TrainingMetrics) -> str:
    return NOT_KNOWN if row.gpu_temperature is None else f"{row.gpu_temperature:.0f}C"


COLUMNS: tuple[Column[Member], ...] = (
    Column("ID", "<", _outside(lambda row: row.instance_id)),
    Column("NAME", "<", _outside(lambda row: row.name if row.name != str(row.instance_id) else None)),
    Column("GPU", "<", _show_gpu),
    Column("STATUS", "<", show_status),
    Column("PROGRESS", "<", _show_progress),
    Column("STEP", ">", _plain(format_steps)),
    Column("GPU%", ">", _plain(lambda row: format_percent(row.gpu_util))),
    Column("MEM%", ">", _plain(lambda row: format_percent(row.memory_util))),
    Column("DISK%", ">", _plain(lambda row: format_percent(row.disk_util))),
    Column("RAM%", ">", _plain(lambda row: format_percent(row.ram_util))),
    Column("TEMP", ">", _plain(_show_temperature)),
    Column("LOSS", ">", _plain(lambda row: format_number(row.loss))),
    Column("STEPS/S", ">", _plain(lambda row: format_number(row.steps_per_second))),
    Column("$/H", ">", _plain(lambda row: format_price(row.cost_per_hour))),
    Column("TOTAL", ">", _plain(lambda row: format_total(row.total_cost))),
    Column("ETA", ">", _plain(format_eta)),
    Column("HEALTH", "<", show_health),
)


def table_columns(rows: Sequence[TrainingMetrics], width: int) -> Layout[Member]:
    """Return the columns with their widths, from left to right."""
    longest = max((len(str(row.instance_id)) for row in rows), default=0)
    named = max((len(row.name) for row in rows if row.name != str(row.instance_id)), default=0)
    return fit_columns(COLUMNS, STEPS, width - MARGIN, {"ID": max(8, longest), "NAME": named}, "HEALTH")


def table_line(
    member: Member, layout: Layout[Member], width: int, *, selected: bool = False, marked: bool = False
) -> Line:
    """Format one member. Stale ones are dim; status and health have the colour of the health."""
    base = "selected" if selected else "dim" if member.row.stale_since is not None else ""
    level = base or LEVEL_STYLES.get(member.health.level, "")
    margin = (">" if selected else " ") + ("*" if marked else " ")
    return row_line(margin, layout, member, {"STATUS": level, "HEALTH": level}, width, member.glyphs, base)
