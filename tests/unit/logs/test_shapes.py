"""What is asked by shape depends on no digit: shown by the patterns themselves, and by lines with other digits."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from tests.sweeps import cases_of
from training_monitor.logs import events, fields, pace, parts, shapes, text
from training_monitor.verdict import failure, failure_table

try:
    from re import _constants as constants, _parser as parser  # type: ignore[attr-defined]
except ImportError:  # Python 3.10
    import sre_constants as constants
    import sre_parse as parser

ASKED = {
    found
    for module in (text, fields, events, pace, parts, failure)
    for found in vars(module).values()
    if isinstance(found, FunctionType) and found.__code__.co_name == "find_in_line"
}
DIGITS = frozenset(map(ord, "0123456789"))


def names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from names_in(inner)


def patterns_of(function: Callable[..., Any], seen: set[object]) -> Iterator[str]:
    """Yield the patterns that a function uses, itself or in the functions of the package that it calls."""
    function = getattr(function, "__wrapped__", function)
    if function in seen or not isinstance(function, FunctionType):
        return
    seen.add(function)
    for name in names_in(function.__code__):
        yield from patterns_in(function.__globals__.get(name), seen)


def patterns_in(value: Any, seen: set[object]) -> Iterator[str]:
    if isinstance(value, FunctionType) and value.__module__.startswith("training_monitor"):
        yield from patterns_of(value, seen)
    elif isinstance(value, type) and value.__module__.startswith("training_monitor"):
        for method in vars(value).values():
            yield from patterns_in(method, seen)
    elif isinstance(getattr(value, "pattern", None), str):
        yield value.pattern
    elif isinstance(value, tuple):
        for each in value:
            yield from patterns_in(each, seen)


def digits_named(tree: Any) -> Iterator[str]:
    """Yield what makes a parsed pattern depend on single digits."""
    for kind, argument in tree:
        if kind in (constants.LITERAL, constants.NOT_LITERAL) and argument in DIGITS:
            yield f"the digit {chr(argument)}"
        elif kind is constants.IN:
            ranges = [set(range(low, high + 1)) for op, (low, high) in only(argument, constants.RANGE)]
            named = {value for op, value in only(argument, constants.LITERAL)}.union(*ranges) & DIGITS
            if named and named != DIGITS and (constants.CATEGORY, constants.CATEGORY_DIGIT) not in argument:
                yield f"some digits: {sorted(map(chr, named))}"
        elif kind in (constants.GROUPREF, constants.GROUPREF_EXISTS):
            yield "a reference to a group"
        for inner in nested(argument):
            yield from digits_named(inner)


def only(members: Any, kind: object) -> list[Any]:
    return [member for member in members if member[0] is kind]


def nested(argument: Any) -> Iterator[Any]:
    if isinstance(argument, parser.SubPattern):
        yield argument
    elif isinstance(argument, tuple | list):
        for each in argument:
            yield from nested(each)


def test_no_pattern_that_is_asked_by_shape_names_a_digit() -> None:
    found = {pattern for each in ASKED if each.__module__ != failure.__name__ for pattern in patterns_of(each, set())}
    assert len(found) > 80
    assert {pattern: named for pattern in found if (named := [*digits_named(parser.parse(pattern))])} == {}


def test_a_signature_for_any_digit_names_none_and_excludes_none() -> None:
    for signature in failure_table.SIGNATURES:
        for_any = failure._for_any_digit(signature.pattern)
        assert [*digits_named(parser.parse(for_any))] == []
        assert refused(for_any) <= refused(signature.pattern)  # to widen what must not follow would narrow the pattern


def refused(pattern: str) -> set[str]:
    return {str(argument) for kind, argument in every_node(parser.parse(pattern)) if kind is constants.ASSERT_NOT}


def every_node(tree: Any) -> Iterator[tuple[Any, Any]]:
    for kind, argument in tree:
        yield kind, argument
        for inner in nested(argument):
            yield from every_node(inner)


def test_a_pattern_for_any_digit_finds_other_digits() -> None:
    for pattern, line in [
        (r"exit code 1[34]7\b", "exit code 998"),
        (r"\b40[13] client \d{1,3}", "\\b959 client 1"),
        (r"[a-z0-9]{2,4}\.5", "a1.6"),
        (r"[^1]x\[1\]", "ax[7]"),
    ]:
        assert not re.search(pattern, line.removeprefix("\\b"))
        assert re.search(failure._for_any_digit(pattern), line.removeprefix("\\b"))


def lines() -> list[str]:
    known = [json.loads(line) for line in (Path(__file__).parent / "more_logs.jsonl").read_text().splitlines()]
    kept = [line for each in known for line in each["lines"]]
    kept += [word for each in failure_table.SIGNATURES for word in re.findall(r"[\w .:=\[\]]{4,}", each.pattern)]
    return kept + [f"[rank{number}]: {line}" for number, line in enumerate(kept)]


def test_lines_of_one_shape_are_answered_alike() -> None:
    chance = random.Random(4)
    assert len(ASKED) >= 9
    for line in cases_of(lines(), 500):
        other = re.sub(r"\d", lambda _: chance.choice("0123456789"), line)
        for asked in ASKED:
            for spelled in (other, other.lower()):
                assert shown(asked.__wrapped__(spelled)) == shown(asked(spelled)), (asked.__name__, spelled)  # type: ignore[attr-defined]


def shown(found: Any) -> Any:
    """What was found, to compare: places in a line are no values."""
    if isinstance(found, tuple):
        return [shown(each) for each in found]
    is_places = isinstance(found, fields.Finds | parts._Name)
    return {name: shown(value) for name, value in vars(found).items()} if is_places else found


def test_a_long_line_is_asked_itself_and_a_name_that_is_no_utf8_is_read() -> None:
    asked = []

    @shapes.by_shape
    def length(line: str) -> int:
        asked.append(line)
        return len(line)

    assert [length("step 12"), length("step 34"), length("\udcff 1")] == [7, 7, 3]
    assert asked == ["step 00", "\udcff 0"]
    long = "9" * (shapes.LONGEST_SHAPE + 1)
    assert length(long) == len(long)
    assert asked[-1] == long


@pytest.mark.parametrize("text", ["", "\n", "1\r2\b\b3\n\n", "é 12\r\n\udcff9\x0b\u2028 4\x00", "٣ 5\n"])
def test_the_shapes_of_a_text_are_those_of_its_lines(text: str) -> None:
    lines = re.split("[\n\r\b]", text)
    assert [*shapes.shapes_and_lines(text)] == [(shapes.shape_of(line), line) for line in lines]
