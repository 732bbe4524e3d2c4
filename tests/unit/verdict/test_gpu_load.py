"""What utilization and power say of a GPU, and which of several speaks for a training."""

from __future__ import annotations

import pytest

from training_monitor.core.models import Gpu
from training_monitor.verdict.gpu_load import gpu_load, gpu_mode


def test_full_utilization_at_idle_power_is_a_collective_that_waits(subtests: pytest.Subtests) -> None:
    for utilization, power, mode in [
        (0.0, 0.1, "idle"),
        (9.0, None, "idle"),
        (97.0, 0.13, "spinning"),
        (92.0, 0.35, "spinning"),
        (97.0, 0.8, "busy"),
        (97.0, None, "busy"),
        (50.0, 0.2, "busy"),
        (None, 0.8, None),
    ]:
        with subtests.test(utilization=utilization, power=power, mode=mode):
            assert gpu_mode(utilization, power) == mode


def gpu(utilization: float | None, watts: float | None, error: str | None = None) -> Gpu:
    return Gpu(0, utilization=utilization, power_draw_watts=watts, power_limit_watts=700.0, error=error)


def test_the_gpu_that_works_hardest_speaks_for_all() -> None:
    assert gpu_load([gpu(100, 140), gpu(62, 350), gpu(0, 70)]) == (62, 0.5)
    assert gpu_load([gpu(100, 140), gpu(0, 70)]) == (100, 0.2)


def test_a_lost_gpu_tells_nothing_and_hides_nothing() -> None:
    lost = gpu(None, None, "fell off the bus")
    assert gpu_load([lost, *[gpu(100, 140)] * 7]) == (100, 0.2)
    assert gpu_load([lost]) == gpu_load([]) == (None, None)
