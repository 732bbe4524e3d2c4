"""`watch`: follow a training on a screen, send notices, and end it when it stalls, if you say so."""

from __future__ import annotations

from argparse import Namespace

from training_monitor.cli.argument_types import (
    HARD_LIMIT,
    INTERVAL,
    SOFT_LIMIT,
    STALL_AFTER,
    STALLS,
    CommandParser,
    amount,
)
from training_monitor.cli.command_table import Command
from training_monitor.cli.options import add_watched


def declare(command: CommandParser) -> None:
    command.target()
    add_watched(command)
    mode = command.add_mutually_exclusive_group()
    mode.add_argument("--stream", action="store_true", help="follow the log line by line (default on a terminal)")
    mode.add_argument("--poll", action="store_true", help="look now and then (default elsewhere)")
    mode.add_argument("--once", action="store_true", help="look once, with the exit status of `check`")
    command.flag("--plain", "one line instead of the screen")
    command.heartbeat()
    command.outage_after()
    command.flag("--terminate", "end it when it has stalled for the grace period")
    command.roll_call()
    command.take_over()
    command.add_argument(
        "--terminate-busy",
        action="store_const",
        const=True,
        help="with --terminate: end it also when it makes no step although its GPUs compute or its log grows",
    )
    command.add_argument(
        "--terminate-eta",
        dest="terminate_on_eta",
        action="store_const",
        const=True,
        help="with --terminate: end it also when its ETA does not converge although its speed has not halved",
    )
    command.flag("--no-stall-detection", "never call it stalled")
    command.duration(INTERVAL, "between looks (default: 1m)")
    command.duration(["--grace-period"], "from the notice of a stall to the end (default: 15m)")
    command.duration(STALL_AFTER, f"{STALLS} (default: by what is seen of it)")
    command.duration(SOFT_LIMIT, "send a notice after this run time")
    command.duration(HARD_LIMIT, "end it after this run time, with --terminate")
    command.value("--cost-per-hour", "MONEY", "what the machine costs", type=amount)
    command.value("--budget", "MONEY", "send a notice when it is spent", type=amount)


def run(args: Namespace) -> int:
    from training_monitor.cli.watching import watch

    return watch(args)


COMMAND = Command(
    run,
    declare,
    ("ssh://me@gpu1 --notify", "my-pod my-training --notify --terminate --upload hf:me/my-lora"),
)
