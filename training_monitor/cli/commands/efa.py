"""`efa`: whether NCCL uses EFA or fell back to TCP."""

from __future__ import annotations

from argparse import Namespace

from training_monitor.cli.argument_types import CommandParser
from training_monitor.cli.command_table import Command
from training_monitor.cli.output import EXITS, print_json, say


def declare(command: CommandParser) -> None:
    command.target()
    command.value("--pods", "POD", "all pods of the job", nargs="+", default=[])


def run(args: Namespace) -> int:
    from training_monitor.health import check_efa_utilization

    report = check_efa_utilization(args.target, args.namespace, all_pods=args.pods)
    active = {True: "active", False: "NOT active", None: "unknown"}[report["efa_active"]]
    verdict = {True: "ok", False: "failed", None: "unknown"}[report["efa_active"]]
    if not print_json(args, report, verdict):
        say(f"EFA {active}, transport {report['transport']}: {report['details']}")
        for node in report["per_node"] if len(report["per_node"]) > 1 else ():
            say(f"  {node['pod']}: {node['transport']}: {node['details']}")
    return EXITS[verdict]


COMMAND = Command(run, declare, ("my-head-pod --pods my-worker-pod",))
