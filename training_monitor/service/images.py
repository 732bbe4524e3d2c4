"""Read format and size of an image, and see whether its end is there, without decoding anything.

Whatever Pillow reads passes, as trainers read images with it, but for a GIF without its trailer. What is between the
header and the end is not looked at.

PNG: w3.org/TR/png-3. JPEG: ITU-T T.81, annex B. WebP: RFC 9649. GIF: the GIF89a specification. BMP: BITMAPFILEHEADER,
BITMAPCOREHEADER and BITMAPINFOHEADER of the Windows documentation, and their OS/2 relatives.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import BinaryIO

from training_monitor.core.frozen import dataclass
from training_monitor.core.regex import regex

HEAD_BYTES = 256 * 1024  # contain the size of nearly every JPEG; that of others is behind their metadata
_TAIL_BYTES = 64 * 1024  # enough for what most programs append
_GIF_TAIL_BYTES = 512  # two bytes are an end: in more, they would be found by chance
_PIECE = 1024 * 1024  # read at a time

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PNG_MOST = 2**31 - 1  # the longest side
_ENDS = {  # the IEND chunk without data, the marker EOI, an empty block of data and the trailer
    "png": (b"\0\0\0\0IEND\xaeB`\x82", "last PNG chunk (IEND)"),
    "jpeg": (b"\xff\xd9", "JPEG end marker (EOI)"),
    "gif": (b"\0;", "GIF trailer"),
}

_JPEG_MARKER = regex(rb"\xff([\x02-\xcf\xd8-\xfe])")  # not FF FF (fill), FF 00 (data), TEM, RSTn (no length)
_SOI, _EOI, _SOS = 0xD8, 0xD9, 0xDA
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # SOFn; the others are DHT, JPG and DAC
_JPEG_MOST_SEGMENTS = 4096

_BMP_CORE_HEADER, _BMP_INFO_HEADER = 12, 40
_BMP_DEPTHS = frozenset({1, 4, 8, 16, 24, 32})
_BMP_PLAIN = frozenset({0, 3})  # uncompressed, with and without colour masks
_BMP_HEADERS = frozenset({_BMP_CORE_HEADER, 16, 40, 52, 56, 64, 108, 124})


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """Format (png | jpeg | webp | gif | bmp) and size of an image; both sides are at least 1 pixel.

    `least_bytes` is the minimum file size, where the header implies one (webp, and bmp without compression). `begin` is
    a position before the image data, behind previews in the metadata, which have an end of their own.
    """

    format: str
    width: int
    height: int
    least_bytes: int | None = None
    begin: int = 0


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
    if header.least_bytes is not None and size_bytes < header.least_bytes:
        return f"is cut off: it has {size_bytes} of {header.least_bytes} bytes"
    if header.format not in _ENDS:
        return None
    end, name = _ENDS[header.format]
    if header.format == "gif":
        begins = [max(size_bytes - _GIF_TAIL_BYTES, 0)]
    else:
        begins = [max(size_bytes - _TAIL_BYTES, header.begin), header.begin]
    return None if any(_has(stream, end, begin) for begin in begins) else f"is cut off: its {name} is missing"


def _has(stream: BinaryIO, end: bytes, begin: int) -> bool:
    stream.seek(begin)
    last = b""
    while piece := stream.read(_PIECE):
        last += piece
        if end in last:
            return True
        last = last[1 - len(end) :]
    return False


# ---------------------------------------------------------------- one reader for each format


def _read_png(data: bytes) -> ImageHeader | None:
    """Read signature, then IHDR: length 13, name, width, height, five bytes, checksum of name and data."""
    length, name, width, height, _, checksum = struct.unpack_from(">I4sII5sI", data, 8)
    if (length, name) != (13, b"IHDR") or zlib.crc32(data[12:29]) != checksum:
        return None
    return ImageHeader("png", width, height) if max(width, height) <= _PNG_MOST else None


def _read_jpeg(data: bytes) -> ImageHeader | None:
    """Read SOFn: length, precision, height, width. Trainers do not support height 0 (given after the scan) either."""
    position = 2
    for _ in range(_JPEG_MOST_SEGMENTS):
        found = _JPEG_MARKER.search(data, position)
        if not found:
            return None
        marker, position = found[1][0], found.end()
        if marker in _JPEG_FRAMES:
            _, _, height, width = struct.unpack_from(">HBHH", data, position)
            return ImageHeader("jpeg", width, height, begin=position)
        if marker in (_SOS, _EOI):
            return None
        if marker != _SOI:
            (length,) = struct.unpack_from(">H", data, position)
            position += max(length, 2)
    return None


def _read_webp(data: bytes) -> ImageHeader | None:
    """Read RIFF, the length of the rest, WEBP, and a first chunk whose name is the kind."""
    (length,) = struct.unpack_from("<I", data, 4)
    (chunk,) = struct.unpack_from("4s", data, 12)
    reader = {b"VP8 ": _webp_lossy_size, b"VP8L": _webp_lossless_size, b"VP8X": _webp_extended_size}.get(chunk)
    size = reader(data) if reader else None
    return ImageHeader("webp", *size, least_bytes=length + 8) if size else None


def _webp_lossy_size(data: bytes) -> tuple[int, int] | None:
    """VP8 (RFC 6386, 9.1): a tag whose first bit is 0 in a key frame, a start code, two sides of 14 bits each."""
    tag, start_code, width, height = struct.unpack_from("<B2x3sHH", data, 20)
    if tag & 1 or start_code != b"\x9d\x01\x2a":
        return None
    return width & 0x3FFF, height & 0x3FFF


def _webp_lossless_size(data: bytes) -> tuple[int, int] | None:
    """VP8L: 0x2F, then two sides less 1 of 14 bits each, a bit for alpha, and a version that is 0."""
    signature, bits = struct.unpack_from("<BI", data, 20)
    if signature != 0x2F or bits >> 29:
        return None
    return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1


def _webp_extended_size(data: bytes) -> tuple[int, int] | None:
    """VP8X: flags, three bytes, then the two sides of the canvas less 1, of 24 bits each."""
    width, height = struct.unpack_from("3s3s", data, 24)
    return int.from_bytes(width, "little") + 1, int.from_bytes(height, "little") + 1


def _read_gif(data: bytes) -> ImageHeader | None:
    """Read six bytes of signature, then the sides of the logical screen."""
    return ImageHeader("gif", *struct.unpack_from("<HH", data, 6))


def _read_bmp(data: bytes) -> ImageHeader | None:
    """Read BM, the offset of the pixels, then a header whose length determines its fields.

    A negative height means that rows go from top to bottom. The file length in the header is ignored, as readers do:
    some writers put 0 or a wrong value there.
    """
    begin, header_bytes = struct.unpack_from("<II", data, 10)
    is_core = header_bytes == _BMP_CORE_HEADER
    width, height, _, depth = struct.unpack_from("<HHHH" if is_core else "<iiHH", data, 18)
    (compression,) = struct.unpack_from("<I", data, 30) if header_bytes >= _BMP_INFO_HEADER else (0,)
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
