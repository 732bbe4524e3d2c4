"""The commands about jobs that ask once and print one answer; each returns its exit status."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from training_monitor.cli.keys import progress_keys, verdict_keys
from training_monitor.cli.output import (
    BAD,
    EXITS,
    OK,
    UNKNOWN,
    USAGE,
    complain,
    hint,
    paint,
    print_json,
    put,
    refuse,
    say,
)
from training_monitor.core.errors import CommandFailed, IncompleteAnswer, JobNotFound, TrainingMonitorError
from training_monitor.core.frozen import asdict
from training_monitor.core.models import Answer, JobStatus, JobView
from training_monitor.core.reports import CheckReport, GpuCheckReport, JobCheckReport
from training_monitor.core.shown import shown, shown_lines
from training_monitor.core.units import format_bytes, format_duration
from training_monitor.core.values import NotSeen, Verdict
from training_monitor.jobs.attempts import training_name
from training_monitor.judging.judge import ENDS, UNNAMED_FAILURES, format_verdict
from training_monitor.logs.job_progress import format_position, format_standing, job_progress

if TYPE_CHECKING:
    from training_monitor.jobs.claims import Claim, Claims

_COLOURS = {"ok": "green", "warning": "yellow", "failed": "red", "unknown": "blue"}
BAR_WIDTH = 24
_LABEL = 11
_WITHOUT_ETA = ("stalled", "suspended", *ENDS)  # states without remaining time
JOB_KEYS = ("job_id", "status", "message", "exit_code", "log_age", "started_at")  # fields of `JobView`
_EXIT = {JobStatus.FAILED: BAD, JobStatus.STOPPED: BAD, JobStatus.UNKNOWN: UNKNOWN}


def check(args: Namespace) -> int:
    from training_monitor.observe.check import check_training

    try:
        report = check_training(args.target, args.what, args.namespace, forget_ended=args.forget)
    except (JobNotFound, CommandFailed) as error:  # not found, or of another kind: nothing was judged
        return refuse(error, args, USAGE)
    if not print_json(args, report):
        show(report)
    return EXITS[report["verdict"]]


def stall(args: Namespace) -> int:
    from training_monitor.observe.check import check_training

    look = partial(check_training, args.target, args.what, args.namespace, stagnation_threshold=args.stall_after)
    report = look()
    if report["verdict"] == "unknown" and args.sample > 0:
        time.sleep(args.sample)
        report = look()
    if not report["jobs"]:
        kind = IncompleteAnswer if report["not_seen"] else JobNotFound
        raise kind(report["reason"], hint="name a PID, a log file or a job")
    if args.json:
        jobs = [{"stalled": _is_stalled(found), **found} for found in report["jobs"]]
        print_json(args, {**report, "stall_after": args.stall_after, "jobs": jobs})
    for found in [] if args.json else report["jobs"]:
        is_said = found["state"] in ENDS
        say(f"{found['name']} " + (found["reason"] if is_said else f"is {found['state']}: {found['reason']}"))
    for each in report["not_seen"]:
        hint(f"not seen: {NotSeen(**each)}")
    return EXITS[report["verdict"]]


def _is_stalled(job: JobCheckReport) -> bool | None:
    return None if job["verdict"] == "unknown" else job["state"] == "stalled"


def show(report: CheckReport) -> None:
    """Print one block for one training, one line each for several, worst first."""
    jobs = report["jobs"]
    if len(jobs) == 1:
        put("".join(f"{line}\n" for line in _block(jobs[0])))
    else:
        put("".join(f"{_line(job)}\n" for job in jobs))
    if not jobs:
        put(f"{paint('UNKNOWN', _COLOURS['unknown'], sys.stdout):<9} {shown(report['reason'])}\n")
    for each in report["not_seen"]:
        put(f"? {_indented(str(NotSeen(**each)), 2)}\n")
    for remedy in report["remedies"]:
        hint(f"try: {remedy}")


def _verdict(job: JobCheckReport) -> str:
    return paint(f"{job['state'].upper():<9}", _COLOURS[job["verdict"]], sys.stdout)


def _line(job: JobCheckReport) -> str:
    """Format one training on one line: position, reason of the verdict, and log."""
    said = ", ".join(_numbers(job)) if job["state"] == "running" and job["verdict"] == "ok" else job["reason"]
    text = shown(f"{job['name']:<22} {_reached(job):<18} {said}" + (f" ({job['log']})" if job["log"] else ""))
    return f"{_verdict(job)} {text.rstrip()}"


def _reached(job: JobCheckReport) -> str:
    if job["step"] is not None:
        return f"step {job['step']}/{job['total_steps']}" if job["total_steps"] else f"step {job['step']}"
    return f"epoch {job['epoch']:.3g}" if job["epoch"] is not None else "-"


def _block(job: JobCheckReport) -> Iterator[str]:
    yield f"{_verdict(job)} {_indented(job['reason'], 10)}"
    for label, text in _facts(job):
        yield f"  {label:<{_LABEL}}{_indented(text)}"
    if job["explanation"]:
        yield f"  {'why':<{_LABEL}}{_indented(_explanation(job))}"
    for remedy in job["remedies"]:
        yield f"  {'try':<{_LABEL}}{_indented(remedy)}"
    for error in job["errors"]:
        yield f"  {'not known':<{_LABEL}}{_indented(error)}"


def _indented(text: str, width: int = _LABEL + 2) -> str:
    """Return what is shown of a text; its further lines are indented, so that none looks like one of ours."""
    return shown_lines(text).replace("\n", f"\n{' ' * width}")


def _facts(job: JobCheckReport) -> Iterator[tuple[str, str]]:
    """Yield label and text of each known fact."""
    if job["progress"] is not None:
        filled = round(job["progress"] * BAR_WIDTH)
        bar = f"[{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {job['progress']:.0%}"
        yield "progress", "  ".join([bar, _reached(job), *_numbers(job)])
    elif job["step"] is not None or job["loss"] is not None:
        yield "progress", "  ".join([_reached(job), *_numbers(job)])
    if job["seconds_without_step"] is not None and job["state"] not in ENDS:
        limit = "" if job["limit_seconds"] is None else f", limit {format_duration(job['limit_seconds'])}"
        yield "silence", f"{format_duration(job['seconds_without_step'])} without a step{limit}"
    if job["job_id"]:
        yield "job", job["job_id"]
    if job["pid"] is not None:
        yield "process", f"{job['pid']}  {job['command'] or ''}".rstrip()
    elif job["command"]:
        yield "command", job["command"]
    if job["log"]:
        yield "log", job["log"]
    if checkpoint := job["checkpoint"]:
        yield "checkpoint", f"step {checkpoint['step']}  {format_bytes(checkpoint['size_bytes'])}  {checkpoint['path']}"
    if job["gpus"]:
        yield "GPUs", ", ".join(_gpu(gpu) for gpu in job["gpus"])


def _explanation(job: JobCheckReport) -> str:
    """Return what the last roll call said, when, and of which attempt."""
    of = job["explained_job_id"]
    whose = "it" if of in (None, job["job_id"]) else of
    ago = "" if job["explained_at"] is None else f"{format_duration(max(0.0, time.time() - job['explained_at']))} ago, "
    return f"{ago}before {whose} was ended: {job['explanation']}"


def _numbers(job: JobCheckReport) -> Iterator[str]:
    if job["loss"] is not None:
        yield f"loss {job['loss']:.4g}"
    if job["steps_per_second"]:
        yield f"{job['steps_per_second']:.3g} steps/s"
    if job["eta_seconds"] is not None and job["state"] not in _WITHOUT_ETA:
        yield f"ETA {format_duration(job['eta_seconds'])}"


def _gpu(gpu: GpuCheckReport) -> str:
    if gpu["error"]:
        return f"{gpu['index']}: {gpu['error']}"
    used, power = gpu["gpu_utilization"], gpu["gpu_power"]
    words = ["?" if used is None else f"{used:.0f} %"]
    if isinstance(power, float):
        words.append(f"{power:.0%} of its power")
    return f"{gpu['index']}: {' at '.join(words)}"


def status(args: Namespace) -> int:
    return _list_jobs(args) if args.job is None else _show_job(args)


def _list_jobs(args: Namespace) -> int:
    from training_monitor.observe.check import judge_jobs

    judged, listing = judge_jobs(args.target, args.namespace)
    claims = _ask_claims(args) if judged else Answer("claims", None)
    if args.json:
        jobs = [_job_keys(view, verdict, claims) for view, verdict in judged]
        print_json(args, {"jobs": jobs, "not_seen": listing.not_seen, "odd": listing.odd})
    elif not judged and not listing.not_seen:
        say(f"{args.target}: no jobs")
        hint("`training-monitor check TARGET` also finds trainings that are no jobs")
    for view, verdict in [] if args.json else judged:
        said = verdict.reason if view.status is JobStatus.RUNNING else view.message or ""
        position = "not started" if view.status is JobStatus.PENDING else format_position(job_progress(view.progress))
        say(f"{view.job_id:<40} {view.status:<10} {verdict.state:<9} {position}  {said}".rstrip())
        if not view.status.is_terminal:
            _say_supervisor(claims, view)
    for each in listing.odd:
        hint(f"{args.target}: passed over: {each}")
    for each in listing.not_seen:
        complain(f"{args.target}: not listed: {each}")
    return UNKNOWN if listing.not_seen else OK


def _show_job(args: Namespace) -> int:
    from training_monitor.logs import load_log_patterns, parse_metrics
    from training_monitor.observe.meant import named_job
    from training_monitor.watch import JobMonitor

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
    return BAD if verdict.verdict == "failed" else _EXIT.get(view.status, OK)


def _ask_claims(args: Namespace) -> Answer[Claims]:
    from training_monitor.jobs.claims import list_question
    from training_monitor.targets.asking import ask

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
        say(f"  who supervises it is not known: {error}")


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


def step(args: Namespace) -> int:
    view = _look(args)
    job = job_progress(view.progress)
    if args.json:
        print_json(args, {"job_id": args.job, **progress_keys(view.progress)})
    elif job.step is None:
        hint(f"{args.job} has not printed a step yet")
    else:
        say(str(job.step))
    return UNKNOWN if job.step is None else OK


def logs(args: Namespace) -> int:
    from training_monitor.jobs.process_jobs import LOG_BYTES

    view = _look(args)
    lines = view.log_tail.splitlines(keepends=True)
    text = "".join(lines[-args.tail :] if args.tail > 0 else [])
    if len(lines) <= args.tail and len(view.log_tail.encode()) >= LOG_BYTES:
        hint(f"only the last {format_bytes(LOG_BYTES)} of the log were read: it has older lines")
    if args.json:
        print_json(args, {"job_id": args.job or view.job_id, "text": text})
    elif text:
        say(text.removesuffix("\n"))
    return OK


def _look(args: Namespace) -> JobView:
    """Look once at a job, or at a log or process as if it were one. Raises also when its log could not be read."""
    from training_monitor.jobs.jobs import look_with_log
    from training_monitor.observe.meant import find_one_at, named_job, reach
    from training_monitor.targets.asking import Site
    from training_monitor.watch import JobMonitor

    site, job = Site.of(args.target, args.namespace), named_job(args.job) if args.job else None
    if job and job.job_id is not None:
        return look_with_log(site.resolve(), job.job_id)
    if job is None or job.pid is not None:  # it may print elsewhere than into a file
        site = reach(site)
        job = find_one_at(site, args.job).job
    monitor = JobMonitor(site.target, job)
    monitor.update()
    assert monitor.view
    return monitor.view


def stop(args: Namespace) -> int:
    from training_monitor.jobs.jobs import see_job
    from training_monitor.jobs.stopping import end_job
    from training_monitor.observe.meant import named_job
    from training_monitor.targets.asking import Site
    from training_monitor.watch import TrainingWatcher

    job, status, said = named_job(args.job), "STOPPED", "is stopped"
    if job.job_id is not None:
        site = Site.of(args.target, args.namespace)
        see_job(site, job.job_id)
        status = said = end_job(site, job.job_id, grace=args.stop_grace, on_progress=hint)
    elif left := TrainingWatcher(args.target, job, namespace=args.namespace).stop_run(args.stop_grace):
        raise CommandFailed(f"{job.label}: not even SIGKILL ended {', '.join(left)}", target=args.target)
    if not print_json(args, {"job_id": job.job_id, "name": job.label, "status": status}):
        say(f"{job.label} {said}: nothing of it is left")
    return OK
