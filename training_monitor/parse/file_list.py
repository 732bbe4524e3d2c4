"""What the listing script of `vast/file_lists.py` prints of a folder, read without trusting a word of it.

The other side may be anybody's machine: a name that leads out of the folder, or one that the script would not have
listed, is an error and never a path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from training_monitor.errors import ParseError

PARTIAL = ".training_monitor_partial"
INCOMING = f"{PARTIAL}/incoming"  # what is being written; where its writer was killed, nobody goes on with it
MOST_FILES = 20_000
MOST_NAME_BYTES = 4096
_FILE = re.compile(r"([0-9]{1,18}) (-?[0-9]{1,18}) \./(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ListedFile:
    """`size` in bytes, `mtime` in whole epoch seconds."""

    size: int
    mtime: int


@dataclass(frozen=True, slots=True)
class FileList:
    """The regular files below a folder, by path relative to it; hidden ones are left out.

    Attributes:
        root: the folder, absolute and without links.
        files: what can be copied.
        others: links, sockets and the like.
        refused: names that cannot be copied, shown with escapes.
        partial_bytes: of files that were cut on their way here.
        tools: those of rsync and tar that are there.
        is_file: it is not a folder but one file, which is the only one of `files`; `root` is the folder around it.
        complaint: what was said of folders that cannot be read.
    """

    root: str
    files: Mapping[str, ListedFile]
    others: frozenset[str] = frozenset()
    refused: tuple[str, ...] = ()
    partial_bytes: int = 0
    tools: frozenset[str] = frozenset()
    is_file: bool = False
    complaint: str = ""


def find_name_problem(name: str) -> str | None:
    """Why this name is not copied; None for a path that stays in its folder and survives every tool on the way."""
    if "\n" in name:
        return "a newline in its name"
    if "\ufffd" in name or any("\ud800" <= character <= "\udfff" for character in name):
        return "a name that is no UTF-8"
    if len(name.encode()) > MOST_NAME_BYTES:
        return "a name that is too long"
    return None


def is_inside(name: str) -> bool:
    """Whether a relative path names something below its folder, and nothing hidden."""
    parts = name.split("/")
    return "\0" not in name and all(part and not part.startswith(".") for part in parts)


def parse_file_list(text: str) -> FileList | None:
    """Read the listing; None when there is nothing of that name.

    Raises:
        ParseError: the folder cannot be listed, or the reply is none that the script prints.
    """
    lines = text.split("\n")
    state = _word(lines, 0, "state")
    root = _word(lines, 1, "root")
    if state == "missing":
        return None
    if state not in ("folder", "file"):
        raise ParseError(state[:300] or "no listing", source="folder", text="" if state else text)
    if not root.startswith("/"):
        raise ParseError("its path is missing, or no UTF-8", source="folder")
    files: dict[str, ListedFile] = {}
    others, refused, tools, partial, complaint = set[str](), list[str](), set[str](), 0, ""
    for line in filter(None, lines[2:]):
        kind, _, rest = line.partition(" ")
        if kind == "file":
            name, file = _file(rest)
            if f"/{INCOMING}/" in f"/{name}":
                continue
            if f"/{PARTIAL}/" in f"/{name}":
                partial += file.size
            elif find_name_problem(name):
                refused.append(ascii(name[:200]))
            else:
                files[_inside(name)] = file
        elif kind == "other":
            others.add(_inside(rest.removeprefix("./")))
        elif kind == "refused":
            refused.append(ascii(rest[:200]))
        elif kind == "tool":
            tools.add(rest)
        elif kind == "said":
            complaint = rest[:2000]
        else:
            raise ParseError("a line that is none of a listing", source="folder", text=ascii(line[:200]))
    _check_tree(files)
    return FileList(
        root,
        files,
        frozenset(others),
        tuple(refused),
        partial,
        frozenset(tools),
        state == "file",
        complaint,
    )


def _word(lines: list[str], number: int, key: str) -> str:
    """What stands behind `key=` in a line; nothing where it stands for bytes that are no UTF-8."""
    line = lines[number] if number < len(lines) else ""
    return line.removeprefix(f"{key}=") if line.startswith(f"{key}=") and "\ufffd" not in line else ""


def _file(text: str) -> tuple[str, ListedFile]:
    found = _FILE.fullmatch(text)
    if not found:
        raise ParseError("a file without size, time and name", source="folder", text=ascii(text[:200]))
    return found[3], ListedFile(int(found[1]), int(found[2]))


def _inside(name: str) -> str:
    if not is_inside(name):
        raise ParseError("a name that leads out of the folder, or is hidden", source="folder", text=ascii(name[:200]))
    return name


def _check_tree(files: Mapping[str, ListedFile]) -> None:
    """A file cannot be the folder of another one."""
    if len(files) > MOST_FILES:
        raise ParseError(f"more than {MOST_FILES} files", source="folder")
    for name in files:
        if any(above in files for above in folders_above(name)):
            raise ParseError("a file inside of a file", source="folder", text=ascii(name[:200]))


def folders_above(name: str) -> Iterator[str]:
    """`a/b/c` lies in `a/b` and `a`."""
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name


def split_batches(files: Mapping[str, ListedFile], *, most_files: int, most_bytes: int) -> Iterator[list[str]]:
    """Names by path, a batch ends before it gets too large; a larger file is a batch of its own."""
    batch: list[str] = []
    size = 0
    for name in sorted(files):
        if batch and (len(batch) >= most_files or size + files[name].size > most_bytes):
            yield batch
            batch, size = [], 0
        batch.append(name)
        size += files[name].size
    if batch:
        yield batch
