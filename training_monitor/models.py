"""Frozen values that travel between the rooms: what was asked, what was seen, what was decided."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, TypeVar

from training_monitor.errors import TrainingMonitorError

T = TypeVar("T")


class JobStatus(str, Enum):
    """Ray's own job states plus UNKNOWN (could not ask).

        PENDING -> RUNNING -> SUCCEEDED | FAILED | STOPPED

    STOPPED was stopped by a person: terminal, never restarted.
    """

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"

    @property
    def is_terminal(self) -> bool:
        return self in (JobStatus.STOPPED, JobStatus.SUCCEEDED, JobStatus.FAILED)

    def __str__(self) -> str:
        return self.value


# ---------------------------------------------------------------- asking


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What one spawned program did; `argv` holds no secret, texts are utf-8 with replacement."""

    argv: tuple[str, ...]
    exit_code: int
    stdout: str
    stderr: str
    duration: float


@dataclass(frozen=True, slots=True)
class Reply:
    """What one script printed on a target."""

    output: str
    exit_code: int
    duration: float


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """A small sh script, its time limit on the target in seconds, and a pure reader of its reply."""

    name: str
    script: str = field(repr=False)
    parse: Callable[[Reply], T] = field(repr=False)
    limit: float = 10.0


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """Tri-state: a value, absent (value None, failure None), or unknown (failure says why)."""

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
        """The value or None for "not there"; raises what kept us from asking."""
        if self.failure:
            raise self.failure
        return self.value


# ---------------------------------------------------------------- GPUs


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as nvidia-smi reports it; None is 'not reported', never zero."""

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


@dataclass(frozen=True, slots=True)
class GpuProcess:
    pid: int
    name: str
    gpu_uuid: str | None
    memory_used_mb: float | None


@dataclass(frozen=True, slots=True)
class GpuTable:
    """All GPUs of a target; `error` is the driver's own message when it named one."""

    gpus: tuple[Gpu, ...]
    error: str | None = None


# ---------------------------------------------------------------- Ray


@dataclass(frozen=True, slots=True)
class RayJob:
    """One submission as the dashboard reports it; times are UTC epoch seconds."""

    submission_id: str
    status: JobStatus
    message: str | None = None
    entrypoint: str | None = None
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    exit_code: int | None = None
    error_type: str | None = None
    start_time: float | None = None
    end_time: float | None = None
    driver_node_id: str | None = None


@dataclass(frozen=True, slots=True)
class RayResources:
    gpus_used: float | None
    gpus_available: float | None
    cpus_used: float | None
    cpus_available: float | None
    pending_demands: tuple[str, ...] = ()


# ---------------------------------------------------------------- logs, transport


@dataclass(frozen=True, slots=True)
class Progress:
    """The newest progress a log shows; None means not seen. `step` is the optimizer step of the job.

    `epoch_step` of `epoch_steps` is a counter inside the epoch, for logs that count nothing else; `job_progress` says
    where the job stands by it. `epoch` and `total_epochs` are the numbers as printed. `epochs_done` of `epochs_planned`
    are done, with the fraction of the epoch under way; an epoch that has begun is not done. `steps_before` counts the
    steps of the epochs before, where the log does not tell how many an epoch has.
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


@dataclass(frozen=True, slots=True)
class LogCursor:
    """Where a reader of a log file stands: bytes read, the file's inode, and a checksum of the bytes in front of it.

    JSON-ready by `dataclasses.asdict`. `check` is "" where the target has neither md5sum nor cksum.
    """

    offset: int
    inode: int
    check: str = ""


@dataclass(frozen=True, slots=True)
class NewLog:
    """What a log file has behind a cursor: `text` is whole lines, and `cursor` goes into the next read.

    `partial` is the unfinished last line, which the next read gives again. `skipped_bytes` stood in front of `text` and
    were not read. reset: None (the log went on) | truncated (emptied or rewritten) | rotated (another file). A
    `missing` file has no text, and the cursor it was asked with. `age` is seconds since it was written to, by the clock
    there, and `path` where it lies.
    """

    text: str
    cursor: LogCursor | None
    reset: str | None = None
    partial: str = ""
    skipped_bytes: int = 0
    missing: bool = False
    age: float | None = field(default=None, compare=False)
    path: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Observation:
    """What one look at one training saw; None is "not known", never zero.

    Attributes:
        timestamp: when it was seen, epoch seconds by the clock of whoever looked.
        step, total_steps: of the job, over all epochs; None before the first step.
        eta_seconds, steps_per_second, loss: as the log tells them.
        phase: what the end of the log says is done besides steps (see `find_phase`).
        gpu_utilization, gpu_power_fraction: of its GPU that works hardest (see `gpu_load`): per cent, and the power
            drawn over its limit.
        log_size: bytes.
        epoch, total_epochs: epochs done, with the fraction of the one under way; of so many.
        status: the job's own; UNKNOWN where it has none. exit_code, message: what goes with it.
        is_running: whether its processes run. finished: whether its log shows the end.
        failure: why it failed; only of one that runs no more, or whose log ends in an error.
        runtime: seconds since it began. process: its identity `PID START BOOT`; another one is another start.
        awake_seconds: for how long the target has been awake since its boot `boot`: tells elapsed time although clocks
            jump and machines sleep.
        log_age: seconds since its log was written to. step_age: since the line with its newest step was.
        step_interval: usual seconds between lines with a step, and step_time: seconds a step takes at its usual best,
            both by the times and rates in its own log.
        file_age: seconds since the newest file where its checkpoints go was written to.
        cpu_seconds, written_bytes: CPU time and bytes written by its processes since they began, ended children
            included. cpu_cores, write_rate: the same per second, during the look itself.
        blocked: how many of its processes wait in the kernel for a disk (state D).
        compilers: how many compilers work for it.
        oom_kills: processes that were killed for memory there, counted by the kernel.
        gpu_errors: what is wrong with its GPUs, a text for each.
        processes: how many processes of it were seen; 0 says that none has its log open, or that none may be seen.
    """

    timestamp: float
    step: int | None
    total_steps: int | None = None
    eta_seconds: float | None = None
    steps_per_second: float | None = None
    loss: float | None = None
    phase: str | None = None
    gpu_utilization: float | None = None
    gpu_power_fraction: float | None = None
    log_size: int | None = None
    epoch: float | None = None
    total_epochs: float | None = None
    status: JobStatus = JobStatus.UNKNOWN
    exit_code: int | None = None
    message: str | None = None
    is_running: bool | None = None
    finished: bool | None = None
    failure: Failure | None = None
    runtime: float | None = None
    process: str | None = None
    boot: str | None = None
    awake_seconds: float | None = None
    log_age: float | None = None
    step_age: float | None = None
    step_interval: float | None = None
    step_time: float | None = None
    file_age: float | None = None
    cpu_seconds: float | None = None
    written_bytes: int | None = None
    cpu_cores: float | None = None
    write_rate: float | None = None
    blocked: int | None = None
    compilers: int | None = None
    oom_kills: int | None = None
    gpu_errors: tuple[str, ...] = ()
    processes: int | None = None


@dataclass(frozen=True, slots=True)
class StallAnalysis:
    """The verdict of `analyze_stall`, which says what its words mean. Times are epoch seconds, durations seconds."""

    is_stalling: bool
    kind: str | None
    confidence: str
    reason: str
    recommendation: str
    current_step: int | None = None
    total_steps: int | None = None
    stall_detected_at: float | None = None
    grace_period_remaining: float | None = None
    signals: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What `judge` says of a training; every command shows this and no other.

    Attributes:
        state: starting | running | slow | stalled | finished | failed | stopped | unknown.
        verdict: ok | warning | failed | unknown. What decides the exit status: 0 for ok and warning, 1, 3.
        reason: one sentence with the evidence: the silence and its limit, the line that failed, or why nobody knows.
        since: from when on it is so, epoch seconds.
        confidence: none | low | medium | high.
        recommendation: continue | alert | terminate.
        seconds_without_step, limit_seconds: the silence, and from when on it is a stall.
        remedies: what to try, or what would sharpen the answer.
        failure: why it failed, of one that did.
        stall: the part of it that `analyze_stall` found.
    """

    state: str
    verdict: str
    reason: str
    since: float | None = None
    confidence: str = "none"
    recommendation: str = "continue"
    seconds_without_step: float | None = None
    limit_seconds: float | None = None
    remedies: tuple[str, ...] = ()
    failure: Failure | None = None
    stall: StallAnalysis | None = None


@dataclass(frozen=True, slots=True)
class LossAnalysis:
    """The verdict of `analyze_loss`: kind nan | spike | divergence | plateau, or None."""

    kind: str | None
    reason: str
    last: float | None
    best: float | None


@dataclass(frozen=True, slots=True)
class RunEvent:
    """From `timestamp` (epoch seconds) on a run is in `phase`; `step` is what it had reached by then."""

    timestamp: float
    phase: str
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Goodput:
    """Share (0..1) of `total_seconds` that made steps which were kept, and seconds by cause."""

    goodput: float | None
    total_seconds: float
    seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a job failed, as far as it can be told, and what to do about it.

    error_class: transient | hardware | user | ambiguous | external_stop. action: restart | restart_elsewhere |
    restart_previous_checkpoint | stop | ignore | monitor. `evidence` is the line that decides, `rank` the rank that
    wrote it; `fingerprint` is the same for the same failure at another time, address and rank.
    """

    category: str
    error_class: str
    action: str
    evidence: str
    rank: int | None = None
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class NcclTransport:
    """What NCCL says it talks over: efa | socket | ib | fallback | fastsocket | unknown."""

    transport: str
    provider: str | None = None
    plugin_version: str | None = None
    nics: int | None = None
    gpudirect_rdma: bool | None = None
    evidence: str | None = None


# ---------------------------------------------------------------- pods, checkpoints, jobs


@dataclass(frozen=True, slots=True)
class PodState:
    """A pod; `terminated`, `exit_code` and `terminated_at` (epoch seconds) are of the worst end of its containers."""

    name: str
    phase: str
    ready: bool
    restarts: int
    node: str | None = None
    reason: str | None = None
    message: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    deleting: bool = False
    terminated: str | None = None
    exit_code: int | None = None
    terminated_at: float | None = None


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """One file below a checkpoint directory; `problem` is what a look at its bytes found wrong."""

    path: str
    size_bytes: int
    modified_at: float
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`age` is seconds since its newest file was written, by the target's clock."""

    path: str
    step: int
    size_bytes: int
    complete: bool
    problem: str | None = None
    age: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class JobView:
    """One look at a job: its status, and what its log says. None is 'not there', never zero.

    `command` is what a Ray job was submitted to run.
    """

    job_id: str
    status: JobStatus
    message: str | None = None
    exit_code: int | None = None
    progress: Progress = Progress()
    log_size: int | None = None
    log_age: float | None = None
    log_tail: str = ""
    log_known: bool = True
    started_at: float | None = None
    survivors: int = 0
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """Something a supervising loop saw or did, for whoever shows it.

    kind: progress | started | adopted | resumed | detected | refused | waiting | unreachable | reached | moved |
    stopping | stopped | finished. `text` is one sentence with the evidence; `view` is the look behind `progress`.
    """

    kind: str
    text: str
    job_id: str | None = None
    attempt: int = 0
    view: JobView | None = None
