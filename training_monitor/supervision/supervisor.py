"""The phases of auto_restart: each does one action and returns the next state, already saved.

Guarantees: never two jobs at a time, whichever machine supervises; failing to ask never counts as a failure of the
job; a job that a person stopped stays stopped; a supervisor that is killed and started again continues with the same
count of restarts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from training_monitor.core.clock import Reach
from training_monitor.core.errors import (
    AlreadySupervised,
    CommandFailed,
    Hint,
    JobExists,
    JobNotFound,
    LeaseLost,
    SettingsError,
    StateError,
    TargetEnded,
    TargetNotFound,
    TrainingMonitorError,
)
from training_monitor.core.models import SUPERVISOR, Failure, JobStatus, JobView, OnEvent, OnLook, RunOutcome
from training_monitor.core.read_fence import keep_found
from training_monitor.core.results import JOB, PodState
from training_monitor.core.store import Store
from training_monitor.core.units import format_duration, plural
from training_monitor.core.values import CheckpointListing, WatchedJob
from training_monitor.jobs.attempts import is_whole, training_name, variables_of, with_variables, without_secrets
from training_monitor.jobs.jobs import by_name, find_jobs_named, get_job_config, is_ray_job, next_job_id, see_job
from training_monitor.jobs.kinds import PROCESS, RAY, kind_of, prefix_of, prefix_of_config
from training_monitor.jobs.names import find_ray_job, several_named
from training_monitor.jobs.process_jobs import held_by
from training_monitor.jobs.ray_jobs import Forgotten
from training_monitor.look.kept_looks import Observer, look_key
from training_monitor.look.looks import failure_of, view_of_ended
from training_monitor.supervision.counters import with_saved
from training_monitor.supervision.hands import (
    Hands,
    end_what_ray_forgot,
    find_driver,
    find_other_job,
    is_still_written,
)
from training_monitor.supervision.run_state import (
    RunState,
    checkpoint_problem,
    decide,
    describe_look,
    failure_evidence,
    note_end,
    note_last_words,
    note_look,
    note_phases,
    note_roll_call,
    own_failure,
    plan_attempt,
    requeued_failure,
    update_attempt,
)
from training_monitor.targets.asking import Site
from training_monitor.targets.target import parse_target
from training_monitor.verdict.judge import with_speed
from training_monitor.verdict.restart import RestartPolicy, choose_resume, restart_delay
from training_monitor.verdict.stall import stall_policy
from training_monitor.why.before_end import explain_before_end

LOST_LOOKS = 2
STOP_TRIES = 10
REPLACED_SECONDS = 300.0  # for which a pod with labels that has ended may be replaced by another one
SURE_SECONDS = 5.0  # a job that seems stalled is looked at again after this time, before it is stopped


class Supervisor(Hands):
    """The supervisor of one run; the phases are those of supervision/run_state.py."""

    def __init__(
        self,
        store: Store,
        site: Site,
        policy: RestartPolicy,
        on_event: OnEvent | None,
        *,
        take_over: bool = False,
        standby: bool = False,
        on_look: OnLook | None = None,
    ) -> None:
        super().__init__(store, site, on_event, take_over, standby)
        self.keep_attempts = policy.keep_attempts
        self.policy, self.on_look = policy, on_look or (lambda error: None)
        self.observer: Observer | None = None
        self.missing_looks = self.stop_failures = 0
        self.ended_since: float | None = None  # when the target's pod was first seen to have ended, by `monotonic`
        self.waits_for_quiet = False  # waiting because a process still writes to the checkpoint folder
        self.reach = Reach(self.clock)
        self.unsaved: StateError | None = None  # why what was seen last is not on disk
        self.to_save: RunState | None = None  # what has to be on disk before the next action

    def step(self, run: RunState) -> RunState:
        """Do one action of the current phase; if the target could not be asked, nothing is concluded."""
        phases = {"starting": self.start, "watching": self.watch, "stopping": self.stop, "waiting": self.wait}
        try:
            self.claim(run)
            if self.to_save:
                return _look_again(self.save(self.to_save))
            run, phase = phases[run.phase](run), run.phase
            if phase in ("starting", "stopping"):  # the other phases call `reached` themselves
                self.reached(run)
        except (SettingsError, AlreadySupervised, LeaseLost):
            raise  # asking again cannot help
        except TargetEnded as error:
            return self.pod_ended(run, error.pod) if error.pod else self.not_reached(run, error)
        except StateError as error:
            self.not_saved(run, error)
            self.clock.sleep(self.policy.check_interval)
        except TrainingMonitorError as error:
            return self.not_reached(run, error)
        return run

    # ------------------------------------------------------------ beginning

    def begin(self, run: RunState, initial_job_id: str | None) -> RunState:
        """Begin a new run: adopt a running job of this name, or plan the first attempt."""
        if initial_job_id:
            initial_job_id = self._newest(run, initial_job_id)
        self.claim(replace(run, job_id=initial_job_id))
        pod = self.pod()
        run = replace(run, labels=dict(pod.labels) if pod else {})
        if initial_job_id:
            config = self._config_of(run.config, initial_job_id)
            return self.adopt(replace(run, config=config), see_job(self.site, initial_job_id))
        given = run.config is not None
        named = find_jobs_named(self.site, run.job_name, prefix=prefix_of_config(run.config))
        if not named:
            return self.save(run) if given else self.begin(run, find_ray_job(self.site, run.job_name))
        latest, remembered = named[-1]
        run = replace(run, config=run.config or remembered)
        views = [view for view, _ in named]
        if running := [view for view in views if not view.status.is_terminal]:
            if len(running) > 1 and any(training_name(view.job_id) != run.job_name for view in running):
                raise several_named(run.job_name, [(view.job_id, None, view.command) for view in running])
            return self.adopt(run, running[-1])
        if finished := [view for view in views if view.survivors and view.status is JobStatus.SUCCEEDED]:
            raise JobExists(
                f"{self.site}: {finished[-1].job_id} finished successfully, but some of its processes are still "
                f"running ({finished[-1].survivors} left)",
                hint=Hint("stop it first: {stop_job}", self.site, finished[-1].job_id),
            )
        for view in views:
            if view.survivors:
                left = plural(view.survivors, "remaining process", "remaining processes")
                self.tell(run, "detected", f"terminating {left} of {view.job_id}", view)
                self.stop_job(run, view.job_id)
        if not given and latest.status in (JobStatus.SUCCEEDED, JobStatus.STOPPED):
            return self.adopt(run, latest)  # the next look tells how far it came
        return self.save(run)

    def _newest(self, run: RunState, job_id: str) -> str:
        """Return the id of the job that is meant; of a scheduler's job the last attempt, unless another one runs."""
        prefix = prefix_of(job_id)
        named = find_jobs_named(self.site, run.job_name, prefix=prefix) if prefix not in (RAY, PROCESS) else []
        views = [view for view, _ in named]
        try:
            views.insert(0, by_name(see_job, self.site, job_id))
        except JobNotFound:
            if not views:
                raise
        return next((view for view in reversed(views) if not view.status.is_terminal), views[-1]).job_id

    def _config_of(self, given: Mapping[str, Any] | None, job_id: str) -> Mapping[str, Any]:
        """Return the configuration that was given, completed by what starts the job again."""
        if is_whole(given):
            return given or {}
        config = get_job_config(self.site, job_id)
        if config is None:
            raise SettingsError("job_config", None, f"a job configuration, because {job_id} has none")
        return {**config, **(given or {})}

    def adopt(self, run: RunState, view: JobView) -> RunState:
        run = plan_attempt(run, view.job_id, None, (), view.started_at or self.clock.time(), adopted=True)
        run = update_attempt(run, status=view.status.value)
        self.tell(run, "adopted", f"{view.job_id} is {view.status}: supervising it")
        return self.save(replace(run, phase="watching"))

    def go_on(self, run: RunState, given: RunState) -> RunState:
        """Continue a run whose supervisor died: same phase, same count; new arguments apply from now on."""
        if run.target != str(self.site):
            self.move(parse_target(run.target))
        text = f"resuming the supervision of {run.job_name}: {plural(run.retries, 'restart')} so far, now {run.phase}"
        if not is_whole(given.config):
            given = replace(given, config={**(run.config or {}), **(given.config or {})} or None)
        config = without_secrets(given.config)
        if config and json.dumps(config, sort_keys=True) != json.dumps(run.config, sort_keys=True):
            text += "; its changed configuration applies from the next attempt"
        self.tell(run, "resumed", text)
        config = self._with_what_ray_knows(given.config or run.config, run.job_id)
        if unsaved := sorted(name for name, value in variables_of(config).items() if value is None):
            raise SettingsError(
                "job_config", None, f"the values of {', '.join(unsaved)} again, because secrets are not stored"
            )
        return self.save(_look_again(replace(run, checkpoint_dir=given.checkpoint_dir, config=config)))

    def _with_what_ray_knows(self, config: Mapping[str, Any] | None, job_id: str | None) -> Mapping[str, Any] | None:
        """Return the configuration with the values that Ray remembers in the place of those that are not saved."""
        variables = variables_of(config)
        if None not in variables.values() or not job_id or not is_ray_job(job_id):
            return config
        known = variables_of(get_job_config(self.site, job_id))
        found = {name: known.get(name) if value is None else value for name, value in variables.items()}
        return with_variables(config, found)

    # ------------------------------------------------------------ phases

    def start(self, run: RunState) -> RunState:
        """Start the planned attempt, or find that it exists already."""
        if not run.attempts or run.attempts[-1]["status"] != "PLANNED":
            return self._plan(run)
        plan = run.attempts[-1]
        if len(run.attempts) > 1 and (ended := self._held(run, run.attempts[-2]["job_id"])):
            return ended
        other = find_other_job(self.site, run)
        if other and other.job_id != plan["job_id"]:
            return self.adopt(replace(run, attempts=run.attempts[:-1]), other)
        try:
            how = self.start_job(run)
        except JobNotFound:  # the reply was lost and nothing runs: the next round tries the same id
            self.tell(
                run,
                "unreachable",
                f"{plan['job_id']} is not running, and the response to its start request was lost: starting it again",
            )
            self.clock.sleep(self.policy.check_interval)
            return run
        except CommandFailed as error:
            if self.look(plan["job_id"]) is None:
                return self.fail(run, "NOT_STARTED", f"the job could not be started: {error}")
            how = "exists"  # it may still start: another one would be a second job
        source = "from the start: no checkpoint to resume from"
        if run.wrote_checkpoint or plan["refused_checkpoints"]:
            source = (
                f"from {plan['checkpoint']}" if plan["checkpoint"] else "from the start, because fresh_start is set"
            )
        kind = "started" if how == "started" else "adopted"
        self.tell(run, kind, f"{plan['job_id']} {how}, {source}", checkpoint=plan["checkpoint"])
        pod = self.pod()
        run = update_attempt(run, status="RUNNING", started_at=self.clock.time(), node=pod.node if pod else None)
        return self.save(replace(run, phase="watching"))

    def _plan(self, run: RunState) -> RunState:
        """Plan the next attempt and its checkpoint; or adopt a job that someone else has started meanwhile."""
        prefix = prefix_of_config(run.config)
        if run.attempts:
            if held := self._held(run, run.attempts[-1]["job_id"]):
                return held
            if other := find_other_job(self.site, run):
                return self.adopt(run, other)
        highest = len(run.attempts)
        if prefix == RAY:
            if followed := self._follow_forgotten(run):
                return followed
            forgotten = self._end_forgotten(run)
            highest = max(highest, forgotten.attempts)
            run = self.save(note_last_words(run, forgotten.log_tail))
        found = self.list_checkpoints(run)
        quiet = self.policy.stagnation_threshold
        if (age := is_still_written(run, found.checkpoints, self.clock.time(), quiet)) is not None:
            written = f"an unknown process wrote to {run.checkpoint_dir} {format_duration(age)} ago"
            if not self.waits_for_quiet:
                self.tell(
                    run,
                    "detected",
                    f"{written}: the next attempt starts after {format_duration(quiet)} without writes",
                )
            self.waits_for_quiet = True
            self.clock.sleep(self.policy.check_interval)
            return run
        self.waits_for_quiet = False
        now = self.clock.time()
        choice = choose_resume(
            found,
            wrote_one=run.wrote_checkpoint,
            fresh_start=self.policy.fresh_start,
            problem_of=lambda each: checkpoint_problem(run, each, now),
            suspect=run.suspect_checkpoints,
        )
        for each in choice.refused:
            self.tell(run, "refused", f"checkpoint {each.path} was not used: {each.problem}")
        if found.unrecognized:
            self.tell(run, "refused", f"{run.checkpoint_dir}: {found.why_none_is_complete}")
        if choice.refusal:
            return self.done(run, RunOutcome.NO_CHECKPOINT_FOUND, f"no_checkpoint_found: {choice.refusal}")
        run = replace(run, attempts=with_saved(run.attempts, found.checkpoints, now))
        number, name = highest + 1, run.job_name
        job_id = next_job_id(self.site, name, prefix=prefix, at_least=number)
        return self.save(plan_attempt(run, job_id, choice.checkpoint, choice.refused, self.clock.time()))

    def _follow_forgotten(self, run: RunState) -> RunState | None:
        """Adopt the process of a job that Ray has forgotten, if it trains on; None if there is none or it stalls."""
        driver = find_driver(self.site, run) if is_ray_job(run.job_id or "") else None
        if driver is None:
            return None
        folder, now = run.checkpoint_dir or None, self.clock.time()
        job = WatchedJob(pid=driver.pid, process=driver.process, output_dir=folder, name=driver.job_id)
        observer = self._observer(replace(run, job_id=driver.job_id, followed=job))
        look = observer.look(now)
        is_stalled = observer.judge(now, stall_policy(self.policy.stagnation_threshold)).state == "stalled"
        if not look.is_running or is_stalled or look.log is None or look.log.path is None:
            return None
        keep_found(self.site.target, [look.log.path], [])
        if not run.attempts or run.attempts[-1]["job_id"] != driver.job_id or run.attempts[-1]["ended_at"]:
            run = plan_attempt(run, driver.job_id, None, (), now - (look.evidence.runtime or 0.0), adopted=True)
        text = (
            f"Ray no longer lists {driver.job_id}, which is still running as process {driver.pid}: "
            "supervising that process"
        )
        self.tell(run, "adopted", text)
        job = replace(job, log_file=look.log.path)
        return self.save(replace(update_attempt(run, status="RUNNING"), phase="watching", followed=job))

    def _end_forgotten(self, run: RunState) -> Forgotten:
        """End processes of former attempts that Ray no longer knows: they would train beside the next one."""
        found = end_what_ray_forgot(self.site, run, guard=self.guard_of(run))
        if found.ended:
            left = plural(found.ended, "process", "processes")
            self.tell(
                run,
                "detected",
                f"terminated {left} of {run.job_name} that kept running after Ray had lost the job",
            )
        return found

    def watch(self, run: RunState) -> RunState:
        """Look once: report progress, or find that the job ended or stalls; then wait for the next look."""
        assert run.job_id
        observer = self._observer(run)
        try:
            view = observer.view_of(observer.look(self.clock.time()), self.clock.time())
        except JobNotFound as error:
            return self.missing(run, error)
        self.missing_looks = 0
        run = self._see_requeue(run, view)
        verdict = observer.judge(self.clock.time(), stall_policy(self.policy.stagnation_threshold))
        stalled = verdict.state == "stalled" and view.status is JobStatus.RUNNING
        known, is_sure = run.attempts[-1]["resume_problem"], run.stop_reason is not None
        run = replace(run, stop_reason=verdict.reason if stalled else None)
        run = self.keep(note_phases(note_look(run, view, self.clock.time()), observer.looks.all()))
        self.reached(run)
        if (problem := run.attempts[-1]["resume_problem"]) and not known:
            self.tell(run, "ignored", problem, view)
        if run.followed and (view.status.is_terminal or view.status is JobStatus.UNKNOWN):
            return self._end_followed(run, view)
        if view.status.is_terminal:
            return self._end(run, view)
        is_explained = run.attempts[-1]["explanation"] is not None
        if stalled and is_sure and not is_explained:
            self.tell(run, "detected", f"{run.job_id} stalled: {verdict.reason}", view)
            if self.policy.roll_call_timeout:
                return self.explain(run)  # the next look decides
        if stalled and is_sure:
            return self.save(replace(run, phase="stopping"))
        if is_explained and not stalled and verdict.state != "unknown":
            self.tell(run, "detected", f"{run.job_id} no longer stalls, so it is not stopped: {verdict.reason}", view)
            run = update_attempt(run, explanation=None, roll_call=None, suspect_nodes=None, faulty_nodes=None)
        self.tell(run, "progress", describe_look(view), replace(view, progress=with_speed(view.progress, verdict)))
        self.pause(run, SURE_SECONDS if stalled else self.policy.check_interval)
        return run

    def _see_requeue(self, run: RunState, view: JobView) -> RunState:
        """Record it as another attempt if its scheduler runs the same job again."""
        count = view.pod.restarts if view.pod and view.pod.kind == JOB else 0
        if run.requeues is None or count <= run.requeues:
            return replace(run, requeues=count)
        failure, now = requeued_failure(), self.clock.time()
        run = note_end(
            update_attempt(run, ended_at=now), "FAILED", failure.evidence, failure, self.list_checkpoints(run)
        )
        run = plan_attempt(run, view.job_id, None, (), now, adopted=True)
        self.tell(run, "adopted", f"{view.job_id} was requeued by its scheduler: supervising it", view)
        return self.save(replace(run, phase="watching", requeues=count))

    def _observer(self, run: RunState) -> Observer:
        """Return the observer of the current job on the current target."""
        of_ray = WatchedJob(job_id=run.job_id, output_dir=run.checkpoint_dir or None)
        job, known = run.followed or of_ray, self.observer
        if known is None or (known.job, known.site) != (job, self.site):
            key = look_key(self.site.target, of_ray, None)
            known = self.observer = Observer(self.site, job, store=self.store, key=key)
        return known

    def stop(self, run: RunState) -> RunState:
        """Stop a stalled job, or what a dead one left behind, and verify that it is gone."""
        job_id = run.job_id
        assert job_id
        self.tell(run, "stopping", f"stopping {job_id}: SIGTERM, then SIGKILL after a few seconds")
        try:
            if run.followed:
                self._end_forgotten(run)
            status = "GONE" if run.followed else self.stop_job(run, job_id)
        except JobNotFound:
            status = "GONE"
        except CommandFailed as error:
            self.stop_failures += 1
            self.tell(run, "detected", str(error))
            if self.stop_failures >= STOP_TRIES:
                return self.done(
                    run, RunOutcome.RESTART_FAILED, f"restart_failed: the job could not be stopped: {error}"
                )
            self.clock.sleep(self.policy.check_interval)
            return run
        self.stop_failures = 0
        if ended := self.ended_otherwise(job_id):
            return self._end(run, ended)
        self.tell(run, "stopped", f"{job_id} is gone ({status})")
        return self.fail(run, "STALLED" if run.stop_reason else "FAILED", run.stop_reason or "")

    def explain(self, run: RunState) -> RunState:
        """Take the roll call of a job that hangs, before it is ended."""
        timeout = self.policy.roll_call_timeout
        text = f"inspecting all ranks of {run.job_id} for at most {format_duration(timeout)} before stopping it"
        self.tell(run, "stopping", text)
        job = run.followed or WatchedJob(job_id=run.job_id)
        kept = explain_before_end(self.site, job, self.store, timeout=timeout)
        self.tell(run, "explained", kept.text)
        return self.save(note_roll_call(run, kept))

    def wait(self, run: RunState) -> RunState:
        now, most = self.clock.time(), restart_delay(self.policy, sys.maxsize) * (1.0 + self.policy.jitter)
        if run.restart_at > now + most:  # the clock was set back
            run = self.save(replace(run, restart_at=now + most))
        if (left := run.restart_at - now) > 0:
            self.clock.sleep(min(left, self.policy.check_interval))
            held = self._held(run, run.attempts[-1]["job_id"])
            self.reached(run)
            return held or run
        return self.save(replace(run, phase="starting"))

    def _held(self, run: RunState, job_id: str) -> RunState | None:
        """End the run if a person stopped its last job after that had ended; None otherwise."""
        by = held_by(self.site, job_id)
        last = run.attempts[-1]
        if by is None or (last["status"] == "PLANNED" and self.look(last["job_id"])):
            return None
        made = tuple(each for each in run.attempts if each["status"] != "PLANNED")
        run = replace(run, attempts=made, job_id=job_id, retries=run.retries - 1)  # the planned restart does not happen
        return self.done(run, RunOutcome.STOPPED, f"stopped: by {by}, after {job_id} had ended")

    # ------------------------------------------------------------ endings

    def _end(self, run: RunState, view: JobView) -> RunState:
        """Decide what follows from the end of the job."""
        if view.pod and view.pod.kind != JOB:
            return self.pod_ended(run, view.pod)
        if view.status is JobStatus.SUCCEEDED:
            return self.done(update_attempt(run, status="SUCCEEDED"), RunOutcome.COMPLETED, "completed")
        if view.status is JobStatus.STOPPED and view.stopped_by != SUPERVISOR:
            run = update_attempt(run, status="STOPPED")
            return self.done(run, RunOutcome.STOPPED, f"stopped: {view.message or 'by a person'}")
        if view.pod and view.pod.category == "node_lost":  # its node may be well again: the second time counts
            run = update_attempt(run, node=None, suspect_nodes=[view.pod.node] if view.pod.node else None)
        evidence, is_stall = failure_evidence(view), view.status is JobStatus.STOPPED  # by a supervisor
        self.tell(run, "detected", f"{view.job_id} {view.status.value.lower()}: {evidence}", view)
        if view.survivors:
            left = plural(view.survivors, "remaining process", "remaining processes")
            self.tell(run, "detected", f"terminating {left} of {view.job_id}", view)
            if is_stall:
                return self.save(replace(run, phase="stopping", stop_reason=evidence))
            run = update_attempt(run, status=view.status.value, reason=evidence, failure=asdict(failure_of(view)))
            return self.save(replace(run, phase="stopping", stop_reason=None))
        if is_stall:
            return self.fail(run, "STALLED", evidence)
        return self.fail(run, view.status.value, evidence, failure_of(view))

    def _end_followed(self, run: RunState, view: JobView) -> RunState:
        """Decide what follows from the end of a process of which Ray knew nothing, unless Ray knows its job again."""
        if view.status is not JobStatus.SUCCEEDED and self.look(view.job_id):
            return self.save(replace(run, followed=None))
        if view.status.is_terminal:
            return self._end(run, view)
        self.tell(run, "detected", f"{view.job_id} has ended: {view.message}", view)
        return self.fail(run, "LOST", view.message or "")

    def pod_ended(self, run: RunState, pod: PodState) -> RunState:
        """End the run with its pod, in which nothing can be started, unless another pod takes its place soon."""
        self.reached(run)
        view = view_of_ended(pod)
        if view.status is JobStatus.SUCCEEDED and run.phase == "watching":
            run = update_attempt(run, status="SUCCEEDED")
            return self.done(run, RunOutcome.COMPLETED, f"completed: {view.message}")
        now = self.clock.monotonic()
        if self.ended_since is None:
            self.ended_since = now
            self.exit_watch.close()
            self.tell(run, "detected", view.message or "")
        if moved := self._replaced(run, pod.terminated_at):
            return moved
        if run.labels and now - self.ended_since < REPLACED_SECONDS:
            self.clock.sleep(self.policy.check_interval)
            return run
        failure = failure_of(view)
        if run.attempts and run.attempts[-1]["status"] != "PLANNED":
            run = note_end(run, "FAILED", failure_evidence(view), failure, CheckpointListing(()))
        reason = (
            f"restart_failed: {view.message} ({failure.category}): no attempt can start in a pod that has terminated"
        )
        return self.done(run, RunOutcome.RESTART_FAILED, reason)

    def missing(self, run: RunState, error: JobNotFound) -> RunState:
        """Count a look that found no such job; after the second one Ray has lost it (a new head remembers no jobs).

        Its process may train on: then that is supervised.
        """
        self.reached(run)
        self.missing_looks += 1
        if self.missing_looks < LOST_LOOKS:
            self.clock.sleep(min(5.0, self.policy.check_interval))
            return run
        self.missing_looks = 0
        if followed := self._follow_forgotten(run):
            return followed
        self.tell(run, "detected", f"{run.job_id} is lost: {error.what}")
        return self.fail(run, "LOST", error.what)

    def fail(self, run: RunState, status: str, reason: str, failure: Failure | None = None) -> RunState:
        """Record the end of an attempt, and plan the next one or give up."""
        import random

        self.exit_watch.close()
        found = self.list_checkpoints(run)
        now = self.clock.time()
        run = update_attempt(run, ended_at=run.attempts[-1]["ended_at"] or now)
        if status == "STALLED" and (stepped_at := run.attempts[-1]["last_step_at"]):
            run = note_phases(run, self._observer(run).looks.all(), until=stepped_at)
        faulty = run.attempts[-1]["faulty_nodes"] or ()
        run = note_end(run, status, reason, failure or own_failure(status, reason, faulty), found)
        if run.config is None:
            reason = "restart_failed: the job cannot be restarted without a job_config"
            return self.done(run, RunOutcome.RESTART_FAILED, reason, found)
        decision = decide(run, self.policy)
        if decision.refusal:
            return self.done(run, decision.refusal, decision.reason, found)
        delay = decision.delay * (1.0 + self.policy.jitter * random.random())
        run = replace(run, phase="waiting", retries=run.retries + 1, restart_at=now + delay, stop_reason=None)
        avoided, kind = "", kind_of(run.job_id or "")
        if nodes := decision.excluded_nodes:
            drain = kind.drain_command(nodes) if kind else ""
            avoided = (
                f"; avoiding suspect node {', '.join(nodes)}{f' (to keep all jobs off it: {drain})' if drain else ''}"
            )
        self.tell(run, "waiting", f"{decision.reason}{avoided}; restart {run.retries} in {format_duration(delay)}")
        blamed: Any = {"bad_checkpoints": decision.bad_checkpoints, "suspect_checkpoints": decision.suspect_checkpoints}
        return self.save(replace(run, **blamed, avoid_nodes=decision.excluded_nodes, followed=None))

    def done(self, run: RunState, outcome: RunOutcome, reason: str, found: CheckpointListing | None = None) -> RunState:
        """Record the end of the run; `found` are its checkpoints if they were just listed."""
        now = self.clock.time()
        if run.attempts and run.attempts[-1]["ended_at"] is None and run.attempts[-1]["status"] != "PLANNED":
            run = update_attempt(run, ended_at=now)
        with suppress(TrainingMonitorError):
            found = found or self.list_checkpoints(run)
        newest = found.newest_complete if found else None
        saved = newest.step if newest else None
        self.outcome, success = outcome, outcome is RunOutcome.COMPLETED
        run = self.keep(replace(run, phase="done", success=success, outcome=outcome, reason=reason, ended_at=now))
        self.tell(run, "finished", reason, outcome=outcome, runtime=now - run.started_at, checkpoint_step=saved)
        return run

    # ------------------------------------------------------------ small parts

    def not_reached(self, run: RunState, error: TrainingMonitorError) -> RunState:
        """Conclude nothing while the target is unreachable: no restart, no count; look for a replaced pod."""
        if self.reach.miss():
            self.tell(run, "unreachable", f"cannot reach the target: {error}; no action will be taken")
        self.on_look(error)
        self.exit_watch.close()
        run = _look_again(run)
        if isinstance(error, TargetNotFound):
            run = self._replaced(run) or run
        self.clock.sleep(self.policy.check_interval)
        return run

    def _replaced(self, run: RunState, ended_at: float | None = None) -> RunState | None:
        """Move to the pod that took the place of the target's; None if there is none."""
        found = self.site.target.find_replacement(run.labels, self.site.transport, ended_at)
        if found is None:
            return None
        self.tell(run, "moved", f"{self.site} was replaced by {found}")
        self.move(found)
        self.ended_since = None
        return self.keep(replace(run, target=str(found)))

    def reached(self, run: RunState) -> None:
        if (gap := self.reach.answer()) is not None:
            self.tell(run, "reached", f"{self.site} responds again after {format_duration(gap)}")
        self.on_look(self.unsaved)

    def pause(self, run: RunState, seconds: float) -> None:
        """Wait until the next look, or until the job's process ends."""
        assert run.job_id
        self.exit_watch.follow(run.job_id)
        self.clock.wait(self.exit_watch.ended, min(seconds, self.policy.check_interval))
        self.exit_watch.ended.clear()

    def keep(self, run: RunState) -> RunState:
        """Save what was seen, and return the run; a state folder that is full hides no verdict."""
        try:
            self.save(run)
        except StateError as error:
            self.to_save = None
            self.not_saved(run, error)
        return run

    def not_saved(self, run: RunState, error: StateError) -> None:
        """Report once that the state folder cannot be used, and create it again if it was deleted.

        Nothing is concluded about the target.
        """
        if self.unsaved is None:
            self.tell(run, "detected", f"the state could not be saved: {error.what}")
        self.unsaved = error
        self.on_look(error)
        with suppress(StateError):
            self.store.prepare()

    def save(self, run: RunState) -> RunState:
        """Save the run, and return it; values of variables that may be secret are not written down.

        A run that cannot be saved is saved by the next `step`, which does nothing else.
        """
        self.to_save, kept = run, replace(run, config=without_secrets(run.config))
        self.store.save_run(run.key, kept, finished=run.phase == "done")
        self.to_save = self.unsaved = None
        return run


def _look_again(run: RunState) -> RunState:
    """Return to watching a job whose stop was put off: it may have recovered since.

    Not with Ray, which does not tell who stopped a job.
    """
    is_stall = run.phase == "stopping" and run.stop_reason and not is_ray_job(run.job_id or "")
    return replace(run, phase="watching") if is_stall else run
