"""The command line: `training-monitor COMMAND`, or `python3 -m training_monitor COMMAND`.

Exit status: 0 ok, 1 unhealthy or failed, 2 wrong use, 3 unknown, 4 taken over by another supervisor.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from training_monitor import __version__
from training_monitor.cli import options
from training_monitor.cli.argument_types import WHAT, CommandParser, some_name

_JOB_COMMANDS = ("status", "step", "logs", "stop")
_TARGET = "local | POD | k8s://namespace/pod[/container][?context=C] | ssh://[user@]host[:port] | vast://ID"


class Command(NamedTuple):
    """One command: the module with its function, its help, examples, and first positional arguments."""

    module: str
    help: str
    examples: tuple[str, ...]
    takes: str = ""  # TARGET JOB WHAT, in this order; [TARGET]: declared in `options`


GROUPS: dict[str, dict[str, Command]] = {
    "look at trainings": {
        "check": Command(
            "commands",
            "whether trainings make progress, here or on TARGET: all that are found, or one",
            ("", "ssh://me@gpu1", "my-pod raysubmit_x --json", "local '~/runs/*/train.log'"),
            "[TARGET]",
        ),
        "stall": Command(
            "commands",
            "what `check` says, a line each, with a limit of your own for stalls",
            ("my-pod --stall-after 5m", "local --sample 1m"),
            "TARGET WHAT",
        ),
        "wait": Command(
            "commands",
            "wait until a training ends or stalls",
            ("local 12345 && ./evaluate.sh", "my-pod my-training --timeout 1h"),
            "TARGET WHAT",
        ),
        "status": Command(
            "commands", "one job's status, or all jobs of a target", ("my-pod", "my-pod my-training"), "TARGET"
        ),
        "step": Command("commands", "the current step of a job", ("my-pod my-training",), "TARGET JOB"),
        "logs": Command("commands", "the end of a job's log", ("my-pod my-training --tail 20",), "TARGET JOB"),
        "vast": Command(
            "fleet", "vast.ai instances on one screen: training, GPUs, cost, alerts", ("", "--mock", "--once")
        ),
        "fleet": Command(
            "fleet",
            "pods, ssh hosts, vast.ai instances and local jobs on one screen",
            ("my-pod ssh://me@gpu1 vast://30007012", "nightly --notify --once"),
            "[TARGET]",
        ),
        "top": Command(
            "top",
            "runs that write progress files: processes, signals, variables, outputs, CSV",
            ("progress", "ssh://me@gpu1/home/me/progress", "progress --once"),
        ),
        "history": Command(
            "history",
            "what was seen of the trainings on those screens: trends, tables, CSV",
            ("", "vast://30007012 --since 24h", "vast://30007012 --csv run.csv"),
        ),
    },
    "supervise and save": {
        "run": Command(
            "supervising",
            "supervise a command: run it and restart it from its checkpoints",
            (
                "--checkpoint-dir ./checkpoints --resume-argument=--resume -- python3 train.py",
                "--target ssh://me@gpu1 --notify -- python3 train.py",
            ),
            "[TARGET]",
        ),
        "restart": Command(
            "supervising",
            "supervise a Ray job and restart it from its checkpoints",
            ("my-head-pod my-training --checkpoint-dir /checkpoints/my-training",),
            "TARGET",
        ),
        "watch": Command(
            "watching",
            "follow a training, send notices, and end it when it stalls, if you say so",
            ("ssh://me@gpu1 --notify", "my-pod my-training --notify --terminate --upload hf:me/my-lora"),
            "TARGET",
        ),
        "terminate": Command(
            "watching",
            "end a training: stop it, upload its newest checkpoint, destroy what was rented",
            ("vast://30007012 --upload hf:me/my-lora",),
            "TARGET",
        ),
        "upload": Command(
            "watching",
            "upload a file or folder from the target, and see that it arrived",
            ("my-pod /checkpoints/step_500 hf:me/my-lora", "local out/model.safetensors s3://bucket/models"),
            "TARGET",
        ),
        "stop": Command("commands", "stop a job and see it gone", ("my-pod my-training",), "TARGET JOB"),
    },
    "read one thing": {
        "health": Command(
            "commands",
            "one report and verdict on GPUs, network, checkpoints, Ray, pods, disks",
            ("my-head-pod --pods my-head-pod my-worker-pod",),
            "TARGET",
        ),
        "gpu": Command("commands", "GPU utilisation, memory, power, processes", ("ssh://me@gpu1",), "TARGET"),
        "efa": Command(
            "commands", "whether NCCL uses EFA or fell back to TCP", ("my-head-pod --pods my-worker-pod",), "TARGET"
        ),
        "resources": Command("commands", "GPUs and CPUs of a Ray cluster", ("my-head-pod",), "TARGET"),
        "checkpoints": Command(
            "commands",
            "checkpoints of a folder, and which are complete",
            ("my-pod /checkpoints/my-training",),
            "TARGET",
        ),
    },
    "train on rented machines": {
        "launch": Command(
            "service",
            "train on a rented vast.ai machine: queue it, or do it here with --watch",
            ("--dataset ./images --name my-lora --trigger mylora --env HF_TOKEN --upload hf:me/my-lora --watch",),
        ),
        "queue": Command(
            "service", "the trainings on rented machines; show or cancel one", ("", "my-lora-123456 --cancel")
        ),
        "worker": Command(
            "service", "work through the queue: rent, train, save, destroy", ("--jobs 4", "--until-empty")
        ),
        "sweep": Command(
            "market",
            "find rented instances that no training needs; destroy them with --force",
            ("", "--force", "--every 15m"),
        ),
        "instances": Command("market", "what is rented at vast.ai, for which training, and what it costs", ("",)),
        "offers": Command("market", "what is for rent at vast.ai, best first", ("--gpu 4090",)),
        "dataset": Command("market", "whether a folder of images is fit to train with", ("./images",)),
        "keys": Command("market", "whether rented machines will let your ssh key in", ("", "--setup")),
        "credits": Command("market", "vast.ai's credit and how long it lasts; or an account of the ledger", ("",)),
    },
    "set up": {
        "demo": Command(
            "supervising", "watch a real training process crash, hang and recover (20 s, needs nothing)", ("",)
        ),
        "doctor": Command(
            "doctor",
            "which tools, contexts and keys work here, and what to do",
            ("", "my-pod ssh://me@gpu1"),
            "[TARGET]",
        ),
        "notify": Command(
            "notifying", "prove the channels that notices go by, send one, or list those sent", ("--test", "--list")
        ),
        "config": Command("doctor", "which settings file is read, and what is wrong with it", ("--check",)),
    },
}


def build_parser() -> CommandParser:
    """Build the parser of the whole command line."""
    parser = CommandParser(
        prog="training-monitor",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Watch GPU training from outside and act on it.",
        epilog=_format_groups(),
    )
    parser.add_argument("--version", action="version", version=f"training-monitor {__version__}")
    commands = parser.add_subparsers(dest="subcommand", metavar="COMMAND", required=True, help="see below")
    for group in GROUPS.values():
        for name, command in group.items():
            _add_command(commands.add_parser, name, command)
    return parser


def _format_groups() -> str:
    groups = (
        f"{title}:\n" + "".join(f"  {name:<12} {command.help}\n" for name, command in group.items())
        for title, group in GROUPS.items()
    )
    return (
        "\n".join(groups)
        + "\n`training-monitor COMMAND --help` shows its options and examples. Exit status: 0 ok, 1 unhealthy or\n"
        "failed, 2 wrong use, 3 unknown, 4 taken over by another supervisor."
    )


def _add_command(add: Callable[..., CommandParser], name: str, command: Command) -> None:
    examples = "\n".join(f"  training-monitor {name} {words}".rstrip() for words in command.examples)
    target = f"TARGET is {_TARGET}.\n\n" if "TARGET" in command.takes or command.takes == "[TARGET]" else ""
    parser = add(
        name,
        description=command.help,
        epilog=f"{target}examples:\n{examples}",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(parser=parser)
    parser.flag("--json", "print JSON")
    takes = command.takes.split()
    if "TARGET" in takes:
        parser.value("target", "TARGET", "see below")
    if "TARGET" in takes or name == "run":
        parser.namespace()
    if "JOB" in takes:
        parser.value("job", "JOB", "a Ray submission id, or process:NAME", type=some_name)
    if "WHAT" in takes:
        parser.value("what", "WHAT", WHAT, nargs="?")
    if declare := getattr(options, f"add_{name}", None):
        declare(parser)


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
        status = _run(_parse(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()  # here a closed pipe is handled, at interpreter exit it would be an error
        return status
    except KeyboardInterrupt as interrupt:
        from training_monitor.cli.output import hint, interrupted_status

        hint("\ninterrupted; nothing was stopped")
        return interrupted_status(interrupt)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; an unknown command or option ends it, with the one that was probably meant."""
    parser = build_parser()
    names = [name for group in GROUPS.values() for name in group]
    if argv and not argv[0].startswith("-") and argv[0] not in names:
        parser.error(f"there is no command {argv[0]!r}{_meant_instead(argv[0], names)}; see training-monitor --help")
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        known = re.findall(r"--[\w-]+", args.parser.format_help())
        args.parser.error(f"unrecognized arguments: {' '.join(unknown)}{_meant_instead(unknown[0], known)}")
    return args


def _meant_instead(word: str, known: Sequence[str]) -> str:
    import difflib

    near = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def _run(args: argparse.Namespace) -> int:
    from training_monitor.cli.output import exit_status, hint, refuse
    from training_monitor.core.errors import TrainingMonitorError

    try:
        if os.environ.get("TRAINING_MONITOR_LOG_FILE"):
            from training_monitor.core.logger import setup_logging

            setup_logging()
        _read_alone(args)
        call = _function(args.subcommand)
        try:
            return call(args)
        except TrainingMonitorError as error:
            if args.subcommand not in _JOB_COMMANDS or not args.job:
                raise
            args.job = _meant_job(args, error)
            hint(f"it is {args.job}")
            return call(args)
    except TrainingMonitorError as error:
        return refuse(error, args, exit_status(error))


def _read_alone(args: argparse.Namespace) -> None:
    """Interpret a PID, a path or `process:NAME` without a target as one on this machine."""
    if not hasattr(args, "what") and args.subcommand != "status":
        return
    from training_monitor.observe.meant import is_path, is_pid

    word, name = args.target, "what" if hasattr(args, "what") else "job"
    if getattr(args, name) is None and (is_pid(word) or is_path(word) or word.startswith("process:")):
        args.target = "local"
        setattr(args, name, word)


def _meant_job(args: argparse.Namespace, error: Exception) -> str:
    """Return the job or PID that an unknown job name refers to; raises the error if there is none."""
    from training_monitor.core.errors import IncompleteAnswer, SettingsError, TrainingMonitorError
    from training_monitor.observe.meant import find_one, named_job

    if isinstance(error, SettingsError) or named_job(args.job).job_id is None:
        raise error
    try:
        job = find_one(args.target, args.job.removeprefix("process:"), args.namespace).job
    except (SettingsError, IncompleteAnswer):
        raise
    except TrainingMonitorError as other:
        raise (other if type(other) is type(error) else error) from None
    meant = job.job_id or str(job.pid)
    if meant == args.job:
        raise error
    return meant
