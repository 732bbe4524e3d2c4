"""What is asked of the market, what is made of its rows, and which offer is the best."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from tests.fakes import FakeTransport
from tests.loopback.vast import offer as row
from tests.unit.vast.test_instances import Said, recorded
from training_monitor.core.errors import AccessDenied, CommandError, SettingsError
from training_monitor.core.results import CommandResult
from training_monitor.vast import offers
from training_monitor.vast.offers import (
    Offer,
    OfferQuery,
    load_offer_query,
    rank_offers,
    read_offer,
    search_offers,
    search_words,
)

GOOD = Offer(
    1, "RTX 4090", 1, 24.564, 0.4, 0.99, "SE", 12.8, 700.0, 500.0, 500.0, verified=True, rentable=True, min_bid=0.2
)
ANY = OfferQuery(preferred_gpus=())


class Market:
    """A vastai whose searches answer what they are told, the last one for ever."""

    def __init__(self, *answers: object) -> None:
        said = [answer if isinstance(answer, tuple) else (0, json.dumps(answer), "") for answer in answers]
        self.answers: list[Said] = said
        self.asked: list[tuple[str, ...]] = []
        self.transport = FakeTransport(lambda script: ("", 127))
        self.transport.register(["vastai", "search", "offers"], self._search)

    def _search(self, words: tuple[str, ...], said: str | None) -> CommandResult:
        self.asked.append(words)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return CommandResult(words, *answer, 0.1)

    def search(self, query: OfferQuery = ANY) -> list[int]:
        return [offer.id for offer in search_offers(query, transport=self.transport)]


def ranked(query: OfferQuery, *found: Offer) -> list[int]:
    return [offer.id for offer in rank_offers(found, query)]


def gpus(*names: str, preferred: tuple[str, ...], **more: Any) -> list[str]:
    """The GPUs in the order of preference; of equal ones in the order given."""
    found = [replace(GOOD, id=number, gpu_name=name) for number, name in enumerate(names, 1)]
    return [offer.gpu_name for offer in rank_offers(found, OfferQuery(preferred_gpus=preferred, **more))]


# ---------------------------------------------------------------- the query


def test_the_environment_says_what_is_wanted_and_the_caller_wins() -> None:
    environ = {"VASTAI_PREFERRED_GPUS": " 4090, A100 ,,RTX_3090", "VASTAI_MAX_BID_PER_HOUR": "2.50"}
    environ |= {"VASTAI_MIN_VRAM_GB": "48", "VASTAI_DEFAULT_DISK_GB": "128"}
    assert load_offer_query(environ) == OfferQuery(("4090", "A100", "RTX_3090"), 2.5, 48.0, 128.0)
    documented = OfferQuery(("RTX 4090", "A100"), 4.5, 24.0, 64.0)
    for nothing in ({}, {"VASTAI_PREFERRED_GPUS": " ", "VASTAI_MIN_VRAM_GB": ""}):
        assert load_offer_query(nothing) == documented
    environ = {"VASTAI_MAX_BID_PER_HOUR": "nonsense", "VASTAI_PREFERRED_GPUS": "4090"}
    query = load_offer_query(environ, max_price_per_hour=1.0, preferred_gpus=("H100",), kind="bid")
    assert query == OfferQuery(("H100",), 1.0, kind="bid")


@pytest.mark.parametrize(
    ("variable", "values"),
    [
        ("VASTAI_MAX_BID_PER_HOUR", ["$4", "0", "inf"]),
        ("VASTAI_MIN_VRAM_GB", ["nan"]),
        ("VASTAI_DEFAULT_DISK_GB", ["-1"]),
        ("VASTAI_PREFERRED_GPUS", ["4090;A100", "4090\nA100"]),
    ],
)
def test_a_variable_that_makes_no_sense_is_refused_by_its_name(variable: str, values: list[str]) -> None:
    for value in values:
        with pytest.raises(SettingsError) as caught:
            load_offer_query({variable: value})
        assert caught.value.key == variable


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("preferred_gpus", ["4090,A100", ("",), (4090,)]),
        ("max_price_per_hour", [0, float("inf"), "4"]),
        ("min_vram_gb", [-1]),
        ("disk_gb", [float("nan")]),
        ("num_gpus", [0, 1.5, True]),
        ("min_reliability", [95]),
        ("min_cuda", [None]),
        ("min_down_mbps", [10**400]),
        ("blocked_countries", [("China",), ("CN] verified=any",), "CN"]),
        ("kind", ["reserved"]),
    ],
)
def test_a_query_that_makes_no_sense_is_refused(field: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(SettingsError) as caught:
            OfferQuery(**{field: value})
        assert caught.value.key == field
    with pytest.raises(SettingsError):
        OfferQuery(preferred_gpus=(), only_preferred=True)


def test_the_query_is_in_the_words_of_the_cli() -> None:
    query = OfferQuery((), 0.5, 24.0, 64.0, 2, 0.9, 12.4, 100.0, ("CN",), "bid", verified=False)
    assert search_words(query, 0.000001) == (
        "num_gpus=2 gpu_ram>=24 disk_space>=64 reliability>=0.9 cuda_vers>=12.4 dph_total<=0.5 rentable=True"
        " verified=any dph_total>=0.000001 inet_down>=100 geolocation notin [CN]"
    )
    assert "geolocation" not in search_words(replace(ANY, blocked_countries=()))


# ---------------------------------------------------------------- a row


def test_a_row_is_read() -> None:
    read = read_offer({**row(7), "dph_total": 0.41})
    assert read == replace(GOOD, id=7, price_per_hour=0.41, max_days=10.0, machine_id=500)


def test_a_price_or_memory_that_is_no_number_is_not_known_and_never_chosen(subtests: pytest.Subtests) -> None:
    for value in [None, "0.4", float("nan"), float("inf"), -1, 0, 10**400, True, [], {}]:
        with subtests.test(value=value):
            for name in ("dph_total", "gpu_ram"):
                read = read_offer({**row(7), "dph_total": 0.4, name: value})
                assert read and (read.price_per_hour is None or read.vram_gb is None)
                assert rank_offers([read], replace(ANY, min_vram_gb=0, min_reliability=0, min_cuda=0)) == []


HOSTILE: list[object] = [
    None,
    [],
    "9001",
    7,
    {},
    {"id": None},
    {"id": "7", "gpu_name": "RTX 4090"},
    {"id": True, "gpu_name": "RTX 4090"},
    {"id": -7, "gpu_name": "RTX 4090"},
    {"id": 7, "gpu_name": None},
    {"id": 7, "gpu_name": "  "},
    {"id": 7, "gpu_name": ["RTX 4090"]},
]


def test_a_row_that_is_no_offer_is_skipped_and_every_key_may_be_anything() -> None:
    assert [read_offer(hostile) for hostile in HOSTILE] == [None] * len(HOSTILE)
    for name, value in product(row(7), [None, "", "x", -1, [], {}, {"a": 1}, True, float("nan"), 10**400]):
        rank_offers(filter(None, [read_offer({**row(7), "dph_total": 0.4, name: value})]), ANY)


def test_the_country_is_the_code_at_the_end_and_verification_wins() -> None:
    places: dict[str | None, list[object]] = {
        "SE": ["Sweden, SE", "SE"],
        "HK": [" hk "],
        "CN": ["Guangdong, China, CN", ", CN"],
        None: ["China", "", None, ["CN"]],
    }
    for country, given in places.items():
        assert {getattr(read_offer(row(7, geolocation=place)), "country", "?") for place in given} == {country}
    for verification, flag, verified in [("verified", False, True), ("deverified", True, False), (None, True, True)]:
        read = read_offer(row(7, verification=verification, verified=flag))
        assert read and read.verified is verified


# ---------------------------------------------------------------- the best


def test_the_preferred_gpu_comes_first_then_the_price_then_the_reliability() -> None:
    found = [
        replace(GOOD, id=1, gpu_name="RTX 3090", price_per_hour=0.1),
        replace(GOOD, id=2, gpu_name="A100 PCIE", price_per_hour=0.9),
        replace(GOOD, id=3, gpu_name="RTX 4090", price_per_hour=0.5, reliability=0.96),
        replace(GOOD, id=4, gpu_name="RTX 4090", price_per_hour=0.5, reliability=0.99),
        replace(GOOD, id=5, gpu_name="RTX 4090", price_per_hour=0.3),
        replace(GOOD, id=6, gpu_name="A100 SXM4", price_per_hour=0.8),
    ]
    assert ranked(OfferQuery(("A100", "4090")), *found) == [6, 2, 5, 4, 3, 1]
    assert ranked(OfferQuery(("A100", "4090"), only_preferred=True), *found) == [6, 2, 5, 4, 3]
    assert ranked(ANY, *found) == [1, 5, 4, 3, 6, 2]


def test_a_gpu_is_meant_by_its_full_name_or_by_whole_words_of_it(subtests: pytest.Subtests) -> None:
    for wanted, gpu, is_meant in [
        ("4090", "RTX 4090", True),
        ("RTX_4090", "RTX 4090", True),
        ("rtx4090", "RTX 4090", True),
        ("A100", "A100 SXM4", True),
        ("A100_PCIE", "A100 PCIE", True),
        ("3090", "RTX 3090 Ti", True),
        ("A6000", "RTX A6000", True),
        ("4090", "RTX 4090D", False),
        ("A100", "RTX A1000", False),
        ("A100", "A100X", False),
        ("L40", "L40S", False),
        ("6000", "RTX A6000", False),
        ("H100 SXM", "H100 NVL", False),
    ]:
        with subtests.test(wanted=wanted, gpu=gpu, is_meant=is_meant):
            assert bool(gpus(gpu, preferred=(wanted,), only_preferred=True)) is is_meant


def test_a_full_name_counts_more_than_a_part() -> None:
    assert gpus("RTX 3090 Ti", "RTX 3090", preferred=("3090", "RTX 4090", "RTX 3090 Ti")) == ["RTX 3090", "RTX 3090 Ti"]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("price_per_hour", [4.51]),
        ("vram_gb", [23.9]),
        ("disk_gb", [63.0, None]),
        ("num_gpus", [2, None]),
        ("reliability", [0.949, None]),
        ("cuda", [11.8, None]),
        ("inet_down_mbps", [99.0, None]),
        ("country", ["CN", "HK", None]),
        ("verified", [False, None]),
        ("rentable", [False]),
    ],
)
def test_an_offer_that_lacks_something_or_does_not_say_is_not_chosen(name: str, values: list[Any]) -> None:
    query = replace(ANY, min_down_mbps=100.0)
    assert ranked(query, GOOD) == [1]
    assert [ranked(query, replace(GOOD, **{name: value})) for value in values] == [[] for _ in values]


def test_what_was_not_asked_need_not_be_known_and_a_bid_may_not_exceed_the_limit() -> None:
    bare = Offer(1, "RTX 4090", 1, 24.564, 0.4, disk_gb=64.0)
    query = replace(ANY, min_reliability=0, min_cuda=0, blocked_countries=(), verified=False)
    assert ranked(query, bare) == [1]
    query = OfferQuery((), 0.5, kind="bid")
    assert [ranked(query, replace(GOOD, min_bid=bid)) for bid in (0.5, 0.6)] == [[1], []]


# ---------------------------------------------------------------- the answers of vastai


def test_what_vastai_found_is_ranked_and_an_empty_market_is_empty() -> None:
    assert Market(recorded("offers_two")).search() == [9001, 9002]
    assert Market(recorded("offers_none")).search() == []


@pytest.mark.parametrize(
    "name", ["bad_query", *(f"answer_{each}" for each in "refused null html 500 dict quota".split())]
)
def test_an_answer_that_is_none_is_an_error_not_an_empty_market(name: str) -> None:
    with pytest.raises(CommandError) as caught:
        Market(recorded(f"offers_{name}")).search()
    assert type(caught.value) is not AccessDenied


@pytest.mark.parametrize("said", [*((0, text, "") for text in ("", "{}", "1", "[" * 100_000)), (1, "[]", "")])
def test_nothing_well_formed_is_an_error(said: Said) -> None:
    with pytest.raises(CommandError):
        Market(said).search()
    with pytest.raises(AccessDenied, match="Invalid user key"):
        Market(recorded("offers_wrong_key")).search()


def test_hostile_offers_are_skipped_and_only_hostile_ones_an_error() -> None:
    good = {**row(7), "dph_total": 0.4}
    assert Market([*HOSTILE[:4], good, *HOSTILE[4:]]).search() == [7]
    with pytest.raises(CommandError, match="none of the 3 offers"):
        Market([None, {}, "x"]).search()


def test_more_offers_than_an_answer_has_room_for_are_asked_from_the_dearest_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offers, "MOST_ROWS", 2)
    prices = {1: 0.1, 2: 0.2, 3: 0.3}
    one, two, three = ({**row(number), "dph_total": price} for number, price in prices.items())
    market = Market([one, two], [two, three], [three])
    assert market.search() == [1, 2, 3]
    assert ["dph_total>=0.2" in words[3] for words in market.asked] == [False, True, False]
    assert "dph_total>=0.3" in market.asked[2][3]
    monkeypatch.setattr(offers, "MOST_ROWS", 1)
    market = Market([one])  # an answer that never gets further is enough
    assert market.search() == [1] and len(market.asked) == 2
