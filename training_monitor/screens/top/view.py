"""The view of `top`: its commands, the selected row, the filters, and the columns of the table. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from training_monitor.core.frozen import dataclass, replace
from training_monitor.core.units import format_duration, format_sparkline, known_number, plural
from training_monitor.runs.rows import COLUMNS as VALUES, MIB, filter_rows, loss_of, sort_rows
from training_monitor.runs.values import (
    CANCELED,
    FAILED,
    FINISHED,
    KILLED,
    PROCESS,
    RUNNING,
    STATUSES,
    UNKNOWN,
    Run,
    RunRow,
    RunsSnapshot,
    TreeRow,
    Usage,
)
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
from training_monitor.screens.kit.view import MARGIN, MORE, Column, Do, Layout, Table, View, row_line
from training_monitor.targets.proc_stat import Identity

STATUS_FILTERS = (None, RUNNING, FINISHED, CANCELED, FAILED, KILLED, UNKNOWN)  # None: all
BOTH = "both"
OUTPUTS = ("stdout", "stderr", BOTH)
NAME = "Run Name"
_LEAST_NAME, _MOST_NAME = 10, 40
CURVE, _CURVE_CELLS = "Loss Curve", 12
_INDENT, _LEAST_LABEL = 2, 8


# ---------------------------------------------------------------- commands


@dataclass(frozen=True, slots=True)
class SendSignal:
    """Send a signal: `targets` are the processes shown when it was requested, `names` their display names.

    `below` are targets that are not a run's own process but its descendants: only some signals go to these too.
    """

    what: str
    targets: tuple[Identity, ...]
    names: tuple[str, ...]
    below: frozenset[Identity] = frozenset()
    signal: str = ""


@dataclass(frozen=True, slots=True)
class EditVariable:
    run: Run
    variable: str
    text: str


# Do: refresh and close; open and delete a run; start, end, move by LINES and search-back or search-on for WORDS, which
# move the windows of the output.
Command = Do | SendSignal | EditVariable


# ---------------------------------------------------------------- the view


@dataclass(frozen=True, slots=True)
class Place:
    """The key of a table row: a run by the path of its file; below it a process or thread, by its id."""

    path: str = ""
    kind: str = ""
    number: int = 0


@dataclass(frozen=True, slots=True)
class Item:
    """A row of the table: a run, or a node of its tree."""

    row: RunRow
    node: TreeRow | None = None

    @property
    def place(self) -> Place:
        if self.node is None:
            return Place(self.row.run.path)
        return Place(self.row.run.path, self.node.kind, self.node.identity.pid)


@dataclass(frozen=True, slots=True)
class Pane:
    """A window of an output file.

    Attributes:
        name: stdout or stderr. path: of the file, None where the run names none.
        lines: those of the window. start, size: bytes; of the window's first byte, and of the file. None: unknown.
        follows: the window stays at the end. note: a message; error: why it cannot be read.
    """

    name: str
    path: str | None = None
    lines: tuple[str, ...] = ()
    start: int | None = None
    size: int | None = None
    follows: bool = True
    note: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class TopView(View):
    """The view of `top`.

    `screen` can also be detail, editor, edit (editor while a value is typed), output, search (output while the words
    are typed), signals or messages.

    Attributes:
        across: number of the first column after the name.
        status: only runs of this status are shown.
        expanded: paths of the runs whose processes are shown.
        choice: the chosen row of a menu. variable: the selected variable in the editor.
        shown: which of OUTPUTS; panes: their windows. aside: cells scrolled off to the left.
        wraps: long lines are wrapped. searched: the last search.
        messages: results of requests.
    """

    title: str = "top"
    selected: Place = Place()
    across: int = 0
    status: str | None = None
    expanded: frozenset[str] = frozenset()
    paused: bool = False
    choice: int = 0
    variable: str = ""
    shown: str = OUTPUTS[0]
    panes: tuple[Pane, ...] = ()
    aside: int = 0
    wraps: bool = False
    searched: str = ""
    messages: tuple[str, ...] = ()


# ---------------------------------------------------------------- filter and order


def shown_runs(snapshot: RunsSnapshot, view: TopView) -> list[RunRow]:
    """Return the runs that match the filters, sorted; unknown values come last in either direction."""
    rows = filter_rows(snapshot.rows, view.status, view.words)
    if view.sort:
        return list(sort_rows(rows, view.sort, view.reverse))
    return list(rows)[::-1] if view.reverse else list(rows)


def shown_items(snapshot: RunsSnapshot, view: TopView) -> list[Item]:
    """Return all rows of the table: the runs, and below each expanded one its processes and threads."""
    runs = shown_runs(snapshot, view)
    return [Item(row, node) for row in runs for node in (None, *(row.tree if row.run.path in view.expanded else ()))]


def run_row(snapshot: RunsSnapshot, path: str) -> RunRow | None:
    """Return the run of that progress file; None when it does not exist any more."""
    return next((row for row in snapshot.rows if row.run.path == path), None)


def expanded_pids(snapshot: RunsSnapshot, view: TopView) -> frozenset[int]:
    """Return the processes whose threads should be read."""
    rows = (row for row in snapshot.rows if row.run.path in view.expanded)
    return frozenset(node.identity.pid for row in rows for node in row.tree if node.kind == PROCESS)


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
    items: Sequence[Item], usage: Usage, view: TopView, columns: Sequence[Column[Cell]] = COLUMNS
) -> tuple[Layout[Cell], int, bool]:
    """Choose the columns from `view.across` on, scrolled at most until the last one is visible.

    Returns:
        The name and the columns with their widths; how many are left of the screen; whether there are more right of it.
    """
    shown = [Cell(item, usage, view.glyphs) for item in items]
    longest = max((cells(_label(cell, _MOST_NAME)) for cell in shown), default=0)
    name = max(_LEAST_NAME, min(longest, _MOST_NAME, view.width * 3 // 10))
    runs = [cell for cell in shown if cell.item.node is None]
    room = view.width - MARGIN - name - len(MORE)
    across = min(view.across, _most_across([_width_of(column, runs) for column in columns], room)) if view.across else 0
    layout = []
    for column in columns[across:]:
        its_width = _width_of(column, runs)
        if its_width >= room:
            layout += [(column, room - 1)] if column.align == "<" and column.least < room else []
            break
        layout.append((column, its_width))
        room -= its_width + 1
    if not layout and room > 1:
        layout = [(columns[across], room - 1)]
    return [(_NAME, name), *layout], across, across + len(layout) < len(columns)


def _most_across(widths: Sequence[int], room: int) -> int:
    """Return how many columns may be left of the screen when the last one is visible."""
    most = len(widths)
    while most and widths[most - 1] < room:
        room -= widths[most - 1] + 1
        most -= 1
    return min(most, len(widths) - 1)


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
        layout = [(name, its_width), (_NODE, max(0, view.width - MARGIN - its_width - 1))]
        return row_line(f"{cursor} ", layout, cell, {}, view, base)
    mark = "-" if item.row.run.path in view.expanded else "+" if item.row.tree else " "
    styles = dict.fromkeys((NAME, "Status", "Phase"), state_style(item.row)) | {"State": verdict_style(item.row)}
    styles = {title: f"{base} {style}".strip() for title, style in styles.items()}
    return row_line(cursor + mark, layout, cell, styles, view, base)


def state_style(row: RunRow) -> str:
    """Return the style of the run's state: loading, batch, validation, finished, failed, canceled, killed, or warn."""
    if row.status == RUNNING:
        return {"loading": "loading", "validation": "validation"}.get(row.run.phase or "loading", "batch")
    return row.status.lower() if row.status in STATUSES else "warn"


def verdict_style(row: RunRow) -> str:
    """Return the style of a run's verdict; empty where it is ok."""
    return {"ok": "", "failed": "bad"}.get(row.verdict.verdict, "warn")
