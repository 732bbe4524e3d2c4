"""One fact of a job at a time: its status, its log, its step, its speed."""

from __future__ import annotations

from training_monitor.errors import JobNotFound, TrainingMonitorError
from training_monitor.models import JobStatus, JobView
from training_monitor.policy.job_progress import job_progress
from training_monitor.probes.jobs import look_questions, read_look
from training_monitor.targets.asking import ask
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport


def check_job_status(
    head_pod: str | Target, job_id: str, namespace: str = "default", *, transport: Transport | None = None
) -> str:
    """PENDING, RUNNING, STOPPED, SUCCEEDED, FAILED, or UNKNOWN when the job is not there or could not be asked."""
    try:
        [answer, *_] = ask(head_pod, look_questions(job_id)[0], namespace=namespace, transport=transport)
        found = answer.get()
    except TrainingMonitorError as error:
        if isinstance(error, ValueError):
            raise
        return JobStatus.UNKNOWN.value
    return JobStatus.UNKNOWN.value if found is None else str(found.status)


def get_job_logs(
    head_pod: str | Target,
    job_id: str,
    tail: int = 100,
    namespace: str = "default",
    *,
    transport: Transport | None = None,
) -> str:
    """The last `tail` lines of a job's log, at most its last 64 KiB; '' when it has written none yet.

    Raises:
        JobNotFound: there is no such job.
        CommandError: it could not be asked.
    """
    lines = look_with_log(head_pod, job_id, namespace, transport).log_tail.splitlines(keepends=True)
    return "".join(lines[-tail:] if tail > 0 else [])


def look_with_log(
    head_pod: str | Target, job_id: str, namespace: str = "default", transport: Transport | None = None
) -> JobView:
    """A look that is worth nothing without the log. Raises like `look_at_job`, and what kept us from the log."""
    answers = ask(head_pod, *look_questions(job_id), namespace=namespace, transport=transport)
    view = read_look(job_id, answers)
    if view is None:
        raise JobNotFound(f"{head_pod}: there is no job {job_id!r}")
    answers[-1].get()
    return view


def get_current_step(
    head_pod: str | Target, job_id: str, namespace: str = "default", *, transport: Transport | None = None
) -> int | None:
    """The newest step in a job's log, over all epochs; None before the first. Raises like `get_job_logs`."""
    return job_progress(look_with_log(head_pod, job_id, namespace, transport).progress).step


def get_throughput(
    head_pod: str | Target, job_id: str, namespace: str = "default", *, transport: Transport | None = None
) -> float | None:
    """The newest speed in a job's log: steps per second, else samples, else tokens per second; None if it has none."""
    progress = look_with_log(head_pod, job_id, namespace, transport).progress
    speeds = (progress.steps_per_second, progress.samples_per_second, progress.tokens_per_second)
    return next((speed for speed in speeds if speed is not None), None)
