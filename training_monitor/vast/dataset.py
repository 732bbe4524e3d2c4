"""Whether a folder of images is fit to train a LoRA with, looked at before a machine is rented for it.

The layout is the one that image trainers share: NAME.png with its caption NAME.txt beside it, in the folder itself or
in folders one level below (`10_name`). Images are known by their content and read whole: of a PNG it is seen whether
its data inflates, of other images whether their parts are all there. Nothing is changed.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from training_monitor.errors import SettingsError
from training_monitor.parse import image_header
from training_monitor.parse.image_structure import find_structure_damage
from training_monitor.parse.png_data import PIECE, PngCheck, count_data_bytes
from training_monitor.units import format_bytes, plural
from training_monitor.vast.dataset_files import (
    CAPTION_SUFFIX,
    DatasetFile,
    Findings,
    cannot_read,
    check_copying,
    walk_dataset,
)

MOST_IMAGES = 10_000
MOST_TOLD = 100
MOST_NAMES = 5
MOST_CAPTION_CHARACTERS = 2000
MOST_ASPECT_RATIO = 3.0
MOST_PIXELS = 178_956_970  # Pillow refuses more: twice its Image.MAX_IMAGE_PIXELS

_TAIL_BYTES = 64 * 1024
_MOST_READ_BYTES = 64 * 1024 * 1024  # of one image into memory; a PNG is read in pieces
_MOST_CAPTION_BYTES = 64 * 1024  # more is too long in any writing
MOST_DATA_BYTES = 4 * 1024**3  # of all images together, PNGs inflated, to see that they are whole: some ten seconds
_NO_TEXT = re.compile("[\x00-\x08\x0e-\x1f\x7f]")
_FORMAT_OF_SUFFIX = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".webp": "webp", ".gif": "gif", ".bmp": "bmp"}
_OTHER_IMAGE_SUFFIXES = frozenset({".avif", ".heic", ".heif", ".jxl", ".jp2", ".tif", ".tiff", ".psd", ".svg"})
_Texts = dict[Path, "DatasetFile"]


@dataclass(frozen=True, slots=True)
class DatasetReport:
    """What a folder of images holds; `is_valid` when there are no errors.

    `images` counts those that can be used, and `formats` them by format; `captions` counts those that belong to an
    image and say something. `total_bytes` is of these images and all captions beside them. `smallest_side` and
    `largest_side` are the shortest and the longest side of any of them, in pixels; None without images. `hidden` and
    `other` count the files and folders that were ignored. `errors` and `warnings` name the file and say what to do.
    """

    path: str
    is_valid: bool
    images: int
    captions: int
    total_bytes: int
    formats: Mapping[str, int]
    smallest_side: int | None
    largest_side: int | None
    hidden: int = 0
    other: int = 0
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Image(DatasetFile):
    header: image_header.ImageHeader


def validate_dataset(
    path: str | os.PathLike[str],
    *,
    min_images: int = 10,
    min_side: int = 512,
    max_images: int = MOST_IMAGES,
    require_captions: bool = False,
    trigger: str | None = None,
) -> DatasetReport:
    """Look through a folder of images and captions on this machine.

    Args:
        path: The folder.
        min_images: Fewer usable images are an error.
        min_side: Pixels of the shorter side; an image with less is warned of, one with less than half is an error.
        max_images: More images are an error: it is probably the wrong folder.
        require_captions: A missing or empty caption is an error rather than a warning.
        trigger: The word that the LoRA is to be called by; an error when there are captions and none holds it, as a
            word of its own, in upper or lower case.

    Returns:
        What was found; files that are wrong are in its errors and raise nothing.

    Raises:
        SettingsError: The path is no folder that can be read, or another argument makes no sense.
    """
    _check_arguments(min_images, min_side, max_images, trigger)
    root, findings = _readable_folder(path), Findings(data_left=MOST_DATA_BYTES)
    files = list(walk_dataset(root, root, findings))
    texts = {file.path: file for file in files if file.suffix == CAPTION_SUFFIX}
    images = [image for file in files if file.path not in texts if (image := _read_image(file, findings))]
    if len(images) < min_images:
        findings.errors.append(f"{plural(len(images), 'usable image')}, at least {min_images} are needed: add images")
    if len(images) > max_images:
        findings.errors.append(f"{len(images)} images, at most {max_images} are allowed: check the folder")
    if findings.skimmed:
        most = f"over {format_bytes(_MOST_READ_BYTES)}, or over {format_bytes(MOST_DATA_BYTES)} with the others"
        findings.warnings.append(f"{_some(findings.skimmed)}: only the beginning and the end were looked at ({most})")
    for image in images:
        _check_size(image, min_side, findings)
    _check_shared_names(images, findings)
    _check_duplicates(images, findings)
    captions = _read_captions(images, texts, require_captions, findings)
    if trigger and captions:
        _check_trigger(captions, trigger.strip(), findings)
    _check_orphans(files, findings)
    if not findings.errors:
        check_copying(root, findings)
    return _make_report(root, images, texts, len(captions), findings)


def _check_arguments(min_images: int, min_side: int, max_images: int, trigger: str | None) -> None:
    limits = ("min_images", min_images, 0), ("min_side", min_side, 0), ("max_images", max_images, max(1, min_images))
    for key, value, least in limits:
        if value < least:
            raise SettingsError(key, value, f"a number of at least {least}")
    if trigger is not None and not trigger.strip():
        raise SettingsError("trigger", trigger, "a word, or None")


def _readable_folder(path: str | os.PathLike[str]) -> Path:
    """The folder without links in its own path."""
    try:
        root = Path(path).resolve(strict=True)
        os.scandir(root).close()
    except (OSError, RuntimeError, ValueError) as error:  # a circle of links, and a NUL in the path
        raise SettingsError("path", os.fspath(path), "a folder that can be read") from error
    return root


def _read_image(file: DatasetFile, findings: Findings) -> _Image | None:
    """The image, or None after it was said why it is none, or was counted as another file."""
    try:
        with file.path.open("rb") as stream:
            head = _read_head(stream, file.size)
            header = image_header.read_image_header(head)
            damage = _find_damage(stream, file, header, head, findings) if header else "has a damaged header"
    except OSError as error:
        findings.errors.append(cannot_read(file.name, error))
        return None
    kind = image_header.detect_image_format(head)
    if kind is None:
        _tell_no_image(file, findings)
    elif header is None or damage:
        findings.errors.append(f"{file.name} {damage}: copy or export it again, or remove it")
    else:
        _tell_of_name(file, kind, findings)
        return _Image(file.path, file.name, file.size, header)
    return None


def _read_head(stream: BinaryIO, size: int) -> bytes:
    """So many of the first bytes that the header is in them, where the file has it."""
    head = more = stream.read(image_header.HEAD_BYTES)
    while more and (needed := image_header.bytes_needed(head)) and needed <= min(size, _MOST_READ_BYTES):
        more = stream.read(max(needed, 2 * len(head)) - len(head))
        head += more
    return head


def _find_damage(
    stream: BinaryIO, file: DatasetFile, header: image_header.ImageHeader, head: bytes, findings: Findings
) -> str | None:
    is_png = header.format == "png"
    if header.width * header.height <= MOST_PIXELS:  # more is refused anyway
        cost = max(file.size, (count_data_bytes(head[16:29]) or 0) if is_png else 0)
        if cost <= findings.data_left and (is_png or file.size <= _MOST_READ_BYTES):
            findings.data_left -= cost
            return _find_png_damage(stream) if is_png else _find_other_damage(stream, file.size, header)
        findings.skimmed.append(file.name)
    stream.seek(max(file.size - _TAIL_BYTES, 0))
    return image_header.find_damage(header, file.size, stream.read(_TAIL_BYTES))


def _find_png_damage(stream: BinaryIO) -> str | None:
    stream.seek(0)
    check = PngCheck()
    while check.damage is None and not check.is_complete and (piece := stream.read(PIECE)):
        check.feed(piece)
    return check.end()


def _find_other_damage(stream: BinaryIO, size: int, header: image_header.ImageHeader) -> str | None:
    if damage := image_header.find_damage(header, size, b""):
        return damage
    stream.seek(0)
    return find_structure_damage(header.format, stream.read(size))


def _tell_no_image(file: DatasetFile, findings: Findings) -> None:
    if file.suffix in _FORMAT_OF_SUFFIX:
        what = "is no image" if file.size else "is empty (0 bytes)"
        findings.errors.append(f"{file.name} {what}: copy or export it again, or remove it")
        return
    findings.other += 1
    if file.suffix in _OTHER_IMAGE_SUFFIXES:
        findings.warnings.append(f"{file.name} is ignored, trainers do not read its format: convert it to PNG or JPEG")


def _tell_of_name(file: DatasetFile, kind: str, findings: Findings) -> None:
    if _FORMAT_OF_SUFFIX.get(file.suffix) != kind:
        findings.warnings.append(f"{file.name} is a {kind} by its content: rename it, trainers go by the name")
    if kind == "gif":
        findings.warnings.append(f"{file.name} is a GIF, which most trainers skip: convert it to PNG")


def _check_size(image: _Image, min_side: int, findings: Findings) -> None:
    short, long = sorted((image.header.width, image.header.height))
    what = f"{image.name} has {image.header.width}x{image.header.height} pixels"
    if short < min_side / 2:
        findings.errors.append(f"{what}, far below {min_side} on its short side: replace or remove it")
    elif short < min_side:
        findings.warnings.append(f"{what}, below {min_side} on its short side: a larger one trains better")
    if short * long > MOST_PIXELS:
        findings.errors.append(f"{what}, more than image readers accept: scale it down")
    if long > short * MOST_ASPECT_RATIO:
        findings.warnings.append(f"{what}, more than {MOST_ASPECT_RATIO:g} to 1: crop it, or the trainer will")


def _check_shared_names(images: list[_Image], findings: Findings) -> None:
    counts = Counter(image.caption_path for image in images)
    shared = [image.name for image in images if counts[image.caption_path] > 1]
    if shared:
        findings.warnings.append(f"{_some(shared)} differ only in their extension and share a caption: rename them")


def _check_duplicates(images: list[_Image], findings: Findings) -> None:
    """Warn of equal files; only those of equal size are read."""
    counts = Counter(image.size for image in images)
    same: dict[bytes, list[str]] = {}
    for image in images:
        if counts[image.size] > 1:
            try:
                same.setdefault(_digest(image.path), []).append(image.name)
            except OSError as error:
                findings.errors.append(cannot_read(image.name, error))
    for names in same.values():
        if len(names) > 1:
            findings.warnings.append(f"{_some(names)} are the same image: remove all but one, or it counts double")


def _digest(path: Path) -> bytes:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while piece := stream.read(1024 * 1024):
            digest.update(piece)
    return digest.digest()


def _read_captions(images: list[_Image], texts: _Texts, is_required: bool, findings: Findings) -> dict[str, str]:
    """The captions that say something, by the names of their files; tells of those that are missing or wrong."""
    wanted = {image.caption_path: image.name for image in images}
    missing = [name for path, name in wanted.items() if path not in texts]
    serious = findings.errors if is_required else findings.warnings
    if missing and len(missing) == len(wanted):
        serious.append("no image has a caption: write what is on NAME.png into NAME.txt beside it")
    elif missing:
        serious.append(f"{_some(missing)} without a caption: write one into a .txt of the same name")
    captions = {}
    for file in (texts[path] for path in wanted if path in texts):
        text = _read_caption(file, findings)
        if text:
            captions[file.name] = text
        elif text is not None:
            serious.append(f"{file.name} is empty: write what is on the image, or remove it")
    return captions


def _read_caption(file: DatasetFile, findings: Findings) -> str | None:
    """The text without blanks around it, or None after it was said why it cannot be read."""
    if file.size > _MOST_CAPTION_BYTES:
        findings.errors.append(f"{file.name} has {file.size} bytes, no caption is so long: shorten or remove it")
        return None
    try:
        text = file.path.read_text(encoding="utf-8-sig").strip()
    except OSError as error:
        findings.errors.append(cannot_read(file.name, error))
        return None
    except UnicodeDecodeError:
        findings.errors.append(f"{file.name} is not UTF-8: save it as UTF-8 text")
        return None
    if _NO_TEXT.search(text):  # UTF-16 without its mark is one NUL after another
        findings.errors.append(f"{file.name} has control characters in it: save it as UTF-8 text")
        return None
    if len(text) > MOST_CAPTION_CHARACTERS:
        findings.warnings.append(f"{file.name} is longer than {MOST_CAPTION_CHARACTERS} characters: shorten it")
    return text


def _check_trigger(captions: Mapping[str, str], trigger: str, findings: Findings) -> None:
    word = re.compile(rf"(?<!\w){re.escape(trigger)}(?!\w)", re.IGNORECASE)
    missing = [name for name, text in captions.items() if not word.search(text)]
    if len(missing) == len(captions):
        findings.errors.append(f"no caption has the trigger word {trigger!r}: write it into each")
    elif missing:
        findings.warnings.append(f"{_some(missing)} without the trigger word {trigger!r}: write it into each")


def _check_orphans(files: list[DatasetFile], findings: Findings) -> None:
    """Warn of texts beside nothing; one beside a damaged image is not told of again."""
    wanted = {file.caption_path for file in files if file.suffix != CAPTION_SUFFIX}
    orphans = [file.name for file in files if file.suffix == CAPTION_SUFFIX and file.path not in wanted]
    if orphans:
        findings.warnings.append(f"{_some(orphans)} without an image of the same name: rename or remove it")


def _make_report(root: Path, images: list[_Image], texts: _Texts, captions: int, findings: Findings) -> DatasetReport:
    sides = [side for image in images for side in (image.header.width, image.header.height)]
    beside = {path for image in images if (path := image.caption_path) in texts}
    return DatasetReport(
        path=str(root),
        is_valid=not findings.errors,
        images=len(images),
        captions=captions,
        total_bytes=sum(image.size for image in images) + sum(texts[path].size for path in beside),
        formats=dict(sorted(Counter(image.header.format for image in images).items())),
        smallest_side=min(sides, default=None),
        largest_side=max(sides, default=None),
        hidden=findings.hidden,
        other=findings.other,
        errors=_told(findings.errors),
        warnings=_told(findings.warnings),
    )


def _told(texts: list[str], most: int = MOST_TOLD) -> tuple[str, ...]:
    left = len(texts) - most
    return (*texts[:most], f"and {left} more") if left > 0 else tuple(texts)


def _some(names: list[str]) -> str:
    return ", ".join(_told(names, MOST_NAMES))
