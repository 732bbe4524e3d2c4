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
        disks = []
        for line in reply.output.splitlines():
            path, tab, rest = line.rpartition("\t")
            parts = rest.split()
            if not tab or len(parts) < 6 or not (parts[1] + parts[3]).isdigit():
                continue
            used, free = int(parts[2]), int(parts[3])
            disks.append(Disk(path, free * 1024, 100.0 * used / max(1, used + free)))
        if not disks:
            raise ParseError("no file system in the reply", source="df", text=reply.output)
        return tuple(disks)

    script = f'for p in {words}; do [ -e "$p" ] && printf "%s\\t%s\\n" "$p" "$(df -Pk "$p" 2>/dev/null | tail -n 1)"; done; :'
    return Question("disk", script, parse, limit=5.0)
