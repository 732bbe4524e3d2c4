"""Classes of values against those of the standard library, and patterns against compiled ones."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError, field
from functools import cached_property
from typing import Any, ClassVar

import pytest

from training_monitor.core import frozen
from training_monitor.core.regex import regex


@frozen.dataclass(frozen=True, slots=True)
class Sample:
    """A value with every kind of field that the package uses."""

    UNIT: ClassVar[str] = "s"
    step: int
    secret: str = field(default="", repr=False)
    labels: Mapping[str, str] = field(default_factory=dict)
    age: float | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.step < 0:
            raise ValueError(f"step: {self.step}")


@frozen.dataclass(frozen=True, slots=True)
class Longer(Sample):
    more: int = 7


@frozen.dataclass(frozen=True)
class Cached:
    size: int

    @cached_property
    def doubled(self) -> int:
        return self.size * 2


@frozen.dataclass(frozen=True, slots=True)
class Empty:
    pass


def make(decorate: Callable[..., Any], **options: bool) -> Any:
    """Return a class of the same name and fields for either decorator."""

    class Pair:
        first: int
        second: tuple[int, ...] = ()
        hidden: str = field(default="x", repr=False)

    Pair.__annotations__ = {"first": "int", "second": "tuple[int, ...]", "hidden": "str"}
    return decorate(**(options or {"frozen": True, "slots": True}))(Pair)


def make_changeable(decorate: Callable[..., Any], **options: bool) -> Any:
    class Count:
        first: int
        seen: list[int] = field(default_factory=list)
        made: tuple[int, ...] = field(default_factory=lambda: (7,), init=False)
        state: str = field(default="new", init=False, compare=False)

    return decorate(**options)(Count)


@pytest.mark.parametrize("options", [{}, {"slots": True}, {"slots": True, "eq": False}, {"kw_only": True}])
def test_a_class_that_is_not_frozen_answers_as_one_of_the_standard_library(options: dict[str, bool]) -> None:
    ours, theirs = (make_changeable(each, **options) for each in (frozen.dataclass, dataclasses.dataclass))
    one, other = ours(first=1), theirs(first=1)
    for cls, value in ((ours, one), (theirs, other)):
        assert value.seen is not cls(first=1).seen
        assert (value == cls(first=1)) is options.get("eq", True)
        value.first, value.state = 2, "old"
        value.seen.append(3)
        assert value == copy.deepcopy(value) or not options.get("eq", True)
    assert repr(one) == repr(other)
    assert dataclasses.asdict(one) == dataclasses.asdict(other)
    assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
    assert ours.__match_args__ == theirs.__match_args__
    assert (ours.__hash__ is None) is (theirs.__hash__ is None)
    assert hasattr(one, "__dict__") is hasattr(other, "__dict__")
    with pytest.raises(TypeError) as mine:
        ours(first=1, made=())
    with pytest.raises(TypeError) as his:
        theirs(first=1, made=())
    assert str(mine.value) == str(his.value)


def test_a_frozen_class_answers_as_one_of_the_standard_library() -> None:
    ours, theirs = make(frozen.dataclass), make(dataclasses.dataclass)
    for arguments, names in [((1,), {}), ((1, (2,)), {}), ((), {"first": 3, "hidden": "y"})]:
        one, other = ours(*arguments, **names), theirs(*arguments, **names)
        assert repr(one) == repr(other)
        assert dataclasses.asdict(one) == dataclasses.asdict(other)
        assert one == ours(*arguments, **names) != ours(99)
        assert hash(one) == hash(other)
        assert one != other  # classes differ
    assert inspect.signature(ours) == inspect.signature(theirs)
    assert ours.__match_args__ == theirs.__match_args__
    for wrong in [(), (1, 2, 3, 4)]:
        with pytest.raises(TypeError) as mine:
            ours(*wrong)
        with pytest.raises(TypeError) as his:
            theirs(*wrong)
        assert str(mine.value) == str(his.value)


def test_the_signature_is_there_before_the_first_value() -> None:
    signature = inspect.signature(make(frozen.dataclass))
    assert list(signature.parameters) == ["first", "second", "hidden"]


def test_the_signature_tells_made_defaults_and_named_arguments() -> None:
    @frozen.dataclass(frozen=True, kw_only=True)
    class Named:
        size: int
        labels: Mapping[str, str] = field(default_factory=dict)

    assert str(inspect.signature(Named)) == "(*, size: 'int', labels: 'Mapping[str, str]' = <factory>) -> None"
    assert Named(size=1) == Named(size=1, labels={})
    with pytest.raises(TypeError, match="1 positional argument but 2 were given"):
        Named(1)  # type: ignore[misc]


def test_an_interrupted_script_that_makes_its_first_value_at_its_end_ends_by_the_interrupt() -> None:
    script = """
        import atexit
        from training_monitor.core.frozen import dataclass
        @dataclass(frozen=True)
        class Last:
            size: int = 1
        atexit.register(Last)
        raise KeyboardInterrupt
    """
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, check=False)
    assert ended.returncode == -signal.SIGINT


def test_a_frozen_value_cannot_be_changed() -> None:
    for value in (Sample(1), Cached(1), Longer(1)):
        for name in ("step", "size", "new"):
            with pytest.raises(FrozenInstanceError):
                setattr(value, name, 2)
            with pytest.raises(FrozenInstanceError):
                delattr(value, name)
    assert Cached(4).doubled == 8


def test_defaults_checks_and_excluded_fields_hold() -> None:
    assert repr(Sample(1, "word")) == "Sample(step=1, labels={}, age=None)"
    assert Sample(1, age=3.0) == Sample(1, age=4.0) != Sample(2)
    assert Sample(1).labels is not Sample(1).labels
    assert Longer(1, more=2) == Longer(1, more=2) != Sample(1)
    assert dataclasses.replace(Longer(1), step=5) == Longer(5)
    assert Empty() == Empty()
    assert hash(Empty()) == hash(Empty())
    with pytest.raises(ValueError, match="step: -1"):
        Sample(-1)
    with pytest.raises(ValueError, match="step: -1"):
        dataclasses.replace(Sample(1), step=-1)


def test_a_frozen_value_can_be_copied_and_pickled() -> None:
    for value in (Sample(1, "word", {"a": "b"}, 2.0), Longer(1), Cached(3), Empty()):
        assert copy.copy(value) == copy.deepcopy(value) == pickle.loads(pickle.dumps(value)) == value


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
