"""Copy one batch of files to a target or back: by rsync, or by tar where one side has no rsync.

Names travel as arguments or on stdin and are quoted once. Only requested regular files are written from what a target
sends, and they get their names when they are complete. Of an archive, only what tar makes of regular files is read:
links, devices, holes (sparse files) and compression are refused.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from training_monitor.core.engine import start_thread
from training_monitor.core.errors import ToolNotFound, last_lines
from training_monitor.core.models import Question
from training_monitor.core.results import CommandResult
from training_monitor.rent.file_lists import INCOMING, PARTIAL, ListedFile
from training_monitor.targets.asking import read_text
from training_monitor.targets.scripts import format_call
from training_monitor.targets.transport import (
    SshTransport,
    Through,
    Transport,
    explain_timeout,
    words_of,
)

STALL_SECONDS = 60
_COPY_BYTES = 64 * 1024
_HEADER_BYTES = 128 * 1024  # the most before a file: its long name, its attributes
_END_BYTES = 64 * 1024  # the most after the last file: zeros, and what tar said
_SAID_BYTES = 2000
_GROWTH_BYTES = 64 * 1024 * 1024  # by which a file may have grown since it was listed
_LIMITED = 'ulimit -f "$1"; shift; "$@" 2>&1; echo "exit $?"'  # in blocks of 512 bytes
_MOST_SAID = 64 * 1024
_LOOK_SECONDS = 0.1  # between two looks at what has arrived


class Sent(NamedTuple):
    """The result of one batch; `said` is the output of the programs, on one line."""

    ok: bool
    said: str = ""


# ---------------------------------------------------------------- rsync


def send_by_rsync(
    reach: Transport,
    names: Sequence[str],
    source: str,
    destination: str,
    *,
    push: bool,
    limit: float,
    sizes: Mapping[str, int] | None = None,
) -> Sent:
    """Copy files between a folder here and one behind `reach`, either way.

    A partly copied file is kept beside its destination for the next try; under its own name a file is always complete.
    With the `sizes` of what comes here, neither a file nor all of them grow far beyond these, whatever the other side
    sends.

    Raises:
        ToolNotFound: there is no rsync here.
        CommandTimedOut: it took longer than `limit` seconds.
    """
    argv = ["rsync", "-tOs", "--from0", "--files-from=-", f"--partial-dir={PARTIAL}", f"--timeout={STALL_SECONDS}"]
    incoming = f"{destination.rstrip('/')}/{INCOMING}"
    if push:
        argv += ["--copy-links"]  # follow links here, which a person made; links on the other side are not copied
    if not push or isinstance(reach, SshTransport):
        argv += [f"--temp-dir={incoming}"]  # where leftovers of a killed rsync are found
    ends = [source.rstrip("/") + "/", destination.rstrip("/") + "/"]
    runner = reach
    if isinstance(reach, SshTransport):
        runner = reach.inner
        argv += ["-e", " ".join(_rsh_word(word) for word in ("ssh", *reach.options))]
        if push:
            argv += [f"--rsync-path=mkdir -p {shlex.quote(incoming)} && rsync"]
        far = 1 if push else 0
        ends[far] = f"{_bracketed(reach.destination)}:{ends[far]}"
    words, wanted = [*argv, "--", *ends], "\0".join(f"./{name}" for name in names)
    if sizes is None:
        return _sent(runner.run(words, timeout=limit, input=wanted))
    return _receive(runner, words, wanted, _Arriving(destination, sizes), limit)


def _receive(runner: Transport, words: Sequence[str], wanted: str, arriving: _Arriving, limit: float) -> Sent:
    """Run a command that writes files here, and end it when they get too large or it takes too long."""
    blocks = (max(arriving.sizes.values(), default=0) + _GROWTH_BYTES) // 512
    stream = runner.stream(["sh", "-c", _LIMITED, "sh", str(blocks), *words], input=wanted)
    ended, late, too_much = threading.Event(), threading.Event(), threading.Event()
    deadline = time.monotonic() + limit

    def watch() -> None:
        while not ended.wait(_LOOK_SECONDS):
            if time.monotonic() > deadline:
                late.set()
            elif arriving.is_too_much():
                too_much.set()
            else:
                continue
            return stream.close()

    said = b""
    try:
        start_thread(watch, "rsync")
        for chunk in stream.chunks():
            said = (said + chunk)[-_MOST_SAID:]
    finally:
        ended.set()
        stream.close()
    text, _, status = said.decode("utf-8", "replace").rpartition("exit ")
    if late.is_set():
        printed = CommandResult(tuple(words), -signal.SIGKILL, said.decode("utf-8", "replace"), "", limit)
        raise explain_timeout(printed, f"rsync did not respond within {limit:g} s")
    if status.strip() == "127":
        raise ToolNotFound("rsync is not installed on this machine", argv=tuple(words))
    if too_much.is_set() or arriving.is_too_much():
        return Sent(False, "the machine sent more than it listed")
    return _sent(CommandResult(tuple(words), int(status) if status.strip().isdigit() else 1, text, "", 0.0))


class _Arriving:
    """The files of a batch that come into a folder here, and how much they may take in all."""

    def __init__(self, folder: str, sizes: Mapping[str, int]) -> None:
        self.sizes, self._incoming = sizes, os.path.join(folder, INCOMING)
        self._paths = [os.path.join(folder, name) for name in sizes]
        self._paths += [os.path.join(folder, os.path.dirname(name), PARTIAL, os.path.basename(name)) for name in sizes]
        self._most = self._bytes() + sum(sizes.values()) + _GROWTH_BYTES

    def is_too_much(self) -> bool:
        """Return whether they have grown far beyond what was listed."""
        return self._bytes() > self._most

    def _bytes(self) -> int:
        with suppress(OSError):
            names = os.listdir(self._incoming)
            return sum(map(_size, [*self._paths, *(os.path.join(self._incoming, name) for name in names)]))
        return sum(map(_size, self._paths))


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def _rsh_word(word: str) -> str:
    """Quote one word of -e for rsync, which doubles a quote inside quotes and has no backslash escapes."""
    return "'" + word.replace("'", "''") + "'"


def _bracketed(destination: str) -> str:
    user, mark, host = destination.rpartition("@")
    return f"{user}{mark}[{host}]" if ":" in host else destination


def _sent(result: CommandResult) -> Sent:
    said = last_lines(f"{result.stdout}\n{result.stderr}")
    return Sent(result.exit_code == 0, said or ("" if result.exit_code == 0 else f"exit code {result.exit_code}"))


# ---------------------------------------------------------------- tar, from here


@dataclass(frozen=True, slots=True)
class _TarFeed(Through):
    """Runs a command with an archive of `names` in `folder` as its input; the status is the first failure of both."""

    folder: str
    names: tuple[str, ...]

    def words(self, argv: Sequence[str]) -> list[str]:
        script = format_call("copying", 'feed "$@"', folder=self.folder, command=shlex.join(argv))
        return ["sh", "-c", script, "sh", *(f"./{name}" for name in self.names)]


def push_by_tar(reach: Transport, names: Sequence[str], source: str, destination: str, *, limit: float) -> Sent:
    """Pack files of a folder here and unpack them in one behind `reach`. Raises CommandTimedOut."""
    feed = _TarFeed(reach, source, tuple(names))
    through: Transport = feed
    if isinstance(reach, Through):
        through = replace(reach, inner=replace(feed, inner=reach.inner))
    return _sent(through.run(["tar", "-C", destination, "-xof", "-"], timeout=limit))


# ---------------------------------------------------------------- tar, to here


def fetch_by_tar(
    reach: Transport, files: Mapping[str, ListedFile], source: str, destination: str, *, limit: float
) -> Sent:
    """Pack files behind `reach`, and write those that match their listing into a folder here."""
    script = format_call("copying", "pack", folder=source, names="\n".join(f"./{name}" for name in files))
    stream = reach.stream(["sh", "-s"], input=script)
    alarm = threading.Timer(limit, stream.close)
    alarm.daemon = True
    alarm.start()
    archive = _Archive(stream.chunks())
    try:
        _unpack(archive, dict(files), destination)
        archive.drain()
    except (tarfile.TarError, OSError, ValueError, OverflowError) as error:
        stream.close()
        said = archive.said() or words_of(stream)
        return Sent(False, "; ".join(filter(None, (said, str(error) or type(error).__name__))))
    finally:
        alarm.cancel()
        stream.close()
    return Sent(True, archive.said())


class _Archive:
    """The bytes of a stream in order; raises ValueError when it sends more than `allowed` of them."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._rest, self._last = chunks, b"", b""
        self.allowed = _HEADER_BYTES

    def _read(self, size: int) -> bytes:
        while len(self._rest) < size and (chunk := next(self._chunks, b"")):
            self._rest += chunk
        piece, self._rest = self._rest[:size], self._rest[size:]
        self.allowed -= len(piece)
        if self.allowed < 0:
            raise ValueError("the target sent more bytes than declared")
        self._last = (self._last + piece[-_SAID_BYTES:])[-_SAID_BYTES:]
        return piece

    def take(self, size: int) -> bytes:
        """Return exactly so many bytes. Raises ValueError."""
        piece = self._read(size)
        if len(piece) < size:
            raise ValueError("the archive ended early")
        return piece

    def drain(self) -> None:
        """Read the rest of the stream."""
        self.allowed = _END_BYTES
        while self._read(_SAID_BYTES):
            pass

    def said(self) -> str:
        """Return the text after the zeros that end an archive."""
        before, zeros, text = (self._last + self._rest[:_SAID_BYTES]).rpartition(b"\0")
        return last_lines(text.decode("utf-8", "replace")) if zeros or not before else ""


def _unpack(source: _Archive, left: dict[str, ListedFile], folder: str) -> None:
    """Write the requested files, all of which must come, once and in their listed sizes. Raises ValueError."""
    while (found := _next_file(source)) is not None:
        name, size = found
        file = left.pop(name.removeprefix("./"), None)
        if file is None or size != file.size:
            raise ValueError(f"{name[:200]!r} does not match the listing: the file changed, or was not requested")
        source.allowed = size + tarfile.BLOCKSIZE
        _write(source, os.path.join(folder, name.removeprefix("./")), file, os.path.join(folder, INCOMING))
        source.take(-size % tarfile.BLOCKSIZE)
    if left:
        raise ValueError("the archive ended early")


def _next_file(source: _Archive) -> tuple[str, int] | None:
    """Return the name and size of the file whose content comes next; None at the end of the archive.

    Raises ValueError or HeaderError for anything but a regular file. TarFile is not used: it follows what a hostile
    header says for minutes, or to the end of the disk.
    """
    source.allowed, more = _HEADER_BYTES, dict[bytes, bytes]()
    while (block := source.take(tarfile.BLOCKSIZE)) != bytes(tarfile.BLOCKSIZE):
        header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        if header.type in (tarfile.REGTYPE, tarfile.AREGTYPE):
            name, size = more.get(b"path"), more.get(b"size")
            named = name.decode("utf-8", "surrogateescape") if name else header.name
            return named, header.size if size is None else _number(size)
        if header.type not in (tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE):
            raise ValueError(f"{header.name[:200]!r} is a sparse file or not a regular file ({header.type!r})")
        if not 0 < header.size <= _HEADER_BYTES:
            raise ValueError("a header of the archive is too long")
        content = source.take(header.size)
        source.take(-header.size % tarfile.BLOCKSIZE)
        is_name = header.type == tarfile.GNUTYPE_LONGNAME
        more |= {b"path": content.partition(b"\0")[0]} if is_name else _read_records(content)
    return None


def _read_records(content: bytes) -> dict[bytes, bytes]:
    """Return the records of an extended header, each `LENGTH KEY=VALUE` and a newline. Raises ValueError."""
    records, begin = dict[bytes, bytes](), 0
    while begin < len(content):
        space = content.find(b" ", begin, begin + 8)
        end = begin + _number(content[begin : max(space, begin)])
        key, equals, value = content[space + 1 : end - 1].partition(b"=")
        if not equals or content[end - 1 : end] != b"\n" or key.startswith(b"GNU.sparse"):
            raise ValueError("a header of the archive is damaged, or describes a sparse file")
        records[key], begin = value, end
    return records


def _number(text: bytes) -> int:
    if not text.isdigit() or len(text) > 18:
        raise ValueError("a number in the archive is invalid")
    return int(text)


def _write(source: _Archive, path: str, file: ListedFile, incoming: str) -> None:
    """Write to a temporary file and move it into place when it is complete."""
    number, temporary = tempfile.mkstemp(dir=incoming)
    try:
        with open(number, "wb") as out:
            for begin in range(0, file.size, _COPY_BYTES):
                out.write(source.take(min(_COPY_BYTES, file.size - begin)))
        os.utime(temporary, (file.mtime, file.mtime))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


# ---------------------------------------------------------------- partial files


def clear_question(root: str, names: Iterable[str]) -> Question[str]:
    """Return the question that removes partial copies of these files, now complete, on a target."""
    folders = "\n".join(f"./{folder}" for folder in _folders(names))
    script = format_call("copying", "clear_partial", folder=root, names=folders, partial=PARTIAL)
    return Question("cleared", script, read_text, limit=60.0)


def clear_here(root: str, names: Iterable[str]) -> None:
    """Remove partial copies of these files in a folder of this machine."""
    for folder in _folders(names):
        _remove(os.path.join(root, folder))


def clear_below(root: str) -> None:
    """Remove partial copies anywhere below a folder of this machine into which nothing is copied any more."""
    for folder, below, _ in os.walk(root):
        if PARTIAL in below:
            _remove(folder)
            below.remove(PARTIAL)


def _folders(names: Iterable[str]) -> list[str]:
    return sorted({os.path.dirname(name) for name in names} | {""})


def _remove(folder: str) -> None:
    shutil.rmtree(os.path.join(folder, PARTIAL), ignore_errors=True)  # rmtree does not follow links
