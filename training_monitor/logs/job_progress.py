"""Compute the position of a job: its step and total over all epochs, the fraction done, and the time left. Pure.

Every display, notice, forecast and verdict takes its numbers from here. `EpochCount` tells how many epochs are done and
whether a counter beside an epoch counts the job or the epoch, line by line:

- `Epoch 2/3 | Step 500/1000`: a counter with the same total that falls from one epoch to the next counts the epoch; one
  that rises across the end of an epoch counts the job, as does one whose total was announced as the job's. A position
  that does not fit the epoch (half of the steps in the first of three epochs) is one within the epoch. Without such
  evidence, a counter after an epoch counts the epoch, and any other one the job.
- A begun epoch is not done: `Epoch 3/3` alone means two epochs. A line with a result of the epoch (a loss, `val_acc`,
  "finished") and without steps marks its end, unless the log prints several for one epoch.
- A fraction (`'epoch': 1.53`) counts epochs done, and so does a bar of epochs.
- Epochs count from one, unless the log showed an epoch 0 or its format counts from zero. From zero, a bare `0/24` names
  the last epoch (25 epochs), and `[0/24]` the number of epochs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from training_monitor.core.models import JobStatus, Progress
from training_monitor.core.regex import regex

# MetricLogger and the ImageNet example; Lightning; Swin and timm; Composer
_FROM_ZERO = regex(
    r"\bepoch: ?\[\s{0,9}\d{1,9}\]|\bv_num\s?[=:]|(?<!\w)train: ?\[?\s{0,6}\d{1,9}(?:/\d{1,9})? ?\]? ?\["
    r"|^train\s{2,12}epoch\b"
)
_FRACTION = regex(r"[\"']epoch[\"']: ?(?:\d{1,9}\.\d|[\"']\d)")
_RESULT = regex(
    r"(?<![a-z])(?:loss|acc|accuracy|auc|f\d|bleu|perplexity|ppl|miou|map|reward|error|score)\w{0,20}[\"']?"
    r"\s?(?:[:=]|\s)\s?(?:[\d\-]|nan)"
    r"|\btotal time\b|\bepoch\s?[:#]?\s{0,3}\[?\d{1,9}(?:/\d{1,9})?\]?:?,? (?:is |has |was )?"
    r"(?:took|finished|completed?|done|ended)\b|\b(?:finished|completed|end of) (?:training )?epoch\b"
)
_PERCENT = regex(r"\bepochs?\W{0,3}\d{1,9}(?:/\d{1,9})?[^\w%]{1,80}\d{1,2}(?:\.\d{1,9})? ?%(?! acc)")  # below 100
_KERAS_EPOCH_END = regex(r"(?:^|\s)(\d{1,9})/\1 (?:\[={1,80}\] )?- \d")
_KERAS_BAR = regex(r"\d/\d{1,9} (?:\[={1,80}\] )?- \d")
_FEWEST_SAMPLES = 4  # samples of a log that suffice to show what its counter counts
_UNEVEN = 1.5  # steps by which the epochs of a job may differ
LONGEST_ETA = 10 * 365 * 86_400.0  # seconds; a longer forecast is discarded
_MOST_STEPS = 1e15
_MOST_BEYOND = 1.05  # of the total: the greatest step that can be the last one
_SAME_UNIT = 0.02  # of an epoch: how far step and epochs may disagree and still count the same steps


class EpochSigns(NamedTuple):
    """What the words of a line say of epochs: they count from 0, are fractions, have a result, or may have ended."""

    from_zero: bool
    fraction: bool
    result: bool
    may_end: bool


def epoch_signs(text: str, shows_fields: bool = True) -> EpochSigns:
    """Return the signs in a line in lower case; the same for all lines of its shape."""
    return EpochSigns(
        from_zero=shows_fields and _FROM_ZERO.search(text) is not None,
        fraction=shows_fields and _FRACTION.search(text) is not None,
        result=shows_fields and _RESULT.search(text) is not None and not _PERCENT.search(text),
        may_end=_KERAS_BAR.search(text) is not None,
    )


@dataclass
class EpochCount:
    """What was seen of a log so far; takes the fields of each line in text order.

    Attributes:
        first: the number of the first epoch; None if unknown.
        epochs: the number of epochs of the job.
        fractional: epochs are written as the fraction of the job done.
        epoch, done: the newest epoch, and how many were done by then.
        step, steps, counted_in: the newest counter, its total, and the epoch of its line.
        job_steps, epoch_steps: a total found to count the job, and one found to count an epoch.
        announced: the steps of the job, as announced at its beginning.
        before: steps of earlier epochs, in a log that does not say how many an epoch has.
        reported: the newest epoch with a result; several: epochs have more than one line with results.
    """

    first: int | None = None
    epochs: int | None = None
    fractional: bool = False
    epoch: float | None = None
    done: float | None = None
    step: int | None = None
    steps: int | None = None
    counted_in: float | None = None
    job_steps: int | None = None
    epoch_steps: int | None = None
    announced: int | None = None
    before: int = 0
    reported: float | None = None
    several: bool = False

    @property
    def learned(self) -> tuple[object, ...]:
        """What decides how later lines are read; the rest is the position, which each line replaces."""
        known = (self.first, self.epochs, self.fractional, self.job_steps, self.epoch_steps, self.announced)
        if self.fractional:
            return known
        return (*known, self.before, self.epoch, self.counted_in, self.steps, self.reported, self.several)

    def learns_nothing_from(self, fields: Mapping[str, Any], text: str) -> bool:
        """Whether nothing is learned from lines that differ from one, from which nothing was, in their counter only."""
        may_be_announced = self.announced is not None and self.announced == self.steps != self.job_steps
        return not (may_be_announced or (self.first == 0 and _may_bracket_epoch(fields.get("total_epochs"), text)))

    def restart(self) -> None:
        """Forget the job's position: another attempt begins."""
        self.epoch = self.done = self.step = self.steps = self.counted_in = self.reported = None
        self.before = 0

    def learn_from_samples(self, counters: Sequence[tuple[float | None, int | None, int | None]]) -> EpochCount:
        """Return what counters from evenly spread places of a log show: where epochs begin, and what a counter counts.

        A counter of the epoch takes all its values in each epoch, so some of the samples would not fit a counter of the
        job.

        Args:
            counters: (epoch, step, steps) in text order, read with this object.
        """
        same = [(epoch, step) for epoch, step, steps in counters if steps and steps == self.steps]
        inside = [self._may_count_job(step or 0, self.steps or 0, epoch) for epoch, step in same]
        spans_epochs = len({epoch for epoch, _ in same}) > 1 and len(same) >= _FEWEST_SAMPLES
        counts_job = spans_epochs and all(inside)
        return EpochCount(
            first=self.first,
            job_steps=self.steps if counts_job else None,
            epoch_steps=self.epoch_steps if not counts_job else None,
        )

    def announce(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Store the totals that the beginning or end of a log names."""
        self.epochs = fields.get("total_epochs", self.epochs)
        self.announced = fields.get("total_steps", self.announced)
        return {"epochs_planned": self.epochs} if "total_epochs" in fields else {}

    def read(self, fields: Mapping[str, Any], text: str, signs: EpochSigns) -> dict[str, Any]:
        """Return the fields of one line with its counter under the right name, and the epochs done.

        Args:
            fields: of `Progress`, as the line alone shows them.
            text: the line in lower case.
            signs: those in the line.
        """
        found = dict(fields)
        counts = "step" in found or "epoch_step" in found or "epoch" in found
        epoch = found.get("epoch", self.epoch) if counts else None
        if epoch is None or not math.isfinite(epoch):
            return found | self._read_end(text) if signs.may_end else found
        self._learn_numbers(found, text, signs)
        if not self.fractional and self.epochs != 1:
            self._learn_counter(found, epoch)
            found = self._renamed(found)
        self.done = self._done(found, epoch, signs)
        self.epoch = epoch
        found["epochs_done"] = self.done
        if self.epochs is not None:
            found["epochs_planned"] = self.epochs
        if found.get("epoch_step") is not None and found.get("epoch_steps") is None:
            found["steps_before"] = self.before
        return found

    def _read_end(self, text: str) -> dict[str, Any]:
        """Read a line without counters: Keras ends an epoch with one, and evaluates after the last epoch."""
        if self.epoch is None or self.fractional or not _KERAS_EPOCH_END.search(text):
            return {}
        self.done = min(max(0.0, self.epoch - self._first()) + 1.0, float(self.epochs or self.epoch + 1))
        return {"epochs_done": self.done}

    def _learn_numbers(self, found: Mapping[str, Any], text: str, signs: EpochSigns) -> None:
        """Learn whether epochs count from zero or one or are fractions, and how many there are."""
        epoch, total = found.get("epoch"), found.get("total_epochs")
        if epoch is None:
            return
        self.fractional = self.fractional or epoch != int(epoch) or signs.fraction
        if not self.fractional and (epoch == 0 or signs.from_zero):
            self.first = 0
        if total is not None:
            bare = f"[{epoch:.0f}/{total}]" not in text.replace(" ", "")
            names_last = self.first == 0 and "epochs_done" not in found and (bare or epoch == total)
            self.epochs = total + 1 if names_last else total

    def _learn_counter(self, found: Mapping[str, Any], epoch: float) -> None:
        """Compare the counter of a line with the previous one."""
        inside = found.get("epoch_step") is not None
        names = ("epoch_step", "epoch_steps") if inside else ("step", "total_steps")
        step, steps = found.get(names[0]), found.get(names[1])
        if step is None or (inside and found.get("step") is not None):
            return
        later = self.counted_in is not None and epoch > self.counted_in and steps == self.steps
        before = self.step or 0
        if steps is None:
            self.before += before if later and inside and step < before else 0
        elif later and (step < before or (step == before and inside)):
            self.epoch_steps, self.job_steps = steps, None
        elif steps == self.announced or (later and inside and self._may_count_job(before, steps, self.counted_in)):
            self.job_steps = steps if self._may_count_job(step, steps, epoch) else self.job_steps
        self.step, self.steps, self.counted_in = step, steps, epoch

    def _may_count_job(self, step: int, steps: int, epoch: float | None) -> bool:
        """Whether the job can be at `step` of `steps` in that epoch."""
        if not self.epochs or epoch is None or steps <= 0:
            return False
        begun = (epoch - self._first()) * steps / self.epochs
        return begun - _UNEVEN <= step <= begun + steps / self.epochs + _UNEVEN

    def _renamed(self, found: dict[str, Any]) -> dict[str, Any]:
        """Rename the counter to what it counts."""
        if found.get("epoch_steps") and found["epoch_steps"] == self.job_steps and found.get("step") is None:
            found.update(step=found["epoch_step"], total_steps=found["epoch_steps"], epoch_step=None, epoch_steps=None)
            found["eta_scope"] = found.get("eta_scope") and "job"
        elif found.get("total_steps") and found["total_steps"] == self.epoch_steps and found.get("epoch_step") is None:
            found.update(epoch_step=found["step"], epoch_steps=found["total_steps"], step=None, total_steps=None)
        return found

    def _done(self, found: Mapping[str, Any], epoch: float, signs: EpochSigns) -> float:
        """Return how many epochs were done when the line was printed."""
        if "epochs_done" in found:
            return float(found["epochs_done"])
        if self.fractional:
            return epoch
        begun, most = max(0.0, epoch - self._first()), float(self.epochs or epoch + 1)
        step, steps = found.get("epoch_step"), found.get("epoch_steps")
        job_step, job_steps = found.get("step"), found.get("total_steps")
        if step is not None:
            return min(most, begun + (min(1.0, step / steps) if steps else 0.0))
        if job_step is not None and job_steps and self.epochs and job_steps == self.job_steps:
            return min(most, float(self.epochs * job_step / job_steps))
        if job_step is None and signs.result and self._ends(epoch):
            return min(most, begun + 1.0)
        same = self.done if epoch == self.epoch and not self.several else None
        return min(most, max(begun, same or 0.0))

    def _ends(self, epoch: float) -> bool:
        """Whether a line with a result ends its epoch: logs with several results per epoch print them in between."""
        self.several = self.several or epoch == self.reported
        self.reported = epoch
        return not self.several

    def _first(self) -> int:
        return 1 if self.first is None else self.first


def _may_bracket_epoch(total: int | None, text: str) -> bool:
    """Whether `[counter/total]` may stand for the epoch in a line although it is another counter."""
    text = text.replace(" ", "")
    return f"/{total}]" in text and len(re.findall(rf"/0*{total}(?!\d)", text)) > 1


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The position of a job; None means unknown.

    Attributes:
        step, total_steps: of the job, over all epochs.
        epoch, total_epochs: epochs done, including the fraction of the current one, and their total.
        fraction: of the job that is done, 0 to 1: of its steps, or else of its epochs.
        eta_seconds: until its last step.
    """

    step: int | None = None
    total_steps: int | None = None
    epoch: float | None = None
    total_epochs: int | None = None
    fraction: float | None = None
    eta_seconds: float | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the job has done all of its work."""
        return self.fraction == 1.0


def job_progress(progress: Progress) -> JobProgress:
    """Return the position of the job from the newest progress of its log."""
    done = progress.epochs_done
    if done is not None and not math.isfinite(done):
        done = None
    epochs = progress.total_epochs if progress.epochs_planned is None else progress.epochs_planned
    step = _step(progress, done)
    total = _total(progress, step, done, epochs)
    fraction = _share(step, total)
    return JobProgress(
        step=step,
        total_steps=total,
        epoch=done,
        total_epochs=epochs,
        fraction=_share(done, epochs) if fraction is None else fraction,
        eta_seconds=_eta(progress, step, total),
    )


def format_position(job: JobProgress) -> str:
    """Format as `step 1500/3000` or `step 1500`; without a step `epoch 1.5/3`; `step ?` if nothing is known."""
    if job.step is None and job.epoch is not None:
        return f"epoch {round(job.epoch, 2):g}" + (f"/{job.total_epochs}" if job.total_epochs else "")
    return f"step {'?' if job.step is None else job.step}" + (f"/{job.total_steps}" if job.total_steps else "")


def format_standing(status: JobStatus, progress: Progress, message: str | None) -> str:
    """Format as `RUNNING step 1500/3000`; of a job that has not started, say what it waits for, if that is known."""
    if status is JobStatus.PENDING:
        return f"{status}: {message}" if message else f"{status}"
    return f"{status} {format_position(job_progress(progress))}"


def _step(progress: Progress, done: float | None) -> int | None:
    """Return the step of the job, or else compute it from the counter of the epoch and the epochs done."""
    inside, steps = progress.epoch_step, progress.epoch_steps
    if progress.step is not None or inside is None:
        return progress.step
    if not steps:
        before = progress.steps_before if done is None or done >= 1 else 0
        return None if before is None else before + inside
    return round(done * steps) if done is not None and done * steps < _MOST_STEPS else None


def _total(progress: Progress, step: int | None, done: float | None, epochs: int | None) -> int | None:
    """Return the steps of the job, or else those of all epochs if step and epochs count the same steps.

    If the step is far beyond the printed total, that total counts something else, such as the steps of an epoch. The
    last batch may end a little beyond the true total.
    """
    if (total := progress.total_steps) is not None:
        is_its_own = total > 0 and (step is None or step <= _MOST_BEYOND * total + 1)
        return total if is_its_own else None
    steps = progress.epoch_steps
    if not steps or not epochs or step is None or done is None or steps * epochs > _MOST_STEPS:
        return None
    is_same_unit = abs(step - done * steps) <= max(2.0, _SAME_UNIT * steps)
    return steps * epochs if is_same_unit else None


def _share(done: float | None, total: float | None) -> float | None:
    if done is None or total is None or total <= 0:
        return None
    return min(1.0, max(0.0, done / total))


def _eta(progress: Progress, step: int | None, total: int | None) -> float | None:
    """Return the time left at the job's speed, or else the ETA in its log if that is for the whole job."""
    seconds = progress.eta_seconds if progress.eta_scope == "job" else None
    if step is not None and total is not None:
        left, pace = max(0, total - step), _step_seconds(progress)
        seconds = left * pace if pace is not None else seconds if left else 0.0
    return seconds if seconds is not None and 0 <= seconds <= LONGEST_ETA else None


def _step_seconds(progress: Progress) -> float | None:
    """Return the seconds of a step from the logged speed or from the logged ETA of the epoch."""
    if progress.steps_per_second is not None and 0 < progress.steps_per_second < math.inf:
        return 1.0 / progress.steps_per_second
    inside, steps, left = progress.epoch_step, progress.epoch_steps, progress.eta_seconds
    if progress.eta_scope != "epoch" or left is None or inside is None or steps is None or inside >= steps:
        return None
    return left / (steps - inside)
