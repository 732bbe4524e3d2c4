"""The parts around the table of runs: header, what is to be said of a row, usage, counts, last lines. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from training_monitor.policy.run_columns import MIB
from training_monitor.policy.run_filters import filter_rows
from training_monitor.policy.run_values import FAILED, PROCESS, STATUSES, UNKNOWN, RunRow, RunsSnapshot
from training_monitor.tui.numbers_text import NOT_KNOWN, format_clock, format_memory, format_percent
from training_monitor.tui.text import Glyphs, Line, Piece, clip, fit_line, flow, format_bar, last_cells, safe
from training_monitor.tui.top_columns import cores_percent, resource_texts, share, share_percent
from training_monitor.tui.top_keys import keys_of
from training_monitor.tui.top_view import Item, TopView
from training_monitor.units import plural

LOW = 16  # below this many lines usage, counts, messages and keys share two
_BAR, _MOST_ERROR = 10, 40  # cells
_SAID = ("stalled", "slow")  # verdicts that are problems
_PROMPTS = {"filter": "name: ", "search": "/", "edit": "= ", "confirm": "> "}


# ---------------------------------------------------------------- above


def header(snapshot: RunsSnapshot, view: TopView, width: int) -> Line:
    """Title, where, how many runs, when they were looked at, and what is filtered, sorted, paused."""
    glyphs = view.options.glyphs
    shown, total = len(filter_rows(snapshot.rows, view.status, view.words)), len(snapshot.rows)
    counted = plural(total, "run") if shown == total else f"{shown} of {plural(total, 'run')}"
    parts: list[Piece] = [(f" {last_cells(safe(view.options.title, glyphs), width // 3, glyphs)} ", "title")]
    parts.append((f"  {counted}", "bold"))
    parts += [("  PAUSED", "warn")] if view.paused else []
    parts += [(f"  {view.status}", "warn")] if view.status else []
    parts += [(f"  name: {safe(view.words, glyphs)}", "warn")] if view.words else []
    if view.sort or view.reverse:
        arrow = glyphs.falling if view.reverse else glyphs.rising
        parts.append((f"  {arrow} {view.sort or 'order'}", "dim"))
    parts += [("  read-only", "dim")] if view.options.read_only else []
    parts.append((f"  {format_clock(snapshot.timestamp)}", ""))
    parts += [(f"  {safe(snapshot.where, glyphs)}", "dim")] if snapshot.where != view.options.title else []
    return fit_line(parts, width, glyphs)


def stale_line(snapshot: RunsSnapshot, view: TopView, width: int) -> tuple[Line, ...]:
    """Why the last look failed, and since when what is shown is old; nothing while it works."""
    if snapshot.error is None:
        return ()
    since = "" if snapshot.stale_since is None else f"stale since {format_clock(snapshot.stale_since)}: "
    glyphs = view.options.glyphs
    return (fit_line([(since + safe(snapshot.error, glyphs), "bad")], width, glyphs),)


# ---------------------------------------------------------------- below


def detail_line(item: Item | None, view: TopView, width: int) -> Line:
    """What is to be said of the selected row: what is wrong with it, else where it runs."""
    glyphs = view.options.glyphs
    if item is None:
        return fit_line([], width, glyphs)
    name = safe(item.row.run.name, glyphs)
    if item.node is not None:
        kind = "process" if item.node.kind == PROCESS else "thread"
        text = f"{kind} {item.node.identity.pid} {safe(item.node.name, glyphs)} ({safe(item.node.state, glyphs)})"
        texts = resource_texts(item.node) if item.node.kind == PROCESS else ()
        used = "  ".join(" ".join(each.split()) for each in texts)
        return fit_line([(f"{name}: ", "bold"), (f"{text}  {used}", "")], width, glyphs)
    problem = problem_of(item.row)
    text, style = (problem, "warn") if problem else (whereabouts(item.row), "dim")
    return fit_line([(f"{name}: ", "bold"), (safe(text, glyphs), style)], width, glyphs)


def problem_of(row: RunRow) -> str:
    """Why a run's status is what it is, or why its file cannot be read; empty where all is well.

    It says what the verdict does where `problem_says_verdict`.
    """
    run = row.run
    parts = [f"its file cannot be read: {run.error}"] if run.error else []
    parts += [f"{row.status}: {row.reason}"] if row.reason and row.reason != run.error else []
    parts += [f"{FAILED}: {run.last_words or 'it named no error'}"] if row.status == FAILED else []
    parts += ["whether it runs is not known"] if row.status == UNKNOWN and not row.reason else []
    parts += [f"{row.verdict.state}: {row.verdict.reason}"] if row.verdict.state in _SAID else []
    return "; ".join(parts)


def problem_says_verdict(row: RunRow) -> bool:
    """Whether the problem of a run has the reason of its verdict in it already."""
    return row.status == UNKNOWN or row.verdict.state in _SAID


def whereabouts(row: RunRow) -> str:
    """The script and the process of a run."""
    process = row.run.process
    parts = [row.run.script or ""]
    if process is not None:
        parts.append(f"PID {process.pid}" + (f" on {process.hostname}" if process.hostname else ""))
    return ", ".join(part for part in parts if part) or "it does not say where it runs"


def usage_lines(snapshot: RunsSnapshot, view: TopView, width: int, height: int) -> tuple[Line, ...]:
    """What all runs use of what they may use, and how many are how; at most `height` lines, one in few words."""
    glyphs = view.options.glyphs
    counts, usage = _counts(snapshot.rows), _usage(snapshot, glyphs, is_short=height == 1)
    if height == 1:
        return (fit_line([piece for each in (*usage, counts) for piece in (*each, ("  ", ""))], width, glyphs),)
    return flow([each for each in (counts, *usage) if each], width, height, glyphs)


def _usage(snapshot: RunsSnapshot, glyphs: Glyphs, *, is_short: bool) -> list[list[Piece]]:
    usage = snapshot.usage
    cpu = NOT_KNOWN if usage.cpu_percent is None else f"{format_percent(usage.cpu_percent)}%"
    cpu += "" if usage.max_cores is None else f" of {usage.max_cores:g} {'core' if usage.max_cores == 1 else 'cores'}"
    ram, gpu = _of(usage.rss_bytes, usage.max_rss_bytes, 1), _of(usage.gpu_mib, usage.max_gpu_mib, MIB)
    used = (
        _Used("CPU", cpu, usage.cpu_percent, cores_percent(usage), snapshot.machine_error),
        _Used("RAM", ram, usage.rss_bytes, usage.max_rss_bytes, snapshot.machine_error),
        _Used("GPU", gpu, usage.gpu_mib, usage.max_gpu_mib, snapshot.gpu_error),
    )
    if is_short:
        return [[(each.title, "bold"), (share(each.used, each.limit) or " ?", "")] for each in used]
    return [_bar(each, glyphs) for each in used]


@dataclass(frozen=True, slots=True)
class _Used:
    """How much of something is used, also in words; `error` says why that is not known."""

    title: str
    text: str
    used: float | None
    limit: float | None
    error: str | None


def _bar(each: _Used, glyphs: Glyphs) -> list[Piece]:
    percent = share_percent(each.used, each.limit)
    if each.error and not each.used:  # also where no run is there that could use some
        return [(f"{each.title} ", "bold"), (f"? {clip(safe(each.error, glyphs), _MOST_ERROR, glyphs)}", "warn")]
    bar = "" if percent is None else f"{format_bar(percent, _BAR, glyphs)} "
    return [(f"{each.title} ", "bold"), (f"{bar}{each.text}{share(each.used, each.limit)}", "")]


def _of(used: float | None, limit: float | None, unit: float) -> str:
    shown = format_memory(used, unit)
    return shown if limit is None else f"{shown} of {format_memory(limit, unit)}"


def _counts(rows: Sequence[RunRow]) -> list[Piece]:
    styles = {"stalled": "bad", "slow": "warn", "RUNNING": "batch", UNKNOWN: "warn"}
    counts = Counter([row.verdict.state for row in rows] + [row.status for row in rows])
    words = [word for word in ("stalled", "slow", *STATUSES, UNKNOWN) if counts[word]]
    pieces: list[Piece] = [(f"{counts[word]} {word}", styles.get(word, word.lower())) for word in words]
    return [each for piece in pieces for each in ((", ", "dim"), piece)][1:]


# ---------------------------------------------------------------- last lines


def footer(view: TopView, width: int, height: int) -> tuple[Line, ...]:
    """What is typed or the keys of this screen, and above them a message; on a low screen in place of them."""
    glyphs = view.options.glyphs
    words: list[list[Piece]] = [
        [(key.shown.split()[0], "bold"), (f" {key.word}", "dim")] for key in keys_of(view) if key.word
    ]
    last = flow(words, width, 1, glyphs)[0]
    message: Piece = (safe(view.message, glyphs), "warn")
    if view.screen in _PROMPTS:
        hint = [message] if view.message else [piece for word in words for piece in (*word, ("  ", ""))]
        typed = last_cells(safe(view.typed, glyphs), width // 2, glyphs)
        last = fit_line([(_PROMPTS[view.screen], "bold"), (f"{typed}_   ", ""), *hint], width, glyphs)
        message = ("", "")
    if height >= LOW:
        return fit_line([message], width, glyphs), last
    return (fit_line([message], width, glyphs),) if message[0] else (last,)
