"""Each rule of the verdict: what it says, what to do, and that unknown is never healthy."""

from __future__ import annotations

from typing import Any

import pytest

from training_monitor.models import Gpu, JobStatus, JobView, PodState, RayResources
from training_monitor.policy.health import (
    Finding,
    average,
    is_busy,
    judge_disk,
    judge_efa,
    judge_gpus,
    judge_job,
    judge_pod,
    judge_ray,
    worst_verdict,
)


def gpu(utilization: float | None, power: float | None = 600, index: int = 0, error: str | None = None) -> Gpu:
    return Gpu(index, utilization=utilization, power_draw_watts=power, power_limit_watts=700, error=error)


def job(status: JobStatus = JobStatus.RUNNING, **more: Any) -> JobView:
    return JobView("raysubmit_1", status, **more)


def only(findings: list[Finding], verdict: str, issue: str, remedy: str = "") -> None:
    """Exactly one finding, with this verdict, and these words in its issue and remedy."""
    [found] = findings
    assert found.verdict == verdict and issue in found.issue and remedy in found.remedy, found
    assert found.remedy and "None" not in found.issue


# ---------------------------------------------------------------- together


@pytest.mark.parametrize(
    ("verdicts", "worst"),
    [
        ([], "ok"),
        (["warning"], "warning"),
        (["warning", "unknown"], "unknown"),
        (["unknown", "failed", "warning"], "failed"),
        (["ok", "warning", "ok"], "warning"),
    ],
)
def test_failed_comes_before_unknown_before_warning_before_ok(verdicts: list[str], worst: str) -> None:
    assert worst_verdict(Finding(verdict, "i", "r") for verdict in verdicts) == worst


def test_an_average_is_of_what_is_known() -> None:
    assert average([None, 50, None, 100]) == 75 and average([0, 0]) == 0
    assert average([]) is None and average([None]) is None


def test_busy_is_not_known_where_no_utilisation_is() -> None:
    assert is_busy([gpu(None), gpu(90)]) is True
    assert is_busy([gpu(None), gpu(0)]) is False
    assert is_busy([gpu(None)]) is None and is_busy([]) is None


# ---------------------------------------------------------------- GPUs


def test_gpus_that_work_need_no_word() -> None:
    assert judge_gpus([gpu(97), gpu(40)], [], job()) == []


def test_idle_gpus_are_a_failure() -> None:
    only(judge_gpus([gpu(0), gpu(4)], [], None), "failed", "GPU utilization < 5% -- training may not be running")


def test_idle_gpus_of_a_job_that_runs_are_said_to_be_so() -> None:
    only(judge_gpus([gpu(0), gpu(0)], [], job()), "failed", "although the job is RUNNING: all 2 GPUs are idle")


def test_a_gpu_without_a_reading_does_not_pull_the_average_down() -> None:
    assert judge_gpus([gpu(None), gpu(None), gpu(9)], [], job()) == []


@pytest.mark.parametrize("gpus", [[], [gpu(None), gpu(None)]])
def test_gpus_that_could_not_be_read_are_unknown_and_never_idle_or_healthy(gpus: list[Gpu]) -> None:
    only(judge_gpus(gpus, [], job()), "unknown", "Could not read GPU utilization from any node")
    only(judge_gpus(gpus, ["no answer in 10 s"], None), "unknown", "from any node: no answer in 10 s", "nvidia-smi")


@pytest.mark.parametrize(
    ("error", "in_pods", "remedy"),
    [
        ("nvidia-smi is not there", False, "nvidia-smi is not installed there, or the machine has no GPU"),
        ("no answer in 10 s", False, "run nvidia-smi there"),
        ("nvidia-smi is not there", True, "--pods"),
    ],
)
def test_other_pods_are_spoken_of_only_where_there_are_pods(error: str, in_pods: bool, remedy: str) -> None:
    [found] = judge_gpus([], [error], None, in_pods=in_pods)
    assert remedy in found.remedy and ("pods" in found.remedy) == in_pods


@pytest.mark.parametrize("error", ["gpu: still running after 10 s, ended", "Driver/library version mismatch"])
def test_a_node_that_could_not_be_read_is_unknown_although_the_others_work(error: str) -> None:
    only(judge_gpus([gpu(97)], [error], job()), "unknown", error)


@pytest.mark.parametrize("error", ["nvidia-smi is not there. Try: is this a GPU machine", "No devices were found"])
def test_a_head_without_gpus_is_no_reason_for_doubt_where_others_have_some(error: str) -> None:
    assert judge_gpus([gpu(97)], [error], job()) == []


def test_one_broken_gpu_is_a_failure_although_the_others_work() -> None:
    found = judge_gpus([gpu(97), gpu(None, index=3, error="GPU is lost")], [], job())
    only(found, "failed", "GPU 3: GPU is lost", "reset or replaced")


def test_a_broken_gpu_whose_number_is_not_known_is_not_called_none() -> None:
    found = judge_gpus([gpu(97), Gpu(None, error="Unable to determine the device handle")], [], job())
    only(found, "failed", "Unable to determine the device handle")


def test_full_load_at_idle_power_is_a_collective_that_waits() -> None:
    spinning = [gpu(100, power=110), gpu(100, power=130)]
    only(
        judge_gpus(spinning, [], job(log_age=10)),
        "warning",
        "100 % utilization but idle power (120 of 700 W)",
        "py-spy",
    )
    only(judge_gpus(spinning, [], None), "warning", "a collective waits")
    only(judge_gpus(spinning, [], job(log_age=3600)), "failed", "a collective waits", "rank")


def test_full_load_at_full_power_or_of_some_only_or_without_power_is_no_finding() -> None:
    assert judge_gpus([gpu(100, power=690)], [], job(log_age=3600)) == []
    assert judge_gpus([gpu(100, power=110), gpu(100, power=600)], [], job(log_age=3600)) == []
    assert judge_gpus([gpu(100, power=None)], [], job(log_age=3600)) == []


# ---------------------------------------------------------------- job


def test_a_job_that_failed_is_a_failure_with_its_message() -> None:
    only(judge_job(job(JobStatus.FAILED, message="exit code 3")), "failed", "raysubmit_1 FAILED: exit code 3", "log")
    only(judge_job(job(JobStatus.FAILED)), "failed", "raysubmit_1 FAILED")


def test_a_job_that_was_stopped_or_waits_is_a_warning() -> None:
    only(judge_job(job(JobStatus.STOPPED)), "warning", "was stopped")
    only(judge_job(job(JobStatus.PENDING)), "warning", "PENDING", "pending_demands")


def test_a_job_whose_status_is_unknown_is_never_healthy() -> None:
    only(judge_job(job(JobStatus.UNKNOWN)), "unknown", "raysubmit_1")


def test_a_silent_job_is_a_warning() -> None:
    only(judge_job(job(log_age=600)), "warning", "printed nothing for 10m", "detect_stall")


@pytest.mark.parametrize("view", [job(), job(log_age=20), job(JobStatus.SUCCEEDED, log_age=9999)])
def test_a_job_that_prints_or_is_done_is_well(view: JobView) -> None:
    assert judge_job(view) == []


# ---------------------------------------------------------------- Ray


def test_gpus_that_nobody_asked_ray_for_are_a_failure() -> None:
    only(judge_ray(RayResources(0, 8, 1, 96)), "failed", "Ray has GPUs available but none allocated", "num_gpus")


@pytest.mark.parametrize(
    "ray",
    [RayResources(8, 8, 1, 96), RayResources(0, 0, 1, 96), RayResources(None, None, 1, 96), RayResources(0.5, 8, 1, 2)],
)
def test_a_cluster_in_use_or_without_gpus_is_well(ray: RayResources) -> None:
    assert judge_ray(ray) == []


def test_an_allocation_that_is_not_known_is_not_none() -> None:
    assert judge_ray(RayResources(None, 8, None, None)) == []


def test_what_ray_cannot_place_is_a_warning_that_names_it() -> None:
    found = judge_ray(RayResources(8, 8, 1, 96, ("{'GPU': 99.0}: 1+ pending tasks/actors",)))
    only(found, "warning", "Ray cannot place: {'GPU': 99.0}", "resources")


# ---------------------------------------------------------------- EFA


def test_tcp_where_there_is_efa_is_a_failure() -> None:
    only(judge_efa([False, False], 8), "failed", "EFA not active -- NCCL using TCP sockets", "NCCL_NET=ofi")
    assert "Set NCCL_NET=ofi" in judge_efa([False], 4)[0].issue and "4 EFA ports" in judge_efa([False], 4)[0].issue


def test_tcp_where_there_is_no_efa_is_a_warning() -> None:
    only(judge_efa([False], 0), "warning", "EFA not active -- NCCL using TCP sockets")


def test_one_pod_that_fell_back_is_named_by_its_share() -> None:
    only(judge_efa([True, False, True], 12), "failed", "on 1 of 3 pods")


@pytest.mark.parametrize("active", [[], [None], [True], [True, None], [None, None]])
def test_what_nothing_shows_is_no_finding(active: list[bool | None]) -> None:
    assert judge_efa(active, 4) == []


# ---------------------------------------------------------------- pods, disks


def pod(phase: str = "Running", ready: bool = True, restarts: int = 0, **more: Any) -> PodState:
    return PodState("head", phase, ready, restarts, **more)


def test_a_pod_that_runs_is_well() -> None:
    assert judge_pod("head", pod()) == []


def test_a_pod_that_is_not_there_is_a_failure() -> None:
    only(judge_pod("head", None), "failed", "pod head does not exist", "new name")


@pytest.mark.parametrize(
    ("state", "verdict", "words", "remedy"),
    [
        (pod(ready=False, restarts=3, reason="OOMKilled"), "failed", "OOMKilled (3 restarts)", "memory limit"),
        (pod(ready=True, restarts=1, reason="OOMKilled"), "warning", "ran out of memory", "memory limit"),
        (pod("Failed", False, reason="Evicted", message="low on memory"), "failed", "Evicted", "ephemeral storage"),
        (pod("Running", False, 9, reason="CrashLoopBackOff"), "failed", "keeps crashing", "--previous"),
        (pod("Pending", False, reason="ImagePullBackOff"), "failed", "cannot be pulled", "pull secret"),
        (pod("Pending", False, reason="ErrImagePull"), "failed", "cannot be pulled", "image name"),
        (pod("Pending", False, reason="Unschedulable", message="0/3 nodes"), "warning", "0/3 nodes", "describe"),
        (pod("Pending", False), "warning", "head is Pending", "describe"),
        (pod(ready=False), "warning", "not ready", "describe"),
        (pod(deleting=True), "warning", "being deleted", "checkpoint"),
        (pod("Failed", False, reason="Error"), "failed", "head is Failed", "describe"),
    ],
)
def test_what_kubernetes_says_of_a_pod_has_a_verdict_and_a_remedy(
    state: PodState, verdict: str, words: str, remedy: str
) -> None:
    only(judge_pod("head", state), verdict, words, remedy)


def test_a_pod_of_a_node_that_is_away_is_unknown_and_not_dead() -> None:
    only(judge_pod("head", pod("Unknown", False, reason="NodeLost")), "unknown", "head is Unknown")


@pytest.mark.parametrize(
    ("percent", "verdict"), [(95.0, "warning"), (98.9, "warning"), (99.0, "failed"), (100.0, "failed")]
)
def test_a_full_disk_is_named_with_its_place(percent: float, verdict: str) -> None:
    only(judge_disk("head", "/data", percent), verdict, "head: /data is", "old checkpoints")


def test_a_disk_with_room_is_well() -> None:
    assert judge_disk("head", "/data", 94.9) == []
