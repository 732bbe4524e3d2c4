"""Who needs attention comes first."""

from __future__ import annotations

from typing import Any

from training_monitor.core.values import Verdict
from training_monitor.fleet.attention import acknowledged_members, group_alerts, pressing_last, worst_first
from training_monitor.fleet.metrics import Thresholds, TrainingMetrics
from training_monitor.fleet.values import FleetAlert

RUNS = Verdict("running", "ok", "step 70 of 100")
HANGS = Verdict("stalled", "failed", "no step for 20m, limit 7m30s: GPUs idle")
DONE = Verdict("finished", "ok", "finished at step 100 of 100")
NOW = 1000.0


def row(key: str, status: str = "running", **values: Any) -> TrainingMetrics:
    return TrainingMetrics(key, "RTX 4090", status, key=key, **{"verdict": RUNS, "cost_per_hour": 0.5, **values})


FLEET = (
    row("runs"),
    row("runs-too"),
    row("dear", cost_per_hour=9.0),
    row("free", cost_per_hour=None),
    row("starts", "loading", verdict=None),
    row("silent", error="ssh: no answer", stale_since=900.0),
    row("starting-and-silent", "loading", error="no answer", stale_since=900.0),
    row("done", verdict=DONE, finished=True),
    row("hangs", verdict=HANGS),
    row("gone", "lost", cost_per_hour=None),
)


def keys(*acknowledged: str) -> list[object]:
    return [each.key for each in worst_first(FLEET, Thresholds(), NOW, acknowledged)]


def test_rows_come_by_severity_and_of_equals_the_acknowledged_last() -> None:
    unknown = ["silent", "starting-and-silent"]
    assert keys() == ["hangs", "gone", "done", *unknown, "starts", "dear", "runs", "runs-too", "free"]
    assert keys("hangs", "dear")[:3] == ["gone", "hangs", "done"]
    assert keys("dear")[-4:] == ["runs", "runs-too", "free", "dear"]


def test_a_member_is_acknowledged_when_all_that_goes_on_is() -> None:
    noted = FleetAlert(NOW, "a", "stall", "", "error", acknowledged=True)
    new, over = FleetAlert(NOW, "a", "disk", ""), FleetAlert(NOW, "a", "nan", "", "error", ended=NOW)
    info = FleetAlert(NOW, "b", "epoch", "", "info")
    assert acknowledged_members([noted, over, info]) == {"a"}
    assert acknowledged_members([noted, new]) == set()
    assert acknowledged_members([over, info]) == set()


def test_of_alerts_the_worst_that_go_on_are_the_most_pressing() -> None:
    def alert(kind: str, level: str, at: float, **more: Any) -> FleetAlert:
        return FleetAlert(at, kind, kind, "", level, **more)

    alerts = [alert("old-error", "error", 1.0), alert("over", "error", 2.0, ended=3.0)]
    alerts += [alert("warning", "warning", 4.0), alert("epoch", "info", 5.0), alert("error", "error", 6.0)]
    alerts += [alert("disk", "warning", 7.0), alert("destroyed", "info", 8.0)]
    order = [group[0].kind for group in pressing_last(group_alerts(alerts), 9.0)]
    assert order == ["over", "epoch", "warning", "disk", "old-error", "error", "destroyed"]
    assert [group[0].kind for group in pressing_last(group_alerts(alerts), 90.0)][1:3] == ["epoch", "destroyed"]
