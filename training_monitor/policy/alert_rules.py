"""Alerts of the user's own: conditions such as `gpu_utilization < 5 for 10m`. Pure.

    condition   = any [ "for" duration ]
    any         = all { "or" all }
    all         = test { "and" test }
    test        = "(" any ")" | number-test | status-test
    number-test = FIELD ( operator NUMBER [ "%" ] | "is" ( "known" | "unknown" | "nan" ) )
    status-test = "status" ( ( "==" | "!=" ) ( WORD | QUOTED ) | "is" ( "known" | "unknown" ) )
    operator    = "<" | "<=" | ">" | ">=" | "==" | "!="
    duration    = NUMBER ( "s" | "m" | "h" | "d" )

FIELD is a name of `fleet_values.REPORTED`. NUMBER is like 5, -0.5 or 1e-4, and in a duration not below 0; a % stands
only after that of a `*_utilization`. WORD is of letters, digits and _, QUOTED of any characters between two "; neither
is the word unknown. Blanks may be left out. At most MOST_TEXT characters, and MOST_DEPTH parentheses in one another.

What is not known is neither true nor false: a test of it is unknown, and so are `and` and `or` unless their other side
decides. Only `is known` and `is unknown` always have an answer. A nan is known: it is not equal to any number, and
neither below nor above one. A status that is not known is None or the word "unknown", so no test compares with that.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite, isnan
from typing import Any, TypeAlias

from training_monitor.errors import SettingsError, closest
from training_monitor.policy.fleet_values import REPORTED, FleetSample
from training_monitor.watching import PRIORITIES

STATUS = "status"
MOST_TEXT, MOST_DEPTH = 1000, 20
_FIELDS = (*REPORTED, STATUS)
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_TOKEN = re.compile(rf"\s*({_NUMBER}|[^\W\d]\w*|\"[^\"]*\"|[<>=!]=?|\S|\Z)")


@dataclass(frozen=True, slots=True)
class Comparison:
    """A field beside a number, or the status beside a text."""

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


@dataclass(frozen=True, slots=True)
class Condition:
    """What has to hold, and for how many seconds in a row."""

    test: Test
    duration: float = 0.0


@dataclass(frozen=True, slots=True)
class AlertRule:
    """An alert that is raised when its condition holds. priority: low | normal | high | urgent.

    Raises:
        SettingsError: there is no name, no such priority, or the condition is none.
    """

    name: str
    when: str
    priority: str = "normal"
    message: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip() or not self.name.isprintable():
            raise SettingsError("name", self.name, "a text on one line")
        if not isinstance(self.when, str):
            raise SettingsError("when", self.when, "a condition such as `gpu_utilization < 5 for 10m`")
        parse_condition(self.when)
        if self.priority not in PRIORITIES:
            raise SettingsError("priority", self.priority, ", ".join(PRIORITIES))
        if self.message is not None and (not isinstance(self.message, str) or not self.message.strip()):
            raise SettingsError("message", self.message, "a text")


@dataclass(frozen=True, slots=True)
class RuleState:
    """Since when a rule's condition holds for one member, when that was last known, and whether it was told."""

    since: float | None = None
    known_at: float | None = None
    fired: bool = False


def advance_rule(rule: AlertRule, state: RuleState, sample: FleetSample, *, gap: float) -> tuple[RuleState, bool]:
    """Take one more sample of a member to a rule.

    Args:
        rule: whose condition is judged.
        state: what came of the sample before; RuleState() at the first.
        sample: what was seen; of the same member as those before.
        gap: seconds. Where nothing was known for longer, the time before does not count towards `for`.

    Returns:
        The new state, and whether the rule is to be told now: once, and again only after its condition was seen not to
        hold. A clock that was set back begins the time anew and tells nothing.
    """
    condition = parse_condition(rule.when)
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


def judge(test: Test, sample: FleetSample) -> bool | None:
    """Whether a test holds for a sample; None: nobody knows."""
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


# ---------------------------------------------------------------- reading a condition


@lru_cache(maxsize=1024)
def parse_condition(text: str) -> Condition:
    """Read a condition by the grammar above.

    Raises:
        SettingsError: it is none; with the column, what was found there and what was expected.
    """
    return _Parser(text).condition()


class _Parser:
    """One condition, read from left to right; every method begins at the current token and ends behind its part."""

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
            raise self.wrong("and, or, for, or the end")
        if self.token:
            raise self.wrong("nothing more: `for DURATION` is the end")
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
            raise self.wrong(f"at most {MOST_DEPTH} parentheses in one another")
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
            raise self.wrong("another status; `status is unknown` asks for that")
        quoted = len(self.token) > 1 and self.token.startswith('"')
        if not word or not (quoted or word.isidentifier()):
            raise self.wrong('a status, as in `status == running` or `status == "running"`')
        self.take()
        return word

    def number_of(self, field: str) -> float:
        number = self.number("a number" if self.token != "nan" else f"a number; `{field} is nan` asks for nan")
        if field.endswith("_utilization"):
            self.accept("%")
        return number

    def duration(self) -> float:
        expected = "a duration such as 30s, 10m, 2h, 1d"
        number = self.number(expected)
        if self.token not in _UNITS or number < 0:
            raise self.wrong(expected)
        return number * _UNITS[self.take()]

    def number(self, expected: str) -> float:
        if not re.fullmatch(_NUMBER, self.token) or not isfinite(float(self.token)):
            raise self.wrong(expected)
        return float(self.take())

    def accept(self, word: str) -> bool:
        """Go behind the word if it is the current token."""
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
        return SettingsError("when", self.text, f"{expected} at column {column}, where {found} is")
