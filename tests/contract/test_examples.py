"""examples: every one is in the table of examples/README.md, and in a test that runs it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples"
TABLE = (FOLDER / "README.md").read_text()


def test_every_example_is_in_the_table() -> None:
    listed = {link.partition("/")[0] for link in re.findall(r"\]\(([\w./]+)\)", TABLE)}
    assert listed == {each.name for each in FOLDER.iterdir()} - {"README.md", "__pycache__"}


def test_every_example_is_run_by_a_test() -> None:
    tests = "\n".join(path.read_text() for path in (ROOT / "tests" / "integration").glob("test_*.py"))
    assert [each.name for each in FOLDER.glob("*.py") if not re.search(rf"\b{each.stem}\b", tests)] == []
