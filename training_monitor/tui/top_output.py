"""Reads the outputs of one run in a thread of its own: the screen asks for a window, and never waits for it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from training_monitor.clock import SYSTEM_CLOCK, Clock
from training_monitor.errors import TrainingMonitorError
from training_monitor.policy.run_values import Run, RunSource
from training_monitor.progress.output_pages import OutputPages
from training_monitor.supervise.threads import begin_thread
from training_monitor.tui.top_view import BOTH, Do, MoveOutput, Pane, SearchOutput

FOLLOW_SECONDS = 1.0

Wish = Do | MoveOutput | SearchOutput


class OutputReader:
    """The windows of stdout and stderr of a run. Only those on the screen are read.

    Args:
        source: where the run is.
        run: whose outputs are read.
        tell: called from the thread after every change.

    Attributes:
        panes: what is known of both now.
    """

    def __init__(self, source: RunSource, run: Run, tell: Callable[[], None], *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.panes: tuple[Pane, ...] = (Pane("stdout", run.stdout_path), Pane("stderr", run.stderr_path))
        self._pages = {pane.name: _pages_of(source, pane.path) for pane in self.panes if pane.path is not None}
        self._opened: set[str] = set()
        self._tell, self._clock = tell, clock
        self._wishes: deque[Wish] = deque()
        self._shown, self._height = "", 1
        self._news, self._closing = threading.Event(), threading.Event()

    def start(self) -> None:
        """Begin to read, in the background; where this machine has no thread left, the panes say so."""
        if not begin_thread(self._run, "output"):
            self.panes = tuple(replace(pane, error="there is no thread left to read it") for pane in self.panes)

    def close(self) -> None:
        """Read no more; what is under way is not waited for."""
        self._closing.set()
        self._news.set()

    def show(self, shown: str, height: int) -> None:
        """Say which of the outputs are on the screen, and how many lines of each."""
        if (shown, height) != (self._shown, self._height):
            self._shown, self._height = shown, height
            self._news.set()

    def ask(self, wish: Wish) -> None:
        """Move the windows that are shown; never waits."""
        self._wishes.append(wish)
        self._news.set()

    def read_once(self) -> None:
        """Do what was asked for since, or else see what the files gained, in the calling thread. Raises nothing."""
        wishes = [self._wishes.popleft() for _ in range(len(self._wishes))]
        for wish in wishes:
            if isinstance(wish, SearchOutput):
                self._publish([replace(pane, note=f"searching for {wish.words} ...") for pane in self.panes])
        self._publish([self._read(pane, wishes) if self._is_shown(pane) else pane for pane in self.panes])

    # ------------------------------------------------------------ in the thread

    def _run(self) -> None:
        while not self._closing.is_set():
            self._news.clear()
            if self._shown:
                self.read_once()
            self._clock.wait(self._news, FOLLOW_SECONDS)

    def _is_shown(self, pane: Pane) -> bool:
        return pane.name in self._pages and self._shown in (pane.name, BOTH)

    def _publish(self, panes: list[Pane]) -> None:
        if tuple(panes) != self.panes and not self._closing.is_set():
            self.panes = tuple(panes)
            self._tell()

    def _read(self, pane: Pane, wishes: list[Wish]) -> Pane:
        """The pane after what was asked for; an error leaves its lines as they are."""
        pages, notes = self._pages[pane.name], []
        try:
            if pane.name not in self._opened:
                pages.open_at_end(self._height)
                self._opened.add(pane.name)
            elif not wishes:
                pages.follow()
                notes.append(pages.notice)
            for wish in wishes:
                notes += [_obey(pages, wish), pages.notice]
            lines = tuple(pages.lines(self._height))
        except TrainingMonitorError as error:
            return replace(pane, error=str(error), note="")
        note = "; ".join(filter(None, [*notes, pages.notice])) or ("" if wishes else pane.note)
        at = pages.position
        return replace(pane, lines=lines, start=at.start, size=at.size, follows=at.is_at_end, note=note, error="")


def _pages_of(source: RunSource, path: str) -> OutputPages:
    return OutputPages(lambda start, length: source.read_output(path, start, length))


def _obey(pages: OutputPages, wish: Wish) -> str:
    """Do what was asked for; what is to be said of it."""
    match wish:
        case MoveOutput(count):
            pages.scroll(count)
        case Do("start"):
            pages.to_start()
        case Do("end"):
            pages.to_end()
        case SearchOutput(words, backwards):
            return _search(pages, words, backwards)
    return ""


def _search(pages: OutputPages, words: str, backwards: bool) -> str:
    found = pages.search(words, backwards=backwards)
    if found:
        return f"found {words}"
    key = "n" if backwards else "N"
    if found is None:
        return f"no {words} so far: {key} goes on"
    return f"no {words} {'above' if backwards else 'below'}"
