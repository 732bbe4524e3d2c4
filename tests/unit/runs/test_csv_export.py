"""CSV of runs: what is in the rows, and what a crash, a full disk or a hostile name leaves of the files."""

from __future__ import annotations

import csv
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import EPOCH
from tests.unit.runs.run_world import run
from training_monitor.core.errors import SettingsError, TrainingMonitorError
from training_monitor.runs.csv_export import MATRIX_HEADER, OVERALL_HEADER, RunCsv, safe_name
from training_monitor.runs.values import FINISHED, KILLED, RUNNING, Estimate, MetricHistory, RunRow, RunsSnapshot, Usage
from training_monitor.targets.proc_stat import Identity

USAGE = Usage(150.0, 2**30, 512.0, 8, 2**36, 81920.0)


def shot(*rows: RunRow, at: float = 0.0, **changes: Any) -> RunsSnapshot:
    return replace(RunsSnapshot(rows, USAGE, EPOCH + at, "/runs"), **changes)


def row(name: str = "llama", status: str = RUNNING, *, cpu: float | None = 99.12345, **changes: Any) -> RunRow:
    return RunRow(run(name, **changes), status, cpu_percent=cpu, rss_bytes=3 * 2**20, processes=2, threads=9)


def read(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as text:
        return list(csv.DictReader(text, strict=True))


def matrix(folder: Path, name: str = "llama") -> list[dict[str, str]]:
    return read(folder / f"{name}_matrix.csv")


def listed(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


# ---------------------------------------------------------------- what is written


def test_histories_of_metrics_are_rewritten_when_they_change(tmp_path: Path) -> None:
    export, file = RunCsv(str(tmp_path)), tmp_path / "llama_history.csv"
    export.write(shot(row()))
    assert not file.exists()
    history = {"loss": MetricHistory((1, 5), (2.5, 1.25)), '=HYPERLINK("x")': MetricHistory((5,), (None,))}
    export.write(shot(row(history=history), at=1))
    found = [(each["Metric"], each["Step"], each["Value"]) for each in read(file)]
    assert found == [("loss", "1", "2.5"), ("loss", "5", "1.25"), ('\'=HYPERLINK("x")', "5", "")]
    written = file.stat().st_ino
    export.write(shot(row(history=history), at=2))
    assert file.stat().st_ino == written
    export.write(shot(row(history={"loss": MetricHistory((1, 9), (2.5, 1.0))}), at=3))
    assert [each["Step"] for each in read(file)] == ["1", "9"]


def test_a_run_gets_a_file_of_its_columns_and_one_of_all_that_is_used(tmp_path: Path) -> None:
    known = row(
        epoch=2,
        batch=120,
        validation_batch=7,
        validation_seconds=24.0,
        epoch_time=Estimate(4.0, 10.23456, 214.0, 224.0),
        metrics={"loss": 1.23456789e-5},
        wandb_url="https://wandb.ai/a,b",
        process=Identity(4711),
    )
    RunCsv(str(tmp_path / "a" / "b")).write(shot(replace(known, rate=4.123456, eta_seconds=900.0, gpu_mib=512.0)))
    (found,) = matrix(tmp_path / "a" / "b")
    assert tuple(found) == MATRIX_HEADER and len(MATRIX_HEADER) == 1 + 25 + 5
    assert found["Timestamp"] == "2025-06-15T15:06:40.000Z"
    texts = {"Run Name": "llama", "Status": "RUNNING", "Epoch": "2", "Batch": "120", "Val Batch": "7", "PID": "4711"}
    texts |= {"Wandb URL": "https://wandb.ai/a,b"}
    assert texts.items() <= found.items()
    numbers = ("Run Elapsed", "Epoch Elapsed", "Val Time", "CPU", "RAM", "GPU", "Procs", "Threads", "Rate", "Loss")
    assert [float(found[key]) for key in numbers] == [100, 10.235, 24, 99.123, 3, 512, 2, 9, 4.123456, 1.23456789e-5]
    assert (found["ETA"], found["Val Elapsed"], found["Train Total"]) == ("900.0", "", "")
    (overall,) = read(tmp_path / "a" / "b" / "llama_overall.csv")
    assert tuple(overall) == OVERALL_HEADER and overall["Timestamp"] == found["Timestamp"]
    used = [float(value) for value in list(overall.values())[1:]]
    assert used == [150, 1024, 512, 800, 65536, 81920, 99.123, 3, 512]


def test_what_is_not_known_is_an_empty_cell(tmp_path: Path) -> None:
    bare = RunRow(run(process=None, phase=None, run=Estimate()), "UNKNOWN")
    RunCsv(str(tmp_path)).write(shot(bare, usage=Usage()))
    assert [key for key, value in matrix(tmp_path)[0].items() if value] == ["Timestamp", "Run Name", "Status"]
    assert set(list(read(tmp_path / "llama_overall.csv")[0].values())[1:]) == {""}


def test_a_loss_that_is_no_finite_number_is_one_for_programs_that_read_it(tmp_path: Path) -> None:
    losses, file = ["nan", "inf", "-inf"], RunCsv(str(tmp_path))
    for at, loss in enumerate(losses):
        file.write(shot(row(metrics={"loss": loss}), at=at))
    assert [found["Loss"] for found in matrix(tmp_path)] == losses


def test_a_program_started_again_goes_on_and_writes_no_row_of_an_earlier_look(tmp_path: Path) -> None:
    file = RunCsv(str(tmp_path))
    file.write(shot(row()))
    file.write(shot(row()))
    file.write(shot(row(), at=1, error="no route", stale_since=EPOCH))
    assert len(matrix(tmp_path)) == 1


def test_an_ended_run_gets_one_last_row_also_when_the_program_is_started_again(tmp_path: Path) -> None:
    ended = row(status=FINISHED, cpu=None)
    file = RunCsv(str(tmp_path))
    for at, each in enumerate([row(), ended, ended]):
        file.write(shot(each, at=at))
    again = RunCsv(str(tmp_path))
    for at in (10, 11):
        again.write(shot(ended, at=at))
    assert [found["Status"] for found in matrix(tmp_path)] == [RUNNING, FINISHED]
    assert len(read(tmp_path / "llama_overall.csv")) == 2
    for at, status in ((12, RUNNING), (13, KILLED), (14, KILLED)):
        again.write(shot(row(status=status), at=at))
    assert [found["Status"] for found in matrix(tmp_path)] == [RUNNING, FINISHED, RUNNING, KILLED]


# ---------------------------------------------------------------- hostile texts


def test_no_spreadsheet_calculates_with_a_text(tmp_path: Path) -> None:
    texts = ["=cmd()", "+1", "-1", "@x", " =1", "\t=1", "\n@x", "'=1", " '=1", "＝1"]
    for at, text in enumerate(texts):
        RunCsv(str(tmp_path)).write(shot(row("a", phase=text, wandb_url=text), at=at))
    written = matrix(tmp_path, "a")
    assert len(written) == len(texts)
    for found in written:
        assert found["Phase"].startswith("'") and found["Wandb URL"].startswith("'") and found["CPU"] == "99.123"


def test_texts_stay_on_one_line_quoted_and_bounded(tmp_path: Path) -> None:
    phase = 'a"b,\r\nc\x1b[31m\u202e\ud800' + "x" * 10_000
    RunCsv(str(tmp_path)).write(shot(row("a", phase=phase)))
    found = matrix(tmp_path, "a")[0]["Phase"]
    assert found.startswith('a"b,  c?') and len(found) <= 500 and found.isprintable()
    assert (tmp_path / "a_matrix.csv").read_bytes().count(b"\n") == 2


NAMES = ["a", "A b", "run=1,lr=0.1", "ünï", "..", ".", "", "-rf", "../../etc/passwd", "/etc/passwd", "a\nb", "a\x00b"]
NAMES += ["x" * 5000, "ü" * 300, "\ud800", "a/b", "a_b", "=1", " a", "con\x1b[0m", "日本語" * 90]


def test_every_name_makes_a_file_of_its_own_in_the_folder(tmp_path: Path) -> None:
    RunCsv(str(tmp_path / "csv")).write(shot(*(row(name) for name in NAMES)))
    files = listed(tmp_path / "csv")
    assert len(files) == 2 * len(NAMES) and listed(tmp_path) == ["csv"]
    assert all(len(name.encode()) < 160 and name[0] not in ".-" and name.isprintable() for name in files)
    assert {"a_matrix.csv", "A b_overall.csv", "run=1,lr=0.1_matrix.csv", "ünï_matrix.csv", "=1_matrix.csv"} <= {*files}
    assert safe_name("a/b") == safe_name("a/b") and re.fullmatch(r"a_b-[0-9a-f]{8}", safe_name("a/b"))


def test_two_runs_of_one_name_have_files_of_their_own_that_stay_theirs(tmp_path: Path) -> None:
    twin = replace(run("a"), path="/runs/a/progress.json")
    rows = [row("a"), RunRow(twin, RUNNING)]
    for _ in range(2):
        RunCsv(str(tmp_path)).write(shot(*rows))
    assert len(listed(tmp_path)) == 4 and all(len(read(file)) == 2 for file in tmp_path.iterdir())


# ---------------------------------------------------------------- restarts, crashes, disks


@pytest.mark.parametrize("half", ["2025-06-15T15:0", '2025,llama,"a', "x" * 200_000, "\x00" * 70_000, "2025,a\r"])
def test_a_half_row_of_a_crash_is_cut_off(tmp_path: Path, half: str) -> None:
    RunCsv(str(tmp_path)).write(shot(row()))
    for kind in ("matrix", "overall"):
        with (tmp_path / f"llama_{kind}.csv").open("a", newline="") as file:
            file.write(half)
    RunCsv(str(tmp_path)).write(shot(row(), at=5))
    for kind in ("matrix", "overall"):
        assert [found["Timestamp"][-5:] for found in read(tmp_path / f"llama_{kind}.csv")] == [".000Z"] * 2


@pytest.mark.parametrize("length", [0, 1, 20])
def test_half_a_header_is_written_anew(tmp_path: Path, length: int) -> None:
    (tmp_path / "llama_matrix.csv").write_text(",".join(MATRIX_HEADER)[:length])
    RunCsv(str(tmp_path)).write(shot(row()))
    assert len(matrix(tmp_path)) == 1 and listed(tmp_path) == ["llama_matrix.csv", "llama_overall.csv"]


def test_a_file_with_another_header_is_kept_under_another_name(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / "llama_matrix.csv").write_bytes(b"Timestamp,Old%d\r\n1,2\r\n" % number)
        RunCsv(str(tmp_path)).write(shot(row()))
    assert listed(tmp_path)[:4] == [f"llama_matrix{each}.csv" for each in (".1", ".2", ".3", "")]
    assert (tmp_path / "llama_matrix.2.csv").read_bytes() == b"Timestamp,Old1\r\n1,2\r\n"


def test_a_folder_that_is_taken_away_is_made_again_and_one_that_cannot_be_is_told(tmp_path: Path) -> None:
    file = RunCsv(str(tmp_path / "csv"))
    file.write(shot(row()))
    (tmp_path / "csv" / "llama_matrix.csv").unlink()
    file.write(shot(row(), at=1))
    assert len(matrix(tmp_path / "csv")) == 1
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="csv_dir"):
        RunCsv(str(tmp_path / "file" / "csv"))


@pytest.mark.parametrize("kind", ["folder", "fifo"])
def test_what_is_no_file_is_an_error_and_hangs_nothing(tmp_path: Path, kind: str) -> None:
    there = tmp_path / "llama_matrix.csv"
    there.mkdir() if kind == "folder" else os.mkfifo(there)
    file = RunCsv(str(tmp_path))
    with pytest.raises(TrainingMonitorError, match="llama_matrix.csv"):
        file.write(shot(row(), row("other")))
    assert len(matrix(tmp_path, "other")) == 1


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """A disk that is full at `size` bytes a file."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)


def test_a_full_disk_is_reported_once_and_leaves_no_partial_row(tmp_path: Path) -> None:
    file = RunCsv(str(tmp_path))
    file.write(shot(row()))
    size = (tmp_path / "llama_matrix.csv").stat().st_size
    for at in (1, 10):
        with files_of_at_most(size + 20):
            with pytest.raises(TrainingMonitorError, match="rows could not be written: .*llama_matrix.csv"):
                file.write(shot(row(), at=at))
            file.write(shot(row(), at=at + 1))
            assert (tmp_path / "llama_matrix.csv").stat().st_size == size
        file.write(shot(row(), at=at + 2))
        size = (tmp_path / "llama_matrix.csv").stat().st_size
    assert [found["Timestamp"][17:19] for found in matrix(tmp_path)] == ["40", "43", "52"]


WRITER = """
import sys
from tests.unit.runs.test_csv_export import row, shot
from training_monitor.runs.csv_export import RunCsv
file, at = RunCsv(sys.argv[1]), 0
while True:
    file.write(shot(row(), at=at))
    at += 1
    print(at, flush=True)
"""


def test_all_rows_that_were_written_survive_a_kill(tmp_path: Path) -> None:
    for _ in range(2):
        words, root = [sys.executable, "-c", WRITER, str(tmp_path)], Path(__file__).parents[3]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=root) as writer:
            assert writer.stdout
            lines = [writer.stdout.readline() for _ in range(50)]
            writer.kill()
        assert lines[-1] == "50\n"
    assert len(matrix(tmp_path)) >= 100 and len({found["Run Name"] for found in matrix(tmp_path)}) == 1
