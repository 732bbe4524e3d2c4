"""The dicts that public functions return: plain, JSON-ready, keys only ever added.

A reading that is not known is None, never 0; an `error` text tells "could not ask" from "asked, and bad".
"""

from __future__ import annotations

from typing import Any, TypedDict


class GpuProcessReport(TypedDict):
    pid: int
    name: str
    gpu: str | None
    memory: float | None


class GpuReport(TypedDict):
    """`check_gpu_utilization`: one entry per GPU in each list, in nvidia-smi's order; None = not reported."""

    healthy: bool
    busy: bool | None
    gpu_count: int | None
    gpu_names: list[str | None]
    gpu_utilizations: list[float | None]
    avg_utilization: float | None
    memory_used: list[float | None]
    memory_total: list[float | None]
    memory_utilizations: list[float | None]
    power_draw: list[float | None]
    power_limit: list[float | None]
    temperatures: list[float | None]
    mig_enabled: list[bool | None]
    gpu_errors: list[str | None]
    processes: list[GpuProcessReport]
    error: str | None


class RayResourcesReport(TypedDict):
    healthy: bool
    gpus_available: float | None
    gpus_used: float | None
    cpus_available: float | None
    cpus_used: float | None
    pending_demands: list[str]
    error: str | None


class EfaReport(TypedDict):
    """`efa_active` is None when nothing shows what NCCL uses."""

    efa_active: bool | None
    transport: str
    details: str
    provider: str | None
    efa_devices: int | None
    bytes_moved: int | None
    error: str | None


class NodeEfaReport(EfaReport):
    pod: str


class EfaClusterReport(EfaReport):
    """Of all pods; `transport` is mixed where they differ."""

    per_node: list[NodeEfaReport]


class NodeGpuReport(TypedDict):
    """`pod` is the whole name of the pod, or another target as people write it; `problem` the error without advice."""

    pod: str
    util: float | None
    mem_used: float | None
    mem_total: float | None
    power_draw: float | None
    gpu_count: int | None
    error: str | None
    problem: str | None


class HealthGpuReport(TypedDict):
    total_gpus: int | None
    avg_utilization: float | None
    per_node: list[NodeGpuReport]


class HealthEfaReport(TypedDict):
    active: bool | None
    transport: str
    channels: str | None
    per_node: list[NodeEfaReport]


class HealthCheckpointReport(TypedDict):
    latest_step: int | None
    latest_path: str | None
    checkpoint_count: int | None
    checkpoint_dir: str | None
    not_looked_at: int | None
    refused: list[dict[str, Any]]
    error: str | None


class HealthRayReport(TypedDict):
    gpus_used: float | None
    gpus_available: float | None
    cpus_used: float | None
    cpus_available: float | None
    pending_demands: list[str]
    error: str | None
    problem: str | None


class JobReport(TypedDict):
    """`state`, `verdict` and `reason` are what `judge` says, see `Verdict`."""

    job_id: str
    status: str
    message: str | None
    step: int | None
    total_steps: int | None
    loss: float | None
    log_age: float | None
    error: str | None
    state: str
    verdict: str
    reason: str


class PodReport(TypedDict):
    pod: str
    phase: str | None
    ready: bool | None
    restarts: int | None
    node: str | None
    reason: str | None
    error: str | None


class DiskReport(TypedDict):
    pod: str
    path: str
    free_bytes: int | None
    used_percent: float | None
    error: str | None


class HealthReport(TypedDict):
    """`get_training_health`; verdict is ok | warning | failed | unknown and healthy says verdict == ok or warning.

    `silent` names the targets that gave no answer at all.
    """

    schema: int
    healthy: bool
    verdict: str
    issues: list[str]
    remedies: list[str]
    silent: list[str]
    gpu: HealthGpuReport
    efa: HealthEfaReport
    checkpoints: HealthCheckpointReport
    ray: HealthRayReport
    job: JobReport | None
    pods: list[PodReport]
    disk: list[DiskReport]


class MonitorReport(TypedDict):
    status: str
    duration: float
    final_step: int | None
    job_id: str
    reason: str


class AttemptReport(TypedDict):
    """One start of the job: from which checkpoint, how far it came, how it ended and on what evidence.

    `progress` says whether it came further than all before it, `node` the Kubernetes node it ran on; None: not known.
    `final_step_known` is False where it may have made more steps than anybody saw; `steps_lost` is then None.
    """

    number: int
    job_id: str
    checkpoint: str | None
    refused_checkpoints: list[str]
    start_step: int | None
    final_step: int | None
    final_step_known: bool
    started_at: float
    ended_at: float | None
    status: str
    reason: str | None
    steps_lost: int | None
    failure: FailureReport | None
    progress: bool | None
    node: str | None
    first_step_at: float | None
    last_step_at: float | None


class FailureReport(TypedDict):
    """See `Failure`."""

    category: str
    error_class: str
    action: str
    evidence: str
    rank: int | None
    fingerprint: str


class RestartReport(TypedDict):
    """`outcome` is what `reason` begins with; `goodput` is 0..1, `badput` seconds by cause, see `goodput()`.

    `steps_lost` is None where an attempt may have made more steps than anybody saw.
    """

    success: bool
    final_step: int | None
    total_retries: int
    reason: str
    outcome: str | None
    job_id: str | None
    attempts: list[AttemptReport]
    steps_lost: int | None
    goodput: float | None
    badput: dict[str, float]
    duration: float


class JobCheckReport(TypedDict):
    """One training that `check_training` found; None is not known, and `progress` is 0 to 1.

    `job` is its job id, `pid` its main process, `log` the path of its log, `name` what people call it, `checkpoint` the
    newest complete one. `gpus` are those its processes are on, or else all that the target and its sibling pods have.
    """

    verdict: str
    state: str
    reason: str
    since: float | None
    confidence: str
    recommendation: str
    remedies: list[str]
    step: int | None
    total_steps: int | None
    epoch: float | None
    total_epochs: float | None
    progress: float | None
    steps_per_second: float | None
    eta_seconds: float | None
    loss: float | None
    seconds_without_step: float | None
    limit_seconds: float | None
    name: str
    job: str | None
    pid: int | None
    command: str | None
    log: str | None
    checkpoint: dict[str, Any] | None
    gpus: list[dict[str, Any]]
    failure: dict[str, Any] | None
    errors: list[str]


class CheckReport(TypedDict):
    """`check_training`: `jobs` worst first; `verdict` is that of the first, and `unknown` when none was found.

    `not_looked_at` counts the trainings beyond those in `jobs`. `not_seen` says of them, and of processes and jobs that
    could not be listed, what, how many (`count`, None: not known) and why; while it names any, no verdict is `ok`.
    """

    schema: str
    target: str
    verdict: str
    reason: str
    not_looked_at: int
    not_seen: list[dict[str, Any]]
    remedies: list[str]
    jobs: list[JobCheckReport]
