"""Does a run stall? Judged from what a watcher saw, one sample per poll. Pure.

A hang is a pause that is too long for what is known about it: idle GPUs, or GPUs at full utilization and idle power (a
collective waits), make it short; busy GPUs, a growing log or a phase such as evaluation make it long; nothing known is
between. Every limit grows with the run's own cadence and with the longest pause of the same kind that it came out of.

Only time that was watched counts: after a gap between samples (the watcher slept, the network was away) the clock
starts again. A falling step is a restart: its start-up and warm-up do not count, nor do they enter the run's own past.

A slow run is one whose steps take a multiple of the time they took in its own past, by medians over intervals in which
the step advanced, so that pauses do not count; how many are needed follows from how much the run's step times vary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import exp, log
from statistics import median
from typing import Any

from training_monitor.errors import SettingsError
from training_monitor.models import Observation, StallAnalysis
from training_monitor.policy.gpu_load import gpu_mode
from training_monitor.units import format_duration

WINDOW = 720  # samples: six hours at one every 30 s
PHASES = ("eval", "valid", "test", "checkpoint", "sav", "compil", "start", "warm", "load", "sampl", "generat", "init")


@dataclass(frozen=True, slots=True)
class StallPolicy:
    """Times in seconds.

    `*_pause` are the shortest pauses that count as a hang, by what is known about them; `pause_factor` and
    `cadence_factor` are how many times the run's own longest pause of that kind, and its usual time between steps, a
    pause must last. `speed_drop_threshold` is the share of its past speed below which a run is slow;
    `eta_convergence_threshold` the share of elapsed time by which its ETA should at least have shrunk.
    """

    min_samples: int = 4
    eta_convergence_threshold: float = 0.5
    speed_drop_threshold: float = 0.5
    grace_period: float = 900.0
    idle_pause: float = 165.0
    spinning_pause: float = 120.0
    spoken_pause: float = 400.0
    unknown_pause: float = 450.0
    busy_pause: float = 1800.0
    startup_pause: float = 1800.0
    pause_factor: float = 2.5
    cadence_factor: float = 3.0
    warmup_steps: int = 4
    warmup_seconds: float = 120.0
    slow_seconds: float = 300.0

    def __post_init__(self) -> None:
        for name in ("eta_convergence_threshold", "speed_drop_threshold"):
            if not 0 < getattr(self, name) < 1:
                raise SettingsError(name, getattr(self, name), "a share between 0 and 1")
        if not 2 <= self.min_samples <= WINDOW:
            raise SettingsError("min_samples", self.min_samples, f"2 to {WINDOW}")
        for name in ("grace_period", "idle_pause", "spinning_pause", "unknown_pause", "busy_pause", "startup_pause"):
            if not getattr(self, name) >= 0:
                raise SettingsError(name, getattr(self, name), "seconds, from 0")


DEFAULT_POLICY = StallPolicy()


def stall_policy(stagnation_threshold: float | None = None, **others: Any) -> StallPolicy:
    """The limits with a caller's own `stagnation_threshold`, in seconds; None: the defaults.

    It is the shortest pause that counts as a stall, four times as long while GPUs or processes work, or before the
    first step. `others` are fields of `StallPolicy`.
    """
    policy = StallPolicy(**others)
    if stagnation_threshold is None:
        return policy
    short, long = stagnation_threshold, 4 * stagnation_threshold
    return replace(
        policy,
        idle_pause=short,
        spinning_pause=short,
        spoken_pause=short,
        unknown_pause=short,
        busy_pause=long,
        startup_pause=long,
    )


@dataclass(slots=True)
class _Advance:
    """From one step to the next that was seen, in watched time; `pause` says of which kind the wait was."""

    begin: float
    end: float
    steps: int
    pause: str

    @property
    def seconds(self) -> float:
        return self.end - self.begin

    @property
    def step_time(self) -> float:
        return self.seconds / self.steps


@dataclass(slots=True)
class _Run:
    """The present generation of a run, out of its samples."""

    started: float
    poll: float  # the usual time between looks
    advances: list[_Advance] = field(default_factory=list)
    first_step_at: float | None = None
    since: float = 0.0  # the last step, or the first look after a gap
    waiting: list[Observation] = field(default_factory=list)  # looks since then, the first and the newest included


def analyze_stall(
    samples: Sequence[Observation], *, now: float, policy: StallPolicy = DEFAULT_POLICY
) -> StallAnalysis:
    """Judge a run by its samples, oldest first; the last 720 are looked at.

    Args:
        samples: what a watcher saw, one per poll; None is "not known".
        now: epoch seconds; what was not looked at since the last sample is not concluded from.

    Returns:
        is_stalling with kind hang_idle | hang_spinning | slow | diverging_eta | not_started (None while it does not
        stall), confidence none | low | medium | high, recommendation continue | alert | terminate: a stall alerts
        first, and after `grace_period` is to be ended, unless it is merely slow.
    """
    seen = [each for each in samples[-WINDOW:] if each.timestamp <= now]
    last = seen[-1] if seen else Observation(now, None)
    if not seen:
        return _healthy(last, f"Insufficient samples (0/{policy.min_samples})", {})
    run = _read_run(seen)
    signals = _signals(run, seen, policy)
    if _is_finished(last):
        return _healthy(last, "finished: the last step is done", signals)
    if len(seen) < policy.min_samples and signals["proof"] != "late":
        return _healthy(last, f"Insufficient samples ({len(seen)}/{policy.min_samples})", signals)
    for judge in (_judge_start, _judge_pause, _judge_speed):
        if found := judge(run, signals, policy):
            kind, confidence, reason, detected_at = found
            return _stalling(last, kind, confidence, reason, detected_at, signals, now, policy)
    return _healthy(last, "making progress" if run.first_step_at is not None else "no step yet", signals)


# ---------------------------------------------------------------- reading


def all_steps_done(last: Observation) -> bool:
    """Whether it has made all its steps, or epochs, as far as its log tells."""
    if last.step is not None and last.total_steps:
        return last.step >= last.total_steps
    return last.step is None and bool(last.epoch and last.total_epochs and last.epoch >= last.total_epochs)


def _is_finished(last: Observation) -> bool:
    return all_steps_done(last) or (last.phase or "").lower().startswith(("finish", "done", "complet"))


def _read_run(seen: Sequence[Observation]) -> _Run:
    poll = median(b.timestamp - a.timestamp for a, b in zip(seen, seen[1:])) if len(seen) > 1 else 60.0
    limit = 3.0 * poll + 30.0  # longer between two samples, and the watcher was away
    run, step = _Run(seen[0].timestamp, poll, since=seen[0].timestamp), None
    for before, sample in zip((None, *seen), seen):
        gap = before is not None and sample.timestamp - before.timestamp > limit
        if step is not None and (sample.step is None or sample.step < step) and not _is_blank(before, sample):
            run, step = _Run(sample.timestamp, poll, since=sample.timestamp), None
        if gap:
            run.since, run.waiting = sample.timestamp, []
        run.waiting.append(sample)
        if sample.step is None or sample.step == step:
            continue
        if step is None:
            run.first_step_at = sample.timestamp
        elif not gap:
            run.advances.append(_Advance(run.since, sample.timestamp, sample.step - step, _pause_of(run.waiting[:-1])))
        step, run.since, run.waiting = sample.step, sample.timestamp, [sample]
    return run


def _is_blank(before: Observation | None, sample: Observation) -> bool:
    """A look that saw no step although the log is as long as before: it scrolled out of sight."""
    if before is None or sample.step is not None:
        return False
    return sample.log_size is None or (before.log_size is not None and sample.log_size >= before.log_size)


def _pause_of(waiting: Sequence[Observation]) -> str:
    """What is known about a pause: phase | spinning | idle | spoken | busy | growing | unknown."""
    if any((each.phase or "").lower().startswith(PHASES) for each in waiting[-3:]):
        return "phase"
    looks = waiting[1:] or waiting  # the first one is that of the last step
    usage = [each.gpu_utilization for each in looks if each.gpu_utilization is not None]
    power = [each.gpu_power_fraction for each in looks if each.gpu_power_fraction is not None]
    sizes = [each.log_size for each in waiting if each.log_size is not None]
    growths = sum(b > a for a, b in zip(sizes, sizes[1:]))
    growing, spoke = growths > len(sizes) // 3, growths > 0
    if usage:
        mode = gpu_mode(median(usage), median(power) if power else None)
        if mode in ("spinning", "busy"):
            return mode
        return "growing" if growing else "spoken" if spoke else "idle"
    return "growing" if growing else "unknown"


# ---------------------------------------------------------------- judging

_Found = tuple[str, str, str, float]  # kind, confidence, reason, detected at


def _signals(run: _Run, seen: Sequence[Observation], policy: StallPolicy) -> dict[str, Any]:
    """The numbers behind the verdict, for whoever shows it; None is not known."""
    pause = _pause_of(run.waiting)
    calm = _calm(run, policy)
    slow = _slowdown(calm, policy)
    last, limit = seen[-1], _pause_limit(run, pause, calm, policy)
    waited = max(last.timestamp - run.since, last.step_age or 0.0 if run.first_step_at is not None else 0.0)
    if run.first_step_at is None:
        waited = max(waited, last.runtime or 0.0)
    return {
        "seconds_without_step": waited,
        "pause": pause,
        "pause_limit": limit,
        "has_step": run.first_step_at is not None,
        "proof": _proof(run, last, waited, limit),
        "works": _works(run, last),
        "looks": len(run.waiting),
        "started_at": last.timestamp - last.runtime if last.runtime is not None else run.started,
        "since": last.timestamp - waited,
        "step_time": run.advances[-1].step_time if run.advances else None,
        "speed_ratio": 1.0 / slow[0] if slow else None,
        "speed_dropping": bool(slow and slow[1]),
        "slow_since": slow[2] if slow else None,
        "slowing_down": bool(slow and slow[3]),
        "eta_convergence": _eta_convergence(seen, run.started),
    }


def _proof(run: _Run, last: Observation, waited: float, limit: float) -> str | None:
    """What excludes a stall: a step that was seen to be made, or is not old, or GPUs that compute; or `late`."""
    if last.step_age is not None and last.step_age >= limit:
        return "late"
    if waited < limit and run.advances:
        return "step"
    if waited < limit and last.step_age is not None:
        return "age"
    return "busy" if gpu_mode(last.gpu_utilization, last.gpu_power_fraction) == "busy" else None


def _works(run: _Run, last: Observation) -> str | None:
    """What shows that a training works that has made no step yet."""
    if gpu_mode(last.gpu_utilization, last.gpu_power_fraction) == "busy":
        return "its GPUs compute"
    if last.cpu_cores is not None and last.cpu_cores >= 0.3:
        return "its processes compute"
    sizes = [each.log_size for each in run.waiting if each.log_size is not None]
    if len(sizes) > 1 and sizes[-1] > sizes[-2] or (last.log_age is not None and last.log_age < 120.0):
        return "its log grows"
    return None


def _calm(run: _Run, policy: StallPolicy) -> list[_Advance]:
    """The advances after the warm-up."""
    if run.first_step_at is None:
        return []
    warm = run.first_step_at + policy.warmup_seconds
    return [each for each in run.advances[policy.warmup_steps :] if each.end > warm]


def _pause_limit(run: _Run, pause: str, calm: Sequence[_Advance], policy: StallPolicy) -> float:
    """How long a pause of this kind must last to be a hang."""
    floors = {
        "idle": policy.idle_pause,
        "spoken": policy.spoken_pause,
        "spinning": policy.spinning_pause,
        "unknown": policy.unknown_pause,
    }
    floor = floors.get(pause, policy.busy_pause)
    if run.first_step_at is None:
        return policy.startup_pause * (1.0 if pause in floors else 2.0)
    if not calm:
        floor = max(floor, policy.startup_pause / 2.0)
    alike = {"idle": ("idle", "spoken", "unknown", "phase"), "spinning": ("spinning", "unknown")}.get(pause)
    advances = calm or run.advances
    same = [each.seconds for each in calm if alike is None or each.pause in alike]
    return max(
        floor, policy.cadence_factor * _cadence(advances, run.poll), policy.pause_factor * max(same, default=0.0)
    )


def _cadence(advances: Sequence[_Advance], poll: float) -> float:
    """The usual time between steps; where every look sees new ones, not the time between looks."""
    if not advances:
        return 0.0
    seconds = _quantile([each.seconds for each in advances], 0.75)
    return seconds if seconds > 1.5 * poll else _quantile([each.step_time for each in advances], 0.75)


def _judge_start(run: _Run, signals: dict[str, Any], policy: StallPolicy) -> _Found | None:
    waited, limit = signals["seconds_without_step"], signals["pause_limit"]
    if run.first_step_at is not None or waited < limit:
        return None
    return "not_started", "medium", f"no step after {format_duration(waited)}", run.since + limit


def _judge_pause(run: _Run, signals: dict[str, Any], policy: StallPolicy) -> _Found | None:
    waited, limit, pause = signals["seconds_without_step"], signals["pause_limit"], signals["pause"]
    if run.first_step_at is None or waited < limit or (len(run.waiting) < 3 and signals["proof"] != "late"):
        return None
    evidence = {
        "idle": ("hang_idle", "high", ": GPUs idle"),
        "spoken": ("hang_idle", "high", ": GPUs idle"),
        "spinning": ("hang_spinning", "high", ": GPUs spin at idle power, a collective waits"),
        "unknown": ("hang_idle", "medium", ""),
    }
    kind, confidence, text = evidence.get(pause, ("hang_idle", "low", f", long even for a {pause} pause"))
    return (
        kind,
        confidence,
        f"no step for {format_duration(waited)}, limit {format_duration(limit)}{text}",
        run.since + limit,
    )


def _judge_speed(run: _Run, signals: dict[str, Any], policy: StallPolicy) -> _Found | None:
    if not signals["speed_dropping"]:
        return None
    ratio, converging = signals["speed_ratio"], signals["eta_convergence"]
    text = f"speed dropped {1 - ratio:.0%} below this run's own past"
    detected_at = min(signals["slow_since"] + policy.slow_seconds, run.waiting[-1].timestamp)
    if signals["slowing_down"]:
        if converging is not None and converging < policy.eta_convergence_threshold:
            text += "; its ETA does not come nearer"
        return "diverging_eta", "medium", f"{text}, and it still gets slower", detected_at
    return "slow", "high" if ratio <= 0.4 else "medium", text, detected_at


def _slowdown(calm: Sequence[_Advance], policy: StallPolicy) -> tuple[float, bool, float, bool] | None:
    """(step time now over that of the past, whether that is a stall, since when, whether it still grows)."""
    logs = [log(each.step_time) for each in calm if each.step_time > 0]
    if len(logs) < 10 or len(logs) != len(calm):
        return None
    best: tuple[float, bool, float, bool] | None = None
    for count in (5, 8, 12, 20, 32, 64):
        if len(logs) < 2 * count:
            break
        recent = logs[-count:]
        base, spread, size = _best_past(logs[:-count])
        rise = median(recent) - base
        sure = rise >= 7.0 * spread * (1.0 / count + 1.0 / size) ** 0.5
        lasting = sum(each.seconds for each in calm[-count:]) >= policy.slow_seconds
        steady = _quantile(recent, 0.25) - base >= 0.6 * -log(policy.speed_drop_threshold)
        growing = sure and lasting and steady and _is_growing(logs[-3 * count :], count)
        slow = sure and lasting and steady and rise >= -log(policy.speed_drop_threshold)
        found = (exp(rise), slow or (growing and rise >= 0.55), calm[-count].begin, growing)
        if best is None or found[1]:
            best = found
        if found[1]:
            break
    return best


def _best_past(logs: Sequence[float]) -> tuple[float, float, int]:
    """(median, spread, count) of the fastest third of the past that has enough in it to tell."""
    size = max(5, len(logs) // 3)
    parts = [logs[at : at + size] for at in range(0, len(logs) - size + 1, size)]
    part = min(parts, key=median)
    middle = median(part)
    deviation = 1.4826 * median(abs(each - middle) for each in part)
    return middle, max(deviation, 0.25 if size < 10 else 0.05), size


def _is_growing(logs: Sequence[float], count: int) -> bool:
    """Three blocks, each clearly slower than the one before."""
    if len(logs) < 3 * count:
        return False
    first, second, third = (median(logs[at : at + count]) for at in (0, count, 2 * count))
    return second - first >= 0.14 and third - second >= 0.14


def _eta_convergence(seen: Sequence[Observation], started: float) -> float | None:
    """By how much of the elapsed time the ETA shrank in the last half hour: 1 is on schedule, below 0 it grows."""
    known = [
        (each.timestamp, each.eta_seconds)
        for each in seen
        if each.eta_seconds is not None and each.timestamp >= max(started, seen[-1].timestamp - 1800.0)
    ]
    if len(known) < 3 or known[-1][0] <= known[0][0]:
        return None
    return (known[0][1] - known[-1][1]) / (known[-1][0] - known[0][0])


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


# ---------------------------------------------------------------- answering


def _healthy(last: Observation, reason: str, signals: dict[str, Any]) -> StallAnalysis:
    return StallAnalysis(False, None, "none", reason, "continue", last.step, last.total_steps, None, None, signals)


def _stalling(
    last: Observation,
    kind: str,
    confidence: str,
    reason: str,
    detected_at: float,
    signals: dict[str, Any],
    now: float,
    policy: StallPolicy,
) -> StallAnalysis:
    left = max(0.0, policy.grace_period - (now - detected_at))
    ended = left == 0.0 and kind != "slow"
    return StallAnalysis(
        True,
        kind,
        confidence,
        reason,
        "terminate" if ended else "alert",
        last.step,
        last.total_steps,
        detected_at,
        left,
        signals,
    )
