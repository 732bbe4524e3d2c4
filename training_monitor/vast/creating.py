"""What is said to vastai to create an instance, and what its answer means."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from training_monitor.errors import CommandFailed
from training_monitor.models import CommandResult
from training_monitor.vast.asking import OTHER_KEY_NEXT, find_denial, last_words
from training_monitor.vast.offers import Offer, OfferQuery

_IDS = ("new_contract", "instance_id", "id")
_STATUS = re.compile(r'"status_code": (\d{3})\b|failed with error (\d{3})\b', re.IGNORECASE)
_LATER = (425, 429)  # refused before anything was done, because it was asked too early or too often
_UNSURE = (408, 409)  # of 400 to 499 those that say nothing about what was done
_CREDIT = re.compile(r"insufficient.?(?:credit|funds|balance)|lacks? credit|not enough (?:credit|funds)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class CreateAnswer:
    """What vastai said to a create.

    `outcome`: created | refused (a clear no to this offer) | later (a clear no that will pass) | unknown. `instance_id`
    is that of one that was created, where it was told.
    """

    said: str
    outcome: str = "unknown"
    instance_id: int | None = None


def create_words(offer: Offer, query: OfferQuery, label: str, image: str, onstart: str | None) -> list[str]:
    """The command that rents an offer; `--retry 1` has the CLI send it once, whatever it hears."""
    words = ["vastai", "create", "instance", str(offer.id), "--image", image, "--disk", f"{query.disk_gb:g}"]
    words += ["--label", label, "--ssh", "--direct", "--cancel-unavail"]
    if query.kind == "bid":
        words += ["--bid_price", repr(choose_bid(offer, query))]
    if onstart is not None:
        words.append(f"--onstart-cmd={onstart}")
    return [*words, "--retry", "1", "--raw"]


def choose_bid(offer: Offer, query: OfferQuery) -> float:
    """Dollars an hour, a little above the price to beat; with the disk never above what may be paid."""
    price = offer.price_per_hour or 0.0
    least = offer.min_bid or price
    disk = max(0.0, price - least)
    return max(least, min(least * 1.05, query.max_price_per_hour - disk))


def read_create_answer(result: CommandResult) -> CreateAnswer:
    """What vastai's output to a create tells. Raises AccessDenied; CommandFailed where the account has no credit."""
    if OTHER_KEY_NEXT not in result.stdout and (denial := find_denial(result)):
        raise denial
    try:
        answer = json.loads(result.stdout)
    except (ValueError, RecursionError):
        answer = None
    said = clean_line(last_words(result)) or "vastai said nothing"
    if isinstance(answer, dict) and answer.get("success", True) is True:
        places = [answer, answer["instances"]] if isinstance(answer.get("instances"), dict) else [answer]
        ids = (place.get(name) for place in places for name in _IDS)
        found = next((each for each in ids if type(each) is int and each > 0), None)
        return CreateAnswer(said, "unknown" if found is None else "created", found)
    outcome = "unknown"
    if isinstance(answer, dict) and answer.get("success") is False:
        outcome = "refused"
        said = clean_line(str(answer.get("msg") or answer.get("error"))) or said
    elif status := _STATUS.search(result.stderr):
        code = int(status[1] or status[2])
        if code in _LATER:
            outcome = "later"
        elif 400 <= code < 500 and code not in _UNSURE:
            outcome = "refused"
    if outcome == "refused" and _CREDIT.search(f"{said} {result.stdout[:1000]}"):
        raise CommandFailed(said, target="vast.ai", hint="pay in at https://cloud.vast.ai/billing/", result=result)
    return CreateAnswer(said, outcome)


def clean_line(text: str, most: int = 300) -> str:
    """On one line, without what a terminal would obey."""
    return " ".join("".join(each if each.isprintable() else " " for each in text[: 4 * most]).split())[:most]
