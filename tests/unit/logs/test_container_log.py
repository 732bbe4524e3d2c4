"""The log of a container: every line once, whatever its times, its restarts and its rotation."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.fakes import EPOCH, FakeClock
from training_monitor.core.errors import CommandFailed
from training_monitor.core.models import LogCursor, NewLog
from training_monitor.logs.sources import CONTAINER_LOG, source_named
from training_monitor.targets.asking import Site
from training_monitor.targets.target import Target

SECOND = "2030-01-01T10:00:"
NOON = 1893492000.0  # 2030-01-01T10:00:00Z


class Cluster:
    """A target whose runtime keeps these lines; like the API, it knows whole seconds only."""

    def __init__(self, lines: str, former: str | None = None) -> None:
        self.lines, self.former, self.asked = lines, former, list[dict[str, Any]]()

    def read_output(self, transport: Any, *, since: str = "", lines: int = 0, former: bool = False) -> str:
        self.asked.append({"since": since, "lines": lines, "former": former})
        if former and self.former is None:
            raise CommandFailed("previous terminated container not found")
        kept = [line for line in ((former and self.former) or self.lines).splitlines(True) if line[:19] >= since[:19]]
        return "".join(kept[-lines:] if lines else kept)


def read(cluster: Cluster, cursor: LogCursor | None = None, now: float = NOON + 60, limit: int = 10_000) -> NewLog:
    question = source_named(CONTAINER_LOG, "its log").read(cursor, limit)
    clock = FakeClock()
    clock.elapsed = now - EPOCH
    assert question.beside
    return question.parse(question.beside(Site(cast(Target, cluster), None, clock)))


def lines(*seconds_and_texts: tuple[str, str]) -> str:
    return "".join(f"{SECOND}{seconds}Z {text}\n" for seconds, text in seconds_and_texts)


def test_a_first_read_gives_the_end_with_its_age_up_to_its_limit() -> None:
    new = read(Cluster(lines(("01.5", "step 1/9"), ("03.25", "step 2/9"))))
    assert (new.text, new.partial, new.age, new.lost) == ("step 1/9\nstep 2/9\n", "", 56.75, None)
    new = read(Cluster(lines(*((f"{second:02}", f"line {second}") for second in range(60)))), limit=20)
    assert new.text == "line 58\nline 59\n" and new.skipped_bytes > 0
    assert read(Cluster("2030-01-01T12:00:30.000000001+02:00 a\n")).age == pytest.approx(30.0)
    new = read(Cluster(lines(("30", "a"))), now=NOON - 3600)
    assert (new.age, new.wrote_at) == (None, NOON + 30)


def test_a_line_is_given_once_also_among_lines_of_one_time() -> None:
    cluster = Cluster(lines(("01.5", "a"), ("01.5", "b")))
    first = read(cluster)
    cluster.lines += lines(("01.5", "c"), ("01.4", "late"), ("02", "d"))
    second = read(cluster, first.cursor)
    third = read(cluster, second.cursor)
    assert (first.text, second.text, third.text) == ("a\nb\n", "c\nlate\nd\n", "")
    assert second.reset is None and [each["former"] for each in cluster.asked] == [False] * 3
    cluster = Cluster(lines(("01", "a")))
    cursor = read(cluster).cursor
    for text in "bcd":
        cluster.lines += lines(("01", text))
        new = read(cluster, cursor)
        assert new.text == f"{text}\n"
        cursor = new.cursor


def test_an_unfinished_line_comes_again_with_its_end() -> None:
    cluster = Cluster(lines(("01", "a")) + f"{SECOND}02Z  10%|#")
    first = read(cluster)
    assert (first.text, first.partial, first.age) == ("a\n", " 10%|#", 58.0)
    cluster.lines += "##\n"
    assert read(cluster, first.cursor).text == " 10%|###\n"


def test_after_a_restart_the_rest_of_the_former_container_comes_first_or_is_lost() -> None:
    cluster = Cluster(lines(("01", "a")))
    cursor = read(cluster).cursor
    cluster.former = cluster.lines + lines(("02", "its last word"))
    cluster.lines = lines(("05", "begins again"))
    new = read(cluster, cursor)
    assert (new.text, new.reset, new.lost) == ("its last word\nbegins again\n", "rotated", None)
    assert read(cluster, new.cursor).text == ""
    for former in [None, lines(("04", "another container's"))]:
        cluster = Cluster(lines(("01", "a")))
        cursor = read(cluster).cursor
        cluster.lines, cluster.former = lines(("05", "b")), former
        new = read(cluster, cursor)
        assert (new.text, new.reset, new.lost) == ("b\n", "rotated", (NOON + 1, NOON + 5))


def test_a_silent_container_has_no_age() -> None:
    cluster = Cluster("")
    first = read(cluster)
    assert (first.text, first.age, first.missing) == ("", None, False)
    cluster.lines = lines(("01", "a"))
    assert read(cluster, first.cursor).text == "a\n"
