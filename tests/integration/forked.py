"""The command line in processes of their own, for what is about signals and kills.

They are forked from one that has imported the package: starting Python anew takes half a second of CPU time.
"""

from __future__ import annotations

import multiprocessing
import os
import pkgutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import forkserver
from pathlib import Path
from unittest.mock import patch

import training_monitor
from tests.integration.conftest import MARK
from training_monitor.__main__ import main as begin
from training_monitor.cli.main import main

ROOT = Path(__file__).parents[2]
Act = Callable[[Sequence[str]], object]  # gets the arguments, which are also in sys.argv; returns the exit code
_CONTEXT = multiprocessing.get_context("forkserver")
_MODULES = [module.name for module in pkgutil.walk_packages(training_monitor.__path__, "training_monitor.")]
_MODULES = [name for name in _MODULES if not name.endswith("__main__") and ".sh." not in name]
_CONTEXT.set_forkserver_preload([*_MODULES, "tests.integration.service_world"])  # whose functions they run


def command(_: Sequence[str]) -> int:
    return main()


def program(_: Sequence[str]) -> int:
    """As `python3 -m training_monitor` does, which has more to do with signals."""
    return begin()


def without_stdin(argv: Sequence[str]) -> int:
    os.close(0)
    sys.stdin = None
    return program(argv)


class Forked:
    """A process that goes on meanwhile."""

    def __init__(self, process: multiprocessing.process.BaseProcess) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        assert self._process.pid
        return self._process.pid

    def poll(self) -> int | None:
        return self.wait(0)

    def wait(self, seconds: float) -> int | None:
        """Its exit code, negative for a signal; None while it goes on after all these seconds."""
        self._process.join(seconds)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self._process.exitcode is None:
            with suppress(ProcessLookupError):  # the fork server has just seen it end
                os.kill(self.pid, number)


@contextmanager
def forked(argv: Sequence[str], said: Path, act: Act = command) -> Iterator[Forked]:
    """Run a command whose stdout and stderr are appended to a file; it is killed in the end."""
    with patch.dict(os.environ):
        os.environ.pop(MARK, None)  # it outlives the test
        forkserver.ensure_running()
    process = _CONTEXT.Process(target=_be, args=(act, list(argv), dict(os.environ), str(said)), daemon=True)
    process.start()
    running = Forked(process)
    try:
        yield running
    finally:
        running.send_signal(signal.SIGKILL)
        process.join()


def _be(act: Act, argv: Sequence[str], environ: Mapping[str, str], said: str) -> None:
    os.chdir(ROOT)
    os.environ.clear()
    os.environ.update(environ)
    with open(said, "ab") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    sys.argv = ["training-monitor", *argv]
    sys.exit(act(argv))  # type: ignore[arg-type]
