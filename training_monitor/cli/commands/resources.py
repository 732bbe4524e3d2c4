"""`resources`: GPUs and CPUs of a Ray cluster."""

from __future__ import annotations

from argparse import Namespace

from training_monitor.cli.argument_types import CommandParser
from training_monitor.cli.command_table import Command
from training_monitor.cli.output import EXITS, hint, print_json, say


def declare(command: CommandParser) -> None:
    command.target()


def run(args: Namespace) -> int:
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


COMMAND = Command(run, declare, ("my-head-pod",))
