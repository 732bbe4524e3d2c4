"""Start-up: the package, the command line and whole commands against a bare interpreter, in the same run.

    python3 bench/startup.py [--rounds 20]

Every figure is the processor time of the process itself: what it starts, and the shell that answers it, are not in it.
The reference is `python3 -c pass`, and what is beside it is how many modules each one ends with. Commands look at this
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
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

from training_monitor import start_process_job, stop_job

TRAINING = "for step in $(seq 20); do echo \"step $step/1000 loss 0.5 lr 3e-4\"; done; exec sleep 3600"
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
    "status local": ["status", "local"],
}


class Row(NamedTuple):
    """One goal: at most `ratio` times the reference, or at most `above` milliseconds more."""

    name: str
    code: str
    arguments: list[str]
    ratio: float | None = None
    above: float | None = None


def rows() -> Iterator[Row]:
    yield Row("import training_monitor", "import training_monitor", [], ratio=1.3)
    yield Row("from training_monitor import auto_restart", "from training_monitor import auto_restart", [], ratio=3)
    yield Row("training-monitor --version", COMMAND, ["--version"], ratio=2)
    yield Row("training-monitor --help", COMMAND, ["--help"], ratio=2)
    for name, arguments in ONE_LOOK.items():
        yield Row(f"training-monitor {name}", COMMAND, arguments, above=60)


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


def main(rounds: int, folder: Path) -> None:
    furnish(folder)
    job = start_process_job("local", TRAINING, "measured")
    try:
        compare(rounds, folder)
    finally:
        stop_job("local", job)


def compare(rounds: int, folder: Path) -> None:
    cases = [Row("python3 -c pass", "pass", []), *rows()]
    times: dict[str, list[float]] = {row.name: [] for row in cases}
    modules = {}
    for count in range(rounds + 1):
        for row in cases:
            took, modules[row.name] = measure(row.code, row.arguments, folder)
            if count:  # the first round writes byte code
                times[row.name].append(took)
    bare = statistics.median(times[cases[0].name])
    print(f"{'processor time of the process itself':<42}     ms   bare  ratio  above  modules  goal")
    for row in cases:
        own = statistics.median(times[row.name])
        goal = f"ratio {row.ratio:g}" if row.ratio else f"above {row.above:g} ms" if row.above else ""
        print(f"{row.name:<42}{own:7.1f}{bare:7.1f}{own / bare:7.2f}{own - bare:7.1f}{modules[row.name]:9}  {goal}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    with tempfile.TemporaryDirectory() as name:
        main(parser.parse_args().rounds, Path(name))
