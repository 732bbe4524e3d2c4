"""The hosts of a roll call: 32 are asked at a time, all within the bound, each once, and no other training's.

A host is this machine, by a name of its own, unless a test says that it is dead.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from tests.fakes import FakeClock
from tests.integration.conftest import MARK, Place, Surroundings
from tests.integration.roll_call_training import Machine, Plan, Training, running
from tests.loopback.kubernetes import ContainerState, KubernetesApi, Pod
from training_monitor.core.errors import CommandTimedOut, SettingsError
from training_monitor.core.results import CommandResult
from training_monitor.core.store import Store
from training_monitor.core.values import WatchedJob
from training_monitor.look.meant import find_one
from training_monitor.targets.asking import Site
from training_monitor.targets.target import parse_target
from training_monitor.targets.transport import MOST_PROGRAMS, LocalTransport
from training_monitor.why.before_end import explain_before_end
from training_monitor.why.explain import call_roll, explain_training

SECONDS = 120.0


@pytest.fixture
def in_a_pod(kube: KubernetesApi, surroundings: Surroundings) -> Pod:
    """The pod w-0 of a job whose other pods the test adds."""
    return add_pod(kube, surroundings, "w-0")


def add_pod(kube: KubernetesApi, surroundings: Surroundings, name: str, **more: Any) -> Pod:
    given = {"labels": {"training.kubeflow.org/job-name": "hung"}, "node": f"node-{name}", **more}
    return kube.add_pod(name, env={MARK: surroundings.mark}, **given)


class Ways(LocalTransport):
    """The ways to hosts: a program for a dead one waits until all dead ones are asked, and has no answer."""

    def __init__(self, *dead: str) -> None:
        self.dead, self.timeouts, self.asked = dead, list[float](), list[str]()
        self.limits = dict[str, float]()  # of the dead ones
        self._meeting = threading.Barrier(max(1, min(len(dead), MOST_PROGRAMS)))

    def run(self, argv: Sequence[str], *, timeout: float, input: str | None = None, **more: object) -> CommandResult:
        self.timeouts.append(timeout)
        self.asked.append(input or "")
        for name in set(argv) & set(self.dead):
            self.limits[name] = timeout
            self._meeting.wait(60)
            raise CommandTimedOut(f"it took longer than {timeout:g} s")
        words = ["sh", "-c", argv[-1]] if argv[0] == "ssh" else argv
        return super().run(words, timeout=timeout, input=input)


def test_32_hosts_are_asked_at_a_time_and_dead_ones_leave_time_for_others(hung: Training) -> None:
    dead = [f"gpu{number}" for number in range(2 * MOST_PROGRAMS)]
    ways, also = Ways(*dead), [f"ssh://{each}" for each in dead]
    report = explain_training("local", hung.members[0].pid, also=also, timeout=SECONDS, transport=ways)
    assert [each["rank"] for each in report["culprits"]] == [1]
    assert [each["host"] for each in report["silent"]] == also
    first, last = ([ways.limits[each] for each in group] for group in (dead[:MOST_PROGRAMS], dead[MOST_PROGRAMS:]))
    assert max(first) <= SECONDS / 2 < min(last)


def test_a_host_whose_turn_comes_after_the_bound_is_not_asked(hung: Training) -> None:
    """Finding its processes takes all the time that there was, by a clock that only this moves."""
    clock, is_heard = FakeClock(), threading.Event()

    class Slow(Ways):
        def run(self, argv: Sequence[str], **more: Any) -> CommandResult:
            found = super().run(argv, **more)
            if "gpu0" in argv:
                assert is_heard.wait(60)
                clock.sleep(SECONDS + 1)
            else:
                is_heard.set()
            return found

    site = Site.of("local", transport=Slow(), clock=clock)
    meant = find_one("local", hung.members[0].pid)
    told = call_roll(site, meant, also=[parse_target("ssh://gpu0")], timeout=SECONDS)
    assert told.seen.silent == {"ssh://gpu0": "there was no time left to query this host"}
    assert [each.rank for each in told.seen.ranks] == [0, 1, 2, 3]


@pytest.mark.parametrize(("target", "program"), [("ssh://gpu0", "gpu0"), ("vast://7", "vastai")])
def test_no_step_of_it_may_take_longer_than_all_of_it(surroundings: Surroundings, target: str, program: str) -> None:
    ways = Ways(program)
    with pytest.raises(CommandTimedOut):
        explain_training(target, timeout=5, transport=ways)
    assert ways.timeouts and max(ways.timeouts) <= 5


def test_too_little_time_is_wrong_use() -> None:
    for timeout in (0, 4.9, -1, float("nan")):
        with pytest.raises(SettingsError, match="timeout: .* at least 5 seconds"):
            explain_training("local", timeout=timeout)


def test_a_host_that_is_asked_under_two_names_has_its_ranks_once(hung: Training) -> None:
    report = explain_training(
        "local", hung.members[0].pid, also=["local", "ssh://localhost"], timeout=SECONDS, transport=Ways()
    )
    assert [(each["rank"], each["host"]) for each in report["ranks"]] == [(rank, "local") for rank in range(4)]
    assert [each["rank"] for each in report["culprits"]] == [1] and report["silent"] == []


def test_what_kubernetes_does_not_tell_is_unknown(hung: Training, kube: KubernetesApi, in_a_pod: Pod) -> None:
    def told() -> tuple[set[str | None], str]:
        report = explain_training("w-0", hung.members[0].pid, timeout=SECONDS)
        assert [each["rank"] for each in report["culprits"]] == [1]
        unknown = "".join(each.partition(": ")[0] for each in report["unknown"] if "pods" in each)
        return {each["node"] for each in report["ranks"]}, unknown

    kube.forbidden.add("list events")
    assert told() == ({"node-w-0"}, "the events of the pods could not be read")
    kube.forbidden.add("list pods")
    assert told() == ({None}, "the other pods of the training could not be listed")


def test_a_rank_on_a_pod_whose_state_is_unknown_is_not_missing(
    local: Place, surroundings: Surroundings, kube: KubernetesApi, in_a_pod: Pod
) -> None:
    other = add_pod(kube, surroundings, "w-1", phase="Unknown")
    hidden = Machine(environment={"MASTER_ADDR": "localhost"})  # it meets the others, who are not found by it
    training = Training(Plan(odd={0: "pipe"}, with_monitor=True), local.folder / "hung", [Machine(), hidden])
    with running(training):
        training.wait_until_ready()
        pid = training.members[0].pid
        unknown = explain_training("w-0", pid, timeout=SECONDS)
        other.phase, other.states["main"] = "Pending", ContainerState(waiting="ImagePullBackOff")
        waits = explain_training("w-0", pid, timeout=SECONDS)
        other.phase = "Failed"
        ended = explain_training("w-0", pid, timeout=SECONDS)
    assert unknown["silent"] == [
        {"host": "k8s://default/w-1", "why": ("Kubernetes reports its state as unknown (Unknown)")}
    ]
    assert (unknown["missing_ranks"], unknown["unseen_ranks"]) == ([], [2, 3])
    for each in (waits, ended):
        assert each["silent"] == [] and (each["missing_ranks"], each["unseen_ranks"]) == ([2, 3], [])


def test_the_last_process_can_show_its_stacks_before_their_question_ends(hung: Training) -> None:
    for timeout in (60, 120):
        ways = Ways()
        explain_training("local", hung.members[0].pid, timeout=timeout, transport=ways)
        stacks = re.compile(r" ([\d.]+) ': stacks show_stacks\n.*?seconds=(\d+)\n", re.DOTALL)
        [(limit, seconds)] = [each for text in ways.asked for each in stacks.findall(text)]
        assert 1 < int(seconds) + 6 <= float(limit) < timeout
    ways = Ways()  # late answers do not lose the others
    explain_before_end(Site.of("local", transport=ways), WatchedJob(pid=hung.members[0].pid), Store(), timeout=SECONDS)
    assert ways.timeouts and max(ways.timeouts) <= SECONDS - 1


def test_a_wrong_py_spy_is_wrong_use_before_anything_is_asked() -> None:
    ways = Ways()
    with pytest.raises(SettingsError, match="py_spy: .* the path of a py-spy executable on this machine"):
        explain_training("local", 1, also=["ssh://gpu0"], py_spy="/no/such", transport=ways)
    assert ways.timeouts == []
