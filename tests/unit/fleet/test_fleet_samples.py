"""The last samples of a member: in order, bounded, and what is not known stays not known."""

from __future__ import annotations

import math

from training_monitor.fleet.member import LastSamples
from training_monitor.fleet.values import REPORTED, FleetSample


def sample(number: int, loss: float | None = None) -> FleetSample:
    return FleetSample(float(number), {**dict.fromkeys(REPORTED), "step": number, "loss": loss}, f"status {number}")


def test_the_newest_stay_oldest_first() -> None:
    last = LastSamples(3)
    assert last.all() == ()
    for number in range(5):
        last.add(sample(number))
        assert last.all() == tuple(sample(each) for each in range(max(0, number - 2), number + 1))


def test_nan_zero_and_not_known_are_told_apart() -> None:
    last = LastSamples(10)
    for loss in (None, 0.0, -1.5, math.inf):
        last.add(sample(0, loss))
    last.add(FleetSample(1.0, {"loss": math.nan}))
    *others, nan = (each.values["loss"] for each in last.all())
    assert others == [None, 0.0, -1.5, math.inf] and nan is not None and math.isnan(nan)
    assert last.all()[-1].status is None and last.all()[-1].values["step"] is None
