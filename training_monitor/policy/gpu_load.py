"""What a GPU's utilization and power say of it: the one place with thresholds for that. Pure.

nvidia-smi's utilization counts the time in which any kernel ran: a collective that waits for a missing rank shows
100 %, at little more than the power of an idle GPU (NVIDIA/nccl#968: 100 % at some 70 of 300 W).
"""

from __future__ import annotations

from collections.abc import Sequence

from training_monitor.models import Gpu

IDLE_PERCENT = 10.0
FULL_PERCENT = 90.0
SPINNING_POWER = 0.4  # of the power limit


def gpu_mode(utilization: float | None, power_fraction: float | None) -> str | None:
    """`idle`, `spinning` (full utilization at idle power) or `busy`; None when the utilization is not known."""
    if utilization is None:
        return None
    if utilization < IDLE_PERCENT:
        return "idle"
    if utilization >= FULL_PERCENT and power_fraction is not None and power_fraction < SPINNING_POWER:
        return "spinning"
    return "busy"


def power_fraction(gpu: Gpu) -> float | None:
    """The power it draws over its limit, 0 to 1; None when either is not known."""
    draw, limit = gpu.power_draw_watts, gpu.power_limit_watts
    return min(1.0, draw / limit) if draw is not None and limit else None


def mode_of(gpu: Gpu) -> str | None:
    """`gpu_mode` of one GPU; None of one that is lost or tells nothing."""
    return None if gpu.error else gpu_mode(gpu.utilization, power_fraction(gpu))


def gpu_load(gpus: Sequence[Gpu]) -> tuple[float | None, float | None]:
    """(utilization in per cent, power over its limit) of the GPU that works hardest.

    It speaks for all of a training: while one of them computes, the training is at work, though the others wait for it
    in a collective. GPUs that are lost tell nothing, and hide nothing.
    """
    order = {"busy": 2, "spinning": 1, "idle": 0}
    known = [(order[mode], power_fraction(gpu) or 0.0, gpu) for gpu in gpus if (mode := mode_of(gpu))]
    if not known:
        return None, None
    hardest = max(known, key=lambda each: each[:2])[2]
    return hardest.utilization, power_fraction(hardest)
