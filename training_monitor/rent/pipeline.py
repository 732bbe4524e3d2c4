"""The way of one job that is held: one step after the other, each saved before the next begins, and its failures.

The states are those of `JobState`; the steps are in instance_steps.py, training_step.py and finishing_steps.py. An
unfinished job resumes in its state: every step is idempotent. Failing to ask is not a failure of the job: it is
retried, and only a limit of the job ends that. A worker takes a job all the way, a sweep only the way out.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from training_monitor.core.errors import (
    AccessDenied,
    AlreadySupervised,
    CommandFailed,
    CommandTimedOut,
    InstanceNotFound,
    InsufficientCredits,
    LeaseLost,
    NoOffers,
    SettingsError,
    TargetUnreachable,
    TrainingMonitorError,
)
from training_monitor.core.logger import get_logger
from training_monitor.core.units import format_duration
from training_monitor.rent import finishing_steps, instance_steps
from training_monitor.rent.job_context import Interrupted, JobContext, Lease, Service
from training_monitor.rent.training_step import TrainingStep, find_lost
from training_monitor.vast.training_request import JobState, QueuedJob

LONGEST_WAIT = 60.0
_WITHOUT_INSTANCE = (JobState.QUEUED, JobState.CHARGING, JobState.RENTING)
_MAY_LOSE_INSTANCE = (JobState.SYNCING, JobState.CHECKING, JobState.TRAINING, JobState.UPLOADING, JobState.SAMPLING)
_ENDING = (JobState.DESTROYING, JobState.SETTLING, JobState.NOTIFYING)
_SAVED = (JobState.SAMPLING, JobState.REGISTERING)
_HOPELESS = (SettingsError, InsufficientCredits)
_NO_ANSWER = (TargetUnreachable, CommandTimedOut, InstanceNotFound, AccessDenied)  # AccessDenied: also by its sshd
_STEPS: dict[JobState, Callable[[JobContext], None]] = {
    JobState.CHARGING: instance_steps.charge,
    JobState.RENTING: instance_steps.rent,
    JobState.PREPARING: instance_steps.prepare,
    JobState.SYNCING: instance_steps.sync,
    JobState.CHECKING: instance_steps.check,
    JobState.REPLACING: instance_steps.replace_instance,
    JobState.UPLOADING: finishing_steps.upload,
    JobState.SAMPLING: finishing_steps.sample,
    JobState.REGISTERING: finishing_steps.register,
    JobState.DESTROYING: finishing_steps.leave_instance,
    JobState.SETTLING: finishing_steps.settle,
    JobState.NOTIFYING: finishing_steps.notify,
}


def run_job(service: Service, job: QueuedJob, *, only_ends: bool = False) -> QueuedJob:
    """Run a job that the caller has claimed, from its current state on; with `only_ends`, only while it is ending.

    Returns:
        The job: at its end, or where it was when the lease was lost or the caller was stopped.

    Raises:
        TrainingMonitorError: a step failed, which is not retried with `only_ends`; the job stays where it was.
    """
    with Lease(service, job) as lease, closing(_Pipeline(JobContext(service, job, lease), only_ends)) as pipeline:
        return pipeline.run()


class _Pipeline:
    def __init__(self, ctx: JobContext, only_ends: bool) -> None:
        self.ctx, self._only_ends = ctx, only_ends
        self._training: TrainingStep | None = None
        self._wait = 0.0

    def close(self) -> None:
        if self._training:
            self._training.close()
            self._training = None

    def run(self) -> QueuedJob:
        ctx = self.ctx
        while not ctx.job.state.is_terminal:
            try:
                self._go_on()
            except Interrupted:
                if ctx.lease.lost or ctx.service.stopping.is_set() or self._only_ends:
                    break
            except LeaseLost as error:
                ctx.tell("detected", error.what)
                break
        return ctx.job

    def _go_on(self) -> None:
        """Do one step, and handle its failure."""
        try:
            if not self._obey_request() and not self._obey_limit():
                self.ctx.check()
                self._act()
            self._wait = 0.0
        except (LeaseLost, Interrupted):
            raise
        except TrainingMonitorError as error:
            self._failed(error)
        except Exception as error:  # for example this machine's disk: the rented machine must not go on costing money
            get_logger().exception("%s: %s failed", self.ctx.job.id, self.ctx.job.state)
            self._failed(TrainingMonitorError(f"{type(error).__name__}: {error}"))

    def _act(self) -> None:
        ctx, state = self.ctx, self.ctx.job.state
        if self._only_ends and state not in _ENDING:
            raise Interrupted
        if state is JobState.QUEUED:
            ctx.go(JobState.CHARGING)
        elif state is JobState.TRAINING:
            self._training = self._training or TrainingStep(ctx)
            self._training.step()
        else:
            _STEPS[state](ctx)
            ctx.answered()
            ctx.lookout.note(None)
        if ctx.job.state is not JobState.TRAINING:
            self.close()

    def _obey_request(self) -> bool:
        """End the job if that was requested."""
        ctx = self.ctx
        if ctx.to_end is None:
            return False
        self.close()
        outcome, reason = ctx.to_end
        is_saved = outcome is JobState.FAILED and ctx.job.state in _SAVED
        ctx.end(JobState.COMPLETED if is_saved else outcome, reason)
        return True

    def _obey_limit(self) -> bool:
        """Send a notice of the limit that the job has reached; end the job if the limit does."""
        ctx, limit = self.ctx, self.ctx.limit
        if limit is None:
            return False
        if limit.ends:
            self.close()
        ctx.post_problem("limit" if limit.ends else "soft_limit", limit.reason, limit.kind)
        if not limit.ends and limit.kind not in ctx.job.work.limits_told:
            ctx.warn(limit.reason)
            ctx.note(limits_told=(*ctx.job.work.limits_told, limit.kind))
        if limit.ends:
            ctx.end(JobState.COMPLETED if ctx.job.state in _SAVED else JobState.FAILED, limit.reason)
        return limit.ends

    # ------------------------------------------------------------ failures

    def _failed(self, error: TrainingMonitorError) -> None:
        """Handle a failed step: end the job, replace the machine, or retry."""
        ctx, state = self.ctx, self.ctx.job.state
        if state not in _ENDING and self._is_hopeless(error, state):
            self.close()
            ctx.end(JobState.FAILED, error.what)
            return
        if isinstance(error, AlreadySupervised):
            self.close()  # its claim is lost; the retry claims it again
        if isinstance(error, _NO_ANSWER) and self._lost():
            return
        self._ask_again(error)

    def _is_hopeless(self, error: TrainingMonitorError, state: JobState) -> bool:
        """Return whether a retry cannot help, or the patience ran out before anything was rented."""
        if isinstance(error, _HOPELESS):
            return True
        if state is JobState.RENTING and isinstance(error, CommandFailed):
            return True  # the service refused
        waited = self.ctx.clock.time() - self.ctx.job.changed_at
        patience = self.ctx.service.config.patience
        return state in _WITHOUT_INSTANCE and waited >= patience

    def _lost(self) -> bool:
        """Handle a lost machine; return whether it is lost."""
        ctx, state = self.ctx, self.ctx.job.state
        if state not in _MAY_LOSE_INSTANCE:
            return False
        reason = find_lost(ctx)
        if reason is None:
            ctx.forget_address()
            return False
        uploaded = [each.destination for each in ctx.job.work.uploads if each.verified]
        if state is JobState.SAMPLING:
            ctx.warn(f"no samples: the machine was lost: {reason}")
            ctx.go(JobState.REGISTERING)
        elif uploaded:
            ctx.go(JobState.SAMPLING, model_url=uploaded[0])
        else:
            self.close()
            instance_steps.give_up_instance(ctx, reason)
        return True

    def _ask_again(self, error: TrainingMonitorError) -> None:
        if self._only_ends:
            raise error
        ctx = self.ctx
        first = ctx.service.config.retry_wait
        self._wait = min(2 * self._wait, LONGEST_WAIT) if self._wait else first
        has_answered = isinstance(error, (NoOffers, AlreadySupervised))
        ctx.lookout.note(None if has_answered else error)
        kind = "waiting" if has_answered else "unreachable"
        ctx.tell(kind, f"{ctx.job.state.value.lower()}: {error}; trying again in {format_duration(self._wait)}")
        if isinstance(error, (NoOffers, AccessDenied, AlreadySupervised)) or ctx.job.state in _ENDING:
            ctx.post_problem("job_waiting", error.what, ctx.job.state.value)
        # ctx.clock would return at once for a job that is to end but could not be saved as ended
        clock = ctx.service.clock if ctx.must_end else ctx.clock
        clock.wait(ctx.service.stopping, self._wait)
