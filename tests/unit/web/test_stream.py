from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.conftest import wait_until
from training_monitor.web import stream
from training_monitor.web.stream import Feed, State


class Source:
    """States that a test sets."""

    def __init__(self, feed_of: type[Feed] = Feed) -> None:
        self.state, self.made = state(), 0
        self.feed = feed_of(self.make)

    def make(self) -> State:
        self.made += 1
        if self.state.head == "fail":
            raise ValueError("planted")
        return self.state

    def set(self, new: State) -> None:
        before, self.state = self.made, new
        self.feed.note_change()
        assert wait_until(lambda: self.made > before)


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(stream, "LEAST_PAUSE", 0.0)
    monkeypatch.setattr(stream, "SHARE", 0.0)
    found = Source()
    found.feed.start()
    yield found
    found.feed.close()


def state(head: str = "{}", alerts: str = "[]", **rows: int) -> State:
    return State(head, alerts, {key: json.dumps({"id": key, "n": value}) for key, value in (rows or {"a": 1}).items()})


def read(event: bytes) -> tuple[str, dict[str, Any]]:
    fields = dict(line.split(": ", 1) for line in event.decode().strip().split("\n"))
    return fields.get("id", ""), json.loads(fields["data"])


def test_first_comes_the_whole_and_then_what_changed(source: Source) -> None:
    number, event = source.feed.wait(0, 60)
    assert read(event)[1]["changes"] == {
        "whole": True, "rows": [{"id": "a", "n": 1}], "head": {}, "alerts": [], "order": ["a"],
    }  # fmt: skip
    source.set(state(a=1, b=2))
    number, event = source.feed.wait(number, 60)
    assert read(event)[1]["changes"] == {"whole": False, "rows": [{"id": "b", "n": 2}], "order": ["a", "b"]}
    source.set(state(a=3, b=2))
    number, event = source.feed.wait(number, 60)
    assert read(event)[1]["changes"] == {"whole": False, "rows": [{"id": "a", "n": 3}]}


def test_who_is_slow_gets_the_newest_state_at_once(source: Source) -> None:
    number, _ = source.feed.wait(0, 60)
    for value in range(2, 6):
        source.set(state(a=value, b=1))
        source.feed.wait(number + value - 2, 60)
    _, event = source.feed.wait(number, 60)
    assert read(event)[1]["changes"]["rows"] == [{"id": "a", "n": 5}, {"id": "b", "n": 1}]


def test_who_comes_back_goes_on_and_a_message_is_encoded_once(source: Source) -> None:
    assert source.feed.wait(0, 60)[1] is source.feed.wait(0, 60)[1]
    number, event = source.feed.wait(0, 60)
    name, _ = read(event)
    assert source.feed.number_of(name) == number
    for other in (None, "", name + "9", name.partition("-")[0], "x" + name, "-1", "\u0661-\u0661"):
        assert source.feed.number_of(other) == 0, other


def test_without_news_comes_a_beat(source: Source) -> None:
    number, _ = source.feed.wait(0, 60)
    source.set(state())
    again, event = source.feed.wait(number, 0.0)
    name, data = read(event)
    assert (again, name, data["changes"]) == (number, "", None) and data["times"]["made_at"] <= data["times"]["now"]


def test_a_state_that_cannot_be_made_leaves_the_last_one_and_its_time(source: Source) -> None:
    number, event = source.feed.wait(0, 60)
    source.set(state("fail"))
    again, beat = source.feed.wait(number, 0.0)
    assert again == number
    source.set(state(a=7))
    assert source.feed.wait(number, 60)[0] == number + 1
