"""One batch of files from here to a target or back: by rsync, or by tar where one side has no rsync.

Names travel as arguments or on stdin and are quoted once. Nothing that arrives from a target is written but the
regular files that were asked for, and these get their names when they are whole.
"""

from __future__ import annotations

import os
import shlex
import tarfile
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO, cast

from training_monitor.errors import last_lines
from training_monitor.models import CommandResult
from training_monitor.parse.file_list import INCOMING, PARTIAL, ListedFile
from training_monitor.targets.transport import KubectlTransport, SshTransport, Stream, Transport

STALL_SECONDS = 60
_COPY_BYTES = 1024 * 1024
_HEADER_BYTES = 256 * 1024  # more than this in front of a file is no archive of ours
_SAID_BYTES = 2000
# GNU tar reads \\n in a name as a newline, unless told not to; others know no such option
_AS_THEY_ARE = "case $(tar --version 2>/dev/null </dev/null) in *GNU*) plain=--no-unquote;; *) plain=;; esac"


@dataclass(frozen=True, slots=True)
class Sent:
    """How one batch ended; `said` is what the programs said of it, on one line."""

    ok: bool
    said: str = ""


# ---------------------------------------------------------------- rsync


def send_by_rsync(
    reach: Transport, names: Sequence[str], source: str, destination: str, *, push: bool, limit: float
) -> Sent:
    """Copy files between a folder here and one behind `reach`, either way.

    A file that was cut waits beside its place for the next try; under its own name it is always whole.

    Raises:
        ToolNotFound: there is no rsync here.
        CommandTimedOut: it took longer than `limit` seconds.
    """
    argv = ["rsync", "-tOs", "--from0", "--files-from=-", f"--partial-dir={PARTIAL}", f"--timeout={STALL_SECONDS}"]
    incoming = f"{destination.rstrip('/')}/{INCOMING}"
    if push:
        argv += ["--copy-links"]  # here, where a person made them; they are nothing to copy on the other side
    if not push or isinstance(reach, SshTransport):
        argv += [f"--temp-dir={incoming}"]  # where what a killed one leaves is found
    ends = [source.rstrip("/") + "/", destination.rstrip("/") + "/"]
    runner = reach
    if isinstance(reach, SshTransport):
        runner = reach.inner
        argv += ["-e", " ".join(_rsh_word(word) for word in ("ssh", *reach.options))]
        if push:
            argv += [f"--rsync-path=mkdir -p {shlex.quote(incoming)} && rsync"]
        far = 1 if push else 0
        ends[far] = f"{_bracketed(reach.destination)}:{ends[far]}"
    result = runner.run([*argv, "--", *ends], timeout=limit, input="\0".join(f"./{name}" for name in names))
    return _sent(result)


def _rsh_word(word: str) -> str:
    """One word of -e, as rsync reads it: it doubles a quote inside of quotes, and knows no backslash."""
    return "'" + word.replace("'", "''") + "'"


def _bracketed(destination: str) -> str:
    user, mark, host = destination.rpartition("@")
    return f"{user}{mark}[{host}]" if ":" in host else destination


def _sent(result: CommandResult) -> Sent:
    said = last_lines(f"{result.stdout}\n{result.stderr}")
    return Sent(result.exit_code == 0, said or ("" if result.exit_code == 0 else f"exit status {result.exit_code}"))


# ---------------------------------------------------------------- tar, from here


@dataclass(frozen=True, slots=True)
class _TarFeed:
    """Runs a command with an archive of `names` in `folder` as its input; the first failure of both is the status."""

    inner: Transport
    folder: str
    names: tuple[str, ...]

    def _words(self, argv: Sequence[str]) -> list[str]:
        script = f"""folder=$1; shift; {_AS_THEY_ARE}
packed=$({{ {{ tar $plain -C "$folder" -chf - "$@" 3>&-; echo $? >&3; }} | {shlex.join(argv)} >&2 3>&-; }} 3>&1)
unpacked=$?; [ "$unpacked" = 0 ] || exit "$unpacked"; exit "${{packed:-1}}"
"""
        return ["sh", "-c", script, "sh", self.folder, *(f"./{name}" for name in self.names)]

    def run(self, argv: Sequence[str], *, timeout: float, input: str | None = None) -> CommandResult:
        return self.inner.run(self._words(argv), timeout=timeout, input=input)

    def stream(self, argv: Sequence[str], *, input: str | None = None) -> Stream:
        return self.inner.stream(self._words(argv), input=input)


def push_by_tar(reach: Transport, names: Sequence[str], source: str, destination: str, *, limit: float) -> Sent:
    """Pack files of a folder here and unpack them in one behind `reach`. Raises CommandTimedOut."""
    feed = _TarFeed(reach, source, tuple(names))
    through: Transport = feed
    if isinstance(reach, (SshTransport, KubectlTransport)):
        through = replace(reach, inner=replace(feed, inner=reach.inner))
    return _sent(through.run(["tar", "-C", destination, "-xof", "-"], timeout=limit))


# ---------------------------------------------------------------- tar, to here


def fetch_by_tar(
    reach: Transport, files: Mapping[str, ListedFile], source: str, destination: str, *, limit: float
) -> Sent:
    """Have files packed behind `reach`, and write those that are as they were listed into a folder here."""
    stream = reach.stream(["sh", "-s"], input=_pack_script(source, files))
    alarm = threading.Timer(limit, stream.close)
    alarm.daemon = True
    alarm.start()
    archive = _Archive(stream.chunks())
    try:
        left = _unpack(archive, dict(files), destination)
        archive.drain()
    except (tarfile.TarError, OSError, ValueError, OverflowError, RecursionError) as error:
        return Sent(False, archive.said() or str(error) or type(error).__name__)
    finally:
        alarm.cancel()
        stream.close()
    said = archive.said()
    return Sent(False, said or "the archive ended early") if left else Sent(True, said)


def _pack_script(folder: str, names: Sequence[str] | Mapping[str, ListedFile]) -> str:
    """The archive, and behind its end what tar said."""
    words = " ".join(shlex.quote(f"./{name}") for name in names)
    return f"""LC_ALL=C; export LC_ALL
cd {shlex.quote(folder)} || exit
{_AS_THEY_ARE}
exec 3>&1
said=$(tar $plain -cf - {words} 2>&1 >&3 3>&- </dev/null)
printf '%s' "$said" | tail -c 1000
"""


class _Archive:
    """What a stream brings, as a file to read; it ends where more comes than was allowed for."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._rest, self._last = chunks, b"", b""
        self.allowed = _HEADER_BYTES

    def read(self, size: int) -> bytes:
        while len(self._rest) < size and (chunk := next(self._chunks, b"")):
            self._rest += chunk
        piece, self._rest = self._rest[:size], self._rest[size:]
        self.allowed -= len(piece)
        if self.allowed < 0:
            raise ValueError("it sends more than it said")
        self._last = (self._last + piece)[-_SAID_BYTES:]
        return piece

    def drain(self) -> None:
        """Read what follows the archive."""
        self.allowed = _HEADER_BYTES
        while self.read(_SAID_BYTES):
            pass

    def said(self) -> str:
        """The text behind the zeros that end an archive."""
        before, zeros, text = (self._last + self._rest[:_SAID_BYTES]).rpartition(b"\0")
        return last_lines(text.decode("utf-8", "replace")) if zeros or not before else ""


def _unpack(source: _Archive, left: dict[str, ListedFile], folder: str) -> dict[str, ListedFile]:
    """Write the files that were asked for and are as long as they were listed; returns those that did not come."""
    with tarfile.open(
        fileobj=cast(IO[bytes], source), mode="r|", encoding="utf-8", errors="surrogateescape"
    ) as archive:
        while left:
            source.allowed = _HEADER_BYTES
            member = archive.next()
            if member is None:
                break
            name = member.name.removeprefix("./")
            file = left.get(name)
            if file is None or not member.isreg() or member.size != file.size:
                raise ValueError(f"{name[:200]!r} is not what was listed: it changed, or was never asked for")
            source.allowed += member.size
            content = archive.extractfile(member)
            assert content is not None, "a regular file has content"
            _write(content, os.path.join(folder, name), file, os.path.join(folder, INCOMING))
            del left[name]
    return left


def _write(content: IO[bytes], path: str, file: ListedFile, incoming: str) -> None:
    """Write to a side and move it to its name when it is whole."""
    number, temporary = tempfile.mkstemp(dir=incoming)
    try:
        with open(number, "wb") as out:
            while piece := content.read(_COPY_BYTES):
                out.write(piece)
            size = out.tell()
        if size != file.size:
            raise ValueError("the archive ended early")
        os.utime(temporary, (file.mtime, file.mtime))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
