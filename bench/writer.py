"""What a training step costs that tells its progress, beside a bare call and beside other writers in the same run.

    python3 bench/writer.py [--steps 200000] [--seconds 0]

One step is start_batch() and update_metrics(loss=x) of ours, and of each other what it offers for a step with a loss:
tqdm (update and set_postfix), trackio, tensorboard and wandb (offline) where they are installed, and a JSON file that
is rewritten each step. Printed are microseconds a step, the best of several rounds, and the ratio to a bare call.
Then what our background thread adds to a loop that computes, the memory of a million steps, and with --seconds 60 what
100 writers do for a minute while all their files are read all the time.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.table import Row, in_turn
from training_monitor.runs.monitor import TrainingMonitor
from training_monitor.runs.progress_file import parse_progress_file
from training_monitor.runs.values import Run

ROUNDS = 5
WRITERS = 100
Step = Callable[[float], object]
Made = tuple[Step, Callable[[], object]]


class Bare:
    def call(self, loss: float) -> None: ...


def bare(folder: Path) -> Made:
    return Bare().call, lambda: None


def begin(path: Path) -> TrainingMonitor:
    monitor = TrainingMonitor(path, handle_signals=False)
    monitor.start_epoch(1, 10**7, 1)
    return monitor


def ours(folder: Path) -> Made:
    monitor = begin(folder / "ours.json")
    start_batch, update_metrics = monitor.start_batch, monitor.update_metrics

    def step(loss: float) -> None:
        start_batch()
        update_metrics(loss=loss)

    return step, monitor.set_finished


def ours_with_a_mapping(folder: Path) -> Made:
    monitor = begin(folder / "mapping.json")
    start_batch, update_metrics = monitor.start_batch, monitor.update_metrics

    def step(loss: float) -> None:
        start_batch()
        update_metrics({"loss": loss, "lr": 1e-4, "grad_norm": 1.0})

    return step, monitor.set_finished


def json_file(folder: Path) -> Made:
    def step(loss: float) -> None:
        beside = folder / "each.json.tmp"
        beside.write_text(json.dumps({"status": "RUNNING", "metrics": {"loss": loss}, "updated_at": time.time()}))
        os.replace(beside, folder / "each.json")

    return step, lambda: None


def tqdm(folder: Path) -> Made:
    bar = importlib.import_module("tqdm").tqdm(file=(folder / "tqdm").open("w"))
    return lambda loss: bar.update(), bar.close


def tqdm_postfix(folder: Path) -> Made:
    bar = importlib.import_module("tqdm").tqdm(file=(folder / "tqdm").open("w"))
    return lambda loss: (bar.update(), bar.set_postfix(loss=loss, refresh=False)), bar.close


def trackio(folder: Path) -> Made:
    os.environ["TRACKIO_DIR"] = str(folder / "trackio")
    module = importlib.import_module("trackio")
    module.init(project="bench")
    return lambda loss: module.log({"loss": loss}), module.finish


def tensorboard(folder: Path) -> Made:
    writer = importlib.import_module("torch.utils.tensorboard").SummaryWriter(str(folder / "tensorboard"))
    return lambda loss: writer.add_scalar("loss", loss), writer.close


def wandb(folder: Path) -> Made:
    module = importlib.import_module("wandb")
    run = module.init(mode="offline", dir=str(folder), settings=module.Settings(silent=True))
    return lambda loss: run.log({"loss": loss}), run.finish


WAYS: tuple[tuple[str, Callable[[Path], Made], float], ...] = (
    ("a bare method call", bare, 1.0),
    ("training_monitor", ours, 1.0),
    ("training_monitor, a mapping", ours_with_a_mapping, 1.0),
    ("tqdm, update", tqdm, 1.0),
    ("tqdm, update and set_postfix", tqdm_postfix, 0.1),
    ("trackio", trackio, 0.01),
    ("tensorboard", tensorboard, 0.01),
    ("wandb, offline", wandb, 0.01),
    ("a JSON file each step", json_file, 0.01),
)


def seconds_a_step(step: Step, steps: int) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.perf_counter()
        _steps(step, steps)
        best = min(best, (time.perf_counter() - started) / steps)
    return best


def rows() -> Iterator[Row]:
    """Measure what `python3 -m bench` shows of a step: beside tqdm where it is installed."""
    with tempfile.TemporaryDirectory(prefix="tm", dir="/tmp") as name:
        made = {"step": ours(Path(name)), "mapping": ours_with_a_mapping(Path(name)), "bare": bare(Path(name))}
        beside = "a bare method call"
        with suppress(ImportError):
            made["bare"], beside = tqdm(Path(name)), "`update()` of tqdm"
        calls = {way: partial(_steps, step, 20_000) for way, (step, _) in made.items()}
        taken = {way: seconds / 20_000 * 1e6 for way, seconds in in_turn(calls, 15).items()}
        for _, close in made.values():
            close()
    for way, what, goal in (
        ("step", "report a step from a script", "1.28x"),
        ("mapping", "report a step and a dict of metrics from a script", "4x"),
    ):
        yield Row(what, taken[way], "us", taken["bare"], beside, goal)


def _steps(step: Step, count: int) -> None:
    for number in range(count):
        step(number * 0.5)


def measure_steps(steps: int, folder: Path) -> None:
    reference = 0.0
    for name, make, share in WAYS:
        try:
            step, close = make(folder)
        except ImportError:
            print(f"{name:<30} not installed")
            continue
        except Exception as error:  # of a program that is here but does not begin
            print(f"{name:<30} does not begin: {type(error).__name__}: {str(error)[:80]}")
            continue
        took = seconds_a_step(step, max(100, int(steps * share)))
        close()
        reference = reference or took
        print(f"{name:<30} {took * 1e6:8.3f} us a step   {took / reference:8.1f} bare calls")


def measure_background(folder: Path) -> None:
    """A loop that computes, alone and while the background thread writes four times a second, in turn."""

    def compute() -> float:
        started = time.process_time()
        for _ in range(60):
            sum(range(200_000))
        return time.process_time() - started

    monitor = TrainingMonitor(folder / "background.json", handle_signals=False)
    alone = min(compute() for _ in range(3))
    monitor.start_epoch(1, 1000, 10)
    for number in range(100):
        monitor.start_batch()
        monitor.update_metrics(loss=number)
    beside = min(compute() for _ in range(3))
    monitor.set_finished()
    print(f"{'the background thread':<30} {max(0.0, beside / alone - 1):8.1%} of one core")


def measure_memory(folder: Path) -> None:
    monitor = TrainingMonitor(folder / "memory.json", handle_signals=False)
    monitor.start_monitoring()
    tracemalloc.start()
    for epoch in range(1, 101):
        monitor.start_epoch(epoch, 10_000, 100)
        for number in range(10_000):
            monitor.start_batch()
            monitor.update_metrics(loss=number * 0.5)
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    monitor.set_finished()
    print(f"{'memory in a million steps':<30} {used / 2**20:8.2f} MB at most")


def write_for(path: str, seconds: float) -> None:
    with TrainingMonitor(path) as monitor:
        monitor.start_epoch(1, 10**7, 1)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            monitor.start_batch()
            monitor.update_metrics(loss=1.0)
            time.sleep(0.02)


def measure_writers(seconds: float, folder: Path) -> None:
    paths = [folder / "many" / f"run-{number}.json" for number in range(WRITERS)]
    argv = [sys.executable, __file__, "--seconds", str(seconds), "--write"]
    writers = [subprocess.Popen([*argv, str(path)]) for path in paths]
    reads = torn = 0
    while any(writer.poll() is None for writer in writers):
        for path in filter(Path.exists, paths):
            try:
                parse_progress_file(path.read_text(), Run(path.stem, str(path), ""))
            except ValueError:
                torn += 1
            reads += 1
    lost = sum(json.loads(path.read_text())["status"] != "FINISHED" for path in paths)
    print(f"{WRITERS} writers for {seconds:g} s: {reads} reads, {torn} torn, {lost} last statuses lost")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--write", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write:
        write_for(arguments.write, arguments.seconds)
        sys.exit()
    with tempfile.TemporaryDirectory(prefix="tm", dir="/tmp") as name:
        measure_steps(arguments.steps, Path(name))
        measure_background(Path(name))
        measure_memory(Path(name))
        if arguments.seconds:
            measure_writers(arguments.seconds, Path(name))
