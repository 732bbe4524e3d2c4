"""The bytes and lines of a file of any size, read in pieces; only the last ones that were used are kept.

A line ends with a newline. One that is longer than PIECE bytes is cut at the end of each block of PIECE bytes (counted
from the beginning of the file) that has no newline, so its cuts do not depend on where reading began. Of text that is
redrawn with carriage returns the last state is shown, without colours and other control sequences.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import islice

from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.regex import regex
from training_monitor.runs.values import OutputChunk

Span = tuple[int, int]  # the first byte of a line, and that of the next one
Read = Callable[[int, int], OutputChunk]

BLOCK = 64 * 1024  # the unit of what is kept
PIECE = 8 * 1024
MAX_READ = 4 * BLOCK
WINDOW = 4 * PIECE  # contains at least one line start
_LEAST_BLOCKS = 8
_CONTROL = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\r\n]*(?:\x07|\x1b\\)?|[ -/]*[0-~])"
_ESCAPE, _ESCAPE_BYTES = regex(_CONTROL), regex(_CONTROL.encode())


class Replaced(TrainingMonitorError):
    """The file is no longer the one that was read."""


class FilePieces:
    """A file, read in pieces. Any method may read, in the calling thread: all calls must come from one thread.

    Args:
        read: reads at most `length` bytes from `start` on; a negative start counts from the end. Its errors are passed
            on.
        keep_bytes: how much of the file is kept in memory at most (not less than 512 KiB).

    Attributes:
        size: bytes of the file when it was last read.
    """

    def __init__(self, read: Read, *, keep_bytes: int = 0) -> None:
        self._read, self._most = read, max(_LEAST_BLOCKS, keep_bytes // BLOCK)
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self.size = 0

    # ------------------------------------------------------------ lines

    def _back(self, at: int, count: int) -> int:
        """Return the start of the line that is `count` lines before `at`, or of the first one."""
        while count > 0 and at > 0:
            starts = self._starts(max(0, at - WINDOW), at)
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
        return list(islice(self._spans_from(at), count))

    def _spans_from(self, at: int) -> Iterator[tuple[int, int]]:
        begin = at  # of the line whose end is searched
        while at < self.size:
            end = min(self.size, at + WINDOW)
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
        """Keep the data that adjoin the kept ones; raise Replaced if the file became smaller."""
        if chunk.size < self.size:
            raise Replaced("the file became smaller: it was truncated or replaced, and is shown from its start")
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


def contains(line: bytes, words: str) -> bool:
    """Whether one line shows these words, ignoring case."""
    return words.casefold() in render_line(line).casefold()


def may_contain(words: str) -> Callable[[bytes], bool]:
    """Return a function that finds out quickly whether any of many whole lines may show these words.

    ASCII words are looked for as bytes, and not in the few letters beyond ASCII that become such by ignoring case.
    """
    raw, has_blank, folded = words.lower().encode() if words.isascii() else b"", " " in words, words.casefold()

    def answer(lines: bytes) -> bool:
        if not raw or (has_blank and b"\t" in lines):  # tabs are shown as blanks
            return folded in _ESCAPE.sub("", lines.decode("utf-8", "replace")).expandtabs(8).casefold()
        if b"\x1b" in lines:
            lines = _ESCAPE_BYTES.sub(b"", lines)
        return raw in lines.lower()

    return answer
