"""A search of a whole file, forward and backward: what it finds, what it reads, and how it ends."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest

from tests.unit.runs.test_output_pages import File, numbered
from training_monitor.core.errors import TrainingMonitorError
from training_monitor.runs.file_pieces import BLOCK, MAX_READ, PIECE, Replaced, contains, may_contain, render_line
from training_monitor.runs.output_search import OutputSearch
from training_monitor.runs.values import OutputChunk

GIB = 1 << 30


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(tmp_path / "log")


def search(file: File, words: str, start: int = 0, *, backwards: bool = False) -> OutputSearch:
    return OutputSearch(file, words, start, file.path.stat().st_size, backwards=backwards)


def found(file: File, one: OutputSearch) -> str | None:
    """The line that a search finds."""
    span = one.run(lambda: None)
    return None if span is None else render_line(file.path.read_bytes()[slice(*span)])


def test_every_line_is_found_in_turn_in_either_direction(file: File) -> None:
    data = b"".join(b"Error %d\n" % n if n % 1000 == 0 else b"line %d\n" % n for n in range(50_000))
    file.path.write_bytes(data)
    expected = [span.span() for span in re.finditer(rb"Error .*\n", data)]
    for backwards, at, spans in ((False, 0, expected), (True, len(data), expected[::-1])):
        seen = []
        while span := search(file, "eRRor", at, backwards=backwards).run(lambda: None):
            seen.append(span)
            at = span[0] if backwards else span[1]
        assert seen == spans


def test_nothing_is_missed_wherever_pieces_are_cut(file: File) -> None:
    rng = random.Random(5)
    for _ in range(40):
        parts = [rng.choice(["x" * rng.randrange(30_000), "ä" * rng.randrange(9000), "short"]) for _ in range(60)]
        at = rng.randrange(len(parts))
        parts[at] = f"{parts[at][:5000]}needle"
        data = "\n".join(parts).encode()
        file.path.write_bytes(data)
        for backwards in (False, True):
            line = found(file, search(file, "NEEDLE", len(data) if backwards else 0, backwards=backwards))
            assert line is not None and line.endswith("needle")


def test_searching_gibibytes_reads_each_piece_once(file: File) -> None:
    os.truncate(file.path, GIB)
    file.add(b"\nneedle\n")
    size = file.path.stat().st_size
    for backwards, words in ((False, "needle"), (True, "nowhere")):
        one, most = search(file, words, size if backwards else 0, backwards=backwards), 0
        file.reads = file.bytes_read = 0

        def tell(one: OutputSearch = one) -> None:
            nonlocal most
            most = max(most, sum(map(len, one._blocks.values())))

        assert (one.run(tell) is None) is backwards
        assert file.reads <= size // (MAX_READ - BLOCK) + 2 and file.bytes_read <= size * 3 // 2
        assert 0 < most <= 512 * 1024


def test_it_says_how_far_it_is_and_stops_before_the_next_read(file: File) -> None:
    file.path.write_bytes(numbered(400_000))
    one = search(file, "needle")
    seen: list[int] = []
    reads: list[int] = []

    def tell() -> None:
        seen.append(one.searched)
        if len(seen) == 3:
            reads.append(file.reads)
            one.stop()

    assert one.run(tell) is None and one.is_stopped
    assert seen == sorted({*seen}) and len(seen) == 3 and seen[-1] < one.total == file.path.stat().st_size
    assert file.reads == reads[0]


def test_it_searches_what_is_appended_meanwhile_also_amid_a_line(tmp_path: Path) -> None:
    class Growing(File):
        """It gets some more whenever it is read."""

        rest = [b"dle in a line", b" that grows\n"]

        def __call__(self, start: int, length: int) -> OutputChunk:
            if self.rest:
                self.add(self.rest.pop(0))
            return super().__call__(start, length)

    file = Growing(tmp_path / "log", numbered(10) + b"nee")
    assert found(file, search(file, "needle")) in ("needle in a line", "needle in a line that grows")


def test_a_file_that_is_cut_or_goes_away_ends_it_with_the_reason(file: File) -> None:
    def cut() -> None:
        file.path.write_bytes(b"new\n")

    file.path.write_bytes(numbered(400_000))
    with pytest.raises(Replaced, match="became smaller"):
        search(file, "needle").run(cut)

    def fail(start: int, length: int) -> OutputChunk:
        raise TrainingMonitorError("the file is gone")

    with pytest.raises(TrainingMonitorError, match="the file is gone"):
        OutputSearch(fail, "needle", 1000, 1000, backwards=True).run(lambda: None)


def test_a_line_longer_than_a_piece_is_found_and_an_empty_direction_has_no_match(file: File) -> None:
    assert search(file, "x").run(lambda: None) is None
    file.path.write_bytes(b"x\n")
    assert search(file, "x", 0, backwards=True).run(lambda: None) is None
    assert search(file, "x", 2).run(lambda: None) is None
    file.path.write_bytes(b"x" * 3 * PIECE + b"needle" + b"y" * 3 * PIECE + b"\n")
    line = found(file, search(file, "needle"))
    assert line is not None and "needle" in line and len(line) <= 2 * PIECE


SEEN = (
    (b"\x1b[31mlo\x1b[0mss: 5\n", "LOSS: 5", True),
    (b"\x1b[31mred\x1b[0m\n", "[31m", False),
    (b"a\tb\n", "a       b", True),
    ("Über Straße\n".encode(), "über STRASSE", True),
    (b"10%\r20%\n", "20%", True),
    (b"10%\r20%\n", "10%", False),
    (b"plain\n", "PLAIN", True),
    (b"\x1b]a title without an end\nneedle\n", "needle", True),
    (b"\x1b]a title\rneedle\x07\n", "needle", True),
)


def test_what_is_seen_is_found_and_not_what_colours_or_hides_it(subtests: pytest.Subtests, file: File) -> None:
    for line, words, is_seen in SEEN:
        with subtests.test(line=line, words=words):
            lines = [each for each in re.findall(rb"[^\n]*\n", line) if contains(each, words)]
            assert bool(lines) is is_seen
            assert may_contain(words)(b"before\n" + line + b"behind\n") >= is_seen
            file.path.write_bytes(numbered(50) + line + numbered(50))
            assert found(file, search(file, words)) == (render_line(lines[0]) if lines else None)
