"""CSV files opened in a spreadsheet: no hostile text is calculated, numbers stay numbers, and all is read back."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from tests.hostile.texts import HOSTILE, LEGITIMATE, harm_in
from tests.hostile.tries import tried
from tests.unit.runs.test_csv_export import matrix, row, shot
from training_monitor.cli.commands.history import _begin_csv
from training_monitor.core.shown import shown, shown_cell
from training_monitor.runs.csv_export import RunCsv

FORMULAS = [
    f"{blank}{sign}cmd|' /C calc'!A0"
    for sign in "=+-@＝＋－＠"
    for blank in ("", " ", "  ", "\t", "\r", "\n", "\x0b", "\xa0")
]
FORMULAS += ["\u200b=1", "\ufeff=1", "\u202e@x", "\x1b[31m+1", "-0.5", '=HYPERLINK("http://x")', "'=1", "''=1", " '=1"]
TEXTS = [*FORMULAS, *LEGITIMATE, "it's", "'quoted'", "'", "''", "", "a,b", 'a"b', "a;=1", "1.5", "nan"]


def _is_calculated(cell: str) -> bool:
    return cell.lstrip().startswith(tuple("=+-@＝＋－＠\t\r"))


def _read(text: str) -> list[list[str]]:
    return [[cell.removeprefix("'") for cell in line] for line in csv.reader(io.StringIO(text))]


def test_no_text_is_calculated_and_each_is_read_back() -> None:
    for text in (*TEXTS, *HOSTILE):
        tried()
        cell = shown_cell(text)
        assert not _is_calculated(cell) and cell.removeprefix("'") == shown(text), text


def test_the_history_has_texts_and_numbers() -> None:
    for text in (*TEXTS, *HOSTILE):
        tried()
        file = io.StringIO()
        _begin_csv(file, ("member", "status", "loss", "step"))(
            {"member": text, "status": text, "loss": -0.5, "step": None}
        )
        assert file.getvalue().count("\n") == 2
        written = [*csv.reader(io.StringIO(file.getvalue()))][1]
        assert not any(map(_is_calculated, written[:2])) and not harm_in(file.getvalue().replace("\r\n", ""))
        assert _read(file.getvalue())[1] == [shown(text), shown(text), "-0.5", ""]


def test_the_file_of_a_run_has_texts_and_numbers(tmp_path: Path) -> None:
    for number, text in enumerate((*TEXTS, *HOSTILE)):
        folder = tmp_path / str(number)
        folder.mkdir()
        RunCsv(str(folder)).write(shot(row("a", phase=text, wandb_url=text, metrics={"loss": -0.5})))
        found = matrix(folder, "a")[0]
        for cell in (found["Phase"], found["Wandb URL"]):
            assert not _is_calculated(cell) and not harm_in(cell), text
            assert cell.removeprefix("'") == shown(text[:500]), text
        assert found["CPU"] == "99.123"
