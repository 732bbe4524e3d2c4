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
    """Add a fleet up. A machine on which there are several members costs what one costs.

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
    totals = {row.instance_id: row.total_cost for row in rows if _is_rented(row)}
    return FleetSummary(
        levels={level: levels[level] for level in LEVELS},
        dollars_per_hour=burn.dollars_per_hour,
        unpriced=burn.unknown,
        dollars_spent=sum(total for total in totals.values() if total is not None),
        without_total=sum(total is None for total in totals.values()),
        credit=credit,
        credit_hours=burn.hours_left,
        hidden=hidden.instances,
        hidden_dollars_per_hour=hidden.dollars_per_hour,
        **_completion(rows, now),
    )


def _is_rented(row: TrainingMetrics) -> bool:
    return type(row.instance_id) is int


def _priced_rows(rows: Sequence[TrainingMetrics]) -> list[dict[str, float | None]]:
    """What is rented among the members, as a listing would show it."""
    prices = {row.instance_id: row.cost_per_hour for row in rows if _is_rented(row) and row.status != "lost"}
    return [{"dph_total": price} for price in prices.values()]


def _completion(rows: Sequence[TrainingMetrics], now: float) -> dict[str, Any]:
    """What the rest of the trainings takes; one that runs and whose end nobody knows is counted apart."""
    longest, without = None, 0
    ends, prices = dict[int | str, float](), dict[int | str, float | None]()  # of the rented machines
    for row in rows:
        seconds = _seconds_left(row, now)
        if seconds is None:
            without += row.status == "running" and row.is_running is not False and not is_finished(row)
            continue
        longest = seconds if longest is None else max(longest, seconds)
        if _is_rented(row):
            ends[row.instance_id] = max(seconds, ends.get(row.instance_id, 0.0))
            prices[row.instance_id] = row.cost_per_hour
    costs = [seconds / HOUR * price for place, seconds in ends.items() if (price := prices[place]) is not None]
    return {
        "dollars_to_completion": sum(costs) if costs else None,
        "without_price": len(ends) - len(costs),
        "seconds_to_completion": longest,
        "without_eta": without,
    }


def _seconds_left(row: TrainingMetrics, now: float) -> float | None:
    """Of one that was seen a while ago so much less than then; None where it should have ended since."""
    seconds = row.seconds_left()
    if seconds is None or row.stale_since is None:
        return seconds
    left = seconds - max(0.0, now - row.stale_since)
    return left if left > 0 else None
