"""What /proc says of this machine and its processes. A process that ends while it is read is no error."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress

from training_monitor.errors import TrainingMonitorError
from training_monitor.parse.proc_stat import parse_stat
from training_monitor.policy.run_values import Identity, MachineSample, ProcessSample

_PROC = "/proc"
_MAX_STAT = 4096  # bytes; such a line has about 300
_MAX_THREADS = 1000  # of one process
_MEMORY = re.compile(rb"^(MemTotal|MemAvailable):\s+(\d{1,15}) kB$", re.MULTILINE)


def identify(pid: int | None = None) -> Identity:
    """What tells a process (this one when `pid` is None) from all others, as it is seen from here.

    What cannot be learned is None: on a machine without /proc that is all but the pid and the hostname.
    """
    sample = read_process(os.getpid() if pid is None else pid)
    return Identity(
        os.getpid() if pid is None else pid,
        sample.start_ticks if sample else None,
        os.uname().nodename,
        (_read(f"{_PROC}/sys/kernel/random/boot_id") or b"").decode("ascii", "replace").strip() or None,
        _pid_namespace(),
    )


def read_process(pid: int) -> ProcessSample | None:
    """One process; None when there is none, or it may not be seen."""
    return _sample(f"{_PROC}/{pid}/stat", _page_size())


class MachineReader:
    """Reads all processes again and again; a line that is the same as before is not parsed again."""

    def __init__(self) -> None:
        self._page_size = _page_size()
        self._lines: dict[str, tuple[bytes, ProcessSample]] = {}

    def read(self, threads_of: frozenset[int] = frozenset()) -> MachineSample:
        """Read all processes, and the threads of those asked for; GPUs are not asked.

        Raises:
            TrainingMonitorError: This machine has no /proc.
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
        """Read the line of each process; False when one of them could not be read, and may be alive."""
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
    """The threads of a process, at most a thousand; none when it has ended."""
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


def _pid_namespace() -> str | None:
    with suppress(OSError):
        return os.readlink(f"{_PROC}/self/ns/pid")
    return None


def _page_size() -> int:
    return os.sysconf("SC_PAGE_SIZE")


def _seconds_since_boot() -> float:
    """The clock of /proc/uptime and of the start times, in finer steps."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()
