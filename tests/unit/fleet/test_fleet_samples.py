"""The last samples of a member: in order, bounded, and what is not known stays not known."""

from __future__ import annotations

import math
import random

from training_monitor.fleet.buffers import LastSamples
from training_monitor.fleet.values import REPORTED, FleetSample


def sample(number: int, loss: float | None = None) -> FleetSample:
    return FleetSample(float(number), {**dict.fromkeys(REPORTED), "step": number, "loss": loss}, f"status {number}")


def test_all_are_kept_until_there_are_too_many_and_then_every_second_one() -> None:
    last = LastSamples(4, 3600.0)
    assert last.all() == ()
    for number in range(4):
        last.add(sample(number))
        assert last.all() == tuple(sample(each) for each in range(number + 1))
    last.add(sample(4))
    assert last.all() == (sample(0), sample(2), sample(4))


def test_however_many_come_they_are_spread_evenly_and_the_newest_is_there() -> None:
    last, chance = LastSamples(60, 3600.0), random.Random(5)
    at = 0.0
    for number in range(5000):
        at += chance.uniform(0.8, 1.2)
        last.add(FleetSample(at, {**dict.fromkeys(REPORTED), "step": number}, "running"))
        kept = [each.timestamp for each in last.all()]
        assert kept[-1] == at and len(kept) <= 60 and kept[0] >= at - 3600
        if number > 60:
            gaps = [after - before for before, after in zip(kept, kept[1:-1])]
            assert len(kept) >= 30 and max(gaps) <= 3 * min(gaps)


def test_old_looks_are_dropped_but_not_after_a_clock_change() -> None:
    last = LastSamples(60, 100.0)
    for at in (0, 50, 120, 40, 50):
        last.add(sample(at))
    assert [each.timestamp for each in last.all()] == [50, 120, 40, 50]


def test_nan_zero_and_not_known_are_told_apart() -> None:
    last = LastSamples(10, 3600.0)
    for loss in (None, 0.0, -1.5, math.inf):
        last.add(sample(0, loss))
    last.add(FleetSample(1.0, {"loss": math.nan}))
    *others, nan = (each.values["loss"] for each in last.all())
    assert others == [None, 0.0, -1.5, math.inf] and nan is not None and math.isnan(nan)
    assert last.all()[-1].status is None and last.all()[-1].values["step"] is None
