"""Folders of images as people have them, and what is said of each."""

from __future__ import annotations

import json
import os
import struct
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.images import jpeg, vp8
from training_monitor.core.errors import SettingsError
from training_monitor.rent import dataset, file_lists
from training_monitor.rent.dataset import DatasetReport, validate_dataset


def chunk(name: bytes, data: bytes = b"") -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width: int = 600, height: int = 600, seed: object = 0) -> bytes:
    """A PNG without a pixel set; `seed` makes it another file of the same length."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    text = chunk(b"tEXt", b"seed\0%010d" % zlib.crc32(repr(seed).encode()))
    rows = bytes((1 + width) * height) if width * height < 10**7 else b""
    return b"\x89PNG\r\n\x1a\n" + header + text + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND")


def photo(*metadata: bytes) -> bytes:
    return jpeg(*metadata, width=800, height=600)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ten good images with captions."""
    place = tmp_path / "images"
    place.mkdir()
    for number in range(10):
        (place / f"{number}.png").write_bytes(png(seed=number))
        (place / f"{number}.txt").write_text(f"a photo of sks dog, number {number}", encoding="utf-8")
    return place


def look(folder: Path, **arguments: Any) -> DatasetReport:
    """The report; it has to be JSON, and its texts printable on one line."""
    report = validate_dataset(folder, **arguments)
    assert json.loads(json.dumps(asdict(report)))["images"] == report.images
    assert all(text.isprintable() for text in report.errors + report.warnings)
    assert report.is_valid == (not report.errors)
    return report


def only_error(folder: Path, **arguments: Any) -> str:
    report = look(folder, **arguments)
    assert (len(report.errors), report.warnings) == (1, ())
    return report.errors[0]


def only_warning(folder: Path, **arguments: Any) -> str:
    report = look(folder, **arguments)
    assert (report.errors, len(report.warnings)) == ((), 1)
    return report.warnings[0]


def test_a_good_folder(folder: Path) -> None:
    (folder / "10.jpg").write_bytes(photo())
    (folder / "10.txt").write_text("\ufeffSKS dog", encoding="utf-8")
    assert look(folder, require_captions=True, trigger="sks") == DatasetReport(
        path=str(folder),
        is_valid=True,
        images=11,
        captions=11,
        total_bytes=sum(file.stat().st_size for file in folder.iterdir()),
        formats={"jpeg": 1, "png": 10},
        smallest_side=600,
        largest_side=800,
    )


def test_folders_one_level_below_belong_to_it(folder: Path) -> None:
    (folder / "5_cat" / "deep").mkdir(parents=True)
    (folder / "5_cat" / "0.png").write_bytes(png(seed="cat"))
    (folder / "5_cat" / "0.txt").write_text("cat", encoding="utf-8")
    (folder / "5_cat" / "deep" / "1.png").write_bytes(png(seed="deep"))
    assert only_warning(folder) == "5_cat/deep is ignored, because it is more than one folder deep: move it up"
    assert look(folder).images == 11


def test_hidden_and_other_files_are_counted_only(folder: Path) -> None:
    (folder / ".DS_Store").write_bytes(b"x")
    (folder / "._0.png").write_bytes(b"x")
    (folder / ".git").mkdir()
    (folder / "dataset.toml").write_bytes(b"[general]")
    report = look(folder)
    assert (report.hidden, report.other, report.errors, report.warnings) == (3, 1, (), ())


@pytest.mark.parametrize("path", ["missing", "images/0.png", "\0", "circle"])
def test_a_path_that_is_no_folder(path: str, folder: Path) -> None:
    (folder.parent / "circle").symlink_to("circle")
    with pytest.raises(SettingsError, match="^path: "):
        validate_dataset(folder.parent / path)


@pytest.mark.parametrize("wrong", [{"min_images": -1}, {"min_side": -1}, {"max_images": 0}, {"trigger": " "}])
def test_arguments_without_sense(wrong: dict[str, Any], folder: Path) -> None:
    with pytest.raises(SettingsError, match=f"^{next(iter(wrong))}: "):
        validate_dataset(folder, **wrong)


# ---------------------------------------------------------------- images


def test_too_few_and_too_many_images(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert only_error(tmp_path / "empty") == "0 usable images, but at least 10 are needed: add images"
    assert look(tmp_path / "empty").smallest_side is None
    assert look(tmp_path / "empty", min_images=0).is_valid
    assert only_error(folder, min_images=3, max_images=9) == "10 images, but at most 9 are allowed: check the folder"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty (0 bytes)"),
        (b"<html>404 Not Found</html>", "is not an image"),
        (png()[:-1], "is truncated: its last PNG chunk (IEND) is missing"),
        (png().replace(b"IHDR", b"CgBI"), "has a damaged header"),
        (png()[: png().index(b"IDAT") + 20], "is truncated: its last PNG chunk (IEND) is missing"),
        (photo()[:9], "has a damaged header"),
        (photo(b"\xff\xe1\xff\xff" + b"\0" * 65533)[:-2], "is truncated: its JPEG end marker (EOI) is missing"),
        (vp8(600, 600)[:-2], "is truncated: it has 36 of 38 bytes"),
    ],
)
def test_files_that_are_no_whole_image(data: bytes, said: str, folder: Path) -> None:
    (folder / "bad.png").write_bytes(data)
    (folder / "bad.txt").write_text("its caption is no orphan", encoding="utf-8")
    assert only_error(folder) == f"bad.png {said}: copy or export it again, or remove it"
    assert look(folder).images == 10


def test_a_file_that_cannot_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, mode: str) -> Any:
        if path.name == "3.png":
            raise PermissionError(13, "Permission denied")
        return open(path, mode)

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(Path, "read_text", lambda path, encoding: "sks")
    first, second = look(folder).errors
    assert first.startswith("3.png cannot be read (Permission denied): check its permissions")
    assert second == "9 usable images, but at least 10 are needed: add images"


def test_long_metadata_and_a_film_behind_a_photo_are_no_damage(folder: Path) -> None:
    (folder / "0.png").unlink()
    for data in (photo((b"\xff\xe2\xff\xff" + b"\0" * 65533) * 20), photo() + b"film" * 100_000):
        (folder / "0.jpg").write_bytes(data)
        assert look(folder).errors == look(folder).warnings == ()
    (folder / "0.jpg").write_bytes(photo()[:-2] + b"film" * 100_000)
    assert "0.jpg is truncated" in look(folder).errors[0]


def test_names_that_lie_and_formats_that_trainers_skip(folder: Path) -> None:
    (folder / "0.png").rename(folder / "0.JPG")
    (folder / "1.png").rename(folder / "1.data")
    (folder / "2.gif").write_bytes(b"GIF89a" + b"\0" * 30)
    (folder / "x.heic").write_bytes(b"\0\0\0\x18ftypheic")
    assert look(folder).warnings == (
        "0.JPG has png content: rename it, because trainers rely on the file extension",
        "1.data has png content: rename it, because trainers rely on the file extension",
        "2.gif is ignored, because trainers do not read its format: convert it to PNG or JPEG",
        "x.heic is ignored, because trainers do not read its format: convert it to PNG or JPEG",
    )
    assert (look(folder).images, look(folder).is_valid) == (10, True)


@pytest.mark.parametrize(
    ("width", "height", "errors", "warnings"),
    [
        (512, 1536, [], []),
        (511, 600, [], ["below 512 on its short side: a larger image trains better"]),
        (600, 255, ["far below 512 on its short side: replace or remove it"], []),
        (512, 1537, [], ["an aspect ratio above 3: crop it, or the trainer will"]),
        (20_000, 20_000, ["more than image readers accept: scale it down"], []),
    ],
)
def test_sizes(width: int, height: int, errors: list[str], warnings: list[str], folder: Path) -> None:
    (folder / "0.png").write_bytes(png(width, height))
    what, report = f"0.png has {width}x{height} pixels, ", look(folder)
    assert list(report.errors) == [what + text for text in errors]
    assert list(report.warnings) == [what + text for text in warnings]


def test_equal_files_are_told_and_only_those_of_equal_size_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(10):
        (folder / f"{number}.png").write_bytes(png(seed=number) + b"\0" * number)
    (folder / "9.png").write_bytes((folder / "0.png").read_bytes())
    read: list[str] = []
    digest = dataset._digest
    monkeypatch.setattr(dataset, "_digest", lambda path: (read.append(path.name), digest(path))[1])
    assert only_warning(folder) == "0.png, 9.png are the same image: keep only one, because duplicates count twice"
    assert set(read) == {"0.png", "9.png"}
    (folder / "9.png").unlink()
    (folder / "9.png").symlink_to("0.png")
    assert only_warning(folder).startswith("0.png, 9.png are the same image"), "so is a link within the folder"


# ---------------------------------------------------------------- captions


def test_missing_and_empty_captions(folder: Path) -> None:
    (folder / "0.txt").unlink()
    (folder / "1.txt").write_text(" \n", encoding="utf-8")
    expected = (
        "0.png without a caption: write one into a .txt file of the same name",
        "1.txt is empty: describe the image in it, or remove it",
    )
    assert look(folder).warnings == look(folder, require_captions=True).errors == expected
    assert (look(folder).captions, look(folder).is_valid) == (8, True)


def test_no_captions_at_all(folder: Path) -> None:
    for file in folder.glob("*.txt"):
        file.unlink()
    said = "no image has a caption: describe NAME.png in a file NAME.txt next to it"
    assert only_warning(folder, trigger="sks") == only_error(folder, require_captions=True) == said


def test_captions_that_are_not_utf8_or_too_long(folder: Path) -> None:
    (folder / "0.txt").write_bytes("Käse".encode("latin-1"))
    (folder / "1.txt").write_text("ß" * 2001, encoding="utf-8")
    (folder / "2.txt").write_text("x" * 70_000, encoding="utf-8")
    (folder / "3.txt").write_text("sks", encoding="utf-16-le")
    report = look(folder)
    assert report.errors == (
        "0.txt is not UTF-8: save it as UTF-8 text",
        "2.txt has 70000 bytes, which is too long for a caption: shorten or remove it",
        "3.txt has control characters in it: save it as UTF-8 text",
    )
    assert report.warnings == ("1.txt is longer than 2000 characters: shorten it",)


def test_the_trigger_word(folder: Path) -> None:
    assert look(folder, trigger=" SKS ").warnings == ()
    assert only_error(folder, trigger="sk") == "no caption contains the trigger word 'sk': add it to each"
    (folder / "0.txt").write_text("a dog", encoding="utf-8")
    assert only_warning(folder, trigger="sks") == "0.txt without the trigger word 'sks': add it to each"


def test_texts_beside_no_image_or_beside_two(folder: Path) -> None:
    (folder / "README.txt").write_text("hello", encoding="utf-8")
    assert only_warning(folder) == "README.txt without an image of the same name: rename or remove the file"
    (folder / "README.txt").unlink()
    (folder / "0.jpg").write_bytes(photo())
    assert only_warning(folder) == "0.jpg, 0.png differ only in their extension and share a caption: rename them"
    assert look(folder).captions == 10


# ---------------------------------------------------------------- links, names and many files


def test_links(folder: Path) -> None:
    (folder.parent / "secret.png").write_bytes(png(seed="secret"))
    (folder / "a.png").symlink_to("../secret.png")
    (folder / "b.png").symlink_to("nowhere")
    (folder / "c.png").symlink_to("c.png")
    (folder / "d").symlink_to("/")
    (folder / "e").symlink_to(".")
    report = look(folder)
    assert report.errors == (
        "b.png is a link that cannot be followed (No such file or directory)",
        "c.png is a link that cannot be followed (Too many levels of symbolic links)",
        "d is a link to a folder: replace it with the folder itself",
        "e is a link to a folder: replace it with the folder itself",
    )
    assert (report.images, report.other) == (11, 4)


@pytest.mark.parametrize(
    ("name", "shown"), [(b"a\n\x1b[31m", r"a\n\x1b[31m"), (b"k\xe4se", r"k\udce4se"), (b"$(reboot) -rf", None)]
)
def test_hostile_names(name: bytes, shown: str | None, folder: Path) -> None:
    for suffix, data in ((b".png", png(seed="x")), (b".txt", b"sks")):
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name + suffix)).write_bytes(data)
    problem = "a newline in its name" if b"\n" in name else "a name that is not UTF-8"
    expected = tuple(f"{shown}{suffix} has {problem}: rename it" for suffix in (".png", ".txt")) if shown else ()
    assert (look(folder).errors, look(folder).warnings) == (expected, ())


def test_whatever_could_not_be_copied_to_a_machine_is_named(folder: Path) -> None:
    (folder / "notes\tof.json").write_text("{}")
    (folder / "5_\x7fcat").mkdir()
    (folder / ".hid\nden").write_text("is not copied")
    (folder / "a" / "b").mkdir(parents=True)  # an ignored folder
    (folder / "a" / "b" / "x\ny.png").write_bytes(b"")
    assert look(folder).errors == (
        r"5_\x7fcat has control characters in its name: rename it",
        r"a/b/x\ny.png has a newline in its name: rename it",
        r"notes\tof.json has control characters in its name: rename it",
    )


def test_the_number_of_texts_and_of_files_is_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(8):
        (folder / f"{number}.txt").unlink()
    for number in range(130):
        (folder / f"bad{number:03}.png").write_bytes(b"")
    report = look(folder)
    assert (len(report.errors), report.errors[-1]) == (101, "and 30 more")
    captionless = report.warnings[0]
    assert captionless.startswith("0.png, 1.png, 2.png, 3.png, 4.png and 3 more without a caption")
    monkeypatch.setattr(file_lists, "MOST_FILES", 20)
    assert look(folder).errors[0] == (
        "it cannot be copied to a machine: expected a folder with at most 20 files; pack the files into archives"
    )
