"""A training that another supervisor takes over while this one ends it: nothing more is stopped or destroyed."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes import Behaviour, FakeStream
from tests.unit.rent.test_pipeline import REQUEST, World
from tests.unit.rent.test_training_step import Machine, MainClock
from tests.unit.supervision.test_auto_restart import CRASH, GOOD, Bench as RestartBench
from tests.unit.supervision.test_watch_training import FINISHES, SAVE, Bench
from training_monitor.core.errors import LeaseLost
from training_monitor.core.models import Event
from training_monitor.core.outcomes import TerminationPlan
from training_monitor.core.store import Store
from training_monitor.supervision.terminate import is_terminating, past_termination
from training_monitor.vast.training_request import JobState

HANGS = Behaviour(total=2000, hang_after=600, save_every=100)
STOP, UPLOAD = ": pid_file stop", ": job_start start"


def before(bench: Bench, mark: str, happens: object) -> None:
    """`happens` is called once, before the first script with this mark is answered."""
    answer, waiting = bench.there.answer, [happens]

    def answer_after(script: str) -> tuple[str, int]:
        if mark in script and waiting:
            waiting.pop()()  # type: ignore[operator]
        return answer(script)

    bench.transport.answer = answer_after


def taken_over(bench: Bench) -> None:
    bench.there.claims.take_over(bench.there.now)


@pytest.mark.parametrize("does", [HANGS, FINISHES], ids=["hangs", "finishes"])
def test_a_machine_taken_over_during_the_upload_is_kept(tmp_path: Path, does: Behaviour) -> None:
    bench = Bench(tmp_path, does)
    before(bench, UPLOAD, lambda: taken_over(bench))
    with pytest.raises(LeaseLost, match="taken over by bob@node7"):
        bench.watch(SAVE)
    assert bench.vast.destroyed == [] and bench.vast.instances == ["7"]
    assert "instance_destroyed" not in bench.told and "upload_finished" in bench.told
    past = past_termination(bench.watcher())
    assert past and not past.success and not is_terminating(bench.watcher())
    assert past.destroyed is False and "bob@node7" in str(past.kept) and past.uploads[0].verified


def test_nothing_is_stopped_of_a_training_that_was_taken_over_before(tmp_path: Path) -> None:
    bench = Bench(tmp_path, HANGS)
    before(bench, STOP, lambda: taken_over(bench))
    with pytest.raises(LeaseLost):
        bench.watch(SAVE)
    assert bench.there.stops == [] and bench.vast.destroyed == [] and bench.there.uploads == []


@pytest.mark.parametrize("plan", [SAVE, TerminationPlan(destroy_without_upload=True)])
def test_a_machine_with_an_unknown_supervisor_is_kept_and_reported(tmp_path: Path, plan: TerminationPlan) -> None:
    bench = Bench(tmp_path, HANGS)

    class Cut(list[Event]):
        """Events, of which one cuts the network."""

        def append(self, event: Event) -> None:
            super().append(event)
            if event.text == "destroying vast://7":
                bench.there.unreachable(bench.clock.elapsed, 1e9)

    bench.events = Cut()
    report = bench.watched(plan)
    assert report.termination and bench.vast.destroyed == []
    assert "taken over" in str(report.termination.kept) and "instance_kept" in bench.told


def test_whoever_was_taken_over_tells_it_with_the_new_owner_and_what_to_type(tmp_path: Path) -> None:
    bench = Bench(tmp_path, HANGS)
    bench.clock.at(1200, lambda: taken_over(bench))
    with pytest.raises(LeaseLost):
        bench.watch(SAVE)
    [notice] = [each for each in bench.notices if each.kind == "taken_over"]
    assert "bob@node7" in dict(notice.fields)["Reason"]
    assert (notice.training, notice.target, notice.command) == (
        "my run", "vast://7", "training-monitor status vast://7",
    )  # fmt: skip


def test_a_supervisor_asks_for_all_claims_of_a_run_before_it_stops_or_starts(bench: RestartBench) -> None:
    bench.jobs.add("by-hand", CRASH)
    bench.jobs.behaviours = [GOOD]

    def take_the_first() -> None:
        claims = bench.jobs.claims
        [key] = [key for key, claim in claims.newest.items() if claim[-1].endswith(" by-hand")]
        kept = {each: claims.newest.pop(each) for each in list(claims.newest) if each != key}
        claims.take_over(bench.jobs.now)
        claims.newest.update(kept)

    bench.on("waiting", take_the_first)
    with pytest.raises(LeaseLost, match="by-hand was taken over"):
        bench.restart(initial_job_id="process:by-hand")
    assert bench.jobs.starts == []


def test_a_machine_with_another_supervisor_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINING_MONITOR_STATE_DIR", str(tmp_path / "state"))
    world, seen = World(Store(str(tmp_path / "state")), MainClock()), list[tuple[list[int], int]]()
    world.jobs = Machine(world.clock, [Behaviour(total=5000, save_every=None)])
    world.transport.answer = world.jobs.answer
    world.transport.stream = lambda *_, **__: FakeStream()  # type: ignore[method-assign]
    world.clock.at(60, lambda: world.jobs.claims.take_over(world.jobs.now))
    for moment in range(90, 500, 30):
        world.clock.at(moment, lambda: world.jobs.claims.beat(world.jobs.now))
    world.clock.at(490, lambda: seen.append((list(world.rows), len(world.jobs.running()))))
    ended = world.run(world.job(JobState.TRAINING, request=replace(REQUEST, hard_timeout=200.0)))
    assert seen == [([7], 1)]  # its time was over long ago
    assert any("bob@node7" in each and "trying again" in each for each in world.events)
    assert (ended.state, world.rows, world.clock.elapsed >= 500) == (JobState.FAILED, {}, True)


def test_a_run_claimed_by_another_after_a_failed_claim_is_taken_over(tmp_path: Path) -> None:
    bench = RestartBench(tmp_path)
    bench.jobs.behaviours = [Behaviour(total=5000)]
    claims = bench.jobs.claims
    claims.unwritable = True

    def claim_elsewhere() -> None:
        claims.newest[hashlib.sha256(b"run").hexdigest()[:32]] = (
            1, "held", "anotherstoken", "120", bench.jobs.now, f"{bench.jobs.now:.0f} node7 bob 1 boot folder run",
        )  # fmt: skip

    bench.clock.at(100, claim_elsewhere)
    for moment in range(110, 1000, 10):
        bench.clock.at(moment, lambda: claims.beat(bench.jobs.now))
    with pytest.raises(LeaseLost, match="taken over by bob@node7") as said:
        bench.restart()
    assert (said.value.owner, said.value.number) == ("bob@node7 (process 1)", 1)
