"""What a random walk over screens is made of: keys that are pressed, and frames that are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from training_monitor.ui.kit.page import LEAST_HEIGHT, LEAST_WIDTH

V = TypeVar("V")  # a view
S = TypeVar("S")  # a snapshot
C = TypeVar("C")  # a command


@dataclass(frozen=True)
class Press(Generic[V, S, C]):
    """A key pressed on a snapshot: the view before it, and what `update` made of it."""

    before: V
    key: str
    snapshot: S
    after: V
    commands: tuple[C, ...]


@dataclass(frozen=True)
class Shot(Generic[V, S]):
    """What is to be drawn of a view, after all else and the terminal may have changed."""

    view: V
    snapshot: S
    size: tuple[int, int]

    @property
    def is_large_enough(self) -> bool:
        return self.size[0] >= LEAST_WIDTH and self.size[1] >= LEAST_HEIGHT
