"""A ledger of prepaid credits: what an account paid in and what its jobs reserved, spent and got back.

A job reserves its estimate before anything is rented and is settled once with what it spent; the rest is returned.
Movements are append-only, each with a reason; the balance is their sum and never negative. A wrong deposit is corrected
by a withdrawal with its own reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.errors import Hint, InsufficientCredits, InvalidTransition, SettingsError, StateError
from training_monitor.core.records import read_row
from training_monitor.core.store import Execute, Store
from training_monitor.core.units import known_number
from training_monitor.vast.training_request import JobState

MICRO = 1_000_000  # amounts are stored as whole millionths of a dollar, so that sums are exact
MOST_DOLLARS = 1_000_000_000  # limit for one movement and for a balance, so that all sums fit into SQLite's integers
_COLUMNS = "account, kind, amount, job_id, reason, created_at"
_IS_AMOUNT = f"typeof(amount) = 'integer' AND amount BETWEEN {-MOST_DOLLARS * MICRO} AND {MOST_DOLLARS * MICRO}"
_PAYMENTS = {"deposit": "deposited", "withdraw": "withdrawn"}


@dataclass(frozen=True, slots=True)
class Movement:
    """One change of a balance, in dollars; `created_at` in epoch seconds.

    kind: deposit | withdraw | reserve | settle | refund. `job_id` is the payment's id for deposit and withdraw.
    """

    account: str
    kind: str
    amount: float
    job_id: str | None
    reason: str
    created_at: float


class Credits:
    """The accounts in a store. Every method is one transaction and is idempotent."""

    def __init__(self, store: Store | None = None, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._store, self._clock = store or Store(), clock

    def balance(self, account: str) -> float:
        """Return the amount that the account can still reserve, in dollars; 0 for an unknown account."""
        with self._begin(account) as execute:
            return _balance(execute, account) / MICRO

    def deposit(self, account: str, amount: float, reason: str, *, payment_id: str | None = None) -> float:
        """Pay into the account, and return the new balance; idempotent by `payment_id`.

        Raises:
            SettingsError: the amount is not above zero, or the balance would exceed `MOST_DOLLARS`.
            InvalidTransition: a different amount was recorded for this payment; nothing was changed.
        """
        return self._pay(account, "deposit", amount, payment_id, reason)

    def withdraw(self, account: str, amount: float, reason: str, *, payment_id: str | None = None) -> float:
        """Withdraw credits (such as a mistaken deposit), and return the new balance; idempotent by `payment_id`.

        Raises:
            InsufficientCredits: the balance, excluding the amounts that jobs have reserved, is too low; nothing was
                withdrawn.
            SettingsError: the amount is not above zero.
            InvalidTransition: a different amount was recorded for this payment; nothing was changed.
        """
        return self._pay(account, "withdraw", amount, payment_id, reason)

    def _pay(self, account: str, kind: str, amount: float, payment_id: str | None, reason: str) -> float:
        """Pay in or take out, unless that is recorded already; return the new balance."""
        micro = _micro("amount", amount) * (1 if kind == "deposit" else -1)
        with self._begin(account, payment_id or "") as execute:
            balance = _balance(execute, account)
            before = None if payment_id is None else _moved(execute, account, kind, payment_id)
            if before == micro:
                return balance / MICRO
            if before is not None:
                raise InvalidTransition(
                    f"payment {payment_id} is already recorded with {_dollars(abs(before))} {_PAYMENTS[kind]}, "
                    f"not {_dollars(abs(micro))}; nothing was changed",
                    hint=Hint("use a new ID for a new payment; to correct a mistaken deposit: `{withdraw}`", account),
                )
            if balance + micro > MOST_DOLLARS * MICRO:
                raise SettingsError(
                    "amount", amount, f"a smaller amount: {account} can hold at most {MOST_DOLLARS} dollars"
                )
            if balance + micro < 0:
                raise InsufficientCredits(
                    f"{account} has only {_dollars(balance)} available (neither reserved nor spent), less than "
                    f"{_dollars(-micro)}; nothing was withdrawn",
                    hint="withdraw less, or cancel jobs that have reserved credits",
                )
            self._move(execute, account, kind, micro, payment_id, reason)
            return (balance + micro) / MICRO

    def reserve(self, account: str, job_id: str, amount: float, reason: str = "estimate") -> None:
        """Reserve credits for a job. Repeating the call has no effect.

        Raises:
            InsufficientCredits: the balance is too low; nothing was reserved.
            InvalidTransition: the job has a reservation of a different amount, or has ended.
        """
        micro = _micro("amount", amount)
        with self._begin(account) as execute:
            if _is_over(execute, job_id):  # cancelled meanwhile: this reservation would never be returned
                raise InvalidTransition(f"{job_id} has ended: it can no longer reserve credits")
            if (before := _moved(execute, account, "reserve", job_id)) is not None:
                if -before != micro:
                    raise InvalidTransition(f"{job_id} has already reserved {_dollars(-before)}, not {_dollars(micro)}")
                return
            if (balance := _balance(execute, account)) < micro:
                raise InsufficientCredits(
                    f"{job_id} needs {_dollars(micro)}, but {account} has only {_dollars(balance)} available",
                    hint="make a deposit, or use fewer steps or a cheaper GPU",
                )
            self._move(execute, account, "reserve", -micro, job_id, reason)

    def reservation(self, account: str, job_id: str) -> float | None:
        """Return the amount that the job reserved, in dollars, even after settlement; None without a reservation."""
        with self._begin(account) as execute:
            taken = _moved(execute, account, "reserve", job_id)
        return None if taken is None else -taken / MICRO

    def settle(self, account: str, job_id: str, spent: float, reason: str) -> float:
        """Settle a job's reservation against the amount that it spent, and return the amount charged, in dollars.

        The unspent part of the reservation is returned to the account. If the job spent more, the excess is charged as
        far as the balance allows. The account does not owe the rest.

        Raises:
            InvalidTransition: the job has no reservation, or was already settled with a different amount.
        """
        with self._begin(account) as execute:
            charged = self.settle_within(execute, account, job_id, spent, reason)
        if charged is None:
            raise InvalidTransition(f"{job_id} has no reservation")
        return charged

    def settle_within(self, execute: Execute, account: str, job_id: str, spent: float, reason: str) -> float | None:
        """Do the same as `settle` within a transaction of the same store; return None if there is no reservation."""
        micro = _micro("spent", min(spent, MOST_DOLLARS), least=0)  # no balance exceeds this
        taken = _moved(execute, account, "reserve", job_id)
        if taken is None:
            return None
        change = -taken - micro  # returned if positive; charged beyond the reservation if negative
        settled = _moved(execute, account, "settle", job_id)
        if settled is None:
            settled = max(change, -_balance(execute, account))
            self._move(execute, account, "settle", settled, job_id, reason)
        elif settled != change and not change < settled <= 0:  # the balance may have been too low for all of it
            raise InvalidTransition(f"{job_id} was already settled with a different amount")
        return (-taken - settled) / MICRO

    def refund(self, account: str, job_id: str, share: float, reason: str) -> float:
        """Refund a share (0 to 1) of the amount that a settled job was charged. Return the refund in dollars.

        A repeated call does not refund anything again, and returns the first refund.

        Raises:
            SettingsError: the share is not between 0 and 1. InvalidTransition: the job has not been settled.
        """
        if not 0 <= share <= 1:
            raise SettingsError("share", share, "0 to 1")
        with self._begin(account) as execute:
            if (before := _moved(execute, account, "refund", job_id)) is not None:
                return before / MICRO
            taken, settled = (_moved(execute, account, kind, job_id) for kind in ("reserve", "settle"))
            if taken is None or settled is None:
                raise InvalidTransition(f"{job_id} is not settled yet: there is nothing to refund")
            back = round((-taken - settled) * share)
            self._move(execute, account, "refund", back, job_id, reason)
            return back / MICRO

    def movements(self, account: str) -> list[Movement]:
        """Return all movements of an account, oldest first."""
        with self._begin(account) as execute:
            rows = execute(f"SELECT {_COLUMNS} FROM credit_movements WHERE account = ? ORDER BY number", (account,))
        return [_read(row) for row in rows]

    def _begin(self, *names: str) -> AbstractContextManager[Execute]:
        """Open a transaction after checking that `names` can be stored."""
        for name in names:
            try:
                name.encode()
            except UnicodeEncodeError as error:
                raise SettingsError("ledger name", name[:100], "UTF-8") from error
        return self._store.transaction()

    def _move(self, execute: Execute, account: str, kind: str, micro: int, job_id: str | None, reason: str) -> None:
        storable = reason.encode("utf-8", "backslashreplace").decode()  # a file name in it may not be UTF-8
        values = (account, kind, micro, job_id, storable, self._clock.time())
        execute(f"INSERT INTO credit_movements ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", values)


def _read(row: tuple[Any, ...]) -> Movement:
    """Read a movement. Raises StateError."""
    account, kind, micro, *rest = row
    try:
        movement = read_row(Movement, (account, kind, 0, *rest))
    except ValueError as error:
        raise _damaged(account, str(error)) from error
    return replace(movement, amount=_amount(account, micro) / MICRO)


def _amount(account: str, micro: object) -> int:
    if not isinstance(micro, int) or abs(micro) > MOST_DOLLARS * MICRO:
        raise _damaged(account, f"invalid amount {repr(micro)[:80]}")
    return micro


def _damaged(account: str, what: str) -> StateError:
    said = f"the account {account} has a damaged ledger entry ({what}), so its balance is unknown"
    return StateError(said, hint="restore the table credit_movements of the state file from a backup")


def _balance(execute: Execute, account: str) -> int:
    """Return the sum of an account's movements. Raises StateError when one of them is no amount."""
    total = f"coalesce(sum(amount), 0), total({_IS_AMOUNT}) = count(*)"
    [(micro, is_sound)] = execute(f"SELECT {total} FROM credit_movements WHERE account = ?", (account,))
    if not is_sound:
        raise _damaged(account, "invalid amount")
    return int(micro)


def _moved(execute: Execute, account: str, kind: str, job_id: str) -> int | None:
    query = "SELECT amount FROM credit_movements WHERE account = ? AND kind = ? AND job_id = ?"
    rows = execute(query, (account, kind, job_id))
    return _amount(account, rows[0][0]) if rows else None


def _is_over(execute: Execute, job_id: str) -> bool:
    rows = execute("SELECT state FROM training_jobs WHERE id = ?", (job_id,))
    return bool(rows) and rows[0][0] in [state.value for state in JobState if state.is_terminal]


def _micro(key: str, amount: float, *, least: int = 1) -> int:
    known = known_number(amount)
    micro = round(known * MICRO) if known is not None and 0 <= known <= MOST_DOLLARS else -1
    if micro < least:
        raise SettingsError(key, amount, f"an amount in dollars from {'0.000001' if least else '0'} to {MOST_DOLLARS}")
    return micro


# ---------------------------------------------------------------- amounts as they are shown


def sum_movements(movements: Iterable[Movement]) -> float:
    """Return the balance after these movements, in dollars."""
    return sum(round(each.amount * MICRO) for each in movements) / MICRO


def decimals_to_show(amounts: Iterable[float]) -> int:
    """Return how many decimals (2 to 6) show all these dollars exactly, so that displayed amounts add up."""
    kept = [round(amount * MICRO) for amount in amounts]
    return next(each for each in range(2, 7) if all(micro % 10 ** (6 - each) == 0 for micro in kept))


def _dollars(micro: int) -> str:
    return f"${micro / MICRO:.{decimals_to_show([micro / MICRO])}f}"
