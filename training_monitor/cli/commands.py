"""The commands that ask once and print one answer, and the exit statuses of all commands.

Each returns an exit status: 0 ok, 1 bad, 3 unknown.
"""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from training_monitor.cli.output import complain, hint, print_json, say
from training_monitor.core.errors import (
    AlreadySupervised,
    CheckpointNotFound,
    CommandFailed,
    IncompleteAnswer,
    JobExists,
    JobNotFound,
    LeaseLost,
    SettingsError,
    TrainingMonitorError,
)
from training_monitor.core.models import Answer, JobStatus, JobView
from training_monitor.core.units import format_bytes, format_duration, plural
from training_monitor.core.values import CheckpointListing, Verdict, WatchedJob
from training_monitor.jobs.attempts import training_name
from training_monitor.judging.judge import UNNAMED_FAILURES, format_verdict
from training_monitor.logs.job_progress import format_position, job_progress

if TYPE_CHECKING:
    from training_monitor.jobs.claims import Claim, Claims

OK, BAD, USAGE, UNKNOWN, TAKEN_OVER = 0, 1, 2, 3, 4
_EXIT = {JobStatus.FAILED: BAD, JobStatus.STOPPED: BAD, JobStatus.UNKNOWN: UNKNOWN}
_MARKS = {True: " ", False: "!", None: "?"}  # before a checkpoint: complete, refused, unknown
_DEFINITE = (CheckpointNotFound, CommandFailed, JobExists, AlreadySupervised)


def status(args: Namespace) -> int:
    return _list_jobs(args) if args.job is None else _show_job(args)


def _list_jobs(args: Namespace) -> int:
    from training_monitor.observe.check import judge_jobs

    judged, not_seen = judge_jobs(args.target, args.namespace)
    claims = _ask_claims(args) if judged else Answer("claims", None)
    if args.json:
        print_json(
            [{**_job_dict(view), **_verdict_dict(verdict), **_claim_dict(claims, view)} for view, verdict in judged]
        )
    elif not judged and not not_seen:
        say(f"{args.target}: no jobs")
        hint("`training-monitor check TARGET` also finds trainings that are no jobs")
    for view, verdict in [] if args.json else judged:
        said = verdict.reason if view.status is JobStatus.RUNNING else view.message or ""
        say(f"{view.job_id:<40} {view.status:<10} {verdict.state:<9} {_position(view)}  {said}".rstrip())
        if not view.status.is_terminal:
            _say_supervisor(claims, view)
    for each in not_seen:
        complain(f"{args.target}: not listed: {each}")
    return UNKNOWN if not_seen else OK


def _show_job(args: Namespace) -> int:
    from training_monitor.logs.patterns import load_log_patterns, parse_metrics
    from training_monitor.observe.meant import named_job
    from training_monitor.watch.monitor import JobMonitor

    monitor = JobMonitor(args.target, named_job(args.job), args.namespace)
    monitor.update()
    view, verdict = monitor.view, monitor.verdict()
    assert view
    metrics = parse_metrics(view.log_tail, load_log_patterns())
    claims = _ask_claims(args)
    if args.json:
        said = {**_job_dict(view), **_verdict_dict(verdict), **_claim_dict(claims, view)}
        print_json({**said, "metrics": metrics, "failure": verdict.failure})
    else:
        age = f"  last output {format_duration(view.log_age)} ago" if view.log_age is not None else ""
        own = "".join(f"  {name} {value}" for name, value in metrics.items())
        say(f"{view.job_id} {view.status} {_position(view)}{own}{age}" + (f"  {view.message}" if view.message else ""))
        say(f"  {format_verdict(verdict)}")
        _say_supervisor(claims, view)
        if verdict.failure and verdict.failure.category not in UNNAMED_FAILURES:
            say(f"  kind of failure: {verdict.failure.category} ({verdict.failure.error_class})")
    return BAD if verdict.verdict == "failed" else _EXIT.get(view.status, OK)


def _verdict_dict(verdict: Verdict) -> dict[str, object]:
    return {name: getattr(verdict, name) for name in ("state", "verdict", "reason", "seconds_without_step")}


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


def _claim_dict(claims: Answer[Claims], view: JobView) -> dict[str, object]:
    try:
        claim = _claim_on(claims, view)
    except TrainingMonitorError as error:
        return {"supervisor": None, "supervisor_error": str(error)}
    told = claim and {**asdict(claim.owner), "since": claim.since, "age": claim.age}
    return {"supervisor": told, "supervisor_error": None}


def _job_dict(view: JobView) -> dict[str, object]:
    job = job_progress(view.progress)
    return {
        "job_id": view.job_id,
        "status": view.status.value,
        "message": view.message,
        "exit_code": view.exit_code,
        "step": job.step,
        "total_steps": job.total_steps,
        "loss": view.progress.loss,
        "steps_per_second": view.progress.steps_per_second,
        "eta_seconds": job.eta_seconds,
        "log_age": view.log_age,
        "started_at": view.started_at,
    }


def _position(view: JobView) -> str:
    return format_position(job_progress(view.progress))


def step(args: Namespace) -> int:
    view = _look(args)
    job = job_progress(view.progress)
    if args.json:
        own = {"step": job.step, "total_steps": job.total_steps, "fraction": job.fraction}
        print_json({**asdict(view.progress), **own, "eta_seconds": job.eta_seconds, "eta_scope": "job"})
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
        print_json({"job_id": args.job, "log": text})
    elif text:
        say(text.removesuffix("\n"))
    return OK


def _look(args: Namespace) -> JobView:
    """Look once at a job, or at a log or process as if it were one. Raises also when its log could not be read."""
    from training_monitor.jobs.jobs import look_with_log
    from training_monitor.observe.meant import named_job
    from training_monitor.targets.asking import Site
    from training_monitor.watch.monitor import JobMonitor

    job = named_job(args.job)
    if job.job_id is not None:
        return look_with_log(Site.of(args.target, args.namespace), job.job_id)
    monitor = JobMonitor(args.target, job, args.namespace)
    monitor.update()
    assert monitor.view
    return monitor.view


def health(args: Namespace) -> int:
    from training_monitor.health.verdict import format_training_health
    from training_monitor.observe.health_report import get_training_health

    folder = args.checkpoint_dir or _found_folder(args)
    report = get_training_health(args.target, folder, args.pods or None, args.namespace, job_id=args.job)
    if args.json:
        print_json(report)
    else:
        say(format_training_health(report))
    return {"ok": OK, "warning": OK, "failed": BAD}.get(report["verdict"], UNKNOWN)


def _found_folder(args: Namespace) -> str | None:
    """Return the checkpoint folder of the training there, if it can be found."""
    from training_monitor.observe.meant import find_one

    try:
        return find_one(args.target, args.job, args.namespace).job.output_dir
    except TrainingMonitorError:
        return None


def gpu(args: Namespace) -> int:
    from training_monitor.health.host import check_gpu_utilization

    report = check_gpu_utilization(args.target, args.namespace)
    if args.json:
        print_json(report)
        return OK if report["healthy"] else UNKNOWN if report["gpu_count"] is None else BAD
    for index, name in enumerate(report["gpu_names"]):
        error = report["gpu_errors"][index]
        used, total = report["memory_used"][index], report["memory_total"][index]
        draw, limit = report["power_draw"][index], report["power_limit"][index]
        say(
            f"GPU {index}  {name or '?'}  "
            + (
                error
                or (
                    f"{_number(report['gpu_utilizations'][index], ' %')}  {_number(used)}/{_number(total, ' MB')}  "
                    f"{_number(draw)}/{_number(limit, ' W')}  {_number(report['temperatures'][index], ' °C')}"
                )
            )
        )
    for process in report["processes"]:
        say(f"  pid {process['pid']}  {_number(process['memory'], ' MB')}  {process['name']}")
    if report["error"]:
        hint(f"{args.target}: {report['error']}")
    return OK if report["healthy"] else UNKNOWN if report["gpu_count"] is None else BAD


def _number(value: float | None, unit: str = "") -> str:
    return "?" if value is None else f"{value:.0f}{unit}"


def efa(args: Namespace) -> int:
    from training_monitor.health.nccl import check_efa_utilization

    report = check_efa_utilization(args.target, args.namespace, all_pods=args.pods)
    active = {True: "active", False: "NOT active", None: "unknown"}[report["efa_active"]]
    if args.json:
        print_json(report)
    else:
        say(f"EFA {active}, transport {report['transport']}: {report['details']}")
        for node in report["per_node"] if len(report["per_node"]) > 1 else ():
            say(f"  {node['pod']}: {node['transport']}: {node['details']}")
    return {True: OK, False: BAD, None: UNKNOWN}[report["efa_active"]]


def resources(args: Namespace) -> int:
    from training_monitor.health.cluster import verify_ray_resources

    report = verify_ray_resources(args.target, args.namespace)
    if args.json:
        print_json(report)
    elif report["error"]:
        hint(f"{args.target}: {report['error']}")
    else:
        say(
            f"GPUs {report['gpus_used']:g}/{report['gpus_available']:g} used, "
            f"CPUs {report['cpus_used']:g}/{report['cpus_available']:g} used"
        )
        for demand in report["pending_demands"]:
            say(f"  waiting: {demand}")
    return OK if report["healthy"] else UNKNOWN


def format_unlisted(count: int) -> str:
    """Format how many entries of a checkpoint folder were not examined."""
    return f"{plural(count, 'older checkpoint or closed folder', 'older checkpoints or closed folders')}, not looked at"


def checkpoints(args: Namespace) -> int:
    from training_monitor.checkpoints.checkpoints import get_checkpoint_listing
    from training_monitor.judging.restart import why_none_is_complete

    there = get_checkpoint_listing(args.directory, args.target, args.namespace)
    found = there or CheckpointListing(())
    latest = found.newest_complete
    if args.json:
        print_json({"checkpoints": found.checkpoints, "latest": latest, "unlisted": found.unlisted})
    else:
        if found.unlisted:
            say(f"? {format_unlisted(found.unlisted)}")
        for each in found.checkpoints:
            mark = "*" if each is latest else _MARKS[each.complete]
            say(
                f"{mark} step {each.step:>9}  {format_bytes(each.size_bytes):>10}  {each.path}"
                + (f"  {each.problem}" if each.problem else "")
            )
        if not latest:
            what = "there is no such folder" if there is None else why_none_is_complete(found)
            hint(f"{args.target}: {args.directory}: {what}")
    return OK if latest else BAD


def wait(args: Namespace) -> int:
    from training_monitor.observe.meant import find_one
    from training_monitor.watch.monitor import monitor_job

    meant = find_one(args.target, args.what, args.namespace)
    job = replace(meant.job, name=meant.name)
    report = monitor_job(args.target, job, args.interval, args.timeout, args.stall_after, namespace=args.namespace)
    if args.json:
        print_json(report)
    else:
        step_text = "?" if report["final_step"] is None else report["final_step"]
        say(
            f"{report['job_id']} {report['status']} at step {step_text} after {format_duration(report['duration'])}: "
            f"{report['reason']}"
        )
    return {"SUCCEEDED": OK, "TIMEOUT": UNKNOWN, "UNKNOWN": UNKNOWN}.get(report["status"], BAD)


def stop(args: Namespace) -> int:
    from training_monitor.jobs.stopping import stop_job
    from training_monitor.observe.meant import named_job

    job = named_job(args.job)
    if job.job_id is None:
        return _stop_process(args, job)
    ended = stop_job(args.target, args.job, args.namespace, grace=args.stop_grace, on_progress=hint)
    if args.json:
        print_json({"job_id": args.job, "status": ended})
    else:
        say(f"{args.job} {ended}: nothing of it is left")
    return OK


def _stop_process(args: Namespace, job: WatchedJob) -> int:
    """Stop a training that is not a job, by its PID or its log."""
    from training_monitor.watch.watcher import TrainingWatcher

    left = TrainingWatcher(args.target, job, namespace=args.namespace).stop_run(args.stop_grace)
    if left:
        raise CommandFailed(f"{job.label}: not even SIGKILL ended {', '.join(left)}", target=args.target)
    if args.json:
        print_json({"job_id": None, "name": job.label, "status": "STOPPED"})
    else:
        say(f"{job.label} is stopped: nothing of it is left")
    return OK


def read_alone(args: Namespace) -> None:
    """Interpret a PID, a path or `process:NAME` without a target as one on this machine."""
    if not hasattr(args, "what") and args.subcommand != "status":
        return
    from training_monitor.observe.meant import is_path, is_pid

    word, name = args.target, "what" if hasattr(args, "what") else "job"
    if getattr(args, name) is None and (is_pid(word) or is_path(word) or word.startswith("process:")):
        args.target = "local"
        setattr(args, name, word)


def meant_job(args: Namespace, error: Exception) -> str:
    """Return the job or PID that an unknown job name refers to; raises the error if there is none."""
    from training_monitor.observe.meant import find_one, named_job

    if isinstance(error, SettingsError) or named_job(args.job).job_id is None:
        raise error
    try:
        job = find_one(args.target, args.job.removeprefix("process:"), args.namespace).job
    except (SettingsError, IncompleteAnswer):
        raise
    except TrainingMonitorError as other:
        raise (other if type(other) is type(error) else error) from None
    meant = job.job_id or str(job.pid)
    if meant == args.job:
        raise error
    return meant


def tell_error(error: TrainingMonitorError, *, as_json: bool) -> None:
    """Print an error to stderr; with --json also as JSON to stdout."""
    if as_json:
        said = {"error": error.what, "kind": type(error).__name__, "hint": error.hint}
        print_json({**said, "owner": error.owner} if isinstance(error, LeaseLost) else said)
    complain(str(error))


def exit_status(error: TrainingMonitorError) -> int:
    """Return the exit status of an error: 2 wrong use, 1 a definite no, 3 unknown, 4 taken over."""
    if isinstance(error, (SettingsError, JobNotFound)):
        return USAGE
    if isinstance(error, LeaseLost):
        return TAKEN_OVER
    return BAD if isinstance(error, _DEFINITE) else UNKNOWN
