"""What a pane of tmux shows, as a source: its terminal is known by the device that a training prints to.

A pane keeps its last lines and no positions. A position is a checksum of the last whole lines that were read: what
follows these is new, and where they are gone, so is what came in between, and all that is shown counts as new. The age
is that of the window's last output (`window_activity`). A first read begins at the last command at a prompt that may
have started a training: what an earlier one printed is not the present one's.
"""

from __future__ import annotations

import hashlib

from training_monitor.core.errors import ParseError
from training_monitor.core.models import LogCursor, NewLog, Question, Reply
from training_monitor.core.regex import regex
from training_monitor.logs.sources import Polled, read_on
from training_monitor.targets.replies import parse_fields, read_age
from training_monitor.targets.scripts import format_call

_LINES = 2000
_COMPARED = 8  # lines: one alone may come again
# Behind the prompt of a shell, perhaps with variables before it.
_COMMAND = regex(
    r"(?:(?:^|\S)[$#%]|❯|➜ +\S{1,200}(?: git:\S{1,100})?(?: ✗)?) +"
    r"(?:(?:\w{1,40}=\S{0,200}|nohup|time|env|sudo|exec) +){0,9}"
    r"(?:\S{0,200}/)?(?:\./\S{0,200}|[\w-]{1,200}\.(?:sh|py)|python[\d.]{0,9}|torchrun|accelerate|deepspeed|ray|uv|poetry|conda|srun"
    r"|mpirun|bash|sh|make)(?: |$)"
)


class Terminal(Polled):
    """The pane of the terminal with this device."""

    def read(
        self, cursor: LogCursor | None = None, limit_bytes: int = 0, *, oldest_first: bool = False
    ) -> Question[NewLog]:
        """Ask for what it shows behind `cursor`."""
        script = format_call("tmux_panes", "show_pane", tty=self.name, lines=_LINES)
        return Question("log", script, lambda reply: _parse(reply, cursor, self.name))


def _parse(reply: Reply, cursor: LogCursor | None, device: str) -> NewLog:
    fields, shown = parse_fields(reply.output)
    if fields.get("state") == "missing":
        return NewLog("", cursor, missing=True)
    if fields.get("state") != "read":
        raise ParseError("no result in the response", source=device, text=reply.output)
    *whole, last = [line.rstrip() for line in shown.rstrip().split("\n")]
    new, reset = whole[_last_start([*whole, last]) :], None
    if cursor:
        ends = [end for end in range(len(whole), -1, -1) if _check(whole[:end]) == cursor.check]
        new, reset = (whole[ends[0] :], None) if ends else (whole, "truncated")
    return read_on(
        cursor,
        _check(whole),
        "".join(f"{line}\n" for line in new),
        last,
        reset=reset,
        age=read_age(fields.get("age")),
        path=device,
    )


def _last_start(lines: list[str]) -> int:
    """Return which line has the last command that may have started a training; what is before it is of others."""
    return next((at for at in range(len(lines) - 1, -1, -1) if _COMMAND.search(lines[at])), 0)


def _check(lines: list[str]) -> str:
    return hashlib.md5("\n".join(lines[-_COMPARED:]).encode(errors="replace"), usedforsecurity=False).hexdigest()
