"""Processes of a target, a line for each: what `probes/process_table.py` makes of /proc/PID/stat. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_LINE = re.compile(r"proc (\d{1,10}) ([A-Za-z])((?: -?\d{1,19}){8}) (.*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Process:
    """One process: times are in clock ticks, `start` since the boot; `child_ticks` are of children that have ended."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    ticks: int
    child_ticks: int
    start: int
    name: str

    @property
    def is_running(self) -> bool:
        """Whether it has not ended: a zombie has."""
        return self.state not in "ZXx"


def parse_process(line: str) -> Process | None:
    """Read `proc PID STATE PARENT GROUP SESSION UTIME STIME CUTIME CSTIME START NAME`; None of any other line."""
    found = _LINE.fullmatch(line)
    if not found:
        return None
    parent, group, session, user, system, child_user, child_system, start = map(int, found[3].split())
    own, ended = max(0, user) + max(0, system), max(0, child_user) + max(0, child_system)
    return Process(int(found[1]), found[2], parent, group, session, own, ended, start, found[4])


def read_processes(lines: Iterable[str]) -> dict[int, Process]:
    """The processes of the lines by pid; other lines are left out."""
    return {process.pid: process for line in lines if (process := parse_process(line))}


def ancestors_of(pid: int, table: Mapping[int, Process]) -> list[int]:
    """The pids of the table that are above a process, the nearest first."""
    found: list[int] = []
    while (process := table.get(pid)) and process.parent not in found and process.parent in table:
        pid = process.parent
        found.append(pid)
    return found
