"""Holding the claim on a training while it is supervised: take it, keep it alive, act only while it is ours."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TypeVar

from training_monitor.clock import Clock
from training_monitor.errors import (
    AccessDenied,
    AlreadySupervised,
    CommandFailed,
    LeaseLost,
    SettingsError,
    TrainingMonitorError,
)
from training_monitor.models import Question
from training_monitor.policy.claiming import BEATS_A_LEASE, LEASE_SECONDS, Claim, decide_claim
from training_monitor.probes.claims import (
    beat_question,
    claim_lost,
    free_question,
    look_question,
    only_as_owner,
    take_question,
    this_owner,
)
from training_monitor.settings import LEASE
from training_monitor.store import Store
from training_monitor.supervise.logs import get_logger
from training_monitor.targets.asking import ask
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport
from training_monitor.units import format_duration

T = TypeVar("T")
Tell = Callable[[str, str], None]  # the kind of an event, and its text
_NOTHING: Question[None] = Question("claim", "", lambda reply: None)


def lease_seconds() -> float:
    """How long a supervisor that is heard of no more is waited for: TRAINING_MONITOR_LEASE, default 120 s."""
    text = os.environ.get(LEASE, "").strip()
    try:
        seconds = float(text or LEASE_SECONDS)
    except ValueError:
        seconds = 0.0
    if not 3 <= seconds <= 86_400:
        raise SettingsError(LEASE, text, "3 to 86400 seconds")
    return round(seconds)


class Claiming:
    """The claim of one supervisor on one training.

    On this machine a lock of the store decides, which a dead process has let go; among machines, what the target says.
    A thread keeps the claim alive, so that a long upload or a slow stop does not lose it.
    """

    def __init__(
        self,
        target: Target,
        name: str,
        store: Store,
        transport: Transport | None,
        clock: Clock,
        tell: Tell,
        *,
        take_over: bool = False,
    ) -> None:
        self.target, self.name, self._store, self._transport, self._clock = target, name, store, transport, clock
        self._tell, self._take_over, self._lease = tell, take_over, lease_seconds()
        self._closing = ExitStack()
        self._ended = threading.Event()
        self._is_locked = False
        self._try_again_at: float | None = None  # where no claim could be written
        self._claim: Claim | None = None
        self._lost: LeaseLost | None = None

    def hold(self) -> None:
        """Hold the claim from here on; to be called before every act, and cheap once it is held.

        Raises:
            AlreadySupervised: a living supervisor has it. LeaseLost: another one took it over.
            CommandError: the target could not be asked.
        """
        if self._lost:
            raise self._lost
        if not self._is_locked:
            self._closing.enter_context(self._store.hold(f"the claim on {self.name} of {self.target}"))
            self._is_locked = True
        if self._claim or (self._try_again_at is not None and self._clock.monotonic() < self._try_again_at):
            return
        try:
            self._claim = self._take()
        except (CommandFailed, AccessDenied) as error:
            if self._try_again_at is None:
                self._tell("detected", f"no claim on {self.name}, other machines do not see who supervises it: {error}")
            self._try_again_at = self._clock.monotonic() + self._lease
            return
        threading.Thread(target=self._beat_on, name="claim", daemon=True).start()

    def _take(self) -> Claim:
        me, token = this_owner(self._store.folder, self.target), secrets.token_hex(8)
        first = found = self._ask(look_question(self.name))
        began, silence = self._clock.monotonic(), None
        while True:
            decision = decide_claim(found, me, take_over=self._take_over, silence=silence)
            if decision == "refuse":
                assert found
                raise already_claimed(found) if self._try_again_at is None else claim_lost(found)
            if decision == "wait":
                assert found and first
                if silence is None:
                    left = format_duration(found.lease - found.age)
                    self._tell("detected", f"{self.name} is claimed by {found}: waiting {left} for a sign of life")
                self._clock.sleep(max(0.5, min(5.0, found.lease - found.age)))
                silence = first.age + self._clock.monotonic() - began  # as it is asked: the answer may be slow to come
                found = self._ask(look_question(self.name))
                continue
            taken = self._ask(take_question(self.name, me, token, found.number if found else 0, self._lease))
            assert taken
            if taken.token == token:
                self._tell_taken(found, me.is_same_place(found.owner) if found else True)
                return taken
            first = found = taken  # somebody else was quicker
            began, silence = self._clock.monotonic(), None

    def _tell_taken(self, before: Claim | None, is_mine: bool) -> None:
        if before and before.held and not is_mine:
            self._tell("detected", f"{self.name} taken over from {before}")

    def guard(self, question: Question[T]) -> Question[T]:
        """The same question, which does its act only while nobody else holds the claim. Raises like `hold`."""
        self.hold()
        return only_as_owner(question, self._claim) if self._claim else question

    def confirm(self) -> None:
        """See on the target that the claim is still ours: for an act that is not done there. Raises like `hold`."""
        self.hold()
        if self._claim:
            self._ask(only_as_owner(_NOTHING, self._claim))

    def _beat_on(self) -> None:
        while (mine := self._claim) and not self._ended.wait(mine.lease / BEATS_A_LEASE):
            try:
                self._beat(mine)
            except (TrainingMonitorError, OSError) as error:
                get_logger().debug("%s: the claim could not be renewed: %s", self.name, error)

    def _beat(self, mine: Claim) -> None:
        now = self._ask(beat_question(mine))
        is_gone = now is None or (now.is_damaged and now.number == mine.number)  # a new container, or a power cut
        if is_gone and not self._ended.is_set():
            me = this_owner(self._store.folder, self.target)
            number = now.number if now else 0
            now = self._ask(take_question(self.name, me, mine.token, number, self._lease))
        if now and now.token == mine.token:
            self._claim = now
        elif now:  # never acted upon as if it were ours
            self._lost = claim_lost(now)
            self._ended.set()

    def _ask(self, question: Question[T]) -> T | None:
        [answer] = ask(self.target, question, transport=self._transport)
        return answer.get()

    def close(self) -> None:
        """Let go of the claim. What is supervised goes on."""
        self._ended.set()
        claim, self._claim = self._claim, None
        with self._closing, suppress(TrainingMonitorError):  # its lease ends by itself
            if claim and not self._lost:
                self._ask(free_question(claim))


def see_unclaimed(target: Target, name: str, store: Store, transport: Transport | None) -> None:
    """See that nobody else supervises a training. Raises AlreadySupervised, and CommandError where nobody could ask."""
    [answer] = ask(target, look_question(name), transport=transport)
    found = answer.get()
    if found and found.is_live and not found.owner.is_same_place(this_owner(store.folder, target)):
        raise already_claimed(found)


def already_claimed(claim: Claim) -> AlreadySupervised:
    """The refusal of a second supervisor, with the first one's name."""
    return AlreadySupervised(
        f"{claim.name} is already supervised by {claim}",
        hint=f"stop that one, or add --take-over; if it is dead, it can be taken over {format_duration(claim.lease)} "
        "after it was last heard of",
    )
