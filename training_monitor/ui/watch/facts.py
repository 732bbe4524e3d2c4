"""What is known of a watched training, line by line: verdict, progress, GPUs, process, checkpoints. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite, log, nan

from training_monitor.core.errors import Hint
from training_monitor.core.models import Checkpoint, Gpu
from training_monitor.core.units import (
    format_bytes,
    format_duration,
    format_pace,
    format_sparkline,
    known_number,
    plural,
)
from training_monitor.core.values import CheckpointListing
from training_monitor.logs.job_progress import format_position, job_progress
from training_monitor.ui.kit.gpus import NARROW, gpu_line, is_odd
from training_monitor.ui.kit.page import LABEL, fact, flowed, wrapped
from training_monitor.ui.kit.text import (
    NOT_KNOWN,
    Piece,
    fit,
    format_bar,
    format_moment,
    format_number,
    format_percent,
)
from training_monitor.ui.watch.view import WatchSnapshot, WatchView, format_seconds, position, silence, since_look
from training_monitor.verdict.judge import reason_beside_silence

STYLES = {"ok": "good", "warning": "warn", "failed": "bad"}  # by verdict
PHASES = ("stopping", "inventory", "uploading", "destroying")
_MOST_REMEDIES, _MOST_INCOMPLETE = 3, 2
_MOST_WHY = 6  # lines
_CURVE = 40  # cells at most
_FAR = 2.0  # times the lowest loss
_SHORT_LABEL = 10  # cells

Body = list[Sequence[Piece]]


def urgent_lines(snapshot: WatchSnapshot, view: WatchView) -> Body:
    """Format what is true now, whether the target answers or not: an outage, and a termination under way."""
    body: Body = []
    if snapshot.failing_since is not None:
        since = format_seconds(snapshot.now - snapshot.failing_since)
        body += wrapped(f"no response for {since}, {_next_try(snapshot)}", "bad", view)
    if snapshot.phase is not None:
        body += _flowed("ending it", [[each] for each in _phases(snapshot.phase)], view)
    return body


def _next_try(snapshot: WatchSnapshot) -> str:
    left = 0.0 if snapshot.next_look_at is None else snapshot.next_look_at - snapshot.now
    return f"trying again in {format_seconds(left)}" if left >= 1 else "trying again"


def _phases(now: str) -> Iterator[Piece]:
    at = PHASES.index(now) if now in PHASES else len(PHASES)
    for number, phase in enumerate(PHASES):
        yield f"{'> ' if number else ''}{phase}", "good" if number < at else "bold" if number == at else "dim"


# ---------------------------------------------------------------- verdict


def verdict_lines(snapshot: WatchSnapshot, view: WatchView) -> Body:
    """Format the verdict, the age of the last step and its limit, what to try, and what could not be asked."""
    status, verdict = snapshot.status, snapshot.verdict
    if status is None or verdict is None:
        return [[("the first check is in progress", "dim")]]
    style = STYLES.get(verdict.verdict, "warn")
    reason = reason_beside_silence(verdict) if _is_silence_shown(snapshot) else verdict.reason
    if snapshot.missing_log is not None:
        reason, style = f"log {snapshot.missing_log} does not exist yet; {reason}", "warn" if style == "good" else style
    body = _fact("verdict", reason, view, style="" if style == "good" else style) if reason else []
    body += _why_lines(snapshot, view)
    if snapshot.phase is not None:
        return body
    body += _silence_lines(snapshot, view)
    if snapshot.ends_at is not None:
        left = snapshot.ends_at - snapshot.now
        when = f"at {format_moment(snapshot.ends_at, snapshot.now)}, in {format_seconds(left)}"
        when = when if left >= 1 else "after the next check"
        body += _fact("", f"it will be stopped {when} unless it makes progress", view, style="bad")
    for remedy in verdict.remedies[:_MOST_REMEDIES]:
        body += _fact("try", remedy, view)
    is_told = verdict.verdict == "failed" and status.loss is not None and status.loss.kind == "nan"
    if status.loss is not None and status.loss.kind is not None and not is_told:
        body += _fact("loss", f"{status.loss.kind}: {status.loss.reason}", view, style="warn")
    for error in status.errors:
        body += _fact("unknown", error, view, style="warn")
    return body


def _why_lines(snapshot: WatchSnapshot, view: WatchView) -> Body:
    """Format what the roll call said before the training was ended; the page of the events has all of a long text."""
    told = next((event.text for _, event in reversed(snapshot.events) if event.kind == "explained"), None)
    return [] if told is None else _fact("why", told, view, style="bold")[:_MOST_WHY]


def _is_silence_shown(snapshot: WatchSnapshot) -> bool:
    """Return whether the age of the last step has a line of its own, so that no other needs to say it."""
    is_running = snapshot.status is None or snapshot.status.is_running is not False
    return snapshot.phase is None and is_running and silence(snapshot) is not None


def _silence_lines(snapshot: WatchSnapshot, view: WatchView) -> Body:
    verdict, seconds = snapshot.verdict, silence(snapshot)
    if verdict is None or snapshot.status is None or snapshot.status.is_running is False:
        return []
    if seconds is None:
        return [_labelled("last step", [(NOT_KNOWN, "")], view)]
    ago = "ago" if snapshot.failing_since is None else "before the last response"
    text, limit = f"{format_seconds(seconds)} {ago}", known_number(verdict.limit_seconds)
    if job_progress(snapshot.progress).step is None:
        text = f"none for {format_seconds(seconds)}"
    if limit is None or limit <= 0:
        return [_labelled("last step", [(f"{text}; the limit is not yet known", "")], view)]
    share = 100.0 * seconds / limit
    style = "bad" if share >= 100 else "warn" if share >= 50 else "good"
    words = [(f"{text}, limit {format_duration(limit)}", "" if style == "good" else style)]
    if view.width < NARROW:
        return [_labelled("last step", words, view)]
    bar = (format_bar(share, 20, view.glyphs), style)
    return _flowed("last step", [[("[", "dim"), bar, ("]", "dim")], words], view)


# ---------------------------------------------------------------- progress


def progress_lines(snapshot: WatchSnapshot, view: WatchView) -> Body:
    """Format the position, the pace and the ETA, and the loss with its trend."""
    progress, job = snapshot.progress, position(snapshot)
    fraction = known_number(job.fraction)
    percent = None if fraction is None else 100.0 * fraction
    bar = format_bar(percent, 6 if view.width < NARROW else min(30, view.width // 4), view.glyphs)
    is_known = job.step is not None or job.epoch is not None
    done: list[Sequence[Piece]] = [
        [("[", "dim"), (bar, "good"), ("]", "dim"), (f" {format_percent(percent)} %", "bold")],
        [(format_position(job) if is_known else f"step {NOT_KNOWN}", "bold")],
    ]
    if job.step is not None and job.epoch is not None:
        total = f"/{job.total_epochs}" if job.total_epochs else ""
        done.append([(f"epoch {round(job.epoch, 2):g}{total}", "")])
    pace: list[Sequence[Piece]] = [[(_format_speed(progress.steps_per_second), "")]]
    rates = (("tokens/s", progress.tokens_per_second), ("samples/s", progress.samples_per_second))
    pace += [[(f"{format_number(rate)} {unit}", "")] for unit, rate in rates if rate is not None]
    pace.append([("ETA ", "dim"), (_format_eta(snapshot, job.eta_seconds), "bold")])
    return [
        *_flowed("progress", done, view),
        *_flowed("pace", pace, view),
        *_flowed("loss", _loss_segments(snapshot, view), view),
    ]


def _format_speed(speed: float | None) -> str:
    known = known_number(speed)
    each = known_number(1 / known) if known is not None and known > 0 else None
    return f"{NOT_KNOWN} steps/s" if each is None else format_pace(each)


def _format_eta(snapshot: WatchSnapshot, seconds: float | None) -> str:
    if seconds is None or snapshot.progress_at is None:
        return NOT_KNOWN
    at = snapshot.progress_at + seconds
    return f"{format_seconds(at - snapshot.now)} ({format_moment(at, snapshot.now)})"


def _loss_segments(snapshot: WatchSnapshot, view: WatchView) -> list[Sequence[Piece]]:
    progress, losses = snapshot.progress, snapshot.losses
    is_odd = progress.loss is not None and known_number(progress.loss) is None
    segments: list[Sequence[Piece]] = [[(format_number(progress.loss), "bad" if is_odd else "bold")]]
    if len(losses) > 1:
        width = min(_CURVE, len(losses), max(8, view.width // 3))
        curve = format_sparkline(_on_log_scale(losses), width, ascii=view.glyphs.ascii)
        segments.append([(curve, "good")])
    finite = [loss for loss in losses if known_number(loss) is not None]
    segments += [[("lowest ", "dim"), (format_number(min(finite)), "")]] if finite else []
    if view.width < NARROW:
        return segments
    more = (("learning rate", progress.learning_rate), ("gradient norm", progress.grad_norm))
    return segments + [[(f"{name} ", "dim"), (format_number(value), "")] for name, value in more if value is not None]


def _on_log_scale(losses: Sequence[float]) -> Sequence[float]:
    """Return losses above zero that fell or rose far on a logarithmic scale: else the first ones hide all others."""
    finite = [loss for loss in losses if isfinite(loss)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    if low <= 0 or high < _FAR * low:
        return losses
    return [log(loss / low) if isfinite(loss) else nan for loss in losses]


# ---------------------------------------------------------------- GPUs


def gpu_lines(snapshot: WatchSnapshot, view: WatchView, most: int) -> Body:
    """Format a line for each GPU; where more than `most` do not fit, those with a problem, and a line for the rest."""
    gpus = snapshot.gpus
    reason = snapshot.gpu_error
    if not gpus:
        return _fact("GPU", NOT_KNOWN if reason is None else f"{NOT_KNOWN}  {reason}", view, style="dim")
    if len(gpus) <= max(1, most):
        return [gpu_line(gpu, view) for gpu in gpus]
    chosen = sorted(range(len(gpus)), key=lambda at: not is_odd(gpus[at]))[: max(1, most - 1)]
    rest = [gpu for at, gpu in enumerate(gpus) if at not in chosen]
    return [*(gpu_line(gpus[at], view) for at in sorted(chosen)), _rest_line(rest, view)]


def _rest_line(gpus: Sequence[Gpu], view: WatchView) -> Sequence[Piece]:
    odd = sum(map(is_odd, gpus))
    used = [known for gpu in gpus if (known := known_number(gpu.utilization)) is not None]
    span = "" if not used else f"{min(used):.0f} to " if min(used) < max(used) else ""
    use = f"{span}{max(used):.0f} % used" if used else f"use {NOT_KNOWN}"
    problem = (f", {odd} of them with a problem", "bad") if odd else ("", "")
    return _labelled("", [(f"{plural(len(gpus), 'more GPU')}: {use}", ""), problem], view)


# ---------------------------------------------------------------- process and checkpoints


def process_lines(snapshot: WatchSnapshot, view: WatchView) -> Body:
    """Format pid, state, CPU, memory, the number of processes, and since when it runs."""
    status, process = snapshot.status, snapshot.process
    running = status.is_running if status else None
    state = {True: ("running", "good"), False: ("not running", "bad"), None: ("unknown whether it is running", "warn")}
    cpu = NOT_KNOWN if process.cpu_cores is None else f"{format_percent(100 * process.cpu_cores)} %"
    memory = NOT_KNOWN if process.memory_bytes is None else format_bytes(process.memory_bytes)
    segments: list[Sequence[Piece]] = [
        [(f"pid {NOT_KNOWN if process.pid is None else process.pid}", "")],
        [state[running]],
        [("CPU ", "dim"), (cpu, "")],
        [("memory ", "dim"), (memory, "")],
    ]
    if process.processes is not None:
        segments.append([(plural(process.processes, "process", "processes"), "")])
    if process.blocked:
        segments.append([(f"{process.blocked} waiting for disk I/O", "warn")])
    segments.append([("since ", "dim"), (_since(process.since, snapshot.now), "")])
    if process.command:
        segments.append([(view.safe(process.command), "dim")])
    return _flowed("process", segments, view)


def _since(at: float | None, now: float) -> str:
    return NOT_KNOWN if at is None else f"{format_moment(at, now)} ({format_seconds(now - at)})"


def checkpoint_lines(snapshot: WatchSnapshot, view: WatchView) -> Body:
    """Format the newest complete checkpoint, and the incomplete ones after it."""
    status, name = snapshot.status, "saved" if view.width < NARROW else "checkpoint"
    if snapshot.folder is None:
        named = Hint("the output folder is unknown; set it with {output_dir=True}").spell("shell")
        return _fact(name, f"{NOT_KNOWN}  {named}", view, style="dim")
    if status is None or status.checkpoints is None:
        return _fact(name, NOT_KNOWN, view)
    found = CheckpointListing(status.checkpoints, status.unlisted_checkpoints)
    newest = found.newest_complete
    none = "none yet" if not found.count else f"none of {plural(found.count, 'checkpoint')} is known to be complete"
    style = "" if newest or not found.count else "warn"
    body = _fact(name, _checkpoint_text(newest, snapshot) if newest else none, view, style=style)
    after = [each for each in found.checkpoints if not each.complete and (newest is None or each.step > newest.step)]
    for each in reversed(after[-_MOST_INCOMPLETE:]):
        body += _fact("", _checkpoint_text(each, snapshot), view, style="warn")
    return body


def _checkpoint_text(checkpoint: Checkpoint, snapshot: WatchSnapshot) -> str:
    age = since_look(snapshot, checkpoint.age)
    complete = {True: "complete", False: "incomplete", None: "unknown whether complete"}[checkpoint.complete]
    problem = f": {checkpoint.problem}" if checkpoint.problem else ""
    old = f"{format_seconds(age)} old"
    size = NOT_KNOWN if checkpoint.size_bytes is None else format_bytes(checkpoint.size_bytes)
    return f"step {checkpoint.step}, {old}, {size}, {complete}{problem}  {checkpoint.path}"


# ---------------------------------------------------------------- layout


def _labelled(name: str, pieces: Sequence[Piece], view: WatchView) -> Sequence[Piece]:
    return [(fit(name, _label(view), view.glyphs), "dim"), *pieces]


def _label(view: WatchView) -> int:
    return _SHORT_LABEL if view.width < NARROW else LABEL


def _fact(name: str, text: object, view: WatchView, *, style: str = "") -> Body:
    return [*fact(name, text, view, style=style, least=_label(view))]


def _flowed(name: str, segments: Sequence[Sequence[Piece]], view: WatchView) -> Body:
    return flowed(name, segments, view, _label(view))
