"""The worker of the queue: claims jobs, runs them to their end, and sweeps meanwhile.

A job goes from QUEUED to its end one step after the other, each saved before the next begins. The states are those of
`JobState`; the steps are in instance_steps.py, training_step.py and finishing_steps.py. An unfinished job resumes in
its state: every step is idempotent. Failing to ask is not a failure of the job: it is retried, and only a limit of the
job ends that.
"""

from __future__ import annotations

import os
import socket
import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from training_monitor.core.best_effort_store import BestEffortStore
from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.engine import start_thread
from training_monitor.core.errors import (
    CommandError,
    SettingsError,
    TrainingMonitorError,
)
from training_monitor.core.logger import get_logger
from training_monitor.core.models import Event, OnEvent
from training_monitor.core.read_fence import check_here
from training_monitor.core.store import Store
from training_monitor.core.units import DAY, format_duration, name_some, plural
from training_monitor.core.values import Notice
from training_monitor.rent import instance_steps
from training_monitor.rent.config import MOST_JOBS_AT_ONCE, ServiceConfig
from training_monitor.rent.dataset import validate_dataset
from training_monitor.rent.file_lists import list_folder
from training_monitor.rent.job_context import (
    OnLine,
    Service,
    credit_low,
    ended,
    of_job,
    of_worker,
)
from training_monitor.rent.pipeline import run_job
from training_monitor.rent.queue import TrainingQueue, load_owner, load_service_config
from training_monitor.rent.sweeper import SweepReport, sweep_instances, watch_sweeps
from training_monitor.targets.transport import Transport
from training_monitor.uploads.checkpoint import check_destination
from training_monitor.vast.account import account_balance
from training_monitor.vast.cost import BurnForecast, forecast_burn
from training_monitor.vast.instances import list_instances
from training_monitor.vast.training_request import JobState, QueuedJob, TrainingRequest, resolve_env

if TYPE_CHECKING:
    from training_monitor.notify.heartbeat import Heartbeat
    from training_monitor.notify.outbox import Outbox  # imports all messengers

MOST_TOLD = 3  # shown errors of an invalid dataset
INTERRUPTED_SECONDS = 0.3  # for jobs in progress to be released, when the worker is interrupted


def submit_training(
    request: TrainingRequest, job_id: str | None = None, *, store: Store | None = None, clock: Clock = SYSTEM_CLOCK
) -> QueuedJob:
    """Check everything that can be checked before money is spent, and add the training to the queue.

    Args:
        job_id: the ID of the job; submitting the same ID and request again has no effect. Default: the name and six
            hexadecimal digits.

    Raises:
        SettingsError: the dataset, a destination, the offer query or a variable is invalid.
        JobExists: the ID belongs to a different request.
    """
    check_request(request)
    return queue_checked(request, job_id, store=store, clock=clock)


def queue_checked(
    request: TrainingRequest, job_id: str | None = None, *, store: Store | None = None, clock: Clock = SYSTEM_CLOCK
) -> QueuedJob:
    """Put a training that passed `check_request` into the queue. Raises JobExists."""
    if request.dataset is not None:
        request = replace(request, dataset=os.path.abspath(request.dataset))
    return TrainingQueue(store, clock=clock).submit(request, job_id)


def check_request(request: TrainingRequest) -> None:
    """Raise SettingsError for what would otherwise fail only on a paid machine."""
    instance_steps.offer_query(request)
    if request.dataset is not None:
        check_here(request.dataset)
    resolve_env(request.env, os.environ)
    for hook in (request.samples, request.register):
        resolve_env(dict(hook.headers) if hook else {}, os.environ)
    for destination in request.upload_to:
        check_destination(destination)
        if destination.startswith("hf:") and "HF_TOKEN" not in request.env:
            raise SettingsError("env", None, f"HF_TOKEN, which is required to upload to {destination}")
    if request.spec is not None:
        report = validate_dataset(request.dataset or "")
        if not report.is_valid:
            what = name_some(report.errors, MOST_TOLD, "; ")
            raise SettingsError("dataset", request.dataset, f"suitable training images: {what}")
    elif request.dataset is not None:
        if not os.path.isdir(request.dataset):
            raise SettingsError("dataset", request.dataset, "an existing folder on this machine")
        try:
            list_folder(request.dataset)
        except SettingsError as error:  # it cannot be copied to a machine
            raise SettingsError("dataset", error.value, error.expected) from error


def run_worker(
    job_id: str | None = None,
    *,
    jobs: int = 1,
    until_empty: bool = False,
    sweep: bool = True,
    config: ServiceConfig | None = None,
    outbox: Outbox | None = None,
    heartbeat: Heartbeat | None = None,
    on_event: OnEvent | None = None,
    on_line: OnLine | None = None,
    stopping: threading.Event | None = None,
    store: Store | None = None,
    transport: Transport | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> list[QueuedJob]:
    """Run jobs from the queue until they end. Blocks.

    After a crash, any worker can resume a job once its lease has expired.

    Args:
        job_id: run only this job, until it has ended.
        jobs: the number of jobs to run at the same time, 1 to 64.
        until_empty: return when there are no jobs left to run.
        sweep: also destroy machines that no job needs; see `sweep_instances`.
        config: the configuration; default: the one in the settings file.
        heartbeat: pinged after every successful look at a job's machine or at an empty queue.
        outbox: sends the notices. on_event: called with each event. on_line: called with each line of the trainings'
            logs.
        stopping: set this event to end the worker but not the jobs, whose machines continue to run.

    Returns:
        The jobs that this worker has worked on, each in its last state.

    Raises:
        JobNotFound: there is no job `job_id`. SettingsError: `jobs` is out of range.
    """
    if not 1 <= jobs <= MOST_JOBS_AT_ONCE:
        raise SettingsError("jobs", jobs, f"a number of jobs from 1 to {MOST_JOBS_AT_ONCE}")
    store = store or Store()
    queue = TrainingQueue(store, clock=clock)
    config, stopping = config or load_service_config(), stopping or threading.Event()
    if job_id is not None:
        queue.get(job_id)
    name = f"{socket.gethostname()}-{os.getpid()}-{os.urandom(3).hex()}"  # unique to this call
    given = (store, queue, config, name, load_owner(store), clock, stopping, transport)
    service = Service(*given, outbox, on_event, on_line, heartbeat)
    worker = _Worker(service, job_id, until_empty=until_empty or job_id is not None)
    beside, patience = list[threading.Thread](), None
    try:
        for number in range(2, jobs + 1):
            beside.append(start_thread(worker.work, f"worker {number}"))
        if sweep:
            beside.append(start_thread(lambda: _sweep(service, worker.ended), "sweep"))
        worker.work()
    except KeyboardInterrupt:  # each act was written down before; the lease of what is under way runs out
        stopping.set()
        patience = INTERRUPTED_SECONDS / max(1, len(beside))
        raise
    except BaseException:
        stopping.set()
        raise
    finally:
        worker.ended.set()
        for thread in beside:
            thread.join(patience)
    return worker.done


def _sweep(service: Service, stopping: threading.Event) -> None:
    """Sweep until `stopping` is set, and warn of a low credit after each sweep."""

    def tell(event: Event) -> None:
        """Pass on what a sweep does and what fails; not everything it sees every five minutes."""
        if service.on_event and event.kind in ("stopping", "stopped", "refused", "unreachable"):
            service.on_event(replace(event, text=f"sweep: {event.text}"))

    def warn(report: SweepReport) -> None:
        if hours := service.config.warn_hours_left:
            warn_of_burn(hours, service.outbox, **service.ways)

    sweep = partial(
        sweep_instances,
        dry_run=False,
        owner=service.owner,
        config=service.config,
        store=BestEffortStore(service.store.folder),
        outbox=service.outbox,
        on_event=tell,
        stopping=stopping,
        **service.ways,
    )
    interval = service.config.sweep_interval
    watch_sweeps(sweep, interval, stopping, on_event=tell, on_report=warn, clock=service.clock)


class _Worker:
    """The loop of a worker; `work` may run in several threads, each with one job at a time."""

    def __init__(self, service: Service, job_id: str | None, *, until_empty: bool) -> None:
        self.service, self.job_id, self.until_empty = service, job_id, until_empty
        self.done: list[QueuedJob] = []
        self._began_at, self._told_cancelled = service.clock.time(), set[str]()
        self.begun = False
        self.ended = threading.Event()
        self.lookout = service.lookout("worker", "the queue", self._post)
        self._lock, self._at_work, self._told_idle = threading.Lock(), 0, False

    def _tell_cancelled(self) -> None:
        """Send the notices of jobs cancelled since this worker began; the outbox deduplicates them."""
        if self.service.outbox is None:
            return
        try:
            cancelled = self.service.queue.list_jobs([JobState.CANCELLED], since=self._began_at)
        except TrainingMonitorError as error:  # for example a job of a later version: it must not stop the worker
            get_logger().warning("cancelled jobs could not be read: %s", error)
            return
        for job in cancelled:
            if self.job_id in (None, job.id) and job.id not in self._told_cancelled:
                self._told_cancelled.add(job.id)
                self.service.outbox.post(of_job(ended(job), job))

    def work(self) -> None:
        service = replace(self.service, worker=f"{self.service.worker}-{threading.get_ident():x}")
        while not service.stopping.is_set():
            try:
                worked = self._work_once(service)
                self._tell_cancelled()
                if worked or not self._is_over(service):
                    continue
                return
            except TrainingMonitorError as error:  # for example an unreadable state folder or state
                get_logger().error("the queue cannot be used: %s", error)
                self.lookout.note(error)
                if self.until_empty and not (self.job_id and self.begun):  # once begun, its machine may cost money
                    raise
                service.clock.wait(service.stopping, service.config.poll_interval)

    def _work_once(self, service: Service) -> bool:
        """Claim and run one job; False when there was none."""
        job = service.queue.claim(service.worker, service.config.lease_seconds, self.job_id)
        if job is None:
            return False
        self.begun = True
        with self._lock:
            self._at_work, self._told_idle = self._at_work + 1, False
        if service.on_event:
            service.on_event(Event("started", f"claimed: {job.state.value.lower()}", job.id, job.work.attempt))
        try:
            self.done.append(run_job(service, job))
        finally:
            with self._lock:
                self._at_work -= 1
            service.queue.release(job.id, service.worker)
        return True

    def _is_over(self, service: Service) -> bool:
        """Wait for something to do; True when nothing will come."""
        if self.job_id is not None and service.queue.get(self.job_id).state.is_terminal:
            return True
        unfinished = service.queue.list_jobs([state for state in JobState if not state.is_terminal])
        if self.until_empty and self.job_id is None and not unfinished:
            return True
        self.lookout.note(None)
        self._tell_idle(service, unfinished)
        service.clock.wait(service.stopping, min(service.config.poll_interval, 1.0 if self.until_empty else 1e9))
        return False

    def _post(self, notice: Notice) -> None:
        if self.service.outbox:
            self.service.outbox.post(of_worker(notice, self.service.owner))

    def _tell_idle(self, service: Service, unfinished: list[QueuedJob]) -> None:
        """Report once that there is nothing to do, and why; again after the next job."""
        with self._lock:
            if self._at_work or self._told_idle or not service.on_event:
                return
            self._told_idle = True
        held = [job for job in unfinished if self.job_id in (None, job.id)]
        others = f"{plural(len(held), 'job is', 'jobs are')} held by other workers" if held else "no job is waiting"
        wait = format_duration(service.config.poll_interval)
        service.on_event(Event("waiting", f"nothing to do: {others}; checking again every {wait}"))


def warn_of_burn(
    warn_hours_left: float, outbox: Outbox | None, *, transport: Transport | None = None, clock: Clock = SYSTEM_CLOCK
) -> BurnForecast | None:
    """Return how long the credit lasts at the current cost, and send a notice when it is low; None if unknown."""
    try:
        rows, credit = list_instances(transport=transport), account_balance(transport=transport).credit
    except CommandError as error:
        get_logger().info("how long the credit lasts is unknown: %s", error)
        return None
    burn = forecast_burn(rows, credit)
    if outbox and burn.hours_left is not None and burn.hours_left <= warn_hours_left:
        outbox.post(credit_low(burn, credit, day=int(clock.time() // DAY)))
    return burn
