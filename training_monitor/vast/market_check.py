"""Whether what is for rent now does for a training that is to be queued, and what to change where it does not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from training_monitor.errors import closest
from training_monitor.policy.cost import HOUR, estimate_cost, least_seconds
from training_monitor.renting import TrainingRequest
from training_monitor.targets.transport import Transport
from training_monitor.units import format_duration, name_some, plural
from training_monitor.vast.creating import clean_line
from training_monitor.vast.offers import MOST_PAGES, MOST_ROWS, Offer, OfferQuery, has_gpu, rank_offers, search_offers

MOST_GPUS = 10  # names of GPUs that are told
# What each wish is when it is given up; but the disk, whose size is in every price.
GIVEN_UP: dict[str, dict[str, Any]] = {
    "--max-price": {"max_price_per_hour": 1000.0},
    "--min-vram": {"min_vram_gb": 0.0},
    "--reliability": {"min_reliability": 0.0},
    "--country-not": {"blocked_countries": ()},
    "--gpu": {"only_preferred": False},
}


@dataclass(frozen=True, slots=True)
class MarketCheck:
    """What the market says to a request.

    Attributes:
        obstacles: why it cannot be done as things are, each with what to change.
        notes: what else to know before it is queued.
    """

    obstacles: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def check_market(
    request: TrainingRequest,
    query: OfferQuery,
    *,
    balance: float | None = None,
    daily_budget: float | None = None,
    transport: Transport | None = None,
) -> MarketCheck:
    """Ask once what is for rent, and judge the request by that.

    Args:
        query: what the request wants to rent.
        balance: of the account that is to pay, dollars; None: nobody's.
        daily_budget: of all jobs together, dollars; None: there is no limit.

    Raises:
        CommandError: nobody knows what is for rent.
    """
    everything = search_offers(give_up_wishes(query), transport=transport)
    return judge_request(request, query, everything, balance=balance, daily_budget=daily_budget)


def judge_request(
    request: TrainingRequest,
    query: OfferQuery,
    everything: Sequence[Offer],
    *,
    balance: float | None = None,
    daily_budget: float | None = None,
) -> MarketCheck:
    """The same for offers that are known: all there are once the wishes are given up. Pure.

    That there are none at all proves nothing: the CLI prints some refusals like that.
    """
    if not everything:
        wanted = f"{plural(query.num_gpus, 'GPU')} and {query.disk_gb:g} GB of disk"
        return MarketCheck(notes=(f"vast.ai tells of no machine with {wanted} for rent",))
    obstacles, notes = _judge_gpus(request, everything)
    good = rank_offers(everything, query)
    if not good:
        return MarketCheck((*obstacles, _why_nothing(query, everything)), notes)
    cost = _judge_cost(request, [offer.price_per_hour or 0.0 for offer in good])
    price = good[0].price_per_hour or query.max_price_per_hour
    estimate = estimate_cost(request, price)
    needed = min(estimate, request.budget or estimate)
    if balance is not None and balance < needed:
        cost.append(f"{request.account} has ${balance:.2f}, and ${needed:.2f} has to be reserved: credits --deposit")
    if daily_budget is not None and daily_budget < needed:
        cost.append(f"${needed:.2f} is more than the daily budget of ${daily_budget:.2f}: raise it in the settings")
    notes += (f"best now: {clean_line(good[0].gpu_name, 60)} for ${price:.3f} per hour, ${estimate:.2f} at most",)
    if (seconds := least_seconds(request)) > request.hard_timeout:
        notes += (
            f"at {request.seconds_per_step:g} s a step it takes {format_duration(seconds)}, and is ended after"
            f" {format_duration(request.hard_timeout)}: fewer --steps, or a longer --hard-timeout",
        )
    return MarketCheck((*obstacles, *cost), notes)


def _judge_gpus(request: TrainingRequest, everything: Sequence[Offer]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Obstacles and notes about the GPUs that the request itself prefers."""
    wanted = [str(name) for name in request.offers.get("preferred_gpus") or ()]
    missing = [name for name in wanted if not any(has_gpu(offer, name) for offer in everything)]
    if not missing:
        return (), ()
    names = sorted({clean_line(offer.gpu_name, 60) for offer in everything})
    told = tuple(f"no {name} is for rent now, but {_similar(name, names)} (--gpu)" for name in missing)
    is_cut = len(everything) >= MOST_ROWS * (MOST_PAGES - 1)  # there may be more than was told
    return ((), told) if is_cut or len(missing) < len(wanted) else (told, ())


def _similar(name: str, names: Sequence[str]) -> str:
    """The GPUs that may be meant."""
    by_lower = {each.lower(): each for each in names}
    found = closest(name.lower(), list(by_lower))
    if found in by_lower:
        return by_lower[found]
    return name_some(names, MOST_GPUS)


def _why_nothing(query: OfferQuery, everything: Iterable[Offer]) -> str:
    loose = find_loose_wishes(query, everything)
    if "--max-price" in loose:
        least = _cheapest(loose["--max-price"])
        return f"nothing costs at most ${query.max_price_per_hour:g} per hour: --max-price {_cents_up(least)} or more"
    if "--min-vram" in loose:
        most = max(offer.vram_gb or 0.0 for offer in loose["--min-vram"])
        return f"no GPU has {query.min_vram_gb:g} GB at that price: --min-vram {int(10 * most) / 10:g} or less"
    if loose:
        return f"nothing for rent is good enough; without {', or without '.join(loose)} there would be something"
    return "nothing for rent is good enough, whichever wish is given up: loosen several, see training-monitor offers"


def _judge_cost(request: TrainingRequest, prices: Sequence[float]) -> list[str]:
    """What is wrong with the budget, by plain arithmetic."""
    least = min(prices) * min(least_seconds(request), request.hard_timeout) / HOUR
    if request.budget is None or request.budget >= least:
        return []
    return [
        f"a budget of ${request.budget:g} is less than it costs: the cheapest is ${min(prices):.3f} per hour, for "
        f"{format_duration(least_seconds(request))} at least: --budget {_cents_up(least)} or more"
    ]


def _cheapest(offers: Iterable[Offer]) -> float:
    return min(offer.price_per_hour or 0.0 for offer in offers)


def _cents_up(dollars: float) -> str:
    """Rounded up, so that what is shown does."""
    return f"{ceil(dollars * 100 - 1e-9) / 100:.2f}"


# ---------------------------------------------------------------- wishes given up


def give_up_wishes(query: OfferQuery) -> OfferQuery:
    """The same query without its wishes."""
    return replace(query, **{name: value for wish in GIVEN_UP.values() for name, value in wish.items()})


def find_loose_wishes(query: OfferQuery, everything: Iterable[Offer]) -> dict[str, list[Offer]]:
    """The wishes, by their options, of which each alone is in the way, and what is for rent without it."""
    there = list(everything)
    found = {option: rank_offers(there, replace(query, **wish)) for option, wish in GIVEN_UP.items()}
    return {option: offers for option, offers in found.items() if offers}
