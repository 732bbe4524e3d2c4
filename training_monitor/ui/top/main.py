"""The main screen of `top`: the table of runs, details of the selected row, and resource usage. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from training_monitor.core.units import plural
from training_monitor.runs.rows import MIB, NAN_LOSS, filter_rows, status_word, worst_first
from training_monitor.runs.values import (
    CANCELED,
    FAILED,
    FINISHED,
    KILLED,
    PROCESS,
    RUNNING,
    UNKNOWN,
    RunRow,
    RunsSnapshot,
)
from training_monitor.targets.proc_stat import name_state
from training_monitor.ui.kit.page import header, stale_line
from training_monitor.ui.kit.text import (
    NOT_KNOWN,
    UNICODE,
    UNKNOWN_WORD,
    Glyphs,
    Line,
    Piece,
    clip,
    fill,
    fit_line,
    flow,
    format_bar,
    format_clock,
    format_memory,
    format_percent,
    safe,
)
from training_monitor.ui.kit.view import Frame, heading_line, place_headings
from training_monitor.ui.top.table import (
    COLUMNS,
    TABLE,
    columns_of,
    cores_percent,
    lay_out,
    resource_texts,
    share_percent,
    table_line,
    whole_percent,
)
from training_monitor.ui.top.view import Item, TopView

_LOW, _MOST_USAGE = 13, 3  # lines
_BAR, _MOST_ERROR = 10, 40  # cells
_SAID = ("stalled", "suspended", "slow", NAN_LOSS)  # statuses that are problems
_COUNTED = ("stalled", NAN_LOSS, FAILED, KILLED, "suspended", "slow", UNKNOWN, RUNNING, CANCELED, FINISHED)
# Columns that are useful in a single snapshot.
_TITLES = frozenset("Status Done Rate ETA Loss CPU RAM GPU Phase Epoch Batch PID".split()) | {"Run Elapsed"}


def draw_header(snapshot: RunsSnapshot, view: TopView) -> Line:
    """Draw the number of runs, the filters, the time of the look, and the place."""
    shown, total = len(filter_rows(snapshot.rows, view.status, view.words)), len(snapshot.rows)
    counted = plural(total, "run") if shown == total else f"{shown} of {plural(total, 'run')}"
    counted = f"{UNKNOWN_WORD} runs" if snapshot.error is not None and not total else counted
    filters = (view.status or "", f"name: {view.words}" if view.words else "")
    where = "" if snapshot.where == view.title else f"  {view.safe(snapshot.where)}"
    tail = [(f"  {format_clock(snapshot.timestamp)}", ""), (where, "dim")]
    return header(view, counted, view.paused, filters, tail)


def draw_main(snapshot: RunsSnapshot, view: TopView) -> Frame[TopView]:
    """Draw the table and the panels below it; only the rows on the screen are formatted."""
    usage = usage_lines(snapshot, view, 1 if view.height < _LOW else _MOST_USAGE)
    room = max(1, view.height - 2 - len(usage))
    items = TABLE.rows(snapshot, view)
    view = TABLE.scrolled(snapshot, view, items, room)
    shown = items[view.top : view.top + room]
    layout, across, more = lay_out(shown, snapshot.usage, view, columns_of(view))
    rows = [
        table_line(item, layout, snapshot.usage, view, selected=number == view.index)
        for number, item in enumerate(shown, view.top)
    ]
    lines = (
        heading_line(layout, view, view.sort, margin="< " if across else "  ", more=more),
        *fill(rows or [_why_empty(snapshot, view)], view.width, room),
        detail_line(items[view.index] if items else None, view),
        *usage,
    )
    return Frame(lines, replace(view, across=across, headings=place_headings(layout)))


def _why_empty(snapshot: RunsSnapshot, view: TopView) -> Line:
    """Format the text of a table without rows."""
    if snapshot.rows:
        wanted = " ".join(text for text in (view.status or "", view.safe(view.words)) if text)
        text = f"no run matches {wanted}: Esc shows all"
    elif snapshot.error is not None:
        text = "no data yet: the last refresh failed"
    elif snapshot.is_refreshing:
        text = "looking ..."
    else:
        text = 'no runs found yet: a training script creates one with TrainingMonitor("FOLDER/RUN.json")'
    return view.line([(f"  {text}", "dim")])


def table_text(snapshot: RunsSnapshot, width: int, glyphs: Glyphs = UNICODE) -> list[Line]:
    """Format the runs, the worst first, their problems, and their usage, as lines of `width` cells."""
    view = TopView(glyphs=glyphs, width=width)
    items = [Item(replace(row, tree=())) for row in worst_first(snapshot.rows)]
    columns = [column for column in COLUMNS if column.title in _TITLES]
    layout, _, more = lay_out(items, snapshot.usage, view, columns)
    problems = [(item.row.run.name, problem) for item in items if (problem := problem_of(item.row))]
    return [
        *stale_line(snapshot, view),
        heading_line(layout, view, more=more),
        *(table_line(item, layout, snapshot.usage, view, selected=False) for item in items),
        *(() if items else (_why_empty(snapshot, view),)),
        *(
            fit_line([(f"{safe(name, glyphs)}: ", "bold"), (safe(text, glyphs), "warn")], width, glyphs)
            for name, text in problems
        ),
        *usage_lines(snapshot, view, _MOST_USAGE),
    ]


# ---------------------------------------------------------------- details of a row


def detail_line(item: Item | None, view: TopView) -> Line:
    """Format the problem of the selected row, else where it runs."""
    if item is None:
        return view.line([])
    name = view.safe(item.row.run.name)
    if item.node is not None:
        kind = "process" if item.node.kind == PROCESS else "thread"
        text = f"{kind} {item.node.identity.pid} {view.safe(item.node.name)}, {view.safe(name_state(item.node.state))}"
        used = "  ".join(" ".join(each.split()) for each in resource_texts(item.node))
        return view.line([(f"{name}: ", "bold"), (f"{text}  {used}", "")])
    problem = problem_of(item.row)
    text, style = (problem, "warn") if problem else (whereabouts(item.row), "dim")
    return view.line([(f"{name}: ", "bold"), (view.safe(text), style)])


def problem_of(row: RunRow) -> str:
    """Return the reason of a run's status, or why its file cannot be read; empty without a problem.

    It includes the verdict's reason where `problem_says_verdict`.
    """
    run = row.run
    parts = [f"its file cannot be read: {run.error}"] if run.error else []
    parts += [f"{row.status}: {row.reason}"] if row.reason and row.reason != run.error else []
    parts += [f"{FAILED}: {run.last_words or 'no error was reported'}"] if row.status == FAILED else []
    parts += ["cannot tell whether it is running"] if row.status == UNKNOWN and not row.reason else []
    parts += [f"{word}: {row.verdict.reason}"] if (word := status_word(row)) in _SAID else []
    return "; ".join(parts)


def problem_says_verdict(row: RunRow) -> bool:
    """Return whether the problem of a run includes the reason of its verdict, or the error that is that reason."""
    is_same_failure = row.status == FAILED and row.verdict.state == "failed" and not row.reason
    return is_same_failure or row.status == UNKNOWN or status_word(row) in _SAID


def whereabouts(row: RunRow) -> str:
    """Return the script and the process of a run."""
    process = row.run.process
    parts = [row.run.script or ""]
    if process is not None:
        parts.append(f"PID {process.pid}" + (f" on {process.hostname}" if process.hostname else ""))
    return ", ".join(part for part in parts if part) or "its script and process are unknown"


# ---------------------------------------------------------------- usage


def usage_lines(snapshot: RunsSnapshot, view: TopView, height: int) -> tuple[Line, ...]:
    """Format the usage of all runs against its limits, and the counts of statuses, in at most `height` lines."""
    glyphs = view.glyphs
    counts, usage = _counts(snapshot.rows), _usage(snapshot, glyphs, is_short=height == 1)
    if height == 1:
        return flow([*([count] for count in counts), *usage], view.width, height, glyphs, gap=" ")
    told = [piece for count in counts for piece in ((", ", "dim"), count)][1:]
    return flow([each for each in (told, *usage) if each], view.width, height, glyphs)


def _usage(snapshot: RunsSnapshot, glyphs: Glyphs, *, is_short: bool) -> list[list[Piece]]:
    usage = snapshot.usage
    cpu = NOT_KNOWN if usage.cpu_percent is None else f"{format_percent(usage.cpu_percent)}%"
    cpu += "" if usage.max_cores is None else f" of {usage.max_cores:g} {'core' if usage.max_cores == 1 else 'cores'}"
    ram, gpu = _of(usage.rss_bytes, usage.max_rss_bytes, 1), _of(usage.gpu_mib, usage.max_gpu_mib, MIB)
    lines: list[list[Piece]] = []
    for title, text, used, limit, error in (
        ("CPU", cpu, usage.cpu_percent, cores_percent(usage), snapshot.machine_error),
        ("RAM", ram, usage.rss_bytes, usage.max_rss_bytes, snapshot.machine_error),
        ("GPU", gpu, usage.gpu_mib, usage.max_gpu_mib, snapshot.gpu_error),
    ):
        percent = share_percent(used, limit)
        part = "" if percent is None else f" {whole_percent(percent)}"
        if is_short:
            lines.append([(title, "bold"), (part or " ?", "")])
        elif error and not used:  # also without any run that could use it
            lines.append([(f"{title} ", "bold"), (f"? {clip(safe(error, glyphs), _MOST_ERROR, glyphs)}", "warn")])
        else:
            bar = "" if percent is None else f"{format_bar(percent, _BAR, glyphs)} "
            lines.append([(f"{title} ", "bold"), (f"{bar}{text}{part}", "")])
    return lines


def _of(used: float | None, limit: float | None, unit: float) -> str:
    shown = format_memory(used, unit)
    return shown if limit is None else f"{shown} of {format_memory(limit, unit)}"


def _counts(rows: Sequence[RunRow]) -> list[Piece]:
    """Count the runs by their states, the worst first; one that is not well is RUNNING as well."""
    styles = {"stalled": "bad", NAN_LOSS: "bad", "suspended": "warn", "slow": "warn", RUNNING: "batch", UNKNOWN: "warn"}
    counts = Counter(word for row in rows for word in {status_word(row), row.status})
    return [
        (f"{counts[word]} {UNKNOWN_WORD if word == UNKNOWN else word}", styles.get(word, word.lower()))
        for word in _COUNTED
        if counts[word]
    ]
