"""What there is to know of a watched job, in one round trip: its process, its log, its GPUs, its checkpoints."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from training_monitor.errors import JobNotFound
from training_monitor.models import (
    Answer,
    Checkpoint,
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
from training_monitor.parse.epoch_count import EpochCount
from training_monitor.parse.evidence import Evidence
from training_monitor.parse.training_log import read_progress
from training_monitor.policy.gpu_load import gpu_load
from training_monitor.policy.observing import observe_job, observe_log
from training_monitor.probes.checkpoints import checkpoints_question
from training_monitor.probes.evidence import (
    SAMPLE_SECONDS,
    evidence_question,
    file_age_question,
    pids_of,
    pids_of_log,
    pids_of_pid_file,
    pids_of_process_job,
)
from training_monitor.probes.gpu import gpu_question
from training_monitor.probes.jobs import is_process_job, look_questions, read_look, said_by
from training_monitor.probes.logs import FIRST_BYTES, LIMIT_BYTES, epochs_question, log_question_of
from training_monitor.probes.pid_files import ProcessIdentity, ProcessView, process_question
from training_monitor.probes.process_jobs import log_expression as process_log
from training_monitor.probes.ray_jobs import log_expression as ray_log
from training_monitor.probes.ray_processes import pids_of_ray_job
from training_monitor.targets.asking import quote_path
from training_monitor.verdicts import Observation
from training_monitor.watching import CheckpointListing, WatchedJob


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a watched job; None is not known. `log` is what is new in it.

    Of a job with an id, `view` is all that was asked; of one with files, `process`. `gpus` are those its processes are
    on, or all where that is not known: `gpu_utilization` in per cent and `gpu_power` drawn over its limit are those of
    the one that works hardest. `evidence` is what its processes do, `file_age` seconds since a file was written where
    its checkpoints go, `epochs` how the log counts, by samples from all of it. `unlisted_checkpoints` are there beside
    `checkpoints`, and were not looked at.
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

    @property
    def log_tail(self) -> str:
        """The end of the log of a job with an id."""
        return self.view.log_tail if self.view else ""

    @property
    def text(self) -> str:
        """The end of the log, as far as this look read it."""
        return self.log_tail or (self.log.text + self.log.partial if self.log else "")

    def read_progress(self) -> Progress:
        """The newest progress of the job, parsed from the end of its log."""
        if self.view and not self.epochs:
            return self.view.progress
        epochs = replace(self.epochs) if self.epochs else EpochCount()
        return read_progress(said_by(self.view) if self.view else self.text, epochs)

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

    def require(self, job: WatchedJob) -> None:
        """See that what the job is known by is there. Raises JobNotFound where its process or log was never seen."""
        missing = None
        if job.pid is not None:
            is_gone = self.process is not None and self.process.running is False and not self.process.identity
            missing = f"process {job.pid}" if is_gone else None
        elif self.log is not None and self.log.missing and self.is_running is None:
            missing = f"log {job.log_file or ' '.join(job.log_paths)}"
        if missing:
            raise JobNotFound(f"there is no {missing}", hint="list what is there with `training-monitor check TARGET`")


# A log that is read stays the log for as long as it is written to, also while others are written beside it.
STAYS_SECONDS = 120
_JOBS = "~/.training_monitor/jobs/"
_ACTIVE = re.compile(r"([*?\[\]!^-]+)")  # what a pattern may hold unquoted; `!`, `^` and `-` mean something in brackets

# The newest file of the arguments, or the one that the reader has come to know by its INODE.
_NEWEST = r"""
newest=
for f do
  shift; [ -f "$f" ] || continue
  set -- "$@" "$f"
  if [ -z "$newest" ] || [ "$f" -nt "$newest" ]; then newest=$f; fi
done
known=INODE
if [ "$known" ] && [ "$newest" ] && [ "$(stat -L -c %i "$newest")" != "$known" ]; then
  known=$(stat -L -c '%i %Y' "$@" | grep -n "^$known " | head -n 1)
  if [ "$known" ] && [ $(($(date +%s) - ${known##* })) -lt STAYS ]; then
    shift $((${known%%:*} - 1)); newest=$1
  fi
fi
printf %s "$newest"
"""


# Where the output of a process goes, if that is a file.
_LOG_OF_PID = r'''"$(for n in 1 2; do f=$(readlink "/proc/PID/fd/$n"); [ ! -f "$f" ] || { echo "$f"; break; }; done)"'''


def log_expression(job: WatchedJob, cursor: LogCursor | None = None) -> str:
    """The job's log file as a shell expression; `cursor` is where its reader stands."""
    if job.log_paths:
        return _newest_of(job.log_paths, cursor)
    if job.log_file is not None:
        return quote_path(job.log_file)
    if job.job_id is None:
        return _LOG_OF_PID.replace("PID", str(job.pid))
    return process_log(job.job_id) if is_process_job(job.job_id) else ray_log(job.job_id)


def _newest_of(patterns: Sequence[str], cursor: LogCursor | None) -> str:
    """The newest regular file that matches a pattern, or nothing; a file that is called like a pattern is meant."""
    found = "\n".join(
        f'if [ -f {_quote_pattern(each, "")} ]; then set -- "$@" {_quote_pattern(each, "")};'
        f' else set -- "$@" {_quote_pattern(each)}; fi'
        for each in patterns
    )
    newest = _NEWEST.replace("INODE", str(cursor.inode) if cursor else "").replace("STAYS", str(STAYS_SECONDS))
    return f'"$(set --\n{found}{newest})"'


def _quote_pattern(pattern: str, active: str = _ACTIVE.pattern) -> str:
    """A pattern as one word of a script, never an option; without `active` signs it is a file's name."""
    home = ""
    if pattern.startswith(_JOBS):
        home, pattern = '"${TRAINING_MONITOR_JOBS_DIR:-$HOME/.training_monitor/jobs}"/', pattern[len(_JOBS) :]
    elif pattern.startswith("~/"):
        home, pattern = '"$HOME"/', pattern[2:]
    elif not pattern.startswith("/"):
        home = "./"
    parts = re.split(active, pattern) if active else [pattern]
    quoted = [part if number % 2 else shlex.quote(part) if part else "" for number, part in enumerate(parts)]
    return home + "".join(quoted)


def watch_questions(
    job: WatchedJob,
    cursor: LogCursor | None,
    known: ProcessIdentity | None,
    *,
    with_log: bool,
    with_checkpoints: bool = True,
    parse_tail: bool = True,
    is_first: bool = False,
) -> list[Question[Any]]:
    """What `read_watch` needs to know; `with_log` asks for what the log has behind `cursor`.

    Without `parse_tail` the end of a job's log is not parsed each time, as those need not who add up all of it. A first
    look has no earlier one to compare with: it watches the processes for a moment, and asks how the log counts.
    """
    evidence = evidence_question(_roots(job, cursor, known), SAMPLE_SECONDS if is_first else 0.0)
    questions: list[Question[Any]] = [gpu_question(8.0), evidence]
    if is_first:
        questions.append(epochs_question(log_expression(job, cursor)))
    if job.output_dir is not None:
        questions.append(file_age_question(quote_path(job.output_dir)))
    if with_log:
        path = job.label
        limit = LIMIT_BYTES if cursor else FIRST_BYTES
        questions.append(log_question_of(log_expression(job, cursor), path, cursor, limit))
    if with_checkpoints and job.output_dir is not None:
        questions.append(checkpoints_question(job.output_dir))
    if job.job_id is not None:
        asked = look_questions(job.job_id)
        return questions + (asked if parse_tail else [_without_tail(asked[0]), *asked[1:]])
    log = log_expression(job, cursor) if job.pid_file is None and job.pid is None else None
    return [*questions, process_question(job.pid_file, log, known, job.pid)]


def _roots(job: WatchedJob, cursor: LogCursor | None, known: ProcessIdentity | None) -> str:
    """What tells the target which processes the training has."""
    if job.job_id is not None:
        return pids_of_process_job(job.job_id) if is_process_job(job.job_id) else pids_of_ray_job(job.job_id)
    if known or job.pid is not None:
        return pids_of(known.pid if known else job.pid or 0)
    if job.pid_file is not None:
        return pids_of_pid_file(job.pid_file)
    return pids_of_log(log_expression(job, cursor))


def _without_tail(question: Question[Any]) -> Question[Any]:
    """A question about a job that leaves out the log in its reply; that of Ray has none."""

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
    is_first: bool = False,
) -> Look:
    """The look out of its answers. Raises JobNotFound, and what kept us from asking for the job or its log."""
    rest = list(answers)
    gpus, evidence = rest.pop(0), rest.pop(0)
    epochs = rest.pop(0).value if is_first else None
    file_age = rest.pop(0).value if job.output_dir is not None else None
    log = rest.pop(0) if with_log else None
    checkpoints = rest.pop(0) if with_checkpoints and job.output_dir is not None else None
    errors = [str(each.failure) for each in (checkpoints,) if each and each.failure]
    view, process = None, None
    if job.job_id is not None:
        view = _read_view(job.job_id, rest, parse_tail=parse_tail)
    else:
        process = _of(rest[0], errors)
    seen: Evidence = evidence.value or Evidence()
    mine = gpus_behind(gpus, (*(process.pids if process else ()), *seen.pids))
    utilization, power = gpu_load(mine)
    found = (checkpoints.value if checkpoints else None) or CheckpointListing(())
    return Look(
        view,
        process,
        log.get() if log else None,
        None if checkpoints is None or checkpoints.failure else found.checkpoints,
        utilization,
        power,
        mine,
        tuple(errors),
        seen,
        file_age,
        epochs,
        found.unlisted,
    )


def _read_view(job_id: str, answers: list[Answer[Any]], *, parse_tail: bool) -> JobView:
    """The view of a job with an id. Raises JobNotFound, CommandError."""
    log = answers[1].value if len(answers) > 1 else None
    if log and not parse_tail:
        answers = [answers[0], replace(answers[1], value=(*log[:2], ""))]
    view = read_look(job_id, answers)
    if view is None:
        raise JobNotFound(f"there is no job {job_id!r}", hint="list what is there with `training-monitor check TARGET`")
    return replace(view, log_tail=log[2]) if log else view


def _of(answer: Answer[Any], errors: list[str]) -> Any:
    """Its value; what kept us from it goes to the errors."""
    if answer.failure:
        errors.append(str(answer.failure))
    return answer.value


def gpus_behind(answer: Answer[tuple[GpuTable, tuple[GpuProcess, ...]]], pids: Sequence[int]) -> tuple[Gpu, ...]:
    """The GPUs that `pids` are on, or else all; none where they could not be asked."""
    table, processes = answer.value or (GpuTable(()), ())
    mine = {each.gpu_uuid for each in processes if each.pid in pids and each.gpu_uuid}
    return tuple(gpu for gpu in table.gpus if not mine or gpu.uuid in mine)


def observation_of(look: Look, progress: Progress, text: str, now: float, *, first: bool) -> Observation:
    """What a look saw, for the judge.

    Args:
        progress: the newest of its log.
        text: the end of its log.
        now: epoch seconds.
        first: whether nothing was seen of it lately: then its log is asked when its newest step was made.
    """
    ages = [look.file_age, *(each.age for each in look.checkpoints or ())]
    seen: dict[str, Any] = {"gpus": look.gpus, "evidence": look.evidence, "first": first}
    seen["file_age"] = min((each for each in ages if each is not None), default=None)
    if look.view:
        return observe_job(replace(look.view, progress=progress, log_tail=text), now, **seen)
    log = look.log
    size = log.cursor.offset if log and log.cursor else None
    return observe_log(
        progress, text, now, is_running=look.is_running, log_age=log.age if log else None, log_size=size, **seen
    )
