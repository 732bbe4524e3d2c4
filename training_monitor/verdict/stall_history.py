"""Build the present generation of a run from its looks: the steps it made, and its signs since the last one. Pure.

Time is the target's time awake if both looks have it, so that clock jumps and suspends do not count, without that in
which the processes were suspended; else it is the time between the looks, and a long one is a gap, in which the machine
may have slept.

A falling step or another process is a restart, and begins a new generation. A rotated log does not: it may show no step
for a while, and then continues.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, isfinite

from training_monitor.core.units import median
from training_monitor.core.values import Observation
from training_monitor.verdict.gpu_load import gpu_mode

WORKING_CORES = 0.3  # CPU time per second of a computing process tree; polling threads take less
WORKING_WRITES = 100_000.0  # bytes per second of a saving process tree; logs and events take less
FRESH_FILE = 60.0  # seconds
FILE_CLOCK = 2.0  # seconds by which file times (in whole seconds) and look times may differ
LASTING_MODE = 150.0  # seconds for which GPUs seen not computing also count for looks without GPU readings
ALIVE = ("saving", "compiling", "busy", "computing")  # signs of work other than steps
PHASES = ("eval", "valid", "test", "checkpoint", "sav", "compil", "start", "warm", "load", "sampl", "generat", "init")


@dataclass(slots=True)
class Look:
    """One observation at the run's own time `at`.

    `gap` is how much of the preceding time may not have passed; None if it was watched. `mode` is that of its GPUs, or
    of a recent look if this one has none. sign: saving | compiling | busy | computing (at work), or spinning | blocked
    | quiet | idle | unknown.
    """

    at: float
    seen: Observation
    gap: float | None = None
    mode: str | None = None
    mode_at: float = 0.0
    sign: str = "unknown"


@dataclass(slots=True)
class Move:
    """The time from one progress event to the next: a step, an epoch, or else a change of the loss.

    `pause` is how long it showed no work in between, and `kind` the kind of that pause (see `kind_of`).
    """

    begin: float
    end: float
    kind: str
    pause: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


@dataclass(slots=True)
class Advance:
    """The time from one seen step (or fraction of an epoch) to the next, and the steps per second printed there."""

    begin: float
    end: float
    steps: float
    printed: float | None = None

    @property
    def seconds(self) -> float:
        return self.end - self.begin

    @property
    def step_time(self) -> float:
        return self.seconds / self.steps


@dataclass(slots=True)
class Run:
    """The present generation of a run."""

    began: float
    poll: float  # the usual time between looks
    by_step: bool  # whether its position is a step, else the epoch
    moves: list[Move] = field(default_factory=list)
    advances: list[Advance] = field(default_factory=list)
    first_step_at: float | None = None
    position: float | None = None
    position_at: float = 0.0
    since: float = 0.0  # when it last moved, as far as known; before that, when it began
    since_known: bool = False  # whether that was seen, or is in the log's own times
    made_within: float = inf  # seconds within which its newest step was made, as far as seen
    moved: bool = False  # whether any movement was seen
    rotated: bool = False  # whether its log became shorter, and shows no step yet
    saves: bool = False  # whether new checkpoint files were seen, and nothing else moves
    waiting: list[Look] = field(default_factory=list)  # looks since then, including the one that saw it
    looks: list[Look] = field(default_factory=list)  # all of this generation

    @property
    def last(self) -> Look:
        return self.waiting[-1]


def read_run(seen: Sequence[Observation]) -> Run:
    """Return the present generation from all looks, of which there is at least one."""
    looks, poll = _timeline(seen)
    by_step = any(each.step is not None for each in seen)
    run, before, stale = _begin(looks[0], poll, by_step), None, None
    for look in looks:
        place: float | None = look.seen.step if by_step else look.seen.epoch
        if before is not None and _is_other_process(before.seen, look.seen):
            run, stale = _begin(look, poll, by_step), None if _is_its_own_step(before.seen, look.seen) else place
        if place == stale:
            place = None  # of the previous process
        elif place is not None:
            stale = None
        if place is not None and run.position is not None and place < run.position:
            run = _begin(look, poll, by_step)
        if place == 0 and look.seen.loss is None:
            place = None  # an empty bar, before the first step
        look.sign = _sign(before, look, run)
        run.looks.append(look)
        run.waiting.append(look)
        if place is None or place == run.position:
            _add_wait(run, before, look, place)
        else:
            _add_progress(run, before, look, place)
        before = look
    return run


def _is_its_own_step(before: Observation, seen: Observation) -> bool:
    """Whether the newest step was made by the present process; if unknown, the previous one made it.

    A log that was written since that process began, and is no longer than before, was begun anew.
    """
    if seen.runtime is None:
        return False
    if seen.step_age is not None:
        is_newer = before.is_running is False and before.step is not None and before.step != seen.step
        return seen.step_age <= seen.runtime + (FILE_CLOCK if is_newer else 0.0)
    is_new = None not in (before.log_size, seen.log_size) and (seen.log_size or 0) <= (before.log_size or 0)
    return is_new and seen.log_age is not None and seen.log_age < seen.runtime


def _begin(look: Look, poll: float, by_step: bool) -> Run:
    began = look.at - (look.seen.runtime or 0.0)
    return Run(began, poll, by_step, since=began, since_known=look.seen.runtime is not None)


def _add_wait(run: Run, before: Look | None, look: Look, place: float | None) -> None:
    """Add a look without a new step."""
    age = look.seen.step_age
    if before is not None and not run.by_step and _loss_moved(before.seen, look.seen):
        _move(run, look.at)
        run.moved, run.since_known, run.waiting = True, True, [look]
    elif before is not None and place is not None and _epoch_moved(before.seen, look.seen):
        _move(run, look.at)  # the batches of a validation
        run.since_known, run.waiting = True, [look]
    elif place is None and not run.by_step and not run.moved and _is_saved(before, look):
        _move(run, look.at - (look.seen.file_age or 0.0))
        run.saves, run.since_known, run.waiting = True, True, [look]
    elif place is None:
        run.rotated = run.rotated or (before is not None and _is_shorter(before.seen, look.seen))
    elif not run.since_known:
        run.since, run.since_known = min(run.since, look.at - _least_age(look)), age is not None


def _add_progress(run: Run, before: Look | None, look: Look, place: float) -> None:
    age, is_first = look.seen.step_age, run.position is None
    earliest = -inf if before is None else before.at  # a step other than that of the previous look was made since then
    made = max(earliest, look.at - _least_age(look))
    if is_first:
        run.first_step_at = run.since = made
    else:
        steps, is_watched = place - (run.position or 0.0), _is_watched(run)
        usual = _usual_step_time(run) if is_watched and age is None and look.seen.log_age is None else None
        if is_watched and made > run.position_at:
            run.advances.append(Advance(run.position_at, made, steps, look.seen.steps_per_second))
        _move(run, made)
        if usual is not None:
            run.since = min(made, max(earliest, run.position_at + steps * usual))
    run.moved = run.moved or before is not None
    run.position, run.position_at, run.made_within = place, made, look.at - earliest
    run.since_known, run.rotated, run.waiting = age is not None or before is not None, False, [look]


def _usual_step_time(run: Run) -> float | None:
    """Return the usual step time, to tell from the number of new steps when the newest of them was made."""
    newest = run.advances[-20:]
    return median(each.step_time for each in newest) if run.by_step and len(newest) >= 5 else None


def _least_age(look: Look) -> float:
    """Return the least age of its newest step: as old as the log, whatever follows the step."""
    age = look.seen.log_age if look.seen.step_age is None else look.seen.step_age
    return age or 0.0


def _is_watched(run: Run) -> bool:
    """Whether no look since the last movement has a gap before it."""
    return all(each.gap is None for each in run.waiting[1:])


def _move(run: Run, made: float) -> None:
    if _is_watched(run):
        run.moves.append(Move(run.since, max(made, run.since), *_pause_within(run, made)))
    run.since = made


def _is_other_process(before: Observation, look: Observation) -> bool:
    if before.is_running is False and look.is_running:  # what has ended does not go on
        return True
    if before.process is not None and look.process is not None:
        return before.process != look.process
    return before.runtime is not None and look.runtime is not None and look.runtime < before.runtime - 60.0


def _is_shorter(before: Observation, look: Observation) -> bool:
    return before.log_size is not None and look.log_size is not None and look.log_size < before.log_size


def _epoch_moved(before: Observation, look: Observation) -> bool:
    return before.epoch is not None and look.epoch is not None and look.epoch > before.epoch


def _is_saved(before: Look | None, look: Look) -> bool:
    """Whether a checkpoint file was written since the previous look."""
    if before is None or look.seen.file_age is None or look.seen.file_age < 0:
        return False
    known = before.at if before.seen.file_age is None else before.at - before.seen.file_age
    return look.at - look.seen.file_age > known + FILE_CLOCK


def _loss_moved(before: Observation, look: Observation) -> bool:
    """Whether the loss changed, which shows training in a log without steps."""
    if before.loss is None or look.loss is None:
        return False
    return isfinite(before.loss) and isfinite(look.loss) and before.loss != look.loss


# ---------------------------------------------------------------- time


def _timeline(seen: Sequence[Observation]) -> tuple[list[Look], float]:
    """Return the looks on the run's own time, ending at the last timestamp, and the usual time between new ones."""
    known = [_awake_between(a, b) for a, b in zip(seen, seen[1:])]
    spans = [
        max(0.0, b.timestamp - a.timestamp) if awake is None else awake for awake, a, b in zip(known, seen, seen[1:])
    ]
    poll = median(spans[-20:]) if spans else 60.0
    usual = min(poll, median(spans)) if spans else poll
    looks, at = [Look(0.0, seen[0])], 0.0
    for index, (span, awake) in enumerate(zip(spans, known)):
        at += span
        jumped_back = seen[index + 1].timestamp <= seen[index].timestamp
        gap = awake is None and (jumped_back or (span > 3.0 * usual + 30.0 and _stands_out(spans, index)))
        looks.append(Look(at, seen[index + 1], span if gap else None))
    shift = seen[-1].timestamp - at
    before = None
    for look in looks:
        look.at += shift
        look.mode = gpu_mode(look.seen.gpu_utilization, look.seen.gpu_power_fraction)
        look.mode_at = look.at
        lasts = before is not None and before.mode != "busy" and look.at - before.mode_at < LASTING_MODE
        if look.mode is None and before is not None and lasts:
            look.mode, look.mode_at = before.mode, before.mode_at
        before = look
    return looks, poll


def _awake_between(before: Observation, look: Observation) -> float | None:
    if before.suspended and look.suspended:
        return 0.0
    if before.awake_seconds is None or look.awake_seconds is None or before.boot != look.boot:
        return None
    return look.awake_seconds - before.awake_seconds if look.awake_seconds >= before.awake_seconds else None


def _stands_out(spans: Sequence[float], index: int) -> bool:
    """Whether this interval is unusually long among its neighbours; older, thinned looks may be farther apart."""
    sides = [part for part in (spans[max(0, index - 5) : index], spans[index + 1 : index + 6]) if part]
    return spans[index] > 3.0 * max((median(part) for part in sides), default=spans[index]) + 30.0


# ---------------------------------------------------------------- signs


def _sign(before: Look | None, look: Look, run: Run) -> str:
    """Return the sign of a look, also from what changed since the previous look and since the run moved."""
    seen = look.seen
    cores, writes = _rates(before, look)
    mode = look.mode
    works = None if cores is None else cores >= WORKING_CORES
    if (writes or 0.0) >= WORKING_WRITES or _has_fresh_file(look, run):
        return "saving"
    if mode == "busy":
        return "busy"
    if seen.compilers and works is not False:
        return "compiling"
    if mode == "spinning":
        return "spinning"
    if works:
        return "computing"
    if works is False and (mode == "idle" or writes is not None):
        return "blocked" if before is not None and before.seen.blocked and look.seen.blocked else "quiet"
    return "idle" if mode == "idle" else "unknown"


def _has_fresh_file(look: Look, run: Run) -> bool:
    age = look.seen.file_age
    if age is None or not 0 <= age < FRESH_FILE:
        return False
    return not run.since_known or look.at - age > run.since - FILE_CLOCK


def _rates(before: Look | None, look: Look) -> tuple[float | None, float | None]:
    """Return (cores that it uses or waits for, bytes written per second), since the previous look or else during it."""
    now, then = look.seen, before.seen if before else None
    span = look.at - before.at if before else 0.0
    cores, writes, waits = now.cpu_cores, now.write_rate, now.delay_cores
    if then is not None and span >= 5.0 and look.gap is None and not _is_other_process(then, now):
        if now.cpu_seconds is not None and then.cpu_seconds is not None:
            cores = max(0.0, now.cpu_seconds - then.cpu_seconds) / span
        if now.written_bytes is not None and then.written_bytes is not None:
            writes = max(0, now.written_bytes - then.written_bytes) / span
        if now.delay_seconds is not None and then.delay_seconds is not None:
            waits = max(0.0, now.delay_seconds - then.delay_seconds) / span
    return None if cores is None else cores + (waits or 0.0), writes


def kind_of(looks: Sequence[Look]) -> tuple[str, int]:
    """Return (the kind of a pause at its end, the index of the look where it begins).

    While the last look shows work, the kind is that work; else what the looks since the last work have in common: phase
    | spinning | blocked | quiet | spoken | idle | growing | unknown. `looks` begins with the one that saw the last
    step.
    """
    if looks[-1].sign in ALIVE:
        return looks[-1].sign, len(looks) - 1
    begin = next((at for at in range(len(looks) - 1, 0, -1) if looks[at].sign in ALIVE), 0)
    still = looks[begin + 1 :] or looks[-1:]
    signs = [each.sign for each in still if each.sign != "unknown"]
    sign = max(("spinning", "blocked", "quiet", "idle"), key=signs.count) if signs else "unknown"
    if sign == "spinning" and len(looks) > 1 == sum(each.sign == sign for each in looks[begin:]):
        sign = "unknown"  # working GPUs look like it for a moment
    if sign not in ("quiet", "blocked") and any(
        (each.seen.phase or "").lower().startswith(PHASES) for each in looks[-3:]
    ):
        return "phase", begin
    return _heard(sign, looks[begin:]), begin


def _heard(sign: str, looks: Sequence[Look]) -> str:
    """Refine the kind by what the log printed meanwhile other than steps. A heartbeat excuses nothing."""
    count, growths = _growths(looks)
    if grows_with_news(looks):
        return "growing"
    if sign == "spinning" or looks[-1].seen.heartbeat:
        return sign
    if sign in ("quiet", "blocked"):  # a steady report may excuse it
        in_phase = (looks[-1].seen.phase or "").lower().startswith(PHASES)
        return "spoken" if in_phase or (growths > count // 2 and count > 4) else sign
    if growths > count // 3:
        return "growing"
    return "spoken" if growths and sign == "idle" else sign


def has_grown(looks: Sequence[Look]) -> bool:
    """Whether its log was seen to grow."""
    sizes = _log_sizes(looks)
    return bool(sizes) and sizes[-1] > sizes[0]


def grows_with_news(looks: Sequence[Look]) -> bool:
    """Whether the log grows steadily, by lines that are known to report something other than the time."""
    count, growths = _growths(looks)
    return looks[-1].seen.heartbeat is False and growths > count // 3


def _growths(looks: Sequence[Look]) -> tuple[int, int]:
    """Return how many looks saw the size of its log, and how often it had grown since the one before."""
    sizes = _log_sizes(looks)
    return len(sizes), sum(b > a for a, b in zip(sizes, sizes[1:]))


def _log_sizes(looks: Sequence[Look]) -> list[int]:
    return [each.seen.log_size for each in looks if each.seen.log_size is not None]


def _pause_within(run: Run, made: float) -> tuple[str, float]:
    """Return (kind, seconds) of the longest time without work before something moved at `made`."""
    *looks, end = run.waiting
    if len(looks) < 2:
        return "busy", min(max(0.0, made - run.since), 2.0 * run.poll)
    kind, _ = kind_of(looks)
    marks = [looks[0].at, *(each.at for each in looks[1:] if each.sign in ALIVE), end.at]
    longest = max(b - a for a, b in zip(marks, marks[1:]))
    return kind, min(longest, looks[-1].at - looks[0].at + 2.0 * run.poll, max(0.0, made - run.since) + run.poll)


# ---------------------------------------------------------------- keeping


def thin_looks(observations: Sequence[Observation], most: int) -> list[Observation]:
    """Thin the observations to at most `most`, keeping the newer half and the first eighth, which shows the past speed.

    Of those between, every second one is dropped, first within series that show the same. The last one before the
    newest step and the first one that saw it are kept, so that the silence stays the same.
    """
    kept = list(observations)
    while len(kept) > most:
        first = _first_of_newest(kept)
        begin, end = most // 8, max(most // 8 + 2, len(kept) - most // 2)
        between = [at for at in range(begin, end) if not first - 1 <= at <= first]
        shown = [(each.step, each.epoch, each.loss) for each in kept[: end + 1]]
        still = [at for at in between if 0 < at < len(shown) - 1 and shown[at - 1] == shown[at] == shown[at + 1]]
        dropped = set(still[1::2] or [at for at in between if at % 2])
        kept = [each for at, each in enumerate(kept) if at not in dropped]
    return kept


def _first_of_newest(seen: Sequence[Observation]) -> int:
    """Return the index of the first look at the newest place."""
    places = [place_of(each) for each in seen]
    newest = next((place for place in reversed(places) if place is not None), None)
    return next((at for at in range(len(places) - 1, -1, -1) if places[at] not in (newest, None)), -1) + 1


def place_of(seen: Observation) -> tuple[float | None, ...] | None:
    """Return what changes during training: the step, else epoch and loss; None if there are none of them."""
    if seen.step is not None:
        return (seen.step,)
    return (seen.epoch, seen.loss) if seen.epoch is not None or seen.loss is not None else None
