"""The other pods of a pod's training, by its labels, over the real kubectl."""

from __future__ import annotations

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
