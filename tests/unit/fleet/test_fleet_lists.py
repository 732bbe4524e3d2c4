"""A target that stands for several, such as `docker://`: each is a member of the fleet from when it appears."""

from __future__ import annotations

import pytest

from tests.fakes import FakeClock, FakeTransport
from tests.unit.fleet.fleet_world import Machine
from training_monitor.core.errors import TargetUnreachable
from training_monitor.core.results import CommandResult
from training_monitor.fleet.fleet import FleetMonitor
from training_monitor.fleet.values import MemberSpec


class Containers(FakeTransport):
    """A Docker with these containers, which all train."""

    def __init__(self, *names: str) -> None:
        super().__init__(Machine().answer)
        self.names = [*names]
        self.is_silent = False
        self.register(["docker", "ps"], self._list)
        self.register(["docker", "exec"], self._run)
        self.register(["docker", "inspect"], lambda words, input: CommandResult(words, 1, "", "no such object", 0.0))

    def _list(self, words: tuple[str, ...], input: str | None) -> CommandResult:
        if self.is_silent:
            raise TargetUnreachable("Cannot connect to the daemon")
        return CommandResult(words, 0, "".join(f"{name}\n" for name in self.names), "", 0.0)

    def _run(self, words: tuple[str, ...], input: str | None) -> CommandResult:
        if words[3] not in self.names:
            return CommandResult(words, 1, "", f"No such container: {words[3]}", 0.0)
        return self.answer_all(words[4:], input)


@pytest.fixture
def docker() -> Containers:
    return Containers("a", "b")


@pytest.fixture
def monitor(docker: Containers) -> FleetMonitor:
    return FleetMonitor([MemberSpec("docker://", groups=("all",))], transport=docker, clock=FakeClock())


def update(monitor: FleetMonitor) -> list[str]:
    monitor.clock.sleep(100)
    return [*monitor.update_all_metrics()]


def test_all_on_a_list_are_members_at_once_and_what_begins_later_too(docker: Containers, monitor: FleetMonitor) -> None:
    assert update(monitor) == ["docker://a", "docker://b"]
    assert monitor.snapshot().groups == ("all",) and not monitor.snapshot().error
    docker.names.append("c")
    assert update(monitor) == ["docker://a", "docker://b", "docker://c"]


def test_what_has_left_the_list_is_dropped_once_it_cannot_be_asked(docker: Containers, monitor: FleetMonitor) -> None:
    update(monitor)
    docker.names.remove("a")
    update(monitor)
    assert update(monitor) == ["docker://b"]


def test_a_list_that_cannot_be_asked_for_takes_no_member_away(docker: Containers, monitor: FleetMonitor) -> None:
    update(monitor)
    docker.is_silent = True
    assert update(monitor) == ["docker://a", "docker://b"]
    assert "Cannot connect to the daemon" in str(monitor.snapshot().error)
    docker.is_silent = False
    update(monitor)
    assert monitor.snapshot().error is None
