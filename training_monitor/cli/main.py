"""The command line: `training-monitor COMMAND`, or `python3 -m training_monitor COMMAND`.

Exit status: 0 ok, 1 unhealthy or failed, 2 wrong use, 3 unknown, 4 taken over by another supervisor.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence

from training_monitor.cli.arguments import GROUPS, build_parser

_JOB_COMMANDS = ("status", "step", "logs", "stop")


def _function(name: str) -> Callable[[argparse.Namespace], int]:
    [command] = [group[name] for group in GROUPS.values() if name in group]
    module = importlib.import_module(f"training_monitor.cli.{command.module}")
    found: Callable[[argparse.Namespace], int] = getattr(module, name)
    return found


def _interrupt(number: int, _frame: object) -> None:
    raise KeyboardInterrupt(number)


def _open_what_is_closed() -> None:
    """Replace standard streams that were closed before the start by /dev/null."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status."""
    _open_what_is_closed()
    try:
        for number in (signal.SIGTERM, signal.SIGHUP):  # they end a command like Ctrl-C does; nohup still works
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _interrupt)
        args, unknown = build_parser().parse_known_args(argv)
        if unknown:
            args.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        status = _run(args)
        sys.stdout.flush()  # here a closed pipe is handled, at interpreter exit it would be an error
        return status
    except KeyboardInterrupt as interrupt:
        from training_monitor.cli.output import hint, interrupted_status

        hint("\ninterrupted; nothing was stopped")
        return interrupted_status(interrupt)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _run(args: argparse.Namespace) -> int:
    from training_monitor.cli.commands import exit_status, meant_job, read_alone, tell_error
    from training_monitor.cli.output import hint
    from training_monitor.core.errors import TrainingMonitorError

    try:
        if os.environ.get("TRAINING_MONITOR_LOG_FILE"):
            from training_monitor.core.logger import setup_logging

            setup_logging()
        read_alone(args)
        call = _function(args.subcommand)
        try:
            return call(args)
        except TrainingMonitorError as error:
            if args.subcommand not in _JOB_COMMANDS or not args.job:
                raise
            args.job = meant_job(args, error)
            hint(f"it is {args.job}")
            return call(args)
    except TrainingMonitorError as error:
        tell_error(error, as_json=args.json)
        return exit_status(error)
