"""Read a pickle that holds nothing but plain values, written by somebody who may be hostile. Pure.

Python's own unpickler makes what a pickle names, takes memory for any number of notes, and hashes any key. This reader
knows only the opcodes of None, booleans, numbers, texts, bytes, lists, tuples and dictionaries whose keys are texts; at
any other one it stops. Each opcode adds at most one value, so that time and memory are in proportion to the bytes. A
value may hold another one any number of times, or itself: who reads it must look at known places only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from training_monitor.core.errors import ParseError

_PROTO = b"\x80"


def read_plain_pickle(data: bytes) -> Any:
    """Return the value of a pickle. Raises ParseError for anything that is not a pickle of plain values."""
    from pickletools import genops

    reader = _Reader()
    try:
        if not data.startswith(_PROTO):
            raise LookupError
        for opcode, argument, _ in genops(data):
            if opcode.name != "STOP":
                _ACTS[opcode.name](reader, argument)
        return reader.stack[-1]
    except (LookupError, ValueError) as error:
        raise ParseError("not a pickle of plain values", source="pickle") from error


class _Reader:
    """What each opcode does with its argument."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self._marks: list[int] = []
        self._notes: dict[int, Any] = {}

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def mark(self) -> None:
        self._marks.append(len(self.stack))

    def note(self, index: int) -> None:
        self._notes[index] = self.stack[-1]

    def remember(self) -> None:
        self.note(len(self._notes))

    def push_noted(self, index: int) -> None:
        self.stack.append(self._notes[index])

    def take_marked(self) -> list[Any]:
        return self.take(len(self.stack) - self._marks.pop())

    def take(self, count: int) -> list[Any]:
        start = len(self.stack) - count
        if start < 0:
            raise LookupError
        taken = self.stack[start:]
        del self.stack[start:]
        return taken

    def append(self, values: list[Any]) -> None:
        into = self.stack[-1]
        if type(into) is not list:
            raise LookupError
        into.extend(values)

    def set_items(self, values: list[Any]) -> None:
        into, names = self.stack[-1], values[::2]
        if type(into) is not dict or len(values) % 2 or not all(type(name) is str for name in names):
            raise LookupError  # a key of another type can take any time to hash, or to compare
        into.update(zip(names, values[1::2]))


_NUMBERS = ("BININT1", "BININT2", "BININT", "BINFLOAT", "LONG1")
_TEXTS = ("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "SHORT_BINBYTES", "BINBYTES")
_ACTS: dict[str, Callable[[_Reader, Any], None]] = {
    **dict.fromkeys(("PROTO", "FRAME"), lambda reader, argument: None),
    **dict.fromkeys((*_NUMBERS, *_TEXTS), _Reader.push),
    "NONE": lambda reader, _: reader.push(None),
    "NEWTRUE": lambda reader, _: reader.push(True),
    "NEWFALSE": lambda reader, _: reader.push(False),
    "EMPTY_LIST": lambda reader, _: reader.push([]),
    "EMPTY_DICT": lambda reader, _: reader.push({}),
    "EMPTY_TUPLE": lambda reader, _: reader.push(()),
    "TUPLE1": lambda reader, _: reader.push(tuple(reader.take(1))),
    "TUPLE2": lambda reader, _: reader.push(tuple(reader.take(2))),
    "TUPLE3": lambda reader, _: reader.push(tuple(reader.take(3))),
    "MARK": lambda reader, _: reader.mark(),
    "TUPLE": lambda reader, _: reader.push(tuple(reader.take_marked())),
    "LIST": lambda reader, _: reader.push(reader.take_marked()),
    "APPEND": lambda reader, _: reader.append(reader.take(1)),
    "APPENDS": lambda reader, _: reader.append(reader.take_marked()),
    "SETITEM": lambda reader, _: reader.set_items(reader.take(2)),
    "SETITEMS": lambda reader, _: reader.set_items(reader.take_marked()),
    "BINPUT": _Reader.note,
    "LONG_BINPUT": _Reader.note,
    "MEMOIZE": lambda reader, _: reader.remember(),
    "BINGET": _Reader.push_noted,
    "LONG_BINGET": _Reader.push_noted,
}
