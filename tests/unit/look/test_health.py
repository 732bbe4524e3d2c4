"""Each rule of the verdict: what it says, what to do, and that unknown is never healthy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from training_monitor.core.models import Gpu, JobStatus, RayResources
from training_monitor.core.results import ContainerEnd, PodState
from training_monitor.core.values import Observation, Verdict
from training_monitor.look.health_verdict import (
    Finding,
    NodeGpus,
    average,
    judge_disk,
    judge_efa,
    judge_gpus,
    judge_job,
    judge_pod,
    judge_ray,
    worst_verdict,
)
from training_monitor.targets.pods import NODE_SILENT
from training_monitor.verdict.gpu_load import gpu_mode


def gpu(utilization: float | None, power: float | None = 600, index: int = 0, error: str | None = None) -> Gpu:
    return Gpu(index, utilization=utilization, power_draw_watts=power, power_limit_watts=700, error=error)


def node(*gpus: Gpu, name: str = "head", error: str | None = None, has_none: bool = False) -> NodeGpus:
    return NodeGpus(name, gpus, error, has_none)


def on(*gpus: Gpu, state: str | None = None, verdict: str = "ok", phase: str | None = None) -> list[Finding]:
    """What is said of the GPUs of one machine, with a job that is RUNNING and judged so, or without any."""
    if state is None:
        return judge_gpus([node(*gpus)])
    seen = Observation(1000.0, 5, status=JobStatus.RUNNING, phase=phase)
    return judge_gpus([node(*gpus)], seen, Verdict(state, verdict, "for a reason"))


def only(findings: list[Finding], verdict: str, issue: str, remedy: str = "") -> None:
    """Exactly one finding, with this verdict, and these words in its issue and remedy."""
    [found] = findings
    assert found.verdict == verdict and issue in found.issue and remedy in found.remedy, found
    assert found.remedy and "None" not in found.issue


def test_failed_comes_before_unknown_and_an_average_is_of_what_is_known() -> None:
    for verdicts, worst in [
        ([], "ok"),
        (["warning"], "warning"),
        (["warning", "unknown"], "unknown"),
        (["unknown", "failed", "warning"], "failed"),
        (["ok", "warning", "ok"], "warning"),
    ]:
        assert worst_verdict(Finding(verdict, "i", "r") for verdict in verdicts) == worst
    assert average([None, 50, None, 100]) == 75 and average([0, 0]) == 0
    assert average([]) is None and average([None]) is None


SPINNING = gpu(100, power=120)
LOST = gpu(None, None, index=7, error="GPU is lost")


def test_gpus_that_work_and_those_that_need_not_work_are_no_finding() -> None:
    for gpus in [(gpu(97), gpu(40)), (gpu(None), gpu(0), gpu(12)), (gpu(100, power=690),), (gpu(100, power=None),)]:
        assert on(*gpus, state="running") == []
    for state in ("finished", "failed", "stopped"):
        assert on(gpu(0), gpu(0), state=state) == []
    for memory in (0.0, 600.0, None):  # nobody uses the second one
        assert on(gpu(97), replace(gpu(0, index=1), memory_used_mb=memory), state="running") == []
    assert judge_gpus([node(error="there is none", has_none=True), node(gpu(97))]) == []


def test_idle_gpus_are_a_failure_but_expected_while_a_job_starts_or_evaluates() -> None:
    only(on(gpu(0), gpu(9)), "failed", "GPU utilization < 10% -- training may not be running")
    found = on(gpu(0), gpu(0), state="running")
    only(found, "failed", "although the job is RUNNING: all 2 GPUs are idle")
    for said, verdict in [
        ({"state": "starting"}, "warning"),
        ({"state": "running", "phase": "evaluation"}, "warning"),
        ({"state": "stalled", "verdict": "failed", "phase": "evaluation"}, "failed"),
        ({"state": "unknown", "verdict": "unknown"}, "failed"),
    ]:
        only(on(gpu(0), **said), verdict, "although the job is RUNNING: all 1 GPUs are idle")


def test_gpus_that_could_not_be_read_are_unknown_and_never_idle_or_healthy() -> None:
    for gpus in [[], [gpu(None), gpu(None)]]:
        remedy = "does not report the utilization" if gpus else "run nvidia-smi on the node"  # a Jetson, say
        only(on(*gpus, state="running"), "unknown", "Could not read GPU utilization from any node", remedy)
        found = judge_gpus([node(*gpus, error="no answer in 10 s")])
        only(found, "unknown", "from any node: no answer in 10 s", "nvidia-smi")
    for error in ["gpu: still running after 10 s, so it was killed", "Driver/library version mismatch"]:
        only(judge_gpus([node(gpu(97)), node(error=error)]), "unknown", error)
    in_mig = replace(gpu(None), mig_enabled=True)
    only(on(in_mig), "unknown", "Could not read GPU utilization", "in MIG mode")
    for has_none, remedy in ((True, "in MIG mode"), (False, "run nvidia-smi on the node")):
        only(judge_gpus([node(in_mig), node(error="no driver", has_none=has_none)]), "unknown", "no driver", remedy)
    for has_none, in_pods, remedy in [
        (True, False, "the machine has no GPU, or nvidia-smi is not installed on it"),
        (False, False, "run nvidia-smi on the node"),
        (True, True, "pass `pods` to include the GPUs"),
    ]:
        [found] = judge_gpus([node(error="nvidia-smi was not found", has_none=has_none)], in_pods=in_pods)
        assert remedy in found.remedy and ("pods" in found.remedy) == in_pods


def test_one_broken_gpu_is_a_failure_and_hides_none_that_spin() -> None:
    only(on(gpu(97), LOST, state="running"), "failed", "GPU 7: GPU is lost", "reset or replaced")
    [found] = judge_gpus([node(gpu(97), name="a"), node(LOST, name="b")])
    assert found.issue == "GPU 7 of b: GPU is lost"
    only(on(gpu(97), Gpu(None, error="Unable to determine the device handle")), "failed", "GPU ?: Unable to determine")
    lost, spinning = on(*[gpu(100, 120, index) for index in range(7)], LOST, state="stalled", verdict="failed")
    assert (lost.verdict, lost.issue) == ("failed", "GPU 7: GPU is lost")
    assert spinning.verdict == "failed" and spinning.issue.startswith("GPUs 0-6 at 100 % utilization but idle power")


def test_full_load_at_idle_power_is_a_collective_that_waits() -> None:
    spinning = [gpu(100, power=110), gpu(100, power=130)]
    words = "all 2 GPUs at 100 % utilization but idle power (120 of 700 W)"
    only(on(*spinning, state="running"), "warning", words, "explain_training")
    only(on(*spinning), "warning", "ranks are waiting in a collective")
    only(on(*spinning, state="stalled", verdict="failed"), "failed", "ranks are waiting in a collective", "rank")
    only(on(gpu(92, power=0.35 * 700)), "warning", "92 % utilization but idle power")
    assert gpu_mode(92, 0.35) == "spinning"


def test_one_idle_gpu_of_eight_is_named_where_a_program_is_loaded_on_it() -> None:
    others = [gpu(97, index=index) for index in range(7)]
    left = replace(gpu(0, index=7), memory_used_mb=40000.0)
    words = "GPU 7 idle with memory in use, while other GPUs are busy"
    only(on(*others, left, state="running"), "warning", words, "nvidia")


def test_those_that_spin_beside_one_that_works_are_named_with_their_nodes() -> None:
    found = on(gpu(97), gpu(100, 120, 1), gpu(100, 120, 2), gpu(100, 120, 5), state="stalled", verdict="failed")
    only(found, "warning", "GPUs 1-2+5 at 100 % utilization but idle power")
    spinning = [gpu(100, 120, index) for index in range(2)]
    [found] = judge_gpus([node(*spinning, name="trainer-0"), node(spinning[1], gpu(97), name="eval-0"), node(name="c")])
    assert found.issue.startswith("all 2 GPUs of trainer-0, GPU 1 of eval-0 at 100 %")
    [found] = judge_gpus([node(gpu(97), name="z"), *(node(SPINNING, name=f"n-{number}") for number in range(9))])
    assert "GPU 0 of n-3, and GPUs of 5 more nodes at 100 %" in found.issue


def test_the_judges_verdict_on_a_job_is_a_finding_with_a_remedy() -> None:
    stalled = Verdict("stalled", "failed", "no step for 20m, limit 7m30s: GPUs idle", remedies=("look", "py-spy dump"))
    [found] = judge_job("raysubmit_1", stalled)
    assert (found.verdict, found.remedy) == ("failed", "look; py-spy dump")
    assert found.issue == "job raysubmit_1: stalled: no step for 20m, limit 7m30s: GPUs idle"
    for state, verdict, remedy in [
        ("failed", "failed", "read the end of its log"),
        ("slow", "warning", "compare the GPUs"),
        ("stopped", "warning", "start it again"),
        ("unknown", "unknown", "check the end of its log"),
    ]:
        only(judge_job("raysubmit_1", Verdict(state, verdict, "exit code 3")), verdict, "exit code 3", remedy)
    for state in ("starting", "running", "finished"):
        assert judge_job("raysubmit_1", Verdict(state, "ok", "step 5 of 100")) == []


def test_ray_is_well_unless_gpus_are_not_asked_for_or_requests_cannot_be_met() -> None:
    only(judge_ray(RayResources(0, 8, 1, 96)), "warning", "Ray has GPUs available but none allocated", "num_gpus")
    found = judge_ray(RayResources(8, 8, 1, 96, ("{'GPU': 99.0}: 1+ pending tasks/actors",)))
    only(found, "warning", "Ray cannot satisfy these resource requests: {'GPU': 99.0}", "resources")
    failed = RayResources(8, 8, 1, 96, failed_nodes=("gpu: NodeTerminated (ip: 10.0.0.3)",))
    only(judge_ray(failed), "warning", "Ray reports failed nodes: gpu: NodeTerminated", "monitor.log")
    for ray in [(8, 8, 1, 96), (0, 0, 1, 96), (None, None, 1, 96), (0.5, 8, 1, 2), (None, 8, None, None)]:
        assert judge_ray(RayResources(*ray)) == []


def test_tcp_is_a_failure_where_there_is_efa_and_else_a_warning() -> None:
    only(judge_efa([False, False], 8), "failed", "EFA not active -- NCCL using TCP sockets", "NCCL_NET=ofi")
    assert "Set NCCL_NET=ofi" in judge_efa([False], 4)[0].issue and "4 EFA ports" in judge_efa([False], 4)[0].issue
    only(judge_efa([False], 0), "warning", "EFA not active -- NCCL using TCP sockets")
    only(judge_efa([True, False, True], 12), "failed", "on 1 of 3 pods")
    for active in [[], [None], [True], [True, None], [None, None]]:
        assert judge_efa(active, 4) == []


NOW = 1_900_000_000.0


def pod(phase: str = "Running", ready: bool = True, restarts: int = 0, **more: Any) -> PodState:
    return PodState("head", phase, ready, restarts, **more)


def test_what_kubernetes_says_of_a_pod_has_a_verdict_and_a_remedy() -> None:
    for state, verdict, words, remedy in [
        (pod(ready=False, restarts=3, reason="OOMKilled"), "failed", "OOMKilled (3 restarts)", "memory limit"),
        (pod(ready=True, restarts=1, reason="OOMKilled"), "warning", "ran out of memory", "memory limit"),
        (pod("Failed", False, reason="Evicted", message="low on memory"), "failed", "Evicted", "ephemeral storage"),
        (pod("Running", False, 9, reason="CrashLoopBackOff"), "failed", "keeps crashing", "--previous"),
        (pod("Pending", False, reason="ImagePullBackOff"), "failed", "cannot be pulled", "pull secret"),
        (pod("Pending", False, reason="ErrImagePull", message="timed out"), "warning", "timed out", "image name"),
        (pod("Pending", False, reason="Unschedulable", message="0/3 nodes"), "warning", "0/3 nodes", "describe"),
        (pod("Pending", False), "warning", "head is Pending", "describe"),
        (pod(ready=False), "warning", "not ready", "describe"),
        (pod(deleting=True), "warning", "being deleted", "checkpoint"),
        (pod("Failed", False, reason="Error"), "failed", "head is Failed", "describe"),
        (pod("Failed", False, reason="Error", exit_code=7), "failed", "(Error, exit code 7)", "kubectl logs"),
        (pod("Succeeded", False), "warning", "has finished (Succeeded)", "kubectl logs"),
    ]:
        only(judge_pod("head", state, NOW), verdict, words, remedy)
    assert judge_pod("head", pod(), NOW) == []
    only(judge_pod("head", None, NOW), "failed", "pod head does not exist", "new name")
    for phase, deleting in ("Unknown", False), ("Running", True):  # the last that its node said
        lost = pod(phase, False, reason="NodeLost", deleting=deleting)
        only(judge_pod("head", lost, NOW), "unknown", "the state of pod head is unknown (NodeLost)")
    only(judge_pod("head", pod("NewPhase"), NOW), "unknown", "the state of pod head is unknown")


def test_a_deleted_pod_is_told_to_save_until_its_end_is_long_overdue() -> None:
    for phase, overdue, words, remedy in [
        ("Running", -5400.0, "head is being deleted", "save a checkpoint"),
        ("Running", 60.0, "head is being deleted", "save a checkpoint"),
        ("Running", 7200.0, "was deleted, and should have ended 2h00m ago", "kubectl get nodes"),
        ("Pending", 60.0, "was deleted before it started", "create it again"),
    ]:
        state = pod(phase, deleting=True, deletes_at=NOW - overdue)
        only(judge_pod("head", state, NOW), "warning", words, remedy)
    pulls = pod("Pending", False, node="n", reason="ErrImagePull", deleting=True, deletes_at=NOW)
    only(judge_pod("head", pulls, NOW), "warning", "was deleted before it started")
    failed = pod("Failed", False, deleting=True, deletes_at=NOW - 7200.0)
    only(judge_pod("head", failed, NOW), "failed", "head is Failed")


def test_a_pod_whose_node_does_not_report_is_not_well() -> None:
    state = pod(ready=False, reason=NODE_SILENT, message="its node does not report")
    only(judge_pod("head", state, NOW), "warning", "its node does not report", "kubectl get nodes")


def test_a_restart_is_told_with_its_container_and_age_for_a_day() -> None:
    state = pod(restarts=1, reason="OOMKilled", ended_container="proxy", terminated_at=NOW - 7200)
    only(judge_pod("head", state, NOW), "warning", "OOMKilled (1 restart, container proxy 2h00m ago)", "memory limit")
    assert judge_pod("head", state, NOW + 86_400) == []
    probed = pod(restarts=4, terminated="Error", exit_code=137, terminated_at=NOW - 60)
    only(judge_pod("head", probed, NOW), "warning", "head: Error (4 restarts, 1m ago)", "--previous")
    assert judge_pod("head", replace(probed, terminated="Completed", exit_code=0), NOW) == []
    only(judge_pod("head", replace(probed, ready=False), NOW + 86_400), "warning", "head: not ready", "describe pod")
    only(judge_pod("head", pod(reason="EvictionByEvictionAPI"), NOW), "warning", "EvictionByEvictionAPI")


def test_a_pod_is_judged_by_the_container_that_trains() -> None:
    of = {"containers": ("train", "proxy"), "main_container": "train"}
    done, failed = ContainerEnd("Completed", 0, None), ContainerEnd("Error", 1, None)
    beside = {"reason": "CrashLoopBackOff", "ended_container": "proxy", "exit_code": 2}
    again = {"reason": "CrashLoopBackOff", "ended_container": "train", "exit_code": 0}
    for more, verdict, words in [
        ({"ends": {"train": failed}}, "failed", "pod head/train is Failed: Error (exit code 1)"),
        ({"ends": {"train": done}}, "warning", "pod head/train is Succeeded"),
        ({"ends": {"proxy": failed}}, "warning", "pod head: not ready"),
        ({"phase": "Failed", "ended_container": "proxy", "ends": {"train": done}}, "warning", "train is Succeeded"),
        (beside, "warning", "CrashLoopBackOff"),
        (again, "failed", "its container finishes, and is started again"),
    ]:
        only(judge_pod("head", pod(ready=False, **of, **more), NOW), verdict, words)
    sidecar = pod(ready=False, containers=("train",), **beside)  # an init container that goes on
    only(judge_pod("head", sidecar, NOW), "warning", "CrashLoopBackOff")


def test_a_pod_that_cannot_start_has_failed_and_one_that_starts_again_has_not() -> None:
    state = {"node": "n", "reason": "CreateContainerConfigError", "message": "no secret"}
    only(judge_pod("head", pod("Pending", False, **state), NOW), "failed", "(CreateContainerConfigError): no secret")
    state = {"node": "n", "terminated": "OOMKilled", "restarts": 1}
    only(judge_pod("head", pod("Pending", False, **state), NOW), "warning", "pod head is Pending")
    only(judge_pod("head", pod("Pending", False, message="no luck"), NOW), "warning", "pod head is Pending: no luck")
    state = {"reason": "CreateContainerError", "terminated": "Unknown", "message": "context deadline exceeded"}
    only(judge_pod("head", pod(ready=False, **state), NOW), "failed", "CreateContainerError (0 restarts)")
    again = {"reason": "ContainerCreating", "terminated": "Unknown", "restarts": 1}
    only(judge_pod("head", pod(ready=False, **again), NOW), "warning", "ContainerCreating (1 restart)")
    crash = {"reason": "CrashLoopBackOff", "ended_container": "fetch", "containers": ("train",)}
    only(judge_pod("head", pod("Pending", False, **crash), NOW), "failed", "(CrashLoopBackOff, container fetch)")


def test_a_full_disk_is_named_with_its_place_and_one_with_room_is_well() -> None:
    for percent, verdict in [(95.0, "warning"), (98.9, "warning"), (99.0, "failed"), (100.0, "failed")]:
        only(judge_disk("head", "/data", percent, 1e9), verdict, "head: /data is", "old checkpoints")
    assert judge_disk("head", "/data", 94.9, 1e9) == []
    only(judge_disk("head", "/data", 99.1, 3e11), "warning", "head: /data is", "old checkpoints")
