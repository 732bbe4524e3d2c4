"""The job of a health report: one look at it, judged with all that was seen of it before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from training_monitor.errors import TrainingMonitorError
from training_monitor.looks import Looks, look_key
from training_monitor.models import Answer, Gpu, JobView, Progress, Question
from training_monitor.policy.health import Finding, judge_job
from training_monitor.policy.job_progress import job_progress
from training_monitor.policy.judge import judge
from training_monitor.policy.observing import observe_job
from training_monitor.probes.evidence import SAMPLE_SECONDS, evidence_question, pids_of_process_job
from training_monitor.probes.jobs import is_process_job, look_questions, read_look
from training_monitor.probes.ray_processes import pids_of_ray_job
from training_monitor.reports import JobReport
from training_monitor.store import Store
from training_monitor.targets.target import Target
from training_monitor.verdicts import Observation, Verdict
from training_monitor.watching import WatchedJob


@dataclass(frozen=True, slots=True)
class HealthJob:
    """What is told of the job, what was seen of it (None where it could not be asked) and what the judge says."""

    report: JobReport
    verdict: Verdict
    findings: Sequence[Finding]
    seen: Observation | None = None


def job_questions(job_id: str) -> list[Question[Any]]:
    """What `judge_health_job` needs to know."""
    roots = pids_of_process_job(job_id) if is_process_job(job_id) else pids_of_ray_job(job_id)
    return [*look_questions(job_id), evidence_question(roots, SAMPLE_SECONDS)]


def judge_health_job(
    target: Target,
    job_id: str,
    answers: Mapping[str, Answer[Any]],
    gpus: Sequence[Gpu],
    store: Store | None,
    now: float,
) -> HealthJob:
    """Judge a job by the answers to `job_questions`, the GPUs of all nodes, and what was seen of it before."""
    try:
        view = read_look(job_id, [answers[question.name] for question in look_questions(job_id)])
    except TrainingMonitorError as failure:
        verdict = Verdict("unknown", "unknown", f"could not be asked: {failure.what}")
        found = Finding("unknown", f"job {job_id} {verdict.reason}", failure.hint or "try again")
        return HealthJob(_report(job_id, None, verdict, str(failure)), verdict, [found])
    if view is None:
        verdict = Verdict("unknown", "failed", f"there is no job {job_id}")
        found = Finding("failed", verdict.reason, "ray job list in the head pod shows what there is")
        return HealthJob(_report(job_id, None, verdict), verdict, [found])
    saved = answers["checkpoints"].value if "checkpoints" in answers else None
    checkpoints = saved.checkpoints if saved else ()
    seen = observe_job(view, now, gpus=gpus, checkpoints=checkpoints, evidence=answers["evidence"].value)
    looks = _looks(target, job_id, store)
    looks.add(seen)
    verdict = judge(looks.all(), now=now)
    return HealthJob(_report(job_id, view, verdict), verdict, judge_job(job_id, verdict), seen)


def _looks(target: Target, job_id: str, store: Store | None) -> Looks:
    """What was seen of the job before; nothing where that cannot be kept, which is no fault of the job."""
    try:
        return Looks(store or Store(), look_key(target, WatchedJob(job_id=job_id), None))
    except TrainingMonitorError:
        return Looks()


def _report(job_id: str, view: JobView | None, verdict: Verdict, error: str | None = None) -> JobReport:
    progress = view.progress if view else Progress()
    job = job_progress(progress)
    return JobReport(
        job_id=job_id,
        status=view.status.value if view else "UNKNOWN",
        message=view.message if view else None,
        step=job.step,
        total_steps=job.total_steps,
        loss=progress.loss,
        log_age=view.log_age if view else None,
        error=error,
        state=verdict.state,
        verdict=verdict.verdict,
        reason=verdict.reason,
    )
