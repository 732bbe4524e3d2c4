"""Find the trainings on a target, inspect them and their GPUs, disks, network and cluster, and report their health."""

from training_monitor import TYPE_CHECKING, export_names

if TYPE_CHECKING:
    from training_monitor.core.models import *
    from training_monitor.look.check import *
    from training_monitor.look.cluster import *
    from training_monitor.look.health_report import *
    from training_monitor.look.health_verdict import *
    from training_monitor.look.host import *
    from training_monitor.look.nccl import *

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "core.models": "Gpu GpuProcess GpuTable NcclTransport PodState RayResources",
        "look.check": "check_training",
        "look.cluster": "verify_ray_resources",
        "look.health_report": "get_training_health print_training_health",
        "look.health_verdict": "format_training_health",
        "look.host": "check_gpu_utilization",
        "look.nccl": "check_efa_utilization parse_nccl_transport",
    },
)
