"""What a supervisor asks of its target and does there, and under which claims."""

from __future__ import annotations

from typing import Any

from training_monitor.clock import Clock
from training_monitor.errors import JobNotFound
from training_monitor.models import SUPERVISOR, Event, JobStatus, JobView, OnEvent, Question
from training_monitor.probes.checkpoints import get_checkpoint_listing
from training_monitor.probes.claims import Guard
from training_monitor.probes.former_attempts import Removed
from training_monitor.probes.jobs import is_process_job, look_at_job, start_job
from training_monitor.probes.stopping import stop_job
from training_monitor.store import Store
from training_monitor.supervise.claiming import Claiming
from training_monitor.supervise.exit_watch import ExitWatch
from training_monitor.supervise.leftovers import claim_names
from training_monitor.supervise.logs import get_logger
from training_monitor.supervise.run_state import RunState
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport
from training_monitor.watching import CheckpointListing


class Hands:
    """One target, the way to it, and the claims on what is supervised there."""

    def __init__(
        self,
        store: Store,
        target: Target,
        transport: Transport | None,
        clock: Clock,
        on_event: OnEvent | None,
        take_over: bool,
    ) -> None:
        self.store, self.target, self.transport, self.clock = store, target, transport, clock
        self.on_event, self.take_over = on_event, take_over
        self.exit_watch = ExitWatch(target, transport)
        self.claims: dict[str, Claiming] = {}
        self.keep_attempts: int | None = None

    def claim(self, run: RunState) -> None:
        """Hold all claims of a run. Raises AlreadySupervised, LeaseLost, and CommandError where nobody could ask."""

        def tell(kind: str, text: str) -> None:
            self.tell(run, kind, text)

        for name in claim_names(run):
            if name not in self.claims:
                self.claims[name] = Claiming(
                    self.target, name, self.store, self.transport, self.clock, tell, take_over=self.take_over
                )
            self.claims[name].hold()

    def guard_of(self, run: RunState) -> Guard:
        """Lets an act be done only while all claims of a run are held."""

        def guard(question: Question[Any]) -> Question[Any]:
            for name in claim_names(run):
                question = self.claims[name].guard(question)
            return question

        return guard

    def move(self, target: Target) -> None:
        """Go on with what took the place of the target."""
        self.target = self.exit_watch.target = target
        for each in self.claims.values():
            each.target = target

    def look(self, job_id: str) -> JobView | None:
        """The job as it is; None where there is no such job. Raises CommandError."""
        try:
            return look_at_job(self.target, job_id, transport=self.transport)
        except JobNotFound:
            return None

    def list_checkpoints(self, run: RunState) -> CheckpointListing:
        """Those of its folder, back to the one to resume from; none where no folder is known."""
        if not run.checkpoint_dir:
            return CheckpointListing(())
        found = get_checkpoint_listing(
            run.checkpoint_dir, self.target, passed_over=run.bad_checkpoints, transport=self.transport
        )
        return found or CheckpointListing(())

    def start_job(self, run: RunState) -> str:
        """Start the attempt that is written down last. Raises like `jobs.start_job`, and LeaseLost."""
        plan, guard = run.attempts[-1], self.guard_of(run)
        checkpoint, config = plan["checkpoint"], run.config or {}

        def tell(former: Removed) -> None:
            if former.removed:
                self.tell(run, "removed", f"run directories of former attempts removed: {', '.join(former.removed)}")
            if former.left:
                self.tell(run, "removed", f"left, as there are files of others in them: {', '.join(former.left)}")

        more: dict[str, Any] = {"guard": guard, "keep_attempts": self.keep_attempts, "on_removed": tell}
        return start_job(self.target, plan["job_id"], config, checkpoint, transport=self.transport, **more)

    def stop_job(self, run: RunState, job_id: str) -> str:
        """Stop a job, to start it again. Raises like `stopping.stop_job`, and LeaseLost."""
        more: dict[str, Any] = {"transport": self.transport, "clock": self.clock}
        more["on_progress"] = lambda text: self.tell(run, "stopping", text)
        return stop_job(self.target, job_id, by=SUPERVISOR, guard=self.guard_of(run), **more)

    def ended_otherwise(self, job_id: str) -> JobView | None:
        """The job if it succeeded, or a person stopped it, before our stop; Ray does not tell who stopped."""
        view = self.look(job_id)
        if view is None or view.status is JobStatus.SUCCEEDED:
            return view
        by_other = view.status is JobStatus.STOPPED and view.stopped_by != SUPERVISOR
        return view if by_other and is_process_job(job_id) else None

    def tell(self, run: RunState, kind: str, text: str, view: JobView | None = None, **more: Any) -> None:
        get_logger().log(10 if kind == "progress" else 20, "%s: %s", run.job_name, text)
        if self.on_event:
            self.on_event(Event(kind, text, run.job_id, len(run.attempts), view, **more))

    def close(self) -> None:
        """Leave the target alone; what is supervised there goes on."""
        self.exit_watch.close()
        for each in self.claims.values():
            each.close()
