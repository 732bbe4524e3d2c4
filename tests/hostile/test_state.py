"""A state folder that another user has changed, that a later version wrote, or that is damaged: refused or replaced."""

from __future__ import annotations

import itertools
import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakes import EPOCH, FakeClock
from tests.hostile.disks import fill_up, small_disk
from training_monitor.cli.main import main
from training_monitor.core.errors import StateError, TrainingMonitorError
from training_monitor.core.store import Store
from training_monitor.core.values import Notice
from training_monitor.rent.queue import TrainingQueue
from training_monitor.vast.training_request import JobState, TrainingRequest

REQUEST = TrainingRequest("cat", command="python train.py")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state folder of the commands, which is not made yet."""
    monkeypatch.setenv("TRAINING_MONITOR_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("TRAINING_MONITOR_LOG_FILE", raising=False)
    return tmp_path / "state"


@pytest.fixture
def store(folder: Path) -> Store:
    return Store(str(folder))


def change(store: Store, *statements: str) -> None:
    with sqlite3.connect(store.path) as database:
        for statement in statements:
            database.execute(statement)
    database.close()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# ---------------------------------------------------------------- a later version


def test_a_file_of_a_later_version_is_refused_and_stays_as_it_is(store: Store, folder: Path) -> None:
    change(store, "CREATE TABLE news (x)", "PRAGMA user_version = 999")
    before = contents(folder)
    asks: list[Callable[[], object]] = [
        lambda: Store(str(folder)),
        lambda: store.save_run("local run", {}, finished=False),
        lambda: store.add_notice("", Notice("failed", "x"), now=1.0),
        lambda: TrainingQueue(store).submit(REQUEST),
        lambda: store.load_run("local run", dict),
    ]
    for ask in asks:
        with pytest.raises(StateError, match="later version.*layout 999.*update this package, or .*STATE_DIR"):
            ask()
        assert contents(folder) == before


@pytest.mark.parametrize("version", [-1, 2**31 - 1])
def test_no_version_is_taken_for_another(store: Store, version: int) -> None:
    change(store, f"PRAGMA user_version = {version}")
    with pytest.raises(StateError, match=f"layout {version}"):
        Store(store.folder)


# ---------------------------------------------------------------- jobs in a state of a later version


def test_a_job_in_an_unknown_state_is_listed_and_not_taken(store: Store) -> None:
    queue = TrainingQueue(store, clock=FakeClock())
    for name in ("old", "odd"):
        queue.submit(REQUEST, name)
    change(store, "UPDATE training_jobs SET state = 'PAUSED\x1b[2J' WHERE id = 'odd'")
    unfinished = [state for state in JobState if not state.is_terminal]
    for jobs in (queue.list_jobs(), queue.list_jobs(unfinished)):
        assert [(job.id, job.state.value, job.state.is_terminal) for job in jobs] == [
            ("odd", "PAUSED\x1b[2J", False),
            ("old", "QUEUED", False),
        ]
    assert queue.list_jobs([JobState.CANCELLED]) == [] == queue.list_jobs([JobState.QUEUED], since=EPOCH + 1)
    assert [job.id for job in queue.list_jobs([JobState.QUEUED])] == ["old"]
    taken = queue.claim("a", 60.0)
    assert taken and taken.id == "old"
    asks: list[Callable[[], object]] = [
        lambda: queue.claim("a", 60.0),
        lambda: queue.claim("a", 60.0, "odd"),
        lambda: queue.get("odd"),
    ]
    for ask in asks:
        with pytest.raises(TrainingMonitorError, match="odd.*PAUSED"):
            ask()
    assert queue.list_jobs()[0].worker is None


def test_the_listing_of_the_queue_shows_it_escaped(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "two"):
        TrainingQueue(store).submit(REQUEST, name)
    change(store, "UPDATE training_jobs SET state = 'PAUSED\x1b[2J' WHERE id = 'one'")
    assert main(["rent", "queue"]) == 0
    shown = capsys.readouterr().out
    assert "PAUSED" in shown and "two" in shown and "\x1b" not in shown
    assert main(["rent", "queue", "--json"]) == 0
    assert [job["state"] for job in json.loads(capsys.readouterr().out)["jobs"]] == ["QUEUED", "PAUSED\x1b[2J"]
    assert main(["rent", "queue", "one"]) == 3 and "PAUSED" in capsys.readouterr().err


# ---------------------------------------------------------------- what others could have changed


def test_what_others_can_write_to_is_refused_with_the_command_that_mends_it(store: Store, folder: Path) -> None:
    for name, mode in itertools.product(("", "locks", "training_monitor.db"), (0o720, 0o702, 0o777)):
        (folder / name).chmod(mode)
        with pytest.raises(StateError, match=f"mode 0{mode:o}.*chmod go-w {folder / name}"):
            Store(str(folder))
        (folder / name).chmod(mode & ~0o022)
        Store(str(folder))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(store: Store, folder: Path) -> None:
    os.chown(folder, 65534, -1)
    with pytest.raises(StateError, match="belongs to another user .uid 65534"):
        Store(str(folder))


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o703])
def test_a_folder_below_one_that_all_can_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    """They could put another one in its place."""
    open_to_all = tmp_path / "open"
    folder = open_to_all / "between" / "state"
    folder.mkdir(mode=0o700, parents=True)
    open_to_all.chmod(mode)
    with pytest.raises(StateError, match=f"{open_to_all} is writable by other users .*chmod o-w"):
        Store(str(folder))
    (tmp_path / "link").symlink_to(open_to_all / "between")
    with pytest.raises(StateError, match=f"{open_to_all} is writable"):
        Store(str(tmp_path / "link" / "state"))
    open_to_all.chmod(mode | 0o1000)
    Store(str(folder))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_below_one_of_another_user_is_refused(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 65534, -1)
    with pytest.raises(StateError, match=f"{theirs} belongs to another user"):
        Store(str(theirs / "state"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link away")
def test_a_link_of_another_user_as_state_folder_is_refused(tmp_path: Path) -> None:
    """They could let it lead elsewhere; one of the user's own is followed."""
    (tmp_path / "aim").mkdir(mode=0o700)
    (tmp_path / "state").symlink_to(tmp_path / "aim")
    Store(str(tmp_path / "state"))
    os.chown(tmp_path / "state", 65534, -1, follow_symlinks=False)
    with pytest.raises(StateError, match="state belongs to another user .uid 65534"):
        Store(str(tmp_path / "state"))


@pytest.mark.parametrize("name", ["training_monitor.db", "training_monitor.db-wal", "training_monitor.db-journal"])
def test_a_link_in_place_of_a_file_is_not_followed(store: Store, folder: Path, tmp_path: Path, name: str) -> None:
    aim = tmp_path / "aim"
    for content in (None, b"precious"):
        if content:
            aim.write_bytes(content)
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(aim)
        with pytest.raises(StateError, match=f"{name} cannot be opened: it is a link"):
            Store(str(folder))
        assert (aim.read_bytes() if content else aim.exists() or None) == content


@pytest.mark.parametrize("put", [os.symlink, os.link, lambda _, path: os.mkfifo(path), lambda _, path: os.mkdir(path)])
def test_what_is_no_lock_file_is_neither_opened_nor_emptied(
    store: Store, folder: Path, tmp_path: Path, put: Callable[[str, str], None]
) -> None:
    (tmp_path / "precious").write_text("123")
    with store.hold("local run"):
        [lock] = (folder / "locks").iterdir()
    lock.unlink()
    put(str(tmp_path / "precious"), str(lock))
    with pytest.raises(StateError, match="cannot be opened"), store.hold("local run"):
        pass
    assert (tmp_path / "precious").read_text() == "123"


# ---------------------------------------------------------------- damage


MANY = 150


def fill(store: Store) -> None:
    for number in range(MANY):
        store.save_run(f"run {number}", {"number": number, "text": "x" * 500}, finished=False)
        store.add_look(f"run {number}", EPOCH, {"text": "y" * 500})
    change(store, "PRAGMA wal_checkpoint(TRUNCATE)")


def test_what_can_be_read_of_a_malformed_file_goes_on_in_a_new_one(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(store)
    whole = Path(store.path).read_bytes()
    [(page, size)] = sqlite3.connect(store.path).execute("SELECT rootpage, 4096 FROM sqlite_master WHERE name = 'runs'")
    middle = whole.index(b'"number": 75')
    damaged = bytearray(whole)
    damaged[middle // size * size : middle // size * size + size] = b"\xff" * size
    Path(store.path).write_bytes(damaged)
    with pytest.raises(StateError, match="damaged .*corrupt-1, and .* of its rows were kept. Try: run the command"):
        for number in range(MANY):
            store.load_run(f"run {number}", dict)
    runs = [store.load_run(f"run {number}", dict) for number in range(MANY)]
    assert sum(run is not None for run in runs) > MANY - 20 and runs[0] and runs[-1] and runs[75] is None
    assert len(store.looks("run 75")) == 1
    assert Path(f"{store.path}.corrupt-1").read_bytes() == bytes(damaged)
    assert not os.path.exists(f"{store.path}.new")


def test_a_file_that_is_no_database_is_kept_and_a_command_goes_on(store: Store, folder: Path) -> None:
    """In a process of its own: under pytest, a log is set up."""
    command = [sys.executable, "-m", "training_monitor", "rent", "queue"]
    for number, content in enumerate((b"no database " * 999, b"SQLite format 3\0" + b"\xff" * 4080, b"\0" * 5000), 1):
        Path(store.path).write_bytes(content)
        for is_told in (True, False) if number == 1 else (True,):
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            assert (f"renamed to {store.path}.corrupt-{number}" in done.stderr) is is_told
        assert (folder / f"training_monitor.db.corrupt-{number}").read_bytes() == content


def test_a_cut_file_loses_no_more_than_what_was_cut(store: Store) -> None:
    fill(store)
    os.truncate(store.path, os.path.getsize(store.path) // 2)
    fresh = Store(store.folder)
    for _ in range(2):
        try:
            runs = [fresh.load_run(f"run {number}", dict) for number in range(MANY)]
        except StateError as error:
            assert "go on" in error.what
    assert sum(run is not None for run in runs) > 25


def test_threads_that_meet_a_damaged_file_at_once_set_it_aside_once(store: Store, folder: Path) -> None:
    Path(store.path).write_bytes(b"no database " * 999)
    together, failures = threading.Barrier(8), list[Exception]()

    def work(number: int) -> None:
        together.wait()
        try:
            Store(str(folder)).save_run(f"run {number}", {"number": number}, finished=False)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [] and not (folder / "training_monitor.db.corrupt-2").exists()
    assert all(store.load_run(f"run {number}", dict) == {"number": number} for number in range(8))


# ---------------------------------------------------------------- disks


@pytest.fixture
def disk(folder: Path) -> Iterator[Path]:
    """The state folder on a disk of its own."""
    with small_disk(folder):
        yield folder


def test_a_full_disk_names_the_file_and_what_to_do(disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(str(disk))
    with pytest.raises(StateError, match=f"no space left .*{store.path}: .*full.*free some space"):
        for number in range(500):
            store.save_run(f"run {number}", "x" * 20_000, finished=False)
    with pytest.raises(StateError, match="full.*free some space"), store.transaction() as execute:
        for number in range(100):
            execute("INSERT INTO runs VALUES (?, ?, 0, 0)", (f"more {number}", "x" * 20_000))
    assert store.load_run("run 0", str) == "x" * 20_000
    (disk / "training_monitor.db").rename(disk / "old")
    fill_up(disk)
    assert main(["rent", "queue"]) == 3
    told = capsys.readouterr().err
    assert store.path in told and "Try:" in told and "Traceback" not in told


def test_a_read_only_disk_names_the_file_and_what_to_do(disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(str(disk))
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    assert main(["rent", "queue"]) == 3
    told = capsys.readouterr().err
    assert store.path in told and "TRAINING_MONITOR_STATE_DIR" in told and "Traceback" not in told
    with pytest.raises(StateError, match="Read-only file system"), store.hold("local run"):
        pass


def test_a_locked_file_is_named_after_a_while(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Store, "busy_seconds", 0.05)
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        assert main(["rent", "queue"]) == 3
    finally:
        other.close()
    told = capsys.readouterr().err
    assert f"{store.path} cannot be used: database is locked" in told and "Try:" in told
