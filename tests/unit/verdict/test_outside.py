"""Whom the roll call names by waits that no other process of the training can end, and never with high confidence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.verdict.some_ranks import ALL_REDUCE, MAIN, STD, a_process, call, named, stack
from training_monitor.why.ranks import CHILD, DISK, LOCK, PIPE, SOCKET, TIMER, Explanation, Frame, Rank, RollCall, Stack
from training_monitor.why.roll_call import explain_roll_call

SYNCHRONIZE = f"{STD}/multiprocessing/synchronize.py"
EVENT = (call("wait", SYNCHRONIZE, 261), call("wait", SYNCHRONIZE, 349))
BARRIER = (
    *(call("wait", SYNCHRONIZE, 261), call("wait_for", SYNCHRONIZE, 313)),
    *(call("_wait", f"{STD}/threading.py", 735), call("wait", f"{STD}/threading.py", 702)),
)
READING = stack(call("load_batch", "/w/data.py", 41), MAIN)
LOCKED = {"waits_for": LOCK, "is_still": True, "cpu_cores": 0.0}
OUTSIDE = {"waits_for": PIPE, "is_still": True, "cpu_cores": 0.0, "awaits": (), "waits_outside": True}


def explain(*ranks: Rank) -> Explanation:
    return explain_roll_call(RollCall(ranks))


def pids(found: Explanation) -> list[int]:
    return [each.seen.pid for each in found.culprits if each.seen]


def locked(pid: int, **known: object) -> Rank:
    return a_process(pid, (), **LOCKED | known)


def outside(pid: int, **known: object) -> Rank:
    return a_process(pid, (), **OUTSIDE | known)


# ---------------------------------------------------------------- two workers


def test_without_stacks_the_one_outside_the_common_lock_is_named() -> None:
    found = explain(locked(20), outside(21, waits_on="/w/fifo"))
    assert (pids(found), found.confidence) == ([21], "low")
    odd = "the process with pid 21 waits for a pipe (/w/fifo, other end: no visible process)"
    assert found.text.endswith(f"{odd}: perhaps the other is waiting for it.")


@pytest.mark.parametrize(
    "others",
    [
        (locked(20), outside(21, waits_outside=None)),  # it may wait for the other
        (locked(20, is_still=False), outside(21)),
        (locked(20), outside(21), outside(22)),
        (locked(20), outside(21), a_process(22, (), waits_for=SOCKET)),
        (locked(20), locked(21)),
    ],
)
def test_without_stacks_nobody_is_named_where_the_waits_may_depend_on_each_other(others: tuple[Rank, ...]) -> None:
    found = explain(*others)
    assert (pids(found), found.confidence) == ([], "none")


@pytest.mark.parametrize(
    ("waiting", "odd", "confidence"),
    [
        (BARRIER, a_process(21, READING, **OUTSIDE), "medium"),
        (BARRIER, a_process(21, READING, waits_for=TIMER), "medium"),
        (BARRIER, a_process(21, READING, waits_for=LOCK), "low"),
        (EVENT, a_process(21, READING, **OUTSIDE), "low"),
    ],
)
def test_the_worker_that_is_not_in_the_barrier_is_named(waiting: tuple[Frame, ...], odd: Rank, confidence: str) -> None:
    at_barrier = [a_process(pid, stack(*waiting, call("train"), MAIN), **LOCKED) for pid in (20, 22, 23)]
    for ranks in ([*at_barrier[:1], odd], [*at_barrier, odd]):
        found = explain(*ranks)
        assert (pids(found), found.confidence) == ([21], confidence)


def test_who_waits_in_a_barrier_is_not_named_beside_one_that_waits_for_a_collective() -> None:
    at_barrier = a_process(20, stack(*BARRIER, call("train"), MAIN), **LOCKED)
    found = explain(at_barrier, a_process(21, stack(*ALL_REDUCE, call("train"), MAIN)))
    assert (named(found), found.confidence) == ([], "none")


def test_nobody_is_named_while_those_that_wait_in_the_barrier_wake_up() -> None:
    for stacks in (stack(*BARRIER, call("train"), MAIN), ()):
        awake = [a_process(pid, stacks, **LOCKED | {"is_still": False}) for pid in (20, 22, 23)]
        found = explain(*awake, a_process(21, READING if stacks else (), waits_for=TIMER))
        assert (pids(found), found.confidence) == ([], "none")
        woke = "Pids 20, 22 and 23 woke up during the inspection, so the training may be making progress."
        assert found.text.endswith(woke)


# ---------------------------------------------------------------- a process and its children


def parent(*children: Rank, **known: object) -> Rank:
    return a_process(10, (), **{**LOCKED, "children": children, **known})


def worker(pid: int, **known: object) -> Rank:
    return locked(pid, is_spawned=True, **known)


STUCK = worker(21, **OUTSIDE)


def test_a_process_whose_children_wait_for_each_other_may_wait_for_the_one_outside() -> None:
    found = explain(parent(worker(20), STUCK))
    assert (pids(found), found.confidence) == ([21], "low")
    odd = "its child process with pid 21 waits for a pipe (other end: no visible process)"
    assert found.text.endswith(f"waits for a lock; {odd}: perhaps the training is waiting for it.")


def test_a_child_is_named_with_medium_confidence_where_each_wait_is_known() -> None:
    waits = {"waits_for": PIPE, "awaits": (20, 21)}
    others = worker(20, waits_for=PIPE, awaits=(10,))
    assert explain(parent(others, STUCK, **waits)).confidence == "medium"
    assert explain(parent(worker(20), STUCK, **waits)).confidence == "low"
    assert explain(parent(replace(STUCK, is_spawned=False), waits_for=CHILD, awaits=(21,))).confidence == "medium"


@pytest.mark.parametrize(
    "rank",
    [
        parent(worker(20), replace(STUCK, is_spawned=False)),  # such as a helper that sleeps
        parent(worker(20, cpu_cores=0.9), STUCK),
        parent(worker(20, cpu_cores=None), STUCK),
        parent(STUCK, cpu_cores=0.9),
        parent(STUCK, waits_for=TIMER),
        parent(worker(20, is_still=False), STUCK),
        parent(STUCK, waits_for=DISK, waits_outside=True),
        parent(worker(20), worker(21)),
    ],
)
def test_no_child_is_named_where_the_training_may_do_something_else(rank: Rank) -> None:
    found = explain(rank)
    assert (pids(found), found.confidence) == ([], "none")
    found = explain_roll_call(RollCall((parent(STUCK),)), is_moving=True)
    assert (pids(found), found.confidence) == ([], "medium"), "it makes steps"


def test_the_threads_are_named_for_which_the_main_thread_may_wait() -> None:
    join = (call("_wait_for_tstate_lock", f"{STD}/threading.py", 1132), call("join", f"{STD}/threading.py", 1112), MAIN)
    threads = [Stack(f"T{number}", (call(f"take_{number}", line=number),)) for number in (1, 2)]
    idle = Stack("pool", (call("wait", f"{STD}/threading.py", 1),))
    found = explain(a_process(10, (*stack(*join), *threads, idle), **LOCKED))
    assert found.confidence == "none"
    assert found.text.endswith("Other threads of the process: T1 is in train.py:1 take_1; T2 is in train.py:2 take_2.")
