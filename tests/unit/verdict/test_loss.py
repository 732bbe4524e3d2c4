"""What a run's loss says about it."""

from __future__ import annotations

from math import exp, inf, nan
from random import Random

import pytest

from training_monitor.core.values import Observation
from training_monitor.verdict.loss import analyze_loss


def kind_of(losses: list[float]) -> str | None:
    return analyze_loss([Observation(30.0 * at, at, loss=loss) for at, loss in enumerate(losses)]).kind


def falling(count: int, *, seed: int = 1, noise: float = 0.05) -> list[float]:
    chance = Random(seed)
    return [1.0 + 3.0 * exp(-3.0 * at / count) + chance.gauss(0, noise) for at in range(count)]


def flat(count: int, level: float = 1.0, *, seed: int = 2, noise: float = 0.05) -> list[float]:
    chance = Random(seed)
    return [level + chance.gauss(0, noise) for at in range(count)]


def test_a_loss_that_falls_is_nothing_to_report(subtests: pytest.Subtests) -> None:
    for seed in range(20):
        for noise in [0.0, 0.02, 0.2]:
            with subtests.test(seed=seed, noise=noise):
                assert kind_of(falling(300, seed=seed, noise=noise)) is None


@pytest.mark.parametrize("bad", [nan, inf, -inf])
def test_nan_is_told_at_once_and_forgotten_when_it_passed(bad: float) -> None:
    assert kind_of([2.0, bad]) == "nan"
    assert kind_of([2.0, bad, 1.9]) is None


def test_a_jump_is_a_spike_and_a_small_one_is_not() -> None:
    assert kind_of([*falling(100), 9.0]) == "spike"
    assert kind_of([*falling(100), 1.3]) is None


def test_a_loss_that_keeps_rising_diverges(subtests: pytest.Subtests) -> None:
    for seed in range(10):
        with subtests.test(seed=seed):
            rising = [1.2 + 0.02 * at + noise for at, noise in enumerate(flat(60, 0.0, seed=seed))]
            assert kind_of([*falling(200, seed=seed), *rising]) == "divergence"


def test_a_loss_that_fell_and_falls_no_more_is_on_a_plateau(subtests: pytest.Subtests) -> None:
    for seed in range(10):
        with subtests.test(seed=seed):
            assert kind_of([*falling(100, seed=seed), *flat(300, 1.1, seed=seed)]) == "plateau"
    assert kind_of(flat(300, 0.0, noise=0.01)) is None, "it never fell"


def test_negative_losses_are_judged_by_their_size() -> None:
    assert kind_of([-loss for loss in reversed(falling(300))]) is None
    assert kind_of([*flat(100, -5.0), 3.0]) == "spike"


def test_a_step_that_is_seen_twice_counts_once() -> None:
    twice = [Observation(10.0 * at, at // 2, loss=2.0) for at in range(30)]
    assert analyze_loss(twice).reason == "too few loss values to detect an anomaly"


@pytest.mark.parametrize("samples", [[], [Observation(0.0, None)]])
def test_where_no_loss_was_seen_nothing_is_said(samples: list[Observation]) -> None:
    found = analyze_loss(samples)
    assert (found.kind, found.last, found.reason) == (None, None, "no loss found")
