"""Declare what the keys of a settings table may hold, beside the fields of a frozen dataclass. Pure.

    @dataclass(frozen=True)
    class Pace:
        interval: Annotated[float, seconds(above=0)] = 60.0
        budget: Annotated[float, number("dollars, above 0", above=0)] | None = None

        def __post_init__(self) -> None:
            check_fields(self)

`read_table(Pace, table, place)` makes the dataclass from a table and notes every fault with its path; `check_fields`
applies the same rules to a value made in Python. A field without a kind is not a key of the table. A string beside the
kind, as in `Annotated[str, text("an address"), "from"]`, is the key where it is not a valid Python name; an `Example`
is the value for a new settings file where there is no default, and a `Variable` names an environment variable.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from math import inf
from types import MappingProxyType, NoneType
from typing import Any, NamedTuple, TypeAlias, get_args, get_origin, get_type_hints

from training_monitor.core.errors import SettingsError, closest
from training_monitor.core.masking import MASK, keep_secret
from training_monitor.core.regex import regex
from training_monitor.core.units import known_number, parse_duration

Path: TypeAlias = "tuple[str | int, ...]"

MISFIT: Any = object()
_BARE_KEY = regex(r"[A-Za-z0-9_-]+")
_MEANING = regex(r"^    (\w+): (.*(?:\n        .*)*)", re.MULTILINE)


class Fault(NamedTuple):
    """One invalid value: its path, what was found, and what was expected."""

    path: Path
    value: object
    expected: str


class Kind(NamedTuple):
    """A type of value.

    Attributes:
        expected: the type in plain words, for error messages.
        read: returns the value in its final form, which it also accepts; returns MISFIT, or raises a SettingsError with
            better words, for an invalid value. Faults within a list or table are noted at their own place.
        is_secret: the value is masked wherever it is found, NAME_env may name a variable that holds it, and a file
            that holds it must be readable by its owner alone.
    """

    expected: str
    read: Callable[[Any, Place], Any]
    is_secret: bool = False


class Example(NamedTuple):
    """A value for the settings file that `config --init` writes, of a setting without a default."""

    value: object


class Variable(NamedTuple):
    """The environment variable that sets a key; it outranks the settings file."""

    name: str


class Setting(NamedTuple):
    """One key of a table: its field, what it may hold, an example, and its environment variable."""

    field: str
    kind: Kind
    is_required: bool
    may_be_none: bool
    example: object = None
    variable: str | None = None


class Place:
    """A path in a settings file, with the faults found there and below."""

    __slots__ = ("faults", "path")

    def __init__(self, *path: str | int, faults: list[Fault] | None = None) -> None:
        self.path: Path = path
        self.faults: list[Fault] = [] if faults is None else faults

    def __truediv__(self, key: str | int) -> Place:
        return Place(*self.path, key, faults=self.faults)

    def note(self, value: object, expected: str) -> Any:
        """Note a fault here and return MISFIT."""
        self.faults.append(Fault(self.path, value, expected))
        return MISFIT

    def read(self, kind: Kind, value: object) -> Any:
        """Return the value as its kind reads it; MISFIT when it is invalid, with the fault noted."""
        before = len(self.faults)
        try:
            found = kind.read(value, self)
        except SettingsError as error:
            return self.note(MASK if kind.is_secret else error.value, error.expected)
        if found is MISFIT and len(self.faults) == before:
            self.note(MASK if kind.is_secret else value, kind.expected)
        if kind.is_secret and isinstance(found, str):
            keep_secret(found)
        return found

    def make(self, made: type, given: Mapping[str, Any], **others: Any) -> Any:
        """Make a dataclass of valid fields; MISFIT, with the fault noted, when they do not fit together."""
        try:
            return made(**given, **others)
        except SettingsError as error:
            return (self if error.key in others else self / error.key).note(error.value, error.expected)

    def expect_none(self, file: str = "") -> None:
        """Raise SettingsError for the first fault, if any; `file` is the settings file."""
        for fault in self.faults:
            raise SettingsError(format_path(fault.path), fault.value, fault.expected, file=file)


def format_path(path: Sequence[str | int]) -> str:
    """Format a path as in fleet.alerts[1].when; keys with other characters than letters, digits, _ and - are quoted."""
    text = ""
    for each in path:
        if isinstance(each, int):
            text += f"[{each}]"
        else:
            text += ("." if text else "") + (
                each if _BARE_KEY.fullmatch(each) else json.dumps(each, ensure_ascii=False)
            )
    return text


# ---------------------------------------------------------------- tables and the values they describe


@cache
def settings_of(made: Any) -> Mapping[str, Setting]:
    """Return the keys of the table that describes a dataclass, in field order."""
    found, names = dict[str, Setting](), dict[str, Any]()
    for each in reversed(made.__mro__):
        names |= vars(sys.modules[each.__module__])
    hints = get_type_hints(made, names, names, include_extras=True)
    for field in fields(made):
        hint = hints[field.name]
        parts = (hint,) if hasattr(hint, "__metadata__") or get_origin(hint) is None else get_args(hint)
        marks = [mark for part in parts for mark in getattr(part, "__metadata__", ())]
        key = next((mark for mark in marks if isinstance(mark, str)), field.name)
        is_required = field.default is MISSING and field.default_factory is MISSING
        example = next((mark.value for mark in marks if isinstance(mark, Example)), None)
        variable = next((mark.name for mark in marks if isinstance(mark, Variable)), None)
        for kind in (mark for mark in marks if isinstance(mark, Kind)):
            found[key] = Setting(field.name, kind, is_required, NoneType in parts, example, variable)
    return found


def meanings_of(made: Any) -> dict[str, str]:
    """Return what the keys of a table mean, from the Attributes in the docstrings of its dataclass and its bases."""
    from inspect import cleandoc

    meanings = dict[str, str]()
    for each in reversed(made.__mro__):
        section = cleandoc(each.__doc__ or "").partition("\nAttributes:\n")[2].partition("\n\n")[0]
        for found in _MEANING.finditer(section):
            meanings[found[1]] = " ".join(found[2].split())
    return {key: meanings[each.field] for key, each in settings_of(made).items() if each.field in meanings}


def check_fields(made: Any) -> None:
    """Raise SettingsError for the first invalid field, and convert others to their final form (`15m` to seconds)."""
    if all(getattr(made, each.name) is each.default for each in fields(made)):
        return  # defaults are valid as they are
    from training_monitor.core.arguments import plain_value

    described: Any = type(made)
    place = Place()
    for key, setting in settings_of(described).items():
        given = getattr(made, setting.field)
        found = None if given is None and setting.may_be_none else place.read(setting.kind, plain_value(given))
        for fault in place.faults:
            raise SettingsError(key, fault.value, fault.expected)
        if found is not given:
            object.__setattr__(made, setting.field, found)


def read_keys(settings: Mapping[str, Setting], table: Mapping[str, Any], place: Place) -> dict[str, Any]:
    """Return the fields that a table sets, without None; unknown keys are noted."""
    for key in table:
        if key not in settings:
            (place / key).note(key, closest(key, settings))
    given = {key: value for key, value in table.items() if key in settings and value is not None}
    return {settings[key].field: (place / key).read(settings[key].kind, value) for key, value in given.items()}


def read_table(
    made: type, value: object, place: Place, kinds: Mapping[str, Kind] = MappingProxyType({}), **others: Any
) -> Any:
    """Make a dataclass from a table.

    Args:
        made: the dataclass.
        value: the table; an instance of `made` is returned unchanged.
        place: where the table is; faults are noted there.
        kinds: replace the kinds of these keys.
        others: fields that are not keys of the table.

    Returns:
        The instance; MISFIT when anything is invalid.
    """
    before, known = len(place.faults), settings_of(made)
    settings = {key: each._replace(kind=kinds.get(key, each.kind)) for key, each in known.items()}
    if isinstance(value, made):
        return value
    if not isinstance(value, Mapping):
        return place.note(value, f"a table of {', '.join(settings)}")
    given = read_keys(settings, value, place)
    needed = [key for key, setting in settings.items() if setting.is_required and value.get(key) is None]
    if missing := [f"{key} = ..." for key in needed if settings[key].field not in others]:
        place.note(value, f"also {' and '.join(missing)}")
    return place.make(made, given, **others) if len(place.faults) == before else MISFIT


# ---------------------------------------------------------------- kinds


def number(expected: str, *, least: float = -inf, most: float = inf, above: float = -inf, below: float = inf) -> Kind:
    """Return the kind of a finite number within bounds."""

    def read(value: Any, place: Place) -> Any:
        known = known_number(value)
        return value if known is not None and least <= known <= most and above < known < below else MISFIT

    return Kind(expected, read)


def seconds(*, least: float = 0.0, most: float = inf, above: float = -inf) -> Kind:
    """Return the kind of seconds, given as a number or as a duration: 90s, 15m, 1h30m."""
    bound = f"at least {least:g}" if above < least else f"above {above:g}"
    plain = number("", least=least, most=most, above=above)

    def read(value: Any, place: Place) -> Any:
        return plain.read(parse_duration(value) if isinstance(value, str) else value, place)

    return Kind(f"seconds ({bound}), or a duration such as 15m", read)


def whole(expected: str, *, least: int, most: float = inf) -> Kind:
    """Return the kind of an integer within bounds."""
    return Kind(expected, lambda value, place: value if type(value) is int and least <= value <= most else MISFIT)


def choice(*names: str, expected: str = "") -> Kind:
    """Return the kind of one of several words."""
    words = expected or ", ".join(names)
    return Kind(words, lambda value, place: value if isinstance(value, str) and value in names else MISFIT)


def text(expected: str, pattern: str = r"(?s:[^\0]*[^\0\s][^\0]*)", *, is_secret: bool = False) -> Kind:
    """Return the kind of a text that matches `pattern` as a whole; by default any non-empty text."""

    def read(value: Any, place: Place) -> Any:
        return value if isinstance(value, str) and re.fullmatch(pattern, value) else MISFIT

    return Kind(expected, read, is_secret)


def items(kind: Kind, expected: str = "", *, least: int = 1) -> Kind:
    """Return the kind of a list of items of one kind, read as a tuple."""

    def read(value: Any, place: Place) -> Any:
        if not isinstance(value, (list, tuple)) or len(value) < least:
            return MISFIT
        found = tuple((place / index).read(kind, each) for index, each in enumerate(value))
        return MISFIT if MISFIT in found else value if found == value else found

    return Kind(expected or f"a list, each of it {kind.expected}", read)


def named(kind_of: Callable[[str], Kind], expected: str) -> Kind:
    """Return the kind of a table with user-chosen names, whose values' kind may depend on the name."""

    def read(value: Any, place: Place) -> Any:
        if not isinstance(value, Mapping):
            return MISFIT
        found = {name: (place / name).read(kind_of(name), each) for name, each in value.items()}
        return MISFIT if MISFIT in found.values() else value if found == value else found

    return Kind(expected, read)


def table(made: type) -> Kind:
    """Return the kind of a table that describes a dataclass."""
    return Kind(f"a {made.__name__}", lambda value, place: read_table(made, value, place))


SWITCH = Kind("true or false", lambda value, place: value if isinstance(value, bool) else MISFIT)
