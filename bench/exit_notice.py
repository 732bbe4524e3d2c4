"""How soon the end of a process job is noticed although looks are 30 s apart (goal: within 1 s).

    python3 bench/exit_notice.py [--rounds 5]

Prints, for this machine and for a pod behind a loopback Kubernetes API, the time from the last act of the job's
command to the report of auto_restart, and its ratio to the check interval.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.loopback.kubernetes import KubernetesApi  # noqa: E402
from training_monitor import auto_restart
from training_monitor.core import Store

INTERVAL = 30.0


def measure(target: str, rounds: int, folder: Path) -> None:
    delays = []
    for number in range(rounds):
        stamp = folder / f"{target}-{number}"
        command = f"sleep 1.{number}; date +%s.%N >{stamp}"
        report = auto_restart(target, f"timed-{number}", str(folder / "none"), job_config={"command": command},
                              check_interval=INTERVAL, store=Store(str(folder / "state")))  # fmt: skip
        noticed = time.time()
        assert report["success"], report
        delays.append(noticed - float(stamp.read_text()))
    median = statistics.median(delays)
    share = median / INTERVAL
    print(f"{target:<8} noticed after {median:5.2f} s (at worst {max(delays):.2f}), {share:.1%} of the interval")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, KubernetesApi(Path(name) / "kube") as api:
        os.environ.update(api.environ, TRAINING_MONITOR_JOBS_DIR=f"{name}/jobs")
        api.add_pod("pod", root=Path(name) / "pod")
        for where in ("local", "pod"):
            measure(where, arguments.rounds, Path(name))
