"""Check that image data is complete, without decoding a pixel: JPEG, WebP and GIF by structure, PNG by its data. Pure.

Trainers read images with Pillow: whatever Pillow reads passes, and so does what is not understood here. JPEG: ITU-T
T.81, annex B. WebP: RFC 9649. GIF: the GIF89a specification. WebP and GIF are checked up to their first image.

PNG (w3.org/TR/png-3): every chunk must match its checksum and the image data must inflate to all pixels. Memory is
bounded for any input: data is processed in pieces, and no more is inflated than the header declares.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable

from training_monitor.service.image_header import JPEG_FRAMES

PIECE = 1024 * 1024
_SIGNATURE_BYTES, _HEAD_BYTES, _CRC_BYTES = 8, 8, 4
_LONGEST_CHUNK = 2**31 - 1
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by colour type
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_PALETTE = 3
_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))  # Adam7
CUT_OFF = "is cut off: its last PNG chunk (IEND) is missing"


class PngCheck:
    """An incremental check of a PNG, fed from its first byte in pieces of any size; `damage` is what is wrong."""

    def __init__(self) -> None:
        self.damage: str | None = None
        self.is_complete = False  # IEND was read: what follows it is not part of the PNG
        self._buffer = bytearray()
        self._is_begun = False  # the signature was read
        self._kind, self._left, self._crc = b"", 0, 0  # of the current chunk; an empty kind: a chunk head comes next
        self._header = bytearray()
        self._expected: int | None = None  # size of the inflated image data
        self._inflated, self._inflate = 0, zlib.decompressobj()
        self._has_palette = False

    def feed(self, piece: bytes) -> None:
        """Process the next bytes."""
        self._buffer += piece
        while self.damage is None and not self.is_complete and self._step():
            pass

    def end(self) -> str | None:
        """Return what is wrong, as a sentence without its subject, the file; None when nothing is."""
        return self.damage or (None if self.is_complete else CUT_OFF)

    def _step(self) -> bool:
        """Read the signature, a chunk's head, some of its data, or its checksum. False: more bytes are needed."""
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
        """Inflate data and count the bytes; nothing is kept."""
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
    """Return the inflated size of a PNG's image data: for each row a filter byte and its pixels.

    Args:
        header: the data of the IHDR chunk.

    Returns:
        None for an invalid header.
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


_JPEG_MARKER = re.compile(rb"\xff([\x02-\xcf\xd8-\xfe])")  # not FF FF (fill), FF 00 (data), TEM, RSTn (no length)
_EOI, _SOS, _DQT, _DHT, _DAC, _DNL, _DRI, _COM = 0xD9, 0xDA, 0xDB, 0xC4, 0xCC, 0xDC, 0xDD, 0xFE
_JPEG_LOSSLESS = frozenset({0xC3, 0xC7, 0xCB, 0xCF})  # have no quantization tables
_JPEG_SEGMENTS = JPEG_FRAMES | {_SOS, _DQT, _DHT, _DAC, _DNL, _DRI, _COM, *range(0xE0, 0xF0)}
_JPEG_MOST_SEGMENTS = 4096
_JPEG_END = b"\xff\xd9"
_NO_JPEG_END = "is cut off: its JPEG end marker (EOI) is missing"

_WEBP_IMAGES = frozenset({b"VP8 ", b"VP8L", b"ANMF"})

_GIF_BLOCK = re.compile(rb"[!,;]")  # an extension, an image, the trailer
_GIF_IMAGE_HEAD = 10  # separator, position and size, flags
_GIF_LAST_CODE = 2  # bytes of the end code, which readers do not require
_NO_GIF_IMAGE = "is cut off: its first GIF image is not all there"


def find_structure_damage(kind: str, data: bytes) -> str | None:
    """Check the structure of an image.

    Args:
        kind: A format of `detect_image_format`.
        data: The whole file.

    Returns:
        What is wrong, as a sentence without its subject, the file; None when nothing was found, and for other formats.
    """
    walk = _WALKS.get(kind)
    return walk(data) if walk else None


# ---------------------------------------------------------------- JPEG


def _find_jpeg_damage(data: bytes) -> str | None:
    seen: set[int] = set()
    position = 2
    for _ in range(_JPEG_MOST_SEGMENTS):
        found = _JPEG_MARKER.search(data, position)
        if not found:
            return _NO_JPEG_END
        marker, position = found[1][0], found.end()
        if marker == _EOI:
            return None if _SOS in seen else "is damaged: it ends before its image data"
        if marker not in _JPEG_SEGMENTS:
            if {_SOS, _DRI} <= seen:  # with restart intervals, readers resume at the next one
                continue
            return f"is damaged: it has the marker FF{marker:02X}, which no JPEG has there"
        length = int.from_bytes(data[position : position + 2], "big")
        if position + max(length, 2) > len(data):
            if _SOS in seen and data.find(_JPEG_END, position) >= 0:  # some readers find the end anyway
                return None
            return f"is cut off: its JPEG segment FF{marker:02X} runs past the end of the file"
        if wrong := _find_segment_damage(marker, data[position + 2 : position + length], seen):
            return f"is damaged: {wrong}"
        seen.add(marker)
        position += max(length, 2)
    return None if data.find(_JPEG_END, position) >= 0 else _NO_JPEG_END


def _find_segment_damage(marker: int, body: bytes, seen: set[int]) -> str | None:
    """Return what is wrong with a segment, given the markers seen before it."""
    name = f"its JPEG segment FF{marker:02X}"
    if marker in JPEG_FRAMES:
        if seen & JPEG_FRAMES:
            return f"{name} begins a second picture in the first one"
        return None if len(body) == 6 + 3 * (body[5:6] or b"\0")[0] else f"{name} has a wrong length"
    if marker == _SOS:
        if not seen & JPEG_FRAMES:
            return "its image data comes before its header (SOF)"
        if _DQT not in seen and not seen & _JPEG_LOSSLESS:
            return "its quantization tables (DQT) are missing"
        return None if len(body) == 4 + 2 * (body[:1] or b"\0")[0] else f"{name} has a wrong length"
    if marker in (_DQT, _DHT):
        return None if _fills_tables(marker, body) else f"{name} has a wrong length"
    return None


def _fills_tables(marker: int, body: bytes) -> bool:
    """Return whether tables, each with its own length, fill a segment exactly."""
    position = 0
    while position < len(body):
        if marker == _DQT:
            position += 1 + 64 * (2 if body[position] >> 4 else 1)
        else:  # 16 counts of codes by length, then their values
            position += 17 + sum(body[position + 1 : position + 17])
    return position == len(body)


# ---------------------------------------------------------------- WebP


def _find_webp_damage(data: bytes) -> str | None:
    """Check the chunks up to the first image data against the lengths of the file and of the RIFF header."""
    end = min(len(data), 8 + int.from_bytes(data[4:8], "little"))
    position = 12
    while position + 8 <= end:
        name, length = data[position : position + 4], int.from_bytes(data[position + 4 : position + 8], "little")
        position += 8 + length
        if position > end:
            return f"is damaged: its WebP chunk {ascii(name.decode('latin-1'))} runs past the end of the file"
        if name in _WEBP_IMAGES:
            return None
        position += length % 2
    return "is damaged: its WebP image data is missing"


# ---------------------------------------------------------------- GIF


def _find_gif_damage(data: bytes) -> str | None:
    """Check that the first image is complete; like readers, skip unknown blocks before it."""
    position: int | None = 13 + _palette_bytes((data[10:11] or b"\0")[0])
    while position is not None and (found := _GIF_BLOCK.search(data, position)):
        if found[0] == b";":
            return "is damaged: there is no image in it"
        if found[0] == b",":
            head = data[found.start() : found.start() + _GIF_IMAGE_HEAD]
            if len(head) < _GIF_IMAGE_HEAD:
                return _NO_GIF_IMAGE
            begin = found.start() + _GIF_IMAGE_HEAD + _palette_bytes(head[9]) + 1  # 1: the code size
            return _NO_GIF_IMAGE if begin >= len(data) or _skip_gif_data(data, begin) is None else None
        position = _skip_gif_data(data, found.start() + 2)
    return _NO_GIF_IMAGE


def _palette_bytes(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _skip_gif_data(data: bytes, position: int) -> int | None:
    """Return the position after a sequence of sub-blocks; None when it is cut off."""
    while position < len(data) and data[position]:
        position += 1 + data[position]
    return position + 1 if position <= len(data) + _GIF_LAST_CODE else None


_WALKS: dict[str, Callable[[bytes], str | None]] = {
    "jpeg": _find_jpeg_damage,
    "webp": _find_webp_damage,
    "gif": _find_gif_damage,
}
