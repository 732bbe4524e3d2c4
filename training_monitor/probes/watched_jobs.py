"""What there is to know of a watched job, in one round trip: its process, its log, its GPUs, its checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from training_monitor.errors import JobNotFound
from training_monitor.models import (
    Answer,
    Checkpoint,
    GpuProcess,
    GpuTable,
    JobStatus,
    JobView,
    LogCursor,
    NewLog,
    Question,
)
from training_monitor.probes.checkpoints import checkpoints_question
from training_monitor.probes.gpu import gpu_question
from training_monitor.probes.jobs import is_process_job, look_questions, read_look
from training_monitor.probes.logs import FIRST_BYTES, LIMIT_BYTES, log_question_of
from training_monitor.probes.pid_files import ProcessIdentity, ProcessView, process_question
from training_monitor.probes.process_jobs import log_expression as process_log
from training_monitor.probes.ray_jobs import log_expression as ray_log
from training_monitor.targets.asking import quote_path
from training_monitor.watching import WatchedJob


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a watched job; None is not known. `log` is what is new in it.

    Of a job with an id, `view` is all that was asked; of one with files, `process`. GPUs are those its processes are
    on, or all where that is not known: `gpu_utilization` in per cent, `gpu_power` drawn over its limit.
    """

    view: JobView | None = None
    process: ProcessView | None = None
    log: NewLog | None = None
    checkpoints: tuple[Checkpoint, ...] | None = None
    gpu_utilization: float | None = None
    gpu_power: float | None = None
    errors: tuple[str, ...] = ()

    @property
    def log_tail(self) -> str:
        """The end of the log of a job with an id."""
        return self.view.log_tail if self.view else ""

    @property
    def message(self) -> str | None:
        """What is said of the job, its process, or why nothing is known of it."""
        if self.view or not self.process:
            return self.view.message if self.view else None
        running = self.process.running and self.process.identity
        return f"pid {running.pid}: {self.process.command}" if running else self.process.reason

    @property
    def is_running(self) -> bool | None:
        if self.view:
            return None if self.view.status is JobStatus.UNKNOWN else not self.view.status.is_terminal
        return self.process.running if self.process else None


def log_expression(job: WatchedJob) -> str:
    """The job's log file as a shell expression."""
    if job.log_file is not None:
        return quote_path(job.log_file)
    assert job.job_id
    return process_log(job.job_id) if is_process_job(job.job_id) else ray_log(job.job_id)


def watch_questions(
    job: WatchedJob, cursor: LogCursor | None, known: ProcessIdentity | None, *, with_log: bool
) -> list[Question[Any]]:
    """What `read_watch` needs to know; `with_log` asks for what the log has behind `cursor`."""
    questions: list[Question[Any]] = [gpu_question(8.0)]
    if with_log:
        path = job.log_file or job.job_id or ""
        questions.append(log_question_of(log_expression(job), path, cursor, LIMIT_BYTES if cursor else FIRST_BYTES))
    if job.output_dir is not None:
        questions.append(checkpoints_question(job.output_dir))
    if job.job_id is not None:
        return questions + look_questions(job.job_id)
    log = log_expression(job) if job.pid_file is None else None
    return [*questions, process_question(job.pid_file, log, known)]


def read_watch(job: WatchedJob, answers: Sequence[Answer[Any]], *, with_log: bool) -> Look:
    """The look out of its answers. Raises JobNotFound, and what kept us from asking for the job or its log."""
    rest = list(answers)
    gpus = rest.pop(0)
    log = rest.pop(0) if with_log else None
    checkpoints = rest.pop(0) if job.output_dir is not None else None
    errors = [str(each.failure) for each in (checkpoints,) if each and each.failure]
    view, process = None, None
    if job.job_id is not None:
        view = read_look(job.job_id, rest)
        if view is None:
            raise JobNotFound(
                f"there is no job {job.job_id!r}", hint="training-monitor status TARGET lists what is there"
            )
    else:
        process = _of(rest[0], errors)
    pids = process.pids if process else ()
    table, on_gpus = gpus.value or (GpuTable(()), ())
    utilization, power = gpu_load(table, on_gpus, pids)
    found = checkpoints.value if checkpoints else None
    return Look(
        view,
        process,
        log.get() if log else None,
        None if checkpoints is None or checkpoints.failure else tuple(found or ()),
        utilization,
        power,
        tuple(errors),
    )


def _of(answer: Answer[Any], errors: list[str]) -> Any:
    """Its value; what kept us from it goes to the errors."""
    if answer.failure:
        errors.append(str(answer.failure))
    return answer.value


def gpu_load(
    table: GpuTable, processes: Sequence[GpuProcess], pids: Sequence[int]
) -> tuple[float | None, float | None]:
    """(mean utilization in per cent, mean power over its limit) of the GPUs that `pids` are on, or else of all."""
    mine = {each.gpu_uuid for each in processes if each.pid in pids and each.gpu_uuid}
    gpus = [gpu for gpu in table.gpus if not mine or gpu.uuid in mine]
    used = [gpu.utilization for gpu in gpus if gpu.utilization is not None]
    power = [
        gpu.power_draw_watts / gpu.power_limit_watts for gpu in gpus if gpu.power_draw_watts and gpu.power_limit_watts
    ]
    return (mean(used) if used else None, mean(power) if power else None)
