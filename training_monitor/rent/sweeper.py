"""Destroys the rented instances that no job needs, and touches nothing else in the account.

A sweep lists the account, then reads the job that each label of ours names, and lets `rent/sweep.py` decide. An
instance is checked once more right before it is destroyed; its job is asked to end first. A job that is ending and has
no worker is claimed and ended as by a worker: its newest checkpoint is saved, its machine destroyed, its account
settled. A listing that failed is unknown: nothing is destroyed, nothing is forgotten.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypedDict

from training_monitor.core.best_effort_store import BestEffortStore
from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.errors import (
    AccessDenied,
    AlreadySupervised,
    CommandFailed,
    JobNotFound,
    StateError,
    TrainingMonitorError,
)
from training_monitor.core.logger import get_logger
from training_monitor.core.models import Event, OnEvent
from training_monitor.core.reports import report_of
from training_monitor.core.store import Store
from training_monitor.core.units import format_duration
from training_monitor.core.values import Notice
from training_monitor.notify import templates
from training_monitor.rent.config import ServiceConfig
from training_monitor.rent.job_context import Service
from training_monitor.rent.pipeline import run_job
from training_monitor.rent.queue import TrainingQueue, UnknownState, load_owner, load_service_config
from training_monitor.rent.sweep import (
    JudgedInstance,
    SweepAlert,
    SweepError,
    SweepMemory,
    SweptJob,
    decide_sweep,
    describe_alert,
    is_at_work,
    is_held,
    started_at,
    why_over,
)
from training_monitor.targets.transport import LocalTransport, Transport
from training_monitor.vast.instances import Destruction, destroy_instance, find_instance, list_instances
from training_monitor.vast.rentals import note_end, record_life, record_sight
from training_monitor.vast.rows import read_label
from training_monitor.vast.training_request import JobState, QueuedJob

if TYPE_CHECKING:
    from training_monitor.notify.outbox import Outbox  # imports all messengers

_UNFINISHED = [state for state in JobState if not state.is_terminal]
_NAME = "sweeper/"  # begins the names of sweeps that hold jobs; no host's name has a slash
BACKOFF = (5.0, 15.0, 30.0, 60.0, 120.0)  # seconds until the next sweep, while none succeeds


class SweepReport(TypedDict):
    """What a sweep saw and did; JSON-ready.

    `instances_checked` is None when the listing failed; else each instance is in one of the lists. `planned` is what a
    dry run would destroy, `kept` is what of ours stays, and why. `jobs` were ending and had no worker.
    `skipped`: another sweep of this store was running, and nothing was done.
    """

    instances_checked: int | None
    terminated: list[JudgedInstance]
    planned: list[JudgedInstance]
    kept: list[JudgedInstance]
    errors: list[SweepError]
    alerts: list[SweepAlert]
    foreign: list[JudgedInstance]
    jobs: list[SweptJob]
    dry_run: bool
    skipped: bool


def sweep_instances(
    dry_run: bool = True,
    *,
    all_instances: bool = False,
    owner: str | None = None,
    config: ServiceConfig | None = None,
    store: Store | None = None,
    outbox: Outbox | None = None,
    on_event: OnEvent | None = None,
    stopping: threading.Event | None = None,
    transport: Transport | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> SweepReport:
    """Destroy the instances that no job needs, and verify that they are gone.

    A failure to destroy one instance does not stop the others. It is safe to call this function again, even after a
    crash at any point.

    Args:
        dry_run: only report the instances that would be destroyed, and only save when each of our instances was seen.
        all_instances: destroy all instances of the account, including those of other owners.
        owner: judge only instances that are labeled with this owner. Default: `load_owner`.
        config: the limits; default: those in the settings file.
        store: contains the queue, and data that is kept between sweeps.
        outbox: sends the notices. on_event: called with each event.
        stopping: set this event to end the sweep early; the next sweep continues.

    Raises:
        SettingsError: TRAINING_MONITOR_OWNER is not a valid name.
    """
    store = store or BestEffortStore()
    report = SweepReport(
        instances_checked=None,
        terminated=[],
        planned=[],
        kept=[],
        errors=[],
        alerts=[],
        foreign=[],
        jobs=[],
        dry_run=dry_run,
        skipped=True,
    )
    with ExitStack() as held:
        try:
            held.enter_context(store.hold("sweep"))
        except AlreadySupervised:
            return report
        report["skipped"] = False
        service = Service(
            store,
            TrainingQueue(store, clock=clock),
            config or load_service_config(),
            f"{_NAME}{socket.gethostname()}-{os.getpid()}-{os.urandom(3).hex()}",
            owner or load_owner(store, os.environ),
            clock,
            stopping or threading.Event(),
            transport or LocalTransport(),
            outbox,
            on_event,
        )
        _Sweep(service, report, all_instances).run()
    return report


def watch_sweeps(
    sweep: Callable[[], SweepReport],
    interval: float,
    stopping: threading.Event,
    *,
    on_event: OnEvent | None = None,
    on_report: Callable[[SweepReport], None] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Sweep at once and then every `interval` seconds until `stopping` is set; sooner after a failed sweep.

    Args:
        sweep: `sweep_instances` with its arguments.
        on_event: called when a sweep raises. on_report: called with the report of every other one.
    """
    failures = 0
    while not stopping.is_set():
        report: SweepReport | None
        try:
            report = sweep()
            failed = report["instances_checked"] is None and not report["skipped"]
        except Exception as error:  # keep sweeping after any error: nothing else finds forgotten machines
            _tell(on_event, Event("unreachable", f"the sweep failed: {error}"))
            if not isinstance(error, TrainingMonitorError):
                get_logger().exception("the sweep failed")
            report, failed = None, True
        if on_report and report:
            on_report(report)
        wait = min(interval, BACKOFF[min(failures, len(BACKOFF) - 1)]) if failed else interval
        failures = failures + 1 if failed else 0
        clock.wait(stopping, wait)


@dataclass(slots=True)
class _Sweep:
    """One sweep, which fills the report."""

    service: Service
    report: SweepReport
    all_instances: bool
    memory: SweepMemory = SweepMemory()
    seen_before: Mapping[str, float] = field(default_factory=dict)  # when earlier sweeps last saw each machine
    doomed: dict[str, JudgedInstance] = field(default_factory=dict)  # machines that go with their jobs, by job

    def run(self) -> None:
        # Keys of a later version are dropped: the listing shows the facts again.
        self.memory = (
            self.service.store.load_run(f"sweep {self.service.owner}", SweepMemory, drop_unknown=True) or SweepMemory()
        )
        self.seen_before = self.memory.last_seen
        asked_at = self.service.clock.time()
        try:
            rows = list_instances(transport=self.service.transport)
        except TrainingMonitorError as error:
            self._add_error(None, error)
            self._note_outage(error)
            return
        self.report["instances_checked"] = len(rows)
        ours = {str(row["id"]): row for row in rows if self._job_id(row) is not None}
        if not self.report["dry_run"]:
            for job in self._unfinished():  # of sweeps that were killed: this one holds the lock of all sweeps
                if job.worker and job.worker.startswith(_NAME):
                    self.service.queue.release(job.id, job.worker)
            for row in ours.values():
                record_sight(self.service.store, row.get("label"), row, asked_at)
        self._remember(self.memory.see(ours.keys(), self.service.clock.time()))
        if not self.report["dry_run"]:
            self._end_outage()
            self._end_earlier({str(row["id"]) for row in rows})
        for row in rows:
            try:
                self._sweep(row)
            except TrainingMonitorError as error:
                self._add_error(row["id"], error)
        self._remember(self.memory)
        self._end_jobs({row["id"] for row in rows})

    def _sweep(self, row: Mapping[str, Any]) -> None:
        judged, _ = self._judge(row)
        if alert := describe_alert(judged):
            self.report["alerts"].append(alert)
            self._tell("detected", f"instance {row['id']}: {judged['reason']}", judged["job_id"])
        if judged["kind"] == "orphan" and not self.report["dry_run"]:
            about = _about(row["id"], judged["job_id"])
            self._post(templates.orphan_instance(about, grace=self.service.config.orphan_grace))
        if judged["kind"] == "foreign":
            self.report["foreign"].append(judged)
        if judged["action"] == "keep":
            self.report["kept"].append(judged)
        if judged["action"] == "terminate" and self.report["dry_run"]:
            self.report["planned"].append(judged)
            self._tell("detected", f"instance {row['id']} would be destroyed: {judged['reason']}", judged["job_id"])
        elif judged["action"] == "terminate":
            self._destroy(row)

    def _judge(self, row: Mapping[str, Any]) -> tuple[JudgedInstance, QueuedJob | None]:
        """Judge an instance; return also the job in its label."""
        now, job = self.service.clock.time(), self._find_job(self._job_id(row))
        number = str(row["id"])
        first_seen = self.memory.first_seen.get(number, now)
        if job:
            self.memory = self.memory.see_worker(number, job.worker if is_held(job, now) else None, now)
            if now - self.seen_before.get(number, now) > self.service.config.orphan_grace:
                over_at = started_at(row, job, first_seen, now) + job.request.hard_timeout
                self.memory = self.memory.resume(number, min(job.progressed_at, over_at), now)
        judged = decide_sweep(
            row,
            job,
            self.service.owner,
            first_seen,
            now,
            self.service.config,
            worker_since=self.memory.worker_since(number),
            resumed_at=self.memory.resumed_at(number),
        )
        if self.all_instances and judged["action"] != "terminate":
            judged["action"], judged["seconds_left"] = "terminate", None
            judged["reason"] = f"All instances will be destroyed ({judged['reason']})"
        return judged, job

    def _find_job(self, job_id: str | None) -> QueuedJob | None:
        """Return the job; None if there is no such job. Raises StateError where that cannot be known."""
        if self.service.store.is_blank:
            raise StateError(f"cannot determine which machines are needed: {self.service.store.problem}")
        try:
            return self.service.queue.get(job_id) if job_id else None
        except JobNotFound:
            return None

    def _job_id(self, row: Mapping[str, Any]) -> str | None:
        """Return the job in our label; None for any other label."""
        label = read_label(row.get("label"))
        return label[1] if label and label[0] == self.service.owner else None

    # ---------------------------------------------------------------- destroying

    def _destroy(self, seen: Mapping[str, Any]) -> None:
        """Check an instance and its job again, request the job's end, destroy the instance and verify that it is gone.

        A single listing without the instance proves nothing: it is then judged by the earlier row.
        """
        number = seen["id"]
        row = next((each for each in list_instances(transport=self.service.transport) if each["id"] == number), seen)
        judged, job = self._judge(row)
        if judged["action"] != "terminate":
            self._tell("refused", f"keeping instance {number} after all: {judged['reason']}", judged["job_id"])
            self.report["kept"].append(judged)
            return
        if job and is_at_work(row, job) and job.state is not JobState.REPLACING and not self.service.store.problem:
            if why_over(job) is None:
                self.service.queue.request_end(job.id, JobState.FAILED, judged["reason"])
            if not is_held(job, self.service.clock.time()):
                self.doomed[job.id] = judged
                self._remember_destroying(judged)
                return
        self._destroy_now(judged)

    def _remember_destroying(self, judged: JudgedInstance) -> None:
        """Record what is destroyed, so that a later sweep reports it where this one is killed."""
        doomed = {"swept": judged, "runtime": judged["runtime_seconds"]}
        number = str(judged["instance_id"])
        self._remember(replace(self.memory, destroying={**self.memory.destroying, number: doomed}))

    def _destroy_now(self, judged: JudgedInstance) -> None:
        """Destroy an instance and verify that it is gone."""
        number = judged["instance_id"]
        self._remember_destroying(judged)
        self._tell("stopping", f"destroying instance {number}: {judged['reason']}", judged["job_id"])
        try:
            done = destroy_instance(str(number), store=self.service.store, **self.service.ways)
        except (CommandFailed, AccessDenied) as error:
            about = _about(number, judged["job_id"])
            self._post(templates.instance_not_destroyed(about, reason=judged["reason"], error=error.what))
            raise
        self._end_destroying(str(number), done)

    def _end_earlier(self, listed: set[str]) -> None:
        """Finish and report what an earlier, killed sweep was destroying; what is still listed is judged anew.

        That sweep may have been killed before its request, and a listing may be incomplete, so destruction is requested
        again.
        """
        for number in sorted(set(self.memory.destroying) - listed):
            try:
                self._end_destroying(number, destroy_instance(number, store=self.service.store, **self.service.ways))
            except TrainingMonitorError as error:
                self._add_error(int(number), error)
        left = {each: row for each, row in self.memory.destroying.items() if each not in listed}
        if left != self.memory.destroying:
            self._remember(replace(self.memory, destroying=left))

    def _end_destroying(self, number: str, done: Destruction) -> None:
        """Report that an instance is gone, then forget it: a crash in between does not send a second notice."""
        doomed = self.memory.destroying[number]
        swept: JudgedInstance = doomed["swept"]
        swept["acknowledged"] = done.acknowledged
        self.report["terminated"].append(swept)
        text = f"instance {number} is {'destroyed' if done.acknowledged else 'gone'}"
        self._tell("stopped", text, swept["job_id"])
        about, price = _about(swept["instance_id"], swept["job_id"]), swept["cost_per_hour"]
        told = templates.instance_swept(about, reason=swept["reason"], runtime=doomed["runtime"], cost_per_hour=price)
        self._post(told)
        left = {each: row for each, row in self.memory.destroying.items() if each != number}
        self._remember(replace(self.memory, destroying=left))

    # ---------------------------------------------------------------- jobs that are ending

    def _end_jobs(self, listed: Collection[int]) -> None:
        """End the jobs that are ending and have no worker; record which machines of the others are gone."""
        if self.service.store.problem:  # a job is only claimed where that can be recorded
            return
        for job in self._unfinished():
            now = self.service.clock.time()
            if is_held(job, now) or isinstance(job.state, UnknownState) or self.service.stopping.is_set():
                continue
            try:
                if reason := why_over(job):
                    self._end_job(job, reason)
                elif not self.report["dry_run"]:
                    self._end_rentals(job, listed)
            except TrainingMonitorError as error:
                self._add_error(job.work.instance_id, error)

    def _unfinished(self) -> list[QueuedJob]:
        """Return the unfinished jobs that can be read; what is wrong with the others is an error of their machines."""
        return self.service.queue.list_jobs(
            _UNFINISHED, on_damaged=lambda job_id, error: get_logger().warning("%s", error)
        )

    def _end_job(self, job: QueuedJob, reason: str) -> None:
        swept = SweptJob(job_id=job.id, state=str(job.state), reason=reason)
        self.report["jobs"].append(swept)
        if self.report["dry_run"]:
            self._tell("detected", f"{job.id} would be ended: {reason}", job.id)
            return
        claimed = self.service.queue.claim(self.service.worker, self.service.config.lease_seconds, job.id)
        if claimed is None:
            return  # a worker was faster
        self._tell("stopping", f"ending {job.id}, which no worker holds: {reason}", job.id)
        judged = self.doomed.get(job.id)
        try:
            claimed = run_job(self.service, claimed, only_ends=True)
        except AlreadySupervised:
            raise
        except TrainingMonitorError:
            if judged:  # whatever went wrong, its machine must not go on costing money
                self._destroy_now(judged)
            raise
        finally:
            self.service.queue.release(job.id, self.service.worker)
        swept["state"] = str(claimed.state)
        for each in claimed.work.rentals:
            if judged and each.instance_id == judged["instance_id"] and each.ended_at is not None:
                self._end_destroying(str(each.instance_id), Destruction(each.instance_id, each.acknowledged))

    def _end_rentals(self, job: QueuedJob, listed: Collection[int]) -> None:
        """Record which machines of a job that no worker has are gone, each by two answers."""
        for rental in job.work.rentals:
            number = rental.instance_id
            is_open = rental.ended_at is None and number not in listed
            if is_open and find_instance(str(number), **self.service.ways) is None:
                record_life(self.service.store, number, note_end)

    # ---------------------------------------------------------------- a listing that fails

    def _note_outage(self, error: TrainingMonitorError) -> None:
        """Record since when the listing fails, and send one notice when that lasts."""
        if self.report["dry_run"]:
            return
        now = self.service.clock.time()
        memory = self.memory.fail(now)
        seconds = now - (now if memory.outage_since is None else memory.outage_since)
        if seconds >= self.service.config.outage_after and not memory.outage_told:
            reason = f"the instances could not be listed for {format_duration(seconds)}: {error.what}"
            alert = report_of(SweepAlert, None, type="LISTING_FAILED", reason=reason, seconds=seconds)
            self.report["alerts"].append(alert)
            number = memory.outages
            self._post(
                templates.listing_failed(self.service.owner, seconds=seconds, error=error.what, generation=number)
            )
            memory = replace(memory, outage_told=True)
        self._remember(memory)

    def _end_outage(self) -> None:
        memory = self.memory
        if memory.outage_since is None:
            return
        if memory.outage_told:
            seconds = max(0.0, self.service.clock.time() - memory.outage_since)
            self._post(templates.listing_works(self.service.owner, seconds=seconds, generation=memory.outages))
        self._remember(memory.recover())

    # ---------------------------------------------------------------- memory, events and notices

    def _remember(self, memory: SweepMemory) -> None:
        self.memory = memory
        self.service.store.save_run(f"sweep {self.service.owner}", memory, finished=False)

    def _add_error(self, number: int | None, error: TrainingMonitorError) -> None:
        self.report["errors"].append({"instance_id": number, "error": str(error)})
        what = "the instances cannot be listed" if number is None else f"instance {number}"
        self._tell("unreachable", f"{what}: {error}")

    def _post(self, notice: Notice) -> None:
        if self.service.outbox:
            self.service.outbox.post(notice)

    def _tell(self, kind: str, text: str, job_id: str | None = None) -> None:
        _tell(self.service.on_event, Event(kind, text, job_id))


def _tell(on_event: OnEvent | None, event: Event) -> None:
    get_logger().log(30 if event.kind == "unreachable" else 20, "sweep: %s", event.text)
    if on_event:
        on_event(event)


def _about(number: int, job_id: str | None) -> templates.About:
    """Return what identifies a notice, which is sent once. A label may be of any length."""
    instance = f"vast://{number}"
    return templates.About((job_id or instance)[:100], instance=instance, generation=number)
