"""Outages of a supervised run: told once when they last, over supervisors that die; and what a heartbeat may say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import Behaviour, FakeClock
from tests.unit.killing import Killed
from tests.unit.supervision.test_auto_restart import Bench
from training_monitor.core.errors import StateError, TargetUnreachable
from training_monitor.core.store import Store
from training_monitor.core.values import Notice
from training_monitor.notify.heartbeat import Lookout, OutageRecord

AFTER = 600.0


class Told:
    """A supervised run, and what its lookout told of it."""

    def __init__(self, folder: Path) -> None:
        self.bench = Bench(folder)
        self.notices: list[Notice] = []
        self.pings: list[float] = []

    def beat(self) -> None:
        self.pings.append(self.bench.clock.elapsed)

    def run(self, **options: Any) -> None:
        store = Store(self.bench.folder)
        lookout = Lookout(
            "run", "train", self.notices.append, outage_after=AFTER, store=store, clock=self.bench.clock,
            heartbeat=self,  # type: ignore[arg-type]
        )  # fmt: skip
        self.bench.restart(job_name="train", on_look=lookout.note, store=store, **options)

    @property
    def kinds(self) -> list[str]:
        return [notice.kind for notice in self.notices]


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    monkeypatch.setattr("random.random", lambda: 0.0)
    return Told(tmp_path)


def test_a_supervised_run_out_of_reach_is_told_once_and_when_it_is_back(told: Told) -> None:
    told.bench.jobs.behaviours = [Behaviour(total=6000)]
    told.bench.jobs.unreachable(100, 4000)
    told.run()
    assert told.kinds == ["unreachable", "reached"]
    assert dict(told.notices[0].fields)["For"] == "10m"
    assert [at for at in told.pings if 100 <= at < 4000] == [] and len(told.pings) > 60


def test_an_outage_between_two_attempts_is_one_too(told: Told) -> None:
    told.bench.jobs.behaviours = [Behaviour(crash_after=120), Behaviour()]
    told.bench.jobs.unreachable(140, 2000)
    told.run(retry_delay=300)
    assert told.kinds == ["unreachable", "reached"]
    assert [at for at in told.pings if 150 <= at < 2000] == []


@pytest.mark.parametrize("killed_at", [300, 720, 1500])
def test_a_supervisor_that_dies_during_an_outage_does_not_tell_it_again(told: Told, killed_at: float) -> None:
    told.bench.jobs.behaviours = [Behaviour(total=3000)]
    told.bench.jobs.unreachable(100, 2000)

    def die() -> None:
        raise Killed

    told.bench.clock.at(killed_at, die)
    with pytest.raises(Killed):
        told.run()
    told.run()
    assert told.kinds == ["unreachable", "reached"]


def test_a_state_folder_out_of_use_neither_ends_the_supervision_nor_counts(told: Told) -> None:
    told.bench.jobs.behaviours = [Behaviour(total=3000)]
    state = Path(told.bench.folder)
    away = state.with_name("away")

    def take_away() -> None:
        state.rename(away)
        state.touch()  # else it would be created again

    def bring_back() -> None:
        state.unlink()
        away.rename(state)

    told.bench.clock.at(200, take_away)
    told.bench.clock.at(1500, bring_back)
    told.run()
    assert told.kinds == ["state_unwritable", "state_writable"] and len(told.bench.jobs.starts) == 1
    assert [at for at in told.pings if 250 <= at < 1500] == []


# ---------------------------------------------------------------- one record


def record(store: Store, clock: FakeClock) -> tuple[OutageRecord, list[tuple[str, float]]]:
    return OutageRecord("x", AFTER, clock, store), []


def hear(heard: list[tuple[str, float]], what: str) -> Callable[[float, float], None]:
    return lambda since, seconds: heard.append((what, seconds))


def test_a_record_killed_between_telling_and_noting_it_tells_the_same_again(tmp_path: Path) -> None:
    clock, store, names = FakeClock(), Store(str(tmp_path)), list[float]()

    def tell_and_die(since: float, seconds: float) -> None:
        names.append(since)
        raise Killed

    one, _ = record(store, clock)
    one.begin(tell_and_die)
    clock.sleep(AFTER)
    with pytest.raises(Killed):
        one.begin(tell_and_die)
    clock.sleep(60)
    other, _ = record(store, clock)
    other.begin(lambda since, seconds: names.append(since))
    assert len(names) == 2 and names[0] == names[1]


def test_a_clock_set_back_restarts_the_wait_and_repeats_nothing(tmp_path: Path) -> None:
    clock, store = FakeClock(), Store(str(tmp_path))
    one, heard = record(store, clock)
    for _ in range(3):
        one.begin(hear(heard, "gone"))
        clock.sleep(AFTER)
    clock.elapsed -= 10 * AFTER
    one.begin(hear(heard, "gone"))
    clock.sleep(AFTER)
    one.begin(hear(heard, "gone"))
    assert [what for what, _ in heard] == ["gone"]


@pytest.mark.parametrize("is_answered", [True, False])
def test_an_outage_begins_with_the_last_answer_or_the_first_failure(tmp_path: Path, is_answered: bool) -> None:
    clock = FakeClock()
    one, heard = record(Store(str(tmp_path)), clock)
    if is_answered:
        one.end(hear(heard, "never"))
    clock.sleep(AFTER - 30)
    one.begin(hear(heard, "gone"))
    clock.sleep(29 if is_answered else AFTER - 1)
    one.begin(hear(heard, "gone"))
    assert heard == []
    clock.sleep(1)
    one.begin(hear(heard, "gone"))
    clock.sleep(16)
    one.end(hear(heard, "back"))
    assert heard == [("gone", AFTER), ("back", AFTER + 16)]


def test_a_state_that_cannot_be_used_is_no_outage_of_the_target(tmp_path: Path) -> None:
    clock, notices = FakeClock(), list[Notice]()
    lookout = Lookout("x", "run", notices.append, outage_after=0, store=Store(str(tmp_path)), clock=clock)
    lookout.note(StateError("the disk is full"))
    lookout.note(TargetUnreachable("no route"))
    lookout.note(None)
    assert [each.kind for each in notices] == ["state_unwritable", "unreachable", "reached", "state_writable"]
