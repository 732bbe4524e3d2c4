"""`run`: supervise a command: run it and restart it from its checkpoints."""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shlex
from argparse import Namespace
from typing import Any

from training_monitor.cli.argument_types import TARGETS, CommandParser
from training_monitor.cli.command_table import Command
from training_monitor.cli.options import add_supervision
from training_monitor.core.errors import SettingsError


def declare(command: CommandParser) -> None:
    command.namespace()
    command.value(
        "--target", "TARGET", "where to run the command, see below (default: local)", TARGETS, default="local"
    )
    command.value("--name", "NAME", "name of the job (default: derived from the command)")
    command.value(
        "--working-dir",
        "DIR",
        "working directory on the target (default: the current directory; on another machine, the "
        "one in which a shell starts)",
    )
    command.several("--env", "NAME[=VALUE]", "environment variable; NAME alone passes its current value")
    add_supervision(command)
    command.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the program to run, with its arguments"
    )


def run(args: Namespace) -> int:
    """Start a command on a target, or resume supervising it, and keep it running."""
    from training_monitor.cli.supervising import let_read, named_folder, supervise

    words = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not words:
        raise SettingsError("COMMAND", "", "the command to supervise, after --")
    config: dict[str, Any] = {"command": words[0] if len(words) == 1 else shlex.join(words)}
    directory = args.checkpoint_dir or named_folder(config["command"])
    if args.target == "local":
        directory = os.path.abspath(os.path.expanduser(directory)) if directory else directory
        config["working_dir"] = os.getcwd()
    if args.working_dir:
        config["working_dir"] = args.working_dir
    if args.resume_argument:
        config["resume_argument"] = args.resume_argument
    if args.env:
        config["env"] = dict(_variable(text) for text in args.env)
    let_read(args, directory)
    return supervise(args, args.name or default_name(words, config.get("working_dir"), directory), directory, config)


def default_name(words: list[str], working_dir: str | None, directory: str | None) -> str:
    """Return a name unique to command, folder and checkpoint folder, so that the same call finds its job again."""
    script = next((word for word in words if word.endswith((".py", ".sh"))), words[0].split()[0])
    stem = re.sub(r"[^A-Za-z0-9]+", "-", os.path.basename(script).rpartition(".")[0] or os.path.basename(script))
    digest = hashlib.sha256("\0".join([*words, working_dir or "", directory or ""]).encode()).hexdigest()[:6]
    return f"{stem.strip('-')[:40] or 'job'}-{digest}"


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:  # NAME alone keeps a secret off the command line
        if name not in os.environ:
            raise SettingsError("--env", text, "NAME=VALUE, or the NAME of an environment variable that is set")
        value = os.environ[name]
    return name, value


COMMAND = Command(
    run,
    declare,
    (
        "--checkpoint-dir ./checkpoints --resume-argument=--resume -- python3 train.py",
        "--target ssh://me@gpu1 --notify -- python3 train.py",
    ),
)
