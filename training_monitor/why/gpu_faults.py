"""Faults of GPUs in the output of `nvidia-smi -q`. Pure.

Sections are told by indentation. The counters called volatile began when the driver was loaded or the GPU was reset:
uncorrectable errors in DRAM are contained, and their rows replaced at the next reset; any other one needs that reset.
What a driver does not report is no fault. Reduced clocks are reported as they are now: they make a rank slow, and one
look does not show for how long.
"""

from __future__ import annotations

from collections.abc import Iterator

from training_monitor.core.regex import regex
from training_monitor.core.units import name_some
from training_monitor.look.nvidia_smi import read_driver_error, read_lost_gpu
from training_monitor.why.ranks import Finding, Surroundings, finding

_GPU = regex(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*")
_LINE = regex(r"( {0,40})([^\s:][^:]{0,60}?) *(?::(?: (.{0,100})|))?")
_COUNT = regex(r"[1-9][0-9]{0,18}")
_RECOVERY = regex(r"[A-Z][A-Za-z0-9_ ]{1,40}")  # what the driver would have done: Reset, Reboot, Drain P2P
_CLOCKS = ("Clocks Event Reasons", "Clocks Throttle Reasons")  # the latter by drivers before 535
_SLOWED = ("HW Thermal Slowdown", "HW Power Brake Slowdown", "SW Thermal Slowdown")
_MOST_NAMED = 3
_NEEDS_RESET = regex(r"\[?(?:GPU requires reset|GPU is lost)\]?")


def parse_gpu_details(text: str) -> Surroundings:
    """Parse the output of `nvidia-smi -q`, of which any part may be missing. Never raises."""
    found: dict[str, Finding] = {}
    unread: dict[str, None] = {}
    slowed: dict[str, list[str]] = {}  # by the reason: one finding, as heat often reaches all GPUs of a machine
    gpu, sections = "", list[tuple[int, str]]()
    for line in text.splitlines():
        if begins := _GPU.fullmatch(line):
            gpu, sections = begins[1], []
        elif lost := read_lost_gpu(line):
            said = lost.error or ""
            found.setdefault(said, finding("gpu", f"nvidia-smi: {said}", is_hardware=True))
        elif not gpu and (error := read_driver_error(line)):
            unread[f"nvidia-smi: {error}"] = None
        elif gpu and (read := _LINE.fullmatch(line.rstrip())):
            sections = [each for each in sections if each[0] < len(read[1])]
            if read[3] is None:
                sections.append((len(read[1]), read[2]))
            names = [name for _, name in sections]
            if set(names[:1]) & set(_CLOCKS) and read[2] in _SLOWED and (read[3] or "").strip() == "Active":
                slowed.setdefault(read[2], []).append(gpu)
            for fault in _faults(gpu, names, read[2], (read[3] or "").strip()):
                found.setdefault(fault.text, fault)
    for reason, gpus in slowed.items():
        where = f"GPU {gpus[0]}: its" if len(gpus) == 1 else f"GPUs {name_some(gpus, _MOST_NAMED)}: their"
        found[reason] = finding("gpu", f"{where} clocks are reduced at the moment ({reason})")
    return Surroundings(tuple(found.values()), unread=tuple(unread))


def _faults(gpu: str, sections: list[str], name: str, value: str) -> Iterator[Finding]:
    """Yield what one field says of a GPU, if that is a fault."""
    where, section = f"GPU {gpu}", sections[0] if sections else ""
    if name == "GPU Recovery Action" and value != "None" and _RECOVERY.fullmatch(value):
        yield finding("gpu", f"{where}: its driver recommends {value} as the recovery action", is_hardware=True)
    elif _NEEDS_RESET.fullmatch(value) or (value == "Yes" and name == "Reset Required"):
        yield finding("gpu", f"{where}: according to nvidia-smi, it needs a reset or is lost", is_hardware=True)
    elif section == "ECC Errors" and "Volatile" in sections and _COUNT.fullmatch(value):
        if "Uncorrectable" in name or ("Double Bit" in sections and name == "Total"):
            what = f"{where}: {value} uncorrectable ECC errors ({name}) since its driver was loaded"
            yield finding("ecc", what, is_hardware="DRAM" not in name)
    elif section == "ECC Errors" and value == "Yes":  # SRAM Threshold Exceeded, Channel Repair Pending, ...
        yield finding("ecc", f"{where}: nvidia-smi reports {name}", is_hardware="Pending" not in name)
    elif section == "Fabric" and (name, value) == ("Summary", "Unhealthy"):
        yield finding("gpu", f"{where}: its connection to the NVLink fabric is unhealthy", is_hardware=True)
    elif section == "Remapped Rows" and name == "Remapping Failure Occurred" and value == "Yes":
        yield finding("ecc", f"{where}: a faulty memory row could not be remapped", is_hardware=True)
    elif value == "Yes" and section in ("Remapped Rows", "Retired Pages") and name.startswith("Pending"):
        yield finding("ecc", f"{where}: faulty memory rows will not be remapped until the GPU is reset")
