"""Metrics as they are written: numbers, booleans and short texts, whatever the script handed in. No I/O."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping

from training_monitor.errors import redact
from training_monitor.policy.run_values import LOSSES, Scalar
from training_monitor.progress.endings import text_of

MOST_METRICS, MOST_TEXT, MOST_NAME, MOST_LOSSES = 200, 200, 100, 64
_LARGEST = 2**63


class MetricValues:
    """The metrics as written last: an object that is still the same one is not converted again.

    Converting a tensor on a GPU waits for the GPU. It is done at most once a write, in the background. Nothing is kept
    alive here: what a tensor was computed from may be large.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[Callable[[], object], Scalar]] = {}

    def update(self, metrics: Mapping[str, object]) -> bool:
        """Convert what is new, of the first 200; True when anything differs from the last time."""
        before, now = self._known, {}
        has_changed = len(before) != min(len(metrics), MOST_METRICS)
        for name, value in list(metrics.items())[:MOST_METRICS]:
            known = before.get(name)
            if known is None or known[0]() is not value:
                has_changed, known = True, (_reference(value), plain_value(value))
            now[name] = known
        self._known = now  # at once: another thread may be writing what was known
        return has_changed

    def plain(self) -> dict[str, Scalar]:
        """What goes into the file."""
        return {name[:MOST_NAME]: written(value) for name, (_, value) in self._known.items()}

    def loss(self) -> float | None:
        """The loss of the training; nan or infinite where it is, None when there is none."""
        for name in LOSSES:
            value = self._known[name][1] if name in self._known else None
            if isinstance(value, int | float) and not isinstance(value, bool):
                return float(value)
        return None


class Discarded(dict[str, object]):
    """Where metrics go that nobody writes any more: nothing of them is kept."""

    def update(self, *mappings: object, **metrics: object) -> None: ...


class LossHistory:
    """The loss over a whole run, thinned evenly: at most 64 values, the last one always among them."""

    def __init__(self) -> None:
        self._kept: list[float] = []
        self._stride, self._passed = 1, 0
        self._last: float | None = None

    def add(self, loss: float) -> None:
        self._last = loss
        if self._passed % self._stride == 0:
            if len(self._kept) == MOST_LOSSES - 1:
                del self._kept[1::2]
                self._stride *= 2
            if self._passed % self._stride == 0:
                self._kept.append(loss)
        self._passed += 1

    def values(self) -> list[float | None]:
        """Oldest first; None for what is no finite number."""
        is_kept = self._passed == 0 or (self._passed - 1) % self._stride == 0
        losses = self._kept if is_kept or self._last is None else [*self._kept, self._last]
        return [loss if math.isfinite(loss) else None for loss in losses]


def plain_value(value: object) -> Scalar:
    """A number, boolean or text for any object, such as a tensor or array of one element; never raises."""
    try:
        return _plain(value)
    except Exception as error:  # whatever somebody's own class raises
        return redact(f"{type(value).__name__}: {text_of(error)}")[:MOST_TEXT]


def _plain(value: object) -> Scalar:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return redact(str(value)[:MOST_TEXT])
    if isinstance(value, int):
        return int(value) if abs(value) < _LARGEST else _large(value)
    if isinstance(value, float):
        return float(value)
    return _converted(value)


def written(value: Scalar) -> Scalar:
    """The same for JSON, which has no nan and no infinity: they are texts there."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _large(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _converted(value: object) -> Scalar:
    """By `item()` as tensors, arrays and their scalars have it, else by float()."""
    item = getattr(value, "item", None)
    number = item() if callable(item) else float(value)  # type: ignore[arg-type]
    return _plain(number) if isinstance(number, bool | int | float | str) else float(number)


def _reference(value: object) -> Callable[[], object]:
    """What gives the object while it is there; one that cannot be referred to so, such as a number, is kept."""
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value
