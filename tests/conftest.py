"""What every test may count on, and how tests are shared out where pytest-xdist runs them side by side."""

from __future__ import annotations

import os
import re
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Minutes each, for few tests: they begin, so that all others fill the time beside them.
FIRST = ("tests/integration/test_ray_restarts.py", "tests/integration/test_training_service.py")
FIRST += ("tests/hostile/test_canaries.py", "tests/hostile/test_endings.py", "tests/integration/test_slurm_restart.py")
FIRST += ("tests/integration/test_killed_launches.py", "tests/integration/test_standby.py")
FIRST += ("tests/integration/test_slurm_outages.py",)
FIRST += ("tests/hostile/test_read_fence.py", "tests/unit/test_hostile_input.py")
# Tests of one file use the same names on the same machine and stay together. Not these: each has folders, servers and
# names of its own.
APART = ("tests/integration/test_training_service.py",)


@pytest.fixture(scope="session", autouse=True)
def signals_reach_children() -> None:
    """Start programs with the usual meaning of signals, also under `nohup` and `&`.

    A signal that is ignored stays ignored over exec; one with a handler gets its default back.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """A folder in memory where there is room and programs may run: for tests that write thousands of states."""
    memory = "/dev/shm" if _is_roomy("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=memory, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _is_roomy(folder: str) -> bool:
    if not os.access(folder, os.W_OK):
        return False
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize > 1 << 29 and not found.f_flag & os.ST_NOEXEC


# What launchers of ranks and schedulers tell their programs. A test's trainings would take it for their own.
_OF_A_LAUNCHER = r"(\w+_)?(RANK|WORLD_SIZE|PROCID|LOCALID)|MASTER_(ADDR|PORT)|(SLURM|PMI|OMPI|TORCHELASTIC|RAY)_\w+"


def pytest_configure() -> None:
    for name in [*os.environ]:
        if re.fullmatch(_OF_A_LAUNCHER, name):
            del os.environ[name]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mix files whose tests wait with those whose tests compute, of which a fifth is left for the end.

    Among both, files of many tests come first: short ones fill the time at the end.
    """
    files = [file for file, _ in Counter(map(_file_of, items)).most_common()]
    waiting = [file for file in files if file.startswith(("tests/hostile/", "tests/integration/"))]
    computing = [file for file in files if file not in {*waiting}]
    places = {file: at / len(computing) for at, file in enumerate(computing)}
    places |= {file: 0.8 * at / len(waiting) for at, file in enumerate(waiting)}
    items.sort(key=lambda item: (not item.nodeid.startswith(FIRST), places[_file_of(item)]))


def _file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Share tests out by file, and those of APART one by one.

    The groups of pytest-xdist 3.8, which are for this, do nothing under pytest 9.2.
    """
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            scope: str = super()._split_scope(nodeid)
            return nodeid if scope in APART else scope

    return Scheduling(config, log)
