"""The fleet's pages: details of one member, comparison of several, alerts, and the confirmation. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from training_monitor.core.frozen import dataclass
from training_monitor.core.units import format_duration, format_sparkline, plural
from training_monitor.fleet.metrics import TrainingMetrics
from training_monitor.fleet.trends import RunComparison, compare_runs
from training_monitor.fleet.values import FleetSample, FleetSnapshot
from training_monitor.screens.fleet.main import alert_line, at_least, member_names
from training_monitor.screens.fleet.view import (
    LEVEL_STYLES,
    FleetView,
    Member,
    format_eta,
    format_steps,
    health_of,
    label,
    marked_rows,
    member_of,
    member_row,
    show_status,
    table_columns,
    table_line,
)
from training_monitor.screens.kit.page import fact, newest_first, page, question, wrapped
from training_monitor.screens.kit.text import (
    NOT_KNOWN,
    Glyphs,
    Piece,
    broken,
    clip,
    fit,
    format_age,
    format_bar,
    format_date,
    format_number,
    format_percent,
    format_price,
    format_total,
    safe,
)
from training_monitor.screens.kit.view import Column, Frame, Layout, fit_columns, heading_line, row_line

_LABEL = 10
_FACT = 36  # cells of a fact in a column
_CURVES = (("GPU %", "gpu_utilization"), ("loss", "loss"), ("steps/s", "steps_per_second"))
_CURVE_NUMBERS = 32

Body = list[Sequence[Piece]]
_CURVE = "LOSS SO FAR"
_STEPS = """
    MEMBER 8, LOSS 6, SAME STEP 9, LOSS SO FAR 11, STEPS/S 7, STEP 7, BEST 6, $/1K 7, GPU% 4, MEMBER 14, TOTAL 7,
    TREND/1K 8, AT STEP 7, MEMBER 28
"""
_MEANS = {
    "stop": "Their trainings end. A stopped instance keeps its disk, which still costs; it may not start again.",
    "destroy": "The machines and all that is on their disks are gone for good. What was not copied is lost.",
}
_INDENT = "    "


# ---------------------------------------------------------------- one member


def draw_detail(snapshot: FleetSnapshot, view: FleetView) -> Frame[FleetView]:
    """Draw one member: its health, its values, their history, its log."""
    row = member_row(snapshot, view.selected)
    if row is None:
        body: Body = [[("this member is in the fleet no more; Esc goes back", "warn")]]
        return page(view, [(view.safe(view.selected), "bold")], body)
    body = [
        *_words(row, snapshot, view),
        [],
        *_in_columns(list(_facts(row, member_of(row, snapshot, view))), view),
        [],
        *_curves(view.recent(row.key), view),
        [],
        [("log", "bold")],
        *([[(view.safe(line), "")] for line in row.recent_logs] or [[("no log lines yet", "dim")]]),
    ]
    return page(view, [(view.safe(label(row)), "bold")], body)


def _words(row: TrainingMetrics, snapshot: FleetSnapshot, view: FleetView) -> Body:
    """Format the long texts: health, messages, errors, verdicts."""
    health = health_of(row, snapshot, view)
    told: list[tuple[str, str | None, str]] = [
        ("health", f"{health.level}: {health.reason}", health.level),
        ("message", row.message, ""),
        ("error", row.error, "error"),
    ]
    if row.stale_since is not None:
        since = f"since {format_date(row.stale_since)}, {format_age(snapshot.timestamp - row.stale_since)}"
        told.append(("stale", since, "warning"))
    if row.verdict is not None and row.verdict.recommendation != "continue":
        told.append(("advice", "; ".join((row.verdict.recommendation, *row.verdict.remedies)), "warning"))
    if row.loss_analysis is not None and row.loss_analysis.kind is not None:
        told.append(("loss", f"{row.loss_analysis.kind}: {row.loss_analysis.reason}", "warning"))
    lines = (
        fact(name, text, view, style=LEVEL_STYLES.get(level, ""), least=_LABEL) for name, text, level in told if text
    )
    return [line for each in lines for line in each]


def _facts(row: TrainingMetrics, member: Member) -> Iterator[tuple[str, str]]:
    percent = row.progress_percentage()
    yield "status", show_status(member, _FACT)
    yield "job", row.job_status or NOT_KNOWN
    yield "GPU", row.gpu_type or NOT_KNOWN
    yield "GPU use", f"{format_percent(row.gpu_util)} %, memory {format_percent(row.memory_util)} %"
    yield "GPU heat", f"{_rounded(row.gpu_temperature, 1)} C, power {_rounded(row.gpu_power, 100)} %"
    yield "disk, RAM", f"{format_percent(row.disk_util)} %, {format_percent(row.ram_util)} %"
    yield "progress", f"{format_bar(percent, 12, member.glyphs)} {format_percent(percent)} %"
    yield "epoch", f"{_rounded(row.epoch, 1, 'g')} of {_rounded(row.total_epochs, 1)}"
    yield "step", format_steps(row)
    yield "ETA", format_eta(row)
    yield "loss", format_number(row.loss)
    yield "speed", f"{format_number(row.steps_per_second)} steps/s"
    yield "rate", f"learning {format_number(row.learning_rate)}, norm {format_number(row.grad_norm)}"
    yield "price", f"{format_price(row.cost_per_hour)}/h, so far {format_total(row.total_cost)}"
    yield "rented", NOT_KNOWN if row.started_at is None else f"since {format_date(row.started_at)}"
    yield "trains", NOT_KNOWN if row.runtime_seconds is None else f"for {format_duration(row.runtime_seconds)}"
    yield "seen", NOT_KNOWN if row.last_updated is None else f"{format_age(member.now - row.last_updated)} ago"
    yield "groups", ", ".join(row.groups) or NOT_KNOWN
    yield "target", row.key
    for name, value in row.extra.items():
        yield name, format_number(value)


def _rounded(value: float | None, times: float, form: str = ".0f") -> str:
    return NOT_KNOWN if value is None else f"{value * times:{form}}"


def _in_columns(facts: Sequence[tuple[str, str]], view: FleetView) -> Body:
    """Format the facts in as many columns as fit, each filled from top to bottom."""
    columns = max(1, min(3, view.width // _FACT))
    rows = -(-len(facts) // columns)
    room = view.width // columns - _LABEL - 1
    body: Body = []
    for number in range(rows):
        pieces: list[Piece] = []
        for name, text in facts[number::rows]:
            pieces.append((fit(view.safe(name), _LABEL - 1, view.glyphs) + " ", "dim"))
            pieces.append((fit(view.safe(text), room, view.glyphs) + " ", ""))
        body.append(pieces)
    return body


def _curves(samples: Sequence[FleetSample], view: FleetView) -> Body:
    """Format sparklines of GPU, loss and speed, each with minimum, maximum and last value."""
    if not samples:
        return [[("nothing is remembered yet", "dim")]]
    span = format_duration(samples[-1].timestamp - samples[0].timestamp)
    body: Body = [[(f"the last {span}", "bold")]]
    for name, field in _CURVES:
        values = [sample.values.get(field) for sample in samples]
        line = _curve(values, max(4, view.width - _LABEL - _CURVE_NUMBERS), view.glyphs)
        body.append([(fit(name, _LABEL, view.glyphs), "dim"), (line, "good"), (f"  {_extremes(values)}", "")])
    return body


def _curve(values: Sequence[float | None], width: int, glyphs: Glyphs) -> str:
    return fit(format_sparkline(values, width, ascii=glyphs.ascii), width, glyphs)


def _extremes(values: Sequence[float | None]) -> str:
    numbers = [value for value in values if value is not None and value == value]
    if not numbers:
        return "not known"
    last = NOT_KNOWN if values[-1] is None else f"{values[-1]:.4g}"
    return f"{min(numbers):.4g} to {max(numbers):.4g}, now {last}"


# ---------------------------------------------------------------- several members


@dataclass(frozen=True, slots=True)
class _Compared:
    """A member's name, comparison, losses so far, and the glyphs."""

    name: str
    run: RunComparison
    losses: Sequence[float | None]
    glyphs: Glyphs


def _step(value: float | None) -> str:
    return NOT_KNOWN if value is None else f"{value:.0f}"


def _of(title: str, show: Callable[[RunComparison], str]) -> Column[_Compared]:
    return Column(title, ">", lambda each, width: show(each.run))


_COLUMNS: tuple[Column[_Compared], ...] = (
    Column("MEMBER", "<", lambda each, width: safe(each.name, each.glyphs)),
    _of("STEP", lambda run: _step(run.last_step)),
    _of("LOSS", lambda run: format_number(run.last_loss)),
    _of("BEST", lambda run: format_number(run.best_loss)),
    _of("AT STEP", lambda run: _step(run.best_loss_step)),
    _of("SAME STEP", lambda run: format_number(run.loss_at_common_step)),
    _of("TREND/1K", lambda run: format_number(run.loss_trend_per_1000_steps)),
    _of("STEPS/S", lambda run: format_number(run.median_steps_per_second)),
    _of("GPU%", lambda run: format_percent(run.mean_gpu_utilization)),
    _of("TOTAL", lambda run: format_total(run.total_cost)),
    _of("$/1K", lambda run: format_price(run.dollars_per_1000_steps)),
    Column(_CURVE, "<", lambda each, width: _curve(each.losses, width, each.glyphs)),
)


def draw_comparison(snapshot: FleetSnapshot, view: FleetView) -> Frame[FleetView]:
    """Draw the marked members, one per line, with their remembered values.

    SAME STEP is the loss at the highest step that all of them have reached.
    """
    names = {row.key: label(row) for row in marked_rows(snapshot, view)}
    samples = {key: view.recent(key) for key in names}
    runs = compare_runs(samples)
    longest = max((len(name) for name in names.values()), default=0)
    layout = fit_columns(_COLUMNS, _STEPS, view.width, {"MEMBER": max(8, longest)}, _CURVE)
    styles = {"MEMBER": "bold", _CURVE: "good"}
    body: Body = [heading_line(layout, view, margin="")]
    for run in runs:
        losses = [sample.values.get("loss") for sample in samples[run.key]]
        body.append(row_line("", layout, _Compared(names[run.key], run, losses, view.glyphs), styles, view))
    common = next((run.common_step for run in runs if run.common_step is not None), None)
    reached = "no step was reached by all" if common is None else f"SAME STEP: the loss at step {_step(common)}"
    return page(view, [("comparison", "bold")], [*body, [], [(reached, "dim")]])


# ---------------------------------------------------------------- alerts, and the confirmation


def draw_alerts(snapshot: FleetSnapshot, view: FleetView) -> Frame[FleetView]:
    """Draw all alerts, newest first."""
    names = member_names(snapshot)
    entries = [[alert_line(alert, names, view)] for alert in snapshot.alerts]
    return newest_first(view, "alert", entries, "nothing happened so far")


def draw_confirm(snapshot: FleetSnapshot, view: FleetView) -> Frame[FleetView]:
    """Draw what would be done to which members, and what they cost."""
    request = view.request
    if request is None:
        return page(view, [], [])
    rows = [row for row in snapshot.rows if row.key in request.about]
    layout = table_columns(rows, view.width)
    body: Body = [*wrapped(f"{_MEANS[request.name]} {_costs(rows)}", "warn", view)]
    body += [[], heading_line(layout, view)]
    body += [line for row in rows for line in _asked_lines(row, snapshot, view, layout)]
    return question(view, f"{request.name} {plural(len(request.about), 'member')}?", body)


def _asked_lines(row: TrainingMetrics, snapshot: FleetSnapshot, view: FleetView, layout: Layout[Member]) -> Body:
    """Format a member to be confirmed; with its full key if several look the same in a narrow column."""
    its_width = next(its_width for column, its_width in layout if column.title == "ID")
    shown = [clip(view.safe(each.instance_id), its_width, view.glyphs) for each in (row, *snapshot.rows)]
    key = broken(view.safe(row.key), view.width - len(_INDENT)) if shown.count(shown[0]) > 2 else ()
    line = table_line(member_of(row, snapshot, view), layout, view)
    return [line, *([(_INDENT + part, "")] for part in key)]


def _costs(rows: Sequence[TrainingMetrics]) -> str:
    rows = list({row.instance_id: row for row in rows}.values())  # members on one machine share its cost
    prices = [row.cost_per_hour for row in rows if row.cost_per_hour is not None]
    totals = [row.total_cost for row in rows if row.total_cost is not None]
    if not prices:
        return "What they cost is not known."
    spent = f", and {at_least(len(rows) - len(totals))}{format_total(sum(totals))} so far" if totals else ""
    return f"They cost {at_least(len(rows) - len(prices))}{format_price(sum(prices))}/h{spent}."
