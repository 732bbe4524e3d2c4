"""From readings to one verdict with its reasons. Pure.

failed   something is wrong that wastes the GPUs or ended the job
unknown  what would decide it could not be asked
warning  it works, and somebody should look
ok       everything that could be asked is well
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from training_monitor.models import Gpu, JobStatus, JobView, PodState, RayResources
from training_monitor.units import format_duration

IDLE_PERCENT = 5.0
SPINNING_PERCENT = 95.0
SPINNING_POWER_FRACTION = 0.3
SILENT_SECONDS = 300.0
DISK_WARNING_PERCENT = 95.0
DISK_FAILED_PERCENT = 99.0

_NO_GPU_HERE = ("nvidia-smi is not there", "No devices were found")  # a Ray head often has none
_RUN_NVIDIA_SMI = "run nvidia-smi there: where it hangs or fails, the node's driver or a GPU is broken"

_SEVERITY = ("ok", "warning", "unknown", "failed")


@dataclass(frozen=True, slots=True)
class Finding:
    verdict: str
    issue: str
    remedy: str


def worst_verdict(findings: Iterable[Finding]) -> str:
    """failed before unknown before warning before ok."""
    return max((finding.verdict for finding in findings), key=_SEVERITY.index, default="ok")


def average(values: Iterable[float | None]) -> float | None:
    """The mean of what is known; None when nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def is_busy(gpus: Sequence[Gpu]) -> bool | None:
    """Whether any GPU works; None when no utilisation is known."""
    known = [gpu.utilization for gpu in gpus if gpu.utilization is not None]
    return any(value >= IDLE_PERCENT for value in known) if known else None


def judge_gpus(
    gpus: Sequence[Gpu], errors: Sequence[str], job: JobView | None, *, in_pods: bool = False
) -> list[Finding]:
    """The GPUs of all nodes together; `errors` are the readings that failed, `in_pods` whether a node is a pod."""
    findings = [
        Finding(
            "failed",
            f"GPU {'?' if gpu.index is None else gpu.index}: {gpu.error}",
            "move the job off this node and have the GPU reset or replaced",
        )
        for gpu in gpus
        if gpu.error
    ]
    utilization = average(gpu.utilization for gpu in gpus)
    if utilization is None:
        reason = f": {errors[0]}" if errors else ""
        return [
            *findings,
            Finding(
                "unknown",
                f"Could not read GPU utilization from any node{reason}",
                _unread_remedy(errors, in_pods),
            ),
        ]
    if unread := [error for error in errors if not _has_no_gpu(error)]:
        findings.append(
            Finding(
                "unknown",
                f"Could not read the GPUs of {len(unread)} of the nodes: {unread[0]}",
                _RUN_NVIDIA_SMI,
            )
        )
    running = job is not None and job.status is JobStatus.RUNNING
    if utilization < IDLE_PERCENT:
        text = "GPU utilization < 5% -- training may not be running"
        if running:
            text += f" although the job is RUNNING: all {len(gpus)} GPUs are idle"
        findings.append(
            Finding(
                "failed",
                text,
                "look at the log's end (start-up, data loading, or a hang), and ask the "
                "scheduler who holds the GPUs; a Ray job needs entrypoint_num_gpus or GPU workers",
            )
        )
    elif spinning := [gpu for gpu in gpus if _is_spinning(gpu)]:
        if len(spinning) == len(gpus):
            findings.append(
                Finding(
                    "failed" if running and _is_silent(job) else "warning",
                    f"all {len(gpus)} GPUs at 100 % utilization but idle power ({_watts(spinning)}): "
                    "a collective waits",
                    "one rank is missing or slow: py-spy dump each; the one that is not in a collective is the culprit",
                )
            )
    return findings


def _has_no_gpu(error: str) -> bool:
    return any(text in error for text in _NO_GPU_HERE)


def _unread_remedy(errors: Sequence[str], in_pods: bool) -> str:
    if in_pods:
        return "run nvidia-smi there; GPUs of other pods are seen when those are named too (all_pods=, --pods)"
    if errors and all(_has_no_gpu(error) for error in errors):
        return "nvidia-smi is not installed there, or the machine has no GPU"
    return _RUN_NVIDIA_SMI


def _is_spinning(gpu: Gpu) -> bool:
    if gpu.utilization is None or gpu.power_draw_watts is None or not gpu.power_limit_watts:
        return False
    return (
        gpu.utilization >= SPINNING_PERCENT and gpu.power_draw_watts < SPINNING_POWER_FRACTION * gpu.power_limit_watts
    )


def _watts(gpus: Sequence[Gpu]) -> str:
    draw, limit = average(gpu.power_draw_watts for gpu in gpus), average(gpu.power_limit_watts for gpu in gpus)
    return f"{draw:.0f} of {limit:.0f} W"


def _is_silent(job: JobView | None) -> bool:
    return job is not None and job.log_age is not None and job.log_age >= SILENT_SECONDS


def judge_job(job: JobView) -> list[Finding]:
    if job.status is JobStatus.FAILED:
        return [
            Finding(
                "failed",
                f"job {job.job_id} FAILED: {job.message or 'no message'}",
                "read its log's end; auto_restart resumes it from its last complete checkpoint",
            )
        ]
    if job.status is JobStatus.STOPPED:
        return [Finding("warning", f"job {job.job_id} was stopped", "start it again on purpose if that was not meant")]
    if job.status is JobStatus.PENDING:
        return [Finding("warning", f"job {job.job_id} is PENDING", "see ray.pending_demands for what it waits for")]
    if job.status is JobStatus.UNKNOWN:
        return [
            Finding(
                "unknown", f"the status of job {job.job_id} is not known", "look at `ray job status` in the head pod"
            )
        ]
    if job.status is JobStatus.RUNNING and _is_silent(job):
        return [
            Finding(
                "warning",
                f"job {job.job_id} is RUNNING and has printed nothing for {format_duration(job.log_age)}",
                "detect_stall says whether it still makes steps",
            )
        ]
    return []


def judge_ray(ray: RayResources) -> list[Finding]:
    findings = []
    if ray.gpus_available and ray.gpus_used == 0:
        findings.append(
            Finding(
                "failed",
                "Ray has GPUs available but none allocated",
                "the job asked Ray for no GPU: set num_gpus in its tasks, actors or ScalingConfig",
            )
        )
    if ray.pending_demands:
        findings.append(
            Finding(
                "warning",
                f"Ray cannot place: {'; '.join(ray.pending_demands[:3])}",
                "it asks for more than the cluster has free: compare with `training-monitor resources`",
            )
        )
    return findings


def judge_efa(active: Sequence[bool | None], devices: int) -> list[Finding]:
    """`active` per pod, `devices` EFA ports on all of them."""
    if not any(value is False for value in active):
        return []
    mixed = f" on {sum(value is False for value in active)} of {len(active)} pods" if True in active else ""
    present = f" although the nodes have {devices} EFA ports" if devices else ""
    return [
        Finding(
            "failed" if devices else "warning",
            f"EFA not active -- NCCL using TCP sockets{mixed}{present}. Set NCCL_NET=ofi",
            "set NCCL_NET=ofi and FI_PROVIDER=efa, and put the aws-ofi-nccl plugin on LD_LIBRARY_PATH",
        )
    ]


_POD_REASONS = {
    "OOMKilled": ("the container ran out of memory", "raise its memory limit, or lower dataloader workers"),
    "Evicted": ("the node ran short of memory or disk", "lower its use of memory or ephemeral storage"),
    "CrashLoopBackOff": ("its container keeps crashing", "kubectl logs --previous shows why"),
    "ImagePullBackOff": ("its image cannot be pulled", "check the image name and pull secret"),
    "ErrImagePull": ("its image cannot be pulled", "check the image name and pull secret"),
}


def judge_pod(name: str, pod: PodState | None) -> list[Finding]:
    """One pod as Kubernetes sees it; None when it says there is no such pod."""
    if pod is None:
        return [Finding("failed", f"pod {name} does not exist", "kubectl get pods -A; a replaced pod has a new name")]
    reason, remedy = _POD_REASONS.get(
        pod.reason or "", (pod.message or pod.reason or "", "kubectl describe pod shows why")
    )
    if pod.phase == "Unknown":  # its node does not answer: the pod may well be running
        return [Finding("unknown", f"pod {name} is Unknown ({pod.reason or 'no reason'}): {reason}", remedy)]
    if pod.phase != "Running":
        verdict = "warning" if pod.phase == "Pending" and pod.reason not in _POD_REASONS else "failed"
        return [Finding(verdict, f"pod {name} is {pod.phase} ({pod.reason or 'no reason'}): {reason}", remedy)]
    if pod.deleting:
        return [Finding("warning", f"pod {name} is being deleted", "save a checkpoint now")]
    if pod.reason in _POD_REASONS or not pod.ready:
        verdict = "failed" if not pod.ready and pod.reason in _POD_REASONS else "warning"
        what = f"pod {name}: {pod.reason or 'not ready'} ({pod.restarts} restarts)"
        return [Finding(verdict, f"{what}: {reason}" if reason else what, remedy)]
    return []


def judge_disk(pod: str, path: str, used_percent: float) -> list[Finding]:
    if used_percent < DISK_WARNING_PERCENT:
        return []
    verdict = "failed" if used_percent >= DISK_FAILED_PERCENT else "warning"
    return [
        Finding(
            verdict,
            f"{pod}: {path} is {used_percent:.0f} % full",
            "delete old checkpoints there, keeping the newest complete one",
        )
    ]
