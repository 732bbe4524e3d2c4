"""The view of `top`: its commands, the selected row, and the filters. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from training_monitor.runs.rows import filter_rows, sort_rows, worst_first
from training_monitor.runs.values import (
    CANCELED,
    FAILED,
    FINISHED,
    KILLED,
    PROCESS,
    RUNNING,
    UNKNOWN,
    Message,
    Run,
    RunRow,
    RunSize,
    RunsSnapshot,
    TreeRow,
)
from training_monitor.targets.proc_stat import Identity
from training_monitor.ui.kit.view import Do, View

STATUS_FILTERS = (None, RUNNING, FINISHED, CANCELED, FAILED, KILLED, UNKNOWN)  # None: all
BOTH = "both"
OUTPUTS = ("stdout", "stderr", BOTH)
SEARCHES = ("search-back", "search-on")  # commands: before and behind the last match; the first one is also a screen


# ---------------------------------------------------------------- commands


@dataclass(frozen=True, slots=True)
class SendSignal:
    """Send a signal: `targets` are the processes shown when it was requested, `names` their display names.

    `runs` are those to which each of them belongs.
    `below` are targets that are not a run's own process but its descendants: only some signals go to these too.
    `phrase` is what the user types to confirm it.
    """

    what: str
    targets: tuple[Identity, ...]
    names: tuple[str, ...]
    runs: tuple[tuple[Run, ...], ...]
    below: frozenset[Identity] = frozenset()
    phrase: str = "yes"
    signal: str = ""


@dataclass(frozen=True, slots=True)
class EditVariable:
    run: Run
    variable: str
    text: str


# Do: refresh and close; keep-columns with the titles of the hidden ones; open, measure and delete a run; start, end,
# move by LINES, to a PERCENT and SEARCHES for WORDS, which move the windows of the output, and stop-search; pane with a
# screen and the path of a run.
Command = Do | SendSignal | EditVariable


# ---------------------------------------------------------------- the view


class Place(NamedTuple):
    """The key of a table row: a run by the path of its file; below it a process or thread, by its id."""

    path: str = ""
    kind: str = ""
    number: int = 0


class Item(NamedTuple):
    """A row of the table: a run, or a node of its tree."""

    row: RunRow
    node: TreeRow | None = None

    @property
    def place(self) -> Place:
        if self.node is None:
            return Place(self.row.run.path)
        return Place(self.row.run.path, self.node.kind, self.node.identity.pid)


class Searching(NamedTuple):
    """A search under way: its words, and how many bytes it has searched of how many."""

    words: str
    searched: int
    total: int


class Pane(NamedTuple):
    """A window of an output file.

    Attributes:
        name: stdout or stderr. path: of the file, None where the run names none.
        lines: those of the window. start, size: bytes; of the window's first byte, and of the file. None: unknown.
        follows: the window stays at the end. note: a message; error: why it cannot be read.
        searching: the search under way in it, if any.
    """

    name: str
    path: str | None = None
    lines: tuple[str, ...] = ()
    start: int | None = None
    size: int | None = None
    follows: bool = True
    note: str = ""
    error: str = ""
    searching: Searching | None = None


class Measured(NamedTuple):
    """The size of the run with this path, or why it is not known."""

    path: str
    size: RunSize | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class TopView(View):
    """The view of `top`.

    `screen` can also be columns, detail, editor, edit (editor while a value is typed), output, search or position
    (output while words or a position are typed), signals or messages.

    Attributes:
        across: number of the first column after the name.
        status: only runs of this status are shown.
        expanded: paths of the runs whose processes are shown.
        hidden: titles of the columns that are not shown; draft: those while they are chosen.
        choice: the chosen row of a menu. variable: the selected variable in the editor.
        shown: which of OUTPUTS; panes: their windows. aside: cells scrolled off to the left.
        wraps: long lines are wrapped. searched: the last search; backwards: its direction.
        has_tmux: whether a pane beside this one can be opened.
        messages: results of requests. measured: the run that was measured last.
    """

    title: str = "top"
    selected: Place = Place()
    across: int = 0
    status: str | None = None
    hidden: frozenset[str] = frozenset()
    draft: frozenset[str] = frozenset()
    expanded: frozenset[str] = frozenset()
    paused: bool = False
    choice: int = 0
    variable: str = ""
    shown: str = OUTPUTS[0]
    panes: tuple[Pane, ...] = ()
    aside: int = 0
    wraps: bool = False
    searched: str = ""
    backwards: bool = False
    has_tmux: bool = False
    messages: tuple[Message, ...] = ()
    measured: Measured | None = None


# ---------------------------------------------------------------- filter and order


def shown_runs(snapshot: RunsSnapshot, view: TopView) -> list[RunRow]:
    """Return the runs that match the filters, sorted; unknown values come last in either direction."""
    rows = filter_rows(snapshot.rows, view.status, view.words)
    if view.sort:
        return list(sort_rows(rows, view.sort, view.reverse))
    return worst_first(rows)[::-1] if view.reverse else worst_first(rows)


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
