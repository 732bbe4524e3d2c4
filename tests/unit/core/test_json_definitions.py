"""Classes that a JSON Schema refers to; words and keys that an annotation adds to a plain type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

from training_monitor.core.json_schema import Definitions, json_schema


@dataclass
class Inner:
    """One of them."""

    number: float | None


class Outer(TypedDict):
    inner: list[Inner]
    told: Annotated[dict[str, Any], Inner] | None
    word: Annotated[str, Literal["a", "b"]]
    plain: Annotated[int, "a remark"]


INNER = {"type": "object", "properties": {"number": {"type": ["number", "null"]}}, "required": ["number"]}


def test_a_class_is_defined_once_and_referred_to() -> None:
    definitions: Definitions = {}
    assert json_schema(Outer, definitions) == {"$ref": "#/$defs/Outer"}
    assert definitions["Inner"] == {"description": "One of them.", **INNER}
    assert definitions["Outer"]["properties"] == {
        "inner": {"type": "array", "items": {"$ref": "#/$defs/Inner"}},
        "told": {"anyOf": [{"$ref": "#/$defs/Inner"}, {"type": "null"}]},
        "word": {"enum": ["a", "b"]},
        "plain": {"type": "integer"},
    }


def test_without_definitions_a_class_is_written_out() -> None:
    assert json_schema(Outer)["properties"]["inner"] == {"type": "array", "items": INNER}
