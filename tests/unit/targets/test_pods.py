"""Pods out of kubectl's JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from training_monitor.core.errors import ParseError
from training_monitor.judging.failure import classify_failure
from training_monitor.targets.pods import describe_end, parse_pods


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


def test_a_container_killed_for_memory_is_the_worst_reason_even_after_its_restart() -> None:
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
    assert (state.terminated, state.exit_code, state.terminated_at) == ("OOMKilled", 137, 1893456010.0)
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
