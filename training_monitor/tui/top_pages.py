"""The screens of `top` that are a page of text: all of a run, menu, question, messages, help. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from training_monitor.policy.run_values import UNKNOWN, Estimate, Run, RunRow, RunsSnapshot, Variable
from training_monitor.tui.numbers_text import NOT_KNOWN, format_date, format_memory, format_number, format_percent
from training_monitor.tui.text import Glyphs, Piece, broken, cells, fit, panel, safe, wrap
from training_monitor.tui.top_acts import PHRASE, SIGNALS, with_signal
from training_monitor.tui.top_columns import COLUMNS, format_rate, format_seconds
from training_monitor.tui.top_keys import keys_of
from training_monitor.tui.top_panels import footer, header, problem_of, problem_says_verdict, stale_line
from training_monitor.tui.top_view import DeleteRun, SendSignal, TopFrame, TopView, run_row, state_style
from training_monitor.units import format_duration, format_sparkline, known_number, plural

GONE = "this run is there no more: its file was deleted"
_LABEL, _LEAST_TEXT = 12, 24  # cells
_HELP_SECTIONS = {
    "main": "the table",
    "filter": "while the name is typed",
    "detail": "one run",
    "editor": "variables",
    "edit": "while a value is typed",
    "output": "stdout and stderr",
    "search": "while the search is typed",
    "signals": "the menu of signals",
    "confirm": "the question before anything is done",
}
_COLUMN_HELP = (
    ("Status", "? where nobody here can see whether it still runs"),
    ("State", "starting, running, slow; stalled, and how long without a step"),
    ("Rate", "batches a second; `each` where one takes longer"),
    ("el rem tot", "time elapsed, remaining, in total: of the run, the epoch, its training and validation"),
    ("CPU", "per cent of one core, over all processes; then the share of all cores"),
    ("RAM GPU", "over all processes, and the share of what there is"),
)
# What is the same on every screen is told once.
_COMMON_HELP = (
    ("Up Down", "a row or a line; the mouse wheel does, too"),
    ("PgUp PgDn", "a page"),
    ("Home End", "to the first, to the last"),
    ("Esc", "back from a page"),
    ("r", "look now, also while paused"),
    ("Ctrl-L", "draw the screen anew"),
    ("?", "this help"),
    ("q", "quit; Ctrl+C does, too"),
    ("Backspace", "erase the last character that was typed; Ctrl-U all"),
)
_COMMON = frozenset("up down page-up page-down wheel-up wheel-down home end r ctrl-l ? q backspace ctrl-u".split())
_SIGNAL_HELP = "KILL, STOP and CONT go to all processes of a run, the others to its own one"


def page(
    snapshot: RunsSnapshot,
    view: TopView,
    title: Sequence[Piece],
    body: Sequence[Sequence[Piece]],
    size: tuple[int, int],
) -> TopFrame:
    """A header, a title, as much of the body as fits from `view.scroll` on, and the keys; `size` is (width, height)."""
    width, height = size
    room = page_room(snapshot, view, width, height)
    lines, scroll = panel(title, body, view.scroll, (width, room), view.options.glyphs)
    above = (header(snapshot, view, width), *stale_line(snapshot, view, width))
    return TopFrame((*above, *lines, *footer(view, width, height)), replace(view, scroll=scroll, page=room))


def page_room(snapshot: RunsSnapshot, view: TopView, width: int, height: int) -> int:
    """How many lines of its body a page shows."""
    return max(1, height - 2 - len(stale_line(snapshot, view, width)) - len(footer(view, width, height)))


def wrapped(text: object, style: str, width: int, glyphs: Glyphs, indent: str = "") -> list[list[Piece]]:
    """A text from outside over as many lines as it takes."""
    lines = _lines(safe(text, glyphs), max(1, width - len(indent)), glyphs)
    return [[(indent + line, style)] for line in lines]


def _lines(text: str, width: int, glyphs: Glyphs) -> list[str]:
    """The text broken at spaces, and where a word is longer than a line, as of a path, in the word."""
    words = (broken(word, width) if cells(word) > width else [word] for word in text.split(" "))
    return wrap(" ".join(part for parts in words for part in parts), width, glyphs)


# ---------------------------------------------------------------- one run


def render_detail(snapshot: RunsSnapshot, view: TopView, width: int, height: int) -> TopFrame:
    """Draw all that is known of the selected run."""
    row, glyphs = run_row(snapshot, view.selected.path), view.options.glyphs
    if row is None:
        return page(snapshot, view, [("run", "bold")], [[(GONE, "warn")]], (width, height))
    return page(snapshot, view, run_title(row, glyphs), _about(row, snapshot.timestamp, width, glyphs), (width, height))


def run_title(row: RunRow, glyphs: Glyphs) -> list[Piece]:
    """A run's name and status."""
    return [(f"{safe(row.run.name, glyphs)} ", "bold"), (safe(row.status, glyphs), state_style(row))]


def resource_line(row: RunRow) -> str:
    """The process of a run and what its tree uses."""
    pid = NOT_KNOWN if row.run.process is None else str(row.run.process.pid)
    cpu = NOT_KNOWN if row.cpu_percent is None else f"{format_percent(row.cpu_percent)}%"
    gpu = NOT_KNOWN if row.gpu_mib is None else f"{row.gpu_mib:.0f} MiB"
    counts = (("processes", row.processes), ("threads", row.threads))
    counted = "  ".join(f"{NOT_KNOWN if count is None else count} {word}" for word, count in counts)
    return f"PID {pid}  CPU {cpu}  RAM {format_memory(row.rss_bytes)}  GPU {gpu}  {counted}"


def progress_line(row: RunRow) -> str:
    """How far a run is, how fast, and for how long still."""
    run = row.run
    steps = [("epoch", run.epoch, run.total_epochs), ("batch", run.batch, run.total_batches)]
    if run.total_steps is not None:
        steps.append(("step", run.step, run.total_steps))
    parts = [run.phase or "no phase", *(_of(name, at, total) for name, at, total in steps if at is not None)]
    if run.validation_batch is not None:
        parts.append(_of("validation batch", run.validation_batch, run.total_validation_batches))
    return "  ".join((*parts, f"rate {format_rate(row.rate)}", f"ETA {format_seconds(row.eta_seconds)}"))


def _of(name: str, at: int | None, total: int | None) -> str:
    return f"{name} {at}" + (f" of {total}" if total is not None else "")


def _about(row: RunRow, now: float, width: int, glyphs: Glyphs) -> list[Sequence[Piece]]:
    run = row.run
    body: list[Sequence[Piece]] = []
    problem, verdict = problem_of(row), row.verdict
    body += wrapped(problem, "warn", width, glyphs) if problem else []
    facts = [] if problem_says_verdict(row) else [("verdict", f"{verdict.state}: {verdict.reason}")]
    facts += [("try", remedy) for remedy in verdict.remedies]
    facts += [("progress", progress_line(row)), ("resources", resource_line(row)), *_times(run)]
    facts += [(name, text) for name, text in _facts(row, now) if text]
    body += [line for name, text in facts for line in _fact(name, text, width, glyphs)]
    room = max(1, width - _LABEL)
    if run.losses:
        curve = format_sparkline(run.losses, min(room, len(run.losses)), ascii=glyphs.ascii)
        body.append([("loss curve".ljust(_LABEL), "dim"), (curve, "")])
    body += [[("metrics", "bold")]] if run.metrics else []
    metrics = ((f"  {safe(name, glyphs)}", _shown(value)) for name, value in run.metrics.items())
    return body + [line for name, text in metrics for line in _fact(name, text, width, glyphs)]


def _fact(name: str, text: str, width: int, glyphs: Glyphs, style: str = "dim") -> list[list[Piece]]:
    """A name, and beside it a text over as many lines as it takes."""
    indent = max(_LABEL, min(cells(name) + 1, width - _LEAST_TEXT))
    lines = _lines(safe(text, glyphs), max(1, width - indent), glyphs)
    labels = [f"{fit(name, indent - 1, glyphs)} ", *[" " * indent] * (len(lines) - 1)]
    return [[(label, style), (line, "")] for label, line in zip(labels, lines, strict=True)]


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
    shown = "  ".join(f"{word} {format_seconds(value)}" for word, value in parts)
    return f"{shown}  rate {format_rate(times.rate)}"


def _date(at: float, now: float) -> str:
    """A moment, and how long ago it was."""
    ago = known_number(now - at)
    return format_date(at) + (f", {format_duration(ago)} ago" if ago is not None and ago >= 0 else "")


def _facts(row: RunRow, now: float) -> tuple[tuple[str, str], ...]:
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
        *((name, _date(at, now)) for name, at in times if at is not None),
        ("error", run.last_words or ""),
        ("file", run.path),
        ("folder", run.folder or ""),
        ("stdout", run.stdout_path or ""),
        ("stderr", run.stderr_path or ""),
        ("wandb", run.wandb_url or ""),
        ("variables", ", ".join(f"{each.name}={_value(each)}" for each in run.variables)),
    )


def _value(variable: Variable) -> str:
    return NOT_KNOWN if variable.value is None else str(variable.value)


# ---------------------------------------------------------------- menu and question


def render_signals(snapshot: RunsSnapshot, view: TopView, width: int, height: int) -> TopFrame:
    """Draw the menu of signals, and whom one would hit."""
    request, glyphs = view.request, view.options.glyphs
    body: list[Sequence[Piece]] = []
    for number, (name, means) in enumerate(SIGNALS):
        chosen = number == view.choice
        style = "selected" if chosen else ""
        body.append([(f"{'>' if chosen else ' '} SIG{name:<6}", style), (means, style or "dim")])
    if isinstance(request, SendSignal):
        body += [[], *_hit(with_signal(request, SIGNALS[view.choice][0]), width, glyphs)]
    what = safe(request.what, glyphs) if isinstance(request, SendSignal) else ""
    at = max(0, view.choice - page_room(snapshot, view, width, height) + 1)
    return page(snapshot, replace(view, scroll=at), [(f"a signal to {what}", "bold")], body, (width, height))


def render_confirm(snapshot: RunsSnapshot, view: TopView, width: int, height: int) -> TopFrame:
    """Draw what would be done to whom, and what is to be typed."""
    request, glyphs = view.request, view.options.glyphs
    body: list[Sequence[Piece]] = [[(f"To go on, type   {PHRASE}   and press Enter.", "bold")]]
    if isinstance(request, SendSignal):
        means = next(text for name, text in SIGNALS if name == request.signal)
        title = f"send SIG{request.signal} to {safe(request.what, glyphs)}?"
        body += [*wrapped(f"SIG{request.signal}: {means}.", "warn", width, glyphs), [], *_hit(request, width, glyphs)]
    elif isinstance(request, DeleteRun):
        title = f"delete {safe(request.run.name, glyphs)}?"
        body += _deleted(request.run, run_row(snapshot, request.run.path), width, glyphs)
    else:
        title = ""
    return page(snapshot, view, [(title, "bad")], body, (width, height))


def _hit(request: SendSignal, width: int, glyphs: Glyphs) -> list[Sequence[Piece]]:
    count = len(request.names)
    told = f"It goes to {plural(count, 'process', 'processes')}{', in this order' if count > 1 else ''}:"
    return [[(told, "")], *(line for name in request.names for line in wrapped(name, "", width, glyphs, "  "))]


def _deleted(run: Run, row: RunRow | None, width: int, glyphs: Glyphs) -> list[Sequence[Piece]]:
    what = "Its progress file, its control file and its outputs beside them are gone for good."
    if run.folder is not None:
        what = "Its folder and all that is in it, also checkpoints, are gone for good."
    body: list[Sequence[Piece]] = [*wrapped(what, "warn", width, glyphs)]
    if row is not None and row.status == UNKNOWN:
        body += wrapped(f"Whether it has ended is not known. {row.reason}", "bad", width, glyphs)
    return [*body, [], *wrapped(run.folder or run.path, "", width, glyphs, "  ")]


# ---------------------------------------------------------------- messages and help


def render_messages(snapshot: RunsSnapshot, view: TopView, width: int, height: int) -> TopFrame:
    """Draw what came of what was asked for, the newest first."""
    glyphs = view.options.glyphs
    body = [line for text in reversed(view.messages) for line in wrapped(text, "", width, glyphs)]
    title: list[Piece] = [(plural(len(view.messages), "message"), "bold"), (", the newest first", "")]
    return page(snapshot, view, title, body or [[("nothing was asked for yet", "dim")]], (width, height))


def render_help(snapshot: RunsSnapshot, view: TopView, width: int, height: int) -> TopFrame:
    """Draw what every key does, out of the tables that `update` reads, and what the columns mean."""
    body: list[Sequence[Piece]] = []
    for title, rows in _help_sections(view):
        body.append([(title, "bold")])
        lines = (line for name, text in rows for line in _fact(f"  {name}", text, width, view.options.glyphs, "good"))
        body += lines
    return page(snapshot, view, [("keys", "bold")], body, (width, height))


def _help_sections(view: TopView) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The titles of the help, and below each (what people press, what it does); no key is told twice."""
    told = {"back"}
    for screen, section in _HELP_SECTIONS.items():
        if view.options.read_only and screen in ("signals", "confirm", "edit"):
            continue
        keys = [key for key in keys_of(replace(view, screen=screen)) if not _COMMON.issuperset(key.names)]
        rows = [(key.shown, key.help) for key in keys if key.help not in told]
        told.update(key.help for key in keys)
        rows += [("", _SIGNAL_HELP)] if screen == "signals" else []
        if rows:
            yield section, rows
        if screen == "main":
            yield "on every screen", list(_COMMON_HELP)
    count = f"{len(COLUMNS)} beside the name: Left and Right scroll them, a click on a title sorts"
    yield "columns", [*_COLUMN_HELP, ("", count)]
