"""Answers that are almost right: real ones with one thing wrong. Seeded, so that a number names an answer."""

from __future__ import annotations

import json
import random
import re
from typing import Any

from tests.hostile.target import DIGITS, GARBAGE, NUMBERS, Body

# As bytes: what a field of a line, a value behind `=` or a JSON value may become.
NASTY: tuple[bytes, ...] = (
    *(each.encode("utf-8", "surrogateescape") for each in NUMBERS),
    *(b"0", b"1", b"5", b"1" + b"0" * 400, b"9" * 18, b"9223372036854775808", b"18446744073709551615", b"4294967296"),
    *(b"1e-400", b"5e-324", b"-0.0", b".", b"-", b"+", b"1.2.3", b"1,000", b"NaN", b"Infinity", b"true", b"null"),
    *(b"[]", b"{}", b'""', b"[" * 3000, b"\xff\xfe", b"\x00", b"\x1b[31m", b"\x1b]0;x\x07", b"\xc2\x9b", b"\r"),
    *(b"\x0b", b"\xe2\x80\xa8", b"\xe2\x80\xae", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80" * 100),
    *(b"/", b"..", b"../../etc/passwd", b"/dev/zero", b"-rf", b"$(reboot)", b"%s", b"%", b"{}", b"{0}", b"\\"),
    *(b"a" * 5000, b"'", b'"', b"=", b" ", b"\n", b"\n\n", b"log", b"end", b"state=", b"state=running", b"(", b")"),
    *(b"a b", b"[N/A]", b"ERR!"),
    *(b"None", b"-1e309", b"1700000000", b"17000000000000", b"253402300800", b"99999999999999"),
)
JSON_NASTY: tuple[str, ...] = (
    *("null", "true", "false", "0", "-1", "1e308", "1e999", "-1e999", "NaN", "Infinity", "-Infinity", "1e-400"),
    *("5e-324", "9" * 400, DIGITS, "1.5", "[]", "{}", "[1]", '{"a": 1}', '""', '"x"', '"²"', '"nan"', '"1e308"'),
    *(
        '"-1"',
        '"5"',
        '"\\ud800"',
        '"\\u0000"',
        '"\\u001b[31m"',
        f'"{"y" * 5000}"',
        f'"{DIGITS}"',
        "[" * 500 + "]" * 500,
    ),
    *('"RUNNING"', "18446744073709551616", "1700000000", "253402300800", "9e15", "[null]", "[[[]]]", '{"": null}'),
    '"a\\nb"',
)
_FIELD = re.compile(rb"[^\s=,:|/()\[\]{}\"']+")
_VALUE = re.compile(rb"(?<=[:\[,])\s*(\"(?:[^\"\\]|\\.)*\"|-?[\d.eE+]+|true|false|null|NaN)")
_EXITS = (0, 1, 2, 126, 127, 128, 130, 137, 143, 255, -9, 256, 99999)


def mutated(body: Body, rng: random.Random) -> tuple[Body, str]:
    """A body with one or two things wrong, and what."""
    said = []
    for _ in range(rng.choice((1, 1, 1, 2))):
        change = rng.choice(_CHANGES)
        body, word = change(body, rng)
        said.append(word)
    return body, ", ".join(said)


def _short(text: bytes) -> str:
    return repr(text[:24])[1:] + ("..." if len(text) > 24 else "")


def _a_field(body: Body, rng: random.Random) -> tuple[Body, str]:
    fields = [*_FIELD.finditer(body.output[:200_000])]
    if not fields:
        return _garbage(body, rng)
    at, new = rng.choice(fields), rng.choice(NASTY)
    start, end = at.span()
    return body._replace(output=body.output[:start] + new + body.output[end:]), f"{_short(at[0])} -> {_short(new)}"


def _a_column(body: Body, rng: random.Random) -> tuple[Body, str]:
    """The same field of all lines that begin with the same word."""
    lines = body.output.split(b"\n")
    line = rng.choice(lines)
    word = re.match(rb"\W*\w*", line)[0]  # type: ignore[index]
    count = len(_FIELD.findall(line))
    if not count:
        return _a_field(body, rng)
    place, new = rng.randrange(count), rng.choice(NASTY)
    for number, each in enumerate(lines):
        fields = [*_FIELD.finditer(each)]
        if each.startswith(word) and place < len(fields):
            start, end = fields[place].span()
            lines[number] = each[:start] + new + each[end:]
    return body._replace(output=b"\n".join(lines)), f"field {place} of {_short(word)} lines -> {_short(new)}"


def _a_value(body: Body, rng: random.Random) -> tuple[Body, str]:
    """A JSON value."""
    places = [*_VALUE.finditer(body.output[:200_000])]
    if not places or b"{" not in body.output:
        return _a_field(body, rng)
    at, new = rng.choice(places), rng.choice(JSON_NASTY).encode()
    start, end = at.span(1)
    said = f"{_short(body.output[max(0, start - 24) : start])}: {_short(at[1])} -> {_short(new)}"
    return body._replace(output=body.output[:start] + new + body.output[end:]), said


def _lines(body: Body, rng: random.Random) -> tuple[Body, str]:
    lines = body.output.splitlines(keepends=True)
    if not lines:
        return _garbage(body, rng)
    at, how = rng.randrange(len(lines)), rng.randrange(8)
    if how == 0:
        lines, said = lines[:at] + lines[at + 1 :], f"without {_short(lines[at])}"
    elif how == 1:
        lines, said = lines[: at + 1] + lines[at:], f"twice {_short(lines[at])}"
    elif how == 2:
        rng.shuffle(lines)
        said = "shuffled"
    elif how == 3:
        lines, said = lines + lines, "all twice"
    elif how == 4:
        lines, said = lines[:at], f"only {at} lines"
    elif how == 5:
        lines, said = lines[at:], f"from line {at} on"
    elif how == 6 and len(lines[at]) < 1000:
        lines, said = lines[:at] + lines[at : at + 1] * 3000 + lines[at + 1 :], f"3000 times {_short(lines[at])}"
    else:
        lines[at], said = rng.choice(NASTY) + b"\n", f"a line instead of {_short(lines[at])}"
    return body._replace(output=b"".join(lines)), said


def _cut(body: Body, rng: random.Random) -> tuple[Body, str]:
    at = rng.randrange(len(body.output) + 1)
    return body._replace(output=body.output[:at]), f"cut after {at} bytes"


def _bytes(body: Body, rng: random.Random) -> tuple[Body, str]:
    output = bytearray(body.output)
    for _ in range(rng.randrange(1, 6) if output else 0):
        output[rng.randrange(len(output))] = rng.randrange(256)
    return body._replace(output=bytes(output)), "some bytes changed"


def _inserted(body: Body, rng: random.Random) -> tuple[Body, str]:
    name = rng.choice([*GARBAGE])
    new, at = GARBAGE[name][:20_000], rng.randrange(len(body.output) + 1)
    return body._replace(output=body.output[:at] + new + body.output[at:]), f"{name} inserted at {at}"


def _garbage(body: Body, rng: random.Random) -> tuple[Body, str]:
    name = rng.choice([*GARBAGE])
    return body._replace(output=GARBAGE[name]), name


def _exit(body: Body, rng: random.Random) -> tuple[Body, str]:
    status = rng.choice(_EXITS)
    return body._replace(exit_code=status), f"exit code {status}"


_OFTEN = (*[_a_field] * 4, *[_a_column] * 3, *[_a_value] * 3, *[_lines] * 4, _cut)
_CHANGES = (*_OFTEN, _cut, _bytes, _inserted, _garbage, _exit)


# ---------------------------------------------------------------- JSON of vastai


def mutated_json(document: Any, rng: random.Random) -> tuple[bytes, str]:
    """A JSON document with a value or two replaced, or no JSON of this form at all."""
    text = json.dumps(document).encode()
    if rng.random() < 0.15:
        return NO_JSON[name := rng.choice([*NO_JSON])], name
    body, said = Body(text), []
    for _ in range(rng.choice((1, 1, 2, 4))):
        body, word = _a_value(body, rng)
        said.append(word)
    return body.output, ", ".join(said)


NO_JSON: dict[str, bytes] = {
    **GARBAGE,
    "nothing": b"",
    "10 MB of rows": b"[" + b'{"id": 1, "x": "yyyyyyyyyyyyyyyyyyyyyyyyyy"}, ' * 220_000 + b"null]",
    "10 MB of text": b"x" * 10_000_000,
    "an error, exit code 0": b'{"error": true, "status_code": 500, "msg": "Internal Server Error"}\n',
    "failed, exit code 0": b"failed with error 500: Internal Server Error\n",
    "a number": b"1e308\n",
    "a list of lists": b"[[[[]]]]\n",
    "a list of null": b"[null, null]\n",
    "an empty object": b"{}\n",
    "rows of text": b'{"instances": "x", "offers": 5}\n',
    "rows of numbers": b'{"instances": [1, 2, 1e308], "offers": [1]}\n',
    "success of text": b'{"success": "no", "instances": {}}\n',
    "two documents": b"[]\n[]\n",
}
