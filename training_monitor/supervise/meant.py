"""What a person means by a PID, a path, a job or a name on a target; and all trainings there, when nothing is said."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from training_monitor.errors import JobNotFound, SettingsError
from training_monitor.models import Answer, Question, RayJob
from training_monitor.parse.found_trainings import FoundFile, FoundTraining
from training_monitor.policy.resume import next_attempt
from training_monitor.probes import process_jobs, ray_jobs
from training_monitor.probes.find_trainings import files_question, find_question
from training_monitor.targets.asking import ask
from training_monitor.targets.connect import resolve_target
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport
from training_monitor.watching import WatchedJob

MOST_NAMED = 5
_NUMBER_OF_RAY_JOB = re.compile(r"[0-9a-f]{8}")  # by which its workers know it; no submission id


@dataclass(frozen=True, slots=True)
class MeantTraining:
    """One training on a target, and what to call it. `remedies` say what would sharpen what is known of it."""

    job: WatchedJob
    name: str
    command: str | None = None
    remedies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Meant:
    """The trainings that are meant, and what would find more."""

    trainings: tuple[MeantTraining, ...]
    remedies: tuple[str, ...] = ()


def find_meant(target: Target, what: str | int | None = None, *, transport: Transport | None = None) -> Meant:
    """Find what is meant, in one round trip at most.

    Args:
        what: a PID, the path or pattern of a log, `process:NAME`, a Ray submission id, the name of a job; None: all.

    Raises:
        SettingsError: it fits two trainings. JobNotFound: it fits none. CommandError: the target could not be asked.
    """
    text = "" if what is None else str(what).strip()
    if is_path(text):
        return Meant((_by_path(text),))
    if text.startswith(process_jobs.PREFIX):
        return Meant((_by_job(text),))
    pid = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
    questions: list[Question[Any]] = [find_question()]
    if pid is None:
        questions += [process_jobs.jobs_question(), ray_jobs.jobs_question()]
    if not text:
        questions.append(files_question())
    found, *more = ask(target, *questions, transport=transport)
    if pid is not None:
        return Meant((_by_pid(pid, found.value or ()),))
    if text:
        names, ray = more
        return Meant((_by_name(target, text, found.value or (), names.value or [], ray.value or ()),))
    return _all(found, *more)


def find_one(
    target: str | Target,
    what: str | int | None = None,
    namespace: str = "default",
    *,
    transport: Transport | None = None,
) -> MeantTraining:
    """The one training that is meant, see `find_meant`.

    Raises:
        SettingsError: there are several. JobNotFound: there is none. CommandError: the target could not be asked.
    """
    where = resolve_target(target, namespace=namespace, transport=transport)
    found = find_meant(where, what, transport=transport).trainings
    if len(found) > 1:
        raise SettingsError("training", what or "", f"one of these, by PID or job id: {_listed(found)}")
    if not found:
        raise JobNotFound(f"no training was found on {where}", hint="name a PID, a log file or a job")
    return found[0]


def _listed(trainings: Sequence[MeantTraining]) -> str:
    return "; ".join(f"{each.name} ({(each.command or 'job')[:60]})" for each in trainings[:MOST_NAMED])


def is_path(text: str) -> bool:
    """Whether a word is meant as the path or pattern of a log, and not as a name."""
    return bool(re.search(r"[/*?\[]|^~|\.(?:log|out|txt|err)$", text)) and "://" not in text


def job_at(path: str) -> WatchedJob:
    """What is watched by the path of its log, or by a pattern of which the newest file is meant."""
    return WatchedJob(log_paths=(path,)) if re.search(r"[*?\[]", path) else WatchedJob(log_file=path)


def named_job(word: str) -> WatchedJob:
    """What is watched by a word alone, without asking: a PID, the path or pattern of a log, or else a job id."""
    if word.isascii() and word.isdigit() and len(word) < 10:
        return WatchedJob(pid=int(word))
    return job_at(word) if is_path(word) else WatchedJob(job_id=word)


def _by_path(path: str) -> MeantTraining:
    return MeantTraining(job_at(path), path)


def _by_job(job_id: str, command: str | None = None) -> MeantTraining:
    return MeantTraining(WatchedJob(job_id=job_id), job_id, command)


def _by_process(found: FoundTraining) -> MeantTraining:
    """A training that was found by its process: by its job, where it is one, or else by its log and its process."""
    job_id = found.process_job or found.ray_job
    if job_id and not _NUMBER_OF_RAY_JOB.fullmatch(job_id):
        return replace(_by_job(job_id, found.command), remedies=found.hints)
    log = found.logs[0] if found.logs else None
    folder = found.checkpoint_folders[0] if found.checkpoint_folders else None
    job = WatchedJob(log_file=log, pid=found.pid, output_dir=folder)
    return MeantTraining(job, f"pid {found.pid}", found.command, found.hints)


def _by_pid(pid: int, running: Iterable[FoundTraining]) -> MeantTraining:
    """The training that a process belongs to, or the process alone."""
    for each in running:
        if pid == each.pid or pid in each.pids:
            return replace(_by_process(each), name=f"pid {pid}")
    return MeantTraining(WatchedJob(pid=pid), f"pid {pid}")


def _by_name(
    target: Target, name: str, running: Iterable[FoundTraining], jobs: Sequence[str], ray: Sequence[RayJob]
) -> MeantTraining:
    """The training that a name means: a job, its latest attempt, or a process whose command has it."""
    fits: dict[str, MeantTraining] = {}
    for each in ray:
        if each.submission_id == name:
            return _by_job(name, each.entrypoint)
        if ray_jobs.name_of(each) == name:  # they come oldest first
            fits["Ray job"] = _by_job(each.submission_id, each.entrypoint)
    last = f"{name}-attempt-{next_attempt(jobs, name) - 1}"
    for job in (name, last):
        if job in jobs:
            fits["process job"] = _by_job(process_jobs.PREFIX + job)
    if not fits:
        words = re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-])")
        fits = {f"pid {each.pid}": _by_process(each) for each in running if words.search(each.command)}
    if len(fits) == 1:
        return next(iter(fits.values()))
    if fits:
        raise SettingsError("training", name, f"one of those it fits, by PID or job id: {_listed([*fits.values()])}")
    known = [*jobs, *(each.submission_id for each in ray)]
    close = difflib.get_close_matches(name, known, 3)
    raise JobNotFound(
        f"{target}: there is no training {name!r}" + (f"; there is {', '.join(close)}" if close else ""),
        hint="training-monitor check TARGET lists what is there",
    )


def _all(
    found: Answer[tuple[FoundTraining, ...]],
    names: Answer[list[str]],
    ray: Answer[tuple[RayJob, ...]],
    files: Answer[tuple[FoundFile, ...]],
) -> Meant:
    """All that runs; where nothing does, what ended last."""
    meant = {each.name: each for each in map(_by_process, found.value or ())}
    jobs = ray.value or ()
    for each in jobs:
        if ray_jobs.is_active(each):
            meant.setdefault(each.submission_id, _by_job(each.submission_id, each.entrypoint))
    if not meant:
        ended = [_by_job(each.submission_id, each.entrypoint) for each in jobs[-1:]]
        ended += [_by_job(process_jobs.PREFIX + name) for name in (names.value or [])[:1]]
        logs = [each.path for each in files.value or () if each.is_log][:1]
        meant = {each.name: each for each in ended or map(_by_path, logs)}
    failed = [f"{each.name} could not be looked for: {each.failure.what}" for each in (found, names) if each.failure]
    return Meant(tuple(meant.values()), tuple(failed))
