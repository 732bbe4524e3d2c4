"""Read the progress that a training log shows, whatever framework wrote it. Pure.

It reads the newest step, epoch, loss, speed and remaining time, in text order; never the largest number. It ignores
validation, download, generation and preprocessing bars, settings echoed at the start (`save_steps=500`), the command
line that Ray prints, the step a run resumed from, and totals that the log does not state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from training_monitor.core.models import Progress
from training_monitor.logs.fields import read_found
from training_monitor.logs.job_progress import EpochCount, EpochSigns, epoch_signs
from training_monitor.logs.parts import (
    ANNOUNCED,
    FAILED_END,
    STARTS,
    Bar,
    Told,
    parts_of,
    read_bar,
    read_header,
    read_spelled_bar,
    row_as_pairs,
    saved_step,
    told_by,
)
from training_monitor.logs.repeats import Repeats
from training_monitor.logs.text import BESIDE, CHAINED, begins_traceback

_MOVES = ("step", "epoch_step", "epoch", "loss")  # what shows that a training goes on
_OF_ATTEMPT = (*_MOVES, "total_steps", "epoch_steps", "epochs_done")
# Fields of `Progress` whose values decide how later pieces are read
_LASTING = ("total_steps", "total_epochs", "epoch_steps", "epochs_planned", "steps_before", "finished")


def parse_progress(text: str) -> Progress:
    """Read the most recent progress from a log, or from the end of a log. Never raises.

    Args:
        text: log text; it may contain `\\r` redraws, colors, and the prefixes of Ray, srun, mpirun and torchrun.

    Returns:
        A Progress with None for values that the text does not contain. `step` and `total_steps` count over the whole
        job; a counter that restarts in each epoch is returned as `epoch_step`, and its maximum as `epoch_steps`. Times
        are in seconds. Throughput is as printed; some frameworks print it per GPU. `eta_scope` is "job" or "epoch".
        `finished` is True if a line clearly reports the end of the training, otherwise None or (see `Progress`) False.
    """
    return read_progress(text, EpochCount())


def read_progress(text: str, epochs: EpochCount) -> Progress:
    """Read the end of a log that counts as `epochs` says."""
    reader = ProgressReader(replace(epochs))
    reader.read_text(text)
    return reader.progress


def read_samples(samples: Sequence[str]) -> EpochCount:
    """Return how a log counts, from samples evenly spread over it in text order; for `read_progress` of its end."""
    epochs, counters = EpochCount(), list[tuple[float | None, int | None, int | None]]()
    for sample in samples:
        reader = ProgressReader(epochs)
        reader.read_text(sample)
        epochs = reader.epochs
        counters.append((epochs.counted_in, epochs.step, epochs.steps))
    return epochs.learn_from_samples(counters)


@dataclass(frozen=True, slots=True)
class _Job:
    """What counts the job: a bar (`key`: its name, "" if unnamed) or a line (None); `measured`: it had a loss."""

    key: str | None
    total: int
    measured: bool


@dataclass
class ProgressReader:
    """Reads the pieces of a log in text order; later values replace earlier ones.

    Attributes:
        epochs: how the log counts.
        shown: the newest values, by the names of `Progress`.
        finished_at: the step and epoch at which the log said that it is finished; None: those of the
            next line. An epoch of -1 is before all others.
        job: what counts the job.
        after_job: a bar after the full one, and its fields.
        again: the bar of `job` began again after it was full, so it does not count the job.
        other_begins, other_total: an unnamed bar of other work comes next, and the total of that bar.
        micro, counted: smaller iterations are counted beside steps, and iterations beside environment steps.
        epochs_drawn: a bar counts several epochs.
        epochs_bar: the name of the bar that is drawn for each epoch, and their number.
        inner_bar: the name and total of the bar that was seen to count within the epoch that it shows.
        columns: of the table that is being read.
        rows, is_steady: the newest numbers in its first column, which counts if they rise evenly, or beside a loss.
        slash, slashed: the newest `Batch 0/900` of a line; whether it is the epoch and the batch rather than the batch
            and its total, None before a second line tells.
        batch, is_size: the newest epoch and `batch 64` without a total; it stays the same while the epoch moves.
        opens: the newest line about epochs was the title of one, and no bar of it has been drawn yet.
        is_broken, is_ignored: there was an exception, and no progress since; the next traceback is of an ignored one.
        was_ignored: the last traceback was, and so are those that are chained to it.
    """

    epochs: EpochCount = field(default_factory=EpochCount)
    shown: dict[str, Any] = field(default_factory=dict)
    finished_at: tuple[int | None, float | None] | None = (None, None)
    job: _Job | None = None
    after_job: tuple[_Job, dict[str, Any]] | None = None
    again: bool = False
    other_begins: bool = False
    other_total: int | None = None
    micro: bool = False
    counted: bool = False
    epochs_drawn: bool = False
    epochs_bar: tuple[str, int] | None = None
    inner_bar: tuple[str, int | None] | None = None
    columns: tuple[str, ...] | None = None
    rows: tuple[int, ...] = ()
    is_steady: bool = False
    slash: tuple[int, int] | None = None
    slashed: bool | None = None
    batch: tuple[float, int] | None = None
    is_size: bool = False
    opens: bool = False
    is_broken: bool = False
    is_ignored: bool = False
    was_ignored: bool = False
    _found: dict[str, Any] = field(default_factory=dict, init=False, repr=False)  # in the newest piece
    _progress: Progress | None = field(default=None, init=False, repr=False)

    @property
    def progress(self) -> Progress:
        """The newest progress; the same object until a piece changes it."""
        if self._progress is None:
            found = self._progress = Progress(**self.shown)
            is_bare = self.job is not None and self.job.key == "" and not self.job.measured
            if is_bare and self._is_full and (found.loss, found.epoch, found.finished) == (None, None, None):
                self._progress = replace(found, finished=False)
        return self._progress

    def read_text(self, text: str) -> None:
        """Read the next lines of the log."""
        for _ in Repeats().read(self, text, []):
            pass

    # ------------------------------------------------------------ for `Repeats`

    @property
    def learned(self) -> object:
        """What decides how later pieces are read; equal as long as nothing was learned."""
        job = self.job, self.after_job is None, self._is_full, self.other_begins, self.other_total, self.finished_at
        drawn = self.epochs_drawn, self.epochs_bar, self.inner_bar, self.again
        broken = self.is_broken, self.is_ignored, self.was_ignored
        signs = self.micro, self.counted, drawn, self.columns, self.is_steady, self.slashed, self.is_size, broken
        unknown = self.opens, self.shown.get("step") is None, self.shown.get("epoch_step") is None
        return self.epochs.learned, [*map(self.shown.get, _LASTING)], unknown, job, signs

    @property
    def most(self) -> float | None:
        """The greatest step that a piece may show without teaching anything; None if none may."""
        if self.shown.get("finished") or self._is_full or self.is_size or self.slash:
            return None
        return min(self.shown.get("total_steps") or math.inf, self.job.total - 1 if self.job else math.inf)

    @property
    def _is_full(self) -> bool:
        return self.job is not None and (self.shown.get("step") or 0) >= self.job.total

    @property
    def _is_partway(self) -> bool:
        """Whether epochs are left, of which the first may be 0, or more steps than some print at a time."""
        epoch, epochs, step, steps = map(self.shown.get, ("epoch", "total_epochs", "step", "total_steps"))
        return bool((epochs and epoch is not None and epoch + 1 < epochs) or (steps and step and step < 0.9 * steps))

    def read_piece(self, piece: str, shape: bytes) -> Mapping[str, Any]:
        """Read a piece; return the fields of `Progress` that it shows."""
        self._found = {}
        self.read(piece, shape)
        return self._found

    def copy(self) -> ProgressReader:
        """Return a reader that continues from here on its own."""
        return replace(self, epochs=replace(self.epochs), shown=dict(self.shown))

    def go_back(self, before: ProgressReader) -> None:
        """Return to the state that `copy` kept."""
        vars(self).update(vars(before))

    # ------------------------------------------------------------ reading

    def read(self, piece: str, shape: bytes | None = None) -> None:
        """Read one piece: its bars, and what other loggers wrote before, between and after them on the same line."""
        for words_at, told, bar in parts_of(piece, shape):
            if told:
                self._read_words(piece[words_at].lower(), told)
            if bar:
                self._read_bar(piece, bar)

    def _read_words(self, line: str, told: Told) -> None:
        if CHAINED.search(line):
            self.is_ignored = self.was_ignored
            return
        was_ignored = self.is_ignored and begins_traceback(line)
        self.is_ignored = BESIDE.match(line) is not None
        self.was_ignored = was_ignored if begins_traceback(line) else self.was_ignored
        starts = told.restart and STARTS.match(line) is not None
        again = starts and self.shown.get("finished")
        if told.restart and not (self.is_ignored or was_ignored or (starts and not again)):
            self._change(dict.fromkeys(("finished", *(_OF_ATTEMPT if again else ()))))
            self.job = self.after_job = self.other_total = None
            self.other_begins = self.epochs_drawn = False
            self.epochs_bar = None
            self.epochs.restart()
            self.is_broken = begins_traceback(line)
        if told.totals:
            self._read_announced(line)
        self.other_begins = self.other_begins or told.other_begins
        ends = told.finished and not ((told.took and self._is_partway) or FAILED_END.search(line))
        if finishes := ends and (told.succeeded or not self.is_broken):
            self._change({"finished": True})
            self.finished_at = None if " at " in line else (self.shown.get("step"), None)
        if not told.no_progress:
            self._read_fields(line, told)
        if finishes:
            at = self.shown.get("step"), self.shown.get("epoch")
            self.finished_at = None if line.endswith(":") else (None, -1.0) if at == (None, None) else at

    def _read_fields(self, line: str, told: Told) -> None:
        if told.header:
            self.columns, self.rows = read_header(line), ()
            self.is_steady = "loss" in line
        if self.columns and (pairs := row_as_pairs(self.columns, line)):
            first = pairs.removeprefix(f"{self.columns[0]}: ").partition(",")[0]
            if not self.is_steady and not self._rises(int(first)):
                return
            line, told = pairs, told_by(pairs)
        was_broken = self.is_broken
        self._take(self._line_fields(line[: told.end], told), line, told.signs)
        self.is_broken = self.is_broken or (was_broken and "error" in line)  # that names a step

    def _line_fields(self, line: str, told: Told) -> dict[str, Any]:
        fields = read_found(told.fields, line) if told.fields else {}
        if told.spelled_bar:
            fields.update(read_spelled_bar(line))
        if "train_runtime" in line:
            fields.pop("loss", None)
        measured = "loss" in fields or "learning_rate" in fields or "grad_norm" in fields
        if told.save:
            saved = saved_step(line)
            fields = fields if "loss" in fields else {}
            fields.update({"checkpoint_step": saved} if saved is not None else {})
        elif (told.other_work and not measured) or self._is_after_epoch(fields):
            return {}
        if fields.get("total_epochs") or fields.get("epoch_steps"):
            self.opens = not fields.get("epoch_steps")
        counter = fields.pop("counter", None)
        if counter == "batch" and {"loss", "total_steps"} <= fields.keys() and "epoch" not in fields:
            if self.slashed is not False:
                self._read_slash(fields)
        elif "epoch" in fields and fields.get("epoch_step") is not None and fields["epoch_steps"] is None:
            self._read_batch(fields)
        if self._is_other_counter(counter, fields):
            fields.pop("step", None)
            fields.pop("total_steps", None)
        if "loss" in fields:
            self._measure_job()
        if fields.get("total_steps") and self.job is None:
            self.job = _Job(None, fields["total_steps"], measured)
        return fields

    def _is_after_epoch(self, fields: Mapping[str, Any]) -> bool:
        """Whether a bar of another length than that of the epoch is drawn after it, as Keras does to evaluate."""
        if "epoch" in fields or not fields.get("epoch_steps") or self.epochs.first == 0 or self.opens:
            return False
        epoch, done, steps = map(self.shown.get, ("epoch", "epochs_done", "epoch_steps"))
        return epoch is not None and epoch == done and steps not in (None, fields["epoch_steps"])

    def _rises(self, first: int) -> bool:
        """Whether the first column of a table rises evenly, of which three rows tell."""
        self.rows = (*self.rows, first)[-3:]
        self.is_steady = len(self.rows) == 3 and self.rows[2] - self.rows[1] == self.rows[1] - self.rows[0] > 0
        return self.is_steady

    def _read_slash(self, fields: dict[str, Any]) -> None:
        """Rename what is no counter and total: of a total that grows beside the same counter, it is the batch.

        A 0 is no counter before a second line tells.
        """
        slash, before = (fields["step"], fields["total_steps"]), self.slash
        self.slash = slash
        if before and before[0] == slash[0] and before[1] < slash[1]:
            self.slashed, self.job = True, None
        elif before and not self.slashed and before[0] < slash[0] and before[1] == slash[1]:
            self.slashed, self.slash = False, None
        if self.slashed:
            fields.update(epoch=float(slash[0]), step=None, total_steps=None, epoch_step=slash[1], epoch_steps=None)
        elif not slash[0]:
            del fields["step"], fields["total_steps"]

    def _read_batch(self, fields: dict[str, Any]) -> None:
        """Forget a batch that is a size: of what stays the same while epochs pass."""
        batch, before = (fields["epoch"], fields["epoch_step"]), self.batch
        self.batch = batch
        self.is_size = before is not None and before[1] == batch[1] and (before[0] != batch[0] or self.is_size)
        if self.is_size:
            fields["epoch_step"] = None

    def _is_other_counter(self, counter: str | None, fields: Mapping[str, Any]) -> bool:
        """Whether a counter is not the step: `iter` beside `step`, or environment steps beside iterations."""
        if counter is None:
            return False
        self.micro = self.micro or counter == "update"
        self.counted = self.counted or (counter != "total_timesteps" and "total_steps" in fields)
        return (self.micro and counter == "iter") or (self.counted and counter == "total_timesteps")

    def _read_announced(self, line: str) -> None:
        for name, pattern in ANNOUNCED:
            found = pattern.search(line)
            if found and not (name == "total_steps" and self.job and self.shown.get("step")):
                total = int(found[1].replace(",", ""))
                self._show({name: total, **self.epochs.announce({name: total})})
                if name == "total_steps":
                    self.job = _Job(None, total, False)

    def _read_bar(self, piece: str, bar: Bar) -> None:
        name = piece[bar.name].lower()
        fields = read_bar(piece, name, bar)
        fields.pop("counter", None)
        if self._is_inner(bar.key, fields):
            fields = {name: fields[name] for name in ("loss", "learning_rate", "grad_norm") if name in fields}
        if "total_epochs" in fields and not fields.keys() & {"step", "epoch_step"}:
            self.epochs_drawn = (fields["total_epochs"] or 1) > 1
        elif "total_steps" in fields and self._is_of_epoch(bar.key, fields):
            fields.update(epoch_step=fields.pop("step"), epoch_steps=fields.pop("total_steps"))
            fields["eta_scope"] = fields["eta_scope"] and "epoch"
        if "epoch_steps" in fields:
            self.inner_bar = bar.key, fields["epoch_steps"]
            if self.job == _Job("", fields["epoch_steps"], False):
                self.job = None  # YOLOv5 draws the empty bar of an epoch without its name
                self._show({"step": None, "total_steps": None, "eta_seconds": None, "eta_scope": None})
        if "total_steps" not in fields or self._is_job_bar(bar.key, fields):
            if self.again and "total_steps" in fields and self.epochs.epoch is None:
                fields.update(total_steps=None, eta_scope=fields["eta_scope"] and "epoch")
            self._take(fields, f"{name} {piece[bar.notes]}".lower(), bar.signs)

    def _is_of_epoch(self, key: str, fields: Mapping[str, Any]) -> bool:
        """Whether a bar that fits the job counts within an epoch: several are drawn, or it did not fit before."""
        return (key, fields["total_steps"]) == self.inner_bar if "epoch" in fields else self.epochs_drawn

    def _is_inner(self, key: str, fields: dict[str, Any]) -> bool:
        """Whether a bar of a single epoch is drawn within the current one of several, like PPO's within an episode."""
        epochs = fields.get("total_epochs")
        if not epochs or fields.keys().isdisjoint(("step", "epoch_step")):
            return False
        other, others = self.epochs_bar or (key, epochs)
        done, steps = (self.shown.get(name) or 0 for name in ("epoch_step", "epoch_steps"))
        if key != other and epochs == 1 < others and (fields.get("total_steps") or steps) < steps > done:
            return True
        if key != other and others == 1 < epochs:
            self.job = None
            self._show({"step": None, "total_steps": None})
        self.epochs_bar = key, epochs
        return False

    def _is_job_bar(self, key: str, fields: dict[str, Any]) -> bool:
        """Whether a bar is the job's: evaluation and sampling draw smaller bars, often unnamed, within or after it."""
        total, job, measured = fields["total_steps"], self.job, "loss" in fields or "learning_rate" in fields
        if total is None:
            return True
        if job is None and not key and not measured and total <= (self.epochs.steps or 0):
            return False  # no longer than an epoch of the training, which has counters of its own
        if job is None or total != job.total:
            if not key and self.other_begins:
                self.other_begins, self.other_total = False, total
            if not key and total == self.other_total and not measured:
                return False
        found = _Job(key, total, measured)
        if job is not None and not measured:
            full = self._is_full
            renamed = job.key is not None and key != job.key
            longer = job.measured and not full and not key and total > job.total
            if (total < job.total and (renamed or not key)) or (renamed and job.measured and not full) or longer:
                self.after_job = (found, fields) if full or longer else None
                return False
        began = self._is_full and fields["step"] < total / 2 and not self.shown.get("finished")
        self.again = job is not None and (key, total) == (job.key, job.total) and (self.again or began)
        self.job, self.after_job = replace(found, measured=measured or bool(job and job.measured)), None
        return True

    def _measure_job(self) -> None:
        """Assign a loss to the current bar; a bar that began after a complete one is the next job's."""
        if self.after_job is not None:
            self.job, fields = self.after_job
            self.after_job = None
            self._take(fields, "", epoch_signs(""))
        if self.job is None:
            self.other_total = None
        elif not self.job.measured:
            self.job = replace(self.job, measured=True)

    def _take(self, fields: Mapping[str, Any], text: str, signs: EpochSigns) -> None:
        epoch, epochs = fields.get("epoch", math.inf), fields.get("total_epochs") or 0
        if self._is_full and "step" not in fields and epoch + (self.epochs.first == 0) < epochs:
            self.job = None  # what is full counted an epoch, or what came before
            self._show({"step": None, "total_steps": None, "eta_seconds": None, "eta_scope": None})
        found = self.epochs.read(fields, text, signs)
        self._found.update(found)
        if any(found.get(name) not in (None, self.shown.get(name)) for name in _MOVES):
            self.is_broken = False
        self._show(found)

    def _show(self, changes: dict[str, Any]) -> None:
        if not changes:
            return
        step, before = changes.get("step"), self.shown
        known = before.get("total_steps") or math.inf
        if step is not None and "total_steps" not in changes and step > known:
            changes["total_steps"] = None
        elif (changes.get("total_steps") or math.inf) < (step or 0) <= known < math.inf:
            changes["total_steps"] = known  # what is not written yet: `step 78/1`
        if before.get("finished") and self._is_after_end(step, changes):
            changes["finished"] = None
        self._change(changes)

    def _is_after_end(self, step: int | None, changes: Mapping[str, Any]) -> bool:
        """Whether a position is not the one at which the training finished, so that it continues or another begins."""
        epoch = changes.get("epoch")
        if self.finished_at is None and (step, epoch) != (None, None):
            self.finished_at = step, epoch
        at_step, at_epoch = self.finished_at or (step, epoch)
        moves = step not in (None, at_step, changes.get("total_steps"))
        return moves or (epoch is not None and at_epoch is not None and not min(2.0, at_epoch) <= epoch <= at_epoch)

    def _change(self, changes: Mapping[str, Any]) -> None:
        self.shown.update(changes)
        self._progress = None
