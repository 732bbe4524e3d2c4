"""The commands that read one thing and print it; each returns its exit status."""

from __future__ import annotations

from argparse import Namespace

from training_monitor.cli.output import (
    BAD,
    EXITS,
    OK,
    format_unlisted,
    hint,
    number,
    print_json,
    say,
)
from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.units import format_bytes
from training_monitor.core.values import CheckpointListing

_MARKS = {True: " ", False: "!", None: "?"}  # before a checkpoint: complete, refused, unknown


def health(args: Namespace) -> int:
    from training_monitor.health import format_training_health
    from training_monitor.observe.health_report import get_training_health

    folder = args.checkpoint_dir or _found_folder(args)
    report = get_training_health(args.target, folder, args.pods or None, args.namespace, job_id=args.job)
    if not print_json(args, report):
        say(format_training_health(report))
    return EXITS[report["verdict"]]


def _found_folder(args: Namespace) -> str | None:
    """Return the checkpoint folder of the training there, if it can be found."""
    from training_monitor.observe.meant import find_one

    try:
        return find_one(args.target, args.job, args.namespace).job.output_dir
    except TrainingMonitorError:
        return None


def gpu(args: Namespace) -> int:
    from training_monitor.health import check_gpu_utilization

    report = check_gpu_utilization(args.target, args.namespace)
    verdict = "ok" if report["healthy"] else "unknown" if report["gpu_count"] is None else "failed"
    if print_json(args, report, verdict):
        return EXITS[verdict]
    for index, name in enumerate(report["gpu_names"]):
        used, draw = number(report["memory_used"][index]), number(report["power_draw"][index])
        total, limit = number(report["memory_total"][index], 0, " MB"), number(report["power_limit"][index], 0, " W")
        busy, heat = number(report["gpu_utilizations"][index], 0, " %"), number(report["temperatures"][index], 0, " °C")
        said = report["gpu_errors"][index] or f"{busy}  {used}/{total}  {draw}/{limit}  {heat}"
        called = report["gpu_indexes"][index]
        say(f"GPU {'?' if called is None else called}  {name or '?'}  {said}")
    for process in report["processes"]:
        say(f"  pid {process['pid']}  {number(process['memory'], 0, ' MB')}  {process['name']}")
    if report["error"]:
        hint(f"{args.target}: {report['error']}")
    return EXITS[verdict]


def efa(args: Namespace) -> int:
    from training_monitor.health import check_efa_utilization

    report = check_efa_utilization(args.target, args.namespace, all_pods=args.pods)
    active = {True: "active", False: "NOT active", None: "unknown"}[report["efa_active"]]
    verdict = {True: "ok", False: "failed", None: "unknown"}[report["efa_active"]]
    if not print_json(args, report, verdict):
        say(f"EFA {active}, transport {report['transport']}: {report['details']}")
        for node in report["per_node"] if len(report["per_node"]) > 1 else ():
            say(f"  {node['pod']}: {node['transport']}: {node['details']}")
    return EXITS[verdict]


def resources(args: Namespace) -> int:
    from training_monitor.health import verify_ray_resources

    report = verify_ray_resources(args.target, args.namespace)
    verdict = "ok" if report["healthy"] else "unknown"
    if args.json:
        print_json(args, report, verdict)
    elif report["error"]:
        hint(f"{args.target}: {report['error']}")
    else:
        say(
            f"GPUs {report['gpus_used']:g}/{report['gpus_available']:g} used, "
            f"CPUs {report['cpus_used']:g}/{report['cpus_available']:g} used"
        )
        for demand in report["pending_demands"]:
            say(f"  waiting: {demand}")
    return EXITS[verdict]


def checkpoints(args: Namespace) -> int:
    from training_monitor.checkpoints.checkpoints import get_checkpoint_listing
    from training_monitor.judging.restart import why_none_is_complete

    there = get_checkpoint_listing(args.directory, args.target, args.namespace)
    found = there or CheckpointListing(())
    latest = found.newest_complete
    found_keys = {"checkpoints": found.checkpoints, "unlisted_checkpoints": found.unlisted}
    if not print_json(args, {"directory": args.directory, "checkpoint": latest, **found_keys}):
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
