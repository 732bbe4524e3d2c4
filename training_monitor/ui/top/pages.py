"""The pages of `top`: details of a run, variables, signals, confirmation, messages, help, and its outputs. Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from training_monitor.core.units import format_bytes, format_duration, known_number, plural
from training_monitor.runs.progress_file import convert
from training_monitor.runs.rows import MIB, describe_attempts
from training_monitor.runs.values import (
    FAILED,
    UNKNOWN,
    Estimate,
    MetricHistory,
    Run,
    RunRow,
    RunSize,
    RunsSnapshot,
    Variable,
)
from training_monitor.ui.kit.charts import draw_curve
from training_monitor.ui.kit.page import LABEL, fact, flowed, newest_first, page, question, wrapped
from training_monitor.ui.kit.text import (
    MOST_CHARACTERS,
    NOT_KNOWN,
    Glyphs,
    Line,
    Piece,
    broken,
    cells,
    clip_middle,
    fill,
    format_date,
    format_memory,
    format_moment,
    format_number,
    format_percent,
    format_seconds,
    rule,
    safe,
    wrap,
)
from training_monitor.ui.kit.view import MARGIN, Column, Do, Frame, fit_columns, heading_line, row_line
from training_monitor.ui.top.acts import SIGNALS, describe_leap, edited, with_signal
from training_monitor.ui.top.main import problem_of, problem_says_verdict
from training_monitor.ui.top.table import COLUMNS, format_rate, status_style, status_text
from training_monitor.ui.top.view import (
    BOTH,
    EditVariable,
    Measured,
    Pane,
    Searching,
    SendSignal,
    TopView,
    run_row,
)
from training_monitor.verdict.judge import ENDS

GONE = "this run no longer exists: its file was deleted"
_NO_PATH = (
    "this run has no file for its {}: create one with TrainingMonitor(..., tee_outputs=True), or start the script"
    " with its output redirected to a file"
)
_LONG = (f"{title} {width}" for width in range(24, 129, 8) for title in ("VALUE", "PENDING"))  # while space is left
_STEPS = ", ".join(("NAME 10, VALUE 10, STATE 10, TYPE 5, PENDING 10, NAME 24, VALUE 16, PENDING 16, STATE 30", *_LONG))
_USUAL = 16  # cells of a value
_MOST_OTHERS = 5  # values of other runs beside one
_METRIC = 12  # cells of a metric's value
_ABOVE = 3  # lines of the body before the variables


# ---------------------------------------------------------------- one run


def draw_detail(snapshot: RunsSnapshot, view: TopView) -> Frame[TopView]:
    """Draw all that is known of the selected run."""
    row, glyphs = run_row(snapshot, view.selected.path), view.glyphs
    if row is None:
        return page(view, [("run", "bold")], [[(GONE, "warn")]])
    return page(view, run_title(row, glyphs), _about(row, snapshot, view))


def run_title(row: RunRow, glyphs: Glyphs) -> list[Piece]:
    """Format a run's name and status, as in the table."""
    status = UNKNOWN if row.status == UNKNOWN else status_text(row)
    return [(f"{safe(row.run.name, glyphs)} ", "bold"), (safe(status, glyphs), status_style(row))]


def resource_line(row: RunRow) -> str:
    """Format the process of a run and the resources of its tree; of a run that has ended, only the PID is left."""
    pid = NOT_KNOWN if row.run.process is None else str(row.run.process.pid)
    if row.verdict.state in ENDS and not row.processes:
        return f"PID {pid}"
    cpu = NOT_KNOWN if row.cpu_percent is None else f"{format_percent(row.cpu_percent)}%"
    counts = (("processes", row.processes), ("threads", row.threads))
    counted = "  ".join(f"{NOT_KNOWN if count is None else count} {word}" for word, count in counts)
    ram, gpu = format_memory(row.rss_bytes), format_memory(row.gpu_mib, MIB)
    return f"PID {pid}  CPU {cpu}  RAM {ram}  GPU {gpu}  {counted}"


def progress_line(row: RunRow) -> str:
    """Format the progress, speed and ETA of a run."""
    run = row.run
    steps = [("epoch", run.epoch, run.total_epochs), ("batch", run.batch, run.total_batches)]
    if run.total_steps is not None:
        steps.append(("step", run.step, run.total_steps))
    parts = [run.phase or "no phase", *(_of(name, at, total) for name, at, total in steps if at is not None)]
    if run.validation_batch is not None:
        parts.append(_of("validation batch", run.validation_batch, run.total_validation_batches))
    if row.rate is not None:
        parts.append(f"rate {format_rate(row.rate)}")
    if row.eta_seconds is not None:
        parts.append(f"ETA {format_seconds(row.eta_seconds)}")
    return "  ".join(parts)


def _of(name: str, at: int | None, total: int | None) -> str:
    return f"{name} {at}" + (f" of {total}" if total is not None else "")


def _about(row: RunRow, snapshot: RunsSnapshot, view: TopView) -> list[Sequence[Piece]]:
    run = row.run
    body: list[Sequence[Piece]] = []
    problem, verdict = problem_of(row), row.verdict
    body += wrapped(problem, "warn", view) if problem else []
    if not problem_says_verdict(row):
        state = "" if verdict.state in ENDS else f"{verdict.state}: "  # the judge begins with it
        body += fact("verdict", f"{state}{verdict.reason}", view)
    body += [line for remedy in verdict.remedies for line in fact("try", remedy, view)]
    numbers = (("progress", progress_line(row)), ("resources", resource_line(row)), *_times(run))
    for name, text in numbers:
        body += flowed(name, [[(view.safe(each), "")] for each in text.split("  ")], view)
    body += [line for name, text in _facts(row, snapshot) if text for line in fact(name, text, view)]
    body += [[("metrics", "bold")]] if run.metrics else []
    names = {name: f"  {view.safe(name)}" for name in run.metrics}
    label = max(LABEL, min(view.width // 2, max(map(cells, names.values()), default=0) + 1))
    metrics = ((text, _metric(run, name, view, label)) for name, text in names.items())
    return body + [line for name, text in metrics for line in fact(name, text, view, least=label)]


def _metric(run: Run, name: str, view: TopView, label: int) -> str:
    """Format the value of a metric, and beside it its course over the run, behind a label of so many cells."""
    value, values = _shown(run.metrics[name]), run.history.get(name, MetricHistory()).values
    room = min(len(values), view.width - label - _METRIC)
    return f"{value.ljust(_METRIC)}{draw_curve(values, room, view.glyphs)}" if room > 1 else value


def _shown(value: object) -> str:
    number = None if isinstance(value, int) else known_number(value)
    if number is None:
        return NOT_KNOWN if value is None else str(value)
    return format_number(number)


def _times(run: Run) -> list[tuple[str, str]]:
    spans = (("run", run.run), ("epoch", run.epoch_time), ("training", run.training), ("validation", run.validation))
    return [(name, _span(times)) for name, times in spans if times != Estimate()]


def _span(times: Estimate) -> str:
    parts = (("elapsed", times.elapsed), ("remaining", times.remaining), ("total", times.total))
    shown = [f"{word} {format_seconds(value)}" for word, value in parts if value is not None]
    return "  ".join([*shown, *([] if times.rate is None else [f"rate {format_rate(times.rate)}"])])


def _date(at: float, now: float) -> str:
    """Format a time, and how long ago it was."""
    ago = known_number(now - at)
    return format_date(at) + (f", {format_duration(ago)} ago" if ago is not None and ago >= 0 else "")


def _facts(row: RunRow, snapshot: RunsSnapshot) -> tuple[tuple[str, str], ...]:
    run, process = row.run, row.run.process
    host = process and process.hostname
    times = (
        ("started", run.started_at),
        ("ended", run.ended_at),
        ("last batch", run.step_at),
        ("updated", run.updated_at),
    )
    return (
        ("script", run.script or ""),
        ("host", host or ""),
        *((name, _date(at, snapshot.timestamp)) for name, at in times if at is not None),
        ("attempt", describe_attempts(run)),
        ("config", ", ".join(f"{name}={value}" for name, value in run.config.items())),
        ("differs", _differences(run, [each.run for each in snapshot.rows])),
        ("error", "" if row.status == FAILED else run.last_words or ""),  # there the problem has it
        ("file", run.path),
        ("folder", run.folder or ""),
        ("stdout", run.stdout_path or ""),
        ("stderr", run.stderr_path or ""),
        ("wandb", run.wandb_url or ""),
        ("variables", ", ".join(f"{each.name}={_value(each)}" for each in run.variables)),
    )


def _differences(run: Run, others: Sequence[Run]) -> str:
    """Format the settings in which a run differs from others that have them, with the values of these."""
    found = []
    for name, value in run.config.items():
        values = dict.fromkeys(str(each.config[name]) for each in others if each.config.get(name, value) != value)
        if values:
            found.append(f"{name}={value} (others: {', '.join(itertools.islice(values, _MOST_OTHERS))})")
    return "; ".join(found)


def _value(variable: Variable) -> str:
    return NOT_KNOWN if variable.value is None else str(variable.value)


# ---------------------------------------------------------------- variables

_FIELDS: tuple[Column[tuple[Variable, Glyphs]], ...] = (
    Column("NAME", "<", lambda cell, width: safe(cell[0].name, cell[1])),
    Column("VALUE", "<", lambda cell, width: safe(_value(cell[0]), cell[1])),
    Column("PENDING", "<", lambda cell, width: "" if cell[0].pending is None else safe(cell[0].pending, cell[1])),
    Column("TYPE", "<", lambda cell, width: safe(cell[0].type, cell[1])),
    Column("STATE", "<", lambda cell, width: safe(state_of(cell[0])[0], cell[1])),
)


def draw_editor(snapshot: RunsSnapshot, view: TopView) -> Frame[TopView]:
    """Draw the run's progress and resources, and its variables."""
    row, chosen = edited(view, snapshot)
    if row is None:
        return page(view, [("variables", "bold")], [[(GONE, "warn")]])
    variables = row.run.variables
    if chosen is None and variables and view.screen == "editor":  # not while a value is typed for another variable
        chosen = variables[0]
        view = replace(view, variable=chosen.name)
    problem = problem_of(row)
    body: list[Sequence[Piece]] = [
        [(view.safe(problem), "warn")] if problem else [(view.safe(progress_line(row)), "")],
        [(resource_line(row), "dim")],
        *_variable_lines(variables, chosen, view),
    ]
    title = [*run_title(row, view.glyphs), (f"  {plural(len(variables), 'variable')}", "")]
    at, room = _ABOVE + variables.index(chosen) if chosen else 0, view.height - 1
    scroll = max(at - room + 1, min(view.scroll, max(0, at - _ABOVE)))
    return page(replace(view, scroll=scroll), title, body)


def _variable_lines(variables: Sequence[Variable], chosen: Variable | None, view: TopView) -> Sequence[Sequence[Piece]]:
    if not variables:
        return [[], [("no variables to edit: the script selects them with monitor.track_variables({...})", "dim")]]
    needs = {"NAME": max(10, *(cells(each.name) for each in variables))}
    needs["VALUE"] = max(_USUAL, *(cells(view.safe(each.value)) for each in variables))
    pending = [cells(view.safe(each.pending)) for each in variables if each.pending is not None]
    needs["PENDING"] = max(_USUAL, *pending) if pending else len("PENDING")
    needs["STATE"] = max(10, *(cells(view.safe(state_of(each)[0])) for each in variables))
    layout = fit_columns(_FIELDS, _STEPS, view.width - MARGIN, needs, "STATE")
    lines = [heading_line(layout, view)]
    for each in variables:
        base, mark = ("selected", "> ") if each is chosen else ("", "  ")
        styles = {"STATE": base or state_of(each)[1]}
        lines.append(row_line(mark, layout, (each, view.glyphs), styles, view, base))
    return lines


def state_of(variable: Variable) -> tuple[str, str]:
    """Return the result of the last edit, or that there can be none, and its style; empty without an edit."""
    if variable.pending is not None:
        return "pending", "warn"
    if variable.error:
        return f"refused: {variable.error}", "bad"
    if not variable.is_editable:
        return "read-only", "dim"
    return ("applied", "good") if variable.edit is not None else ("", "")


# ---------------------------------------------------------------- columns


def draw_columns(snapshot: RunsSnapshot, view: TopView) -> Frame[TopView]:
    """Draw the columns beside the name, each with whether it is shown."""
    body: list[Sequence[Piece]] = []
    for number, column in enumerate(COLUMNS):
        style, mark = ("selected", ">") if number == view.choice else ("", " ")
        sign = " " if column.title in view.draft else "x"
        body.append([(f"{mark} [{sign}] {column.heading or column.title}", style)])
    count = sum(column.title not in view.draft for column in COLUMNS)
    title = [("columns", "bold"), (f"  {count} of {len(COLUMNS)} columns shown, besides the name", "")]
    at = max(0, view.choice - view.height + 2)
    return page(replace(view, scroll=at), title, body)


# ---------------------------------------------------------------- menu and confirmation


def draw_signals(snapshot: RunsSnapshot, view: TopView) -> Frame[TopView]:
    """Draw the menu of signals, and the processes that would get one."""
    request = view.request
    body: list[Sequence[Piece]] = []
    for number, (name, means) in enumerate(SIGNALS):
        style, mark = ("selected", ">") if number == view.choice else ("", " ")
        body.append([(f"{mark} SIG{name:<6}", style), (means, style or "dim")])
    if isinstance(request, SendSignal):
        body += [[], *_hit(with_signal(request, SIGNALS[view.choice][0]), view)]
    what = view.safe(request.what) if isinstance(request, SendSignal) else ""
    at = max(0, view.choice - view.height + 2)
    return page(replace(view, scroll=at), [(f"send a signal to {what}", "bold")], body)


def draw_confirm(snapshot: RunsSnapshot, view: TopView) -> Frame[TopView]:
    """Draw what would be done, and the phrase to type."""
    request = view.request
    if isinstance(request, SendSignal):
        means = next(text for name, text in SIGNALS if name == request.signal)
        title = f"send SIG{request.signal} to {view.safe(request.what)}?"
        body = [*wrapped(f"SIG{request.signal}: {means}.", "warn", view), [], *_hit(request, view)]
    elif isinstance(request, EditVariable):
        title = f"set {view.safe(request.variable)} of {view.safe(request.run.name)}?"
        body = _leap(request, edited(view, snapshot)[1], view)
    elif isinstance(request, Do):
        title = f"delete {view.safe(request.about.name)}?"
        body = _deleted(request.about, run_row(snapshot, request.about.path), view)
    else:
        title, body = "", []
    return question(view, title, body)


def _hit(request: SendSignal, view: TopView) -> list[list[Piece]]:
    count = len(request.names)
    told = f"The signal goes to {plural(count, 'process', 'processes')}{', in this order' if count > 1 else ''}:"
    return [[(told, "")], *(line for name in request.names for line in wrapped(name, "", view, "  "))]


def _leap(request: EditVariable, variable: Variable | None, view: TopView) -> list[list[Piece]]:
    """Format a value far from the present one beside that."""
    if variable is None:
        return wrapped("the variable no longer exists", "warn", view)
    with suppress(ValueError):
        leap = describe_leap(variable.value, convert(request.text, variable.type))
        return [*fact("now", _value(variable), view), *fact("new", f"{request.text}  ({leap})", view, style="warn")]
    return wrapped(f"the variable's type has changed to {variable.type}", "warn", view)


def _deleted(run: Run, row: RunRow | None, view: TopView) -> list[list[Piece]]:
    goes = "This permanently deletes the run's progress file, its control file and its output files in the same folder"
    stays = "All other files are kept, including checkpoints"
    if run.folder is not None:
        goes = "This permanently deletes the run's folder, including all checkpoints in it"
        stays = "Files elsewhere are kept"
    measured = view.measured if view.measured and view.measured.path == run.path else Measured(run.path)
    kept = measured.size.kept if measured.size else ()
    body = wrapped(f"{goes}:", "warn", view)
    body += wrapped(run.folder or run.path, "", view, "  ") + wrapped(_size_text(measured), "bold", view, "  ")
    body += wrapped(f"{stays}{':' if kept else '.'}", "", view)
    body += [line for path in kept for line in wrapped(path, "", view, "  ")]
    if row is not None and row.status == UNKNOWN:
        body += wrapped(f"It is unknown whether the run has ended. {row.reason}", "bad", view)
    return body


def _size_text(measured: Measured) -> str:
    if measured.size is not None:
        return format_size(measured.size)
    return f"size unknown: {measured.error}" if measured.error else "counting its files ..."


def format_size(size: RunSize) -> str:
    """Format the bytes and files of a run: 1.2 GiB in 14 files."""
    return f"{format_bytes(size.bytes)} in {plural(size.files, 'file')}"


def draw_messages(snapshot: RunsSnapshot, view: TopView) -> Frame[TopView]:
    """Draw the results of requests and their times, newest first."""
    times = [format_moment(each.at, snapshot.timestamp) for each in view.messages]
    least = max(map(len, times), default=0) + 2
    entries = [fact(time, each.text, view, least=least) for time, each in zip(times, view.messages)]
    return newest_first(view, "message", entries, "no actions requested so far")


def draw_output(snapshot: RunsSnapshot, view: TopView) -> Frame[TopView]:
    """Draw the chosen outputs; hidden ones are named in the title line."""
    room = max(1, view.height // (2 if view.shown == BOTH else 1) - 1)
    lines: list[Line] = []
    for pane in _shown_panes(view):
        lines += [_title(pane, snapshot, view), *_window(pane, view, room)]
    lines = lines or [view.line([("opening ...", "dim")])]
    return Frame(fill(lines, view.width, view.height), replace(view, page=room))


def _shown_panes(view: TopView) -> tuple[Pane, ...]:
    """Return the panes chosen with Tab."""
    return tuple(pane for pane in view.panes if view.shown in (pane.name, BOTH))


def _title(pane: Pane, snapshot: RunsSnapshot, view: TopView) -> Line:
    """Format the line above a window: what happened in it comes before where it is, which may not fit."""
    row = run_row(snapshot, view.selected.path)
    name = "" if row is None else f"{clip_middle(view.safe(row.run.name), view.width // 4, view.glyphs)} "
    hidden = [other.name for other in view.panes if other not in _shown_panes(view)]
    happened = _searching_text(pane.searching) if pane.searching else pane.note or (pane.error if pane.lines else "")
    parts: list[Piece] = [(f"{name}{pane.name}", "bold")]
    parts += [(f"  {view.safe(happened)}", "warn")] if happened else []
    parts += [] if pane.searching else [(f"  {_position_text(pane)}", "")]
    parts += [("  following", "good")] if pane.follows and pane.path and not pane.error and not pane.searching else []
    parts += [(f"  {GONE}", "warn")] if row is None else []
    parts += [(f"  hidden: {', '.join(hidden)} (Tab)", "dim")] if hidden else []
    parts += [(f"  from column {view.aside + 1}", "dim")] if view.aside else []
    return rule(parts, view.width, view.glyphs)


def _searching_text(search: Searching) -> str:
    percent = 100 * search.searched // search.total if search.total else 100
    done = f"{percent}%, {format_bytes(search.searched)} of {format_bytes(search.total)}"
    return f"{done} searched for {search.words}; Esc cancels"


def _position_text(pane: Pane) -> str:
    """Format how far the window is in the file, which it shows to its end while it follows that."""
    if pane.start is None or pane.size is None:
        return ""
    if pane.follows or not pane.size:
        return f"100% of {format_bytes(pane.size)}"
    percent = min(100, 100 * pane.start // pane.size)
    return f"{percent}%  from {format_bytes(pane.start)} of {format_bytes(pane.size)}"


def _window(pane: Pane, view: TopView, room: int) -> tuple[Line, ...]:
    glyphs = view.glyphs
    if pane.path is None:
        rows = wrap(_NO_PATH.format(pane.name), view.width, glyphs)[:room]
    elif pane.error and not pane.lines:
        rows = wrap(view.safe(pane.error), view.width, glyphs)[:room]
    else:
        rows = _rows(pane, view, room)
    style = "warn" if pane.path is None or (pane.error and not pane.lines) else ""
    drawn = (view.line(_marked(row, view.safe(view.searched), style)) for row in rows)
    return fill(drawn, view.width, room)


def _rows(pane: Pane, view: TopView, room: int) -> list[str]:
    """Return the window's lines, wrapped or shifted; while following its end is visible, else its beginning."""
    texts = ["".join(view.safe(part) for part in _parts(line)) for line in pane.lines[-room:]]
    if not view.wraps:
        return [_shifted(text, view.aside) for text in texts]
    rows = [row for text in texts for row in broken(text, view.width)]
    return rows[-room:] if pane.follows else rows[:room]


def _marked(row: str, words: str, style: str) -> list[Piece]:
    """Highlight the searched text in a row."""
    if not words.strip():
        return [(row, style)]
    parts = re.split(f"({re.escape(words)})", row, flags=re.IGNORECASE)
    return [(part, "selected" if number % 2 else style) for number, part in enumerate(parts)]


def _parts(line: str) -> Sequence[str]:
    """Split a long line into pieces short enough for `safe`."""
    return [line[start : start + MOST_CHARACTERS] for start in range(0, len(line), MOST_CHARACTERS)]


def _shifted(text: str, aside: int) -> str:
    """Return the text without its first cells; a wide character that is cut in half leaves a blank."""
    left = aside
    for place, char in enumerate(text):
        if left <= 0 and cells(char) > 0:  # not a combining mark of a hidden character
            return " " * -left + text[place:]
        left -= cells(char)
    return ""
