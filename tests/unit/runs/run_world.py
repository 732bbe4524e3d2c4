"""Runs, processes and looks for the tests of `top`: one machine on which a run has process 100."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.fakes import EPOCH
from training_monitor.runs.values import RUNNING, Estimate, FolderLook, OwnResources, Run
from training_monitor.targets.proc_stat import Identity, MachineSample, ProcessSample

HERE = Identity(1, 5, "gpu-1", "boot-a", "pid:[1]")
AT = 10_000.0  # seconds since the machine was started
GIB = 2**30


def process(pid: int, parent: int = 1, **changes: Any) -> ProcessSample:
    """A process that began at 5,000 s."""
    sample = ProcessSample(pid, parent, f"p{pid}", "S", 500_000, 0, GIB, 2)
    return sample._replace(**changes)


def machine(*processes: ProcessSample, **changes: Any) -> MachineSample:
    sample = MachineSample(
        AT, HERE, 100, cores=8, memory_bytes=64 * GIB, processes={each.pid: each for each in processes}
    )
    return replace(sample, **changes)


def run(name: str = "llama", **changes: Any) -> Run:
    """A run that goes on, as process 100, and wrote its file a second ago."""
    found = Run(
        name,
        f"/runs/{name}.json",
        f"/runs/control_{name}.json",
        status=RUNNING,
        phase="training",
        run=Estimate(4.0, 100.0, 900.0, 1000.0),
        process=Identity(100, 500_000, "gpu-1", "boot-a", "pid:[1]"),
        started_at=EPOCH - 4990,
        updated_at=EPOCH - 1,
        step_at=EPOCH - 3,
        resources=OwnResources(99.0, 7, 5.0, 3),
    )
    return replace(found, **changes)


def look(runs: Run | Sequence[Run], sample: MachineSample | None, **changes: Any) -> FolderLook:
    """A look whose processes were read half a second before its end."""
    runs = (runs,) if isinstance(runs, Run) else tuple(runs)
    return FolderLook(runs, sample, EPOCH, processes_at=EPOCH - 0.5)._replace(**changes)
