"""The commands that ask: each prints one answer and returns an exit status (0 ok, 1 bad, 3 unknown)."""

from __future__ import annotations

from argparse import Namespace

from training_monitor.cli.output import hint, print_json, say
from training_monitor.errors import JobNotFound
from training_monitor.models import JobStatus, JobView
from training_monitor.units import format_bytes, format_duration

OK, BAD, USAGE, UNKNOWN = 0, 1, 2, 3
_EXIT = {JobStatus.FAILED: BAD, JobStatus.STOPPED: BAD, JobStatus.UNKNOWN: UNKNOWN}


def status(args: Namespace) -> int:
    from training_monitor.parse.log_patterns import parse_metrics
    from training_monitor.policy.failure import classify_failure
    from training_monitor.probes.jobs import list_jobs, look_at_job
    from training_monitor.probes.settings_file import load_log_patterns

    if args.job is None:
        views = list_jobs(args.target, args.namespace)
        if args.json:
            print_json([_job_dict(view) for view in views])
        elif not views:
            say(f"{args.target}: no jobs")
        for view in [] if args.json else views:
            say(f"{view.job_id:<40} {view.status:<10} {_step(view)}  {view.message or ''}".rstrip())
        return OK
    view = look_at_job(args.target, args.job, args.namespace)
    metrics = parse_metrics(view.log_tail, load_log_patterns())
    failed = view.status is JobStatus.FAILED
    failure = classify_failure(view.log_tail, exit_code=view.exit_code) if failed else None
    if args.json:
        print_json({**_job_dict(view), "metrics": metrics, "failure": failure})
    else:
        age = f"  last output {format_duration(view.log_age)} ago" if view.log_age is not None else ""
        own = "".join(f"  {name} {value}" for name, value in metrics.items())
        say(f"{view.job_id} {view.status} step {_step(view)}{own}{age}" + (f"  {view.message}" if view.message else ""))
        if failure and failure.category not in ("none", "unknown"):
            say(f"  {failure.category} ({failure.error_class}): {failure.evidence}")
    return _EXIT.get(view.status, OK)


def _job_dict(view: JobView) -> dict[str, object]:
    return {
        "job_id": view.job_id,
        "status": view.status.value,
        "message": view.message,
        "exit_code": view.exit_code,
        "step": view.progress.step,
        "total_steps": view.progress.total_steps,
        "loss": view.progress.loss,
        "steps_per_second": view.progress.steps_per_second,
        "eta_seconds": view.progress.eta_seconds,
        "log_age": view.log_age,
        "started_at": view.started_at,
    }


def _step(view: JobView) -> str:
    step = "?" if view.progress.step is None else str(view.progress.step)
    return f"{step}/{view.progress.total_steps}" if view.progress.total_steps else step


def step(args: Namespace) -> int:
    from training_monitor.probes.jobs import look_at_job

    view = look_at_job(args.target, args.job, args.namespace)
    if args.json:
        print_json(view.progress)
    elif view.progress.step is None:
        hint(f"{args.job} has not printed a step yet")
    else:
        say(str(view.progress.step))
    return UNKNOWN if view.progress.step is None else OK


def logs(args: Namespace) -> int:
    from training_monitor.probes.jobs import get_job_logs

    text = get_job_logs(args.target, args.job, args.tail, args.namespace)
    if args.json:
        print_json({"job_id": args.job, "log": text})
    elif text:
        say(text.removesuffix("\n"))
    return OK


def health(args: Namespace) -> int:
    from training_monitor.probes.health import get_training_health
    from training_monitor.probes.health_text import format_training_health

    report = get_training_health(args.target, args.checkpoint_dir, args.pods or None, args.namespace, job_id=args.job)
    if args.json:
        print_json(report)
    else:
        say(format_training_health(report))
    return {"ok": OK, "warning": OK, "failed": BAD}.get(report["verdict"], UNKNOWN)


def gpu(args: Namespace) -> int:
    from training_monitor.probes.gpu import check_gpu_utilization

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
    from training_monitor.probes.efa import check_efa_utilization

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
    from training_monitor.probes.cluster import verify_ray_resources

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


def checkpoints(args: Namespace) -> int:
    from training_monitor.probes.checkpoints import checkpoints_question, newest_complete
    from training_monitor.targets.asking import ask

    [answer] = ask(args.target, checkpoints_question(args.directory), namespace=args.namespace)
    there = answer.get()
    found = there or []
    latest = newest_complete(found)
    if args.json:
        print_json({"checkpoints": found, "latest": latest})
    else:
        for each in found:
            mark = "*" if each is latest else " " if each.complete else "!"
            say(
                f"{mark} step {each.step:>9}  {format_bytes(each.size_bytes):>10}  {each.path}"
                + (f"  {each.problem}" if each.problem else "")
            )
        if not latest:
            what = "there is no such folder" if there is None else "none is complete" if found else "no checkpoints"
            hint(f"{args.target}: {args.directory}: {what}")
    return OK if latest else BAD


def stall(args: Namespace) -> int:
    from training_monitor.supervise.monitor import detect_stall

    stalled = detect_stall(args.target, args.job, args.threshold, args.sample, args.namespace)
    if args.json:
        print_json({"job_id": args.job, "stalled": stalled, "threshold": args.threshold})
    else:
        say(f"{args.job} {'is stalled' if stalled else 'is not stalled'}")
    return BAD if stalled else OK


def wait(args: Namespace) -> int:
    from training_monitor.supervise.monitor import monitor_job

    report = monitor_job(args.target, args.job, args.interval, args.timeout, args.threshold, namespace=args.namespace)
    if args.json:
        print_json(report)
    else:
        step_text = "?" if report["final_step"] is None else report["final_step"]
        say(
            f"{args.job} {report['status']} at step {step_text} after {format_duration(report['duration'])}: "
            f"{report['reason']}"
        )
    return {"SUCCEEDED": OK, "TIMEOUT": UNKNOWN, "UNKNOWN": UNKNOWN}.get(report["status"], BAD)


def stop(args: Namespace) -> int:
    from training_monitor.probes.jobs import stop_job

    ended = stop_job(args.target, args.job, args.namespace, grace=args.grace)
    if args.json:
        print_json({"job_id": args.job, "status": ended})
    else:
        say(f"{args.job} {ended}: nothing of it is left")
    return OK


def exit_status(error: Exception) -> int:
    """What an error means to a script: 2 wrong use, 1 a definite no, 3 nobody knows."""
    from training_monitor.errors import AlreadySupervised, CheckpointNotFound, CommandFailed, JobExists, SettingsError

    if isinstance(error, SettingsError):
        return USAGE
    definite = (JobNotFound, CheckpointNotFound, CommandFailed, JobExists, AlreadySupervised)
    return BAD if isinstance(error, definite) else UNKNOWN
