"""Read format and size of an image, and check that its file is complete and undamaged, without decoding a pixel.

Whatever Pillow reads passes, as trainers read images with it, and so does what is not understood here. WebP and GIF are
checked up to their first image. In a PNG, every chunk must match its checksum and the image data must inflate to all
pixels; memory is bounded for any input.

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
PIECE = 1024 * 1024  # read or inflated at a time

CUT_OFF = "is cut off: its last PNG chunk (IEND) is missing"
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PNG_END = b"\0\0\0\0IEND\xaeB`\x82"  # the IEND chunk: no data, and its checksum
_PNG_MOST = 2**31 - 1  # the longest side and the longest chunk
_PNG_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by colour type
_PNG_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_PNG_PALETTE = 3
_ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))

_JPEG_MARKER = regex(rb"\xff([\x02-\xcf\xd8-\xfe])")  # not FF FF (fill), FF 00 (data), TEM, RSTn (no length)
_SOI, _EOI, _SOS, _DQT, _DHT, _DAC, _DNL, _DRI, _COM = 0xD8, 0xD9, 0xDA, 0xDB, 0xC4, 0xCC, 0xDC, 0xDD, 0xFE
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {_DHT, 0xC8, _DAC}  # SOFn; C8 is JPG
_JPEG_LOSSLESS = frozenset({0xC3, 0xC7, 0xCB, 0xCF})  # have no quantization tables
_JPEG_SEGMENTS = _JPEG_FRAMES | {_SOS, _DQT, _DHT, _DAC, _DNL, _DRI, _COM, *range(0xE0, 0xF0)}
_JPEG_MOST_SEGMENTS = 4096
_JPEG_END = b"\xff\xd9"
_NO_JPEG_END = "is cut off: its JPEG end marker (EOI) is missing"

_WEBP_IMAGES = frozenset({b"VP8 ", b"VP8L", b"ANMF"})

_GIF_BLOCK = regex(rb"[!,;]")  # an extension, an image, the trailer
_GIF_IMAGE_HEAD = 10  # separator, position and size, flags
_GIF_LAST_CODE = 2  # bytes of the end code, which readers do not require
_NO_GIF_IMAGE = "is cut off: its first GIF image is not all there"

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
            return ImageHeader("jpeg", width, height)
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


# ---------------------------------------------------------------- PNG data


def find_png_damage(stream: BinaryIO) -> str | None:
    """Check a PNG up to its end: the checksum of each chunk, and that the image data inflates to all pixels.

    Returns:
        What is wrong, as a sentence without its subject, the file; None when nothing was found.
    """
    stream.seek(len(_PNG_SIGNATURE))
    header, expected, has_palette = bytearray(), 0, False
    inflated, inflate = 0, zlib.decompressobj()
    while len(head := stream.read(8)) == 8:
        left, kind = struct.unpack(">I4s", head)
        if not (kind.isalpha() and kind.isascii()) or left > _PNG_MOST:
            return "is damaged: where a PNG chunk should begin is something else"
        if kind == b"IDAT" and not expected:
            return "is damaged: its PNG header (IHDR) is not before its data"
        checksum = zlib.crc32(kind)
        while left and (data := stream.read(min(left, PIECE))):
            left, checksum = left - len(data), zlib.crc32(data, checksum)
            if kind == b"IHDR" and len(header) + len(data) <= PIECE:
                header += data
            while kind == b"IDAT" and data and not inflate.eof and inflated <= expected:
                try:
                    inflated += len(inflate.decompress(data, PIECE))
                except zlib.error:
                    return "is damaged: its image data (IDAT) does not inflate"
                data = inflate.unconsumed_tail
        if left or len(found := stream.read(4)) < 4:
            return CUT_OFF
        if int.from_bytes(found, "big") != checksum:
            return f"is damaged: the checksum of its PNG chunk {kind.decode()} is wrong"
        if kind == b"IHDR" and not (expected := count_data_bytes(bytes(header)) or 0):
            return "is damaged: its PNG header says what no PNG is"
        has_palette = has_palette or kind == b"PLTE"
        if kind == b"IEND":
            if inflated < expected:
                return f"is damaged: it has {inflated} of the {expected} bytes of its image data"
            no_palette = header[9:10] == bytes([_PNG_PALETTE]) and not has_palette
            return "is damaged: its palette (PLTE) is missing" if no_palette else None
    return CUT_OFF


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
    if depth not in _PNG_DEPTHS.get(colour, ()) or compression or filtering or interlace > 1 or not width or not height:
        return None
    bits: int = depth * _PNG_CHANNELS[colour]
    passes = _ADAM7 if interlace else ((0, 0, 1, 1),)
    sizes: list[tuple[int, int]] = [
        (-(-(width - x) // across), -(-(height - y) // down)) for x, y, across, down in passes
    ]
    return sum(rows * (1 + -(-columns * bits // 8)) for columns, rows in sizes if columns > 0 and rows > 0)


# ---------------------------------------------------------------- the structure of other formats


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
    if marker in _JPEG_FRAMES:
        if seen & _JPEG_FRAMES:
            return f"{name} begins a second picture in the first one"
        return None if len(body) == 6 + 3 * (body[5:6] or b"\0")[0] else f"{name} has a wrong length"
    if marker == _SOS:
        if not seen & _JPEG_FRAMES:
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
