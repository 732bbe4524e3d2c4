"""Resolve a PID, path, job or name that a user gives to the training it means; without one, to all trainings."""

from __future__ import annotations

import math
import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from training_monitor.core.errors import (
    CommandTimedOut,
    Hint,
    IncompleteAnswer,
    JobNotFound,
    SettingsError,
    TargetEnded,
    TargetWaits,
    TrainingMonitorError,
    similar_names,
)
from training_monitor.core.models import Answer, Question, RayJob
from training_monitor.core.read_fence import keep_found, may_list
from training_monitor.core.values import NotSeen, WatchedJob
from training_monitor.jobs import process_jobs, ray_jobs
from training_monitor.jobs.attempts import is_side_work, process_job_called
from training_monitor.logs.sources import CONTAINER_LOG, OUTPUT, PROGRESS, is_source, place_of
from training_monitor.look.find_trainings import (
    MAX_PROCESSES,
    SEARCHED_FOR,
    FoundFile,
    FoundTraining,
    FoundTrainings,
    files_question,
    find_question,
)
from training_monitor.targets.asking import Site
from training_monitor.targets.proc_stat import Meeting
from training_monitor.targets.target import RESOLVE_SECONDS, Target, class_of
from training_monitor.targets.transport import Transport

MOST_NAMED = 5
_OF_OTHERS = NotSeen("processes of other users", "they are hidden on this machine (hidepid)")
RAY_SECONDS = 4.0  # for Ray's list of jobs, and for recent logs, where it may turn out that nobody needs them


@dataclass(frozen=True, slots=True)
class MeantTraining:
    """One training on a target, and its display name.

    `remedies` say how to learn more about it, `pids` are its processes, where they had to be found, `script` is what
    they run and `meeting` where its ranks meet (see `FoundTraining`). `named` is the PID by which the user named it,
    `logs` are where a search saw it print. `folder` is its working directory.
    """

    job: WatchedJob
    name: str
    command: str | None = None
    remedies: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()
    script: str | None = None
    meeting: Meeting | None = None
    named: int | None = None
    logs: tuple[str, ...] = ()
    folder: str | None = None

    @property
    def is_log(self) -> bool:
        """Whether nothing but a log is known of it."""
        return self.job.log_file is not None and self.job.pid is None and self.job.job_id is None


class Meant(NamedTuple):
    """The trainings that are meant. If `not_seen` names something, there may be more, or different ones.

    `is_last`: none runs, it is the one that was seen last; if that is a job, `log` is the newest log, which may be of a
    later training. `has_ended`: it is that of a pod that has ended. `has_ray`: there may be a Ray.
    `hidden`: if no training was found, the processes that could not be searched.
    """

    trainings: tuple[MeantTraining, ...]
    not_seen: tuple[NotSeen, ...] = ()
    is_last: bool = False
    has_ended: bool = False
    has_ray: bool = True
    log: MeantTraining | None = None
    hidden: tuple[NotSeen, ...] = ()


def find_meant(
    site: Site, what: str | int | None = None, *, timeout: float | None = None, of_any: bool = False
) -> Meant:
    """Find what is meant, in one round trip at most.

    Args:
        what: a PID, the path or pattern of a log, the path of the script that it runs, `process:NAME`, a Ray submission
            id, the name of a training (see `is_called`), a word of its command; None: all.
        timeout: seconds for the round trip; default: as in `ask`.
        of_any: whether a word may mean any program, where no training has it.

    Raises:
        SettingsError: it fits two trainings. JobNotFound: it fits none. IncompleteAnswer: not all jobs could be listed,
            and the name may mean one of the others. CommandError: the target could not be asked.
    """
    text = "" if what is None else str(what).strip()
    if is_path(text):
        return Meant((_by_path(text),))
    if text.startswith(process_jobs.PREFIX):
        return Meant((_by_job(text),))
    of_ray = ray_jobs.jobs_question()
    own, word = site.target.own_processes, word_of(text)
    asked = find_question(word, of_any=of_any or word != text, own=own)
    questions: list[Question[Any]] = [asked, *_job_questions()]
    if not text:
        return read_all(site, site.ask(*questions, of_ray, files_question(), timeout=timeout))
    running, names, signs, ray = site.ask(*questions, replace(of_ray, limit=RAY_SECONDS), timeout=timeout)
    is_known = is_pid(text) or process_job_called(names.value or (), text)
    if isinstance(ray.failure, CommandTimedOut) and not is_known:
        [ray] = site.ask(of_ray, timeout=timeout)
    if isinstance(running.failure, TargetEnded | TargetWaits):
        return _of_ended(site, text)
    there = _There.read(site, running, names, signs, ray, text)
    return Meant((_by_pid(there, int(text)) if is_pid(text) else _by_name(there, text),))


def _job_questions() -> list[Question[Any]]:
    return [process_jobs.jobs_question(), ray_jobs.signs_question()]


def all_questions(site: Site, *, has_ray: bool) -> list[Question[Any]]:
    """Return the questions whose answers `read_all` needs, for a caller that asks others in the same round trip.

    Without Ray its jobs are not listed: on a machine that has only its command, that takes most of the time.
    """
    more: list[Question[Any]] = [*([ray_jobs.jobs_question()] if has_ray else []), files_question()]
    more = [replace(each, limit=RAY_SECONDS) for each in more]
    return [find_question(own=site.target.own_processes), *_job_questions(), *more]


def read_all(site: Site, answers: Sequence[Answer[Any]]) -> Meant:
    """Return all trainings of a target, by the answers to `all_questions`."""
    running, names, signs, *listed, files = answers
    if isinstance(running.failure, TargetEnded | TargetWaits):
        return _of_ended(site)
    ray = listed[0] if listed else Answer("jobs", ())
    there = _There.read(site, running, names, signs, ray)
    if site.target.output == OUTPUT:  # a job is one training, whatever it runs
        first = min(there.running, key=lambda each: each.rank is None, default=None)
        [whole] = [there.by_process(first)] if first else _of_ended(site).trainings
        pids = tuple(sorted({pid for each in there.running for pid in each.pids}))
        failure = running.failure
        unseen = (
            (f"its processes could not be listed: {failure.what}", *filter(None, [failure.hint])) if failure else ()
        )
        remedies = (*whole.remedies, *unseen)
        return Meant((replace(whole, name=site.target.called, pids=pids, remedies=remedies),), has_ray=False)
    return _all(there, files)._replace(has_ray=signs.value is not False)


def _of_ended(site: Site, text: str = "") -> Meant:
    job = WatchedJob(pid=int(text) if is_pid(text) else None, log_file=site.target.output or None)
    return Meant((MeantTraining(job, f"pid {text}" if is_pid(text) else site.target.called),), has_ended=True)


def reach(site: Site, timeout: float = RESOLVE_SECONDS) -> Site:
    """Return the site at its address, and in one container of a pod: the one named, or the only one with GPUs, or else
    the first in which a training is found, or the only one that has ended beside others in which there is none.

    Args:
        timeout: seconds for each call that it takes.

    Raises:
        CommandError: see `Target.resolve`.
    """
    site = site.resolve(timeout)
    default, *containers = site.target.may_be or (site.target,)
    ended, unseen = list[Target](), list[Target]()
    for target in (default, *containers) if containers else ():
        try:
            meant = find_meant(site.at(target), timeout=timeout)
        except TrainingMonitorError:
            unseen.append(target)
            continue
        if meant.trainings and not meant.has_ended:
            return site.at(target)
        ended += [target] if meant.has_ended else []
    return site.at(ended[0]) if len(ended) == 1 and unseen in ([], [default]) else site


def note_found(site: Site, found: FoundTrainings) -> None:
    """Let the sources and the checkpoint folders of trainings that were found be read where a fence stands."""
    trainings = found.trainings
    keep_found(
        site.target,
        [place_of(source) for each in trainings for source in each.sources],
        [path for each in trainings for path in each.checkpoint_folders],
    )


def _not_seen(running: Answer[FoundTrainings], names: Answer[list[str]], ray: NotSeen | None) -> Iterator[NotSeen]:
    """Yield what may be on a target besides what was found."""
    if running.failure:
        yield NotSeen("processes", running.failure.what)
    elif running.value and running.value.unlisted:
        why = f"at most {MAX_PROCESSES} candidates are inspected: name the training by its PID, log or job"
        yield NotSeen("processes", why, running.value.unlisted)
    if names.failure:
        yield NotSeen("process jobs", names.failure.what)
    if ray:
        yield ray


class _There(NamedTuple):
    """The trainings of a target: processes, names of process jobs (newest first), Ray jobs (newest last)."""

    target: Target
    running: Sequence[FoundTraining]
    names: Sequence[str]
    ray: Sequence[RayJob]
    not_seen: tuple[NotSeen, ...]
    hides_others: bool = False

    @classmethod
    def read(
        cls,
        site: Site,
        running: Answer[FoundTrainings],
        names: Answer[list[str]],
        signs: Answer[bool],
        ray: Answer[tuple[RayJob, ...]],
        named: str = "",
    ) -> _There:
        not_seen = tuple(_not_seen(running, names, ray_jobs.why_not_listed(ray, signs, named)))
        found = running.value or FoundTrainings(())
        note_found(site, found)
        return cls(site.target, found.trainings, names.value or (), ray.value or (), not_seen, found.hides_others)

    def is_job(self, job_id: str | None) -> bool:
        """Return whether the target has such a job: a process's environment may name one that it does not have."""
        if job_id is None or job_id.startswith(process_jobs.PREFIX):
            return job_id is not None and job_id.removeprefix(process_jobs.PREFIX) in self.names
        return any(each.submission_id == job_id for each in self.ray)

    def trainings(self) -> list[MeantTraining]:
        """Return all running trainings; an upload is not one."""
        return [self.by_process(each) for each in self.running if not is_side_work(each.process_job or "")]

    def by_process(self, found: FoundTraining) -> MeantTraining:
        """Return the training of a process: by its job, if it has one, or else by its log and process."""
        job_id, folder = found.process_job or found.ray_job, next(iter(found.checkpoint_folders), None)
        if job_id and self.is_job(job_id):
            job = WatchedJob(job_id, output_dir=folder)
            return MeantTraining(
                job,
                job_id,
                found.command,
                found.hints,
                (),
                found.script,
                found.meeting,
                logs=found.sources,
                folder=found.cwd,
            )
        if found.container and self.target.is_machine:
            scheme, number = found.container
            kind: Any = class_of(scheme)
            found = found._replace(
                hints=(f"the training is running in a container: use the target {kind(number, self.target)}",)
            )
        log = next((each for each in found.sources if each != CONTAINER_LOG or self.target.output), None)
        if self.target.output == OUTPUT and not (log or "").startswith(PROGRESS):
            log = OUTPUT
        hints = found.hints if log is None or log in found.logs else ()
        job = WatchedJob(log_file=log, pid=found.pid, output_dir=folder, process=found.process)
        return MeantTraining(
            job,
            f"pid {found.pid}",
            found.command,
            hints,
            found.pids,
            found.script,
            found.meeting,
            logs=found.sources,
            folder=found.cwd,
        )


def find_one(
    target: str | Target,
    what: str | int | None = None,
    namespace: str = "default",
    *,
    timeout: float = math.inf,
    transport: Transport | None = None,
) -> MeantTraining:
    """Find the one training that is meant, see `find_one_at`; `timeout` is for all queries together."""
    return find_one_at(reach(Site.of(target, namespace, transport).within(timeout)), what)


def find_one_at(
    site: Site, what: str | int | None = None, *, timeout: float | None = None, of_any: bool = False
) -> MeantTraining:
    """Find the one training that is meant at a site that is reached, see `find_meant`.

    Raises:
        SettingsError: there are several. JobNotFound: there is none. IncompleteAnswer: there may be others.
        CommandError: the target could not be asked.
    """
    meant = find_meant(site, what, timeout=timeout, of_any=of_any)
    found = meant.trainings
    if len(found) > 1:
        raise SettingsError(f"trainings on {site}", len(found), f"exactly one; select one by {_listed(found)}")
    if missed := (*meant.not_seen, *meant.hidden):
        raise _incomplete(f"cannot list all trainings on {site}", missed)
    if not found:
        raise JobNotFound(f"no training was found on {site}", hint=SEARCHED_FOR)
    return found[0]


def _incomplete(what: str, not_seen: Sequence[NotSeen]) -> IncompleteAnswer:
    why = "; ".join(map(str, not_seen))
    return IncompleteAnswer(f"{what}: {why}", hint="specify a PID, a log file or a job ID, or try again")


def _listed(trainings: Sequence[MeantTraining]) -> str:
    return f"PID or job ID: {_described(trainings)}"


def _described(trainings: Sequence[MeantTraining]) -> str:
    from training_monitor.jobs.names import describe_jobs

    return describe_jobs((each.name, None, each.command) for each in trainings)


def is_pid(text: str) -> bool:
    """Return whether a word is meant as a PID."""
    return text.isascii() and text.isdigit() and len(text) < 10


def is_path(text: str) -> bool:
    """Return whether a word is meant as the path or pattern of a log, and not as a name or a script."""
    is_job = text.startswith(process_jobs.PREFIX) or is_script(text)
    is_file = not is_job and "://" not in text and bool(re.search(r"[/*?\[]|^~|\.(?:log|out|txt|err)$", text))
    return is_file or is_source(text)


def is_script(text: str) -> bool:
    """Return whether a word is the path of a script, which means the training that runs it."""
    return "://" not in text and not is_source(text) and re.fullmatch(r"[^*?\[]*/[^*?\[]*\.(?:py|sh)", text) is not None


def word_of(text: str) -> str:
    """Return the word that is looked for in commands: of the path of a script its name."""
    return posixpath.basename(text) if is_script(text) else text


def job_at(path: str) -> WatchedJob:
    """Return the job given by the path of its log, or by a pattern, which means its newest file."""
    return WatchedJob(log_paths=(path,)) if re.search(r"[*?\[]", path) else WatchedJob(log_file=path)


def named_job(word: str) -> WatchedJob:
    """Return the job that a word means, without asking: a PID, the path or pattern of a log, or else a job id."""
    if is_pid(word):
        return WatchedJob(pid=int(word))
    return job_at(word) if is_path(word) else WatchedJob(job_id=word)


def _by_path(path: str) -> MeantTraining:
    return MeantTraining(job_at(path), path)


def _by_job(job_id: str, command: str | None = None) -> MeantTraining:
    return MeantTraining(WatchedJob(job_id=job_id), job_id, command)


def _by_ray(job: RayJob) -> MeantTraining:
    return _by_job(job.submission_id, job.entrypoint)


def _by_pid(there: _There, pid: int) -> MeantTraining:
    """Return the training that a process belongs to, or the process alone."""
    for each in there.running:
        if pid == each.pid or pid in each.pids:
            return replace(there.by_process(each), name=f"pid {pid}", named=pid)
    alone = process_alone(pid)
    if pid == 1 and there.target.output:
        return replace(alone, job=replace(alone.job, log_file=there.target.output))
    return alone


def process_alone(pid: int) -> MeantTraining:
    """Return a process as a training of its own, of which nothing else is known."""
    return MeantTraining(WatchedJob(pid=pid), f"pid {pid}", named=pid)


def _by_name(there: _There, name: str) -> MeantTraining:
    """Return the training that a name means: a job, its latest attempt, or a process with it in its command."""
    from training_monitor.jobs.names import ray_jobs_called, ray_jobs_with, word_pattern  # many calls give no name

    path, name = name, word_of(name)
    if there.is_job(name):
        return next((_by_ray(each) for each in there.ray if each.submission_id == name), _by_job(name))
    job_id = process_job_called(there.names, name)
    if there.not_seen and not (job_id and all(each.what == ray_jobs.LISTED for each in there.not_seen)):
        raise _incomplete(f"{there.target}: cannot tell which training {name!r} is", there.not_seen)
    fits = [*map(_by_ray, ray_jobs_called(there.ray, name)), *([_by_job(job_id)] if job_id else [])]
    if not fits:
        of_ray, word = ray_jobs_with(there.ray, name), word_pattern(name)
        running = [each for each in there.running if word.search(each.command)]
        same = [each for each in running if path == name or runs(path, each.command, each.cwd, there.target)]
        found = [there.by_process(each) for each in same]
        found += [_by_ray(each) for each in of_ray if ray_jobs.is_active(each)]
        fits = list({each.name: each for each in found or map(_by_ray, of_ray)}.values())
    if len(fits) == 1:
        return fits[0]
    if fits:
        raise several(name, fits)
    if path != name:
        raise _not_run(there.target, path, [there.by_process(each) for each in running])
    raise _not_found(there.target, name, there.names, there.ray)


def several(name: str, fits: Sequence[MeantTraining]) -> SettingsError:
    """Return the error about a name that fits several trainings."""
    return SettingsError(f"trainings named {name!r}", len(fits), f"exactly one; select one by {_listed(fits)}")


def runs(path: str, command: str, folder: str | None, target: Target) -> bool:
    """Return whether a command in a folder has the script at this path.

    A relative path on another machine fits by its end.
    """
    for word in command.split():
        full = posixpath.normpath(posixpath.join(folder or "", word))
        if posixpath.basename(word) != posixpath.basename(path):
            continue
        if target.is_here and full.startswith("/"):
            return os.path.realpath(full) == os.path.realpath(os.path.expanduser(path))
        end = re.sub(r"^(?:~/|\.{1,2}/)+", "", path)
        return full == path or not end.startswith("/") and f"/{full}".endswith(f"/{end}")
    return False


def _not_run(target: Target, path: str, others: Sequence[MeantTraining]) -> JobNotFound:
    close = f", but another script with this name is running: {_described(others)}" if others else ""
    said = f"{target}: no training is running {path}{close}"
    return JobNotFound(said, hint=Hint("list the trainings with {find_trainings}, or specify a PID or a log"))


def _not_found(target: Target, name: str, names: Sequence[str], ray: Sequence[RayJob] = ()) -> JobNotFound:
    from training_monitor.jobs.names import describe_running

    close = similar_names(name, [*names, *(each.submission_id for each in ray)])
    said = [f"no training {name!r}", *([f"similar names: {', '.join(close)}"] if close else [])]
    said += [describe_running(ray)] if any(map(ray_jobs.is_active, ray)) else []
    is_log = target.is_here and is_path(f"./{name}") and os.path.isfile(name)
    hint = f"write ./{name} to select the log" if is_log else Hint("list the trainings with {find_trainings}")
    return JobNotFound(f"{target}: {'; '.join(said)}", hint=hint)


def find_process_job(
    target: str | Target, name: str, namespace: str = "default", *, transport: Transport | None = None
) -> str:
    """Return the id of the process job that a name means, see `find_meant`; nothing else on the target is asked.

    Raises:
        JobNotFound: there is none. CommandError: the target could not be asked.
    """
    site = Site.of(target, namespace, transport).resolve()
    names = site.ask_one(process_jobs.jobs_question())
    job_id = process_job_called(names, name)
    if job_id is None:
        raise _not_found(site.target, name, names)
    return job_id


def _all(there: _There, files: Answer[tuple[FoundFile, ...]]) -> Meant:
    """Return all that runs; if nothing does, what ended last, or else the newest log."""
    meant = {each.name: each for each in there.trainings()}
    for each in there.ray:
        if ray_jobs.is_active(each):
            meant.setdefault(each.submission_id, _by_ray(each))
    if meant:
        return Meant(tuple(meant.values()), there.not_seen)
    ended = [*map(_by_ray, there.ray[-1:])]
    last = next((name for name in there.names if not is_side_work(name)), None)
    ended += [_by_job(process_jobs.PREFIX + last)] if last else []
    newest = next((_by_path(each.path) for each in files.value or () if may_list(each.path)), None)
    if ended:
        return Meant(tuple(ended), there.not_seen, is_last=True, log=newest)
    unread = (NotSeen("recent logs", files.failure.what),) if files.failure else ()
    hidden = (_OF_OTHERS,) if there.hides_others and not newest else ()
    return Meant((newest,) if newest else (), (*there.not_seen, *unread), is_last=True, hidden=hidden)
