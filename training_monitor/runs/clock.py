"""Compute how far a run is and how long it still takes, from given counters and times. Pure.

Times are seconds of a monotonic clock. A clock that goes back counts as one that stood still, so nothing is negative.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from math import ceil
from statistics import median

from training_monitor.core.frozen import dataclass
from training_monitor.runs.batches import MOST_DURATIONS, Part, Span, usual_seconds
from training_monitor.runs.values import Estimate

_LAST_VALIDATIONS = 3  # their median ignores one slow validation, and follows two
IDLE, TRAINING, VALIDATION = "idle", "training", "validation"
LOADING = "loading"


@dataclass(frozen=True, slots=True)
class Estimates:
    """The estimates of docs/progress_files.md."""

    run: Estimate
    epoch: Estimate
    training: Estimate
    validation: Estimate


class RunClock:
    """What a run has reported of its epochs and parts; every method takes the time and the counters at that time.

    `training` and `validation` count batches, `mode` says which of them are being made; `phase` is what is shown.
    """

    def __init__(self, now: float) -> None:
        self.mode, self.phase = IDLE, LOADING
        self.training, self.validation = Part(), Part()
        self.epoch: int | None = None
        self.total_epochs: int | None = None
        self.total_steps: int | None = None  # training batches of the whole run
        self.dataset_ratio: float | None = None
        self.told: Estimate = Estimate()
        self.epoch_durations: deque[float] = deque(maxlen=MOST_DURATIONS)
        self._epochs: deque[Span] = deque(maxlen=MOST_DURATIONS)  # past, of constant speed, without validations
        self._validations: deque[float] = deque(maxlen=_LAST_VALIDATIONS)  # seconds of validation in each past epoch
        self._gaps: deque[float] = deque(maxlen=MOST_DURATIONS)  # seconds between past epochs
        self._started = self._last = self._epoch_started = self._epoch_ended = now
        self._epoch_elapsed: float | None = None  # set when the epoch has ended
        self._in_epoch = self._training_ended = self._from_zero = False
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
        self._from_zero = self._from_zero or epoch == 0
        number = None if epoch is None else epoch + self._from_zero
        self.epoch = (self.epoch or 0) + 1 if number is None else number
        self.total_epochs = self.total_epochs if total_epochs is None else total_epochs
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
            self._epochs.append(replace(self.training.span(), seconds=self._epoch_elapsed - validation))
        self._in_epoch, self.mode = False, IDLE

    def start_training(self, total_batches: int | None) -> None:
        """Begin the training part: inside an epoch the count continues, without epochs it starts here."""
        self._end_part()
        if not self._in_epoch:
            self.training.begin(total_batches)
        elif total_batches is not None:
            self.training.total = total_batches
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
        """Note that the batch that was begun as number `begun` of all has the script's own number `batch`."""
        (self.validation if self.mode == VALIDATION else self.training).place(batch, begun)

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
    def left(self) -> int | None:
        """The training batches of the run that have not begun, if their number was announced."""
        return None if self.total_steps is None else max(0, self.total_steps - self.training.count)

    def estimates(self) -> Estimates:
        """Return all estimates at the time of the last observation; None is what cannot be known yet."""
        rate = self.training.pace.rate() or self.told.rate
        training = self._training(rate)
        validation = self._validation()
        epoch = self._epoch(rate, training.remaining)
        elapsed = self._last - self._started
        return Estimates(_estimate(rate, elapsed, self._run_remaining(epoch.remaining)), epoch, training, validation)

    def _training(self, rate: float | None) -> Estimate:
        part = self.training
        if not part.count and self.told == Estimate():
            return Estimate()
        if not part.count:
            return _estimate(self.told.rate, self.told.elapsed, self.told.remaining)
        if self._ended:
            return _estimate(rate, part.elapsed, None)
        remaining = 0.0 if self._training_ended or self._epoch_elapsed is not None else part.remaining(self.left)
        return _estimate(rate, part.elapsed, self.told.remaining if remaining is None else remaining)

    def _validation(self) -> Estimate:
        part = self.validation
        if self.mode != VALIDATION:
            return Estimate(rate=part.pace.rate())
        remaining = part.remaining()
        if remaining is None and (expected := self._expected_validation()) is not None:
            remaining = max(0.0, expected - part.elapsed)
        return _estimate(part.pace.rate(), part.elapsed, remaining)

    def _epoch(self, rate: float | None, training: float | None) -> Estimate:
        if self.epoch is None:
            return Estimate()
        if self._epoch_elapsed is not None:
            return _estimate(rate, self._epoch_elapsed, None if self._ended and self._in_epoch else 0.0)
        elapsed = self._last - self._epoch_started
        if training is None:
            return Estimate(rate=rate, elapsed=elapsed)
        return _estimate(rate, elapsed, training + self._validation_remaining())

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
        rate, total = self.training.pace.rate(), self.training.expected
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
            training = usual_seconds(self._epochs, self.training.pace.rate())
        elif training is None:
            return median(self.epoch_durations) if self.epoch_durations else None
        return training + (self._expected_validation() or 0.0)


def _estimate(rate: float | None, elapsed: float | None, remaining: float | None) -> Estimate:
    total = None if elapsed is None or remaining is None else elapsed + remaining
    return Estimate(rate, elapsed, remaining, total)
