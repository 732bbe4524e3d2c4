"""How the history keeps samples: one as a row of text, many of one member as a chunk, and fewer of them. Pure.

A row is a JSON array: the status, then the values in the order of FIELDS, which may only grow at its end.

A chunk is a JSON object, compressed by zlib: `layout`; `times`, in milliseconds, the first from the epoch on and each
other one from the one before; `status` as pairs of a text and how often it follows; and `columns` by name. A column is
the number of its decimals, then its values as whole numbers of that unit, each the difference to the known one before.
null is not known; NaN and the infinities are themselves. A column of which nothing is known is left out.

Kept are 6 significant digits, whole numbers below 2**53 exactly, and milliseconds.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate, groupby
from math import fsum, isfinite
from typing import Any

from training_monitor.errors import ParseError
from training_monitor.policy.fleet_values import FleetSample

LAYOUT = 1
BUCKET = 300.0  # seconds, of which one sample is left when samples are thinned
LONGEST_STATUS = 40
FIELDS = (
    "gpu_utilization",
    "memory_utilization",
    "disk_utilization",
    "ram_utilization",
    "gpu_power",
    "gpu_temperature",
    "step",
    "epoch",
    "loss",
    "learning_rate",
    "grad_norm",
    "steps_per_second",
    "eta_seconds",
    "cost_per_hour",
    "total_cost",
    "runtime_seconds",
)
# Of these a thinned sample has the last value; of all others the mean.
_LAST = {"step", "epoch", "learning_rate", "eta_seconds", "cost_per_hour", "total_cost", "runtime_seconds"}
_UNKNOWN: Mapping[str, float | None] = dict.fromkeys(FIELDS)
_EXACT = 2.0**53
_SOURCE = "the history"


def rounded(sample: FleetSample) -> FleetSample:
    """The sample as it is kept. What is no number is not known, and a value of a name that is not kept is gone."""
    status = sample.status[:LONGEST_STATUS] if isinstance(sample.status, str) else None
    values = {name: _rounded(sample.values.get(name)) for name in FIELDS}
    return FleetSample(round(sample.timestamp, 3), values, status)


def _rounded(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        if not isfinite(value):
            return float(value)
        number = value if value == int(value) and abs(value) < _EXACT else float(f"{value:.6g}")
        return int(number) if abs(number) < _EXACT and number == int(number) else number
    except OverflowError:
        return None


# ---------------------------------------------------------------- rows


def format_row(sample: FleetSample) -> str:
    """One sample as it was rounded; its timestamp is kept beside the row."""
    return json.dumps([sample.status, *(sample.values[name] for name in FIELDS)], separators=(",", ":"))


def parse_row(timestamp: float, text: str) -> FleetSample:
    """The sample of a row; of what is no row nothing is known but its time."""
    try:
        status, *values = json.loads(text)
    except (ValueError, TypeError):
        status, values = None, []
    known = [value if type(value) in (int, float) else None for value in values]
    return FleetSample(timestamp, {**_UNKNOWN, **dict(zip(FIELDS, known))}, status if type(status) is str else None)


# ---------------------------------------------------------------- chunks


def pack_chunk(samples: Sequence[FleetSample]) -> bytes:
    """Many samples of one member, oldest first, as they were rounded."""
    times = [round(sample.timestamp * 1000) for sample in samples]
    columns = {name: [sample.values[name] for sample in samples] for name in FIELDS}
    chunk = {
        "layout": LAYOUT,
        "times": [after - before for before, after in zip([0, *times], times)],
        "status": [(text, len(list(group))) for text, group in groupby(sample.status for sample in samples)],
        "columns": {name: _pack_column(column) for name, column in columns.items() if set(column) != {None}},
    }
    return zlib.compress(json.dumps(chunk, separators=(",", ":")).encode())


def unpack_chunk(packed: bytes, fields: Collection[str] = FIELDS) -> list[FleetSample]:
    """The samples of a chunk, oldest first.

    Args:
        packed: a chunk.
        fields: only these are read, which takes less time; all others are not known.

    Raises:
        ParseError: it is none, or a later version wrote it.
    """
    try:
        chunk = json.loads(zlib.decompress(packed))
        if (layout := chunk["layout"]) == LAYOUT:
            return _read_chunk(chunk, fields)
    except (zlib.error, ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        raise ParseError(f"samples that cannot be read ({type(error).__name__}: {error})", source=_SOURCE) from error
    raise ParseError(f"samples in layout {layout!r} of a later version; update training_monitor", source=_SOURCE)


def _read_chunk(chunk: Mapping[str, Any], fields: Collection[str]) -> list[FleetSample]:
    states = [text for text, count in chunk["status"] for _ in range(count)]
    there, unknown = chunk["columns"], [None] * len(states)
    columns = [_unpack_column(there[name]) if name in there and name in fields else unknown for name in FIELDS]
    return [
        FleetSample(time / 1000, dict(zip(FIELDS, values)), state)
        for time, state, *values in zip(accumulate(chunk["times"]), states, *columns, strict=True)
    ]


def _pack_column(values: Sequence[float | None]) -> list[Any]:
    decimals = max([0, *map(_decimals, values)])
    packed: list[Any] = [decimals]
    before = 0
    for value in values:
        if value is None or not isfinite(value):
            packed.append(value)
            continue
        number = int(f"{value:.{decimals}f}".replace(".", "")) if decimals else int(value)
        packed.append(number - before)
        before = number
    return packed


def _decimals(value: float | None) -> int:
    """How many a number needs to be itself again."""
    if not isinstance(value, float) or not isfinite(value):
        return 0
    digits, _, exponent = repr(value).partition("e")
    return len(digits.partition(".")[2]) - int(exponent or 0)


def _unpack_column(packed: Sequence[Any]) -> list[float | None]:
    decimals, *parts = packed
    unit, number = 10**decimals, 0
    values: list[float | None] = []
    for part in parts:
        if isinstance(part, int):
            number += part
            values.append(number / unit if decimals else number)
        else:
            values.append(part)
    return values


# ---------------------------------------------------------------- fewer


def thin(samples: Iterable[FleetSample]) -> list[FleetSample]:
    """Leave one sample of each five minutes: it has the time and the status of the last one there.

    Loss, speed, utilisation, power and temperature are means of what is known, nan when one of them is; all else is the
    last that is known. What is not known in the whole five minutes stays unknown. What is thinned already stays as it
    is.

    Args:
        samples: of one member, oldest first, as they were rounded.
    """
    buckets = groupby(samples, lambda sample: sample.timestamp // BUCKET)
    return [_thin_bucket(list(bucket)) for _, bucket in buckets]


def _thin_bucket(bucket: Sequence[FleetSample]) -> FleetSample:
    values = {name: _join(name, [sample.values[name] for sample in bucket]) for name in FIELDS}
    status = next((sample.status for sample in reversed(bucket) if sample.status), None)
    return FleetSample(bucket[-1].timestamp, values, status)


def _join(name: str, values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    if not known or name in _LAST:
        return known[-1] if known else None
    if all(isfinite(value) for value in known):
        return _rounded(fsum(value / len(known) for value in known))
    return _rounded(sum(known))  # an infinity, or nan
