"""What a first look at a member tells, as `fleet --once` makes it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes import gpu_answer
from tests.unit.fleet.fleet_world import Watch, row
from training_monitor.fleet.config import FleetConfig
from training_monitor.fleet.metrics import TrainingMetrics
from training_monitor.fleet.values import MemberSpec

STEPS = "".join(f"step {number}/200 loss 0.5\n" for number in range(1, 41))
DONE = "step 199/200 loss 0.5\nstep 200/200 loss 0.4\nTraining complete\n"
CRASHED = STEPS + "Traceback (most recent call last):\nRuntimeError: CUDA error: device-side assert triggered\n"


def once(log: str, age: float, **machine: Any) -> TrainingMetrics:
    """The row of this machine after one look at a log that was written to `age` seconds ago."""
    watch = Watch(specs=(MemberSpec("local"),))
    there = watch.world.machine("local")
    there.write_log(log, age)
    for name, value in machine.items():
        setattr(there, name, value)
    return watch.row(0.0)


@pytest.mark.parametrize("gpus", [gpu_answer(0), gpu_answer(100, 100), ""])
def test_a_process_that_hangs_with_an_old_log_is_stalled_and_promises_no_time(gpus: str) -> None:
    found = once(STEPS, 660, waits=True, gpus=gpus)
    assert found.health().level == "error" and found.health().reason.startswith("stalled: no step for 11m, limit ")
    assert found.seconds_left() is None


def test_one_that_failed_says_its_error_or_that_processes_were_killed_for_memory() -> None:
    found = once(CRASHED, 660, pid=None).health()
    assert found.level == "error" and "failed at step 40 of 200" in found.reason
    assert "CUDA error: device-side assert triggered" in found.reason
    found = once(STEPS, 660, pid=None, oom=1).health()
    assert found.level == "error"
    assert found.reason == (
        "failed at step 40 of 200 without a message, probably killed; the kernel has killed 1 process there for lack "
        "of memory, at an unknown time"
    )


def test_without_a_log_nothing_is_known_and_none_looked_for_beside_a_given_path() -> None:
    found = once("", 0, path="").health()
    assert (found.level, found.reason) == ("unknown", "no log found")
    watch = Watch(specs=(MemberSpec("local"),), config=FleetConfig(log_paths=("/nowhere/*.log",)))
    there = watch.world.machine("local")
    there.path, there.pid = "", None
    found = watch.row(0.0).health()
    assert (found.level, found.reason) == ("unknown", "no log found") and len(there.scripts) == 6, "one look"


def test_members_that_nobody_has_looked_at_yet_are_unknown() -> None:
    watch = Watch(1, specs=(MemberSpec("local"),))
    assert {each.health().level for each in watch.monitor.snapshot().rows} == {"unknown"}
    watch.world.rows[1] = row(1, ssh_host=None)
    found = watch.look()["vast://1"].health()
    assert found.level == "unknown" and "no usable ssh address" in found.reason
