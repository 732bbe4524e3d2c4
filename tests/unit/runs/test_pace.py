"""How soon a rate follows a lasting change, and how little it cares for pauses."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from training_monitor.runs.clock import MOST_SAMPLES, Pace

LOOK = 0.25  # seconds between two looks of the background thread
FACTORS = (0.1, 0.2, 0.5, 0.8, 0.9, 1.1, 1.25, 2.0, 5.0, 10.0)
PAUSES = (1.0, 5.0, 30.0, 120.0, 600.0)
Speeds = Sequence[tuple[float, float]]  # (from so many seconds on, batches a second)
Rates = list[tuple[float, float]]  # (seconds, the rate that is shown)


def rates(speeds: Speeds, seconds: float, *, pause: tuple[float, float] = (0.0, 0.0), spread: float = 0.0) -> Rates:
    """What is shown at every look that sees a new batch; `pause` is (at, so many seconds long)."""
    pace, rng, shown = Pace(), random.Random(7), []
    now, look, batch, waiting = 0.0, 0.0, 0, list(speeds)
    speed = waiting.pop(0)[1]
    while now < seconds:
        if waiting and now >= waiting[0][0]:
            speed = waiting.pop(0)[1]
        batch += 1
        if now >= look:
            look = (now // LOOK + 1) * LOOK
            pace.add(look, batch)
            shown.append((look, pace.rate or 0.0))
        step = rng.lognormvariate(0.0, spread) / speed
        if pause[1] and now <= pause[0] < now + step:
            step += pause[1]
        now += step
    assert len(pace._samples) <= MOST_SAMPLES
    return shown


def at(shown: Rates, seconds: float) -> float:
    return next(rate for when, rate in reversed(shown) if when <= seconds)


def test_any_rate_follows_any_change_within_a_minute_or_a_few_batches(subtests: pytest.Subtests) -> None:
    for rate in [0.001, 0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0, 1000.0]:
        with subtests.test(rate=rate):
            for factor in FACTORS:
                changes, after = max(60.0, 8 / rate), rate * factor
                limit = changes + max(60.0, 6 / after)
                if after <= 1000:
                    for when, shown in rates([(0, rate), (changes, after)], limit + max(30.0, 4 / after)):
                        if when >= limit:
                            assert shown == pytest.approx(after, rel=0.25), (factor, when)


def test_a_single_pause_changes_nothing(subtests: pytest.Subtests) -> None:
    for rate in [0.001, 0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0]:
        with subtests.test(rate=rate):
            for pause in PAUSES:
                paused_at = max(40.0, 8.5 / rate)
                for when, shown in rates(
                    [(0, rate)], paused_at + pause + max(90.0, 8 / rate), pause=(paused_at, pause)
                ):
                    if when >= paused_at:
                        assert shown == pytest.approx(rate, rel=0.1), (pause, when)


def test_steps_that_vary_are_no_change_and_hide_none() -> None:
    for rate in (0.1, 0.5, 2.0, 20.0):
        for when, shown in rates([(0, rate)], max(3600.0, 200 / rate), spread=0.3):
            if when >= 40 / rate:
                assert shown == pytest.approx(rate, rel=0.35), (rate, when)
    for rate in (0.5, 2.0, 20.0):
        shown = rates([(0, rate), (600, rate / 3)], 720, spread=0.2)
        assert at(shown, 660) == pytest.approx(rate / 3, rel=0.3)


def test_pauses_do_not_move_the_rate() -> None:
    pace, seconds = Pace(), 0.0
    for batch in range(1, 31):
        seconds += 60.0 if batch == 15 else 1.0
        pace.add(seconds, batch)
    assert pace.rate == pytest.approx(1.0, rel=0.05)
    pace, seconds = Pace(), 0.0
    for batch in range(1, 2001):
        seconds += 20.0 if batch % 40 == 0 else 1.0
        pace.add(seconds, batch)
        assert batch < 20 or 0.5 < (pace.rate or 0.0) <= 1.01  # 0.68 with the pauses
    assert pace.changes == 0


def test_a_clock_or_counter_that_stands_still_or_goes_back_adds_nothing() -> None:
    pace = Pace()
    for seconds, batch in ((10.0, 1), (10.0, 2), (20.0, 11), (5.0, 12), (30.0, 3)):
        pace.add(seconds, batch)
    assert pace.rate == 1.0
