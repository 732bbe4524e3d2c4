"""Rent a machine under a label, at most one for each label whoever is killed when, and wait until ssh answers there.

What a `create` did that was killed, timed out or got a broken answer, nobody knows: only complete listings tell, and
only once it can take effect no more. Before that nothing else is asked for.

Measured with vastai 1.9.1: it exits 0 whatever the service says, and of a refusal with --raw it prints status and
message as JSON on stderr. Left alone it sends a create up to three times when it hears nothing, or 429 or 502 to 504;
`--retry 1` sends it once. A running instance takes another minute until ssh answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
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
    TrainingMonitorError,
)
from training_monitor.models import Question
from training_monitor.targets.asking import ask, read_text
from training_monitor.targets.connect import read_address
from training_monitor.targets.target import Target
from training_monitor.targets.transport import LocalTransport, Transport
from training_monitor.units import known_number
from training_monitor.vast.creating import CreateAnswer, clean_line, create_words, read_create_answer
from training_monitor.vast.instances import destroy_instance, is_listed, list_instances, show_instance
from training_monitor.vast.offers import Offer, OfferQuery, search_offers

MOST_OFFERS = 10
LOOK_EVERY, REFUSED_LOOK = 2.0, 2.0
LATE = 10.0  # seconds after the end of a create in which it may still take effect
PATIENCE, FIRST_WAIT, LONGEST_WAIT = 120.0, 2.0, 30.0
READY_EVERY = 5.0
MOST_ONSTART_BYTES = 100_000
_LABEL = re.compile(r"[A-Za-z0-9](?:[!-~ ]{0,198}[!-~])?")
_IMAGE = re.compile(r"[A-Za-z0-9][\w./:@-]{0,255}")
_QUOTA = re.compile(r"\bquota\b", re.IGNORECASE)
_NEVER_RUNNING = ("exited", "offline", "unknown", "stopped")
_NO_IMAGE = re.compile(
    r"manifest unknown|manifest for \S+ not found|pull access denied|repository does not exist|no matching manifest"
    r"|invalid reference format|no space left on device",
    re.IGNORECASE,
)
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
        create_timeout: seconds in which the service has created an instance, or never will.
        asked_at: when an earlier call asked for one, epoch seconds; until that can have no effect any more, nothing
            new is asked for.
        on_asking: is told each offer before it is asked for: write down when.
        on_event: is told what happens, in a line.

    Raises:
        NoOffers: nothing is left to rent; it says what to change.
        AccessDenied: the key of vast.ai is not good enough.
        CommandFailed: the account has no credit, or an instance came without its label (it was destroyed).
        CommandError: nobody knows whether something was rented: call again with `asked_at`.
    """
    _check_words(label, image, onstart)
    tell = on_event or (lambda text: None)
    renter = _Renter(query, label, image, onstart, create_timeout, tell, transport or LocalTransport(), clock)
    if found := renter.look_for(seconds_uncertain(asked_at, create_timeout, clock)):
        tell(f"instance {found.id} is there already")
        return found
    offers = _patiently(lambda: search_offers(query, transport=renter.runner), clock)
    wanted = [offer for offer in offers if offer.machine_id is None or offer.machine_id not in bad_machines]
    for offer in wanted[:MOST_OFFERS]:
        if on_asking:
            on_asking(offer)
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


@dataclass(frozen=True, slots=True)
class _Renter:
    """One call of `rent_instance`."""

    query: OfferQuery
    label: str
    image: str
    onstart: str | None
    create_timeout: float
    tell: Callable[[str], None]
    runner: Transport
    clock: Clock

    def look(self) -> RentedInstance | None:
        """What is listed under the label, after which there is at most one."""
        rows = _patiently(lambda: find_rented(self.label, transport=self.runner), self.clock)
        for row in rows[1:]:
            self.tell(f"instance {row['id']} is one too many: it is destroyed")
            self.destroy(row["id"])
        return read_rented(rows[0], self.label) if rows else None

    def look_for(self, seconds: float) -> RentedInstance | None:
        """Look every 2 s; None once a listing after all these seconds has none."""
        until = self.clock.monotonic() + seconds
        while True:
            begun = self.clock.monotonic()
            if found := self.look():
                return found
            if begun >= until:
                return None
            self.clock.sleep(min(LOOK_EVERY, until - begun))

    def ask_for(self, offer: Offer) -> RentedInstance | None:
        """Rent an offer, seen in a listing; None when it certainly was not."""
        price = "" if offer.price_per_hour is None else f", ${offer.price_per_hour:.3f} an hour"
        self.tell(f"offer {offer.id} is asked for: {clean_line(offer.gpu_name)}{price}")
        answer = self.create(offer)
        if answer.instance_id is None:
            self.tell(f"offer {offer.id} {'was refused' if answer.refused else 'has no answer'}: {answer.said}")
        found = self.look_for(REFUSED_LOOK if answer.refused else self.create_timeout)
        if found is None and answer.instance_id is not None:
            self.give_back(answer.instance_id)
        if found and found.id == answer.instance_id:
            price_now = offer.price_per_hour if found.price_per_hour is None else found.price_per_hour
            return replace(found, offer_id=offer.id, price_per_hour=price_now)
        return found

    def create(self, offer: Offer) -> CreateAnswer:
        argv = create_words(offer, self.query, self.label, self.image, self.onstart)
        try:
            result = self.runner.run(argv, timeout=self.create_timeout)
        except (CommandTimedOut, LocalFailure) as error:
            return CreateAnswer(error.what)
        return read_create_answer(result)

    def give_back(self, number: int) -> None:
        """Destroy what was created and does not carry the label: nobody would ever find it again."""
        if _patiently(lambda: is_listed(str(number), transport=self.runner), self.clock):
            self.destroy(number)
            raise CommandFailed(f"instance {number} came without its label {self.label!r}; it was destroyed")

    def destroy(self, number: int) -> None:
        _patiently(lambda: destroy_instance(str(number), transport=self.runner, clock=self.clock), self.clock)


def _patiently(act: Callable[[], T], clock: Clock) -> T:
    """Do it, and once more after ever longer waits where nobody answers or too much was asked.

    Raises what it raised last, or at once when it is no use to try again.
    """
    deadline, wait = clock.monotonic() + PATIENCE, FIRST_WAIT
    while True:
        try:
            return act()
        except (AccessDenied, CommandFailed, ToolNotFound):
            raise
        except CommandError as error:
            said = error.result.stderr if error.result else ""
            if clock.monotonic() + wait > deadline or _QUOTA.search(said):
                raise
        clock.sleep(wait)
        wait = min(2 * wait, LONGEST_WAIT)


def read_rented(row: dict[str, Any], label: str) -> RentedInstance:
    """An instance out of its row in a listing."""
    machine, gpu = row.get("machine_id"), row.get("gpu_name")
    return RentedInstance(
        id=row["id"],
        offer_id=None,
        machine_id=machine if type(machine) is int else None,
        gpu_name=gpu if isinstance(gpu, str) else None,
        price_per_hour=known_number(row.get("dph_total")),
        label=label,
        started_at=known_number(row.get("start_date")),
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


# ---------------------------------------------------------------- booting


@dataclass(frozen=True, slots=True)
class _Boot:
    """How far an instance is: `target` when ssh answers, `end` when it will never be there."""

    seen: str
    target: Target | None = None
    end: TrainingMonitorError | None = None
    known: bool = True


def wait_until_ready(
    instance_id: str,
    *,
    timeout: float = 900.0,
    ssh_timeout: float = 20.0,
    on_event: Callable[[str], None] | None = None,
    transport: Transport | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Target:
    """Wait until an instance runs and answers over ssh.

    Args:
        ssh_timeout: seconds for one try over ssh.
        on_event: is told each change, in a line.

    Returns:
        The target, with its ssh address.

    Raises:
        InstanceNotFound: it is gone.
        CommandFailed: it will never run, by what was seen twice: exited, offline, unknown, stopped, or no such image.
        CommandTimedOut: it is not ready; the text says how far it got.
        TargetUnreachable: nobody knows, the service did not answer in the end.
        AccessDenied: the key of vast.ai is not good enough.
    """
    runner, deadline, wait = transport or LocalTransport(), clock.monotonic() + timeout, READY_EVERY
    last: _Boot | None = None
    while True:
        boot = _look_at(instance_id, ssh_timeout, runner)
        if on_event and (last is None or last.seen != boot.seen):
            on_event(f"instance {instance_id}: {boot.seen}")
        if boot.target:
            return boot.target
        if boot.end and last and last.end:
            raise boot.end
        now, last = clock.monotonic(), boot
        if now >= deadline:
            what = f"instance {instance_id} is not ready after {timeout:g} s: {boot.seen}"
            if not boot.known:
                raise TargetUnreachable(what, target="vast.ai")
            raise CommandTimedOut(what, hint="another machine, or a longer timeout")
        wait = READY_EVERY if boot.known else min(2 * wait, LONGEST_WAIT)
        clock.sleep(min(wait, deadline - now))


def _look_at(instance_id: str, ssh_timeout: float, runner: Transport) -> _Boot:
    try:
        row = show_instance(instance_id, transport=runner)
    except (AccessDenied, ToolNotFound):
        raise
    except InstanceNotFound as error:
        return _Boot("gone", end=error)
    except CommandError as error:
        return _Boot(f"its status is unknown ({clean_line(error.what)})", known=False)
    status, said = row.get("actual_status"), row.get("status_msg")
    seen = clean_line(f"{status or 'no status yet'}{f': {said}' if said else ''}")
    if status in _NEVER_RUNNING or (status != "running" and _NO_IMAGE.search(f"{said}")):
        return _Boot(seen, end=CommandFailed(f"instance {instance_id} will not run: {seen}", hint="another machine"))
    return _try_ssh(instance_id, row, ssh_timeout, runner) if status == "running" else _Boot(seen)


def _try_ssh(instance_id: str, row: dict[str, Any], ssh_timeout: float, runner: Transport) -> _Boot:
    question = Question("ready", "echo ready", read_text, min(10.0, ssh_timeout))
    try:
        target = read_address(Target("vast", instance_id), row)
        [answer] = ask(target, question, timeout=ssh_timeout, transport=runner)
        answer.get()
    except ToolNotFound:
        raise
    except CommandError as error:
        return _Boot(f"running, but not over ssh ({clean_line(error.what)})")
    return _Boot("ready", target)
