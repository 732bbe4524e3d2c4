"""What the viewer reads, and when: the windows of two files of any size, out of pieces."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from tests.unit.fleet.fleet_world import eventually
from tests.unit.ui.top_runs import run
from training_monitor.core.errors import TrainingMonitorError
from training_monitor.runs.file_pieces import MAX_READ
from training_monitor.runs.values import FolderLook, OutputChunk, Run, RunSize
from training_monitor.targets.proc_stat import Identity
from training_monitor.ui.kit.view import Do
from training_monitor.ui.top.reader import OutputReader
from training_monitor.ui.top.view import Pane

PATIENCE = 60.0
RUN = run("llama", stdout_path="/out", stderr_path="/err")


@dataclass
class Files:
    """A source of files in memory; `error` is what reading raises."""

    data: dict[str, bytes]
    error: str = ""
    reads: list[str] = field(default_factory=list)

    def read_output(self, path: str, start: int, length: int) -> OutputChunk:
        self.reads.append(path)
        if self.error:
            raise TrainingMonitorError(self.error)
        data = self.data[path]
        start = max(0, len(data) + start) if start < 0 else start
        return OutputChunk(len(data), start, data[start : start + length])

    def look(self, threads_of: frozenset[int]) -> FolderLook:
        raise NotImplementedError

    def edit(self, run: Run, values: Mapping[str, str]) -> str:
        raise NotImplementedError

    def send_signal(self, processes: tuple[Identity, ...], number: int) -> tuple[str, ...]:
        raise NotImplementedError

    def measure(self, run: Run) -> RunSize:
        raise NotImplementedError

    def delete(self, run: Run) -> None:
        raise NotImplementedError


def lines(count: int, start: int = 0) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(start, start + count))


@pytest.fixture
def files() -> Files:
    return Files({"/out": lines(1000), "/err": b"warning: slow\n"})


def look(reader: OutputReader, *wishes: Do) -> Pane:
    """The first pane once these wishes are done."""
    for wish in wishes:
        reader.ask(wish)
    reader.look("")
    return reader.panes[0]


def opened(files: Files, shown: str = "stdout", height: int = 3) -> OutputReader:
    reader = OutputReader(files, RUN, lambda: None)
    reader.put_on_screen(shown, height)
    look(reader)
    return reader


def test_it_opens_at_the_end_and_follows_what_is_appended(files: Files) -> None:
    reader = opened(files)
    assert reader.panes[0].lines == ("line 997", "line 998", "line 999") and reader.panes[0].follows
    assert {*files.reads} == {"/out"} and reader.panes[1].size is None
    files.data["/out"] += b"one more\n"
    pane = look(reader)
    assert pane.lines[-1] == "one more" and pane.size == len(files.data["/out"])
    reader.put_on_screen("both", 3)
    look(reader)
    assert reader.panes[1].lines == ("warning: slow",)


def test_wishes_are_done_in_their_order_and_scrolling_ends_the_following(files: Files) -> None:
    reader = opened(files)
    pane = look(reader, Do("start"), Do("move", 5), Do("move", -1))
    assert pane.lines == ("line 4", "line 5", "line 6") and not pane.follows
    files.data["/out"] += b"one more\n"
    assert look(reader).lines[0] == "line 4"
    pane = look(reader, Do("end"))
    assert pane.lines[-1] == "one more" and pane.follows


def searched(reader: OutputReader, name: str, words: str) -> Pane:
    """The pane once a search has ended."""
    look(reader, Do(name, words))
    assert eventually(lambda: reader.panes[0].searching is None, PATIENCE)
    return look(reader)


NONE_BEFORE = "before this position; search again to start from the end"


def test_a_search_says_what_came_of_it_until_the_next_wish(files: Files) -> None:
    reader = opened(files)
    pane = searched(reader, "search-back", "line 998")
    assert pane.note == "found line 998" and "line 998" in pane.lines  # it was on the screen already
    pane = searched(reader, "search-back", "LINE 500")
    assert pane.lines[0] == "line 500" and pane.note == "found LINE 500" and not pane.follows
    assert look(reader).note == "found LINE 500"
    pane = searched(reader, "search-back", "line 9999")
    assert pane.note == f"no line 9999 {NONE_BEFORE}" and pane.lines[0] == "line 500"
    assert look(reader, Do("move", 1)).note == ""


def test_a_search_wraps_only_when_asked_again(files: Files) -> None:
    files.data["/out"] = lines(500) + b"needle\n" + lines(500)
    reader = opened(files)
    reader.ask(Do("start"))
    pane = searched(reader, "search-back", "needle")
    assert (pane.lines[0], pane.note) == ("line 0", f"no needle {NONE_BEFORE}")
    pane = searched(reader, "search-back", "needle")
    assert (pane.lines[0], pane.note) == ("needle", "found needle, searching from the end")
    pane = searched(reader, "search-on", "needle")
    assert pane.note == "no needle after this position; search again to start from the beginning"
    assert searched(reader, "search-on", "needle").note == "found needle, searching from the beginning"


def test_a_search_without_a_match_covers_both_parts(files: Files) -> None:
    reader = opened(files)
    reader.ask(Do("start"))
    assert "before this position" in searched(reader, "search-back", "nothing").note
    assert searched(reader, "search-back", "nothing").note == "no nothing in the whole file"
    assert "before this position" in searched(reader, "search-back", "nothing").note


@pytest.mark.parametrize("jump", [Do("end"), Do("move", 10_000)])
def test_other_words_and_a_jump_begin_anew_from_what_is_seen(files: Files, jump: Do) -> None:
    files.data["/out"] = b"red\n" + lines(500) + b"blue\n" + lines(500) + b"red\nblue\n"
    reader = opened(files)
    reader.ask(Do("start"))
    assert "before this position" in searched(reader, "search-back", "blue").note
    assert searched(reader, "search-back", "red").note == "found red"
    assert "before this position" in searched(reader, "search-back", "red").note
    reader.ask(jump)
    pane = searched(reader, "search-back", "red")
    assert pane.note == "found red" and pane.lines[-2:] == ("red", "blue")
    assert searched(reader, "search-back", "blue").note == "found blue" and reader.panes[0].lines[-1] == "blue"


class Slow(Files):
    """Files in which reading far from the end waits for `go_on`."""

    def __init__(self, data: dict[str, bytes]) -> None:
        super().__init__(data)
        self.go_on, self.is_reading = threading.Event(), threading.Event()

    def read_output(self, path: str, start: int, length: int) -> OutputChunk:
        if 0 < start < len(self.data[path]) - 3 * MAX_READ:
            self.is_reading.set()
            assert self.go_on.wait(PATIENCE)
        return super().read_output(path, start, length)


@pytest.fixture
def slow() -> Iterator[Slow]:
    files = Slow({"/out": b"needle\n" + lines(300_000), "/err": b""})
    yield files
    files.go_on.set()


def searching(slow: Slow) -> OutputReader:
    """A reader whose search waits for a piece."""
    reader = opened(slow)
    look(reader, Do("search-back", "needle"))
    assert slow.is_reading.wait(PATIENCE)
    return reader


def after_its_end(reader: OutputReader, slow: Slow) -> Pane:
    """The pane once the thread of a search is gone."""
    slow.go_on.set()
    assert eventually(lambda: not any("search" in each.name for each in threading.enumerate()), PATIENCE)
    return look(reader)


def test_a_search_shows_how_far_it_is_and_the_window_is_read_meanwhile(slow: Slow) -> None:
    reader = searching(slow)
    state = reader.panes[0].searching
    assert state is not None and 0 < state.searched < state.total == len(slow.data["/out"])
    slow.data["/out"] += b"one more\n"
    pane = look(reader)
    assert pane.lines[-1] == "one more" and pane.searching is not None
    slow.go_on.set()
    assert eventually(lambda: reader.panes[0].searching is None, PATIENCE)
    pane = look(reader)
    assert pane.lines[0] == "needle" and pane.note == "found needle"


def test_a_search_that_is_ended_ends_at_once_and_moves_nothing_later(slow: Slow) -> None:
    reader = searching(slow)
    shown = reader.panes[0].lines
    reader.stop_searches()
    assert reader.panes[0].searching is None
    pane = after_its_end(reader, slow)
    assert (pane.lines, pane.note) == (shown, "")


@pytest.mark.parametrize("wish", [Do("start"), Do("move", -1), Do("search-back", "line 2999")])
def test_a_jump_or_another_search_ends_the_one_under_way(slow: Slow, wish: Do) -> None:
    reader = searching(slow)
    look(reader, wish)
    assert "needle" not in after_its_end(reader, slow).note


def test_what_ends_a_search_is_told_and_the_window_stays(files: Files) -> None:
    files.data["/out"] = lines(300_000)
    reader = opened(files)
    look(reader, Do("start"))
    files.error = "permission denied"
    reader.ask(Do("search-on", "nothing"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "refresh", lambda: None)
        look(reader)
        assert eventually(lambda: reader.panes[0].searching is None, PATIENCE)
    files.error = ""
    pane = look(reader)
    assert pane.note == "permission denied" and pane.lines[0] == "line 0"


def test_a_file_that_was_truncated_is_told_and_shown_anew(files: Files) -> None:
    reader = opened(files)
    files.data["/out"] = b"fresh\n"
    pane = look(reader)
    assert pane.lines == ("fresh",) and "truncated or replaced" in pane.note


def test_an_error_is_told_until_reading_works_again(files: Files) -> None:
    reader = opened(files)
    files.error = "no answer"
    pane = look(reader)
    assert pane.error == "no answer" and len(pane.lines) == 3
    files.error = ""
    assert look(reader).error == ""
    files.error = "permission denied"
    reader = opened(files)
    assert reader.panes[0].error == "permission denied" and reader.panes[0].lines == ()
    files.error = ""
    assert look(reader).lines[-1] == "line 999"


def test_a_run_without_output_files_reads_nothing(files: Files) -> None:
    reader = OutputReader(files, run("bare", stdout_path=None, stderr_path=None), lambda: None)
    reader.put_on_screen("both", 3)
    look(reader, Do("start"))
    assert files.reads == [] and [pane.path for pane in reader.panes] == [None, None]


def test_whoever_draws_is_told_of_every_change_until_it_is_closed(files: Files) -> None:
    for closes, count in ((False, 1), (True, 0)):
        told: list[int] = []
        reader = OutputReader(files, RUN, lambda told=told: told.append(1))
        reader.put_on_screen("stdout", 3)
        if closes:
            reader.close()
        look(reader)
        look(reader)
        assert len(told) == count and bool(reader.panes[0].lines) is not closes


def test_the_thread_reads_what_is_asked_for_and_ends_when_it_is_closed(files: Files) -> None:
    read = threading.Event()
    reader = OutputReader(files, RUN, read.set)
    reader.start()
    reader.put_on_screen("stdout", 3)
    assert read.wait(30.0) and reader.panes[0].lines[-1] == "line 999"
    read.clear()
    reader.ask(Do("start"))
    assert read.wait(30.0) and reader.panes[0].lines[0] == "line 0"
    reader.close()
