"""`rent keys`: whether rented machines will let your ssh key in."""

from __future__ import annotations

import os
import shlex
from argparse import Namespace

from training_monitor.cli.argument_types import FILES, CommandParser
from training_monitor.cli.command_table import Command
from training_monitor.cli.output import BAD, OK, USAGE, one_line, print_json, refuse, say
from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.settings import vast_key_path
from training_monitor.vast import check_ssh_keys, setup_ssh_key


def declare(command: CommandParser) -> None:
    command.flag("--setup", "create the key pair if it does not exist, and register it")
    command.value(
        "--path", "FILE", "private key file (default: VASTAI_SSH_KEY_PATH, else ~/.ssh/vastai/vastai_ed25519)", FILES
    )


def run(args: Namespace) -> int:
    """Check, or with --setup ensure, that instances accept our ssh key, and return the exit code."""
    path = args.path or vast_key_path()
    if not args.setup and not os.path.lexists(path):
        more = "" if args.path is None else f" --path {shlex.quote(path)}"
        error = TrainingMonitorError(
            f"the ssh key {path} does not exist", hint=f"training-monitor rent keys --setup{more}"
        )
        return refuse(error, args, BAD if args.path is None else USAGE)
    report = setup_ssh_key(args.path) if args.setup else check_ssh_keys(args.path)
    good = report.registered and not report.open_to_others
    if print_json(args, report):
        return OK if good else BAD
    say(f"{one_line(report.private_key)}{': made' if report.made else ''}")
    say(f"  {one_line(report.public_key)}")
    if report.registered:
        say(f"  registered with vast.ai as key {report.key_id}: each new instance gets it")
    else:
        say("  NOT registered with vast.ai: training-monitor rent keys --setup")
    if report.open_to_others:
        say(f"  other users can read it, so ssh refuses it: chmod 600 {shlex.quote(report.private_key)}")
    return OK if good else BAD


COMMAND = Command(run, declare, ("", "--setup"))
