"""List the files of a folder, on a target with one question or on this machine.

The listing of a target is not trusted: a name that leads out of the folder, or that the script would not have listed,
is an error and never used as a path.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from training_monitor.core.errors import CommandFailed, ParseError, SettingsError
from training_monitor.core.models import Question
from training_monitor.core.regex import regex
from training_monitor.core.shown import shown
from training_monitor.core.units import format_bytes, name_some
from training_monitor.targets.asking import Site, quote_path
from training_monitor.targets.scripts import format_call

PARTIAL = ".training_monitor_partial"
INCOMING = f"{PARTIAL}/incoming"  # temporary files being written; the leftovers of a killed writer are never resumed
MOST_FILES = 20_000
MOST_PROBLEMS = 50  # named entries that cannot be copied
_SYSTEM = ("/proc/", "/sys/")
LIST_SECONDS = 120.0
SPARE_BYTES = 64 * 1024 * 1024  # what is copied leaves so much free on the disk of this machine
MOST_BYTES = 16 * 1024**4  # of all files of a folder
MOST_NAME_BYTES, MOST_PART_BYTES = 4096, 255  # of a path, and of one name in it: no Linux file system has more
_FILE = regex(r"([0-9]{1,18}) (-?[0-9]{1,18}) \./(.+)", re.DOTALL)


class ListedFile(NamedTuple):
    """A file's `size` in bytes and `mtime` in whole epoch seconds."""

    size: int
    mtime: int


class FileList(NamedTuple):
    """The regular files below a folder, by relative path, without hidden ones.

    Attributes:
        root: the folder, absolute and without links.
        files: the files that can be copied.
        others: links, sockets and the like.
        refused: names that cannot be copied, with escapes.
        partial_bytes: bytes of interrupted transfers into this folder.
        tools: which of rsync and tar are installed.
        is_file: the path is a file: the only one of `files`; `root` is its folder.
        complaint: the error output about folders that cannot be read.
        hidden: how many hidden entries were left out. empty: the folders without any other.
    """

    root: str
    files: Mapping[str, ListedFile]
    others: frozenset[str] = frozenset()
    refused: tuple[str, ...] = ()
    partial_bytes: int = 0
    tools: frozenset[str] = frozenset()
    is_file: bool = False
    complaint: str = ""
    hidden: int = 0
    empty: tuple[str, ...] = ()


def find_name_problem(name: str) -> str | None:
    """Return why a name cannot be copied; None if it can."""
    if "\n" in name:
        return "a newline in its name"
    if "\ufffd" in name or any("\ud800" <= character <= "\udfff" for character in name):
        return "a name that is not UTF-8"
    if len(name.encode()) > MOST_NAME_BYTES or any(len(part.encode()) > MOST_PART_BYTES for part in name.split("/")):
        return "a name that is too long"
    return None


def is_inside(name: str) -> bool:
    """Return whether a relative path stays below its folder and has no hidden parts."""
    parts = name.split("/")
    return "\0" not in name and all(part and not part.startswith(".") for part in parts)


def parse_file_list(text: str) -> FileList | None:
    """Parse the output of the listing script; None when the path does not exist.

    Raises:
        ParseError: the folder cannot be listed, or the output is malformed.
    """
    lines = text.split("\n")
    state = _word(lines, 0, "state")
    root = _word(lines, 1, "root")
    if state == "missing":
        return None
    if state not in ("folder", "file"):
        raise ParseError(state[:300] or "no listing", source="folder", text="" if state else text)
    if not root.startswith("/"):
        raise ParseError("the path of the folder in the listing is not absolute or not valid UTF-8", source="folder")
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
            elif find_name_problem(_inside(name)):
                refused.append(ascii(name[:200]))
            else:
                files[name] = file
        elif kind == "other":
            others.add(_inside(rest.removeprefix("./")))
        elif kind == "refused":
            refused.append(ascii(rest[:200]))
        elif kind == "tool":
            tools.add(rest)
        elif kind == "said":
            complaint = rest[:2000]
        else:
            raise ParseError("the listing contains an invalid line", source="folder", text=ascii(line[:200]))
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
    """Return the value of a `key=` line; empty if it is missing or not UTF-8."""
    line = lines[number] if number < len(lines) else ""
    return line.removeprefix(f"{key}=") if line.startswith(f"{key}=") and "\ufffd" not in line else ""


def _file(text: str) -> tuple[str, ListedFile]:
    found = _FILE.fullmatch(text)
    if not found:
        raise ParseError("the listing contains an invalid file entry", source="folder", text=ascii(text[:200]))
    return found[3], ListedFile(int(found[1]), int(found[2]))


def _inside(name: str) -> str:
    if not is_inside(name):
        raise ParseError(
            "the listing contains a hidden file or a path outside the folder", source="folder", text=ascii(name[:200])
        )
    return name


def _check_tree(files: Mapping[str, ListedFile]) -> None:
    """Check that there are not too many files, and that none is also the folder of another. Raises ParseError."""
    if len(files) > MOST_FILES:
        raise ParseError(f"the folder contains more than {MOST_FILES} files", source="folder")
    if sum(file.size for file in files.values()) > MOST_BYTES:
        raise ParseError(f"the folder contains more than {format_bytes(MOST_BYTES)}", source="folder")
    for name in files:
        if any(above in files for above in folders_above(name)):
            raise ParseError(
                "the listing contains a file that is also a folder", source="folder", text=ascii(name[:200])
            )


def folders_above(name: str) -> Iterator[str]:
    """Yield the parent folders of a relative path: for `a/b/c`, `a/b` and `a`."""
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name


def split_batches(files: Mapping[str, ListedFile], *, most_files: int, most_bytes: int) -> Iterator[list[str]]:
    """Yield the names, sorted, in batches within both limits; a file above `most_bytes` is a batch of its own."""
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


def list_remote(site: Site, path: str, names: Collection[str] = (), *, make: bool = False) -> FileList | None:
    """List the files below `path` on a target, or below `names` in it; None if `path` does not exist.

    With `make`, the folder is created first, accessible to its owner only. `path` may be a file.

    Raises:
        SettingsError: `path` has a newline. CommandFailed: the folder cannot be read. CommandError: no answer.
    """
    if "\n" in path:
        raise SettingsError("remote", path, "a path without line breaks")
    script = format_call(
        "copying",
        "list",
        folder=quote_path(path),
        names="\n".join(f"./{name}" for name in names) or ".",
        is_made="yes" if make else "",
        partial=PARTIAL,
        most_files=MOST_FILES + 1,
    )
    question = Question("files", script, lambda reply: parse_file_list(reply.output), LIST_SECONDS)
    [answer] = site.ask(question)
    if isinstance(answer.failure, ParseError):
        raise CommandFailed(f"{path!r}: {answer.failure}", target=str(site)) from answer.failure
    found: FileList | None = answer.get()
    return found


def list_folder(folder: str) -> FileList:
    """List the files below a folder of this machine that are not hidden; a link to a file counts as that file.

    Raises:
        SettingsError: it is not a folder, holds too many files, or holds what cannot be copied: each is named.
    """
    found, problems = read_folder(folder)
    if problems:
        named = [f"{shown(name[:200])} {problem}" for name, problem in sorted(problems.items())]
        said = name_some(named, MOST_PROBLEMS, "; ")
        raise SettingsError("local", folder, f"a folder in which every file can be copied; these cannot: {said}")
    return found


def read_folder(folder: str) -> tuple[FileList, dict[str, str]]:
    """List what can be copied as `list_folder`, and by name what cannot, in words to be put behind the name.

    Raises:
        SettingsError: it is not a folder, or holds too many files.
    """
    if not folder or "\0" in folder:
        raise SettingsError("local", folder, "a readable folder")
    root = os.path.realpath(folder)
    files: dict[str, ListedFile] = {}
    problems: dict[str, str] = {}
    empty: list[str] = []
    hidden, waiting = 0, [""]
    while waiting:
        below = waiting.pop()
        try:
            with os.scandir(os.path.join(root, below)) as found:
                entries = list(found)
        except OSError as error:
            if not below:
                raise SettingsError("local", folder, f"a readable folder ({error})") from error
            problems[below] = f"cannot be read ({error.strerror}): check its permissions"
            continue
        seen = [entry for entry in entries if not entry.name.startswith(".")]
        hidden += len(entries) - len(seen)
        if below and not seen:
            empty.append(below)
        for entry in seen:
            name = os.path.join(below, entry.name)
            if problem := find_name_problem(name):
                problems[name] = f"has {problem}: rename it"
            elif entry.is_dir(follow_symlinks=False):
                waiting.append(name)
            elif problem := find_file_problem(entry.path, root):
                problems[name] = f"is {problem}"
            elif file := _look(entry.path, follow_links=True):
                files[name] = file
        if len(files) > MOST_FILES:
            raise SettingsError(
                "local", folder, f"a folder with at most {MOST_FILES} files; pack the files into archives"
            )
    return FileList(root, files, hidden=hidden, empty=tuple(sorted(empty))), problems


def find_file_problem(path: str, root: str) -> str | None:
    """Return what an entry of a folder is that cannot be copied, in words behind "is"; None for a file that can.

    A link is followed to a file, wherever that is, but not to what is hidden (keys, tokens, settings) or no file of a
    disk. A link to a folder is not followed: it may lead to the whole disk, or in a circle.
    """
    try:
        target = os.path.realpath(path, strict=True)
        mode = os.stat(target).st_mode
    except OSError as error:
        return f"a link that cannot be followed ({error.strerror})" if os.path.islink(path) else None
    if os.path.islink(path):
        outside = os.path.relpath(target, os.path.commonpath((target, root)))
        if stat.S_ISDIR(mode):
            return "a link to a folder: replace it with the folder itself"
        if target.startswith(_SYSTEM) or (not is_inside(outside) and not target.startswith(os.path.join(root, ""))):
            named = f"a link to {shown(target[:200])}, which is hidden or belongs to the system"
            return f"{named}: replace the link with the file itself"
    if not stat.S_ISREG(mode):
        return "a socket, a pipe or a device: remove it"
    return None if os.access(target, os.R_OK) else "a file that cannot be read: check its permissions"


def list_arrived(folder: str, names: Iterable[str]) -> FileList:
    """List which of `names` exist in a folder of this machine, without following links."""
    files: dict[str, ListedFile] = {}
    partial = 0
    for name in names:
        if file := _look(os.path.join(folder, name)):
            files[name] = file
        above, last = os.path.split(name)
        if cut := _look(os.path.join(folder, above, PARTIAL, last)):
            partial += cut.size
    return FileList(folder, files, partial_bytes=partial)


def _look(path: str, *, follow_links: bool = False) -> ListedFile | None:
    try:
        seen = os.stat(path, follow_symlinks=follow_links)
    except OSError:
        return None
    return ListedFile(seen.st_size, seen.st_mtime_ns // 10**9) if stat.S_ISREG(seen.st_mode) else None


def check_no_links(folder: str, names: Iterable[str]) -> None:
    """Raise CommandFailed where writing `names` into a folder of this machine would follow or replace a link."""
    ways = {way for name in names for way in (name, *folders_above(name))} | {PARTIAL, INCOMING}
    for way in sorted(ways):
        if os.path.islink(os.path.join(folder, way)):
            raise CommandFailed(
                f"{os.path.join(folder, way)!r} is a symbolic link on this machine; nothing was written",
                hint="remove the link, or copy to another folder",
            )


def check_no_twins(folder: str, names: Iterable[str]) -> None:
    """Raise CommandFailed where a folder of this machine takes two of `names` for the same, as on macOS.

    Our own folder below it (INCOMING) is there.
    """
    if not os.path.exists(os.path.join(folder, INCOMING.upper())):
        return
    if twins := find_twins(names):
        raise CommandFailed(
            f"{ascii(twins[0][:200])} and {ascii(twins[1][:200])} would be the same file in {folder!r}",
            hint="rename one of them, or copy to a case-sensitive file system",
        )


def find_twins(names: Iterable[str]) -> tuple[str, str] | None:
    """Return two names that differ only in case or in how their accents are written; None without any."""
    import unicodedata

    seen: dict[str, str] = {}
    for name in names:
        for way in (name, *folders_above(name)):
            known = seen.setdefault(unicodedata.normalize("NFC", way).casefold(), way)
            if known != way:
                return known, way
    return None


def check_fits(folder: str, there: FileList, files: Mapping[str, ListedFile]) -> None:
    """Raise CommandFailed where the disk of this machine has no space for those of `files` that are not `there`."""
    needed = sum(file.size for name, file in files.items() if there.files.get(name) != file) - there.partial_bytes
    disk = shutil.disk_usage(folder)
    if disk.total and needed > 0 and needed + SPARE_BYTES > disk.free:
        raise CommandFailed(
            f"the disk of {folder!r} is too full: {format_bytes(needed)} needed, {format_bytes(disk.free)} free",
            hint="free some space, or copy to another folder",
        )


def check_no_others(there: FileList, files: Mapping[str, ListedFile], target: str) -> None:
    """Raise CommandFailed where a link or other non-file on the target is in the way of `files`."""
    for name in files:
        way = next((way for way in (name, *folders_above(name)) if way in there.others), None)
        if way is not None:
            raise CommandFailed(
                f"{there.root}/{way} is a symbolic link or not a regular file; nothing was written to it",
                target=target,
                hint="remove it, or copy to another folder",
            )
