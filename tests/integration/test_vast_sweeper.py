"""Sweeps by the real vastai CLI and a loopback REST API: what goes is seen to go, what is not ours is not touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import FakeClock
from tests.integration.conftest import WRONG_KEY, WatchedTransport, wait_until
from tests.job_states import STEPS
from tests.loopback.vast import LIST, VastApi, destroy_request
from tests.loopback.vast_rows import KEY, failure
from training_monitor.core.store import Store
from training_monitor.rent.queue import TrainingQueue
from training_monitor.rent.sweep import SweepMemory
from training_monitor.rent.sweeper import SweepReport, sweep_instances, watch_sweeps
from training_monitor.vast import instances
from training_monitor.vast.training_request import JobState, JobWork, TrainingRequest, format_label

ROOT = Path(__file__).parents[2]
REQUEST = TrainingRequest(name="lora", command="train")
HOUR = 3600.0


class NowClock(FakeClock):
    """The true time, and waits that take none."""

    def time(self) -> float:
        return time.time() + self.elapsed


@pytest.fixture
def clock() -> NowClock:
    return NowClock()


@pytest.fixture
def queue(vast: VastApi, clock: NowClock) -> TrainingQueue:
    return TrainingQueue(Store(), clock=clock)


def add_job(
    queue: TrainingQueue, job_id: str, state: JobState, request: TrainingRequest = REQUEST, **work: Any
) -> None:
    """A job that has come to this state, with nobody at it now."""
    queue.submit(request, job_id)
    job = queue.claim("setter", 60, job_id)
    assert job
    job = queue.save(replace(job, work=JobWork(**{"attempt": 1, **work})), "setter")
    for each in [*STEPS[1:], state]:
        if job.state is not state:
            job = queue.save(replace(job, state=each), "setter")
    queue.release(job_id, "setter")


def ours(job_id: str, attempt: int = 1) -> str:
    return format_label("me", job_id, attempt)


def sweep(transport: WatchedTransport, clock: NowClock, dry_run: bool = False, **options: Any) -> SweepReport:
    return sweep_instances(dry_run, owner="me", transport=transport, clock=clock, **options)


def see_before(vast: VastApi, clock: NowClock) -> None:
    """An earlier sweep saw all that is there now for the first time."""
    seen = dict.fromkeys(map(str, vast.instances), clock.time() - HOUR)
    Store().save_run("sweep me", SweepMemory(first_seen=seen, last_seen=seen), finished=False)


def ids(rows: list[Any]) -> list[int]:
    return [row["instance_id"] for row in rows]


def test_finished_stuck_and_orphaned_machines_go_and_foreign_ones_stay(
    vast: VastApi, queue: TrainingQueue, transport: WatchedTransport, clock: NowClock
) -> None:
    add_job(queue, "stuck", JobState.TRAINING, instance_id=3)
    clock.sleep(2.5 * HOUR)
    add_job(queue, "done", JobState.FAILED)
    add_job(queue, "kept", JobState.COMPLETED, replace(REQUEST, on_finish="stop"), instance_id=4)
    add_job(queue, "busy", JobState.TRAINING, instance_id=6)
    rented = {"start_date": clock.time() - HOUR}
    vast.add_instance(1, label=None, start_date=1.0, actual_status="exited")
    vast.add_instance(2, label=ours("done"), **rented)
    vast.add_instance(3, label=ours("stuck"), **rented)
    vast.add_instance(4, label=ours("kept"), actual_status="stopped", storage_total_cost=0.02, **rented)
    vast.add_instance(5, label=ours("nobody"), actual_status="offline", **rented)
    vast.add_instance(6, label=ours("busy"), **rented)
    vast.add_instance(7, label=format_label("somebody", "done", 1))
    see_before(vast, clock)
    report = sweep(transport, clock)
    assert ids(report["terminated"]) == [2, 5, 3] and report["errors"] == []  # 3 goes with its job
    assert sorted(vast.instances) == [1, 4, 6, 7]
    assert vast.destroyed() == [destroy_request(number) for number in (2, 5, 3)]
    assert ids(report["foreign"]) == [1, 7] and report["instances_checked"] == 7
    alerts = {alert["instance_id"]: (alert["type"], alert["cost_per_hour"]) for alert in report["alerts"]}
    assert alerts == {4: ("INSTANCE_KEPT", 0.02), 5: ("ORPHAN_INSTANCE", 0.5)}
    ended = queue.get("stuck").to_end
    assert ended and ended[0] is JobState.FAILED and queue.get("busy").to_end is None


def test_a_row_without_a_start_is_judged_by_when_it_was_first_seen(
    vast: VastApi, queue: TrainingQueue, transport: WatchedTransport, clock: NowClock
) -> None:
    nothing = dict.fromkeys(("start_date", "actual_status", "dph_total", "extra_env", "gpu_name", "ssh_host", "ports"))
    vast.add_instance(1, label=ours("nobody"), **nothing)
    vast.add_instance(2, label=None, **nothing)
    report = sweep(transport, clock)
    assert (report["instances_checked"], report["terminated"], report["errors"]) == (2, [], [])
    clock.sleep(601)
    assert ids(sweep(transport, clock)["terminated"]) == [1] and sorted(vast.instances) == [2]


def test_orphans_on_all_pages_go(
    vast: VastApi, queue: TrainingQueue, transport: WatchedTransport, clock: NowClock
) -> None:
    for number in range(1, 31):
        vast.add_instance(number, label=ours("nobody") if number in (3, 30) else f"run {number}")
    see_before(vast, clock)
    report = sweep(transport, clock)
    assert report["instances_checked"] == 30 and len(report["foreign"]) == 28
    assert ids(report["terminated"]) == [3, 30] and len(vast.instances) == 28


def test_a_dry_run_sends_nothing_that_changes_anything(
    vast: VastApi, queue: TrainingQueue, transport: WatchedTransport, clock: NowClock
) -> None:
    for number in range(1, 31):
        vast.add_instance(number, label=ours("nobody"))
    see_before(vast, clock)
    report = sweep(transport, clock, dry_run=True)
    assert ids(report["planned"]) == list(range(1, 31)) and report["terminated"] == []
    assert len(vast.instances) == 30 and vast.about_instances() == [LIST, f"{LIST} after 25"]
    assert {request.split()[0] for request in vast.requests} == {"GET"}


@pytest.mark.parametrize("status", [401, 429, 500])
def test_a_service_that_refuses_is_unknown_and_nothing_goes(
    vast: VastApi,
    queue: TrainingQueue,
    transport: WatchedTransport,
    clock: NowClock,
    status: int,
) -> None:
    vast.add_instance(1, label=ours("nobody"))
    see_before(vast, clock)
    vast.fail_with = status
    report = sweep(transport, clock)
    assert report["instances_checked"] is None and report["terminated"] == []
    [error] = report["errors"]
    assert error["instance_id"] is None and "something broke" in error["error"]
    vast.fail_with = 0
    assert vast.destroyed() == [] and ids(sweep(transport, clock)["terminated"]) == [1]


def test_a_wrong_key_is_unknown_and_is_not_shown(
    vast: VastApi,
    queue: TrainingQueue,
    transport: WatchedTransport,
    clock: NowClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vast.add_instance(1, label=ours("nobody"))
    monkeypatch.setenv("VAST_API_KEY", WRONG_KEY)
    report = sweep(transport, clock)
    assert report["instances_checked"] is None and WRONG_KEY not in str(report) and KEY not in str(report)


@pytest.mark.parametrize(
    "answer", [{"instances": None}, {**failure("busy", "later"), "instances": []}, b"<html>", b""], ids=str
)
def test_an_answer_that_is_no_list_is_unknown_and_nothing_goes(
    vast: VastApi, queue: TrainingQueue, transport: WatchedTransport, clock: NowClock, answer: Any
) -> None:
    vast.add_instance(1, label=ours("nobody"))
    vast.answers[LIST] = (200, answer)
    report = sweep(transport, clock)
    assert report["instances_checked"] is None and len(report["errors"]) == 1 and vast.destroyed() == []


def test_a_second_page_that_fails_leaves_all_where_they_are(
    vast: VastApi, queue: TrainingQueue, transport: WatchedTransport, clock: NowClock
) -> None:
    for number in range(1, 31):
        vast.add_instance(number, label=ours("nobody"))
    vast.answers[f"{LIST} after 25"] = (500, failure("server_error", "something broke"))
    report = sweep(transport, clock)
    assert report["instances_checked"] is None and vast.destroyed() == []


@pytest.mark.parametrize("answer", [(500, failure("x", "y")), (200, failure("x", "no"))], ids=["500", "success false"])
def test_a_destroy_that_is_refused_is_an_error_and_the_others_go(
    vast: VastApi,
    queue: TrainingQueue,
    transport: WatchedTransport,
    clock: NowClock,
    monkeypatch: pytest.MonkeyPatch,
    answer: Any,
) -> None:
    monkeypatch.setattr(instances, "GONE_SECONDS", 2.0)
    vast.add_instance(1, label=ours("nobody"))
    vast.add_instance(2, label=ours("nobody"))
    see_before(vast, clock)
    vast.answers[destroy_request(1)] = answer
    report = sweep(transport, clock)
    assert ids(report["errors"]) == [1] and "still there" in report["errors"][0]["error"]
    assert ids(report["terminated"]) == [2] and sorted(vast.instances) == [1]
    vast.answers.clear()
    assert ids(sweep(transport, clock)["terminated"]) == [1] and vast.instances == {}


def test_a_destroy_that_ends_well_and_does_nothing_is_no_success(
    vast: VastApi,
    queue: TrainingQueue,
    transport: WatchedTransport,
    clock: NowClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(instances, "GONE_SECONDS", 2.0)
    vast.add_instance(1, label=ours("nobody"))
    see_before(vast, clock)
    vast.keeps_destroyed = True
    report = sweep(transport, clock)
    assert report["terminated"] == [] and ids(report["errors"]) == [1]


def test_all_instances_are_destroyed_when_that_is_what_is_asked_for(
    vast: VastApi, queue: TrainingQueue, transport: WatchedTransport, clock: NowClock
) -> None:
    add_job(queue, "busy", JobState.TRAINING, instance_id=2)
    vast.add_instance(1, label="- 'somebody' \"else\"\n")
    vast.add_instance(2, label=ours("busy"), start_date=clock.time())
    assert ids(sweep(transport, clock, all_instances=True)["terminated"]) == [1, 2] and vast.instances == {}
    assert queue.get("busy").to_end is not None


KILLED = """
from training_monitor.rent.sweeper import sweep_instances
sweep_instances(False, owner="me")
"""


def test_killed_between_the_end_of_the_job_and_of_its_machine_and_swept_again(
    vast: VastApi, queue: TrainingQueue, transport: WatchedTransport, clock: NowClock
) -> None:
    past = NowClock()
    past.elapsed = -3 * HOUR
    add_job(TrainingQueue(Store(), clock=past), "stuck", JobState.TRAINING, instance_id=1)
    vast.add_instance(1, label=ours("stuck"), start_date=clock.time() - HOUR)
    vast.hang = destroy_request(1)
    process = subprocess.Popen([sys.executable, "-c", KILLED], cwd=ROOT, start_new_session=True)
    try:
        assert wait_until(vast.hanging.is_set, 60)
        assert queue.get("stuck").to_end is not None and sorted(vast.instances) == [1]
        assert sweep(transport, clock)["skipped"], "two sweeps at once"
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    vast.hang = None
    report = sweep(transport, clock)
    assert ids(report["terminated"]) == [1] and vast.instances == {}
    reason = "Training stuck in TRAINING (no update in 180min)"
    assert reason in report["terminated"][0]["reason"] and queue.get("stuck").to_end == (JobState.FAILED, reason)
    assert queue.get("stuck").state is JobState.FAILED


def test_sweeps_go_on_through_an_outage_until_they_are_stopped(
    vast: VastApi, queue: TrainingQueue, transport: WatchedTransport, clock: NowClock
) -> None:
    vast.add_instance(1, label=ours("nobody"))
    see_before(vast, clock)
    vast.fail_with = 500
    stopping, reports = threading.Event(), list[SweepReport]()
    clock.at(18, lambda: setattr(vast, "fail_with", 0))
    clock.at(400, stopping.set)
    sweep = partial(sweep_instances, dry_run=False, owner="me", transport=transport, clock=clock, store=Store())
    watch_sweeps(sweep, 300, stopping, on_report=reports.append, clock=clock)
    assert [report["instances_checked"] for report in reports] == [None, None, 1, 0]
    assert ids(reports[2]["terminated"]) == [1]
