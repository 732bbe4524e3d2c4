"""What every step of a job on a rented machine works with: the job itself, its lease, and who is told.

A lease is kept alive by a thread. A step that waits wakes up when the lease is lost, the worker is to stop, or the job
is to be ended: its clock raises `Interrupted` then.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from training_monitor.clock import Clock
from training_monitor.errors import LeaseLost, TrainingMonitorError
from training_monitor.models import Event, OnEvent
from training_monitor.notify.next_command import command_line
from training_monitor.notify.service_notices import about_job, of_job
from training_monitor.policy.service_config import ServiceConfig
from training_monitor.renting import JobState, QueuedJob, Rental, format_label
from training_monitor.store import Store
from training_monitor.supervise.job_limits import Limit, passed_limit
from training_monitor.supervise.logs import get_logger
from training_monitor.supervise.outages import Lookout
from training_monitor.targets.connect import read_address
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport
from training_monitor.vast.instances import show_instance
from training_monitor.vast.queue import TrainingQueue
from training_monitor.watching import LogUpdate, Notice

if TYPE_CHECKING:
    from training_monitor.notify.heartbeat import Heartbeat
    from training_monitor.notify.outbox import Outbox  # brings all that a messenger needs

OnLine = Callable[[LogUpdate], None]
RENEWALS = 4  # in the time that a lease lasts
NOTED_EVERY = 60.0  # seconds between two notes that a long act goes on


@dataclass(frozen=True)
class Service:
    """What all jobs of a worker share. `owner` is in the labels of the machines it rents."""

    store: Store
    queue: TrainingQueue
    config: ServiceConfig
    worker: str
    owner: str
    clock: Clock
    stopping: threading.Event
    transport: Transport | None = None
    outbox: Outbox | None = None
    on_event: OnEvent | None = None
    on_line: OnLine | None = None
    heartbeat: Heartbeat | None = None


    def lookout(self, key: str, name: str, post: Callable[[Notice], None]) -> Lookout:
        """What hears of the looks at one thing: the dead-man service, and who is told of outages."""
        after = self.config.outage_after
        return Lookout(
            key, name, post, outage_after=after, store=self.store, clock=self.clock, heartbeat=self.heartbeat
        )


class Interrupted(Exception):
    """A step was interrupted while it waited: the lease is lost, the worker stops, or the job is to end."""


class Lease:
    """Renews a job's lease from a thread, and hears there that the job is to be ended."""

    def __init__(self, service: Service, job: QueuedJob) -> None:
        self._service, self._job_id = service, job.id
        self._closing, self.woken = threading.Event(), threading.Event()
        self.lost = False
        self.to_end = job.to_end
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Lease:  # noqa: PYI034 (Self is not in Python 3.10)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        seconds = self._service.config.lease_seconds
        failing_since: float | None = None
        while not self._closing.wait(seconds / RENEWALS):
            try:
                self._service.queue.renew(self._job_id, self._service.worker, seconds)
                self.to_end = self._service.queue.get(self._job_id).to_end
                failing_since = None
            except LeaseLost:
                self.lost = True
            except TrainingMonitorError as error:  # a full disk, say: the lease runs on for a while
                get_logger().warning("%s: the lease cannot be renewed: %s", self._job_id, error)
                now = self._service.clock.monotonic()
                failing_since = now if failing_since is None else failing_since
                self.lost = now - failing_since > seconds / 2
            if self.lost or self.to_end:
                self.woken.set()
            if self.lost:
                return


class JobContext:
    """One job while a worker has it; `job` is what is on disk."""

    def __init__(self, service: Service, job: QueuedJob, lease: Lease) -> None:
        self.service, self.job, self.lease = service, job, lease
        self.clock = StepClock(self)
        self.about, self.command = about_job(job.id), command_line("queue", job.id)
        self.lookout = service.lookout(f"job {job.id}", job.id, self.post)
        self.silent = 0.0  # seconds in which the machine did not answer, and the service did
        self.looked_at: float | None = None
        self.seen_status: str | None = None
        self._target: Target | None = None

    # ------------------------------------------------------------ the job

    def go(self, state: JobState, *, progressed: bool = False, **changes: Any) -> None:
        """Write down the state and what changed in the work. Raises LeaseLost when another worker has the job."""
        moved = replace(self.job, state=state, work=replace(self.job.work, **changes))
        before, self.job = self.job, self.service.queue.save(moved, self.service.worker, progressed=progressed)
        if before.state is not state:
            get_logger().info("%s: %s -> %s", self.job.id, before.state, state)

    def note(self, *, progressed: bool = False, **changes: Any) -> None:
        """Write down what changed in the work."""
        self.go(self.job.state, progressed=progressed, **changes)

    def end(self, outcome: JobState, reason: str) -> None:
        """Write down how the job ends; what is left to do is to clean up."""
        self.tell("detected", f"{outcome.value.lower()}: {reason}")
        self.go(JobState.DESTROYING, outcome=outcome, reason=reason)

    def warn(self, text: str) -> None:
        """Write down what went wrong without ending the job."""
        self.tell("detected", text)
        if text not in self.job.work.warnings:
            self.note(warnings=(*self.job.work.warnings, text))

    @property
    def to_end(self) -> tuple[JobState, str] | None:
        """How the job is to be ended, as somebody wants; None where nobody does, or it ends already."""
        return None if self.job.work.outcome else self.lease.to_end

    def passed_limit(self) -> Limit | None:
        """Why it has had its time or its money; None where it may go on, ends already, or its machine goes first."""
        if self.job.work.outcome is not None or self.job.state is JobState.REPLACING:
            return None
        return passed_limit(self.job, self.service.clock.time())

    def check(self) -> None:
        """Raise Interrupted when this step is not to go on."""
        if self.lease.lost or self.service.stopping.is_set() or self.to_end or self.passed_limit():
            raise Interrupted

    # ------------------------------------------------------------ its machine

    @property
    def label(self) -> str:
        return format_label(self.service.owner, self.job.id, self.job.work.attempt)

    @property
    def rental(self) -> Rental | None:
        """The machine that the job has."""
        found = [each for each in self.job.work.rentals if each.instance_id == self.job.work.instance_id]
        return found[-1] if found else None

    def target(self) -> Target:
        """The machine by its ssh address. Raises CommandError."""
        found = Target("vast", str(self.job.work.instance_id))
        if self._target is None or str(self._target) != str(found):
            row = show_instance(found.name, transport=self.service.transport)
            self._target = read_address(found, row)
        return self._target

    def answered(self) -> None:
        """The machine was reached: what was seen of it while it was silent counts no more."""
        self.silent, self.looked_at, self.seen_status = 0.0, None, None

    def forget_address(self) -> None:
        """Look the address up again: a machine that was restarted may have another one."""
        self._target = None

    @property
    def run_name(self) -> str:
        """Under which name its training is supervised: another machine has not seen the jobs of this one."""
        return f"{self.job.id}.{self.job.work.attempt}"

    @property
    def folder(self) -> str:
        """The job's folder on the machine."""
        return f"{self.service.config.remote_root.rstrip('/')}/{self.job.id}"

    @property
    def dataset_dir(self) -> str:
        return f"{self.folder}/dataset"

    @property
    def output_dir(self) -> str:
        return f"{self.folder}/output"

    @property
    def checkpoint_dir(self) -> str:
        """Where the checkpoints are: ai-toolkit makes a folder of the model's name."""
        spec = self.job.request.spec
        return f"{self.output_dir}/{spec.name}" if spec else self.output_dir

    @property
    def local_folder(self) -> str:
        """The job's folder on this machine, where its model ends up."""
        return os.path.join(self.service.store.folder, "jobs", self.job.id)

    # ------------------------------------------------------------ telling

    def tell(self, kind: str, text: str) -> None:
        get_logger().log(10 if kind == "progress" else 20, "%s: %s", self.job.id, text)
        if self.service.on_event:
            self.service.on_event(Event(kind, text, self.job.id, self.job.work.attempt))

    def tell_waiting(self, text: str) -> None:
        """Tell what a step waits for, as a line of its own: minutes without one look like a hang."""
        self.tell("waiting", text)

    def tell_progress(self, text: str) -> None:
        """Tell how far a long act is, and write down now and then that it goes on: what does not, the sweep ends."""
        self.tell("progress", text)
        self.lookout.note(None)
        if self.clock.time() - self.job.progressed_at >= NOTED_EVERY:
            self.note(progressed=True)

    def post(self, notice: Notice) -> None:
        """Have somebody told; the job does not depend on that."""
        try:
            if self.service.outbox:
                self.service.outbox.post(of_job(notice, self.job))
        except TrainingMonitorError as error:
            get_logger().warning("%s: nobody is told of %s: %s", self.job.id, notice.kind, error)


class StepClock:
    """The clock of a step: whatever waits by it is woken when the step is not to go on."""

    def __init__(self, context: JobContext) -> None:
        self._context, self._clock = context, context.service.clock

    def time(self) -> float:
        return self._clock.time()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self.wait(threading.Event(), seconds)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait in short slices: three things may end it."""
        deadline = self.monotonic() + seconds
        while True:
            self._context.check()
            left = deadline - self.monotonic()
            if event.is_set() or left <= 0:
                return event.is_set()
            self._clock.wait(event, min(left, 0.25))
