"""Aggregate a whole training log, fed in chunks as they arrive: newest values, and lists of bounded length. Pure.

Each line counts once, however the chunks are cut.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from training_monitor.core.frozen import checked, dataclass, field, fields, replace
from training_monitor.core.models import Progress
from training_monitor.core.regex import regex
from training_monitor.logs.events import (
    CheckpointCounter,
    Events,
    SampleCounter,
    events_in,
    is_error,
    is_warning,
    read_gpu_memory,
    read_gpu_utilization,
    remember,
)
from training_monitor.logs.job_progress import EpochCount, job_progress
from training_monitor.logs.parts import begins_attempt
from training_monitor.logs.repeats import Repeats, StepAndLoss, lasting
from training_monitor.logs.shapes import shapes_and_lines
from training_monitor.logs.text import clean_line
from training_monitor.logs.training_log import ProgressReader, parse_progress, read_progress

MOST_LOSSES, KEPT_LOSSES = 1000, 500
MOST_MESSAGES, KEPT_MESSAGES = 100, 50
MESSAGE_LENGTH = 200
_HALF_LINE = 8192  # log_pieces keeps 6000 characters of a line's head and 2000 of its tail
_FIELDS = tuple(each.name for each in fields(Progress))
_LINE_END = regex(r"[\r\n]")


class _OpenLine:
    """An unfinished line: its head and tail, as much as `log_pieces` would keep."""

    def __init__(self) -> None:
        self._head, self._tail = "", ""

    def add(self, text: str) -> None:
        room = _HALF_LINE - len(self._head)
        self._head += text[:room]
        self._tail = (self._tail + text[room:])[-_HALF_LINE:]

    def take(self) -> str:
        line = self._head + self._tail
        self._head, self._tail = "", ""
        return line


@checked
@dataclass
class LogTotals:
    """Aggregates a log: `feed` chunks, `close` at its end, `as_dict` at any time.

    Memory is bounded for any input. An unfinished last line counts when its end (newline or carriage return) arrives,
    or at `close`; it is not kept in a record.

    Attributes:
        progress: the newest value of each field.
        epochs: how the log counts, as far as known; may be set before the first chunk.
    """

    progress: Progress = Progress()
    epochs: EpochCount = field(default_factory=EpochCount)
    job_bar: str | None = None
    losses: list[float] = field(default_factory=list)
    loss_count: int = 0
    last_loss_at: tuple[int, str] | None = None
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    checkpoints: CheckpointCounter = field(default_factory=CheckpointCounter)
    samples: SampleCounter = field(default_factory=SampleCounter)
    gpu_utilization: float | None = None
    memory: dict[str, float] | None = None
    _line: _OpenLine = field(default_factory=_OpenLine, init=False, repr=False)

    def feed(self, chunk: str) -> None:
        """Add the next characters of the log. Never raises."""
        first, last = _LINE_END.search(chunk), max(chunk.rfind("\n"), chunk.rfind("\r"))
        if first:
            self._line.add(chunk[: first.start()])
            self.close()
            self._read_all(chunk[first.end() : last])
        self._line.add(chunk[last + 1 :])

    def close(self) -> None:
        """Count the unfinished last line: the log has ended."""
        self._read_all(self._line.take())

    def as_dict(self) -> dict[str, Any]:
        """Return the totals so far; None is "not seen".

        Returns:
            last_step, total_steps, progress_percent (0 to 100), estimated_time_remaining (seconds): of the job, see
            `job_progress`. last_loss, last_learning_rate, steps_per_second: the newest. loss_history: {index, loss},
            index counts from 0 over the whole log; redraws of one step with one loss are one entry; beyond 1000 entries
            the last 500 are kept. checkpoints_saved and checkpoint_paths (distinct; the last 500 of over 1000). errors,
            warnings: distinct, cut at 200 characters, the last 50 of over 100; a non-finite loss is an error too.
            gpu_utilization in per cent. memory_usage: {used, total} of one GPU in MB. samples_generated.
        """
        progress, job = self.progress, job_progress(self.progress)
        return {
            "last_step": job.step,
            "total_steps": job.total_steps,
            "progress_percent": None if job.fraction is None else 100.0 * job.fraction,
            "last_loss": progress.loss,
            "loss_history": self._loss_history(),
            "last_learning_rate": progress.learning_rate,
            "checkpoints_saved": self.checkpoints.count,
            "checkpoint_paths": list(self.checkpoints.paths),
            "errors": list(self.errors),
            "warnings": list(self.warnings),
            "gpu_utilization": self.gpu_utilization,
            "memory_usage": dict(self.memory) if self.memory else None,
            "samples_generated": self.samples.count,
            "steps_per_second": progress.steps_per_second,
            "estimated_time_remaining": None if not job.eta_seconds else round(job.eta_seconds),
        }

    def _loss_history(self) -> list[dict[str, Any]]:
        first = self.loss_count - len(self.losses)
        return [{"index": index, "loss": loss} for index, loss in enumerate(self.losses, first)]

    def read_ahead(self, text: str) -> Progress:
        """Return the progress in the text that follows, without adding it to the totals."""
        return read_progress(text, replace(self.epochs))

    def _read_all(self, text: str) -> None:
        if not text:
            return
        newest = _Newest({name: getattr(self.progress, name) for name in _FIELDS}, self.epochs, self.job_bar)
        repeats, losses, passed = Repeats(newest), list[StepAndLoss](), 0
        for line in shapes_and_lines(text):
            if values := repeats.skip(line):
                losses.append(values)
                passed += 1
                continue
            piece, shape, start = clean_line(line[1], line[0])
            if not piece:
                continue
            told = events_in(piece, shape)
            found = repeats.read(line, piece, shape, None if any(told) else start)
            losses.append(_step_and_loss(found))
            if told.save:
                self.checkpoints.skip(passed)
                self.checkpoints.read(piece)
            passed = 0 if told.save else passed + 1
            self._read_events(piece, told, found.get("loss"))
        repeats.finish()
        self.checkpoints.skip(passed)
        self.progress, self.epochs, self.job_bar = Progress(**newest.values), newest.epochs, newest.job_bar
        self._add_losses([each for each in losses if each[1] is not None])

    def _read_events(self, piece: str, told: Events, loss: float | None) -> None:
        """Read what a line tells besides progress and checkpoints."""
        if told.sample:
            self.samples.read(piece)
        if (told.message and is_error(piece)) or (loss is not None and not math.isfinite(loss)):
            _add_message(self.errors, piece)
        elif told.message and is_warning(piece):
            _add_message(self.warnings, piece)
        if told.gpu_utilization and (utilization := read_gpu_utilization(piece)) is not None:
            self.gpu_utilization = utilization
        if told.gpu_memory and (memory := read_gpu_memory(piece)):
            self.memory = {"used": memory[0], "total": memory[1]}

    def _add_losses(self, found: Sequence[StepAndLoss]) -> None:
        """Add the losses of lines, in text order; a loss that its step printed before is no entry."""
        known = self.last_loss_at
        before = [_step_and_loss({"step": known[0], "loss": float(known[1])}) if known else (None, None), *found]
        pairs = zip(found, before, strict=False)
        new = [loss for (step, loss), last in pairs if loss is not None and (step is None or (step, loss) != last)]
        if found:
            step, loss = found[-1]
            self.last_loss_at = None if step is None else (step, str(loss))
        self.loss_count += len(new)
        kept = len(self.losses) + len(new)
        if kept > MOST_LOSSES:  # as many as are left when each that is one too many leaves KEPT_LOSSES
            kept = KEPT_LOSSES + (kept - MOST_LOSSES - 1) % (MOST_LOSSES + 1 - KEPT_LOSSES)
        self.losses = [*self.losses, *new][-kept:]


def _step_and_loss(found: Mapping[str, Any]) -> StepAndLoss:
    """Return the step and the loss of a line; nan is always the same, so that it equals itself in a tuple."""
    loss = found.get("loss")
    return found.get("step"), math.nan if loss is not None and math.isnan(loss) else loss


class _Newest:
    """The newest values of a log, each line of which is read alone; a `repeats.Reader`.

    Attributes:
        values: of the fields of `Progress`.
        job_bar: the newest piece with a step and a total.
    """

    def __init__(self, values: dict[str, Any], epochs: EpochCount, job_bar: str | None) -> None:
        self.values, self.epochs, self.job_bar = values, epochs, job_bar

    @property
    def learned(self) -> object:
        """What decides how later lines are read."""
        return self.epochs.learned, lasting(self.values), self.job_bar is None

    @property
    def most(self) -> float | None:
        """The greatest step that teaches nothing: a greater one makes the total unknown."""
        return None if self.values["finished"] else self.values["total_steps"] or math.inf

    def read_piece(self, piece: str, shape: bytes) -> Mapping[str, Any]:
        """Read a line; return the fields that it shows."""
        reader = ProgressReader(self.epochs)
        reader.read(piece, shape)
        step, total = reader.shown.get("step"), reader.shown.get("total_steps")
        if begins_attempt(piece, shape):
            self.job_bar = None
        if step is not None and self._is_inner_bar(piece, total):
            return {}
        if step is not None and total is not None:
            self.job_bar = piece[-1000:]
        _take(self.values, reader.shown)
        return reader.shown

    def state(self) -> tuple[dict[str, Any], EpochCount, str | None]:
        """Return all that a line may change."""
        return dict(self.values), replace(self.epochs), self.job_bar

    def go_back(self, state: tuple[dict[str, Any], EpochCount, str | None]) -> None:
        """Return to a former state."""
        self.values, self.epochs, self.job_bar = state

    def _is_inner_bar(self, piece: str, total: int | None) -> bool:
        """Whether a bar with a smaller total is drawn within the job's bar, as HF evaluation does."""
        if self.job_bar is None or total is None or total >= (self.values["total_steps"] or 0):
            return False
        return parse_progress(f"{self.job_bar}\n{piece}").total_steps != total


def _take(newest: dict[str, Any], found: Mapping[str, Any]) -> None:
    """Add what a line shows to the newest values."""
    step, finished, before, total = found.get("step"), newest["finished"], newest["step"], newest["total_steps"]
    newest.update({name: value for name, value in found.items() if value is not None})
    if step is not None and step > (total or step) and found.get("total_steps") is None:
        newest["total_steps"] = None
    if step is None and total is not None and found.get("epoch_steps") == total:
        newest["step"] = newest["total_steps"] = None  # the supposed counter of the job turned out to count the epoch
    if finished and newest["step"] not in (before, newest["total_steps"]):
        newest["finished"] = None  # steps after the end of a training belong to another one


def _add_message(known: list[str], text: str) -> None:
    remember(known, text.strip()[:MESSAGE_LENGTH], MOST_MESSAGES, KEPT_MESSAGES)
