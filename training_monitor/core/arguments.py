"""Check the arguments of public functions against their annotations before anything is asked. Pure.

The package wraps its public functions with it where they are first looked up, and `checked` the methods of a
class. A type that is not imported is not checked beyond that plain values are not of it.
"""

from __future__ import annotations

import builtins
import collections.abc
import functools
import numbers
import sys
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin

from training_monitor.core.errors import SettingsError
from training_monitor.core.units import known_number

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Fault = str | None  # what was expected; None: the value fits

_MOST = 2.0**53  # seconds, bytes, steps: what is larger is no number of anything
_SIGNED = ("exit_code",)  # a signal is negative
_ANY_TEXT = ("text", "chunk", "message")  # an output that is parsed, or shown escaped: it may hold anything
_NO_PATH = (*_ANY_TEXT, "namespace", "handle")  # texts that are not names of files
_PLAIN = (str, bytes, bytearray, int, float, complex, list, tuple, set, frozenset, dict)


def checking(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function with the same signature that takes paths and numbers of other libraries as plain ones.

    It raises SettingsError for an argument of another type.
    """

    @functools.wraps(function)
    def call(*args: P.args, **values: P.kwargs) -> R:
        fitting, named = fit_arguments(function, args, values)
        return function(*fitting, **named)

    return call


def checked(cls: type[T]) -> type[T]:
    """Return the class, whose public methods check their arguments, as its `__init__` does if it is no dataclass."""
    for name, method in [*vars(cls).items()]:
        is_public = not name.startswith("_") or (name == "__init__" and not is_dataclass(cls))
        if is_public and hasattr(method, "__code__"):
            setattr(cls, name, checking(method))
    return cls


def fit_arguments(
    function: Any, args: Sequence[Any], values: Mapping[str, Any]
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return the arguments of a call as their annotations have them. Raises SettingsError for one that does not fit."""
    kinds, names = _kinds_of(function), function.__code__.co_varnames[: function.__code__.co_argcount]
    fitting = [_fit(name, value, kinds) for name, value in zip(names, args)]
    return [*fitting, *args[len(names) :]], {name: _fit(name, value, kinds) for name, value in values.items()}


def _fit(name: str, value: Any, kinds: Mapping[str, Any]) -> Any:
    """Return a value, or the plain one for it where only that fits: of a path, or of a number of NumPy."""
    if name not in kinds or not (expected := _fault(value, kinds[name], name)):
        return value
    plain = value if name in _NO_PATH and hasattr(value, "__fspath__") else plain_value(value)
    if plain is value or _fault(plain, kinds[name], name):
        raise SettingsError(name, value, expected)
    return plain


def plain_value(value: Any) -> Any:
    """Return the plain text of a path, the plain number of one of NumPy; anything else as it is."""
    if isinstance(value, (type, *_PLAIN)):
        return value
    if hasattr(value, "__fspath__"):
        return value.__fspath__()
    if isinstance(value, numbers.Real):
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    return value


def check_values(made: Any) -> None:
    """Fit the fields of a new dataclass to their annotations, also collections to tuples.

    Raises SettingsError for the first that does not fit.
    """
    kinds = _kinds_of(made.__class__)
    for each in fields(made):
        if (value := getattr(made, each.name)) is each.default:  # a default is valid as it is
            continue
        is_text = isinstance(value, (str, bytes, bytearray, Mapping))
        if get_origin(kinds[each.name]) is tuple and isinstance(value, Iterable) and not is_text:
            value = tuple(value)
        object.__setattr__(made, each.name, _fit(each.name, value, kinds))


def check_value(name: str, value: object, kind: Any) -> None:
    """Raise SettingsError unless a value fits an annotation."""
    expected = _fault(value, kind, name)
    if expected:
        raise SettingsError(name, value, expected)


@functools.cache
def _kinds_of(owner: Hashable) -> Mapping[str, Any]:
    """Return the annotations of a function or class, resolved."""
    owners = [each for each in getattr(owner, "__mro__", (owner,)) if getattr(each, "__annotations__", None)]
    found = dict[str, Any]()
    for each in reversed(owners):
        names = _Names(vars(sys.modules[each.__module__]))
        for name, text in each.__annotations__.items():
            found[name] = _resolve(text, names)
    found.pop("return", None)
    return found


def _resolve(text: Any, names: _Names) -> Any:
    try:
        return eval(text, {}, names) if isinstance(text, str) else text
    except (TypeError, AttributeError, SyntaxError):  # of a name that is not imported here
        return _Unknown


class _Unknown:
    """Stands for a type that is not imported here; no plain value is of it."""


class _Names(dict[str, Any]):
    """The names of a module, those that only a type checker imports there, and those of the standard library."""

    def __missing__(self, name: str) -> Any:
        places = [vars(builtins), vars(collections.abc), sys.modules]
        own = [vars(module) for key, module in [*sys.modules.items()] if key.startswith("training_monitor.") and module]
        return next((place[name] for place in (*places, *own) if name in place), _Unknown)


# ---------------------------------------------------------------- one value


def _fault(value: object, kind: Any, name: str) -> Fault:
    """Return what was expected instead of a value; None if it fits."""
    if kind is str:  # the most frequent ones first
        return _text_fault(value, name)
    if kind in (int, float):
        return _number_fault(value, kind, name)
    origin, parts = get_origin(kind), get_args(kind)
    if hasattr(kind, "__metadata__"):
        words = next((each.expected for each in kind.__metadata__ if hasattr(each, "expected")), None)
        return (fault := _fault(value, parts[0], name)) and (words or fault)
    if origin in (Union, UnionType):
        faults = [_fault(value, part, name) for part in parts]
        return None if None in faults else " or ".join(dict.fromkeys(fault for fault in faults if fault))
    if origin is not None:
        return _generic_fault(value, origin, parts, name)
    if kind is Any or kind is object:
        return None
    if kind is None or kind is type(None):
        return None if value is None else "None"
    if kind is bool:
        return None if isinstance(value, bool) else "true or false"
    if kind is _Unknown:
        is_plain = isinstance(value, _PLAIN) or value is None or type(value) is object
        return "a value of another type" if is_plain else None
    if not isinstance(kind, type):
        return None
    if hasattr(kind, "__required_keys__"):  # a TypedDict
        return None if isinstance(value, Mapping) and kind.__required_keys__ <= value.keys() else f"a {kind.__name__}"
    is_protocol = getattr(kind, "_is_protocol", False)
    return None if (not is_protocol and isinstance(value, kind)) or _is_like(value, kind) else f"a {kind.__name__}"


def _is_like(value: object, kind: type) -> bool:
    """Return whether a value of another class has something of what a class offers: callers bring their own."""
    names = [each for each in vars(kind) if not each.startswith("_")]
    return not isinstance(value, (type, *_PLAIN)) and any(hasattr(value, each) for each in names)


def _generic_fault(value: object, origin: Any, parts: tuple[Any, ...], name: str) -> Fault:
    if origin is Literal:
        return None if value in parts else f"one of {', '.join(map(str, parts))}"
    if origin is collections.abc.Callable:
        return None if callable(value) else "a function"
    if not (isinstance(origin, type) and issubclass(origin, Iterable)):
        return None
    if issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            return "a dict"
        faults = [_fault(each, parts[0], name) or _fault(value[each], parts[1], name) for each in value]
        return next((f"a dict of {fault} each" for fault in faults if fault), None)
    if isinstance(value, (str, bytes, bytearray, Mapping)) or not hasattr(value, "__iter__"):
        return "a list"
    if not isinstance(value, Collection):
        return None  # whose values can be taken only once
    return next((f"a list of {fault} each" for each in value if (fault := _fault(each, parts[0], name))), None)


def _text_fault(value: object, name: str) -> Fault:
    if not isinstance(value, str):
        return "a string"
    if name in _ANY_TEXT:
        return None
    if "\0" in value or (not value.isascii() and any("\ud800" <= each <= "\udfff" for each in value)):
        return "a string without NUL or lone surrogates"
    return None


def _number_fault(value: object, kind: type, name: str) -> Fault:
    if isinstance(value, float) and value == float("inf"):
        return "a finite number"
    known = known_number(value)
    is_whole = kind is float or (hasattr(value, "__index__") and not isinstance(value, float))
    if known is None or not is_whole or abs(known) > _MOST or (known < 0 and name not in _SIGNED):
        expected = "a whole number" if kind is int else "a number"
        return expected if name in _SIGNED else f"{expected} from 0"
    return None
