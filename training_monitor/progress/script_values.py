"""What a script hands to its monitor, and what the monitor takes from the script's surroundings, checked. No files."""

from __future__ import annotations

import math
import os
import platform
import sys

from training_monitor.policy.run_values import RANK_VARIABLES
from training_monitor.progress.endings import text_of

_WITHIN_NODES = ("LOCAL_RANK", "NODE_RANK")


def is_rank_zero(rank: int | None) -> bool:
    """Whether this process is the one that writes: by its rank, else by that of the launcher.

    Without a rank among all there may be those within a node and of the node: the first of the first may write.
    """
    if rank is not None:
        return rank == 0
    known = _rank_of_launcher()
    return all(_is_zero(name) for name in _WITHIN_NODES) if known is None else known == "0"


def _rank_of_launcher() -> str | None:
    """The first rank among all processes that a launcher set: torchrun within srun knows better than srun."""
    return next((rank for name in RANK_VARIABLES if (rank := os.environ.get(name, "").strip())), None)


def _is_zero(name: str) -> bool:
    return os.environ.get(name, "").strip() in ("", "0")


def is_data_worker() -> bool:
    """Whether this is a worker process of a torch DataLoader, by torch's own word; torch is not imported for it."""
    get_worker_info = getattr(sys.modules.get("torch.utils.data"), "get_worker_info", None)
    return callable(get_worker_info) and get_worker_info() is not None


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
        "rank": 0 if rank == 0 or _rank_of_launcher() else None,
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
