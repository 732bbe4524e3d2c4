"""Processes and files left behind by a fleet with random faults, and what grows is told from what is only noisy."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from bench.soak_samples import MARK
from bench.soak_series import Series, series_of, slope, trend

ROOT = Path(__file__).parents[2]
DID = ("looks", "lines", "attempts", "samples", "requests", "runs written")


def begin(folder: Path, *words: str) -> subprocess.Popen[str]:
    environ = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "bench.soak", "--members", "6", "--interval", "0.5", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=environ, cwd=ROOT, text=True, stdin=subprocess.DEVNULL, **pipes)


def left_of(pid: int) -> list[str]:
    """What still runs of what a soak had started."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={pid}\0".encode() in (path / "environ").read_bytes():
                found.append((path / "cmdline").read_text())
        except OSError:
            continue
    return found


@pytest.mark.timeout(180)
def test_fifteen_seconds_of_faults_leave_no_process_file_or_thread(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="tm", dir="/tmp") as name:  # sockets have short names
        soak = begin(Path(name), "--minutes", "0.25", "--json", str(tmp_path / "samples"))
        out, complained = soak.communicate(timeout=150)
        assert soak.returncode == 0, f"{out}\n{complained}"
        assert left_of(soak.pid) == [] and os.listdir(name) == []
    kept = json.loads((tmp_path / "samples").read_text())
    assert [what for what in DID if not kept["counts"].get(what)] == [], kept["counts"]
    assert len(kept["samples"]) > 5 and "| memory | " in out and "threads  " in out


@pytest.mark.timeout(120)
def test_an_interrupted_soak_prints_what_there_is_and_leaves_nothing(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="tm", dir="/tmp") as name:
        soak = begin(Path(name), "--minutes", "10", "--json", str(tmp_path / "samples"))
        end = time.monotonic() + 60
        while not left_of(soak.pid) and time.monotonic() < end:
            time.sleep(0.1)
        time.sleep(1)
        soak.send_signal(signal.SIGINT)
        out, complained = soak.communicate(timeout=60)
        assert soak.returncode == 0 and "Traceback" not in complained, complained
        assert left_of(soak.pid) == [] and os.listdir(name) == []


def test_a_growing_series_grows_and_a_noisy_one_does_not() -> None:
    noise = random.Random(1)
    size = 360
    growing = {
        "a thread every four minutes": [10.0 + at // 24 for at in range(size)],
        "one file in the middle": [10.0 + (at >= size // 2) for at in range(size)],
        "one socket every two minutes, beside a busy service": [noise.randint(3, 9) + at // 12 for at in range(size)],
    }
    flat = {
        "always the same": [7.0] * size,
        "busy": [float(noise.randint(3, 30)) for _ in range(size)],
        "growing until it has settled": [min(20.0, at / 4) for at in range(size)],
        "a tooth": [float(at % 40) for at in range(size)],
        "one busy moment": [50.0 if 200 < at < 210 else 4.0 for at in range(size)],
        "shrinking": [float(size - at) for at in range(size)],
    }
    assert [name for name, values in growing.items() if not Series(name, values).grows()] == []
    assert [name for name, values in flat.items() if Series(name, values).grows()] == []


def test_memory_may_rise_by_ten_per_cent_and_not_by_five_megabytes() -> None:
    def grows(start: float, rise: float) -> bool:
        samples = [{"at": 10.0 * at, "memory": start + rise * at / 360} for at in range(360)]
        [memory] = series_of(samples)
        return memory.grows()

    assert not grows(40, 5) and grows(40, 15)  # a half of the rise lies between the two quarters
    assert not grows(400, 8) and grows(400, 15)


def test_the_slope_is_that_of_most_pairs_and_few_values_are_enough() -> None:
    times = [10.0 * at for at in range(100)]
    values = [at / 3600 * 2 for at in times]
    values[50] = 1e6
    assert slope(times, values) == pytest.approx(2)
    assert slope([], []) == 0 == trend([]) == trend([1.0]) and not Series("one", [1.0]).grows()
