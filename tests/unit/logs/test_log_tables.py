"""Tables whose header comes once and whose rows come one by one."""

from __future__ import annotations

import pytest

from training_monitor.logs.parts import read_header, row_as_pairs


def test_a_row_gets_the_names_of_its_header(subtests: pytest.Subtests) -> None:
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
        with subtests.test(header=header, row=row, pairs=pairs):
            names = read_header(header)
            assert names is not None
            assert row_as_pairs(names, row) == pairs


def test_other_lines_are_no_header(subtests: pytest.Subtests) -> None:
    for line in ["epoch 3 loss 0.4", "epoch: 3, loss: 0.4", "the loss went down", "step time", "", "epoch"]:
        with subtests.test(line=line):
            assert read_header(line) is None


def test_a_line_that_does_not_fit_the_header_is_no_row(subtests: pytest.Subtests) -> None:
    for line in ["", "3", "3 0.4 0.5", "epoch 0.4", "0.5 3", "3 done", "---  ---"]:
        with subtests.test(line=line):
            assert row_as_pairs(("epoch", "loss"), line) is None
