"""What the page is told of a fleet's cost, and of a progress file."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.unit.fleet.fleet_world import Watch, row
from training_monitor.core.errors import StateError, TargetUnreachable, TrainingMonitorError
from training_monitor.core.store import Store
from training_monitor.fleet.mock import MockFleet
from training_monitor.fleet.values import MemberSpec
from training_monitor.rent.queue import TrainingQueue
from training_monitor.runs.values import Run
from training_monitor.vast.training_request import QueuedJob, TrainingRequest
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


def test_the_queue_is_shown_without_what_may_be_secret(tmp_path: Path) -> None:
    assert Board(MockFleet()).queue() == {"jobs": [], "damaged": []}
    queue = TrainingQueue(Store(str(tmp_path / "state")))
    request = TrainingRequest("lora", command="train --key hunter2hunter2", env={"TOKEN": "env:HUNTER"}, budget=5.0)
    queue.submit(request, "lora-1")
    queue.cancel(queue.submit(request, "lora-2").id, "token=hf_Abcdefghijkl0123456789 was wrong")
    page = Board(MockFleet(), queue=queue).queue()
    cancelled, waiting = page["jobs"]
    assert (waiting["id"], waiting["state"], waiting["budget"], waiting["over"]) == ("lora-1", "queued", "$5.00", False)
    assert {waiting[name] for name in ("step", "gpu", "machine", "spent")} == {None} and waiting["notes"] == []
    assert cancelled["id"] == "lora-2" and cancelled["notes"] == ["token=*** was wrong"]
    assert not any(word in str(page) for word in ("hunter2", "HUNTER", "hf_", "train --key"))


def test_an_unreadable_queue_is_refused_and_not_empty(tmp_path: Path) -> None:
    class Broken(TrainingQueue):
        def list_jobs(self, *_: object, **__: object) -> list[QueuedJob]:
            raise StateError("the disk is gone")

    with pytest.raises(Refused, match="the queue cannot be read: the disk is gone"):
        Board(MockFleet(), queue=Broken(Store(str(tmp_path)))).queue()


def test_the_cost_of_each_day_is_that_of_all_machines() -> None:
    watch = Watch(30, specs=(MemberSpec("vast://30"),), whole_account=False)
    for _ in range(3):
        watch.look()
    now = watch.world.clock.time()
    [(day, spent)] = Board(watch.monitor).cost(Window(now - 60, now))["days"]
    assert day == time.strftime("%Y-%m-%d", time.gmtime(now)) and spent.startswith("$")


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
