"""Parse the CSV output of `nvidia-smi`, without ever turning "not reported" into zero. Pure.

    nvidia-smi --query-gpu=<GPU_FIELDS> --format=csv,noheader,nounits 2>&1
    nvidia-smi --query-compute-apps=<PROCESS_FIELDS> --format=csv,noheader,nounits 2>&1

Sources: `nvidia-smi --help-query-gpu` and the driver's messages ([N/A] on MIG and integrated GPUs, [Not Supported],
[Unknown Error], [GPU requires reset], ERR!).
"""

from __future__ import annotations

import re

from training_monitor.core.errors import ParseError
from training_monitor.core.models import Gpu, GpuProcess, GpuTable
from training_monitor.core.regex import regex

# Where images and WSL have it, which are not always on PATH.
SMI_FOLDERS = ("/usr/local/nvidia/bin", "/usr/lib/wsl/lib", "/opt/bin")

GPU_FIELDS: tuple[str, ...] = (
    "index",
    "uuid",
    "name",
    "utilization.gpu",
    "utilization.memory",
    "memory.used",
    "memory.total",
    "power.draw",
    "power.limit",
    "temperature.gpu",
    "mig.mode.current",
)

GPU_FIELDS_MINIMAL: tuple[str, ...] = ("index", "name", "utilization.gpu", "memory.used", "memory.total")

PROCESS_FIELDS: tuple[str, ...] = ("pid", "process_name", "gpu_uuid", "used_memory")

_LISTS = (GPU_FIELDS, GPU_FIELDS_MINIMAL)

_LOST_GPU = regex(
    r"Unable to determine the device handle for (?:GPU|gpu)\s?(\d{0,4})\S{0,40}.{0,40}?:\s*(.{1,200})", re.IGNORECASE
)

_DRIVER_ERRORS = regex(
    r"No devices were found|Failed to initialize NVML|NVIDIA-SMI (?:has failed|couldn't)"
    r"|couldn't communicate with the NVIDIA driver"
    r"|Driver/library version mismatch|Insufficient Permissions|GPU is lost|^GPU access blocked",
    re.IGNORECASE,
)

MOST_GPUS, MOST_PROCESSES = 512, 512
_NO_GPU = regex(r"No devices were found", re.IGNORECASE)

_NUMBER = regex(r"([+-]?\d{1,12}(?:\.\d{1,9})?)\s?(?:%|W|MiB|MB|C)?", re.ASCII)

_ERROR_WORD = regex(r"\[?(?:Unknown Error|GPU requires reset|GPU is lost|ERR!|Unable to .{0,80})\]?", re.IGNORECASE)

_GONE_WORD = regex(r"\[?(?:GPU requires reset|GPU is lost)\]?", re.IGNORECASE)  # in any column

_PID = regex(r"\s*(\d{1,10})\s*,(.*)$")


def parse_gpus(text: str) -> GpuTable:
    """Parse the rows of either field list; unreported values are None, and a lost GPU does not hide others.

    Args:
        text: stdout and stderr of `nvidia-smi --query-gpu=... --format=csv,noheader,nounits`; units are accepted.

    Returns:
        GpuTable: one Gpu per row and per GPU that the driver could not open (`error` says why); `error` of the table is
            the driver's own message if it reported no GPU at all (no devices, version mismatch, driver not running).
            Memory in MiB as nvidia-smi counts it, power in watts, utilization in per cent.

    Raises:
        ParseError: the text is empty, binary or otherwise not from nvidia-smi.
    """
    gpus: list[Gpu] = []
    messages: list[str] = []
    unknown: list[Gpu] = []  # the rows of GPUs that the driver could not open
    lost = 0  # messages about such GPUs
    for line in text.splitlines():
        gpu = read_lost_gpu(line)
        lost += gpu is not None
        gpu = gpu or _row(line)
        if gpu is not None:
            gpus.append(gpu)
        elif error := _only_error(line):
            unknown.append(Gpu(index=None, error=error))
        elif said := read_driver_error(line):
            messages.append(said)
    gpus += unknown[lost:]
    if len(gpus) > MOST_GPUS:
        raise ParseError(f"the output lists more than {MOST_GPUS} GPUs", source="nvidia-smi", text=text[:1000])
    if not gpus and not messages:
        raise ParseError("the output contains neither GPU rows nor a known message", source="nvidia-smi", text=text)
    has_none = not gpus and any(_NO_GPU.search(said) for said in messages)
    messages = [said for said in messages if not gpus or not _NO_GPU.search(said)]  # beside a lost one, no other
    return GpuTable(gpus=tuple(gpus), error=messages[0] if messages else None, has_none=has_none)


def parse_gpu_processes(text: str) -> tuple[GpuProcess, ...]:
    """Parse the first MOST_PROCESSES compute processes; other lines are skipped, and no process is an empty tuple.

    Args:
        text: output of `nvidia-smi --query-compute-apps=pid,process_name,gpu_uuid,used_memory
            --format=csv,noheader,nounits`; names may contain commas and spaces.

    Returns:
        GpuProcess per row, `memory_used_mb` in MiB or None if not reported.
    """
    found: list[GpuProcess] = []
    for line in text.splitlines():
        if len(found) == MOST_PROCESSES:
            break
        row = _PID.match(line)
        if not row or row[2].count(",") < 2:
            continue
        name, gpu_uuid, memory = (part.strip() for part in row[2].rsplit(",", 2))
        found.append(GpuProcess(int(row[1]), name, _word(gpu_uuid), _number(memory)))
    return tuple(found)


def read_lost_gpu(line: str) -> Gpu | None:
    """Return a GPU that the driver names but cannot open; the line has its bus address instead of an index."""
    found = _LOST_GPU.search(line)
    if not found or "insufficient permissions" in found[2].lower():  # that of others, or of another container
        return None
    is_address = re.match(r":\S", line[found.end(1) :])  # GPU 0000:41:00.0, not GPU1: 0000:41:00.0
    index = int(found[1]) if found[1] and not is_address else None
    return Gpu(index=index, error=line.strip()[:300])


def read_driver_error(line: str) -> str | None:
    """Return what the driver says in a line if it is an error of its own."""
    return line.strip()[:300] if _DRIVER_ERRORS.search(line) else None


def _only_error(line: str) -> str | None:
    """Return the error in the row of a GPU of which the driver does not know even the index; None for other lines."""
    cells = [cell.strip() for cell in line.split(",")]
    is_row = len(cells) >= len(GPU_FIELDS_MINIMAL) and all(map(_ERROR_WORD.fullmatch, cells))
    return cells[0].strip("[]") if is_row else None


def _row(line: str) -> Gpu | None:
    cells = [cell.strip() for cell in line.split(",")]
    if not cells[0].isascii() or not cells[0].isdigit() or len(cells[0]) > 4:
        return None
    fields = next((fields for fields in _LISTS if len(cells) >= len(fields) and _fits(cells, fields)), None)
    if fields is None:
        return None
    return _gpu(dict(zip(fields, _rejoined(cells, fields), strict=True)))


def _fits(cells: list[str], fields: tuple[str, ...]) -> bool:
    """Whether the cells match: a full row has a GPU id in column two or all columns, a minimal one exactly five."""
    if fields is GPU_FIELDS:
        return len(cells) == len(fields) or cells[1].startswith(("GPU-", "MIG-"))
    return len(cells) < len(GPU_FIELDS) and not cells[1].startswith(("GPU-", "MIG-"))


def _rejoined(cells: list[str], fields: tuple[str, ...]) -> list[str]:
    """Return the cells with a name that contains commas rejoined, splitting from both ends."""
    before = fields.index("name")
    after = len(fields) - before - 1
    end = len(cells) - after
    return [*cells[:before], ", ".join(cells[before:end]), *cells[end:]]


def _gpu(row: dict[str, str]) -> Gpu:
    readings = [value for field, value in row.items() if field not in ("index", "uuid", "name", "mig.mode.current")]
    troubled = [value for value in readings if _ERROR_WORD.fullmatch(value)]
    gone = [value for value in troubled if _GONE_WORD.fullmatch(value)]
    dead = gone or (troubled if all(_number(value) is None for value in readings) else [])
    mig = row.get("mig.mode.current", "").lower()
    return Gpu(
        index=int(row["index"]),
        uuid=_word(row.get("uuid", "")),
        name=_word(row["name"]),
        utilization=_number(row["utilization.gpu"]),
        memory_utilization=_number(row.get("utilization.memory", "")),
        memory_used_mb=_number(row["memory.used"]),
        memory_total_mb=_number(row["memory.total"]),
        power_draw_watts=_number(row.get("power.draw", "")),
        power_limit_watts=_number(row.get("power.limit", "")),
        temperature_celsius=_number(row.get("temperature.gpu", "")),
        mig_enabled={"enabled": True, "disabled": False}.get(mig),
        error=dead[0].strip("[]") if dead else None,
    )


def _number(text: str) -> float | None:
    """Parse `35`, `35 %`, `300.00 W` or `81920 MiB`; None for `[N/A]`, `[Not Supported]`, an error or nothing."""
    found = _NUMBER.fullmatch(text.strip())
    return float(found[1]) if found else None


def _word(text: str) -> str | None:
    return None if not text or text.startswith("[") or text in ("N/A", "ERR!") else text
