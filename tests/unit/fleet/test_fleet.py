"""FleetMonitor with machines in memory: what follows from a listing, a failure or a hang, and what is told."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.fakes import EPOCH
from tests.unit.fleet.fleet_world import World, eventually, row
from training_monitor.core.clock import SYSTEM_CLOCK
from training_monitor.core.engine import MOST_THREADS
from training_monitor.core.errors import CommandTimedOut, SettingsError, TrainingMonitorError
from training_monitor.core.values import Notice
from training_monitor.fleet.config import FleetConfig
from training_monitor.fleet.fleet import MOST_LOST, FleetMonitor
from training_monitor.fleet.metrics import TrainingMetrics
from training_monitor.fleet.mock import MockFleet
from training_monitor.fleet.values import FleetSample, FleetSnapshot, MemberSpec
from training_monitor.fleet.vast_ai import VastAIMonitor


def fleet(world: World, *specs: MemberSpec, **options: Any) -> FleetMonitor:
    return FleetMonitor(specs, **{"transport": world, "clock": world.clock, **options})


def account(world: World, **options: Any) -> FleetMonitor:
    return fleet(world, whole_account=True, **options)


def update(monitor: FleetMonitor, world: World, after: float = 10) -> dict[str, TrainingMetrics]:
    world.clock.sleep(after)
    return monitor.update_all_metrics()


def looked(*numbers: int, **options: Any) -> tuple[World, FleetMonitor]:
    """An account with these instances that was looked at once."""
    world = World(*numbers)
    monitor = account(world, **options)
    update(monitor, world)
    return world, monitor


def kinds(snapshot: FleetSnapshot) -> list[str]:
    return [alert.kind for alert in snapshot.alerts]


def test_one_listing_tells_of_all_instances_and_each_that_runs_is_asked_once() -> None:
    world = World(1, 2, 3)
    world.rows[3] |= {"actual_status": "loading", "ssh_host": None}
    rows = update(account(world), world)
    assert list(rows) == ["vast://1", "vast://2", "vast://3"] and world.listings() == 1
    assert [world.machine(number).asked for number in (1, 2, 3)] == [1, 1, 0]
    assert (rows["vast://1"].step, rows["vast://1"].status, rows["vast://3"].status) == (1, "running", "loading")
    assert rows["vast://1"].total_cost == pytest.approx(0.5, rel=0.01) and rows["vast://3"].error is None
    assert ("show", "instance") not in {words[1:3] for words in world.said}


def test_stopped_instances_are_hidden_until_they_ran() -> None:
    world = World(1, 2)
    world.rows[2] |= {"actual_status": "exited", "intended_status": "stopped", "storage_total_cost": 0.01}
    monitor = account(world)
    assert list(update(monitor, world)) == ["vast://1"]
    assert monitor.snapshot().summary.hidden == 1
    world.rows[2] = row(2)
    assert list(update(monitor, world)) == ["vast://1", "vast://2"]
    world.rows[2] |= {"actual_status": "exited", "intended_status": "stopped"}
    assert update(monitor, world)["vast://2"].status == "stopped" and monitor.snapshot().summary.hidden == 0


def test_the_account_is_asked_only_with_an_instance_and_rarely_for_its_credit() -> None:
    world = World()
    rows = update(fleet(world, MemberSpec("local", groups=("a",)), MemberSpec("local", groups=("b",))), world)
    assert world.listings() == 0 and rows["local"].groups == ("a", "b")
    world, monitor = looked(1)
    world.credit = None
    update(monitor, world)
    assert monitor.snapshot().summary.credit == 12.5
    update(monitor, world, after=300)
    assert monitor.snapshot().summary.credit is None and monitor.snapshot().error is None
    assert len([words for words in world.said if words[1:3] == ("show", "user")]) == 2


# ---------------------------------------------------------------- gone, failed, unknown


def test_an_instance_that_a_complete_listing_lacks_is_lost_and_told_once() -> None:
    world, monitor = looked(1, 2)
    del world.rows[2]
    for _ in range(3):
        rows = update(monitor, world)
    assert rows["vast://2"].status == "lost" and rows["vast://2"].step == 1
    assert kinds(monitor.snapshot()).count("lost") == 1
    assert world.listings() == 1 + 2 + 1 + 1  # only the first time the complete listing decides
    world.rows[2] = row(2)
    assert update(monitor, world)["vast://2"].status == "running"


def test_from_a_listing_that_failed_nothing_follows_but_that_it_failed(subtests: pytest.Subtests) -> None:
    for listing in ["", "null", "{}", "<html>", '[{"id": null}]', '{"success": false, "msg": "Invalid user key"}']:
        with subtests.test(listing=listing):
            world, monitor = looked(1, 2)
            world.listing = listing
            rows = update(monitor, world)
            snapshot = monitor.snapshot()
            assert {each.status for each in rows.values()} == {"running"} and rows["vast://1"].error is None
            assert snapshot.error and snapshot.stale_since == snapshot.listed_at == EPOCH + 10
            assert "lost" not in kinds(snapshot)
            world.listing = None
            update(monitor, world)
            assert monitor.snapshot().error is None and monitor.snapshot().stale_since is None


def test_an_instance_that_is_not_known_to_be_gone_is_not_lost() -> None:
    world, monitor = looked(1)
    world.rows.clear()
    before = world.listings()
    assert update(monitor, world)["vast://1"].status == "lost" and world.listings() == before + 2
    world, monitor = looked(1, 2)
    world.lying, world.show_fails = [row(1)], True
    assert update(monitor, world)["vast://2"].status == "running"
    unknown = update(fleet(world, MemberSpec("vast://9"), MemberSpec("vast://1")), world)["vast://9"]
    assert unknown.status == "unknown" and "it is unknown whether it was destroyed" in (unknown.error or "")


@pytest.mark.parametrize("listing", [[], [row(1)]], ids=["empty", "partial"])
def test_an_instance_that_a_listing_lacks_and_that_is_there_is_not_lost(listing: list[dict[str, Any]]) -> None:
    world, monitor = looked(1, 2)
    for _ in range(6):
        world.lying = listing
        assert update(monitor, world)["vast://2"].status == "running"
    world.lying = None
    assert update(monitor, world)["vast://2"].status == "running"
    assert "lost" not in kinds(monitor.snapshot())


def test_an_instance_of_which_no_listing_told_says_so(subtests: pytest.Subtests) -> None:
    for listing, status, said in [
        (CommandTimedOut("vastai: no answer within 60 s"), "unknown", "no answer"),
        (None, "lost", "no such instance"),
    ]:
        with subtests.test(status=status):
            world = World(1)
            world.listing = listing
            rows = update(fleet(world, MemberSpec("vast://99"), MemberSpec("local")), world)
            assert list(rows) == ["vast://99", "local"] and rows["vast://99"].status == status
            assert said in (rows["vast://99"].error or "")
            assert rows["local"].step == 1 and rows["local"].error is None


def test_rows_of_the_service_may_hold_anything() -> None:
    world = World(*range(1, 9))
    odd: list[dict[str, Any]] = [
        {"start_date": None}, {"dph_total": "free"}, {"gpu_name": ["x"]}, {"actual_status": 7, "ssh_port": "x"},
        {"ssh_host": {"a": 1}}, {"label": "\x1b[2J\n"}, {"gpu_util": float("nan")}, {"id": -5},
    ]  # fmt: skip
    for number, details in enumerate(odd, 1):
        world.rows[number] |= details
    rows = update(account(world), world)
    assert len(rows) == 7 and rows["vast://1"].total_cost is None and rows["vast://2"].cost_per_hour is None


@pytest.mark.parametrize(
    "details", [{"actual_status": "loading"}, {"actual_status": "exited", "intended_status": "stopped"}]
)
def test_what_is_gone_does_not_pile_up(details: dict[str, str]) -> None:
    world, is_shown = World(), details["actual_status"] == "loading"
    monitor = account(world)
    for number in range(1, 2 * MOST_LOST):
        world.rows = {number: row(number, **details)}
        rows = update(monitor, world)
    assert len(rows) == is_shown * (MOST_LOST + 1)
    assert monitor._lister and len(monitor._lister.account.gone) == is_shown * MOST_LOST


# ---------------------------------------------------------------- hangs


def test_a_machine_that_hangs_delays_nobody_and_is_not_asked_twice() -> None:
    world = World(1, 2)
    release = world.machine(1).hang = threading.Event()
    monitor = account(world, clock=SYSTEM_CLOCK, config=FleetConfig(interval=1.0))
    monitor.start()
    assert eventually(lambda: world.machine(2).asked >= 3)
    rows = {each.key: each for each in monitor.snapshot().rows}
    assert world.machine(1).asked == 1 and rows["vast://2"].step == 1 and rows["vast://1"].step is None
    assert eventually(lambda: len(monitor.recent("vast://2")) >= 2)
    release.set()
    assert eventually(lambda: monitor.snapshot().rows[0].step == 1)
    monitor.close()


def test_a_hanging_listing_delays_no_other_target() -> None:
    world = World(1)
    release = world.listing_hangs = threading.Event()
    monitor = fleet(world, MemberSpec("local"), MemberSpec("vast://1"), clock=SYSTEM_CLOCK)
    monitor.start()
    assert eventually(lambda: monitor.snapshot().rows[0].step == 1)
    snapshot = monitor.snapshot()
    assert snapshot.refreshing and snapshot.listed_at is None and snapshot.rows[1].status == "unknown"
    release.set()
    assert eventually(lambda: monitor.snapshot().rows[1].step == 1)
    monitor.close()


def test_looks_are_late_when_a_member_waits_for_longer_than_an_interval() -> None:
    """All threads wait for machines that do not answer, and the member that answered waits with them."""
    world, numbers = World(*range(1, MOST_THREADS + 2)), range(1, MOST_THREADS + 1)
    monitor = account(world, clock=SYSTEM_CLOCK, config=FleetConfig(interval=1.0))
    release = threading.Event()
    assert monitor.snapshot().late is None and not monitor.snapshot().lateness
    monitor.update_all_metrics()
    assert monitor.snapshot().late == 0 and not monitor.snapshot().lateness
    for number in numbers:
        world.machine(number).hang = release
    monitor.start()
    assert eventually(lambda: (monitor.snapshot().late or 0) > 0.6)
    assert monitor.snapshot().lateness.endswith("s late: too many members to check every 1s")
    release.set()
    assert eventually(lambda: monitor.snapshot().late == 0)
    monitor.close()


def test_while_paused_nobody_is_asked_but_by_a_refresh() -> None:
    world = World(1)
    monitor = account(world, clock=SYSTEM_CLOCK, config=FleetConfig(interval=1.0))
    monitor.set_paused(True)
    monitor.start()
    monitor.refresh()
    assert eventually(lambda: world.machine(1).asked == 1 and not monitor.snapshot().refreshing)
    assert monitor.snapshot().paused
    monitor.refresh()
    assert eventually(lambda: world.machine(1).asked == 2)
    monitor.close()


def test_a_bug_in_the_reading_of_one_member_is_an_error_of_that_member() -> None:
    world = World(1, 2)
    world.machine(1).answer = lambda script: 1 / 0  # type: ignore[assignment, return-value]
    rows = update(account(world), world)
    assert "ZeroDivisionError" in (rows["vast://1"].error or "") and rows["vast://2"].step == 1


# ---------------------------------------------------------------- telling and remembering


class Kept:
    def __init__(self) -> None:
        self.samples: list[dict[str, FleetSample]] = []
        self.error: TrainingMonitorError | None = None
        self.before: list[FleetSample] = []

    def add(self, samples: Mapping[str, FleetSample]) -> None:
        if self.error:
            raise self.error
        self.samples.append(dict(samples))

    def read(self, key: str, since: float) -> list[FleetSample]:
        if self.error:
            raise self.error
        return [each for each in self.before if each.timestamp >= since]


def test_a_refresh_adds_the_samples_of_all_in_one_call_and_reads_the_past_once() -> None:
    world, kept = World(1, 2), Kept()
    kept.before = [FleetSample(EPOCH - 60, {"loss": 2.0})]
    monitor = account(world, history=kept)
    update(monitor, world)
    update(monitor, world)
    assert [sorted(each) for each in kept.samples] == [["vast://1", "vast://2"]] * 2
    assert [each.values["loss"] for each in monitor.recent("vast://1")] == [2.0, 0.5, 0.5]
    assert monitor.recent("nobody") == ()


def test_a_gone_instance_is_recorded_once_with_its_cost() -> None:
    kept = Kept()
    world, monitor = looked(1, 2, history=kept)
    del world.rows[2]
    for _ in range(3):
        update(monitor, world)
    last, gone = (each["vast://2"] for each in kept.samples if "vast://2" in each)
    assert (last.status, gone.status, gone.timestamp) == ("running", "lost", EPOCH + 20)
    assert {name for name, value in gone.values.items() if value is not None} == {"total_cost"}
    assert gone.values["total_cost"] == pytest.approx(0.5, rel=0.01)


def test_a_history_that_fails_is_told_once_and_the_rest_goes_on() -> None:
    world, kept = World(1), Kept()
    monitor = account(world, history=kept)
    kept.error = TrainingMonitorError("the disk is full")
    for _ in range(3):
        rows = update(monitor, world)
    told = [alert.text for alert in monitor.snapshot().alerts]
    assert len(told) == 1 and "the disk is full" in told[0] and rows["vast://1"].step == 1


def test_alerts_are_told_as_notices_that_are_known_again() -> None:
    notices: list[Notice] = []
    world, monitor = looked(1, tell=notices.append, config=replace(FleetConfig(), budget=0.1))
    world.machine(1).log += "step 2/100 loss nan\n"
    update(monitor, world)
    kinds = {notice.kind: notice for notice in notices}
    assert set(kinds) == {"fleet_budget", "fleet_nan"} and kinds["fleet_nan"].priority == "high"
    assert kinds["fleet_nan"].job_id == "vast://1" and kinds["fleet_nan"].text


def test_an_alert_that_is_over_says_since_when_and_a_person_may_acknowledge_it() -> None:
    world, monitor = looked(1, 2)
    world.rows[1] |= {"actual_status": "exited"}
    update(monitor, world)
    [failed] = monitor.snapshot().alerts
    assert (failed.kind, failed.ended, failed.acknowledged) == ("failed", None, False)
    monitor.acknowledge([failed.identity, ("vast://2", "failed", 0)])
    assert [alert.acknowledged for alert in monitor.snapshot().alerts] == [True]
    world.rows[1] |= {"actual_status": "running"}
    update(monitor, world)
    failed, over = monitor.snapshot().alerts
    assert (failed.ended, failed.acknowledged) == (over.timestamp, True)
    assert (over.kind, over.text, over.ended) == ("over:failed", "it is up again", None)


def test_somebody_who_cannot_be_told_does_not_end_the_watching() -> None:
    world = World(1)

    def tell(notice: Notice) -> None:
        raise RuntimeError("no")

    monitor = account(world, tell=tell, config=replace(FleetConfig(), budget=0.1))
    assert update(monitor, world)["vast://1"].step == 1 and kinds(monitor.snapshot()) == ["budget"]


def test_listeners_hear_of_new_snapshots_and_what_was_shown_does_not_change() -> None:
    world, heard = World(1), []
    monitor = account(world)
    monitor.listen(lambda: heard.append(monitor.snapshot().rows))
    update(monitor, world)
    [before] = monitor.snapshot().rows
    world.machine(1).log += "step 50/100 loss 0.1\n"
    update(monitor, world)
    assert heard and (before.step, list(before.recent_logs)) == (1, ["step 1/100 loss 0.5"])
    assert monitor.snapshot().rows[0].step == 50
    world, monitor = looked(1)
    monitor.clear_logs()
    assert not monitor.snapshot().rows[0].recent_logs and monitor.snapshot().rows[0].step == 1
    world.machine(1).log += "step 2/100 loss 0.4\n"
    assert list(update(monitor, world)["vast://1"].recent_logs) == ["step 2/100 loss 0.4"]


# ---------------------------------------------------------------- acting


def acted(monitor: FleetMonitor, action: str, *keys: str) -> list[tuple[str, str, str]]:
    before = len(monitor.snapshot().alerts)
    monitor.act(action, keys)
    assert eventually(lambda: len(monitor.snapshot().alerts) >= before + len(keys))
    return [(alert.key, alert.kind, alert.level) for alert in monitor.snapshot().alerts[before:]]


def test_an_instance_is_destroyed_stopped_started_and_rebooted() -> None:
    world, monitor = looked(1, 2)
    assert acted(monitor, "destroy", "vast://1") == [("vast://1", "destroyed", "info")]
    assert update(monitor, world)["vast://1"].status == "lost"
    assert kinds(monitor.snapshot()) == ["destroyed"]
    world, monitor = looked(1)
    assert acted(monitor, "reboot", "vast://1") == [("vast://1", "rebooted", "info")]
    assert update(monitor, world)["vast://1"].status == "rebooting"
    assert acted(monitor, "reboot", "vast://1") == [("vast://1", "failed", "error")]
    assert acted(monitor, "stop", "vast://1") == [("vast://1", "stopped", "info")]
    assert update(monitor, world)["vast://1"].status == "stopped"
    assert acted(monitor, "start", "vast://1") == [("vast://1", "started", "info")]
    assert update(monitor, world)["vast://1"].status == "loading"


def test_a_shell_is_opened_on_instances_and_ssh_hosts() -> None:
    world = World(1)
    monitor = fleet(world, MemberSpec("vast://1"), MemberSpec("local"), MemberSpec("ssh://me@box"))
    refused = "vast://1: cannot open a shell: the machine is not running, or has no address yet"
    for key, said in (
        ("vast://1", refused),
        ("local", "neither an instance nor an ssh host"),
        ("nobody", "cannot open"),
    ):
        with pytest.raises(TrainingMonitorError, match=said):
            monitor.shell_command(key)
    update(monitor, world)
    for key, destination in (("vast://1", "root@"), ("ssh://me@box", "me@box")):
        command = monitor.shell_command(key)
        assert command[:2] == ["ssh", "-t"] and command[-2] == "--" and command[-1].startswith(destination)


def test_what_cannot_or_could_not_be_done_is_told_with_the_reason() -> None:
    monitor = fleet(World(), MemberSpec("local"), MemberSpec("local", "process:run"))
    for action, *keys in (("destroy", "local"), ("stop", "local", "nobody"), ("reboot", "local")):
        assert acted(monitor, action, *keys) == [(key, "refused", "warning") for key in keys]
    assert acted(monitor, "stop", "local#process:run") == [("local#process:run", "failed", "error")]
    assert "no job" in monitor.snapshot().alerts[-1].text
    with pytest.raises(SettingsError):
        monitor.act("paint", ["local"])
    world, monitor = looked(1)
    world.refuses = True
    assert acted(monitor, "destroy", "vast://1") == [("vast://1", "failed", "error")]
    assert "still exists" in monitor.snapshot().alerts[-1].text and "500" in monitor.snapshot().alerts[-1].text
    del world.rows[1]
    update(monitor, world)
    assert kinds(monitor.snapshot())[-1] == "lost"  # nobody destroyed it


def test_an_instance_is_not_stopped_and_destroyed_at_once_by_whatever_names() -> None:
    world = World(1)
    monitor = fleet(world, MemberSpec("vast://1"), MemberSpec("vast://1", "process:run"))
    release = world.listing_hangs = threading.Event()
    monitor.act("stop", ["vast://1"])
    assert acted(monitor, "destroy", "vast://1#process:run")[0][1] == "refused"
    release.set()
    assert eventually(lambda: "stopped" in kinds(monitor.snapshot())) and 1 in world.rows


def test_the_earlier_name_watches_some_instances_all_or_made_up_ones() -> None:
    world = World(1, 2)
    options: dict[str, Any] = {"transport": world, "clock": world.clock}
    assert list(VastAIMonitor([2], **options).update_all_metrics()) == ["vast://2"]
    assert list(VastAIMonitor(**options).update_all_metrics()) == ["vast://1", "vast://2"]
    mock = VastAIMonitor([30007012], use_mock=True, clock=world.clock)
    assert isinstance(mock, MockFleet) and list(mock.update_all_metrics()) == ["vast://30007012"]
