"""Credits: nothing is charged twice, nothing falls below zero, and every movement says why."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from tests.fakes import FakeClock
from training_monitor.core.errors import InsufficientCredits, InvalidTransition, SettingsError
from training_monitor.core.store import Store
from training_monitor.rent.credits import Credits
from training_monitor.rent.queue import TrainingQueue
from training_monitor.vast.training_request import TrainingRequest


@pytest.fixture
def ledger(tmp_path: Path) -> Credits:
    credits = Credits(Store(str(tmp_path)), clock=FakeClock())
    credits.deposit("anna", 10.0, "paid in")
    return credits


def test_a_job_reserves_and_gets_back_what_it_did_not_spend(ledger: Credits) -> None:
    assert ledger.reservation("anna", "job") is None
    ledger.reserve("anna", "job", 4.0)
    assert ledger.balance("anna") == 6.0 and ledger.reservation("bert", "job") is None
    assert ledger.settle("anna", "job", 1.5, "finished") == 1.5
    assert ledger.reservation("anna", "job") == 4.0 and ledger.movements("anna")[-1].amount == 2.5
    assert ledger.balance("anna") == 8.5


def test_everything_can_be_done_again_after_a_crash_and_counts_once(ledger: Credits) -> None:
    for _ in range(3):
        ledger.deposit("anna", 5.0, "card", payment_id="p1")
        ledger.reserve("anna", "job", 4.0)
    results = {ledger.settle("anna", "job", 3.0, "failed") for _ in range(3)}
    assert results == {3.0}
    assert {ledger.refund("anna", "job", 0.5, "our machine was lost") for _ in range(3)} == {1.5}
    assert ledger.balance("anna") == 13.5
    *deposits, reserved, settled, refunded = [(each.kind, each.amount) for each in ledger.movements("anna")]
    assert deposits == [("deposit", 10.0), ("deposit", 5.0)]
    assert (reserved, settled, refunded) == (("reserve", -4.0), ("settle", 1.0), ("refund", 1.5))


def test_what_is_not_there_cannot_be_reserved(ledger: Credits) -> None:
    with pytest.raises(InsufficientCredits, match="needs \\$10.01, but anna has only \\$10.00"):
        ledger.reserve("anna", "job", 10.01)
    with pytest.raises(InsufficientCredits, match=r"needs \$10.000001, but anna has only \$10.00"):
        ledger.reserve("anna", "job", 10.000001)
    with pytest.raises(InsufficientCredits):
        ledger.reserve("nobody", "job", 0.01)
    assert ledger.balance("anna") == 10.0 and len(ledger.movements("anna")) == 1


@pytest.mark.parametrize("spent", [13.0, 1e300])
def test_a_job_that_spent_more_is_charged_as_far_as_the_balance_goes(ledger: Credits, spent: float) -> None:
    ledger.reserve("anna", "job", 8.0)
    assert [ledger.settle("anna", "job", spent, "it took longer") for _ in range(2)] == [10.0, 10.0]
    assert ledger.balance("anna") == 0.0


def test_another_sum_for_the_same_job_or_one_without_a_reservation_is_refused(ledger: Credits) -> None:
    with pytest.raises(InvalidTransition):
        ledger.settle("anna", "job", 1.0, "x")
    ledger.reserve("anna", "job", 4.0)
    with pytest.raises(InvalidTransition):
        ledger.refund("anna", "job", 1.0, "x")
    with pytest.raises(InvalidTransition, match="has already reserved"):
        ledger.reserve("anna", "job", 5.0)
    ledger.settle("anna", "job", 1.0, "finished")
    with pytest.raises(InvalidTransition, match="a different amount"):
        ledger.settle("anna", "job", 2.0, "finished")


@pytest.mark.parametrize("amount", [0.0, -1.0, float("nan"), float("inf"), 1e-9, 1e308, 10**400, 1e9 + 1, True, "ten"])
def test_amounts_are_above_zero_and_can_be_kept(ledger: Credits, amount: float) -> None:
    for change in (
        lambda: ledger.deposit("anna", amount, "x"),
        lambda: ledger.withdraw("anna", amount, "x"),
        lambda: ledger.reserve("anna", "job", amount),
    ):
        with pytest.raises(SettingsError, match="an amount in dollars from 0.000001 to 1000000000"):
            change()
    assert len(ledger.movements("anna")) == 1
    ledger.deposit("bert", 1e9, "much")
    with pytest.raises(SettingsError, match="bert can hold at most 1000000000"):
        ledger.deposit("bert", 0.01, "more")
    assert ledger.balance("bert") == 1e9


def test_a_payment_with_another_amount_is_refused_with_what_is_recorded(ledger: Credits) -> None:
    ledger.deposit("anna", 5.0, "card", payment_id="p1")
    with pytest.raises(InvalidTransition, match=r"p1 is already recorded with \$5.00 deposited, not \$50.00"):
        ledger.deposit("anna", 50.0, "card", payment_id="p1")
    ledger.withdraw("anna", 2.0, "wrong", payment_id="p1")
    with pytest.raises(InvalidTransition, match=r"with \$2.00 withdrawn, not \$3.00"):
        ledger.withdraw("anna", 3.0, "wrong", payment_id="p1")
    assert ledger.balance("anna") == 13.0


def test_a_wrong_deposit_is_corrected_once_and_never_by_what_is_reserved(ledger: Credits) -> None:
    ledger.deposit("anna", 200.0, "should be 20", payment_id="17")
    ledger.reserve("anna", "job", 25.0)
    with pytest.raises(InsufficientCredits, match=r"anna has only \$185.00 available"):
        ledger.withdraw("anna", 185.01, "a zero too many")
    for _ in range(3):
        assert ledger.withdraw("anna", 180.0, "a zero too many", payment_id="17") == 5.0
    last = ledger.movements("anna")[-1]
    assert (last.kind, last.amount, last.job_id, last.reason) == ("withdraw", -180.0, "17", "a zero too many")


def test_a_job_that_is_over_reserves_nothing_any_more(ledger: Credits, tmp_path: Path) -> None:
    queue = TrainingQueue(Store(str(tmp_path)), clock=FakeClock())
    queue.submit(TrainingRequest("demo", command="true", account="anna"), "job")
    queue.cancel("job", "enough")
    with pytest.raises(InvalidTransition, match="job has ended"):
        ledger.reserve("anna", "job", 4.0)
    assert ledger.balance("anna") == 10.0


def test_many_at_once_never_spend_more_than_there_is(ledger: Credits, tmp_path: Path) -> None:
    reserved: list[str] = []

    def work(number: int) -> None:
        try:
            Credits(Store(str(tmp_path))).reserve("anna", f"job-{number}", 1.5)
            reserved.append(f"job-{number}")
        except InsufficientCredits:
            pass

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(reserved) == 6 and ledger.balance("anna") == 1.0


@pytest.mark.parametrize("seed", range(5))
def test_money_adds_up_whatever_happens(ledger: Credits, seed: int) -> None:
    chance = random.Random(seed)
    charged = 0.0
    for number in range(30):
        job, estimate = f"job-{number}", round(chance.uniform(0.01, 3), 3)
        try:
            ledger.reserve("anna", job, estimate)
        except InsufficientCredits:
            continue
        done = ledger.settle("anna", job, round(chance.uniform(0, 2 * estimate), 3), "done")
        charged += done - ledger.refund("anna", job, chance.random(), "kindness")
        assert ledger.balance("anna") >= 0
    assert ledger.balance("anna") == pytest.approx(10.0 - charged)
