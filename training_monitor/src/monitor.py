"""The functions of the Ray skill under the name that its documents import them by."""

from training_monitor.checkpoints.checkpoints import find_latest_checkpoint as find_latest_checkpoint
from training_monitor.core.logger import get_logger as get_logger, setup_logging as setup_logging
from training_monitor.jobs.jobs import (
    check_job_status as check_job_status,
    get_current_step as get_current_step,
    get_job_logs as get_job_logs,
    get_throughput as get_throughput,
    submit_job_with_resume as submit_job_with_resume,
)
from training_monitor.look.cluster import verify_ray_resources as verify_ray_resources
from training_monitor.look.health_report import (
    get_training_health as get_training_health,
    print_training_health as print_training_health,
)
from training_monitor.look.host import check_gpu_utilization as check_gpu_utilization
from training_monitor.look.nccl import check_efa_utilization as check_efa_utilization
from training_monitor.supervision.monitor import (
    JobMonitor as JobMonitor,
    detect_stall as detect_stall,
    monitor_job as monitor_job,
    start_background_monitor as start_background_monitor,
)
from training_monitor.supervision.restart import auto_restart as auto_restart
