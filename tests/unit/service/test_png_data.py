"""PNGs of every kind are whole, and no damage to one of them passes for that."""

from __future__ import annotations

import io
import random
import struct
import zlib
from itertools import product

import pytest

from training_monitor.service.images import CUT_OFF, PIECE, count_data_bytes, find_png_damage

SIGNATURE = b"\x89PNG\r\n\x1a\n"
DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}


def chunk(name: bytes, data: bytes = b"") -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(
    width: int = 13,
    height: int = 7,
    *,
    depth: int = 8,
    colour: int = 2,
    interlace: int = 0,
    spare: int = 0,
    cuts: int = 1,
) -> bytes:
    """A PNG whose data has `spare` bytes more than it should, in so many chunks."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlace)
    data = zlib.compress(random.Random(7).randbytes((count_data_bytes(header) or 0) + spare))
    size = -(-len(data) // cuts)
    parts = b"".join(chunk(b"IDAT", data[at : at + size]) for at in range(0, len(data), size))
    palette = chunk(b"PLTE", bytes(768)) if colour == 3 else b""
    return SIGNATURE + chunk(b"IHDR", header) + palette + parts + chunk(b"IEND")


def check(data: bytes) -> str | None:
    return find_png_damage(io.BytesIO(data))


def test_whole_images_of_every_kind_have_no_damage() -> None:
    for colour, depths in DEPTHS.items():
        for depth, interlace, side in product(depths, (0, 1), (1, 2, 5, 33)):
            data = png(side, 34 - side, depth=depth, colour=colour, interlace=interlace)
            assert check(data) is None, (colour, depth, interlace, side)
    assert check(png(cuts=5) + b"what somebody appended") is None
    assert check(png(spare=9)) is None


def test_a_chunk_longer_than_one_piece_is_read_to_its_end() -> None:
    data = png(800, 600)
    assert len(data) > PIECE and check(data) is None
    assert check(data[:PIECE] + bytes([data[PIECE] ^ 0x15]) + data[PIECE + 1 :])
    assert check(data[: PIECE + 50]) == CUT_OFF


def test_every_byte_that_is_cut_off_or_changed_is_found() -> None:
    data = png(cuts=2)
    assert {check(data[:length]) for length in range(8, len(data))} == {CUT_OFF}
    for at in range(8, len(data)):
        assert check(data[:at] + bytes([data[at] ^ 0x15]) + data[at + 1 :]), at


def test_what_is_wrong_is_said(subtests: pytest.Subtests) -> None:
    for data, said in [
        (png(spare=-1), "is damaged: it has 279 of the 280 bytes of its image data"),
        (png(colour=3).replace(chunk(b"PLTE", bytes(768)), b""), "is damaged: its palette (PLTE) is missing"),
        (SIGNATURE + chunk(b"IDAT", b"x"), "is damaged: its PNG header (IHDR) is not before its data"),
        (png(depth=2), "is damaged: its PNG header says what no PNG is"),
        (SIGNATURE + b"\0" * 40, "is damaged: where a PNG chunk should begin is something else"),
        (SIGNATURE + chunk(b"IHDR", bytes(14)), "is damaged: its PNG header says what no PNG is"),
        (b"", CUT_OFF),
    ]:
        with subtests.test(data=data, said=said):
            assert check(data) == said
