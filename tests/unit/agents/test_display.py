"""What `show` makes of a value: HTML for a notebook, with charts of histories, and text for a terminal."""

from __future__ import annotations

import random
import re
import xml.etree.ElementTree as ElementTree
from math import inf, nan
from pathlib import Path

import pytest

from training_monitor import show
from training_monitor.agents.notebook import MOST_CHARTED, Shown
from training_monitor.core.panel_html import STYLE
from training_monitor.core.store import Store
from training_monitor.core.values import Observation, Verdict
from training_monitor.fleet.history import History
from training_monitor.fleet.mock import MockFleet
from training_monitor.fleet.values import FleetSample

NOW = 1_770_000_000.0
SVG = "{http://www.w3.org/2000/svg}"
LOSSES = [4.0, 3.0, None, None, 2.0, nan, 1.5]
SAMPLES = [FleetSample(NOW + 60 * at, {"loss": loss, "gpu_utilization": 90.0}) for at, loss in enumerate(LOSSES)]


def body_of(value: Shown) -> ElementTree.Element:
    return ElementTree.fromstring(value._repr_html_().removeprefix(STYLE))


def charts_of(value: Shown) -> dict[str, ElementTree.Element]:
    """The charts by their titles."""
    found = {figure.findtext("figcaption") or "": figure.find(f"{SVG}svg") for figure in body_of(value).iter("figure")}
    return {title: svg for title, svg in found.items() if svg is not None}


def lines_of(svg: ElementTree.Element) -> int:
    return sum(each.get("class") == "line" for each in svg.iter(f"{SVG}path"))


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(Store(str(tmp_path)))


def test_samples_are_charts_and_in_a_terminal_lines_of_blocks() -> None:
    charts = charts_of(show(SAMPLES))
    assert list(charts) == ["Loss", "GPU (%)"], "of what is known only"
    assert lines_of(charts["Loss"]) == 3 and lines_of(charts["GPU (%)"]) == 1
    assert "from 4.000" in charts["Loss"].get("aria-label", "")
    assert any(each.get("class") == "odd" for each in charts["Loss"].iter(f"{SVG}path"))
    text = f"{show(SAMPLES)}"
    assert text.splitlines()[0] == "7 samples: of 6m"
    assert re.search(r"^[▁-█! ]{40}  Loss: from 4.000, to 1.500, between 1.500 and 4.000$", text, re.MULTILINE)
    assert "<" not in text and len(text.splitlines()) == 3
    looks = [Observation(NOW + at, step=at, loss=2.0 / (at + 1), steps_per_second=1.0) for at in range(9)]
    assert list(charts_of(show(looks[::-1]))) == ["Loss", "Speed (steps/s)"]
    assert charts_of(show([Observation(NOW, None)])) == {}


def test_a_history_shows_its_members_and_charts_of_those_seen_last(history: History) -> None:
    names = [f"ssh://host-{number}" for number in range(MOST_CHARTED + 2)]
    for sample in SAMPLES:
        history.add({name: sample for name in names})
    history.add({"<b>last": FleetSample(NOW + 9000, {"loss": 1.0})})
    shown = show(history)
    assert "History: 7 HistoryMembers" in f"{shown}"
    titles = list(charts_of(shown))
    assert titles[0] == "<b>last Loss" and len(titles) == 1 + 2 * (MOST_CHARTED - 1)
    assert "ssh://host-5" in history._repr_html_() and "&lt;b&gt;last" in history._repr_html_()


def test_a_history_that_cannot_be_read_says_so_where_it_is_displayed(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"no database" * 1000)
    (tmp_path / "file").write_text("")
    html = History(open_store=lambda: Store(str(tmp_path / "file" / "below")))._repr_html_()
    assert "? unknown" in html and "Traceback" not in html


def test_an_empty_history_is_no_error(history: History) -> None:
    assert charts_of(show(history)) == {} and charts_of(show([])) == {}


def test_a_fleet_is_its_rows() -> None:
    fleet = MockFleet(count=3)
    fleet.ask_all()
    assert "llama-00" in f"{show(fleet)}" and "llama-00" in fleet._repr_html_()
    assert f"{show(fleet)}".count("llama-00") == 1


def test_any_other_value_is_what_it_shows_of_itself() -> None:
    verdict = Verdict("stalled", "failed", "no step for 12m")
    assert show(verdict)._repr_html_() == verdict._repr_html_()  # type: ignore[attr-defined]
    assert f"{show(verdict)}".startswith("stalled (failed): no step for 12m")
    for plain in ("a text", 7, None, {}, object):
        assert body_of(show(plain)) is not None and f"{show(plain)}"


ODD = [nan, inf, -inf, 1e308, -1e308, 5e-324, 0, 1, None, -1, 10**400]
NAMES = ["verdict", "reason", "health", "status", "state", "jobs", "a_seconds", "x_at", "since", 1, None, ("a",)]


def odd_value(rng: random.Random, depth: int = 0) -> object:
    """A value of any kind, with texts that nobody should write."""
    kind = rng.randrange(8)
    if kind == 0:
        return rng.choice(ODD)
    if kind == 1:
        return "".join(chr(rng.choice([rng.randrange(0x3000), 7, 0x202E, 0xD800, 60, 38])) for _ in range(20))
    if kind == 2 and depth < 4:
        return [odd_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 3 and depth < 4:
        return {rng.choice(NAMES): odd_value(rng, depth + 1) for _ in range(rng.randrange(6))}
    if kind == 4:
        return Observation(rng.choice([nan, inf, -1.0, NOW]), step=rng.choice(ODD), loss=rng.choice(ODD))  # type: ignore[arg-type]
    return rng.choice([b"\xff", {1, 2}, rng.random()])


def test_odd_values_and_samples_are_shown_whatever_they_are() -> None:
    rng = random.Random(7)
    for _ in range(1000):
        shown = show(odd_value(rng))
        assert body_of(shown) is not None and f"{shown}"
    rng = random.Random(8)
    for _ in range(200):
        times = [rng.choice([nan, inf, -5.0, 0.0, 1e308, NOW, NOW + rng.random()]) for _ in range(8)]
        samples = [FleetSample(at, {name: rng.choice(ODD) for name in ("loss", "total_cost")}) for at in times]
        shown = show(samples)
        assert body_of(shown) is not None and f"{shown}".startswith(f"{sum(0 <= at < 1e11 for at in times)} samples")
