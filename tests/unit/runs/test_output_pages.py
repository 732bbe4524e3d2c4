"""A window on a file of any size: what is read of it, what is kept, what is shown."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from training_monitor.runs.file_pieces import BLOCK, MAX_READ, PIECE, find_line_starts, render_line
from training_monitor.runs.output_pages import OutputPages
from training_monitor.runs.values import OutputChunk

GIB = 1 << 30


class File:
    """A file on disk that counts what is read of it."""

    def __init__(self, path: Path, data: bytes = b"") -> None:
        self.path, self.reads, self.bytes_read = path, 0, 0
        path.write_bytes(data)

    def add(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)

    def __call__(self, start: int, length: int) -> OutputChunk:
        assert 0 < length <= MAX_READ
        file = os.open(self.path, os.O_RDONLY)
        size = os.fstat(file).st_size
        start = max(0, size + start) if start < 0 else start
        data = os.pread(file, length, start)
        os.close(file)
        self.reads, self.bytes_read = self.reads + 1, self.bytes_read + len(data)
        return OutputChunk(size, start, data)


@pytest.fixture
def make(tmp_path: Path) -> Callable[[bytes], tuple[File, OutputPages]]:
    def make(data: bytes) -> tuple[File, OutputPages]:
        file = File(tmp_path / "log", data)
        pages = OutputPages(file)
        pages.open_at_end(10)
        return file, pages

    return make


Make = Callable[[bytes], tuple[File, OutputPages]]


def numbered(count: int, first: int = 0) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(first, first + count))


def kept(pages: OutputPages) -> int:
    return sum(len(block) for block in pages._blocks.values())


class TestWindow:
    def test_a_place_is_found_in_per_cent_of_the_bytes(self, make: Make) -> None:
        file, pages = make(b"".join(b"%07d\n" % number for number in range(100_000)))
        for percent, first in ((0, "0000000"), (50, "0050000"), (12.34567, "0012345"), (99.0, "0099000")):
            before = file.bytes_read
            pages.to_percent(percent)
            assert pages.lines(3)[0] == first and not pages.is_following
            assert file.bytes_read - before <= 2 * MAX_READ
        pages.to_percent(100)
        assert (pages.is_following, pages.lines(2)) == (True, ["0099998", "0099999"])
        for data in (b"", b"\n", b"no end", b"x" * 3 * PIECE, b"\n" * 50):
            _, pages = make(data)
            for percent in (0, 37, 100):
                pages.to_percent(percent)
                assert len(pages.lines(100)) == len(data.splitlines()) or len(data) > PIECE

    def test_a_file_that_is_short_or_empty_is_shown_whole(self, make: Make) -> None:
        _, pages = make(b"one\ntwo")
        assert pages.lines(10) == ["one", "two"]
        pages.scroll(-5)
        pages.scroll(5)
        assert pages.lines(10) == ["one", "two"]
        assert pages.is_following
        file, pages = make(b"")
        assert (pages.lines(5), pages.is_following) == ([], True)
        assert pages.follow() is False
        file.add(b"first\n")
        assert pages.follow() is True
        assert pages.lines(5) == ["first"]

    def test_scrolling_comes_back_to_the_same_lines_and_both_ends_are_one_step_away(self, make: Make) -> None:
        _, pages = make(numbered(1000))
        pages.lines(10)
        pages.scroll(-300)
        assert pages.lines(10)[0] == "line 690"
        assert (pages.is_following, 0.68 < pages.start / pages.size < 0.7) == (False, True)
        pages.scroll(-40)
        pages.scroll(40)
        assert pages.lines(10)[0] == "line 690"
        pages.scroll(10_000)
        assert pages.lines(10)[-1] == "line 999"
        assert pages.is_following
        _, pages = make(numbered(100_000))
        pages.to_start()
        assert pages.lines(2) == ["line 0", "line 1"]
        assert pages.start == 0
        pages.scroll(-3)
        assert pages.lines(1) == ["line 0"]
        pages.to_end()
        assert pages.lines(2) == ["line 99998", "line 99999"]

    def test_every_line_is_seen_once_in_pages_of_any_height(self, make: Make) -> None:
        random.seed(7)
        lines = ["".join(random.choices("aä█ \t", k=random.choice((0, 3, 80, 900)))) for _ in range(600)]
        text = "\n".join(lines).encode() + b"\n"
        _, pages = make(text)
        for height in (1, 7, 60):
            pages.lines(height)
            pages.to_start()
            seen = [line for line in pages.lines(height)]
            while not pages.is_following:
                before = pages.start
                pages.scroll(height)
                window = pages.lines(height)
                new = text[before : pages.start].count(b"\n")
                seen += window[height - new :]
            assert seen == [render_line(line.encode()) for line in lines]


class TestFollowing:
    def test_only_what_was_appended_is_read_also_more_than_one_read(self, make: Make) -> None:
        file, pages = make(numbered(100_000))
        pages.lines(10)
        before = file.bytes_read
        file.add(b"more\n")
        assert pages.follow() is True
        assert pages.lines(2) == ["line 99999", "more"]
        assert file.bytes_read - before <= 256 + len(b"more\n")
        assert pages.follow() is False
        file, pages = make(numbered(10))
        pages.lines(3)
        file.add(numbered(200_000, 10))
        pages.follow()
        assert pages.lines(2) == ["line 200008", "line 200009"]
        pages.to_start()
        assert pages.lines(12)[9:] == ["line 9", "line 10", "line 11"]

    def test_a_line_that_is_written_in_parts_is_shown_as_far_as_it_is(self, make: Make) -> None:
        file, pages = make(b"one\ntw")
        assert pages.lines(5) == ["one", "tw"]
        file.add("o ä".encode()[:-1])
        pages.follow()
        assert pages.lines(5) == ["one", "two \ufffd"]
        file.add("ä".encode()[1:] + b"\n")
        pages.follow()
        assert pages.lines(5) == ["one", "two ä"]

    def test_a_file_that_is_truncated_or_replaced_begins_again_and_says_so(self, make: Make) -> None:
        file, pages = make(numbered(1000))
        pages.lines(5)
        file.path.write_bytes(b"new\n")
        assert pages.follow() is True
        assert "smaller" in pages.notice
        assert pages.lines(5) == ["new"]
        assert pages.notice == ""
        file, pages = make(numbered(400_000))
        pages.lines(5)
        file.path.write_bytes(numbered(3))
        pages.to_start()  # amid scrolling
        assert "smaller" in pages.notice
        assert pages.lines(5) == ["line 0", "line 1", "line 2"]
        file, pages = make(numbered(100))
        pages.lines(5)
        file.path.write_bytes(numbered(500, 7000))
        assert pages.follow() is True
        assert "replaced" in pages.notice
        assert pages.lines(1) == ["line 7499"]
        pages.to_start()
        assert pages.lines(1) == ["line 7000"]


class TestSize:
    def test_five_gibibytes_are_opened_by_one_read_of_the_end(self, make: Make) -> None:
        file, _ = make(b"")
        os.truncate(file.path, 5 * GIB)
        file.add(b"\n" + numbered(20_000))
        file.reads = file.bytes_read = 0
        pages = OutputPages(file)
        pages.open_at_end(50)
        assert pages.lines(50)[-1] == "line 19999"
        assert (file.reads, file.bytes_read) == (1, 2 * BLOCK)
        pages.scroll(-10_000)
        assert pages.lines(50)[0] == "line 9950"
        assert file.bytes_read < 8 * BLOCK
        pages.to_start()
        assert pages.start == 0
        assert file.bytes_read < 12 * BLOCK

    def test_memory_is_bounded_whatever_is_scrolled(self, tmp_path: Path) -> None:
        file = File(tmp_path / "log", numbered(400_000))
        pages = OutputPages(file, keep_bytes=1)
        pages.open_at_end(50)
        while pages.start:
            pages.scroll(-8000)
            assert kept(pages) <= 512 * 1024

    def test_a_hundred_megabytes_without_a_line_end_come_in_pieces(self, make: Make) -> None:
        file, _ = make(b"first\n")
        os.truncate(file.path, 100_000_000)
        file.add(b"\nlast\n")
        pages = OutputPages(file)
        file.bytes_read = 0
        pages.open_at_end(20)
        window = pages.lines(20)
        assert window[-1] == "last"
        assert all(len(line) <= 2 * PIECE for line in window)
        pages.scroll(-5)
        pages.scroll(5)
        assert pages.lines(20) == window
        assert file.bytes_read < 12 * BLOCK

    def test_the_pieces_of_a_long_line_add_up_and_break_no_character(self, make: Make) -> None:
        line = "ä█x" * 20_000
        _, pages = make(f"before\n{line}\nafter\n".encode())
        pages.to_start()
        window = pages.lines(100)
        assert (window[0], window[-1], "".join(window[1:-1])) == ("before", "after", line)
        pages.to_end()
        pages.lines(3)
        pages.scroll(-1000)
        assert pages.lines(100) == window


class TestLines:
    def test_line_starts_are_the_same_wherever_reading_begins(self) -> None:
        random.seed(3)
        parts = [random.choice(("\n", "ä" * 5000, "x" * 9000, "short\n", "█")) for _ in range(60)]
        data = "".join(parts).encode()
        whole = find_line_starts(data, 0, 0, len(data))
        assert whole[0] == 0 and all(0 < b - a <= 2 * PIECE + 3 for a, b in zip(whole, whole[1:]))
        for first in range(0, len(data), 997):
            begin = max(0, first - PIECE - 4)
            end = min(len(data), first + 30_000)
            found = find_line_starts(data[begin:end], begin, first, end)
            assert found == [start for start in whole if first <= start < end]

    def test_a_line_is_shown_as_it_is_seen_at_last_in_linear_time(self) -> None:
        for data, shown in [
            (b" 10%|#\r 20%|##\r 30%|###\n", " 30%|###"),
            (b" 10%|#\r 20%|##\r", " 20%|##"),
            (b"dos\r\n", "dos"),
            (b"\x1b[31mred\x1b[0m \x1b]0;title\x07text\x1b[K\n", "red text"),
            (b"took [12m]\n", "took [12m]"),
            (b"a\tb\n", "a       b"),
            (b"\xff\xfe \xe2\x96\n", "\ufffd\ufffd \ufffd"),
            (b"\n", ""),
        ]:
            assert render_line(data) == shown, data
        assert len(render_line(b"\x1b]" * PIECE)) <= 2 * PIECE


class TestMatches:
    def test_a_search_begins_at_what_is_seen_and_goes_on_at_its_own_match(self, make: Make) -> None:
        _, pages = make(numbered(1000))
        pages.lines(10)
        assert pages.search_start("line", backwards=True) == pages.size
        pages.scroll(-500)
        (first, last) = (numbered(490), numbered(500))
        assert pages.search_start("line", backwards=False) == len(first)
        assert pages.search_start("line", backwards=True) == len(last)
        match = (len(numbered(100)), len(numbered(101)))
        assert pages.show_match(match, "LINE 100") and pages.lines(10)[0] == "line 100"
        assert [pages.search_start("LINE 100", backwards=way) for way in (True, False)] == list(match)
        assert pages.search_start("other", backwards=True) == len(numbered(110))
        pages.scroll(1)
        assert pages.search_start("LINE 100", backwards=False) == pages.start

    def test_a_match_stays_on_the_screen_and_one_that_is_gone_moves_nothing(self, make: Make) -> None:
        file, pages = make(numbered(100))
        shown = pages.lines(10)
        assert pages.show_match((len(numbered(95)), len(numbered(96))), "line 95") and pages.lines(10) == shown
        file.add(numbered(50, 100))
        pages.follow()
        assert pages.lines(10) == shown and not pages.is_following
        pages.to_end()
        assert pages.lines(10)[-1] == "line 149"
        file, pages = make(numbered(1000))
        pages.scroll(-500)
        shown = pages.lines(10)
        assert not pages.show_match((0, 7), "needle") and pages.lines(10) == shown
        file.path.write_bytes(b"short\n")
        assert not pages.show_match((len(numbered(900)), len(numbered(901))), "line 900")
        assert "smaller" in pages.notice and pages.lines(10) == ["short"]
