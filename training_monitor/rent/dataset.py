"""Validate a folder of images for LoRA training before a machine is rented for it.

The layout is the one that image trainers share: NAME.png with its caption NAME.txt beside it, in the folder itself or
in folders one level below (`10_name`). The image format is detected from the content; signature, size and end of each
image are checked. Nothing is changed.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from training_monitor.core.errors import SettingsError
from training_monitor.core.read_fence import check_here
from training_monitor.core.regex import regex
from training_monitor.core.units import name_some, plural
from training_monitor.rent.file_lists import read_folder
from training_monitor.rent.images import (
    HEAD_BYTES,
    ImageHeader,
    detect_image_format,
    find_damage,
    read_image_header,
)

CAPTION_SUFFIX = ".txt"
_CONTROL = regex("[\x00-\x1f\x7f-\x9f]")
MOST_IMAGES = 10_000
MOST_TOLD = 100
_some = partial(name_some, most=5)
MOST_CAPTION_CHARACTERS = 2000
MOST_ASPECT_RATIO = 3.0
MOST_PIXELS = 178_956_970  # Pillow's limit: twice its Image.MAX_IMAGE_PIXELS
_MOST_HEAD_BYTES = 64 * 1024 * 1024  # of a JPEG with much metadata
_MOST_CAPTION_BYTES = 64 * 1024  # more is too long in any script
_NO_TEXT = regex("[\x00-\x08\x0e-\x1f\x7f]")
_FORMAT_OF_SUFFIX = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".webp": "webp"}
_OTHER_IMAGE_SUFFIXES = frozenset(".avif .bmp .gif .heic .heif .jxl .jp2 .tif .tiff .psd .svg".split())


class DatasetFile(NamedTuple):
    """A file of the dataset; `name` is relative to it and printable."""

    path: Path
    name: str
    size: int

    @property
    def suffix(self) -> str:
        return self.path.suffix.lower()

    @property
    def caption_path(self) -> Path:
        return self.path.with_suffix(CAPTION_SUFFIX)


_Images = dict[DatasetFile, ImageHeader]
_Texts = dict[Path, DatasetFile]


@dataclass(slots=True)
class Findings:
    """What the checks of a folder have found so far."""

    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    hidden: int = 0
    other: int = 0


def _list_dataset(root: Path, findings: Findings) -> list[DatasetFile]:
    """Return the files of a folder and of those one level below, sorted; report what is deeper, or cannot be copied."""
    try:
        found, problems = read_folder(str(root))
    except SettingsError as error:
        findings.errors.append(f"it cannot be copied to a machine: expected {_printable(error.expected)}")
        return []
    names = [*found.files, *(f"{folder}/" for folder in found.empty)]
    deep = {"/".join(name.split("/", 2)[:2]) for name in names if name.count("/") > 1}
    findings.hidden, findings.other = found.hidden, len(problems) + len(deep)
    problems |= {name: "has control characters in its name: rename it" for name in names if _CONTROL.search(name)}
    findings.errors += [f"{_printable(name.rstrip('/'))} {problem}" for name, problem in sorted(problems.items())]
    for name in sorted(deep):
        findings.warnings.append(f"{_printable(name)} is ignored, because it is more than one folder deep: move it up")
    files = sorted((name, file.size) for name, file in found.files.items() if name.count("/") < 2)
    return [DatasetFile(root / name, _printable(name), size) for name, size in files]


def _printable(name: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def cannot_read(name: str, error: Exception) -> str:
    """Format the error for a file or folder that cannot be read."""
    reason = (error.strerror if isinstance(error, OSError) else None) or "its symbolic links form a loop"
    return f"{name} cannot be read ({reason}): check its permissions and its target, or remove it"


@dataclass(frozen=True, slots=True)
class DatasetReport:
    """What a folder of images holds; `is_valid` when there are no errors.

    `images` counts usable images, `formats` the same by format, and `captions` the non-empty captions of an image.
    `total_bytes` sums these images and all captions beside them. `smallest_side` and `largest_side` are in pixels, over
    all images; None without images. `hidden` and `other` count ignored files and folders. `errors` and `warnings` name
    the file and say what to do.
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


def validate_dataset(
    path: str | os.PathLike[str],
    *,
    min_images: int = 10,
    min_side: int = 512,
    max_images: int = MOST_IMAGES,
    require_captions: bool = False,
    trigger: str | None = None,
) -> DatasetReport:
    """Check a folder of images and captions on this machine.

    Args:
        path: the folder.
        min_images: fewer usable images are an error.
        min_side: a shorter side below this number of pixels is a warning; below half of it, an error.
        max_images: more images are an error, because it is probably the wrong folder.
        require_captions: treat a missing or empty caption as an error instead of a warning.
        trigger: the LoRA's trigger word. If there are captions, at least one must contain it as a whole word, ignoring
            case; otherwise this is an error.

    Returns:
        The report. Problems with files are listed in its errors and do not raise exceptions.

    Raises:
        SettingsError: the path is not a readable folder, or another argument is out of range.
    """
    _check_arguments(min_images, min_side, max_images, trigger)
    root, findings = _readable_folder(path), Findings()
    files = _list_dataset(root, findings)
    texts = {file.path: file for file in files if file.suffix == CAPTION_SUFFIX}
    seen = {file: _read_image(file, findings) for file in files if file.path not in texts}
    images = {file: header for file, header in seen.items() if header}
    if len(images) < min_images:
        findings.errors.append(
            f"{plural(len(images), 'usable image')}, but at least {min_images} are needed: add images"
        )
    if len(images) > max_images:
        findings.errors.append(f"{len(images)} images, but at most {max_images} are allowed: check the folder")
    for image, header in images.items():
        _check_size(image.name, header, min_side, findings)
    _check_shared_names(images, findings)
    _check_duplicates(images, findings)
    captions = _read_captions(images, texts, require_captions, findings)
    if trigger and captions:
        _check_trigger(captions, trigger.strip(), findings)
    _check_orphans(files, findings)
    return _make_report(root, images, texts, len(captions), findings)


def _check_arguments(min_images: int, min_side: int, max_images: int, trigger: str | None) -> None:
    limits = ("min_images", min_images, 0), ("min_side", min_side, 0), ("max_images", max_images, max(1, min_images))
    for key, value, least in limits:
        if value < least:
            raise SettingsError(key, value, f"a number of at least {least}")
    if trigger is not None and not trigger.strip():
        raise SettingsError("trigger", trigger, "a word, or None")


def _readable_folder(path: str | os.PathLike[str]) -> Path:
    """Return the folder's real path."""
    try:
        root = Path(check_here(os.fspath(path))).resolve(strict=True)
        os.scandir(root).close()
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, or a NUL in the path
        raise SettingsError("path", os.fspath(path), "a readable folder") from error
    return root


def _read_image(file: DatasetFile, findings: Findings) -> ImageHeader | None:
    """Return the header of an image; None when it was reported as damaged or unreadable, or counted as another file."""
    try:
        with file.path.open("rb") as stream:
            head = stream.read(HEAD_BYTES)
            header, kind = read_image_header(head), detect_image_format(head)
            if header is None and kind == "jpeg":
                header = read_image_header(head + stream.read(max(0, _MOST_HEAD_BYTES - len(head))))
            damage = find_damage(header, file.size, stream) if header else "has a damaged header"
    except OSError as error:
        findings.errors.append(cannot_read(file.name, error))
        return None
    if kind is None:
        _tell_no_image(file, findings)
    elif header is None or damage:
        findings.errors.append(f"{file.name} {damage}: copy or export it again, or remove it")
    else:
        _tell_of_name(file, kind, findings)
        return header
    return None


def _tell_no_image(file: DatasetFile, findings: Findings) -> None:
    if file.suffix in _FORMAT_OF_SUFFIX:
        what = "is not an image" if file.size else "is empty (0 bytes)"
        findings.errors.append(f"{file.name} {what}: copy or export it again, or remove it")
        return
    findings.other += 1
    if file.suffix in _OTHER_IMAGE_SUFFIXES:
        findings.warnings.append(
            f"{file.name} is ignored, because trainers do not read its format: convert it to PNG or JPEG"
        )


def _tell_of_name(file: DatasetFile, kind: str, findings: Findings) -> None:
    if _FORMAT_OF_SUFFIX.get(file.suffix) != kind:
        findings.warnings.append(
            f"{file.name} has {kind} content: rename it, because trainers rely on the file extension"
        )


def _check_size(name: str, header: ImageHeader, min_side: int, findings: Findings) -> None:
    short, long = sorted((header.width, header.height))
    what = f"{name} has {header.width}x{header.height} pixels"
    if short < min_side / 2:
        findings.errors.append(f"{what}, far below {min_side} on its short side: replace or remove it")
    elif short < min_side:
        findings.warnings.append(f"{what}, below {min_side} on its short side: a larger image trains better")
    if short * long > MOST_PIXELS:
        findings.errors.append(f"{what}, more than image readers accept: scale it down")
    if long > short * MOST_ASPECT_RATIO:
        findings.warnings.append(f"{what}, an aspect ratio above {MOST_ASPECT_RATIO:g}: crop it, or the trainer will")


def _check_shared_names(images: _Images, findings: Findings) -> None:
    counts = Counter(image.caption_path for image in images)
    shared = [image.name for image in images if counts[image.caption_path] > 1]
    if shared:
        findings.warnings.append(f"{_some(shared)} differ only in their extension and share a caption: rename them")


def _check_duplicates(images: _Images, findings: Findings) -> None:
    """Warn of identical files; only files of equal size are hashed."""
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
            findings.warnings.append(
                f"{_some(names)} are the same image: keep only one, because duplicates count twice"
            )


def _digest(path: Path) -> bytes:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while piece := stream.read(1024 * 1024):
            digest.update(piece)
    return digest.digest()


def _read_captions(images: _Images, texts: _Texts, is_required: bool, findings: Findings) -> dict[str, str]:
    """Return the non-empty captions by file name; report missing, empty and unreadable ones."""
    wanted = {image.caption_path: image.name for image in images}
    missing = [name for path, name in wanted.items() if path not in texts]
    serious = findings.errors if is_required else findings.warnings
    if missing and len(missing) == len(wanted):
        serious.append("no image has a caption: describe NAME.png in a file NAME.txt next to it")
    elif missing:
        serious.append(f"{_some(missing)} without a caption: write one into a .txt file of the same name")
    captions = {}
    for file in (texts[path] for path in wanted if path in texts):
        text = _read_caption(file, findings)
        if text:
            captions[file.name] = text
        elif text is not None:
            serious.append(f"{file.name} is empty: describe the image in it, or remove it")
    return captions


def _read_caption(file: DatasetFile, findings: Findings) -> str | None:
    """Return the stripped text; None after reporting why it cannot be read."""
    if file.size > _MOST_CAPTION_BYTES:
        findings.errors.append(
            f"{file.name} has {file.size} bytes, which is too long for a caption: shorten or remove it"
        )
        return None
    try:
        text = file.path.read_text(encoding="utf-8-sig").strip()
    except OSError as error:
        findings.errors.append(cannot_read(file.name, error))
        return None
    except UnicodeDecodeError:
        findings.errors.append(f"{file.name} is not UTF-8: save it as UTF-8 text")
        return None
    if _NO_TEXT.search(text):  # UTF-16 without a byte order mark is full of NULs
        findings.errors.append(f"{file.name} has control characters in it: save it as UTF-8 text")
        return None
    if len(text) > MOST_CAPTION_CHARACTERS:
        findings.warnings.append(f"{file.name} is longer than {MOST_CAPTION_CHARACTERS} characters: shorten it")
    return text


def _check_trigger(captions: Mapping[str, str], trigger: str, findings: Findings) -> None:
    word = re.compile(rf"(?<!\w){re.escape(trigger)}(?!\w)", re.IGNORECASE)
    missing = [name for name, text in captions.items() if not word.search(text)]
    if len(missing) == len(captions):
        findings.errors.append(f"no caption contains the trigger word {trigger!r}: add it to each")
    elif missing:
        findings.warnings.append(f"{_some(missing)} without the trigger word {trigger!r}: add it to each")


def _check_orphans(files: list[DatasetFile], findings: Findings) -> None:
    """Warn of captions without an image; one beside a damaged image is not reported again."""
    wanted = {file.caption_path for file in files if file.suffix != CAPTION_SUFFIX}
    orphans = [file.name for file in files if file.suffix == CAPTION_SUFFIX and file.path not in wanted]
    if orphans:
        findings.warnings.append(f"{_some(orphans)} without an image of the same name: rename or remove the file")


def _make_report(root: Path, images: _Images, texts: _Texts, captions: int, findings: Findings) -> DatasetReport:
    sides = [side for header in images.values() for side in (header.width, header.height)]
    beside = {path for image in images if (path := image.caption_path) in texts}
    return DatasetReport(
        path=str(root),
        is_valid=not findings.errors,
        images=len(images),
        captions=captions,
        total_bytes=sum(image.size for image in images) + sum(texts[path].size for path in beside),
        formats=dict(sorted(Counter(header.format for header in images.values()).items())),
        smallest_side=min(sides, default=None),
        largest_side=max(sides, default=None),
        hidden=findings.hidden,
        other=findings.other,
        errors=_told(findings.errors),
        warnings=_told(findings.warnings),
    )


def _told(texts: list[str]) -> tuple[str, ...]:
    left = len(texts) - MOST_TOLD
    return (*texts[:MOST_TOLD], f"and {left} more") if left > 0 else tuple(texts)
