"""Pods out of kubectl's JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from training_monitor.core.errors import ParseError
from training_monitor.core.results import PodState
from training_monitor.targets.pod_advice import advise_start
from training_monitor.targets.pods import NODE_SILENT, describe_end, end_of_container, is_stuck, parse_pods, standing_of
from training_monitor.verdict.failure import classify_failure


def container(state: dict[str, Any] | None = None, last: dict[str, Any] | None = None, **others: Any) -> dict[str, Any]:
    states = {"state": state or {"running": {}}, "lastState": last or {}}
    return {"name": "c", "ready": state is None, "restartCount": 0, **states, **others}


def pod(*containers: dict[str, Any], metadata: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {"name": "head", "labels": {"app": "ray"}, **(metadata or {})},
        "spec": {"nodeName": "node-1"},
        "status": {"phase": "Running", "containerStatuses": list(containers), **status},
    }


def state_of(*containers: dict[str, Any], **more: Any) -> PodState:
    [state] = parse_pods(json.dumps(pod(*containers, **more)))
    return state


def test_a_running_pod_is_ready_and_a_list_gives_every_pod() -> None:
    state = state_of(container())
    assert (state.name, state.phase, state.ready, state.restarts, state.node) == ("head", "Running", True, 0, "node-1")
    assert (state.reason, dict(state.labels), state.deleting) == (None, {"app": "ray"}, False)
    items = [pod(container()), pod(container(), metadata={"name": "worker"})]
    assert [found.name for found in parse_pods(json.dumps({"kind": "List", "items": items}))] == ["head", "worker"]
    assert parse_pods('{"kind": "PodList", "items": []}') == ()
    text = json.dumps(pod(container(), metadata={"deletionTimestamp": "2030-01-01T00:00:00Z"}))
    assert parse_pods(text)[0].deleting is True


def test_a_waiting_container_gives_the_reason_and_restarts_are_summed() -> None:
    reason = "ImagePullBackOff"
    state = state_of(container(), container({"waiting": {"reason": reason, "message": "why"}}))
    assert (state.reason, state.message, state.ready) == (reason, "why", False)
    state = state_of(container(restartCount=2), container(restartCount=3))
    assert state.restarts == 5
    killed = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
    dead = container({"waiting": {"reason": "CrashLoopBackOff"}}, killed)
    assert state_of(container(), dead).reason == "OOMKilled"
    done = container({"terminated": {"reason": "Completed", "exitCode": 0}})
    assert state_of(done, phase="Succeeded").reason is None


def test_an_evicted_pod_and_one_that_finds_no_node_say_why() -> None:
    state = state_of(phase="Failed", reason="Evicted", message="low on ephemeral-storage")
    assert (state.phase, state.reason, state.message) == ("Failed", "Evicted", "low on ephemeral-storage")
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    state = state_of(phase="Pending", conditions=[condition])
    assert (state.reason, state.message, state.ready) == ("Unschedulable", "0/3 nodes", False)


def test_the_error_of_a_container_runtime_is_one_line_and_the_end_of_a_log_keeps_its_lines() -> None:
    text = "runc create failed: hook #0: stdout: , stderr: mode is legacy\nnvidia-container-cli: driver not loaded"
    for reason, said in ("StartError", text.replace("\n", " ")), ("Error", text):
        ended = container({"terminated": {"reason": reason, "exitCode": 128, "message": text}})
        assert state_of(ended, phase="Failed").message == said


def test_a_long_error_of_a_runtime_or_a_registry_keeps_both_ends() -> None:
    text = 'failed to pull image "registry.example/team/llm:v3": ' + "failed to resolve reference: " * 20 + "not found"
    for reason in ("ImagePullBackOff", "StartError"):
        said = describe_end(state_of(container({"waiting": {"reason": reason, "message": text}}), phase="Pending"))
        assert len(said) < 200 and f"{reason}: {text[:30]}" in said and said.endswith("not found")


def test_an_init_container_that_runs_is_named_and_a_sidecar_only_until_it_has_started() -> None:
    waits, running = container({"waiting": {"reason": "PodInitializing"}}), {"running": {}}
    for policy, started, said in [
        ({}, True, "init container fetch is running"),
        ({"restartPolicy": "Always"}, True, None),
        ({"restartPolicy": "Always"}, False, "init container fetch is running"),
    ]:
        init = container(running, name="fetch", started=started)
        told = pod(waits, initContainerStatuses=[init], phase="Pending")
        told["spec"] = {"nodeName": "n", "containers": [{"name": "c"}], "initContainers": [{"name": "fetch", **policy}]}
        [state] = parse_pods(json.dumps(told))
        assert (state.reason, state.message) == (None, said) and not is_stuck(state)


def test_what_waits_is_stuck_if_its_containers_do_not_start_or_crash() -> None:
    waits = PodState("w", "Pending", False, 0, node="n", reason="CreateContainerConfigError")
    for changes, expected in [
        ({}, True),
        ({"node": None, "reason": "Unschedulable"}, False),
        ({"reason": None}, False),
        ({"deleting": True}, False),
        ({"reason": "RegistryUnavailable"}, False),
        ({"reason": "ErrImagePull"}, False),  # it is tried again
        ({"reason": "ImagePullBackOff"}, True),
        ({"reason": "Error", "terminated": "Error"}, False),  # its first end: it is started again
        ({"reason": "Error", "terminated": "Error", "restarts": 1}, True),
        ({"reason": "CrashLoopBackOff", "terminated": "Error"}, True),
        ({"reason": "StartError", "terminated": "StartError"}, True),
        ({"phase": "Running"}, False),
        ({"node": None, "kind": "container", "reason": None}, False),
        ({"node": None, "kind": "container", "reason": None, "terminated": "Error"}, True),
        ({"node": None, "kind": "container", "reason": None, "terminated": "Completed", "exit_code": 0}, False),
        ({"node": None, "kind": "job", "reason": "Resources"}, False),
    ]:
        assert is_stuck(replace(waits, **changes)) is expected, changes


def test_a_container_that_is_created_again_does_not_wait_after_a_crash() -> None:
    for now, is_crash in [("ContainerCreating", False), ("PodInitializing", False), ("CrashLoopBackOff", True)]:
        again = container({"waiting": {"reason": now}}, end("Unknown", 255), restartCount=2)
        for phase in ("Pending", "Running"):
            stands = standing_of(state_of(again, phase=phase), "c")
            assert stands and (stands.reason, stands.phase, is_stuck(stands)) == (now, "Pending", is_crash)
    first = state_of(container({"waiting": {"reason": "ContainerCreating"}}), phase="Pending")
    assert (first.reason, is_stuck(first)) == (None, False)


def test_the_crash_of_the_training_is_the_reason_whatever_its_sidecars_died_of() -> None:
    waits = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": terminated(1, "Error")}
    beside = {**waits, "lastState": terminated(137, "OOMKilled")}
    state = ended_pod("Running", {"trainer": waits, "proxy": beside})
    stands = standing_of(state, state.main_container)
    assert stands and (stands.name, stands.reason, stands.exit_code) == ("w/trainer", "CrashLoopBackOff", 1)
    assert ended_pod("Running", {"trainer": {"state": {"running": {}}}, "proxy": beside}).reason == "OOMKilled"
    assert ended_pod("Pending", {"trainer": waits, "proxy": beside}).reason == "OOMKilled"


def test_a_pod_that_only_kubernetes_calls_not_ready_has_a_silent_node() -> None:
    for reason, of_containers, said in [
        ("", "True", NODE_SILENT),
        ("ReadinessGatesNotReady", "True", None),
        ("", "False", None),
    ]:
        ready = {"type": "Ready", "status": "False", "reason": reason}
        state = state_of(container(), conditions=[ready, {"type": "ContainersReady", "status": of_containers}])
        assert (state.reason, state.ready) == (said, said is None)


def test_a_pod_that_is_deleted_says_until_when() -> None:
    state = state_of(container(), phase="Pending", metadata={"deletionTimestamp": "2030-01-01T00:00:10Z"})
    assert state.deletes_at == 1893456010.0
    assert describe_end(state) == "pod head is Pending and being deleted"


def test_a_disruption_is_the_reason_unless_a_container_ran_out_of_memory() -> None:
    told = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "by trainer-7"}
    state = state_of(container(end("Error", 143)), phase="Failed", conditions=[told])
    assert (state.reason, state.message) == ("PreemptionByScheduler", "by trainer-7")
    failure = classify_failure("", exit_code=143, pod=state)
    assert (failure.category, failure.action) == ("preemption", "restart_elsewhere")
    assert describe_end(state).startswith("pod head is Failed: PreemptionByScheduler (exit code 143, at ")
    state = state_of(container(end("OOMKilled", 137)), phase="Failed", conditions=[told])
    assert state.reason == "OOMKilled" and classify_failure("", pod=state).category == "host_oom"


def test_the_end_of_an_init_container_is_its_own_and_no_reason_if_it_succeeded() -> None:
    waits = container({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}, end("Error", 1), name="fetch")
    told = pod(container({"waiting": {"reason": "PodInitializing"}}), initContainerStatuses=[waits], phase="Pending")
    told["spec"] = {"containers": [{"name": "c"}]}
    [state] = parse_pods(json.dumps(told))
    assert describe_end(state).startswith("pod head is Pending: CrashLoopBackOff (container fetch, exit code 1, at ")
    done, pulls = container(end("Completed", 0), end("Error", 1), name="i"), {"waiting": {"reason": "PodInitializing"}}
    state = state_of(container(pulls), initContainerStatuses=[done], phase="Pending")
    assert (state.reason, state.ended_container, state.exit_code) == (None, None, None)


def test_the_container_that_does_not_start_is_named_among_several() -> None:
    creating, running = {"waiting": {"reason": "ContainerCreating"}}, {"running": {}}
    pulls = {"waiting": {"reason": "ImagePullBackOff", "message": "back-off"}}
    killed = end("OOMKilled", 137)  # before its last restart
    both = {"containers": [with_gpu("a"), {"name": "b"}]}
    with_init = {"containers": [{"name": "a"}], "initContainers": [{"name": "fetch"}]}
    again = container(running, end("Completed", 0), name="fetch")  # of a pod that was created again on its node
    lost = container({"waiting": {"reason": "PodInitializing"}}, end("Unknown", 255), name="a")
    starts, stops = container(creating, name="a"), container(pulls, name="b")
    for spec, containers, init, said in [
        (both, [starts, stops], [], "ImagePullBackOff (container b): back-off"),
        (both, [container(running, killed, name="a"), stops], [], "ImagePullBackOff (container b): back-off"),
        (with_init, [starts], [container(pulls, name="fetch")], "ImagePullBackOff (container fetch): back-off"),
        ({"containers": [{"name": "b"}]}, [stops], [], "ImagePullBackOff: back-off"),
        (with_init, [lost], [again], "init container fetch is running"),
    ]:
        told = {**pod(*containers, initContainerStatuses=init, phase="Pending"), "spec": spec}
        [state] = parse_pods(json.dumps(told))
        assert said in describe_end(state), describe_end(state)
    assert advise_start(state) == "run kubectl logs -c fetch to see its progress"


def test_a_container_with_exit_code_0_completed_although_one_of_its_processes_ran_out_of_memory() -> None:
    spared = end("OOMKilled", 0)
    said = "Completed, although one of its processes ran out of memory (exit code 0, at "
    assert describe_end(state_of(container(spared), phase="Succeeded")).startswith(f"pod head is Succeeded: {said}")
    again = state_of(container({"running": {}}, spared, restartCount=1))
    assert (again.reason, again.exit_code) == (None, 0)
    waits = state_of(container({"waiting": {"reason": "CrashLoopBackOff"}}, spared, restartCount=1))
    assert (waits.reason, waits.exit_code) == ("CrashLoopBackOff", 0)
    beside = {"trainer": {"state": terminated(0, "OOMKilled")}, "proxy": {"state": {"running": {}}}}
    ended = end_of_container(ended_pod("Running", beside, restartPolicy="Never"), "trainer")
    assert ended and said in describe_end(ended)
    failed = state_of(container(end("OOMKilled", 1)), phase="Failed")  # its shell told of a process that was killed
    assert failed.reason == "OOMKilled"


def test_the_container_that_is_meant() -> None:
    proxy, trainer, other = {"name": "proxy"}, with_gpu("trainer"), with_gpu("other")
    failed = {**container(end("Error", 1)), "name": "proxy"}
    done = {**container(end("Completed", 0)), "name": "proxy"}
    for spec, status, phase, meant in [
        ([proxy], [], "Running", None),
        ([proxy, trainer], [], "Running", "trainer"),
        ([proxy, {"name": "main"}], [], "Running", None),
        ([proxy, trainer, other], [], "Running", None),
        ([proxy, trainer], [failed], "Failed", "proxy"),
        ([proxy, trainer], [done], "Succeeded", "trainer"),
        ([proxy, {"name": "main"}], [done], "Succeeded", "proxy"),
    ]:
        told = {"metadata": {"name": "w"}, "spec": {"containers": spec}}
        told["status"] = {"phase": phase, "containerStatuses": status}
        [state] = parse_pods(json.dumps(told))
        assert state.main_container == meant
        assert state.default_container == "proxy"


def test_the_container_with_gpus_is_meant_and_the_default_one_runs_commands() -> None:
    for resources in [
        {"limits": {"nvidia.com/mig-3g.40gb": "1"}},
        {"limits": {"nvidia.com/gpu.shared": "2"}},
        {"limits": {"gpu.intel.com/i915": "1"}},
        {"limits": {"google.com/tpu": "8"}},
        {"limits": {"habana.ai/gaudi": "8"}},
        {"limits": {"huawei.com/Ascend310P": "2"}},
        {"claims": [{"name": "gpu"}]},
    ]:
        proxy = {"name": "proxy", "resources": {"limits": {"memory": "1Gi", "rdma/hca": "1", "nvidia.com/gpumem": "0"}}}
        spec = {"containers": [proxy, {"name": "train", "resources": resources}]}
        assert parse_pods(json.dumps({"metadata": {"name": "w"}, "spec": spec}))[0].main_container == "train"
    containers = [{"name": "proxy"}, {"name": "trainer"}]
    annotations = {"kubectl.kubernetes.io/default-container": "trainer"}
    for metadata, default in ({"name": "w"}, "proxy"), ({"name": "w", "annotations": annotations}, "trainer"):
        [pod] = parse_pods(json.dumps({"metadata": metadata, "spec": {"containers": containers}}))
        assert pod.default_container == default
    assert parse_pods(json.dumps({"metadata": {"name": "w"}}))[0].default_container is None


def with_gpu(name: str) -> dict[str, Any]:
    return {"name": name, "resources": {"limits": {"nvidia.com/gpu": 1}}}


def end(reason: str, code: object, at: str = "2030-01-01T00:00:10Z") -> dict[str, Any]:
    return {"terminated": {"reason": reason, "exitCode": code, "finishedAt": at}}


def test_how_its_containers_ended_is_the_worst_of_their_ends() -> None:
    killed = container(None, last=end("OOMKilled", 137))
    failed = container(end("Error", 1))
    state = state_of(failed, killed)
    assert (state.reason, state.terminated, state.exit_code, state.terminated_at) == ("Error", "Error", 1, 1893456010.0)
    state = state_of(container(), killed)
    assert (state.reason, state.terminated, state.exit_code) == (None, "OOMKilled", 137)
    state = state_of(container(end("Completed", 0)), failed)
    assert (state.terminated, state.exit_code) == ("Error", 1)
    state = state_of(container(end("Completed", 0)))
    assert (state.terminated, state.exit_code) == ("Completed", 0)
    state = state_of(container())
    assert (state.terminated, state.exit_code, state.terminated_at) == (None, None, None)


def test_an_exit_status_that_is_none_or_that_nobody_saw_is_not_known() -> None:
    for code in ["137", 1.5, True, None, 10**30, [137]]:
        state = state_of(container(end("Error", code, "yesterday")))
        assert (state.terminated, state.exit_code, state.terminated_at) == ("Error", None, None)
    state = state_of(container(end("ContainerStatusUnknown", 137)), phase="Failed")
    assert (state.reason, state.exit_code) == ("ContainerStatusUnknown", None)
    assert classify_failure("", pod=state).category == "unknown"


def test_what_is_no_pod_is_an_error_and_odd_names_are_read_over() -> None:
    for text in ["", "Error from server (NotFound)", "[]", "{}", '{"kind": "List"}', '{"kind":"Node"}', "3"]:
        with pytest.raises(ParseError):
            parse_pods(text)
    told = pod({**container(), "name": []}, conditions=[{"type": []}])
    told["spec"] = {"containers": [{"name": {}}]}
    assert [each.phase for each in parse_pods(json.dumps(told))] == ["Running"]


def ended_pod(phase: str, ends: dict[str, dict[str, Any]], **spec: Any) -> PodState:
    """A pod by the states of its containers; the first one has GPUs."""
    limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    containers = [{"name": name, **(limits if not at else {})} for at, name in enumerate(ends)]
    statuses = [{"name": name, **state} for name, state in ends.items()]
    told = {"metadata": {"name": "w"}, "spec": {"containers": containers, **spec}}
    told["status"] = {"phase": phase, "containerStatuses": statuses}
    [pod] = parse_pods(json.dumps({"kind": "Pod", **told}))
    return pod


def terminated(code: int, reason: str, at: str = "2030-01-02T00:00:00Z") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": at}}


OLD_KILL = {"lastState": terminated(137, "OOMKilled", "2029-12-20T00:00:00Z")}


def test_a_pod_ended_as_its_failed_container_ended_now_and_not_before() -> None:
    sidecar = {"state": terminated(0, "Completed"), **OLD_KILL}
    pod = ended_pod("Failed", {"trainer": {"state": terminated(1, "Error"), **OLD_KILL}, "proxy": sidecar})
    assert (pod.reason, pod.terminated, pod.exit_code, pod.ended_container) == ("Error", "Error", 1, "trainer")
    assert pod.main_container == "trainer"
    pod = ended_pod("Succeeded", {"trainer": {"state": terminated(0, "Completed"), **OLD_KILL}, "proxy": sidecar})
    assert (pod.reason, pod.exit_code, pod.ended_container) == (None, 0, "trainer")
    both = {"trainer": {"state": terminated(0, "Completed")}, "proxy": {"state": terminated(137, "OOMKilled")}}
    pod = ended_pod("Failed", both, restartPolicy="Never")
    assert (pod.reason, pod.exit_code, pod.ended_container) == ("OOMKilled", 137, "proxy")
    stands = standing_of(pod, pod.main_container)
    assert stands and (stands.name, stands.phase, stands.exit_code) == ("w/trainer", "Succeeded", 0)
    old, waits = container(None, end("OOMKilled", 137), name="a"), {"waiting": {"reason": "CrashLoopBackOff"}}
    state = state_of(old, container(waits, end("Error", 2), name="b"))
    assert (state.reason, state.ended_container, state.exit_code) == ("CrashLoopBackOff", "b", 2)


def test_a_trainer_that_exits_well_in_a_pod_that_is_ended_from_outside_has_not_succeeded() -> None:
    [evicted] = parse_pods(
        json.dumps(
            {
                "metadata": {"name": "w"},
                "spec": {"containers": [with_gpu("trainer"), {"name": "proxy"}], "restartPolicy": "Never"},
                "status": {
                    "phase": "Failed",
                    "reason": "Evicted",
                    "containerStatuses": [
                        {"name": "trainer", "state": terminated(0, "Completed")},
                        {"name": "proxy", "state": terminated(137, "Error")},
                    ],
                },
            }
        )
    )
    stands = standing_of(evicted, evicted.main_container)
    assert stands and (stands.phase, stands.reason) == ("Failed", "Evicted")


def test_the_container_where_kubectl_runs_a_command_stands_for_a_pod_without_gpus() -> None:
    waits = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": terminated(1, "Error")}
    spec = {"containers": [{"name": "ray-head"}, {"name": "autoscaler"}]}
    status = {"phase": "Running", "containerStatuses": [{"name": "ray-head", **waits}]}
    [head] = parse_pods(json.dumps({"metadata": {"name": "h"}, "spec": spec, "status": status}))
    stands = standing_of(head, head.main_container)
    assert stands and (stands.name, stands.phase) == ("h/ray-head", "Pending")


@pytest.mark.parametrize(
    ("policy", "code", "phase"),
    [("Never", 0, "Succeeded"), ("Never", 1, "Failed"), ("OnFailure", 0, "Succeeded"), ("OnFailure", 1, None)]
    + [(None, 0, None)],
)  # fmt: skip
def test_a_container_has_ended_for_good_where_its_pod_does_not_start_it_again(
    policy: str | None, code: int, phase: str | None
) -> None:
    trainer = {"state": terminated(code, "Error" if code else "Completed")}
    spec = {} if policy is None else {"restartPolicy": policy}
    pod = ended_pod("Running", {"trainer": trainer, "proxy": {"state": {"running": {}}, **OLD_KILL}}, **spec)
    ended = end_of_container(pod, pod.main_container)
    assert (ended.phase if ended else None) == phase and end_of_container(pod, "proxy") is None
    if ended:
        assert (ended.name, ended.exit_code, ended.reason) == ("w/trainer", code, None)


def test_a_container_has_ended_for_good_by_its_own_restart_policy() -> None:
    for of_container, has_ended in [
        ({"restartPolicy": "Never"}, True),
        ({"restartPolicy": "Never", "restartPolicyRules": [{"action": "Restart"}]}, False),
        ({"restartPolicy": "OnFailure"}, False),
        ({}, False),
    ]:
        spec = {"containers": [{"name": "train", **of_container}, {"name": "proxy"}], "restartPolicy": "Always"}
        told = pod({"name": "train", "state": end("Error", 1)}, {"name": "proxy", "state": {"running": {}}})
        [state] = parse_pods(json.dumps({**told, "spec": spec}))
        assert (end_of_container(state, "train") is not None) is has_ended


def test_one_of_several_containers_that_has_ended_is_not_the_training() -> None:
    spec = {"containers": [{"name": "prepare"}, {"name": "train"}], "restartPolicy": "Never"}
    told = [{"name": "prepare", "state": terminated(0, "Completed")}, {"name": "train", "state": {"running": {}}}]
    status = {"phase": "Running", "containerStatuses": told}
    [both] = parse_pods(json.dumps({"metadata": {"name": "p"}, "spec": spec, "status": status}))
    stands = standing_of(both, both.main_container)  # why nothing can be asked where kubectl runs a command
    assert stands and stands.phase == "Running"
    assert describe_end(stands).startswith("pod p: Completed (container prepare, exit code 0, at ")


def test_what_has_not_begun_or_waits_after_a_crash_stands_in_the_way() -> None:
    waits = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": terminated(137, "OOMKilled")}
    both = {"trainer": waits, "proxy": {"state": {"running": {}}}}
    for phase, container, name in ("Running", None, "w/trainer"), ("Pending", None, "w"), ("Running", "proxy", None):
        pod = ended_pod(phase, both)
        stands = standing_of(pod, container or pod.main_container)
        assert (stands and (stands.name, stands.phase)) == (name and (name, "Pending"))
        assert stands is None or stands.exit_code == 137
    waits["state"]["waiting"]["reason"] = "CreateContainerError"
    stands = standing_of(ended_pod("Running", both), "trainer")
    assert stands and (stands.name, stands.phase) == ("w/trainer", "Pending")
