"""The one record of each rented machine's life, kept with its job, whoever rents, sees or destroys the machine.

A machine costs from its creation until it is destroyed, and each look's price holds from that look on. A machine that
was destroyed by an acknowledged request ended then. Otherwise the truth lies between the last time it was listed, or
was asked to go, and the first time it was not listed: the earlier one counts, so a job is not charged for a time in
which its machine was not seen. Where the clock of this machine was set back, the record moves with it.

The record is a help: a store that cannot be written to stops no destruction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.logger import get_logger
from training_monitor.core.records import format_record, read_record
from training_monitor.core.store import Execute, Store
from training_monitor.core.units import known_number
from training_monitor.vast.cost import cost_per_hour
from training_monitor.vast.rows import read_label
from training_monitor.vast.training_request import NAME, JobWork, PriceChange, Rental

MOST_PRICES = 500  # that are kept of one machine
MOST_OUT_OF_ORDER = 180.0  # seconds by which looks of several processes may be recorded in another order
Change = Callable[[JobWork, float, Rental | None], Rental | None]  # of a job, and when that was created


def new_rental(
    row: Mapping[str, Any], attempt: int, asked_at: float | None, now: float, *, earliest: float = 0.0
) -> Rental:
    """Return the record of an instance that is seen for the first time, in its row.

    It was created after it was asked for, or after the `earliest` time, whatever the clock of the service says.
    """
    created = known_number(row.get("start_date"))
    started = asked_at if created is None else max(created, asked_at or earliest)
    started = now if started is None else min(started, now)
    machine, host, gpu = row.get("machine_id"), row.get("host_id"), row.get("gpu_name")
    return Rental(
        row["id"],
        attempt,
        cost_per_hour(row),
        started,
        machine_id=machine if type(machine) is int else None,
        gpu_name=gpu if isinstance(gpu, str) else None,
        host_id=host if type(host) is int else None,
        seen_at=now,
    )


def note_sight(rental: Rental, row: Mapping[str, Any], now: float) -> Rental:
    """Return the record after an instance was listed in an answer that was requested at `now`.

    A machine that was taken for gone is there again, unless the answer was requested before its end.
    """
    rental = _follow_clock(rental, now)
    if rental.ended_at is not None and now <= rental.ended_at:
        return rental
    price = cost_per_hour(row)
    if rental.price_per_hour is None:
        rental = replace(rental, price_per_hour=price)  # the first known price counts from the beginning
    elif price is not None and price != rental.newest_price:
        rental = replace(rental, prices=_bound((*rental.prices, PriceChange(now, price))))
    return replace(rental, seen_at=max(now, rental.seen_at or now), ended_at=None)


def _bound(prices: tuple[PriceChange, ...]) -> tuple[PriceChange, ...]:
    """Merge the two oldest prices, without changing what they add up to, where a price changes at every look."""
    if len(prices) <= MOST_PRICES:
        return prices
    first, second, third, *rest = prices
    one, other = second.since - first.since, third.since - second.since
    mean = (first.per_hour * one + second.per_hour * other) / (one + other) if one + other > 0 else second.per_hour
    return PriceChange(first.since, mean), third, *rest


def note_sent(rental: Rental, now: float) -> Rental:
    """Return the record when a request to destroy the machine is about to be sent: its answer may never be read."""
    rental = _follow_clock(rental, now)
    is_older = rental.leaving_at is not None and (rental.seen_at or 0.0) <= rental.leaving_at
    return rental if is_older else replace(rental, leaving_at=now, acknowledged=False)


def note_answer(rental: Rental, sent: float, now: float, *, acknowledged: bool) -> Rental:
    """Return the record after the answer to a request sent at `sent`: acknowledged, or there was no such instance."""
    if acknowledged:
        rental = _follow_clock(rental, now)
        return replace(rental, leaving_at=now, acknowledged=True)
    return replace(rental, leaving_at=None) if rental.leaving_at == sent and not rental.acknowledged else rental


def note_end(rental: Rental) -> Rental:
    """Return the record of a machine that is gone, by two answers."""
    if rental.ended_at is not None:
        return rental
    known = (rental.started_at, rental.seen_at or 0.0, rental.leaving_at or 0.0)
    return replace(rental, ended_at=max(known))


def _follow_clock(rental: Rental, now: float) -> Rental:
    """Move the record of a machine that is there back with the clock: what was seen before cannot be to come."""
    back = (rental.seen_at or now) - now
    if back <= MOST_OUT_OF_ORDER or rental.ended_at is not None:
        return rental
    prices = tuple(replace(each, since=each.since - back) for each in rental.prices)
    leaving_at = None if rental.leaving_at is None else rental.leaving_at - back
    return replace(rental, started_at=rental.started_at - back, prices=prices, seen_at=now, leaving_at=leaving_at)


# ---------------------------------------------------------------- keeping it


def record_sight(store: Store, label: object, row: Mapping[str, Any], now: float) -> None:
    """Record an instance that an answer, requested at `now`, lists under a label of ours, for the job named there."""
    ours = read_label(label)
    if ours and NAME.fullmatch(ours[1]):
        _, job_id, attempt = ours

        def change(work: JobWork, created_at: float, known: Rental | None) -> Rental | None:
            if work.spent is not None and known is not None:
                return None  # settled: the machine was left to its user
            asked_at = work.asked_at if work.attempt == attempt else None
            return note_sight(known or new_rental(row, attempt, asked_at, now, earliest=created_at), row, now)

        _record(store, row["id"], change, job_id)


def record_life(store: Store | None, number: int, change: Callable[[Rental], Rental]) -> None:
    """Change the record of an instance in whichever job has it; without a store, or such a job, there is none."""
    if store:
        _record(store, number, lambda _, __, known: known and change(known))


def record_rental(store: Store, job_id: str, rental: Rental) -> None:
    """Record what was rented; what others saw of it since stays. Raises TrainingMonitorError."""

    def change(work: JobWork, created_at: float, known: Rental | None) -> Rental:
        if known is None:
            return rental
        price = rental.price_per_hour if known.price_per_hour is None else known.price_per_hour
        facts = {name: getattr(rental, name) for name in ("machine_id", "gpu_name", "host_id", "vram_gb")}
        return replace(known, price_per_hour=price, **facts)

    with store.transaction() as execute:
        _change(execute, job_id, rental.instance_id, change)


def record_release(store: Store, job_id: str, number: int, now: float) -> None:
    """Record that a job leaves its machine to its user. Raises TrainingMonitorError."""
    with store.transaction() as execute:
        _change(execute, job_id, number, lambda _, __, known: known and replace(known, ended_at=known.ended_at or now))


def _record(store: Store, number: int, change: Change, job_id: str | None = None) -> None:
    """Change the record of an instance, in its job or, without one, in whichever job has it."""
    try:
        with store.transaction() as execute:
            has_it = "SELECT id FROM training_jobs WHERE instr(work, ?)"
            rows = [(job_id,)] if job_id else execute(has_it, (f'"instance_id": {number},',))
            for (each,) in rows:
                _change(execute, each, number, change)
    except TrainingMonitorError as error:
        get_logger().warning("the price of instance %s could not be saved: %s", number, error.what)


def _change(execute: Execute, job_id: str, number: int, change: Change) -> None:
    rows = execute("SELECT work, created_at FROM training_jobs WHERE id = ?", (job_id,))
    if not rows:
        return
    [(text, created_at)] = rows
    work = read_record(JobWork, text, name=f"job {job_id}")
    known = next((each for each in work.rentals if each.instance_id == number), None)
    changed = change(work, known_number(created_at) or 0.0, known)
    if changed is None or changed == known:
        return
    rentals = tuple(changed if each is known else each for each in work.rentals)
    work = replace(work, rentals=rentals if known else (*rentals, changed))
    execute("UPDATE training_jobs SET work = ? WHERE id = ?", (format_record(work), job_id))
