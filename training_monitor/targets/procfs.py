"""Read this machine's processes from /proc, and send them signals only while they are still the same ones.

A process that ends while it is read is not an error.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from itertools import zip_longest

from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.frozen import dataclass, replace
from training_monitor.core.regex import regex
from training_monitor.targets.proc_stat import (
    ENDED_STATES,
    Identity,
    MachineSample,
    ProcessSample,
    check_signal,
    describe_outcome,
    has_obeyed,
    parse_stat,
)

_PROC = "/proc"
_MAX_STAT = 4096  # bytes; a typical line has about 300
_MAX_THREADS = 1000  # of one process
_MEMORY = regex(rb"^(MemTotal|MemAvailable):\s+(\d{1,15}) kB$", re.MULTILINE)
_UID = regex(rb"^Uid:\s+(\d{1,10})\s", re.MULTILINE)
_LOOK_SECONDS, _LOOK_INTERVAL = 1.0, 0.02
_CANNOT_BE_SEEN = ("host", "boot", "namespace", "unsure", "hidden")


def identify(pid: int | None = None) -> Identity:
    """Return the identity of a process (this one when `pid` is None), as seen from this machine.

    Unknown parts are None: on a machine without /proc, all but the pid and the hostname.
    """
    sample = read_process(os.getpid() if pid is None else pid)
    return Identity(
        os.getpid() if pid is None else pid,
        sample.start_ticks if sample else None,
        os.uname().nodename,
        (_read(f"{_PROC}/sys/kernel/random/boot_id") or b"").decode("ascii", "replace").strip() or None,
        pid_namespace(),
    )


def read_process(pid: int) -> ProcessSample | None:
    """Return one process; None if it does not exist or is hidden."""
    return _sample(f"{_PROC}/{pid}/stat", _page_size())


class MachineReader:
    """Reads all processes repeatedly; an unchanged line is not parsed again."""

    def __init__(self) -> None:
        self._page_size = _page_size()
        self._lines: dict[str, tuple[bytes, ProcessSample]] = {}

    def read(self, threads_of: frozenset[int] = frozenset()) -> MachineSample:
        """Read all processes, and the threads of the requested ones; GPUs are not read.

        Raises:
            TrainingMonitorError: this machine has no /proc.
        """
        at = _seconds_since_boot()
        is_whole = self._read_lines()
        processes = {sample.pid: sample for _, sample in self._lines.values()}
        memory = {key: int(size) * 1024 for key, size in _MEMORY.findall(_read(f"{_PROC}/meminfo") or b"")}
        return MachineSample(
            at=at,
            identity=identify(),
            ticks=os.sysconf("SC_CLK_TCK"),
            cores=os.cpu_count(),
            memory_bytes=memory.get(b"MemTotal"),
            available_bytes=memory.get(b"MemAvailable"),
            processes=processes,
            threads={pid: read_threads(pid) for pid in threads_of if pid in processes},
            sees_all=is_whole and 1 in processes,
        )

    def _read_lines(self) -> bool:
        """Read the line of each process; False when one that may be alive could not be read."""
        try:
            names = os.listdir(_PROC)
        except OSError as error:
            raise TrainingMonitorError(f"processes cannot be seen here: no {_PROC} ({error.strerror})") from error
        before, self._lines = self._lines, {}
        is_whole = True
        for name in names:
            if name[0] > "9":
                continue
            try:
                file = os.open(f"{_PROC}/{name}/stat", os.O_RDONLY)
                try:
                    data = os.read(file, _MAX_STAT)
                finally:
                    os.close(file)
            except (FileNotFoundError, ProcessLookupError):  # it has ended
                continue
            except OSError:
                is_whole = False
                continue
            known = before.get(name)
            if known and known[0] == data:
                self._lines[name] = known
            elif sample := _parse(data, self._page_size):
                self._lines[name] = data, sample
        if not self._lines:
            raise TrainingMonitorError(f"processes cannot be seen here: {_PROC} holds none")
        return is_whole


def read_threads(pid: int) -> tuple[ProcessSample, ...]:
    """Return the threads of a process, at most a thousand; none when it has ended."""
    folder, page_size = f"{_PROC}/{pid}/task", _page_size()
    try:
        names = os.listdir(folder)[:_MAX_THREADS]
    except OSError:
        return ()
    return tuple(sample for name in names if (sample := _sample(f"{folder}/{name}/stat", page_size)))


def _sample(path: str, page_size: int) -> ProcessSample | None:
    data = _read(path)
    return _parse(data, page_size) if data else None


def _parse(line: bytes, page_size: int) -> ProcessSample | None:
    return parse_stat(line.decode("utf-8", "replace"), page_size)


def _read(path: str) -> bytes | None:
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        return os.read(file, _MAX_STAT)
    except OSError:  # it ended after it was opened
        return None
    finally:
        os.close(file)


def user_of(pid: int) -> int | None:
    """Return the real uid of a process; None if it does not exist or is hidden."""
    found = _UID.search(_read(f"{_PROC}/{pid}/status") or b"")
    return int(found[1]) if found else None


def pid_namespace() -> str | None:
    """Return what /proc/self/ns/pid links to, as `pid:[4026531836]`; None without /proc."""
    with suppress(OSError):
        return os.readlink(f"{_PROC}/self/ns/pid")
    return None


def _page_size() -> int:
    return os.sysconf("SC_PAGE_SIZE")


def _seconds_since_boot() -> float:
    """Return the clock of /proc/uptime and of the start times, at a higher resolution."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


@dataclass(frozen=True, slots=True)
class _Seen:
    """The result of looking for a process: `outcome` as in `describe_outcome`, or "" if it is there."""

    outcome: str
    name: str = ""
    state: str = ""


def is_alive(process: Identity) -> bool | None:
    """Whether this very process runs; None when that is unknown here. A zombie has ended."""
    found = _look(process).outcome
    return None if found in _CANNOT_BE_SEEN else not found


def send_signals(
    processes: Sequence[Identity],
    number: int,
    owners: Sequence[frozenset[int]] = (),
    *,
    clock: Clock = SYSTEM_CLOCK,
) -> tuple[str, ...]:
    """Send a signal to each of these processes, in order, and wait up to a second for the effect.

    A process is signalled only if it is still the same one: same host, boot, pid namespace and start. Where pidfds are
    available, the check and the signal are race-free.

    Args:
        owners: of each process, the users on whose word it is signalled: one of them must be root or its own user.
            Without them, whoever calls vouches for the processes.

    Returns:
        One sentence each: what was sent and whether the process ended, or why nothing was sent.

    Raises:
        SettingsError: the signal number is invalid.
    """
    check_signal(number)
    sent = [_send(process, number, users) for process, users in zip_longest(processes, owners)]
    end = clock.monotonic() + _LOOK_SECONDS
    told = []
    for process, seen in zip(processes, sent):
        found = seen if seen.outcome else _wait(process, seen, number, end, clock)
        told.append(describe_outcome(process, number, found.outcome, found.name, found.state))
    return tuple(told)


def _send(process: Identity, number: int, users: frozenset[int] | None) -> _Seen:
    """Send a signal, opening the pidfd before checking the identity, so that the pid cannot be reused in between."""
    if process.pid <= 1:
        return _Seen("never")
    if process.pid == os.getpid():
        return _Seen("own")
    with ExitStack() as files:
        file = _open(process.pid, files)
        seen = _look(process)
        if seen.outcome:
            return seen
        if users is not None and not users & {0, user_of(process.pid)}:
            return _Seen("owner", seen.name)
        try:
            if file is not None:
                signal.pidfd_send_signal(file, number)
            else:
                os.kill(process.pid, number)
        except ProcessLookupError:
            return _Seen("gone")
        except PermissionError:
            return _Seen("denied", seen.name)
        except OSError:
            return _Seen("failed", seen.name)
    return seen


def _open(pid: int, files: ExitStack) -> int | None:
    """Open a pidfd; None where pidfds are unsupported or there is no such process (which `_look` then reports)."""
    try:
        file = os.pidfd_open(pid)
    except (AttributeError, OSError, OverflowError):  # not Linux, an old kernel, a sandbox
        return None
    files.callback(os.close, file)
    return file


def _look(process: Identity) -> _Seen:
    """Look for this very process; an unknown part of its identity counts as different."""
    here = identify()
    if process.hostname != here.hostname:
        return _Seen("host")
    if process.boot_id is None or process.boot_id != here.boot_id:
        return _Seen("boot")
    if process.pid_namespace is None or process.pid_namespace != here.pid_namespace:
        return _Seen("namespace")
    if process.start_ticks is None:
        return _Seen("unsure")
    sample = read_process(process.pid)
    if sample is None:
        return _Seen("hidden" if _exists(process.pid) else "gone")
    if sample.start_ticks != process.start_ticks:
        return _Seen("other", sample.name)
    return _Seen("zombie" if sample.state in ENDED_STATES else "", sample.name, sample.state)


def _exists(pid: int) -> bool:
    """Whether there is a process with this number, even one hidden in /proc."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _wait(process: Identity, sent: _Seen, number: int, end: float, clock: Clock) -> _Seen:
    """Wait until `end` for the effect of a signal; the outcome is "" if the process can no longer be observed."""
    while True:
        seen = _look(process)
        if seen.outcome:
            return replace(sent, outcome="" if seen.outcome in _CANNOT_BE_SEEN else "ended")
        if has_obeyed(seen.state, number) or clock.monotonic() >= end:
            return replace(sent, outcome="left", state=seen.state)
        clock.sleep(_LOOK_INTERVAL)
