"""docs/schemas.json: written from the types, of every command with `--json`, and each is tried by a real call."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from docs.json_documents import DOCUMENTS
from docs.write_schemas import error_kinds, write_schemas
from tests.json_documents import COMMANDS, FILE, SCHEMAS, check_document
from tests.requirements import require_package
from training_monitor.cli.command_table import list_commands
from training_monitor.core.envelope import schema_name, wrap

ROOT = Path(__file__).parents[2]
TRIED = ROOT / "tests" / "integration" / "test_json_documents.py"
ALL = set(list_commands())
CALLS = ("document", "documents", "error", "lines_of", "check_document")
NONE = {"metrics"}  # it only says that it has no JSON


def test_the_schemas_are_those_of_the_types() -> None:
    assert FILE.read_text(encoding="utf-8") == write_schemas(), "run python3 docs/write_schemas.py"


def test_the_schemas_keep_the_draft() -> None:
    require_package("jsonschema").Draft202012Validator.check_schema(SCHEMAS)


def test_every_command_has_a_schema_and_is_tried() -> None:
    of_commands = {name.split()[-1] for name in ALL}
    assert set(DOCUMENTS) == of_commands | {"efa", "ray", "error"} and set(COMMANDS) == set(DOCUMENTS) - NONE
    calls = [node for node in ast.walk(ast.parse(TRIED.read_text())) if isinstance(node, ast.Call)]
    named = [each.args for each in calls if ast.unparse(each.func) in CALLS]
    assert {each.value for args in named for each in args if isinstance(each, ast.Constant)} >= ALL


def test_the_page_names_every_kind_of_error_and_only_those() -> None:
    page = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    [table] = re.findall(r"\| usual exit code \| `kind`.*?\n\n", page, re.DOTALL)
    named = re.findall(r"`([A-Z]\w+)`", table)
    assert sorted(named) == sorted(error_kinds())


def test_the_envelope_comes_first_and_once() -> None:
    told = wrap("check", {"jobs": [], "verdict": "ok", "schema": "another/1"}, target="local", verdict="failed")
    assert list(told.items()) == [
        ("schema", schema_name("check")), ("target", "local"), ("verdict", "ok"), ("jobs", [])
    ]  # fmt: skip
    assert wrap("doctor", {"checks": []}) == {"schema": "training_monitor.doctor/1", "checks": []}


def test_a_document_of_another_form_is_none() -> None:
    odd: list[dict[str, object]] = [{"verdict": "good"}, {"target": None}, {"more": 1}, {"jobs": {}}]
    for changes in [*odd, {"schema": "training_monitor.check/1"}]:
        right = {"reason": "", "not_looked_at": 0, "forgotten": 0, "not_seen": [], "remedies": [], "jobs": []}
        document = wrap("check", right, target="local", verdict="ok")
        check_document(document, "check")
        with pytest.raises(require_package("jsonschema").ValidationError):
            check_document(document | changes, "check")
