"""The command line: `training-monitor COMMAND`, or `python3 -m training_monitor COMMAND`.

Exit status: 0 ok, 1 unhealthy or failed, 2 wrong use, 3 unknown (it could not be asked).
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence

from training_monitor import __version__
from training_monitor.cli.argument_types import SECONDS, STALLS, WHAT, add_take_over, some_name
from training_monitor.cli.config import add_config
from training_monitor.cli.fleet_arguments import add_fleet, add_vast
from training_monitor.cli.history import add_history
from training_monitor.cli.market_arguments import add_credits, add_dataset, add_instances, add_keys, add_offers
from training_monitor.cli.service_arguments import add_launch, add_queue, add_sweep, add_worker
from training_monitor.cli.telling_arguments import add_heartbeat, add_outage_after, add_telling
from training_monitor.cli.top_arguments import add_top
from training_monitor.cli.watching_arguments import add_terminate, add_upload, add_watch

_TARGET = "local | POD | k8s://namespace/pod[/container][?context=C] | ssh://[user@]host[:port] | vast://ID"


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="training-monitor",
        allow_abbrev=False,
        description="Watch GPU training from outside and act on it.",
        epilog=f"TARGET is {_TARGET}. Exit status: 0 ok, 1 unhealthy or failed, 2 wrong use, 3 unknown.",
    )
    parser.add_argument("--version", action="version", version=f"training-monitor {__version__}")
    commands = parser.add_subparsers(dest="subcommand", metavar="COMMAND", required=True)

    def add(
        name: str, help: str, *, target: bool = True, job: bool = False, what: bool = False
    ) -> argparse.ArgumentParser:
        epilog = f"TARGET is {_TARGET}." if target or name in ("check", "run", "fleet", "doctor") else None
        command = commands.add_parser(name, help=help, description=help, epilog=epilog, allow_abbrev=False)
        command.set_defaults(parser=command)
        command.add_argument("--json", action="store_true", help="print JSON")
        if target:
            command.add_argument("target", metavar="TARGET", help="see below")
        if target or name == "run":
            command.add_argument(
                "-n", "--namespace", default="default", help="of a bare pod name (default: %(default)s)"
            )
        if job:
            command.add_argument("job", type=some_name, metavar="JOB", help="a Ray submission id, or process:NAME")
        if what:
            command.add_argument("what", metavar="WHAT", nargs="?", help=WHAT)
        return command

    _add_check(
        add("check", "whether trainings make progress, here or on TARGET: all that are found, or one", target=False)
    )
    add("demo", "watch a real training process crash, hang and recover (20 s, needs nothing)", target=False)
    _add_run(add("run", "supervise a command: run it and restart it from its checkpoints", target=False))
    _add_restart(add("restart", "supervise a Ray job and restart it from its checkpoints"))
    _add_jobs(add)
    _add_health(add("health", "one report and verdict on GPUs, network, checkpoints, Ray, pods, disks"))
    add("gpu", "GPU utilisation, memory, power, processes")
    add("efa", "whether NCCL uses EFA or fell back to TCP").add_argument(
        "--pods", nargs="+", default=[], metavar="POD", help="all pods of the job"
    )
    add("resources", "GPUs and CPUs of a Ray cluster")
    add("checkpoints", "checkpoints of a folder, and which are complete").add_argument(
        "directory", metavar="DIR", help="a folder on the target"
    )
    add_watch(add("watch", "follow a training, send notices, and end it when it stalls, if you say so"))
    add_terminate(add("terminate", "end a training: stop it, upload its newest checkpoint, destroy what was rented"))
    add_upload(add("upload", "upload a file or folder from the target, and see that it arrived"))
    _add_notify(add("notify", "prove the channels that notices go by, send one, or list those sent", target=False))
    _add_screens(add)
    _add_service(add)
    add_config(add("config", "which settings file is read, and what is wrong with it", target=False))
    add("doctor", "which tools, contexts and keys work here, and what to do", target=False).add_argument(
        "targets", metavar="TARGET", nargs="*", help="also see whether these answer"
    )
    return parser


def _add_jobs(add: Callable[..., argparse.ArgumentParser]) -> None:
    add("status", "one job's status, or all jobs of a target").add_argument(
        "job", type=some_name, metavar="JOB", nargs="?", help="default: all process jobs and Ray jobs"
    )
    add("step", "the current step of a job", job=True)
    add("logs", "the end of a job's log", job=True).add_argument(
        "--tail", type=_count, default=100, metavar="LINES", help="how many (default: %(default)s)"
    )
    _add_stall(add("stall", "what `check` says, a line each, with a limit of your own for stalls", what=True))
    _add_wait(add("wait", "wait until a training ends or stalls", what=True))
    add("stop", "stop a job and see it gone", job=True).add_argument(
        "--grace", type=SECONDS, default=10.0, metavar="SECONDS", help="between TERM and KILL (default: %(default)g)"
    )


def _add_screens(add: Callable[..., argparse.ArgumentParser]) -> None:
    add_vast(add("vast", "vast.ai instances on one screen: training, GPUs, cost, alerts", target=False))
    add_fleet(add("fleet", "pods, ssh hosts, vast.ai instances and local jobs on one screen", target=False))
    add_top(add("top", "runs that write progress files: processes, signals, variables, outputs, CSV", target=False))
    add_history(add("history", "what was seen of the trainings on those screens: trends, tables, CSV", target=False))


def _add_service(add: Callable[..., argparse.ArgumentParser]) -> None:
    add_launch(add("launch", "train on a rented vast.ai machine: queue it, or do it here with --watch", target=False))
    add_queue(add("queue", "the trainings on rented machines; show or cancel one", target=False))
    add_worker(add("worker", "work through the queue: rent, train, save, destroy", target=False))
    add_sweep(add("sweep", "find rented instances that no training needs; destroy them with --force", target=False))
    add_instances(add("instances", "what is rented at vast.ai, for which training, and what it costs", target=False))
    add_offers(add("offers", "what is for rent at vast.ai, best first", target=False))
    add_dataset(add("dataset", "whether a folder of images is fit to train with", target=False))
    add_keys(add("keys", "whether rented machines will let your ssh key in", target=False))
    add_credits(add("credits", "vast.ai's credit and how long it lasts; or an account of the ledger", target=False))


def _add_check(command: argparse.ArgumentParser) -> None:
    command.add_argument("target", metavar="TARGET", nargs="?", default="local", help="see below (default: local)")
    command.add_argument("what", metavar="WHAT", nargs="?", help=WHAT)
    command.add_argument("-n", "--namespace", default="default", help="of a bare pod name (default: %(default)s)")


def _add_supervision(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--checkpoint-dir", metavar="DIR", help="a folder on the target (default: the one its command names, if any)"
    )
    command.add_argument(
        "--max-retries",
        type=_count,
        default=10,
        metavar="N",
        help="restarts without progress in between (default: %(default)s)",
    )
    command.add_argument(
        "--retry-delay",
        type=SECONDS,
        default=60.0,
        metavar="SECONDS",
        help="before a restart; doubles while there is no progress (default: %(default)g)",
    )
    command.add_argument(
        "--stagnation-threshold",
        type=SECONDS,
        default=300.0,
        metavar="SECONDS",
        help=f"{STALLS} (default: %(default)g)",
    )
    command.add_argument(
        "--check-interval", type=SECONDS, default=30.0, metavar="SECONDS", help="between looks (default: %(default)g)"
    )
    command.add_argument(
        "--resume-argument",
        metavar="OPTION",
        help="passes the checkpoint, say --resume; `{checkpoint}` "
        "in the command and the variable RESUME_FROM_CHECKPOINT work without it",
    )
    command.add_argument(
        "--keep-attempts",
        type=_count,
        default=10,
        metavar="N",
        help="former attempts whose run directories (with their logs) stay on the target (default: %(default)s)",
    )
    command.add_argument(
        "--fresh-start",
        action="store_true",
        help="start from step 0 although checkpoints were written and none is complete",
    )
    add_take_over(command)
    add_telling(command)
    add_heartbeat(command)
    add_outage_after(command)


def _add_run(command: argparse.ArgumentParser) -> None:
    command.add_argument("--target", default="local", metavar="TARGET", help="see below (default: local)")
    command.add_argument("--name", metavar="NAME", help="of the job (default: made from the command)")
    command.add_argument(
        "--working-dir", metavar="DIR", help="on the target (default: here, or where a shell starts there)"
    )
    command.add_argument(
        "--env", action="append", metavar="NAME[=VALUE]", help="for the command; NAME alone passes it on"
    )
    _add_supervision(command)
    command.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")


def _add_restart(command: argparse.ArgumentParser) -> None:
    command.add_argument("job_name", metavar="NAME", help="jobs are called NAME or NAME-attempt-N")
    command.add_argument("--job", metavar="JOB", help="start by supervising this submission id")
    command.add_argument("--entrypoint", metavar="COMMAND", help="default: that of the latest Ray job of this name")
    _add_supervision(command)


def _add_health(command: argparse.ArgumentParser) -> None:
    command.add_argument("--checkpoint-dir", metavar="DIR", help="a folder on the head (default: found, if it can be)")
    command.add_argument("--pods", nargs="+", metavar="POD", help="all pods of the job")
    command.add_argument("--job", metavar="JOB", help="also report on this job")


def _add_stall(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--threshold", type=SECONDS, metavar="SECONDS", help=f"{STALLS} (default: by the evidence, as check does)"
    )
    command.add_argument(
        "--sample",
        type=SECONDS,
        default=0.0,
        metavar="SECONDS",
        help="look once more after this time when the first look does not tell (default: %(default)g)",
    )


def _add_wait(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--timeout", type=SECONDS, metavar="SECONDS", help="wait no longer than this (default: no limit)"
    )
    command.add_argument(
        "--interval", type=SECONDS, default=30.0, metavar="SECONDS", help="between looks (default: %(default)g)"
    )
    command.add_argument(
        "--threshold", type=SECONDS, metavar="SECONDS", help=f"{STALLS} (default: by the evidence, as check does)"
    )


def _add_notify(command: argparse.ArgumentParser) -> None:
    from training_monitor.cli.notifying import add_notify

    add_notify(command)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number, from 0")
    return int(text)


# The module of a command that is not in `commands`.
_MODULES = {
    "check": "check",
    "run": "supervising",
    "restart": "supervising",
    "watch": "watching",
    "terminate": "watching",
    "upload": "watching",
    "notify": "notifying",
    "launch": "service",
    "queue": "service",
    "worker": "service",
    "sweep": "sweeping",
    "instances": "market",
    "offers": "market",
    "dataset": "market",
    "keys": "market",
    "credits": "market",
    "vast": "fleet",
    "fleet": "fleet",
    "top": "top",
    "history": "history",
    "config": "config",
    "demo": "demo",
    "doctor": "doctor",
    "stall": "check",
}


def _command(name: str) -> Callable[[argparse.Namespace], int]:
    module = importlib.import_module(f"training_monitor.cli.{_MODULES.get(name, 'commands')}")
    found: Callable[[argparse.Namespace], int] = getattr(module, name)
    return found


_JOB_COMMANDS = ("status", "step", "logs", "stop")


def _interrupt(number: int, _frame: object) -> None:
    raise KeyboardInterrupt(number)


def _open_what_is_closed() -> None:
    """What was closed before we were started reads as empty, and takes what is written to it."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit status."""
    _open_what_is_closed()
    try:
        for number in (signal.SIGTERM, signal.SIGHUP):  # they end a command as Ctrl-C does; nohup stays nohup
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _interrupt)
        args, unknown = build_parser().parse_known_args(argv)
        if unknown:
            args.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        status = _run(args)
        sys.stdout.flush()  # here, where a reader that left is no error, and not as the interpreter ends
        return status
    except KeyboardInterrupt as interrupt:
        from training_monitor.cli.output import hint, interrupted_status

        hint("\ninterrupted; nothing was stopped")
        return interrupted_status(interrupt)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _run(args: argparse.Namespace) -> int:
    from training_monitor.cli.commands import meant_job, read_alone
    from training_monitor.cli.failing import exit_status, tell_error
    from training_monitor.cli.output import hint
    from training_monitor.errors import TrainingMonitorError

    try:
        if os.environ.get("TRAINING_MONITOR_LOG_FILE"):
            from training_monitor.supervise.logs import setup_logging

            setup_logging()
        read_alone(args)
        call = _command(args.subcommand)
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
