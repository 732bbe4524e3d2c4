"""One call of a tool: it runs a command of this package in a process of its own, which ends when it is cancelled.

What takes long is started as a process job instead, and survives the server: its handle is the job id, which every tool
and command that takes a job understands.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from itertools import count
from typing import Any

from training_monitor.core.errors import CommandFailed, JobExists, SettingsError, TrainingMonitorError, last_lines
from training_monitor.core.masking import redact_argv
from training_monitor.core.read_fence import READ_UNDER, is_fenced
from training_monitor.jobs.jobs import look_at_job
from training_monitor.jobs.process_jobs import PREFIX, start_process_job
from training_monitor.jobs.stopping import stop_job
from training_monitor.targets.transport import LocalTransport

HERE = "local"
_LOOK_SECONDS = 0.5
COMMAND_SECONDS = 900.0
_ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))
# Without -m, which would look for modules in the current folder first.
_START = (
    f"import json, os, sys; sys.path[0] = {_ROOT!r}; sys.argv[0] = 'training-monitor'; "
    "os.environ['TRAINING_MONITOR_SURFACE'] = 'mcp'; "
    "from training_monitor.agents.mcp.paths import find_first; find_first(json.loads(sys.argv.pop(1))); "
    "from training_monitor.cli.main import main; sys.exit(main())"
)


class Call:
    """A call in progress. `cancel` and `leave` may come from another thread, also before the call has begun."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kill: Callable[[], None] | None = None
        self.cancelled = self._is_left = False

    def cancel(self) -> None:
        """End what the call has started; its answer is not sent."""
        self.cancelled = True
        self.leave()

    def leave(self) -> None:
        """End the process of the call; what it has started as a job goes on."""
        with self._lock:
            self._is_left, kill = True, self._kill
        if kill:
            kill()

    def started(self, kill: Callable[[], None]) -> None:
        """Note how the process of this call is killed."""
        with self._lock:
            self._kill, is_left = kill, self._is_left
        if is_left:
            kill()


CURRENT: ContextVar[Call] = ContextVar("CURRENT")


class Refused(TrainingMonitorError):
    """A command refused: `told` is its document, with `error`, `kind` and `hint`."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        super().__init__(str(told["error"]), hint=told.get("hint"))
        self.told = told


def without_secrets(words: Iterable[str]) -> tuple[str, ...]:
    """Return the words of a command line.

    Raises:
        SettingsError: a word looks like a secret, which other users would see in the list of processes.
    """
    given = tuple(words)
    if any("\0" in word for word in given):
        raise SettingsError("arguments", "a NUL byte", "text without NUL bytes")
    if redact_argv(given) != given:
        raise SettingsError(
            "arguments",
            "a value that looks like a secret",
            "the name of a variable in the server's environment: env:NAME, or NAME",
        )
    return given


def command_line(words: Iterable[str], given: Mapping[str, Any]) -> list[str]:
    """Return what starts a command of this package in this Python. Raises SettingsError for a secret among them.

    Args:
        words: the command and its arguments.
        given: the arguments by name; the trainings whose files they name are found first.
    """
    return [sys.executable, "-c", _START, json.dumps(given), *without_secrets(words)]


def shown_command(words: Iterable[str]) -> str:
    """Return a command line as a person would type it."""
    return shlex.join(["training-monitor", *words])


def run_command(words: Sequence[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """Run a command of this package and return the JSON document that it prints.

    Args:
        words, given: as for `command_line`.

    Returns:
        The document, with `exit_status` (0 ok, 1 bad, 2 wrong use, 3 unknown, 4 taken over) and `stderr`, what the
        command wrote there: with 3, why something is unknown.

    Raises:
        Refused: the command refused, and says why.
        CommandFailed: it gave no document.
    """
    argv = command_line(_with_json(words), given)
    result = LocalTransport().run(argv, timeout=COMMAND_SECONDS, on_start=CURRENT.get().started)
    said = last_lines(result.stderr)
    return _answer_of(words, result.stdout, result.exit_code, said)


def start_command(words: Sequence[str], given: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Start a command of this package as a process job of this machine, which survives the server.

    The same command that still runs is not started again. A call that is cancelled meanwhile stops it.

    Args:
        words, given: as for `command_line`.
        seconds: how long its end is waited for.

    Returns:
        As `run_command` if it has ended by then; otherwise its `handle`, a job id, and its `status`.
    """
    handle, end = _start(words, given), time.monotonic() + seconds
    while True:
        view = look_at_job(HERE, handle)
        if view.status.is_terminal:
            return {"handle": handle, **_answer_of(words, view.log_tail, view.exit_code, view.message or "")}
        if CURRENT.get().cancelled:
            stop_job(HERE, handle)
        elif time.monotonic() >= end:
            return {"handle": handle, "status": view.status.value, "command": shown_command(words)}
        time.sleep(_LOOK_SECONDS)


def _start(words: Sequence[str], given: Mapping[str, Any]) -> str:
    """Start a command, or find the same one that still runs, and return its job id."""
    line = f"exec {shlex.join(command_line(_with_json(words), given))} 2>/dev/null"  # what it has to say is in its JSON
    name = f"mcp-{words[0]}-{hashlib.sha256(line.encode()).hexdigest()[:8]}"
    fence = {READ_UNDER: os.environ[READ_UNDER]} if is_fenced() else {}
    for number in count(1):
        try:
            return start_process_job(HERE, line, f"{name}-{number}", env=fence)
        except JobExists:
            if not look_at_job(HERE, f"{PREFIX}{name}-{number}").status.is_terminal:
                return f"{PREFIX}{name}-{number}"
    raise AssertionError


def _with_json(words: Sequence[str]) -> list[str]:
    place = words.index("--") if "--" in words else len(words)
    return [*words[:place], "--json", *words[place:]]


def _answer_of(words: Sequence[str], printed: str, exit_code: int | None, said: str) -> dict[str, Any]:
    lines = [line for line in printed.splitlines() if line.strip()]
    try:
        found = dict(json.loads(lines[-1]))
    except (IndexError, TypeError, ValueError):
        what = f"{words[0]}: exit code {exit_code}: {said or 'it printed nothing'}"
        raise CommandFailed(what, hint="check the arguments") from None
    if {"error", "kind", "hint"} <= found.keys() and isinstance(found["error"], str):
        raise Refused(found)
    return {**found, "exit_status": exit_code, "stderr": said}
