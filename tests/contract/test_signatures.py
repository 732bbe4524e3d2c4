"""Every documented function: its name, the order and defaults of its arguments, and the keys of what it returns."""

from __future__ import annotations

import inspect
import threading
from typing import Any, get_args, get_type_hints

import training_monitor
from training_monitor.core import reports
from training_monitor.core.models import JobStatus
from training_monitor.why.report import ExplanationReport

NONE = inspect.Parameter.empty
NS = ("namespace", "default")
HEAD, JOB = ("head_pod", NONE), ("job_id", NONE)
EVERY, STAGNATION = ("check_interval", 30), ("stagnation_threshold", 300)

DOCUMENTED: dict[str, list[tuple[str, Any]]] = {
    "setup_logging": [("level", None), ("log_file", None)],
    "get_logger": [],
    "check_job_status": [HEAD, JOB, NS],
    "get_job_logs": [HEAD, JOB, ("tail", 100), NS],
    "get_current_step": [HEAD, JOB, NS],
    "get_throughput": [HEAD, JOB, NS],
    "JobMonitor": [HEAD, JOB, NS],
    "monitor_job": [
        HEAD,
        JOB,
        EVERY,
        ("timeout", None),
        STAGNATION,
        ("on_status_change", None),
        ("on_stall", None),
        NS,
    ],
    "detect_stall": [HEAD, JOB, STAGNATION, ("sample_duration", 0), NS],
    "find_latest_checkpoint": [("checkpoint_dir", NONE), ("head_pod", None), NS],
    "submit_job_with_resume": [HEAD, ("checkpoint_path", NONE), ("config", NONE), NS],
    "auto_restart": [HEAD, ("job_name", NONE), ("checkpoint_dir", NONE), ("max_retries", 10), ("retry_delay", 60)]
    + [STAGNATION, EVERY, ("job_config", None), ("initial_job_id", None), NS],
    "check_gpu_utilization": [HEAD, NS],
    "verify_ray_resources": [HEAD, NS],
    "check_efa_utilization": [HEAD, NS],
    "get_training_health": [HEAD, ("checkpoint_dir", NONE), ("all_pods", None), NS],
    "print_training_health": [("report", NONE)],
    "explain_training": [("target", "local"), ("what", None), NS],
}

RETURNED: dict[str, tuple[Any, str]] = {
    "check_gpu_utilization": (
        reports.GpuReport,
        "gpu_count gpu_utilizations memory_used memory_total processes avg_utilization healthy error",
    ),
    "verify_ray_resources": (
        reports.RayResourcesReport,
        "gpus_available gpus_used cpus_available cpus_used healthy error",
    ),
    "check_efa_utilization": (reports.EfaClusterReport, "efa_active transport details"),
    "monitor_job": (reports.MonitorReport, "status duration final_step job_id"),
    "auto_restart": (reports.RestartReport, "success final_step total_retries reason job_id"),
    "get_training_health": (reports.HealthReport, "healthy gpu efa checkpoints ray issues"),
    "explain_training": (
        ExplanationReport,
        "explanation confidence culprits groups missing_ranks ranks findings silent remedies unknown",
    ),
}

INSIDE: dict[Any, dict[str, set[str]]] = {
    reports.GpuReport: {"processes": {"pid", "name", "gpu", "memory"}},
    reports.HealthReport: {
        "gpu": {"total_gpus", "avg_utilization", "per_node"},
        "efa": {"active", "transport", "channels"},
        "checkpoints": {"latest_step", "checkpoint_count", "checkpoint_dir"},
        "ray": {"gpus_used", "gpus_available", "cpus_used", "cpus_available"},
    },
    reports.HealthGpuReport: {"per_node": {"pod", "util", "mem_used", "mem_total"}},
}


def positional(name: str) -> list[tuple[str, Any]]:
    given = inspect.signature(getattr(training_monitor, name)).parameters.values()
    return [(each.name, each.default) for each in given if each.kind is each.POSITIONAL_OR_KEYWORD]


def test_a_documented_function_takes_what_is_documented_in_that_order() -> None:
    for name in DOCUMENTED:
        assert positional(name) == DOCUMENTED[name]
        function = getattr(training_monitor, name)
        given = inspect.signature(function).parameters
        more = [each for each in given.values() if each.kind is not each.POSITIONAL_OR_KEYWORD]
        assert all(each.kind is each.KEYWORD_ONLY and each.default is not NONE for each in more), more
        asks = name not in ("print_training_health", "get_logger", "setup_logging")
        assert not asks or given["transport"].default is None, name
        takes_time = name in ("monitor_job", "auto_restart", "detect_stall", "JobMonitor", "explain_training")
        assert not takes_time or "clock" in given, name
        first = (function.__doc__ or "").splitlines()[0]
        assert len(first) > 15 and first.endswith((".", ":")), name


def test_a_documented_result_has_every_documented_key() -> None:
    for name in RETURNED:
        kind, keys = RETURNED[name]
        function = getattr(training_monitor, name)
        assert get_type_hints(function)["return"] is kind
        assert {*keys.split()} <= set(kind.__annotations__)
        assert kind.__total__, "every key is always there"
    for kind, parts in INSIDE.items():
        hints = get_type_hints(kind)
        for key, keys in parts.items():
            found = get_args(hints[key])[0] if get_args(hints[key]) else hints[key]
            assert keys <= set(found.__annotations__), key


def test_a_plain_result_has_the_documented_type() -> None:
    for name, wanted in [
        ("check_job_status", str),
        ("get_current_step", int | None),
        ("get_throughput", float | None),
        ("get_job_logs", str),
        ("detect_stall", bool),
        ("find_latest_checkpoint", str | None),
        ("submit_job_with_resume", str),
        ("print_training_health", type(None)),
    ]:
        assert get_type_hints(getattr(training_monitor, name))["return"] == wanted


def test_earlier_names_keep_their_arguments_fields_and_methods() -> None:
    documented = (
        "instance_id gpu_type status epoch total_epochs step total_steps loss gpu_util memory_util disk_util"
        " cost_per_hour total_cost runtime_seconds"
    ).split()
    parameters = inspect.signature(training_monitor.TrainingMetrics).parameters
    assert list(parameters)[: len(documented)] == documented
    metrics = training_monitor.TrainingMetrics(instance_id=7, gpu_type="A100", status="running")
    assert metrics.recent_logs.maxlen == 10
    for name in ("progress_percentage", "health_status", "estimated_completion_time"):
        assert callable(getattr(metrics, name))
    for use_mock in [False, True]:
        monitor = training_monitor.VastAIMonitor(instance_ids=[7], use_mock=use_mock)
        assert list(inspect.signature(training_monitor.VastAIMonitor).parameters)[:2] == ["instance_ids", "use_mock"]
        assert callable(monitor.update_all_metrics)
    found = training_monitor.JobMonitor
    assert list(inspect.signature(found.update).parameters) == ["self"]
    threshold = inspect.signature(found.is_stalled).parameters["stagnation_threshold"]
    assert threshold.default == 300
    assert list(inspect.signature(found.get_progress_summary).parameters) == ["self"]
    assert positional("start_background_monitor")[:3] == [HEAD, JOB, EVERY]
    hints = get_type_hints(training_monitor.start_background_monitor)
    assert issubclass(hints["return"], threading.Thread)
    assert {"RUNNING", "FAILED", "SUCCEEDED", "PENDING", "UNKNOWN"} <= {status.value for status in JobStatus}
    assert str(JobStatus.RUNNING) == "RUNNING" == JobStatus.RUNNING
