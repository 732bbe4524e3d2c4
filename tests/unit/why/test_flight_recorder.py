"""From dumps of PyTorch's flight recorder to the newest collective of each rank: real ones of four ranks of gloo."""

from __future__ import annotations

import base64
import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from training_monitor.core.errors import ParseError
from training_monitor.why.flight_recorder import MOST_FILES, parse_dumps
from training_monitor.why.ranks import Collective, Frame, Surroundings

RECORDED = Path(__file__).parents[2] / "recorded" / "torch" / "2.13.0"
BEGUN = 1_700_000_000
PREFIX = "/tmp/trace_rank_"
OWN = "/srv/training/train.py"
LIBRARY = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"


def dump(rank: object, data: bytes, *, written: int = BEGUN + 60, encoding: str = "base64", at: str = PREFIX) -> str:
    sent = base64.encodebytes(data).decode() if encoding == "base64" else data.hex(" ") + "\n"
    base = "root" if at.startswith("/") else "cwd/"
    return f"dump {written} {len(data)} {encoding} /proc/7/{base}{at}{rank}\n{sent}"


def reply(*dumps: str, processes: str = f"process {BEGUN} 1 {PREFIX}\n") -> str:
    return f"{processes}{''.join(dumps)}end\n"


def recorded(rank: int, name: str = "") -> bytes:
    return (RECORDED / f"trace_rank_{rank}{name}").read_bytes()


def entry(number: int, state: str = "scheduled", **more: Any) -> dict[str, Any]:
    return {
        "frames": [{"name": "all_reduce", "filename": LIBRARY, "line": 1}, {"name": "f", "filename": OWN, "line": 8}],
        "process_group": ("0", "default_pg"),
        "pg_id": 0,
        "profiling_name": "nccl:all_reduce",
        "collective_seq_id": number,
        "is_p2p": False,
        "state": state,
        "retired": False,
        **more,
    }


def read(*entries: Any, status: Any = None, **more: Any) -> Surroundings:
    document = {"entries": list(entries), **({} if status is None else {"pg_status": status}), **more}
    return parse_dumps(reply(dump(3, pickle.dumps(document, 2))))


def reached(*entries: Any, status: Any = None) -> tuple[str, int, str]:
    [one] = read(*entries, status=status).collectives
    return one.name, one.sequence, one.state


def test_the_rank_that_is_behind_is_told_from_real_dumps() -> None:
    seen = parse_dumps(reply(*(dump(rank, recorded(rank)) for rank in (2, 0, 3, 1))))
    called_at = Frame("reduce_gradients", OWN, 22)
    world = [each for each in seen.collectives if each.group == "0 default_pg"]
    assert world == [
        Collective(rank, "0 default_pg", "gloo:all_reduce", number, state, called_at, number)
        for rank, (number, state) in enumerate([(4, "scheduled"), (4, "scheduled"), (3, "completed"), (4, "scheduled")])
    ]
    pair = [each for each in seen.collectives if each.group == "1"]
    assert [(each.rank, each.sequence, each.state) for each in pair] == [(0, 1, "completed"), (1, 1, "completed")]
    assert (seen.findings, seen.unread) == ((), ())


def test_a_dump_comes_packed_or_not_in_either_encoding_or_as_json_without_frames() -> None:
    expected = parse_dumps(reply(dump(0, recorded(0))))
    for data in (gzip.compress(recorded(0)), recorded(0)):
        for encoding in ("base64", "hex"):
            assert parse_dumps(reply(dump(0, data, encoding=encoding))) == expected
    text = parse_dumps(reply(dump("0.json", recorded(0, ".json")))).collectives
    assert [(each.rank, each.group, each.sequence, each.state) for each in text] == [
        (each.rank, each.group, each.sequence, each.state) for each in expected.collectives
    ]
    assert {each.called_at for each in text} == {None}


def test_a_rank_is_at_the_first_one_that_is_open_else_at_the_last_one() -> None:
    assert reached(entry(1, "completed"), entry(2, "started")) == ("nccl:all_reduce", 2, "started")
    assert reached(entry(1, "started"), entry(2, "completed")) == ("nccl:all_reduce", 1, "started")
    assert reached(entry(1, "started"), entry(2)) == ("nccl:all_reduce", 1, "started")
    assert [each.newest for each in read(entry(1, "started"), entry(2), entry(3)).collectives] == [3]
    assert reached(entry(1, "completed"), entry(2, "completed")) == ("nccl:all_reduce", 2, "completed")
    status = {"0": {"last_completed_collective": 2, "last_enqueued_collective": 3}}
    assert reached(entry(1), entry(2), status=status)[1:] == (2, "completed")
    assert reached(entry(2), entry(3, retired=True), status=status)[1:] == (3, "scheduled")
    assert reached(entry(2, retired=True))[1:] == (2, "completed")
    for odd in (5, [], {"0": 5}, {"0": {}}, {"0": {"last_completed_collective": "x"}}):
        assert reached(entry(1, "started"), status=odd)[1:] == (1, "started")


def test_transfers_between_two_ranks_are_findings_that_have_no_number() -> None:
    waiting = entry(4, is_p2p=True, profiling_name="nccl:recv 3<-2")
    seen = read(entry(4, "completed"), waiting)
    assert [each.sequence for each in seen.collectives] == [4]
    [found] = seen.findings
    assert (found.kind, found.ranks) == ("flight_recorder", (3,))
    assert "rank 3 waits in nccl:recv 3<-2 of process group 0 default_pg" in found.text
    assert "called at /srv/training/train.py:8 (f)" in found.text
    assert read({**waiting, "state": "completed"}).findings == ()


def test_dumps_of_several_trainings_are_not_mixed_and_bounded() -> None:
    processes = f"process {BEGUN} 1 {PREFIX}\nprocess {BEGUN} 1 /data/fr_\n"
    other = dump(0, recorded(0), at="/data/fr_")
    with pytest.raises(ParseError, match="several trainings"):
        parse_dumps(reply(dump(0, recorded(0)), other, processes=processes))
    alone = parse_dumps(reply(dump(1, recorded(0)), other, processes=processes))
    assert {each.rank for each in alone.collectives} == {0, 1}
    large = gzip.compress(json.dumps({"entries": [], "x": "y" * 5_000_000}).encode())
    seen = parse_dumps(reply(*(dump(rank, large) for rank in range(5)), dump(7, recorded(0))))
    assert len(seen.unread) == 1 and f"{PREFIX}2" in seen.unread[0]
    many = "".join(dump(rank, recorded(2)) for rank in range(2 * MOST_FILES + 20))
    assert len(parse_dumps(reply(many)).collectives) == 2 * MOST_FILES


def test_of_a_rank_the_newest_dump_counts_and_none_of_an_earlier_attempt() -> None:
    first, second = (pickle.dumps({"entries": [entry(number)]}, 2) for number in (9, 1))
    seen = parse_dumps(reply(dump(3, first), dump(3, second, written=BEGUN + 5)))
    assert [each.sequence for each in seen.collectives] == [9]
    launcher = f"process {BEGUN - 9000} 0 {PREFIX}\n"
    ranks = f"process {BEGUN} 1 {PREFIX}\nprocess {BEGUN + 2} 1 {PREFIX}\n"
    old, new = (dump(0, recorded(0), written=BEGUN + after) for after in (-1, 0))
    assert parse_dumps(reply(old, processes=launcher + ranks)).collectives == ()
    assert parse_dumps(reply(new, processes=launcher + ranks)).collectives != ()
    assert parse_dumps(reply(old, processes=launcher)).collectives != (), "no process says that it is a local rank"
    assert parse_dumps(reply(new, processes="")).collectives == ()


def test_only_a_name_of_the_prefix_and_a_rank_is_a_dump() -> None:
    for name in ("0_old", "0.txt", "", "x1", "1234567"):
        assert parse_dumps(reply(dump(name, recorded(0)))) == Surroundings()
    processes = f"process {BEGUN} 1 ./dumps/trace_\n"
    seen = parse_dumps(reply(dump(5, recorded(0), at="dumps/trace_"), processes=processes))
    assert {each.rank for each in seen.collectives} == {5}


def test_a_dump_that_cannot_be_read_is_named() -> None:
    for data in [
        b"",
        b"{",
        b"[1]",
        b"{}",
        b'{"entries": 5}',
        b"[" * 100_000,
        recorded(0)[:-1],
        pickle.dumps({"entries": [print]}, 2),
        pickle.dumps([1], 2),
        gzip.compress(recorded(0))[:-9],
        gzip.compress(b"\0" * 50_000_000),
        b"\x1f\x8bnonsense",
    ]:
        seen = parse_dumps(reply(dump(1, data), dump(0, recorded(0))))
        assert {each.rank for each in seen.collectives} == {0}
        [said] = seen.unread
        assert f"{PREFIX}1" in said and f"{PREFIX}0" not in said


def test_a_dump_that_was_not_sent_is_named_unless_it_is_of_an_earlier_attempt() -> None:
    unsent = [f"dump {BEGUN + late} 9000000 unsent /proc/7/root{PREFIX}{rank}\n" for rank, late in ((1, 60), (2, -60))]
    seen = parse_dumps(reply(dump(0, recorded(0)), *unsent))
    assert {each.rank for each in seen.collectives} == {0}
    [said] = seen.unread
    assert f"{PREFIX}1" in said and f"{PREFIX}0" not in said and f"{PREFIX}2" not in said
    many = "".join(f"dump {BEGUN} 1 unsent /proc/7/root{PREFIX}{rank}\n" for rank in range(MOST_FILES))
    sent = "".join(dump(1000 + rank, recorded(2)) for rank in range(MOST_FILES))
    seen = parse_dumps(reply(sent, many))
    assert len(seen.collectives) == MOST_FILES and f"{PREFIX}0" in seen.unread[0]


def test_odd_entries_frames_and_groups_are_passed_over_or_unknown() -> None:
    for frames in [None, 5, [5], [{}], [{"name": 1, "filename": OWN}], [{"name": "f", "filename": "<string>"}]]:
        for group in [None, 5, [], [5], ("", "")]:
            [one] = read(entry(1, frames=frames, process_group=group, profiling_name=None)).collectives
            assert (one.called_at, one.group, one.name) == (None, "?", "?")
    for odd in [
        5,
        {},
        entry(-5),
        entry(2**63),
        {**entry(1), "collective_seq_id": True},
        {**entry(1), "collective_seq_id": "1"},
    ]:
        assert reached(entry(7), odd)[1] == 7


def test_the_innermost_frame_of_own_code_is_where_it_was_called() -> None:
    for library in [
        "/usr/lib/python3/dist-packages/a.py",
        "/opt/conda/lib/python3.12/threading.py",
        "??",
        "/src/Work.cpp",
    ]:
        files = [library, "/work/a.h/own.py", "/work/outer.py"]
        frames = [{"name": "f", "filename": file, "line": line} for line, file in enumerate(files)]
        [one] = read(entry(1, frames=frames)).collectives
        assert one.called_at == Frame("f", "/work/a.h/own.py", 1)
    frames = [{"name": "f\x1b[31m\n", "filename": "/a/" + "b" * 5000, "line": 3}]
    [one] = read(entry(1, frames=frames, profiling_name="x\x00\n" * 900, process_group=("g\u202e", "d"))).collectives
    assert one.called_at and len(one.called_at.file) <= 300 and one.called_at.function == "f"
    assert len(one.name) <= 120 and one.name.isprintable() and one.group == "g d"


def test_a_reply_without_its_end_is_no_answer() -> None:
    for text in ("", reply(dump(0, recorded(0))).removesuffix("end\n"), "process 1 1 /tmp/x\n"):
        with pytest.raises(ParseError):
            parse_dumps(text)
    assert parse_dumps("end\n") == Surroundings()
