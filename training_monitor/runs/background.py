"""The background thread of a run: it alone touches files, so that a training never waits for a disk.

Only the last document is written by the thread that ends the run, under the same lock, so that no status is lost.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import stat
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from training_monitor.core.clock import Clock
from training_monitor.core.errors import ParseError
from training_monitor.core.records import encode
from training_monitor.core.units import name_some
from training_monitor.runs.endings import Warnings
from training_monitor.runs.files import RunFiles, log_paths, read_file, read_text, write_atomically
from training_monitor.runs.ownership import Candidate, Place, Standing, this_process
from training_monitor.runs.progress_file import parse_control_file, parse_progress_file
from training_monitor.runs.record import RunRecord
from training_monitor.runs.resources import INTERVAL, Busiest, OwnResourceReader
from training_monitor.runs.values import RUNNING, OwnResources
from training_monitor.targets.procfs import is_alive
from training_monitor.targets.tee import start_tee
from training_monitor.targets.transport import Transport

HEARTBEAT, CONTROL_INTERVAL = 2.0, 1.0
_LAST_TRIES, _BETWEEN_TRIES = 5, 0.2
_JOIN_LIMIT, _START_LIMIT = 5.0, 5.0
_LOCK_LIMIT = 20.0  # how many seconds an ending script waits for a write in progress: a disk may be that slow
_DRAIN_LIMIT = 2.0  # how many seconds an ending script waits for its tees
_WATCH_INTERVAL = 0.25
_DESCRIPTORS = (1, 2)
_THREAD = "training_monitor output"
_IMPORTED_LATE = ("hashlib", "subprocess")  # a child that is forked while a thread imports them waits for ever


class _Writer(threading.Thread):
    """The thread of a background; by listing threads, a process finds the backgrounds that it has."""

    def __init__(self, background: Background, run: Callable[[], None]) -> None:
        super().__init__(target=run, name=f"training_monitor writes {background.wanted.progress_path}", daemon=True)
        self.background = background


class Background:
    """The background of one run: writes its record until the run has ended."""

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
        fall_silent: Callable[[str | None], None],
        candidate: Candidate,
    ) -> None:
        self.files = self.wanted = files
        self._is_settled = False  # whether we own `files`
        self._place: Place | None = None  # None until the identity of this process is known
        self._fall_silent, self._candidate = fall_silent, candidate
        self._record, self._metadata = record, metadata
        self._interval = min(max(0.01, interval), HEARTBEAT) if isinstance(interval, int | float) else 0.25
        self._troubles, self._clock = troubles, clock
        self._tee_outputs, self._outputs = tee_outputs, Outputs(("", ""), self._tell_gone)
        self._resources = OwnResourceReader(transport=transport, clock=clock)
        self._own: tuple[OwnResources, Busiest] = OwnResources(), []
        self._closing, self._started = threading.Event(), threading.Event()
        self._writing = threading.RLock()  # a signal may interrupt its holder
        self._thread: _Writer | None = None
        self._pid = os.getpid()
        self._written_version, self.is_final, self._has_left = -1, False, False
        self._next_beat = self._next_look = self._next_control = clock.monotonic()
        self._control_state: tuple[int, int, int] | None = None
        self._garbled_state: tuple[int, int, int] | None = None
        self._is_first_control = True

    def replace_earlier(self) -> None:
        """End the run that an earlier monitor of this process writes to the same file: a notebook cell ran again."""
        for thread in threading.enumerate():
            if isinstance(thread, _Writer) and thread.background.wanted.progress_path == self.wanted.progress_path:
                path = self.wanted.progress_path
                thread.background._fall_silent(f"a newer monitor writes {path!r}: this one has stopped writing")
                thread.background.leave()

    def start(self) -> None:
        """Start the thread. With tees, wait until they work, so that the first lines are in the files."""
        for name in _IMPORTED_LATE:
            importlib.import_module(name)
        try:
            self._thread = _Writer(self, self._run)
            self._thread.start()
        except RuntimeError as error:  # no thread left, or the interpreter is exiting
            self._thread = None
            self._troubles.warn("thread", f"progress is not being written: {error}")
            return
        if self._tee_outputs:
            self._started.wait(_START_LIMIT)

    def finish(self) -> None:
        """End the background thread, which converts the last metrics, and write the last document in this one.

        A GPU that hangs costs these metrics, but not the status. If the write fails now, it is retried at exit.
        """
        if self._pid != os.getpid():  # a forked child, at its exit
            return
        self._end_thread()
        if self._thread is None:
            self._guarded(self._take_metrics)
        atexit.unregister(self.finish)
        self._write_last()
        if not self.is_final:
            atexit.register(self.finish)

    def leave(self) -> None:
        """End without a last document: a newer run has the file."""
        if self._pid != os.getpid():  # a forked child: the run is its parent's
            return
        self._has_left = True  # also stops a thread that hangs now and resumes later
        self._end_thread()
        atexit.unregister(self.finish)
        self.stop_copying()
        self._release()

    def _end_thread(self) -> None:
        self._closing.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._started.wait(_START_LIMIT)
            self._thread.join(_JOIN_LIMIT)

    def _write_last(self) -> None:
        if not self._writing.acquire(timeout=_LOCK_LIMIT):
            self._troubles.warn(
                "disk", f"the last status was not written, because writing {self.files.progress_path!r} hangs"
            )
            return
        try:
            for left in reversed(range(_LAST_TRIES)):
                if self._write(is_last=True):
                    self.is_final = True
                    self._release()
                if self.is_final:
                    break
                if left:
                    self._clock.sleep(_BETWEEN_TRIES)
        finally:
            self._writing.release()

    def _release(self) -> None:
        with suppress(OSError):  # what is left then names a process that is gone
            if self._place is not None:
                self._place.leave()

    def stop_copying(self) -> None:
        """End the tees, which would otherwise last until the process exits."""
        self._outputs.stop()

    # ------------------------------------------------------------ in the thread

    def _run(self) -> None:
        self._guarded(self._look_around)
        self._started.set()
        while True:
            self._guarded(self._turn)
            if self._clock.wait(self._closing, self._interval):
                break
        self._guarded(self._take_metrics)

    def _guarded(self, act: Callable[[], object]) -> None:
        try:
            act()
        except BaseException as error:  # whatever a metric raises, SystemExit too, the thread goes on
            self._troubles.warn(type(error).__name__, f"the monitor failed: {type(error).__name__}: {error}")

    def _look_around(self) -> None:
        place = self._prepare()
        with self._writing, suppress(OSError):  # the next write reports the error
            self._settle(place)

    def _prepare(self) -> Place:
        """Find out the identity of this process, and where its output goes."""
        me = this_process(self._candidate)
        self._metadata |= encode(me.process)
        self._metadata["stdout_path"], self._metadata["stderr_path"] = _regular_target(1), _regular_target(2)
        self._place = Place(self.wanted, me, self._candidate, self._clock)
        return self._place

    def _settle(self, place: Place, *, is_last: bool = False) -> bool:
        """Return whether we own the files; if another living run writes them, switch to another name."""
        standing = place.settle(is_last=is_last)
        if standing is Standing.RELATED:
            self.is_final = True
            self._closing.set()
            self._fall_silent(None)
            self._outputs.stop()
        if standing is not Standing.OURS:
            return False
        if place.files != self.files or not self._is_settled:
            self._begin(place)
        return True

    def _begin(self, place: Place) -> None:
        """Report if the run is written elsewhere than requested, and begin the tees there."""
        self.files = place.files
        if place.files != self.wanted:
            holder = place.holder.process if place.holder else None
            who = f"process {holder.pid} on {holder.hostname}" if holder else "another process"
            self._troubles.warn(
                "taken",
                f"{self.wanted.progress_path!r} is written by {who}, but this run writes {place.files.progress_path!r}."
                " Give each run its own file; if one training has several processes, let only one of them write "
                "(set RANK in the environment of each, or pass rank=)",
            )
            if self._metadata.get("run_name") == self.wanted.name:
                self._metadata["run_name"] = place.files.name
        is_first, self._is_settled = not self._is_settled, True
        if is_first:
            with suppress(OSError, ParseError):
                earlier = parse_progress_file(read_text(self.files.progress_path), self.files.unread())
                me, writer = place.me.process, earlier.process
                has_moved = earlier.status == RUNNING and writer not in (None, me) and is_alive(writer) is True
                self._record.follow(earlier, me, has_moved=has_moved)
        if not (self._tee_outputs and is_first):
            return
        outputs = Outputs(log_paths(place.files), self._tell_gone)
        try:
            outputs.start()
        except OSError as error:
            self._troubles.warn("tee", f"stdout and stderr cannot be copied to {outputs.paths[0]!r}: {error}")
            return
        self._outputs = outputs
        self._metadata["stdout_path"], self._metadata["stderr_path"] = outputs.paths

    def _tell_gone(self) -> None:
        self._troubles.warn("tee", "stdout or stderr is no longer copied, because the tee process has ended")

    def _turn(self) -> None:
        now = self._clock.monotonic()
        if now >= self._next_look:
            self._next_look = now + INTERVAL
            self._own = self._resources.look()
            self._find_wandb()
        if self._is_settled and now >= self._next_control:
            self._next_control = now + CONTROL_INTERVAL
            self._look_at_control()
        self._take_metrics()
        with self._record.lock:
            self._record.observe()
        if self._record.version != self._written_version or now >= self._next_beat:
            with self._writing:
                if self._record.status == RUNNING:  # otherwise the thread that ended it writes
                    self._write()

    def _take_metrics(self) -> None:
        for kept, left_out in self._record.take_metrics().items():
            if left_out:
                names = name_some(list(map(repr, left_out)), 5)
                self._troubles.warn(kept, f"only {kept} are kept (losses and learning rates first); left out: {names}")

    def _write(self, *, is_last: bool = False) -> bool:
        """Write the current state to the file, recreating its folder if needed; False if that failed."""
        if self._has_left:
            return False
        self._next_beat = self._clock.monotonic() + HEARTBEAT
        path = self.files.progress_path
        try:
            if not self._settle(self._place or self._prepare(), is_last=is_last):
                return False
            path = self.files.progress_path
            with self._record.lock:
                self._record.observe()
                version = self._record.version
                document = self._record.document(self._metadata, *self._own)
            write_atomically(path, json.dumps(document))  # JSON in ASCII, so that lone surrogates are harmless
        except OSError as error:
            self._troubles.warn("disk", f"{path!r} cannot be written ({error.strerror}); writing will be retried")
            return False
        self._written_version = version
        return True

    def _look_at_control(self) -> None:
        """Read the control file if it has changed; edits older than this run are rejected."""
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
            if _state(read) == self._garbled_state:  # otherwise an editor may still be writing it
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
        """Find the name and address of the run in wandb if the script uses it; wandb is never imported for that."""
        run = getattr(sys.modules.get("wandb"), "run", None)
        for key, attribute in (("wandb_url", "url"), ("wandb_run_name", "name")):
            found = getattr(run, attribute, None) if run is not None else None
            if isinstance(found, str) and not self._metadata.get(key):
                self._metadata[key] = found[:1000]
                self._record.version += 1


def _state(read: os.stat_result) -> tuple[int, int, int]:
    return read.st_mtime_ns, read.st_size, read.st_ino


# ---------------------------------------------------------------- copies of the output


@dataclass(slots=True)
class _Tee:
    descriptor: int
    before: int  # a copy of what the descriptor was
    reading: int
    pid: int
    device: tuple[int, int]  # of the pipe


class Outputs:
    """The copies of stdout and stderr in files: of all that is written to descriptors 1 and 2, by whatever code.

    The copy lasts until the process exits, so it includes a final traceback. Each descriptor is connected through a
    pipe to a tee, a small separate process that writes to the former output and to the file. A thread of this process
    could not do that: output of code that holds the interpreter's lock would fill the pipe and block for ever. A tee
    also outlives a killed training, so that its last output is kept, and subprocesses can go on printing.

    If the disk is full, only the output of that time is lost: the tee continues when there is room, and notes in the
    file how many bytes are missing. The price: a program that asks finds a pipe instead of a terminal, and a log on a
    disk that hangs blocks the output, as `python train.py | tee` does. The reading end of the pipe stays open here, so
    that no writer dies if a tee is killed: output blocks until a thread notices, restores the old descriptor and passes
    on what is in the pipe. The tees are children of the script: one that waits for all its children (`os.wait()` in a
    loop) waits for them too.

    Args:
        paths: of the files for stdout and stderr.
        tell_gone: called, in a thread, when a tee is gone and its output is no longer copied.
    """

    def __init__(self, paths: tuple[str, str], tell_gone: Callable[[], None]) -> None:
        self.paths = paths
        self._tell_gone = tell_gone
        self._tees: list[_Tee] = []
        self._pid = os.getpid()
        self._lock = threading.RLock()  # a signal may interrupt its holder
        self._ended = threading.Event()

    def start(self) -> None:
        """Begin to copy, replacing other tees of this process for the same files.

        Raises:
            OSError: It failed; then nothing is changed.
        """
        for thread in threading.enumerate():
            if isinstance(thread, _Watch) and thread.outputs.paths == self.paths:
                thread.outputs.stop()
        _flush()
        try:
            for descriptor, path in zip(_DESCRIPTORS, self.paths, strict=True):
                os.makedirs(os.path.dirname(path), exist_ok=True)
                self._tees.append(_begin(descriptor, path))
        except OSError:
            self.stop()
            raise
        atexit.register(self.stop)
        with suppress(RuntimeError):  # no thread left
            _Watch(self).start()

    def watch(self) -> None:
        """Check again and again whether the tees exist; restore the former descriptor of one that is gone."""
        while not self._ended.wait(_WATCH_INTERVAL):
            with self._lock:
                gone = [tee for tee in self._tees if _has_ended(tee.pid)]
                for tee in gone:
                    self._tees.remove(tee)
                    _restore(tee)
            for tee in gone:
                with suppress(RuntimeError):  # no thread left: its pipe stays open, so that no write to it fails
                    threading.Thread(target=_pass_on, args=(tee,), name=_THREAD, daemon=True).start()
            if gone:
                self._tell_gone()

    def stop(self) -> None:
        """Restore the descriptors, and wait until the output has arrived, for two seconds at most."""
        atexit.unregister(self.stop)
        if os.getpid() != self._pid:  # a forked child: the tees are its parent's
            return
        self._ended.set()
        _flush()
        with self._lock:
            tees, self._tees = self._tees, []
            for tee in tees:
                _restore(tee)
                os.close(tee.reading)
                os.close(tee.before)
        deadline = time.monotonic() + _DRAIN_LIMIT
        for tee in tees:  # a tee continues while a subprocess holds its pipe
            while not _has_ended(tee.pid) and time.monotonic() < deadline:
                time.sleep(0.005)


class _Watch(threading.Thread):
    """The thread that watches tees; it also lets newer tees of the same files find them."""

    def __init__(self, outputs: Outputs) -> None:
        super().__init__(target=outputs.watch, name=_THREAD, daemon=True)
        self.outputs = outputs


def _regular_target(descriptor: int) -> str | None:
    """Return the regular file that a descriptor writes to; None if it is none, or unknown."""
    with suppress(OSError):
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            return path if os.path.exists(path) else None
    return None


def _begin(descriptor: int, path: str) -> _Tee:
    reading, writing = os.pipe()
    before = -1
    try:
        before = os.dup(descriptor)
        with open(path, "ab") as file:
            pid = start_tee(file.fileno(), reading=reading, writing=before)
        os.dup2(writing, descriptor)
    except OSError:
        for opened in (reading, before):
            if opened >= 0:
                os.close(opened)
        raise
    finally:
        os.close(writing)
    return _Tee(descriptor, before, reading, pid, _file_of(descriptor))


def _restore(tee: _Tee) -> None:
    """Restore the former descriptor, unless it was redirected elsewhere since."""
    with suppress(OSError):
        if _file_of(tee.descriptor) == tee.device:
            os.dup2(tee.before, tee.descriptor)


def _pass_on(tee: _Tee) -> None:
    """Pass on the rest of the pipe of a tee that is gone, in a thread, until nobody has it open for writing.

    A writer may be a print that waits for room in the pipe, or a subprocess.
    """
    try:
        while data := os.read(tee.reading, 65536):
            while data:
                data = data[os.write(tee.before, data) :]
    except OSError:  # the former output is gone, too
        pass
    finally:
        os.close(tee.reading)
        os.close(tee.before)


def _file_of(descriptor: int) -> tuple[int, int]:
    state = os.fstat(descriptor)
    return state.st_dev, state.st_ino


def _has_ended(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:  # it was reaped elsewhere
        return True


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # None under pythonw, closed, or a replaced object
            stream.flush()
