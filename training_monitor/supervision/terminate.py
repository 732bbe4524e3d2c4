"""End a run and save its result, one action after the other, each recorded before it is done:

    stopping ──► inventory ──► uploading ──► destroying ──► done

An unfinished sequence continues in its phase: every action is idempotent, and its effect is verified. A rented instance
is destroyed only after its upload was verified, unless the plan says otherwise.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from training_monitor.checkpoints.checkpoints import newest_complete
from training_monitor.core.errors import (
    CommandFailed,
    InstanceNotFound,
    JobNotFound,
    LeaseLost,
    SettingsError,
    TrainingMonitorError,
)
from training_monitor.core.fields import shared_fields
from training_monitor.core.logger import get_logger
from training_monitor.core.models import Checkpoint, Event, OnEvent
from training_monitor.core.outcomes import TerminationPlan, TerminationReport, UploadReport
from training_monitor.core.units import format_bytes, format_duration, plural
from training_monitor.core.values import CheckpointListing, Notice
from training_monitor.logs.job_progress import job_progress
from training_monitor.notify import templates
from training_monitor.notify.templates import About
from training_monitor.supervision.watch_state import Told, reason_to_end
from training_monitor.supervision.watcher import TrainingWatcher
from training_monitor.targets.proc_stat import Identity
from training_monitor.uploads.checkpoint import check_destination, upload_checkpoint
from training_monitor.uploads.hugging_face import IncompleteInfo
from training_monitor.vast.instances import destroy_instance, find_instance
from training_monitor.why.before_end import explain_before_end

if TYPE_CHECKING:
    from training_monitor.notify.outbox import Outbox  # imports everything that a messenger needs
STOP_TRIES = 3
FIRST_WAIT, LONGEST_WAIT = 5.0, 60.0  # seconds between tries while the target cannot be asked
STOPS_WITHIN = 600.0  # seconds; a run that works for longer after it was asked to stop does not obey, or was not asked


class Recovered(TrainingMonitorError):
    """A run that was to be ended because it hung no longer does, or has ended by itself: nothing was done to it."""


@dataclass(frozen=True, slots=True)
class Termination:
    """How far the sequence is, as it is saved; `generation` is that of the run, `hung_at` when it was seen to hang."""

    key: str
    plan: TerminationPlan
    started_at: float
    phase: str = "stopping"
    generation: int = 0
    hung_at: float | None = None
    step: int | None = None
    total_steps: int | None = None
    identity: Identity | None = None
    stopped: bool | None = None
    left: tuple[str, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    unlisted_checkpoints: int = 0
    explanation: str | None = None
    roll_call: str | None = None
    uploads: tuple[UploadReport, ...] = ()
    destroyed: bool | None = None
    gone: bool | None = None
    kept: str | None = None
    errors: tuple[str, ...] = ()
    ended_at: float | None = None

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint to upload: the newest complete one."""
        return newest_complete(self.checkpoints)

    @property
    def is_saved(self) -> bool:
        return any(each.verified for each in self.uploads)

    def report(self) -> TerminationReport:
        saved = self.is_saved or not self.plan.upload_to
        to_destroy = self.plan.destroy and (self.plan.upload_to or self.plan.destroy_without_upload)
        return TerminationReport(
            success=bool(self.stopped) and saved and not (to_destroy and self.gone is False),
            duration=(self.ended_at or self.started_at) - self.started_at,
            **shared_fields(TerminationReport, self.plan, self),
        )


def terminate_training(
    watcher: TrainingWatcher,
    plan: TerminationPlan | None = None,
    *,
    outbox: Outbox | None = None,
    on_event: OnEvent | None = None,
) -> TerminationReport:
    """Terminate a run: stop it, upload its newest complete checkpoint, notify, destroy the rented instance. Blocks.

    All processes of the run receive SIGTERM, and 10 s later SIGKILL. Then this function verifies that no process is
    left. If this function is interrupted and called again, it continues where it stopped. The plan of the first call is
    then used, even if another plan is given. No action is repeated.

    Args:
        plan: the actions to take; default: only stop the run.
        outbox: where notices are posted.
        on_event: called with each event.

    Returns:
        A TerminationReport.

    Raises:
        SettingsError: a destination is invalid, or the processes of the run are unknown.
        AlreadySupervised: another process on this machine is terminating the run.
        Recovered: `plan.is_hang` is set, but the run no longer hangs.
    """
    plan = plan or TerminationPlan()
    check_plan(watcher, plan)
    key = _key(watcher)
    with watcher.store.hold(key):
        state = watcher.store.load_run(key, Termination) or _begin(key, plan, watcher)
        if not plan.is_hang:  # this call ends it also if it has recovered
            state = replace(state, plan=replace(state.plan, is_hang=False))
        return _Terminator(watcher, outbox, on_event).run(state).report()


def check_plan(watcher: TrainingWatcher, plan: TerminationPlan) -> None:
    """Raise SettingsError for a plan that is impossible with this run."""
    watcher.check_can_end()
    for destination in plan.upload_to:
        check_destination(destination)
    if plan.upload_to and watcher.job.output_dir is None:
        raise SettingsError("output_dir", None, "the folder that contains the checkpoints to upload")


def is_terminating(watcher: TrainingWatcher) -> bool:
    """Return whether the end of this run was begun and is not done."""
    return termination_phase(watcher) is not None


def termination_phase(watcher: TrainingWatcher) -> str | None:
    """Return the phase of a termination under way: stopping | inventory | uploading | destroying; None without one."""
    kept = watcher.store.load_run(_key(watcher), Termination)
    return kept.phase if kept else None


def past_termination(watcher: TrainingWatcher) -> TerminationReport | None:
    """Return the result of ending this start of the run; None if it was not ended."""
    kept = watcher.store.load_run(_key(watcher), Termination, finished=True)
    if not kept or kept.generation != watcher.state.generation or not kept.stopped:
        return None
    return kept.report()


def _key(watcher: TrainingWatcher) -> str:
    return f"terminate {watcher.about}"


def _begin(key: str, plan: TerminationPlan, watcher: TrainingWatcher) -> Termination:
    job = job_progress(watcher.state.totals.progress)
    return Termination(key, plan, watcher.clock.time(), **shared_fields(Termination, watcher.state, job))


class _Terminator:
    """The phases, one method each: it does its action and returns the next state, already saved."""

    def __init__(self, watcher: TrainingWatcher, outbox: Outbox | None, on_event: OnEvent | None) -> None:
        self.watcher, self.outbox, self.on_event = watcher, outbox, on_event
        self._stop_tries = 0

    def run(self, state: Termination) -> Termination:
        phases = {
            "stopping": self.stop,
            "inventory": self.list_checkpoints,
            "uploading": self.upload,
            "destroying": self.destroy,
        }
        state, wait, unreached = self.save(state), FIRST_WAIT, 0.0
        while state.phase != "done":
            try:
                state = self.save(phases[state.phase](state))
                wait, unreached = FIRST_WAIT, 0.0
            except (SettingsError, Recovered) as error:  # asking again cannot help
                if state.phase == "stopping":  # nothing was done, so there is nothing to continue
                    self.save(replace(state, phase="done", errors=(error.what,), ended_at=self.watcher.clock.time()))
                raise
            except LeaseLost as error:
                self.save(self._leave(state, error))
                raise
            except TrainingMonitorError as error:
                self.tell("unreachable", f"{state.phase}: {error}")
                if unreached >= state.plan.unreachable_seconds:
                    state = self.save(self._give_up(state, error))
                    wait, unreached = FIRST_WAIT, 0.0
                    continue
                self.watcher.clock.sleep(wait)
                wait, unreached = min(2 * wait, LONGEST_WAIT), unreached + wait
        return state

    def stop(self, state: Termination) -> Termination:
        if state.plan.is_hang and state.explanation is None and state.plan.roll_call_timeout:
            return self.explain(state)
        ago = self.watcher.clock.time() - (state.hung_at or 0.0)
        if state.plan.is_hang and not 0.0 <= ago < STOPS_WITHIN:
            self._check_hang(state)  # and not soon again: what it does after a signal says nothing
            return replace(state, hung_at=self.watcher.clock.time())
        how = f"SIGTERM to its remaining processes, then SIGKILL after {self.watcher.config.stop_grace:g} s"
        self.tell("stopping", f"stopping {self.watcher.job.label}: {how}")
        left = self._stop(state)
        if left:
            self._stop_tries += 1
            self.tell("detected", f"SIGKILL did not terminate {', '.join(left)}")
            if self._stop_tries < STOP_TRIES:
                self.watcher.clock.sleep(FIRST_WAIT)
                return replace(state, left=left)
        else:
            self.tell("stopped", f"no process of {self.watcher.job.label} is left")
        return replace(state, phase="inventory", stopped=not left, left=left)

    def _check_hang(self, state: Termination) -> None:
        """Look again: since the stall was seen, the ranks were inspected, or the target was unreachable for long."""
        with suppress(JobNotFound):
            status = self.watcher.poll()
            if state.hung_at is not None and status.is_running is False:
                return  # it obeyed, though the reply was lost
            reason = reason_to_end(Told(stalled_at=0.0), status, self.watcher.config)  # its grace period is over
            if reason is None or status.generation != state.generation:
                said = status.verdict.reason if status.verdict else "it is running"
                raise Recovered(f"{self.watcher.job.label} no longer hangs, so it is not terminated: {said}")

    def explain(self, state: Termination) -> Termination:
        """Take the roll call of a run that hangs, before it is ended."""
        watcher, timeout = self.watcher, state.plan.roll_call_timeout
        text = f"inspecting all ranks for at most {format_duration(timeout)} before stopping the training"
        self.tell("stopping", text)
        kept = explain_before_end(watcher.reached(), watcher.job, watcher.store, timeout=timeout)
        self.tell("explained", kept.text)
        return replace(state, explanation=kept.text, roll_call=kept.folder)

    def _stop(self, state: Termination) -> tuple[str, ...]:
        """Return what survived SIGKILL. A process that has replaced ours since then is not touched."""
        try:
            return tuple(self.watcher.stop_run(self.watcher.config.stop_grace, state.identity))
        except JobNotFound:
            self.tell("stopped", f"{self.watcher.job.label} has already ended")
            return ()

    def list_checkpoints(self, state: Termination) -> Termination:
        found = self.watcher.get_checkpoint_listing() if self.watcher.job.output_dir else CheckpointListing(())
        state = replace(state, phase="uploading", checkpoints=found.checkpoints, unlisted_checkpoints=found.unlisted)
        newest = state.checkpoint
        size = (
            f"; the newest complete one is at step {newest.step} ({format_bytes(newest.size_bytes)})" if newest else ""
        )
        self.tell("progress", f"{plural(found.count, 'checkpoint')}{size}")
        if state.plan.end == "terminated":
            upload, reason = bool(newest and state.plan.upload_to), state.plan.reason
            about = self.about(state)
            self.post(templates.terminated(about, reason=reason, upload=upload, explanation=state.explanation))
        return state

    def upload(self, state: Termination) -> Termination:
        """Try the next destination; go on after the last one, or after the first that succeeds."""
        checkpoint, tried = state.checkpoint, len(state.uploads)
        over = replace(state, phase="destroying")
        if state.is_saved or tried == len(state.plan.upload_to):
            return over
        destination = state.plan.upload_to[tried]
        if checkpoint is None:
            why = CheckpointListing(state.checkpoints, state.unlisted_checkpoints).why_none_is_complete
            report = UploadReport(destination.partition("?")[0], False, error=why)
        else:
            self.tell("progress", f"uploading {checkpoint.path} to {destination.partition('?')[0]}")
            report = self._upload(state, checkpoint, destination)
        self._tell_upload(state, report)
        return replace(state, uploads=(*state.uploads, report))

    def _upload(self, state: Termination, checkpoint: Checkpoint, destination: str) -> UploadReport:
        try:
            return upload_checkpoint(
                self.watcher.reached().target,
                checkpoint.path,
                destination,
                incomplete=None if state.plan.end == "finished" else self._incomplete(state),
                pid=state.identity.pid if state.identity else None,
                on_progress=lambda text: self.tell("progress", text),
                transport=self.watcher.site.transport,
                clock=self.watcher.clock,
            )
        except SettingsError as error:  # such as missing credentials: the next destination may have them
            return UploadReport(destination.partition("?")[0], False, error=error.what)

    def _incomplete(self, state: Termination) -> IncompleteInfo:
        checkpoint = state.checkpoint
        completed = state.step if checkpoint is None else checkpoint.step
        return IncompleteInfo(
            target_steps=state.total_steps, completed_steps=completed, reason=state.plan.reason, tags=state.plan.tags
        )

    def _tell_upload(self, state: Termination, report: UploadReport) -> None:
        if report.verified:
            self.tell("reached", f"uploaded to {report.destination}: {plural(len(report.files), 'file')} verified")
            done = templates.upload_finished(self.about(state), destination=report.destination, files=len(report.files))
            self.post(done)
        else:
            self.tell("detected", f"upload to {report.destination} failed: {report.error}")

    def destroy(self, state: Termination) -> Termination:
        self._tell_undone(state)
        target, plan = self.watcher.target, state.plan
        ended = replace(state, phase="done", ended_at=self.watcher.clock.time())
        if target.instance_id is None:
            return ended
        if state.gone is None and not plan.destroy:
            return self._keep(ended, "destroying the instance was not requested")
        may_destroy = state.is_saved or plan.destroy_without_upload
        if state.gone is None and not may_destroy and self._is_there(target.name):
            why = state.uploads[-1].error if state.uploads else "no upload was requested"
            why = state.errors[-1] if state.errors else why
            return self._keep(ended, f"its checkpoint was not saved elsewhere: {why}")
        if state.gone is None and may_destroy:
            self.tell("stopping", f"destroying {target}")
            try:
                state = replace(state, destroyed=self._destroy(target.name) or None)
            except CommandFailed as error:
                return self._keep(ended, error.what)
        state = self.save(replace(state, gone=True))  # the service acknowledges only once
        self.tell("stopped", f"{target} is {'destroyed' if state.destroyed else 'gone'}")
        notice = templates.instance_destroyed if state.destroyed else templates.instance_gone
        self.post(notice(self.about(state)))
        return replace(state, phase="done", ended_at=self.watcher.clock.time())

    def _is_there(self, number: str) -> bool:
        return find_instance(number, transport=self.watcher.site.transport, clock=self.watcher.clock) is not None

    def _destroy(self, number: str) -> bool:
        """Verify that the instance is gone; return whether the service acknowledged our request. Raises LeaseLost."""
        if self.watcher.claiming:
            with suppress(InstanceNotFound):  # it may be gone already
                self.watcher.claiming.confirm()
        return destroy_instance(
            number,
            on_event=lambda text: self.tell("waiting", text),
            store=self.watcher.store,
            transport=self.watcher.site.transport,
            clock=self.watcher.clock,
        ).acknowledged

    def _tell_undone(self, state: Termination) -> None:
        """Report what was planned and not done: before the end, and once."""
        if not state.stopped:
            reason = "; ".join(state.errors) or f"SIGKILL did not terminate {', '.join(state.left)}"
            self.post(templates.not_terminated(self.about(state), reason=reason))
        if state.plan.upload_to and not state.is_saved:
            failures = [f"{each.destination}: {each.error}" for each in state.uploads]
            reason = "; ".join([*failures, *state.errors]) or "the upload was not attempted"
            destination = ", ".join(each.partition("?")[0] for each in state.plan.upload_to)
            self.post(templates.upload_failed(self.about(state), destination=destination, reason=reason))

    def _keep(self, state: Termination, reason: str) -> Termination:
        self.tell("refused", f"{self.watcher.target} was not destroyed and still costs money: {reason}")
        price = self.watcher.config.cost_per_hour
        self.post(templates.instance_kept(self.about(state), reason=reason, cost_per_hour=price))
        return replace(state, destroyed=False, gone=False, kept=reason)

    def _give_up(self, state: Termination, error: TrainingMonitorError) -> Termination:
        """Return the next state after the target was unreachable for too long; nothing is concluded from that."""
        waited = format_duration(state.plan.unreachable_seconds)
        state = replace(state, errors=(*state.errors, f"{state.phase}: gave up after {waited}: {error.what}"))
        if state.phase != "destroying":
            return replace(state, phase="destroying")
        ended = replace(state, phase="done", ended_at=self.watcher.clock.time())
        reason = "the instance may be gone, or another supervisor may have taken over the training"
        return self._keep(ended, f"{reason}: {error.what}")

    def _leave(self, state: Termination, error: LeaseLost) -> Termination:
        """Leave what is not done yet to the other supervisor that has the run."""
        state = replace(state, phase="done", errors=(*state.errors, error.what), ended_at=self.watcher.clock.time())
        if self.watcher.target.instance_id is not None:
            state = replace(state, destroyed=False, gone=False, kept=error.what)
        return state

    def save(self, state: Termination) -> Termination:
        self.watcher.store.save_run(state.key, state, finished=state.phase == "done")
        return state

    def about(self, state: Termination) -> About:
        saved = state.checkpoint.step if state.checkpoint else None
        target, job = str(self.watcher.target), self.watcher.job.label
        return About(job, checkpoint_step=saved, instance=target, generation=state.generation)

    def post(self, notice: Notice) -> None:
        if self.outbox:
            self.outbox.post(self.watcher.about_this(notice))

    def tell(self, kind: str, text: str) -> None:
        get_logger().log(10 if kind == "progress" else 20, "%s: %s", self.watcher.job.label, text)
        if self.on_event:
            self.on_event(Event(kind, text, self.watcher.job.job_id))
