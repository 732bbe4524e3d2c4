"""Jobs against a market whose listings are empty or lack half, at every step, with kills: one machine, right books."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes import Behaviour
from tests.job_states import STEPS
from tests.sweeps import cases_of, shared_cases
from tests.unit.rent.market_world import REQUEST, STEPS_TRAINED, JobWorld
from training_monitor.vast.training_request import JobState

LIES = [[kind] * count for kind in ("empty", "partial") for count in (1, 2, 6)]


@pytest.fixture
def worlds(memory_path: Path) -> Iterator[JobWorld]:
    """One world after the other, each with its job."""
    return (JobWorld(memory_path / str(number)) for number in range(10_000))


def test_an_undisturbed_job_rents_one_machine_and_says_that_it_is_destroyed(worlds: Iterator[JobWorld]) -> None:
    world = next(worlds)
    world.submit()
    world.work()
    world.check_books()
    assert f"instance {world.job.work.rentals[0].instance_id} is destroyed" in world.told()


def test_however_often_a_listing_lies_at_a_step_the_job_is_as_if_it_had_not(worlds: Iterator[JobWorld]) -> None:
    for state, lies in cases_of(shared_cases(STEPS[1:], LIES, 2)):
        world = next(worlds)
        world.lie_at(state, lies)
        world.submit()
        world.work()
        world.check_books((state, lies))


def test_a_kill_after_any_market_call_changes_no_outcome(worlds: Iterator[JobWorld]) -> None:
    undisturbed = next(worlds)
    undisturbed.submit()
    undisturbed.work()
    calls = [*enumerate(undisturbed.market.calls, 1)]
    for (number, call), lies in cases_of(shared_cases(calls, LIES, 1)):
        world = next(worlds)
        world.market.dies_after, world.market.lies_then = number, lies
        world.submit()
        world.work()
        world.check_books((number, call, lies))
        assert world.market.dies_after and len(world.market.calls) > number


def test_a_kill_at_any_step_changes_no_outcome(worlds: Iterator[JobWorld]) -> None:
    kills = [*zip(("before", "after"), (["empty"] * 6, ["partial"] * 6))]
    for state, (when, lies) in shared_cases((*STEPS[1:], JobState.COMPLETED), kills, 1):
        world = next(worlds)
        world.kill_at = (state, when)
        world.lie_at(state, lies)
        world.submit()
        world.work()
        world.check_books((state, when))


@pytest.mark.parametrize("outcome", [JobState.FAILED, JobState.CANCELLED])
@pytest.mark.parametrize("state", [JobState.RENTING, JobState.PREPARING, JobState.TRAINING])
def test_no_machine_is_left_when_the_worker_of_an_ending_job_dies(
    worlds: Iterator[JobWorld], outcome: JobState, state: JobState
) -> None:
    for _, lies in shared_cases([outcome], LIES, 3):
        world = next(worlds)
        world.submit()
        world.kill_at = (state, "after")

        def end(now: JobState, world: JobWorld = world, lies: list[str] = lies) -> None:
            if now is state:
                world.queue.request_end(world.job.id, outcome, "enough")
            if now in (state, JobState.DESTROYING):
                world.market.lies = list(lies)

        world.on_state = end
        world.work()
        assert (world.job.state, world.market.ours()) == (outcome, []), lies


def test_cancelling_after_a_death_while_renting_leaves_no_machine(worlds: Iterator[JobWorld]) -> None:
    for lies in LIES:
        world = next(worlds)
        world.submit()
        world.market.dies_after, world.market.lies_then = 5, lies
        world.cancel_at_create()
        world.work()
        assert (world.job.state, len(world.market.created), world.market.ours()) == (JobState.CANCELLED, 1, []), lies


@pytest.mark.parametrize("on_finish", ["keep", "stop"])
def test_a_machine_to_keep_survives_a_listing_without_it(worlds: Iterator[JobWorld], on_finish: str) -> None:
    for lies in LIES:
        world = next(worlds)
        world.submit(replace(REQUEST, on_finish=on_finish))
        world.lie_at(JobState.DESTROYING, lies)
        world.work()
        assert len(world.market.ours()) == 1 and world.market.acknowledged == [], lies


def test_nobody_is_told_that_a_machine_was_destroyed_which_went_by_itself(worlds: Iterator[JobWorld]) -> None:
    world = next(worlds)
    world.submit()
    world.on_state = lambda now: world.market.lose_ours() if now is JobState.DESTROYING else None
    world.work()
    assert world.job.state is JobState.COMPLETED and "instance 70001 is no longer listed" in world.told()
    assert not any("destroyed" in text for text in world.told())


TOO_MANY = '{"error": true, "status_code": 429, "msg": "API requests too frequent"}\n'


@pytest.mark.parametrize("times", [1, 20])
def test_a_market_that_is_asked_too_often_lets_the_best_offer_in_the_end(
    worlds: Iterator[JobWorld], times: int
) -> None:
    world, left = next(worlds), [TOO_MANY] * times
    world.submit()
    world.market.on_create = lambda number: left.pop() if left else None
    world.work()
    world.check_books()
    assert [row["machine_id"] for row in world.market.created] == [501]
    assert (
        sum("requesting offer" in text and "again in" in text or "trying again in" in text for text in world.told())
        >= times
    )


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("state", [None, JobState.REPLACING, JobState.RENTING, JobState.PREPARING])
def test_a_host_that_did_not_boot_is_avoided_after_a_kill(
    worlds: Iterator[JobWorld], state: JobState | None, when: str
) -> None:
    world = next(worlds)
    world.submit()
    for number, row in enumerate(world.market.offers):
        row["host_id"] = 9 if number < 2 else 8  # two machines of one host, and a dearer one of another
    world.market.boots = lambda number: number != 70_001
    world.kill_at = state and (state, when)
    world.work()
    assert world.job.state is JobState.COMPLETED and world.market.ours() == []
    assert [row["machine_id"] for row in world.market.created] == [501, 503]
    assert (world.job.work.bad_hosts, world.job.work.bad_machines) == ((9,), (501,))


def test_a_model_that_is_not_of_the_last_step_is_never_completed_in_silence(worlds: Iterator[JobWorld]) -> None:
    world = next(worlds)
    world.market.behaviour = Behaviour(total=STEPS_TRAINED, save_every=25)
    world.submit()
    world.work()
    work = world.job.work
    assert (world.job.state, work.saved_step, work.unsaved_steps) == (JobState.COMPLETED, 50, 10)
    assert work.reason == "completed, but its model lacks the last 10 steps"
    assert work.warnings == ("the model, step_50, is from step 50 of 60: it lacks the last 10 steps",)
    [ended] = [each for each in world.notices() if each.kind == "job_ended"]
    assert "Lacks The Last Steps" in ended.title and ended.priority == "high"
    assert ("Model lacks", "the last 10 steps") in ended.fields


def test_no_wait_of_minutes_is_silent(worlds: Iterator[JobWorld]) -> None:
    world = next(worlds)
    world.market.boots = lambda number: world.clock.elapsed > 700
    world.market.not_booted = "loading"
    world.submit()
    gaps = world.measure_silence()
    world.work()
    world.check_books()
    assert max(gaps) <= 65
    waits = [text for text in world.told() if "; waiting for ssh, for" in text]
    assert len(waits) >= 9
