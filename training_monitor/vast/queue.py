"""Trainings that wait for a machine or have one, in the store, and the leases by which workers share them.

A job is what is written here. Whoever works on one holds its lease, and every write checks that: a worker that was away
for too long learns that another goes on with its job before it can spoil it.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Collection, Mapping
from dataclasses import replace
from math import isfinite
from typing import Any

from training_monitor.clock import SYSTEM_CLOCK, Clock
from training_monitor.errors import (
    InvalidTransition,
    JobExists,
    JobNotFound,
    LeaseLost,
    SettingsError,
    TrainingMonitorError,
)
from training_monitor.policy.cost import spent_by
from training_monitor.policy.job_states import check_transition
from training_monitor.renting import NAME, JobState, JobWork, QueuedJob, TrainingRequest
from training_monitor.store import Execute, Store
from training_monitor.vast.credits import Credits
from training_monitor.vast.job_records import format_record, read_record

OWNER = "TRAINING_MONITOR_OWNER"
LONGEST_REASON = 2000
_OWNER_NAME = re.compile(r"[A-Za-z0-9._-]{1,40}")
_OWNER_KEY = "owner of rented instances"
_ENDS = (JobState.CANCELLED, JobState.FAILED)
_COLUMNS = "id, state, request, work, created_at, changed_at, progressed_at, worker, lease_until, to_end"
_UNFINISHED = tuple(str(state) for state in JobState if not state.is_terminal)
_FREE = f"state IN ({', '.join('?' * len(_UNFINISHED))}) AND (worker IS NULL OR lease_until <= ?)"


class TrainingQueue:
    """The jobs of one store; safe from any thread and process, every method is one transaction.

    A `worker` is a name that no other process has. Leases end by the clock of the machine.
    """

    def __init__(self, store: Store | None = None, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._store, self._clock = store or Store(), clock

    def submit(self, request: TrainingRequest, job_id: str | None = None) -> QueuedJob:
        """Put a training into the queue; with a `job_id` that is there already, the same request counts once.

        Args:
            request: what is wanted.
            job_id: letters, digits, '.', '_' and '-', at most 64. Default: the request's name and six digits.

        Raises:
            JobExists: the id belongs to another request.
            SettingsError: the id is none, or the request holds what JSON cannot.
        """
        if job_id is not None and not NAME.fullmatch(job_id):
            raise SettingsError("job_id", job_id[:100], "letters, digits, '.', '_' and '-', at most 64")
        text, now = _request_text(request), self._clock.time()
        with self._store.transaction() as execute:
            if job_id is None:
                job_id = _new_id(execute, request.name)
            elif rows := _rows(execute, job_id):
                there = self._read(rows[0])
                if format_record(there.request) != text:
                    raise JobExists(f"{job_id} is in the queue already, with another request", hint="take another id")
                return there
            values = (job_id, str(JobState.QUEUED), text, format_record(JobWork()), now, now, now, None, None, None)
            execute(f"INSERT INTO training_jobs ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
            return self._find(execute, job_id)

    def get(self, job_id: str) -> QueuedJob:
        """One job. Raises JobNotFound."""
        with self._store.transaction() as execute:
            return self._find(execute, job_id)

    def list_jobs(
        self, states: Collection[JobState] | None = None, limit: int | None = None, *, since: float = 0.0
    ) -> list[QueuedJob]:
        """The jobs, newest first, in all states or in these, which they reached at `since` or later.

        `limit` is how many of the newest are wanted (None: all). Raises when one of them cannot be read.
        """
        wanted = [str(state) for state in (JobState if states is None else states)]
        chosen = f"AND state IN ({', '.join('?' * len(wanted))})" if states is not None else ""
        with self._store.transaction() as execute:
            query = f"SELECT {_COLUMNS} FROM training_jobs WHERE changed_at >= ? {chosen} ORDER BY number DESC LIMIT ?"
            rows = execute(query, (since, *(wanted if states is not None else ()), -1 if limit is None else limit))
        return [self._read(row) for row in rows]

    def claim(self, worker: str, lease_seconds: float, job_id: str | None = None) -> QueuedJob | None:
        """Take a job that is not over and that nobody holds: the oldest that is under way, else the oldest queued.

        Args:
            worker: who takes it.
            lease_seconds: for how long it is held without being renewed.
            job_id: only this one.

        Returns:
            The job, held; None when there is none to take.

        Raises:
            JobNotFound: there is no `job_id`.
            TrainingMonitorError: there are only such as a later version wrote.
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
        """The first that can be read: one from a later version does not keep the others."""
        query = f"SELECT number FROM training_jobs WHERE {_FREE} AND id = coalesce(?, id) ORDER BY state = ?, number"
        problem: TrainingMonitorError | None = None
        for (number,) in execute(query, (*_UNFINISHED, now, job_id, str(JobState.QUEUED))):
            [row] = execute(f"SELECT {_COLUMNS} FROM training_jobs WHERE number = ?", (number,))
            try:
                return self._read(row)
            except TrainingMonitorError as error:
                problem = problem or error
        if problem:
            raise problem
        return None

    def renew(self, job_id: str, worker: str, lease_seconds: float) -> None:
        """Hold a job on, also when the lease ran out and nobody took it.

        Raises:
            LeaseLost: it is another's, or was given up. JobNotFound: there is no such job.
        """
        until = self._clock.time() + _lease(worker, lease_seconds)
        with self._store.transaction() as execute:
            _check_holder(execute, job_id, worker)
            execute("UPDATE training_jobs SET lease_until = ? WHERE id = ?", (until, job_id))

    def release(self, job_id: str, worker: str) -> None:
        """Give a job up for others; nothing happens when it is not held by this worker."""
        if NAME.fullmatch(job_id) and _is_worker(worker):
            with self._store.transaction() as execute:
                changes = "worker = NULL, lease_until = NULL"
                execute(f"UPDATE training_jobs SET {changes} WHERE id = ? AND worker = ?", (job_id, worker))

    def save(self, job: QueuedJob, worker: str, *, progressed: bool = False) -> QueuedJob:
        """Write down where a job stands (`state`) and what was done for it (`work`); it is on disk when this returns.

        Args:
            job: with the new state and work; the rest of it is not written.
            worker: who holds it.
            progressed: something was done, though it stays in its state.

        Returns:
            The job as it is kept now, with the newest `to_end`.

        Raises:
            LeaseLost: another worker holds it, or none; nothing was written.
            InvalidTransition: the kept state does not lead to this one; nothing was written.
        """
        now, work = self._clock.time(), format_record(job.work)
        with self._store.transaction() as execute:
            _check_holder(execute, job.id, worker)
            kept = self._find(execute, job.id)
            check_transition(kept.state, job.state)
            changed = job.state is not kept.state
            times = (now if changed else kept.changed_at, now if changed or progressed else kept.progressed_at)
            execute(
                "UPDATE training_jobs SET state = ?, work = ?, changed_at = ?, progressed_at = ? WHERE id = ?",
                (str(job.state), work, *times, job.id),
            )
            return self._find(execute, job.id)

    def request_end(self, job_id: str, outcome: JobState, reason: str) -> QueuedJob:
        """Ask for a job to be ended, CANCELLED or FAILED; the worker that holds it obeys, or the next one that does.

        The first request stands.

        Raises:
            InvalidTransition: the job is over. JobNotFound: there is none. SettingsError: it cannot end like that.
        """
        if outcome not in _ENDS:
            raise SettingsError("outcome", str(outcome), " or ".join(str(each) for each in _ENDS))
        with self._store.transaction() as execute:
            job = self._find(execute, job_id)
            if job.state.is_terminal:
                raise InvalidTransition(f"{job_id} is over already: {job.state}")
            wanted = json.dumps([str(outcome), reason[:LONGEST_REASON]])
            execute("UPDATE training_jobs SET to_end = coalesce(to_end, ?) WHERE id = ?", (wanted, job_id))
            return self._find(execute, job_id)

    def cancel(self, job_id: str, reason: str) -> QueuedJob:
        """Cancel a job: at once where nobody holds it and it has no machine, else the worker that holds it is asked to.

        What a job that ends at once has reserved of its account's credits goes back with the same transaction. A worker
        claims it either before, and then ends it, or never.

        Raises:
            InvalidTransition: the job is over. JobNotFound: there is none.
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
        wanted = json.dumps([str(JobState.CANCELLED), reason])
        execute(
            "UPDATE training_jobs SET state = ?, work = ?, changed_at = ?, progressed_at = ?, worker = NULL,"
            " lease_until = NULL, to_end = coalesce(to_end, ?) WHERE id = ?",
            (str(JobState.CANCELLED), format_record(work), now, now, wanted, job.id),
        )
        return self._find(execute, job.id)

    def _find(self, execute: Execute, job_id: str) -> QueuedJob:
        if not (rows := _rows(execute, job_id)):
            raise _not_found(job_id)
        return self._read(rows[0])

    def _read(self, row: tuple[Any, ...]) -> QueuedJob:
        job_id, state, request, work, created_at, changed_at, progressed_at, worker, lease_until, to_end = row
        try:
            return QueuedJob(
                id=job_id,
                state=JobState(state),
                request=read_record(TrainingRequest, request),
                work=read_record(JobWork, work),
                created_at=created_at,
                changed_at=changed_at,
                progressed_at=progressed_at,
                worker=worker,
                lease_until=lease_until,
                to_end=_read_end(to_end),
            )
        except TrainingMonitorError as error:
            raise TrainingMonitorError(f"job {job_id} in {self._store.path}: {error.what}", hint=error.hint) from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise TrainingMonitorError(
                f"the state file {self._store.path} holds something else than the job {job_id}: {error}",
                hint="install the version again that wrote it, or move the file away",
            ) from error


def load_owner(store: Store | None = None, environ: Mapping[str, str] = os.environ) -> str:
    """Whose instances those are that this store's jobs rent: TRAINING_MONITOR_OWNER, else a name made once and kept.

    Raises:
        SettingsError: the variable is set to what is no name.
    """
    if chosen := environ.get(OWNER):
        if not _OWNER_NAME.fullmatch(chosen):
            raise SettingsError(OWNER, chosen[:100], "letters, digits, '.', '_' and '-', at most 40")
        return chosen
    kept = store or Store()
    made, now = json.dumps(_new_owner(environ)), SYSTEM_CLOCK.time()
    with kept.transaction() as execute:
        execute("INSERT OR IGNORE INTO runs VALUES (?, ?, 0, ?)", (_OWNER_KEY, made, now))
        [(text,)] = execute("SELECT state FROM runs WHERE key = ?", (_OWNER_KEY,))
    owner = str(text).strip('"')
    if not _OWNER_NAME.fullmatch(owner):
        raise TrainingMonitorError(f"the state file {kept.path} holds no owner's name", hint=f"set {OWNER}")
    return owner


def _new_owner(environ: Mapping[str, str]) -> str:
    """USER-HOST-and eight digits: no two machines of an account may ever have the same."""
    names = (environ.get("USER") or environ.get("LOGNAME") or f"uid{os.getuid()}", os.uname().nodename)
    clean = [re.sub(r"[^A-Za-z0-9._]+", "-", name)[:15].strip("-.") or "unknown" for name in names]
    return "-".join((*clean, secrets.token_hex(4)))


# ---------------------------------------------------------------- rows


def _leaves_nothing_behind(job: QueuedJob) -> bool:
    """Whether the job has no machine, none can come that was asked for, and those it had are paid for."""
    work = job.work
    if work.outcome is not None or (job.to_end is not None and job.to_end[0] is not JobState.CANCELLED):
        return False  # it is ending in its own way
    are_paid = all(each.ended_at is not None and each.price_per_hour is not None for each in work.rentals)
    return work.asked_at is None and work.instance_id is None and are_paid


def _rows(execute: Execute, job_id: str) -> list[tuple[Any, ...]]:
    if not NAME.fullmatch(job_id):
        return []  # sqlite refuses some texts
    return execute(f"SELECT {_COLUMNS} FROM training_jobs WHERE id = ?", (job_id,))


def _not_found(job_id: str) -> JobNotFound:
    return JobNotFound(f"there is no job {job_id[:100]!r} in the queue", hint="training-monitor queue")


def _check_holder(execute: Execute, job_id: str, worker: str) -> None:
    rows = execute("SELECT worker FROM training_jobs WHERE id = ?", (job_id,)) if NAME.fullmatch(job_id) else []
    if not rows:
        raise _not_found(job_id)
    if (holder := rows[0][0]) != worker:
        raise LeaseLost(f"{job_id} is no longer held by {worker}, but by {holder or 'nobody'}")


def _new_id(execute: Execute, name: str) -> str:
    while True:
        job_id = f"{name[:57]}-{secrets.token_hex(3)}"
        if not _rows(execute, job_id):
            return job_id


def _request_text(request: TrainingRequest) -> str:
    try:
        return format_record(request)
    except (TypeError, ValueError, RecursionError) as error:
        raise SettingsError("request", request.name, f"only what JSON can hold ({error})") from error


def _read_end(text: str | None) -> tuple[JobState, str] | None:
    if text is None:
        return None
    outcome, reason = json.loads(text)
    return JobState(outcome), str(reason)


def _lease(worker: str, seconds: float) -> float:
    if not _is_worker(worker):
        raise SettingsError("worker", worker[:100], "a name of at most 200 characters")
    if not isfinite(seconds) or seconds <= 0:
        raise SettingsError("lease_seconds", seconds, "seconds, above 0")
    return seconds


def _is_worker(name: str) -> bool:
    return bool(name) and name.isprintable() and len(name) <= 200
