"""What a program and Kubernetes reported: values that errors carry, too. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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


@dataclass(frozen=True, slots=True)
class ContainerEnd:
    """How a container ended that is not started again; `at` is in epoch seconds."""

    reason: str | None
    exit_code: int | None
    at: float | None


@dataclass(frozen=True, slots=True, repr=False)
class PodState(PublicValue):
    """A pod, or what else its `kind` is, as what runs it reports it.

    `phase` is Running, Pending, Suspended, Stopped (by a person), Succeeded, Failed or Unknown. `category` is the class
    of its failure, where that is known, and `resume` the command that continues it while it is suspended.
    `terminated`, `exit_code` and `terminated_at` (epoch seconds) are those of its worst container end.

    Of a pod that has ended they are those of the container that failed, that of the training before others.
    `ended_container` is the container of that end; `ends` are those of all that have ended for good. `containers` are
    those it has, with GPUs first. `main_container` is the one that is meant where none is named: of a pod that has
    ended with an error the one that failed, else the only one with GPUs in its limits; None: that is not known, or it
    has one container only. `default_container` is the one where kubectl runs a command if none is named.
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
    kind: str = "pod"
    category: str | None = None
    resume: str | None = None
