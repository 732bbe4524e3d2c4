"""Which rented instances are destroyed: a table of rows, jobs and moments, and the verdict for each."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from training_monitor.rent.config import ServiceConfig
from training_monitor.rent.sweep import (
    FORGET_SECONDS,
    JudgedInstance,
    SweepMemory,
    cost_per_hour,
    decide_sweep,
    describe_alert,
    is_at_work,
)
from training_monitor.vast.training_request import JobState, JobWork, QueuedJob, Rental, TrainingRequest

NOW = 1_750_000_000.0
MINUTE, HOUR = 60.0, 3600.0
CONFIG = ServiceConfig()
ACTIVE = [state for state in JobState if not state.is_terminal]
OURS = "training_monitor/me/lora-1/1"
REQUEST = TrainingRequest(name="lora", command="train")


def row(label: object = OURS, **details: Any) -> dict[str, Any]:
    return {"id": 7, "label": label, "actual_status": "running", "start_date": NOW - HOUR, "dph_total": 0.5, **details}


def job(state: JobState = JobState.TRAINING, *, idle: float = MINUTE, **details: Any) -> QueuedJob:
    """The job of instance 7, in its first attempt, with a worker."""
    values: dict[str, Any] = {"work": JobWork(attempt=1, instance_id=7), "request": REQUEST}
    values |= {"created_at": NOW - 10 * HOUR, "changed_at": NOW - idle, "progressed_at": NOW - idle}
    values |= {"worker": "w", "lease_until": NOW + MINUTE, **details}
    return QueuedJob("lora-1", state, **values)


def decide(
    seen: dict[str, Any], kept: QueuedJob | None = None, *, first_seen: float = NOW - HOUR, **options: Any
) -> JudgedInstance:
    return decide_sweep(seen, kept, "me", first_seen, NOW, CONFIG, **options)


def outcome(*args: Any, **options: Any) -> tuple[str, str]:
    verdict = decide(*args, **options)
    return verdict["action"], verdict["kind"]


# ---------------------------------------------------------------- jobs that are over


def test_the_machine_of_a_job_that_is_over_goes_at_once(subtests: pytest.Subtests) -> None:
    for state in [JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED]:
        for status in ["running", "stopped", "exited", "offline", "loading", None]:
            with subtests.test(state=state, status=status):
                verdict = decide(row(actual_status=status), job(state), first_seen=NOW)
                assert (verdict["action"], verdict["kind"], verdict["job_id"]) == ("terminate", "finished", "lora-1")
                assert verdict["reason"] == f"Training {state} but instance not terminated"


@pytest.mark.parametrize("on_finish", ["keep", "stop"])
@pytest.mark.parametrize(
    "work",
    [
        JobWork(attempt=1, instance_id=7),
        JobWork(attempt=2, rentals=(Rental(6, 1, 0.5, NOW, NOW), Rental(7, 2, 0.5, NOW, NOW))),
    ],
    ids=["its instance", "its last rental"],
)
def test_a_machine_that_is_to_be_kept_is_kept_however_old_and_alerted(on_finish: str, work: JobWork) -> None:
    done = job(JobState.COMPLETED, idle=99 * HOUR, request=replace(REQUEST, on_finish=on_finish), work=work)
    verdict = decide(row(start_date=NOW - 99 * HOUR, id="7"), done)
    assert (verdict["action"], verdict["kind"]) == ("keep", "kept")
    assert verdict["reason"] == f"kept as requested (on_finish: {on_finish}); it still costs money"
    alert = describe_alert(verdict)
    assert alert and (alert["type"], alert["instance_id"], alert["cost_per_hour"]) == ("INSTANCE_KEPT", "7", 0.5)
    assert "its storage still costs" in decide(row(actual_status="stopped"), done)["reason"]


@pytest.mark.parametrize("state", [JobState.DESTROYING, JobState.SETTLING, JobState.NOTIFYING])
def test_a_machine_that_is_to_be_kept_is_kept_while_its_job_waits_for_a_worker(state: JobState) -> None:
    work = JobWork(attempt=1, instance_id=7, outcome=JobState.COMPLETED)
    kept = job(state, idle=9 * HOUR, work=work, request=replace(REQUEST, on_finish="keep"), lease_until=None)
    assert outcome(row(), kept) == ("keep", "kept")
    assert outcome(row(), replace(kept, request=REQUEST)) == ("terminate", "finished")


def test_keeping_is_for_the_last_machine_of_a_job_that_completed() -> None:
    keep = replace(REQUEST, on_finish="keep")
    assert outcome(row(), job(JobState.FAILED, request=keep)) == ("terminate", "finished")
    other = JobWork(attempt=2, instance_id=8)
    assert outcome(row(), job(JobState.COMPLETED, request=keep, work=other)) == ("terminate", "finished")
    assert outcome(row(), job(JobState.COMPLETED, request=keep, work=JobWork())) == ("terminate", "finished")


# ---------------------------------------------------------------- jobs that go on


def test_the_machine_of_a_job_that_goes_on_is_kept(subtests: pytest.Subtests) -> None:
    for state in ACTIVE:
        for status in ["running", "loading", "created", "rebooting", None, 7]:
            with subtests.test(state=state, status=status):
                assert outcome(row(actual_status=status), job(state)) == ("keep", "at_work")
                free = outcome(row(actual_status=status), job(state, lease_until=None, worker=None))
                replaced = ("terminate", "left_over")
                assert free == (replaced if state is JobState.REPLACING else ("keep", "at_work"))


def test_a_machine_that_was_asked_for_and_not_yet_seen_is_the_one_of_the_job() -> None:
    assert outcome(row(id="7"), job()) == outcome(row(id=7), job()) == ("keep", "at_work")
    asked = job(JobState.RENTING, work=JobWork(attempt=1, asked_at=NOW - MINUTE))
    assert outcome(row(), asked) == ("keep", "at_work")
    assert is_at_work(row(), asked) and not is_at_work(row(), job(JobState.COMPLETED))
    assert not is_at_work(row(), job(work=JobWork(attempt=2, instance_id=7)))
    assert not is_at_work(row("training_monitor/me/lora-2/1"), job())


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (JobWork(2, NOW - 2 * HOUR, 9), "left over from attempt 1; the job is on instance 9, in attempt 2"),
        (JobWork(2, NOW - 2 * HOUR), "left over from attempt 1; the job is without a machine, in attempt 2"),
        (JobWork(1, NOW - 2 * HOUR, 9), "left over from attempt 1; the job is on instance 9"),
        (JobWork(0), "left over from attempt 1; the job is without a machine, in attempt 0"),
    ],
    ids=["other attempt", "being rented", "two of one label", "before any"],
)
def test_a_machine_that_its_job_left_goes_after_the_grace_period(work: JobWork, reason: str) -> None:
    left = job(idle=11 * MINUTE, work=work)
    assert decide(row(), left)["reason"] == reason
    assert outcome(row(), left) == ("terminate", "left_over")
    assert outcome(row(), left, first_seen=NOW - 9 * MINUTE) == ("keep", "left_over")


def test_a_machine_that_is_just_being_replaced_is_left_to_the_worker() -> None:
    renting = job(JobState.RENTING, idle=2 * MINUTE, work=JobWork(attempt=2))
    assert outcome(row(), renting, first_seen=NOW - 3 * HOUR) == ("keep", "left_over")
    asked = job(idle=2 * MINUTE, work=JobWork(2, NOW - 5 * MINUTE, 9))
    assert outcome(row(), asked, first_seen=NOW - 3 * HOUR) == ("keep", "left_over")
    skewed = job(idle=2 * MINUTE, work=JobWork(2, NOW + 9 * HOUR, 9))
    assert outcome(row(), skewed, first_seen=NOW - 3 * HOUR) == ("terminate", "left_over")


@pytest.mark.parametrize("state", [JobState.TRAINING, JobState.UPLOADING, JobState.SYNCING, JobState.DESTROYING])
def test_a_job_without_progress_for_two_hours_is_stuck_in_whatever_state(state: JobState) -> None:
    for minutes in (119, 120):
        assert outcome(row(), job(state, idle=minutes * MINUTE)) == ("keep", "at_work")
    verdict = decide(row(), job(state, idle=120 * MINUTE + 1))
    assert (verdict["action"], verdict["kind"]) == ("terminate", "stuck")
    assert verdict["reason"] == f"Training stuck in {state} (no update in 120min)"
    for moment in (NOW + HOUR, math.nan, math.inf):  # impossible ones
        assert outcome(row(), job(state, progressed_at=moment)) == ("keep", "at_work")


def test_a_returned_worker_gets_a_grace_period_for_a_stuck_job() -> None:
    stuck, since = job(idle=5 * HOUR), NOW - 9 * MINUTE
    assert outcome(row(), stuck, worker_since=since) == ("keep", "stuck")
    assert outcome(row(), stuck, worker_since=since - 2 * MINUTE) == ("terminate", "stuck")
    assert outcome(row(), replace(stuck, lease_until=NOW - 1), worker_since=since) == ("terminate", "stuck")
    assert outcome(row(), replace(stuck, lease_until=None), worker_since=since) == ("terminate", "stuck")


# ---------------------------------------------------------------- too long


def test_a_machine_beyond_its_hard_timeout_goes_when_no_worker_is_there() -> None:
    old = row(start_date=NOW - 4.2 * HOUR)
    verdict = decide(old, job(lease_until=None))
    assert (verdict["action"], verdict["kind"]) == ("terminate", "max_runtime")
    assert verdict["reason"] == "Instance exceeded max runtime (4.20h > 4.0h limit)"
    assert verdict["runtime_seconds"] == pytest.approx(4.2 * HOUR)
    alert = describe_alert(verdict)
    assert alert and (alert["type"], alert["job_id"]) == ("MAX_RUNTIME_EXCEEDED", "lora-1")


def test_the_limit_is_the_one_of_the_job_not_of_the_service() -> None:
    patient = job(request=replace(REQUEST, hard_timeout=9 * HOUR), lease_until=None)
    assert outcome(row(start_date=NOW - 8 * HOUR), patient) == ("keep", "at_work")
    assert outcome(row(start_date=NOW - 9.1 * HOUR), patient) == ("keep", "max_runtime")
    assert outcome(row(start_date=NOW - 9.2 * HOUR), patient) == ("terminate", "max_runtime")
    hasty = job(request=replace(REQUEST, hard_timeout=0.5 * HOUR), lease_until=None)
    assert outcome(row(), hasty) == ("terminate", "max_runtime")


def test_a_worker_that_is_there_gets_the_grace_period_to_save_the_model() -> None:
    assert outcome(row(start_date=NOW - 4 * HOUR - 9 * MINUTE), job()) == ("keep", "max_runtime")
    assert outcome(row(start_date=NOW - 4 * HOUR - 11 * MINUTE), job()) == ("terminate", "max_runtime")
    assert outcome(row(start_date=NOW - 8 * HOUR), job(), worker_since=NOW - MINUTE) == ("keep", "max_runtime")


def test_a_start_that_is_none_counts_from_when_the_machine_was_first_seen(subtests: pytest.Subtests) -> None:
    numbers = [True, 0, -1.0, 5, math.nan, math.inf, 10**400, NOW + HOUR, NOW * 1000]
    for start in [None, "", "yesterday", "1750000000", [], {}, *numbers]:
        with subtests.test(start=start):
            strange = row(start_date=start)
            assert decide(strange, job())["runtime_seconds"] == HOUR
            assert outcome(strange, job()) == ("keep", "at_work")
            assert outcome(strange, job(lease_until=None), first_seen=NOW - 5 * HOUR) == ("terminate", "max_runtime")
            assert outcome({"id": 7, "label": OURS}, job(lease_until=None), first_seen=NOW - 5 * HOUR)[0] == "terminate"


def test_a_machine_is_no_older_than_its_job_and_a_first_look_that_lies_ahead_is_now() -> None:
    young = job(created_at=NOW - HOUR, lease_until=None)
    assert decide(row(start_date=NOW - 90 * HOUR), young)["runtime_seconds"] == HOUR
    assert outcome(row(start_date=NOW - 90 * HOUR), young) == ("keep", "at_work")
    assert decide(row(start_date=None), first_seen=NOW + HOUR)["runtime_seconds"] == 0.0


def test_a_machine_of_an_unknown_job_is_destroyed_after_grace(subtests: pytest.Subtests) -> None:
    for status in ["running", "stopped", "exited", "offline", "frozen", "unknown", None]:
        with subtests.test(status=status):
            orphan = row(actual_status=status)
            verdicts = [decide(orphan, first_seen=NOW - age * MINUTE) for age in (0, 9, 10)]
            assert [each["action"] for each in verdicts] == ["keep", "keep", "terminate"]
            assert {each["kind"] for each in verdicts} == {"orphan"}
            assert [each["seconds_left"] for each in verdicts] == [10 * MINUTE, MINUTE, None]
            assert verdicts[0]["reason"] == "Instance has no associated training record"
            alerts = [describe_alert(each) for each in verdicts]
            assert [alert and alert["type"] for alert in alerts] == ["ORPHAN_INSTANCE"] * 3
    assert outcome(row(start_date=NOW - 4.5 * HOUR)) == ("terminate", "max_runtime")
    for age, action in ((9, "keep"), (11, "terminate")):  # without a start, by when it was first seen
        assert outcome(row(start_date=None), first_seen=NOW - age * MINUTE) == (action, "orphan")


def test_a_machine_that_is_down_is_left_to_the_worker_as_long_as_there_is_one(subtests: pytest.Subtests) -> None:
    for status in ["exited", "stopped", "offline", "unknown", "frozen"]:
        with subtests.test(status=status):
            assert outcome(row(actual_status=status), job(idle=HOUR)) == ("keep", "down")
            away = job(idle=HOUR, lease_until=NOW - 9 * MINUTE)
            assert outcome(row(actual_status=status), away) == ("keep", "down")
            gone = replace(away, lease_until=NOW - 11 * MINUTE)
            assert outcome(row(actual_status=status), gone) == ("terminate", "down")
            said = f"Instance is {status}, and no worker is replacing it"
            assert decide(row(actual_status=status), gone)["reason"] == said
            assert outcome(row(actual_status=status), gone, first_seen=NOW - MINUTE) == ("keep", "down")
            assert outcome(row(actual_status=status), gone, resumed_at=NOW - 9 * MINUTE) == ("keep", "down")
            assert outcome(row(actual_status=status), replace(gone, lease_until=None)) == ("terminate", "down")
            assert outcome(row(actual_status=None, cur_state=status), gone) == ("terminate", "down")


def test_a_worker_has_time_to_return_after_this_machine_was_suspended() -> None:
    away, since = job(idle=90 * MINUTE, lease_until=NOW - 90 * MINUTE), NOW - 95 * MINUTE
    assert outcome(row(), away, worker_since=since) == ("terminate", "abandoned")
    assert outcome(row(), away, worker_since=since, resumed_at=NOW - 9 * MINUTE) == ("keep", "at_work")
    assert outcome(row(), away, worker_since=since, resumed_at=NOW - 11 * MINUTE) == ("terminate", "abandoned")


def test_a_row_that_is_garbage_but_for_its_label_is_judged_by_what_is_known(subtests: pytest.Subtests) -> None:
    for garbage in [None, "", "x", [], {}, math.nan, -1, 10**400]:
        with subtests.test(garbage=garbage):
            names = ("actual_status", "start_date", "dph_total", "storage_total_cost", "cur_state", "intended_status")
            strange = {"id": 7, "label": OURS, **dict.fromkeys(names, garbage)}
            assert outcome(strange, job()) == ("keep", "at_work")
            assert outcome(strange) == ("terminate", "orphan")
            assert json.dumps(decide(strange), allow_nan=False)
            assert decide(strange)["cost_per_hour"] is None


def test_a_stopped_machine_costs_its_storage_and_a_label_is_bounded() -> None:
    assert cost_per_hour(row()) == 0.5
    assert cost_per_hour(row(actual_status="stopped", storage_total_cost=0.01)) == 0.01
    assert cost_per_hour(row(actual_status="stopped")) is None
    seen = decide(row("x" * 5000))  # a foreign one
    assert (seen["instance_id"], seen["status"], seen["cost_per_hour"]) == (7, "running", 0.5)
    assert seen["label"] == "x" * 200
    strange = decide(row([1], actual_status=3))
    assert strange["label"] is strange["status"] is None


def test_when_an_instance_was_first_seen_outlives_a_listing_without_it() -> None:
    memory = SweepMemory().see({"7", "8"}, NOW).see(set(), NOW + HOUR).see({"7"}, NOW + 2 * HOUR)
    assert memory.first_seen == {"7": NOW, "8": NOW}
    assert memory.see({"7"}, NOW + FORGET_SECONDS + 1).first_seen == {"7": NOW}
    memory = SweepMemory().fail(NOW).fail(NOW + 60)
    assert (memory.outages, memory.outage_since) == (1, NOW)
    assert memory.fail(NOW - 60).outage_since == NOW - 60
    again = memory.recover().fail(NOW + 500)
    assert (again.outages, again.outage_since, memory.recover().outage_since) == (2, NOW + 500, None)


def test_a_worker_is_known_since_it_was_first_seen_with_the_job() -> None:
    memory = SweepMemory().see({"7"}, NOW).see_worker("7", "a", NOW).see_worker("7", "a", NOW + 60)
    assert memory.worker_since("7") == NOW and memory.worker_since("8") is None
    assert memory.see_worker("7", "b", NOW + 90).worker_since("7") == NOW + 90
    assert memory.see({"9"}, NOW + 2 * FORGET_SECONDS).workers == {}
