"""Rented machines and state folders out of reach, as a worker tells them; and when it pings a dead-man service."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import FakeClock
from tests.unit.rent.test_training_step import QUIET, World
from training_monitor.core.store import Store
from training_monitor.core.values import Notice
from training_monitor.notify import WebList
from training_monitor.notify.notifier import TrainingNotifier
from training_monitor.notify.outbox import Outbox
from training_monitor.rent.config import ServiceConfig
from training_monitor.rent.job_context import JobContext, Lease
from training_monitor.rent.worker import run_worker


class Pings:
    """Counts heartbeats, by a clock."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.at = clock, list[float]()

    def beat(self) -> None:
        self.at.append(self.clock.elapsed)


def told(store: Store) -> list[Notice]:
    found = [kept.notice for kept in reversed(store.recent_notices())]
    return [each for each in found if each.kind in ("unreachable", "reached", "state_unwritable", "state_writable")]


def test_a_machine_out_of_reach_is_told_once_with_its_job_and_not_pinged_for(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.machine.behaviours = [replace(QUIET, total=2000)]
    service = world.context.service
    pings, outbox = Pings(world.clock), Outbox(TrainingNotifier([WebList()], store=service.store), service.store)
    service = replace(service, outbox=outbox, heartbeat=pings, config=ServiceConfig(outage_after=120))  # type: ignore[arg-type]
    world.context = JobContext(service, world.context.job, Lease(service, world.context.job))
    world.machine.unreachable(100, 500)
    with world.training() as step:
        while world.clock.elapsed < 700:
            step.step()
    outbox.close()
    gone, back = told(service.store)
    assert (gone.kind, back.kind) == ("unreachable", "reached")
    assert (gone.training, gone.target) == (world.context.job.id, "vast://7")
    assert gone.command == f"training-monitor rent queue {world.context.job.id}"
    assert [at for at in pings.at if 130 <= at < 500] == [] and len(pings.at) > 5


def test_a_worker_without_its_state_folder_reports_it_and_recovers(tmp_path: Path) -> None:
    state, away, clock, stopping = tmp_path / "state", tmp_path / "away", FakeClock(), threading.Event()
    store, pings = Store(str(state)), Pings(clock)
    clock.at(100, lambda: state.rename(away))
    clock.at(1500, lambda: away.rename(state))
    clock.at(1700, stopping.set)
    with Outbox(TrainingNotifier([WebList()], store=store), store) as outbox:
        given: dict[str, Any] = {"heartbeat": pings, "stopping": stopping, "store": store, "clock": clock}
        run_worker(sweep=False, config=ServiceConfig(), outbox=outbox, **given)
    assert [notice.kind for notice in told(store)] == ["state_unwritable", "state_writable"]
    assert all(notice.command == "training-monitor doctor" for notice in told(store))
    assert [at for at in pings.at if 110 <= at < 1500] == [] and min(pings.at) < 100 < 1500 < max(pings.at)


@pytest.mark.parametrize("seconds", [0, -1, "x", True])
def test_how_long_an_outage_lasts_is_a_number_of_seconds(seconds: object) -> None:
    with pytest.raises(ValueError, match="outage_after"):
        ServiceConfig(outage_after=seconds)  # type: ignore[arg-type]
