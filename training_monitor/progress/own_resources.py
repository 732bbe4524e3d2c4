"""What a run measures of itself: CPU, memory and busiest threads from /proc, GPU memory from nvidia-smi."""

from __future__ import annotations

import os

from training_monitor.clock import Clock
from training_monitor.policy.run_values import OwnResources, ProcessSample
from training_monitor.progress.gpu_memory import GpuReader
from training_monitor.progress.procfs import read_process, read_threads
from training_monitor.targets.transport import Transport

BUSIEST = 5
INTERVAL, GPU_INTERVAL = 2.0, 10.0
_MOST_NAME = 64
Busiest = list[dict[str, str | int | float]]


class OwnResourceReader:
    """Reads this process again and again; CPU is that since the look before, so the first look knows none."""

    def __init__(self, *, transport: Transport | None, clock: Clock) -> None:
        self._clock = clock
        self._gpus = GpuReader(transport=transport, clock=clock)
        self._ticks = float(os.sysconf("SC_CLK_TCK"))
        self._looked: float | None = None
        self._process: ProcessSample | None = None
        self._threads: dict[tuple[int, int], int] = {}
        self._gpu_mib: float | None = None
        self._ask_gpu, self._asked = clock.monotonic(), 0

    def look(self) -> tuple[OwnResources, Busiest]:
        """Read this process, in the calling thread; nvidia-smi answers to a thread of its own, for a later look."""
        now, pid = self._clock.monotonic(), os.getpid()
        process, threads = read_process(pid), read_threads(pid)
        passed = now - self._looked if self._looked is not None else 0.0
        cpu = None
        if process and self._process and passed > 0:
            cpu = self._percent(process.cpu_ticks - self._process.cpu_ticks, passed)
        busiest = self._busiest(threads, passed)
        self._looked, self._process = now, process
        self._threads = {(thread.pid, thread.start_ticks): thread.cpu_ticks for thread in threads}
        if now >= self._ask_gpu:
            self._look_at_gpu(now, pid)
        if process is None:
            return OwnResources(gpu_mib=self._gpu_mib), busiest
        return OwnResources(cpu, process.rss_bytes, self._gpu_mib, process.threads), busiest

    def _look_at_gpu(self, now: float, pid: int) -> None:
        """Take the answer to the question before, and ask again: soon at first, so that something is known early."""
        memory = self._gpus.latest().by_pid
        self._gpu_mib = None if memory is None else memory.get(pid)
        self._ask_gpu, self._asked = now + (GPU_INTERVAL if self._asked else INTERVAL), self._asked + 1

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
