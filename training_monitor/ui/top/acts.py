"""The actions of `top` on runs: signals, deleting, edits, outputs, with their confirmations. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from training_monitor.core.masking import MASK
from training_monitor.core.units import known_number, plural
from training_monitor.runs.progress_file import MAX_VALUE, convert, why_read_only
from training_monitor.runs.rows import is_same_attempt
from training_monitor.runs.values import KILLED, PROCESS, RUNNING, UNKNOWN, Run, RunRow, RunsSnapshot, Scalar, Variable
from training_monitor.targets.proc_stat import Identity
from training_monitor.ui.kit.view import Do, asked, cancel, go_back, opened, said
from training_monitor.ui.top.table import COLUMNS, about_run
from training_monitor.ui.top.view import (
    OUTPUTS,
    SEARCHES,
    EditVariable,
    Item,
    SendSignal,
    TopView,
    run_row,
    shown_runs,
)

Act = Callable[[TopView, RunsSnapshot], TopView]

PHRASE = "yes"
SIGNALS: tuple[tuple[str, str], ...] = (
    ("TERM", "ask it to terminate"),
    ("INT", "like Ctrl+C in its terminal"),
    ("KILL", "kill it at once; it cannot save anything"),
    ("STOP", "suspend it until SIGCONT"),
    ("CONT", "resume it after SIGSTOP"),
    ("HUP", "like closing its terminal"),
    ("USR1", "action defined by the script"),
    ("USR2", "action defined by the script"),
    ("QUIT", "terminate it with a core dump"),
)
_LEAP, _ROUNDING = 10.0, 1e-9  # the factor from which on a new value is asked for once more
# The other signals go to the run's own process only, which ends or signals its children: a worker or a `tee` that died
# earlier would lose its last output.
_FOR_THE_TREE = ("KILL", "STOP", "CONT")


def on_run(act: Callable[[TopView, RunsSnapshot, Item], TopView]) -> Act:
    """Return an action on the selected row, or on the run that a page shows."""

    def found(view: TopView, snapshot: RunsSnapshot) -> TopView:
        item = about_run(snapshot, view)
        return said(view, "nothing is selected") if item is None else act(view, snapshot, item)

    return found


# ---------------------------------------------------------------- signals


def ask_signal(view: TopView, snapshot: RunsSnapshot, item: Item) -> TopView:
    """Open the menu of signals for a run, a process, or the process of a thread."""
    what, hit = _processes_of(item)
    if not hit:
        return said(view, f"{what} has no process to signal")
    return _menu(view, what, [(item.row.run, hit)])


def ask_signal_of_all(view: TopView, snapshot: RunsSnapshot) -> TopView:
    """Open the menu of signals for all shown runs that are RUNNING."""
    rows = [row for row in shown_runs(snapshot, view) if row.status == RUNNING]
    hit = [(row.run, processes) for row in rows if (processes := _processes_of(Item(row))[1])]
    if not hit:
        return said(view, "none of the RUNNING runs shown has a process to signal")
    everyone = sum(row.status == RUNNING for row in snapshot.rows)
    hidden = f" ({everyone - len(rows)} more, hidden by the filter, receive no signal)" if everyone > len(rows) else ""
    return _menu(view, f"{plural(len(rows), 'RUNNING run')}{hidden}", hit, f"signal {len(rows)}")


def _menu(
    view: TopView, what: str, hit: Sequence[tuple[Run, Sequence[tuple[Identity, str]]]], phrase: str = PHRASE
) -> TopView:
    """Open the menu for the processes of some runs, each run's own process first; shared processes are listed once."""
    names: dict[Identity, str] = {}
    runs: dict[Identity, tuple[Run, ...]] = {}
    for run, processes in hit:
        for identity, name in processes:
            names.setdefault(identity, name)
            runs[identity] = (*runs.get(identity, ()), run)
    below = frozenset(names) - {processes[0][0] for _, processes in hit}
    request = SendSignal(what, tuple(names), tuple(names.values()), tuple(runs.values()), below, phrase)
    return replace(opened(view, "signals"), choice=0, request=request)


def with_signal(request: SendSignal, name: str) -> SendSignal:
    """Return the request for one signal, with the processes that should get it."""
    all_of_them = zip(request.targets, request.names, request.runs, strict=True)
    kept = [each for each in all_of_them if name in _FOR_THE_TREE or each[0] not in request.below]
    targets, names, runs = zip(*kept)
    return replace(request, targets=targets, names=names, runs=runs, signal=name)


def _processes_of(item: Item) -> tuple[str, list[tuple[Identity, str]]]:
    """Return a description of the item and its processes with their names, the root of a tree first."""
    row, node = item.row, item.node
    run = row.run
    if node is None:
        tree = (each for each in row.tree if each.kind == PROCESS)
        found = [(each.identity, _named(run.name, each.name, each.identity)) for each in tree]
        if not found and run.process is not None and row.status in (RUNNING, UNKNOWN) and row.is_alive is not False:
            found = [(run.process, _named(run.name, run.script or "its process", run.process))]
        return f"run {run.name}", found
    above = reversed(row.tree[: row.tree.index(node) + 1])
    process = next(each for each in above if each.kind == PROCESS)  # a tree begins with one
    name = _named(run.name, process.name, process.identity)
    return f"process {process.identity.pid} of run {run.name}", [(process.identity, name)]


def _named(run: str, name: str, identity: Identity) -> str:
    return f"{run}: PID {identity.pid} {name}"


def move_in(rows: Sequence[object]) -> Callable[[Callable[[TopView], int]], Act]:
    """Return a function that makes actions which move in a menu of these rows."""

    def choose(by: Callable[[TopView], int]) -> Act:
        return lambda view, snapshot: replace(view, choice=max(0, min(len(rows) - 1, view.choice + by(view))))

    return choose


def ask_once_more(view: TopView, snapshot: RunsSnapshot) -> TopView:
    """Go from the menu of signals to the confirmation."""
    if not isinstance(view.request, SendSignal):
        return cancel(view)
    request = with_signal(view.request, SIGNALS[view.choice][0])
    return replace(view, screen="confirm", request=request, phrase=request.phrase, typed="", scroll=0)


# ---------------------------------------------------------------- columns


def open_columns(view: TopView, snapshot: RunsSnapshot) -> TopView:
    """Open the choice of columns."""
    return replace(opened(view, "columns"), choice=0, draft=view.hidden)


def toggle_column(view: TopView, snapshot: RunsSnapshot) -> TopView:
    """Hide the column under the cursor, or show it again."""
    return replace(view, draft=view.draft ^ {COLUMNS[view.choice].title})


def keep_columns(view: TopView, snapshot: RunsSnapshot) -> TopView:
    """Show the chosen columns, now and at the next start."""
    return replace(go_back(view), hidden=view.draft, across=0, todo=(Do("keep-columns", view.draft),))


# ---------------------------------------------------------------- deleting


def ask_delete(view: TopView, snapshot: RunsSnapshot, item: Item) -> TopView:
    """Ask for confirmation to delete the files of a run; refused for one that may be alive."""
    if refusal := _why_not_deleted(item.row):
        return said(view, f"not deleted: {item.row.run.name}: {refusal}")
    run = item.row.run
    return replace(asked(view, Do("delete", run), PHRASE), measured=None, todo=(Do("measure", run),))


def _why_not_deleted(row: RunRow) -> str:
    return "it is running; terminate it first (key k)" if row.status == RUNNING or row.is_alive else ""


def confirm(view: TopView, snapshot: RunsSnapshot, request: SendSignal | EditVariable | Do) -> TopView:
    """Execute the confirmed request."""
    if isinstance(request, EditVariable):
        return _confirm_edit(view, snapshot, request)
    if isinstance(request, SendSignal):
        to = plural(len(request.targets), "process", "processes")
        return replace(view, message=f"sending SIG{request.signal} to {to}", todo=(request,))
    run = request.about
    row = run_row(snapshot, run.path)
    refusal = "" if row is None else _why_not_deleted(row)
    if row is not None and not is_same_attempt(row.run, run):
        refusal = "it has restarted since your request; try again"
    if refusal:
        return said(view, f"not deleted: {run.name}: {refusal}")
    view = replace(view, screen="main", back="main", scroll=0, todo=(request,))
    return said(view, f"deleting {run.name}")


# ---------------------------------------------------------------- variables


def open_editor(view: TopView, snapshot: RunsSnapshot, item: Item) -> TopView:
    """Open the variables of a run."""
    first = next((each.name for each in item.row.run.variables), "")
    return replace(opened(view, "editor"), selected=item.place, variable=first)


def edited(view: TopView, snapshot: RunsSnapshot) -> tuple[RunRow | None, Variable | None]:
    """Return the run in the editor and its selected variable, None where they are gone."""
    row = run_row(snapshot, view.selected.path)
    variables = () if row is None else row.run.variables
    return row, next((each for each in variables if each.name == view.variable), None)


def choose_variable(by: Callable[[TopView], int]) -> Act:
    """Return an action that moves in the list of variables."""

    def act(view: TopView, snapshot: RunsSnapshot) -> TopView:
        row, variable = edited(view, snapshot)
        if row is None or not row.run.variables:
            return view
        names = [each.name for each in row.run.variables]
        at = 0 if variable is None else names.index(variable.name) + by(view)
        return replace(view, variable=names[max(0, min(len(names) - 1, at))])

    return act


def start_edit(view: TopView, snapshot: RunsSnapshot) -> TopView:
    """Begin to type a new value of the selected variable."""
    row, variable = edited(view, snapshot)
    if row is None or variable is None:
        return said(view, "no variables to edit: the script selects them with track_variables")
    if refusal := _why_not_edited(row, variable):
        return said(view, refusal)
    value = variable.value if variable.pending is None else variable.pending
    if len(str(value)) >= MAX_VALUE:  # truncated there when it was read
        return said(view, f"the value of {variable.name} is too long to edit here")
    return replace(view, screen="edit", typed="" if value in (None, MASK) else str(value))


def _why_not_edited(row: RunRow, variable: Variable) -> str:
    if row.status in (RUNNING, UNKNOWN):
        return why_read_only(variable)
    return f"the run {'was killed' if row.status == KILLED else 'has ended'}: no process would read the new value"


def send_edit(view: TopView, snapshot: RunsSnapshot) -> TopView:
    """Send the typed value if it has the variable's type; ask once more if it is far from the present one."""
    row, variable = edited(view, snapshot)
    closed = replace(view, screen="editor", typed="")
    if row is None or variable is None:
        return said(closed, "the variable no longer exists")
    if refusal := _why_not_edited(row, variable):
        return said(closed, refusal)
    try:
        value = convert(view.typed, variable.type)
    except ValueError as error:
        return said(view, str(error))
    request = EditVariable(row.run, variable.name, view.typed)
    return asked(closed, request, PHRASE) if describe_leap(variable.value, value) else _send_value(closed, request)


def describe_leap(old: Scalar, new: Scalar) -> str:
    """Say how a number would leap: tenfold or more, to a tenth or less, over 0, from or to 0; else empty."""
    before, after = known_number(old), known_number(new)
    if before is None or after is None or before == after:
        return ""
    if before == 0 or after == 0:
        return "it was 0" if before == 0 else "it becomes 0"
    factor = after / before
    if factor < 0:
        return "its sign changes"
    if factor > _LEAP - _ROUNDING:
        return f"{factor:.3g} times its old value"
    return f"{factor:.3g} times its old value" if factor < 1 / _LEAP + _ROUNDING else ""


def _send_value(view: TopView, request: EditVariable) -> TopView:
    told = f"sending {request.variable} = {request.text} to {request.run.name}"
    return replace(view, message=told, todo=(request,))


def _confirm_edit(view: TopView, snapshot: RunsSnapshot, request: EditVariable) -> TopView:
    row, variable = edited(view, snapshot)
    if row is None or variable is None or not is_same_attempt(row.run, request.run):
        return said(view, f"not changed: {request.run.name} has ended or restarted since your request")
    refusal = _why_not_edited(row, variable)
    return said(view, refusal) if refusal else _send_value(view, replace(request, run=row.run))


# ---------------------------------------------------------------- outputs


def open_output(view: TopView, snapshot: RunsSnapshot, item: Item) -> TopView:
    """Open the output of a run."""
    run = item.row.run
    shown = OUTPUTS[1] if run.stdout_path is None and run.stderr_path is not None else OUTPUTS[0]
    view = replace(opened(view, "output"), selected=item.place, shown=shown, panes=(), aside=0)
    return replace(view, todo=(Do("open", run),))


def show_other_output(view: TopView, snapshot: RunsSnapshot) -> TopView:
    """Show the next of stdout, stderr and both."""
    return replace(view, shown=OUTPUTS[(OUTPUTS.index(view.shown) + 1) % len(OUTPUTS)])


def search_typed(view: TopView, snapshot: RunsSnapshot) -> TopView:
    """Search for the typed text, or for the previous one, in the direction of the screen."""
    words, backwards = view.typed or view.searched, view.screen == SEARCHES[0]
    todo = (Do(SEARCHES[not backwards], words),) if words else ()
    return replace(view, screen="output", typed="", searched=words, backwards=backwards, todo=todo)


def go_to_typed(view: TopView, snapshot: RunsSnapshot) -> TopView:
    """Show what is at the typed per cent of the outputs."""
    text, view = view.typed.strip().removesuffix("%"), replace(view, screen="output", typed="")
    try:
        percent = float(text)
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 100:
        return said(view, f"not moved: expected a percentage from 0 to 100, but got {text or 'nothing'}")
    return replace(view, todo=(Do("percent", percent),))


def search_again(*, turned: bool) -> Act:
    """Return an action that continues the search, in its direction or in the other one."""

    def act(view: TopView, snapshot: RunsSnapshot) -> TopView:
        if not view.searched:
            return said(view, "no search yet: press / to search")
        return replace(view, todo=(Do(SEARCHES[view.backwards is turned], view.searched),))

    return act


# ---------------------------------------------------------------- panes of tmux


def in_pane(screen: str, here: Callable[[TopView, RunsSnapshot, Item], TopView]) -> Act:
    """Return an action that opens a screen of a run in a pane of tmux beside this one; without tmux, here."""

    def act(view: TopView, snapshot: RunsSnapshot, item: Item) -> TopView:
        if view.has_tmux:
            return replace(view, todo=(Do("pane", (screen, item.row.run.path)),))
        return said(here(view, snapshot, item), "opened on this screen; inside tmux, it would open in a separate pane")

    return on_run(act)
