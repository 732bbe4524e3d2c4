"""Output: text for people, JSON for machines, diagnostics on stderr; and the exit codes of all commands."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import IO, Any

from training_monitor.cli.columns import terminal_columns
from training_monitor.core.errors import (
    AlreadySupervised,
    CheckpointNotFound,
    CommandFailed,
    JobExists,
    JobNotFound,
    LeaseLost,
    SettingsError,
    TrainingMonitorError,
    kind_of,
    spell,
)
from training_monitor.core.masking import plain, redact
from training_monitor.core.regex import regex
from training_monitor.core.shown import shown, shown_lines
from training_monitor.core.units import plural

OK, BAD, USAGE, UNKNOWN, TAKEN_OVER = 0, 1, 2, 3, 4
EXITS = {"ok": OK, "warning": OK, "failed": BAD, "unknown": UNKNOWN}  # of verdicts
UNCUT = 100_000
LEAST_WIDTH = 8  # minimum width of a column that may be cut
_DEFINITE = (CheckpointNotFound, CommandFailed, JobExists, AlreadySupervised)
_COLOURS = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "dim": "2", "bold": "1"}
_COLOUR_OF = {  # by style of a screen's lines
    "loading": "yellow",
    "batch": "green",
    "validation": "blue",
    "finished": "dim",
    "failed": "red",
    "killed": "red",
    "canceled": "yellow",
    "warn": "yellow",
    "bad": "red",
    "good": "green",
    "dim": "dim",
    "bold": "bold",
}
_LABEL_OF = regex(r" *(?:! |\S+ {2,})?")
_OUT, _ERR = threading.Lock(), threading.Lock()  # two locks: a blocked reader of stdout must not block stderr


def wants_colour(stream: IO[str]) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str | None, stream: IO[str]) -> str:
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if colour and wants_colour(stream) else text


def put(text: str) -> None:
    """Write `text` to stdout with secrets masked, and flush; writes of several threads do not mix."""
    _write(sys.stdout, _OUT, redact(text))


def put_masked(text: str) -> None:
    """Write `text`, in which secrets are masked already, to stdout: masking its numbers, too, would falsify them."""
    _write(sys.stdout, _OUT, text)


def can_show_screen() -> bool:
    """Return whether stdin and stdout are a terminal that can move its cursor."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def is_in_foreground() -> bool:
    """Return whether this process may take over its terminal: one in the background would be stopped when it tries."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:  # not the terminal of a session: nobody stops it
        return True


def table_width(piped: int) -> int:
    """Return the width of the terminal, or `piped` where stdout is none."""
    return terminal_columns() if sys.stdout.isatty() else piped


def wrapped(text: str, indent: int = 0) -> str:
    """Break lines between words at the terminal's width, further ones indented; for a pipe, keep them as they are."""
    lines = text.split("\n")
    if width := table_width(piped=0):
        lines = [part for line in lines for part in _rows(line, max(20, width - indent))]
    first, *more = lines
    return "\n".join((first, *(f"{' ' * indent}{line}" if line else "" for line in more)))


def _rows(line: str, width: int) -> Iterator[str]:
    """Yield the parts of a line that take at most `width` cells; a longer word is a part of its own.

    A line breaks between its items, which two spaces separate, if none is longer than a row.
    """
    from training_monitor.ui.kit.text import cells

    items = line.split("  ")
    gap = "  " if 1 < len(items) and not any(each[:1] in ("", " ") or cells(each) > width for each in items) else " "
    row, *words = line.split(gap)
    begun = True
    for word in words:
        if row.strip() and cells(f"{row}{gap}{word}") > width:
            yield row.rstrip()
            row, begun = word, False
        else:
            row = f"{row}{gap}{word}" if row or begun else word
    yield row.rstrip()


def put_report(text: str) -> None:
    """Print a report; the further lines of a long one begin below the text behind its label."""
    for line in shown_lines(text).split("\n"):
        label = _LABEL_OF.match(line)
        indent = label.end() if label else 0
        put(f"{line[:indent]}{wrapped(line[indent:], indent)}\n")


def put_lines(lines: Iterable[Sequence[tuple[str, str]]]) -> None:
    """Print the lines of a screen, each of (text, style) pieces; in colour on a terminal."""
    for line in lines:
        text = "".join(paint(shown(text), _COLOUR_OF.get(style), sys.stdout) for text, style in line)
        put(f"{text.rstrip()}\n")


class OutputLost(Exception):
    """A standard stream cannot be written to: its disk is full, or it failed. Nothing more can be said there."""


def _write(stream: IO[str], lock: threading.Lock, text: str) -> None:
    with lock:
        try:
            stream.write(text)
            stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputLost(f"the output cannot be written: {error.strerror}") from error


def say(text: str) -> None:
    """Print a result to stdout."""
    put(f"{shown_lines(text)}\n")


def complain(text: str) -> None:
    """Print an error to stderr."""
    _write(sys.stderr, _ERR, f"{paint('error:', 'red', sys.stderr)} {redact(shown_lines(text))}\n")


def hint(text: str) -> None:
    """Print a remark to stderr."""
    _write(sys.stderr, _ERR, f"{redact(shown_lines(text))}\n")


def interrupted_status(error: KeyboardInterrupt) -> int:
    """Return the exit code of a command ended by a signal: 130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP."""
    number = error.args[0] if error.args else None
    return 128 + (number if isinstance(number, int) else signal.SIGINT)


def print_json(args: Namespace, keys: Any, verdict: str | None = None, *, schema: str | None = None) -> bool:
    """With --json, print what a command found as one JSON document on one line of stdout, and return True.

    It is strict JSON, with secrets masked.

    Args:
        args: of the command line; the last word of their subcommand names the schema, unless `schema` does.
        keys: the document's own keys, a mapping or a dataclass; NaN and infinities become null.
        verdict: ok | warning | failed | unknown, where there is one.
    """
    if not args.json:
        return False
    from training_monitor.core.envelope import wrap

    own, target = keys if isinstance(keys, Mapping) else asdict(keys), getattr(args, "target", None)
    if target is not None:
        from training_monitor.targets.target import parse_target

        target = str(parse_target(target, namespace=args.namespace))
    _print_document(wrap(schema or args.subcommand.rpartition(" ")[2], own, target=target, verdict=verdict))
    return True


def print_error(error: str, kind: str, hint: str | None) -> None:
    """Print an error as a JSON document on stdout."""
    from training_monitor.core.envelope import wrap

    _print_document(wrap("error", {"error": error, "kind": kind, "hint": hint}))


def _print_document(document: dict[str, Any]) -> None:
    _write(sys.stdout, _OUT, f"{json.dumps(plain(document), ensure_ascii=True, allow_nan=False)}\n")


def surface() -> str:
    """Return for whom hints are worded: the MCP server sets it for its commands."""
    return os.environ.get("TRAINING_MONITOR_SURFACE", "shell")


def refuse(error: TrainingMonitorError, args: Namespace, status: int) -> int:
    """Print an error to stderr, with --json also as JSON to stdout, and return the status."""
    if args.json:
        print_error(error.what, kind_of(error), spell(error.hint, surface()))
    complain(error.spell("shell"))
    return status


def exit_status(error: TrainingMonitorError) -> int:
    """Return the exit code of an error: 2 wrong use, 1 a definite no, 3 unknown, 4 taken over."""
    if isinstance(error, (SettingsError, JobNotFound)):
        return USAGE
    if isinstance(error, LeaseLost):
        return TAKEN_OVER
    return BAD if isinstance(error, _DEFINITE) else UNKNOWN


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, gives_way: Sequence[int]) -> None:
    """Print columns with two spaces between; those in `gives_way` are cut, in this order, to fit the terminal.

    Output to a file or another program is not cut, unless COLUMNS is set.
    """
    from training_monitor.ui.kit.text import cells

    lines = [tuple(one_line(cell) for cell in row) for row in (header, *rows)]
    widths = [max(map(cells, column)) for column in zip(*lines)]
    over = sum(widths) + 2 * (len(widths) - 1) - terminal_columns(UNCUT)
    for place in gives_way:
        less = max(0, min(over, widths[place] - max(LEAST_WIDTH, len(header[place]))))
        widths[place], over = widths[place] - less, over - less
    for line in lines:
        say("  ".join(padded(cut(cell, width), width) for cell, width in zip(line, widths)).rstrip())


def cut(text: str, width: int) -> str:
    """Cut a text to at most `width` cells: a single word, such as an address, in its middle, for its end differs."""
    from training_monitor.ui.kit.text import UNICODE, clip, clip_middle

    return clip(text, width, UNICODE) if " " in text else clip_middle(text, width, UNICODE)


def padded(text: str, width: int) -> str:
    """Pad a text to at least `width` cells of the terminal."""
    from training_monitor.ui.kit.text import cells

    return text + " " * (width - cells(text))


def one_line(text: str) -> str:
    """Return untrusted text on one line, its words one space apart."""
    return " ".join(shown(text).split())


def number(value: float | None, digits: int = 0, unit: str = "") -> str:
    """Format a number with its unit; ? is unknown."""
    return "?" if value is None else f"{value:.{digits}f}{unit}"


def format_unlisted(count: int) -> str:
    """Format how many entries of a checkpoint folder were not examined."""
    entries = plural(count, "older checkpoint or unreadable folder", "older checkpoints or unreadable folders")
    return f"{entries}, not inspected"
