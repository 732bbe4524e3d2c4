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
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from training_monitor.checkpoints.checkpoints import get_checkpoint_listing  # noqa: E402
from training_monitor.jobs.jobs import find_jobs_named, look_at_job, start_job  # noqa: E402
from training_monitor.jobs.process_jobs import process_question, start_process_job  # noqa: E402
from training_monitor.targets.asking import Site  # noqa: E402

SITE = Site.of("local")
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


def show(name: str, own: tuple[float, int], reference: float, goal: str) -> None:
    seconds, most = own
    ratio = f"{seconds / reference:6.1f}x of {reference * 1000:.1f} ms"
    print(f"{name:<44}{seconds * 1000:9.1f} ms {ratio:>22}   {most:>4} at once   goal {goal}")


def run_sh(script: str) -> None:
    subprocess.run(["sh", "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def measure_restarts(rounds: int, folder: Path) -> None:
    """What a supervisor asks of a target between the end of an attempt and its successor."""
    scan, _ = measure(partial(run_sh, SCAN), rounds)
    for attempts in (2, 20, 200):
        os.environ["TRAINING_MONITOR_JOBS_DIR"] = str(folder / f"jobs {attempts}")
        start_process_job("local", "true", "run-attempt-1")
        while not look_at_job("local", "process:run-attempt-1").status.is_terminal:
            time.sleep(0.05)
        for number in range(2, attempts + 1):
            first = folder / f"jobs {attempts}" / "run-attempt-1"
            shutil.copytree(first, first.with_name(f"run-attempt-{number}"))

        def restart(attempts: int = attempts) -> None:
            find_jobs_named(SITE, "run", process=True)
            start_job(SITE, f"process:run-attempt-{attempts}", {"command": "true"}, None, keep_attempts=attempts)

        goal = "150 ms, 5 at once" if attempts == 20 else "as for 20"
        show(f"restart after {attempts} former attempts", measure(restart, rounds), scan, goal)


def measure_look(rounds: int) -> None:
    raw, _ = measure(partial(run_sh, "cat /proc/[0-9]*/stat"), rounds)
    with subprocess.Popen(["sh", "-c", "sleep 300 & sleep 300"], start_new_session=True) as process:
        time.sleep(0.1)
        look = partial(SITE.ask_one, process_question(None, None, pid=process.pid))
        show("look at a process", measure(look, rounds), raw, "25 ms")
        os.killpg(process.pid, 9)


def measure_checkpoints(rounds: int, count: int, folder: Path) -> None:
    for number in range(count):
        checkpoint = folder / "checkpoints" / f"checkpoint-{number}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "trainer_state.json").write_text("{}")
    find, _ = measure(lambda: run_sh(f"find '{folder}/checkpoints' -type f"), rounds)
    listed = partial(get_checkpoint_listing, str(folder / "checkpoints"))
    show(f"list {count:,} checkpoints", measure(listed, min(rounds, 3)), find, "1500 ms")
    found = listed()
    print(f"{'':<44}{found.count if found else 0:,} listed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--checkpoints", type=int, default=20_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        measure_restarts(args.rounds, Path(name))
        measure_look(args.rounds)
        measure_checkpoints(args.rounds, args.checkpoints, Path(name))
