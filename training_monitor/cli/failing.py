"""What kept a command from its answer: as it is told, and as an exit status."""

from __future__ import annotations

from training_monitor.cli.commands import BAD, TAKEN_OVER, UNKNOWN, USAGE
from training_monitor.cli.output import complain, print_json
from training_monitor.errors import (
    AlreadySupervised,
    CheckpointNotFound,
    CommandFailed,
    JobExists,
    JobNotFound,
    LeaseLost,
    SettingsError,
    TrainingMonitorError,
)

_DEFINITE = (CheckpointNotFound, CommandFailed, JobExists, AlreadySupervised)


def tell_error(error: TrainingMonitorError, *, as_json: bool) -> None:
    """Tell it on stderr; with --json also as JSON on stdout."""
    if as_json:
        said = {"error": error.what, "kind": type(error).__name__, "hint": error.hint}
        print_json({**said, "owner": error.owner} if isinstance(error, LeaseLost) else said)
    complain(str(error))


def exit_status(error: TrainingMonitorError) -> int:
    """What it means to a script: 2 wrong use, 1 a definite no, 3 it could not be asked, 4 somebody else goes on."""
    if isinstance(error, (SettingsError, JobNotFound)):
        return USAGE
    if isinstance(error, LeaseLost):
        return TAKEN_OVER
    return BAD if isinstance(error, _DEFINITE) else UNKNOWN
