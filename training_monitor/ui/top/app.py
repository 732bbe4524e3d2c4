"""The session of the `top` screen. A thread reads the outputs of one run, so that the screen never waits for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from training_monitor.core.engine import begin_thread
from training_monitor.core.errors import TrainingMonitorError, last_lines
from training_monitor.core.store import Store
from training_monitor.core.units import plural
from training_monitor.runs.collector import RunCollector
from training_monitor.runs.values import RUNNING, UNKNOWN, Run, RunsSnapshot
from training_monitor.targets.proc_stat import SIGNAL_NUMBERS
from training_monitor.targets.transport import LocalTransport
from training_monitor.ui.kit.keys import (
    BACK,
    CLOSE_HELP,
    ERASES,
    HELP,
    QUIT,
    REDRAW,
    REFRESH,
    SCROLLS,
    App,
    Key,
    Screen,
    change,
    do,
    filter_keys,
    moves,
    open_page,
    question_keys,
    start_filter,
    toggle,
)
from training_monitor.ui.kit.loop import Session, run_screen
from training_monitor.ui.kit.terminal import terminal_glyphs
from training_monitor.ui.kit.text import gain
from training_monitor.ui.kit.view import Do, cancel, go_back, said
from training_monitor.ui.top import acts
from training_monitor.ui.top.acts import Act, on_run
from training_monitor.ui.top.main import draw_header, draw_main
from training_monitor.ui.top.pages import (
    draw_columns,
    draw_confirm,
    draw_detail,
    draw_editor,
    draw_messages,
    draw_output,
    draw_signals,
    format_size,
)
from training_monitor.ui.top.reader import OutputReader
from training_monitor.ui.top.table import COLUMNS, TABLE
from training_monitor.ui.top.view import (
    SEARCHES,
    STATUS_FILTERS,
    Command,
    EditVariable,
    Item,
    Measured,
    Place,
    SendSignal,
    TopView,
    expanded_pids,
    run_row,
    shown_runs,
)

_ASIDE = 10
_TMUX_SECONDS = 5.0
_WIDE = 120  # cells of the screen from which a pane is beside it, not below
_KEPT_AS = "columns of top"
_RESET = change(status=None, words="", sort="", reverse=False, across=0)
_LEAVE_EDIT = change(screen="editor", typed="", message="cancelled: nothing was changed")
_SIGNAL_NOTE = "KILL, STOP and CONT go to all processes of a run, the other signals only to its main process"
_COLUMN_HELP = (
    ("Status", "how the run ended, or RUNNING, starting, slow or stalled; ? means unknown"),
    ("Done Rate", "Done: progress of the whole run; Rate: batches per second, minute or hour"),
    ("CPU", "percent of one core, summed over all processes"),
    ("RAM GPU", "memory of all processes; Share: percentage of the machine's total"),
)


def _sideways(name: str, by: int) -> Act:
    return lambda view, snapshot: replace(view, **{name: max(0, getattr(view, name) + by)})


# ---------------------------------------------------------------- the table


def _next_status(view: TopView, snapshot: RunsSnapshot) -> TopView:
    status = STATUS_FILTERS[(STATUS_FILTERS.index(view.status) + 1) % len(STATUS_FILTERS)]
    return replace(
        view, status=status, message="showing runs with any status" if status is None else f"showing only {status}"
    )


def _toggle_tree(view: TopView, snapshot: RunsSnapshot) -> TopView:
    item = TABLE.selected(snapshot, view)
    if item is None:
        return view
    path = item.row.run.path
    if path not in view.expanded and not item.row.tree:
        why = "its processes are not visible from here" if item.row.status in (RUNNING, UNKNOWN) else "it has ended"
        return said(view, f"{item.row.run.name}: {why}")
    selected = Place(path) if path in view.expanded else item.place
    return replace(view, expanded=view.expanded ^ {path}, selected=selected)


def _toggle_trees(view: TopView, snapshot: RunsSnapshot) -> TopView:
    paths = {row.run.path for row in shown_runs(snapshot, view) if row.tree}
    if paths <= view.expanded:
        return replace(view, expanded=frozenset(), selected=Place(view.selected.path))
    return replace(view, expanded=view.expanded | paths)


# ---------------------------------------------------------------- the output


def _move_output(by: Callable[[TopView], int]) -> Act:
    return lambda view, snapshot: replace(view, todo=(Do("move", by(view)),))


def _wrap(view: TopView, snapshot: RunsSnapshot) -> TopView:
    message = "long lines are cut; Left and Right scroll" if view.wraps else "long lines are wrapped"
    return replace(view, wraps=not view.wraps, aside=0, message=message)


def _close_output(view: TopView, snapshot: RunsSnapshot) -> TopView:
    """End the searches under way; without any, leave the outputs."""
    if any(pane.searching for pane in view.panes):
        return replace(view, message="search cancelled", todo=(Do("stop-search"),))
    return replace(go_back(view), panes=(), aside=0, todo=(Do("close"),))


# ---------------------------------------------------------------- tables


_SIGNAL = Key("k", "send a signal to the selected run or process", on_run(acts.ask_signal), "signal", changes=True)
_DELETE = Key("c", "delete the folder of the selected run", on_run(acts.ask_delete), "delete", changes=True)
_EDITOR = Key("e", "show and edit the variables of the selected run", on_run(acts.open_editor), "edit")
_OUTPUT = Key("o", "show stdout and stderr of the selected run", on_run(acts.open_output), "output")
_PANES: tuple[Key[Any, Any], ...] = (
    Key("O", "show stdout and stderr in a separate tmux pane", acts.in_pane("output", acts.open_output)),
    Key("E", "show the variables in a separate tmux pane", acts.in_pane("editor", acts.open_editor)),
)
_PAGE = (BACK, QUIT, REFRESH, HELP, *SCROLLS)
_MAIN: tuple[Key[Any, Any], ...] = (
    QUIT,
    HELP,
    Key("s", "show only runs with one status; press again for the next one", _next_status, "status"),
    Key("f", "show only runs whose name contains the typed text", start_filter, "filter"),
    Key("t", "show or hide the processes and threads of the selected run", _toggle_tree, "tree"),
    _EDITOR,
    _OUTPUT,
    *_PANES,
    _SIGNAL,
    Key("l", "send a signal to all RUNNING runs that are shown", acts.ask_signal_of_all, "all", changes=True),
    _DELETE,
    Key("Enter", "show all details of the selected run", TABLE.open_detail, "detail"),
    Key("T", "show or hide the processes of all runs", _toggle_trees),
    Key("v", "choose the columns and save the choice", acts.open_columns, "columns"),
    Key("S >", "sort by the next column (or click on a column title)", TABLE.next_sort(1), "sort"),
    Key("<", "sort by the previous column", TABLE.next_sort(-1)),
    Key("R", "reverse the sort order", toggle("reverse")),
    REFRESH,
    Key("p", "freeze the screen until p is pressed again", toggle("paused"), "pause"),
    Key("m", "show the results of requested actions", open_page("messages"), "messages"),
    *moves(TABLE.move),
    Key("Left", "scroll to columns on the left", _sideways("across", -1)),
    Key("Right", "scroll to columns on the right", _sideways("across", 1)),
    Key("Esc", "clear the filters and sorting, and scroll to the first column", _RESET),
    REDRAW,
)
_EDITOR_KEYS: tuple[Key[Any, Any], ...] = (
    Key("Esc", "back", go_back, "back"),
    Key("Enter", "change the selected variable", acts.start_edit, "change", changes=True),
    *moves(acts.choose_variable),
    REFRESH,
    _OUTPUT,
    HELP,
    QUIT,
    REDRAW,
)
_EDIT: tuple[Key[Any, Any], ...] = (
    Key("Enter", "send the typed value to the run", acts.send_edit, "send", changes=True),
    Key("Esc", "change nothing", _LEAVE_EDIT, "cancel"),
    *ERASES,
)
_OUTPUT_KEYS: tuple[Key[Any, Any], ...] = (
    Key("Esc", "cancel the current search, or go back if there is none", _close_output, "back"),
    Key("Tab", "switch between stdout, stderr and both", acts.show_other_output, "other"),
    Key("F End G", "go to the end, and follow new output", do("end"), "follow"),
    Key("g Home", "go to the beginning", do("start"), "begin"),
    Key(":", "go to a position in the file, entered as a percentage", change(screen="position", typed=""), "percent"),
    Key("/", "search forwards from this position to the end of the file", change(screen="search", typed=""), "search"),
    Key(
        "b",
        "search backwards from this position to the beginning of the file",
        change(screen=SEARCHES[0], typed=""),
        "search back",
    ),
    Key(
        "n",
        "next match in the search direction; after the last match, press again to start over",
        acts.search_again(turned=False),
        "next",
    ),
    Key("N", "next match in the opposite direction", acts.search_again(turned=True), "other way"),
    Key("w", "wrap or cut long lines", _wrap, "wrap"),
    Key("Left", "scroll to the left", _sideways("aside", -_ASIDE)),
    Key("Right", "scroll to the right", _sideways("aside", _ASIDE)),
    *moves(_move_output, ends=False),
    HELP,
    QUIT,
    REDRAW,
)
_SEARCH: tuple[Key[Any, Any], ...] = (
    Key("Enter", "search for the typed text", acts.search_typed, "search"),
    Key("Esc", "cancel the search", change(screen="output", typed=""), "cancel"),
    *ERASES,
)
_POSITION: tuple[Key[Any, Any], ...] = (
    Key("Enter", "go to the typed position", acts.go_to_typed, "go"),
    Key("Esc", "stay here", change(screen="output", typed=""), "cancel"),
    *ERASES,
)
_COLUMNS: tuple[Key[Any, Any], ...] = (
    Key("Space", "show or hide this column", acts.toggle_column, "show or hide"),
    Key("Enter", "keep this choice", acts.keep_columns, "keep"),
    Key("Esc", "discard the changes", cancel, "cancel"),
    *moves(acts.move_in(COLUMNS)),
    QUIT,
)
_SIGNALS: tuple[Key[Any, Any], ...] = (
    Key("Enter", "choose this signal; a confirmation follows", acts.ask_once_more, "choose"),
    Key("Esc", "send nothing", cancel, "cancel"),
    *moves(acts.move_in(acts.SIGNALS)),
)
APP: App[TopView, RunsSnapshot] = App(
    TABLE,
    draw_header,
    {
        "main": Screen(draw_main, _MAIN, section="the table", click=TABLE.click),
        "filter": Screen(draw_main, filter_keys(TABLE), "name: ", "while you type the name", click=TABLE.click),
        "detail": Screen(draw_detail, (*_PAGE, _EDITOR, _OUTPUT, *_PANES, _SIGNAL, _DELETE)),
        "editor": Screen(draw_editor, _EDITOR_KEYS, section="variables"),
        "edit": Screen(draw_editor, _EDIT, "= ", "while you type a value", changes=True),
        "output": Screen(draw_output, _OUTPUT_KEYS, section="stdout and stderr"),
        "search": Screen(draw_output, _SEARCH, "/", "while you type a search"),
        SEARCHES[0]: Screen(draw_output, _SEARCH, "backwards: "),
        "position": Screen(draw_output, _POSITION, "per cent: ", "while you type a position"),
        "columns": Screen(draw_columns, _COLUMNS, section="the choice of columns"),
        "signals": Screen(draw_signals, _SIGNALS, section="the menu of signals", changes=True, note=_SIGNAL_NOTE),
        "confirm": Screen(
            draw_confirm, question_keys(acts.confirm), "> ", "the confirmation before an action", changes=True
        ),
        "messages": Screen(draw_messages, _PAGE),
        "help": Screen(None, (CLOSE_HELP, *(key for key in _PAGE[1:] if key is not HELP))),
    },
    notes=_COLUMN_HELP,
)


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """The titles of the columns that are not shown, kept from one start to the next."""

    hidden: tuple[str, ...] = ()


def load_hidden_columns() -> frozenset[str]:
    """Return the titles of the hidden columns; none where nobody chose any. Raises TrainingMonitorError."""
    kept = Store().load_run(_KEPT_AS, ColumnChoice, finished=True, drop_unknown=True)
    return frozenset(kept.hidden if kept else ())


def keep_hidden_columns(hidden: frozenset[str]) -> str:
    """Keep the titles of the hidden columns, and return the path of the file. Raises StateError if it cannot."""
    store = Store()
    store.save_run(_KEPT_AS, ColumnChoice(tuple(sorted(hidden))), finished=True)
    return store.path


def run_top(
    collector: RunCollector,
    *,
    read_only: bool,
    title: str,
    begin: tuple[str, str] | None = None,
    command: Sequence[str] = (),
) -> None:
    """Show the runs of a folder on this terminal until the user quits; starts the collector and closes it.

    Args:
        read_only: no key can signal, edit or delete.
        title: shown at the top.
        begin: output or editor, and the name or path of the run that it shows at first; None: the table.
        command: what starts this screen again, for a pane of tmux.

    Raises:
        TrainingMonitorError: stdin or stdout is not a usable terminal; the collector was not started.
        KeyboardInterrupt: Ctrl-C, SIGTERM or SIGHUP; the terminal is restored.
    """
    try:
        hidden = load_hidden_columns()
    except TrainingMonitorError as error:
        hidden = frozenset()
        collector.tell(f"could not read the choice of columns, so all columns are shown: {error}")
    has_tmux = bool(os.environ.get("TMUX")) and bool(command)
    view = TopView(title, read_only, terminal_glyphs(), hidden=hidden, has_tmux=has_tmux)
    run_screen(APP, _TopSession(collector, begin, command), view)


class _TopSession(Session[TopView, RunsSnapshot]):
    """The snapshot that is shown, and the reader of the open output."""

    def __init__(
        self, collector: RunCollector, begin: tuple[str, str] | None = None, command: Sequence[str] = ()
    ) -> None:
        super().__init__(collector)
        self._collector, self._begin, self._command = collector, begin, command
        self._asked: EditVariable | None = None  # the last edit, until the run has handled it
        self._snapshot = collector.snapshot()
        self._wanted_after: float | None = None  # while paused: show a look newer than this
        self._reader: OutputReader | None = None
        self._measured: Measured | None = None
        self._ring: Callable[[], None] = lambda: None

    def start(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        super().start(ring)

    def close(self) -> None:
        self._close_output()
        super().close()

    def look(self, view: TopView) -> tuple[RunsSnapshot, TopView]:
        """Take over the new runs unless paused, the messages, and the windows of the output."""
        snapshot = self._collector.snapshot()
        if not view.paused or (self._wanted_after is not None and snapshot.timestamp > self._wanted_after):
            self._snapshot, self._wanted_after = snapshot, None
        self._collector.expand(expanded_pids(self._snapshot, view))
        messages = self._collector.messages()
        if news := gain(view.messages, messages):
            view = replace(view, message=news[-1].text)
        if self._asked is not None and _is_answered(self._asked, self._snapshot):
            self._asked, view = None, said(view, "")
        if self._begin is not None:
            view = self._begun(view, *self._begin)
        panes = () if self._reader is None else self._reader.panes
        return self._snapshot, replace(view, messages=messages, panes=panes, measured=self._measured)

    def _begun(self, view: TopView, screen: str, name: str) -> TopView:
        """Open the page of the run with that name or path, once it is there."""
        row = next((row for row in self._snapshot.rows if name in (row.run.name, row.run.path)), None)
        if row is None:
            is_known = self._snapshot.error is None and not self._snapshot.is_refreshing
            return said(view, f"run {name} does not exist yet") if is_known else view
        self._begin = None
        view = (acts.open_output if screen == "output" else acts.open_editor)(view, self._snapshot, Item(row))
        for command in view.todo:
            view = self.obey(view, command)
        return replace(view, message="", todo=())

    def drawn(self, view: TopView) -> None:
        if self._reader is not None:
            self._reader.put_on_screen(view.shown, view.page)

    def obey(self, view: TopView, command: Command) -> TopView:
        match command:
            case Do("refresh"):
                self._wanted_after = self._snapshot.timestamp
                self._collector.refresh()
            case Do("keep-columns", hidden):
                self._collector.act(
                    "save the choice of columns", lambda: f"column choice saved in {keep_hidden_columns(hidden)}"
                )
            case Do("pane", (screen, path)):
                self._collector.act(
                    "open a pane", lambda: open_pane(self._command, screen, path, wide=view.width >= _WIDE)
                )
            case Do("close"):
                self._close_output()
            case Do("stop-search"):
                if self._reader is not None:
                    self._reader.stop_searches()
            case Do("open", run):
                self._close_output()
                self._reader = OutputReader(self._collector.source, run, self._ring)
                self._reader.start()
            case Do("measure", run):
                self._measured = Measured(run.path)
                if not begin_thread(lambda: self._measure(run), "measure"):
                    self._measured = Measured(run.path, error="could not start a thread on this machine")
            case Do("delete", run):
                self._collector.act(f"delete {run.name}", lambda: self._delete(run))
            case Do():
                if self._reader is not None:
                    self._reader.ask(command)
            case SendSignal():
                self._collector.act(f"send SIG{command.signal} to {command.what}", lambda: self._send(command))
            case EditVariable(run, variable, text):
                self._collector.act(f"send {variable} = {text} to {run.name}", lambda: self._edit(command))
        return view

    def _close_output(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader = None

    # ------------------------------------------------------------ actions, in a thread of the collector

    def _send(self, command: SendSignal) -> str:
        answers = self._collector.source.send_signal(command.targets, SIGNAL_NUMBERS[command.signal], command.runs)
        for answer in answers[1:]:
            self._collector.tell(answer)
        more = f"; press m to see {plural(len(answers) - 1, 'more result')}" if len(answers) > 1 else ""
        return f"{answers[0]}{more}"

    def _measure(self, run: Run) -> None:
        try:
            measured = Measured(run.path, self._collector.source.measure(run))
        except TrainingMonitorError as error:
            measured = Measured(run.path, error=str(error))
        if self._measured and self._measured.path == run.path:  # no other run was asked for since
            self._measured = measured
            self._ring()

    def _delete(self, run: Run) -> str:
        measured = self._measured
        self._collector.source.delete(run)
        freed = f": {format_size(measured.size)}" if measured and measured.path == run.path and measured.size else ""
        return f"deleted {run.name}{freed}"

    def _edit(self, command: EditVariable) -> str:
        run, variable, text = command.run, command.variable, command.text
        self._collector.source.edit(run, {variable: text})
        self._asked = command
        return f"sent {variable} = {text} to {run.name}; VALUE changes when the run applies it"


def _is_answered(asked: EditVariable, snapshot: RunsSnapshot) -> bool:
    """Return whether a run has handled an edit: since it was asked for, or whether the run is gone."""
    row = run_row(snapshot, asked.run.path)
    before = next((each.edit for each in asked.run.variables if each.name == asked.variable), None)
    now = next((each for each in row.run.variables if each.name == asked.variable), None) if row else None
    return now is None or (now.pending is None and now.edit != before)


def open_pane(command: Sequence[str], screen: str, path: str, *, wide: bool) -> str:
    """Open a screen of a run in a pane of tmux, beside or below this one. Raises TrainingMonitorError if tmux fails."""
    option = "--output" if screen == "output" else "--edit"
    argv = ["tmux", "split-window", "-h" if wide else "-v", "-c", os.getcwd(), "--", *command, f"{option}={path}"]
    done = LocalTransport().run(argv, timeout=_TMUX_SECONDS)
    if done.exit_code:
        raise TrainingMonitorError(f"tmux: {last_lines(done.stderr) or f'exit code {done.exit_code}'}")
    return f"opened a tmux pane with the {screen} of {os.path.basename(path)}"
