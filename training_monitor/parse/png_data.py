"""Whether a PNG is whole: every chunk with its checksum, and image data that inflates to all of its pixels. Pure.

w3.org/TR/png-3. Readers refuse what is refused here, and only after the machine they run on was paid for. Memory is
bounded whatever the file says: the data goes through in pieces, and no more of it is inflated than the header promises.
"""

from __future__ import annotations

import struct
import zlib

PIECE = 1024 * 1024
_SIGNATURE_BYTES, _HEAD_BYTES, _CRC_BYTES = 8, 8, 4
_LONGEST_CHUNK = 2**31 - 1
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by colour type
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_PALETTE = 3
_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))  # Adam7
CUT_OFF = "is cut off: its last PNG chunk (IEND) is missing"


class PngCheck:
    """Feed it a PNG from its first byte on, in pieces of any size; `damage` is what is wrong so far."""

    def __init__(self) -> None:
        self.damage: str | None = None
        self.is_complete = False  # IEND was there: what comes behind it belongs to somebody else
        self._buffer = bytearray()
        self._is_begun = False  # the signature was there
        self._kind, self._left, self._crc = b"", 0, 0  # of the chunk that is read; no kind: its head comes next
        self._header = bytearray()
        self._expected: int | None = None  # bytes that the image data inflates to
        self._inflated, self._inflate = 0, zlib.decompressobj()
        self._has_palette = False

    def feed(self, piece: bytes) -> None:
        """Take the next bytes in."""
        self._buffer += piece
        while self.damage is None and not self.is_complete and self._step():
            pass

    def end(self) -> str | None:
        """What is wrong with the file, as the end of a sentence that begins with its name; None when nothing is."""
        return self.damage or (None if self.is_complete else CUT_OFF)

    def _step(self) -> bool:
        """Read one thing: the signature, a chunk's head, some of its data, or its checksum. False: more is needed."""
        if not self._is_begun:
            self._is_begun = self._take(_SIGNATURE_BYTES) is not None
            return self._is_begun
        if not self._kind:
            return self._begin_chunk()
        if self._left:
            return self._read_data()
        return self._end_chunk()

    def _take(self, count: int) -> bytes | None:
        if len(self._buffer) < count:
            return None
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def _begin_chunk(self) -> bool:
        if (head := self._take(_HEAD_BYTES)) is None:
            return False
        self._left, self._kind = struct.unpack(">I4s", head)
        self._crc = zlib.crc32(self._kind)
        if not (self._kind.isalpha() and self._kind.isascii()) or self._left > _LONGEST_CHUNK:
            self.damage = "is damaged: where a PNG chunk should begin is something else"
        elif self._kind == b"IDAT" and self._expected is None:
            self.damage = "is damaged: its PNG header (IHDR) is not before its data"
        return True

    def _read_data(self) -> bool:
        data = bytes(self._buffer[: min(self._left, PIECE)])
        if not data:
            return False
        del self._buffer[: len(data)]
        self._left -= len(data)
        self._crc = zlib.crc32(data, self._crc)
        if self._kind == b"IHDR" and len(self._header) + len(data) <= PIECE:
            self._header += data
        elif self._kind == b"IDAT":
            self._inflate_some(data)
        return True

    def _inflate_some(self, data: bytes) -> None:
        """Count what the data inflates to; nothing of it is kept."""
        assert self._expected is not None
        while data and not self._inflate.eof and self._inflated <= self._expected:
            try:
                self._inflated += len(self._inflate.decompress(data, PIECE))
            except zlib.error:
                self.damage = "is damaged: its image data (IDAT) does not inflate"
                return
            data = self._inflate.unconsumed_tail

    def _end_chunk(self) -> bool:
        if (checksum := self._take(_CRC_BYTES)) is None:
            return False
        kind, self._kind = self._kind.decode("ascii"), b""
        if int.from_bytes(checksum, "big") != self._crc:
            self.damage = f"is damaged: the checksum of its PNG chunk {kind} is wrong"
        elif kind == "IHDR":
            self._expected = count_data_bytes(bytes(self._header))
            if self._expected is None:
                self.damage = "is damaged: its PNG header says what no PNG is"
        elif kind == "PLTE":
            self._has_palette = True
        elif kind == "IEND":
            self.is_complete = True
            self._judge_data()
        return True

    def _judge_data(self) -> None:
        expected = self._expected or 0
        if self._inflated < expected:
            self.damage = f"is damaged: it has {self._inflated} of the {expected} bytes of its image data"
        elif self._header[9:10] == bytes([_PALETTE]) and not self._has_palette:
            self.damage = "is damaged: its palette (PLTE) is missing"


def count_data_bytes(header: bytes) -> int | None:
    """How many bytes the image data of a PNG inflates to: for each row a filter byte and its pixels.

    Args:
        header: the data of its chunk IHDR.

    Returns:
        None for what is no such header.
    """
    if len(header) != 13:
        return None
    width, height, depth, colour, compression, filtering, interlace = struct.unpack(">II5B", header)
    if depth not in _DEPTHS.get(colour, ()) or compression or filtering or interlace > 1 or not width or not height:
        return None
    bits: int = depth * _CHANNELS[colour]
    passes = _PASSES if interlace else ((0, 0, 1, 1),)
    sizes: list[tuple[int, int]] = [
        (-(-(width - x) // across), -(-(height - y) // down)) for x, y, across, down in passes
    ]
    return sum(rows * (1 + -(-columns * bits // 8)) for columns, rows in sizes if columns > 0 and rows > 0)
