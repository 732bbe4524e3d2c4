"""Search a file of any size for words, forward or backward, piece by piece, without keeping more than some pieces."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from training_monitor.runs.file_pieces import (
    BLOCK,
    MAX_READ,
    PIECE,
    WINDOW,
    FilePieces,
    Read,
    Span,
    contains,
    may_contain,
)

_BLOCKS = MAX_READ // BLOCK  # searched by one read
_USUAL = 1024  # bytes in which a line usually begins


class OutputSearch(FilePieces):
    """One search: `run` searches in its thread, while others look at `searched` and `total`, and may `stop` it.

    Args:
        start: where a line begins: the first one that is searched, or backwards the one behind the first.
        size: bytes of the file.

    Attributes:
        searched: bytes that were searched; total: those from `start` to the end, or backwards to the beginning.
    """

    def __init__(self, read: Read, words: str, start: int, size: int, *, backwards: bool) -> None:
        super().__init__(read)
        self.words, self.start, self.backwards = words, start, backwards
        self.size, self.searched = size, 0
        self._may_contain, self._stopped = may_contain(words), threading.Event()

    @property
    def total(self) -> int:
        return self.start if self.backwards else max(0, self.size - self.start)

    @property
    def is_stopped(self) -> bool:
        return self._stopped.is_set()

    def stop(self) -> None:
        """End it before the next read; from any thread."""
        self._stopped.set()

    def run(self, tell: Callable[[], None]) -> Span | None:
        """Return the nearest line that shows the words, ignoring case; None if there is none, or it was stopped.

        Args:
            tell: called after each piece that does not show them.

        Raises:
            TrainingMonitorError: the file cannot be read, or it became smaller meanwhile.
        """
        for begin, end in self._before() if self.backwards else self._behind():
            if found := self._find(begin, end):
                return found
            self.searched += end - begin
            tell()
        return None

    def _before(self) -> Iterator[Span]:
        """Yield pieces of whole lines before the start, the last one first; each needs one read."""
        at = self.start
        while at > 0 and not self.is_stopped:
            first = max(0, (at - 1) // BLOCK - _BLOCKS + 1) * BLOCK
            self._bytes(first, at)
            near = first + PIECE + 4 if first else 0
            begin = (self._starts(near, min(at, near + _USUAL)) or self._starts(near, min(at, near + WINDOW)))[0]
            yield begin, at
            at = begin

    def _behind(self) -> Iterator[Span]:
        """Yield pieces of whole lines from the start on, each of which needs one read, to the end as it is by then."""
        at = self.start
        while at < self.size and not self.is_stopped:
            end = min(self.size, (at // BLOCK + _BLOCKS) * BLOCK)
            self._bytes(at, end)
            starts = [end]
            if end < self.size:
                starts = self._starts(max(at + 1, end - _USUAL), end) or self._starts(max(at + 1, end - WINDOW), end)
            if starts:  # else the file has grown within its last line
                yield at, starts[0]
                at = starts[0]

    def _find(self, begin: int, end: int) -> Span | None:
        data = self._bytes(begin, end)
        if not self._may_contain(data):
            return None
        starts = self._starts(begin, end)
        spans = list(zip(starts, [*starts[1:], end]))
        for start, stop in reversed(spans) if self.backwards else spans:
            if contains(data[start - begin : stop - begin], self.words):
                return start, stop
        return None
