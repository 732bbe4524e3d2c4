"""Lines that only replace the values of earlier ones are left out, and the totals are those of reading every line."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.framework_lines import FRAMEWORKS
from tests.sweeps import cases_of
from training_monitor.logs.text import log_pieces
from training_monitor.logs.totals import LogTotals
from training_monitor.logs.training_log import ProgressReader

KNOWN = [json.loads(line) for line in (Path(__file__).parent / "more_logs.jsonl").read_text().splitlines()]
Line = Callable[[int, random.Random], str]


def bar(name: str, total: int, notes: str = "") -> Line:
    def line(step: int, chance: random.Random) -> str:
        speed = chance.choice(["1.25it/s", "0.00it/s", "12.50s/it", "?it/s"]) if chance.random() < 0.2 else "1.20it/s"
        done, left = step % (total + 1), chance.choice(["00:59", "1:02:03", "?"]) if chance.random() < 0.1 else "10:59"
        said = notes.format(loss=loss(chance))
        return f"\r{name}{done % 100:3d}%|##   | {done}/{total} [00:12<{left}, {speed}{said}]"

    return line


def loss(chance: random.Random) -> str:
    usual = f"{chance.random() * 3:.{chance.randrange(3, 5)}f}"
    return chance.choice(["nan", "inf", "1e-05", "2.5e+999", "0.500", "2,125"]) if chance.random() < 0.08 else usual


LINES: dict[str, Line] = {
    "plain": lambda n, chance: f"step {n} loss {loss(chance)}",
    "plain with total": lambda n, chance: f"step {n}/{chance.choice([90, 200, 200, 200])} loss: {loss(chance)}",
    "bar": bar("", 400),
    "bar of an epoch": bar("Epoch 1/3: ", 50, ", loss={loss}"),
    "bar of the next epoch": bar("Epoch 2/3: ", 50, ", loss={loss}"),
    "bar from zero": bar("Epoch 0: ", 60, ", v_num=3, train_loss={loss}"),
    "bar of the epochs": bar("Epochs: ", 3),
    "inner bar": bar("", 7),
    "bar with its step": lambda n, chance: bar("train: ", 30, f", step={n}, loss={{loss}}")(n // 3, chance),
    "dictionary": lambda n, chance: (
        f"{{'loss': {loss(chance)}, 'grad_norm': 1.25, 'learning_rate': {chance.choice(['5e-05', '0.0001'])},"
        f" 'epoch': {n / chance.choice([50, 100]):.2f}}}"
    ),
    "epoch and step": lambda n, chance: (
        f"epoch {n // 20} step {n % 20}/{chance.choice([20, 20, 20, 21])} loss {loss(chance)}"
    ),
    "epoch of epochs": lambda n, chance: f"Epoch [{n // 30}/{3 + n % 2}] Step [{n % 30}/30] Loss: {loss(chance)}",
    "epoch's result": lambda n, chance: f"Epoch {n // 25} train_loss: {loss(chance)}",
    "speed": lambda n, chance: f"iter {n} loss {loss(chance)} time {chance.choice(['0.00', '1.50', '2.25'])}s",
    "throughput": lambda n, chance: f"step: {n} loss: {loss(chance)} tps: {chance.choice(['0', '1e999', '1,250'])}",
    "remaining": lambda n, chance: f"step {n} eta: {chance.choice(['0:10:00', '12 days, 3:00:00'])} lr 1e-{n % 9}",
    "Megatron": lambda n, chance: f" iteration {n:8d}/ 500 | learning rate: 1.0E-04 | lm loss: {loss(chance)} |",
    "noise": lambda n, chance: f"[rank{n % 8}]: INFO worker.py:12 the queue holds {n % 7} batches of 8",
    "colour": lambda n, chance: f"\x1b[32mstep {n}\x1b[0m loss {loss(chance)}",
    "memory": lambda n, chance: f"step {n} loss {loss(chance)} gpu mem {n % 90} / 80 GB",
    "header": lambda n, chance: "Step | Loss | Time",
    "row": lambda n, chance: f"{n} | {loss(chance)} | {n % 60}",
    "another job's bar": bar("", 380, ", loss={loss}"),
    "bar of another work": bar("Evaluating: ", 40),
    "evaluation": lambda n, chance: "***** Running evaluation *****",
    "micro-batch": lambda n, chance: f"iter {n} update {n // 4} loss {loss(chance)}",
    "sample": lambda n, chance: "generating sample" if n % 2 else "sample generated",
    "checkpoint": lambda n, chance: chance.choice(["Saving checkpoint", f"checkpoint saved at step {n}"]),
    "warning": lambda n, chance: f"UserWarning: {n % 5}",
    "announced": lambda n, chance: f"Total optimization steps = {chance.choice([200, 400])}",
    "end": lambda n, chance: "Training completed",
    "restart": lambda n, chance: "Resuming from checkpoint-5",
    "blank": lambda n, chance: chance.choice(["", "  "]),
}
RARE = ("announced", "end", "restart", "inner bar", "evaluation", "header", "checkpoint", "sample", "warning", "blank")


def of_lines(lines: list[str]) -> LogTotals:
    """Totals of lines that come one by one: none can be left out."""
    totals = LogTotals()
    for line in lines:
        totals.feed(f"{line}\n")
    return totals


def of_text(lines: list[str]) -> LogTotals:
    totals = LogTotals()
    totals.feed("".join(f"{line}\n" for line in lines))
    return totals


def of_pieces(lines: list[str]) -> tuple[object, object]:
    """The progress in lines of which each is read, and all that was learned."""
    reader = ProgressReader()
    for piece in log_pieces("".join(f"{line}\n" for line in lines)):
        reader.read(piece)
    return reader.progress, reader


def of_end(lines: list[str]) -> tuple[object, object]:
    reader = ProgressReader()
    reader.read_text("".join(f"{line}\n" for line in lines))
    return reader.progress, reader


def shown(totals: LogTotals) -> dict[str, Any]:
    return totals.as_dict() | {"progress": totals.progress, "reader": totals.reader}


def log(chance: random.Random, kinds: list[str], length: int) -> Iterator[str]:
    step = chance.randrange(3)
    for _ in range(length):
        kind = chance.choice(RARE) if chance.random() < 0.03 else chance.choice(kinds)
        yield LINES[kind](step, chance)
        step += chance.random() < 0.9
        step = 0 if chance.random() < 0.005 else step


def with_other_digits(lines: list[str], chance: random.Random) -> list[str]:
    """The lines forty times, each time with a tenth of their digits replaced."""
    return [
        re.sub(r"\d", lambda digit: chance.choice("0123456789") if chance.random() < 0.1 else digit[0], line)
        for _ in range(40)
        for line in lines
    ]


def test_the_totals_are_those_of_every_line() -> None:
    for seed in cases_of(range(360), 30):
        chance = random.Random(seed)
        kinds = chance.sample([*LINES], chance.randrange(1, 4))
        lines = [*log(chance, kinds, chance.choice([20, 150, 400]))]
        assert repr(shown(of_text(lines))) == repr(shown(of_lines(lines))), (seed, kinds, lines)
        assert repr(of_end(lines)) == repr(of_pieces(lines)), (seed, kinds, lines)


def test_the_totals_of_known_logs_are_those_of_every_line() -> None:
    for known in cases_of(KNOWN, 70):
        lines = with_other_digits(known["lines"], random.Random(known["source"]))
        assert repr(shown(of_text(lines))) == repr(shown(of_lines(lines))), (known["source"], lines)
        assert repr(of_end(lines)) == repr(of_pieces(lines)), (known["source"], lines)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_lines_of_a_framework_are_left_out_and_nothing_changes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [FRAMEWORKS[name](at) for at in range(1500)]
    lines = re.split("[\r\n]+", "".join(lines))
    every = shown(of_lines(lines))
    read, read_piece, totals = [], ProgressReader.read, LogTotals()
    monkeypatch.setattr(ProgressReader, "read", lambda *line: read.append(line) or read_piece(*line))
    text = "".join(f"{line}\n" for line in lines)
    for at in range(0, len(text), 30_000):
        totals.feed(text[at : at + 30_000])
    assert repr(shown(totals)) == repr(every)
    assert len(read) < 500


@pytest.mark.parametrize("kind", ["plain", "bar of an epoch", "bar from zero", "dictionary", "noise", "epoch and step"])
def test_lines_that_repeat_are_not_read(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read, read_piece = [], ProgressReader.read
    monkeypatch.setattr(ProgressReader, "read", lambda *line: read.append(line) or read_piece(*line))
    of_text([LINES[kind](step, random.Random(7)) for step in range(2000)])
    assert len(read) < 1000 if kind == "epoch and step" else len(read) < 100
