"""All that is known of one member, in words, with what it was in the last hours. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from training_monitor.policy.fleet_values import FleetSample, FleetSnapshot
from training_monitor.policy.training_metrics import TrainingMetrics
from training_monitor.tui.columns import LEVEL_STYLES, Member, show_status
from training_monitor.tui.numbers_text import (
    NOT_KNOWN,
    format_age,
    format_date,
    format_eta,
    format_number,
    format_percent,
    format_price,
    format_steps,
    format_total,
)
from training_monitor.tui.pages import page
from training_monitor.tui.text import Glyphs, Piece, clip, fit, format_bar, safe, wrap
from training_monitor.tui.view import Frame, Recent, View, health_of, label, member_row
from training_monitor.units import format_duration, format_sparkline

_LABEL = 10
_FACT = 36  # cells of a fact that stands beside another
_CURVES = (("GPU %", "gpu_utilization"), ("loss", "loss"), ("steps/s", "steps_per_second"))
_CURVE_NUMBERS = 32

Body = list[list[Piece]]


def render_detail(snapshot: FleetSnapshot, view: View, width: int, height: int, recent: Recent) -> Frame:
    """Draw one member: how it is and why, its numbers, their course, its log.

    Args:
        recent: what was seen of a member by its key, oldest first.
    """
    glyphs = view.options.glyphs
    row = member_row(snapshot, view.selected)
    if row is None:
        body: Body = [[("this member is in the fleet no more; Esc goes back", "warn")]]
        return page(snapshot, view, [(safe(view.selected, glyphs), "bold")], body, (width, height))
    samples = recent(row.key)
    member = Member(row, health_of(row, snapshot, view), snapshot.timestamp, glyphs)
    body = [
        *_words(row, snapshot, view, width),
        [],
        *_in_columns(list(_facts(row, member)), width, glyphs),
        [],
        *curves(samples, width, glyphs),
        [],
        [("log", "bold")],
        *([[(safe(line, glyphs), "")] for line in row.recent_logs] or [[("no log lines yet", "dim")]]),
    ]
    return page(snapshot, view, [(safe(label(row), glyphs), "bold")], body, (width, height))


def _words(row: TrainingMetrics, snapshot: FleetSnapshot, view: View, width: int) -> Body:
    """What does not fit beside something else: health, messages, errors, verdicts."""
    glyphs, health = view.options.glyphs, health_of(row, snapshot, view)
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
    body: Body = []
    for name, text, level in told:
        for number, line in enumerate(wrap(safe(text, glyphs), width - _LABEL, glyphs) if text else ()):
            body.append([(fit("" if number else name, _LABEL, glyphs), "dim"), (line, LEVEL_STYLES.get(level, ""))])
    return body


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


def _in_columns(facts: Sequence[tuple[str, str]], width: int, glyphs: Glyphs) -> Body:
    """The facts in as many columns as the width has room for, each column from top to bottom."""
    columns = max(1, min(3, width // _FACT))
    rows = -(-len(facts) // columns)
    room = width // columns - _LABEL - 1
    body: Body = []
    for number in range(rows):
        pieces: list[Piece] = []
        for name, text in facts[number::rows]:
            pieces.append((fit(safe(name, glyphs), _LABEL - 1, glyphs) + " ", "dim"))
            pieces.append((fit(safe(text, glyphs), room, glyphs) + " ", ""))
        body.append(pieces)
    return body


# ---------------------------------------------------------------- courses


def curves(samples: Sequence[FleetSample], width: int, glyphs: Glyphs) -> Body:
    """GPU, loss and speed over the time that is remembered, with the least, the greatest and the last value."""
    if not samples:
        return [[("nothing is remembered yet", "dim")]]
    span = format_duration(samples[-1].timestamp - samples[0].timestamp)
    body: Body = [[(f"the last {span}", "bold")]]
    for name, field in _CURVES:
        values = [sample.values.get(field) for sample in samples]
        line = curve(values, max(4, width - _LABEL - _CURVE_NUMBERS), glyphs)
        body.append([(fit(name, _LABEL, glyphs), "dim"), (line, "good"), (f"  {_extremes(values)}", "")])
    return body


def curve(values: Sequence[float | None], width: int, glyphs: Glyphs) -> str:
    """A sparkline of exactly so many cells."""
    return fit(clip(format_sparkline(values, width, ascii=glyphs.ascii), width, glyphs), width, glyphs)


def _extremes(values: Sequence[float | None]) -> str:
    numbers = [value for value in values if value is not None and value == value]
    if not numbers:
        return "not known"
    last = NOT_KNOWN if values[-1] is None else f"{values[-1]:.4g}"
    return f"{min(numbers):.4g} to {max(numbers):.4g}, now {last}"
