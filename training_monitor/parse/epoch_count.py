"""How many epochs of a job are done, and whether a counter that stands beside an epoch counts the job or the epoch.

What decides, line by line:

- `Epoch 2/3 | Step 500/1000`: a counter of the same total that falls from one epoch to the next counts the epoch; one
  that rises over the end of an epoch counts the job, as does one whose total was announced as the job's. A position
  that the epoch rules out (half of the steps in the first of three epochs) is one in the epoch. While the log has shown
  neither, a counter behind an epoch counts the epoch, any other one the job.
- An epoch begun is not an epoch done: `Epoch 3/3` alone is two epochs. A line that reports a result of the epoch (a
  loss, `val_acc`, "finished") and counts no steps is printed at its end, unless the log prints several for one epoch.
- A fraction (`'epoch': 1.53`) counts epochs done; a bar of epochs as well.
- Epochs count from one, unless the log showed an epoch 0 or its format counts from zero. From zero, a bare `0/24` names
  the last epoch (25 epochs), and `[0/24]` how many there are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

# MetricLogger and the ImageNet example; Lightning; Swin and timm; Composer
_FROM_ZERO = re.compile(
    r"\bepoch: ?\[\s{0,9}\d{1,9}\]|\bv_num\s?[=:]|(?<!\w)train: ?\[?\s{0,6}\d{1,9}(?:/\d{1,9})? ?\]? ?\["
    r"|^train\s{1,12}epoch\b"
)
_FRACTION = re.compile(r"[\"']epoch[\"']: ?(?:\d{1,9}\.\d|[\"']\d)")
_RESULT = re.compile(
    r"(?<![a-z])(?:loss|acc|accuracy|auc|f1|bleu|perplexity|ppl|miou|map|reward|error|score)\w{0,20}[\"']?"
    r"\s?(?:[:=]|\s)\s?(?:[\d\-]|nan)"
    r"|\btotal time\b|\bepoch\s?[:#]?\s{0,3}\[?\d{1,9}(?:/\d{1,9})?\]?:?,? (?:is |has |was )?"
    r"(?:took|finished|completed?|done|ended)\b|\b(?:finished|completed|end of) (?:training )?epoch\b"
)
_KERAS_EPOCH_END = re.compile(r"(?:^|\s)(\d{1,9})/\1 (?:\[={1,80}\] )?- \d")
_FEWEST_SAMPLES = 4  # of a log, that can show what its counter counts
_UNEVEN = 1.5  # steps by which the epochs of a job may differ


@dataclass
class EpochCount:
    """What was seen so far; feed it the fields of each line in text order.

    Attributes:
        first: the number of the first epoch; None while that is not known.
        epochs: how many epochs the job makes.
        fractional: epochs are written as a fraction of the job done.
        epoch, done: the newest epoch, and how many were done by then.
        step, steps, counted_in: the newest counter, its total, and the epoch it stood in.
        job_steps, epoch_steps: a total that was found to count the job, and one that was found to count an epoch.
        announced: the steps of the job, as its beginning said.
        before: steps of the epochs before this one, of a log that does not tell how many an epoch has.
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

    def restart(self) -> None:
        """Forget where the job stood: another attempt begins."""
        self.epoch = self.done = self.step = self.counted_in = self.reported = None
        self.before = 0

    def learn_from_samples(self, counters: Sequence[tuple[float | None, int | None, int | None]]) -> EpochCount:
        """What counters seen in places spread evenly over a log show: where epochs begin, and what a counter counts.

        A counter of the epoch passes through all its values in each epoch, so that some of the samples would stand
        where the epoch rules out a counter of the job.

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
        """Take the totals that the beginning or the end of a log names."""
        self.epochs = fields.get("total_epochs", self.epochs)
        self.announced = fields.get("total_steps", self.announced)
        return {"epochs_planned": self.epochs} if "total_epochs" in fields else {}

    def read(self, fields: Mapping[str, Any], text: str) -> dict[str, Any]:
        """The fields of one line with its counter under the right name, and how many epochs are done.

        Args:
            fields: of `Progress`, as the line alone shows them.
            text: the line in small letters.
        """
        found = dict(fields)
        counts = found.keys() & {"step", "epoch_step", "epoch"}
        epoch = found.get("epoch", self.epoch) if counts else None
        if epoch is None or not math.isfinite(epoch):
            return found | self._read_end(text)
        self._learn_numbers(found, text)
        if not self.fractional and self.epochs != 1:
            self._learn_counter(found, epoch)
            found = self._renamed(found)
        self.done = self._done(found, epoch, text)
        self.epoch = epoch
        found["epochs_done"] = self.done
        if self.epochs is not None:
            found["epochs_planned"] = self.epochs
        if found.get("epoch_step") is not None and found.get("epoch_steps") is None:
            found["steps_before"] = self.before
        return found

    def _read_end(self, text: str) -> dict[str, Any]:
        """What a line tells that counts nothing itself: Keras closes an epoch so, and evaluates behind its last one."""
        if self.epoch is None or self.fractional or not _KERAS_EPOCH_END.search(text):
            return {}
        self.done = min(max(0.0, self.epoch - self._first()) + 1.0, float(self.epochs or self.epoch + 1))
        return {"epochs_done": self.done}

    def _learn_numbers(self, found: Mapping[str, Any], text: str) -> None:
        """Whether epochs count from zero or one, or are fractions, and how many there are."""
        epoch, total = found.get("epoch"), found.get("total_epochs")
        if epoch is None:
            return
        self.fractional = self.fractional or epoch != int(epoch) or _FRACTION.search(text) is not None
        if not self.fractional and (epoch == 0 or _FROM_ZERO.search(text)):
            self.first = 0
        if total is not None:
            bare = f"[{epoch:.0f}/{total}]" not in text.replace(" ", "")
            names_last = self.first == 0 and "epochs_done" not in found and (bare or epoch == total)
            self.epochs = total + 1 if names_last else total

    def _learn_counter(self, found: Mapping[str, Any], epoch: float) -> None:
        """Compare the counter of a line with the one before."""
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
        """The counter under the name of what it counts."""
        if found.get("epoch_steps") and found["epoch_steps"] == self.job_steps and found.get("step") is None:
            found.update(step=found["epoch_step"], total_steps=found["epoch_steps"], epoch_step=None, epoch_steps=None)
            found["eta_scope"] = found.get("eta_scope") and "job"
        elif found.get("total_steps") and found["total_steps"] == self.epoch_steps and found.get("epoch_step") is None:
            found.update(epoch_step=found["step"], epoch_steps=found["total_steps"], step=None, total_steps=None)
        return found

    def _done(self, found: Mapping[str, Any], epoch: float, text: str) -> float:
        """How many epochs were done when the line was printed."""
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
        if job_step is None and _RESULT.search(text) and self._ends(epoch):
            return min(most, begun + 1.0)
        same = self.done if epoch == self.epoch and not self.several else None
        return min(most, max(begun, same or 0.0))

    def _ends(self, epoch: float) -> bool:
        """Whether a line with a result of an epoch is its end: those that print several do so in between."""
        self.several = self.several or epoch == self.reported
        self.reported = epoch
        return not self.several

    def _first(self) -> int:
        return 1 if self.first is None else self.first

    # ------------------------------------------------------------ keeping

    def to_state(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> EpochCount:
        """Continue from what `to_state` gave."""
        return cls(**state)
