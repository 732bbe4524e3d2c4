"""Keep many rows of the same fields in little memory: most fields stay the same, and most others are numbers. Pure."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

_WHOLE = {code: 2 ** (8 * array(code).itemsize - 1) for code in "bhiq"}  # the limits of whole numbers
_NOT_KNOWN = {**{code: -limit for code, limit in _WHOLE.items()}, "d": -sys.float_info.max}


class Columns:
    """Rows with one value for each of `names`: numbers, None, and what does not change.

    A column whose values are all equal is one value, one of numbers an array, in bytes as narrow as they allow; any
    other is a list. What comes out is equal to what went in, and of the same type.
    """

    __slots__ = ("_count", "_kept", "_names")

    def __init__(self, names: Sequence[str], rows: Iterable[Sequence[object]] = ()) -> None:
        columns = [*map(list, zip(*rows, strict=True))] or [list[object]() for _ in names]
        self._names, self._count = names, len(columns[0])
        self._kept: list[Any] = [*map(_keep, columns)]  # by name: an equal value, or a _Changing of all rows

    def __len__(self) -> int:
        return self._count

    def append(self, row: Sequence[object]) -> None:
        """Add a row: a value for each name."""
        for at, (kept, value) in enumerate(zip(self._kept, row, strict=True)):
            if isinstance(kept, _Changing):
                if not kept.append(value):
                    self._kept[at] = _pack([*kept.all(), value])
            elif not self._count:
                self._kept[at] = value
            elif type(value) is not type(kept) or value != kept:
                self._kept[at] = _pack([*repeat(kept, self._count), value])
        self._count += 1

    def keep(self, kept: slice) -> None:
        """Drop all rows but some."""
        self._count = len(range(self._count)[kept])
        for each in self._kept:
            if isinstance(each, _Changing):
                each.values = each.values[kept]

    def column(self, name: str) -> Sequence[Any]:
        """Return the values of one name, oldest first."""
        return self._all_of(self._kept[self._names.index(name)])

    def all(self) -> list[Sequence[Any]]:
        """Return the values of each name, in the order of the names."""
        return [*map(self._all_of, self._kept)]

    def _all_of(self, kept: Any) -> Sequence[Any]:
        return kept.all() if isinstance(kept, _Changing) else [kept] * self._count


class _Changing:
    """The values of a column as they are."""

    __slots__ = ("values",)

    def __init__(self, values: Any) -> None:
        self.values = values

    def append(self, value: object) -> bool:
        """Add a value, or the last one again if they are equal: failures stay the same for hours."""
        last = self.values[-1] if self.values else None
        self.values.append(last if type(last) is type(value) and last == value else value)
        return True

    def all(self) -> Sequence[Any]:
        values: list[Any] = self.values
        return values


class _Numbers(_Changing):
    """Numbers of one type, and None, as an array."""

    __slots__ = ("kind",)

    def __init__(self, kind: type[int] | type[float], code: str, values: Iterable[Any]) -> None:
        super().__init__(array(code, (_NOT_KNOWN[code] if each is None else each for each in values)))
        self.kind = kind

    def append(self, value: object) -> bool:
        """Add a value; return False if that is impossible."""
        code = self.values.typecode
        if value is None:
            self.values.append(_NOT_KNOWN[code])
        elif type(value) is self.kind and _fits(value, code):
            self.values.append(value if code == "d" else int(value))
        else:
            return False
        return True

    def all(self) -> Sequence[Any]:
        code, values = self.values.typecode, self.values.tolist()
        unknown = _NOT_KNOWN[code]
        if self.kind is float and code != "d":
            return [None if each == unknown else float(each) for each in values]
        return [None if each == unknown else each for each in values] if unknown in values else values


def _fits(value: Any, code: str) -> bool:
    if code == "d":
        return bool(value != _NOT_KNOWN[code])
    return -_WHOLE[code] < value < _WHOLE[code] and (type(value) is int or (value.is_integer()))


def _keep(values: list[Any]) -> Any:
    """Return what is kept of a column: the value that all rows have, else a _Changing of them."""
    if not values or (values.count(values[0]) == len(values) and len({*map(type, values)}) == 1):
        return values[0] if values else None
    return _pack(values)


def _pack(values: list[Any]) -> _Changing:
    known = [each for each in values if each is not None]
    kinds = {*map(type, known)}
    if kinds not in ({int}, {float}) or (code := _narrowest(known)) is None:
        return _Changing(values)
    [kind] = kinds
    whole = kind is float and code != "d"
    return _Numbers(kind, code, (int(each) if whole and each is not None else each for each in values))


def _narrowest(known: list[Any]) -> str | None:
    """Return the narrowest type of an array that has room for numbers of one type; None if there is none."""
    is_float = isinstance(known[0], float)
    if not is_float or all(map(float.is_integer, known)):
        least, most = min(known), max(known)
        code = next((code for code, limit in _WHOLE.items() if -limit < least and most < limit), None)
        if code or not is_float:
            return code
    return None if _NOT_KNOWN["d"] in known else "d"
