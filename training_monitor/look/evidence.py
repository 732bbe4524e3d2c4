"""What the processes of a training do, seen from /proc: the evidence that tells a checkpoint save from a hang.

GPUs are as idle during a save or a compilation as in a deadlock; CPU time, bytes written, compilers and waits for a
disk tell them apart. `Evidence` says what each number means and what it cannot tell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from training_monitor.core.errors import ParseError
from training_monitor.core.models import Question
from training_monitor.core.regex import regex
from training_monitor.core.units import seconds_since
from training_monitor.targets.asking import quote_path
from training_monitor.targets.proc_stat import Process, read_processes
from training_monitor.targets.replies import each_line, read_whole
from training_monitor.targets.scripts import Quoted, format_call

_COMPILER = regex(
    r"ptxas.*|cicc|nvcc|nvlink|fatbinary|cudafe\+\+|cc1|cc1plus|cc|c\+\+|(?:.*-)?(?:gcc|g\+\+|clang|clang\+\+)(?:-[\d.]+)?"
    r"|as|ld|ld\..*|lld|collect2|ninja|hipcc|neuron.*-cc"
)
_NUMBER = regex(r"\d{1,19}(?:\.\d{1,9})?", re.ASCII)
_COUNTER = regex(r"/proc/(\d{1,10})/io:(wchar|write_bytes): (\d{1,19})")
_MEMORY = regex(r"/proc/(\d{1,10})/status:VmRSS:\s{0,20}(\d{1,15})")  # KiB
_COMPILE_WORKER = regex(r"/proc/(\d{1,10})/cmdline:compile_worker")
_MOST_AWAKE = 10**9  # seconds
SAMPLE_SECONDS = 0.5  # how long a first look samples the processes: it has no earlier look to compare with
_MOST_FILES, _MOST_FOLDERS = 5000, 6


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the process tree of a training has done up to one look; None means unknown.

    Attributes:
        processes, pids: the running processes. Empty when the training has ended or cannot be seen; then the sums are
            None.
        cpu_seconds: user and system time, including that of children that have ended and were waited for. It shrinks
            when a process ends and no process of the tree waits for it.
        written_bytes: bytes written since the processes began: for each process the larger of `wchar` and
            `write_bytes`. A checkpoint saved to NFS, FUSE, 9p or tmpfs shows only in `wchar` (what write(2) took); one
            written by mmap or direct asynchronous I/O only in `write_bytes` (what went to the page cache or the disk).
            Log lines and pipes count in `wchar` too, so a few bytes a second mean nothing. None when the counters of
            no process may be read.
        memory_bytes: resident memory (RSS) of all processes; what they share counts for each of them.
        cpu_cores, write_rate: both per second during the look; None when it took no time.
        delay_seconds: how long its threads that still run have waited for a processor.
        delay_cores: the same per second.
        suspended: the pids of those in state T.
        blocked: processes whose main thread waits in the kernel for a disk (state D).
        compilers: compilers, assemblers, linkers and busy compile workers of PyTorch.
        oom_kills: processes that the kernel killed for memory in the training's cgroup, or else in the caller's.
        boot: the boot's id. awake_seconds: time since boot without the time the machine was suspended, unaffected by
            clock changes: what the first processor spent in all states. It may be some per mille off where time is
            stolen from a virtual machine; None where the kernel does not count it.
        clock: the time on the target, in epoch seconds.
        process: `PID START BOOT` of the oldest root. runtime: seconds since it began.
    """

    processes: int | None = None
    pids: tuple[int, ...] = ()
    cpu_seconds: float | None = None
    written_bytes: int | None = None
    cpu_cores: float | None = None
    write_rate: float | None = None
    blocked: int | None = None
    compilers: int | None = None
    oom_kills: int | None = None
    boot: str | None = None
    awake_seconds: float | None = None
    clock: float | None = None
    process: str | None = None
    runtime: float | None = None
    memory_bytes: int | None = None
    delay_seconds: float | None = None
    delay_cores: float | None = None
    suspended: tuple[int, ...] = ()


class _Sample(NamedTuple):
    """The processes at the moment `uptime`; `counters` are the bytes each has written, (wchar, write_bytes)."""

    uptime: float | None
    table: Mapping[int, Process]
    counters: Mapping[int, tuple[int, int]]


def parse_evidence(text: str) -> Evidence:
    """Parse the reply to the evidence question. Raises ParseError when its end is missing."""
    if not f"\n{text[-5:]}".removesuffix("\n").endswith("\nend"):
        raise ParseError("the reply is truncated", source="evidence", text=text)
    first, mark, second = text.partition("\nagain=")
    fields = {key: value for key, value in map(_field, each_line(text)) if key.isalpha()}
    ticks = read_number(fields.get("hz")) or 100.0
    now = _sample(first, fields.get("up"))
    running = [process for process in now.table.values() if process.is_running]
    awake = (read_number(fields.get("awake")) or 0.0) / ticks
    seen = Evidence(
        processes=len(running) if "table" in fields else None,
        pids=tuple(sorted(process.pid for process in running)),
        oom_kills=read_whole(fields.get("oom")),
        boot=fields.get("boot") or None,
        awake_seconds=awake if 0 < awake < _MOST_AWAKE else None,
        clock=read_number(fields.get("clock")),
    )
    if not running:
        return seen
    later = _sample(second, fields.get("again"))
    delay, delay_later = _delay(first), _delay(second)
    span = later.uptime - now.uptime if later.uptime is not None and now.uptime is not None else 0.0
    is_measured = span > 0 and delay is not None and delay_later is not None
    sums = _add_sums(seen, now, later, fields.get("roots", "").split(), ticks, _compile_workers(text))
    return replace(
        sums,
        memory_bytes=_memory(first, seen.pids),
        delay_seconds=delay,
        delay_cores=max(0.0, (delay_later or 0.0) - (delay or 0.0)) / span if is_measured else None,
        suspended=tuple(sorted(process.pid for process in running if process.state == "T")),
    )


def _add_sums(
    seen: Evidence, now: _Sample, later: _Sample, roots: Sequence[str], ticks: float, workers: frozenset[int]
) -> Evidence:
    """Return the evidence with the sums over its processes."""
    running = [process for process in now.table.values() if process.is_running]
    begun = min((process for process in running if str(process.pid) in roots), key=_age_of, default=None)
    span = later.uptime - now.uptime if later.uptime is not None and now.uptime is not None else 0.0
    runtime = now.uptime - begun.start / ticks if begun and now.uptime is not None else -1.0
    compiling = [each for each in running if _COMPILER.fullmatch(each.name) or (each.pid in workers and _works(each))]
    return replace(
        seen,
        cpu_seconds=_ticks(now) / ticks,
        written_bytes=_written(now),
        cpu_cores=max(0.0, _ticks(later) - _ticks(now)) / ticks / span if span > 0 else None,
        write_rate=_write_rate(now, later, span),
        blocked=sum(process.state == "D" for process in running),
        compilers=len(compiling),
        process=f"{begun.pid} {begun.start} {seen.boot}" if begun and seen.boot else None,
        runtime=runtime if runtime >= 0 else None,
    )


def parse_file_age(text: str) -> float | None:
    """Return the seconds since the newest file was written, from lines `file TIME` and a line `now TIME`.

    Files from the future are ignored, but for a small skew of a file server's clock. None without a file.
    """
    times = [(line.partition(" ")[0], read_whole(line.partition(" ")[2])) for line in text.splitlines()]
    now = next((float(time) for kind, time in times if kind == "now" and time), None)
    ages = (seconds_since(time, now) for kind, time in times if kind == "file" and time)
    return min((age for age in ages if age is not None), default=None)


def _field(line: str) -> tuple[str, str]:
    key, _, value = line.partition("=")
    return key, value


def _sample(text: str, uptime: str | None) -> _Sample:
    table = read_processes(each_line(text))
    written: dict[int, dict[str, int]] = {}
    for line in each_line(text):
        if (found := _COUNTER.fullmatch(line)) and (pid := int(found[1])) in table:
            written.setdefault(pid, {})[found[2]] = int(found[3])
    counters = {pid: (each.get("wchar", 0), each.get("write_bytes", 0)) for pid, each in written.items()}
    return _Sample(read_number(uptime), table, counters)


def _delay(text: str) -> float | None:
    """Return the seconds for which the threads waited for a processor."""
    found = next((value for key, value in map(_field, each_line(text)) if key == "delay"), None)
    nanoseconds = read_number(found)
    return None if nanoseconds is None else nanoseconds / 1e9


def _memory(text: str, pids: Sequence[int]) -> int | None:
    sizes = {int(found[1]): int(found[2]) * 1024 for line in each_line(text) if (found := _MEMORY.fullmatch(line))}
    known = [sizes[pid] for pid in pids if pid in sizes]
    return sum(known) if known else None


def _compile_workers(text: str) -> frozenset[int]:
    return frozenset(int(found[1]) for line in each_line(text) if (found := _COMPILE_WORKER.fullmatch(line)))


def _works(process: Process) -> bool:
    """Return whether a process computes right now: PyTorch's compile workers stay alive when idle."""
    return process.state == "R"


def _age_of(process: Process) -> tuple[int, int]:
    return process.start, process.pid


def _ticks(sample: _Sample) -> int:
    return sum(process.ticks + process.child_ticks for process in sample.table.values())


def _written(sample: _Sample) -> int | None:
    return sum(max(pair) for pair in sample.counters.values()) if sample.counters else None


def _write_rate(now: _Sample, later: _Sample, span: float) -> float | None:
    """Return bytes per second: for each process the larger growth of `wchar` and `write_bytes`."""
    both = [(now.counters[pid], after) for pid, after in later.counters.items() if pid in now.counters]
    if span <= 0 or not both:
        return None
    return sum(max(0, *(last - first for first, last in zip(before, after))) for before, after in both) / span


def read_number(text: str | None) -> float | None:
    """Return a text as a number that is not negative; None if it is anything else."""
    return float(text) if text and _NUMBER.fullmatch(text) else None


def pids_of(*pids: int) -> str:
    """Return a script that prints these pids."""
    return f"echo {' '.join(str(int(pid)) for pid in pids)}"


def pids_of_pid_file(path: str) -> str:
    """Return a script that prints the pid in a file. Raises SettingsError."""
    return format_call("pid_of_file", "show", file=quote_path(path))


def pids_of_log(expression: str) -> str:
    """Return a script that prints who writes a log (a shell expression), directly or through `tee` and the like."""
    return format_call("log_writers", "list_writers", log=Quoted(expression))


def evidence_question(roots: str, sample_seconds: float = 0.0) -> Question[Evidence]:
    """Ask what the processes of a training do.

    Args:
        roots: a script that prints the pids of the processes, or of their common ancestors: the result of a
            `pids_of…` function. A pid with `+` in front belongs to the training but never identifies it.
        sample_seconds: how long to sample for `cpu_cores` and `write_rate`; 0 leaves them unknown.
    """
    seconds = f"{max(0.0, sample_seconds):g}"
    script = format_call("evidence", "look", seconds=seconds, roots=Quoted(f'"$({roots}\n)"'))
    return Question("evidence", script, lambda reply: parse_evidence(reply.output), limit=10.0 + sample_seconds)


def file_age_question(folder: str) -> Question[float | None]:
    """Ask for the seconds since the newest file of a folder (a shell expression) was written; None when it is empty.

    It is separate from the evidence question, because a file system that hangs must not hide the processes that hang
    with it.
    """
    script = format_call("file_age", "show", most_files=_MOST_FILES, most_folders=_MOST_FOLDERS, folder=Quoted(folder))
    return Question("file age", script, lambda reply: parse_file_age(reply.output), limit=5.0)
