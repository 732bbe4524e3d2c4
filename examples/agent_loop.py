"""Follow one training to its end as an agent would: check, wait, decide. The agent changes nothing.

    python3 examples/agent_loop.py TARGET WHAT

WHAT is a PID, a log file, a job or a name. Exit code: 0 if finished; 1 if failed, stalled or stopped (a human
decides what to do); 3 if unknown.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

COMMAND = [sys.executable, "-m", "training_monitor"]  # or training-monitor, if it is installed
LOOKS_IN_A_ROW = 10  # maximum number of consecutive checks with the verdict "unknown"
PAUSE = 5  # seconds between these checks


def call(*words: str) -> Any:
    """Run a command with --json and return its output; after an error, {"error": ..., "hint": ...}."""
    done = subprocess.run([*COMMAND, *words, "--json"], capture_output=True, text=True)
    return json.loads(done.stdout)


def follow(target: str, what: str) -> int:
    unknown = 0
    while unknown < LOOKS_IN_A_ROW:
        report = call("check", target, what)
        verdict = report.get("verdict", "unknown")  # a failed query counts as unknown, not as a failure
        print(f"{verdict}: {report.get('reason') or report['error']}", flush=True)
        states = {job["state"] for job in report.get("jobs", [])}
        if verdict == "failed" or states == {"stopped"}:
            for job in report["jobs"]:
                print(f"  {job['name']} is {job['state']}: {job['failure'] or job['remedies']}")
            return 1
        if states == {"finished"}:
            return 0
        if verdict == "unknown":
            unknown += 1
            time.sleep(PAUSE)
        else:
            unknown = 0
            call("wait", target, what, "--timeout", "10m", "--interval", "2")  # costs nothing while waiting
    return 3


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    sys.exit(follow(*sys.argv[1:]))
