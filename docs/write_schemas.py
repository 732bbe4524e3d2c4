"""Write docs/schemas.json from the types of the JSON documents: `python3 docs/write_schemas.py`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from docs.json_documents import DOCUMENTS  # noqa: E402
from docs.json_schema import Definitions, json_schema  # noqa: E402
from training_monitor.core import errors  # noqa: E402
from training_monitor.core.envelope import schema_name  # noqa: E402

DIALECT = "https://json-schema.org/draft/2020-12/schema"
WIDTH = 120


def write_schemas() -> str:
    """Return one schema of all documents, with a definition for each command and each class."""
    definitions: Definitions = {}
    commands = {command: _command(command, forms, definitions) for command, forms in DOCUMENTS.items() if forms}
    definitions["ErrorDocument"]["properties"]["kind"] = {"enum": error_kinds()}
    whole = {
        "$schema": DIALECT,
        "title": "The JSON documents of training-monitor",
        "anyOf": [{"$ref": f"#/$defs/{command}"} for command in commands],
        "$defs": commands | dict(sorted(definitions.items())),
    }
    return f"{_format(whole)}\n"


def _command(command: str, forms: tuple[type, ...], definitions: Definitions) -> dict[str, Any]:
    """Return the schema of a command: the name of its schema, with the keys of one of its forms."""
    own = [json_schema(form, definitions) for form in forms]
    head: dict[str, Any] = {"properties": {"schema": {"const": schema_name(command)}}, "required": ["schema"]}
    return head | (own[0] if len(own) == 1 else {"anyOf": own})


def error_kinds() -> list[str]:
    """Return the names of the classes of errors: there are no other kinds."""
    classes = [each for each in vars(errors).values() if isinstance(each, type)]
    return [each.__name__ for each in classes if issubclass(each, errors.TrainingMonitorError)]


def _format(value: Any, indent: str = "") -> str:
    """Format JSON, with what fits on one line."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(line) < WIDTH or not isinstance(value, (dict, list)):
        return line
    more = f"{indent}  "
    if isinstance(value, list):
        lines = [_format(each, more) for each in value]
    else:
        lines = [f"{json.dumps(name)}: {_format(each, more)}" for name, each in value.items()]
    begin, end = "[]" if isinstance(value, list) else "{}"
    joined = f",\n{more}".join(lines)
    return f"{begin}\n{more}{joined}\n{indent}{end}"


if __name__ == "__main__":
    (ROOT / "docs" / "schemas.json").write_text(write_schemas(), encoding="utf-8")
