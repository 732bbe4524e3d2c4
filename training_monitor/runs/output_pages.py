"""A window of lines on a file of any size; only the pieces around the window are read and kept.

A line ends with a newline. One that is longer than PIECE bytes is cut at the end of each block of PIECE bytes (counted
from the beginning of the file) that has no newline, so its cuts do not depend on where reading began. Of text that is
redrawn with carriage returns the last state is shown, without colours and other control sequences.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TypeVar

from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.regex import regex
from training_monitor.runs.values import OutputChunk

T = TypeVar("T")

BLOCK = 64 * 1024  # the unit of what is kept
PIECE = 8 * 1024
MAX_READ = 4 * BLOCK
_LEAST_BLOCKS = 8
_WINDOW = 4 * PIECE  # contains at least one line start
_REGION = 3 * BLOCK  # searched at once
_CHECKED_BYTES = 256
_MAX_LINES = 10_000  # scrolled at once
_ESCAPE = regex(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")


class _Replaced(TrainingMonitorError):
    """The file is no longer the one that was read."""


class OutputPages:
    """A window on a file. Any method may read, in the calling thread, so all calls must come from one thread.

    Args:
        read: reads at most `length` bytes from `start` on; a negative start counts from the end.
        keep_bytes: how much of the file is kept in memory at most (not less than 512 KiB).

    Attributes:
        is_following: whether the window is at the end, and stays there when `follow` finds more.
        start: the first byte of the window; size: bytes of the file.
        notice: what happened to the file at the last call, "" if nothing did.

    Errors of `read` are passed on; the window stays where it was.
    """

    def __init__(self, read: Callable[[int, int], OutputChunk], *, keep_bytes: int = 4 * 1024 * 1024) -> None:
        self._read, self._most = read, max(_LEAST_BLOCKS, keep_bytes // BLOCK)
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self.size = self.start = 0
        self._height = 1
        self._searched: tuple[int, int] | None = None
        self.is_following = True
        self.notice = ""

    @property
    def percent(self) -> float:
        """How far the window is in the file: 100 at the end."""
        return 100.0 if self.is_following or not self.size else 100.0 * self.start / self.size

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

    def to_end(self) -> None:
        """Show the end of the file as it is now, and follow it."""
        self.is_following = True
        self.follow()

    def follow(self) -> bool:
        """Check for appended data; a window at the end stays there. Return whether anything changed.

        A file that became smaller, or has other bytes where it ended, was truncated or replaced: it is shown from its
        end again, and `notice` says so.
        """
        return self._do(self._follow) or bool(self.notice)

    def search(self, text: str, *, backwards: bool = False, limit_bytes: int = 8 * 1024 * 1024) -> bool | None:
        """Move to the next line with `text`, ignoring case, from the first shown line on, or after the last match.

        Returns:
            True if found; False if there is none up to the end (or the beginning); None if there is none within
            `limit_bytes`: the same call continues from there.
        """
        return self._do(lambda: self._search(text.casefold(), backwards, limit_bytes)) if text else False

    # ------------------------------------------------------------ moving

    def _do(self, act: Callable[[], T]) -> T:
        """Call `act`, again from the start if the file turns out to have been replaced."""
        self.notice = ""
        try:
            return act()
        except _Replaced as error:
            said = error.what
        self._forget()
        self._open()
        done = act()
        self.notice = said
        return done

    def _forget(self) -> None:
        self._blocks.clear()
        self.size = self.start = 0
        self._searched, self.is_following = None, True

    def _open(self) -> None:
        self._take(self._read(-2 * BLOCK, 2 * BLOCK))
        self.start, self.is_following = self._back(self.size, self._height), True

    def _go(self, top: int) -> None:
        """Let the window begin at `top`, or so that it ends with the file."""
        spans = self._spans(top, self._height)
        self.is_following = not spans or spans[-1][1] >= self.size
        self.start = self._back(self.size, self._height) if self.is_following else top
        self._searched = None

    def _follow(self) -> bool:
        if not self.size:
            self._open()
            return self.size > 0
        size = self.size
        known = self._last_known()
        chunk = self._read(size - len(known), len(known) + 2 * BLOCK)
        if chunk.size >= size and not chunk.data.startswith(known):
            raise _Replaced("the file was replaced: this is the new one")
        self._take(chunk)
        if self.is_following:
            self.start = self._back(self.size, self._height)
        return self.size > size

    def _last_known(self) -> bytes:
        """Return the last bytes of the file, as far as they are kept."""
        last = self._blocks.get((self.size - 1) // BLOCK, b"")
        is_whole = len(last) == (self.size - 1) % BLOCK + 1
        return last[-_CHECKED_BYTES:] if is_whole else b""

    def _search(self, text: str, backwards: bool, limit: int) -> bool | None:
        if self._searched:
            at = self._searched[0 if backwards else 1]
        else:
            at = self.size if backwards and self.is_following else self.start
        first = at
        for begin, end in self._regions(at, backwards):
            if found := self._find(text, begin, end, backwards):
                self._go(found[0])
                self._searched = found
                return True
            at = begin if backwards else end
            if abs(at - first) >= limit:
                self._searched = (at, at)
                return None
        return False

    def _regions(self, at: int, backwards: bool) -> Iterator[tuple[int, int]]:
        """Yield what lies before or behind `at`, in pieces of whole lines that need few reads each."""
        while at > 0 if backwards else at < self.size:
            near = max(0, at - _REGION) if backwards else min(self.size, at + _REGION)
            starts = self._starts(near, min(self.size, near + _WINDOW))
            edge = starts[0] if starts else self.size
            yield min(at, edge), max(at, edge)
            at = edge

    def _find(self, text: str, begin: int, end: int, backwards: bool) -> tuple[int, int] | None:
        """Return begin and end of the first line with the text, or of the last one."""
        data = self._bytes(begin, end)
        if text not in _ESCAPE.sub("", data.decode("utf-8", "replace")).expandtabs(8).casefold():
            return None
        starts = self._starts(begin, end)
        spans = list(zip(starts, [*starts[1:], end]))
        for start, stop in reversed(spans) if backwards else spans:
            if text in render_line(data[start - begin : stop - begin]).casefold():
                return start, stop
        return None

    # ------------------------------------------------------------ lines

    def _back(self, at: int, count: int) -> int:
        """Return the start of the line that is `count` lines before `at`, or of the first one."""
        while count > 0 and at > 0:
            starts = self._starts(max(0, at - _WINDOW), at)
            if len(starts) >= count:
                return starts[-count]
            count -= len(starts)
            at = starts[0] if starts else 0
        return at

    def _forward(self, at: int, count: int) -> int:
        """Return the start of the line that is `count` lines after the one at `at`, or of the last one."""
        spans = self._spans(at, count + 1)
        return spans[-1][0] if spans else at

    def _spans(self, at: int, count: int) -> list[tuple[int, int]]:
        """Return begin and end of at most `count` lines from `at` on."""
        found: list[tuple[int, int]] = []
        for span in self._spans_from(at):
            if len(found) >= count:
                break
            found.append(span)
        return found

    def _spans_from(self, at: int) -> Iterator[tuple[int, int]]:
        begin = at  # of the line whose end is searched
        while at < self.size:
            end = min(self.size, at + _WINDOW)
            for start in self._starts(at + 1, end):
                yield begin, start
                begin = start
            at = end - 1 if end < self.size else end
        if begin < self.size:
            yield begin, self.size

    def _starts(self, first: int, end: int) -> list[int]:
        begin = max(0, first - PIECE - 4)
        return find_line_starts(self._bytes(begin, end), begin, first, end)

    # ------------------------------------------------------------ bytes

    def _bytes(self, begin: int, end: int) -> bytes:
        """Return a piece of the file; shorter if the file turns out to end earlier."""
        end = min(end, self.size)
        pieces = []
        for number in range(begin // BLOCK, -(-end // BLOCK)):
            at = number * BLOCK
            if len(self._blocks.get(number, b"")) < min(BLOCK, end - at):
                self._load(number, end)
            block = self._blocks.get(number, b"")
            if number in self._blocks:
                self._blocks.move_to_end(number)
            pieces.append(block[max(0, begin - at) : end - at])
            if len(block) < min(BLOCK, end - at):
                break
        return b"".join(pieces)

    def _load(self, number: int, end: int) -> None:
        """Read what is missing of a block, and the blocks behind it up to `end`, within MAX_READ."""
        start = number * BLOCK + len(self._blocks.get(number, b""))
        last = min(-(-end // BLOCK) * BLOCK, self.size, start + MAX_READ)
        self._take(self._read(start, last - start))

    def _take(self, chunk: OutputChunk) -> None:
        """Keep the data that adjoin the kept ones; raise _Replaced if the file became smaller."""
        if chunk.size < self.size:
            raise _Replaced("the file became smaller: it was truncated or replaced, and is shown anew")
        self.size = chunk.size
        at, data = chunk.start, chunk.data
        while data:
            number, offset = divmod(at, BLOCK)
            part, data = data[: BLOCK - offset], data[BLOCK - offset :]
            known = self._blocks.get(number, b"")
            if offset <= len(known) < offset + len(part):
                self._blocks[number] = known[:offset] + part
                self._blocks.move_to_end(number)
            at += len(part)
        while len(self._blocks) > self._most:
            self._blocks.popitem(last=False)


def find_line_starts(data: bytes, begin: int, first: int, end: int) -> list[int]:
    """Return where lines begin within [first, end), in order.

    Args:
        data: the file's bytes from `begin` on, which is 0 or at least PIECE + 4 bytes before `first`.
    """
    starts = {0} if first == 0 else set()
    at = data.find(b"\n", max(0, first - 1 - begin))
    while 0 <= at < end - begin - 1:
        starts.add(begin + at + 1)
        at = data.find(b"\n", at + 1)
    for cut in range(max(PIECE, -(-(first - 3) // PIECE) * PIECE), end, PIECE):
        if data.find(b"\n", cut - PIECE - begin, cut - begin) < 0:
            at = cut - begin
            while at < min(len(data), cut - begin + 3) and data[at] & 0xC0 == 0x80:
                at += 1  # not within a character
            if first <= begin + at < end:
                starts.add(begin + at)
    return sorted(starts)


def render_line(data: bytes) -> str:
    """Return one line as finally seen: after its carriage returns, without control sequences, tabs as blanks."""
    text = data.removesuffix(b"\n").decode("utf-8", "replace").rstrip("\r")
    return _ESCAPE.sub("", text.rpartition("\r")[2]).expandtabs(8)
