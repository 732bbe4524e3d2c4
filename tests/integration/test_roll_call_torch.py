"""The roll call over real `torch.distributed` runs on CPUs (gloo), one rank of which does not get its data."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integration.conftest import Surroundings, free_port
from tests.integration.roll_call_training import OURS, wait_for
from tests.requirements import require, require_package
from training_monitor.why.explain import explain_training
from training_monitor.why.report import ExplanationReport

WORLD, ODD, ODD_STEP = 3, 1, 3
TRAIN = f"""
import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing


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


def train(rank):
    open(f"pid-{{rank}}", "w").write(str(os.getpid()))
    dist.init_process_group("gloo", rank=rank, world_size={WORLD})
    for step in range(1, 1000):
        train_step(rank, step)
        if rank == 0:
            print(f"step {{step}}/1000 loss {{1 / step}}", flush=True)


if __name__ == "__main__":
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]))
    else:
        torch.multiprocessing.start_processes(train, nprocs={WORLD}, start_method="forkserver")
"""
# DistributedDataParallel reduces the gradients within backward(), which is no collective by its name.
TRAIN_BY_DDP = f"""
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


def report(text):
    open(f"rank-{{rank}}", "w").write(text)


class Batches(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        if sys.argv[1] == "worker" and (rank, index + 1) == ({ODD}, {ODD_STEP}):
            report("odd")
            open("fifo").read()  # reads
        return torch.full((4,), float(rank))


def train():
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    for step, batch in enumerate(DataLoader(Batches(), num_workers=1), 1):  # loads
        if sys.argv[1] == "uneven" and (rank, step) == ({ODD}, {ODD_STEP}):
            report("odd")
            break
        if rank != {ODD}:
            report(str(step))
        model(batch).sum().backward()  # reduces
        if rank == 0:
            print(f"step {{step}}/1000 loss {{1 / step}}", flush=True)


dist.init_process_group("gloo")
rank = dist.get_rank()
open(f"pid-{{rank}}", "w").write(str(os.getpid()))
train()
dist.barrier()  # ends
"""
# Lightning numbers the processes that it starts by LOCAL_RANK alone, and is the first rank itself.
TRAIN_BY_LIGHTNING = f"""
import os

import lightning
import torch

rank = int(os.environ.get("LOCAL_RANK", 0))
open(f"pid-{{rank}}", "w").write(str(os.getpid()))


class Batches(torch.utils.data.Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        return torch.full((4,), float(rank))


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1e-3)

    def training_step(self, batch, index):
        is_odd = (rank, index + 1) == ({ODD}, {ODD_STEP})
        open(f"rank-{{rank}}", "w").write("odd" if is_odd else str(index + 1))
        if is_odd:
            open("fifo").read()  # reads
        return self.layer(batch).sum()


lightning.Trainer(
    accelerator="cpu", devices={WORLD}, strategy="ddp", max_steps=1000, logger=False,
    enable_progress_bar=False, enable_checkpointing=False, enable_model_summary=False,
).fit(Model(), torch.utils.data.DataLoader(Batches()))
"""
SIZES = {"WORLD_SIZE": str(WORLD), "LOCAL_WORLD_SIZE": str(WORLD)}
# As a shell starts them: side by side, in one session.
SIDE_BY_SIDE = 'for rank in 0 1 2; do RANK=$rank LOCAL_RANK=$rank "$0" train.py "$@" & done; wait'


def line_of(mark: str, script: str) -> str:
    [number] = (at for at, line in enumerate(script.splitlines(), 1) if line.endswith(f"# {mark}"))
    return f"train.py:{number}"


class Run(NamedTuple):
    """Its first process, and those of its ranks."""

    first: int
    ranks: list[int]


Start = Callable[..., Run]


@pytest.fixture
def start(surroundings: Surroundings) -> Iterator[Start]:
    """Start a run by a shell, and wait until each rank is where it stays; py-spy is on PATH."""
    require_package("torch")
    (surroundings.tools / "py-spy").symlink_to(require("py-spy"))
    with ExitStack() as stack:
        yield lambda train, script, *words, **variables: stack.enter_context(
            running(surroundings.folder / "run", train, script, words, variables)
        )


@contextmanager
def running(folder: Path, train: str, script: str, words: tuple[str, ...], variables: dict[str, str]) -> Iterator[Run]:
    folder.mkdir()
    (folder / "train.py").write_text(train)
    os.mkfifo(folder / "fifo")
    known = {name: value for name, value in os.environ.items() if name not in OURS}
    known |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1", **variables}
    log = (folder / "train.log").open("wb")
    with subprocess.Popen(
        ["sh", "-c", script, sys.executable, *words],
        cwd=folder,
        stdout=log,
        stderr=log,
        start_new_session=True,
        env=known,
    ) as shell:

        def are_there() -> bool:
            steps = {path.name: path.read_text() for path in folder.glob("rank-*")}
            return [steps.get(f"rank-{rank}") for rank in range(WORLD)] == ["3", "odd", "3"]

        try:
            wait_for(are_there, (folder / "train.log").read_text, 120)
            yield Run(shell.pid, [int((folder / f"pid-{rank}").read_text()) for rank in range(WORLD)])
        finally:
            os.killpg(shell.pid, signal.SIGKILL)


def check_the_culprit(report: ExplanationReport, pid: int) -> None:
    said = report["explanation"]
    assert [each["pid"] for each in report["culprits"]] == [pid], said
    [culprit] = report["culprits"]
    assert culprit["where"] and line_of("odd", TRAIN) in culprit["where"] and "load_batch" in culprit["where"]
    [majority] = [group for group in report["groups"] if group["is_majority"]]
    assert majority["where"] and "all_reduce" in majority["where"]
    assert line_of("waits", TRAIN) in majority["where"]
    assert "all_reduce" in said and line_of("odd", TRAIN) in said, said
    assert report["confidence"] != "none"


def test_the_rank_that_waits_for_its_data_is_named(start: Start) -> None:
    run = start(TRAIN, SIDE_BY_SIDE, **SIZES)
    report = explain_training("local", run.ranks[0], timeout=60)
    check_the_culprit(report, run.ranks[ODD])
    assert [each["rank"] for each in report["culprits"]] == [ODD]
    assert f"rank {ODD}" in report["explanation"], report["explanation"]
    [majority] = [group for group in report["groups"] if group["is_majority"]]
    assert sorted(majority["ranks"]) == [0, 2]
    found = {each["rank"]: each["pid"] for each in report["ranks"] if each["rank"] is not None}
    assert found == dict(enumerate(run.ranks))
    assert {each["stacks_from"] for each in report["ranks"] if each["rank"] is not None} == {"py-spy"}
    assert all(Path(f"/proc/{pid}").exists() for pid in run.ranks)


def test_spawned_ranks_are_told_from_the_helpers_of_multiprocessing(start: Start) -> None:
    run = start(TRAIN, 'exec "$0" train.py')
    report = explain_training("local", run.first, timeout=60)
    check_the_culprit(report, run.ranks[ODD])
    assert sorted(each["pid"] for each in report["ranks"]) == sorted(run.ranks), report["ranks"]
    assert {each["stacks_from"] for each in report["ranks"]} == {"py-spy"}


def test_the_data_worker_is_named_that_others_wait_for_in_their_backward_pass(start: Start) -> None:
    ranks = start(TRAIN_BY_DDP, SIDE_BY_SIDE, "worker", **SIZES).ranks
    report = explain_training("local", ranks[0], timeout=60)
    said = report["explanation"]
    assert ([each["pid"] for each in report["culprits"]], report["confidence"]) == ([ranks[ODD]], "high"), said
    reduces, loads, reads = (line_of(mark, TRAIN_BY_DDP) for mark in ("reduces", "loads", "reads"))
    assert f"2 of 3 ranks wait in Tensor.backward, called at {reduces}; rank {ODD} (pid {ranks[ODD]}) is in" in said
    assert f"__next__, called at {loads}" in said and f"is in {reads} Batches.__getitem__ and waits for a pipe" in said


def test_those_are_not_accused_that_one_has_left_alone(start: Start) -> None:
    """A rank that is out of batches waits in a barrier; the others wait for it in a backward pass."""
    ranks = start(TRAIN_BY_DDP, SIDE_BY_SIDE, "uneven", **SIZES).ranks
    report = explain_training("local", ranks[0], timeout=60)
    said = report["explanation"]
    assert ([each["pid"] for each in report["culprits"]], report["confidence"]) == ([ranks[ODD]], "low"), said
    assert f"2 of 3 ranks wait in Tensor.backward, called at {line_of('reduces', TRAIN_BY_DDP)}; rank {ODD}" in said
    assert f"is in another collective (barrier, called at {line_of('ends', TRAIN_BY_DDP)}): perhaps" in said


def test_the_ranks_of_lightning_have_their_numbers(start: Start) -> None:
    require_package("lightning")
    ranks = start(TRAIN_BY_LIGHTNING, 'exec "$0" train.py').ranks
    report = explain_training("local", ranks[0], timeout=60)
    assert {each["rank"]: each["pid"] for each in report["ranks"]} == dict(enumerate(ranks)), report["ranks"]
    said = report["explanation"]
    assert ([each["rank"] for each in report["culprits"]], report["confidence"]) == ([ODD], "high"), said
    assert said.startswith("2 of 3 ranks wait in ") and f"is in {line_of('reads', TRAIN_BY_LIGHTNING)}" in said
