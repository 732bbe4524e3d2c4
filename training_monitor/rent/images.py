"""Read format and size of an image from its first bytes, and see whether its end is there. Nothing else is checked.

These are the formats that ai-toolkit reads. PNG: w3.org/TR/png-3. JPEG: ITU-T T.81, annex B. WebP: RFC 9649.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import BinaryIO, NamedTuple

from training_monitor.core.regex import regex

_SIGNATURES = regex(rb"(?P<png>\x89PNG\r\n\x1a\n)|(?P<jpeg>\xff\xd8\xff)|(?P<webp>RIFF.{4}WEBP)", re.DOTALL)
HEAD_BYTES = 256 * 1024  # contain the size of nearly every JPEG; that of others is behind their metadata
_MOST_BYTES = 256 * 1024 * 1024  # searched for the end of an image to which more was appended
_TAIL_BYTES = 64 * 1024  # enough for what most programs append
_ENDS = {  # the IEND chunk without data, the marker EOI
    "png": (b"\0\0\0\0IEND\xaeB`\x82", "last PNG chunk (IEND)"),
    "jpeg": (b"\xff\xd9", "JPEG end marker (EOI)"),
}
_JPEG_MARKER = regex(rb"\xff([\x02-\xcf\xd9-\xfe])")  # not FF FF (fill), FF 00 (data), TEM, RSTn, SOI (no length)
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # SOFn; the others are DHT, JPG and DAC
_JPEG_IMAGE = frozenset({0xD9, 0xDA})  # EOI, SOS: no size is behind them
_JPEG_MOST_SEGMENTS = 4096


class ImageHeader(NamedTuple):
    """Format (png | jpeg | webp) and size of an image; both sides are at least 1 pixel.

    `least_bytes` is the minimum file size, where the header has it (webp). `begin` is a position before the image data,
    behind previews in the metadata, which have an end of their own.
    """

    format: str
    width: int
    height: int
    least_bytes: int = 0
    begin: int = 0


def detect_image_format(data: bytes) -> str | None:
    """Detect the format of a file by its signature.

    Args:
        data: The first 12 bytes of the file, or more; fewer only if the file is shorter.

    Returns:
        png, jpeg or webp; None for everything else.
    """
    found = _SIGNATURES.match(data)
    return found.lastgroup if found else None


def read_image_header(data: bytes) -> ImageHeader | None:
    """Read format and size of an image from its content. Never raises.

    Args:
        data: The first `HEAD_BYTES` of the file; all of a JPEG with so much metadata that this is too short.

    Returns:
        The header; None when this is not an image, its header is damaged, or `data` is too short.
    """
    kind = detect_image_format(data)
    try:
        header = _READERS[kind](data) if kind else None
    except struct.error:  # too short
        return None
    return header if header and header.width > 0 and header.height > 0 else None


def find_damage(header: ImageHeader, size_bytes: int, stream: BinaryIO) -> str | None:
    """Check whether a file was cut off: by the size that its header implies, or by its end, whatever is appended to it.

    Args:
        header: From `read_image_header`.
        size_bytes: Size of the file.
        stream: The file.

    Returns:
        What is wrong, as a sentence without its subject, the file; None when nothing was found.
    """
    if size_bytes < header.least_bytes:
        return f"is truncated: it has {size_bytes} of {header.least_bytes} bytes"
    if header.format not in _ENDS:
        return None
    end, name = _ENDS[header.format]
    for begin in (max(size_bytes - _TAIL_BYTES, header.begin), header.begin):
        stream.seek(begin)
        if end in stream.read(_MOST_BYTES):
            return None
    return f"is truncated: its {name} is missing"


# ---------------------------------------------------------------- one reader for each format


def _read_png(data: bytes) -> ImageHeader | None:
    """Read the name of the first chunk, which has to be IHDR, and the sides in it."""
    name, width, height = struct.unpack_from(">4sII", data, 12)
    return ImageHeader("png", width, height) if name == b"IHDR" else None


def _read_jpeg(data: bytes) -> ImageHeader | None:
    """Read SOFn: length, precision, height, width. Trainers do not support height 0 (given after the scan) either."""
    position = 2
    for _ in range(_JPEG_MOST_SEGMENTS):
        found = _JPEG_MARKER.search(data, position)
        if not found or found[1][0] in _JPEG_IMAGE:
            return None
        position = found.end()
        length, _, height, width = struct.unpack_from(">HBHH", data, position)
        if found[1][0] in _JPEG_FRAMES:
            return ImageHeader("jpeg", width, height, begin=position)
        position += length
    return None


def _read_webp(data: bytes) -> ImageHeader | None:
    """Read RIFF, the length of the rest, WEBP, and the sides, where the name of the first chunk has them."""
    (length,) = struct.unpack_from("<I", data, 4)
    if data[12:16] == b"VP8 ":  # behind a tag and a start code: two sides of 14 bits
        width, height = (side & 0x3FFF for side in struct.unpack_from("<HH", data, 26))
    elif data[12:16] == b"VP8L":  # behind one byte: two sides less 1, of 14 bits
        (bits,) = struct.unpack_from("<I", data, 21)
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif data[12:16] == b"VP8X":  # behind four bytes of flags: two sides less 1, of 24 bits
        width, height = (int.from_bytes(side, "little") + 1 for side in struct.unpack_from("3s3s", data, 24))
    else:
        return None
    return ImageHeader("webp", width, height, length + 8)


_READERS: dict[str, Callable[[bytes], ImageHeader | None]] = {
    "png": _read_png,
    "jpeg": _read_jpeg,
    "webp": _read_webp,
}
