"""One report on everything that a training needs: one exec per pod, pods side by side, one verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from training_monitor.checkpoints.checkpoints import checkpoints_question
from training_monitor.core.best_effort_store import BestEffortStore
from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.envelope import schema_name
from training_monitor.core.errors import TargetEnded, TargetNotFound, TargetWaits, ToolNotFound, TrainingMonitorError
from training_monitor.core.models import Answer, Gpu, GpuTable, JobView, Progress, Question, RayResources
from training_monitor.core.reports import (
    DiskReport,
    HealthCheckpointReport,
    HealthEfaReport,
    HealthGpuReport,
    HealthRayReport,
    HealthReport,
    JobReport,
    NodeEfaReport,
    NodeGpuReport,
    OneGpuReport,
    PodReport,
    report_of,
)
from training_monitor.core.results import PodState
from training_monitor.core.store import Store
from training_monitor.core.units import average, known_sum
from training_monitor.core.values import CheckpointListing, Observation, Verdict, WatchedJob
from training_monitor.jobs.jobs import is_ray_job, look_questions, read_look, why_log_unread
from training_monitor.jobs.ray_jobs import resources_question
from training_monitor.logs.job_progress import job_progress
from training_monitor.look.cluster import format_resources_report
from training_monitor.look.evidence import SAMPLE_SECONDS, Evidence, evidence_question
from training_monitor.look.health_verdict import (
    Finding,
    NodeGpus,
    format_training_health,
    judge_disk,
    judge_efa,
    judge_gpus,
    judge_job,
    judge_pod,
    judge_ray,
    worst_verdict,
)
from training_monitor.look.host import Disk, disk_question, gpu_question
from training_monitor.look.kept_looks import Looks, look_key
from training_monitor.look.looks import Look, observation_of, pids_of_job
from training_monitor.look.meant import reach
from training_monitor.look.nccl import EfaReading, combine_efa_reports, efa_question, format_efa_report
from training_monitor.targets.asking import Site, side_by_side
from training_monitor.targets.pods import ENDED, is_stuck
from training_monitor.targets.target import Target, parse_target
from training_monitor.targets.transport import Transport
from training_monitor.verdict.judge import judge, not_seen

Answers = dict[str, Answer[Any]]
HEALTH_SECONDS = 30.0


@dataclass(slots=True)
class _Seen:
    """All answers, before they are judged."""

    targets: list[Target]
    answers: list[Answers]
    pods: dict[object, PodState] | None
    pods_error: str | None

    def name_of(self, target: Target) -> str:
        """Return the name of a target in the report: the name of its pod if that is unique, else the whole target."""
        names = [each.name for each in self.targets]
        return target.name if target.cluster and names.count(target.name) == 1 else str(target)

    def gpus(self) -> list[NodeGpus]:
        """Return the GPUs of each target; a target that gave no answer at all is reported under `pods`."""
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
    timeout: float = HEALTH_SECONDS,
    store: Store | None = None,
    transport: Transport | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> HealthReport:
    """Report the health of GPUs, EFA, checkpoints, Ray, a job, pods and disks.

    If the target cannot be queried, no exception is raised.

    Args:
        head_pod: the Ray head, or any other target.
        checkpoint_dir: a folder on the head; None: checkpoints are not reported.
        all_pods: all pods to inspect; the head may be omitted; default: only the head.
        job_id: a job to report on, by its ID or a name (see `find_ray_job`).
        timeout: maximum seconds for all queries together. Anything that could not be read within this time is reported
            as unknown.
        store: where observations of the job are stored; default: this user's store.

    Returns:
        A `reports.HealthReport`. `verdict` is ok | warning | failed | unknown, and `healthy` is True for ok and warning
        only. `issues` lists the problems, and `remedies` has one remedy for each issue. `silent` lists the targets that
        did not respond at all.
    """
    head = parse_target(head_pod, namespace=namespace)
    others = [parse_target(pod, namespace=namespace) for pod in all_pods or ()]
    targets = [head, *(each for each in dict.fromkeys(others) if each != head)]
    sites = [Site(target, transport).within(timeout) for target in targets]
    seen = _look(sites, checkpoint_dir, job_id)
    asked = seen.answers[0].get("job")
    if job_id and asked and asked.known and asked.value is None and is_ray_job(job_id):
        from training_monitor.jobs.names import find_ray_job

        with suppress(TrainingMonitorError):
            job_id = find_ray_job(sites[0], job_id)
            seen = _look(sites, checkpoint_dir, job_id)
    findings: list[Finding] = []
    job_answers = seen.answers[0]
    job = _judge_job(job_id, seen, store, clock.time(), findings) if job_id else None
    parts = {  # which add to the findings
        "pods": _pods(seen, clock.time(), findings),
        "job": job.report if job else None,
        "gpu": _gpus(seen, job, findings),
        "efa": _efa(seen, findings),
        "ray": _ray(job_answers["resources"], job_id, findings, silent=_silent(job_answers)),
        "checkpoints": _checkpoints(job_answers, checkpoint_dir, findings),
        "disk": _disks(seen, findings),
    }
    verdict = worst_verdict(findings)
    return report_of(
        HealthReport,
        parts,
        schema=schema_name("health"),
        healthy=verdict in ("ok", "warning"),
        verdict=verdict,
        issues=[finding.issue for finding in findings],
        remedies=[finding.remedy for finding in findings],
        silent=[seen.name_of(target) for target, answers in zip(targets, seen.answers) if _silent(answers)],
    )


def _look(sites: list[Site], checkpoint_dir: str | None, job_id: str | None) -> _Seen:
    folders = [checkpoint_dir] if checkpoint_dir is not None else []
    everywhere: list[Question[Any]] = [gpu_question(), efa_question(), disk_question("/", "/tmp", *folders)]
    head: list[Question[Any]] = [resources_question(), *map(checkpoints_question, folders)]
    if job_id:
        head += job_questions(job_id)

    def one(site: Site, questions: list[Question[Any]]) -> Answers:
        try:
            return {answer.name: answer for answer in site.ask(*questions)}
        except TrainingMonitorError as error:
            return {question.name: Answer(question.name, None, error) for question in questions}

    asked = [everywhere + (head if site is sites[0] else []) for site in sites]
    calls: list[Callable[[], Any]] = [partial(one, site, questions) for site, questions in zip(sites, asked)]
    listing: Callable[[], Any] = partial(_pod_states, [site for site in sites if site.target.cluster])
    pods, *found = side_by_side([listing, *calls])
    answers: list[Any] = found  # `one` raises nothing
    if isinstance(pods, TrainingMonitorError):
        return _Seen([site.target for site in sites], answers, None, str(pods))
    targets, others = [], list[int]()
    for number, site in enumerate(sites):
        pod = pods.get(site.target.host)
        targets.append(site.target.as_listed(pod) if pod else site.target)
        is_other = targets[-1] != site.target and pod and pod.main_container != pod.default_container
        if is_other or targets[-1].may_be:
            others.append(number)  # what answered was not the container that is meant, or may not have been

    def again(number: int) -> tuple[Target, Answers]:
        site = reach(sites[number].at(targets[number]))
        return site.target, one(site, asked[number])

    for number, reached in zip(others, side_by_side([partial(again, number) for number in others])):
        if not isinstance(reached, TrainingMonitorError):
            targets[number], answers[number] = reached
    return _Seen(targets, answers, pods, None)


def _pod_states(sites: list[Site]) -> dict[object, PodState]:
    groups: dict[object, list[Site]] = {}
    for site in sites:
        groups.setdefault(site.target.cluster, []).append(site)
    found: dict[object, PodState] = {}
    for [first, *rest] in groups.values():
        names = [site.target.name for site in (first, *rest)]
        for pod in first.target.list_pods(*names, transport=first.transport):
            found[first.target.beside(pod.name).host] = pod
    return found


def _pods(seen: _Seen, now: float, findings: list[Finding]) -> list[PodReport]:
    reports = []
    for target, answers in zip(seen.targets, seen.answers):
        failure = answers["gpu"].failure if _silent(answers) else None
        name, pod = target.name, (seen.pods or {}).get(target.host) if target.cluster else None
        is_missing = (seen.pods is not None and pod is None) or isinstance(failure, TargetNotFound)
        gone = bool(target.cluster) and is_missing
        waits = pod is not None and isinstance(failure, TargetWaits)
        if gone or pod:
            findings += (
                each._replace(verdict="unknown") if waits and each.verdict == "warning" else each
                for each in judge_pod(name, pod, now)
            )
        stands = failure.pod if isinstance(failure, TargetEnded | TargetWaits) else None
        if failure and stands and not target.cluster:
            from training_monitor.notify.notice_text import command_line  # few targets end

            has_failed, remedy = stands.phase == "Failed" or is_stuck(stands), failure.hint or "wait until it starts"
            if stands.phase in ENDED or is_stuck(stands):
                remedy = f"run {command_line('logs', str(target))} to see the end of its log"
            verdict = "failed" if has_failed else "unknown" if stands.phase == "Pending" else "warning"
            findings.append(Finding(verdict, failure.what, remedy))
        elif failure and not (gone or waits or isinstance(failure, TargetEnded)):
            said = f"{f'pod {name}' if target.cluster else target} could not be queried: {failure.what}"
            findings.append(Finding("unknown", said, failure.hint or "try again"))
        if target.cluster:
            error = "no such pod exists" if gone else str(failure) if failure else seen.pods_error
            reports.append(report_of(PodReport, pod, pod=name, error=error))
    return reports


def _silent(answers: Answers) -> bool:
    """Return whether the target gave no answer at all: every question has the very same failure."""
    return len({id(answer.failure) for answer in answers.values()}) == 1 and answers["gpu"].failure is not None


def _judge_job(job_id: str, seen: _Seen, store: Store | None, now: float, findings: list[Finding]) -> HealthJob:
    answers, gpus = seen.answers[0], [gpu for node in seen.gpus() for gpu in node.gpus]
    job = judge_health_job(seen.targets[0], job_id, answers, gpus, store, now)
    if job.seen is not None or not _silent(answers):  # `pods` reports a head that gave no answer at all
        findings += job.findings
    return job


def _gpus(seen: _Seen, job: HealthJob | None, findings: list[Finding]) -> HealthGpuReport:
    nodes = seen.gpus()
    in_pods = any(target.cluster for target in seen.targets)
    if not all(map(_silent, seen.answers)):  # `pods` reports each of them
        findings += judge_gpus(nodes, job.seen if job else None, job.verdict if job else None, in_pods=in_pods)
    all_gpus = [gpu for node in nodes for gpu in node.gpus]
    return HealthGpuReport(
        total_gpus=len(all_gpus) if all_gpus else None,
        avg_utilization=average(gpu.utilization for gpu in all_gpus),
        lowest_utilization=min((gpu.utilization for gpu in all_gpus if gpu.utilization is not None), default=None),
        per_node=[_node_report(node, answers["gpu"]) for node, answers in zip(nodes, seen.answers)],
    )


def _node_report(node: NodeGpus, answer: Answer[Any]) -> NodeGpuReport:
    return NodeGpuReport(
        pod=node.node,
        util=average(gpu.utilization for gpu in node.gpus),
        mem_used=known_sum(gpu.memory_used_mb for gpu in node.gpus),
        mem_total=known_sum(gpu.memory_total_mb for gpu in node.gpus),
        power_draw=known_sum(gpu.power_draw_watts for gpu in node.gpus),
        gpu_count=len(node.gpus) if node.gpus else None,
        gpus=[
            OneGpuReport(
                index=gpu.index,
                util=gpu.utilization,
                mem_used=gpu.memory_used_mb,
                mem_total=gpu.memory_total_mb,
                power_draw=gpu.power_draw_watts,
            )
            for gpu in node.gpus
        ],
        error=answer.error or node.error,
        problem=answer.failure.what if answer.failure else node.error,
    )


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
        said = f"Ray could not be queried: {answer.failure.what}"
        findings.append(Finding("unknown", said, answer.failure.hint or "check that this is the head pod"))
    return report_of(HealthRayReport, found, problem=answer.failure.what if answer.failure else None)


def _checkpoints(answers: Answers, directory: str | None, findings: list[Finding]) -> HealthCheckpointReport:
    """Report on the checkpoints in the named folder; `pods` reports a head that gave no answer at all."""
    if directory is None:
        return report_of(HealthCheckpointReport, None, refused=[], error="no checkpoint folder was specified")
    answer: Answer[CheckpointListing | None] = answers["checkpoints"]
    silent, found = _silent(answers), answer.value or CheckpointListing(())
    latest = found.newest_complete
    bad = [each for each in found.checkpoints if each.complete is False]
    if answer.known and answer.value is None:
        findings.append(
            Finding(
                "warning", f"no folder {directory}", "check the path; the folder may not exist before the first save"
            )
        )
    elif answer.failure and not silent:
        findings.append(
            Finding(
                "unknown",
                f"checkpoints in {directory} could not be listed: {answer.failure.what}",
                "check the path and its permissions in the head pod",
            )
        )
    elif found.count and not latest:
        verdict, remedy = (
            "failed",
            "a restart could not resume from any checkpoint: check the free disk space, and find out why the last "
            "save is incomplete",
        )
        if found.unknown:
            verdict, remedy = "unknown", "list all checkpoints: an older one may be complete"
        findings.append(Finding(verdict, f"{directory}: {found.why_none_is_complete}", remedy))
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
        name = seen.name_of(target)
        for disk in disks:
            findings += judge_disk(name, disk.path, disk.used_percent, disk.free_bytes)
            used = round(disk.used_percent, 1)
            reports.append(report_of(DiskReport, disk, pod=name, used_percent=used, error=None))
        if not disks:
            reports.append(report_of(DiskReport, None, pod=name, path="", error=answers["disk"].error))
    return reports


class HealthJob(NamedTuple):
    """The report on the job, the verdict on it, and the observation (None where it could not be asked)."""

    report: JobReport
    verdict: Verdict
    findings: Sequence[Finding]
    seen: Observation | None = None


def job_questions(job_id: str) -> list[Question[Any]]:
    """Return the questions whose answers `judge_health_job` needs."""
    return [*look_questions(job_id), evidence_question(pids_of_job(job_id), SAMPLE_SECONDS)]


def judge_health_job(
    target: Target,
    job_id: str,
    answers: Mapping[str, Answer[Any]],
    gpus: Sequence[Gpu],
    store: Store | None,
    now: float,
) -> HealthJob:
    """Judge a job by the answers to `job_questions`, the GPUs of all nodes, and earlier observations."""
    asked = [answers[question.name] for question in look_questions(job_id)]
    try:
        view = read_look(job_id, asked)
    except TrainingMonitorError as failure:
        verdict = not_seen(f"could not be queried: {failure.what}")
        found = Finding("unknown", f"job {job_id} {verdict.reason}", failure.hint or "try again")
        return HealthJob(_report(job_id, None, verdict, str(failure)), verdict, [found])
    if view is None:
        verdict = Verdict("unknown", "failed", f"no job {job_id}")
        found = Finding("failed", verdict.reason, "run `status` in a shell, or list_jobs, to see the jobs")
        return HealthJob(_report(job_id, None, verdict), verdict, [found])
    if not view.status.is_terminal and (unread := why_log_unread(view, asked)):
        verdict = not_seen(f"its log could not be read: {unread.what}")
        found = Finding("unknown", f"job {job_id}: {verdict.reason}", unread.hint or "try again")
        return HealthJob(_report(job_id, view, verdict, str(unread)), verdict, [found])
    saved = answers["checkpoints"].value if "checkpoints" in answers else None
    checkpoints = saved.checkpoints if saved else ()
    evidence: Evidence = answers["evidence"].value or Evidence()
    look = Look(view, gpus=tuple(gpus), checkpoints=checkpoints, evidence=evidence)
    seen = observation_of(look, view.progress, view.log_tail, now, first=True)
    looks = Looks(store or BestEffortStore(), look_key(target, WatchedJob(job_id=job_id), None))
    looks.add(seen)
    verdict = judge(looks.all(), now=now)
    return HealthJob(_report(job_id, view, verdict), verdict, judge_job(job_id, verdict), seen)


def _report(job_id: str, view: JobView | None, verdict: Verdict, error: str | None = None) -> JobReport:
    progress = view.progress if view else Progress()
    return report_of(
        JobReport,
        view,
        progress,
        job_progress(progress),
        verdict,
        job_id=job_id,
        status=view.status.value if view else "UNKNOWN",
        error=error,
    )


def print_training_health(report: HealthReport) -> None:
    """Print a report of `get_training_health` to stdout."""
    print(format_training_health(report))
