"""A window of lines on a file of any size; only the pieces around the window are read and kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from training_monitor.runs.file_pieces import BLOCK, FilePieces, Read, Replaced, Span, contains, render_line

T = TypeVar("T")

_CHECKED_BYTES = 256
_MAX_LINES = 10_000  # scrolled at once


class OutputPages(FilePieces):
    """A window on a file.

    Attributes:
        is_following: whether the window is at the end, and stays there when `follow` finds more.
        start: the first byte of the window.
        matched: the line that was found last and the words in it, until the window is moved; None without one.
        notice: what happened to the file at the last call, "" if nothing did.

    Errors of `read` are passed on; the window stays where it was.
    """

    def __init__(self, read: Read, *, keep_bytes: int = 4 * 1024 * 1024) -> None:
        super().__init__(read, keep_bytes=keep_bytes)
        self.start = 0
        self.matched: tuple[Span, str] | None = None
        self._height = 1
        self.is_following = True
        self.notice = ""

    def open_at_end(self, lines: int) -> None:
        """Show the last `lines` lines; one read, whatever the size, unless they are very long."""
        self._height = max(1, lines)
        self._forget()
        self._do(self._open)

    def lines(self, height: int) -> list[str]:
        """Return the lines in the window, at most `height`, each at most 2 * PIECE bytes of the file."""
        self._height = max(1, height)

        def show() -> list[str]:
            if self.is_following:
                self.start = self._back(self.size, self._height)
            return [render_line(self._bytes(*span)) for span in self._spans(self.start, self._height)]

        return self._do(show)

    def scroll(self, lines: int) -> None:
        """Move the window by so many lines, back if negative; at the end it begins to follow."""
        count = max(-_MAX_LINES, min(lines, _MAX_LINES))

        def move() -> None:
            self._go(self._back(self.start, -count) if count < 0 else self._forward(self.start, count))

        self._do(move)

    def to_start(self) -> None:
        """Show the beginning of the file."""
        self._do(lambda: self._go(0))

    def to_percent(self, percent: float) -> None:
        """Show the line at so many per cent of the bytes of the file; 100 is its end, which is followed."""
        self._do(lambda: self._go(self._back(int(self.size * percent / 100) + 1, 1)))

    def to_end(self) -> None:
        """Show the end of the file as it is now, and follow it."""
        self.is_following, self.matched = True, None
        self.follow()

    def follow(self) -> bool:
        """Check for appended data; a window at the end stays there. Return whether anything changed.

        A file that became smaller, or has other bytes where it ended, was truncated or replaced: it is shown from its
        end again, and `notice` says so.
        """
        return self._do(self._follow) or bool(self.notice)

    def search_start(self, words: str, *, backwards: bool) -> int:
        """Return where a search begins: at the last match of the words, else at the end or beginning of the window."""
        if self.matched and self.matched[1] == words:
            return self.matched[0][0 if backwards else 1]
        if not backwards:
            return self.start
        spans = self._do(lambda: self._spans(self.start, self._height))
        return spans[-1][1] if spans else self.start

    def show_match(self, match: Span, words: str) -> bool:
        """Move to a line that was found, and stay there. False, and nothing moves, if the words are there no more."""

        def show() -> bool:
            self._follow()
            is_there = contains(self._bytes(*match), words)
            if is_there:
                self._go(match[0])
            return is_there

        if not self._do(show):
            return False
        self.matched, self.is_following = (match, words), False
        return True

    # ------------------------------------------------------------ moving

    def _do(self, act: Callable[[], T]) -> T:
        """Call `act`, again from the start if the file turns out to have been replaced."""
        self.notice = ""
        try:
            return act()
        except Replaced as error:
            said = error.what
        self._forget()
        self._open()
        done = act()
        self.notice = said
        return done

    def _forget(self) -> None:
        self._blocks.clear()
        self.size = self.start = 0
        self.matched, self.is_following = None, True

    def _open(self) -> None:
        self._take(self._read(-2 * BLOCK, 2 * BLOCK))
        self.start, self.is_following = self._back(self.size, self._height), True

    def _go(self, top: int) -> None:
        """Let the window begin at `top`, or so that it ends with the file."""
        spans = self._spans(top, self._height)
        self.is_following = not spans or spans[-1][1] >= self.size
        self.start = self._back(self.size, self._height) if self.is_following else top
        self.matched = None

    def _follow(self) -> bool:
        if not self.size:
            self._open()
            return self.size > 0
        size = self.size
        known = self._last_known()
        chunk = self._read(size - len(known), len(known) + 2 * BLOCK)
        if chunk.size >= size and not chunk.data.startswith(known):
            raise Replaced("the file was replaced; this is the new file")
        self._take(chunk)
        if self.is_following:
            self.start = self._back(self.size, self._height)
        return self.size > size

    def _last_known(self) -> bytes:
        """Return the last bytes of the file, as far as they are kept."""
        last = self._blocks.get((self.size - 1) // BLOCK, b"")
        is_whole = len(last) == (self.size - 1) % BLOCK + 1
        return last[-_CHECKED_BYTES:] if is_whole else b""
