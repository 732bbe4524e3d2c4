"""Processes that wait in the kernel for a disk, and the network file systems that they may wait for. Pure.

State D is also that of a wait for a driver, and of a parent whose child has yet to start its program (vfork).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from training_monitor.core.errors import ParseError
from training_monitor.core.regex import regex
from training_monitor.core.units import name_some
from training_monitor.targets.replies import each_line
from training_monitor.why.ranks import Finding, Surroundings, finding

_BLOCKED = regex(r"blocked (\d{1,10}) (\S{1,100}) ?(.{0,100})", re.ASCII)
_MOUNT = regex(r"mount \d{1,10} \d{1,10} \S{1,30} \S{1,500} (/\S{0,500}) .{0,400}? - (\S{1,40}) (\S{1,300}) .*")
_PATH = regex(r"path (/.*)")
_ESCAPED = regex(r"\\([0-7]{3})")
_MOST_NAMED = 3
_FOR_A_CHILD = frozenset(("kernel_clone", "_do_fork", "do_fork", "wait_for_vfork_done"))


@dataclass
class _Process:
    pid: int
    channel: str
    name: str
    mounts: dict[str, str] = field(default_factory=dict)  # what is mounted there
    paths: list[str] = field(default_factory=list)


def parse_blocked(text: str) -> Surroundings:
    """Parse the reply of `targets/sh/blocked.sh`. Raises ParseError when its end is missing."""
    if not text.endswith("end\n"):
        raise ParseError("the reply is truncated", source="blocked", text=text[-1000:])
    return Surroundings(tuple(map(_say, _read(text))))


def _read(text: str) -> list[_Process]:
    found: list[_Process] = []
    for line in each_line(text):
        if blocked := _BLOCKED.fullmatch(line):
            found.append(_Process(int(blocked[1]), blocked[2], blocked[3]))
        elif found and (mount := _MOUNT.fullmatch(line)):
            found[-1].mounts[_unescape(mount[1])] = f"{_unescape(mount[1])} ({mount[2]} {_unescape(mount[3])})"
        elif found and (path := _PATH.fullmatch(line)):
            found[-1].paths.append(path[1])
    return found


def _unescape(word: str) -> str:
    """Return a word of mountinfo as it is: blanks and backslashes are written as three octal digits."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), word)


def _say(process: _Process) -> Finding:
    channel = f" ({process.channel})" if process.channel != "0" else ""
    is_parent = process.channel in _FOR_A_CHILD
    what = "a vfork child that has not yet started its program" if is_parent else "a disk or a driver"
    text = f"pid {process.pid} ({process.name}) has been waiting for {what}{channel}"
    used = list(dict.fromkeys(_used_mounts(process)))
    if used:
        text += f"; it has open files on {name_some(used, _MOST_NAMED)}"
    elif process.mounts:
        text += f"; network file systems on this host: {name_some(list(process.mounts.values()), _MOST_NAMED)}"
    return finding("blocked", text, pids=(process.pid,))


def _used_mounts(process: _Process) -> Iterator[str]:
    for path in process.paths:
        above = [mount for mount in process.mounts if path == mount or path.startswith(f"{mount.rstrip('/')}/")]
        if above:
            yield process.mounts[max(above, key=len)]
