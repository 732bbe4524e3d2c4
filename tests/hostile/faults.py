"""Tools that fail: shims of some lines of sh around a real tool, in a folder that is first on PATH."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from training_monitor.core.results import CommandResult
from training_monitor.targets.asking import Site
from training_monitor.targets.transport import LocalTransport

SECONDS = 0.6  # the limit of a question, and of what a command asks, where a tool hangs


class Fault(NamedTuple):
    """What a tool does instead of its work; `answers`: its answer is all there, and `acts`: its work is done."""

    script: str
    answers: bool = False
    acts: bool = False
    mode: int = 0o755


FAULTS: dict[str, Fault | None] = {
    "missing": None,
    "not executable": Fault('exec {real} "$@"', mode=0o644),
    "hangs": Fault("exec sleep 60"),
    "hangs after its answer": Fault('{real} "$@"\nexec sleep 60', acts=True),
    "slow": Fault('sleep 0.2\nexec {real} "$@"', answers=True, acts=True),
    "dies half-way": Fault(
        'f={folder}/said.$$\n{real} "$@" >"$f"\nn=$(wc -c <"$f")\nhead -c $((n / 2)) "$f"\nrm "$f"\nkill -9 $$',
        acts=True,
    ),
    "dies at once": Fault("kill -9 $$"),
    "dies after its answer": Fault('{real} "$@"\nkill -9 $$', acts=True),
    "says an error, status 0": Fault("echo 'error: something broke'"),
    "status 1, silent": Fault("exit 1"),
    "silent, status 0": Fault("exit 0"),
    "a banner first": Fault('echo "Welcome to {tool} 9.9"\necho\nexec {real} "$@"', acts=True),
    "a warning first": Fault('echo "WARNING: {tool} is old" >&2\nexec {real} "$@"', answers=True, acts=True),
    "stderr only": Fault('exec {real} "$@" >&2', acts=True),
    "a function around it": Fault('{name}() {{ command {real} "$@"; }}\n{name} "$@"', answers=True, acts=True),
    "another program": Fault("exec head -n 20"),  # `cat` would wait for the end of its input, which stays open
}
WHOLE = ("dies after its answer", "a banner first")  # the answer is there, and more or less than that
ENDS = tuple(name for name, fault in FAULTS.items() if fault is None or not fault.answers)
HARMLESS = tuple(name for name, fault in FAULTS.items() if fault and fault.answers)


class Shims:
    """A PATH of two folders: the shims, and links to all programs that were on PATH."""

    def __init__(self, folder: Path, path: str) -> None:
        self.folder, self._farm = folder / "shims", folder / "programs"
        self._calls = folder / "calls"
        self.folder.mkdir(parents=True)
        self._farm.mkdir()
        for each in path.split(os.pathsep):
            for program in os.scandir(each) if os.path.isdir(each) else ():
                link = self._farm / program.name
                if not os.path.lexists(link) and os.access(program.path, os.X_OK) and not program.is_dir():
                    link.symlink_to(program.path)
        self.path = f"{self.folder}{os.pathsep}{self._farm}"

    @contextmanager
    def broken(self, tool: str, name: str, first: int | None = None) -> Iterator[None]:
        """Let a tool fail, or only the first calls of it."""
        fault, link, shim = FAULTS[name], self._farm / tool, self.folder / tool
        real = os.readlink(link)
        self._calls.write_bytes(b"")
        if fault is None or fault.mode != 0o755:
            link.unlink()
        if fault:
            shim.write_text("#!/bin/sh\n" + self._until(real, first) + self._format(fault, tool, real))
            shim.chmod(fault.mode)
        try:
            yield
        finally:
            shim.unlink(missing_ok=True)
            if not os.path.lexists(link):
                link.symlink_to(real)

    def _until(self, real: str, first: int | None) -> str:
        if first is None or not self._calls.exists():
            return ""
        return f'echo x >>{self._calls}\n[ "$(wc -l <{self._calls})" -le {first} ] || exec {real} "$@"\n'

    def _format(self, fault: Fault, tool: str, real: str) -> str:
        name = tool.replace("-", "_")
        return fault.script.format(tool=tool, name=name, real=real, folder=self.folder.parent) + "\n"


def hurry(patches: pytest.MonkeyPatch, seconds: float = SECONDS) -> None:
    """Let every program of this machine, and every question, take no longer than that."""
    run, ask = LocalTransport.run, Site.ask

    def hurried(self: LocalTransport, argv: Any, *, timeout: float, input: str | None = None) -> CommandResult:
        return run(self, argv, timeout=min(timeout, seconds * 2), input=input)

    def asked(self: Site, *questions: Any, timeout: float | None = None) -> Any:
        return ask(self, *(replace(each, limit=min(each.limit, seconds)) for each in questions), timeout=timeout)

    patches.setattr(LocalTransport, "run", hurried)
    patches.setattr(Site, "ask", asked)


def children() -> set[int]:
    """The processes that this one started."""
    found = set[int]()
    for each in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
        with suppress(OSError):  # a thread that ended meanwhile
            found |= {int(pid) for pid in each.read_text().split()}
    return found
