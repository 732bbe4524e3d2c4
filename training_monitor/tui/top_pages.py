"""The screens of `top` that are a page of text: all of a run, menu, question, messages, help. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from training_monitor.policy.run_values import UNKNOWN, Estimate, Run, RunRow, RunsSnapshot
from training_monitor.tui.numbers_text import NOT_KNOWN, format_date, format_number, format_percent
from training_monitor.tui.text import Glyphs, Piece, fit, panel, safe, wrap
from training_monitor.tui.top_acts import PHRASE, SIGNALS, with_signal
from training_monitor.tui.top_columns import COLUMNS, format_rate, format_seconds
from training_monitor.tui.top_keys import keys_of
from training_monitor.tui.top_panels import footer, header, problem_of, stale_line
from training_monitor.tui.top_view import DeleteRun, SendSignal, TopFrame, TopView, run_row, state_style
from training_monitor.units import format_bytes, format_sparkline, known_number, plural

GONE = "this run is there no more: its file was deleted"
_LABEL = 12  # cells
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
    ("Rate", "batches a second; `each` where one takes longer"),
    ("el rem tot", "time elapsed, remaining, in total: of the run, the epoch, its training and validation"),
    ("CPU", "per cent of one core, over all processes; then the share of all cores"),
    ("RAM GPU", "over all processes, and the share of what there is"),
)
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


def wrapped(text: object, style: str, width: int, glyphs: Glyphs) -> list[list[Piece]]:
    """A text from outside over as many lines as it takes."""
    return [[(line, style)] for line in wrap(safe(text, glyphs), width, glyphs)]


# ---------------------------------------------------------------- one run


def render_detail(snapshot: RunsSnapshot, view: TopView, width: int, height: int) -> TopFrame:
    """Draw all that is known of the selected run."""
    row, glyphs = run_row(snapshot, view.selected.path), view.options.glyphs
    if row is None:
        return page(snapshot, view, [("run", "bold")], [[(GONE, "warn")]], (width, height))
    return page(snapshot, view, run_title(row, glyphs), _about(row, width, glyphs), (width, height))


def run_title(row: RunRow, glyphs: Glyphs) -> list[Piece]:
    """A run's name and status."""
    return [(f"{safe(row.run.name, glyphs)} ", "bold"), (safe(row.status, glyphs), state_style(row))]


def resource_line(row: RunRow) -> str:
    """The process of a run and what its tree uses."""
    pid = NOT_KNOWN if row.run.process is None else str(row.run.process.pid)
    cpu = NOT_KNOWN if row.cpu_percent is None else f"{format_percent(row.cpu_percent)}%"
    ram = NOT_KNOWN if row.rss_bytes is None else format_bytes(row.rss_bytes)
    gpu = NOT_KNOWN if row.gpu_mib is None else f"{row.gpu_mib:.0f} MiB"
    counts = (("processes", row.processes), ("threads", row.threads))
    counted = "  ".join(f"{NOT_KNOWN if count is None else count} {word}" for word, count in counts)
    return f"PID {pid}  CPU {cpu}  RAM {ram}  GPU {gpu}  {counted}"


def progress_line(row: RunRow) -> str:
    """How far a run is, how fast, and for how long still."""
    run = row.run
    steps = (("epoch", run.epoch, run.total_epochs), ("batch", run.batch, run.total_batches))
    parts = [run.phase or "no phase", *(_of(name, at, total) for name, at, total in steps if at is not None)]
    if run.validation_batch is not None:
        parts.append(_of("validation batch", run.validation_batch, run.total_validation_batches))
    return "  ".join((*parts, f"rate {format_rate(row.rate)}", f"ETA {format_seconds(row.eta_seconds)}"))


def _of(name: str, at: int | None, total: int | None) -> str:
    return f"{name} {at}" + (f" of {total}" if total is not None else "")


def _about(row: RunRow, width: int, glyphs: Glyphs) -> list[Sequence[Piece]]:
    run = row.run
    body: list[Sequence[Piece]] = []
    body += wrapped(problem, "warn", width, glyphs) if (problem := problem_of(row)) else []
    facts = [("progress", progress_line(row)), ("resources", resource_line(row)), *_times(run)]
    facts += [(name, text) for name, text in _facts(row) if text]
    body += [_fact(name, text, glyphs) for name, text in facts]
    room = max(1, width - _LABEL)
    if run.losses:
        curve = format_sparkline(run.losses, min(room, len(run.losses)), ascii=glyphs.ascii)
        body.append([("loss curve".ljust(_LABEL), "dim"), (curve, "")])
    body += [[("metrics", "bold")]] if run.metrics else []
    return body + [_fact(f"  {safe(name, glyphs)}", _shown(value), glyphs) for name, value in run.metrics.items()]


def _fact(name: str, text: str, glyphs: Glyphs) -> list[Piece]:
    label = name if len(name) >= _LABEL else fit(name, _LABEL, glyphs)
    return [(f"{label} " if label == name else label, "dim"), (safe(text, glyphs), "")]


def _shown(value: object) -> str:
    number = known_number(value)
    return str(value) if number is None else format_number(number)


def _times(run: Run) -> list[tuple[str, str]]:
    spans = (("run", run.run), ("epoch", run.epoch_time), ("training", run.training), ("validation", run.validation))
    return [(name, _span(times)) for name, times in spans if times != Estimate()]


def _span(times: Estimate) -> str:
    parts = (("elapsed", times.elapsed), ("remaining", times.remaining), ("total", times.total))
    shown = "  ".join(f"{word} {format_seconds(value)}" for word, value in parts)
    return f"{shown}  rate {format_rate(times.rate)}"


def _facts(row: RunRow) -> tuple[tuple[str, str], ...]:
    run, process = row.run, row.run.process
    host = process and process.hostname
    times = (("started", run.started_at), ("ended", run.ended_at), ("last batch", run.step_at))
    return (
        ("script", run.script or ""),
        ("host", host or ""),
        *((name, format_date(at)) for name, at in times if at is not None),
        ("updated", "" if run.updated_at is None else format_date(run.updated_at)),
        ("error", run.error_message or ""),
        ("file", run.path),
        ("folder", run.folder or ""),
        ("stdout", run.stdout_path or ""),
        ("stderr", run.stderr_path or ""),
        ("wandb", run.wandb_url or ""),
        ("variables", ", ".join(f"{each.name}={each.value}" for each in run.variables)),
    )


# ---------------------------------------------------------------- menu and question


def render_signals(snapshot: RunsSnapshot, view: TopView, width: int, height: int) -> TopFrame:
    """Draw the menu of signals, and whom one would hit."""
    request, glyphs = view.request, view.options.glyphs
    body: list[Sequence[Piece]] = []
    for number, (name, _, means) in enumerate(SIGNALS):
        chosen = number == view.choice
        style = "selected" if chosen else ""
        body.append([(f"{'>' if chosen else ' '} SIG{name:<6}", style), (means, style or "dim")])
    if isinstance(request, SendSignal):
        body += [[], *_hit(with_signal(request, SIGNALS[view.choice][0]), glyphs)]
    what = safe(request.what, glyphs) if isinstance(request, SendSignal) else ""
    at = max(0, view.choice - page_room(snapshot, view, width, height) + 1)
    return page(snapshot, replace(view, scroll=at), [(f"a signal to {what}", "bold")], body, (width, height))


def render_confirm(snapshot: RunsSnapshot, view: TopView, width: int, height: int) -> TopFrame:
    """Draw what would be done to whom, and what is to be typed."""
    request, glyphs = view.request, view.options.glyphs
    body: list[Sequence[Piece]] = [[(f"To go on, type   {PHRASE}   and press Enter.", "bold")]]
    if isinstance(request, SendSignal):
        means = next(text for name, _, text in SIGNALS if name == request.signal)
        title = f"send SIG{request.signal} to {safe(request.what, glyphs)}?"
        body += [*wrapped(f"SIG{request.signal}: {means}.", "warn", width, glyphs), [], *_hit(request, glyphs)]
    elif isinstance(request, DeleteRun):
        title = f"delete {safe(request.run.name, glyphs)}?"
        body += _deleted(request.run, run_row(snapshot, request.run.path), width, glyphs)
    else:
        title = ""
    return page(snapshot, view, [(title, "bad")], body, (width, height))


def _hit(request: SendSignal, glyphs: Glyphs) -> list[Sequence[Piece]]:
    told = f"It goes to {plural(len(request.names), 'process', 'processes')}, in this order:"
    return [[(told, "")], *([(f"  {safe(name, glyphs)}", "")] for name in request.names)]


def _deleted(run: Run, row: RunRow | None, width: int, glyphs: Glyphs) -> list[Sequence[Piece]]:
    what = "Its progress file, its control file and its outputs beside them are gone for good."
    if run.folder is not None:
        what = "Its folder and all that is in it, also checkpoints, are gone for good."
    body: list[Sequence[Piece]] = [*wrapped(what, "warn", width, glyphs)]
    if row is not None and row.status == UNKNOWN:
        body += wrapped(f"Whether it has ended is not known. {row.reason}", "bad", width, glyphs)
    return [*body, [], [(f"  {safe(run.folder or run.path, glyphs)}", "")]]


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
    for screen, section in _HELP_SECTIONS.items():
        keys = keys_of(replace(view, screen=screen))
        if view.options.read_only and screen in ("signals", "confirm", "edit"):
            continue
        body.append([(section, "bold")])
        body += [[(f"  {key.shown:<10}", "good"), (key.help, "")] for key in keys]
        body += [[(f"  {_SIGNAL_HELP}", "")]] if screen == "signals" else []
    body.append([("columns", "bold")])
    body += [[(f"  {name:<10} ", "good"), (text, "")] for name, text in _COLUMN_HELP]
    told = f"  {len(COLUMNS)} columns beside the name: Left and Right scroll them, a click on a title sorts"
    body.append([(told, "")])
    return page(snapshot, view, [("keys", "bold")], body, (width, height))
