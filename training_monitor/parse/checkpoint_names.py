"""How frameworks name checkpoints, and which number of a name is the step: for Python here and for sed on the target.

The patterns keep to what both understand: POSIX extended regular expressions.
"""

from __future__ import annotations

import re
from functools import lru_cache

WEIGHTS = (".safetensors", ".pt", ".pth", ".ckpt", ".bin", ".distcp", ".tar", ".zip", ".npz")
LOOKED_INTO = tuple(ending for ending in WEIGHTS if ending != ".distcp")
TRACKERS = ("latest", "last_checkpoint", "latest_checkpointed_iteration.txt")
EXTENSION = re.compile(r"(?:\.pth?)?\.\w+$")
UNFINISHED_FOLDER = re.compile(r"(\.partial_save)?([._-](orbax-checkpoint-)?tmp.*|-unfinished|\.part|\.incomplete)$")
_STEP, _FILE_STEP = "([0-9]{1,12})", "([0-9]{3,12})"
WORD = "(global[_-]?step|step|checkpoint|ckpt|iteration|iter|batch|epoch)"
_STEP_NAMES = (  # what is before the step, and what is after it
    ("([^/]*[^a-z/])?step=", "([^0-9/][^/]*)?"),  # Lightning, NeMo: epoch=1-step=500-val_loss=0.25-last
    ("ep[0-9]+-ba", "(-rank[0-9]+)?"),  # Composer
    ("([^/]*[^a-z/])?checkpoint_[0-9]+_", ""),  # fairseq: epoch and updates
    ("recovery-", "-[0-9]+"),  # timm: epoch and batch
    ("[^/]*[-_]", "_steps"),  # Stable-Baselines3
    (f"([^/]*[^a-z/])?{WORD}[-_=]?", "(-v[0-9]{1,3})?"),
    ("", ""),  # Orbax
    ("([^/]*[^a-z/])?epoch=", "([^0-9/][^/]*)?"),  # Lightning: epoch=3-val_loss=0.25
)
_FILE_NAME = ("[^/]*[-_]", "(-v[0-9]{1,3})?")


def _compile(before: str, step: str, after: str) -> tuple[re.Pattern[str], int]:
    """A pattern, and the group that is the step."""
    return re.compile(before + step + after, re.IGNORECASE), before.count("(") + 1


_COMPILED = tuple(_compile(before, _STEP, after) for before, after in _STEP_NAMES)
_NUMBERED_FILE, _FILE_GROUP = _compile(_FILE_NAME[0], _FILE_STEP, _FILE_NAME[1])


@lru_cache(maxsize=4096)
def step_of(name: str) -> int | None:
    """The step in the name of a folder, or of a file without its extension."""
    matches = ((pattern.fullmatch(name), group) for pattern, group in _COMPILED)
    return next((int(found[group]) for found, group in matches if found), None)


def file_step(stem: str) -> int | None:
    """The step in the name of a file without its extension: there it may also be just a number at the end."""
    step, found = step_of(stem), _NUMBERED_FILE.fullmatch(stem)
    return int(found[_FILE_GROUP]) if found and step is None else step


def format_ranking() -> str:
    """A program for `sed -nE` that puts the step before each line `d ./FOLDER` or `f ./FILE`.

    It prints `STEP/./PATH`; `tracker/./PATH` and `-/./PATH` for files that are a tracker or have no step; and
    `open/./PATH` for folders in which checkpoints may be: all without a step, and those whose whole name is a number,
    which may be a date.
    """
    rules = [(".", before, _STEP, after) for before, after in _STEP_NAMES]
    rules.append(("f", _FILE_NAME[0], _FILE_STEP, _FILE_NAME[1]))
    lines = [
        r"s#^(.) (.*/)([^/]*)$#\1 \3/\2\3#",  # f NAME/./FOLDER/NAME
        rf"/^f ({'|'.join(TRACKERS).replace('.', '[.]')})\//{{",
        "s#^f [^/]*/#tracker/#p",
        "d",
        "}",
        r"s#^d ([^/]*)[._-]orbax-checkpoint-tmp[^/]*/#d \1/#",
        r"s#^d ([^/]*)([._-]tmp[^/]*|[.]part|[.]incomplete)/#d \1/#",
        r"s#^d ([^/]*)[.]partial_save/#d \1/#",
        r"s#^(.) ([^/]*)-unfinished/#\1 \2/#",
        r"s#^d ([^/]*)-state/#f \1/#",  # kohya
        r"s#^f ([^/]*)([.](tmp|part|incomplete)){1,3}/#f \1/#",
        r"s#^f ([^/]*)[.][A-Za-z0-9_]+/[.]/#f \1/./#",
        r"s#^f ([^/]*)[.]pth?/[.]/#f \1/./#",
        r"/^d [0-9]{1,12}\//{",
        "h",
        "s#^d [^/]*/#open/#p",
        "g",
        "}",
        "t rules",
        ":rules",
        *(
            rf"s#^{kind} {before}{step}{after}/#\{before.count('(') + 1}/#I"
            "\nt number"
            for kind, before, step, after in rules
        ),
        "s#^f [^/]*/#-/#p",
        "s#^d [^/]*/#open/#p",
        "b",
        ":number",
        r"s#^0+([0-9])#\1#",
        "p",
    ]
    return "\n".join(lines)
