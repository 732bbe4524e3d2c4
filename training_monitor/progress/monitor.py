"""`TrainingMonitor`: a script says how far it is, and a file says so to everybody else (docs/progress_files.md).

    with TrainingMonitor("progress/llama.json") as monitor:
        for epoch in range(1, 11):
            monitor.start_epoch(epoch, total_batches=len(loader), total_epochs=10)
            for batch in loader:
                monitor.start_batch()
                monitor.update_metrics(loss=train_on(batch))

The training thread only counts. One background thread adds up, asks and writes, a few times a second. Nothing raises
into the training: what goes wrong is a warning, once. Checkpoints are the script's own: nothing here saves them.

* Of the processes of one training one writes: that of rank 0 by RANK, SLURM_PROCID and their kind. Without a rank, of
  the processes that multiprocessing started for one file, the first one; `rank=0` makes a run of each instead.
* A forked child, a copy made by pickle, a worker of a DataLoader: the monitor does nothing there. A script that forks
  itself into the background makes its monitor afterwards.
* A file that another process writes, on whatever host, is left to it: a warning, and a name beside it. A monitor of the
  same process and file ends where a newer one begins.
* `sys.exit(3)` and `exit(3)` are told as a failure; `raise SystemExit(3)` only within `with`, since nothing sees it.
* A metric is kept until its next value or the end. A tensor on a GPU is converted in the background, at most once a
  write, which waits for the GPU and may not be while CUDA graphs are captured: `loss.item()` where that matters.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import TracebackType

from training_monitor.clock import SYSTEM_CLOCK, Clock
from training_monitor.errors import SettingsError
from training_monitor.policy.run_values import CANCELED, FAILED, FINISHED, RUNNING, Estimate
from training_monitor.progress.background import Background
from training_monitor.progress.endings import Hooks, Outcome, bounded, outcome_of, text_of
from training_monitor.progress.files import RunFiles, run_files
from training_monitor.progress.metric_values import Discarded
from training_monitor.progress.run_record import RunRecord, counted
from training_monitor.progress.script_values import amount, default_file, is_data_worker, is_rank_zero, metadata, whole
from training_monitor.progress.troubles import Warnings, harmless
from training_monitor.progress.variable_calls import VariableCalls
from training_monitor.targets.transport import Transport


class TrainingMonitor(VariableCalls):
    """Writes the progress of this script to a file, from a background thread.

    Args:
        output_file: progress/RUN.json or progress/RUN (a folder of its own); progress/SCRIPT.json by default.
        run_name: what is shown; that of the file by default.
        rank: of this process; from the environment by default. Only rank 0 writes.
        tee_outputs: Also copy stdout and stderr to files beside the progress file.
        handle_signals: Tell SIGTERM and SIGINT as CANCELED. A SIGTERM that nobody handles then raises SystemExit(143),
            so that `finally` is run; a second one kills. Like Ctrl-C it waits for C code to return.
        interval: Seconds between two looks of the background thread, at most 2.
        wandb_url, wandb_run_name: shown; by default those of the run that `wandb.init` began.
    """

    def __init__(
        self,
        output_file: str | os.PathLike[str] | None = None,
        wandb_run_name: str | None = None,
        wandb_url: str | None = None,
        *,
        run_name: str | None = None,
        rank: int | None = None,
        tee_outputs: bool = False,
        handle_signals: bool = True,
        interval: float = 0.25,
        transport: Transport | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.troubles = Warnings()
        self._record = record = RunRecord(clock)
        self._metrics = record.metrics
        self._next_batch = record.training.__next__
        self._offset: int | None = None
        self._hooks, self._handle_signals = Hooks(self), handle_signals
        self._is_monitoring = False
        self._background: Background | None = None
        self.is_active, self.why_silent = is_rank_zero(rank), ""
        files = self._files(output_file) if self.is_active else None
        if files is None:
            self._become_inert()
            return
        self._background = Background(
            record,
            files,
            metadata(run_name or files.name, rank, wandb_run_name, wandb_url),
            interval=interval,
            tee_outputs=tee_outputs,
            troubles=self.troubles,
            clock=clock,
            transport=transport,
            fall_silent=self._fall_silent,
            is_alone=rank is not None,
        )
        os.register_at_fork(after_in_child=functools.partial(_forget, weakref.ref(self)))

    # ------------------------------------------------------------ each step

    def start_batch(self, batch: int | None = None) -> None:
        """Begin a batch: the next one, or that of this number; pending edits are applied first."""
        if self._record.needs_training_thread:
            self._attend()
        number = self._next_batch()
        if batch is not None:
            self._place(batch, number)

    def end_batch(self) -> None:
        """Do nothing: a batch ends where the next one or another part begins."""

    def update_metrics(self, /, *mappings: Mapping[str, object], **metrics: object) -> None:
        """Keep the latest value of each metric, whatever it is; it is converted in the background."""
        if mappings:
            self._update_from(mappings)
        self._metrics.update(metrics)

    # ------------------------------------------------------------ begin and end

    @harmless(None)
    def start_monitoring(self) -> None:
        """Begin to write, once; `with` and the first start of anything imply it."""
        record = self._record
        with record.lock:
            record.needs_training_thread = False
            if self._is_monitoring or record.status != RUNNING or self._background is None:
                return
            self._is_monitoring = True
        if is_data_worker():
            self._become_inert()
            return
        self._background.replace_earlier()
        self._hooks.install(signals=self._handle_signals)
        self._background.start()

    def set_finished(self) -> None:
        """Say that the run is done; the file says so when this returns. A failure that was told before stands."""
        self._set(Outcome(FINISHED))

    def set_failed(self, message: object = None) -> None:
        """Say that the run failed, and why: a text, or the exception."""
        if isinstance(message, BaseException):
            is_exit = isinstance(message, SystemExit | KeyboardInterrupt)
            self._set(replace(outcome_of(message), status=FAILED, is_exit=is_exit))
        else:
            self._set(Outcome(FAILED, None if message is None else bounded(text_of(message))))

    def set_canceled(self) -> None:
        """Say that somebody ended the run."""
        self._set(Outcome(CANCELED))

    def shutdown(self) -> None:
        """Stop monitoring and copying: the run is finished, or failed while an exception is on its way."""
        self.end(outcome_of(sys.exc_info()[1]))
        if self._is_monitoring and self._background:
            self._background.stop_copying()

    def __enter__(self) -> TrainingMonitor:
        self.start_monitoring()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end(outcome_of(error))

    def end(self, outcome: Outcome) -> None:
        """End the run, unless it was said before how it ended; a signal that came before makes it CANCELED."""
        self._finish(self._record.after_signal(outcome), is_explicit=False)

    def note_signal(self, name: str) -> None:
        """Remember a signal; called by its handler."""
        self._record.signal = name
        self._record.version += 1

    def count(self) -> int:
        """Grows with everything that the script says, which is not so after it has begun to exit."""
        record = self._record
        return counted(record.training) + counted(record.validation) + record.calls

    @harmless(None)
    def _set(self, outcome: Outcome) -> None:
        """End the run by the script's own word, which counts for less while a signal makes the script end."""
        self.start_monitoring()
        if self._record.signal and isinstance(sys.exc_info()[1], SystemExit | KeyboardInterrupt):
            self.end(outcome)
        else:
            self._finish(outcome, is_explicit=True)

    @harmless(None)
    def _finish(self, outcome: Outcome, *, is_explicit: bool) -> None:
        record, background = self._record, self._background
        if not self._is_monitoring or background is None:
            return
        with record.lock:
            is_new = record.end(outcome, is_explicit=is_explicit)
        if not is_new and background.is_final:
            return
        try:
            background.finish()
        except BaseException:  # a signal came amid the last write: it is raised, but not before the write is done
            background.finish()
            raise
        finally:
            self._hooks.remove()
            self._metrics = Discarded()
            record.metrics.clear()

    # ------------------------------------------------------------ epochs and parts

    @harmless(None)
    def set_dataset_sizes(self, train: int, validation: int) -> None:
        """Samples in both datasets: with them the first validation is reckoned with before it has been seen."""
        samples, others = amount("train", train), amount("validation", validation)
        with self._record.lock:
            self._record.progress.dataset_ratio = others / samples if samples else None

    @harmless(None)
    def set_remaining_steps(self, steps: int | None) -> None:
        """Training batches that the run still makes, where it may end amid an epoch; None where that is not known."""
        left = whole("steps", steps)
        with self._record.lock:
            self._record.observe()
            self._record.progress.end_after(left)
            self._record.version += 1

    @harmless(None)
    def start_phase(self, name: str) -> None:
        """Show this as the phase until the next one begins."""
        phase = bounded(text_of(name))[:100]
        self._at_safe_point(lambda: self._record.progress.start_phase(phase))

    @harmless(None)
    def end_phase(self) -> None:
        self._at_safe_point(self._record.progress.end_phase)

    @harmless(None)
    def start_epoch(
        self, epoch: int | None = None, total_batches: int | None = None, total_epochs: int | None = None
    ) -> None:
        """Begin an epoch; the next one without a number. One that begins with 0 is shown as 1."""
        numbers = whole("epoch", epoch), whole("total_batches", total_batches), whole("total_epochs", total_epochs)
        self._at_safe_point(lambda: self._record.progress.start_epoch(*numbers), counts="training")

    @harmless(None)
    def end_epoch(self) -> None:
        self._at_safe_point(self._record.progress.end_epoch, counts="training")

    @harmless(None)
    def start_training(self, total_batches: int | None = None) -> None:
        total = whole("total_batches", total_batches)
        self._at_safe_point(lambda: self._record.progress.start_training(total), counts="training")

    @harmless(None)
    def end_training(self) -> None:
        self._at_safe_point(self._record.progress.end_training, counts="training")

    @harmless(None)
    def start_validation(self, total_batches: int | None = None) -> None:
        """Count the batches from here as those of the validation."""
        total = whole("total_batches", total_batches)
        self._at_safe_point(lambda: self._record.progress.start_validation(total), counts="validation")

    @harmless(None)
    def end_validation(self) -> None:
        self._at_safe_point(self._record.progress.end_validation, counts="training")

    @harmless(None)
    def update_tqdm_stats(
        self, rate: float | None = None, elapsed: float | None = None, remaining: float | None = None
    ) -> None:
        """What a progress bar says, used while nothing better is known from the batches themselves."""
        numbers = [None if each is None else amount("tqdm", each) for each in (rate, elapsed, remaining)]
        with self._record.lock:
            self._record.progress.told = Estimate(*numbers)
            self._record.version += 1

    # ------------------------------------------------------------ inside

    def _at_safe_point(self, tell: Callable[[], None], *, counts: str | None = None) -> None:
        self._attend()
        record = self._record
        with record.lock:
            record.observe()
            tell()
            record.version += 1
            record.calls += 1
            self._offset = None
            if counts:
                self._next_batch = (record.validation if counts == "validation" else record.training).__next__

    @harmless(None)
    def _place(self, batch: int, number: int) -> None:
        if batch - number == self._offset:
            return
        place = whole("batch", batch) or 0
        with self._record.lock:
            self._record.observe()
            self._record.progress.place(place, number + 1)
            self._offset = batch - number

    @harmless(None)
    def _update_from(self, mappings: tuple[Mapping[str, object], ...]) -> None:
        self._metrics.update({text_of(name): value for mapping in mappings for name, value in mapping.items()})

    def _files(self, output_file: str | os.PathLike[str] | None) -> RunFiles | None:
        try:
            return run_files(default_file() if output_file is None else output_file)
        except (SettingsError, TypeError, ValueError, OSError) as error:
            self.troubles.warn("output_file", f"progress is not written: {error}", 3)
            return None

    def _become_inert(self) -> None:
        self.is_active = False
        self._metrics = Discarded()  # what a parent handed in stays in its record: a child must not free its tensors
        self._record.needs_training_thread = False

    def _fall_silent(self, why: str | None) -> None:
        """Do nothing any more, as the run is another monitor's by now; say why when it is used again."""
        self._become_inert()
        self.why_silent, self._record.needs_training_thread = why or "", bool(why)
        self._hooks.remove()
        self._record.metrics.clear()

    def __reduce__(self) -> tuple[Callable[..., TrainingMonitor], tuple[object, ...]]:
        return functools.partial(TrainingMonitor, rank=1), (None,)

    def __deepcopy__(self, memo: object) -> TrainingMonitor:
        return self

    def __copy__(self) -> TrainingMonitor:
        return self


def _forget(reference: weakref.ref[TrainingMonitor]) -> None:
    """In a forked child: the run is its parent's, and a lock may be held by a thread that is not here."""
    monitor = reference()
    if monitor is not None:
        monitor._become_inert()
        monitor._record.lock = threading.RLock()
        monitor._hooks.remove()
