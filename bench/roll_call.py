"""The roll call over a training of 64 processes on one host: how long it takes, and the longest pause of any process.

    python3 bench/roll_call.py [--processes 64] [--rounds 5]

Real processes that wait for one of them at a barrier, and the real py-spy. In turn with the roll call, a plain look at
the same training (`check_training`), and as long a quiet period. A thread of each process measures the largest gap
between two turns of its own, every five milliseconds. A pause counts net of the longest one in the quiet period.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.table import Row, as_table, in_turn
from tests.integration.roll_call_training import Plan, Training, running
from training_monitor.core.store import Store
from training_monitor.look.check import check_training
from training_monitor.why.explain import explain_training

ODD = 41


def rows(processes: int = 64, rounds: int = 5) -> Iterator[Row]:
    """Measure what `python3 -m bench` shows of the roll call."""
    py_spy = shutil.which("py-spy", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if py_spy is None:
        raise FileNotFoundError("py-spy is not installed")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        training = Training(Plan(processes, {ODD % processes: "pipe"}, measures_gaps=True), folder / "run")
        with running(training):
            training.wait_until_ready()
            yield from measure(training, py_spy, Store(str(folder / "state")), rounds)


def measure(training: Training, py_spy: str, store: Store, rounds: int) -> Iterator[Row]:
    """Take the roll call of a training that runs."""
    pid, world, seconds = training.members[0].pid, training.plan.world, 0.0
    pauses, quiet = list[float](), list[float]()

    def take_roll_call() -> None:
        nonlocal seconds
        report = explain_training("local", pid, py_spy=py_spy, store=store)
        assert [each["rank"] for each in report["culprits"]] == [ODD % world], report["explanation"]
        assert sum(bool(each["stacks"]) for each in report["ranks"]) == world
        seconds = report["seconds"]

    calls: dict[str, Callable[[], object]] = {
        "begin": lambda: begin_gaps(training),
        "ours": take_roll_call,
        "end": lambda: pauses.append(longest_gap(training)),
        "look": lambda: check_training("local", pid, store=store),
        "begin again": lambda: begin_gaps(training),
        "quiet": lambda: time.sleep(seconds),
        "end again": lambda: quiet.append(longest_gap(training)),
    }
    taken = in_turn(calls, rounds)
    yield Row(
        f"roll call of {world} processes",
        taken["ours"],
        "s",
        taken["look"],
        "`check_training` of the same training",
        "20 s",
    )
    net = 1000 * max(0.0, max(pauses) - max(quiet))
    yield Row(
        "longest time that the roll call paused a process",
        net,
        "ms",
        None,
        f"longest pause without a roll call: {1000 * max(quiet):.0f} ms, already subtracted",
        "100 ms",
    )


def begin_gaps(training: Training) -> None:
    """Have all processes measure from now on."""
    with (training.folder / "gaps").open("r+b") as file:
        file.write(bytes(8 * training.plan.world))


def longest_gap(training: Training) -> float:
    """The longest pause of any process since, in seconds."""
    time.sleep(0.1)  # a pause counts when it is over
    return max(memoryview((training.folder / "gaps").read_bytes()).cast("d"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print("\n".join(as_table(rows(arguments.processes, arguments.rounds))))
