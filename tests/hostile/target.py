#!/usr/bin/env -S python3 -I -S
"""A target that answers as it likes: a module for tests, and a program that is on PATH as `ssh` and `kubectl`.

As a program it reads TM_HOSTILE_MODE and TM_HOSTILE_ANSWERS, a JSON file of good answers by question
(`{"log read_new": ["state=read\\n...", 0]}`). It runs nothing that it is told to run.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

MIB = 1024 * 1024
_WORD = re.compile(r"(?:'[^']*'|\"[^\"]*\"|[^\s'\"])+")


class Body(NamedTuple):
    """The output of one script, and its exit code."""

    output: bytes
    exit_code: object = 0


Answers = Mapping[str, Body]


# ---------------------------------------------------------------- what was asked


def nonce_of(script: str) -> str | None:
    """The mark of the frames; None for a script that is not of questions."""
    found = re.search(r"^_nonce=(\w+)$", script, re.MULTILINE)
    return found[1] if found else None


def questions_of(script: str) -> list[str]:
    """`SUBJECT FUNCTION` of each question, in order."""
    _, mark, words = script.rpartition("\nask_all ")
    return [_name(word) for word in _WORD.findall(words)[1::2]] if mark else []


def _name(word: str) -> str:
    first = word[:200].replace("'\"'\"'", "'").strip("'\"").partition("\n")[0]
    return first.removeprefix(": ") if first.startswith(": ") else "plain"


def variables_of(script: str) -> list[dict[str, str]]:
    """The variables of each question, in order: some are random, and what is answered holds them."""
    _, mark, words = script.rpartition("\nask_all ")
    return [_variables(word) for word in _WORD.findall(words)[1::2]] if mark else []


@lru_cache(maxsize=1000)
def _variables(word: str) -> dict[str, str]:
    head = word.replace("'\"'\"'", "'")[:20_000].split("() {")[0]
    return {name: value.strip("'") for name, value in re.findall(r"^(\w+)=('[^'\n]*'|\S*)$", head, re.MULTILINE)}


# ---------------------------------------------------------------- frames


def frame(nonce: str, number: object, body: Body, begin: object = 100.0, end: object = 100.25) -> bytes:
    text = f"\n{nonce} exit {body.exit_code}\n".encode(errors="surrogateescape")
    return b"\n%s ask %s %s %s\n%s%s" % (*map(_bytes, (nonce, number, begin, end)), body.output, text)


def closing(nonce: str) -> bytes:
    return f"\n{nonce} close\n".encode()


def framed(nonce: str, bodies: Iterable[Body]) -> bytes:
    """The answer of a target that is what it should be."""
    return b"".join(frame(nonce, number, body) for number, body in enumerate(bodies)) + closing(nonce)


def _bytes(value: object) -> bytes:
    return str(value).encode("utf-8", "surrogateescape")


DIGITS = "9" * 5000
NUMBERS = (
    *("", "-1", "99", "-0", "+0", "00", "0.0", "1e3", "0x1", "1_0", "²", "٣", "१", "①", "x", "None", "nan", "inf"),
    *("-inf", "1e308", "-1e308", "1e400", DIGITS, "-" + DIGITS, "9" * 30, "\x00", "\udcff", "0 0", "\u2003", "\t"),
)


def forge(name: str, nonce: str, bodies: list[Body]) -> bytes:
    """The answer of that name whose frames are wrong."""
    if name == "a hundred thousand frames":
        return b"".join(frame(nonce, n, Body(b"")) for n in range(100_000)) + closing(nonce)
    return next(each for other, each in forged(nonce, bodies) if other == name)


def forged(nonce: str, bodies: list[Body]) -> Iterator[tuple[str, bytes]]:
    """Names and bytes of answers whose frames are wrong."""
    good = [frame(nonce, number, body) for number, body in enumerate(bodies)]
    whole, close = b"".join(good), closing(nonce)
    mark = nonce.encode()
    body = bodies[0]
    yield "none", b""
    yield "only close", close
    yield "no close", whole
    yield "two closes", whole + close + close
    yield "close between", good[0] + close + b"".join(good[1:]) + close
    yield "close first", close + whole + close
    yield "text behind the close", whole + close + b"\nmore\n"
    yield "text before", b"Welcome!\n" * 1000 + whole + close
    yield "doubled", whole + whole + close
    yield "each doubled", b"".join(each + each for each in good) + close
    yield "turned round", b"".join(reversed(good)) + close
    yield "all of number 0", b"".join(frame(nonce, 0, each) for each in bodies) + close
    yield "a hundred thousand frames", b""
    yield "a hundred thousand closes", close * 100_000
    yield "other mark", framed("0" * 24, bodies)
    yield "other mark closed by ours", framed("0" * 24, bodies) + close
    yield "no exits", b"".join(each.rpartition(b"\n" + mark)[0] for each in good) + close
    yield "exits alone", b"".join(b"\n%s exit 0\n" % mark for _ in good) + close
    yield "exit twice", b"".join(each + b"\n%s exit 1\n" % mark for each in good) + close
    asks, others = (
        ("ask", "ask 0", "ask 0 1", "ask 0 1 2 3", "ask  0 1 2", "ask \t"),
        ("", " ", "exit", "exit \n", "exit 0 0"),
    )
    for word in (*asks, *others):
        yield f"a frame of {word!r}", b"\n%s %s\nx" % (mark, word.encode()) + whole + close
        yield f"all frames of {word!r}", b"\n%s %s\nx" % (mark, word.encode()) * len(good) + close
        yield (
            f"frames with {word!r} at their end",
            b"".join(each.rpartition(b"\n" + mark)[0] + b"\n%s %s\n" % (mark, word.encode()) for each in good) + close,
        )
    for value in NUMBERS:
        named = repr(value[:12])
        yield f"number {named}", frame(nonce, value, body) + whole + close
        yield f"all numbers {named}", b"".join(frame(nonce, value, each) for each in bodies) + close
        exits = [Body(each.output, value) for each in bodies]
        yield f"exits {named}", b"".join(frame(nonce, number, each) for number, each in enumerate(exits)) + close
        begins = [frame(nonce, number, each, begin=value) for number, each in enumerate(bodies)]
        yield f"begins {named}", b"".join(begins) + close
        ends = [frame(nonce, number, each, end=value) for number, each in enumerate(bodies)]
        yield f"ends {named}", b"".join(ends) + close


# ---------------------------------------------------------------- answers that are garbage


def deep_json(depth: int = 100_000) -> bytes:
    return b"[" * depth + b"]" * depth


GARBAGE: dict[str, bytes] = {
    "binary": bytes(range(256)) * 200,
    "NUL bytes": b"\0" * 5000,
    "invalid UTF-8": b"\xff\xfe\xc3\x28\xed\xa0\x80\xf8\x88\x80\x80\x80\n" * 300,
    "4-byte UTF-8": "\U0001f600\U0010ffff".encode() * 4000,
    "blank lines": b"\n" * 5000,
    "spaces": b" " * 5000,
    "one long line": b"x" * MIB,
    "digits": b"9" * 20_000,
    "deep JSON": deep_json(),
    "deep JSON objects": b'{"a":' * 100_000,
    "huge numbers": b'{"a": 1e308, "b": 1e999, "c": ' + b"9" * 5000 + b', "d": NaN, "e": -Infinity}\n',
    "JSON null": b"null\n",
    "JSON list": b"[1, 2, null]\n",
    "JSON string": b'"x"\n',
    "an error": b"bash: fork: Cannot allocate memory\n",
    "a traceback": b'Traceback (most recent call last):\n  File "x", line 1, in <module>\nValueError: x\n',
    "terminal sequences": b"\x1b]0;title\x07\x1b[2J\x1b[31m\x9b31m\x1bP1$r\x1b\\\xc2\x9d0;x\xc2\x9c\r\x08\x08\n" * 100,
    "long names": b"x" * 5000 + b"=" + b"y" * 5000 + b"\n" + b"z/" * 4000 + b"\n",
    "equals": b"=\n" * 5000,
    "right to left": "\u202e\u2066step 5/10\u2069\n".encode() * 300,
    "separators": "a\u2028b\u2029c\x85d\x1ce\x0bf\x0c\n".encode() * 300,
    "HTML": b"<html><head><title>502 Bad Gateway</title></head></html>\r\n",
}


def of_right_form(body: bytes, most: int = 4 * MIB) -> bytes:
    """The answer with its commonest kind of line a million times, or as often as `most` bytes hold."""
    lines = body.splitlines(keepends=True)
    if not lines:
        return body

    def kind(line: bytes) -> bytes:
        return re.sub(rb"[\w.]+", b"a", line[:200])

    kinds = [kind(line) for line in lines]
    common = max(dict.fromkeys(kinds), key=kinds.count)
    at = kinds.index(common)
    line = lines[at].rstrip(b"\n")
    some, size = list[bytes](), 0
    numbers = itertools.count(1000)
    while size < most and len(some) < 1_000_000:
        for _ in range(100):  # the first number of each is another one
            new = re.sub(rb"\d+", b"%d" % next(numbers), line, count=1) + b"\n"
            some.append(new)
            size += len(new)
    return b"".join([*lines[:at], *some, *lines[at:]])


# ---------------------------------------------------------------- the program

Send = Callable[[bytes], object]


def _endless(send: Send, piece: bytes) -> None:
    while True:
        send(piece)


def serve(mode: str, script: str, answers: Answers, send: Send) -> int:
    """Answer one call in a way that takes a program; returns the exit code."""
    nonce = nonce_of(script) or "none"
    names = questions_of(script)
    bodies = [answers.get(name, Body(b"", 1)) for name in names] or [Body(b"")]
    good = framed(nonce, bodies) if names else bodies[0].output
    if mode == "good":
        send(good)
    elif mode == "endless line":
        _endless(send, b"x" * 65536)
    elif mode == "endless lines":
        _endless(send, b"step 5/10 loss: 0.5\n" * 3000)
    elif mode == "endless answer":
        send(f"\n{nonce} ask 0 1 2\n".encode())
        _endless(send, (bodies[0].output or b"\n") * (1 + 65536 // (len(bodies[0].output) + 1)))
    elif mode == "endless frames":
        _endless(send, (frame(nonce, 0, bodies[0]) + closing(nonce)) * (1 + 65536 // (len(bodies[0].output) + 80)))
    elif mode == "60 MiB of text":
        for _ in range(60):
            send(b"step 5/10 loss: 0.5 " * (MIB // 20))
        send(good)
    elif mode == "60 MiB of one answer":
        send(f"\n{nonce} ask 0 1 2\n".encode())
        for _ in range(60):
            send((b"x" * 1023 + b"\n") * 1024)
        send(f"\n{nonce} exit 0\n".encode() + good)
    elif mode == "a million rows":
        send(framed(nonce, [Body(of_right_form(each.output), each.exit_code) for each in bodies]))
    elif mode in ("5 MiB of rows", "5 MiB of wide rows"):
        # with one such character Python keeps 4 bytes for each of the text
        wide = b"\xf0\x9f\x98\x80" if "wide" in mode else b""
        rows = [of_right_form(each.output, 5 * MIB // len(bodies)) + wide for each in bodies]
        send(framed(nonce, [Body(output, each.exit_code) for output, each in zip(rows, bodies)]))
    elif mode == "slow":
        for byte in good[:-5]:
            send(bytes([byte]))
            time.sleep(1)
    elif mode == "hangs":
        time.sleep(3600)
    elif mode == "hangs after all":
        send(good)
        time.sleep(3600)
    elif mode == "ignores signals":
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        time.sleep(3600)
    elif mode in ("killed", "killed half-way", "killed after all"):
        send({"killed": b"", "killed half-way": good[: len(good) // 2], "killed after all": good}[mode])
        os.kill(os.getpid(), signal.SIGKILL)
    elif mode == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif mode == "half":
        send(good[: len(good) // 2])
    elif mode == "100 MB of errors":
        for _ in range(100):
            os.write(2, b"error: no such file or directory: unknown\n" * 25_000)
        send(good)
    elif mode == "only errors":
        os.write(2, b"\x1b[31mbash: fork: \xff\xfe\0Cannot allocate memory\n" * 2000)
    elif mode == "status 0 with an error":
        send(b"Error from server (Forbidden): x is forbidden\n")
    elif mode == "status 255":
        send(good)
        return 255
    elif mode == "closes stdout":
        send(good[:10])
        os.close(1)
        time.sleep(0.2)
    else:
        raise SystemExit(f"no mode {mode!r}")
    return 0


# What no sound target does, by whether the answer is a good one all the same.
MODES = {
    "endless line": False,
    "endless lines": False,
    "endless answer": False,
    "endless frames": False,
    "slow": False,
    "hangs": False,
    "ignores signals": False,
    "killed": False,
    "killed half-way": False,
    "segfault": False,
    "half": False,
    "only errors": False,
    "status 0 with an error": False,
    "closes stdout": False,
    "hangs after all": False,
    "killed after all": True,
    "status 255": True,
    "100 MB of errors": True,
    "60 MiB of one answer": True,
    "60 MiB of text": True,
    "a million rows": True,
    "5 MiB of rows": True,
    "5 MiB of wide rows": True,
}


def load_answers(path: str) -> dict[str, Body]:
    with open(path, encoding="utf-8") as file:
        return {name: Body(text.encode("latin-1"), code) for name, (text, code) in json.load(file).items()}


def save_answers(path: str, answers: Answers) -> None:
    with open(path, "w", encoding="utf-8") as file:
        json.dump({name: [body.output.decode("latin-1"), body.exit_code] for name, body in answers.items()}, file)


def read_script() -> bytes:
    """Read a script to its end, after which its input stays open."""
    script = b""
    while not script.endswith((b"; exit\n", b"\nexit\n}\n")) and (piece := os.read(0, 65536)):
        script += piece
    return script


def main() -> int:
    if os.path.basename(sys.argv[0]) == "ssh" and {"-O", "-G"} & set(sys.argv):
        return 255  # asked by this machine about its own connections and settings
    script = read_script().decode("utf-8", "surrogateescape")
    answers = load_answers(os.environ["TM_HOSTILE_ANSWERS"])

    def send(data: bytes) -> None:
        while data:
            data = data[os.write(1, data) :]

    try:
        return serve(os.environ["TM_HOSTILE_MODE"], script, answers, send)
    except BrokenPipeError:
        return 141


if __name__ == "__main__":
    sys.exit(main())
