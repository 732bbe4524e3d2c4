"""What must survive: runs on disk, one supervisor per job, and clear words when the disk says no."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from training_monitor.errors import AlreadySupervised, TrainingMonitorError
from training_monitor.store import Store

HOLD = """
import sys, time
from training_monitor.store import Store
with Store(sys.argv[1]).hold("local job"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_run_survives_its_store(tmp_path: Path) -> None:
    Store(str(tmp_path)).save_run("local job", {"phase": "watching"}, finished=False)
    Store(str(tmp_path)).save_run("local other", {"phase": "waiting"}, finished=False)
    assert Store(str(tmp_path)).load_run("local job") == {"phase": "watching"}


def test_a_finished_run_is_not_gone_on_with(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.save_run("local job", {"phase": "watching"}, finished=False)
    store.save_run("local job", {"phase": "done"}, finished=True)
    assert store.load_run("local job") is None and store.load_run("local never") is None


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "state"))
    store.save_run("local job", {"env": {"TOKEN": "x"}}, finished=False)
    for path in (tmp_path / "state").iterdir():
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
    assert not stat.S_IMODE((tmp_path / "state").stat().st_mode) & 0o077


def test_one_supervisor_holds_a_job_and_others_are_named_its_process(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    with store.hold("local job"):
        with pytest.raises(AlreadySupervised, match=f"process {os.getpid()}"), store.hold("local job"):
            raise AssertionError("held twice")
        with store.hold("local other"):
            pass
    with store.hold("local job"):
        pass


def test_the_hold_of_a_killed_supervisor_is_gone_with_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3])
    assert holder.stdout and holder.stdout.readline() == b"held\n"
    store = Store(str(tmp_path))
    with pytest.raises(AlreadySupervised), store.hold("local job"):
        raise AssertionError("held twice")
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    with store.hold("local job"):
        pass


def test_a_folder_that_cannot_be_made_says_what_to_set(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TrainingMonitorError, match="TRAINING_MONITOR_STATE_DIR"):
        Store(str(tmp_path / "file" / "state"))


def test_a_damaged_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "training_monitor.db").write_bytes(b"this is no database " * 100)
    with pytest.raises(TrainingMonitorError, match="cannot be used"):
        Store(str(tmp_path))
