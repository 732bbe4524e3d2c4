"""The values of `training-monitor top`: what a run wrote of itself, and what its machine says of its processes. Pure.

None means unknown, never zero. Only its run writes a progress file: readers never do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from training_monitor.core.fields import PublicValue
from training_monitor.core.regex import regex
from training_monitor.core.values import Verdict
from training_monitor.targets.proc_stat import Identity, MachineSample

RUNNING, FINISHED, FAILED, CANCELED, KILLED = "RUNNING", "FINISHED", "FAILED", "CANCELED", "KILLED"
UNKNOWN = "UNKNOWN"  # the file says RUNNING, but whether that still holds cannot be seen from here
PROCESS, THREAD = "P", "T"  # kinds of the rows of a tree
LOSSES = ("loss", "train_loss", "training_loss")  # the metrics that are the loss of the training
STATUSES = (RUNNING, FINISHED, FAILED, CANCELED, KILLED)
EDITABLE_TYPES = ("float", "int", "bool", "str")

Scalar = bool | int | float | str | None
NaturalKey = tuple[tuple[int, int, str], ...]
_NOT_JUDGED = Verdict("unknown", "unknown", "not judged yet")
_DIGITS = regex(r"([0-9]{1,300})")  # a file name has no more


def natural_key(text: str) -> NaturalKey:
    """Return a sort key for names: `run 9` comes before `run 10`, and case only decides between equals.

    >>> sorted(["run10", "Run9", "run1"], key=natural_key)
    ['run1', 'Run9', 'run10']
    """
    parts = enumerate(_DIGITS.split(text.casefold()))
    return (*((0, int(part), "") if at % 2 else (1, 0, part) for at, part in parts if part), (-1, 0, text))


# ---------------------------------------------------------------- what a run writes


@dataclass(frozen=True, slots=True)
class Estimate:
    """One span of a run: `rate` in batches a second, the others in seconds; `total` is elapsed plus remaining."""

    rate: float | None = None
    elapsed: float | None = None
    remaining: float | None = None
    total: float | None = None


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that writes a run's files, and its place among the processes of multiprocessing.

    Attributes:
        parent: the process from which multiprocessing started it; None if it did not.
        member: its numbers among the children of that process, and of those above.
    """

    process: Identity
    parent: Identity | None = None
    member: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Variable:
    """A value of a script that is shown, and may be edited while the run is alive if its type is editable.

    Attributes:
        value: the one that the run uses now; its text if the type is not editable.
        type: name of its Python type: one of EDITABLE_TYPES, or another (tuple, NoneType).
        edit: id of the last edit that the run has handled; error: why it was not applied, None if it was.
        pending: text of an edit in the control file that the run has not handled yet, None if there is none.
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
    """The resources that a run measured of itself: CPU in percent of one core, memory in bytes, GPU memory in MiB."""

    cpu_percent: float | None = None
    rss_bytes: int | None = None
    gpu_mib: float | None = None
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class MetricHistory:
    """The steps and the values of a metric over a whole run, oldest first, at most 64; None: not known."""

    steps: tuple[int, ...] = ()
    values: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class EarlierAttempt:
    """How an earlier process of a run ended (one of STATUSES), when, and at which step; None: not known."""

    status: str
    started_at: float | None = None
    ended_at: float | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Run(PublicValue):
    """The content of one progress file. Times are epoch seconds.

    Attributes:
        name: the name of the run. path: the path of its progress file. control_path: the file to which edits of the run
            are written.
        folder: the run's own folder; None if all runs share one folder.
        status: the status in the file, one of STATUSES; None if the file has none.
        phase: loading, training, validation, or a name chosen by the script.
        epochs_from_zero: whether the script numbers its epochs from 0; here they are numbered from 1.
        batch, validation_batch: the number of the batch in this epoch, counted from 1. step, total_steps: counted over
            the whole run, if the run states its total.
        run, epoch_time, training, validation: time estimates for the whole run, for this epoch, and for the two parts
            of the epoch.
        validation_seconds: the duration of the last validation.
        history: the history of each metric over the whole run.
        config: the settings of the run, as the script passed them at its start.
        attempt: 1 for the first process that writes this file, 2 for the next one, and so on. earlier: the attempts
            before this one, oldest first, at most 10.
        title: the name that the script gave the run.
        started_at, ended_at, updated_at, step_at: the times of the start, the end, the last write and the last batch.
        error: why the file cannot be read. If set, all other values are from the last successful read.
    """

    name: str
    path: str
    control_path: str
    folder: str | None = None
    status: str | None = None
    phase: str | None = None
    epoch: int | None = None
    total_epochs: int | None = None
    epochs_from_zero: bool = False
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
    history: Mapping[str, MetricHistory] = field(default_factory=dict)
    config: Mapping[str, Scalar] = field(default_factory=dict)
    attempt: int = 1
    earlier: tuple[EarlierAttempt, ...] = ()
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
    title: str | None = None
    resources: OwnResources = OwnResources()
    error: str | None = None

    @property
    def last_words(self) -> str | None:
        """Return the script's final message: an error message, otherwise an exit code."""
        return self.error_message or (f"exit code {self.exit_code}" if self.exit_code else None)


# ---------------------------------------------------------------- what the machine says


class FolderLook(NamedTuple):
    """One look at a folder of runs and at the machine it is on.

    The processes are read first, and the files after them: a run writes how it ended before its process exits.

    Attributes:
        runs: in natural order of their names.
        machine: None if it has no /proc; `machine_error` says why.
        timestamp: epoch seconds by the clock of the machine, when its files were read.
        processes_at: when reading the processes began, by the same clock; None if unknown.
    """

    runs: tuple[Run, ...]
    machine: MachineSample | None
    timestamp: float
    machine_error: str | None = None
    processes_at: float | None = None


class OutputChunk(NamedTuple):
    """A piece of a file: `data` are the bytes from `start` on; `size` is that of the whole file at that moment."""

    size: int
    start: int
    data: bytes


class RunSize(NamedTuple):
    """What deleting a run removes: the number of files, and the bytes that they take on the disk.

    `kept` are the paths of its outputs that are elsewhere and stay, as far as that can be told from here.
    """

    files: int
    bytes: int
    kept: tuple[str, ...] = ()


# ---------------------------------------------------------------- what is shown


@dataclass(frozen=True, slots=True)
class TreeRow:
    """A process or a thread below a run: kind is PROCESS or THREAD, `depth` from 0, CPU in percent of one core."""

    kind: str
    depth: int
    identity: Identity
    name: str
    state: str
    cpu_percent: float | None
    rss_bytes: int | None
    gpu_mib: float | None
    threads: int | None


@dataclass(frozen=True, slots=True, repr=False)
class RunRow(PublicValue):
    """A run as it is displayed.

    Attributes:
        status: one of STATUSES, or UNKNOWN. reason: why this differs from the status in the file, or why it is unknown.
        is_alive: whether the run's process exists; None if this machine cannot find out.
        cpu_percent: CPU usage of the whole process tree, in percent of one core; None until there have been two looks.
        rss_bytes, gpu_mib: memory usage of the whole process tree. processes, threads: the numbers of processes and
            threads in the tree.
        tree: the processes and, if requested, their threads; empty if there are none.
        eta_seconds: time until the end of the run. rate: median of the run's own speeds, in batches per second.
        quiet_seconds: time since the last batch began, if the run is alive and has begun its first batch.
        verdict: the result of `judge`.
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
    """The usage of all shown runs together, and its limits (the machine's, or the user's): cores, bytes, MiB."""

    cpu_percent: float | None = None
    rss_bytes: int | None = None
    gpu_mib: float | None = None
    max_cores: float | None = None
    max_rss_bytes: float | None = None
    max_gpu_mib: float | None = None


@dataclass(frozen=True, slots=True, repr=False)
class RunsSnapshot(PublicValue):
    """All runs of a folder at `timestamp`.

    `error` is the reason why the last look failed, and `stale_since` is the time of the first failure, in epoch
    seconds.
    """

    rows: tuple[RunRow, ...]
    usage: Usage
    timestamp: float
    where: str
    error: str | None = None
    stale_since: float | None = None
    machine_error: str | None = None
    gpu_error: str | None = None
    is_refreshing: bool = False


class Message(NamedTuple):
    """What came of an action, or of a file that was written: `at` is in epoch seconds by the local clock."""

    at: float
    text: str


class Limits(NamedTuple):
    """The values of --max-cpus (cores), --max-ram and --max-gpu (GB of 2**30 bytes); None: all the machine has."""

    cpus: float | None = None
    ram_gb: float | None = None
    gpu_gb: float | None = None
