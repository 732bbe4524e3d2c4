"""The queue of trainings, from waiting for a machine to finished, and the leases by which workers share them.

The store holds a job's only state. A worker holds a lease on its job, and every write checks it: a worker that was away
for too long learns that another one has taken over before it can overwrite anything.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isfinite
from typing import Any, cast

from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.errors import (
    Hint,
    InvalidTransition,
    JobExists,
    JobNotFound,
    LeaseLost,
    SettingsError,
    TrainingMonitorError,
    did_you_mean,
)
from training_monitor.core.records import format_record, read_record, read_row
from training_monitor.core.regex import regex
from training_monitor.core.settings_file import load_table
from training_monitor.core.settings_table import read_table
from training_monitor.core.store import Execute, Store
from training_monitor.rent.config import ServiceConfig
from training_monitor.rent.credits import Credits
from training_monitor.vast.cost import spent_by
from training_monitor.vast.training_request import NAME, JobState, JobWork, QueuedJob, TrainingRequest

OWNER = "TRAINING_MONITOR_OWNER"
LONGEST_REASON = 2000
_OWNER_NAME = regex(r"[A-Za-z0-9._-]{1,40}")
_OWNER_KEY = "owner of rented instances"
_ENDS = (JobState.CANCELLED, JobState.FAILED)
_COLUMNS = "id, state, request, work, created_at, changed_at, progressed_at, worker, lease_until, to_end"
_KNOWN = tuple(str(state) for state in JobState)
_OVER = tuple(str(state) for state in JobState if state.is_terminal)
_FREE = f"state NOT IN ({', '.join('?' * len(_OVER))}) AND (worker IS NULL OR lease_until <= ?)"
# A job that fails or is cancelled always leaves through DESTROYING, even without a machine: on this single way out,
# nothing that costs money or was charged can be forgotten.
TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.CHARGING, JobState.DESTROYING}),
    JobState.CHARGING: frozenset({JobState.RENTING, JobState.DESTROYING}),
    JobState.RENTING: frozenset({JobState.PREPARING, JobState.DESTROYING}),
    JobState.PREPARING: frozenset({JobState.SYNCING, JobState.REPLACING, JobState.DESTROYING}),
    JobState.SYNCING: frozenset({JobState.CHECKING, JobState.REPLACING, JobState.DESTROYING}),
    JobState.CHECKING: frozenset({JobState.TRAINING, JobState.REPLACING, JobState.DESTROYING}),
    JobState.TRAINING: frozenset({JobState.UPLOADING, JobState.REPLACING, JobState.DESTROYING}),
    JobState.REPLACING: frozenset({JobState.RENTING, JobState.DESTROYING}),
    JobState.UPLOADING: frozenset({JobState.SAMPLING, JobState.REPLACING, JobState.DESTROYING}),
    JobState.SAMPLING: frozenset({JobState.REGISTERING, JobState.DESTROYING}),
    JobState.REGISTERING: frozenset({JobState.DESTROYING}),
    JobState.DESTROYING: frozenset({JobState.SETTLING}),
    JobState.SETTLING: frozenset({JobState.NOTIFYING}),
    JobState.NOTIFYING: frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED}),
    JobState.COMPLETED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
}


class UnknownState(str):
    """The state of a job that this version does not know, as it is in the store: it may be one of a later version."""

    is_terminal = False

    @property
    def value(self) -> str:
        return str(self)


class TrainingQueue:
    """The jobs in a store. Any thread and process can use a TrainingQueue, and every method is one transaction.

    `worker` is a name that is unique to one worker. Leases expire by the clock of this machine.
    """

    def __init__(self, store: Store | None = None, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._store, self._clock = store or Store(), clock

    def submit(self, request: TrainingRequest, job_id: str | None = None) -> QueuedJob:
        """Add a training to the queue. Submitting the same `job_id` again has no effect.

        Args:
            request: the training to run.
            job_id: at most 64 letters, digits, '.', '_' and '-'. Default: the request's name and six hexadecimal
                digits.

        Raises:
            JobExists: the ID belongs to a different request.
            SettingsError: the ID is invalid, or the request contains a value that JSON cannot represent.
        """
        if job_id is not None and not NAME.fullmatch(job_id):
            raise SettingsError("job_id", job_id[:100], "at most 64 letters, digits, '.', '_' and '-'")
        (text, request), now = _as_kept(request), self._clock.time()
        with self._store.transaction() as execute:
            if job_id is None:
                job_id = _new_id(execute, request.name)
            elif rows := _rows(execute, job_id):
                there = self._read(rows[0])
                if there.request != request:
                    raise JobExists(f"{job_id} is already in the queue with a different request", hint="use another ID")
                return there
            values = (job_id, str(JobState.QUEUED), text, format_record(JobWork()), now, now, now, None, None, None)
            execute(f"INSERT INTO training_jobs ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
            return self._find(execute, job_id)

    def get(self, job_id: str) -> QueuedJob:
        """Return one job. Raises JobNotFound."""
        with self._store.transaction() as execute:
            return self._find(execute, job_id)

    def list_jobs(
        self,
        states: Collection[JobState] | None = None,
        limit: int | None = None,
        *,
        since: float = 0.0,
        on_damaged: Callable[[str, TrainingMonitorError], object] | None = None,
    ) -> list[QueuedJob]:
        """Return the jobs, newest first: all, or those in one of `states` whose state changed at `since` or later.

        A job in an `UnknownState` is listed with the unfinished jobs.

        Args:
            limit: the maximum number of jobs to return, newest first; None: no limit.
            on_damaged: called with the ID and the error of each job that cannot be read. Such jobs are omitted.

        Raises:
            TrainingMonitorError: a job cannot be read, and `on_damaged` is not given.
        """
        wanted = {str(state) for state in (JobState if states is None else states)}
        if {*_KNOWN} - wanted <= {*_OVER}:
            chosen, words = "NOT IN", {*_KNOWN} - wanted
        else:
            chosen, words = "IN", wanted
        places = ", ".join("?" * len(words))
        with self._store.transaction() as execute:
            query = (
                f"SELECT {_COLUMNS} FROM training_jobs WHERE changed_at >= ? AND state {chosen} ({places})"
                " ORDER BY number DESC LIMIT ?"
            )
            rows = execute(query, (since, *words, -1 if limit is None else limit))
        jobs = []
        for row in rows:
            try:
                jobs.append(self._read(row, of_any_state=True))
            except TrainingMonitorError as error:
                if on_damaged is None:
                    raise
                on_damaged(str(row[0]), error)
        return jobs

    def claim(self, worker: str, lease_seconds: float, job_id: str | None = None) -> QueuedJob | None:
        """Claim an unfinished job that no worker holds: the oldest job in progress, otherwise the oldest queued job.

        Args:
            worker: the claiming worker.
            lease_seconds: how long the lease lasts if it is not renewed.
            job_id: claim only this job.

        Returns:
            The claimed job; None if there is none.

        Raises:
            JobNotFound: there is no job `job_id`.
            TrainingMonitorError: the only free jobs were written by a later version, or are in a state defined by one.
        """
        now = self._clock.time()
        until = now + _lease(worker, lease_seconds)
        with self._store.transaction() as execute:
            job = self._first_free(execute, now, None if job_id is None else self._find(execute, job_id).id)
            if job is None:
                return None
            execute("UPDATE training_jobs SET worker = ?, lease_until = ? WHERE id = ?", (worker, until, job.id))
            return self._find(execute, job.id)

    def _first_free(self, execute: Execute, now: float, job_id: str | None) -> QueuedJob | None:
        """Return the first free job that can be read: one of a later version must not block the others."""
        query = f"SELECT number FROM training_jobs WHERE {_FREE} AND id = coalesce(?, id) ORDER BY state = ?, number"
        problem: TrainingMonitorError | None = None
        for (number,) in execute(query, (*_OVER, now, job_id, str(JobState.QUEUED))):
            [row] = execute(f"SELECT {_COLUMNS} FROM training_jobs WHERE number = ?", (number,))
            try:
                return self._read(row)
            except TrainingMonitorError as error:
                problem = problem or error
        if problem:
            raise problem
        return None

    def renew(self, job_id: str, worker: str, lease_seconds: float) -> None:
        """Renew a lease. An expired lease can still be renewed if no other worker has claimed the job.

        Raises:
            LeaseLost: another worker holds the job, or the job was released. JobNotFound: there is no such job.
        """
        until = self._clock.time() + _lease(worker, lease_seconds)
        with self._store.transaction() as execute:
            _check_holder(execute, job_id, worker)
            execute("UPDATE training_jobs SET lease_until = ? WHERE id = ?", (until, job_id))

    def release(self, job_id: str, worker: str) -> None:
        """Release a job for other workers. This has no effect if this worker does not hold the job."""
        if NAME.fullmatch(job_id) and _is_worker(worker):
            with self._store.transaction() as execute:
                changes = "worker = NULL, lease_until = NULL"
                execute(f"UPDATE training_jobs SET {changes} WHERE id = ? AND worker = ?", (job_id, worker))

    def save(self, job: QueuedJob, worker: str, *, progressed: bool = False) -> QueuedJob:
        """Save the `state` and `work` of a job durably. The records of its machines are taken from `vast/rentals.py`.

        Args:
            job: the job with its new state and work; its other fields are not written.
            worker: the worker that holds the job.
            progressed: whether the job made progress, even if its state is the same.

        Returns:
            The job as stored, with the newest `to_end`.

        Raises:
            LeaseLost: this worker does not hold the job; nothing was written.
            InvalidTransition: the stored state cannot change to this state; nothing was written.
        """
        now = self._clock.time()
        with self._store.transaction() as execute:
            _check_holder(execute, job.id, worker)
            kept = self._find(execute, job.id)
            check_transition(kept.state, job.state)
            known = {each.instance_id for each in kept.work.rentals}
            new = (each for each in job.work.rentals if each.instance_id not in known)
            work = format_record(replace(job.work, rentals=(*kept.work.rentals, *new)))
            changed = job.state is not kept.state
            times = (now if changed else kept.changed_at, now if changed or progressed else kept.progressed_at)
            execute(
                "UPDATE training_jobs SET state = ?, work = ?, changed_at = ?, progressed_at = ? WHERE id = ?",
                (str(job.state), work, *times, job.id),
            )
            return self._find(execute, job.id)

    def request_end(self, job_id: str, outcome: JobState, reason: str) -> QueuedJob:
        """Request that a job end as CANCELLED or FAILED. The worker that holds the job, or the next one, ends it.

        If there are several requests, the first one counts.

        Raises:
            InvalidTransition: the job has already ended. JobNotFound: there is no such job. SettingsError: the outcome
                is neither CANCELLED nor FAILED.
        """
        if outcome not in _ENDS:
            raise SettingsError("outcome", str(outcome), " or ".join(str(each) for each in _ENDS))
        with self._store.transaction() as execute:
            job = self._find(execute, job_id)
            if job.state.is_terminal:
                raise InvalidTransition(f"{job_id} has already ended: {job.state}")
            wanted = format_record((outcome, reason[:LONGEST_REASON]))
            execute("UPDATE training_jobs SET to_end = coalesce(to_end, ?) WHERE id = ?", (wanted, job_id))
            return self._find(execute, job_id)

    def cancel(self, job_id: str, reason: str) -> QueuedJob:
        """Cancel a job: immediately if no worker holds it and it has no machine, otherwise by a request to its worker.

        If the job ends immediately, its credits are returned in the same transaction. A worker that claimed the job
        before then ends it; afterwards, no worker can claim it.

        Raises:
            InvalidTransition: the job has already ended. JobNotFound: there is no such job.
        """
        with self._store.transaction() as execute:
            job = self._find(execute, job_id)
            is_held = job.worker is not None and (job.lease_until or 0.0) > self._clock.time()
            if not job.state.is_terminal and not is_held and _leaves_nothing_behind(job):
                return self._end_at_once(execute, job, reason[:LONGEST_REASON])
        return self.request_end(job_id, JobState.CANCELLED, reason)

    def _end_at_once(self, execute: Execute, job: QueuedJob, reason: str) -> QueuedJob:
        now, spent = self._clock.time(), spent_by(job.work.rentals, self._clock.time()).dollars
        if job.request.account is not None:
            credits = Credits(self._store, clock=self._clock)
            credits.settle_within(execute, job.request.account, job.id, spent, f"cancelled: {reason}")
        work = replace(job.work, outcome=JobState.CANCELLED, reason=reason, spent=spent)
        wanted = format_record((JobState.CANCELLED, reason))
        execute(
            "UPDATE training_jobs SET state = ?, work = ?, changed_at = ?, progressed_at = ?, worker = NULL,"
            " lease_until = NULL, to_end = coalesce(to_end, ?) WHERE id = ?",
            (str(JobState.CANCELLED), format_record(work), now, now, wanted, job.id),
        )
        return self._find(execute, job.id)

    def _find(self, execute: Execute, job_id: str) -> QueuedJob:
        if not (rows := _rows(execute, job_id)):
            known = [name for (name,) in execute("SELECT id FROM training_jobs") if isinstance(name, str)]
            raise _not_found(job_id, known)
        return self._read(rows[0])

    def _read(self, row: tuple[Any, ...], *, of_any_state: bool = False) -> QueuedJob:
        job_id, state, *rest = row
        is_odd = of_any_state and isinstance(state, str) and state not in _KNOWN
        known, name = (job_id, _KNOWN[0] if is_odd else state, *rest), f"job {job_id} in {self._store.path}"
        try:
            job = read_row(QueuedJob, known, ("request", "work", "to_end"), name=name)
            return replace(job, state=cast(JobState, UnknownState(state))) if is_odd else job
        except ValueError as error:
            raise TrainingMonitorError(
                f"the state file {self._store.path} does not contain a valid job {job_id}: {error}",
                hint="install the version that wrote it, or move the file away",
            ) from error


def load_owner(store: Store | None = None, environ: Mapping[str, str] = os.environ) -> str:
    """Return the owner in the labels of this store's instances: TRAINING_MONITOR_OWNER, else a generated, stored name.

    Raises:
        SettingsError: the variable is not a valid name.
    """
    if chosen := environ.get(OWNER):
        if not _OWNER_NAME.fullmatch(chosen):
            raise SettingsError(OWNER, chosen[:100], "at most 40 letters, digits, '.', '_' and '-'")
        return chosen
    kept = store or Store()
    made, now = json.dumps(_new_owner(environ)), SYSTEM_CLOCK.time()
    with kept.transaction() as execute:
        execute("INSERT OR IGNORE INTO runs VALUES (?, ?, 0, ?)", (_OWNER_KEY, made, now))
        [(text,)] = execute("SELECT state FROM runs WHERE key = ?", (_OWNER_KEY,))
    owner = str(text).strip('"')
    if not _OWNER_NAME.fullmatch(owner):
        raise TrainingMonitorError(f"the state file {kept.path} contains no owner name", hint=f"set {OWNER}")
    return owner


def _new_owner(environ: Mapping[str, str]) -> str:
    """Return USER-HOST- and eight hexadecimal digits: it must be unique within an account."""
    names = (environ.get("USER") or environ.get("LOGNAME") or f"uid{os.getuid()}", os.uname().nodename)
    clean = [re.sub(r"[^A-Za-z0-9._]+", "-", name)[:15].strip("-.") or "unknown" for name in names]
    return "-".join((*clean, os.urandom(4).hex()))


# ---------------------------------------------------------------- rows


def _leaves_nothing_behind(job: QueuedJob) -> bool:
    """Return whether the job has no machine, no pending request for one, and known costs of its earlier ones."""
    work = job.work
    if work.outcome is not None or (job.to_end is not None and job.to_end[0] is not JobState.CANCELLED):
        return False  # it is ending already
    are_paid = all(each.ended_at is not None and each.price_per_hour is not None for each in work.rentals)
    return work.asked_at is None and work.instance_id is None and are_paid


def _rows(execute: Execute, job_id: str) -> list[tuple[Any, ...]]:
    if not NAME.fullmatch(job_id):
        return []  # SQLite rejects some texts
    return execute(f"SELECT {_COLUMNS} FROM training_jobs WHERE id = ?", (job_id,))


def _not_found(job_id: str, known: Sequence[str] = ()) -> JobNotFound:
    name = job_id[:100]
    what = f"no job {name!r} in the queue{did_you_mean(name, known)}"
    return JobNotFound(what, hint=Hint("list the queue: {list_queue}"))


def _check_holder(execute: Execute, job_id: str, worker: str) -> None:
    rows = execute("SELECT worker FROM training_jobs WHERE id = ?", (job_id,)) if NAME.fullmatch(job_id) else []
    if not rows:
        raise _not_found(job_id)
    if (holder := rows[0][0]) != worker:
        raise LeaseLost(f"{job_id} now belongs to {holder or 'no worker'}")


def _new_id(execute: Execute, name: str) -> str:
    while True:
        job_id = f"{name[:57]}-{os.urandom(3).hex()}"
        if not _rows(execute, job_id):
            return job_id


def _as_kept(request: TrainingRequest) -> tuple[str, TrainingRequest]:
    """Return a request as JSON, and as read back from it."""
    try:
        text = format_record(request)
        return text, read_record(TrainingRequest, text)
    except (TypeError, ValueError, RecursionError) as error:
        raise SettingsError("request", request.name, f"only values that JSON can represent ({error})") from error


def _lease(worker: str, seconds: float) -> float:
    if not _is_worker(worker):
        raise SettingsError("worker", worker[:100], "a name of at most 200 characters")
    if not isfinite(seconds) or seconds <= 0:
        raise SettingsError("lease_seconds", seconds, "seconds, above 0")
    return seconds


def _is_worker(name: str) -> bool:
    return bool(name) and name.isprintable() and len(name) <= 200


def check_transition(old: JobState, new: JobState) -> None:
    """Check that a job may go from one state to another; staying in a state is allowed.

    Raises:
        InvalidTransition: naming both states and where `old` leads to.
    """
    if new is old or new in TRANSITIONS[old]:
        return
    allowed = " or ".join(str(each) for each in JobState if each in TRANSITIONS[old])
    raise InvalidTransition(
        f"a job cannot change from {old} to {new}{f', only to {allowed}' if allowed else ': it has ended'}"
    )


def load_service_config(path: str | None = None) -> ServiceConfig:
    """Load the settings file's table `service`. Raises SettingsError."""
    config: ServiceConfig = load_table("service", partial(read_table, ServiceConfig), path)
    return config
