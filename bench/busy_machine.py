"""How long `check local` takes on a machine with far more work than processors.

    python3 bench/busy_machine.py [--load 90] [--rounds 5]

As many endless loops as LOAD says run beside it, each in a session of its own as logins and jobs have them. In turn run
a bare interpreter (`python3 -c pass`) and `check local`, of one training that prints a step ten times a second. Printed
are the medians and the longest check; goal: 20 seconds.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from bench.table import Row, as_table  # noqa: E402

TRAIN = "import time\nfor step in range(100000): print(f'step {step}/100000 loss 1.0', flush=True); time.sleep(0.1)\n"


@contextmanager
def started(words: list[str], count: int = 1, **more: object) -> Iterator[None]:
    """Run programs, each in a session of its own."""
    running = [subprocess.Popen(words, start_new_session=True, **more) for _ in range(count)]  # type: ignore[call-overload]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def seconds(*words: str) -> float:
    began = time.monotonic()
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)
    print(f"{time.monotonic() - began:6.1f} s  {' '.join(words)}  {done.stdout.partition(chr(10))[0]}")
    return time.monotonic() - began


def measure(load: int, rounds: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRAINING_MONITOR_STATE_DIR"] = f"{folder}/state"
        script = Path(folder, "train.py")
        script.write_text(TRAIN)
        with Path(folder, "train.log").open("wb") as log, started([sys.executable, str(script)], stdout=log):
            with started(["sh", "-c", "while :; do :; done"], load):
                time.sleep(5)
                pairs = [
                    (seconds("-c", "pass"), seconds("-m", "training_monitor", "check", "local")) for _ in range(rounds)
                ]
    bare, ours = zip(*pairs)
    yield Row(
        f"`check local`, while {load} endless loops are running",
        median(ours),
        "s",
        median(bare),
        "`python3 -c pass`",
        "20 s",
    )
    yield Row("the same, longest time", max(ours), "s", max(bare), "the same", "20 s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", type=int, default=90)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    print("\n".join(as_table(measure(args.load, args.rounds))))
