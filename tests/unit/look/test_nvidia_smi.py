"""nvidia-smi as CSV: what is not reported is None, and one lost GPU hides no other."""

from __future__ import annotations

import pytest

from training_monitor.core.errors import ParseError
from training_monitor.core.models import Gpu, GpuProcess, GpuTable
from training_monitor.look.nvidia_smi import GPU_FIELDS, GPU_FIELDS_MINIMAL, parse_gpu_processes, parse_gpus

ROW = "0, GPU-1a2b, NVIDIA H100 80GB HBM3, 97, 40, 70000, 81559, 650.25, 700.00, 61, Disabled"


def test_rows_are_read_full_minimal_and_with_units() -> None:
    assert len(ROW.split(",")) == len(GPU_FIELDS)
    gpu = Gpu(0, "GPU-1a2b", "NVIDIA H100 80GB HBM3", 97, 40, 70000, 81559, 650.25, 700, 61, False)
    assert parse_gpus(ROW) == GpuTable((gpu,))
    row = "1, Tesla K80, 12, 100, 11441"
    assert len(row.split(",")) == len(GPU_FIELDS_MINIMAL)
    assert parse_gpus(row).gpus == (Gpu(1, None, "Tesla K80", 12, None, 100, 11441),)
    gpu = parse_gpus("0, GPU-1, A10G, 35 %, 10 %, 512 MiB, 23028 MiB, 300.00 W, 300.00 W, 40, [N/A]").gpus[0]
    assert (gpu.utilization, gpu.memory_used_mb, gpu.power_draw_watts, gpu.mig_enabled) == (35, 512, 300, None)
    name = "Some, Odd, Name"
    assert parse_gpus(ROW.replace("NVIDIA H100 80GB HBM3", name)).gpus[0].name == name


def test_what_is_not_reported_is_none_and_never_zero() -> None:
    for missing in ["[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "ERR!", ""]:
        gpu = parse_gpus(f"0, GPU-1, A100, {missing}, {missing}, 512, 40960, {missing}, 400, 30, Enabled").gpus[0]
        assert (gpu.utilization, gpu.memory_utilization, gpu.power_draw_watts) == (None, None, None)
        assert (gpu.memory_used_mb, gpu.mig_enabled, gpu.error) == (512, True, None)


def test_a_gpu_is_broken_by_errors_alone_or_one_reading_that_says_so() -> None:
    for word in ["[Unknown Error]", "[GPU requires reset]", "ERR!"]:
        dead = ", ".join(["3", "GPU-4", "A100", *[word] * 8])
        table = parse_gpus(f"{ROW}\n{dead}")
        assert (table.gpus[0].error, table.gpus[1].index, table.gpus[1].error) == (None, 3, word.strip("[]"))
    for word in ["[GPU requires reset]", "[GPU is lost]"]:
        [gpu] = parse_gpus(ROW.replace("97, 40", f"{word}, {word}")).gpus
        assert (gpu.error, gpu.power_draw_watts) == (word.strip("[]"), 650.25)
    assert parse_gpus(", ".join(["0", "GPU-4", "GB10", *["[N/A]"] * 8])).gpus[0].error is None


def test_a_lost_gpu_keeps_the_index_of_the_driver_and_hides_no_other() -> None:
    for said, index in ("GPU1: 0000:05:00.0", 1), ("GPU 0000:05:00.0", None), ("GPU1", 1):
        [gpu] = parse_gpus(f"Unable to determine the device handle for {said}: Unknown Error").gpus
        assert gpu.index == index
    lost = "Unable to determine the device handle for GPU0000:05:00.0: Unknown Error"
    table = parse_gpus(f"{lost}\n{ROW}")
    assert [gpu.index for gpu in table.gpus] == [None, 0]
    assert table.gpus[0].error == lost
    assert table.gpus[1].utilization == 97
    table = parse_gpus(f"{lost}\nNo devices were found")
    assert ([gpu.error for gpu in table.gpus], table.error, table.has_none) == ([lost], None, False)


def test_a_gpu_of_which_not_even_the_index_is_known_counts_once() -> None:
    nothing = ", ".join(["[Unknown Error]"] * len(GPU_FIELDS))
    assert [gpu.error for gpu in parse_gpus(f"{ROW}\n{nothing}").gpus] == [None, "Unknown Error"]
    lost = "Unable to determine the device handle for GPU0000:05:00.0: Unknown Error"
    for lines in ((lost, nothing), (nothing, lost)):
        assert [gpu.error for gpu in parse_gpus("\n".join((ROW, *lines))).gpus] == [None, lost]
    reset = nothing.replace("Unknown Error", "GPU requires reset")
    assert [gpu.error for gpu in parse_gpus(f"{ROW}\n{reset}").gpus] == [None, "GPU requires reset"]
    assert [gpu.error for gpu in parse_gpus(f"{lost}\n{nothing}\n{nothing}").gpus] == [lost, "Unknown Error"]


def test_a_gpu_that_one_may_not_open_is_not_a_broken_one() -> None:
    said = "Unable to determine the device handle for GPU 0000:0B:00.0: Insufficient Permissions"
    table = parse_gpus(f"{said}\n{ROW}")
    assert [gpu.error for gpu in table.gpus] == [None] and table.error == said


def test_the_drivers_own_message_is_the_error_of_the_table() -> None:
    for message in [
        "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.",
        "No devices were found",
        "Failed to initialize NVML: Driver/library version mismatch",
        "GPU access blocked by the operating system",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that it is running.",
    ]:
        assert parse_gpus(message + "\n") == GpuTable((), message, has_none=message == "No devices were found")


def test_anything_else_is_an_error_that_names_its_source() -> None:
    for text in ["", "\n\n", "\x00\x8f\x00", "sh: nvidia-smi: not found", "hello, world"]:
        with pytest.raises(ParseError) as caught:
            parse_gpus(text)
        assert caught.value.source == "nvidia-smi"


def test_processes_are_read_with_commas_and_spaces_in_their_names() -> None:
    text = (
        "4242, python train.py --a 1,2, GPU-1a2b, 70000\n"
        "77, [Insufficient Permissions], GPU-1a2b, [N/A]\n"
        "warning: infoROM is corrupted at gpu 0000:05:00.0\n"
    )
    assert parse_gpu_processes(text) == (
        GpuProcess(4242, "python train.py --a 1,2", "GPU-1a2b", 70000),
        GpuProcess(77, "[Insufficient Permissions]", "GPU-1a2b", None),
    )
    assert parse_gpu_processes("") == ()
