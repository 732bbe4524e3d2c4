"""Compute how much of the wall time went into kept steps, and what the rest went into. Pure.

By Google's definition of ML Goodput: productive and preserved step time over total time. Seen from outside, a span of
training counts in proportion to its steps that were not repeated later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from training_monitor.core.errors import SettingsError
from training_monitor.core.models import Goodput, RunEvent
from training_monitor.core.reports import AttemptReport
from training_monitor.core.values import Observation

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
    """Compute the share of a run's wall time spent on steps that were not lost, and the causes of the other time.

    Args:
        events: the run's phases in time order. Each phase lasts from its `timestamp` to the `timestamp` of the next
            event. The last event ends the run. `phase` is one of startup, training, checkpoint, evaluation, waiting,
            hang, end. `step` is the optimizer step reached at that time; None if unknown. If a training phase begins at
            a step below the highest step reached before, the steps in between count as lost.

    Returns:
        `goodput` is 0..1, or None if no step was observed. `seconds` is the time by cause: productive, startup,
        checkpoint, evaluation, lost_steps, waiting, hang, and unknown (training without a visible step).

    Raises:
        SettingsError: the name of a phase is invalid.
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


def seen_phases(looks: Sequence[Observation], began: float | None) -> dict[str, float]:
    """Return the seconds of one job by the phases that were seen; a phase that could not be seen is left out.

    The start-up is seen by looks before the first step since it `began`; None: it began before it was looked at. What
    else it does is seen once two looks saw different steps. A phase lasts until the next look.
    """
    found = dict[str, float]()
    steps = [each.timestamp for each in looks if each.step]
    if began is not None and looks and not looks[0].step:
        found["startup"] = (steps[0] if steps else looks[-1].timestamp) - began
    if len({each.step for each in looks if each.step}) > 1:
        found |= {"checkpoint": 0.0, "evaluation": 0.0}
        for look, following in pairwise(looks):
            if look.step and look.phase in found:
                found[look.phase] += following.timestamp - look.timestamp
    return found


def steps_lost(attempts: Sequence[AttemptReport]) -> int | None:
    """Return the number of steps that were repeated; None if unknown for any attempt, or if one was adopted."""
    if any(each["start_step"] is None for each in attempts) or _unknown_losses(attempts):
        return None
    return sum(attempt["steps_lost"] or 0 for attempt in attempts)


def _unknown_losses(attempts: Sequence[AttemptReport]) -> bool:
    return any(
        not each["final_step_known"] or (each["final_step"] is not None and each["steps_lost"] is None)
        for each in attempts[:-1]
    )


def run_goodput(
    attempts: Sequence[AttemptReport], started_at: float, ended_at: float
) -> tuple[float | None, dict[str, float | None]]:
    """Return the goodput of a supervised run and the seconds of what was not productive; None where it was not seen."""
    spent = goodput(run_events(attempts, started_at, ended_at))
    seconds: dict[str, float | None] = {name: spent.seconds[name] for name in _CAUSES}
    for attempt in attempts:
        for name in ("startup", "checkpoint", "evaluation"):
            if name not in (attempt["phases"] or {}) and not (_only_started(attempt) or attempt["status"] == "PLANNED"):
                seconds[name] = None
    if _unknown_losses(attempts):
        seconds["lost_steps"] = None
    is_seen = all(seconds[name] is not None for name in ("evaluation", "lost_steps"))
    return spent.goodput if is_seen else None, seconds


def _only_started(attempt: AttemptReport) -> bool:
    """Return whether it ended before a first step, or has not made one yet."""
    return attempt["final_step"] is None and (attempt["stepped"] is False or attempt["ended_at"] is None)


def run_events(attempts: Sequence[AttemptReport], started_at: float, ended_at: float) -> list[RunEvent]:
    """Return the phases of a supervised run: waiting, start-up to the first step, training, and a stall's hang.

    The seconds of its saves and evaluations are put behind the other seconds of its training.
    """
    events = [RunEvent(started_at, "waiting")]
    for attempt in attempts:
        begun, end = max(attempt["started_at"], started_at), attempt["ended_at"] or ended_at
        phases, last = attempt["phases"] or {}, attempt["final_step"]
        is_seen_starting = "startup" in phases or _only_started(attempt)
        events.append(RunEvent(begun, "startup" if is_seen_starting else "training", attempt["start_step"]))
        if "evaluation" in phases and attempt["first_step_at"] and attempt["last_step_at"]:
            stop = attempt["last_step_at"] if attempt["status"] == "STALLED" else end
            first = max(attempt["first_step_at"], begun)
            saves = max(first, stop - phases["checkpoint"] - phases["evaluation"])
            start = attempt["first_step"] if attempt["start_step"] is None else attempt["start_step"]
            events.append(RunEvent(first, "training", start))
            events.append(RunEvent(saves, "checkpoint", last))
            events.append(RunEvent(max(saves, stop - phases["evaluation"]), "evaluation", last))
            events.append(RunEvent(stop, "hang" if attempt["status"] == "STALLED" else "waiting", last))
            events.append(RunEvent(end, "waiting", last))
        else:
            events.append(RunEvent(end, "waiting"))
    return [*events, RunEvent(ended_at, "end")]
