"""Sweeps by the real vastai CLI and a loopback REST API: what goes is seen to go, what is not ours is not touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import FakeClock
from tests.integration.conftest import WatchedTransport, wait_until
from tests.job_states import REQUEST, add_job
from tests.loopback.vast import LIST, VastApi, destroy_request
from training_monitor.core.store import Store
from training_monitor.rent.queue import TrainingQueue
from training_monitor.rent.sweep import SweepMemory
from training_monitor.rent.sweeper import SweepReport, sweep_instances
from training_monitor.vast.rows import format_label
from training_monitor.vast.training_request import JobState

ROOT = Path(__file__).parents[2]
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


def ours(job_id: str, attempt: int = 1) -> str:
    return format_label("me", job_id, attempt)


def sweep(transport: WatchedTransport, clock: NowClock, dry_run: bool = False, **options: Any) -> SweepReport:
    return sweep_instances(dry_run, owner="me", transport=transport, clock=clock, **options)


def see_before(vast: VastApi, clock: NowClock) -> None:
    """An earlier sweep saw all that is there now for the first time, and another one did a minute ago."""
    first, last = (dict.fromkeys(map(str, vast.instances), clock.time() - each) for each in (HOUR, 60))
    Store().save_run("sweep me", SweepMemory(first_seen=first, last_seen=last), finished=False)


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
