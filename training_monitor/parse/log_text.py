"""A log as pieces a reader can use: no colours, no rank prefixes, redraws apart, bounded length.

A carriage return (or the backspaces of Keras 2) starts a new piece like a newline does: a progress bar redraws
itself on one line, and only its newest drawing counts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

HEAD_LENGTH = 6000
TAIL_LENGTH = 2000

_ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])|\[\d{1,2}(?:;\d{1,3}){0,4}m"
)
_BREAK = re.compile(r"[\r\n\x08]+")
_SPACES = str.maketrans({"\u00a0": " ", "\t": " ", "\ufeff": " ", "\x00": " "})
_PREFIX = re.compile(
    r"""\s*(?:
      \((?:[^()\n]{1,80}[ ,])?pid=\d{1,10}[^()\n]{0,60}\)[ ]?     # Ray actors and tasks, NeMo-Run
    | \d{1,4}:[ ]                                                 # srun --label
    | \[\d{1,4},\d{1,5}\]<std(?:out|err)>:                        # mpirun --tag-output
    | \[(?:rank|default)[ ]?\d{1,5}\]:?[ ]?                       # torchrun
    | \[pod/[^\]\s]{1,200}\][ ]                                   # kubectl logs --prefix
    | \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)[ ]  # kubectl logs --timestamps
    )""",
    re.VERBOSE,
)
RAY_PREFIX = re.compile(r"\s*\((?:[^()\n]{1,80}[ ,])?pid=\d{1,10}[^()\n]{0,60}\)[ ]?")
RAY_REPEATED = re.compile(r"\s{0,8}\[repeated \d{1,9}x across cluster\](?: \(Ray deduplicates logs[^\n]*)?")
_CLOCK = re.compile(r"(?:(\d{1,5}) days?,? )?(?:(\d{1,6}):)?(\d{1,6}):(\d\d(?:\.\d{1,9})?)")
_SPOKEN = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ?(d|h|m|s)[a-z]{0,6}", re.IGNORECASE)
_SPOKEN_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}


def strip_ansi(text: str) -> str:
    """Remove terminal control sequences, also colours whose escape byte got lost on the way (`[32m`)."""
    return _ESCAPE.sub("", text)


def strip_prefixes(line: str) -> str:
    """Remove what launchers write before a line: Ray, srun, mpirun, torchrun, kubectl; and Ray's repeat note."""
    start = 0
    for _ in range(4):
        found = _PREFIX.match(line, start)
        if not found:
            break
        start = found.end()
    return RAY_REPEATED.sub("", line[start:]) if "[repeated " in line else line[start:]


def log_pieces(text: str) -> Iterator[str]:
    """Yield the pieces of a log in text order, cleaned and at most HEAD_LENGTH + TAIL_LENGTH long.

    An over-long piece keeps its head (metric lines of several thousand characters name the step first) and its
    tail (many redraws on one line: the newest is last).
    """
    for raw in _BREAK.split(text):
        if raw and not raw.isspace():
            piece = strip_prefixes(strip_ansi(_cut(raw)).translate(_SPACES))
            if piece:
                yield piece


def _cut(raw: str) -> str:
    if len(raw) <= HEAD_LENGTH + TAIL_LENGTH:
        return raw
    head, tail = raw[:HEAD_LENGTH], raw[-TAIL_LENGTH:]
    return f"{head.rpartition(' ')[0]} ; {tail.partition(' ')[2]}"


def parse_duration(text: str) -> float | None:
    """Seconds of `47:06`, `20:27:23`, `1171:22:19`, `4:36:45.7`, `1 day, 2:03:04`, `41m 48s`, `90.5s`; else None."""
    text = text.strip()
    clock = _CLOCK.fullmatch(text)
    if clock:
        days, hours, minutes, seconds = (float(part or 0) for part in clock.groups())
        return days * 86400 + hours * 3600 + minutes * 60 + seconds
    parts = _SPOKEN.findall(text[:60])
    if not parts or _SPOKEN.sub("", text[:60]).strip(" ,"):
        return None
    return sum(float(number) * _SPOKEN_SECONDS[unit.lower()] for number, unit in parts)


def parse_number(text: str) -> float | None:
    """A finite number, nan or inf; thousands commas allowed; None for anything else."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """The last match of a pattern in a text."""
    found = list(pattern.finditer(text))
    return found[-1] if found else None


def as_whole(number: float | None) -> int | None:
    """The number as an int when it is a whole one, else None."""
    if number is None or not math.isfinite(number) or number != int(number):
        return None
    return int(number)
