"""`training-monitor top` without its screen, on real processes: tables, JSON, CSV files, signals, ssh."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import run_command
from tests.integration.conftest import SshServer, Surroundings, kill, parent_of, pids, wait_until
from tests.integration.screens import PATIENCE, ROOT, Screen
from training_monitor.targets.proc_stat import Identity
from training_monitor.targets.procfs import identify

TOP = (sys.executable, "-m", "training_monitor", "top")
HOSTILE = "ru\x1b[31mn '$(x)' \u202e ünï"


class Folder:
    """Progress files in a folder, of processes that sleep."""

    def __init__(self, path: Path) -> None:
        self.path, self.stack = path, ExitStack()
        path.mkdir(parents=True)

    def process(self) -> subprocess.Popen[bytes]:
        """A process that sleeps until the end of the test."""
        process = subprocess.Popen(["sleep", "600"])
        self.stack.callback(process.wait)
        self.stack.callback(process.kill)
        return process

    def write(self, name: str, status: str = "RUNNING", pid: int | Identity | None = None, **changes: Any) -> None:
        """Write a progress file; without a process, one of this test's own, which is alive."""
        who = pid if isinstance(pid, Identity) else identify(pid)
        now = time.time()
        document = {
            "format": 1,
            "status": status,
            "start_time": now - 60,
            "updated_at": now,
            "metadata": {
                "run_name": name,
                "pid": who.pid,
                "start_ticks": who.start_ticks,
                "hostname": who.hostname,
                "boot_id": who.boot_id,
                "pid_namespace": who.pid_namespace,
            },
            "state": {"phase": "training", "epoch": 2, "batch": 12, "total_batches": 100, "step_at": now},
            "estimates": {"run": {"rate": 4.0, "elapsed": 60.0, "remaining": 900.0, "total": 960.0}},
            "metrics": {"loss": 0.5},
            "resources": {"cpu_percent": 77.0, "rss_bytes": 1048576, "threads": 3},
            **changes,
        }
        beside = self.path / f".{name.encode().hex()[:40]}.new"
        beside.write_text(json.dumps(document))
        os.replace(beside, self.path / f"{name}.json")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    found = Folder(tmp_path / "pro gress")
    with found.stack:
        yield found


def environ(**changes: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8", **changes}


def run(*argv: str, status: int, **changes: str) -> subprocess.CompletedProcess[str]:
    done = run_command("top", *argv, **changes)
    assert done.returncode == status and "Traceback" not in done.stderr, done
    return done


def ask(where: str | Path, status: int) -> dict[str, dict[str, Any]]:
    """The rows of --json by the names of their runs."""
    lines = run(str(where), "--json", status=status).stdout.splitlines()
    assert len(lines) == 1
    return {row["run"]["name"]: row for row in json.loads(lines[0])["runs"]}


# ---------------------------------------------------------------- once


def test_json_says_what_goes_on_what_ended_and_what_was_killed(folder: Folder) -> None:
    alive, dead = folder.process(), folder.process()
    folder.write("run10", pid=alive.pid)
    folder.write("run9", "FINISHED")
    folder.write("away", pid=Identity(77, 5, "gpu-7", "b", "pid:[9]"))
    folder.write("lost", pid=Identity(77, 5, "gpu-7", "b", "pid:[9]"), updated_at=time.time() - 3600)
    assert {name: row["status"] for name, row in ask(folder.path, 3).items()} == {
        "away": "RUNNING",
        "lost": "UNKNOWN",
        "run9": "FINISHED",
        "run10": "RUNNING",
    }
    folder.write("victim", pid=dead.pid)
    dead.kill()
    dead.wait()
    rows = ask(folder.path, 1)
    assert rows["victim"]["status"] == "KILLED" and rows["victim"]["is_alive"] is False
    assert rows["run10"]["is_alive"] is True and rows["run10"]["processes"] == 1 and rows["run10"]["rss_bytes"] > 0
    assert rows["run10"]["tree"][0]["identity"]["pid"] == alive.pid and rows["run10"]["eta_seconds"] == 900.0
    away = "step 112, 4 steps/s; it runs on gpu-7 and is not visible from here; its file was written "
    assert rows["away"]["reason"].startswith(away) and rows["away"]["cpu_percent"] == 77.0
    assert "no update for 1h" in rows["lost"]["reason"]


def test_a_run_that_hangs_while_its_file_is_still_written_is_stalled(folder: Folder) -> None:
    hung, now = folder.process(), time.time()
    counted = {"phase": "training", "epoch": 1, "total_epochs": 1, "batch": 40, "total_batches": 200, "step": 40}
    folder.write("hung", pid=hung.pid, start_time=now - 4000, state={**counted, "step_at": now - 3600})
    row = ask(folder.path, 1)["hung"]
    assert (row["status"], row["state"], row["verdict"], row["eta_seconds"]) == ("RUNNING", "stalled", "failed", None)
    assert row["reason"].startswith("no step for 1h00m, limit ") and row["seconds_without_step"] > row["limit_seconds"]
    table = run(str(folder.path), status=1).stdout
    assert " stalled 1h " in table and "hung: stalled: no step for 1h00m, limit " in table
    folder.write("hung", pid=hung.pid, start_time=now - 4000, state={**counted, "step_at": time.time()})
    assert ask(folder.path, 0)["hung"]["state"] == "running"


def test_without_a_terminal_it_is_a_table_and_no_name_steers_the_terminal(folder: Folder) -> None:
    folder.write(HOSTILE)
    folder.write("new\nline", "FAILED", error_message="CUDA \x1b]0;x\x07 out of memory")
    for words in ((), ("--once",)):
        done = run(str(folder.path), *words, status=1)
        assert "ünï" in done.stdout and "RUNNING" in done.stdout and "FAILED" in done.stdout
        assert all(each.isprintable() for each in done.stdout.splitlines())


def test_an_empty_folder_is_fine_and_one_that_is_not_there_is_wrong_use(folder: Folder) -> None:
    assert ask(folder.path, 0) == {}
    run(str(folder.path), status=0)
    missing = run(str(folder.path / "no"), status=2)
    assert "an existing folder" in missing.stderr


def test_a_folder_that_cannot_be_asked_is_unknown(folder: Folder, surroundings: Surroundings) -> None:
    done = run("ssh://127.0.0.1:1/runs", "--json", status=3)
    assert json.loads(done.stdout)["error"] and "error:" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["-i", "0"],
        ["-i", "-1"],
        ["--interval", "nan"],
        ["--max-cpus", "0"],
        ["--max-ram", "x"],
        ["--max-gpu", "inf"],
        ["--headless"],
        ["--headless", "--csv-interval", "0"],
        ["--headless", "--once", "--csv-interval", "1"],
        ["--csv-interval", "1"],
        ["--json", "--csv-interval", "1"],
        ["--headless", "--csv-interval", "1", "--csv-dir", "/dev/null/x"],
        ["another folder"],
    ],
)
def test_wrong_use_is_status_2_and_says_what_was_expected(folder: Folder, words: list[str]) -> None:
    done = run(str(folder.path), *words, status=2)
    assert "error:" in done.stderr
    assert json.loads(done.stdout)["kind"] == "SettingsError" if "--json" in words else not done.stdout


def test_runs_on_another_machine_are_seen_through_ssh(folder: Folder, sshd: SshServer) -> None:
    alive = folder.process()
    folder.write("it's a run", pid=alive.pid)
    folder.write("gone", pid=Identity(alive.pid, 1, *_rest(alive.pid)), updated_at=time.time() - 60)
    rows = ask(f"{sshd.address}{folder.path}", 1)
    assert {name: (row["status"], row["is_alive"]) for name, row in rows.items()} == {
        "it's a run": ("RUNNING", True),
        "gone": ("KILLED", False),
    }


def _rest(pid: int) -> tuple[str | None, str | None, str | None]:
    who = identify(pid)
    return who.hostname, who.boot_id, who.pid_namespace


# ---------------------------------------------------------------- headless


class Headless:
    """`top --headless` while it runs."""

    def __init__(self, folder: Folder, *words: str, prefix: tuple[str, ...] = ()) -> None:
        self.csv = folder.path.parent / "csv out"
        self.process = subprocess.Popen(
            [*prefix, *TOP, str(folder.path), "--headless", "--csv-dir", str(self.csv), *words],
            env=environ(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        folder.stack.callback(self.process.wait)
        folder.stack.callback(self.process.kill)

    def rows(self, name: str, kind: str = "matrix") -> list[dict[str, str]]:
        file = self.csv / f"{name}_{kind}.csv"
        if not file.exists():
            return []
        with file.open(newline="", encoding="utf-8") as text:
            return list(csv.DictReader(text, strict=True))

    def has_rows(self, name: str, count: int) -> bool:
        return wait_until(lambda: len(self.rows(name)) >= count or self.process.poll() is not None, PATIENCE)

    def end(self, number: int) -> tuple[int, str, str]:
        """Send a signal. Returns the exit code and what it printed."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=PATIENCE)
        assert "Traceback" not in err
        return self.process.returncode, out, err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_headless_writes_rows_until_a_signal_ends_it_quietly(folder: Folder, number: int) -> None:
    folder.write("run 1", pid=folder.process().pid)
    folder.write("old", "CANCELED")
    top = Headless(folder, "--csv-interval", "0.2")
    assert top.has_rows("run 1", 4)
    assert top.end(number)[0] == -number
    rows, overall = top.rows("run 1"), top.rows("run 1", "overall")
    assert len(rows) == len(overall) >= 4 and len(top.rows("old")) == 1
    assert [row["Timestamp"] for row in rows] == sorted({row["Timestamp"] for row in rows})
    assert {row["Status"] for row in rows} == {"RUNNING"} and float(rows[-1]["RAM"]) > 0
    assert float(rows[0]["CPU"]) == 77.0 and float(rows[-1]["CPU"]) < 50 and float(overall[-1]["Max_CPU"]) >= 100


def test_headless_says_once_what_it_writes_where(folder: Folder) -> None:
    folder.write("a")
    top = Headless(folder, "--csv-interval", "0.2")
    assert top.has_rows("a", 3)
    _, out, err = top.end(signal.SIGTERM)
    assert out == "" and err.count(f"CSV files in {top.csv} every 0.2 s") == 1
    assert err.splitlines()[1:] == ["", "interrupted; nothing was stopped"]


def test_headless_with_json_prints_a_line_for_each_look(folder: Folder) -> None:
    folder.write("a")
    top = Headless(folder, "--json", "-i", "0.1")
    assert top.process.stdout
    lines = [json.loads(top.process.stdout.readline()) for _ in range(3)]
    assert all([row["run"]["name"] for row in line["runs"]] == ["a"] for line in lines)
    assert top.end(signal.SIGTERM)[0] == -signal.SIGTERM and not top.csv.exists()


def test_rows_survive_a_kill_and_the_next_program_goes_on(folder: Folder) -> None:
    folder.write("a")
    top = Headless(folder, "--csv-interval", "0.1")
    assert top.has_rows("a", 5)
    top.end(signal.SIGKILL)
    before = top.rows("a")
    with (top.csv / "a_matrix.csv").open("a") as file:
        file.write("2026-01-01T00:00:00.000Z,a,RUNN")
    again = Headless(folder, "--csv-interval", "0.1")
    assert again.has_rows("a", len(before) + 2) and again.rows("a")[: len(before)] == before
    assert again.end(signal.SIGTERM)[0] == -signal.SIGTERM


def test_a_run_that_is_killed_meanwhile_gets_one_last_row(folder: Folder) -> None:
    victim = folder.process()
    folder.write("a", pid=victim.pid)
    folder.write("b")
    top = Headless(folder, "--csv-interval", "0.1")
    assert top.has_rows("a", 2)
    victim.kill()
    victim.wait()
    assert wait_until(lambda: top.rows("a")[-1]["Status"] == "KILLED", PATIENCE)
    assert top.has_rows("b", len(top.rows("b")) + 3)
    top.end(signal.SIGTERM)
    assert [row["Status"] for row in top.rows("a")].count("KILLED") == 1


def test_a_folder_that_goes_away_is_told_once_and_so_is_its_return(folder: Folder) -> None:
    folder.write("a")
    top = Headless(folder, "--csv-interval", "0.1")
    assert top.has_rows("a", 2)
    away = folder.path.with_name("away")
    folder.path.rename(away)
    assert top.process.stderr
    said = [top.process.stderr.readline() for _ in range(2)]
    assert said[1].startswith("error: ")
    time.sleep(0.5)
    count = len(top.rows("a"))
    away.rename(folder.path)
    assert top.process.stderr.readline().endswith("it responds again, with 1 run\n")
    assert top.has_rows("a", count + 2)
    assert top.end(signal.SIGTERM)[2].splitlines()[-1] == "interrupted; nothing was stopped"


def test_a_disk_that_is_full_is_told_once_and_leaves_whole_rows(folder: Folder) -> None:
    folder.write("a")
    top = Headless(
        folder,
        "--csv-interval",
        "0.1",
        prefix=("sh", "-c", 'export PYTHONDONTWRITEBYTECODE=1; ulimit -f 4; exec "$@"', "sh"),
    )
    assert top.process.stderr
    said = [top.process.stderr.readline() for _ in range(2)]
    assert "rows could not be written" in said[1] and "a_matrix.csv" in said[1]
    count = len(top.rows("a"))
    time.sleep(0.5)
    assert top.process.poll() is None and len(top.rows("a")) == count > 1
    status, _, err = top.end(signal.SIGTERM)
    assert status == -signal.SIGTERM and "rows could not be written" not in err


# ---------------------------------------------------------------- on a terminal


def test_with_a_terminal_csv_files_are_written_beside_the_screen(
    folder: Folder, tmp_path: Path, surroundings: Surroundings
) -> None:
    folder.write("run 1")
    screen, out = Screen(tmp_path), tmp_path / "csv"
    try:
        screen.start("120x30", *TOP, str(folder.path), "-i", "0.5", "--csv-interval", "0.2", "--csv-dir", str(out))
        screen.shows("run 1")
        assert wait_until(lambda: (out / "run 1_matrix.csv").exists(), PATIENCE)
        screen.press("q")
        screen.ended(0)
    finally:
        screen.tmux("kill-server")
    with (out / "run 1_matrix.csv").open(newline="") as file:
        assert {row["Run Name"] for row in csv.DictReader(file)} == {"run 1"}
    assert wait_until(lambda: not surroundings.processes(), PATIENCE)


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_a_stream_that_was_closed_before_is_no_failure(folder: Folder, closed: str) -> None:
    folder.write("alive")
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *TOP, str(folder.path)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr
    assert ("alive" in done.stdout) is (">&-" not in closed.replace("2>&-", ""))


def test_one_look_knows_the_cpu_of_a_whole_tree(folder: Folder) -> None:
    busy = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    with subprocess.Popen([sys.executable, "-c", busy]) as process:
        try:
            folder.write("busy", pid=process.pid)
            assert wait_until(lambda: any(parent_of(pid) == process.pid for pid in pids()))
            row = ask(folder.path, status=0)["busy"]
            assert row["processes"] == 2 and row["cpu_percent"] > 1
            assert row["cpu_percent"] == pytest.approx(sum(each["cpu_percent"] for each in row["tree"]))
        finally:
            for pid in pids():
                if parent_of(pid) == process.pid:
                    kill(pid)
            process.kill()
