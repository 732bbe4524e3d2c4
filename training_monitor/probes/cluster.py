"""Resources of a Ray cluster."""

from __future__ import annotations

from training_monitor.errors import TrainingMonitorError
from training_monitor.models import RayResources
from training_monitor.probes.ray_jobs import resources_question
from training_monitor.reports import RayResourcesReport
from training_monitor.targets.asking import ask
from training_monitor.targets.target import Target, parse_target
from training_monitor.targets.transport import Transport


def verify_ray_resources(
    head_pod: str | Target, namespace: str = "default", *, transport: Transport | None = None
) -> RayResourcesReport:
    """Ask a Ray head for its GPUs and CPUs; never raises for the outside world.

    Returns:
        Numbers of GPUs and CPUs, `pending_demands` that wait for them; all None with `healthy` False and an `error`
        when Ray could not be asked.
    """
    target = parse_target(head_pod, namespace=namespace)
    try:
        [answer] = ask(target, resources_question(), transport=transport)
        return format_resources_report(answer.get())
    except TrainingMonitorError as error:
        return format_resources_report(None, str(error))


def format_resources_report(found: RayResources | None, error: str | None = None) -> RayResourcesReport:
    """The documented dict of a cluster's resources."""
    return RayResourcesReport(
        healthy=found is not None and error is None,
        gpus_available=found.gpus_available if found else None,
        gpus_used=found.gpus_used if found else None,
        cpus_available=found.cpus_available if found else None,
        cpus_used=found.cpus_used if found else None,
        pending_demands=list(found.pending_demands) if found else [],
        error=error,
    )
