"""Measure GPU memory by process, and the resources of a run's own process.

nvidia-smi is asked in a thread: it may take seconds, and only the first look waits for it. A run measures its CPU,
memory and busiest threads from /proc.
"""

from __future__ import annotations

import os
import selectors as selectors  # what starts nvidia-smi needs it, and must not import it in a thread: it executes text
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.engine import start_thread
from training_monitor.core.errors import CommandFailed, ToolNotFound, TrainingMonitorError
from training_monitor.core.models import GpuProcess, GpuTable
from training_monitor.look.nvidia_smi import GPU_FIELDS_MINIMAL, PROCESS_FIELDS, parse_gpu_processes, parse_gpus
from training_monitor.runs.values import OwnResources
from training_monitor.targets.proc_stat import MachineSample, ProcessSample
from training_monitor.targets.procfs import read_process, read_threads
from training_monitor.targets.transport import LocalTransport, Transport

INTERVAL, LIMIT = 2.0, 5.0
INTERVAL_WITHOUT = 60.0  # if there is no nvidia-smi
OLDEST = 15.0  # seconds for which an answer is shown
BUSIEST = 5
GPU_INTERVAL = 10.0
_MOST_NAME = 64
Busiest = list[dict[str, str | int | float]]


class GpuMemory(NamedTuple):
    """Used GPU memory by pid over all GPUs, and `total` that of the GPUs, in MiB; None means unknown, see `error`."""

    by_pid: Mapping[int, float] | None = None
    total: float | None = None
    error: str | None = None


def add_up_gpus(table: GpuTable, processes: Sequence[GpuProcess]) -> GpuMemory:
    """Add up what processes use and what GPUs have; a sum with an unknown part is unknown."""
    if table.error:
        return GpuMemory(error=f"nvidia-smi: {table.error}")
    by_pid: dict[int, float] = {}
    silent = None
    for each in processes:
        if each.memory_used_mb is None:
            silent = each.pid
        else:
            by_pid[each.pid] = by_pid.get(each.pid, 0.0) + each.memory_used_mb
    totals = [gpu.memory_total_mb for gpu in table.gpus if gpu.memory_total_mb is not None]
    return GpuMemory(
        by_pid if silent is None else None,
        sum(totals) if totals and len(totals) == len(table.gpus) else None,
        None if silent is None else f"nvidia-smi does not report the GPU use of process {silent}",
    )


def with_gpus(machine: MachineSample, memory: GpuMemory) -> MachineSample:
    """Add the memory of the GPUs to a sample."""
    return replace(machine, gpu_mib=memory.by_pid, gpu_total_mib=memory.total, gpu_error=memory.error)


class GpuReader:
    """A reader that asks at most every `interval` seconds, when `latest` is called, and never twice at once."""

    def __init__(
        self, *, transport: Transport | None = None, clock: Clock = SYSTEM_CLOCK, interval: float = INTERVAL
    ) -> None:
        self._transport, self._clock, self._interval = transport or LocalTransport(), clock, interval
        self._lock = threading.Lock()
        self._is_asking = False
        self._has_asked = threading.Event()  # set after the first question, whatever the result
        self._next = clock.monotonic()  # when to ask again
        self._answer: GpuMemory | None = None
        self._answered = 0.0
        self._error = "nvidia-smi has not responded yet"

    def latest(self) -> GpuMemory:
        """Return the last answer, at once; if it is older than OLDEST seconds, only why there is no newer one."""
        with self._lock:
            now = self._clock.monotonic()
            if not self._is_asking and now >= self._next:
                self._begin(now)
            if self._answer and now - self._answered <= OLDEST:
                return self._answer
            return GpuMemory(error=self._error)

    def wait_once(self, seconds: float) -> None:
        """Wait for the result of the very first question; never again after that."""
        if not self._has_asked.is_set():
            self._clock.wait(self._has_asked, seconds)
            self._has_asked.set()

    def _begin(self, now: float) -> None:
        self._is_asking, self._next = True, now + self._interval
        try:
            start_thread(self._ask, "nvidia-smi")
        except TrainingMonitorError as error:
            self._is_asking, self._error = False, f"nvidia-smi was not queried: {error}"
            self._has_asked.set()

    def _ask(self) -> None:
        answer, pause = None, 0.0
        said = f"nvidia-smi has not responded for {OLDEST:g} s"
        try:
            answer = ask_gpu_memory(self._transport)
        except ToolNotFound:
            said, pause = "nvidia-smi is not installed here", INTERVAL_WITHOUT
        except (TrainingMonitorError, OSError, RuntimeError) as error:  # RuntimeError: no thread to read the output
            said = str(error)[:300]
        with self._lock:
            now = self._clock.monotonic()
            self._is_asking, self._error = False, said
            self._next = max(self._next, now + pause)
            if answer:
                self._answer, self._answered = answer, now
        self._has_asked.set()


def ask_gpu_memory(transport: Transport) -> GpuMemory:
    """Ask nvidia-smi twice, LIMIT seconds in all.

    Raises:
        ToolNotFound: There is no nvidia-smi.
        CommandError: It gave no answer, or the driver's own message.
        ParseError: Its output is invalid.
    """
    table = parse_gpus(_query(transport, "gpu", GPU_FIELDS_MINIMAL))
    if table.error:
        raise CommandFailed(f"nvidia-smi: {table.error}")
    return add_up_gpus(table, parse_gpu_processes(_query(transport, "compute-apps", PROCESS_FIELDS)))


def _query(transport: Transport, what: str, fields: tuple[str, ...]) -> str:
    argv = ["nvidia-smi", f"--query-{what}={','.join(fields)}", "--format=csv,noheader,nounits"]
    result = transport.run(argv, timeout=LIMIT / 2)
    return result.stdout or result.stderr


class OwnResourceReader:
    """A reader of this process; CPU is measured since the previous look, so the first look has none."""

    def __init__(self, *, transport: Transport | None, clock: Clock) -> None:
        self._clock = clock
        self._gpus = GpuReader(transport=transport, clock=clock, interval=GPU_INTERVAL)
        self._ticks = float(os.sysconf("SC_CLK_TCK"))
        self._looked: float | None = None
        self._process: ProcessSample | None = None
        self._threads: dict[tuple[int, int], int] = {}

    def look(self) -> tuple[OwnResources, Busiest]:
        """Read this process, in the calling thread; nvidia-smi answers in its own thread, for a later look."""
        now, pid = self._clock.monotonic(), os.getpid()
        process, threads = read_process(pid), read_threads(pid)
        passed = now - self._looked if self._looked is not None else 0.0
        cpu = None
        if process and self._process and passed > 0:
            cpu = self._percent(process.cpu_ticks - self._process.cpu_ticks, passed)
        busiest = self._busiest(threads, passed)
        self._looked, self._process = now, process
        self._threads = {(thread.pid, thread.start_ticks): thread.cpu_ticks for thread in threads}
        memory = self._gpus.latest().by_pid
        gpu_mib = None if memory is None else memory.get(pid)
        if process is None:
            return OwnResources(gpu_mib=gpu_mib), busiest
        return OwnResources(cpu, process.rss_bytes, gpu_mib, process.threads), busiest

    def _busiest(self, threads: tuple[ProcessSample, ...], passed: float) -> Busiest:
        if passed <= 0:
            return []
        used = [
            (self._percent(thread.cpu_ticks - before, passed), thread)
            for thread in threads
            if (before := self._threads.get((thread.pid, thread.start_ticks))) is not None
        ]
        busy = sorted((each for each in used if each[0] > 0), key=lambda each: (-each[0], each[1].pid))[:BUSIEST]
        return [
            {"tid": thread.pid, "name": thread.name[:_MOST_NAME], "cpu_percent": percent} for percent, thread in busy
        ]

    def _percent(self, ticks: int, seconds: float) -> float:
        return round(100.0 * max(0, ticks) / self._ticks / seconds, 1)
