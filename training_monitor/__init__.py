"""Watch GPU training from outside and act on it: one flat library.

    from training_monitor import auto_restart

Every public name is imported on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from training_monitor.errors import (
        AccessDenied as AccessDenied,
        AlreadySupervised as AlreadySupervised,
        CheckpointNotFound as CheckpointNotFound,
        CommandError as CommandError,
        CommandFailed as CommandFailed,
        CommandTimedOut as CommandTimedOut,
        IncompleteAnswer as IncompleteAnswer,
        InstanceNotFound as InstanceNotFound,
        InvalidTransition as InvalidTransition,
        JobExists as JobExists,
        JobNotFound as JobNotFound,
        LeaseLost as LeaseLost,
        LocalFailure as LocalFailure,
        ParseError as ParseError,
        RestError as RestError,
        SettingsError as SettingsError,
        TargetNotFound as TargetNotFound,
        TargetUnreachable as TargetUnreachable,
        ToolNotFound as ToolNotFound,
        TrainingMonitorError as TrainingMonitorError,
    )
    from training_monitor.history import History as History
    from training_monitor.models import (
        Answer as Answer,
        Checkpoint as Checkpoint,
        Event as Event,
        Failure as Failure,
        Goodput as Goodput,
        Gpu as Gpu,
        GpuProcess as GpuProcess,
        GpuTable as GpuTable,
        JobStatus as JobStatus,
        JobView as JobView,
        LogCursor as LogCursor,
        NcclTransport as NcclTransport,
        NewLog as NewLog,
        PodState as PodState,
        Progress as Progress,
        Question as Question,
        RayJob as RayJob,
        RayResources as RayResources,
        Reply as Reply,
        RunEvent as RunEvent,
    )
    from training_monitor.notify.channels import (
        CommandChannel as CommandChannel,
        Desktop as Desktop,
        DiscordUser as DiscordUser,
        DiscordWebhook as DiscordWebhook,
        Email as Email,
        NotifiedUser as NotifiedUser,
        Ntfy as Ntfy,
        SlackWebhook as SlackWebhook,
        Telegram as Telegram,
        Webhook as Webhook,
        WebList as WebList,
    )
    from training_monitor.notify.configure import load_notifier as load_notifier
    from training_monitor.notify.heartbeat import Heartbeat as Heartbeat
    from training_monitor.notify.notifier import TrainingNotifier as TrainingNotifier
    from training_monitor.notify.outbox import Outbox as Outbox
    from training_monitor.parse.log_patterns import LogPattern as LogPattern, parse_metrics as parse_metrics
    from training_monitor.parse.log_totals import LogTotals as LogTotals
    from training_monitor.parse.nccl import parse_nccl_transport as parse_nccl_transport
    from training_monitor.parse.training_log import parse_progress as parse_progress
    from training_monitor.policy.alert_rules import AlertRule as AlertRule
    from training_monitor.policy.cost import estimate_cost as estimate_cost, forecast_burn as forecast_burn
    from training_monitor.policy.failure import classify_failure as classify_failure
    from training_monitor.policy.fleet_config import FleetConfig as FleetConfig
    from training_monitor.policy.fleet_values import (
        FleetAlert as FleetAlert,
        FleetEntry as FleetEntry,
        FleetSample as FleetSample,
        FleetSnapshot as FleetSnapshot,
        FleetSummary as FleetSummary,
    )
    from training_monitor.policy.goodput import goodput as goodput
    from training_monitor.policy.judge import judge as judge
    from training_monitor.policy.loss import analyze_loss as analyze_loss
    from training_monitor.policy.restart import (
        LedgerEntry as LedgerEntry,
        RestartDecision as RestartDecision,
        RestartPolicy as RestartPolicy,
        decide_restart as decide_restart,
    )
    from training_monitor.policy.run_values import (
        Run as Run,
        RunRow as RunRow,
        RunSource as RunSource,
        RunsSnapshot as RunsSnapshot,
    )
    from training_monitor.policy.service_config import ServiceConfig as ServiceConfig
    from training_monitor.policy.stall import StallPolicy as StallPolicy, analyze_stall as analyze_stall
    from training_monitor.policy.stall_detector import StallDetector as StallDetector
    from training_monitor.policy.training_metrics import (
        Health as Health,
        Thresholds as Thresholds,
        TrainingMetrics as TrainingMetrics,
    )
    from training_monitor.policy.trends import (
        compare_runs as compare_runs,
        project_cost as project_cost,
        trend as trend,
    )
    from training_monitor.policy.watch_config import WatchConfig as WatchConfig
    from training_monitor.probes.checkpoints import (
        find_latest_checkpoint as find_latest_checkpoint,
        get_checkpoint_listing as get_checkpoint_listing,
        list_checkpoints as list_checkpoints,
    )
    from training_monitor.probes.cluster import verify_ray_resources as verify_ray_resources
    from training_monitor.probes.efa import check_efa_utilization as check_efa_utilization
    from training_monitor.probes.gpu import check_gpu_utilization as check_gpu_utilization
    from training_monitor.probes.health import get_training_health as get_training_health
    from training_monitor.probes.health_text import (
        format_training_health as format_training_health,
        print_training_health as print_training_health,
    )
    from training_monitor.probes.job_facts import (
        check_job_status as check_job_status,
        get_current_step as get_current_step,
        get_job_logs as get_job_logs,
        get_throughput as get_throughput,
    )
    from training_monitor.probes.jobs import (
        get_job_listing as get_job_listing,
        list_jobs as list_jobs,
        look_at_job as look_at_job,
        submit_job_with_resume as submit_job_with_resume,
    )
    from training_monitor.probes.logs import get_log_progress as get_log_progress, read_new_log as read_new_log
    from training_monitor.probes.process_jobs import start_process_job as start_process_job
    from training_monitor.probes.settings_check import check_settings as check_settings
    from training_monitor.probes.settings_file import (
        load_fleet_config as load_fleet_config,
        load_log_patterns as load_log_patterns,
    )
    from training_monitor.probes.stopping import stop_job as stop_job
    from training_monitor.progress.integrations import (
        HuggingFaceCallback as HuggingFaceCallback,
        LightningCallback as LightningCallback,
        MonitorHandler as MonitorHandler,
    )
    from training_monitor.progress.monitor import TrainingMonitor as TrainingMonitor
    from training_monitor.progress.remote_runs import open_runs as open_runs
    from training_monitor.renting import (
        Hook as Hook,
        JobState as JobState,
        JobWork as JobWork,
        QueuedJob as QueuedJob,
        Rental as Rental,
        TrainingRequest as TrainingRequest,
        TrainingSpec as TrainingSpec,
    )
    from training_monitor.store import Store as Store
    from training_monitor.supervise.check import check_training as check_training
    from training_monitor.supervise.fleet import FleetMonitor as FleetMonitor
    from training_monitor.supervise.logs import get_logger as get_logger, setup_logging as setup_logging
    from training_monitor.supervise.mock_fleet import MockFleet as MockFleet
    from training_monitor.supervise.monitor import (
        JobMonitor as JobMonitor,
        detect_stall as detect_stall,
        monitor_job as monitor_job,
        start_background_monitor as start_background_monitor,
    )
    from training_monitor.supervise.restart import auto_restart as auto_restart
    from training_monitor.supervise.run_collector import RunCollector as RunCollector
    from training_monitor.supervise.sweeper import sweep_instances as sweep_instances
    from training_monitor.supervise.terminate import terminate_training as terminate_training
    from training_monitor.supervise.vast_monitor import VastAIMonitor as VastAIMonitor
    from training_monitor.supervise.watch import watch_training as watch_training
    from training_monitor.supervise.watcher import TrainingWatcher as TrainingWatcher
    from training_monitor.supervise.worker import run_worker as run_worker, submit_training as submit_training
    from training_monitor.targets.asking import ask as ask
    from training_monitor.targets.connect import resolve_target as resolve_target
    from training_monitor.targets.fleet import ask_many as ask_many
    from training_monitor.targets.target import Target as Target, parse_target as parse_target
    from training_monitor.targets.transport import LocalTransport as LocalTransport, Transport as Transport
    from training_monitor.uploads.checkpoint import upload_checkpoint as upload_checkpoint
    from training_monitor.uploads.hugging_face import upload_to_hugging_face as upload_to_hugging_face
    from training_monitor.uploads.model_card import (
        IncompleteInfo as IncompleteInfo,
        format_incomplete_card as format_incomplete_card,
    )
    from training_monitor.uploads.presign import (
        Storage as Storage,
        presign_multipart as presign_multipart,
        presign_upload as presign_upload,
    )
    from training_monitor.uploads.presigned import upload_to_presigned_url as upload_to_presigned_url
    from training_monitor.vast.account import (
        account_balance as account_balance,
        check_ssh_keys as check_ssh_keys,
        list_ssh_keys as list_ssh_keys,
        setup_ssh_key as setup_ssh_key,
    )
    from training_monitor.vast.booting import wait_until_ready as wait_until_ready
    from training_monitor.vast.credits import Credits as Credits
    from training_monitor.vast.dataset import validate_dataset as validate_dataset
    from training_monitor.vast.instances import (
        Destruction as Destruction,
        destroy_instance as destroy_instance,
        find_instance as find_instance,
        list_instances as list_instances,
        list_instances_at_once as list_instances_at_once,
        show_instance as show_instance,
        stop_instance as stop_instance,
    )
    from training_monitor.vast.offers import (
        Offer as Offer,
        OfferQuery as OfferQuery,
        load_offer_query as load_offer_query,
        search_offers as search_offers,
    )
    from training_monitor.vast.preflight import check_instance as check_instance
    from training_monitor.vast.queue import TrainingQueue as TrainingQueue
    from training_monitor.vast.rent import rent_instance as rent_instance
    from training_monitor.vast.sync import fetch_folder as fetch_folder, push_folder as push_folder
    from training_monitor.vast.training_config import format_training_config as format_training_config
    from training_monitor.verdicts import (
        LossAnalysis as LossAnalysis,
        Observation as Observation,
        StallAnalysis as StallAnalysis,
        Verdict as Verdict,
    )
    from training_monitor.watching import (
        CheckpointListing as CheckpointListing,
        Delivery as Delivery,
        JobListing as JobListing,
        LogUpdate as LogUpdate,
        Notice as Notice,
        NotSeen as NotSeen,
        TerminationPlan as TerminationPlan,
        TerminationReport as TerminationReport,
        TrainingStatus as TrainingStatus,
        UploadedFile as UploadedFile,
        UploadReport as UploadReport,
        WatchedJob as WatchedJob,
        WatchReport as WatchReport,
    )

__version__ = "0.1.0"

_HOME = {  # module: the names of ours that are in it
    "errors": (
        "AccessDenied AlreadySupervised CheckpointNotFound CommandError CommandFailed CommandTimedOut "
        "IncompleteAnswer InstanceNotFound InvalidTransition JobExists JobNotFound LeaseLost LocalFailure ParseError "
        "RestError SettingsError TargetNotFound TargetUnreachable ToolNotFound TrainingMonitorError"
    ),
    "history": "History",
    "models": (
        "Answer Checkpoint Event Failure Goodput Gpu GpuProcess GpuTable JobStatus JobView LogCursor "
        "NcclTransport NewLog PodState Progress Question RayJob RayResources Reply RunEvent"
    ),
    "notify.channels": (
        "CommandChannel Desktop DiscordUser DiscordWebhook Email NotifiedUser Ntfy SlackWebhook Telegram WebList "
        "Webhook"
    ),
    "notify.configure": "load_notifier",
    "notify.heartbeat": "Heartbeat",
    "notify.notifier": "TrainingNotifier",
    "notify.outbox": "Outbox",
    "parse.log_patterns": "LogPattern parse_metrics",
    "parse.log_totals": "LogTotals",
    "parse.nccl": "parse_nccl_transport",
    "parse.training_log": "parse_progress",
    "policy.alert_rules": "AlertRule",
    "policy.cost": "estimate_cost forecast_burn",
    "policy.failure": "classify_failure",
    "policy.fleet_config": "FleetConfig",
    "policy.fleet_values": "FleetAlert FleetEntry FleetSample FleetSnapshot FleetSummary",
    "policy.goodput": "goodput",
    "policy.judge": "judge",
    "policy.loss": "analyze_loss",
    "policy.restart": "LedgerEntry RestartDecision RestartPolicy decide_restart",
    "policy.run_values": "Run RunRow RunSource RunsSnapshot",
    "policy.service_config": "ServiceConfig",
    "policy.stall": "StallPolicy analyze_stall",
    "policy.stall_detector": "StallDetector",
    "policy.training_metrics": "Health Thresholds TrainingMetrics",
    "policy.trends": "compare_runs project_cost trend",
    "policy.watch_config": "WatchConfig",
    "probes.checkpoints": "find_latest_checkpoint get_checkpoint_listing list_checkpoints",
    "probes.cluster": "verify_ray_resources",
    "probes.efa": "check_efa_utilization",
    "probes.gpu": "check_gpu_utilization",
    "probes.health": "get_training_health",
    "probes.health_text": "format_training_health print_training_health",
    "probes.job_facts": "check_job_status get_current_step get_job_logs get_throughput",
    "probes.jobs": "get_job_listing list_jobs look_at_job submit_job_with_resume",
    "probes.logs": "get_log_progress read_new_log",
    "probes.process_jobs": "start_process_job",
    "probes.settings_check": "check_settings",
    "probes.settings_file": "load_fleet_config load_log_patterns",
    "probes.stopping": "stop_job",
    "progress.integrations": "HuggingFaceCallback LightningCallback MonitorHandler",
    "progress.monitor": "TrainingMonitor",
    "progress.remote_runs": "open_runs",
    "renting": "Hook JobState JobWork QueuedJob Rental TrainingRequest TrainingSpec",
    "store": "Store",
    "supervise.check": "check_training",
    "supervise.fleet": "FleetMonitor",
    "supervise.vast_monitor": "VastAIMonitor",
    "supervise.logs": "get_logger setup_logging",
    "supervise.mock_fleet": "MockFleet",
    "supervise.monitor": "JobMonitor detect_stall monitor_job start_background_monitor",
    "supervise.restart": "auto_restart",
    "supervise.run_collector": "RunCollector",
    "supervise.sweeper": "sweep_instances",
    "supervise.terminate": "terminate_training",
    "supervise.watch": "watch_training",
    "supervise.watcher": "TrainingWatcher",
    "supervise.worker": "run_worker submit_training",
    "targets.asking": "ask",
    "targets.connect": "resolve_target",
    "targets.fleet": "ask_many",
    "targets.target": "Target parse_target",
    "targets.transport": "LocalTransport Transport",
    "uploads.checkpoint": "upload_checkpoint",
    "uploads.hugging_face": "upload_to_hugging_face",
    "uploads.model_card": "IncompleteInfo format_incomplete_card",
    "uploads.presign": "Storage presign_multipart presign_upload",
    "uploads.presigned": "upload_to_presigned_url",
    "vast.account": "account_balance check_ssh_keys list_ssh_keys setup_ssh_key",
    "vast.booting": "wait_until_ready",
    "vast.credits": "Credits",
    "vast.dataset": "validate_dataset",
    "vast.instances": (
        "Destruction destroy_instance find_instance list_instances list_instances_at_once show_instance stop_instance"
    ),
    "vast.offers": "Offer OfferQuery load_offer_query search_offers",
    "vast.preflight": "check_instance",
    "vast.queue": "TrainingQueue",
    "vast.rent": "rent_instance",
    "vast.sync": "fetch_folder push_folder",
    "vast.training_config": "format_training_config",
    "verdicts": "LossAnalysis Observation StallAnalysis Verdict",
    "watching": (
        "CheckpointListing Delivery JobListing LogUpdate NotSeen Notice TerminationPlan TerminationReport "
        "TrainingStatus UploadReport UploadedFile WatchReport WatchedJob"
    ),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names.split()}

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
