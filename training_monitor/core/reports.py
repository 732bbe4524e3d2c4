"""The dicts that public functions return: plain and JSON-ready; keys are only ever added. Pure.

An unknown reading is None, never 0; an `error` text tells "could not ask" from "asked, and bad".

The annotations here are no strings, each of which would be compiled at import.
"""

from dataclasses import asdict
from typing import Annotated, Any, Literal, TypedDict, TypeVar, cast

from training_monitor.core.models import Checkpoint, Failure
from training_monitor.core.values import NotSeen

Report = TypeVar("Report")
VerdictWord = Annotated[str, Literal["ok", "warning", "failed", "unknown"]]
StateWord = Annotated[
    str, Literal["starting", "running", "slow", "suspended", "stalled", "finished", "failed", "stopped", "unknown"]
]


def report_of(kind: type[Report], *values: Any, **own: Any) -> Report:
    """Build a report of type `kind` from dataclasses, dicts and keyword arguments.

    Args:
        kind: the TypedDict of the report.
        values: dataclasses or dicts that have some of its keys; later values replace earlier ones. If one of them is
            None, missing keys are set to None; otherwise a missing key is an error.
        own: keys that replace those of all values.
    """
    told: dict[str, Any] = dict.fromkeys(kind.__annotations__) if None in values else {}
    for value in (*values, own):
        if value is not None:
            told |= value if isinstance(value, dict) else asdict(value)
    return cast(Report, {name: told[name] for name in kind.__annotations__})


class GpuProcessReport(TypedDict):
    pid: int
    name: str
    gpu: str | None
    memory: float | None


class GpuReport(TypedDict):
    """The result of `check_gpu_utilization`: one entry per GPU in each list, in nvidia-smi's order; None = unknown."""

    healthy: bool
    busy: bool | None
    gpu_count: int | None
    gpu_indexes: list[int | None]
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


class RayNumbers(TypedDict):
    gpus_available: float | None
    gpus_used: float | None
    cpus_available: float | None
    cpus_used: float | None
    pending_demands: list[str]
    failed_nodes: list[str]
    error: str | None


class RayResourcesReport(RayNumbers):
    """The total, used and requested resources of a Ray cluster. `healthy` is False if Ray could not be queried."""

    healthy: bool


class EfaReport(TypedDict):
    """The result of an EFA check; `efa_active` is None if there is no evidence of the transport that NCCL uses."""

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
    """The EFA state of all pods; `transport` is "mixed" if the pods use different transports."""

    per_node: list[NodeEfaReport]


class OneGpuReport(TypedDict):
    """One GPU of a node as reported by nvidia-smi, in percent, MB and watts; None means unknown."""

    index: int | None
    util: float | None
    mem_used: float | None
    mem_total: float | None
    power_draw: float | None


class NodeGpuReport(TypedDict):
    """The GPUs of one node. `pod` is the pod's full name or the target string.

    `util` is the mean over its GPUs, memory and power are sums, and `gpus` lists each GPU. `problem` is the error
    without the advice.
    """

    pod: str
    util: float | None
    mem_used: float | None
    mem_total: float | None
    power_draw: float | None
    gpu_count: int | None
    gpus: list[OneGpuReport]
    error: str | None
    problem: str | None


class HealthGpuReport(TypedDict):
    total_gpus: int | None
    avg_utilization: float | None
    lowest_utilization: float | None
    per_node: list[NodeGpuReport]


class HealthEfaReport(TypedDict):
    active: bool | None
    transport: str
    channels: str | None
    per_node: list[NodeEfaReport]


class RefusedCheckpointReport(TypedDict):
    path: str
    step: int
    problem: str | None


class HealthCheckpointReport(TypedDict):
    latest_step: int | None
    latest_path: str | None
    checkpoint_count: int | None
    checkpoint_dir: str | None
    not_looked_at: int | None
    refused: list[RefusedCheckpointReport]
    error: str | None


class HealthRayReport(RayNumbers):
    problem: str | None


class JobReport(TypedDict):
    """One job in the health report; `state`, `verdict` and `reason` have the same meaning as in `Verdict`."""

    job_id: str
    status: str
    message: str | None
    step: int | None
    total_steps: int | None
    loss: float | None
    log_age: float | None
    error: str | None
    state: StateWord
    verdict: VerdictWord
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
    """The result of `get_training_health`.

    `verdict` is ok | warning | failed | unknown; `healthy` is True for ok and warning. `silent` lists the targets that
    did not respond at all.
    """

    schema: str
    healthy: bool
    verdict: VerdictWord
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
    """The result of watching a job; see `monitor_job`."""

    status: str
    duration: float
    final_step: int | None
    job_id: str
    reason: str


class AttemptReport(TypedDict):
    """One attempt of a supervised job: its checkpoint, the steps it reached, and how it ended. None means unknown.

    `progress` is true if the attempt reached a higher step than all attempts before it; `node` is its Kubernetes node.
    `checkpoint_content` identifies the stored content of its checkpoint, which changes when the checkpoint is written
    again. `stepped` is true if it made a step after the start; `nan_step` is the first step whose loss may have been
    NaN, if the most recent loss was NaN. `final_step_known` is False if the attempt may have made more steps than were
    observed. `steps_lost` is then None; it is also None if the steps in the log cannot be compared with the numbers of
    its checkpoints (`counts_job`).

    `resume_problem` reports that `first_step` was lower than the step of the checkpoint it was given; `start_step` is
    then the step at which it really began. `start_step` is None for an adopted attempt. `phases` has the seconds that
    it was observed to spend on startup, on checkpoints and on evaluation.

    `explanation` is the result of the roll call that was taken before the attempt was ended as a hang; `roll_call` is
    the folder with the full report. `suspect_nodes` ran the ranks that the other ranks waited for; `faulty_nodes` had a
    hardware fault.
    """

    number: int
    job_id: str
    checkpoint: str | None
    checkpoint_content: str | None
    refused_checkpoints: list[str]
    start_step: int | None
    final_step: int | None
    final_step_known: bool
    started_at: float
    ended_at: float | None
    status: str
    reason: str | None
    steps_lost: int | None
    failure: Annotated[dict[str, Any], Failure] | None
    progress: bool | None
    stepped: bool | None
    nan_step: int | None
    node: str | None
    counts_job: bool | None
    resume_problem: str | None
    total_steps: int | None
    first_step: int | None
    phases: dict[str, float] | None
    first_step_at: float | None
    last_step_at: float | None
    explanation: str | None
    roll_call: str | None
    suspect_nodes: list[str] | None
    faulty_nodes: list[str] | None


class RestartReport(TypedDict):
    """The result of a supervised run. `reason` begins with `outcome`.

    `goodput` is 0..1, and `badput` is the lost seconds by cause. Values that were not observed are None. For example,
    `goodput` and the phases of an attempt are None if fewer than two looks observed a step of the attempt. The startup
    time is None if the attempt had already completed steps at the first look. `steps_lost` is None if the number of
    lost steps is unknown for any attempt. `explanation` is the cause of the last hang.
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
    badput: dict[str, float | None]
    duration: float
    explanation: str | None


class GpuCheckReport(TypedDict):
    """One GPU: `gpu_utilization` in percent, and `gpu_power` as power draw divided by the power limit, 0 to 1."""

    index: int | None
    name: str | None
    gpu_utilization: float | None
    gpu_power: float | None
    memory_used_mb: float | None
    memory_total_mb: float | None
    error: str | None


class JobCheckReport(TypedDict):
    """One training found by `check_training`. None means unknown, and `progress` is 0 to 1.

    `target` is the target on which it runs, `pid` its main process, `script` the script of that process, `log` the path
    of its log, `name` its display name, and `checkpoint` its newest complete checkpoint. `gpus` are the GPUs that its
    processes use; if that is unknown, all GPUs of the target and its sibling pods. `explanation` is the result of the
    last roll call that was taken before the training was ended as a hang, at `explained_at` (epoch seconds). It belongs
    to `explained_job_id`, which is often an earlier attempt.
    """

    verdict: VerdictWord
    state: StateWord
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
    target: str
    name: str
    job_id: str | None
    pid: int | None
    script: str | None
    command: str | None
    log: str | None
    checkpoint: Annotated[dict[str, Any], Checkpoint] | None
    gpus: list[GpuCheckReport]
    failure: Annotated[dict[str, Any], Failure] | None
    explanation: str | None
    explained_at: float | None
    explained_job_id: str | None
    errors: list[str]


class CheckReport(TypedDict):
    """The result of `check_training`. `jobs` lists the trainings that were found, worst first.

    `verdict` is the verdict of the first job, if the search was complete; it is unknown if there are no jobs.
    `not_looked_at` is the number of trainings that were found but not inspected. `not_seen` has an entry for the
    trainings that were not inspected, and for processes and jobs that could not be queried. Each entry has a
    description, the reason, and a `count` (None if unknown). If `not_seen` is not empty, `verdict` is unknown or
    failed. `forgotten` is the number of ended trainings that `forget_ended` discarded.
    """

    schema: str
    target: str
    verdict: VerdictWord
    reason: str
    not_looked_at: int
    forgotten: int
    not_seen: list[Annotated[dict[str, Any], NotSeen]]
    remedies: list[str]
    jobs: list[JobCheckReport]
