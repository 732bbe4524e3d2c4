"""Read the progress that a training log shows, whatever framework wrote it. Pure.

It reads the newest step, epoch, loss, speed and remaining time, in text order; never the largest number. It ignores
validation, download, generation and preprocessing bars, settings echoed at the start (`save_steps=500`), the command
line that Ray prints, the step a run resumed from, and totals that the log does not state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from training_monitor.core.frozen import replace
from training_monitor.core.models import Progress
from training_monitor.logs.fields import read_found
from training_monitor.logs.job_progress import EpochCount, EpochSigns, epoch_signs
from training_monitor.logs.parts import (
    ANNOUNCED,
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
from training_monitor.logs.repeats import Repeats, lasting
from training_monitor.logs.shapes import shapes_and_lines
from training_monitor.logs.text import clean_line

NOTHING = Progress()


def parse_progress(text: str) -> Progress:
    """Read the newest progress from a log, or from the end of one. Never raises.

    Args:
        text: log text; may contain `\\r` redraws, colours, and the prefixes of Ray, srun, mpirun and torchrun.

    Returns:
        Progress with None for what the text does not say. `step` and `total_steps` count the job; a counter within an
        epoch is `epoch_step` of `epoch_steps`. Times in seconds; throughput as printed (some frameworks print it per
        GPU); `eta_scope` is "job" or "epoch"; `finished` is True after an unmistakable line, else None.
    """
    return read_progress(text, EpochCount())


def read_progress(text: str, epochs: EpochCount) -> Progress:
    """Read the next part of a log, using and updating `epochs`, which holds what the parts before showed."""
    reader = ProgressReader(epochs)
    repeats = Repeats(reader)
    for line in shapes_and_lines(text):
        if not repeats.skip(line):
            piece, shape, start = clean_line(line[1], line[0])
            repeats.read(line, piece, shape, start)
    repeats.finish()
    return reader.progress


def read_samples(samples: Sequence[str]) -> EpochCount:
    """Return how a log counts, from samples evenly spread over it in text order; for `read_progress` of its end."""
    epochs, counters = EpochCount(), list[tuple[float | None, int | None, int | None]]()
    for sample in samples:
        read_progress(sample, epochs)
        counters.append((epochs.counted_in, epochs.step, epochs.steps))
    return epochs.learn_from_samples(counters)


class _Job(NamedTuple):
    """What counts the job: a bar (`key`: its name, "" if unnamed) or a line (None); `measured`: it had a loss."""

    key: str | None
    total: int
    measured: bool


class ProgressReader:
    """Reads pieces in text order; later values replace earlier ones: in `shown`, by the names of `Progress`."""

    def __init__(self, epochs: EpochCount) -> None:
        self.shown: dict[str, Any] = {}
        self.epochs = epochs
        self._found: Mapping[str, Any] = {}  # in the newest piece
        self._progress: Progress | None = NOTHING
        self._finished_at: int | None = None
        self._job: _Job | None = None
        self._after_job: tuple[_Job, Mapping[str, Any]] | None = None  # a bar after the full one, and its fields
        self._other_begins = False
        self._other_total: int | None = None
        self._micro = self._counted = self._epochs_drawn = False
        self._columns: tuple[str, ...] | None = None  # of the table that is being read

    @property
    def progress(self) -> Progress:
        """The newest progress; the same object until a piece changes it."""
        if self._progress is None:
            self._progress = Progress(**self.shown)
        return self._progress

    # ------------------------------------------------------------ reading of repetitions: see `repeats.Reader`

    @property
    def learned(self) -> object:
        """What decides how later pieces are read."""
        job = (
            self._job,
            self._after_job is None,
            self._is_full,
            self._other_begins,
            self._other_total,
            self._finished_at,
        )
        signs = self._micro, self._counted, self._epochs_drawn, self._columns
        return self.epochs.learned, lasting(self.shown), job, signs

    @property
    def most(self) -> float | None:
        """The greatest step that a piece may show without teaching anything; None if none may."""
        if self.shown.get("finished") or self._is_full or self._columns:
            return None
        return min(self.shown.get("total_steps") or math.inf, self._job.total - 1 if self._job else math.inf)

    @property
    def _is_full(self) -> bool:
        return self._job is not None and (self.shown.get("step") or 0) >= self._job.total

    def read_piece(self, piece: str, shape: bytes) -> Mapping[str, Any]:
        """Read a piece; return the fields of `Progress` that it shows."""
        self._found = {}
        self.read(piece, shape)
        return self._found

    def state(self) -> dict[str, Any]:
        """Return all that a piece may change."""
        return {**vars(self), "shown": dict(self.shown), "epochs": replace(self.epochs)}

    def go_back(self, state: dict[str, Any]) -> None:
        """Return to a former state."""
        epochs = self.epochs
        vars(self).update(state, epochs=epochs)
        vars(epochs).update(vars(state["epochs"]))

    # ------------------------------------------------------------ reading

    def read(self, piece: str, shape: bytes | None = None) -> None:
        """Read one piece: its bars, and what other loggers wrote before, between and after them on the same line."""
        for words_at, told, bar in parts_of(piece, shape):
            if told:
                self._read_words(piece[words_at].lower(), told)
            if bar:
                self._read_bar(piece, bar)

    def _read_words(self, line: str, told: Told) -> None:
        if told.restart:
            self._job = self._after_job = self._other_total = None
            self._other_begins = self._epochs_drawn = False
            self.epochs.restart()
        if told.totals:
            self._read_announced(line)
        self._other_begins = self._other_begins or told.other_begins
        if told.finished:
            self._change({"finished": True})
            self._finished_at = self.shown.get("step")
        if told.no_progress:
            return
        self._columns = (read_header(line) if told.header else None) or self._columns
        if self._columns and (pairs := row_as_pairs(self._columns, line)):
            line, told = pairs, told_by(pairs)
        self._take(self._line_fields(line[: told.end], told), line, told.signs)

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
        elif told.other_work and not measured:
            return {}
        if self._is_other_counter(fields.pop("counter", None), fields):
            fields.pop("step", None)
            fields.pop("total_steps", None)
        if "loss" in fields:
            self._measure_job()
        if fields.get("total_steps") and self._job is None:
            self._job = _Job(None, fields["total_steps"], measured)
        return fields

    def _is_other_counter(self, counter: str | None, fields: Mapping[str, Any]) -> bool:
        """Whether a counter is not the step: `iter` beside `step`, or environment steps beside iterations."""
        if counter is None:
            return False
        self._micro = self._micro or counter == "update"
        self._counted = self._counted or (counter != "total_timesteps" and "total_steps" in fields)
        return (self._micro and counter == "iter") or (self._counted and counter == "total_timesteps")

    def _read_announced(self, line: str) -> None:
        for field, pattern in ANNOUNCED:
            found = pattern.search(line)
            if found and not (field == "total_steps" and self._job and self.shown.get("step")):
                total = int(found[1].replace(",", ""))
                self._show({field: total, **self.epochs.announce({field: total})})
                if field == "total_steps":
                    self._job = _Job(None, total, False)

    def _read_bar(self, piece: str, bar: Bar) -> None:
        name = piece[bar.name].lower()
        fields = read_bar(piece, name, bar)
        fields.pop("counter", None)
        if "total_epochs" in fields and not fields.keys() & {"step", "epoch_step"}:
            self._epochs_drawn = (fields["total_epochs"] or 1) > 1
        elif self._epochs_drawn and "total_steps" in fields and "epoch" not in fields:
            fields.update(epoch_step=fields.pop("step"), epoch_steps=fields.pop("total_steps"))
            fields["eta_scope"] = fields["eta_scope"] and "epoch"
        if "total_steps" not in fields or self._is_job_bar(bar.key, fields):
            self._take(fields, f"{name} {piece[bar.notes]}".lower(), bar.signs)

    def _is_job_bar(self, key: str, fields: Mapping[str, Any]) -> bool:
        """Whether a bar is the job's: evaluation and sampling draw smaller bars, often unnamed, within or after it."""
        total, job, measured = fields["total_steps"], self._job, "loss" in fields or "learning_rate" in fields
        if total is None:
            return True
        if job is None or total != job.total:
            if not key and self._other_begins:
                self._other_begins, self._other_total = False, total
            if not key and total == self._other_total and not measured:
                return False
        found = _Job(key, total, measured)
        if job is not None and not measured:
            full = self._is_full
            renamed = job.key is not None and key != job.key
            if (total < job.total and (renamed or not key)) or (renamed and job.measured and not full):
                self._after_job = (found, fields) if full else None
                return False
        self._job, self._after_job = found._replace(measured=measured or bool(job and job.measured)), None
        return True

    def _measure_job(self) -> None:
        """Assign a loss to the current bar; a bar that began after a complete one is the next job's."""
        if self._after_job is not None:
            self._job, fields = self._after_job
            self._after_job = None
            self._take(fields, "", epoch_signs(""))
        if self._job is None:
            self._other_total = None
        else:
            self._job = self._job._replace(measured=True)

    def _take(self, fields: Mapping[str, Any], text: str, signs: EpochSigns) -> None:
        self._found = self.epochs.read(fields, text, signs)
        self._show({**self._found})

    def _show(self, changes: dict[str, Any]) -> None:
        if not changes:
            return
        step, before = changes.get("step"), self.shown
        if step is not None and "total_steps" not in changes and step > (before.get("total_steps") or step):
            changes["total_steps"] = None
        if before.get("finished") and step is not None and step not in (self._finished_at, changes.get("total_steps")):
            changes["finished"] = None
        self._change(changes)

    def _change(self, changes: Mapping[str, Any]) -> None:
        self.shown.update(changes)
        self._progress = None
