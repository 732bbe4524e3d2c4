"""Values of a script that may be edited while it runs: typed, applied by the training thread, answered. Pure.

`take` reads the edits of the control file, in the background; `apply` puts them into the script's own dict, in the
training thread, between two of its steps.
"""

from __future__ import annotations

import enum
import math
import numbers
import reprlib
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from contextlib import suppress
from datetime import date, timedelta
from pathlib import PurePath
from typing import Any

from training_monitor.core.errors import redact, text_of
from training_monitor.core.frozen import dataclass
from training_monitor.runs.progress_file import MAX_VALUE, Edit

MOST_VARIABLES, MOST_NAME, MOST_ERROR = 200, 100, 200
RESTARTS_DATALOADER = ("batch_size", "num_workers")
_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
_SMALL = (numbers.Number, PurePath, enum.Enum, date, timedelta, range, type, type(None))
_EARLIER_RUN = "was asked of an earlier run"

Change = tuple[str, object, object]  # name, old value, new value
Callback = Callable[[str, Any, Any], object]


@dataclass(frozen=True, slots=True)
class Answered:
    """The result of the last edit of a variable; `error` is None if it was applied."""

    edit: str
    error: str | None = None
    applied_at: float | None = None


def type_name(value: object) -> str | None:
    """Return float, int, bool or str; None for a value that cannot be edited."""
    kinds = (("bool", bool), ("int", int), ("float", float), ("str", str))
    with suppress(Exception):  # the object may hide its class
        return next((name for name, kind in kinds if isinstance(value, kind)), None)
    return None


def read_only_text(value: object) -> str:
    """Return a text for a value that cannot be edited, without calling the repr of large objects."""
    with suppress(Exception):  # any class may raise
        return redact(_Brief().repr(value))[:MAX_VALUE]
    return f"<{type(value).__name__}>"


class _Brief(reprlib.Repr):
    """A repr that shows the beginnings of containers, and the text of other objects only if they are small."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxstring, self.maxother = 4, 200, 200
        self.maxtuple = self.maxlist = self.maxdict = self.maxset = self.maxfrozenset = self.maxdeque = 50

    def repr_instance(self, x: object, level: int) -> str:
        """Return a short text: a tensor's own would wait for its GPU, and that of a model is long."""
        if isinstance(x, _SMALL):
            return text_of(x)[: self.maxother]
        return f"<{type(x).__name__}>"


def convert(text: str, kind: str) -> bool | int | float | str:
    """Convert a text to a value of this type.

    Raises:
        ValueError: It is not one; the message says what is expected.
    """
    if len(text) > MAX_VALUE:
        raise ValueError(f"longer than {MAX_VALUE} characters")
    word = text.strip()
    if kind == "str":
        return text
    if kind == "bool":
        if word.lower() in _TRUE + _FALSE:
            return word.lower() in _TRUE
        raise ValueError("expected true or false")
    try:
        return _whole(word) if kind == "int" else _finite(word)
    except (ValueError, OverflowError) as error:
        raise ValueError("expected a whole number" if kind == "int" else "expected a finite number") from error


class TrackedVariables:
    """The variables of a run. `values` is what the script reads; a dict that it passed in is kept up to date too."""

    def __init__(self) -> None:
        self.values: dict[str, object] = {}
        self.answers: dict[str, Answered] = {}
        self._owners: dict[str, MutableMapping[str, object]] = {}
        self._kinds: dict[str, str | None] = {}
        self._pending: dict[str, tuple[Edit, object]] = {}
        self._untold: dict[str, tuple[object, object]] = {}
        self._told: dict[str, tuple[object, object]] = {}
        self._needs_dataloader = False
        self._callbacks: list[tuple[str | None, Callback]] = []

    def track(self, variables: Mapping[str, object]) -> None:
        """Let these be edited.

        Raises:
            ValueError: There are too many, or a name is not a text of at most 100 characters.
        """
        for name in variables:
            if not isinstance(name, str) or not 0 < len(name) <= MOST_NAME:
                raise ValueError(f"a variable's name is a text of at most {MOST_NAME} characters, not {name!r:.200}")
        if len({*self.values, *variables}) > MOST_VARIABLES:
            raise ValueError(f"at most {MOST_VARIABLES} variables can be tracked")
        for name, value in variables.items():
            self.values[name], self._kinds[name] = value, type_name(value)
            if isinstance(variables, MutableMapping):
                self._owners[name] = variables

    def current(self, name: str) -> object:
        """Return the value that the script uses now: it may have set it itself."""
        owner = self._owners.get(name)
        with suppress(Exception):  # a mapping of the script's own may raise
            if owner is not None and name in owner:
                return owner[name]
        return self.values.get(name)

    def kind(self, name: str) -> str | None:
        """Return the type to which edits are converted; None if the value cannot be edited."""
        return self._kinds.get(name) if type_name(self.current(name)) else None

    def take(self, edits: Mapping[str, Edit], *, of_earlier_run: bool = False) -> bool:
        """Accept edits; True if something is to be applied. Edits that cannot be applied are answered at once."""
        for name, edit in edits.items():
            waiting, answer = self._pending.get(name), self.answers.get(name)
            seen = waiting[0].edit if waiting else answer.edit if answer else None
            if name not in self.values or seen == edit.edit:
                continue
            self._pending.pop(name, None)
            kind = self.kind(name)
            if of_earlier_run or kind is None:
                why = _EARLIER_RUN if kind else f"a value of type {type(self.current(name)).__name__} cannot be edited"
                self.answers[name] = Answered(edit.edit, why)
                continue
            try:
                self._pending[name] = edit, convert(edit.value, kind)
            except ValueError as error:
                self.answers[name] = Answered(edit.edit, f"{edit.value[:50]!r}: {error}")
        return bool(self._pending)

    def apply(self, now: float) -> list[Change]:
        """Put the accepted edits into the script's values; return the changes. `now` is epoch seconds."""
        changes: list[Change] = []
        while self._pending:
            name = next(iter(self._pending))
            edit, value = self._pending.pop(name)
            old = self.current(name)
            owner = self._owners.get(name)
            try:
                if owner is not None:
                    owner[name] = value
            except Exception as error:  # a mapping of the script's own may raise
                self.answers[name] = Answered(edit.edit, f"{type(error).__name__}: {text_of(error)}"[:MOST_ERROR])
                continue
            self.values[name] = value
            self.answers[name] = Answered(edit.edit, None, now)
            changes.append((name, old, value))
            self._untold[name] = (self._untold[name][0] if name in self._untold else old), value
            self._needs_dataloader = self._needs_dataloader or name in RESTARTS_DATALOADER
        return changes

    def call_back(self, callback: Callback, name: str | None = None) -> None:
        """Register a callback with (name, old value, new value) for this variable, or for all."""
        self._callbacks.append((name, callback))

    def tell_callbacks(self, changes: Iterable[Change]) -> list[str]:
        """Call the callbacks; return a message for each that failed."""
        failures = []
        for name, old, new in changes:
            for wanted, callback in list(self._callbacks):
                try:
                    if wanted in (None, name):
                        callback(name, old, new)
                except Exception as error:  # the script's own function
                    failures.append(f"a callback for {name!r} failed: {type(error).__name__}: {text_of(error)}")
        return failures

    def tell(self, name: str | None = None) -> list[Change]:
        """Return the changes since the last call, of one variable or of all."""
        if name is None:
            told, self._untold = self._untold, {}
        else:
            told = {name: self._untold.pop(name)} if name in self._untold else {}
        if told:
            self._told = told
        return [(key, old, new) for key, (old, new) in told.items()]

    def summary(self) -> str:
        """Describe the last changes, one line each."""
        changes = {**self._told, **self._untold}
        return (
            "\n".join(f"{name}: {old!r:.200} -> {new!r:.200}" for name, (old, new) in changes.items()) or "no changes"
        )

    def needs_dataloader(self) -> bool:
        """Return whether the batch size or the number of workers changed since the last call."""
        needed, self._needs_dataloader = self._needs_dataloader, False
        return needed


def _whole(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        number = _finite(word)
        if number != int(number):
            raise
        return int(number)


def _finite(word: str) -> float:
    number = float(word)
    if not math.isfinite(number):
        raise ValueError(word)
    return number
