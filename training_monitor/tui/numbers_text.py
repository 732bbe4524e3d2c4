"""Numbers as the columns of a screen show them, short; `-` is not known. Pure."""

from __future__ import annotations

from datetime import datetime
from math import isfinite

from training_monitor.policy.training_metrics import TrainingMetrics
from training_monitor.units import format_bytes, format_duration, known_number

NOT_KNOWN = "-"
_LOSS_WIDTH = 6


def format_percent(value: float | None) -> str:
    """85.2, 100."""
    if value is None:
        return NOT_KNOWN
    return f"{value:.0f}" if value != value or abs(value) >= 99.95 else f"{value:.1f}"


def format_number(value: float | None) -> str:
    """A number in at most six characters or so: 2.345, 0.0123, 1.2e-5, nan."""
    if value is None:
        return NOT_KNOWN
    if not isfinite(value) or value == 0:
        return f"{value:g}"
    if not 1e-3 <= abs(value) < 10**_LOSS_WIDTH:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    texts = (f"{value:.{decimals}f}" for decimals in ((3, 2, 1, 0) if abs(value) >= 1 else (4, 3)))
    return next((text for text in texts if len(text) <= _LOSS_WIDTH), f"{value:.0f}")


def format_price(dollars: float | None) -> str:
    """$0.467, of an hour; $12.35 and $123 when it is more."""
    if dollars is None:
        return NOT_KNOWN
    return f"${dollars:.3f}" if dollars < 10 else f"${dollars:.2f}" if dollars < 100 else f"${dollars:.0f}"


def format_total(dollars: float | None) -> str:
    """$15.23, of all hours so far; $152.3 and $1523 when it is more."""
    if dollars is None:
        return NOT_KNOWN
    return f"${dollars:.2f}" if dollars < 100 else f"${dollars:.1f}" if dollars < 1000 else f"${dollars:.0f}"


def format_memory(count: float | None, unit: float = 1) -> str:
    """4.0 GiB, of so many units of so many bytes."""
    known = known_number(count)
    return NOT_KNOWN if known is None else format_bytes(known * unit)


def format_eta(metrics: TrainingMetrics) -> str:
    """45m, 2h05m."""
    left = metrics.seconds_left()
    return NOT_KNOWN if left is None else format_duration(left)


def format_progress(metrics: TrainingMetrics) -> str:
    """`E1/3 70%`; the step where nobody knows the last one."""
    percent, parts = metrics.progress_percentage(), []
    if metrics.epoch is not None:
        total = f"/{metrics.total_epochs}" if metrics.total_epochs else ""
        parts.append(f"E{round(metrics.epoch, 1):g}{total}")
    if percent is not None:
        parts.append(f"{int(percent)}%")
    elif metrics.step is not None:
        parts.append(f"step {metrics.step}")
    return " ".join(parts) or NOT_KNOWN


def format_steps(metrics: TrainingMetrics) -> str:
    """700/1000."""
    if metrics.step is None:
        return NOT_KNOWN
    return f"{metrics.step}/{metrics.total_steps}" if metrics.total_steps else str(metrics.step)


def format_age(seconds: float | None) -> str:
    """How long ago, in whole units: 3s, 12m, 5h, 2d; ? when nobody knows."""
    if seconds is None or not isfinite(seconds):
        return "?"
    seconds = max(0.0, seconds)
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{int(seconds // length)}{unit}"
    return f"{int(seconds)}s"


def format_clock(timestamp: float | None) -> str:
    """The time of day here, HH:MM:SS."""
    return _local(timestamp, "%H:%M:%S")


def format_date(timestamp: float | None) -> str:
    """The day and time here, 2026-03-01 12:30."""
    return _local(timestamp, "%Y-%m-%d %H:%M")


def _local(timestamp: float | None, pattern: str) -> str:
    if timestamp is None:
        return "?"
    try:
        return datetime.fromtimestamp(timestamp).strftime(pattern)
    except (ValueError, OverflowError, OSError):
        return "?"
