"""Read this machine's processes from /proc.

A process that ends while it is read is not an error.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress

from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.regex import regex
from training_monitor.targets.proc_stat import ENDED_STATES, Identity, MachineSample, ProcessSample, parse_stat

_PROC = "/proc"
_MAX_STAT = 4096  # bytes; a typical line has about 300
_MAX_THREADS = 1000  # of one process
_MEMORY = regex(rb"^(MemTotal|MemAvailable):\s+(\d{1,15}) kB$", re.MULTILINE)


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
            raise TrainingMonitorError(
                f"this machine's processes cannot be listed: {_PROC} cannot be read ({error.strerror})"
            ) from error
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
            raise TrainingMonitorError(f"this machine's processes cannot be listed: {_PROC} contains none")
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


def is_alive(process: Identity) -> bool | None:
    """Whether this very process runs; None when that is unknown here. A zombie has ended."""
    here, place = identify(), (process.hostname, process.boot_id, process.pid_namespace)
    if None in (*place, process.start_ticks) or place != (here.hostname, here.boot_id, here.pid_namespace):
        return None
    sample = read_process(process.pid)
    if sample is None:
        return None if _exists(process.pid) else False
    return sample.start_ticks == process.start_ticks and sample.state not in ENDED_STATES


def _exists(pid: int) -> bool:
    """Whether there is a process with this number, even one hidden in /proc."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
