"""Tables: of Lightning's CSVLogger, and of logs whose header comes once and whose rows come one by one."""

from __future__ import annotations

from training_monitor.core.models import Reply
from training_monitor.logs.metrics_csv import MetricsTable
from training_monitor.logs.parts import read_header, row_as_pairs
from training_monitor.logs.training_log import parse_progress


def read(header: str, rows: str, **fields: object) -> str:
    head = {"state": "read", "inode": 7, "offset": 99, "check": "", "reset": "", "skipped": 0, "held": 0, **fields}
    lines = "".join(f"{key}={value}\n" for key, value in head.items())
    found = MetricsTable.named("/w/metrics.csv", "/w/metrics.csv").read()
    return found.parse(Reply(f"header={header}\n{lines}log\n{rows}", 0, 0.1)).text


def test_rows_are_read_by_the_names_of_their_columns() -> None:
    for header, rows, step, epoch, loss in [
        ("epoch,step,train_loss,val_loss", "0,49,0.53,\n0,99,0.41,\n", 99, 0, 0.41),
        ("epoch,step,train_loss,val_loss", "0,49,0.53,\n0,99,,0.61\n", 99, 0, 0.53),
        ("train_loss,epoch,step", "0.53,0,49\n0.41,1,99\n", 99, 1, 0.41),
        ("epoch,lr-Adam,step,train_loss_epoch,train_loss_step", "0,1e-3,49,,0.53\n0,,99,0.5,\n", 99, 0, 0.5),
        ("epoch,step,loss", "epoch,step,loss\n0,49,nan\n", 49, 0, None),
    ]:
        progress = parse_progress(read(header, rows))
        assert (progress.step, progress.epoch) == (step, epoch)
        assert progress.loss == loss or (loss is None and progress.loss != progress.loss)


def test_what_does_not_fit_the_header_is_left_out_and_no_table_is_missing() -> None:
    assert read("epoch,step,loss", "0,49\n1,2,3,4\n\n,,\n") == ""
    assert read("", "0,49,0.5\n") == ""
    found = MetricsTable.named("/w/metrics.csv", "/w/metrics.csv").read()
    assert found.parse(Reply("header=\nstate=missing\n", 0, 0.1)).missing


def test_a_row_gets_the_names_of_its_header() -> None:
    for header, row, pairs in [
        ("epoch     train_loss  time", "2         0.41        00:31", "epoch: 2, train_loss: 0.41, time: 00:31"),
        ("step training loss", "20 1.1023", "step: 20, training_loss: 1.1023"),
        ("| epoch | loss |", "| 3 | 0.4 |", "epoch: 3, loss: 0.4"),
        ("epoch,step,loss", "3,1200,0.4", "epoch: 3, step: 1200, loss: 0.4"),
        (
            "e    #       loss ner  score",
            "  1     400    401.77   0.55",
            "epoch: 1, step: 400, loss ner: 401.77, score: 0.55",
        ),
    ]:
        names = read_header(header)
        assert names is not None
        assert row_as_pairs(names, row) == pairs


def test_other_lines_are_no_header_and_no_row_of_it() -> None:
    for line in ["epoch 3 loss 0.4", "epoch: 3, loss: 0.4", "the loss went down", "step time", "", "epoch"]:
        assert read_header(line) is None
    for line in ["", "3", "3 0.4 0.5", "epoch 0.4", "0.5 3", "3 done", "---  ---"]:
        assert row_as_pairs(("epoch", "loss"), line) is None
