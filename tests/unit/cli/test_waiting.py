"""A command that waits says for what; one that hears something does not."""

from __future__ import annotations

import pytest

from tests.fakes import FakeClock
from training_monitor.cli.live import Waiting


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_each_silence_is_told_until_there_is_news(clock: FakeClock) -> None:
    told: list[str] = []
    waiting = Waiting(told.append, every=30, clock=clock)
    waiting.on("market", "asking vast.ai")
    for _ in range(9):
        clock.sleep(10)
        waiting.look()
    assert told == [f"asking vast.ai: no update for {time}" for time in ("30s", "1m", "1m30s")]
    waiting.on("market", "asking vast.ai")
    clock.sleep(29)
    waiting.look()
    waiting.end("market")
    clock.sleep(60)
    waiting.look()
    assert len(told) == 3


def test_what_is_over_when_it_is_asked_for_is_not_told_again(clock: FakeClock) -> None:
    told: list[str] = []
    states = iter(["job-1 is training", None])
    waiting = Waiting(told.append, every=30, clock=clock)
    waiting.on("job-1", lambda: next(states))
    for _ in range(4):
        clock.sleep(30)
        waiting.look()
    assert told == ["job-1 is training: no update for 30s"]
