"""What a program and Kubernetes reported: values that errors carry, too. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from training_monitor.core.fields import PublicValue


@dataclass(frozen=True, slots=True, repr=False)
class CommandResult(PublicValue):
    """The result of one program run on this machine; `argv` holds no secret, invalid UTF-8 is replaced."""

    argv: tuple[str, ...]
    exit_code: int
    stdout: str = field(repr=False)
    stderr: str
    duration: float


JOB = "job"  # the kind of what a scheduler runs, and can run again


class ContainerEnd(NamedTuple):
    """How a container ended that is not started again; `at` is in epoch seconds."""

    reason: str | None
    exit_code: int | None
    at: float | None


@dataclass(frozen=True, slots=True, repr=False)
class PodState(PublicValue):
    """The state of a pod, container, job or node (see `kind`), as reported by the system that runs it.

    `phase` is Running, Pending, Suspended, Stopped (by a person), Succeeded, Failed, Ended (with an unknown outcome) or
    Unknown. `category` is the class of its failure, if known. `resume` is the command that resumes it while it is
    suspended. `waits_in_vain` is true if it will not start unless someone changes it. `terminated`, `exit_code` and
    `terminated_at` (epoch seconds) describe the end of the container that gives the `reason`, otherwise the most
    serious end of one of its containers, and `ended_container` is that container, even if it has not started. If the
    pod has ended, that is a container that failed, preferably the one that ran the training. `ends` has the ends of all
    containers that will not be started again. `deletes_at` (epoch seconds) is when a pod that is being deleted should
    have ended.

    `containers` are the containers of the pod, those with GPUs first. `main_container` is the container that is used if
    you name none: the only container with GPUs in its resource limits. If the pod has ended with an error, and there is
    no such container or it has not ended, `main_container` is the container that failed. It is None if it cannot be
    determined, or if the pod has only one container. `default_container` is the container in which kubectl runs a
    command if none is named.
    """

    name: str
    phase: str
    ready: bool
    restarts: int
    node: str | None = None
    reason: str | None = None
    message: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    deleting: bool = False
    terminated: str | None = None
    exit_code: int | None = None
    terminated_at: float | None = None
    ended_container: str | None = None
    containers: tuple[str, ...] = ()
    main_container: str | None = None
    default_container: str | None = None
    ends: Mapping[str, ContainerEnd] = field(default_factory=dict)
    created_at: float | None = None
    deletes_at: float | None = None
    kind: str = "pod"
    category: str | None = None
    resume: str | None = None
    waits_in_vain: bool = False
