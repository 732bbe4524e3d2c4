"""`checkpoints`: checkpoints of a folder, and which are complete."""

from __future__ import annotations

from argparse import Namespace

from training_monitor.cli.argument_types import CommandParser
from training_monitor.cli.command_table import Command
from training_monitor.cli.output import BAD, OK, format_unlisted, hint, print_json, say
from training_monitor.core.units import format_bytes
from training_monitor.core.values import CheckpointListing

_MARKS = {True: " ", False: "!", None: "?"}  # before a checkpoint: complete, refused, unknown


def declare(command: CommandParser) -> None:
    command.target()
    command.value("directory", "DIR", "checkpoint folder on the target")


def run(args: Namespace) -> int:
    from training_monitor.checkpoints.checkpoints import get_checkpoint_listing

    there = get_checkpoint_listing(args.directory, args.target, args.namespace)
    found = there or CheckpointListing(())
    latest = found.newest_complete
    found_keys = {"checkpoints": found.checkpoints, "unlisted_checkpoints": found.unlisted}
    if not print_json(args, {"directory": args.directory, "checkpoint": latest, **found_keys}):
        if found.unlisted:
            say(f"? {format_unlisted(found.unlisted)}")
        for each in found.checkpoints:
            mark = "*" if each is latest else _MARKS[each.complete]
            say(
                f"{mark} step {each.step:>9}  {format_bytes(each.size_bytes):>10}  {each.path}"
                + (f"  {each.problem}" if each.problem else "")
            )
        if not latest:
            what = "no such folder" if there is None else found.why_none_is_complete
            hint(f"{args.target}: {args.directory}: {what}")
    return OK if latest else BAD


COMMAND = Command(run, declare, ("my-pod /checkpoints/my-training",))
