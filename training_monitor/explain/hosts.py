"""The hosts that a roll call asks: that of the training, the other pods of its training, and those that are named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.frozen import dataclass, replace
from training_monitor.core.models import Answer, PodState
from training_monitor.health.cluster import find_pods_of_training
from training_monitor.targets.asking import Site
from training_monitor.targets.target import Target


@dataclass(frozen=True, slots=True)
class Host:
    """One place where ranks may run.

    Attributes:
        name: its target string. node: its Kubernetes node, if that is known.
        roots: the script that prints the processes of the training there; None if they must be found.
        ask: how to ask it; None: by its site.
    """

    site: Site
    name: str
    node: str | None = None
    roots: str | None = None
    ask: Callable[..., list[Answer[Any]]] | None = None


@dataclass(frozen=True, slots=True)
class Pods:
    """All pods of a pod's training, as Kubernetes lists them; `unknown` is why it does not."""

    listed: tuple[PodState, ...] = ()
    unknown: str | None = None


def ask_pods(site: Site, timeout: float) -> Pods:
    """Ask Kubernetes for the pods of a pod's training, for at most `timeout` seconds; other targets have none."""
    try:
        return Pods(find_pods_of_training(site, timeout))
    except TrainingMonitorError as error:
        return Pods(unknown=error.what)


def find_hosts(site: Site, pods: Sequence[PodState], also: Sequence[Target]) -> list[Host]:
    """Return all hosts to ask, that of the training first, each once.

    Args:
        site: where the training is.
        pods: all pods of its training.
        also: further hosts, by the user.
    """
    nodes = {_identity(_at(site, pod)): pod.node for pod in pods}
    running = [_at(site, pod) for pod in pods if pod.phase == "Running"]
    targets: dict[object, Target] = {}
    for each in (site.target, *also, *running):
        targets.setdefault(_identity(each), each)
    return [Host(site.at(each), str(each), nodes.get(key)) for key, each in targets.items()]


def _at(site: Site, pod: PodState) -> Target:
    return replace(site.target, name=pod.name, container=None)


def _identity(target: Target) -> object:
    """Return what two targets have in common that are one host, whoever asks there, and in which container."""
    return target.kind, target.context, target.namespace, target.name, target.port
