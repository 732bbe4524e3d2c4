"""One row of a fleet: how far it is, when it is done, and whether it is healthy."""

from __future__ import annotations

from collections import deque
from datetime import timedelta
from math import inf, nan
from typing import Any

import pytest

from training_monitor.models import LossAnalysis, StallAnalysis
from training_monitor.policy.training_metrics import Health, Thresholds, TrainingMetrics, failure_of


def row(status: str = "running", **values: Any) -> TrainingMetrics:
    return TrainingMetrics(30007001, "RTX 4090", status, **values)


def stall(kind: str = "hang_idle", confidence: str = "high") -> StallAnalysis:
    return StallAnalysis(True, kind, confidence, "no step for 20m", "alert", 70, 100)


BUSY: dict[str, Any] = {"step": 70, "total_steps": 100, "loss": 2.3, "gpu_util": 85.0}
NAN = LossAnalysis("nan", "the loss is nan", nan, 1.0)
FLAT = LossAnalysis("plateau", "flat", 1.0, 1.0)


# ---------------------------------------------------------------- progress


@pytest.mark.parametrize(
    ("values", "percent"),
    [
        ({"step": 0, "total_steps": 1000}, 0.0),
        ({"step": 500, "total_steps": 1000}, 50.0),
        ({"step": 1000, "total_steps": 1000}, 100.0),
        ({"step": 1500, "total_steps": 1000}, 100.0),
        ({"step": -5, "total_steps": 1000}, 0.0),
        ({"step": 5, "total_steps": 0}, 0.0),
        ({"total_steps": -1}, 0.0),
        ({"epochs_done": 1.5, "total_epochs": 3}, 50.0),
        ({"epochs_done": 1.5, "total_epochs": 3, "step": 7}, 50.0),
        ({"epochs_done": 7.0, "total_epochs": 3}, 100.0),
        ({"step": 10, "total_steps": 100, "epochs_done": 1.5, "total_epochs": 3}, 10.0),
        ({"epochs_done": nan, "total_epochs": 3}, None),
        ({"epochs_done": inf, "total_epochs": 3}, None),
        ({"epochs_done": 1.0, "total_epochs": 0}, None),
        ({"epoch": 3.0, "total_epochs": 3}, None),
        ({"step": 10}, None),
        ({}, None),
    ],
)
def test_progress_is_that_of_the_steps_or_else_of_the_epochs(values: dict[str, Any], percent: float | None) -> None:
    assert row(**values).progress_percentage() == percent


# ---------------------------------------------------------------- how long it takes


def seconds(**values: Any) -> float | None:
    left = row(**values).estimated_completion_time()
    return None if left is None else left.total_seconds()


def test_halfway_through_an_hour_of_training_another_hour_is_left() -> None:
    left = row(step=500, total_steps=1000, runtime_seconds=3600.0).estimated_completion_time()
    assert left == timedelta(seconds=3600)


def test_the_speed_comes_before_what_the_log_says_and_that_before_the_run_time() -> None:
    assert seconds(step=50, total_steps=100, eta_seconds=12.0, steps_per_second=2.0, runtime_seconds=9.0) == 25.0
    assert seconds(step=50, total_steps=100, eta_seconds=12.0, runtime_seconds=9.0) == 12.0
    assert seconds(step=50, total_steps=100, steps_per_second=2.0, runtime_seconds=9.0) == 25.0
    assert seconds(step=50, total_steps=100, steps_per_second=0.0, runtime_seconds=9.0) == 9.0
    assert seconds(eta_seconds=12.0) == 12.0


def test_a_run_past_its_last_step_has_nothing_left() -> None:
    assert seconds(step=120, total_steps=100, steps_per_second=2.0) == 0.0


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"step": 5, "runtime_seconds": 9.0},
        {"total_steps": 5, "runtime_seconds": 9.0},
        {"step": 0, "total_steps": 100, "runtime_seconds": 9.0},
        {"step": 5, "total_steps": 0, "runtime_seconds": 9.0},
        {"step": 5, "total_steps": 100},
        {"step": 5, "total_steps": 100, "runtime_seconds": nan},
        {"step": 5, "total_steps": 100, "runtime_seconds": inf},
        {"step": 1, "total_steps": 10**15, "steps_per_second": 1e-9},
        {"eta_seconds": nan},
        {"eta_seconds": inf},
        {"eta_seconds": -1.0},
    ],
)
def test_what_cannot_be_told_is_not_told(values: dict[str, Any]) -> None:
    assert seconds(**values) is None


@pytest.mark.parametrize(
    "values",
    [
        {"status": "exited"},
        {"status": "lost"},
        {"status": "stopped"},
        {"job_status": "failed"},
        {"is_running": False},
        {"finished": True},
        {"stall": stall()},
    ],
)
def test_of_a_training_that_ended_or_hangs_nobody_knows_how_long_it_takes(values: dict[str, Any]) -> None:
    assert seconds(eta_seconds=60.0, **values) is None


def test_a_slow_training_still_comes_to_its_end() -> None:
    assert seconds(eta_seconds=60.0, stall=stall("slow")) == 60.0


# ---------------------------------------------------------------- health


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"status": "lost", **BUSY}, Health("error", "it is gone from the account")),
        ({"status": "lost", "error": "vast://7: no such instance"}, Health("error", "vast://7: no such instance")),
        ({"status": "exited"}, Health("error", "exited")),
        ({"status": "exited", "message": "OOM"}, Health("error", "exited: OOM")),
        ({"status": "failed", "message": "rc 1"}, Health("error", "failed: rc 1")),
        ({"job_status": "failed", **BUSY}, Health("error", "failed")),
        ({"status": "offline", "finished": True}, Health("error", "the machine is offline")),
        ({**BUSY, "loss": nan}, Health("error", "the loss is nan")),
        ({**BUSY, "loss": inf}, Health("error", "the loss is inf")),
        ({**BUSY, "loss_analysis": NAN, "loss": None}, Health("error", "the loss is nan")),
        ({**BUSY, "stall": stall()}, Health("error", "hang_idle: no step for 20m")),
        ({**BUSY, "stall": stall(confidence="low")}, Health("warning", "hang_idle: no step for 20m")),
        ({**BUSY, "stall": stall("slow")}, Health("warning", "slow: no step for 20m")),
        ({**BUSY, "is_running": False}, Health("error", "the training does not run")),
        ({"finished": True, "cost_per_hour": 0.467}, Health("warning", "finished, and still costs $0.467/h")),
        ({"finished": True, "gpu_util": 0.0}, Health("healthy", "finished")),
        ({"status": "succeeded", "is_running": False}, Health("healthy", "finished")),
        ({"status": "exited", "finished": True, "cost_per_hour": 0.0}, Health("healthy", "finished")),
        ({"status": "stopped", "cost_per_hour": 0.012}, Health("warning", "stopped, and its disk costs $0.012/h")),
        ({"status": "stopped", "is_running": False}, Health("warning", "stopped")),
        ({"job_status": "stopped", "cost_per_hour": 1.0}, Health("warning", "stopped, and still costs $1.000/h")),
        ({"status": "frozen"}, Health("warning", "the machine is frozen")),
        ({"status": "rebooting"}, Health("warning", "the machine is rebooting")),
        ({"status": "loading", "gpu_util": 0.0}, Health("unknown", "starting (loading)")),
        ({"status": "created", "gpu_util": 0.0}, Health("unknown", "starting (created)")),
        ({"job_status": "pending", "is_running": False}, Health("unknown", "starting (pending)")),
        ({"error": "ssh: no answer", **BUSY}, Health("unknown", "no answer: ssh: no answer")),
        ({"loss_analysis": LossAnalysis("spike", "it jumped", 9.0, 1.0), **BUSY}, Health("warning", "it jumped")),
        ({"loss_analysis": FLAT, **BUSY}, Health("healthy", "step 70/100, GPU 85 %")),
        ({**BUSY, "loss": 15.0}, Health("warning", "the loss of 15 is high")),
        ({**BUSY, "gpu_util": 5.0}, Health("warning", "GPU at only 5 %")),
        ({**BUSY, "gpu_util": 99.0}, Health("healthy", "step 70/100, GPU 99 %")),
        ({**BUSY, "disk_util": 97.0}, Health("warning", "disk 97 % full")),
        ({**BUSY, "loss": 15.0, "gpu_util": 0.0}, Health("warning", "the loss of 15 is high; GPU at only 0 %")),
        ({"loss": 0.0}, Health("healthy", "loss 0")),
        ({"epoch": 1.5, "total_epochs": 3}, Health("healthy", "epoch 1.5/3")),
        ({"gpu_util": 85.0}, Health("healthy", "GPU 85 %")),
        ({}, Health("unknown", "no log found, and no GPU seen")),
        ({"status": "unknown", "gpu_util": 85.0}, Health("unknown", "no log found, GPU 85 %")),
        ({"gpu_util": 85.0, "message": "no job process:x"}, Health("unknown", "no job process:x")),
        ({"gpu_util": 85.0, "message": "it runs", "is_running": True}, Health("healthy", "GPU 85 %")),
        ({"status": "unknown", "step": 7, "gpu_util": 3.0}, Health("healthy", "step 7, GPU 3 %")),
    ],
)  # fmt: skip
def test_health_and_its_reason(values: dict[str, Any], expected: Health) -> None:
    assert row(**values).health() == expected


def test_a_log_to_which_nothing_comes_shows_no_progress_and_no_end() -> None:
    days = row(**BUSY, log_age=3 * 86_400.0, eta_seconds=60.0)
    assert days.health() == Health("unknown", "nothing new in its log for 3d00h: step 70/100, GPU 85 %")
    assert days.seconds_left() is None
    assert row(**BUSY, log_age=590.0, eta_seconds=60.0).health().level == "healthy"
    assert row(**BUSY, log_age=1800.0, is_running=True, eta_seconds=60.0).seconds_left() == 60.0
    assert row(**BUSY, log_age=3700.0, is_running=True).health().level == "unknown"
    assert row(**BUSY, log_age=9999.0, finished=True).health() == Health("healthy", "finished")


@pytest.mark.parametrize("status", ["created", "loading", "exited", "stopped", "offline", "lost", "rebooting"])
def test_idle_gpus_are_no_warning_while_the_machine_is_not_running(status: str) -> None:
    assert "GPU" not in row(status, gpu_util=0.0).health().reason


def test_a_machine_that_does_not_answer_is_unknown_whatever_was_seen_before_it() -> None:
    stale = row(error="ssh: timed out", stale_since=1000.0, loss=nan, stall=stall(), is_running=False)
    assert stale.health(now=1120.0) == Health("unknown", "no answer for 2m: ssh: timed out")
    assert stale.health(now=900.0).reason == "no answer for 0s: ssh: timed out"


@pytest.mark.parametrize(("status", "level"), [("exited", "error"), ("offline", "error"), ("stopped", "warning")])
def test_what_the_service_says_of_a_machine_needs_no_look_at_it(status: str, level: str) -> None:
    assert row(status, error="ssh: timed out", stale_since=1.0).health(now=60.0).level == level


def test_thresholds_decide_and_none_means_never() -> None:
    seen = row(**{**BUSY, "loss": 15.0, "gpu_util": 5.0, "disk_util": 99.0})
    assert seen.health(Thresholds(None, None, None)).level == "healthy"
    assert seen.health(Thresholds(5.0, 15.0, 99.0)).level == "healthy"
    assert seen.health(Thresholds(5.1, None, None)).reason == "GPU at only 5 %"


def test_health_status_is_the_level_by_the_default_thresholds() -> None:
    assert [row(gpu_util=each).health_status() for each in (85.0, 5.0, None)] == ["healthy", "warning", "unknown"]


def test_reasons_are_bounded_whatever_was_said() -> None:
    for seen in (row("exited", message="x" * 9000), row(error="x" * 9000), row(stall=stall("x" * 9000))):
        assert len(seen.health(now=5.0).reason) <= 220


def test_a_failure_is_only_what_is_known_to_be_one() -> None:
    assert failure_of(row(is_running=None)) is None
    assert failure_of(row("stopped", is_running=False)) is None
    assert failure_of(row("loading", is_running=False)) is None
    assert failure_of(row(is_running=False, finished=True)) is None
    assert failure_of(row(job_status="failed", finished=True)) == "failed"


# ---------------------------------------------------------------- the documented fields


def test_a_row_nothing_is_known_of_has_no_zeros() -> None:
    empty = row()
    for name in ("epoch", "step", "total_steps", "loss", "gpu_util", "memory_util", "disk_util", "cost_per_hour"):
        assert getattr(empty, name) is None
    assert empty.recent_logs == deque() and empty.recent_logs is not row().recent_logs


def test_the_last_ten_lines_of_a_log_are_kept() -> None:
    seen = row()
    seen.recent_logs.extend(f"line {number}" for number in range(15))
    assert list(seen.recent_logs) == [f"line {number}" for number in range(5, 15)]
