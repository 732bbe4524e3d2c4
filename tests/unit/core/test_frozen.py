"""Classes of values against those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import signal
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import FrozenInstanceError
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import pytest

from training_monitor.core import frozen
from training_monitor.core.frozen import field


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


class Point(NamedTuple):
    x: int
    labels: dict[str, list[int]]


def make(library: Any, **options: bool) -> Any:
    """Return a class of the same name and fields, of either library."""

    class Pair:
        first: int
        second: tuple[int, ...] = ()
        hidden: str = library.field(default="x", repr=False)
        kept: Any = library.field(default_factory=list, compare=False)
        made: tuple[int, ...] = library.field(default_factory=lambda: (7,), init=False)
        KIND: ClassVar[str] = "pair"

    return library.dataclass(**options)(Pair)


LIBRARIES = (frozen, dataclasses)
OPTIONS: list[dict[str, bool]] = [
    {"frozen": True, "slots": True},
    {"frozen": True},
    {"slots": True},
    {},
    {"eq": False, "slots": True},
    {"frozen": True, "kw_only": True},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_a_class_answers_as_one_of_the_standard_library(options: dict[str, bool]) -> None:
    ours, theirs = (make(library, **options) for library in LIBRARIES)
    assert ours.__match_args__ == theirs.__match_args__
    assert ours.__dataclass_params__.frozen is theirs.__dataclass_params__.frozen
    assert (ours.__slots__ == theirs.__slots__) if "slots" in options else not hasattr(ours, "__slots__")
    assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
    assert (ours.__hash__ is None) is (theirs.__hash__ is None)
    for told, other in zip(dataclasses.fields(ours), dataclasses.fields(theirs), strict=True):
        for name in ("name", "type", "default", "init", "repr", "compare", "kw_only"):
            assert getattr(told, name) == getattr(other, name)
    one, other = (cls(first=1, kept=[Point(2, {"a": [3]}), (4,), {5}, {"six": cls(first=6)}]) for cls in (ours, theirs))
    assert repr(one) == repr(other)
    assert frozen.asdict(one) == dataclasses.asdict(one) == dataclasses.asdict(other)
    assert frozen.asdict(one)["kept"][0].labels["a"] is not one.kept[0].labels["a"]
    assert (one == ours(first=1)) is (other == theirs(first=1))
    assert one != 1
    assert one.made == other.made
    changed, expected = dataclasses.replace(one, second=(2,)), dataclasses.replace(other, second=(2,))
    assert frozen.asdict(frozen.replace(one, second=(2,))) == frozen.asdict(changed) == dataclasses.asdict(expected)
    assert frozen.is_dataclass(ours) and dataclasses.is_dataclass(one) and not frozen.is_dataclass(Point)
    for value in (one, other):
        if options.get("frozen"):
            with pytest.raises(FrozenInstanceError, match="cannot assign to field 'first'"):
                value.first = 2
        else:
            value.first = 2
            assert value.first == 2


def test_every_value_of_a_class_is_made_alike() -> None:
    ours, theirs = (make(library, slots=True) for library in LIBRARIES)
    kept: list[object] = []
    for number in range(3):
        one, other = (cls(number, hidden="y", kept=kept) for cls in (ours, theirs))
        assert repr(one) == repr(other) and one == ours(number, (), "y", kept) and one.kept is kept
        assert ours(number).kept is not ours(number).kept
        for words, names in [((), {}), ((1, 2, 3, 4, 5), {}), ((1,), {"first": 2}), ((1,), {"made": ()})]:
            with pytest.raises(TypeError) as mine:
                ours(*words, **names)
            with pytest.raises(TypeError) as his:
                theirs(*words, **names)
            assert str(mine.value) == str(his.value)


def test_classes_and_values_are_made_without_the_standard_library_s_module() -> None:
    script = """
        import sys
        from training_monitor.core.frozen import asdict, dataclass, fields, replace
        @dataclass(frozen=True, slots=True)
        class Value:
            size: int = 1
        assert asdict(replace(Value(), size=2)) == {"size": 2} and fields(Value)[0].name == "size"
        print(*{"dataclasses", "inspect"} & set(sys.modules))
    """
    done = subprocess.run([sys.executable, "-S", "-c", textwrap.dedent(script)], capture_output=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, b"", b"")


def test_a_frozen_class_answers_as_one_of_the_standard_library() -> None:
    ours, theirs = (make(library, frozen=True, slots=True) for library in LIBRARIES)
    for arguments, names in [((1,), {}), ((1, (2,)), {}), ((), {"first": 3, "hidden": "y"})]:
        one, other = ours(*arguments, **names), theirs(*arguments, **names)
        assert repr(one) == repr(other)
        assert dataclasses.asdict(one) == dataclasses.asdict(other)
        assert one == ours(*arguments, **names) != ours(99)
        assert hash(one) == hash(other)
        assert one != other  # classes differ
    for wrong in [(), (1, 2, 3, 4, 5)]:
        with pytest.raises(TypeError) as mine:
            ours(*wrong)
        with pytest.raises(TypeError) as his:
            theirs(*wrong)
        assert str(mine.value) == str(his.value)


def test_the_signature_is_there_before_the_first_value() -> None:
    signature = inspect.signature(make(frozen, frozen=True))
    assert list(signature.parameters) == ["first", "second", "hidden", "kept"]


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
