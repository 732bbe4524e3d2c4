"""Decide the alerts of a member, from its row and its earlier alerts, and those of the account as a whole. Pure.

Most alerts have a beginning and an end: an alert is sent when it begins, and again only after it was seen to end. A
failed look or an unknown value neither begins nor ends anything. A condition that predates the monitor is reported only
if someone has to act on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import floor, isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

from training_monitor.core.units import DAY, HOUR, format_duration
from training_monitor.fleet.config import AlertRule, FleetConfig
from training_monitor.fleet.metrics import FAILED, LEVELS, TrainingMetrics, failure_of, has_nan, is_finished, is_full
from training_monitor.fleet.values import FleetAlert, FleetSample, FleetSummary
from training_monitor.verdict.judge import ENDS, format_verdict

if TYPE_CHECKING:
    from training_monitor.fleet.conditions import RuleState

MOST_GENERATION = 2**53
RUN = 2**32  # generations per run
STEADY = 0.5  # of the price rise that raises an alert: below this share the alert ends
MOST_TEXT = 300  # characters
EMPTIER = 2.0  # per cent below the limit at which the alert of a full disk ends
_DOWN = ("offline", *FAILED)
_LEVELS = {"low": "info", "normal": "warning", "high": "error", "urgent": "error"}
_SEVERITY = ("info", "warning", "error")


@dataclass(frozen=True, slots=True)
class ToldMember:
    """What was reported of one member.

    Attributes:
        open: alerts that have begun and not ended, with the level they were reported at.
        at_work: its training made steps since it was last reported as finished.
        ending: it is being stopped or destroyed by request: that it fails or disappears then is no news.
        stalled_step: the step of the reported stall.
        run: the run seen last (see TrainingMetrics); 0 while unknown.
        epoch: its last completed epoch; None before one was seen.
        price: its first price while running, in dollars per hour; `told_price` is the raised price that was reported.
        rules: the states of the user's alert rules, by name.
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

    def fired(self) -> set[str]:
        """Return the names of the rules that have fired and still hold."""
        return {name for name, state in self.rules.items() if state.fired}

    def going_on(self) -> set[str]:
        """Return the kinds of the alerts that have begun and not ended."""
        return {_told_as(kind) for kind in self.open} | {f"rule:{name}" for name in self.fired()}

    def may_go_on(self) -> set[str]:
        """Return these, and the rules whose condition holds, or of which that is not known."""
        rules = {name for name, state in self.rules.items() if state.since is not None or state.known_at is None}
        return self.going_on() | {f"rule:{name}" for name in rules}


class ToldAccount(NamedTuple):
    """What was reported of the account: that the budget is exceeded, and the day (UTC) of the last credit warning."""

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
    """Return the new state of a member's alerts and the alerts to send now.

    Args:
        told: the state returned before; `ToldMember()` at first.
        before: the row before this one; None at first.
        metrics: the row.
        sample: the values for the user's alert rules.
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


def _told_as(kind: str) -> str:
    """Return the kind of the alert that tells of a condition: a machine that is down is told as a failure."""
    return "failed" if kind == "down" else kind


class _Found:
    """Collects the alerts of one row."""

    def __init__(self, metrics: TrainingMetrics, now: float) -> None:
        self.metrics, self.now = metrics, now
        self.alerts: list[FleetAlert] = []

    def add(self, kind: str, level: str, text: str, generation: float | None = None) -> None:
        number = self.metrics.step if generation is None else generation
        run = self.metrics.run
        bounded = max(0, min(int(number or 0), RUN - 1 if run else MOST_GENERATION)) + run * RUN
        self.alerts.append(FleetAlert(self.now, self.metrics.key, kind, text[:MOST_TEXT], level, bounded))

    def judge(
        self,
        told: ToldMember,
        kind: str,
        is_so: bool | None,
        level: str,
        text: str,
        generation: float | None = None,
        *,
        over: str = "",
    ) -> ToldMember:
        """Send an alert that begins or gets worse, and close one that ended; None means unknown and changes nothing.

        `over` is told when it has ended, if there is anything to tell.
        """
        known = told.open.get(kind)
        if is_so is False and known is not None:
            if over:
                self.add(f"over:{_told_as(kind)}", "info", over, self.now)
            return replace(told, open={name: each for name, each in told.open.items() if name != kind})
        if not is_so or (known is not None and _SEVERITY.index(known) >= _SEVERITY.index(level)):
            return told
        self.add(_told_as(kind), level, text, generation)
        return replace(told, open={**told.open, kind: level})


def _judge_machine(told: ToldMember, found: _Found) -> ToldMember:
    """Judge whether the machine is lost or down, also when it cannot be reached."""
    metrics = found.metrics
    if told.ending or (metrics.found and isinstance(metrics.instance_id, int)):  # another row has the instance
        return told
    is_lost, reason = metrics.status == "lost", failure_of(metrics) or ""
    is_so, seen_at = is_lost or _unless_stale(metrics), metrics.last_updated or 0
    told = found.judge(told, "lost", is_so, "error", reason, seen_at, over="the account lists this instance again")
    is_down = metrics.status in _DOWN and reason != ""
    is_up = metrics.status == "running"
    is_so = is_down or (_unless_stale(metrics) if is_up else None)
    return found.judge(told, "down", is_so, "error", reason, over="it is up again")


def _unless_stale(metrics: TrainingMetrics) -> bool | None:
    """Return False, or None (unknown) while the member does not answer."""
    return False if metrics.error is None else None


def _judge_training(told: ToldMember, found: _Found, before: TrainingMetrics | None) -> ToldMember:
    """Judge whether the training failed or finished. One that had finished before it was first seen is not reported."""
    metrics = found.metrics
    level, failure = _end_without_success(metrics)
    if metrics.status in ("lost", *_DOWN) or told.ending:
        failure = None
    over = False if metrics.is_running else None
    again = f"it is running again{_at_step(metrics)}"
    told = found.judge(told, "failed", failure is not None or over, level, failure or "", over=again)
    moved = before is not None and None not in (before.step, metrics.step) and before.step != metrics.step
    finished = is_finished(metrics)
    at_work = told.at_work or moved or (metrics.is_running is True and not finished)
    if at_work and finished:
        found.add("finished", "info", f"the training has finished{_at_step(metrics)}{_loss(metrics)}")
    return _changed(told, at_work=at_work and not finished)


def _end_without_success(metrics: TrainingMetrics) -> tuple[str, str | None]:
    """Return level and reason of a training that ended without finishing; a warning where the cause is unknown."""
    failure, verdict = failure_of(metrics), metrics.verdict
    if failure is not None or metrics.is_running is not False or (verdict and verdict.state in ENDS):
        return "error", failure
    return "warning", verdict.reason if verdict and verdict.state == "unknown" else metrics.absent


def _judge_stall(told: ToldMember, found: _Found) -> ToldMember:
    """Judge a stall: it ends with the training, or when that runs at speed again and made a step."""
    verdict, step = found.metrics.verdict, found.metrics.step
    if found.metrics.is_running is False or (verdict and verdict.state in ENDS):
        return replace(found.judge(told, "stall", False, "info", ""), stalled_step=None)
    if verdict is None:
        return told
    if verdict.state in ("stalled", "suspended", "slow"):
        judged = found.judge(told, "stall", True, LEVELS[verdict.verdict], format_verdict(verdict), step)
        return judged if judged is told else replace(judged, stalled_step=step)
    has_moved = "stall" in told.open and step is not None and step != told.stalled_step
    if verdict.state != "running" or not has_moved:
        return told
    found.add("recovered", "info", f"it is making progress again{_at_step(found.metrics)}")
    return replace(found.judge(told, "stall", False, "info", ""), stalled_step=None)


def _judge_values(told: ToldMember, found: _Found, config: FleetConfig) -> ToldMember:
    """Judge the loss and the disk."""
    metrics, analysis = found.metrics, found.metrics.loss_analysis
    is_nan = has_nan(metrics)
    is_finite = metrics.loss is not None and isfinite(metrics.loss)
    again = f"the loss is now {metrics.loss:.4g}" if metrics.loss is not None else ""
    is_so = is_nan or (False if is_finite else None)
    told = found.judge(told, "nan", is_so, "error", f"the loss is {metrics.loss}", over=again)
    for kind in ("divergence", "spike"):
        is_so = None if analysis is None else analysis.kind == kind
        told = found.judge(told, kind, is_so, "warning", analysis.reason if analysis else "", over=again)
    if metrics.found:  # the disk is reported of the member that has its machine
        return told
    used, limit = metrics.disk_util, config.thresholds.full_disk
    is_empty = used is not None and (limit is None or used <= limit - EMPTIER)
    is_so = is_full(metrics, config.thresholds) or (False if is_empty else None)
    text = f"its disk is {used or 0:.0f} % full"
    return found.judge(told, "disk", is_so, "warning", text, found.now // DAY, over=f"{text}, below the limit")


def _judge_epoch(told: ToldMember, found: _Found, before: TrainingMetrics | None) -> ToldMember:
    """Report each completed epoch once, of several at once the last; a training that was started anew reports none."""
    metrics, last = found.metrics, told.run
    told = _changed(told, run=metrics.run or last)
    if 0 != last != told.run:  # another run, which counts its own epochs
        told = replace(told, epoch=None)
    if metrics.epochs_done is None or not 0 <= metrics.epochs_done < MOST_GENERATION:
        return told
    done = floor(metrics.epochs_done)
    is_anew = before is not None and _fell(before.step, metrics.step)
    if told.epoch is None or done <= 0 or is_anew:
        return _changed(told, epoch=done if done <= 0 else max(done, told.epoch or 0))
    if done > told.epoch:
        of = f" of {metrics.total_epochs}" if metrics.total_epochs else ""
        found.add("epoch", "info", f"epoch {done}{of} is done{_loss(metrics)}", done)
        return replace(told, epoch=done)
    return told


def _changed(told: ToldMember, **values: Any) -> ToldMember:
    """Return the state with other values; most looks change none."""
    return told if all(getattr(told, name) == value for name, value in values.items()) else replace(told, **values)


def _fell(before: int | None, step: int | None) -> bool:
    return before is not None and step is not None and step < before


def _judge_price(told: ToldMember, found: _Found, config: FleetConfig) -> ToldMember:
    """Judge the price, rounded to 1/100 cent, of a running machine only: a stopped one costs less."""
    price, limit = round(found.metrics.cost_per_hour or 0.0, 4), config.thresholds.price_rise
    if found.metrics.status != "running" or not price or limit is None:
        return told
    if told.price is None:
        return replace(told, price=price)
    factor = 1.0 + limit / 100.0
    if price <= told.price * (1.0 + STEADY * (factor - 1.0)):
        return _changed(told, told_price=None)
    if price <= (told.told_price or told.price) * factor:
        return told
    text = f"its price rose from ${told.price:.3f} to ${price:.3f} per hour"
    found.add("price", "warning", text, round(1000 * price))
    return replace(told, told_price=price)


def _judge_rules(told: ToldMember, found: _Found, sample: FleetSample, config: FleetConfig) -> ToldMember:
    """Judge the user's alert rules."""
    if not config.rules:
        return told
    from training_monitor.fleet.conditions import RuleState, advance_rule  # most users have no rules

    states = {}
    for rule in config.rules:
        state, fires = advance_rule(rule.when, told.rules.get(rule.name, RuleState()), sample, gap=config.fresh_seconds)
        states[rule.name] = state
        if fires:
            since = found.now if state.since is None else state.since
            text = f"{rule.message or rule.when}{_values(rule, sample)}"
            found.add(f"rule:{rule.name}", _LEVELS[rule.priority], text, since)
        elif rule.name in told.fired() and not state.fired:
            text = f"no longer true: {rule.message or rule.when}{_values(rule, sample)}"
            found.add(f"over:rule:{rule.name}", "info", text, found.now)
    return replace(told, rules=states)


def _values(rule: AlertRule, sample: FleetSample) -> str:
    """Format the values that a rule asks for: ` (gpu_utilization 3.2, loss nan)`."""
    from training_monitor.fleet.conditions import tested_values

    known = tested_values(rule.when, sample)
    shown = (f"{name} {value if isinstance(value, str) else f'{value:.4g}'}" for name, value in known.items())
    return f" ({', '.join(shown)})" if known else ""


def _at_step(metrics: TrainingMetrics) -> str:
    return "" if metrics.step is None else f" at step {metrics.step}"


def _loss(metrics: TrainingMetrics) -> str:
    return "" if metrics.loss is None else f", loss {metrics.loss:.4g}"


# ---------------------------------------------------------------- the account


def decide_account_alerts(
    told: ToldAccount, summary: FleetSummary, config: FleetConfig, now: float
) -> tuple[ToldAccount, list[FleetAlert]]:
    """Decide the alerts of the budget, once when exceeded, and of the credit, once a day while it is short."""
    alerts = []
    is_passed = told.budget or (config.budget is not None and summary.dollars_spent >= config.budget)
    if is_passed and not told.budget:
        least = "at least " if summary.without_total else ""
        text = f"the budget of ${config.budget:.2f} is exceeded: {least}${summary.dollars_spent:.2f} spent"
        alerts.append(FleetAlert(now, "", "budget", text, "error", round(1000 * (config.budget or 0.0))))
    day, hours = int(now // DAY), summary.credit_hours
    is_short = hours is not None and 0 < config.warn_hours_left and hours <= config.warn_hours_left
    if is_short and day != told.credit_day:
        most, more = ("at most ", " or more") if summary.unpriced else ("", "")
        lasts = f"lasts {most}{format_duration(HOUR * (hours or 0.0))}"
        text = f"the credit of ${summary.credit or 0.0:.2f} {lasts} at ${summary.dollars_per_hour:.2f}/h{more}"
        alerts.append(FleetAlert(now, "", "credit", text, "warning", day))
    return ToldAccount(is_passed, day if is_short else told.credit_day), alerts
