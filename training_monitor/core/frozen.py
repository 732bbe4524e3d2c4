"""`dataclass` and its friends, as the standard library's, at a tenth of their cost at import. Pure.

The standard library compiles six methods of every frozen class, half a millisecond each class, while most programs use
few of the classes that they import; and it brings `inspect`. Here `__init__` is compiled with the first value of a
class, and nothing else is. `dataclasses` is imported for those who ask a class for what only it can tell.

Unlike there, a `repr` is short: of long texts and collections it has a part. A field with `repr=False`, such as the end
of a log, is in none. A notebook shows a value as a table of these fields.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
_FIELDS = "__own_fields__"
_TOLD = ("default", "default_factory", "init", "repr", "compare", "kw_only")
MOST_TEXT, MOST_VALUE = 200, 600  # characters in a repr: of one text, and of one value in it
_PLAIN = frozenset((str, int, float, bool, type(None)))

if TYPE_CHECKING:
    from dataclasses import (
        MISSING as MISSING,
        asdict as asdict,
        dataclass as dataclass,
        field as field,
        fields as fields,
        is_dataclass as is_dataclass,
        replace as replace,
    )
else:

    class MISSING:
        """No default."""

    class field:
        """What a class says of one of its fields."""

        __slots__ = ("name", "type", *_TOLD)

        def __init__(self, *, default=MISSING, default_factory=MISSING, init=True, repr=True, compare=True):
            self.default, self.default_factory = default, default_factory
            self.init, self.repr, self.compare = init, repr, compare

    def dataclass(cls=None, *, frozen=False, slots=False, eq=True, kw_only=False):
        """Return the class with fields and methods, as `dataclasses.dataclass` does."""

        def make(cls):
            inherited = getattr(cls, _FIELDS, {})
            own = _own_fields(cls, kw_only)
            if slots:
                cls = _with_slots(cls, own, [name for name in own if name not in inherited])
            else:
                _put_defaults(cls, own)
            _put_methods(cls, {**inherited, **own}, frozen, eq)
            return cls

        return make if cls is None else make(cls)

    def fields(value):
        """Return the fields of a class or value, with the names that `dataclasses.Field` has."""
        return tuple(getattr(value, _FIELDS).values())

    def is_dataclass(value):
        return hasattr(value, _FIELDS)

    def replace(value, /, **changes):
        """Return a value of the same class with these fields changed."""
        cls = type(value)
        names, read = _reader(cls)
        return cls(**{**dict(zip(names, read(value))), **changes})

    def asdict(value):
        """Return the fields of a value by name, and those of the values in it; everything else is copied."""
        return {name: _copy(getattr(value, name)) for name in getattr(value, _FIELDS)}


def keys_of(value: Any, **renamed: str) -> dict[str, Any]:
    """Return the fields of a dataclass by their names, or those that they are `renamed` to; "" leaves one out."""
    names = {each.name: renamed.get(each.name, each.name) for each in fields(value)}
    return {key: _copy(getattr(value, name)) for name, key in names.items() if key}


def shared_fields(kind: Any, *values: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that values have, as fields or properties; later values take precedence."""
    names = [each.name for each in fields(kind)]
    return {name: getattr(value, name) for value in values for name in names if hasattr(value, name)}


@cache
def _reader(cls: type) -> tuple[list[str], Callable[[Any], tuple[Any, ...]]]:
    """Return the arguments of a class, and what reads all of them from a value."""
    names = [name for name, each in getattr(cls, _FIELDS).items() if each.init]
    return names, attrgetter(*names) if len(names) > 1 else lambda value: tuple(getattr(value, name) for name in names)


def _copy(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if hasattr(kind, _FIELDS):
        return asdict(value)
    if isinstance(value, (list, tuple)):
        copied = [_copy(each) for each in value]
        return kind(*copied) if hasattr(value, "_fields") else kind(copied)
    if kind is dict:
        return {_copy(key): _copy(each) for key, each in value.items()}
    import copy

    return copy.deepcopy(value)


# ---------------------------------------------------------------- checking arguments


def checking(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function with the same signature that takes paths and numbers of other libraries as plain ones.

    It raises SettingsError for an argument of another type.
    """
    from functools import wraps

    @wraps(function)
    def call(*args: P.args, **values: P.kwargs) -> R:
        from training_monitor.core.arguments import fit_arguments

        fitting, named = fit_arguments(function, args, values)
        return function(*fitting, **named)

    return call


def checked(cls: type[T]) -> type[T]:
    """Return the class, whose public methods check their arguments, as its `__init__` does if it is no dataclass."""
    for name, method in [*vars(cls).items()]:
        is_public = not name.startswith("_") or (name == "__init__" and not hasattr(cls, _FIELDS))
        if is_public and hasattr(method, "__code__"):
            setattr(cls, name, checking(method))
    return cls


# ---------------------------------------------------------------- making a class


def _own_fields(cls: Any, kw_only: bool) -> dict[str, Any]:
    own = {}
    for name, kind in cls.__annotations__.items():
        if not str(kind).startswith(("ClassVar", "typing.ClassVar")):
            given = cls.__dict__.get(name, MISSING)
            own[name] = each = given if isinstance(given, field) else field(default=given)  # type: ignore[arg-type]
            each.name, each.type, each.kw_only = name, kind, kw_only
    return own


def _with_slots(cls: type, own: dict[str, Any], slots: list[str]) -> type:
    names = {name: value for name, value in cls.__dict__.items() if name not in own}
    names.pop("__dict__", None)
    names.pop("__weakref__", None)
    made = type(cls)(cls.__name__, cls.__bases__, {**names, "__slots__": tuple(slots)})
    made.__qualname__ = cls.__qualname__
    return made


def _put_defaults(cls: type, own: dict[str, Any]) -> None:
    for name, each in own.items():
        if each.default is not MISSING:
            setattr(cls, name, each.default)
        elif name in cls.__dict__:
            delattr(cls, name)


def _put_methods(cls: Any, every: dict[str, Any], frozen: bool, eq: bool) -> None:
    arguments = tuple([name for name, each in every.items() if each.init and not each.kw_only])
    methods = {
        "__init__": _first_init(cls),
        "__repr__": _repr,
        "_repr_html_": _repr_html,
        "__replace__": replace,
        "__match_args__": arguments,
        "__signature__": _Signature(cls),
    }
    if eq:
        methods |= _comparing([name for name, each in every.items() if each.compare], frozen)
    if frozen:
        methods |= {"__setattr__": _refuse, "__delattr__": _refuse}
        methods |= {"__getstate__": _get_state, "__setstate__": _set_state}
    for name, method in methods.items():
        if name not in cls.__dict__:
            setattr(cls, name, method)
    setattr(cls, _FIELDS, every)
    for name in ("__dataclass_fields__", "__dataclass_params__"):
        setattr(cls, name, _Told(cls, name))


def _first_init(cls: Any) -> Callable[..., None]:
    """Return the `__init__` for the first value: most classes that a program imports make none."""

    def __init__(self: Any, *args: Any, **values: Any) -> None:
        _compile_init(cls)
        cls.__init__(self, *args, **values)

    return __init__


def _comparing(names: list[str], frozen: bool) -> dict[str, Any]:
    compared: Callable[[Any], Any] = attrgetter(*names) if names else lambda _: ()

    def __eq__(self: Any, other: object) -> Any:
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(compared(self))

    return {"__eq__": __eq__, "__hash__": __hash__ if frozen else None}


@cache
def _brief() -> Callable[[object], str]:
    """Return a `repr` that has a part of each long text or collection."""
    import reprlib

    brief = reprlib.Repr()
    brief.maxlevel, brief.maxdict, brief.maxstring, brief.maxother = 5, 20, MOST_TEXT, MOST_VALUE
    return brief.repr


def _repr(self: Any) -> str:
    brief = _brief()
    shown = [f"{name}={brief(getattr(self, name))}" for name, each in getattr(self, _FIELDS).items() if each.repr]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _repr_html(self: Any) -> str:
    from training_monitor.core.panel_html import format_html
    from training_monitor.core.panels import panel_of

    return format_html(panel_of(self))


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in getattr(self, _FIELDS)]


def _set_state(self: Any, state: list[Any]) -> None:
    for name, value in zip(getattr(self, _FIELDS), state, strict=True):
        object.__setattr__(self, name, value)


def _refuse(self: Any, name: str, *_: object) -> NoReturn:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


class _Signature:
    """Has `inspect.signature` look at the compiled `__init__`."""

    def __init__(self, cls: type) -> None:
        self._cls = cls

    def __get__(self, value: object, cls: type) -> NoReturn:
        _compile_init(self._cls)
        raise AttributeError("__signature__")


class _Told:
    """An attribute of classes of the standard library, which makes it when somebody asks."""

    def __init__(self, cls: type, name: str) -> None:
        self._cls = cls
        self._name = name

    def __get__(self, value: object, cls: type) -> Any:
        import dataclasses

        def told(each: Any) -> Any:
            given = {name: getattr(each, name) for name in _TOLD}
            return dataclasses.field(**{name: value for name, value in given.items() if value is not MISSING})

        frozen = self._cls.__setattr__ is _refuse
        every = [(each.name, each.type, told(each)) for each in getattr(self._cls, _FIELDS).values()]
        made = dataclasses.make_dataclass(self._cls.__name__, every, init=False, repr=False, eq=False, frozen=frozen)
        for name in ("__dataclass_fields__", "__dataclass_params__"):
            setattr(self._cls, name, getattr(made, name))
        return getattr(made, self._name)


class _Factory:
    """The default of an argument whose field makes its own."""

    def __repr__(self) -> str:
        return "<factory>"


def _compile_init(cls: Any) -> None:
    """Give a class the `__init__` that the standard library would write.

    A code object is executed, not a text: after the text, Python ends a script that was interrupted with exit status 1.
    """
    every = getattr(cls, _FIELDS).values()
    put = "_put(self, {!r}, {})" if cls.__setattr__ is _refuse else "self.{} = {}"
    names: dict[str, Any] = {"_put": object.__setattr__, "_FACTORY": _Factory()}
    arguments, named, lines = ["self"], ["*"], []
    for each in every:
        name = value = argument = each.name
        if each.default is not MISSING:
            names[f"_default_{name}"] = each.default
            argument = f"{name}=_default_{name}"
        elif each.default_factory is not MISSING:
            names[f"_make_{name}"] = each.default_factory
            argument, value = f"{name}=_FACTORY", f"_make_{name}() if {name} is _FACTORY else {name}"
        if each.init:
            (named if each.kw_only else arguments).append(argument)
        else:
            value = f"_make_{name}()" if each.default is MISSING else f"_default_{name}"
        lines.append(put.format(name, value))
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    head = ", ".join(arguments + (named if len(named) > 1 else []))
    exec(compile("\n ".join([f"def __init__({head}):", *lines, "return"]), f"<{cls.__qualname__}>", "exec"), names)
    init = names["__init__"]
    init.__annotations__ = {**{each.name: each.type for each in every if each.init}, "return": None}
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    cls.__init__ = init
