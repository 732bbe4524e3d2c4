"""What a whole training log adds up to, fed in chunks as they arrive: newest values, and lists of bounded length.

Each line counts once, however the chunks are cut.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from training_monitor.models import Progress
from training_monitor.parse.epoch_count import EpochCount
from training_monitor.parse.log_events import (
    CheckpointCounter,
    SampleCounter,
    is_error,
    is_warning,
    read_gpu_memory,
    read_gpu_utilization,
)
from training_monitor.parse.log_text import log_pieces
from training_monitor.parse.training_log import parse_progress, read_progress
from training_monitor.policy.job_progress import job_progress

MOST_LOSSES, KEPT_LOSSES = 1000, 500
MOST_MESSAGES, KEPT_MESSAGES = 100, 50
MESSAGE_LENGTH = 200
_HALF_LINE = 8192  # log_pieces keeps 6000 characters of a line's head and 2000 of its tail
_LINE_END = re.compile(r"[\r\n]")
_NEW_ATTEMPT = re.compile(r"running entrypoint|running training|traceback \(most recent|\bresum(?:e|ed|ing)\b", re.I)


class _OpenLine:
    """A line that has not ended yet: its head and its tail, as much as a reader of lines would look at."""

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
class _Messages:
    """Distinct texts, oldest first."""

    texts: dict[str, None] = field(default_factory=dict)

    def add(self, text: str) -> None:
        self.texts.setdefault(text.strip()[:MESSAGE_LENGTH])
        if len(self.texts) > MOST_MESSAGES:
            self.texts = dict.fromkeys(list(self.texts)[-KEPT_MESSAGES:])


class LogTotals:
    """Adds up a log: `feed` chunks, `close` at its end, `as_dict` at any time.

    Memory is bounded, whatever is fed. A last line without an end (newline or carriage return) counts when its end
    arrives, or at `close`.
    """

    def __init__(self) -> None:
        self._line = _OpenLine()
        self._progress = Progress()
        self._epochs = EpochCount()
        self._job_bar: str | None = None
        self._losses: list[float] = []
        self._loss_count = 0
        self._last_loss_at: tuple[int, str] | None = None
        self._errors, self._warnings = _Messages(), _Messages()
        self._checkpoints, self._samples = CheckpointCounter(), SampleCounter()
        self._gpu_utilization: float | None = None
        self._memory: dict[str, float] | None = None

    def learn_epochs(self, epochs: EpochCount) -> None:
        """Take over what is known of how the log counts, before any of it is fed."""
        self._epochs = epochs

    def feed(self, chunk: str) -> None:
        """Add the next characters of the log. Never raises."""
        start = 0
        for end in _LINE_END.finditer(chunk):
            self._line.add(chunk[start : end.start()])
            self.close()
            start = end.end()
        self._line.add(chunk[start:])

    def close(self) -> None:
        """Count the last line as it is: the log has ended."""
        for piece in log_pieces(self._line.take()):
            self._read(piece)

    def as_dict(self) -> dict[str, Any]:
        """The totals so far; None is "not seen".

        Returns:
            last_step, total_steps, progress_percent (0 to 100), estimated_time_remaining (seconds): of the job, see
            `job_progress`. last_loss, last_learning_rate, steps_per_second: the newest. loss_history: {index, loss},
            index counts from 0 over the whole log; a bar redrawn at one step with one loss is one entry; over 1000
            entries the last 500 are kept. checkpoints_saved and checkpoint_paths (distinct; the last 500 of over 1000).
            errors, warnings: distinct, cut at 200 characters, the last 50 of over 100; a loss that is not finite is an
            error too. gpu_utilization in percent. memory_usage: {used, total} of one GPU in MB. samples_generated.
        """
        progress, job = self._progress, job_progress(self._progress)
        return {
            "last_step": job.step,
            "total_steps": job.total_steps,
            "progress_percent": None if job.fraction is None else 100.0 * job.fraction,
            "last_loss": progress.loss,
            "loss_history": self._loss_history(),
            "last_learning_rate": progress.learning_rate,
            "checkpoints_saved": self._checkpoints.count,
            "checkpoint_paths": self._checkpoints.paths(),
            "errors": list(self._errors.texts),
            "warnings": list(self._warnings.texts),
            "gpu_utilization": self._gpu_utilization,
            "memory_usage": dict(self._memory) if self._memory else None,
            "samples_generated": self._samples.count,
            "steps_per_second": progress.steps_per_second,
            "estimated_time_remaining": None if not job.eta_seconds else round(job.eta_seconds),
        }

    def _loss_history(self) -> list[dict[str, Any]]:
        first = self._loss_count - len(self._losses)
        return [{"index": index, "loss": loss} for index, loss in enumerate(self._losses, first)]

    @property
    def progress(self) -> Progress:
        """The newest value of each field."""
        return self._progress

    def read_ahead(self, text: str) -> Progress:
        """The progress in what follows, by what is known of the log; without adding it."""
        return read_progress(text, replace(self._epochs))

    def to_state(self) -> dict[str, Any]:
        """All that it has added up, JSON-ready; an unfinished last line is not in it."""
        return {
            "progress": asdict(self._progress),
            "epochs": self._epochs.to_state(),
            "job_bar": self._job_bar,
            "losses": self._losses,
            "loss_count": self._loss_count,
            "last_loss_at": self._last_loss_at and list(self._last_loss_at),
            "errors": list(self._errors.texts),
            "warnings": list(self._warnings.texts),
            "checkpoints": self._checkpoints.to_state(),
            "samples": self._samples.to_state(),
            "gpu_utilization": self._gpu_utilization,
            "memory": self._memory,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> LogTotals:
        """Go on from what `to_state` gave."""
        totals, at = cls(), state["last_loss_at"]
        totals._progress, totals._job_bar = Progress(**state["progress"]), state["job_bar"]
        totals._epochs = EpochCount.from_state(state.get("epochs", {}))
        totals._losses, totals._loss_count = list(state["losses"]), state["loss_count"]
        totals._last_loss_at = (at[0], at[1]) if at else None
        totals._errors = _Messages(dict.fromkeys(state["errors"]))
        totals._warnings = _Messages(dict.fromkeys(state["warnings"]))
        totals._checkpoints = CheckpointCounter.from_state(state["checkpoints"])
        totals._samples = SampleCounter.from_state(state["samples"])
        totals._gpu_utilization, totals._memory = state["gpu_utilization"], state["memory"]
        return totals

    def _read(self, piece: str) -> None:
        found = read_progress(piece, self._epochs)
        if _NEW_ATTEMPT.search(piece):
            self._job_bar = None
        if found.step is not None and self._is_inner_bar(piece, found):
            found = Progress()
        elif found.step is not None and found.total_steps is not None:
            self._job_bar = piece[-1000:]
        self._take(found)
        if found.loss is not None:
            self._add_loss(found.loss, found.step)
        self._checkpoints.read(piece)
        self._samples.read(piece)
        if is_error(piece) or (found.loss is not None and not math.isfinite(found.loss)):
            self._errors.add(piece)
        elif is_warning(piece):
            self._warnings.add(piece)
        self._read_gpu(piece)

    def _is_inner_bar(self, piece: str, found: Progress) -> bool:
        """Whether a smaller total belongs to a bar drawn inside the job's, as HF evaluation does."""
        known = self._progress
        if self._job_bar is None or found.total_steps is None or found.total_steps >= (known.total_steps or 0):
            return False
        return parse_progress(f"{self._job_bar}\n{piece}").total_steps != found.total_steps

    def _take(self, found: Progress) -> None:
        seen = {each.name: getattr(found, each.name) for each in fields(found)}
        changes = {name: value for name, value in seen.items() if value is not None}
        if found.step is not None and found.step > (self._progress.total_steps or found.step):
            changes.setdefault("total_steps", None)
        if found.step is None and found.epoch_steps is not None and found.epoch_steps == self._progress.total_steps:
            changes.update(step=None, total_steps=None)  # the counter of the job turned out to be the epoch's
        before, newest = self._progress, replace(self._progress, **changes)
        if before.finished and newest.step not in (before.step, newest.total_steps):
            newest = replace(newest, finished=None)  # steps behind the end of a training are those of another one
        self._progress = newest

    def _add_loss(self, loss: float, step: int | None) -> None:
        if step is not None and (step, str(loss)) == self._last_loss_at:
            return
        self._last_loss_at = None if step is None else (step, str(loss))
        self._losses.append(loss)
        self._loss_count += 1
        if len(self._losses) > MOST_LOSSES:
            del self._losses[:-KEPT_LOSSES]

    def _read_gpu(self, piece: str) -> None:
        utilization, memory = read_gpu_utilization(piece), read_gpu_memory(piece)
        self._gpu_utilization = self._gpu_utilization if utilization is None else utilization
        if memory:
            self._memory = {"used": memory[0], "total": memory[1]}
