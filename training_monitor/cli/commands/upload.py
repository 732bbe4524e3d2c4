"""`upload`: upload a file or folder from the target, and see that it arrived."""

from __future__ import annotations

from argparse import Namespace

from training_monitor.cli.argument_types import CommandParser
from training_monitor.cli.command_table import Command


def declare(command: CommandParser) -> None:
    command.target()
    command.value("path", "PATH", "on the target")
    command.value("destination", "WHERE", "hf:OWNER/NAME[@BRANCH], s3://BUCKET/PREFIX or a presigned URL")


def run(args: Namespace) -> int:
    from training_monitor.cli.watching import upload

    return upload(args)


COMMAND = Command(
    run,
    declare,
    ("my-pod /checkpoints/step_500 hf:me/my-lora", "local out/model.safetensors s3://bucket/models"),
)
