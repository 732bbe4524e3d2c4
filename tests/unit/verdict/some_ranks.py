"""Ranks of a roll call, for the tests of its judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from training_monitor.why.ranks import PIPE, SOCKET, Explanation, Frame, Rank, RollCall, Stack
from training_monitor.why.roll_call import explain_roll_call

STD, PACKAGES = "/usr/lib/python3.11", "/v/lib/python3.11/site-packages"
C10D = f"{PACKAGES}/torch/distributed/distributed_c10d.py"
DATALOADER = f"{PACKAGES}/torch/utils/data/dataloader.py"


def call(function: str, file: str = "/w/train.py", line: int = 88) -> Frame:
    return Frame(function, file, line)


def stack(*frames: Frame) -> tuple[Stack, ...]:
    return (Stack("MainThread", frames, True),)


ALL_REDUCE = (call("all_reduce", C10D, 2500), call("wrapper", f"{PACKAGES}/torch/distributed/c10d_logger.py", 81))
TRAIN, MAIN = call("train"), call("main", line=120)
WAITING = stack(*ALL_REDUCE, TRAIN, MAIN)
LOADING = stack(call("load_batch", "/w/data.py", 41), call("train", line=80), MAIN)
SENDING = stack(call("send", C10D, 1800), call("backward", "/w/pipe.py", 20), MAIN)
RECEIVING = stack(call("recv", C10D, 1900), call("forward", "/w/pipe.py", 12), MAIN)
NEXT_BATCH = stack(call("_try_get_data", DATALOADER, 1100), call("train", line=80), MAIN)


def a_rank(number: int | None, stacks: tuple[Stack, ...] = WAITING, world: int = 4, **known: object) -> Rank:
    """A rank of a world that is on one host; it waits for a socket, unless `known` says something else."""
    pid = 100 + (number or 0)
    rank = Rank("local", pid, rank=number, local_rank=number, world_size=world, local_world_size=world, stacks=stacks)
    return replace(rank, **{"state": "S", "waits_for": SOCKET, **known})


def a_process(pid: int, stacks: tuple[Stack, ...] = WAITING, **known: object) -> Rank:
    """A rank whose number nobody knows."""
    return a_rank(None, stacks, 0, **{"pid": pid, **known})


def loading(number: int, world: int = 4, **known: object) -> Rank:
    return a_rank(number, LOADING, world, **{"waits_for": PIPE, **known})


def world(count: int, odd: Mapping[int, Rank | None] | None = None, **known: object) -> tuple[Rank, ...]:
    """So many ranks that wait in all_reduce; those in `odd` do something else, or are not there."""
    ranks = [(odd or {}).get(number, a_rank(number, world=count, **known)) for number in range(count)]
    return tuple(each for each in ranks if each)


def half(odd: int | None = None) -> tuple[Rank, ...]:
    """The ranks 0 to 3 of 8, on a host with four of them."""
    ranks = world(4, {odd: loading(odd)} if odd is not None else {})
    return tuple(replace(each, world_size=8) for each in ranks)


def named(found: Explanation) -> list[int | None]:
    return [each.rank for each in found.culprits]


def check(seen: RollCall | tuple[Rank, ...], culprits: list[int], confidence: str, text: str) -> Explanation:
    found = explain_roll_call(seen if isinstance(seen, RollCall) else RollCall(seen))
    assert found.text == text
    assert (named(found), found.confidence) == (culprits, confidence)
    return found
