from __future__ import annotations

from collections import deque

from tests.unit.ui.snapshots import member
from training_monitor.fleet.metrics import TrainingMetrics
from training_monitor.ui.fleet.view import KEPT_LINES, FleetView, follow
from training_monitor.ui.kit.text import gain


def row(number: int, *lines: str, at: float | None = 0.0) -> TrainingMetrics:
    return member(number, recent_logs=deque(lines, maxlen=10), last_updated=at)


def test_a_window_that_moved_along_a_log_gained_what_comes_after() -> None:
    for before, now, gained in [
        ((), ("a", "b"), ("a", "b")),
        (("a", "b"), ("a", "b"), ()),
        (("a", "b"), ("b", "c"), ("c",)),
        (("a", "a"), ("a", "a"), ()),
        (("a", "b"), ("c", "d"), ("c", "d")),
        (("a", "b"), (), ()),
        (("b",), ("a", "b", "c"), ("a", "b", "c")),
    ]:
        assert gain(before, now) == gained, before


def test_lines_of_all_members_come_once_in_the_order_in_which_they_were_seen() -> None:
    feed = follow(FleetView(), [row(1, "a1", at=2), row(2, "b1", at=1)])
    feed = follow(feed, [row(1, "a1", "a2", at=3), row(2, "b1", at=1)])
    feed = follow(feed, [row(1, "a1", "a2", at=3), row(2, "b1", "b2", at=4)])
    assert [line for _, line in feed.log_lines] == ["b1", "a1", "a2", "b2"]
    feed = follow(FleetView(), [row(1, "a")])
    assert follow(feed, [row(1, "a", at=9)]) is feed
    assert follow(FleetView(), [row(1, "a", at=None)]).log_lines == (("vast://30007001", "a"),)


def test_the_feed_is_bounded() -> None:
    feed = FleetView()
    for number in range(200):
        feed = follow(feed, [row(1, *(f"{number}.{line}" for line in range(10)))])
    assert len(feed.log_lines) == KEPT_LINES
    assert feed.log_lines[-1][1] == "199.9"
