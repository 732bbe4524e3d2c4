"""Read the settings file's table `fleet`, and evaluate the conditions of the user's alert rules. Pure.

[fleet]
interval = 10
log_paths = ["/workspace/output/*/training.log"]
[fleet.thresholds]
low_gpu = 10
high_loss = false                     # never
[fleet.groups]
nightly = ["vast://1234", "ssh://gpu1#process:train", { target = "k8s://ns/pod", job = "raysubmit_x" }]
[[fleet.alerts]]
name = "idle"
when = "gpu_utilization < 5 for 10m"

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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from math import isfinite, isnan
from typing import Annotated, Any, TypeAlias

from training_monitor.core.errors import SettingsError, closest
from training_monitor.core.fields import PublicValue
from training_monitor.core.regex import regex
from training_monitor.core.settings_table import (
    MISFIT,
    Example,
    Kind,
    Place,
    check_fields,
    choice,
    items,
    named,
    number,
    read_table,
    seconds,
    table,
    text,
)
from training_monitor.core.units import parse_duration
from training_monitor.core.values import PRIORITIES
from training_monitor.fleet.metrics import Thresholds
from training_monitor.fleet.values import JOB_ID, LOG_PATHS, REPORTED, FleetSample, MemberSpec
from training_monitor.verdict.limits import OUTAGE_AFTER, FromZero

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
DEFAULT_LOG_PATHS = (
    "/workspace/output/*/training.log",
    "/workspace/training_monitor/*/log",
    "~/.training_monitor/jobs/*/log",
    "/workspace/*.log",
    "/tmp/ray/session_latest/logs/job-driver-*.log",  # on the head pod of a Ray cluster
)
_MEMBER = "TARGET, TARGET#JOB, TARGET#LOG, or a table of target, job, log_paths and name"
_GROUPS = "a table: NAME = [TARGET, ...]"
_ALERTS = "tables, each under [[fleet.alerts]]"
CheckTarget = Callable[[str], object]


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


@dataclass(frozen=True, slots=True)
class Condition:
    """A test that must hold for `duration` seconds without interruption."""

    test: Test
    duration: float = 0.0


_CONDITION = "gpu_utilization < 5 for 10m"


@dataclass(frozen=True, slots=True, repr=False)
class AlertRule(PublicValue):
    """An alert that is raised when its condition holds.

    Attributes:
        name: of the alert, different from those of the other rules.
        when: the condition, see docs/fleet.md.
        priority: of its notice, low | normal | high | urgent.
        message: the text of its notice; None: the condition.

    Raises:
        SettingsError: the name is empty, or the priority or the condition is invalid.
    """

    name: Annotated[str, Kind("a text on one line", _read_name), Example("idle")]
    when: Annotated[str, Kind(f"a condition such as `{_CONDITION}`", _read_when), Example(_CONDITION)]
    priority: Annotated[str, choice(*PRIORITIES)] = "normal"
    message: Annotated[str, text("a text"), Example("The GPUs are idle")] | None = None

    def __post_init__(self) -> None:
        check_fields(self)


def _read_name(value: Any, place: Place) -> Any:
    return value if isinstance(value, str) and value.strip() and value.isprintable() else MISFIT


def _read_when(value: Any, place: Place) -> Any:
    if not isinstance(value, str):
        return MISFIT
    parse_condition(value)
    return value


@dataclass(frozen=True, slots=True)
class RuleState:
    """A rule's state for one member: since when its condition holds, when that was last known, and whether it fired."""

    since: float | None = None
    known_at: float | None = None
    fired: bool = False


def advance_rule(rule: AlertRule, state: RuleState, sample: FleetSample, *, gap: float) -> tuple[RuleState, bool]:
    """Apply one more sample of a member to a rule.

    Args:
        rule: the rule.
        state: the state returned for the sample before; RuleState() at first.
        sample: of the same member as those before.
        gap: seconds. After a longer time without an answer, the time before does not count towards `for`.

    Returns:
        The new state, and whether the rule fires now: once, and again only after its condition was seen to be false. A
        clock that was set back restarts the time and fires nothing.
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


def tested_values(rule: AlertRule, sample: FleetSample) -> dict[str, float | str]:
    """Return the known values of the fields that a rule's condition tests."""
    values = {field: _value(field, sample) for field in _fields(parse_condition(rule.when).test)}
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


# ---------------------------------------------------------------- reading a condition


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
        return SettingsError("when", self.text, f"{expected} at column {column}, where {found} is")


@dataclass(frozen=True, slots=True, repr=False)
class FleetConfig(PublicValue):
    """Settings of a fleet; times in seconds, money in dollars.

    Attributes:
        interval: between two refreshes.
        log_paths: shell patterns on the targets; the newest file that matches one of them is a training's log.
        thresholds: see `Thresholds`.
        groups: targets to watch together, by group name.
        rules: the user's alert rules.
        budget: limit for the total cost of the shown members; None: no limit.
        warn_hours_left: a notice is sent when the account's credit lasts no longer than this; 0: never.
        keep_days: of history.
        outage_after: a notice is sent when a member, the listing or the state folder is unavailable for this long.

    Raises:
        SettingsError: a value is invalid.
    """

    interval: Annotated[float, seconds(least=1)] = 10.0
    log_paths: Annotated[tuple[str, ...], LOG_PATHS] = DEFAULT_LOG_PATHS
    thresholds: Annotated[Thresholds, table(Thresholds)] = Thresholds()
    groups: Annotated[Mapping[str, tuple[MemberSpec, ...]], _groups()] = field(default_factory=dict)
    rules: Annotated[tuple[AlertRule, ...], Kind(_ALERTS, _read_rules), "alerts"] = ()
    budget: Annotated[float, number("dollars, above 0", above=0), Example(100)] | None = None
    warn_hours_left: Annotated[float, number("hours, from 0", least=0)] = 12.0
    keep_days: Annotated[float, number("days, above 0", above=0, most=36500)] = 31.0
    outage_after: FromZero = OUTAGE_AFTER

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def fresh_seconds(self) -> float:
        """The longest gap between two looks that counts as watched without interruption."""
        return 3.0 * self.interval + 30.0

    def specs_of(self, target: str) -> tuple[MemberSpec, ...]:
        """Return the members of a target in the groups; its own name if it is in none."""
        found = tuple(each for group in self.groups.values() for each in group if each.target == target)
        return found or (MemberSpec(target),)


def read_fleet_config(table: object, place: Place, check_target: CheckTarget = lambda target: None) -> FleetConfig:
    """Read a configuration from the settings file's table.

    Args:
        table: the parsed table; None if the file has none.
        place: the table's position in the file; collects the errors.
        check_target: called with every target of the groups; raises SettingsError for an invalid one.

    Returns:
        MISFIT where anything is invalid.
    """
    config: FleetConfig = read_table(FleetConfig, table, place, {"groups": _groups(check_target)})
    return config


def parse_member(text: str, *, groups: tuple[str, ...] = ()) -> MemberSpec:
    """Parse `TARGET`, `TARGET#JOB` or `TARGET#LOG`.

    Args:
        text: JOB is a Ray submission id or process:NAME; LOG is a path or a shell pattern that begins with / or ~/.
        groups: the groups of the member.

    Raises:
        SettingsError: the target is missing, or the part after the # is neither. The target itself is not checked.
    """
    target, mark, which = text.partition("#")
    if not target.strip() or "\0" in target:
        raise SettingsError("target", text, _MEMBER)
    if which.startswith(("/", "~/")) and "\0" not in which:
        return MemberSpec(target, log_paths=(which,), groups=groups)
    if mark and JOB_ID.read(which, Place()) is MISFIT:
        raise SettingsError("target", text, "after the #: a submission id, process:NAME, or a path from / or ~/ on")
    return MemberSpec(target, which or None, groups=groups)


def _groups(check_target: CheckTarget = lambda target: None) -> Kind:
    return named(lambda name: Kind(f"a list, each of it {_MEMBER}", partial(_read_group, name, check_target)), _GROUPS)


def _read_group(name: str, check_target: CheckTarget, value: Any, place: Place) -> Any:
    plain = name == name.strip() and name.isprintable() and not name.startswith("-")
    if not name or not plain or name == "local" or "://" in name or "#" in name:
        return place.note(name, "a name that is no target: a word such as nightly")
    if not isinstance(value, (list, tuple)) or not value:
        return MISFIT
    specs: dict[str, MemberSpec] = {}
    for index, each in enumerate(value):
        spec = (place / index).read(Kind(_MEMBER, partial(_read_spec, name, check_target)), each)
        if spec is not MISFIT and specs.setdefault(spec.key, spec) is not spec:
            (place / index).note(each, "each only once in a group")
    return tuple(specs.values())


def _read_spec(group: str, check_target: CheckTarget, value: Any, place: Place) -> Any:
    def read_target(target: Any, at: Place) -> Any:
        if not isinstance(target, str) or not target.strip() or "\0" in target:
            return MISFIT
        if "#" in target:
            return at.note(target, "a target alone; its job and log_paths have keys of their own")
        check_target(target)
        return target

    if isinstance(value, str):
        spec = parse_member(value, groups=(group,))
        check_target(spec.target)
        return spec
    if not isinstance(value, (Mapping, MemberSpec)):
        return MISFIT
    kinds = {"target": Kind("a text that is not empty", read_target)}
    return read_table(MemberSpec, value, place, kinds, groups=(group,))


def _read_rules(value: Any, place: Place) -> Any:
    rules = items(table(AlertRule), least=0).read(value, place)
    tables = value if isinstance(value, list) else ()
    names = [each.get("name", index) if isinstance(each, Mapping) else index for index, each in enumerate(tables)]
    for index, name in enumerate(names):
        if name in names[:index]:
            rules = (place / index / "name").note(name, "a name of its own")
    return rules
