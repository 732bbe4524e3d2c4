"""A training that a check saw is reported after its end, until it is forgotten or replaced."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import run_command
from tests.integration.conftest import Surroundings, kill, wait_until
from tests.loopback.kubernetes import NO_PROCESSES
from tests.requirements import require
from training_monitor.jobs.jobs import look_at_job
from training_monitor.jobs.process_jobs import start_process_job

SCRIPT = """
import sys, time
for step in range(int(sys.argv[1]), 1001):
    print(f"step {step}/1000 loss 0.5", flush=True)
    time.sleep(0.1)
"""
Started = list[subprocess.Popen[bytes]]


@pytest.fixture
def started() -> Iterator[Started]:
    programs: Started = []
    yield programs
    for each in programs:
        kill(each.pid)
        each.wait()


def start(started: Started, folder: Path, name: str, step: int = 0, log: str | None = None) -> subprocess.Popen[bytes]:
    script = f"train_{name}_{os.getpid()}.py"  # a later one of the same script, also of another test, takes its place
    (folder / script).write_text(SCRIPT)
    out = folder / (log or f"{name}.log")
    words = [sys.executable, script, str(step)]
    with out.open("wb") as file:
        started.append(subprocess.Popen(words, stdout=file, stderr=file, stdin=subprocess.DEVNULL, cwd=folder))
    wait_until(lambda: out.stat().st_size > 50)
    return started[-1]


def check(folder: Path, *words: str) -> tuple[dict[str, str], int]:
    """The states of the trainings in this folder by their names, and the exit code."""
    done = run_command("check", "local", *words, "--json")
    jobs: list[dict[str, Any]] = json.loads(done.stdout).get("jobs", [])
    return {job["name"]: job["state"] for job in jobs if str(folder) in str(job["log"])}, done.returncode


def name(process: subprocess.Popen[bytes]) -> str:
    return f"pid {process.pid}"


def test_one_of_two_that_was_killed_is_reported_until_it_is_forgotten(
    surroundings: Surroundings, started: Started
) -> None:
    here = surroundings.folder
    one, two = start(started, here, "one"), start(started, here, "two")
    assert check(here)[0] == {name(one): "running", name(two): "running"}
    kill(one.pid)
    one.wait()
    for _ in range(2):
        assert check(here) == ({name(one): "failed", name(two): "running"}, 1)
    assert check(here, str(one.pid)) == ({name(one): "failed"}, 1)
    done = run_command("check", "local", "--forget")
    assert re.search(r"forgot \d+ ended training", done.stderr) and "two.log" in done.stdout, done
    assert check(here)[0] == {name(two): "running"}


def test_a_later_training_replaces_a_finished_one_of_its_script(surroundings: Surroundings, started: Started) -> None:
    here = surroundings.folder
    first = start(started, here, "one", 970)
    assert check(here)[0] == {name(first): "running"}
    first.wait()
    assert check(here)[0] == {name(first): "finished"}
    second = start(started, here, "one", log="again.log")
    assert check(here)[0] == {name(second): "running"}


def test_an_ended_job_does_not_hide_a_later_training_that_was_killed(
    surroundings: Surroundings, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("unshare")
    here = surroundings.folder
    monkeypatch.chdir(here)
    job = start_process_job("local", "echo step 5/5 loss 0.5", "earlier")
    assert wait_until(lambda: look_at_job("local", job).status.is_terminal)
    one = start(started, here, "one")
    kill(one.pid)
    one.wait()
    words = [*NO_PROCESSES, sys.executable, "-m", "training_monitor", "check", "local", "--json"]  # nothing runs there
    os.utime(next(here.rglob("earlier/*log*")), (time.time() - 120,) * 2)
    for age, state, status in ((40, "unknown", 3), (125, "finished", 0)):
        os.utime(here / "one.log", (time.time() - age,) * 2)
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
        assert (json.loads(done.stdout)["jobs"][0]["state"], done.returncode) == (state, status), done.stdout


def test_one_of_several_with_the_same_script_is_not_hidden_by_the_others(
    surroundings: Surroundings, started: Started
) -> None:
    here = surroundings.folder
    one, two = start(started, here, "same", log="1.log"), start(started, here, "same", log="2.log")
    check(here)
    kill(two.pid)
    two.wait()
    assert check(here) == ({name(one): "running", name(two): "failed"}, 1)


def test_how_one_without_a_log_ended_is_not_known(surroundings: Surroundings, started: Started) -> None:
    here = surroundings.folder
    one = start(started, here, "one")
    check(here)
    kill(one.pid)
    one.wait()
    (here / "one.log").unlink()
    done = run_command("check", "local", str(one.pid))
    assert done.returncode == 3 and "it ended, and no log shows whether it succeeded" in done.stdout, done


def test_the_log_of_a_killed_training_does_not_run_unless_another_process_writes_it(
    surroundings: Surroundings, started: Started
) -> None:
    here = surroundings.folder
    one, log = start(started, here, "one"), here / "one.log"
    assert check(here)[0] == {name(one): "running"}
    assert check(here, str(log)) == ({str(log): "running"}, 0)
    kill(one.pid)
    one.wait()
    assert check(here, str(log)) == check(here) == ({name(one): "failed"}, 1)
    with log.open("ab") as out:
        started.append(subprocess.Popen([sys.executable, "-c", SCRIPT, "500"], stdout=out, cwd=here))
    assert wait_until(lambda: "step 505/" in log.read_text())  # some steps: one alone may be where it continues
    assert check(here, str(log)) == ({str(log): "running"}, 0)


@pytest.mark.parametrize("listed", [True, False])
def test_an_ended_training_can_be_named_by_its_script_or_pid(
    surroundings: Surroundings, started: Started, listed: bool
) -> None:
    here = surroundings.folder
    one = start(started, here, "one")
    check(here, *([] if listed else [str(one.pid)]))
    kill(one.pid)
    one.wait()
    script = here / f"train_one_{os.getpid()}.py"
    words = [script.stem, str(one.pid)] if listed else [script.name, str(script)]
    for word in words:
        assert check(here, word) == ({name(one): "failed"}, 1)
    said = [("logs", "step 5/1000"), ("wait", "failed at step")]
    said = said if listed else [("status", "FAILED"), ("why", "No process of the training was found")]
    for word, (command, text) in zip(words, said, strict=True):
        assert text in run_command(command, "local", word).stdout, (command, word)
    if listed:
        assert run_command("stop", "local", script.stem).returncode in (2, 3)  # only what runs can be stopped


def test_a_later_training_of_a_script_replaces_an_ended_one_when_it_is_named(
    surroundings: Surroundings, started: Started
) -> None:
    here = surroundings.folder
    for _ in range(2):
        one = start(started, here, "one")
        assert check(here, str(one.pid))[1] == 0
        kill(one.pid)
        one.wait()
    assert check(here, f"train_one_{os.getpid()}")[0] == {name(one): "failed"}
