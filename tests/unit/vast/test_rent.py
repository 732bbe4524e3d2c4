"""Renting out of what vastai says: one instance for a label whatever is lost, refused or late, and what ends a wait."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.fakes import FakeClock, FakeTransport, Program
from tests.loopback.vast_rows import instance, offer
from tests.unit.vast.test_instances import Said
from training_monitor.core.errors import (
    AccessDenied,
    CommandError,
    CommandFailed,
    CommandTimedOut,
    InstanceNotFound,
    LocalFailure,
    NoOffers,
    SettingsError,
    TargetUnreachable,
    ToolNotFound,
    TrainingMonitorError,
)
from training_monitor.core.results import CommandResult
from training_monitor.targets.kinds.vast import VastTarget
from training_monitor.targets.target import Target
from training_monitor.vast.instances import wait_until_ready
from training_monitor.vast.offers import Offer, OfferQuery
from training_monitor.vast.rent import (
    LATE,
    MOST_OFFERS,
    PATIENCE,
    RentedInstance,
    choose_bid,
    find_rented,
    read_create_answer,
    rent_instance,
)

LABEL = "training_monitor/host/job-1/1"
ANY = OfferQuery(preferred_gpus=())
GONE = (0, "", '{"error": true, "status_code": 404, "msg": "error 404/3603: no_such_ask"}\n')
BROKEN = (0, "", '{"error": true, "status_code": 500, "msg": "internal"}\n')
TOO_MANY = (0, "", '{"error": true, "status_code": 429, "msg": "API requests too frequent"}\n')
NO_CREDIT = "Your account lacks credit; see the billing page."
Row = dict[str, Any]


def said(answer: object) -> Said:
    return 0, json.dumps(answer), ""


@dataclass
class Market:
    """vastai with instances and offers; `on_create` says what becomes of a create, `listings` what lists say first."""

    rows: dict[int, Row] = field(default_factory=dict)
    offers: list[Row] = field(default_factory=list)
    on_create: Callable[[int], Said] | None = None
    listings: list[Said] = field(default_factory=list)
    searches: list[Said] = field(default_factory=list)
    shows: list[Said] = field(default_factory=list)  # the last one for ever
    ssh: list[Said | Exception] = field(default_factory=list)  # the last one for ever; none: it answers
    clock: FakeClock = field(default_factory=FakeClock)
    calls: list[tuple[str, ...]] = field(default_factory=list)
    keeps_destroyed: bool = False

    def __post_init__(self) -> None:
        self.transport = FakeTransport(lambda script: ("ready\n", 0))
        for words, act in (
            (("show", "instances"), self._list),
            (("show", "instance"), self._show),
            (("create", "instance"), self._create),
            (("destroy", "instance"), self._destroy),
            (("search", "offers"), self._search),
        ):
            self.transport.register(["vastai", *words], self._recorded(act))
        self.transport.register(["ssh"], self._ssh)

    def _recorded(self, act: Callable[[tuple[str, ...]], Said]) -> Program:
        def run(words: tuple[str, ...], typed: str | None) -> CommandResult:
            self.calls.append(words)
            return CommandResult(words, *act(words), 0.1)

        return run

    def _list(self, words: tuple[str, ...]) -> Said:
        if self.listings:
            return self.listings.pop(0)
        return said({"instances": list(self.rows.values()), "next_token": None, "total_instances": len(self.rows)})

    def _show(self, words: tuple[str, ...]) -> Said:
        if not self.shows:
            return said(self.rows.get(int(words[3]), {"instances": None}))
        return self.shows.pop(0) if len(self.shows) > 1 else self.shows[0]

    def _search(self, words: tuple[str, ...]) -> Said:
        return self.searches.pop(0) if self.searches else said([{"dph_total": r["dph_base"], **r} for r in self.offers])

    def _create(self, words: tuple[str, ...]) -> Said:
        number = int(words[3])
        return self.on_create(number) if self.on_create else said({"success": True, "new_contract": self.make(number)})

    def _destroy(self, words: tuple[str, ...]) -> Said:
        if int(words[3]) not in self.rows:
            return 0, "", f"Failed with error 404: Instance {words[3]} not found"
        if not self.keeps_destroyed:
            del self.rows[int(words[3])]
        return 0, f"destroying instance {words[3]}.\n", ""

    def _ssh(self, words: tuple[str, ...], program: str | None) -> CommandResult:
        self.calls.append(words)
        answer = (self.ssh.pop(0) if len(self.ssh) > 1 else self.ssh[0]) if self.ssh else None
        if isinstance(answer, Exception):
            raise answer
        return CommandResult(words, *answer, 0.1) if answer else self.transport.answer_all(words, program)

    def make(self, offer_number: int, **details: Any) -> int:
        """An instance out of an offer."""
        number = 1000 + offer_number
        row = next((row for row in self.offers if row["id"] == offer_number), {})
        self.rows[number] = instance(number, **{"label": LABEL, "machine_id": row.get("machine_id"), **details})
        return number

    def add_offers(self, *numbers: int, **details: Any) -> None:
        self.offers += [offer(number, price=number / 10, machine_id=500 + number, **details) for number in numbers]

    def rent(self, query: OfferQuery = ANY, label: str = LABEL, **words: Any) -> RentedInstance:
        words = {"image": "pytorch/pytorch", "transport": self.transport, "clock": self.clock, **words}
        return rent_instance(query, label, **words)

    def ready(self, **words: Any) -> Target:
        return wait_until_ready("7", transport=self.transport, clock=self.clock, **words)

    def created(self) -> list[int]:
        return [int(words[3]) for words in self.calls if words[1:3] == ("create", "instance")]

    def labelled(self) -> list[int]:
        return [number for number, row in self.rows.items() if row["label"] == LABEL]


@pytest.fixture
def market() -> Market:
    market = Market()
    market.add_offers(1, 2, 3)
    return market


# ---------------------------------------------------------------- one that is there


def test_the_best_offer_is_rented_and_seen_and_one_that_is_there_is_taken(market: Market) -> None:
    market.rows[5] = instance(5, label="somebody else's")
    assert market.rent() == RentedInstance(1001, 1, 501, "RTX 4090", 0.5, None)
    assert market.created() == [1]
    market.rows = {9: instance(9, label=LABEL, machine_id=None, dph_total="x", start_date=None, gpu_name=None)}
    market.calls.clear()
    assert market.rent() == RentedInstance(9, None, None, None, None, None)
    assert [words[1] for words in market.calls] == ["show"]


def test_of_several_the_lowest_id_is_kept_and_no_other_label_is_touched(market: Market) -> None:
    labels = {12: LABEL, 9: LABEL, 3: None, 10: LABEL, 11: LABEL + "0", 2: ["x"], 4: LABEL.upper()}
    market.rows = {number: instance(number, label=label) for number, label in labels.items()}
    market.keeps_destroyed = True
    with pytest.raises(CommandFailed, match="instance 10 still exists"):
        market.rent()
    market.keeps_destroyed = False
    assert market.rent().id == 9
    assert sorted(market.rows) == [2, 3, 4, 9, 11]
    assert [row["id"] for row in find_rented(LABEL, transport=market.transport)] == [9]


@pytest.mark.parametrize("answer", [BROKEN, TOO_MANY, (0, "", ""), (1, "", "Traceback: x"), (0, "<html>", "")])
def test_a_listing_that_fails_is_asked_again_and_never_an_empty_one(market: Market, answer: Said) -> None:
    market.rows[9] = instance(9, label=LABEL)
    market.listings = [answer] * 4
    assert market.rent().id == 9
    assert market.clock.slept == [2.0, 4.0, 8.0, 16.0]


def test_nothing_is_asked_for_while_no_listing_can_be_had(market: Market) -> None:
    market.listings = [TOO_MANY] * 100
    with pytest.raises(TargetUnreachable, match="too frequent"):
        market.rent()
    assert market.created() == [] and market.clock.elapsed <= PATIENCE


@pytest.mark.parametrize("comes_at", [50.0, 70.0])
def test_what_an_earlier_call_asked_for_is_waited_for_and_taken(market: Market, comes_at: float) -> None:
    market.clock.at(comes_at, lambda: market.rows.update({9: instance(9, label=LABEL)}))
    assert market.rent(asked_at=market.clock.time()).id == 9
    assert market.created() == [] and comes_at <= market.clock.elapsed <= comes_at + 2


@pytest.mark.parametrize(
    ("ago", "waits"), [(0.0, 70.0), (30.0, 40.0), (69.0, 14.0), (70.0, 14.0), (1e9, 14.0), (-1e6, 70.0)]
)
def test_no_new_create_before_an_earlier_one_has_expired(market: Market, ago: float, waits: float) -> None:
    assert LATE == 10.0
    asked: list[float] = []
    market.rent(asked_at=market.clock.time() - ago, on_asking=lambda offer: asked.append(market.clock.elapsed))
    assert asked == [pytest.approx(waits, abs=1.0)]


# ---------------------------------------------------------------- answers


def test_nothing_is_asked_for_before_it_is_written_down(market: Market) -> None:
    def full(offer: Offer) -> None:
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        market.rent(on_asking=full)
    assert market.created() == []
    market.on_create = fails_first(market, TOO_MANY, BROKEN)
    asked: list[int] = []
    market.rent(on_asking=lambda offer: asked.append(len(market.created())))
    assert asked == [0, 1, 2] and len(market.created()) == 3


REFUSALS = [
    GONE,
    (0, "", '{"error": true, "status_code": 400, "msg": "bad request"}\n'),
    (0, "", '{"error": true, "status_code": 410, "msg": null}\n'),
    (0, "", "Failed with error 404: no_such_ask\n"),
    said({"success": False, "error": "no_such_ask", "msg": "not available"}),
]
UNKNOWNS = [
    BROKEN,
    TOO_MANY,
    (0, "", '{"error": true, "status_code": 408, "msg": "x"}'),
    (0, "", '{"error": true, "status_code": 0, "msg": "Expecting value"}'),
    *((0, text, "") for text in ("", "<html>", "[" * 100_000)),
    (-9, "", ""),
    (1, "", "Traceback (most recent call last):\nConnectionError: reset by peer"),
    *map(said, ([], None, {"success": True}, {"success": None}, {"new_contract": "7"}, {"new_contract": -1})),
    said({"new_contract": True, "instances": None}),
]


@pytest.mark.parametrize(("answer", "asked"), [*((each, [1, 2]) for each in REFUSALS), (BROKEN, [1, 1, 1, 2])])
def test_an_offer_that_is_refused_or_never_answered_is_followed_by_the_next_one(
    market: Market, answer: Said, asked: list[int]
) -> None:
    market.on_create = lambda number: answer if number == 1 else said({"instance_id": market.make(number)})
    assert market.rent(create_timeout=30.0).offer_id == 2
    assert market.created() == asked and (answer is BROKEN or market.clock.elapsed <= 5)


@pytest.mark.parametrize("answer", [each for each in UNKNOWNS if each is not TOO_MANY])
def test_an_invalid_answer_is_waited_out_and_the_offer_retried(market: Market, answer: Said) -> None:
    market.on_create = fails_first(market, answer)
    assert market.rent(create_timeout=30.0).offer_id == 1
    assert market.created() == [1, 1] and 30 <= market.clock.elapsed <= 34


def fails_first(market: Market, *answers: Said) -> Callable[[int], Said]:
    """A create that gets these answers before it works."""
    left = list(answers)
    return lambda number: left.pop(0) if left else said({"id": market.make(number)})


@pytest.mark.parametrize("times", [1, 2, 5])
@pytest.mark.parametrize("status", [425, 429])
def test_a_refusal_that_will_pass_rents_no_dearer_offer_and_is_told_at_once(
    market: Market, times: int, status: int
) -> None:
    answer = (0, "", json.dumps({"error": True, "status_code": status, "msg": "too frequent"}))
    market.on_create = fails_first(market, *[answer] * times)
    told: list[tuple[float, str]] = []
    assert market.rent(on_event=lambda text: told.append((market.clock.elapsed, text))).offer_id == 1
    assert market.created() == [1] * (times + 1) and len(market.labelled()) == 1
    assert "offer 1 was refused for now" in told[1][1] and told[2][1] == "requesting offer 1 again in 2 s"
    gaps = [later - earlier for (earlier, _), (later, _) in zip(told, told[1:])]
    assert max(gaps) <= 30 and sum(gaps) < 90


def test_a_rate_limit_of_minutes_delays_renting_without_other_offers(market: Market) -> None:
    market.on_create = lambda number: TOO_MANY
    with pytest.raises(TargetUnreachable, match="offer 1 cannot be rented: .*too frequent"):
        market.rent()
    assert set(market.created()) == {1} and 60 <= market.clock.elapsed <= PATIENCE


EMPTY = said({"instances": [], "total_instances": 0, "next_token": None})


@pytest.mark.parametrize("empty", [1, 2, 6])
@pytest.mark.parametrize("ago", [0.0, 60.0, 1e6])
def test_however_often_a_listing_is_empty_what_was_asked_for_earlier_is_found(
    market: Market, empty: int, ago: float
) -> None:
    market.make(1)
    market.listings = [EMPTY] * empty
    assert market.rent(asked_at=market.clock.time() - ago).id == 1001 and market.created() == []
    market.listings = [EMPTY]  # nothing is rented before a label was asked for twice, some time apart
    market.clock.slept.clear()
    assert market.rent().id == 1001 and market.created() == [] and market.clock.slept == [2.0]


@pytest.mark.parametrize("empty", [1, 2, 6, 40])
def test_however_often_a_listing_is_empty_after_a_request_there_is_one_machine(market: Market, empty: int) -> None:
    market.listings = [EMPTY] * (2 + empty)  # two before it is asked for
    found = market.rent()
    assert (found.id, found.offer_id, market.created()) == (1001, 1, [1])


@pytest.mark.parametrize("answer", [*UNKNOWNS, *REFUSALS])
def test_an_instance_that_was_made_all_the_same_is_the_one(market: Market, answer: Said) -> None:
    def made(number: int) -> Said:
        market.make(number)
        return answer

    market.on_create = made
    assert market.rent().id == 1001
    assert market.created() == [1] and market.labelled() == [1001]


@pytest.mark.parametrize("error", [CommandTimedOut("no answer within 60 s"), LocalFailure("it printed too much")])
def test_a_create_without_an_end_is_looked_after(market: Market, error: CommandError) -> None:
    def lost(number: int) -> Said:
        market.clock.at(market.clock.elapsed + 20, lambda: market.rows.update({9: instance(9, label=LABEL)}))
        raise error

    market.on_create = lost
    found = market.rent()
    assert (found.id, found.offer_id) == (9, None) and market.created() == [1]


def test_one_that_comes_after_its_time_makes_two_of_which_one_is_left(market: Market) -> None:
    def late(number: int) -> Said:
        if number == 1:
            return BROKEN
        market.make(1)
        return said({"new_contract": market.make(number)})

    market.on_create = late
    found = market.rent()
    assert (found.id, found.offer_id) == (1001, None) and market.labelled() == [1001]


@pytest.mark.parametrize("name", ["new_contract", "instance_id", "id", "instances"])
def test_the_id_is_read_wherever_it_is(name: str) -> None:
    answer = {"instances": {"id": 7}} if name == "instances" else {name: 7}
    assert read_create_answer(CommandResult(("vastai",), *said(answer), 0.1)).instance_id == 7


def test_one_that_is_told_and_never_listed_or_without_its_label_is_not_had(market: Market) -> None:
    market.on_create = lambda number: said({"new_contract": 5 if number == 1 else market.make(number)})
    assert market.rent().offer_id == 2
    market.rows.clear()
    market.calls.clear()
    market.on_create = lambda number: said({"new_contract": market.make(number, label=None)})
    with pytest.raises(CommandFailed, match="instance 1001 was created without its label"):
        market.rent()
    assert market.rows == {} and market.created() == [1]


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_may_not_rent_ends_it_at_once(market: Market, status: int) -> None:
    refusal = f'{{"error": true, "status_code": {status}, "msg": "lacks instance_write"}}'
    market.on_create = lambda number: (0, "", refusal)
    with pytest.raises(AccessDenied, match="lacks instance_write"):
        market.rent()
    assert market.created() == [1]


@pytest.mark.parametrize(
    "answer",
    [
        (0, "", json.dumps({"error": True, "status_code": 400, "msg": NO_CREDIT})),
        said({"success": False, "error": "insufficient_credit", "msg": "x"}),
    ],
)
def test_an_account_without_credit_ends_it_at_once(market: Market, answer: Said) -> None:
    market.on_create = lambda number: answer
    with pytest.raises(CommandFailed) as caught:
        market.rent()
    assert "add credit" in str(caught.value) and market.created() == [1]


# ---------------------------------------------------------------- offers


def test_hosts_and_machines_that_are_not_wanted_are_passed_over() -> None:
    market = Market()
    market.add_offers(1, 2, host_id=9)
    market.add_offers(3, host_id=8)
    for excluded in ({"bad_hosts": (9,)}, {"bad_machines": {501, 502}}):
        found = market.rent(**excluded)
        assert (found.offer_id, found.host_id, found.machine_id) == (3, 8, 503)
        market.rows.clear()
    with pytest.raises(NoOffers, match="all 3 offers are on excluded machines"):
        market.rent(bad_machines=[501, 502, 503])


def test_a_search_that_fails_is_made_again_but_not_against_a_quota(market: Market) -> None:
    market.searches = [TOO_MANY, BROKEN]
    assert market.rent().offer_id == 1
    market.rows.clear()
    market.searches = [(0, "", '{"error": true, "status_code": 429, "msg": "daily search quota exceeded"}')] * 9
    with pytest.raises(TargetUnreachable, match="quota"):
        market.rent()
    assert len(market.searches) == 8


@pytest.mark.parametrize(
    ("query", "advice"),
    [
        (OfferQuery((), max_price_per_hour=0.15), "max_price_per_hour: the cheapest costs $0.20"),
        (OfferQuery(("H100",), only_preferred=True), "other GPUs than the preferred ones, such as RTX 4090"),
        (OfferQuery((), min_vram_gb=80.0), "min_vram_gb: RTX 4090 has 24.564 GB"),
        (OfferQuery((), num_gpus=8), "relax the query"),
    ],
)
def test_what_to_change_is_told_when_nothing_is_good_enough(query: OfferQuery, advice: str) -> None:
    market = Market()
    market.add_offers(2, 3)
    with pytest.raises(NoOffers) as caught:
        market.rent(query)
    assert advice in str(caught.value)


def test_a_market_that_refuses_everything_is_left_after_ten_offers() -> None:
    market = Market(on_create=lambda number: GONE)
    market.add_offers(*range(1, 31))
    with pytest.raises(NoOffers, match=f"none of the {MOST_OFFERS} best of 30 offers"):
        market.rent()
    assert market.created() == list(range(1, 11))
    market = Market(searches=[said([]), BROKEN, (0, "<html>", ""), BROKEN])  # no advice can be had
    with pytest.raises(NoOffers, match="relax the query"):
        market.rent()


# ---------------------------------------------------------------- words


def test_a_create_says_all_and_is_sent_once(market: Market) -> None:
    market.rent(onstart="-x 'a b'\n\"$c\"")
    words = next(words for words in market.calls if words[1] == "create")
    wanted = "create instance 1 --image pytorch/pytorch --disk 64 --label LABEL --ssh --direct --cancel-unavail"
    assert words[1:13] == tuple(wanted.replace("LABEL", LABEL).split())
    assert words[13:] == ("--onstart-cmd=-x 'a b'\n\"$c\"", "--retry", "1", "--raw")
    market.rows.clear()
    market.calls.clear()
    market.rent(OfferQuery((), kind="bid"))
    words = next(words for words in market.calls if words[1] == "create")
    assert float(words[words.index("--bid_price") + 1]) == pytest.approx(0.0525)


@pytest.mark.parametrize(
    ("price", "min_bid", "most", "bid"),
    [
        (0.4, 0.4, 4.5, 0.42),
        (0.45, 0.4, 4.5, 0.42),
        (0.45, 0.4, 0.46, 0.41),
        (0.4, 0.4, 0.4, 0.4),
        (0.3, None, 1, 0.315),
    ],
)
def test_a_bid_is_a_little_above_what_it_must_beat_and_never_above_the_price(
    price: float, min_bid: float | None, most: float, bid: float
) -> None:
    offered = Offer(1, "RTX 4090", price_per_hour=price, min_bid=min_bid)
    assert choose_bid(offered, OfferQuery(max_price_per_hour=most)) == pytest.approx(bid)


@pytest.mark.parametrize(
    "words",
    [
        *({"label": label} for label in ("", " a", "a ", "-a", "a\n", "ä", "a\0", "a" * 201)),
        *({"image": image} for image in ("", "-x", "a b", "a\n", "a;b")),
        *({"onstart": text} for text in ("a\0b", "x" * 100_001)),
    ],
)
def test_words_that_would_be_lost_or_misread_are_refused(market: Market, words: Row) -> None:
    with pytest.raises(SettingsError):
        market.rent(**words)
    assert market.calls == []


def test_what_the_service_says_cannot_play_with_the_terminal(market: Market) -> None:
    market.on_create = lambda number: said({"success": False, "msg": "\x1b[2J\n\u202e" + "x" * 5000})
    events: list[str] = []
    with pytest.raises(NoOffers):
        market.rent(on_event=events.append)
    assert all(event.isprintable() and len(event) < 400 for event in events) and len(events) == 6


# ---------------------------------------------------------------- until it is ready


def boot(*steps: Row | Said | None) -> Market:
    """A market whose instance 7 is seen like this, the last step for ever."""
    shows = [
        said(instance(7, **step)) if isinstance(step, dict) else step or said({"instances": None}) for step in steps
    ]
    return Market(shows=shows)


def end(market: Market, **words: Any) -> TrainingMonitorError:
    with pytest.raises(TrainingMonitorError) as caught:
        market.ready(**words)
    return caught.value


def shows(market: Market) -> int:
    return sum(words[1:3] == ("show", "instance") for words in market.calls)


LOADING, RUNNING = {"actual_status": "loading", "status_msg": "pulling layer 3"}, {"actual_status": "running"}
REFUSED = (255, "", "ssh: connect to host ssh5.vast.ai port 10007: Connection refused")


def test_a_slow_boot_is_waited_for_until_ssh_answers() -> None:
    market = boot({"actual_status": None}, {"actual_status": "created"}, LOADING, LOADING, RUNNING)
    market.ssh = [REFUSED, TargetUnreachable("timed out"), (255, "", "Permission denied (publickey)."), (0, "", "")]
    market.clock.at(40.0, market.ssh.clear)
    events: list[str] = []
    assert market.ready(on_event=events.append) == VastTarget("7", "ssh5.vast.ai", 10007)
    begun = [event.removeprefix("instance 7: ")[:20] for event in events[:3]]
    assert begun == ["no status yet", "created", "loading: pulling lay"]
    assert "refused" in events[3] and events[-1] == "instance 7: ready"


@pytest.mark.parametrize("status", ["exited", "offline", "unknown", "stopped"])
def test_what_never_runs_is_told_once_it_was_seen_twice(status: str) -> None:
    market = boot(LOADING, {"actual_status": status, "status_msg": "\x1b[31mOCI runtime\n" + "x" * 9000})
    error = end(market)
    assert type(error) is CommandFailed and f"{status}: OCI runtime x" in str(error) and len(str(error)) < 500
    assert str(error).isprintable() and shows(market) == 3
    for said in ("denied: access to the resource is denied", 'Head "https://r.io/v2/a": unauthorized'):
        refused = LOADING | {"status_msg": f"Error response from daemon: {said}"}
        assert "login to its registry" in str(end(boot(refused, refused, RUNNING)))
    down = {"actual_status": "created", "cur_state": "stopped", "intended_status": "stopped"}  # it is not to run
    with pytest.raises(CommandFailed, match="cannot start: created"):
        boot(down, down, RUNNING).ready()


@pytest.mark.parametrize(
    "seen",
    [
        ({"actual_status": "offline"}, {"actual_status": "loading"}, {"actual_status": "offline"}),
        (None, {"actual_status": "loading"}, None),
        ({"actual_status": "exited"}, BROKEN),  # a failed look is no second time
        # it waits for its GPUs
        ({"actual_status": "exited", "cur_state": "stopped", "intended_status": "running"},) * 3,
    ],
)
def test_what_was_seen_once_is_no_end(seen: tuple[Row | Said | None, ...]) -> None:
    assert boot(*seen, RUNNING).ready().address == "ssh5.vast.ai"


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("Error response from daemon: manifest for a/b:c not found: manifest unknown", True),
        ("Error: pull access denied for a/b, repository does not exist", True),
        ("failed to register layer: no space left on device", True),
        ("Error response from daemon: net/http: TLS handshake timeout", False),  # it may pass
    ],
)
def test_an_image_that_cannot_be_had_ends_it(text: str, ends: bool) -> None:
    market = boot({"actual_status": "loading", "status_msg": text}, *([] if ends else [RUNNING]))
    if ends:
        error = end(market)
        assert type(error) is CommandFailed and text in str(error)
    else:
        assert market.ready().name == "7"


def test_a_time_out_tells_how_far_it_got(subtests: pytest.Subtests) -> None:
    for steps, ssh, said_last in [
        ([LOADING], [], "loading: pulling layer 3"),
        ([RUNNING], [REFUSED], "Connection refused"),
        ([{"ssh_host": None}], [], "no usable ssh address"),
        ([{"ssh_host": "-oProxyCommand=id"}], [], "no usable ssh address"),
        ([{"actual_status": {"a": 1}, "status_msg": ["x"]}], [], "{'a': 1}: ['x']"),
        ([(1, "", "Traceback")], [], "loading"),
    ]:
        with subtests.test(steps=steps, ssh=ssh, said_last=said_last):
            market = boot(*steps)
            market.ssh = list(ssh)
            market.rows[7] = instance(7, actual_status="loading", start_date=None)
            error = end(market, timeout=100.0)
            assert type(error) is CommandTimedOut and said_last in str(error)
            assert market.clock.elapsed == pytest.approx(100.0)


def test_a_machine_of_which_nobody_knows_is_not_called_late() -> None:
    for answer, pauses in ((BROKEN, []), (TOO_MANY, [10.0, 20.0, 30.0, 30.0])):
        market = boot(answer)
        error = end(market, timeout=300.0)
        assert type(error) is TargetUnreachable and "its status is unknown" in str(error)
        assert market.clock.slept[: len(pauses)] == pauses, "a service that has had enough is asked less often"


def test_a_refused_key_a_machine_that_is_gone_or_a_missing_tool_ends_the_wait() -> None:
    denied = (0, "", '{"error": true, "status_code": 401, "msg": "Invalid user key"}')
    assert type(end(boot(denied))) is AccessDenied
    assert type(end(boot(LOADING, None))) is InstanceNotFound
    market = boot(RUNNING)
    market.ssh = [ToolNotFound("ssh is not installed here")]
    assert type(end(market)) is ToolNotFound
