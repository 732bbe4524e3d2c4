"""How `top --once` comes to know CPU: by a second look, where the first one cannot know it; what `--json` tells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import pytest

from tests.fakes import EPOCH, FakeClock
from tests.unit.runs.run_world import look, machine, process, run
from training_monitor.cli.commands.top import look_twice_if_needed, snapshot_keys
from training_monitor.core.errors import TargetUnreachable
from training_monitor.runs.collector import RunCollector
from training_monitor.runs.remote_runs import RemoteRuns
from training_monitor.runs.values import FINISHED, RUNNING, UNKNOWN, FolderLook
from training_monitor.targets.proc_stat import Identity


@dataclass
class Folder:
    """A source that only looks; `answer` gives the looks by their number."""

    clock: FakeClock
    answer: Callable[[int], FolderLook]
    looks: list[float] = field(default_factory=list)

    def look(self, threads_of: frozenset[int]) -> FolderLook:
        self.looks.append(self.clock.elapsed)
        return self.answer(len(self.looks))


def collect(answer: Callable[[FakeClock, int], FolderLook]) -> tuple[RunCollector, Folder]:
    clock = FakeClock()
    folder = Folder(clock, lambda number: answer(clock, number))
    return RunCollector(cast(RemoteRuns, folder), where="/runs", clock=clock), folder


def busy(clock: FakeClock, number: int) -> FolderLook:
    """A run with a process below it that uses half a core."""
    below = process(200, 100, cpu_ticks=int(clock.elapsed * 50))
    sample = machine(process(100), below, at=10_000.0 + clock.elapsed)
    return look(run(), sample, timestamp=EPOCH + clock.elapsed)


def test_the_cpu_of_a_tree_takes_two_looks_a_second_apart() -> None:
    collector, folder = collect(busy)
    (row,) = look_twice_if_needed(collector).rows
    assert row.cpu_percent == 50.0 and folder.looks == [0.0, 1.0]


def test_a_second_look_is_made_only_where_it_can_tell_more() -> None:
    collector, folder = collect(lambda clock, number: look(run(status=FINISHED), machine()))
    assert look_twice_if_needed(collector).error is None and len(folder.looks) == 1

    def silent(clock: FakeClock, number: int) -> FolderLook:
        raise TargetUnreachable("no answer")

    collector, folder = collect(silent)
    assert look_twice_if_needed(collector).error == "no answer" and len(folder.looks) == 1


@pytest.mark.parametrize("wrong", [-600.0, 600.0])
def test_a_run_of_a_host_whose_clock_is_wrong_goes_on_while_its_file_changes(wrong: float) -> None:
    elsewhere = Identity(7, 1, "gpu-7", "boot-b", "pid:[1]")

    def written(clock: FakeClock, number: int) -> FolderLook:
        there = EPOCH + clock.elapsed + wrong
        progress = run(process=elsewhere, step=int(clock.elapsed) + 40, updated_at=there, step_at=there - 4)
        return look(progress, machine(), timestamp=EPOCH + clock.elapsed)

    collector, folder = collect(written)
    (row,) = look_twice_if_needed(collector).rows
    assert folder.looks == [0.0, 2.5] and (row.status, row.quiet_seconds) == (RUNNING, 4.0)
    assert row.verdict.state == "running"


def test_a_file_that_does_not_change_any_more_says_nothing() -> None:
    elsewhere = Identity(7, 1, "gpu-7", "boot-b", "pid:[1]")

    def written(clock: FakeClock, number: int) -> FolderLook:
        progress = run(process=elsewhere, updated_at=EPOCH - 600 + min(clock.elapsed, 5.0))
        return look(progress, machine(), timestamp=EPOCH + clock.elapsed)

    collector, _ = collect(written)
    seen = []
    for _ in range(3):
        seen.append(collector.look_once().rows[0].status)
        collector.clock.sleep(5.0)
    collector.clock.sleep(30.0)
    assert seen == [UNKNOWN, RUNNING, RUNNING] and collector.look_once().rows[0].status == UNKNOWN


def test_a_second_look_that_fails_takes_nothing_from_the_first() -> None:
    def once(clock: FakeClock, number: int) -> FolderLook:
        if number > 1:
            raise TargetUnreachable("no answer")
        return busy(clock, number)

    collector, folder = collect(once)
    snapshot = look_twice_if_needed(collector)
    assert snapshot.error is None and len(folder.looks) == 2
    assert [(row.run.name, row.cpu_percent) for row in snapshot.rows] == [("llama", None)]


def test_json_tells_the_verdict_beside_the_documented_status() -> None:
    hung, gone = run(step=40, step_at=EPOCH - 7200), run("gone", process=None, updated_at=EPOCH - 60)
    collector, _ = collect(lambda clock, number: look((hung, gone), machine(process(100))))
    first, second = snapshot_keys(collector.look_once())["runs"]
    assert (first["status"], first["state"], first["verdict"]) == ("RUNNING", "stalled", "failed")
    assert "no step for 2h00m" in first["reason"] and first["seconds_without_step"] == 7200.0 > first["limit_seconds"]
    assert (second["status"], second["state"], second["verdict"]) == ("UNKNOWN", "unknown", "unknown")
    assert second["reason"].startswith("its file does not name its process")
    assert {"state", "verdict", "reason", "remedies", "failure", "eta_seconds", "quiet_seconds", "tree"} <= first.keys()
