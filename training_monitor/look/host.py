"""Read the GPUs of a target by nvidia-smi, the free space of its disks, and its memory usage."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from training_monitor.core.errors import ParseError, ToolNotFound, TrainingMonitorError
from training_monitor.core.models import GpuProcess, GpuTable, Question, Reply
from training_monitor.core.reports import GpuProcessReport, GpuReport, report_of
from training_monitor.core.units import average, seconds_since
from training_monitor.look.nvidia_smi import (
    GPU_FIELDS,
    GPU_FIELDS_MINIMAL,
    SMI_FOLDERS,
    parse_gpu_processes,
    parse_gpus,
)
from training_monitor.targets.asking import Site
from training_monitor.targets.scripts import Quoted, format_call
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport
from training_monitor.verdict.gpu_load import mode_of

_SEPARATOR, _HERE = "-- processes --", "-- here --"

GPU_SECONDS = 4.0  # beside other questions: a driver that hangs must not hold up their answers


@lru_cache(maxsize=4)  # a fleet asks the same of each member
def gpu_question(limit: float = 10.0) -> Question[tuple[GpuTable, tuple[GpuProcess, ...]]]:
    """Ask for all GPUs and their processes: two nvidia-smi calls under one time limit."""
    fields, minimal = ",".join(GPU_FIELDS), ",".join(GPU_FIELDS_MINIMAL)
    script = format_call("gpu", "show", fields=fields, minimal_fields=minimal, folders=":".join(SMI_FOLDERS))

    def parse(reply: Reply) -> tuple[GpuTable, tuple[GpuProcess, ...]]:
        if reply.exit_code == 127:
            raise ToolNotFound(
                "nvidia-smi was not found", hint="check that this machine has a GPU and that the container can use it"
            )
        if 128 < reply.exit_code <= 192:  # 255 is its own: NVML, unknown error
            what = f"nvidia-smi was terminated by signal {reply.exit_code - 128}"
            raise ParseError(what, source="nvidia-smi", text=reply.output[-500:])
        gpus, _, rest = reply.output.partition(_SEPARATOR)
        processes, _, here = rest.partition(_HERE)
        found, pids = parse_gpu_processes(processes), here.split()
        return parse_gpus(gpus), tuple(replace(each, is_here=str(each.pid) in pids) for each in found)

    return Question("gpu", script, parse, limit)


def check_gpu_utilization(
    head_pod: str | Target, namespace: str = "default", *, timeout: float = 10.0, transport: Transport | None = None
) -> GpuReport:
    """Query the GPU utilization of a target with nvidia-smi. If it cannot be queried, no exception is raised.

    Returns:
        A report. `healthy` is True if the query succeeded, found GPUs, and reported no errors. `busy` is True if at
        least one GPU is computing; a GPU that only waits in a collective, at idle power, does not count. Utilizations
        are in percent, memory in MB, power in watts, temperatures in °C. Values that nvidia-smi does not report ([N/A],
        MIG, ERR!) are None and are excluded from `avg_utilization`, which is None if no value is known.
    """
    site = Site.of(head_pod, namespace, transport)
    try:
        gpus, processes = site.ask_one(gpu_question(timeout))
    except TrainingMonitorError as error:
        return format_gpu_report(None, (), str(error))
    return format_gpu_report(gpus, processes)


def format_gpu_report(table: GpuTable | None, processes: tuple[GpuProcess, ...], error: str | None = None) -> GpuReport:
    """Format a GPU reading as the documented dict; `table` is None if it could not be asked."""
    gpus = table.gpus if table else ()
    error = error or (table.error if table else None)
    broken = [gpu.error for gpu in gpus if gpu.error]
    modes = [mode for gpu in gpus if (mode := mode_of(gpu))]
    return GpuReport(
        healthy=bool(gpus) and not error and not broken,
        busy="busy" in modes if modes else None,
        gpu_count=len(gpus) if table and (table.has_none or any(gpu.uuid or gpu.name for gpu in gpus)) else None,
        gpu_indexes=[gpu.index for gpu in gpus],
        gpu_names=[gpu.name for gpu in gpus],
        gpu_utilizations=[gpu.utilization for gpu in gpus],
        avg_utilization=average(gpu.utilization for gpu in gpus),
        memory_used=[gpu.memory_used_mb for gpu in gpus],
        memory_total=[gpu.memory_total_mb for gpu in gpus],
        memory_utilizations=[gpu.memory_utilization for gpu in gpus],
        power_draw=[gpu.power_draw_watts for gpu in gpus],
        power_limit=[gpu.power_limit_watts for gpu in gpus],
        temperatures=[gpu.temperature_celsius for gpu in gpus],
        mig_enabled=[gpu.mig_enabled for gpu in gpus],
        gpu_errors=[gpu.error for gpu in gpus],
        processes=[
            report_of(GpuProcessReport, each, gpu=each.gpu_uuid, memory=each.memory_used_mb) for each in processes
        ],
        error=error or (broken[0] if broken else None),
    )


@dataclass(frozen=True, slots=True)
class Disk:
    path: str
    free_bytes: int
    used_percent: float


def disk_question(*paths: str) -> Question[tuple[Disk, ...]]:
    """Ask for the free space at `paths`; missing paths are left out."""

    def parse(reply: Reply) -> tuple[Disk, ...]:
        there, _, table = reply.output.rpartition("\n--\n")
        paths, rows = there.split("\n"), [_read_row(line) for line in table.splitlines()[1:]]
        pairs = zip(paths, rows) if len(paths) == len(rows) else ()
        disks = tuple(Disk(path, row[1] * 1024, 100.0 * row[0] / sum(row)) for path, row in pairs if row)
        if not disks:
            raise ParseError("no file system in the reply", source="df", text=reply.output)
        return disks

    return Question("disk", format_call("host", "show_disks", *paths), parse, limit=5.0)


@dataclass(frozen=True, slots=True)
class LogHost:
    """The host of a log: its path (None: no such file), disk and memory usage in per cent; None means unknown.

    The disk is the one with the log, else with `/`. `log_age` is the seconds since the last write, by the target's
    clock.
    """

    log_path: str | None
    disk_percent: float | None
    ram_percent: float | None
    log_age: float | None = None


def log_host_question(expression: str | None) -> Question[LogHost]:
    """Ask for disk and memory usage at the log named by a shell expression, and when the log was last written."""

    def parse(reply: Reply) -> LogHost:
        memory, _, rest = reply.output.partition("--\n")
        table, _, path = rest.partition("--\n")
        return LogHost(path or None, _read_disk(table), _read_memory(memory), _read_age(memory))

    return Question("host", format_call("host", "show_log_host", file=Quoted(expression or "''")), parse, limit=5.0)


def _read_disk(table: str) -> float | None:
    """Return the used per cent in the last row of `df -P`."""
    rows = [row for line in table.splitlines() if (row := _read_row(line))]
    return 100.0 * rows[-1][0] / sum(rows[-1]) if rows else None


def _read_row(line: str) -> tuple[int, int] | None:
    """Return the used and the free KiB in a row of `df -Pk`, of a file system that has a size.

    The names of its device and its mount point may contain anything.
    """
    found = re.match(r"\S.*?\s\d{1,19}\s+(\d{1,19})\s+(-?\d{1,19})\s+(?:\d{1,3}%|-)\s", line, re.ASCII)
    used, free = (int(found[1]), max(0, int(found[2]))) if found else (0, 0)
    return (used, free) if used + free else None


def _read_memory(text: str) -> float | None:
    """Return the used per cent: the share of the total that is not available to a new program.

    The total is the memory of the machine (/proc/meminfo) or the limit of the container, whichever is fuller.
    """
    sizes = {name: int(size) for name, size in re.findall(r"^(\w+):\s+(\d{1,15}) kB$", text, re.MULTILINE)}
    total, available = sizes.get("MemTotal"), sizes.get("MemAvailable")
    used = [] if not total or available is None else [1 - available / total]
    limit = re.search(r"^limit (\d{1,19}) used (\d{1,19}) cached ([\d ]{1,40})$", text, re.MULTILINE)
    if limit and int(limit[1]):
        used.append(min(1.0, (int(limit[2]) - sum(map(int, limit[3].split()))) / int(limit[1])))
    return 100.0 * max([0.0, *used]) if used else None


def _read_age(text: str) -> float | None:
    """Return the seconds since the log was written to."""
    found = re.search(r"^written (\d{1,12}) now (\d{1,12})$", text, re.MULTILINE)
    return seconds_since(float(found[1]), float(found[2])) if found else None
