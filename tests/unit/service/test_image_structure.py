"""Images of every sort pass, and what image readers fail on is told. Those under recorded/ were written by Pillow."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.images import IMAGES, gif, jpeg, segment, vp8, vp8_chunk, vp8x, webp_chunk
from training_monitor.service.images import find_damage, find_structure_damage, read_image_header

RECORDED = {path.name: path.read_bytes() for path in (Path(__file__).parents[2] / "recorded" / "pillow").glob("*/*")}
WHOLE = {name: data for name, data in {**IMAGES, **RECORDED}.items() if not name.startswith("png")}


def damage(data: bytes) -> str | None:
    header = read_image_header(data)
    if header is None:
        return "has a damaged header"
    return find_damage(header, len(data), b"") or find_structure_damage(header.format, data)


def test_whole_images_of_every_sort_have_no_damage(subtests: pytest.Subtests) -> None:
    for name in WHOLE:
        with subtests.test(name=name):
            assert damage(WHOLE[name]) is None
            assert damage(WHOLE[name] + b"\0" * 512) is None
            assert damage(WHOLE[name] + b"what a phone appended" * 9000) is None


def test_an_image_is_refused_wherever_it_is_cut(subtests: pytest.Subtests) -> None:
    for name in sorted(name for name in WHOLE if "gif" not in name and name != "two_pictures.mpo"):
        with subtests.test(name=name):
            needed = len(WHOLE[name]) - {"palette.bmp": 3, "bits.bmp": 1}.get(
                name, 0
            )  # less the padding of the last row
            passed = [length for length in range(len(WHOLE[name])) if damage(WHOLE[name][:length]) is None]
            assert passed == [*range(needed, len(WHOLE[name]))]


def test_a_gif_is_refused_where_it_is_cut_but_for_the_end_of_a_block_of_its_data() -> None:
    data = RECORDED["transparent.gif"]
    assert [length for length in range(len(data)) if damage(data[:length]) is None] == [662, 663, 664, *range(729, 733)]


def test_only_the_first_picture_of_several_has_to_be_whole() -> None:
    for name in ("two_pictures.mpo", "animated_comment.gif"):
        data = RECORDED[name]
        assert damage(data[:-40]) is None and damage(data[: len(data) // 3])
    assert damage(RECORDED["animated.webp"][:-1])  # says in its header how long it is


def test_what_is_wrong_is_said(subtests: pytest.Subtests) -> None:
    for data, said in [
        (jpeg()[:-1], "is cut off: its JPEG end marker (EOI) is missing"),
        (jpeg()[:-2] + b"\0" * 5000, "is cut off: its JPEG end marker (EOI) is missing"),  # room for the rest was there
        (jpeg(segment(0xE1, jpeg()))[:-2], "is cut off: its JPEG end marker (EOI) is missing"),  # a preview has one
        (jpeg().replace(b"\xff\xda\0\x08", b"\xff\xda\xff\x08"), "is cut off: its JPEG segment FFDA runs past the end"),
        (jpeg().replace(b"\xff\xdb\0\x43", b"\xff\xdb\0\x42"), "is damaged: its JPEG segment FFDB has a wrong length"),
        (jpeg().replace(b"\xff\xc4\0\x13", b"\xff\xc4\0\x12"), "is damaged: its JPEG segment FFC4 has a wrong length"),
        (jpeg().replace(b"\xff\xc0\0\x0b", b"\xff\xc0\0\x0c"), "is damaged: its JPEG segment FFC0 has a wrong length"),
        (jpeg().replace(b"\xff\xdb", b"\xff\xe0"), "is damaged: its quantization tables (DQT) are missing"),
        (jpeg().replace(b"\xff\xda", b"\xff\xd9"), "is damaged: it ends before its image data"),
        (jpeg().replace(b"\xff\0", b"\xff\x02"), "is damaged: it has the marker FF02, which no JPEG has there"),
        (jpeg(segment(0xC2, b"\x08\0\x01\0\x01\x01\x01\x11\0")), "is damaged: its JPEG segment FFC0 begins a second"),
        (vp8()[:-1], f"is cut off: it has {len(vp8()) - 1} of {len(vp8())} bytes"),
        (vp8x(), "is damaged: its WebP image data is missing"),
        (vp8x(b"ICCP\0\0\x01\0" + vp8_chunk()), "is damaged: its WebP chunk 'ICCP' runs past the end of the file"),
        (gif()[:-4], "is cut off: its first GIF image is not all there"),
        (gif()[:10], "is cut off: its first GIF image is not all there"),
        (gif()[:13] + gif()[-1:], "is damaged: there is no image in it"),
        (gif()[:13] + b"!\xfe\2hi\0;", "is damaged: there is no image in it"),
        (gif()[:13] + b"!\xff\x0bNETSCAPE2.0\x03\x01\0\0\0", "is cut off: its first GIF image is not all there"),
        (IMAGES["bmp"][:-4], "is cut off: it has 3650 of 3654 bytes"),
    ]:
        with subtests.test(data=data, said=said):
            assert (damage(data) or "").startswith(said)


def test_what_readers_put_up_with_and_what_is_not_understood_passes(subtests: pytest.Subtests) -> None:
    for data in [
        jpeg().replace(b"\xff\xc4\0\x13" + b"\0" * 17, b""),  # readers have standard tables
        jpeg(segment(0xDD, b"\0\1")).replace(b"\xff\0", b"\xff\x02"),  # and go on at the next restart marker
        jpeg(frame=0xC3).replace(b"\xff\xdb", b"\xff\xe0"),  # a lossless one has no quantization tables
        jpeg()[:-2] + b"\xff\xe5\xff\xff\x12\xff\xd9",
        vp8x(webp_chunk(b"XXXX", b"unknown"), vp8_chunk()),
        gif()[:13] + b"junk" + gif()[13:],
        gif()[:-1],
        IMAGES["bmp"][:2] + b"\xff\xff\0\0" + IMAGES["bmp"][6:],  # the length that it says it has is wrong
        IMAGES["bmp"][:30] + b"\1" + IMAGES["bmp"][31:60],  # compressed: how long it is, is not known
    ]:
        with subtests.test(data=data):
            assert damage(data) is None


def test_formats_without_a_walk_pass() -> None:
    assert find_structure_damage("png", b"") is None


def test_long_jpegs_without_an_image_are_refused(subtests: pytest.Subtests) -> None:
    for filler in [
        b"\xff",
        b"\xff\xd0",
        b"\xff\xe0\0\2",
        b"\xff\xc4\xff\xff" + b"\0" * 65533,
        b"\xff\xdb\0\2",
        b"\xff\0",
        b"\0",
    ]:
        with subtests.test(filler=filler):
            assert find_structure_damage("jpeg", b"\xff\xd8" + filler * (4_000_000 // len(filler)))
