"""A ledger of prepaid credits: what an account paid in, what its jobs reserved, spent and got back.

A job reserves its estimate before anything is rented, and is settled once for what it spent: the rest goes back. Every
movement is written with its reason and is never changed; the balance is their sum and never below zero.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import isfinite

from training_monitor.clock import SYSTEM_CLOCK, Clock
from training_monitor.errors import InsufficientCredits, InvalidTransition, SettingsError
from training_monitor.store import Execute, Store

MICRO = 1_000_000  # amounts are kept as whole millionths: a thousand cents are ten dollars, whatever is added up
_COLUMNS = "account, kind, amount, job_id, reason, created_at"


@dataclass(frozen=True, slots=True)
class Movement:
    """One change of a balance, in dollars. kind: deposit | reserve | settle | refund; `created_at` in epoch seconds."""

    account: str
    kind: str
    amount: float
    job_id: str | None
    reason: str
    created_at: float


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a job came to, in dollars: `reserved`, `charged` of what it `spent`, and `refunded`.

    `unpaid` is what it spent beyond its reservation and the balance: the account owes nothing for it.
    """

    reserved: float
    spent: float
    charged: float
    refunded: float
    unpaid: float = 0.0


class Credits:
    """The accounts of one store; every method is one transaction, and repeated after a crash it does nothing twice."""

    def __init__(self, store: Store | None = None, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._store, self._clock = store or Store(), clock

    def balance(self, account: str) -> float:
        """What the account may still reserve, in dollars; 0 for one that nobody knows."""
        with self._begin(account) as execute:
            return _balance(execute, account) / MICRO

    def deposit(self, account: str, amount: float, reason: str, *, payment_id: str | None = None) -> float:
        """Pay in; the same `payment_id` counts once. Returns the new balance.

        Raises:
            SettingsError: the amount is not above zero.
        """
        micro = _micro("amount", amount)
        with self._begin(account, payment_id or "") as execute:
            if payment_id is None or not _moved(execute, account, "deposit", payment_id):
                self._move(execute, account, "deposit", micro, payment_id, reason)
            return _balance(execute, account) / MICRO

    def reserve(self, account: str, job_id: str, amount: float, reason: str = "estimate") -> None:
        """Set credits aside for a job, once.

        Raises:
            InsufficientCredits: the balance is less; nothing is set aside.
            InvalidTransition: the job has another reservation.
        """
        micro = _micro("amount", amount)
        with self._begin(account) as execute:
            if (before := _moved(execute, account, "reserve", job_id)) is not None:
                if -before != micro:
                    raise InvalidTransition(f"{job_id} has reserved {_dollars(-before)} already, not {_dollars(micro)}")
                return
            if (balance := _balance(execute, account)) < micro:
                raise InsufficientCredits(
                    f"{job_id} needs {_dollars(micro)}, {account} has {_dollars(balance)}",
                    hint="pay in, or take fewer steps or a cheaper GPU",
                )
            self._move(execute, account, "reserve", -micro, job_id, reason)

    def reservation(self, account: str, job_id: str) -> float | None:
        """What the job has set aside, in dollars, also once it is settled; None: there is nothing to settle."""
        with self._begin(account) as execute:
            taken = _moved(execute, account, "reserve", job_id)
        return None if taken is None else -taken / MICRO

    def settle(self, account: str, job_id: str, spent: float, reason: str) -> Settlement:
        """Close a job's reservation with what it spent: the rest goes back, more is taken as far as the balance goes.

        Raises:
            InvalidTransition: the job has no reservation, or was settled with another sum.
        """
        micro = _micro("spent", spent, least=0)
        with self._begin(account) as execute:
            taken = _moved(execute, account, "reserve", job_id)
            if taken is None:
                raise InvalidTransition(f"{job_id} has reserved nothing")
            change = -taken - micro  # what goes back, or is wanted beyond the reservation
            settled = _moved(execute, account, "settle", job_id)
            if settled is None:
                settled = max(change, -_balance(execute, account))
                self._move(execute, account, "settle", settled, job_id, reason)
            elif settled != change and not change < settled <= 0:  # a balance may have been too small for it
                raise InvalidTransition(f"{job_id} was settled already, with another sum")
        charged = -taken - settled
        unpaid = max(0, micro - charged)
        return Settlement(-taken / MICRO, micro / MICRO, charged / MICRO, max(0, settled) / MICRO, unpaid / MICRO)

    def refund(self, account: str, job_id: str, share: float, reason: str) -> float:
        """Give back a share (0 to 1) of what a settled job was charged, once. Returns the dollars given back.

        Raises:
            SettingsError: the share is none. InvalidTransition: the job was not settled.
        """
        if not 0 <= share <= 1:
            raise SettingsError("share", share, "0 to 1")
        with self._begin(account) as execute:
            if (before := _moved(execute, account, "refund", job_id)) is not None:
                return before / MICRO
            taken, settled = (_moved(execute, account, kind, job_id) for kind in ("reserve", "settle"))
            if taken is None or settled is None:
                raise InvalidTransition(f"{job_id} was not settled: there is nothing to give back yet")
            back = round((-taken - settled) * share)
            self._move(execute, account, "refund", back, job_id, reason)
            return back / MICRO

    def movements(self, account: str) -> list[Movement]:
        """All movements of an account, oldest first."""
        with self._begin(account) as execute:
            rows = execute(f"SELECT {_COLUMNS} FROM credit_movements WHERE account = ? ORDER BY number", (account,))
        return [Movement(row[0], row[1], row[2] / MICRO, *row[3:]) for row in rows]

    def _begin(self, *names: str) -> AbstractContextManager[Execute]:
        """A transaction about names that can be kept as they are."""
        for name in names:
            try:
                name.encode()
            except UnicodeEncodeError as error:
                raise SettingsError("name in the ledger", name[:100], "UTF-8") from error
        return self._store.transaction()

    def _move(self, execute: Execute, account: str, kind: str, micro: int, job_id: str | None, reason: str) -> None:
        storable = reason.encode("utf-8", "backslashreplace").decode()  # it may name a file
        values = (account, kind, micro, job_id, storable, self._clock.time())
        execute(f"INSERT INTO credit_movements ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", values)


def _balance(execute: Execute, account: str) -> int:
    [(total,)] = execute("SELECT coalesce(sum(amount), 0) FROM credit_movements WHERE account = ?", (account,))
    return int(total)


def _moved(execute: Execute, account: str, kind: str, job_id: str) -> int | None:
    query = "SELECT amount FROM credit_movements WHERE account = ? AND kind = ? AND job_id = ?"
    rows = execute(query, (account, kind, job_id))
    return int(rows[0][0]) if rows else None


def _micro(key: str, amount: float, *, least: int = 1) -> int:
    micro = round(amount * MICRO) if isfinite(amount) else -1
    if not least <= micro <= 10**15:
        raise SettingsError(key, amount, "dollars, " + ("above 0" if least else "from 0"))
    return micro


def _dollars(micro: int) -> str:
    return f"${micro / MICRO:.2f}"
