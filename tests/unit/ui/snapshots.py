"""A fleet made by hand: one member of each kind that a screen shows differently."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from training_monitor.core.values import Verdict
from training_monitor.fleet.metrics import TrainingMetrics
from training_monitor.fleet.values import FleetAlert, FleetSample, FleetSnapshot, FleetSummary
from training_monitor.ui.fleet.view import FleetView
from training_monitor.ui.kit.text import Line, cells
from training_monitor.ui.kit.view import Frame

FRAMES = Path(__file__).parent / "frames"
NOW = 1_770_000_000.0  # 02:40:00 UTC
_RUNS = Verdict("running", "ok", "step 700 of 1000, 9 s/step")
_NAN = Verdict("running", "failed", "the loss is nan; step 250 of 1000", recommendation="alert")
_HANGS = Verdict("stalled", "failed", "no step for 15m, limit 7m30s: GPUs idle", recommendation="terminate")
HOSTILE = [
    "\x1b[2J\x1b[31mred\x1b]0;title\x07",
    "a\nb\tc\rd\x00e\x9bf",
    "\u202egnp.exe\u2066\u2069\u200f",
    "שלום עולם",
    "🤖🚀👩‍👩‍👧‍👦🇩🇪✌🏽",
    "漢字カタカナ한국어",
    "ö" * 10_000,
    "x" * 10_000,
    "e\u0301\u0301\u0301\u0301" * 50,
    "\u0301\ufeff\u200b\u00ad",
    "\ud800 \ue000 \U000e0001 \U0010ffff",
    "-rf / $(reboot) `id` '\"",
    "%s %d {0} \\x1b[A",
    "",
    " ",
]


def member(number: int, **changes: Any) -> TrainingMetrics:
    """A healthy running instance, 30007000 + number, with what is changed."""
    values: dict[str, Any] = {
        "instance_id": 30007000 + number,
        "gpu_type": "RTX 4090",
        "status": "running",
        "key": f"vast://{30007000 + number}",
        "name": f"run-{number}",
        "groups": ("even" if number % 2 == 0 else "odd",),
        "epoch": 1.0,
        "total_epochs": 3,
        "step": 700,
        "total_steps": 1000,
        "loss": 2.345,
        "gpu_util": 85.2,
        "memory_util": 42.1,
        "disk_util": 31.0,
        "cost_per_hour": 0.467,
        "total_cost": 15.23,
        "steps_per_second": 0.1111,
        "eta_seconds": 2700.0,
        "verdict": _RUNS,
        "is_running": True,
        "started_at": NOW - 117_000,
        "runtime_seconds": 7000.0,
        "last_updated": NOW - 3,
        "recent_logs": deque((f"step {step}/1000 loss={step / 1000}" for step in range(691, 701)), maxlen=10),
    }
    return TrainingMetrics(**{**values, **changes})


def unseen(number: int, status: str, **changes: Any) -> TrainingMetrics:
    """An instance of which nothing is known but what the service lists."""
    names = (
        "epoch total_epochs step total_steps loss gpu_util memory_util disk_util total_cost steps_per_second verdict"
    )
    nothing = dict.fromkeys([*names.split(), "eta_seconds", "is_running", "runtime_seconds"])
    return member(number, **{**nothing, "status": status, "recent_logs": deque(maxlen=10), **changes})


ROWS = (
    member(1),
    member(
        2,
        gpu_type="8x H100",
        loss=float("nan"),
        epoch=2.0,
        step=250,
        eta_seconds=7500.0,
        steps_per_second=0.1,
        cost_per_hour=12.5,
        verdict=_NAN,
    ),
    unseen(3, "loading", gpu_type="A100", cost_per_hour=1.234),
    unseen(4, "exited", gpu_type="RTX A6000", cost_per_hour=None, message="container exited with 137"),
    member(5, gpu_util=2.0, disk_util=97.0, loss=1.2e-5, total_cost=1523.4),
    member(6, error="ssh: no answer within 15 s", stale_since=NOW - 130, last_updated=NOW - 130),
    member(7, verdict=_HANGS, step=512, cost_per_hour=2.49),
    unseen(8, "unknown", instance_id="k8s://ml/trainer-0", key="k8s://ml/trainer-0#job", gpu_type=None, name="llama"),
)
SNAPSHOT = FleetSnapshot(
    timestamp=NOW,
    rows=ROWS,
    summary=FleetSummary(
        levels={"healthy": 1, "warning": 1, "error": 3, "unknown": 3},
        dollars_per_hour=17.625,
        unpriced=1,
        dollars_spent=1584.32,
        credit=80.12,
        credit_hours=4.55,
        dollars_to_completion=42.1,
        seconds_to_completion=7500.0,
        without_eta=1,
        hidden=3,
        hidden_dollars_per_hour=0.03,
    ),
    alerts=(
        FleetAlert(NOW - 500, "vast://30007001", "epoch", "epoch 1 of 3 is done", "info", 1),
        FleetAlert(NOW - 400, "vast://30007002", "nan", "the loss is nan", "error"),
        FleetAlert(NOW - 300, "vast://30007004", "failed", "exited: container exited with 137", "error"),
        FleetAlert(NOW - 20, "", "credit", "the credit lasts 4.6 h", "warning"),
    ),
    groups=("even", "odd"),
    listed_at=NOW - 5,
)


def recent(key: str) -> Sequence[FleetSample]:
    """An hour in which the loss fell; of the Kubernetes member nothing."""
    if key.startswith("k8s"):
        return ()
    dear = 1.0 + int(key[-1])
    return tuple(
        FleetSample(
            NOW - 3600 + 60 * minute,
            {
                "step": 100.0 + 10 * minute,
                "loss": 3.0 - minute / 50,
                "gpu_utilization": 80.0 + minute % 10,
                "steps_per_second": 0.1 + 0.01 * (minute % 3),
                "total_cost": dear * minute / 60,
                "cost_per_hour": dear,
            },
            "running",
        )
        for minute in range(61)
    )


def drawn(frame: Frame[FleetView]) -> str:
    """The text of a frame, without styles and without the blanks at the ends of its lines."""
    return "\n".join("".join(text for text, _ in line).rstrip() for line in frame.lines) + "\n"


def recorded_frame(name: str) -> str:
    """A frame as `python3 -m tests.record_frames` wrote it."""
    return (FRAMES / f"{name}.txt").read_text("utf-8")


def misfits(lines: Sequence[Line], width: int) -> list[str]:
    """The lines that are not exactly so wide, or hold what a terminal would not just show."""
    texts = ["".join(text for text, _ in line) for line in lines]
    bad = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff]")
    return [repr(text) for text in texts if cells(text) != width or bad.search(text)]
