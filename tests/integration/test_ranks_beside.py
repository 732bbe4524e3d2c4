"""Ranks that nothing but their environment binds together: each has a session and a log of its own, as under srun."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import Surroundings, free_port
from tests.integration.roll_call_training import OURS, wait_for
from tests.requirements import require
from training_monitor.core.models import Reply
from training_monitor.why.explain import explain_training
from training_monitor.why.processes import processes_question
from training_monitor.why.report import ExplanationReport

WORLD, ODD = 3, 1
SHELLS = [name for name in ("dash", "bash", "busybox") if shutil.which(name)]
TOOLS = "cat head tr grep sed ls sleep uname".split()
TRAIN = """
import os
import socket
import time


def load_batch():
    time.sleep(3600)


def meet():
    one, other = socket.socketpair()
    one.recv(1)


print("step 7/1000 loss 0.5", flush=True)
load_batch() if os.environ.get("ODD") else meet()
"""

Start = Callable[..., list[int]]


@pytest.fixture
def start(surroundings: Surroundings) -> Iterator[Start]:
    """Start ranks with these variables, each with a log `NAME-RANK.log`, and return their pids; py-spy is on PATH."""
    (surroundings.tools / "py-spy").symlink_to(require("py-spy"))
    (surroundings.folder / "train.py").write_text(TRAIN)
    known = {name: value for name, value in os.environ.items() if name not in OURS}
    started: list[subprocess.Popen[bytes]] = []

    def run(name: str, **variables: str) -> list[int]:
        sizes = {"WORLD_SIZE": str(WORLD), "LOCAL_WORLD_SIZE": str(WORLD)}
        logs = [surroundings.folder / f"{name}-{rank}.log" for rank in range(WORLD)]
        for rank, log in enumerate(logs):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank), **({"ODD": "1"} if rank == ODD else {})}
            with log.open("wb") as output:
                started.append(
                    subprocess.Popen(
                        [sys.executable, "train.py"],
                        cwd=surroundings.folder,
                        env={**known, **sizes, **variables, **own},
                        stdout=output,
                        stderr=output,
                        start_new_session=True,
                    )
                )
        wait_for(lambda: all(log.read_text() for log in logs), lambda: "no step", 60)
        return [each.pid for each in started[-WORLD:]]

    yield run
    for each in started:
        each.kill()
        each.wait()


def end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def explain(log: Path) -> ExplanationReport:
    return explain_training("local", str(log), timeout=60)


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_finds_them(shell: str, start: Start, tmp_path: Path) -> None:
    pids, other = start("mine", MASTER_PORT=str(free_port())), start("other", MASTER_PORT=str(free_port()))
    tools = shutil.which("busybox") if shell == "busybox" else None
    for tool in ("sh", *TOOLS):
        (tmp_path / tool).symlink_to(tools or shutil.which(shell if tool == "sh" else tool, path=os.defpath) or tool)
    question = processes_question(f"echo {pids[2]}")
    command = [str(tmp_path / "sh"), "-c", question.script]
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": str(tmp_path)}, check=True)
    seen = question.parse(Reply(done.stdout, 0, 2.0))
    assert seen.processes.keys() >= set(pids) and seen.processes.keys().isdisjoint(other)
    assert (seen.named, seen.is_searched) == ((pids[2],), True)


@pytest.mark.parametrize("job", ["MASTER_PORT", "PMIX_NAMESPACE"])
def test_by_the_log_of_one_rank_all_are_found(job: str, start: Start, surroundings: Surroundings) -> None:
    port = free_port()
    pids = start("mine", MASTER_ADDR="127.0.0.1", **{job: str(port)})
    start("other", MASTER_ADDR="127.0.0.1", **{job: f"{port}0"})
    report = explain(surroundings.folder / "mine-0.log")
    said = report["explanation"]
    assert {each["rank"]: each["pid"] for each in report["ranks"]} == dict(enumerate(pids)), said
    assert ([each["pid"] for each in report["culprits"]], report["confidence"]) == ([pids[ODD]], "high"), said
    assert (report["missing_ranks"], report["unseen_ranks"]) == ([], [])


def test_one_that_has_ended_is_missing_only_where_the_others_were_looked_for(
    start: Start, surroundings: Surroundings
) -> None:
    bound, loose = start("bound", MASTER_PORT=str(free_port())), start("loose")
    end(bound[ODD])
    end(loose[ODD])
    assert explain(surroundings.folder / "bound-0.log")["missing_ranks"] == [ODD]
    report = explain(surroundings.folder / "loose-0.log")
    assert (report["missing_ranks"], report["unseen_ranks"], report["culprits"]) == ([], [1, 2], [])
    assert "Not seen: ranks 1 and 2, which may be among processes that were not inspected" in report["explanation"]


def test_a_shell_with_the_variables_of_a_training_is_no_part_of_it(start: Start, surroundings: Surroundings) -> None:
    port = {"MASTER_PORT": str(free_port())}
    pids = start("mine", **port)
    shell = ["sh", "-c", f"'{sys.executable}' -c 'import time; time.sleep(3600)'; :"]
    with subprocess.Popen(shell, env={**os.environ, **port}, start_new_session=True) as beside:
        try:
            report = explain(surroundings.folder / "mine-0.log")
        finally:
            os.killpg(beside.pid, signal.SIGKILL)
    assert sorted(each["pid"] for each in report["ranks"]) == sorted(pids)
    assert not [each for rank in report["ranks"] for each in rank["children"]]
