"""The command line without starting Python for it: for what is not about signals, terminals or processes."""

from __future__ import annotations

import io
import os
import pty
import shlex
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from unittest.mock import patch

from training_monitor.cli.main import main

PYTHON = shlex.quote(sys.executable)  # as a word of a script


def run_command(*argv: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """What `training-monitor ARGV` answers, with an empty stdin, in this environment with `changes`."""
    return _run(lambda: main(argv), argv, changes)


def run_script(script: str, *argv: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """What a Python script without a TrainingMonitor says, which may be a file, run as `python3 SCRIPT ARGV` is."""
    name = script if "\n" not in script else "-c"
    code = compile(script if name == "-c" else Path(script).read_text(encoding="utf-8"), name, "exec")

    def act() -> int:
        with patch("sys.argv", [name, *argv]):
            try:
                exec(code, {"__name__": "__main__", "__file__": name})
            except Exception:
                traceback.print_exc()
                return 1
        return 0

    return _run(act, argv, changes)


def _run(act: Callable[[], int], argv: Sequence[str], changes: dict[str, str]) -> subprocess.CompletedProcess[str]:
    encoding = changes.get("PYTHONIOENCODING", "utf-8")
    out, err = (
        io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors=errors, write_through=True)
        for errors in ("strict", "backslashreplace")
    )
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    with patch.dict(os.environ, {"COLUMNS": "80", **changes}), patch("sys.stdin", io.StringIO()):
        with redirect_stdout(out), redirect_stderr(err):
            try:
                status = act()
            except SystemExit as end:  # as argparse does
                status = end.code if isinstance(end.code, int) else int(end.code is not None)
                if isinstance(end.code, str):
                    print(end.code, file=sys.stderr)
            finally:
                for number, handler in handlers.items():
                    signal.signal(number, handler)
    texts = [each.buffer.getvalue().decode() for each in (out, err)]
    return subprocess.CompletedProcess(argv, status, *texts)


def run_on_a_terminal(*argv: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """What a process of its own shows on a terminal; its stderr too."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "training_monitor", *argv]
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "TERM": "xterm", **changes}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environ) as process:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # nobody has the other end open any more
            while chunk := os.read(ours, 4096):
                shown += chunk
    os.close(ours)
    return subprocess.CompletedProcess(argv, process.returncode, shown.decode())
