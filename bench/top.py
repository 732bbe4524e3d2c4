"""What `training-monitor top` costs: one refresh of many runs and processes, and the processor over a while.

    python3 bench/top.py [--runs 50] [--processes 1000] [--rounds 20] [--seconds 30]

RUNS progress files of two kilobytes (all rewritten before each round, as runs do that go on), and PROCESSES sleeping
processes beside those that are there. In turn, ROUNDS times; printed are the median, the fastest (which other load of
this machine moves least) and their ratios of
1. the raw reads: the same files and /proc/PID/stat opened, read and closed in Python, nothing parsed;
2. one look of LocalRuns; 3. judging it; 4. drawing a frame of 200x60; and the three together, the whole refresh;
5. psutil reading the same of each process, if installed; 6. ps.
Then everything is refreshed every two seconds for SECONDS: the share of one core.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.table import Row, in_turn
from training_monitor.runs.collector import RunCollector
from training_monitor.runs.files import list_run_files, run_files, write_atomically
from training_monitor.runs.local_runs import LocalRuns
from training_monitor.runs.rows import judge_look
from training_monitor.runs.values import FolderLook, Limits, RunsSnapshot
from training_monitor.targets.procfs import identify
from training_monitor.ui.kit.page import render_screen
from training_monitor.ui.top.app import APP
from training_monitor.ui.top.view import TopView

INTERVAL = 2.0
WIDTH, HEIGHT = 200, 60
PARTS = ("look", "judge", "draw")
KINDS: tuple[Callable[[list[float]], float], ...] = (statistics.median, min)


def write_run(folder: str, number: int, step: int, pid: int) -> None:
    """A progress file as a run writes it, of about two kilobytes."""
    me = identify(pid)
    span = {"rate": 4.1, "elapsed": 10.2, "remaining": 214.0, "total": 224.2, "durations": [244.0] * 8}
    document = {
        "format": 1,
        "status": "RUNNING",
        "start_time": time.time() - 60,
        "updated_at": time.time(),
        "metadata": {
            "pid": pid,
            "start_ticks": me.start_ticks,
            "hostname": me.hostname,
            "boot_id": me.boot_id,
            "pid_namespace": me.pid_namespace,
            "script_name": "train.py",
        },
        "state": {"phase": "training", "epoch": 2, "total_epochs": 10, "batch": step, "total_batches": 1000},
        "estimates": {"run": span, "epoch": span, "training": span, "validation": span, "dataset_ratio": 0.1},
        "metrics": {"loss": 1.0 / (step + 1), "learning_rate": 3e-4},
        "history": {"loss": {"steps": list(range(64)), "values": [1.0 / (1 + at) for at in range(64)]}},
        "variables": {"learning_rate": {"value": 3e-4, "type": "float", "edit": None, "error": None}},
        "resources": {"cpu_percent": 99.0, "rss_bytes": 2**30, "threads": 12, "gpu_mib": None},
    }
    write_atomically(run_files(os.path.join(folder, f"run-{number}")).progress_path, json.dumps(document))


def read_raw(folder: str) -> int:
    """Open, read and close what a look reads, and nothing else."""
    paths = [files.progress_path for files in list_run_files(folder)]
    paths += [f"/proc/{name}/stat" for name in os.listdir("/proc") if name.isdigit()]
    size = 0
    for path in paths:
        try:
            file = os.open(path, os.O_RDONLY)
        except OSError:
            continue
        with suppress(ProcessLookupError):  # it has ended since
            size += len(os.read(file, 65536))
        os.close(file)
    return size


def psutil_reader() -> Callable[[], object] | None:
    try:
        psutil = importlib.import_module("psutil")
    except ImportError:
        return None
    fields = ["pid", "ppid", "name", "status", "create_time", "cpu_times", "memory_info", "num_threads"]
    return lambda: [each.info for each in psutil.process_iter(fields)]


def run_ps() -> object:
    return subprocess.run(
        ["ps", "-eo", "pid,ppid,stat,rss,time,nlwp,comm"], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ).stdout


def milliseconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1000


class Refresh:
    """A refresh as the screen makes it, in parts that can be measured one by one."""

    def __init__(self, folder: str) -> None:
        self._source = LocalRuns(folder)
        self.last: FolderLook = self._source.look(frozenset())
        self._before = self.last
        self._snapshot: RunsSnapshot | None = None

    def look(self) -> None:
        self._before, self.last = self.last, self._source.look(frozenset())

    def judge(self) -> None:
        rows, usage = judge_look(self.last, self._before, Limits())
        self._snapshot = RunsSnapshot(rows, usage, self.last.timestamp, "bench")

    def draw(self) -> None:
        assert self._snapshot
        draw(self._snapshot)


def draw(snapshot: RunsSnapshot) -> None:
    assert len(render_screen(APP, snapshot, TopView(), WIDTH, HEIGHT).lines) == HEIGHT


def measure_refresh(folder: str, runs: int, rounds: int, pids: list[int]) -> None:
    refresh = Refresh(folder)
    calls: dict[str, Callable[[], object] | None] = {
        "raw reads": lambda: read_raw(folder),
        "look": refresh.look,
        "judge": refresh.judge,
        "draw": refresh.draw,
        "psutil": psutil_reader(),
        "ps": run_ps,
    }
    taken: dict[str, list[float]] = {name: [] for name in calls}
    assert refresh.last.machine and len(refresh.last.runs) == runs
    for step in range(rounds):
        for number in range(runs):
            write_run(folder, number, step, pids[number])
        for name, call in calls.items():
            if call:
                taken[name].append(milliseconds(call))
    taken["refresh"] = [sum(parts) for parts in zip(*(taken[name] for name in PARTS))]
    print(f"{runs} runs, {len(refresh.last.machine.processes)} processes")
    for name, times in taken.items():
        shown = [
            f"{kind(times):8.1f} ms  ratio {kind(times) / kind(taken['raw reads']):5.2f}" for kind in KINDS if times
        ]
        share = statistics.median(times) / statistics.median(taken["refresh"]) if name in PARTS else None
        part = "" if share is None else f"   {share:.0%} of a refresh"
        print(f"{name:10}{'  fastest'.join(shown) or 'not installed'}{part}")


def rows() -> Iterator[Row]:
    """Measure what `python3 -m bench` shows of a refresh: of 50 runs and 1,000 processes, beside the raw reads."""
    with sleeping(1000) as pids, tempfile.TemporaryDirectory(prefix="tm") as name:
        begin_runs(name, pids[:50])
        refresh = Refresh(name)

        def write() -> None:
            for number in range(50):
                write_run(name, number, int(time.time()), pids[number])

        def whole() -> None:
            refresh.look()
            refresh.judge()
            refresh.draw()

        taken = in_turn({"write": write, "raw": partial(read_raw, name), "ours": whole}, 30)
    yield Row(
        "`top`, one refresh",
        1e3 * taken["ours"],
        "ms",
        1e3 * taken["raw"],
        "read the same files without parsing them",
        "1.8x",
    )


@contextmanager
def sleeping(count: int) -> Iterator[list[int]]:
    """Processes that sleep until the end of the block: their ids."""
    sleepers = [subprocess.Popen(["sleep", "3600"]) for _ in range(count)]
    try:
        yield [each.pid for each in sleepers]
    finally:
        for each in sleepers:
            each.kill()
        for each in sleepers:
            each.wait()


def begin_runs(folder: str, pids: list[int]) -> None:
    for at, pid in enumerate(pids):
        os.mkdir(os.path.join(folder, f"run-{at}"))
        write_run(folder, at, 0, pid)


def growth() -> Iterator[str]:
    """Measure how the cost of a look grows with the runs in a folder."""
    yield "| runs | time if no file has changed | time if all files are new |"
    yield "| ---: | ---: | ---: |"
    for count in (10, 100, 1000, 10_000):
        with tempfile.TemporaryDirectory(prefix="tm") as name:
            pids = [os.getpid()] * count
            begin_runs(name, pids)
            look = partial(LocalRuns(name).look, frozenset())
            first = milliseconds(look)
            again = statistics.median(milliseconds(look) for _ in range(3))
        yield f"| {count:,} | {again:.1f} ms | {first:.1f} ms |"


def measure_processor(folder: str, length: float) -> None:
    collector = RunCollector(LocalRuns(folder), where="bench")
    draw(collector.look_once())
    before, end, count = used(), time.monotonic() + length, 0
    while time.monotonic() < end:
        draw(collector.look_once())
        count += 1
        time.sleep(INTERVAL)
    print(f"{count} refreshes, one every {INTERVAL:g} s: {(used() - before) / length:.1%} of one core")


def used() -> float:
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--processes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=30.0)
    arguments = parser.parse_args()
    with sleeping(max(arguments.processes, arguments.runs)) as pids, tempfile.TemporaryDirectory(prefix="tm") as name:
        begin_runs(name, pids[: arguments.runs])
        measure_refresh(name, arguments.runs, arguments.rounds, pids)
        measure_processor(name, arguments.seconds)
