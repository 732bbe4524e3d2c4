"""What `ncclras -f json` says: the document of NCCL's user guide, and what a rank that is behind makes of it."""

from __future__ import annotations

import json
from typing import Any

from training_monitor.why.nccl_ras import parse_ras
from training_monitor.why.ranks import Collective, Surroundings
from training_monitor.why.roll_call import find_behind

HOST = "172.16.64.245"
RUNNING = {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False, "abort_flag": False}


def place(rank: int, host: str = HOST, first: int = 1000) -> dict[str, Any]:
    return {"rank": rank, "host": host, "pid": first + rank, "cuda_dev": rank % 8, "nvml_dev": rank % 8}


def member(rank: int, count: int = 5, *, host: str = HOST, first: int = 1000, **status: Any) -> dict[str, Any]:
    counts = {"Broadcast": 1, "AllReduce": count}
    return {**place(rank, host, first), "status": {**RUNNING, **status}, "collective_counts": counts}


def missing(rank: int, unresponsive: bool = True, considered_dead: bool = False) -> dict[str, Any]:
    return {**place(rank), "status": {"unresponsive": unresponsive, "considered_dead": considered_dead}}


def communicator(
    *members: dict[str, Any], lost: Any = (), size: int | None = None, name: str = "0xae"
) -> dict[str, Any]:
    counts = {"size": size or len(members) + len(lost), "ranks_count": len(members), "missing_ranks_count": len(lost)}
    hashes = {"hash": name, "secondary_hash": "0xb7e7187447156001:0xb8242ed28a71381e"}
    return {**hashes, **counts, "ranks": list(members), "missing_ranks": list(lost)}


def answer(*communicators: dict[str, Any]) -> str:
    return json.dumps({"nccl_version": "2.29.1", "communicators": communicators, "ras": {}}, indent=2)


def twice(*communicators: dict[str, Any]) -> Surroundings:
    return parse_ras(f"{answer(*communicators)}\n--\n{answer(*communicators)}")


def texts(seen: Surroundings) -> list[str]:
    return [each.text.removeprefix("NCCL's RAS: ") for each in seen.findings]


def test_a_job_that_is_well_says_nothing() -> None:
    assert twice(communicator(member(0), member(1))) == Surroundings()
    assert parse_ras(answer()) == Surroundings()
    assert parse_ras(answer(communicator(member(0), lost=[missing(1, unresponsive=False)]))) == Surroundings()
    before, after = (answer(communicator(member(0, count), member(1, 8))) for count in (9, 10))
    assert parse_ras(f"{before}\n--\n{after}") == Surroundings()
    assert parse_ras(before) == Surroundings()
    assert parse_ras(f"{before}\n--\nConnection timed out") == Surroundings()


def test_processes_that_cannot_be_reached_are_named_with_their_ranks() -> None:
    seen = parse_ras(answer(communicator(member(0), lost=[missing(1), missing(2, considered_dead=True)])))
    assert texts(seen) == [
        "process 1001 on 172.16.64.245 (GPU 1) does not respond",
        "process 1002 on 172.16.64.245 (GPU 2) is considered dead, because it cannot be reached",
    ]
    assert [(each.kind, each.ranks, each.pids) for each in seen.findings] == [
        ("nccl_ras", (1,), (1001,)),
        ("nccl_ras", (2,), (1002,)),
    ]
    part = communicator(member(0, first=1001), lost=[{**missing(1), "pid": 1001}], name="0x1", size=2)
    whole = communicator(member(0), lost=[missing(1)], name="0x2", size=2)
    larger = communicator(member(0), member(2), lost=[missing(1)], name="0x3")
    for order in ((part, whole, larger), (larger, whole, part)):
        seen = parse_ras(answer(*order))
        assert [(each.ranks, each.pids) for each in seen.findings] == [((1,), (1001,))]


def test_counts_that_differ_and_stand_still_name_those_behind() -> None:
    seen = twice(communicator(member(0, 9), member(1, 8), member(2, 9)))
    [text] = texts(seen)
    assert "of 3 ranks, AllReduce was launched 9 times by the most advanced ranks, but only 8 times by rank 1" in text
    assert [each.ranks for each in seen.findings] == [(1,)]
    assert seen.collectives == tuple(
        Collective(rank, "0xae AllReduce", "AllReduce", count, "launched") for rank, count in ((0, 9), (1, 8), (2, 9))
    )


def test_kinds_that_are_counted_apart_hide_no_rank() -> None:
    """The larger count of another kind, or of another rank, is no number of this one."""
    counts = {"AllReduce": (10, 10, 9, 10), "Broadcast": (100, 99, 100, 100)}
    members = [
        {**member(rank), "collective_counts": {kind: each[rank] for kind, each in counts.items()}} for rank in range(4)
    ]
    behind = find_behind(twice(communicator(*members)).collectives)
    assert {rank: (each.name, each.sequence) for rank, each in behind.items()} == {
        1: ("Broadcast", 99),
        2: ("AllReduce", 9),
    }


def test_ranks_of_a_part_of_the_job_and_pids_of_other_hosts_are_left_out() -> None:
    pairs = [communicator(member(0, 9, first=at), member(1, 8, first=at), name=f"0x{at}") for at in (1000, 2000)]
    seen = twice(*pairs)
    assert [(each.ranks, each.pids) for each in seen.findings] == [((), (1001,)), ((), (2001,))]
    assert seen.collectives == ()
    seen = twice(communicator(member(0, 9), member(1, 8, host="172.16.64.246")))
    assert [(each.ranks, each.pids) for each in seen.findings] == [((1,), ())]


def test_errors_and_an_initialization_that_does_not_end_are_said() -> None:
    seen = twice(communicator(member(0, async_error=6), member(1, init_state=3), member(2, init_state=7), member(3)))
    assert texts(seen) == [
        "process 1000 on 172.16.64.245 (GPU 0) has an error (remote process error)",
        "process 1001 on 172.16.64.245 (GPU 1) has an error (internal error)",
        "communicator 0xae is not initialized in 1 of its 4 ranks: rank 2",
    ]
    assert parse_ras(answer(communicator(member(0), member(1, init_state=7)))) == Surroundings()


def test_anything_else_says_nothing() -> None:
    for text in [
        "",
        "--",
        "Usage: ncclras [OPTION]...\n",
        "Job summary\n===========\n\n  Nodes  Processes\n",
        "null",
        "[]",
        "[" * 100_000,
        '{"communicators": 5}',
        '{"communicators": [5, {}, {"ranks": 5}, {"ranks": [5, {}], "missing_ranks": [{"status": 5}]}]}',
    ]:
        assert parse_ras(text) == parse_ras(f"{text}\n--\n{text}") == Surroundings()


def test_odd_values_raise_nothing_and_text_of_a_stranger_is_short_and_plain() -> None:
    odd: list[Any] = [None, True, -5, 2**70, 1.5, "x", [], {}]
    for value in odd:
        for key in ("rank", "host", "pid", "cuda_dev", "status", "collective_counts"):
            changed = [{**each, key: value} for each in (member(0), member(1, 7), missing(2))]
            twice(communicator(*changed[:2], lost=changed[2:]))
        for key in ("hash", "secondary_hash", "size", "ranks", "missing_ranks"):
            twice({**communicator(member(0), member(1, 7)), key: value})
        twice(communicator(member(0, value), member(1, 7), member(2, init_state=value, async_error=value)))
    host = "h\x1b[31m\n" + "x" * 5000
    [found] = parse_ras(answer(communicator({**member(0), "host": host, "status": {"async_error": 1}}))).findings
    assert len(found.text) < 300 and found.text.isprintable()
