"""A fleet that two watchers share: the real Prometheus adds up, and names the watcher that is late or gone."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.integration.conftest import SshServer, Surroundings, wait_until
from tests.integration.scripts import Process
from tests.integration.test_prometheus import PATIENCE, Monitoring, start, train
from tests.loopback.vast import VastApi


@pytest.fixture
def monitoring(surroundings: Surroundings) -> Iterator[Monitoring]:
    found = Monitoring(surroundings.folder, watchers=2)
    yield found
    found.close()


def watch(number: int, monitoring: Monitoring, surroundings: Surroundings, *members: str) -> Process:
    """Start a watcher with a state folder of its own, as on another machine."""
    own = surroundings.folder / f"watcher {number}"
    own.mkdir()
    path = str(monitoring.folders[number] / "fleet.prom")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINING_MONITOR_STATE_DIR", str(own / "state"))
        return start(*members, "--textfile", path, "--interval", "2", "--no-history", folder=own)


def test_two_watchers_are_added_up_and_the_one_that_is_late_or_gone_is_named(
    vast: VastApi, sshd: SshServer, surroundings: Surroundings, monitoring: Monitoring
) -> None:
    for instance, price in ((30007001, 0.5), (30007002, 2.0)):
        vast.add_instance(instance, actual_status="loading", dph_total=price)
    folder, ask = surroundings.folder, monitoring.values
    logs = [folder / "own.log", folder / "both.log"]
    own, both = f"local#{logs[0]}", f"{sshd.address}#{logs[1]}"  # each watcher has a machine of its own
    names = [f"127.0.0.1:{each.port}" for each in monitoring.exporters]

    def current() -> dict[str, float]:
        found = monitoring.samples("training_monitor:watcher_is_current")
        return {labels["instance"]: value for labels, value in found}

    def sums() -> list[list[float]]:
        """Members that run, all members, and dollars an hour."""
        running = ask('training_monitor:members_by_state{state="running"}')
        return [running, ask("sum(training_monitor:members_by_level)"), ask("training_monitor:dollars_per_hour")]

    def firing(alert: str) -> list[str]:
        found = monitoring.samples(f'ALERTS{{alertname="{alert}", alertstate="firing"}}')
        return [labels["instance"] for labels, _ in found]

    whole, unknown = [[3.0], [5.0], [2.5]], [list[float]()] * 3
    started = [train(log, 0) for log in logs]
    with ExitStack() as stack:
        first = watch(0, monitoring, surroundings, own, both, "vast://30007001")
        second = watch(1, monitoring, surroundings, own, both, "vast://30007001", "vast://30007002")
        for process in (*started, first, second):
            stack.enter_context(process)
            stack.callback(process.kill)
        assert wait_until(lambda: sums() == whole, PATIENCE), (sums(), current())
        assert ask("count(training_monitor_member_info)") == [7.0]  # two members are watched by both
        assert current() == dict.fromkeys(names, 1.0) and not firing("TrainingMonitorGone")

        first.send_signal(signal.SIGSTOP)
        assert wait_until(lambda: current() == {names[0]: 0.0, names[1]: 1.0}, PATIENCE), current()
        assert wait_until(lambda: firing("TrainingMonitorStale") == [names[0]], PATIENCE)
        assert wait_until(lambda: sums() == unknown, PATIENCE), sums()
        assert ask("count(training_monitor_member_info)") == [7.0]
        first.send_signal(signal.SIGCONT)
        assert wait_until(lambda: sums() == whole, PATIENCE), (sums(), current())
        assert wait_until(lambda: not firing("TrainingMonitorStale"), PATIENCE)

        second.kill()  # with its machine
        monitoring.exporters[1].stop()
        assert wait_until(lambda: firing("TrainingMonitorGone") == [names[1]], PATIENCE)
        assert wait_until(lambda: current() == {names[0]: 1.0, names[1]: 0.0}, PATIENCE), current()
        assert wait_until(lambda: sums() == unknown, PATIENCE), sums()
        assert ask("count(training_monitor_member_info)") == [3.0]
        assert not firing("TrainingMonitorStale")
