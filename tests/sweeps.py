"""Sweeps: many cases, and random walks over screens.

`make test` tries an even sample of the cases, `make test-all` and plain pytest try all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from training_monitor.ui.kit.page import LEAST_HEIGHT, LEAST_WIDTH
from training_monitor.ui.kit.view import Frame

Case = TypeVar("Case")
Other = TypeVar("Other")
V = TypeVar("V")  # a view
S = TypeVar("S")  # a snapshot
C = TypeVar("C")  # a command


def cases_of(cases: Iterable[Case], most: int = 6) -> list[Case]:
    """Return the cases of a sweep; under TRAINING_MONITOR_QUICK at most `most`, from the first to the last."""
    every = list(cases)
    if not os.environ.get("TRAINING_MONITOR_QUICK") or len(every) <= most:
        return every
    return [every[round(number * (len(every) - 1) / (most - 1))] for number in range(most)]


def shared_cases(cases: Iterable[Case], more: Sequence[Other], most: int) -> list[tuple[Case, Other]]:
    """Return pairs: of each case with about `most` of the others, which take turns, so that each is with some case.

    With TRAINING_MONITOR_FUZZ, each case with each of the others.
    """
    step = 1 if os.environ.get("TRAINING_MONITOR_FUZZ") else max(1, len(more) // most)
    return [(case, other) for at, case in enumerate(cases) for other in more[at % step :: step]]


# ---------------------------------------------------------------- random walks

WALK_SEEDS = range(4)
READ_ONLY, WITH_NAN = {2}, {1}  # seeds
_WALK_STEPS = 150


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
    render: Callable[[S, V, int, int], Frame[V]]

    @property
    def is_large_enough(self) -> bool:
        return self.size[0] >= LEAST_WIDTH and self.size[1] >= LEAST_HEIGHT

    def draw(self, view: V) -> Frame[V]:
        return self.render(self.snapshot, view, *self.size)


Walk = tuple[list[Press[V, S, C]], list[tuple[Shot[V, S], Frame[V]]]]


def random_walk(
    shot: Shot[V, S],
    keys_to_press: Callable[[V], Iterable[str]],
    update: Callable[[V, str, S], tuple[V, Sequence[C]]],
    later: Callable[[Shot[V, S], V, Sequence[Press[V, S, C]]], Shot[V, S]],
) -> Walk[V, S, C]:
    """Press some hundreds of keys; draw after each of them, and after each text that was pasted.

    `later` returns what is drawn next, from the last shot, the view after these presses, and the presses.
    """
    presses: list[Press[Any, Any, Any]] = []
    shots = [(shot, shot.draw(shot.view))]
    for _ in range(_WALK_STEPS):
        view, begin = shots[-1][1].view, len(presses)
        for key in keys_to_press(view):
            after, commands = update(view, key, shot.snapshot)
            presses.append(Press(view, key, shot.snapshot, after, tuple(commands)))
            view = after
        shot = later(shot, view, presses[begin:])
        shots.append((shot, shot.draw(shot.view)))
    return presses, shots
