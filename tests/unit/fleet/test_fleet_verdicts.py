"""FleetMonitor and its members where a wrong verdict is near: clocks, runs, logs and jobs that vanish, hostile rows."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import EPOCH, gpu_answer
from tests.unit.fleet.fleet_world import Watch, eventually, row, unreachable
from training_monitor.core.store import Store
from training_monitor.core.values import KeptRollCall, WatchedJob
from training_monitor.fleet.config import AlertRule, FleetConfig
from training_monitor.fleet.fleet import ACCOUNT
from training_monitor.fleet.values import MemberSpec
from training_monitor.look.kept_looks import save_roll_call
from training_monitor.targets.target import parse_target


def local(**options: Any) -> Watch:
    return Watch(specs=(MemberSpec("local"),), **options)


def list_only(watch: Watch) -> None:
    """Let the account be listed, and no member be looked at."""
    add = watch.monitor._schedule.add
    watch.monitor._schedule.add = lambda keys, now: add({*keys} & {ACCOUNT}, now)  # type: ignore[method-assign]


@pytest.mark.parametrize(("line", "step"), [("step 1/100 loss 2.5\n", 1), ("step 101/200 loss 0.1\n", 101)])
@pytest.mark.parametrize("pid", [100, None])
def test_a_second_training_in_the_same_process_and_log_has_not_finished(pid: int | None, line: str, step: int) -> None:
    watch = local()
    machine = watch.world.machine("local")
    machine.pid, machine.log = pid, "step 100/100 loss 0.1\nTraining finished\n"
    assert watch.row().finished is (True if pid is None else None)  # one that runs may still save
    machine.log += "step 100/100 loss 0.1\n"
    assert watch.row().health().level == "healthy"
    machine.log += line
    found = watch.row(30)
    assert (found.finished, found.step) == (None, step) and found.health().level != "error"
    machine.log += f"step {step + 1}/500 loss 0.1\n"
    assert watch.level(30) == "healthy" and "finished" not in watch.told


def test_each_training_and_each_loss_is_told_of_by_a_name_of_its_own() -> None:
    watch = local()
    for pid in (100, 200):
        machine = watch.world.machine("local")
        machine.pid, machine.log = pid, machine.log + "step 1/3 loss 0.5\n"
        watch.look()
        machine.pid, machine.log = None, machine.log + "step 3/3 loss 0.1\nTraining finished\n"
        watch.look()
    finished = [(each.job_id, each.kind, each.generation) for each in watch.notices if each.kind == "fleet_finished"]
    assert len(finished) == len(set(finished)) == 2
    watch = Watch(1, 2)
    kept = watch.world.rows[1]
    for _ in range(2):
        watch.world.rows[1] = kept
        watch.look()
        del watch.world.rows[1]
        watch.look()
    names = [(each.job_id, each.generation) for each in watch.notices if each.kind == "fleet_lost"]
    assert len(names) == len(set(names)) == 2
    names = []
    for _ in range(2):
        watch = local()
        watch.world.machine("local").log = "step 5/9 loss nan\n"
        watch.look()
        names.append([(each.job_id, each.kind, each.generation) for each in watch.notices])
    assert names[0] == names[1] != []


def test_the_notice_of_a_failed_member_includes_the_end_of_its_log() -> None:
    watch = local()
    watch.look()
    machine = watch.world.machine("local")
    machine.log += "RuntimeError: CUDA error: an illegal memory access was encountered\n"
    machine.pid = None
    watch.look()
    [failed] = [each for each in watch.notices if each.kind == "fleet_failed"]
    assert failed.log.splitlines()[-1] == "RuntimeError: CUDA error: an illegal memory access was encountered"
    machine.pid, machine.log = 7, machine.log + "step 50/100 loss 0.5\n"
    watch.look()
    assert [each.log for each in watch.notices if each.kind != "fleet_failed"] == [""]


def test_a_log_that_is_gone_is_not_healthy_and_no_hang_either() -> None:
    watch = local()
    watch.train(range(2, 60))
    watch.world.machine("local").path = ""
    watch.world.machine("local").gpus = gpu_answer(0)
    found = watch.row()
    assert (found.step, found.health().level) == (59, "unknown") and "log" in found.health().reason
    for _ in range(100):
        found = watch.row(30)
    assert found.health().level == "unknown" and watch.told == []
    watch.world.machine("local").path = "/workspace/output/a/training.log"
    watch.world.machine("local").log += "step 60/1000 loss 0.5\n"
    assert watch.level(30) == "warning" and watch.told == []  # its GPU is idle


def test_what_is_gone_with_its_log_is_told_and_a_finished_one_stays_finished() -> None:
    watch = local()
    machine = watch.world.machine("local")
    watch.look()
    machine.path, machine.pid = "", None
    found = watch.row().health()
    assert (found.level, found.reason) == ("unknown", "its process and its log no longer exist")
    assert watch.told == ["failed"]
    watch = local()
    machine = watch.world.machine("local")
    machine.log, machine.pid = "step 9/9 loss 0.1\nTraining finished\n", None
    watch.look()
    machine.path = ""
    assert watch.row().health().reason.startswith("finished")


def test_a_log_whose_writers_come_and_go_is_not_that_of_a_process_that_is_gone() -> None:
    watch = local()
    watch.look()
    watch.world.machine("local").pid = None
    watch.train(range(2, 6))
    assert watch.told == []
    watch.look()
    assert watch.told == ["failed"]  # now nobody writes it


def test_a_laptop_that_slept_has_not_seen_a_hang() -> None:
    watch = local()
    watch.world.machine("local").gpus = gpu_answer(0)
    watch.train(range(2, 40))
    watch.world.machine("local").slept = 3600
    for after in (3600, 10, 10, 30, 30):
        found = watch.row(after)
    assert found.verdict and found.verdict.state == "running" and watch.told == []
    for _ in range(30):
        found = watch.row(30)
    assert found.verdict and found.verdict.state == "stalled" and watch.told == ["stall"]


@pytest.mark.parametrize("jump", [-7200.0, 7200.0])
def test_after_a_clock_was_set_a_hang_is_seen_all_the_same_and_history_goes_on(jump: float) -> None:
    watch = local()
    watch.world.machine("local").gpus = gpu_answer(0)
    watch.train(range(2, 40))
    count = len(watch.monitor.recent("local"))
    watch.world.clock.elapsed += jump
    watch.train(range(40, 80))
    assert watch.told == [] and len(watch.monitor.recent("local")) == count + 40
    for _ in range(60):
        watch.look(30)
    assert watch.told == ["stall"]


def test_a_rule_does_not_count_the_time_in_which_nothing_new_was_seen() -> None:
    rules = (AlertRule("idle", "gpu_utilization < 5 for 30s"), AlertRule("up", "status == running for 30s"))
    watch = Watch(1, config=FleetConfig(rules=rules))
    watch.world.machine(1).gpus = gpu_answer(0)
    watch.look()
    [member] = watch.monitor._members.values()
    for _ in range(6):  # a look that hangs: the round ends without it
        watch.world.clock.sleep(10)
        watch.monitor._end_round()
    assert watch.told == [] and member.seen.error is None
    for _ in range(4):
        watch.look()
    assert sorted(watch.told) == ["rule:idle", "rule:up"]


def test_without_an_answer_or_a_new_listing_no_status_is_known() -> None:
    rules = (AlertRule("up", "status == running"),)
    watch = Watch(1, specs=(MemberSpec("local"),), config=FleetConfig(rules=rules))
    for name in (1, "local"):
        watch.world.machine(name).error = unreachable()
    watch.look()
    assert [alert.key for alert in watch.monitor.snapshot().alerts] == ["vast://1"]
    rules = (AlertRule("slow", "status == loading for 30s"),)
    watch = Watch(1, config=FleetConfig(rules=rules))
    watch.world.rows[1] |= {"actual_status": "loading"}
    watch.look()
    watch.world.listing = "null"
    for _ in range(10):
        watch.look()
    assert watch.told == []


def test_an_instance_that_is_destroyed_by_one_name_is_not_lost_by_another() -> None:
    specs = MemberSpec("vast://1"), MemberSpec("vast://1", log_paths=("/x.log",))
    watch = Watch(1, specs=specs, whole_account=False)
    watch.look()
    watch.monitor.act("destroy", ["vast://1"])
    assert eventually(lambda: "destroyed" in watch.told)
    assert {each.status for each in watch.look().values()} == {"lost"}
    assert watch.told == ["destroyed"]


def test_a_training_that_ends_while_somebody_stops_its_instance_has_not_failed() -> None:
    watch = Watch(1, 2)
    watch.look()
    release = watch.world.listing_hangs = threading.Event()
    watch.monitor.act("stop", ["vast://1"])
    [member, _] = watch.monitor._members.values()
    assert eventually(lambda: member.ending == "stop")
    watch.world.machine(1).pid = None
    watch.monitor._look(member.key)
    watch.monitor._end_round()
    release.set()
    assert eventually(lambda: watch.told)
    assert watch.look()["vast://1"].status == "stopped" and watch.told == ["stopped"]
    del watch.world.rows[1]
    watch.look()
    assert watch.told == ["stopped", "lost"]  # with its disk


def test_an_instance_listed_again_after_destroying_is_watched() -> None:
    watch = Watch(1, 2)
    watch.look()
    watch.monitor.act("destroy", ["vast://1"])
    assert eventually(lambda: "destroyed" in watch.told)
    watch.look()
    watch.world.rows[1] = row(1)
    assert watch.look()["vast://1"].status == "running"
    watch.world.rows[1] = row(1, actual_status="exited")
    watch.look()
    assert watch.told == ["destroyed", "failed"]


def test_looks_before_a_stop_do_not_count_after_the_restart() -> None:
    watch = Watch(1)
    watch.world.machine(1).log += "step 50/1000 loss 0.5 2.0 it/s\n"
    assert watch.level() == "healthy"
    watch.world.rows[1] = row(1, actual_status="exited", intended_status="stopped")
    assert watch.row(3600).status == "stopped"
    watch.world.rows[1] = row(1, ssh_port=22222)
    watch.world.clock.sleep(600)
    list_only(watch)  # its turn has not come yet
    found = watch.row()
    assert (found.status, found.step, found.health().level) == ("running", 50, "unknown")
    del watch.monitor._schedule.add  # type: ignore[method-assign]
    watch.world.machine(1).log += "step 51/1000 loss 0.5 2.0 it/s\n"
    assert watch.level() == "healthy" and "22222" in next(each for each in watch.world.said[::-1] if each[0] == "ssh")


def test_a_row_that_is_not_looked_at_is_unknown() -> None:
    watch = local()
    watch.train(range(2, 10))
    list_only(watch)
    assert [watch.level(20) for _ in range(5)] == ["healthy", "healthy", "healthy", "unknown", "unknown"]


@pytest.mark.parametrize("number", [10**30, int("9" * 4000)])
def test_a_number_beyond_all_numbers_is_one_more_row(number: int) -> None:
    watch = Watch(1)
    watch.world.rows[number] = {**row(1), "id": number, "ssh_port": number, "dph_total": number, "num_gpus": number}
    rows = watch.look()
    assert rows["vast://1"].step == 1 and watch.monitor.snapshot().error is None and len(rows) == 2


def test_spending_never_jumps_and_a_stopped_machine_passes_no_budget_again() -> None:
    watch = Watch(1, config=replace(FleetConfig(), budget=0.4))
    for details in ({}, {"actual_status": "exited", "intended_status": "stopped"}, {}):
        watch.world.rows[1] = row(1, **details)
        watch.look()
    assert watch.told == ["budget"]
    watch = Watch(1)
    hour = watch.row().total_cost
    watch.world.rows[1] |= {"dph_total": 2.0}
    assert watch.row().total_cost == pytest.approx(hour, abs=0.01)
    stopped = {"actual_status": "exited", "intended_status": "stopped", "cur_state": "stopped"}
    watch.world.rows[1] |= {**stopped, "storage_total_cost": 0.01}
    assert watch.row().total_cost == pytest.approx(hour, abs=0.02)
    assert watch.monitor.snapshot().summary.without_total == 0


def test_the_eta_of_a_training_that_was_resumed_is_by_the_speed_it_was_seen_at() -> None:
    watch = local()
    watch.train(range(9000, 9030), seconds=60, total=10000)
    found = watch.row(0.0)
    left = found.estimated_completion_time()
    assert left and left.total_seconds() == pytest.approx((10000 - 9029) * 60, rel=0.1)


def test_where_no_thread_can_be_begun_the_next_round_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(1)
    watch.look()

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        watch.monitor._begin_round(forced=True)
        watch.monitor.act("destroy", ["vast://1"])
    assert watch.told == ["failed"] and 1 in watch.world.rows
    watch.world.machine(1).log += "step 2/100 loss 0.4\n"
    # a thread of the first look may still have been there, and have begun the round that no new thread could
    assert watch.row().step == 2 and watch.world.listings() in (2, 3)


def test_what_fails_is_logged_when_it_begins_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    watch = Watch(1)
    watch.look()
    with caplog.at_level("INFO", "training_monitor"):
        watch.world.listing, watch.world.machine(1).error = "", unreachable()
        watch.look()
        watch.look()
        watch.world.listing = watch.world.machine(1).error = None
        watch.look(after=400)
    said = sorted(record.getMessage() for record in caplog.records)
    assert said[0].startswith("could not list the instances of the account: ")
    assert said[1].startswith("the account's instances can be listed again")
    assert said[2:] == ["vast://1: it responds again", "vast://1: no answer: connection refused"]


def test_a_row_has_what_the_last_roll_call_of_its_training_said(tmp_path: Path) -> None:
    store, target = Store(str(tmp_path)), parse_target("local")
    watch = Watch(specs=(MemberSpec("local"),), store=store)
    assert watch.row().explained is None
    log = watch.world.machines["local"].path
    kept = KeptRollCall(EPOCH, "rank 1 is late: look there", suspect_nodes=("node-a",))
    save_roll_call(store, target, WatchedJob(log_file="/another.log"), replace(kept, text="of another training"))
    save_roll_call(store, target, WatchedJob(log_file=log), kept)
    assert watch.row(after=60).explained == kept
