"""The disk and the memory behind a log, whatever the target prints."""

from __future__ import annotations

from training_monitor.core.models import Reply
from training_monitor.look.host import LogHost, log_host_question

MEMORY = "MemTotal:       2000 kB\nMemFree:          10 kB\nMemAvailable:    500 kB\nHugePages_Total:       0\n"
HEAD = "Filesystem 1024-blocks Used Available Capacity Mounted on\n"


def parse(text: str) -> LogHost:
    return log_host_question("/log").parse(Reply(text, 0, 0.1))


def test_used_memory_is_that_of_the_container_where_its_limit_is_nearer() -> None:
    found = parse(f"{MEMORY}--\n{HEAD}overlay 1000 600 200 75% /workspace\n--\n/workspace/a b.log")
    assert found == LogHost("/workspace/a b.log", 75.0, 75.0)
    for limit, used in [
        ("limit 1000 used 950 cached 10 40 ", 90.0),
        ("limit 1000 used 400 cached 0", 75.0),
        ("limit max used 950 cached 50", 75.0),
        ("limit 9223372036854771712 used 950 cached 50", 75.0),
        ("limit  used  cached ", 75.0),
    ]:
        assert parse(f"{MEMORY}{limit}\n--\n{HEAD}--\n/a.log").ram_percent == used


def test_the_age_of_a_log_is_by_the_clock_there_and_what_is_odd_is_not_known() -> None:
    for said, age in [
        ("written 1000 now 1600", 600.0),
        ("written 1000 now 990", 0.0),
        ("written 1000 now 900", None),
        ("written  now 1600", None),
        ("", None),
    ]:
        assert parse(f"{MEMORY}{said}\n--\n{HEAD}--\n/workspace/a.log").log_age == age
    for text, expected in [
        ("", LogHost(None, None, None)),
        ("--\n--\n", LogHost(None, None, None)),
        (f"--\n{HEAD}--\n/l", LogHost("/l", None, None)),
        (f"MemTotal: 0 kB\nMemAvailable: 0 kB\n--\n{HEAD}x y z\n--\n", LogHost(None, None, None)),
        (f"MemTotal: 5 kB\n--\n{HEAD}a b 100 0 100 0% /a b\n--\n/a\n--\nb", LogHost("/a\n--\nb", 0.0, None)),
        (f"MemTotal: 5 kB\nMemAvailable: 9 kB\n--\n{HEAD}- 0 0 0 - /\n--\n", LogHost(None, None, 0.0)),
    ]:
        assert parse(text) == expected
