"""How late the lines of a log arrive over ssh, beside a plain `ssh HOST tail -f` of the same log in the same run.

    python3 bench/streaming.py [--lines 200]

Prints the median delay of both and their ratio.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.table import Row, as_table
from tests.integration.conftest import SshServer, Surroundings  # noqa: E402
from training_monitor import TrainingWatcher
from training_monitor.core import Store


def write(log: Path, lines: int) -> None:
    with log.open("a") as opened:
        for number in range(lines):
            opened.write(f"step {number}/{lines} at {time.time()}\n")
            opened.flush()
            time.sleep(0.037)


def measure(act: Callable[[Callable[[str], None]], Callable[[], None]], log: Path, lines: int) -> list[float]:
    """The delay of each line when `act` hands them to a callback; it returns what ends it."""
    delays: list[float] = []
    done = threading.Event()

    def heard(line: str) -> None:
        delays.append(time.time() - float(line.split()[-1]))
        if len(delays) == lines:
            done.set()

    end = act(heard)
    time.sleep(1)
    write(log, lines)
    done.wait(10)
    end()
    return delays


def rows(lines: int = 200) -> Iterator[Row]:
    """Measure what `python3 -m bench` shows of following a log."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        (folder / "tools").mkdir()
        patch.setenv("PATH", f"{folder / 'tools'}:/usr/sbin:/usr/bin:/bin")
        patch.setenv("XDG_RUNTIME_DIR", str(folder / "run"))
        patch.setenv("TRAINING_MONITOR_STATE_DIR", str(folder / "state"))
        server = SshServer(folder / "sshd")
        server.set_environment({"SHLVL": "2"})
        server.write_client(folder / "tools")
        server.start()
        log = folder / "log"
        log.touch()
        watcher = TrainingWatcher(server.address, {"log_file": str(log)}, store=Store(str(folder / "state")))
        ours = measure(lambda heard: watcher.start_streaming(lambda update: heard(update.line)), log, lines)

        def tail(heard: Callable[[str], None]) -> Callable[[], None]:
            host, port = server.address.removeprefix("ssh://").split(":")
            options = ["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
            argv = ["ssh", "-q", *options, "-p", port, host, f"tail -n 0 -f {log}"]
            process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
            assert process.stdout
            output = process.stdout
            threading.Thread(target=lambda: deque(map(heard, output), 0), daemon=True).start()
            return process.kill

        own, reference = (1000 * statistics.median(delays) for delays in (ours, measure(tail, log, lines)))
        yield Row("delay from a new log line to the callback", own, "ms", reference, "`ssh HOST tail -f`", "20 ms")
        Surroundings(folder, folder / "tools", folder / "run", "").disconnect()
        server.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=200)
    print("\n".join(as_table(rows(parser.parse_args().lines))))
