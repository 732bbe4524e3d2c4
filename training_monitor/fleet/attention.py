"""The order in which members need attention: the worst first. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from training_monitor.fleet.metrics import STARTING, Health, Thresholds, TrainingMetrics

_RANKS = {"error": 0, "warning": 1, "unknown": 2, "healthy": 4}
_STARTING_RANK = 3  # unknown, but nobody has to do anything
_NO_PRICE = -1.0


def worst_first(
    rows: Sequence[TrainingMetrics], thresholds: Thresholds, now: float, acknowledged: Collection[str] = ()
) -> list[TrainingMetrics]:
    """Sort rows by who needs attention: errors, warnings, unknown ones, starting ones, healthy ones.

    Among equals come first those that nobody has acknowledged, then the dearest; where prices are equal or unknown, the
    given order stays.

    Args:
        rows: the rows of a fleet.
        thresholds: of the warnings.
        now: epoch seconds.
        acknowledged: the keys of members whose alerts have all been acknowledged.
    """

    def place(row: TrainingMetrics) -> tuple[int, bool, float]:
        price = _NO_PRICE if row.cost_per_hour is None else row.cost_per_hour
        return rank(row, row.health(thresholds, now)), row.key in acknowledged, -price

    return sorted(rows, key=place)


def rank(row: TrainingMetrics, health: Health) -> int:
    """Return the place of a row's health in that order, from 0 for the worst."""
    if health.level == "unknown" and row.error is None and row.status in STARTING:
        return _STARTING_RANK
    return _RANKS.get(health.level, _RANKS["unknown"])
