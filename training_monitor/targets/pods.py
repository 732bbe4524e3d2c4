"""Pods as Kubernetes reports them: `kubectl get pod(s) -o json`, one object or a List (API v1, PodStatus). Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from training_monitor.core.errors import ParseError
from training_monitor.core.records import table_in, tables_in
from training_monitor.core.regex import regex
from training_monitor.core.results import ContainerEnd, PodState
from training_monitor.core.units import format_local

_SOURCE = "kubectl get pods"

_NOT_SEEN = "ContainerStatusUnknown"  # the kubelet did not see the end, and reports 137
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
    _NOT_SEEN,
)
_OF_RUNTIME = ("CreateContainerError", "RunContainerError", "ContainerCannotRun", "StartError")  # not its program's
_NO_CONTAINER = (*_OF_RUNTIME, "ImagePullBackOff", "ErrImagePull")  # the cause is at the end of the message
_MOST_SAID, _BEGIN, _END = 150, 40, 100  # characters of a message, and of its two ends
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"  # the annotation that kubectl obeys
ENDED, WAITING = ("Succeeded", "Failed", "Stopped", "Ended"), ("Pending", "Suspended")  # phases
DESCRIBE = "run kubectl describe pod to see why"
CHECK_IMAGE = "check the image name, the pull secret and the registry's rate limit"
NODE_SILENT = "NodeNotReady"  # what Kubernetes says in an event only
STARTS = ("ContainerCreating", "PodInitializing")
_RETRIED = (*STARTS, "ErrImagePull", "RegistryUnavailable")  # soon
_GPUS = regex(  # nvidia.com/mig-3g.40gb, gpu.intel.com/i915, aws.amazon.com/neuroncore, huawei.com/Ascend910
    r"/(?:v?gpu(?:[.-].*)?|mig-.*|tpu|gaudi\w*|neuron\w*|npu\w*|ascend\w*|v?mlu\w*|gcu|dcu\w*)$|^gpu\.", re.IGNORECASE
)


def parse_pods(text: str) -> tuple[PodState, ...]:
    """Parse the pods of `kubectl get pod NAME -o json` or `kubectl get pods -o json`.

    Args:
        text: the JSON that kubectl printed.

    Returns:
        One PodState per pod: `ready` if every container is, `restarts` summed over containers, `reason` from the pod
        (Evicted), its worst container that does not run (OOMKilled, CrashLoopBackOff, ImagePullBackOff) or why it is
        not scheduled, `deleting` while it is being removed, `terminated` with `exit_code` and `terminated_at` from the
        end of that container, else from the worst end of any, now or before its last restart.

    Raises:
        ParseError: the text is not JSON, or neither a pod nor a list of pods.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ParseError("not JSON", source=_SOURCE, text=text) from error
    items = found.get("items") if isinstance(found, dict) and str(found.get("kind", "")).endswith("List") else [found]
    if not isinstance(items, list) or not all(_is_pod(item) for item in items):
        raise ParseError("neither a pod nor a list of pods", source=_SOURCE, text=text)
    return tuple(_pod(item) for item in items)


def describe_end(pod: PodState) -> str:
    """Describe how a pod ended, or a container of one that goes on. A container is named unless it is the only one.

    >>> describe_end(PodState("w", "Failed", False, 0, terminated="OOMKilled", exit_code=137))
    'pod w is Failed: OOMKilled (exit code 137)'
    """
    facts = [f"container {pod.ended_container}"] if names_container(pod) else []
    facts += [f"exit code {pod.exit_code}"] if pod.exit_code is not None else []
    facts += [format_local(pod.terminated_at, "at %m-%d %H:%M:%S")] if pod.terminated_at is not None else []
    reason = " ".join(filter(None, (pod.reason or describe_reason(pod), f"({', '.join(facts)})" if facts else "")))
    said = f"{pod.kind} {pod.name}" + (f" is {pod.phase}" if pod.phase in (*ENDED, *WAITING) else "")
    said += " and being deleted" if pod.deleting and pod.phase in WAITING else ""
    message = pod.message or ""
    if pod.reason in _NO_CONTAINER and len(message) > _MOST_SAID:
        message = f"{message[:_BEGIN]} ... {message[-_END:]}"
    return ": ".join(filter(None, (said, reason, message)))


def describe_reason(pod: PodState) -> str | None:
    """Describe why a container ended."""
    return "Completed, although one of its processes ran out of memory" if outlived_kill(pod) else pod.terminated


def outlived_kill(pod: PodState) -> bool:
    """Return whether a container exited with 0, while its runtime says OOMKilled: one of its processes was killed."""
    return pod.terminated == "OOMKilled" and pod.exit_code == 0


def is_stuck(pod: PodState) -> bool:
    """Return whether a pod, container or job that waits will not start by itself.

    It crashes again and again, or is on a node, where its containers do not start, or is a job that waits in vain.
    """
    if pod.kind == "container":
        return pod.phase == "Pending" and pod.terminated is not None and pod.exit_code != 0
    if pod.kind == "job":
        return pod.waits_in_vain
    if pod.phase != "Pending" or pod.deleting or pod.reason in (None, *_RETRIED):
        return False
    is_first_end = pod.reason == pod.terminated and not pod.restarts and pod.reason not in _OF_RUNTIME
    return not is_first_end and (pod.node is not None or pod.reason in _WORST)


def names_container(pod: PodState) -> bool:
    """Return whether the container that ended is one of several, or an init container."""
    return bool(pod.ended_container and pod.containers) and pod.containers != (pod.ended_container,)


def find_replaced(pods: Sequence[PodState]) -> set[str]:
    """Return the names of the failed pods that their Job has replaced by new ones. A Job keeps its failed pods.

    Each new pod replaces one that failed earlier, and has the same completion index if the Job has indexes.
    """
    replaced, used = set[str](), set[str]()
    in_turn = [(pod, _job_of(pod)) for pod in sorted(pods, key=lambda pod: pod.created_at or 0.0)]
    for failed, (job, index) in in_turn:
        since = failed.terminated_at if index is None else failed.created_at
        if failed.phase != "Failed" or job is None or since is None:
            continue
        later = (pod.name for pod, of in in_turn if of == (job, index) and (pod.created_at or 0.0) > since)
        if new := next((name for name in later if name not in used), None):
            replaced.add(failed.name)
            used.add(new)
    return replaced


def _job_of(pod: PodState) -> tuple[str | None, str | None]:
    """Return the Job that created a pod, and its index there. Kubeflow sets the same label, but other names."""
    job = pod.labels.get("batch.kubernetes.io/job-name") or pod.labels.get("job-name")
    index = pod.labels.get("batch.kubernetes.io/job-completion-index")
    begin = "-".join(filter(None, (job, index)))
    return (job, index) if job and re.fullmatch("-[a-z0-9]{5}", pod.name.removeprefix(begin)) else (None, None)


def _is_pod(item: Any) -> bool:
    return isinstance(item, dict) and item.get("kind", "Pod") == "Pod" and bool(table_in(item, "metadata").get("name"))


def _pod(item: Mapping[str, Any]) -> PodState:
    metadata, status = table_in(item, "metadata"), table_in(item, "status")
    containers = tables_in(status.get("containerStatuses"))
    init = [each for each in tables_in(status.get("initContainerStatuses")) if _end_of(each).get("exitCode") != 0]
    everything = [*containers, *init]  # what an init container did before it succeeded is over
    spec = tables_in(table_in(item, "spec").get("containers"))
    names, with_gpus = _names(spec), _names(filter(_has_gpus, spec))
    first = (with_gpus or names or ("",))[0]
    of_training = sorted(everything, key=lambda each: each.get("name") != first)
    phase, policy = str(status.get("phase") or "Unknown"), table_in(item, "spec").get("restartPolicy")
    policies = {str(each.get("name")): _policy(each, policy) for each in spec}
    now = [(end, each) for each in of_training if each in containers and (end := _end_of(each))]
    if phase in ENDED and now:
        ended, of_container = next((pair for pair in now if pair[0].get("exitCode") != 0), now[0])
        reason, message, meant = _reason(status, [{"state": {"terminated": ended}}])
    else:
        is_one = phase == "Running" and len(with_gpus or names) == 1  # and the others are beside it
        alone = [each for each in containers if is_one and each.get("name") == first and any(_states(each))]
        reason, message, meant = _reason(status, alone or everything)
        if phase == "Pending" and reason in (None, *STARTS) and (running := _running_init(item, init)):
            message = f"init container {running} is running"
        ends = [(end, each) for each in of_training for end in _ends(each) if meant in (None, each)]
        ended, of_container = min(ends, key=lambda each: _severity(each[0]), default=({}, dict(meant or {})))
    exit_code = _exit_code(ended)
    is_own = phase != "Failed" or meant is not None  # else it was ended from outside, whatever its containers say
    for_good = [pair for pair in now if is_own and _is_for_good(pair[0], policies.get(str(pair[1].get("name"))))]
    main = first if len(with_gpus) == 1 else None
    if phase in ENDED and main not in [each.get("name") for _, each in now]:
        main = _text(of_container.get("name")) if exit_code else first
    return PodState(
        name=str(metadata["name"]),
        phase=phase,
        ready=bool(containers) and all(bool(each.get("ready")) for each in containers) and reason != NODE_SILENT,
        restarts=sum(_whole(container.get("restartCount")) for container in everything),
        node=_text(table_in(item, "spec").get("nodeName")),
        reason=reason,
        message=message,
        labels={str(key): str(value) for key, value in table_in(metadata, "labels").items()},
        deleting=bool(metadata.get("deletionTimestamp")),
        deletes_at=_time(metadata.get("deletionTimestamp")),
        terminated=_text(ended.get("reason")),
        exit_code=exit_code,
        terminated_at=_time(ended.get("finishedAt")),
        ended_container=_text(of_container.get("name")),
        containers=(*with_gpus, *(each for each in names if each not in with_gpus)),
        main_container=main if len(names) > 1 else None,
        default_container=_text(table_in(metadata, "annotations").get(_DEFAULT_CONTAINER)) or (names or (None,))[0],
        ends={str(each.get("name")): _container_end(end) for end, each in for_good},
        created_at=_time(metadata.get("creationTimestamp")),
    )


def _running_init(item: Mapping[str, Any], init: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the init container that runs, and has to end before the others start, or as a sidecar to have started."""
    spec = tables_in(table_in(item, "spec").get("initContainers"))
    sidecars = {each.get("name") for each in spec if each.get("restartPolicy") == "Always"}
    running = (each for each in init if "running" in table_in(each, "state"))
    awaited = (each for each in running if each.get("name") not in sidecars or each.get("started") is False)
    return next((str(each.get("name")) for each in awaited), None)


def _names(containers: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(str(each["name"]) for each in containers if each.get("name"))


def _has_gpus(container: Mapping[str, Any]) -> bool:
    resources = table_in(container, "resources")
    limits = table_in(resources, "limits").items()
    return bool(resources.get("claims")) or any(_GPUS.search(str(key)) and str(value) != "0" for key, value in limits)


def _policy(container: Mapping[str, Any], of_pod: Any) -> Any:
    """Return the restart policy of a container; None if it depends on its exit code."""
    return None if container.get("restartPolicyRules") else container.get("restartPolicy") or of_pod


def _is_for_good(end: Mapping[str, Any], policy: Any) -> bool:
    return policy == "Never" or (policy == "OnFailure" and end.get("exitCode") == 0)


def _reason(
    status: Mapping[str, Any], containers: Sequence[Mapping[str, Any]]
) -> tuple[str | None, str | None, Mapping[str, Any] | None]:
    """Return why the pod is not well, with the container that is meant: its own reason, else its containers' worst,
    else why it is not scheduled. A container that ran out of memory did so before anything disrupted its pod."""
    if status.get("reason"):
        return _text(status["reason"]), _text(status.get("message")), None
    states = [(state, container) for container in containers for state in _states(container)]
    worst, meant = min(states, key=lambda each: _badness(each[0]), default=({}, None))
    conditions = {str(each.get("type")): each for each in tables_in(status.get("conditions"))}
    disrupted = conditions.get("DisruptionTarget", conditions.get("TerminationTarget", {}))  # the latter by Kueue
    scheduled, ready = conditions.get("PodScheduled", {}), conditions.get("Ready", {})
    is_alone = ready.get("status") == "False" and not ready.get("reason")  # Kubernetes says so, and not the node
    if disrupted.get("status") == "True" and worst.get("reason") != "OOMKilled":
        worst, meant = disrupted, None
    elif not worst and scheduled.get("status") == "False":
        worst = scheduled
    elif not worst and is_alone and conditions.get("ContainersReady", {}).get("status") == "True":
        worst = {"reason": NODE_SILENT, "message": "its node does not report to Kubernetes"}
    message = _text((worst or status).get("message"))
    if message and worst.get("reason") in _NO_CONTAINER:  # one error, in several lines
        message = " ".join(message.split())
    return _text(worst.get("reason")), message, meant


def _states(container: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield what a container that does not run waits for or died of, now and before its last restart.

    That it is created is told of a restart only.
    """
    now, ended, before = table_in(container, "state"), _end_of(container), _end_of(container, "lastState")
    waits = table_in(now, "waiting")
    if "running" in now or ended.get("exitCode") == 0:
        return
    for state in (waits,) if waits.get("reason") in STARTS else (waits, ended, before):
        reason = None if state.get("exitCode") == 0 else state.get("reason")
        if reason not in (None, "", "Completed") and (before or reason not in STARTS):
            yield state


def _ends(container: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield how a container ended, now and before its last restart."""
    for key in ("state", "lastState"):
        if ended := _end_of(container, key):
            yield ended


def _end_of(container: Mapping[str, Any], key: str = "state") -> Mapping[str, Any]:
    return table_in(table_in(container, key), "terminated")


def _container_end(end: Mapping[str, Any]) -> ContainerEnd:
    return ContainerEnd(_text(end.get("reason")), _exit_code(end), _time(end.get("finishedAt")))


def end_of_container(pod: PodState, container: str | None) -> PodState | None:
    """Return the pod as ended, where this container of it has ended for good while others live on; else None.

    Args:
        container: None for the only one.
    """
    name = container or (pod.containers[0] if len(pod.containers) == 1 else None)
    if name is None or name not in pod.ends:
        return None
    end = pod.ends[name]
    return replace(
        pod,
        name=f"{pod.name}/{name}",
        phase="Succeeded" if end.exit_code == 0 else "Failed",
        reason=None,
        message=None,
        terminated=end.reason,
        exit_code=end.exit_code,
        terminated_at=end.at,
        ended_container=name,
        containers=(name,),
    )


def standing_of(pod: PodState, container: str | None) -> PodState | None:
    """Return what stands in the way of asking this container of a pod; None if it may run.

    The pod has ended or has not begun, the container has ended for good, or it waits to be started again after a crash.
    If nobody named that container, the training may be in another one: then the pod is Running, with the end of this.
    """
    only = container or (pod.containers[0] if len(pod.containers) == 1 else None)
    name = only or pod.default_container
    if pod.phase in (*ENDED, *WAITING):
        return (end_of_container(pod, name) if pod.ended_container != name else None) or pod
    waits = pod.reason is not None and pod.reason in (*_WORST, *STARTS, pod.terminated)
    if name and waits and pod.ended_container == name and name not in pod.ends:
        return replace(pod, name=f"{pod.name}/{name}", phase="Pending", containers=(name,))
    ended = end_of_container(pod, name)
    return ended if only or not ended else replace(ended, name=pod.name, phase=pod.phase, containers=pod.containers)


def _severity(ended: Mapping[str, Any]) -> tuple[bool, int]:
    return ended.get("exitCode") == 0, _badness({"reason": ended.get("reason")})


def _badness(state: Mapping[str, Any]) -> int:
    reason = str(state["reason"])
    return _WORST.index(reason) if reason in _WORST else len(_WORST)


def _text(value: Any) -> str | None:
    return str(value) if value else None


def _exit_code(end: Mapping[str, Any]) -> int | None:
    value = None if end.get("reason") == _NOT_SEEN else end.get("exitCode")
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
