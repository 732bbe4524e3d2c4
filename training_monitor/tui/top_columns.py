"""The columns of the table of runs, the rows of their processes, and how both are scrolled sideways. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from training_monitor.policy.run_columns import COLUMNS as VALUES, MIB, loss_of
from training_monitor.policy.run_values import PROCESS, RUNNING, UNKNOWN, Run, RunRow, TreeRow, Usage
from training_monitor.tui.columns import UNKNOWN_WORD
from training_monitor.tui.numbers_text import NOT_KNOWN, format_number, format_percent
from training_monitor.tui.text import Glyphs, Line, Piece, cells, fit, fit_line, safe
from training_monitor.tui.top_view import Item, TopView, state_style, verdict_style
from training_monitor.units import format_duration, format_sparkline, known_number, plural

NAME = "Run Name"
_MARGIN = 2  # before the name: the cursor, and whether there is a tree
_LEAST_NAME, _MOST_NAME = 10, 40
CURVE, _CURVE_CELLS = "Loss Curve", 12
_INDENT, _LEAST_LABEL = 2, 8
_MORE = ">"  # at the end of the titles: there are columns right of the screen


@dataclass(frozen=True, slots=True)
class Cell:
    """What a cell is made of: the run, what all runs may use, and the signs."""

    row: RunRow
    usage: Usage
    glyphs: Glyphs


@dataclass(frozen=True, slots=True)
class TopColumn:
    """`title` is its whole name, `heading` what stands above it; from `least` to `most` cells wide."""

    title: str
    heading: str
    align: str
    least: int
    most: int
    show: Callable[[Cell], str]


# ---------------------------------------------------------------- what a cell shows


def _outside(value: object, glyphs: Glyphs) -> str:
    return NOT_KNOWN if value in (None, "") else safe(value, glyphs)


def _status(cell: Cell) -> str:
    return UNKNOWN_WORD if cell.row.status == UNKNOWN else safe(cell.row.status, cell.glyphs)


def _state(cell: Cell) -> str:
    """What `judge` says of a run that has not ended, and for how long a stalled one has been without a step."""
    verdict = cell.row.verdict
    if cell.row.status not in (RUNNING, UNKNOWN):
        return ""
    if verdict.state == "stalled" and verdict.seconds_without_step is not None:
        return f"stalled {format_seconds(known_number(verdict.seconds_without_step))}"
    return UNKNOWN_WORD if verdict.state == "unknown" else safe(verdict.state, cell.glyphs)


def format_rate(rate: float | None) -> str:
    """4.100/s; 12.5s each where a batch takes longer than a second."""
    if rate is None or not 0 < rate < float("inf"):
        return NOT_KNOWN
    return f"{format_number(rate)}/s" if rate >= 1 else f"{format_seconds(1 / rate)} each"


def format_seconds(seconds: float | None) -> str:
    """A duration; `-` when it is not known."""
    return NOT_KNOWN if seconds is None or not 0 <= seconds < float("inf") else format_duration(seconds)


def _curve(cell: Cell) -> str:
    return format_sparkline(cell.row.run.losses, _CURVE_CELLS, ascii=cell.glyphs.ascii)


def share(used: float | None, limit: float | None) -> str:
    """` 25%` of what may be used; empty where nobody knows."""
    percent = share_percent(used, limit)
    return "" if percent is None else f" {percent:.0f}%"


def share_percent(used: float | None, limit: float | None) -> float | None:
    """How much of a limit is used, in per cent."""
    used, limit = known_number(used), known_number(limit)
    if used is None or limit is None or limit <= 0:
        return None
    return known_number(100 * used / limit)


def cores_percent(usage: Usage) -> float | None:
    """All the cores that may be used, in per cent of one."""
    return None if usage.max_cores is None else 100.0 * usage.max_cores


def _cpu(cell: Cell) -> str:
    used = cell.row.cpu_percent
    return NOT_KNOWN if used is None else f"{format_percent(used)}%{share(used, cores_percent(cell.usage))}"


def _ram(cell: Cell) -> str:
    return format_whole(cell.row.rss_bytes, MIB) + share(cell.row.rss_bytes, cell.usage.max_rss_bytes)


def _gpu(cell: Cell) -> str:
    return format_whole(cell.row.gpu_mib) + share(cell.row.gpu_mib, cell.usage.max_gpu_mib)


def format_whole(value: object, unit: float = 1) -> str:
    """How many whole units of so many."""
    number = known_number(value)
    return NOT_KNOWN if number is None else f"{number / unit:.0f}"


def _duration(title: str, heading: str) -> TopColumn:
    return TopColumn(title, heading, ">", 7, 9, lambda cell: format_seconds(known_number(VALUES[title](cell.row))))


def _whole(title: str, least: int, most: int) -> TopColumn:
    return TopColumn(title, title, ">", least, most, lambda cell: format_whole(VALUES[title](cell.row)))


def _counted(title: str, least: int, total: Callable[[Run], int | None]) -> TopColumn:
    """How far of how much."""

    def show(cell: Cell) -> str:
        at, of = format_whole(VALUES[title](cell.row)), total(cell.row.run)
        return at if at == NOT_KNOWN or of is None else f"{at}/{format_whole(of)}"

    return TopColumn(title, title, ">", least, 17, show)


def _times(title: str, short: str) -> tuple[TopColumn, ...]:
    parts = (("Elapsed", "el"), ("Remaining", "rem"), ("Total", "tot"))
    return tuple(_duration(f"{title} {part}", f"{short} {word}") for part, word in parts)


# What is asked first stands where the least screens show it: how long still, and what it uses.
COLUMNS: tuple[TopColumn, ...] = (
    TopColumn("Status", "Status", "<", 8, 10, _status),
    TopColumn("State", "State", "<", 8, 14, _state),
    TopColumn("Phase", "Phase", "<", 10, 20, lambda cell: _outside(cell.row.run.phase, cell.glyphs)),
    _counted("Epoch", 5, lambda run: run.total_epochs),
    _counted("Batch", 9, lambda run: run.total_batches),
    _duration("ETA", "ETA"),
    TopColumn("Rate", "Rate", ">", 8, 12, lambda cell: format_rate(cell.row.rate)),
    TopColumn("Loss", "Loss", ">", 6, 8, lambda cell: format_number(loss_of(cell.row))),
    _counted("Val Batch", 9, lambda run: run.total_validation_batches),
    TopColumn("CPU", "CPU", ">", 9, 12, _cpu),
    TopColumn("RAM", "RAM (MB)", ">", 9, 12, _ram),
    TopColumn("GPU", "GPU (MiB)", ">", 9, 12, _gpu),
    TopColumn(CURVE, CURVE, "<", _CURVE_CELLS, _CURVE_CELLS, _curve),
    *_times("Run", "Run"),
    *_times("Epoch", "Ep"),
    *_times("Train", "Tr"),
    _duration("Val Time", "Val Time"),
    *_times("Val", "Val"),
    _whole("Procs", 5, 6),
    _whole("Threads", 7, 7),
    _whole("PID", 7, 10),
    TopColumn("Wandb URL", "Wandb URL", "<", 9, 60, lambda cell: _outside(cell.row.run.wandb_url, cell.glyphs)),
)
SORTS = (NAME, *(column.title for column in COLUMNS if column.title in VALUES))


# ---------------------------------------------------------------- widths


@dataclass(frozen=True, slots=True)
class Layout:
    """The table's columns as they stand: the name's width, then (column, width); `across` are left of the screen."""

    name: int
    columns: tuple[tuple[TopColumn, int], ...]
    across: int
    more: bool

    def headings(self) -> tuple[tuple[str, int, int], ...]:
        """(title, first cell, cell after the last) of each column."""
        found = [(NAME, _MARGIN, _MARGIN + self.name)]
        for column, width in self.columns:
            start = found[-1][2] + 1
            found.append((column.title, start, start + width))
        return tuple(found)


def lay_out(
    items: Sequence[Item], usage: Usage, view: TopView, width: int, columns: Sequence[TopColumn] = COLUMNS
) -> Layout:
    """Choose the columns from `view.across` on; no further than until the last one is on the screen."""
    glyphs = view.options.glyphs
    name = _name_width(items, width, glyphs)
    sized = [(column, _width_of(column, items, usage, glyphs)) for column in columns]
    room = width - _MARGIN - name - len(_MORE)
    last, left = len(sized), room
    while last and sized[last - 1][1] < left:
        left -= sized[last - 1][1] + 1
        last -= 1
    across = max(0, min(view.across, last, len(sized) - 1))
    shown = []
    for column, its_width in sized[across:]:
        if its_width >= room:
            shown += [(column, room - 1)] if column.align == "<" and column.least < room else []
            break
        shown.append((column, its_width))
        room -= its_width + 1
    if not shown and room > 1:
        shown = [(sized[across][0], room - 1)]
    return Layout(name, tuple(shown), across, across + len(shown) < len(sized))


def _name_width(items: Sequence[Item], width: int, glyphs: Glyphs) -> int:
    longest = max((cells(_label(item, _MOST_NAME, glyphs)) for item in items), default=0)
    return max(_LEAST_NAME, min(longest, _MOST_NAME, width * 3 // 10))


def _width_of(column: TopColumn, items: Sequence[Item], usage: Usage, glyphs: Glyphs) -> int:
    if column.least == column.most:
        return column.most
    needed = (cells(column.show(Cell(item.row, usage, glyphs))) for item in items if item.node is None)
    return max(column.least, min(column.most, max(needed, default=0)), len(column.heading))


# ---------------------------------------------------------------- lines


def heading(layout: Layout, width: int, sort: str, glyphs: Glyphs) -> Line:
    """The titles; the one that is sorted by stands out, and what is left of the screen is pointed at."""
    pieces: list[Piece] = [("< " if layout.across else "  ", "dim")]
    pieces.append((fit(NAME, layout.name, glyphs), "bold" if sort == NAME else "dim"))
    for column, its_width in layout.columns:
        text = fit(column.heading, its_width, glyphs, column.align)
        pieces += [(" ", ""), (text, "bold" if column.title == sort else "dim")]
    taken = sum(cells(text) for text, _ in pieces)
    if layout.more:
        pieces.append((_MORE.rjust(width - taken), "dim"))
    return fit_line(pieces, width, glyphs)


def table_line(item: Item, layout: Layout, usage: Usage, width: int, view: TopView, *, selected: bool) -> Line:
    """One row: a run in the colour of its state, or a process or thread below it."""
    glyphs = view.options.glyphs
    style = state_style(item.row)
    base = "selected" if selected else ""
    strong = f"selected {style}" if selected else style
    cursor = ">" if selected else " "
    if item.node is not None:
        pieces: list[Piece] = [
            (f"{cursor} ", base),
            (fit(_label(item, layout.name, glyphs), layout.name, glyphs), base),
            (f" {_node_text(item.node)}", base),
        ]
        return fit_line(pieces, width, glyphs, base)
    mark = "-" if item.row.run.path in view.expanded else "+" if item.row.tree else " "
    pieces = [(cursor + mark, base), (fit(_label(item, layout.name, glyphs), layout.name, glyphs), strong)]
    for column, its_width in layout.columns:
        text = fit(column.show(Cell(item.row, usage, glyphs)), its_width, glyphs, column.align)
        pieces += [(" ", base), (text, _cell_style(column, item.row, strong, base, selected))]
    return fit_line(pieces, width, glyphs, base)


def _cell_style(column: TopColumn, row: RunRow, strong: str, base: str, selected: bool) -> str:
    if column.title == "State":
        return f"selected {verdict_style(row)}".strip() if selected else verdict_style(row)
    return strong if column.title in ("Status", "Phase") else base


def _label(item: Item, width: int, glyphs: Glyphs) -> str:
    """The name of a row; of a process deep in a tree so far to the right that it is still seen in so many cells."""
    if item.node is None:
        return safe(item.row.run.name, glyphs)
    indent = _INDENT + min(item.node.depth, _LEAST_NAME, max(0, width - _INDENT - _LEAST_LABEL))
    return f"{' ' * indent}[{item.node.kind}] {safe(item.node.name, glyphs)}"


def _node_text(node: TreeRow) -> str:
    """What a process uses; of a thread its id alone."""
    if node.kind != PROCESS:
        return f"TID {node.identity.pid}"
    return "  ".join((f"PID {node.identity.pid:<7}", *resource_texts(node)))


def resource_texts(node: TreeRow) -> tuple[str, ...]:
    """CPU, RAM, GPU and threads of a process, in words."""
    cpu = NOT_KNOWN if node.cpu_percent is None else f"{format_percent(node.cpu_percent)}%"
    ram, gpu = format_whole(node.rss_bytes, MIB), format_whole(node.gpu_mib)
    return (
        f"CPU {cpu:>6}",
        f"RAM {ram:>6} MB",
        f"GPU {gpu:>5} MiB",
        NOT_KNOWN if node.threads is None else plural(node.threads, "thread"),
    )
