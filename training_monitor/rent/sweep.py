"""Decide whether a rented instance is to be destroyed, by its row of a complete listing and its label's job. Pure.

Only instances with this owner's label are judged; all others are foreign. Missing values are not guessed: a missing or
impossible start is replaced by the time at which the instance was first seen. Where a worker or a record may still turn
up, an instance is not destroyed at first sight: the grace period begins when it is first seen.

The records of a sweep's report are here as well; they are JSON-ready.
"""

from __future__ import annotations

from collections.abc import Mapping, Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypedDict

from training_monitor.core.reports import report_of
from training_monitor.core.units import format_duration, known_number
from training_monitor.rent.config import ServiceConfig
from training_monitor.vast.cost import cost_per_hour, forecast_burn, reached_limit
from training_monitor.vast.rows import EARLIEST_START, read_label
from training_monitor.vast.training_request import JobState, QueuedJob

FORGET_SECONDS = 86400.0  # an instance that was not listed for this long is forgotten
_DOWN = ("exited", "stopped", "offline", "unknown", "frozen")
_AFTER_WORK = (JobState.DESTROYING, JobState.SETTLING, JobState.NOTIFYING)
MOST_SHOWN = 200  # characters of a label, which anyone may have written
_Found = tuple[str, str, float | None] | None
_ALERTS = {"max_runtime": "MAX_RUNTIME_EXCEEDED", "orphan": "ORPHAN_INSTANCE", "kept": "INSTANCE_KEPT"}


class JudgedInstance(TypedDict):
    """An instance, and what a sweep does with it. `label` and `status` are those of vast.ai.

    action: keep | terminate | foreign, which is never touched.
    kind: foreign | kept (on purpose) | finished | left_over | stuck | max_runtime | orphan | down | abandoned
        (by all workers) | at_work.
    reason: one sentence.
    job_id: the job in its label; None for a foreign one.
    runtime_seconds: seconds since it was rented, or first seen if that is unknown; None for a foreign one.
    seconds_left: the rest of the grace period of a kept one; None: kept as long as nothing changes.
    cost_per_hour: in dollars; None if unknown.
    acknowledged: vast.ai accepted a request to destroy it; a destroyed one without that went by itself, or the reply
    was lost.
    """

    instance_id: int
    action: str
    kind: str
    reason: str
    job_id: str | None
    label: str | None
    status: str | None
    runtime_seconds: float | None
    seconds_left: float | None
    cost_per_hour: float | None
    acknowledged: bool


@dataclass(frozen=True, slots=True)
class SweepMemory:
    """What is stored between sweeps; times in epoch seconds.

    Attributes:
        first_seen: when a listing first showed an instance of ours, by its id; last_seen: when the last one did.
        workers: the worker seen to hold an instance's job (None: nobody), and since when.
        away: when sweeps of an instance resumed after a pause, and the last progress of its job then.
        destroying: instances being destroyed, by id, to be reported once they are gone.
        outages: how many times the listing began to fail.
        outage_since: when it last began to fail; None while it works.
        outage_told: whether a notice of that was sent.
    """

    first_seen: Mapping[str, float] = field(default_factory=dict)
    last_seen: Mapping[str, float] = field(default_factory=dict)
    workers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    away: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    destroying: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    outages: int = 0
    outage_since: float | None = None
    outage_told: bool = False

    def see(self, ids: AbstractSet[str], now: float) -> SweepMemory:
        """Return the memory after a complete listing; missing instances are remembered for a day."""
        last = {**self.last_seen, **dict.fromkeys(ids, now)}
        last = {each: when for each, when in last.items() if now - when <= FORGET_SECONDS}
        first = {each: self.first_seen.get(each, now) for each in last}
        workers = {each: seen for each, seen in self.workers.items() if each in last}
        away = {each: seen for each, seen in self.away.items() if each in last}
        return replace(self, last_seen=last, first_seen=first, workers=workers, away=away)

    def see_worker(self, instance_id: str, worker: str | None, now: float) -> SweepMemory:
        """Return the memory after this worker was seen to hold an instance's job."""
        if instance_id in self.workers and self.workers[instance_id].get("worker") == worker:
            return self
        return replace(self, workers={**self.workers, instance_id: {"worker": worker, "since": now}})

    def resume(self, instance_id: str, progressed_at: float, now: float) -> SweepMemory:
        """Return the memory after the first sweep that follows a pause: this machine may have been suspended as well.

        A job without progress since an earlier pause gets no more time. Progress after its maximum runtime counts for
        none: sweeps may be that rare as a rule.
        """
        if self.away.get(instance_id, {}).get("progressed_at") == progressed_at:
            return self
        return replace(self, away={**self.away, instance_id: {"progressed_at": progressed_at, "since": now}})

    def worker_since(self, instance_id: str) -> float | None:
        """Return when the current worker, or that there is none, was first seen; None: it has no job."""
        return self.workers.get(instance_id, {}).get("since")

    def resumed_at(self, instance_id: str) -> float | None:
        """Return when sweeps resumed after a pause; None: there was none."""
        return self.away.get(instance_id, {}).get("since")

    def fail(self, now: float) -> SweepMemory:
        """Return the memory after a listing that failed."""
        if self.outage_since is None:
            return replace(self, outages=self.outages + 1, outage_since=now, outage_told=False)
        return replace(self, outage_since=min(self.outage_since, now))

    def recover(self) -> SweepMemory:
        """Return the memory after a listing that worked."""
        return replace(self, outage_since=None, outage_told=False)


class _Look(NamedTuple):
    """An instance of ours and what is known of it."""

    row: Mapping[str, Any]
    job: QueuedJob | None
    attempt: int
    first_seen: float
    now: float
    config: ServiceConfig
    runtime: float
    worker_since: float | None
    resumed_at: float | None

    @property
    def is_leased(self) -> bool:
        """Whether a worker holds the job, and so handles what it can."""
        return self.job is not None and is_held(self.job, self.now)

    @property
    def grace_of_worker(self) -> float:
        """Seconds left for a worker so new, or so long suspended, that it cannot have looked yet."""
        moments = (self.worker_since if self.is_leased else None, self.resumed_at)
        since = max((each for each in moments if each is not None), default=None)
        return 0.0 if since is None else self.config.orphan_grace - (self.now - since)

    @property
    def grace_of_sight(self) -> float:
        """Seconds left for an instance that was first seen just now."""
        return self.config.orphan_grace - (self.now - self.first_seen)

    def since(self, *moments: float | None) -> float:
        """Return the seconds since the latest of these and the first sight; moments in the future are ignored."""
        return self.now - max(each for each in (self.first_seen, *moments) if each is not None and each <= self.now)


def decide_sweep(
    row: Mapping[str, Any],
    job: QueuedJob | None,
    owner: str,
    first_seen: float,
    now: float,
    config: ServiceConfig,
    *,
    worker_since: float | None = None,
    resumed_at: float | None = None,
) -> JudgedInstance:
    """Decide what to do with an instance.

    Args:
        row: from a complete listing.
        job: the one in its label, read after the listing, so that it is never older than its instance; None: there is
            none.
        owner: whose instances are judged.
        first_seen: when a listing first showed it; like `now` in epoch seconds.
        config: the limits.
        worker_since: when the job's current worker, or that it has none, was first seen, epoch seconds; None: long ago
            for a worker, just now for none.
        resumed_at: when sweeps resumed after a pause, epoch seconds; None: there was none.
    """
    label = read_label(row.get("label"))
    if label is None or label[0] != owner:
        reason = "it has no training label" if label is None else f"it belongs to {label[0][:40]!r}"
        return _describe(row, action="foreign", kind="foreign", reason=reason)
    _, job_id, attempt = label
    first_seen = min(first_seen, now)
    runtime = now - started_at(row, job, first_seen, now)
    look = _Look(row, job, attempt, first_seen, now, config, runtime, worker_since, resumed_at)
    rules = (_judge_end, _judge_attempt, _judge_progress, _judge_runtime, _judge_record, _judge_status, _judge_holder)
    found = next(filter(None, (rule(look) for rule in rules)), None)
    kind, reason, seconds = found or ("at_work", _work_in_words(look), None)
    action, left = ("keep", seconds) if seconds is None or seconds > 0 else ("terminate", None)
    judged = {"action": action, "kind": kind, "reason": reason, "seconds_left": left}
    return _describe(row, **judged, job_id=job_id, runtime_seconds=runtime)


def _describe(row: Mapping[str, Any], **judged: Any) -> JudgedInstance:
    """Return an instance with what was judged of it; what was not is None."""
    return report_of(
        JudgedInstance,
        None,
        judged,
        instance_id=row["id"],
        label=_text(row.get("label")),
        status=_text(row.get("actual_status")),
        cost_per_hour=cost_per_hour(row),
        acknowledged=False,
    )


def is_held(job: QueuedJob, now: float) -> bool:
    """Return whether a worker has the job."""
    return job.worker is not None and (job.lease_until or 0.0) > now


def why_over(job: QueuedJob) -> str | None:
    """Return why a job is ending: a sweep may finish it where it has no worker. None: it goes on."""
    if job.state.is_terminal:
        return None
    if job.work.outcome is not None:
        return f"{job.work.outcome.value.lower()}: {job.work.reason}"
    return job.to_end and job.to_end[1]


def is_at_work(row: Mapping[str, Any], job: QueuedJob) -> bool:
    """Return whether the job is unfinished and this is the machine it has or asked for."""
    label, has = read_label(row.get("label")), job.work.instance_id
    mine = label is not None and label[1:] == (job.id, job.work.attempt)
    return mine and not job.state.is_terminal and (has is None or _is_same(has, row.get("id")))


# ---------------------------------------------------------------- rules: (kind, reason, seconds left), or None
# where a rule does not apply; 0 or less: destroy; None for the seconds: keep


def _judge_end(look: _Look) -> _Found:
    job = look.job
    if job is None:
        return None
    outcome = job.work.outcome if job.state in _AFTER_WORK else job.state
    if outcome is JobState.COMPLETED and job.request.on_finish != "destroy" and _is_last_instance(look.row, job):
        what = "its storage" if forecast_burn([look.row], None).storage_only else "it"
        return "kept", f"kept as requested (on_finish: {job.request.on_finish}); {what} still costs money", None
    if job.state.is_terminal:
        return "finished", f"Training {job.state} but instance not terminated", 0.0
    if not look.is_leased and is_at_work(look.row, job) and (why := why_over(job)):
        return "finished", f"its job is ending and has no worker ({why})", 0.0
    return None


def _judge_attempt(look: _Look) -> _Found:
    """Judge a machine that the job has left: the grace period runs from then, as it may be being replaced."""
    job = look.job
    if job is not None and job.state is JobState.REPLACING and not look.is_leased and is_at_work(look.row, job):
        return "left_over", "its job gave up this machine and has no worker", 0.0
    if job is None or is_at_work(look.row, job):
        return None
    where = f"on instance {job.work.instance_id}" if job.work.instance_id is not None else "without a machine"
    attempt = "" if job.work.attempt == look.attempt else f", in attempt {job.work.attempt}"
    reason = f"left over from attempt {look.attempt}; the job is {where}{attempt}"
    # since the current attempt's machine was requested, or before that, since the job left this one
    waited = look.since(job.changed_at if job.work.asked_at is None else job.work.asked_at)
    return "left_over", reason, look.config.orphan_grace - waited


def _judge_progress(look: _Look) -> _Found:
    if look.job is None or not look.now - look.job.progressed_at > look.config.stuck_after:
        return None
    minutes = int((look.now - look.job.progressed_at) / 60)
    return "stuck", f"Training stuck in {look.job.state} (no update in {minutes}min)", look.grace_of_worker


def _judge_runtime(look: _Look) -> _Found:
    """Judge the runtime: the worker enforces the limit itself and saves the model first, so it gets a grace period."""
    limit = look.config.max_runtime if look.job is None else look.job.request.hard_timeout
    if not look.runtime > limit:
        return None
    reason = f"Instance exceeded max runtime ({look.runtime / 3600:.2f}h > {limit / 3600:.1f}h limit)"
    seconds = max(look.grace_of_sight, look.grace_of_worker)
    if look.job is not None:
        seconds = max(seconds, limit + look.config.orphan_grace - look.runtime)
    return "max_runtime", reason, seconds


def _judge_record(look: _Look) -> _Found:
    if look.job is not None:
        return None
    return "orphan", "Instance has no associated training record", look.grace_of_sight


def _judge_status(look: _Look) -> _Found:
    """Judge a machine that is down: its worker replaces it, so it is destroyed only after a while without a worker."""
    job, status = look.job, _status(look.row)
    if job is None or status not in _DOWN:
        return None
    who = "its worker" if look.is_leased else "no worker"
    waited = look.since(job.lease_until, job.progressed_at, look.resumed_at)
    left = None if look.is_leased else look.config.orphan_grace - waited
    return "down", f"Instance is {status}, and {who} is replacing it", left


def _judge_holder(look: _Look) -> _Found:
    """Judge a machine without a job or a worker: a worker may come back, but not at any price.

    The limits of the job, which a worker would obey at once, shorten that.
    """
    if look.job is None or look.is_leased:
        return None
    waited = 0.0 if look.worker_since is None else look.now - look.worker_since
    limit = reached_limit(look.job, look.now)
    is_over = limit is not None and limit.ends
    left = max(look.grace_of_worker, (look.config.orphan_grace if is_over else look.config.abandoned_after) - waited)
    if left > 0:
        return "at_work", _work_in_words(look), left
    reason = f"its job ({look.job.state}) has had no worker for {format_duration(waited)}"
    return "abandoned", f"{limit.reason}; {reason}" if limit and limit.ends else reason, left


def _work_in_words(look: _Look) -> str:
    """Describe what a machine in use is needed for."""
    assert look.job  # an instance without a job is an orphan
    job, worker = look.job, look.job.worker
    step = "" if job.work.step is None else f", step {job.work.step} of {job.work.total_steps or '?'}"
    return f"its job is {job.state}{step}, {f'held by {worker}' if look.is_leased else 'and is waiting for a worker'}"


# ---------------------------------------------------------------- rows, whose values may be of any type


def started_at(row: Mapping[str, Any], job: QueuedJob | None, first_seen: float, now: float) -> float:
    """Return when it was rented, which cannot be before its job was created."""
    started = known_number(row.get("start_date"))
    if started is None or not EARLIEST_START <= started <= now:
        return first_seen
    return max(started, job.created_at) if job and job.created_at <= now else started


def _status(row: Mapping[str, Any]) -> str | None:
    status = row.get("actual_status") or row.get("cur_state")
    return status if isinstance(status, str) else None


def _is_last_instance(row: Mapping[str, Any], job: QueuedJob) -> bool:
    last = next((each.instance_id for each in reversed(job.work.rentals) if each.leaving_at is None), None)
    return _is_same(last if job.work.instance_id is None else job.work.instance_id, row.get("id"))


def _is_same(one: object, other: object) -> bool:
    """Compare ids, which are numbers in some places and strings in others."""
    return str(one) == str(other)


# ---------------------------------------------------------------- records of a report


class SweepError(TypedDict):
    """A failure, for one instance or for the whole listing (None)."""

    instance_id: int | None
    error: str


class SweptJob(TypedDict):
    """A job that is ending and has no worker; `state` is how the sweep left it, `reason` why it ends.

    In a dry run it is left as it is.
    """

    job_id: str
    state: str
    reason: str


class SweepAlert(TypedDict):
    """A finding worth a notice. type: MAX_RUNTIME_EXCEEDED | ORPHAN_INSTANCE | INSTANCE_KEPT | LISTING_FAILED.

    `seconds` is how long the instance has existed, or the listing has failed; None if unknown.
    """

    type: str
    instance_id: int | None
    reason: str
    job_id: str | None
    seconds: float | None
    cost_per_hour: float | None


def describe_alert(judged: JudgedInstance) -> SweepAlert | None:
    """Return the alert for an instance; None when there is none."""
    if judged["kind"] not in _ALERTS:
        return None
    return report_of(SweepAlert, judged, type=_ALERTS[judged["kind"]], seconds=judged["runtime_seconds"])


def _text(value: object) -> str | None:
    return value[:MOST_SHOWN] if isinstance(value, str) else None
