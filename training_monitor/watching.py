"""Frozen values of watching, telling, saving and ending one training run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from training_monitor.errors import SettingsError
from training_monitor.models import Checkpoint, JobStatus, JobView, Progress
from training_monitor.verdicts import LossAnalysis, StallAnalysis, Verdict

PRIORITIES = ("low", "normal", "high", "urgent")


@dataclass(frozen=True, slots=True)
class WatchedJob:
    """What is watched: a job by its id, files on the target, or a process there.

    `job_id` is a Ray submission id or process:NAME. `log_file` is what the training writes; of `log_paths`, shell
    patterns, the newest file that matches one of them is. At most one of these three is given; `pid` is the training's
    main process, beside a log or alone. `pid_file` holds its pid, `output_dir` its checkpoints. `name` is what people
    read (default: made from the others).
    """

    job_id: str | None = None
    log_file: str | None = None
    pid_file: str | None = None
    output_dir: str | None = None
    name: str | None = None
    log_paths: tuple[str, ...] = ()
    pid: int | None = None

    def __post_init__(self) -> None:
        for key in ("job_id", "log_file", "pid_file", "output_dir", "name"):
            value = getattr(self, key)
            if value is not None and (not value or "\0" in value):
                raise SettingsError(key, value, "a text that is not empty")
        if not isinstance(self.log_paths, tuple) or not all(
            isinstance(path, str) and path and "\0" not in path for path in self.log_paths
        ):
            raise SettingsError("log_paths", self.log_paths, "a tuple of patterns such as /workspace/*/training.log")
        named = (self.job_id is not None) + (self.log_file is not None) + bool(self.log_paths)
        if named > 1 or (named == 0 and self.pid is None):
            raise SettingsError("job", self.job_id, "either a job id, or a log file, or log paths, or a pid")
        if self.job_id is not None and (self.pid_file is not None or self.pid is not None):
            raise SettingsError("pid_file", self.pid_file, "no pid: a job id tells its processes")
        if self.pid is not None and (self.pid_file is not None or self.pid < 2):
            raise SettingsError("pid", self.pid, "the number of a process, without a pid file")

    @property
    def label(self) -> str:
        """What people call it."""
        return self.name or self.job_id or self.log_file or " ".join(self.log_paths) or f"pid {self.pid}"


@dataclass(frozen=True, slots=True)
class NotSeen:
    """What a look did not see, and why: nothing follows from its absence. `count` is None where it is not known."""

    what: str
    why: str
    count: int | None = None

    def __str__(self) -> str:
        return f"{'' if self.count is None else f'{self.count} '}{self.what}: {self.why}"


@dataclass(frozen=True, slots=True)
class JobListing:
    """The jobs of a target, oldest first; where `not_seen` names a kind of them, that kind could not be listed."""

    jobs: tuple[JobView, ...]
    not_seen: tuple[NotSeen, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckpointListing:
    """The checkpoints of a folder, lowest step first. `unlisted` counts others of which only names are known.

    These are older ones, and folders that may hold some and may not be entered.

    `unlooked_step` is the highest step that was not looked at; None when all were.
    """

    checkpoints: tuple[Checkpoint, ...]
    unlisted: int = 0
    unlooked_step: int | None = None

    @property
    def newest_complete(self) -> Checkpoint | None:
        """The complete checkpoint with the highest step; None also while one above it was not looked at."""
        newest = next((each for each in reversed(self.checkpoints) if each.complete), None)
        is_last = newest is None or self.unlooked_step is None or newest.step >= self.unlooked_step
        return newest if is_last else None

    @property
    def count(self) -> int:
        return len(self.checkpoints) + self.unlisted

    @property
    def unknown(self) -> int:
        """How many there are of which nobody knows whether they are complete."""
        return self.unlisted + sum(each.complete is None for each in self.checkpoints)


@dataclass(frozen=True, slots=True)
class TrainingStatus:
    """One look of a watcher; None is not known. `status` is the job's, RUNNING or UNKNOWN where it has none.

    `step` is the job's, also where its log counts within epochs only: then of all epochs that were seen. `checkpoints`
    are those of the output directory, lowest step first, and `unlisted_checkpoints` counts older ones that are there
    too and were not looked at. `totals` are the 15 values of `LogTotals`. `errors` says what could not be asked.
    `verdict` is what `judge` says, `stall` the part of it about stalls. `started_at` and
    `timestamp` are epoch seconds, by the clock of the target and of the watcher.
    """

    is_running: bool | None
    progress: Progress
    stall: StallAnalysis
    checkpoints: tuple[Checkpoint, ...] | None
    recent_output: str
    timestamp: float
    status: JobStatus = JobStatus.UNKNOWN
    exit_code: int | None = None
    message: str | None = None
    loss: LossAnalysis | None = None
    generation: int = 0
    runtime: float | None = None
    totals: Mapping[str, Any] = field(default_factory=dict)
    errors: tuple[str, ...] = ()
    step: int | None = None
    verdict: Verdict | None = None
    unlisted_checkpoints: int = 0


@dataclass(frozen=True, slots=True)
class LogUpdate:
    """One line of a followed log, once, and what is known with it. `timestamp` is when it arrived, epoch seconds."""

    line: str
    progress: Progress
    stall: StallAnalysis
    timestamp: float


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing to tell somebody, in plain words: each channel renders it in its own markup.

    `fields` are labels and values, one line each; `text` follows them. `(job_id, kind, generation)` names what
    happened: the same one is told once. priority: low | normal | high | urgent. `training` is what people call what it
    is about, `target` where that runs, and `command` what to type next, in a shell of `host`, the machine that tells.
    """

    kind: str
    title: str
    fields: tuple[tuple[str, str], ...] = ()
    text: str = ""
    job_id: str | None = None
    generation: int = 0
    priority: str = "normal"
    training: str | None = None
    target: str | None = None
    command: str | None = None
    host: str | None = None

    def __post_init__(self) -> None:
        if self.priority not in PRIORITIES:
            raise SettingsError("priority", self.priority, ", ".join(PRIORITIES))


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of a notice: `channel` is the one that took it, `none` when none did, `suppressed` for a repeat.

    `attempts` counts tries over all channels; `error` says why the channels before it, or all of them, failed.
    """

    channel: str
    success: bool
    attempts: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """One file of a verified upload; `etag` as the storage reports it."""

    path: str
    size_bytes: int
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class UploadReport:
    """What an upload came to; `verified` means that what arrived was listed and is what was sent."""

    destination: str
    verified: bool
    files: tuple[UploadedFile, ...] = ()
    attempts: int = 1
    error: str | None = None


@dataclass(frozen=True, slots=True)
class TerminationPlan:
    """What is done with a run that is to be ended, or has finished.

    `upload_to` are destinations, tried in their order until one has the newest complete checkpoint, see
    `upload_checkpoint`. `destroy` ends the rental of a vast.ai target once that upload was verified, and
    `destroy_without_upload` even when it was not, or none was asked for: what is on its disk is lost then. `end` is
    terminated, or how the run ended by itself: finished | failed | stopped | ended; only the model of one that finished
    is called complete, the README of any other gets `tags`. After `unreachable_seconds` in which the target cannot be
    asked, it is given up.
    """

    reason: str = "Stall detected, grace period expired"
    upload_to: tuple[str, ...] = ()
    end: str = "terminated"
    tags: tuple[str, ...] = ()
    destroy: bool = True
    destroy_without_upload: bool = False
    unreachable_seconds: float = 1800.0


@dataclass(frozen=True, slots=True)
class TerminationReport:
    """What became of a run that was ended, or was saved after it ended. None is not tried, or not known.

    `stopped`: it was seen that nothing of it runs; `left` is what not even SIGKILL ended, as `PID STATE` (D waits for
    a disk or driver). `checkpoint` is the one that was to be uploaded. `destroyed` is True when the service
    acknowledged that it destroyed the instance, False when it was kept, and `kept` says why. `gone`: two answers
    agreed that there is no such instance; without `destroyed`, it went by itself, or the acknowledgement was lost.
    `unlisted_checkpoints` counts older ones beside `checkpoints` that were not looked at. `success`: all that was
    planned was done.
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


@dataclass(frozen=True, slots=True)
class WatchReport:
    """How a watch ended: finished | failed | stopped | ended (nobody can tell how) | lost | terminated."""

    end: str
    reason: str
    status: TrainingStatus | None
    termination: TerminationReport | None = None
