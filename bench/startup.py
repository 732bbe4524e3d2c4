"""Start-up: the package, the command line and whole commands against a bare interpreter, in the same run.

    python3 bench/startup.py [--rounds 20]

Every figure is the processor time of the process itself: what it starts, and the shell that answers it, are not in it.
The reference is `python3 -c pass`; in parentheses is how many modules a process ends with. Commands look at this
machine, one job that runs, a folder of checkpoints, one of progress files, and an empty history. Medians are printed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.table import Row, as_table
from training_monitor import start_process_job, stop_job

TRAINING = 'for step in $(seq 20); do echo "step $step/1000 loss 0.5 lr 3e-4"; done; exec sleep 3600'
# What is measured, in a process of its own; its last line on stderr says how much it took.
TELL = (
    "import atexit, sys, time; atexit.register(lambda: print("
    "f'\\n{time.process_time()} {len(sys.modules)}', file=sys.stderr)); "
)
COMMAND = "from training_monitor.cli.main import main; sys.exit(main())"
ONE_LOOK = {
    "gpu": ["gpu", "local"],
    "checkpoints": ["checkpoints", "local", "checkpoints"],
    "health": ["health", "local"],
    "history": ["history"],
    "top --json": ["top", "progress", "--once", "--json"],
    "config --check": ["config", "--check"],
    "completion --complete": ["completion", "--complete", "zsh", "gpu", ""],
    "check": ["check", "local"],
    "fleet": ["fleet", "local", "--once", "--json", "--no-history"],
}
# What each may take: what it took before values were dataclasses of the standard library, and 100 ms.
GOALS = {"check": "185 ms", "fleet": "225 ms", "health": "170 ms"}


CASES = {
    "import training_monitor": ("import training_monitor", [], "1.3x"),
    "from training_monitor import auto_restart": ("from training_monitor import auto_restart", [], "120 ms"),
    "training-monitor --version": (COMMAND, ["--version"], "40 ms"),
    "training-monitor --help": (COMMAND, ["--help"], "40 ms"),
    **{f"training-monitor {name}": (COMMAND, words, GOALS.get(name, "140 ms")) for name, words in ONE_LOOK.items()},
}


def measure(code: str, arguments: list[str], folder: Path) -> tuple[float, int]:
    """Return milliseconds of processor time, and the modules that were imported."""
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    argv = [sys.executable, "-c", TELL + code, *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, env=environ, cwd=folder)
    seconds, modules = done.stderr.split()[-2:]
    return float(seconds) * 1000, int(modules)


def furnish(folder: Path) -> None:
    """Make what the commands look at, and keep what belongs to this user out of sight."""
    names = {"HOME": "home", "TRAINING_MONITOR_JOBS_DIR": "jobs", "TRAINING_MONITOR_STATE_DIR": "state"}
    os.environ.update({name: str(folder / place) for name, place in names.items()})
    for step in (100, 200):
        checkpoint = folder / "checkpoints" / f"step_{step}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "model.safetensors").write_bytes(bytes(8))
    (folder / "progress").mkdir()
    document = {"format": 1, "status": "SUCCEEDED", "updated_at": 1.75e9, "metrics": {"loss": 0.5}}
    (folder / "progress" / "run_progress.json").write_text(json.dumps(document))


def rows(rounds: int = 10) -> Iterator[Row]:
    """Measure what `python3 -m bench` shows of start-up."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        furnish(folder)
        job = start_process_job("local", TRAINING, "measured")
        try:
            yield from compare(rounds, folder)
        finally:
            stop_job("local", job)


def compare(rounds: int, folder: Path) -> Iterator[Row]:
    bare: list[float] = []
    taken: dict[str, list[float]] = {name: [] for name in CASES}
    for _ in range(rounds + 1):
        bare.append(measure("pass", [], folder)[0])
        for name, (code, words, _) in CASES.items():
            taken[name].append(measure(code, words, folder)[0])
    for name, (code, words, goal) in CASES.items():
        modules = measure(code, words, folder)[1]
        own, reference = statistics.median(taken[name][1:]), statistics.median(bare)  # the first one writes byte code
        if goal.endswith("x"):
            yield Row(f"{name} ({modules} modules)", own, "ms", reference, "`python3 -c pass`", goal)
        else:
            yield Row(
                f"{name} ({modules} modules)",
                own - reference,
                "ms",
                None,
                "time of `python3 -c pass`, already subtracted",
                goal,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    print("\n".join(as_table(rows(parser.parse_args().rounds))))
