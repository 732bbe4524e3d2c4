"""Memory used by the worst replies: at most 60 MB more than a small reply."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile import target as hostile
from tests.hostile.target import save_answers
from tests.hostile.tries import tried
from tests.hostile.world import REPORT, SSH, World, a_world

MOST_MB = 60.0
EVERYTHING = bool(os.environ.get("TRAINING_MONITOR_FUZZ"))
COMMANDS = (
    *("gpu", "check", "status job", "checkpoints", "top", "fleet", "watch log", "logs", "health", "metrics", "why"),
)
ENDLESS, ROWS = "endless line", "5 MiB of wide rows"
WORST = (
    *(ENDLESS, "endless answer", "endless frames", "60 MiB of one answer", "a million rows", "5 MiB of rows", ROWS),
    "100 MB of errors",
)
QUICK = {
    "gpu": (ENDLESS,),
    "check": ("a million rows",),
    "watch log": (ROWS,),
    "status job": (ROWS,),
    "fleet": ("5 MiB of rows",),
    "metrics": (ROWS,),
    "why": (ROWS,),
}
PROGRAM = """\
import sys
from training_monitor.cli.main import main
status = main(sys.argv[1:])
[peak] = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
print("peak", peak, "status", status, file=sys.stderr)
"""


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    names = {*QUICK, *(COMMANDS if EVERYTHING else ())}
    with pytest.MonkeyPatch.context() as patches, a_world(patches, names) as found:
        tools = found.folder / "fakes"
        tools.mkdir()
        shutil.copy(hostile.__file__, tools / "ssh")
        (tools / "ssh").chmod(0o755)
        patches.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
        patches.setenv("TM_HOSTILE_ANSWERS", str(found.folder / "answers"))
        patches.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        save_answers(str(found.folder / "answers"), found.all_answers())
        yield found


def peak_mb(world: World, name: str, mode: str) -> tuple[float, str]:
    """The peak memory of a command of its own, and what it said at the end."""
    shutil.rmtree(world.state, ignore_errors=True)
    command = [sys.executable, "-c", PROGRAM, *world.commands(SSH)[name]]
    environ = {**os.environ, "TM_HOSTILE_MODE": mode}
    done = subprocess.run(command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=180, check=False)
    said = done.stderr.decode("utf-8", "replace")
    last = said.splitlines()[-1] if said else "nothing"
    if not last.startswith("peak "):
        pytest.fail(f"{name}, a target with {mode}: it ended with {said[-1500:]}")
    return int(last.split()[1]) / 1024, f"{last}; {len(done.stdout)} bytes printed"


def test_the_worst_answers_cost_little_memory(world: World) -> None:
    found, failures = [], []
    small, _ = peak_mb(world, "check", "good")
    for name, modes in dict.fromkeys(COMMANDS, WORST).items() if EVERYTHING else QUICK.items():
        for mode in modes:
            tried()
            peak, said = peak_mb(world, name, mode)
            line = f"{name}, {mode}: {peak - small:+.0f} MB above {small:.0f} MB ({said})"
            found.append(line)
            if peak - small > MOST_MB:
                failures.append(line)
    if REPORT:
        Path(f"{REPORT}.memory").write_text("\n".join(found) + "\n")
    if failures:
        pytest.fail("\n".join(["more memory than a target may cost:", *failures]), pytrace=False)
