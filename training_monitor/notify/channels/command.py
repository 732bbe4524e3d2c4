"""A program of the user's own."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Annotated, Any

from training_monitor.core.masking import MASK, keep_secret, secrets_of_argv
from training_monitor.core.settings_table import Example, Kind, Place
from training_monitor.core.values import Notice
from training_monitor.notify.channel import Channel, Doors, as_json, run


def _read_argv(value: Any, place: Place) -> Any:
    words = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, (list, tuple)) else ()
    is_fine = all(isinstance(word, str) and "\0" not in word for word in words)
    if not (is_fine and words and words[0]):
        return place.note(MASK, _ARGV.expected)
    keep_secret(*secrets_of_argv(words))
    return words


_ARGV = Kind("a program and its arguments", _read_argv)


@dataclass(frozen=True, repr=False)
class CommandChannel(Channel):
    """A program of your own.

    Attributes:
        argv: the program and its arguments. The program receives the notice as JSON on its standard input.
    """

    name = "command"
    argv: Annotated[tuple[str, ...], _ARGV, Example(["/usr/local/bin/page-me"])] = field(repr=False)

    @property
    def program(self) -> str:
        return self.argv[0]

    def send(self, notice: Notice, to: Any, doors: Doors) -> None:
        run(self.argv, json.dumps(as_json(notice)) + "\n", doors)
