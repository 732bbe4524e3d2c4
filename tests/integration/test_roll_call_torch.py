"""The roll call over a real `torch.distributed` run on CPUs (gloo), one rank of which does not get its data."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import Surroundings, free_port
from tests.integration.roll_call_training import OURS, wait_for
from tests.requirements import require, require_package
from training_monitor.explain.explain import explain_training

WORLD, ODD, ODD_STEP = 3, 1, 3
TRAIN = f"""
import os
import time

import torch
import torch.distributed as dist


def load_batch(rank, step):
    if (rank, step) == ({ODD}, {ODD_STEP}):
        open(f"rank-{{rank}}", "w").write("odd")
        time.sleep(3600)  # odd
    return torch.full((4,), float(rank))


def train_step(rank, step):
    batch = load_batch(rank, step)
    open(f"rank-{{rank}}", "w").write(str(step))
    dist.all_reduce(batch)  # waits
    return batch


dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(1, 1000):
    train_step(rank, step)
    if rank == 0:
        print(f"step {{step}}/1000 loss {{1 / step}}", flush=True)
"""
LINES = {mark: 1 + TRAIN.splitlines().index(line) for line in TRAIN.splitlines() for mark in ("odd", "waits")
         if line.endswith(f"# {mark}")}  # fmt: skip


@pytest.fixture
def ranks(surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The processes of the run by rank, each where it stays; py-spy is on PATH."""
    require_package("torch")
    (surroundings.tools / "py-spy").symlink_to(require("py-spy"))
    folder = surroundings.folder / "run"
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    known = {name: value for name, value in os.environ.items() if name not in OURS}
    known |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    known |= {"WORLD_SIZE": str(WORLD), "LOCAL_WORLD_SIZE": str(WORLD)}
    # As a shell starts them: side by side, in one session.
    script = 'for rank in 0 1 2; do RANK=$rank LOCAL_RANK=$rank "$0" train.py & echo $! >>pids; done; wait'
    log = (folder / "train.log").open("wb")
    with subprocess.Popen(
        ["sh", "-c", script, sys.executable], cwd=folder, stdout=log, stderr=log, start_new_session=True, env=known
    ) as shell:

        def are_there() -> bool:
            steps = {path.name: path.read_text() for path in folder.glob("rank-*")}
            return [steps.get(f"rank-{rank}") for rank in range(WORLD)] == ["3", "odd", "3"]

        try:
            wait_for(are_there, (folder / "train.log").read_text, 120)
            yield [int(pid) for pid in (folder / "pids").read_text().split()]
        finally:
            os.killpg(shell.pid, signal.SIGKILL)


def test_the_rank_that_waits_for_its_data_is_named(ranks: list[int]) -> None:
    report = explain_training("local", ranks[0], timeout=60)
    said = report["explanation"]
    assert [(each["rank"], each["pid"]) for each in report["culprits"]] == [(ODD, ranks[ODD])], said
    [culprit] = report["culprits"]
    assert culprit["where"] and f"train.py:{LINES['odd']}" in culprit["where"] and "load_batch" in culprit["where"]
    [majority] = [group for group in report["groups"] if group["is_majority"]]
    assert sorted(majority["ranks"]) == [0, 2]
    assert "all_reduce" in majority["where"] and f"train.py:{LINES['waits']}" in majority["where"]
    assert "all_reduce" in said and f"rank {ODD}" in said and f"train.py:{LINES['odd']}" in said, said
    assert {each["rank"]: each["pid"] for each in report["ranks"] if each["rank"] is not None} == dict(enumerate(ranks))
    assert {each["stacks_from"] for each in report["ranks"] if each["rank"] is not None} == {"py-spy"}
    assert report["confidence"] != "none"
    assert all(Path(f"/proc/{pid}").exists() for pid in ranks)
