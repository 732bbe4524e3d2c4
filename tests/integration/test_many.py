"""More targets than are asked at once, in every way: at most 32 programs run at a time, each by its real process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from itertools import accumulate

import pytest

from tests.integration.conftest import Surroundings, plain, wait_until
from training_monitor import check_training, get_training_health
from training_monitor.core.engine import MOST_THREADS
from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.values import WatchedJob
from training_monitor.fleet import FleetConfig, FleetMonitor, MemberSpec
from training_monitor.look.meant import MeantTraining
from training_monitor.targets.asking import Site, ask_many
from training_monitor.targets.target import parse_target
from training_monitor.targets.transport import MOST_PROGRAMS
from training_monitor.why.explain import call_roll

HOSTS = 3 * MOST_PROGRAMS
NAMES = [f"host{number}" for number in range(HOSTS)]
# Notes that it begins and ends; lists its names, or has no answer.
PROGRAM = """#!/bin/sh
echo 1 >>"{folder}/log"
case "$*" in
ps*) cat "{folder}/names" ;;
-G*) ;;
*) sleep {seconds} && false ;;
esac
status=$?
echo -1 >>"{folder}/log"
exit $status
"""


class Programs:
    """A kubectl, an ssh and a docker that do nothing for a while, and a count of those that run."""

    def __init__(self, surroundings: Surroundings, seconds: float) -> None:
        self.folder = surroundings.folder
        (self.folder / "names").write_text("".join(f"{name}\n" for name in NAMES))
        for name in ("kubectl", "ssh", "docker"):
            (surroundings.tools / name).write_text(PROGRAM.format(folder=self.folder, seconds=seconds))
            (surroundings.tools / name).chmod(0o755)

    def begun(self) -> int:
        return self._log().count(1)

    def most(self) -> int:
        """Return how many ran at the same time."""
        return max(accumulate(self._log()))

    def _log(self) -> list[int]:
        path = self.folder / "log"
        return [int(line) for line in path.read_text().split()] if path.exists() else []


def watch(*targets: str) -> None:
    """Look at a fleet with as many threads as it may have."""
    fleet = FleetMonitor([MemberSpec(target) for target in targets], config=FleetConfig(interval=1.0))
    fleet.update_all_metrics()
    fleet.close()


def ask_from_three_threads() -> None:
    part = partial(ask_many, [f"ssh://{name}" for name in NAMES], plain("true"))
    threads = [threading.Thread(target=part) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def explain() -> None:
    also = [parse_target(f"ssh://{name}") for name in NAMES]
    meant = MeantTraining(WatchedJob(pid=os.getpid()), "this")
    with pytest.raises(TrainingMonitorError):
        call_roll(Site.of("ssh://head"), meant, also=also, timeout=120)


WAYS: dict[str, tuple[Callable[[], object], int]] = {
    "fleet over ssh": (lambda: watch(*(f"ssh://{name}" for name in NAMES)), MOST_THREADS),
    "fleet of pods": (lambda: watch(*NAMES), MOST_PROGRAMS),
    "fleet of containers": (lambda: watch("docker://"), MOST_PROGRAMS),
    "three times ask_many": (ask_from_three_threads, MOST_PROGRAMS),
    "roll call": (explain, MOST_PROGRAMS),
    "health": (lambda: get_training_health("host0", None, NAMES), MOST_PROGRAMS),
    "check of a list": (lambda: check_training("docker://"), MOST_PROGRAMS),
}


@pytest.mark.parametrize("way", WAYS)
def test_at_most_32_programs_run_at_a_time(surroundings: Surroundings, way: str) -> None:
    programs, (call, most) = Programs(surroundings, 0.2), WAYS[way]
    call()
    assert programs.begun() >= HOSTS
    assert programs.most() <= most


@pytest.mark.parametrize(
    "words", [("fleet", "docker://", "--once"), ("check", "docker://")], ids=lambda words: words[0]
)
def test_an_interrupt_ends_a_command_whose_programs_run_and_wait(
    surroundings: Surroundings, words: tuple[str, ...]
) -> None:
    programs = Programs(surroundings, 300)
    command = subprocess.Popen([sys.executable, "-m", "training_monitor", *words], stderr=subprocess.PIPE)
    assert wait_until(lambda: programs.begun() >= 10)
    command.send_signal(signal.SIGINT)
    command.communicate(timeout=20)
    assert command.returncode == -signal.SIGINT
    assert wait_until(lambda: not surroundings.processes()) and programs.begun() <= MOST_PROGRAMS
