"""How much of the time went into steps that were kept.

Google's ML Goodput definition: productive and preserved step time over total time. From outside, an attempt's
time counts in the proportion of its steps that were not done again.
"""

from __future__ import annotations

from collections.abc import Sequence

from training_monitor.reports import AttemptReport


def steps_lost(attempts: Sequence[AttemptReport]) -> int:
    """Steps that were made and then made again."""
    return sum(attempt["steps_lost"] or 0 for attempt in attempts)


def goodput(attempts: Sequence[AttemptReport], started_at: float, ended_at: float) -> float | None:
    """Share (0..1) of the wall time that made steps which were kept; None when no step was seen."""
    kept_time, seen = 0.0, False
    for attempt in attempts:
        start, end = attempt["start_step"] or 0, attempt["final_step"]
        if end is None or attempt["ended_at"] is None or end <= start:
            continue
        seen = True
        kept = max(0, end - start - (attempt["steps_lost"] or 0))
        kept_time += (attempt["ended_at"] - attempt["started_at"]) * kept / (end - start)
    total = ended_at - started_at
    return min(1.0, kept_time / total) if seen and total > 0 else None
