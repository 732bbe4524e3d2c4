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
        of: "f" if only files have such names, "." if folders have them, too.
    """

    made_by: str
    before: str | None = None
    after: str = ""
    counts: str = "steps"
    last: str = ""
    beside: re.Pattern[str] | None = None
    marks: tuple[str, ...] = ()
    tracker: str = ""
    of: str = "."


STEP = "([0-9]{1,12})"
WORD = "(global[_-]?step|step|checkpoint|ckpt|chkpnt|iteration|iter|batch|epoch)"
_METRIC = "val|loss|acc|accuracy|ppl|f1|auc|rew|reward|return|score|bleu|wer|m?ap|psnr|m?iou|mse|mae|rmse|fid|error"
_AFTER = f"v[0-9]{{1,3}}|ckpt|unsharded|tokens[0-9]+B|([a-z_]*_)?({_METRIC})[-_=]*-?[0-9]+[.][0-9]+[^/]*"  # loss_0.25
# The first row that fits a name decides.
LAYOUTS = (
    Layout("Lightning, NeMo", "([^/]*[^a-z/])?step=", "([^0-9/][^/]*)?"),  # epoch=1-step=500-val_loss=0.25-last
    Layout("Composer", "ep[0-9]+-ba", "(-rank[0-9]+)?"),
    Layout("fairseq", "([^/]*[^a-z/])?checkpoint_[0-9]+_"),  # epoch and updates
    Layout("timm", "recovery-", "-[0-9]+", counts="epochs"),  # epoch and batch
    Layout("Stable-Baselines3", "[^/]*[-_]", "_steps"),
    Layout("OneTrainer", "[^/]*-(save|backup)-", "-[0-9]+-[0-9]+"),  # step, epoch and step of the epoch
    Layout("llm.c", "([^/]*[^a-z/])?state_", "_[0-9]{5}"),
    Layout("LitGPT, OLMo, YOLOX", f"([^/]*[^a-z/])?{WORD}[-_=]?", f"([-_]({_AFTER}))?"),  # and most others
    Layout("PyTorch", "ep[-_=]?", f"([-_]({_AFTER}))?", counts="epochs"),
    Layout("rl_games", "[^/]*[^a-z/]ep[-_=]?", f"([-_]({_AFTER}))?", counts="epochs", of="f"),
    Layout("StyleGAN", "network-snapshot-"),
    Layout("Orbax", "", marks=("_CHECKPOINT_METADATA", "commit_success.txt")),
    Layout("Lightning", "([^/]*[^a-z/])?epoch=", "([^0-9/][^/]*)?", counts="epochs"),  # epoch=3-val_loss=0.25
    Layout("Keras", "[^/.]*[a-z][.]", "-[0-9]+[.][0-9]+", counts="epochs", of="f"),  # weights.03-0.25
    Layout(
        "transformers", last="trainer_state.json", beside=regex(r"training_args\.bin"), marks=("trainer_state.json",)
    ),
    Layout("torch", last=".metadata", beside=regex(r"(?:.*/)?[^/]*\.distcp")),
    Layout("kohya", marks=("train_state.json",)),
    Layout("DeepSpeed", marks=("latest",), tracker="latest"),
    Layout("nanotron", tracker="latest.txt"),
    Layout("Megatron-LM, verl", marks=("metadata.json",), tracker="latest_checkpointed_iteration.txt"),
    Layout("detectron2, mmengine", tracker="last_checkpoint"),
)
TRACKERS = tuple(each.tracker for each in LAYOUTS if each.tracker)
MARKS = frozenset(mark for each in LAYOUTS for mark in each.marks)
# What begins a name by itself, before the number of a step: a pattern without groups, for texts that hold such names.
PREFIXES = "|".join(
    each.before for each in LAYOUTS if each.before and each.before[0].isalpha() and each.counts == "steps"
)
_NAMED = tuple(each for each in LAYOUTS if each.before is not None)
_NAME = regex("|".join(f"(?P<_{at}>{each.before}{STEP}{each.after})" for at, each in enumerate(_NAMED)), re.IGNORECASE)


@lru_cache(maxsize=4096)
def find_layout(name: str) -> tuple[Layout, int] | None:
    """Return the layout of a folder, or of a file without its extension, and the step in the name."""
    found = _NAME.fullmatch(name)
    if not found or not found.lastindex:
        return None
    layout = _NAMED[int((found.lastgroup or "_0")[1:])]
    return layout, int(found[found.lastindex + (layout.before or "").count("(") + 1])
