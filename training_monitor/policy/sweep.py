"""Whether a rented instance is to be destroyed, by its row of a complete listing and the job its label names. Pure.

Only what carries this owner's label is judged, everything else is foreign. What a row does not say is not guessed: a
start that is missing or impossible is replaced by the time at which the instance was first seen. Where a worker may
still come, or a record still turn up, nothing goes at first sight: the grace period begins when it is first seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Set as AbstractSet
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from training_monitor.policy.cost import forecast_burn
from training_monitor.policy.service_config import ServiceConfig
from training_monitor.renting import JobState, QueuedJob, read_label

FORGET_SECONDS = 86400.0  # an instance that was not listed for so long is not remembered
EARLIEST_START = 1.5e9  # there was nothing to rent before 2017
_DOWN = ("exited", "stopped", "offline", "unknown", "frozen")
_AFTER_WORK = (JobState.DESTROYING, JobState.SETTLING, JobState.NOTIFYING)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to become of an instance.

    Attributes:
        action: keep | terminate | foreign, which is never touched.
        kind: foreign | kept (on purpose) | finished | left_over | stuck | max_runtime | orphan | down | at_work.
        reason: in one sentence.
        job_id: of its label; None for a foreign one.
        runtime: seconds since it was rented, or was first seen where nobody knows that; None for a foreign one.
        seconds_left: how long one that is kept is given before it goes; None: as long as nothing changes.
    """

    action: str
    kind: str
    reason: str
    job_id: str | None = None
    runtime: float | None = None
    seconds_left: float | None = None


@dataclass(frozen=True, slots=True)
class SweepMemory:
    """What is remembered between sweeps, JSON-ready by `as_dict`; times in epoch seconds.

    Attributes:
        first_seen: when a listing first showed an instance of ours, by its id; last_seen: when the last one did.
        workers: who was seen to have the job of an instance, and since when.
        destroying: what is being destroyed, by its id; it is told of once it is gone.
        outages: how many times the listing began to fail.
        outage_since: when it began to fail the last time; None while it works.
        outage_told: whether somebody was told of that.
    """

    first_seen: Mapping[str, float] = field(default_factory=dict)
    last_seen: Mapping[str, float] = field(default_factory=dict)
    workers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    destroying: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    outages: int = 0
    outage_since: float | None = None
    outage_told: bool = False

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, kept: Mapping[str, Any]) -> SweepMemory:
        """What was kept; what a later version added to it is forgotten, for it can be seen again."""
        names = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in kept.items() if name in names})

    def see(self, ids: AbstractSet[str], now: float) -> SweepMemory:
        """After a complete listing with these instances of ours; one that it lacks may come back within a day."""
        last = {**self.last_seen, **dict.fromkeys(ids, now)}
        last = {each: when for each, when in last.items() if now - when <= FORGET_SECONDS}
        first = {each: self.first_seen.get(each, now) for each in last}
        workers = {each: seen for each, seen in self.workers.items() if each in last}
        return replace(self, last_seen=last, first_seen=first, workers=workers)

    def see_worker(self, instance_id: str, worker: str | None, now: float) -> SweepMemory:
        """After this worker was seen to have the job of an instance."""
        if self.workers.get(instance_id, {}).get("worker") == worker:
            return self
        return replace(self, workers={**self.workers, instance_id: {"worker": worker, "since": now}})

    def worker_since(self, instance_id: str) -> float | None:
        """Since when the worker that has its job was seen to have it; None: it has no job."""
        return self.workers.get(instance_id, {}).get("since")

    def fail(self, now: float) -> SweepMemory:
        """After a listing that failed."""
        if self.outage_since is None:
            return replace(self, outages=self.outages + 1, outage_since=now, outage_told=False)
        return replace(self, outage_since=min(self.outage_since, now))

    def recover(self) -> SweepMemory:
        """After a listing that worked."""
        return replace(self, outage_since=None, outage_told=False)


@dataclass(frozen=True, slots=True)
class _Look:
    """An instance of ours and what is known of it."""

    row: Mapping[str, Any]
    job: QueuedJob | None
    attempt: int
    first_seen: float
    now: float
    config: ServiceConfig
    runtime: float
    worker_since: float | None

    @property
    def is_leased(self) -> bool:
        """Whether a worker is at the job, and so handles what it can."""
        return self.job is not None and self.job.lease_until is not None and self.job.lease_until > self.now

    @property
    def grace_of_worker(self) -> float:
        """Seconds for a worker that is so new that it cannot have looked yet, after none was there for long."""
        since = self.worker_since
        return self.config.orphan_grace - (self.now - since) if self.is_leased and since is not None else 0.0

    @property
    def grace_of_sight(self) -> float:
        """Seconds for one that was just seen for the first time."""
        return self.config.orphan_grace - (self.now - self.first_seen)

    def since(self, *moments: float | None) -> float:
        """Seconds since the last of these, and since it was first seen; a moment to come is none."""
        return self.now - max(each for each in (self.first_seen, *moments) if each is not None and each <= self.now)


def decide_sweep(
    row: Mapping[str, Any],
    jobs: Mapping[str, QueuedJob],
    owner: str,
    first_seen: float,
    now: float,
    config: ServiceConfig,
    *,
    worker_since: float | None = None,
) -> Verdict:
    """What is to become of an instance.

    Args:
        row: of a complete listing.
        jobs: by their ids, read after the listing: so a job is never older than its instance.
        owner: whose instances are judged.
        first_seen: when a listing first showed it; with `now` in epoch seconds.
        config: the limits.
        worker_since: when the worker that has the job was first seen to have it, epoch seconds; None: long ago.
    """
    label = read_label(row.get("label"))
    if label is None or label[0] != owner:
        reason = "it has no label of a training" if label is None else f"it belongs to {label[0][:40]!r}"
        return Verdict("foreign", "foreign", reason)
    _, job_id, attempt = label
    job, first_seen = jobs.get(job_id), min(first_seen, now)
    runtime = now - _started_at(row, job, first_seen, now)
    look = _Look(row, job, attempt, first_seen, now, config, runtime, worker_since)
    for rule in (_judge_end, _judge_attempt, _judge_progress, _judge_runtime, _judge_record, _judge_status):
        if found := rule(look):
            kind, reason, seconds = found
            action, left = ("keep", seconds) if seconds is None or seconds > 0 else ("terminate", None)
            return Verdict(action, kind, reason, job_id, runtime, left)
    return Verdict("keep", "at_work", _work_in_words(look), job_id, runtime)


def is_at_work(row: Mapping[str, Any], job: QueuedJob) -> bool:
    """Whether the job goes on, and this is the machine it has or asked for."""
    label, has = read_label(row.get("label")), job.work.instance_id
    mine = label is not None and label[1:] == (job.id, job.work.attempt)
    return mine and not job.state.is_terminal and (has is None or _is_same(has, row.get("id")))


# ---------------------------------------------------------------- rules: (kind, reason, seconds until it goes), or None
# where a rule says nothing; no seconds left: it goes; None: it is kept

_Found = tuple[str, str, float | None] | None


def _judge_end(look: _Look) -> _Found:
    job = look.job
    if job is None:
        return None
    outcome = job.work.outcome if job.state in _AFTER_WORK else job.state
    if outcome is JobState.COMPLETED and job.request.on_finish != "destroy" and _is_last_machine(look.row, job):
        what = "its storage goes" if forecast_burn([look.row], None).storage_only else "it goes"
        return "kept", f"kept as asked (on_finish: {job.request.on_finish}); {what} on costing money", None
    if job.state.is_terminal:
        return "finished", f"Training {job.state} but instance not terminated", 0.0
    return None


def _judge_attempt(look: _Look) -> _Found:
    """A machine that the job left may be just being replaced: it gets the grace period from then on."""
    job = look.job
    if job is None or is_at_work(look.row, job):
        return None
    where = f"on instance {job.work.instance_id}" if job.work.instance_id is not None else "without a machine"
    attempt = "" if job.work.attempt == look.attempt else f", in attempt {job.work.attempt}"
    reason = f"left over from attempt {look.attempt}; the job is {where}{attempt}"
    # when the machine of the present attempt was asked for, or until then when the job left this one
    waited = look.since(job.changed_at if job.work.asked_at is None else job.work.asked_at)
    return "left_over", reason, look.config.orphan_grace - waited


def _judge_progress(look: _Look) -> _Found:
    if look.job is None or not look.now - look.job.progressed_at > look.config.stuck_after:
        return None
    minutes = int((look.now - look.job.progressed_at) / 60)
    return "stuck", f"Training stuck in {look.job.state} (no update in {minutes}min)", look.grace_of_worker


def _judge_runtime(look: _Look) -> _Found:
    """The worker keeps the limit itself and saves the model first: it gets the grace period, also to come back."""
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
    """The worker replaces a machine that is down: only where no worker was for a while, nobody will."""
    job, status = look.job, _status(look.row)
    if job is None or status not in _DOWN:
        return None
    who = "its worker" if look.is_leased else "no worker"
    waited = look.since(job.lease_until, job.progressed_at)
    return "down", f"Instance is {status} and {who} replaces it", (
        None if look.is_leased else look.config.orphan_grace - waited
    )


def _work_in_words(look: _Look) -> str:
    """What a machine that is needed is needed for."""
    assert look.job  # what has none is an orphan
    job, worker = look.job, look.job.worker
    step = "" if job.work.step is None else f", step {job.work.step} of {job.work.total_steps or '?'}"
    return f"its job is {job.state}{step}, {f'held by {worker}' if look.is_leased else 'and waits for a worker'}"


# ---------------------------------------------------------------- rows, in which anything may be anything


def _started_at(row: Mapping[str, Any], job: QueuedJob | None, first_seen: float, now: float) -> float:
    """When it was rented; not before its job was there, whatever the row says."""
    started = _number(row.get("start_date"))
    if started is None or not EARLIEST_START <= started <= now:
        return first_seen
    return max(started, job.created_at) if job and job.created_at <= now else started


def _status(row: Mapping[str, Any]) -> str | None:
    status = row.get("actual_status") or row.get("cur_state")
    return status if isinstance(status, str) else None


def _is_last_machine(row: Mapping[str, Any], job: QueuedJob) -> bool:
    last = job.work.rentals[-1].instance_id if job.work.rentals else None
    return _is_same(last if job.work.instance_id is None else job.work.instance_id, row.get("id"))


def _is_same(one: object, other: object) -> bool:
    """Ids are numbers in one place and texts in another."""
    return str(one) == str(other)


def _number(value: object) -> float | None:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not -1e300 < value < 1e300:
        return None
    return float(value)
