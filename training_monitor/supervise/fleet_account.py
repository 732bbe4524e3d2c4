"""The account behind a fleet: one listing a refresh for all instances, and now and then the credit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from training_monitor.clock import Clock
from training_monitor.errors import InstanceNotFound, TrainingMonitorError
from training_monitor.policy.fleet_rows import bill
from training_monitor.supervise.fleet_member import Listed
from training_monitor.supervise.fleet_schedule import wait_after
from training_monitor.supervise.logs import get_logger
from training_monitor.targets.transport import Transport
from training_monitor.vast.account import account_balance
from training_monitor.vast.instances import is_stopped, list_instances_at_once, show_instance

CREDIT_SECONDS = 300.0
MOST_SHOWN = 5  # instances that a listing lacks, asked for by themselves, in one look


@dataclass(frozen=True, slots=True)
class Account:
    """What is known of it. `rows` are those of the last complete listing, at `listed_at`, by number, with what it lacks
    and is not known to be gone; `gone` is what `show instance` did not know either. `error` says why the last listing
    failed, `stale_since` since when they do; `credit` in dollars."""

    rows: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    gone: frozenset[int] = frozenset()
    listed_at: float | None = None
    error: str | None = None
    stale_since: float | None = None
    credit: float | None = None

    def running(self) -> list[int]:
        """The instances that are not stopped, in the order of their numbers."""
        return sorted(number for number, row in self.rows.items() if number >= 0 and not is_stopped(row))

    def about(self, number: int, before: Listed) -> Listed:
        """What it says of an instance, of which `before` was known. Lost is only what is in `gone`."""
        if self.listed_at is None:
            return Listed(error=self.error, stale_since=self.stale_since)
        if row := self.rows.get(number):
            billed = bill(before.row, before.billed, row, self.listed_at)
            return Listed(row, self.listed_at, False, self.error, self.stale_since, billed)
        if number not in self.gone:
            return Listed(error=f"vast://{number}: it is not listed, and nobody knows yet whether it is gone")
        if before.row is not None:
            return replace(before, lost=True, error=None, stale_since=None)
        return Listed(None, None, True, f"vast://{number}: no such instance in this account")


class AccountLister:
    """Asks for an account's instances and credit; one thread at a time, and `account` is replaced whole."""

    def __init__(self, known: Collection[int], interval: float, transport: Transport | None, clock: Clock) -> None:
        self.account = Account()
        self._known, self._interval = frozenset(known), interval
        self._transport, self._clock = transport, clock
        self._failures, self._not_before, self._credit_at = 0, 0.0, 0.0

    def is_due(self) -> bool:
        """Whether it may be asked; after failures it waits longer and longer."""
        return self._clock.monotonic() >= self._not_before

    def look(self) -> None:
        """List the instances; when that fails, what was listed before stays."""
        before = self.account
        known = self._known if before.listed_at is None else before.rows.keys()
        began = self._clock.time()
        try:
            rows = list_instances_at_once(known, transport=self._transport)
        except TrainingMonitorError as error:
            self.fail(str(error), began)
            return
        if before.error is not None:
            get_logger().info("the account is listed again")
        self._failures, self._not_before = 0, 0.0
        listed = {row["id"]: row for row in rows}
        kept, gone = self._look_for({*before.rows, *self._known} - listed.keys() - before.gone)
        gone |= before.gone - listed.keys()
        self.account = Account({**listed, **kept}, gone, self._clock.time(), credit=before.credit)

    def _look_for(self, absent: set[int]) -> tuple[dict[int, Mapping[str, Any]], frozenset[int]]:
        """What is there though a listing lacks it, as far as is known; and what is gone."""
        kept = {number: row for number, row in self.account.rows.items() if number in absent}
        gone = set[int]()
        for number in sorted(absent)[:MOST_SHOWN]:
            try:
                kept[number] = show_instance(str(number), transport=self._transport)
            except InstanceNotFound:
                kept.pop(number, None)
                gone.add(number)
            except TrainingMonitorError as error:
                get_logger().info("instance %d is not listed, and could not be asked for: %s", number, error)
        return kept, frozenset(gone)

    def fail(self, error: str, now: float) -> None:
        """A listing failed."""
        before = self.account
        if before.error is None:
            get_logger().warning("the account was not listed: %s", error)
        since = next((when for when in (before.stale_since, before.listed_at) if when is not None), now)
        self._failures += 1
        self._not_before = self._clock.monotonic() + wait_after(self._failures, self._interval)
        self.account = replace(before, error=error, stale_since=since)

    def look_at_credit(self) -> None:
        """Ask for the credit where that is due; one that nobody tells is not known."""
        if self.account.error is not None or self._clock.monotonic() < self._credit_at:
            return
        self._credit_at = self._clock.monotonic() + CREDIT_SECONDS
        try:
            credit = account_balance(transport=self._transport).credit
        except TrainingMonitorError:
            credit = None
        self.account = replace(self.account, credit=credit)
