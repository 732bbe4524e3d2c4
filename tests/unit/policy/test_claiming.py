"""Who may supervise a training, by what the claim on its target says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from training_monitor.policy.claiming import Claim, Owner, decide_claim

ME = Owner("here", "ann", 7, "boot-1", "folder-1")
OTHER = Owner("there", "bob", 7, "boot-2", "folder-1")
CLAIM = Claim("lora", 3, "token", True, 120.0, 10.0, 0.0, OTHER)


def test_a_training_that_nobody_claimed_is_taken() -> None:
    assert decide_claim(None, ME, take_over=False) == "take"
    assert decide_claim(replace(CLAIM, held=False), ME, take_over=False) == "take"


@pytest.mark.parametrize(
    ("age", "decision"), [(0, "refuse"), (60, "refuse"), (61, "wait"), (120, "wait"), (121, "take")]
)
def test_a_claim_is_obeyed_as_long_as_its_owner_may_live(age: float, decision: str) -> None:
    assert decide_claim(replace(CLAIM, age=age), ME, take_over=False) == decision


def test_a_living_owner_gives_way_when_a_person_says_so() -> None:
    assert decide_claim(CLAIM, ME, take_over=True) == "take"


@pytest.mark.parametrize("changed", ["host", "user", "boot", "folder"])
def test_only_the_same_supervisor_started_again_goes_on_at_once(changed: str) -> None:
    mine = replace(CLAIM, owner=replace(ME, pid=99))
    assert decide_claim(mine, ME, take_over=False) == "take"
    assert decide_claim(mine, replace(ME, **{changed: "another"}), take_over=False) == "refuse"
