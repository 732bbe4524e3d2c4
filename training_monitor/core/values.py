"""Frozen values of judging, watching and notifying. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

from training_monitor.core.errors import SettingsError
from training_monitor.core.fields import PublicValue
from training_monitor.core.masking import redact, redact_named
from training_monitor.core.models import Checkpoint, Failure, JobStatus, JobView, Progress


@dataclass(frozen=True, slots=True, repr=False)
class Observation(PublicValue):
    """The facts that one look collected about a training; None means unknown, never zero.

    Attributes:
        timestamp: epoch seconds, by the observer's clock.
        step, total_steps: progress of the job over all epochs; None before the first step.
        eta_seconds, steps_per_second, loss: values as printed in the log.
        phase: the activity at the end of the log, unless it is ordinary training (see `find_phase`).
        gpu_utilization, gpu_power_fraction: for its busiest GPU, utilization in percent, and power draw divided by the
            power limit (see `gpu_load`).
        log_size: size of the log in bytes. heartbeat: whether the last lines of the log differ only in their times (see
            `find_heartbeat`).
        epoch, total_epochs: completed epochs, including the fraction of the current one, and the total.
        status: status of the job; UNKNOWN if there is no job. exit_code, message: reported by the job.
        is_running: whether its processes are running. finished: whether its log shows that the training has ended.
        failure: the cause of a failure; None while the training is running, unless its log ends in an error.
        runtime: seconds since it started. process: the identity of its process, `PID START BOOT`; this changes with
            every start.
        awake_seconds: seconds since the target booted, excluding time spent suspended; clock changes have no effect.
            boot: the ID of the target's current boot.
        log_age: seconds since the last write to its log. step_age: seconds since its newest step was logged.
        step_interval: the usual number of seconds between log lines with a step. step_time: median seconds per step of
            the fastest third of its steps. step_interval and step_time are computed from the times and rates in its
            log. logged_speed: steps per second at the end of the log, by its times alone.
        file_age: seconds since the last write to the newest file in its checkpoint folder.
        cpu_seconds, written_bytes: CPU time of its processes, and bytes written by them, since they started. Child
            processes that have ended are included. cpu_cores, write_rate: the same values per second, measured during
            the look.
        delay_seconds: the total time for which its threads waited for a CPU. delay_cores: the waiting time per second.
        resume: the command that resumes the training, if it was suspended by its scheduler or container runtime.
        advice: what to do about a training that has not started. is_stuck: whether it will not start by itself.
        suspended: the PIDs of its suspended processes (state T).
        blocked: number of its processes that are waiting in the kernel for a disk (state D).
        compilers: number of its processes that are compiling code, including linkers and busy compile workers of
            PyTorch.
        oom_kills: number of processes killed for lack of memory, as counted by the kernel of the target.
        gpu_errors: descriptions of faults of its GPUs.
        processes: number of its processes that were found; 0 if no process has its log open, or if no process is
            visible.
        unseen_output: whether the training is running but writes its output to a place that cannot be read.
        bar_held: whether the latest part of the training's progress bar is still in a buffer of the log collector and
            not yet in the log.
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
    resume: str | None = None
    advice: str | None = None
    is_stuck: bool = False
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
    heartbeat: bool | None = None
    delay_seconds: float | None = None
    delay_cores: float | None = None
    suspended: tuple[int, ...] = ()
    unseen_output: bool = False
    bar_held: bool = False
    logged_speed: float | None = None


ProgressSample = Observation  # the earlier public name


@dataclass(frozen=True, slots=True, repr=False)
class StallAnalysis(PublicValue):
    """The result of `analyze_stall`, which documents its fields. Times are epoch seconds; durations are seconds."""

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


@dataclass(frozen=True, slots=True, repr=False)
class Verdict(PublicValue):
    """The conclusion of `judge` about a training. All commands show this verdict.

    Attributes:
        state: starting | running | slow | suspended | stalled | finished | failed | stopped | unknown.
        verdict: ok | warning | failed | unknown. The verdict determines the exit code: 0 for ok and warning, 1 for
            failed, 3 for unknown.
        reason: one sentence with the evidence, such as the time without a step and its limit, the decisive line, or why
            the state is unknown.
        since: the start of this state, in epoch seconds.
        confidence: none | low | medium | high.
        recommendation: continue | alert | terminate.
        seconds_without_step, limit_seconds: the time since the last step, and the limit beyond which this time counts
            as a stall.
        remedies: what to try, or what would make the verdict more certain.
        failure: the cause, if the training failed.
        stall: the result of `analyze_stall`.
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


@dataclass(frozen=True, slots=True, repr=False)
class LossAnalysis(PublicValue):
    """The result of `analyze_loss`: `kind` is nan | spike | divergence | plateau, or None."""

    kind: str | None
    reason: str
    last: float | None
    best: float | None


PRIORITIES = ("low", "normal", "high", "urgent")
_TOLD = ("title", "text", "training", "target", "command", "log")  # of a notice
MOST_LOG_LINES, MOST_LOG_LINE = 50, 500  # of a notice; lines, characters of one


@dataclass(frozen=True, slots=True, repr=False)
class WatchedJob(PublicValue):
    """Identify a training to watch: a job by its ID, files on the target, or a process there.

    Give at most one of `job_id` (a Ray submission ID or process:NAME), `log_file` (the training's log) and `log_paths`
    (shell patterns; the newest matching file is the log). `pid` is the training's main process, alone or together with
    a log; `process` is its identity `PID START BOOT`, if known. `pid_file` contains its PID, and `output_dir` its
    checkpoints. `name` is its display name, which defaults to one derived from the other fields.
    """

    job_id: str | None = None
    log_file: str | None = None
    pid_file: str | None = None
    output_dir: str | None = None
    name: str | None = None
    log_paths: tuple[str, ...] = ()
    pid: int | None = None
    process: str | None = None

    def __post_init__(self) -> None:
        for key in ("job_id", "log_file", "pid_file", "output_dir", "name"):
            value = getattr(self, key)
            if value is not None and (not value or "\0" in value):
                raise SettingsError(key, value, "a non-empty string")
        if not isinstance(self.log_paths, tuple) or not all(
            isinstance(path, str) and path and "\0" not in path for path in self.log_paths
        ):
            raise SettingsError("log_paths", self.log_paths, "a tuple of patterns such as /workspace/*/training.log")
        named = (self.job_id is not None) + (self.log_file is not None) + bool(self.log_paths)
        if named > 1 or (named == 0 and self.pid is None):
            raise SettingsError("job", self.job_id, "one of job_id, log_file, log_paths and pid")
        if self.job_id is not None and (self.pid_file is not None or self.pid is not None):
            key, value = ("pid", self.pid) if self.pid_file is None else ("pid_file", self.pid_file)
            raise SettingsError(key, value, "either job_id or a PID (pid, pid_file), not both")
        if self.pid is not None and self.pid_file is not None:
            raise SettingsError("pid_file", self.pid_file, "either pid or pid_file, not both")
        if self.pid is not None and self.pid < 1:
            raise SettingsError("pid", self.pid, "a process ID of at least 1")

    @property
    def label(self) -> str:
        """Return the display name."""
        return self.name or self.job_id or self.log_file or " ".join(self.log_paths) or f"pid {self.pid}"


@dataclass(frozen=True, slots=True, repr=False)
class NotSeen(PublicValue):
    """Items that may exist but could not be observed, and the reason. `count` is None if unknown."""

    what: str
    why: str
    count: int | None = None

    def __str__(self) -> str:
        return f"{'' if self.count is None else f'{self.count} '}{self.what}: {self.why}"


@dataclass(frozen=True, slots=True, repr=False)
class JobListing(PublicValue):
    """The jobs of a target, oldest first. Kinds of jobs that could not be listed are in `not_seen`.

    `odd` lists entries of the jobs folder that are not jobs.
    """

    jobs: tuple[JobView, ...]
    not_seen: tuple[NotSeen, ...] = ()
    odd: tuple[NotSeen, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class CheckpointListing(PublicValue):
    """The checkpoints of a folder, lowest step first.

    `unlisted` is the number of older checkpoints of which only the names are known, plus the number of unreadable
    folders that may contain checkpoints. `unlooked_step` is the highest step whose checkpoint was not inspected; None
    if all checkpoints were inspected. `unrecognized` names the newest files, at most 3, of a folder in which none was
    recognized as part of a checkpoint.
    """

    checkpoints: tuple[Checkpoint, ...]
    unlisted: int = 0
    unlooked_step: int | None = None
    unrecognized: tuple[str, ...] = ()

    @property
    def newest_complete(self) -> Checkpoint | None:
        """Return the complete checkpoint with the highest step; None if one with a higher step was not inspected."""
        newest = next((each for each in reversed(self.checkpoints) if each.complete), None)
        is_last = newest is None or self.unlooked_step is None or newest.step >= self.unlooked_step
        return newest if is_last else None

    @property
    def count(self) -> int:
        return len(self.checkpoints) + self.unlisted

    @property
    def unknown(self) -> int:
        """Return the number of checkpoints that may or may not be complete."""
        return self.unlisted + sum(each.complete is None for each in self.checkpoints)

    @property
    def why_none_is_complete(self) -> str:
        """Explain why no checkpoint is complete. State how many checkpoints are unknown."""
        if not self.count and self.unrecognized:
            names = ", ".join(self.unrecognized)
            return f"no file has the name of a checkpoint, such as step_100.pt or checkpoint-100: {names}"
        if not self.count:
            return "no checkpoint was found"
        last = [each for each in self.checkpoints if not each.complete][-3:]
        reasons = "".join(f"; step {each.step}: {each.problem}" for each in last)
        if self.unknown:
            return f"none of {self.count} checkpoints is known to be complete ({self.unknown} not inspected{reasons})"
        return f"none of {self.count} checkpoints is complete ({reasons.removeprefix('; ')})"


@dataclass(frozen=True, slots=True, repr=False)
class TrainingStatus(PublicValue):
    """The result of one poll of a watcher; None means unknown.

    `status` is the status of the job; without a job, it is RUNNING or UNKNOWN. `step` is the job's step over all
    observed epochs, even if the log restarts its step count in each epoch. `checkpoints` lists the checkpoints in the
    output directory, lowest step first, and `unlisted_checkpoints` is the number of older checkpoints that were not
    inspected. `totals` has the 15 values of `LogTotals`. `errors` lists the queries that failed. `verdict` is the
    result of `judge`, and `stall` is its stall analysis. `started_at` is in epoch seconds by the target's clock,
    `timestamp` by the watcher's clock.
    """

    is_running: bool | None
    progress: Progress
    stall: StallAnalysis
    checkpoints: tuple[Checkpoint, ...] | None
    recent_output: str = field(repr=False)
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


@dataclass(frozen=True, slots=True, repr=False)
class LogUpdate(PublicValue):
    """One line of a followed log, and the state of the training when the line arrived (`timestamp`, epoch seconds)."""

    line: str
    progress: Progress
    stall: StallAnalysis
    timestamp: float


@dataclass(frozen=True, slots=True, repr=False)
class Notice(PublicValue):
    """A message to a user in plain words, which each channel renders in its own markup.

    `fields` are labels and values, one line each; `text` follows them. `(job_id, kind, generation)` identifies the
    event, for deduplication. `priority` is low | normal | high | urgent. `training` is the display name of the
    training, `target` is the target on which it runs, and `command` is the next shell command to run on `host`, the
    machine that sent the notice. `log` is the end of its log, at most MOST_LOG_LINES lines.
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
    log: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if self.priority not in PRIORITIES:
            raise SettingsError("priority", self.priority, ", ".join(PRIORITIES))
        fields = tuple((redact(name), redact_named(name, value)) for name, value in self.fields)
        masked: dict[str, object] = {"fields": fields}
        masked |= {name: redact(text) for name in _TOLD if (text := getattr(self, name))}
        masked["log"] = last_log_lines(str(masked.get("log", "")), MOST_LOG_LINES)  # cut after it was masked
        for name, value in masked.items():
            object.__setattr__(self, name, value)


def last_log_lines(text: str, count: int) -> str:
    """Return the last lines of a log, each cut to MOST_LOG_LINE characters, without empty lines at the end."""
    lines = text.rstrip().splitlines()[-count:] if count else []
    return "\n".join(line[:MOST_LOG_LINE] for line in lines)


@dataclass(frozen=True, slots=True, repr=False)
class Delivery(PublicValue):
    """The result of delivering a notice.

    `channel` is the channel that accepted it, `none` if no channel did, or `suppressed` for a duplicate. `attempts`
    counts tries over all channels. `error` is why the earlier channels, or all channels, failed.
    """

    channel: str
    success: bool
    attempts: int = 0
    error: str | None = None


LEAST_ROLL_CALL_SECONDS = 5.0  # in which the processes of a training can be looked at, twice


class Bound(NamedTuple):
    """The expected range of a number, in words; used in the annotation of a parameter or field."""

    expected: str


LONG_ENOUGH = Bound(f"at least {LEAST_ROLL_CALL_SECONDS:g} seconds")
NONE_OR_LONG_ENOUGH = Bound(f"0, or {LONG_ENOUGH.expected}")
LongEnoughSeconds = Annotated[float, LONG_ENOUGH]
RollCallSeconds = Annotated[float, NONE_OR_LONG_ENOUGH]


def is_at_least(lowest: float, value: object) -> bool:
    """Return whether a value is a finite number of at least `lowest`."""
    from training_monitor.core.units import known_number

    known = known_number(value)
    return known is not None and known >= lowest


def check_roll_call_timeout(seconds: float) -> None:
    """Raise SettingsError if a timeout is too short for a roll call; 0 (no roll call) is valid."""
    if not (is_at_least(LEAST_ROLL_CALL_SECONDS, seconds) or seconds == 0):
        raise SettingsError("roll_call_timeout", seconds, NONE_OR_LONG_ENOUGH.expected)


@dataclass(frozen=True, slots=True)
class KeptRollCall:
    """The stored result of a roll call that was taken before a job was ended.

    Attributes:
        at: when the roll call was taken, in epoch seconds.
        text: the explanation in one paragraph, or why there is none. confidence: none | low | medium | high.
        folder: the folder on this machine with the full report; None if it could not be written.
        suspect_nodes: nodes of the ranks to blame, if the ranks ran on several nodes and the confidence is medium or
            high.
        faulty_nodes: nodes with a hardware fault.
    """

    at: float
    text: str
    confidence: str = "none"
    job_id: str | None = None
    folder: str | None = None
    suspect_nodes: tuple[str, ...] = ()
    faulty_nodes: tuple[str, ...] = ()
