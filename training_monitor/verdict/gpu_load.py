"""Interpret a GPU's utilization and power; all thresholds for that are here. Pure.

nvidia-smi's utilization is the share of time in which any kernel ran: a collective that waits for a missing rank shows
100 %, at little more than idle power (NVIDIA/nccl#968: 100 % at some 70 of 300 W).
"""

from __future__ import annotations

from collections.abc import Sequence

from training_monitor.core.models import Gpu

IDLE_PERCENT = 10.0
FULL_PERCENT = 90.0
SPINNING_POWER = 0.4  # of the power limit


def gpu_mode(utilization: float | None, power_fraction: float | None) -> str | None:
    """Return `idle`, `spinning` (full utilization at idle power) or `busy`; None if the utilization is unknown."""
    if utilization is None:
        return None
    if utilization < IDLE_PERCENT:
        return "idle"
    if utilization >= FULL_PERCENT and power_fraction is not None and power_fraction < SPINNING_POWER:
        return "spinning"
    return "busy"


def power_fraction(gpu: Gpu) -> float | None:
    """Return the power draw over its limit, 0 to 1; None if either is unknown."""
    draw, limit = gpu.power_draw_watts, gpu.power_limit_watts
    return min(1.0, draw / limit) if draw is not None and limit else None


def mode_of(gpu: Gpu) -> str | None:
    """Return the `gpu_mode` of one GPU; None if it is lost or reports nothing."""
    return None if gpu.error else gpu_mode(gpu.utilization, power_fraction(gpu))


def gpu_load(gpus: Sequence[Gpu]) -> tuple[float | None, float | None]:
    """Return (utilization in per cent, power over its limit) of the busiest GPU.

    It represents the whole training: while one GPU computes, the training works, even if the others wait for it in a
    collective. Lost GPUs are ignored.
    """
    order = {"busy": 2, "spinning": 1, "idle": 0}
    known = [(order[mode], power_fraction(gpu) or 0.0, gpu) for gpu in gpus if (mode := mode_of(gpu))]
    if not known:
        return None, None
    hardest = max(known, key=lambda each: each[:2])[2]
    return hardest.utilization, power_fraction(hardest)
