"""Measure a process of a soak, what it started, and its folder."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
import threading
import time
from array import array
from collections import Counter
from pathlib import Path

MARK = "TRAINING_MONITOR_SOAK"  # in the environment of all that is started by a soak, with its process ID
MB = 2**20


def marked() -> list[int]:
    """Return the processes that were started here, also those that are no longer our children."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if int(name) != os.getpid() and f"{MARK}={os.getpid()}".encode() in _read(f"/proc/{name}/environ"):
                found.append(int(name))
    return found


def _read(path: str) -> bytes:
    return Path(path).read_bytes()


def _count(folder: str) -> int:
    """Return how many entries a folder of a process has; 0 when it has ended."""
    with contextlib.suppress(OSError):
        return len(os.listdir(folder))
    return 0


def _stat(pid: int) -> list[str]:
    """Return the state, the parent and the rest of /proc/PID/stat."""
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].decode().split()


def resident(pid: int) -> float:
    """Return the resident memory of a process in MB; 0 when it has ended."""
    with contextlib.suppress(OSError, StopIteration, ValueError):
        lines = _read(f"/proc/{pid}/status").splitlines()
        return int(next(line for line in lines if line.startswith(b"VmRSS")).split()[1]) / 1024
    return 0.0


class _Malloc(ctypes.Structure):
    """What mallinfo2 of glibc says, in bytes: see `man mallinfo2`."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    )


class Samples:
    """Samples in columns: an hour of them would otherwise take more memory than what they are to find."""

    def __init__(self) -> None:
        self._columns: dict[str, array[float]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, sample: dict[str, float]) -> None:
        """Add a sample; a name that others lack is 0 there."""
        for name in sample:
            if name not in self._columns:
                self._columns[name] = array("d", [0.0]) * self._count
        for name, column in self._columns.items():
            column.append(sample.get(name, 0.0))
        self._count += 1

    def all(self) -> list[dict[str, float]]:
        """Return the samples."""
        return [{name: column[at] for name, column in self._columns.items()} for at in range(self._count)]


def freed() -> float:
    """Return the MB that were freed here and that malloc still holds; 0 where no glibc says it."""
    mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo2 is None:
        return 0.0
    mallinfo2.restype = _Malloc
    return float(mallinfo2().fordblks) / MB


def zombies() -> int:
    """Return how many children have ended and were not waited for."""
    count = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            state, parent, *_ = _stat(int(name))
            count += state == "Z" and int(parent) == os.getpid()
    return count


def open_files() -> Counter[str]:
    """Return how many files this process has open, by kind: sockets, pipes, files, others."""
    kinds = Counter({"sockets": 0, "pipes": 0, "files": 0, "others": 0})
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            path = os.readlink(f"/proc/self/fd/{name}")
            word = path.partition(":")[0]
            kinds[{"socket": "sockets", "pipe": "pipes"}.get(word, "files" if path[0] == "/" else "others")] += 1
    return kinds


def objects() -> Counter[str]:
    """Return how many objects of the package's classes there are, by class."""
    gc.collect()
    before = sys.getswitchinterval()
    sys.setswitchinterval(60)  # a tuple that another thread is making cannot grow while the list below has it
    try:
        time.sleep(0.05)  # threads that wait by the former interval
        kinds = Counter(list(map(type, gc.get_objects())))
    finally:
        sys.setswitchinterval(before)
    ours = {kind: count for kind, count in kinds.items() if kind.__module__.startswith("training_monitor.")}
    return Counter({f"{kind.__module__.rpartition('.')[2]}.{kind.__qualname__}": ours[kind] for kind in ours})


def size_of(folder: Path, besides: str = "") -> float:
    """Return the MB of all files in a folder, besides those of one below; some may vanish meanwhile."""
    size = 0
    for path, folders, names in os.walk(folder):
        folders[:] = [each for each in folders if each != besides]
        for name in names:
            with contextlib.suppress(OSError):
                size += os.lstat(os.path.join(path, name)).st_size
    return size / MB


def take_sample(folder: Path) -> dict[str, float]:
    """Measure this process, those it started, and its folder."""
    pids = marked()
    found = {"memory": resident(os.getpid()), "freed memory": freed(), "threads": float(threading.active_count())}
    found |= {f"open {kind}": float(count) for kind, count in open_files().items()}
    found |= {"children": float(len(pids)), "zombies": float(zombies())}
    found["memory of the children"] = sum(map(resident, pids))
    found["open files of the children"] = float(sum(_count(f"/proc/{pid}/fd") for pid in pids))
    found["threads of the children"] = float(sum(_count(f"/proc/{pid}/task") for pid in pids))
    found |= {"state files": size_of(folder / "state"), "other files": size_of(folder, besides="state")}
    kinds = objects()
    return {**found, "objects": float(kinds.total()), **{f"objects {kind}": float(kinds[kind]) for kind in kinds}}
