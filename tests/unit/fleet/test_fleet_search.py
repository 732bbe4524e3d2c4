"""The trainings of a member that names none: a row each, in one round trip, also once they have ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import read_call
from tests.unit.fleet.fleet_world import Machine, Watch, row, unreachable
from tests.unit.look.printed_processes import reply
from training_monitor.core.errors import TargetUnreachable
from training_monitor.core.models import Answer
from training_monitor.core.store import Store
from training_monitor.core.values import WatchedJob
from training_monitor.fleet.config import FleetConfig
from training_monitor.fleet.member import FleetMember
from training_monitor.fleet.prometheus import format_metrics
from training_monitor.fleet.search import FIND_SECONDS, Search
from training_monitor.fleet.values import MOST_BESIDE, MemberSpec
from training_monitor.look.check import check_training
from training_monitor.look.find_trainings import SEARCHED_FOR, FoundFile, FoundTrainings
from training_monitor.look.meant import MeantTraining
from training_monitor.look.remembered import KEPT_SECONDS, forget, recall, remember
from training_monitor.targets.asking import Site
from training_monitor.targets.target import parse_target

LOCAL = (MemberSpec("local"),)
ONE, TWO = "train_one.py (pid 10)", "train_two.py (pid 11)"


class Host(Machine):
    """A machine without a log where one is expected, and trainings: processes by PID, each with its script and log."""

    def __init__(self, **scripts: str) -> None:
        super().__init__(path="", pid=None)
        self.trainings: dict[int, tuple[str, str]] = {}
        self.begun: dict[int, int] = {}
        self.logs: dict[str, str] = {}
        self.is_hidden, self.left = False, ""  # `left` is a log where one is expected, whose writer has ended
        for number, (log, script) in enumerate(scripts.items()):
            self.start(10 + number, script, log)

    def start(self, pid: int, script: str, log: str, text: str = "step 1/100 loss 0.5\n", begun: int = 5000) -> None:
        self.trainings[pid], self.begun[pid] = (script, f"/w/{log}.log"), begun
        self.logs[f"/w/{log}.log"] = text

    def answer(self, script: str) -> tuple[str, int]:
        call = read_call(script)
        subject, given = (call.subject, call.given) if call else ("", {})
        if subject == "find_trainings" and not self.is_hidden:
            found = []
            for pid, (name, log) in self.trainings.items():
                found.append({"pid": str(pid), "start": str(self.begun[pid]), "command": f"python {name}"})
                found[-1] |= {"cwd": "/w", "fds": f"1 -> {log}"}
            self.scripts.append(script)
            return reply(*found, word=given["word"], spelling=given["spelling"]), 0
        if subject in (of := {"jobs": "", "ray": "[]\nhttp 200\n", "ray_signs": "none\n", "recent_logs": "now 1000\n"}):
            self.scripts.append(script)
            return of[subject], 0
        pid = int(given.get("pid") or 0)
        is_same = pid in self.trainings and given["was_start"] in ("", str(self.begun[pid]))
        self.pid = pid if is_same else None
        file = given.get("file") or self.left
        self.path = file if file in self.logs else ""
        self.log, self.inode = self.logs.get(self.path, ""), hash(self.path) % 1000
        return super().answer(script)

    def _process(self) -> str:
        return super()._process().replace("start=1\nboot=b\n", f"start={self.begun.get(self.pid or 0)}\nboot=b0\n")


class Fleet(Watch):
    def __init__(self, host: Host, specs: tuple[MemberSpec, ...] = LOCAL, **options: Any) -> None:
        super().__init__(specs=specs, **options)
        self.host = self.world.machines["local"] = host

    def names(self, after: float = FIND_SECONDS) -> list[str]:
        return [each.name for each in self.look(after).values()]


def test_each_training_has_a_row_in_the_round_trip_of_its_member() -> None:
    fleet = Fleet(Host(a="train_one.py", b="train_two.py", c="train_two.py"))
    rows = fleet.look()
    assert [each.name for each in rows.values()] == [ONE, TWO, "train_two.py (pid 12)"]
    assert list(rows) == ["local", "local#11", "local#12"]
    assert [each.found for each in rows.values()] == [False, True, True]
    assert {(each.instance_id, each.status, each.step) for each in rows.values()} == {("local", "running", 1)}
    assert fleet.host.asked == 2, "what was found only then is looked at once more"
    fleet.host.logs["/w/b.log"] += "step 2/100 loss 0.4\n"
    assert fleet.look()["local#11"].step == 2
    fleet.look(FIND_SECONDS)
    assert fleet.host.asked == 4


def test_a_search_is_part_of_a_look_every_minute_only_and_where_no_log_is_known() -> None:
    fleet = Fleet(Host(a="train_one.py"))
    for _ in range(int(FIND_SECONDS / 10) + 1):
        fleet.look(10)
    asked = [call for script in fleet.host.scripts if (call := read_call(script)) and call.subject == "find_trainings"]
    assert len(asked) == 2
    assert not [script for script in fleet.host.scripts[60:] if script.startswith(": ray ")], "no sign of Ray"
    watch = Watch(1)
    watch.look()
    assert [*watch.look(FIND_SECONDS)] == ["vast://1"]
    assert not [script for script in watch.world.machine(1).scripts if script.startswith(": find_trainings ")]


def test_one_that_names_its_training_has_one_row() -> None:
    for specs, config in (
        ((MemberSpec("local", "10"),), FleetConfig()),
        ((MemberSpec("local", log_paths=("/w/a.log",)),), FleetConfig()),
        (LOCAL, FleetConfig(log_paths=("/w/*.log",))),
    ):
        assert len(Fleet(Host(a="train_one.py", b="train_two.py"), specs, config=config).names()) == 1, specs


def test_a_training_that_another_member_names_is_not_found_again() -> None:
    host, named = Host(a="train_one.py", b="train_two.py"), MemberSpec("local", "11")
    assert Fleet(host, (named, MemberSpec("local", log_paths=("/w/c",)))).names() == ["pid 11", "w/c"]
    assert Fleet(host, (named, *LOCAL)).names() == ["pid 11", ONE]


def test_an_ended_training_keeps_its_row_and_silence_is_not_an_end() -> None:
    fleet = Fleet(Host(a="train_one.py", b="train_two.py", c="train_three.py"))
    fleet.look()
    fleet.host.logs["/w/b.log"] += "step 100/100 loss 0.1\nTraining finished\n"
    del fleet.host.trainings[11], fleet.host.trainings[12]
    for _ in range(2):
        assert fleet.names() == [ONE, TWO, "train_three.py (pid 12)"]
        states = [each.verdict.state for each in fleet.monitor.snapshot().rows if each.verdict]
        assert states == ["running", "finished", "failed"]
    assert [told for told in fleet.told if told != "epoch"] == ["finished", "failed"]
    fleet.host.error = unreachable()
    assert fleet.names() == [ONE, TWO, "train_three.py (pid 12)"]
    assert all("refused" in (each.error or "") for each in fleet.monitor.snapshot().rows)
    fleet.host.error = None
    fleet.host.is_hidden = True
    assert len(fleet.names()) == 3, "a search that failed has not found that they are gone"


def test_a_later_training_of_the_same_script_takes_the_place_of_one_that_ended() -> None:
    fleet = Fleet(Host(a="train_one.py", b="train_two.py"))
    fleet.look()
    del fleet.host.trainings[10], fleet.host.trainings[11]
    fleet.host.start(20, "train_two.py", "again")
    again = "train_two.py (pid 20)"
    assert fleet.names() == [ONE, again]
    fleet.host.start(30, "train_one.py", "other", "step 7/100 loss 0.3\n")
    found = [(key, each.name, each.step) for key, each in fleet.look(FIND_SECONDS).items()]
    assert found == [("local", "train_one.py (pid 30)", 7), ("local#20", again, 1)]


def test_a_fleet_that_begins_later_and_a_check_know_the_same(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    fleet = Fleet(Host(a="train_one.py", b="train_two.py"), store=store)
    fleet.look()
    fleet.host.trainings.clear()
    later = Fleet(fleet.host, store=store)
    assert later.names(20) == [ONE, TWO]
    assert {each.verdict and each.verdict.state for each in later.monitor.snapshot().rows} == {"failed"}
    forget(store, parse_target("local"))
    assert later.names() == ["local"]
    assert later.monitor.snapshot().rows[0].health().brief == "no training found"


def test_a_killed_training_whose_log_is_left_is_found_once(tmp_path: Path) -> None:
    site, store, log = Site.of("local"), Store(str(tmp_path)), "/w/a.log"
    killed = MeantTraining(WatchedJob(log_file=log, pid=7, process="7 5 boot"), "pid 7", script="train.py")
    remember(store, site.target, 100.0, [killed], [])
    by_log = MeantTraining(WatchedJob(log_file=log), log)  # as a check finds it when nothing runs
    remember(store, site.target, 110.0, [by_log], recall(store, site.target, 110.0))
    told = [FoundTrainings(()), (), False, (), (FoundFile(log, 1.0, 5),)]
    answers = [Answer(str(number), value) for number, value in enumerate(told)]
    found = Search(store).read(site, answers, 120.0)
    assert [each.job.pid for each in found.every] == [7]


def test_a_job_that_ended_is_not_shown_beside_its_own_log() -> None:
    folder = "/root/.training_monitor/jobs/lora-attempt-1"
    member = FleetMember(MemberSpec("local"), FleetConfig(), (), "default")
    member._log_path = f"{folder}/log"
    jobs = [f"process:{name}" for name in ("lora-attempt-1", "lora", "other-attempt-1")]
    watched = [member.watches(MeantTraining(WatchedJob(job_id=job), job)) for job in jobs]
    assert watched == [True, False, False]


def test_a_log_that_nothing_writes_gives_way_to_a_training_that_runs() -> None:
    host = Host(a="train_one.py")
    host.left = "/root/.training_monitor/jobs/old-attempt-1/log"
    host.logs[host.left] = ""
    assert Fleet(host).names() == [ONE]
    host.trainings.clear()
    assert Fleet(host).names() == ["local"]


def test_a_check_that_finds_nothing_names_what_was_searched_for(tmp_path: Path) -> None:
    world = Fleet(Host()).world
    report = check_training("local", transport=world, clock=world.clock, store=Store(str(tmp_path)))
    assert not report["jobs"] and SEARCHED_FOR in report["remedies"]


def test_one_that_has_the_pid_of_one_that_ended_takes_its_row() -> None:
    fleet = Fleet(Host(a="train_one.py", b="train_two.py", c="train_three.py"))
    fleet.look()
    fleet.host.start(11, "train_other.py", "other", begun=9000)
    assert fleet.names() == [ONE, "train_three.py (pid 12)", "train_other.py (pid 11)"]


def test_what_ended_is_forgotten_after_a_day() -> None:
    fleet = Fleet(Host(a="train_one.py", b="train_two.py"))
    fleet.look()
    del fleet.host.trainings[11]
    assert fleet.names() == [ONE, TWO] and fleet.names(KEPT_SECONDS) == [ONE]


def test_of_many_trainings_it_says_how_many_are_left_out() -> None:
    fleet = Fleet(Host(**{f"log{number}": f"train{number}.py" for number in range(MOST_BESIDE + 4)}))
    rows = fleet.look()
    assert len(rows) == 1 + MOST_BESIDE
    snapshot = fleet.monitor.snapshot()
    assert snapshot.summary.left_out == 3
    text = format_metrics(snapshot, FleetConfig().thresholds)
    assert "training_monitor_trainings_omitted 3\n" in text
    assert text.count("training_monitor_step{") == 1 + MOST_BESIDE
    assert 'training_monitor_member_info{member="local#11",name="train1.py (pid 11)"' in text


def test_a_machine_is_paid_and_reported_once() -> None:
    host = Host(a="train_one.py", b="train_two.py")
    fleet = Fleet(host, (), whole_account=True)
    fleet.world.rows[1], fleet.world.machines["vast-1"] = row(1), host
    rows = fleet.look()
    costs = [(each.name, each.instance_id, each.cost_per_hour) for each in rows.values()]
    assert costs == [(ONE, 1, 0.5), (TWO, 1, None)]
    summary = fleet.monitor.snapshot().summary
    assert (summary.dollars_per_hour, summary.without_total, summary.unpriced) == (0.5, 0, 0)
    assert summary.dollars_spent == pytest.approx(0.5, rel=0.02)
    del fleet.world.rows[1]
    fleet.look()
    assert [each.kind for each in fleet.monitor.snapshot().alerts if each.key] == ["lost"]
    fleet.monitor.act("stop", ["vast://1#11"])
    assert fleet.told[-1] == "refused"


def test_the_progress_file_of_a_training_is_read_when_it_is_asked_for() -> None:
    fleet = Fleet(host := Host(other="train_two.py"))
    host.trainings[20], host.begun[20] = ("train.py", "pipe:[1]|3 -> /w/.run.json.owner"), 5000
    history = {"loss": {"steps": [1, 9], "values": [3.0, 2.0]}}
    host.logs["/w/run.json"] = json.dumps({"status": "RUNNING", "history": history})
    keys = {each.name: key for key, each in fleet.look().items()}
    run = fleet.monitor.read_run(keys["train.py (pid 20)"])
    assert run and run.history["loss"].values == (3.0, 2.0)
    asked = host.asked
    assert fleet.monitor.read_run(keys["train_two.py (pid 10)"]) is None and fleet.monitor.read_run("gone") is None
    assert host.asked == asked
    host.error = unreachable()
    with pytest.raises(TargetUnreachable):
        fleet.monitor.read_run(keys["train.py (pid 20)"])


def test_the_progress_file_of_an_instance_that_is_not_running_is_unknown() -> None:
    watch = Watch(30)
    watch.look()
    member = watch.monitor._member("vast://30")
    assert member
    member.job = WatchedJob(log_file="progress:/w/run.json")
    watch.world.rows[30] = row(30, actual_status="exited")
    watch.look()
    with pytest.raises(TargetUnreachable, match="not running"):
        watch.monitor.read_run("vast://30")


def test_the_next_search_comes_in_time_also_by_a_clock_that_was_set_back() -> None:
    search = Search(None)
    assert search.is_due(5000.0)
    search.searched_at = 5000.0
    after = (0.0, FIND_SECONDS - 1.0, FIND_SECONDS, -1.0, -4000.0)
    assert [search.is_due(5000.0 + seconds) for seconds in after] == [False, False, True, True, True]
