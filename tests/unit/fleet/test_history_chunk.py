"""How samples are kept: what comes back is what was seen, to six digits; thinned, one of each five minutes."""

from __future__ import annotations

import json
import math
import random
import zlib

import pytest

from training_monitor.core.errors import ParseError
from training_monitor.fleet.history import FIELDS, LONGEST_STATUS, format_row, pack_chunk, parse_row, thin, unpack_chunk
from training_monitor.fleet.values import FleetSample

NOW = 1_750_000_000.0  # five minutes and 100 seconds after an hour began


def sample(timestamp: float = NOW, status: str | None = "running", **values: object) -> FleetSample:
    """A sample as it comes back."""
    return parse_row(round(timestamp, 3), format_row(FleetSample(timestamp, values, status)))  # type: ignore[arg-type]


def same(left: FleetSample, right: FleetSample) -> bool:
    """Equal, where nan is nan."""
    pairs = [(left.values[name], right.values[name]) for name in FIELDS]
    equal = all(a == b or (a != a and b != b) for a, b in pairs)
    return equal and (left.timestamp, left.status) == (right.timestamp, right.status)


def test_the_values_of_a_row_keep_their_places() -> None:
    assert FIELDS[:16] == (
        *("gpu_utilization", "memory_utilization", "disk_utilization", "ram_utilization", "gpu_power"),
        *("gpu_temperature", "step", "epoch", "loss", "learning_rate", "grad_norm", "steps_per_second"),
        *("eta_seconds", "cost_per_hour", "total_cost", "runtime_seconds"),
    )


def test_six_digits_are_kept_and_whole_numbers_exactly(subtests: pytest.Subtests) -> None:
    for value, kept in [
        (0.123456789, 0.123457),
        (123456789, 123456789),
        (123456789.5, 123457000),
        (2.0, 2),
        (-0.0, 0),
        (1.23456789e-300, 1.23457e-300),
        (1.797e308, 1.797e308),
        (2**60, 1.15292e18),
        (10**400, None),
        (None, None),
        (True, None),
        ("0.5", None),
        ([1], None),
        (math.inf, math.inf),
        (-math.inf, -math.inf),
    ]:
        with subtests.test(value=value, kept=kept):
            found = sample(loss=value).values["loss"]
            assert found == kept and type(found) is type(kept)


def test_nan_stays_nan_names_that_are_not_reported_go_and_a_status_is_a_short_text() -> None:
    found = sample(loss=math.nan, mine=3.0)
    assert math.isnan(found.values["loss"] or 0.0) and set(found.values) == set(FIELDS)
    assert sample(status="x" * 500).status == "x" * LONGEST_STATUS
    assert sample(status=5).status is None  # type: ignore[arg-type]


def test_a_row_comes_back_as_it_was() -> None:
    seen = sample(1.5, 'run"ning\n\ud800ü', loss=math.nan, step=7, grad_norm=-math.inf, total_cost=1e-7)
    assert same(parse_row(1.5, format_row(seen)), seen)


def test_a_stored_row_is_read_for_ever() -> None:
    row = '["running",93.5,85.8,null,39.5,0.9,60,700,1.25,NaN,0.0003,1.5,2.5,1e4,16.99,5.5,3600]'
    found = parse_row(NOW, row)
    assert (found.status, found.values["gpu_utilization"], found.values["disk_utilization"]) == ("running", 93.5, None)
    assert (found.values["step"], found.values["runtime_seconds"]) == (700, 3600)
    assert math.isnan(found.values["loss"] or 0.0)


def test_of_what_is_no_row_nothing_is_known_but_its_time() -> None:
    for text in ["", "{", "5", "null", "{}", "[]", '[{"a":1},"5",[],{},true]', "\x00"]:
        assert parse_row(NOW, text) == FleetSample(NOW, dict.fromkeys(FIELDS), None), text
    assert parse_row(NOW, '["a",5]').values["gpu_utilization"] == 5
    assert set(parse_row(NOW, json.dumps(["a", *range(40)])).values) == set(FIELDS)


def noise(seed: int) -> list[FleetSample]:
    chance = random.Random(seed)
    special = (None, math.nan, math.inf, -math.inf, 0, -1, 1e300, -1e-300, 2**52, 12345.678)

    def value() -> object:
        return chance.choice(special) if chance.random() < 0.3 else chance.gauss(0, 10 ** chance.randint(-9, 9))

    return [
        sample(NOW + at * 10 + chance.random(), chance.choice(["running", "lost", None, "ü\n"]), **{
            name: value() for name in FIELDS if chance.random() < 0.8
        })
        for at in range(100)
    ]  # fmt: skip


def test_a_chunk_comes_back_as_it_was() -> None:
    for seed in range(5):
        samples = noise(seed)
        back = unpack_chunk(pack_chunk(samples))
        assert len(back) == 100 and all(map(same, samples, back)), seed
    for values in (
        *((0, 0), (0, None), (math.nan, 0.5), (1e300, 1e-300), (2**53 - 1, 1 - 2**53), (1e-9, 1), (1e15, 0.1)),
        *((123456, 0.000123456), (-0.5, 0.25), (math.inf, -math.inf), (1.0e-16, 3)),
    ):
        samples = [sample(NOW + at, loss=value, step=at) for at, value in enumerate(values)]
        assert all(map(same, unpack_chunk(pack_chunk(samples)), samples)), values
    samples = [sample(NOW, step=5), sample(NOW - 3600.25, step=3), sample(0.0)]  # times that go back
    assert unpack_chunk(pack_chunk(samples)) == samples and unpack_chunk(pack_chunk([])) == []


def test_a_chunk_takes_a_few_bytes_a_value() -> None:
    chance = random.Random(0)
    samples = [
        sample(NOW + 10 * at, gpu_utilization=chance.gauss(90, 5), step=15 * at, total_cost=at / 300, cost_per_hour=1.5)
        for at in range(360)
    ]
    assert len(pack_chunk(samples)) < 360 * 5
    day = [sample(NOW + 300 * at, **{name: chance.gauss(90, 0.5) for name in FIELDS}) for at in range(288)]
    assert len(pack_chunk(day)) < 288 * 40


def test_only_the_fields_asked_for_are_read() -> None:
    [found] = unpack_chunk(pack_chunk([sample(loss=1.5, step=4)]), {"loss"})
    assert (found.values["loss"], found.values["step"], found.status) == (1.5, None, "running")
    assert set(found.values) == set(FIELDS)


def test_a_stored_chunk_is_read_for_ever() -> None:
    head = (
        '{"status":[["running",1],[null,1]],'
        '"columns":{"step":[0,[]],"loss":[2,[[1,NaN]]],"grad_norm":[0,[[0,1e300],[1,null]]]}}'
    )
    differences = [(1_750_000_000_000, 10_000), (7, -3), (125, -125), (0, 0)]
    doubled = [[2 * each if each >= 0 else -2 * each - 1 for each in pair] for pair in differences]
    body = bytes(number >> place & 255 for pair in doubled for place in range(0, 64, 8) for number in pair)
    first, second = unpack_chunk(zlib.compress(head.encode()) + zlib.compress(body))
    assert (first.timestamp, first.status, first.values["loss"], first.values["step"]) == (NOW, "running", 1.25, 7)
    assert (second.timestamp, second.status, second.values["step"]) == (NOW + 10, None, 4)
    assert math.isnan(second.values["loss"] or 0.0)
    assert (first.values["grad_norm"], second.values["grad_norm"]) == (1e300, None)


def test_what_is_no_chunk_is_an_error_and_never_no_samples(subtests: pytest.Subtests) -> None:
    def of(columns: bytes, size: int, status: bytes = b'[["a",1]]') -> bytes:
        head = b'{"status":' + status + b',"columns":{' + columns + b"}}"
        return zlib.compress(head) + zlib.compress(bytes(size))

    whole = pack_chunk([sample()])
    for packed in [
        *(b"", b"nothing", *map(zlib.compress, (b"{", b"[]", b"{}")), whole[:-3], whole[: len(whole) // 2]),
        of(b"", 8, b"5"),
        *(of(b"", size) for size in (0, 7, 9)),
        of(b'"loss":[0]', 16),
        of(b'"loss":[0,[]]', 8),
        of(b'"loss":[0,[[1,2]]]', 16),
        of(b'"loss":["",[]]', 16),
    ]:
        with subtests.test(packed=packed):
            with pytest.raises(ParseError, match="cannot be read"):
                unpack_chunk(packed)


BEGIN = NOW - NOW % 300


def test_one_sample_is_left_of_five_minutes_with_means_and_last_values() -> None:
    seen = [
        sample(BEGIN, loss=1.0, step=10, total_cost=1.0, steps_per_second=2.0, gpu_utilization=None, epoch=0.5),
        sample(BEGIN + 100, loss=None, step=20, total_cost=None, steps_per_second=4.0, eta_seconds=9.0),
        sample(BEGIN + 299.9, "exited", loss=3.0, step=None, total_cost=3.0, steps_per_second=None),
        sample(BEGIN + 300, loss=7.0),
    ]
    first, second = thin(seen)
    assert (first.timestamp, first.status) == (BEGIN + 299.9, "exited")
    known = {name: value for name, value in first.values.items() if value is not None}
    means = {"loss": 2, "steps_per_second": 3, "epoch": 0.5}
    assert known == {**means, "step": 20, "total_cost": 3, "eta_seconds": 9}
    assert second == seen[3]


def test_what_is_thinned_stays_as_it_is() -> None:
    samples = noise(3)
    once = thin(samples)
    assert len(once) < 10 and all(map(same, thin(once), once))


def test_a_nan_stays_visible_an_infinity_too_and_the_largest_numbers_have_a_mean() -> None:
    [found] = thin([sample(BEGIN, loss=1.0, grad_norm=1.0), sample(BEGIN + 1, loss=math.nan, grad_norm=math.inf)])
    assert math.isnan(found.values["loss"] or 0.0) and found.values["grad_norm"] == math.inf
    [found] = thin([sample(BEGIN, loss=1.7e308), sample(BEGIN + 1, loss=1.7e308)])
    assert found.values["loss"] == 1.7e308
