"""Convert the values that are kept on disk to JSON and back. Pure.

A record holds the constructor fields of its class and is read back by their type annotations. A field missing from an
older record gets its default; one that was renamed is found by the class attribute FORMER_NAMES (old name: new name). A
record with unknown fields was written by a later version and is refused, because rewriting it would lose them.

The text is ASCII, so lone surrogates (names that are not UTF-8) survive; so do nan and the infinities.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

from training_monitor.core.errors import ParseError, TrainingMonitorError

Value = TypeVar("Value")
_Reader = Callable[[Any], Any]
_NUMBER = (int, float)
_LARGEST = 2**63  # of whole numbers: sums and products of what is kept stay within the floats
LAST_TIME = 1e11  # epoch seconds; later times are invalid
_PLAIN = {str: (str,), bool: (bool,), int: _NUMBER, float: _NUMBER, dict: (dict,), NoneType: (NoneType,)}


class _Newer(Exception):
    """A value with unknown fields: args are the name of its class, and the fields' names."""


def format_record(value: object) -> str:
    """Write a value, or a dict or tuple of values, as JSON. Raises TypeError or ValueError if JSON cannot hold it."""
    return json.dumps(value, default=encode)


def encode(value: object) -> dict[str, Any]:
    """Return the fields of a value by name; also the `default` function for `json.dumps`."""
    if is_dataclass(value):
        return {name: getattr(value, name) for name in _names(type(value))}  # type: ignore[arg-type]
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"JSON cannot represent a {type(value).__name__}")


def read_record(kind: type[Value], text: str | bytes, *, name: str = "", drop_unknown: bool = False) -> Value:
    """Read the output of `format_record`; arguments and errors as for `decode`."""
    return decode(kind, _loads(kind, text), name=name, drop_unknown=drop_unknown)


def _loads(kind: Any, text: Any) -> object:
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise ParseError(f"not JSON ({error})", source=_name_of(kind)) from error


def read_row(kind: type[Value], row: Sequence[object], json_columns: Collection[str] = (), *, name: str = "") -> Value:
    """Make a value of `kind` from a row of the state file.

    Args:
        kind: a dataclass.
        row: its fields in order.
        json_columns: those that hold JSON.
        name: as for `decode`.

    Raises:
        TrainingMonitorError: as `decode`; also for numbers that are no time, count or amount.
    """
    values = dict(zip(_names(kind), row, strict=True))  # type: ignore[arg-type]
    for column, value in values.items():
        if isinstance(value, float) and not abs(value) < LAST_TIME:
            raise ParseError(f"{column}: got {value}", source=_name_of(kind))
        if column in json_columns and value is not None:
            values[column] = _loads(kind, value)
    return decode(kind, values, name=name)


def decode(kind: type[Value], data: object, *, name: str = "", drop_unknown: bool = False) -> Value:
    """Make a value of `kind` from JSON data.

    Args:
        kind: a dataclass, or a type made of dataclasses, enums, tuples, lists, mappings, plain values and None. A
            TypedDict stays a dict, with None for missing keys.
        data: as `json.loads` returns it.
        name: what to call the value in the error for a later version (default: its class).
        drop_unknown: drop unknown fields instead of refusing the record.

    Raises:
        TrainingMonitorError: a later version wrote the record.
        ParseError: the record is damaged.
    """
    try:
        value: Value = _reader(kind, drop_unknown)(data)  # type: ignore[arg-type]
        return value
    except _Newer as newer:
        raise TrainingMonitorError(
            f"{name or f'a {newer.args[0]}'} was written by a later version of this package "
            f"({', '.join(newer.args[1])[:200]})",
            hint="install that later version again to read it",
        ) from None
    except TrainingMonitorError:  # a class rejects its values
        raise
    except (ValueError, TypeError) as damage:
        raise ParseError(str(damage), source=_name_of(kind)) from damage


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind) if each.init)


def _name_of(kind: Any) -> str:
    return getattr(kind, "__name__", str(kind))


@cache
def _reader(kind: Any, drop_unknown: bool) -> _Reader:
    """Return a function that makes a `kind` from JSON data; it raises ValueError, TypeError or _Newer."""
    if kind is Any:
        return lambda data: data
    origin, args = get_origin(kind), get_args(kind)
    choices = args if origin in (Union, UnionType) else (kind,)
    if all(each in _PLAIN for each in choices):
        return partial(_check, tuple({accepted for each in choices for accepted in _PLAIN[each]}), kind)
    if is_typeddict(kind):
        missing = dict.fromkeys(kind.__annotations__)
        return lambda data: missing | _check(dict, kind, data)
    if is_dataclass(kind):
        return _dataclass_reader(kind, drop_unknown)
    if origin is None and issubclass(kind, Enum):
        return partial(_member, kind)
    parts = [_reader(each, drop_unknown) for each in args if each not in (NoneType, ...)]
    if choices is args:  # a value or None
        return lambda data: None if data is None else parts[0](data)
    if origin is tuple and ... not in args:
        return lambda data: tuple([part(each) for part, each in zip(parts, _check(list, kind, data), strict=True)])
    if origin in (tuple, list):
        return lambda data: origin([parts[0](each) for each in _check(list, kind, data)])
    return lambda data: {key: parts[1](each) for key, each in _check(dict, kind, data).items()}


def _member(kind: type[Enum], data: Any) -> Enum:
    try:
        return kind(data)
    except ValueError:
        raise ValueError(f"{data!r} is not a valid {kind.__name__}") from None


def _check(accepted: Any, kind: Any, data: Any) -> Any:
    if not isinstance(data, accepted) or (type(data) is int and not -_LARGEST <= data < _LARGEST):
        raise ValueError(f"got {repr(data)[:80]}, expected {_name_of(kind)}")
    return data


def _dataclass_reader(kind: Any, drop_unknown: bool) -> _Reader:
    hints = get_type_hints(kind)
    readers = {name: _reader(hints[name], drop_unknown) for name in _names(kind)}
    former: Mapping[str, str] = getattr(kind, "FORMER_NAMES", {})

    def read(data: Any) -> Any:
        _check(dict, kind, data)
        if former:
            data = {former.get(name, name): value for name, value in data.items()}
        unknown = data.keys() - readers.keys()
        if unknown and not drop_unknown:
            raise _Newer(_name_of(kind), sorted(unknown))
        known = {}
        for name in [each for each in data if each not in unknown]:
            try:
                known[name] = readers[name](data[name])
            except TrainingMonitorError:
                raise
            except ValueError as damage:
                raise ValueError(f"{name}: {damage}") from None
        return kind(**known)  # TypeError when a field without a default is missing

    return read


def table_in(value: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return the object at a key of a JSON object that others wrote; an empty one if something else is there."""
    table = value.get(key)
    return table if isinstance(table, dict) else {}


def tables_in(value: object) -> list[dict[str, Any]]:
    """Return the objects in a JSON list that others wrote; none if it is something else."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
