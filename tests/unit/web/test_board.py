"""What the page is told of a fleet's cost."""

from __future__ import annotations

from tests.unit.fleet.fleet_world import Watch, row
from training_monitor.fleet.values import MemberSpec
from training_monitor.web.board import Board
from training_monitor.web.charts import Window


def test_the_newest_price_of_the_fleet_is_of_the_members_that_are_shown() -> None:
    watch = Watch(30, 31, specs=(MemberSpec("vast://30"),), whole_account=False)
    watch.world.rows[31] = row(31, dph_total=2.0)
    for _ in range(3):
        watch.look()
    assert watch.monitor.snapshot().summary.hidden_dollars_per_hour == 2.0
    now = watch.world.clock.time()
    cost = Board(watch.monitor).cost(Window(now - 60, now))
    prices = [text for _, text in cost["chart"]["points"]]
    assert prices[-1] == prices[0] == "$0.500 per hour" and cost["hidden"] == "$2.000"
    del watch.world.rows[30]
    watch.look()
    after = Board(watch.monitor).cost(Window(now, watch.world.clock.time()))
    assert after["chart"]["points"][-1][1] == "$0.000 per hour"
