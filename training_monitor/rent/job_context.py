"""What the steps of a job on a rented machine share: the job, its lease, its limits, and its notices and events.

A thread renews the lease. A step that waits is interrupted when the lease is lost, the worker stops, or the job is to
end: its clock then raises `Interrupted`. Each notice is sent once, see `Notice`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict

from training_monitor.core.clock import Clock
from training_monitor.core.engine import start_thread
from training_monitor.core.errors import LeaseLost, TrainingMonitorError
from training_monitor.core.logger import get_logger
from training_monitor.core.models import Event, OnEvent
from training_monitor.core.store import Store
from training_monitor.core.units import format_duration
from training_monitor.core.values import LogUpdate, Notice
from training_monitor.notify.heartbeat import Lookout
from training_monitor.notify.notice_text import command_line, next_command
from training_monitor.notify.templates import ACCOUNT
from training_monitor.rent.config import ServiceConfig
from training_monitor.rent.queue import TrainingQueue
from training_monitor.targets.asking import Site
from training_monitor.targets.kinds.vast import VastTarget
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport
from training_monitor.vast.cost import BurnForecast, Limit, reached_limit
from training_monitor.vast.instances import show_instance
from training_monitor.vast.rentals import record_sight
from training_monitor.vast.rows import format_label
from training_monitor.vast.training_request import JobState, QueuedJob, Rental

if TYPE_CHECKING:
    from training_monitor.notify.heartbeat import Heartbeat
    from training_monitor.notify.outbox import Outbox  # imports all messengers


OnLine = Callable[[LogUpdate], None]
RENEWALS = 4  # per lease period
LEAST_LOOK_SECONDS = 5.0  # between two looks at the price of a machine
NOTED_EVERY = 60.0  # seconds between two records that a long operation is still running
_TITLES = {
    "machine_lost": "🔁 Machine Given Up",
    "machine_kept": "💸 Instance Kept",
    "job_waiting": "⏳ Training Waits",
    "limit": "🛑 Limit Reached",
    "soft_limit": "⏰ Limit Near",
    "upload_failed": "⚠️ Upload Failed",
}
_LIMITS = ("hard_timeout", "soft_timeout", "budget")
_WAITS = ("budget", *(state.value for state in JobState))
_GENERATIONS = {"job_waiting": _WAITS, "limit": _LIMITS, "soft_limit": _LIMITS}


class Ways(TypedDict):
    """How a machine is reached and waited for: arguments of nearly everything that is called."""

    transport: Transport | None
    clock: Clock


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

    @property
    def ways(self) -> Ways:
        return {"transport": self.transport, "clock": self.clock}

    def lookout(self, key: str, name: str, post: Callable[[Notice], None]) -> Lookout:
        """Return the recorder of looks at one thing, for heartbeats and notices of outages."""
        after = self.config.outage_after
        return Lookout(
            key, name, post, outage_after=after, store=self.store, clock=self.clock, heartbeat=self.heartbeat
        )


class Interrupted(Exception):
    """A waiting step was interrupted: the lease is lost, the worker stops, or the job is to end."""


class Lease:
    """A job's lease, renewed by a thread that also reads whether the job is to end."""

    def __init__(self, service: Service, job: QueuedJob) -> None:
        self._service, self._job_id = service, job.id
        self._closing = threading.Event()
        self.lost = False
        self.to_end = job.to_end

    def __enter__(self) -> Lease:  # noqa: PYI034 (Self is not in Python 3.10)
        self._thread = start_thread(self._run, "lease")
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
            except TrainingMonitorError as error:  # for example a full disk: the lease is still valid for a while
                get_logger().warning("%s: the lease cannot be renewed: %s", self._job_id, error)
                now = self._service.clock.monotonic()
                failing_since = now if failing_since is None else failing_since
                self.lost = now - failing_since > seconds / 2
            if self.lost:
                return


class JobContext:
    """One job while a worker holds its lease; `job` is the stored state."""

    def __init__(self, service: Service, job: QueuedJob, lease: Lease) -> None:
        self.service, self.job, self.lease = service, job, lease
        self.clock = StepClock(self)
        self.ways: Ways = {**service.ways, "clock": self.clock}
        self.about, self.command = f"job {job.id}", command_line("rent", "queue", job.id)
        self.lookout = service.lookout(f"job {job.id}", job.id, self.post)
        self.silent = 0.0  # seconds in which the machine did not answer although the service did
        self.looked_at: float | None = None
        self.seen_status: str | None = None
        self._target: Target | None = None
        self._priced_at = self.clock.monotonic()

    # ------------------------------------------------------------ the job

    def go(self, state: JobState, *, progressed: bool = False, **changes: Any) -> None:
        """Save the state and changes of the work. Raises LeaseLost when another worker holds the job."""
        moved = replace(self.job, state=state, work=replace(self.job.work, **changes))
        before, self.job = self.job, self.service.queue.save(moved, self.service.worker, progressed=progressed)
        if before.state is not state:
            get_logger().info("%s: %s -> %s", self.job.id, before.state, state)

    def note(self, *, progressed: bool = False, **changes: Any) -> None:
        """Save changes of the work."""
        self.go(self.job.state, progressed=progressed, **changes)

    def end(self, outcome: JobState, reason: str) -> None:
        """Record how the job ends; only cleaning up is left."""
        self.tell("detected", f"{outcome.value.lower()}: {reason}")
        self.go(JobState.DESTROYING, outcome=outcome, reason=reason)

    def warn(self, text: str) -> None:
        """Record a problem that does not end the job."""
        self.tell("detected", text)
        if text not in self.job.work.warnings:
            self.note(warnings=(*self.job.work.warnings, text))

    @property
    def to_end(self) -> tuple[JobState, str] | None:
        """How the job was requested to end; None without a request, or when it is ending already."""
        return None if self.job.work.outcome else self.lease.to_end

    @property
    def limit(self) -> Limit | None:
        """The limit that the job has reached; None if there is none, or if it is ending or replacing its machine."""
        if self.job.work.outcome is not None or self.job.state is JobState.REPLACING:
            return None
        return reached_limit(self.job, self.service.clock.time())

    @property
    def must_end(self) -> bool:
        """Whether the job was requested to end, or has reached a limit that ends it."""
        return self.to_end is not None or ((limit := self.limit) is not None and limit.ends)

    def check(self) -> None:
        """Raise Interrupted when this step should stop; look at the price of the machine when that is due."""
        self._look_at_price()
        if self.lease.lost or self.service.stopping.is_set() or self.must_end:
            raise Interrupted

    # ------------------------------------------------------------ its machine

    def _look_at_price(self) -> None:
        """Record now and then that the machine is listed, and its price, which the limits count from then on."""
        number, begun = self.job.work.instance_id, self.clock.monotonic()
        if number is None or begun - self._priced_at < max(LEAST_LOOK_SECONDS, self.service.config.check_interval):
            return
        self._priced_at, now = begun, self.clock.time()
        try:
            self.saw(show_instance(str(number), transport=self.service.transport), now)
        except TrainingMonitorError as error:  # neither its absence nor its price is known by this
            get_logger().info("%s: the price of instance %s is unknown: %s", self.job.id, number, error.what)

    def saw(self, row: Mapping[str, Any], now: float) -> None:
        """Record that the machine is in an answer of the service, requested at `now`."""
        record_sight(self.service.store, self.label, row, now)
        self.reread()

    def reread(self) -> None:
        """Take over what was recorded of the job's machines."""
        rentals = self.service.queue.get(self.job.id).work.rentals
        self.job = replace(self.job, work=replace(self.job.work, rentals=rentals))

    @property
    def label(self) -> str:
        return format_label(self.service.owner, self.job.id, self.job.work.attempt)

    @property
    def rental(self) -> Rental | None:
        """The rental of the job's current machine."""
        found = [each for each in self.job.work.rentals if each.instance_id == self.job.work.instance_id]
        return found[-1] if found else None

    def target(self) -> Target:
        """Return the machine by its ssh address. Raises CommandError."""
        found = VastTarget(str(self.job.work.instance_id))
        if self._target is None or str(self._target) != str(found):
            row = show_instance(found.name, transport=self.service.transport)
            self._target = found.at_address(row)
        return self._target

    def site(self) -> Site:
        """Return the machine as it is reached. Raises like `target`."""
        return Site(self.target(), self.service.transport, self.clock)

    def answered(self) -> None:
        """Reset what was recorded while the machine was silent: it answered."""
        self.silent, self.looked_at, self.seen_status = 0.0, None, None

    def forget_address(self) -> None:
        """Look the address up again: it may have changed with a restart of the machine."""
        self._target = None

    @property
    def run_name(self) -> str:
        """The name under which the training is supervised: one per attempt, since each machine has its own jobs."""
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
        """Where the checkpoints are: ai-toolkit creates a folder with the model's name."""
        spec = self.job.request.spec
        return f"{self.output_dir}/{spec.name}" if spec else self.output_dir

    @property
    def local_folder(self) -> str:
        """The job's folder on this machine, which receives its model."""
        return os.path.join(self.service.store.folder, "jobs", self.job.id)

    @property
    def local_log(self) -> str:
        """The copy of its log on this machine, over all attempts."""
        return os.path.join(self.local_folder, "training.log")

    # ------------------------------------------------------------ events and notices

    def tell(self, kind: str, text: str) -> None:
        get_logger().log(10 if kind == "progress" else 20, "%s: %s", self.job.id, text)
        if self.service.on_event:
            self.service.on_event(Event(kind, text, self.job.id, self.job.work.attempt))

    def tell_waiting(self, text: str) -> None:
        """Report what a step waits for as an event: minutes of silence would look like a hang."""
        self.tell("waiting", text)

    def tell_progress(self, text: str) -> None:
        """Report progress of a long operation and record it now and then: the sweep ends jobs without progress."""
        self.tell("progress", text)
        self.lookout.note(None)
        if self.clock.time() - self.job.progressed_at >= NOTED_EVERY:
            self.note(progressed=True)

    def post_problem(self, kind: str, reason: str, generation: str | int = 0) -> None:
        """Send the notice of a problem, once for each generation, see `problem`."""
        self.post(problem(kind, self.job.id, reason, generation))

    def post(self, notice: Notice) -> None:
        """Send a notice, best effort."""
        try:
            if self.service.outbox:
                self.service.outbox.post(of_job(notice, self.job))
        except TrainingMonitorError as error:
            get_logger().warning("%s: the notice %s was not sent: %s", self.job.id, notice.kind, error)


class StepClock:
    """The clock of a step: waiting on it raises Interrupted when the step should stop."""

    def __init__(self, context: JobContext) -> None:
        self._context, self._clock = context, context.service.clock

    def time(self) -> float:
        return self._clock.time()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self.wait(threading.Event(), seconds)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait in short slices, and check the step between them."""
        deadline = self.monotonic() + seconds
        while True:
            self._context.check()
            left = deadline - self.monotonic()
            if event.is_set() or left <= 0:
                return event.is_set()
            self._clock.wait(event, min(left, 0.25))


# ---------------------------------------------------------------- notices


def problem(kind: str, job: str, reason: str, generation: str | int = 0) -> Notice:
    """Return the notice of a job's problem, which is sent once for each generation.

    The generation is a number or, by its name, what a job waits for (the budget, or its state) or which limit it is.
    """
    number = _GENERATIONS[kind].index(generation) if isinstance(generation, str) else generation
    return Notice(kind, _TITLES[kind], (("Reason", reason),), "", job, number, "high", training=job)


def credit_low(burn: BurnForecast, credit: float, *, day: int) -> Notice:
    """Return the notice, sent once per `day`, that the credit in dollars will soon be used up."""
    fields = (
        ("Credit", f"${credit:.2f}"),
        ("Instances", f"{burn.instances}, ${burn.dollars_per_hour:.2f} per hour"),
        ("Lasts", f"{burn.hours_left or 0.0:.1f} hours" + (" at most" if burn.unknown else "")),
    )
    text = "When the credit runs out, vast.ai stops all machines."
    kind, command = "credit_low", next_command("credit_low", ACCOUNT)
    return Notice(kind, "🔥 Credit Runs Out", fields, text, ACCOUNT, day, "urgent", target=ACCOUNT, command=command)


def ended(job: QueuedJob, log: str = "") -> Notice:
    """Return the notice of how a job ended, where its model is, and what it cost; `log` is the end of its log."""
    work = job.work
    titles = {JobState.COMPLETED: "🎉 Training Completed", JobState.CANCELLED: "🚫 Training Cancelled"}
    fields: list[tuple[str, str]] = []
    if work.step is not None:
        fields.append(("Progress", f"{work.step}/{work.total_steps or '?'}"))
    if work.saved_step is not None:
        fields.append(("Latest checkpoint", f"step {work.saved_step}"))
    if work.model_url or work.saved_path:
        fields.append(("Model", work.model_url or work.saved_path or ""))
    fields.append(("Machines", str(len(work.rentals))))
    if spans := [each.ended_at - each.started_at for each in work.rentals if each.ended_at is not None]:
        fields.append(("Rented for", format_duration(sum(spans))))
    if work.spent is not None:
        fields.append(("Cost", f"${work.spent:.2f}"))
    if work.outcome is not JobState.COMPLETED:
        fields.append(("Reason", work.reason or "not known"))
    priority = "high" if work.outcome is JobState.FAILED else "normal"
    title = titles.get(work.outcome or JobState.FAILED, "❌ Training Failed")
    if work.outcome is JobState.COMPLETED and work.unsaved_steps is not None:
        title, priority = "⚠️ Training Completed, Model Lacks The Last Steps", "high"
        fields.append(("Model lacks", f"the last {work.unsaved_steps} steps"))
    text = "\n".join(work.warnings)
    return Notice("job_ended", title, tuple(fields), text, job.id, 0, priority, training=job.id, log=log)


def of_worker(notice: Notice, owner: str) -> Notice:
    """Return the notice with the owner of its worker, and the command that shows more."""
    return replace(notice, job_id=f"worker of {owner}", training=None, command=command_line("doctor"))


def of_job(notice: Notice, job: QueuedJob) -> Notice:
    """Return the notice with the names of its job and machine, and the command that shows more."""
    machine = job.work.instance_id
    target = ACCOUNT if machine is None else f"vast://{machine}"
    command = command_line("rent", "queue", job.id)
    return replace(notice, job_id=f"job {job.id}", training=job.id, target=target, command=command)
