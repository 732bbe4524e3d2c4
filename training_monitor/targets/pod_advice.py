"""Suggest what to do about a pod that has not started, by the reason and the message of Kubernetes. Pure."""

from __future__ import annotations

from training_monitor.core.regex import regex
from training_monitor.core.results import PodState
from training_monitor.targets.pods import CHECK_IMAGE, DESCRIBE

_ALL_AT_ONCE = "its group starts only as a whole: wait for resources for all its pods, or request fewer"
_PULL = "(?:ImagePullBackOff|ErrImagePull)"
# The first row that matches `REASON: MESSAGE`, without the names in quotes. A message of the scheduler has the reasons
# of all nodes, so those come first that pass by waiting.
_ROWS = (
    (rf"^{_PULL}: .*(?:toomanyrequests|rate limit|\b429\b)",
     "wait, or log in to the registry with a pull secret: it limits the rate of anonymous pulls"),
    (rf"^{_PULL}: .*no space left", "free the disk of the node, or use another node: its disk is full"),
    (rf"^{_PULL}: .*\bno match(?:ing manifest)? for\b",
     "use an image that was built for the processors of the node (amd64 or arm64)"),
    (rf"^{_PULL}: .*(?:unauthorized|\b40[13]\b|denied|no basic auth|failed to authorize)",
     "check the image name and the pull secret: the registry refuses access, or has no such image"),
    (rf"^{_PULL}: .*(?:manifest unknown|not found)(?!.*no such host)",
     "correct the name or the tag of the image: the registry has no such image"),
    (rf"^{_PULL}\b", CHECK_IMAGE),
    (r"^ErrImageNeverPull\b", "load the image onto the node, or set imagePullPolicy: IfNotPresent"),
    (r"^InvalidImageName\b", "correct the name of the image in the specification of the pod"),
    (r"^RegistryUnavailable\b", "check that the node can reach the registry; Kubernetes retries by itself"),
    (r"^CreateContainerConfigError: .*\b(?:secret|configmap)\b",
     "create the secret, the ConfigMap or the key named in the message, in the namespace of the pod"),
    (r"^CreateContainerConfigError\b", "correct the configuration of the container in the specification of the pod"),
    (r"nvidia-container-cli|nvidia-container-runtime|\bnvml\b",
     "start it on another node: on this one, the GPU driver or its container toolkit does not work"),
    (r"^\w+: init container (\S+) is running", r"run kubectl logs -c \1 to see its progress"),
    (r"^SchedulingGated\b",
     "a queue or a controller holds the pod back; with Kueue, kubectl get workloads shows what it waits for"),
    (r"^Unschedulable: .*\bpersistentvolumeclaim",
     "run kubectl get pvc to see which volume claim is missing or not bound"),
    (r"\bpod ?group\b|\bgang\b|\bminAvailable\b|\bminMember\b", _ALL_AT_ONCE),
    (r"^Unschedulable: .*\b(?:Insufficient |Too many pods)",
     "wait until other pods release these resources, request fewer, or add nodes"),
    (r"^Unschedulable: .*\buntolerated taint\b",
     "add a toleration for the taint in the message, unless these nodes are reserved for other pods or not ready"),
    (r"^Unschedulable: .*\bvolume node affinity",
     "make a node available in the zone of its volume, or use another volume: other nodes cannot mount it"),
    (r"^Unschedulable: .*\bnode affinity",
     "compare the nodeSelector and the affinity of the pod with kubectl get nodes --show-labels"),
    (r"^Unschedulable: .*\bwere unschedulable\b", "make a node available: kubectl uncordon NODE"),
)  # fmt: skip
_ADVICE = tuple((regex(f"(?is){words}"), hint) for words, hint in _ROWS)
_QUOTED = regex(r'"[^"]*"')
_CRASHED = ("CrashLoopBackOff", "Error", "OOMKilled")


def advise_start(pod: PodState) -> str | None:
    """Suggest what to do so that a pod starts; None for anything but a pod that has not started.

    >>> advise_start(PodState("w", "Pending", False, 0, reason="ErrImageNeverPull"))
    'load the image onto the node, or set imagePullPolicy: IfNotPresent'
    """
    if pod.phase != "Pending" or pod.kind != "pod":
        return None
    if pod.deleting:
        return "create it again: it was deleted before it started"
    if pod.reason in _CRASHED and pod.exit_code == 0:
        return "set restartPolicy: OnFailure in its specification: its container finishes, and is started again"
    if pod.reason in _CRASHED:
        of = f" -c {pod.ended_container}" if pod.ended_container else ""
        previous = " --previous" if pod.restarts else ""
        return f"run kubectl logs{of}{previous} to see why its container ended"
    said = _QUOTED.sub("", f"{pod.reason}: {pod.message or ''}")
    return next((found.expand(hint) for words, hint in _ADVICE if (found := words.search(said))), DESCRIBE)
