"""The table of `top`: its columns, their cells and widths, and the lines of its rows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import floor
from typing import Any, NamedTuple

from training_monitor.core.units import known_number, plural
from training_monitor.runs.rows import (
    COLUMNS as VALUES,
    MIB,
    RUN_COLUMNS,
    RunColumn,
    losses_of,
    percent_done,
    status_word,
)
from training_monitor.runs.values import PROCESS, RUNNING, STATUSES, UNKNOWN, RunRow, RunsSnapshot, TreeRow, Usage
from training_monitor.ui.kit.charts import draw_curve
from training_monitor.ui.kit.text import (
    NOT_KNOWN,
    UNKNOWN_WORD,
    Glyphs,
    Line,
    cells,
    clip_middle,
    format_age,
    format_memory,
    format_number,
    format_percent,
    format_seconds,
    format_short,
    format_whole,
    safe,
)
from training_monitor.ui.kit.view import MARGIN, MORE, Column, Layout, Table, row_line
from training_monitor.ui.top.view import Item, Place, TopView, run_row, shown_items

NAME = "Run Name"
_RATE_UNITS = (("s", 1.0), ("min", 60.0), ("h", 3600.0))
_LEAST_NAME, _MOST_NAME = 10, 40
_INDENT, _LEAST_LABEL = 2, 8
_NODE_NAME = 0.3  # the part of the width that the name of a process takes at least


class Cell(NamedTuple):
    """The contents of a cell: the row, the usage and limits of all runs, and the glyphs."""

    item: Item
    usage: Usage
    glyphs: Glyphs

    @property
    def row(self) -> RunRow:
        return self.item.row


# ---------------------------------------------------------------- cells


def status_text(row: RunRow) -> str:
    """Format the status of a run, of one that goes on with the age of its last step: FAILED, RUNNING 3s, stalled 5m."""
    word, silence = status_word(row), known_number(row.verdict.seconds_without_step)
    if word in (RUNNING, "slow", "stalled") and silence is not None:
        return f"{word} {format_age(silence)}"
    return UNKNOWN_WORD if word == UNKNOWN else word


def format_rate(rate: float | None) -> str:
    """Format a rate of batches by the unit in which it is at least 1: 4.10/s, 4.80/min, 55.4/h."""
    if rate is None or not 0 < rate < float("inf"):
        return NOT_KNOWN
    unit, seconds = next(((unit, span) for unit, span in _RATE_UNITS if rate * span >= 1), _RATE_UNITS[-1])
    return f"{format_short(rate * seconds)}/{unit}"


def share_percent(used: float | None, limit: float | None) -> float | None:
    """Return the used share of a limit in per cent."""
    used, limit = known_number(used), known_number(limit)
    if used is None or limit is None or limit <= 0:
        return None
    return known_number(100 * used / limit)


def cores_percent(usage: Usage) -> float | None:
    """Return all available cores in per cent of one core."""
    return None if usage.max_cores is None else 100.0 * usage.max_cores


def _done(cell: Cell, width: int) -> str:
    """Format how much of a run is done, rounded down: it is 100% at its end only."""
    percent = known_number(percent_done(cell.row))
    return whole_percent(percent if percent is None else floor(percent))


def whole_percent(percent: float | None) -> str:
    """Format per cent without decimals: 410%, `-` if unknown."""
    known = known_number(percent)
    return NOT_KNOWN if known is None else f"{known:.0f}%"


def _gib(used: float | None) -> str:
    """Format MiB in GiB."""
    known = known_number(used)
    return NOT_KNOWN if known is None else format_short(known / 1024)


_FORMATS: dict[str, Callable[[Any], str]] = {  # by unit
    "number": format_number,
    "rate": format_rate,
    "percent": whole_percent,
    "memory": _gib,
    "duration": lambda seconds: format_seconds(known_number(seconds)),
    "whole": format_whole,
}


def _show(column: RunColumn, cell: Cell, width: int) -> str:
    """Format a value by its unit, and behind it its total."""
    value = column.value(cell.row) if column.value else None
    if column.unit == "text":
        return NOT_KNOWN if value in (None, "") else safe(value, cell.glyphs)
    at, of = _FORMATS[column.unit](value), column.total(cell.row.run) if column.total else None
    return at if at == NOT_KNOWN or of is None else f"{at}/{format_whole(of)}"


def _label(cell: Cell, width: int) -> str:
    """Format the name of a row, indented by its depth in the tree as far as the width allows."""
    node = cell.item.node
    if node is None:
        return clip_middle(safe(cell.row.run.name, cell.glyphs), width, cell.glyphs)
    indent = _INDENT + min(node.depth, _LEAST_NAME, max(0, width - _INDENT - _LEAST_LABEL))
    return f"{' ' * indent}[{node.kind}] {safe(node.name, cell.glyphs)}"


def _node_text(cell: Cell, width: int) -> str:
    """Format the id of a process or thread and what it uses, as far as that fits."""
    node = cell.item.node
    if node is None:
        return ""
    text = f"{node.kind}ID {node.identity.pid:<7}"
    for used in resource_texts(node):
        if cells(text) + len(used) + 2 > width:
            break
        text += f"  {used}"
    return text


def resource_texts(node: TreeRow) -> tuple[str, ...]:
    """Format what a process uses, and the number of its threads; of a thread its CPU."""
    cpu = f"CPU {NOT_KNOWN if node.cpu_percent is None else format_percent(node.cpu_percent) + '%':>6}"
    if node.kind != PROCESS:
        return (cpu,)
    ram, gpu = format_memory(node.rss_bytes), format_memory(node.gpu_mib, MIB)
    threads = NOT_KNOWN if node.threads is None else plural(node.threads, "thread")
    return (cpu, f"RAM {ram:>8}", f"GPU {gpu:>8}", threads)


_NAME: Column[Cell] = Column(NAME, "<", _label, NAME, _LEAST_NAME, _MOST_NAME)
_NODE: Column[Cell] = Column("", "<", _node_text)
_DRAWN: dict[str, Callable[[Cell, int], str]] = {  # what depends on more than the value
    "Status": lambda cell, width: safe(status_text(cell.row), cell.glyphs),
    "Done": _done,
    "Loss Curve": lambda cell, width: draw_curve(losses_of(cell.row.run), width, cell.glyphs),
    "CPU Share": lambda cell, width: whole_percent(share_percent(cell.row.cpu_percent, cores_percent(cell.usage))),
    "RAM Share": lambda cell, width: whole_percent(share_percent(cell.row.rss_bytes, cell.usage.max_rss_bytes)),
    "GPU Share": lambda cell, width: whole_percent(share_percent(cell.row.gpu_mib, cell.usage.max_gpu_mib)),
}
COLUMNS: tuple[Column[Cell], ...] = tuple(
    Column(
        *(each.title, each.align, _DRAWN.get(each.title) or partial(_show, each)),
        *(each.heading or each.title, each.least, each.most),
    )
    for each in RUN_COLUMNS
    if each.most
)
# They take the width of a name when that is long.
_FIRST = COLUMNS[: [column.title for column in COLUMNS].index("GPU") + 1]
SORTS = (NAME, *(column.title for column in COLUMNS if column.title in VALUES))
TABLE: Table[TopView, RunsSnapshot, Item] = Table(
    "run",
    shown_items,
    lambda item: item.place,
    lambda view: replace(view, words="", status=None),
    SORTS,
    "the worst first",
    lambda place: Place(place.path),
)


def about_run(snapshot: RunsSnapshot, view: TopView) -> Item | None:
    """Return the selected row; on the page of a run, that run."""
    if view.screen == "main":
        return TABLE.selected(snapshot, view)
    row = run_row(snapshot, view.selected.path)
    return None if row is None else Item(row)


# ---------------------------------------------------------------- widths and lines


def columns_of(view: TopView) -> tuple[Column[Cell], ...]:
    """Return the columns beside the name that are not hidden."""
    return tuple(column for column in COLUMNS if column.title not in view.hidden)


def lay_out(
    items: Sequence[Item], usage: Usage, view: TopView, columns: Sequence[Column[Cell]]
) -> tuple[Layout[Cell], int, bool]:
    """Choose the columns from `view.across` on, scrolled at most until the last one is visible.

    Returns:
        The name and the columns with their widths; how many are left of the screen; whether there are more right of it.
    """
    shown = [Cell(item, usage, view.glyphs) for item in items]
    runs = [cell for cell in shown if cell.item.node is None]
    longest = max((cells(_label(cell, _MOST_NAME)) for cell in runs), default=0)
    room = view.width - MARGIN - len(MORE)
    widths = {column.title: _width_of(column, runs) for column in _FIRST if column in columns}
    name = max(_LEAST_NAME, min(longest, room - sum(widths.values()) - len(widths)))
    room -= name
    across = min(view.across, _most_across([_width_of(column, runs) for column in columns], room)) if view.across else 0
    layout = []
    for column in columns[across:]:
        its_width = widths.get(column.title) or _width_of(column, runs)
        if its_width >= room:
            layout += [(column, room - 1)] if column.align == "<" and column.least < room else []
            break
        layout.append((column, its_width))
        room -= its_width + 1
    if columns and not layout and room > 1:
        layout = [(columns[across], room - 1)]
    return [(_NAME, name), *layout], across, across + len(layout) < len(columns)


def _most_across(widths: Sequence[int], room: int) -> int:
    """Return how many columns may be left of the screen when the last one is visible."""
    most = len(widths)
    while most and widths[most - 1] < room:
        room -= widths[most - 1] + 1
        most -= 1
    return max(0, min(most, len(widths) - 1))


def _width_of(column: Column[Cell], shown: Sequence[Cell]) -> int:
    if column.least == column.most:
        return column.most
    needed = max((cells(column.show(cell, column.most)) for cell in shown), default=0)
    return max(column.least, min(column.most, needed), len(column.heading))


def table_line(item: Item, layout: Layout[Cell], usage: Usage, view: TopView, *, selected: bool) -> Line:
    """Format one row: a run in the colour of its state, or a process or thread below it."""
    base, cursor = ("selected", ">") if selected else ("", " ")
    cell = Cell(item, usage, view.glyphs)
    if item.node is not None:
        name, its_width = layout[0]
        its_width = max(its_width, int(view.width * _NODE_NAME))
        layout = [(name, its_width), (_NODE, max(0, view.width - MARGIN - its_width - 1))]
        return row_line(f"{cursor} ", layout, cell, {}, view, base)
    mark = "-" if item.row.run.path in view.expanded else "+" if item.row.tree else " "
    styles = dict.fromkeys((NAME, "Phase"), state_style(item.row)) | {"Status": status_style(item.row)}
    styles = {title: f"{base} {style}".strip() for title, style in styles.items()}
    return row_line(cursor + mark, layout, cell, styles, view, base)


def state_style(row: RunRow) -> str:
    """Return the style of the run's state: loading, batch, validation, finished, failed, canceled, killed, or warn."""
    if row.status == RUNNING:
        return {"loading": "loading", "validation": "validation"}.get(row.run.phase or "loading", "batch")
    return row.status.lower() if row.status in STATUSES else "warn"


def status_style(row: RunRow) -> str:
    """Return the style of `status_text`: that of the state, unless the verdict on a run that continues is not ok."""
    if row.status != RUNNING or row.verdict.verdict in ("ok", "unknown"):
        return state_style(row)
    return "bad" if row.verdict.verdict == "failed" else "warn"
