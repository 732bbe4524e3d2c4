"""What a person looks at in `top`: which screen, which run or process, what is filtered and asked for. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from training_monitor.policy.run_filters import filter_rows, sort_rows
from training_monitor.policy.run_values import (
    CANCELED,
    FAILED,
    FINISHED,
    KILLED,
    PROCESS,
    RUNNING,
    STATUSES,
    UNKNOWN,
    Identity,
    Run,
    RunRow,
    RunsSnapshot,
    TreeRow,
)
from training_monitor.tui.text import Line
from training_monitor.tui.view import Options

STATUS_FILTERS = (None, RUNNING, FINISHED, CANCELED, FAILED, KILLED, UNKNOWN)  # None: all
BOTH = "both"
OUTPUTS = ("stdout", "stderr", BOTH)


# ---------------------------------------------------------------- what is to be done


@dataclass(frozen=True, slots=True)
class Do:
    """`name` is refresh, redraw, quit; or start, end, close: of the output that is shown."""

    name: str


@dataclass(frozen=True, slots=True)
class SendSignal:
    """`targets` are the processes as they were shown when it was asked for, `names` what people call them.

    `below` are those of them that are not a run's own process but below it: only some signals are for these too.
    """

    what: str
    targets: tuple[Identity, ...]
    names: tuple[str, ...]
    below: frozenset[Identity] = frozenset()
    signal: str = ""


@dataclass(frozen=True, slots=True)
class DeleteRun:
    run: Run


@dataclass(frozen=True, slots=True)
class EditVariable:
    run: Run
    variable: str
    text: str


@dataclass(frozen=True, slots=True)
class OpenOutput:
    run: Run


@dataclass(frozen=True, slots=True)
class MoveOutput:
    """By so many lines, forward or back."""

    lines: int


@dataclass(frozen=True, slots=True)
class SearchOutput:
    words: str
    backwards: bool = False


Request = SendSignal | DeleteRun
Command = Do | SendSignal | DeleteRun | EditVariable | OpenOutput | MoveOutput | SearchOutput


# ---------------------------------------------------------------- where a person is


@dataclass(frozen=True, slots=True)
class Place:
    """A row of the table: a run by the path of its file; below it a process or thread, by its number."""

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
    """An output file as it is shown.

    Attributes:
        name: stdout or stderr. path: of the file, None where the run names none.
        lines: those of the window. start, size: bytes; of the window's first byte, and of the file. None: not known.
        follows: the window stays at the end. note: what else is to be said; error: why it cannot be read.
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
class TopView:
    """Where a person is.

    Attributes:
        screen: main, filter (main while its filter is typed), detail, editor, edit (editor while a value is typed),
            output, search (output while the words are typed), signals, confirm, messages or help.
        back: the screen that Esc goes back to.
        selected: the row the cursor is on; `index` is its number, for when it is gone.
        top: number of the first row that is shown; across: of the first column after the name.
        page: how many rows fit on the screen; scroll: how many lines of a long page are above it; back_scroll: how
            many were above the one that Esc goes back to.
        status: only runs of this status are shown; words: and whose names have all of these.
        typed: what is being typed; before: what it was when the typing began.
        sort: title of the column, empty for the natural order of names.
        expanded: paths of the runs whose processes are shown.
        request: what is to be confirmed. choice: the chosen row of a menu. variable: that the editor is on.
        shown: which of OUTPUTS; panes: what is read of them. aside: cells that are left of the screen.
        wraps: long lines are broken. searched: the words looked for last.
        message: said in the last line until the next key; messages: what came of what was asked for.
        headings: (title, first cell, cell after the last) of the table as it was drawn, in line `heading_line`.
    """

    options: Options = Options("top")
    screen: str = "main"
    back: str = "main"
    selected: Place = Place()
    index: int = 0
    top: int = 0
    across: int = 0
    page: int = 10
    scroll: int = 0
    back_scroll: int = 0
    status: str | None = None
    words: str = ""
    typed: str = ""
    before: str = ""
    sort: str = ""
    reverse: bool = False
    expanded: frozenset[str] = frozenset()
    paused: bool = False
    request: Request | None = None
    choice: int = 0
    variable: str = ""
    shown: str = OUTPUTS[0]
    panes: tuple[Pane, ...] = ()
    aside: int = 0
    wraps: bool = False
    searched: str = ""
    message: str = ""
    messages: tuple[str, ...] = ()
    headings: tuple[tuple[str, int, int], ...] = ()
    heading_line: int = 0


@dataclass(frozen=True, slots=True)
class TopFrame:
    """A screen's lines, and the view they show: its cursor on a row that is there, scrolled no further than the end."""

    lines: tuple[Line, ...]
    view: TopView


# ---------------------------------------------------------------- which rows, in which order


def shown_runs(snapshot: RunsSnapshot, view: TopView) -> list[RunRow]:
    """The runs that the filters let through, sorted; what is not known comes last either way."""
    rows = filter_rows(snapshot.rows, view.status, view.words)
    if view.sort:
        return list(sort_rows(rows, view.sort, view.reverse))
    return list(rows)[::-1] if view.reverse else list(rows)


def shown_items(snapshot: RunsSnapshot, view: TopView) -> list[Item]:
    """All rows of the table: the runs, and below each that is expanded its processes and threads."""
    return [item for row in shown_runs(snapshot, view) for item in _items_of(row, view)]


def _items_of(row: RunRow, view: TopView) -> Iterator[Item]:
    yield Item(row)
    if row.run.path in view.expanded:
        yield from (Item(row, node) for node in row.tree)


def selected_index(items: list[Item], view: TopView) -> int:
    """The row the cursor is on; where it is not shown that of its run, else what is now in its place. 0 without any."""
    places = [item.place for item in items]
    for place in (view.selected, Place(view.selected.path)):
        if place in places:
            return places.index(place)
    return max(0, min(view.index, len(items) - 1))


def selected_item(snapshot: RunsSnapshot, view: TopView) -> Item | None:
    """The row the cursor is on; None when none is shown."""
    items = shown_items(snapshot, view)
    return items[selected_index(items, view)] if items else None


def run_row(snapshot: RunsSnapshot, path: str) -> RunRow | None:
    """The run of that progress file; None when it is there no more."""
    return next((row for row in snapshot.rows if row.run.path == path), None)


def expanded_pids(snapshot: RunsSnapshot, view: TopView) -> frozenset[int]:
    """The processes whose threads are to be read."""
    rows = (row for row in snapshot.rows if row.run.path in view.expanded)
    return frozenset(node.identity.pid for row in rows for node in row.tree if node.kind == PROCESS)


def state_style(row: RunRow) -> str:
    """The style of the run's state: loading, batch, validation, finished, failed, canceled, killed, or warn."""
    if row.status == RUNNING:
        return {"loading": "loading", "validation": "validation"}.get(row.run.phase or "loading", "batch")
    return row.status.lower() if row.status in STATUSES else "warn"


def verdict_style(row: RunRow) -> str:
    """The style of the verdict on a run; empty where it is well."""
    return {"ok": "", "failed": "bad"}.get(row.verdict.verdict, "warn")
