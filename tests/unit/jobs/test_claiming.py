"""Who may supervise a training, by what the claim on its target says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from training_monitor.jobs.claims import Claim, Owner, decide_claim

ME = Owner("here", "ann", 7, "boot-1", "folder-1")
OTHER = Owner("there", "bob", 7, "boot-2", "folder-1")
CLAIM = Claim("lora", 3, "token", True, 120.0, 10.0, 0.0, OTHER)


def test_a_training_that_nobody_claimed_is_taken() -> None:
    assert decide_claim(None, ME, take_over=False) == "take"
    assert decide_claim(replace(CLAIM, held=False), ME, take_over=False) == "take"


def test_an_owner_is_believed_dead_or_alive_by_what_is_heard_of_him(subtests: pytest.Subtests) -> None:
    for age, silence, decision in [
        (0, None, "wait"),
        (119, None, "wait"),
        (121, None, "take"),
        (40, 40, "wait"),  # silent since the first look
        (12, 40, "refuse"),  # heard of meanwhile
        (121, 121, "take"),
    ]:
        with subtests.test(age=age, silence=silence, decision=decision):
            assert decide_claim(replace(CLAIM, age=age), ME, take_over=False, silence=silence) == decision


def test_a_living_owner_gives_way_when_a_person_says_so() -> None:
    assert decide_claim(CLAIM, ME, take_over=True) == "take"


@pytest.mark.parametrize("changed", ["host", "user", "boot", "folder"])
def test_only_the_same_supervisor_started_again_goes_on_at_once(changed: str) -> None:
    mine = replace(CLAIM, owner=replace(ME, pid=99))
    assert decide_claim(mine, ME, take_over=False) == "take"
    assert decide_claim(mine, replace(ME, **{changed: "another"}), take_over=False) == "wait"
