"""A table of Lightning's CSVLogger as lines."""

from __future__ import annotations

import pytest

from training_monitor.core.models import Reply
from training_monitor.logs.metrics_csv import MetricsTable
from training_monitor.logs.training_log import parse_progress


def read(header: str, rows: str, **fields: object) -> str:
    head = {"state": "read", "inode": 7, "offset": 99, "check": "", "reset": "", "skipped": 0, "held": 0, **fields}
    lines = "".join(f"{key}={value}\n" for key, value in head.items())
    found = MetricsTable.named("/w/metrics.csv", "/w/metrics.csv").read()
    return found.parse(Reply(f"header={header}\n{lines}log\n{rows}", 0, 0.1)).text


@pytest.mark.parametrize(
    ("header", "rows", "step", "epoch", "loss"),
    [
        ("epoch,step,train_loss,val_loss", "0,49,0.53,\n0,99,0.41,\n", 99, 0, 0.41),
        ("epoch,step,train_loss,val_loss", "0,49,0.53,\n0,99,,0.61\n", 99, 0, 0.53),
        ("train_loss,epoch,step", "0.53,0,49\n0.41,1,99\n", 99, 1, 0.41),
        ("epoch,lr-Adam,step,train_loss_epoch,train_loss_step", "0,1e-3,49,,0.53\n0,,99,0.5,\n", 99, 0, 0.5),
        ("epoch,step,loss", "epoch,step,loss\n0,49,nan\n", 49, 0, None),
    ],
)
def test_rows_are_read_by_the_names_of_their_columns(
    header: str, rows: str, step: int, epoch: float, loss: float | None
) -> None:
    progress = parse_progress(read(header, rows))
    assert (progress.step, progress.epoch) == (step, epoch)
    assert progress.loss == loss or (loss is None and progress.loss != progress.loss)


def test_what_does_not_fit_the_header_is_left_out() -> None:
    assert read("epoch,step,loss", "0,49\n1,2,3,4\n\n,,\n") == ""
    assert read("", "0,49,0.5\n") == ""


def test_a_table_that_is_not_there_is_missing() -> None:
    found = MetricsTable.named("/w/metrics.csv", "/w/metrics.csv").read()
    assert found.parse(Reply("header=\nstate=missing\n", 0, 0.1)).missing
