"""Columns give back what went in, whatever its types, and take little memory."""

from __future__ import annotations

import random
import sys
from array import array

from training_monitor.core.columns import Columns

NAMES = ("a", "b", "c")
KINDS: dict[str, list[object]] = {
    "one value": [5],
    "nothing known": [None],
    "whole numbers": [None, 0, -1, 100, -127, -128, 2**15, 2**31, -(2**63)],
    "numbers too large for an array": [1, 2**63, -(2**63), 2**80],
    "fractions": [None, 0.5, 1.0, -3.25, 1e300, float("inf"), -float("inf"), -sys.float_info.max],
    "whole fractions": [None, 60.0, 65.0, 300.0, 1e9, 1e18, 1e19],
    "whole numbers and fractions": [1, 1.0, 2, 2.5],
    "truth": [True, False, None, 1, 0],
    "texts": ["a", "b", None],
    "tuples": [(), (1, 2), (1.0, 2)],
}


def test_columns_return_equal_values_of_the_same_types() -> None:
    for kind, values in KINDS.items():
        for seed in range(30):
            chance = random.Random(f"{kind} {seed}")
            rows = [[chance.choice(values) for _ in NAMES] for _ in range(chance.randrange(20))]
            columns = Columns(NAMES, rows)
            begin, step = chance.randrange(3), chance.choice([1, 1, 2])
            columns.keep(slice(begin, None, step))
            rows = [*rows[begin::step], [values[-1]] * len(NAMES)]
            columns.append(rows[-1])
            assert len(columns) == len(rows), kind
            for at, name in enumerate(NAMES):
                there = [(type(each), each) for each in columns.column(name)]
                assert there == [(type(row[at]), row[at]) for row in rows], kind


def test_columns_return_nan_as_nan_and_keep_equal_values_in_a_row_once() -> None:
    columns = Columns(("loss",), [[1.5], [float("nan")], [float("nan")], [2.0]])
    assert [each == each for each in columns.column("loss")] == [True, False, False, True]
    columns = Columns(("failure",), [[None]])
    for _ in range(3):
        columns.append([[".".join("ab")]])
    first, *others = columns.column("failure")[1:]
    assert first == ["a.b"] and all(each is first for each in others)


def test_columns_take_eight_bytes_a_number_at_most_and_nothing_for_what_stays() -> None:
    columns = Columns(NAMES, ([0.1 * row, 7, row % 100] for row in range(1000)))
    kept = [each.values for each in columns._kept if hasattr(each, "values")]
    assert [(type(each), each.itemsize) for each in kept] == [(array, 8), (array, 1)]
