"""The trainings of this machine in `fleet`, `metrics` and `check`: real processes, by the names of their scripts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import FakeClock
from tests.integration.commands import run_command
from tests.integration.conftest import Surroundings, WatchedTransport, kill, wait_until
from training_monitor.core.store import Store
from training_monitor.fleet.fleet import FleetMonitor
from training_monitor.fleet.search import FIND_SECONDS
from training_monitor.fleet.values import MemberSpec
from training_monitor.look.check import check_training

SCRIPT = """
import os, sys, time
for step in range(1, 1001):
    print(f"step {step}/1000 loss 0.5", flush=True)
    time.sleep(0.0 if os.path.exists(sys.argv[0] + ".hurry") else 0.1)
"""
WITH_MONITOR = """
import time
from training_monitor import TrainingMonitor
with TrainingMonitor("run.json") as monitor:
    monitor.start_epoch(1, total_batches=10_000)
    for _ in range(10_000):
        monitor.start_batch()
        time.sleep(0.05)
"""
KINDS = ("alpha", "beta", "gamma")


def script_of(kind: str) -> str:
    return f"train_{kind}_{os.getpid()}.py"


class Trainings:
    """Trainings in a folder, each of a script of its own: one that another test begins must not take its place."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.running = folder, dict[str, subprocess.Popen[bytes]]()

    def start(self, kind: str) -> None:
        (self.folder / script_of(kind)).write_text(SCRIPT)
        log = self.folder / f"{kind}.log"
        with log.open("wb") as out:
            words = [sys.executable, script_of(kind)]
            begin = subprocess.Popen(words, stdout=out, stderr=out, stdin=subprocess.DEVNULL, cwd=self.folder)
        self.running[kind] = begin
        assert wait_until(lambda: log.stat().st_size > 50)

    def finish(self, kind: str) -> None:
        (self.folder / f"{script_of(kind)}.hurry").touch()
        self.running[kind].wait()

    def end(self, kind: str) -> None:
        kill(self.running[kind].pid)
        self.running[kind].wait()

    def name(self, kind: str) -> str:
        return f"{script_of(kind)} (pid {self.running[kind].pid})"

    def among(self, members: list[dict[str, Any]]) -> dict[str, Any]:
        """Those of these members that are ours, by what they train: others train on this machine, too."""
        kinds = {self.name(kind): kind for kind in self.running}
        return {kinds[each["name"]]: each for each in members if each["name"] in kinds}


@pytest.fixture
def trainings(surroundings: Surroundings) -> Iterator[Trainings]:
    found = Trainings(surroundings.folder)
    yield found
    for kind in found.running:
        found.end(kind)


def fleet() -> list[dict[str, Any]]:
    members: list[dict[str, Any]] = json.loads(run_command("fleet", "local", "--once", "--json").stdout)["members"]
    return members


def test_three_trainings_of_a_host_are_three_rows_and_those_that_ended_stay(trainings: Trainings) -> None:
    for kind in KINDS:
        trainings.start(kind)
    seen = trainings.among(fleet())
    assert seen.keys() == {*KINDS} and {each["state"] for each in seen.values()} == {"running"}
    keys = {kind: each["key"] for kind, each in seen.items()}
    assert all(key in ("local", f"local#{trainings.running[kind].pid}") for kind, key in keys.items())
    assert {each["instance_id"] for each in seen.values()} == {"local"} and all(each["step"] for each in seen.values())
    trainings.end("alpha")
    trainings.finish("beta")
    states = {kind: each["state"] for kind, each in trainings.among(fleet()).items()}
    assert states == {**dict.fromkeys(KINDS, "running"), "alpha": "failed", "beta": "finished"}
    text = run_command("metrics", "local", "--once", "--no-history").stdout
    for kind in KINDS:
        assert f'name="{trainings.name(kind)}"' in text
    run_command("check", "local", "--forget", "--json")
    assert trainings.among(fleet()).keys() == {*KINDS} - {"alpha", "beta"}


def test_what_a_fleet_saw_end_a_check_reports(trainings: Trainings, tmp_path: Path) -> None:
    store = Store(str(tmp_path / "state"))
    trainings.start("alpha")
    trainings.start("beta")
    FleetMonitor([MemberSpec("local")], store=store).update_all_metrics()
    trainings.end("alpha")
    names = {f"pid {each.pid}": kind for kind, each in trainings.running.items()}
    jobs = check_training("local", store=store)["jobs"]
    assert {names[job["name"]]: job["state"] for job in jobs if job["name"] in names} == {
        "alpha": "failed",
        "beta": "running",
    }


def test_the_search_is_in_the_round_trip_of_the_look(trainings: Trainings, transport: WatchedTransport) -> None:
    trainings.start("alpha")
    trainings.start("beta")
    clock = FakeClock()
    monitor = FleetMonitor([MemberSpec("local")], transport=transport, clock=clock)
    monitor.update_all_metrics()
    assert len(transport.argvs) == 2, "one to find them, one to look at those that are new"
    clock.sleep(FIND_SECONDS)
    monitor.update_all_metrics()
    assert len(transport.argvs) in (3, 4), "one more where others have begun a training here"


def test_the_page_shows_each_training(trainings: Trainings) -> None:
    from training_monitor.web.board import Board

    trainings.start("alpha")
    trainings.start("beta")
    monitor = FleetMonitor([MemberSpec("local")])
    monitor.update_all_metrics()
    board = Board(monitor)
    rows = {name: key for key, each in board.state().rows.items() if (name := json.loads(each)["name"])}
    assert {trainings.name("alpha"), trainings.name("beta")} <= rows.keys()
    page = board.member(rows[trainings.name("beta")])
    assert any("step" in line for line in page["log"]) and page["number"] == "local"


def test_a_pid_or_script_finds_the_progress_file_without_ray(trainings: Trainings) -> None:
    script = trainings.folder / script_of("alpha")
    script.write_text(WITH_MONITOR)
    begin = subprocess.Popen([sys.executable, script], stdout=subprocess.DEVNULL, cwd=trainings.folder)
    trainings.running["alpha"] = begin
    assert wait_until((trainings.folder / "run.json").exists)
    for word in (str(begin.pid), script.name):
        [member] = json.loads(run_command("fleet", f"local#{word}", "--once", "--json").stdout)["members"]
        assert (member["state"], bool(member["step"])) == ("running", True), (word, member)
