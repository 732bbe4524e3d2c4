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
    """One file of a verified upload; `etag` as the storage reports it."""

    path: str
    size_bytes: int
    etag: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class UploadReport(PublicValue):
    """The result of an upload; `verified` means that the destination was listed and matches what was sent."""

    destination: str
    verified: bool
    files: tuple[UploadedFile, ...] = ()
    attempts: int = 1
    error: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class TerminationPlan(PublicValue):
    """What to do with a run that is to be ended or has finished.

    `upload_to` are destinations, tried in order until one has the newest complete checkpoint (see `upload_checkpoint`).
    `destroy` ends the rental of a vast.ai target once that upload is verified; `destroy_without_upload` does so even
    without one, which loses what is on its disk. `end` is terminated, or how the run ended by itself: finished | failed
    | stopped | ended; only the model of a finished run is called complete, the README of any other gets `tags`. A
    target that cannot be reached for `unreachable_seconds` is given up. `is_hang`: it is ended because it hangs, after
    a roll call (see `explain_training`) of at most `roll_call_timeout` seconds, which are at least 5; 0: none is taken.
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
            raise SettingsError("upload_to", self.upload_to, "destinations that are not empty")


@dataclass(frozen=True, slots=True, repr=False)
class TerminationReport(PublicValue):
    """The result of ending a run, or of saving it after it ended. None: not tried, or unknown.

    `stopped`: no process of it is left; `left` lists what not even SIGKILL ended, as `PID STATE` (D waits for a disk or
    driver). `checkpoint` is the one to upload. `destroyed` is True when the service acknowledged that it destroyed the
    instance, False when the instance was kept, and `kept` says why. `gone`: two answers agree that there is no such
    instance; without `destroyed`, it went by itself or the acknowledgement was lost. `unlisted_checkpoints` counts
    older ones besides `checkpoints` that were not inspected. `success`: everything planned was done. `explanation`
    says why a run that hung did so, `roll_call` is the folder with all that was seen of its ranks.
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
    """How a watch ended: finished | failed | stopped | ended (unknown how) | lost | terminated."""

    end: str
    reason: str
    status: TrainingStatus | None
    termination: TerminationReport | None = None


@dataclass(frozen=True, slots=True, repr=False)
class WaitReport(PublicValue):
    """How a wait ended; None is unknown. The names are those of `CheckReport` and `JobCheckReport`.

    Attributes:
        outcome: met (a condition that was waited for holds) | missed (the training ended or stalled without it) |
            unknown (it ended and nobody knows how, or is there no more) | timeout | interrupted (by `stopping`).
        condition: the one that holds, as it was given. conditions: all that were waited for.
        reason: one sentence with the evidence.
        target, name, job_id: of the training; `name` is its display name.
        verdict, state: of the last look; unknown while the target cannot be asked.
        step, total_steps, epoch, loss: of the last look that told them; epoch counts epochs done.
        checkpoint: the new complete one that was waited for. line: the line of the log that was waited for.
        seconds: from the beginning of the wait to its end. unseen_seconds: for how long of these it could not be seen.
        handle: the name under which the wait is kept.
        errors: what could not be read, as of the last look.
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
