"""A fleet that is made up: it moves, shows every state, and takes acts."""

from __future__ import annotations

from math import isnan
from typing import Any

import pytest

from tests.fakes import FakeClock
from training_monitor.core.errors import TrainingMonitorError
from training_monitor.fleet.fleet import FleetMonitor
from training_monitor.fleet.history import History, mock_history
from training_monitor.fleet.metrics import TrainingMetrics
from training_monitor.fleet.mock import FIRST_ID, SCENARIOS, MockFleet, mock_groups
from training_monitor.fleet.record import KEPT_ALERTS
from training_monitor.fleet.values import FleetSample


def mock(**options: Any) -> tuple[MockFleet, FakeClock]:
    clock = FakeClock()
    return MockFleet(clock=clock, **options), clock


def key(scenario: str) -> str:
    return f"vast://{FIRST_ID + SCENARIOS.index(scenario)}"


def row(fleet: MockFleet, scenario: str) -> TrainingMetrics:
    return fleet.update_all_metrics()[key(scenario)]


def alerts(fleet: MockFleet) -> list[tuple[str, str]]:
    return [(each.key, each.kind) for each in fleet.snapshot().alerts]


def test_it_is_a_fleet_and_asks_nothing() -> None:
    fleet: FleetMonitor = MockFleet(clock=FakeClock())
    seen = fleet.snapshot()
    assert len(seen.rows) == 12 and seen.error is None and not seen.paused
    assert seen.groups == ("llama", "vision", "lora")
    assert mock_groups() == {name: [row.key for row in seen.rows if name in row.groups] for name in seen.groups}
    for row in seen.rows:
        for gpu in row.gpus:
            assert gpu.memory_total_mb and gpu.memory_total_mb > 20_000, row.gpu_type
            assert (gpu.memory_total_mb > 80_000) == ("100" in (row.gpu_type or "")), row.gpu_type
    total = seen.summary
    assert total.dollars_per_hour > 1.0 and total.credit_hours and total.dollars_spent > 0
    assert (total.hidden, total.hidden_dollars_per_hour, total.unpriced) == (2, 0.04, 0)
    assert total.dollars_to_completion and total.seconds_to_completion and total.without_eta >= 1


def test_every_state_is_there_from_the_start() -> None:
    fleet, _ = mock()
    health = {scenario: row(fleet, scenario).health(now=fleet.snapshot().timestamp) for scenario in SCENARIOS}
    levels = {**dict.fromkeys(("healthy", "lost"), "healthy"), **dict.fromkeys(("hanging", "exited", "nan"), "error")}
    levels |= dict.fromkeys(("finished", "idle", "full", "stopped"), "warning")
    levels |= dict.fromkeys(("starting", "unreachable", "silent"), "unknown")
    assert {scenario: each.level for scenario, each in health.items()} == levels
    assert health["unreachable"].reason == "no answer for 4m: ssh: no answer within 15 s"
    finished = health["finished"].reason
    assert finished.startswith("costs $") and ": finished at step " in finished
    assert isnan(row(fleet, "nan").loss or 0.0)


def test_states_change_with_time() -> None:
    fleet, clock = mock()
    statuses, seen = [], []
    for elapsed in (0.0, 10.0, 21.0, 50.0):
        clock.elapsed = elapsed
        statuses.append(row(fleet, "starting").status)
        seen.append(row(fleet, "lost").status)
    assert statuses == ["created", "loading", "running", "running"]
    assert seen == ["running", "running", "running", "lost"]
    told = alerts(fleet)
    assert {(key("lost"), "lost"), (key("full"), "price"), (key("healthy"), "epoch")} <= set(told)
    assert len(told) == len(set(told)), "each is told once"


def test_the_cost_grows_at_the_current_price() -> None:
    fleet, clock = mock()
    clock.elapsed = 39.0
    before = row(fleet, "full")
    clock.elapsed = 41.0
    after = row(fleet, "full")
    assert (before.cost_per_hour or 0.0) < (after.cost_per_hour or 0.0)
    assert after.total_cost == pytest.approx((before.total_cost or 0.0) + 0.0003, abs=1e-4)
    fleet.act("stop", [key("full")])
    clock.elapsed = 43.0
    fleet.update_all_metrics()
    clock.elapsed = 3643.0
    stopped = row(fleet, "full")
    assert (stopped.status, stopped.cost_per_hour) == ("stopped", 0.012)
    assert stopped.total_cost == pytest.approx((after.total_cost or 0.0) + 0.012, abs=1e-3)


def test_over_a_day_trainings_end_and_then_their_gpus_rest() -> None:
    clock, before = FakeClock(), dict[str, TrainingMetrics]()
    fleet = MockFleet(count=40, clock=clock)
    for _ in range(48):
        for name, seen in fleet.update_all_metrics().items():
            last = before.get(name, seen)
            assert (seen.step or 0) >= (last.step or 0) and (seen.epoch or 0) >= (last.epoch or 0)
            assert seen.total_cost is None or seen.total_cost >= (last.total_cost or 0.0)
            if seen.finished:
                assert not seen.gpu_util and seen.estimated_completion_time() is None
            before[name] = seen
        clock.elapsed += 1800.0
    assert sum(bool(each.finished) for each in before.values()) > 20


def test_members_have_the_numbers_that_were_asked_for_and_gpus_by_them() -> None:
    rows = MockFleet([5, 6, 5, 7], clock=FakeClock()).update_all_metrics()
    assert [each.instance_id for each in rows.values()] == [5, 6, 7]
    assert [each.gpu_type for each in rows.values()] == ["RTX 4090", "RTX 3090", "A100"]


def act(fleet: MockFleet, clock: FakeClock, action: str, *scenarios: str, seconds: float = 3.0) -> None:
    fleet.act(action, [key(each) for each in scenarios])
    clock.elapsed += seconds
    fleet.update_all_metrics()


def test_a_member_is_stopped_after_two_seconds_and_can_be_started_and_rebooted() -> None:
    fleet, clock = mock()
    fleet.act("stop", [key("healthy")])
    assert row(fleet, "healthy").status == "running"
    clock.elapsed = 2.0
    stopped = row(fleet, "healthy")
    assert stopped.status == "stopped" and stopped.health_status() == "warning"
    assert (key("healthy"), "stopped") in alerts(fleet)
    fleet, clock = mock()
    for action, status in (("stop", "stopped"), ("start", "running"), ("reboot", "running")):
        act(fleet, clock, action, "healthy")
        assert row(fleet, "healthy").status == status
    assert [kind for who, kind in alerts(fleet) if who == key("healthy")] == ["stopped", "started", "rebooted"]
    with pytest.raises(TrainingMonitorError, match="no shell"):
        fleet.shell_command(key("healthy"))


def test_a_destroyed_member_is_gone_and_not_lost() -> None:
    fleet, clock = mock()
    act(fleet, clock, "stop", "idle")  # a stopped one can be destroyed too
    act(fleet, clock, "destroy", "healthy", "idle", seconds=5.0)
    assert row(fleet, "healthy").status == row(fleet, "idle").status == "lost"
    told = [each for each in alerts(fleet) if each[0] in (key("healthy"), key("idle"))]
    assert told == [(key("idle"), "stopped"), (key("healthy"), "destroyed"), (key("idle"), "destroyed")]


def test_what_cannot_be_done_is_refused() -> None:
    fleet, clock = mock()
    fleet.act("destroy", [key("healthy")])
    fleet.act("stop", [key("healthy"), "vast://1"])
    act(fleet, clock, "paint", "idle")
    fleet.act("stop", [key("healthy")])
    refused = [who for who, kind in alerts(fleet) if kind == "refused"]
    assert refused == [key("healthy"), "vast://1", key("idle"), key("healthy")]
    fleet.act("stop", ["nothing"] * 1000)
    assert len(fleet.snapshot().alerts) == KEPT_ALERTS


def test_two_hours_of_history_are_there_at_once_and_end_with_now() -> None:
    fleet, clock = mock()
    began = clock.time()
    clock.elapsed = 35.0
    fleet.update_all_metrics()
    for scenario in SCENARIOS:
        times = [each.timestamp for each in fleet.recent(key(scenario))]
        assert times == sorted(set(times)) and times[0] >= began - 7200.0
        last = {"unreachable": began - 240.0, "lost": began}  # of those that cannot be looked at there is no newer one
        assert times[-1] == last.get(scenario, clock.time()), scenario
    full = fleet.recent(key("healthy"))
    assert len(full) > 50 and all(each.values["loss"] for each in full[-50:])
    clock.elapsed = 95.0
    fleet.update_all_metrics()
    later = fleet.recent(key("healthy"))
    assert later[:-1] == full
    assert fleet.recent_losses(key("healthy")) == [each.values["loss"] for each in later]
    assert fleet.recent("vast://1") == () and fleet.recent_losses("vast://1") == []


# ---------------------------------------------------------------- its history


def test_at_its_first_start_it_stores_its_last_two_hours_and_then_what_it_shows() -> None:
    clock, kept = FakeClock(), mock_history()
    began = clock.time()
    fleet = MockFleet(clock=clock, history=kept)
    for scenario in ("healthy", "exited"):
        past, shown = kept.read(key(scenario), 0.0), fleet.recent(key(scenario))
        assert [each.timestamp for each in past] == [each.timestamp for each in shown]
        assert [each.values["step"] for each in past] == [each.values["step"] for each in shown]
        assert past[-1].timestamp == began and len(past) > 50
    clock.elapsed = 10.0
    fleet.update_all_metrics()
    assert [each.timestamp for each in kept.read(key("healthy"), began + 1.0)] == [began + 10.0]


def test_only_members_that_are_new_to_the_history_get_a_past() -> None:
    kept = mock_history()
    MockFleet([7, 8, 9], clock=FakeClock(), history=kept)
    [before, *_] = kept.members()
    later = FakeClock()
    later.elapsed = 50_000.0
    MockFleet([7, 8, 9, 10], clock=later, history=kept)
    [new, old, *_] = kept.members()
    assert (old.key, old.first, old.last) == ("vast://7", before.first, later.time())
    assert len(kept.read("vast://7", before.last + 1.0)) == 1
    assert new.key == "vast://10" and new.samples > 50 and new.first < later.time() - 3600.0


def test_it_and_real_members_have_histories_apart() -> None:
    real, kept = History(), mock_history()
    real.add({"vast://1": FleetSample(1e9, {"loss": 1.0}, "running")})
    MockFleet([1, 2], clock=FakeClock(), history=kept)
    assert [each.key for each in real.members()] == ["vast://1"] and len(real.read("vast://1", 0.0)) == 1
    assert len(kept.members()) == 2 and not kept.read("vast://1", 0.0, 1e9)


def test_a_stop_takes_back_nothing_of_what_was_spent() -> None:
    fleet, clock = mock()
    for scenario in ("healthy", "hanging", "idle", "finished", "unreachable"):
        before = row(fleet, scenario).total_cost
        act(fleet, clock, "stop", scenario, seconds=5.0)
        assert (row(fleet, scenario).total_cost or 0.0) >= (before or 0.0), scenario
