"""Read the progress of a training from its log."""

from training_monitor import TYPE_CHECKING, export_names

if TYPE_CHECKING:
    from training_monitor.core.models import *
    from training_monitor.core.values import *
    from training_monitor.logs.following import *
    from training_monitor.logs.patterns import *
    from training_monitor.logs.totals import *
    from training_monitor.logs.training_log import *

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "core.models": "LogCursor NewLog Progress",
        "core.values": "LogUpdate",
        "logs.following": "get_log_progress read_new_log",
        "logs.patterns": "LogPattern load_log_patterns parse_metrics",
        "logs.totals": "LogTotals",
        "logs.training_log": "parse_progress",
    },
)
