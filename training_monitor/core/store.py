"""State that survives the supervisor: one sqlite file for all rooms, and one lock file per supervised job.

The lock is flock(2): the kernel releases it when its holder dies, however it dies.

A folder or file that others can write to is refused, and so are links in place of files, and a file of a later version.
A damaged file is renamed to NAME.corrupt-N, and the rows that can still be read are kept in a new one.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import IO, TYPE_CHECKING, Any

from training_monitor.core.errors import AlreadySupervised, StateError, TrainingMonitorError
from training_monitor.core.records import Value, format_record, read_record, read_row
from training_monitor.core.settings import state_dir
from training_monitor.core.store_files import (
    ELSEWHERE,
    check_file,
    check_folder,
    check_parents,
    check_state_file,
    copy_rows,
    explain_failure,
    make_private,
    move_aside,
    names_aside,
    tell,
)
from training_monitor.core.values import Delivery, Notice

if TYPE_CHECKING:
    import sqlite3

    Connection = sqlite3.Connection

_MIGRATIONS = (
    """CREATE TABLE runs (
        key TEXT PRIMARY KEY,           -- target and job name
        state TEXT NOT NULL,            -- JSON
        finished INTEGER NOT NULL,      -- 1 once it has a result
        updated_at REAL NOT NULL        -- UTC epoch seconds
    )""",
    """CREATE TABLE notices (
        number INTEGER PRIMARY KEY,     -- in the order in which they were added
        user TEXT NOT NULL,             -- whom to tell; empty: whoever the channels tell
        job_id TEXT,
        key TEXT UNIQUE,                -- user, job, kind and generation; NULL for a message, which may be repeated
        notice TEXT NOT NULL,           -- JSON
        state TEXT NOT NULL,            -- pending, sent or failed (nobody tries any more)
        channel TEXT,
        attempts INTEGER NOT NULL DEFAULT 0,
        error TEXT,
        created_at REAL NOT NULL,       -- UTC epoch seconds
        changed_at REAL NOT NULL        -- when its state was last written
    )""",
    """CREATE TABLE credit_movements (
        number INTEGER PRIMARY KEY,     -- in the order in which they were made
        account TEXT NOT NULL,
        kind TEXT NOT NULL,             -- deposit, withdraw, reserve, settle or refund
        amount INTEGER NOT NULL,        -- millionths of a dollar, as it changes the balance
        job_id TEXT,
        reason TEXT NOT NULL,
        created_at REAL NOT NULL,       -- UTC epoch seconds
        UNIQUE (account, kind, job_id)  -- each of them once for a job; a deposit may be one of many
    )""",
    """CREATE TABLE training_jobs (
        number INTEGER PRIMARY KEY,     -- in the order in which they were submitted
        id TEXT NOT NULL UNIQUE,
        state TEXT NOT NULL,
        request TEXT NOT NULL,          -- JSON
        work TEXT NOT NULL,             -- JSON
        worker TEXT,                    -- who holds it; NULL: nobody
        lease_until REAL,               -- for so long, unless it is renewed; UTC epoch seconds as all times
        created_at REAL NOT NULL,
        changed_at REAL NOT NULL,       -- when it came into its state
        progressed_at REAL NOT NULL,    -- when something was last done for it
        to_end TEXT                     -- JSON: how it is to be ended and why; NULL: nobody asked for that
    )""",
    """CREATE TABLE history_members (
        number INTEGER PRIMARY KEY,
        key TEXT NOT NULL UNIQUE,
        first REAL NOT NULL,            -- when it was first and last seen, UTC epoch seconds as all times
        last REAL NOT NULL
    )""",
    """CREATE TABLE history_samples (     -- of the last hours
        shard INTEGER NOT NULL,         -- some members together: what is added at a time lies on few pages
        timestamp REAL NOT NULL,
        member INTEGER NOT NULL,
        sample TEXT NOT NULL,           -- a row of fleet/history.py
        PRIMARY KEY (shard, timestamp, member)
    ) WITHOUT ROWID""",
    """CREATE TABLE history_chunks (
        number INTEGER PRIMARY KEY,
        member INTEGER NOT NULL,
        kind INTEGER NOT NULL,          -- 0 all samples, 1 thinned, 2 cannot be read
        first REAL NOT NULL,            -- the times of its samples; they lie in one hour, of thinned ones in one day
        last REAL NOT NULL,
        samples INTEGER NOT NULL,       -- how many
        packed BLOB NOT NULL            -- a chunk of fleet/history.py
    )""",
    "CREATE INDEX history_chunks_of_members ON history_chunks (member, kind, first, last, samples)",
    """CREATE TABLE looks (               -- what was seen of a training, by whichever command
        key TEXT NOT NULL,              -- target and training
        timestamp REAL NOT NULL,        -- UTC epoch seconds
        observation TEXT NOT NULL,      -- JSON
        PRIMARY KEY (key, timestamp)
    ) WITHOUT ROWID""",
)
Execute = Callable[..., list[tuple[Any, ...]]]
STATE_FILE = "training_monitor.db"
PLAIN_MESSAGE = "message"  # the kind of a notice that is only a text
MOST_NOTICES = 1000
# Looks kept per training, and in total; the least recently seen trainings go first. About 300 bytes a look: a few MB.
MOST_LOOKS, ALL_LOOKS = 240, 12_000
_BUSY = 5  # of sqlite: another process writes
TURN_SECONDS = 0.3  # how long sqlite waits at a time, during which Python handles no signal
_NOT_TRIED = Delivery("none", False)


@dataclass(frozen=True, slots=True)
class KeptNotice:
    """A notice and its delivery. state: pending | sent | failed; times are UTC epoch seconds."""

    number: int
    user: str
    notice: Notice
    state: str
    channel: str | None
    attempts: int
    error: str | None
    created_at: float
    changed_at: float


class Store:
    """The state file of this machine. Each call opens a short connection, so any thread and process can use a Store."""

    problem: StateError | None = None  # why nothing is kept on disk, see BestEffortStore
    is_blank = False  # whether nothing is known of what was kept on disk
    busy_seconds = 30.0  # how long to wait for other writers

    def __init__(self, folder: str | None = None, *, file: str = STATE_FILE) -> None:
        self.folder = folder or state_dir()
        self.path = os.path.join(self.folder, file)
        self.prepare()

    def prepare(self) -> None:
        """Create the folder and its file if they are not there. Raises StateError."""
        make_private(self.folder)
        check_parents(self.folder)
        make_private(os.path.join(self.folder, "locks"))
        with self._open() as database:
            _migrate(database, self.busy_seconds)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        import sqlite3

        database, number = self._connect()
        try:
            yield database
        except sqlite3.Error as error:
            if not _is_damage(error):
                raise explain_failure(self.path, "used", error) from error
            database.close()
            raise StateError(
                self._set_aside(number, error), hint="run the command again: it will use the new state file"
            ) from error
        finally:
            database.close()

    def _connect(self, *, is_new: bool = False) -> tuple[sqlite3.Connection, int]:
        """Return a connection to the file, and its inode; a damaged file is set aside first."""
        import sqlite3

        try:
            with suppress(FileExistsError):  # closing one that exists would drop the locks of this process on it
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            number = check_state_file(self.path)
            database = sqlite3.connect(self.path, timeout=TURN_SECONDS, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise explain_failure(self.path, "opened", error) from error
        try:
            _with_patience(partial(self._begin, database), self.busy_seconds)
            return database, number
        except sqlite3.Error as error:
            database.close()
            if is_new or not _is_damage(error):
                raise explain_failure(self.path, "used", error) from error
            tell(self._set_aside(number, error))
            return self._connect(is_new=True)
        except BaseException:
            database.close()
            raise

    def _begin(self, database: sqlite3.Connection) -> None:
        """Read the schema, and prepare for writing. Raises StateError for a file of a later version."""
        _see_version(database, self.path)
        database.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
        database.execute("PRAGMA journal_mode=WAL")

    def _set_aside(self, number: int, error: Exception) -> str:
        """Rename the damaged file of this inode, begin a new one, and return what was done."""
        with self._open_lock("set aside") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                if os.lstat(self.path).st_ino != number:
                    return f"the state file {self.path} was damaged, and another process has set it aside"
                new, rescued = self._rescue()
                kept = move_aside(self.path)
                os.rename(new, self.path)
            except OSError as failure:
                raise explain_failure(self.path, "moved aside (it is damaged)", failure) from error
            finally:
                fcntl.flock(lock, fcntl.LOCK_UN)
        told = f"the state file {self.path} was damaged ({error}): it was renamed to {kept}"
        return f"{told}, and {rescued} of its rows were kept"

    def _rescue(self) -> tuple[str, int]:
        """Copy what can be read of the damaged file to a new one beside it; return its name and the number of rows."""
        import sqlite3

        name = f"{self.path}.new"
        with suppress(FileNotFoundError):
            os.unlink(name)
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        new, old = sqlite3.connect(name, isolation_level=None), _open_to_read(self.path)
        try:
            _migrate(new)
            new.execute("BEGIN IMMEDIATE")
            copy_rows(old, new)
            new.execute("COMMIT")
            return name, new.total_changes
        except sqlite3.Error as error:
            raise explain_failure(self.path, "rewritten", error) from error
        finally:
            new.close()
            old.close()

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[Execute]:
        """Yield a function that runs a statement and returns its rows. All of its statements are committed, or none.

        If `each` is given, the function runs the statement once for each of these tuples of values, and returns
        nothing. Other writers wait. A transaction that is not `durable` is faster, but may be lost in a power failure.
        """

        def execute(
            statement: str, values: Sequence[object] = (), *, each: Iterable[Sequence[object]] | None = None
        ) -> list[tuple[Any, ...]]:
            if each is None:
                return database.execute(statement, values).fetchall()
            database.executemany(statement, each)
            return []

        with self._open() as database:
            if not durable:
                database.execute("PRAGMA synchronous=NORMAL")
            _with_patience(partial(database.execute, "BEGIN IMMEDIATE"), self.busy_seconds)
            try:
                yield execute
            except BaseException:
                if database.in_transaction:  # sqlite may have ended it: its error is the one to tell
                    database.execute("ROLLBACK")
                raise
            database.execute("COMMIT")

    def save_run(self, key: str, state: object, *, finished: bool) -> None:
        """Save the state of a run (a dataclass or a dict). When this method returns, the state is on disk."""
        with self.transaction() as execute:
            execute(
                "INSERT INTO runs VALUES (?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET "
                "state = excluded.state, finished = excluded.finished, updated_at = excluded.updated_at",
                (key, format_record(state), finished, time.time()),
            )

    def forget_run(self, key: str) -> None:
        """Delete the state of a run, if there is one."""
        with self.transaction() as execute:
            execute("DELETE FROM runs WHERE key = ?", (key,))

    def load_run(
        self, key: str, kind: type[Value], *, finished: bool = False, drop_unknown: bool = False
    ) -> Value | None:
        """Return the state of an unfinished or finished run as a `kind` (see `decode`); None if there is no such state.

        If the stored state is truncated, it is kept under another key, and None is returned.

        Raises:
            StateError: the stored state is complete, but is the state of something else.
            TrainingMonitorError: a later version wrote the state.
        """
        with self._open() as database:
            row = database.execute("SELECT state FROM runs WHERE key = ? AND finished = ?", (key, finished)).fetchone()
        if row is None:
            return None
        try:
            return read_record(kind, row[0], name=f"the state of {key}", drop_unknown=drop_unknown)
        except ValueError as error:
            if _is_json(row[0]):
                raise StateError(
                    f"the state file {self.path} does not contain a valid state of {key}: {error}",
                    hint="install the version that wrote it, or move the file away",
                ) from error
            self._set_run_aside(key, row[0], error)
            return None

    def _set_run_aside(self, key: str, damaged: object, error: Exception) -> None:
        with self.transaction() as execute:
            for name in names_aside(key):
                if not execute("SELECT 1 FROM runs WHERE key = ?", (name,)):
                    break
            execute("UPDATE runs SET key = ?, finished = 1 WHERE key = ? AND state IS ?", (name, key, damaged))
        tell(f"the state of {key} in {self.path} is damaged ({error}): it was renamed to {name}, and a new one begins")

    def add_notice(self, user: str, notice: Notice, *, now: float) -> bool:
        """Queue a notice. When this method returns, the notice is on disk. Return False for a duplicate."""
        with self.transaction() as execute:
            return _insert(execute, user, notice, "pending", now)

    def has_notice(self, user: str, notice: Notice) -> bool:
        """Return whether the same notice is pending or has been sent for this user."""
        with self._open() as database:
            asked = "SELECT 1 FROM notices WHERE key = ? AND state IN ('pending', 'sent')"
            return database.execute(asked, (_notice_key(user, notice),)).fetchone() is not None

    def save_delivery(self, user: str, notice: Notice, delivery: Delivery, *, now: float) -> None:
        """Save a notice that was delivered immediately, or failed. This replaces an earlier record of its failure."""
        with self.transaction() as execute:
            execute("DELETE FROM notices WHERE key = ? AND state = 'failed'", (_notice_key(user, notice),))
            _insert(execute, user, notice, "sent" if delivery.success else "failed", now, delivery)

    def mark_notice(self, number: int, state: str, delivery: Delivery, *, now: float) -> None:
        """Record a delivery attempt with its `state`, channel and error, and add its `attempts` to the count."""
        with self.transaction() as execute:
            execute(
                "UPDATE notices SET state = ?, channel = ?, attempts = attempts + ?, error = ?, changed_at = ? "
                "WHERE number = ?",
                (state, delivery.channel, delivery.attempts, delivery.error, now, number),
            )

    def pending_notices(self, user: str) -> list[KeptNotice]:
        """Return the pending notices of a user, oldest first."""
        return self._notices("WHERE user = ? AND state = 'pending' ORDER BY number", (user,))

    def recent_notices(self, job_id: str | None = None, limit: int = 50) -> list[KeptNotice]:
        """Return the most recent notices of one job, or of all jobs, newest first."""
        chosen = "WHERE coalesce(?, job_id) IS job_id ORDER BY number DESC LIMIT ?"
        return self._notices(chosen, (storable(job_id), limit))

    def _notices(self, chosen: str, values: tuple[object, ...]) -> list[KeptNotice]:
        columns = "number, user, notice, state, channel, attempts, error, created_at, changed_at"
        with self._open() as database:
            rows = database.execute(f"SELECT {columns} FROM notices {chosen}", values).fetchall()
        found = list[KeptNotice]()
        for row in rows:
            try:
                found.append(read_row(KeptNotice, row, ["notice"], name=f"notice {row[0]} in {self.path}"))
            except ValueError as error:
                self._set_notice_aside(row[0], row[3], error)
            except TrainingMonitorError as error:  # of a later version
                tell(str(error))
        return found

    def _set_notice_aside(self, number: int, state: object, error: Exception) -> None:
        if state != "damaged":
            with self.transaction() as execute:
                execute("UPDATE notices SET state = 'damaged' WHERE number = ?", (number,))
            tell(f"notice {number} in {self.path} is damaged and was skipped: {error}")

    def add_look(self, key: str, timestamp: float, observation: object, *, replaces: float | None = None) -> int:
        """Save a look at a training, replacing the look at `replaces`.

        Return the number of looks that the training has. Looks with the same or a later timestamp are deleted, because
        the clock must have been set back.
        """
        name = storable(key)
        with self.transaction(durable=False) as execute:
            gone = (name, timestamp, replaces)
            execute("DELETE FROM looks WHERE key = ? AND (timestamp >= ? OR timestamp = ?)", gone)
            execute("INSERT INTO looks VALUES (?, ?, ?)", (name, timestamp, format_record(observation)))
            [[count]] = execute("SELECT count(*) FROM looks WHERE key = ?", (name,))
            if count in (1, MOST_LOOKS):
                _forget_looks(execute)
            return int(count)

    def keep_looks(self, key: str, timestamps: Sequence[float]) -> None:
        """Delete all looks at a training up to the last of `timestamps`, except the looks at these times."""
        name, kept = storable(key), ", ".join("?" * len(timestamps))
        with self.transaction(durable=False) as execute:
            execute(
                f"DELETE FROM looks WHERE key = ? AND timestamp <= ? AND timestamp NOT IN ({kept})",
                (name, max(timestamps), *timestamps),
            )

    def looks(self, key: str) -> list[str]:
        """Return the looks at a training as JSON, oldest first."""
        with self._open() as database:
            asked = "SELECT observation FROM looks WHERE key = ? ORDER BY timestamp"
            rows = database.execute(asked, (storable(key),)).fetchall()
        return [text for (text,) in rows]

    @contextmanager
    def hold(self, key: str) -> Iterator[None]:
        """Act as the only supervisor of `key` on this machine. Raises AlreadySupervised with the name of the holder."""
        with self._open_lock(key) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise AlreadySupervised(
                    f"{key} is already supervised on this machine by process {lock.read() or '?'}",
                    hint="stop that supervisor first, or give this job another name",
                ) from error
            try:
                with suppress(OSError):  # on a full disk, only the holder's pid is missing
                    os.ftruncate(lock.fileno(), 0)
                    os.write(lock.fileno(), str(os.getpid()).encode())
                yield
            finally:
                fcntl.flock(lock, fcntl.LOCK_UN)  # closing is not enough: a forked child may hold a copy until its exec

    def forget_lock(self, key: str) -> None:
        """Delete the lock file of a key that is no longer used, unless a process holds the lock."""
        with self._open_lock(key) as lock, suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(self._lock_path(key))

    def _lock_path(self, key: str) -> str:
        import hashlib

        return os.path.join(self.folder, "locks", hashlib.sha256(key.encode()).hexdigest()[:32])

    def _open_lock(self, key: str) -> IO[str]:
        path = self._lock_path(key)
        try:
            number = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        except OSError as error:
            why = "it is a link" if error.errno == errno.ELOOP else error.strerror
            raise StateError(f"the lock file {path} cannot be opened: {why}", hint=ELSEWHERE) from error
        try:
            check_file(path, os.fstat(number), names=1)
        except StateError:
            os.close(number)
            raise
        return open(number, "r+")


def read_column(statement: str) -> list[str]:
    """Return the texts in the first column that a statement selects from the state file, without changing it.

    An empty list if there is no file, if others may have written it, or if it cannot be read at once.
    """
    import sqlite3

    path = os.path.join(state_dir(), STATE_FILE)
    try:
        check_state_file(path)
        database = _open_to_read(path, timeout=0.1)
    except (OSError, StateError, sqlite3.Error):
        return []
    try:
        return [text for (text, *_) in database.execute(statement) if isinstance(text, str)]
    except sqlite3.Error:
        return []
    finally:
        database.close()


def copy_in_memory(folder: str, path: str) -> tuple[Connection, bool]:
    """Return a database in memory, and whether it is a copy of the file, without the notices that still wait there.

    Nothing is read of a file that others could have changed, or of a later version.
    """
    import sqlite3

    connect = partial(sqlite3.connect, ":memory:", isolation_level=None, check_same_thread=False)
    memory: Connection = connect()
    is_copy = True
    try:
        check_folder(folder)
        check_state_file(path)
        with closing(_open_to_read(path, timeout=0.1)) as file:
            _see_version(file, path)
            file.backup(memory)
        memory.execute("DELETE FROM notices WHERE state = 'pending'")
    except (OSError, StateError, sqlite3.Error):
        memory.close()
        memory, is_copy = connect(), False
    _migrate(memory)
    return memory, is_copy


def _open_to_read(path: str, timeout: float = 5.0) -> sqlite3.Connection:
    """Open a state file to read it; nothing is written beside it if it has no journal."""
    import sqlite3
    from urllib.parse import quote

    is_whole = not os.path.exists(f"{path}-wal") or os.path.getsize(f"{path}-wal") == 0
    address = f"file:{quote(path)}?mode=ro{'&immutable=1' if is_whole else ''}"
    return sqlite3.connect(address, uri=True, timeout=timeout)


def _see_version(database: sqlite3.Connection, path: str) -> None:
    """Raise StateError for a file of a later version."""
    [(version,)] = database.execute("PRAGMA user_version")
    if not 0 <= version <= len(_MIGRATIONS):
        raise StateError(
            f"a later version of training_monitor wrote the state file {path}"
            f" (layout {version}, this version supports {len(_MIGRATIONS)}); nothing was changed",
            hint="update this package, or set TRAINING_MONITOR_STATE_DIR to another folder",
        )


def _is_damage(error: sqlite3.Error) -> bool:
    """Return whether a file is no database or a malformed one: all other errors have classes of their own."""
    import sqlite3

    return type(error) is sqlite3.DatabaseError


def _is_json(text: str) -> bool:
    with suppress(ValueError, TypeError, RecursionError):
        json.loads(text)
        return True
    return False


def _insert(
    execute: Execute,
    user: str,
    notice: Notice,
    state: str,
    now: float,
    delivery: Delivery = _NOT_TRIED,
) -> bool:
    """Add a notice unless it is a duplicate, and delete the oldest finished ones. Return whether it was added."""
    told = (None if delivery.channel == "none" else delivery.channel, delivery.attempts, delivery.error)
    execute(
        "INSERT OR IGNORE INTO notices (user, job_id, key, notice, state, created_at, changed_at, "
        "channel, attempts, error) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (user, storable(notice.job_id), _notice_key(user, notice), format_record(notice), state, now, now, *told),
    )
    [[added]] = execute("SELECT changes()")
    execute(
        "DELETE FROM notices WHERE state != 'pending' AND number <= "
        "(SELECT number FROM notices ORDER BY number DESC LIMIT 1 OFFSET ?)",
        (MOST_NOTICES,),
    )
    return bool(added)


def storable(text: str | None) -> str | None:
    """Escape a name from a file name that is not UTF-8, which sqlite refuses."""
    return None if text is None else text.encode("utf-8", "backslashreplace").decode()


def _notice_key(user: str, notice: Notice) -> str | None:
    if notice.kind == PLAIN_MESSAGE:
        return None
    return json.dumps([user, notice.job_id, notice.kind, notice.generation])


def _forget_looks(execute: Execute) -> None:
    """Delete the looks of the least recently seen trainings until at most ALL_LOOKS are left."""
    [[total]] = execute("SELECT count(*) FROM looks")
    for key, count in execute("SELECT key, count(*) FROM looks GROUP BY key ORDER BY max(timestamp)"):
        if total <= ALL_LOOKS:
            return
        execute("DELETE FROM looks WHERE key = ?", (key,))
        total -= count


def _with_patience(act: Callable[[], object], busy_seconds: float) -> None:
    """Do what waits for other writers, in turns between which Python handles signals. Raises sqlite3.Error."""
    import sqlite3

    until = time.monotonic() + busy_seconds
    while True:
        try:
            act()
            return
        except sqlite3.OperationalError as error:  # Python 3.10 has no code: it tries again whatever the cause
            if getattr(error, "sqlite_errorcode", _BUSY) & 0xFF != _BUSY or time.monotonic() >= until:
                raise


def _migrate(database: sqlite3.Connection, busy_seconds: float = 0.0) -> None:
    """Bring the file to the newest schema, each step in its own transaction."""
    while True:
        _with_patience(partial(database.execute, "BEGIN IMMEDIATE"), busy_seconds)
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if version >= len(_MIGRATIONS):
            database.execute("COMMIT")
            return
        database.execute(_MIGRATIONS[version])
        database.execute(f"PRAGMA user_version = {version + 1}")
        database.execute("COMMIT")
