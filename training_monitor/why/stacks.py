"""Ask for the Python stacks of the processes of a training, and parse them, whichever way they were had.

Formats: the document of runs/stack_dump.py (in-script and remote_exec), and `py-spy dump --json` (py-spy 0.4).
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from training_monitor.core.errors import ParseError, SettingsError, TrainingMonitorError
from training_monitor.core.models import Question
from training_monitor.core.regex import regex
from training_monitor.targets.asking import Site
from training_monitor.targets.replies import split_parts, unpack
from training_monitor.targets.scripts import Quoted, format_call, read_file, spell_path
from training_monitor.targets.transport import explain_failure
from training_monitor.why.ranks import Frame, Stack

MORE_SECONDS = 6.0  # that the last process may take to answer
MOST_PROCESSES = 192  # of which the stacks are asked
MOST_BYTES = 1 << 19  # of the stacks of one process
ANSWER_BYTES = 600_000  # of those of all processes, packed
_MOST_UNPACKED, _MOST_KEPT = 64 << 20, 100_000  # bytes of them, and frames, of which then only main threads are kept
_MOST_THREADS, _MOST_FRAMES, _MOST_TEXT = 64, 64, 300
_DENIED = regex(r"permission denied|EPERM|operation not permitted|os error 1\b", 2)
_PART = regex(r"stack (\d{1,10}) (in-script|py-spy|remote_exec|remote_debugging|late|none)(?: (base64|hex))?")
_MOST_PROGRAM, _REMOVAL_SECONDS = 64 << 20, 5.0
_FOLDER = regex(r"(?:/[^/\s]{1,100}){1,10}/training-monitor-[0-9a-f-]{36}")
_VARIABLE = regex(r"\d{1,9}")


@dataclass(frozen=True, slots=True)
class StackAnswer:
    """The stacks of one process, and the way they were had.

    Without any, `lack` is denied | none | late | failed, and `said` is what the tool printed.
    `variables` are those of its environment by now, `batches` how many it has begun.
    """

    way: str | None = None
    stacks: tuple[Stack, ...] = ()
    lack: str | None = None
    said: str = ""
    variables: Mapping[str, int] = field(default_factory=dict)
    batches: int | None = None


class SeenStacks(NamedTuple):
    """The stacks of the processes of a training by pid. `pythons` are the pids that run Python."""

    answers: Mapping[int, StackAnswer]
    pythons: tuple[int, ...] = ()


def stacks_question(roots: str, seconds: float, sent: str = "") -> Question[SeenStacks]:
    """Ask for the stacks of all processes of a training.

    Args:
        roots: a script that prints the pids of the training, see `observe.evidence.evidence_question`.
        seconds: after which no further process is asked; the question may take `MORE_SECONDS` more.
        sent: the folder on the target with a py-spy that was sent there for this look.
    """
    word, nonce = os.urandom(12).hex(), os.urandom(12).hex()
    script = format_call(
        "stacks",
        "show_stacks",
        word=word,
        nonce=nonce,
        spelling=spell_path(),
        roots=Quoted(f'"$({roots}\n)"'),
        most=MOST_PROCESSES,
        most_bytes=MOST_BYTES,
        answer_bytes=ANSWER_BYTES,
        seconds=max(1, int(seconds)),
        sent=sent,
        remote=read_file("remote_stacks.py"),
        dump=_read_dump(),
    )
    return Question("stacks", script, lambda reply: parse_stacks(reply.output, word), limit=seconds + MORE_SECONDS)


def _read_dump() -> str:
    """Return the source of the program that writes the stacks of the process in which it runs."""
    from training_monitor.runs import stack_dump

    with open(stack_dump.__file__, encoding="utf-8") as file:
        return file.read()


def parse_stacks(text: str, word: str) -> SeenStacks:
    """Parse the reply to the question for stacks; one process that cannot be read hides no other.

    Raises:
        ParseError: its beginning is missing.
    """
    parts = split_parts(text, word)
    if not parts or parts[0][0] != "pythons":
        raise ParseError("the beginning of the reply is missing", source="stacks", text=text[-2000:])
    pythons = tuple(int(pid) for pid in parts[0][1].split() if pid.isascii() and pid.isdigit() and len(pid) < 11)
    answers: dict[int, StackAnswer] = {}
    left = _Left(_MOST_UNPACKED, _MOST_KEPT)
    for key, body in parts[1:]:
        if (found := _PART.fullmatch(key)) and not answers.get(int(found[1]), StackAnswer()).stacks:
            answers[int(found[1])] = _answer(int(found[1]), found[2], found[3], body, left)
    return SeenStacks(answers, pythons)


@dataclass
class _Left:
    """How much may still be read of a reply: what is packed may be large. `frames` is that of all threads."""

    bytes: int
    frames: int


def _answer(pid: int, way: str, encoding: str | None, body: str, left: _Left) -> StackAnswer:
    if encoding is None:
        return StackAnswer(lack=way if way in ("late", "none") else "failed")
    if left.bytes <= 0:
        return StackAnswer(lack="late")
    try:
        text = unpack(body, encoding, MOST_BYTES, source="stacks").decode("utf-8", "replace")
    except ParseError as error:
        left.bytes -= MOST_BYTES
        return StackAnswer(lack="failed", said=error.what)
    left.bytes -= len(text)
    answer = parse_answer(pid, way, text)
    if left.frames <= 0:
        answer = replace(answer, stacks=tuple(each for each in answer.stacks if each.is_main))
    left.frames -= sum(len(each.frames) for each in answer.stacks)
    return answer


def parse_answer(pid: int, way: str, text: str) -> StackAnswer:
    """Parse what one process, or a tool about it, said."""
    try:
        document = json.loads(text)
        stacks = tuple(_read_spy(document, pid) if way == "py-spy" else _read_own(document))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return _no_stacks(text[:4000])
    if not stacks:
        return StackAnswer(lack="failed", said="no thread with a Python stack")
    own: Mapping[str, Any] = document if isinstance(document, dict) else {}
    return StackAnswer(way, stacks, variables=_numbers_of(own.get("variables")), batches=_whole(own.get("batches")))


def _no_stacks(said: str) -> StackAnswer:
    """Say why there are none, by what a tool printed in place of a document; a document that was cut says nothing."""
    if said.lstrip()[:1] in ("", "[", "{"):
        return StackAnswer(lack="failed", said="the response was truncated" if said.strip() else "no answer")
    lines = said.partition("Stack backtrace:")[0].split("\n")
    told = lines[-2:] if lines[0].startswith("Traceback") else lines
    lack = "denied" if _DENIED.search(said) else "failed"
    return StackAnswer(lack=lack, said=" ".join(" ".join(told).split())[:_MOST_TEXT])


def _read_own(document: Any) -> Iterator[Stack]:
    for thread in document["threads"][:_MOST_THREADS]:
        frames = [Frame(_text(each[0]), _text(each[1]), _whole(each[2])) for each in thread["frames"][:_MOST_FRAMES]]
        yield Stack(_text(thread["name"]), tuple(frames), thread.get("is_main") is True)


def _read_spy(document: Any, pid: int) -> Iterator[Stack]:
    """Read the list of threads, the main thread first."""
    main = _main_of(document, pid)
    for thread in sorted(document, key=lambda each: each is not main)[:_MOST_THREADS]:
        frames = [
            Frame(_text(each["name"]), _text(each["filename"]), _whole(each["line"]))
            for each in thread["frames"][:_MOST_FRAMES]
        ]
        yield Stack(_text(thread.get("thread_name") or ""), tuple(frames), thread is main)


def _main_of(threads: Sequence[Mapping[str, Any]], pid: int) -> Mapping[str, Any] | None:
    """Return the thread with the number of the process; in a container of its own that is another: by its name."""
    by_number = [each for each in threads if each.get("os_thread_id") == pid]
    by_name = [each for each in threads if each.get("thread_name") == "MainThread"]
    return next(iter([*by_number, *reversed(by_name)]), None)  # py-spy lists the oldest thread last


def _numbers_of(variables: Any) -> dict[str, int]:
    if not isinstance(variables, dict):
        return {}
    known = ((name, str(value)) for name, value in list(variables.items())[:20])
    return {str(name): int(value) for name, value in known if _VARIABLE.fullmatch(value)}


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value[:_MOST_TEXT]


def _whole(value: object) -> int | None:
    is_number = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53
    return value if is_number and isinstance(value, int) else None


def send_spy(site: Site, program: bytes, timeout: float) -> str:
    """Send a py-spy to a target, and return the folder there that has it; the question for the stacks removes it.

    Raises:
        CommandError: the target did not take it.
    """
    argv = ["sh", "-c", format_call("receive", "receive")]
    reach = site.target.connect(site.transport)
    result = reach.run(argv, timeout=timeout, input=program.decode("utf-8", "surrogateescape"))
    folder = result.stdout.strip()
    if result.exit_code != 0 or not _FOLDER.fullmatch(folder):
        raise explain_failure(result, str(site))
    return folder


def remove_spy(site: Site, folder: str) -> None:
    """Remove a py-spy that was sent, where the question that does so was not answered; best effort."""
    argv = ["sh", "-c", format_call("receive", "remove", folder)]
    with suppress(TrainingMonitorError):
        site.target.connect(site.transport).run(argv, timeout=_REMOVAL_SECONDS)


def read_spy(path: str) -> bytes:
    """Return a py-spy of this machine. Raises SettingsError: there is no such program here."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # of a FIFO, nobody has to open the other end
        with os.fdopen(file, "rb") as opened:
            is_file = stat.S_ISREG(os.fstat(file).st_mode)
            program = opened.read(_MOST_PROGRAM + 1) if is_file else b""
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "no path"
        raise SettingsError("py_spy", path, f"the path of a py-spy executable on this machine ({why})") from error
    if not program.startswith((b"\x7fELF", b"#!")) or len(program) > _MOST_PROGRAM:
        raise SettingsError("py_spy", path, f"a Linux executable of at most {_MOST_PROGRAM >> 20} MiB")
    return program
