"""One call of a tool: it can be cancelled, and runs commands of this package in processes of their own.

A tool that answers what a command prints with `--json` runs that command: the document is the same, and the process can
be ended when the call is cancelled.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from training_monitor.core.errors import CommandFailed, SettingsError, TrainingMonitorError, last_lines
from training_monitor.core.masking import redact_argv
from training_monitor.targets.transport import LocalTransport

COMMAND_SECONDS = 900.0
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Without -m, which would look for modules in the current folder first.
_START = (
    f"import os, sys; sys.path[0] = {_PACKAGE!r}; sys.argv[0] = 'training-monitor'; "
    "os.environ['TRAINING_MONITOR_SURFACE'] = 'mcp'; "
    "from training_monitor.cli.main import main; sys.exit(main())"
)


class Call:
    """A call in progress. `cancel` may come from another thread, also before the call has begun."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kill: Callable[[], None] | None = None
        self.cancelled = False

    def cancel(self) -> None:
        """End what the call has started, as far as that is a process of its own; its answer is not sent."""
        with self._lock:
            self.cancelled, kill = True, self._kill
        if kill:
            kill()

    def started(self, kill: Callable[[], None]) -> None:
        """Note how the process of this call is killed."""
        with self._lock:
            self._kill, cancelled = kill, self.cancelled
        if cancelled:
            kill()


CURRENT: ContextVar[Call] = ContextVar("CURRENT")


class Refused(TrainingMonitorError):
    """A command refused: `told` is its document, with `error`, `kind` and `hint`."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        super().__init__(str(told["error"]), hint=told.get("hint"))
        self.told = told


def options(**values: object) -> list[str]:
    """Return the words of options: none for None, False and an empty list, one each for the items of a list."""
    words = []
    for name, value in values.items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words += [option] * value
        elif isinstance(value, (list, tuple)):
            words += [f"{option}={each}" for each in value]
        elif value is not None:
            words.append(f"{option}={value}")
    return words


def positional(**values: str | Sequence[str] | None) -> list[str]:
    """Return arguments that are no options. Raises SettingsError for one that would be taken for an option."""
    words = []
    for name, given in values.items():
        for value in [given] if isinstance(given, str) else given or ():
            if value.startswith("-") or not value.strip():
                raise SettingsError(name, value, "a name that does not begin with -")
            words.append(value)
    return words


def command_line(words: Iterable[str]) -> list[str]:
    """Return what starts a command of this package in this Python.

    Raises:
        SettingsError: a word looks like a secret, which other users would see in the list of processes.
    """
    given = tuple(words)
    if any("\0" in word for word in given):
        raise SettingsError("arguments", "a zero byte", "texts without one")
    if redact_argv(given) != given:
        raise SettingsError(
            "arguments", "what looks like a secret", "the name of a variable that the server has: env:NAME, or NAME"
        )
    return [sys.executable, "-c", _START, *given]


def shown_command(words: Iterable[str]) -> str:
    """Return a command line as a person would type it."""
    return shlex.join(["training-monitor", *words])


def run_command(*words: str) -> dict[str, Any]:
    """Run a command of this package and return the JSON document that it prints.

    Args:
        words: the command and its arguments.

    Returns:
        The document, with `exit_status` (0 ok, 1 bad, 2 wrong use, 3 unknown, 4 taken over) and `said`, what the
        command said beside it: with 3, why something is unknown.

    Raises:
        Refused: the command refused, and says why.
        CommandFailed: it gave no document.
    """
    argv = command_line([*words, "--json"])
    result = LocalTransport().run(argv, timeout=COMMAND_SECONDS, on_start=CURRENT.get().started)
    said = last_lines(result.stderr)
    lines = [line for line in result.stdout.splitlines() if line.strip()]
    try:
        found = dict(json.loads(lines[-1]))
    except (IndexError, TypeError, ValueError):
        what = f"{words[0]}: exit status {result.exit_code}: {said or 'it said nothing'}"
        raise CommandFailed(what, hint="look at the arguments") from None
    if {"error", "kind", "hint"} <= found.keys() and isinstance(found["error"], str):
        raise Refused(found)
    return {**found, "exit_status": result.exit_code, "said": said}
