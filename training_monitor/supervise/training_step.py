"""The training on its machine: supervised step by step, followed line by line, its checkpoints copied here meanwhile.

The supervisor restarts what fails or hangs. What it cannot do is to go to another machine: that is decided here, when
the machine is gone, does not run any more, or cannot be reached for long although it is said to run.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from training_monitor.errors import AlreadySupervised, CommandError, JobNotFound, LeaseLost, TrainingMonitorError
from training_monitor.models import Checkpoint, Event, RunOutcome
from training_monitor.policy.job_progress import job_progress
from training_monitor.policy.restart import RestartPolicy, why_none_is_complete
from training_monitor.policy.watch_config import WatchConfig
from training_monitor.probes.checkpoints import get_checkpoint_listing, newest_complete
from training_monitor.renting import JobState, TrainingRequest, resolve_env
from training_monitor.supervise.alerts import Told, decide_alerts
from training_monitor.supervise.job_context import JobContext
from training_monitor.supervise.job_limits import seconds_left
from training_monitor.supervise.machine_steps import give_up_machine, tell_copying
from training_monitor.supervise.restart_notices import RestartNotices
from training_monitor.supervise.run_state import RunState
from training_monitor.supervise.supervisor import Supervisor
from training_monitor.supervise.watcher import TrainingWatcher
from training_monitor.targets.target import Target
from training_monitor.units import format_duration
from training_monitor.vast.instances import find_instance
from training_monitor.vast.sync import SyncReport, fetch_folder
from training_monitor.watching import LogUpdate, TrainingStatus, WatchedJob

KEPT_HERE = 2  # checkpoints of a job on this machine
AI_TOOLKIT = 'cd "${AI_TOOLKIT:-/app/ai-toolkit}" && exec python3 run.py '
_STOPPED = ("exited", "stopped")


class _JobSupervisor(Supervisor):
    """Completes the job's variables only to start it: what is written down has their names."""

    plain: Mapping[str, Any] = {}  # the configuration as it is written down

    def start(self, run: RunState) -> RunState:
        env = resolve_env(self.plain.get("env") or {})
        return super().start(replace(run, config={**self.plain, "env": env}))

    def save(self, run: RunState) -> RunState:
        return super().save(replace(run, config=self.plain))


class _JobWatcher(TrainingWatcher):
    """Reaches the machine where its supervisor does: a log is read also while the market does not answer."""

    supervisor: Supervisor

    def address(self) -> Target:
        return self.supervisor.target


class TrainingStep:
    """The training of one job on one machine; a worker that takes over makes a new one, which goes on."""

    def __init__(self, ctx: JobContext) -> None:
        self.ctx, service = ctx, ctx.service
        config = service.config
        policy = RestartPolicy(
            max_retries=config.max_retries,
            retry_delay=config.retry_delay,
            stagnation_threshold=config.stagnation_threshold,
            check_interval=config.check_interval,
        )
        self._notices = None
        if service.outbox:
            machine = f"vast://{ctx.job.work.instance_id}"
            self._notices = RestartNotices(service.outbox, machine, ctx.job.id, about=ctx.about, command=ctx.command)
        given = (service.store, ctx.target(), policy, service.transport, ctx.clock, self._show)
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
        """Leave the training alone."""
        self._unfollow()
        self._closing.close()

    def _open(self) -> RunState:
        """Go on with what the store knows of this training, or begin it."""
        ctx, store = self.ctx, self.ctx.service.store
        name, target = ctx.run_name, self._supervisor.target
        key = f"{target} {name}"
        if ended := store.load_run(key, finished=True):
            return RunState.from_dict(ended)
        self._closing.enter_context(store.hold(key))
        config = self._supervisor.plain = self._job_config()
        new = RunState(key, str(target), name, ctx.checkpoint_dir, ctx.clock.time(), config=config)
        kept = store.load_run(key)
        return self._supervisor.go_on(RunState.from_dict(kept), new) if kept else self._supervisor.begin(new, None)

    def _job_config(self) -> dict[str, Any]:
        request, ctx = self.ctx.job.request, self.ctx
        env = {"DATASET": ctx.dataset_dir, "OUTPUT": ctx.output_dir, **request.env}
        return {"command": training_command(request, ctx.folder), "env": env, "working_dir": ctx.folder}

    # ------------------------------------------------------------ one look

    def step(self) -> None:
        """Look once and do what follows from it; ends in another state of the job when the training is over."""
        ctx = self.ctx
        if self._run.phase != "done":
            self._supervise()
        if self._run.phase == "done":
            self._end()
            return
        if self._run.phase == "waiting" and (reason := self._reason_to_move()):
            self._try_to_keep_rest()
            save_what_there_is(ctx)
            give_up_machine(ctx, reason)
            return
        if self._supervisor.unreachable_since is not None:
            self._look_for_machine()
            return
        ctx.answered()
        status = self._poll()
        if status:
            self._note(status)
            self._save_newest(status.checkpoints or ())

    def _supervise(self) -> None:
        """One act of the supervisor. Raises AlreadySupervised also where another one took the training over."""
        try:
            self._run = self._supervisor.step(self._run)
        except LeaseLost as error:  # the claim on the machine, and not the job in the queue
            raise AlreadySupervised(error.what, hint=error.hint) from error

    def _poll(self) -> TrainingStatus | None:
        """What the watcher sees of the job that runs now."""
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
            return None  # the supervisor finds out what it means

    # ------------------------------------------------------------ its log

    def _follow(self, job_id: str) -> _JobWatcher:
        """Keep the log of one attempt line by line, from where it is kept already."""
        ctx, service = self.ctx, self.ctx.service
        watcher = _JobWatcher(
            self._supervisor.target,
            WatchedJob(job_id=job_id, output_dir=ctx.checkpoint_dir, name=ctx.job.id),
            WatchConfig(poll_interval=service.config.check_interval),
            store=service.store,
            transport=service.transport,
            clock=service.clock,
        )
        watcher.supervisor = self._supervisor
        watcher.follow(self._keep_line, polls=False)
        return watcher

    def _unfollow(self) -> None:
        if self._watcher:
            self._watcher.stop_streaming()
            self._watcher = None

    def _keep_rest(self, job_id: str) -> None:
        """Keep what the log of an attempt that has ended holds beyond what is kept, and follow it no longer.

        Its last lines say why it ended, and come when nobody may have followed yet. What the machine answers instead
        of them is told, and holds nothing up.

        Raises:
            CommandError: the machine could not be asked: they are there, and to be asked for again.
        """
        if self._watcher is None or self._watcher.job.job_id != job_id:
            self._unfollow()
            self._watcher = self._follow(job_id)
        try:
            self._watcher.poll()
        except JobNotFound:
            pass  # it never began, or its machine forgot it: it has no log
        except TrainingMonitorError as error:
            if isinstance(error, CommandError) and not error.answered:
                raise
            self.ctx.warn(f"the end of the log of {job_id} is not kept: {error.what}")
        self._unfollow()

    def _try_to_keep_rest(self) -> None:
        """The same for the last attempt, where nobody waits for its machine any more."""
        try:
            if self._run.attempts:
                self._keep_rest(self._run.attempts[-1]["job_id"])
        except CommandError as error:
            self._unfollow()
            self.ctx.tell("detected", f"the end of the log could not be read from the machine: {error}")

    def _keep_line(self, update: LogUpdate) -> None:
        """The log of a machine that will be destroyed is kept here."""
        os.makedirs(self.ctx.local_folder, mode=0o700, exist_ok=True)
        with open(os.path.join(self.ctx.local_folder, "training.log"), "a", encoding="utf-8", errors="replace") as file:
            file.write(update.line + "\n")
        if self.ctx.service.on_line:
            self.ctx.service.on_line(update)

    def _note(self, status: TrainingStatus) -> None:
        """Write down the progress, and tell what is to be told of it."""
        ctx, job = self.ctx, job_progress(status.progress)
        if job.step is not None and job.step != ctx.job.work.step:
            ctx.note(progressed=True, step=job.step, total_steps=job.total_steps or ctx.job.work.total_steps)
        assert self._watcher
        told = Told.from_dict(self._watcher.state.alerts)
        told, notices = decide_alerts(told, status, self._watcher.config, ctx.job.id, ends=False)
        for notice in notices:
            ctx.post(notice)
        self._watcher.save_alerts(told.as_dict())

    def _show(self, event: Event) -> None:
        """Tell it as what happened to the job; that its training is over, once the rest of its log was shown."""
        if event.outcome is not None:
            self._ended = event
            return
        if self._notices:  # how the job ends is told at its end
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
        """Copy the newest complete checkpoint here, now and then: it is what another machine can go on from."""
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
            self._supervisor.move(ctx.target())  # looked up anew after it did not answer
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
        """Why the next attempt is better made on another machine, when there may be one."""
        failure = self._run.attempts[-1]["failure"]
        may_move = len(self.ctx.job.work.rentals) < self.ctx.job.request.max_instances
        if not may_move or failure is None or failure["action"] != "restart_elsewhere":
            return None
        return f"{failure['category']}: {failure['evidence']}"

    def _look_for_machine(self) -> None:
        """The machine does not answer: what does the service say of it?"""
        ctx = self.ctx
        if reason := find_lost(ctx):
            give_up_machine(ctx, reason)
            return
        ctx.forget_address()
        try:
            self._supervisor.move(ctx.target())
        except TrainingMonitorError as error:
            ctx.tell("progress", f"its address is not known: {error.what}")


def find_lost(ctx: JobContext) -> str | None:
    """Why the machine, which does not answer, is lost; None while it may come back, or nobody knows.

    It is gone; or it was stopped, seen twice; or it has been silent for `unreachable_after` while the service answered.
    """
    now = ctx.clock.monotonic()
    try:
        row = find_instance(str(ctx.job.work.instance_id), transport=ctx.service.transport, clock=ctx.clock)
    except TrainingMonitorError:
        ctx.looked_at = None  # what could not be asked does not count
        return None
    if row is None:
        return "it is gone"
    status = row.get("actual_status")
    if status in _STOPPED and ctx.seen_status == status:
        return f"it is {status} (outbid, or stopped by somebody)"
    ctx.seen_status = str(status)
    ctx.silent += 0.0 if ctx.looked_at is None else now - ctx.looked_at
    ctx.looked_at = now
    if ctx.silent >= ctx.service.config.unreachable_after:
        return f"it is said to be {status}, and could not be reached for {format_duration(ctx.silent)}"
    return None


def training_command(request: TrainingRequest, folder: str) -> str:
    """The line for sh that trains."""
    if request.command is not None:
        return request.command
    return AI_TOOLKIT + f"'{folder}/config/training.yaml'"


def save_checkpoint(ctx: JobContext, checkpoint: Checkpoint) -> None:
    """Copy a checkpoint to this machine, verified, and let go of older ones. Raises CommandError."""
    folder = os.path.join(ctx.local_folder, "checkpoints")
    parent, _, name = checkpoint.path.rstrip("/").rpartition("/")
    fetch_here(ctx, name, parent, folder, only=[name])
    ctx.note(progressed=True, saved_step=checkpoint.step, saved_path=os.path.join(folder, name))
    ctx.tell("reached", f"checkpoint of step {checkpoint.step} copied to {os.path.join(folder, name)}")
    _forget_older(folder, name)


def fetch_here(ctx: JobContext, what: str, remote: str, local: str, only: list[str] | None = None) -> SyncReport:
    """Copy from the machine to this one until a limit of the job, or for the grace that is given to save."""
    return fetch_folder(
        ctx.target(),
        remote,
        local,
        only=only,
        on_progress=lambda seen: tell_copying(ctx, what, seen),
        timeout=max(ctx.service.config.orphan_grace, seconds_left(ctx.job, ctx.clock.time())),
        transport=ctx.service.transport,
        clock=ctx.clock,
    )


def _forget_older(folder: str, newest: str) -> None:
    others = [os.path.join(folder, name) for name in os.listdir(folder) if name != newest]
    for path in sorted(others, key=os.path.getmtime)[: max(0, len(others) - (KEPT_HERE - 1))]:
        shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)


def save_what_there_is(ctx: JobContext) -> None:
    """Copy the newest checkpoint of the machine here, as far as that is possible."""
    try:
        newest = newest_on_machine(ctx)
        if newest and newest.step > (ctx.job.work.saved_step or -1):
            save_checkpoint(ctx, newest)
    except LeaseLost:
        raise
    except (TrainingMonitorError, OSError) as error:
        ctx.tell("detected", f"nothing more could be saved from the machine: {error}")


def newest_on_machine(ctx: JobContext) -> Checkpoint | None:
    """The newest complete checkpoint that the machine has.

    Raises TrainingMonitorError where nobody knows whether one is complete; CommandError.
    """
    found = get_checkpoint_listing(ctx.checkpoint_dir, ctx.target(), transport=ctx.service.transport)
    if found and found.unknown and found.newest_complete is None:
        raise TrainingMonitorError(f"{ctx.checkpoint_dir}: {why_none_is_complete(found)}")
    return found.newest_complete if found else None
