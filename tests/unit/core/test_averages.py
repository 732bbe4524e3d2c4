"""The median against that of the standard library."""

from __future__ import annotations

import random
import statistics

import pytest

from training_monitor.core.units import median


def test_it_is_the_median_of_the_standard_library() -> None:
    chance = random.Random(1)
    for size in range(1, 40):
        values = [chance.choice((chance.gauss(0, 10), chance.randint(-3, 3))) for _ in range(size)]
        assert median(iter(values)) == statistics.median(values)


def test_there_is_none_of_nothing() -> None:
    for find in (median, statistics.median):
        with pytest.raises(ValueError, match="no median"):
            find([])
