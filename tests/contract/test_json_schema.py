"""Types of JSON documents that are built of others, and JSON Schemas of what no document has yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from docs.json_schema import document, json_schema, key_types, list_of
from training_monitor.core.models import Checkpoint


class Saved(TypedDict):
    step: int | None
    path: str
    problem: str | None


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


def test_a_document_has_the_keys_of_its_parts_and_its_schema_follows() -> None:
    file = document("File", "", key_types(Saved, problem=""), size=int)
    folder = document(
        "Folder", "All files.", key_types(Checkpoint, age="", modified_at="", problem="why"), files=list_of(file)
    )
    assert list(folder.__annotations__) == ["path", "step", "size_bytes", "complete", "why", "files"]
    items = json_schema(folder)["properties"]["files"]["items"]
    assert items["properties"] == {
        "step": {"type": ["integer", "null"]},
        "path": {"type": "string"},
        "size": {"type": "integer"},
    }
