"""`health`: one report and verdict on GPUs, network, checkpoints, Ray, pods, disks."""

from __future__ import annotations

from argparse import Namespace
from typing import Final

from training_monitor.cli.argument_types import CommandParser
from training_monitor.cli.command_table import Command
from training_monitor.cli.output import EXITS, hint, print_json, put_report, say
from training_monitor.core.errors import TrainingMonitorError

_FIND_SECONDS: Final = 15.0  # to find the folder of the checkpoints, before the report
_COUNTS: Final = ("gpus_used", "gpus_available", "cpus_used", "cpus_available")


def declare(command: CommandParser) -> None:
    command.target(is_optional=True)
    command.value("--checkpoint-dir", "DIR", "checkpoint folder on the head pod (default: detected if possible)")
    command.value("--pods", "POD", "all pods of the job", nargs="+")
    command.value("--job", "JOB", "include this job in the report")
    command.add_argument(
        "--only",
        choices=("efa", "ray"),
        help="efa: report only whether NCCL uses EFA or TCP; ray: only the GPUs and CPUs of the Ray cluster",
    )


def run(args: Namespace) -> int:
    if args.only:
        return _efa(args) if args.only == "efa" else _ray(args)
    from training_monitor.look import format_training_health
    from training_monitor.look.health_report import get_training_health

    folder = args.checkpoint_dir or _found_folder(args)
    report = get_training_health(args.target, folder, args.pods or None, args.namespace, job_id=args.job)
    if not print_json(args, report):
        put_report(format_training_health(report))
    return EXITS[report["verdict"]]


def _found_folder(args: Namespace) -> str | None:
    """Return the checkpoint folder of the training there, if it can be found."""
    from training_monitor.look.meant import find_one

    try:
        return find_one(args.target, args.job, args.namespace, timeout=_FIND_SECONDS).job.output_dir
    except TrainingMonitorError:
        return None


def _efa(args: Namespace) -> int:
    from training_monitor.look import check_efa_utilization

    report = check_efa_utilization(args.target, args.namespace, all_pods=args.pods or [])
    active = {True: "active", False: "NOT active", None: "unknown"}[report["efa_active"]]
    verdict = {True: "ok", False: "failed", None: "unknown"}[report["efa_active"]]
    if not print_json(args, report, verdict, schema="efa"):
        say(f"EFA {active}, transport {report['transport']}: {report['details']}")
        for node in report["per_node"] if len(report["per_node"]) > 1 else ():
            say(f"  {node['pod']}: {node['transport']}: {node['details']}")
    return EXITS[verdict]


def _ray(args: Namespace) -> int:
    from training_monitor.look import verify_ray_resources

    report = verify_ray_resources(args.target, args.namespace)
    verdict = "ok" if report["healthy"] else "unknown"
    if args.json:
        print_json(args, report, verdict, schema="ray")
    elif report["error"]:
        hint(f"{args.target}: {report['error']}")
    else:
        of = {key: "?" if report[key] is None else f"{report[key]:g}" for key in _COUNTS}
        say("GPUs {gpus_used}/{gpus_available} used, CPUs {cpus_used}/{cpus_available} used".format_map(of))
        for demand in report["pending_demands"]:
            say(f"  waiting: {demand}")
        for node in report["failed_nodes"]:
            say(f"  failed node: {node}")
    return EXITS[verdict]


COMMAND = Command(run, declare, ("my-head-pod --pods my-head-pod my-worker-pod",))
