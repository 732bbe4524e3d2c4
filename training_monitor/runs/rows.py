"""Turn a look at a folder of runs, and the look before it, into rows to show; their columns and order. Pure.

The processes of a run are its own one and all below it. A process that left the tree, because its parent ended, is not
assigned to any run. CPU is what was used between the two looks.

Whether a run is alive follows from its file, and from the processes of the machine if its own is among them. A process
is the run's own if host, boot and pid namespace are the same, and pid and start time too. Only then does a missing
process mean that the run was killed: its file was read after the processes, and a run writes how it ended before it
exits. Otherwise the age of its file is all that tells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

from training_monitor.core.errors import SettingsError, TrainingMonitorError, closest
from training_monitor.core.units import format_duration, known_sum
from training_monitor.runs.values import (
    CANCELED,
    FINISHED,
    KILLED,
    LOSSES,
    PROCESS,
    RUNNING,
    THREAD,
    UNKNOWN,
    Estimate,
    FolderLook,
    Limits,
    NaturalKey,
    OwnResources,
    Run,
    RunRow,
    Scalar,
    TreeRow,
    Usage,
    natural_key,
)
from training_monitor.targets.proc_stat import ENDED_STATES, Identity, MachineSample, ProcessSample

_FRESH_SECONDS = 30.0  # a run writes its file every 2 s
_MOST_AHEAD = 60.0  # seconds by which another machine's clock may be ahead
_LOOK_SLACK = 0.1  # between the clocks of the run and of the look, which are read in different ways
_HALTED = {"T": "is suspended: send SIGCONT to resume it", "t": "is held by a debugger"}
_BEFORE_RUN, _BEHIND_RUN = 3600.0, 5.0  # how long before and after the run's stated start its process may have begun
_GIB, _MIB_PER_GIB = 2.0**30, 1024.0
_LEAST_SPAN = 0.2  # seconds between two looks, in ticks of 10 ms
_START_SLACK = 1.0  # seconds before a look in which a process may have begun without being seen
_NOTHING = OwnResources()
_NO_CHANGES: Mapping[str, float] = {}
MIB = 2.0**20
NAN_LOSS = "NaN loss"
_URGENCY = {"failed": 0, "warning": 1, "unknown": 2, "ok": 3}  # by the verdict on a run
_WORDED = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}  # JSON has no numbers for them


class Life(NamedTuple):
    """What is known of a run's life; `reason` says why, `process` is its own process while that exists."""

    status: str
    reason: str = ""
    is_alive: bool | None = None
    process: ProcessSample | None = None

    @property
    def is_halted(self) -> bool:
        """Whether the process exists, but is stopped or held by a debugger."""
        return self.process is not None and self.process.state in _HALTED


def is_same_attempt(one: Run, other: Run) -> bool:
    """Return whether two runs of the same name are the same start of it."""
    return (one.process, one.started_at) == (other.process, other.started_at)


def check_same_attempt(asked: Run, now: Run) -> None:
    """Raise TrainingMonitorError if a name means another training now than when the request was made."""
    if not is_same_attempt(asked, now):
        raise TrainingMonitorError(f"run {now.name!r} was restarted in the meantime", hint="check the run, then retry")


def judge_life(run: Run, look: FolderLook, changed_at: float | None = None) -> Life:
    """Judge one run of a look.

    Args:
        changed_at: when its file was last seen to change, by the clock of the looks; None: it was not.
    """
    life = _see(run, look)
    if run.status is None:
        return life._replace(status=UNKNOWN, reason=run.error or "its file contains no status")
    if run.status != RUNNING:
        return life._replace(status=run.status, reason="")
    if life.is_alive is None:
        return _by_word(run, look.timestamp, life.reason, changed_at)
    if run.error and not life.is_alive:  # its unreadable file may say how it ended
        return Life(UNKNOWN, f"{life.reason}, and its file cannot be read: {run.error}", False)
    if life.status == KILLED and is_complete(run):
        return Life(FINISHED, f"{life.reason}, after the last batch: its exit code is unknown", False)
    return life._replace(reason=life.reason or run.error) if run.error else life


def _by_word(run: Run, now: float, why: str, changed_at: float | None) -> Life:
    """Judge a run whose process cannot be seen: by a change of its file, else by the age that its own clock gives."""
    if run.updated_at is None:
        return Life(UNKNOWN, why)
    age = now - (run.updated_at if changed_at is None else changed_at)
    if age > _FRESH_SECONDS:
        return Life(UNKNOWN, f"{why}; no update for {format_duration(age)}")
    if age < -_MOST_AHEAD:
        return Life(UNKNOWN, f"{why}; its clock is {format_duration(-age)} ahead of this one")
    return Life(RUNNING, f"{why}; its file was written {format_duration(max(0.0, age))} ago")


# ---------------------------------------------------------------- the process


def _see(run: Run, look: FolderLook) -> Life:
    """Return RUNNING if its process exists, KILLED if it is gone, UNKNOWN if that cannot be seen."""
    own, machine = run.process, look.machine
    if own is None:
        return Life(UNKNOWN, "its file does not name its process")
    if machine is None:
        return Life(UNKNOWN, look.machine_error or "the processes are not visible")
    here = machine.identity
    if own.hostname is None or own.hostname != here.hostname:
        return Life(UNKNOWN, f"it runs on {own.hostname or 'an unnamed host'} and is not visible from here")
    if own.boot_id and here.boot_id and own.boot_id != here.boot_id:
        return _before_this_boot(run, own.hostname, look.timestamp, look.timestamp - machine.at)
    if own.pid_namespace and here.pid_namespace and own.pid_namespace != here.pid_namespace:
        return Life(UNKNOWN, "it runs in another PID namespace (a container) and is not visible from here")
    sample = machine.processes.get(own.pid)
    if sample is not None and own.start_ticks in (sample.start_ticks, None):
        booted_at = (look.timestamp if look.processes_at is None else look.processes_at) - machine.at
        if own.start_ticks is not None or _may_be_its_own(run, booted_at + sample.start_ticks / machine.ticks):
            return _by_state(sample)
    if own.start_ticks is None or None in (own.boot_id, here.boot_id, own.pid_namespace, here.pid_namespace):
        if sample is None:
            return Life(
                UNKNOWN,
                f"no process {own.pid} exists here, but the run may belong to another container or an earlier boot",
            )
        return Life(UNKNOWN, f"it is unknown whether process {own.pid} on this machine is its process")
    if sample is None and not machine.sees_all:
        return Life(UNKNOWN, "processes of other users are hidden on this machine (hidepid)")
    if _wrote_since(run, look):
        return Life(UNKNOWN, f"its process {own.pid} was not among the processes that could be read")
    return Life(
        KILLED, f"its process {own.pid} has ended" + (", and another process now has its pid" if sample else ""), False
    )


def _wrote_since(run: Run, look: FolderLook) -> bool:
    """Return whether it wrote, or may have written, its file after the processes were read: it began or ended then."""
    last = run.started_at if run.updated_at is None else run.updated_at
    return look.processes_at is None or (last is not None and last >= look.processes_at - _LOOK_SLACK)


def _by_state(sample: ProcessSample) -> Life:
    if sample.state in ENDED_STATES:
        return Life(KILLED, f"its process {sample.pid} has ended, but its parent has not collected it (zombie)", False)
    if sample.state in _HALTED:
        return Life(RUNNING, f"its process {sample.pid} {_HALTED[sample.state]}", True, sample)
    return Life(RUNNING, "", True, sample)


def _before_this_boot(run: Run, hostname: str, now: float, booted_at: float) -> Life:
    """Judge a run of another boot of a host of this name. If it wrote since this boot, it is another machine."""
    if run.updated_at is not None and run.updated_at < min(booted_at, now - _FRESH_SECONDS):
        return Life(KILLED, "the machine has restarted since then", False)
    return Life(UNKNOWN, f"it runs on another machine that is also named {hostname} and is not visible from here")


def _may_be_its_own(run: Run, began: float) -> bool:
    """Return whether a process fits a file of the earlier ttop, which has no process start: by when it began."""
    return run.started_at is not None and -_BEFORE_RUN <= began - run.started_at <= _BEHIND_RUN


def judge_look(
    look: FolderLook, before: FolderLook | None, limits: Limits, changed_at: Mapping[str, float] = _NO_CHANGES
) -> tuple[tuple[RunRow, ...], Usage]:
    """Judge every run of a look, and add up what they use.

    Args:
        look: its `timestamp` is by the clock of the machine that was looked at.
        before: an earlier look at the same folder, for CPU shares. Without one, or with one just before, the run's own
            measurement is used for its CPU, unless there are processes below it.
        limits: what the usage is compared with; what they leave open is all the machine has.
        changed_at: by the path of a run, when its file was last seen to change, by the clock of the looks.

    Returns:
        rows in the order of the look's runs, and the usage of all together, in which no process counts twice.
    """
    view = _view(look.machine, before.machine if before else None)
    rows = tuple(_row(run, look, view, changed_at.get(run.path)) for run in with_titles(look.runs))
    return rows, _usage(rows, look.machine, limits)


# ---------------------------------------------------------------- the machine


class _View(NamedTuple):
    """A machine with the children of its processes, and `seconds` before it an earlier sample; None without one."""

    machine: MachineSample
    children: Mapping[int, Sequence[ProcessSample]]
    before: MachineSample | None
    seconds: float


def _view(machine: MachineSample | None, before: MachineSample | None) -> _View | None:
    if machine is None:
        return None
    seconds = machine.at - before.at if before else 0.0
    if before and (machine.identity.boot_id != before.identity.boot_id or seconds < _LEAST_SPAN):
        before = None
    return _View(machine, _children(machine), before, seconds)


def _children(machine: MachineSample) -> Mapping[int, Sequence[ProcessSample]]:
    """Return the children of every process that has some, oldest first."""
    children: dict[int, list[ProcessSample]] = {}
    for process in sorted(machine.processes.values(), key=lambda each: (each.start_ticks, each.pid)):
        children.setdefault(process.parent, []).append(process)
    return children


def _cpu_percent(now: ProcessSample, before: ProcessSample | None, view: _View) -> float | None:
    """Return the per cent of one core since the look before; all that a process has used if it began since then."""
    if view.before is None:
        return None
    used, ticks = now.cpu_ticks, view.machine.ticks
    if before is not None and before.start_ticks == now.start_ticks:
        used -= before.cpu_ticks
    elif now.start_ticks / ticks < view.before.at - _START_SLACK:
        return None  # it existed, but was not seen
    return max(0, used) / ticks / view.seconds * 100.0


# ---------------------------------------------------------------- the tree


def _tree(root: ProcessSample, view: _View) -> tuple[TreeRow, ...]:
    """Return a process, its threads if they were read, and all processes below it, depth first."""
    rows: list[TreeRow] = []
    seen: set[int] = set()
    waiting = [(root, 0)]
    while waiting:
        process, depth = waiting.pop()
        if process.pid in seen:
            continue
        seen.add(process.pid)
        rows += [_process_row(process, depth, view), *_thread_rows(process, depth + 1, view)]
        waiting += [(child, depth + 1) for child in reversed(view.children.get(process.pid, ()))]
    return tuple(rows)


def _process_row(process: ProcessSample, depth: int, view: _View) -> TreeRow:
    machine, pid = view.machine, process.pid
    return TreeRow(
        PROCESS,
        depth,
        _identity(process, machine.identity),
        process.name,
        process.state,
        _cpu_percent(process, view.before.processes.get(pid) if view.before else None, view),
        process.rss_bytes,
        machine.gpu_mib.get(pid) if machine.gpu_mib is not None else None,
        process.threads,
    )


def _thread_rows(process: ProcessSample, depth: int, view: _View) -> list[TreeRow]:
    """Return the threads of a process; `identity.pid` is the id of the thread, its process is the next one above."""
    here = view.machine.identity
    known = view.before.threads.get(process.pid) if view.before else None
    before = {thread.pid: thread for thread in known or ()}
    rows = []
    for thread in view.machine.threads.get(process.pid, ()):
        cpu = None if known is None else _cpu_percent(thread, before.get(thread.pid), view)
        identity = _identity(thread, here)
        rows.append(TreeRow(THREAD, depth, identity, thread.name, thread.state, cpu, None, None, None))
    return rows


def _identity(process: ProcessSample, here: Identity) -> Identity:
    return Identity(process.pid, process.start_ticks, here.hostname, here.boot_id, here.pid_namespace)


# ---------------------------------------------------------------- one run


def with_titles(runs: Sequence[Run]) -> list[Run]:
    """Return the runs by the names that their scripts gave them, within a group, where no other run has the same."""
    titles = [_group(run) + run.title if run.title else run.name for run in runs]
    counts = Counter(word for run, title in zip(runs, titles) for word in {run.name, title})
    return [replace(run, name=title) if counts[title] == 1 else run for run, title in zip(runs, titles)]


def _group(run: Run) -> str:
    return run.name[: run.name.rstrip("/").rfind("/") + 1]


def _row(run: Run, look: FolderLook, view: _View | None, changed_at: float | None) -> RunRow:
    life = judge_life(run, look, changed_at)
    goes_on = life.status == RUNNING
    run = run if life.status == FINISHED or (goes_on and not life.is_halted) else without_outlook(run)
    own = run.resources if goes_on else _NOTHING
    tree = _tree(life.process, view) if life.process and view else ()
    processes = [row for row in tree if row.kind == PROCESS]
    gone = 0 if life.is_alive is False else None
    cpu, gpu = known_sum(row.cpu_percent for row in processes), known_sum(row.gpu_mib for row in processes)
    rss, threads = known_sum(row.rss_bytes for row in processes), known_sum(row.threads for row in processes)
    return RunRow(
        run,
        life.status,
        life.reason,
        life.is_alive,
        cpu_percent=own.cpu_percent if cpu is None and len(processes) <= 1 else cpu,
        rss_bytes=own.rss_bytes if rss is None else int(rss),
        gpu_mib=own.gpu_mib if gpu is None else gpu,
        processes=len(processes) or gone,
        threads=(own.threads if gone is None else gone) if threads is None else int(threads),
        tree=tree,
        eta_seconds=run.run.remaining if goes_on else None,
        rate=run.training.rate if run.run.rate is None else run.run.rate,
        quiet_seconds=_quiet(run, look.timestamp, life.is_alive is None, changed_at) if goes_on else None,
    )


def _quiet(run: Run, now: float, is_elsewhere: bool, changed_at: float | None) -> float | None:
    """Return the seconds since the last batch: on another machine up to the last write, by its own clock."""
    if run.step_at is None:
        return None
    if not is_elsewhere or run.updated_at is None:
        return max(0.0, now - run.step_at)
    age = now - (run.updated_at if changed_at is None else changed_at)
    return max(0.0, run.updated_at - run.step_at) + (age if 0.0 <= age <= _FRESH_SECONDS else 0.0)


def without_outlook(run: Run) -> Run:
    """Return the run without its estimates of the remaining time: they are from before it stood still."""
    return replace(
        run,
        run=_gone_by(run.run),
        epoch_time=_gone_by(run.epoch_time),
        training=_gone_by(run.training),
        validation=_gone_by(run.validation),
    )


def _gone_by(span: Estimate) -> Estimate:
    return Estimate(span.rate, span.elapsed)


# ---------------------------------------------------------------- all runs


def _usage(rows: Iterable[RunRow], machine: MachineSample | None, limits: Limits) -> Usage:
    uses, counted = [], set[int]()
    for row in rows:
        every = [each for each in row.tree if each.kind == PROCESS]
        processes = [each for each in every if each.identity.pid not in counted]
        counted.update(each.identity.pid for each in processes)
        if processes:
            uses.append(_use(processes, row if len(processes) == len(every) else None))
        elif not row.tree and row.status in (RUNNING, UNKNOWN) and _is_here(row.run.process, machine):
            uses.append(_use((), row))
    rss = _total(use.rss_bytes for use in uses)
    cores = machine.cores if machine else None
    memory, gpu_memory = (machine.memory_bytes, machine.gpu_total_mib) if machine else (None, None)
    return Usage(
        _total(use.cpu_percent for use in uses),
        None if rss is None else int(rss),
        _total(use.gpu_mib for use in uses),
        cores if limits.cpus is None else limits.cpus,
        memory if limits.ram_gb is None else limits.ram_gb * _GIB,
        gpu_memory if limits.gpu_gb is None else limits.gpu_gb * _MIB_PER_GIB,
    )


def _use(processes: Sequence[TreeRow], row: RunRow | None) -> OwnResources:
    """Return what these processes use; unmeasured values are taken from the run's row, if that covers them."""
    own = OwnResources(row.cpu_percent, row.rss_bytes, row.gpu_mib) if row else _NOTHING
    cpu, gpu = known_sum(each.cpu_percent for each in processes), known_sum(each.gpu_mib for each in processes)
    rss = known_sum(each.rss_bytes for each in processes)
    return OwnResources(
        own.cpu_percent if cpu is None else cpu,
        own.rss_bytes if rss is None else int(rss),
        own.gpu_mib if gpu is None else gpu,
    )


def _total(values: Iterable[float | None]) -> float | None:
    """Return the sum of the known values; 0 for no values, None if all are unknown."""
    uses = list(values)
    return known_sum(uses) if uses else 0.0


def _is_here(process: Identity | None, machine: MachineSample | None) -> bool:
    """Return whether a run's usage belongs to the machine that was looked at, as far as is known."""
    if process is None or machine is None:
        return True
    here = machine.identity
    if process.boot_id and here.boot_id:
        return process.boot_id == here.boot_id
    return process.hostname in (None, here.hostname)


# ---------------------------------------------------------------- progress


def step_of(run: Run) -> int | None:
    """Return the step of the whole run; if the file has none, as with the earlier ttop, by epoch and batch."""
    if run.step is not None or run.batch is None:
        return run.step
    before = max(0, (run.epoch or 1) - 1)
    if before and run.total_batches is None:
        return None
    return before * (run.total_batches or 0) + run.batch


def describe_attempts(run: Run) -> str:
    """Describe which attempt this is, and how those before it ended; "" for the first one."""
    ends = (each.status + (f" at step {each.step}" if each.step else "") for each in run.earlier)
    return f"{run.attempt}, after {', '.join(ends)}" if run.earlier else ""


def total_steps_of(run: Run, step: int | None) -> int | None:
    """Return the total steps of the run, counted like its steps: from its start, even within an epoch."""
    if run.total_steps is not None:
        return run.total_steps
    if step is None or run.batch is None or run.total_batches is None or run.epoch is None or run.total_epochs is None:
        return None
    return step + max(0, run.total_batches - run.batch) + max(0, run.total_epochs - run.epoch) * run.total_batches


def is_complete(run: Run) -> bool:
    """Return whether the last batch of a run has begun, and no validation since is unfinished, by what it announced."""
    if run.phase == "validation" and (run.validation_batch or 0) < (run.total_validation_batches or inf):
        return False
    if run.total_steps:
        return (run.step or 0) >= run.total_steps
    if not run.total_epochs or not run.total_batches:
        return False
    return (run.epoch or 0) >= run.total_epochs and (run.batch or 0) >= run.total_batches


def epochs_done(run: Run) -> float | None:
    """Return the epochs done, with the part of the current one if known.

    A validation counts as a part of the batch before it, so that each of its own batches shows.
    """
    if run.epoch is None:
        return None
    validated = run.validation_batch or 0
    part = validated / (max(validated, run.total_validation_batches or 0) + 1)
    done = (max(0, (run.batch or 0) - 1) + part) / run.total_batches if run.total_batches else part
    return max(0, run.epoch - 1) + min(1.0, done)


def percent_done(row: RunRow) -> float | None:
    """Return how much of the whole run is done in per cent: by its steps, else by its epochs; None if unknown."""
    run = row.run
    step = step_of(run)
    total = total_steps_of(run, step)
    if step is not None and total:
        return 100.0 * min(step, total) / total
    epochs = epochs_done(run)
    return 100.0 * min(1.0, epochs / run.total_epochs) if epochs is not None and run.total_epochs else None


# ---------------------------------------------------------------- columns


def loss_of(run: Run) -> float | None:
    """Return the newest loss of a run, by the first of LOSSES: nan and infinities are values, None means unknown."""
    for name in LOSSES:
        loss = metric_value(run.metrics.get(name))
        if isinstance(loss, int | float) and not isinstance(loss, bool):
            return float(loss)
    return None


def losses_of(run: Run) -> tuple[float | None, ...]:
    """Return the loss over the whole run, by the first of LOSSES that has a history."""
    return next((run.history[name].values for name in LOSSES if name in run.history), ())


def metric_value(value: Scalar) -> Scalar:
    """Return the value of a metric; nan and infinities, which a progress file has as words, as numbers."""
    return _WORDED.get(value, value) if isinstance(value, str) else value


def status_word(row: RunRow) -> str:
    """Return the status of a run; of one that is RUNNING and not well, what the verdict on it says."""
    state = row.verdict.state
    if (row.status, state, row.verdict.verdict) == (RUNNING, "running", "failed"):
        return NAN_LOSS
    return row.status if row.status != RUNNING or state in ("running", "unknown") else state


class RunColumn(NamedTuple):
    """A column of `top`: what it shows of a run on the screen, and what CSV files have of it.

    Attributes:
        title: on the screen, to sort by, and in CSV files.
        value: by which runs are sorted; None: they cannot be. Times in seconds, CPU in per cent of one core, RAM in MB
            of 2**20 bytes, GPU in MiB, Rate in batches a second, Done in per cent; None means unknown.
        unit: how the screen shows a value: text, number, rate, percent, memory, duration, whole; drawn: see ui/top.
        least, most: its width on the screen, in cells; 0: it is not there.
        heading: above the column, instead of the title. align: < or >.
        total: what a value counts up to, which is shown behind it.
        place: in CSV files, never another column's; 0: they have what it follows from.
    """

    title: str
    value: Callable[[RunRow], Scalar] | None = None
    unit: str = "text"
    least: int = 0
    most: int = 0
    heading: str = ""
    align: str = ">"
    total: Callable[[Run], int | None] | None = None
    place: int = 0


def _spans(title: str, place: int, part: Callable[[Run], Estimate]) -> tuple[RunColumn, ...]:
    """Return the columns of one estimate."""
    parts: dict[str, Callable[[RunRow], Scalar]] = {
        "Elapsed": lambda row: part(row.run).elapsed,
        "Remaining": lambda row: part(row.run).remaining,
        "Total": lambda row: part(row.run).total,
    }
    return tuple(
        RunColumn(f"{title} {name}", of, "duration", 7, 9, place=number)
        for number, (name, of) in enumerate(parts.items(), place)
    )


# In the order of the screen. The first ones, up to GPU, fit beside a name on a screen of 80 columns.
RUN_COLUMNS = (
    RunColumn("Run Name", lambda row: row.run.name, place=1),
    RunColumn("Status", lambda row: row.status, place=2),
    RunColumn("Status", status_word, "drawn", 8, 11, align="<"),
    RunColumn("Done", percent_done, "drawn", 4, 4),
    RunColumn("Rate", lambda row: row.rate, "rate", 6, 8, place=26),
    RunColumn("ETA", lambda row: row.eta_seconds, "duration", 6, 9, place=29),
    RunColumn("Loss", lambda row: loss_of(row.run), "number", 5, 8, place=28),
    RunColumn("CPU", lambda row: row.cpu_percent, "percent", 4, 7, place=19),
    RunColumn("RAM", lambda row: None if row.rss_bytes is None else row.rss_bytes / MIB, "memory", 7, 7, "RAM GiB",
              place=20),
    RunColumn("GPU", lambda row: row.gpu_mib, "memory", 7, 7, "GPU GiB", place=21),
    RunColumn("Phase", lambda row: row.run.phase, "text", 10, 20, align="<", place=3),
    RunColumn("Epoch", lambda row: row.run.epoch, "whole", 5, 17, total=lambda run: run.total_epochs, place=4),
    RunColumn("Batch", lambda row: row.run.batch, "whole", 9, 17, total=lambda run: run.total_batches, place=5),
    RunColumn("Val Batch", lambda row: row.run.validation_batch, "whole", 9, 17,
              total=lambda run: run.total_validation_batches, place=27),
    RunColumn("Loss Curve", None, "drawn", 12, 12, align="<"),
    *_spans("Run", 6, lambda run: run.run),
    *_spans("Epoch", 9, lambda run: run.epoch_time),
    *_spans("Train", 12, lambda run: run.training),
    RunColumn("Val Time", lambda row: row.run.validation_seconds, "duration", 7, 9, place=15),
    *_spans("Val", 16, lambda run: run.validation),
    RunColumn("CPU Share", None, "drawn", 9, 9),
    RunColumn("RAM Share", None, "drawn", 9, 9),
    RunColumn("GPU Share", None, "drawn", 9, 9),
    RunColumn("Procs", lambda row: row.processes, "whole", 9, 9, "Processes", place=22),
    RunColumn("Threads", lambda row: row.threads, "whole", 7, 7, place=23),
    RunColumn("PID", lambda row: row.run.process.pid if row.run.process else None, "whole", 3, 10, place=24),
    RunColumn("Wandb URL", lambda row: row.run.wandb_url, "text", 9, 60, align="<", place=25),
    RunColumn("State", lambda row: None if row.verdict.state == "unknown" else row.verdict.state, place=30),
)  # fmt: skip
IN_FILES = sorted((each for each in RUN_COLUMNS if each.place), key=lambda each: each.place)
COLUMNS: Mapping[str, Callable[[RunRow], Scalar]] = {each.title: each.value for each in RUN_COLUMNS if each.value}


def filter_rows(rows: Sequence[RunRow], status: str | None, words: str) -> tuple[RunRow, ...]:
    """Return the rows of this status (None: any) whose names contain all the words, ignoring case."""
    wanted = words.casefold().split()
    return tuple(
        row for row in rows if status in (None, row.status) and all(word in row.run.name.casefold() for word in wanted)
    )


def worst_first(rows: Iterable[RunRow]) -> list[RunRow]:
    """Sort rows by who needs attention: failed and stalled runs, warnings, unknown ones, and those that are well.

    A run that a person ended is well. Among equals come first those that are RUNNING; then the given order stays.
    """

    def place(row: RunRow) -> tuple[int, bool]:
        level = "ok" if row.status == CANCELED else row.verdict.verdict
        return _URGENCY[level], row.status != RUNNING

    return sorted(rows, key=place)


def sort_rows(rows: Sequence[RunRow], column: str, descending: bool) -> tuple[RunRow, ...]:
    """Sort by the values of a column of COLUMNS; equals by name. Unknown values come last in both directions.

    Raises:
        SettingsError: there is no such column.
    """
    value_of = COLUMNS.get(column)
    if value_of is None:
        raise SettingsError("column", column, closest(column, tuple(COLUMNS)))
    named = sorted(rows, key=lambda row: natural_key(row.run.name))
    values = [(value_of(row), row) for row in named]
    known = [(_order(value), row) for value, row in values if not _is_unknown(value)]
    known.sort(key=lambda pair: pair[0], reverse=descending)
    return (*(row for _, row in known), *(row for value, row in values if _is_unknown(value)))


def _is_unknown(value: Scalar) -> bool:
    return value is None or value != value or value == ""


def _order(value: Scalar) -> tuple[float, NaturalKey]:
    """Sort numbers before texts, so that a mixed column has an order too."""
    return (float("inf"), natural_key(value)) if isinstance(value, str) else (value or 0, ())
