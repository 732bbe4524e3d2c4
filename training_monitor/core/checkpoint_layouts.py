"""How frameworks name their checkpoints, and what a complete one has: a layout is one row. Pure.

The patterns of names are used in Python, and by sed on the target: they are POSIX extended regular expressions that
both understand. A file of one of these layouts is named like a folder, with an extension.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from training_monitor.core.regex import regex


class Layout(NamedTuple):
    """One layout.

    Attributes:
        made_by: the frameworks that write it.
        before: what stands before the step in a name; None if its names are those of other layouts.
        after: what stands behind it.
        counts: steps | epochs, where it counts nothing else.
        last: the file that is written last: without it, a checkpoint is incomplete.
        beside: files that have `last` beside them; without a pattern, every folder of this name has it.
        marks: files that a checkpoint has if others of its kind have them.
        tracker: a file beside the checkpoints that says which one is the newest.
    """

    made_by: str
    before: str | None = None
    after: str = ""
    counts: str = "steps"
    last: str = ""
    beside: re.Pattern[str] | None = None
    marks: tuple[str, ...] = ()
    tracker: str = ""


STEP = "([0-9]{1,12})"
WORD = "(global[_-]?step|step|checkpoint|ckpt|chkpnt|iteration|iter|batch|epoch)"
# The first row that fits a name decides.
LAYOUTS = (
    Layout("Lightning, NeMo", "([^/]*[^a-z/])?step=", "([^0-9/][^/]*)?"),  # epoch=1-step=500-val_loss=0.25-last
    Layout("Composer", "ep[0-9]+-ba", "(-rank[0-9]+)?"),
    Layout("fairseq", "([^/]*[^a-z/])?checkpoint_[0-9]+_"),  # epoch and updates
    Layout("timm", "recovery-", "-[0-9]+", counts="epochs"),  # epoch and batch
    Layout("Stable-Baselines3", "[^/]*[-_]", "_steps"),
    Layout("LitGPT, OLMo", f"([^/]*[^a-z/])?{WORD}[-_=]?", "(-v[0-9]{1,3}|-ckpt|-unsharded)?"),  # and most others
    Layout("StyleGAN", "network-snapshot-"),
    Layout("Orbax", "", marks=("_CHECKPOINT_METADATA", "commit_success.txt")),
    Layout("Lightning", "([^/]*[^a-z/])?epoch=", "([^0-9/][^/]*)?", counts="epochs"),  # epoch=3-val_loss=0.25
    Layout(
        "transformers", last="trainer_state.json", beside=regex(r"training_args\.bin"), marks=("trainer_state.json",)
    ),
    Layout("torch", last=".metadata", beside=regex(r"(?:.*/)?[^/]*\.distcp")),
    Layout("kohya", marks=("train_state.json",)),
    Layout("DeepSpeed", marks=("latest",), tracker="latest"),
    Layout("Megatron-LM, verl", marks=("metadata.json",), tracker="latest_checkpointed_iteration.txt"),
    Layout("detectron2, mmengine", tracker="last_checkpoint"),
)
TRACKERS = tuple(each.tracker for each in LAYOUTS if each.tracker)
MARKS = frozenset(mark for each in LAYOUTS for mark in each.marks)
# What begins a name by itself, before the number of a step: a pattern without groups, for texts that hold such names.
PREFIXES = "|".join(
    each.before for each in LAYOUTS if each.before and each.before[0].isalpha() and each.counts == "steps"
)


def compile_name(before: str, step: str, after: str) -> tuple[re.Pattern[str], int]:
    """Return the pattern of a name, and the group that is the step."""
    return regex(before + step + after, re.IGNORECASE), before.count("(") + 1


_NAMES = tuple((each, *compile_name(each.before, STEP, each.after)) for each in LAYOUTS if each.before is not None)


@lru_cache(maxsize=4096)
def find_layout(name: str) -> tuple[Layout, int] | None:
    """Return the layout of a folder, or of a file without its extension, and the step in the name."""
    matches = ((layout, group, pattern.fullmatch(name)) for layout, pattern, group in _NAMES)
    return next(((layout, int(found[group])) for layout, group, found in matches if found), None)
