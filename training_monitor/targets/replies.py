"""Split the output of scripts into its parts. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

from training_monitor.core.errors import ParseError
from training_monitor.core.regex import regex
from training_monitor.core.units import seconds_since

_LINE = regex(r"[^\n]+")
_AGE = regex(r"-?\d{1,12}")


def each_line(text: str) -> Iterator[str]:
    """Iterate over the lines that are not empty: a list of short ones would take ten times the memory of the text."""
    return (found[0] for found in _LINE.finditer(text))


def parse_fields(text: str) -> tuple[dict[str, str], str]:
    """Split a script's reply into its fields and the log text after the line `log`."""
    fields: dict[str, str] = {}
    head, mark, rest = f"\n{text}".partition("\nlog\n")
    if not mark:
        head, rest = head.removesuffix("\nlog"), ""
    for line in head.split("\n"):
        key, equals, value = line.partition("=")
        if equals:
            fields[key] = value
    return fields, rest


def split_parts(text: str, word: str) -> list[tuple[str, str]]:
    """Return the parts of a reply as (key, text), in order; text before the first part is dropped."""
    pieces = f"\n{text}".split(f"\n{word} ")[1:]
    return [(key, body) for key, _, body in (piece.partition("\n") for piece in pieces)]


def read_whole(text: str | None) -> int | None:
    """Return a text as a whole number; None if it is anything else."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else None


def read_age(text: str | None) -> float | None:
    """Return whole seconds since a write; None if it is anything else, or if they are too far below 0."""
    return seconds_since(0.0, float(text)) if text and _AGE.fullmatch(text) else None


def read_number(text: str | None) -> float | None:
    """Return a text as a finite number; None if it is anything else."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if isfinite(number) else None


_GZIP = b"\x1f\x8b"


def unpack(text: str, encoding: str, most: int, *, source: str) -> bytes:
    """Return the bytes that were packed as `base64` or `hex`.

    Raises:
        ParseError: it is not as it was sent, or has more than `most` bytes.
    """
    import zlib
    from binascii import Error, a2b_base64

    try:
        data = a2b_base64(text) if encoding == "base64" else bytes.fromhex(text)
        if data.startswith(_GZIP):
            unpacking = zlib.decompressobj(31)
            data = unpacking.decompress(data, max(1, most) + 1)
            if not unpacking.eof:
                raise ParseError("the reply is truncated", source=source)
    except (Error, ValueError, zlib.error) as error:
        raise ParseError("the reply does not match what was sent", source=source) from error
    if len(data) > most:
        raise ParseError("too many bytes", source=source)
    return data
