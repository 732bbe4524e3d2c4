"""One row of a fleet: how far it is, when it is done, and whether it is healthy."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest

from training_monitor.core.models import Failure, Gpu
from training_monitor.core.values import LossAnalysis, Verdict
from training_monitor.fleet.metrics import Thresholds, TrainingMetrics, failure_of
from training_monitor.verdict.judge import NOBODY_LOOKED, STATES


def row(status: str = "running", **values: Any) -> TrainingMetrics:
    return TrainingMetrics(30007001, "RTX 4090", status, **values)


BUSY: dict[str, Any] = {"step": 70, "total_steps": 100, "loss": 2.3, "gpu_util": 85.0}
RUNS = Verdict("running", "ok", "step 70 of 100")
SLOW = Verdict("slow", "warning", "step 70 of 100: half as fast as before")
HANGS = Verdict("stalled", "failed", "no step for 20m, limit 7m30s: GPUs idle")
ENDED = Verdict("finished", "ok", "finished at step 100 of 100")
DIED = Verdict("failed", "failed", "failed at step 40 of 200: CUDA error: device-side assert")
STOPPED = Verdict("stopped", "warning", "stopped at step 70 of 100")
SILENT = Verdict("unknown", "unknown", "a single check does not show when it reached that step")
STUCK = Verdict("starting", "failed", "it cannot start: no secret")
DONE: dict[str, Any] = {"finished": True, "verdict": ENDED}
NAN = LossAnalysis("nan", "the loss is nan", nan, 1.0)
DIVERGES = LossAnalysis("divergence", "the loss diverges", 9.0, 1.0)
FLAT = LossAnalysis("plateau", "flat", 1.0, 1.0)


def test_progress_is_that_of_the_steps_or_else_of_the_epochs() -> None:
    for values, percent in [
        ({"step": 0, "total_steps": 1000}, 0.0),
        ({"step": 500, "total_steps": 1000}, 50.0),
        ({"step": 1000, "total_steps": 1000}, 100.0),
        ({"step": 1008, "total_steps": 1000}, 100.0),
        ({"step": 1500, "total_steps": 1000}, None),
        ({"step": -5, "total_steps": 1000}, 0.0),
        ({"step": 5, "total_steps": 0}, None),
        ({"total_steps": -1}, None),
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
    ]:
        assert row(**values).progress_percentage() == percent, values


def seconds(**values: Any) -> float | None:
    left = row(**values).estimated_completion_time()
    return None if left is None else left.total_seconds()


def test_the_speed_comes_before_what_the_log_says() -> None:
    assert seconds(step=50, total_steps=100, eta_seconds=12.0, steps_per_second=2.0, runtime_seconds=9.0) == 25.0
    assert seconds(step=50, total_steps=100, eta_seconds=12.0, runtime_seconds=9.0) == 12.0
    assert seconds(step=50, total_steps=100, steps_per_second=2.0, runtime_seconds=9.0) == 25.0
    assert seconds(eta_seconds=12.0) == 12.0
    assert seconds(step=102, total_steps=100, steps_per_second=2.0) == 0.0  # past its last step
    assert seconds(step=120, total_steps=100, steps_per_second=2.0) is None  # not the total of these steps
    for verdict in (SLOW, RUNS):
        assert seconds(eta_seconds=60.0, verdict=verdict) == 60.0


def test_what_cannot_be_told_is_not_told() -> None:
    for values in [
        {},
        {"step": 5, "runtime_seconds": 9.0},
        {"total_steps": 5, "runtime_seconds": 9.0},
        {"step": 0, "total_steps": 100, "runtime_seconds": 9.0},
        {"step": 5, "total_steps": 0, "runtime_seconds": 9.0},
        {"step": 50, "total_steps": 100, "runtime_seconds": 9.0},  # resumed at an unknown step
        {"step": 5, "total_steps": 100},
        {"step": 5, "total_steps": 100, "runtime_seconds": nan},
        {"step": 5, "total_steps": 100, "runtime_seconds": inf},
        {"step": 1, "total_steps": 10**15, "steps_per_second": 1e-9},
        *({"eta_seconds": each} for each in (nan, inf, -1.0)),
        # a training that ended or may hang
        *({"eta_seconds": 60.0, "status": each} for each in ("exited", "lost", "stopped")),
        {"eta_seconds": 60.0, "job_status": "failed"},
        {"eta_seconds": 60.0, "is_running": False},
        {"eta_seconds": 60.0, "finished": True},
        *({"eta_seconds": 60.0, "verdict": each} for each in (HANGS, ENDED, DIED, STOPPED, SILENT)),
    ]:
        assert seconds(**values) is None, values


def said(metrics: TrainingMetrics, now: float | None = None) -> tuple[str, str]:
    """The level of its health, and the reason."""
    health = metrics.health(now=now)
    return health.level, health.reason


def test_health_and_its_reason() -> None:
    for values, expected in [
        ({"status": "lost", **BUSY}, ("error", "it is no longer in the account")),
        ({"status": "lost", "error": "vast://7: no such instance"}, ("error", "vast://7: no such instance")),
        ({"status": "exited"}, ("error", "exited")),
        ({"status": "exited", "message": "OOM"}, ("error", "exited: OOM")),
        ({"status": "exited", **DONE}, ("healthy", "finished at step 100 of 100")),
        ({"status": "offline", **DONE}, ("error", "the machine is offline")),
        ({"status": "failed", "message": "rc 1"}, ("error", "failed: rc 1")),
        ({"status": "failed", "message": "rc 1", "verdict": DIED}, ("error", DIED.reason)),
        ({"job_status": "failed", **BUSY}, ("error", "failed")),
        ({"verdict": DIED, "is_running": False, **BUSY}, ("error", DIED.reason)),
        ({"verdict": HANGS, **BUSY}, ("error", f"stalled: {HANGS.reason}")),
        ({"verdict": SLOW, **BUSY}, ("warning", f"slow: {SLOW.reason}")),
        ({"verdict": SILENT, **BUSY}, ("unknown", SILENT.reason)),
        ({"verdict": RUNS, **BUSY}, ("healthy", "step 70 of 100")),
        ({**DONE, "cost_per_hour": 0.467}, ("warning", "costs $0.467/h: finished at step 100 of 100")),
        ({**DONE, "gpu_util": 0.0}, ("healthy", "finished at step 100 of 100")),
        ({"status": "succeeded", "is_running": False, **DONE}, ("healthy", "finished at step 100 of 100")),
        ({"status": "stopped", "cost_per_hour": 0.012}, ("warning", "stopped, but its disk costs $0.012/h")),
        ({"status": "stopped", "is_running": False}, ("warning", "stopped")),
        ({"verdict": STOPPED, "cost_per_hour": 1.0}, ("warning", f"costs $1.000/h: {STOPPED.reason}")),
        ({"status": "frozen"}, ("warning", "the machine is frozen")),
        ({"status": "rebooting"}, ("warning", "the machine is rebooting")),
        ({"status": "loading", "gpu_util": 0.0}, ("unknown", "starting (loading)")),
        ({"status": "loading", "message": "a1b2: Pulling fs layer"}, ("unknown", "starting (loading)")),
        (
            {"status": "loading", "message": "manifest for x:1 not found"},
            ("error", "starting (loading): manifest for x:1 not found"),
        ),
        (
            {"status": "loading", "message": "unauthorized: https://me:hunter22@r.example/v2"},
            ("error", "starting (loading): unauthorized: https://me:***@r.example/v2"),
        ),
        ({"status": "pending", "message": "no secret", "verdict": STUCK}, ("error", "starting (pending): no secret")),
        ({"status": "created", "gpu_util": 0.0}, ("unknown", "starting (created)")),
        ({"status": "loading", "message": "pulling", "verdict": DIED}, ("unknown", "starting (loading)")),
        ({"status": "pending", "is_running": False}, ("unknown", "starting (pending)")),
        ({"status": "pending", "message": "no free GPUs"}, ("unknown", "starting (pending): no free GPUs")),
        ({"error": "ssh: no answer", "verdict": HANGS}, ("unknown", "no answer: ssh: no answer")),
        ({"absent": "no job process:x", "verdict": RUNS}, ("unknown", "no job process:x")),
    ]:
        assert said(row(**values)) == expected, values


def test_every_state_of_the_judge_has_a_level_and_a_bounded_reason() -> None:
    levels = {"ok": "healthy", "warning": "warning", "failed": "error", "unknown": "unknown"}
    for state in STATES:
        for verdict, level in levels.items():
            found = row(verdict=Verdict(state, verdict, "for a reason")).health()
            assert found.level == ("error" if state == "failed" else "warning" if state == "stopped" else level)
            assert "for a reason" in found.reason
    long = [Verdict(state, "failed", "x" * 9000) for state in STATES]
    for seen in (row("exited", message="x" * 9000), row(error="x" * 9000), *(row(verdict=each) for each in long)):
        assert len(seen.health(now=5.0).reason) <= 220
    found = row(status="failed", verdict=DIED, message="no process 4711").health()
    assert (found.beside_state, found.brief) == (DIED.reason, "failed")
    assert row(status="exited", message="OOM").health().beside_state == "OOM"


def test_what_nobody_has_looked_at_or_heard_of_is_unknown() -> None:
    for status in ("recycling", "ok", "", "x" * 9000):
        found = row(status, verdict=RUNS, **BUSY).health()
        assert found.level == "unknown" and "is unknown to this version" in found.reason and len(found.reason) < 100
    for seen in (row(), row(gpu_util=85.0), row(verdict=NOBODY_LOOKED, **BUSY), row("unknown", gpu_util=3.0)):
        assert seen.health().level == "unknown" and "not checked yet" in seen.health().reason


def test_values_make_what_is_healthy_a_warning_and_nothing_better(subtests: pytest.Subtests) -> None:
    for values, warning in [
        ({"loss_analysis": LossAnalysis("spike", "it jumped", 9.0, 1.0)}, "it jumped"),
        ({"loss": 15.0}, "the loss of 15 is high"),
        ({"gpu_util": 5.0}, "GPU at only 5 %"),
        ({"disk_util": 97.0}, "disk 97 % full"),
        ({"loss": 15.0, "gpu_util": 0.0}, "the loss of 15 is high; GPU at only 0 %"),
    ]:
        with subtests.test(values=values, warning=warning):
            seen = {**BUSY, **values}
            assert said(row(verdict=RUNS, **seen)) == ("warning", f"{warning}; step 70 of 100")
            assert said(row(verdict=HANGS, **seen)) == ("error", f"stalled: {HANGS.reason}; {warning}")
            assert said(row(verdict=SILENT, **seen)) == ("unknown", f"{SILENT.reason}; {warning}")
            assert row(**seen).health().level == "warning"


def test_a_loss_that_is_no_number_is_an_error_before_the_judge_says_so_too() -> None:
    told = Verdict("running", "failed", "the loss is nan; step 70 of 100")
    for verdict in (RUNS, told):
        for values in ({"loss": nan}, {"loss": inf}, {"loss": None, "loss_analysis": NAN}):
            assert said(row(verdict=verdict, **{**BUSY, **values})) == ("error", told.reason)


def test_the_reason_in_brief_and_the_values_that_are_the_reason(subtests: pytest.Subtests) -> None:
    hangs = replace(HANGS, seconds_without_step=900.0)
    died = replace(DIED, failure=Failure("cuda_oom", "user", "stop", "CUDA out of memory"))
    for values, brief, fields in [
        ({"status": "lost"}, "gone", ("status",)),
        ({"status": "exited", "message": "OOM"}, "OOM", ("status",)),
        ({"status": "offline"}, "the machine is offline", ("status",)),
        ({"status": "frozen"}, "frozen", ("status",)),
        ({"status": "odd"}, "unknown status", ("status",)),
        ({"status": "loading"}, "starting", ()),
        ({"status": "stopped"}, "stopped", ("status",)),
        ({"status": "stopped", "cost_per_hour": 0.012}, "stopped, costs", ("status",)),
        ({**DONE, "cost_per_hour": 0.467}, "finished, costs", ("cost_per_hour",)),
        (DONE, "finished", ()),
        ({"verdict": STOPPED, "cost_per_hour": 1.0}, "stopped, costs", ("cost_per_hour",)),
        ({"verdict": DIED}, "failed", ("status",)),
        ({"verdict": died}, "failed: cuda oom", ("status",)),
        ({"error": "ssh: no answer"}, "no answer 2m", ()),
        ({"error": "no such pod", "missing": True}, "not found 2m", ()),
        ({"absent": "no log found", "verdict": RUNS}, "no training found", ()),
        ({}, "not inspected", ()),
        ({"verdict": HANGS}, "stalled", ("step",)),
        ({"verdict": hangs, "gpu_util": 3.0}, "no step for 15m", ("step", "gpu_util")),
        ({"verdict": SLOW}, "slow", ("steps_per_second",)),
        ({"verdict": SILENT}, "unknown", ()),
        ({"verdict": RUNS}, "", ()),
        ({"verdict": RUNS, "loss": nan}, "loss is nan", ("loss",)),
        ({"verdict": hangs, "loss": nan}, "no step for 15m", ("loss", "step")),
        ({"verdict": RUNS, "loss": 12.0}, "loss 12", ("loss",)),
        ({"verdict": RUNS, "loss": 2.0, "loss_analysis": DIVERGES}, "loss diverges", ("loss",)),
        ({"verdict": RUNS, "gpu_util": 3.4, "disk_util": 96.2}, "GPU at 3 %", ("gpu_util", "disk_util")),
        ({"verdict": RUNS, "disk_util": 96.2}, "disk 96 % full", ("disk_util",)),
    ]:
        with subtests.test(values=values):
            found = row(**{"stale_since": 1000.0, **values}).health(now=1120.0)
            assert (found.brief, found.fields) == (brief, fields)


def test_values_as_they_should_be_are_no_warning() -> None:
    for values in [{"gpu_util": 99.0}, {"loss_analysis": FLAT}, {"loss": 0.0}, {"loss": None}, {"gpu_util": None}]:
        assert said(row(verdict=RUNS, **{**BUSY, **values})) == ("healthy", "step 70 of 100"), values
    for status in ["created", "loading", "exited", "stopped", "offline", "lost", "rebooting"]:
        assert "GPU" not in row(status, gpu_util=0.0).health().reason, status


def test_what_makes_steps_names_its_step_and_a_row_by_hand_its_values() -> None:
    sure = replace(RUNS, reason="step 68 of 100", confidence="high")
    assert said(row(verdict=sure, **BUSY)) == ("healthy", "step 70 of 100")
    assert said(row(verdict=sure)) == ("healthy", "step 68 of 100")
    doubtful = replace(RUNS, reason="step 68 of 100: its GPUs are busy", confidence="low")
    assert said(row(verdict=doubtful, **BUSY)) == ("healthy", doubtful.reason)
    assert said(row(**BUSY)) == ("healthy", "step 70 of 100")
    assert said(row(epoch=1.5, total_epochs=3)) == ("healthy", "epoch 1.5 of 3")
    assert said(row(loss=0.5)) == ("healthy", "loss 0.5")
    assert said(row(step=5, loss=nan)) == ("error", "the loss is nan; step 5")
    assert said(row(gpu_util=5.0)) == ("warning", "GPU at only 5 %; not checked yet")


def test_a_silent_machine_is_unknown_unless_its_end_was_seen_or_is_told() -> None:
    stale: dict[str, Any] = {"error": "ssh: timed out", "stale_since": 1000.0}
    seen = row(**stale, loss=nan, verdict=HANGS)
    assert said(seen, 1120.0) == ("unknown", "no answer for 2m: ssh: timed out")
    assert seen.health(now=900.0).reason == "no answer for 0s: ssh: timed out"
    for status, level in (("exited", "error"), ("offline", "error"), ("stopped", "warning")):
        assert row(status, **stale).health(now=1060.0).level == level  # the service tells
    for verdict, level in ((DIED, "error"), (STOPPED, "warning")):
        assert row(**stale, verdict=verdict).health(now=1060.0).level == level
    assert row(**stale, **DONE).health(now=1060.0).level == "healthy"


def test_thresholds_decide_and_none_means_never() -> None:
    seen = row(**{**BUSY, "loss": 15.0, "gpu_util": 5.0, "disk_util": 99.0}, verdict=RUNS)
    assert seen.health(Thresholds(None, None, None)).level == "healthy"
    assert seen.health(Thresholds(5.0, 15.0, 99.0)).level == "healthy"
    assert seen.health(Thresholds(5.1, None, None)).reason == "GPU at only 5 %; step 70 of 100"
    levels = [row(gpu_util=each, step=5).health_status() for each in (85.0, 5.0)]
    assert [*levels, row().health_status()] == ["healthy", "warning", "unknown"]


def test_a_failure_is_only_what_is_known_to_be_one() -> None:
    for seen in (
        row(is_running=None),
        *(row(status, is_running=False) for status in ("running", "stopped", "loading")),
        row(is_running=False, **DONE),
        row(verdict=HANGS),
    ):
        assert failure_of(seen) is None
    assert failure_of(row(is_running=False, verdict=DIED)) == DIED.reason


def test_an_unknown_row_has_no_zeros_and_a_row_keeps_ten_lines_of_its_log() -> None:
    empty = row()
    for name in ("epoch", "step", "total_steps", "loss", "gpu_util", "memory_util", "disk_util", "cost_per_hour"):
        assert getattr(empty, name) is None
    assert empty.recent_logs == deque() and empty.recent_logs is not row().recent_logs
    empty.recent_logs.extend(f"line {number}" for number in range(15))
    assert list(empty.recent_logs) == [f"line {number}" for number in range(5, 15)]


def test_the_state_is_one_word_by_the_machine_and_the_judge() -> None:
    for seen, state in [
        (row(verdict=RUNS, **BUSY), "running"),
        (row(verdict=HANGS, **BUSY), "stalled"),
        (row(verdict=SLOW), "slow"),
        (row(verdict=DIED), "failed"),
        (row(verdict=STOPPED), "stopped"),
        (row("succeeded", **DONE), "finished"),
        (row("exited", verdict=HANGS), "exited"),
        (row("exited", **DONE), "finished"),
        (row("loading", verdict=RUNS), "loading"),
        (row("stopped"), "stopped"),
        (row("lost", **DONE), "lost"),
        (row("beaming"), "beaming"),
        (row(verdict=RUNS, loss=nan), "NaN"),
        (row(verdict=RUNS, error="ssh: no answer"), "unreachable"),
        (row(verdict=RUNS, error="no pod", missing=True), "missing"),
        (row(absent="no log found"), "absent"),
        (row(verdict=NOBODY_LOOKED), "unknown"),
        (row(), "running"),
    ]:
        assert seen.state() == state, seen


def test_the_least_used_of_several_gpus_is_a_warning_that_their_mean_hides() -> None:
    gpus = tuple(Gpu(number, utilization=0.0 if number == 5 else 99.0) for number in range(8))
    seen = row(verdict=RUNS, **{**BUSY, "gpu_util": 86.6, "gpus": gpus})
    health = seen.health()
    assert seen.lowest_gpu() == 0.0
    assert (health.level, health.brief, health.fields) == ("warning", "GPU 5 at 0 %", ("lowest_gpu",))
    assert health.reason.startswith("GPU 5 at only 0 %, 87 % on average; ")
    assert seen.health(Thresholds(low_gpu=None)).level == "healthy"
    assert row(gpus=(Gpu(0, utilization=3.0),)).lowest_gpu() is None
    assert row(gpus=(Gpu(0), Gpu(1))).lowest_gpu() is None and row().lowest_gpu() is None
    assert row(gpus=(Gpu(0), Gpu(1, utilization=40.0))).lowest_gpu() == 40.0
