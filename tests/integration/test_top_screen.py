"""The screen of `top` in a real terminal (tmux): every key, with real progress files and real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import pids, wait_until
from tests.integration.screens import PATIENCE, ROOT, Screen
from training_monitor.targets.proc_stat import Identity
from training_monitor.targets.procfs import identify

# Two processes, one below the other, that end with the test.
PROCESSES = ("sh", "-c", "sleep 1000; sleep 1001")
DEAD = replace(identify(), pid=(1 << 22) + 1, start_ticks=5)  # a number that no process has
TRAINING = """
import sys, time
from training_monitor.runs.monitor import TrainingMonitor
values = {"learning_rate": 0.1, "batch_size": 8}
with TrainingMonitor(sys.argv[1], tee_outputs=True) as monitor:
    monitor.track_variables(values)
    monitor.start_epoch(1, total_batches=100000, total_epochs=3)
    monitor.start_training()
    for step in range(100000):
        monitor.start_batch()
        monitor.update_metrics(loss=1 / (step + 1))
        if step % 10 == 0:
            print("step", step, "learning_rate", values["learning_rate"], flush=True)
        time.sleep(0.02)
"""


class TopScreen(Screen):
    """`training-monitor top progress` in its folder, where progress files are written by hand."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        super().__init__(folder)
        self.runs, self._stack = folder / "progress", stack
        self.runs.mkdir()

    def process(self, *argv: str) -> subprocess.Popen[bytes]:
        """A process that runs until the end of the test."""
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(argv or PROCESSES, start_new_session=True, env=environ)
        self._stack.callback(process.wait)
        self._stack.callback(end_group, process.pid)
        return process

    def write(self, name: str, status: str = "RUNNING", who: Identity | None = None, **changes: Any) -> Path:
        """Write the progress file of a run in a folder of its own, with outputs beside it; returns the folder."""
        folder = self.runs / name
        folder.mkdir(exist_ok=True)
        (folder / "stdout.log").write_text("".join(f"{name} line {number}\n" for number in range(1, 5001)))
        (folder / "stderr.log").write_text("a warning\n")
        who, now = who or DEAD, time.time()
        identity = {name: getattr(who, name) for name in Identity.__slots__}
        outputs = {f"{stream}_path": str(folder / f"{stream}.log") for stream in ("stdout", "stderr")}
        document = {
            "format": 1,
            "status": status,
            "start_time": now - 60,
            "updated_at": now,
            "metadata": {"run_name": name, "script_name": "train.py", **identity, **outputs},
            "state": {"phase": "training", "epoch": 2, "total_epochs": 10, "batch": 12, "step": 112, "step_at": now},
            "estimates": {"run": {"rate": 4.0, "elapsed": 60.0, "remaining": 900.0, "total": 960.0}},
            "metrics": {"loss": 0.5},
            "history": {"loss": {"steps": [1, 2, 3, 4], "values": [3.0, 2.0, 1.0, 0.5]}},
            "variables": {"learning_rate": {"value": 0.1, "type": "float", "edit": None, "error": None}},
            **changes,
        }
        (folder / ".new").write_text(json.dumps(document))
        os.replace(folder / ".new", folder / "progress.json")
        return folder

    def fill(self) -> subprocess.Popen[bytes]:
        """A run that is alive, and one of each end; returns the process of the first."""
        process = self.process()
        assert wait_until(lambda: Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
        self.write("alive", who=identify(process.pid))
        for name, status in (("broken", "FAILED"), ("done", "FINISHED"), ("halted", "CANCELED")):
            self.write(name, status, error_message="CUDA out of memory" if status == "FAILED" else None)
        self.write("lost")
        self.write("remote", who=Identity(77, 5, "gpu-7", "b", "pid:[9]"), updated_at=time.time() - 900)
        return process

    def open(self, size: str = "100x30", *options: str, before: str = "", **environ: str) -> None:
        """Start it, wait for its first rows, and sort them by name, with the cursor on the first."""
        words = (sys.executable, "-m", "training_monitor", "top", "progress", "--interval", "0.3", *options)
        environ = {"TRAINING_MONITOR_STATE_DIR": str(self.folder / "state"), **environ}
        self.start(size, *words, before=before, **environ)
        self.shows("Run Name", "^>")
        self.press("S", "Home")

    def forget(self) -> None:
        """End tmux, so that it can be started again."""
        server = self.tmux("display-message", "-p", "#{pid}").strip()
        self.tmux("kill-server")
        assert wait_until(lambda: not Path(f"/proc/{server}").exists(), PATIENCE)


def end_group(leader: int) -> None:
    """End what is left of a process group, also when its first process has ended."""
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[TopScreen]:
    with ExitStack() as stack:
        found = TopScreen(tmp_path, stack)
        stack.callback(lambda: found.tmux("kill-server"))
        yield found


# ---------------------------------------------------------------- looking

# Keys, and what the screen shows after them; tests/unit/ui/test_top_keys.py has all of them.
KEYS = (
    ("Down", r"^> +broken", r"broken: FAILED: CUDA out of memory"),
    ("NPage", r"^> +remote", r"remote: UNKNOWN: "),
    ("Home", r"^>\+alive", r"alive: train.py, PID \d+ on "),
    ("s", "1 of 6 runs  RUNNING"),
    ("s", "1 of 6 runs  FINISHED", r"^> +done"),
    ("Escape", r"  6 runs", r"broken(.|\n)*lost(.|\n)*remote(.|\n)*alive(.|\n)*done"),
    ("S", "▲ Run Name"),
    ("R", "▼ Run Name", r"^ +remote(.|\n)*alive"),
    (">", "▲ Status"),
    ("Right", "^< Run Name +Done"),
    ("Escape", r"remote(.|\n)*alive"),
    ("S", "▲ Run Name"),
    ("Home", r"^>\+alive"),
    ("t", r"\[P\] sleep +PID \d+ +CPU +\S+ +RAM +\S+ [KM]iB +GPU +-  1 thread", r"\[T\] sleep +TID \d+ +CPU +\d"),
    ("t", r"^>\+alive"),
    ("p", "PAUSED"),
    ("p", "  6 runs  ▲ Run Name  [0-9]"),
    ("Enter", r"^── alive RUNNING", r"^resources +PID \d+", "rate 4.00/s", r"^ +loss +0.5000 +█", r"learning_rate=0.1"),
    ("Escape", r"^>\+alive"),
    ("e", "1 variable ─", r"^PID \d+  CPU \S+%", r"^> learning_rate +0.1 +float"),
    ("Escape", r"^>\+alive"),
    ("?", r"^── keys", "show only runs with one status"),
    ("Escape", r"^>\+alive"),
)


def test_every_key_that_looks_is_answered(screen: TopScreen) -> None:
    screen.fill()
    screen.open()
    alive = r"^>\+alive +RUNNING \d\S+ +\S+ +4.00/s +1[45]m.* training"
    screen.shows("  6 runs", alive, r"\d RUNNING, 1 CANCELED, 1 FINISHED", "q quit")
    for key, *shown in KEYS:
        screen.press(key)
        screen.shows(*shown)
    screen.press("f")
    screen.type("do")
    screen.press("Enter")
    screen.shows("1 of 6 runs  name: do", r"^> +done")
    screen.press("q")
    screen.ended(0)


def test_what_changes_in_the_files_is_seen_without_a_key_and_the_cursor_stays(screen: TopScreen) -> None:
    process = screen.fill()
    screen.open()
    screen.press("s")
    screen.shows("1 of 6 runs  RUNNING")
    screen.write("aaa", who=identify(process.pid))
    screen.shows("2 of 7 runs  RUNNING", r"^.\+aaa", r"^>\+alive")
    screen.write("alive", "FINISHED", who=identify(process.pid))
    screen.shows("1 of 7 runs  RUNNING", r"^>\+aaa")
    process.kill()
    process.wait()
    screen.shows("0 of 7 runs  RUNNING", "no run matches RUNNING: Esc shows all")
    screen.press("q")
    screen.ended(0)


def test_a_folder_that_goes_away_leaves_the_last_rows_and_says_since_when(screen: TopScreen) -> None:
    screen.fill()
    screen.open("140x30")
    screen.shows(r"^>\+alive")
    screen.runs.rename(screen.folder / "away")
    screen.shows(r"^stale since \d\d:\d\d:\d\d: .*cannot be read", r"^>\+alive")
    (screen.folder / "away").rename(screen.runs)
    screen.hides("stale since")
    screen.press("q")
    screen.ended(0)


def test_chosen_columns_are_kept_and_an_unusable_state_is_reported(screen: TopScreen) -> None:
    screen.fill()
    screen.open()
    screen.shows("Run Name +Status +Done")
    screen.press("v", "Space", "Down", "Space")
    screen.shows(r"^  \[ \] Status", r"^> \[ \] Done", "31 of 33 columns shown")
    screen.press("Enter")
    screen.shows("Run Name +Rate", "column choice saved in ")
    screen.press("q")
    screen.ended(0)
    screen.forget()
    screen.open()
    screen.shows("Run Name +Rate")
    screen.press("q")
    screen.ended(0)
    screen.forget()
    (screen.folder / "state").chmod(0o777)
    screen.open("150x30")
    screen.shows("Run Name +Status +Done")
    screen.press("m")
    screen.shows("so all columns are shown: ")
    screen.press("q")
    screen.ended(0)


# ---------------------------------------------------------------- signals and deleting


def test_k_ends_a_run_with_its_whole_tree_once_yes_was_typed(screen: TopScreen) -> None:
    process = screen.fill()
    (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    screen.open()
    screen.shows(r"^>\+alive")
    screen.press("k")
    screen.shows(
        "a signal to run alive", "^> SIGTERM", "^  SIGQUIT", "goes to 1 process:", f"alive: PID {process.pid} sh"
    )
    screen.press("Down", "Down")
    screen.shows("^> SIGKILL", "goes to 2 processes", f"alive: PID {child} sleep")
    screen.press("Enter")
    screen.shows(r"send SIGKILL to run alive\?", "type   yes")
    screen.type("no")
    screen.press("Enter")
    screen.shows("cancelled: nothing was done")
    assert process.poll() is None
    screen.press("k", "Down", "Down", "Enter")
    screen.type("yes")
    screen.press("Enter")
    assert process.wait(30) == -signal.SIGKILL
    assert wait_until(lambda: int(child) not in pids())
    ended = rf"process {process.pid} \(sh\): SIGKILL was sent, and the process has ended"
    screen.shows(r"^> +alive +KILLED", f"^{ended}; press m to see 1 more result")
    screen.press("m")
    screen.shows("2 messages", rf"^\d\d:\d\d:\d\d  process {child} ", rf"^\d\d:\d\d:\d\d  {ended}")
    screen.press("q")
    screen.ended(0)


# ---------------------------------------------------------------- variables


def test_a_real_training_applies_what_is_edited_and_its_output_is_followed(screen: TopScreen) -> None:
    (screen.folder / "train.py").write_text(TRAINING)
    screen.process(sys.executable, str(screen.folder / "train.py"), str(screen.runs / "real"))
    assert wait_until(lambda: list(screen.runs.rglob("progress.json")), 60)
    screen.open("120x30")
    screen.shows(r"^>.real +(RUNNING \d\S+|RUNNING|starting) +0% +\S+ +\S+ +\d\S+ +\d+% +0\.\d+ +- +training +1/3")
    screen.press("e")
    screen.shows("learning_rate +0.1 +float")
    screen.press("Down", "Down", "Up", "Home")
    screen.shows("^> learning_rate")
    screen.press("Enter", "C-u")
    screen.type("0.025")
    screen.press("Enter")
    screen.shows(r"^> learning_rate +0.025 +float +applied")
    screen.press("o")
    screen.shows("real stdout +100%.*following", r"^step \d+ learning_rate 0.025")
    screen.press("Escape", "Escape", "k", "Down", "Enter")
    screen.type("yes")
    screen.press("Enter")
    screen.shows(r"^> +real +CANCELED")
    screen.press("q")
    screen.ended(0)


# ---------------------------------------------------------------- outputs


def test_the_viewer_follows_scrolls_and_searches(screen: TopScreen) -> None:
    folder = screen.fill() and screen.runs / "alive"
    screen.open("100x20")
    screen.shows(r"^>\+alive")
    screen.press("o")
    screen.shows("alive stdout +100%.*following +hidden: stderr", "^alive line 5000")
    with open(folder / "stdout.log", "a") as file:
        file.write("one more\n")
    screen.shows("^one more")
    for key, shown in (
        ("g", "^alive line 1$"),
        ("Down", "stdout +0%(.|\n)*^alive line 2$"),
        (":", "^per cent: _"),
        ("5", "^per cent: 5_"),
        ("0", "^per cent: 50_"),
        ("Enter", "stdout +(49|50)%(.|\n)*^alive line 25[0-9][0-9]$"),
        ("g", "^alive line 1$"),
        ("F", "following(.|\n)*^one more"),
        ("Right", "from column 11"),
        ("Left", "^one more"),
        ("w", "long lines are wrapped"),
        ("w", "long lines are cut"),
        ("Tab", "alive stderr(.|\n)*^a warning"),
        ("Tab", "alive stdout(.|\n)*alive stderr"),
        ("Tab", "hidden: stderr"),
    ):
        screen.press(key)
        screen.shows(shown)
    screen.press("b")
    screen.type("LINE 250")
    screen.shows("^backwards: LINE 250_")
    screen.press("Enter")
    screen.shows("found LINE 250", "^alive line 2509$")
    screen.press("n")
    screen.shows("^alive line 2508$")
    screen.press("g", "/")
    screen.type("line 2")
    screen.press("Enter")
    screen.shows("found line 2", "^alive line 2$")
    screen.press("Escape")
    screen.shows(r"^>\+alive")
    screen.press("q")
    screen.ended(0)


def test_a_log_of_three_gigabytes_is_opened_at_its_end_at_once(screen: TopScreen) -> None:
    folder = screen.write("large")
    with open(folder / "stdout.log", "r+b") as file:
        file.truncate(3_000_000_000)
        file.seek(0, os.SEEK_END)
        file.write(b"\nthe last line\n")
    screen.open()
    screen.press("o")
    screen.shows("large stdout +100% .*2.8 GiB", "^the last line")
    screen.press("b")
    screen.type("large line 77")
    screen.press("Enter")
    screen.shows(r"large stdout +\d+%, .* of 2.8 GiB searched for large line 77; Esc cancels")
    screen.press("Escape")
    screen.shows("large stdout +100% .*2.8 GiB +following", "^the last line", "search cancelled")
    screen.press("n")
    screen.shows("found large line 77", "^large line 779$", seconds=4 * PATIENCE)
    screen.press("q")
    screen.ended(0)


# ---------------------------------------------------------------- the terminal


def test_with_colours_each_state_has_one(screen: TopScreen) -> None:
    screen.fill()
    screen.open()
    screen.shows(r"^>\+alive", "KILLED")
    shown = screen.tmux("capture-pane", "-p", "-e")
    for state, colour in (("FINISHED", 34), ("FAILED", 31), ("CANCELED", 33), ("KILLED", 31)):
        (line,) = [line for line in shown.splitlines() if state in line and "0.5000" in line]
        assert f"{colour}m" in line


def test_a_service_that_closed_its_streams_still_collects(screen: TopScreen) -> None:
    screen.write("done", "FINISHED")
    words = (sys.executable, "-m", "training_monitor", "top", "progress", "--headless", "--csv-interval", "0.2")
    closed = ("sh", "-c", 'cd "$0" && exec "$@" <&- >&-', str(screen.runs.parent), *words, "--csv-dir", "csv")
    top = screen.process(*closed)
    assert wait_until(lambda: (screen.runs.parent / "csv" / "done_overall.csv").exists())
    top.send_signal(signal.SIGTERM)
    assert top.wait(30) == -signal.SIGTERM


@pytest.mark.parametrize(("key", "shown"), [("O", "alive stdout +100%"), ("E", r"^  learning_rate|^> learning_rate")])
def test_in_tmux_output_and_variables_open_in_a_pane_of_their_own(screen: TopScreen, key: str, shown: str) -> None:
    screen.fill()
    screen.open("160x40")
    screen.shows(r"^>\+alive")
    screen.press(key)
    assert wait_until(lambda: len(screen.tmux("list-panes").splitlines()) == 2)
    screen.shows(shown)  # the new pane is the active one
    screen.press("q")
    assert wait_until(lambda: len(screen.tmux("list-panes").splitlines()) == 1)
    screen.shows(r"^>\+alive")
    screen.press("q")
    screen.ended(0)
