"""The commands by group, their arguments, and the parser built from them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple

from training_monitor import __version__
from training_monitor.cli.argument_types import (
    INTERVAL,
    STALL_AFTER,
    STALLS,
    STOP_GRACE,
    WHAT,
    add_duration,
    add_heartbeat,
    add_outage_after,
    add_take_over,
    add_telling,
    count,
    some_name,
)
from training_monitor.cli.options import (
    add_config,
    add_credits,
    add_dataset,
    add_fleet,
    add_history,
    add_instances,
    add_keys,
    add_launch,
    add_notify,
    add_offers,
    add_queue,
    add_sweep,
    add_terminate,
    add_top,
    add_upload,
    add_vast,
    add_watch,
    add_worker,
)

_TARGET = "local | POD | k8s://namespace/pod[/container][?context=C] | ssh://[user@]host[:port] | vast://ID"


class Command(NamedTuple):
    """One command: the module with its function, its help, examples, options, and positional arguments."""

    module: str
    help: str
    examples: tuple[str, ...]
    declare: Callable[[argparse.ArgumentParser], object] | None = None
    takes: str = ""  # TARGET JOB WHAT, in this order; [TARGET]: declared by `declare`


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the whole command line."""
    parser = argparse.ArgumentParser(
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


def _add_command(add: Callable[..., argparse.ArgumentParser], name: str, command: Command) -> None:
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
    parser.add_argument("--json", action="store_true", help="print JSON")
    takes = command.takes.split()
    if "TARGET" in takes:
        parser.add_argument("target", metavar="TARGET", help="see below")
    if "TARGET" in takes or name == "run":
        parser.add_argument("-n", "--namespace", default="default", help="of a bare pod name (default: %(default)s)")
    if "JOB" in takes:
        parser.add_argument("job", type=some_name, metavar="JOB", help="a Ray submission id, or process:NAME")
    if "WHAT" in takes:
        parser.add_argument("what", metavar="WHAT", nargs="?", help=WHAT)
    if command.declare:
        command.declare(parser)


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
        type=count,
        default=10,
        metavar="N",
        help="restarts without progress in between (default: %(default)s)",
    )
    add_duration(
        command, ["--retry-delay"], "before a restart; doubles while there is no progress (default: 1m)", default=60.0
    )
    add_duration(command, STALL_AFTER, f"{STALLS} (default: 5m)", default=300.0)
    add_duration(command, INTERVAL, "between looks (default: 30s)", default=30.0)
    command.add_argument(
        "--resume-argument",
        metavar="OPTION",
        help="passes the checkpoint, say --resume; `{checkpoint}` "
        "in the command and the variable RESUME_FROM_CHECKPOINT work without it",
    )
    command.add_argument(
        "--keep-attempts",
        type=count,
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
    add_duration(command, STALL_AFTER, f"{STALLS} (default: by the evidence, as check does)")
    add_duration(
        command,
        ["--sample"],
        "look once more after this time when the first look does not tell (default: 0)",
        default=0.0,
    )


def _add_wait(command: argparse.ArgumentParser) -> None:
    add_duration(command, ["--timeout"], "wait no longer than this (default: no limit)")
    add_duration(command, INTERVAL, "between looks (default: 30s)", default=30.0)
    add_duration(command, STALL_AFTER, f"{STALLS} (default: by the evidence, as check does)")


def _add_status(command: argparse.ArgumentParser) -> None:
    command.add_argument("job", type=some_name, metavar="JOB", nargs="?", help="default: all process jobs and Ray jobs")


def _add_logs(command: argparse.ArgumentParser) -> None:
    command.add_argument("--tail", type=count, default=100, metavar="LINES", help="how many (default: %(default)s)")


def _add_stop(command: argparse.ArgumentParser) -> None:
    add_duration(command, STOP_GRACE, "between TERM and KILL (default: 10s)", default=10.0)


def _add_efa(command: argparse.ArgumentParser) -> None:
    command.add_argument("--pods", nargs="+", default=[], metavar="POD", help="all pods of the job")


def _add_checkpoints(command: argparse.ArgumentParser) -> None:
    command.add_argument("directory", metavar="DIR", help="a folder on the target")


def _add_doctor(command: argparse.ArgumentParser) -> None:
    command.add_argument("targets", metavar="TARGET", nargs="*", help="also see whether these answer")


GROUPS: dict[str, dict[str, Command]] = {
    "look at trainings": {
        "check": Command(
            "check",
            "whether trainings make progress, here or on TARGET: all that are found, or one",
            ("", "ssh://me@gpu1", "my-pod raysubmit_x --json", "local '~/runs/*/train.log'"),
            _add_check,
            "[TARGET]",
        ),
        "stall": Command(
            "check",
            "what `check` says, a line each, with a limit of your own for stalls",
            ("my-pod --stall-after 5m", "local --sample 1m"),
            _add_stall,
            "TARGET WHAT",
        ),
        "wait": Command(
            "commands",
            "wait until a training ends or stalls",
            ("local 12345 && ./evaluate.sh", "my-pod my-training --timeout 1h"),
            _add_wait,
            "TARGET WHAT",
        ),
        "status": Command(
            "commands",
            "one job's status, or all jobs of a target",
            ("my-pod", "my-pod my-training"),
            _add_status,
            "TARGET",
        ),
        "step": Command("commands", "the current step of a job", ("my-pod my-training",), None, "TARGET JOB"),
        "logs": Command(
            "commands", "the end of a job's log", ("my-pod my-training --tail 20",), _add_logs, "TARGET JOB"
        ),
        "vast": Command(
            "fleet", "vast.ai instances on one screen: training, GPUs, cost, alerts", ("", "--mock", "--once"), add_vast
        ),
        "fleet": Command(
            "fleet",
            "pods, ssh hosts, vast.ai instances and local jobs on one screen",
            ("my-pod ssh://me@gpu1 vast://30007012", "nightly --notify --once"),
            add_fleet,
            "[TARGET]",
        ),
        "top": Command(
            "top",
            "runs that write progress files: processes, signals, variables, outputs, CSV",
            ("progress", "ssh://me@gpu1/home/me/progress", "progress --once"),
            add_top,
        ),
        "history": Command(
            "history",
            "what was seen of the trainings on those screens: trends, tables, CSV",
            ("", "vast://30007012 --since 24h", "vast://30007012 --csv run.csv"),
            add_history,
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
            _add_run,
            "[TARGET]",
        ),
        "restart": Command(
            "supervising",
            "supervise a Ray job and restart it from its checkpoints",
            ("my-head-pod my-training --checkpoint-dir /checkpoints/my-training",),
            _add_restart,
            "TARGET",
        ),
        "watch": Command(
            "watching",
            "follow a training, send notices, and end it when it stalls, if you say so",
            ("ssh://me@gpu1 --notify", "my-pod my-training --notify --terminate --upload hf:me/my-lora"),
            add_watch,
            "TARGET",
        ),
        "terminate": Command(
            "watching",
            "end a training: stop it, upload its newest checkpoint, destroy what was rented",
            ("vast://30007012 --upload hf:me/my-lora",),
            add_terminate,
            "TARGET",
        ),
        "upload": Command(
            "watching",
            "upload a file or folder from the target, and see that it arrived",
            ("my-pod /checkpoints/step_500 hf:me/my-lora", "local out/model.safetensors s3://bucket/models"),
            add_upload,
            "TARGET",
        ),
        "stop": Command("commands", "stop a job and see it gone", ("my-pod my-training",), _add_stop, "TARGET JOB"),
    },
    "read one thing": {
        "health": Command(
            "commands",
            "one report and verdict on GPUs, network, checkpoints, Ray, pods, disks",
            ("my-head-pod --pods my-head-pod my-worker-pod",),
            _add_health,
            "TARGET",
        ),
        "gpu": Command("commands", "GPU utilisation, memory, power, processes", ("ssh://me@gpu1",), None, "TARGET"),
        "efa": Command(
            "commands",
            "whether NCCL uses EFA or fell back to TCP",
            ("my-head-pod --pods my-worker-pod",),
            _add_efa,
            "TARGET",
        ),
        "resources": Command("commands", "GPUs and CPUs of a Ray cluster", ("my-head-pod",), None, "TARGET"),
        "checkpoints": Command(
            "commands",
            "checkpoints of a folder, and which are complete",
            ("my-pod /checkpoints/my-training",),
            _add_checkpoints,
            "TARGET",
        ),
    },
    "train on rented machines": {
        "launch": Command(
            "service",
            "train on a rented vast.ai machine: queue it, or do it here with --watch",
            ("--dataset ./images --name my-lora --trigger mylora --env HF_TOKEN --upload hf:me/my-lora --watch",),
            add_launch,
        ),
        "queue": Command(
            "service",
            "the trainings on rented machines; show or cancel one",
            ("", "my-lora-123456 --cancel"),
            add_queue,
        ),
        "worker": Command(
            "service", "work through the queue: rent, train, save, destroy", ("--jobs 4", "--until-empty"), add_worker
        ),
        "sweep": Command(
            "sweeping",
            "find rented instances that no training needs; destroy them with --force",
            ("", "--force", "--every 15m"),
            add_sweep,
        ),
        "instances": Command(
            "market", "what is rented at vast.ai, for which training, and what it costs", ("",), add_instances
        ),
        "offers": Command("market", "what is for rent at vast.ai, best first", ("--gpu 4090",), add_offers),
        "dataset": Command("market", "whether a folder of images is fit to train with", ("./images",), add_dataset),
        "keys": Command("market", "whether rented machines will let your ssh key in", ("", "--setup"), add_keys),
        "credits": Command(
            "market", "vast.ai's credit and how long it lasts; or an account of the ledger", ("",), add_credits
        ),
    },
    "set up": {
        "demo": Command(
            "supervising", "watch a real training process crash, hang and recover (20 s, needs nothing)", ("",)
        ),
        "doctor": Command(
            "doctor",
            "which tools, contexts and keys work here, and what to do",
            ("", "my-pod ssh://me@gpu1"),
            _add_doctor,
            "[TARGET]",
        ),
        "notify": Command(
            "notifying",
            "prove the channels that notices go by, send one, or list those sent",
            ("--test", "--list"),
            add_notify,
        ),
        "config": Command("config", "which settings file is read, and what is wrong with it", ("--check",), add_config),
    },
}
