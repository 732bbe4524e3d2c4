"""Pods as Kubernetes itself sees them, and the successor of a head pod that was replaced."""

from __future__ import annotations

import re

from training_monitor.errors import ParseError, TrainingMonitorError
from training_monitor.models import PodState
from training_monitor.parse.kube import parse_pods
from training_monitor.targets.target import Target
from training_monitor.targets.transport import LocalTransport, Transport, explain_failure

TIMEOUT = 20.0
_OF_RAY = ("ray.io/cluster", "ray.io/node-type")
# What the pods of one training have in common, the widest of them first: the pods of a JobSet belong to several Jobs,
# and the launcher of an MPIJob to a Job of its own.
_OF_ONE_TRAINING = (
    "ray.io/cluster",
    "jobset.sigs.k8s.io/jobset-name",
    "training.kubeflow.org/job-name",
    "leaderworkerset.sigs.k8s.io/name",
    "volcano.sh/job-name",
    "batch.kubernetes.io/job-name",
    "job-name",
    "app.kubernetes.io/instance",
)
_OF_ONE_POD = re.compile(r"hash|revision|pod-name|pod-index|completion-index|controller-uid|replica-index")


def list_pods(
    namespace: str,
    *names: str,
    context: str | None = None,
    selector: str | None = None,
    transport: Transport | None = None,
) -> tuple[PodState, ...]:
    """The pods named (missing ones are left out), or those that match a label selector, or all of the namespace.

    Raises:
        CommandError: Kubernetes could not be asked.
    """
    argv = [
        "kubectl",
        *(["--context", context] if context else []),
        "get",
        "pods",
        "-n",
        namespace,
        *names,
        *(["-l", selector] if selector else []),
        *(["--ignore-not-found"] if names else []),
        "-o",
        "json",
    ]
    result = (transport or LocalTransport()).run(argv, timeout=TIMEOUT)
    if result.exit_code != 0:
        raise explain_failure(result, f"namespace {namespace}")
    if names and not result.stdout.strip():
        return ()
    try:
        return parse_pods(result.stdout)
    except ParseError as error:
        raise explain_failure(result, f"namespace {namespace}") from error


def pod_of(target: Target, *, transport: Transport | None = None) -> PodState | None:
    """The pod of a target as Kubernetes sees it; None where there is none, or it could not be asked."""
    if target.kind != "pod":
        return None
    namespace = target.namespace or "default"
    try:
        pods = list_pods(namespace, target.name, context=target.context, transport=transport)
    except TrainingMonitorError:
        return None
    return pods[0] if pods else None


def find_replacement(target: Target, labels: dict[str, str], *, transport: Transport | None = None) -> Target | None:
    """The pod that replaced a vanished one: same Ray cluster and node type, else the same labels and name prefix.

    Returns:
        The new target; None when there is none yet, or more than one could be meant.
    """
    ray = {key: value for key, value in labels.items() if key in _OF_RAY}
    wanted = ray or {key: value for key, value in labels.items() if not _OF_ONE_POD.search(key)}
    if not wanted:
        return None
    selector = ",".join(f"{key}={value}" for key, value in wanted.items())
    prefix = re.sub(r"-[a-z0-9]{4,10}$", "-", target.name)
    try:
        pods = list_pods(target.namespace or "default", context=target.context, selector=selector, transport=transport)
    except TrainingMonitorError:
        return None
    running = [
        pod
        for pod in pods
        if pod.phase == "Running"
        and not pod.deleting
        and (ray or (prefix != target.name and pod.name.startswith(prefix)))
    ]
    if len(running) != 1:
        return None
    return Target(
        "pod", running[0].name, namespace=target.namespace, container=target.container, context=target.context
    )


def find_siblings(target: Target, transport: Transport | None = None) -> tuple[PodState, ...]:
    """The other pods of a pod's training, by the labels of KubeRay, JobSet, Kubeflow, Job and the like.

    Returns:
        None of them where the target is no pod, is gone, or has no such label. It takes at most two calls of kubectl.

    Raises:
        CommandError: Kubernetes could not be asked.
    """
    if target.kind != "pod":
        return ()
    namespace = target.namespace or "default"
    own = list_pods(namespace, target.name, context=target.context, transport=transport)
    labels = own[0].labels if own else {}
    key = next((key for key in _OF_ONE_TRAINING if labels.get(key)), None)
    if key is None:
        return ()
    found = list_pods(namespace, context=target.context, selector=f"{key}={labels[key]}", transport=transport)
    return tuple(pod for pod in found if pod.name != target.name)
