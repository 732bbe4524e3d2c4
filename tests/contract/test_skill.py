"""SKILL.md keeps the Agent Skills specification (https://agentskills.io/specification), and names what exists."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from training_monitor.cli.parsing import build_parser

TEXT = (Path(__file__).parents[2] / "SKILL.md").read_text()
KEYS = {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}


def frontmatter() -> dict[str, str]:
    _, head, _ = TEXT.split("---\n", 2)
    return dict(line.split(": ", 1) for line in head.splitlines())


def test_the_frontmatter_has_only_the_keys_of_the_specification() -> None:
    assert TEXT.startswith("---\n") and {"name", "description"} <= set(frontmatter()) <= KEYS


def test_the_name_is_lower_case_with_dashes() -> None:
    assert frontmatter()["name"] == "training-monitor"


def test_the_description_says_what_and_when_in_at_most_1024_characters() -> None:
    description = frontmatter()["description"]
    assert 50 < len(description) <= 1024 and "Use when" in description and not re.search("[<>]", description)


def test_the_compatibility_note_is_short_enough() -> None:
    assert len(frontmatter()["compatibility"]) <= 500


def test_the_body_is_short_enough_to_be_read_at_once() -> None:
    assert len(TEXT.splitlines()) < 500


def test_every_function_in_the_table_is_public() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("|") and line.count("|") == 4]
    names = {
        name for row in rows[2:] for name in re.findall(r"`((?:[a-z]+\.)?[a-z]+(?:_[a-z]+)+)`", row.rsplit("|", 2)[1])
    }
    assert len(names) > 10
    for room, _, name in (each.rpartition(".") for each in names):
        assert name in importlib.import_module(f"training_monitor.{room}".rstrip(".")).__all__, name


def test_every_command_in_the_table_exists() -> None:
    [commands] = [action.choices for action in build_parser()._actions if hasattr(action, "choices") and action.choices]
    rows = [line for line in TEXT.splitlines() if line.startswith("|") and line.count("|") == 4]
    named = {name for row in rows[2:] for name in re.findall(r"`([a-z]+)[ `]", row.split("|")[2])}
    assert named and named <= set(commands)
