"""Frozen values that travel between the rooms: questions and answers, observations, decisions. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeVar

from training_monitor.core.errors import SettingsError, TrainingMonitorError
from training_monitor.core.fields import PublicValue
from training_monitor.core.results import PodState

T = TypeVar("T")


class JobStatus(str, Enum):
    """The status of a job: Ray's own states, plus UNKNOWN if the status could not be read.

        PENDING -> RUNNING -> SUCCEEDED | FAILED | STOPPED

    STOPPED means that a person stopped the job. A job that a person stopped is never restarted.
    """

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"

    @classmethod
    def _missing_(cls, value: object) -> JobStatus:
        raise SettingsError("status", value, f"one of {', '.join(cls)}")

    @property
    def is_terminal(self) -> bool:
        return self in (JobStatus.STOPPED, JobStatus.SUCCEEDED, JobStatus.FAILED)

    def __str__(self) -> str:
        return self.value


class RunOutcome(str, Enum):
    """How a supervised run ended. The reason in its report begins with this word."""

    COMPLETED = "completed"
    STOPPED = "stopped"  # by a person, to stay stopped
    MAX_RETRIES_REACHED = "max_retries_reached"
    NO_CHECKPOINT_FOUND = "no_checkpoint_found"
    RESTART_FAILED = "restart_failed"

    def __str__(self) -> str:
        return self.value


SUPERVISOR, TIME_LIMIT = "supervisor", "time_limit"  # who stops a process job besides people


# ---------------------------------------------------------------- questions and answers


@dataclass(frozen=True, slots=True, repr=False)
class Reply(PublicValue):
    """The output of one script that ran on a target."""

    output: str = field(repr=False)
    exit_code: int
    duration: float


@dataclass(frozen=True, slots=True, repr=False)
class Question(PublicValue, Generic[T]):
    """A small sh script, its time limit on the target in seconds, and a pure parser of its reply.

    If `beside` is set, no script is sent: the function is called on this machine with the site, for facts that a shell
    on the target cannot find out. With `takes_cut`, the output printed before the time limit is parsed too; the exit
    code is then 137.
    """

    name: str
    script: str = field(repr=False)
    parse: Callable[[Reply], T] = field(repr=False)
    limit: float = 10.0
    beside: Callable[[Any], Reply] | None = field(default=None, repr=False)
    takes_cut: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class Answer(PublicValue, Generic[T]):
    """A tri-state result: a value, absent (value and failure None), or unknown (`failure` is the error)."""

    name: str
    value: T | None
    failure: TrainingMonitorError | None = None
    exit_code: int | None = None
    duration: float | None = None

    @property
    def known(self) -> bool:
        return self.failure is None

    @property
    def error(self) -> str | None:
        return str(self.failure) if self.failure else None

    def get(self) -> T | None:
        """Return the value, or None if it is absent; raise the failure if it is unknown."""
        if self.failure:
            raise self.failure
        return self.value


# ---------------------------------------------------------------- GPUs


@dataclass(frozen=True, slots=True, repr=False)
class Gpu(PublicValue):
    """One GPU as reported by nvidia-smi. None means "not reported", never zero."""

    index: int | None
    uuid: str | None = None
    name: str | None = None
    utilization: float | None = None
    memory_utilization: float | None = None
    memory_used_mb: float | None = None
    memory_total_mb: float | None = None
    power_draw_watts: float | None = None
    power_limit_watts: float | None = None
    temperature_celsius: float | None = None
    mig_enabled: bool | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class GpuProcess(PublicValue):
    """A process on a GPU as reported by nvidia-smi. None in `memory_used_mb` means "not reported", never zero.

    nvidia-smi reports the PIDs of the host. `is_here` is true if a process with this PID also exists where nvidia-smi
    ran.
    """

    pid: int
    name: str
    gpu_uuid: str | None
    memory_used_mb: float | None
    is_here: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class GpuTable(PublicValue):
    """All GPUs of a target; `error` is the error message that the driver printed, if any.

    `has_none` is true if the driver works and reports that there is no GPU.
    """

    gpus: tuple[Gpu, ...]
    error: str | None = None
    has_none: bool = False


# ---------------------------------------------------------------- Ray


@dataclass(frozen=True, slots=True, repr=False)
class RayJob(PublicValue):
    """One job submission as reported by the Ray dashboard; times are UTC epoch seconds."""

    submission_id: str
    status: JobStatus
    message: str | None = None
    entrypoint: str | None = None
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    exit_code: int | None = None
    start_time: float | None = None


@dataclass(frozen=True, slots=True, repr=False)
class RayResources(PublicValue):
    """The GPUs and CPUs of a Ray cluster, and the pending demands for them; None means unknown.

    `totals` is the total amount of each resource by name; `demands` lists the resources requested by each waiting task
    or actor. `failed_nodes` describes the nodes that died or could not be started, as Ray reports them.
    """

    gpus_used: float | None
    gpus_available: float | None
    cpus_used: float | None
    cpus_available: float | None
    pending_demands: tuple[str, ...] = ()
    totals: Mapping[str, float] | None = field(default=None, compare=False)
    demands: tuple[Mapping[str, Any], ...] = field(default=(), compare=False)
    failed_nodes: tuple[str, ...] = ()


# ---------------------------------------------------------------- logs, transport


@dataclass(frozen=True, slots=True, repr=False)
class Progress(PublicValue):
    """The most recent progress shown by a log; None means that the log does not show it.

    `step` is the optimizer step of the job. If a log counts steps only within each epoch, `epoch_step` is this count,
    and `epoch_steps` the number of steps per epoch; `job_progress` derives the step of the job from them. `epoch` and
    `total_epochs` are the values as printed in the log. `epochs_done` is the number of completed epochs, including the
    fraction of the current one, and `epochs_planned` the total. `steps_before` is the number of steps in earlier
    epochs, for logs that do not state the length of an epoch. `finished` is false if all that shows its end is a full
    bar without a name, which may be that of its data.
    """

    step: int | None = None
    total_steps: int | None = None
    epoch: float | None = None
    total_epochs: int | None = None
    loss: float | None = None
    learning_rate: float | None = None
    grad_norm: float | None = None
    steps_per_second: float | None = None
    tokens_per_second: float | None = None
    samples_per_second: float | None = None
    eta_seconds: float | None = None
    eta_scope: str | None = None
    checkpoint_step: int | None = None
    finished: bool | None = None
    epoch_step: int | None = None
    epoch_steps: int | None = None
    epochs_done: float | None = None
    epochs_planned: int | None = None
    steps_before: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class LogCursor(PublicValue):
    """A position in a log file: bytes read, the file's inode, and a checksum of the bytes before the position.

    `dataclasses.asdict` converts it to a JSON-ready dict. `check` is "" if the target has neither md5sum nor cksum.
    `in_key` is true if the position is inside a private key.
    """

    offset: int
    inode: int
    check: str = ""
    in_key: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class NewLog(PublicValue):
    """The new content of a log file after a cursor: whole lines in `text`, and the `cursor` for the next read.

    `partial` is the unfinished last line, which the next read returns again. `skipped_bytes` before `text` were not
    read, and `left_bytes` after it are left for the next read. `reset` is None (the log continued), truncated (emptied
    or rewritten) or rotated (replaced by another file). If the file is `missing`, there is no text, and the cursor of
    the request is returned. `age` is the seconds since the last write, by the target's clock, and `changed` those since
    anything of the file changed (its ctime); `path` is the file.
    `lost` is the start and the end (epoch seconds) of a period whose output is no longer stored. `by_lines` is true if
    the source stores output by whole lines, or by parts of some KiB of a long line. `wrote_at` is the time of the last
    write (epoch seconds), by the target's clock, if `age` is by that of this machine.
    """

    text: str = field(repr=False)
    cursor: LogCursor | None
    reset: str | None = None
    partial: str = field(default="", repr=False)
    skipped_bytes: int = 0
    missing: bool = False
    age: float | None = field(default=None, compare=False)
    changed: float | None = field(default=None, compare=False)
    path: str | None = field(default=None, compare=False)
    left_bytes: int = 0
    lost: tuple[float, float] | None = None
    by_lines: bool = False
    wrote_at: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, repr=False)
class RunEvent(PublicValue):
    """The start of a phase of a run, at `timestamp` (epoch seconds); `step` is the step reached at that time."""

    timestamp: float
    phase: str
    step: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Goodput(PublicValue):
    """The share (0..1) of `total_seconds` spent on steps that were not lost, and the other seconds by cause."""

    goodput: float | None
    total_seconds: float
    seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True, repr=False)
class Failure(PublicValue):
    """The classified cause of a job's failure, and the recommended action.

    `error_class` is transient | hardware | user | ambiguous | external_stop. `action` is restart | restart_elsewhere |
    restart_previous_checkpoint | stop | ignore | monitor. `evidence` is the decisive line, and `rank` the rank that
    wrote it. `fingerprint` ignores times, numbers, addresses, paths and ranks, so it is the same when the failure
    recurs. `advice` describes what to try.
    """

    category: str
    error_class: str
    action: str
    evidence: str
    rank: int | None = None
    fingerprint: str = ""
    advice: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class NcclTransport(PublicValue):
    """The transport that NCCL reports: efa | socket | ib | fallback | fastsocket | unknown."""

    transport: str
    provider: str | None = None
    plugin_version: str | None = None
    nics: int | None = None
    gpudirect_rdma: bool | None = None
    evidence: str | None = None


# ---------------------------------------------------------------- pods, checkpoints, jobs


class CheckpointFile(NamedTuple):
    """One file below a checkpoint directory. `problem` is the damage found by inspecting its bytes, if any."""

    path: str
    size_bytes: int
    modified_at: float
    problem: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Checkpoint(PublicValue):
    """A checkpoint: its path, step and size, and whether it is complete.

    `complete` is None if the checkpoint was not fully inspected; `problem` then contains the reason. `size_bytes` is
    None if unknown. `modified_at` is the time of the last write to any of its files. `age` is the number of seconds
    since `modified_at`, by the target's clock.
    """

    path: str
    step: int
    size_bytes: int | None
    complete: bool | None
    problem: str | None = None
    age: float | None = field(default=None, compare=False)
    modified_at: float | None = field(default=None, compare=False)

    @property
    def content(self) -> str:
        """Return an identifier of the stored content, which changes when the checkpoint is rewritten."""
        return f"{self.path} {self.size_bytes} {self.modified_at}"


@dataclass(frozen=True, slots=True, repr=False)
class JobView(PublicValue):
    """The result of one look at a job: its status, and the progress in its log. None means missing, never zero.

    `command` is the entrypoint of a Ray job. `age` is the number of seconds since a process job was started, by the
    target's clock. `stopped_by` is SUPERVISOR, TIME_LIMIT, or the reason that a person gave for stopping a process job;
    it is unknown for a Ray job. `pod` is the pod that ran the job, if that pod has ended. `resume` is the command that
    resumes the job if it is suspended. If the job has not started, `advice` suggests what to do, and `is_stuck` is
    whether the job will not start by itself.
    """

    job_id: str
    status: JobStatus
    message: str | None = None
    exit_code: int | None = None
    progress: Progress = Progress()
    log_size: int | None = None
    log_age: float | None = None
    log_tail: str = field(default="", repr=False)
    log_known: bool = True
    started_at: float | None = None
    survivors: int = 0
    command: str | None = None
    stopped_by: str | None = None
    age: float | None = None
    pod: PodState | None = None
    resume: str | None = None
    advice: str | None = None
    is_stuck: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class Event(PublicValue):
    """An observation or action of a supervisor, for display.

    `kind` is progress | started | adopted | resumed | ignored | detected | refused | waiting | unreachable | reached |
    moved | stopping | explained | stopped | removed | finished. `text` is one sentence with the evidence; for
    `explained` it is a paragraph. `view` is the look that a `progress` event is based on. `checkpoint` is the path of
    the checkpoint from which a `started` attempt resumes. For a `finished` event, `outcome` describes how the run
    ended, `runtime` is the number of seconds since its supervision began, and `checkpoint_step` is the step of its
    newest complete checkpoint; None if unknown.
    """

    kind: str
    text: str
    job_id: str | None = None
    attempt: int = 0
    view: JobView | None = None
    checkpoint: str | None = None
    outcome: RunOutcome | None = None
    runtime: float | None = None
    checkpoint_step: int | None = None


OnEvent = Callable[[Event], None]
OnLook = Callable[[TrainingMonitorError | None], object]  # called with why a look failed, or None for a successful one
