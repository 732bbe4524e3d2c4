"""The options of `launch`, `queue`, `worker` and `sweep`. Every command declares them: argparse is all it may cost."""

from __future__ import annotations

import argparse

from training_monitor.cli.argument_types import positive_number
from training_monitor.cli.telling_arguments import add_heartbeat, add_telling


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 8 and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number above 0")
    return int(text)


def _jobs(text: str) -> int:
    from training_monitor.policy.service_config import MOST_JOBS_AT_ONCE

    if not (text.isascii() and text.isdigit() and len(text) < 8 and 0 < int(text) <= MOST_JOBS_AT_ONCE):
        raise argparse.ArgumentTypeError(f"{text[:60]!r}: expected 1 to {MOST_JOBS_AT_ONCE} jobs at the same time")
    return int(text)


def add_launch(command: argparse.ArgumentParser) -> None:
    """Declare the options of `launch`."""
    command.add_argument("--name", metavar="NAME", help="of the job and its model")
    command.add_argument("--dataset", metavar="DIR", help="a folder of images and captions on this machine")
    command.add_argument("--trigger", metavar="WORD", help="the word that stands for what is trained")
    for option, kind, metavar, text in (
        ("--steps", _count, "N", "(default: 4000)"),
        ("--save-every", _count, "N", "steps between checkpoints (default: 250)"),
        ("--learning-rate", positive_number, "X", "(default: 0.0001)"),
        ("--rank", _count, "N", "of the LoRA (default: 32)"),
        ("--alpha", positive_number, "X", "of the LoRA (default: 32)"),
    ):
        command.add_argument(option, type=kind, metavar=metavar, help=text)
    command.add_argument("--base-model", metavar="OWNER/NAME", help="(default: black-forest-labs/FLUX.1-dev)")
    command.add_argument(
        "--command",
        metavar="LINE",
        help="run this instead of a LoRA training; it finds $DATASET, writes checkpoints into $OUTPUT and goes on from "
        "$RESUME_FROM_CHECKPOINT",
    )
    command.add_argument("--image", metavar="IMAGE", help="the container (default: ostris/aitoolkit:latest)")
    command.add_argument(
        "--env",
        action="append",
        metavar="NAME[=VALUE]",
        help="for the training; NAME alone is looked up in the environment when it starts",
    )
    command.add_argument("--from", dest="file", metavar="FILE", help="a JSON file with the fields of TrainingRequest")
    _add_machine(command)
    _add_end(command)


def _add_machine(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--gpu", nargs="+", action="extend", metavar="NAME", help="preferred, most wanted first: 4090, A100, ..."
    )
    for option, metavar, text in (
        ("--max-price", "DOLLARS", "per hour (default: 4.50, or VASTAI_MAX_BID_PER_HOUR)"),
        ("--min-vram", "GB", "of each GPU (default: 24, or VASTAI_MIN_VRAM_GB)"),
        ("--disk", "GB", "(default: 64, or VASTAI_DEFAULT_DISK_GB)"),
        ("--budget", "DOLLARS", "the job ends when it has spent this"),
        ("--soft-timeout", "SECONDS", "on rented machines: somebody is told"),
        ("--hard-timeout", "SECONDS", "on rented machines: it is saved and ended (default: 14400)"),
    ):
        command.add_argument(option, type=positive_number, metavar=metavar, help=text)
    command.add_argument("--num-gpus", type=_count, metavar="N", help="(default: 1)")
    command.add_argument("--bid", action="store_true", help="a cheaper machine that may be taken away at any time")
    command.add_argument("--max-machines", type=_count, metavar="N", help="that it may use up (default: 3)")


def _add_end(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--upload", action="append", metavar="WHERE", help="hf:OWNER/NAME, s3://BUCKET/PREFIX; the next where one fails"
    )
    command.add_argument("--samples", metavar="LINE", help="run on the machine with $MODEL; writes into $SAMPLES")
    command.add_argument("--register", metavar="LINE|URL", help="run here, or called, with the finished model")
    command.add_argument(
        "--on-finish",
        choices=("destroy", "stop", "keep"),
        help="the machine, of a job that completed (default: destroy)",
    )
    command.add_argument("--account", metavar="NAME", help="whose credits pay (default: nobody's)")
    command.add_argument(
        "--id", metavar="ID", help="of the job: the same one again goes on with it (default: made from NAME)"
    )
    command.add_argument("--force", action="store_true", help="queue it although nothing for rent does for it now")
    command.add_argument("--watch", action="store_true", help="do the work here and show it, instead of in a worker")
    add_telling(command)
    add_heartbeat(command)


def add_queue(command: argparse.ArgumentParser) -> None:
    """Declare the options of `queue`."""
    command.add_argument("job", metavar="JOB", nargs="?", help="show this one (default: list them)")
    command.add_argument("--cancel", action="store_true", help="end JOB: save what there is, destroy its machine")
    command.add_argument(
        "--reason", metavar="TEXT", default="cancelled by hand", help="why, with --cancel (default: %(default)s)"
    )
    command.add_argument("--all", action="store_true", help="also those that have ended")


def add_worker(command: argparse.ArgumentParser) -> None:
    """Declare the options of `worker`."""
    command.add_argument("--jobs", type=_jobs, default=1, metavar="N", help="at the same time (default: %(default)s)")
    command.add_argument("--until-empty", action="store_true", help="leave when nothing is left to do")
    command.add_argument("--no-sweep", action="store_true", help="leave the sweeping to `training-monitor sweep`")
    add_telling(command)
    add_heartbeat(command)


def add_sweep(command: argparse.ArgumentParser) -> None:
    """Declare the options of `sweep`."""
    command.add_argument("--force", action="store_true", help="destroy them (default: only say which)")
    command.add_argument("--all", action="store_true", help="with --force: every instance of the account, whoever's")
    command.add_argument("--confirm", metavar="TEXT", help="for --all --force without a terminal: what it asks to type")
    command.add_argument(
        "--every",
        type=positive_number,
        nargs="?",
        const=900.0,
        metavar="SECONDS",
        help="go on, sweeping so often (default: 900)",
    )
    add_telling(command)
