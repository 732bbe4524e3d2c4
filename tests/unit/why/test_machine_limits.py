"""Full disks, processes that were killed for memory, and EFA counters that stand still."""

from __future__ import annotations

import pytest

from training_monitor.core.errors import ParseError
from training_monitor.why.machine_limits import parse_efa_counters, parse_memory_kills, parse_space
from training_monitor.why.ranks import Surroundings

GB = 1_000_000  # of 1000 bytes
SPACE = "Filesystem     1024-blocks     Used Available Capacity Mounted on\n"
INODES = "Filesystem       Inodes   IUsed    IFree IUse% Mounted on\n"


def texts(
    size: int, free: int, *, inodes: str = "1000 10 990 1%", device: str = "/dev/vda", mount: str = "/"
) -> list[str]:
    """What is found of a file system, whose size and free space are in KiB."""
    text = f"{SPACE}{device} {size} {size - free} {free} 9% {mount}\n--\n{INODES}{device} {inodes} {mount}\n"
    seen = parse_space(text)
    assert {each.kind for each in seen.findings} <= {"disk_full"}
    return [each.text for each in seen.findings]


def test_a_disk_is_full_where_little_is_free() -> None:
    for size, free, is_full in [
        (100 * GB, 50 * GB, False),
        (100 * GB, GB + 1, False),
        (100 * GB, GB - 1, True),  # less than 1 %
        (2 * GB, 97_000, True),  # less than 100 MB
        (2 * GB, 98_000, False),
        (65_536, 65_536, False),  # /dev/shm of a container
        (65_536, 7_000, False),
        (65_536, 6_000, True),
        (50_000 * GB, 40 * GB, False),  # less than 1 %, and plenty
        (50_000 * GB, 9 * GB, True),
        (100 * GB, 0, True),
    ]:
        assert bool(texts(size, free)) is is_full


def test_a_full_file_system_is_named_also_where_its_inodes_ran_out() -> None:
    assert texts(10 * GB, 0, device="10.0.0.7:/data set", mount="/mnt/a b") == [
        "the file system at /mnt/a b (10.0.0.7:/data set) is full: 0 B of 9.5 GiB free"
    ]
    assert texts(100 * GB, 50 * GB, inodes="1000 1000 0 100%") == [
        "the file system at / (/dev/vda) has no free inodes, so no new file can be created"
    ]
    assert texts(100 * GB, 50 * GB, inodes="0 0 0 -") == []
    row = f"/dev/vda {100 * GB} {100 * GB} 0 100% /\n"
    assert len(parse_space(f"{SPACE}{row}--\n").findings) == 1
    assert len(parse_space(f"{SPACE}{row.replace(' 0 100%', ' -9 101%')}--\n{INODES}").findings) == 1
    assert len(parse_space(f"{SPACE}{row}--\n{INODES}").findings) == 1
    assert parse_space("absent\n") == Surroundings()
    for text in ["", "--\n", SPACE, f"{SPACE}--\n{INODES}", "df: /: Permission denied\n"]:
        with pytest.raises(ParseError):
            parse_space(text)


def test_kills_for_memory_and_efa_that_stands_still_are_said() -> None:
    [found] = parse_memory_kills("oom=3\n").findings
    assert found.kind == "oom_kill"
    said = "the kernel has killed 3 processes of this cgroup because memory ran out (oom_kill), at an unknown time"
    assert found.text == said
    for text in ("oom=0\n", "", "oom=\n", "oom=x\n"):
        assert parse_memory_kills(text) == Surroundings()
    [found] = parse_efa_counters("efa 16 5000 5000\n").findings
    assert found.kind == "network"
    assert found.text == "no traffic on 16 EFA ports within a second, which is normal while a rank is missing"
    for text in ("efa 0 0 0\n", "efa 16 0 0\n", "efa 16 5000 5001\n"):
        assert parse_efa_counters(text) == Surroundings()
    for text in ("", "efa\n", "efa 16 5000\n"):
        with pytest.raises(ParseError):
            parse_efa_counters(text)
