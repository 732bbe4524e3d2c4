"""Compute how far a run is, how fast it is and how long it still takes, from given counters and times. Pure.

The rate is robust: a pause does not move it, and a lasting change moves it soon. Times are seconds of a monotonic
clock. A clock that goes back counts as one that stood still, so nothing is negative.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, log
from typing import NamedTuple

from training_monitor.core.units import median
from training_monitor.runs.values import Estimate

_LAST_VALIDATIONS = 3  # their median ignores one slow validation, and follows two
IDLE, TRAINING, VALIDATION = "idle", "training", "validation"
LOADING = "loading"
MOST_SAMPLES = 32
_LONGEST_WINDOW = 600.0  # seconds: a steady rate covers the last five to ten minutes
_LEAST_SPACING = 0.2
_APART = 6
_RECENT_SPACING = 2.0
_SPANS = (3, 5, 8, 12, 20)  # the numbers of newest spans that are tested for another speed
_LEAST_SECONDS = 15.0  # the least time that these spans must cover
_LEAST_CHANGE = log(1.1)
_SURE = 6.0  # standard errors
_LEAST_SPREAD = 0.05  # of the logarithms of speeds
MOST_DURATIONS = 16
Sample = tuple[float, int]


class RunClock:
    """What a run has reported of its epochs and parts; every method takes the time and the counters at that time.

    `training` and `validation` count batches, `mode` says which of them are being made; `phase` is what is shown.
    """

    def __init__(self, now: float) -> None:
        self.mode, self.phase = IDLE, LOADING
        self.training, self.validation = Part(), Part()
        self.epoch: int | None = None
        self.total_epochs: int | None = None
        self.total_steps: int | None = None  # training batches of this process
        self._set_before: int | None = None  # see `made_before`: as the script says, and by its own numbers
        self._first: tuple[int | None, int] = None, 0  # the epoch in which this process began, and its batches
        self._first_skipped = 0
        self.from_zero = self._is_own_number = False  # the script's numbers of epochs; whether this epoch has one
        self.dataset_ratio: float | None = None
        self.told: Estimate = Estimate()
        self.epoch_durations: deque[float] = deque(maxlen=MOST_DURATIONS)
        self._epochs: deque[Span] = deque(maxlen=MOST_DURATIONS)  # past, of constant speed, without validations
        self._validations: deque[float] = deque(maxlen=_LAST_VALIDATIONS)  # seconds of validation in each past epoch
        self._gaps: deque[float] = deque(maxlen=MOST_DURATIONS)  # seconds between past epochs
        self._started = self._last = self._epoch_started = self._epoch_ended = now
        self._epoch_elapsed: float | None = None  # set when the epoch has ended
        self._in_epoch = self._training_ended = False
        self._validated = False
        self._validation_seconds = 0.0  # of the run, when this epoch began
        self._phase_before, self._mode_before = LOADING, IDLE
        self._ended = False

    def observe(self, now: float, training: int, validation: int) -> bool:
        """Let time pass and note the counters; True if batches have begun since the last time."""
        passed = max(0.0, now - self._last)
        self._last = max(now, self._last)
        if self.mode == TRAINING:
            self.training.seconds += passed
        elif self.mode == VALIDATION:
            self.validation.seconds += passed
        trained, validated = self.training.observe(training), self.validation.observe(validation)
        if trained and self.mode == IDLE:
            self._train()
        return trained or validated

    # ------------------------------------------------------------ what the script reports

    def start_phase(self, phase: str) -> None:
        self.phase = phase

    def end_phase(self) -> None:
        self.phase = LOADING if self.epoch is None and not self.training.count else TRAINING

    def start_epoch(self, epoch: int | None, total_batches: int | None, total_epochs: int | None) -> None:
        """Begin an epoch, the next one if `epoch` is None; an unfinished one ends here."""
        self.end_epoch()
        if self._epoch_elapsed is not None:
            self._gaps.append(self._last - self._epoch_ended)
        is_first, done = self.epoch is None, (epoch or 0) * (total_batches or 0)
        self.from_zero = self.from_zero or epoch == 0 or (is_first and 0 < done == self._set_before)
        number = None if epoch is None else epoch + self.from_zero
        self._is_own_number = epoch is not None
        self.epoch = (self.epoch or 0) + 1 if number is None else number
        self.total_epochs = self.total_epochs if total_epochs is None else total_epochs
        self._note_first(total_batches)
        self._in_epoch, self._training_ended, self._validated = True, False, False
        self._epoch_started, self._epoch_elapsed = self._last, None
        self._validation_seconds = self.validation.seconds
        self.training.begin(total_batches)
        self._train()

    def end_epoch(self) -> None:
        if not self._in_epoch:
            return
        self._end_part()
        self._epoch_ended = self._last
        self._epoch_elapsed = self._last - self._epoch_started
        self.epoch_durations.append(self._epoch_elapsed)
        self.training.end_epoch()
        validation = self.validation.seconds - self._validation_seconds
        self._validations.append(validation)
        if self.training.is_steady:
            self._epochs.append(self.training.span()._replace(seconds=self._epoch_elapsed - validation))
        self._in_epoch, self.mode = False, IDLE

    def start_training(self, total_batches: int | None) -> None:
        """Begin the training part: inside an epoch the count continues, without epochs it starts here."""
        self._end_part()
        if not self._in_epoch:
            self.training.begin(total_batches)
        elif total_batches is not None:
            self.training.total = total_batches
            self._note_first(total_batches)
        self._training_ended = False
        self._train()

    def end_training(self) -> None:
        if self.mode == TRAINING:
            self.mode = IDLE
            self.training.mark()
        self.training.is_over = True
        self._training_ended = True
        if not self._in_epoch:
            self.training.past.append(self.training.span())

    def start_validation(self, total_batches: int | None) -> None:
        self.end_validation()
        self._mode_before, self.training.is_over = self.mode, True
        self.validation.begin(total_batches)
        self._phase_before, self.phase, self.mode = self.phase, VALIDATION, VALIDATION

    def end_validation(self) -> None:
        if self.mode != VALIDATION:
            return
        self.validation.mark()
        self.validation.past.append(self.validation.span())
        self._validated, self.mode = True, self._mode_before
        if self.phase == VALIDATION:
            self.phase = self._phase_before

    def end_after(self, left: int | None) -> None:
        """Note that the run ends after so many more training batches, even in the middle of an epoch."""
        self.total_steps = None if left is None else self.training.count + left

    def place(self, batch: int, begun: int) -> None:
        """Note that the batch that was begun as number `begun` of all has the script's own number `batch`.

        One above the batches of an epoch is a number of the whole run.
        """
        part = self.validation if self.mode == VALIDATION else self.training
        if part is self.training and part.total and batch + part.from_zero > part.total:
            before = max(0, (self.epoch or 1) - 1) * part.total
            batch -= before if batch + part.from_zero > before else 0
        part.place(batch, begun)
        if part is self.training and begun == 1:
            self._first_skipped = part.skipped

    def count_from_zero(self) -> None:
        """Note that the script's numbers of epochs begin with 0, as those of an earlier process did."""
        if not self.from_zero and self._is_own_number and self.epoch is not None:
            self.epoch += 1
            self._first = (self._first[0] or 0) + 1, self._first[1]
        self.from_zero = True

    def _note_first(self, total_batches: int | None) -> None:
        if not self.training.count:
            self._first = self.epoch, total_batches or 0

    def begin_at(self, step: int) -> None:
        """Note that the run has made so many training batches by now, those of earlier processes included."""
        self._set_before = step - self.training.count

    def end(self) -> None:
        """Stop all spans: the run has ended."""
        self._end_part()
        if self._in_epoch:
            self._epoch_elapsed = self._last - self._epoch_started
        self.mode, self._ended = IDLE, True

    def _end_part(self) -> None:
        self.end_validation()
        self.mode = IDLE

    def _train(self) -> None:
        self.mode = TRAINING
        if self.phase in (LOADING, VALIDATION):
            self.phase = TRAINING

    # ------------------------------------------------------------ what follows from it

    @property
    def is_complete(self) -> bool:
        """Whether the last batch of the last epoch was begun, as far as the script has announced the totals."""
        if self.left is not None:
            return not self.left
        if self.total_epochs is None or self.epoch is None or self.epoch < self.total_epochs:
            return False
        total = self.training.total
        return not self._in_epoch or (total is not None and (self.training.batch or 0) >= total)

    @property
    def made_before(self) -> int:
        """The training batches of earlier processes, else those before the script's own first epoch and batch."""
        if self._set_before is not None:
            return self._set_before
        epoch, batches = self._first
        return max(0, (epoch or 1) - 1) * batches + self._first_skipped

    @property
    def left(self) -> int | None:
        """The training batches of the run that have not begun, if their number was announced."""
        return None if self.total_steps is None else max(0, self.total_steps - self.training.count)

    def estimates(self) -> dict[str, Estimate]:
        """Return the estimates of docs/progress_files.md as of the last observation; None if not known yet."""
        rate = self.training.pace.rate or self.told.rate
        training = self._training(rate)
        validation = self._validation()
        epoch = self._epoch(rate, training.remaining)
        run = _estimate(rate, self._last - self._started, self._run_remaining(epoch.remaining))
        return {"run": run, "epoch": epoch, "training": training, "validation": validation}

    def _training(self, rate: float | None) -> Estimate:
        part = self.training
        if not part.count:
            return _estimate(self.told.rate, self.told.elapsed, self.told.remaining)
        if self._ended:
            return _estimate(rate, part.elapsed, None)
        remaining = 0.0 if self._training_ended or self._epoch_elapsed is not None else part.remaining(self.left)
        return _estimate(rate, part.elapsed, self.told.remaining if remaining is None else remaining)

    def _validation(self) -> Estimate:
        part = self.validation
        if self.mode != VALIDATION:
            return Estimate(rate=part.pace.rate)
        remaining = part.remaining()
        if remaining is None and (expected := self._expected_validation()) is not None:
            remaining = max(0.0, expected - part.elapsed)
        return _estimate(part.pace.rate, part.elapsed, remaining)

    def _epoch(self, rate: float | None, training: float | None) -> Estimate:
        if self.epoch is None:
            return Estimate()
        if self._epoch_elapsed is not None:
            return _estimate(rate, self._epoch_elapsed, None if self._ended and self._in_epoch else 0.0)
        elapsed = self._last - self._epoch_started
        return _estimate(rate, elapsed, None if training is None else training + self._validation_remaining())

    def _validation_remaining(self) -> float:
        """Return the seconds of validation left in this epoch; none is expected without any sign of one."""
        if self.mode == VALIDATION:
            return self._validation().remaining or 0.0
        return 0.0 if self._validated else self._expected_validation() or 0.0

    def _expected_validation(self) -> float | None:
        """Return the duration of an epoch's validation: as in past epochs, else by the sizes of the datasets."""
        if self._validations:
            return median(self._validations)
        seconds = self._training_seconds()
        return None if self.dataset_ratio is None or seconds is None else seconds * self.dataset_ratio

    def _training_seconds(self) -> float | None:
        rate, total = self.training.pace.rate, self.training.expected
        return total / rate if rate and total is not None else None

    def _run_remaining(self, epoch: float | None) -> float | None:
        if self._ended:
            return None
        if self.epoch is None:
            is_all = self.mode == VALIDATION and not self.training.count
            return (self._validation() if is_all else self._training(None)).remaining
        epochs = self._epochs_to_come()
        if epochs is None or epoch is None:
            return None
        if not epochs:
            return epoch
        each = self._epoch_seconds()
        if each is None:
            return None
        validation, whole = self._expected_validation() or 0.0, ceil(epochs)
        return epoch + epochs * max(0.0, each - validation) + whole * validation + self._gaps_remaining(whole)

    def _epochs_to_come(self) -> float | None:
        """Return the epochs after this one; a fraction if the run ends after a number of steps within an epoch."""
        waiting = 0 if self._epoch_elapsed is not None else self.training.waiting(self.left)
        if self.left is not None and waiting is not None:
            later = self.left - waiting
            return later / self.training.expected if later and self.training.expected else float(later > 0)
        if self.total_epochs is None or self.epoch is None:
            return None
        return float(max(0, self.total_epochs - self.epoch))

    def _gaps_remaining(self, epochs: int) -> float:
        """Return the seconds between so many coming epochs, such as for checkpoints."""
        gap = median(self._gaps) if self._gaps else 0.0
        passed = 0.0 if self._in_epoch else self._last - self._epoch_ended
        return epochs * gap - min(gap, passed)

    def _epoch_seconds(self) -> float | None:
        """Return the duration of a whole epoch."""
        training = self._training_seconds()
        if self._epochs:
            training = median(span.at(self.training.pace.rate) for span in self._epochs)
        elif training is None:
            return median(self.epoch_durations) if self.epoch_durations else None
        return training + (self._expected_validation() or 0.0)


def _estimate(rate: float | None, elapsed: float | None, remaining: float | None) -> Estimate:
    total = None if elapsed is None or remaining is None else elapsed + remaining
    return Estimate(rate, elapsed, remaining, total)


# ---------------------------------------------------------------- batches


class Pace:
    """The rate of one kind of batch, in the time spent on such batches.

    At most 32 samples of (seconds, number of the batch that began) are kept. When they are full, every second one is
    dropped, until they reach back ten minutes; then the oldest are dropped. The last 40 spans, each of two seconds or
    of one longer batch, tell whether the speed has changed: then all earlier samples are dropped at once. A pause,
    however long, is in one span, and most spans must agree.

    `rate` in batches per second, None with fewer than two samples, is the median of the slopes between samples that are
    a sixth of all samples apart. With slopes between all pairs, half would cross one pause in the middle and move the
    median; here a pause is in one slope of five.
    """

    def __init__(self) -> None:
        self._samples: list[Sample] = []
        self._recent: deque[Sample] = deque(maxlen=2 * _SPANS[-1] + 1)
        self._spacing = _LEAST_SPACING
        self.rate: float | None = None
        self.changes = 0  # how often the speed has changed

    def add(self, seconds: float, batches: int) -> None:
        """Note that batch number `batches` begins after so many seconds of making them."""
        sample, samples = (seconds, batches), self._samples
        if _is_apart(sample, self._recent, _RECENT_SPACING):
            self._recent.append(sample)
            self._forget_another_speed()
        if not _is_apart(sample, samples, self._spacing if len(samples) > 1 else 0.0):
            return
        samples.append(sample)
        if len(samples) > MOST_SAMPLES:
            if seconds - samples[0][0] < _LONGEST_WINDOW:
                del samples[1::2]
                self._spacing *= 2
            else:
                del samples[0]
        slopes = _slopes(samples, max(1, len(samples) // _APART))
        self.rate = median(slopes) if slopes else None

    def _forget_another_speed(self) -> None:
        """Drop the samples from before the last change of speed."""
        recent = list(self._recent)
        for count in _SPANS:
            before, now = recent[:-count], recent[-count - 1 :]
            if len(before) <= _SPANS[0]:
                return
            if now[-1][0] - now[0][0] >= _LEAST_SECONDS and _is_another_speed(_slopes(before), _slopes(now)):
                self._samples[:] = now[:-1]
                self._recent = deque(now, maxlen=self._recent.maxlen)
                self._spacing = _RECENT_SPACING
                self.changes += 1
                return


def _is_apart(sample: Sample, samples: Sequence[Sample], spacing: float) -> bool:
    """Return whether a sample is newer than the last one by more than so many seconds, and by a batch."""
    return not samples or (sample[1] > samples[-1][1] and sample[0] - samples[-1][0] > spacing)


def _slopes(samples: Sequence[Sample], apart: int = 1) -> list[float]:
    return [(later[1] - earlier[1]) / (later[0] - earlier[0]) for earlier, later in zip(samples, samples[apart:])]


def _is_another_speed(before: Sequence[float], now: Sequence[float]) -> bool:
    """Return whether the medians differ by more than chance, with three of four new spans on the same side."""
    past, present = [log(each) for each in before], [log(each) for each in now]
    usual, away = median(past), median(present) - median(past)
    agreeing = sorted((each - usual) * (1 if away > 0 else -1) for each in present)[len(present) // 4]
    error = max(_spread(past, present), _LEAST_SPREAD) * (1 / len(past) + 1 / len(present)) ** 0.5
    return agreeing >= _LEAST_CHANGE and abs(away) >= _SURE * error


def _spread(*groups: Sequence[float]) -> float:
    """Return the standard deviation within groups, estimated from the median of the deviations."""
    away = [abs(each - median(group)) for group in groups for each in group]
    few = len(away) / (len(away) - len(groups) - 1)
    return 1.4826 * median(away) * few


class Span(NamedTuple):
    """The duration of the batches of a past epoch or validation, pauses included, and their rate.

    `rate` is None if it is unknown, or changed in between.
    """

    seconds: float
    batches: int
    rate: float | None

    def at(self, rate: float | None) -> float:
        """Return the seconds that it would take at this rate, with the same pauses."""
        if not rate or not self.rate:
            return self.seconds
        return max(0.0, self.seconds + self.batches * (1.0 / rate - 1.0 / self.rate))


@dataclass(slots=True)
class Part:
    """The training or the validation batches of a run.

    Attributes:
        total: batches in this epoch. count: batches begun in the whole run, as they were counted.
        first: `count` before this epoch (or this validation).
        skipped: how far the script's own number of the last batch is ahead of the count in this epoch.
        leaps: batches of the whole run that the script's own numbers skipped (negative: counted more than once).
        made, made_of: batches of the last epoch, and its announced total.
        seconds: time spent on such batches in the whole run; before: the part of it before this epoch.
        began_at, changes: number of the last batch, and changes of the pace, before this epoch.
        changed_at: `seconds` when the last batch began; is_over: it has ended, and no other one has begun.
        past: the last epochs.
    """

    total: int | None = None
    count: int = 0
    first: int = 0
    skipped: int = 0
    leaps: int = 0
    from_zero: bool = False
    made: int | None = None
    made_of: int | None = None
    seconds: float = 0.0
    before: float = 0.0
    began_at: int = 0
    changes: int = 0
    changed_at: float = 0.0
    is_over: bool = False
    pace: Pace = field(default_factory=Pace)
    past: deque[Span] = field(default_factory=lambda: deque(maxlen=MOST_DURATIONS))

    def begin(self, total: int | None) -> None:
        """Count from here; with `total` None, keep the known one."""
        self.first, self.before, self.skipped, self.changed_at = self.count, self.seconds, 0, self.seconds
        self.began_at, self.changes = self.count + self.leaps, self.pace.changes
        self.mark()
        if total is not None:
            self.total = total

    def mark(self) -> None:
        """Note that the next batch begins here, or would if there were one."""
        self.pace.add(self.seconds, self.count + self.leaps + 1)

    def observe(self, count: int) -> bool:
        """Note the counter; True if batches have begun."""
        if count <= self.count:
            return False
        self.count, self.changed_at, self.is_over = count, self.seconds, False
        self.pace.add(self.seconds, count + self.leaps)
        return True

    def place(self, batch: int, begun: int) -> None:
        """Note the script's own number of the batch that was begun as number `begun` of all.

        The first number of an epoch may be that of a resume. Later numbers that skip or repeat some tell how many
        batches of `total` a counted one is. A smaller number starts anew.
        """
        self.from_zero = self.from_zero or batch == 0
        counted = max(1, begun - self.first)
        skipped = batch + self.from_zero - counted
        if counted > 1 and skipped >= self.skipped - 1:
            self.leaps += skipped - self.skipped
        self.skipped = skipped

    def end_epoch(self) -> None:
        self.mark()
        self.past.append(self.span())
        self.made, self.made_of = self.batch, self.total

    @property
    def is_steady(self) -> bool:
        """Whether the speed was the same in all of this epoch."""
        return self.changes == self.pace.changes

    def span(self) -> Span:
        """Return this epoch so far."""
        batches = self.count + self.leaps - self.began_at
        return Span(self.elapsed, batches, self.pace.rate if self.is_steady else None)

    @property
    def expected(self) -> int | None:
        """The expected batches of this epoch: those of the last one with the same total, unless that is too few."""
        return self.made if self.made and self.made_of == self.total and self.made >= (self.batch or 0) else self.total

    @property
    def batch(self) -> int | None:
        """The batch that was begun last in this epoch, from 1."""
        done = self.count - self.first
        return done + self.skipped if done else None

    @property
    def elapsed(self) -> float:
        return self.seconds - self.before

    def waiting(self, left: int | None) -> int | None:
        """Return the batches of this epoch that have not begun; None if unknown.

        Args:
            left: batches of the whole run that have not begun; None if the run has no end of its own.
        """
        known = [] if left is None else [left]
        if self.expected is not None:
            known.append(max(0, self.expected - (self.batch or 0)))
        return min(known, default=None)

    def remaining(self, left: int | None = None) -> float | None:
        """Return the seconds until the last batch has ended, by the rate, else by the durations of earlier epochs."""
        rate, waiting = self.pace.rate, self.waiting(left)
        if waiting is None or not rate:
            return max(0.0, median(span.at(rate) for span in self.past) - self.elapsed) if self.past else None
        is_within = self.expected is None or (self.batch or 0) <= self.expected
        is_under_way = self.batch and is_within and not self.is_over
        current = 1.0 - rate * (self.seconds - self.changed_at) if is_under_way else 0.0
        return (waiting + max(0.0, current)) / rate
