"""The types of JSON documents, and JSON Schemas (2020-12) of what `core/records.py` writes: from annotations."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import GenericAlias, NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypedDict,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

_PLAIN = {str: "string", bool: "boolean", int: "integer", float: "number", NoneType: "null"}
Definitions = dict[str, dict[str, Any]]


def key_types(value: type, **renamed: str) -> dict[str, Any]:
    """Return the types of a dataclass's fields or a TypedDict's keys, by key; `renamed` maps a field to another key."""
    hints = get_type_hints(value, include_extras=True)
    names = [each.name for each in fields(value)] if is_dataclass(value) else list(hints)
    keys = {renamed.get(name, name): hints[name] for name in names}
    keys.pop("", None)
    return keys


def document(name: str, said: str, /, *parts: type | dict[str, Any], **own: Any) -> type[dict[str, Any]]:
    """Build a TypedDict from the keys of its parts and its own; later keys replace earlier ones.

    Args:
        name: name of the definition in the schema.
        said: description of the definition in the schema.
        parts: dataclasses, TypedDicts, or types by key as returned by `key_types`.
    """
    keys: dict[str, Any] = {}
    for part in parts:
        keys |= part if isinstance(part, dict) else key_types(part)
    made: type[dict[str, Any]] = cast(Any, TypedDict)(name, keys | own)
    made.__doc__ = said
    return made


def list_of(kind: Any) -> Any:
    """Return the type of a list with items of type `kind`."""
    return GenericAlias(list, (kind,))


def json_schema(kind: Any, definitions: Definitions | None = None) -> dict[str, Any]:
    """Return the schema of the values of a type.

    Args:
        kind: a type that `core/records.py` can write: plain values, None, enums, tuples, lists, mappings, dataclasses,
            TypedDicts, literals, and unions of them. Any other type is a value of any kind.
            `Annotated[dict[str, Any], X]` has the keys of X, `Annotated[str, Literal["a", "b"]]` one of the words.
        definitions: where dataclasses and TypedDicts are added by their names, and referred to; None: each is written
            out where it is used.
    """
    origin, args = get_origin(kind), get_args(kind)
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if origin in (Union, UnionType):
        return _union([json_schema(each, definitions) for each in args])
    if origin is Annotated:
        told = (each for each in args[1:] if _is_table(each) or get_origin(each) is Literal)
        return json_schema(next(told, args[0]), definitions)
    if origin is Literal:
        return {"enum": list(args)}
    if _is_table(kind):
        return _table(kind, definitions) if definitions is None else _reference(kind, definitions)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [each.value for each in kind]}
    container = origin or kind
    if not isinstance(container, type) or container is object:
        return {}
    if issubclass(container, Mapping):
        items = {"additionalProperties": json_schema(args[1], definitions)} if args else {}
        return {"type": "object", **items}
    if issubclass(container, (list, tuple)) or container.__module__ == "collections.abc":
        return _list(args, definitions)
    return {}


def _union(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    """Join alternatives: plain types to one list of types, as `string or null`."""
    if {} in schemas:
        return {}
    others = [each for each in schemas if each.keys() != {"type"}]
    names = [each["type"] for each in schemas if each.keys() == {"type"}]
    plain = [{"type": names[0] if len(names) == 1 else names}] if names else []
    alternatives = [*others, *plain]
    return alternatives[0] if len(alternatives) == 1 else {"anyOf": alternatives}


def _list(args: tuple[Any, ...], definitions: Definitions | None) -> dict[str, Any]:
    """Return the schema of a list. Items of a tuple of fixed length may differ: then nothing is said of them."""
    kinds = [each for each in args if each is not ...]
    return {"type": "array", "items": json_schema(kinds[0], definitions)} if len(kinds) == 1 else {"type": "array"}


def _is_table(kind: Any) -> bool:
    return is_typeddict(kind) or (isinstance(kind, type) and is_dataclass(kind))


def _reference(kind: Any, definitions: Definitions) -> dict[str, Any]:
    """Return a reference to the definition of a class, which has its docstring."""
    name = kind.__name__
    if name not in definitions:
        told = definitions[name] = {"description": inspect.cleandoc(kind.__doc__ or "")}  # it may refer to itself
        told |= _table(kind, definitions)
    return {"$ref": f"#/$defs/{name}"}


def _table(kind: Any, definitions: Definitions | None) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    names = [each.name for each in fields(kind)] if is_dataclass(kind) else list(hints)
    properties = {name: json_schema(hints[name], definitions) for name in names}
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required := [name for name in names if name in getattr(kind, "__required_keys__", names)]:
        schema["required"] = required
    return schema
