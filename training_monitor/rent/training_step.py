"""The training on its machine: supervise it, follow its log, and copy its checkpoints here meanwhile.

The supervisor restarts what fails or hangs. It cannot move to another machine: that is decided here, when the machine
is gone, stopped, or unreachable for a long time although it is listed as running.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from training_monitor.checkpoints.checkpoints import get_checkpoint_listing, newest_complete
from training_monitor.core.errors import AlreadySupervised, CommandError, JobNotFound, LeaseLost, TrainingMonitorError
from training_monitor.core.fields import shared_fields
from training_monitor.core.models import Checkpoint, Event, RunOutcome
from training_monitor.core.units import format_duration
from training_monitor.core.values import LogUpdate, TrainingStatus, WatchedJob
from training_monitor.logs.job_progress import job_progress
from training_monitor.rent.instance_steps import give_up_instance, tell_copying
from training_monitor.rent.job_context import JobContext
from training_monitor.rent.sync import SyncReport, fetch_folder
from training_monitor.supervision.restart_notices import RestartNotices
from training_monitor.supervision.run_state import RunState
from training_monitor.supervision.supervisor import Supervisor
from training_monitor.supervision.watch_state import decide_alerts
from training_monitor.supervision.watcher import TrainingWatcher
from training_monitor.targets.asking import Site
from training_monitor.vast.cost import seconds_left
from training_monitor.vast.instances import find_instance
from training_monitor.vast.rentals import note_end, record_life
from training_monitor.vast.training_request import JobState, TrainingRequest, resolve_env
from training_monitor.verdict.limits import WatchConfig
from training_monitor.verdict.restart import RestartPolicy

KEPT_HERE = 2  # checkpoints of a job on this machine
AI_TOOLKIT = 'cd "${AI_TOOLKIT:-/app/ai-toolkit}" && exec python3 run.py '
_STOPPED = ("exited", "stopped")


class _JobSupervisor(Supervisor):
    """A supervisor that resolves the job's variables only to start it: what is saved holds their names."""

    plain: Mapping[str, Any] = {}  # the configuration as saved

    def start(self, run: RunState) -> RunState:
        env = resolve_env(self.plain.get("env") or {}, os.environ)
        return super().start(replace(run, config={**self.plain, "env": env}))

    def save(self, run: RunState) -> RunState:
        return super().save(replace(run, config=self.plain))


class _JobWatcher(TrainingWatcher):
    """A watcher that uses its supervisor's address: the log can be read even while the market does not answer."""

    supervisor: Supervisor

    def reached(self) -> Site:
        return self.supervisor.site


class TrainingStep:
    """The training of one job on one machine; a worker that takes over creates a new one, which resumes."""

    def __init__(self, ctx: JobContext) -> None:
        self.ctx, service = ctx, ctx.service
        policy = RestartPolicy(**shared_fields(RestartPolicy, service.config))
        self._notices = None
        if service.outbox:
            machine = f"vast://{ctx.job.work.instance_id}"
            self._notices = RestartNotices(service.outbox, machine, ctx.job.id, about=ctx.about, command=ctx.command)
        given = (service.store, ctx.site(), policy, self._show)
        self._supervisor = _JobSupervisor(*given, on_look=ctx.lookout.note)
        self._watcher: _JobWatcher | None = None
        self._ended: Event | None = None
        self._saved_at: float | None = None
        self._closing = ExitStack()
        self._closing.callback(self._supervisor.close)
        try:
            self._run = self._open()
        except BaseException:
            self._closing.close()
            raise

    def close(self) -> None:
        """Stop supervising and following; the training goes on."""
        self._unfollow()
        self._closing.close()

    def _open(self) -> RunState:
        """Resume the training from the store, or begin it."""
        ctx, store = self.ctx, self.ctx.service.store
        name, target = ctx.run_name, self._supervisor.site.target
        key = f"{target} {name}"
        if ended := store.load_run(key, RunState, finished=True):
            return ended
        self._closing.enter_context(store.hold(key))
        request, env = ctx.job.request, {"DATASET": ctx.dataset_dir, "OUTPUT": ctx.output_dir, **ctx.job.request.env}
        config = {"command": training_command(request, ctx.folder), "env": env, "working_dir": ctx.folder}
        self._supervisor.plain = config
        new = RunState(key, str(target), name, ctx.checkpoint_dir, ctx.clock.time(), config=config)
        kept = store.load_run(key, RunState)
        return self._supervisor.go_on(kept, new) if kept else self._supervisor.begin(new, None)

    # ------------------------------------------------------------ one look

    def step(self) -> None:
        """Look once and act on it; leaves the job in another state when the training is over."""
        ctx = self.ctx
        if self._run.phase != "done":
            self._supervise()
        if self._run.phase == "done":
            self._end()
            return
        if self._run.phase == "waiting" and (reason := self._reason_to_move()):
            self._try_to_keep_rest()
            save_what_there_is(ctx)
            give_up_instance(ctx, reason)
            return
        if self._supervisor.reach.is_lost:
            self._look_for_instance()
            return
        ctx.answered()
        status = self._poll()
        if status:
            self._note(status)
            self._save_newest(status.checkpoints or ())

    def _supervise(self) -> None:
        """Do one step of the supervisor. Raises AlreadySupervised, also where another one took the training over."""
        try:
            self._run = self._supervisor.step(self._run)
        except LeaseLost as error:  # the lease of the claim on the machine, not of the job in the queue
            raise AlreadySupervised(error.what, hint=error.hint) from error

    def _poll(self) -> TrainingStatus | None:
        """Return the watcher's status of the job that runs now."""
        job_id = self._run.job_id
        if job_id is None or self._run.phase != "watching":
            return None
        if self._watcher is None or self._watcher.job.job_id != job_id:
            if len(self._run.attempts) > 1:
                self._keep_rest(self._run.attempts[-2]["job_id"])
            self._watcher = self._follow(job_id)
        try:
            return self._watcher.poll()
        except TrainingMonitorError:
            return None  # the supervisor handles it

    # ------------------------------------------------------------ its log

    def _follow(self, job_id: str) -> _JobWatcher:
        """Append the log of one attempt to the local copy, resuming where that ends."""
        ctx, service = self.ctx, self.ctx.service
        watcher = _JobWatcher(
            self._supervisor.site.target,
            WatchedJob(job_id=job_id, output_dir=ctx.checkpoint_dir, name=ctx.job.id),
            WatchConfig(poll_interval=service.config.check_interval),
            store=service.store,
            **service.ways,
        )
        watcher.supervisor = self._supervisor
        watcher.follow(self._keep_line, polls=False)
        return watcher

    def _unfollow(self) -> None:
        if self._watcher:
            self._watcher.stop_streaming()
            self._watcher = None

    def _keep_rest(self, job_id: str) -> None:
        """Read the rest of the log of an attempt that has ended, and stop following it.

        Its last lines say why it ended, and may come when the watcher is no longer following. An error that the machine
        answered is reported and ignored.

        Raises:
            CommandError: the machine could not be asked; retry.
        """
        if self._watcher is None or self._watcher.job.job_id != job_id:
            self._unfollow()
            self._watcher = self._follow(job_id)
        try:
            self._watcher.poll()
        except JobNotFound:
            pass  # it never started, or its machine forgot it: there is no log
        except TrainingMonitorError as error:
            if isinstance(error, CommandError) and not error.answered:
                raise
            self.ctx.warn(f"the end of the log of {job_id} was not saved: {error.what}")
        self._unfollow()

    def _try_to_keep_rest(self) -> None:
        """Read the rest of the last attempt's log, best effort."""
        try:
            if self._run.attempts:
                self._keep_rest(self._run.attempts[-1]["job_id"])
        except CommandError as error:
            self._unfollow()
            self.ctx.tell("detected", f"the end of the log could not be read from the machine: {error}")

    def _keep_line(self, update: LogUpdate) -> None:
        """Append a line to the local log, as the machine will be destroyed."""
        os.makedirs(self.ctx.local_folder, mode=0o700, exist_ok=True)
        with open(self.ctx.local_log, "a", encoding="utf-8", errors="replace") as file:
            file.write(update.line + "\n")
        step = job_progress(update.progress).step
        if self.ctx.service.on_line and not (
            step is not None and self._watcher and self._is_older(step, self._place())
        ):
            self.ctx.service.on_line(update)

    def _note(self, status: TrainingStatus) -> None:
        """Save the progress, and send the notices due."""
        assert self._watcher
        ctx, job, place = self.ctx, job_progress(status.progress), self._place()
        if job.step is not None and job.step != ctx.job.work.step and not self._is_older(job.step, place):
            total = job.total_steps or ctx.job.work.total_steps
            ctx.note(progressed=True, step=job.step, total_steps=total, step_place=place)
        told = self._watcher.state.alerts
        told, notices = decide_alerts(told, status, self._watcher.config, ctx.job.id, ends=False)
        for notice in notices:
            ctx.post(notice)
        self._watcher.save_alerts(told)

    def _place(self) -> tuple[str, int, int]:
        """Return how far the log was read: the job, and the file and the position in it."""
        assert self._watcher
        cursor = self._watcher.state.cursor
        return self._watcher.job.job_id or "", cursor.inode if cursor else 0, cursor.offset if cursor else 0

    def _is_older(self, step: int, place: tuple[str, int, int]) -> bool:
        """Return whether a lower step comes from a part of the log that was read before: a connection was lost.

        A training that went back to a checkpoint prints its lower step further on, or in the log of another attempt.
        """
        work = self.ctx.job.work
        if work.step is None or step >= work.step or work.step_place is None:
            return False
        return place[:2] == work.step_place[:2] and place[2] <= work.step_place[2]

    def _show(self, event: Event) -> None:
        """Report an event as one of the job; the end of the training is reported after the rest of its log."""
        if event.outcome is not None:
            self._ended = event
            return
        if self._notices:  # the end of the job has its own notice
            self._notices.show(event)
        self._tell(event)

    def _tell(self, event: Event) -> None:
        if self.ctx.service.on_event:
            self.ctx.service.on_event(replace(event, job_id=self.ctx.job.id))

    def _tell_ended(self) -> None:
        if self._ended:
            self._tell(self._ended)
            self._ended = None

    # ------------------------------------------------------------ its checkpoints

    def _save_newest(self, checkpoints: tuple[Checkpoint, ...]) -> None:
        """Copy the newest complete checkpoint here from time to time, for another machine to resume from."""
        newest, now = newest_complete(checkpoints), self.ctx.clock.monotonic()
        due = self._saved_at is None or now - self._saved_at >= self.ctx.service.config.save_interval
        if newest is None or not due or newest.step <= (self.ctx.job.work.saved_step or -1):
            return
        try:
            save_checkpoint(self.ctx, newest)
        except LeaseLost:
            raise
        except (TrainingMonitorError, OSError) as error:
            self.ctx.tell("detected", f"{newest.path} could not be copied here: {error}")
        self._saved_at = self.ctx.clock.monotonic()

    # ------------------------------------------------------------ endings

    def _end(self) -> None:
        run, ctx = self._run, self.ctx
        if run.success:
            self._supervisor.move(ctx.target())  # its address is looked up again if it did not answer
            self._keep_rest(run.attempts[-1]["job_id"])
            self._tell_ended()
            ctx.answered()
            step = run.attempts[-1]["final_step"]
            ctx.go(JobState.UPLOADING, progressed=True, step=step or ctx.job.work.step)
            return
        self._try_to_keep_rest()
        self._tell_ended()
        outcome = JobState.CANCELLED if run.outcome is RunOutcome.STOPPED else JobState.FAILED
        ctx.end(outcome, run.reason or "the training ended")

    def _reason_to_move(self) -> str | None:
        """Return why the next attempt should run on another machine, if the job may have one."""
        failure = self._run.attempts[-1]["failure"]
        may_move = self.ctx.job.work.attempt < self.ctx.job.request.max_instances
        if not may_move or failure is None or failure["action"] != "restart_elsewhere":
            return None
        return f"{failure['category']}: {failure['evidence']}"

    def _look_for_instance(self) -> None:
        """Ask the service about a machine that does not answer, and give it up or update its address."""
        ctx = self.ctx
        if reason := find_lost(ctx):
            give_up_instance(ctx, reason)
            return
        ctx.forget_address()
        try:
            self._supervisor.move(ctx.target())
        except TrainingMonitorError as error:
            ctx.tell("progress", f"its address is unknown: {error.what}")


def find_lost(ctx: JobContext) -> str | None:
    """Return why an unresponsive machine is lost; None while it may come back, or if that is unknown.

    It is gone; or it was stopped, seen twice; or it has been silent for `unreachable_after` while the service answered.
    """
    now, asked_at, number = ctx.clock.monotonic(), ctx.clock.time(), ctx.job.work.instance_id
    try:
        row = find_instance(str(number), **ctx.ways)
    except TrainingMonitorError:
        ctx.looked_at = None  # a failed request does not count as silence
        return None
    if row is None:
        if number is not None:
            record_life(ctx.service.store, number, note_end)
        return "it no longer exists"
    ctx.saw(row, asked_at)
    status = row.get("actual_status")
    if status in _STOPPED and ctx.seen_status == status:
        return f"it is {status} (it was outbid, or someone stopped it)"
    ctx.seen_status = str(status)
    ctx.silent += 0.0 if ctx.looked_at is None else now - ctx.looked_at
    ctx.looked_at = now
    if ctx.silent >= ctx.service.config.unreachable_after:
        return f"vast.ai reports it as {status}, but it could not be reached for {format_duration(ctx.silent)}"
    return None


def training_command(request: TrainingRequest, folder: str) -> str:
    """Return the sh command line that trains."""
    if request.command is not None:
        return request.command
    return AI_TOOLKIT + f"'{folder}/config/training.yaml'"


def save_checkpoint(ctx: JobContext, checkpoint: Checkpoint) -> None:
    """Copy a checkpoint to this machine, verified, and delete older ones. Raises CommandError."""
    folder = os.path.join(ctx.local_folder, "checkpoints")
    if path := copy_here(ctx, checkpoint, folder, "checkpoint"):
        _forget_older(folder, os.path.basename(path))


def copy_here(ctx: JobContext, checkpoint: Checkpoint, folder: str, what: str) -> str | None:
    """Copy a checkpoint into a folder here, record it, and return its path; None if it has no files."""
    parent, _, name = checkpoint.path.rstrip("/").rpartition("/")
    if not fetch_here(ctx, name, parent, folder, only=[name]).files:
        return None
    path = os.path.join(folder, name)
    ctx.note(progressed=True, saved_step=checkpoint.step, saved_path=path)
    ctx.tell("reached", f"{what} of step {checkpoint.step} copied to {path}")
    return path


def fetch_here(ctx: JobContext, what: str, remote: str, local: str, only: list[str] | None = None) -> SyncReport:
    """Copy from the machine to this one, until a limit of the job but at least for the grace period."""
    return fetch_folder(
        ctx.target(),
        remote,
        local,
        only=only,
        on_progress=lambda seen: tell_copying(ctx, what, seen),
        timeout=max(ctx.service.config.orphan_grace, seconds_left(ctx.job, ctx.clock.time())),
        **ctx.ways,
    )


def _forget_older(folder: str, newest: str) -> None:
    others = [os.path.join(folder, name) for name in os.listdir(folder) if name != newest]
    for path in sorted(others, key=os.path.getmtime)[: max(0, len(others) - (KEPT_HERE - 1))]:
        shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)


def save_what_there_is(ctx: JobContext) -> None:
    """Copy the machine's newest checkpoint here, best effort."""
    try:
        newest = newest_on_instance(ctx)
        if newest and newest.step > (ctx.job.work.saved_step or -1):
            save_checkpoint(ctx, newest)
    except LeaseLost:
        raise
    except (TrainingMonitorError, OSError) as error:
        ctx.tell("detected", f"nothing more could be saved from the machine: {error}")


def newest_on_instance(ctx: JobContext) -> Checkpoint | None:
    """Return the newest complete checkpoint on the machine.

    Raises TrainingMonitorError where completeness is unknown; CommandError.
    """
    found = get_checkpoint_listing(ctx.checkpoint_dir, ctx.target(), transport=ctx.service.transport)
    if found and found.unknown and found.newest_complete is None:
        raise TrainingMonitorError(f"{ctx.checkpoint_dir}: {found.why_none_is_complete}")
    return found.newest_complete if found else None
