"""Read format and size of an image from its first bytes, and how long its file must be; nothing is decoded. Pure.

PNG: w3.org/TR/png-3. JPEG: ITU-T T.81, annex B. WebP: RFC 9649. GIF: the GIF89a specification. BMP: BITMAPFILEHEADER,
BITMAPCOREHEADER and BITMAPINFOHEADER of the Windows documentation, and their OS/2 relatives.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

HEAD_BYTES = 256 * 1024  # contain the size of nearly every JPEG; see `bytes_needed` for the others
JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # SOFn; those are DHT, JPG and DAC

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PNG_END = b"\0\0\0\0IEND\xaeB`\x82"  # the IEND chunk: no data, and its checksum
_PNG_MOST_SIDE = 2**31 - 1

_JPEG_MARKER = re.compile(rb"\xff([\x01-\xfe])")  # FF FF is a fill byte, FF 00 a byte of data
_JPEG_SCAN, _JPEG_LAST = 0xDA, 0xD9
_JPEG_ALONE = frozenset({0x01, *range(0xD0, 0xD9)})  # TEM, RSTn and SOI have no length
_JPEG_MOST_SEGMENTS = 4096

_BMP_CORE_HEADER, _BMP_INFO_HEADER = 12, 40
_BMP_DEPTHS = frozenset({1, 4, 8, 16, 24, 32})
_BMP_PLAIN = frozenset({0, 3})  # uncompressed, with and without colour masks
_BMP_HEADERS = frozenset({_BMP_CORE_HEADER, 16, 40, 52, 56, 64, 108, 124})


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """Format (png | jpeg | webp | gif | bmp) and size of an image; both sides are at least 1 pixel.

    `least_bytes` is the minimum file size, where the header implies one (webp, and bmp without compression).
    """

    format: str
    width: int
    height: int
    least_bytes: int | None = None


class _TooShort(Exception):
    """At least the first `needed` bytes of the file are required."""

    def __init__(self, needed: int) -> None:
        super().__init__(needed)
        self.needed = needed


# ---------------------------------------------------------------- public functions


def detect_image_format(data: bytes) -> str | None:
    """Detect the format of a file by its signature.

    Args:
        data: The first 18 bytes of the file, or more; fewer only if the file is shorter.

    Returns:
        png, jpeg, webp, gif or bmp; None for everything else.
    """
    if data.startswith(_PNG_SIGNATURE):
        return "png"
    if data.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    if data[:6] in (b"GIF87a", b"GIF89a"):
        return "gif"
    # "BM" also begins many texts, so the size of the second header has to be a known one as well.
    if data[:2] == b"BM" and int.from_bytes(data[14:18], "little") in _BMP_HEADERS:
        return "bmp"
    return None


def read_image_header(data: bytes) -> ImageHeader | None:
    """Read format and size of an image from its content. Never raises.

    Args:
        data: The first `HEAD_BYTES` of the file; fewer only if the file is shorter.

    Returns:
        The header; None when this is not an image, its header is damaged, or `data` is too short (see `bytes_needed`).
    """
    try:
        return _read(data)
    except _TooShort:
        return None


def bytes_needed(data: bytes) -> int | None:
    """Return how many bytes are needed to read a header that `data` is too short for.

    The size of a JPEG comes after its metadata, which may be megabytes. The number is a lower bound: read that many
    bytes, better twice as many, and call again.

    Args:
        data: The first bytes of the file.

    Returns:
        More than `data` has; None when more bytes would not help.
    """
    try:
        _read(data)
    except _TooShort as short:
        return short.needed
    return None


def find_damage(header: ImageHeader, size_bytes: int, tail: bytes) -> str | None:
    """Check whether a file was cut off, judging by its header and its last bytes.

    Args:
        header: From `read_image_header`.
        size_bytes: Size of the file.
        tail: Its last 64 KiB, enough for what some programs append.

    Returns:
        What is wrong, as a sentence without its subject, the file; None when nothing was found.
    """
    if header.least_bytes is not None and size_bytes < header.least_bytes:
        return f"is cut off: it has {size_bytes} of {header.least_bytes} bytes"
    if header.format == "png" and _PNG_END not in tail:
        return "is cut off: its last PNG chunk (IEND) is missing"
    return None


# ---------------------------------------------------------------- one reader for each format


def _read(data: bytes) -> ImageHeader | None:
    """Return the header or None. Raises _TooShort."""
    kind = detect_image_format(data)
    header = _READERS[kind](data) if kind else None
    return header if header and header.width > 0 and header.height > 0 else None


def _unpack(layout: str, data: bytes, offset: int) -> tuple[Any, ...]:
    """Unpack like struct.unpack_from. Raises _TooShort with the size that would do."""
    end = offset + struct.calcsize(layout)
    if end > len(data):
        raise _TooShort(end)
    return struct.unpack_from(layout, data, offset)


def _read_png(data: bytes) -> ImageHeader | None:
    """Read signature, then IHDR: length 13, name, width, height, five bytes, checksum of name and data."""
    length, name, width, height, _, checksum = _unpack(">I4sII5sI", data, 8)
    if (length, name) != (13, b"IHDR") or zlib.crc32(data[12:29]) != checksum:
        return None
    return ImageHeader("png", width, height) if max(width, height) <= _PNG_MOST_SIDE else None


def _read_jpeg(data: bytes) -> ImageHeader | None:
    """Read SOFn: length, precision, height, width. Trainers do not support height 0 (given after the scan) either."""
    position = 2
    for _ in range(_JPEG_MOST_SEGMENTS):
        found = _JPEG_MARKER.search(data, position)
        if not found:
            raise _TooShort(max(len(data), position) + 2)
        marker, position = found[1][0], found.end()
        if marker in JPEG_FRAMES:
            _, _, height, width = _unpack(">HBHH", data, position)
            return ImageHeader("jpeg", width, height)
        if marker in (_JPEG_SCAN, _JPEG_LAST):
            return None
        if marker not in _JPEG_ALONE:
            (length,) = _unpack(">H", data, position)
            position += max(length, 2)
    return None


def _read_webp(data: bytes) -> ImageHeader | None:
    """Read RIFF, the length of the rest, WEBP, and a first chunk whose name is the kind."""
    (length,) = _unpack("<I", data, 4)
    (chunk,) = _unpack("4s", data, 12)
    reader = {b"VP8 ": _webp_lossy_size, b"VP8L": _webp_lossless_size, b"VP8X": _webp_extended_size}.get(chunk)
    size = reader(data) if reader else None
    return ImageHeader("webp", *size, least_bytes=length + 8) if size else None


def _webp_lossy_size(data: bytes) -> tuple[int, int] | None:
    """VP8 (RFC 6386, 9.1): a tag whose first bit is 0 in a key frame, a start code, two sides of 14 bits each."""
    tag, start_code, width, height = _unpack("<B2x3sHH", data, 20)
    if tag & 1 or start_code != b"\x9d\x01\x2a":
        return None
    return width & 0x3FFF, height & 0x3FFF


def _webp_lossless_size(data: bytes) -> tuple[int, int] | None:
    """VP8L: 0x2F, then two sides less 1 of 14 bits each, a bit for alpha, and a version that is 0."""
    signature, bits = _unpack("<BI", data, 20)
    if signature != 0x2F or bits >> 29:
        return None
    return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1


def _webp_extended_size(data: bytes) -> tuple[int, int] | None:
    """VP8X: flags, three bytes, then the two sides of the canvas less 1, of 24 bits each."""
    width, height = _unpack("3s3s", data, 24)
    return int.from_bytes(width, "little") + 1, int.from_bytes(height, "little") + 1


def _read_gif(data: bytes) -> ImageHeader | None:
    """Read six bytes of signature, then the sides of the logical screen."""
    return ImageHeader("gif", *_unpack("<HH", data, 6))


def _read_bmp(data: bytes) -> ImageHeader | None:
    """Read BM, the offset of the pixels, then a header whose length determines its fields.

    A negative height means that rows go from top to bottom. The file length in the header is ignored, as readers do:
    some writers put 0 or a wrong value there.
    """
    begin, header_bytes = _unpack("<II", data, 10)
    is_core = header_bytes == _BMP_CORE_HEADER
    width, height, _, depth = _unpack("<HHHH" if is_core else "<iiHH", data, 18)
    (compression,) = _unpack("<I", data, 30) if header_bytes >= _BMP_INFO_HEADER else (0,)
    if depth not in _BMP_DEPTHS or compression not in _BMP_PLAIN:
        return ImageHeader("bmp", width, abs(height))
    row = -(-width * depth // 32) * 4  # rows are padded to 4 bytes, except the last one
    least = (begin or 14 + header_bytes) + row * (abs(height) - 1) + -(-width * depth // 8)
    return ImageHeader("bmp", width, abs(height), least)


_READERS: dict[str, Callable[[bytes], ImageHeader | None]] = {
    "png": _read_png,
    "jpeg": _read_jpeg,
    "webp": _read_webp,
    "gif": _read_gif,
    "bmp": _read_bmp,
}
