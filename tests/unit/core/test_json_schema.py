"""JSON Schemas from annotations of values that are written as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, TypedDict

from training_monitor.core.json_schema import Definitions, json_schema


class Colour(str, Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: float | None = None


class Seen(TypedDict):
    where: Point
    colour: Colour


class Maybe(TypedDict, total=False):
    text: str


POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": ["number", "null"]}},
    "required": ["x", "y"],
}


def test_the_schema_of_a_type() -> None:
    for kind, schema in [
        (str, {"type": "string"}),
        (bool, {"type": "boolean"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (None | int, {"type": ["null", "integer"]}),
        (Any, {}),
        (object, {}),
        (object | None, {}),
        (list[str], {"type": "array", "items": {"type": "string"}}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (tuple[int, str], {"type": "array"}),
        (list, {"type": "array"}),
        (Sequence[str], {"type": "array", "items": {"type": "string"}}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Mapping[str, Any], {"type": "object", "additionalProperties": {}}),
        (dict, {"type": "object"}),
        (Literal["a", "b"], {"enum": ["a", "b"]}),
        (Colour, {"enum": ["red", "blue"]}),
        (Point, POINT),
        (Point | None, {"anyOf": [POINT, {"type": "null"}]}),
        (
            Seen,
            {
                "type": "object",
                "properties": {"where": POINT, "colour": {"enum": ["red", "blue"]}},
                "required": ["where", "colour"],
            },
        ),
        (Maybe, {"type": "object", "properties": {"text": {"type": "string"}}}),
    ]:
        assert json_schema(kind) == schema


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


def test_a_class_is_defined_once_and_referred_to_or_written_out() -> None:
    definitions: Definitions = {}
    assert json_schema(Outer, definitions) == {"$ref": "#/$defs/Outer"}
    assert definitions["Inner"] == {"description": "One of them.", **INNER}
    assert definitions["Outer"]["properties"] == {
        "inner": {"type": "array", "items": {"$ref": "#/$defs/Inner"}},
        "told": {"anyOf": [{"$ref": "#/$defs/Inner"}, {"type": "null"}]},
        "word": {"enum": ["a", "b"]},
        "plain": {"type": "integer"},
    }
    assert json_schema(Outer)["properties"]["inner"] == {"type": "array", "items": INNER}
