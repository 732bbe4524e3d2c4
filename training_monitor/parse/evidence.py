"""What the processes of a training do, out of what `probes/evidence.py` prints. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from training_monitor.errors import ParseError
from training_monitor.parse.process_table import Process, read_processes

_COMPILER = re.compile(
    r"ptxas.*|cicc|nvcc|nvlink|fatbinary|cudafe\+\+|cc1|cc1plus|cc|c\+\+|(?:.*-)?(?:gcc|g\+\+|clang|clang\+\+)(?:-[\d.]+)?"
    r"|as|ld|ld\..*|lld|collect2|ninja|hipcc|neuron.*-cc"
)
_CLOCK_SKEW = 60  # seconds
_NUMBER = re.compile(r"\d{1,19}(?:\.\d{1,9})?", re.ASCII)
_COUNTER = re.compile(r"/proc/(\d{1,10})/io:(wchar|write_bytes): (\d{1,19})")
_COMPILE_WORKER = re.compile(r"/proc/(\d{1,10})/cmdline:compile_worker")
_MOST_AWAKE = 10**9  # seconds


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the process tree of a training did until one look; None is not known.

    Attributes:
        processes, pids: those that run. None of them, where it has ended or cannot be seen: the sums are None then.
        cpu_seconds: user and system time, of children that have ended and were waited for too. It shrinks when a
            process ends that nobody in the tree waits for.
        written_bytes: bytes written since they began. Of each process the larger of `wchar` and `write_bytes`: a
            checkpoint saved to NFS, FUSE, 9p or tmpfs shows in what write(2) took (`wchar`), one written by mmap or
            direct asynchronous I/O only in what went to the page cache or the disk (`write_bytes`). Log lines and
            pipes count in `wchar` too, so a few bytes a second say nothing. None when not one of them may be read.
        cpu_cores, write_rate: both per second during the look; None when it did not last.
        blocked: processes whose main thread waits in the kernel for a disk (state D).
        compilers: compilers, assemblers and linkers, and the compile workers of PyTorch that are at work.
        oom_kills: processes that the kernel killed for memory in its cgroup, or else in that of whoever asks.
        boot: the boot's id. awake_seconds: since then, without the time the machine was suspended, however clocks
            jump: what the first processor spent in all states. It may be some per mille off where time is stolen from
            a virtual machine; None where the kernel does not count it.
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
    process: str | None = None
    runtime: float | None = None


@dataclass(frozen=True, slots=True)
class _Sample:
    """The processes at one moment `uptime`: `counters` are what each one wrote, (wchar, write_bytes)."""

    uptime: float | None
    table: Mapping[int, Process]
    counters: Mapping[int, tuple[int, int]]


def parse_evidence(text: str) -> Evidence:
    """Read the reply of the evidence question. Raises ParseError when its end is missing."""
    lines = text.splitlines()
    if not lines or lines.pop() != "end":
        raise ParseError("no end of the reply", source="evidence", text=text)
    second = next((number for number, line in enumerate(lines) if line.startswith("again=")), len(lines))
    fields = dict(line.partition("=")[::2] for line in lines if "=" in line.partition(" ")[0])
    ticks = _number(fields.get("hz")) or 100.0
    now = _sample(lines[:second], fields.get("up"))
    running = [process for process in now.table.values() if process.is_running]
    awake = (_number(fields.get("awake")) or 0.0) / ticks
    seen = Evidence(
        processes=len(running) if "table" in fields else None,
        pids=tuple(sorted(process.pid for process in running)),
        oom_kills=_whole(fields.get("oom")),
        boot=fields.get("boot") or None,
        awake_seconds=awake if 0 < awake < _MOST_AWAKE else None,
    )
    if not running:
        return seen
    later = _sample(lines[second:], fields.get("again"))
    return _add_sums(seen, now, later, fields.get("roots", "").split(), ticks, _compile_workers(lines))


def _add_sums(
    seen: Evidence, now: _Sample, later: _Sample, roots: Sequence[str], ticks: float, workers: frozenset[int]
) -> Evidence:
    """The evidence with what its processes add up to."""
    running = [process for process in now.table.values() if process.is_running]
    begun = min((process for process in running if str(process.pid) in roots), key=_age_of, default=None)
    span = later.uptime - now.uptime if later.uptime is not None and now.uptime is not None else 0.0
    runtime = now.uptime - begun.start / ticks if begun and now.uptime is not None else -1.0
    compiling = [each for each in running if _COMPILER.fullmatch(each.name) or (each.pid in workers and _works(each))]
    return Evidence(
        seen.processes,
        seen.pids,
        cpu_seconds=_ticks(now) / ticks,
        written_bytes=_written(now),
        cpu_cores=max(0.0, _ticks(later) - _ticks(now)) / ticks / span if span > 0 else None,
        write_rate=_write_rate(now, later, span),
        blocked=sum(process.state == "D" for process in running),
        compilers=len(compiling),
        oom_kills=seen.oom_kills,
        boot=seen.boot,
        awake_seconds=seen.awake_seconds,
        process=f"{begun.pid} {begun.start} {seen.boot}" if begun and seen.boot else None,
        runtime=runtime if runtime >= 0 else None,
    )


def observe_evidence(evidence: Evidence | None, file_age: float | None = None) -> dict[str, Any]:
    """The fields of an Observation that the evidence fills, as keyword arguments."""
    known = asdict(evidence or Evidence())
    del known["pids"]
    return {**known, "file_age": file_age}


def parse_file_age(text: str) -> float | None:
    """Seconds since the newest file was written: lines `file TIME` and a line `now TIME`. None without a file.

    One from the future tells nothing; a file server's clock may differ a little.
    """
    times = [(line.partition(" ")[0], _whole(line.partition(" ")[2])) for line in text.splitlines()]
    now = next((time for kind, time in times if kind == "now" and time), 0)
    newest = max((time for kind, time in times if kind == "file" and time and time <= now + _CLOCK_SKEW), default=0)
    return max(0.0, float(now - newest)) if newest and now else None


def _sample(lines: Sequence[str], uptime: str | None) -> _Sample:
    written: dict[int, dict[str, int]] = {}
    for line in lines:
        if found := _COUNTER.fullmatch(line):
            written.setdefault(int(found[1]), {})[found[2]] = int(found[3])
    counters = {pid: (each.get("wchar", 0), each.get("write_bytes", 0)) for pid, each in written.items()}
    table = read_processes(lines)
    return _Sample(_number(uptime), table, counters)


def _compile_workers(lines: Sequence[str]) -> frozenset[int]:
    return frozenset(int(found[1]) for line in lines if (found := _COMPILE_WORKER.fullmatch(line)))


def _works(process: Process) -> bool:
    """Whether it computes right now: PyTorch's compile workers stay when they have nothing to do."""
    return process.state == "R"


def _age_of(process: Process) -> tuple[int, int]:
    return process.start, process.pid


def _ticks(sample: _Sample) -> int:
    return sum(process.ticks + process.child_ticks for process in sample.table.values())


def _written(sample: _Sample) -> int | None:
    return sum(max(pair) for pair in sample.counters.values()) if sample.counters else None


def _write_rate(now: _Sample, later: _Sample, span: float) -> float | None:
    """Bytes a second: of each process what grew more, of `wchar` and `write_bytes`."""
    both = [(now.counters[pid], after) for pid, after in later.counters.items() if pid in now.counters]
    if span <= 0 or not both:
        return None
    return sum(max(0, *(last - first for first, last in zip(before, after))) for before, after in both) / span


def _number(text: str | None) -> float | None:
    return float(text) if text and _NUMBER.fullmatch(text) else None


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else None
