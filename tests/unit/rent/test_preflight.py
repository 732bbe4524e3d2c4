"""What a machine must show: problems are its own words, and what could not be asked is none."""

from __future__ import annotations

import pytest

from tests.fakes import FakeTransport, is_call
from tests.unit.fake_reply import FakeTargets
from training_monitor.core.errors import CommandFailed, CommandTimedOut, SettingsError, TargetUnreachable
from training_monitor.core.models import Reply
from training_monitor.rent.instance_steps import PreflightReport, check_instance

SEPARATOR = "-- processes --\n"
DF = "Filesystem 1024-blocks Used Available Capacity Mounted on\noverlay 200000000 100000000 97656250 51% /\n"


def gpu(index: int = 0, total: str = "24564", used: str = "12", heat: str = "35", name: str = "RTX 4090") -> str:
    return f"{index}, GPU-{index}, NVIDIA GeForce {name}, 0, 0, {used}, {total}, 20.00, 450.00, {heat}, [N/A]\n"


def check(
    gpus: str = gpu(),
    disk: str = f"/\n--\n{DF}",
    said: tuple[str, int] = ("", 0),
    *,
    gpu_status: int = 0,
    **wanted: object,
) -> PreflightReport:
    def answer(script: str) -> tuple[str, int]:
        if is_call(script, "gpu"):
            return gpus + SEPARATOR, gpu_status
        return (disk, 0) if is_call(script, "host") else said

    transport = FakeTransport(answer)
    report = check_instance("local", transport=transport, **wanted)  # type: ignore[arg-type]
    assert len(transport.asked) == 1
    return report


def test_a_good_machine_has_no_problems() -> None:
    report = check(gpu(0) + gpu(1), num_gpus=2, min_vram_gb=24.564, min_disk_gb=99, said=("fine", 0), command="test-it")
    assert report.ok and report.problems == () and report.free_disk_gb == 100.0
    assert [each.index for each in report.gpus] == [0, 1]


@pytest.mark.parametrize(
    ("total", "promised"), [("24564", 24), ("24564", 25), ("15360", 15.36), ("81559", 81.559), ("23028", 23.2)]
)
def test_what_the_driver_keeps_for_itself_is_forgiven(total: str, promised: float) -> None:
    assert check(gpu(total=total), min_vram_gb=promised).ok


def test_a_bad_gpu_is_named(subtests: pytest.Subtests) -> None:
    for gpus, wanted, said in [
        (gpu(), {"num_gpus": 2}, "it has 1 usable GPU, but 2 were rented"),
        (gpu(total="12288"), {"min_vram_gb": 24}, "GPU 0 has 12.3 GB of memory, but 24 GB were promised"),
        (gpu(total="[N/A]"), {"min_vram_gb": 24}, "GPU 0 does not report its memory size"),
        (gpu(used="9000"), {}, "GPU 0 is in use by other processes: 9.0 of 24.6 GB are used"),
        (gpu(heat="91"), {}, "GPU 0 is at 91 °C while idle"),
        ("No devices were found\n", {}, "nvidia-smi fails: No devices were found"),
        ("Failed to initialize NVML: Driver/library version mismatch\n", {}, "version mismatch"),
        ("Segmentation fault\n", {}, "its GPUs cannot be read: nvidia-smi"),
        ("", {}, "its GPUs cannot be read: nvidia-smi"),
        ("\x00\x1b[2J\n", {}, "its GPUs cannot be read: nvidia-smi"),
    ]:
        with subtests.test(gpus=gpus, wanted=wanted, said=said):
            report = check(gpus, **wanted)
            assert not report.ok and len(report.problems) == 1 and said in report.problems[0]


def test_a_lost_gpu_does_not_count_and_is_named() -> None:
    lost = "Unable to determine the device handle for GPU0000:01:00.0: Unknown Error\n"
    report = check(gpu() + lost, num_gpus=2)
    assert [problem.partition(",")[0] for problem in report.problems][0] == "it has 1 usable GPU"
    assert "Unable to determine" in report.problems[1]


def test_a_machine_without_nvidia_smi_is_a_bad_one() -> None:
    report = check("", gpu_status=127)
    assert report.problems == (
        "its GPUs cannot be read: nvidia-smi was not found. Try: check that this machine has a GPU and that the "
        "container can use it",
    )


def test_a_small_disk_is_named_with_what_is_free_in_the_nearest_folder_that_is_there() -> None:
    report = check(min_disk_gb=200, folder="/workspace/job")
    assert report.problems == ("100.0 GB are free for /workspace/job, but 200 GB are needed",)
    table = DF + "/dev/sdb 1000 500 500 50% /\n"
    assert check(disk=f"/workspace\n/\n--\n{table}", folder="/workspace/not/yet").free_disk_gb == 100.0


def test_an_unknown_free_disk_matters_only_when_needed() -> None:
    assert check(disk="\n--\n").free_disk_gb is None
    assert check(disk="\n--\n").ok
    with pytest.raises(CommandFailed, match="disk of the rented machine cannot be read"):
        check(disk="\n--\n", min_disk_gb=1)


def test_the_command_of_the_user_has_its_say() -> None:
    said = ("warming up\nRuntimeError: no kernel image\n", 1)
    assert check(said=said).ok  # nobody asked for it
    report = check(said=said, command="python check.py")
    assert report.problems == ("the check command exited with 1: warming up | RuntimeError: no kernel image",)
    assert check(said=("", 3), command="false").problems == ("the check command exited with 3: it printed nothing",)


def test_a_machine_that_does_not_answer_is_not_judged() -> None:
    def answer(script: str) -> tuple[str, int]:
        raise TargetUnreachable("gone")

    with pytest.raises(TargetUnreachable):
        check_instance("local", transport=FakeTransport(answer))


def test_an_nvidia_smi_that_hangs_is_not_known_to_be_broken() -> None:
    transport = FakeTargets({"*": {"gpu": Reply("", 137, 30.0), "disk": f"/\n--\n{DF}"}}, [])
    with pytest.raises(CommandTimedOut, match="still running after 30 s"):
        check_instance("head", transport=transport)


@pytest.mark.parametrize("folder", ["", "relative", "~/x", "/a\nb", "/a\0b"])
def test_a_folder_must_be_absolute(folder: str) -> None:
    with pytest.raises(SettingsError, match="absolute"):
        check(folder=folder)
