"""The health report as people read it."""

from __future__ import annotations

from training_monitor.reports import HealthReport
from training_monitor.units import format_bytes, format_duration

SEE_BELOW = "not known, see below"


def print_training_health(report: HealthReport) -> None:
    """Print a report of `get_training_health` to stdout."""
    print(format_training_health(report))


def format_training_health(report: HealthReport) -> str:
    """The report as a few lines; '?' is what could not be asked."""
    gpu, ray, saved, job = report["gpu"], report["ray"], report["checkpoints"], report["job"]
    lines = [f"Training health: {report['verdict'].upper()}"]
    if job:
        total = f"/{job['total_steps']}" if job["total_steps"] else ""
        age = f", last output {format_duration(job['log_age'])} ago" if job["log_age"] is not None else ""
        lines.append(f"  Job          {job['job_id']} {job['status']} step {_known(job['step'])}{total}{age}")
        said = f": {job['reason']}" if job["verdict"] == "ok" else ", see below"  # the issues tell all others
        lines.append(f"               {job['state']}{said}")
    average = "?" if gpu["avg_utilization"] is None else f"{gpu['avg_utilization']:.0f} %"
    lines.append(f"  GPUs         {_known(gpu['total_gpus'])}, average utilization {average}")
    widest = max((len(node["pod"]) for node in gpu["per_node"]), default=0)
    for node in gpu["per_node"]:
        unread = SEE_BELOW if node["pod"] in report["silent"] else node["problem"]
        util = "?" if node["util"] is None else f"{node['util']:.0f} %"
        power = _whole(node["power_draw"])
        memory = f"{_whole(node['mem_used'])}/{_whole(node['mem_total'])} MB"
        reading = f"{util:>5}  {memory}  {power} W"
        lines.append(f"    {node['pod']:<{widest}}  {unread or reading}")
    lines.append(
        f"  Network      {report['efa']['transport']}"
        + (f", {report['efa']['channels']}" if report["efa"]["channels"] else "")
    )
    used = f"{_known(ray['gpus_used'])}/{_known(ray['gpus_available'])} GPUs, "
    used += f"{_known(ray['cpus_used'])}/{_known(ray['cpus_available'])} CPUs"
    head = gpu["per_node"][0]["pod"]
    lines.append(f"  Ray          {SEE_BELOW if head in report['silent'] else ray['problem'] or used}")
    found = f"latest step {_known(saved['latest_step'])} of {_known(saved['checkpoint_count'])}"
    folder = saved["checkpoint_dir"]
    lines.append(f"  Checkpoints  {'no folder was named' if folder is None else f'{found} in {folder}'}")
    lines += [f"    refused      step {each['step']}: {each['problem']}" for each in saved["refused"][-3:]]
    lines += [
        f"  Disk         {each['pod']} {each['path']}: {format_bytes(each['free_bytes'])} free"
        for each in report["disk"]
        if each["free_bytes"] is not None
    ]
    for issue, remedy in zip(report["issues"], report["remedies"]):
        lines += [f"  ! {issue}", f"      {remedy}"]
    return "\n".join(lines)


def _known(value: object) -> str:
    return "?" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _whole(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f}"
