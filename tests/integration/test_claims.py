"""Claims on a real shell of each kind of target: one owner, whoever asks, whatever the clocks say."""

from __future__ import annotations

import os
import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.conftest import Place, plain
from training_monitor.core.errors import CommandFailed, LeaseLost
from training_monitor.core.models import RunOutcome
from training_monitor.jobs.claims import (
    Claim,
    Owner,
    list_question,
    look_question,
    only_as_owner,
    take_question,
    write_question,
)
from training_monitor.targets.asking import ask

KINDS = ("local",)  # of targets: what a shell does is the same on all
ANN = Owner("ann's host", "ann", 41, "0f-boot", "folder")
NAME = "lora; touch /tmp/never\n'$(x)'"


def claims_folder(place: Place) -> Path:
    return place.jobs / ".claims"


def look(place: Place, name: str = NAME) -> Claim | None:
    [answer] = ask(place.address, look_question(name))
    return answer.get()


def take(place: Place, number: int = 0, *, lease: float = 100, owner: Owner = ANN, name: str = NAME) -> Claim | None:
    """The claim, when it became ours."""
    token = secrets.token_hex(8)
    [answer] = ask(place.address, take_question(name, owner, token, number, lease))
    found = answer.get()
    return found if found and found.token == token else None


def set_line(place: Place, claim: Claim, position: int, word: str) -> None:
    """Write another word into what the target keeps of a claim: state, token, lease, uptime, boot …"""
    [folder] = claims_folder(place).iterdir()
    file = folder / str(claim.number)
    words = file.read_text().split()
    words[position] = word
    file.write_text(" ".join(words).ljust(1000) + "\n")


def test_a_claim_is_seen_with_its_owner_by_whoever_looks(target: Place) -> None:
    assert look(target) is None
    mine = take(target)
    seen = look(target)
    assert mine and seen and seen._replace(age=mine.age) == mine
    assert (seen.owner, seen.name, seen.held, seen.is_live) == (ANN, NAME, True, True)
    [answer] = ask(target.address, list_question())
    assert answer.value and [each.name for each in answer.value.claims] == [NAME] and not answer.value.is_cut


def test_of_many_who_take_it_at_once_one_has_it(target: Place) -> None:
    with ThreadPoolExecutor(6) as pool:
        for number in (0, 1):
            taken = list(pool.map(take, [target] * 6, [number] * 6))
            [winner] = [each for each in taken if each]
            seen = look(target)
            assert seen and (seen.token, seen.number) == (winner.token, number + 1)


def test_a_late_take_over_of_a_former_claim_has_no_effect(target: Place) -> None:
    for number in range(4):
        assert take(target, number)
    for number in range(4):
        assert take(target, number) is None
    seen = look(target)
    assert seen and seen.number == 4
    [folder] = claims_folder(target).iterdir()
    assert [each.name for each in folder.iterdir()] == ["4"]


def test_an_act_of_a_former_owner_is_not_done_however_late_it_arrives(target: Place) -> None:
    mine, act = take(target), plain("echo acted")
    assert mine
    [answer] = ask(target.address, only_as_owner(act, mine))
    assert answer.value and answer.value.output == "acted\n"
    assert take(target, 1, owner=replace(ANN, host="bob's host"))
    [answer] = ask(target.address, only_as_owner(act, mine))
    assert isinstance(answer.failure, LeaseLost) and "bob's host" in answer.failure.what
    [answer] = ask(target.address, write_question(mine, "held"))
    assert answer.value and answer.value.owner.host == "bob's host"
    [answer] = ask(target.address, write_question(mine, "free"))
    assert answer.value and answer.value.held


def test_what_was_let_go_is_free_and_its_number_does_not_come_again(target: Place) -> None:
    mine = take(target)
    assert mine
    [answer] = ask(target.address, write_question(mine, "free"))
    assert answer.value and not answer.value.held
    assert take(target, 0) is None
    again = take(target, 1)
    assert again and again.number == 2


def test_how_the_supervision_ended_stays_in_the_claim_until_it_is_taken_again(target: Place) -> None:
    mine = take(target)
    assert mine and mine.outcome is None
    ask(target.address, write_question(mine, RunOutcome.MAX_RETRIES_REACHED))
    seen = look(target)
    assert seen and (seen.held, seen.outcome, seen.owner) == (False, RunOutcome.MAX_RETRIES_REACHED, ANN)
    [answer] = ask(target.address, list_question())
    assert answer.value and answer.value.claims == ()
    again = take(target, 1)
    assert again and again.is_live and again.outcome is None


def test_the_age_of_a_claim_comes_from_the_uptime(target: Place) -> None:
    mine = take(target)
    assert mine
    [folder] = claims_folder(target).iterdir()
    for hours in (-1, 1):  # the clock was set: the file seems to be an hour older, or younger
        now = folder.stat().st_mtime
        os.utime(folder / "1", (now + hours * 3600, now + hours * 3600))
        seen = look(target)
        assert seen and 0 <= seen.age < 60
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    set_line(target, mine, 3, str(int(uptime) - 500))
    seen = look(target)
    assert seen and 500 <= seen.age < 560 and not seen.is_live
    [answer] = ask(target.address, write_question(mine, "held"))
    assert answer.value and answer.value.age < 60 and answer.value.is_live


def test_after_a_reboot_the_file_system_dates_the_beat_and_the_look(target: Place) -> None:
    mine = take(target)
    assert mine
    set_line(target, mine, 4, "another-boot")
    [folder] = claims_folder(target).iterdir()
    now = (folder / "1").stat().st_mtime
    os.utime(folder / "1", (now - 1000, now - 1000))
    seen = look(target)
    assert seen and 1000 <= seen.age < 1060 and not seen.is_live


def test_where_no_claim_can_be_written_the_target_says_so(target: Place) -> None:
    claims_folder(target).parent.mkdir(parents=True, exist_ok=True)
    claims_folder(target).write_text("in the way")
    with pytest.raises(CommandFailed, match="cannot create .*claims"):
        take(target)


@pytest.mark.parametrize("left", ["", "\0" * 1001, "held", "held x 100 5 b", "held x y[$(touch$IFS~/never)] z b c\n"])
def test_a_damaged_claim_hinders_nobody_for_ever(target: Place, left: str) -> None:
    assert take(target)
    [folder] = claims_folder(target).iterdir()
    (folder / "1").write_text(left)
    seen = look(target)
    assert seen and (seen.number, seen.is_damaged, seen.is_live) == (1, True, False)
    [answer] = ask(target.address, list_question())
    assert answer.value is not None and answer.value.claims == ()
    again = take(target, seen.number)
    assert again and again.number == 2 and again.is_live


def test_an_owner_whose_claim_was_emptied_by_a_power_cut_may_act(target: Place) -> None:
    mine = take(target)
    assert mine
    [folder] = claims_folder(target).iterdir()
    (folder / "1").write_text("")
    [answer] = ask(target.address, only_as_owner(plain("echo acted"), mine))
    assert answer.value and answer.value.output == "acted\n"


def test_what_was_let_go_is_held_again_by_no_beat_or_act_that_comes_late(target: Place) -> None:
    mine = take(target)
    assert mine
    ask(target.address, write_question(mine, "free"))
    [answer] = ask(target.address, only_as_owner(plain("echo acted"), mine))
    assert isinstance(answer.failure, LeaseLost)
    [answer] = ask(target.address, write_question(mine, "held"))
    assert answer.value and not answer.value.held


def test_a_beat_from_after_now_is_dated_by_the_file_system(target: Place) -> None:
    mine = take(target)
    assert mine
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    set_line(target, mine, 3, str(int(uptime) + 500_000))  # the uptime of a container began anew
    [folder] = claims_folder(target).iterdir()
    now = (folder / "1").stat().st_mtime
    os.utime(folder / "1", (now - 1000, now - 1000))
    seen = look(target)
    assert seen and 1000 <= seen.age < 1060 and not seen.is_live


def test_a_claim_that_the_target_has_lost_hinders_nobody(target: Place) -> None:
    mine = take(target)
    assert mine
    [folder] = claims_folder(target).iterdir()
    (folder / "1").unlink()
    [answer] = ask(target.address, only_as_owner(plain("echo acted"), mine))
    assert answer.value and answer.value.output == "acted\n"
