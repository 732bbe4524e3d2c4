"""Read what is new in a log file on a target: either in one round trip, or over a held connection.

A read returns the bytes after a cursor, at a cost independent of the file's size. A line ends with a newline or a
carriage return, so that redraws of a progress bar on one endless line are seen; an unfinished last line is held back
until it ends or reaches HELD_BYTES. All counting is done on the target, in bytes: invalid UTF-8 becomes U+FFFD, NUL
bytes are dropped, and neither moves an offset.

A file that was emptied and refilled past the cursor between two reads is detected by the checksum of the bytes before
the cursor, unless it was rewritten with the same bytes up to there.

A held connection delivers whole lines from a cursor on, once each and in order, until the connection ends or the file
is rotated, truncated or rewritten. Neither is an event of the job: the caller reads on from the last cursor. Nothing
tells a silent log from a lost connection: after SILENT_SECONDS the caller reads again. NONCE is a random word; where
GNU `tail` is, it waits for what is written:

    NONCE tail OFFSET PROGRAMS      then all bytes of the file from OFFSET on, until PROGRAMS, a randomly spelled path:
                                    with it begins what `tail` says, for instance of a truncated or renamed file

Elsewhere, and after such a message, the target looks for itself, and prints frames of counted bytes:

    NONCE OFFSET COUNT              COUNT bytes of the file from OFFSET on, and then a line:
    NONCE end
    NONCE moved                     the file was rotated, truncated or rewritten: nothing more comes

A frame counts only with its end, so the connection may break at any point.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from training_monitor.core.errors import AccessDenied, CommandFailed, ParseError, SettingsError
from training_monitor.core.masking import redact_next
from training_monitor.core.models import LogCursor, NewLog, Progress, Question, Reply
from training_monitor.core.regex import regex
from training_monitor.logs.job_progress import EpochCount
from training_monitor.logs.training_log import parse_progress, read_samples
from training_monitor.targets.asking import MAX_ANSWER_BYTES, Site, quote_path
from training_monitor.targets.replies import parse_fields, read_age
from training_monitor.targets.scripts import Quoted, format_call, spell_path
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Stream, Transport

CHECKED_BYTES = 256
HELD_BYTES = 64 * 1024
MOST_BYTES = 1024 * 1024
_HEADER_BYTES = 200
_MD5_LENGTH = 32
FIRST_BYTES = 64 * 1024
LIMIT_BYTES = 1024 * 1024
_MOST_BYTES = MAX_ANSWER_BYTES - 64 * 1024  # an answer also has a head
_SAMPLE_BYTES, _MOST_SAMPLES = 1024, 8
SILENT_SECONDS = 30.0
_MOST_AROUND = 1024  # characters beside the log's own


class Frame(NamedTuple):
    offset: int
    data: bytes


class FrameReader:
    """Splits a stream of bytes into frames.

    Attributes:
        moved: the file was rotated, truncated or rewritten, nothing more comes.
        interrupted: `tail` has said something, what follows may be of another file.
    """

    def __init__(self, nonce: str) -> None:
        self._header = re.compile(
            rb"\n?%s (?:(\d{1,18}) (\d{1,9})|(moved)|tail (\d{1,18}) (/[^\n]{1,4096}))\n" % nonce.encode()
        )
        self._end = b"\n" + nonce.encode() + b" end\n"
        self._buffer = bytearray()
        self._offset, self._programs = 0, b""
        self.moved = self.interrupted = False

    def feed(self, chunk: bytes) -> list[Frame]:
        """Return the frames that `chunk` completes. Raises ParseError for malformed input."""
        self._buffer += chunk
        frames: list[Frame] = []
        while not self.moved and not self._programs and (header := self._header.match(self._buffer)):
            if header[1] is None:
                self.moved = header[3] is not None
                self._offset, self._programs = int(header[4] or 0), header[5] or b""
                del self._buffer[: header.end()]
                continue
            begin, count = header.end(), int(header[2])
            end = begin + count + len(self._end)
            if count > MOST_BYTES:
                raise ParseError(f"a frame has too many bytes ({count})", source="log stream")
            if len(self._buffer) < end:
                return frames
            if self._buffer[begin + count : end] != self._end:
                raise ParseError("a truncated frame: the file changed while it was read", source="log stream")
            frames.append(Frame(int(header[1]), bytes(self._buffer[begin : begin + count])))
            del self._buffer[:end]
        if self._programs:
            return self._read_tail()
        if len(self._buffer) > _HEADER_BYTES and not self._header.match(self._buffer):
            raise ParseError("no frame", source="log stream", text=self._buffer[:200].decode("utf-8", "replace"))
        return frames

    def _read_tail(self) -> list[Frame]:
        """Return all bytes but those of a message, and those that may be the beginning of one."""
        end = self._buffer.find(self._programs)
        self.interrupted = self.interrupted or end >= 0
        if end < 0:
            begun = (size for size in range(len(self._programs) - 1, 0, -1))
            end = len(self._buffer) - next((n for n in begun if self._buffer.endswith(self._programs[:n])), 0)
        data = bytes(self._buffer[:end])
        del self._buffer[:end]
        self._offset += len(data)
        return [Frame(self._offset - len(data), data)] if data else []


class LineCutter:
    """Cuts frames into whole lines after a cursor; the frames begin up to 256 bytes before it.

    A line ends with a newline or a carriage return; a line longer than 64 KiB is returned in parts.
    """

    def __init__(self, cursor: LogCursor) -> None:
        self._cursor = cursor
        self._at = self.begin(cursor)
        self._before = b""  # up to CHECKED_BYTES before the cursor
        self._held = b""

    @staticmethod
    def begin(cursor: LogCursor) -> int:
        """Return the offset at which the frames must begin."""
        return max(0, cursor.offset - CHECKED_BYTES)

    def cut(self, frame: Frame) -> NewLog:
        """Return the lines that a frame completes, the cursor after them, and the rest of an unfinished line.

        Raises ParseError when the file is no longer the same.
        """
        if frame.offset != self._at:
            raise ParseError(f"the bytes start at offset {frame.offset} instead of {self._at}", source="log stream")
        self._at += len(frame.data)
        known = max(0, min(len(frame.data), self._cursor.offset - frame.offset))
        self._before += frame.data[:known]
        if known and self._cursor.offset <= self._at and not self._is_same():
            raise ParseError("the file was rewritten", source="log stream")
        self._held += frame.data[known:]
        end = max(self._held.rfind(b"\n"), self._held.rfind(b"\r")) + 1
        if len(self._held) - end >= HELD_BYTES:
            end = len(self._held)
        lines, self._held = self._held[:end], self._held[end:]
        text, in_key = redact_next(_text(lines), self._cursor.in_key)
        if lines:
            self._before = (self._before + lines)[-CHECKED_BYTES:]
            self._cursor = LogCursor(self._cursor.offset + end, self._cursor.inode, self._check(), in_key)
        return NewLog(text, self._cursor, partial=redact_next(_text(self._held), in_key)[0])

    def _check(self) -> str:
        """Return the checksum for a cursor if the target uses md5, else ""."""
        import hashlib

        if len(self._cursor.check) != _MD5_LENGTH:
            return ""
        return hashlib.md5(self._before, usedforsecurity=False).hexdigest()

    def _is_same(self) -> bool:
        return len(self._cursor.check) != _MD5_LENGTH or self._check() == self._cursor.check


def _text(data: bytes) -> str:
    return data.replace(b"\0", b"").decode("utf-8", "replace")


def follow_script(expression: str, cursor: LogCursor, nonce: str, *, spelling: str) -> str:
    """Return a script that prints a log from a cursor on, as it grows: by `tail` with a `spelling` of its path."""
    return format_call(
        "log_follow",
        "follow",
        inode=cursor.inode,
        offset=LineCutter.begin(cursor),
        known=cursor.offset,
        nonce=nonce,
        spelling=spelling,
        most_bytes=MOST_BYTES,
        file=Quoted(expression),
    )


@dataclass(frozen=True, slots=True)
class FileSource:
    """A file on a target, named by a shell expression; `label` is its name in errors."""

    file: str
    label: str

    @classmethod
    def named(cls, path: str, label: str) -> FileSource:
        """Return the file of a path. Raises SettingsError."""
        return cls(quote_path(path), label)

    def read(
        self, cursor: LogCursor | None = None, limit_bytes: int = LIMIT_BYTES, *, oldest_first: bool = False
    ) -> Question[NewLog]:
        """Ask for what follows `cursor`; without one, for the last `limit_bytes`. Raises SettingsError.

        Where there is more than the limit, `oldest_first` reads the part next to the cursor instead of the newest, and
        `left_bytes` counts the rest; after a rotation or truncation it makes no difference.
        """
        if not 0 < limit_bytes <= _MOST_BYTES:
            raise SettingsError("limit_bytes", limit_bytes, f"1 to {_MOST_BYTES}")
        script = format_call(
            "log",
            "read_new",
            inode=cursor.inode if cursor else "",
            offset=cursor.offset if cursor else 0,
            check=cursor.check if cursor else "",
            limit=limit_bytes,
            most_held=HELD_BYTES,
            oldest_first=int(oldest_first),
            file=Quoted(self.file),
        )
        return Question("log", script, lambda reply: _parse_new_log(reply, self.label, cursor, limit_bytes), limit=30.0)

    def count(self) -> Question[EpochCount]:
        """Ask how it counts steps and epochs, from short samples of all its parts.

        The end of a long log alone does not show where its epochs begin.
        """
        sizes = {"most_samples": _MOST_SAMPLES, "sample_bytes": _SAMPLE_BYTES}
        script = format_call("log_samples", "show", **sizes, file=Quoted(self.file))

        def parse(reply: Reply) -> EpochCount:
            first, *others = reply.output.split("\036")
            whole = [re.split("[\r\n]", each)[1:] for each in others]
            lines = [re.split("[\r\n]", first), *whole]
            return read_samples(["\n".join(each if each is lines[-1] else each[:-1]) for each in lines])

        return Question("epochs", script, parse, limit=10.0)

    def follow_on(self, site: Site) -> LogStream:
        """Return a held connection to it."""
        return LogStream(site, self.file)


# The log that is being read stays the log for as long as it is written to, even if others are written beside it.
STAYS_SECONDS = 120
_JOBS = "~/.training_monitor/jobs/"
_ACTIVE = regex(r"([*?\[\]!^-]+)")  # stays unquoted in a pattern; `!`, `^` and `-` have a meaning in brackets


@lru_cache(maxsize=256)  # several questions of one look are about the same log
def newest_of(patterns: tuple[str, ...], inode: int | str, since: int | str = "") -> str:
    """Return the newest regular file that matches, or nothing; a file literally named like a pattern wins.

    The one with this inode stays for as long as it is written to; those of before `since` (epoch seconds) do not count.
    """
    words = _pattern_words(patterns)
    return f'"$({format_call("watched_log", "show_newest", *words, inode=inode, stays=STAYS_SECONDS, since=since)})"'


@lru_cache(maxsize=64)  # the members of a fleet have the same patterns, at every look
def _pattern_words(patterns: tuple[str, ...]) -> tuple[Quoted, ...]:
    return tuple(Quoted(word) for each in patterns for word in (_quote_pattern(each, ""), _quote_pattern(each), "''"))


def _quote_pattern(pattern: str, active: str = _ACTIVE.pattern) -> str:
    """Quote a pattern as one word of a script, never an option; without `active` characters it is a file name."""
    home = ""
    if pattern.startswith(_JOBS):
        home, pattern = '"${TRAINING_MONITOR_JOBS_DIR:-$HOME/.training_monitor/jobs}"/', pattern[len(_JOBS) :]
    elif pattern.startswith("~/"):
        home, pattern = '"$HOME"/', pattern[2:]
    elif not pattern.startswith("/"):
        home = "./"
    parts = re.split(active, pattern) if active else [pattern]
    quoted = [part if number % 2 else shlex.quote(part) if part else "" for number, part in enumerate(parts)]
    return home + "".join(quoted)


def _parse_new_log(reply: Reply, path: str, cursor: LogCursor | None, limit_bytes: int) -> NewLog:
    fields, text = parse_fields(reply.output)
    state = fields.get("state")
    if state == "missing":
        return NewLog("", cursor, missing=True)
    if state == "denied":
        raise AccessDenied(
            f"{path}: no permission to read it", hint="run this as another user, or change the file's permissions"
        )
    if state == "other":
        raise CommandFailed(f"{path} is not a regular file")
    if state != "read":
        raise ParseError("no result in the response", source=path, text=reply.output[-2000:])
    if len(text) > limit_bytes + _MOST_AROUND:
        raise ParseError(f"the reply has {len(text)} characters, but at most {limit_bytes} were requested", source=path)
    end = max(text.rfind("\n"), text.rfind("\r")) + 1 if int(fields["held"]) else len(text)
    whole, in_key = redact_next(text[:end], cursor.in_key if cursor and not fields["reset"] else False)
    return NewLog(
        whole,
        LogCursor(int(fields["offset"]), int(fields["inode"]), fields["check"], in_key),
        fields["reset"] or None,
        redact_next(text[end:], in_key)[0],
        int(fields["skipped"]),
        age=read_age(fields.get("age")),
        changed=read_age(fields.get("changed")),
        path=fields.get("path") or None,
        left_bytes=int(fields.get("left") or 0),
    )


def read_new_log(
    target: str | Target,
    path: str,
    cursor: LogCursor | None = None,
    namespace: str = "default",
    *,
    limit_bytes: int = LIMIT_BYTES,
    transport: Transport | None = None,
) -> NewLog:
    """Read the part of a log file that was written since the last read, in one round trip.

    Args:
        path: the file on the target; `~/` is the home folder there.
        cursor: `NewLog.cursor` of the last read; None: read the last 64 KiB, from the first whole line on.
        limit_bytes: if there is more new text, only the newest bytes are read, and `skipped_bytes` is the number of
            skipped bytes.

    Returns:
        A NewLog; successive reads return each line once. After a truncation or rotation, the file is read from its
        start. If the old file is now `PATH.1`, the rest of it is returned first. A missing file is not an error.

    Raises:
        AccessDenied: there is no permission to read the file.
        SettingsError: the path is empty, or the limit is invalid.
        CommandError: the target could not be queried, or the path is not a regular file.
    """
    limit = limit_bytes if cursor else min(limit_bytes, FIRST_BYTES)
    return Site.of(target, namespace, transport).ask_one(FileSource.named(path, path).read(cursor, limit))


def get_log_progress(
    target: str | Target,
    path: str,
    namespace: str = "default",
    *,
    tail_bytes: int = FIRST_BYTES,
    transport: Transport | None = None,
) -> Progress:
    """Return the most recent progress in the last `tail_bytes` of a log file, in one round trip.

    Returns:
        A Progress, which may come from an unfinished last line. All values are None if the file is missing or contains
        no progress.

    Raises:
        AccessDenied, SettingsError, CommandError: as for `read_new_log`.
    """
    new = Site.of(target, namespace, transport).ask_one(FileSource.named(path, path).read(None, tail_bytes))
    return parse_progress(new.text + new.partial)


class LogStream:
    """Follows one file of one target; `follow` may be called repeatedly."""

    def __init__(self, site: Site, expression: str) -> None:
        """Follow the file that a shell expression names, see `quote_path`."""
        self._site, self._expression = site, expression
        self._stream: Stream | None = None
        self._heard_at = 0.0
        self._closed = False

    def follow(self, cursor: LogCursor) -> Iterator[NewLog]:
        """Yield new lines, each with the cursor after them, until the connection ends. Raises ToolNotFound."""
        for spelling in (spell_path(), ""):
            frames = FrameReader(nonce := os.urandom(12).hex())
            for new in self._read(cursor, frames, follow_script(self._expression, cursor, nonce, spelling=spelling)):
                cursor = new.cursor or cursor
                yield new
            if self._closed or not frames.interrupted:
                return

    def _read(self, cursor: LogCursor, frames: FrameReader, script: str) -> Iterator[NewLog]:
        self.heard()
        self._stream, lines = self._site.stream(script), LineCutter(cursor)
        try:
            if self._closed:
                return
            for chunk in self._stream.chunks():
                self.heard()
                for frame in frames.feed(chunk):
                    yield lines.cut(frame)
                if frames.interrupted:
                    return
        except ParseError:
            return  # the file changed while it was read: what was yielded is right, the rest is read again
        finally:
            self._stream.close()
            self._stream = None

    @property
    def is_silent(self) -> bool:
        """Whether nothing has come for SILENT_SECONDS: the log may be silent, or the connection lost."""
        return self._stream is not None and self._site.clock.monotonic() - self._heard_at > SILENT_SECONDS

    def heard(self) -> None:
        """Count the silence from now on."""
        self._heard_at = self._site.clock.monotonic()

    def drop(self) -> None:
        """End the connection, from any thread; `follow` returns."""
        if stream := self._stream:
            stream.close()

    def close(self) -> None:
        """Close the stream for good, from any thread."""
        self._closed = True
        self.drop()
