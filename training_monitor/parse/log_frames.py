"""What follows a log file over a connection: frames of counted bytes, out of which whole lines come once each.

The target prints, with NONCE a random word:

    NONCE alive                     nothing new
    NONCE OFFSET COUNT              COUNT bytes of the file from OFFSET on, and then a line:
    NONCE end
    NONCE moved                     the file was rotated, truncated or rewritten: nothing more comes

A frame counts when its end was seen, so that a connection may break anywhere.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from training_monitor.errors import ParseError
from training_monitor.models import LogCursor, NewLog

CHECKED_BYTES = 256
HELD_BYTES = 64 * 1024
MOST_BYTES = 1024 * 1024
_HEADER_BYTES = 200
_MD5_LENGTH = 32


@dataclass(frozen=True, slots=True)
class Frame:
    offset: int
    data: bytes


class FrameReader:
    """Cuts a stream of bytes into frames."""

    def __init__(self, nonce: str) -> None:
        self._header = re.compile(rb"\n?%s (?:(\d{1,18}) (\d{1,9})|alive|(moved))\n" % nonce.encode())
        self._end = b"\n" + nonce.encode() + b" end\n"
        self._buffer = bytearray()
        self.moved = False

    def feed(self, chunk: bytes) -> list[Frame]:
        """The frames that `chunk` completes. Raises ParseError for what is no frame."""
        self._buffer += chunk
        frames: list[Frame] = []
        while not self.moved and (header := self._header.match(self._buffer)):
            if header[1] is None:
                self.moved = header[3] is not None
                del self._buffer[: header.end()]
                continue
            begin, count = header.end(), int(header[2])
            end = begin + count + len(self._end)
            if count > MOST_BYTES:
                raise ParseError(f"a frame of {count} bytes", source="log stream")
            if len(self._buffer) < end:
                return frames
            if self._buffer[begin + count : end] != self._end:
                raise ParseError("a frame without its end: the file changed while it was read", source="log stream")
            frames.append(Frame(int(header[1]), bytes(self._buffer[begin : begin + count])))
            del self._buffer[:end]
        if len(self._buffer) > _HEADER_BYTES and not self._header.match(self._buffer):
            raise ParseError("no frame", source="log stream", text=self._buffer[:200].decode("utf-8", "replace"))
        return frames


class LineCutter:
    """Whole lines out of frames, behind a cursor; the frames begin up to 256 bytes before it.

    A line ends with a newline or a carriage return; one that is longer than 64 KiB is given in parts.
    """

    def __init__(self, cursor: LogCursor) -> None:
        self._cursor = cursor
        self._at = self.begin(cursor)
        self._before = b""  # the bytes in front of the cursor, as many as are checked
        self._held = b""

    @staticmethod
    def begin(cursor: LogCursor) -> int:
        """From where the frames must come."""
        return max(0, cursor.offset - CHECKED_BYTES)

    def cut(self, frame: Frame) -> NewLog:
        """The lines a frame ends, the cursor behind them, and what is left of a line that is not ended.

        Raises ParseError when it is not the file it was.
        """
        if frame.offset != self._at:
            raise ParseError(f"bytes from {frame.offset} instead of {self._at}", source="log stream")
        self._at += len(frame.data)
        known = max(0, min(len(frame.data), self._cursor.offset - frame.offset))
        self._before += frame.data[:known]
        if known and self._cursor.offset <= self._at and not self._is_same():
            raise ParseError("the file was rewritten", source="log stream")
        self._held += frame.data[known:]
        end = max(self._held.rfind(b"\n"), self._held.rfind(b"\r")) + 1
        if len(self._held) - end >= HELD_BYTES:
            end = len(self._held)
        lines, self._held = self._held[:end], self._held[end:]
        if lines:
            self._before = (self._before + lines)[-CHECKED_BYTES:]
            self._cursor = LogCursor(self._cursor.offset + end, self._cursor.inode, self._check())
        return NewLog(_text(lines), self._cursor, partial=_text(self._held))

    def _check(self) -> str:
        """The checksum of a cursor, where the target's is an md5 and enough was seen; else none."""
        if len(self._cursor.check) != _MD5_LENGTH:
            return ""
        return hashlib.md5(self._before, usedforsecurity=False).hexdigest()

    def _is_same(self) -> bool:
        return len(self._cursor.check) != _MD5_LENGTH or self._check() == self._cursor.check


def _text(data: bytes) -> str:
    return data.replace(b"\0", b"").decode("utf-8", "replace")
