"""CPU time of the scripts that run on targets, each against a reference measured in the same run.

    python3 bench/scripts.py [--rounds 9] [--checkpoints 20000]

Everything runs on this machine. Printed are the medians of the CPU seconds of all that a row starts, the ratio to the
reference, the most processes at once (sampled), and the goal.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.table import Row, as_table
from training_monitor.checkpoints.checkpoints import get_checkpoint_listing
from training_monitor.core.models import Question
from training_monitor.jobs.attempts import MOST_REMOVED
from training_monitor.jobs.jobs import find_jobs_named, look_at_job, start_job
from training_monitor.jobs.process_jobs import PREFIX, process_question, start_process_job
from training_monitor.targets.asking import Site
from training_monitor.verdict.restart import RestartPolicy

SITE = Site.of("local")
KEPT = RestartPolicy().keep_attempts
SCAN = "cat /proc/[0-9]*/stat; grep -lsF NOBODY=1 /proc/[0-9]*/environ; ls -ln /proc/[0-9]*/fd/1"


def used() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def count_descendants(pid: int) -> int:
    """The processes below one that are there now."""
    try:
        found = [int(each) for task in os.listdir(f"/proc/{pid}/task") for each in children_of(pid, task)]
    except OSError:
        return 0
    return len(found) + sum(map(count_descendants, found))


def children_of(pid: int, task: str) -> list[str]:
    return Path(f"/proc/{pid}/task/{task}/children").read_text().split()


def watch(most: list[int], done: threading.Event) -> None:
    while not done.is_set():
        most[0] = max(most[0], count_descendants(os.getpid()))
        time.sleep(0.0005)


def measure(act: Callable[[], object], rounds: int) -> tuple[float, int]:
    """The median CPU time of the processes that `act` starts, and the most of them at once."""
    times = []
    for _ in range(rounds):
        before = used()
        act()
        times.append(used() - before)
    most, done = [0], threading.Event()
    watcher = threading.Thread(target=watch, args=(most, done))
    watcher.start()
    act()
    done.set()
    watcher.join()
    return statistics.median(times), most[0]


def row_of(name: str, own: tuple[float, int], reference: float, beside: str, goal: str) -> Row:
    seconds, most = own
    return Row(f"{name} ({most} processes at once)", seconds * 1000, "ms", reference * 1000, beside, goal)


def run_sh(script: str) -> None:
    subprocess.run(["sh", "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def restarts(rounds: int, folder: Path) -> Iterator[Row]:
    """Measure what a supervisor asks of a target between the end of an attempt and its successor."""
    scan, _ = measure(partial(run_sh, SCAN), rounds)
    nothing = Question("nothing", ":", lambda reply: None)
    beside = "three scans of `/proc`"
    yield row_of("two empty queries", measure(partial(SITE.ask, nothing, nothing), rounds), scan, beside, "")
    for attempts, keep in ((2, KEPT), (20, KEPT), (200, KEPT), (20, 20)):
        os.environ["TRAINING_MONITOR_JOBS_DIR"] = str(folder / f"{keep} of {attempts}")
        start_process_job("local", "true", "run-attempt-1")
        while not look_at_job("local", "process:run-attempt-1").status.is_terminal:
            time.sleep(0.05)
        for number in range(2, attempts + 1):
            first = folder / f"{keep} of {attempts}" / "run-attempt-1"
            shutil.copytree(first, first.with_name(f"run-attempt-{number}"))

        def restart(attempts: int = attempts, keep: int = keep) -> None:
            find_jobs_named(SITE, "run", prefix=PREFIX)
            start_job(SITE, f"process:run-attempt-{attempts}", {"command": "true"}, None, keep_attempts=keep)

        for _ in range(attempts // MOST_REMOVED + 1):
            restart()  # each removes as many as that of what is not kept
        goal = "150 ms, at most 5 more processes" if attempts == 20 else "the same time as after 20 attempts"
        name = f"a restart after {attempts} attempts, with `--keep-attempts {keep}`"
        yield row_of(name, measure(restart, rounds), scan, beside, goal)


def looks(rounds: int) -> Iterator[Row]:
    raw, _ = measure(partial(run_sh, "cat /proc/[0-9]*/stat"), rounds)
    with subprocess.Popen(["sh", "-c", "sleep 300 & sleep 300"], start_new_session=True) as process:
        time.sleep(0.1)
        look = partial(SITE.ask_one, process_question(None, None, pid=process.pid))
        yield row_of("one query about a process", measure(look, rounds), raw, "`cat /proc/[0-9]*/stat`", "25 ms")
        os.killpg(process.pid, 9)


def listings(rounds: int, count: int, folder: Path) -> Iterator[Row]:
    for number in range(count):
        checkpoint = folder / "checkpoints" / f"checkpoint-{number}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    find, _ = measure(lambda: run_sh(f"find '{folder}/checkpoints' -type f"), rounds)
    listed = partial(get_checkpoint_listing, str(folder / "checkpoints"))
    own, found = measure(listed, min(rounds, 3)), listed()
    yield row_of(f"list {count:,} checkpoints: {found.count if found else 0:,} found", own, find, "`find`", "1,500 ms")


def rows(rounds: int = 9, checkpoints: int = 20_000) -> Iterator[Row]:
    """Measure what `python3 -m bench` shows of the scripts."""
    with tempfile.TemporaryDirectory() as name:
        before = os.environ.get("TRAINING_MONITOR_JOBS_DIR")
        yield from restarts(rounds, Path(name))
        os.environ.pop("TRAINING_MONITOR_JOBS_DIR")
        if before is not None:
            os.environ["TRAINING_MONITOR_JOBS_DIR"] = before
        yield from looks(rounds)
        yield from listings(rounds, checkpoints, Path(name))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--checkpoints", type=int, default=20_000)
    args = parser.parse_args()
    print("\n".join(as_table(rows(args.rounds, args.checkpoints))))
