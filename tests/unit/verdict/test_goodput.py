"""Goodput: the share of the wall time that made steps which were kept, and what the rest went into."""

from __future__ import annotations

import pytest

from training_monitor.core.errors import SettingsError
from training_monitor.core.models import RunEvent
from training_monitor.core.values import Observation
from training_monitor.verdict.goodput import goodput, seen_phases


def events(*rows: tuple[float, str, int | None]) -> list[RunEvent]:
    return [RunEvent(*row) for row in rows]


def test_every_second_has_a_cause() -> None:
    found = goodput(
        events(
            (0, "waiting", None), (10, "startup", 0), (30, "training", None), (130, "checkpoint", 100),
            (140, "training", 100), (190, "evaluation", 150), (200, "training", None), (250, "hang", 200),
            (300, "waiting", 200), (360, "startup", 150), (370, "training", 150), (470, "end", 250),
        )
    )  # fmt: skip
    assert found.total_seconds == 470 == sum(found.seconds.values())
    assert found.seconds == {
        "productive": 100 + 50 + 100, "startup": 30, "checkpoint": 10, "evaluation": 10, "lost_steps": 50,
        "waiting": 70, "hang": 50, "unknown": 0,
    }  # fmt: skip
    assert found.goodput == pytest.approx(250 / 470)


def test_steps_lost_in_part_are_lost_in_proportion_and_only_once() -> None:
    first = [(0, "training", 0), (100, "waiting", 100), (100, "training", 80), (110, "waiting", 90)]
    found = goodput(events(*first, (110, "training", 80), (130, "end", 100)))
    assert found.seconds["lost_steps"] == pytest.approx(20 + 10)
    assert found.goodput == pytest.approx((80 + 20) / 130)


@pytest.mark.parametrize(
    ("rows", "share", "phase", "seconds"),
    [
        (((0, "training", 0), (50, "end", 100)), 1.0, "productive", 50),
        (((0, "training", 0), (50, "startup", 50), (60, "training", 0), (60, "end", 0)), 0, "lost_steps", 50),
        (((0, "startup", None), (10, "training", None), (50, "end", None)), None, "unknown", 40),  # no step was seen
    ],
)
def test_all_steps_none_or_an_unknown_number_are_kept(
    rows: tuple[tuple[float, str, int | None], ...], share: float | None, phase: str, seconds: float
) -> None:
    found = goodput(events(*rows))
    assert found.goodput == share and found.seconds[phase] == seconds  # type: ignore[literal-required]


@pytest.mark.parametrize("rows", [[], [(5, "training", 0)], [(5, "training", 0), (5, "end", 10)]])
def test_no_time_is_no_share(rows: list[tuple[float, str, int | None]]) -> None:
    assert goodput(events(*rows)).goodput is None


def test_another_phase_is_refused_by_name() -> None:
    with pytest.raises(SettingsError, match="phase: got 'lunch'"):
        goodput(events((0, "lunch", None), (1, "end", None)))


def looks(*rows: tuple[float, int | None] | tuple[float, int, str]) -> list[Observation]:
    return [Observation(row[0], row[1], phase=row[2] if len(row) > 2 else None) for row in rows]


def test_a_phase_lasts_until_the_next_look() -> None:
    found = seen_phases(
        looks((0, None), (30, 5), (60, 20, "evaluation"), (90, 20, "evaluation"), (120, 40, "checkpoint"), (125, 41)), 0
    )
    assert found == {"startup": 30, "evaluation": 60, "checkpoint": 5}


def test_what_no_look_saw_is_left_out() -> None:
    assert seen_phases([], 0) == {}
    assert seen_phases(looks((50, 300)), 0) == {}  # it ended before a look
    assert seen_phases(looks((50, 300), (80, 300)), None) == {}
    assert seen_phases(looks((1, None), (50, 300)), 0) == {"startup": 50}
    assert seen_phases(looks((50, 10), (80, 20)), None) == {"checkpoint": 0, "evaluation": 0}
