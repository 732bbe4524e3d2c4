"""The conditions of the user's alert rules: reading them, and judging a sample by them. Pure.

The grammar of `when`:

    condition   = any [ "for" duration ]
    any         = all { "or" all }
    all         = test { "and" test }
    test        = "(" any ")" | number-test | status-test
    number-test = FIELD ( operator NUMBER [ "%" ] | "is" ( "known" | "unknown" | "nan" ) )
    status-test = "status" ( ( "==" | "!=" ) ( WORD | QUOTED ) | "is" ( "known" | "unknown" ) )
    operator    = "<" | "<=" | ">" | ">=" | "==" | "!="
    duration    = NUMBER ( "s" | "m" | "h" | "d" | "w" )

FIELD is a name of `REPORTED` in fleet/values.py. NUMBER is like 5, -0.5 or 1e-4, in a duration not negative; a % is
allowed only after that of a `*_utilization`. WORD consists of letters, digits and _, QUOTED is any text in double
quotes; neither may be the word unknown. Spaces are optional; 1h30m is a duration, too. At most MOST_TEXT characters and
MOST_DEPTH nested parentheses.

Conditions use three-valued logic: a test of an unknown value is unknown, and so are `and` and `or` unless their other
side decides. Only `is known` and `is unknown` always have an answer. A nan is known: it is neither equal to, below nor
above any number. An unknown status is None or the word "unknown", so no comparison with it has an answer.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite, isnan
from typing import Any, NamedTuple, TypeAlias

from training_monitor.core.errors import SettingsError, closest
from training_monitor.core.regex import regex
from training_monitor.core.units import parse_duration
from training_monitor.fleet.values import REPORTED, FleetSample

STATUS = "status"
MOST_TEXT, MOST_DEPTH = 1000, 20
_FIELDS = (*REPORTED, STATUS)
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_TOKEN = regex(rf"\s*({_NUMBER}|[^\W\d]\w*|\"[^\"]*\"|[<>=!]=?|\S|\Z)")


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of a field with a number, or of the status with a text."""

    field: str
    operator: str
    value: float | str


@dataclass(frozen=True, slots=True)
class Answer:
    """`field is WORD`; word: known | unknown | nan."""

    field: str
    word: str


@dataclass(frozen=True, slots=True)
class AllOf:
    tests: tuple[Test, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    tests: tuple[Test, ...]


Test: TypeAlias = Comparison | Answer | AllOf | AnyOf


class Condition(NamedTuple):
    """A test that must hold for `duration` seconds without interruption."""

    test: Test
    duration: float = 0.0


class RuleState(NamedTuple):
    """A rule's state for one member: since when its condition holds, when that was last known, and whether it fired."""

    since: float | None = None
    known_at: float | None = None
    fired: bool = False


def advance_rule(when: str, state: RuleState, sample: FleetSample, *, gap: float) -> tuple[RuleState, bool]:
    """Apply one more sample of a member to a rule.

    Args:
        when: the condition of the rule.
        state: the state returned for the sample before; RuleState() at first.
        sample: of the same member as those before.
        gap: seconds. After a longer time without an answer, the time before does not count towards `for`.

    Returns:
        The new state, and whether the rule fires now: once, and again only after its condition was seen to be false. A
        clock that was set back restarts the time and fires nothing.
    """
    condition = parse_condition(when)
    truth, now = judge(condition.test, sample), sample.timestamp
    if truth is None:
        return state, False
    if not truth:
        return RuleState(known_at=now), False
    set_back = state.known_at is not None and now < state.known_at
    watched = state.known_at is not None and 0 <= now - state.known_at <= gap
    since = state.since if watched and state.since is not None else now
    fires = not (state.fired or set_back) and now - since >= condition.duration
    return RuleState(since, now, state.fired or fires), fires


def tested_values(when: str, sample: FleetSample) -> dict[str, float | str]:
    """Return the known values of the fields that a condition tests."""
    values = {field: _value(field, sample) for field in _fields(parse_condition(when).test)}
    return {field: value for field, value in values.items() if value is not None}


def _fields(test: Test) -> Iterator[str]:
    if isinstance(test, (AllOf, AnyOf)):
        for each in test.tests:
            yield from _fields(each)
    else:
        yield test.field


def judge(test: Test, sample: FleetSample) -> bool | None:
    """Return whether a test holds for a sample; None if unknown."""
    if isinstance(test, (AllOf, AnyOf)):
        decides = isinstance(test, AnyOf)
        answers = [judge(each, sample) for each in test.tests]
        return decides if decides in answers else None if None in answers else not decides
    value = _value(test.field, sample)
    if isinstance(test, Answer) and test.word != "nan":
        return (value is not None) == (test.word == "known")
    if value is None:
        return None
    if isinstance(test, Answer):
        return isinstance(value, float) and isnan(value)
    return _OPERATORS[test.operator](value, test.value)


def _value(field: str, sample: FleetSample) -> float | str | None:
    if field == STATUS:
        return None if sample.status == "unknown" else sample.status
    return sample.values.get(field)


@lru_cache(maxsize=1024)
def parse_condition(text: str) -> Condition:
    """Parse a condition by the grammar above.

    Raises:
        SettingsError: it is invalid; with the column, what was found there and what was expected.
    """
    return _Parser(text).condition()


class _Parser:
    """A recursive-descent parser of one condition; each method starts at the current token and consumes its part."""

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > MOST_TEXT:
            raise SettingsError("when", f"{text[:40]}...", f"at most {MOST_TEXT} characters")
        self.tokens = [(found[1], found.start(1) + 1) for found in _TOKEN.finditer(text)]
        self.place, self.depth = 0, 0

    @property
    def token(self) -> str:
        """The current token; empty at the end."""
        return self.tokens[self.place][0]

    def condition(self) -> Condition:
        test, duration = self.any(), 0.0
        if self.accept("for"):
            duration = self.duration()
        elif self.token:
            raise self.wrong("`and`, `or`, `for`, or the end of the condition")
        if self.token:
            raise self.wrong("no more text after `for DURATION`")
        return Condition(test, duration)

    def any(self) -> Test:
        tests = [self.all()]
        while self.accept("or"):
            tests.append(self.all())
        return AnyOf(tuple(tests)) if len(tests) > 1 else tests[0]

    def all(self) -> Test:
        tests = [self.test()]
        while self.accept("and"):
            tests.append(self.test())
        return AllOf(tuple(tests)) if len(tests) > 1 else tests[0]

    def test(self) -> Test:
        if self.token != "(":
            return self.comparison()
        if self.depth == MOST_DEPTH:
            raise self.wrong(f"at most {MOST_DEPTH} nested parentheses")
        self.take()
        self.depth += 1
        test = self.any()
        if not self.accept(")"):
            raise self.wrong("and, or, `)`")
        self.depth -= 1
        return test

    def comparison(self) -> Test:
        if self.token not in _FIELDS:
            raise self.wrong(closest(self.token, _FIELDS))
        field = self.take()
        if self.accept("is"):
            return Answer(field, self.answer(field))
        allowed = ("==", "!=") if field == STATUS else tuple(_OPERATORS)
        if self.token not in allowed:
            raise self.wrong(f"{' '.join(allowed)} or `is`")
        return Comparison(field, self.take(), self.status() if field == STATUS else self.number_of(field))

    def answer(self, field: str) -> str:
        words = ("known", "unknown") if field == STATUS else ("known", "unknown", "nan")
        if self.token not in words:
            raise self.wrong(", ".join(words))
        return self.take()

    def status(self) -> str:
        word = self.token.strip('"')
        if word == "unknown":
            raise self.wrong("a known status (to test for an unknown one, use `status is unknown`)")
        quoted = len(self.token) > 1 and self.token.startswith('"')
        if not word or not (quoted or word.isidentifier()):
            raise self.wrong('a status, as in `status == running` or `status == "running"`')
        self.take()
        return word

    def number_of(self, field: str) -> float:
        number = self.number("a number" if self.token != "nan" else f"a number (for NaN, use `{field} is nan`)")
        if field.endswith("_utilization"):
            self.accept("%")
        return number

    def duration(self) -> float:
        expected = "a duration such as 30s, 10m, 2h, 1d"
        number, _ = self.token, self.number(expected)
        seconds = parse_duration(number.removeprefix("+") + self.token)
        if seconds is None:
            raise self.wrong(expected)
        self.take()
        return seconds

    def number(self, expected: str) -> float:
        if not re.fullmatch(_NUMBER, self.token) or not isfinite(float(self.token)):
            raise self.wrong(expected)
        return float(self.take())

    def accept(self, word: str) -> bool:
        """Consume the word if it is the current token."""
        if self.token != word:
            return False
        self.place += 1
        return True

    def take(self) -> str:
        self.place += 1
        return self.tokens[self.place - 1][0]

    def wrong(self, expected: str) -> SettingsError:
        token, column = self.tokens[self.place]
        found = repr(token[:40]) if token else "the end"
        return SettingsError("when", self.text, f"{expected} at column {column}, but found {found}")
