"""The arguments of the commands: `add_NAME` declares those of the command NAME.

Every start of the command line declares all of them, so this module imports argparse and little else.
"""

from __future__ import annotations

import argparse
import time

from training_monitor.cli.argument_types import (
    FILES,
    FOLDERS,
    HARD_LIMIT,
    HISTORY,
    INTERVAL,
    MEMBER_GROUPS,
    MEMBERS,
    SECONDS_ABOVE_ZERO,
    SOFT_LIMIT,
    STALL_AFTER,
    STALLS,
    STOP_GRACE,
    TARGETS,
    USERS,
    WHAT,
    CommandParser,
    amount,
    count,
    dollars,
    port,
    positive_count,
    positive_number,
    seconds_from,
    some_name,
)
from training_monitor.core.regex import regex
from training_monitor.core.units import parse_duration
from training_monitor.targets.kinds import list_folder_forms, one_of

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


def _add_target_and_what(command: CommandParser) -> None:
    command.value("target", "TARGET", "see below (default: local)", TARGETS, nargs="?", default="local")
    command.value("what", "WHAT", WHAT, nargs="?")
    command.namespace()


def add_check(command: CommandParser) -> None:
    _add_target_and_what(command)
    command.flag("--forget", "forget the trainings that earlier checks saw there and that have ended since")


def add_why(command: CommandParser) -> None:
    _add_target_and_what(command)
    command.value(
        "--also", "TARGET", "another host of the same training; again for more", TARGETS, action="append", default=[]
    )
    command.duration(["--timeout"], "for all of it (default: 20s)", default=20.0, type=seconds_from(5, below=600))
    command.value("--py-spy", "FILE", "a py-spy that is sent to the hosts, and removed again", FILES)
    command.flag("--stacks", "print the stacks of all threads")


def _add_supervision(command: CommandParser) -> None:
    command.value("--checkpoint-dir", "DIR", "a folder on the target (default: the one its command names, if any)")
    command.value(
        "--max-retries", "N", "restarts without progress in between (default: %(default)s)", type=count, default=10
    )
    command.duration(
        ["--retry-delay"], "before a restart; doubles while there is no progress (default: 1m)", default=60.0
    )
    command.duration(STALL_AFTER, f"{STALLS} (default: 5m)", default=300.0)
    command.duration(INTERVAL, "between looks (default: 30s)", default=30.0)
    command.value(
        "--resume-argument",
        "OPTION",
        "passes the checkpoint, say --resume; `{checkpoint}` "
        "in the command and the variable RESUME_FROM_CHECKPOINT work without it",
    )
    command.value(
        "--keep-attempts",
        "N",
        "former attempts whose run directories (with their logs) stay on the target (default: %(default)s)",
        type=count,
        default=10,
    )
    command.roll_call()
    command.flag("--fresh-start", "start from step 0 although checkpoints were written and none is complete")
    command.take_over()
    command.notify()
    command.heartbeat()
    command.outage_after()


def add_run(command: CommandParser) -> None:
    command.value("--target", "TARGET", "see below (default: local)", TARGETS, default="local")
    command.value("--name", "NAME", "of the job (default: made from the command)")
    command.value("--working-dir", "DIR", "on the target (default: here, or where a shell starts there)")
    command.value("--env", "NAME[=VALUE]", "for the command; NAME alone passes it on", action="append")
    _add_supervision(command)
    command.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")


def add_restart(command: CommandParser) -> None:
    command.value("job_name", "NAME", "jobs are called NAME or NAME-attempt-N")
    command.value("--job", "JOB", "start by supervising this submission id")
    command.value("--entrypoint", "COMMAND", "default: that of the latest Ray job of this name")
    _add_supervision(command)


def add_health(command: CommandParser) -> None:
    command.value("--checkpoint-dir", "DIR", "a folder on the head (default: found, if it can be)")
    command.value("--pods", "POD", "all pods of the job", nargs="+")
    command.value("--job", "JOB", "also report on this job")


def add_stall(command: CommandParser) -> None:
    command.duration(STALL_AFTER, f"{STALLS} (default: by the evidence, as check does)")
    command.duration(
        ["--sample"], "look once more after this time when the first look does not tell (default: 0)", default=0.0
    )


def add_wait(command: CommandParser) -> None:
    _add_target_and_what(command)
    command.value(
        "--for",
        "CONDITION",
        "finished, failed, stalled, step=N, epoch=N, gpu-idle[=DURATION] (5m), checkpoint (a new complete one) or "
        "log=REGEX (a new line); again: whichever holds first",
        action="append",
        dest="conditions",
    )
    command.value("--handle", "NAME", "for the wait; with it alone, go on with a wait whose caller died")
    command.flag("--list", "list the waits that are kept")
    command.duration(["--timeout"], "wait no longer than this (default: no limit)")
    command.duration(INTERVAL, "between looks (default: 30s; with --for 2s to 1m, the longer it waits the more)")
    command.duration(STALL_AFTER, f"{STALLS} (default: by the evidence, as check does)")
    command.value("--checkpoint-dir", "DIR", "of its checkpoints, for --for checkpoint (default: found, if it can be)")


def add_status(command: CommandParser) -> None:
    command.value("job", "JOB", "default: all process jobs and Ray jobs", nargs="?", type=some_name)


def add_logs(command: CommandParser) -> None:
    command.value("job", "JOB", WHAT, nargs="?", type=some_name)
    command.value("--tail", "LINES", "how many (default: %(default)s)", type=count, default=100)


def add_stop(command: CommandParser) -> None:
    command.duration(STOP_GRACE, "between TERM and KILL (default: 10s)", default=10.0)


def add_efa(command: CommandParser) -> None:
    command.value("--pods", "POD", "all pods of the job", nargs="+", default=[])


def add_checkpoints(command: CommandParser) -> None:
    command.value("directory", "DIR", "a folder on the target")


def add_doctor(command: CommandParser) -> None:
    command.value("targets", "TARGET", "also see whether these answer", TARGETS, nargs="*")


def add_skill(command: CommandParser) -> None:
    command.value("page", "PAGE", "print this document of references instead of SKILL.md", nargs="?")
    command.value(
        "--install",
        "DIR",
        "write DIR/training-monitor (default: in ~/.agents/skills and ~/.claude/skills, where ~/.agents or ~/.claude "
        "is; .claude/skills for one project)",
        nargs="?",
        const="",
    )
    command.flag("--force", "with --install, also replace files that were edited there")


def add_vast(command: CommandParser) -> None:
    which = command.add_mutually_exclusive_group()
    which.add_argument("--instances", type=_instances, metavar="A,B", help="only these")
    which.add_argument("--all", action="store_true", help="every instance that is not stopped (default)")
    command.flag("--mock", "made-up instances: needs no network, account or tool")
    _add_screen(command)


def add_fleet(command: CommandParser) -> None:
    _add_members(command)
    _add_screen(command)


def add_metrics(command: CommandParser) -> None:
    _add_any_members(command)
    command.value(
        "--textfile", "PATH", "write PATH, for node_exporter, after every look; its name ends with .prom", FILES
    )
    command.flag("--once", "look once (default without --textfile)")
    _add_fleet_looks(command)


def add_web(command: CommandParser) -> None:
    _add_any_members(command)
    command.value("--port", "PORT", "where to listen; 0: any free one (default: %(default)s)", type=port, default=8750)
    command.value(
        "--host", "ADDRESS", "where to listen; beyond this machine only with --token-file", default="127.0.0.1"
    )
    command.value("--name", "NAME", "a host name of this page, beside localhost", action="append", default=[])
    command.value(
        "--token-file",
        "FILE",
        "sign in with the token in this file, which only you can read; env:NAME for a variable that holds it",
        FILES,
    )
    command.flag("--allow-write", "let the page stop and destroy members, each after a typed confirmation")
    _add_fleet_looks(command)


def _add_any_members(command: CommandParser) -> None:
    _add_members(command)
    command.flag("--vast", "every vast.ai instance that is not stopped, as `training-monitor vast` shows")
    command.flag("--mock", "made-up instances: needs no network, account or tool")


def _add_members(command: CommandParser) -> None:
    command.value(
        "targets",
        "TARGET",
        "TARGET, TARGET#JOB, TARGET#LOG, or a group of the settings file (default: all groups)",
        MEMBERS,
        nargs="*",
    )
    command.namespace()


def _add_screen(command: CommandParser) -> None:
    command.value("--group", "NAME", "begin with this group; Tab shows the next", MEMBER_GROUPS)
    command.flag("--once", "look once and print a table (default without a terminal)")
    command.flag("--read-only", "no key can stop or destroy anything")
    _add_fleet_looks(command)


def _add_fleet_looks(command: CommandParser) -> None:
    command.duration(INTERVAL, "between refreshes (default: 10s)", type=seconds_from(1, below=1e6))
    command.value(
        "--log-path",
        "PATTERN",
        "where the trainings' logs are, for the shell there; the newest match is read (default: "
        "/workspace/output/*/training.log and others)",
        action="append",
    )
    command.flag("--no-history", "keep nothing for `training-monitor history`")
    command.notify()
    command.heartbeat()
    command.outage_after()


def add_instances(command: CommandParser) -> None:
    command.value("id", "ID", "more about this one (default: list them)", nargs="?")


def add_offers(command: CommandParser) -> None:
    command.value(
        "--gpu",
        "NAME",
        "only these, most wanted first (default: any, those of VASTAI_PREFERRED_GPUS first)",
        nargs="+",
        action="extend",
    )
    command.value(
        "--max-price", "DOLLARS", "per hour, with the disk (default: 4.50, or VASTAI_MAX_BID_PER_HOUR)", type=amount
    )
    command.value("--min-vram", "GB", "of each GPU (default: 24, or VASTAI_MIN_VRAM_GB)", type=amount)
    command.value("--disk", "GB", "(default: 64, or VASTAI_DEFAULT_DISK_GB)", type=amount)
    command.value("--reliability", "SHARE", "at least this, 0 to 1 (default: 0.95)", type=amount)
    command.value("--country-not", "XX", "not in these countries (default: CN HK)", nargs="*")
    command.flag("--bid", "cheaper machines that may be taken away at any time")
    command.value("--limit", "N", "show at most N (default: %(default)s)", type=count, default=20)


def add_dataset(command: CommandParser) -> None:
    command.value("path", "PATH", "a folder of images and captions on this machine", FOLDERS)
    command.value("--min-images", "N", "fewer are an error (default: 10)", type=count, default=10)
    command.value("--trigger", "WORD", "that captions have to hold")
    command.flag("--require-captions", "an image without one is an error")


def add_keys(command: CommandParser) -> None:
    command.flag("--setup", "make the pair if there is none, and register it")
    command.value("--path", "FILE", "(default: VASTAI_SSH_KEY_PATH, else ~/.ssh/vastai/vastai_ed25519)", FILES)


def add_credits(command: CommandParser) -> None:
    command.value("account", "ACCOUNT", "of the ledger here (default: vast.ai's own)", nargs="?")
    change = command.add_mutually_exclusive_group()
    change.add_argument("--deposit", type=dollars, metavar="DOLLARS", help="pay in to ACCOUNT")
    change.add_argument(
        "--withdraw", type=dollars, metavar="DOLLARS", help="take out of ACCOUNT again: a wrong deposit is corrected so"
    )
    command.value("--reason", "TEXT", "why it was paid in or taken out")
    command.value("--payment", "ID", "the same payment counts once")


def add_top(command: CommandParser) -> None:
    command.value(
        "folder",
        "FOLDER",
        f"with the progress files of the runs: {one_of(['a folder here', *list_folder_forms()])}",
        FOLDERS,
    )
    command.namespace()
    command.duration(INTERVAL, "between refreshes (default: 2s)", default=2.0, type=_SECONDS, short="-i")
    command.value("--max-cpus", "CORES", "that the runs may use (default: all)", type=positive_number)
    command.value("--max-ram", "GB", "of memory that they may use (default: all)", type=positive_number)
    command.value("--max-gpu", "GB", "of GPU memory that they may use (default: all)", type=positive_number)
    command.duration(["--csv-interval"], "between rows in CSV files (default: no CSV)", type=_SECONDS)
    command.value("--csv-dir", "PATH", "the folder of the CSV files (default: %(default)s)", FOLDERS, default=CSV_DIR)
    mode = command.add_mutually_exclusive_group()
    mode.add_argument("--headless", action="store_true", help="no screen: only CSV, or with --json a line each time")
    mode.add_argument("--once", action="store_true", help="look once and print a table (default without a terminal)")
    command.flag("--read-only", "no key can signal, edit or delete anything")


def _add_watched(command: CommandParser) -> None:
    """Declare what is watched, and the notices and actions of `watch` and `terminate`."""
    which = command.add_mutually_exclusive_group()
    which.add_argument("what", metavar="WHAT", nargs="?", help=WHAT)
    which.add_argument("--log", metavar="FILE", help="what the training writes, a file or pattern on the target")
    which.add_argument("--job", type=some_name, metavar="JOB", help="a Ray submission id, or process:NAME")
    command.value("--pid-file", "FILE", "the file with the pid of the training, with --log")
    command.value("--output-dir", "DIR", "the folder of its checkpoints on the target (default: found, if it can be)")
    command.value("--name", "NAME", "what notices call it (default: job or log)")
    command.notify()
    command.value(
        "--upload",
        "WHERE",
        "where to upload the newest complete checkpoint: hf:OWNER/NAME, s3://BUCKET/PREFIX or a presigned URL; "
        "give it again to name the next one to try if it fails",
        action="append",
        default=[],
    )
    command.value("--tag", "TAG", "a tag for the README of a model that is not finished", action="append", default=[])
    command.flag("--destroy", "destroy the vast.ai instance once the upload is verified")
    command.flag("--destroy-without-upload", "destroy it even without a verified upload: what is on it is lost")
    command.duration(STOP_GRACE, "between TERM and KILL (default: 10s)")


def add_watch(command: CommandParser) -> None:
    _add_watched(command)
    mode = command.add_mutually_exclusive_group()
    mode.add_argument("--stream", action="store_true", help="follow the log line by line (default on a terminal)")
    mode.add_argument("--poll", action="store_true", help="look now and then (default elsewhere)")
    mode.add_argument("--once", action="store_true", help="look once, with the exit status of `check`")
    command.flag("--plain", "one line instead of the screen")
    command.heartbeat()
    command.outage_after()
    command.flag("--terminate", "end it when it has stalled for the grace period")
    command.roll_call()
    command.take_over()
    command.add_argument(
        "--terminate-busy",
        action="store_const",
        const=True,
        help="with --terminate: end it also when it makes no step although its GPUs compute or its log grows",
    )
    command.add_argument(
        "--terminate-eta",
        dest="terminate_on_eta",
        action="store_const",
        const=True,
        help="with --terminate: end it also when its ETA does not converge although its speed has not halved",
    )
    command.flag("--no-stall-detection", "never call it stalled")
    command.duration(INTERVAL, "between looks (default: 1m)")
    command.duration(["--grace-period"], "from the notice of a stall to the end (default: 15m)")
    command.duration(STALL_AFTER, f"{STALLS} (default: by what is seen of it)")
    command.duration(SOFT_LIMIT, "send a notice after this run time")
    command.duration(HARD_LIMIT, "end it after this run time, with --terminate")
    command.value("--cost-per-hour", "MONEY", "what the machine costs", type=amount)
    command.value("--budget", "MONEY", "send a notice when it is spent", type=amount)


def add_terminate(command: CommandParser) -> None:
    _add_watched(command)
    command.value("--reason", "TEXT", "why, for the notice (default: %(default)s)", default="Ended by hand")


def add_upload(command: CommandParser) -> None:
    command.value("path", "PATH", "on the target")
    command.value("destination", "WHERE", "hf:OWNER/NAME[@BRANCH], s3://BUCKET/PREFIX or a presigned URL")


def add_launch(command: CommandParser) -> None:
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
    command.value("--budget", "DOLLARS", "the job ends when it has spent this", type=positive_number)
    command.duration(SOFT_LIMIT, "send a notice after this time on rented machines", type=SECONDS_ABOVE_ZERO)
    command.duration(
        HARD_LIMIT, "save and end the job after this time on rented machines (default: 4h)", type=SECONDS_ABOVE_ZERO
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


def add_queue(command: CommandParser) -> None:
    command.value("job", "JOB", "show this one (default: list them)", nargs="?")
    command.flag("--cancel", "end JOB: save what there is, destroy its machine")
    command.value("--reason", "TEXT", "why, with --cancel (default: %(default)s)", default="cancelled by hand")
    command.flag("--all", "also those that have ended")


def add_worker(command: CommandParser) -> None:
    command.value("--jobs", "N", "at the same time (default: %(default)s)", type=positive_count, default=1)
    command.flag("--until-empty", "leave when nothing is left to do")
    command.flag("--no-sweep", "leave the sweeping to `training-monitor sweep`")
    command.notify()
    command.heartbeat()


def add_sweep(command: CommandParser) -> None:
    command.flag("--force", "destroy them (default: only say which)")
    command.flag("--all", "with --force: every instance of the account, also foreign ones")
    command.value("--confirm", "TEXT", "for --all --force without a terminal: what it asks to type")
    command.value(
        "--every", "DURATION", "repeat at this interval (default: 15m)", type=SECONDS_ABOVE_ZERO, nargs="?", const=900.0
    )
    command.notify()


def add_history(command: CommandParser) -> None:
    command.value(
        "members", "MEMBER", "a key, or a part of it that only one has (default: all in a table)", HISTORY, nargs="*"
    )
    command.value(
        "--since",
        "WHEN",
        "how long ago (90m, 1h30m, 7d), or a time (2030-01-31T12:00) (default: 24h; with --cost all that is kept)",
        type=_moment,
    )
    command.value("--until", "WHEN", "the same (default: now)", type=_moment)
    command.value("--field", "FIELD", "only this; may be repeated", action="append", default=[])
    command.value("--csv", "FILE", "write the samples there; - is stdout", FILES)
    command.value("--jsonl", "FILE", "the same as JSON lines; what is no number there is a text", FILES)
    command.flag("--mock", "the history of made-up instances, as `vast --mock` writes it")
    kind = command.add_mutually_exclusive_group()
    kind.add_argument("--compare", action="store_true", help="runs side by side, over the steps that all have reached")
    kind.add_argument("--cost", action="store_true", help="dollars a day of each member, group, and all together")


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


def add_completion(command: CommandParser) -> None:
    command.value("shell", "SHELL", "bash, zsh or fish", choices=("bash", "zsh", "fish"))


def add_config(command: CommandParser) -> None:
    what = command.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="say all that is wrong in it; then the exit status is 1")
    what.add_argument(
        "--init",
        metavar="PATH",
        nargs="?",
        const="",
        help="write a new one with every key, its default and meaning, all of it commented out",
    )
    command.completes["init"] = FILES
    command.value(
        "--file",
        "FILE",
        "(default: TRAINING_MONITOR_SETTINGS, else settings.toml or settings.json in ~/.config/training_monitor)",
        FILES,
    )


def add_mcp(command: CommandParser) -> None:
    command.flag("--allow-write", "also offer tools that act: stop, run, upload, rent, destroy; each asks again")
    command.value(
        "--read-under",
        "DIR",
        "also read files below this folder of a target (may be repeated; default: only logs and checkpoint folders of "
        "jobs and of trainings that were found)",
        FOLDERS,
        action="append",
    )
    command.flag("--text", "write each answer also as text, for clients that show nothing else")


def add_notify(command: CommandParser) -> None:
    command.value("message", "MESSAGE", "what to say", nargs="?")
    command.flag("--test", "send a test by every configured channel")
    command.flag("--list", "list the recent notices")
    command.value("--channel", "NAME", "only this one (may be repeated)", action="append")
    command.value("--user", "NAME", "one of the settings file's users (default: the channels' own)", USERS)
    command.value(
        "--priority",
        "P",
        "low | normal | high | urgent (default: %(default)s)",
        default="normal",
        choices=("low", "normal", "high", "urgent"),
    )
    command.value("--job", "JOB", "what it is about; with --list, only this job's")
