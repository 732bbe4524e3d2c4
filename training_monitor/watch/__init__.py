"""Follow a training, send notices, and end it in an orderly way."""

from training_monitor import TYPE_CHECKING, export_names

if TYPE_CHECKING:
    from training_monitor.core.values import *
    from training_monitor.watch.monitor import *
    from training_monitor.watch.terminate import *
    from training_monitor.watch.waiting import *
    from training_monitor.watch.watch import *
    from training_monitor.watch.watcher import *

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "core.values": "TerminationPlan TerminationReport TrainingStatus WaitReport WatchReport WatchedJob",
        "watch.monitor": "BackgroundMonitor JobMonitor detect_stall monitor_job start_background_monitor",
        "watch.terminate": "terminate_training",
        "watch.waiting": "continue_wait wait_for",
        "watch.watch": "watch_training",
        "watch.watcher": "TrainingWatcher",
    },
)
