"""How many attacks and faults a test tries; the table at the end of `make hostile` adds them up.

A test that calls `tried` tries that many, any other test one.
"""

from __future__ import annotations


class Tries:
    """Those of the test that runs."""

    count = 0


def tried(number: int = 1) -> None:
    Tries.count += number
