"""`TrainingMonitor`: a script reports its progress, and a file shows it to everybody else (docs/progress_files.md).

    with TrainingMonitor("progress/llama.json") as monitor:
        for epoch in range(1, 11):
            monitor.start_epoch(epoch, total_batches=len(loader), total_epochs=10)
            for batch in loader:
                monitor.start_batch()
                monitor.update_metrics(loss=train_on(batch))

The training thread only counts. One background thread computes, measures and writes, a few times a second. Nothing
raises into the training: each kind of trouble becomes a warning, once. Checkpoints are up to the script: nothing here
saves them.

* Of the processes of one training only one writes: that of rank 0 by RANK, SLURM_PROCID and similar variables. Without
  a rank, of the processes that multiprocessing started for one file, the first one; `rank=0` gives each its own run.
* A monitor that is forked or pickled into another process has the run there, if nothing was reported where it comes
  from; otherwise it does nothing, and warns. In a DataLoader worker it does nothing.
* After the end of a run, `start_monitoring`, `with` or `start_epoch` begins another one in the same file, and warns.
* Every other process of the training, of any rank, answers requests for its Python stacks from a thread of its own.
* If another process writes the file, on whatever host, this run warns and writes under a name beside it. A monitor of
  the same process and file ends where a newer one begins.
* `sys.exit(3)`, `exit(3)` and `os._exit(3)` count as a failure; `raise SystemExit(3)` only within `with` and in
  children of multiprocessing, since nothing else sees it. `sys.exit(0)` in the middle of an epoch is CANCELED.
* A metric is its value at the call, and is shown until the next one. A tensor on a GPU is copied there at the call and
  read in the background, at most once per write. That waits for the GPU and is not allowed while CUDA graphs are
  captured: use `loss.item()` where that matters.
"""

from __future__ import annotations

import functools
import math
import os
import platform
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from types import CodeType, FrameType, TracebackType
from typing import Any

from training_monitor.core.arguments import check_value
from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.errors import SettingsError
from training_monitor.core.shown import text_of
from training_monitor.runs.background import Background
from training_monitor.runs.endings import Hooks, Outcome, Warnings, bounded, harmless, outcome_of
from training_monitor.runs.files import RunFiles, run_files
from training_monitor.runs.ownership import Candidate
from training_monitor.runs.record import (
    PLAIN,
    Callback,
    Change,
    Discarded,
    RunRecord,
    counted,
    plain_settings,
    value_now,
)
from training_monitor.runs.stack_answers import answer_requests
from training_monitor.runs.values import CANCELED, FAILED, FINISHED, RUNNING, Estimate, Scalar
from training_monitor.targets.proc_stat import RANK_VARIABLES, Identity
from training_monitor.targets.procfs import identify
from training_monitor.targets.transport import Transport

_NONE = object()
_NO_CHANGES: tuple[Change, ...] = ()
_WITHIN_NODES = ("LOCAL_RANK", "NODE_RANK")
_OF_WANDB = ("wandb_run_name", "wandb_url")
_BEGINNINGS = ("start_monitoring", "start_epoch", "start_training")  # the calls that begin another run after an end
_OTHER_CALLS = ("_attend", "start_phase", "start_validation")  # with them, the calls that begin a run in a copy


class TrainingMonitor:
    """Write the progress of the calling script to a file, from a background thread.

    Args:
        output_file: the progress file, such as progress/RUN.json, or a folder for this run alone, such as progress/RUN;
            default: progress/SCRIPT.json.
        run_name: the name to show; default: the name of the file.
        rank: the rank of this process; default: read from the environment. Only rank 0 writes.
        tee_outputs: also copy stdout and stderr to files next to the progress file.
        handle_signals: report SIGTERM and SIGINT as CANCELED. If SIGTERM has no other handler, the signal then raises
            SystemExit(143), so that `finally` blocks run; a second SIGTERM kills the process. As with Ctrl-C, the
            exception is raised only after any running C code has returned.
        interval: seconds between writes of the background thread, at most 2.
        config: the settings of the run: a mapping or an argparse.Namespace with at most 100 values. `top` shows these
            settings, and marks those that differ from the settings of other runs.
        initial_step: if this process resumes from a checkpoint, the number of batches that earlier processes completed;
            default: derived from the first `start_epoch` and `start_batch`.
        wandb_url, wandb_run_name: the W&B run to show; default: the run that `wandb.init` started.
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
        config: object = None,
        initial_step: int | None = None,
        transport: Transport | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        check_value("clock", clock, Clock)
        self.troubles = Warnings()
        self._file = output_file
        self._clock, self._transport = clock, transport
        self._options: dict[str, Any] = {  # also those of a copy
            "wandb_run_name": wandb_run_name,
            "wandb_url": wandb_url,
            "run_name": run_name,
            "rank": rank,
            "tee_outputs": tee_outputs,
            "handle_signals": handle_signals,
            "interval": interval,
            "config": {} if config is None else self._settings(config),
            "initial_step": initial_step,
        }
        self._heir_of: Identity | int | None = None  # the process that this monitor was copied from, or its pid
        self._heir_since: float | None = None
        self._set_up()
        if self._background is not None:
            os.register_at_fork(after_in_child=functools.partial(_forget, weakref.ref(self)))

    def _set_up(self) -> None:
        """Be ready to write a run that has not begun."""
        rank, heir_of = self._options["rank"], self._heir_of
        self._record = record = RunRecord(self._clock)
        self._metrics = record.metrics
        self._batches = record.training
        self._offset: int | None = None
        self._hooks = Hooks(self)
        self._trainer: tuple[int, CodeType | None] | None = None  # the thread that trains, and the code of its epochs
        self.is_within_fit = False  # set by the callback of a framework, from the begin of a training to its end
        self._is_monitoring = False
        self._wakes_at: tuple[str, ...] = ()  # of a monitor that waits: the calls that let it have a run
        self._background: Background | None = None
        self.is_active, self.why_silent = is_rank_zero(rank), ""
        self._answers_in: int | None = None  # the process that only answers requests for stacks, from the next call on
        files = self._files(self._file) if self.is_active else None
        if files is None:
            self._become_inert()
            self._answers_in, record.needs_training_thread = os.getpid(), True
            return
        self._file = files.progress_path
        self._background = Background(
            record,
            files,
            metadata(self._options["run_name"] or files.name, rank, *map(self._options.get, _OF_WANDB))
            | {"config": self._options["config"]},
            interval=self._options["interval"],
            tee_outputs=self._options["tee_outputs"],
            troubles=self.troubles,
            clock=self._clock,
            transport=self._transport,
            fall_silent=self._fall_silent,
            candidate=Candidate(
                functools.partial(_has_begun, record),
                is_alone=rank is not None and heir_of is None,
                heir_of=identify(heir_of) if isinstance(heir_of, int) else heir_of,
                heir_since=self._heir_since,
            ),
        )
        if (initial_step := self._options["initial_step"]) is not None:
            self.set_initial_step(initial_step)

    # ------------------------------------------------------------ each step

    def start_batch(self, batch: int | None = None) -> None:
        """Start the next batch, or the batch with the given number. Pending edits of variables are applied first."""
        if self._record.needs_training_thread:
            self._attend(is_batch=True)
        number = next(self._batches)
        if batch is not None:
            self._place(batch, number)

    def end_batch(self) -> None:
        """Do nothing: a batch ends when the next batch or another phase starts."""

    def update_metrics(self, /, *mappings: Mapping[str, object], loss: object = _NONE, **metrics: object) -> None:
        """Store the current value of each metric.

        Values can have any type. Changing an object after this call does not change the stored value.

        The loss is a metric like any other; a separate parameter for it makes the usual call a third faster.
        """
        if type(loss) is float:
            self._metrics["loss"] = loss
        elif loss is not _NONE:
            self._update_from({"loss": loss})
        if not (mappings or metrics):
            return
        for mapping in (*mappings, metrics) if metrics else mappings:
            if type(mapping) is dict:
                for value in tuple(mapping.values()):  # another thread may change it meanwhile
                    if type(value) is not float and type(value) not in PLAIN:
                        break
                else:
                    kept = self._metrics
                    kept |= mapping
                    continue
            self._update_from(mapping)

    # ------------------------------------------------------------ begin and end

    @harmless(None)
    def start_monitoring(self) -> None:
        """Start writing progress and responding to requests for stack traces.

        Further calls during a run have no effect. A `with` block and the first `start_...` call also start the
        monitoring. After the end of a run, this method starts a new run in the same file, as `start_epoch` and
        `start_training` do.
        """
        self._start()

    def _start(self) -> None:
        record = self._record
        with record.lock:
            record.needs_training_thread = False
            if self._is_monitoring or record.status != RUNNING or self._background is None:
                return
            self._is_monitoring = True
        if is_data_worker():
            self._become_inert()
            return
        answer_requests(record.training, record.validation)
        self._background.replace_earlier()
        self._trainer = threading.get_ident(), None
        self._hooks.install(signals=self._options["handle_signals"])
        self._background.start()

    def set_finished(self) -> None:
        """Mark the run as finished, and update the file before returning. A failed run stays failed."""
        self._set(Outcome(FINISHED))

    def set_failed(self, message: object = None) -> None:
        """Mark the run as failed. `message` is a string or an exception."""
        if isinstance(message, BaseException):
            is_exit = isinstance(message, SystemExit | KeyboardInterrupt)
            self._set(outcome_of(message)._replace(status=FAILED, is_exit=is_exit))
        else:
            self._set(Outcome(FAILED, None if message is None else bounded(text_of(message))))

    def set_canceled(self) -> None:
        """Mark the run as canceled by a person."""
        self._set(Outcome(CANCELED))

    def shutdown(self) -> None:
        """Stop monitoring, and stop copying the output.

        The run is marked as finished, or as failed if an exception is being handled.
        """
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
        """End the run, unless its end was already reported.

        After a signal or an early exit, the status of the run is CANCELED.
        """
        self._finish(outcome, is_explicit=False)

    def note_signal(self, name: str) -> None:
        """Record a signal; called by the signal handler."""
        self._record.signal = name
        self._record.version += 1

    def count(self) -> int:
        """Return a counter that increases with every call to this monitor, until the script begins to exit."""
        record = self._record
        return counted(record.training) + counted(record.validation) + record.calls

    def is_trained_here(self) -> bool:
        """Return whether the calling thread is the training thread, which most recently started a phase of the run."""
        return self._trainer is not None and self._trainer[0] == threading.get_ident()

    def is_within(self, frame: FrameType | None) -> bool:
        """Return whether the code that started the epoch is still on the stack, or a framework runs the training."""
        while isinstance(frame, FrameType) and not (self._trainer and frame.f_code is self._trainer[1]):
            frame = frame.f_back
        return isinstance(frame, FrameType) or self.is_within_fit

    def takes_call(self, name: str) -> bool:
        """Return True if a call of the method `name` has an effect; otherwise, log a warning with the reason.

        If the call starts a run, the run is set up first.
        """
        if self.is_active and not (name in _BEGINNINGS and self.has_ended and not self._hooks.is_over):
            return True
        if self.is_active:
            path, status = self._file, self._record.status
            self.troubles.warn("again", f"the run in {path!r} has ended ({status}): a new run replaces it", 3)
            self._options = {**self._options, "initial_step": None}
        if self.is_active or name in self._wakes_at:
            variables, background = self._record.variables, self._background
            if background is not None:
                background.leave()
            self._set_up()
            self._record.variables = variables
        if not self.is_active and name != "_finish":
            self.note_inactive_call()
        return self.is_active

    @property
    def has_ended(self) -> bool:
        """Return whether the end of the run has been recorded."""
        return self._record.status != RUNNING

    def note_inactive_call(self) -> None:
        """Warn that a call has no effect, and give the reason.

        If this process does not write a progress file, start responding to requests for its stack traces.
        """
        if self._wakes_at or is_data_worker():
            return
        self._record.needs_training_thread = False
        if self.why_silent:
            self.troubles.warn("silent", self.why_silent, 4)
        elif self._answers_in == os.getpid():
            answer_requests(self._record.training)
        self._answers_in = None

    @harmless(None)
    def _set(self, outcome: Outcome) -> None:
        """End the run by the script's own report, which counts for less while a signal makes the script end."""
        self._start()
        if self._record.signal and isinstance(sys.exc_info()[1], SystemExit | KeyboardInterrupt):
            self.end(outcome)
        else:
            self._finish(outcome, is_explicit=True)

    @harmless(None)
    def _finish(self, outcome: Outcome, *, is_explicit: bool) -> None:
        record, background = self._record, self._background
        if not self._is_monitoring or background is None:
            return
        if not is_explicit:
            outcome = record.before_its_time(record.after_signal(outcome))
        with record.lock:
            is_new = record.end(outcome, is_explicit=is_explicit)
        if not is_new and background.is_final:
            return
        try:
            background.finish()
        except BaseException:  # a signal came during the last write: finish the write before raising
            background.finish()
            raise
        finally:
            self._hooks.remove()
            self._metrics = Discarded()
            record.metrics.clear()
            record.needs_training_thread = not self._hooks.is_over  # for a warning if it is used again

    # ------------------------------------------------------------ epochs and parts

    @harmless(None)
    def set_dataset_sizes(self, train: int, validation: int) -> None:
        """Set the sizes of the training and validation datasets, used to estimate the first validation's duration."""
        samples, others = amount("train", train), amount("validation", validation)
        with self._record.lock:
            self._record.progress.dataset_ratio = others / samples if samples else None

    @harmless(None)
    def set_remaining_steps(self, steps: int | None) -> None:
        """Set the number of remaining training batches, for a run that may end within an epoch; None if unknown."""
        left = whole("steps", steps)
        with self._record.lock:
            self._record.observe()
            self._record.progress.end_after(left)
            self._record.version += 1

    @harmless(None)
    def set_initial_step(self, steps: int) -> None:
        """Set the number of training batches completed so far, including those of earlier processes."""
        made = whole("steps", steps) or 0
        with self._record.lock:
            self._record.observe()
            self._record.progress.begin_at(made)
            self._record.version += 1

    @harmless(None)
    def start_phase(self, name: str) -> None:
        """Show this name as the current phase until the next phase starts."""
        phase = bounded(text_of(name))[:100]
        self._at_safe_point(lambda: self._record.progress.start_phase(phase))

    @harmless(None)
    def end_phase(self) -> None:
        self._at_safe_point(self._record.progress.end_phase)

    @harmless(None)
    def start_epoch(
        self, epoch: int | None = None, total_batches: int | None = None, total_epochs: int | None = None
    ) -> None:
        """Start the epoch with this number; default: the next epoch.

        If the script numbers its epochs from 0, they are displayed with numbers from 1.
        """
        numbers = whole("epoch", epoch), whole("total_batches", total_batches), whole("total_epochs", total_epochs)
        self._at_safe_point(lambda: self._record.progress.start_epoch(*numbers), counts="training", trains=True)

    @harmless(None)
    def end_epoch(self) -> None:
        self._at_safe_point(self._record.progress.end_epoch, counts="training")

    @harmless(None)
    def start_training(self, total_batches: int | None = None) -> None:
        total = whole("total_batches", total_batches)
        self._at_safe_point(lambda: self._record.progress.start_training(total), counts="training", trains=True)

    @harmless(None)
    def end_training(self) -> None:
        self._at_safe_point(self._record.progress.end_training, counts="training")

    @harmless(None)
    def start_validation(self, total_batches: int | None = None) -> None:
        """Count the batches that follow as validation batches."""
        total = whole("total_batches", total_batches)
        self._at_safe_point(lambda: self._record.progress.start_validation(total), counts="validation")

    @harmless(None)
    def end_validation(self) -> None:
        self._at_safe_point(self._record.progress.end_validation, counts="training")

    @harmless(None)
    def update_tqdm_stats(
        self, rate: float | None = None, elapsed: float | None = None, remaining: float | None = None
    ) -> None:
        """Use the speed and times of a progress bar until the batches themselves provide better estimates."""
        numbers = [None if each is None else amount("tqdm", each) for each in (rate, elapsed, remaining)]
        with self._record.lock:
            self._record.progress.told = Estimate(*numbers)
            self._record.version += 1

    # ------------------------------------------------------------ editable variables

    @property
    def variables(self) -> dict[str, Any]:
        """Return the tracked variables with their current values."""
        return self._record.variables.values

    @harmless(None)
    def track_variables(self, variables: Mapping[str, object]) -> None:
        """Allow these variables to be edited from outside.

        An edit changes this dict in place, between two training steps.
        """
        with self._record.lock:
            self._record.variables.track(variables)
            self._record.version += 1

    @harmless(None)
    def register_callback(self, name: str, callback: Callback) -> None:
        """Register `callback(name, old, new)`, which the training thread calls after each edit of this variable."""
        self._record.variables.call_back(callback, name)

    @harmless(None)
    def register_general_callback(self, callback: Callback) -> None:
        """Register a callback that is called whenever a variable is edited; see `register_callback`."""
        self._record.variables.call_back(callback)

    @harmless(False)
    def is_change(self, name: str | None = None) -> bool:
        """Apply pending edits. Return whether the given variable (default: any) has changed since the last call."""
        self._attend()
        with self._record.lock:
            return bool(self._record.variables.tell(name))

    @harmless(_NO_CHANGES)
    def check_changes(self) -> tuple[Change, ...]:
        """Apply pending edits. Return the changes since the last call, each as (name, old value, new value)."""
        self._attend()
        with self._record.lock:
            return tuple(self._record.variables.tell())

    @harmless("no changes")
    def get_change_summary(self, changes: object = None) -> str:
        """Describe the last changes. The argument exists only for compatibility and is ignored."""
        return self._record.variables.summary()

    @harmless(False)
    def should_restart_dataloader(self, changes: object = None) -> bool:
        """Return whether batch_size or num_workers has changed since the last call. The argument is ignored."""
        self._attend()
        return self._record.variables.needs_dataloader()

    # ------------------------------------------------------------ inside

    @harmless(None)
    def _attend(self, *, is_batch: bool = False) -> None:
        """Start monitoring if needed; apply the edits, and call the callbacks."""
        self._start()
        record = self._record
        if is_batch and self.has_ended:
            self.troubles.warn("ended", f"the run has ended ({record.status}): start_monitoring() begins a new run", 4)
        with record.lock:
            record.needs_training_thread = False
            changes = record.variables.apply(record.clock.time())
            record.version += bool(changes)
        for failure in record.variables.tell_callbacks(changes):
            self.troubles.warn(failure, failure)

    def _at_safe_point(self, tell: Callable[[], None], *, counts: str | None = None, trains: bool = False) -> None:
        self._attend()
        record = self._record
        if trains:
            self._trainer = threading.get_ident(), sys._getframe(3).f_code  # of whoever called our caller
        with record.lock:
            record.observe()
            tell()
            record.version += 1
            record.calls += 1
            self._offset = None
            if counts:
                self._batches = record.validation if counts == "validation" else record.training

    @harmless(None, "start_batch")
    def _place(self, batch: int, number: int) -> None:
        if batch - number == self._offset:
            return
        place = whole("batch", batch) or 0
        with self._record.lock:
            self._record.observe()
            self._record.progress.place(place, number + 1)
            self._offset = batch - number

    @harmless(None, "update_metrics")
    def _update_from(self, mapping: Mapping[str, object]) -> None:
        kept = self._metrics
        for name, value in dict(mapping).items():
            try:
                kept[name] = value_now(value)
            except SystemExit as error:  # of the value, not of our handler of SIGTERM
                if self._record.signal:
                    raise
                kept[name] = f"SystemExit: {text_of(error)}"

    def _files(self, output_file: str | os.PathLike[str] | None) -> RunFiles | None:
        try:
            return run_files(default_file() if output_file is None else output_file)
        except (SettingsError, TypeError, ValueError, OSError) as error:
            self.troubles.warn("output_file", f"progress is not being written: {error}", 3)
            return None

    def _settings(self, config: object) -> dict[str, Scalar]:
        try:
            return plain_settings(config if isinstance(config, Mapping) else vars(config))
        except Exception as error:  # of any object
            self.troubles.warn(
                "config", f"the settings could not be recorded: {type(error).__name__}: {text_of(error)}", 3
            )
            return {}

    def _become_inert(self) -> None:
        self.is_active = False
        self._metrics = Discarded()  # a child must not free its parent's tensors: they stay in the record
        self._record.needs_training_thread = False

    def _wait_for_call(self, heir_of: Identity | int, *, has_ended: bool = False) -> None:
        """Do nothing until a call begins something: of the processes with this monitor the first one has the run."""
        self._become_inert()
        self._heir_of, self._record.needs_training_thread = heir_of, not has_ended
        self._wakes_at = _BEGINNINGS if has_ended else (*_BEGINNINGS, *_OTHER_CALLS)

    def _fall_silent(self, why: str | None) -> None:
        """Do nothing from now on, as another monitor has the run; give the reason if it is used again.

        One that has not counted anything only waits: it may be used after the other one.
        """
        if why is None and not _has_begun(self._record):
            self._wait_for_call(self._heir_of or os.getpid())
        else:
            self._become_inert()
            self.why_silent, self._record.needs_training_thread = why or "", bool(why)
        self._hooks.remove()
        self._record.metrics.clear()

    @property
    def _may_move(self) -> bool:
        """Whether a copy in another process may have the run: nothing was reported here, or all was."""
        return (self.is_active or bool(self._wakes_at)) and (self.has_ended or not _has_begun(self._record))

    def _live_elsewhere(self, of: Identity | int, *, may_move: bool, has_ended: bool) -> None:
        """Become the monitor of another process than that which it is of."""
        is_used = self.is_active or may_move
        self._heir_since = self._clock.time()
        self._become_inert()
        if may_move:
            self._wait_for_call(of, has_ended=has_ended)
        elif is_used:
            pid = of if isinstance(of, int) else of.pid
            self.why_silent = (
                f"process {pid} writes {self._file!r}: the copy of its monitor in this process does nothing"
            )
            self._record.needs_training_thread = True

    def __reduce__(self) -> tuple[Callable[..., TrainingMonitor], tuple[object, ...]]:
        return _copied, (self._file, self._options, identify(), self.is_active, self._may_move, self.has_ended)

    def __deepcopy__(self, memo: object) -> TrainingMonitor:
        return self

    def __copy__(self) -> TrainingMonitor:
        return self


def _has_begun(record: RunRecord) -> bool:
    """Return whether the script has reported anything; called in any thread."""
    return bool(counted(record.training) or counted(record.validation) or record.calls)


def _copied(
    file: str | None, options: dict[str, Any], of: Identity, is_active: bool, may_move: bool, has_ended: bool
) -> TrainingMonitor:
    """Return what a pickled monitor becomes elsewhere: it has the run if nothing was reported where it comes from."""
    monitor = TrainingMonitor(file, **options)
    monitor.is_active, monitor._answers_in = is_active, None
    monitor._live_elsewhere(of, may_move=may_move and of != identify(), has_ended=has_ended)
    return monitor


def _forget(reference: weakref.ref[TrainingMonitor]) -> None:
    """Let a monitor wait in a forked child: an absent thread may hold a lock, and the run may be its parent's."""
    monitor = reference()
    if monitor is not None:
        may_move, has_ended = monitor._may_move, monitor.has_ended
        monitor._live_elsewhere(os.getppid(), may_move=may_move, has_ended=has_ended)
        monitor._record.lock = threading.RLock()
        monitor._hooks.remove()


def is_rank_zero(rank: int | None) -> bool:
    """Return whether this process is the one that writes: by its rank, else by that of the launcher.

    Without a global rank, the ranks within the node and of the node must both be 0, as far as they are set.
    """
    if rank is not None:
        return rank == 0
    known = _rank_of_launcher()
    within = {os.environ.get(name, "").strip() for name in _WITHIN_NODES}
    return within <= {"", "0"} if known is None else known == "0"


def _rank_of_launcher() -> str | None:
    """Return the first global rank that a launcher set: torchrun within srun comes before srun."""
    return next((rank for name in RANK_VARIABLES if (rank := os.environ.get(name, "").strip())), None)


def is_data_worker() -> bool:
    """Return whether this is a worker of a torch DataLoader, by torch's own answer; torch is not imported for it."""
    get_worker_info = getattr(sys.modules.get("torch.utils.data"), "get_worker_info", None)
    return callable(get_worker_info) and get_worker_info() is not None


def default_file() -> str:
    """Return progress/SCRIPT.json, or progress/run.json if there is no script."""
    folder, file = os.path.split(os.path.abspath(sys.argv[0] if sys.argv and sys.argv[0] else "run"))
    script = (os.path.basename(folder) if file == "__main__.py" else file).removesuffix(".py")
    if not script or script[0] in ".-":
        script = "run"
    before = "run_" if script in ("control", "progress") or script.startswith("control_") else ""
    return os.path.join("progress", f"{before}{script}.json")


def metadata(run_name: object, rank: int | None, wandb_run_name: object, wandb_url: object) -> dict[str, object]:
    """Return what is known of the script from the beginning (docs/progress_files.md)."""
    return {
        "run_name": text_of(run_name)[:200],
        "script_name": os.path.basename(sys.argv[0] if sys.argv else "") or None,
        "python_version": platform.python_version(),
        "rank": 0 if rank == 0 or _rank_of_launcher() else None,
        "wandb_run_name": None if wandb_run_name is None else text_of(wandb_run_name)[:200],
        "wandb_url": None if wandb_url is None else text_of(wandb_url)[:1000],
    }


def whole(name: str, value: object) -> int | None:
    """Return a count; None stays None. Raises TypeError if it is not whole, ValueError if it is negative."""
    if value is None:
        return None
    number = int(value) if isinstance(value, float) and value.is_integer() else value
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise TypeError(f"{name} must be a whole number, not {text_of(value)[:100]!r}")
    if number.__index__() < 0:
        raise ValueError(f"{name} must be 0 or more, not {number}")
    return int(number.__index__())


def amount(name: str, value: object) -> float:
    """Return a finite number that is not negative, else raise TypeError or ValueError."""
    number = float(value)  # type: ignore[arg-type]
    if not 0 <= number < math.inf:
        raise ValueError(f"{name} must be 0 or more, not {text_of(value)[:100]}")
    return number
