"""Options that several commands share, where they are more than one; single ones are methods of `CommandParser`."""

from __future__ import annotations

from training_monitor.cli.argument_types import (
    MEMBER_GROUPS,
    MEMBERS,
    STALLS,
    CommandParser,
    count,
    seconds_from,
)


def add_supervision(command: CommandParser) -> None:
    command.value("--checkpoint-dir", "DIR", "a folder on the target (default: the one its command names, if any)")
    command.value(
        "--max-retries", "N", "restarts without progress in between (default: %(default)s)", type=count, default=10
    )
    command.duration(
        "--retry-delay", "before a restart; doubles while there is no progress (default: 1m)", default=60.0
    )
    command.duration("--stall-after", f"{STALLS} (default: 5m)", default=300.0)
    command.duration("--interval", "between looks (default: 30s)", default=30.0)
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
    command.flag("--standby", "wait while another machine's supervisor lives; what it ended is not begun anew")
    command.notify()
    command.heartbeat()
    command.outage_after()


def add_ending(command: CommandParser) -> None:
    """Declare what is told of a training that is watched or ended, and how its end is notified and saved."""
    command.value("--pid-file", "FILE", "the file with the pid of a training that is named by its log")
    command.value("--output-dir", "DIR", "the folder of its checkpoints on the target (default: found, if it can be)")
    command.value("--name", "NAME", "what notices call it (default: job or log)")
    command.notify()
    command.value(
        "--upload",
        "WHERE",
        "where to upload the newest complete checkpoint: hf:OWNER/NAME, s3://BUCKET/PREFIX or a presigned URL; "
        "again for the next one to try if it fails",
        action="append",
        default=[],
    )
    command.value("--tag", "TAG", "a tag for the README of a model that is not finished", action="append", default=[])
    command.flag("--destroy", "destroy the vast.ai instance once the upload is verified")
    command.flag("--destroy-without-upload", "destroy it even without a verified upload: what is on it is lost")
    command.duration("--stop-grace", "between TERM and KILL (default: 10s)")


def add_any_members(command: CommandParser) -> None:
    add_members(command)
    command.flag("--vast", "every vast.ai instance that is not stopped, as `training-monitor vast` shows")
    command.flag("--mock", "made-up instances: needs no network, account or tool")


def add_members(command: CommandParser) -> None:
    command.value(
        "targets",
        "TARGET",
        "TARGET, TARGET#JOB, TARGET#LOG, or a group of the settings file (default: all groups)",
        MEMBERS,
        nargs="*",
    )
    command.namespace()


def add_screen(command: CommandParser) -> None:
    command.value("--group", "NAME", "begin with this group; Tab shows the next", MEMBER_GROUPS)
    command.flag("--once", "look once and print a table (default without a terminal)")
    command.flag("--read-only", "no key can stop or destroy anything")
    add_fleet_looks(command)


def add_fleet_looks(command: CommandParser) -> None:
    command.duration("--interval", "between refreshes (default: 10s)", type=seconds_from(1, below=1e6))
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
