"""What one line of a training log says, as the fields of `Progress`: names to fields by table, no framework cases.

A name counts only when the whole of it is in a table: `loss_scale`, `eval_loss`, `timing_s/step`, `save_steps` and
`max_train_steps` are other names. Formats: Megatron-LM, DeepSpeed, nanoGPT, LitGPT, torchtitan, Nanotron, NeMo, HF
Trainer dictionaries (transformers 5 writes numbers as strings), LLaMA-Factory, verl, fairseq, Detectron2, MMEngine,
MetricLogger, timm, Keras, Stable-Baselines3 tables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from training_monitor.parse.log_text import as_whole, last_match, parse_duration, parse_number

_NUMBER = r"[+-]?(?:\d{1,15}(?:,\d{3}){0,4}(?:\.\d{0,20})?(?:e[+-]?\d{1,4})?|nan|inf(?:inity)?)"
_PAIR = re.compile(
    r"(?<![\w/.\-])([a-z][\w/.\-]{0,80}(?:\([\w/ ]{1,12}\))?)[\"']?"
    r"(?:\s{0,20}[:=|│]\s{0,20}|\s{1,40})[\"'(\[]{0,2}\s{0,12}"
    rf"({_NUMBER})\s?(ms\b|s\b|k\b)?(?![\w])(?:\s{{0,6}}(?:/|\bof\b)\s{{0,12}}(\d[\d,]{{0,18}}))?"
)
_RATE = re.compile(
    r"(?<![\w.])(\d{1,12}(?:,\d{3}){0,4}(?:\.\d{1,12})?)(k?)\s?"
    r"((?:its?|steps?|iters?|tok(?:en)?s?|samples?|seqs?|sequences?|images?|imgs?|examples?)/s(?:ec(?:ond)?)?"
    r"|(?:ms|s|secs?|seconds?)/(?:it|step|iter|iteration|ba|batch))(?![\w/])"
)
_ETA = re.compile(
    r"(?<![\w])(?:eta|remaining_time|remaining|time left)[\"']?\s{0,4}[:=]\s{0,4}[\"']?"
    r"((?:\d{1,5} days?,? )?\d{1,6}:\d\d(?::\d\d)?(?:\.\d{1,9})?|(?:\d{1,9}(?:\.\d{1,9})? ?[dhms] ?){1,4})(?![\w:])"
)
_EPOCH = re.compile(
    r"(?<![\w/.\-])(?:(?:train|training|trainer|time)/)?ep(?:och)?(?:\s?\(train\))?[\"']?\s{0,40}[:=#|│]?"
    r"\s{0,12}[\"'\[]?\s{0,3}"
    r"(\d{1,9}(?:\.\d{0,20})?(?:e[+-]?\d{1,3})?)(?![\w.])\s{0,3}(?:(?:/|\bof\b)\s{0,3}(\d{1,9}))?\s{0,3}\]?"
)
_TIMM_EPOCH = re.compile(
    r"(?<![\w])train:\s{0,6}(\d{1,9})(?:/(\d{1,9}))?\s{0,4}(?:\(\s{0,3}\d{1,3}%\)\s{0,4})?(?=\[\s{0,8}\d)"
)
_INSIDE_EPOCH = re.compile(
    r"[\s,|:\-]{0,6}(?:(steps?|iter|iteration|batch)\s{0,2}[:=]?\s{0,3})?\[?\s{0,12}(\d{1,12})\s{0,3}/\s{0,3}(\d{1,12})"
)
_KERAS_BAR = re.compile(r"(?:^|\s)(\d{1,9})/(\d{1,9}) (?:\[[=>. ]{1,80}\]|[━╸╺─ ]{5,80})")

# Two words that are one name, and words that turn a step into something else.
_JOINED = (
    (re.compile(r"\bloss train \(curr\)"), "loss"),
    (re.compile(r"^(\d{1,6}/\d{1,6})\s{1,12}[\d.]{1,8}g\s{1,12}(?=\d)"), r"epoch \1 loss "),  # ultralytics
    (re.compile(r"^\[(\d{1,12})\]\s{1,4}(?=loss\b)"), r"step \1 "),
    (re.compile(r"\belapsed time per iteration \(ms\)"), "ms_per_step"),
    (re.compile(r"\b(samples|tokens|steps|iterations) (per) (second|sec)\b"), r"\1_\2_\3"),
    (
        re.compile(r"\b(learning|global|grad|gradient|loss|iter|step|total) (rate|step|norm|scale|time|timesteps)\b"),
        r"\1_\2",
    ),
    (
        re.compile(
            r"\b(train|training|lm|total|mean|avg|average|val|valid|validation|eval|evaluation|test|value|kl|entropy"
            r"|policy|critic|aux|auxiliary|reg|best|min|lowest|prev|previous|target|final|ave|generator"
            r"|discriminator) (loss)\b(?!/)"
        ),
        r"\1_\2",
    ),
    (
        re.compile(
            r"\b(warmup|warm-up|save|saving|eval|evaluation|log|logging|checkpoint|ckpt|max|maximum|total|num|decay"
            r"|accumulation|resume|start|starting|last|best|every|per|next|final|inference|sampling|denoising"
            r"|from|until|till|to|reach|reaches|before|after|skip|skipping)[ -]((?:global[_ ])?(?:steps?|iters?"
            r"|iterations?))\b"
        ),
        r"\1_\2",
    ),
)
_SECTIONS = ("train/", "training/", "trainer/", "actor/", "optim/", "time/")

_STEP_NAMES = (
    "global_step",
    "num_updates",
    "current_steps",
    "current_step",
    "global_step/max_steps",
    "total_timesteps",
    "training_iteration",
    "optimizer_step",
    "train_step",
    "step",
    "iter",
    "iteration",
)
_STEP_NAMES_WITH_TOTAL = ("steps", "batch")
_LOSS_NAMES = (
    "loss",
    "train_loss",
    "training_loss",
    "lm_loss",
    "total_loss",
    "avr_loss",
    "avg_loss",
    "mean_loss",
    "average_loss",
    "reduced_train_loss",
    "train_loss_step",
    "loss_step",
    "loss/train/total",
    "loss/train",
    "pg_loss",
    "loss/policy_avg",
    "policy_loss",
)
_NUMBER_FIELDS: Mapping[str, tuple[str, ...]] = {
    "learning_rate": ("lr", "learning_rate", "train_lr", "learning-rate"),
    "grad_norm": ("grad_norm", "gnorm", "gradnorm", "grad-norm", "gradient_norm", "total_grad_norm"),
    "tokens_per_second": (
        "tps",
        "tokens_per_sec",
        "tokens_per_second",
        "tokens/s",
        "tokens/sec",
        "tok/s",
        "wps",
        "throughput_tokens_per_sec",
    ),
    "samples_per_second": ("samples_per_second", "samples_per_sec", "samples/sec", "samples/s", "samplespersec", "fps"),
    "steps_per_second": (
        "steps_per_second",
        "steps_per_sec",
        "steps/sec",
        "steps/s",
        "it/s",
        "train_speed(iter/s)",
        "global_step/sec",
    ),
}
# Seconds per step: the name says so, or (last row) it does on a line that also counts steps.
_SECONDS_PER_STEP: Mapping[str, float] = {
    "ms_per_step": 1e-3,
    "elapsed_time_per_iteration_ms": 1e-3,
    "step_time_ms": 1e-3,
    "step_time": 1.0,
    "iter_time": 1.0,
    "time_per_step": 1.0,
    "time_per_iteration": 1.0,
    "sec_per_step": 1.0,
    "seconds_per_step": 1.0,
    "time_this_iter_s": 1.0,
    "train_speed(s/it)": 1.0,
    "s/it": 1.0,
}
_SECONDS_PER_COUNTED_STEP = ("time", "seconds")
_RATE_FIELDS = ((("it", "st"), "steps_per_second"), (("tok",), "tokens_per_second"), (("",), "samples_per_second"))
_UNIT_FACTOR = {"ms": 1e-3, "s": 1.0, "k": 1e3, "": 1.0}


class Reading(NamedTuple):
    """One `name: number` of a line; `total` is what stood behind a slash."""

    text: str
    number: float
    unit: str
    total: int | None


def read_fields(line: str) -> dict[str, Any]:
    """Fields of `Progress` that one lower-case line names; nothing in it raises.

    Returns:
        Field name to value. `step` and `total_steps` count the job, `epoch_step` and `epoch_steps` the epoch.
    """
    for pattern, joined in _JOINED:
        line = pattern.sub(joined, line)
    readings = _readings(line)
    fields = _epoch_fields(line, readings)
    fields.update(_step_fields(readings, fields))
    for field, names in (("loss", _LOSS_NAMES), *_NUMBER_FIELDS.items()):
        found = next((readings[name] for name in names if name in readings), None)
        if found:
            fields[field] = found.number * (1e3 if found.unit == "k" else 1.0)
    _add_keras_bar(line, fields)
    _add_speed(line, readings, fields)
    _add_eta(line, fields)
    return fields


def _readings(line: str) -> dict[str, Reading]:
    readings = {}
    for found in _PAIR.finditer(line):
        name, text, unit, total = found.groups()
        number = parse_number(text)
        if number is not None:
            whole_total = int(total.replace(",", "")) if total else None
            readings[_plain(name)] = Reading(text, number, unit or "", whole_total)
    return readings


def _plain(name: str) -> str:
    name = name.rstrip("./-")
    return next((name[len(section) :] for section in _SECTIONS if name.startswith(section)), name)


def _epoch_fields(line: str, readings: dict[str, Reading]) -> dict[str, Any]:
    """Epoch and totals; takes a counter that belongs to the epoch out of the readings."""
    found = last_match(_EPOCH, line) or _TIMM_EPOCH.search(line)
    if not found:
        return {}
    total = int(found[2]) if found[2] else None
    fields: dict[str, Any] = {"epoch": float(found[1])}
    if total is not None:
        fields["total_epochs"] = total
    inside = _INSIDE_EPOCH.match(line, found.end())
    if inside and total != 1 and not (inside[1] in ("step", "steps") and total is None):
        fields["epoch_step"], fields["epoch_steps"] = int(inside[2]), int(inside[3])
        readings.pop(inside[1] or "", None)
    elif inside is None and "batch" in readings:
        del readings["batch"]
    return fields


def _step_fields(readings: Mapping[str, Reading], fields: Mapping[str, Any]) -> dict[str, Any]:
    for name in _STEP_NAMES + _STEP_NAMES_WITH_TOTAL:
        reading = readings.get(name)
        if reading is None or not _counts_steps(name, reading, readings):
            continue
        step = as_whole(reading.number)
        if step is not None and step >= 0:
            total = reading.total or as_whole(readings["total_steps"].number if "total_steps" in readings else None)
            return {"step": step} if total is None else {"step": step, "total_steps": total}
    return {}


def _counts_steps(name: str, reading: Reading, readings: Mapping[str, Reading]) -> bool:
    """`step: 1172.13` is a time, `steps: 4000` a setting, `global_step=3.1e+4` is rounded."""
    if name in _STEP_NAMES_WITH_TOTAL and reading.total is None:
        return name == "batch" and "loss" in readings
    if reading.unit or "e" in reading.text:
        return False
    return "." not in reading.text.rstrip(".") or name == "global_step"


def _add_keras_bar(line: str, fields: dict[str, Any]) -> None:
    bar = _KERAS_BAR.search(line)
    if bar and "loss" in fields and "step" not in fields:
        fields["epoch_step"], fields["epoch_steps"] = int(bar[1]), int(bar[2])


def _add_speed(line: str, readings: Mapping[str, Reading], fields: dict[str, Any]) -> None:
    for number, thousand, unit in _RATE.findall(line):
        rate = float(number.replace(",", "")) * (1e3 if thousand else 1.0)
        over, _, below = unit.partition("/")
        if below not in ("s", "sec", "second"):
            rate = 1.0 / (rate * (1e-3 if over == "ms" else 1.0)) if rate > 0 else 0.0
            over = "step"
        if rate > 0:
            fields.setdefault(next(field for words, field in _RATE_FIELDS if over.startswith(words)), rate)
    seconds = _seconds_per_step(readings, "step" in fields or "epoch_step" in fields)
    if seconds and "steps_per_second" not in fields:
        fields["steps_per_second"] = 1.0 / seconds


def _seconds_per_step(readings: Mapping[str, Reading], counted: bool) -> float | None:
    for name, factor in _SECONDS_PER_STEP.items():
        if name in readings and readings[name].number > 0:
            return readings[name].number * factor * _UNIT_FACTOR[readings[name].unit]
    for name in _SECONDS_PER_COUNTED_STEP if counted else ():
        if name in readings and readings[name].number > 0:
            return readings[name].number * _UNIT_FACTOR[readings[name].unit]
    return None


def _add_eta(line: str, fields: dict[str, Any]) -> None:
    found = _ETA.search(line)
    seconds = parse_duration(found[1]) if found else None
    if seconds is not None:
        fields["eta_seconds"] = seconds
        fields["eta_scope"] = "epoch" if re.search(r"\bepoch: ?\[", line) else "job"
