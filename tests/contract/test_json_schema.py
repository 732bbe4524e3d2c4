"""JSON Schemas of what no document has yet; those of all documents are in test_json_schemas.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from docs.json_schema import json_schema


class Maybe(TypedDict, total=False):
    text: str


def test_the_schema_of_a_type() -> None:
    for kind, schema in [
        (None | int, {"type": ["null", "integer"]}),
        (object | None, {}),
        (list, {"type": "array"}),
        (Mapping[str, Any], {"type": "object", "additionalProperties": {}}),
        (dict, {"type": "object"}),
        (Maybe, {"type": "object", "properties": {"text": {"type": "string"}}}),
    ]:
        assert json_schema(kind) == schema
