"""What is for rent on vast.ai, best first, by the vastai CLI.

Measured with vastai 1.9.1 (tests/recorded/vastai): the query names GPUs only in full (`A100` finds nothing, where
`A100 SXM4` is for rent), so GPUs are chosen here. A refusal in an answer of status 200 that has `offers: []` is
printed as `[]`, like an empty market; every other answer that is none prints nothing, or a traceback.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from math import isfinite
from typing import Any

from training_monitor.errors import SettingsError, TargetUnreachable
from training_monitor.targets.transport import LocalTransport, Transport
from training_monitor.units import known_number
from training_monitor.vast.asking import ask_vastai

MOST_ROWS, MOST_PAGES = 1000, 5
KINDS = ("on-demand", "bid")
_GPU = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.+/-]{0,59}")
_WITH_NUMBERS = ("max_price_per_hour", "min_vram_gb", "disk_gb", "min_reliability", "min_cuda", "min_down_mbps")
_VARIABLES = {
    "max_price_per_hour": "VASTAI_MAX_BID_PER_HOUR",
    "min_vram_gb": "VASTAI_MIN_VRAM_GB",
    "disk_gb": "VASTAI_DEFAULT_DISK_GB",
}
_PREFERRED = "VASTAI_PREFERRED_GPUS"


@dataclass(frozen=True, slots=True)
class OfferQuery:
    """What is wanted. What an offer does not say counts as not good enough.

    Attributes:
        preferred_gpus: most wanted first: full names or parts (`4090` is `RTX 4090`, `A100` any A100).
        max_price_per_hour: in dollars, for all GPUs and the disk together.
        min_vram_gb: of each GPU, as the market counts: a 4090 has 24.564.
        disk_gb: how much disk is rented.
        min_down_mbps: megabits per second from the internet; 0: any.
        blocked_countries: two letters each.
        kind: `bid` is cheaper and may be taken away at any time.
        verified: only machines that vast.ai has verified.
        only_preferred: other GPUs are not taken; else they come after the preferred ones.
    """

    preferred_gpus: tuple[str, ...] = ("RTX 4090", "A100")
    max_price_per_hour: float = 4.5
    min_vram_gb: float = 24.0
    disk_gb: float = 64.0
    num_gpus: int = 1
    min_reliability: float = 0.95
    min_cuda: float = 12.0
    min_down_mbps: float = 0.0
    blocked_countries: tuple[str, ...] = ("CN", "HK")
    kind: str = "on-demand"
    verified: bool = True
    only_preferred: bool = False

    def __post_init__(self) -> None:
        for name in _WITH_NUMBERS:
            value = getattr(self, name)
            if known_number(value) is None or value < 0:
                raise SettingsError(name, value, "a number, 0 or more")
        for name in ("max_price_per_hour", "disk_gb"):
            if not getattr(self, name):
                raise SettingsError(name, getattr(self, name), "a number above 0")
        if type(self.num_gpus) is not int or self.num_gpus < 1:
            raise SettingsError("num_gpus", self.num_gpus, "1 or more")
        if self.min_reliability > 1:
            raise SettingsError("min_reliability", self.min_reliability, "a part of 1, such as 0.95")
        if self.kind not in KINDS:
            raise SettingsError("kind", self.kind, " or ".join(KINDS))
        _check_names("preferred_gpus", self.preferred_gpus, _GPU, "names of GPUs, such as RTX 4090")
        _check_names("blocked_countries", self.blocked_countries, re.compile("[A-Z]{2}"), "two capital letters each")
        if self.only_preferred and not self.preferred_gpus:
            raise SettingsError("preferred_gpus", self.preferred_gpus, "at least one, where no other is taken")


def _check_names(key: str, names: object, pattern: re.Pattern[str], expected: str) -> None:
    if not isinstance(names, tuple) or not all(isinstance(name, str) and pattern.fullmatch(name) for name in names):
        raise SettingsError(key, names, f"a tuple of {expected}")


def load_offer_query(environ: Mapping[str, str] = os.environ, **overrides: Any) -> OfferQuery:
    """What the environment wants: VASTAI_PREFERRED_GPUS (comma list), VASTAI_MAX_BID_PER_HOUR, VASTAI_MIN_VRAM_GB,
    VASTAI_DEFAULT_DISK_GB. `overrides` are fields of OfferQuery and win.
    """
    found: dict[str, Any] = {}
    for name, variable in _VARIABLES.items():
        if name not in overrides and (text := environ.get(variable, "").strip()):
            found[name] = _positive(variable, text)
    if "preferred_gpus" not in overrides and (text := environ.get(_PREFERRED, "").strip()):
        names = tuple(name.strip() for name in text.split(",") if name.strip())
        _check_names(_PREFERRED, names, _GPU, "names of GPUs with commas between, such as 4090,A100")
        found["preferred_gpus"] = names
    return OfferQuery(**found, **overrides)


def _positive(variable: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not isfinite(number) or number <= 0:
        raise SettingsError(variable, text, "a number above 0")
    return number


@dataclass(frozen=True, slots=True)
class Offer:
    """A machine, or a part of one, for rent. None is not known.

    Attributes:
        id: what is rented: `vastai create instance ID`.
        vram_gb: of each GPU.
        price_per_hour: in dollars, for all GPUs with the disk that was asked for; of a bid, at the price to beat.
        reliability: 0 to 1, the service's estimate.
        country: two letters.
        cuda: the newest version that the driver bears.
        min_bid: the price to beat, in dollars, without the disk.
        max_days: for how long at most.
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
    """What is for rent and good enough, best first: by preference of GPU, then by price.

    Returns:
        The offers; none when the market has none. Another may take one first.

    Raises:
        AccessDenied: the key of vast.ai is not good enough.
        CommandError: nobody knows.
    """
    runner = transport or LocalTransport()
    found: dict[int, Offer] = {}
    dearest = 0.0
    for _ in range(MOST_PAGES):  # by price: what one answer has no room for begins at its dearest
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
        raise TargetUnreachable("its answer is no list of offers", target="vast.ai")
    if rows and not any(isinstance(row, dict) and "id" in row for row in rows):
        raise TargetUnreachable(f"none of its {len(rows)} offers can be read", target="vast.ai")
    return rows


def search_words(query: OfferQuery, min_price: float = 0.0) -> str:
    """The query in the words of the CLI, which multiplies gigabytes of GPU memory by 1000."""
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
    """Without an exponent, and 64 instead of 64.0."""
    return f"{number:.6f}".rstrip("0").rstrip(".")


def read_offer(row: object) -> Offer | None:
    """An offer out of a row of the service; None for what is no offer, whatever it is."""
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
    """The first of these that is a number above 0: nothing that is for rent costs or has 0."""
    numbers = (known_number(row.get(name)) for name in names)
    return next((number for number in numbers if number is not None and number > 0), None)


def _whole(row: dict[str, Any], name: str) -> int | None:
    value = row.get(name)
    return value if type(value) is int and value > 0 else None


def _country(place: object) -> str | None:
    """`Sweden, SE`, `SE` -> `SE`."""
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
    """Those that are good enough, best first: by preference of GPU, price, reliability."""
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
    """Whether an offer is known to have all that is asked; which GPU it is does not matter here."""
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
    """Whether an offer's GPU is meant by a name as `preferred_gpus` has them."""
    return _preference(offer.gpu_name, (name,)) is not None


def _preference(gpu: str, preferred: tuple[str, ...]) -> int | None:
    """The place of a GPU among the preferred: of its full name, else of whole words of it."""
    words = _words(gpu)
    wanted = [_words(name) for name in preferred]
    exact = (place for place, name in enumerate(wanted) if "".join(name) == "".join(words))
    parts = (place for place, name in enumerate(wanted) if _has_words(words, name))
    return next(chain(exact, parts), None)


def _words(name: str) -> list[str]:
    return re.split(r"[\s_-]+", name.strip().lower())


def _has_words(words: list[str], wanted: list[str]) -> bool:
    return any(words[start : start + len(wanted)] == wanted for start in range(len(words)))
