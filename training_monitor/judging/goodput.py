"""Compute how much of the wall time went into kept steps, and what the rest went into. Pure.

By Google's definition of ML Goodput: productive and preserved step time over total time. Seen from outside, a span of
training counts in proportion to its steps that were not repeated later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from training_monitor.core.errors import SettingsError
from training_monitor.core.frozen import dataclass
from training_monitor.core.models import Goodput, RunEvent
from training_monitor.core.reports import AttemptReport

PHASES = ("startup", "training", "checkpoint", "evaluation", "waiting", "hang", "end")
_CAUSES = ("startup", "checkpoint", "evaluation", "lost_steps", "waiting", "hang", "unknown")


@dataclass(slots=True)
class _Span:
    """Training from one step to another."""

    begin: int
    end: int
    seconds: float

    def lose(self, step: int) -> float:
        """Discard the steps beyond `step` and return the seconds they took."""
        kept = max(self.begin, min(step, self.end))
        lost = self.seconds * (self.end - kept) / (self.end - self.begin) if self.end > self.begin else 0.0
        self.end, self.seconds = kept, self.seconds - lost
        return lost


def goodput(events: Iterable[RunEvent]) -> Goodput:
    """Split a run's wall time into kept steps and the causes of the rest.

    Args:
        events: the run's phases in time order, each from its `timestamp` to the next one's; the last event ends the
            run. `phase` is one of startup, training, checkpoint, evaluation, waiting, hang, end; `step` the optimizer
            step reached by then, None if unknown. A training that begins at a lower step than was reached loses the
            steps between.

    Returns:
        `goodput` 0..1, None when no step was seen; `seconds` by cause: productive, startup, checkpoint, evaluation,
        lost_steps, waiting, hang, and unknown (training without a visible step).

    Raises:
        SettingsError: a phase has another name.
    """
    spans, seconds = list[_Span](), dict.fromkeys(_CAUSES, 0.0)
    known, total = None, 0.0
    for event, following in _pairs(events):
        elapsed = max(0.0, following.timestamp - event.timestamp)
        total += elapsed
        if event.step is not None:
            seconds["lost_steps"] += sum(span.lose(event.step) for span in spans)
            known = event.step
        if event.phase != "training":
            seconds[event.phase if event.phase != "end" else "waiting"] += elapsed
        elif known is not None and following.step is not None and following.step > known:
            spans.append(_Span(known, following.step, elapsed))
        else:
            seconds["unknown"] += elapsed
    productive = sum(span.seconds for span in spans)
    share = productive / total if spans and total > 0 else None
    return Goodput(share, total, {"productive": productive, **seconds})


def _pairs(events: Iterable[RunEvent]) -> Iterator[tuple[RunEvent, RunEvent]]:
    before: RunEvent | None = None
    for event in events:
        if event.phase not in PHASES:
            raise SettingsError("phase", event.phase, ", ".join(PHASES))
        if before is not None:
            yield before, event
        before = event


def steps_lost(attempts: Sequence[AttemptReport]) -> int | None:
    """Return the number of steps that were repeated; None if unknown for any attempt."""
    for attempt in attempts[:-1]:
        if not attempt["final_step_known"] or (attempt["final_step"] is not None and attempt["steps_lost"] is None):
            return None
    return sum(attempt["steps_lost"] or 0 for attempt in attempts)


def run_events(attempts: Sequence[AttemptReport], started_at: float, ended_at: float) -> list[RunEvent]:
    """Return the phases of a supervised run: waiting, start-up to the first step, training, and a stall's hang."""
    events = [RunEvent(started_at, "waiting")]
    for attempt in attempts:
        start, first, last = attempt["started_at"], attempt["first_step_at"], attempt["last_step_at"]
        end = attempt["ended_at"] or ended_at
        events.append(RunEvent(start, "startup", attempt["start_step"] or 0))
        if first is not None and last is not None:
            events.append(RunEvent(first, "training"))
            if attempt["status"] == "STALLED":
                events.append(RunEvent(last, "hang", attempt["final_step"]))
        events.append(RunEvent(end, "waiting", attempt["final_step"]))
    return [*events, RunEvent(ended_at, "end")]
