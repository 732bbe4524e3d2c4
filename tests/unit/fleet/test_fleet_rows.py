"""From what vast.ai lists and a look at the machine to a row, also when what is listed is nonsense."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest

from training_monitor.core.models import Gpu, JobStatus, Progress
from training_monitor.core.values import LossAnalysis, StallAnalysis, TrainingStatus, Verdict
from training_monitor.fleet.metrics import TrainingMetrics
from training_monitor.fleet.rows import Billed, Listed, Seen, bill, clean_text, metrics_of
from training_monitor.fleet.values import MemberSpec, TargetReading
from training_monitor.targets.target import instance_of
from training_monitor.verdict.judge import NOBODY_LOOKED

NOW = 1_750_000_000.0
HOUR = 3600.0
VAST = MemberSpec("vast://30007001")
MACHINE = MemberSpec("ssh://gpu1", "process:train", name="llama", groups=("nightly",))


ROW: dict[str, Any] = {
    **{"id": 30007001, "actual_status": "running", "intended_status": "running", "cur_state": "running"},
    **{"status_msg": "success, running vastai/pytorch", "label": None, "gpu_name": "RTX 3090", "num_gpus": 1},
    **{"gpu_util": 85.2, "gpu_temp": 61.0, "gpu_ram": 24564, "gpu_totalram": 24564, "vmem_usage": 10.3},
    **{"mem_usage": 8.1, "mem_limit": 64.0, "disk_usage": 21.5, "disk_space": 64.0, "disk_util": 12.0},
    **{"dph_total": 0.467, "storage_total_cost": 0.01, "start_date": NOW - 10 * HOUR},
}


QUIET = StallAnalysis(False, None, "none", "making progress", "continue", 1234, None)


RUNS = Verdict("running", "ok", "step 1234")
ENDED = Verdict("finished", "ok", "finished at step 1234")
DIED = Verdict("failed", "failed", "failed at step 40 of 200: CUDA error: device-side assert")
NO_PROGRESS = Progress()


def reading(
    at: float = NOW, gpus: tuple[Gpu, ...] = (), progress: Progress = NO_PROGRESS, **status: Any
) -> TargetReading:
    values: dict[str, Any] = {"is_running": True, "stall": QUIET, "checkpoints": None, "recent_output": ""}
    values |= {"status": JobStatus.RUNNING, "verdict": RUNS, **status}
    disk, ram = values.pop("disk", None), values.pop("ram", None)
    return TargetReading(at, TrainingStatus(progress=progress, timestamp=at, **values), gpus, disk, ram)


def row_of(spec: MemberSpec = VAST, row: Any = None, **given: Any) -> TrainingMetrics:
    of_looks = {name: given.pop(name) for name in ("reading", "logs", "error", "stale_since") if name in given}
    now = given.pop("now", NOW)
    return metrics_of(
        spec,
        Listed(row, **{"listed_at": NOW if row else None, **given}),
        Seen(**of_looks),
        now,
        rented=instance_of(spec.target),
    )


def listed(**changes: Any) -> TrainingMetrics:
    return row_of(row={**ROW, **changes})


# ---------------------------------------------------------------- a listed instance


def test_memory_and_cost_come_from_fields_that_the_service_has() -> None:
    seen = listed()
    assert (seen.instance_id, seen.gpu_type, seen.status) == (30007001, "RTX 3090", "running")
    assert (seen.gpu_util, seen.gpu_temperature) == (85.2, 61.0)
    assert seen.memory_util == pytest.approx(100 * 10.3 * 1024 / 24564)
    assert seen.ram_util == pytest.approx(100 * 8.1 / 64)
    assert seen.disk_util == pytest.approx(33.6, abs=0.05)
    assert seen.total_cost == pytest.approx(4.67)
    assert (seen.cost_per_hour, seen.started_at, seen.last_updated) == (0.467, NOW - 10 * HOUR, NOW)
    assert (seen.step, seen.loss, seen.runtime_seconds) == (None, None, None)


def test_several_gpus_are_counted_and_unknown_sizes_are_made_up_for() -> None:
    seen = listed(num_gpus=8, gpu_totalram=None, gpu_ram=1024, vmem_usage=4.0)
    assert (seen.gpu_type, seen.memory_util) == ("8x RTX 3090", 50.0)
    assert listed(disk_space=None).disk_util == listed(disk_space=0).disk_util == 12.0
    assert listed(disk_space=0, disk_util=-1).disk_util is None


HOSTILE = [
    None, True, False, "", "85.2", "nan", "\x1b[31mred\x07", nan, inf, -inf, -1, 1e308, 10**400, [], {}, ["x"], b"x",
]  # fmt: skip


def test_a_field_that_is_nonsense_takes_nothing_else_with_it(subtests: pytest.Subtests) -> None:
    for value in HOSTILE:
        for field in {*ROW} - {"id"}:
            with subtests.test(value=value, field=field):
                seen = listed(**{field: value})
                for percent in (seen.gpu_util, seen.memory_util, seen.ram_util, seen.disk_util):
                    assert percent is None or 0 <= percent <= 100
                assert seen.name.isprintable() and seen.status.isprintable() and (seen.gpu_type or "").isprintable()
                assert seen.cost_per_hour is None or seen.cost_per_hour >= 0
                assert seen.total_cost is None or seen.total_cost >= 0
                assert seen.health(now=NOW).level in ("healthy", "warning", "error", "unknown")


def test_of_what_nobody_listed_or_a_listing_of_nulls_nothing_is_known() -> None:
    seen = row_of(row={key: None for key in ROW})
    assert (seen.status, seen.gpu_type, seen.cost_per_hour, seen.total_cost) == ("unknown", None, None, None)
    assert seen.health().level == "unknown"
    seen = row_of(reading=reading())
    assert (seen.status, seen.instance_id, seen.name) == ("unknown", 30007001, "30007001")
    for seen in (listed(), row_of(MACHINE), row_of(row=ROW, reading=reading(verdict=None))):
        assert seen.verdict == NOBODY_LOOKED and seen.health().level == "unknown"
    assert listed(actual_status="loading").verdict is None


def test_the_status_is_the_service_s_word() -> None:
    for actual, intended, status in [
        (None, "running", "created"),
        (None, None, "unknown"),
        ("Loading ", "running", "loading"),
        ("exited", "stopped", "stopped"),
        ("exited", "running", "exited"),
        ("exited", None, "exited"),
        (7, "running", "created"),
        ("off\x1b[2Jline", "running", "offline"),
    ]:
        assert listed(actual_status=actual, intended_status=intended).status == status


# ---------------------------------------------------------------- money


def test_what_it_came_to_is_known_only_with_its_start_while_it_is_rented() -> None:
    seen = listed(actual_status="exited", intended_status="stopped", cur_state="stopped")
    assert (seen.cost_per_hour, seen.total_cost, seen.started_at) == (0.01, None, NOW - 10 * HOUR)
    for start in [None, 0, -5, "yesterday", True, nan, 12.0, NOW + 9999]:
        seen = listed(start_date=start)
        assert (seen.total_cost, seen.started_at) == (None, None), start
    assert listed(start_date=NOW + 60).total_cost == 0.0


def test_the_cost_does_not_jump_with_price_status_or_start() -> None:
    dearer = {**ROW, "dph_total": 0.9}
    billed = bill(ROW, None, dearer, NOW)
    assert billed and row_of(row=dearer, billed=billed).total_cost == pytest.approx(4.67)
    assert row_of(row=dearer, billed=billed, now=NOW + HOUR).total_cost == pytest.approx(5.57)
    stopped = {**dearer, "actual_status": "exited", "intended_status": "stopped", "cur_state": "stopped"}
    billed = bill(dearer, billed, stopped, NOW + HOUR)
    assert row_of(row=stopped, billed=billed, now=NOW + 2 * HOUR).total_cost == pytest.approx(5.58)
    again = {**ROW, "start_date": NOW + 2 * HOUR}
    billed = bill(stopped, billed, again, NOW + 2 * HOUR)
    assert row_of(row=again, billed=billed, now=NOW + 3 * HOUR).total_cost == pytest.approx(5.58 + 0.467)


def test_nothing_is_billed_of_what_was_not_known_or_did_not_change() -> None:
    assert bill(None, None, ROW, NOW) is None and bill(ROW, None, dict(ROW), NOW) is None
    assert bill({**ROW, "start_date": None}, None, ROW, NOW) is None
    known = Billed(3.0, NOW - HOUR)
    without_price = {**ROW, "dph_total": None}
    assert bill(without_price, known, ROW, NOW) == known
    assert row_of(row=without_price, billed=known).total_cost is None


def test_what_was_lost_cost_until_it_was_listed_last() -> None:
    seen = row_of(row=ROW, listed_at=NOW - HOUR, lost=True, reading=reading(NOW - HOUR, progress=Progress(step=70)))
    assert (seen.status, seen.cost_per_hour, seen.step) == ("lost", None, 70)
    assert seen.total_cost == pytest.approx(9 * 0.467)
    assert (seen.gpu_util, seen.is_running, seen.verdict) == (None, None, None)
    seen = row_of(lost=True, error="vast://30007001: no such instance in this account")
    assert seen.health().reason == "vast://30007001: no such instance in this account"


def test_a_row_is_called_what_people_call_it() -> None:
    for spec, label, name in [
        (MemberSpec("vast://7", name="mine"), "training_monitor/me/lora-1/1", "mine"),
        (VAST, "training_monitor/me/lora-1/2", "lora-1"),
        (VAST, "my run", "my run"),
        (VAST, "a\nb\x1b[31m\u202e", "a b"),
        (VAST, " \n ", "30007001"),
        (VAST, None, "30007001"),
        (VAST, 7, "30007001"),
        (MemberSpec("ssh://gpu1"), None, "ssh://gpu1"),
        (MemberSpec("local", "process:train"), None, "process:train"),
        (MemberSpec("vast://7", "process:train"), "my run", "my run process:train"),
        (MemberSpec("local", log_paths=("/data/runs/a/train.log",)), None, "a/train.log"),
        (MemberSpec("local", log_paths=("~/train.log",), name="mine"), None, "mine"),
    ]:
        assert row_of(spec, {**ROW, "label": label} if spec.target.startswith("vast") else None).name == name, name


def test_texts_are_bounded_and_have_no_control_characters() -> None:
    seen = listed(label="x" * 9999, gpu_name="\x1b]0;evil\x07" + "G" * 9999)
    assert len(seen.name) == 100 and len(seen.gpu_type or "") <= 100
    assert clean_text("\x1b[1;32mok\x1b[0m\tdone\r\n") == "ok done"
    assert clean_text("\ud800x" + "y" * 600, 500) == "?x" + "y" * 498


# ---------------------------------------------------------------- a look at the machine

GPUS = (
    Gpu(0, name="NVIDIA H100", utilization=90.0, memory_used_mb=10, memory_total_mb=100, power_draw_watts=350,
        power_limit_watts=700, temperature_celsius=60),
    Gpu(1, name="NVIDIA H100", utilization=70.0, memory_used_mb=30, memory_total_mb=100, temperature_celsius=70),
)  # fmt: skip


def test_what_the_machine_says_of_its_gpus_comes_before_the_listing() -> None:
    seen = row_of(row=ROW, reading=reading(NOW - 30, GPUS, disk=50.0, ram=40.0))
    assert (seen.gpu_util, seen.memory_util, seen.gpu_temperature, seen.gpu_power) == (80.0, 20.0, 70.0, 0.5)
    assert (seen.disk_util, seen.ram_util, seen.gpu_type, seen.last_updated) == (50.0, 40.0, "RTX 3090", NOW)
    old = row_of(row={**ROW, "mem_limit": None}, reading=reading(NOW - 600, GPUS, ram=40.0), error="ssh: timed out")
    assert (old.gpu_util, old.ram_util, old.gpu_power) == (85.2, 40.0, 0.5)  # it was listed since
    silent = row_of(row=ROW, reading=reading(NOW, (Gpu(0, error="lost"),)))
    assert (silent.gpu_util, silent.gpu_temperature, silent.gpu_power) == (85.2, 61.0, None)


def test_a_machine_that_is_not_running_shows_no_gpus() -> None:
    progress = Progress(step=70, total_steps=100, loss=1.5, steps_per_second=2.0, eta_seconds=15.0)
    for status in ["loading", "exited", "offline", "stopped", "frozen"]:
        seen = row_of(row={**ROW, "actual_status": status}, reading=reading(NOW - 5, GPUS, progress))
        assert (seen.step, seen.total_steps, seen.loss) == (70, 100, 1.5)
        of_now = (seen.gpu_util, seen.memory_util, seen.eta_seconds, seen.steps_per_second)
        assert {*of_now, seen.is_running, seen.job_status, seen.verdict} == {None}, status


def test_progress_comes_from_the_log_and_the_training_s_own_clock() -> None:
    progress = Progress(70, 100, 1.4, 2, 1.5, 1e-4, 0.5, 2.0, eta_seconds=15.0, eta_scope="job")
    loss = LossAnalysis(None, "nothing stands out", 1.5, 1.5)
    seen = row_of(row=ROW, reading=reading(NOW, (), progress, runtime=1800.0, loss=loss))
    assert (seen.step, seen.total_steps, seen.epoch, seen.total_epochs, seen.loss) == (70, 100, 1.4, 2, 1.5)
    assert (seen.learning_rate, seen.grad_norm, seen.steps_per_second, seen.eta_seconds) == (1e-4, 0.5, 2.0, 15.0)
    assert (seen.runtime_seconds, seen.verdict, seen.loss_analysis, seen.finished) == (1800.0, RUNS, loss, None)
    of_an_epoch = reading(progress=replace(progress, step=None, steps_per_second=None, eta_scope="epoch"))
    assert row_of(row=ROW, reading=of_an_epoch).eta_seconds is None
    hangs = Verdict("stalled", "failed", "no step for 20m, limit 7m30s")
    assert row_of(row=ROW, reading=reading(progress=progress, verdict=hangs)).steps_per_second is None


def test_a_log_that_counts_within_epochs_has_the_steps_of_all_of_them() -> None:
    progress = Progress(
        epoch=2.0, total_epochs=3, epoch_step=234, epoch_steps=1000, epochs_done=1.234, steps_per_second=2.0
    )
    seen = row_of(row=ROW, reading=reading(progress=progress))
    assert (seen.step, seen.total_steps, seen.epoch, seen.epochs_done) == (1234, 3000, 2.0, 1.234)
    assert (seen.progress_percentage(), seen.eta_seconds) == (pytest.approx(41.13, abs=0.01), 883.0)


def test_another_target_has_the_status_of_its_job(subtests: pytest.Subtests) -> None:
    for status, is_running, word, finished in [
        (JobStatus.RUNNING, True, "running", None),
        (JobStatus.FAILED, False, "failed", None),
        (JobStatus.SUCCEEDED, False, "succeeded", True),
        (JobStatus.STOPPED, False, "stopped", None),
        (JobStatus.PENDING, True, "pending", None),
        (JobStatus.UNKNOWN, True, "running", None),
        (JobStatus.UNKNOWN, None, "unknown", None),
        (JobStatus.UNKNOWN, False, "unknown", None),
    ]:
        with subtests.test(status=status, is_running=is_running, word=word, finished=finished):
            verdict = ENDED if finished else RUNS
            seen = row_of(MACHINE, reading=reading(gpus=GPUS, status=status, is_running=is_running, verdict=verdict))
            assert (seen.status, seen.finished, seen.instance_id, seen.key) == (word, finished, "llama", MACHINE.key)
            assert (seen.gpu_type, seen.cost_per_hour, seen.groups) == ("2x H100", None, ("nightly",))


def test_a_failed_job_a_machine_that_is_down_and_a_failed_look_say_why() -> None:
    failed = {"status": JobStatus.FAILED, "is_running": False, "message": "exit code 1", "verdict": DIED}
    seen = row_of(row=ROW, reading=reading(**failed))
    assert (seen.status, seen.job_status, seen.health().reason) == ("running", "failed", DIED.reason)
    assert listed().message is None
    assert listed(actual_status="exited", status_msg="OCI error\n\x1b[31m").message == "OCI error"
    seen = row_of(row=ROW, reading=reading(NOW - 120), error="ssh: timed out", stale_since=NOW - 120)
    assert (seen.error, seen.stale_since, seen.is_running) == ("ssh: timed out", NOW - 120, True)
    assert seen.health(now=NOW).reason == "no answer for 2m: ssh: timed out"


@pytest.mark.parametrize("verdict", [ENDED, DIED])
def test_an_end_that_was_seen_holds_when_the_machine_or_the_log_is_gone(verdict: Verdict) -> None:
    seen = reading(verdict=verdict, is_running=False)
    for status in ("stopped", "exited", "offline"):
        assert row_of(row={**ROW, "actual_status": status}, reading=seen).verdict == verdict
    assert row_of(row=ROW, lost=True, reading=seen).verdict == verdict
    gone = row_of(row=ROW, reading=replace(seen, absent="its log no longer exists"))
    assert gone.health().level == ("error" if verdict is DIED else "warning") and verdict.reason in gone.health().reason


def test_of_a_bare_word_in_no_group_it_is_said_what_it_was_taken_for() -> None:
    gone = 'k8s://default/gruop1: pods "gruop1" not found'
    bare = row_of(MemberSpec("gruop1"), error=gone)
    assert bare.health().reason.endswith(f"gruop1, assumed to be a pod: {gone}")
    for spec in (MemberSpec("gruop1", groups=("nightly",)), MemberSpec("k8s://default/gruop1"), MemberSpec("local")):
        assert row_of(spec, error=gone).error == gone
    assert row_of(MemberSpec("head")).error is None


def test_a_listing_does_not_make_seen_what_gave_no_answer() -> None:
    silent = {"error": "ssh: no answer", "stale_since": NOW - 100}
    assert row_of(row=ROW, reading=reading(NOW - 100), **silent).last_updated == NOW - 100
    assert row_of(row=ROW, **silent).last_updated is None
    down = {**ROW, "actual_status": "exited"}
    assert row_of(row=down, reading=reading(NOW - 100), **silent).last_updated == NOW


def test_a_training_without_a_job_has_the_end_that_its_log_tells_as_its_status() -> None:
    for verdict, status in ((ENDED, "finished"), (DIED, "failed"), (RUNS, "unknown")):
        seen = reading(verdict=verdict, is_running=None, status=JobStatus.UNKNOWN)
        assert row_of(MACHINE, reading=seen).status == status
