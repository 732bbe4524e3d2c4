"""Aggregate a whole training log, fed in chunks as they arrive: newest values, and lists of bounded length. Pure.

Each line counts once, however the chunks are cut.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, fields, replace
from typing import Any

from training_monitor.core.frozen import dataclass
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
from training_monitor.logs.repeats import Repeat, StepAndLoss, find_repeat, shown_in
from training_monitor.logs.shapes import shapes_and_lines
from training_monitor.logs.text import clean_line
from training_monitor.logs.training_log import (
    begins_attempt,
    parse_progress,
    read_piece,
    read_progress,
    shows_progress,
)

MOST_LOSSES, KEPT_LOSSES = 1000, 500
MOST_MESSAGES, KEPT_MESSAGES = 100, 50
MESSAGE_LENGTH = 200
_HALF_LINE = 8192  # log_pieces keeps 6000 characters of a line's head and 2000 of its tail
_FIELDS = tuple(each.name for each in fields(Progress))
# Fields whose values decide how later lines are read
_LASTING = ("total_steps", "total_epochs", "epoch_steps", "epochs_planned", "steps_before", "finished")
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
        """Read lines; of those that only replace the values of earlier ones, the newest of each shape."""
        newest = {name: getattr(self.progress, name) for name in _FIELDS}
        repeats, skipped, losses = dict[bytes, Repeat | None](), list[tuple[bytes, str]](), list[StepAndLoss]()
        once, passed = set[bytes](), 0  # shapes of which one line was read, and lines since the last save
        for line in shapes_and_lines(text):
            shape, raw = line
            repeat = repeats.get(shape)
            if repeat and (values := repeat.read(raw)):
                skipped.append(line)
                passed += 1
                if repeat.loss:
                    losses.append(values)
                continue
            piece, of_piece, start = clean_line(raw, shape)
            if not piece:
                continue
            told, found, learned = events_in(piece, of_piece), dict[str, Any](), None
            if shows_progress(piece, of_piece):
                self._read_skipped(skipped, repeats, newest)
                learned = self._learned(newest)
                found = self._read_progress(piece, of_piece, newest)
                if (loss := found.get("loss")) is not None:
                    losses.append((found.get("step"), math.nan if math.isnan(loss) else loss))
            if told.save:
                self.checkpoints.skip(passed)
                self.checkpoints.read(piece)
            passed = 0 if told.save else passed + 1
            self._read_events(piece, told, found.get("loss"))
            if learned and learned != self._learned(newest):
                repeats.clear()
            elif shape not in once:
                once.add(shape)
            elif shape not in repeats:
                is_plain = start is not None and not any(told)
                repeats[shape] = find_repeat(raw, start or 0, found, newest, self.epochs) if is_plain else None
        self._read_skipped(skipped, repeats, newest)
        self.checkpoints.skip(passed)
        self.progress = Progress(**newest)
        self._add_losses(losses)

    def _read_skipped(
        self, skipped: list[tuple[bytes, str]], repeats: Mapping[bytes, Repeat | None], newest: dict[str, Any]
    ) -> None:
        """Read the newest line of each shape; all lines if one of these lacks a field that the others may show."""
        if not skipped:
            return
        of_shape, in_order = dict(skipped), reversed(dict(reversed(skipped)))
        before, epochs, job_bar = dict(newest), replace(self.epochs), self.job_bar
        for shape in in_order:
            repeat, (piece, of_piece, _) = repeats[shape], clean_line(of_shape[shape], shape)
            if shown_in(self._read_progress(piece, of_piece, newest)) != (repeat and repeat.shown):
                newest.update(before)
                self.epochs, self.job_bar = epochs, job_bar
                for each, line in skipped:
                    self._read_progress(*clean_line(line, each)[:2], newest)
                break
        skipped.clear()

    def _learned(self, newest: Mapping[str, Any]) -> tuple[object, ...]:
        """What decides how later lines are read."""
        lasting = [newest[name] for name in _LASTING]
        unknown = newest["step"] is None, newest["epoch_step"] is None, self.job_bar is None
        return (*self.epochs.learned, *lasting, *unknown)

    def _read_progress(self, piece: str, shape: bytes, newest: dict[str, Any]) -> dict[str, Any]:
        """Add the progress that a line shows to the newest values, and return it."""
        found = read_piece(piece, shape, self.epochs)
        step, total = found.get("step"), found.get("total_steps")
        if begins_attempt(piece, shape):
            self.job_bar = None
        if step is not None and self._is_inner_bar(piece, total, newest["total_steps"]):
            return {}
        if step is not None and total is not None:
            self.job_bar = piece[-1000:]
        if found:
            _take(newest, found)
        return found

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

    def _is_inner_bar(self, piece: str, total: int | None, known: int | None) -> bool:
        """Whether a bar with a smaller total is drawn within the job's bar, as HF evaluation does."""
        if self.job_bar is None or total is None or total >= (known or 0):
            return False
        return parse_progress(f"{self.job_bar}\n{piece}").total_steps != total

    def _add_losses(self, found: Sequence[StepAndLoss]) -> None:
        """Add the losses of lines, in text order; a loss that its step printed before is no entry (nan: `math.nan`)."""
        before: list[StepAndLoss | None] = [None, *found]
        if known := self.last_loss_at:
            before[0] = known[0], math.nan if known[1] == "nan" else float(known[1])
        new = [this[1] for this, last in zip(found, before, strict=False) if this != last or this[0] is None]
        if found:
            step, loss = found[-1]
            self.last_loss_at = None if step is None else (step, str(loss))
        self.loss_count += len(new)
        kept = len(self.losses) + len(new)
        if kept > MOST_LOSSES:  # as many as are left when each that is one too many leaves KEPT_LOSSES
            kept = KEPT_LOSSES + (kept - MOST_LOSSES - 1) % (MOST_LOSSES + 1 - KEPT_LOSSES)
        self.losses = [*self.losses, *new][-kept:]


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
