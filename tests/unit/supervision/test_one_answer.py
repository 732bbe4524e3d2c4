"""Is it stuck? All ways to ask give one answer, and the answers that were wrong once are right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fakes import EPOCH, TRAINING
from tests.sweeps import shared_cases
from tests.unit.fleet.fleet_world import Watch, World
from tests.unit.one_run import JOB, Asked, Stage
from training_monitor.core.models import Event
from training_monitor.core.store import Store
from training_monitor.fleet.values import MemberSpec
from training_monitor.look.check import check_training
from training_monitor.supervision.monitor import detect_stall, monitor_job
from training_monitor.supervision.restart import auto_restart
from training_monitor.supervision.watch import watch_training
from training_monitor.supervision.watcher import TrainingWatcher

MINUTE = 60.0
UNSEEN = "row 1: evaluates, its processes out of sight"
WAYS = ("check", "stall", "status", "list", "watch", "fleet", "health")
TRAINS = Stage(30 * MINUTE)
EVALUATES = Stage(8 * MINUTE, pace=0.0, gpus="idle", cores=1.0)
UNSEEN_EVALUATION = (
    Stage(30 * MINUTE, cores=None),
    Stage(8 * MINUTE, 0.0, "idle", None),
    Stage(10 * MINUTE, cores=None),
)
HANGS = Stage(60 * MINUTE, pace=0.0, gpus="idle", cores=0.01, writes=0.0)
SPINS = Stage(60 * MINUTE, pace=0.0, gpus="spinning", cores=1.0, writes=0.0)
LIVES = {
    "row 1: evaluates": ((TRAINS, EVALUATES, Stage(10 * MINUTE)), "running"),
    UNSEEN: (UNSEEN_EVALUATION, "running"),
    "hangs, GPUs idle": ((TRAINS, HANGS), "stalled"),
    "row 2: hangs, GPUs spinning": ((TRAINS, SPINS), "stalled"),
    "hangs, its processes out of sight": ((Stage(30 * MINUTE, cores=None), Stage(99, 0.0, "idle", None)), "stalled"),
    "row 10: saves": ((TRAINS, Stage(8 * MINUTE, 0.0, "idle", 0.1, 4e7), Stage(10 * MINUTE)), "running"),
    "trains": ((Stage(60 * MINUTE),), "running"),
}


ALIKE = [pytest.param(*each, id=life) for life, each in LIVES.items()]
PAIRS = shared_cases(LIVES, WAYS, 2)
ALONE = [pytest.param(*LIVES[life], way, id=f"{life}-{way}") for life, way in PAIRS]


@pytest.mark.parametrize(("stages", "state"), ALIKE)
def test_all_ways_name_the_same_state_of_what_was_seen(tmp_path: Path, stages: Any, state: str) -> None:
    """Row 1: looked at for 37 minutes by two of them, and then asked in every way at one moment."""
    asked = Asked(tmp_path, stages)
    silent = 7 * MINUTE if state == "running" else 15 * MINUTE
    for _ in range(round((30 * MINUTE + silent) / 120)):
        asked.clock.sleep(120)
        asked.ways["status"](), asked.ways["fleet"]()
    assert set(asked.all_ways().values()) == {state}, asked.all_ways()


@pytest.mark.parametrize(("stages", "state", "way"), ALONE)
def test_each_way_alone_comes_to_the_same_answer(tmp_path: Path, stages: Any, state: str, way: str) -> None:
    """Row 1: each way sees all of it, from its first minute on; none tells of a stall that is none."""
    asked = Asked(tmp_path, stages)
    states = asked.look((46 if state == "stalled" else 38) * MINUTE, way, every=60.0)
    assert states[-1] == state, (way, states)
    assert "stalled" not in states[:30] and (state == "stalled" or "stalled" not in states), (way, states)


def supervise(asked: Asked) -> tuple[list[Event], Any]:
    """auto_restart at its defaults."""
    events: list[Event] = []
    report = auto_restart(
        "local", TRAINING, "/checkpoints", job_config={"command": "python train.py"}, initial_job_id=JOB,
        store=asked.store, on_event=events.append, **asked.given,
    )  # fmt: skip
    return events, report


@pytest.mark.parametrize("stages", [LIVES["row 1: evaluates"][0], UNSEEN_EVALUATION], ids=["seen", "unseen"])
def test_a_silent_evaluation_is_not_killed_and_ends_no_wait(tmp_path: Path, stages: Any) -> None:
    """Row 1, through those that watch it all the time, at their defaults."""
    asked = Asked(tmp_path / "restart", stages, ends=0)
    events, report = supervise(asked)
    assert (report["success"], report["total_retries"], asked.run.starts) == (True, 0, []), report
    assert [each.text for each in events if each.kind in ("detected", "stopping", "stopped")] == []
    assert asked.run.training.stop_tries == 0
    waited = Asked(tmp_path / "wait", stages, ends=0)
    assert monitor_job("local", JOB, store=waited.store, **waited.given)["status"] == "SUCCEEDED"
    watched = Asked(tmp_path / "watch", stages, ends=0)
    told: list[Event] = []
    watcher = TrainingWatcher("local", JOB, store=watched.store, **watched.given)
    end = watch_training(watcher, on_event=told.append)
    assert end and end.end == "finished" and "stall" not in {each.kind for each in told}


def test_a_hang_is_told_by_all_that_wait_for_it(tmp_path: Path) -> None:
    """Row 1, the other side: what is no evaluation."""
    waited = Asked(tmp_path, (TRAINS, HANGS))
    report = monitor_job("local", JOB, store=waited.store, **waited.given)
    assert report["status"] == "STALLED" and report["duration"] < 40 * MINUTE
    assert detect_stall("local", JOB, store=waited.store, **waited.given)
    assert set(waited.all_ways().values()) == {"stalled"}


def test_a_fleet_that_begins_to_look_judges_with_what_others_saw(tmp_path: Path) -> None:
    """Row 1: `fleet --once` of what `status` has watched."""
    asked = Asked(tmp_path, UNSEEN_EVALUATION)
    asked.look(37 * MINUTE, "status", every=60.0)
    assert asked.ways["fleet"]() == asked.ways["check"]() == "running"


@pytest.mark.parametrize("way", ["check", "watch", "fleet"])
def test_a_moving_epoch_fraction_is_progress(tmp_path: Path, way: str) -> None:
    """Row 9: the dict lines of a Trainer without a bar, one in eight minutes."""

    def says(now: float) -> str:
        count = 1 + int((now - EPOCH) // (8 * MINUTE))
        return f"{{'loss': {2 - count / 100:.4f}, 'learning_rate': 1e-05, 'epoch': {count / 100:.2f}}}\n"

    asked = Asked(tmp_path, (Stage(300 * MINUTE),), options={"says": says})
    states = asked.look(110 * MINUTE, way, every=120.0)
    assert set(states) <= {"running", "unknown", "starting"} and states[-1] == "running", states
    epoch = check_training("local", JOB, store=asked.store, **asked.given)["jobs"][0]["epoch"]
    assert epoch == pytest.approx(0.14, abs=0.011)


@pytest.mark.parametrize("way", ["check", "watch", "status", "fleet", "health"])
def test_four_readings_show_an_eta_that_does_not_converge(tmp_path: Path, way: str) -> None:
    """Row 12."""
    readings = [(3000, "2:00:00"), (3200, "1:58:20"), (3400, "2:00:00"), (3500, "2:05:00")]

    def says(now: float) -> str:
        step, eta = readings[min(3, int((now - EPOCH) // 1800))]
        return f"step {step}/4000 loss 0.5 ETA: {eta}\n"

    stages = (Stage(200 * MINUTE, pace=0.05, gpus=None, cores=None),)
    asked = Asked(tmp_path, stages, options={"says": says})
    states = [asked.ways[way](), *asked.look(90 * MINUTE, way, every=1800.0)]
    assert states[-1] == "slow", states
    [job] = check_training("local", JOB, store=asked.store, **asked.given)["jobs"]
    if way != "fleet":
        told = "ETA not converging: stayed at ~2h over the last 90 minutes despite 500 steps"
        assert (job["verdict"], job["recommendation"]) == ("warning", "alert") and told in job["reason"]


def test_what_was_killed_for_memory_says_where_and_why(tmp_path: Path) -> None:
    """Row 13: killed at 20 %, without a word in its log."""
    world, store = World(), Store(str(tmp_path / "state"))
    machine = world.machine("local")
    machine.log = "".join(f"step {step}/200 loss 0.5\n" for step in range(1, 41))
    given: dict[str, Any] = {"transport": world, "clock": world.clock, "store": store}
    assert check_training("local", machine.path, **given)["jobs"][0]["state"] in ("running", "unknown")
    world.clock.sleep(60)
    machine.pid, machine.oom = None, 1
    [job] = check_training("local", machine.path, **given)["jobs"]
    told = "failed at step 40 of 200 without a message, probably killed because memory ran out (oom_kill count rose)"
    assert (job["state"], job["verdict"], job["reason"]) == ("failed", "failed", told)
    watched = TrainingWatcher("local", {"log_file": machine.path}, **given).poll().verdict
    assert watched and (watched.state, watched.reason) == ("failed", told)


def test_documents_have_the_observed_speed_if_the_log_shows_none(tmp_path: Path) -> None:
    world, store = World(), Store(str(tmp_path / "state"))
    machine = world.machine("local")
    given: dict[str, Any] = {"transport": world, "clock": world.clock, "store": store}
    for last in (10, 40, 70):
        machine.log = "".join(f"step {step}/200 loss 0.5\n" for step in range(1, last + 1))
        [job] = check_training("local", machine.path, **given)["jobs"]
        world.clock.sleep(60)
    assert "2 s/step" in job["reason"], job
    assert (job["steps_per_second"], job["eta_seconds"]) == (pytest.approx(0.5), pytest.approx(260))
    status = TrainingWatcher("local", {"log_file": machine.path}, **given).poll()
    assert status.verdict and status.verdict.state == "running"
    assert status.progress.steps_per_second == pytest.approx(0.5, rel=0.5)


@pytest.mark.parametrize(
    ("words", "state", "told"),
    [
        ("Training completed\n", "finished", "finished"),
        ("RuntimeError: CUDA error: an illegal memory access was encountered\n", "failed", "illegal memory access"),
    ],
)
def test_an_end_is_told_at_once_and_as_what_it_was(tmp_path: Path, words: str, state: str, told: str) -> None:
    """Row 13: red "does not run" for a good end, and green for ten minutes for a bad one."""
    watch = Watch(specs=(MemberSpec("local"),))
    machine = watch.world.machine("local")
    machine.log = "".join(f"step {step}/200 loss 0.5\n" for step in range(1, 41))
    watch.look()
    machine.pid, machine.log = None, machine.log + words
    watch.look(10)
    row = watch.row(30)  # nobody writes it any more
    assert row.verdict and row.verdict.state == state and told in row.health().reason
    assert row.health().level == {"finished": "healthy", "failed": "error"}[state]
    given: dict[str, Any] = {"transport": watch.world, "clock": watch.world.clock}
    [job] = check_training("local", machine.path, store=Store(str(tmp_path)), **given)["jobs"]
    assert job["state"] == state and told in job["reason"]
