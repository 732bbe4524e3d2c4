"""Aggregate a whole training log, fed in chunks as they arrive: newest values, and lists of bounded length. Pure.

Each line counts once, however the chunks are cut.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from training_monitor.core.arguments import checked
from training_monitor.core.fields import PublicValue
from training_monitor.core.models import Progress
from training_monitor.core.regex import regex
from training_monitor.logs.events import (
    CheckpointCounter,
    SampleCounter,
    events_in,
    is_error,
    is_warning,
    read_gpu_memory,
    read_gpu_utilization,
    remember,
)
from training_monitor.logs.job_progress import EpochCount, job_progress
from training_monitor.logs.repeats import Line, Repeats, StepAndLoss, same_nan
from training_monitor.logs.text import clean_line
from training_monitor.logs.training_log import ProgressReader

MOST_LOSSES, KEPT_LOSSES = 1000, 500
MOST_MESSAGES, KEPT_MESSAGES = 100, 50
MESSAGE_LENGTH = 200
_HALF_LINE = 8192  # log_pieces keeps 6000 characters of a line's head and 2000 of its tail
_LINE_END = regex(r"[\r\n]")


@checked
@dataclass(repr=False)
class LogTotals(PublicValue):
    """Compute the totals of a log: call `feed` with chunks, `close` at the end, and `as_dict` at any time.

    Memory use is bounded for any input. An unfinished last line is counted when its newline or carriage return arrives,
    or at `close`. Saved totals do not include an unfinished last line.

    Attributes:
        progress: the most recent value of each field.
        epochs: how the log counts steps and epochs, if known; you may set this before the first chunk.
    """

    reader: ProgressReader = field(default_factory=ProgressReader)
    losses: list[float] = field(default_factory=list)
    loss_count: int = 0
    last_loss_at: tuple[int, str] | None = None
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    checkpoints: CheckpointCounter = field(default_factory=CheckpointCounter)
    samples: SampleCounter = field(default_factory=SampleCounter)
    gpu_utilization: float | None = None
    memory: dict[str, float] | None = None
    _line: str = field(default="", init=False, repr=False)  # unfinished: its head and tail, as `log_pieces` keeps them
    _repeats: Repeats = field(default_factory=Repeats, init=False, repr=False, compare=False)

    @property
    def progress(self) -> Progress:
        return self.reader.progress

    @property
    def epochs(self) -> EpochCount:
        return self.reader.epochs

    @epochs.setter
    def epochs(self, epochs: EpochCount) -> None:
        self.reader.epochs, self._repeats = epochs, Repeats()

    def feed(self, chunk: str) -> None:
        """Add the next chunk of the log. Never raises."""
        first, last = _LINE_END.search(chunk), max(chunk.rfind("\n"), chunk.rfind("\r"))
        if first:
            line, self._line = self._line + chunk[: first.start()], ""
            self._read_all(line)
            self._read_all(chunk[first.end() : last])
        line = self._line + chunk[last + 1 :]
        self._line = line if len(line) <= 2 * _HALF_LINE else line[:_HALF_LINE] + line[-_HALF_LINE:]

    def close(self) -> None:
        """Mark the end of the log, and count its unfinished last line."""
        line, self._line = self._line, ""
        self._read_all(line)

    def as_dict(self) -> dict[str, Any]:
        """Return the totals so far; None means that the value has not appeared in the log.

        Returns:
            A dict with 15 keys. last_step, total_steps, progress_percent (0 to 100) and estimated_time_remaining
            (seconds) describe the whole job; see `job_progress`. last_loss, last_learning_rate and steps_per_second are
            the most recent values. loss_history is a list of {index, loss}. index counts from 0 over the whole log.
            Repeated lines with the same step and loss are one entry. Beyond 1000 entries, the last 500 are kept.
            checkpoints_saved is a count, and checkpoint_paths are distinct (beyond 1000, the last 500 are kept). errors
            and warnings are distinct lines, truncated to 200 characters (beyond 100, the last 50 are kept); a
            non-finite loss counts as an error. gpu_utilization is in percent. memory_usage is {used, total} of one GPU
            in MB. samples_generated is a count.
        """
        progress, job = self.progress, job_progress(self.progress)
        first = self.loss_count - len(self.losses)
        return {
            "last_step": job.step,
            "total_steps": job.total_steps,
            "progress_percent": None if job.fraction is None else 100.0 * job.fraction,
            "last_loss": progress.loss,
            "loss_history": [{"index": index, "loss": loss} for index, loss in enumerate(self.losses, first)],
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

    def read_ahead(self, text: str) -> Progress:
        """Return the progress shown by `text`, read as the continuation of the log, without adding it to the totals."""
        ahead = self.reader.copy()
        ahead.read_text(text)
        return ahead.progress

    def _read_all(self, text: str) -> None:
        if not text:
            return
        found, passed = list[StepAndLoss](), 0
        errors, warnings, of_utilization, of_memory = list[str](), list[str](), list[Line](), list[Line]()
        for line, events in self._repeats.read(self.reader, text, found, events_in):
            save, sample, message, shows_utilization, shows_memory = events
            if shows_utilization:
                of_utilization.append(line)
            if shows_memory:
                of_memory.append(line)
            loss = found[-1][1]
            is_bad = loss is not None and not math.isfinite(loss)
            if not (save or sample or message or is_bad):
                continue
            piece = clean_line(line[1], line[0])[0]
            if save:
                self.checkpoints.skip(len(found) - 1 - passed)
                self.checkpoints.read(piece)
                passed = len(found)
            if sample:
                self.samples.read(piece)
            if is_bad or (message and is_error(piece)):
                errors.append(_message(piece))
            elif message and is_warning(piece):
                warnings.append(_message(piece))
        self.checkpoints.skip(len(found) - passed)
        self._add_losses([each for each in found if each[1] is not None])
        remember(self.errors, errors, MOST_MESSAGES, KEPT_MESSAGES)
        remember(self.warnings, warnings, MOST_MESSAGES, KEPT_MESSAGES)
        self.gpu_utilization = _newest(read_gpu_utilization, of_utilization, self.gpu_utilization)
        self.memory = _newest(read_gpu_memory, of_memory, self.memory)

    def _add_losses(self, found: Sequence[StepAndLoss]) -> None:
        """Add the losses of lines, in text order; a loss that its step printed before is no entry."""
        known = self.last_loss_at
        before: list[StepAndLoss] = [(known[0], same_nan(float(known[1]))) if known else (None, None), *found]
        pairs = zip(found, before, strict=False)
        new = [each[1] for each, last in pairs if each[1] is not None and (each != last or each[0] is None)]
        if found:
            step, loss = found[-1]
            self.last_loss_at = None if step is None else (step, str(loss))
        self.loss_count += len(new)
        kept = len(self.losses) + len(new)
        if kept > MOST_LOSSES:  # as many as are left when each that is one too many leaves KEPT_LOSSES
            kept = KEPT_LOSSES + (kept - MOST_LOSSES - 1) % (MOST_LOSSES + 1 - KEPT_LOSSES)
        self.losses = [*self.losses, *new][-kept:]


def _newest(read: Callable[[str], Any], lines: Sequence[Line], before: Any) -> Any:
    found = (read(clean_line(raw, shape)[0]) for shape, raw in reversed(lines))
    return next((each for each in found if each is not None), before)


def _message(piece: str) -> str:
    return piece.strip()[:MESSAGE_LENGTH]
