"""Frames of a followed log: whole lines, once each, however the connection cuts them."""

from __future__ import annotations

import hashlib
import random

import pytest

from training_monitor.core.errors import ParseError
from training_monitor.core.models import LogCursor
from training_monitor.logs.following import HELD_BYTES, FrameReader, LineCutter

NONCE = "0123456789abcdef01234567"


def frame(offset: int, data: bytes) -> bytes:
    return b"%s %d %d\n%s\n%s end\n" % (NONCE.encode(), offset, len(data), data, NONCE.encode())


def cursor_at(file: bytes, offset: int) -> LogCursor:
    before = file[max(0, offset - 256) : offset]
    return LogCursor(offset, 7, hashlib.md5(before).hexdigest())


def read(cursor: LogCursor, wire: bytes, cuts: list[int]) -> tuple[str, LogCursor]:
    frames, lines, text = FrameReader(NONCE), LineCutter(cursor), ""
    for begin, end in zip([0, *cuts], [*cuts, len(wire)]):
        for each in frames.feed(wire[begin:end]):
            new = lines.cut(each)
            text, cursor = text + new.text, new.cursor or cursor
    return text, cursor


def test_every_line_comes_once_however_frames_and_chunks_are_cut() -> None:
    for seed in range(30):
        chance = random.Random(seed)
        lines = [chance.choice(["step 1\n", "█▌ 10%\r", "\n", "x" * chance.randrange(600) + "\n"]) for _ in range(200)]
        file = "".join(lines).encode()
        start = len("".join(lines[: chance.randrange(100)]).encode())
        cursor, wire, at = cursor_at(file, start), b"", LineCutter.begin(cursor_at(file, start))
        while at < len(file):
            data = file[at : at + chance.randrange(1, 500)]
            wire += frame(at, data)
            at += len(data)
        cuts = sorted(chance.randrange(len(wire)) for _ in range(60))
        text, end = read(cursor, wire, cuts)
        assert text == file[start:].decode()
        assert end == cursor_at(file, len(file))


def test_a_connection_that_breaks_anywhere_is_gone_on_with_from_the_last_cursor() -> None:
    for seed in range(30):
        chance = random.Random(seed)
        file = "".join(f"step {step}/500 loss 0.5 ±\n" for step in range(500)).encode()
        cursor, text = LogCursor(0, 7, hashlib.md5(b"").hexdigest()), ""
        while cursor.offset < len(file):
            at = LineCutter.begin(cursor)
            wire = b"".join(frame(begin, file[begin : begin + 100]) for begin in range(at, len(file), 100))
            more, cursor = read(cursor, wire[: chance.randrange(1, 6000)], [])
            text += more
        assert text == file.decode()


def test_without_md5_on_the_target_the_cursor_carries_no_check() -> None:
    new = LineCutter(LogCursor(4, 7, "1234567")).cut(FrameReader(NONCE).feed(frame(0, b"abc\ndef\n"))[0])
    assert new.cursor == LogCursor(8, 7, "") and new.text == "def\n"


def test_what_is_no_frame_of_this_file_is_refused() -> None:
    short = frame(0, b"only four").replace(b"only four", b"only")
    with pytest.raises(ParseError, match="changed while it was read"):
        FrameReader(NONCE).feed(short + b"x" * 99)
    cursor = cursor_at(b"old text\n", 9)
    with pytest.raises(ParseError, match="rewritten"):
        LineCutter(cursor).cut(FrameReader(NONCE).feed(frame(0, b"new text\nmore\n"))[0])
    with pytest.raises(ParseError, match="no frame"):
        FrameReader(NONCE).feed(b"Welcome to this machine\n" * 20)
    with pytest.raises(ParseError, match=r"a frame has too many bytes \(99999999\)"):
        FrameReader(NONCE).feed(f"{NONCE} 0 99999999\n".encode())


def test_what_a_log_says_cannot_pass_for_a_frame_or_for_a_move_of_the_file() -> None:
    wrong = f"\n{NONCE} moved\n{NONCE} 0 5\nhello\n{NONCE} end\n".encode()
    text, _ = read(LogCursor(0, 7, ""), frame(0, wrong), [])
    assert text == wrong.decode()
    frames = FrameReader(NONCE)
    assert frames.feed(f"{NONCE} moved\n".encode() + frame(0, b"x\n")) == [] and frames.moved


def test_an_endless_line_is_given_in_parts() -> None:
    lines = LineCutter(LogCursor(0, 7, ""))
    [first] = FrameReader(NONCE).feed(frame(0, b"x" * (HELD_BYTES - 1)))
    [second] = FrameReader(NONCE).feed(frame(HELD_BYTES - 1, b"xy\n"))
    held = lines.cut(first)
    assert (held.text, len(held.partial), held.cursor) == ("", HELD_BYTES - 1, LogCursor(0, 7, ""))
    assert len(lines.cut(second).text) == HELD_BYTES + 2


PROGRAMS = b"/usr/bin/./././//./"


def tailed(offset: int, data: bytes) -> bytes:
    return b"%s tail %d %s\n%s" % (NONCE.encode(), offset, PROGRAMS, data)


def test_what_tail_prints_is_read_as_it_comes_however_it_is_cut() -> None:
    for seed in range(30):
        chance = random.Random(seed)
        paths = ["/usr/bin/./\n", PROGRAMS[:-1].decode() + "\n"]
        choices = ["step 1\n", f"\n{NONCE} moved\n", "x" * 500 + "\n", *paths]
        file = "".join(chance.choice(choices) for _ in range(200)).encode()
        start = chance.choice([0, 7, 300])
        start = file.find(b"\n", start) + 1
        cursor = cursor_at(file, start)
        wire = tailed(LineCutter.begin(cursor), file[LineCutter.begin(cursor) :])
        cuts = sorted(chance.randrange(len(wire)) for _ in range(60))
        text, end = read(cursor, wire, cuts)
        assert text == file[start:].decode()
        assert end == cursor_at(file, len(file))


def test_nothing_counts_after_tail_has_said_something() -> None:
    message = PROGRAMS + b"tail: log: file truncated\n"
    wire = tailed(0, b"step 1\nstep 2\nste" + message + b"step 3\n")
    for cut in range(len(wire)):
        frames, lines = FrameReader(NONCE), LineCutter(LogCursor(0, 7, ""))
        news = [lines.cut(each) for part in (wire[:cut], wire[cut:]) for each in frames.feed(part)]
        assert "".join(new.text for new in news) == "step 1\nstep 2\n" and news[-1].partial == "ste"
        assert frames.interrupted and not frames.moved
