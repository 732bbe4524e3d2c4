"""`gpu`: GPU utilisation, memory, power, processes."""

from __future__ import annotations

from argparse import Namespace

from training_monitor.cli.argument_types import CommandParser
from training_monitor.cli.command_table import Command
from training_monitor.cli.output import EXITS, hint, number, padded, print_json, say


def declare(command: CommandParser) -> None:
    command.target(is_optional=True)


def run(args: Namespace) -> int:
    from training_monitor.look import check_gpu_utilization

    report = check_gpu_utilization(args.target, args.namespace)
    is_unknown = report["gpu_count"] is None and not any(report["gpu_errors"])
    verdict = "ok" if report["healthy"] else "unknown" if is_unknown else "failed"
    if print_json(args, report, verdict):
        return EXITS[verdict]
    longest = max((len(name or "?") for name in report["gpu_names"]), default=0)
    for index, name in enumerate(report["gpu_names"]):
        used, draw = number(report["memory_used"][index]), number(report["power_draw"][index])
        total, limit = number(report["memory_total"][index], 0, " MB"), number(report["power_limit"][index], 0, " W")
        busy, heat = number(report["gpu_utilizations"][index], 0, " %"), number(report["temperatures"][index], 0, " °C")
        said = report["gpu_errors"][index] or f"{busy:>5}  {f'{used}/{total}':>14}  {f'{draw}/{limit}':>9}  {heat}"
        called = report["gpu_indexes"][index]
        say(f"GPU {'?' if called is None else called}  {padded(name or '?', longest)}  {said}")
    for process in report["processes"]:
        say(f"  pid {process['pid']}  {number(process['memory'], 0, ' MB')}  {process['name']}")
    if report["error"]:
        hint(f"{args.target}: {report['error']}")
    return EXITS[verdict]


COMMAND = Command(run, declare, ("ssh://me@gpu1",))
