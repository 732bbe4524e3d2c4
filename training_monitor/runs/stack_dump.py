"""Describe the Python stacks of all threads of this process, as JSON.

The source of this module is also run in other processes, in a namespace of its own: it imports nothing but these four
modules, and works in every Python from 3.10. It may run while the training is stuck anywhere, so it takes no locks and
calls nothing of the training's: no `repr`, no properties, no values of local variables, no source lines.
"""

from __future__ import annotations

import json
import os
import sys
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType
    from typing import Any

MOST_THREADS, INNERMOST, OUTERMOST = 200, 45, 15
MOST_WALKED = 20_000  # frames of one stack: each one that is looked at takes memory until its call returns
MOST_TEXT, MOST_VARIABLE = 300, 100  # characters
MOST_BYTES = 500_000  # of all threads together; one thread has at most 450,000
VARIABLES = (
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    *("GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_ADDR"),
)


def stacks_as_json(extra: dict[str, object] | None = None, *, with_caller: bool = False) -> str:
    """Return an ASCII document with the stack of each thread, that of the main thread first (docs/progress_files.md).

    Args:
        extra: more keys of the document, with values for `json.dumps`.
        with_caller: Include the calling thread, from the frame that called the code with this source.
    """
    main = _value_of(threading.main_thread(), "_ident", int)
    frames: dict[int, FrameType | None] = {**sys._current_frames()}
    frames.pop(threading.get_ident(), None)
    if with_caller:
        frames[threading.get_ident()] = _frame_of_caller()
    idents = sorted(frames, key=lambda ident: ident != main)
    stacks = {ident: _calls_of(frames[ident]) for ident in idents[:MOST_THREADS]}
    frames.clear()  # a frame that has ended would keep its local variables
    threads = _described(stacks, main)
    document = {
        "pid": os.getpid(),
        "python": ".".join(str(number) for number in sys.version_info[:3]),
        "variables": {name: _text(os.environ[name])[:MOST_VARIABLE] for name in VARIABLES if name in os.environ},
        "threads": threads,
        "left_out": len(idents) - len(threads),
    }
    return json.dumps({**document, **(extra or {})})


def write_stacks(path: str, extra: dict[str, object] | None = None, *, with_caller: bool = False) -> None:
    """Write the document of `stacks_as_json` to a file for this user alone, which is complete as soon as it exists.

    Raises OSError.
    """
    data = stacks_as_json(extra, with_caller=with_caller).encode("ascii")
    temporary = f"{path}.{os.urandom(4).hex()}.tmp"
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            while data:
                data = data[os.write(file, data) :]
        finally:
            os.close(file)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _frame_of_caller() -> FrameType | None:
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals is globals():
        frame = frame.f_back
    return frame


def _calls_of(frame: FrameType | None) -> list[tuple[CodeType, int | None] | None]:
    """Return the calls of a stack, innermost first, None in place of those that are left out."""
    calls: list[tuple[CodeType, int | None] | None] = []
    while frame is not None and len(calls) < MOST_WALKED:
        calls.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    if frame is not None:
        return [*calls[:INNERMOST], None]
    if len(calls) > INNERMOST + OUTERMOST:
        return [*calls[:INNERMOST], None, *calls[-OUTERMOST:]]
    return calls


def _described(stacks: dict[int, list[tuple[CodeType, int | None] | None]], main: int | None) -> list[dict[str, Any]]:
    """Return as many threads as there is room for."""
    known, threads, size = dict(getattr(threading, "_active", {})), [], 0
    for ident, calls in stacks.items():
        thread = known.get(ident)
        described = {
            "name": (_value_of(thread, "_name", str) or "")[:MOST_TEXT],
            "ident": ident,
            "native_id": _value_of(thread, "_native_id", int),
            "is_main": ident == main,
            "is_daemon": _value_of(thread, "_daemonic", bool),
            "frames": [_described_call(call) for call in calls],
        }
        size += len(json.dumps(described))
        if size > MOST_BYTES:
            break
        threads.append(described)
    return threads


def _described_call(call: tuple[CodeType, int | None] | None) -> list[Any]:
    if call is None:
        return ["...", "", None]
    code, line = call
    name = getattr(code, "co_qualname", code.co_name)  # from Python 3.11
    return [_text(name), _text(code.co_filename), line]


def _text(value: object) -> str:
    return value[:MOST_TEXT] if type(value) is str else "?"  # a subclass may have methods of its own


def _value_of(thread: object, name: str, kind: type) -> Any:
    """Return an attribute of a thread, past all properties and methods that its class may define; None if unknown."""
    try:
        value = threading.Thread.__dict__["__dict__"].__get__(thread).get(name)
    except TypeError:  # it is no such thread, as one that `threading` does not know
        return None
    return value if type(value) is kind else None
