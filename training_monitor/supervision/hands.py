"""What a supervisor asks of its target and does there, and the claims it needs for that.

Before the next attempt starts, this module also finds what may still run of a training: other jobs of its name, and
processes that still write checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from training_monitor.checkpoints.checkpoints import get_checkpoint_listing
from training_monitor.core.errors import JobNotFound, TrainingMonitorError
from training_monitor.core.logger import get_logger
from training_monitor.core.models import (
    SUPERVISOR,
    Checkpoint,
    Event,
    JobStatus,
    JobView,
    OnEvent,
    Question,
    RunOutcome,
)
from training_monitor.core.results import PodState
from training_monitor.core.store import Store
from training_monitor.core.values import CheckpointListing
from training_monitor.jobs.attempts import Removed, attempt_number, avoiding, training_name
from training_monitor.jobs.claims import Claiming, Guard, unguarded
from training_monitor.jobs.jobs import find_jobs_named, is_ray_job, see_job, start_job
from training_monitor.jobs.kinds import prefix_of, prefix_of_config
from training_monitor.jobs.ray_jobs import Driver, Forgotten, drivers_question, end_forgotten, jobs_question
from training_monitor.jobs.stopping import ExitWatch, end_job
from training_monitor.supervision.run_state import LATE_SECONDS, RunState, checkpoint_problem
from training_monitor.targets.asking import Site, side_by_side
from training_monitor.targets.target import Target


def claim_names(run: RunState) -> list[str]:
    """Return the names to claim for a run: its own, and those of jobs that it adopted under other names."""
    jobs = [*(each["job_id"] for each in run.attempts), *([run.job_id] if run.job_id else [])]
    return list(dict.fromkeys([run.job_name, *map(training_name, jobs)]))


def find_other_job(site: Site, run: RunState) -> JobView | None:
    """Return a job to adopt instead of starting one: a running one of this name, or one newer than all attempts.

    A newer job was started by another supervisor that took over for a while, unless it began before a job that `run`
    adopted. A job that only its metadata names counts if it was started after the last attempt had ended.
    """
    prefix = prefix_of_config(run.config)
    ended = max((each["ended_at"] or 0.0 for each in run.attempts), default=run.started_at)
    views = [
        view
        for view, _ in find_jobs_named(site, run.job_name, prefix=prefix)
        if training_name(view.job_id) == run.job_name or (view.started_at or 0.0) > ended
    ]
    made_last = [each["job_id"] for each in run.attempts if each["status"] != "PLANNED"][-1:]
    for job_id in {*made_last} - {view.job_id for view in views} if prefix else ():
        with suppress(JobNotFound):  # its scheduler may have started it again
            views.insert(0, see_job(site, job_id))
    made = [attempt_number(each["job_id"]) for each in run.attempts]
    last = run.attempts[-1] if run.attempts else None
    since = last["started_at"] if last and last["start_step"] is None else 0.0  # for an adopted job, the target's time
    later = [
        view for view in views if made and attempt_number(view.job_id) > max(made) and (view.started_at or 0) >= since
    ]
    return next((view for view in reversed(views) if not view.status.is_terminal), later[-1] if later else None)


def end_what_ray_forgot(site: Site, run: RunState, *, guard: Guard = unguarded) -> Forgotten:
    """End processes of attempts that Ray does not know, on the head; after a lost attempt, on all pods of the cluster.

    The driver runs on a worker pod if its entrypoint asked for resources. Raises CommandError: a process cannot be
    ended, or a running pod could not be asked.
    """
    is_lost = bool(run.attempts) and run.attempts[-1]["status"] == "LOST"
    pods = site.target.find_siblings(site.transport) if is_lost else ()
    running = [pod.name for pod in pods if pod.phase == "Running" and not pod.deleting]
    sites = [site, *(site.at(site.target.beside(name)) for name in running)]
    calls = [partial(end_forgotten, each, run.job_name, run.job_id, guard=guard) for each in sites]
    found: list[Forgotten] = []
    for answer in side_by_side(calls):
        if isinstance(answer, TrainingMonitorError):
            raise answer
        found.append(answer)
    log_tail = next((each.log_tail for each in found if each.log_tail), "")
    return Forgotten(sum(each.ended for each in found), (), max(each.attempts for each in found), log_tail)


def find_driver(site: Site, run: RunState) -> Driver | None:
    """Return the driver of the one job of this training that runs on the head without Ray's knowledge, if there is one.

    What an attempt that ended otherwise has left behind is not meant. Raises CommandError.
    """
    drivers, jobs = site.ask(drivers_question(run.job_name, run.job_id), jobs_question())
    ended = [each["job_id"] for each in run.attempts if each["ended_at"] and each["status"] != "LOST"]
    known = [each.submission_id for each in jobs.get() or ()]
    found = list(drivers.get() or ())
    return found[0] if len(found) == 1 and found[0].job_id not in (*known, *ended) else None


def is_still_written(run: RunState, checkpoints: Sequence[Checkpoint], now: float, quiet: float) -> float | None:
    """Return how many seconds ago a checkpoint was written after the end of the last attempt; None if none was.

    Files that nobody wrote to for `quiet` seconds count as finished.
    """
    ended = run.attempts[-1]["ended_at"] if run.attempts else None
    age = min((each.age for each in checkpoints if each.age is not None), default=None)
    if ended is None or age is None or age >= min(now - ended - LATE_SECONDS, quiet):
        return None
    return age


class Hands:
    """One target, the way to it, and the claims on what is supervised there."""

    def __init__(
        self,
        store: Store,
        site: Site,
        on_event: OnEvent | None,
        take_over: bool,
        standby: bool,
    ) -> None:
        self.store, self.site, self.clock = store, site, site.clock
        self.on_event, self.take_over, self.standby = on_event, take_over, standby
        self.exit_watch = ExitWatch(site)
        self.claims: dict[str, Claiming] = {}
        self.keep_attempts: int | None = None
        self.outcome: RunOutcome | None = None  # once the run has ended

    def claim(self, run: RunState) -> None:
        """Hold all claims of a run. Raises AlreadySupervised, LeaseLost; CommandError: the target did not answer."""

        def tell(kind: str, text: str) -> None:
            self.tell(run, kind, text)

        def is_running() -> bool:
            prefix = prefix_of(run.job_id) if run.job_id else prefix_of_config(run.config)
            named = find_jobs_named(self.site, run.job_name, prefix=prefix)
            return any(not view.status.is_terminal for view, _ in named)

        standby = is_running if self.standby else None
        for name in claim_names(run):
            if name not in self.claims:
                more: Any = {"take_over": self.take_over, "standby": standby}
                self.claims[name] = Claiming(self.site, name, self.store, tell, **more)
            self.claims[name].hold()

    def guard_of(self, run: RunState) -> Guard:
        """Return a guard that allows an action only while all claims of a run are held."""

        def guard(question: Question[Any]) -> Question[Any]:
            for name in claim_names(run):
                question = self.claims[name].guard(question)
            return question

        return guard

    def move(self, target: Target) -> None:
        """Switch to the replacement of the target."""
        self.site = self.exit_watch.site = self.site.at(target)
        for each in self.claims.values():
            each.site = self.site

    def pod(self) -> PodState | None:
        """Return the pod of the target as it is listed; None without one, or if it could not be asked for."""
        try:
            found = self.site.target.list_pods(self.site.target.name, transport=self.site.transport)
        except TrainingMonitorError:
            return None
        return found[0] if found else None

    def look(self, job_id: str) -> JobView | None:
        """Return the job; None if there is no such job. Raises CommandError."""
        try:
            return see_job(self.site, job_id)
        except JobNotFound:
            return None

    def list_checkpoints(self, run: RunState) -> CheckpointListing:
        """List the run's checkpoints, back to the one to resume from; none if it has no known folder."""
        if not run.checkpoint_dir:
            return CheckpointListing(())
        now = self.clock.time()

        def is_wanted(each: Checkpoint) -> bool:
            return each.content not in run.suspect_checkpoints and checkpoint_problem(run, each, now) is None

        found = get_checkpoint_listing(
            run.checkpoint_dir, self.site.target, is_wanted=is_wanted, transport=self.site.transport
        )
        return found or CheckpointListing(())

    def start_job(self, run: RunState) -> str:
        """Start the newest planned attempt. Raises like `jobs.start_job`, and LeaseLost."""
        plan, guard = run.attempts[-1], self.guard_of(run)
        checkpoint, config = plan["checkpoint"], avoiding(run.config or {}, run.avoid_nodes)

        def tell(former: Removed) -> None:
            if former.removed:
                self.tell(run, "removed", f"removed run directories of earlier attempts: {', '.join(former.removed)}")
            if former.left:
                self.tell(
                    run, "removed", f"run directories kept, because they contain other files: {', '.join(former.left)}"
                )

        more: dict[str, Any] = {"guard": guard, "keep_attempts": self.keep_attempts, "on_removed": tell}
        return start_job(self.site, plan["job_id"], config, checkpoint, **more)

    def stop_job(self, run: RunState, job_id: str) -> str:
        """Stop a job that is to be restarted. Raises like `stopping.stop_job`, and LeaseLost."""
        see_job(self.site, job_id)
        more: Any = {"guard": self.guard_of(run), "on_progress": lambda text: self.tell(run, "stopping", text)}
        return end_job(self.site, job_id, SUPERVISOR, **more)

    def ended_otherwise(self, job_id: str) -> JobView | None:
        """Return the job if it succeeded or a person stopped it before we did; Ray does not tell who stopped a job."""
        view = self.look(job_id)
        if view is None or view.status is JobStatus.SUCCEEDED:
            return view
        by_other = view.status is JobStatus.STOPPED and view.stopped_by != SUPERVISOR
        return view if by_other and not is_ray_job(job_id) else None

    def tell(self, run: RunState, kind: str, text: str, view: JobView | None = None, **more: Any) -> None:
        get_logger().info("%s: %s", run.job_name, text)
        if self.on_event:
            self.on_event(Event(kind, text, run.job_id, len(run.attempts), view, **more))

    def close(self) -> None:
        """Release the claims; the supervised job keeps running."""
        self.exit_watch.close()
        for each in self.claims.values():
            each.close(self.outcome)
