"""Small images of many sorts, out of bytes put together after the format specifications."""

from __future__ import annotations

import struct
import zlib


def png_chunk(name: bytes, data: bytes = b"") -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width: int = 40, height: int = 30) -> bytes:
    rows = zlib.compress(b"\0" * (width + 1) * height)
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + png_chunk(b"IDAT", rows) + png_chunk(b"IEND")


def segment(marker: int, data: bytes) -> bytes:
    return bytes((0xFF, marker)) + struct.pack(">H", len(data) + 2) + data


def jpeg(*before: bytes, frame: int = 0xC0, width: int = 40, height: int = 30) -> bytes:
    sizes = segment(frame, struct.pack(">BHHB", 8, height, width, 1) + b"\x01\x11\x00")
    tables = segment(0xDB, b"\0" + b"\x01" * 64) + segment(0xC4, b"\0" * 17)
    scan = segment(0xDA, b"\x01\x01\x00\x00\x3f\x00") + b"\x12\xff\x00\x34\xff\xd0\x56"
    return b"\xff\xd8" + b"".join(before) + tables + sizes + scan + b"\xff\xd9"


def webp(*chunks: bytes) -> bytes:
    body = b"WEBP" + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def webp_chunk(name: bytes, data: bytes) -> bytes:
    return name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)


def vp8_chunk(width: int = 40, height: int = 30, tag: int = 0x10) -> bytes:
    data = bytes((tag, 2, 0)) + b"\x9d\x01\x2a" + struct.pack("<HH", width, height)
    return webp_chunk(b"VP8 ", data + b"\0" * 8)


def vp8(width: int = 40, height: int = 30, tag: int = 0x10) -> bytes:
    return webp(vp8_chunk(width, height, tag))


def vp8l(width: int = 40, height: int = 30) -> bytes:
    data = b"\x2f" + struct.pack("<I", width - 1 | height - 1 << 14 | 1 << 28)
    return webp(webp_chunk(b"VP8L", data + b"\0" * 9))


def vp8x(*chunks: bytes, width: int = 40, height: int = 30, flags: int = 0x10) -> bytes:
    sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return webp(webp_chunk(b"VP8X", bytes((flags, 0, 0, 0)) + sides), *chunks)


IMAGES = {
    "png": png(),
    "jpeg": jpeg(),
    "jpeg with EXIF": jpeg(segment(0xE0, b"JFIF\0"), segment(0xE1, b"Exif\0\0" + b"\xff\xc0\0\x11" * 900)),
    "progressive jpeg": jpeg(frame=0xC2),
    "arithmetic jpeg": jpeg(frame=0xC9),
    "jpeg with fill bytes": jpeg(b"\xff" * 50),
    "lossy webp": vp8(),
    "lossless webp": vp8l(),
    "webp with alpha": vp8x(webp_chunk(b"ICCP", b"odd"), webp_chunk(b"ALPH", b"\0" * 9), vp8_chunk()),
    "animated webp": vp8x(webp_chunk(b"ANIM", b"\0" * 6), webp_chunk(b"ANMF", b"\0" * 16 + vp8_chunk()), flags=0x02),
}
