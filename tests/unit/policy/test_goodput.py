"""Goodput: the share of the wall time that made steps which were kept."""

from __future__ import annotations

import pytest

from training_monitor.policy.goodput import goodput, steps_lost
from training_monitor.reports import AttemptReport


def attempt(
    start: int | None, final: int | None, begin: float, end: float | None, lost: int | None = None
) -> AttemptReport:
    return AttemptReport(
        number=1,
        job_id="job",
        checkpoint=None,
        refused_checkpoints=[],
        start_step=start,
        final_step=final,
        started_at=begin,
        ended_at=end,
        status="FAILED",
        reason=None,
        steps_lost=lost,
    )


def test_one_attempt_without_loss_is_all_good() -> None:
    assert goodput([attempt(0, 100, 0, 50)], 0, 50) == 1.0


def test_steps_that_were_made_twice_and_time_between_attempts_are_lost() -> None:
    attempts = [attempt(0, 100, 0, 100, lost=20), attempt(80, 180, 150, 250)]
    assert goodput(attempts, 0, 250) == pytest.approx((80 + 100) / 250)
    assert steps_lost(attempts) == 20


def test_an_attempt_that_started_fresh_counts_from_0() -> None:
    assert goodput([attempt(None, 100, 0, 100)], 0, 200) == 0.5


def test_an_attempt_whose_steps_were_all_lost_made_nothing() -> None:
    assert goodput([attempt(0, 50, 0, 100, lost=50), attempt(0, 100, 100, 200)], 0, 200) == 0.5


def test_losing_more_than_an_attempt_made_is_never_negative() -> None:
    assert goodput([attempt(0, 50, 0, 100, lost=500)], 0, 100) == 0.0


def test_an_attempt_without_a_step_made_nothing_and_hides_no_other() -> None:
    assert goodput([attempt(0, None, 0, 50), attempt(0, 100, 50, 100)], 0, 100) == 0.5


@pytest.mark.parametrize(
    "attempts", [[], [attempt(0, None, 0, 10)], [attempt(50, 50, 0, 10)], [attempt(0, 100, 0, None)]]
)
def test_where_no_step_was_seen_nothing_is_known(attempts: list[AttemptReport]) -> None:
    assert goodput(attempts, 0, 100) is None


def test_no_time_gives_no_share() -> None:
    assert goodput([attempt(0, 100, 5, 5)], 5, 5) is None


def test_clocks_that_disagree_give_never_more_than_all() -> None:
    assert goodput([attempt(0, 100, 0, 200)], 0, 100) == 1.0


def test_what_is_not_known_to_be_lost_is_not_counted() -> None:
    assert steps_lost([attempt(0, 5, 0, 1), attempt(0, 5, 0, 1, lost=3)]) == 3
    assert steps_lost([]) == 0
