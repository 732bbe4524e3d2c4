"""`rent launch`: train on a rented vast.ai machine: queue it, or do it here with --watch."""

from __future__ import annotations

from argparse import Namespace

from training_monitor.cli.argument_types import (
    FILES,
    FOLDERS,
    SECONDS_ABOVE_ZERO,
    CommandParser,
    positive_count,
    positive_number,
)
from training_monitor.cli.command_table import Command


def declare(command: CommandParser) -> None:
    command.value("--name", "NAME", "of the job and its model")
    command.value("--dataset", "DIR", "a folder of images and captions on this machine", FOLDERS)
    command.value("--trigger", "WORD", "the word that stands for what is trained")
    command.value("--steps", "N", "(default: 4000)", type=positive_count)
    command.value("--save-every", "N", "steps between checkpoints (default: 250)", type=positive_count)
    command.value("--learning-rate", "X", "(default: 0.0001)", type=positive_number)
    command.value("--rank", "N", "of the LoRA (default: 32)", type=positive_count)
    command.value("--alpha", "X", "of the LoRA (default: 32)", type=positive_number)
    command.value("--base-model", "OWNER/NAME", "(default: black-forest-labs/FLUX.1-dev)")
    command.value(
        "--command",
        "LINE",
        "run this instead of a LoRA training; it finds $DATASET, writes checkpoints into $OUTPUT and goes on from "
        "$RESUME_FROM_CHECKPOINT",
    )
    command.value("--image", "IMAGE", "the container (default: ostris/aitoolkit:latest)")
    command.value(
        "--env",
        "NAME[=VALUE]",
        "for the training; NAME alone is looked up in the environment when it starts",
        action="append",
    )
    command.value("--from", "FILE", "a JSON file with the fields of TrainingRequest", FILES, dest="file")
    command.value("--gpu", "NAME", "preferred, most wanted first: 4090, A100, ...", nargs="+", action="extend")
    command.value(
        "--max-price", "DOLLARS", "per hour (default: 4.50, or VASTAI_MAX_BID_PER_HOUR)", type=positive_number
    )
    command.value("--min-vram", "GB", "of each GPU (default: 24, or VASTAI_MIN_VRAM_GB)", type=positive_number)
    command.value("--disk", "GB", "(default: 64, or VASTAI_DEFAULT_DISK_GB)", type=positive_number)
    command.value("--budget", "DOLLARS", "end the job when it has spent this", type=positive_number)
    command.duration("--soft-limit", "send a notice after this time on rented machines", type=SECONDS_ABOVE_ZERO)
    command.duration(
        "--hard-limit", "save and end the job after this time on rented machines (default: 4h)", type=SECONDS_ABOVE_ZERO
    )
    command.value("--num-gpus", "N", "(default: 1)", type=positive_count)
    command.flag("--bid", "a cheaper machine that may be taken away at any time")
    command.value("--max-machines", "N", "that it may use up (default: 3)", type=positive_count)
    command.value("--upload", "WHERE", "hf:OWNER/NAME, s3://BUCKET/PREFIX; the next where one fails", action="append")
    command.value("--samples", "LINE", "run on the machine with $MODEL; writes into $SAMPLES")
    command.value("--register", "LINE|URL", "run here, or called, with the finished model")
    command.add_argument(
        "--on-finish",
        choices=("destroy", "stop", "keep"),
        help="the machine, of a job that completed (default: destroy)",
    )
    command.value("--account", "NAME", "whose credits pay (default: nobody's)")
    command.value("--id", "ID", "of the job: the same one again goes on with it (default: made from NAME)")
    command.flag("--force", "queue it although nothing for rent does for it now")
    command.flag("--watch", "do the work here and show it, instead of in a worker")
    command.notify()
    command.heartbeat()


def run(args: Namespace) -> int:
    from training_monitor.cli.service import launch

    return launch(args)


COMMAND = Command(
    run,
    declare,
    ("--dataset ./images --name my-lora --trigger mylora --env HF_TOKEN --upload hf:me/my-lora --watch",),
)
