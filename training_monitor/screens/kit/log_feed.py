"""The log lines of all members, merged in order of arrival. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from training_monitor.core.frozen import dataclass
from training_monitor.fleet.metrics import TrainingMetrics

KEPT_LINES = 500


@dataclass(frozen=True, slots=True)
class LogFeed:
    """Merged lines: `lines` are (key of the member, line), oldest first; `seen` is the last window of each member."""

    lines: tuple[tuple[str, str], ...] = ()
    seen: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def follow(feed: LogFeed, rows: Iterable[TrainingMetrics]) -> LogFeed:
    """Add the new lines of the members' logs; the member seen last comes last."""
    seen = {row.key: tuple(row.recent_logs) for row in rows}
    if seen == feed.seen:
        return feed
    times = {row.key: row.last_updated or 0.0 for row in rows}
    gained = [
        (key, line) for key in sorted(seen, key=times.__getitem__) for line in gain(feed.seen.get(key, ()), seen[key])
    ]
    return LogFeed((feed.lines + tuple(gained))[-KEPT_LINES:], seen)


def gain(before: Sequence[str], now: Sequence[str]) -> Sequence[str]:
    """Return the lines of `now` after those of `before`, both windows of the same log."""
    for overlap in range(min(len(before), len(now)), 0, -1):
        if before[-overlap:] == now[:overlap]:
            return now[overlap:]
    return now
