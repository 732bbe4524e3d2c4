"""Files in which trackers keep what a training prints or measures, which nobody keeps open. Pure.

W&B copies the output of a run to `files/output.log` in the run's folder, beside which the training has `logs/debug.log`
open (measured with wandb 0.31). Lightning's CSVLogger writes `metrics.csv` below the working folder, and is the default
where TensorBoard is not installed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from training_monitor.core.regex import regex
from training_monitor.logs.sources import METRICS

_ROUNDED = 2.0  # seconds of error, since the time of the boot and that of a file are whole seconds
_RUN_LOG = regex(r"(/.*/wandb/[a-z-]*run-[^/\n]*)/logs/debug\.log")


def read_kept(text: str, spelling: str, cwds: Mapping[int, str]) -> dict[str, float]:
    """Return when the files in the reply were written, in seconds since the boot.

    Of a path, `spelling` stands for the first slash.
    """
    found = dict[str, float]()
    boot = re.match(r"btime (\d{1,12})\n", text)
    if not boot:
        return found
    below = re.compile(rf"{re.escape(spelling)}proc/(\d{{1,10}})/cwd(/[^\n]*)")
    for at, path in re.findall(r"^(\d{1,12}) (/.*)$", text, re.MULTILINE):
        if inside := below.fullmatch(path):
            cwd = cwds.get(int(inside[1]))
            path = None if cwd is None else cwd.rstrip("/") + inside[2]
        if path:
            found[path] = float(at) - float(boot[1])
    return found


def sources_of(kept: Mapping[str, float], written: Iterable[str], folders: Iterable[str], since: float) -> list[str]:
    """Return the sources that trackers keep of a training that began `since` seconds after the boot, likeliest first.

    Args:
        kept: see `read_kept`. written: paths that its processes have open. folders: working folders that are its alone.
    """
    copies = [f"{run[1]}/files/output.log" for path in written if (run := _RUN_LOG.fullmatch(path))]
    tables = [path for path in kept for folder in folders if path.endswith(".csv") and path.startswith(f"{folder}/")]
    fresh = sorted((path for path in tables if kept[path] >= since - _ROUNDED), key=lambda path: -kept[path])
    return [*dict.fromkeys(path for path in copies if path in kept), *(METRICS + path for path in fresh[:1])]
