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


def opened(files: Files, shown: str = "stdout", height: int = 3) -> OutputReader:
    reader = OutputReader(files, RUN, lambda: None)
    reader.put_on_screen(shown, height)
    reader.look("")
    return reader


def test_it_opens_at_the_end_and_follows_what_is_appended(files: Files) -> None:
    reader = opened(files)
    assert reader.panes[0].lines == ("line 997", "line 998", "line 999") and reader.panes[0].follows
    files.data["/out"] += b"one more\n"
    reader.look("")
    assert reader.panes[0].lines[-1] == "one more" and reader.panes[0].size == len(files.data["/out"])


def test_only_the_output_on_the_screen_is_read(files: Files) -> None:
    reader = opened(files)
    assert {*files.reads} == {"/out"} and reader.panes[1].size is None
    reader.put_on_screen("both", 3)
    reader.look("")
    assert reader.panes[1].lines == ("warning: slow",)


def test_wishes_are_done_in_their_order_and_scrolling_ends_the_following(files: Files) -> None:
    reader = opened(files)
    for wish in (Do("start"), Do("move", 5), Do("move", -1)):
        reader.ask(wish)
    reader.look("")
    assert reader.panes[0].lines == ("line 4", "line 5", "line 6") and not reader.panes[0].follows
    files.data["/out"] += b"one more\n"
    reader.look("")
    assert reader.panes[0].lines[0] == "line 4"
    reader.ask(Do("end"))
    reader.look("")
    assert reader.panes[0].lines[-1] == "one more" and reader.panes[0].follows


def searched(reader: OutputReader, name: str, words: str) -> Pane:
    """The pane once a search has ended."""
    reader.ask(Do(name, words))
    reader.look("")
    assert eventually(lambda: reader.panes[0].searching is None, PATIENCE)
    reader.look("")
    return reader.panes[0]


def test_a_search_says_what_came_of_it_until_the_next_wish(files: Files) -> None:
    reader = opened(files)
    pane = searched(reader, "search-back", "LINE 500")
    assert pane.lines[0] == "line 500" and pane.note == "found LINE 500" and not pane.follows
    reader.look("")
    assert reader.panes[0].note == "found LINE 500"
    pane = searched(reader, "search-back", "line 9999")
    assert (
        pane.note == "no line 9999 before this position; search again to start from the end"
        and pane.lines[0] == "line 500"
    )
    reader.ask(Do("move", 1))
    reader.look("")
    assert reader.panes[0].note == ""


def test_a_match_that_is_on_the_screen_already_is_found(files: Files) -> None:
    pane = searched(opened(files), "search-back", "line 998")
    assert pane.note == "found line 998" and "line 998" in pane.lines


def test_a_search_wraps_only_when_asked_again(files: Files) -> None:
    files.data["/out"] = lines(500) + b"needle\n" + lines(500)
    reader = opened(files)
    reader.ask(Do("start"))
    assert (
        searched(reader, "search-back", "needle").note
        == "no needle before this position; search again to start from the end"
    )
    assert reader.panes[0].lines[0] == "line 0"
    pane = searched(reader, "search-back", "needle")
    assert (pane.lines[0], pane.note) == ("needle", "found needle, searching from the end")
    assert (
        searched(reader, "search-on", "needle").note
        == "no needle after this position; search again to start from the beginning"
    )
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
    reader.ask(Do("search-back", "needle"))
    reader.look("")
    assert slow.is_reading.wait(PATIENCE)
    return reader


def test_a_search_shows_how_far_it_is_and_the_window_is_read_meanwhile(slow: Slow) -> None:
    reader = searching(slow)
    state = reader.panes[0].searching
    assert state is not None and 0 < state.searched < state.total == len(slow.data["/out"])
    slow.data["/out"] += b"one more\n"
    reader.look("")
    assert reader.panes[0].lines[-1] == "one more" and reader.panes[0].searching is not None
    slow.go_on.set()
    assert eventually(lambda: reader.panes[0].searching is None, PATIENCE)
    reader.look("")
    assert reader.panes[0].lines[0] == "needle" and reader.panes[0].note == "found needle"


def test_a_search_that_is_ended_ends_at_once_and_moves_nothing_later(slow: Slow) -> None:
    reader = searching(slow)
    shown = reader.panes[0].lines
    reader.stop_searches()
    assert reader.panes[0].searching is None
    slow.go_on.set()
    assert eventually(lambda: not any("search" in each.name for each in threading.enumerate()), PATIENCE)
    reader.look("")
    assert (reader.panes[0].lines, reader.panes[0].note) == (shown, "")


@pytest.mark.parametrize("wish", [Do("start"), Do("move", -1), Do("search-back", "line 2999")])
def test_a_jump_or_another_search_ends_the_one_under_way(slow: Slow, wish: Do) -> None:
    reader = searching(slow)
    reader.ask(wish)
    reader.look("")
    slow.go_on.set()
    assert eventually(lambda: not any("search" in each.name for each in threading.enumerate()), PATIENCE)
    reader.look("")
    assert "needle" not in reader.panes[0].note


def test_what_ends_a_search_is_told_and_the_window_stays(files: Files) -> None:
    files.data["/out"] = lines(300_000)
    reader = opened(files)
    reader.ask(Do("start"))
    reader.look("")
    files.error = "permission denied"
    reader.ask(Do("search-on", "nothing"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "refresh", lambda: None)
        reader.look("")
        assert eventually(lambda: reader.panes[0].searching is None, PATIENCE)
    files.error = ""
    reader.look("")
    assert reader.panes[0].note == "permission denied" and reader.panes[0].lines[0] == "line 0"


def test_a_file_that_was_truncated_is_told_and_shown_anew(files: Files) -> None:
    reader = opened(files)
    files.data["/out"] = b"fresh\n"
    reader.look("")
    assert reader.panes[0].lines == ("fresh",) and "truncated or replaced" in reader.panes[0].note


def test_an_error_leaves_the_lines_and_goes_away_when_reading_works_again(files: Files) -> None:
    reader = opened(files)
    files.error = "no answer"
    reader.look("")
    assert reader.panes[0].error == "no answer" and len(reader.panes[0].lines) == 3
    files.error = ""
    reader.look("")
    assert reader.panes[0].error == ""


def test_a_file_that_cannot_be_read_at_first_is_opened_at_its_end_later(files: Files) -> None:
    files.error = "permission denied"
    reader = opened(files)
    assert reader.panes[0].error == "permission denied" and reader.panes[0].lines == ()
    files.error = ""
    reader.look("")
    assert reader.panes[0].lines[-1] == "line 999"


def test_a_run_without_output_files_reads_nothing(files: Files) -> None:
    reader = OutputReader(files, run("bare", stdout_path=None, stderr_path=None), lambda: None)
    reader.put_on_screen("both", 3)
    reader.ask(Do("start"))
    reader.look("")
    assert files.reads == [] and [pane.path for pane in reader.panes] == [None, None]


def test_what_is_found_after_it_was_closed_is_dropped(files: Files) -> None:
    told: list[int] = []
    reader = OutputReader(files, RUN, lambda: told.append(1))
    reader.put_on_screen("stdout", 3)
    reader.close()
    reader.look("")
    assert told == [] and reader.panes[0].lines == ()


def test_whoever_draws_is_told_of_every_change_and_of_nothing_else(files: Files) -> None:
    told: list[int] = []
    reader = OutputReader(files, RUN, lambda: told.append(1))
    reader.put_on_screen("stdout", 3)
    reader.look("")
    reader.look("")
    assert len(told) == 1


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
