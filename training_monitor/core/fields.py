"""What the package's dataclasses have beside the standard ones. Pure.

Values that are stored, printed or shown field by field are dataclasses, and so are those of several kinds that must not
equal each other. Other frozen values are named tuples: to define one takes a third of the time, and to make one, too.

Of a public value, a notebook shows a table of its fields, and its `repr` is short: of long texts and collections it has
a part. A field with `repr=False`, such as the end of a log, is in neither.
"""

from __future__ import annotations

from dataclasses import asdict, fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_TEXT, MOST_VALUE = 200, 600  # characters in a repr: of one text, and of one value in it


class PublicValue:
    """Base class of public dataclasses: a short `repr` and a notebook display. Subclasses set `repr=False`."""

    __slots__ = ()

    def __repr__(self) -> str:
        brief = _brief()
        told: Any = self
        shown = [f"{each.name}={brief(getattr(self, each.name))}" for each in fields(told) if each.repr]
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def _repr_html_(self) -> str:
        from training_monitor.core.panel_html import format_html
        from training_monitor.core.panels import panel_of

        return format_html(panel_of(self))


@cache
def _brief() -> Callable[[object], str]:
    """Return a `repr` that has a part of each long text or collection."""
    import reprlib

    brief = reprlib.Repr()
    brief.maxlevel, brief.maxdict, brief.maxstring, brief.maxother = 5, 20, MOST_TEXT, MOST_VALUE
    return brief.repr


def keys_of(value: Any, **renamed: str) -> dict[str, Any]:
    """Return the fields of a dataclass by their names, or those that they are `renamed` to; "" leaves one out."""
    told = {renamed.get(name, name): each for name, each in asdict(value).items()}
    told.pop("", None)
    return told


def shared_fields(kind: Any, *values: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that values have, as fields or properties; later values take precedence."""
    return {name: getattr(value, name) for value in values for name in _shared_names(kind, value.__class__)}


@cache
def _shared_names(kind: type, of: type) -> tuple[str, ...]:
    own = {each.name for each in fields(of)} if is_dataclass(of) else {}
    return tuple(each.name for each in fields(kind) if each.name in own or hasattr(of, each.name))
