"""Every match of a pattern contains one of the texts said to be required, in every pattern of the package."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import pytest

import training_monitor
from training_monitor.core.regex import regex, required_texts
from training_monitor.verdict import failure, failure_table

try:
    from re import _constants as constants, _parser as parser  # type: ignore[attr-defined]
except ImportError:  # Python 3.10
    import sre_constants as constants
    import sre_parse as parser

REPEATS = tuple(
    getattr(constants, name) for name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") if hasattr(constants, name)
)
Way = tuple[frozenset[str], str]  # texts that are in every match that takes this way, and the one that may go on


def ways(tree: Any, text: str = "") -> list[Way]:
    """The ways through a parsed pattern that begins after a text."""
    found: list[Way] = [(frozenset(), text)]
    for kind, argument in tree:
        found = [
            (have | more, rest) for have, begun in found for more, rest in ways_of_part(kind, argument, begun)
        ]  # fmt: skip
    return found


def ways_of_part(kind: Any, argument: Any, text: str) -> list[Way]:
    if kind is constants.LITERAL:
        return [(frozenset(), text + chr(argument).lower())]
    if kind is constants.SUBPATTERN:
        return ways(argument[3], text)
    if kind is constants.BRANCH:
        return [way for branch in argument[1] for way in ways(branch, text)]
    if kind in REPEATS and argument[0]:
        return [(have | {rest}, "") for have, rest in ways(argument[2], text)]
    if kind is constants.ASSERT:
        return [(have | {rest}, text) for have, rest in ways(argument[1])]
    if kind is constants.ASSERT_NOT or kind is constants.AT:
        return [(frozenset(), text)]
    return [(frozenset({text}), "")]


def patterns() -> Iterator[tuple[str, int]]:
    """Every pattern of the package's modules."""
    for module in pkgutil.walk_packages(training_monitor.__path__, "training_monitor."):
        if not module.name.endswith("__main__") and ".sh" not in module.name:
            for value in vars(importlib.import_module(module.name)).values():
                yield from patterns_in(value)
    for signature in failure_table.SIGNATURES:
        yield failure._for_any_digit(signature.pattern), 0


def patterns_in(value: Any) -> Iterator[tuple[str, int]]:
    if isinstance(value, tuple | list):
        for each in value:
            yield from patterns_in(each)
    elif isinstance(value, type(regex(""))) and isinstance(value.pattern, str):
        yield value.pattern, value._flags


def test_every_match_contains_a_required_text() -> None:
    found = {each: required for each in patterns() if (required := required_texts(*each))}
    assert len(found) > 200
    for (pattern, flags), required in found.items():
        for have, rest in ways(parser.parse(pattern, flags)):
            said = [text for text in {*have, rest} if any(each.lower() in text for each in required)]
            assert said, (pattern, required, have, rest)


@pytest.mark.parametrize(
    ("pattern", "flags", "required"),
    [
        ("loss", 0, ("loss",)),
        ("Loss|STEP", re.IGNORECASE, ("loss", "step")),
        (r"\bsav(?:ed|ing) \w{1,9} model\b", 0, (" model",)),
        (r"(?:ab|cd)+x?", 0, ("ab", "cd")),
        (r"(?:ab|cd)*xyz{0,3}", 0, ("xy",)),
        (r"xyz{2}[abc]q", 0, ("xyz",)),
        (r"(?<=[|] )\d{1,9}/\d", 0, ("/",)),
        (r"(?!never)(?P<name>word)", 0, ("word",)),
        (r"\x1b\[\d", 0, ("[",)),
        (r"one|\d|two", 0, ()),
        (r"one(?:two)?|x*", 0, ()),
        ("a b # c", re.VERBOSE, ()),
        ("(?x) a b", 0, ()),
        ("(?i:word)", 0, ()),
        (r"[^\]a]\]|[]ab]x", 0, ()),
    ],
)  # fmt: skip
def test_the_rarest_texts_are_required(pattern: str, flags: int, required: tuple[str, ...]) -> None:
    assert required_texts(pattern, flags) == required


@pytest.mark.parametrize(
    ("pattern", "flags", "text"),
    [
        ("kelvin|xyz", re.IGNORECASE, "9 \u212aELVIN"),
        ("staſt|quit", re.IGNORECASE, "STAST"),
        (r"a.b(?=cd)", re.DOTALL, "xa\nbcd"),
        ("word", 0, "Word"),
        ("no|ne", 0, "yes"),
    ],
)
def test_the_same_is_found_as_by_the_pattern_itself(pattern: str, flags: int, text: str) -> None:
    ours, python = regex(pattern, flags), re.compile(pattern, flags)
    for method in ("search", "match", "fullmatch"):
        assert repr(getattr(ours, method)(text)) == repr(getattr(python, method)(text))
    assert [*map(repr, ours.finditer(text))] == [*map(repr, python.finditer(text))]
    assert ours.sub("-", text) == python.sub("-", text)
    assert repr(ours.search(text, 2)) == repr(python.search(text, 2))
