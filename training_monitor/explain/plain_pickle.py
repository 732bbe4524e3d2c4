"""Read a pickle that holds nothing but plain values, written by somebody who may be hostile. Pure.

Python's own unpickler makes what a pickle names, takes memory for any number of notes, and hashes any key. This reader
knows only the opcodes of None, booleans, numbers, texts, bytes, lists, tuples and dictionaries whose keys are texts; at
any other one it stops. Each opcode adds at most one value, so that time and memory are in proportion to the bytes. A
value may hold another one any number of times, or itself: who reads it must look at known places only.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import error as StructError, unpack_from
from typing import Any

from training_monitor.core.errors import ParseError

_PROTO, _STOP = 0x80, ord(".")


def read_plain_pickle(data: bytes) -> Any:
    """Return the value of a pickle. Raises ParseError for anything that is not a pickle of plain values."""
    try:
        return _Reader(data).read()
    except (LookupError, StructError, UnicodeDecodeError) as error:
        raise ParseError("not a pickle of plain values", source="pickle") from error


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._notes: dict[int, Any] = {}

    def read(self) -> Any:
        data, stack = self._data, self._stack
        if data[0] != _PROTO:
            raise LookupError
        while (code := data[self._at]) != _STOP:
            self._at += 1
            _OPCODES[code](self)
        return stack[-1]

    # ---------------------------------------------------------------- what follows an opcode

    def number(self, kind: str, size: int) -> Any:
        [value] = unpack_from(kind, self._data, self._at)
        self._at += size
        return value

    def piece(self, kind: str, size: int) -> bytes:
        length = self.number(kind, size)
        end = self._at + length
        if end > len(self._data):
            raise LookupError
        found, self._at = self._data[self._at : end], end
        return found

    def text(self, kind: str, size: int) -> str:
        return self.piece(kind, size).decode("utf-8", "surrogatepass")

    def integer(self) -> int:
        return int.from_bytes(self.piece("<B", 1), "little", signed=True)

    # ---------------------------------------------------------------- what an opcode does

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def mark(self) -> None:
        self._marks.append(len(self._stack))

    def note(self, index: int) -> None:
        self._notes[index] = self._stack[-1]

    def remember(self) -> None:
        self.note(len(self._notes))

    def push_noted(self, index: int) -> None:
        self._stack.append(self._notes[index])

    def take_marked(self) -> list[Any]:
        return self.take(len(self._stack) - self._marks.pop())

    def take(self, count: int) -> list[Any]:
        start = len(self._stack) - count
        if start < 0:
            raise LookupError
        taken = self._stack[start:]
        del self._stack[start:]
        return taken

    def append(self, values: list[Any]) -> None:
        into = self._stack[-1]
        if type(into) is not list:
            raise LookupError
        into.extend(values)

    def set_items(self, values: list[Any]) -> None:
        into, names = self._stack[-1], values[::2]
        if type(into) is not dict or len(values) % 2 or not all(type(name) is str for name in names):
            raise LookupError  # a key of another type can take any time to hash, or to compare
        into.update(zip(names, values[1::2]))


_OPCODES: dict[int, Callable[[_Reader], None]] = {
    code[0]: act
    for code, act in {
        b"\x80": lambda reader: reader.number("<B", 1),
        b"\x95": lambda reader: reader.number("<Q", 8),
        b"N": lambda reader: reader.push(None),
        b"\x88": lambda reader: reader.push(True),
        b"\x89": lambda reader: reader.push(False),
        b"K": lambda reader: reader.push(reader.number("<B", 1)),
        b"M": lambda reader: reader.push(reader.number("<H", 2)),
        b"J": lambda reader: reader.push(reader.number("<i", 4)),
        b"G": lambda reader: reader.push(reader.number(">d", 8)),
        b"\x8a": lambda reader: reader.push(reader.integer()),
        b"X": lambda reader: reader.push(reader.text("<I", 4)),
        b"\x8c": lambda reader: reader.push(reader.text("<B", 1)),
        b"\x8d": lambda reader: reader.push(reader.text("<Q", 8)),
        b"C": lambda reader: reader.push(reader.piece("<B", 1)),
        b"B": lambda reader: reader.push(reader.piece("<I", 4)),
        b"]": lambda reader: reader.push([]),
        b"}": lambda reader: reader.push({}),
        b")": lambda reader: reader.push(()),
        b"\x85": lambda reader: reader.push(tuple(reader.take(1))),
        b"\x86": lambda reader: reader.push(tuple(reader.take(2))),
        b"\x87": lambda reader: reader.push(tuple(reader.take(3))),
        b"(": lambda reader: reader.mark(),
        b"t": lambda reader: reader.push(tuple(reader.take_marked())),
        b"l": lambda reader: reader.push(reader.take_marked()),
        b"a": lambda reader: reader.append(reader.take(1)),
        b"e": lambda reader: reader.append(reader.take_marked()),
        b"s": lambda reader: reader.set_items(reader.take(2)),
        b"u": lambda reader: reader.set_items(reader.take_marked()),
        b"q": lambda reader: reader.note(reader.number("<B", 1)),
        b"r": lambda reader: reader.note(reader.number("<I", 4)),
        b"\x94": lambda reader: reader.remember(),
        b"h": lambda reader: reader.push_noted(reader.number("<B", 1)),
        b"j": lambda reader: reader.push_noted(reader.number("<I", 4)),
    }.items()
}
