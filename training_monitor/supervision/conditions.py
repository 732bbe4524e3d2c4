"""The conditions that a training can be waited for: parse them, and say which one holds. Pure.

    finished  failed  stalled       the state of the judge's verdict
    step=N  epoch=N                 so many steps or epochs are done
    gpu-idle  gpu-idle=DURATION     its GPUs were idle at every look of that time (default: 5m)
    checkpoint                      a complete checkpoint that was not there at the beginning
    log=REGEX                       a new line of its log matches

A pattern is bounded in time like the user's own metrics, see `logs/bounded_search.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from training_monitor.core.errors import SettingsError
from training_monitor.core.models import Checkpoint
from training_monitor.core.shown import shown
from training_monitor.core.units import format_duration, parse_duration
from training_monitor.core.values import CheckpointListing, Verdict
from training_monitor.logs.bounded_search import find_fault, search_line
from training_monitor.logs.text import strip_ansi, strip_prefixes
from training_monitor.verdict.judge import format_verdict

STATES = ("finished", "failed", "stalled")
BAD = ("failed", "stalled")
IDLE_SECONDS = 300.0
LONGEST_LINE = 500  # characters of a line that matched
_BEFORE_MATCH = 100  # of these, before the match
LEAST_PAUSE, MOST_PAUSE = 2.0, 60.0  # seconds between looks
_NUMBERS = {"step": r"\d{1,12}", "epoch": r"\d{1,12}(?:\.\d{1,6})?"}
_PART_OF_WAIT = 0.1  # a look comes at most this part of the time waited so far too late
_LOOKS_IN_IDLE = 4
_EXPECTED = "finished, failed, stalled, step=N, epoch=N, gpu-idle, gpu-idle=DURATION, checkpoint or log=REGEX"


class Condition(NamedTuple):
    """A condition as it was given, and what it means: `number` is the step, the epoch, or the seconds of `gpu-idle`."""

    text: str
    kind: str
    number: float = 0.0
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the looks of a wait have shown so far; None means unknown.

    `idle_seconds` is for how long its GPUs have been idle without a pause, `checkpoint` a new complete one, `lines` the
    line that matched by pattern.
    """

    verdict: Verdict
    step: int | None = None
    total_steps: int | None = None
    epoch: float | None = None
    idle_seconds: float | None = None
    checkpoint: Checkpoint | None = None
    lines: Mapping[str, str] = field(default_factory=dict)


# ---------------------------------------------------------------- parsing


def parse_conditions(texts: Sequence[str]) -> tuple[Condition, ...]:
    """Parse the conditions of one wait. Raises SettingsError for a wrong one, and for none."""
    if isinstance(texts, str):
        raise SettingsError("conditions", texts, "a sequence of strings, such as ('finished',)")
    if not texts:
        raise SettingsError("conditions", None, _EXPECTED)
    return tuple(parse_condition(text) for text in texts)


def parse_condition(text: str) -> Condition:
    """Parse one condition. Raises SettingsError."""
    kind, equals, value = text.partition("=")
    if kind == "log" and value:
        if wrong := find_fault(value):
            raise SettingsError("condition log", value, wrong)
        return Condition(text, kind, pattern=value)
    if kind in _NUMBERS and re.fullmatch(_NUMBERS[kind], value, re.ASCII):
        return Condition(text, kind, float(value))
    if kind == "gpu-idle":
        seconds = parse_duration(value) if equals else IDLE_SECONDS
        if not seconds:
            raise SettingsError("condition gpu-idle", value, "a duration above 0, such as 10m")
        return Condition(text, kind, seconds)
    if kind in (*STATES, "checkpoint") and not equals:
        return Condition(text, kind)
    raise SettingsError("condition", text, _EXPECTED)


# ---------------------------------------------------------------- judging


def find_holding(conditions: Iterable[Condition], facts: Facts) -> tuple[Condition, str] | None:
    """Return the first condition that holds, and the evidence in words; None if none does."""
    for condition in conditions:
        if reason := why_it_holds(condition, facts):
            return condition, reason
    return None


def why_it_holds(condition: Condition, facts: Facts) -> str | None:
    """Return the evidence in words; None if the condition does not hold, or if that is unknown."""
    kind, number = condition.kind, condition.number
    if kind in STATES and facts.verdict.state == kind:
        return format_verdict(facts.verdict)
    if kind == "step" and facts.step is not None and facts.step >= number:
        return f"reached step {facts.step}" + (f" of {facts.total_steps}" if facts.total_steps else "")
    if kind == "epoch" and facts.epoch is not None and facts.epoch >= number:
        return f"{facts.epoch:.4g} epochs are complete"
    if kind == "gpu-idle" and facts.idle_seconds is not None and facts.idle_seconds >= number:
        return f"its GPUs have been idle for {format_duration(facts.idle_seconds)}"
    if kind == "checkpoint" and facts.checkpoint:
        return f"a new complete checkpoint: step {facts.checkpoint.step}, {shown(facts.checkpoint.path)}"
    if kind == "log" and condition.pattern in facts.lines:
        return f"its log contains: {facts.lines[condition.pattern]}"
    return None


def idle_since(before: float | None, mode: str | None, looked_at: float | None, now: float, gap: float) -> float | None:
    """Return since when the GPUs have been idle, in epoch seconds; None if they are not, or if that is unknown.

    Args:
        before: the same at the last look, which was at `looked_at`.
        mode: of the GPUs now, see `gpu_mode`.
        gap: the longest time between two looks, in seconds, over which idleness is assumed to last.
    """
    if mode != "idle":
        return None
    is_continued = before is not None and looked_at is not None and 0 <= now - looked_at <= gap
    return before if is_continued else now


def find_line(pattern: str, text: str) -> str | None:
    """Return the first line of a log that matches, as it may be shown; None without one.

    A line is searched without colours, with and without the prefix of its launcher (`[rank0]:`).
    """
    compiled = re.compile(pattern)
    for raw in re.split(r"[\r\n]", text):
        plain = strip_ansi(raw)
        for line in dict.fromkeys((plain, strip_prefixes(plain))):
            if line and (found := search_line(compiled, line)):
                begin = max(0, found.start() - _BEFORE_MATCH) if len(line) > LONGEST_LINE else 0
                return shown(line[begin : begin + LONGEST_LINE])
    return None


@dataclass(frozen=True, slots=True)
class KnownCheckpoints:
    """The checkpoints at the beginning of a wait: path and step of each but the incomplete ones.

    Those below `lowest` were not looked at; None: all were.
    """

    places: tuple[tuple[str, int], ...] = ()
    lowest: int | None = None


def know_checkpoints(found: CheckpointListing) -> KnownCheckpoints:
    """Return what to compare later listings with."""
    places = tuple((each.path, each.step) for each in found.checkpoints if each.complete is not False)
    steps = [each.step for each in found.checkpoints]
    return KnownCheckpoints(places, min(steps, default=None) if found.unlisted else None)


def find_new_checkpoint(known: KnownCheckpoints, found: CheckpointListing, waited: float) -> Checkpoint | None:
    """Return the newest complete checkpoint that was not there, or not complete, `waited` seconds ago."""
    for each in reversed(found.checkpoints):
        is_listed = known.lowest is None or each.step >= known.lowest
        if each.complete and is_listed and ((each.path, each.step) not in known.places or _is_rewritten(each, waited)):
            return each
    return None


def _is_rewritten(checkpoint: Checkpoint, waited: float) -> bool:
    """Return whether one that has no number, since each replaces the last, was written during the wait."""
    return checkpoint.step == 0 and checkpoint.age is not None and checkpoint.age + 2.0 < waited


def next_pause(conditions: Iterable[Condition], waited: float) -> float:
    """Return the seconds until the next look: the longer the wait, the less often it looks."""
    idle = [each.number / _LOOKS_IN_IDLE for each in conditions if each.kind == "gpu-idle"]
    return min(MOST_PAUSE, max(LEAST_PAUSE, waited * _PART_OF_WAIT), *idle)
