"""What nvidia-smi says of GPUs and the processes on them, added up. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from training_monitor.models import GpuProcess, GpuTable
from training_monitor.policy.run_values import MachineSample


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """`by_pid`, over all GPUs, and of the GPUs together, in MiB; None is not known, and `error` says why."""

    by_pid: Mapping[int, float] | None = None
    total: float | None = None
    used: float | None = None
    error: str | None = None


def add_up_gpus(table: GpuTable, processes: Sequence[GpuProcess]) -> GpuMemory:
    """Add up over all GPUs; a sum of which one part is not known is not known."""
    if table.error:
        return GpuMemory(error=f"nvidia-smi: {table.error}")
    by_pid: dict[int, float] = {}
    silent = None
    for each in processes:
        if each.memory_used_mb is None:
            silent = each.pid
        else:
            by_pid[each.pid] = by_pid.get(each.pid, 0.0) + each.memory_used_mb
    return GpuMemory(
        by_pid if silent is None else None,
        _sum([gpu.memory_total_mb for gpu in table.gpus]),
        _sum([gpu.memory_used_mb for gpu in table.gpus]),
        None if silent is None else f"nvidia-smi does not say what process {silent} uses",
    )


def with_gpus(machine: MachineSample, memory: GpuMemory) -> MachineSample:
    """The sample with the memory of its GPUs."""
    return replace(
        machine,
        gpu_mib=memory.by_pid,
        gpu_total_mib=memory.total,
        gpu_used_mib=memory.used,
        gpu_error=memory.error,
    )


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
