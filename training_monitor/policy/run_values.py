"""The values of `training-monitor top`: what a run wrote of itself, what its machine says of its processes. Pure.

None is "not known", never zero. A progress file belongs to its run alone: whoever reads it never writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from training_monitor.verdicts import Verdict

RUNNING, FINISHED, FAILED, CANCELED, KILLED = "RUNNING", "FINISHED", "FAILED", "CANCELED", "KILLED"
UNKNOWN = "UNKNOWN"  # the file says RUNNING, and nobody here can see whether that is still so
PROCESS, THREAD = "P", "T"  # kinds of the rows of a tree
LOSSES = ("loss", "train_loss", "training_loss")  # the metrics that are the loss of the training
STATUSES = (RUNNING, FINISHED, FAILED, CANCELED, KILLED)
# The rank of a process among all of its training, as launchers set it: the first one that is there counts.
RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK")
EDITABLE_TYPES = ("float", "int", "bool", "str")

Scalar = bool | int | float | str | None
_NOT_JUDGED = Verdict("unknown", "unknown", "not judged yet")


# ---------------------------------------------------------------- what a run writes


@dataclass(frozen=True, slots=True)
class Estimate:
    """One span of a run: `rate` in batches a second, the others in seconds; `total` is elapsed and remaining."""

    rate: float | None = None
    elapsed: float | None = None
    remaining: float | None = None
    total: float | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """What tells a process from all others that had or will have its number.

    Attributes:
        pid: in the pid namespace of the process itself.
        start_ticks: field 22 of /proc/PID/stat, clock ticks from boot.
        hostname, boot_id: of its machine (/proc/sys/kernel/random/boot_id).
        pid_namespace: what /proc/self/ns/pid links to, as `pid:[4026531836]`.
    """

    pid: int
    start_ticks: int | None = None
    hostname: str | None = None
    boot_id: str | None = None
    pid_namespace: str | None = None


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that writes a run's files, and its place where multiprocessing started it.

    Attributes:
        parent: the process that multiprocessing started it from, None where it did not.
        member: its numbers among the children of that process, and of those above.
    """

    process: Identity
    parent: Identity | None = None
    member: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Variable:
    """A value of a script that is shown, and may be edited while the run goes on where its type is editable.

    Attributes:
        value: that the run uses now; of a type that is not editable, its text.
        type: name of its Python type: one of EDITABLE_TYPES, or of something else (tuple, NoneType).
        edit: id of the last edit the run has looked at; error: why it was not applied, None when it was.
        pending: text of an edit in the control file that the run has not looked at yet, None when there is none.
    """

    name: str
    value: Scalar
    type: str
    edit: str | None = None
    error: str | None = None
    pending: str | None = None

    @property
    def is_editable(self) -> bool:
        return self.type in EDITABLE_TYPES


@dataclass(frozen=True, slots=True)
class OwnResources:
    """What a run measured of itself: CPU in per cent of one core, memory in bytes, GPU memory in MiB."""

    cpu_percent: float | None = None
    rss_bytes: int | None = None
    gpu_mib: float | None = None
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """One progress file, read.

    Attributes:
        name: of the run; path: of its progress file; control_path: where edits for it are written.
        folder: the run's own folder, None in the flat layout.
        status: as written, one of STATUSES; None when the file names none.
        phase: loading, training, validation, or what the script calls it.
        batch, validation_batch: in this epoch, from 1; step, total_steps: of the whole run, where it says how many it
            makes.
        run, epoch_time, training, validation: estimates of the whole run, this epoch, and both parts of the epoch.
        validation_seconds: how long the last validation took.
        losses: the loss over the whole run in at most 64 values, oldest first.
        started_at, ended_at, updated_at, step_at: epoch seconds; of the last write and of the last batch.
        error: why the file cannot be read; all else is then what was read before.
    """

    name: str
    path: str
    control_path: str
    folder: str | None = None
    status: str | None = None
    phase: str | None = None
    epoch: int | None = None
    total_epochs: int | None = None
    batch: int | None = None
    total_batches: int | None = None
    validation_batch: int | None = None
    total_validation_batches: int | None = None
    step: int | None = None
    total_steps: int | None = None
    run: Estimate = Estimate()
    epoch_time: Estimate = Estimate()
    training: Estimate = Estimate()
    validation: Estimate = Estimate()
    validation_seconds: float | None = None
    metrics: Mapping[str, Scalar] = field(default_factory=dict)
    losses: tuple[float | None, ...] = ()
    variables: tuple[Variable, ...] = ()
    process: Identity | None = None
    started_at: float | None = None
    ended_at: float | None = None
    updated_at: float | None = None
    step_at: float | None = None
    error_message: str | None = None
    exit_code: int | None = None
    script: str | None = None
    stdout_path: str | None = None
    stderr_path: str | None = None
    wandb_url: str | None = None
    resources: OwnResources = OwnResources()
    error: str | None = None

    @property
    def last_words(self) -> str | None:
        """What its script said of its end, for people: a message, or else an exit status."""
        return self.error_message or (f"exit status {self.exit_code}" if self.exit_code else None)


# ---------------------------------------------------------------- what the machine says


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """One line of /proc/PID/stat (or of /proc/PID/task/TID/stat, whose `pid` is the thread's): times in ticks."""

    pid: int
    parent: int
    name: str
    state: str
    start_ticks: int
    cpu_ticks: int
    rss_bytes: int
    threads: int


@dataclass(frozen=True, slots=True)
class MachineSample:
    """What a machine said of its processes at one moment.

    Attributes:
        at: seconds of the machine's own monotonic clock (/proc/uptime): differences count.
        identity: hostname, boot id and pid namespace of whoever looked; its pid is that of the looking process.
        ticks: clock ticks a second. cores, memory_bytes: of the machine; available_bytes: MemAvailable.
        processes: by pid. threads: of the processes that were asked for, by pid.
        gpu_mib: GPU memory by pid, over all GPUs; None when nvidia-smi did not answer, `gpu_error` says why.
        gpu_total_mib, gpu_used_mib: over all GPUs.
        sees_all: whether `processes` are all there are; with hidepid those of other users are not among them, and one
            that is missing may be alive.
    """

    at: float
    identity: Identity
    ticks: int
    cores: int | None = None
    memory_bytes: int | None = None
    available_bytes: int | None = None
    processes: Mapping[int, ProcessSample] = field(default_factory=dict)
    threads: Mapping[int, tuple[ProcessSample, ...]] = field(default_factory=dict)
    gpu_mib: Mapping[int, float] | None = None
    gpu_total_mib: float | None = None
    gpu_used_mib: float | None = None
    gpu_error: str | None = None
    sees_all: bool = True


@dataclass(frozen=True, slots=True)
class FolderLook:
    """One look at a folder of runs and at the machine it is on.

    The processes are read first, and the files after them: a run writes how it ended before its process goes.

    Attributes:
        runs: in natural order of their names.
        machine: None where it has no /proc, and `machine_error` says why.
        timestamp: epoch seconds by the clock of the machine, when its files were read.
        processes_at: when reading the processes began, by the same clock; None when that is not known.
    """

    runs: tuple[Run, ...]
    machine: MachineSample | None
    timestamp: float
    machine_error: str | None = None
    processes_at: float | None = None


@dataclass(frozen=True, slots=True)
class OutputChunk:
    """A piece of a file: `data` are the bytes from `start` on; `size` is that of the whole file at that moment."""

    size: int
    start: int
    data: bytes


class RunSource(Protocol):
    """Where a folder of runs is; every method is one round trip. Raises TrainingMonitorError when it cannot ask."""

    def look(self, threads_of: frozenset[int]) -> FolderLook:
        """Read all progress files, control files and processes; threads only of the processes `threads_of`."""
        ...

    def read_output(self, path: str, start: int, length: int) -> OutputChunk:
        """Read a piece of an output file; a negative `start` counts from its end."""
        ...

    def edit(self, run: Run, values: Mapping[str, str]) -> str:
        """Ask the run to set variables, as text; returns the id by which it will answer."""
        ...

    def send_signal(self, processes: tuple[Identity, ...], number: int) -> tuple[str, ...]:
        """Send a signal to each process that is still the same one; one sentence for each says what came of it."""
        ...

    def delete(self, run: Run) -> None:
        """Delete a run's folder, or its progress and control file in the flat layout, and see them gone."""
        ...


# ---------------------------------------------------------------- what is shown


@dataclass(frozen=True, slots=True)
class TreeRow:
    """A process or a thread below a run: kind is PROCESS or THREAD, `depth` from 0, CPU in per cent of one core."""

    kind: str
    depth: int
    identity: Identity
    name: str
    state: str
    cpu_percent: float | None
    rss_bytes: int | None
    gpu_mib: float | None
    threads: int | None


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as it is shown.

    Attributes:
        status: one of STATUSES, or UNKNOWN; reason: why it differs from what the file says, or why it is unknown.
        is_alive: whether its process is there; None when that cannot be seen from here.
        cpu_percent: of one core, over its whole process tree, None until there were two looks.
        rss_bytes, gpu_mib: over the whole tree. processes: how many there are. threads: over all of them.
        tree: its processes and, where they were asked for, their threads; empty when none is there.
        eta_seconds: until the end of the run. rate: batches a second, by the median of the run's own speeds.
        quiet_seconds: how long ago the last batch was, of a run that is alive and has begun with batches.
        verdict: what `judge` says of it.
    """

    run: Run
    status: str
    reason: str = ""
    is_alive: bool | None = None
    cpu_percent: float | None = None
    rss_bytes: int | None = None
    gpu_mib: float | None = None
    processes: int | None = None
    threads: int | None = None
    tree: tuple[TreeRow, ...] = ()
    eta_seconds: float | None = None
    rate: float | None = None
    quiet_seconds: float | None = None
    verdict: Verdict = _NOT_JUDGED


@dataclass(frozen=True, slots=True)
class Usage:
    """What all shown runs use together, and of how much (the machine's, or what the user set): cores, bytes, MiB."""

    cpu_percent: float | None = None
    rss_bytes: int | None = None
    gpu_mib: float | None = None
    max_cores: float | None = None
    max_rss_bytes: float | None = None
    max_gpu_mib: float | None = None


@dataclass(frozen=True, slots=True)
class RunsSnapshot:
    """All runs of a folder at one moment; `error` says why the last look failed, `stale_since` since when (epoch s)."""

    rows: tuple[RunRow, ...]
    usage: Usage
    timestamp: float
    where: str
    error: str | None = None
    stale_since: float | None = None
    machine_error: str | None = None
    gpu_error: str | None = None
    is_refreshing: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """What --max-cpus (cores), --max-ram and --max-gpu (GB of 2**30 bytes) say; None: all the machine has."""

    cpus: float | None = None
    ram_gb: float | None = None
    gpu_gb: float | None = None
