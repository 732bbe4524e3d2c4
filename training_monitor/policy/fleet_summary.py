"""What a fleet comes to: how its members are, what it costs, how long the credit lasts, when it is done. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set as AbstractSet
from typing import Any

from training_monitor.policy.cost import HOUR, forecast_burn
from training_monitor.policy.fleet_values import FleetSummary
from training_monitor.policy.training_metrics import Thresholds, TrainingMetrics, is_finished

LEVELS = ("healthy", "warning", "error", "unknown")


def summarize(
    rows: Sequence[TrainingMetrics],
    *,
    listed: Sequence[Mapping[str, Any]] | None,
    shown: AbstractSet[int],
    credit: float | None,
    thresholds: Thresholds,
    now: float,
) -> FleetSummary:
    """Add a fleet up.

    Args:
        rows: its members.
        listed: all instances of the account, which its credit pays for whether they are shown or not; None: nobody
            knows them, or there is no account.
        shown: the ids of the instances among `rows`.
        credit: of the account, dollars; None: not known.
        thresholds: by which the members are judged.
        now: epoch seconds.
    """
    burn = forecast_burn(_priced_rows(rows) if listed is None else listed, credit)
    hidden = forecast_burn([row for row in listed or () if row.get("id") not in shown], None)
    levels = Counter(row.health(thresholds, now).level for row in rows)
    return FleetSummary(
        levels={level: levels[level] for level in LEVELS},
        dollars_per_hour=burn.dollars_per_hour,
        unpriced=burn.unknown,
        dollars_spent=sum(row.total_cost for row in rows if row.total_cost is not None),
        credit=credit,
        credit_hours=burn.hours_left,
        hidden=hidden.instances,
        hidden_dollars_per_hour=hidden.dollars_per_hour,
        **_completion(rows),
    )


def _priced_rows(rows: Sequence[TrainingMetrics]) -> list[dict[str, float | None]]:
    """What is rented among the members, as a listing would show it."""
    return [{"dph_total": row.cost_per_hour} for row in rows if type(row.instance_id) is int and row.status != "lost"]


def _completion(rows: Sequence[TrainingMetrics]) -> dict[str, Any]:
    """What the rest of the trainings takes; one that runs and whose end nobody knows is counted apart."""
    dollars, longest, without = None, None, 0
    for row in rows:
        seconds = row.seconds_left()
        if seconds is None:
            without += row.status == "running" and row.is_running is not False and not is_finished(row)
            continue
        longest = seconds if longest is None else max(longest, seconds)
        if row.cost_per_hour is not None:
            dollars = (dollars or 0.0) + seconds / HOUR * row.cost_per_hour
    return {"dollars_to_completion": dollars, "seconds_to_completion": longest, "without_eta": without}
