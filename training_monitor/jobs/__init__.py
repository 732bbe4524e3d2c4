"""Start, inspect and stop Ray jobs and process jobs."""

from training_monitor import TYPE_CHECKING, export_names

if TYPE_CHECKING:
    from training_monitor.core.models import *
    from training_monitor.core.values import *
    from training_monitor.jobs.jobs import *
    from training_monitor.jobs.process_jobs import *
    from training_monitor.jobs.stopping import *

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "core.models": "JobStatus JobView RayJob",
        "core.values": "JobListing NotSeen",
        "jobs.jobs": (
            "check_job_status get_current_step get_job_listing get_job_logs get_throughput list_jobs look_at_job "
            "submit_job_with_resume"
        ),
        "jobs.process_jobs": "start_process_job",
        "jobs.stopping": "stop_job",
    },
)
