"""What a script hands to its monitor, and what the monitor takes from the script's surroundings, checked. No files."""

from __future__ import annotations

import math
import os
import platform
import sys

from training_monitor.progress.endings import text_of


def is_rank_zero(rank: int | None) -> bool:
    """Whether this process is the one that writes: by its rank, else by RANK, which torchrun sets."""
    return os.environ.get("RANK", "0").strip() in ("", "0") if rank is None else rank == 0


def default_file() -> str:
    """progress/SCRIPT.json, and progress/run.json where there is no script."""
    folder, file = os.path.split(os.path.abspath(sys.argv[0] if sys.argv and sys.argv[0] else "run"))
    script = (os.path.basename(folder) if file == "__main__.py" else file).removesuffix(".py")
    if not script or script[0] in ".-":
        script = "run"
    before = "run_" if script in ("control", "progress") or script.startswith("control_") else ""
    return os.path.join("progress", f"{before}{script}.json")


def metadata(run_name: object, rank: int | None, wandb_run_name: object, wandb_url: object) -> dict[str, object]:
    """What is known of the script from the beginning (docs/progress_files.md)."""
    return {
        "run_name": text_of(run_name)[:200],
        "script_name": os.path.basename(sys.argv[0] if sys.argv else "") or None,
        "python_version": platform.python_version(),
        "rank": 0 if rank == 0 or "RANK" in os.environ else None,
        "wandb_run_name": None if wandb_run_name is None else text_of(wandb_run_name)[:200],
        "wandb_url": None if wandb_url is None else text_of(wandb_url)[:1000],
    }


def whole(name: str, value: object) -> int | None:
    """A count; None stays None. Raises TypeError for what is none, and for negative ones ValueError."""
    if value is None:
        return None
    number = int(value) if isinstance(value, float) and value.is_integer() else value
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise TypeError(f"{name} is a whole number, not {text_of(value)[:100]!r}")
    if number.__index__() < 0:
        raise ValueError(f"{name} cannot be negative, as {number} is")
    return int(number.__index__())


def amount(name: str, value: object) -> float:
    """A finite number that is not negative, else TypeError or ValueError."""
    number = float(value)  # type: ignore[arg-type]
    if not 0 <= number < math.inf:
        raise ValueError(f"{name} is a number that is not negative, not {text_of(value)[:100]}")
    return number
