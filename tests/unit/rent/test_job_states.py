"""The transition table: every job gets to an end, by one way out, and nothing leads back from there."""

from __future__ import annotations

from itertools import pairwise, product

import pytest

from tests.job_states import STEPS
from training_monitor.core.errors import InvalidTransition
from training_monitor.rent.queue import TRANSITIONS, check_transition
from training_monitor.vast.training_request import JobState

ENDS = {JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED}
CLOSING = [JobState.DESTROYING, JobState.SETTLING, JobState.NOTIFYING]
LOSABLE = {JobState.PREPARING, JobState.SYNCING, JobState.CHECKING, JobState.TRAINING, JobState.UPLOADING}


def reachable(begin: JobState) -> set[JobState]:
    found, open_ends = {begin}, [begin]
    while open_ends:
        new = TRANSITIONS[open_ends.pop()] - found
        found |= new
        open_ends += new
    return found


def test_the_table_knows_every_state_each_is_reached_and_leads_to_every_end() -> None:
    assert set(TRANSITIONS) == set(JobState) == reachable(JobState.QUEUED)
    assert all(reachable(state) >= ENDS for state in JobState if not state.is_terminal)


@pytest.mark.parametrize("state", sorted(ENDS))
def test_nothing_leads_out_of_an_end(state: JobState) -> None:
    assert state.is_terminal and TRANSITIONS[state] == frozenset()


def test_the_steps_follow_each_other_and_end_in_the_three_ends() -> None:
    assert all(new in TRANSITIONS[old] for old, new in pairwise(STEPS))
    assert STEPS[0] is JobState.QUEUED and TRANSITIONS[STEPS[-1]] == ENDS
    assert set(STEPS) == set(JobState) - ENDS - {JobState.REPLACING}


def test_a_failed_job_is_destroyed_settled_and_reported_and_a_lost_machine_replaced() -> None:
    for state in set(JobState) - ENDS - set(CLOSING):
        assert JobState.DESTROYING in TRANSITIONS[state]
    assert {state for state in JobState if TRANSITIONS[state] & ENDS} == {JobState.NOTIFYING}
    assert {state for state in JobState if JobState.REPLACING in TRANSITIONS[state]} == LOSABLE
    assert TRANSITIONS[JobState.REPLACING] == {JobState.RENTING, JobState.DESTROYING}


def test_no_step_comes_twice_and_no_way_leads_back_from_cleaning_up() -> None:
    order = {state: place for place, state in enumerate(STEPS)}
    for old in STEPS:
        assert all(order[new] > order[old] for new in TRANSITIONS[old] if new in order)
    for place, state in enumerate(CLOSING):
        assert reachable(state) == set(CLOSING[place:]) | ENDS


def test_what_is_not_in_the_table_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(InvalidTransition, match="from RENTING to COMPLETED, only to PREPARING or DESTROYING"):
        check_transition(JobState.RENTING, JobState.COMPLETED)
    with pytest.raises(InvalidTransition, match="from FAILED to QUEUED: it has ended"):
        check_transition(JobState.FAILED, JobState.QUEUED)


def test_staying_and_exactly_what_is_in_the_table_is_allowed() -> None:
    for old, new in product(JobState, JobState):
        if new is old or new in TRANSITIONS[old]:
            check_transition(old, new)
        else:
            with pytest.raises(InvalidTransition, match=f"{old}.*{new}"):
                check_transition(old, new)
