"""The days of `history --cost`, and the machines of its members."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pytest

from training_monitor.cli.cost_history import MOST_DAYS, day_bounds, machine_of


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield
    time.tzset()


def utc(day: int, hour: int, month: int = 3) -> float:
    return datetime(2026, month, day, hour, tzinfo=timezone.utc).timestamp()


def test_days_begin_at_local_midnights_also_when_a_day_has_23_hours(berlin: None) -> None:
    assert day_bounds(utc(27, 12), utc(30, 12)) == [utc(27, 12), utc(27, 23), utc(28, 23), utc(29, 22), utc(30, 12)]
    assert day_bounds(utc(27, 12), utc(27, 13)) == [utc(27, 12), utc(27, 13)]
    assert day_bounds(utc(27, 12), utc(27, 12)) == [utc(27, 12), utc(27, 12)]
    assert day_bounds(utc(27, 12), utc(27, 23)) == [utc(27, 12), utc(27, 23)], "until midnight"
    assert day_bounds(utc(27, 23), utc(28, 1)) == [utc(27, 23), utc(28, 1)], "from midnight on"
    end = utc(27, 12)
    days = day_bounds(end - timedelta(days=MOST_DAYS).total_seconds(), end)
    assert len(days) == MOST_DAYS + 2 and days == sorted(days)
    assert {time.localtime(day).tm_hour for day in days[1:-1]} == {0}


def test_members_on_one_target_are_on_one_machine() -> None:
    keys = ("vast://7", "vast://7#process:train", "vast://7#/logs/*.log")
    assert {machine_of(key) for key in keys} == {"vast://7"} != {machine_of("vast://8#process:train")}
