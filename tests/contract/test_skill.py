"""SKILL.md and references keep the Agent Skills specification (https://agentskills.io/specification), and name what is.

Their snippets run in tests/integration/test_documents.py and tests/evals/test_snippets.py.
"""

from __future__ import annotations

import importlib
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from tests.requirements import require
from training_monitor.cli.argument_types import CommandParser
from training_monitor.cli.command_table import find_command
from training_monitor.cli.parsing import build_parser
from training_monitor.core import reports

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "training_monitor" / "agents" / "skill"
TEXT = (ROOT / "SKILL.md").read_text()
REFERENCES = sorted((FOLDER / "references").iterdir())
PAGES = [ROOT / "SKILL.md", *REFERENCES]
KEYS = {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}
LINK = re.compile(r"\]\(([^)\s]*)\)")
MOST_WORDS = 2500  # under 5000 tokens


def frontmatter() -> dict[str, str]:
    _, head, _ = TEXT.split("---\n", 2)
    return dict(line.split(": ", 1) for line in head.splitlines())


def commands_of(page: Path) -> list[str]:
    """The commands in a page: in its blocks of code, and in its sentences."""
    text = page.read_text().replace("\\\n", " ")
    blocks = re.findall(r"^```(?:bash|sh)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    inline = re.findall(r"`(training-monitor [^`]+)`", text)
    return [line for block in blocks for line in block.splitlines() if line.startswith("training-monitor")] + inline


def parsers() -> dict[str, CommandParser]:
    return build_parser().commands


def test_the_frontmatter_is_that_of_the_specification() -> None:
    assert TEXT.startswith("---\n") and {"name", "description"} <= set(frontmatter()) <= KEYS
    assert frontmatter()["name"] == "training-monitor"
    description = frontmatter()["description"]
    assert 50 < len(description) <= 1024 and "Use when" in description and not re.search("[<>]", description)
    assert len(frontmatter()["compatibility"]) <= 500


def test_the_reference_validator_accepts_it(tmp_path: Path) -> None:
    folder = tmp_path / "training-monitor"
    shutil.copytree(FOLDER / "references", folder / "references")
    shutil.copy(ROOT / "SKILL.md", folder)
    command = [require("agentskills"), "validate", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "Valid skill" in done.stdout, done.stdout + done.stderr


def test_every_page_is_short_one_level_deep_and_linked_from_the_skill() -> None:
    links = {link for link in LINK.findall(TEXT) if not link.startswith("#")}
    assert links == {f"references/{page.name}" for page in REFERENCES}
    for page in REFERENCES:
        assert page.suffix == ".md" and not LINK.findall(page.read_text()), page.name
    for page in PAGES:
        text = page.read_text()
        assert len(text.splitlines()) < 500 and len(text.split()) < MOST_WORDS, page.name


def test_every_command_in_the_pages_is_one_that_it_takes_and_check_is_the_first() -> None:
    found = [command for page in PAGES for command in commands_of(page)]
    assert len(found) > 12
    for command in found:
        words = [word for word in shlex.split(command)[1:] if word != "…"]
        assert build_parser().parse_args(words).subcommand == find_command(words), command
    assert commands_of(ROOT / "SKILL.md")[0].startswith("training-monitor check ")
    assert re.findall("^## (.*)", TEXT, re.MULTILINE)[0] == "First call"


def test_every_function_in_the_table_is_public() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("|") and line.count("|") == 4]
    names = {
        name for row in rows[2:] for name in re.findall(r"`((?:[a-z]+\.)?[a-z]+(?:_[a-z]+)+)`", row.rsplit("|", 2)[1])
    }
    assert len(names) > 10
    for room, _, name in (each.rpartition(".") for each in names):
        assert name in importlib.import_module(f"training_monitor.{room}".rstrip(".")).__all__, name


def test_every_option_and_command_that_a_page_names_exists() -> None:
    for page in PAGES:
        text = page.read_text()
        named = {name for name in re.findall(r"[`| ]((?:rent )?[a-z]+)(?=[ `])", text)} & set(parsers())
        known = {option for name in named for action in parsers()[name]._actions for option in action.option_strings}
        assert set(re.findall(r"(?<![\w-])--[a-z][\w-]+", text)) - {"--resume"} <= known
    rows = [line for line in TEXT.splitlines() if line.startswith("|") and line.count("|") == 4]
    named = {name for row in rows[2:] for name in re.findall(r"`([a-z]+)[ `]", row.split("|")[2])}
    assert named - {"failure"} and named - {"failure"} <= set(parsers())


def test_every_key_of_a_report_is_explained() -> None:
    text = (FOLDER / "references" / "check.md").read_text()
    keys = {*reports.CheckReport.__annotations__, *reports.JobCheckReport.__annotations__}
    assert {key for key in keys if not re.search(f'[`"]{key}[`"]', text)} == set()
