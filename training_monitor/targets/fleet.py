"""Many targets at once, with bounded threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from training_monitor.errors import TrainingMonitorError
from training_monitor.models import Answer, Question
from training_monitor.targets.asking import ask
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport

R = TypeVar("R")
MAX_THREADS = 16


def side_by_side(calls: Sequence[Callable[[], R]]) -> list[R | TrainingMonitorError]:
    """Run the calls in threads; each gives its result or the error it raised, in order."""
    from concurrent.futures import ThreadPoolExecutor

    def guarded(call: Callable[[], R]) -> R | TrainingMonitorError:
        try:
            return call()
        except TrainingMonitorError as error:
            return error

    with ThreadPoolExecutor(max(1, min(MAX_THREADS, len(calls)))) as pool:
        return list(pool.map(guarded, calls))


def ask_many(
    targets: Sequence[str | Target],
    *questions: Question[Any],
    timeout: float | None = None,
    namespace: str = "default",
    transport: Transport | None = None,
) -> list[list[Answer[Any]]]:
    """Ask every target the same questions; never raises for a target: its answers are then all unknown."""

    def one(target: str | Target) -> Callable[[], list[Answer[Any]]]:
        return lambda: ask(target, *questions, timeout=timeout, namespace=namespace, transport=transport)

    results = side_by_side([one(target) for target in targets])
    return [
        [Answer(question.name, None, result) for question in questions]
        if isinstance(result, TrainingMonitorError)
        else result
        for result in results
    ]
