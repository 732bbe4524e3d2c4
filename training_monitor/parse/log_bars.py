"""Progress bars: what tqdm, its loggable form and Stable-Baselines3 draw, and which of them count training.

A bar counts when its unit is a step or an epoch and its name is not that of other work: validation, downloads,
generation, or any `Merging weights` whose notes show no training.
"""

from __future__ import annotations

import re
from typing import Any

from training_monitor.parse.log_fields import read_fields
from training_monitor.parse.log_text import parse_count, parse_duration

_COUNT = r"\d{1,3}(?:,\d{3}){1,4}|\d{1,12}(?:\.\d{1,3})?[kKMG]?"
# `name:  10%|█  | 10/100 [00:12<01:48,  1.20s/it, loss=0.5]`, also cut at the end of the text
BAR = re.compile(
    rf"(?<![\w./,])(?P<count>{_COUNT})(?:/(?P<total>{_COUNT}|\?)|it) {{1,3}}\[(?P<elapsed>[^<,\]\[]{{0,20}})"
    r"(?:<(?P<eta>\s?(?:\d{1,4} days?, )?[^,\]]{0,30}))?,\s{0,4}"
    r"(?:(?P<rate>\d{1,3}(?:,\d{3}){1,3}|\d{1,12}(?:\.\d{1,9})?|\?)\s?"
    r"(?P<unit>[A-Za-z]{1,12}/[A-Za-z]{1,12})|(?=[A-Za-z]\w{0,40}=))(?P<notes>[^\]]{0,1500})\]?"
)
# tqdm_loggable: `Progress on:train 512it/10.0kit rate:1.1it/s remaining:2:23:45 elapsed:09:11 postfix:loss=4.2`
_SPELLED_BAR = re.compile(
    rf"progress on:\s?(\S{{0,80}}) ({_COUNT})it/({_COUNT}|\?)(?:it)? rate:[^\n]{{0,200}}? remaining:", re.IGNORECASE
)
_STEP_UNITS = frozenset({"it", "its", "step", "steps", "ba", "batch", "batches", "iter", "iters", "update", "updates"})
_EPOCH_UNITS = frozenset({"epoch", "epochs", "ep"})
_UNIT_SCALES = {"k": 1e3, "m": 1e6, "g": 1e9}
OTHER_WORK = re.compile(
    r"validat|evaluat|generat|loading|download|fetching|quantiz|tokeniz|cach(?:e|ing)|processed prompts|rollout"
    r"|resolving|sanity check|preprocess|pre-process|cuda graph|safetensors|upload|log ?probs|box\(p"
    r"|(?:^|\s)(?:val|eval|test|map|filter|pack|score|inference|shards?|predict|warmup)\b"
    r"|\brequests\b|^\s*batches\s?:?\s*$"
)
# `Merging weights`, `train: Scanning labels`: a bar about some doing that is not training
_OTHER_DOING = re.compile(
    r"(?:^|: )\s{0,9}(?!pre-?train|train|fine-?tun|learn|optimi|fitt|distill|runn|start)[a-z\-]{3,20}ing\b"
)
_EPOCH_NAME = re.compile(r"(?:^|\s)(?:epoch|episode)s?\s{0,4}:?\s{0,4}\[?\s{0,3}(\d{1,9})(?:\s?/\s?(\d{1,9}))?")
_EPOCHS_NAME = re.compile(r"(?:^|\s)(?:epochs?|training epochs?)\s?:?\s*$")
_STEPS_NAME = re.compile(r"[,\d] steps\s?:?\s*$")
_TORCHTUNE_NAME = re.compile(r"(\d{1,9})\|(\d{1,12})\|(?=loss)")
_NAME_FIELDS = frozenset({"loss", "learning_rate", "step", "epoch", "total_epochs"})


def split_name(head: str) -> tuple[str, str]:
    """What stands before a bar's counter: another logger's words, and the bar's own name."""
    percent = head.rfind("%")
    drawn = head[:percent].rstrip("0123456789. ") if percent >= 0 else head.rstrip("| ")
    cut = drawn.rfind("}") + 1
    return drawn[:cut], drawn[cut:][-200:]


def bar_key(name: str) -> str:
    """The words of a bar's name without its numbers: the same for every drawing of the bar."""
    return " ".join(re.findall(r"[a-z]{2,}", name))


def read_bar(name: str, bar: re.Match[str]) -> dict[str, Any]:
    """Fields of `Progress` one bar shows under a lower-case name; empty when it counts other work."""
    unit, scale = _unit_of(bar["unit"] or "it/s")
    fields = read_fields(bar["notes"].strip(" ,").lower())
    measured = "loss" in fields or "learning_rate" in fields
    if OTHER_WORK.search(name) or not (measured or not _OTHER_DOING.search(name)):
        return {}
    if unit not in _STEP_UNITS | _EPOCH_UNITS:
        return {}
    count, total = parse_count(bar["count"]), parse_count(bar["total"] or "?")
    if count is None:
        return {}
    fields.update(_name_fields(name))
    epochs = unit in _EPOCH_UNITS or _EPOCHS_NAME.search(name) is not None
    epochs = epochs or (fields.get("epoch"), fields.get("total_epochs")) == (count, total)
    if epochs:
        fields.pop("inside_epoch", None)
        fields.update(epoch=float(count), total_epochs=total, epochs_done=float(count))
    elif _is_epoch_bar(fields, count):
        fields.update(epoch_step=count, epoch_steps=total, eta_scope="epoch")
    else:
        fields.update(step=count, total_steps=total, eta_scope="job")
    eta = parse_duration(bar["eta"] or "") if total is not None else None
    fields.update(eta_seconds=eta, eta_scope=fields.get("eta_scope", "job") if eta is not None else None)
    if not epochs and bar["rate"]:
        fields["steps_per_second"] = _steps_per_second(bar["rate"], bar["unit"], scale)
    return fields


def read_spelled_bar(line: str) -> dict[str, Any]:
    """Step and total of a bar that tqdm_loggable spelled out; empty when there is none, or it counts other work."""
    found = _SPELLED_BAR.search(line)
    if not found or OTHER_WORK.search(found[1]) or (count := parse_count(found[2])) is None:
        return {}
    return {"step": count, "total_steps": parse_count(found[3])}


def _unit_of(unit: str) -> tuple[str, float]:
    """`it` of `s/it` and `it/s`; of `kit/s` also the thousand."""
    over, _, below = unit.lower().partition("/")
    name = below if over == "s" else over
    if name not in _STEP_UNITS and name[:1] in _UNIT_SCALES and name[1:] in _STEP_UNITS:
        return name[1:], _UNIT_SCALES[name[0]]
    return name, 1.0


def _steps_per_second(rate: str, unit: str, scale: float) -> float | None:
    number = float(rate.replace(",", "")) * scale if rate != "?" else 0.0
    if number <= 0:
        return None
    return 1.0 / number if unit.lower().startswith("s/") else number


def _name_fields(name: str) -> dict[str, Any]:
    """Fields a bar's name carries: `Epoch 2/3`, `1|40|Loss: 0.5`, `Episode [1/1]`, `Epoch 3 loss 0.5`."""
    tune = _TORCHTUNE_NAME.search(name)
    if tune:
        return {
            **read_fields(name[tune.end() :].rstrip(" :")),
            "epoch": float(tune[1]),
            "step": int(tune[2]),
            "inside_epoch": True,
        }
    fields = {key: value for key, value in read_fields(name.strip()).items() if key in _NAME_FIELDS}
    found = _EPOCH_NAME.search(name)
    if found:
        fields["epoch"] = float(found[1])
        fields.update({"total_epochs": int(found[2])} if found[2] else {})
    if "epoch" in fields:
        fields["inside_epoch"] = fields.get("total_epochs") != 1 and not _STEPS_NAME.search(name)
    return fields


def _is_epoch_bar(fields: dict[str, Any], count: int) -> bool:
    """The bar counts inside an epoch: its name says so, or its notes count the job's steps elsewhere."""
    return bool(fields.pop("inside_epoch", False)) or abs(fields.get("step", count) - count) > 1
