"""A ledger of prepaid credits: what an account paid in, what its jobs reserved, spent and got back.

A job reserves its estimate before anything is rented, and is settled once for what it spent: the rest goes back. Every
movement is written with its reason and is never changed; the balance is their sum and never below zero. A wrong deposit
is corrected by a counter entry: a withdrawal with its own reason.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from training_monitor.clock import SYSTEM_CLOCK, Clock
from training_monitor.errors import InsufficientCredits, InvalidTransition, SettingsError
from training_monitor.renting import JobState
from training_monitor.store import Execute, Store
from training_monitor.units import known_number

MICRO = 1_000_000  # amounts are kept as whole millionths: a thousand cents are ten dollars, whatever is added up
MOST_DOLLARS = 1_000_000_000  # of one movement and of a balance: all of them together fit into the store's integers
_COLUMNS = "account, kind, amount, job_id, reason, created_at"
_PAYMENTS = {"deposit": "deposited", "withdraw": "withdrawn"}


@dataclass(frozen=True, slots=True)
class Movement:
    """One change of a balance, in dollars; `created_at` in epoch seconds.

    kind: deposit | withdraw | reserve | settle | refund. `job_id` is the job, or the payment of the first two.
    """

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
            SettingsError: the amount is not above zero, or the balance would be beyond `MOST_DOLLARS`.
            InvalidTransition: the payment is recorded with another amount; nothing was changed.
        """
        micro = _micro("amount", amount)
        with self._begin(account, payment_id or "") as execute:
            if not self._is_recorded(execute, account, "deposit", payment_id, micro):
                if _balance(execute, account) + micro > MOST_DOLLARS * MICRO:
                    raise SettingsError("amount", amount, f"dollars that leave {account} at most {MOST_DOLLARS}")
                self._move(execute, account, "deposit", micro, payment_id, reason)
            return _balance(execute, account) / MICRO

    def withdraw(self, account: str, amount: float, reason: str, *, payment_id: str | None = None) -> float:
        """Take out again, as of a wrong deposit; the same `payment_id` counts once. Returns the new balance.

        Raises:
            InsufficientCredits: so much is not there, or is reserved by jobs; nothing is taken out.
            SettingsError: the amount is not above zero.
            InvalidTransition: the payment is recorded with another amount; nothing was changed.
        """
        micro = _micro("amount", amount)
        with self._begin(account, payment_id or "") as execute:
            if not self._is_recorded(execute, account, "withdraw", payment_id, -micro):
                if (balance := _balance(execute, account)) < micro:
                    raise InsufficientCredits(
                        f"{account} has {_dollars(balance)} that no job has reserved or spent, less than "
                        f"{_dollars(micro)}; nothing was withdrawn",
                        hint="withdraw less, or cancel the jobs that hold the rest",
                    )
                self._move(execute, account, "withdraw", -micro, payment_id, reason)
            return _balance(execute, account) / MICRO

    def _is_recorded(self, execute: Execute, account: str, kind: str, payment_id: str | None, micro: int) -> bool:
        """Whether this payment was recorded before. Raises InvalidTransition where that was with another amount."""
        if payment_id is None or (before := _moved(execute, account, kind, payment_id)) is None:
            return False
        if before == micro:
            return True
        raise InvalidTransition(
            f"payment {payment_id} is recorded already: {_dollars(abs(before))} were {_PAYMENTS[kind]} with it, not "
            f"{_dollars(abs(micro))}; nothing was changed",
            hint="give another payment its own id; a wrong deposit is corrected by `training-monitor credits "
            f"{shlex.quote(account)} --withdraw DOLLARS --reason TEXT --payment ID`",
        )

    def reserve(self, account: str, job_id: str, amount: float, reason: str = "estimate") -> None:
        """Set credits aside for a job, once.

        Raises:
            InsufficientCredits: the balance is less; nothing is set aside.
            InvalidTransition: the job has another reservation, or is over.
        """
        micro = _micro("amount", amount)
        with self._begin(account) as execute:
            if _is_over(execute, job_id):  # cancelled meanwhile: nobody would give back what it sets aside now
                raise InvalidTransition(f"{job_id} is over: it reserves nothing any more")
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
        with self._begin(account) as execute:
            settlement = self.settle_within(execute, account, job_id, spent, reason)
        if settlement is None:
            raise InvalidTransition(f"{job_id} has reserved nothing")
        return settlement

    def settle_within(
        self, execute: Execute, account: str, job_id: str, spent: float, reason: str
    ) -> Settlement | None:
        """`settle` within a transaction of the same store; None when the job has reserved nothing."""
        micro = _micro("spent", min(spent, MOST_DOLLARS), least=0)  # no balance has more
        taken = _moved(execute, account, "reserve", job_id)
        if taken is None:
            return None
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


def _is_over(execute: Execute, job_id: str) -> bool:
    rows = execute("SELECT state FROM training_jobs WHERE id = ?", (job_id,))
    return bool(rows) and rows[0][0] in [state.value for state in JobState if state.is_terminal]


def _micro(key: str, amount: float, *, least: int = 1) -> int:
    known = known_number(amount)
    micro = round(known * MICRO) if known is not None and 0 <= known <= MOST_DOLLARS else -1
    if micro < least:
        raise SettingsError(key, amount, f"dollars, from {'0.000001' if least else '0'} to {MOST_DOLLARS}")
    return micro


# ---------------------------------------------------------------- amounts as they are shown


def sum_movements(movements: Iterable[Movement]) -> float:
    """The balance after these movements, in dollars."""
    return sum(round(each.amount * MICRO) for each in movements) / MICRO


def decimals_to_show(amounts: Iterable[float]) -> int:
    """With how many decimals all these dollars are shown as they are kept, so that what is shown adds up: 2 to 6."""
    kept = [round(amount * MICRO) for amount in amounts]
    return next(each for each in range(2, 7) if all(micro % 10 ** (6 - each) == 0 for micro in kept))


def _dollars(micro: int) -> str:
    return f"${micro / MICRO:.{decimals_to_show([micro / MICRO])}f}"
