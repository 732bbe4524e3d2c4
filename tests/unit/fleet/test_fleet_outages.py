"""What a fleet cannot see for long is told once, over fleets that are started again; and when it may be pinged for."""

from __future__ import annotations

import gc
from pathlib import Path

from tests.unit.fleet.fleet_world import Machine, World, row, unreachable
from training_monitor.core.store import Store
from training_monitor.core.values import Notice
from training_monitor.fleet.fleet import MOST_LOST, FleetMonitor
from training_monitor.fleet.values import MemberSpec
from training_monitor.notify.heartbeat import OutageRecord


class Night:
    """Watches of one world, which may be started anew; `pings` counts the heartbeats."""

    def __init__(self, folder: Path, *numbers: int, specs: tuple[MemberSpec, ...] = ()) -> None:
        self.folder, self.world = folder, World(*numbers)
        self.numbers, self.specs = numbers, specs
        self.notices: list[Notice] = []
        self.pings = 0
        self.start()

    def beat(self) -> None:
        self.pings += 1

    def start(self) -> None:
        self.monitor = FleetMonitor(
            self.specs,
            whole_account=bool(self.numbers),
            tell=self.notices.append,
            heartbeat=self,  # type: ignore[arg-type]
            store=Store(str(self.folder)),
            transport=self.world,
            clock=self.world.clock,
        )

    def watch(self, seconds: float) -> list[str]:
        """What is told of outages meanwhile."""
        known = len(self.notices)
        for _ in range(int(seconds // 60)):
            self.world.clock.sleep(60)
            self.monitor.update_all_metrics()
        kinds = [notice.kind.removeprefix("fleet_") for notice in self.notices[known:]]
        return [kind for kind in kinds if kind in ("unreachable", "reached", "state_unwritable", "state_writable")]


def test_a_member_out_of_reach_is_told_once_over_fleets_and_when_it_is_back(tmp_path: Path) -> None:
    night = Night(tmp_path, 1, 2)
    assert night.watch(300) == []
    night.world.machine(2).error = unreachable()
    assert night.watch(540) == []
    night.start()
    assert night.watch(180) == ["unreachable"]
    [gone] = [notice for notice in night.notices if notice.kind == "fleet_unreachable"]
    assert (gone.target, gone.command, gone.priority) == ("vast://2", "training-monitor doctor vast://2", "high")
    night.start()
    assert night.watch(1200) == []
    night.world.machine(2).error = None
    assert night.watch(120) == ["reached"]


def test_a_short_outage_of_a_member_is_not_told_and_leaves_nothing_in_the_state_file(tmp_path: Path) -> None:
    night = Night(tmp_path, 1)
    night.world.machine(1).error = unreachable()
    assert night.watch(480) == []
    night.world.machine(1).error = None
    assert night.watch(1200) == []
    with Store(str(tmp_path)).transaction() as execute:
        assert execute("SELECT key FROM runs") == [("fleet",)]


def test_an_account_that_cannot_be_listed_is_told_once_and_not_of_each_member(tmp_path: Path) -> None:
    night = Night(tmp_path, 1, 2, 3)
    night.watch(60)
    night.world.listing = unreachable("no route to vast.ai")
    assert night.watch(1200) == ["unreachable"]
    assert night.notices[-1].training == "The fleet"
    night.world.listing = None
    assert night.watch(120) == ["reached"]


def test_a_state_folder_out_of_use_is_told_and_the_fleet_goes_on(tmp_path: Path) -> None:
    night = Night(tmp_path / "state", specs=(MemberSpec("local"),))
    night.watch(60)
    (tmp_path / "state").rename(tmp_path / "away")
    assert night.watch(1200) == ["state_unwritable"] and night.pings == 21
    (tmp_path / "away").rename(tmp_path / "state")
    assert night.watch(60) == ["state_writable"]


def test_a_round_that_saw_something_is_pinged_and_a_blind_one_is_not(tmp_path: Path) -> None:
    night = Night(tmp_path, specs=(MemberSpec("local"),))
    night.watch(300)
    assert night.pings == 5
    night.world.machine("local").error = unreachable()
    night.watch(300)
    assert night.pings == 5
    night.world.machine("local").error = None
    night.watch(120)
    assert night.pings == 7


def test_outages_of_instances_that_were_gone_long_ago_are_forgotten(tmp_path: Path) -> None:
    def records() -> int:
        gc.collect()
        return sum(isinstance(each, OutageRecord) for each in gc.get_objects())

    night, before = Night(tmp_path, 1), records()
    for number in range(2, MOST_LOST + 30):
        night.world.rows = {number: row(number)}
        night.world.machines[f"vast-{number}"] = Machine(error=unreachable())
        night.watch(60)
    assert records() - before <= 3  # of the newest instance, the listing and the state folder
    with Store(str(tmp_path)).transaction() as execute:
        assert execute("SELECT key FROM runs WHERE key LIKE 'outage%'") == [(f"outage fleet vast://{MOST_LOST + 29}",)]


def test_a_stopped_instance_was_not_out_of_reach(tmp_path: Path) -> None:
    night = Night(tmp_path, 1)
    night.world.machine(1).error = unreachable()
    assert night.watch(900) == ["unreachable"]
    night.world.rows[1] = row(1, actual_status="exited", cur_state="stopped", intended_status="stopped")
    assert night.watch(300) == []
    night.world.machine(1).error, night.world.rows[1] = None, row(1)
    assert night.watch(300) == []
