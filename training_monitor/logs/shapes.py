"""What patterns find in a line depends on its shape: the line with every digit made 0. Pure.

Most lines of a training log have one of a few shapes, so what is asked by shape costs a look into a dictionary. It must
depend on no digit: `\\d` is good and `[1-9]` is not (`tests/unit/logs/test_shapes.py` reads the patterns).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, wraps
from typing import Protocol, TypeVar

MOST_SHAPES = 2048
LONGEST_SHAPE = 2000  # longer lines are asked themselves: they are rare, and keeping them costs memory
_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")
_TO_ZERO_LINES = bytes.maketrans(b"123456789\r\x08", b"000000000\n\n")

Found = TypeVar("Found")
FoundIn = TypeVar("FoundIn", covariant=True)


class Asked(Protocol[FoundIn]):
    """A function of a line that is asked by shape; who knows the shape gives it."""

    def __call__(self, line: str, shape: bytes | None = None) -> FoundIn: ...


def by_shape(find: Callable[[str], Found]) -> Asked[Found]:
    """Decorate a function of a line that answers the same for lines that differ in their digits only."""
    find_in_shape = lru_cache(MOST_SHAPES)(lambda shape: find(shape.decode(errors="surrogatepass")))

    @wraps(find)
    def find_in_line(line: str, shape: bytes | None = None) -> Found:
        if len(line) > LONGEST_SHAPE:
            return find(line)
        return find_in_shape(shape_of(line) if shape is None else shape)

    return find_in_line


def shape_of(line: str) -> bytes:
    """Return the shape of a line."""
    return line.encode(errors="surrogatepass").translate(_TO_ZERO)


def shapes_and_lines(text: str) -> Iterator[tuple[bytes, str]]:
    """Return each line of a text with its shape; a carriage return and a backspace end a line too."""
    return zip(*split_lines(text), strict=True)


def split_lines(text: str) -> tuple[list[bytes], list[str]]:
    """Return the shapes of the lines of a text, and the lines; `#015` is how syslog writes a carriage return."""
    text = text.replace("#015", "\n")
    shapes = text.encode(errors="surrogatepass").translate(_TO_ZERO_LINES).split(b"\n")
    return shapes, text.replace("\r", "\n").replace("\b", "\n").split("\n")
