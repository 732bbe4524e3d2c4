"""Pods out of kubectl's JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from training_monitor.core.errors import ParseError
from training_monitor.core.results import PodState
from training_monitor.targets.pods import describe_end, end_of_container, parse_pods, standing_of
from training_monitor.verdict.failure import classify_failure


def container(state: dict[str, Any] | None = None, last: dict[str, Any] | None = None, **others: Any) -> dict[str, Any]:
    return {
        "name": "c",
        "ready": state is None,
        "restartCount": 0,
        "state": state or {"running": {}},
        "lastState": last or {},
        **others,
    }


def pod(*containers: dict[str, Any], metadata: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {"name": "head", "labels": {"app": "ray"}, **(metadata or {})},
        "spec": {"nodeName": "node-1"},
        "status": {"phase": "Running", "containerStatuses": list(containers), **status},
    }


def test_a_running_pod_is_ready_and_has_no_reason() -> None:
    (found,) = parse_pods(json.dumps(pod(container())))
    assert (found.name, found.phase, found.ready, found.restarts, found.node) == ("head", "Running", True, 0, "node-1")
    assert (found.reason, dict(found.labels), found.deleting) == (None, {"app": "ray"}, False)


def test_a_list_gives_every_pod() -> None:
    items = [pod(container()), pod(container(), metadata={"name": "worker"})]
    assert [found.name for found in parse_pods(json.dumps({"kind": "List", "items": items}))] == ["head", "worker"]
    assert parse_pods('{"kind": "PodList", "items": []}') == ()


def test_restarts_are_summed_over_containers() -> None:
    (found,) = parse_pods(json.dumps(pod(container(restartCount=2), container(restartCount=3))))
    assert found.restarts == 5


@pytest.mark.parametrize("reason", ["CrashLoopBackOff", "ImagePullBackOff"])
def test_a_waiting_container_gives_the_reason(reason: str) -> None:
    (found,) = parse_pods(json.dumps(pod(container(), container({"waiting": {"reason": reason, "message": "why"}}))))
    assert (found.reason, found.message, found.ready) == (reason, "why", False)


def test_an_oom_killed_container_stays_the_reason_after_a_restart() -> None:
    killed = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
    dead = container({"waiting": {"reason": "CrashLoopBackOff"}}, killed)
    assert parse_pods(json.dumps(pod(container(), dead)))[0].reason == "OOMKilled"


def test_an_evicted_pod_says_so_itself() -> None:
    (found,) = parse_pods(json.dumps(pod(phase="Failed", reason="Evicted", message="low on ephemeral-storage")))
    assert (found.phase, found.reason, found.message) == ("Failed", "Evicted", "low on ephemeral-storage")


def test_a_pod_that_finds_no_node_says_why() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    (found,) = parse_pods(json.dumps(pod(phase="Pending", conditions=[condition])))
    assert (found.reason, found.message, found.ready) == ("Unschedulable", "0/3 nodes", False)


def test_a_disruption_is_the_reason_before_how_its_containers_ended() -> None:
    told = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "by trainer-7"}
    [state] = parse_pods(json.dumps(pod(container(end("Error", 143)), phase="Failed", conditions=[told])))
    assert (state.reason, state.message) == ("PreemptionByScheduler", "by trainer-7")
    failure = classify_failure("", exit_code=143, pod=state)
    assert (failure.category, failure.action) == ("preemption", "restart_elsewhere")
    assert describe_end(state).startswith("pod head is Failed: PreemptionByScheduler (exit code 143, at ")


def test_a_container_that_ran_out_of_memory_is_the_reason_although_its_pod_was_disrupted() -> None:
    told = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "by trainer-7"}
    [state] = parse_pods(json.dumps(pod(container(end("OOMKilled", 137)), phase="Failed", conditions=[told])))
    assert state.reason == "OOMKilled" and classify_failure("", pod=state).category == "host_oom"


def test_an_end_that_nobody_saw_has_no_exit_code() -> None:
    [state] = parse_pods(json.dumps(pod(container(end("ContainerStatusUnknown", 137)), phase="Failed")))
    assert (state.reason, state.exit_code) == ("ContainerStatusUnknown", None)
    assert classify_failure("", pod=state).category == "unknown"


def test_the_end_of_an_init_container_is_reported_as_its_own() -> None:
    waits = container({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}, end("Error", 1), name="fetch")
    told = pod(container({"waiting": {"reason": "PodInitializing"}}), initContainerStatuses=[waits], phase="Pending")
    told["spec"] = {"containers": [{"name": "c"}]}
    [state] = parse_pods(json.dumps(told))
    assert describe_end(state).startswith("pod head is Pending: CrashLoopBackOff (container fetch, exit code 1, at ")


def test_an_init_container_that_succeeded_at_last_is_no_reason_and_no_end() -> None:
    done, pulls = container(end("Completed", 0), end("Error", 1), name="i"), {"waiting": {"reason": "PodInitializing"}}
    [state] = parse_pods(json.dumps(pod(container(pulls), initContainerStatuses=[done], phase="Pending")))
    assert (state.reason, state.ended_container, state.exit_code) == (None, None, None)


def test_names_and_types_that_are_no_text_are_read_over() -> None:
    told = pod({**container(), "name": []}, conditions=[{"type": []}])
    told["spec"] = {"containers": [{"name": {}}]}
    assert [each.phase for each in parse_pods(json.dumps(told))] == ["Running"]


def test_the_reported_end_is_that_of_the_container_that_is_the_reason() -> None:
    old, waits = container(None, end("OOMKilled", 137), name="a"), {"waiting": {"reason": "CrashLoopBackOff"}}
    [state] = parse_pods(json.dumps(pod(old, container(waits, end("Error", 2), name="b"))))
    assert (state.reason, state.ended_container, state.exit_code) == ("CrashLoopBackOff", "b", 2)


def test_the_container_that_is_meant(subtests: pytest.Subtests) -> None:
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
        with subtests.test(spec=[each["name"] for each in spec], phase=phase):
            told = {"metadata": {"name": "w"}, "spec": {"containers": spec}}
            told["status"] = {"phase": phase, "containerStatuses": status}
            [state] = parse_pods(json.dumps(told))
            assert state.main_container == meant
            assert state.default_container == "proxy"


def test_the_container_where_kubectl_runs_a_command() -> None:
    containers = [{"name": "proxy"}, {"name": "trainer"}]
    annotations = {"kubectl.kubernetes.io/default-container": "trainer"}
    for metadata, default in ({"name": "w"}, "proxy"), ({"name": "w", "annotations": annotations}, "trainer"):
        [pod] = parse_pods(json.dumps({"metadata": metadata, "spec": {"containers": containers}}))
        assert pod.default_container == default
    assert parse_pods(json.dumps({"metadata": {"name": "w"}}))[0].default_container is None


def test_the_container_with_a_part_of_a_gpu_or_a_claimed_one_is_meant(subtests: pytest.Subtests) -> None:
    for resources in [
        {"limits": {"nvidia.com/mig-3g.40gb": "1"}},
        {"limits": {"nvidia.com/gpu.shared": "2"}},
        {"limits": {"gpu.intel.com/i915": "1"}},
        {"claims": [{"name": "gpu"}]},
    ]:
        with subtests.test(resources=resources):
            proxy = {"name": "proxy", "resources": {"limits": {"memory": "1Gi", "nvidia.com/gpumem": "0"}}}
            spec = {"containers": [proxy, {"name": "train", "resources": resources}]}
            assert parse_pods(json.dumps({"metadata": {"name": "w"}, "spec": spec}))[0].main_container == "train"


def with_gpu(name: str) -> dict[str, Any]:
    return {"name": name, "resources": {"limits": {"nvidia.com/gpu": 1}}}


def test_a_completed_container_is_no_reason() -> None:
    done = container({"terminated": {"reason": "Completed", "exitCode": 0}})
    assert parse_pods(json.dumps(pod(done, phase="Succeeded")))[0].reason is None


def test_a_pod_being_removed_is_deleting() -> None:
    text = json.dumps(pod(container(), metadata={"deletionTimestamp": "2030-01-01T00:00:00Z"}))
    assert parse_pods(text)[0].deleting is True


def end(reason: str, code: object, at: str = "2030-01-01T00:00:10Z") -> dict[str, Any]:
    return {"terminated": {"reason": reason, "exitCode": code, "finishedAt": at}}


def test_how_its_containers_ended_is_the_worst_of_their_ends() -> None:
    killed = container(None, last=end("OOMKilled", 137))
    failed = container(end("Error", 1))
    [state] = parse_pods(json.dumps(pod(failed, killed)))
    assert (state.reason, state.terminated, state.exit_code, state.terminated_at) == ("Error", "Error", 1, 1893456010.0)
    [state] = parse_pods(json.dumps(pod(container(), killed)))
    assert (state.reason, state.terminated, state.exit_code) == (None, "OOMKilled", 137)
    [state] = parse_pods(json.dumps(pod(container(end("Completed", 0)), failed)))
    assert (state.terminated, state.exit_code) == ("Error", 1)
    [state] = parse_pods(json.dumps(pod(container(end("Completed", 0)))))
    assert (state.terminated, state.exit_code) == ("Completed", 0)
    [state] = parse_pods(json.dumps(pod(container())))
    assert (state.terminated, state.exit_code, state.terminated_at) == (None, None, None)


def test_an_exit_status_that_is_none_is_not_known(subtests: pytest.Subtests) -> None:
    for code in ["137", 1.5, True, None, 10**30, [137]]:
        with subtests.test(code=code):
            [state] = parse_pods(json.dumps(pod(container(end("Error", code, "yesterday")))))
            assert (state.terminated, state.exit_code, state.terminated_at) == ("Error", None, None)


def test_anything_else_is_an_error(subtests: pytest.Subtests) -> None:
    for text in ["", "Error from server (NotFound)", "[]", "{}", '{"kind": "List"}', '{"kind":"Node"}', "3"]:
        with subtests.test(text=text):
            with pytest.raises(ParseError):
                parse_pods(text)


# ---------------------------------------------------------------- ends


def ended_pod(phase: str, ends: dict[str, dict[str, Any]], **spec: Any) -> PodState:
    """A pod by the states of its containers; the first one has GPUs."""
    limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    containers = [{"name": name, **(limits if not at else {})} for at, name in enumerate(ends)]
    statuses = [{"name": name, **state} for name, state in ends.items()]
    [pod] = parse_pods(
        json.dumps(
            {
                "kind": "Pod",
                "metadata": {"name": "w"},
                "spec": {"containers": containers, **spec},
                "status": {"phase": phase, "containerStatuses": statuses},
            }
        )
    )
    return pod


def terminated(code: int, reason: str, at: str = "2030-01-02T00:00:00Z") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": at}}


OLD_KILL = {"lastState": terminated(137, "OOMKilled", "2029-12-20T00:00:00Z")}


def test_a_pod_ended_as_its_container_ended_now_and_not_as_one_did_before() -> None:
    sidecar = {"state": terminated(0, "Completed"), **OLD_KILL}
    pod = ended_pod("Failed", {"trainer": {"state": terminated(1, "Error"), **OLD_KILL}, "proxy": sidecar})
    assert (pod.reason, pod.terminated, pod.exit_code, pod.ended_container) == ("Error", "Error", 1, "trainer")
    assert pod.main_container == "trainer"
    pod = ended_pod("Succeeded", {"trainer": {"state": terminated(0, "Completed"), **OLD_KILL}, "proxy": sidecar})
    assert (pod.reason, pod.exit_code, pod.ended_container) == (None, 0, "trainer")


def test_the_failed_container_is_the_reason_of_a_pods_end() -> None:
    both = {"trainer": {"state": terminated(0, "Completed")}, "proxy": {"state": terminated(137, "OOMKilled")}}
    pod = ended_pod("Failed", both, restartPolicy="Never")
    assert (pod.reason, pod.exit_code, pod.ended_container) == ("OOMKilled", 137, "proxy")
    stands = standing_of(pod, pod.main_container)
    assert stands and (stands.name, stands.phase, stands.exit_code) == ("w/trainer", "Succeeded", 0)


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


def test_a_container_has_ended_for_good_by_its_own_restart_policy(subtests: pytest.Subtests) -> None:
    for of_container, has_ended in [
        ({"restartPolicy": "Never"}, True),
        ({"restartPolicy": "Never", "restartPolicyRules": [{"action": "Restart"}]}, False),
        ({"restartPolicy": "OnFailure"}, False),
        ({}, False),
    ]:
        with subtests.test(of_container=of_container):
            spec = {"containers": [{"name": "train", **of_container}, {"name": "proxy"}], "restartPolicy": "Always"}
            told = pod({"name": "train", "state": end("Error", 1)}, {"name": "proxy", "state": {"running": {}}})
            [state] = parse_pods(json.dumps({**told, "spec": spec}))
            assert (end_of_container(state, "train") is not None) is has_ended


def test_what_has_not_begun_or_waits_after_a_crash_stands_in_the_way(subtests: pytest.Subtests) -> None:
    waits = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": terminated(137, "OOMKilled")}
    both = {"trainer": waits, "proxy": {"state": {"running": {}}}}
    for phase, container, name in ("Running", None, "w/trainer"), ("Pending", None, "w"), ("Running", "proxy", None):
        with subtests.test(phase=phase, container=container):
            pod = ended_pod(phase, both)
            stands = standing_of(pod, container or pod.main_container)
            assert (stands and (stands.name, stands.phase)) == (name and (name, "Pending"))
            assert stands is None or stands.exit_code == 137
