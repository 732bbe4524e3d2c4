"""Free space of a target's disks."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from training_monitor.errors import ParseError
from training_monitor.models import Question, Reply


@dataclass(frozen=True, slots=True)
class Disk:
    path: str
    free_bytes: int
    used_percent: float


def disk_question(*paths: str) -> Question[tuple[Disk, ...]]:
    """Free space where `paths` lie; a path that is not there is left out."""
    words = " ".join(shlex.quote(path) for path in paths)

    def parse(reply: Reply) -> tuple[Disk, ...]:
        there, _, table = reply.output.rpartition("\n--\n")
        paths, rows = there.split("\n"), [line.split() for line in table.splitlines()[1:]]
        disks = []
        for path, row in zip(paths, rows) if len(paths) == len(rows) else ():
            if len(row) >= 6 and (row[1] + row[2] + row[3]).isdigit():
                used, free = int(row[2]), int(row[3])
                disks.append(Disk(path, free * 1024, 100.0 * used / max(1, used + free)))
        if not disks:
            raise ParseError("no file system in the reply", source="df", text=reply.output)
        return tuple(disks)

    script = f"""set --
for p in {words}; do [ -e "$p" ] && set -- "$@" "$p"; done
printf '%s\\n' "$@" --; df -Pk "$@" 2>/dev/null; :"""
    return Question("disk", script, parse, limit=5.0)
