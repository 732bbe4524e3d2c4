"""Search vast.ai for offers, best first, through the vastai CLI, and check a request against the market.

Measured with vastai 1.9.1 (tests/recorded/vastai): a query matches only full GPU names (`A100` finds nothing when
`A100 SXM4` is for rent), so GPUs are chosen here. A refusal with HTTP status 200 and `offers: []` is printed as `[]`,
like an empty market; every other invalid answer prints nothing, or a traceback.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from math import ceil, inf
from typing import Annotated, Any, NamedTuple

from training_monitor.core.errors import SettingsError, TargetUnreachable, closest
from training_monitor.core.fields import PublicValue
from training_monitor.core.settings_table import SWITCH, Place, check_fields, choice, items, number, text, whole
from training_monitor.core.units import HOUR, format_duration, known_number, name_some, plural
from training_monitor.targets.transport import LocalTransport, Transport
from training_monitor.vast.asking import ask_vastai, clean_line
from training_monitor.vast.cost import estimate_cost, least_seconds
from training_monitor.vast.training_request import TrainingRequest

MOST_ROWS, MOST_PAGES = 1000, 5
KINDS = ("on-demand", "bid")
_GPUS = items(text("the name of a GPU, such as RTX 4090", r"[A-Za-z0-9][A-Za-z0-9 _.+/-]{0,59}"), least=0)
_COUNTRIES = items(text("two capital letters", "[A-Z]{2}"), least=0)
_ABOVE_ZERO, _FROM_ZERO = number("a number above 0", above=0), number("a number, 0 or more", least=0)
_VARIABLES = {
    "max_price_per_hour": "VASTAI_MAX_BID_PER_HOUR",
    "min_vram_gb": "VASTAI_MIN_VRAM_GB",
    "disk_gb": "VASTAI_DEFAULT_DISK_GB",
}
_PREFERRED = "VASTAI_PREFERRED_GPUS"
MOST_GPUS = 10  # GPU names in a message
_WISHES = {
    "max_price": "the maximum price",
    "min_vram": "the minimum VRAM",
    "reliability": "the reliability",
    "country_not": "the excluded countries",
    "gpu": "the preferred GPUs",
}
# The value that switches off each wish. The disk is missing, since its size is part of every price.
GIVEN_UP: dict[str, dict[str, Any]] = {
    "max_price": {"max_price_per_hour": 1000.0},
    "min_vram": {"min_vram_gb": 0.0},
    "reliability": {"min_reliability": 0.0},
    "country_not": {"blocked_countries": ()},
    "gpu": {"only_preferred": False},
}


@dataclass(frozen=True, slots=True, repr=False)
class OfferQuery(PublicValue):
    """The requirements for an offer. If an offer does not state a value, the requirement is not met.

    Attributes:
        preferred_gpus: full names of GPUs or parts of names, most preferred first (`4090` matches `RTX 4090`; `A100`
            matches any A100).
        max_price_per_hour: maximum price in dollars, for all GPUs and the disk together.
        min_vram_gb: minimum memory of each GPU, in the units of the market: a 4090 has 24.564.
        disk_gb: the disk space to rent.
        min_down_mbps: minimum download speed in megabits per second; 0: any.
        blocked_countries: two-letter country codes.
        kind: a `bid` is cheaper, but the machine may be taken away at any time.
        verified: allow only machines that vast.ai has verified.
        only_preferred: reject other GPUs; otherwise they are ranked after the preferred ones.
    """

    preferred_gpus: Annotated[tuple[str, ...], _GPUS] = ("RTX 4090", "A100")
    max_price_per_hour: Annotated[float, _ABOVE_ZERO] = 4.5
    min_vram_gb: Annotated[float, _FROM_ZERO] = 24.0
    disk_gb: Annotated[float, _ABOVE_ZERO] = 64.0
    num_gpus: Annotated[int, whole("1 or more", least=1)] = 1
    min_reliability: Annotated[float, number("a fraction from 0 to 1, such as 0.95", least=0, most=1)] = 0.95
    min_cuda: Annotated[float, _FROM_ZERO] = 12.0
    min_down_mbps: Annotated[float, _FROM_ZERO] = 0.0
    blocked_countries: Annotated[tuple[str, ...], _COUNTRIES] = ("CN", "HK")
    kind: Annotated[str, choice(*KINDS, expected=" or ".join(KINDS))] = "on-demand"
    verified: Annotated[bool, SWITCH] = True
    only_preferred: Annotated[bool, SWITCH] = False

    def __post_init__(self) -> None:
        check_fields(self)
        if self.only_preferred and not self.preferred_gpus:
            raise SettingsError(
                "preferred_gpus", self.preferred_gpus, "at least one GPU name: an empty list would allow no GPUs"
            )


def load_offer_query(environ: Mapping[str, str] = os.environ, **overrides: Any) -> OfferQuery:
    """Return the query that is defined by the environment and by `overrides`, which take precedence.

    The variables are VASTAI_PREFERRED_GPUS (comma-separated), VASTAI_MAX_BID_PER_HOUR, VASTAI_MIN_VRAM_GB and
    VASTAI_DEFAULT_DISK_GB. `overrides` are fields of OfferQuery.
    """
    found: dict[str, Any] = {}
    for name, variable in _VARIABLES.items():
        if name not in overrides and (given := environ.get(variable, "").strip()):
            found[name] = _positive(variable, given)
    if "preferred_gpus" not in overrides and (given := environ.get(_PREFERRED, "").strip()):
        place = Place(_PREFERRED)
        found["preferred_gpus"] = place.read(_GPUS, [name.strip() for name in given.split(",") if name.strip()])
        for fault in place.faults:
            raise SettingsError(_PREFERRED, fault.value, "comma-separated GPU names, such as 4090,A100")
    return OfferQuery(**found, **overrides)


def _positive(variable: str, given: str) -> float:
    with suppress(ValueError):
        if 0 < (known := float(given)) < inf:
            return known
    raise SettingsError(variable, given, _ABOVE_ZERO.expected)


@dataclass(frozen=True, slots=True, repr=False)
class Offer(PublicValue):
    """A machine for rent, or a part of one. None means unknown.

    Attributes:
        id: the argument of `vastai create instance ID`.
        vram_gb: the memory of each GPU.
        price_per_hour: the price in dollars for all GPUs and the requested disk; for a bid, at the price to beat.
        reliability: the service's estimate, 0 to 1.
        country: the two-letter country code.
        cuda: the newest CUDA version that the driver supports.
        min_bid: the price to beat, in dollars per hour, excluding the disk.
        max_days: the longest possible rental, in days.
    """

    id: int
    gpu_name: str
    num_gpus: int | None = None
    vram_gb: float | None = None
    price_per_hour: float | None = None
    reliability: float | None = None
    country: str | None = None
    cuda: float | None = None
    inet_down_mbps: float | None = None
    inet_up_mbps: float | None = None
    disk_gb: float | None = None
    min_bid: float | None = None
    max_days: float | None = None
    machine_id: int | None = None
    host_id: int | None = None
    verified: bool | None = None
    rentable: bool | None = None


def search_offers(query: OfferQuery, *, transport: Transport | None = None) -> list[Offer]:
    """Return the offers that meet the requirements, best first: by GPU preference, then by price.

    Returns:
        The offers; empty if the market has none. Another customer may take an offer first.

    Raises:
        AccessDenied: the vast.ai API key lacks a permission.
        CommandError: the offers could not be listed.
    """
    runner = transport or LocalTransport()
    found: dict[int, Offer] = {}
    dearest = 0.0
    for _ in range(MOST_PAGES):  # by price: the next page begins at the dearest offer of this one
        rows = _search(query, dearest, runner)
        offers = [offer for row in rows if (offer := read_offer(row))]
        new = {offer.id: offer for offer in offers if offer.id not in found}
        found |= new
        dearest = max((offer.price_per_hour or 0.0 for offer in offers), default=dearest)
        if len(rows) < MOST_ROWS or not new:
            break
    return rank_offers(found.values(), query)


def _search(query: OfferQuery, min_price: float, runner: Transport) -> list[object]:
    words = ["search", "offers", search_words(query, min_price), "--type", query.kind, "--order", "dph_total"]
    words += ["--storage", _plain(query.disk_gb), "--limit", str(MOST_ROWS)]
    rows = ask_vastai(*words, transport=runner)
    if not isinstance(rows, list):
        raise TargetUnreachable("the response is not a list of offers", target="vast.ai")
    if rows and not any(isinstance(row, dict) and "id" in row for row in rows):
        raise TargetUnreachable(f"none of the {len(rows)} offers in the response can be read", target="vast.ai")
    return rows


def search_words(query: OfferQuery, min_price: float = 0.0) -> str:
    """Return the query in the syntax of the CLI, which multiplies gigabytes of GPU memory by 1000."""
    words = [
        f"num_gpus={query.num_gpus}",
        f"gpu_ram>={_plain(query.min_vram_gb)}",
        f"disk_space>={_plain(query.disk_gb)}",
        f"reliability>={_plain(query.min_reliability)}",
        f"cuda_vers>={_plain(query.min_cuda)}",
        f"dph_total<={_plain(query.max_price_per_hour)}",
        "rentable=True",
        f"verified={'True' if query.verified else 'any'}",
    ]
    if min_price:
        words.append(f"dph_total>={_plain(min_price)}")
    if query.min_down_mbps:
        words.append(f"inet_down>={_plain(query.min_down_mbps)}")
    if query.blocked_countries:
        words.append(f"geolocation notin [{','.join(query.blocked_countries)}]")
    return " ".join(words)


def _plain(number: float) -> str:
    """Format a number without an exponent, and 64 instead of 64.0."""
    return f"{number:.6f}".rstrip("0").rstrip(".")


def read_offer(row: object) -> Offer | None:
    """Return an offer from a row of the service; None for anything that is not an offer."""
    if not isinstance(row, dict):
        return None
    number, gpu = row.get("id"), row.get("gpu_name")
    if type(number) is not int or number <= 0 or not isinstance(gpu, str) or not gpu.strip():
        return None
    vram, duration = _known(row, "gpu_ram"), _known(row, "duration")
    return Offer(
        id=number,
        gpu_name=gpu.strip(),
        num_gpus=_whole(row, "num_gpus"),
        vram_gb=None if vram is None else vram / 1000,
        price_per_hour=_known(row, "dph_total"),
        reliability=_known(row, "reliability", "reliability2"),
        country=_country(row.get("geolocation")),
        cuda=_known(row, "cuda_max_good"),
        inet_down_mbps=_known(row, "inet_down"),
        inet_up_mbps=_known(row, "inet_up"),
        disk_gb=_known(row, "disk_space"),
        min_bid=_known(row, "min_bid"),
        max_days=None if duration is None else duration / 86_400,
        machine_id=_whole(row, "machine_id"),
        host_id=_whole(row, "host_id"),
        verified=_verified(row),
        rentable=_rentable(row),
    )


def _known(row: dict[str, Any], *names: str) -> float | None:
    """Return the first of these that is a number above 0: no real offer costs or has 0."""
    numbers = (known_number(row.get(name)) for name in names)
    return next((number for number in numbers if number is not None and number > 0), None)


def _whole(row: dict[str, Any], name: str) -> int | None:
    value = row.get(name)
    return value if type(value) is int and value > 0 else None


def _country(place: object) -> str | None:
    """Return the country code: `Sweden, SE`, `SE` -> `SE`."""
    found = re.fullmatch(r"(?:.*,)?\s*([A-Za-z]{2})\s*", place, re.DOTALL) if isinstance(place, str) else None
    return found[1].upper() if found else None


def _verified(row: dict[str, Any]) -> bool | None:
    if isinstance(row.get("verification"), str):
        return bool(row["verification"] == "verified")
    return row["verified"] if isinstance(row.get("verified"), bool) else None


def _rentable(row: dict[str, Any]) -> bool | None:
    if row.get("rented") is True:
        return False
    return row["rentable"] if isinstance(row.get("rentable"), bool) else None


def rank_offers(offers: Iterable[Offer], query: OfferQuery) -> list[Offer]:
    """Return the offers that are good enough, best first: by preference of GPU, price, reliability."""
    chosen = []
    for offer in offers:
        place = _preference(offer.gpu_name, query.preferred_gpus)
        if place is None and query.only_preferred:
            continue
        if is_good_enough(offer, query):
            place = len(query.preferred_gpus) if place is None else place
            chosen.append((place, offer.price_per_hour or 0.0, -(offer.reliability or 0.0), offer.id, offer))
    return [offer for *_, offer in sorted(chosen, key=lambda entry: entry[:4])]


def is_good_enough(offer: Offer, query: OfferQuery) -> bool:
    """Return whether an offer is known to meet the requirements, apart from the model of its GPU."""
    price = offer.price_per_hour
    if price is None or price > query.max_price_per_hour or offer.num_gpus != query.num_gpus:
        return False
    if query.kind == "bid" and (offer.min_bid or 0.0) > query.max_price_per_hour:
        return False
    if offer.vram_gb is None or offer.rentable is False or (query.verified and not offer.verified):
        return False
    if query.blocked_countries and (offer.country is None or offer.country in query.blocked_countries):
        return False
    asked = (
        (offer.vram_gb, query.min_vram_gb),
        (offer.disk_gb, query.disk_gb),
        (offer.reliability, query.min_reliability),
        (offer.cuda, query.min_cuda),
        (offer.inet_down_mbps, query.min_down_mbps),
    )
    return all((known or 0.0) >= least for known, least in asked)


def has_gpu(offer: Offer, name: str) -> bool:
    """Return whether a name, as in `preferred_gpus`, means an offer's GPU."""
    return _preference(offer.gpu_name, (name,)) is not None


def _preference(gpu: str, preferred: tuple[str, ...]) -> int | None:
    """Return the place of a GPU among the preferred: by its full name, else by whole words of it."""
    words = _words(gpu)
    wanted = [_words(name) for name in preferred]
    exact = (place for place, name in enumerate(wanted) if "".join(name) == "".join(words))
    parts = (place for place, name in enumerate(wanted) if _has_words(words, name))
    return next(chain(exact, parts), None)


def _has_words(words: list[str], wanted: list[str]) -> bool:
    return any(words[start : start + len(wanted)] == wanted for start in range(len(words)))


def _words(name: str) -> list[str]:
    return re.split(r"[\s_-]+", name.strip().lower())


# ---------------------------------------------------------------- a request and the market


class MarketCheck(NamedTuple):
    """The result of checking a request against the market.

    Attributes:
        obstacles: why it cannot be done as things are, each with what to change.
        notes: what else to know before it is queued.
    """

    obstacles: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def judge_request(
    request: TrainingRequest,
    query: OfferQuery,
    everything: Sequence[Offer],
    *,
    balance: float | None = None,
    daily_budget: float | None = None,
) -> MarketCheck:
    """Judge the request by known offers.

    Args:
        query: what the request wants to rent.
        everything: the offers without its wishes, see `search_everything`. An empty list proves nothing: the CLI prints
            some refusals like that.
        balance: of the paying account, dollars; None: no account pays.
        daily_budget: of all jobs together, dollars; None: there is no limit.
    """
    if not everything:
        wanted = f"{plural(query.num_gpus, 'GPU')} and {query.disk_gb:g} GB of disk"
        return MarketCheck(notes=(f"vast.ai offers no machine with {wanted}",))
    obstacles, notes = _judge_gpus(request, everything)
    good = rank_offers(everything, query)
    if not good:
        return MarketCheck((*obstacles, _why_nothing(query, everything)), notes)
    cost = _judge_cost(request, [offer.price_per_hour or 0.0 for offer in good])
    price = good[0].price_per_hour or query.max_price_per_hour
    estimate = estimate_cost(request, price)
    needed = min(estimate, request.budget or estimate)
    if balance is not None and balance < needed:
        cost.append(f"{request.account} has ${balance:.2f}, but ${needed:.2f} must be reserved: make a deposit")
    if daily_budget is not None and daily_budget < needed:
        cost.append(f"${needed:.2f} is more than the daily budget of ${daily_budget:.2f}: raise it in the settings")
    notes += (
        f"best offer now: {clean_line(good[0].gpu_name, 60)} for ${price:.3f} per hour, at most ${estimate:.2f} in all",
    )
    cheapest = min(good, key=lambda offer: offer.price_per_hour or 0.0)
    if 0 < (least := cheapest.price_per_hour or 0.0) < price:
        name, most = clean_line(cheapest.gpu_name, 60), estimate_cost(request, least)
        notes += (f"cheapest suitable offer: {name} for ${least:.3f} per hour, at most ${most:.2f} in all",)
    if (seconds := least_seconds(request)) > request.hard_timeout:
        notes += (
            f"at {request.seconds_per_step:g} s per step it needs {format_duration(seconds)}, but its hard limit is"
            f" {format_duration(request.hard_timeout)}: use fewer steps, or a longer hard limit",
        )
    return MarketCheck((*obstacles, *cost), notes)


def _judge_gpus(request: TrainingRequest, everything: Sequence[Offer]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return obstacles and notes about the GPUs that the request itself prefers."""
    wanted = [str(name) for name in request.offers.get("preferred_gpus") or ()]
    missing = [name for name in wanted if not any(has_gpu(offer, name) for offer in everything)]
    if not missing:
        return (), ()
    names = sorted({clean_line(offer.gpu_name, 60) for offer in everything})
    told = tuple(f"no {name} is offered now; similar: {_similar(name, names)}" for name in missing)
    is_cut = len(everything) >= MOST_ROWS * (MOST_PAGES - 1)  # the listing may be incomplete
    return ((), told) if is_cut or len(missing) < len(wanted) else (told, ())


def _similar(name: str, names: Sequence[str]) -> str:
    """Return the GPUs that may be meant."""
    by_lower = {each.lower(): each for each in names}
    found = closest(name.lower(), list(by_lower))
    if found in by_lower:
        return by_lower[found]
    return name_some(names, MOST_GPUS)


def _why_nothing(query: OfferQuery, everything: Iterable[Offer]) -> str:
    loose = find_loose_wishes(query, everything)
    if "max_price" in loose:
        least = min(offer.price_per_hour or 0.0 for offer in loose["max_price"])
        return f"no offer costs at most ${query.max_price_per_hour:g} per hour: allow ${_cents_up(least)} or more"
    if "min_vram" in loose:
        most = max(offer.vram_gb or 0.0 for offer in loose["min_vram"])
        return f"no GPU has {query.min_vram_gb:g} GB at that price: request {int(10 * most) / 10:g} or less"
    if loose:
        wishes = ", or without ".join(_WISHES[each] for each in loose)
        return f"no offer meets the requirements; some would without {wishes}"
    return "no offer meets the requirements, even if any single one is dropped: relax several"


def _judge_cost(request: TrainingRequest, prices: Sequence[float]) -> list[str]:
    """Return what is wrong with the budget, by plain arithmetic."""
    least = min(prices) * min(least_seconds(request), request.hard_timeout) / HOUR
    if request.budget is None or request.budget >= least:
        return []
    return [
        f"a budget of ${request.budget:g} is too low: the cheapest offer costs ${min(prices):.3f} per hour, for at "
        f"least {format_duration(least_seconds(request))}: allow ${_cents_up(least)} or more"
    ]


def _cents_up(dollars: float) -> str:
    """Round up to cents, so that the shown amount is enough."""
    return f"{ceil(dollars * 100 - 1e-9) / 100:.2f}"


# ---------------------------------------------------------------- wishes given up


def search_everything(query: OfferQuery, *, transport: Transport | None = None) -> list[Offer]:
    """Search for offers without the wishes of a query. Raises CommandError."""
    wishes = {name: value for wish in GIVEN_UP.values() for name, value in wish.items()}
    return search_offers(replace(query, **wishes), transport=transport)


def find_loose_wishes(query: OfferQuery, everything: Iterable[Offer]) -> dict[str, list[Offer]]:
    """Return the wishes, by name, that alone exclude all offers, with the offers found without each."""
    there = list(everything)
    found = {name: rank_offers(there, replace(query, **wish)) for name, wish in GIVEN_UP.items()}
    return {name: offers for name, offers in found.items() if offers}
