"""The GPU report: every documented key, None for what is not reported, and healthy only where all was read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.fake_reply import FakeTargets
from training_monitor.core.errors import CommandTimedOut, ParseError, TargetUnreachable, ToolNotFound
from training_monitor.core.models import Reply
from training_monitor.core.reports import GpuReport
from training_monitor.look.host import check_gpu_utilization, format_gpu_report, gpu_question
from training_monitor.targets.transport import Transport

SEPARATOR = "-- processes --\n"
ROW = "0, GPU-1, NVIDIA H100 80GB HBM3, 97, 40, 70000, 81559, 650.25, 700.00, 61, Disabled\n"
ROW_2 = "1, GPU-2, NVIDIA H100 80GB HBM3, 3, 0, 500, 81559, 90.00, 700.00, 35, Disabled\n"
PROCESS = "4242, python train.py, GPU-1, 70000\n"


def report_of(gpus: str, processes: str = "") -> GpuReport:
    table, found = gpu_question().parse(Reply(gpus + SEPARATOR + processes, 0, 0.1))
    return format_gpu_report(table, found)


def check(answer: Any) -> GpuReport:
    said = answer if isinstance(answer, Exception) else {"gpu": answer}
    transport: Transport = FakeTargets({"*": said}, [])
    return check_gpu_utilization("head", transport=transport)


def test_a_full_answer_fills_every_key() -> None:
    assert report_of(ROW + ROW_2, PROCESS) == {
        "healthy": True,
        "busy": True,
        "gpu_count": 2,
        "gpu_indexes": [0, 1],
        "gpu_names": ["NVIDIA H100 80GB HBM3"] * 2,
        "gpu_utilizations": [97, 3],
        "avg_utilization": 50,
        "memory_used": [70000, 500],
        "memory_total": [81559, 81559],
        "memory_utilizations": [40, 0],
        "power_draw": [650.25, 90],
        "power_limit": [700, 700],
        "temperatures": [61, 35],
        "mig_enabled": [False, False],
        "gpu_errors": [None, None],
        "processes": [{"pid": 4242, "name": "python train.py", "gpu": "GPU-1", "memory": 70000}],
        "error": None,
    }


def test_idle_gpus_are_healthy_and_not_busy() -> None:
    report = report_of(ROW_2)
    assert (report["healthy"], report["busy"], report["avg_utilization"]) == (True, False, 3)


def test_a_gpu_that_spins_at_idle_power_is_not_busy() -> None:
    spinning = ROW.replace("650.25", "120.00")
    assert report_of(spinning)["busy"] is False and report_of(spinning + ROW)["busy"] is True


def test_a_gpu_in_mig_mode_reports_no_utilisation_and_is_healthy() -> None:
    mig = "0, GPU-1, NVIDIA A100, [N/A], [N/A], 512, 40960, 100, 400, 30, Enabled\n"
    report = report_of(mig)
    assert (report["healthy"], report["busy"], report["avg_utilization"]) == (True, None, None)
    assert (report["gpu_utilizations"], report["mig_enabled"], report["memory_used"]) == ([None], [True], [512])


def test_what_one_gpu_does_not_report_does_not_count_in_the_average() -> None:
    assert report_of("0, GPU-0, GB10, [N/A], [N/A], [N/A], [N/A], 5, 10, 30, [N/A]\n" + ROW)["avg_utilization"] == 97


def test_one_bad_gpu_makes_the_check_unhealthy_and_hides_no_other() -> None:
    report = report_of(ROW + ", ".join(["1", "GPU-2", "H100", *["[Unknown Error]"] * 8]) + "\n")
    assert report["healthy"] is False and report["error"] and report["gpu_count"] == 2
    assert report["gpu_utilizations"] == [97, None] and report["gpu_errors"] == [None, "Unknown Error"]
    assert report["busy"] is True


def test_a_machine_without_gpus_has_none_and_is_not_healthy() -> None:
    report = report_of("No devices were found\n")
    assert (report["healthy"], report["gpu_count"], report["error"]) == (False, 0, "No devices were found")


def test_a_broken_driver_does_not_say_how_many_there_are() -> None:
    report = report_of("Failed to initialize NVML: Driver/library version mismatch\n")
    assert (report["healthy"], report["gpu_count"]) == (False, None) and "mismatch" in str(report["error"])


def test_without_nvidia_smi_nothing_is_known_and_it_says_so() -> None:
    with pytest.raises(ToolNotFound, match="nvidia-smi was not found"):
        gpu_question().parse(Reply("", 127, 0.1))


def test_a_killed_nvidia_smi_has_not_counted_the_gpus() -> None:
    with pytest.raises(ParseError, match="nvidia-smi was terminated by signal 9"):
        gpu_question().parse(Reply("0, GPU-1, NVIDIA H100", 137, 0.1))
    report = check(Reply("", 127, 0.1))
    assert (report["healthy"], report["gpu_count"], report["busy"]) == (False, None, None)
    assert "nvidia-smi was not found" in str(report["error"])


def test_a_time_out_is_not_known_and_never_zero() -> None:
    report = check(Reply("", 137, 10.0))
    assert (report["healthy"], report["avg_utilization"], report["gpu_count"]) == (False, None, None)
    assert "still running after 10 s" in str(report["error"])


def test_a_lost_gpu_alone_does_not_count_the_others() -> None:
    lost = "Unable to determine the device handle for GPU 0000:05:00.0: GPU is lost"
    assert check(lost + SEPARATOR)["gpu_count"] is None and check(f"{lost}\n{ROW}{SEPARATOR}")["gpu_count"] == 2


def test_nonsense_is_an_error() -> None:
    with pytest.raises(ParseError):
        gpu_question().parse(Reply("\x00\x01", 0, 0.1))
    assert check("what?")["healthy"] is False


@pytest.mark.parametrize("error", [TargetUnreachable("gone"), CommandTimedOut("slow"), ToolNotFound("kubectl")])
def test_a_pod_that_cannot_be_asked_is_reported_and_not_raised(error: Exception) -> None:
    report = check(error)
    assert report["healthy"] is False and report["error"] == str(error) and report["gpu_utilizations"] == []


@pytest.mark.parametrize("answer", [ROW + SEPARATOR, Reply("", 127, 0.1), "what?", TargetUnreachable("gone")])
def test_every_report_has_exactly_the_documented_keys_and_is_json(answer: Any) -> None:
    report = check(answer)
    assert set(report) == set(GpuReport.__annotations__)
    assert json.loads(json.dumps(report)) == report


def test_the_namespace_is_the_callers() -> None:
    transport = FakeTargets({"*": {"gpu": ROW + SEPARATOR}}, [])
    check_gpu_utilization("head", "ml", transport=transport)
    assert transport.calls == [["kubectl", "exec", "-i", "-n", "ml", "head", "--", "sh", "-s"]]
