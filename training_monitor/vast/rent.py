"""Rent a machine under a label, at most one for each label whoever is killed when.

What a `create` did that was killed, timed out or got a broken answer, nobody knows: only complete listings tell,
several in a row, and only once it can take effect no more. Before that nothing else is asked for.

An offer that could not be had because too much was asked, or that has no answer, is asked for again; the next one,
which is dearer, only when it is refused.

Measured with vastai 1.9.1: it exits 0 whatever the service says, and of a refusal with --raw it prints status and
message as JSON on stderr. Left alone it sends a create up to three times when it hears nothing, or 429 or 502 to 504;
`--retry 1` sends it once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from training_monitor.clock import SYSTEM_CLOCK, Clock
from training_monitor.errors import (
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
from training_monitor.targets.transport import LocalTransport, Transport
from training_monitor.units import format_duration, known_number
from training_monitor.vast.creating import CreateAnswer, clean_line, create_words, read_create_answer
from training_monitor.vast.instances import destroy_instance, find_instance, list_instances, show_instance
from training_monitor.vast.offers import Offer, OfferQuery, search_offers

MOST_OFFERS = 10
LOOK_EVERY, REFUSED_LOOK = 2.0, 2.0
LEAST_LOOKS = 2  # listings in a row without the label before something is asked for
RECOVERY_LOOKS = 8  # the same where somebody may have asked already: one machine too many costs more than 14 s
LATE = 10.0  # seconds after the end of a create in which it may still take effect
PATIENCE, FIRST_WAIT, LONGEST_WAIT = 120.0, 2.0, 30.0
MOST_UNANSWERED = 3  # requests for one offer, before the next one is asked for
MOST_ONSTART_BYTES = 100_000
_LABEL = re.compile(r"[A-Za-z0-9](?:[!-~ ]{0,198}[!-~])?")
_IMAGE = re.compile(r"[A-Za-z0-9][\w./:@-]{0,255}")
_QUOTA = re.compile(r"\bquota\b", re.IGNORECASE)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RentedInstance:
    """An instance that was seen in a listing under its label; None is not known.

    Attributes:
        offer_id: what it was rented by; None where it was found, by this call or because an answer was lost.
        price_per_hour: in dollars, with its disk.
        started_at: epoch seconds, by the service.
    """

    id: int
    offer_id: int | None
    machine_id: int | None
    gpu_name: str | None
    price_per_hour: float | None
    label: str
    started_at: float | None
    host_id: int | None = None


def find_rented(label: str, *, transport: Transport | None = None) -> list[dict[str, Any]]:
    """The instances that carry exactly this label, lowest id first. Raises CommandError when nobody knows."""
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
    transport: Transport | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> RentedInstance:
    """Have one instance with this label: the one that is there, else the best offer that can be had.

    Of several with the label the lowest id is kept, the others are destroyed. Whoever was interrupted calls again, with
    `asked_at`.

    Args:
        label: of this purpose alone: printable ASCII that begins with a letter or digit.
        onstart: a script for the instance's start; no place for secrets, it travels as an argument.
        bad_machines: machine ids that are not taken.
        bad_hosts: ids of hosts, who may have several machines, of whom none is taken.
        create_timeout: seconds in which the service has created an instance, or never will.
        asked_at: when an earlier call asked for one, epoch seconds; until that can have no effect any more, nothing
            new is asked for.
        on_asking: is told each offer before it is asked for: write down when.
        on_event: is told what happens and what is waited for, in a line.

    Raises:
        NoOffers: nothing is left to rent; it says what to change.
        AccessDenied: the key of vast.ai is not good enough.
        CommandFailed: the account has no credit, or an instance came without its label (it was destroyed).
        TargetUnreachable: too much was asked, for two minutes: call again.
        CommandError: nobody knows whether something was rented: call again with `asked_at`.
    """
    _check_words(label, image, onstart)
    tell, taken = on_event or (lambda text: None), on_asking or (lambda offer: None)
    renter = _Renter(query, label, image, onstart, create_timeout, taken, tell, transport or LocalTransport(), clock)
    looks = LEAST_LOOKS if asked_at is None else RECOVERY_LOOKS
    if found := renter.look_for(seconds_uncertain(asked_at, create_timeout, clock), looks):
        tell(f"instance {found.id} is there already")
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
        raise SettingsError("label", label, "printable ASCII, a letter or digit first, at most 200 characters")
    if not _IMAGE.fullmatch(image):
        raise SettingsError("image", image, "the name of a container image, such as ostris/aitoolkit:latest")
    if onstart is not None and ("\0" in onstart or len(onstart.encode()) > MOST_ONSTART_BYTES):
        raise SettingsError("onstart", f"{len(onstart)} characters", f"a script of at most {MOST_ONSTART_BYTES} bytes")


def seconds_uncertain(asked_at: float | None, create_timeout: float, clock: Clock) -> float:
    """How long an earlier create may still take effect; a clock that was set back does not make it longer."""
    if asked_at is None:
        return 0.0
    longest = create_timeout + LATE
    return min(max(0.0, asked_at + longest - clock.time()), longest)


def each_look(seconds: float, least_looks: int, clock: Clock) -> Iterator[int]:
    """Count looks with 2 s between them, until so many were made and the last one began after all these seconds."""
    until, looks = clock.monotonic() + seconds, 0
    while True:
        begun, looks = clock.monotonic(), looks + 1
        yield looks
        if begun >= until and looks >= least_looks:
            return
        clock.sleep(LOOK_EVERY if begun >= until else min(LOOK_EVERY, until - begun))


@dataclass(frozen=True, slots=True)
class _Renter:
    """One call of `rent_instance`."""

    query: OfferQuery
    label: str
    image: str
    onstart: str | None
    create_timeout: float
    on_asking: Callable[[Offer], None]
    tell: Callable[[str], None]
    runner: Transport
    clock: Clock

    def look(self, number: int | None = None) -> RentedInstance | None:
        """What has the label, after which there is at most one: in the listing, or as instance `number` by itself."""
        rows = self.patiently(lambda: find_rented(self.label, transport=self.runner))
        if not rows and number is not None and (row := self.patiently(lambda: self.show(number))):
            rows = [row] if row.get("label") == self.label else []
        for row in rows[1:]:
            self.tell(f"instance {row['id']} is one too many and is to go")
            self.destroy(row["id"])
        return read_rented(rows[0], self.label) if rows else None

    def show(self, number: int) -> dict[str, Any] | None:
        try:
            return show_instance(str(number), transport=self.runner)
        except InstanceNotFound:
            return None

    def look_for(
        self, seconds: float, least_looks: int = LEAST_LOOKS, number: int | None = None
    ) -> RentedInstance | None:
        """Look every 2 s; None once so many looks, the last of them after all these seconds, have found none."""
        for _ in each_look(seconds, least_looks, self.clock):
            if found := self.look(number):
                return found
        return None

    def ask_for(self, offer: Offer) -> RentedInstance | None:
        """Rent an offer, seen in a listing; None when it is not to be had.

        Raises TargetUnreachable where too much was asked, and still is after two minutes.
        """
        deadline, wait, unanswered = self.clock.monotonic() + PATIENCE, FIRST_WAIT, 0
        while True:
            price = "" if offer.price_per_hour is None else f", ${offer.price_per_hour:.3f} an hour"
            self.tell(f"offer {offer.id} is asked for: {clean_line(offer.gpu_name)}{price}")
            self.on_asking(offer)
            answer = self.create(offer)
            if found := self.find_result(offer, answer):
                return found
            if answer.outcome in ("created", "refused"):
                return None
            unanswered += answer.outcome == "unknown"
            if unanswered == MOST_UNANSWERED:
                self.tell(f"offer {offer.id} has no answer to {MOST_UNANSWERED} requests: the next one is asked for")
                return None
            is_late = answer.outcome == "later" and self.clock.monotonic() + wait > deadline
            if is_late or _QUOTA.search(answer.said):
                raise TargetUnreachable(f"offer {offer.id} cannot be asked for: {answer.said}", target="vast.ai")
            self.tell(f"offer {offer.id} is asked for again in {wait:g} s")
            self.clock.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)

    def find_result(self, offer: Offer, answer: CreateAnswer) -> RentedInstance | None:
        """What a request for an offer has come to; None when nothing was rented."""
        number, seconds = answer.instance_id, self.create_timeout
        if answer.outcome in ("refused", "later"):
            seconds = REFUSED_LOOK
            passes = " for now" if answer.outcome == "later" else ""
            self.tell(f"offer {offer.id} was refused{passes}: {answer.said}")
        elif number is None:
            wait = format_duration(seconds)
            self.tell(f"offer {offer.id} has no answer: {answer.said}; for {wait} it is looked for all the same")
        found = self.look_for(seconds, number=number)
        if found is None and number is not None:
            self.give_back(number)
        if found is None or found.id != number:
            return found
        return replace(
            found,
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
        """Destroy what was created and does not carry the label, or was never seen: nobody would ever find it again.

        Raises CommandFailed for one without its label.
        """
        row = self.patiently(lambda: find_instance(str(number), transport=self.runner, clock=self.clock))
        self.tell(f"instance {number} was not seen under its label and is to go")
        self.destroy(number)
        if row is not None:
            raise CommandFailed(f"instance {number} came without its label {self.label!r} and was given back")

    def destroy(self, number: int) -> None:
        done = self.patiently(
            lambda: destroy_instance(str(number), on_event=self.tell, transport=self.runner, clock=self.clock)
        )
        self.tell(f"instance {number} is {'destroyed' if done.acknowledged else 'gone'}")

    def patiently(self, act: Callable[[], T]) -> T:
        """Do it, and once more after ever longer waits where nobody answers or too much was asked.

        Raises what it raised last, or at once when it is no use to try again.
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
                self.tell(f"{clean_line(error.what)}; asked again in {wait:g} s")
            self.clock.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)


def read_rented(row: dict[str, Any], label: str) -> RentedInstance:
    """An instance out of its row in a listing."""
    machine, host, gpu = row.get("machine_id"), row.get("host_id"), row.get("gpu_name")
    return RentedInstance(
        id=row["id"],
        offer_id=None,
        machine_id=machine if type(machine) is int else None,
        gpu_name=gpu if isinstance(gpu, str) else None,
        price_per_hour=known_number(row.get("dph_total")),
        label=label,
        started_at=known_number(row.get("start_date")),
        host_id=host if type(host) is int else None,
    )


# ---------------------------------------------------------------- nothing to rent


def _no_offers(query: OfferQuery, found: int, wanted: int, runner: Transport) -> NoOffers:
    if wanted:
        tried = min(wanted, MOST_OFFERS)
        hint = "again in some minutes, or a query that more offers meet: a higher price, other GPUs"
        return NoOffers(f"none of the {tried} best offers of {found} could be had", hint=hint)
    if found:
        hint = "a query that more offers meet: a higher price, other GPUs"
        return NoOffers(f"all {found} offers are on machines that are not to be taken", hint=hint)
    advice = [text for change in _CHANGES if (text := _try_change(query, change, runner))]
    hint = "; or ".join(advice) or "another query: a higher price, other GPUs, less VRAM, more countries"
    return NoOffers("nothing for rent is good enough", hint=hint)


_CHANGES: tuple[tuple[dict[str, Any], str], ...] = (
    ({"max_price_per_hour": 1000.0}, "a higher max_price_per_hour: the cheapest costs ${price:.2f}"),
    ({"only_preferred": False}, "other GPUs than the preferred ones, such as {gpu} (only_preferred=False)"),
    ({"min_vram_gb": 0.0}, "a lower min_vram_gb: {gpu} has {vram:g} GB"),
)


def _try_change(query: OfferQuery, change: tuple[dict[str, Any], str], runner: Transport) -> str | None:
    """What to change, where that finds something; None where it does not, or nobody knows."""
    fields, text = change
    if (changed := replace(query, **fields)) == query:
        return None
    try:
        offers = search_offers(changed, transport=runner)
    except CommandError:
        return None
    if not offers:
        return None
    best = min(offers, key=lambda offer: offer.price_per_hour or 0.0)
    return text.format(price=best.price_per_hour or 0.0, gpu=clean_line(best.gpu_name, 60), vram=best.vram_gb or 0.0)
