"""Image headers out of bytes built here by hand, after the format specifications."""

from __future__ import annotations

import random
import struct
import time
import zlib

import pytest

from training_monitor.parse.image_header import (
    HEAD_BYTES,
    ImageHeader,
    bytes_needed,
    detect_image_format,
    find_damage,
    read_image_header,
)

# ---------------------------------------------------------------- images


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


def webp(chunk: bytes, data: bytes) -> bytes:
    body = b"WEBP" + chunk + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


def vp8(width: int = 40, height: int = 30, tag: int = 0x10) -> bytes:
    return webp(b"VP8 ", bytes((tag, 2, 0)) + b"\x9d\x01\x2a" + struct.pack("<HH", width, height) + b"\0" * 8)


def vp8l(width: int = 40, height: int = 30) -> bytes:
    return webp(b"VP8L", b"\x2f" + struct.pack("<I", width - 1 | height - 1 << 14 | 1 << 28) + b"\0" * 9)


def vp8x(width: int = 40, height: int = 30, flags: int = 0x10) -> bytes:
    sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return webp(b"VP8X", bytes((flags, 0, 0, 0)) + sides)


def gif(version: bytes = b"GIF89a", width: int = 40, height: int = 30) -> bytes:
    return version + struct.pack("<HHBBB", width, height, 0, 0, 0) + b",\0\0\0\0\1\0\1\0\0\2\1\0\0;"


def bmp(width: int = 40, height: int = 30, header_bytes: int = 40) -> bytes:
    sides = struct.pack("<HHHH" if header_bytes == 12 else "<iiHH", width, height, 1, 24)
    info = struct.pack("<I", header_bytes) + sides.ljust(header_bytes - 4, b"\0")
    pixels = b"\0" * (abs(width) * 3 * abs(height))
    start = 14 + header_bytes
    return b"BM" + struct.pack("<IHHI", start + len(pixels), 0, 0, start) + info + pixels


IMAGES = {
    "png": png(),
    "jpeg": jpeg(),
    "jpeg with EXIF": jpeg(segment(0xE0, b"JFIF\0"), segment(0xE1, b"Exif\0\0" + b"\xff\xc0\0\x11" * 900)),
    "progressive jpeg": jpeg(frame=0xC2),
    "arithmetic jpeg": jpeg(frame=0xC9),
    "jpeg with fill bytes": jpeg(b"\xff" * 50),
    "lossy webp": vp8(),
    "lossless webp": vp8l(),
    "webp with alpha": vp8x(),
    "animated webp": vp8x(flags=0x02),
    "gif": gif(),
    "old gif": gif(b"GIF87a"),
    "bmp": bmp(),
    "core bmp": bmp(header_bytes=12),
    "v5 bmp": bmp(header_bytes=124),
    "top-down bmp": bmp(height=-30),
}


# ---------------------------------------------------------------- reading them


@pytest.mark.parametrize("name", IMAGES)
def test_format_and_size_are_read(name: str) -> None:
    header = read_image_header(IMAGES[name])
    assert header is not None
    assert header.format in name.split()
    assert (header.width, header.height) == (40, 30)
    assert bytes_needed(IMAGES[name]) is None
    assert find_damage(header, len(IMAGES[name]), IMAGES[name]) is None


@pytest.mark.parametrize("name", IMAGES)
def test_no_cut_image_raises_and_none_is_misread(name: str) -> None:
    data, whole = IMAGES[name], read_image_header(IMAGES[name])
    for length in range(len(data)):
        header, needed = read_image_header(data[:length]), bytes_needed(data[:length])
        assert header in (None, whole)
        assert needed is None or (header is None and length < needed <= len(data))
        assert header is None or find_damage(header, length, data[:length])


@pytest.mark.parametrize("name", IMAGES)
def test_reading_what_is_needed_leads_to_the_header(name: str) -> None:
    data, length = IMAGES[name], 18
    while needed := bytes_needed(data[:length]):
        length = needed
    assert read_image_header(data[:length]) == read_image_header(data)


def test_metadata_longer_than_the_head_is_said() -> None:
    data = jpeg(*[segment(0xE2, b"ICC" + b"\0" * 65000)] * 5)
    assert read_image_header(data[:HEAD_BYTES]) is None
    needed = bytes_needed(data[:HEAD_BYTES])
    assert needed is not None and HEAD_BYTES < needed < len(data)
    assert read_image_header(data) == ImageHeader("jpeg", 40, 30)


def test_the_sizes_of_large_images() -> None:
    assert read_image_header(vp8l(16384, 16384)) == ImageHeader("webp", 16384, 16384, len(vp8l()))
    assert read_image_header(vp8x(1 << 24, 3)) == ImageHeader("webp", 1 << 24, 3, len(vp8x()))
    assert read_image_header(vp8(0x4000 | 700, 0xC000 | 500)) == ImageHeader("webp", 700, 500, len(vp8()))  # scaling
    assert read_image_header(jpeg(width=65535, height=65535)) == ImageHeader("jpeg", 65535, 65535)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"BMW builds cars, and this is a text about one of them",
        b"\x89PNG\r\n\x1a\r" + png()[8:],
        png().replace(b"IHDR", b"CgBI"),
        png()[:20] + b"\x01" + png()[21:],
        png(0, 30),
        jpeg(height=0),
        jpeg(segment(0xDA, b"")),
        jpeg(b"\xff\xd9"),
        b"RIFF\x10\0\0\0WAVEfmt " + b"\0" * 30,
        webp(b"ALPH", b"\0" * 30),
        vp8(tag=1),
        vp8().replace(b"\x9d\x01\x2a", b"\x9d\x01\x2b"),
        vp8l().replace(b"\x2f", b"\x2e"),
        gif(width=0),
        bmp(width=-40),
        bmp(height=0),
    ],
)
def test_what_is_no_image_or_has_a_damaged_header_has_none(data: bytes) -> None:
    assert read_image_header(data) is None
    assert bytes_needed(data) is None


def test_format_is_told_of_a_damaged_header() -> None:
    assert detect_image_format(jpeg(height=0)) == "jpeg"
    assert detect_image_format(b"BMW builds cars") is None


# ---------------------------------------------------------------- damage


def damage(data: bytes, size: int | None = None, tail: bytes | None = None) -> str | None:
    header = read_image_header(data)
    assert header is not None
    return find_damage(header, len(data) if size is None else size, data if tail is None else tail)


def test_cut_files_are_told() -> None:
    assert damage(png()[:-4]) == "is cut off: its last PNG chunk (IEND) is missing"
    assert damage(gif()[:-1]) == "is cut off: its GIF trailer is missing"
    assert damage(jpeg()[:-1]) == "is cut off: its JPEG end marker (EOI) is missing"
    assert damage(vp8()[:-1]) == f"is cut off: it has {len(vp8()) - 1} of {len(vp8())} bytes"
    assert damage(bmp()[:-1]) == f"is cut off: it has {len(bmp()) - 1} of {len(bmp())} bytes"
    assert damage(jpeg()[:-2] + b"\0" * 5000)  # the rest never arrived, the room for it was there


def test_what_programs_append_is_no_damage() -> None:
    for data in (png(), jpeg(), vp8(), bmp(), gif()):
        assert damage(data + b"\0" * 512) is None


def test_the_end_of_a_preview_is_not_the_end_of_the_jpeg() -> None:
    whole = jpeg(segment(0xE1, b"Exif\0\0" + jpeg()))
    assert damage(whole) is None
    assert damage(whole[:-2])


def test_a_film_behind_a_jpeg_is_no_damage_when_all_is_given() -> None:
    data = jpeg() + b"film" * 50_000
    assert damage(data) is None
    assert damage(data, tail=data[-65536:])


def test_a_bmp_without_its_length_is_no_damage() -> None:
    data = bmp()
    assert damage(data[:2] + b"\0\0\0\0" + data[6:]) is None


# ---------------------------------------------------------------- hostile bytes


def test_changed_bytes_never_raise() -> None:
    dice = random.Random(7)
    for _ in range(300):
        for image in IMAGES.values():
            data = bytearray(image[:300])
            for _ in range(dice.randrange(1, 6)):
                data[dice.randrange(len(data))] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
            header = read_image_header(bytes(data))
            assert header is None or (header.width > 0 and header.height > 0)
            assert bytes_needed(bytes(data)) is None or header is None
            if header:
                find_damage(header, len(data), bytes(data))


@pytest.mark.parametrize(
    "filler", [b"\xff", b"\xff\x01", b"\xff\xd8", b"\xff\xe0\0\0", b"\0", b"\xff\0", b"\xff\xe0\0\2"]
)
def test_hostile_jpegs_take_no_time(filler: bytes) -> None:
    data = (b"\xff\xd8\xff" + filler * (8 << 20))[: 8 << 20]
    started = time.perf_counter()
    assert read_image_header(data) is None
    find_damage(ImageHeader("jpeg", 1, 1), len(data), data)
    assert time.perf_counter() - started < 2
