"""The options of the larger commands, by group.

Every start of the command line declares all of them, so this module imports argparse and little else.
"""

from __future__ import annotations

import argparse
import time

from training_monitor.cli.argument_types import (
    HARD_LIMIT,
    INTERVAL,
    SECONDS_ABOVE_ZERO,
    SOFT_LIMIT,
    STALL_AFTER,
    STALLS,
    STOP_GRACE,
    WHAT,
    add_duration,
    add_heartbeat,
    add_outage_after,
    add_take_over,
    add_telling,
    amount,
    count,
    dollars,
    positive_count,
    positive_number,
    seconds_from,
    some_name,
)
from training_monitor.core.regex import regex
from training_monitor.core.units import parse_duration

CSV_DIR = "./train/statistics/data"
_SECONDS = seconds_from(0.1, below=1e6)
_TIME = regex(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d:\d\d)?)?")


def _instances(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not all(word.isascii() and word.isdigit() and len(word) <= 18 for word in words):
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected numbers with commas between them, as in 30007012,30007267"
        )
    return list(dict.fromkeys(int(word) for word in words))


def add_vast(command: argparse.ArgumentParser) -> None:
    """Declare the options of `vast`."""
    which = command.add_mutually_exclusive_group()
    which.add_argument("--instances", type=_instances, metavar="A,B", help="only these")
    which.add_argument("--all", action="store_true", help="every instance that is not stopped (default)")
    command.add_argument("--mock", action="store_true", help="made-up instances: needs no network, account or tool")
    _add_screen(command)


def add_fleet(command: argparse.ArgumentParser) -> None:
    """Declare the options of `fleet`."""
    command.add_argument(
        "targets",
        metavar="TARGET",
        nargs="*",
        help="TARGET, TARGET#JOB, TARGET#LOG, or a group of the settings file (default: all groups)",
    )
    command.add_argument("-n", "--namespace", default="default", help="of a bare pod name (default: %(default)s)")
    _add_screen(command)


def _add_screen(command: argparse.ArgumentParser) -> None:
    command.add_argument("--group", metavar="NAME", help="begin with this group; Tab shows the next")
    add_duration(command, INTERVAL, "between refreshes (default: 10s)", kind=seconds_from(1, below=1e6))
    command.add_argument(
        "--log-path",
        action="append",
        metavar="PATTERN",
        help="where the trainings' logs are, for the shell there; the newest match is read (default: "
        "/workspace/output/*/training.log and others)",
    )
    command.add_argument("--once", action="store_true", help="look once and print a table (default without a terminal)")
    command.add_argument("--read-only", action="store_true", help="no key can stop or destroy anything")
    command.add_argument("--no-history", action="store_true", help="keep nothing for `training-monitor history`")
    add_telling(command)
    add_heartbeat(command)
    add_outage_after(command)


def add_instances(command: argparse.ArgumentParser) -> None:
    """Declare the options of `instances`."""
    command.add_argument("id", metavar="ID", nargs="?", help="more about this one (default: list them)")


def add_offers(command: argparse.ArgumentParser) -> None:
    """Declare the options of `offers`."""
    command.add_argument(
        "--gpu",
        nargs="+",
        action="extend",
        metavar="NAME",
        help="only these, most wanted first (default: any, those of VASTAI_PREFERRED_GPUS first)",
    )
    for option, metavar, text in (
        ("--max-price", "DOLLARS", "per hour, with the disk (default: 4.50, or VASTAI_MAX_BID_PER_HOUR)"),
        ("--min-vram", "GB", "of each GPU (default: 24, or VASTAI_MIN_VRAM_GB)"),
        ("--disk", "GB", "(default: 64, or VASTAI_DEFAULT_DISK_GB)"),
        ("--reliability", "SHARE", "at least this, 0 to 1 (default: 0.95)"),
    ):
        command.add_argument(option, type=amount, metavar=metavar, help=text)
    command.add_argument("--country-not", nargs="*", metavar="XX", help="not in these countries (default: CN HK)")
    command.add_argument("--bid", action="store_true", help="cheaper machines that may be taken away at any time")
    command.add_argument("--limit", type=count, default=20, metavar="N", help="show at most N (default: %(default)s)")


def add_dataset(command: argparse.ArgumentParser) -> None:
    """Declare the options of `dataset`."""
    command.add_argument("path", metavar="PATH", help="a folder of images and captions on this machine")
    command.add_argument("--min-images", type=count, default=10, metavar="N", help="fewer are an error (default: 10)")
    command.add_argument("--trigger", metavar="WORD", help="that captions have to hold")
    command.add_argument("--require-captions", action="store_true", help="an image without one is an error")


def add_keys(command: argparse.ArgumentParser) -> None:
    """Declare the options of `keys`."""
    command.add_argument("--setup", action="store_true", help="make the pair if there is none, and register it")
    command.add_argument(
        "--path", metavar="FILE", help="(default: VASTAI_SSH_KEY_PATH, else ~/.ssh/vastai/vastai_ed25519)"
    )


def add_credits(command: argparse.ArgumentParser) -> None:
    """Declare the options of `credits`."""
    command.add_argument("account", metavar="ACCOUNT", nargs="?", help="of the ledger here (default: vast.ai's own)")
    change = command.add_mutually_exclusive_group()
    change.add_argument("--deposit", type=dollars, metavar="DOLLARS", help="pay in to ACCOUNT")
    change.add_argument(
        "--withdraw", type=dollars, metavar="DOLLARS", help="take out of ACCOUNT again: a wrong deposit is corrected so"
    )
    command.add_argument("--reason", metavar="TEXT", help="why it was paid in or taken out")
    command.add_argument("--payment", metavar="ID", help="the same payment counts once")


def add_top(command: argparse.ArgumentParser) -> None:
    """Declare the options of `top`."""
    command.add_argument(
        "folder",
        metavar="FOLDER",
        help="with the progress files of the runs: a folder here, ssh://[user@]host[:port]/path, "
        "k8s://namespace/pod[/container]:/path, POD:/path or vast://ID/path",
    )
    command.add_argument("-n", "--namespace", default="default", help="of a bare pod name (default: %(default)s)")
    add_duration(command, INTERVAL, "between refreshes (default: 2s)", default=2.0, kind=_SECONDS, short="-i")
    for option, metavar, text in (
        ("--max-cpus", "CORES", "that the runs may use (default: all)"),
        ("--max-ram", "GB", "of memory that they may use (default: all)"),
        ("--max-gpu", "GB", "of GPU memory that they may use (default: all)"),
    ):
        command.add_argument(option, type=positive_number, metavar=metavar, help=text)
    add_duration(command, ["--csv-interval"], "between rows in CSV files (default: no CSV)", kind=_SECONDS)
    command.add_argument(
        "--csv-dir", default=CSV_DIR, metavar="PATH", help="the folder of the CSV files (default: %(default)s)"
    )
    mode = command.add_mutually_exclusive_group()
    mode.add_argument("--headless", action="store_true", help="no screen: only CSV, or with --json a line each time")
    mode.add_argument("--once", action="store_true", help="look once and print a table (default without a terminal)")
    command.add_argument("--read-only", action="store_true", help="no key can signal, edit or delete anything")


def _add_watched(command: argparse.ArgumentParser) -> None:
    """Declare what is watched, and the notices and actions of `watch` and `terminate`."""
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
    add_duration(command, STOP_GRACE, "between TERM and KILL (default: 10s)")


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
    add_duration(command, INTERVAL, "between looks (default: 1m)")
    add_duration(command, ["--grace-period"], "from the notice of a stall to the end (default: 15m)")
    add_duration(command, STALL_AFTER, f"{STALLS} (default: by what is seen of it)")
    add_duration(command, SOFT_LIMIT, "send a notice after this run time")
    add_duration(command, HARD_LIMIT, "end it after this run time, with --terminate")
    command.add_argument("--cost-per-hour", type=amount, metavar="MONEY", help="what the machine costs")
    command.add_argument("--budget", type=amount, metavar="MONEY", help="send a notice when it is spent")


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


def add_launch(command: argparse.ArgumentParser) -> None:
    """Declare the options of `launch`."""
    command.add_argument("--name", metavar="NAME", help="of the job and its model")
    command.add_argument("--dataset", metavar="DIR", help="a folder of images and captions on this machine")
    command.add_argument("--trigger", metavar="WORD", help="the word that stands for what is trained")
    for option, kind, metavar, text in (
        ("--steps", positive_count, "N", "(default: 4000)"),
        ("--save-every", positive_count, "N", "steps between checkpoints (default: 250)"),
        ("--learning-rate", positive_number, "X", "(default: 0.0001)"),
        ("--rank", positive_count, "N", "of the LoRA (default: 32)"),
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
    ):
        command.add_argument(option, type=positive_number, metavar=metavar, help=text)
    add_duration(command, SOFT_LIMIT, "send a notice after this time on rented machines", kind=SECONDS_ABOVE_ZERO)
    add_duration(
        command,
        HARD_LIMIT,
        "save and end the job after this time on rented machines (default: 4h)",
        kind=SECONDS_ABOVE_ZERO,
    )
    command.add_argument("--num-gpus", type=positive_count, metavar="N", help="(default: 1)")
    command.add_argument("--bid", action="store_true", help="a cheaper machine that may be taken away at any time")
    command.add_argument("--max-machines", type=positive_count, metavar="N", help="that it may use up (default: 3)")


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
    command.add_argument(
        "--jobs", type=positive_count, default=1, metavar="N", help="at the same time (default: %(default)s)"
    )
    command.add_argument("--until-empty", action="store_true", help="leave when nothing is left to do")
    command.add_argument("--no-sweep", action="store_true", help="leave the sweeping to `training-monitor sweep`")
    add_telling(command)
    add_heartbeat(command)


def add_sweep(command: argparse.ArgumentParser) -> None:
    """Declare the options of `sweep`."""
    command.add_argument("--force", action="store_true", help="destroy them (default: only say which)")
    command.add_argument(
        "--all", action="store_true", help="with --force: every instance of the account, also foreign ones"
    )
    command.add_argument("--confirm", metavar="TEXT", help="for --all --force without a terminal: what it asks to type")
    command.add_argument(
        "--every",
        type=SECONDS_ABOVE_ZERO,
        nargs="?",
        const=900.0,
        metavar="DURATION",
        help="repeat at this interval (default: 15m)",
    )
    add_telling(command)


def add_history(command: argparse.ArgumentParser) -> None:
    """Declare the options of `history`."""
    command.add_argument(
        "members",
        metavar="MEMBER",
        nargs="*",
        help="a key, or a part of it that only one has (default: all in a table)",
    )
    for option, default, text in (
        ("--since", "24h", "how long ago (90m, 1h30m, 7d), or a time (2030-01-31T12:00) (default: %(default)s)"),
        ("--until", None, "the same (default: now)"),
    ):
        command.add_argument(option, type=_moment, default=default, metavar="WHEN", help=text)
    command.add_argument("--field", action="append", default=[], metavar="FIELD", help="only this; may be repeated")
    command.add_argument("--csv", metavar="FILE", help="write the samples there; - is stdout")
    command.add_argument("--jsonl", metavar="FILE", help="the same as JSON lines; what is no number there is a text")
    command.add_argument("--compare", action="store_true", help="runs side by side, also at the same step")


def _moment(text: str) -> float:
    """Parse a time, or a duration ago, into epoch seconds. A time without a zone is local."""
    if (ago := parse_duration(text)) is not None:
        return time.time() - ago
    if _TIME.fullmatch(text):
        from datetime import datetime

        try:
            return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
        except (ValueError, OverflowError, OSError):
            pass
    raise argparse.ArgumentTypeError(f"{text!r}: expected 90m, 1h30m, 7d or 2030-01-31T12:00")


def add_config(command: argparse.ArgumentParser) -> None:
    """Declare the options of `config`."""
    command.add_argument("--check", action="store_true", help="say all that is wrong in it; then the exit status is 1")
    command.add_argument(
        "--file",
        metavar="FILE",
        help="(default: TRAINING_MONITOR_SETTINGS, else settings.toml or settings.json in ~/.config/training_monitor)",
    )


def add_notify(command: argparse.ArgumentParser) -> None:
    """Declare the options of `notify`."""
    command.add_argument("message", metavar="MESSAGE", nargs="?", help="what to say")
    command.add_argument("--test", action="store_true", help="send a test by every configured channel")
    command.add_argument("--list", action="store_true", help="list the recent notices")
    command.add_argument("--channel", action="append", metavar="NAME", help="only this one (may be repeated)")
    command.add_argument("--user", metavar="NAME", help="one of the settings file's users (default: the channels' own)")
    command.add_argument(
        "--priority",
        default="normal",
        choices=("low", "normal", "high", "urgent"),
        metavar="P",
        help="low | normal | high | urgent (default: %(default)s)",
    )
    command.add_argument("--job", metavar="JOB", help="what it is about; with --list, only this job's")
