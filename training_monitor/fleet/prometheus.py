"""Format a fleet for Prometheus, in its text format 0.0.4. Pure.

https://prometheus.io/docs/instrumenting/exposition_formats/ defines the format, docs/metrics.md lists the metrics. All
are gauges in base units. What is unknown has no sample; what the log of a training shows may be NaN or infinite. Labels
are masked, printable and bounded, and their values are keys, names of the settings, of GPUs or of scripts, or words of
this package: reasons and messages are in no label.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from math import isfinite, isnan
from typing import NamedTuple

from training_monitor import __version__
from training_monitor.core.masking import redact
from training_monitor.core.shown import shown
from training_monitor.core.units import HOUR, known_number
from training_monitor.core.values import Verdict
from training_monitor.fleet.columns import FleetColumn
from training_monitor.fleet.metrics import FLEET_COLUMNS, Thresholds, TrainingMetrics, end_with_machine, has_nan
from training_monitor.fleet.rows import HEALTH_LEVELS
from training_monitor.fleet.values import MOST_BESIDE, FleetSnapshot
from training_monitor.verdict.judge import ENDS, NOBODY_LOOKED, STATES, VERDICTS

PREFIX = "training_monitor_"
MOST_MEMBERS = 2000
MOST_KEY, MOST_WORD = 200, 100  # characters of a label
MOST_EXTRA = 50  # values of a member by the user's own log patterns
MOST_WHOLE = 2.0**53  # below, a float is an exact whole number
_VERDICT_ON_END = {"failed": "failed", "stopped": "warning"}  # as the judge's
_Labels = tuple[tuple[str, str], ...]


class Metric(NamedTuple):
    """A metric: its whole name, what it is, and the samples that are known."""

    name: str
    help: str
    samples: Sequence[tuple[_Labels, float]]


class ShownMember(NamedTuple):
    """A member under its label, and its level of health."""

    label: str
    row: TrainingMetrics
    level: str

    @property
    def is_current(self) -> bool:
        """Whether its training was seen at the last look."""
        return self.row.error is None and self.row.absent is None

    @property
    def judged(self) -> Verdict:
        """The verdict on its training that holds; an earlier one does only if it was the end."""
        verdict = self.row.verdict or NOBODY_LOOKED
        return verdict if self.row.error is None or verdict.state in ENDS else NOBODY_LOOKED

    @property
    def state_and_verdict(self) -> tuple[str, str]:
        """The state of its training and the verdict on it: those of the judge, or of its end with its machine."""
        judged = self.judged
        end = None if judged.state in ENDS else end_with_machine(self.row)
        return (judged.state, judged.verdict) if end is None else (end, _VERDICT_ON_END[end])


def format_metrics(snapshot: FleetSnapshot, thresholds: Thresholds) -> str:
    """Return all metrics of a fleet. `thresholds` determine the health levels of the members."""
    return _format(list_metrics(snapshot, thresholds))


def format_last_look(snapshot: FleetSnapshot) -> str:
    """Return what still holds when the looks have ended: when the last one was, and no state of any member."""
    return _format(_metrics_of_looks(snapshot))


def list_metrics(snapshot: FleetSnapshot, thresholds: Thresholds) -> list[Metric]:
    """Return all metrics, also those without a sample."""
    members = list(_shown_members(snapshot, thresholds))
    return [*_metrics_of_looks(snapshot), *_metrics_of_fleet(snapshot), *_metrics_of_members(members)]


# ---------------------------------------------------------------- text


def _format(metrics: Iterable[Metric]) -> str:
    return "".join(chain.from_iterable(_lines(metric) for metric in metrics if metric.samples))


def _lines(metric: Metric) -> Iterator[str]:
    yield f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} gauge\n"
    for labels, value in metric.samples:
        inside = ",".join(f'{name}="{_escape(text)}"' for name, text in labels)
        yield f"{metric.name}{{{inside}}} {_number(value)}\n" if inside else f"{metric.name} {_number(value)}\n"


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if isnan(value):
        return "NaN"
    if not isfinite(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < MOST_WHOLE else repr(value)


def _label(text: str, length: int = MOST_WORD) -> str:
    """Return a foreign text as the value of a label; masked before it is cut, since a part of a secret is one too."""
    return redact(shown(text))[:length]


# ---------------------------------------------------------------- members


def _shown_members(snapshot: FleetSnapshot, thresholds: Thresholds) -> Iterator[ShownMember]:
    rows = snapshot.rows[:MOST_MEMBERS]
    for label, row in zip(_different_labels(rows), rows):
        yield ShownMember(label, row, row.health(thresholds, snapshot.timestamp).level)


def _different_labels(rows: Iterable[TrainingMetrics]) -> Iterator[str]:
    """Yield a label for each member; keys that look the same once masked and cut are numbered, as a~2."""
    numbers = Counter[str]()
    for row in rows:
        label = wanted = _label(row.key or str(row.instance_id), MOST_KEY)
        while numbers[label]:
            numbers[wanted] += 1
            label = f"{wanted}~{numbers[wanted]}"
        numbers[label] += 1
        yield label


def _has_answered(row: TrainingMetrics) -> bool | None:
    """Return whether a member answered the last look; None if it was not asked, as a stopped or lost machine."""
    if row.status == "lost":
        return None
    if row.error is not None:
        return False
    is_asked = isinstance(row.instance_id, str) or row.status == "running"
    was_seen = row.absent is not None or row.verdict not in (None, NOBODY_LOOKED)
    return True if is_asked and was_seen else None


def _ratio(percent: float | None) -> float | None:
    """Return a share of 0 to 1; None where per cent are unknown or impossible."""
    return None if percent is None else _share(percent / 100.0)


def _share(share: float | None) -> float | None:
    return share if share is not None and 0.0 <= share <= 1.0 else None


def _is_finite_loss(member: ShownMember) -> float | None:
    """Return 1 or 0; None without a loss, or without a running training."""
    is_nan, goes_on = has_nan(member.row), member.row.verdict is not None and member.judged.state not in ENDS
    return float(not is_nan) if member.is_current and goes_on and (is_nan or member.row.loss is not None) else None


def _of_column(member: ShownMember, column: FleetColumn) -> float | None:
    """Return what is known at present, in base units. An earlier speed is not known: the training stalls, or ended."""
    is_earlier = column.attribute == "steps_per_second" and member.judged.state in ("stalled", "suspended", *ENDS)
    is_known = not is_earlier and (member.row.error is None or column.of == "account")
    value = column.now(member.row) if is_known else None
    if column.of == "log" and column.unit == "number":
        return _float(value)  # which may be NaN or infinite
    return {"percent": _ratio, "share": _share}.get(column.unit, known_number)(value)


def _of_stall(member: ShownMember, name: str) -> float | None:
    """Return a field of the verdict; None unless the training runs, or may run."""
    found: float | None = getattr(member.judged, name)
    return found if member.is_current and member.judged.state not in ENDS else None


_OfMember = Callable[[ShownMember], float | None]
_NUMBERS: dict[str, tuple[str, _OfMember]] = {
    "up": ("Whether the member responded to the last check (1 or 0).", lambda m: _float(_has_answered(m.row))),
    "last_seen_timestamp_seconds": ("Time of the member's last response.", lambda m: m.row.last_updated),
    "planned_steps": ("Total number of steps of the training.", lambda m: m.row.total_steps if m.is_current else None),
    "planned_epochs": (
        "Total number of epochs of the training.",
        lambda m: m.row.total_epochs if m.is_current else None,
    ),
    "step_age_seconds": ("Time since the last step.", lambda m: _of_stall(m, "seconds_without_step")),
    "stall_limit_seconds": (
        "Time without a step after which the training counts as stalled.",
        lambda m: _of_stall(m, "limit_seconds"),
    ),
    "log_age_seconds": ("Time since the last write to the log.", lambda m: m.row.log_age if m.is_current else None),
    "loss_finite": ("Whether the loss of a running training is finite (1 or 0).", _is_finite_loss),
}
_CHOICES: dict[str, tuple[str, str, Sequence[str], Callable[[ShownMember], str]]] = {
    "health": ("Whether the member has this level of health (1 or 0).", "level", HEALTH_LEVELS, lambda m: m.level),
    "state": ("Whether the training is in this state (1 or 0).", "state", STATES, lambda m: m.state_and_verdict[0]),
    "verdict": (
        "Whether the training has this verdict (1 or 0).",
        "verdict",
        VERDICTS,
        lambda m: m.state_and_verdict[1],
    ),
}


def _metrics_of_members(members: Sequence[ShownMember]) -> Iterator[Metric]:
    yield _metric(
        "member_info", "Always 1; the labels contain the name and the GPUs of the member.", map(_info, members)
    )
    yield _metric(
        "member_group",
        "Always 1; the label 'group' names a group of the member, or is empty if it has none.",
        _groups(members),
    )
    for name, (help, label, words, choose) in _CHOICES.items():
        yield _metric(name, help, _choices(members, label, words, choose))
    for name, (help, of) in _NUMBERS.items():
        yield _metric(name, help, ((_named(member), known_number(of(member))) for member in members))
    for column in FLEET_COLUMNS:
        if column.metric:
            yield _metric(*column.metric, ((_named(member), _of_column(member, column)) for member in members))
    yield _metric("log_value", "A value read from the log with a pattern from the settings.", _extra(members))


_Found = Iterable[tuple[_Labels, float | None]]


def _metric(name: str, help: str, found: _Found) -> Metric:
    samples = [(labels, value) for labels, value in found if value is not None]
    return Metric(PREFIX + name, help, samples)


def _float(value: float | None) -> float | None:
    return None if value is None else float(value)


def _named(member: ShownMember, *more: tuple[str, str]) -> _Labels:
    return (("member", member.label), *more)


def _info(member: ShownMember) -> tuple[_Labels, float]:
    name, gpu = _label(member.row.name), _label(member.row.gpu_type or "")
    return _named(member, ("name", name), ("gpu", gpu)), 1.0


def _groups(members: Sequence[ShownMember]) -> _Found:
    for member in members:
        for group in dict.fromkeys(map(_label, member.row.groups or ("",))):
            yield _named(member, ("group", group)), 1.0


def _choices(
    members: Sequence[ShownMember], label: str, words: Sequence[str], choose: Callable[[ShownMember], str]
) -> _Found:
    for member in members:
        chosen = choose(member)
        for word in words:
            yield _named(member, (label, word)), float(word == chosen)


def _extra(members: Sequence[ShownMember]) -> _Found:
    for member in members:
        found = member.row.extra if member.is_current else {}
        values = {_label(name): value for name, value in found.items()}
        for name, value in list(values.items())[:MOST_EXTRA]:
            yield _named(member, ("name", name)), _float(value)


# ---------------------------------------------------------------- the fleet


def _metrics_of_looks(snapshot: FleetSnapshot) -> Iterator[Metric]:
    seen = [row.last_updated for row in snapshot.rows]
    times = [when for when in (snapshot.listed_at, *seen) if when is not None]
    yield _metric(
        "build_info",
        "Always 1; the label 'version' is the version of the exporter.",
        [((("version", __version__),), 1.0)],
    )
    yield _metric(
        "look_interval_seconds", "Time between two checks of a member.", [((), known_number(snapshot.interval))]
    )
    last = known_number(max(times, default=None))
    yield _metric(
        "last_look_timestamp_seconds", "Time of the last response from any member or from vast.ai.", [((), last)]
    )


_OfFleet = Callable[[FleetSnapshot], float | None]
_SUMS: dict[str, tuple[str, _OfFleet]] = {
    "members_omitted": (
        f"Number of members beyond the first {MOST_MEMBERS}; no series are exported for them.",
        lambda s: max(0, len(s.rows) - MOST_MEMBERS),
    ),
    "fleet_looks_late_seconds": (
        "Longest time by which the check of a responding member is overdue; 0 if none is overdue.",
        lambda s: s.late,
    ),
    "trainings_omitted": (
        f"Number of trainings without series: at most {MOST_BESIDE} per member are exported besides the member's own.",
        lambda s: s.summary.left_out,
    ),
    "account_up": (
        "Whether the account's machines could be listed (1 or 0).",
        lambda s: None if s.error is None and s.listed_at is None else float(s.error is None),
    ),
    "fleet_dollars_per_hour": (
        "Total of the known prices per hour. If an account is watched, all its instances are included.",
        lambda s: _least(s.summary.dollars_per_hour, s.summary.unpriced),
    ),
    "machines_without_price": ("Number of rented machines whose price is unknown.", lambda s: s.summary.unpriced),
    "fleet_cost_dollars": (
        "Total of the known costs of the members' rentals.",
        lambda s: _least(s.summary.dollars_spent, s.summary.without_total),
    ),
    "fleet_remaining_seconds": (
        "Time until all trainings with a known ETA have ended.",
        lambda s: s.summary.seconds_to_completion,
    ),
    "fleet_remaining_cost_dollars": (
        "Estimated remaining cost of the trainings with a known ETA and price.",
        lambda s: s.summary.dollars_to_completion,
    ),
    "credit_dollars": (
        "Remaining credit of the vast.ai account.",
        lambda s: s.summary.credit if s.error is None else None,
    ),
    "credit_remaining_seconds": (
        "Upper bound on how long the credit lasts at the current price per hour.",
        lambda s: None if s.summary.credit_hours is None or s.error is not None else s.summary.credit_hours * HOUR,
    ),
    "hidden_machines": (
        "Number of rented machines in the account that are not members.",
        lambda s: None if s.listed_at is None else s.summary.hidden,
    ),
    "hidden_dollars_per_hour": (
        "Total price per hour of the rented machines that are not members.",
        lambda s: None if s.listed_at is None else s.summary.hidden_dollars_per_hour,
    ),
}


def _metrics_of_fleet(snapshot: FleetSnapshot) -> Iterator[Metric]:
    """Yield the sums. Without a listing, none is known of a fleet whose members, or some of them, come from one."""
    is_known = snapshot.listed_at is not None or (snapshot.error is None and len(snapshot.rows) > 0)
    levels = snapshot.summary.levels.items() if is_known else ()
    counts = (((("level", level),), known_number(count)) for level, count in levels)
    yield _metric("members", "Number of members by level of health.", counts)
    for name, (help, of) in _SUMS.items():
        value = of(snapshot) if is_known or name == "account_up" else None
        yield _metric(name, help, [((), known_number(value))])
    alerts = Counter((("kind", _label(each.kind)), ("level", _label(each.level))) for each in snapshot.alerts)
    yield _metric("recent_alerts", "Number of recent alerts (at most 200), by kind and level.", alerts.items())


def _least(known: float, unknown: int) -> float | None:
    """Return a sum of what is known, which is the least that it can be; None where nothing is known of it."""
    return None if unknown and not known else known
