"""Watch a training, send notices, terminate it in an orderly way, or restart it until it is finished."""

from training_monitor import TYPE_CHECKING, export_names

if TYPE_CHECKING:
    from training_monitor.core.outcomes import *
    from training_monitor.core.values import *
    from training_monitor.supervision.background import *
    from training_monitor.supervision.monitor import *
    from training_monitor.supervision.restart import *
    from training_monitor.supervision.terminate import *
    from training_monitor.supervision.waiting import *
    from training_monitor.supervision.watch import *
    from training_monitor.supervision.watcher import *

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "core.outcomes": "TerminationPlan TerminationReport WaitReport WatchReport",
        "core.values": "TrainingStatus WatchedJob",
        "supervision.background": "SupervisionHandle start_supervision",
        "supervision.monitor": "BackgroundMonitor JobMonitor detect_stall monitor_job start_background_monitor",
        "supervision.restart": "auto_restart",
        "supervision.terminate": "terminate_training",
        "supervision.waiting": "continue_wait wait_for",
        "supervision.watch": "watch_training",
        "supervision.watcher": "TrainingWatcher",
    },
)
