"""What the frameworks' hooks, called as the frameworks call them, make of a run."""

from __future__ import annotations

import copy
import json
import logging
import math
import pickle
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from training_monitor.runs.integrations import HuggingFaceCallback, LightningCallback, MonitorHandler
from training_monitor.runs.monitor import TrainingMonitor
from training_monitor.runs.values import OwnResources


@pytest.fixture
def monitor(tmp_path: Path) -> TrainingMonitor:
    return TrainingMonitor(tmp_path / "run.json", interval=0.01, handle_signals=False)


def written(tmp_path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((tmp_path / "run.json").read_text())
    return document


def state(step: int = 0, epoch: float = 0.0, first: bool = True) -> SimpleNamespace:
    return SimpleNamespace(is_world_process_zero=first, global_step=step, epoch=epoch, max_steps=12, num_train_epochs=2)


def train_with_hugging_face(callback: HuggingFaceCallback, first: bool = True) -> None:
    args, control = SimpleNamespace(num_train_epochs=2), object()
    options = {"model": None, "optimizer": None, "eval_dataloader": [0, 0, 0]}
    callback.on_init_end(args, state(first=first), control, **options)
    callback.on_train_begin(args, state(first=first), control, **options)
    for epoch in range(2):
        callback.on_epoch_begin(args, state(6 * epoch, epoch, first), control, **options)
        for step in range(6 * epoch, 6 * epoch + 6):
            callback.on_step_begin(args, state(step, first=first), control, **options)
            callback.on_pre_optimizer_step(args, state(step, first=first), control, **options)
            callback.on_step_end(args, state(step + 1, first=first), control, **options)
            callback.on_log(args, state(step + 1, first=first), control, logs={"loss": 1.0 / (step + 1)}, **options)
        for _ in range(3):
            callback.on_prediction_step(args, state(6 * epoch + 6, first=first), control, **options)
        callback.on_evaluate(args, state(first=first), control, metrics={"eval_loss": 0.5}, **options)
        callback.on_epoch_end(args, state(6 * epoch + 6, epoch + 1, first), control, **options)
    callback.on_train_end(args, state(12, 2.0, first), control, **options)


def test_a_hugging_face_training_is_told_whole(monitor: TrainingMonitor, tmp_path: Path) -> None:
    train_with_hugging_face(HuggingFaceCallback(monitor))
    document = written(tmp_path)
    assert document["status"] == "FINISHED"
    told = document["state"]
    assert (told["epoch"], told["total_epochs"], told["batch"], told["total_batches"]) == (2, 2, 6, 6)
    assert (told["step"], told["total_validation_batches"], told["phase"]) == (12, 3, "training")
    assert document["metrics"] == {"loss": pytest.approx(1 / 12), "eval_loss": 0.5}
    assert len(document["estimates"]["validation"]["durations"]) == 2


@dataclass
class Trainer:
    """As transformers' Trainer: `rest` whether it makes a step of the batches that are left over in an epoch."""

    batches: int | None
    accumulated: int = 1
    epochs: float = 3.0
    max_steps: int = -1
    rest: bool = True
    begun: int = 0  # steps, when it goes on from a checkpoint
    ignore_data_skip: bool = False

    def train(self, callback: HuggingFaceCallback) -> Iterator[int]:
        """Train, and yield before each step how many were made."""
        most, epochs, per_epoch = self.max_steps, sys.maxsize, sys.maxsize
        if self.batches is not None:
            per_epoch = max(1, (math.ceil if self.rest else math.floor)(self.batches / self.accumulated))
            most = self.max_steps if self.max_steps > 0 else math.ceil(self.epochs * per_epoch)
            epochs = math.ceil(most / per_epoch) if self.max_steps > 0 else math.ceil(self.epochs)
        args = SimpleNamespace(
            num_train_epochs=self.epochs,
            max_steps=self.max_steps,
            gradient_accumulation_steps=self.accumulated,
            ignore_data_skip=self.ignore_data_skip,
        )
        at = SimpleNamespace(
            is_world_process_zero=True, global_step=self.begun, epoch=0.0, max_steps=most, num_train_epochs=epochs
        )
        loader = None if self.batches is None else [0] * self.batches
        callback.on_train_begin(args, at, None, train_dataloader=loader)
        first, skipped = divmod(self.begun, per_epoch)
        for epoch in range(first, epochs):
            callback.on_epoch_begin(args, at, None, train_dataloader=loader)
            done = skipped if epoch == first and not self.ignore_data_skip else 0
            while done < per_epoch and at.global_step < most:
                callback.on_step_begin(args, at, None, train_dataloader=loader)
                yield at.global_step
                at.global_step, done = at.global_step + 1, done + 1
                at.epoch = epoch + done * self.accumulated / (self.batches or most)  # not whole where batches are left
            if at.global_step >= most:
                break
        callback.on_train_end(args, at, None, train_dataloader=loader)


def shown(monitor: TrainingMonitor) -> str:
    """What `top` would show now."""
    monitor._record.observe()
    state = monitor._record.document({}, OwnResources(), [])["state"]
    assert isinstance(state, dict)
    return "{epoch}/{total_epochs} {batch}/{total_batches} {step}/{total_steps}".format(**state)


@pytest.mark.parametrize(
    ("trainer", "seen"),
    [
        (Trainer(10, epochs=1.5), {0: "1/2 1/10 1/15", 9: "1/2 10/10 10/15", 10: "2/2 1/5 11/15", 14: "2/2 5/5 15/15"}),
        (Trainer(10, epochs=1.5, begun=10), {10: "2/2 1/5 11/15", 14: "2/2 5/5 15/15"}),
        (Trainer(21, max_steps=26), {20: "1/2 21/21 21/26", 21: "2/2 1/5 22/26", 25: "2/2 5/5 26/26"}),
        (Trainer(26, epochs=1.6), {25: "1/2 26/26 26/42", 41: "2/2 16/16 42/42"}),
        (Trainer(10, accumulated=4), {2: "1/3 3/3 3/9", 3: "2/3 1/3 4/9", 8: "3/3 3/3 9/9"}),
        (Trainer(10, accumulated=4, rest=False), {1: "1/3 2/2 2/6", 2: "2/3 1/2 3/6", 5: "3/3 2/2 6/6"}),
        (Trainer(3, accumulated=8), {0: "1/3 1/1 1/3", 2: "3/3 1/1 3/3"}),
        (Trainer(None, max_steps=5), {0: "1/None 1/None 1/5", 4: "1/None 5/None 5/5"}),
        (Trainer(10, begun=17), {17: "2/3 8/10 18/30", 20: "3/3 1/10 21/30", 29: "3/3 10/10 30/30"}),
        (Trainer(10, begun=20), {20: "3/3 1/10 21/30"}),
        (Trainer(10, begun=17, ignore_data_skip=True), {17: "2/3 1/10 18/30", 29: "3/3 3/3 30/30"}),
        (Trainer(10, max_steps=14, begun=4), {4: "1/2 5/10 5/14", 10: "2/2 1/4 11/14"}),
    ],
)  # fmt: skip
def test_a_hugging_face_training_of_any_length_shows_how_far_it_is(
    monitor: TrainingMonitor, tmp_path: Path, trainer: Trainer, seen: dict[int, str]
) -> None:
    found = {}
    for step in trainer.train(HuggingFaceCallback(monitor)):
        found[step] = shown(monitor)
    assert {step: found[step] for step in seen} == seen
    assert written(tmp_path)["status"] == "FINISHED"


def test_every_hook_is_answered_and_one_that_is_handed_rubbish_warns_once(monitor: TrainingMonitor) -> None:
    for callback in (HuggingFaceCallback(monitor), LightningCallback(monitor)):
        assert callback.on_something_of_next_year(1, 2, x=3) is None
        assert not hasattr(callback, "state") and not hasattr(callback, "__len__")
        assert copy.deepcopy(callback).monitor is monitor
        assert type(pickle.loads(pickle.dumps(callback))) is type(callback)
    callback = HuggingFaceCallback(monitor)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            callback.on_step_begin(None, None, None)
    assert len(caught) == 1 and "on_step_begin" in str(caught[0].message)


class Tensor:
    """What a loss looks like."""

    def __init__(self, value: float) -> None:
        self.value = value

    def item(self) -> float:
        return self.value

    def __mul__(self, factor: int) -> Tensor:
        return Tensor(self.value * factor)


def trainer(epoch: int = 0, *, zero: bool = True, sanity: bool = False) -> SimpleNamespace:
    return SimpleNamespace(
        is_global_zero=zero, sanity_checking=sanity, current_epoch=epoch, max_epochs=2, num_training_batches=4,
        num_val_batches=[2, 1], callback_metrics={"val_loss": Tensor(0.25)}, accumulate_grad_batches=1,
    )  # fmt: skip


def fit(callback: LightningCallback, zero: bool = True) -> None:
    callback.setup(trainer(zero=zero), None, stage="fit")
    callback.on_fit_start(trainer(zero=zero), None)
    callback.on_validation_epoch_start(trainer(zero=zero, sanity=True), None)
    callback.on_validation_batch_start(trainer(zero=zero, sanity=True), None, None, 0)
    callback.on_validation_end(trainer(zero=zero, sanity=True), None)
    for epoch in range(2):
        here = trainer(epoch, zero=zero)
        callback.on_train_epoch_start(here, None)
        for batch in range(4):
            callback.on_train_batch_start(here, None, None, batch)
            callback.on_before_zero_grad(here, None, None)
            callback.on_train_batch_end(here, None, {"loss": Tensor(2.0)}, None, batch)
        callback.on_validation_epoch_start(here, None)
        for batch in range(3):
            callback.on_validation_batch_start(here, None, None, batch)
        callback.on_validation_end(here, None)
        callback.on_train_epoch_end(here, None)


def test_a_lightning_fit_is_told_whole(monitor: TrainingMonitor, tmp_path: Path) -> None:
    callback = LightningCallback(monitor)
    fit(callback)
    callback.on_fit_end(trainer(1), None)
    callback.teardown(trainer(1), None, stage="fit")
    document = written(tmp_path)
    told = document["state"]
    assert document["status"] == "FINISHED"
    assert (told["epoch"], told["total_epochs"], told["batch"], told["total_batches"]) == (2, 2, 4, 4)
    assert (told["step"], told["total_validation_batches"]) == (8, 3)
    assert document["metrics"] == {"loss": 2.0, "val_loss": 0.25}


@pytest.mark.parametrize(("is_automatic", "loss"), [(True, 2.0), (False, 0.5)])
def test_the_loss_is_not_that_of_a_part_of_the_accumulated_gradients(
    monitor: TrainingMonitor, tmp_path: Path, is_automatic: bool, loss: float
) -> None:
    callback, here = LightningCallback(monitor), trainer()
    here.accumulate_grad_batches = 4
    module = SimpleNamespace(automatic_optimization=is_automatic)  # otherwise its loss is not divided by the trainer
    callback.on_fit_start(here, module)
    callback.on_train_batch_end(here, module, {"loss": Tensor(0.5)}, None, 0)
    callback.on_fit_end(here, module)
    assert written(tmp_path)["metrics"]["loss"] == loss


@dataclass
class Fit:
    """As lightning's Trainer, which steps after so many batches and at the end of an epoch."""

    num_training_batches: float = 10
    max_steps: int = -1
    max_epochs: int = -1
    accumulate_grad_batches: int = 1
    global_step: int = 0
    current_epoch: int = 0
    begun: int = 0  # batches of the first epoch, when it goes on from a checkpoint
    automatic_optimization: bool = True
    is_global_zero: bool = True
    sanity_checking: bool = False

    def fit(self, callback: LightningCallback) -> Iterator[int]:
        """Fit, and yield within each batch how many were made before."""
        made = 0
        callback.on_fit_start(self, self)
        while not self._is_over() and self.current_epoch != self.max_epochs:
            callback.on_train_epoch_start(self, self)
            batch, self.begun = self.begun, 0
            while batch < self.num_training_batches and not self._is_over():
                callback.on_train_batch_start(self, self, None, batch)
                yield made
                made, batch = made + 1, batch + 1
                if batch % self.accumulate_grad_batches == 0 or batch == self.num_training_batches:
                    self.global_step += 1
            self.current_epoch += 1
        callback.on_fit_end(self, self)

    def _is_over(self) -> bool:
        return self.max_steps != -1 and self.global_step >= self.max_steps


@pytest.mark.parametrize(
    ("fit", "seen"),
    [
        (Fit(max_steps=26), {0: "1/3 1/10 1/26", 19: "2/3 10/10 20/26", 20: "3/3 1/6 21/26", 25: "3/3 6/6 26/26"}),
        (Fit(max_steps=26, max_epochs=2), {0: "1/2 1/10 1/20", 19: "2/2 10/10 20/20"}),
        (Fit(max_steps=7, accumulate_grad_batches=4), {0: "1/3 1/10 1/24", 10: "2/3 1/10 11/24", 23: "3/3 4/4 24/24"}),
        (Fit(math.inf, max_steps=5, accumulate_grad_batches=2), {0: "1/None 1/None 1/10", 9: "1/None 10/None 10/10"}),
        (Fit(max_steps=26, global_step=20, current_epoch=2), {0: "3/3 1/6 21/26", 5: "3/3 6/6 26/26"}),
        (Fit(max_steps=26, global_step=17, current_epoch=1, begun=7), {0: "2/3 8/10 18/26", 3: "3/3 1/6 21/26"}),
        (Fit(max_steps=4, accumulate_grad_batches=4, global_step=1, begun=5), {0: "1/2 6/10 6/14", 5: "2/2 1/4 11/14"}),
        (Fit(max_steps=2, accumulate_grad_batches=4, global_step=1, begun=5), {0: "1/1 6/8 6/8", 2: "1/1 8/8 8/8"}),
        (Fit(max_steps=26, automatic_optimization=False), {0: "1/None 1/10 1/None"}),
        (Fit(max_epochs=2), {0: "1/2 1/10 1/None"}),
    ],
)  # fmt: skip
def test_a_lightning_fit_of_any_length_shows_how_far_it_is(
    monitor: TrainingMonitor, tmp_path: Path, fit: Fit, seen: dict[int, str]
) -> None:
    found = {}
    for batch in fit.fit(LightningCallback(monitor)):
        found[batch] = shown(monitor)
    assert {batch: found[batch] for batch in seen} == seen
    assert written(tmp_path)["status"] == "FINISHED"


@pytest.mark.parametrize(("error", "status"), [(KeyboardInterrupt(), "CANCELED"), (ValueError("broken"), "FAILED")])
def test_an_exception_that_lightning_handles_ends_the_run(
    monitor: TrainingMonitor, tmp_path: Path, error: BaseException, status: str
) -> None:
    callback = LightningCallback(monitor)
    fit(callback)
    callback.on_exception(trainer(), None, error)
    assert written(tmp_path)["status"] == status


def test_other_processes_write_nothing_and_a_checkpoint_holds_nothing(monitor: TrainingMonitor, tmp_path: Path) -> None:
    train_with_hugging_face(HuggingFaceCallback(monitor), first=False)
    callback, states = LightningCallback(monitor), dict[Any, Any]()
    fit(callback, zero=False)
    assert list(tmp_path.iterdir()) == []
    assert callback.state_dict() == {} and callback.state_key == "training_monitor"
    assert states.get(callback.state_key, states.get(callback._legacy_state_key)) is None  # as the trainer asks


def test_the_last_warning_is_shown_without_its_secrets(monitor: TrainingMonitor, tmp_path: Path) -> None:
    logger = logging.Logger("test")
    logger.addHandler(MonitorHandler(monitor))
    with monitor:
        logger.info("nobody needs this")
        logger.warning("disk %s is full\n", "a")
        logger.error("%d files", "many")
        logger.warning("token=%s %s", "abcdefgh12345678", "x" * 1000)
    said = written(tmp_path)["metrics"]["last_log"]
    assert said.startswith("WARNING: token=***") and len(said) <= 200


def test_a_path_does_in_place_of_a_monitor_and_anything_else_warns_once(tmp_path: Path) -> None:
    train_with_hugging_face(HuggingFaceCallback(str(tmp_path / "run.json")))
    assert written(tmp_path)["status"] == "FINISHED"
    for make in (HuggingFaceCallback, LightningCallback, MonitorHandler):
        wrong: Any = TrainingMonitor
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            made = make(wrong)
            made.monitor.start_epoch(1)
            made.monitor.start_batch()
            made.monitor.set_finished()
        assert len(caught) == 1 and "type is not a TrainingMonitor" in str(caught[0].message)
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
