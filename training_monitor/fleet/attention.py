"""What needs attention: the order of members, the worst first, and the alerts that belong together. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from training_monitor.fleet.metrics import STARTING, Health, Thresholds, TrainingMetrics
from training_monitor.fleet.values import FleetAlert

_RANKS = {"error": 0, "warning": 1, "unknown": 2, "healthy": 4}
_STARTING_RANK = 3  # unknown, but nobody has to do anything
_NO_PRICE = -1.0
_TOGETHER = 60.0  # seconds between alerts of one kind that are shown as one
_PRESSING = ("warning", "error")
RESULTS = (
    "stopped",
    "destroyed",
    "started",
    "rebooted",
    "gone",
    "refused",
)  # kinds of alerts that report the result of an action
_PRESSING_FROM = {level: number for number, level in enumerate(_PRESSING, 1)}


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


def acknowledged_members(alerts: Iterable[FleetAlert]) -> set[str]:
    """Return the keys of members with alerts that go on and that a person has all acknowledged."""
    going_on = [alert for alert in alerts if alert.ended is None and alert.level in _PRESSING]
    return {alert.key for alert in going_on} - {alert.key for alert in going_on if not alert.acknowledged}


def group_alerts(alerts: Iterable[FleetAlert]) -> list[tuple[FleetAlert, ...]]:
    """Put alerts of one kind and level about several members within a minute together, in the order of the first ones.

    Only alerts that are alike in being over and in being acknowledged are put together.
    """
    groups: list[list[FleetAlert]] = []
    last: dict[tuple[object, ...], list[FleetAlert]] = {}
    for alert in alerts:
        alike = alert.kind, alert.level, alert.ended is None, alert.acknowledged
        group = last.get(alike)
        if group is None or not _belongs(alert, group):
            group = last[alike] = []
            groups.append(group)
        group.append(alert)
    return [tuple(group) for group in groups]


def pressing_last(groups: Iterable[tuple[FleetAlert, ...]], now: float) -> list[tuple[FleetAlert, ...]]:
    """Sort groups of alerts by how pressing they are, the most pressing last; of equals, the newest last.

    Most pressing, for a minute, is what came of a request; then errors, warnings, the rest, and what is over.
    """

    def place(group: tuple[FleetAlert, ...]) -> tuple[int, float]:
        first, newest = group[0], group[-1].timestamp
        if first.kind in RESULTS and now - newest <= _TOGETHER:
            return len(_PRESSING) + 1, newest
        is_over = all(alert.ended is not None for alert in group)
        return -1 if is_over else _PRESSING_FROM.get(first.level, 0), newest

    return sorted(groups, key=place)


def _belongs(alert: FleetAlert, group: Sequence[FleetAlert]) -> bool:
    is_near = abs(alert.timestamp - group[0].timestamp) <= _TOGETHER
    return is_near and alert.key not in ("", *(each.key for each in group))
