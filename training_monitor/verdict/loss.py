"""Analyze a run's loss for NaN, a spike, divergence or a plateau. Pure.

    nan         the newest loss is NaN or infinite
    spike       the newest loss is above the last 50 by more than 8 robust deviations, and by a quarter
    divergence  the medians of three successive blocks rise, and the last is above the best block by 4 robust
                deviations of their noise, and by a tenth
    plateau     over the last half of at least 100 losses, the medians of four blocks differ by less than 4 times their
                noise, and the loss fell before

Deviations are 1.4826 times the median absolute deviation. A loss may be negative (reinforcement learning): shares are
relative to the larger of the median's absolute value and the deviation.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, sqrt

from training_monitor.core.units import median
from training_monitor.core.values import LossAnalysis, Observation

WINDOW = 50
SPIKE_DEVIATIONS, SPIKE_SHARE = 8.0, 0.25
DIVERGENCE_DEVIATIONS, DIVERGENCE_SHARE = 4.0, 0.1
LEAST = 20
LEAST_FOR_PLATEAU = 100


def analyze_loss(samples: Sequence[Observation]) -> LossAnalysis:
    """Analyze the losses of a run's samples, oldest first, for NaN, spikes, divergence and plateaus.

    Each step contributes one loss. The `kind` of the result is nan | spike | divergence | plateau, or None if the
    losses are normal or too few. The result also has the most recent loss, and the lowest median loss of any block of
    steps.
    """
    losses = _by_step(samples)
    if not losses:
        return LossAnalysis(None, "no loss found", None, None)
    last, finite = losses[-1], [loss for loss in losses if isfinite(loss)]
    best = min(_medians(finite, 5), default=None)
    if not isfinite(last):
        return LossAnalysis("nan", f"the loss is {last}", last, best)
    for kind, judge in (("spike", _spike), ("divergence", _divergence), ("plateau", _plateau)):
        if reason := judge(finite):
            return LossAnalysis(kind, reason, last, best)
    return LossAnalysis(
        None, "no anomaly" if len(finite) >= LEAST else "too few loss values to detect an anomaly", last, best
    )


def needs_analysis(before: LossAnalysis | None, loss: float | None) -> bool:
    """Return whether a new loss may need an analysis: it is not finite, it may be a spike, or something stood out."""
    if before is None or before.kind is not None:
        return True
    if loss is None or before.best is None:  # a best block is there long before the first spike
        return loss is not None and not isfinite(loss)
    return not loss - before.best <= SPIKE_SHARE * abs(before.best)


def _by_step(samples: Sequence[Observation]) -> list[float]:
    losses: list[float] = []
    step: int | None = None
    for sample in samples:
        if sample.loss is not None and (sample.step is None or sample.step != step):
            losses.append(sample.loss)
            step = sample.step
    return losses


def _spread(losses: Sequence[float]) -> float:
    middle = median(losses)
    return 1.4826 * median(abs(loss - middle) for loss in losses)


def _medians(losses: Sequence[float], size: int) -> list[float]:
    """Return the medians of the full blocks, the newest last."""
    first = len(losses) % size
    return [median(losses[at : at + size]) for at in range(first, len(losses) - size + 1, size)]


def _spike(losses: Sequence[float]) -> str | None:
    past = losses[-WINDOW - 1 : -1]
    if len(past) < LEAST:
        return None
    middle, spread = median(past), _spread(past)
    rise = losses[-1] - middle
    if rise > SPIKE_DEVIATIONS * spread and rise > SPIKE_SHARE * max(abs(middle), spread):
        return f"the loss jumped to {losses[-1]:.4g} from about {middle:.4g}"
    return None


def _noise(losses: Sequence[float], size: int) -> float:
    """Return the deviation of a block's median, from neighbouring differences, so that a trend does not count."""
    return _spread([b - a for a, b in zip(losses, losses[1:])]) / sqrt(size)


def _divergence(losses: Sequence[float]) -> str | None:
    size = max(5, len(losses) // 20)
    blocks = _medians(losses, size)
    if len(losses) < LEAST or len(blocks) < 4:
        return None
    best, last = min(blocks), blocks[-1]
    rising = blocks[-3] < blocks[-2] < last
    far = last - best > max(DIVERGENCE_DEVIATIONS * _noise(losses, size), DIVERGENCE_SHARE * abs(best))
    if rising and far:
        return f"the loss is rising: about {last:.4g} now, {best:.4g} at its lowest"
    return None


def _plateau(losses: Sequence[float]) -> str | None:
    if len(losses) < LEAST_FOR_PLATEAU:
        return None
    half = losses[len(losses) // 2 :]
    size = len(half) // 4
    blocks, noise = _medians(half, size), _noise(half, size)
    before = median(losses[: len(losses) // 4])
    flat = max(blocks) - min(blocks) <= 4.0 * noise
    if flat and before - blocks[-1] > 4.0 * noise:
        return f"the loss has stayed at about {blocks[-1]:.4g} over the last {len(half)} of {len(losses)} values"
    return None
