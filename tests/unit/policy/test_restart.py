"""How soon a job is started again, and from which checkpoint."""

from __future__ import annotations

import math

import pytest

from training_monitor.errors import SettingsError
from training_monitor.models import Checkpoint
from training_monitor.policy.restart import RestartPolicy, choose_resume, restart_delay


def test_the_defaults_are_the_documented_ones() -> None:
    policy = RestartPolicy()
    assert (policy.max_retries, policy.retry_delay, policy.stagnation_threshold, policy.check_interval) == (
        10,
        60,
        300,
        30,
    )
    assert policy.fresh_start is False


def test_the_delay_doubles_up_to_the_most() -> None:
    policy = RestartPolicy(retry_delay=60, max_delay=500)
    assert [restart_delay(policy, retry, 0.0) for retry in range(1, 6)] == [60, 120, 240, 480, 500]


def test_the_first_delay_is_kept_where_it_is_longer_than_the_most() -> None:
    assert restart_delay(RestartPolicy(retry_delay=3600, max_delay=900), 1, 0.0) == 3600


def test_chance_spreads_the_delay_by_the_jitter() -> None:
    policy = RestartPolicy(retry_delay=100, jitter=0.1)
    assert restart_delay(policy, 1, 1.0) == pytest.approx(110)
    assert restart_delay(policy, 1, 0.5) == pytest.approx(105)


def test_no_delay_stays_none_and_a_thousandth_restart_overflows_nothing() -> None:
    assert restart_delay(RestartPolicy(retry_delay=0), 5, 1.0) == 0
    assert restart_delay(RestartPolicy(retry_delay=60), 5000, 0.0) == 900


@pytest.mark.parametrize("name", ["max_retries", "retry_delay", "max_delay", "jitter"])
@pytest.mark.parametrize("value", [-1, -0.001, math.nan])
def test_a_negative_number_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(SettingsError, match=name):
        RestartPolicy(**{name: value})  # type: ignore[arg-type]
    RestartPolicy(**{name: 0})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["stagnation_threshold", "check_interval"])
@pytest.mark.parametrize("value", [0, -1, math.nan])
def test_a_threshold_or_interval_of_nothing_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(SettingsError, match=f"{name}.*more than 0"):
        RestartPolicy(**{name: value})  # type: ignore[arg-type]


# ---------------------------------------------------------------- where to resume


def good(step: int) -> Checkpoint:
    return Checkpoint(f"/c/step_{step}", step, 1, True)


def bad(step: int) -> Checkpoint:
    return Checkpoint(f"/c/step_{step}", step, 1, False, "truncated")


def test_the_newest_complete_checkpoint_is_chosen_and_the_damaged_newer_ones_are_named() -> None:
    choice = choose_resume([bad(10), good(20), bad(30), bad(40)], wrote_one=True, fresh_start=False)
    assert (choice.checkpoint, choice.refused, choice.refusal) == (good(20), (bad(30), bad(40)), None)


def test_it_is_chosen_also_when_a_fresh_start_is_allowed() -> None:
    assert choose_resume([good(20)], wrote_one=True, fresh_start=True).checkpoint == good(20)


def test_a_job_that_never_wrote_one_starts_from_the_start() -> None:
    choice = choose_resume([], wrote_one=False, fresh_start=False)
    assert (choice.checkpoint, choice.refused, choice.refusal) == (None, (), None)


@pytest.mark.parametrize("wrote_one", [True, False])
def test_where_all_are_damaged_it_does_not_start_from_zero(wrote_one: bool) -> None:
    choice = choose_resume([bad(10), bad(20)], wrote_one=wrote_one, fresh_start=False)
    assert choice.checkpoint is None and choice.refused == (bad(10), bad(20))
    assert "none of 2 checkpoints is complete" in str(choice.refusal) and "step 20: truncated" in str(choice.refusal)


def test_where_all_are_gone_it_does_not_start_from_zero() -> None:
    assert "now there is none" in str(choose_resume([], wrote_one=True, fresh_start=False).refusal)


@pytest.mark.parametrize("found", [[], [bad(10)]])
def test_a_fresh_start_must_be_allowed(found: list[Checkpoint]) -> None:
    choice = choose_resume(found, wrote_one=True, fresh_start=True)
    assert (choice.checkpoint, choice.refusal, choice.refused) == (None, None, tuple(found))
