"""`dataclass`, as the standard library's, at a tenth of its cost at import. Pure.

The standard library compiles six methods of every frozen class, half a millisecond each class, while most programs use
few of the classes that they import. Here `__init__` is compiled for the first value of a class and nothing else is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, *, frozen: bool = False, eq: bool = True, **options: bool) -> Any:
        """Return what `dataclasses.dataclass` returns; a class is not told from one of the standard library."""

        def make(cls: type) -> type:
            made = dataclasses.dataclass(cls, init=False, repr=False, eq=False, **options)
            for name, method in _methods(made, frozen, eq).items():
                if name not in made.__dict__:
                    setattr(made, name, method)
            return made

        return make if cls is None else make(cls)


def _methods(cls: Any, frozen: bool, eq: bool) -> dict[str, Any]:
    fields = dataclasses.fields(cls)
    every = [field.name for field in fields]
    shown = [field.name for field in fields if field.repr]
    compared = _getter([field.name for field in fields if field.compare])

    def __init__(self: Any, *args: Any, **values: Any) -> None:
        _compile_init(cls)
        cls.__init__(self, *args, **values)

    def __repr__(self: Any) -> str:
        inner = ", ".join([f"{name}={getattr(self, name)!r}" for name in shown])
        return f"{type(self).__qualname__}({inner})"

    def __eq__(self: Any, other: object) -> Any:
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(compared(self))

    def __getstate__(self: Any) -> list[Any]:
        return [getattr(self, name) for name in every]

    def __setstate__(self: Any, state: list[Any]) -> None:
        for name, value in zip(every, state, strict=True):
            object.__setattr__(self, name, value)

    methods: dict[str, Any] = {"__init__": __init__, "__repr__": __repr__, "__signature__": _Signature(cls)}
    if eq:
        methods |= {"__eq__": __eq__, "__hash__": __hash__ if frozen else None}
    if frozen:
        methods |= {"__setattr__": _refuse, "__delattr__": _refuse}
        methods |= {"__getstate__": __getstate__, "__setstate__": __setstate__}
    return methods


def _getter(names: list[str]) -> Callable[[Any], Any]:
    return attrgetter(*names) if names else lambda _: ()


def _refuse(self: Any, name: str, *_: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


class _Signature:
    """Has `inspect.signature` look at the compiled `__init__`."""

    def __init__(self, cls: type) -> None:
        self._cls = cls

    def __get__(self, value: object, cls: type) -> NoReturn:
        _compile_init(self._cls)
        raise AttributeError("__signature__")


class _Factory:
    """The default of an argument whose field makes its own."""

    def __repr__(self) -> str:
        return "<factory>"


def _compile_init(cls: Any) -> None:
    """Give a class the `__init__` that the standard library would write.

    A code object is executed, not a text: after the text, Python ends a script that was interrupted with exit status 1.
    """
    put = "_put(self, {!r}, {})" if cls.__setattr__ is _refuse else "self.{} = {}"
    names: dict[str, Any] = {"_put": object.__setattr__, "_FACTORY": _Factory()}
    arguments, named, lines = ["self"], ["*"], []
    for field in dataclasses.fields(cls):
        name = value = argument = field.name
        if field.default is not dataclasses.MISSING:
            names[f"_default_{name}"] = field.default
            argument = f"{name}=_default_{name}"
        elif field.default_factory is not dataclasses.MISSING:
            names[f"_make_{name}"] = field.default_factory
            argument, value = f"{name}=_FACTORY", f"_make_{name}() if {name} is _FACTORY else {name}"
        if field.init:
            (named if field.kw_only else arguments).append(argument)
        else:
            value = f"_make_{name}()" if field.default is dataclasses.MISSING else f"_default_{name}"
        lines.append(put.format(name, value))
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    head = ", ".join(arguments + (named if len(named) > 1 else []))
    exec(compile("\n ".join([f"def __init__({head}):", *lines, "return"]), f"<{cls.__qualname__}>", "exec"), names)
    init = names["__init__"]
    taken = {field.name: field.type for field in dataclasses.fields(cls) if field.init}
    init.__annotations__ = {**taken, "return": None}
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    cls.__init__ = init
