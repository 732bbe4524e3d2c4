"""FleetMonitor with the real vastai CLI and a loopback API, real ssh, a pod, process jobs; logs found by patterns."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Place, SshServer, Surroundings, WatchedTransport, free_port, wait_until
from tests.loopback.kubernetes import KubernetesApi
from tests.loopback.vast import LIST, USER, VastApi
from training_monitor.core.errors import TargetUnreachable
from training_monitor.core.store import Store
from training_monitor.core.values import WatchedJob
from training_monitor.fleet.config import DEFAULT_LOG_PATHS, FleetConfig
from training_monitor.fleet.fleet import FleetMonitor
from training_monitor.fleet.history import History
from training_monitor.fleet.metrics import TrainingMetrics
from training_monitor.fleet.values import MemberSpec
from training_monitor.jobs.process_jobs import start_process_job
from training_monitor.look.check import check_training
from training_monitor.look.looks import source_of
from training_monitor.targets.asking import ask

SHELLS = [name for name in ("dash", "bash", "busybox") if shutil.which(name, path="/usr/bin:/bin")]


# ---------------------------------------------------------------- logs by patterns


def newest(*patterns: str, cursor: Any = None) -> Any:
    job = WatchedJob(log_paths=patterns)
    return ask("local", source_of(job, cursor).read(cursor, 1 << 20))[0].get()


def write(path: Path, text: str, age: float = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    now = path.stat().st_mtime
    os.utime(path, (now - age, now - age))
    return path


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest, surroundings: Surroundings) -> str:
    """The shell that `sh` is on this machine."""
    program = shutil.which(request.param, path="/usr/bin:/bin")
    assert program
    (surroundings.tools / "sh").symlink_to(program)
    return program


def test_the_newest_regular_file_of_all_patterns_is_the_log(shell: str, tmp_path: Path) -> None:
    write(tmp_path / "out" / "a" / "training.log", "old\n", age=500)
    write(tmp_path / "out" / "b" / "training.log", "newer\n", age=400)
    (tmp_path / "out" / "c" / "training.log").mkdir(parents=True)
    patterns = (f"{tmp_path}/out/*/training.log", f"{tmp_path}/*.log", "/nowhere/*")
    assert newest(*patterns).text == "newer\n"
    write(tmp_path / "x.log", "newest\n", age=300)
    assert newest(*patterns).text == "newest\n"
    assert newest(*reversed(patterns)).text == "newest\n"


def test_no_file_that_matches_is_missing_not_an_error(shell: str, tmp_path: Path) -> None:
    assert newest(f"{tmp_path}/*.log", "relative/*", "~/nothing/*", f"{tmp_path}/[").missing


NAMES = {  # and a pattern for each
    "a b/train ing.log": "*/train ing.log",
    "-rf/-x.log": "-*/-x.log",
    "a\nb/training\n.log": "*/training\n.log",
    "$(touch hit)/`id`;'\".log": "$(touch hit)/`id`;'\"*",
    "run [1]/é*.log": "run [[]1]/é*",
    "run7.log": "run[0-9].log",
    "runb.log": "run[!0-9a].log",
    "a\\b.log": "a\\b*",
    "{a,b}.log": "{a,b}*",
    "~.log": "~*",
}


def test_names_of_any_kind_are_found_and_nothing_in_them_is_run(
    shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each in a folder, beside it and in the home folder, by turns; those that the shell may mistake, in all three."""
    folder = tmp_path / "logs"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    for number, (name, pattern) in enumerate(NAMES.items()):
        write(folder / name, f"{name}\n")
        ways = (f"{folder}/{pattern}", pattern, f"~/{pattern}")
        for way in ways if name[0] in "-$~" else ways[number % 3 :][:1]:
            assert newest(way).text == f"{name}\n", way
    assert not (folder / "hit").exists()


def test_a_file_that_is_called_like_a_pattern_is_meant_before_what_it_matches(shell: str, tmp_path: Path) -> None:
    write(tmp_path / "run1.log", "other\n")
    write(tmp_path / "run[1].log", "literal\n", age=1000)
    assert newest(f"{tmp_path}/run[1].log").text == "literal\n"


def test_logs_of_process_jobs_are_found_where_they_are(shell: str, tmp_path: Path) -> None:
    start_process_job("local", "echo 'step 3/9'; sleep 5", "run")
    assert wait_until(lambda: newest("~/.training_monitor/jobs/*/log").text == "step 3/9\n")


def test_the_newest_job_of_a_ray_head_is_found_by_the_log_of_its_driver(shell: str, tmp_path: Path) -> None:
    logs = tmp_path / "ray" / "session_2026-01-01_1" / "logs"
    write(logs / "job-driver-raysubmit_old.log", "step 9/9 loss 0.1\nTraining finished\n", age=900)
    write(logs / "job-driver-my job.log", "step 3/9 loss 0.5\n", age=300)
    write(logs / "dashboard.log", "step 1/1\n")
    (tmp_path / "ray" / "session_latest").symlink_to(logs.parent)
    [pattern] = [each for each in DEFAULT_LOG_PATHS if each.startswith("/tmp/ray/")]
    spec = MemberSpec("local", log_paths=(pattern.replace("/tmp", str(tmp_path), 1),))
    [row] = FleetMonitor([spec]).update_all_metrics().values()
    assert (row.step, row.total_steps, row.finished) == (3, 9, None)


def test_a_log_that_is_written_stays_the_log_and_one_that_is_not_gives_way(shell: str, tmp_path: Path) -> None:
    first = write(tmp_path / "a.log", "step 1\n", age=30)
    pattern = f"{tmp_path}/*.log"
    read = newest(pattern)
    write(tmp_path / "other.log", "noise\n")
    again = newest(pattern, cursor=read.cursor)
    assert (again.text, again.reset) == ("", None)
    os.utime(first, (1, 1))
    turned = newest(pattern, cursor=read.cursor)
    assert (turned.text, turned.reset) == ("noise\n", "rotated")
    first.unlink()
    assert newest(pattern, cursor=read.cursor).text == "noise\n"


# ---------------------------------------------------------------- rented instances


# Where no log is named, the fleet finds what the tests beside this one train on this machine.
OF_OTHER_TESTS = {"stall", "failed", "finished"}


class Rented:
    """Instances of the loopback account that are all this ssh server, each with a log of its own."""

    def __init__(self, api: VastApi, sshd: SshServer, folder: Path) -> None:
        self.api, self.sshd, self.folder = api, sshd, folder

    def add(self, number: int, text: str = "step 10/100 loss 0.5\n", **details: Any) -> None:
        self.api.add_instance(number, **{"ssh_host": "127.0.0.1", "ssh_port": self.sshd.port, **details})
        self.write(number, text)

    def write(self, number: int, text: str) -> None:
        with (self.folder / f"{number}.log").open("a") as file:
            file.write(text)

    def specs(self, *numbers: int) -> list[MemberSpec]:
        return [MemberSpec(f"vast://{number}", log_paths=(f"{self.folder}/{number}.l*g",)) for number in numbers]


@pytest.fixture
def rented(vast: VastApi, sshd: SshServer, tmp_path: Path) -> Rented:
    if sshd.user != "root":
        pytest.skip("an instance's user is root, and this server's is not: nothing here was tested")
    folder = tmp_path / "output of all"
    folder.mkdir()
    return Rented(vast, sshd, folder)


def by_number(rows: dict[str, TrainingMetrics]) -> dict[Any, TrainingMetrics]:
    return {row.instance_id: row for row in rows.values()}


def test_an_instance_whose_proxy_refuses_is_reached_directly(rented: Rented, transport: WatchedTransport) -> None:
    of_ssh = {"22/tcp": [{"HostIp": "0.0.0.0", "HostPort": str(rented.sshd.port)}]}
    rented.add(1, ssh_host="127.0.0.1", ssh_port=free_port(), public_ipaddr="127.0.0.1", ports=of_ssh)
    rented.add(2, ssh_host=None, ssh_port=None, public_ipaddr="127.0.0.1", ports=of_ssh)
    rows = by_number(FleetMonitor(rented.specs(1, 2), transport=transport).update_all_metrics())
    assert {number: (row.step, row.error) for number, row in rows.items()} == {1: (10, None), 2: (10, None)}
    rented.api.add_instance(3, ssh_host="127.0.0.1", ssh_port=free_port(), actual_status="exited", ports={})
    with pytest.raises(TargetUnreachable, match="status exited") as caught:
        check_training("vast://3")
    assert "vastai start instance 3" in str(caught.value)


def test_three_instances_cost_one_listing_a_refresh_and_one_round_trip_each(
    rented: Rented, transport: WatchedTransport, tmp_path: Path
) -> None:
    for number in range(1, 4):
        rented.add(number, f"step {number}/100 loss 0.{number}\n")
    history = History(Store(str(tmp_path / "history")))
    monitor = FleetMonitor(rented.specs(1, 2, 3), history=history, transport=transport)
    rows = by_number(monitor.update_all_metrics())
    assert {number: row.step for number, row in rows.items()} == {number: number for number in range(1, 4)}
    assert all(row.status == "running" and row.error is None and row.ram_util for row in rows.values())
    assert rented.api.requests.count(LIST) == 1 and rented.api.requests.count(USER) == 1
    rented.write(3, "step 50/100 loss 0.01\n")
    rows = by_number(monitor.update_all_metrics())
    assert rows[3].step == 50 and list(rows[3].recent_logs) == ["step 3/100 loss 0.3", "step 50/100 loss 0.01"]
    assert rented.api.requests.count(LIST) == 2 and not [each for each in rented.api.requests if "v0/instances" in each]
    assert len([argv for argv in transport.argvs if argv[0] == "ssh"]) == 6
    assert [sample.values["step"] for sample in history.read("vast://3#" + str(rented.folder / "3.l*g"), 0)] == [3, 50]
    assert monitor.snapshot().summary.credit == 12.5


def test_while_the_api_fails_rows_stay_and_machines_are_asked(rented: Rented, transport: WatchedTransport) -> None:
    rented.add(1)
    monitor = FleetMonitor(rented.specs(1), transport=transport)
    for status, step in ((500, 11), (401, 12)):
        rented.api.fail_with = 0
        monitor.update_all_metrics()
        assert monitor.snapshot().error is None
        rented.api.fail_with = status
        rented.write(1, f"step {step}/100 loss 0.4\n")
        [row] = monitor.update_all_metrics().values()
        snapshot = monitor.snapshot()
        assert (row.status, row.step, row.error) == ("running", step, None)
        assert snapshot.error and snapshot.stale_since == snapshot.listed_at and not snapshot.alerts
    rented.api.fail_with = 0
    monitor.update_all_metrics()
    assert monitor.snapshot().error is None


def test_an_api_that_hangs_delays_no_look_and_no_snapshot(rented: Rented, transport: WatchedTransport) -> None:
    rented.add(1)
    monitor = FleetMonitor(rented.specs(1), config=FleetConfig(interval=1.0), transport=transport)
    monitor.update_all_metrics()
    rented.api.hang = LIST
    monitor.start()
    assert rented.api.hanging.wait(20)
    rented.write(1, "step 12/100 loss 0.4\n")
    assert wait_until(lambda: monitor.snapshot().rows[0].step == 12, 20)
    assert monitor.snapshot().refreshing
    rented.api.hang = None
    rented.api.released.set()
    monitor.close()


def test_a_destroyed_instance_is_gone_and_a_vanished_one_lost(rented: Rented, transport: WatchedTransport) -> None:
    for number in (1, 2, 3):
        rented.add(number)
    monitor = FleetMonitor(whole_account=True, transport=transport)
    monitor.update_all_metrics()
    monitor.act("destroy", ["vast://1"])

    def told() -> list[tuple[str, str]]:
        alerts = monitor.snapshot().alerts
        mine = [alert for alert in alerts if alert.key and "#" not in alert.key]
        return [(alert.key, alert.kind) for alert in mine if alert.kind not in OF_OTHER_TESTS]

    assert wait_until(told, 60) and told() == [("vast://1", "destroyed")]
    del rented.api.instances[2]
    rows = by_number(monitor.update_all_metrics())
    assert {number: row.status for number, row in rows.items()} == {1: "lost", 2: "lost", 3: "running"}
    assert told()[1:] == [("vast://2", "lost")]


def test_an_instance_whose_ssh_is_down_says_why_and_the_others_go_on(
    rented: Rented, transport: WatchedTransport
) -> None:
    rented.add(1)
    rented.add(2, ssh_port=9)  # nobody listens there
    rows = by_number(FleetMonitor(rented.specs(1, 2), transport=transport).update_all_metrics())
    assert rows[1].step == 10 and rows[2].status == "running" and "refused" in (rows[2].error or "")


# ---------------------------------------------------------------- all kinds in one fleet


def test_pods_ssh_hosts_instances_and_jobs_are_one_fleet(
    rented: Rented, in_pod: Place, kube: KubernetesApi, tmp_path: Path, transport: WatchedTransport
) -> None:
    rented.add(7)
    (tmp_path / "pod.log").write_text("step 3/9 loss 1.5\n")
    start_process_job("local", "echo 'step 4/9 loss 0.5'; sleep 30", "mine")
    start_process_job("local", "echo 'step 9/9 loss 0.5'; exit 3", "bad")
    specs = [
        MemberSpec("local", "process:mine", groups=("jobs",)),
        MemberSpec("local", "process:bad", groups=("jobs",)),
        MemberSpec("local", "process:nobody"),
        MemberSpec(in_pod.address, log_paths=(f"{tmp_path}/pod.log",), name="a pod"),
        MemberSpec("k8s://default/gone"),
        MemberSpec(rented.sshd.address, log_paths=(f"{rented.folder}/7.log",)),
        *rented.specs(7),
    ]
    monitor = FleetMonitor(specs, transport=transport)
    assert wait_until((Path(os.environ["TRAINING_MONITOR_JOBS_DIR"]) / "bad" / "exit_code").exists)
    monitor.update_all_metrics()
    rows = {row.key: row for row in monitor.snapshot().rows}
    assert list(rows) == [spec.key for spec in specs] and monitor.snapshot().groups == ("jobs",)
    seen = [(row.status, row.step) for row in rows.values()]
    assert seen == [
        ("running", 4),
        ("failed", 9),
        ("unknown", None),
        ("unknown", 3),
        ("unknown", None),
        ("unknown", 10),
        ("running", 10),
    ]
    errors = [key for key, row in rows.items() if row.error]
    assert errors == ["k8s://default/gone"] and "gone" in (rows["k8s://default/gone"].error or "")
    assert "process:nobody" in (rows["local#process:nobody"].message or "")
    monitor.act("stop", ["local#process:mine"])
    assert wait_until(lambda: "stopped" in [alert.kind for alert in monitor.snapshot().alerts], 30)
    assert monitor.update_all_metrics()["local#process:mine"].status == "stopped"


def test_nothing_runs_on_after_it_was_closed(rented: Rented, transport: WatchedTransport) -> None:
    rented.add(1)
    before = set(threading.enumerate())
    monitor = FleetMonitor(rented.specs(1), config=FleetConfig(interval=1.0), transport=transport)
    monitor.start()
    assert wait_until(lambda: monitor.snapshot().rows[0].step == 10, 20)
    monitor.close()

    def left() -> list[str]:
        return [each.name for each in set(threading.enumerate()) - before if each.name.startswith("training_monitor")]

    assert wait_until(lambda: not left(), 20)
