"""Which alerts follow from a row of a fleet and what was told before; and from the account as a whole. Pure.

Most alerts begin and end: one is told when it begins, and again only after it was seen to be over. What was not seen is
no event: a look that failed begins nothing and ends nothing, and neither does a value that is not known. What has been
so for longer than it was watched is told only when somebody has to do something about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import floor, isfinite

from training_monitor.policy.alert_rules import RuleState, advance_rule
from training_monitor.policy.cost import DAY, HOUR
from training_monitor.policy.fleet_config import FleetConfig
from training_monitor.policy.fleet_values import FleetAlert, FleetSample, FleetSummary
from training_monitor.policy.judge import ENDS, format_verdict
from training_monitor.policy.training_metrics import (
    FAILED,
    LEVELS,
    TrainingMetrics,
    failure_of,
    has_nan,
    is_finished,
    is_full,
)
from training_monitor.units import format_duration

MOST_GENERATION = 2**53
RUN = 2**32  # generations of one run
STEADY = 0.5  # of the rise of a price: it is over when the price is nearer than that to what it was
MOST_TEXT = 300  # characters
EMPTIER = 2.0  # per cent by which a full disk is emptier when it is full no more
_DOWN = ("offline", *FAILED)
_LEVELS = {"low": "info", "normal": "warning", "high": "error", "urgent": "error"}
_SEVERITY = ("info", "warning", "error")


@dataclass(frozen=True, slots=True)
class ToldMember:
    """What was told of one member.

    Attributes:
        open: what has begun and is not over, and on which level it was told.
        at_work: its training was seen to make steps since it was last told to have finished.
        ending: somebody stops or destroys it: that it fails or is gone then is no news.
        stalled_step: where the stall that was told began.
        run: which training was seen last (see TrainingMetrics); 0 while nobody knew.
        epoch: its last epoch that is done; None before one was seen.
        price: dollars per hour that it cost at first while it ran; `told_price` is the rise that was told.
        rules: where the user's own rules stand, by name.
    """

    open: Mapping[str, str] = field(default_factory=dict)
    at_work: bool = False
    ending: bool = False
    stalled_step: int | None = None
    run: int = 0
    epoch: int | None = None
    price: float | None = None
    told_price: float | None = None
    rules: Mapping[str, RuleState] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToldAccount:
    """What was told of the account: that the budget is passed, and the last day (UTC) of a warning of its credit."""

    budget: bool = False
    credit_day: int | None = None


# ---------------------------------------------------------------- a member


def decide_fleet_alerts(
    told: ToldMember,
    before: TrainingMetrics | None,
    metrics: TrainingMetrics,
    sample: FleetSample,
    config: FleetConfig,
    now: float,
) -> tuple[ToldMember, list[FleetAlert]]:
    """What is to be told of a member now, and what has been told of it then.

    Args:
        told: what was told of it; `ToldMember()` at first.
        before: the row before this one; None at first.
        metrics: the row.
        sample: what is known for the user's own rules.
        config: thresholds and rules.
        now: epoch seconds.
    """
    found = _Found(metrics, now)
    told = _judge_machine(told, found)
    if metrics.error is not None:
        return _judge_rules(told, found, sample, config), found.alerts
    told = _judge_training(told, found, before)
    told = _judge_stall(told, found)
    told = _judge_values(told, found, config)
    told = _judge_epoch(told, found, before)
    told = _judge_price(told, found, config)
    told = _judge_rules(told, found, sample, config)
    return told, found.alerts


class _Found:
    """The alerts of one row, as they are found."""

    def __init__(self, metrics: TrainingMetrics, now: float) -> None:
        self.metrics, self.now = metrics, now
        self.alerts: list[FleetAlert] = []

    def add(self, kind: str, level: str, text: str, generation: float | None = None) -> None:
        number = self.metrics.step if generation is None else generation
        run = self.metrics.run
        bounded = max(0, min(int(number or 0), RUN - 1 if run else MOST_GENERATION)) + run * RUN
        self.alerts.append(FleetAlert(self.now, self.metrics.key, kind, text[:MOST_TEXT], level, bounded))

    def judge(
        self, told: ToldMember, kind: str, is_so: bool | None, level: str, text: str, generation: float | None = None
    ) -> ToldMember:
        """Tell what begins or gets worse; forget what is over; None is not known, and changes nothing."""
        known = told.open.get(kind)
        if is_so is False and known is not None:
            return replace(told, open={name: each for name, each in told.open.items() if name != kind})
        if not is_so or (known is not None and _SEVERITY.index(known) >= _SEVERITY.index(level)):
            return told
        self.add("failed" if kind == "down" else kind, level, text, generation)
        return replace(told, open={**told.open, kind: level})


def _judge_machine(told: ToldMember, found: _Found) -> ToldMember:
    """Lost, or down: what is said of the machine, also when it cannot be looked at."""
    metrics = found.metrics
    if told.ending:
        return told
    is_lost, reason = metrics.status == "lost", failure_of(metrics) or ""
    told = found.judge(told, "lost", is_lost or _unless_stale(metrics), "error", reason, metrics.last_updated or 0)
    is_down = metrics.status in _DOWN and reason != ""
    is_up = metrics.status == "running"
    return found.judge(told, "down", is_down or (_unless_stale(metrics) if is_up else None), "error", reason)


def _unless_stale(metrics: TrainingMetrics) -> bool | None:
    """False, it is not so; None while nobody knows."""
    return False if metrics.error is None else None


def _judge_training(told: ToldMember, found: _Found, before: TrainingMetrics | None) -> ToldMember:
    """Whether the training failed or finished. One that had finished before it was first seen is no news."""
    metrics = found.metrics
    level, failure = _end_without_success(metrics)
    if metrics.status in ("lost", *_DOWN) or told.ending:
        failure = None
    over = False if metrics.is_running else None
    told = found.judge(told, "failed", failure is not None or over, level, failure or "")
    moved = before is not None and None not in (before.step, metrics.step) and before.step != metrics.step
    finished = is_finished(metrics)
    at_work = told.at_work or moved or (metrics.is_running is True and not finished)
    if at_work and finished:
        found.add("finished", "info", f"the training has finished{_at_step(metrics)}{_loss(metrics)}")
    return replace(told, at_work=at_work and not finished)


def _end_without_success(metrics: TrainingMetrics) -> tuple[str, str | None]:
    """(level, why) of a training that ended without having finished: a warning where nothing tells how."""
    failure, verdict = failure_of(metrics), metrics.verdict
    if failure is not None or metrics.is_running is not False:
        return "error", failure
    return "warning", verdict.reason if verdict and verdict.state == "unknown" else metrics.absent


def _judge_stall(told: ToldMember, found: _Found) -> ToldMember:
    """It is over when it runs at its speed again and made a step, or has ended: not when it merely was not seen."""
    verdict, step = found.metrics.verdict, found.metrics.step
    if found.metrics.is_running is False or (verdict and verdict.state in ENDS):
        return replace(found.judge(told, "stall", False, "info", ""), stalled_step=None)
    if verdict is None:
        return told
    if verdict.state in ("stalled", "slow"):
        judged = found.judge(told, "stall", True, LEVELS[verdict.verdict], format_verdict(verdict), step)
        return judged if judged is told else replace(judged, stalled_step=step)
    has_moved = "stall" in told.open and step is not None and step != told.stalled_step
    if verdict.state != "running" or not has_moved:
        return told
    found.add("recovered", "info", f"it makes steps again{_at_step(found.metrics)}")
    return replace(found.judge(told, "stall", False, "info", ""), stalled_step=None)


def _judge_values(told: ToldMember, found: _Found, config: FleetConfig) -> ToldMember:
    """The loss, and the disk."""
    metrics, analysis = found.metrics, found.metrics.loss_analysis
    is_nan = has_nan(metrics)
    is_finite = metrics.loss is not None and isfinite(metrics.loss)
    told = found.judge(told, "nan", is_nan or (False if is_finite else None), "error", f"the loss is {metrics.loss}")
    for kind in ("divergence", "spike"):
        is_so = None if analysis is None else analysis.kind == kind
        told = found.judge(told, kind, is_so, "warning", analysis.reason if analysis else "")
    used, limit = metrics.disk_util, config.thresholds.full_disk
    is_empty = used is not None and (limit is None or used <= limit - EMPTIER)
    is_so = is_full(metrics, config.thresholds) or (False if is_empty else None)
    return found.judge(told, "disk", is_so, "warning", f"its disk is {used or 0:.0f} % full", found.now // DAY)


def _judge_epoch(told: ToldMember, found: _Found, before: TrainingMetrics | None) -> ToldMember:
    """Told once for each epoch that is done; of several at once the last one. A training begun anew does none."""
    metrics, last = found.metrics, told.run
    told = replace(told, run=metrics.run or last)
    if 0 != last != told.run:  # another one, which has epochs of its own
        told = replace(told, epoch=None)
    if metrics.epochs_done is None or not 0 <= metrics.epochs_done < MOST_GENERATION:
        return told
    done = floor(metrics.epochs_done)
    is_anew = before is not None and _fell(before.step, metrics.step)
    if told.epoch is None or done <= 0 or is_anew:
        return replace(told, epoch=done if done <= 0 else max(done, told.epoch or 0))
    if done > told.epoch:
        of = f" of {metrics.total_epochs}" if metrics.total_epochs else ""
        found.add("epoch", "info", f"epoch {done}{of} is done{_loss(metrics)}", done)
        return replace(told, epoch=done)
    return told


def _fell(before: int | None, step: int | None) -> bool:
    return before is not None and step is not None and step < before


def _judge_price(told: ToldMember, found: _Found, config: FleetConfig) -> ToldMember:
    """A machine that is stopped costs less: only the price of one that runs is looked at, to a hundredth of a cent."""
    price, limit = round(found.metrics.cost_per_hour or 0.0, 4), config.thresholds.price_rise
    if found.metrics.status != "running" or not price or limit is None:
        return told
    if told.price is None:
        return replace(told, price=price)
    factor = 1.0 + limit / 100.0
    if price <= told.price * (1.0 + STEADY * (factor - 1.0)):
        return replace(told, told_price=None)
    if price <= (told.told_price or told.price) * factor:
        return told
    text = f"its price rose from ${told.price:.3f} to ${price:.3f} an hour"
    found.add("price", "warning", text, round(1000 * price))
    return replace(told, told_price=price)


def _judge_rules(told: ToldMember, found: _Found, sample: FleetSample, config: FleetConfig) -> ToldMember:
    """What the user wants to know."""
    if not config.rules:
        return told
    states = {}
    for rule in config.rules:
        state, fires = advance_rule(rule, told.rules.get(rule.name, RuleState()), sample, gap=config.fresh_seconds)
        states[rule.name] = state
        if fires:
            since = found.now if state.since is None else state.since
            found.add(f"rule:{rule.name}", _LEVELS[rule.priority], rule.message or rule.when, since)
    return replace(told, rules=states)


def _at_step(metrics: TrainingMetrics) -> str:
    return "" if metrics.step is None else f" at step {metrics.step}"


def _loss(metrics: TrainingMetrics) -> str:
    return "" if metrics.loss is None else f", loss {metrics.loss:.4g}"


# ---------------------------------------------------------------- the account


def decide_account_alerts(
    told: ToldAccount, summary: FleetSummary, config: FleetConfig, now: float
) -> tuple[ToldAccount, list[FleetAlert]]:
    """What is to be told of the money: the budget once it is passed, the credit once a day while it does not last."""
    alerts = []
    is_passed = told.budget or (config.budget is not None and summary.dollars_spent >= config.budget)
    if is_passed and not told.budget:
        least = "at least " if summary.without_total else ""
        text = f"the budget of ${config.budget:.2f} is passed: {least}${summary.dollars_spent:.2f} spent"
        alerts.append(FleetAlert(now, "", "budget", text, "error", round(1000 * (config.budget or 0.0))))
    day, hours = int(now // DAY), summary.credit_hours
    is_short = hours is not None and 0 < config.warn_hours_left and hours <= config.warn_hours_left
    if is_short and day != told.credit_day:
        most, more = ("at most ", " or more") if summary.unpriced else ("", "")
        lasts = f"lasts {most}{format_duration(HOUR * (hours or 0.0))}"
        text = f"the credit of ${summary.credit or 0.0:.2f} {lasts} at ${summary.dollars_per_hour:.2f}/h{more}"
        alerts.append(FleetAlert(now, "", "credit", text, "warning", day))
    return ToldAccount(is_passed, day if is_short else told.credit_day), alerts
