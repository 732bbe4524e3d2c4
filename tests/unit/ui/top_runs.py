"""Runs made by hand: one of each kind that a screen shows differently."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from training_monitor.core.values import Verdict
from training_monitor.runs.values import (
    CANCELED,
    FAILED,
    FINISHED,
    KILLED,
    RUNNING,
    UNKNOWN,
    Estimate,
    MetricHistory,
    Run,
    RunRow,
    RunsSnapshot,
    TreeRow,
    Usage,
    Variable,
)
from training_monitor.targets.proc_stat import Identity
from training_monitor.ui.kit.text import Line
from training_monitor.ui.kit.view import Frame
from training_monitor.ui.top.view import TopView

NOW = 1_770_000_000.0  # 02:40:00 UTC
MIB = 2**20
_EPOCH = Estimate(4.1, 29.3, 214.7, 244.0)
GOING_ON = Verdict("running", "ok", "step 1120 of 10000, 4.1 steps/s", confidence="high")
SLOW = Verdict("slow", "warning", "12s a step, 3.1 times its own past", NOW - 900, "high", "alert")
STARTING = Verdict("starting", "ok", "no step yet")
STALLED = Verdict(
    "stalled",
    "failed",
    "no step for 5m20s, limit 2m45s: its processes use no CPU",
    NOW - 155,
    "high",
    "alert",
    320.0,
    165.0,
    ("py-spy dump --pid 6000 shows where it waits",),
)

ENDINGS = {
    FINISHED: Verdict("finished", "ok", "finished"),
    CANCELED: Verdict("stopped", "warning", "somebody ended it"),
    FAILED: Verdict("failed", "failed", "torch.OutOfMemoryError: CUDA out of memory."),
    KILLED: Verdict("failed", "failed", "its process is gone, and it said nothing before"),
}


def identity(pid: int) -> Identity:
    return Identity(pid, 100 + pid, "gpu-1", "5b0c", "pid:[4026531836]")


def node(kind: str, depth: int, pid: int, name: str, **changes: Any) -> TreeRow:
    """A process that uses something; a thread that uses nothing that is known."""
    used: dict[str, Any] = {"cpu_percent": None, "rss_bytes": None, "gpu_mib": None, "threads": None}
    if kind == "P":
        used = {"cpu_percent": 99.5, "rss_bytes": 2048 * MIB, "gpu_mib": 40211.0, "threads": 12}
    return TreeRow(kind, depth, identity(pid), name, **{"state": "S", **used, **changes})


TREE = (
    node("P", 0, 4711, "python3"),
    node("T", 1, 4711, "python3"),
    node("T", 1, 4712, "cuda-EvtHandlr"),
    node("P", 1, 4720, "pt_data_worker", gpu_mib=None, cpu_percent=310.25, threads=2),
    node("T", 2, 4721, "pt_data_pin"),
    node("P", 1, 4730, "tensorboard", gpu_mib=None, cpu_percent=None, rss_bytes=None, threads=1),
)


def run(name: str, **changes: Any) -> Run:
    """A run in the folder layout, amid its second epoch, with what is changed."""
    values: dict[str, Any] = {
        "name": name,
        "path": f"/data/progress/{name}/progress.json",
        "control_path": f"/data/progress/{name}/control.json",
        "folder": f"/data/progress/{name}",
        "status": RUNNING,
        "phase": "training",
        "epoch": 2,
        "total_epochs": 10,
        "batch": 120,
        "total_batches": 1000,
        "total_validation_batches": 100,
        "step": 1120,
        "run": Estimate(4.1, 3810.0, 2166.0, 5976.0),
        "epoch_time": _EPOCH,
        "training": _EPOCH,
        "validation_seconds": 24.0,
        "metrics": {"loss": 1.25, "learning_rate": 3e-4, "note": "warm-up is over"},
        "history": {"loss": MetricHistory(tuple(range(32)), tuple(4.0 / (1 + step / 8) for step in range(32)))},
        "variables": (
            Variable("learning_rate", 3e-4, "float", "9f2c", None, None),
            Variable("batch_size", 32, "int", None, None, "64"),
            Variable("shuffle", True, "bool", "77aa", "expected true or false", None),
            Variable("stage", "warm-up", "str"),
        ),
        "process": identity(4711),
        "started_at": NOW - 3810,
        "updated_at": NOW - 1,
        "step_at": NOW - 1,
        "script": "train.py",
        "stdout_path": f"/data/progress/{name}/stdout.log",
        "stderr_path": f"/data/progress/{name}/stderr.log",
        "wandb_url": "https://wandb.ai/me/llama/runs/1",
    }
    return Run(**{**values, **changes})


def row(name: str, changed: dict[str, Any] | None = None, **changes: Any) -> RunRow:
    """A run that is alive; `changed` is for its file, the rest for how it is seen."""
    values: dict[str, Any] = {
        "status": RUNNING,
        "is_alive": True,
        "cpu_percent": 409.75,
        "rss_bytes": 4096 * MIB,
        "gpu_mib": 40211.0,
        "processes": 3,
        "threads": 15,
        "tree": TREE,
        "eta_seconds": 2166.0,
        "rate": 4.1,
        "quiet_seconds": 1.0,
        "verdict": GOING_ON,
    }
    return RunRow(run(name, **(changed or {})), **{**values, **changes})


def ended(name: str, status: str, reason: str = "", **changed: Any) -> RunRow:
    """A run without a process; what is changed is in its file."""
    values = {"status": status, "ended_at": NOW - 60, **changed}
    return RunRow(run(name, **values), status, reason, False, verdict=ENDINGS[status])


ROWS = (
    row("llama"),
    row(
        "llama-val",
        {"phase": "validation", "batch": None, "validation_batch": 40, "process": identity(5000)},
        rate=0.08,
        verdict=SLOW,
        tree=(node("P", 0, 5000, "python3"),),
    ),
    row("stalled-one", {"step_at": NOW - 320, "process": identity(6000), "metrics": {}}, verdict=STALLED, tree=()),
    row(
        "starting",
        {"phase": "loading", "epoch": None, "batch": None, "history": {}},
        eta_seconds=None,
        rate=None,
        verdict=STARTING,
    ),
    ended("done", FINISHED),
    ended("oom", FAILED, error_message="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"),
    ended("stopped", CANCELED),
    ended("gone", KILLED, "its process is gone, and it said nothing before"),
    RunRow(run("elsewhere", metrics={"loss": "nan"}), UNKNOWN, "it runs on gpu-7 and is not visible from here"),
)
SNAPSHOT = RunsSnapshot(ROWS, Usage(819.5, 8192 * MIB, 80422.0, 16.0, 64 * 1024 * MIB, 163840.0), NOW, "/data/progress")
EMPTY = replace(SNAPSHOT, rows=(), usage=Usage())


def drawn(frame: Frame[TopView]) -> str:
    """The text of a frame, without styles and without the blanks at the ends of its lines."""
    return text_of(frame.lines)


def text_of(lines: tuple[Line, ...]) -> str:
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines) + "\n"
