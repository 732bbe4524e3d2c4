"""The sources of a training's output: what is new in one, once or over a held connection. Pure.

A kind is one class, and one line of SOURCES: people name it by the word before a colon. Anything else is a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from training_monitor.core.masking import redact_next
from training_monitor.core.models import LogCursor, NewLog, Question
from training_monitor.logs.job_progress import EpochCount

if TYPE_CHECKING:
    from training_monitor.targets.asking import Site

# word: module:class of this package, made of what follows the colon and a label
SOURCES: Mapping[str, str] = {
    "container": "logs.container_log:ContainerLog",
    "journal": "logs.journal:Journal",
    "metrics": "logs.metrics_csv:MetricsTable",
    "output": "logs.output_files:OutputFiles",
    "progress": "runs.progress_source:ProgressSource",
    "terminal": "logs.terminal:Terminal",
}
CONTAINER_LOG, JOURNAL, METRICS, OUTPUT = "container:", "journal:", "metrics:", "output:"
PROGRESS, TERMINAL = "progress:", "terminal:"
_FILE = "logs.following:FileSource"


class Following(Protocol):
    """A held connection to a source."""

    def follow(self, cursor: LogCursor) -> Iterator[NewLog]:
        """Yield new lines, each with the cursor after them, until the connection ends. Raises ToolNotFound."""

    @property
    def is_silent(self) -> bool:
        """Whether nothing has come for long: the source may be silent, or the connection lost."""

    def heard(self) -> None:
        """Count the silence from now on."""

    def drop(self) -> None:
        """End the connection, from any thread; `follow` returns."""

    def close(self) -> None:
        """End it for good, from any thread."""


class Source(Protocol):
    """Where the output of a training is read.

    Attributes:
        file: the shell expression of its file; None if it is none: nobody knows who writes it, and on which disk.
    """

    @property
    def file(self) -> str | None: ...

    def read(self, cursor: LogCursor | None, limit_bytes: int, *, oldest_first: bool = False) -> Question[NewLog]:
        """Ask for what follows a cursor, without one for the end; of more than the limit, for the newest part.

        `oldest_first` asks for the part next to the cursor, and `left_bytes` counts the rest.
        """

    def count(self) -> Question[EpochCount] | None:
        """Ask how it counts steps and epochs, from samples of all its parts; None where only its end can be read."""

    def follow_on(self, site: Site) -> Following | None:
        """Return a held connection to it; None where it can only be read again and again."""


@dataclass(frozen=True, slots=True)
class Polled:
    """What sources that are no files and are read again and again have in common; each adds its `read`.

    `name` is what follows the word in front of the colon; `label` is its name in errors.
    """

    name: str
    label: str
    file: None = None

    @classmethod
    def named(cls, name: str, label: str) -> Polled:
        return cls(name, label)

    def count(self) -> None:
        return None

    def follow_on(self, site: Site) -> None:
        return None


def read_on(
    cursor: LogCursor | None,
    at: str,
    text: str,
    partial: str = "",
    *,
    reset: str | None = None,
    most: int | None = None,
    **more: Any,
) -> NewLog:
    """Return what a source that is no file has behind a cursor, with its secrets replaced.

    Args:
        at: the position behind it. text: whole lines; of a first read, the last `most` bytes are kept.
        partial: the unfinished last line. reset, more: see `NewLog`.
    """
    skipped = 0
    if cursor is None and most is not None and len(text) > most:
        skipped = text.find("\n", len(text) - most) + 1
    offset = (cursor.offset if cursor else 0) + len(text.encode(errors="replace"))
    text, in_key = redact_next(text[skipped:], cursor.in_key if cursor and not reset else False)
    return NewLog(text, LogCursor(offset, 0, at, in_key), reset, redact_next(partial, in_key)[0], skipped, **more)


def is_source(text: str) -> bool:
    """Return whether a text names a source that is no file."""
    word, mark, _ = text.partition(":")
    return bool(mark) and word in SOURCES


def place_of(text: str) -> str:
    """Return what a source of this name reads: a file, a device, a unit; "" for what a cluster keeps."""
    return text.partition(":")[2] if is_source(text) else text


def source_named(text: str, label: str) -> Source:
    """Return the source that a text names: one of SOURCES, or the file of this path. Raises SettingsError."""
    word, rest = text.split(":", 1) if is_source(text) else ("", text)
    module, _, name = SOURCES.get(word, _FILE).partition(":")
    made = getattr(import_module(f"training_monitor.{module}"), name).named(rest, label)
    return cast(Source, made)
