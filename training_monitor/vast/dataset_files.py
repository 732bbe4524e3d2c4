"""The files of a folder of images, and what is said of those that could not be copied to a rented machine."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from training_monitor.errors import SettingsError
from training_monitor.parse.file_list import find_name_problem
from training_monitor.vast.file_lists import list_folder

MOST_ENTRIES = 100_000
CAPTION_SUFFIX = ".txt"
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class DatasetFile:
    """A file of the dataset; `name` is relative to it and fit to be printed."""

    path: Path
    name: str
    size: int

    @property
    def suffix(self) -> str:
        return self.path.suffix.lower()

    @property
    def caption_path(self) -> Path:
        return self.path.with_suffix(CAPTION_SUFFIX)


@dataclass(slots=True)
class Findings:
    """What is gathered on the way through the folder."""

    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    hidden: int = 0
    other: int = 0
    data_left: int = 0  # bytes of image data that may still be read or inflated
    skimmed: list[str] = field(default_factory=list)  # images for which that did not do


def walk_dataset(folder: Path, root: Path, findings: Findings) -> Iterator[DatasetFile]:
    """The regular files of a folder, by name, and of the folders in it if it is the dataset's own."""
    for entry in _entries(folder, root, findings):
        path = folder / entry.name
        if entry.name.startswith("."):
            findings.hidden += 1
            continue
        if problem := _find_name_problem(entry.name):
            findings.errors.append(f"{_name(path, root)} has {problem}: rename it")
        if entry.is_dir(follow_symlinks=False) and folder == root:
            yield from walk_dataset(path, root, findings)
        elif entry.is_dir(follow_symlinks=False):
            findings.other += 1
            findings.warnings.append(f"{_name(path, root)} is more than one folder deep and ignored: move it up")
        elif file := _regular_file(path, root, findings):
            yield file


def _entries(folder: Path, root: Path, findings: Findings) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            entries = sorted(islice(found, MOST_ENTRIES + 1), key=lambda entry: entry.name)
    except OSError as error:
        findings.errors.append(cannot_read(_name(folder, root), error))
        return []
    if len(entries) > MOST_ENTRIES:
        findings.errors.append(f"{_name(folder, root)} has more than {MOST_ENTRIES} files: is it the right folder?")
    return entries[:MOST_ENTRIES]


def _regular_file(path: Path, root: Path, findings: Findings) -> DatasetFile | None:
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
        target.open("rb").close()  # whatever it is, it is copied with the rest
    except (OSError, RuntimeError) as error:
        findings.errors.append(cannot_read(name, error))
        return None
    return DatasetFile(path, name, size)


def _find_name_problem(name: str) -> str | None:
    """Why the file could not be copied, or could not be named where it is trained with."""
    return "control characters in its name" if _CONTROL.search(name) else find_name_problem(name)


def check_copying(root: Path, findings: Findings) -> None:
    """Tell what keeps the folder from being copied, in the folders below as well that are ignored otherwise."""
    try:
        list_folder(str(root))
    except SettingsError as error:
        name = _printable(
            os.path.relpath(str(error.value), root) if os.path.isabs(str(error.value)) else str(error.value)
        )
        findings.errors.append(f"{name} cannot be copied to a machine: expected {error.expected}")


def _name(path: Path, root: Path) -> str:
    """The path below the dataset's folder, with escapes for what must not reach a terminal."""
    return _printable(path.relative_to(root).as_posix())


def _printable(name: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def cannot_read(name: str, error: Exception) -> str:
    """What is said of a file or folder that cannot be read."""
    reason = (error.strerror if isinstance(error, OSError) else None) or "its links go in a circle"
    return f"{name} cannot be read ({reason}): check its permissions and where it leads, or remove it"
