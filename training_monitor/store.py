"""What must survive the supervisor: one sqlite file, and one lock per supervised job.

The lock is flock(2): the kernel drops it when its holder dies, however it dies.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from training_monitor.errors import AlreadySupervised, TrainingMonitorError
from training_monitor.settings import state_dir

_MIGRATIONS = (
    """CREATE TABLE runs (
        key TEXT PRIMARY KEY,           -- target and job name
        state TEXT NOT NULL,            -- JSON
        finished INTEGER NOT NULL,      -- 1 once it has a result
        updated_at REAL NOT NULL        -- UTC epoch seconds
    )""",
)


class Store:
    """The runs this machine supervises. One short connection per call: safe from any thread and process."""

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder or state_dir()
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            os.makedirs(os.path.join(self.folder, "locks"), mode=0o700, exist_ok=True)
        except OSError as error:
            raise TrainingMonitorError(
                f"the state folder {self.folder} cannot be made: {error.strerror}",
                hint="set TRAINING_MONITOR_STATE_DIR to a folder you can write to",
            ) from error
        self.path = os.path.join(self.folder, "training_monitor.db")
        with self._open() as database:
            _migrate(database)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
            database = sqlite3.connect(self.path, timeout=30.0, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise TrainingMonitorError(
                f"the state file {self.path} cannot be opened: {error}",
                hint="set TRAINING_MONITOR_STATE_DIR to a folder you can write to",
            ) from error
        try:
            database.execute("PRAGMA journal_mode=WAL")
            yield database
        except sqlite3.Error as error:
            raise TrainingMonitorError(
                f"the state file {self.path} cannot be used: {error}",
                hint="look at the disk's free space, or move the file away",
            ) from error
        finally:
            database.close()

    def save_run(self, key: str, state: dict[str, Any], *, finished: bool) -> None:
        """Keep the state of a run; it is on disk when this returns."""
        with self._open() as database:
            database.execute(
                "INSERT INTO runs VALUES (?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET "
                "state = excluded.state, finished = excluded.finished, updated_at = excluded.updated_at",
                (key, json.dumps(state), finished, time.time()),
            )

    def load_run(self, key: str) -> dict[str, Any] | None:
        """The state of an unfinished run."""
        with self._open() as database:
            row = database.execute("SELECT state FROM runs WHERE key = ? AND NOT finished", (key,)).fetchone()
        try:
            return json.loads(row[0]) if row else None
        except ValueError as error:
            raise TrainingMonitorError(
                f"the state file {self.path} holds something else than the state of {key}: {error}",
                hint="move the file away",
            ) from error

    @contextmanager
    def hold(self, key: str) -> Iterator[None]:
        """Be the only supervisor of `key` on this machine. Raises AlreadySupervised, naming the holder."""
        with self._open_lock(key) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise AlreadySupervised(
                    f"{key} is already supervised here by process {lock.read() or '?'}",
                    hint="stop that one first, or give this job another name",
                ) from error
            lock.truncate()
            lock.write(str(os.getpid()))
            lock.flush()
            yield

    def _open_lock(self, key: str) -> IO[str]:
        path = os.path.join(self.folder, "locks", hashlib.sha256(key.encode()).hexdigest()[:32])
        try:
            return open(os.open(path, os.O_CREAT | os.O_RDWR, 0o600), "r+")
        except OSError as error:
            raise TrainingMonitorError(
                f"the lock file {path} cannot be opened: {error.strerror}",
                hint="set TRAINING_MONITOR_STATE_DIR to a folder you can write to",
            ) from error


def _migrate(database: sqlite3.Connection) -> None:
    """Bring the file to the newest layout, each step in a transaction of its own."""
    while True:
        database.execute("BEGIN IMMEDIATE")
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if version >= len(_MIGRATIONS):
            database.execute("COMMIT")
            return
        database.execute(_MIGRATIONS[version])
        database.execute(f"PRAGMA user_version = {version + 1}")
        database.execute("COMMIT")
