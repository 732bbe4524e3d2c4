"""Rent a machine under a label, at most one per label, even if the caller is killed at any point.

After a `create` that was killed, timed out or got a broken answer, its effect is unknown: only several complete
listings in a row tell, and only once it can no longer take effect. Until then nothing else is requested.

An offer is requested again after a rate limit or a missing answer; the next offer, which is dearer, only after a
refusal.

Measured with vastai 1.9.1: it exits 0 whatever the service says, and for a refusal with --raw it prints status and
message as JSON on stderr. By default it sends a create up to three times after no answer, 429 or 502 to 504;
`--retry 1` sends it once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from training_monitor.core.advice import find_advice
from training_monitor.core.clock import SYSTEM_CLOCK, Clock
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
)
from training_monitor.core.regex import regex
from training_monitor.core.results import CommandResult
from training_monitor.core.store import Store
from training_monitor.core.units import format_duration, known_number
from training_monitor.targets.transport import LocalTransport, Transport
from training_monitor.vast.asking import OTHER_KEY_NEXT, clean_line, find_denial, last_words
from training_monitor.vast.instances import destroy_instance, find_instance, list_instances, show_instance
from training_monitor.vast.offers import Offer, OfferQuery, find_loose_wishes, search_everything, search_offers
from training_monitor.vast.rentals import record_sight

MOST_OFFERS = 10
LOOK_EVERY, REFUSED_LOOK = 2.0, 2.0
LEAST_LOOKS = 2  # listings in a row without the label before a request is sent
RECOVERY_LOOKS = 8  # the same if a request may have been sent already: a surplus machine costs more than 14 s
LATE = 10.0  # seconds after the end of a create in which it may still take effect
PATIENCE, FIRST_WAIT, LONGEST_WAIT = 120.0, 2.0, 30.0
MOST_UNANSWERED = 3  # requests for one offer before the next one is tried
MOST_ONSTART_BYTES = 100_000
_LABEL = regex(r"[A-Za-z0-9](?:[!-~ ]{0,198}[!-~])?")
_IMAGE = regex(r"[A-Za-z0-9][\w./:@-]{0,255}")
_QUOTA = regex(r"\bquota\b", re.IGNORECASE)
_IDS = ("new_contract", "instance_id", "id")
_STATUS = regex(r'"status_code": (\d{3})\b|failed with error (\d{3})\b', re.IGNORECASE)
_LATER = (425, 429)  # refused without effect: too early or too often
_UNSURE = (408, 409)  # the statuses from 400 to 499 that leave the effect unknown
_ADVICE = {  # by the wish that excludes all offers
    "max_price": "a higher max_price_per_hour: the cheapest costs ${price:.2f}",
    "gpu": "other GPUs than the preferred ones, such as {gpu} (only_preferred=False)",
    "min_vram": "a lower min_vram_gb: {gpu} has {vram:g} GB",
}
T = TypeVar("T")


class RentedInstance(NamedTuple):
    """An instance that was seen in a listing under its label; None means unknown.

    Attributes:
        offer_id: the offer that it was rented by; None if the instance was found instead, or the answer was lost.
        price_per_hour: in dollars, with its disk.
    """

    id: int
    offer_id: int | None
    machine_id: int | None
    gpu_name: str | None
    price_per_hour: float | None
    host_id: int | None


def find_rented(label: str, *, transport: Transport | None = None) -> list[dict[str, Any]]:
    """Return the instances with exactly this label, lowest id first. Raises CommandError if they are unknown."""
    rows = list_instances(transport=transport)
    return sorted((row for row in rows if row.get("label") == label), key=lambda row: int(row["id"]))


def rent_instance(
    query: OfferQuery,
    label: str,
    *,
    image: str,
    onstart: str | None = None,
    bad_machines: Collection[int] = (),
    bad_hosts: Collection[int] = (),
    create_timeout: float = 60.0,
    asked_at: float | None = None,
    on_asking: Callable[[Offer], None] | None = None,
    on_event: Callable[[str], None] | None = None,
    store: Store | None = None,
    transport: Transport | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> RentedInstance:
    """Make sure that one instance with this label exists: use an existing one, otherwise rent the best available offer.

    If several instances have the label, the one with the lowest ID is kept and the others are destroyed. If this
    function is interrupted, call it again with `asked_at`.

    Args:
        label: a label that is unique to this purpose: printable ASCII that begins with a letter or digit.
        onstart: a script that runs when the instance starts. It must not contain secrets, because it is passed as an
            argument.
        bad_machines: IDs of machines to avoid.
        bad_hosts: IDs of hosts to avoid, with all their machines.
        create_timeout: if the service has not created an instance after this many seconds, it never will.
        asked_at: the time at which an earlier call requested an instance, in epoch seconds. While that request can
            still take effect, no new request is sent.
        on_asking: called with each offer before it is requested, so that you can record the time.
        on_event: called with a line about each event and each wait.
        store: contains the job named by the label. All instances with the label are recorded there, including surplus
            ones.

    Raises:
        NoOffers: there is nothing left to rent. The message describes what to change.
        AccessDenied: the vast.ai API key lacks a permission.
        CommandFailed: the account has no credit, or an instance was created without its label (it was destroyed).
        TargetUnreachable: the service limited the rate of requests for two minutes; call again.
        CommandError: it is unknown whether an instance was rented; call again with `asked_at`.
    """
    _check_words(label, image, onstart)
    tell, taken = on_event or (lambda text: None), on_asking or (lambda offer: None)
    given = (query, label, image, onstart, create_timeout, taken, tell, store, transport or LocalTransport(), clock)
    renter = _Renter(*given)
    looks = LEAST_LOOKS if asked_at is None else RECOVERY_LOOKS
    if found := renter.look_for(seconds_uncertain(asked_at, create_timeout, clock), looks):
        tell(f"instance {found.id} already exists")
        return found
    offers = renter.patiently(lambda: search_offers(query, transport=renter.runner))
    wanted = [each for each in offers if each.machine_id not in bad_machines and each.host_id not in bad_hosts]
    for offer in wanted[:MOST_OFFERS]:
        if found := renter.ask_for(offer):
            tell(f"instance {found.id} is rented")
            return found
    raise _no_offers(query, len(offers), len(wanted), renter.runner)


def _check_words(label: str, image: str, onstart: str | None) -> None:
    if not _LABEL.fullmatch(label):
        raise SettingsError("label", label, "at most 200 printable ASCII characters, beginning with a letter or digit")
    if not _IMAGE.fullmatch(image):
        raise SettingsError("image", image, "the name of a container image, such as ostris/aitoolkit:latest")
    if onstart is not None and ("\0" in onstart or len(onstart.encode()) > MOST_ONSTART_BYTES):
        raise SettingsError("onstart", f"{len(onstart)} characters", f"a script of at most {MOST_ONSTART_BYTES} bytes")


def seconds_uncertain(asked_at: float | None, create_timeout: float, clock: Clock) -> float:
    """Return how long an earlier create may still take effect; setting the clock back does not prolong it."""
    if asked_at is None:
        return 0.0
    longest = create_timeout + LATE
    return min(max(0.0, asked_at + longest - clock.time()), longest)


def each_look(seconds: float, least_looks: int, clock: Clock) -> Iterator[int]:
    """Count looks 2 s apart, until enough were made and the last one began after all these seconds."""
    until, looks = clock.monotonic() + seconds, 0
    while True:
        begun, looks = clock.monotonic(), looks + 1
        yield looks
        if begun >= until and looks >= least_looks:
            return
        clock.sleep(LOOK_EVERY if begun >= until else min(LOOK_EVERY, until - begun))


class _Renter(NamedTuple):
    """One call of `rent_instance`."""

    query: OfferQuery
    label: str
    image: str
    onstart: str | None
    create_timeout: float
    on_asking: Callable[[Offer], None]
    tell: Callable[[str], None]
    store: Store | None
    runner: Transport
    clock: Clock

    def look(self, number: int | None = None) -> RentedInstance | None:
        """Return the instance with the label, from the listing or as instance `number`; destroy surplus ones."""
        now = self.clock.time()
        rows = self.patiently(lambda: find_rented(self.label, transport=self.runner))
        if not rows and number is not None and (row := self.patiently(lambda: self.show(number))):
            rows = [row] if row.get("label") == self.label else []
        for row in rows:
            self.record(row, now)
        for row in rows[1:]:
            self.tell(f"instance {row['id']} is a duplicate and will be destroyed")
            self.destroy(row["id"])
        return read_rented(rows[0]) if rows else None

    def record(self, row: dict[str, Any], now: float) -> None:
        if self.store:
            record_sight(self.store, self.label, row, now)

    def show(self, number: int) -> dict[str, Any] | None:
        try:
            return show_instance(str(number), transport=self.runner)
        except InstanceNotFound:
            return None

    def look_for(
        self, seconds: float, least_looks: int = LEAST_LOOKS, number: int | None = None
    ) -> RentedInstance | None:
        """Look every 2 s; None if enough looks, the last of them after all these seconds, found nothing."""
        for _ in each_look(seconds, least_looks, self.clock):
            if found := self.look(number):
                return found
        return None

    def ask_for(self, offer: Offer) -> RentedInstance | None:
        """Rent an offer, and verify it in a listing; None if the offer is not available.

        Raises TargetUnreachable if still rate limited after two minutes.
        """
        deadline, wait, unanswered = self.clock.monotonic() + PATIENCE, FIRST_WAIT, 0
        while True:
            price = "" if offer.price_per_hour is None else f", ${offer.price_per_hour:.3f} per hour"
            self.tell(f"requesting offer {offer.id}: {clean_line(offer.gpu_name)}{price}")
            self.on_asking(offer)
            answer = self.create(offer)
            if found := self.find_result(offer, answer):
                return found
            if answer.outcome in ("created", "refused"):
                return None
            unanswered += answer.outcome == "unknown"
            if unanswered == MOST_UNANSWERED:
                self.tell(f"no response to {MOST_UNANSWERED} requests for offer {offer.id}: requesting the next offer")
                return None
            is_late = answer.outcome == "later" and self.clock.monotonic() + wait > deadline
            if is_late or _QUOTA.search(answer.said):
                raise TargetUnreachable(f"offer {offer.id} cannot be rented: {answer.said}", target="vast.ai")
            self.tell(f"requesting offer {offer.id} again in {wait:g} s")
            self.clock.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)

    def find_result(self, offer: Offer, answer: CreateAnswer) -> RentedInstance | None:
        """Return the instance that a request for an offer led to; None if nothing was rented."""
        number, seconds = answer.instance_id, self.create_timeout
        if answer.outcome in ("refused", "later"):
            seconds = REFUSED_LOOK
            passes = " for now" if answer.outcome == "later" else ""
            self.tell(f"offer {offer.id} was refused{passes}: {answer.said}")
        elif number is None:
            wait = format_duration(seconds)
            self.tell(
                f"no response to the request for offer {offer.id}: {answer.said}; looking for its instance for {wait}"
            )
        found = self.look_for(seconds, number=number)
        if found is None and number is not None:
            self.give_back(number)
        if found is None or found.id != number:
            return found
        return found._replace(
            offer_id=offer.id,
            machine_id=found.machine_id or offer.machine_id,
            host_id=found.host_id or offer.host_id,
            price_per_hour=offer.price_per_hour if found.price_per_hour is None else found.price_per_hour,
        )

    def create(self, offer: Offer) -> CreateAnswer:
        argv = create_words(offer, self.query, self.label, self.image, self.onstart)
        try:
            result = self.runner.run(argv, timeout=self.create_timeout)
        except (CommandTimedOut, LocalFailure) as error:
            return CreateAnswer(error.what)
        return read_create_answer(result)

    def give_back(self, number: int) -> None:
        """Destroy a created instance that lacks its label or was never seen: nothing would ever find it again.

        Raises CommandFailed for one without its label.
        """
        now = self.clock.time()
        row = self.patiently(lambda: find_instance(str(number), transport=self.runner, clock=self.clock))
        if row is not None:
            self.record(row, now)
        self.tell(f"instance {number} was not listed under its label and will be destroyed")
        self.destroy(number)
        if row is not None:
            raise CommandFailed(f"instance {number} was created without its label {self.label!r}, so it was destroyed")

    def destroy(self, number: int) -> None:
        done = self.patiently(
            lambda: destroy_instance(
                str(number), on_event=self.tell, store=self.store, transport=self.runner, clock=self.clock
            )
        )
        self.tell(f"instance {number} is {'destroyed' if done.acknowledged else 'gone'}")

    def patiently(self, act: Callable[[], T]) -> T:
        """Call `act`, and retry with a growing backoff if there is no answer or a rate limit.

        Raises the last error, or at once an error that a retry cannot help.
        """
        deadline, wait = self.clock.monotonic() + PATIENCE, FIRST_WAIT
        while True:
            try:
                return act()
            except (AccessDenied, CommandFailed, ToolNotFound):
                raise
            except CommandError as error:
                said = error.result.stderr if error.result else ""
                if self.clock.monotonic() + wait > deadline or _QUOTA.search(said):
                    raise
                self.tell(f"{clean_line(error.what)}; trying again in {wait:g} s")
            self.clock.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)


def read_rented(row: dict[str, Any]) -> RentedInstance:
    """Return an instance from its row in a listing."""
    machine, host, gpu = row.get("machine_id"), row.get("host_id"), row.get("gpu_name")
    return RentedInstance(
        id=row["id"],
        offer_id=None,
        machine_id=machine if type(machine) is int else None,
        gpu_name=gpu if isinstance(gpu, str) else None,
        price_per_hour=known_number(row.get("dph_total")),
        host_id=host if type(host) is int else None,
    )


# ---------------------------------------------------------------- the create command and its answer


class CreateAnswer(NamedTuple):
    """The answer of vastai to a create.

    `outcome`: created | refused (this offer, for good) | later (refused for now) | unknown. `instance_id`: that of the
    created instance, if it was stated.
    """

    said: str
    outcome: str = "unknown"
    instance_id: int | None = None


def create_words(offer: Offer, query: OfferQuery, label: str, image: str, onstart: str | None) -> list[str]:
    """Return the command that rents an offer; with `--retry 1` the CLI sends it only once."""
    words = ["vastai", "create", "instance", str(offer.id), "--image", image, "--disk", f"{query.disk_gb:g}"]
    words += ["--label", label, "--ssh", "--direct", "--cancel-unavail"]
    if query.kind == "bid":
        words += ["--bid_price", repr(choose_bid(offer, query))]
    if onstart is not None:
        words.append(f"--onstart-cmd={onstart}")
    return [*words, "--retry", "1", "--raw"]


def choose_bid(offer: Offer, query: OfferQuery) -> float:
    """Return dollars an hour, a little above the price to beat; with the disk never above the maximum price."""
    price = offer.price_per_hour or 0.0
    least = offer.min_bid or price
    disk = max(0.0, price - least)
    return max(least, min(least * 1.05, query.max_price_per_hour - disk))


def read_create_answer(result: CommandResult) -> CreateAnswer:
    """Parse vastai's output of a create. Raises AccessDenied; CommandFailed if the account has no credit."""
    if OTHER_KEY_NEXT not in result.stdout and (denial := find_denial(result)):
        raise denial
    try:
        answer = json.loads(result.stdout)
    except (ValueError, RecursionError):
        answer = None
    said = clean_line(last_words(result)) or "vastai printed nothing"
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
    advised = find_advice(f"{said} {result.stdout[:1000]}", "vastai")
    if outcome == "refused" and advised and advised.kind is CommandFailed:  # no credit: another offer does not help
        raise CommandFailed(said, target="vast.ai", hint=advised.hint, result=result)
    return CreateAnswer(said, outcome)


# ---------------------------------------------------------------- nothing to rent


def _no_offers(query: OfferQuery, found: int, wanted: int, runner: Transport) -> NoOffers:
    if wanted:
        tried = min(wanted, MOST_OFFERS)
        hint = "try again in a few minutes, or relax the query: a higher price, other GPUs"
        return NoOffers(f"none of the {tried} best of {found} offers could be rented", hint=hint)
    if found:
        hint = "relax the query: a higher price, other GPUs"
        return NoOffers(f"all {found} offers are on excluded machines", hint=hint)
    advice = []
    with suppress(CommandError):
        loose = find_loose_wishes(query, search_everything(query, transport=runner))
        for best, text in ((min(loose[each], key=_price), text) for each, text in _ADVICE.items() if each in loose):
            gpu, vram = clean_line(best.gpu_name, 60), best.vram_gb or 0.0
            advice.append(text.format(price=_price(best), gpu=gpu, vram=vram))
    hint = "; or ".join(advice) or "relax the query: a higher price, other GPUs, less VRAM, more countries"
    return NoOffers("no offer meets the requirements", hint=hint)


def _price(offer: Offer) -> float:
    return offer.price_per_hour or 0.0
