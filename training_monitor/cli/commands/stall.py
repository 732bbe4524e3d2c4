"""`stall`: what `check` says, a line each, with a limit of your own for stalls."""

from __future__ import annotations

import time
from argparse import Namespace
from functools import partial
from typing import TYPE_CHECKING

from training_monitor.cli.output import EXITS, hint, print_json, say
from training_monitor.core.errors import IncompleteAnswer, JobNotFound
from training_monitor.core.reports import JobCheckReport
from training_monitor.core.values import NotSeen
from training_monitor.judging.judge import ENDS

if TYPE_CHECKING:
    pass

from training_monitor.cli.argument_types import STALL_AFTER, STALLS, CommandParser
from training_monitor.cli.command_table import Command


def declare(command: CommandParser) -> None:
    command.target()
    command.what()
    command.duration(STALL_AFTER, f"{STALLS} (default: by the evidence, as check does)")
    command.duration(
        ["--sample"], "look once more after this time when the first look does not tell (default: 0)", default=0.0
    )


def run(args: Namespace) -> int:
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


COMMAND = Command(run, declare, ("my-pod --stall-after 5m", "local --sample 1m"))
