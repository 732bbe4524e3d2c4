"""What is known of one member: in words, as facts in columns, and as charts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from training_monitor.core.units import format_duration
from training_monitor.fleet.metrics import FAILED, FLEET_COLUMNS, TrainingMetrics
from training_monitor.fleet.rows import is_rented
from training_monitor.fleet.values import FleetSnapshot
from training_monitor.ui.fleet.view import (
    LEVEL_STYLES,
    FleetView,
    Member,
    format_steps,
    format_value,
    health_of,
    member_of,
    show_status,
    state_and_reason,
)
from training_monitor.ui.kit.charts import draw_chart, draw_curve
from training_monitor.ui.kit.page import fact
from training_monitor.ui.kit.text import (
    NOT_KNOWN,
    Glyphs,
    Piece,
    fit,
    format_age,
    format_bar,
    format_date,
    format_number,
    format_percent,
    format_seconds,
)

_LABEL = 10
_FACT = 36  # cells of a fact in a column
_MOST_COLUMNS = 5
END_IT = "end the training, unless you expect such a pause"
_CURVES = (("GPU %", "gpu_utilization"), ("loss", "loss"), ("steps/s", "steps_per_second"))
_CURVE_NUMBERS = 32
_CHART_WIDTH, _CHART_HEIGHT = 36, 4  # cells; below that, curves of one line are drawn
_GAP = "  "
Body = list[Sequence[Piece]]
_Curve = tuple[str, Sequence[float | None]]


def words_of(row: TrainingMetrics, snapshot: FleetSnapshot, view: FleetView) -> Body:
    """Format the long texts: health, messages, errors, verdicts."""
    lines = (
        fact(name, text, view, style=LEVEL_STYLES.get(level, ""), least=_LABEL)
        for name, text, level in texts_of(row, snapshot, view)
    )
    return [line for each in lines for line in each]


def texts_of(row: TrainingMetrics, snapshot: FleetSnapshot, view: FleetView) -> list[tuple[str, str, str]]:
    """Return the long texts, each with its name in front and its level behind."""
    health = health_of(row, snapshot, view)
    told: list[tuple[str, str | None, str]] = [
        ("state", state_and_reason(row, health), health.level),
        ("message", None if row.absent or row.status in FAILED else row.message, ""),  # else it is the reason
        ("error", None if row.state() in ("unreachable", "missing") else row.error, "error"),
    ]
    if row.stale_since is not None:
        since = f"since {format_date(row.stale_since)} ({format_age(snapshot.timestamp - row.stale_since)} ago)"
        told.append(("stale", since, "warning"))
    if row.verdict is not None:
        end = (END_IT,) if row.verdict.recommendation == "terminate" else ()
        told.append(("try", "; ".join((*row.verdict.remedies, *end)), "warning"))
    loss = row.loss_analysis
    is_said = "loss" in health.fields and loss is not None and loss.kind != "plateau"  # by the state
    if loss is not None and loss.kind is not None and not is_said:
        told.append(("loss", f"{loss.kind}: {loss.reason}", "warning"))
    if row.explained is not None:
        age = format_age(snapshot.timestamp - row.explained.at)
        told.append(
            ("why", f"{age} ago, before {row.explained.job_id or 'it'} was terminated: {row.explained.text}", "")
        )
        told.append(("nodes", describe_nodes(row.explained.suspect_nodes, row.explained.faulty_nodes), "warning"))
    return [(name, text, level) for name, text, level in told if text]


def describe_nodes(suspects: Sequence[str], faulty: Sequence[str]) -> str:
    """Name the nodes of the ranks that were waited for, and those with a fault of their hardware; "" without any."""
    late = [f"{each} (other ranks waited for its rank)" for each in suspects if each not in faulty]
    return ", ".join([*(f"{each} (hardware fault)" for each in faulty), *late])


def named_facts(row: TrainingMetrics, member: Member) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each value that is known."""
    facts = [(*each.fact, format_value(each, row)) for each in FLEET_COLUMNS if each.fact]
    named: dict[str, list[str]] = {}
    for name, form, text in facts:
        if text != NOT_KNOWN:
            named.setdefault(name, []).append(form.format(text))
    of_columns, percent = {name: ", ".join(texts) for name, texts in named.items()}, row.progress_percentage()
    bar = "" if percent is None else f"{format_bar(percent, 12, member.glyphs)} {format_percent(percent)} %"
    yield "status", show_status(member, _FACT)
    told = [
        ("machine" if is_rented(row) else "job", row.status if is_rented(row) else row.job_status),
        ("last step", None if member.step_age is None else f"{format_age(member.step_age)} ago"),
        ("GPU", row.gpu_type),
        *((name, of_columns.pop(name, None)) for name in ("GPU use", "GPU low", "GPU heat", "in use")),
        ("progress", bar),
        ("epoch", row.epoch and f"{row.epoch:g}" + ("" if row.total_epochs is None else f" of {row.total_epochs}")),
        ("step", None if row.step is None else format_steps(row)),
        ("ETA", None if row.seconds_left() is None else format_seconds(row.seconds_left())),
        *of_columns.items(),
        ("rented", None if row.started_at is None else f"since {format_date(row.started_at)}"),
        ("run time", None if row.runtime_seconds is None else format_duration(row.runtime_seconds)),
        ("seen", None if row.last_updated is None else f"{format_age(member.now - row.last_updated)} ago"),
        ("groups", ", ".join(row.groups)),
        ("target", f"{row.key}{', found automatically' if row.found else ''}"),
        *((name, format_number(value)) for name, value in row.extra.items()),
    ]
    yield from ((name, text) for name, text in told if text)


def facts_of(row: TrainingMetrics, snapshot: FleetSnapshot, view: FleetView) -> Body:
    """Format what is known in as many columns as fit, each filled from top to bottom."""
    facts = list(named_facts(row, member_of(row, snapshot, view)))
    columns = max(1, min(_MOST_COLUMNS, view.width // _FACT))
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


def curves_of(row: TrainingMetrics, view: FleetView, height: int = 1) -> Body:
    """Draw GPU use, loss and speed, each with lowest, highest and newest value.

    With room for `height` lines they are charts side by side, otherwise curves of a line each.
    """
    samples = view.recent(row.key)
    if len(samples) < 2:
        return [[("only one sample so far: no curve yet" if samples else "no samples yet", "dim")]]
    span = format_duration(samples[-1].timestamp - samples[0].timestamp)
    curves = [(name, [sample.values.get(field) for sample in samples]) for name, field in _CURVES]
    curves = [(name, values) for name, values in curves if any(value is not None for value in values)]
    room = view.width // len(_CURVES) - len(_GAP)
    has_room = room >= _CHART_WIDTH and height > _CHART_HEIGHT
    drawn = _charts(curves, room, height - 2, view.glyphs) if has_room and curves else _lines(curves, view)
    return [[(f"the last {span}{'' if curves else ': GPU use, loss and speed are unknown'}", "bold")], *drawn]


def _lines(curves: Sequence[_Curve], view: FleetView) -> Body:
    body: Body = []
    for name, values in curves:
        room = max(4, view.width - _LABEL - _CURVE_NUMBERS)
        line = fit(draw_curve(values, room, view.glyphs), room, view.glyphs)
        body.append([(fit(name, _LABEL, view.glyphs), "dim"), (line, "good"), (f"  {_extremes(values)}", "")])
    return body


def _charts(curves: Sequence[_Curve], width: int, height: int, glyphs: Glyphs) -> Body:
    titles: list[Piece] = []
    lines: list[list[Piece]] = [[] for _ in range(height)]
    for name, values in curves:
        titles += [(f"{name}  ", "dim"), (fit(_extremes(values), width - len(name) - 2, glyphs), ""), (_GAP, "")]
        for line, drawn in zip(lines, draw_chart(values, width, height, glyphs)):
            line += [(drawn, "good"), (_GAP, "")]
    return [titles, *lines]


def _extremes(values: Sequence[float | None]) -> str:
    numbers = [value for value in values if value is not None and value == value]
    last = NOT_KNOWN if values[-1] is None else f"{values[-1]:.4g}"
    if not numbers:
        return last
    return f"{min(numbers):.4g} to {max(numbers):.4g}, now {last}"
