"""Pings to a dead-man service on the loopback interface: when they come, and what they never hold up."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.commands import run_command
from tests.integration.conftest import SshServer, Surroundings, kill, wait_until
from tests.loopback.messaging import WEBHOOK_SECRET, Services, close_at_once, hang, refuse
from training_monitor.core.errors import SettingsError
from training_monitor.core.store import Store
from training_monitor.notify.heartbeat import Heartbeat

ROOT = Path(__file__).parents[2]
NOWHERE = f"http://127.0.0.1:9/ping/{WEBHOOK_SECRET}"


@pytest.fixture
def services() -> Iterator[Services]:
    with Services() as running:
        yield running


# ---------------------------------------------------------------- one heartbeat


def test_a_ping_leaves_for_each_look(services: Services) -> None:
    heartbeat = Heartbeat(services.heartbeat)
    for count in range(1, 4):
        heartbeat.beat()
        assert wait_until(lambda count=count: services.pings == count)
    heartbeat.close()
    assert services.pings == 3


def test_a_hanging_heartbeat_delays_no_look(services: Services) -> None:
    services.faults = [hang] * 1000
    problems: list[str] = []
    heartbeat = Heartbeat(services.heartbeat, on_problem=problems.append, timeout=0.2)
    looks = threading.Event()

    def look() -> None:
        for _ in range(1000):
            heartbeat.beat()
        looks.set()

    threading.Thread(target=look, daemon=True).start()
    assert looks.wait(10) and wait_until(lambda: problems != [])
    heartbeat.close(0.0)
    assert services.pings < 10 and "sent no complete response" in problems[0]


def test_the_last_ping_still_leaves_at_the_end(services: Services) -> None:
    heartbeat = Heartbeat(services.heartbeat)
    heartbeat.beat()
    heartbeat.close()
    assert services.pings == 1


def test_a_ping_that_breaks_off_is_tried_again(services: Services) -> None:
    services.faults = [close_at_once, refuse(503)]
    heartbeat = Heartbeat(services.heartbeat)
    heartbeat.beat()
    assert wait_until(lambda: services.pings == 3)
    heartbeat.close()


def test_failing_pings_are_reported_once_without_the_url(services: Services, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    problems: list[str] = []
    heartbeat = Heartbeat(services.heartbeat, on_problem=problems.append)
    services.faults = [refuse(404, f"no check at /ping/{WEBHOOK_SECRET}")] * 3
    for count in range(1, 6):
        heartbeat.beat()
        assert wait_until(lambda count=count: services.pings == count)
    heartbeat.close()
    assert [text.removeprefix(f"heartbeat: {services.url} ").partition(":")[0] for text in problems] == [
        "returned HTTP 404",
        "accepts pings again",
    ]
    nowhere = Heartbeat(NOWHERE, on_problem=problems.append)
    nowhere.beat()
    assert wait_until(lambda: len(problems) == 3) and "refused" in problems[2]
    nowhere.close(0.0)
    assert WEBHOOK_SECRET not in " ".join(problems) + caplog.text


def test_what_is_no_url_is_refused_without_being_shown() -> None:
    for url in ("", "hc-ping.com/UUID-1", "ftp://x/UUID-1", "http://me:UUID-1@x/", "http://x /UUID-1"):
        with pytest.raises(SettingsError) as caught:
            Heartbeat(url)
        assert "UUID-1" not in str(caught.value) and "http or https URL" in str(caught.value)


# ---------------------------------------------------------------- through `watch`


class Watcher:
    """`watch` in a process of its own, and what it printed."""

    def __init__(self, *argv: str, log: Path) -> None:
        self._log = open(log, "ab")  # noqa: SIM115 (for as long as the process)
        options = ("--poll", "--json", "--interval", "0.3")
        command = [sys.executable, "-m", "training_monitor", "watch", *argv, *options]
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(command, env=environ, stdout=self._log, stderr=self._log)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def training(tmp_path: Path) -> Iterator[int]:
    """A training that makes steps for long."""
    script = "i=0; while :; do i=$((i+1)); echo step $i/100000 loss 0.5; sleep 0.2; done"
    with open(tmp_path / "train.log", "wb") as log:
        process = subprocess.Popen(["sh", "-c", script], stdout=log, start_new_session=True)
    assert wait_until(lambda: (tmp_path / "train.log").stat().st_size > 0)
    yield process.pid
    kill(process.pid)
    process.wait()


def test_an_outage_is_reported_once_across_a_kill_and_stops_pings(
    sshd: SshServer, surroundings: Surroundings, training: int, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINING_MONITOR_WEBHOOK", services.webhook)
    monkeypatch.setenv("PING", services.heartbeat)
    printed = surroundings.folder / "printed"
    argv = (sshd.address, str(training), "--name", "night run", "--notify", "--outage-after", "2")
    watcher = Watcher(*argv, "--heartbeat", "env:PING", log=printed)
    try:
        assert wait_until(lambda: services.pings >= 2, 60), printed.read_text()
        sshd.stop()
        assert wait_until(lambda: services.hooked != [], 60), printed.read_text()
        store = Store(str(surroundings.folder / "state"))
        assert wait_until(lambda: store.pending_notices("") == [])  # killed before that, it may tell it again
        blind = services.pings
        watcher.kill()
        watcher = Watcher(*argv, "--heartbeat", "env:PING", log=printed)
        looks = printed.read_text().count('"unreachable"')
        assert wait_until(lambda: printed.read_text().count('"unreachable"') > looks, 60)
        assert not wait_until(lambda: len(services.hooked) > 1 or services.pings > blind, 4)
        sshd.start()
        assert wait_until(lambda: len(services.hooked) == 2 and services.pings > blind, 60), printed.read_text()
    finally:
        watcher.kill()
    gone, back = services.hooked
    assert (gone["kind"], back["kind"]) == ("unreachable", "reached")
    assert {(each["training"], each["target"]) for each in (gone, back)} == {("night run", sshd.address)}
    assert gone["command"] == f"training-monitor doctor {sshd.address}" and gone["command"] in gone["message"]
    assert WEBHOOK_SECRET not in printed.read_text() and json.loads(printed.read_text().splitlines()[0])


@pytest.mark.parametrize("fault", [hang, refuse(500), close_at_once])
def test_a_heartbeat_that_fails_in_whatever_way_leaves_the_watch_alone(
    surroundings: Surroundings, services: Services, fault: object
) -> None:
    services.faults = [fault] * 1000  # type: ignore[list-item]
    log = surroundings.folder / "log"
    log.write_text("step 5/5 loss 0.1\nTraining finished\n")
    done = run_command("watch", "local", "--log", str(log), "--poll", "--heartbeat", services.heartbeat)
    assert (done.returncode, services.pings >= 1) == (0, True) and "finished at step 5" in done.stdout
    assert WEBHOOK_SECRET not in done.stdout + done.stderr and done.stderr.count("heartbeat: ") <= 1
