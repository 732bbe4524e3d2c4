"""`rent dataset`: whether a folder of images is fit to train with."""

from __future__ import annotations

from argparse import Namespace

from training_monitor.cli.argument_types import FOLDERS, CommandParser, count
from training_monitor.cli.command_table import Command
from training_monitor.cli.output import BAD, OK, one_line, print_json, say
from training_monitor.core.units import format_bytes, plural
from training_monitor.rent import validate_dataset


def declare(command: CommandParser) -> None:
    command.value("path", "PATH", "folder of images and captions on this machine", FOLDERS)
    command.value("--min-images", "N", "minimum number of images (default: 10)", type=count, default=10)
    command.value("--trigger", "WORD", "a word that every caption must contain")
    command.flag("--require-captions", "report images without a caption as errors")


def run(args: Namespace) -> int:
    """Validate a folder of images for training, and return the exit code."""
    report = validate_dataset(
        args.path, min_images=args.min_images, require_captions=args.require_captions, trigger=args.trigger
    )
    if print_json(args, report):
        return OK if report.is_valid else BAD
    formats = ", ".join(f"{count} {name}" for name, count in sorted(report.formats.items()))
    say(f"{one_line(report.path)}: {plural(report.images, 'image')}{f' ({formats})' if formats else ''}")
    sides = f", sides from {report.smallest_side} to {report.largest_side} pixels" if report.images else ""
    say(f"  {plural(report.captions, 'caption')}, {format_bytes(report.total_bytes)}{sides}")
    if report.hidden or report.other:
        other = plural(report.other, "other file or folder", "other files or folders")
        say(f"  ignored: {report.hidden} hidden, {other}")
    for kind, texts in (("error", report.errors), ("warning", report.warnings)):
        for text in texts:
            say(f"  {kind}: {one_line(text)}")
    say("valid" if report.is_valid else f"NOT valid: {plural(len(report.errors), 'error')}")
    return OK if report.is_valid else BAD


COMMAND = Command(run, declare, ("./images",))
