"""Use a TrainingMonitor through the callbacks of training frameworks and through `logging`; none of them is imported.

    trainer = transformers.Trainer(..., callbacks=[HuggingFaceCallback("progress/llama.json")])
    trainer = lightning.Trainer(..., callbacks=[LightningCallback(TrainingMonitor("progress/llama.json"))])
    logging.getLogger().addHandler(MonitorHandler(monitor))

The frameworks call every hook of a callback by its name. Hooks that are not defined here do nothing.
"""

from __future__ import annotations

import functools
import logging
import math
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from training_monitor.core.errors import SettingsError
from training_monitor.core.masking import redact
from training_monitor.core.shown import text_of
from training_monitor.runs.endings import outcome_of
from training_monitor.runs.monitor import TrainingMonitor
from training_monitor.runs.stack_answers import answer_requests

MOST_LOG = 200
_Hook = Callable[..., None]
Monitored = TrainingMonitor | str | os.PathLike[str] | None


def monitor_of(monitor: object) -> TrainingMonitor:
    """Return a monitor, also for the path of its file or None; for anything else one that writes nothing, and warn."""
    if isinstance(monitor, TrainingMonitor):
        return monitor
    if monitor is None or isinstance(monitor, str | os.PathLike):
        return TrainingMonitor(monitor)
    silent = TrainingMonitor(rank=1)
    why = f"{type(monitor).__name__} is not a TrainingMonitor"
    silent.troubles.warn("monitor", f"progress is not being written: {why}", 4)
    return silent


def _nothing(*arguments: object, **options: object) -> None:
    """Do nothing."""


def _guarded(method: _Hook) -> _Hook:
    """Make a hook that acts in one process and never raises: arguments may differ between versions of a framework.

    The other processes of the training answer requests for their stacks.
    """

    @functools.wraps(method)
    def call(self: Any, *arguments: Any, **options: Any) -> None:
        try:
            if self._is_first_process(*arguments):
                method(self, *arguments, **options)
            else:
                answer_requests()
        except Exception as error:
            self.monitor.troubles.warn(method.__name__, f"{method.__name__}: {type(error).__name__}: {text_of(error)}")

    return call


class _Hooks:
    """Base class of callbacks: accepts every hook named `on_...`; other unknown attributes raise AttributeError."""

    def __init__(self, monitor: Monitored = None) -> None:
        self.monitor = monitor_of(monitor)

    def __getattr__(self, name: str) -> _Hook:
        if name.startswith("on_"):
            return _nothing
        raise AttributeError(f"{type(self).__name__} has no {name!r}")


class HuggingFaceCallback(_Hooks):
    """Report the progress of a `transformers.Trainer`, from the process with global rank 0.

    Pass the callback as `Trainer(callbacks=[...])`. The run is marked as finished when the training ends. Another call
    of `train()` starts a new run in the same file. The monitor itself reports exceptions in the training.
    """

    def __init__(self, monitor: Monitored = None) -> None:
        super().__init__(monitor)
        self._epoch: int | None = None  # the last one that began, from 0
        self._first_step = 0  # of this epoch
        self._is_validating = False

    def _is_first_process(self, args: Any, state: Any, *others: Any) -> bool:
        """Return whether the hook was called in the trainer's first process."""
        return bool(state.is_world_process_zero)

    @_guarded
    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self._epoch = None
        self.monitor.start_monitoring()
        self.monitor.is_within_fit = True
        if state.max_steps and state.max_steps > 0:
            self.monitor.set_remaining_steps(max(0, state.max_steps - state.global_step))

    @_guarded
    def on_epoch_begin(self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **others: Any) -> None:
        steps, epochs = steps_per_epoch(args, state, train_dataloader), _epochs(args, state)
        is_first = self._epoch is None
        if self._epoch is not None:
            self._epoch += 1
        else:  # the first one, or the one in which a checkpoint was made
            self._epoch = state.global_step // steps if steps else int((state.epoch or 0) + 0.001)
        is_anew = steps is None or getattr(args, "ignore_data_skip", False)
        self._first_step = state.global_step if is_anew else self._epoch * (steps or 0)
        if steps and state.max_steps and state.max_steps > 0:
            steps = max(1, min(steps, state.max_steps - self._first_step))
        self.monitor.start_epoch(self._epoch + 1, steps, epochs)
        if is_first:  # behind the epoch, whose number does not begin with 0 whatever the step is
            self.monitor.set_initial_step(state.global_step)

    @_guarded
    def on_step_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self._end_validation()
        self.monitor.start_batch(max(1, state.global_step + 1 - self._first_step))

    @_guarded
    def on_prediction_step(
        self, args: Any, state: Any, control: Any, eval_dataloader: Any = None, **others: Any
    ) -> None:
        if self.monitor.has_ended:  # `evaluate` after `train`
            return
        if not self._is_validating:
            self._is_validating = True
            self.monitor.start_validation(_length(eval_dataloader))
        self.monitor.start_batch()

    @_guarded
    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **others: Any) -> None:
        self._end_validation()
        self.monitor.update_metrics(_numbers(metrics))

    @_guarded
    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **others: Any) -> None:
        self.monitor.update_metrics(_numbers(logs))

    @_guarded
    def on_epoch_end(self, args: Any, state: Any, control: Any, *metrics: Any, **others: Any) -> None:
        self._end_validation()

    on_predict = on_epoch_end

    @_guarded
    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self._end_validation()
        self.monitor.end_epoch()
        self.monitor.set_finished()

    def _end_validation(self) -> None:
        if self._is_validating:
            self._is_validating = False
            self.monitor.end_validation()


class LightningCallback(_Hooks):
    """Report the progress of a Trainer of `lightning` or `pytorch_lightning`, from global rank 0 only.

    Pass the callback as `Trainer(callbacks=[...])`. An edited variable takes effect between two batches. The run is
    marked as finished when `fit` ends, and another call of `fit` starts a new run in the same file. If the trainer
    catches an exception, even one that it handles, the run is marked as failed; Ctrl-C marks it as canceled.
    """

    state_key = "training_monitor"
    _is_new_epoch = _is_new_fit = False

    @property
    def _legacy_state_key(self) -> type[LightningCallback]:
        """The key that a trainer also looks for when it resumes from a checkpoint: that of versions before 1.5."""
        return type(self)

    # A fit begins with `on_fit_start` and ends with `on_fit_end`; nothing is saved, so nothing is loaded.
    setup = teardown = load_state_dict = _nothing

    def state_dict(self) -> dict[str, Any]:
        """Return an empty dict, because a monitor does not belong in a checkpoint."""
        return {}

    def _is_first_process(self, trainer: Any, *others: Any) -> bool:
        """Return whether the hook was called in the process of global rank 0."""
        return bool(trainer.is_global_zero)

    @_guarded
    def on_fit_start(self, trainer: Any, module: Any) -> None:
        self._is_new_fit = True
        self.monitor.start_monitoring()

    @_guarded
    def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
        self._is_new_epoch = True

    @_guarded
    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
        if self._is_new_epoch:  # after a resume, the first batch tells how many of the epoch were made before
            self._is_new_epoch = False
            self._start_epoch(trainer, module, batch_idx)
        self.monitor.start_batch(batch_idx + 1)

    def _start_epoch(self, trainer: Any, module: Any, made: int) -> None:
        epoch, batches = int(trainer.current_epoch), _count(trainer.num_training_batches)
        epochs, left = _count(trainer.max_epochs), batches_left(trainer, module, made)
        before = epoch * batches + made if batches else int(trainer.global_step) * int(trainer.accumulate_grad_batches)
        if left is not None and batches:
            needed = epoch + math.ceil((made + left) / batches)
            epochs = needed if epochs is None else min(epochs, needed)
            left = min(left, (epochs - epoch) * batches - made)
            batches = min(batches, made + left)
        self.monitor.set_remaining_steps(left)
        self.monitor.start_epoch(epoch + 1, batches, epochs)
        if self._is_new_fit:
            self._is_new_fit = False
            self.monitor.set_initial_step(before)  # see `HuggingFaceCallback.on_epoch_begin`

    @_guarded
    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if loss is None:
            return
        is_divided = getattr(module, "automatic_optimization", True)  # for the sum of the gradients
        parts = int(trainer.accumulate_grad_batches) if is_divided else 1
        self.monitor.update_metrics(loss=loss if parts == 1 else loss * parts)

    def _shows(self, trainer: Any) -> bool:
        """Return whether a validation is one of the run: not the one before the fit, and none after it."""
        return not trainer.sanity_checking and not self.monitor.has_ended

    @_guarded
    def on_validation_epoch_start(self, trainer: Any, module: Any) -> None:
        if self._shows(trainer):
            self.monitor.start_validation(_total(trainer.num_val_batches))

    @_guarded
    def on_validation_batch_start(
        self, trainer: Any, module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if self._shows(trainer):
            self.monitor.start_batch()

    @_guarded
    def on_validation_end(self, trainer: Any, module: Any) -> None:
        if self._shows(trainer):
            self.monitor.end_validation()
            self.monitor.update_metrics(_numbers(trainer.callback_metrics))

    @_guarded
    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        self.monitor.update_metrics(_numbers(trainer.callback_metrics))

    @_guarded
    def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
        self.monitor.end(outcome_of(exception))

    @_guarded
    def on_fit_end(self, trainer: Any, module: Any) -> None:
        self.monitor.end_epoch()
        self.monitor.set_finished()


class MonitorHandler(logging.Handler):
    """A logging handler that shows the last warning or error as the metric `last_log`."""

    def __init__(self, monitor: Monitored, level: int = logging.WARNING) -> None:
        wrong = SettingsError("level", level, "a logging level such as logging.WARNING")
        if isinstance(level, bool) or not isinstance(level, (int, str)):
            raise wrong
        try:
            super().__init__(level)
        except ValueError:
            raise wrong from None
        self.monitor = monitor_of(monitor)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            said = f"{record.levelname}: {record.getMessage()}"
        except Exception as error:  # the arguments do not fit the message
            said = f"{record.levelname}: {text_of(record.msg)} ({type(error).__name__})"
        self.monitor.update_metrics(last_log=redact(said[: 2 * MOST_LOG])[:MOST_LOG])


def steps_per_epoch(args: Any, state: Any, loader: Any) -> int | None:
    """Return the optimizer steps in a whole epoch of transformers' Trainer; None if its data have no length.

    Newer versions make a step of the leftover batches at the end of an epoch, older ones do not: the totals that the
    trainer computed show which version this is.
    """
    batches, epochs, most = _length(loader), args.num_train_epochs or 1, getattr(args, "max_steps", -1)
    if not batches:
        is_exact = most <= 0 and state.max_steps and state.num_train_epochs and float(epochs).is_integer()
        return math.ceil(state.max_steps / state.num_train_epochs) if is_exact else None
    accumulated = max(1, getattr(args, "gradient_accumulation_steps", 1) or 1)
    with_rest, without = math.ceil(batches / accumulated), max(1, batches // accumulated)

    def is_total(steps: int) -> bool:
        if most > 0:
            return bool(state.num_train_epochs == math.ceil(most / steps))
        return bool(state.max_steps == math.ceil(epochs * steps))

    return without if is_total(without) and not is_total(with_rest) else with_rest


def _epochs(args: Any, state: Any) -> int | None:
    """Return the epochs of transformers' Trainer, the last one possibly partial; None if its data have no end."""
    epochs = math.ceil(state.num_train_epochs or args.num_train_epochs or 1)
    return max(1, epochs) if epochs < sys.maxsize else None


def batches_left(trainer: Any, module: Any, made: int) -> int | None:
    """Return the batches until Lightning's max_steps, after the `made` ones of this epoch; None if unset or unknown.

    Accumulation ends with an epoch, complete or not. In manual optimization the module decides what a step is.
    """
    most = _count(getattr(trainer, "max_steps", None))
    if most is None or not getattr(module, "automatic_optimization", True):
        return None
    left = max(0, most - int(trainer.global_step))
    accumulated, batches = max(1, int(trainer.accumulate_grad_batches)), _count(trainer.num_training_batches)
    in_step = left * accumulated - made % accumulated  # if all of them are in one epoch
    if not batches:
        return max(0, in_step)
    in_epoch = math.ceil(batches / accumulated)
    later = left - (in_epoch - made // accumulated)
    if later < 0:
        return max(0, min(batches - made, in_step))
    epochs, rest = divmod(later, in_epoch)
    return batches - made + epochs * batches + min(batches, rest * accumulated)


def _numbers(metrics: object) -> dict[str, object]:
    """Return the metrics of a framework by name."""
    return {text_of(name): value for name, value in metrics.items()} if isinstance(metrics, Mapping) else {}


def _length(loader: object) -> int | None:
    try:
        return len(loader)  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):  # an iterable dataset
        return None


def _count(value: object) -> int | None:
    """Return a count of Lightning's; None for inf or -1, which mean that there is no end."""
    if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return None
    return int(value)


def _total(counts: object) -> int | None:
    numbers = [_count(each) for each in (counts if isinstance(counts, list | tuple) else [counts])]
    known = [number for number in numbers if number is not None]
    return sum(known) if numbers and len(known) == len(numbers) else None
