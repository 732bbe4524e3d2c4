"""What to try after an answer of an outside tool: each row of the table, by a recorded answer."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from training_monitor.core.advice import ADVICE, PROGRAMS, QUESTIONS, find_advice
from training_monitor.core.errors import CommandError, RestError, TargetUnreachable
from training_monitor.core.models import CommandResult
from training_monitor.notify.channels import advise
from training_monitor.targets.transport import explain_failure

FILE = Path(__file__).parents[2] / "recorded" / "advice" / "answers.jsonl"
ANSWERS: list[dict[str, Any]] = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
NEW_WORDS = ("something new happened", "panic: runtime error", "Error 0x17", "no", "")


def test_each_answer_gets_its_own_advice(subtests: pytest.Subtests) -> None:
    for answer in ANSWERS:
        with subtests.test(said=answer["said"][:80]):
            found = find_advice(answer["said"], answer["tool"])
            assert found and found.hint == answer["hint"] and answer["source"]
            assert (found.kind.__name__ if found.kind else None) == answer["kind"]
            assert found.line and found.line in answer["said"]


def test_each_row_has_an_answer() -> None:
    used = {(each["tool"], row) for each in ANSWERS if (row := first_row(each)) is not None}
    assert used == {(tool, row) for tool, rows in ADVICE.items() for row in range(len(rows))}


def first_row(answer: dict[str, Any]) -> int | None:
    rows = ADVICE[answer["tool"]]
    return next((number for number, row in enumerate(rows) if row.words.search(answer["said"])), None)


def test_a_program_that_fails_shows_its_words_and_the_advice(subtests: pytest.Subtests) -> None:
    for answer in ANSWERS:
        if answer["tool"] not in (PROGRAMS, QUESTIONS):
            continue
        with subtests.test(said=answer["said"][:80]):
            error = explain_failure(CommandResult(("ssh",), 255, "", answer["said"], 0.1), "there")
            last = answer["said"].splitlines()[-1].strip()
            assert error.hint == answer["hint"] and last[:200] in str(error)
            assert type(error).__name__ == (answer["kind"] or "TargetUnreachable")


def test_a_channel_that_refuses_gets_the_advice_of_its_words(subtests: pytest.Subtests) -> None:
    for answer in ANSWERS:
        if answer["tool"] in (PROGRAMS, QUESTIONS, "vastai"):
            continue
        with subtests.test(said=answer["said"]):
            error = RestError("it answered 400", status=400, body=answer["said"])
            assert advise(answer["tool"], error) == answer["hint"]


def test_unknown_words_are_shown_without_advice_of_another_failure() -> None:
    every = {answer["hint"] for answer in ANSWERS}
    for said in NEW_WORDS:
        error = explain_failure(CommandResult(("kubectl",), 1, "", said, 0.1), "pod")
        assert type(error) is TargetUnreachable and said in str(error)
        assert error.hint == "look whether kubectl answers by itself" and error.hint not in every
        assert not any(find_advice(said, tool) for tool in ADVICE)
        assert advise("telegram", RestError("it answered 400", status=400, body=said)) is None


def test_no_advice_names_a_command_or_an_option_of_ours() -> None:
    for rows in ADVICE.values():
        for row in rows:
            assert not re.search(r"training-monitor|(?<!\S)--(?!subresource|me\b)", row.hint), row.hint
            assert row.kind is None or issubclass(row.kind, CommandError)


def test_the_page_has_every_answer() -> None:
    from docs.write_advice import PAGE, write_advice

    assert PAGE.read_text(encoding="utf-8") == write_advice(), "run python3 docs/write_advice.py"
