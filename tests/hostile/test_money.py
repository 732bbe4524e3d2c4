"""Amounts charged for jobs when workers die and prices rise: compared with the market's own account.

A job may be charged 5 % more or less than its machines cost, whoever destroyed them, and whenever its worker died.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import pytest

from tests.fakes import Behaviour
from tests.hostile.tries import tried
from tests.job_states import STEPS
from tests.unit.killing import Killed
from tests.unit.rent.market_world import REQUEST, JobWorld
from training_monitor.rent.credits import Credits
from training_monitor.rent.queue import load_owner
from training_monitor.rent.sweeper import SweepReport, sweep_instances
from training_monitor.vast.instances import destroy_instance
from training_monitor.vast.training_request import JobState

MINUTE, HOUR = 60.0, 3600.0
PAUSES = (0.0, 2 * MINUTE, 20 * MINUTE)  # until somebody looks again
ACCURACY = 0.05
LONG = Behaviour(total=600, save_every=60)  # 10 minutes


@pytest.fixture
def worlds(memory_path: Path) -> Iterator[JobWorld]:
    """One world after the other, each with its job."""

    def make(number: int) -> JobWorld:
        world = JobWorld(memory_path / str(number))
        world.submit()
        return world

    return (make(number) for number in range(10_000))


def sweep(world: JobWorld) -> SweepReport:
    return sweep_instances(
        False,
        owner=load_owner(world.store),
        config=world.config,
        store=world.store,
        transport=world.market.transport,
        clock=world.clock,
    )


def run_killed(world: JobWorld) -> None:
    """Let one worker run, which may be killed."""
    try:
        world._work_once()
    except Killed:
        pass


def check_charged(world: JobWorld, context: object, *, unseen: float = 0.0) -> None:
    """The job is over, no machine is left, and it was charged what its machines cost, less a time nobody saw them."""
    job, market = world.job, world.market
    shown = (context, job.state, job.work.rentals, market.bills, [event.text for event in world.events][-5:])
    assert job.state.is_terminal and market.ours() == [], shown
    spent, cost = job.work.spent or 0.0, market.cost()
    assert -ACCURACY * cost - 0.1 * unseen / HOUR <= spent - cost <= ACCURACY * cost, (spent, cost, shown)
    movements = Credits(world.store, clock=world.clock).movements("alice")
    assert [each.kind for each in movements] in (["deposit"], ["deposit", "reserve", "settle"]), shown
    tried()


def sweep_until_over(world: JobWorld, every: float) -> None:
    for _ in range(20):
        world.clock.sleep(every)
        report = sweep(world)
        assert report["errors"] == [], report
        if world.job.state.is_terminal:
            return


def test_a_sweep_alone_ends_a_job_whose_work_is_done_when_its_worker_dies(worlds: Iterator[JobWorld]) -> None:
    for state, when in (
        (JobState.DESTROYING, "after"),
        (JobState.SETTLING, "before"),
        (JobState.NOTIFYING, "after"),
        (JobState.COMPLETED, "before"),
    ):
        world = next(worlds)
        world.kill_at = (state, when)
        run_killed(world)
        world.clock.sleep(2 * MINUTE)
        sweep(world)
        assert world.job.state is JobState.COMPLETED, (state, when)
        check_charged(world, (state, when))


def test_a_sweep_ends_failed_or_cancelled_jobs_of_dead_workers(worlds: Iterator[JobWorld]) -> None:
    saved = (JobState.SAMPLING, JobState.REGISTERING)
    cases = [*zip(STEPS[1 : STEPS.index(JobState.DESTROYING) : 2], cycle((JobState.CANCELLED, JobState.FAILED)))]
    for state, outcome in dict.fromkeys([*cases, *((state, JobState.FAILED) for state in saved)]):
        world = next(worlds)
        world.kill_at = (state, "after")
        run_killed(world)
        world.queue.request_end(world.job.id, outcome, "enough")
        world.clock.sleep(2 * MINUTE)
        sweep(world)
        is_saved = outcome is JobState.FAILED and state in saved
        assert world.job.state is (JobState.COMPLETED if is_saved else outcome), (outcome, state)
        check_charged(world, (outcome, state))


def test_sweeps_alone_end_each_job_whose_worker_never_returns(worlds: Iterator[JobWorld]) -> None:
    """Also a job whose work is not done, after a while in which a worker could have come."""
    for state, when in zip(STEPS[STEPS.index(JobState.PREPARING) :: 2], cycle(("before", "after"))):
        world = next(worlds)
        world.kill_at = (state, when)
        run_killed(world)
        began = world.clock.elapsed
        sweep_until_over(world, 5 * MINUTE)
        check_charged(world, (state, when))
        assert world.clock.elapsed - began < HOUR


def test_a_killed_sweep_is_followed_by_one_that_ends_the_job(worlds: Iterator[JobWorld]) -> None:
    for number in range(1, 40, 4):
        world = next(worlds)
        world.kill_at = (JobState.DESTROYING, "after")
        run_killed(world)
        world.clock.sleep(2 * MINUTE)
        world.market.dies_after = len(world.market.calls) + number
        try:
            sweep(world)
            break
        except Killed:
            world.clock.sleep(20 * MINUTE)
            sweep(world)
        check_charged(world, number)
    assert number > 4


def test_a_kill_at_any_call_does_not_change_the_charge(worlds: Iterator[JobWorld]) -> None:
    undisturbed = next(worlds)
    undisturbed.work()
    for number, pause in zip(range(1, len(undisturbed.market.calls) + 1, 5), cycle(PAUSES)):
        world = next(worlds)
        world.market.dies_after = number
        run_killed(world)
        world.clock.sleep(pause + 2 * world.config.lease_seconds)
        world.work()
        check_charged(world, (number, pause))


def test_all_machines_are_charged_after_a_kill_while_replacing(worlds: Iterator[JobWorld]) -> None:
    undisturbed = next(worlds)
    undisturbed.market.boots = lambda number: number != 70_001
    undisturbed.work()
    assert len(undisturbed.market.created) == 2
    rents = [number for number, call in enumerate(undisturbed.market.calls, 1) if call == "create instance"]
    for number, sweeps in zip(range(rents[0], rents[1] + 2, 5), cycle((False, True))):  # later it is like any other one
        world = next(worlds)
        world.market.boots = lambda number: number != 70_001
        world.market.dies_after = number
        run_killed(world)
        world.clock.sleep(12 * MINUTE)
        if sweeps:
            sweep(world)
        world.work()
        assert len(world.job.work.rentals) == len(world.market.created) == 2, (number, sweeps)
        check_charged(world, (number, sweeps))


def test_a_job_is_charged_what_its_machine_cost_when_a_sweep_destroys_it_first(worlds: Iterator[JobWorld]) -> None:
    for state in (JobState.PREPARING, JobState.SAMPLING):
        world = next(worlds)
        world.kill_at = (state, "after")
        run_killed(world)
        for _ in range(8):
            world.clock.sleep(5 * MINUTE)
            sweep(world)
        world.clock.sleep(3 * HOUR)
        assert world.job.state.is_terminal
        check_charged(world, state)


def test_a_job_is_charged_each_price_from_the_look_that_found_it(worlds: Iterator[JobWorld]) -> None:
    for factor, after in ((100.0, 3 * MINUTE), (0.1, 8 * MINUTE)):
        world = next(worlds)
        world.market.behaviour = LONG
        world.clock.at(after, lambda world=world, factor=factor: world.market.set_price(0.1 * factor))
        world.work()
        check_charged(world, (factor, after))


def test_a_job_is_charged_what_its_machine_cost_when_the_clock_is_set_back(worlds: Iterator[JobWorld]) -> None:
    world = next(worlds)
    world.market.behaviour = LONG
    world.clock.at(8 * MINUTE, lambda: setattr(world.clock, "ahead", -HOUR))
    world.work()
    assert world.job.state is JobState.COMPLETED
    check_charged(world, "set back")


def test_a_machine_that_a_person_destroys_is_charged_until_then(worlds: Iterator[JobWorld]) -> None:
    for pause in PAUSES:
        world = next(worlds)
        world.kill_at = (JobState.TRAINING, "after")
        run_killed(world)
        world.clock.sleep(10 * MINUTE)
        [number] = world.market.ours()
        destroy_instance(str(number), store=world.store, transport=world.market.transport, clock=world.clock)
        world.clock.sleep(pause + 2 * MINUTE)
        world.queue.request_end(world.job.id, JobState.FAILED, "enough")
        world.work()
        check_charged(world, pause)


def test_limits_are_told_once_though_nobody_gets_notices(memory_path: Path) -> None:
    """To whoever watches, in the job, and in the queue."""
    for number, (wish, words) in enumerate(
        [({"soft_timeout": 3 * MINUTE}, "soft timeout"), ({"budget": 0.013}, "will be used up")]
    ):
        world = JobWorld(memory_path / f"told {number}")
        world.submit(replace(REQUEST, **wish))  # type: ignore[arg-type]
        world.market.behaviour = LONG
        world.work()
        told = [event.text for event in world.events if event.kind == "detected" and words in event.text]
        assert len(told) == 1 and [each for each in world.job.work.warnings if words in each] == told
        check_charged(world, words)


def test_a_budget_ends_a_job_whose_price_rises(memory_path: Path) -> None:
    for number, factor in enumerate((100.0, 20.0)):
        world = JobWorld(memory_path / f"budget {number}")
        world.submit(replace(REQUEST, budget=0.1))
        world.market.behaviour = LONG
        world.clock.at(5 * MINUTE, lambda world=world, factor=factor: world.market.set_price(0.1 * factor))
        world.work()
        assert world.job.state is JobState.FAILED and "budget" in (world.job.work.reason or "")
        assert 0.1 <= world.market.cost() < 0.1 + 3 * MINUTE * 0.1 * factor / HOUR
        check_charged(world, factor)


def test_a_machine_with_another_gpu_than_was_rented_trains_nothing(memory_path: Path) -> None:
    cases: list[tuple[str, dict[str, object]]] = [("RTX 3090", {}), ("RTX 4090D", {}), ("", {"gpu_name": "RTX 4090D"})]
    cases += [("", {"num_gpus": 0}), ("", {"gpu_ram": 12_288})]
    for number, (other, row) in enumerate(cases):
        bad = {70_001, 70_002, 70_003} if number == 0 else {70_001}
        world = JobWorld(memory_path / f"{number} {len(bad)}")
        world.submit()
        world.market.gpu = lambda at, bad=bad, other=other: other if other and at in bad else "RTX 4090"
        world.market.listed = lambda at, bad=bad, row=row: row if at in bad else {}
        world.work()
        job = world.job
        assert job.state is (JobState.COMPLETED if len(bad) == 1 else JobState.FAILED), (other, row)
        assert all(not world.market.machines[each].starts for each in bad), (other, row)
        assert [each.instance_id for each in job.work.rentals] == [70_001, 70_002, 70_003][: len(bad) + 1]
        assert "rented" in job.work.warnings[0] and 501 in job.work.bad_machines and 801 in job.work.bad_hosts
        check_charged(world, (other, row))


def test_a_gpu_that_is_spelled_otherwise_or_not_recognised_is_the_rented_one(memory_path: Path) -> None:
    for number, name in enumerate(("GeForce RTX 4090", "RTX_4090", "Graphics Device")):
        world = JobWorld(memory_path / str(number))
        world.submit()
        world.market.gpu = lambda at, name=name: name
        world.market.listed = lambda at, name=name: {"gpu_name": name, "gpu_ram": 24_000}
        world.work()
        assert world.job.state is JobState.COMPLETED and len(world.job.work.rentals) == 1, name
        check_charged(world, name)


def test_a_machine_that_goes_by_itself_is_charged_until_it_was_last_seen(worlds: Iterator[JobWorld]) -> None:
    for after in (5 * MINUTE, 8 * MINUTE):
        world = next(worlds)
        world.market.behaviour = LONG
        world.clock.at(after, world.market.lose_ours)
        world.work()
        assert len(world.job.work.rentals) >= 2
        check_charged(world, after, unseen=MINUTE)


def test_a_machine_that_vanishes_unseen_is_charged_until_last_seen(worlds: Iterator[JobWorld]) -> None:
    for returns in (True, False):
        world = next(worlds)
        world.market.behaviour = LONG
        world.market.dies_after = 45
        run_killed(world)
        world.clock.sleep(20.0)
        world.market.lose_ours()
        world.clock.sleep(2 * HOUR)
        if not returns:
            sweep(world)
        charged = sum((each.ended_at or 0.0) - each.started_at for each in world.job.work.rentals)
        assert returns or 0 < charged < HOUR
        world.work()
        check_charged(world, returns)
