"""The reader of a run's outputs: a thread reads the windows of the screen, and each search has a thread of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.engine import MOST_WORDS, Engine, begin_thread
from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.logger import get_logger
from training_monitor.runs.file_pieces import Read, Span
from training_monitor.runs.output_pages import OutputPages
from training_monitor.runs.output_search import OutputSearch
from training_monitor.runs.remote_runs import RemoteRuns
from training_monitor.runs.values import Run
from training_monitor.ui.kit.view import Do
from training_monitor.ui.top.view import BOTH, SEARCHES, Pane, Searching

FOLLOW_SECONDS = 1.0
_TELL_SECONDS = 0.25  # between two states of a search that are shown


class Result(NamedTuple):
    """What came of a search: the line that was found, or why none was; both empty: there is none."""

    search: OutputSearch
    found: Span | None = None
    error: str = ""


class OutputReader(Engine):
    """Reads the windows of a run's stdout and stderr in the background; only those on the screen are read.

    Args:
        source: where the run is.
        run: the run.
        tell: called from a thread after every change.
    """

    subject = "output"
    most_threads = 0

    def __init__(self, source: RemoteRuns, run: Run, tell: Callable[[], None], *, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(FOLLOW_SECONDS, clock)
        self._panes: tuple[Pane, ...] = (Pane("stdout", run.stdout_path), Pane("stderr", run.stderr_path))
        self._reads = {pane.name: _reads(source, pane.path) for pane in self._panes if pane.path is not None}
        self._pages = {name: OutputPages(read) for name, read in self._reads.items()}
        self._opened: set[str] = set()
        self._tell = tell
        self._wishes: deque[Do] = deque()
        self._shown, self._height = "", 1
        self._searches: dict[str, OutputSearch] = {}  # those under way, by the name of the output
        self._results: dict[str, Result] = {}  # those that are to be shown
        self._in_vain: dict[str, tuple[str, bool]] = {}  # words that are nowhere before, or behind, what is shown
        self._told = 0.0

    @property
    def panes(self) -> tuple[Pane, ...]:
        """Return the current windows of both outputs, and how far the searches in them are."""
        with self._lock:
            states = {name: Searching(each.words, each.searched, each.total) for name, each in self._searches.items()}
        return tuple(pane._replace(searching=states.get(pane.name)) for pane in self._panes)

    def put_on_screen(self, shown: str, height: int) -> None:
        """Set which of the outputs are on the screen, and how many lines of each."""
        if (shown, height) != (self._shown, self._height):
            self._shown, self._height = shown, height
            self.refresh()

    def ask(self, wish: Do) -> None:
        """Move the shown windows, or search from them, without blocking."""
        self._wishes.append(wish)
        self.refresh()

    def stop_searches(self) -> None:
        """End all searches at once; the windows stay where they are."""
        with self._lock:
            stopped, self._searches = self._searches, {}
        for search in stopped.values():
            search.stop()

    def close(self) -> None:
        self.stop_searches()
        super().close()

    def keys(self) -> Sequence[str]:
        return (self._shown,) if self._shown else ()

    def look(self, key: str) -> None:
        """Execute the pending requests, or else read what the files gained."""
        wishes = [self._wishes.popleft() for _ in range(len(self._wishes))]
        self._publish([self._read(pane, wishes) if self._is_shown(pane) else pane for pane in self._panes])

    def fail(self, key: str, error: TrainingMonitorError) -> None:
        self._publish([pane._replace(error=str(error)) if self._is_shown(pane) else pane for pane in self._panes])

    def judge(self) -> None:
        self._next_round = self.clock.monotonic() + FOLLOW_SECONDS  # a pause also after reads that took longer

    def _is_shown(self, pane: Pane) -> bool:
        return pane.name in self._pages and self._shown in (pane.name, BOTH)

    def _publish(self, panes: list[Pane]) -> None:
        if tuple(panes) != self._panes and not self._closing.is_set():
            self._panes = tuple(panes)
            self._tell()

    def _read(self, pane: Pane, wishes: list[Do]) -> Pane:
        """Return the pane after the requests; an error leaves its lines as they are."""
        pages, notes = self._pages[pane.name], []
        with self._lock:
            result = self._results.pop(pane.name, None)
        try:
            if pane.name not in self._opened:
                pages.open_at_end(self._height)
                self._opened.add(pane.name)
            elif not wishes:
                pages.follow()
                notes.append(pages.notice)
            if result is not None:
                notes += [self._show_result(pane.name, result), pages.notice]
            for wish in wishes:
                notes = [self._obey(pane.name, wish), pages.notice]
            lines = tuple(pages.lines(self._height))
        except TrainingMonitorError as error:
            return pane._replace(error=str(error), note="")
        note = "; ".join(filter(None, [*notes, pages.notice])) or ("" if wishes else pane.note)
        start, size, follows = pages.start, pages.size, pages.is_following
        return pane._replace(lines=lines, start=start, size=size, follows=follows, note=note, error="")

    def _obey(self, name: str, wish: Do) -> str:
        """Execute a request, which ends a search under way, and return a note about its result."""
        pages = self._pages[name]
        with self._lock:
            search = self._searches.pop(name, None)
        if search is not None:
            search.stop()
        if wish.name in SEARCHES:
            return self._begin_search(name, wish.about, backwards=wish.name == SEARCHES[0])
        self._in_vain.pop(name, None)
        match wish:
            case Do("move", lines):
                pages.scroll(lines)
            case Do("start"):
                pages.to_start()
            case Do("percent", percent):
                pages.to_percent(percent)
            case Do("end"):
                pages.to_end()
        return ""

    # ------------------------------------------------------------ searching

    def _begin_search(self, name: str, words: str, *, backwards: bool) -> str:
        """Search in a thread of its own, from the other end of the file where there was nothing up to this one."""
        pages = self._pages[name]
        start = pages.search_start(words, backwards=backwards)
        if self._in_vain.get(name) == (words, backwards):
            start = pages.size if backwards else 0
        search = OutputSearch(self._reads[name], words, start, pages.size, backwards=backwards)
        with self._lock:
            self._searches[name] = search
        if begin_thread(lambda: self._search(name, search), "search"):
            return ""
        with self._lock:
            self._searches.pop(name, None)
        return "not searched: could not start a thread. Try: terminate other programs on this machine"

    def _search(self, name: str, search: OutputSearch) -> None:
        """Search, and let the reading thread show the result, unless the search was stopped."""
        try:
            result = Result(search, search.run(self._tell_progress))
        except TrainingMonitorError as error:
            result = Result(search, error=str(error))
        except Exception as error:
            get_logger().exception("the search failed")
            result = Result(search, error=f"the search failed: {error!r}"[:MOST_WORDS])
        with self._lock:
            if self._searches.get(name) is not search:
                return
            del self._searches[name]
            self._results[name] = result
        self.refresh()

    def _tell_progress(self) -> None:
        if (now := self.clock.monotonic()) - self._told >= _TELL_SECONDS:
            self._told = now
            self._tell()

    def _show_result(self, name: str, result: Result) -> str:
        """Show the line that was found, and return a note about the result."""
        search, words = result.search, result.search.words
        was_in_vain = self._in_vain.pop(name, None) == (words, search.backwards)
        if result.error:
            return result.error
        if result.found is None:
            if was_in_vain:
                return f"no {words} in the whole file"
            self._in_vain[name] = words, search.backwards
            return _none(words, search.backwards)
        if not self._pages[name].show_match(result.found, words):
            return f"the file changed where {words} was found: search again"
        from_there = f", searching from the {'end' if search.backwards else 'beginning'}" if was_in_vain else ""
        return f"found {words}{from_there}"


def _none(words: str, backwards: bool) -> str:
    where, end = ("before", "end") if backwards else ("after", "beginning")
    return f"no {words} {where} this position; search again to start from the {end}"


def _reads(source: RemoteRuns, path: str) -> Read:
    return lambda start, length: source.read_output(path, start, length)
