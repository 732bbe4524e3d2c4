"""Runs that write progress files: the writer inside the script, and the readers of its files."""

from training_monitor import TYPE_CHECKING, export_names

if TYPE_CHECKING:
    from training_monitor.runs.collector import *
    from training_monitor.runs.integrations import *
    from training_monitor.runs.local_runs import *
    from training_monitor.runs.monitor import *
    from training_monitor.runs.remote_runs import *
    from training_monitor.runs.values import *

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "runs.collector": "RunCollector",
        "runs.integrations": "HuggingFaceCallback LightningCallback MonitorHandler",
        "runs.local_runs": "open_runs",
        "runs.monitor": "TrainingMonitor",
        "runs.remote_runs": "RemoteRuns",
        "runs.values": "Run RunRow RunsSnapshot",
    },
)
