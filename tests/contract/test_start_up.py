"""What a start imports: how many modules each command may bring, of this package and of the standard library.

Modules are counted, not milliseconds: `bench/startup.py` measures those. A start that needs more of them has a reason,
or imports something at the top of a module that belongs into the function that needs it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COUNT = """
import sys
sys.path.insert(0, {root!r})
before = set(sys.modules)
try:
    {code}
except SystemExit:
    pass
print("\\n", *(set(sys.modules) - before))
"""
RUN = "from training_monitor.cli.main import main; main({words!r})"
# Modules of this package, and of the standard library beyond a bare interpreter's: those of Python 3.11, and some more
# for other versions and for trainings that happen to run on this machine.
SCRIPTS: dict[str, tuple[int, int]] = {
    "import training_monitor": (1, 4),
    "from training_monitor import auto_restart": (27, 70),
}
COMMANDS: dict[str, tuple[int, int]] = {
    "--version": (10, 50),
    "--help": (10, 50),
    "completion --complete zsh gpu l": (37, 85),
    "gpu local": (46, 90),
    "checkpoints local .": (38, 90),
    "health local": (95, 110),
    "history": (46, 90),
    "top . --once --json": (64, 95),
    "config --check": (70, 95),
    "status local": (91, 100),
}
# Nothing above needs these: values, tables of results and addresses are made without them.
HEAVY = frozenset(
    "statistics decimal fractions random hashlib secrets urllib.request http.client ssl"
    " smtplib email html curses difflib importlib.resources pathlib tempfile xml asyncio multiprocessing".split()
)


def modules_of(code: str, folder: Path) -> tuple[set[str], set[str]]:
    """Run code in a bare interpreter; return the modules of this package and the others that it imported."""
    environ = {**os.environ, "HOME": str(folder), "TRAINING_MONITOR_JOBS_DIR": str(folder / "jobs")}
    environ["TRAINING_MONITOR_STATE_DIR"] = str(folder / "state")
    script = COUNT.format(root=str(ROOT), code=code)
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", script], capture_output=True, text=True, env=environ, cwd=folder
    )
    assert not done.returncode, done.stderr
    names = set(done.stdout.rstrip().rpartition("\n")[2].split())
    own = {name for name in names if name.partition(".")[0] == "training_monitor"}
    return own, names - own


CASES = SCRIPTS | {RUN.format(words=words.split()): most for words, most in COMMANDS.items()}


@pytest.mark.parametrize("code", CASES, ids=[*SCRIPTS, *COMMANDS])
def test_a_start_imports_no_more_than_its_budget(code: str, tmp_path: Path) -> None:
    own, others = modules_of(code, tmp_path)
    most_own, most_others = CASES[code]
    assert len(own) <= most_own, sorted(own)
    assert len(others) <= most_others, sorted(others)
    assert not others & HEAVY
