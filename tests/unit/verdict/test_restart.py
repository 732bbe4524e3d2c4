"""How soon a job is started again, and from which checkpoint."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import pytest

from training_monitor.core.errors import SettingsError
from training_monitor.core.models import Checkpoint, Failure
from training_monitor.core.values import CheckpointListing
from training_monitor.verdict.restart import LedgerEntry, RestartPolicy, choose_resume, decide_restart, restart_delay


def test_the_defaults_are_the_documented_ones() -> None:
    policy = RestartPolicy()
    given = (policy.max_retries, policy.retry_delay, policy.stagnation_threshold, policy.check_interval)
    assert given == (10, 60, 300, 30) and policy.fresh_start is False


@pytest.mark.parametrize(
    ("given", "retries", "delays"),
    [
        ({"retry_delay": 60, "max_delay": 500}, range(1, 6), [60, 120, 240, 480, 500]),
        ({"retry_delay": 3600, "max_delay": 900}, [1], [3600]),  # the first one is longer than the most
        ({"retry_delay": 0}, [5], [0]),
        ({"retry_delay": 60}, [5000], [900]),
    ],
)
def test_the_delay_doubles_up_to_the_most(given: dict[str, float], retries: list[int], delays: list[float]) -> None:
    assert [restart_delay(RestartPolicy(**given), retry) for retry in retries] == delays  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["max_retries", "retry_delay", "max_delay", "jitter"])
def test_a_negative_number_is_refused_by_name(name: str) -> None:
    for value in (-1, -0.001, math.nan):
        with pytest.raises(SettingsError, match=name):
            RestartPolicy(**{name: value})  # type: ignore[arg-type]
    RestartPolicy(**{name: 0})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["stagnation_threshold", "check_interval"])
def test_a_threshold_or_interval_of_nothing_is_refused_by_name(name: str) -> None:
    for value in (0, -1, math.nan):
        with pytest.raises(SettingsError, match=f"{name}.*more than 0"):
            RestartPolicy(**{name: value})  # type: ignore[arg-type]


def test_a_roll_call_in_which_no_host_could_answer_is_refused() -> None:
    for value in (-1, 0.5, 4.9, math.nan):
        with pytest.raises(SettingsError, match="roll_call_timeout.*at least 5"):
            RestartPolicy(roll_call_timeout=value)
    assert [RestartPolicy(roll_call_timeout=each).roll_call_timeout for each in (0, 5, 60)] == [0, 5, 60]


# ---------------------------------------------------------------- whether to restart

POLICY = RestartPolicy(max_retries=4)
CRASH = Failure("segfault", "ambiguous", "restart", "Segmentation fault", fingerprint="a")
OTHER = Failure("unknown", "ambiguous", "restart", "something else", fingerprint="b")
USER = Failure("python_exception", "user", "stop", "KeyError: 'x'", fingerprint="c")
ECC = Failure("ecc_error", "hardware", "restart_elsewhere", "uncorrectable ECC error", fingerprint="d")
CORRUPT = Failure("checkpoint_corrupt", "transient", "restart_previous_checkpoint", "bad zip", fingerprint="e")
HUB = Failure("network_error", "transient", "restart", "503", fingerprint="f")
NAN = Failure("loss_nan", "user", "stop", "loss is nan", fingerprint="g")
PERSON = Failure("interrupted", "external_stop", "stop", "KeyboardInterrupt", fingerprint="h")


def entries(*failures: Failure, progress: bool | None = False, checkpoint: str | None = None) -> list[LedgerEntry]:
    return [LedgerEntry(each, progress, checkpoint) for each in failures]


def test_a_checkpoint_that_failed_once_is_used_once_more_as_the_reason_says() -> None:
    first = decide_restart([], CORRUPT, False, POLICY, checkpoint="step_5", stepped=False)
    assert first.reason.endswith("restarting it from the same checkpoint once more") and not first.bad_checkpoints
    ledger = [LedgerEntry(CORRUPT, False, "step_5", stepped=False)]
    second = decide_restart(ledger, CORRUPT, False, POLICY, checkpoint="step_5", stepped=False)
    assert second.reason.endswith("from the previous checkpoint") and second.bad_checkpoints == ("step_5",)
    assert decide_restart([], CORRUPT, False, POLICY).reason.endswith(": restarting it")


def test_the_same_failure_three_times_without_progress_stops() -> None:
    assert decide_restart(entries(CRASH), CRASH, False, POLICY).restart
    found = decide_restart(entries(CRASH, CRASH), CRASH, False, POLICY)
    assert not found.restart and "3 times without progress: segfault (Segmentation fault)" in found.reason
    assert decide_restart(entries(CRASH, CRASH, progress=None), CRASH, None, POLICY).restart, "progress is unknown"


def test_another_failure_in_between_is_counted_by_the_budget_alone() -> None:
    assert decide_restart(entries(CRASH, OTHER), CRASH, False, POLICY).restart
    found = decide_restart(entries(CRASH, OTHER, CRASH, OTHER), ECC, False, POLICY)
    assert not found.restart and found.reason.startswith("max_retries_reached: 4 restarts without progress")
    long = replace(CRASH, evidence=f"{'x' * 159} {'y' * 9}")  # cut without the space before the cut
    assert f"({'x' * 159} ...)" in decide_restart((), long, True, POLICY).reason


def test_progress_refills_the_budget_and_resets_the_delay() -> None:
    many = entries(CRASH, OTHER, CRASH, OTHER, CRASH, OTHER)
    assert not decide_restart(many, ECC, False, POLICY).restart
    found = decide_restart(many, CRASH, True, POLICY)
    assert found.restart and found.delay == POLICY.retry_delay
    assert decide_restart([*many, LedgerEntry(CRASH, True)], OTHER, False, POLICY).delay == 2 * POLICY.retry_delay


@pytest.mark.parametrize("category", ["network_error", "nccl_network_error", "nccl_timeout"])
def test_what_comes_from_outside_is_limited_by_the_budget_alone(category: str) -> None:
    failure = replace(HUB, category=category)
    assert decide_restart(entries(*[failure] * 3), failure, False, POLICY).restart
    assert not decide_restart(entries(*[failure] * 4), failure, False, POLICY).restart


def test_a_users_error_is_tried_once_more_only_after_progress() -> None:
    refused = decide_restart([], USER, False, POLICY)
    assert not refused.restart and refused.reason.startswith("restart_failed: python_exception (KeyError: 'x')")
    assert decide_restart([], USER, True, POLICY).restart
    assert decide_restart(entries(CRASH, progress=True), USER, False, POLICY).restart
    assert not decide_restart(entries(USER, progress=True), USER, True, POLICY).restart
    for never in (NAN, PERSON):
        assert not decide_restart(entries(CRASH, progress=True), never, True, POLICY).restart


def test_a_hardware_fault_names_the_node_to_avoid() -> None:
    found = decide_restart([LedgerEntry(ECC, True, node="gpu-7")], ECC, True, POLICY, node="gpu-8")
    assert found.restart and found.excluded_nodes == ("gpu-7", "gpu-8") and "another node" in found.reason
    assert decide_restart([], CRASH, True, POLICY, node="gpu-7").excluded_nodes == ()


STEP_5 = "/c/step_5 10 1700000000.0"


def blamed(*deaths: tuple[Failure, bool | None], budget: int = 4) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The bad and the suspect checkpoints after attempts that died, and whether each had made a step."""
    *before, last = [LedgerEntry(failure, None, STEP_5, stepped=stepped) for failure, stepped in deaths]
    policy = RestartPolicy(budget)
    found = decide_restart(before, last.failure, None, policy, checkpoint=STEP_5, stepped=last.stepped)
    assert found.restart
    return found.bad_checkpoints, found.suspect_checkpoints


def test_a_checkpoint_that_failed_twice_is_bad_unless_it_made_steps() -> None:
    assert blamed((CORRUPT, False)) == ((), ())
    assert blamed((CORRUPT, False), (CORRUPT, False)) == ((STEP_5,), ())
    assert blamed((CORRUPT, False), (HUB, False), (CORRUPT, False)) == ((STEP_5,), ())
    assert blamed(*[(CORRUPT, False)] * 3, (CRASH, True)) == ((), ())
    assert blamed((CRASH, True), *[(CRASH, False)] * 3) == ((), ())


def test_a_checkpoint_is_suspect_after_three_deaths_before_a_first_step() -> None:
    deaths = [(CRASH, False), (OTHER, False), (CORRUPT, False)]
    assert blamed(*deaths[:2]) == ((), ()) and blamed(*deaths) == ((), (STEP_5,))
    assert blamed(*deaths, (HUB, False), *deaths, budget=9) == ((STEP_5,), (STEP_5, STEP_5))


@pytest.mark.parametrize(
    ("failure", "stepped"), [(HUB, False), (ECC, False), (replace(PERSON, action="restart"), False), (CORRUPT, None)]
)
def test_deaths_from_outside_of_hardware_or_after_unknown_steps_blame_no_checkpoint(
    failure: Failure, stepped: bool | None
) -> None:
    assert blamed(*[(failure, stepped)] * 4) == ((), ())


def test_after_three_failures_an_older_checkpoint_is_tried() -> None:
    before = [LedgerEntry(CRASH, False, STEP_5, stepped=False)] * 2
    third = decide_restart(before, CRASH, False, POLICY, checkpoint=STEP_5, stepped=False)
    assert third.restart and third.suspect_checkpoints == (STEP_5,)
    fourth = [*before, before[0]]
    assert not decide_restart(fourth, CRASH, False, POLICY, checkpoint="/c/step_2 10 1.0", stepped=False).restart


def test_a_bad_checkpoint_is_passed_over() -> None:
    problem_of = lambda each: "loading it failed twice" if each.step == 9 else None  # noqa: E731
    choice = choose_resume(listing([good(5), good(9)]), wrote_one=True, fresh_start=False, problem_of=problem_of)
    assert choice.checkpoint == good(5)
    assert [each.problem for each in choice.refused] == ["loading it failed twice"]


def test_a_suspect_checkpoint_comes_after_older_ones_and_again_later() -> None:
    found = [Checkpoint(f"/c/step_{step}", step, 9, True, modified_at=float(step)) for step in (5, 9)]
    older, newer = (each.content for each in found)
    chosen = [
        choose_resume(listing(found), wrote_one=True, fresh_start=False, suspect=suspect).checkpoint
        for suspect in [(), (newer,), (newer, older), (newer, older, newer)]
    ]
    assert chosen == [found[1], found[0], found[1], found[0]]


def test_a_checkpoint_that_was_written_again_is_another_content() -> None:
    kept = Checkpoint("/c/step_5", 5, 9, True, modified_at=1.0)
    assert len({each.content for each in (kept, replace(kept, modified_at=2.0), replace(kept, size_bytes=8))}) == 3


# ---------------------------------------------------------------- where to resume


def good(step: int, is_complete: bool | None = True, problem: str | None = None) -> Checkpoint:
    return Checkpoint(f"/c/step_{step}", step, 1, is_complete, problem)


bad = partial(good, is_complete=False, problem="truncated")
unknown = partial(good, is_complete=None, problem="not looked into")


def listing(checkpoints: list[Checkpoint], unlisted: int = 0) -> CheckpointListing:
    return CheckpointListing(tuple(checkpoints), unlisted)


@pytest.mark.parametrize(
    ("there", "wrote_one", "fresh_start", "chosen", "refused", "refusals"),
    [
        ([bad(10), good(20), bad(30), bad(40)], True, False, good(20), (bad(30), bad(40)), []),
        ([good(20)], True, True, good(20), (), []),
        ([], False, False, None, (), []),  # it never wrote one: it begins at zero
        ([bad(10), bad(20)], True, False, None, (bad(10), bad(20)), ["none of 2 checkpoints", "step 20: truncated"]),
        ([bad(10), bad(20)], False, False, None, (bad(10), bad(20)), ["none of 2 checkpoints", "step 20: truncated"]),
        ([], True, False, None, (), ["but none is left"]),
        ([], True, True, None, (), []),
        ([bad(10)], True, True, None, (bad(10),), []),
    ],
)
def test_resuming_takes_the_newest_complete_checkpoint_and_only_on_request_none(
    there: list[Checkpoint],
    wrote_one: bool,
    fresh_start: bool,
    chosen: Checkpoint | None,
    refused: tuple[Checkpoint, ...],
    refusals: list[str],
) -> None:
    choice = choose_resume(listing(there), wrote_one=wrote_one, fresh_start=fresh_start)
    assert (choice.checkpoint, choice.refused, bool(choice.refusal)) == (chosen, refused, bool(refusals))
    assert all(each in str(choice.refusal) for each in refusals)


def test_a_newer_one_that_was_not_looked_at_whole_is_passed_over_and_named() -> None:
    choice = choose_resume(listing([unknown(10), good(20), unknown(30)], 5), wrote_one=True, fresh_start=False)
    assert (choice.checkpoint, choice.refused, choice.refusal) == (good(20), (unknown(30),), None)


@pytest.mark.parametrize("found", [listing([bad(10), unknown(20)]), listing([], 7)])
@pytest.mark.parametrize("fresh_start", [True, False])
def test_nothing_starts_from_zero_while_some_were_not_looked_at(found: CheckpointListing, fresh_start: bool) -> None:
    choice = choose_resume(found, wrote_one=False, fresh_start=fresh_start)
    assert choice.checkpoint is None and "is known to be complete" in str(choice.refusal)
    assert f"{found.unknown} not inspected" in str(choice.refusal)


def test_a_node_is_avoided_after_a_fault_or_two_suspicions() -> None:
    once = LedgerEntry(CRASH, True, suspect_nodes=("gpu-1", "gpu-2"))
    assert decide_restart([], CRASH, True, POLICY, suspect_nodes=("gpu-1",)).excluded_nodes == ()
    assert decide_restart([once], CRASH, True, POLICY, suspect_nodes=("gpu-2", "gpu-3")).excluded_nodes == ("gpu-2",)
    assert decide_restart([], CRASH, True, POLICY, faulty_nodes=("gpu-9",)).excluded_nodes == ("gpu-9",)
    both = decide_restart([once], ECC, True, POLICY, node="gpu-2", suspect_nodes=("gpu-2",), faulty_nodes=("gpu-9",))
    assert both.excluded_nodes == ("gpu-2", "gpu-9")
