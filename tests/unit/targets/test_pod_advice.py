"""What to do about a pod that has not started."""

from __future__ import annotations

from dataclasses import replace

import pytest

from training_monitor.core.results import PodState
from training_monitor.targets.pod_advice import advise_start

PENDING = PodState("train-0", "Pending", False, 0, containers=("main",))
NODES = "0/3 nodes are available: "
# The reason and the message of Kubernetes, and a part of the advice.
WAITS = {
    ("ImagePullBackOff", 'Back-off pulling image "r.example/llm:v3": manifest unknown'): "the name or the tag",
    ("ErrImagePull", "failed to authorize: failed to fetch oauth token: 401 Unauthorized"): "the pull secret",
    ("ErrImagePull", "toomanyrequests: You have reached your pull rate limit"): "rate of anonymous pulls",
    ("ErrImagePull", "dial tcp: lookup r.example: i/o timeout"): "the registry's rate limit",
    ("ErrImagePull", 'failed to pull image "r.example/app:403": i/o timeout'): "the registry's rate limit",
    ("ErrImagePull", "failed to extract layer: no space left on device"): "disk is full",
    ("ErrImagePull", "no match for platform in manifest: not found"): "processors of the node",
    ("ErrImageNeverPull", 'Container image "llm:v3" is not present'): "imagePullPolicy",
    ("InvalidImageName", "couldn't parse image name"): "correct the name of the image",
    ("CreateContainerConfigError", 'secret "hf-token" not found'): "create the secret",
    (
        "CreateContainerConfigError",
        'container has runAsNonRoot and image will run as root (pod: "secret-0")',
    ): "correct the configuration",
    ("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates"): "kubectl get workloads",
    ("Unschedulable", f"{NODES}pod has unbound immediate PersistentVolumeClaims."): "kubectl get pvc",
    ("Unschedulable", "pod group is not ready, 3 Pending, 4 minAvailable"): "starts only as a whole",
    ("Unschedulable", f"{NODES}1 Insufficient nvidia.com/gpu, 2 node(s) had untolerated taint {{a: b}}."): "wait until",
    ("Unschedulable", f"{NODES}3 node(s) had untolerated taint {{nvidia.com/gpu: present}}."): "toleration",
    ("Unschedulable", f"{NODES}3 node(s) didn't match Pod's node affinity/selector."): "nodeSelector",
    ("Unschedulable", f"{NODES}3 node(s) were unschedulable."): "kubectl uncordon",
    ("Unschedulable", f"{NODES}3 node(s) had volume node affinity conflict."): "zone of its volume",
    ("Unschedulable", f"{NODES}3 Too many pods."): "wait until",
    ("CreateContainerError", "context deadline exceeded"): "kubectl describe pod",
    (
        "CreateContainerError",
        "nvidia-container-cli: nvml error: driver/library version mismatch",
    ): "another node",
    (None, "init container fetch is running"): "kubectl logs -c fetch",
    (None, None): "kubectl describe pod",
}


def test_each_reason_has_its_own_advice(subtests: pytest.Subtests) -> None:
    for (reason, message), advice in WAITS.items():
        with subtests.test(reason=reason, message=message):
            assert advice in str(advise_start(replace(PENDING, reason=reason, message=message)))


def test_a_crash_before_the_start_names_the_log_of_its_container() -> None:
    crashed = replace(PENDING, reason="CrashLoopBackOff", ended_container="fetch", restarts=2)
    assert "kubectl logs -c fetch --previous" in str(advise_start(crashed))
    assert "kubectl logs -c main --previous" in str(advise_start(replace(crashed, ended_container="main")))
    assert "kubectl logs --previous" in str(advise_start(replace(crashed, ended_container=None)))
    assert "kubectl logs -c fetch to see" in str(advise_start(replace(crashed, restarts=0)))
    assert "restartPolicy: OnFailure" in str(advise_start(replace(crashed, exit_code=0)))


def test_only_a_pod_that_has_not_started_gets_advice() -> None:
    assert advise_start(replace(PENDING, phase="Running", reason="ErrImageNeverPull")) is None
    assert advise_start(replace(PENDING, kind="job")) is None
    assert "create it again" in str(advise_start(replace(PENDING, deleting=True)))
