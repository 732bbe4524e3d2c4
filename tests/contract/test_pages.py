"""README.md and the pages of docs/: short enough, and what they name exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from training_monitor.cli.command_table import command_named, list_commands
from training_monitor.cli.parsing import build_parser

ROOT = Path(__file__).parents[2]
INDEX = ROOT / "docs" / "README.md"
PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "examples/README.md")]
PAGES += sorted((ROOT / "docs").glob("*.md"))
PAGES += sorted((ROOT / "training_monitor" / "agents" / "skill").rglob("*.md"))
LINK = re.compile(r"\]\(([^)\s]*)\)")


def anchors(page: Path) -> set[str]:
    """What a link into a page may name, made from its headings as GitHub does."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 120


def test_every_link_leads_somewhere_and_every_page_is_linked() -> None:
    broken = []
    for page in PAGES:
        for link in LINK.findall(page.read_text()):
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            if re.match(r"\w+:", path):
                continue
            if not target.exists() or anchor and anchor not in anchors(target):
                broken.append(f"{page.name}: {link}")
    assert not broken
    linked = {link for page in PAGES for link in LINK.findall(page.read_text())}
    missing = [page.name for page in PAGES if not any(link.partition("#")[0].endswith(page.name) for link in linked)]
    assert set(missing) <= {"README.md"}
    listed = {link.partition("#")[0] for link in LINK.findall(INDEX.read_text())}
    assert {page.name for page in INDEX.parent.glob("*.md")} - {INDEX.name} <= listed


def test_every_command_in_the_tables_and_examples_exists() -> None:
    tables = (ROOT / "README.md").read_text() + INDEX.read_text()
    rows = re.findall(r"^\| [^|]+ \| ([^|]*`[^|]*) \|", tables, re.MULTILINE)
    named = {word for row in rows for word in re.findall(r"`((?:rent )?[a-z]+)(?=[ `])", row)} - {"from"}
    assert len(named) > 12 and named <= set(list_commands())
    for name in list_commands():
        examples = command_named(name).examples
        assert examples, name
        for example in examples:
            words = shlex.split(example.partition(" && ")[0])
            assert build_parser().parse_args([*name.split(), *words]).subcommand == name
