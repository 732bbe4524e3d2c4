"""Settings tables: one description of a key for reading, for finding all faults, and for values made in Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from importlib import import_module
from typing import Annotated, Any

import pytest

from training_monitor.core.errors import SettingsError
from training_monitor.core.settings_table import (
    MISFIT,
    SWITCH,
    Fault,
    Kind,
    Place,
    check_fields,
    choice,
    format_path,
    items,
    named,
    number,
    read_table,
    seconds,
    settings_of,
    table,
    text,
    whole,
)
from training_monitor.notify.channels import list_homes


@dataclass(frozen=True, slots=True)
class Inner:
    share: Annotated[float, number("a fraction from 0 to 1", least=0, most=1)] = 0.5


@dataclass(frozen=True, slots=True)
class Outer:
    name: Annotated[str, text("a name", "[a-z]+")]
    sender: Annotated[str, text("an address"), "from"] = "me"
    token: Annotated[str, text("a token", "[0-9]+", is_secret=True)] | None = None
    interval: Annotated[float, seconds(above=0)] = 60.0
    limit: Annotated[float, seconds(least=1)] | None = None
    count: Annotated[int, whole("1 to 9", least=1, most=9)] = 1
    colour: Annotated[str, choice("red", "blue")] = "red"
    paths: Annotated[tuple[str, ...], items(text("a path"))] = ("/",)
    inner: Annotated[Inner, table(Inner)] = Inner()
    groups: Annotated[Mapping[str, int], named(lambda name: whole("a number", least=0), "a table of groups")] = field(
        default_factory=dict
    )
    is_on: Annotated[bool, SWITCH] = True
    own: int = 0

    def __post_init__(self) -> None:
        check_fields(self)
        if self.limit and self.limit < self.interval:
            raise SettingsError("limit", self.limit, "at least the interval")


def read(value: object, **others: Any) -> tuple[Any, list[Fault]]:
    place = Place("top")
    return read_table(Outer, value, place, **others), place.faults


def test_all_kinds_are_read_and_none_is_not_given() -> None:
    given: dict[str, Any] = {"name": "x", "from": "you", "token": "123", "interval": "1m30s", "limit": 7200, "count": 9}
    given |= {"colour": "blue", "paths": ["/a", "/b"], "inner": {"share": 1}, "groups": {"a": 0}, "is_on": False}
    found, faults = read({**given, "limit": None}, own=5)
    assert faults == []
    expected = Outer("x", "you", "123", 90.0, None, 9, "blue", ("/a", "/b"), Inner(1), {"a": 0}, False, 5)
    assert found == expected and read(found)[0] is found
    assert read(given)[0].limit == 7200


def test_every_fault_is_noted_with_its_path() -> None:
    given: dict[str, Any] = {"nam": "x", "own": 1, "sender": "x", "from": "", "token": "abc", "interval": "0s"}
    given |= {"limit": float("nan"), "count": True, "colour": "green", "paths": ["/a", 5, ""], "is_on": 1}
    found, faults = read({**given, "inner": {"share": 2, "x": 1}, "groups": {"a": -1, "b": 1, "c d": "x"}})
    assert found is MISFIT
    keys = "one of name, from, token, interval, limit, count, colour, paths, inner, groups, is_on"
    assert {format_path(each.path): (each.value, each.expected) for each in faults} == {
        "top.nam": ("nam", "name"),
        "top.own": ("own", keys),
        "top.sender": ("sender", keys),
        "top.from": ("", "an address"),
        "top.token": ("***", "a token"),
        "top.interval": ("0s", "seconds (above 0), or a duration such as 15m"),
        "top.limit": (faults[6].value, "seconds (at least 1), or a duration such as 15m"),
        "top.count": (True, "1 to 9"),
        "top.colour": ("green", "red, blue"),
        "top.paths[1]": (5, "a path"),
        "top.paths[2]": ("", "a path"),
        "top.inner.x": ("x", "one of share"),
        "top.inner.share": (2, "a fraction from 0 to 1"),
        "top.groups.a": (-1, "a number"),
        'top.groups."c d"': ("x", "a number"),
        "top.is_on": (1, "true or false"),
        "top": (faults[-1].value, "also name = ..."),
    }


def test_values_that_do_not_fit_are_faults_and_the_first_is_raised_with_its_file() -> None:
    for value in (5, "x", None, [], True):
        found, [fault] = read(value)
        assert found is MISFIT and fault.path == ("top",) and fault.expected.startswith("a table of name, from,")
    _, [fault] = read({"name": "x", "limit": 5})
    assert fault == Fault(("top", "limit"), 5, "at least the interval")
    place = Place("top")
    place.expect_none()
    read_table(Outer, {"name": "X", "count": 0}, place)
    with pytest.raises(SettingsError, match="^f.toml: top.name: got 'X', expected a name$"):
        place.expect_none("f.toml")


@pytest.mark.parametrize(
    ("field", "value"),
    [("name", "X"), ("sender", ""), ("interval", 0), ("interval", None), ("paths", ("/a", "")), ("inner", {"share": 5})]
    + [("limit", 5)],
)
def test_a_value_made_in_python_is_held_to_the_same_rules(field: str, value: Any) -> None:
    with pytest.raises(SettingsError) as raised:
        Outer(**{"name": "x", field: value})
    assert raised.value.key == {"sender": "from"}.get(field, field)


def test_a_value_made_in_python_takes_its_final_form_and_a_key_knows_its_field() -> None:
    made: Any = Outer("x", interval="15m", paths=["/a"])  # type: ignore[arg-type]
    assert (made.interval, made.paths) == (900, ("/a",))
    settings = settings_of(Outer)
    assert settings["from"].field == "sender" and "own" not in settings
    assert [key for key in settings if settings[key].is_required] == ["name"]
    assert [key for key in settings if settings[key].may_be_none] == ["token", "limit"]


def test_a_kind_may_say_more_than_its_usual_words_and_a_secret_stays_one() -> None:
    def refuse(value: object, place: Place) -> Any:
        raise SettingsError("", value, "something else")

    place = Place("a")
    assert place.read(Kind("a thing", refuse), 1) is MISFIT is place.read(Kind("a thing", refuse, is_secret=True), 2)
    assert [(each.value, each.expected) for each in place.faults] == [(1, "something else"), ("***", "something else")]


def test_every_default_is_valid_in_its_final_form() -> None:
    names = ["verdict.limits", "verdict.restart", *list_homes(), "notify.people", "logs.patterns"]
    names += ["vast.training_request", "vast.offers", "rent.config"]
    made = (each for name in names for each in vars(import_module(f"training_monitor.{name}")).values())
    kinds = {kind for kind in made if hasattr(kind, "__post_init__") and isinstance(kind, type)}
    assert len(kinds) > 8
    for kind in kinds:
        settings = settings_of(kind)
        for each in fields(kind):
            [setting] = [setting for setting in settings.values() if setting.field == each.name] or [None]
            if setting and each.default is not MISSING and not (each.default is None and setting.may_be_none):
                place = Place()
                assert place.read(setting.kind, each.default) is each.default and not place.faults
