"""Training scripts that run as real processes, each with a `TrainingMonitor`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BEGIN = """
import os, signal, sys, threading, time
from training_monitor.runs.monitor import TrainingMonitor
monitor = TrainingMonitor("progress/run.json", interval=0.02)
"""


class Process(subprocess.Popen[str]):
    """Killed where the test that waits for its end has failed."""

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if error is not None:
            self.kill()
        super().__exit__(kind, error, traceback)


class Script:
    """A Python script that runs in a folder of its own."""

    def __init__(self, folder: Path, python: str = sys.executable) -> None:
        self.folder, self.file, self._python = folder, folder / "progress" / "run.json", python

    def start(self, body: str, *options: str, begin: str = BEGIN, host: str = "", **environ: str) -> Process:
        """Start it, on a machine of another name where `host` names one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "train.py").write_text(begin + textwrap.dedent(body))
        surroundings = {**os.environ, "PYTHONPATH": str(ROOT), **environ}
        elsewhere = ["unshare", "--uts", "sh", "-c", f'hostname {host}; exec "$@"', "sh"] if host else []
        return Process(
            [*elsewhere, self._python, "train.py", *options],
            cwd=self.folder,
            env=surroundings,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, body: str, *options: str, begin: str = BEGIN, **environ: str) -> tuple[int, str, str]:
        with self.start(body, *options, begin=begin, **environ) as process:
            out, err = process.communicate(timeout=180)
        return process.returncode, out, err

    def read(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.file.read_text())
        return document

    def has(self, status: str) -> bool:
        return self.file.exists() and self.read()["status"] == status
