"""What the frameworks' hooks, called as the frameworks call them, make of a run."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from training_monitor.progress.integrations import HuggingFaceCallback, LightningCallback, MonitorHandler
from training_monitor.progress.monitor import TrainingMonitor


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


def test_other_processes_of_a_hugging_face_training_write_nothing(monitor: TrainingMonitor, tmp_path: Path) -> None:
    train_with_hugging_face(HuggingFaceCallback(monitor), first=False)
    assert list(tmp_path.iterdir()) == []


def test_a_hook_that_is_handed_rubbish_warns_once(monitor: TrainingMonitor) -> None:
    callback = HuggingFaceCallback(monitor)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            callback.on_step_begin(None, None, None)
    assert len(caught) == 1 and "on_step_begin" in str(caught[0].message)


def test_every_hook_is_answered_but_no_other_name(monitor: TrainingMonitor) -> None:
    for callback in (HuggingFaceCallback(monitor), LightningCallback(monitor)):
        assert callback.on_something_of_next_year(1, 2, x=3) is None
        assert not hasattr(callback, "state") and not hasattr(callback, "__len__")
        assert copy.deepcopy(callback).monitor is monitor
        assert type(pickle.loads(pickle.dumps(callback))) is type(callback)


class Tensor:
    """What a loss looks like: it holds on to a graph until it is detached."""

    def __init__(self, value: float, *, is_detached: bool = False) -> None:
        self.value, self.is_detached = value, is_detached

    def detach(self) -> Tensor:
        return Tensor(self.value, is_detached=True)

    def item(self) -> float:
        assert self.is_detached
        return self.value


def trainer(epoch: int = 0, *, zero: bool = True, sanity: bool = False) -> SimpleNamespace:
    return SimpleNamespace(
        is_global_zero=zero, sanity_checking=sanity, current_epoch=epoch, max_epochs=2, num_training_batches=4,
        num_val_batches=[2, 1], callback_metrics={"val_loss": Tensor(0.25)},
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


@pytest.mark.parametrize(("error", "status"), [(KeyboardInterrupt(), "CANCELED"), (ValueError("broken"), "FAILED")])
def test_an_exception_that_lightning_handles_ends_the_run(
    monitor: TrainingMonitor, tmp_path: Path, error: BaseException, status: str
) -> None:
    callback = LightningCallback(monitor)
    fit(callback)
    callback.on_exception(trainer(), None, error)
    assert written(tmp_path)["status"] == status


def test_other_ranks_of_lightning_write_nothing_and_a_checkpoint_holds_nothing(
    monitor: TrainingMonitor, tmp_path: Path
) -> None:
    callback = LightningCallback(monitor)
    fit(callback, zero=False)
    assert list(tmp_path.iterdir()) == []
    assert callback.state_dict() == {} and callback.state_key == "training_monitor"


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
