"""From a look at a folder of runs and the look before it to what is shown of them. Pure.

The processes of a run are its own one and all below it. One that left the tree, because its parent ended, is not
guessed to be of a run. CPU is what was used between the two looks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from training_monitor.policy.run_life import judge_life
from training_monitor.policy.run_values import (
    FINISHED,
    PROCESS,
    RUNNING,
    THREAD,
    UNKNOWN,
    Estimate,
    FolderLook,
    Identity,
    Limits,
    MachineSample,
    OwnResources,
    ProcessSample,
    Run,
    RunRow,
    TreeRow,
    Usage,
)

_GIB, _MIB_PER_GIB = 2.0**30, 1024.0
_LEAST_SPAN = 0.2  # seconds between two looks, in ticks of 10 ms
_START_SLACK = 1.0  # seconds in which a process may have begun before a look that has not seen it
_NOTHING = OwnResources()


def judge_look(look: FolderLook, before: FolderLook | None, limits: Limits) -> tuple[tuple[RunRow, ...], Usage]:
    """Judge every run of a look, and add up what they use.

    Args:
        look: its `timestamp` is by the clock of the machine that was looked at.
        before: an earlier look at the same folder, for CPU shares. Without one, or with one just before, what a run
            measured of itself stands for its CPU, unless there are processes below it.
        limits: of what the uses are parts; what they leave open is all the machine has.

    Returns:
        rows in the order of the look's runs, and the use of all together, in which no process counts twice.
    """
    machine = look.machine
    view = _View(machine, _span(machine, before.machine if before else None), _children(machine)) if machine else None
    rows = tuple(_row(run, look, view) for run in look.runs)
    return rows, _usage(rows, machine, limits)


# ---------------------------------------------------------------- the machine


@dataclass(frozen=True, slots=True)
class _Span:
    """The time from an earlier sample of the same machine to this one, `seconds` long."""

    before: MachineSample
    seconds: float


@dataclass(frozen=True, slots=True)
class _View:
    machine: MachineSample
    span: _Span | None
    children: Mapping[int, Sequence[ProcessSample]]


def _span(machine: MachineSample | None, before: MachineSample | None) -> _Span | None:
    if machine is None or before is None or machine.identity.boot_id != before.identity.boot_id:
        return None
    return _Span(before, machine.at - before.at) if machine.at - before.at >= _LEAST_SPAN else None


def _children(machine: MachineSample) -> Mapping[int, Sequence[ProcessSample]]:
    """The children of every process that has some, oldest first."""
    children: dict[int, list[ProcessSample]] = {}
    for process in sorted(machine.processes.values(), key=lambda each: (each.start_ticks, each.pid)):
        children.setdefault(process.parent, []).append(process)
    return children


def _cpu_percent(now: ProcessSample, before: ProcessSample | None, span: _Span | None, ticks: int) -> float | None:
    """Of one core since the look before; all that a process has used when it began since then."""
    if span is None:
        return None
    used = now.cpu_ticks
    if before is not None and before.start_ticks == now.start_ticks:
        used -= before.cpu_ticks
    elif now.start_ticks / ticks < span.before.at - _START_SLACK:
        return None  # it was there, and was not seen
    return max(0, used) / ticks / span.seconds * 100.0


# ---------------------------------------------------------------- the tree


def _tree(root: ProcessSample, view: _View) -> tuple[TreeRow, ...]:
    """A process, its threads where they were asked for, and all processes below it, depth first."""
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
    before = view.span.before.processes.get(pid) if view.span else None
    return TreeRow(
        PROCESS,
        depth,
        _identity(process, machine.identity),
        process.name,
        process.state,
        _cpu_percent(process, before, view.span, machine.ticks),
        process.rss_bytes,
        machine.gpu_mib.get(pid) if machine.gpu_mib is not None else None,
        process.threads,
    )


def _thread_rows(process: ProcessSample, depth: int, view: _View) -> list[TreeRow]:
    """The threads of a process; `identity.pid` is the id of the thread, and its process is the next one above."""
    machine, span = view.machine, view.span
    known = span.before.threads.get(process.pid) if span else None
    before = {thread.pid: thread for thread in known or ()}
    return [
        TreeRow(
            THREAD,
            depth,
            _identity(thread, machine.identity),
            thread.name,
            thread.state,
            _cpu_percent(thread, before.get(thread.pid), span if known is not None else None, machine.ticks),
            None,
            None,
            None,
        )
        for thread in machine.threads.get(process.pid, ())
    ]


def _identity(process: ProcessSample, here: Identity) -> Identity:
    return Identity(process.pid, process.start_ticks, here.hostname, here.boot_id, here.pid_namespace)


# ---------------------------------------------------------------- one run


def _row(run: Run, look: FolderLook, view: _View | None) -> RunRow:
    life = judge_life(run, look)
    goes_on = life.status == RUNNING
    run = run if life.status == FINISHED or (goes_on and not life.is_halted) else without_outlook(run)
    own = run.resources if goes_on else _NOTHING
    tree = _tree(life.process, view) if life.process and view else ()
    processes = [row for row in tree if row.kind == PROCESS]
    gone = 0 if life.is_alive is False else None
    cpu, gpu = _sum(row.cpu_percent for row in processes), _sum(row.gpu_mib for row in processes)
    rss, threads = _sum(row.rss_bytes for row in processes), _sum(row.threads for row in processes)
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
        quiet_seconds=max(0.0, look.timestamp - run.step_at) if goes_on and run.step_at is not None else None,
    )


def without_outlook(run: Run) -> Run:
    """The run without what it said of the time that is left: its file was written before it stood still."""
    return replace(
        run,
        run=_gone_by(run.run),
        epoch_time=_gone_by(run.epoch_time),
        training=_gone_by(run.training),
        validation=_gone_by(run.validation),
    )


def _gone_by(span: Estimate) -> Estimate:
    return Estimate(span.rate, span.elapsed)


def _sum(values: Iterable[float | None]) -> float | None:
    """The sum of what is known; None when nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


# ---------------------------------------------------------------- all runs


def _usage(rows: Iterable[RunRow], machine: MachineSample | None, limits: Limits) -> Usage:
    uses, counted = [], set[int]()
    for row in rows:
        processes = [each for each in row.tree if each.kind == PROCESS and each.identity.pid not in counted]
        counted.update(each.identity.pid for each in processes)
        if processes:
            uses.append(_use(processes, row if processes[0] is row.tree[0] else None))
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
    """What these processes use; what nobody measured of them is as their run's row says, where it is about them."""
    own = OwnResources(row.cpu_percent, row.rss_bytes, row.gpu_mib) if row else _NOTHING
    cpu, gpu = _sum(each.cpu_percent for each in processes), _sum(each.gpu_mib for each in processes)
    rss = _sum(each.rss_bytes for each in processes)
    return OwnResources(
        own.cpu_percent if cpu is None else cpu,
        own.rss_bytes if rss is None else int(rss),
        own.gpu_mib if gpu is None else gpu,
    )


def _total(values: Iterable[float | None]) -> float | None:
    """The sum of what is known; None when there is something and nothing of it is known."""
    uses = list(values)
    return _sum(uses) if uses else 0.0


def _is_here(process: Identity | None, machine: MachineSample | None) -> bool:
    """Whether what a run uses is of the machine that was looked at, as far as anybody knows."""
    if process is None or machine is None:
        return True
    here = machine.identity
    if process.boot_id and here.boot_id:
        return process.boot_id == here.boot_id
    return process.hostname in (None, here.hostname)
