"""GPU memory added up; what nobody measured is no zero."""

from __future__ import annotations

from tests.unit.runs.run_world import machine
from training_monitor.core.models import Gpu, GpuProcess, GpuTable
from training_monitor.runs.resources import GpuMemory, add_up_gpus, with_gpus


def gpu(index: int, used: float | None, total: float | None = 80.0) -> Gpu:
    return Gpu(index, memory_used_mb=used, memory_total_mb=total)


def test_the_memory_of_a_process_is_summed_over_all_gpus() -> None:
    rows = (GpuProcess(7, "python", "GPU-a", 10.0), GpuProcess(7, "python", "GPU-b", 5.0))
    memory = add_up_gpus(GpuTable((gpu(0, 10.0), gpu(1, 5.0))), rows)
    assert memory == GpuMemory({7: 15.0}, 160.0)
    sample = with_gpus(machine(), memory)
    assert (sample.gpu_mib, sample.gpu_total_mib, sample.gpu_error) == ({7: 15.0}, 160.0, None)


def test_one_unknown_part_makes_the_sum_unknown_and_no_process_none() -> None:
    rows = (GpuProcess(7, "python", None, None), GpuProcess(8, "python", None, 1.0))
    memory = add_up_gpus(GpuTable((gpu(0, 10.0), gpu(1, None, None))), rows)
    assert memory == GpuMemory(error="nvidia-smi does not report the GPU use of process 7")
    assert add_up_gpus(GpuTable((gpu(0, 0.0),)), ()) == GpuMemory({}, 80.0)
    memory = add_up_gpus(GpuTable((), "No devices were found"), ())
    assert memory == GpuMemory(error="nvidia-smi: No devices were found")
