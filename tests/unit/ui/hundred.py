"""A fleet of a hundred of which one hangs, one does not answer, one has finished and one is expensive."""

from __future__ import annotations

from collections import deque
from typing import Any

from tests.unit.ui.snapshots import NOW, member
from training_monitor.core.values import Verdict
from training_monitor.fleet.metrics import Thresholds
from training_monitor.fleet.rows import summarize
from training_monitor.fleet.values import FleetAlert, FleetSnapshot

HANGS, SILENT, DONE, DEAR = 37, 58, 73, 91
_KINDS = ("llama-8b-sft", "vit-large", "lora-portraits")
_GROUPS = ("llama", "vision", "lora")
_HUNG = Verdict(
    "stalled",
    "failed",
    "no step for 22m, limit 7m30s: GPUs idle",
    recommendation="terminate",
    seconds_without_step=1320.0,
    limit_seconds=450.0,
)
_DONE = Verdict("finished", "ok", "finished at step 1000 of 1000")
_SPECIAL: dict[int, dict[str, Any]] = {
    HANGS: {"verdict": _HUNG, "gpu_util": 0.0, "step": 412, "log_age": 1320.0},
    SILENT: {"error": "ssh: no answer within 15 s", "stale_since": NOW - 260, "last_updated": NOW - 260},
    DONE: {"verdict": _DONE, "finished": True, "is_running": False, "step": 1000, "gpu_util": 0.0},
    DEAR: {"gpu_type": "8x H100", "cost_per_hour": 19.92, "total_cost": 647.4},
}


def _member(number: int) -> Any:
    step = 137 + 7 * number
    values = {
        "name": f"{_KINDS[number % 3]}-{number:02d}",
        "groups": (_GROUPS[number % 3],),
        "step": step,
        "loss": 2.5 - step / 1000,
        "gpu_util": 88.0 + number % 10,
        "disk_util": 20.0 + number / 2,
        "total_cost": 15.0 + number / 10,
        "verdict": Verdict("running", "ok", f"step {step} of 1000, 9 s/step", confidence="high"),
        "recent_logs": deque((f"step {step - 9 + each}/1000 loss=2.1" for each in range(10)), maxlen=10),
    }
    return member(number, **{**values, **_SPECIAL.get(number, {})})


ROWS = tuple(_member(number) for number in range(100))
HUNDRED = FleetSnapshot(
    timestamp=NOW,
    rows=ROWS,
    summary=summarize(ROWS, listed=None, shown=set(), credit=312.5, thresholds=Thresholds(), now=NOW),
    alerts=(
        FleetAlert(NOW - 90_000, ROWS[DEAR].key, "price", "its price rose from $18.880 to $19.920 per hour", "warning"),
        FleetAlert(NOW - 900, ROWS[HANGS].key, "stall", "stalled: no step for 7m40s, limit 7m30s: GPUs idle", "error"),
        FleetAlert(NOW - 600, ROWS[DONE].key, "finished", "the training has finished at step 1000, loss 1.5", "info"),
    ),
    groups=_GROUPS,
    listed_at=NOW - 3,
)
