"""Who may supervise a training, by what the claim on its target says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from training_monitor.core.errors import LeaseLost
from training_monitor.core.models import Reply
from training_monitor.core.store import Store
from training_monitor.jobs.claims import Claim, Claiming, Owner, decide_claim, look_question

ME = Owner("here", "ann", 7, "boot-1", "folder-1")
OTHER = Owner("there", "bob", 7, "boot-2", "folder-1")
CLAIM = Claim("lora", 3, "token", True, 120.0, 10.0, 0.0, OTHER)


def test_who_may_take_a_claim_at_once() -> None:
    assert decide_claim(None, ME, take_over=False) == "take"
    assert decide_claim(CLAIM._replace(held=False), ME, take_over=False) == "take"
    assert decide_claim(CLAIM, ME, take_over=True) == "take"
    for changed in ["host", "user", "boot", "folder"]:
        mine = CLAIM._replace(owner=replace(ME, pid=99))
        assert decide_claim(mine, ME, take_over=False) == "take"
        assert decide_claim(mine, replace(ME, **{changed: "another"}), take_over=False) == "wait"


def test_an_owner_is_believed_dead_or_alive_by_what_is_heard_of_him() -> None:
    for age, silence, decision in [
        (0, None, "wait"),
        (119, None, "wait"),
        (121, None, "take"),
        (40, 40, "wait"),  # silent since the first look
        (12, 40, "refuse"),  # heard of meanwhile
        (121, 121, "take"),
    ]:
        assert decide_claim(CLAIM._replace(age=age), ME, take_over=False, silence=silence) == decision


def test_a_damaged_claim_keeps_its_number_and_is_not_taken_back(tmp_path: Path) -> None:
    for line in ["7 damaged", "7 held", "7 held token x y z a b c d e f"]:
        found = look_question("lora").parse(Reply(f"claim={line}\n", 0, 0.1))
        assert found and (found.number, found.is_damaged, found.is_live) == (7, True, False)
    newer = CLAIM._replace(number=CLAIM.number + 1, token="", held=False, is_damaged=True)
    site: Any = OneAnswer(newer)
    claiming = Claiming(site, "lora", Store(str(tmp_path)), lambda kind, text: None)
    claiming._beat(CLAIM)
    with pytest.raises(LeaseLost):
        claiming.hold()


class OneAnswer:
    """A target that answers once."""

    def __init__(self, answer: Claim) -> None:
        self.answers = [answer]

    def ask_one(self, question: object) -> Claim:
        return self.answers.pop()
