"""Images of every sort pass, and those without their end do not. Those under recorded/ were written by Pillow."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from tests.images import IMAGES, jpeg, png, segment, vp8
from training_monitor.rent.images import detect_image_format, find_damage, read_image_header

RECORDED = {path.name: path.read_bytes() for path in (Path(__file__).parents[2] / "recorded" / "pillow").glob("*/*")}
WHOLE = {**IMAGES, **{name: data for name, data in RECORDED.items() if detect_image_format(data)}}


def damage(data: bytes) -> str | None:
    header = read_image_header(data)
    return find_damage(header, len(data), io.BytesIO(data)) if header else "has a damaged header"


def test_whole_images_of_every_sort_have_no_damage(subtests: pytest.Subtests) -> None:
    for name in WHOLE:
        with subtests.test(name=name):
            assert damage(WHOLE[name]) is None
            assert damage(WHOLE[name] + b"\0" * 500) is None
            assert damage(WHOLE[name] + b"what a phone appended" * 90_000) is None


def test_an_image_is_refused_wherever_it_is_cut(subtests: pytest.Subtests) -> None:
    for name in sorted(name for name in WHOLE if name != "two_pictures.mpo"):
        with subtests.test(name=name):
            passed = [length for length in range(len(WHOLE[name])) if damage(WHOLE[name][:length]) is None]
            assert not passed


def test_only_the_first_picture_of_two_has_to_be_whole() -> None:
    data = RECORDED["two_pictures.mpo"]
    assert damage(data[:-40]) is None and damage(data[: len(data) // 3])


def test_what_is_wrong_is_said(subtests: pytest.Subtests) -> None:
    for data, said in [
        (png()[:-4], "is truncated: its last PNG chunk (IEND) is missing"),
        (jpeg()[:-1], "is truncated: its JPEG end marker (EOI) is missing"),
        # room for the rest was there
        (jpeg()[:-2] + b"\0" * 5000, "is truncated: its JPEG end marker (EOI) is missing"),
        (jpeg(segment(0xE1, jpeg()))[:-2], "is truncated: its JPEG end marker (EOI) is missing"),  # a preview has one
        (vp8()[:-1], f"is truncated: it has {len(vp8()) - 1} of {len(vp8())} bytes"),
    ]:
        with subtests.test(data=data, said=said):
            assert damage(data) == said


def test_what_readers_put_up_with_and_what_is_not_understood_passes(subtests: pytest.Subtests) -> None:
    for data in [
        png().replace(b"IDAT", b"IDAX"),  # what is between both ends is not looked at
        png()[:29] + b"\0\0\0\0" + png()[33:],  # nor is a checksum
        vp8(tag=1),
    ]:
        with subtests.test(data=data):
            assert damage(data) is None
