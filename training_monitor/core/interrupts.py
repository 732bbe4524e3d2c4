"""What Ctrl-C and the stop button of a notebook end: the looking, never the training. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def only_looking(what: str) -> Iterator[None]:
    """Let a KeyboardInterrupt that says nothing say `what` it ended, and what goes on; it is passed on."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        interrupt.args = interrupt.args or (what,)
        raise
