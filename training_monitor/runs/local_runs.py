"""Read and change runs in a folder of this machine: edits, signals, deletion."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.read_fence import check_here, leads_out
from training_monitor.core.units import format_duration
from training_monitor.runs.files import (
    KnownRun,
    RunFiles,
    list_run_files,
    measure_run,
    open_regular,
    paths_of_run,
    paths_to_run,
    read_file,
    read_run,
    read_text,
    remove_left_beside,
    unread_run,
    write_atomically,
)
from training_monitor.runs.progress_file import Edit, check_edits, merge_edits, read_edits
from training_monitor.runs.resources import GpuReader, with_gpus
from training_monitor.runs.rows import check_same_attempt
from training_monitor.runs.values import RUNNING, FolderLook, OutputChunk, Run, RunSize
from training_monitor.targets.proc_stat import Identity, MachineSample
from training_monitor.targets.procfs import MachineReader, is_alive, read_process, send_signals
from training_monitor.targets.transport import Transport

MAX_CHUNK = 2**20
_FIRST_GPUS = 1.0  # seconds to wait for the first answer of nvidia-smi, so that one look shows GPU memory
_LOCK_SECONDS, _LOCK_INTERVAL = 2.0, 0.02
_HEARD_SECONDS = 60.0  # a run writes every two seconds: one that wrote more recently may be alive
_SETTLED_NS = 100_000_000  # a file may change twice within the resolution of its mtime

_Signature = tuple[int, ...]  # empty for a missing file
_MISSING: _Signature = ()


class LocalRuns:
    """A RunSource over a folder of this machine. Unchanged files are not read again."""

    def __init__(
        self, folder: str | os.PathLike[str], *, transport: Transport | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.folder = os.path.abspath(check_here(os.fspath(folder)))
        self._clock = clock
        self._machine = MachineReader()
        self._gpus = GpuReader(transport=transport, clock=clock)
        self._known: dict[str, KnownRun[_Signature]] = {}

    def look(self, threads_of: frozenset[int]) -> FolderLook:
        """Read all processes, then the changed files. Raises TrainingMonitorError if the folder cannot be read."""
        self._gpus.latest()  # starts nvidia-smi in the background
        processes_at = self._clock.time()
        machine: MachineSample | None = None
        error = None
        try:
            machine = self._machine.read(threads_of)
        except TrainingMonitorError as failure:
            error = str(failure)
        known = {}
        for files in self._list():
            if one := _look_at(files, self._known.get(files.progress_path)):
                known[files.progress_path] = one
        self._known = known
        runs = tuple(one.run for one in known.values() if one.run)
        timestamp = self._clock.time()
        self._gpus.wait_once(_FIRST_GPUS)
        machine = machine and with_gpus(machine, self._gpus.latest())
        return FolderLook(runs, machine, timestamp, error, processes_at)

    def read_output(self, path: str, start: int, length: int) -> OutputChunk:
        """Read at most MAX_CHUNK bytes of a file that a run of the last look names as its output."""
        known = [one.run for one in self._known.values() if one.run]
        if not any(path in (run.stdout_path, run.stderr_path) for run in known):
            raise TrainingMonitorError(f"{path!r} is the output of no run in {self.folder!r}")
        try:
            file = open_regular(path)
            try:
                size = os.fstat(file).st_size
                start = min(start if start >= 0 else max(0, size + start), size)
                return OutputChunk(size, start, os.pread(file, max(0, min(length, MAX_CHUNK)), start))
            finally:
                os.close(file)
        except OSError as error:
            raise TrainingMonitorError(f"{path!r} cannot be read: {error.strerror}") from error

    def edit(self, run: Run, values: Mapping[str, str]) -> str:
        """Add edits to the control file of a run, beside the unanswered ones, and verify that they are there.

        Two editors wait for one another; no edits are lost.

        Raises:
            TrainingMonitorError: The run has ended or has no such variable, a value is too long, or the file cannot be
                written.
        """
        path = self._files_of(run).control_path
        check_edits(run, values)
        edit_id, now = os.urandom(8).hex(), self._clock.time()
        added = {name: Edit(value, edit_id, now) for name, value in values.items()}
        try:
            with _lock(os.path.dirname(path), self._clock):
                write_atomically(path, merge_edits(_read(path), run, added))
                remove_left_beside(path)
                written = read_edits(_read(path))
        except OSError as error:
            raise TrainingMonitorError(f"{path!r} cannot be written: {error.strerror}") from error
        if any(written.get(name) != one for name, one in added.items()):
            raise TrainingMonitorError(
                f"the edits are not in {path!r} after they were written", hint="somebody else writes it"
            )
        return edit_id

    def send_signal(
        self, processes: tuple[Identity, ...], number: int, runs: Sequence[Sequence[Run]] = ()
    ) -> tuple[str, ...]:
        """Send a signal to those that are still the same processes; return a sentence for each."""
        owners = [frozenset(uid for run in each if (uid := _owner(run)) is not None) for each in runs]
        return send_signals(processes, number, owners, clock=self._clock)

    def measure(self, run: Run) -> RunSize:
        """Measure what `delete` would remove. Raises TrainingMonitorError if it cannot be read."""
        files = self._files_of(run)
        try:
            return measure_run(files, run)
        except OSError as error:
            raise TrainingMonitorError(f"{error.filename or files.progress_path}: {error.strerror}") from error

    def delete(self, run: Run) -> None:
        """Delete a run's own folder, directly below this one, or its files in the flat layout; verify that.

        Raises:
            TrainingMonitorError: Its process is or may be alive, or something of it is still there.
        """
        import shutil

        files = self._files_of(run)
        known = _look_at(files, KnownRun(files, None, None, run))
        if known is None or known.run is None:
            raise self._is_gone(run)
        now = known.run
        check_same_attempt(run, now)
        if reason := _reason_to_keep(files, now, self._clock.time()):
            raise TrainingMonitorError(f"run {now.name!r} was not deleted: {reason}")
        paths = paths_of_run(files)
        try:
            if files.folder is not None:
                _check_own_folder(self.folder, files.folder)
                shutil.rmtree(files.folder)
            else:
                for path in paths:
                    with suppress(FileNotFoundError):
                        os.unlink(path)
        except OSError as error:
            what = f"{error.filename or files.progress_path}: {error.strerror}"
            raise TrainingMonitorError(f"run {now.name!r} was not deleted, or not all of it ({what})") from error
        if left := [path for path in paths if os.path.lexists(path)]:
            raise TrainingMonitorError(f"run {now.name!r} was deleted, and {left[0]!r} is there again")

    def _list(self) -> list[RunFiles]:
        try:
            found = list_run_files(self.folder)
            return [each for each in found if not _leads_out(each, self.folder)]
        except OSError as error:
            hint = "the folder that the training scripts write to" if isinstance(error, FileNotFoundError) else None
            raise TrainingMonitorError(
                f"the folder {self.folder!r} cannot be read: {error.strerror}", hint=hint
            ) from error

    def _files_of(self, run: Run) -> RunFiles:
        """Return the run's files from a new listing: an arbitrary path in `run` is rejected."""
        for files in self._list():
            if files.progress_path == run.path:
                return files
        raise self._is_gone(run)

    def _is_gone(self, run: Run) -> TrainingMonitorError:
        return TrainingMonitorError(f"run {run.name!r} is not in {self.folder!r} any more")


def _leads_out(files: RunFiles, folder: str) -> bool:
    return any(leads_out(path, folder) for path in (files.progress_path, files.control_path))


def _look_at(files: RunFiles, before: KnownRun[_Signature] | None) -> KnownRun[_Signature] | None:
    """Return a run's files as they are now; None if they are gone. An unreadable file keeps the old run, and why."""
    if before and before.files != files:
        before = None
    last = before.run if before else None
    try:
        state, control = os.stat(files.progress_path), _signature(files.control_path)
        if before and before.progress == _as_signature(state) and before.control == control:
            return before
        text, state = read_file(files.progress_path, state=state)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return KnownRun(files, None, None, unread_run(files, last, f"cannot be read: {error.strerror}"))
    edits, edited = _read_control(files.control_path) if control else (None, _MISSING)
    return KnownRun(files, _settled(state), edited, read_run(files, text, edits, last))


def _read_control(path: str) -> tuple[str | None, _Signature | None]:
    try:
        text, state = read_file(path)
    except OSError:
        return None, _signature(path)
    return text, _settled(state)


def _signature(path: str) -> _Signature:
    try:
        return _as_signature(os.stat(path))
    except OSError:
        return _MISSING


def _as_signature(state: os.stat_result) -> _Signature:
    return state.st_mtime_ns, state.st_size, state.st_ino, state.st_dev


def _settled(state: os.stat_result) -> _Signature | None:
    """Return the signature of a file that was written some time ago; None means: read it again."""
    return _as_signature(state) if time.time_ns() - state.st_mtime_ns > _SETTLED_NS else None


def _read(path: str) -> str:
    """Return the text of a control file, "" if it is missing."""
    with suppress(FileNotFoundError):
        return read_text(path)
    return ""


@contextmanager
def _lock(folder: str, clock: Clock) -> Iterator[None]:
    """Keep other editors of this folder out; best effort: some file systems (NFS) have no locks on folders."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        end = clock.monotonic() + _LOCK_SECONDS
        while not _try_lock(file):
            if clock.monotonic() >= end:
                raise TrainingMonitorError(
                    f"somebody else has been editing in {folder!r} for {_LOCK_SECONDS:g} s", hint="the same again"
                )
            clock.sleep(_LOCK_INTERVAL)
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)  # closing is not enough: a forked child may hold a copy until its exec
        os.close(file)


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
    return True


def _reason_to_keep(files: RunFiles, run: Run, now: float) -> str | None:
    """Return why a run may be alive; None if its process has ended or has been silent for long."""
    process = run.process
    alive = is_alive(process) if process else None
    if process and alive:
        return f"its process {process.pid} is alive, end it first"
    if alive is False or run.status not in (RUNNING, None):  # None: its file cannot be read, or names no status
        return None
    here = os.uname().nodename
    if process and process.start_ticks is None and process.hostname == here and read_process(process.pid):
        return f"process {process.pid} may be its own, end it first"
    try:
        age = now - os.stat(files.progress_path).st_mtime
    except OSError as error:
        return f"when it wrote its file is not known ({error.strerror})"
    if age >= _HEARD_SECONDS:
        return None
    return f"it wrote its file {format_duration(max(0.0, age))} ago, and its process cannot be seen from here"


def _owner(run: Run) -> int | None:
    """Return whose progress file it is, root's if no other user had a hand in it; None if several users had, or any.

    A link counts as well as what it leads to, since whoever made it chose the file.
    """
    try:
        states = [look(path) for path in paths_to_run(run) for look in (os.lstat, os.stat)]
    except OSError:
        return None
    users = {state.st_uid for state in states} - {0}
    if len(users) > 1 or states[-1].st_mode & stat.S_IWOTH:
        return None
    return users.pop() if users else 0


def _check_own_folder(folder: str, own: str) -> None:
    """Raise unless a run's folder is a real one, directly below the folder of runs."""
    if os.path.dirname(own) != folder or not stat.S_ISDIR(os.lstat(own).st_mode):
        raise OSError(errno.EINVAL, "not a folder of its own (a link?), delete it by hand", own)
