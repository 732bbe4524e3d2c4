"""Long sweeps in short: `make test` tries an even sample of their cases, `make test-all` and plain pytest try all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

Case = TypeVar("Case")


def cases_of(cases: Iterable[Case], most: int = 6) -> list[Case]:
    """Return the cases of a sweep; under TRAINING_MONITOR_QUICK at most `most`, from the first to the last."""
    every = list(cases)
    if not os.environ.get("TRAINING_MONITOR_QUICK") or len(every) <= most:
        return every
    return [every[round(number * (len(every) - 1) / (most - 1))] for number in range(most)]
