"""docs/schemas.json as tests need it: closed, so that a key that it does not have is an error."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from tests.requirements import require_package

FILE = Path(__file__).parents[1] / "docs" / "schemas.json"
SCHEMAS: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
COMMANDS = tuple(each["$ref"].rpartition("/")[2] for each in SCHEMAS["anyOf"])


def closed_schemas() -> dict[str, Any]:
    """The schemas without room for keys that they do not name."""
    definitions = json.loads(FILE.read_text(encoding="utf-8"))["$defs"]
    commands = [definitions[name] for name in COMMANDS]
    forms = {each.get("$ref") for command in commands for each in (command, *command.get("anyOf", ()))}
    for name, schema in definitions.items():
        if name in COMMANDS:
            schema["unevaluatedProperties"] = False
        elif f"#/$defs/{name}" not in forms:  # a form has the key `schema` of its command besides its own
            schema["additionalProperties"] = False
    return {"$schema": SCHEMAS["$schema"], "$defs": definitions}


CLOSED = closed_schemas()


def read_documents(text: str) -> list[dict[str, Any]]:
    """The documents of a command's stdout, one a line, in strict JSON."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


@cache
def validator_of(command: str) -> Any:
    """One for all documents of a command, or of `error`: to read the schemas takes longer than to check a document."""
    jsonschema = require_package("jsonschema")
    return jsonschema.Draft202012Validator(CLOSED | {"$ref": f"#/$defs/{command}"})


def check_document(document: dict[str, Any], command: str) -> None:
    """Raise ValidationError unless this is a document of a command, or of `error`."""
    validator_of(command).validate(document)
