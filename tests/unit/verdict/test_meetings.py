"""Where ranks meet: what makes them one training, two, or leaves that open."""

from __future__ import annotations

import pytest

from training_monitor.targets.proc_stat import Meeting, are_one, read_meeting
from training_monitor.why.meetings import are_doubtful, find_contradiction, leave_out_others
from training_monitor.why.ranks import Rank

HERE, THERE = "boot-a net:[1]", "boot-b net:[1]"


def at(address: str | None, port: str | None = "29500", network: str | None = HERE, job: str | None = None) -> Meeting:
    return Meeting(address, port, network, job)


def rank(number: int | None, meeting: Meeting | None = None, world: int | None = 2, pid: int | None = None) -> Rank:
    return Rank("local", pid or 100 + (number or 0), rank=number, world_size=world, meeting=meeting)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (at("127.0.0.1"), at("localhost"), True),
        (at("127.0.0.1"), at("127.0.0.1", "29501"), False),
        (at("127.0.0.1"), at("127.0.0.1", network=THERE), False),  # each host has its own
        (at("127.0.0.1"), at("127.0.0.1", network=None), None),
        (at("gpu-1"), at("gpu-1", network=THERE), True),
        (at("gpu-1"), at("gpu-1", "29501", THERE), False),
        (at("gpu-1"), at("10.0.0.1", network=THERE), None),  # may be two names of one address
        (at("gpu-1"), at("gpu-5"), False),  # on one host, all have the same name for it
        (at("localhost"), at("gpu-1", network=THERE), None),  # as Kubeflow's first rank has it
        (at("localhost"), at("gpu-1"), None),
        (at(None), at(None), True),
        (at(None), at(None, network=THERE), None),
        (at("gpu-1", job="7.0"), at("gpu-1", network=THERE, job="7.1"), True),  # a step of Slurm for each node
        (at(None, None, job="7.0"), at(None, None, THERE, "7.0"), True),
        (at(None, None, job="7.0"), at(None, None, job="8.0"), False),
        (at("gpu-1"), at(None, None, job="8.0"), None),
        (at("gpu-1"), None, None),
    ],
)
def test_meetings_are_of_one_training_or_of_two(one: Meeting, other: Meeting | None, expected: bool | None) -> None:
    assert are_one(one, other) is expected and are_one(other, one) is expected


def test_a_meeting_is_read_from_the_variables_of_launchers() -> None:
    assert read_meeting({"MASTER_ADDR": "gpu-1", "MASTER_PORT": "1"}, HERE) == at("gpu-1", "1")
    assert read_meeting({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}, None) == Meeting(job="7.0")
    assert read_meeting({"PMIX_NAMESPACE": "p@1", "SLURM_JOB_ID": "7"}, None) == Meeting(job="p@1")
    assert read_meeting({"MASTER_ADDR": "gpu-1", "RANK": "0"}, HERE) is None


def test_ranks_of_another_training_are_left_out() -> None:
    own, other = [rank(0, at("127.0.0.1", "1")), rank(1)], rank(1, at("127.0.0.1", "2"), pid=500)
    assert leave_out_others(own, [*own, other]) == own
    assert leave_out_others([other], [*own, other]) == [own[1], other]
    assert leave_out_others(own[1:], [*own, other]) == [*own, other]


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ([rank(0, at("a", "1")), rank(1, at("a", "2"))], "their rendezvous addresses differ (a:1, a:2)"),
        ([rank(0), rank(1, pid=7), rank(1, pid=9)], "2 processes have rank 1 (pids 7, 9)"),
        ([rank(0), rank(2, pid=7)], "pid 7 has rank 2, but its world size is 2"),
        ([rank(0), rank(1, world=4)], "their world sizes differ (2 and 4)"),
        ([rank(0, at("a", "1")), rank(1, at("a", "1", THERE)), rank(None), rank(None, pid=7)], None),
        ([rank(0, world=None), rank(9, world=None)], None),
        ([], None),
    ],
)
def test_what_cannot_be_one_training_is_a_contradiction(ranks: list[Rank], said: str | None) -> None:
    assert find_contradiction(ranks) == said


def test_different_place_names_are_doubtful_except_the_first_host() -> None:
    first, second = rank(0, at("localhost")), rank(1, at("w-0", network=THERE))
    assert not are_doubtful([first, second]) and not are_doubtful([rank(0), rank(1)])
    assert are_doubtful([rank(0, at("gpu-1")), rank(1, at("10.0.0.1", network=THERE))])
    assert are_doubtful([rank(0, at("w-0")), rank(1, at("localhost", network=THERE))])
