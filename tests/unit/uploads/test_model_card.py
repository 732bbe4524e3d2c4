"""The README of an unfinished model."""

from __future__ import annotations

import pytest

from training_monitor.uploads.hugging_face import IncompleteInfo, format_incomplete_card

CARD = """\
---
tags:
  - flux
  - lora
  - incomplete
---

# My Model

⚠️ **This model was terminated early due to training stall.**

- Target steps: 4000
- Completed steps: 3500 (87.5%)
- Reason: ETA not converging

The model may still be usable but was not fully trained.
"""


def tags(*given: str) -> list[str]:
    lines = format_incomplete_card(IncompleteInfo(tags=given)).splitlines()
    return lines[2 : lines.index("---", 1)]


def test_the_card() -> None:
    assert format_incomplete_card(IncompleteInfo("My Model", 4000, 3500, tags=("flux", "lora"))) == CARD


def test_what_is_not_known() -> None:
    text = format_incomplete_card(IncompleteInfo(reason=""), model_name="name")
    assert "# name\n" in text and "- Reason: ?\n" in text
    assert "- Target steps: ?\n- Completed steps: ? (?%)\n" in text
    assert "- Completed steps: 5 (?%)\n" in format_incomplete_card(IncompleteInfo(target_steps=0, completed_steps=5))


def test_each_tag_once_incomplete_always_and_the_base_model_in_the_front_matter() -> None:
    assert tags() == ["  - incomplete"]
    assert tags("a", "incomplete", "a", " ", "b") == ["  - a", "  - incomplete", "  - b"]
    text = format_incomplete_card(IncompleteInfo(base_model="black-forest-labs/FLUX.1-dev"))
    assert text.startswith("---\ntags:\n  - incomplete\nbase_model: black-forest-labs/FLUX.1-dev\n---\n")


def test_hostile_tags_stay_one_text(subtests: pytest.Subtests) -> None:
    for tag, shown in [
        ("base_model:owner/name-1.5", "base_model:owner/name-1.5"),
        ("yes", '"yes"'),
        ("1.5", '"1.5"'),
        ("- a", '"- a"'),
        ("a: b", '"a: b"'),
        ("a:", '"a:"'),
        ("a #b", '"a #b"'),
        ("[x]{y}&*!|>'\"%@`", '"[x]{y}&*!|>\'\\"%@`"'),
        ("back\\slash", '"back\\\\slash"'),
        ("ünïcödé 模型", '"ünïcödé 模型"'),
        ("a\n---\nb", '"a --- b"'),
        ("a\x00\x85\u2028\ud800b", "a b".join(['"', '"'])),
    ]:
        with subtests.test(tag=tag, shown=shown):
            assert tags(tag)[0] == f"  - {shown}"


def test_hostile_names_stay_one_line() -> None:
    text = format_incomplete_card(IncompleteInfo("a\n---\n<script>", reason="b\r\n# c"))
    assert "# a --- &lt;script>\n" in text and "- Reason: b # c\n" in text
    assert text.count("\n---\n") == 1
