"""Patterns that are compiled on first use against compiled ones."""

from __future__ import annotations

import re

import pytest

from training_monitor.core.regex import regex


def test_a_pattern_answers_as_a_compiled_one() -> None:
    for source, flags, text in [(r"(\d+)", 0, "a1b22"), ("B", re.IGNORECASE, "abc"), (rb"\d", 0, b"x1")]:
        lazy, compiled = regex(source, flags), re.compile(source, flags)  # type: ignore[type-var]
        assert lazy.pattern == compiled.pattern
        for method in ("search", "match", "fullmatch"):
            found, expected = getattr(lazy, method)(text), getattr(compiled, method)(text)
            assert (found and found.groups()) == (expected and expected.groups())
        assert lazy.findall(text) == compiled.findall(text)
        assert lazy.split(text) == compiled.split(text)
        assert lazy.sub(text[:1], text) == compiled.sub(text[:1], text)
        assert (lazy.groups, lazy.flags) == (compiled.groups, compiled.flags)


def test_a_wrong_pattern_is_told_on_first_use() -> None:
    with pytest.raises(re.error):
        regex("(").search("")
