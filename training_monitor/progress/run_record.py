"""All that a script has said of its run, and the document that is written of it. No I/O.

The training thread counts and hands in metrics without a lock: counters are `itertools.count`, whose steps are one
act, and metrics one dict. All else is under `lock`, which is never held while a file is written.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from dataclasses import asdict

from training_monitor.clock import Clock
from training_monitor.parse.progress_file import MAX_VALUE
from training_monitor.policy.run_values import FAILED, FINISHED, RUNNING, Estimate, OwnResources, Scalar
from training_monitor.progress.endings import Outcome, outcome_after, text_of
from training_monitor.progress.metric_values import MOST_METRICS, LossHistory, MetricValues, plain_value, written
from training_monitor.progress.own_resources import Busiest
from training_monitor.progress.run_clock import VALIDATION, RunClock
from training_monitor.progress.variables import TrackedVariables, read_only_text

FORMAT = 1


def counted(counter: itertools.count[int]) -> int:
    """How often a counter that began at 0 was stepped: it tells that in no other way than by its text."""
    return int(repr(counter)[6:-1])


class RunRecord:
    """The state of one run. Methods are called with `lock` held, but for those of the training thread's counting."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.lock = threading.RLock()  # a signal handler may interrupt its holder
        self.training, self.validation = itertools.count(), itertools.count()
        self.metrics: dict[str, object] = {}
        self.progress = RunClock(clock.monotonic())
        self.variables = TrackedVariables()
        self.started_at = clock.time()
        self.step_at: float | None = None
        self.status, self.is_explicit = RUNNING, False
        self.message: str | None = None
        self.exit_code: int | None = None
        self.signal: str | None = None
        self.ended_at: float | None = None
        self.needs_training_thread = True  # to begin the monitoring, or to apply edits
        self.version = 0  # grows with everything that is worth a write
        self.calls = 0  # grows with what the script says besides counting
        self._values, self._losses = MetricValues(), LossHistory()

    def observe(self) -> None:
        """Let time pass up to now, and look at the counters."""
        if self.progress.observe(self.clock.monotonic(), counted(self.training), counted(self.validation)):
            self.step_at = self.clock.time()
            self.version += 1

    def take_metrics(self) -> bool:
        """Convert what the script handed in since; not under the lock, since a GPU may be waited for.

        Returns:
            Whether all were taken; of more than 200 the newest names are dropped, however many there come to be.
        """
        metrics = dict(self.metrics)
        if self._values.update(metrics):
            self.version += 1
            if (loss := self._values.loss()) is not None:
                self._losses.add(loss)
        for name in list(metrics)[MOST_METRICS:]:
            self.metrics.pop(name, None)
        return len(metrics) <= MOST_METRICS

    def end(self, outcome: Outcome, *, is_explicit: bool) -> bool:
        """Set how the run ended; False where an earlier word counts.

        Args:
            is_explicit: the script says so itself; else it was seen how it ends.
        """
        if self.status != RUNNING and not (is_explicit and self._is_corrected_by(outcome.status)):
            return False
        self.observe()
        if self.status == RUNNING:
            self.ended_at = self.clock.time()
            self.progress.end()
        self.status, self.is_explicit = outcome.status, is_explicit
        self.message, self.exit_code = outcome.message, outcome.exit_code
        self.version += 1
        return True

    def _is_corrected_by(self, status: str) -> bool:
        """Whether the script's own word counts though the run has ended.

        Its first word does, after which only a failure takes FINISHED back. That it finished, as a `finally` says it,
        is no better knowledge than the exception that was seen.
        """
        if self.is_explicit:
            return self.status == FINISHED and status == FAILED
        return status != FINISHED

    def after_signal(self, outcome: Outcome) -> Outcome:
        """How the run ended, where a signal may have come: CANCELED then, unless it went on to its last batch."""
        with self.lock:
            self.observe()
            if self.signal is None or (outcome.status == FINISHED and self.progress.is_complete):
                return outcome
        return outcome_after(self.signal, outcome)

    def document(self, metadata: Mapping[str, object], resources: OwnResources, busiest: Busiest) -> dict[str, object]:
        """The progress file of docs/progress_files.md."""
        return {
            "format": FORMAT,
            "status": self.status,
            "start_time": self.started_at,
            "updated_at": self.clock.time(),
            "end_time": self.ended_at,
            "error_message": self.message or (f"{self.signal} was received" if self.signal else None),
            "exit_code": self.exit_code,
            "metadata": {**metadata, "start_time": self.started_at},
            "state": self._state(),
            "estimates": self._estimates(),
            "metrics": self._values.plain(),
            "losses": self._losses.values(),
            "variables": {name: self._variable(name) for name in self.variables.values},
            "resources": {**asdict(resources), "busiest_threads": busiest},
        }

    def _state(self) -> dict[str, object]:
        progress = self.progress
        return {
            "phase": progress.phase,
            "epoch": progress.epoch,
            "total_epochs": progress.total_epochs,
            "batch": progress.training.batch,
            "total_batches": progress.training.total,
            "validation_batch": progress.validation.batch if progress.mode == VALIDATION else None,
            "total_validation_batches": progress.validation.total,
            "step": progress.training.count or None,
            "total_steps": progress.total_steps,
            "step_at": self.step_at,
        }

    def _estimates(self) -> dict[str, object]:
        progress, estimates = self.progress, self.progress.estimates()
        run = estimates.run
        if self.status == FINISHED:
            run = Estimate(run.rate, run.elapsed, 0.0, run.elapsed)
        return {
            "run": _rounded(run),
            "epoch": {**_rounded(estimates.epoch), "durations": _seconds(progress.epoch_durations)},
            "training": {**_rounded(estimates.training), "durations": _seconds(progress.training.durations)},
            "validation": {**_rounded(estimates.validation), "durations": _seconds(progress.validation.durations)},
            "dataset_ratio": progress.dataset_ratio,
        }

    def _variable(self, name: str) -> dict[str, object]:
        answer, kind = self.variables.answers.get(name), self.variables.kind(name)
        value = self.variables.current(name)
        return {
            "value": _shown(value, kind),
            "type": kind or type(value).__name__,
            "edit": answer.edit if answer else None,
            "error": answer.error if answer else None,
            "applied_at": answer.applied_at if answer else None,
        }


def _shown(value: object, kind: str | None) -> Scalar:
    if kind is None:
        return read_only_text(value)
    return text_of(value)[:MAX_VALUE] if kind == "str" else written(plain_value(value))


def _rounded(estimate: Estimate) -> dict[str, float | None]:
    return {
        name: None if value is None else float(f"{value:.6g}") if name == "rate" else round(value, 3)
        for name, value in asdict(estimate).items()
    }


def _seconds(durations: object) -> list[float]:
    return [round(seconds, 3) for seconds in durations]  # type: ignore[attr-defined]
