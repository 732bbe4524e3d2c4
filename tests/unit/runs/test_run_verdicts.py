"""What a look at a run that writes a progress file tells the judge, and what the judge makes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.fakes import EPOCH
from tests.unit.runs.run_world import AT, look, machine, process, run
from training_monitor.core.models import JobStatus
from training_monitor.core.values import Observation, Verdict
from training_monitor.runs.collector import LOOK_SPACING, MOST_LOOKS, add_look, judge_run, observe_run
from training_monitor.runs.rows import judge_look
from training_monitor.runs.values import (
    CANCELED,
    FAILED,
    FINISHED,
    Estimate,
    FolderLook,
    Limits,
    OwnResources,
    Run,
    RunRow,
)
from training_monitor.targets.proc_stat import Identity

AMID = {"epoch": 2, "total_epochs": 3, "batch": 41, "total_batches": 100, "step": 141}


def row_of(now: FolderLook, before: FolderLook | None = None) -> RunRow:
    return judge_look(now, before, Limits())[0][0]


def observe(seen: Run, *processes: Any, **changes: Any) -> Observation:
    now = look(seen, machine(*(processes or (process(100),))), **changes)
    return observe_run(row_of(now), now, EPOCH)


def verdict_on(seen: Run, *processes: Any) -> Verdict:
    row = row_of(look(seen, machine(*(processes or (process(100),)))))
    return judge_run(row, [observe(seen, *processes)], EPOCH).verdict


def test_a_look_has_progress_speed_and_the_time_of_the_last_batch() -> None:
    seen = observe(run(**AMID, metrics={"loss": 1.5}))
    assert (seen.step, seen.total_steps, seen.epoch, seen.total_epochs) == (141, 300, 1.4, 3)
    assert (seen.eta_seconds, seen.steps_per_second, seen.loss, seen.phase) == (900.0, 4.0, 1.5, "training")
    assert (seen.step_age, seen.step_interval, seen.runtime) == (3.0, 0.25, 4990.0)
    assert (seen.status, seen.is_running, seen.finished) == (JobStatus.RUNNING, True, False)
    for updated_at in (EPOCH, EPOCH - 600):  # that its file is written to says nothing of the training
        seen = observe(run(updated_at=updated_at))
        assert (seen.log_age, seen.log_size, seen.step_age) == (None, None, 3.0)


def test_its_processes_tell_cpu_time_and_what_waits_for_a_disk() -> None:
    before = look(run(), machine(process(100, cpu_ticks=500), process(200, 100, state="D", cpu_ticks=100)))
    after = machine(process(100, cpu_ticks=700), process(200, 100, state="D", cpu_ticks=200), at=AT + 2)
    now = look(run(), after, timestamp=EPOCH + 2)
    seen = observe_run(row_of(now, before), now, EPOCH + 2)
    assert (seen.cpu_seconds, seen.cpu_cores, seen.blocked, seen.process) == (9.0, 1.5, 1, "100 500000 boot-a")


def test_what_is_not_known_is_none() -> None:
    bare = run(step_at=None, started_at=None, process=None, run=Estimate(), resources=OwnResources(), phase=None)
    now = look(bare, None, machine_error="no /proc here")
    seen = observe_run(row_of(now), now, EPOCH)
    known = {"status": JobStatus.RUNNING, "is_running": True, "finished": False, "message": seen.message}
    assert seen == replace(Observation(EPOCH, None), **known)
    for changes in ({"epoch": None}, {"batch": None}, {"total_batches": None}, {"total_epochs": None}):
        assert observe(run(**{**AMID, **changes})).total_steps is None


def test_a_file_that_counts_no_steps_tells_them_by_epoch_and_batch() -> None:
    assert observe(run(**{**AMID, "step": 11})).total_steps == 170  # it began amid an epoch
    counted = [({}, 141, 300), ({"epoch": None}, 41, None), ({"total_batches": None}, None, None)]
    for changes, step, total in counted:
        seen = observe(run(**{**AMID, "step": None, **changes}))
        assert (seen.step, seen.total_steps) == (step, total)


def test_the_batches_of_a_validation_move_the_epoch_and_never_back() -> None:
    seen = [{"batch": batch} for batch in (99, 100)]
    seen += [{"batch": 100, "validation_batch": batch, "total_validation_batches": 20} for batch in range(1, 21)]
    seen += [{"batch": 100, "validation_batch": 21}, {"epoch": 3, "batch": None}, {"epoch": 3, "batch": 1}]
    epochs = [observe(run(**{**AMID, **each})).epoch or 0.0 for each in seen]
    assert epochs == sorted(epochs) and len(set(epochs)) == len(epochs) - 1


def test_a_run_that_ended_is_what_it_said() -> None:
    found = verdict_on(run(**AMID))
    assert (found.state, found.verdict) == ("running", "ok")
    for status, message, state, verdict, words in [
        (FINISHED, None, "finished", "ok", "finished"),
        (CANCELED, "SIGTERM was received", "stopped", "warning", "SIGTERM was received"),
        (FAILED, "RuntimeError: CUDA error: out of memory", "failed", "failed", "out of memory"),
        (FAILED, "no reason at all", "failed", "failed", "no reason at all"),
        (None, None, "unknown", "unknown", "its file contains no status"),
    ]:
        found = verdict_on(run(**AMID, status=status, error_message=message), process(1))
        assert (found.state, found.verdict) == (state, verdict) and words in found.reason
    found = verdict_on(run(**AMID), process(1))
    assert (found.state, found.verdict) == ("failed", "failed") and "its process 100 has ended" in found.reason


def test_why_a_run_failed_is_told_by_its_exit_code_where_its_words_say_nothing(subtests: pytest.Subtests) -> None:
    for changes, category in [
        ({"exit_code": 139}, "segfault"),
        ({"exit_code": 137}, "killed_sigkill"),
        ({"exit_code": 3}, "unknown"),
        ({"exit_code": 1, "error_message": "RuntimeError: CUDA out of memory"}, "cuda_oom"),
        ({"error_message": "RuntimeError: CUDA out of memory"}, "cuda_oom"),  # of an earlier version, without a code
    ]:
        with subtests.test(changes=changes, category=category):
            found = verdict_on(run(**AMID, status=FAILED, **changes), process(1))
            assert found.failure and found.failure.category == category
            assert str(changes.get("exit_code", "")) in found.reason or "error_message" in changes


def test_a_run_on_another_machine_that_is_not_heard_of_is_unknown() -> None:
    away = Identity(100, 500_000, "gpu-7", "boot-b", "pid:[1]")
    for age, state in ((3.0, "running"), (100.0, "unknown")):
        found = verdict_on(run(**AMID, process=away, updated_at=EPOCH - age, step_at=EPOCH - age))
        assert found.state == state
    assert found.reason.startswith("it runs on gpu-7") and "no update for 1m40s" in found.reason


def test_only_a_validation_without_batches_is_a_stall() -> None:
    seen: tuple[Observation, ...] = ()
    states = []
    for elapsed in range(0, 9000, 10):
        steps, batch = min(elapsed, 1000), max(0, min(elapsed, 5000) - 1000)
        began = elapsed if elapsed < 5000 else 5000
        counted = {"step": steps, "batch": steps, "total_batches": 1000, "epoch": 1, "total_epochs": 5}
        counted |= {"validation_batch": batch or None, "phase": "validation" if batch else "training"}
        now = look(
            run(**counted, step_at=EPOCH + began, started_at=EPOCH), machine(process(100)), timestamp=EPOCH + elapsed
        )
        seen = add_look(seen, observe_run(row_of(now), now, EPOCH + elapsed))
        states.append(judge_run(row_of(now), seen, EPOCH + elapsed).verdict.state)
    assert set(states[:500]) <= {"starting", "running"} and states[-1] == "stalled"


def looks(times: list[float], **changes: Any) -> tuple[Observation, ...]:
    kept: tuple[Observation, ...] = ()
    for number, time in enumerate(times):
        kept = add_look(kept, Observation(time, number, process="1", **changes))
    return kept


def test_the_newest_look_is_kept_and_of_those_before_one_every_half_minute() -> None:
    kept = [each.timestamp for each in looks([2.0 * number for number in range(100)])]
    assert kept[0] == 0.0 and kept[-1] == 198.0 and kept[-2] >= 198.0 - LOOK_SPACING
    assert all(later - earlier >= LOOK_SPACING - 2 for earlier, later in zip(kept, kept[1:-1]))


def test_few_looks_are_kept_and_the_first_is_among_them() -> None:
    kept = looks([60.0 * number for number in range(5000)])
    assert len(kept) <= MOST_LOOKS and kept[0].timestamp == 0.0 and kept[-1].timestamp == 60.0 * 4999
    kept = add_look(looks([0.0, 60.0, 120.0]), Observation(90.0, 0, process="1"))  # a clock that was set back
    assert [each.timestamp for each in kept] == [0.0, 60.0, 90.0]
    kept = looks([0.0, 60.0, 120.0], status=JobStatus.FAILED)  # the first look at an ended run is enough
    assert [each.timestamp for each in kept] == [0.0]
