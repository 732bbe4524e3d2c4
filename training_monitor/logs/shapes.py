"""What patterns find in a line depends on its shape: the line with every digit made 0. Pure.

Most lines of a training log have one of a few shapes, so what is asked by shape costs a look into a dictionary. It must
depend on no digit: `\\d` is good and `[1-9]` is not (`tests/unit/logs/test_shapes.py` reads the patterns).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

MOST_SHAPES = 2048
LONGEST_SHAPE = 2000  # longer lines are asked themselves: they are rare, and keeping them costs memory
_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")

Found = TypeVar("Found")


def by_shape(find: Callable[[str], Found]) -> Callable[[str], Found]:
    """Decorate a function of a line that answers the same for lines that differ in their digits only."""
    find_in_shape = lru_cache(MOST_SHAPES)(lambda shape: find(shape.decode(errors="surrogatepass")))

    @wraps(find)
    def find_in_line(line: str) -> Found:
        if len(line) > LONGEST_SHAPE:
            return find(line)
        return find_in_shape(line.encode(errors="surrogatepass").translate(_TO_ZERO))

    return find_in_line
