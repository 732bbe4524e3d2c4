"""The GPU report: every documented key, None for what is not reported, and healthy only where all was read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.unit.fake_reply import FakeTargets
from training_monitor.core.errors import CommandTimedOut, ParseError, TargetUnreachable, ToolNotFound
from training_monitor.core.models import Answer, Reply
from training_monitor.core.reports import GpuReport
from training_monitor.look.host import check_gpu_utilization, format_gpu_report, gpu_question
from training_monitor.look.looks import gpus_behind
from training_monitor.targets.asking import Site
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
    lists: dict[str, list[Any]] = {
        "gpu_indexes": [0, 1],
        "gpu_names": ["NVIDIA H100 80GB HBM3"] * 2,
        "gpu_utilizations": [97, 3],
    }
    lists |= {"memory_used": [70000, 500], "memory_total": [81559, 81559], "memory_utilizations": [40, 0]}
    lists |= {"power_draw": [650.25, 90], "power_limit": [700, 700], "temperatures": [61, 35]}
    lists |= {"mig_enabled": [False, False], "gpu_errors": [None, None]}
    processes = [{"pid": 4242, "name": "python train.py", "gpu": "GPU-1", "memory": 70000}]
    summary = {"healthy": True, "busy": True, "gpu_count": 2, "avg_utilization": 50, "error": None}
    assert report_of(ROW + ROW_2, PROCESS) == {**summary, **lists, "processes": processes}


def test_gpus_are_busy_by_load_at_full_power_only_and_healthy_when_idle() -> None:
    report = report_of(ROW_2)
    assert (report["healthy"], report["busy"], report["avg_utilization"]) == (True, False, 3)
    spinning = ROW.replace("650.25", "120.00")
    assert report_of(spinning)["busy"] is False and report_of(spinning + ROW)["busy"] is True


def test_what_a_gpu_does_not_report_is_unknown_and_not_in_the_average() -> None:
    mig = "0, GPU-1, NVIDIA A100, [N/A], [N/A], 512, 40960, 100, 400, 30, Enabled\n"
    report = report_of(mig)
    assert (report["healthy"], report["busy"], report["avg_utilization"]) == (True, None, None)
    assert (report["gpu_utilizations"], report["mig_enabled"], report["memory_used"]) == ([None], [True], [512])
    assert report_of("0, GPU-0, GB10, [N/A], [N/A], [N/A], [N/A], 5, 10, 30, [N/A]\n" + ROW)["avg_utilization"] == 97


def test_one_bad_gpu_makes_the_check_unhealthy_and_hides_no_other() -> None:
    report = report_of(ROW + ", ".join(["1", "GPU-2", "H100", *["[Unknown Error]"] * 8]) + "\n")
    assert report["healthy"] is False and report["error"] and report["gpu_count"] == 2
    assert report["gpu_utilizations"] == [97, None] and report["gpu_errors"] == [None, "Unknown Error"]
    assert report["busy"] is True
    lost = "Unable to determine the device handle for GPU 0000:05:00.0: GPU is lost"
    assert check(lost + SEPARATOR)["gpu_count"] is None and check(f"{lost}\n{ROW}{SEPARATOR}")["gpu_count"] == 2


def test_a_machine_without_gpus_has_none_and_a_broken_driver_an_unknown_number() -> None:
    report = report_of("No devices were found\n")
    assert (report["healthy"], report["gpu_count"], report["error"]) == (False, 0, "No devices were found")
    report = report_of("Failed to initialize NVML: Driver/library version mismatch\n")
    assert (report["healthy"], report["gpu_count"]) == (False, None) and "mismatch" in str(report["error"])


def test_without_an_answer_of_nvidia_smi_nothing_is_known() -> None:
    with pytest.raises(ToolNotFound, match="nvidia-smi was not found"):
        gpu_question().parse(Reply("", 127, 0.1))
    with pytest.raises(ParseError, match="nvidia-smi was terminated by signal 9"):
        gpu_question().parse(Reply("0, GPU-1, NVIDIA H100", 137, 0.1))
    report = check(Reply("", 127, 0.1))
    assert (report["healthy"], report["gpu_count"], report["busy"]) == (False, None, None)
    assert "nvidia-smi was not found" in str(report["error"])
    report = check(Reply("", 137, 10.0))
    assert (report["healthy"], report["avg_utilization"], report["gpu_count"]) == (False, None, None)
    assert "still running after 10 s" in str(report["error"])
    with pytest.raises(ParseError):
        gpu_question().parse(Reply("\x00\x01", 0, 0.1))
    assert check("what?")["healthy"] is False


def test_a_pod_that_cannot_be_asked_is_reported_in_its_namespace_and_not_raised() -> None:
    for error in [TargetUnreachable("gone"), CommandTimedOut("slow"), ToolNotFound("kubectl")]:
        report = check(error)
        assert report["healthy"] is False and report["error"] == str(error) and report["gpu_utilizations"] == []
    transport = FakeTargets({"*": {"gpu": ROW + SEPARATOR}}, [])
    check_gpu_utilization("head", "ml", transport=transport)
    assert transport.calls == [["kubectl", "exec", "-i", "-n", "ml", "head", "--", "sh", "-s"]]


def test_every_report_has_exactly_the_documented_keys_and_is_json() -> None:
    for answer in [ROW + SEPARATOR, Reply("", 127, 0.1), "what?", TargetUnreachable("gone")]:
        report = check(answer)
        assert set(report) == set(GpuReport.__annotations__)
        assert json.loads(json.dumps(report)) == report


GPUS = "".join(f"{n}, GPU-{n}, H100, 97, 0, 100, 80000, 500, 700, 40, Disabled\\n" for n in range(2))
ABSENT = 2**22 + 1  # more than any pid


@pytest.mark.parametrize(
    ("users", "mine", "expected"),
    [
        ({0: "self"}, (ABSENT,), ["GPU-1"]),  # known here, and not its own: what GPU 0 does is another's
        ({0: "self", 1: "self"}, (ABSENT,), []),
        ({0: "self"}, ("self",), ["GPU-0"]),
        ({0: ABSENT}, (1,), ["GPU-0", "GPU-1"]),  # a number of the host: anybody's
        ({0: "self"}, (), ["GPU-0", "GPU-1"]),  # its processes are not seen
        ({}, (1,), ["GPU-0", "GPU-1"]),
    ],
)
def test_gpus_count_where_they_are_its_own_or_may_be(
    users: dict[int, object],
    mine: tuple[object, ...],
    expected: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = "".join(f"{pid}, python a,b, GPU-{gpu}, 40\\n" for gpu, pid in users.items())
    rows = rows.replace("self", str(os.getpid()))
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\ncase $1 in *compute-apps*) printf '{rows}' ;; *) printf '{GPUS}' ;; esac\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    answer = Answer("gpu", Site.of("local").ask_one(gpu_question()))
    pids = [os.getpid() if each == "self" else int(str(each)) for each in mine]
    assert [gpu.uuid for gpu in gpus_behind(answer, pids)] == expected
