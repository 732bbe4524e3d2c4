"""Watch GPU training from outside and act on it: one flat library.

    from training_monitor import auto_restart

What most programs need is here; each room has the rest of its subject, such as `training_monitor.vast` and
`training_monitor.fleet`. Every name is imported on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from training_monitor.agents.notebook import show as show
    from training_monitor.checkpoints.checkpoints import (
        find_latest_checkpoint as find_latest_checkpoint,
        list_checkpoints as list_checkpoints,
    )
    from training_monitor.core.errors import (
        AlreadySupervised as AlreadySupervised,
        CheckpointNotFound as CheckpointNotFound,
        CommandError as CommandError,
        JobNotFound as JobNotFound,
        ParseError as ParseError,
        SettingsError as SettingsError,
        TargetUnreachable as TargetUnreachable,
        TrainingMonitorError as TrainingMonitorError,
    )
    from training_monitor.core.logger import get_logger as get_logger, setup_logging as setup_logging
    from training_monitor.core.models import (
        Checkpoint as Checkpoint,
        Event as Event,
        Failure as Failure,
        Goodput as Goodput,
        JobStatus as JobStatus,
        JobView as JobView,
        NcclTransport as NcclTransport,
        Progress as Progress,
        RunEvent as RunEvent,
    )
    from training_monitor.core.outcomes import (
        TerminationPlan as TerminationPlan,
        TerminationReport as TerminationReport,
        UploadReport as UploadReport,
        WaitReport as WaitReport,
        WatchReport as WatchReport,
    )
    from training_monitor.core.reports import (
        CheckReport as CheckReport,
        EfaClusterReport as EfaClusterReport,
        GpuReport as GpuReport,
        HealthReport as HealthReport,
        MonitorReport as MonitorReport,
        RayResourcesReport as RayResourcesReport,
        RestartReport as RestartReport,
    )
    from training_monitor.core.values import (
        LossAnalysis as LossAnalysis,
        Observation as Observation,
        ProgressSample as ProgressSample,
        StallAnalysis as StallAnalysis,
        TrainingStatus as TrainingStatus,
        Verdict as Verdict,
    )
    from training_monitor.fleet.metrics import Health as Health, TrainingMetrics as TrainingMetrics
    from training_monitor.fleet.vast_ai import VastAIMonitor as VastAIMonitor
    from training_monitor.jobs.jobs import (
        check_job_status as check_job_status,
        get_current_step as get_current_step,
        get_job_logs as get_job_logs,
        get_throughput as get_throughput,
        list_jobs as list_jobs,
        submit_job_with_resume as submit_job_with_resume,
    )
    from training_monitor.jobs.process_jobs import start_process_job as start_process_job
    from training_monitor.jobs.stopping import stop_job as stop_job
    from training_monitor.logs.patterns import parse_metrics as parse_metrics
    from training_monitor.logs.totals import LogTotals as LogTotals
    from training_monitor.logs.training_log import parse_progress as parse_progress
    from training_monitor.look.check import check_training as check_training
    from training_monitor.look.cluster import verify_ray_resources as verify_ray_resources
    from training_monitor.look.health_report import (
        get_training_health as get_training_health,
        print_training_health as print_training_health,
    )
    from training_monitor.look.host import check_gpu_utilization as check_gpu_utilization
    from training_monitor.look.nccl import (
        check_efa_utilization as check_efa_utilization,
        parse_nccl_transport as parse_nccl_transport,
    )
    from training_monitor.notify.notifier import TrainingNotifier as TrainingNotifier
    from training_monitor.runs.integrations import (
        HuggingFaceCallback as HuggingFaceCallback,
        LightningCallback as LightningCallback,
        MonitorHandler as MonitorHandler,
    )
    from training_monitor.runs.monitor import TrainingMonitor as TrainingMonitor
    from training_monitor.supervision.background import (
        SupervisionHandle as SupervisionHandle,
        start_supervision as start_supervision,
    )
    from training_monitor.supervision.monitor import (
        BackgroundMonitor as BackgroundMonitor,
        JobMonitor as JobMonitor,
        detect_stall as detect_stall,
        monitor_job as monitor_job,
        start_background_monitor as start_background_monitor,
    )
    from training_monitor.supervision.restart import auto_restart as auto_restart
    from training_monitor.supervision.terminate import terminate_training as terminate_training
    from training_monitor.supervision.waiting import continue_wait as continue_wait, wait_for as wait_for
    from training_monitor.supervision.watch import watch_training as watch_training
    from training_monitor.supervision.watcher import TrainingWatcher as TrainingWatcher
    from training_monitor.uploads.checkpoint import upload_checkpoint as upload_checkpoint
    from training_monitor.verdict.failure import classify_failure as classify_failure
    from training_monitor.verdict.goodput import goodput as goodput
    from training_monitor.verdict.judge import judge as judge
    from training_monitor.verdict.loss import analyze_loss as analyze_loss
    from training_monitor.verdict.restart import (
        LedgerEntry as LedgerEntry,
        RestartDecision as RestartDecision,
        RestartPolicy as RestartPolicy,
        decide_restart as decide_restart,
    )
    from training_monitor.verdict.stall import (
        StallDetector as StallDetector,
        StallPolicy as StallPolicy,
        analyze_stall as analyze_stall,
    )
    from training_monitor.why.explain import explain_training as explain_training
    from training_monitor.why.report import ExplanationReport as ExplanationReport

__version__ = "0.1.0"


def export_names(
    package: str, homes: Mapping[str, str]
) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """Make `__all__`, `__getattr__` and `__dir__` of a package whose names are imported on first use.

    Args:
        homes: modules and rooms below training_monitor, and the names that come from each.
    """
    module_of = {name: module for module, names in homes.items() for name in names.split()}

    def get(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = f"training_monitor.{module_of[name]}"
        __import__(home)
        value = getattr(sys.modules[home], name)
        if name in __all__ and callable(value) and not isinstance(value, type) and not hasattr(value, "__wrapped__"):
            from training_monitor.core.arguments import checking

            value = checking(value)
            setattr(sys.modules[home], name, value)  # where `pickle` finds it
        setattr(sys.modules[package], name, value)
        return value

    return sorted(module_of), get, lambda: sorted({*module_of, *vars(sys.modules[package])})


__all__, __getattr__, __dir__ = export_names(  # noqa: PLE0605
    __name__,
    {
        "agents": "show",
        "checkpoints": "find_latest_checkpoint list_checkpoints",
        "core": (
            "AlreadySupervised CheckpointNotFound CommandError JobNotFound ParseError SettingsError TargetUnreachable "
            "TrainingMonitorError get_logger setup_logging"
        ),
        "core.models": "Checkpoint Event Failure Goodput JobStatus JobView NcclTransport Progress RunEvent",
        "core.outcomes": "TerminationPlan TerminationReport UploadReport WaitReport WatchReport",
        "core.reports": (
            "CheckReport EfaClusterReport GpuReport HealthReport MonitorReport RayResourcesReport RestartReport"
        ),
        "core.values": "LossAnalysis Observation ProgressSample StallAnalysis TrainingStatus Verdict",
        "fleet": "Health TrainingMetrics VastAIMonitor",
        "jobs": (
            "check_job_status get_current_step get_job_logs get_throughput list_jobs start_process_job stop_job "
            "submit_job_with_resume"
        ),
        "logs": "LogTotals parse_metrics parse_progress",
        "look": (
            "check_efa_utilization check_gpu_utilization check_training get_training_health parse_nccl_transport "
            "print_training_health verify_ray_resources"
        ),
        "notify": "TrainingNotifier",
        "runs": "HuggingFaceCallback LightningCallback MonitorHandler TrainingMonitor",
        "supervision": (
            "BackgroundMonitor JobMonitor SupervisionHandle TrainingWatcher auto_restart continue_wait detect_stall "
            "monitor_job start_background_monitor start_supervision terminate_training wait_for watch_training"
        ),
        "uploads": "upload_checkpoint",
        "verdict": (
            "LedgerEntry RestartDecision RestartPolicy StallDetector StallPolicy analyze_loss analyze_stall "
            "classify_failure decide_restart"
        ),
        "verdict.goodput": "goodput",
        "verdict.judge": "judge",
        "why": "explain_training",
        "why.report": "ExplanationReport",
    },
)
