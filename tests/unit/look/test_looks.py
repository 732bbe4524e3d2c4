"""What was seen of a training is remembered across commands, bounded, and read with care."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from training_monitor.core.models import Failure, JobStatus
from training_monitor.core.store import ALL_LOOKS, MOST_LOOKS, Store
from training_monitor.core.values import Observation, WatchedJob
from training_monitor.look.kept_looks import KEEP_SECONDS, Looks, look_key
from training_monitor.look.meant import MeantTraining
from training_monitor.look.remembered import ended_with, forget_stopped, keep, recall, remember
from training_monitor.targets.proc_stat import Identity
from training_monitor.targets.target import parse_target
from training_monitor.verdict.judge import judge

SEEN = Observation(
    1000.5,
    40,
    total_steps=200,
    loss=0.25,
    status=JobStatus.FAILED,
    failure=Failure("cuda_error", "hardware", "restart_elsewhere", "CUDA error", 3, "f"),
    cpu_seconds=12.5,
    gpu_errors=("GPU 3: lost",),
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path))


def looks(store: Store | None, key: str = "local job") -> Looks:
    return Looks(store, key)


@pytest.mark.parametrize("seen", [SEEN, Observation(5.0, None), Observation(5.0, 0, loss=0.0, is_running=False)])
def test_an_observation_is_the_same_for_the_next_command(store: Store, seen: Observation) -> None:
    looks(store).add(seen)
    assert looks(store).all() == (seen,) and looks(store, "local other").all() == ()


def test_what_is_not_known_takes_no_room_and_what_is_newer_is_left_out(store: Store) -> None:
    looks(store).add(Observation(5.0, None))
    assert store.looks("local job") == ['{"timestamp": 5.0, "step": null}']
    store.add_look("local new", 1.0, {"timestamp": 1.0, "step": 2, "moon_phase": 0.5})
    assert looks(store, "local new").all() == (Observation(1.0, 2),)


def test_what_cannot_be_read_is_no_observation(store: Store) -> None:
    odd = {"timestamp": 1.0, "status": "NEW"}
    for kept in [{}, {"step": 3}, {"timestamp": "soon"}, odd, {"timestamp": 1, "failure": 7}]:
        store.add_look("local job", 1.0, kept)
        assert looks(store).all() == ()


def test_a_training_is_the_same_one_however_it_is_named() -> None:
    target = parse_target("ssh://box")
    by_file, by_pid = WatchedJob(log_file="train.log"), WatchedJob(pid=7)
    assert look_key(target, by_file, "/home/u/train.log") == look_key(target, by_pid, "/home/u/train.log")
    assert look_key(target, WatchedJob("process:a"), "/j/a/log") == "ssh://box process:a"
    assert look_key(target, by_pid, None) == "ssh://box pid 7"


def test_a_training_that_ended_is_known_by_the_pid_of_the_rank_that_named_it() -> None:
    launcher = MeantTraining(WatchedJob(pid=40, process="40 1 boot"), "pid 41", named=41)
    known = keep(1000.0, [launcher], ())
    for pid, found in ((40, 40), (41, 40), (42, None)):
        ended = ended_with(known, WatchedJob(pid=pid))
        assert (ended and ended.job.pid) == found


def test_a_training_that_was_stopped_is_forgotten_and_the_others_are_kept(store: Store) -> None:
    processes = ("40 1 boot", "40 7 boot", "41 1 boot", "42 1 boot")
    jobs = [WatchedJob(pid=int(process.split()[0]), process=process) for process in processes]
    trainings = [MeantTraining(job, f"pid {job.pid}", named=39 if job.pid == 42 else None) for job in jobs]
    target = parse_target("local")
    remember(store, target, 1000.0, trainings, ())
    forget_stopped(store, target, 1001.0, Identity(40, 7, boot_id="boot"))  # the first one had this PID before
    assert [each.job.process for each in recall(store, target, 1002.0)] == ["40 1 boot", "41 1 boot", "42 1 boot"]
    forget_stopped(store, target, 1001.0, Identity(39, 9, boot_id="boot"))  # the script by which it was asked for
    assert [each.job.process for each in recall(store, target, 1002.0)] == ["40 1 boot", "41 1 boot"]


def test_looks_are_kept_now_and_then_and_forgotten_when_a_clock_is_set_back(store: Store) -> None:
    seen = looks(store)
    for second in range(25):
        seen.add(Observation(float(second), 7))
    assert len(seen.all()) == 25 and [each.timestamp for each in looks(store).all()] == [0.0, 10.0, 20.0]
    other = looks(store, "local other")
    for timestamp in (10.0, 20.0, 9000.0, 30.0):
        other.add(Observation(timestamp, None))
    assert [each.timestamp for each in other.all()] == [10.0, 20.0, 30.0]
    assert [each.timestamp for each in looks(store, "local other").all()] == [10.0, 20.0, 30.0]


def test_many_looks_are_thinned_and_the_newest_and_the_first_are_kept(store: Store) -> None:
    seen = looks(store)
    for number in range(3 * MOST_LOOKS):
        seen.add(Observation(60.0 * number, number))
    kept = [each.timestamp for each in looks(store).all()]
    assert len(kept) <= MOST_LOOKS and kept[0] == 0.0
    assert kept[-50:] == [60.0 * number for number in range(3 * MOST_LOOKS - 50, 3 * MOST_LOOKS)]


@pytest.mark.parametrize("spacing", [1.0, 3.0, 7.0, 60.0])
@pytest.mark.parametrize("every", [1, 4, 30])
def test_silence_recalled_by_another_command_is_what_was_seen(store: Store, spacing: float, every: int) -> None:
    seen = looks(store)
    for number in range(100):
        seen.add(Observation(number * spacing, number // every))
        recalled = Looks(store, seen.key)
        assert recalled.all()[-1].step == number // every
        then = 600.0 + number * spacing
        was, told = (silence([*each.all(), Observation(then, number // every)]) for each in (seen, recalled))
        assert abs(was - told) <= KEEP_SECONDS
    assert len(looks(store).all()) <= 100 * spacing / KEEP_SECONDS + 2


def silence(observations: list[Observation]) -> float:
    return judge(observations, now=observations[-1].timestamp).seconds_without_step or 0.0


@pytest.mark.parametrize("kept", [True, False], ids=["in the store", "in memory"])
def test_a_silence_is_not_forgotten_however_many_looks_follow(store: Store, kept: bool) -> None:
    seen = looks(store if kept else None)
    for number in range(900):
        seen.add(Observation(60.0 * number, min(number, 100)))
    assert silence(list((looks(store) if kept else seen).all())) == 799 * 60.0


def test_a_run_that_became_slow_is_slow_however_long_it_is_watched(store: Store) -> None:
    seen, step = looks(store), 0.0
    for number in range(900):
        step += 60.0 if number < 30 else 20.0
        seen.add(Observation(60.0 * number, int(step)))
    for remembered in (seen, looks(store)):
        assert judge(remembered.all(), now=60.0 * 900).state == "slow"


def test_an_epoch_or_a_loss_that_moves_is_remembered_like_a_step(store: Store) -> None:
    seen = looks(store)
    for number, loss in enumerate((0.5, 0.4, 0.4, 0.3)):
        seen.add(Observation(float(number), None, loss=loss))
    assert [each.loss for each in looks(store).all()] == [0.5, 0.3]


def test_of_many_trainings_those_seen_last_are_remembered(store: Store) -> None:
    with store.transaction() as execute:
        for number in range(ALL_LOOKS):
            execute("INSERT INTO looks VALUES (?, ?, '{}')", (f"old {number // 100}", float(number)))
    looks(store, "new").add(Observation(float(ALL_LOOKS), 1))
    assert store.looks("old 0") == [] and len(store.looks("old 1")) == 100 and len(store.looks("new")) == 1


def test_rows_that_hold_something_else_are_left_out(store: Store) -> None:
    with store.transaction() as execute:
        execute("INSERT INTO looks VALUES ('local job', 1.0, 'half a li')")
        execute("INSERT INTO looks VALUES ('local job', 2.0, '[]')")
    looks(store).add(Observation(30.0, 1))
    assert [each.timestamp for each in looks(store).all()] == [30.0]


def test_a_store_that_cannot_be_written_ends_no_watch(store: Store) -> None:
    seen = looks(store)
    os.remove(store.path)
    os.mkdir(store.path)
    seen.add(Observation(5.0, 1))
    seen.add(Observation(65.0, 2))
    assert [each.step for each in seen.all()] == [1, 2] and "cannot be opened" in (seen.problem or "")
