"""Start-up: `import training_monitor` and the command line against a bare interpreter, in the same run.

    python3 bench/startup.py [--rounds 40]

Prints medians and ratios (goal for the import: at most 1.3).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

CASES = {
    "python3 -c pass": ["-c", "pass"],
    "import training_monitor": ["-c", "import training_monitor"],
    "from training_monitor import auto_restart": ["-c", "from training_monitor import auto_restart"],
    "training-monitor --version": ["-m", "training_monitor", "--version"],
    "training-monitor --help": ["-m", "training_monitor", "--help"],
}


def main(rounds: int) -> None:
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    times: dict[str, list[float]] = {name: [] for name in CASES}
    for _ in range(rounds + 1):
        for name, arguments in CASES.items():
            started = time.perf_counter()
            subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=environ)
            times[name].append(time.perf_counter() - started)
    reference = statistics.median(times["python3 -c pass"][1:])
    for name, measured in times.items():
        median = statistics.median(measured[1:])
        print(f"{name:<44} {median * 1000:7.1f} ms   ratio {median / reference:5.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    main(parser.parse_args().rounds)
