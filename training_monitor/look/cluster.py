"""The resources of a Ray cluster, as its head reports them."""

from __future__ import annotations

from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.models import RayResources
from training_monitor.core.reports import RayResourcesReport, report_of
from training_monitor.jobs.ray_jobs import resources_question
from training_monitor.targets.asking import Site
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport


def verify_ray_resources(
    head_pod: str | Target, namespace: str = "default", *, transport: Transport | None = None
) -> RayResourcesReport:
    """Query a Ray head for the GPUs and CPUs of its cluster. If it cannot be queried, no exception is raised.

    Returns:
        A report with the numbers of GPUs and CPUs, with `pending_demands`, the requests that are not yet served, and
        with `failed_nodes`, the nodes that died or could not be started. If Ray could not be queried, all numbers are
        None, `healthy` is False, and `error` is set.
    """
    site = Site.of(head_pod, namespace, transport)
    try:
        return format_resources_report(site.ask_one(resources_question()))
    except TrainingMonitorError as error:
        return format_resources_report(None, str(error))


def format_resources_report(found: RayResources | None, error: str | None = None) -> RayResourcesReport:
    """Format a cluster's resources as the documented dict."""
    healthy = found is not None and error is None
    demands, failed = (list(found.pending_demands), list(found.failed_nodes)) if found else ([], [])
    return report_of(
        RayResourcesReport, found, healthy=healthy, pending_demands=demands, failed_nodes=failed, error=error
    )
