"""Watch GPU training from outside and act on it: one flat library.

    from training_monitor import auto_restart

Every public name is imported on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from training_monitor.errors import (
        AccessDenied as AccessDenied,
    )
    from training_monitor.errors import (
        AlreadySupervised as AlreadySupervised,
    )
    from training_monitor.errors import (
        CheckpointNotFound as CheckpointNotFound,
    )
    from training_monitor.errors import (
        CommandError as CommandError,
    )
    from training_monitor.errors import (
        CommandFailed as CommandFailed,
    )
    from training_monitor.errors import (
        CommandTimedOut as CommandTimedOut,
    )
    from training_monitor.errors import (
        InstanceNotFound as InstanceNotFound,
    )
    from training_monitor.errors import (
        JobExists as JobExists,
    )
    from training_monitor.errors import (
        JobNotFound as JobNotFound,
    )
    from training_monitor.errors import (
        ParseError as ParseError,
    )
    from training_monitor.errors import (
        RestError as RestError,
    )
    from training_monitor.errors import (
        SettingsError as SettingsError,
    )
    from training_monitor.errors import (
        TargetNotFound as TargetNotFound,
    )
    from training_monitor.errors import (
        TargetUnreachable as TargetUnreachable,
    )
    from training_monitor.errors import (
        ToolNotFound as ToolNotFound,
    )
    from training_monitor.errors import (
        TrainingMonitorError as TrainingMonitorError,
    )
    from training_monitor.models import (
        Answer as Answer,
    )
    from training_monitor.models import (
        Checkpoint as Checkpoint,
    )
    from training_monitor.models import (
        Event as Event,
    )
    from training_monitor.models import (
        Gpu as Gpu,
    )
    from training_monitor.models import (
        GpuProcess as GpuProcess,
    )
    from training_monitor.models import (
        GpuTable as GpuTable,
    )
    from training_monitor.models import (
        JobStatus as JobStatus,
    )
    from training_monitor.models import (
        JobView as JobView,
    )
    from training_monitor.models import (
        NcclTransport as NcclTransport,
    )
    from training_monitor.models import (
        PodState as PodState,
    )
    from training_monitor.models import (
        Progress as Progress,
    )
    from training_monitor.models import (
        Question as Question,
    )
    from training_monitor.models import (
        RayJob as RayJob,
    )
    from training_monitor.models import (
        RayResources as RayResources,
    )
    from training_monitor.models import (
        Reply as Reply,
    )
    from training_monitor.parse.nccl import parse_nccl_transport as parse_nccl_transport
    from training_monitor.parse.training_log import parse_progress as parse_progress
    from training_monitor.policy.restart import RestartPolicy as RestartPolicy
    from training_monitor.probes.checkpoints import (
        find_latest_checkpoint as find_latest_checkpoint,
    )
    from training_monitor.probes.checkpoints import (
        list_checkpoints as list_checkpoints,
    )
    from training_monitor.probes.cluster import verify_ray_resources as verify_ray_resources
    from training_monitor.probes.efa import check_efa_utilization as check_efa_utilization
    from training_monitor.probes.gpu import check_gpu_utilization as check_gpu_utilization
    from training_monitor.probes.health import get_training_health as get_training_health
    from training_monitor.probes.health_text import (
        format_training_health as format_training_health,
    )
    from training_monitor.probes.health_text import (
        print_training_health as print_training_health,
    )
    from training_monitor.probes.jobs import (
        check_job_status as check_job_status,
    )
    from training_monitor.probes.jobs import (
        get_current_step as get_current_step,
    )
    from training_monitor.probes.jobs import (
        get_job_logs as get_job_logs,
    )
    from training_monitor.probes.jobs import (
        get_throughput as get_throughput,
    )
    from training_monitor.probes.jobs import (
        list_jobs as list_jobs,
    )
    from training_monitor.probes.jobs import (
        look_at_job as look_at_job,
    )
    from training_monitor.probes.jobs import (
        stop_job as stop_job,
    )
    from training_monitor.probes.jobs import (
        submit_job_with_resume as submit_job_with_resume,
    )
    from training_monitor.probes.process_jobs import start_process_job as start_process_job
    from training_monitor.store import Store as Store
    from training_monitor.supervise.logs import get_logger as get_logger
    from training_monitor.supervise.logs import setup_logging as setup_logging
    from training_monitor.supervise.monitor import (
        JobMonitor as JobMonitor,
    )
    from training_monitor.supervise.monitor import (
        detect_stall as detect_stall,
    )
    from training_monitor.supervise.monitor import (
        monitor_job as monitor_job,
    )
    from training_monitor.supervise.monitor import (
        start_background_monitor as start_background_monitor,
    )
    from training_monitor.supervise.restart import auto_restart as auto_restart
    from training_monitor.targets.asking import ask as ask
    from training_monitor.targets.connect import resolve_target as resolve_target
    from training_monitor.targets.fleet import ask_many as ask_many
    from training_monitor.targets.target import Target as Target
    from training_monitor.targets.target import parse_target as parse_target
    from training_monitor.targets.transport import LocalTransport as LocalTransport
    from training_monitor.targets.transport import Transport as Transport

__version__ = "0.1.0"

_HOME = {
    "errors": (
        "AccessDenied",
        "AlreadySupervised",
        "CheckpointNotFound",
        "CommandError",
        "CommandFailed",
        "CommandTimedOut",
        "InstanceNotFound",
        "JobExists",
        "JobNotFound",
        "ParseError",
        "RestError",
        "SettingsError",
        "TargetNotFound",
        "TargetUnreachable",
        "ToolNotFound",
        "TrainingMonitorError",
    ),
    "models": (
        "Answer",
        "Checkpoint",
        "Event",
        "Gpu",
        "GpuProcess",
        "GpuTable",
        "JobStatus",
        "JobView",
        "NcclTransport",
        "PodState",
        "Progress",
        "Question",
        "RayJob",
        "RayResources",
        "Reply",
    ),
    "parse.nccl": ("parse_nccl_transport",),
    "parse.training_log": ("parse_progress",),
    "policy.restart": ("RestartPolicy",),
    "probes.checkpoints": (
        "find_latest_checkpoint",
        "list_checkpoints",
    ),
    "probes.cluster": ("verify_ray_resources",),
    "probes.efa": ("check_efa_utilization",),
    "probes.gpu": ("check_gpu_utilization",),
    "probes.health": ("get_training_health",),
    "probes.health_text": (
        "format_training_health",
        "print_training_health",
    ),
    "probes.jobs": (
        "check_job_status",
        "get_current_step",
        "get_job_logs",
        "get_throughput",
        "list_jobs",
        "look_at_job",
        "stop_job",
        "submit_job_with_resume",
    ),
    "probes.process_jobs": ("start_process_job",),
    "store": ("Store",),
    "supervise.logs": (
        "get_logger",
        "setup_logging",
    ),
    "supervise.monitor": (
        "JobMonitor",
        "detect_stall",
        "monitor_job",
        "start_background_monitor",
    ),
    "supervise.restart": ("auto_restart",),
    "targets.asking": ("ask",),
    "targets.connect": ("resolve_target",),
    "targets.fleet": ("ask_many",),
    "targets.target": (
        "Target",
        "parse_target",
    ),
    "targets.transport": (
        "LocalTransport",
        "Transport",
    ),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = sorted(_MODULE_OF)  # noqa: PLE0605


def __getattr__(name: str) -> object:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
