"""Errors, shared values, settings, and all access to disk and network."""

from training_monitor import TYPE_CHECKING, export_names

if TYPE_CHECKING:
    from training_monitor.core.errors import *
    from training_monitor.core.logger import *
    from training_monitor.core.models import *
    from training_monitor.core.store import *

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "core.errors": (
            "AccessDenied AlreadySupervised CheckpointNotFound CommandError CommandFailed CommandTimedOut "
            "IncompleteAnswer InstanceNotFound InvalidTransition JobExists JobNotFound LeaseLost LocalFailure "
            "ParseError RestError SettingsError TargetNotFound TargetUnreachable ToolNotFound TrainingMonitorError"
        ),
        "core.logger": "get_logger setup_logging",
        "core.models": "Event",
        "core.store": "Store",
    },
)
