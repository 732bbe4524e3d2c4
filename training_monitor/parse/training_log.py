"""The progress a training log shows, whatever framework wrote it.

What it answers: the newest step, epoch, loss, speed and remaining time, in text order; never the largest number.
What it refuses: counting validation, download, generation and preprocessing bars, settings echoed at the start
(`save_steps=500`), the command line Ray prints, the step a run resumed from, or a total it was not told.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from training_monitor.models import Progress
from training_monitor.parse.log_fields import read_fields
from training_monitor.parse.log_text import last_match, log_pieces, parse_duration

# tqdm: `name:  10%|█  | 10/100 [00:12<01:48,  1.20s/it, loss=0.5]`, also cut at the end of the text
_BAR = re.compile(
    r"(?<![\w./])(?P<count>\d{1,12})(?:/(?P<total>\d{1,12}|\?)|it) \[(?P<elapsed>[^<,\]\[]{0,20})"
    r"(?:<(?P<eta>(?:\d{1,4} days?, )?[^,\]]{0,30}))?,\s{0,4}(?P<rate>\d{1,12}(?:\.\d{1,9})?|\?)\s?"
    r"(?P<unit>[A-Za-z]{1,12}/[A-Za-z]{1,12})(?P<notes>[^\]]{0,1500})\]?"
)
_STEP_UNITS = frozenset({"it", "its", "step", "steps", "ba", "batch", "batches", "iter", "iters", "update", "updates"})
_EPOCH_UNITS = frozenset({"epoch", "epochs", "ep"})
_OTHER_BAR = re.compile(
    r"validat|evaluat|generat|loading|download|fetching|quantiz|tokeniz|cach(?:e|ing)|processed prompts|rollout"
    r"|resolving|sanity check|preprocess|pre-process|cuda graph|safetensors|upload|extracting|converting|preparing"
    r"|grouping|packing|encoding|decoding|compiling|unpacking|predicting|scoring|box\(p|reading|writing|importing"
    r"|(?:^|\s)(?:val|eval|test|testing|map|filter|pack|score|sampling|saving|inference|shards?)\b"
)
_EPOCH_BAR = re.compile(r"(?:^|\s)(?:epoch|episode)s?\s{0,4}:?\s{0,4}\[?\s{0,3}(\d{1,9})(?:\s?/\s?(\d{1,9}))?")
_TORCHTUNE_BAR = re.compile(r"(\d{1,9})\|(\d{1,12})\|(?=loss)")
_NAME_FIELDS = frozenset({"loss", "learning_rate", "step", "epoch", "total_epochs"})
_EPOCHS_BAR = re.compile(r"(?:^|\s)(?:epochs?|training epochs?)\s?:?\s*$")

_NOT_PROGRESS = re.compile(
    r"running entrypoint|\bresum(?:e|ed|ing)\b|\brestor(?:e|ed|ing)\b|\bload(?:ed|ing)\b[^\n]{0,200}\bcheckpoint"
    r"|\bcontinu(?:e|ing) (?:training )?from\b|\b(?:namespace|arguments?|config|configuration)\s?[({=]"
    r"|^\s*(?:[+$] )?(?:python3?|torchrun|accelerate|deepspeed|srun|mpirun|bash|ray job) "
    r"|(?:^|[\s\[])(?:val|valid|validation|eval|evaluation|test|testing)\s?(?:[:\]\[|]| on ')"
    r"|epoch\s?\(val\)|\bbox\(p\b"
)
# "Step 2: install", "Step 3/12 : RUN": a script's or docker's own counting
_NUMBERED_STAGE = re.compile(r"^\W{0,10}step \d{1,4}(?:/\d{1,4})?\s?[:.\-]\s{1,4}[a-z]")
_NEW_ATTEMPT = re.compile(r"running entrypoint|running training|traceback \(most recent|\bresum(?:e|ed|ing)\b")
_SAVE = re.compile(
    r"\b(?:saved?|saving|wrote|writing|written|stored|storing)\b[^\n]{0,120}?"
    r"(?:checkpoint|ckpt|model|state|weights|safetensors|step)|\bcheckpoint (?:\S{1,200} )?(?:saved|written)"
)
_SAVED_STEP = re.compile(
    r"(?:checkpoints?[-_ ]|steps?[-_ =:]{1,3}|iter(?:ation)?[-_ =:]{1,3})(\d{1,12})(?![\w.]*\d)"
    r"|(?<!epoch)[-_](\d{1,12})\.(?:safetensors|pth?|ckpt|bin)\b"
)
_FINISHED = re.compile(
    r"\btraining (?:is |has )?(?:been )?(?:completed?|finished|done)\b(?! (?:iteration|epoch|step))"
    r"|\b(?:finished|completed|done) training\b(?! (?:epoch|step|iteration|batch))|['\"]train_runtime['\"]"
    r"|\bjob '[^']{1,200}' succeeded|local worker group finished|worker group successfully finished"
    r"|trainer\.fit` stopped: `max_(?:epochs|steps)=\d{1,12}` reached"
)
_ANNOUNCED = (
    (
        "total_steps",
        re.compile(r"\btotal (?:optimization |training |train )?steps\b[^:=\d]{0,20}[:=]\s{0,4}(\d[\d,]{0,15})"),
    ),
    ("total_epochs", re.compile(r"\bnum(?:ber of)? (?:train(?:ing)? )?epochs\b[^:=\d]{0,20}[:=]\s{0,4}(\d{1,9})")),
)


def parse_progress(text: str) -> Progress:
    """Read the newest progress out of a log, or the end of one. Never raises.

    Args:
        text: Log text; `\\r` redraws, colours, Ray, srun, mpirun and torchrun prefixes may be in it.

    Returns:
        Progress with None for what the text does not say. `step` and `total_steps` count the job; a counter inside
        an epoch is `epoch_step` of `epoch_steps`. Times in seconds; throughput as printed (some frameworks print it
        per GPU); `eta_scope` is "job" or "epoch"; `finished` is True on an unmistakable last line, else None.
    """
    reader = _Reader()
    for piece in log_pieces(text):
        reader.read(piece)
    return reader.progress


class _Reader:
    """Reads pieces in text order; what a later piece says replaces what an earlier one said."""

    def __init__(self) -> None:
        self.progress = Progress()
        self._job_total: int | None = None  # of the unnamed job bar: smaller unnamed bars inside it are evaluation
        self._finished_at: int | None = None

    def read(self, piece: str) -> None:
        """One piece: bars, and what other loggers wrote before, between and behind them on the same line."""
        start = 0
        for bar in _BAR.finditer(piece):
            words, name = _split_name(piece[start : bar.start()])
            self._read_words(words)
            self._read_bar(name.lower(), bar)
            start = bar.end()
        self._read_words(piece[start:])

    def _read_words(self, words: str) -> None:
        line = words.strip().lower()
        if not line:
            return
        if _NEW_ATTEMPT.search(line):
            self._job_total = None
        self._read_announced(line)
        if _FINISHED.search(line) and not re.search(r"\bepoch \d", line):
            self.progress, self._finished_at = replace(self.progress, finished=True), self.progress.step
        if _NOT_PROGRESS.search(line):
            return
        fields = read_fields(line)
        if "train_runtime" in line:
            fields.pop("loss", None)
        measured = "loss" in fields or "learning_rate" in fields or "grad_norm" in fields
        if _SAVE.search(line):
            saved = _saved_step(line)
            fields = fields if "loss" in fields else {}
            fields.update({"checkpoint_step": saved} if saved is not None else {})
        elif not measured and _NUMBERED_STAGE.search(line):
            return
        self._take(fields)

    def _read_announced(self, line: str) -> None:
        for field, pattern in _ANNOUNCED:
            found = pattern.search(line)
            if found:
                total = int(found[1].replace(",", ""))
                self._take({field: total})
                if field == "total_steps":
                    self._job_total = total

    def _read_bar(self, name: str, bar: re.Match[str]) -> None:
        unit = _unit_of(bar["unit"])
        if _OTHER_BAR.search(name) or unit not in _STEP_UNITS | _EPOCH_UNITS:
            return
        count, total = int(bar["count"]), int(bar["total"]) if (bar["total"] or "?") != "?" else None
        fields = read_fields(bar["notes"].strip(" ,").lower())
        fields.update(_bar_name_fields(name))
        if unit in _EPOCH_UNITS or _EPOCHS_BAR.search(name):
            fields.update(epoch=float(count), total_epochs=total)
        elif _is_epoch_bar(fields, count):
            fields.update(epoch_step=count, epoch_steps=total, eta_scope="epoch")
        else:
            if not name.strip(" :") and not self._is_job_total(count, total):
                return
            fields.update(step=count, total_steps=total, eta_scope="job")
        eta = parse_duration(bar["eta"] or "") if total is not None else None
        fields.update(eta_seconds=eta, eta_scope=fields.get("eta_scope", "job") if eta is not None else None)
        if unit in _STEP_UNITS and not _EPOCHS_BAR.search(name):
            fields["steps_per_second"] = _steps_per_second(bar["rate"], bar["unit"])
        self._take(fields)

    def _is_job_total(self, count: int, total: int | None) -> bool:
        """Whether an unnamed bar is the job's: HF evaluation draws a smaller unnamed bar inside it."""
        known, step = self._job_total, self.progress.step or 0
        if total is None:
            return True
        if known is not None and total < known and step < known:
            return False
        self._job_total = total
        return True

    def _take(self, fields: Mapping[str, Any]) -> None:
        if not fields:
            return
        changes = dict(fields)
        step, before = changes.get("step"), self.progress
        if step is not None and "total_steps" not in changes and step > (before.total_steps or step):
            changes["total_steps"] = None
        if before.finished and step is not None and step not in (self._finished_at, changes.get("total_steps")):
            changes["finished"] = None
        self.progress = replace(before, **changes)


def _split_name(head: str) -> tuple[str, str]:
    """What stands before a bar's counter: another logger's words, and the bar's own name."""
    percent = head.rfind("%")
    drawn = head[:percent].rstrip("0123456789. ") if percent >= 0 else head.rstrip("| ")
    cut = drawn.rfind("}") + 1
    return drawn[:cut], drawn[cut:][-200:]


def _unit_of(unit: str) -> str:
    """`it` of `s/it` and `it/s`."""
    over, _, below = unit.lower().partition("/")
    return below if over == "s" else over


def _steps_per_second(rate: str, unit: str) -> float | None:
    number = float(rate) if rate != "?" else 0.0
    if number <= 0:
        return None
    return 1.0 / number if unit.lower().startswith("s/") else number


def _bar_name_fields(name: str) -> dict[str, Any]:
    """Fields a bar's name carries: `Epoch 2/3`, `1|40|Loss: 0.5`, `Episode [1/1]`, `Epoch 3 loss 0.5`."""
    tune = _TORCHTUNE_BAR.search(name)
    if tune:
        return {
            **read_fields(name[tune.end() :].rstrip(" :")),
            "epoch": float(tune[1]),
            "step": int(tune[2]),
            "inside_epoch": True,
        }
    fields = {key: value for key, value in read_fields(name.strip()).items() if key in _NAME_FIELDS}
    found = _EPOCH_BAR.search(name)
    if found:
        fields["epoch"] = float(found[1])
        fields.update({"total_epochs": int(found[2])} if found[2] else {})
    if "epoch" in fields:
        fields["inside_epoch"] = fields.get("total_epochs") != 1
    return fields


def _is_epoch_bar(fields: dict[str, Any], count: int) -> bool:
    """The bar counts inside an epoch: its name says so, or its notes count the job's steps elsewhere."""
    return bool(fields.pop("inside_epoch", False)) or abs(fields.get("step", count) - count) > 1


def _saved_step(line: str) -> int | None:
    found = last_match(_SAVED_STEP, line)
    return int(found[1] or found[2]) if found else None
