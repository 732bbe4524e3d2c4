"""A line for each GPU: its use, memory, power and temperature. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from training_monitor.core.models import Gpu
from training_monitor.core.units import known_number
from training_monitor.ui.kit.page import LABEL
from training_monitor.ui.kit.text import NOT_KNOWN, Piece, fit, format_bar, format_whole
from training_monitor.ui.kit.view import View
from training_monitor.verdict.gpu_load import mode_of, power_fraction

HOT, VERY_HOT = 85.0, 92.0  # °C; GPUs slow down from about here on
FULL_MEMORY = 0.98
WIDE, BARRED, NARROW = 100, 80, 60  # cells of the screen from which a GPU has its name, its bar, and its full label


def is_odd(gpu: Gpu) -> bool:
    """Return whether a GPU has a problem."""
    return bool(gpu.error) or any(style for _, style in _gpu_cells(gpu, ""))


def gpu_line(gpu: Gpu, view: View) -> Sequence[Piece]:
    """Format one GPU, with a bar and its name where the screen has room."""
    number = "?" if gpu.index is None else str(gpu.index)
    is_narrow = view.width < NARROW
    pieces: list[Piece] = [(fit(f"GPU {number}", 6 if is_narrow else LABEL, view.glyphs), "dim")]
    if gpu.error:
        return [*pieces, (view.safe(gpu.error), "bad")]
    if view.width >= BARRED:
        pieces += [(format_bar(known_number(gpu.utilization), 20, view.glyphs), "good"), ("  ", "")]
    gap = " " if is_narrow else "  "
    for text, style in _gpu_cells(gpu, "" if is_narrow else " "):
        pieces += [(text, style), (gap, "")]
    return [*pieces, (view.safe(gpu.name or ""), "dim")] if view.width >= WIDE else pieces


def _gpu_cells(gpu: Gpu, space: str) -> list[Piece]:
    """Format use, memory, power and temperature; `space` is before a unit."""
    mode, heat = mode_of(gpu), known_number(gpu.temperature_celsius)
    used, total = known_number(gpu.memory_used_mb), known_number(gpu.memory_total_mb)
    share = used / total if used is not None and total else 0.0
    power = power_fraction(gpu)
    hot = "bad" if heat is not None and heat >= VERY_HOT else "warn" if heat is not None and heat >= HOT else ""
    return [
        (f"{format_whole(gpu.utilization)}{space}%".rjust(5), "warn" if mode == "idle" else ""),
        (f"{_gib(used)}/{_gib(total)}{space}GiB".rjust(14 if space else 12), "warn" if share >= FULL_MEMORY else ""),
        (
            f"{format_whole(gpu.power_draw_watts)}/{format_whole(gpu.power_limit_watts)}{space}W".rjust(9),
            "warn" if mode == "spinning" and power is not None else "",
        ),
        (f"{format_whole(heat)}{space}C".rjust(4), hot),
    ]


def _gib(mib: float | None) -> str:
    return NOT_KNOWN if mib is None else f"{mib / 1024:.1f}"
