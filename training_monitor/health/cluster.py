"""Pods as Kubernetes reports them, the replacement of a lost head pod, and the resources of a Ray cluster.

Pods are parsed from `kubectl get pod(s) -o json`: one object or a List (Kubernetes API v1, PodStatus).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from training_monitor.core.errors import ParseError, TrainingMonitorError
from training_monitor.core.frozen import replace
from training_monitor.core.models import CommandResult, PodState, RayResources
from training_monitor.core.regex import regex
from training_monitor.core.reports import RayResourcesReport
from training_monitor.jobs.ray_jobs import resources_question
from training_monitor.targets.asking import Site
from training_monitor.targets.target import Target
from training_monitor.targets.transport import LocalTransport, Transport, explain_failure

SOURCE = "kubectl get pods"

# Worst first: which reason to report when several containers have one.
_WORST = (
    "OOMKilled",
    "CrashLoopBackOff",
    "ImagePullBackOff",
    "ErrImagePull",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "ContainerCannotRun",
    "StartError",
    "Error",
    "DeadlineExceeded",
    "ContainerStatusUnknown",
)
_HARMLESS = ("Completed", "ContainerCreating", "PodInitializing")
TIMEOUT = 20.0
_OF_RAY = ("ray.io/cluster", "ray.io/node-type")
# Labels that the pods of one training share, the widest first: the pods of a JobSet belong to several Jobs, and the
# launcher of an MPIJob to a Job of its own.
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
_MISSING = regex(r"\(NotFound\): pods \"([^\"]+)\" not found")
_OF_ONE_POD = regex(r"hash|revision|pod-name|pod-index|completion-index|controller-uid|replica-index")


def parse_pods(text: str) -> tuple[PodState, ...]:
    """Parse the pods of `kubectl get pod NAME -o json` or `kubectl get pods -o json`.

    Args:
        text: the JSON that kubectl printed.

    Returns:
        One PodState per pod: `ready` if every container is, `restarts` summed over containers, `reason` from the pod
        (Evicted), its worst container (OOMKilled, CrashLoopBackOff, ImagePullBackOff) or why it is not scheduled,
        `deleting` while it is being removed, `terminated` with `exit_code` and `terminated_at` from the worst end of a
        container, now or before its last restart.

    Raises:
        ParseError: the text is not JSON, or neither a pod nor a list of pods.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ParseError("not JSON", source=SOURCE, text=text) from error
    items = found.get("items") if isinstance(found, dict) and str(found.get("kind", "")).endswith("List") else [found]
    if not isinstance(items, list) or not all(_is_pod(item) for item in items):
        raise ParseError("neither a pod nor a list of pods", source=SOURCE, text=text)
    return tuple(_pod(item) for item in items)


def _is_pod(item: Any) -> bool:
    return isinstance(item, dict) and item.get("kind", "Pod") == "Pod" and bool(_map(item, "metadata").get("name"))


def _pod(item: Mapping[str, Any]) -> PodState:
    metadata, status = _map(item, "metadata"), _map(item, "status")
    containers = list(_containers(status, "containerStatuses"))
    everything = containers + list(_containers(status, "initContainerStatuses"))
    reason, message = _reason(status, everything)
    ended = min((end for container in everything for end in _ends(container)), key=_severity, default={})
    return PodState(
        name=str(metadata["name"]),
        phase=str(status.get("phase") or "Unknown"),
        ready=bool(containers) and all(bool(container.get("ready")) for container in containers),
        restarts=sum(_whole(container.get("restartCount")) for container in everything),
        node=_text(_map(item, "spec").get("nodeName")),
        reason=reason,
        message=message,
        labels={str(key): str(value) for key, value in _map(metadata, "labels").items()},
        deleting=bool(metadata.get("deletionTimestamp")),
        terminated=_text(ended.get("reason")),
        exit_code=_code(ended.get("exitCode")),
        terminated_at=_time(ended.get("finishedAt")),
    )


def _reason(status: Mapping[str, Any], containers: list[Mapping[str, Any]]) -> tuple[str | None, str | None]:
    """Return why the pod is not well: its own reason, else its containers' worst, else why it is not scheduled."""
    if status.get("reason"):
        return _text(status["reason"]), _text(status.get("message"))
    states = [state for container in containers for state in _states(container)]
    if states:
        worst = min(states, key=_badness)
        return _text(worst["reason"]), _text(worst.get("message"))
    for condition in _maps(status.get("conditions")):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _text(condition.get("reason")), _text(condition.get("message"))
    return None, _text(status.get("message"))


def _states(container: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield what a container waits for or died of, now and before its last restart."""
    now, before = _map(container, "state"), _map(container, "lastState")
    for state in (_map(now, "waiting"), _map(now, "terminated"), _map(before, "terminated")):
        if state.get("reason") and state["reason"] not in _HARMLESS:
            yield state


def _ends(container: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield how a container ended, now and before its last restart."""
    for key in ("state", "lastState"):
        if ended := _map(_map(container, key), "terminated"):
            yield ended


def _severity(ended: Mapping[str, Any]) -> tuple[bool, int]:
    return ended.get("exitCode") == 0, _badness({"reason": ended.get("reason")})


def _badness(state: Mapping[str, Any]) -> int:
    reason = str(state["reason"])
    return _WORST.index(reason) if reason in _WORST else len(_WORST)


def _containers(status: Mapping[str, Any], key: str) -> Iterator[Mapping[str, Any]]:
    return _maps(status.get(key))


def _maps(value: Any) -> Iterator[Mapping[str, Any]]:
    return (entry for entry in value if isinstance(entry, dict)) if isinstance(value, list) else iter(())


def _map(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    inner = value.get(key)
    return inner if isinstance(inner, dict) else {}


def _text(value: Any) -> str | None:
    return str(value) if value else None


def _code(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 31 else None


def _time(value: Any) -> float | None:
    """Return the epoch seconds of a Kubernetes time (`2030-01-01T10:00:00Z`)."""
    from datetime import datetime, timezone

    try:
        return datetime.strptime(str(value), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0


def get_objects(site: Site, kind: str, *words: str, timeout: float) -> CommandResult:
    """Run `kubectl get KIND WORDS -o json` in the namespace of a target. Raises CommandError if it gave no answer."""
    namespace, context = site.target.namespace or "default", site.target.context
    at = ["--context", context] if context else []
    argv = ["kubectl", *at, "get", kind, "-n", namespace, *words, "-o", "json"]
    return (site.transport or LocalTransport()).run(argv, timeout=timeout)


def list_pods(
    site: Site, *names: str, selector: str | None = None, timeout: float = TIMEOUT
) -> tuple[PodState, ...]:
    """Return the named pods beside a pod (without missing ones), or those of its namespace that match a selector.

    Raises:
        CommandError: Kubernetes could not be asked, or did not say of each named pod what it is, or that it is missing.
    """
    namespace = site.target.namespace or "default"
    result = get_objects(site, "pods", *names, *(["-l", selector] if selector else []), timeout=timeout)
    missing = set(_MISSING.findall(result.stderr)) & set(names)
    if result.exit_code != 0 and not missing:
        raise explain_failure(result, f"namespace {namespace}")
    if names and missing == set(names) and not result.stdout.strip():
        return ()
    try:
        pods = parse_pods(result.stdout)
    except ParseError as error:
        raise explain_failure(result, f"namespace {namespace}") from error
    if set(names) - missing - {pod.name for pod in pods}:  # kubectl that says nothing of a pod does not say it is gone
        raise explain_failure(replace(result, stdout=""), f"namespace {namespace}")
    return pods


def pod_of(site: Site) -> PodState | None:
    """Return the pod of a target as Kubernetes reports it; None without one, or if Kubernetes could not be asked."""
    if site.target.kind != "pod":
        return None
    try:
        pods = list_pods(site, site.target.name)
    except TrainingMonitorError:
        return None
    return pods[0] if pods else None


def find_replacement(site: Site, labels: dict[str, str]) -> Target | None:
    """Return the pod that replaced a lost one: same Ray cluster and node type, else same labels and name prefix.

    Returns:
        The new target; None if there is none yet, or more than one candidate.
    """
    ray = {key: value for key, value in labels.items() if key in _OF_RAY}
    wanted = ray or {key: value for key, value in labels.items() if not _OF_ONE_POD.search(key)}
    if not wanted:
        return None
    target, selector = site.target, ",".join(f"{key}={value}" for key, value in wanted.items())
    prefix = re.sub(r"-[a-z0-9]{4,10}$", "-", target.name)
    try:
        pods = list_pods(site, selector=selector)
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
    return replace(target, name=running[0].name)


def find_siblings(site: Site) -> tuple[PodState, ...]:
    """Return the other pods of a pod's training, see `find_pods_of_training`."""
    return tuple(pod for pod in find_pods_of_training(site) if pod.name != site.target.name)


def find_pods_of_training(site: Site, timeout: float = 2 * TIMEOUT) -> tuple[PodState, ...]:
    """Return all pods of a pod's training, by the labels of KubeRay, JobSet, Kubeflow, Job and the like.

    Args:
        timeout: seconds for both kubectl calls that it takes at most.

    Returns:
        Only the pod itself if it has no such label; an empty tuple if the target is not a pod or is gone.

    Raises:
        CommandError: Kubernetes could not be asked.
    """
    if site.target.kind != "pod":
        return ()
    own = list_pods(site, site.target.name, timeout=timeout / 2)
    labels = own[0].labels if own else {}
    key = next((key for key in _OF_ONE_TRAINING if labels.get(key)), None)
    return own if key is None else list_pods(site, selector=f"{key}={labels[key]}", timeout=timeout / 2)


def verify_ray_resources(
    head_pod: str | Target, namespace: str = "default", *, transport: Transport | None = None
) -> RayResourcesReport:
    """Ask a Ray head for its GPUs and CPUs; never raises because of the target.

    Returns:
        The numbers of GPUs and CPUs, and the `pending_demands` for them; if Ray could not be asked, all None with
        `healthy` False and an `error`.
    """
    site = Site.of(head_pod, namespace, transport)
    try:
        return format_resources_report(site.ask_one(resources_question()))
    except TrainingMonitorError as error:
        return format_resources_report(None, str(error))


def format_resources_report(found: RayResources | None, error: str | None = None) -> RayResourcesReport:
    """Format a cluster's resources as the documented dict."""
    return RayResourcesReport(
        healthy=found is not None and error is None,
        gpus_available=found.gpus_available if found else None,
        gpus_used=found.gpus_used if found else None,
        cpus_available=found.cpus_available if found else None,
        cpus_used=found.cpus_used if found else None,
        pending_demands=list(found.pending_demands) if found else [],
        error=error,
    )
