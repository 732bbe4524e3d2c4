"""Launches whose processes are killed: one machine for each attempt, none left, and charged what the server counted.

The server has its own account: it bills from the request that creates a machine to the one that destroys it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time

import pytest

from tests.integration.conftest import wait_until
from tests.integration.service_world import PATIENCE, World, make_world  # noqa: F401 (a fixture)
from training_monitor.core.store import Store
from training_monitor.rent.credits import Credits
from training_monitor.vast.rows import read_label
from training_monitor.vast.training_request import JobState

IS_LONG = bool(os.environ.get("TRAINING_MONITOR_KILLS"))
KILLS, KILLS_A_LAUNCH = (60, 10) if IS_LONG else (3, 3)
ACCURACY = 0.05
STAGES = (JobState.TRAINING, JobState.SETTLING)  # with a machine, and without one
ALL_STAGES = [state for state in JobState if state not in (JobState.QUEUED, JobState.CHARGING, JobState.REPLACING)]


def check_charged(world: World, context: object) -> str:
    """The account of one launch as a line of the table; raises where anything is wrong."""
    job = world.job
    rows = [row for row in world.vast.created if (label := read_label(row["label"])) and label[1] == job.id]
    attempts = [label[2] for row in rows if (label := read_label(row["label"]))]
    shown = (context, job.state, job.work, world.log()[-2000:])
    assert attempts == list(range(1, len(rows) + 1)), shown
    assert not [row for row in world.vast.instances.values() if row["label"] in {each["label"] for each in rows}], shown
    charged, cost = job.work.spent or 0.0, world.vast.cost(*(row["id"] for row in rows))
    movements = [each for each in Credits(Store()).movements("alice") if each.job_id == job.id]
    assert [each.kind for each in movements] == ["reserve", "settle"], shown
    assert -sum(each.amount for each in movements) == pytest.approx(charged, abs=2e-6), shown
    line = f"| {job.id} | {context} | {len(rows)} | {job.state} | ${charged:.6f} | ${cost:.6f} | "
    line += f"{100 * (charged / cost - 1):+.1f} % |" if cost else "- |"
    assert charged == pytest.approx(cost, rel=ACCURACY), (line, shown)
    return line


def test_launches_killed_again_and_again_cost_what_the_server_counted(world: World) -> None:
    chance, kills, lines = random.Random(7), 0, list[str]()
    while kills < KILLS:
        world.name = f"demo-{len(lines) + 1}"
        mine = 0
        while mine < KILLS_A_LAUNCH:
            with world.start(*world.argv(step_seconds=0.3)) as process:
                before, least = world.queue.list_jobs(), chance.uniform(0.5, 9.0)
                if not before or before[0].id != world.name:
                    assert wait_until(lambda: any(job.id == world.name for job in world.queue.list_jobs()), PATIENCE)
                if process.wait(least) is not None:
                    break
                process.send_signal(signal.SIGKILL)
            mine += 1
        kills += mine
        assert world.run(*world.argv(step_seconds=0.3)) == 0, world.log()[-3000:]
        lines.append(check_charged(world, f"{mine} kills"))
    print("\n| launch | killed | machines | ended | charged | the server's account | |", *lines, sep="\n")
    assert world.vast.instances == {}


def test_sweeps_alone_end_the_launch_whose_worker_never_returns(world: World) -> None:
    settings = world.folder / "settings.json"
    service = json.loads(settings.read_text())["service"]
    settings.write_text(json.dumps({"service": {**service, "abandoned_after": 5}}))
    lines = list[str]()
    for number, state in enumerate(ALL_STAGES if IS_LONG else STAGES):
        world.name = f"left-{number}"
        status = world.run(*world.argv(), act=world.killing(str(state), "after"))
        assert status == -signal.SIGKILL, (state, status, world.log()[-3000:])
        began = time.monotonic()
        while not world.job.state.is_terminal:
            assert time.monotonic() - began < PATIENCE, (state, world.job, world.log()[-3000:])
            time.sleep(1)
            world.run("rent", "sweep", "--force")
        lines.append(check_charged(world, state))
    print("\n| launch | killed in | machines | ended | charged | the server's account | |", *lines, sep="\n")
    assert world.vast.instances == {}


def test_a_launch_with_a_budget_ends_when_its_price_rises_a_hundred_times(world: World) -> None:
    with world.start(*world.argv("--budget", "0.05", step_seconds=2.0)) as process:
        assert wait_until(lambda: world.vast.created and (world.job.work.step or 0) > 2, PATIENCE), world.log()
        [number] = world.vast.instances
        world.vast.set_price(number, 31.0)
        assert process.wait(PATIENCE) == 1, world.log()
    job = world.job
    assert job.state is JobState.FAILED and "budget" in (job.work.reason or ""), world.log()[-3000:]
    assert world.vast.instances == {} and world.vast.cost() < 0.05 + 31.0 * 60 / 3600
    assert [each.per_hour for each in job.work.rentals[0].prices] == [31.0]


def test_a_launch_trains_nothing_on_another_gpu_than_it_rented(world: World) -> None:
    tool = world.folder / "machine tools" / "nvidia-smi"
    tool.write_text(tool.read_text().replace("RTX 4090", "RTX 3090"))
    assert world.run(*world.argv("--max-machines", "2")) == 1, world.log()
    job = world.job
    assert job.state is JobState.FAILED and "RTX 3090, but RTX 4090 was rented" in (job.work.reason or "")
    assert job.work.step is None and world.vast.instances == {} and len(world.vast.created) == 2
    check_charged(world, "another GPU")
