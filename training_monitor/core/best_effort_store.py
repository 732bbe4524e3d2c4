"""The state file as a help: looks, verdicts and notices go on where it cannot be used.

Whatever starts, rents or claims something opens a `Store` instead, which raises: nothing is done without a record.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

from training_monitor.core.errors import StateError
from training_monitor.core.store import STATE_FILE, Store, copy_in_memory
from training_monitor.core.store_files import tell

if TYPE_CHECKING:
    from training_monitor.core.store import Connection

RETRY_SECONDS = 60.0  # how long the disk is left alone after a failure


def _or_in_memory(method: Callable[..., Any]) -> Callable[..., Any]:
    """Make a method of `Store` leave the disk where that fails, and do its work in memory."""

    @wraps(method)
    def call(self: BestEffortStore, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except StateError as error:
            self.leave_disk(error)
            return method(self, *args, **kwargs)

    return call


class BestEffortStore(Store):
    """A store that continues in memory, with a copy of what can be read, where its file cannot be used.

    Every minute it tries the disk again; the runs that were saved in between are written there then. `problem` is why
    it is in memory, which is logged once. A file that others could have changed is not read.
    """

    busy_seconds = 2.0  # a look does not wait for long

    def __init__(self, folder: str | None = None, *, file: str = STATE_FILE) -> None:
        self._memory: Connection | None = None
        self._left_at, self._retry_at, self._lock = 0.0, 0.0, threading.RLock()
        super().__init__(folder, file=file)

    def prepare(self) -> None:
        try:
            super().prepare()
        except StateError as error:
            self.leave_disk(error)

    @contextmanager
    def _open(self) -> Iterator[Connection]:
        with self._lock:
            if self._memory and time.monotonic() >= self._retry_at:
                self._return_to_disk(self._memory)
            if self._memory:
                yield self._memory
                return
        with super()._open() as database:
            yield database

    @contextmanager
    def hold(self, key: str) -> Iterator[None]:
        """Be the only one, as far as a lock file can be had. Raises AlreadySupervised, naming the holder."""
        with ExitStack() as stack:
            try:
                stack.enter_context(super().hold(key))
            except StateError as error:
                self.leave_disk(error)
            yield

    def leave_disk(self, error: StateError) -> None:
        """Continue in memory, and log why."""
        with self._lock:
            if self._memory is None:
                self._memory, is_copy = copy_in_memory(self.folder, self.path)
                self.is_blank, self._left_at = not is_copy, time.time()
                tell(f"could not be saved: {error.what}")
            self.problem, self._retry_at = error, time.monotonic() + RETRY_SECONDS

    def _return_to_disk(self, memory: Connection) -> None:
        """Write the runs that were saved in memory to the file, if it can be used again."""
        saved = memory.execute("SELECT * FROM runs WHERE updated_at >= ?", (self._left_at,)).fetchall()
        self._memory = None
        try:
            super().prepare()
            with self.transaction() as execute:
                execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?)", each=saved)
            self.problem, self.is_blank = None, False
        except StateError:
            self._memory, self._retry_at = memory, time.monotonic() + RETRY_SECONDS


for _name in (
    "save_run load_run forget_run add_look keep_looks looks add_notice has_notice save_delivery mark_notice"
    " pending_notices recent_notices"
).split():
    setattr(BestEffortStore, _name, _or_in_memory(getattr(Store, _name)))
