"""Judge the readings of a health check, and format its report. Pure.

failed   a problem wastes the GPUs or ended the job
unknown  a decisive reading could not be taken
warning  it works, but somebody should look at it
ok       every reading that could be taken is good
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from training_monitor.core.models import Gpu, JobStatus, RayResources
from training_monitor.core.reports import HealthReport, NodeGpuReport, OneGpuReport
from training_monitor.core.results import PodState
from training_monitor.core.units import average, format_bytes, format_duration, name_some, plural
from training_monitor.core.values import Observation, Verdict
from training_monitor.targets.pods import (
    CHECK_IMAGE,
    DESCRIBE,
    ENDED,
    NODE_SILENT,
    STARTS,
    WAITING,
    describe_end,
    end_of_container,
    is_stuck,
    names_container,
)
from training_monitor.verdict.gpu_load import IDLE_PERCENT, mode_of
from training_monitor.verdict.judge import ENDS, VERDICTS, format_verdict

DISK_WARNING_PERCENT = 95.0
DISK_FAILED_PERCENT = 99.0
DISK_ENOUGH_BYTES = 10e9  # however small a share of a large file system that is

UNUSED_MB = 1024.0  # MiB of a GPU's memory that may be in use without a training on it

_MOST_NODES = 4  # named in one finding
_LEFT_BEHIND = (
    "run nvidia-smi to find the processes that hold the memory: a rank may be waiting or failing, or may have too "
    "little work"
)
_IN_MIG = "use DCGM (dcgmi dmon): nvidia-smi reports no utilization of a GPU in MIG mode"
_NOT_REPORTED = (
    "use DCGM (dcgmi dmon), or tegrastats on a Jetson: nvidia-smi responds, but does not report the utilization here"
)
_RUN_NVIDIA_SMI = "run nvidia-smi on the node: if it hangs or fails, the driver or a GPU is broken"


class Finding(NamedTuple):
    verdict: str
    issue: str
    remedy: str


class NodeGpus(NamedTuple):
    """The GPUs of one node, or why they could not be read.

    `has_none`: it has no GPU or no nvidia-smi, like many Ray heads.
    """

    node: str
    gpus: tuple[Gpu, ...] = ()
    error: str | None = None
    has_none: bool = False


def worst_verdict(findings: Iterable[Finding]) -> str:
    """Return the worst verdict: failed, unknown, warning, ok."""
    return max((finding.verdict for finding in findings), key=VERDICTS.index, default="ok")


# ---------------------------------------------------------------- GPUs


def judge_gpus(
    nodes: Sequence[NodeGpus],
    seen: Observation | None = None,
    verdict: Verdict | None = None,
    *,
    in_pods: bool = False,
) -> list[Finding]:
    """Judge each GPU by itself: a lost one does not hide the others.

    Args:
        nodes: all that were asked.
        seen: the observation of the job on them, and `verdict` the judgement of it; None: no job was named.
        in_pods: whether a node is a pod.
    """
    findings = [
        Finding(
            "failed",
            f"{_place(nodes, node, gpu)}: {gpu.error}",
            "move the job off this node and have the GPU reset or replaced",
        )
        for node in nodes
        for gpu in node.gpus
        if gpu.error
    ]
    unread = [node for node in nodes if node.error]
    modes = {mode for node in nodes for gpu in node.gpus if (mode := mode_of(gpu))}
    if not modes:
        reason = f": {unread[0].error}" if unread else ""
        issue = f"Could not read GPU utilization from any node{reason}"
        listed = [gpu for node in nodes for gpu in node.gpus] if all(each.has_none for each in unread) else []
        remedy = _IN_MIG if any(gpu.mig_enabled for gpu in listed) else _NOT_REPORTED
        is_listed = bool(listed) and not all(gpu.error for gpu in listed)
        return [*findings, Finding("unknown", issue, remedy if is_listed else _unread_remedy(unread, in_pods))]
    if broken := [node for node in unread if not node.has_none]:
        issue = f"Could not query the GPUs of {plural(len(broken), 'node')}: {broken[0].error}"
        findings.append(Finding("unknown", issue, _RUN_NVIDIA_SMI))
    if modes == {"idle"}:
        findings += _judge_idle(nodes, seen, verdict)
    if "busy" in modes and (left := _only(nodes, _is_left_behind)):
        issue = f"{_places(nodes, left)} idle with memory in use, while other GPUs are busy"
        findings.append(Finding("warning", issue, _LEFT_BEHIND))
    if "spinning" in modes:
        findings.append(_judge_spinning(nodes, verdict, is_all_that_works="busy" not in modes))
    return findings


def _judge_idle(nodes: Sequence[NodeGpus], seen: Observation | None, verdict: Verdict | None) -> list[Finding]:
    """Judge idle GPUs, which are normal for a job that has ended, starts, evaluates or saves."""
    if verdict and verdict.state in ENDS:
        return []
    text = f"GPU utilization < {IDLE_PERCENT:g}% -- training may not be running"
    if seen and seen.status is JobStatus.RUNNING:
        count = sum(mode_of(gpu) == "idle" for node in nodes for gpu in node.gpus)
        text += f" although the job is RUNNING: all {count} GPUs are idle"
    pauses = bool(seen and verdict and verdict.verdict == "ok" and (seen.phase or verdict.state == "starting"))
    remedy = (
        "check the end of its log: it may be starting, loading data or hanging; check whether the scheduler assigned "
        "the GPUs to another job; for a Ray job, set entrypoint_num_gpus or use GPU workers"
    )
    return [Finding("warning" if pauses else "failed", text, remedy)]


def _judge_spinning(nodes: Sequence[NodeGpus], verdict: Verdict | None, *, is_all_that_works: bool) -> Finding:
    spinning = _only(nodes, lambda gpu: mode_of(gpu) == "spinning")
    gpus = [gpu for node in spinning for gpu in node.gpus]
    used = average(gpu.utilization for gpu in gpus) or 0.0
    is_stalled = is_all_that_works and verdict is not None and verdict.state == "stalled"
    return Finding(
        "failed" if is_stalled else "warning",
        f"{_places(nodes, spinning)} at {used:.0f} % utilization but idle power ({_watts(gpus)}): ranks are "
        "waiting in a collective",
        "one rank is missing or slow: run `why` in a shell, or explain_training, to see which one",
    )


def _only(nodes: Sequence[NodeGpus], chosen: Callable[[Gpu], bool]) -> list[NodeGpus]:
    """Return the nodes with their chosen GPUs alone; empty if none was chosen."""
    found = [NodeGpus(node.node, tuple(filter(chosen, node.gpus))) for node in nodes]
    return found if any(node.gpus for node in found) else []


def _is_left_behind(gpu: Gpu) -> bool:
    """Whether a GPU is idle although a program is loaded on it; an unused one holds no more than its driver's part."""
    return mode_of(gpu) == "idle" and (gpu.memory_used_mb or 0.0) > UNUSED_MB


def _place(nodes: Sequence[NodeGpus], node: NodeGpus, gpu: Gpu) -> str:
    """Name one GPU, with its node if there are several."""
    index = "?" if gpu.index is None else gpu.index
    return f"GPU {index} of {node.node}" if len(nodes) > 1 else f"GPU {index}"


def _places(nodes: Sequence[NodeGpus], chosen: Sequence[NodeGpus]) -> str:
    """Name the chosen GPUs: `all 8 GPUs`, or `GPUs 0-6`, or `GPUs 0-6 of a, all 8 GPUs of b`."""
    total, count = (sum(len(node.gpus) for node in each) for each in (nodes, chosen))
    if count == total:
        return f"all {total} GPUs"
    parts = []
    for node, part in zip(nodes, chosen):
        if part.gpus:
            which = f"all {len(part.gpus)} GPUs" if len(part.gpus) == len(node.gpus) > 1 else _numbers(part.gpus)
            parts.append(f"{which} of {node.node}" if len(nodes) > 1 else which)
    more = f", and GPUs of {len(parts) - _MOST_NODES} more nodes" if len(parts) > _MOST_NODES else ""
    return ", ".join(parts[:_MOST_NODES]) + more


def _numbers(gpus: Sequence[Gpu]) -> str:
    """Format as `GPU 3`, or `GPUs 0-2+5`."""
    ranges = list[list[int]]()
    for index in sorted(gpu.index for gpu in gpus if gpu.index is not None):
        if ranges and index == ranges[-1][-1] + 1:
            ranges[-1].append(index)
        else:
            ranges.append([index])
    named = [str(each[0]) if len(each) == 1 else f"{each[0]}-{each[-1]}" for each in ranges]
    named += ["?"] * any(gpu.index is None for gpu in gpus)
    return f"GPU{'s' if len(gpus) > 1 else ''} {'+'.join(named)}"


def _unread_remedy(unread: Sequence[NodeGpus], in_pods: bool) -> str:
    if in_pods:
        return "run nvidia-smi in the pod; pass `pods` to include the GPUs of other pods"
    if unread and all(node.has_none for node in unread):
        return "the machine has no GPU, or nvidia-smi is not installed on it"
    return _RUN_NVIDIA_SMI


def _watts(gpus: Sequence[Gpu]) -> str:
    draw, limit = average(gpu.power_draw_watts for gpu in gpus), average(gpu.power_limit_watts for gpu in gpus)
    return f"{draw:.0f} of {limit:.0f} W"


# ---------------------------------------------------------------- job, Ray, EFA, pods, disks

_JOB_REMEDIES = {
    "starting": "ray.pending_demands shows what it is waiting for",
    "slow": "compare the GPUs of its nodes: one slow GPU slows down all the others",
    "suspended": "resume its suspended processes with kill -CONT",
    "stalled": "auto_restart resumes it from its last complete checkpoint",
    "failed": "read the end of its log; auto_restart resumes it from its last complete checkpoint",
    "stopped": "start it again unless it was stopped on purpose",
}


def judge_job(job_id: str, verdict: Verdict) -> list[Finding]:
    """Return the judge's verdict on the job as a finding."""
    if verdict.verdict == "ok":
        return []
    remedy = "; ".join(verdict.remedies) or _JOB_REMEDIES.get(verdict.state, "check the end of its log")
    return [Finding(verdict.verdict, f"job {job_id}: {format_verdict(verdict)}", remedy)]


def judge_ray(ray: RayResources) -> list[Finding]:
    findings = []
    if ray.gpus_available and ray.gpus_used == 0:
        findings.append(
            Finding(
                "warning",  # a driver may use the GPUs of its machine without asking Ray for them
                "Ray has GPUs available but none allocated",
                "the job requested no GPU from Ray: set num_gpus in its tasks, actors or ScalingConfig",
            )
        )
    if ray.failed_nodes:
        findings.append(
            Finding(
                "warning",  # Ray lists them for a while, also those that were replaced
                f"Ray reports failed nodes: {name_some(ray.failed_nodes, 3, '; ')}",
                "check their pods or machines, and the log of Ray's autoscaler (monitor.log, monitor.out)",
            )
        )
    if ray.pending_demands:
        findings.append(
            Finding(
                "warning",
                f"Ray cannot satisfy these resource requests: {name_some(ray.pending_demands, 3, '; ')}",
                "request fewer resources, or release some (to list them, use verify_ray_resources or the command "
                "`resources`)",
            )
        )
    return findings


def judge_efa(active: Sequence[bool | None], devices: int) -> list[Finding]:
    """Judge the use of EFA: `active` per pod, `devices` EFA ports on all of them."""
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


_LOGS = "run kubectl logs to see the end of its log"
_PREVIOUS = "run kubectl logs --previous to see why"
_NODE = "check its node with kubectl get nodes"
_POD_REASONS = {  # the verdict on a pod that is not ready; what happened, if its message does not say it; the remedy
    "OOMKilled": ("failed", "a container ran out of memory", "raise its memory limit, or use fewer DataLoader workers"),
    "Evicted": ("failed", None, "reduce its use of memory or ephemeral storage"),
    "CrashLoopBackOff": ("failed", "its container keeps crashing", _PREVIOUS),
    "ImagePullBackOff": ("failed", "its image cannot be pulled", CHECK_IMAGE),
    "ErrImagePull": ("warning", None, CHECK_IMAGE),
    NODE_SILENT: ("warning", None, _NODE),
    **dict.fromkeys(STARTS, ("warning", None, DESCRIBE)),
}

RESTART_TOLD_SECONDS = 86400.0  # an older restart is no news
_OVERDUE_SECONDS = 900.0  # more than a second grace period, and than two clocks differ


def judge_pod(name: str, pod: PodState | None, now: float) -> list[Finding]:
    """Judge one pod as Kubernetes reports it; None if there is no such pod. `now` is in epoch seconds."""
    if pod is None:
        remedy = "run kubectl get pods -A: a replaced pod has a new name, and a suspended job has none"
        return [Finding("failed", f"pod {name} does not exist", remedy)]
    is_main_beside = pod.main_container not in (None, pod.ended_container)  # another one ended its pod
    ended = end_of_container(pod, pod.main_container) if pod.phase == "Running" or is_main_beside else None
    ago = None if pod.terminated_at is None else now - pod.terminated_at
    is_recent = ago is None or ago <= RESTART_TOLD_SECONDS
    was_restarted = pod.phase == "Running" and pod.restarts and pod.exit_code != 0 and is_recent
    word = pod.reason or (pod.terminated if was_restarted else None)
    verdict, reason, remedy = _POD_REASONS.get(word or "", ("failed", None, _PREVIOUS if was_restarted else DESCRIBE))
    reason = reason or pod.message
    if pod.phase == "Pending":
        from training_monitor.targets.pod_advice import advise_start  # few pods wait

        remedy = advise_start(pod) or remedy
    elif pod.phase == "Failed" and pod.exit_code and remedy == DESCRIBE:
        remedy = _LOGS
    if word == "CrashLoopBackOff" and pod.exit_code == 0:
        reason, remedy = "its container finishes, and is started again", "set restartPolicy: OnFailure"
    of = f", container {pod.ended_container}" if names_container(pod) else ""
    of += f", exit code {pod.exit_code}" if pod.exit_code else ""
    said = (f" ({word}{of})" if word else "") + (f": {reason}" if reason else "")
    waits = pod.phase == "Pending" and not is_stuck(pod)
    is_leaving, overdue = pod.deleting and pod.phase != "Failed", now - (pod.deletes_at or now)
    is_sidecar = pod.phase == "Running" and pod.containers and pod.ended_container not in pod.containers
    is_beside = (pod.main_container or is_sidecar) and pod.ended_container not in (None, pod.main_container)
    is_down = not pod.ready and not is_beside and (word in _POD_REASONS or word not in (None, pod.terminated))
    is_news = not pod.ready or (word is not None and is_recent)
    where = f"container {pod.ended_container} " if pod.ended_container else ""
    when = f", {where}{format_duration(ago)} ago" if ago is not None else ""
    what = f"pod {name}: {word or 'not ready'} ({plural(pod.restarts, 'restart')}{when})"
    late = f"pod {name} was deleted, and should have ended {format_duration(overdue)} ago{said}"
    stuck = f"{_NODE}; one of its processes may be waiting for a disk, or a finalizer keeps the pod"
    is_lost = pod.phase not in (*ENDED, *WAITING, "Running") or pod.reason == "NodeLost"  # it may still be running
    has_failed = ended and ended.phase == "Failed"
    rows = (  # the first one that holds
        (ended, "failed" if has_failed else "warning", describe_end(ended or pod), _LOGS),
        (is_lost, "unknown", f"the state of pod {name} is unknown{said}", remedy),
        (pod.phase == "Succeeded", "warning", f"pod {name} has finished (Succeeded): nothing runs in it", _LOGS),
        (is_leaving and overdue > _OVERDUE_SECONDS, "warning", late, stuck),
        (
            is_leaving and pod.phase == "Pending",
            "warning",
            f"pod {name} was deleted before it started{said}",
            "create it again",
        ),
        (is_leaving, "warning", f"pod {name} is being deleted{said}", "save a checkpoint now"),
        (pod.phase != "Running", "warning" if waits else "failed", f"pod {name} is {pod.phase}{said}", remedy),
        (is_news, verdict if is_down else "warning", f"{what}: {reason}" if reason else what, remedy),
    )
    return next(([Finding(*row)] for holds, *row in rows if holds), [])


def judge_disk(pod: str, path: str, used_percent: float, free_bytes: float) -> list[Finding]:
    if used_percent < DISK_WARNING_PERCENT:
        return []
    verdict = "failed" if used_percent >= DISK_FAILED_PERCENT and free_bytes < DISK_ENOUGH_BYTES else "warning"
    return [
        Finding(
            verdict,
            f"{pod}: {path} is {used_percent:.0f} % full",
            "delete old checkpoints there, keeping the newest complete one",
        )
    ]


SEE_BELOW = "unknown, see below"


def format_training_health(report: HealthReport) -> str:
    """Format the report as a few lines of text. '?' stands for an unknown value."""
    gpu, ray, saved, job = report["gpu"], report["ray"], report["checkpoints"], report["job"]
    lines = [f"Training health: {report['verdict'].upper()}"]
    if job:
        total = f"/{job['total_steps']}" if job["total_steps"] else ""
        age = f", last output {format_duration(job['log_age'])} ago" if job["log_age"] is not None else ""
        lines.append(f"  Job          {job['job_id']} {job['status']} step {_known(job['step'])}{total}{age}")
        said = f": {job['reason']}" if job["verdict"] == "ok" else ", see below"  # the issues list all others
        lines.append(f"               {job['state']}{said}")
    average = "?" if gpu["avg_utilization"] is None else f"{gpu['avg_utilization']:.0f} %"
    lowest = f", lowest {gpu['lowest_utilization']:.0f} %" if gpu["lowest_utilization"] is not None else ""
    is_unread = gpu["total_gpus"] is None and gpu["avg_utilization"] is None
    read = SEE_BELOW if is_unread else f"{_known(gpu['total_gpus'])}, average utilization {average}{lowest}"
    lines.append(f"  GPUs         {read}")
    widest = max(len("GPU 10"), *(len(node["pod"]) for node in gpu["per_node"]))
    for node in gpu["per_node"]:
        unread = SEE_BELOW if node["pod"] in report["silent"] else node["problem"]
        lines.append(f"    {node['pod']:<{widest}}  {unread or _gpu_reading(node)}")
        if len(node["gpus"]) > 1:
            names = (f"GPU {_known(each['index'])}" for each in node["gpus"])
            lines += [f"      {name:<{widest}}{_gpu_reading(each)}" for name, each in zip(names, node["gpus"])]
    lines.append(
        f"  Network      {report['efa']['transport']}"
        + (f", {report['efa']['channels']}" if report["efa"]["channels"] else "")
    )
    used = f"{_known(ray['gpus_used'])}/{_known(ray['gpus_available'])} GPUs, "
    used += f"{_known(ray['cpus_used'])}/{_known(ray['cpus_available'])} CPUs"
    head = gpu["per_node"][0]["pod"]
    lines.append(f"  Ray          {SEE_BELOW if head in report['silent'] else ray['problem'] or used}")
    found = f"latest step {_known(saved['latest_step'])} of {_known(saved['checkpoint_count'])}"
    folder = saved["checkpoint_dir"]
    lines.append(f"  Checkpoints  {'no checkpoint folder was specified' if folder is None else f'{found} in {folder}'}")
    lines += [f"    refused      step {each['step']}: {each['problem']}" for each in saved["refused"][-3:]]
    lines += [
        f"  Disk         {each['pod']} {each['path']}: {format_bytes(each['free_bytes'])} free"
        for each in report["disk"]
        if each["free_bytes"] is not None
    ]
    for issue, remedy in zip(report["issues"], report["remedies"]):
        lines += [f"  ! {issue}", f"      {remedy}"]
    return "\n".join(lines)


def _gpu_reading(gpu: NodeGpuReport | OneGpuReport) -> str:
    util = "?" if gpu["util"] is None else f"{gpu['util']:.0f} %"
    memory = f"{_whole(gpu['mem_used'])}/{_whole(gpu['mem_total'])} MB"
    return f"{util:>5}  {memory}  {_whole(gpu['power_draw'])} W"


def _known(value: object) -> str:
    return "?" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _whole(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f}"
