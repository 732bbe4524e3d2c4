"""What the keys do to runs: signals, deleting, edits, outputs, each asked for step by step. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from training_monitor.parse.progress_file import MAX_VALUE
from training_monitor.policy.run_edits import why_read_only
from training_monitor.policy.run_life import is_same_attempt
from training_monitor.policy.run_values import (
    KILLED,
    PROCESS,
    RUNNING,
    UNKNOWN,
    Identity,
    RunRow,
    RunsSnapshot,
    Variable,
)
from training_monitor.progress.variables import convert
from training_monitor.tui.top_view import (
    OUTPUTS,
    Command,
    DeleteRun,
    EditVariable,
    Item,
    OpenOutput,
    SendSignal,
    TopView,
    run_row,
    selected_item,
    shown_runs,
)
from training_monitor.units import plural

Result = tuple[TopView, tuple[Command, ...]]
Act = Callable[[TopView, RunsSnapshot], Result]

PHRASE = "yes"
SIGNALS: tuple[tuple[str, str], ...] = (
    ("TERM", "ask it to end"),
    ("INT", "as Ctrl+C in its terminal"),
    ("KILL", "end it at once; it cannot save anything"),
    ("STOP", "halt it until CONT"),
    ("CONT", "let it go on after STOP"),
    ("HUP", "its terminal hung up"),
    ("USR1", "what the script makes of it"),
    ("USR2", "what the script makes of it"),
    ("QUIT", "end it with a core dump"),
)
# The others are for the run's own process, which ends or tells those below it: a worker or a `tee` that dies before it
# would spoil its last words.
_FOR_THE_TREE = ("KILL", "STOP", "CONT")
_NOTHING = "nothing is selected"


def opened(view: TopView, screen: str) -> TopView:
    """A page, from its beginning, over the screen that `go_back` leads back to."""
    return replace(view, screen=screen, back=view.screen, scroll=0, back_scroll=view.scroll)


def go_back(view: TopView, snapshot: RunsSnapshot) -> Result:
    """Leave a page for the screen it was opened from."""
    view = replace(view, screen=view.back, back="main", scroll=view.back_scroll, back_scroll=0)
    return replace(view, typed="", request=None), ()


def cancel(view: TopView, snapshot: RunsSnapshot) -> Result:
    """Leave a question without doing anything."""
    view, _ = go_back(view, snapshot)
    return replace(view, message="cancelled: nothing was done"), ()


# ---------------------------------------------------------------- signals


def ask_signal(view: TopView, snapshot: RunsSnapshot) -> Result:
    """Ask which signal the selected run, process or thread's process is to get."""
    item = _asked_item(view, snapshot)
    if item is None:
        return replace(view, message=_NOTHING), ()
    what, hit = _processes_of(item)
    if not hit:
        return replace(view, message=f"{what}: there is no process of it that could get a signal"), ()
    return _menu(view, what, [hit]), ()


def ask_signal_of_all(view: TopView, snapshot: RunsSnapshot) -> Result:
    """Ask which signal all runs that are RUNNING and shown are to get."""
    rows = [row for row in shown_runs(snapshot, view) if row.status == RUNNING]
    hit = [processes for row in rows if (processes := _processes_of(Item(row))[1])]
    if not hit:
        return replace(view, message="no run that is shown is RUNNING with a process that could get a signal"), ()
    everyone = sum(row.status == RUNNING for row in snapshot.rows)
    hidden = f" ({everyone - len(rows)} more hidden by the filter get none)" if everyone > len(rows) else ""
    return _menu(view, f"{plural(len(rows), 'RUNNING run')}{hidden}", hit), ()


def _menu(view: TopView, what: str, hit: Sequence[Sequence[tuple[Identity, str]]]) -> TopView:
    """The menu for the processes of some runs, of each its own one first; one that several runs have is hit once."""
    names: dict[Identity, str] = {}
    for identity, name in (process for processes in hit for process in processes):
        names.setdefault(identity, name)
    below = frozenset(names) - {processes[0][0] for processes in hit}
    request = SendSignal(what, tuple(names), tuple(names.values()), below)
    return replace(opened(view, "signals"), choice=0, request=request)


def with_signal(request: SendSignal, name: str) -> SendSignal:
    """The request for a signal, to those of its processes that this one is for."""
    both = zip(request.targets, request.names, strict=True)
    kept = [each for each in both if name in _FOR_THE_TREE or each[0] not in request.below]
    targets, names = zip(*kept)
    return replace(request, targets=targets, names=names, signal=name)


def _asked_item(view: TopView, snapshot: RunsSnapshot) -> Item | None:
    """The selected row; on a page that is about a run, that run."""
    if view.screen == "main":
        return selected_item(snapshot, view)
    row = run_row(snapshot, view.selected.path)
    return None if row is None else Item(row)


def _processes_of(item: Item) -> tuple[str, list[tuple[Identity, str]]]:
    """What is hit, in words, and its processes with their names, the top of a tree first."""
    row, node = item.row, item.node
    run = row.run
    if node is None:
        tree = (each for each in row.tree if each.kind == PROCESS)
        found = [(each.identity, _named(run.name, each.name, each.identity)) for each in tree]
        if not found and run.process is not None and row.status in (RUNNING, UNKNOWN) and row.is_alive is not False:
            found = [(run.process, _named(run.name, run.script or "its process", run.process))]
        return f"run {run.name}", found
    at = row.tree.index(node)
    of_thread = (each for each in reversed(row.tree[: at + 1]) if each.kind == PROCESS)
    process = next(of_thread, None)
    if process is None:
        return f"thread {node.identity.pid}", []
    return f"process {process.identity.pid} of run {run.name}", [
        (process.identity, _named(run.name, process.name, process.identity))
    ]


def _named(run: str, name: str, identity: Identity) -> str:
    return f"{run}: PID {identity.pid} {name}"


def choose_signal(by: int) -> Act:
    """Move in the menu of signals."""

    def act(view: TopView, snapshot: RunsSnapshot) -> Result:
        return replace(view, choice=max(0, min(len(SIGNALS) - 1, view.choice + by))), ()

    return act


def ask_once_more(view: TopView, snapshot: RunsSnapshot) -> Result:
    """Go from the menu of signals to the question."""
    if not isinstance(view.request, SendSignal):
        return cancel(view, snapshot)
    request = with_signal(view.request, SIGNALS[view.choice][0])
    return replace(view, screen="confirm", request=request, typed="", scroll=0), ()


# ---------------------------------------------------------------- deleting


def ask_delete(view: TopView, snapshot: RunsSnapshot) -> Result:
    """Ask whether the files of the selected run are to be deleted; never of one that may be alive."""
    item = _asked_item(view, snapshot)
    if item is None:
        return replace(view, message=_NOTHING), ()
    if refusal := _why_not_deleted(item.row):
        return replace(view, message=f"{item.row.run.name} is not deleted: {refusal}"), ()
    return replace(opened(view, "confirm"), request=DeleteRun(item.row.run), typed=""), ()


def _why_not_deleted(row: RunRow) -> str:
    return "it is running; end it first (k)" if row.status == RUNNING or row.is_alive else ""


def confirm(view: TopView, snapshot: RunsSnapshot) -> Result:
    """Do what was asked for, if the phrase was typed."""
    request, typed = view.request, view.typed
    view, _ = go_back(view, snapshot)
    if request is None or typed.strip() != PHRASE:
        return replace(view, message="cancelled: nothing was done"), ()
    if isinstance(request, SendSignal):
        asked = f"SIG{request.signal} to {plural(len(request.targets), 'process', 'processes')}"
        return replace(view, message=f"{asked}: asked for"), (request,)
    row = run_row(snapshot, request.run.path)
    refusal = "" if row is None else _why_not_deleted(row)
    if row is not None and not is_same_attempt(row.run, request.run):
        refusal = "it was started again since it was asked for; ask again"
    if refusal:
        return replace(view, message=f"{request.run.name} is not deleted: {refusal}"), ()
    return replace(view, screen="main", back="main", scroll=0, message=f"deleting {request.run.name}"), (request,)


# ---------------------------------------------------------------- variables


def open_editor(view: TopView, snapshot: RunsSnapshot) -> Result:
    """Show the variables of the selected run."""
    item = _asked_item(view, snapshot)
    if item is None:
        return replace(view, message=_NOTHING), ()
    variables = item.row.run.variables
    first = variables[0].name if variables else ""
    return replace(opened(view, "editor"), selected=item.place, variable=first), ()


def edited(view: TopView, snapshot: RunsSnapshot) -> tuple[RunRow | None, Variable | None]:
    """The run that the editor shows and its selected variable, None where they are gone."""
    row = run_row(snapshot, view.selected.path)
    variables = () if row is None else row.run.variables
    return row, next((each for each in variables if each.name == view.variable), None)


def choose_variable(by: Callable[[TopView], int]) -> Act:
    """Move in the list of variables."""

    def act(view: TopView, snapshot: RunsSnapshot) -> Result:
        row, variable = edited(view, snapshot)
        if row is None or not row.run.variables:
            return view, ()
        names = [each.name for each in row.run.variables]
        at = 0 if variable is None else names.index(variable.name) + by(view)
        return replace(view, variable=names[max(0, min(len(names) - 1, at))]), ()

    return act


def start_edit(view: TopView, snapshot: RunsSnapshot) -> Result:
    """Begin to type a new value of the selected variable."""
    row, variable = edited(view, snapshot)
    if row is None or variable is None:
        return replace(view, message="there is no variable: the script names them with track_variables"), ()
    if refusal := _why_not_edited(row, variable):
        return replace(view, message=refusal), ()
    value = variable.value if variable.pending is None else variable.pending
    if len(str(value)) >= MAX_VALUE:  # it is cut there when it is read
        return replace(view, message=f"{variable.name}: too long to be edited here"), ()
    return replace(view, screen="edit", typed="" if value is None else str(value)), ()


def _why_not_edited(row: RunRow, variable: Variable) -> str:
    if row.status in (RUNNING, UNKNOWN):
        return why_read_only(variable)
    return f"the run {'was killed' if row.status == KILLED else 'has ended'}: nobody would read it"


def send_edit(view: TopView, snapshot: RunsSnapshot) -> Result:
    """Send what was typed, if it is of the variable's type."""
    row, variable = edited(view, snapshot)
    if row is None or variable is None:
        return replace(view, screen="editor", typed="", message="the variable is there no more"), ()
    if refusal := _why_not_edited(row, variable):
        return replace(view, screen="editor", typed="", message=refusal), ()
    try:
        convert(view.typed, variable.type)
    except ValueError as error:
        return replace(view, message=str(error)), ()
    edit = EditVariable(row.run, variable.name, view.typed)
    said = f"{variable.name}: asked for; VALUE changes when the run answers"
    return replace(view, screen="editor", typed="", message=said), (edit,)


# ---------------------------------------------------------------- outputs


def open_output(view: TopView, snapshot: RunsSnapshot) -> Result:
    """Show what the selected run wrote."""
    item = _asked_item(view, snapshot)
    if item is None:
        return replace(view, message=_NOTHING), ()
    run = item.row.run
    shown = OUTPUTS[1] if run.stdout_path is None and run.stderr_path is not None else OUTPUTS[0]
    view = replace(opened(view, "output"), selected=item.place, shown=shown, panes=(), aside=0)
    return view, (OpenOutput(run),)


def show_other_output(view: TopView, snapshot: RunsSnapshot) -> Result:
    """Go on to the next of stdout, stderr and both."""
    return replace(view, shown=OUTPUTS[(OUTPUTS.index(view.shown) + 1) % len(OUTPUTS)]), ()
