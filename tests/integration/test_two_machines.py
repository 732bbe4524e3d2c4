"""Two machines supervise one training over the real kubectl and ssh, each with a name, state and network of its own.

Whatever happens to one of them, one training runs at a time. Pods and ssh hosts take turns: both run the same.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.conftest import Place, wait_until
from tests.integration.scripts import Process
from tests.integration.test_killed_supervisor import PACKAGE, TRAINING, Census
from training_monitor.targets.target import parse_target

LEASE = 6
HANG = """
import signal, sys, time

def end(number, frame):
    with open(sys.argv[1], "a") as terms:
        terms.write("TERM\\n")
    sys.exit(143)

signal.signal(signal.SIGTERM, end)
for step in range(1, 6):
    print(f"step {step}/40 loss 0.5", flush=True)
    time.sleep(0.1)
time.sleep(600)
"""


class Machine:
    """A supervisor's machine: `cut` ends its network, which no connection of before outlives."""

    def __init__(self, name: str, place: Place, hours_off: int = 0) -> None:
        self.name, self.place = name, place
        self.folder = place.folder / name
        tools = self.folder / "tools"
        tools.mkdir(parents=True)
        for tool in ("ssh", "kubectl"):
            real = place.surroundings.tools / tool
            if real.exists():
                (tools / tool).write_text(
                    f"#!/bin/sh\nif [ -e {shlex.quote(str(self.folder / 'cut'))} ]; then\n"
                    f"  echo 'connect: Network is unreachable' >&2; exit 255\nfi\n"
                    f'exec {shlex.quote(str(real))} "$@"\n'
                )
                (tools / tool).chmod(0o755)
        self.tools = tools
        if hours_off:  # Python imports this file at its start
            clock = f"import time\nreal = time.time\ntime.time = lambda: real() + {3600 * hours_off}\n"
            (tools / "sitecustomize.py").write_text(clock)
        self.started: list[subprocess.Popen[str]] = []

    def start(self, command: str, *options: str) -> subprocess.Popen[str]:
        words = ["unshare", "--uts", "sh", "-c", f'hostname {self.name}; exec "$@"', "sh"]
        environ = {
            **os.environ,
            "PATH": f"{self.tools}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": f"{self.tools}{os.pathsep}{PACKAGE.parent}",
            "TRAINING_MONITOR_STATE_DIR": str(self.folder / "state"),
            "TRAINING_MONITOR_LEASE": str(LEASE),
        }
        process = subprocess.Popen(
            [*words, sys.executable, "-m", "training_monitor", command, *options],
            stdin=subprocess.DEVNULL,
            stdout=(self.folder / "out").open("a"),
            stderr=(self.folder / "err").open("a"),
            env=environ,
            cwd=self.folder,
            text=True,
        )
        self.started.append(process)
        return process

    def supervise(self, *options: str, crash_at: int = 0, steps: int = 300) -> subprocess.Popen[str]:
        output = self.place.folder / "checkpoints"
        training = [sys.executable, str(TRAINING), "--output", str(output), "--step-seconds", "0.1"]
        training += ["--steps", str(steps), "--save-every", "20", "--crash-at", str(crash_at), "--hang-at", "0"]
        given = ["--target", self.place.address, "--name", "two", "--checkpoint-dir", str(output), "--json"]
        given += ["--resume-argument=--resume", "--retry-delay", "1", "--interval", "2"]
        return self.start("run", *given, *options, "--", *training)

    def cut(self) -> None:
        (self.folder / "cut").touch()

    def mend(self) -> None:
        (self.folder / "cut").unlink()

    def events(self) -> list[dict[str, Any]]:
        lines = (self.folder / "out").read_text().splitlines() if (self.folder / "out").exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def says(self, text: str) -> bool:
        return any(text in event.get("text", "") for event in self.events())

    def error(self) -> str:
        return (self.folder / "err").read_text()


IN_POD = pytest.mark.parametrize("place", ["in_pod"], indirect=True)
OVER_SSH = pytest.mark.parametrize("place", ["over_ssh"], indirect=True)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    (found.folder / "checkpoints").mkdir()
    return found


@pytest.fixture
def census(place: Place) -> Iterator[Census]:
    seen = Census(place.folder / "checkpoints")
    seen.start()
    yield seen
    seen.end()


def ended(process: subprocess.Popen[str], machine: Machine, seconds: float = 120) -> int:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        pytest.fail(f"{machine.name} still runs: {machine.events()[-3:]} {machine.error()[-500:]}")


@OVER_SSH
def test_a_second_supervisor_is_refused_despite_a_wrong_clock(place: Place, census: Census) -> None:
    ann = Machine("machine-a", place)
    first = ann.supervise(steps=10_000)
    assert wait_until(lambda: ann.says("started"), 60), ann.error()
    others = [Machine(f"machine-{name}", place, hours_off=hours) for name, hours in (("b", 0), ("c", 1), ("d", -1))]
    refused = [(bob, bob.supervise()) for bob in others]
    for bob, process in refused:
        assert ended(process, bob) == 1
        assert "two is already supervised by " in bob.error() and "@machine-a" in bob.error(), bob.error()
    eve = Machine("machine-e", place)
    assert ended(eve.start("status", place.address, "process:two-attempt-1", "--json"), eve) == 0
    [said] = [json.loads((eve.folder / "out").read_text())]
    assert said["jobs"][0]["supervisor"]["host"] == "machine-a" and said["jobs"][0]["supervisor"]["age"] <= LEASE
    before = len(ann.events())
    assert wait_until(lambda: len(ann.events()) > before) and first.poll() is None, ann.error()
    assert census.most == 1


@IN_POD
def test_a_killed_one_is_taken_over_and_its_training_goes_on(place: Place, census: Census) -> None:
    ann, bob = Machine("machine-a", place), Machine("machine-b", place)
    first = ann.supervise(crash_at=120, steps=160)
    assert wait_until(lambda: ann.says("started"), 60), ann.error()
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert ended(bob.supervise(crash_at=120, steps=160), bob) == 0, bob.error()
    assert bob.says("for a sign of life") and bob.says("taken over from ")
    result = bob.events()[-1]
    assert result["success"] and result["total_retries"] == 1 and result["final_step"] == 160
    assert [each["job_id"] for each in result["attempts"]] == ["process:two-attempt-1", "process:two-attempt-2"]
    assert census.most == 1


@OVER_SSH
def test_a_cut_longer_than_the_lease_leaves_one_supervisor(place: Place, census: Census) -> None:
    ann, bob = Machine("machine-a", place), Machine("machine-b", place)
    first = ann.supervise(crash_at=60, steps=160)
    assert wait_until(lambda: ann.says("started"), 60), ann.error()
    ann.cut()
    assert wait_until(lambda: any(event["kind"] == "unreachable" for event in ann.events()), 30)
    second = bob.supervise(crash_at=60, steps=160)
    assert wait_until(lambda: bob.says("two-attempt-2 started"), 90), (bob.events(), bob.error())
    ann.mend()
    assert ended(first, ann) == 4
    assert "two was taken over by " in ann.error() and "@machine-b" in ann.error(), ann.error()
    assert ended(second, bob) == 0, bob.error()
    assert bob.events()[-1]["final_step"] == 160
    assert census.most == 1


@IN_POD
def test_a_living_one_gives_way_to_take_over(place: Place, census: Census) -> None:
    ann, bob = Machine("machine-a", place), Machine("machine-b", place)
    first = ann.supervise("--notify", steps=120)
    assert wait_until(lambda: ann.says("started"), 60), ann.error()
    second = bob.supervise("--take-over", steps=120)
    assert ended(first, ann) == 4 and "two was taken over by " in ann.error()
    assert ann.events()[-1]["kind"] == "LeaseLost" and "@machine-b" in ann.events()[-1]["error"]
    assert ended(ann.start("notify", "--list", "--json"), ann) == 0
    [kept] = ann.events()[-1]["notices"]
    told = kept["notice"]
    assert (told["kind"], told["training"], told["target"]) == ("taken_over", "two", str(parse_target(place.address)))
    assert "@machine-b" in str(told["fields"]) and told["command"].startswith("training-monitor status ")
    assert ended(second, bob) == 0 and bob.says("taken over from ") and bob.says("supervising it")
    assert census.most == 1


@OVER_SSH
def test_of_two_watches_that_may_end_a_hang_one_does_and_the_other_when_that_is_killed(place: Place) -> None:
    log, pid_file, terms = (place.folder / name for name in ("log", "pid", "terms"))
    words = ("--log", str(log), "--pid-file", str(pid_file), "--poll", "--terminate", "--interval", "0.5", "--json")
    options = ("watch", place.address, *words, "--stall-after", "3")
    with log.open("w") as output, Process([sys.executable, "-c", HANG, str(terms)], stdout=output) as training:
        pid_file.write_text(str(training.pid))
        ann, bob = Machine("machine-a", place), Machine("machine-b", place)
        first = ann.start(*options, "--grace-period", "10m")
        assert wait_until(lambda: any(event.get("state") == "stalled" for event in ann.events()), 60), ann.error()
        assert ended(bob.start(*options, "--grace-period", "1s"), bob) == 1
        assert f"{log} is already supervised by " in bob.error() and "@machine-a" in bob.error()
        first.kill()
        first.wait()
        assert training.poll() is None
        ended(bob.start(*options, "--grace-period", "1s"), bob)
        assert bob.says("taken over from ") and bob.events()[-1]["end"] == "terminated", bob.events()[-1]
        assert training.wait(30) == 143 and terms.read_text() == "TERM\n"
