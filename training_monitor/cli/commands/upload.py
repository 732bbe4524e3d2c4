"""`upload`: upload a file or folder from the target, and see that it arrived."""

from __future__ import annotations

from argparse import Namespace

from training_monitor.cli.argument_types import CommandParser
from training_monitor.cli.command_table import Command
from training_monitor.cli.notifying import typed_or_variable
from training_monitor.cli.output import BAD, OK, complain, hint, print_json, say
from training_monitor.core.units import plural


def declare(command: CommandParser) -> None:
    command.target()
    command.value("path", "PATH", "path on the target")
    command.value("destination", "WHERE", "hf:OWNER/NAME[@BRANCH], s3://BUCKET/PREFIX or a presigned URL")


def run(args: Namespace) -> int:
    from training_monitor.targets.target import parse_target
    from training_monitor.uploads.checkpoint import upload_checkpoint

    target = parse_target(args.target, namespace=args.namespace)
    destination = typed_or_variable("destination", args.destination)
    report = upload_checkpoint(target, args.path, destination, on_progress=None if args.json else hint)
    if not print_json(args, report):
        if report.verified:
            say(f"{report.destination}: {plural(len(report.files), 'file')} verified")
        else:
            complain(f"{report.destination}: {report.error}")
    return OK if report.verified else BAD


COMMAND = Command(
    run,
    declare,
    ("my-pod /checkpoints/step_500 hf:me/my-lora", "local out/model.safetensors s3://bucket/models"),
)
