"""What may still run of a training before its next attempt."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.fakes import FakeTransport
from training_monitor.core.errors import LeaseLost, TargetUnreachable
from training_monitor.core.models import Question
from training_monitor.core.results import CommandResult
from training_monitor.supervision.hands import end_what_ray_forgot
from training_monitor.supervision.run_state import RunState, plan_attempt, update_attempt
from training_monitor.targets.asking import Site
from training_monitor.targets.target import parse_target

HEAD = parse_target("k8s://ml/head/ray-head")
LABELS = {"ray.io/cluster": "c"}
PODS = {"head": "Running", "worker-1": "Running", "worker-2": "Pending", "worker-3": "Running"}


class Cluster(FakeTransport):
    """Pods that end one process each; `asked_pods` are those that were asked, with their container."""

    def __init__(self, broken: str = "") -> None:
        super().__init__(lambda script: ("found=1\nstate=stopped\nattempts=4\nlog\nstep 7/9\n", 0))
        self.asked_pods: list[str] = []
        self.register(["kubectl"], lambda words, given: self.answer_kubectl(words, given, broken))

    def answer_kubectl(self, words: tuple[str, ...], given: str | None, broken: str) -> CommandResult:
        line = " ".join(words)
        if " exec " in line:
            [pod] = re.findall(r"exec -i -n ml (\S+(?: -c \S+)?)", line)
            self.asked_pods.append(pod)
            if broken and broken in pod:
                raise TargetUnreachable("connection refused")
            return self.answer_all(words, given)
        names = ["head"] if " head" in line else list(PODS)
        items = [{"metadata": {"name": each, "labels": LABELS}, "status": {"phase": PODS[each]}} for each in names]
        return CommandResult(words, 0, json.dumps({"kind": "PodList", "items": items}), "", 0.0)


def run_that_ended(status: str) -> RunState:
    run = plan_attempt(RunState("key", str(HEAD), "lora", "", 0.0), "lora-attempt-1", None, (), 0.0)
    return update_attempt(run, status=status)


def test_the_driver_of_a_lost_attempt_is_searched_on_all_pods() -> None:
    cluster = Cluster()
    found = end_what_ray_forgot(Site(HEAD, cluster), run_that_ended("LOST"))
    assert sorted(cluster.asked_pods) == ["head -c ray-head", "worker-1", "worker-3"]
    assert (found.ended, found.attempts, found.log_tail.strip()) == (3, 4, "step 7/9")


def test_after_another_end_only_the_head_is_asked() -> None:
    cluster = Cluster()
    assert end_what_ray_forgot(Site(HEAD, cluster), run_that_ended("FAILED")).ended == 1
    assert cluster.asked_pods == ["head -c ray-head"]


def test_a_pod_that_could_not_be_asked_is_no_pod_without_a_driver() -> None:
    with pytest.raises(TargetUnreachable):
        end_what_ray_forgot(Site(HEAD, Cluster(broken="worker-3")), run_that_ended("LOST"))


def test_what_ray_forgot_is_ended_only_by_whoever_supervises_the_training() -> None:
    cluster = Cluster()

    def refuse(question: Question[Any]) -> Question[Any]:
        raise LeaseLost("lora was taken over by bob@node7")

    with pytest.raises(LeaseLost):
        end_what_ray_forgot(Site(HEAD, cluster), run_that_ended("LOST"), guard=refuse)
    assert cluster.asked_pods == []
