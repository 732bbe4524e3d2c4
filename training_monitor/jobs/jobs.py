"""Look at, read and start Ray jobs and process jobs through one set of functions.

A start whose answer was lost is verified by another look.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from training_monitor.core.errors import (
    CommandTimedOut,
    Hint,
    IncompleteAnswer,
    JobNotFound,
    ParseError,
    TargetUnreachable,
    TrainingMonitorError,
)
from training_monitor.core.masking import keep_secret, redact, secrets_of
from training_monitor.core.models import Answer, JobStatus, JobView, Question, RayJob
from training_monitor.core.values import JobListing, NotSeen
from training_monitor.jobs import process_jobs, ray_jobs
from training_monitor.jobs.attempts import (
    Removed,
    attempt_name,
    attempt_number,
    check_job_config,
    format_resumed_command,
    format_resumed_env,
    is_attempt_of,
    next_attempt,
    remove_question,
)
from training_monitor.jobs.claims import Guard, unguarded
from training_monitor.jobs.kinds import RAY, kind_of, prefix_of, prefix_of_config
from training_monitor.jobs.process_jobs import unhold_question
from training_monitor.logs.job_progress import job_progress
from training_monitor.logs.training_log import parse_progress
from training_monitor.targets.asking import Site
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport

AT_ONCE = 20  # jobs per round trip
MOST_JOBS = 1000  # that are looked at to list all
STATES_AT_ONCE = 200  # the same without their logs
_RECENT_SECONDS = 60.0
_Seen = TypeVar("_Seen")
# The metadata key under which a Ray job carries the configuration that it was made from.
_KEPT = "training_monitor"


def is_ray_job(job_id: str) -> bool:
    return prefix_of(job_id) == RAY


def look_questions(job_id: str) -> list[Question[Any]]:
    """Return the questions whose answers `read_look` needs."""
    if kind := kind_of(job_id):
        return [kind.look_question(job_id)]
    from training_monitor.jobs.ray_waiting import waiting_question  # most targets have no Ray

    return [ray_jobs.job_question(job_id), ray_jobs.log_question(job_id), waiting_question(job_id)]


def read_look(job_id: str, answers: list[Answer[Any]]) -> JobView | None:
    """Return the view of a job from its answers; None if there is no such job. Raises the failure if it is unknown."""
    found = answers[0].get()
    if found is None or isinstance(found, JobView):
        return found
    assert isinstance(found, RayJob)
    return _with_log(_view_of(found, answers[2]), answers[1])


def _with_log(view: JobView, log: Answer[Any]) -> JobView:
    """Add the end of the log to the view of a Ray job."""
    size, age, text = log.value or (None, None, "")
    view = replace(view, log_size=size, log_age=age, log_tail=text, log_known=log.known)
    return replace(view, progress=parse_progress(said_by(view)))


def said_by(view: JobView) -> str:
    """Return the end of a job's log without the command that Ray prints, since a script may mention steps."""
    return view.log_tail.replace(redact(f"Running entrypoint for job {view.job_id}: {view.command}"), "", 1)


def _view_of(job: RayJob, waiting: Answer[str | None] | None = None) -> JobView:
    """Return the view of a Ray job without its log, and the ends of its message without the log that Ray may append.

    An error of Ray's own has the cause in its last line. The message of a job that has not started is what it waits
    for, where that is known.
    """
    lines = [each.strip() for each in redact(job.message or "").partition(", last available logs")[0].splitlines()]
    broken = [each for each in lines if "Retry(total=0," in each]  # the last try of pip, which then finds no library
    message = " | ".join(dict.fromkeys(filter(None, (*lines[:1], *broken[-1:], *lines[-1:])))) or None
    if job.status is JobStatus.PENDING and waiting and waiting.value:
        message = waiting.value
    return JobView(
        job.submission_id, job.status, message, job.exit_code, started_at=job.start_time, command=job.entrypoint
    )


def look_at_job(
    target: str | Target, job_id: str, namespace: str = "default", *, transport: Transport | None = None
) -> JobView:
    """Look at a job in one round trip, or in two to read the log of a Ray job that has just failed.

    `job_id` may also be a name; see `find_ray_job`.

    Raises:
        JobNotFound: the target responded and has no such job. SettingsError: several jobs have this name.
        CommandError: the target could not be queried, so the job's status is unknown.
    """
    return by_name(see_job, Site.of(target, namespace, transport), job_id)


def by_name(look: Callable[[Site, str], _Seen], site: Site, name: str) -> _Seen:
    """Return what `look` returns for a job id, or else for the Ray job that a name means. Raises like both."""
    try:
        return look(site, name)
    except JobNotFound:
        if not is_ray_job(name):
            raise
        from training_monitor.jobs.names import find_ray_job  # most calls give the id

        return look(site, find_ray_job(site, name))


def see_job(site: Site, job_id: str) -> JobView:
    """Look at a job; see `look_at_job`."""
    view = read_look(job_id, site.ask(*look_questions(job_id)))
    if view is None:
        raise _no_job(site, job_id)
    return read_last_words(site, view)


def _no_job(site: Site, job_id: str) -> JobNotFound:
    return JobNotFound(f"{site}: no job {job_id!r}", hint=Hint("list the trainings with {find_trainings}"))


def read_last_words(site: Site, view: JobView) -> JobView:
    """Read the end of a Ray job's log again if it has just failed, as it may lack its last lines; else do nothing."""
    is_recent = view.log_age is not None and view.log_age < _RECENT_SECONDS
    if not is_ray_job(view.job_id) or view.status is not JobStatus.FAILED or not is_recent:
        return view
    [log] = site.ask(ray_jobs.log_question(view.job_id))
    return _with_log(view, log) if log.known else view


def list_jobs(target: str | Target, namespace: str = "default", *, transport: Transport | None = None) -> list[JobView]:
    """List the Ray jobs and process jobs of a target, oldest first. Without Ray, list only process jobs.

    `get_job_listing` returns the process jobs even if the Ray jobs cannot be listed, and vice versa.

    Raises:
        IncompleteAnswer: either the Ray jobs or the process jobs could not be listed.
        CommandError: the target could not be queried.
    """
    found = get_job_listing(target, namespace, transport=transport)
    if found.not_seen:
        raise IncompleteAnswer(f"{target}: not all jobs could be listed: {'; '.join(map(str, found.not_seen))}")
    return list(found.jobs)


def get_job_listing(
    target: str | Target, namespace: str = "default", *, transport: Transport | None = None
) -> JobListing:
    """Return the Ray jobs and process jobs of a target, oldest first, and list what could not be listed.

    All jobs are inspected, in as many round trips as necessary. A job that could not be inspected has the status
    UNKNOWN. The logs of process jobs, and of Ray jobs that have not ended, are read.

    Raises:
        CommandError: the target could not be queried.
    """
    site = Site.of(target, namespace, transport)
    ray, signs, names = site.ask(ray_jobs.jobs_question(), ray_jobs.signs_question(), process_jobs.jobs_question())
    not_seen = [missed] if (missed := ray_jobs.why_not_listed(ray, signs)) else []
    if names.failure and names.failure is ray.failure:  # for instance, the target has ended
        not_seen = [NotSeen("jobs", names.failure.what)]
    elif names.failure:
        not_seen.append(NotSeen("process jobs", names.failure.what))
    listed = [process_jobs.PREFIX + name for name in names.value or []]
    if len(listed) > MOST_JOBS:
        why = f"only the newest {MOST_JOBS} are inspected: remove old run directories"
        not_seen.append(NotSeen("older process jobs", why, len(listed) - MOST_JOBS))
        del listed[MOST_JOBS:]
    active = [job.submission_id for job in ray.value or () if ray_jobs.is_active(job)]
    waiting = [job.submission_id for job in ray.value or () if job.status is JobStatus.PENDING]
    questions: list[Question[Any]] = [process_jobs.look_question(job_id) for job_id in listed]
    questions += [ray_jobs.log_question(job_id) for job_id in active]
    questions += [look_questions(each)[-1] for each in waiting]
    answers = _ask_in_batches(site, questions)
    logs = dict(zip(active, answers[len(listed) :]))
    reasons = dict(zip(waiting, answers[len(listed) + len(active) :]))
    views = [_view_of(job, reasons.get(job.submission_id)) for job in ray.value or ()]
    views = [_with_log(view, logs[view.job_id]) if view.job_id in logs else view for view in views]
    views += [view for job_id, answer in zip(listed, answers) if (view := _view_in(job_id, answer)) is not None]
    odd = [NotSeen("entry of the jobs folder", each) for each in (names.value.odd if names.value else ())]
    return JobListing(tuple(sorted(views, key=lambda view: view.started_at or 0.0)), tuple(not_seen), tuple(odd))


def _ask_in_batches(site: Site, questions: list[Question[Any]]) -> list[Answer[Any]]:
    """Return the answers to any number of questions, in order."""
    batches = (questions[first : first + AT_ONCE] for first in range(0, len(questions), AT_ONCE))
    return [answer for batch in batches for answer in site.ask(*batch)]


def _view_in(job_id: str, answer: Answer[JobView | None]) -> JobView | None:
    """Return the view of a process job; None if it is gone, UNKNOWN if it could not be looked at."""
    if answer.known:
        return answer.value
    return JobView(job_id, JobStatus.UNKNOWN, f"it could not be inspected: {answer.error}", log_known=False)


def next_job_id(site: Site, job_name: str, *, prefix: str, at_least: int = 1) -> str:
    """Return NAME-attempt-N with the first N from `at_least` on that is higher than all on the target."""
    if kind := kind_of(prefix):
        names = site.ask_one(kind.jobs_question())
        return prefix + attempt_name(job_name, max(at_least, next_attempt(names, job_name)))
    jobs = site.ask_one(ray_jobs.jobs_question())
    number = next_attempt((job.submission_id for job in jobs), job_name)
    return attempt_name(job_name, max(at_least, number))


def start_job(
    site: Site,
    job_id: str,
    config: Mapping[str, Any],
    checkpoint: str | None,
    *,
    guard: Guard = unguarded,
    keep_attempts: int | None = None,
    on_removed: Callable[[Removed], None] | None = None,
) -> str:
    """Start a job under our own id; idempotent: an existing job with this id is not started again.

    Args:
        keep_attempts: how many former attempts keep their run directories; None: all of them.
        on_removed: called with the run directories that were removed.

    Returns:
        `started`, or `exists` if an earlier call had started it.

    Raises:
        CommandFailed: the target refused it.
        CommandError: unknown whether it runs; call again with the same id.
    """
    check_job_config(config)
    questions = [guard(_start_question(site.target, job_id, config, checkpoint))]
    if keep_attempts is not None:
        questions.append(guard(remove_question(job_id, keep_attempts)))
    try:
        [answer, *removed] = site.ask(*questions)
        how = "exists" if answer.get() == "exists" else "started"
        found = removed[0].value if removed else None
        if found and on_removed:
            on_removed(found)
        if found and found.held:
            _remove_holds(site, found.held, guard)
        return how
    except (CommandTimedOut, TargetUnreachable):
        see_job(site, job_id)
        return "exists"


def _remove_holds(site: Site, job_ids: tuple[str, ...], guard: Guard) -> None:
    """Remove the holds of Ray jobs that Ray no longer knows; keep them if Ray cannot be asked."""
    with suppress(TrainingMonitorError):
        known = {job.submission_id for job in site.ask_one(ray_jobs.jobs_question())}
        if gone := [each for each in job_ids if each not in known]:
            site.ask(guard(unhold_question(gone)))


def _start_question(target: Target, job_id: str, config: Mapping[str, Any], checkpoint: str | None) -> Question[str]:
    resume_argument = config.get("resume_argument")
    if kind := kind_of(job_id):
        command = config.get("command") or config.get("arguments") or ""
        line = command if isinstance(command, str) else shlex.join(command)
        env = format_resumed_env(config.get("env") or {}, checkpoint)
        return kind.start_question(
            target, job_id, format_resumed_command(line, checkpoint, resume_argument), env, config
        )
    resources = {key: config[key] for key in ray_jobs.RESOURCES if config.get(key) is not None}
    kept = {key: config[key] for key in ("entrypoint", "resume_argument") if config.get(key)}
    metadata = {**(config.get("metadata") or {}), _KEPT: json.dumps({**kept, **resources})}
    runtime_env = dict(config.get("runtime_env") or {})
    runtime_env["env_vars"] = format_resumed_env(runtime_env.get("env_vars") or {}, checkpoint)
    keep_secret(*secrets_of(runtime_env["env_vars"]))
    entrypoint = format_resumed_command(config["entrypoint"], checkpoint, resume_argument)
    return ray_jobs.submit_question(job_id, entrypoint, runtime_env, metadata, resources)


def submit_job_with_resume(
    head_pod: str | Target,
    checkpoint_path: str | None,
    config: Mapping[str, Any],
    namespace: str = "default",
    *,
    job_name: str = "training",
    transport: Transport | None = None,
) -> str:
    """Submit a job that resumes from a checkpoint (None: start from step 0), without waiting for its output.

    The ID of the job is NAME-attempt-N. If the response to a submission is lost, the job is found by this ID and is not
    submitted twice.

    Args:
        config: for a Ray job, `entrypoint` and optionally `runtime_env`, `metadata`, `entrypoint_num_gpus`, …; for a
            process job, `command` and optionally `env`, `working_dir`. The path of the checkpoint replaces
            `{checkpoint}` in the command, or becomes the value of the option that `config['resume_argument']` names.
            The environment variable RESUME_FROM_CHECKPOINT always contains this path.

    Returns:
        The ID of the new job.

    Raises:
        CommandFailed: the target refused the job. CommandError: the target could not be queried.
    """
    check_job_config(config)
    site = Site.of(head_pod, namespace, transport)
    job_id = next_job_id(site, job_name, prefix=prefix_of_config(config))
    try:
        start_job(site, job_id, config, checkpoint_path)
    except JobNotFound:  # the answer was lost and the job is not there: retry, since the same id cannot start twice
        start_job(site, job_id, config, checkpoint_path)
    return job_id


def find_jobs_named(site: Site, job_name: str, *, prefix: str) -> list[tuple[JobView, dict[str, Any] | None]]:
    """Return the jobs of a training (see `is_called`), oldest first, each with the configuration recorded by Ray.

    The logs of jobs of other kinds are read where anything of them runs.
    """
    kind = kind_of(prefix)
    if kind is None:
        from training_monitor.jobs.names import is_called

        jobs = site.ask_one(ray_jobs.jobs_question())
        return [(_view_of(job), _config_of(job)) for job in jobs if is_called(job, job_name)]
    found = site.ask_one(kind.jobs_question())
    named = [name for name in found if is_attempt_of(name, job_name)]
    names = sorted(named, key=lambda name: (name != job_name, attempt_number(name)))
    job_ids = [prefix + name for name in names]
    views: dict[str, JobView | None] = {}
    for first in range(0, len(job_ids), STATES_AT_ONCE):
        batch = job_ids[first : first + STATES_AT_ONCE]
        seen = site.ask_one(kind.states_question(batch))
        views |= dict(zip(batch, seen))
    active = [job_id for job_id, view in views.items() if view and (not view.status.is_terminal or view.survivors)]
    questions = [kind.look_question(job_id) for job_id in active]
    views |= {job_id: answer.get() for job_id, answer in zip(active, _ask_in_batches(site, questions))}
    return [(view, None) for view in views.values() if view is not None]


def _config_of(job: RayJob) -> dict[str, Any] | None:
    """Return Ray's record of the job; of our own jobs, with the entrypoint before a checkpoint was inserted."""
    if not job.entrypoint:
        return None
    if isinstance(variables := job.runtime_env.get("env_vars"), dict):
        keep_secret(*secrets_of({name: str(value) for name, value in variables.items()}))
    metadata = dict(job.metadata)
    try:
        kept = dict(json.loads(metadata.pop(_KEPT, "{}")))
    except (TypeError, ValueError):
        kept = {}
    return {"entrypoint": job.entrypoint, "runtime_env": dict(job.runtime_env), "metadata": metadata, **kept}


def get_job_config(site: Site, job_id: str) -> dict[str, Any] | None:
    """Return the entrypoint and runtime_env of a Ray job as recorded by Ray; None if there is no such job.

    That of another job is what its kind keeps, or None.
    """
    if kind := kind_of(job_id):
        question = kind.config_question(job_id)
        return site.ask_one(question) if question else None
    job = site.ask_one(ray_jobs.job_question(job_id))
    return _config_of(job) if job else None


def check_job_status(
    head_pod: str | Target, job_id: str, namespace: str = "default", *, transport: Transport | None = None
) -> str:
    """Return PENDING, RUNNING, STOPPED, SUCCEEDED or FAILED; UNKNOWN if there is no such job or the query failed."""
    try:
        return by_name(_see_status, Site.of(head_pod, namespace, transport), job_id)
    except TrainingMonitorError as error:
        if isinstance(error, ValueError):
            raise
        return JobStatus.UNKNOWN.value


def _see_status(site: Site, job_id: str) -> str:
    found = site.ask_one(look_questions(job_id)[0])
    if found is None:
        raise _no_job(site, job_id)
    return str(found.status)


def get_job_logs(
    head_pod: str | Target,
    job_id: str,
    tail: int = 100,
    namespace: str = "default",
    *,
    transport: Transport | None = None,
) -> str:
    """Return the last `tail` lines of a job's log, at most its last 64 KiB; '' while the log is empty.

    Raises:
        JobNotFound: there is no such job.
        CommandError: the target could not be queried.
    """
    view = by_name(look_with_log, Site.of(head_pod, namespace, transport), job_id)
    lines = view.log_tail.splitlines(keepends=True)
    return "".join(lines[-tail:] if tail > 0 else [])


def look_with_log(site: Site, job_id: str) -> JobView:
    """Look at a job, and fail without its log. Raises like `look_at_job`, and the failure to read the log."""
    answers = site.ask(*look_questions(job_id))
    view = read_look(job_id, answers)
    if view is None:
        raise _no_job(site, job_id)
    if failure := why_log_unread(view, answers):
        raise failure
    return view


def why_log_unread(view: JobView, answers: Sequence[Answer[Any]]) -> TrainingMonitorError | None:
    """Return the failure that kept us from a job's log; None if it was read."""
    if view.log_known:
        return None
    what = f"its log has {view.log_size} bytes, but none were returned: check that `tail` works there"
    return answers[min(1, len(answers) - 1)].failure or ParseError(what, source=view.job_id)


def get_current_step(
    head_pod: str | Target, job_id: str, namespace: str = "default", *, transport: Transport | None = None
) -> int | None:
    """Return the latest step in a job's log, over all epochs; None before the first step, or if there is no such job.

    Raises:
        CommandError: the target could not be queried.
    """
    try:
        return job_progress(by_name(look_with_log, Site.of(head_pod, namespace, transport), job_id).progress).step
    except JobNotFound:
        return None


def get_throughput(
    head_pod: str | Target, job_id: str, namespace: str = "default", *, transport: Transport | None = None
) -> float | None:
    """Return the latest steps per second in a job's log, otherwise samples or tokens per second; None if unknown."""
    progress = by_name(look_with_log, Site.of(head_pod, namespace, transport), job_id).progress
    speeds = (progress.steps_per_second, progress.samples_per_second, progress.tokens_per_second)
    return next((speed for speed in speeds if speed is not None), None)
