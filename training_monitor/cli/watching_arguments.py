"""The options of `watch`, `terminate` and `upload`. Every command declares them: argparse is all it may cost."""

from __future__ import annotations

import argparse

from training_monitor.cli.argument_types import SECONDS, STALLS, WHAT, add_take_over, some_name
from training_monitor.cli.telling_arguments import add_heartbeat, add_outage_after, add_telling


def _add_watched(command: argparse.ArgumentParser) -> None:
    """What is watched, and who is told."""
    which = command.add_mutually_exclusive_group()
    which.add_argument("what", metavar="WHAT", nargs="?", help=WHAT)
    which.add_argument("--log", metavar="FILE", help="what the training writes, a file or pattern on the target")
    which.add_argument("--job", type=some_name, metavar="JOB", help="a Ray submission id, or process:NAME")
    command.add_argument("--pid-file", metavar="FILE", help="the file with the pid of the training, with --log")
    command.add_argument(
        "--output-dir", metavar="DIR", help="the folder of its checkpoints on the target (default: found, if it can be)"
    )
    command.add_argument("--name", metavar="NAME", help="what notices call it (default: job or log)")
    add_telling(command)
    command.add_argument(
        "--upload",
        action="append",
        default=[],
        metavar="WHERE",
        help="where to upload the newest complete checkpoint: hf:OWNER/NAME, s3://BUCKET/PREFIX or a presigned URL; "
        "give it again to name the next one to try if it fails",
    )
    command.add_argument(
        "--tag", action="append", default=[], metavar="TAG", help="a tag for the README of a model that is not finished"
    )
    command.add_argument(
        "--destroy", action="store_true", help="destroy the vast.ai instance once the upload is verified"
    )
    command.add_argument(
        "--destroy-without-upload",
        action="store_true",
        help="destroy it even without a verified upload: what is on it is lost",
    )
    command.add_argument("--stop-grace", type=SECONDS, metavar="SECONDS", help="between TERM and KILL (default: 10)")


def add_watch(command: argparse.ArgumentParser) -> None:
    """Declare the options of `watch`."""
    _add_watched(command)
    mode = command.add_mutually_exclusive_group()
    mode.add_argument("--stream", action="store_true", help="follow the log line by line (default on a terminal)")
    mode.add_argument("--poll", action="store_true", help="look now and then (default elsewhere)")
    mode.add_argument("--once", action="store_true", help="look once, with the exit status of `check`")
    add_heartbeat(command)
    add_outage_after(command)
    command.add_argument("--terminate", action="store_true", help="end it when it has stalled for the grace period")
    add_take_over(command)
    command.add_argument(
        "--terminate-busy",
        action="store_const",
        const=True,
        help="with --terminate: end it also when it makes no step although its GPUs compute or its log grows",
    )
    command.add_argument("--no-stall-detection", action="store_true", help="never call it stalled")
    for option, metavar, text in (
        ("--poll-interval", "SECONDS", "between looks (default: 60)"),
        ("--grace-period", "SECONDS", "from the notice of a stall to the end (default: 900)"),
        ("--stall-after", "SECONDS", f"{STALLS} (default: by what is seen of it)"),
        ("--soft-limit", "SECONDS", "send a notice after this run time"),
        ("--hard-limit", "SECONDS", "end it after this run time, with --terminate"),
        ("--cost-per-hour", "MONEY", "what the machine costs"),
        ("--budget", "MONEY", "send a notice when it is spent"),
    ):
        command.add_argument(option, type=SECONDS, metavar=metavar, help=text)


def add_terminate(command: argparse.ArgumentParser) -> None:
    """Declare the options of `terminate`."""
    _add_watched(command)
    command.add_argument(
        "--reason", metavar="TEXT", default="Ended by hand", help="why, for the notice (default: %(default)s)"
    )


def add_upload(command: argparse.ArgumentParser) -> None:
    """Declare the options of `upload`."""
    command.add_argument("path", metavar="PATH", help="on the target")
    command.add_argument(
        "destination", metavar="WHERE", help="hf:OWNER/NAME[@BRANCH], s3://BUCKET/PREFIX or a presigned URL"
    )
