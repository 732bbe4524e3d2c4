"""Whether a folder of images is fit to train a LoRA with, looked at before a machine is rented for it.

The layout is the one that image trainers share: NAME.png with its caption NAME.txt beside it, in the folder itself or
in folders one level below (`10_name`). Images are known by their content. Nothing is decoded and nothing is changed.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from training_monitor.errors import SettingsError
from training_monitor.parse import image_header
from training_monitor.units import plural

MOST_IMAGES = 10_000
MOST_ENTRIES = 100_000
MOST_TOLD = 100
MOST_NAMES = 5
MOST_CAPTION_CHARACTERS = 2000
MOST_ASPECT_RATIO = 3.0
MOST_PIXELS = 178_956_970  # Pillow refuses more: twice its Image.MAX_IMAGE_PIXELS

_TAIL_BYTES = 64 * 1024
_MOST_READ_BYTES = 64 * 1024 * 1024  # of one image, where its head or its tail does not tell
_MOST_CAPTION_BYTES = 64 * 1024  # more is too long in any writing
_CAPTION_SUFFIX = ".txt"
_HOSTILE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")  # control characters, and bytes that are no UTF-8
_FORMAT_OF_SUFFIX = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".webp": "webp", ".gif": "gif", ".bmp": "bmp"}
_OTHER_IMAGE_SUFFIXES = frozenset({".avif", ".heic", ".heif", ".jxl", ".jp2", ".tif", ".tiff", ".psd", ".svg"})
_Texts = dict[Path, "_File"]


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
class _File:
    """A file of the dataset; `name` is relative to it and fit to be printed."""

    path: Path
    name: str
    size: int

    @property
    def suffix(self) -> str:
        return self.path.suffix.lower()

    @property
    def caption_path(self) -> Path:
        return self.path.with_suffix(_CAPTION_SUFFIX)


@dataclass(frozen=True, slots=True)
class _Image(_File):
    header: image_header.ImageHeader


@dataclass(slots=True)
class _Findings:
    """What is gathered on the way through the folder."""

    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    hidden: int = 0
    other: int = 0


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
    root, findings = _readable_folder(path), _Findings()
    files = list(_walk(root, root, findings))
    texts = {file.path: file for file in files if file.suffix == _CAPTION_SUFFIX}
    images = [image for file in files if file.path not in texts if (image := _read_image(file, findings))]
    if len(images) < min_images:
        findings.errors.append(f"{plural(len(images), 'usable image')}, at least {min_images} are needed: add images")
    if len(images) > max_images:
        findings.errors.append(f"{len(images)} images, at most {max_images} are allowed: check the folder")
    for image in images:
        _check_size(image, min_side, findings)
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
    """The folder without links in its own path."""
    try:
        root = Path(path).resolve(strict=True)
        os.scandir(root).close()
    except (OSError, RuntimeError, ValueError) as error:  # a circle of links, and a NUL in the path
        raise SettingsError("path", os.fspath(path), "a folder that can be read") from error
    return root


def _walk(folder: Path, root: Path, findings: _Findings) -> Iterator[_File]:
    """The regular files of a folder, by name, and of the folders in it if it is the dataset's own."""
    for entry in _entries(folder, root, findings):
        path = folder / entry.name
        if entry.name.startswith("."):
            findings.hidden += 1
        elif entry.is_dir(follow_symlinks=False) and folder == root:
            yield from _walk(path, root, findings)
        elif entry.is_dir(follow_symlinks=False):
            findings.other += 1
            findings.warnings.append(f"{_name(path, root)} is more than one folder deep and ignored: move it up")
        elif file := _regular_file(path, root, findings):
            yield file


def _entries(folder: Path, root: Path, findings: _Findings) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            entries = sorted(islice(found, MOST_ENTRIES + 1), key=lambda entry: entry.name)
    except OSError as error:
        findings.errors.append(_cannot_read(_name(folder, root), error))
        return []
    if len(entries) > MOST_ENTRIES:
        findings.errors.append(f"{_name(folder, root)} has more than {MOST_ENTRIES} files: is it the right folder?")
    return entries[:MOST_ENTRIES]


def _regular_file(path: Path, root: Path, findings: _Findings) -> _File | None:
    """The file, or None for what is no file, and for a link that leads out of the folder or nowhere."""
    name = _name(path, root)
    try:
        target = path.resolve(strict=True)
        if not target.is_relative_to(root):
            findings.errors.append(f"{name} is a link out of the folder: put the file itself in its place")
            return None
        if not target.is_file():
            findings.other += 1
            return None
        size = target.stat().st_size
    except (OSError, RuntimeError) as error:
        findings.errors.append(_cannot_read(name, error))
        return None
    if _HOSTILE.search(path.name):
        findings.warnings.append(f"{name} has control characters or is not UTF-8 in its name: rename it")
    return _File(path, name, size)


def _name(path: Path, root: Path) -> str:
    """The path below the dataset's folder, with escapes for what must not reach a terminal."""
    name = path.relative_to(root).as_posix()
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def _cannot_read(name: str, error: Exception) -> str:
    reason = (error.strerror if isinstance(error, OSError) else None) or "its links go in a circle"
    return f"{name} cannot be read ({reason}): check its permissions and where it leads, or remove it"


def _read_image(file: _File, findings: _Findings) -> _Image | None:
    """The image, or None after it was said why it is none, or was counted as another file."""
    try:
        with file.path.open("rb") as stream:
            head = _read_head(stream, file.size)
            header = image_header.read_image_header(head)
            damage = _find_damage(stream, file.size, header, head) if header else "has a damaged header"
    except OSError as error:
        findings.errors.append(_cannot_read(file.name, error))
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


def _find_damage(stream: BinaryIO, size: int, header: image_header.ImageHeader, head: bytes) -> str | None:
    if len(head) >= size:
        return image_header.find_damage(header, size, head)
    stream.seek(max(size - _TAIL_BYTES, 0))
    damage = image_header.find_damage(header, size, stream.read(_TAIL_BYTES))
    if damage and header.format == "jpeg" and size <= _MOST_READ_BYTES:  # a phone may have appended a film
        stream.seek(0)
        return image_header.find_damage(header, size, stream.read(size))
    return damage


def _tell_no_image(file: _File, findings: _Findings) -> None:
    if file.suffix in _FORMAT_OF_SUFFIX:
        what = "is no image" if file.size else "is empty (0 bytes)"
        findings.errors.append(f"{file.name} {what}: copy or export it again, or remove it")
        return
    findings.other += 1
    if file.suffix in _OTHER_IMAGE_SUFFIXES:
        findings.warnings.append(f"{file.name} is ignored, trainers do not read its format: convert it to PNG or JPEG")


def _tell_of_name(file: _File, kind: str, findings: _Findings) -> None:
    if _FORMAT_OF_SUFFIX.get(file.suffix) != kind:
        findings.warnings.append(f"{file.name} is a {kind} by its content: rename it, trainers go by the name")
    if kind == "gif":
        findings.warnings.append(f"{file.name} is a GIF, which most trainers skip: convert it to PNG")


def _check_size(image: _Image, min_side: int, findings: _Findings) -> None:
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


def _check_shared_names(images: list[_Image], findings: _Findings) -> None:
    counts = Counter(image.caption_path for image in images)
    shared = [image.name for image in images if counts[image.caption_path] > 1]
    if shared:
        findings.warnings.append(f"{_some(shared)} differ only in their extension and share a caption: rename them")


def _check_duplicates(images: list[_Image], findings: _Findings) -> None:
    """Warn of equal files; only those of equal size are read."""
    counts = Counter(image.size for image in images)
    same: dict[bytes, list[str]] = {}
    for image in images:
        if counts[image.size] > 1:
            try:
                same.setdefault(_digest(image.path), []).append(image.name)
            except OSError as error:
                findings.errors.append(_cannot_read(image.name, error))
    for names in same.values():
        if len(names) > 1:
            findings.warnings.append(f"{_some(names)} are the same image: remove all but one, or it counts double")


def _digest(path: Path) -> bytes:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while piece := stream.read(1024 * 1024):
            digest.update(piece)
    return digest.digest()


def _read_captions(images: list[_Image], texts: _Texts, is_required: bool, findings: _Findings) -> dict[str, str]:
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


def _read_caption(file: _File, findings: _Findings) -> str | None:
    """The text without blanks around it, or None after it was said why it cannot be read."""
    if file.size > _MOST_CAPTION_BYTES:
        findings.errors.append(f"{file.name} has {file.size} bytes, no caption is so long: shorten or remove it")
        return None
    try:
        text = file.path.read_text(encoding="utf-8-sig").strip()
    except OSError as error:
        findings.errors.append(_cannot_read(file.name, error))
        return None
    except UnicodeDecodeError:
        findings.errors.append(f"{file.name} is not UTF-8: save it as UTF-8 text")
        return None
    if len(text) > MOST_CAPTION_CHARACTERS:
        findings.warnings.append(f"{file.name} is longer than {MOST_CAPTION_CHARACTERS} characters: shorten it")
    return text


def _check_trigger(captions: Mapping[str, str], trigger: str, findings: _Findings) -> None:
    word = re.compile(rf"(?<!\w){re.escape(trigger)}(?!\w)", re.IGNORECASE)
    missing = [name for name, text in captions.items() if not word.search(text)]
    if len(missing) == len(captions):
        findings.errors.append(f"no caption has the trigger word {trigger!r}: write it into each")
    elif missing:
        findings.warnings.append(f"{_some(missing)} without the trigger word {trigger!r}: write it into each")


def _check_orphans(files: list[_File], findings: _Findings) -> None:
    """Warn of texts beside nothing; one beside a damaged image is not told of again."""
    wanted = {file.caption_path for file in files if file.suffix != _CAPTION_SUFFIX}
    orphans = [file.name for file in files if file.suffix == _CAPTION_SUFFIX and file.path not in wanted]
    if orphans:
        findings.warnings.append(f"{_some(orphans)} without an image of the same name: rename or remove it")


def _make_report(root: Path, images: list[_Image], texts: _Texts, captions: int, findings: _Findings) -> DatasetReport:
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
