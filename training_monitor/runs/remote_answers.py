"""Parse the answers to the questions of `runs/remote_runs.py`, without trusting any of their content.

A reply is made of parts. Each begins with a line of a random WORD, a space and its key; no file can contain the word,
since it is chosen after the files were written:

    WORD root
    /home/me/progress
    WORD name
    llama.json
    WORD files
    the output of `head` for all files, with a header line before each

The header lines name each file by a path in a random spelling (`././/./llama.json`), so that no file can contain them
either, and one process reads all files.
"""

from __future__ import annotations

import binascii
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from training_monitor.core.errors import AccessDenied, CommandFailed, ParseError
from training_monitor.core.regex import regex
from training_monitor.runs.files import PROGRESS, KnownRun, RunFiles, place_below, read_run, runs_from_names, unread_run
from training_monitor.runs.values import OutputChunk, RunSize
from training_monitor.targets.proc_stat import Identity, MachineSample, ProcessSample, describe_outcome, parse_stat
from training_monitor.targets.replies import read_number, read_whole, split_parts

_PROCESS = regex(r"^==> (?:/dev/null|/proc/([0-9]{1,10})/stat) <==(?:\n|\Z)", re.MULTILINE)
_THREAD = regex(r"^==> (?:/dev/null|/proc/[0-9]{1,10}/task/([0-9]{1,10})/stat) <==(?:\n|\Z)", re.MULTILINE)
FILE_BYTES = 256 * 1024  # the limit for one progress or control file on a target
_LAST_MARK = "==> /dev/null <=="
_MEMORY = regex(r"^(\w{1,40}):[ \t]{1,40}([0-9]{1,15}) kB$", re.MULTILINE)
_REFUSED = {"denied": "Permission denied", "special": "not a regular file"}
_NO_FOLDER = {
    "missing": ("no such folder:", "check the path: it is the folder that the training scripts write to"),
    "file": ("this is a file, not a folder:", "pass the folder that contains the file"),
    "many": ("too many files in", "move the files of old runs to another folder"),
}


@dataclass(frozen=True, slots=True)
class FolderListing:
    """The files of a folder of runs, by paths relative to it, and its machine if that was asked for.

    Attributes:
        root: the folder, absolute and without links.
        names: of all files that may belong to a run.
        texts: of those that were read.
        refused: why others could not be read: no permission, or not a regular file.
        unread: those beyond the limit of what is read.
        timestamp: epoch seconds by the target's clock, None if it did not say.
        machine: just before the files; None if it was not asked for or has no /proc, then `machine_error` says why.
        processes_at: when reading the processes began, like `timestamp`.
    """

    root: str
    names: tuple[str, ...]
    texts: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()
    timestamp: float | None = None
    machine: MachineSample | None = None
    machine_error: str | None = None
    processes_at: float | None = None


def parse_look(text: str, word: str, spelling: str, where: str) -> FolderListing:
    """Parse the output of one look. Takes and raises what `parse_folder` does."""
    folder = parse_folder(text, word, spelling, where)
    try:
        machine = parse_machine(text, word)
    except ParseError as error:
        return replace(folder, machine_error=error.what)
    return replace(folder, machine=machine, processes_at=read_number(dict(split_parts(text, word)).get("began")))


# ---------------------------------------------------------------- the folder


def parse_folder(text: str, word: str, spelling: str, where: str) -> FolderListing:
    """Parse the output of the folder's script.

    Args:
        word: the mark before each part.
        spelling: what is between the dot and the name in the paths given to `head`.
        where: the display name of the folder.

    Raises:
        AccessDenied: It may not be read.
        CommandFailed: It does not exist, is not a folder, or has too many files.
        ParseError: The reply is not one of the script.
    """
    parts = split_parts(text, word)
    keys = dict(parts)
    if "closed" in keys:
        raise AccessDenied(
            f"no permission to read {where}", hint="run this as another user, or change the folder's permissions"
        )
    for state, (said, hint) in _NO_FOLDER.items():
        if state in keys:
            raise CommandFailed(f"{said} {where}", hint=hint)
    root = keys.get("root", "").removesuffix("\n")
    if not root.startswith("/") or "files" not in keys:
        raise ParseError("the reply is incomplete", source=where, text=text)
    others = {body for key, body in parts if key == "other"}
    names = tuple(dict.fromkeys(body for key, body in parts if key == "name" and body not in others))
    refused = {body: _REFUSED[key] for key, body in parts if key in _REFUSED}
    texts, is_whole = _split_files(keys["files"], names, spelling)
    left = frozenset(names) - refused.keys() - texts.keys()
    unread = frozenset() if is_whole and "some" not in keys else left
    return FolderListing(root, names, texts, refused, unread, read_number(keys.get("now")))


def _split_files(text: str, names: Sequence[str], spelling: str) -> tuple[dict[str, str], bool]:
    """Return each file's text, and whether the last mark was seen: without it the last file is cut, and left out."""
    body, closing, _ = text.rpartition(f"\n==> {spelling}dev/null <==\n")
    pieces = (body if closing else text).split(f"\n==> .{spelling}")[1:]
    texts = {}
    known = set(names)
    for piece in pieces if closing else pieces[:-1]:
        end = piece.find(" <==\n")
        while end >= 0 and piece[:end] not in known:  # the name itself contains such an arrow
            end = piece.find(" <==\n", end + 1)
        if end >= 0:
            texts[piece[:end]] = piece[end + len(" <==\n") :]
    return texts, bool(closing)


def read_runs(listing: FolderListing, before: Mapping[str, KnownRun[str]]) -> dict[str, KnownRun[str]]:
    """Return the runs by the path of their progress file, in natural order; unchanged files are not parsed again."""
    flat = [name for name in listing.names if "/" not in name]
    folders = [name.removesuffix(f"/{PROGRESS}") for name in listing.names if name.endswith(f"/{PROGRESS}")]
    of_runs = frozenset(folders)
    folders = [name for name in folders if name.rpartition("/")[0] not in of_runs]  # what is within one is its own
    found = {}
    for files in runs_from_names(flat, folders, here=posixpath.basename(listing.root) or "run"):
        path = posixpath.join(listing.root, files.progress_path)
        if known := _read_run(listing, files, before.get(path)):
            found[path] = known
    return found


def _read_run(listing: FolderListing, files: RunFiles, before: KnownRun[str] | None) -> KnownRun[str] | None:
    """Return a run's files as listed; None if they are gone. An unreadable file keeps the old run, with the reason."""
    text, control = listing.texts.get(files.progress_path), listing.texts.get(files.control_path)
    if before and before.files != files:
        before = None
    if text is not None and before and (before.progress, before.control) == (text, control):
        return before
    there, last = place_below(listing.root, files), before.run if before else None
    if text is None:
        reason = _why_unread(listing, files.progress_path)
        return KnownRun(files, None, control, unread_run(there, last, reason)) if reason else None
    if len(text) > FILE_BYTES:
        return KnownRun(files, None, control, unread_run(there, last, f"longer than {FILE_BYTES} bytes"))
    return KnownRun(files, text, control, read_run(there, text, control, last))


def _why_unread(listing: FolderListing, path: str) -> str | None:
    """Return why a file was not read; None if it is gone."""
    if path in listing.unread:
        return "not read: this folder has too many files, or they are too large"
    refused = listing.refused.get(path)
    return f"cannot be read: {refused}" if refused else None


# ---------------------------------------------------------------- the machine


def parse_machine(text: str, word: str) -> MachineSample:
    """Parse the processes and facts of a machine, without its GPUs. Raises ParseError."""
    parts = split_parts(text, word)
    keys = dict(parts)
    facts = dict(line.split("=", 1) for line in keys.get("facts", "").split("\n") if "=" in line)
    uptime, ticks = read_number(facts.get("uptime")), read_whole(facts.get("ticks"))
    if uptime is None or not ticks or "processes" not in keys:
        raise ParseError("no /proc, so processes cannot be listed", source="machine")
    page_size = read_whole(facts.get("page"))
    if not page_size:
        raise ParseError("no memory page size in the reply", source="machine")
    memory = {name: int(size) * 1024 for name, size in _MEMORY.findall(keys.get("memory", ""))}
    names = (facts.get(name) or None for name in ("host", "boot", "namespace"))
    processes = {sample.pid: sample for sample in _samples(keys["processes"], _PROCESS, page_size)}
    if not processes:
        raise ParseError("no process could be read", source="machine")
    return MachineSample(
        at=uptime,
        identity=Identity(read_whole(facts.get("pid")) or 0, None, *names),
        ticks=ticks,
        cores=read_whole(facts.get("cores")) or None,
        memory_bytes=memory.get("MemTotal"),
        available_bytes=memory.get("MemAvailable"),
        processes=processes,
        threads={
            pid: tuple(_samples(body, _THREAD, page_size))
            for key, body in parts
            if (pid := read_whole(key.removeprefix("threads "))) is not None
        },
        sees_all=1 in processes and keys["processes"].rstrip("\n").endswith(_LAST_MARK),
    )


def _samples(text: str, header: re.Pattern[str], page_size: int) -> list[ProcessSample]:
    """Return one sample per header: a process name with line ends does not make a second process."""
    words = header.split(text)[1:]
    found = []
    for pid, line in zip(words[::2], words[1::2]):
        sample = parse_stat(line.strip("\n"), page_size)
        if sample and pid and sample.pid == int(pid):
            found.append(sample)
    return found


# ---------------------------------------------------------------- a piece of a file


def parse_chunk(fields: Mapping[str, str], data: str, length: int) -> OutputChunk:
    """Return the piece of a file from its output: whole blocks of it, as base64 or as hexadecimal bytes.

    Args:
        fields: size of the file, first wanted byte, first read byte, and the coding of `data`.
        length: how many bytes are wanted.

    Raises:
        ParseError: It is invalid.
    """
    import base64

    size, start, begin = (read_whole(fields.get(name)) for name in ("size", "start", "begin"))
    if size is None or start is None or begin is None:
        raise ParseError("no size in the reply", source="output file", text=data[:200])
    try:
        whole = base64.b64decode(data, validate=False) if fields.get("coding") == "base64" else bytes.fromhex(data)
    except (binascii.Error, ValueError) as error:
        raise ParseError(f"the bytes were damaged in transfer ({error})", source="output file") from error
    piece = whole[start - begin :][:length]
    return OutputChunk(max(size, start + len(piece)), start, piece)


def parse_size(text: str) -> RunSize:
    """Return the size of a run from the number of its files and their KiB. Raises ParseError."""
    files, _, kilobytes = text.partition(" ")
    count, size = read_whole(files), read_whole(kilobytes)
    if count is None or size is None:
        raise ParseError("no size in the reply", source="run", text=text[:200])
    return RunSize(count, size * 1024)


# ---------------------------------------------------------------- signals


def describe_signals(text: str, word: str, processes: Sequence[Identity], number: int) -> tuple[str, ...]:
    """Return a sentence for each process: the result of a signal, or why none was sent."""
    parts, sentences = dict(split_parts(text, word)), []
    for at, process in enumerate(processes):
        words, _, name = parts.get(str(at), "").partition("\n")
        outcome, _, state = words.partition(" ")
        sentences.append(describe_outcome(process, number, outcome, name, state))
    return tuple(sentences)
