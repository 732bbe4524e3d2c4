"""The table's columns: which of them a width has room for, and what they show of a member. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from training_monitor.policy.training_metrics import Health, TrainingMetrics
from training_monitor.tui.numbers_text import (
    NOT_KNOWN,
    format_age,
    format_eta,
    format_number,
    format_percent,
    format_price,
    format_progress,
    format_steps,
    format_total,
)
from training_monitor.tui.text import UNKNOWN_SIGN, Glyphs, Line, Piece, cells, fit, fit_line, format_bar, safe

MARGIN = 2  # before the first column: the cursor and the mark
LEVEL_STYLES = {"healthy": "good", "warning": "warn", "error": "bad"}
LEVEL_WORDS = {"healthy": "ok", "warning": "warn", "error": "error"}
UNKNOWN_WORD = "?"
_BAR_FROM = 15  # cells of the progress column from which on it has a bar
_PROGRESS_TEXT = 8
_REASON_FROM = 14  # cells of the health column from which on it has the reason
_GPU_MAKERS = re.compile(r"NVIDIA |GeForce |Tesla |RTX ")


@dataclass(frozen=True, slots=True)
class Member:
    """A row, how it is, and what its cells depend on besides: the time (epoch seconds) and the signs."""

    row: TrainingMetrics
    health: Health
    now: float
    glyphs: Glyphs


@dataclass(frozen=True, slots=True)
class Column:
    """`show` makes the text of a cell, for so many cells; `align` is < or >."""

    title: str
    align: str
    show: Callable[[Member, int], str]


def _plain(show: Callable[[TrainingMetrics], str]) -> Callable[[Member, int], str]:
    return lambda member, width: show(member.row)


def _outside(show: Callable[[TrainingMetrics], object]) -> Callable[[Member, int], str]:
    return lambda member, width: safe(show(member.row) or NOT_KNOWN, member.glyphs)


def show_status(member: Member, width: int) -> str:
    """The status with its sign, the word shortened where it does not fit."""
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
    """The level in a word; of a stale row how old it is; the reason."""
    word = LEVEL_WORDS.get(member.health.level, UNKNOWN_WORD)
    stale = member.row.stale_since
    age = "" if stale is None else f" {format_age(member.now - stale)}"
    return f"{word}{age} {safe(member.health.reason, member.glyphs)}" if width >= _REASON_FROM else f"{word}{age}"


def _show_temperature(row: TrainingMetrics) -> str:
    return NOT_KNOWN if row.gpu_temperature is None else f"{row.gpu_temperature:.0f}C"


COLUMNS: tuple[Column, ...] = (
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
BY_TITLE: Mapping[str, Column] = {column.title: column for column in COLUMNS}

# What a growing width is spent on: (column, its width from then on). Whatever is left goes to HEALTH.
STEPS: tuple[tuple[str, int], ...] = (
    ("ID", 8),
    ("HEALTH", 6),
    ("STATUS", 6),
    ("PROGRESS", 8),
    ("GPU%", 4),
    ("LOSS", 6),
    ("ETA", 6),
    ("ID", 14),
    ("$/H", 6),
    ("GPU", 8),
    ("TOTAL", 6),
    ("MEM%", 4),
    ("DISK%", 5),
    ("PROGRESS", 15),
    ("STATUS", 10),
    ("PROGRESS", 19),
    ("HEALTH", 24),
    ("NAME", 14),
    ("STEPS/S", 7),
    ("ID", 22),
    ("STEP", 13),
    ("GPU", 12),
    ("PROGRESS", 24),
    ("HEALTH", 36),
    ("TEMP", 4),
    ("RAM%", 4),
    ("NAME", 24),
    ("ID", 34),
)


def fit_columns(steps: Iterable[tuple[str, int]], width: int, needs: Mapping[str, int], rest: str) -> dict[str, int]:
    """Spend a width on columns, with one cell between two, until the next step costs too much.

    Args:
        steps: (column, its width), the most important first; a column gets wider by being named again.
        needs: at most so many cells are worth something to a column; with 0 it is left out.
        rest: the column that gets what is left.
    """
    widths: dict[str, int] = {}
    left = width
    for title, wanted in steps:
        wanted = min(wanted, needs.get(title, wanted))
        cost = wanted - widths[title] if title in widths else wanted + (1 if widths else 0)
        if wanted <= 0 or cost <= 0:
            continue
        if cost > left:
            break
        widths[title] = wanted
        left -= cost
    if rest in widths:
        widths[rest] += left
    return widths


def table_columns(rows: Sequence[TrainingMetrics], width: int) -> list[tuple[Column, int]]:
    """The table's columns, as they stand from left to right, and their widths."""
    longest = max((len(str(row.instance_id)) for row in rows), default=0)
    named = max((len(row.name) for row in rows if row.name != str(row.instance_id)), default=0)
    widths = fit_columns(STEPS, width - MARGIN, {"ID": max(8, longest), "NAME": named}, "HEALTH")
    return [(column, widths[column.title]) for column in COLUMNS if column.title in widths]


def heading(columns: Sequence[tuple[Column, int]], width: int, sort: str, glyphs: Glyphs) -> Line:
    """The titles; the one that is sorted by stands out."""
    pieces: list[Piece] = [(" " * MARGIN, "dim")]
    for number, (column, its_width) in enumerate(columns):
        text = fit(column.title, its_width, glyphs, column.align)
        pieces += [*([(" ", "")] if number else []), (text, "bold" if column.title == sort else "dim")]
    return fit_line(pieces, width, glyphs)


def table_line(
    member: Member, columns: Sequence[tuple[Column, int]], width: int, *, selected: bool = False, marked: bool = False
) -> Line:
    """One member. What is stale is dim; health and status have the colour of the health."""
    glyphs = member.glyphs
    base = "selected" if selected else "dim" if member.row.stale_since is not None else ""
    level = base or LEVEL_STYLES.get(member.health.level, "")
    pieces: list[Piece] = [((">" if selected else " ") + ("*" if marked else " "), base)]
    for number, (column, its_width) in enumerate(columns):
        text = fit(column.show(member, its_width), its_width, glyphs, column.align)
        style = level if column.title in ("STATUS", "HEALTH") else base
        pieces += [*([(" ", base)] if number else []), (text, style)]
    return fit_line(pieces, width, glyphs, base)
