"""What the roll call concludes from what ranks do: whom it names, how sure it is, and the paragraph in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.verdict.some_ranks import (
    ALL_REDUCE,
    C10D,
    LOADING,
    MAIN,
    NEXT_BATCH,
    PACKAGES,
    RECEIVING,
    SENDING,
    STD,
    TRAIN,
    a_process,
    a_rank,
    call,
    check,
    half,
    loading,
    named,
    stack,
    world,
)
from training_monitor.targets.proc_stat import Meeting
from training_monitor.why.ranks import DISK, LOCK, PIPE, TIMER, Collective, Finding, Frame, Rank, RankGpu, RollCall
from training_monitor.why.roll_call import MOST_MISSING, explain_roll_call, find_behind, find_missing

XID = Finding("xid", "kernel message, 5 seconds ago: Xid 79, GPU has fallen off the bus", "local", "n7", True)
OOM = Finding("oom_kill", "the kernel killed process 77 (python) for memory", "local")
IN_ALL_REDUCE = "in all_reduce, called at train.py:88"
IN_LOAD_BATCH = "in data.py:41 load_batch, which waits for a pipe"
THREE_WAIT = f"3 of 4 ranks wait {IN_ALL_REDUCE}"
IN_PIPE = f"is {IN_LOAD_BATCH}: look there."
IS_MISSING = "is missing: its process has ended, or was never started."
ELSEWHERE = "on hosts that were not queried or did not respond"
AMONG_CHILDREN = "Among the child processes of"
PERHAPS = "perhaps the others are waiting for it."
NOTHING_TELLS = "Nothing distinguishes the ranks: it is unknown which one is late."
NO_STACKS = (
    "No stacks could be read, and the kernel's report does not distinguish them: it is unknown which one is late."
)


FLATTENS = stack(call("flatten", "/w/sync.py", 4), TRAIN, MAIN)

# ---------------------------------------------------------------- by their stacks


def test_the_one_that_is_not_in_the_collective_is_named() -> None:
    found = check(world(4, {1: loading(1)}), [1], "high", f"{THREE_WAIT}; rank 1 (pid 101) {IN_PIPE}")
    assert [(each.where, len(each.ranks), each.waits, each.is_majority) for each in found.groups] == [
        ("all_reduce, called at train.py:88", 3, True, True),
        ("data.py:41 load_batch", 1, False, False),
    ]
    assert found.culprits[0].where == "data.py:41 load_batch"
    for position in (0, 2, 3):
        assert named(explain_roll_call(RollCall(world(4, {position: loading(position)})))) == [position]


def test_who_waits_in_a_collective_is_never_at_fault_however_few() -> None:
    text = f"Rank 0 (pid 100) waits {IN_ALL_REDUCE}; rank 1 (pid 101) {IN_PIPE}"
    check(world(2, {1: loading(1, 2)}), [1], "high", text)
    text = f"Rank 2 (pid 102) waits {IN_ALL_REDUCE}; ranks 0, 1 and 3 are {IN_LOAD_BATCH}: look there."
    check(world(4, {each: loading(each) for each in (0, 1, 3)}), [0, 1, 3], "high", text)


def test_of_two_that_differ_in_their_own_code_only_one_that_cannot_wait_is_named() -> None:
    one, other = stack(call("a"), MAIN), stack(call("b", line=9), MAIN)
    text = f"Rank 0 is in train.py:88 a; rank 1 is in train.py:9 b. {NOTHING_TELLS}"
    check((a_rank(0, one, 2), a_rank(1, other, 2)), [], "none", text)
    # A handle of a collective waits for a lock as well.
    check((a_rank(0, one, 2, waits_for=LOCK), a_rank(1, other, 2)), [], "none", text)
    late = "rank 1 (pid 101) is in train.py:9 b, which waits for a timer: look there."
    ranks = (a_rank(0, one, 2), a_rank(1, other, 2, waits_for=TIMER))
    check(ranks, [1], "medium", f"Rank 0 (pid 100) waits in train.py:88 a; {late}")


def test_all_at_one_place() -> None:
    check(world(4), [], "none", f"All 4 ranks wait {IN_ALL_REDUCE}. {NOTHING_TELLS}")
    check(world(2), [], "none", f"Both ranks wait {IN_ALL_REDUCE}. {NOTHING_TELLS}")
    text = f"All 4 ranks are in data.py:41 load_batch and wait for a pipe. {NOTHING_TELLS}"
    check(tuple(loading(each) for each in range(4)), [], "none", text)


def test_of_two_odd_ones_the_one_that_left_the_way_first_is_named() -> None:
    """Rank 2 is in what the others call at the same line."""
    ranks = world(4, {1: loading(1), 2: a_rank(2, FLATTENS, waits_for=LOCK)})
    text = f"2 of 4 ranks wait {IN_ALL_REDUCE}; rank 1 (pid 101) {IN_PIPE} Rank 2 is in sync.py:4 flatten."
    check(ranks, [1], "high", text)
    found = explain_roll_call(RollCall(tuple(replace(each, pid=7, host=f"k8s://ml/w-{each.rank}") for each in ranks)))
    assert named(found) == [1], "processes of different pods with the same number are not mixed up"
    assert "2 of 4 ranks wait" in found.text and "rank 1 (pod w-1, pid 7)" in found.text
    evaluating = a_rank(2, stack(call("evaluate", line=95), MAIN), waits_for=TIMER)
    both = explain_roll_call(RollCall(world(4, {1: loading(1), 2: evaluating})))
    assert named(both) == [1, 2], "both left it at the same place"


def test_one_way_to_read_stacks_tells_the_class_and_another_does_not() -> None:
    ranks = world(4, {3: loading(3)})
    qualified = stack(*ALL_REDUCE, call("Loop.train"), call("Loop.main", line=120))
    found = explain_roll_call(RollCall((ranks[0], replace(ranks[1], stacks=qualified), *ranks[2:])))
    assert [len(each.ranks) for each in found.groups] == [3, 1] and named(found) == [3]


def test_a_busy_rank_on_a_crowded_machine() -> None:
    busy = a_rank(1, stack(call("spin", "/w/data.py", 5), MAIN), state="R", cpu_cores=0.08, waits_for=None)
    for uses_gpu, what, confidence in ((False, "computes", "high"), (None, "is busy", "medium")):
        text = f"{THREE_WAIT}; rank 1 (pid 101) is in data.py:5 spin, which {what} (0.1 CPUs): look there."
        check(world(4, {1: replace(busy, uses_gpu=uses_gpu)}), [1], confidence, text)


def test_ranks_that_spin_for_their_gpu_are_the_majority_though_they_look_busy() -> None:
    spinning = stack(call("item_of_loss", line=90), MAIN)
    ranks = [a_rank(each, spinning, state="R", cpu_cores=1.0, waits_for=None) for each in range(4)]
    ranks[2] = loading(2)
    found = explain_roll_call(RollCall(tuple(ranks)))
    assert (named(found), found.confidence) == ([2], "high")


def test_a_majority_that_waits_for_something_of_its_own_makes_it_uncertain() -> None:
    ranks = [loading(each) for each in range(4)]
    ranks[3] = a_rank(3, stack(call("meet", line=9), MAIN))
    odd = "rank 3 (pid 103) is in train.py:9 meet, which waits for a socket"
    check(tuple(ranks), [3], "low", f"3 of 4 ranks wait in data.py:41 load_batch; {odd}: {PERHAPS}")


# ---------------------------------------------------------------- barriers and pipelines


def test_the_server_of_a_barrier_of_ones_own_is_not_late() -> None:
    barrier = "/w/barrier.py"
    meeting = stack(call("recv", f"{STD}/socket.py", 1), call("barrier", barrier, 40), TRAIN, MAIN)
    serving = a_rank(0, stack(call("accept", f"{STD}/socket.py", 2), call("barrier", barrier, 30), TRAIN, MAIN))
    ranks = world(4, {0: serving}, stacks=meeting)
    check(
        ranks,
        [],
        "none",
        "Ranks 1 to 3 are in recv, called at barrier.py:40; rank 0 is in accept, called at barrier.py:30. "
        f"{NOTHING_TELLS}",
    )
    check(
        (*ranks[:3], loading(3)),
        [3],
        "medium",
        f"2 of 4 ranks wait in recv, called at barrier.py:40; rank 3 (pid 103) {IN_PIPE} Rank "
        "0 is in accept, called at barrier.py:30.",
    )


def test_another_collective_may_be_a_pipeline_or_a_fault() -> None:
    sends, receives = "in send, called at pipe.py:20", "in recv, called at pipe.py:12"
    odd = f"rank 3 (pid 103) is in another collective ({receives.removeprefix('in ')})"
    ranks = world(4, {3: a_rank(3, RECEIVING)}, stacks=SENDING)
    check(ranks, [3], "low", f"3 of 4 ranks wait {sends}; {odd}: {PERHAPS}")
    unknown = "All of them are waiting for others, in different calls: it is unknown which one is late."
    ranks = tuple(a_rank(each, (SENDING, RECEIVING)[each % 2]) for each in range(4))
    check(ranks, [], "none", f"Ranks 0 and 2 are {sends}; ranks 1 and 3 are {receives}. {unknown}")


def test_who_is_in_no_collective_comes_before_who_is_in_another() -> None:
    gathering = stack(call("all_gather", C10D, 3000), call("sync", line=60), MAIN)
    assert named(explain_roll_call(RollCall(world(5, {1: a_rank(1, gathering, 5), 2: loading(2, 5)})))) == [2]


# ---------------------------------------------------------------- where a stack is


@pytest.mark.parametrize(
    ("frames", "where"),
    [
        ((*ALL_REDUCE, TRAIN), "all_reduce, called at train.py:88"),
        ((*ALL_REDUCE, call("...", "", 0), MAIN), "all_reduce, called at train.py:120"),
        ((call("barrier", C10D, 1), *ALL_REDUCE[1:], TRAIN), "barrier, called at train.py:88"),
        ((call("Accelerator.wait_for_everyone", f"{PACKAGES}/accelerate/a.py"), TRAIN),
         "Accelerator.wait_for_everyone, called at train.py:88"),
        ((*ALL_REDUCE, call("fit", f"{PACKAGES}/frame/loop.py", 3), TRAIN), "all_reduce in fit, called at train.py:88"),
        ((call("poll", f"{STD}/selectors.py"), call("load", f"{PACKAGES}/frame/data.py"),
          call("fit", f"{PACKAGES}/frame/loop.py"), TRAIN), "load in fit, called at train.py:88"),
        ((*ALL_REDUCE, call("training_step", f"{PACKAGES}/transformers/trainer.py", 7),
          call("train", f"{PACKAGES}/transformers/trainer.py", 5), MAIN), "all_reduce, called at trainer.py:7"),
        ((*ALL_REDUCE, call("fit", f"{PACKAGES}/frame/loop.py", 3), call("<module>", "/v/bin/frame", 8)), "all_reduce, "
         "called at loop.py:3"),
        (ALL_REDUCE[:1], "distributed_c10d.py:2500 all_reduce"),
        ((call("step", "/w/a/lib.py", 3),), "lib.py:3 step"),
        ((Frame("step", "train.py"),), "train.py step"),
        ((Frame("step", ""),), "? step"),
    ],
)  # fmt: skip
def test_the_place_of_a_stack(frames: tuple[Frame, ...], where: str) -> None:
    [group] = explain_roll_call(RollCall((a_rank(0, stack(*frames)), a_rank(1, stack(*frames))))).groups
    assert group.where == where


@pytest.mark.parametrize("outermost", [MAIN, call("<module>", "/v/bin/frame", 8)])
def test_a_trainer_that_is_an_installed_package_hides_no_rank(outermost: Frame) -> None:
    """All own frames are the same: what is called within them is not."""
    fit = call("fit", f"{PACKAGES}/frame/loop.py", 10)
    waiting = stack(*ALL_REDUCE, call("step", f"{PACKAGES}/frame/loop.py", 30), fit, outermost)
    at_data = stack(call("poll", f"{STD}/selectors.py"), call("load", f"{PACKAGES}/frame/data.py", 20), fit, outermost)
    found = explain_roll_call(RollCall(world(4, {1: a_rank(1, at_data, waits_for=PIPE)}, stacks=waiting)))
    assert (named(found), found.confidence) == ([1], "high")


def test_collectives_within_the_backward_of_ddp_have_no_frame_of_their_own() -> None:
    backward = stack(call("backward", f"{PACKAGES}/torch/_tensor.py", 500), call("train", line=90), MAIN)
    found = explain_roll_call(RollCall(world(4, {1: loading(1)}, stacks=backward, waits_for=LOCK)))
    assert named(found) == [1] and "3 of 4 ranks wait in backward, called at train.py:90" in found.text


# ---------------------------------------------------------------- by the kernel and the GPUs


def test_without_stacks_the_kernel_may_tell_one_of_four_apart() -> None:
    busy = a_rank(1, (), state="R", cpu_cores=0.98)
    for odd, does in ((a_rank(1, (), waits_for=PIPE), "waits for a pipe"), (busy, "is busy (1.0 CPUs)")):
        text = f"3 of 4 ranks wait for a socket; rank 1 (pid 101) {does}: {PERHAPS}"
        check(world(4, {1: odd}, stacks=()), [1], "low", text)


def test_without_stacks_it_is_unknown_where_the_kernel_says_the_same_or_nothing() -> None:
    one_and_one = (a_rank(0, (), 2), a_rank(1, (), 2, waits_for=PIPE))
    two_and_two = world(4, {each: a_rank(each, (), waits_for=PIPE) for each in (0, 1)}, stacks=())
    for ranks, text in (
        (world(4, stacks=()), "All 4 ranks wait for a socket."),
        (world(4, stacks=(), waits_for=None), "All 4 ranks are at an unknown location."),
        (one_and_one, "Rank 0 (pid 100) waits for a socket; rank 1 (pid 101) waits for a pipe."),
        (two_and_two, "2 of 4 ranks wait for a pipe; 2 of 4 ranks wait for a socket."),
    ):
        check(ranks, [], "none", f"{text} {NO_STACKS}")


def test_some_stacks_are_known_and_others_are_not() -> None:
    odd = f"{THREE_WAIT}; rank 1 (pid 101) waits for a pipe: {PERHAPS}"
    check(world(4, {1: a_rank(1, (), waits_for=PIPE)}), [1], "low", odd)
    other = "rank 1 (pid 101) waits for a pipe: perhaps the other is waiting for it."
    ranks = world(2, {1: a_rank(1, (), 2, waits_for=PIPE)})
    check(ranks, [1], "low", f"Rank 0 (pid 100) waits {IN_ALL_REDUCE}; {other}")
    unclear = f"{THREE_WAIT}. No stack of rank 1 could be read: it is unknown which rank is late."
    check(world(4, {1: a_rank(1, ())}), [], "none", unclear)
    check(world(4, {1: a_rank(1, (), waits_for=None)}), [], "none", unclear)
    blocked = a_rank(2, (), state="D", waits_for=DISK, wait_channel="nfs_wait_bit_killable")
    blocked_text = f"rank 2 (pid 102) waits for a disk (nfs_wait_bit_killable): {PERHAPS}"
    ranks = world(4, {1: a_rank(1, ()), 2: blocked})
    check(ranks, [2], "low", f"2 of 4 ranks wait {IN_ALL_REDUCE}; {blocked_text}")


def test_stopped_ranks_are_the_cause() -> None:
    for rank, why in (
        (a_rank(1, state="T", waits_for=None), f"stopped by a signal, {IN_ALL_REDUCE}"),
        (a_rank(1, (), state="t"), "held by a debugger"),
    ):
        check(world(4, {1: rank}), [1], "high", f"{THREE_WAIT}; rank 1 (pid 101) is {why}: look there.")
    check(world(4, state="T"), [], "none", "All 4 ranks are stopped by a signal.")


def test_a_gpu_that_idles_while_the_others_wait_in_a_kernel() -> None:
    def rank(number: int, utilization: float, power: float) -> Rank:
        return a_rank(number, (), state="R", cpu_cores=1.0, gpus=(RankGpu(number, utilization, power),))

    ranks = [rank(each, 100.0, 0.2) for each in range(4)]
    assert explain_roll_call(RollCall(tuple(ranks))).confidence == "none"
    ranks[2] = rank(2, 0.0, 0.1)
    check(
        tuple(ranks),
        [2],
        "low",
        f"3 of 4 ranks wait for their GPUs; rank 2 (pid 102) has an idle GPU, unlike the others: {PERHAPS}",
    )


# ---------------------------------------------------------------- who is missing


def test_a_rank_that_is_nowhere() -> None:
    found = check(world(4, {2: None}), [2], "high", f"{THREE_WAIT}; rank 2 {IS_MISSING}")
    assert (found.missing, found.unseen, found.culprits[0].seen) == ((2,), (), None)
    many = "ranks 1 to 3 are missing: their processes have ended, or were never started."
    only_one = world(4, {1: None, 2: None, 3: None})
    check(only_one, [1, 2, 3], "medium", f"Rank 0 (pid 100) waits {IN_ALL_REDUCE}; {many}")


def test_a_missing_rank_explains_what_little_the_others_differ_in() -> None:
    assert named(explain_roll_call(RollCall(world(4, {2: None, 3: a_rank(3, (), waits_for=PIPE)})))) == [2]
    found = explain_roll_call(RollCall(world(5, {2: None, 3: loading(3, 5)})))
    assert (named(found), found.confidence) == ([2, 3], "high")
    assert "; rank 2 is missing: " in found.text and found.text.endswith(f"rank 3 (pid 103) {IN_PIPE}")


def test_ranks_of_other_hosts_are_not_called_missing() -> None:
    not_seen = f"Not seen: ranks 4 to 7, {ELSEWHERE}"
    all_seen = f"All 4 ranks seen wait {IN_ALL_REDUCE}. {NOTHING_TELLS}"
    check(half(), [], "none", f"{all_seen} {not_seen}: the late rank may be there.")
    without = tuple(each for each in half() if each.rank != 2)
    text = f"All 3 ranks seen wait {IN_ALL_REDUCE}; rank 2 {IS_MISSING} {not_seen}."
    found = check(without, [2], "high", text)
    assert (found.missing, found.unseen) == ((2,), (4, 5, 6, 7))
    assert explain_roll_call(RollCall(half(), is_whole=True)).missing == (4, 5, 6, 7)
    # Hosts that do not answer make it less certain.
    silent = {"k8s://ml/w-2": "no answer within 20 s"}
    asked = f"Could not be queried: pod w-2 (no answer within 20 s). {not_seen}"
    seen = RollCall(half(), silent=silent, is_whole=False)
    check(seen, [], "none", f"{all_seen} {asked}: the late rank may be there.")
    seen = RollCall(half(odd=2), silent=silent, is_whole=False)
    check(seen, [2], "medium", f"3 of the 4 ranks seen wait {IN_ALL_REDUCE}; rank 2 (pid 102) {IN_PIPE} {asked}.")


def test_ranks_beside_the_process_that_was_named_are_not_missing() -> None:
    found = check(
        RollCall((a_rank(1),), is_whole=False, partial=frozenset({"local"})),
        [],
        "none",
        "Rank 1 (pid 101), the only one seen, is in all_reduce, called at train.py:88, which waits for a socket. Not "
        "seen: ranks 0, 2 and 3, which may be among processes that were not inspected, or on hosts that were not "
        "queried or did not respond: the late rank may be there.",
    )
    assert (found.missing, found.unseen) == ((), (0, 2, 3))


def test_a_process_whose_number_is_unknown_may_be_the_missing_rank() -> None:
    ranks = world(4, {2: a_process(555)})
    found = explain_roll_call(RollCall(ranks))
    assert (found.missing, found.unseen, found.culprits) == ((), (2,), ())
    assert "Not identified: rank 2, because the rank numbers of some processes could not be read" in found.text
    zombie = replace(a_process(556), rank=None, state="Z")
    text = explain_roll_call(RollCall((a_rank(0, world=4, local_world_size=None), zombie))).text
    assert "Not identified or not seen: ranks 1 to 3, among processes" in text


def test_worlds_that_make_no_sense() -> None:
    for size in (0, 10**9):
        assert find_missing(RollCall((a_rank(0, world=size),)), [a_rank(0, world=size)]) == ((), ())
    strange = a_rank(0, world=4, local_rank=3, local_world_size=10**9)
    assert find_missing(RollCall((strange,)), [strange]) == ((1, 2, 3), ())
    beyond = replace(a_rank(9, world=4), local_world_size=2)
    assert find_missing(RollCall((beyond,)), [beyond]) == ((0, 1), (2, 3))


def test_ranks_that_cannot_be_one_training_are_no_answer() -> None:
    twice = replace(loading(1), pid=501)
    found = check(
        (*world(4), twice),
        [],
        "none",
        "These processes cannot belong to one training: 2 processes have rank 1 (pids 101, 501). "
        "Name one rank of your training by its PID.",
    )
    assert (found.missing, found.unseen, found.nodes()) == ((), (), ())
    assert explain_roll_call(RollCall((*world(4), twice)), is_moving=True).confidence == "medium"


def test_ranks_that_may_meet_at_different_places_are_of_low_confidence() -> None:
    places = [Meeting(f"10.0.0.{number}", "29500", f"host-{number}") for number in range(4)]
    ranks = [replace(each, meeting=places[each.rank or 0]) for each in world(4, {1: loading(1)})]
    found = explain_roll_call(RollCall(tuple(ranks)))
    assert (named(found), found.confidence) == ([1], "low")


def test_zombies() -> None:
    zombie = a_process(777, (), state="Z", waits_for=None)
    missing = f"{THREE_WAIT}; rank 2 {IS_MISSING}"
    check((*world(4, {2: None}), zombie), [2], "high", f"{missing} Pid 777 has ended (a zombie).")
    nobody = [a_rank(each, (), state="Z") for each in range(4)]
    check(tuple(nobody), [], "none", "No process of the training is running: 4 zombies are left.")
    check((zombie,), [], "none", "No process of the training is running: 1 zombie is left.")
    alive = a_rank(1, world=2, local_world_size=None)
    text = explain_roll_call(RollCall((alive, zombie), findings=(cause("zombie", 777),))).text
    assert "pid 777 is there" in text.lower() and "has ended (a zombie)" not in text
    assert "Not identified: rank 0" in text and "not queried" not in text
    faults = tuple(Finding("gpu", f"GPU {each} is bad", "local", is_hardware=True) for each in range(3))
    text = explain_roll_call(RollCall((alive, zombie), findings=(*faults, cause("zombie", 777)))).text
    assert "Pid 777 has ended (a zombie)." in text
    one_of_two = a_rank(0, local_world_size=2)
    text = explain_roll_call(RollCall((one_of_two, zombie, replace(zombie, pid=778)))).text
    assert "rank 1 is missing" in text and "Not seen: ranks 2 and 3, on hosts that were not queried" in text
    elsewhere = [replace(zombie, pid=pid, host="k8s://ml/w-1") for pid in (777, 778)]
    two_of_two = [a_rank(each, local_world_size=2) for each in (0, 1)]
    assert "Not identified: ranks 2 and 3" in explain_roll_call(RollCall((*two_of_two, *elsewhere))).text


def test_a_zombie_among_ranks_without_numbers_may_have_been_one() -> None:
    zombie = a_process(777, (), state="Z", waits_for=None)
    ranks = tuple(a_process(each) for each in (501, 502, 503))
    found = explain_roll_call(RollCall((*ranks, zombie)))
    assert [each.seen for each in found.culprits] == [zombie] and found.confidence == "low"
    text = f"All 3 ranks wait {IN_ALL_REDUCE}; the process with pid 777 has ended (a zombie): {PERHAPS}"
    assert found.text == text
    found = explain_roll_call(RollCall((*ranks, loading(0, rank=None, world_size=None), zombie)))
    assert [each.seen.pid for each in found.culprits if each.seen] == [100]
    assert found.text.endswith("look there. Pid 777 has ended (a zombie).")


def test_ranks_without_numbers() -> None:
    ranks = tuple(a_process(each, host=f"k8s://ml/w-{each}") for each in (501, 503, 504))
    odd = a_process(502, LOADING, waits_for=PIPE)
    found = explain_roll_call(RollCall((*ranks, odd)))
    assert found.text == (f"{THREE_WAIT}; the process with pid 502 {IN_PIPE}")
    found = explain_roll_call(RollCall((*ranks, replace(odd, host="k8s://ml/w-9/c"))))
    assert "; the process with pid 502 (pod w-9) is in" in found.text


def test_nobody_at_all() -> None:
    check(RollCall(), [], "none", "No process of the training was found.")
    silent = RollCall(silent={"ssh://gpu-b": "no answer within 20 s"})
    text = "No rank could be inspected. Could not be queried: gpu-b (no answer within 20 s)."
    check(silent, [], "none", text)
    check(RollCall(collectives=collectives(7, 8)), [], "none", "No process of the training was found.")


# ---------------------------------------------------------------- collectives, hardware


def collectives(*sequences: int, group: str = "0") -> tuple[Collective, ...]:
    return tuple(
        Collective(rank, group, "nccl:all_reduce", sequence, "started", TRAIN)
        for rank, sequence in enumerate(sequences)
    )


def test_the_flight_recorder_says_who_is_behind() -> None:
    come_to = "rank 2 (pid 102) has only reached collective 7 (nccl:all_reduce, called at train.py:88) and is in"
    for odd, place in ({}, "all_reduce, called at train.py:88"), ({2: loading(2)}, "data.py:41 load_batch"):
        seen = RollCall(world(4, odd), collectives=collectives(8, 8, 7, 8))
        check(seen, [2], "high", f"{THREE_WAIT}; {come_to} {place}: look there.")
    assert explain_roll_call(RollCall(world(4), collectives=collectives(8, 8, 8, 8))).culprits == ()


def test_who_is_behind_in_a_group() -> None:
    assert find_behind(()) == {}
    assert list(find_behind(collectives(8, 7))) == [1]
    assert find_behind(collectives(8, 8, 7, 7)) == {}, "half of them"
    assert find_behind(collectives(9, 8, 8, 8)) == {}, "one ran ahead"
    assert find_behind(collectives(8)) == {}
    assert list(find_behind((*collectives(8, 8, 8), *collectives(3, 2, 3, group="1")))) == [1]
    assert find_behind((*collectives(8, 7, 8), *collectives(8, 8, 8))) == {}, "the newest of each counts"


def cause(kind: str, *pids: int) -> Finding:
    return Finding(kind, f"pid {pids[0]} is there", "local", pids=pids)


@pytest.mark.parametrize(
    ("ranks", "causes", "confidence"),
    [
        ((a_process(7),), [cause("pipe", 7)], "high"),
        ((a_process(7),), [cause("lock", 8)], "medium"),  # of a child
        ((a_process(7),), [cause("blocked", 7)], "none"),
        ((a_rank(0, local_world_size=None),), [cause("pipe", 100)], "medium"),  # others may be elsewhere
        ((a_process(7), a_process(8)), [cause("pipe", 7)], "none"),
        ((a_process(7), a_process(8)), [cause("stopped", 7, 8)], "high"),
        ((a_process(7), a_process(8)), [cause("ended", 5)], "high"),
        ((), [cause("zombie", 7)], "high"),
        ((a_process(7),), [], "none"),
    ],
)
def test_what_the_kernel_says_of_processes_that_wait_for_no_other(
    ranks: tuple[Rank, ...], causes: list[Finding], confidence: str
) -> None:
    found = explain_roll_call(RollCall(ranks, tuple(causes)))
    assert (found.culprits, found.confidence) == ((), confidence)
    assert all(f"Pid {each.pids[0]} is there." in found.text for each in causes)
    assert ranks or found.text == "Pid 7 is there."


def test_faults_of_the_hardware_stand_first_and_name_a_rank() -> None:
    assert explain_roll_call(RollCall(world(4, {1: loading(1)}), findings=(OOM, XID))).text == (
        f"{THREE_WAIT}; rank 1 (pid 101) {IN_PIPE} Kernel message, 5 "
        "seconds ago: Xid 79, GPU has fallen off the bus. The kernel killed process 77 (python) for memory."
    )
    found = explain_roll_call(RollCall(world(4), findings=(replace(XID, pids=(102,)),)))
    assert (named(found), found.confidence) == ([2], "medium")
    assert "; rank 2 (pid 102) has a hardware fault: look there. Kernel message, 5 seconds" in found.text
    elsewhere = replace(XID, pids=(102,), host="ssh://gpu-b")
    assert explain_roll_call(RollCall(world(4), findings=(elsewhere, replace(OOM, pids=(102,))))).culprits == ()
    every_rank = replace(XID, ranks=(0, 1, 2, 3))
    assert explain_roll_call(RollCall(world(4), findings=(every_rank,))).culprits == ()


def test_the_nodes_that_are_suspect_and_findings_beyond_a_few_are_counted() -> None:
    found = explain_roll_call(RollCall(world(4, {1: loading(1, node="n1")}, node="n0")))
    assert found.nodes() == ("n1",)
    more = tuple(replace(OOM, text=f"finding {each}") for each in range(9))
    text = explain_roll_call(RollCall(world(4), findings=(*more, XID))).text
    assert text.endswith("off the bus. Finding 0. Finding 1. 7 more findings are listed.")


# ---------------------------------------------------------------- children, stragglers, one rank


def worker(pid: int, *frames: Frame, **known: object) -> Rank:
    return a_process(pid, stack(*frames), **known)


BOOTSTRAP = call("BaseProcess._bootstrap", f"{STD}/multiprocessing/process.py", 314)
GET_ITEM = (call("__getitem__", "/w/data.py", 55), call("fetch", f"{PACKAGES}/torch/utils/data/_utils/fetch.py", 50))


@pytest.mark.parametrize(
    "above", [(), (BOOTSTRAP, *NEXT_BATCH[0].frames), (BOOTSTRAP, call("<module>", "<string>", 1))]
)
def test_a_data_worker_that_is_in_its_own_code_is_named(above: tuple[Frame, ...]) -> None:
    """Forked ones have the frames of their parent."""
    children = (
        worker(900, *GET_ITEM, *above),
        worker(901, call("get", f"{STD}/multiprocessing/queues.py", 110), *GET_ITEM, waits_for=PIPE),
        worker(902, call("read", f"{PACKAGES}/boto3/s3.py", 3), BOOTSTRAP, *NEXT_BATCH[0].frames),
        a_process(903, (), state="D", waits_for=DISK, wait_channel="nfs_wait"),
    )
    rank = a_rank(1, NEXT_BATCH, waits_for=PIPE, children=children)
    check(
        world(4, {1: rank}),
        [1],
        "high",
        f"{THREE_WAIT}; rank 1 (pid 101) is in _try_get_data, called at train.py:80, which "
        f"waits for a pipe: look there. {AMONG_CHILDREN} rank 1 (pid 101), pid 900 is in "
        "data.py:55 __getitem__ and waits for a socket; pid 903 waits for a disk (nfs_wait).",
    )


def test_a_training_of_one_process() -> None:
    alone = a_rank(0, NEXT_BATCH, 1, waits_for=PIPE)
    is_at = "Rank 0 (pid 100), the only rank, is in _try_get_data, called at train.py:80, which waits for a pipe."
    check((alone,), [], "none", is_at)
    child = (
        "Among the child processes of rank 0 (pid 100), pid 900 is in data.py:55 __getitem__ and waits for a socket."
    )
    check((replace(alone, children=(worker(900, *GET_ITEM),)),), [], "none", f"{is_at} {child}")
    check((a_rank(0, (), 1, waits_for=PIPE),), [], "none", "Rank 0 (pid 100), the only rank, waits for a pipe.")
    unknown = a_process(7, (), waits_for=None, host="k8s://ml/worker-a")
    check((unknown,), [], "none", "The process with pid 7 (pod worker-a), the only rank, is at an unknown location.")


def test_a_training_that_moves_has_no_culprit() -> None:
    found = explain_roll_call(RollCall(world(4, {1: loading(1)})), is_moving=True)
    assert (found.culprits, found.confidence) == ((), "medium")
    moves = "The training is making progress, so no rank is at fault."
    assert found.text == f"{moves} Ranks 0, 2 and 3 are {IN_ALL_REDUCE}; rank 1 is in data.py:41 load_batch."
    busy = explain_roll_call(RollCall(world(4, stacks=(), cpu_cores=0.9)), is_moving=True)
    assert busy.text == f"{moves} All 4 ranks are busy."


@pytest.mark.parametrize("is_moving", [True, None])
def test_stragglers_by_batches_and_cpu(is_moving: bool | None) -> None:
    ranks = world(4, {2: a_rank(2, batches=90, cpu_cores=0.45), 3: a_rank(3, batches=99)}, batches=100, cpu_cores=0.15)
    found = explain_roll_call(RollCall(ranks), is_moving=is_moving)
    assert found.culprits == ()
    assert "Most ranks have begun 100 batches, rank 2 (pid 102) only 90." in found.text
    assert "Rank 2 (pid 102) uses 3.0 times the CPU of the others." in found.text
    assert "rank 3" not in found.text


# ---------------------------------------------------------------- large and hostile ones


def test_a_huge_world_has_a_short_text_in_a_short_time() -> None:
    seen = [replace(a_rank(each, world=100_000), local_world_size=1024) for each in range(1024)]
    found = explain_roll_call(RollCall(tuple(seen)))
    assert found.unseen == tuple(range(1024, 100_000))
    assert "Not seen: ranks 1024 to 99999, on hosts" in found.text
    seen[::3] = [replace(loading(each, 100_000), local_world_size=99_999) for each in range(0, 1024, 3)]
    found = explain_roll_call(RollCall(tuple(seen), is_whole=True))
    assert len(found.missing) == 100_000 - 1024 and len(found.culprits) == MOST_MISSING + 342
    assert found.text == (
        f"682 of 100000 ranks wait {IN_ALL_REDUCE}; ranks 1024 to 99999 are missing: their processes have ended, or "
        f"were never started; ranks 0, 3, 6, 9, 12, 15, 18, 21 and 334 more are {IN_LOAD_BATCH}: look there."
    )
    places = [a_rank(each, stack(call(f"f{each}", "/w/a.py", each)), 1024) for each in range(1024)]
    found = explain_roll_call(RollCall(tuple(places)))
    assert "rank 3 is in a.py:3 f3; the other ranks are at 1020 more places." in found.text


def test_names_of_strangers_are_shown_in_brief_and_on_one_line() -> None:
    token = "hf_" + "aBcD1234" * 4
    function, file = f"x\x1b[31m\n\x9b{token}", "/w/" + "y\t\ud800" * 100
    hostile = a_rank(1, stack(Frame(function, file, 2**52)), waits_for=PIPE, host=f"k8s://ml/\x1b]0;{'p' * 300}")
    found = explain_roll_call(
        RollCall(
            world(4, {1: replace(hostile, wait_channel="z" * 300, state="D")}),
            silent={f"ssh://h{each}\n": "why\n" * 999 for each in range(99)},
        )
    )
    assert named(found) == [1]
    assert found.text.isprintable() and token not in found.text and len(found.text) < 4000
    assert "and 95 more" in found.text
