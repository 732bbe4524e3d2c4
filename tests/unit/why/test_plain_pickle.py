"""Pickles of plain values are read as Python reads them; whatever else a pickle can do is refused, in little time."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from training_monitor.core.errors import ParseError
from training_monitor.why.plain_pickle import read_plain_pickle

DUMP = Path(__file__).parents[2] / "recorded" / "torch" / "2.13.0" / "trace_rank_0"
PLAIN = {
    "none": [None, True, False],
    "numbers": [0, 255, 256, 65_535, 65_536, -1, -(2**31), 2**31, 2**63, -(2**63), 2**70, 0.5, float("inf")],
    "texts": ["", "é", "x" * 300, "\ud800"],
    "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
    "nested": {"a": [[], {}, {"b": {"c": [1]}}]},
}


class Dangerous:
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (Path("/tmp/never"),)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_are_read(protocol: int) -> None:
    assert read_plain_pickle(pickle.dumps(PLAIN, protocol)) == PLAIN
    shared, name = [1, 2], "name"
    twice = [shared, shared, name, name]
    assert read_plain_pickle(pickle.dumps(twice, protocol)) == twice


def test_a_dump_of_pytorch_is_read_as_python_reads_it() -> None:
    data = DUMP.read_bytes()
    assert read_plain_pickle(data) == pickle.loads(data)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "value",
    [Dangerous(), {1, 2}, frozenset((1,)), bytearray(b"a"), 1 + 2j, Path("a"), Dangerous, print, {1: 2}, {(1,): 2}],
)
def test_anything_else_is_refused(value: object, protocol: int) -> None:
    with pytest.raises(ParseError):
        read_plain_pickle(pickle.dumps(value, protocol))


def test_a_damaged_or_cut_pickle_is_refused() -> None:
    for data in [
        b"",
        b"\x80",
        b"\x80\x02",
        b"\x80\x02.",
        b"(lp0\nI1\na.",  # of protocol 0
        b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R.",
        b"\x80\x02X\xff\xff\xff\x7fa.",
        b"\x80\x04\x8d" + b"\xff" * 8 + b"a.",
        b"\x80\x02}]K\x01s.",  # a list as a key
        b"\x80\x02}NNs.",
        b"\x80\x02K\x01K\x02a.",  # append to a number
        b"\x80\x02]K\x01K\x02s.",  # items of a list
        b"\x80\x02}(X\x01\x00\x00\x00au.",  # a key without a value
        b"\x80\x02e.",
        b"\x80\x02h\x05.",
        b"\x80\x02N\x85\x87.",
        b"\x80\x02X\x01\x00\x00\x00\xff.",
        b"\x80\x022.",  # a copy of the last value, of which there is none
        b"\x80\x02\x82\x01.",
    ]:
        with pytest.raises(ParseError):
            read_plain_pickle(data)
    data = DUMP.read_bytes()
    for end in range(len(data)):
        with pytest.raises(ParseError):
            read_plain_pickle(data[:end])


def test_mutated_dumps_are_read_or_refused() -> None:
    any_of, data = random.Random(7), DUMP.read_bytes()
    for _ in range(3000):
        changed = bytearray(data)
        for _ in range(any_of.randrange(1, 8)):
            changed[any_of.randrange(len(changed))] = any_of.randrange(256)
        try:
            read_plain_pickle(bytes(changed))
        except ParseError:
            continue


def test_a_short_pickle_of_a_large_or_deep_value_takes_no_memory_or_recursion() -> None:
    assert read_plain_pickle(b"\x80\x02K\x07r\xff\xff\xff\xffj\xff\xff\xff\xff.") == 7
    value = b"\x80\x02]K\x01a"
    for number in range(200):
        note = bytes([number])
        value += b"q" + note + b"](h" + note + b"h" + note + b"e"
    found = read_plain_pickle(value + b".")
    for _ in range(200):
        found = found[0]
    assert found == [1]
    found = read_plain_pickle(b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b".")
    depth = 0
    while found:
        found, depth = found[0], depth + 1
    assert depth == 199_999
