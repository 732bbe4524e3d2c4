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
    command.value(
        "--checkpoint-dir",
        "DIR",
        "checkpoint folder on the target (default: the one in the command)",
    )
    command.value(
        "--max-retries",
        "N",
        "maximum restarts without progress (default: %(default)s)",
        type=count,
        default=10,
    )
    command.duration(
        "--retry-delay", "time before a restart; doubles while there is no progress (default: 1m)", default=60.0
    )
    command.duration("--stall-after", f"{STALLS} (default: 5m)", default=300.0)
    command.duration("--interval", "time between looks (default: 30s)", default=30.0)
    command.value(
        "--resume-argument",
        "OPTION",
        "option for the checkpoint path, such as --resume; not needed if the command contains `{checkpoint}` or "
        "reads RESUME_FROM_CHECKPOINT",
    )
    command.value(
        "--keep-attempts",
        "N",
        "number of earlier attempts whose run directories and logs are kept on the target (default: %(default)s)",
        type=count,
        default=10,
    )
    command.roll_call()
    command.flag("--fresh-start", "allow a start from step 0 if none of the existing checkpoints is complete")
    command.take_over()
    command.flag(
        "--standby",
        "wait while a supervisor on another machine is alive; if the training ends while it is supervised there, start "
        "no job",
    )
    command.notify()
    command.heartbeat()
    command.outage_after()


def add_ending(command: CommandParser) -> None:
    """Declare what is told of a training that is watched or ended, and how its end is notified and saved."""
    command.value("--pid-file", "FILE", "file with the training's PID, if you identify the training by its log")
    command.value(
        "--output-dir", "DIR", "the training's checkpoint folder on the target (default: detected if possible)"
    )
    command.value("--name", "NAME", "name of the training in notices (default: its job or log)")
    command.notify()
    command.several(
        "--upload",
        "WHERE",
        "upload destination of the newest complete checkpoint: hf:OWNER/NAME, s3://BUCKET/PREFIX or a presigned URL; "
        "may be repeated for fallbacks",
    )
    command.several("--tag", "TAG", "tag to add to the README of an unfinished model (may be repeated)")
    command.flag("--destroy", "destroy the vast.ai instance once the upload is verified")
    command.flag("--destroy-without-upload", "destroy the instance even without a verified upload; its data is lost")
    command.duration("--stop-grace", "time between SIGTERM and SIGKILL (default: 10s)")


def add_any_members(command: CommandParser) -> None:
    add_members(command)
    command.flag("--vast", "include every vast.ai instance that is not stopped, as `training-monitor vast` does")
    command.flag("--mock", "show simulated instances; needs no network, no account and no vastai command")


def add_members(command: CommandParser) -> None:
    command.value(
        "targets",
        "TARGET",
        "TARGET, TARGET#JOB, TARGET#LOG, or a group in the settings file (default: all groups)",
        MEMBERS,
        nargs="*",
    )
    command.namespace()


def add_screen(command: CommandParser) -> None:
    command.value("--group", "NAME", "show this group first; Tab switches to the next", MEMBER_GROUPS)
    command.flag("--once", "print one table and exit (default without a terminal)")
    command.flag("--read-only", "disable all keys that stop or destroy anything")
    add_fleet_looks(command)


def add_fleet_looks(command: CommandParser) -> None:
    command.duration("--interval", "time between refreshes (default: 10s)", type=seconds_from(1, below=1e6))
    command.several(
        "--log-path",
        "PATTERN",
        "shell pattern for the training's log on its machine; the newest match is read (default: "
        "/workspace/output/*/training.log, the logs of process jobs and Ray drivers, /workspace/*.log)",
    )
    command.flag("--no-history", "record nothing for `training-monitor history`")
    command.notify()
    command.heartbeat()
    command.outage_after()
