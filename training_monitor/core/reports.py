"""The dicts that public functions return: plain and JSON-ready; keys are only ever added. Pure.

An unknown reading is None, never 0; an `error` text tells "could not ask" from "asked, and bad".

The annotations here are no strings, each of which would be compiled at import.
"""

from dataclasses import asdict, fields, is_dataclass
from types import GenericAlias
from typing import Annotated, Any, Literal, TypedDict, TypeVar, cast, get_type_hints

from training_monitor.core.models import Checkpoint, Failure
from training_monitor.core.values import NotSeen

Report = TypeVar("Report")
VerdictWord = Annotated[str, Literal["ok", "warning", "failed", "unknown"]]
StateWord = Annotated[
    str, Literal["starting", "running", "slow", "suspended", "stalled", "finished", "failed", "stopped", "unknown"]
]


def report_of(kind: type[Report], *values: Any, **own: Any) -> Report:
    """Return a report of this kind.

    Args:
        kind: its TypedDict.
        values: dataclasses or dicts that have some of its keys; a later one goes before an earlier one. With None
            among them, keys that nothing has are None; else they are an error.
        own: keys that go before those of all values.
    """
    told: dict[str, Any] = dict.fromkeys(kind.__annotations__) if None in values else {}
    for value in (*values, own):
        if value is not None:
            told |= value if isinstance(value, dict) else asdict(value)
    return cast(Report, {name: told[name] for name in kind.__annotations__})


def key_types(value: type, **renamed: str) -> dict[str, Any]:
    """Return the types of a dataclass's fields, or of a TypedDict's keys, by what `keys_of` calls them in a value."""
    hints = get_type_hints(value, include_extras=True)
    names = [each.name for each in fields(value)] if is_dataclass(value) else list(hints)
    keys = {renamed.get(name, name): hints[name] for name in names}
    keys.pop("", None)
    return keys


def document(name: str, said: str, /, *parts: type | dict[str, Any], **own: Any) -> type[dict[str, Any]]:
    """Return a TypedDict with the keys of its parts and its own; later ones replace earlier ones.

    Args:
        name: of the definition in the schema.
        said: its description there.
        parts: dataclasses, TypedDicts, or types by key, such as `key_types` returns.
    """
    keys: dict[str, Any] = {}
    for part in parts:
        keys |= part if isinstance(part, dict) else key_types(part)
    made: type[dict[str, Any]] = cast(Any, TypedDict)(name, keys | own)
    made.__doc__ = said
    return made


def list_of(kind: Any) -> Any:
    """Return the type of a list of these."""
    return GenericAlias(list, (kind,))


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
    error: str | None


class RayResourcesReport(RayNumbers):
    """What a Ray cluster has, uses and waits for; `healthy` is False also if that could not be asked."""

    healthy: bool


class EfaReport(TypedDict):
    """The result of an EFA check; `efa_active` is None when nothing shows what NCCL uses."""

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
    """The EFA state of all pods; `transport` is "mixed" where they differ."""

    per_node: list[NodeEfaReport]


class OneGpuReport(TypedDict):
    """One GPU of a node, as nvidia-smi reports it: per cent, MB, watts; None is unknown."""

    index: int | None
    util: float | None
    mem_used: float | None
    mem_total: float | None
    power_draw: float | None


class NodeGpuReport(TypedDict):
    """The GPUs of one node; `pod` is the pod's full name or the target string, `problem` the error without advice.

    `util` is the mean of its GPUs, memory and power are their sums; `gpus` has each of them.
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
    """One job in the health report; `state`, `verdict` and `reason` are those of `Verdict`."""

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
    """The result of `get_training_health`: verdict ok | warning | failed | unknown; `healthy` for ok and warning.

    `silent` names the targets that gave no answer at all.
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
    """How a watch of a job ended; see `monitor_job`."""

    status: str
    duration: float
    final_step: int | None
    job_id: str
    reason: str


class AttemptReport(TypedDict):
    """One attempt: its checkpoint, how far it came, how it ended and on what evidence.

    `progress` says whether it came further than all attempts before it, `node` is its Kubernetes node; None: unknown.
    `checkpoint_content` names the stored content, another one once it was written again. `stepped` says whether a step
    was made after the start; `nan_step` is the first step whose loss may have been NaN, if the newest one was.
    `final_step_known` is False when it may have made more steps than were seen; `steps_lost` is then None, and where
    the steps in its log cannot be compared with its checkpoints' numbers (`counts_job`). `resume_problem` says that its
    `first_step` lay before the checkpoint that it was given; `start_step` is then where it really began, and None for
    an adopted one. `phases` are the seconds that it was seen to start up, save and evaluate.
    `explanation` is what the roll call said before it was ended as a hang, `roll_call` the folder with all of it;
    `suspect_nodes` are those of the ranks that the others waited for, `faulty_nodes` had a fault of their hardware.
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
    """The result of a supervised run; `reason` begins with `outcome`; `goodput` is 0..1, `badput` seconds by cause.

    What was not seen is None: `goodput` and phases of an attempt whose steps one look saw at most, the start-up of one
    that had made steps before the first look, `steps_lost` if it is unknown for an attempt. `explanation` says why the
    last attempt that hung did so.
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
    """A GPU: `gpu_utilization` in per cent, `gpu_power` its power draw over its limit, 0 to 1."""

    index: int | None
    name: str | None
    gpu_utilization: float | None
    gpu_power: float | None
    memory_used_mb: float | None
    memory_total_mb: float | None
    error: str | None


class JobCheckReport(TypedDict):
    """One training that `check_training` found; None is unknown, and `progress` is 0 to 1.

    `target` is where it is, `pid` its main process, `script` what that runs, `log` the path of its log, `name` its
    display name, `checkpoint` the newest complete one. `gpus` are those that its processes use, or else all of the
    target and its sibling pods. `explanation` is what the last roll call said before the training was ended as a
    hang, at `explained_at` (epoch seconds); it is of `explained_job_id`, often an attempt before this one.
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
    """The result of `check_training`: `jobs` worst first; `verdict` is that of the first, or `unknown` without jobs.

    `not_looked_at` counts the trainings beyond those in `jobs`. `not_seen` lists what could not be seen (those
    trainings, and processes and jobs that could not be listed): what, how many (`count`, None: unknown) and why. While
    it lists anything, no verdict is `ok`.
    """

    schema: str
    target: str
    verdict: VerdictWord
    reason: str
    not_looked_at: int
    not_seen: list[Annotated[dict[str, Any], NotSeen]]
    remedies: list[str]
    jobs: list[JobCheckReport]
