"""Tables whose header comes once and whose rows come one by one."""

from __future__ import annotations

import pytest

from training_monitor.parse.log_tables import read_header, row_as_pairs


@pytest.mark.parametrize(
    ("header", "row", "pairs"),
    [
        ("epoch     train_loss  time", "2         0.41        00:31", "epoch: 2, train_loss: 0.41, time: 00:31"),
        ("step training loss", "20 1.1023", "step: 20, training_loss: 1.1023"),
        ("| epoch | loss |", "| 3 | 0.4 |", "epoch: 3, loss: 0.4"),
        ("epoch,step,loss", "3,1200,0.4", "epoch: 3, step: 1200, loss: 0.4"),
        (
            "e    #       loss ner  score",
            "  1     400    401.77   0.55",
            "epoch: 1, step: 400, loss ner: 401.77, score: 0.55",
        ),
    ],
)
def test_a_row_gets_the_names_of_its_header(header: str, row: str, pairs: str) -> None:
    names = read_header(header)
    assert names is not None
    assert row_as_pairs(names, row) == pairs


@pytest.mark.parametrize(
    "line", ["epoch 3 loss 0.4", "epoch: 3, loss: 0.4", "the loss went down", "step time", "", "epoch"]
)
def test_other_lines_are_no_header(line: str) -> None:
    assert read_header(line) is None


@pytest.mark.parametrize("line", ["", "3", "3 0.4 0.5", "epoch 0.4", "0.5 3", "3 done", "---  ---"])
def test_a_line_that_does_not_fit_the_header_is_no_row(line: str) -> None:
    assert row_as_pairs(("epoch", "loss"), line) is None
