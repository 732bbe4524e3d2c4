"""Look at a watched job in one round trip (process, log, GPUs, checkpoints) and turn the look into an observation."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from training_monitor.core.errors import CommandFailed, Hint, JobNotFound, TargetEnded, TargetWaits
from training_monitor.core.fields import shared_fields
from training_monitor.core.models import (
    Answer,
    Checkpoint,
    Failure,
    Gpu,
    GpuProcess,
    GpuTable,
    JobStatus,
    JobView,
    LogCursor,
    NewLog,
    Progress,
    Question,
    Reply,
)
from training_monitor.core.results import PodState
from training_monitor.core.units import format_local, is_same_speed, seconds_since
from training_monitor.core.values import CheckpointListing, Observation, WatchedJob
from training_monitor.jobs.jobs import is_ray_job, look_questions, read_look, said_by
from training_monitor.jobs.kinds import kind_of
from training_monitor.jobs.process_jobs import ProcessView, process_question
from training_monitor.jobs.ray_jobs import log_expression as ray_log, pids_of_ray_job
from training_monitor.logs.events import find_phase
from training_monitor.logs.following import FIRST_BYTES, LIMIT_BYTES, FileSource, newest_of
from training_monitor.logs.job_progress import EpochCount, job_progress
from training_monitor.logs.pace import LogPace, find_heartbeat, read_log_pace
from training_monitor.logs.sources import OUTPUT, Source, place_of, source_named
from training_monitor.logs.training_log import parse_progress, read_progress
from training_monitor.look.evidence import (
    SAMPLE_SECONDS,
    Evidence,
    evidence_question,
    file_age_question,
    pids_of,
    pids_of_log,
    pids_of_pid_file,
)
from training_monitor.look.find_trainings import find_question
from training_monitor.look.host import GPU_SECONDS, gpu_question
from training_monitor.targets.asking import Site, quote_path
from training_monitor.targets.pods import describe_end, is_stuck
from training_monitor.targets.proc_stat import Identity
from training_monitor.targets.scripts import format_call
from training_monitor.verdict.gpu_load import gpu_load

_STARTED_WITHIN = 60.0  # seconds after its log was prepared within which a process begins
FRESH_SECONDS = 60.0  # a log of unknown writer that is older than this is searched for how the training ended


def failure_of(view: JobView) -> Failure:
    """Return why a job failed: by its log and exit code, or else by the target's message."""
    failure = _classify(view.log_tail, view.exit_code, view.pod)
    if failure.category in ("none", "unknown"):
        by_message = _classify((view.pod is None and is_ray_job(view.job_id) and view.message) or "")  # others guess
        if by_message.category not in ("none", "unknown", "exit_status"):
            return by_message
        failure = replace(failure, category="unknown", error_class="ambiguous", action="restart")
        said = dict.fromkeys(filter(None, (view.message or "no reason given", failure.evidence)))
        return replace(failure, evidence="; ".join(said))
    return failure


def _classify(text: str, exit_code: int | None = None, pod: PodState | None = None) -> Failure:
    from training_monitor.verdict.failure import classify_failure  # most trainings run

    return classify_failure(text, exit_code=exit_code, pod=pod)


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a watched job; None means unknown. `log` is what is new in the log.

    A job with an id has a `view`; one of files a `process`. `gpus` are those its processes use, or all if that
    is unknown: `gpu_utilization` (per cent) and `gpu_power` (power draw / limit) are those of the busiest one, and
    `gpu_error` is why none is known. `evidence` is what its processes do, `file_age` seconds since a file was written
    in its checkpoint folder, `epochs` how the log counts, by samples from all of it. `unlisted_checkpoints` counts
    checkpoints that were not looked at, in addition to `checkpoints`.
    """

    view: JobView | None = None
    process: ProcessView | None = None
    log: NewLog | None = None
    checkpoints: tuple[Checkpoint, ...] | None = None
    gpu_utilization: float | None = None
    gpu_power: float | None = None
    gpus: tuple[Gpu, ...] = ()
    errors: tuple[str, ...] = ()
    evidence: Evidence = Evidence()
    file_age: float | None = None
    epochs: EpochCount | None = None
    unlisted_checkpoints: int = 0
    gpu_error: str | None = None

    @property
    def log_tail(self) -> str:
        """The end of the log of a job with an id."""
        return self.view.log_tail if self.view else ""

    @property
    def text(self) -> str:
        """The end of the log, as far as this look read it."""
        return self.log_tail or (self.log.text + self.log.partial if self.log else "")

    def read_progress(self) -> Progress:
        """Parse the newest progress of the job from the end of its log."""
        if self.view and not self.epochs:
            return self.view.progress
        return read_progress(said_by(self.view) if self.view else self.text, self.epochs or EpochCount())

    @property
    def message(self) -> str | None:
        """The message of the job or its process, or why nothing is known of it."""
        if self.view or not self.process:
            return self.view.message if self.view else None
        running = self.process.running and self.process.identity
        return f"pid {running.pid}: {self.process.command}" if running else self.process.reason

    @property
    def is_running(self) -> bool | None:
        if self.view:
            has_ended = self.view.pod is not None and self.view.pod.phase == "Ended"
            is_unknown = self.view.status is JobStatus.UNKNOWN and not has_ended
            return None if is_unknown else not (has_ended or self.view.status.is_terminal)
        return self.process.running if self.process else None

    def missing(self, job: WatchedJob) -> str | None:
        """Return the process or log that identifies the job if it was never seen, and no log shows how it ended."""
        if job.pid is not None:
            was_seen = self.process is not None and self.process.identity is not None
            return f"process {job.pid}" if self.has_nothing(job) and not was_seen else None
        named = job.log_file or " ".join(job.log_paths)
        is_named = place_of(named) != ""  # what a cluster keeps may not be there yet
        return f"log {named}" if is_named and self.log and self.log.missing and self.is_running is None else None

    def has_nothing(self, job: WatchedJob) -> bool:
        """Whether the process that identifies the job does not run, and no log tells of it."""
        return job.pid is not None and self.is_running is False and not self.text

    def require(self, job: WatchedJob) -> None:
        """Raise JobNotFound if what identifies the job was never seen, or is a log that is not text."""
        if missing := self.missing(job):
            raise JobNotFound(f"no {missing}", hint=Hint("list the trainings with {find_trainings}"))
        if self.log and job.pid is None and _is_binary(self.text):
            hint = Hint("specify the log or the PID of the training, or list the trainings with {find_trainings}")
            raise JobNotFound(f"{self.log.path or job.label} is not a text file", hint=hint)


def _is_binary(text: str) -> bool:
    """Whether a text is full of control characters and of bytes that are no text in UTF-8.

    NULs are gaps in a log that was truncated; a log in another encoding has no control characters.
    """
    kept = text.replace("\0", "")
    control = len(re.findall(r"[\x01-\x06\x0e-\x1a\x1c-\x1f]", kept))
    return control > len(kept) / 50 and control + kept.count("\ufffd") > len(kept) / 5


def source_of(job: WatchedJob, cursor: LogCursor | None = None) -> Source:
    """Return where the job's output is read; `cursor` is its reader's position."""
    if job.log_file is not None and not job.log_paths:
        return source_named(job.log_file, job.label)
    return FileSource(_log_of(job, cursor), job.label)


def _log_of(job: WatchedJob, cursor: LogCursor | None) -> str:
    """Return the log that a pattern, a process or a job with an id has, as a shell expression."""
    if job.log_paths:
        return newest_of(tuple(job.log_paths), cursor.inode if cursor else "")
    if job.job_id is None:
        return f'"$({format_call("watched_log", "show_output", pid=str(job.pid))})"'
    kind = kind_of(job.job_id)
    return kind.log_expression(job.job_id) if kind else ray_log(job.job_id)


def watch_questions(
    job: WatchedJob,
    cursor: LogCursor | None,
    known: Identity | None,
    *,
    with_log: bool,
    with_checkpoints: bool = True,
    parse_tail: bool = True,
    is_first: bool = False,
) -> list[Question[Any]]:
    """Return the questions whose answers `read_watch` needs; `with_log` asks for the log behind `cursor`.

    Without `parse_tail` the end of a job's log is not parsed: callers that read the whole log do not need it. A first
    look has no earlier one to compare with: it samples the processes for a moment, and asks how the log counts.
    """
    of_job = job.log_file == OUTPUT and job.pid is None  # it waited when it was found, and can be run again
    known = _seen_before(job) or known
    seconds = SAMPLE_SECONDS if is_first else 0.0
    evidence = evidence_question(roots_of(job, cursor, known), seconds)
    if of_job and not known:
        evidence = _of_found(evidence, lambda pid: evidence_question(pids_of(pid), seconds))
    questions: list[Question[Any]] = [gpu_question(GPU_SECONDS), evidence]
    if job.job_id and (kind := kind_of(job.job_id)):
        questions = kind.of_processes(job.job_id, questions)
    source = source_of(job, cursor)
    if is_first and (counts := source.count()):
        questions.append(counts)
    if job.output_dir is not None:
        questions.append(file_age_question(quote_path(job.output_dir)))
    if with_log:
        questions.append(source.read(cursor, LIMIT_BYTES if cursor else FIRST_BYTES))
    if with_checkpoints and job.output_dir is not None:
        from training_monitor.checkpoints.checkpoints import checkpoints_question

        questions.append(checkpoints_question(job.output_dir))
    if job.job_id is not None:
        asked = look_questions(job.job_id)
        return questions + (asked if parse_tail else [_without_tail(asked[0]), *asked[1:]])
    log = source.file if job.pid_file is None and job.pid is None else None
    process = process_question(job.pid_file, log, known, job.pid)
    if of_job:
        process = _of_found(process, lambda pid: process_question(None, None, pid=pid), known)
    return [*questions, process]


def _of_found(
    question: Question[Any], about: Callable[[int], Question[Any]], known: Identity | None = None
) -> Question[Any]:
    """Return the question about the first process of a job that is found where it is asked.

    That is done where the `known` one, about which the question asks, has ended.
    """

    def ask(site: Site) -> Reply:
        reply: Reply
        if known:
            reply = site.ask_one(replace(question, parse=lambda reply: reply))
            if question.parse(reply).running:
                return reply
        found = site.ask_one(find_question(own=site.target.own_processes)).trainings
        if not found:
            raise CommandFailed(f"{site}: no process of the training was found")
        asked = about(min(found, key=lambda each: each.rank is None).pid)
        reply = site.ask_one(replace(asked, parse=lambda reply: reply))
        return reply

    return replace(question, script="", beside=ask)


def _seen_before(job: WatchedJob) -> Identity | None:
    """Return the process that was seen when the training was found: it may have ended since, but it has been there."""
    if job.process is None:
        return None
    pid, start, boot = job.process.split()
    return Identity(int(pid), int(start), boot_id=boot)


def roots_of(job: WatchedJob, cursor: LogCursor | None, known: Identity | None) -> str:
    """Return a script that prints the root processes of the training."""
    if job.job_id is not None:
        return pids_of_job(job.job_id)
    if known or job.pid is not None:
        return pids_of(known.pid if known else job.pid or 0)
    if job.pid_file is not None:
        return pids_of_pid_file(job.pid_file)
    return pids_of_log(source_of(job, cursor).file or "''")


def pids_of_job(job_id: str) -> str:
    """Return a script that prints the pids of a job, where its processes run."""
    kind = kind_of(job_id)
    return kind.members_script(job_id) if kind else pids_of_ray_job(job_id)


def _without_tail(question: Question[Any]) -> Question[Any]:
    """Return a question about a job that ignores the log in its reply; Ray's reply has none."""

    def parse(reply: Reply) -> Any:
        head, mark, _ = f"\n{reply.output}".partition("\nlog\n")
        return question.parse(replace(reply, output=f"{head}{mark}".removeprefix("\n")) if mark else reply)

    return replace(question, parse=parse)


def read_watch(
    job: WatchedJob,
    answers: Sequence[Answer[Any]],
    *,
    with_log: bool,
    with_checkpoints: bool = True,
    parse_tail: bool = True,
) -> Look:
    """Build the look from its answers. Raises JobNotFound, and the error that kept us from the job or its log."""
    rest = list(answers)
    gpus, evidence = rest.pop(0), rest.pop(0)
    epochs = rest.pop(0).value if rest[0].name == "epochs" else None
    file_age = rest.pop(0).value if job.output_dir is not None else None
    log = rest.pop(0) if with_log else None
    checkpoints = rest.pop(0) if with_checkpoints and job.output_dir is not None else None
    errors = [str(each.failure) for each in (checkpoints,) if each and each.failure]
    if isinstance(evidence.failure, TargetEnded | TargetWaits) and evidence.failure.pod:
        return _look_at_ended(evidence.failure.pod, log)
    view, process = None, None
    if job.job_id is not None:
        view = _read_view(job.job_id, rest, parse_tail=parse_tail)
    else:
        process = _of(rest[0], errors)
        if process and process.running is False and job.log_file == OUTPUT:
            process = process._replace(
                running=None, reason=f"{process.reason}, but another Slurm step of its job may be running"
            )
    new: NewLog | None = log.get() if log else None
    if new and new.lost:
        begin, end = (format_local(at, "%m-%d %H:%M:%S") for at in new.lost)
        errors.append(f"its output from {begin} to {end} is no longer available")
    seen: Evidence = evidence.value or Evidence()
    if new and new.wrote_at is not None and seen.clock is not None:
        new = replace(new, age=seconds_since(new.wrote_at, seen.clock))
    mine = gpus_behind(gpus, (*(process.pids if process else ()), *seen.pids))
    utilization, power = gpu_load(mine)
    found = (checkpoints.value if checkpoints else None) or CheckpointListing(())
    return Look(
        view,
        process,
        new,
        None if checkpoints is None or checkpoints.failure else found.checkpoints,
        utilization,
        power,
        mine,
        tuple(errors),
        seen,
        file_age,
        epochs,
        found.unlisted,
        gpus.failure.what if gpus.failure else None,
    )


def _look_at_ended(pod: PodState, log: Answer[NewLog] | None) -> Look:
    """Return what is known of a training whose pod has ended, `log` is its output where the cluster keeps it."""
    new = log.value if log else None
    text = new.text + new.partial if new else ""
    view = replace(view_of_ended(pod), log_tail=text, log_known=new is not None, progress=parse_progress(text))
    return Look(replace(view, log_age=new.age if new else None), log=new)


_STATUS_OF_PHASE = {
    "Succeeded": JobStatus.SUCCEEDED,
    "Stopped": JobStatus.STOPPED,
    "Pending": JobStatus.PENDING,
    "Suspended": JobStatus.RUNNING,
    "Ended": JobStatus.UNKNOWN,
}


def view_of_ended(pod: PodState) -> JobView:
    """Return a job whose pod has ended, waits or is suspended, without its output."""
    from training_monitor.targets.pod_advice import advise_start  # few targets end

    view = JobView(pod.name, _STATUS_OF_PHASE.get(pod.phase, JobStatus.FAILED), describe_end(pod), pod.exit_code)
    return replace(view, log_known=False, pod=pod, resume=pod.resume, advice=advise_start(pod), is_stuck=is_stuck(pod))


def _read_view(job_id: str, answers: list[Answer[Any]], *, parse_tail: bool) -> JobView:
    """Return the view of a job with an id. Raises JobNotFound, CommandError."""
    log = answers[1].value if len(answers) > 1 else None
    if log and not parse_tail:
        answers = [answers[0], replace(answers[1], value=(*log[:2], "")), *answers[2:]]
    view = read_look(job_id, answers)
    if view is None:
        raise JobNotFound(f"no job {job_id!r}", hint=Hint("list the trainings with {find_trainings}"))
    return replace(view, log_tail=log[2]) if log else view


def _of(answer: Answer[Any], errors: list[str]) -> Any:
    """Return the value of an answer; its failure is appended to the errors."""
    if answer.failure:
        errors.append(str(answer.failure))
    return answer.value


def gpus_behind(answer: Answer[tuple[GpuTable, tuple[GpuProcess, ...]]], pids: Sequence[int]) -> tuple[Gpu, ...]:
    """Return the GPUs that `pids` use, or else those whose users may be among them; none if they could not be asked.

    A GPU is that of others if all processes on it are known here and are not among `pids`.
    """
    table, processes = answer.value or (GpuTable(()), ())
    mine = {each.gpu_uuid for each in processes if each.pid in pids and each.gpu_uuid}
    unsure = {each.gpu_uuid for each in processes if not each.is_here or not pids}
    others = {each.gpu_uuid for each in processes} - unsure - {None}
    return tuple(gpu for gpu in table.gpus if (gpu.uuid in mine if mine else gpu.uuid not in others))


def _is_of_before(log: NewLog, seen: Observation) -> bool:
    """Whether all of a log is of an earlier process than the present one, which has appended nothing to it yet."""
    return None not in (log.changed, seen.runtime) and (log.changed or 0.0) > (seen.runtime or 0.0) + _STARTED_WITHIN


def observation_of(look: Look, progress: Progress, text: str, now: float, *, first: bool) -> Observation:
    """Return a look as an observation for the judge.

    Args:
        progress: the newest in the log.
        text: the end of the log.
        now: epoch seconds.
        first: whether the job was not seen lately: then the age of its newest step is read from the log.
    """
    view, log, evidence, is_running = look.view, look.log, look.evidence, look.is_running
    pace = read_log_pace(text) if first and text else LogPace()
    speed, printed = pace.logged_speed, progress.steps_per_second
    if speed and not (printed and is_same_speed(printed, speed)):
        progress = replace(progress, steps_per_second=speed)
    utilization, power = gpu_load(look.gpus)
    log_age = view.log_age if view else log.age if log else None
    ages = [look.file_age, *(each.age for each in look.checkpoints or ())]
    found = Observation(
        now,
        **shared_fields(Observation, progress, job_progress(progress), pace, evidence),
        phase=find_phase(text),
        gpu_utilization=utilization,
        gpu_power_fraction=power,
        log_size=view.log_size if view else log.cursor.offset if log and log.cursor else None,
        heartbeat=find_heartbeat(text),
        is_running=is_running,
        bar_held=bool(log and log.by_lines) and "\r" in text.rstrip("\n").rpartition("\n")[2],
        log_age=log_age,
        step_age=log_age + pace.step_lag if log_age is not None and pace.step_lag is not None else None,
        gpu_errors=tuple(
            f"GPU {'?' if gpu.index is None else gpu.index}: {gpu.error}" for gpu in look.gpus if gpu.error
        ),
        file_age=min((each for each in ages if each is not None), default=None),
    )
    if view is None:
        unwritten = evidence.processes == 0 or (log_age is not None and log_age > FRESH_SECONDS)
        has_ended = is_running is False or (is_running is None and unwritten)
        is_unseen = is_running is True and not text and (log is None or log.missing)
        if is_running and log and _is_of_before(log, found):
            return replace(found, step=None, epoch=None, loss=None, finished=None, step_age=None)
        if not has_ended and not is_unseen:
            has_log = bool(text) or (log is not None and not log.missing)
            return found if has_log or not look.errors else replace(found, message=look.errors[0])
        return replace(found, failure=_classify(text) if has_ended else None, unseen_output=is_unseen)
    return replace(
        found,
        **shared_fields(Observation, view),
        failure=failure_of(replace(view, log_tail=text))
        if is_running is False and view.status is not JobStatus.STOPPED
        else None,
        # The job's own value also covers unseen processes.
        runtime=found.runtime if view.started_at is None else max(0.0, now - view.started_at),
    )
