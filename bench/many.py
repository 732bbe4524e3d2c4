"""How many programs run at a time for many hosts, and how long that takes.

    python3 bench/many.py [--hosts 256] [--seconds 0.5]

An `ssh` on PATH that waits for SECONDS, as one to a far host does, runs its script on this machine, and counts how many
of it run at a time. In one run: it is started for all hosts at once, and by `xargs -P 32`, with a script that does
nothing; all hosts are asked one question, by one caller and by four; the script of a fleet's look is run for all hosts
by `xargs -P 32`; and a fleet of all hosts is looked at. First of all, the own CPU time for a program that waits 50 ms
is measured in 16 threads, beside `subprocess.run`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.table import Row, as_table
from training_monitor.core.models import Question
from training_monitor.core.results import CommandResult
from training_monitor.fleet.config import FleetConfig
from training_monitor.fleet.fleet import FleetMonitor
from training_monitor.fleet.values import MemberSpec
from training_monitor.targets.asking import ask_many, side_by_side
from training_monitor.targets.transport import LocalTransport, Transport

PROGRAM = """#!/bin/sh
echo 1 >>"$COUNTS"
case "$1" in -G) ;; *) sleep "$SECONDS_TO_HOST"; for script; do :; done; sh -c "$script" ;; esac
status=$?
echo -1 >>"$COUNTS"
exit $status
"""
MOST = 32


@contextmanager
def fake_ssh(seconds: float) -> Iterator[Path]:
    """Put the program on PATH, and yield the file of its counts."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "ssh").write_text(PROGRAM)
        (folder / "ssh").chmod(0o755)
        (folder / "training.log").write_text("step 1/100 loss 2.0\n")
        os.environ.update(
            PATH=f"{folder}{os.pathsep}{os.environ['PATH']}",
            COUNTS=str(folder / "counts"),
            SECONDS_TO_HOST=str(seconds),
            XDG_RUNTIME_DIR=name,
            TRAINING_MONITOR_STATE_DIR=f"{name}/state",
        )
        yield folder / "counts"
    os.environ.clear()
    os.environ.update(before)


def measure(call: Callable[[], object], counts: Path) -> tuple[float, int]:
    """Return the seconds of a call, and the most programs that ran at the same time."""
    counts.write_text("")
    started = time.perf_counter()
    call()
    taken = time.perf_counter() - started
    return taken, max(accumulate(map(int, counts.read_text().split())))


def start_at_once(hosts: list[str]) -> None:
    for process in [subprocess.Popen(["ssh", host, "true"]) for host in hosts]:
        process.wait()


def start_by_xargs(hosts: list[str], script: str = "true") -> None:
    argv = ["xargs", f"-P{MOST}", "-I{}", "ssh", "{}", script]
    subprocess.run(argv, input="\n".join(hosts), text=True, check=True, stdout=subprocess.DEVNULL)


class Recorder(LocalTransport):
    """Keeps the last script."""

    script = ""

    def run(self, argv: Sequence[str], *, timeout: float, input: str | None = None, **more: Any) -> CommandResult:
        self.script = input or ""
        return super().run(argv, timeout=timeout, input=input)


def own_time(run: Callable[[], object], programs: int = 320, at_once: int = 16) -> float:
    """Return the milliseconds of CPU time of this process for each program that it runs."""

    def work() -> None:
        for _ in range(programs // at_once):
            run()

    run()
    begun, workers = time.process_time(), [threading.Thread(target=work) for _ in range(at_once)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    return 1e3 * (time.process_time() - begun) / programs


def look(targets: list[str], log: str, transport: Transport | None = None) -> None:
    specs, config = [MemberSpec(each) for each in targets], FleetConfig(log_paths=(log,))
    fleet = FleetMonitor(specs, config=config, transport=transport)
    rows = fleet.update_all_metrics()
    fleet.close()
    assert all(row.step == 1 for row in rows.values())


def rows(hosts: int = 256, seconds: float = 0.5) -> Iterator[Row]:
    """Measure what `python3 -m bench` shows of many hosts."""
    shell, script = ["sh", "-s"], f"sleep 0.05; echo {'x' * 5000}"
    bare = own_time(lambda: subprocess.run(shell, input=script, capture_output=True, text=True, timeout=60, check=True))
    taken = own_time(lambda: LocalTransport().run(shell, timeout=60, input=script))
    yield Row("own CPU time for a program, 16 at a time", taken, "ms", bare, "`subprocess.run`", "1.5x")
    names = [f"host{number}" for number in range(hosts)]
    targets = [f"ssh://{name}" for name in names]
    question = Question("nothing", "true", lambda reply: reply)
    with fake_ssh(seconds) as counts:
        many = partial(ask_many, targets, question)
        ways: dict[str, Callable[[], object]] = {
            f"{hosts} hosts, one question": many,
            f"{hosts} hosts, one question, four callers": partial(side_by_side, [many] * 4),
        }
        bare, at_once = measure(partial(start_at_once, names), counts)
        by_xargs, by_xargs_at_once = measure(partial(start_by_xargs, names), counts)
        yield Row("`ssh HOST true` by `xargs -P 32`", by_xargs, "s", bare, "all at once", "")
        yield Row("the same, programs at once", by_xargs_at_once, "programs", at_once, "all at once", "")
        for what, call in ways.items():
            taken, most = measure(call, counts)
            yield Row(what, taken, "s", by_xargs, "`xargs -P 32`", "")
            yield Row(f"{what}: programs at once", most, "programs", at_once, "all at once", f"{MOST}")
        log, recorder, path = str(counts.parent / "training.log"), Recorder(), counts.parent / "look.sh"
        look(targets[:1], log, recorder)
        nonce = re.findall(r"^_nonce=(\w+)", recorder.script, re.MULTILINE)[0]  # by which a script ends its processes
        path.write_text(recorder.script)
        command = f"sed 's/{nonce}/{nonce}{{}}/g' {path} | sh -s >&2"
        by_xargs, _ = measure(partial(start_by_xargs, names, command), counts)
        taken, most = measure(partial(look, targets, log), counts)
        yield Row(f"{hosts} hosts, a look of a fleet", taken, "s", by_xargs, "its script by `xargs -P 32`", "")
        yield Row("the same, programs at once", most, "programs", at_once, "all at once", f"{MOST}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=0.5, help="of a connection to a host")
    arguments = parser.parse_args()
    print("\n".join(as_table(rows(arguments.hosts, arguments.seconds))))
