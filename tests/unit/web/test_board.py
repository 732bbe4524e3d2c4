"""What the page is told of a fleet's cost, and of a progress file."""

from __future__ import annotations

import pytest

from tests.unit.fleet.fleet_world import Watch, row
from training_monitor.core.errors import TargetUnreachable, TrainingMonitorError
from training_monitor.fleet.mock import MockFleet
from training_monitor.fleet.values import MemberSpec
from training_monitor.runs.values import Run
from training_monitor.web.access import Refused
from training_monitor.web.board import Board
from training_monitor.web.charts import Window
from training_monitor.web.pages import id_of


def test_the_newest_price_of_the_fleet_is_of_the_members_that_are_shown() -> None:
    watch = Watch(30, 31, specs=(MemberSpec("vast://30"),), whole_account=False)
    watch.world.rows[31] = row(31, dph_total=2.0)
    for _ in range(3):
        watch.look()
    assert watch.monitor.snapshot().summary.hidden_dollars_per_hour == 2.0
    now = watch.world.clock.time()
    cost = Board(watch.monitor).cost(Window(now - 60, now))
    prices = [text for _, text in cost["charts"][0]["points"]]
    assert prices[-1] == prices[0] == "$0.500 per hour" and cost["hidden"] == "$2.000"
    del watch.world.rows[30]
    watch.look()
    after = Board(watch.monitor).cost(Window(now, watch.world.clock.time()))
    assert after["charts"][0]["points"][-1][1] == "$0.000 per hour"


def test_charts_of_unknown_values_are_left_out_and_named() -> None:
    watch = Watch(30, specs=(MemberSpec("vast://30"),), whole_account=False)
    watch.look()
    now = watch.world.clock.time()
    found = Board(watch.monitor).series(id_of("vast://30"), Window(now - 60, now))
    shown, unknown = [each["title"] for each in found["charts"]], found["unknown"]
    assert "Cost" in shown and unknown == ["Speed"] and len(shown) + len(unknown) == 5
    nothing = Board(watch.monitor).series(id_of("vast://30"), Window(now - 9000, now - 8000))
    assert nothing["charts"] == [] and len(nothing["unknown"]) == 5
    assert Board(watch.monitor).cost(Window(now - 9000, now - 8000))["charts"] == []


class Writing(MockFleet):
    """A fleet whose trainings write progress files, until they cannot be reached."""

    failure: TrainingMonitorError | None = None

    def read_run(self, key: str) -> Run:
        if self.failure:
            raise self.failure
        return Run(key, "", "", attempt=2)


def test_an_unreadable_progress_file_is_not_a_missing_one() -> None:
    for fleet in (Writing(), MockFleet()):
        key = id_of(fleet.snapshot().rows[0].key)
        found = Board(fleet).run(key, 640)
        assert found["problem"] is None and (found["run"] is not None) == isinstance(fleet, Writing)
    fleet = Writing()
    fleet.failure = TargetUnreachable("token=hf_Abcdefghijkl0123456789 is away")
    assert Board(fleet).run(key, 640) == {"run": None, "problem": "token=*** is away"}
    with pytest.raises(Refused):
        Board(fleet).run("0", 640)
