"""Image headers out of bytes built here by hand, after the format specifications."""

from __future__ import annotations

import io
import random
import time

import pytest

from tests.images import IMAGES, jpeg, png, segment, vp8, vp8l, vp8x, webp, webp_chunk
from training_monitor.rent.images import HEAD_BYTES, ImageHeader, detect_image_format, find_damage, read_image_header

# ---------------------------------------------------------------- reading them


def test_format_and_size_are_read(subtests: pytest.Subtests) -> None:
    for name in IMAGES:
        with subtests.test(name=name):
            header = read_image_header(IMAGES[name])
            assert header is not None
            assert header.format in name.split()
            assert (header.width, header.height) == (40, 30)


def test_no_cut_image_raises_and_none_is_misread(subtests: pytest.Subtests) -> None:
    for name in IMAGES:
        with subtests.test(name=name):
            data, whole = IMAGES[name], read_image_header(IMAGES[name])
            for length in range(len(data)):
                assert read_image_header(data[:length]) in (None, whole)


def test_a_size_behind_long_metadata_needs_more_than_the_head() -> None:
    data = jpeg(*[segment(0xE2, b"ICC" + b"\0" * 65000)] * 5)
    assert read_image_header(data[:HEAD_BYTES]) is None
    header = read_image_header(data)
    assert header is not None and (header.width, header.height) == (40, 30)
    assert header.begin > 5 * 65000


def test_the_sizes_of_large_images() -> None:
    assert read_image_header(vp8l(16384, 16384)) == ImageHeader("webp", 16384, 16384, len(vp8l()))
    assert read_image_header(vp8x(width=1 << 24, height=3)) == ImageHeader("webp", 1 << 24, 3, len(vp8x()))
    assert read_image_header(vp8(0x4000 | 700, 0xC000 | 500)) == ImageHeader("webp", 700, 500, len(vp8()))  # scaling
    header = read_image_header(jpeg(width=65535, height=65535))
    assert header is not None and (header.width, header.height) == (65535, 65535)


def test_what_is_no_image_or_has_a_damaged_header_has_none() -> None:
    damaged = (png().replace(b"IHDR", b"CgBI"), png(0, 30), jpeg(height=0), jpeg(segment(0xDA, b"")), jpeg(b"\xff\xd9"))
    wave, no_picture = b"RIFF\x10\0\0\0WAVEfmt " + b"\0" * 30, webp(webp_chunk(b"ALPH", b"\0" * 30))
    gif, wrong_sign = b"GIF89a" + b"\0" * 30, b"\x89PNG\r\n\x1a\r" + png()[8:]
    for data in (b"", gif, wrong_sign, *damaged, wave, no_picture):
        assert read_image_header(data) is None, data[:40]
    assert (detect_image_format(jpeg(height=0)), detect_image_format(gif)) == ("jpeg", None)


def test_changed_bytes_never_raise() -> None:
    dice = random.Random(7)
    for _ in range(300):
        for image in IMAGES.values():
            data = bytearray(image[:300])
            for _ in range(dice.randrange(1, 6)):
                data[dice.randrange(len(data))] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
            header = read_image_header(bytes(data))
            assert header is None or (header.width > 0 and header.height > 0)
            if header:
                find_damage(header, len(data), io.BytesIO(data))


def test_hostile_jpegs_take_no_time(subtests: pytest.Subtests) -> None:
    for filler in [b"\xff", b"\xff\x01", b"\xff\xd8", b"\xff\xe0\0\0", b"\0", b"\xff\0", b"\xff\xe0\0\2"]:
        with subtests.test(filler=filler):
            data = (b"\xff\xd8\xff" + filler * (8 << 20))[: 8 << 20]
            started = time.perf_counter()
            assert read_image_header(data) is None
            assert time.perf_counter() - started < 2
