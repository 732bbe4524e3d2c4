"""Detect the stall of a run from its samples, one per look. Pure.

A hang is a pause that is too long for what is known about it. GPUs at full utilization and idle power (a collective
waits), or processes that neither compute nor write, make the limit short; busy GPUs, a save, a compilation, a growing
log or a phase such as evaluation make it long; the unknown lies between. Short limits run from the last sign of work,
and every limit grows with the run's own cadence and with its longest pause of the same kind.

The silence includes gaps between looks; if the machine may have slept meanwhile, a stall is reported only after the run
was watched again for a while. A falling step is a restart: its start-up and warm-up do not count.

`StallDetector` keeps the samples of one run, and whether a notice of its stall was sent.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from training_monitor.core.arguments import checked
from training_monitor.core.units import format_duration, is_same_speed, median
from training_monitor.core.values import Observation, StallAnalysis
from training_monitor.verdict.limits import (
    DEFAULT_POLICY as DEFAULT_POLICY,
    MOST_SAMPLES as MOST_SAMPLES,
    StallPolicy as StallPolicy,
    stall_policy as stall_policy,
)
from training_monitor.verdict.slowness import eta_convergence, find_flat_eta, find_slowdown, moments, quantile, warm_at
from training_monitor.verdict.stall_history import (
    ALIVE,
    FRESH_FILE,
    Advance,
    Look,
    Move,
    Run,
    grows_with_news,
    has_grown,
    kind_of,
    read_run,
    thin_looks,
)

WINDOW = MOST_SAMPLES
LONGEST_LIMIT = 86_400.0  # seconds, of limits that a run's own pauses and steps give
WATCHED_AGAIN = 60.0  # seconds after a gap, from when on looks on both sides of it count
FRESH_LOG = 120.0
_COMPARED, _FEWEST_COMPARED = 20, 3  # advances whose speed is compared with what the log prints
_LEAST_MEASURED = 2.0  # seconds of steps that show a pace: the ages of steps and logs are known to the second
HABIT = 0.75  # factor for `pause_factor` after three pauses of similar length
SHORT_BREAK = 60.0  # seconds: shorter pauses do not show how long an evaluation or a save takes
SAVES_APART = 1.4  # factor for the longest time between two checkpoints, for a run without other signs
MOST_STARVED = 10.0  # factor for the limits of what works, where others take the processors
_ALIKE = {  # kinds of pauses whose length bounds one of this kind
    "idle": ("idle", "spoken", "unknown", "phase", "quiet", "blocked"),
    "quiet": ("quiet", "blocked", "idle", "unknown"),
    "blocked": ("quiet", "blocked"),
    "spinning": ("spinning", "unknown"),
}
_Found = tuple[str, str, str, float]  # kind, confidence, reason, detected at
_Pause = tuple[str, float, float, bool]  # kind (see `kind_of`), limit, when doubt begins, whether its silence counts


def analyze_stall(samples: Sequence[Observation], *, now: float, policy: StallPolicy = DEFAULT_POLICY) -> StallAnalysis:
    """Look for a hang or a slowdown in the given samples (oldest first), and recommend an action.

    Prefer `judge`, which also considers the job's status, its errors and its losses, or `check_training` for a training
    on a target. Beyond 720 samples, older ones are thinned out.

    Args:
        samples: one per observation; values that are None are unknown.
        now: the current time in epoch seconds. The time since the last sample is not used as evidence.

    Returns:
        An analysis with is_stalling, kind hang_idle | hang_spinning | slow | not_started | suspended (None without a
        stall), confidence none | low | medium | high, and recommendation continue | alert | terminate. The
        recommendation is alert at first, and terminate after `grace_period`, unless the run is suspended, or is slow
        but has an ETA that converges. `signals` has the numbers that led to the result (see `_signals`).
    """
    seen = thin_looks([each for each in samples if each.timestamp <= now], MOST_SAMPLES)
    if not seen:
        return _healthy(Observation(now, None), f"Insufficient samples (0/{policy.min_samples})", {})
    last, run = seen[-1], read_run(seen)
    signals = _signals(run, policy)
    if _is_finished(last):
        return _healthy(last, "finished: the last step is done", signals)
    for judge in (_judge_suspended, _judge_start, _judge_pause, _judge_slowness):
        if found := judge(run, signals, policy):
            kind, confidence, reason, detected_at = found
            return _stalling(last, kind, confidence, reason, detected_at, signals, now, policy)
    if len(seen) < policy.min_samples:
        return _healthy(last, f"Insufficient samples ({len(seen)}/{policy.min_samples})", signals)
    return _healthy(last, "making progress" if run.first_step_at is not None else "no step yet", signals)


def format_silence(waited: float, limit: float, what: str = "no step for") -> str:
    """Format a silence and the limit from which it is a stall."""
    return f"{what} {format_duration(waited)}, limit {format_duration(limit)}"


def all_steps_done(last: Observation) -> bool:
    """Whether the log shows that all steps, or epochs, are done."""
    if last.step is not None and last.total_steps:
        return last.step >= last.total_steps
    return last.step is None and bool(last.epoch and last.total_epochs and last.epoch >= last.total_epochs)


def _is_finished(last: Observation) -> bool:
    return all_steps_done(last) or (last.phase or "").lower().startswith(("finish", "done", "complet"))


# ---------------------------------------------------------------- judging


def _signals(run: Run, policy: StallPolicy) -> dict[str, Any]:
    """Return the numbers behind the verdict, for display; None means unknown.

    `seconds_without_step` is the silence, `pause_limit` the silence from which on it is a stall, `pause` its kind (see
    `kind_of`). `proof` is what rules out a stall: step | age | busy. `is_stall` says whether the pause is a stall, or
    was one at an earlier look: only a step ends a stall.
    """
    last = run.last
    warm = warm_at(run, policy)
    calm = [each for each in run.moves if each.end > warm]
    waited = last.at - run.since
    found = _pause(run, calm, policy)
    earlier = None if (is_stall := _is_stall(run, found, policy)) else _earlier_stall(run, calm, policy)
    is_stall, (pause, limit, doubt, _) = is_stall or earlier is not None, earlier or found
    pace, logged = _pace(run.advances), _logged(run)
    speed = _speed(run, pace, logged)
    usual = _logged_step_time(run, logged)
    slow = find_slowdown([each for each in run.advances if each.end > warm], usual, policy)
    readings = [(each.at, eta) for each in run.looks if (eta := each.seen.eta_seconds) is not None]
    stepping = [each for each in run.advances if each.end > (run.first_step_at or run.began) + policy.warmup_seconds]
    left = _steps_left(run, pace)
    flat = find_flat_eta(stepping, left, readings, slow, policy) if left else None
    return {
        "seconds_without_step": waited,
        "pause": pause,
        "pause_limit": limit,
        "usual_pause": max([policy.cadence_factor * _cadence(run, calm), 2.0 * run.poll, *(m.pause for m in calm)]),
        "has_step": _has_step(run),
        "proof": _proof(run, waited, limit, doubt, pause, policy),
        "saves": run.saves,
        "works": _works(run, pause),
        "worked_at": next((each.at for each in reversed(run.waiting) if each.sign in ALIVE), run.waiting[0].at),
        "is_stall": is_stall,
        "looks": len(run.waiting),
        "started_at": run.began,
        "since": run.since,
        "since_known": run.since_known,
        "step_time": pace if run.by_step else None,
        "speed": speed,
        "speed_ratio": 1.0 / slow.ratio if slow else None,
        "speed_dropping": bool(slow and slow.slow),
        "slow_since": slow.since if slow and slow.slow else flat.since if flat else None,
        "reports_news": grows_with_news(run.waiting[-10:]),
        "suspended": _suspended(run),
        "eta_convergence": eta_convergence(readings),
        "flat_eta": flat.describe() if flat else None,
    }


def _pace(advances: Sequence[Advance]) -> float | None:
    """Return the seconds per step of the last five advances, or of as many as take long enough."""
    seconds, steps = 0.0, 0.0
    for count, each in enumerate(reversed(advances), 1):
        seconds, steps = seconds + each.seconds, steps + each.steps
        if count >= min(5, len(advances)) and seconds >= _LEAST_MEASURED:
            return seconds / steps
    return None


def _speed(run: Run, pace: float | None, logged: Look | None) -> float | None:
    """Return the printed steps per second, unless the observed steps or the times in the log refute them.

    A log may print the speed of micro-batches, or the time that several steps took.
    """
    printed, newest = run.last.seen.steps_per_second, run.advances[-_COMPARED:]
    if not run.by_step:
        return printed
    if pace is None or len(newest) < _FEWEST_COMPARED:
        told = logged.seen.logged_speed if logged else None
        if printed and (not told or is_same_speed(printed, told)):
            return printed
        return 1.0 / pace if pace else told
    if not printed:
        return 1.0 / pace
    speeds = [1.0 / each.step_time for each in newest]
    usual = sum(each.steps for each in newest) / sum(each.seconds for each in newest)
    is_seen = min(speeds) <= printed <= max(speeds)
    return printed if is_seen or any(is_same_speed(printed, each) for each in speeds) else usual


def _logged(run: Run) -> Look | None:
    """Return the newest look that read the times in the log."""
    return next((each for each in reversed(run.looks) if each.seen.step_time is not None), None)


def _logged_step_time(run: Run, logged: Look | None) -> float | None:
    """Return the usual seconds of a step by the log; None if only printed speeds give it, and seen steps refute these.

    After a resume, an average that also counts the steps before it approaches the true speed in the end. So only the
    steps seen around the look that read the log can confirm what it printed then.
    """
    if logged is None or not run.by_step:
        return None
    if logged.seen.logged_speed is not None:
        return logged.seen.step_time
    at = bisect_right(run.advances, logged.at, key=lambda each: each.end)
    compared = run.advances[max(0, at - _COMPARED) : at + _COMPARED]
    speeds = [(each.printed or logged.seen.steps_per_second, 1.0 / each.step_time) for each in compared]
    confirmed = sum(printed is None or is_same_speed(printed, seen) for printed, seen in speeds)
    return logged.seen.step_time if 2 * confirmed >= len(speeds) else None


def _steps_left(run: Run, pace: float | None) -> float | None:
    """Return the steps to come: by the total, else by the printed ETA."""
    total = run.last.seen.total_steps
    if run.by_step and total and run.position is not None:
        return total - run.position
    printed = [eta for each in run.looks[-5:] if (eta := each.seen.eta_seconds) is not None]
    return median(printed) / pace if printed and pace else None


def _pause(run: Run, calm: Sequence[Move], policy: StallPolicy) -> _Pause:
    pause, begin = kind_of(run.waiting) if _has_step(run) else (_start_of(run.waiting), 0)
    limit, doubt = _limits(run, pause, begin, calm, policy)
    return pause, limit, doubt, _is_watched(run, pause, run.last.at - run.since, limit, calm)


def _earlier_stall(run: Run, calm: Sequence[Move], policy: StallPolicy) -> _Pause | None:
    """Return the pause as it was when it first was a stall (only a step ends one); None if it never was."""
    if run.last.at - run.since < policy.shortest_pause:
        return None
    for known in sorted(moments(len(run.waiting))):
        then = replace(run, waiting=run.waiting[:known])
        found = _pause(then, calm, policy)
        if _is_stall(then, found, policy):
            return found
    return None


def _is_stall(run: Run, found: _Pause, policy: StallPolicy) -> bool:
    """Whether a pause is a stall; before the first step, not after too few looks.

    Nor while GPUs compute, unless position 0 is shown: the loop has begun, and its first step is what takes so long.
    """
    pause, limit, _, watched = found
    if run.last.at - run.since < max(limit, policy.shortest_pause) or grows_with_news(run.waiting[-10:]):
        return False
    looks = 2 if run.since_known else policy.min_samples
    if _has_step(run):
        return watched
    return (pause != "busy" or run.last.seen.step == 0) and len(run.waiting) >= looks


def _start_of(waiting: Sequence[Look]) -> str:
    """Return what most of the newest looks at a start-up show, because signs flicker during compilation."""
    kinds = [each.sign for each in waiting[-10:]]
    usual = max(dict.fromkeys(kinds), key=kinds.count)
    return usual if usual in ALIVE else kind_of([each for each in waiting if each.sign not in ALIVE])[0]


def _has_step(run: Run) -> bool:
    return run.first_step_at is not None or run.moved


def _limits(run: Run, pause: str, begin: int, calm: Sequence[Move], policy: StallPolicy) -> tuple[float, float]:
    """Return how long the silence must last to be a hang, and from when on it may be one."""
    last = run.last
    floors = {
        "idle": policy.idle_pause,
        "spoken": policy.log_pause,
        "spinning": policy.spinning_pause,
        "blocked": policy.quiet_pause,
        "quiet": policy.quiet_pause,
        "unknown": policy.unknown_pause,
    }
    work = run.waiting[begin].sign if begin else pause
    starved = _starvation(run) if work in ("computing", "compiling") else 1.0
    busy = policy.busy_pause * max(starved, 2.0 if _saves(run) else 1.0)
    floor = floors.get(pause, busy)
    if pause == "spinning" and any(each.sign == "busy" for each in run.waiting[1:]):
        floor *= 2.0  # they computed since: one of them may still do so now and then
    if not _has_step(run) or run.rotated:
        apart = max((each.seconds for each in run.moves), default=0.0) if run.saves else 0.0
        least = policy.startup_pause * (1.0 if pause in floors else 2.0 * starved)
        limit = max(least, min(LONGEST_LIMIT, SAVES_APART * apart))
        return limit, limit
    doubt = floor
    if pause in ("quiet", "blocked", "spinning") and last.at - run.waiting[begin].at < WATCHED_AGAIN:
        floor = max(floor, policy.log_pause)  # a single look may fall between two writes
    elif _is_early(run, pause):
        floor, doubt = max(floor, policy.early_pause), min(floor, policy.unknown_pause)
    elif _is_first(run, pause, calm, policy):
        floor = max(floor, policy.first_pause)
    alike = _ALIKE.get(pause)
    same = [each.pause for each in calm if alike is None or each.kind in alike]
    usual = policy.cadence_factor * _cadence(run, calm)
    derived = max(usual, _pause_factor(pause, same, policy) * max(same, default=0.0))
    worked = run.waiting[begin].at - run.since if begin and pause in floors else 0.0
    limits = (max(each, min(LONGEST_LIMIT, derived)) for each in (floor, doubt))
    limit, doubt = (min(worked + each, max(busy, each)) for each in limits)
    return limit, doubt


def _pause_factor(pause: str, same: Sequence[float], policy: StallPolicy) -> float:
    """Return how much longer than the longest one a pause may last: less if several were about as long."""
    least = max(same, default=0.0) / 2.0
    is_habit = sum(each >= least for each in same) >= 3
    return policy.pause_factor * (HABIT if is_habit and pause in ("idle", "spoken", "unknown") else 1.0)


def _starvation(run: Run) -> float:
    """Return how many times longer its processes took since the last step than without waits for a processor."""
    first, last = run.waiting[0].seen, run.last.seen
    if None in (first.cpu_seconds, last.cpu_seconds, first.delay_seconds, last.delay_seconds):
        return 1.0
    used = (last.cpu_seconds or 0.0) - (first.cpu_seconds or 0.0)
    waited = (last.delay_seconds or 0.0) - (first.delay_seconds or 0.0)
    return min(MOST_STARVED, 1.0 + waited / used) if used > 0.0 and waited > 0.0 else 1.0


def _saves(run: Run) -> bool:
    """Whether checkpoint files were written since the last step: a large one takes long."""
    looks = [each for each in run.waiting[1:] if each.seen.file_age is not None and each.seen.file_age >= 0]
    written = [each.at - (each.seen.file_age or 0.0) for each in looks]
    return len(written) > 1 and written[-1] > max(run.since, written[0]) + FRESH_FILE


def _is_early(run: Run, pause: str) -> bool:
    """Whether the length of its pauses is unknown, both from looks and from its log."""
    return pause in ("idle", "spoken", "unknown") and not run.moves and run.last.seen.step_interval is None


def _is_first(run: Run, pause: str, calm: Sequence[Move], policy: StallPolicy) -> bool:
    """Whether nothing is seen of a run but its log, and it has made steps without a pause so far."""
    longest = max((each.seconds for each in calm), default=0.0)
    return pause == "unknown" and longest <= max(
        SHORT_BREAK, 2.0 * run.poll, policy.cadence_factor * _cadence(run, calm)
    )


def _cadence(run: Run, calm: Sequence[Move]) -> float:
    """Return the usual time between steps; if every look sees new ones, not the time between looks."""
    told = next((each.seen.step_interval for each in reversed(run.waiting) if each.seen.step_interval), 0.0)
    moves = calm or run.moves
    seconds = quantile([each.seconds for each in moves], 0.75) if moves else 0.0
    if seconds <= 1.5 * run.poll:
        seconds = (
            quantile([each.step_time for each in run.advances[-100:]], 0.75) if run.by_step and run.advances else 0.0
        )
    return max(told, seconds)


def _is_watched(run: Run, pause: str, waited: float, limit: float, calm: Sequence[Move]) -> bool:
    """Whether the silence was watched for long enough, or is proved by the log's own clock."""
    gaps = [at for at, each in enumerate(run.waiting) if at and each.gap is not None]
    if gaps and waited - sum(run.waiting[at].gap or 0.0 for at in gaps) < limit:
        since = run.waiting[gaps[-1]].at
        needed = max(WATCHED_AGAIN, 2.0 * _cadence(run, calm), limit / 2.0)
        return run.last.at - since >= needed and len(run.waiting) > gaps[-1] + 1
    least = {"spinning": 4, "unknown": 2}.get(pause, 3)  # two readings of working GPUs may be low by chance
    is_told = (run.last.seen.log_age or 0.0) >= limit or any(each.seen.step_age is not None for each in run.waiting)
    return len(run.waiting) >= least or is_told


def _proof(run: Run, waited: float, limit: float, doubt: float, pause: str, policy: StallPolicy) -> str | None:
    """Return what rules out a stall: a step that was seen or is known to be fresh, or computing GPUs."""
    if waited < doubt and run.since_known and run.position is not None:
        if run.made_within <= max(limit, policy.busy_pause):
            return "step"
        if any(each.seen.step_age is not None for each in run.waiting):
            return "age"
    if waited < limit and run.moved and run.position is None:
        return "step"
    return "busy" if pause == "busy" else None


def _works(run: Run, pause: str) -> str | None:
    """Return the sign that it works although it makes no step."""
    texts = {
        "busy": "its GPUs are busy",
        "computing": "its processes are using the CPU",
        "compiling": "compilers are running",
        "saving": "files are being written",
        "growing": "its log is growing",
        "spoken": "its log is growing",
    }
    age = run.last.seen.log_age
    return texts.get(pause) or ("its log changed recently" if age is not None and age < FRESH_LOG else None)


def _judge_start(run: Run, signals: dict[str, Any], policy: StallPolicy) -> _Found | None:
    waited, limit = signals["seconds_without_step"], signals["pause_limit"]
    if signals["has_step"] or not signals["is_stall"]:
        return None
    what = "no new file in its checkpoint folder for" if run.saves else "no step after"
    reason = f"{format_silence(waited, limit, what)}{_describe(run, signals)}"
    return "not_started", "medium", reason, run.since + limit


def _judge_pause(run: Run, signals: dict[str, Any], policy: StallPolicy) -> _Found | None:
    waited, limit, pause = signals["seconds_without_step"], signals["pause_limit"], signals["pause"]
    if not signals["has_step"] or not signals["is_stall"]:
        return None
    sure = {"spinning": "high", "quiet": "high", "blocked": "high", "idle": "medium", "spoken": "medium"}
    confidence = sure.get(pause, "medium" if pause == "unknown" else "low")
    reason = f"{format_silence(waited, limit)}{_describe(run, signals)}"
    return "hang_spinning" if pause == "spinning" else "hang_idle", confidence, reason, run.since + limit


def _describe(run: Run, signals: dict[str, Any]) -> str:
    """Describe what is known about a pause, for its reason."""
    idle = "GPUs idle, " if run.last.seen.gpu_utilization is not None else ""
    pause, phase = signals["pause"], run.last.seen.phase
    written = "only lines without a step were logged" if has_grown(run.waiting) else "nothing written"
    proofs = {
        "spinning": "GPUs report full utilization at idle power: ranks are waiting in a collective",
        "blocked": f"{idle}{written}, its processes are waiting for disk I/O (state D)",
        "quiet": f"{idle}its processes use no CPU, {written}",
        "idle": "GPUs idle",
        "spoken": f"{idle}although its log is still growing"
        if has_grown(run.waiting)
        else (f"{idle}which is long even for {phase}"),
        "phase": f"which is long even for {phase}",
    }
    doubts = {
        "growing": ", although its log is growing",
        "saving": ", although files are being written",
        "compiling": ", although compilers are running",
        "busy": ", although its GPUs are busy",
        "computing": ", although its processes are using the CPU",
    }
    text = f": {proofs[pause]}" if pause in proofs else doubts.get(pause, "")
    if run.last.sign not in ALIVE or pause in ALIVE:
        return text
    works = _works(run, run.last.sign)
    return f"{text}, and no step since, although {works}" if text else f": {works}"


def _judge_slowness(run: Run, signals: dict[str, Any], policy: StallPolicy) -> _Found | None:
    """Judge a run by its speed and by its ETA; both together are sure."""
    ratio, flat = signals["speed_ratio"], signals["flat_eta"]
    if not signals["speed_dropping"]:
        return ("slow", "medium", flat, run.last.at) if flat else None
    text = f"speed is {1 - ratio:.0%} below this run's earlier speed"
    detected_at = min(signals["slow_since"] + policy.slow_seconds, run.last.at)
    return "slow", "high" if flat or ratio <= 0.4 else "medium", f"{text}; {flat}" if flat else text, detected_at


def _suspended(run: Run) -> tuple[int, ...]:
    """Return those of its processes that were suspended in two looks since its last step, or in the only look."""
    waiting = run.waiting[-2:]
    was = len(run.looks) == 1 or (len(waiting) == 2 and bool(waiting[0].seen.suspended))
    return run.last.seen.suspended if was else ()


def _judge_suspended(run: Run, signals: dict[str, Any], policy: StallPolicy) -> _Found | None:
    if not signals["suspended"]:
        return None
    pids = " ".join(map(str, signals["suspended"]))
    return "suspended", "high", f"suspended (state T): resume it with `kill -CONT {pids}`", run.last.at


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
    ended = left == 0.0 and kind != "suspended" and (kind != "slow" or signals["flat_eta"] is not None)
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


@checked
class StallDetector:
    """Run `analyze_stall` on samples that arrive one by one, and record whether a notice of the stall was sent.

    The record of a sent notice is cleared when the run recovers. For a training on a target, use `check_training`,
    which takes and stores the samples itself.
    """

    def __init__(self, policy: StallPolicy = DEFAULT_POLICY) -> None:
        self.policy = policy
        self._samples: list[Observation] = []
        self._notified_at: float | None = None

    def record_sample(self, sample: Observation) -> None:
        """Add one sample. A sample that is not newer than the last one is ignored."""
        if not self._samples or sample.timestamp > self._samples[-1].timestamp:
            self._samples = thin_looks([*self._samples, sample], WINDOW)

    def analyze(self, now: float | None = None) -> StallAnalysis:
        """Run `analyze_stall` on the samples; `now` defaults to the last sample's time."""
        moment = now if now is not None else self._samples[-1].timestamp if self._samples else 0.0
        found = analyze_stall(tuple(self._samples), now=moment, policy=self.policy)
        if not found.is_stalling:
            self._notified_at = None
        return found

    def has_notified(self) -> bool:
        return self._notified_at is not None

    def mark_notified(self, now: float) -> None:
        """Record that a notice of the current stall was sent."""
        self._notified_at = now

    def reset(self) -> None:
        self._samples.clear()
        self._notified_at = None

    def get_state(self) -> dict[str, Any]:
        """Return sample_count, current_step, current_speed, current_eta, stall_detected_at, stall_notified_at."""
        last = self._samples[-1] if self._samples else None
        found = self.analyze()
        return {
            "sample_count": len(self._samples),
            "current_step": last.step if last else None,
            "current_speed": last.steps_per_second if last else None,
            "current_eta": last.eta_seconds if last else None,
            "stall_detected_at": found.stall_detected_at,
            "stall_notified_at": self._notified_at,
        }
