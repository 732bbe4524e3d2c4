"""A log shows the same progress whether it is read as one text, line by line, or in the pieces that a follower gets."""

from __future__ import annotations

import ast
import random
import re
from pathlib import Path

import pytest

from tests.sweeps import cases_of
from tests.unit.logs.test_more_frameworks import misread, rows
from training_monitor.core.records import format_record, read_record
from training_monitor.logs.job_progress import job_progress
from training_monitor.logs.shapes import LONGEST_SHAPE, shape_of
from training_monitor.logs.text import _WORDINGS, clean_line, in_known_words, strip_ansi, strip_prefixes
from training_monitor.logs.totals import LogTotals
from training_monitor.logs.training_log import parse_progress

TESTS = Path(__file__).parents[2]
FRAMEWORKS = rows("more_logs.jsonl")


def texts_in_code() -> list[str]:
    """Every text in the tests that read logs: their samples of logs are among them."""
    code = [path.read_text(encoding="utf-8") for path in sorted(TESTS.rglob("test_*.py"))]
    trees = [ast.parse(each) for each in code if "parse_progress" in each or "LogTotals" in each]
    constants = (node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return sorted({text for text in constants if isinstance(text, str) and any(map(str.isdigit, text))})


def recorded_texts() -> list[str]:
    files = [path for path in sorted(TESTS.glob("recorded/**/*")) if path.suffix in (".txt", ".log", ".jsonl")]
    return [path.read_text(encoding="utf-8", errors="replace") for path in files]


SAMPLES = [
    *("\n".join(row["lines"]) for row in FRAMEWORKS),
    *("\n".join(row["lines"]) for row in rows("more_transports.jsonl")),
    *texts_in_code(),
    *recorded_texts(),
]


def fed(pieces: list[str]) -> LogTotals:
    totals = LogTotals()
    for piece in pieces:
        totals.feed(piece)
    totals.close()
    return totals


def cut(text: str) -> list[str]:
    """The text in uneven pieces, as a follower gets them."""
    chance, pieces, at = random.Random(len(text)), list[str](), 0
    while at < len(text):
        size = chance.choice([1, 3, 17, 90, 400])
        pieces.append(text[at : at + size])
        at += size
    return pieces


def test_progress_is_the_same_in_text_lines_and_pieces() -> None:
    assert len(SAMPLES) > 900
    for text in cases_of(SAMPLES, 150):
        whole = repr(parse_progress(text))
        assert repr(fed(text.splitlines(keepends=True)).progress) == whole, text
        assert repr(fed(cut(text)).progress) == whole, text


def test_a_line_that_is_taken_apart_is_rewritten_as_by_its_patterns() -> None:
    lines = [line for text in SAMPLES for line in text.split("\n") if not line.isspace()]
    lines += [f"\x1b[36m(W pid=7)\x1b[0m\t{line} [repeated 3x across cluster]" for line in lines]
    for line in cases_of([line for line in lines if len(line) <= LONGEST_SHAPE], 600):
        plain = re.sub("[\u00a0\t\ufeff\x00]", " ", strip_prefixes(strip_ansi(line)))
        assert clean_line(line, shape_of(line))[:2] == (plain, shape_of(plain))
        known = plain.lower()
        for needs, pattern, wording in _WORDINGS:
            known = pattern.sub(wording, known) if any(map(known.__contains__, needs)) else known
        assert in_known_words(plain.lower()) == known


def test_totals_of_lines_show_what_is_expected_of_every_framework() -> None:
    read = {
        row["source"]: misread(fed([f"{line}\n" for line in row["lines"]]).progress, row["expect"])
        for row in FRAMEWORKS
    }
    assert {source: wrong for source, wrong in read.items() if wrong} == {}


def test_totals_give_the_step_and_total_of_the_newest_progress() -> None:
    for row in FRAMEWORKS:
        text = "\n".join(row["lines"])
        job, found = job_progress(parse_progress(text)), fed(cut(text)).as_dict()
        assert (found["last_step"], found["total_steps"]) == (job.step, job.total_steps), row["source"]


def test_totals_that_are_kept_on_disk_between_lines_lose_nothing() -> None:
    for row in cases_of(FRAMEWORKS, 15):
        totals = LogTotals()
        for line in row["lines"]:
            totals.feed(f"{line}\n")
            totals = read_record(LogTotals, format_record(totals))
        assert repr(totals.progress) == repr(parse_progress("\n".join(row["lines"]))), row["source"]


@pytest.mark.parametrize("steps", [1, 7, 90])
def test_environment_steps_beside_iterations_are_not_the_step(steps: int) -> None:
    lines = [
        f"Learning iteration {step}/3000\n Total timesteps: {98304 * step}\n ETA: 34.5s\n"
        for step in range(1, steps + 1)
    ]
    for pieces in (lines, "".join(lines).splitlines(keepends=True)):
        found = fed(pieces).as_dict()
        assert (found["last_step"], found["total_steps"]) == (steps, 3000)
