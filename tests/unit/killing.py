"""Processes that are killed at a chosen moment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.fakes import Answer, FakeTransport
from training_monitor.core.results import CommandResult
from training_monitor.core.store import Store
from training_monitor.core.values import Notice


class Killed(BaseException):
    """The end of the process: no handler of Exception sees it."""


class Death:
    """Comes with the `at`-th act: before it, or right after it, when nobody has heard of it yet; never with the 0th."""

    def __init__(self, at: int, *, after: bool) -> None:
        self.acts, self.at, self.after = 0, at, after

    @contextmanager
    def act(self) -> Iterator[None]:
        self.acts += 1
        if self.acts == self.at and not self.after:
            raise Killed
        yield
        if self.acts == self.at:
            raise Killed


class KillingStore(Store):
    """Dies in its `at`-th write of a state."""

    def __init__(self, folder: str, at: int, *, after: bool) -> None:
        super().__init__(folder)
        self.death = Death(at, after=after)

    def save_run(self, key: str, state: object, *, finished: bool) -> None:
        with self.death.act():
            super().save_run(key, state, finished=finished)


class KillingEverything(KillingStore):
    """Dies in its `at`-th write, be it a state or a notice."""

    def add_notice(self, user: str, notice: Notice, *, now: float) -> bool:
        with self.death.act():
            return super().add_notice(user, notice, now=now)


class KillingTransport(FakeTransport):
    """Dies with its `at`-th program: before it ran, or when its answer was there and nobody read it."""

    def __init__(self, answer: Answer, at: int, *, after: bool) -> None:
        super().__init__(answer)
        self.death = Death(at, after=after)

    def run(self, *args: Any, **options: Any) -> CommandResult:
        with self.death.act():
            return super().run(*args, **options)
