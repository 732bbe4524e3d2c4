"""Free space of a target's disks, and how full its memory is."""

from __future__ import annotations

import re
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


@dataclass(frozen=True, slots=True)
class LogHost:
    """Where a log lies: its path there (None: there is no such file), the disk under it (else the one under `/`) and
    the memory of the machine, in per cent; `log_age` is how many seconds ago it was written to, by the clock there.
    None is not known."""

    log_path: str | None
    disk_percent: float | None
    ram_percent: float | None
    log_age: float | None = None


_LOG_HOST = r"""
file=FILE
[ -e "$file" ] || file=
cat /proc/meminfo 2>/dev/null
[ "$file" ] && echo "written $(stat -L -c %Y "$file" 2>/dev/null) now $(date +%s)"
echo --
df -Pk "${file:-/}" 2>/dev/null
echo --
printf '%s' "$file"
"""


def log_host_question(expression: str) -> Question[LogHost]:
    """The disk and the memory behind the log that a shell expression names, and when that was written to."""

    def parse(reply: Reply) -> LogHost:
        memory, _, rest = reply.output.partition("--\n")
        table, _, path = rest.partition("--\n")
        return LogHost(path or None, _read_disk(table), _read_memory(memory), _read_age(memory))

    return Question("host", _LOG_HOST.replace("FILE", expression, 1), parse, limit=5.0)


def _read_disk(table: str) -> float | None:
    """Used per cent of the last row of `df -P`, whose mount point may hold anything."""
    found = re.findall(r"^\S.*?\s+\d+\s+(\d+)\s+(\d+)\s+\d+%\s", table, re.MULTILINE)
    if not found:
        return None
    used, free = (int(number) for number in found[-1])
    return 100.0 * used / max(1, used + free)


def _read_memory(text: str) -> float | None:
    """Used per cent by /proc/meminfo: of the total, what is not available to a new program."""
    sizes = {name: int(size) for name, size in re.findall(r"^(\w+):\s+(\d{1,15}) kB$", text, re.MULTILINE)}
    total, available = sizes.get("MemTotal"), sizes.get("MemAvailable")
    return None if not total or available is None else 100.0 * max(0.0, 1 - available / total)


def _read_age(text: str) -> float | None:
    """Seconds since the log was written to; a file of the future was written to just now."""
    found = re.search(r"^written (\d{1,12}) now (\d{1,12})$", text, re.MULTILINE)
    return max(0.0, float(int(found[2]) - int(found[1]))) if found else None
