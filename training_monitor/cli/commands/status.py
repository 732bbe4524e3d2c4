"""`status`: print one job's status, or list all jobs of a target."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING

from training_monitor.cli.keys import progress_keys, verdict_keys
from training_monitor.cli.output import BAD, OK, UNKNOWN, complain, hint, print_json, put_report, say
from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.models import Answer, JobStatus, JobView
from training_monitor.core.units import format_duration
from training_monitor.core.values import Verdict
from training_monitor.jobs.attempts import training_name
from training_monitor.logs.job_progress import format_position, format_standing, job_progress
from training_monitor.targets.asking import ask
from training_monitor.verdict.judge import UNNAMED_FAILURES, format_verdict

if TYPE_CHECKING:
    from training_monitor.jobs.claims import Claim, Claims

from training_monitor.cli.argument_types import CommandParser, some_name
from training_monitor.cli.command_table import Command

JOB_KEYS = ("job_id", "status", "message", "exit_code", "log_age", "started_at")  # fields of `JobView`
_EXIT = {JobStatus.FAILED: BAD, JobStatus.STOPPED: BAD, JobStatus.UNKNOWN: UNKNOWN}


def declare(command: CommandParser) -> None:
    command.target()
    command.value("job", "JOB", "a job ID or name (default: all process jobs and Ray jobs)", nargs="?", type=some_name)


def run(args: Namespace) -> int:
    return _list_jobs(args) if args.job is None else _show_job(args)


def _list_jobs(args: Namespace) -> int:
    from training_monitor.look.check import judge_jobs

    judged, listing = judge_jobs(args.target, args.namespace)
    claims = _ask_claims(args) if judged else Answer("claims", None)
    if args.json:
        jobs = [_job_keys(view, verdict, claims) for view, verdict in judged]
        print_json(args, {"jobs": jobs, "not_seen": listing.not_seen, "odd": listing.odd})
    elif not judged and not listing.not_seen:
        say(f"{args.target}: no jobs")
        hint("`training-monitor check TARGET` also finds trainings that were not started as jobs")
    for view, verdict in [] if args.json else judged:
        said = verdict.reason if view.status is JobStatus.RUNNING else view.message or ""
        position = "not started" if view.status is JobStatus.PENDING else format_position(job_progress(view.progress))
        put_report(f"{view.job_id:<40} {view.status:<10} {verdict.state:<9} {position}  {said}".rstrip())
        if not view.status.is_terminal:
            _say_supervisor(claims, view)
    for each in listing.odd:
        hint(f"{args.target}: skipped: {each}")
    for each in listing.not_seen:
        complain(f"{args.target}: not listed: {each}")
    return UNKNOWN if listing.not_seen else OK


def _show_job(args: Namespace) -> int:
    from training_monitor.logs import load_log_patterns, parse_metrics
    from training_monitor.look.meant import named_job
    from training_monitor.supervision import JobMonitor

    monitor = JobMonitor(args.target, named_job(args.job), args.namespace)
    monitor.update()
    view, verdict = monitor.view, monitor.verdict()
    assert view
    metrics = parse_metrics(view.log_tail, load_log_patterns())
    claims = _ask_claims(args)
    job = {**_job_keys(view, verdict, claims), "metrics": metrics}
    if not print_json(args, {"jobs": [job], "not_seen": [], "odd": []}):
        age = f"  last output {format_duration(view.log_age)} ago" if view.log_age is not None else ""
        own = "".join(f"  {name} {value}" for name, value in metrics.items())
        standing = format_standing(view.status, view.progress, view.message)
        message = f"  {view.message}" if view.message and view.status is not JobStatus.PENDING else ""
        say(f"{view.job_id} {standing}{own}{age}{message}")
        say(f"  {format_verdict(verdict)}")
        _say_supervisor(claims, view)
        if verdict.failure and verdict.failure.category not in UNNAMED_FAILURES:
            say(f"  kind of failure: {verdict.failure.category} ({verdict.failure.error_class})")
    if view.status is JobStatus.SUCCEEDED and verdict.verdict == "unknown":  # its log says something else
        return UNKNOWN
    return BAD if verdict.verdict == "failed" else _EXIT.get(view.status, OK)


def _ask_claims(args: Namespace) -> Answer[Claims]:
    from training_monitor.jobs.claims import list_question

    [answer] = ask(args.target, list_question(), namespace=args.namespace)
    return answer


def _claim_on(claims: Answer[Claims], view: JobView) -> Claim | None:
    """Return the claim on a job's training, if any. Raises when the target could not be asked."""
    known = claims.get()
    return known.of(training_name(view.job_id)) if known else None


def _say_supervisor(claims: Answer[Claims], view: JobView) -> None:
    try:
        if claim := _claim_on(claims, view):
            say(f"  supervised by {claim}")
    except TrainingMonitorError as error:
        say(f"  its supervisor could not be read: {error}")


def _claim_keys(claims: Answer[Claims], view: JobView) -> dict[str, object]:
    try:
        claim = _claim_on(claims, view)
    except TrainingMonitorError as error:
        return {"supervisor": None, "supervisor_error": str(error)}
    told = claim and {**asdict(claim.owner), "since": claim.since, "age": claim.age}
    return {"supervisor": told, "supervisor_error": None}


def _job_keys(view: JobView, verdict: Verdict, claims: Answer[Claims]) -> dict[str, object]:
    looked = {name: getattr(view, name) for name in JOB_KEYS}
    judged = {**progress_keys(view.progress), **verdict_keys(verdict)}
    return {**looked, **judged, **_claim_keys(claims, view), "metrics": None}


COMMAND = Command(run, declare, ("my-pod", "my-pod my-training"))
