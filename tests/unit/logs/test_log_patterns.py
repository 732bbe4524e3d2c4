"""Metrics by a user's own patterns: the newest value, and a bounded cost."""

from __future__ import annotations

import math
import re

import pytest

from training_monitor.core.errors import SettingsError
from training_monitor.logs.bounded_search import WINDOW, search_line
from training_monitor.logs.patterns import MOST_LINES, MOST_TEXT, LogPattern, parse_metrics

REWARD = LogPattern("reward", r"reward[=: ]+(\S+)")
TOKENS = LogPattern("tokens", r"tokens=([\d,.]+)", "int")
PHASE = LogPattern("phase", r"phase: (.*)", "str")


def test_the_newest_value_in_text_order_wins() -> None:
    text = "reward=9.5 tokens=10\nreward=0.25\rreward=0.5 reward=-1.5e-2\nnothing here"
    assert parse_metrics(text, [REWARD, TOKENS]) == {"reward": -0.015, "tokens": 10}
    assert parse_metrics("reward=1\nreward=unknown", [REWARD]) == {"reward": 1.0}
    pattern = LogPattern("loss", r"loss(?:=(\d+))?")
    assert parse_metrics("loss=3\nloss", [pattern]) == {"loss": 3.0}
    assert parse_metrics("step 5", [REWARD, TOKENS, PHASE]) == {}
    assert parse_metrics("", [REWARD]) == {}
    assert parse_metrics("reward=1", []) == {}
    both = [LogPattern("loss", r"loss=(\d+)"), LogPattern("loss", r"Verlust (\d+)")]
    assert parse_metrics("Verlust 1\nloss=2 Verlust 3", both) == {"loss": 3.0}
    assert parse_metrics("Verlust 1\nVerlust 3 loss=2", both) == {"loss": 2.0}


def test_a_value_is_of_the_kind_that_was_asked_for() -> None:
    for pattern, line, value in [
        (TOKENS, "tokens=1,234,567", 1234567),
        (TOKENS, "tokens=12.0", 12),
        (PHASE, "phase:  warm up  ", "warm up"),
        (REWARD, "\x1b[32mreward: 3\x1b[0m", 3.0),
        (LogPattern("rank", r"^reward=(\S+)"), "[rank0]: reward=4", 4.0),
        (LogPattern("last", r"reward=(\S+)$"), "x reward=5", 5.0),
    ]:
        found = parse_metrics(line, [pattern])
        assert found == {pattern.name: value}
        assert type(found[pattern.name]) is type(value)
    assert math.isnan(float(parse_metrics("reward=nan", [REWARD])["reward"]))
    assert parse_metrics("tokens=1.5", [TOKENS]) == {}


def test_a_value_anywhere_in_a_long_line_is_found_whole() -> None:
    for position in [0, WINDOW - 210, WINDOW - 5, WINDOW, 2 * WINDOW - 205, 7900]:
        line = "x " * (position // 2) + "reward=12345.678 "
        line += "y " * ((8000 - len(line)) // 2)
        assert parse_metrics(line[:8000], [REWARD]) == {"reward": 12345.678}


def test_the_line_that_a_wait_is_for_may_say_it_anywhere() -> None:
    for position in (0, WINDOW - 5, 3 * WINDOW):
        assert search_line(re.compile("reward"), f"{'x' * position}reward")
    assert search_line(re.compile("$"), "") and not search_line(re.compile("reward"), "x" * 3 * WINDOW)


def test_only_the_last_whole_lines_and_characters_are_searched() -> None:
    assert parse_metrics("reward=1\n" + "x\n" * MOST_LINES, [REWARD]) == {}
    assert parse_metrics("x\nreward=1\n" + "x\n" * (MOST_LINES - 1), [REWARD]) == {"reward": 1.0}
    assert parse_metrics("reward=1\n" + ("x" * 999 + "\n") * (MOST_TEXT // 1000 + 1), [REWARD]) == {}
    tail = ("x" * 999 + "\n") * (MOST_TEXT // 1000)
    cut = "reward=1 tokens=23".ljust(MOST_TEXT - len(tail) + 10) + "\n"
    assert parse_metrics("y" * 10 + cut[5:] + tail, [LogPattern("tokens", r"kens=(\d+)")]) == {}


def test_a_pattern_that_cannot_be_used_is_refused_and_usual_ones_are_taken() -> None:
    for name, pattern, kind in [
        ("two words", r"(\d)", "float"),
        ("", r"(\d)", "float"),
        ("a", r"\d", "float"),
        ("a", r"(\d)(\d)", "float"),
        ("a", r"(\d", "float"),
        ("a", r"(\d)", "double"),
        ("a", r"(a+)+", "float"),
        ("a", r"(?:.*,)*(\d)", "float"),
        ("a", r"((?:x|xy)*)", "str"),
        ("a", r"(?=((?:a?b){9,}))", "str"),
    ]:
        with pytest.raises(SettingsError):
            LogPattern(name, pattern, kind)
    for pattern in [
        r"([+-]?\d+(?:\.\d*)?(?:e[+-]?\d+)?)",
        r"(\d{1,3}(?:,\d{3})*)",
        r"(?i)loss\s*[:=]\s*(\S+)",
        r"(.*?);",
    ]:
        assert LogPattern("a", pattern).kind == "float"
