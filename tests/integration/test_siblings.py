"""The other pods of a pod's training, by its labels, over the real kubectl."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.conftest import WatchedTransport
from tests.loopback.kubernetes import ContainerState, KubernetesApi
from training_monitor.core.errors import CommandError
from training_monitor.targets.target import parse_target


def siblings(target: str, transport: WatchedTransport) -> list[str]:
    return [pod.name for pod in parse_target(target).find_siblings(transport)]


@pytest.mark.parametrize(
    "label",
    [
        "ray.io/cluster",
        "jobset.sigs.k8s.io/jobset-name",
        "training.kubeflow.org/job-name",
        "leaderworkerset.sigs.k8s.io/name",
        "volcano.sh/job-name",
        "batch.kubernetes.io/job-name",
        "job-name",
        "app.kubernetes.io/instance",
    ],
)
def test_pods_with_the_same_label_are_siblings(kube: KubernetesApi, transport: WatchedTransport, label: str) -> None:
    kube.add_pod("head", labels={label: "llama", "app": "x"})
    kube.add_pod("worker", labels={label: "llama"})
    kube.add_pod("other", labels={label: "qwen", "app": "x"})
    assert siblings("head", transport) == ["worker"]
    assert len(transport.argvs) == 2


def test_the_label_that_holds_most_of_a_training_decides(kube: KubernetesApi, transport: WatchedTransport) -> None:
    of_set = {"jobset.sigs.k8s.io/jobset-name": "run"}
    kube.add_pod("leader", labels={**of_set, "job-name": "run-leader"})
    kube.add_pod("worker", labels={**of_set, "job-name": "run-workers"})
    kube.add_pod("helm", labels={"app.kubernetes.io/instance": "run"})
    assert siblings("leader", transport) == ["worker"]


def test_how_a_sibling_ended_is_told(kube: KubernetesApi, transport: WatchedTransport) -> None:
    kube.add_pod("head", labels={"job-name": "run"})
    killed = kube.add_pod("worker", labels={"job-name": "run"})
    killed.states["main"] = ContainerState(restart_count=1, last_terminated="OOMKilled", exit_code=137)
    [found] = parse_target("head").find_siblings(transport)
    assert (found.terminated, found.exit_code, found.restarts) == ("OOMKilled", 137, 1)


def test_a_failed_pod_whose_job_has_replaced_it_is_no_sibling(
    kube: KubernetesApi, transport: WatchedTransport, subtests: pytest.Subtests
) -> None:
    def add(name: str, minute: int, **more: Any) -> None:
        job, index, _ = f"{name}--".split("-")[:3]
        of_index = {"batch.kubernetes.io/job-completion-index": index} if index.isdigit() else {}
        labels = {"jobset.sigs.k8s.io/jobset-name": "run", "job-name": job, **of_index}
        kube.add_pod(name, labels=labels, created=f"2030-01-01T10:{minute:02}:00Z", **more)

    add("one-0-aaaaa", 0)
    add("one-1-aaaaa", 0, phase="Failed")
    add("one-1-zzzzz", 5, phase="Failed", reason="Evicted")  # which has no containers
    add("one-1-ccccc", 9, phase="Pending", node="")
    add("one-2-aaaaa", 0, phase="Failed")  # and is not replaced yet
    add("two-1-aaaaa", 0, phase="Failed")  # of another job of the set
    add("two-2-aaaaa", 0, phase="Succeeded")
    add("two-2-bbbbb", 5)
    with subtests.test("with an index"):
        found = ["one-1-ccccc", "one-2-aaaaa", "two-1-aaaaa", "two-2-aaaaa", "two-2-bbbbb"]
        assert siblings("one-0-aaaaa", transport) == found
    with subtests.test("the pod itself is kept"):
        own = [pod.name for pod in parse_target("one-1-aaaaa").find_pods_of_training(transport)]
        assert "one-1-aaaaa" in own and "one-1-zzzzz" not in own
    for _, name in list(kube.pods):
        kube.remove_pod(name)
    add("one-aaaaa", 0, phase="Failed")
    add("one-bbbbb", 0, phase="Failed")
    add("one-ccccc", 5)
    with subtests.test("without an index each new pod replaces one"):
        assert siblings("one-ccccc", transport) == ["one-bbbbb"]
    for _, name in list(kube.pods):
        kube.remove_pod(name)
    add("one-worker-0", 0, phase="Failed")
    add("one-worker-1", 5)
    with subtests.test("a pod of Kubeflow is replaced by one of its own name"):
        assert siblings("one-worker-1", transport) == ["one-worker-0"]


def test_a_pod_of_a_job_set_that_was_restarted_is_replaced(kube: KubernetesApi, transport: WatchedTransport) -> None:
    def labels(attempt: int, index: int) -> dict[str, str]:
        return {
            "jobset.sigs.k8s.io/jobset-name": "run",
            "jobset.sigs.k8s.io/restart-attempt": f"{attempt}",
            "job-name": "run-workers-0",
            "batch.kubernetes.io/job-completion-index": f"{index}",
        }

    for index, name in enumerate(("run-workers-0-0-bbbbb", "run-workers-0-1-ccccc")):
        kube.add_pod(name, labels=labels(1, index))
    found = parse_target("run-workers-0-0-aaaaa").find_replacement(labels(0, 0), transport)
    assert str(found) == "k8s://default/run-workers-0-0-bbbbb"


def test_without_labels_without_a_pod_and_elsewhere_there_are_none(
    kube: KubernetesApi, transport: WatchedTransport
) -> None:
    kube.add_pod("alone", labels={"app": "x"})
    assert [siblings(target, transport) for target in ("alone", "gone", "local", "ssh://a@b:1")] == [[], [], [], []]


def test_a_server_that_does_not_answer_is_no_lack_of_siblings(kube: KubernetesApi, transport: WatchedTransport) -> None:
    kube.add_pod("head", labels={"job-name": "run"})
    kube.stop()
    with pytest.raises(CommandError):
        parse_target("head").find_siblings(transport)
