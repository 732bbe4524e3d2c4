"""What a column of the fleet declares: the value of a member, and where that is shown, stored and exported. Pure.

The columns themselves are `FLEET_COLUMNS` in fleet/metrics.py, beside the values that they show. The terminal, the web
page, the history, alert rules and Prometheus take all that they need to know of a column from its row there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from training_monitor.core.units import known_number

MB_PER_GB = 1024.0


@dataclass(frozen=True, slots=True)
class FleetColumn:
    """A value of each member, and where it is shown, stored and exported: nowhere that its row does not name.

    Attributes:
        attribute: of TrainingMetrics, or a method of it without arguments.
        title: on the terminal. heading: shown instead of it above the column.
        unit: number, percent, share (0 to 1), price, total, duration, text, or a format such as `{:.0f}`.
        of: where it comes from, which says when it is only known from before. machine: once a look fails; log: also
            when the training is absent; account: never.
        name: in samples, the history, alert rules and JSON. place: in the stored rows of the history, never another
            column's. thinned: what is stored of some minutes, their mean or the last value.
        seen, listed: return the value from a TargetReading, and from a row of vast.ai's listing.
        align: < or >. beside: the title of the column left of it, where that is not the row before.
        widths: in cells, by the cells that the whole table takes with them; the first of all columns come first.
        cell: how the table shows a known value. optional: it is left out where no member has a value.
        letter: sorts by it; falling: from the greatest value on, where that is the worst.
        page: on the web page, as (place from the left, title, what it is, how soon it gives way on a narrow screen: 0
            last, 2 first).
        fact: on the page of one member, as (name, how it is shown there); columns of one name are shown together.
        metric: of Prometheus, as (name without its prefix, help).
    """

    attribute: str
    title: str = ""
    unit: str = "number"
    of: str = "machine"
    name: str = ""
    place: int = -1
    thinned: str = "mean"
    seen: Callable[[Any], float | None] | None = None
    listed: Callable[[Mapping[str, Any]], float | None] | None = None
    align: str = ">"
    heading: str = ""
    beside: str = ""
    widths: Mapping[int, int] = field(default_factory=dict)
    cell: str = "{}"
    optional: bool = False
    letter: str = ""
    falling: bool = False
    page: tuple[int, str, str, int] | None = None
    fact: tuple[str, str] | None = None
    metric: tuple[str, str] | None = None

    def value(self, row: Any) -> Any:
        """Return its value in a row of TrainingMetrics; None if unknown."""
        value = getattr(row, self.attribute)
        return value() if callable(value) else value

    def now(self, row: Any) -> Any:
        """Return its value, unless the training is absent and that is where it comes from."""
        return None if self.of == "log" and row.absent is not None else self.value(row)


# ---------------------------------------------------------------- reading values


def positive(value: object) -> float | None:
    """Return a number from 0 on; None for all else."""
    number = known_number(value)
    return number if number is not None and number >= 0 else None


def percent(value: object) -> float | None:
    """Return per cent, at most 100."""
    number = positive(value)
    return None if number is None else min(100.0, number)


def share(used: float | None, of: float | None) -> float | None:
    """Return per cent; None where the whole is unknown."""
    return min(100.0, 100.0 * used / of) if used is not None and of else None


def memory_seen(reading: Any) -> float | None:
    """Return per cent of the memory of the GPUs of which both numbers are known."""
    used = [(gpu.memory_used_mb, gpu.memory_total_mb) for gpu in reading.gpus]
    known = [(a, b) for a, b in used if a is not None and b is not None]
    return share(sum(a for a, _ in known), sum(b for _, b in known))


def memory_listed(listed: Mapping[str, Any]) -> float | None:
    """Return per cent of the GPUs' memory."""
    each, used_gb = positive(listed.get("gpu_ram")), positive(listed.get("vmem_usage"))
    total_mb = positive(listed.get("gpu_totalram")) or each and each * (positive(listed.get("num_gpus")) or 1.0)
    return share(None if used_gb is None else used_gb * MB_PER_GB, total_mb)


def disk_listed(listed: Mapping[str, Any]) -> float | None:
    """Return per cent of the disk, if its size is not listed as the service computed it."""
    used = share(positive(listed.get("disk_usage")), positive(listed.get("disk_space")))
    return percent(listed.get("disk_util")) if used is None else used
