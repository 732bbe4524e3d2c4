"""Nothing raises into a training: what goes wrong is a warning, once."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from training_monitor.progress.endings import text_of

_MOST_WARNINGS = 50

P = ParamSpec("P")
R = TypeVar("R")


class Warnings:
    """Tells each kind of trouble once, and raises nothing, also where warnings are errors."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def warn(self, kind: str, message: str, stacklevel: int = 2) -> None:
        if kind in self._told or len(self._told) >= _MOST_WARNINGS:
            return
        self._told.add(kind)
        with suppress(Exception):
            warnings.warn(f"training_monitor: {message}", RuntimeWarning, stacklevel=stacklevel + 1)


class Harmless(Protocol):
    """Whose methods are called by a training; `why_silent` is told when it is inactive and called all the same."""

    is_active: bool
    why_silent: str
    troubles: Warnings


S = TypeVar("S", bound=Harmless)


def harmless(default: R) -> Callable[[Callable[Concatenate[S, P], R]], Callable[Concatenate[S, P], R]]:
    """A method that does nothing where its object is inactive, and warns instead of raising."""

    def decorate(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
        @functools.wraps(method)
        def call(self: S, /, *args: P.args, **options: P.kwargs) -> R:
            if not self.is_active:
                if self.why_silent:
                    self.troubles.warn("silent", self.why_silent, 2)
                return default
            try:
                return method(self, *args, **options)
            except Exception as error:
                name = method.__name__
                self.troubles.warn(name, f"{name}() did nothing: {type(error).__name__}: {text_of(error)}", 2)
                return default

        return call

    return decorate
