"""GPUs, disks, network and Ray cluster of a target."""

from training_monitor import TYPE_CHECKING, export_names

if TYPE_CHECKING:
    from training_monitor.core.models import *
    from training_monitor.health.cluster import *
    from training_monitor.health.host import *
    from training_monitor.health.nccl import *
    from training_monitor.health.verdict import *

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "core.models": "Gpu GpuProcess GpuTable NcclTransport PodState RayResources",
        "health.cluster": "verify_ray_resources",
        "health.host": "check_gpu_utilization",
        "health.nccl": "check_efa_utilization parse_nccl_transport",
        "health.verdict": "format_training_health",
    },
)
