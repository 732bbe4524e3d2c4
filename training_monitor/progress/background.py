"""The background thread of a run: it alone touches files, so that a training never waits for a disk.

Whoever ends the run writes the last document itself, under the same lock, so that no status is lost.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from training_monitor.clock import Clock
from training_monitor.errors import ParseError
from training_monitor.parse.progress_file import parse_control_file, parse_progress_file
from training_monitor.policy.run_values import RUNNING, OwnResources
from training_monitor.progress.files import (
    SUFFIX,
    RunFiles,
    log_paths,
    read_file,
    read_text,
    run_files,
    write_atomically,
)
from training_monitor.progress.outputs import Outputs, output_paths
from training_monitor.progress.own_resources import INTERVAL, Busiest, OwnResourceReader
from training_monitor.progress.processes import is_alive
from training_monitor.progress.procfs import identify
from training_monitor.progress.run_record import RunRecord
from training_monitor.targets.transport import Transport

HEARTBEAT, CONTROL_INTERVAL = 2.0, 1.0
_LAST_TRIES, _BETWEEN_TRIES = 5, 0.2
_JOIN_LIMIT, _START_LIMIT = 5.0, 5.0
_LOCK_LIMIT = 20.0  # seconds that an ending script waits for a write that is under way: a disk may be that slow
_MOST_WARNINGS = 50
_THREAD = "training_monitor writes "


class Warnings:
    """Tells each kind of trouble once, and raises nothing, also where warnings are errors."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def warn(self, kind: str, message: str, stacklevel: int = 2) -> None:
        if kind in self._told or len(self._told) >= _MOST_WARNINGS:
            return
        self._told.add(kind)
        with suppress(Exception):
            warnings.warn(f"training_monitor: {message}", RuntimeWarning, stacklevel=stacklevel + 1)


class Background:
    """Writes a record until it has ended."""

    def __init__(
        self,
        record: RunRecord,
        files: RunFiles,
        metadata: dict[str, object],
        *,
        interval: float,
        tee_outputs: bool,
        troubles: Warnings,
        clock: Clock,
        transport: Transport | None,
    ) -> None:
        self.files = files
        self._record, self._metadata = record, metadata
        self._interval = min(max(0.01, interval), HEARTBEAT) if isinstance(interval, int | float) else 0.25
        self._troubles, self._clock = troubles, clock
        self._tee_outputs, self._outputs = tee_outputs, Outputs(("", ""), self._tell_gone)
        self._resources = OwnResourceReader(transport=transport, clock=clock)
        self._own: tuple[OwnResources, Busiest] = OwnResources(), []
        self._closing, self._started = threading.Event(), threading.Event()
        self._writing = threading.RLock()  # a signal may interrupt its holder
        self._thread: threading.Thread | None = None
        self._written_version, self._is_final = -1, False
        self._next_beat = self._next_look = self._next_control = clock.monotonic()
        self._control_state: tuple[int, int, int] | None = None
        self._garbled_state: tuple[int, int, int] | None = None
        self._is_first_control = True

    def start(self) -> None:
        """Begin the thread. With tees this waits until they stand, so that the first lines are in the files."""
        try:
            self._thread = threading.Thread(target=self._run, name=_THREAD + self.files.progress_path, daemon=True)
            self._thread.start()
        except RuntimeError as error:  # no thread left, or the interpreter ends
            self._thread = None
            self._troubles.warn("thread", f"progress is not written: {error}")
            return
        if self._tee_outputs:
            self._started.wait(_START_LIMIT)

    def finish(self) -> None:
        """End the other thread, which converts the last metrics, and write the last document in this one.

        A GPU that hangs costs these metrics, but not the status. What cannot be written now is tried again at exit.
        """
        self._closing.set()
        if self._thread is None:
            self._record.take_metrics()
        elif self._thread is not threading.current_thread():
            self._started.wait(_START_LIMIT)
            self._thread.join(_JOIN_LIMIT)
        atexit.unregister(self.finish)
        self._write_last()
        if not self._is_final:
            atexit.register(self.finish)

    def _write_last(self) -> None:
        if not self._writing.acquire(timeout=_LOCK_LIMIT):
            self._troubles.warn("disk", f"the last status was not written: {self.files.progress_path!r} hangs")
            return
        try:
            for left in reversed(range(_LAST_TRIES)):
                if self._write():
                    self._is_final = True
                    break
                if left:
                    self._clock.sleep(_BETWEEN_TRIES)
        finally:
            self._writing.release()

    def stop_copying(self) -> None:
        """End the tees, which otherwise last until the process exits."""
        self._outputs.stop()

    @property
    def is_final(self) -> bool:
        """Whether the last status is in the file."""
        return self._is_final

    # ------------------------------------------------------------ in the thread

    def _run(self) -> None:
        self._guarded(self._prepare)
        self._started.set()
        while True:
            self._guarded(self._turn)
            if self._clock.wait(self._closing, self._interval):
                break
        self._guarded(self._record.take_metrics)

    def _guarded(self, act: Callable[[], object]) -> None:
        try:
            act()
        except Exception as error:  # a training is never disturbed by its monitor
            self._troubles.warn(type(error).__name__, f"the monitor failed: {type(error).__name__}: {error}")

    def _prepare(self) -> None:
        """Find out who we are and which files are ours, and begin the tees."""
        self._choose_files()
        process = identify()
        self._metadata |= {
            "pid": process.pid,
            "start_ticks": process.start_ticks,
            "hostname": process.hostname,
            "boot_id": process.boot_id,
            "pid_namespace": process.pid_namespace,
        }
        stdout, stderr = output_paths()
        if self._tee_outputs:
            outputs = Outputs(log_paths(self.files), self._tell_gone)
            try:
                outputs.start()
                self._outputs, (stdout, stderr) = outputs, outputs.paths
            except OSError as error:
                self._troubles.warn("tee", f"stdout and stderr are not copied to {outputs.paths[0]!r}: {error}")
        self._metadata |= {"stdout_path": stdout, "stderr_path": stderr}

    def _choose_files(self) -> None:
        """Take another name where a run that is alive, or another monitor of this process, writes this one's files."""
        wanted, pid, number = self.files, os.getpid(), 1
        while self._is_taken(self.files):
            suffix = f"_{pid}" if number == 1 else f"_{pid}_{number}"
            self.files, number = _renamed(wanted, suffix), number + 1
        if self.files != wanted:
            message = f"{wanted.progress_path!r} belongs to a run that is alive; this one writes"
            self._troubles.warn("taken", f"{message} {self.files.progress_path!r}")
            if self._metadata.get("run_name") == wanted.name:
                self._metadata["run_name"] = self.files.name

    def _is_taken(self, files: RunFiles) -> bool:
        for thread in threading.enumerate():
            if thread is not self._thread and thread.name == _THREAD + files.progress_path:
                return True
        if self._thread:
            self._thread.name = _THREAD + files.progress_path
        try:
            text = read_text(files.progress_path)
            run = parse_progress_file(
                text, name=files.name, path=files.progress_path, control_path=files.control_path, folder=files.folder
            )
        except (OSError, ParseError):  # none there, or none that says whose it is
            return False
        process = run.process
        return bool(run.status == RUNNING and process and process.pid != os.getpid() and is_alive(process))

    def _tell_gone(self) -> None:
        self._troubles.warn("tee", "the copy of stdout or stderr ended: its tee is gone")

    def _turn(self) -> None:
        now = self._clock.monotonic()
        if now >= self._next_look:
            self._next_look = now + INTERVAL
            self._own = self._resources.look()
            self._find_wandb()
        if now >= self._next_control:
            self._next_control = now + CONTROL_INTERVAL
            self._look_at_control()
        if not self._record.take_metrics():
            self._troubles.warn("metrics", "only the first 200 metrics are kept")
        with self._record.lock:
            self._record.observe()
        if self._record.version != self._written_version or now >= self._next_beat:
            with self._writing:
                if self._record.status == RUNNING:  # else whoever ended it writes
                    self._write()

    def _write(self) -> bool:
        """Replace the file by what is known now, its folder made again where it is gone; False when that failed."""
        with self._record.lock:
            self._record.observe()
            version = self._record.version
            document = self._record.document(self._metadata, *self._own)
        text = json.dumps(document)  # in ASCII: a lone surrogate is no trouble
        path = self.files.progress_path
        self._next_beat = self._clock.monotonic() + HEARTBEAT
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write_atomically(path, text)
        except OSError as error:
            self._troubles.warn("disk", f"{path!r} cannot be written ({error.strerror}); it is tried again and again")
            return False
        self._written_version = version
        return True

    def _look_at_control(self) -> None:
        """Read the control file when it is another one than before; edits older than this run are only answered."""
        path = self.files.control_path
        try:
            if _state(os.stat(path)) == self._control_state:
                return
            text, read = read_file(path)
            edits = parse_control_file(text)
        except (FileNotFoundError, NotADirectoryError):
            self._is_first_control = False
            return
        except ParseError as error:
            if _state(read) == self._garbled_state:  # else an editor may be amid writing it
                self._control_state = self._garbled_state
                self._troubles.warn("control", f"{path!r} cannot be read: {error}")
            self._garbled_state = _state(read)
            return
        except OSError as error:
            self._troubles.warn("control", f"{path!r} cannot be read: {error}")
            return
        self._control_state = _state(read)
        is_old = self._is_first_control and read.st_mtime < self._record.started_at
        self._is_first_control = False
        with self._record.lock:
            if self._record.variables.take(edits, of_earlier_run=is_old):
                self._record.needs_training_thread = True
            self._record.version += 1

    def _find_wandb(self) -> None:
        """The name and address of the run in wandb, where the script uses it; it is never imported for that."""
        run = getattr(sys.modules.get("wandb"), "run", None)
        for key, attribute in (("wandb_url", "url"), ("wandb_run_name", "name")):
            found = getattr(run, attribute, None) if run is not None else None
            if isinstance(found, str) and not self._metadata.get(key):
                self._metadata[key] = found[:1000]
                self._record.version += 1


def _state(read: os.stat_result) -> tuple[int, int, int]:
    return read.st_mtime_ns, read.st_size, read.st_ino


def _renamed(files: RunFiles, suffix: str) -> RunFiles:
    if files.folder:
        return replace(run_files(files.folder + suffix), name=files.name + suffix)
    return run_files(files.progress_path.removesuffix(SUFFIX) + suffix + SUFFIX)
