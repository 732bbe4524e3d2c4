"""One report on everything that training needs: one exec per pod, pods side by side, one verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from training_monitor.clock import SYSTEM_CLOCK, Clock
from training_monitor.errors import TargetNotFound, ToolNotFound, TrainingMonitorError
from training_monitor.models import (
    Answer,
    GpuTable,
    PodState,
    Question,
    RayResources,
)
from training_monitor.policy.health import (
    Finding,
    NodeGpus,
    average,
    judge_disk,
    judge_efa,
    judge_gpus,
    judge_pod,
    judge_ray,
    worst_verdict,
)
from training_monitor.policy.restart import why_none_is_complete
from training_monitor.probes.checkpoints import checkpoints_question
from training_monitor.probes.cluster import format_resources_report
from training_monitor.probes.efa import EfaReading, combine_efa_reports, efa_question, format_efa_report
from training_monitor.probes.gpu import gpu_question
from training_monitor.probes.health_job import HealthJob, job_questions, judge_health_job
from training_monitor.probes.host import Disk, disk_question
from training_monitor.probes.pods import list_pods
from training_monitor.probes.ray_jobs import resources_question
from training_monitor.reports import (
    DiskReport,
    HealthCheckpointReport,
    HealthEfaReport,
    HealthGpuReport,
    HealthRayReport,
    HealthReport,
    NodeEfaReport,
    NodeGpuReport,
    PodReport,
)
from training_monitor.store import Store
from training_monitor.targets.asking import ask
from training_monitor.targets.fleet import side_by_side
from training_monitor.targets.target import Target, parse_target
from training_monitor.targets.transport import Transport
from training_monitor.watching import CheckpointListing

Answers = dict[str, Answer[Any]]


@dataclass(slots=True)
class _Seen:
    """All answers, before they are judged."""

    targets: list[Target]
    answers: list[Answers]
    pods: dict[str, PodState] | None
    pods_error: str | None

    def name_of(self, target: Target) -> str:
        """What its node is called in the report: the whole name of a pod, unless another one has the same name."""
        names = [each.name for each in self.targets]
        return target.name if target.kind == "pod" and names.count(target.name) == 1 else str(target)

    def gpus(self) -> list[NodeGpus]:
        """Those of each target; of one that gave no answer at all, `pods` says so."""
        nodes = []
        for target, answers in zip(self.targets, self.answers):
            answer = answers["gpu"]
            table: GpuTable = answer.value[0] if answer.value else GpuTable(())
            error = answer.failure.what if answer.failure else table.error
            has_none = table.has_none or isinstance(answer.failure, ToolNotFound)
            nodes.append(NodeGpus(self.name_of(target), table.gpus, None if _silent(answers) else error, has_none))
        return nodes


def get_training_health(
    head_pod: str | Target,
    checkpoint_dir: str | None,
    all_pods: Sequence[str | Target] | None = None,
    namespace: str = "default",
    *,
    job_id: str | None = None,
    store: Store | None = None,
    transport: Transport | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> HealthReport:
    """Report on GPUs, EFA, checkpoints, Ray, the job, pods and disks; never raises for the outside world.

    Args:
        head_pod: the Ray head, or any target.
        checkpoint_dir: a folder on the head; None: there is none to look at.
        all_pods: every pod to look at, the head among them or not; default: the head alone.
        job_id: also report on this job.
        store: where looks at the job are remembered; default: that of this user.

    Returns:
        See `reports.HealthReport`. `verdict` is ok | warning | failed | unknown, `issues` say what was found and
        `remedies`, one for one, what to do; `silent` names the targets that gave no answer at all. `healthy` is True
        for ok and warning only.
    """
    head = parse_target(head_pod, namespace=namespace)
    others = [parse_target(pod, namespace=namespace) for pod in all_pods or ()]
    targets = [head, *(each for each in dict.fromkeys(others) if each != head)]
    seen = _look(targets, checkpoint_dir, job_id, transport)
    findings: list[Finding] = []
    job_answers = seen.answers[0]
    job = _judge_job(job_id, seen, store, clock.time(), findings) if job_id else None
    report = HealthReport(
        schema=1,
        healthy=False,
        verdict="unknown",
        issues=[],
        remedies=[],
        silent=[seen.name_of(target) for target, answers in zip(targets, seen.answers) if _silent(answers)],
        pods=_pods(seen, findings),
        job=job.report if job else None,
        gpu=_gpus(seen, job, findings),
        efa=_efa(seen, findings),
        ray=_ray(job_answers["resources"], job_id, findings, silent=_silent(job_answers)),
        checkpoints=_checkpoints(job_answers, checkpoint_dir, findings),
        disk=_disks(seen, findings),
    )
    report["verdict"] = worst_verdict(findings)
    report["healthy"] = report["verdict"] in ("ok", "warning")
    report["issues"] = [finding.issue for finding in findings]
    report["remedies"] = [finding.remedy for finding in findings]
    return report


def _look(targets: list[Target], checkpoint_dir: str | None, job_id: str | None, transport: Transport | None) -> _Seen:
    folders = [checkpoint_dir] if checkpoint_dir is not None else []
    everywhere: list[Question[Any]] = [gpu_question(), efa_question(), disk_question("/", "/tmp", *folders)]
    head: list[Question[Any]] = [resources_question(), *map(checkpoints_question, folders)]
    if job_id:
        head += job_questions(job_id)

    def one(target: Target, questions: list[Question[Any]]) -> Answers:
        try:
            return {answer.name: answer for answer in ask(target, *questions, transport=transport)}
        except TrainingMonitorError as error:
            return {question.name: Answer(question.name, None, error) for question in questions}

    pods = [target for target in targets if target.kind == "pod"]
    calls: list[Callable[[], Any]] = [partial(_pod_states, pods, transport)]
    calls += [partial(one, target, everywhere + (head if target == targets[0] else [])) for target in targets]
    results: list[Any] = side_by_side(calls)
    states, answers = results[0], results[1:]
    if isinstance(states, TrainingMonitorError):
        return _Seen(targets, answers, None, str(states))
    return _Seen(targets, answers, states, None)


def _pod_states(targets: list[Target], transport: Transport | None) -> dict[str, PodState]:
    groups: dict[tuple[str | None, str | None], list[str]] = {}
    for target in targets:
        groups.setdefault((target.namespace, target.context), []).append(target.name)
    found: dict[str, PodState] = {}
    for (namespace, context), names in groups.items():
        for pod in list_pods(namespace or "default", *names, context=context, transport=transport):
            found[f"{namespace}/{pod.name}"] = pod
    return found


def _pods(seen: _Seen, findings: list[Finding]) -> list[PodReport]:
    reports = []
    for target, answers in zip(seen.targets, seen.answers):
        failure = answers["gpu"].failure if _silent(answers) else None
        if target.kind != "pod":
            if failure:
                findings.append(
                    Finding("unknown", f"{target} could not be asked: {failure.what}", failure.hint or "try again")
                )
            continue
        pod = (seen.pods or {}).get(f"{target.namespace}/{target.name}")
        gone = (seen.pods is not None and pod is None) or isinstance(failure, TargetNotFound)
        if gone or pod:
            findings += judge_pod(target.name, pod)
        if failure and not gone:
            findings.append(
                Finding("unknown", f"pod {target.name} could not be asked: {failure.what}", failure.hint or "try again")
            )
        reports.append(
            PodReport(
                pod=target.name,
                phase=pod.phase if pod else None,
                ready=pod.ready if pod else None,
                restarts=pod.restarts if pod else None,
                node=pod.node if pod else None,
                reason=pod.reason if pod else None,
                error="there is no such pod" if gone else str(failure) if failure else seen.pods_error,
            )
        )
    return reports


def _silent(answers: Answers) -> bool:
    """The target as a whole gave no answer: every question has the very same failure."""
    return len({id(answer.failure) for answer in answers.values()}) == 1 and answers["gpu"].failure is not None


def _judge_job(job_id: str, seen: _Seen, store: Store | None, now: float, findings: list[Finding]) -> HealthJob:
    answers, gpus = seen.answers[0], [gpu for node in seen.gpus() for gpu in node.gpus]
    job = judge_health_job(seen.targets[0], job_id, answers, gpus, store, now)
    if job.seen is not None or not _silent(answers):  # of a head that gave no answer at all, `pods` says so
        findings += job.findings
    return job


def _gpus(seen: _Seen, job: HealthJob | None, findings: list[Finding]) -> HealthGpuReport:
    nodes = seen.gpus()
    in_pods = any(target.kind == "pod" for target in seen.targets)
    findings += judge_gpus(nodes, job.seen if job else None, job.verdict if job else None, in_pods=in_pods)
    all_gpus = [gpu for node in nodes for gpu in node.gpus]
    return HealthGpuReport(
        total_gpus=len(all_gpus) if all_gpus else None,
        avg_utilization=average(gpu.utilization for gpu in all_gpus),
        per_node=[_node_report(node, answers["gpu"]) for node, answers in zip(nodes, seen.answers)],
    )


def _node_report(node: NodeGpus, answer: Answer[Any]) -> NodeGpuReport:
    return NodeGpuReport(
        pod=node.node,
        util=average(gpu.utilization for gpu in node.gpus),
        mem_used=_sum(gpu.memory_used_mb for gpu in node.gpus),
        mem_total=_sum(gpu.memory_total_mb for gpu in node.gpus),
        power_draw=_sum(gpu.power_draw_watts for gpu in node.gpus),
        gpu_count=len(node.gpus) if node.gpus else None,
        error=answer.error or node.error,
        problem=answer.failure.what if answer.failure else node.error,
    )


def _sum(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


_TRANSPORTS = {"ofi": "ofi (EFA)", "socket": "socket (TCP fallback)", "ib": "ib (InfiniBand)"}


def _efa(seen: _Seen, findings: list[Finding]) -> HealthEfaReport:
    readings: list[tuple[Target, EfaReading]] = [
        (target, answers["efa"].value) for target, answers in zip(seen.targets, seen.answers) if answers["efa"].value
    ]
    nodes = [NodeEfaReport(pod=seen.name_of(target), **format_efa_report(reading)) for target, reading in readings]
    findings += judge_efa([node["efa_active"] for node in nodes], sum(reading.devices for _, reading in readings))
    found = combine_efa_reports(nodes) if nodes else None
    silent = found is not None and not any(reading.transport.evidence for _, reading in readings)
    name = found["transport"] if found else "unknown"
    transport = "no NCCL logs yet" if silent and name == "unknown" else _TRANSPORTS.get(name, name)
    channels = sum(reading.channels for _, reading in readings)
    return HealthEfaReport(
        active=found["efa_active"] if found else None,
        transport=transport,
        channels=f"{channels} channels via NET/OFI" if channels and name == "ofi" else None,
        per_node=nodes,
    )


def _ray(answer: Answer[RayResources], job_id: str | None, findings: list[Finding], *, silent: bool) -> HealthRayReport:
    found = format_resources_report(answer.value, answer.error)
    if answer.value:
        findings += judge_ray(answer.value)
    elif answer.failure and not silent and job_id and not job_id.startswith("process:"):
        said = f"Ray could not be asked: {answer.failure.what}"
        findings.append(Finding("unknown", said, answer.failure.hint or "is this the head pod?"))
    return HealthRayReport(
        gpus_used=found["gpus_used"],
        gpus_available=found["gpus_available"],
        cpus_used=found["cpus_used"],
        cpus_available=found["cpus_available"],
        pending_demands=found["pending_demands"],
        error=found["error"],
        problem=answer.failure.what if answer.failure else None,
    )


def _checkpoints(answers: Answers, directory: str | None, findings: list[Finding]) -> HealthCheckpointReport:
    """Those of the folder that was named; of a head that gave no answer at all, `pods` says so."""
    if directory is None:
        return HealthCheckpointReport(
            latest_step=None,
            latest_path=None,
            checkpoint_count=None,
            checkpoint_dir=None,
            not_looked_at=None,
            refused=[],
            error="no folder was named",
        )
    answer: Answer[CheckpointListing | None] = answers["checkpoints"]
    silent, found = _silent(answers), answer.value or CheckpointListing(())
    latest = found.newest_complete
    bad = [each for each in found.checkpoints if each.complete is False]
    if answer.known and answer.value is None:
        findings.append(
            Finding("warning", f"there is no folder {directory}", "check the path; the first save may still make it")
        )
    elif answer.failure and not silent:
        findings.append(
            Finding(
                "unknown",
                f"checkpoints in {directory} could not be listed: {answer.failure.what}",
                "check the path and its permissions on the head",
            )
        )
    elif found.count and not latest:
        verdict, remedy = "failed", "a restart could not resume: look at the disk's space and the last save"
        if found.unknown:
            verdict, remedy = "unknown", f"`training-monitor checkpoints TARGET {directory}` looks further back"
        findings.append(Finding(verdict, f"{directory}: {why_none_is_complete(found)}", remedy))
    elif bad and latest and bad[-1].step > latest.step:
        findings.append(
            Finding(
                "warning",
                f"the newest checkpoint (step {bad[-1].step}) is not complete: {bad[-1].problem}",
                f"a restart would resume from step {latest.step}",
            )
        )
    return HealthCheckpointReport(
        latest_step=latest.step if latest else None,
        latest_path=latest.path if latest else None,
        checkpoint_count=found.count if answer.known else None,
        checkpoint_dir=directory,
        not_looked_at=found.unknown if answer.known else None,
        refused=[{"path": each.path, "step": each.step, "problem": each.problem} for each in bad],
        error=answer.error,
    )


def _disks(seen: _Seen, findings: list[Finding]) -> list[DiskReport]:
    reports = []
    for target, answers in zip(seen.targets, seen.answers):
        disks: tuple[Disk, ...] = answers["disk"].value or ()
        for disk in disks:
            findings += judge_disk(seen.name_of(target), disk.path, disk.used_percent)
            reports.append(
                DiskReport(
                    pod=seen.name_of(target),
                    path=disk.path,
                    free_bytes=disk.free_bytes,
                    used_percent=round(disk.used_percent, 1),
                    error=None,
                )
            )
        if not disks:
            reports.append(
                DiskReport(
                    pod=seen.name_of(target), path="", free_bytes=None, used_percent=None, error=answers["disk"].error
                )
            )
    return reports
