"""Whether a JPEG, WebP or GIF is whole as far as its structure tells; no pixel is decoded. Pure.

Trainers read images with Pillow: what it reads passes, and so does what is not understood here. JPEG: ITU-T T.81,
annex B. WebP: RFC 9649. GIF: the GIF89a specification. Behind the first image of a WebP or GIF nothing is needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from training_monitor.parse.image_header import JPEG_FRAMES

_JPEG_MARKER = re.compile(rb"\xff([\x02-\xcf\xd8-\xfe])")  # not FF FF (fill), FF 00 (data), TEM and RSTn (no length)
_EOI, _SOS, _DQT, _DHT, _DAC, _DNL, _DRI, _COM = 0xD9, 0xDA, 0xDB, 0xC4, 0xCC, 0xDC, 0xDD, 0xFE
_JPEG_LOSSLESS = frozenset({0xC3, 0xC7, 0xCB, 0xCF})  # have no quantization tables
_JPEG_SEGMENTS = JPEG_FRAMES | {_SOS, _DQT, _DHT, _DAC, _DNL, _DRI, _COM, *range(0xE0, 0xF0)}
_JPEG_MOST_SEGMENTS = 4096
_JPEG_END = b"\xff\xd9"
_NO_JPEG_END = "is cut off: its JPEG end marker (EOI) is missing"

_WEBP_IMAGES = frozenset({b"VP8 ", b"VP8L", b"ANMF"})

_GIF_BLOCK = re.compile(rb"[!,;]")  # an extension, an image, the trailer
_GIF_IMAGE_HEAD = 10  # separator, position and size, flags
_GIF_LAST_CODE = 2  # bytes of the code that ends the image: readers do without it
_NO_GIF_IMAGE = "is cut off: its first GIF image is not all there"


def find_structure_damage(kind: str, data: bytes) -> str | None:
    """Walk through the parts of an image.

    Args:
        kind: As `detect_image_format` tells it.
        data: The whole file.

    Returns:
        What is wrong, as the end of a sentence that begins with the file's name; None when nothing was found, and for
        formats that are not walked through here.
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
            if {_SOS, _DRI} <= seen:  # with restart intervals, readers go on at the next one
                continue
            return f"is damaged: it has the marker FF{marker:02X}, which no JPEG has there"
        length = int.from_bytes(data[position : position + 2], "big")
        if position + max(length, 2) > len(data):
            if _SOS in seen and data.find(_JPEG_END, position) >= 0:  # some readers find the end all the same
                return None
            return f"is cut off: its JPEG segment FF{marker:02X} runs past the end of the file"
        if wrong := _find_segment_damage(marker, data[position + 2 : position + length], seen):
            return f"is damaged: {wrong}"
        seen.add(marker)
        position += max(length, 2)
    return None if data.find(_JPEG_END, position) >= 0 else _NO_JPEG_END


def _find_segment_damage(marker: int, body: bytes, seen: set[int]) -> str | None:
    """What is wrong with a segment, behind those with the markers that were seen."""
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
    """Whether tables, each as long as it says at its beginning, fill a segment to its end."""
    position = 0
    while position < len(body):
        if marker == _DQT:
            position += 1 + 64 * (2 if body[position] >> 4 else 1)
        else:  # how many codes there are of each length, and their values
            position += 17 + sum(body[position + 1 : position + 17])
    return position == len(body)


# ---------------------------------------------------------------- WebP


def _find_webp_damage(data: bytes) -> str | None:
    """Chunks up to the first image data, within the file and the length that it says it has."""
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
    """The first image behind the palette, with all of its data; readers pass over what they do not know before it."""
    position: int | None = 13 + _palette_bytes((data[10:11] or b"\0")[0])
    while position is not None and (found := _GIF_BLOCK.search(data, position)):
        if found[0] == b";":
            return "is damaged: there is no image in it"
        if found[0] == b",":
            head = data[found.start() : found.start() + _GIF_IMAGE_HEAD]
            if len(head) < _GIF_IMAGE_HEAD:
                return _NO_GIF_IMAGE
            begin = found.start() + _GIF_IMAGE_HEAD + _palette_bytes(head[9]) + 1  # and the size of its codes
            return _NO_GIF_IMAGE if begin >= len(data) or _skip_gif_data(data, begin) is None else None
        position = _skip_gif_data(data, found.start() + 2)
    return _NO_GIF_IMAGE


def _palette_bytes(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _skip_gif_data(data: bytes, position: int) -> int | None:
    """Where blocks with a length each, up to an empty one, are over; None when they are cut off."""
    while position < len(data) and data[position]:
        position += 1 + data[position]
    return position + 1 if position <= len(data) + _GIF_LAST_CODE else None


_WALKS: dict[str, Callable[[bytes], str | None]] = {
    "jpeg": _find_jpeg_damage,
    "webp": _find_webp_damage,
    "gif": _find_gif_damage,
}
