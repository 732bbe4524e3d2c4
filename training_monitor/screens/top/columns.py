"""The table of runs: its columns, the rows of their processes, and horizontal scrolling. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from training_monitor.core.frozen import dataclass
from training_monitor.core.units import format_duration, format_sparkline, known_number, plural
from training_monitor.runs.rows import COLUMNS as VALUES, MIB, loss_of
from training_monitor.runs.values import PROCESS, RUNNING, STATUSES, UNKNOWN, Run, RunRow, RunsSnapshot, TreeRow, Usage
from training_monitor.screens.kit.table import MARGIN, MORE, Column, Layout, Table, row_line
from training_monitor.screens.kit.text import (
    NOT_KNOWN,
    UNKNOWN_WORD,
    Glyphs,
    Line,
    cells,
    format_number,
    format_percent,
    safe,
)
from training_monitor.screens.top.view import Item, Place, TopView, run_row, shown_items

NAME = "Run Name"
_LEAST_NAME, _MOST_NAME = 10, 40
CURVE, _CURVE_CELLS = "Loss Curve", 12
_INDENT, _LEAST_LABEL = 2, 8


@dataclass(frozen=True, slots=True)
class Cell:
    """The contents of a cell: the row, the usage and limits of all runs, and the glyphs."""

    item: Item
    usage: Usage
    glyphs: Glyphs

    @property
    def row(self) -> RunRow:
        return self.item.row


# ---------------------------------------------------------------- cells


def _outside(value: object, glyphs: Glyphs) -> str:
    return NOT_KNOWN if value in (None, "") else safe(value, glyphs)


def _status(cell: Cell, width: int) -> str:
    return UNKNOWN_WORD if cell.row.status == UNKNOWN else safe(cell.row.status, cell.glyphs)


def _state(cell: Cell, width: int) -> str:
    """Format the verdict of a run that has not ended, and for how long a stalled one has been without a step."""
    verdict = cell.row.verdict
    if cell.row.status not in (RUNNING, UNKNOWN):
        return ""
    if verdict.state == "stalled" and verdict.seconds_without_step is not None:
        return f"stalled {format_seconds(known_number(verdict.seconds_without_step))}"
    return UNKNOWN_WORD if verdict.state == "unknown" else safe(verdict.state, cell.glyphs)


def format_rate(rate: float | None) -> str:
    """Format a rate: 4.100/s; 12.5s each where a batch takes longer than a second."""
    if rate is None or not 0 < rate < float("inf"):
        return NOT_KNOWN
    return f"{format_number(rate)}/s" if rate >= 1 else f"{format_seconds(1 / rate)} each"


def format_seconds(seconds: float | None) -> str:
    """Format a duration; `-` if unknown."""
    return NOT_KNOWN if seconds is None or not 0 <= seconds < float("inf") else format_duration(seconds)


def _curve(cell: Cell, width: int) -> str:
    return format_sparkline(cell.row.run.losses, _CURVE_CELLS, ascii=cell.glyphs.ascii)


def share(used: float | None, limit: float | None) -> str:
    """Format the used share of a limit, as ` 25%`; empty if unknown."""
    percent = share_percent(used, limit)
    return "" if percent is None else f" {percent:.0f}%"


def share_percent(used: float | None, limit: float | None) -> float | None:
    """Return the used share of a limit in per cent."""
    used, limit = known_number(used), known_number(limit)
    if used is None or limit is None or limit <= 0:
        return None
    return known_number(100 * used / limit)


def cores_percent(usage: Usage) -> float | None:
    """Return all available cores in per cent of one core."""
    return None if usage.max_cores is None else 100.0 * usage.max_cores


def _cpu(cell: Cell, width: int) -> str:
    used = cell.row.cpu_percent
    return NOT_KNOWN if used is None else f"{format_percent(used)}%{share(used, cores_percent(cell.usage))}"


def _ram(cell: Cell, width: int) -> str:
    return format_whole(cell.row.rss_bytes, MIB) + share(cell.row.rss_bytes, cell.usage.max_rss_bytes)


def _gpu(cell: Cell, width: int) -> str:
    return format_whole(cell.row.gpu_mib) + share(cell.row.gpu_mib, cell.usage.max_gpu_mib)


def format_whole(value: object, unit: float = 1) -> str:
    """Format a number of bytes or the like in whole units."""
    number = known_number(value)
    return NOT_KNOWN if number is None else f"{number / unit:.0f}"


def _duration(title: str, heading: str) -> Column[Cell]:
    return Column(title, ">", lambda cell, width: format_seconds(known_number(VALUES[title](cell.row))), heading, 7, 9)


def _whole(title: str, least: int, most: int) -> Column[Cell]:
    return Column(title, ">", lambda cell, width: format_whole(VALUES[title](cell.row)), title, least, most)


def _counted(title: str, least: int, total: Callable[[Run], int | None]) -> Column[Cell]:
    """Return a column of the form AT/TOTAL."""

    def show(cell: Cell, width: int) -> str:
        at, of = format_whole(VALUES[title](cell.row)), total(cell.row.run)
        return at if at == NOT_KNOWN or of is None else f"{at}/{format_whole(of)}"

    return Column(title, ">", show, title, least, 17)


def _times(title: str, short: str) -> tuple[Column[Cell], ...]:
    parts = (("Elapsed", "el"), ("Remaining", "rem"), ("Total", "tot"))
    return tuple(_duration(f"{title} {part}", f"{short} {word}") for part, word in parts)


def _label(cell: Cell, width: int) -> str:
    """Format the name of a row, indented by its depth in the tree as far as the width allows."""
    node = cell.item.node
    if node is None:
        return safe(cell.row.run.name, cell.glyphs)
    indent = _INDENT + min(node.depth, _LEAST_NAME, max(0, width - _INDENT - _LEAST_LABEL))
    return f"{' ' * indent}[{node.kind}] {safe(node.name, cell.glyphs)}"


def _node_text(cell: Cell, width: int) -> str:
    """Format the resources of a process; of a thread only its id."""
    node = cell.item.node
    if node is None or node.kind != PROCESS:
        return "" if node is None else f"TID {node.identity.pid}"
    return "  ".join((f"PID {node.identity.pid:<7}", *resource_texts(node)))


def resource_texts(node: TreeRow) -> tuple[str, ...]:
    """Format CPU, RAM, GPU and threads of a process."""
    cpu = NOT_KNOWN if node.cpu_percent is None else f"{format_percent(node.cpu_percent)}%"
    ram, gpu = format_whole(node.rss_bytes, MIB), format_whole(node.gpu_mib)
    return (
        f"CPU {cpu:>6}",
        f"RAM {ram:>6} MB",
        f"GPU {gpu:>5} MiB",
        NOT_KNOWN if node.threads is None else plural(node.threads, "thread"),
    )


_NAME: Column[Cell] = Column(NAME, "<", _label, NAME, _LEAST_NAME, _MOST_NAME)
_NODE: Column[Cell] = Column("", "<", _node_text)
# The most important columns come first, so that they fit on small screens: remaining time and resources.
COLUMNS: tuple[Column[Cell], ...] = (
    Column("Status", "<", _status, "Status", 8, 10),
    Column("State", "<", _state, "State", 8, 14),
    Column("Phase", "<", lambda cell, width: _outside(cell.row.run.phase, cell.glyphs), "Phase", 10, 20),
    _counted("Epoch", 5, lambda run: run.total_epochs),
    _counted("Batch", 9, lambda run: run.total_batches),
    _duration("ETA", "ETA"),
    Column("Rate", ">", lambda cell, width: format_rate(cell.row.rate), "Rate", 8, 12),
    Column("Loss", ">", lambda cell, width: format_number(loss_of(cell.row)), "Loss", 6, 8),
    _counted("Val Batch", 9, lambda run: run.total_validation_batches),
    Column("CPU", ">", _cpu, "CPU", 9, 12),
    Column("RAM", ">", _ram, "RAM (MB)", 9, 12),
    Column("GPU", ">", _gpu, "GPU (MiB)", 9, 12),
    Column(CURVE, "<", _curve, CURVE, _CURVE_CELLS, _CURVE_CELLS),
    *_times("Run", "Run"),
    *_times("Epoch", "Ep"),
    *_times("Train", "Tr"),
    _duration("Val Time", "Val Time"),
    *_times("Val", "Val"),
    _whole("Procs", 5, 6),
    _whole("Threads", 7, 7),
    _whole("PID", 7, 10),
    Column("Wandb URL", "<", lambda cell, width: _outside(cell.row.run.wandb_url, cell.glyphs), "Wandb URL", 9, 60),
)
SORTS = (NAME, *(column.title for column in COLUMNS if column.title in VALUES))
TABLE: Table[TopView, RunsSnapshot, Item] = Table(
    "run",
    shown_items,
    lambda item: item.place,
    lambda view: replace(view, words="", status=None),
    SORTS,
    "in the order of the names",
    lambda place: Place(place.path),
)


def about_run(snapshot: RunsSnapshot, view: TopView) -> Item | None:
    """Return the selected row; on the page of a run, that run."""
    if view.screen == "main":
        return TABLE.selected(snapshot, view)
    row = run_row(snapshot, view.selected.path)
    return None if row is None else Item(row)


# ---------------------------------------------------------------- widths and lines


def lay_out(
    items: Sequence[Item], usage: Usage, view: TopView, width: int, columns: Sequence[Column[Cell]] = COLUMNS
) -> tuple[Layout[Cell], int, bool]:
    """Choose the columns from `view.across` on, scrolled at most until the last one is visible.

    Returns:
        The name and the columns with their widths; how many are left of the screen; whether there are more right of it.
    """
    shown = [Cell(item, usage, view.glyphs) for item in items]
    longest = max((cells(_label(cell, _MOST_NAME)) for cell in shown), default=0)
    name = max(_LEAST_NAME, min(longest, _MOST_NAME, width * 3 // 10))
    runs = [cell for cell in shown if cell.item.node is None]
    sized = [(column, _width_of(column, runs)) for column in columns]
    room = width - MARGIN - name - len(MORE)
    last, left = len(sized), room
    while last and sized[last - 1][1] < left:
        left -= sized[last - 1][1] + 1
        last -= 1
    across = max(0, min(view.across, last, len(sized) - 1))
    layout = []
    for column, its_width in sized[across:]:
        if its_width >= room:
            layout += [(column, room - 1)] if column.align == "<" and column.least < room else []
            break
        layout.append((column, its_width))
        room -= its_width + 1
    if not layout and room > 1:
        layout = [(sized[across][0], room - 1)]
    return [(_NAME, name), *layout], across, across + len(layout) < len(sized)


def _width_of(column: Column[Cell], shown: Sequence[Cell]) -> int:
    if column.least == column.most:
        return column.most
    needed = max((cells(column.show(cell, column.most)) for cell in shown), default=0)
    return max(column.least, min(column.most, needed), len(column.heading))


def table_line(item: Item, layout: Layout[Cell], usage: Usage, width: int, view: TopView, *, selected: bool) -> Line:
    """Format one row: a run in the colour of its state, or a process or thread below it."""
    base, cursor = ("selected", ">") if selected else ("", " ")
    cell = Cell(item, usage, view.glyphs)
    if item.node is not None:
        name, its_width = layout[0]
        layout = [(name, its_width), (_NODE, max(0, width - MARGIN - its_width - 1))]
        return row_line(f"{cursor} ", layout, cell, {}, width, cell.glyphs, base)
    mark = "-" if item.row.run.path in view.expanded else "+" if item.row.tree else " "
    styles = dict.fromkeys((NAME, "Status", "Phase"), state_style(item.row)) | {"State": verdict_style(item.row)}
    styles = {title: f"{base} {style}".strip() for title, style in styles.items()}
    return row_line(cursor + mark, layout, cell, styles, width, cell.glyphs, base)


def state_style(row: RunRow) -> str:
    """Return the style of the run's state: loading, batch, validation, finished, failed, canceled, killed, or warn."""
    if row.status == RUNNING:
        return {"loading": "loading", "validation": "validation"}.get(row.run.phase or "loading", "batch")
    return row.status.lower() if row.status in STATUSES else "warn"


def verdict_style(row: RunRow) -> str:
    """Return the style of a run's verdict; empty where it is ok."""
    return {"ok": "", "failed": "bad"}.get(row.verdict.verdict, "warn")
