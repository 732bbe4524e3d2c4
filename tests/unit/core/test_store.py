"""What survives a supervisor: its runs in one file, and a lock that goes when its holder goes."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from training_monitor.core.best_effort_store import BestEffortStore
from training_monitor.core.errors import AlreadySupervised, TrainingMonitorError
from training_monitor.core.store import Store

HOLDER = """
import sys
from training_monitor.core.store import Store
with Store(sys.argv[1]).hold("local run"):
    print("held", flush=True)
    sys.stdin.read()
"""
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path) or "."}


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "state")


def test_the_last_state_of_each_run_survives_reopening(folder: str) -> None:
    state = {"phase": "watching", "retries": 3, "attempts": [{"reason": "größer ü", "step": None}]}
    for kept in ({"number": 1}, state):
        Store(folder).save_run("local one", kept, finished=False)
    Store(folder).save_run("local two", {"number": 9}, finished=False)
    found = [Store(folder).load_run(f"local {name}", dict) for name in ("one", "two", "three")]
    assert found == [state, {"number": 9}, None]


def test_a_disk_that_works_again_has_within_two_minutes_what_was_kept_in_memory(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(folder).write_text("in the way")
    store, failed = BestEffortStore(folder), time.monotonic()
    store.save_run("local run", {"retries": 3}, finished=False)
    Path(folder).unlink()
    monkeypatch.setattr(time, "monotonic", lambda: failed + 120.0)
    assert store.load_run("local run", dict) == {"retries": 3}
    assert Store(folder).load_run("local run", dict) == {"retries": 3}


def test_a_finished_run_is_nothing_to_go_on_with_until_it_begins_again(folder: str) -> None:
    store = Store(folder)
    store.save_run("local run", {"phase": "done"}, finished=True)
    assert store.load_run("local run", dict) is None
    store.save_run("local run", {"phase": "starting"}, finished=False)
    assert store.load_run("local run", dict) == {"phase": "starting"}


def test_many_threads_can_write_at_once(folder: str) -> None:
    store, failures = Store(folder), []

    def write(number: int) -> None:
        try:
            for count in range(20):
                store.save_run(f"local {number}", {"count": count}, finished=False)
        except TrainingMonitorError as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [store.load_run(f"local {number}", dict) for number in range(4)] == [{"count": 19}] * 4


def test_the_folder_is_the_one_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINING_MONITOR_STATE_DIR", str(tmp_path / "elsewhere"))
    Store().save_run("local run", {"phase": "waiting"}, finished=False)
    assert Store(str(tmp_path / "elsewhere")).load_run("local run", dict) == {"phase": "waiting"}


def test_only_the_owner_can_read_what_is_kept(folder: str) -> None:
    before = os.umask(0)
    try:
        store = Store(folder)
        with store.hold("local run"), sqlite3.connect(store.path) as keeps_the_journal:
            keeps_the_journal.execute("SELECT count(*) FROM runs").fetchone()
            store.save_run("local run", {"secret": 1}, finished=False)
            files = [path for path in Path(folder).rglob("*") if path.is_file()]
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in files}
        keeps_the_journal.close()
    finally:
        os.umask(before)
    assert {"training_monitor.db", "training_monitor.db-wal"} < set(modes) and len(modes) >= 4
    assert set(modes.values()) == {0o600}
    assert {stat.S_IMODE(os.stat(path).st_mode) for path in (folder, os.path.join(folder, "locks"))} == {0o700}


def test_a_folder_that_cannot_be_made_names_the_variable_that_moves_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TrainingMonitorError, match="TRAINING_MONITOR_STATE_DIR") as caught:
        Store(str(tmp_path / "file" / "state"))
    assert str(tmp_path / "file" / "state") in caught.value.what


def test_a_refused_folder_or_lock_names_the_variable_too(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    store = Store(folder)
    os.rmdir(os.path.join(folder, "locks"))
    with pytest.raises(TrainingMonitorError, match="TRAINING_MONITOR_STATE_DIR"), store.hold("local run"):
        pass
    monkeypatch.setattr(os, "makedirs", refuse)
    with pytest.raises(TrainingMonitorError, match="Permission denied.*TRAINING_MONITOR_STATE_DIR"):
        Store(folder)


def test_a_state_file_that_is_a_folder_is_named(folder: str) -> None:
    os.makedirs(os.path.join(folder, "training_monitor.db"))
    with pytest.raises(TrainingMonitorError, match="training_monitor.db cannot be opened"):
        Store(folder)


def garbage(path: Path) -> None:
    path.write_bytes(b"this was a database once" * 500)


def zeroed_pages(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:100] + bytes(len(content) - 100))


def another_table(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("ALTER TABLE runs RENAME TO walks")
    database.close()


def half_a_state(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("UPDATE runs SET state = '{\"phase\": '")
    database.close()


def test_a_state_file_without_its_table_is_a_clear_error(folder: str) -> None:
    store = Store(folder)
    another_table(Path(store.path))
    with pytest.raises(TrainingMonitorError) as caught:
        Store(folder).load_run("local run", dict)
    assert store.path in caught.value.what and "move the file away" in (caught.value.hint or "")


@pytest.mark.parametrize("damage", [garbage, zeroed_pages])
def test_a_damaged_state_file_is_set_aside_and_a_new_one_begins(folder: str, damage: Callable[[Path], None]) -> None:
    store = Store(folder)
    store.save_run("local run", {"phase": "watching"}, finished=False)
    damage(Path(store.path))
    left = Path(store.path).read_bytes()
    assert Store(folder).load_run("local run", dict) is None
    assert Path(f"{store.path}.corrupt-1").read_bytes() == left


def test_a_damaged_state_of_a_run_is_kept_beside_the_new_one(folder: str) -> None:
    store = Store(folder)
    store.save_run("local run", {"phase": "watching"}, finished=False)
    half_a_state(Path(store.path))
    assert store.load_run("local run", dict) is None
    store.save_run("local run", {"phase": "starting"}, finished=False)
    assert store.load_run("local run", dict) == {"phase": "starting"}
    with store.transaction() as execute:
        assert execute("SELECT state FROM runs WHERE key = 'local run.corrupt-1'") == [('{"phase": ',)]


def test_a_second_holder_is_refused_until_the_first_is_done_or_failed(folder: str) -> None:
    store = Store(folder)
    with store.hold("local run"):
        message = f"local run is already supervised on this machine by process {os.getpid()}"
        with pytest.raises(AlreadySupervised, match=message), Store(folder).hold("local run"):
            pass
        with Store(folder).hold("local other"):
            pass
    with pytest.raises(KeyError), store.hold("local run"):
        raise KeyError
    with store.hold("local run"):
        pass


def test_a_lock_is_free_although_a_child_that_is_not_executed_yet_has_a_copy(folder: str) -> None:
    store = Store(folder)
    ready, go = os.pipe()
    with store.hold("local run"):
        if not (child := os.fork()):
            os.close(go)
            os.read(ready, 1)
            os._exit(0)
    try:
        with store.hold("local run"):
            pass
    finally:
        os.close(ready)
        os.close(go)
        os.waitpid(child, 0)


def test_the_lock_of_another_process_is_seen_and_released_when_it_is_killed(folder: str) -> None:
    store = Store(folder)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT
    )
    try:
        assert holder.stdout and holder.stdout.readline() == b"held\n"
        message = f"process {holder.pid}$|process {holder.pid}[^0-9]"
        with pytest.raises(AlreadySupervised, match=message), store.hold("local run"):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with store.hold("local run"):
            pass
    finally:
        holder.kill()
        holder.communicate()
