"""The record of a machine's life: when it began, at which prices it ran, and when it ended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes import EPOCH, FakeClock
from training_monitor.core.store import Store
from training_monitor.rent.queue import TrainingQueue
from training_monitor.vast.cost import spent_by
from training_monitor.vast.rentals import (
    MOST_PRICES,
    new_rental,
    note_answer,
    note_end,
    note_sent,
    note_sight,
    record_life,
    record_rental,
    record_sight,
)
from training_monitor.vast.rows import format_label
from training_monitor.vast.training_request import JobWork, Rental, TrainingRequest

HOUR = 3600.0
RENTAL = Rental(7, 1, 1.0, 0.0)


def row(price: object = 1.0, **details: object) -> dict[str, object]:
    return {"id": 7, "actual_status": "running", "dph_total": price, **details}


def test_a_machine_begins_when_it_was_created_and_not_before_it_was_asked_for() -> None:
    for created, asked_at, began in [
        (50.0, 40.0, 50.0),
        (30.0, 40.0, 40.0),
        (90.0, 40.0, 60.0),
        (None, 40.0, 40.0),
        (None, None, 60.0),
        ("x", 40.0, 40.0),
        (5.0, None, 10.0),
    ]:
        made = new_rental(row(start_date=created), 1, asked_at, 60.0, earliest=10.0)
        assert made.started_at == began, (created, asked_at)


def test_each_price_counts_from_the_look_that_found_it() -> None:
    rental = RENTAL
    for hour, price in [(1, 1.0), (2, 3.0), (3, None), (4, -1.0), (5, 3.0), (6, 0.5)]:
        rental = note_sight(rental, row(price), hour * HOUR)
    assert [(each.since / HOUR, each.per_hour) for each in rental.prices] == [(2, 3.0), (6, 0.5)]
    assert spent_by([rental], 8 * HOUR).dollars == pytest.approx(2 * 1.0 + 4 * 3.0 + 2 * 0.5)
    assert spent_by([rental], 8 * HOUR, since=5 * HOUR).dollars == pytest.approx(3.0 + 2 * 0.5)
    assert rental.newest_price == 0.5


def test_a_price_that_changes_at_every_look_takes_a_bounded_record() -> None:
    rental, dollars = RENTAL, 0.0
    for look in range(1, 3000):
        dollars += (rental.newest_price or 0.0) * 30 / HOUR
        rental = note_sight(rental, row(1.0 + look % 7), 30.0 * look)
    assert len(rental.prices) == MOST_PRICES and spent_by([rental], 30.0 * 2999).dollars == pytest.approx(dollars)


def test_the_first_known_price_counts_from_the_beginning() -> None:
    rental = note_sight(replace(RENTAL, price_per_hour=None), row(2.0), HOUR)
    assert spent_by([rental], 2 * HOUR).dollars == 4.0 and rental.prices == ()
    stopped = row(actual_status="exited", intended_status="stopped", storage_total_cost=0.1)
    assert spent_by([note_sight(RENTAL, stopped, HOUR)], 3 * HOUR).dollars == pytest.approx(1.2)


def test_an_acknowledged_end_counts_and_only_a_later_sight_moves_it() -> None:
    rental = note_sent(note_sight(RENTAL, row(), 10.0), 20.0)
    rental = note_answer(rental, 20.0, 22.0, acknowledged=True)
    late = note_answer(note_sent(rental, 900.0), 900.0, 901.0, acknowledged=False)
    assert note_end(late).ended_at == 22.0 and note_end(note_end(late)) == note_end(late)
    again = note_answer(note_sent(note_sight(rental, row(), 50.0), 60.0), 60.0, 61.0, acknowledged=True)
    assert note_end(again).ended_at == 61.0


def test_a_machine_ended_when_it_was_last_seen_or_asked_to_go() -> None:
    seen = note_sight(RENTAL, row(), 10.0)
    assert note_end(seen).ended_at == 10.0
    assert note_end(note_sent(seen, 20.0)).ended_at == 20.0  # whoever asked was killed before the answer
    assert note_end(note_answer(note_sent(seen, 20.0), 20.0, 21.0, acknowledged=False)).ended_at == 10.0


def test_a_machine_that_is_seen_again_has_not_ended_unless_the_look_is_older() -> None:
    ended = note_end(note_sight(RENTAL, row(), 10.0))
    assert note_sight(ended, row(), 9.0) == ended
    assert note_sight(ended, row(), 11.0).ended_at is None


def test_a_clock_that_is_set_back_moves_the_record() -> None:
    rental = note_sight(note_sight(RENTAL, row(), HOUR), row(2.0), 2 * HOUR)
    moved = note_sight(rental, row(2.0), 1 * HOUR)
    assert spent_by([moved], 2 * HOUR).dollars == spent_by([rental], 3 * HOUR).dollars == 4.0
    assert note_sight(rental, row(2.0), 2 * HOUR - 60.0).started_at == 0.0  # another process was faster


def test_what_is_recorded_outlasts_the_save_of_a_worker_that_knows_less(tmp_path: Path) -> None:
    clock = FakeClock()
    store = Store(str(tmp_path))
    queue = TrainingQueue(store, clock=clock)
    job = queue.submit(TrainingRequest("demo", command="train"), "demo-1")
    held = queue.claim("me", 60.0, job.id)
    assert held
    held = queue.save(replace(held, work=JobWork(attempt=1, asked_at=EPOCH)), "me")
    clock.sleep(60.0)
    record_sight(store, format_label("me", "demo-1", 1), row(0.5, start_date=EPOCH + 5), clock.time())
    record_sight(store, format_label("me", "unknown", 1), row(), clock.time())
    record_rental(store, "demo-1", Rental(7, 1, 0.4, EPOCH, gpu_name="RTX 4090", vram_gb=24.5))
    record_life(store, 7, note_end)
    record_life(store, 8, note_end)
    saved = queue.save(replace(held, work=replace(held.work, step=5)), "me")
    [rental] = saved.work.rentals
    assert (saved.work.step, rental.started_at, rental.ended_at) == (5, EPOCH + 5, EPOCH + 60)
    assert (rental.price_per_hour, rental.gpu_name, rental.vram_gb) == (0.5, "RTX 4090", 24.5)
