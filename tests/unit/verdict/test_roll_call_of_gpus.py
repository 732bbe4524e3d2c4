"""Ranks that wait by NCCL or in a backward pass: their Python names no collective, and they look busy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.verdict.some_ranks import (
    ALL_REDUCE,
    C10D,
    DATALOADER,
    MAIN,
    PACKAGES,
    STD,
    TRAIN,
    a_rank,
    call,
    loading,
    named,
    stack,
)
from training_monitor.why.places import waits_for_others, where_is
from training_monitor.why.ranks import DISK, EVENTS, LOCK, SOCKET, Collective, Frame, Rank, RankGpu, RollCall, Stack
from training_monitor.why.roll_call import explain_roll_call, find_behind, find_mismatched

ITEM = stack(call("train", line=90), MAIN)  # running_loss += loss.item()
BACKWARD = stack(
    call("_engine_run_backward", f"{PACKAGES}/torch/autograd/graph.py", 824),
    call("backward", f"{PACKAGES}/torch/autograd/__init__.py", 347),
    call("Tensor.backward", f"{PACKAGES}/torch/_tensor.py", 626),
    call("train", line=90),
    MAIN,
)
BARRIER = stack(call("barrier", C10D, 4900), *ALL_REDUCE[1:], call("main", line=133))
POLLING = (call("select", f"{STD}/selectors.py", 415), call("wait", f"{STD}/multiprocessing/connection.py", 948))
NEXT = stack(*POLLING, call("_try_get_data", DATALOADER), call("__next__", DATALOADER), call("train", line=80), MAIN)
RECEIVES = (call("readinto", f"{STD}/socket.py"), call("urlopen", f"{PACKAGES}/urllib3/pool.py"))
UPLOADING = stack(*RECEIVES, call("save", line=60), MAIN)
WAITS, IDLES, COMPUTES = (RankGpu(0, 100.0, 0.2),), (RankGpu(0, 0.0, 0.1),), (RankGpu(0, 100.0, 0.9),)


def spinning(number: int, world: int = 4, **known: object) -> Rank:
    """A rank that waits for its GPU, on which NCCL waits for the others: CUDA spins."""
    return a_rank(number, ITEM, world, **{"state": "R", "cpu_cores": 1.0, "waits_for": None, "gpus": WAITS, **known})


def feeding(number: int, world: int = 4) -> Rank:
    """A rank that waits for its data workers."""
    return a_rank(number, NEXT, world, waits_for=EVENTS, cpu_cores=0.0, gpus=IDLES)


def in_barrier(number: int, world: int = 4) -> Rank:
    return a_rank(number, BARRIER, world, state="R", cpu_cores=1.0, waits_for=None, gpus=WAITS)


def told(*ranks: Rank, collectives: tuple[Collective, ...] = ()) -> tuple[list[int | None], str, str]:
    found = explain_roll_call(RollCall(ranks, collectives=collectives))
    return named(found), found.confidence, found.text


def without_gpus(*ranks: Rank) -> tuple[Rank, ...]:
    """The same ranks in pods, where nvidia-smi lists no processes."""
    return tuple(replace(each, gpus=()) for each in ranks)


@pytest.mark.parametrize("count", [3, 4, 8])
def test_who_left_the_loop_early_is_in_doubt_and_those_whose_gpus_wait_are_not(count: int) -> None:
    ranks = tuple(in_barrier(each, count) if each == 1 else spinning(each, count) for each in range(count))
    for seen in (ranks, without_gpus(*ranks)):
        culprits, confidence, text = told(*seen)
        assert (culprits, confidence) == ([1], "low")
        assert f"{count - 1} of {count} ranks wait in train.py:90 train; rank 1 (pid 101) is in another" in text


def test_a_backward_pass_waits_for_the_others_unless_it_computes() -> None:
    waiting = a_rank(0, BACKWARD, waits_for=LOCK, cpu_cores=0.0)
    assert waits_for_others(waiting) is True
    assert waits_for_others(replace(waiting, cpu_cores=1.0, uses_gpu=False)) is False
    assert waits_for_others(replace(waiting, cpu_cores=1.0, gpus=COMPUTES)) is False
    assert waits_for_others(replace(waiting, state="D")) is False
    ranks = [replace(waiting, rank=each, pid=100 + each) for each in range(4)]
    ranks[1] = a_rank(1, BARRIER, waits_for=LOCK)
    assert told(*ranks)[:2] == ([1], "low")
    ranks[1] = feeding(1)
    assert told(*ranks)[:2] == ([1], "high")
    assert told(*(replace(each, world_size=2, local_world_size=2) for each in ranks[:2]))[:2] == ([1], "high")


def test_who_computes_where_the_others_wait_is_late() -> None:
    ranks = [a_rank(each, BACKWARD, waits_for=LOCK, cpu_cores=0.0) for each in range(4)]
    ranks[2] = replace(ranks[2], state="R", cpu_cores=1.0, waits_for=None, uses_gpu=False)
    culprits, confidence, text = told(*ranks)
    assert (culprits, confidence) == ([2], "high")
    place = "in Tensor.backward, called at train.py:90"
    late = f"rank 2 (pid 102) is {place}, which computes (1.0 CPUs): look there."
    assert text == f"3 of 4 ranks wait {place}; {late}"
    ranks[2] = replace(ranks[0], rank=2, pid=102, waits_for=DISK)
    assert told(*ranks)[:2] == ([2], "high")


@pytest.mark.parametrize("is_pod", [False, True])
@pytest.mark.parametrize(
    "late",
    [
        feeding(1, 2),
        a_rank(1, NEXT, 2, waits_for=LOCK),
        a_rank(1, UPLOADING, 2, waits_for=SOCKET),
        loading(1, 2),
        a_rank(1, stack(call("load", f"{PACKAGES}/PIL/Image.py"), TRAIN), 2, state="R", cpu_cores=1.0, waits_for=None),
    ],
)
def test_of_two_ranks_the_one_with_work_of_its_own_is_late(late: Rank, is_pod: bool) -> None:
    ranks = (spinning(0, 2), late)
    assert told(*(without_gpus(*ranks) if is_pod else ranks))[:2] == ([1], "medium")


def test_of_two_that_may_both_wait_none_is_accused_unless_its_gpu_idles() -> None:
    assert told(spinning(0, 2), in_barrier(1, 2))[0] == []
    assert told(a_rank(0, BACKWARD, 2, waits_for=LOCK), in_barrier(1, 2))[0] == []
    ranks = [spinning(each) for each in range(4)]
    ranks[2] = replace(spinning(2), gpus=IDLES, stacks=stack(call("tokenize", "/w/data.py", 7), MAIN))
    culprits, confidence, text = told(*ranks)
    assert (culprits, confidence) == ([2], "medium")
    assert "rank 2 (pid 102) is in data.py:7 tokenize, which computes (1.0 CPUs): look there." in text


def test_ranks_that_may_wait_for_their_gpu_are_not_blamed() -> None:
    locked = a_rank(3, stack(call("take_lock", "/w/data.py", 9), MAIN), 8, waits_for=LOCK)
    ranks = [spinning(each, 8) for each in range(8)]
    ranks[1], ranks[3] = loading(1, 8), locked
    assert told(*ranks)[:2] == ([1, 3], "high")
    ranks[3] = replace(spinning(3, 8), stacks=stack(call("evaluate", line=60), MAIN))
    assert told(*ranks)[:2] == ([1], "high")


def test_the_reading_rank_is_named_despite_a_collective_of_two() -> None:
    ranks = [spinning(each, 8) for each in range(8)]
    ranks[4] = a_rank(4, stack(call("broadcast", C10D), call("get_batch", "/w/data.py", 30), MAIN), 8, waits_for=None)
    ranks[5] = a_rank(5, stack(call("read", "/w/data.py", 12), MAIN), 8, state="D", waits_for=DISK)
    culprits, confidence, text = told(*ranks)
    assert (culprits, confidence) == ([5], "high")
    assert text.endswith("Rank 4 is in broadcast, called at data.py:30.")


@pytest.mark.parametrize("name", ["deepspeed", "jax", "lightning", "megatron", "accelerate", "torch", "cupy"])
def test_the_name_of_an_environment_makes_no_collective(name: str) -> None:
    library = f"/opt/conda/envs/{name}/lib/python3.11"
    waiting = (call("wait", f"{library}/threading.py", 331), call("get", f"{library}/queue.py", 180))
    loader = call("__next__", f"{library}/site-packages/torch/utils/data/dataloader.py", 733)
    late = a_rank(1, stack(*waiting, loader, call("train", line=80), MAIN), waits_for=LOCK)
    assert waits_for_others(late) is False
    assert told(spinning(0), late, spinning(2), spinning(3))[:2] == ([1], "high")


def test_a_function_named_like_a_collective_may_write_a_checkpoint() -> None:
    saver = f"{PACKAGES}/torch/distributed/checkpoint"
    outer = (
        call("_DistWrapper.all_reduce", f"{saver}/utils.py", 230),
        call("_save_state_dict", f"{saver}/state_dict_saver.py", 513),
        call("save", f"{saver}/state_dict_saver.py", 180),
        call("_api_bc_check.<locals>.inner_func", f"{saver}/logger.py", 87),
        call("main", line=60),
    )
    done = stack(call("gather_object", C10D, 3000), *outer)
    ranks = [a_rank(each, done) for each in range(4)]
    ranks[2] = a_rank(2, stack(call("_write_item", f"{saver}/filesystem.py"), *outer), state="D", waits_for=DISK)
    culprits, confidence, text = told(*ranks)
    assert (culprits, confidence) == ([2], "high")
    assert text.startswith("3 of 4 ranks wait in gather_object in save, called at train.py:60; rank 2 (pid 102) is in")


@pytest.mark.parametrize("function", ["gather_and_upload", "wait_and_save", "reduce_metrics"])
def test_an_own_function_with_the_name_of_a_collective_excuses_nobody_from_one(function: str) -> None:
    barrier = stack(call("barrier", C10D, 4900), call(function, line=70), MAIN)
    ranks = [a_rank(each, barrier) for each in range(4)]
    ranks[0] = a_rank(0, stack(call("upload_file", f"{PACKAGES}/boto3/s3.py"), call(function, line=66), MAIN))
    assert told(*ranks)[:2] == ([0], "high")


def test_what_only_sounds_like_a_collective_or_decorates_is_not_where_a_rank_is() -> None:
    tensor, operations = f"{PACKAGES}/torch/_tensor.py", f"{PACKAGES}/accelerate/utils/operations.py"
    names = {"Tensor.__reduce_ex__": tensor, "Tensor._reduce_ex_internal": tensor, "send_to_device": operations}
    for name, file in names.items():
        assert waits_for_others(a_rank(0, stack(Frame(name, file), TRAIN))) is None, name
    norm = call("_NormPartial._reduce_value", f"{PACKAGES}/torch/distributed/tensor/ops.py")
    clip = call("clip_grad_norm_", f"{PACKAGES}/torch/nn/utils/clip_grad.py")
    wrapper = call("_no_grad.<locals>._no_grad_wrapper", f"{PACKAGES}/torch/nn/utils/clip_grad.py")
    rank = a_rank(0, stack(norm, clip, wrapper, TRAIN))
    assert where_is(rank) == "_NormPartial._reduce_value in clip_grad_norm_, called at train.py:88"


# ---------------------------------------------------------------- what was recorded of collectives


def at(rank: int, sequence: int, newest: int, name: str = "nccl:all_reduce", state: str = "started") -> Collective:
    return Collective(rank, "0", name, sequence, state, None, newest)


def test_a_host_that_waits_more_often_is_not_late() -> None:
    assert find_behind((at(0, 100, 100), at(1, 100, 120), at(2, 100, 120), at(3, 100, 120))) == {}
    late = at(3, 99, 99, state="completed")
    assert find_behind((at(0, 100, 100), at(1, 100, 120), at(2, 100, 120), late)) == {3: late}


def test_the_number_of_launches_alone_is_no_proof() -> None:
    counts = tuple(Collective(rank, "0", "AllReduce", 9 if rank == 1 else 10, "launched") for rank in range(4))
    ranks = [spinning(each) for each in range(4)]
    assert told(*ranks, collectives=counts)[:2] == ([1], "low")
    ranks[1] = feeding(1)
    assert told(*ranks, collectives=counts)[:2] == ([1], "high")


def test_a_rank_in_another_collective_at_the_same_number_is_named() -> None:
    wrong = at(0, 100, 100, "nccl:broadcast")
    right = tuple(at(rank, 100, 105) for rank in (1, 2, 3))
    assert find_mismatched((wrong, *right)) == {0: (wrong, "nccl:all_reduce")}
    assert find_mismatched((wrong, right[0])) == {}, "of two none is usual"
    assert find_mismatched((wrong._replace(state="completed"), *right)) == {}
    assert find_mismatched((wrong._replace(sequence=99), *right)) == {}
    culprits, confidence, text = told(*(spinning(each) for each in range(4)), collectives=(wrong, *right))
    assert (culprits, confidence) == ([0], "high")
    assert "rank 0 (pid 100) runs nccl:broadcast as collective 100, but the others run nccl:all_reduce" in text


def test_a_missing_rank_is_named_once_though_it_is_behind_too_and_so_is_a_place() -> None:
    ranks = tuple(spinning(each, 8) for each in range(8) if each not in (2, 5))
    recorded = tuple(at(rank, 99 if rank == 2 else 100, 99 if rank == 2 else 100) for rank in range(8) if rank != 5)
    culprits, confidence, text = told(*ranks, collectives=recorded)
    assert (culprits, confidence) == ([2, 5], "high")
    assert text.endswith("ranks 2 and 5 are missing: their processes have ended, or were never started.")
    _, _, text = told(replace(spinning(0), stacks=(Stack("MainThread", BACKWARD[0].frames, True),), waits_for=LOCK))
    assert text.count("backward") == 1, text
