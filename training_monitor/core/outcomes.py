"""What actions are asked to do, and what they did: uploads, the end of a run, watching and waiting for it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from training_monitor.core.errors import SettingsError
from training_monitor.core.fields import PublicValue
from training_monitor.core.models import Checkpoint
from training_monitor.core.values import RollCallSeconds, TrainingStatus, check_roll_call_timeout

PLANNED_ENDS = ("terminated", "finished", "failed", "stopped", "ended")


@dataclass(frozen=True, slots=True, repr=False)
class UploadedFile(PublicValue):
    """One file of a verified upload; `etag` is the value reported by the storage."""

    path: str
    size_bytes: int
    etag: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class UploadReport(PublicValue):
    """The result of an upload. `verified` is true if a listing of the destination matches the files that were sent."""

    destination: str
    verified: bool
    files: tuple[UploadedFile, ...] = ()
    attempts: int = 1
    error: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class TerminationPlan(PublicValue):
    """The actions to take when a run is terminated, or after it has ended on its own.

    `upload_to` lists destinations for the newest complete checkpoint. The destinations are tried in order until an
    upload succeeds (see `upload_checkpoint`). `destroy` ends the rental of a vast.ai target after the upload is
    verified; `destroy_without_upload` ends it even without an upload, so the data on its disk is lost. `end` is
    `terminated`, or how the run ended on its own: finished | failed | stopped | ended. Only the model of a finished run
    is published as complete; the README of any other model gets `tags`. If the target cannot be reached for
    `unreachable_seconds`, the current action is abandoned. `is_hang` means that the run is being terminated because it
    hangs. In that case, all ranks are inspected first (see `explain_training`), for at most `roll_call_timeout`
    seconds. `roll_call_timeout` is at least 5, or 0 to skip the inspection.
    """

    reason: str = "Stall detected, grace period expired"
    upload_to: tuple[str, ...] = ()
    end: str = "terminated"
    tags: tuple[str, ...] = ()
    destroy: bool = True
    destroy_without_upload: bool = False
    unreachable_seconds: float = 1800.0
    roll_call_timeout: RollCallSeconds = 20.0
    is_hang: bool = False

    def __post_init__(self) -> None:
        from training_monitor.core.arguments import check_values

        check_values(self)
        check_roll_call_timeout(self.roll_call_timeout)
        if self.end not in PLANNED_ENDS:
            raise SettingsError("end", self.end, f"one of {', '.join(PLANNED_ENDS)}")
        if not all(map(str.strip, self.upload_to)):
            raise SettingsError("upload_to", self.upload_to, "non-empty destinations")


@dataclass(frozen=True, slots=True, repr=False)
class TerminationReport(PublicValue):
    """The result of terminating a run, or of saving its outputs after it ended.

    None means that an action was not tried, or that its result is unknown. `stopped` is true if no process of the run
    is left; `left` lists the processes that survived SIGKILL as `PID STATE` (in state D, a process is waiting for a
    disk or driver). `checkpoint` is the checkpoint that was chosen for upload. `destroyed` is True if the service
    confirmed that it destroyed the instance. `destroyed` is False if the instance was kept; `kept` then contains the
    reason. `gone` is true if two responses from the service agree that the instance does not exist; if `destroyed` is
    not True in that case, the instance disappeared on its own or the confirmation was lost. `unlisted_checkpoints` is
    the number of older checkpoints that were not inspected and are not in `checkpoints`. `success` is true if every
    planned action was done. `explanation` is the cause of a hang, and `roll_call` is the folder with the data collected
    from the ranks.
    """

    success: bool
    end: str
    reason: str
    stopped: bool | None
    left: tuple[str, ...]
    checkpoints: tuple[Checkpoint, ...]
    checkpoint: Checkpoint | None
    uploads: tuple[UploadReport, ...]
    destroyed: bool | None
    kept: str | None
    duration: float
    errors: tuple[str, ...] = ()
    gone: bool | None = None
    unlisted_checkpoints: int = 0
    explanation: str | None = None
    roll_call: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class WatchReport(PublicValue):
    """How a watch ended: finished | failed | stopped | ended (result unknown) | lost | terminated."""

    end: str
    reason: str
    status: TrainingStatus | None
    termination: TerminationReport | None = None


@dataclass(frozen=True, slots=True, repr=False)
class WaitReport(PublicValue):
    """How a wait ended; None means unknown. The keys have the same names as in `CheckReport` and `JobCheckReport`.

    Attributes:
        outcome: met (one of the conditions holds) | missed (the training ended or stalled first) | unknown (the
            training ended with an unknown result, or has disappeared) | timeout | interrupted (by `stopping`).
        condition: the condition that was met, as passed by the caller.
        conditions: all conditions of the wait.
        reason: one sentence with the evidence.
        target, name, job_id: identify the training; `name` is its display name.
        verdict, state: the results of the last look; unknown while the target cannot be reached.
        step, total_steps, epoch, loss: values from the last look that had them; `epoch` counts completed epochs.
        checkpoint: the new complete checkpoint, if the wait was for one.
        line: the matching line of the log, if the wait was for one.
        seconds: duration of the wait.
        unseen_seconds: the part of `seconds` during which the training could not be observed.
        handle: the name under which the wait is stored.
        errors: the errors of the last look.
        remedies: what to try, according to the last look.
    """

    schema: str
    target: str
    outcome: str
    condition: str | None
    conditions: tuple[str, ...]
    reason: str
    verdict: str
    state: str
    name: str
    job_id: str | None
    step: int | None
    total_steps: int | None
    epoch: float | None
    loss: float | None
    checkpoint: Checkpoint | None
    line: str | None
    seconds: float
    unseen_seconds: float
    handle: str
    errors: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
