"""What a machine has run out of: memory, space on its disks, and a network whose counters stand still. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from training_monitor.core.errors import ParseError
from training_monitor.core.regex import regex
from training_monitor.core.units import format_bytes, plural
from training_monitor.why.ranks import Finding, Surroundings, finding

FULL_BYTES, FULL_SHARE = 100_000_000, 0.01  # free
_LARGE = 10_000_000_000  # bytes that are enough, however small a share of a large file system they are
_ROW = regex(r"(\S.{0,500}?)\s+(\d{1,18})\s+(\d{1,18})\s+(-?\d{1,18})\s+(?:\d{1,3}%|-)\s+(/.*)", re.ASCII)
_KILLS = regex(r"oom=(\d{1,18})\n", re.ASCII)
_COUNTERS = regex(r"efa (\d{1,6}) (\d{1,40}) (\d{1,40})\n", re.ASCII)


def parse_space(text: str) -> Surroundings:
    """Parse `df -Pk` and `df -Pi` of one path, with `--` between them. Raises ParseError without a row."""
    if text == "absent\n":
        return Surroundings()
    space, _, inodes = text.partition("--\n")
    rows = [row for part in (space, inodes) if (row := _last_row(part))]
    if not space or not rows:
        raise ParseError("no file system in the reply", source="df", text=text[-1000:])
    return Surroundings(tuple(_say_full(_last_row(space), _last_row(inodes))))


def _last_row(table: str) -> Sequence[str] | None:
    found = [row.groups() for line in table.splitlines() if (row := _ROW.fullmatch(line))]
    return found[-1] if found else None


def _say_full(space: Sequence[str] | None, inodes: Sequence[str] | None) -> Iterator[Finding]:
    if space:
        device, size, free, mount = space[0], int(space[1]) * 1024, max(0, int(space[3])) * 1024, space[4]
        if size and (free < min(FULL_BYTES, size / 10) or free < min(_LARGE, size * FULL_SHARE)):
            what = f"{format_bytes(free)} of {format_bytes(size)} free"
            yield finding("disk_full", f"the file system at {mount} ({device}) is full: {what}")
    if inodes and int(inodes[1]) and int(inodes[3]) <= 0:
        yield finding(
            "disk_full",
            f"the file system at {inodes[4]} ({inodes[0]}) has no free inodes, so no new file can be created",
        )


def parse_memory_kills(text: str) -> Surroundings:
    """Parse the counter of processes that were killed for memory; nothing where the kernel does not count them."""
    counted = _KILLS.fullmatch(text)
    count = int(counted[1]) if counted else 0
    if not count:
        return Surroundings()
    what = (
        f"the kernel has killed {plural(count, 'process', 'processes')} of this cgroup because memory ran out "
        "(oom_kill), at an unknown time"
    )
    return Surroundings((finding("oom_kill", what),))


def parse_efa_counters(text: str) -> Surroundings:
    """Parse the bytes that all EFA ports moved, a second apart. Raises ParseError for anything else."""
    read = _COUNTERS.fullmatch(text)
    if not read:
        raise ParseError("no counters in the reply", source="efa", text=text[-1000:])
    ports, before, after = map(int, read.groups())
    if not ports or not before or before != after:
        return Surroundings()
    what = f"no traffic on {plural(ports, 'EFA port')} within a second, which is normal while a rank is missing"
    return Surroundings((finding("network", what),))
