"""Read one line of a training log into fields of `Progress`, by tables of names rather than by framework. Pure.

A name counts only when all of it is in a table: `loss_scale`, `eval_loss`, `timing_s/step`, `save_steps` and
`max_train_steps` are other names. Formats: Megatron-LM, DeepSpeed, nanoGPT, LitGPT, torchtitan, Nanotron, NeMo, HF
Trainer dictionaries (transformers 5 writes numbers as strings), LLaMA-Factory, verl, fairseq, Detectron2, MMEngine,
MetricLogger, timm, Keras, Stable-Baselines3 tables.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from training_monitor.core.frozen import dataclass
from training_monitor.core.regex import regex
from training_monitor.logs.shapes import by_shape
from training_monitor.logs.text import as_whole, in_known_words, last_match, parse_duration

_NUMBER = r"[+-]?(?:\d{1,15}(?:,\d{3}){0,4}(?:\.\d{0,20})?(?:e[+-]?\d{1,4})?|nan|inf(?:inity)?)"
_PAIR = regex(
    r"(?<![\w/.\-])([a-z][\w/.\-]{0,80}(?:\([\w/ ]{1,20}\))?)[\"']?(?:\s{0,20}(?:::|[:=|│])\s{0,20}|\s{1,40})"
    r"(?:tensor|array|(?:np\.)?float\d\d)?[\"'(\[#]{0,2}\s{0,12}"
    rf"({_NUMBER})\s?(ms\b|s\b|k\b)?(?!\w|[:\-]\d\d)(?:\s{{0,6}}(?:/|\(?\b(?:out )?of\b)\s{{0,12}}(\d[\d,]{{0,18}}))?"
)
_RATE = regex(
    r"(?<![\w.])(\d{1,12}(?:,\d{3}){0,4}(?:\.\d{1,20})?)(k?)\s?"
    r"((?:its?|steps?|iters?|iterations?|batch(?:es)?|updates?|tok(?:en)?s?|samples?|seqs?|sequences?|images?|imgs?|examples?)/s(?:ec(?:ond)?)?"
    r"|(?:us|µs|ms|s|secs?|seconds?)/(?:it|step|iter|iteration|ba|batch|update))(?![\w/])"
)
_TIME_UNIT = r"(?:d(?:ays?)?|h(?:ours?|rs?)?|m(?:in(?:ute)?s?)?|s(?:ec(?:ond)?s?)?)"
_DURATION = (
    r"((?:\d{1,5} days?,? )?\d{1,6}:\d\d(?::\d\d)?(?:\.\d{1,9})?"
    rf"|(?:\d{{1,9}}(?:\.\d{{1,9}})? ?{_TIME_UNIT},? ?(?:and )?){{1,4}}(?: \d{{1,3}}ms)?)(?![\w:])"
)
_ETA = regex(
    r"(?<!\w)(?:(?:total_)?eta|remaining[_ ]time|(?:time[_ ]?)?remain(?:ing)?|time[_ ]left|left[_ ]time|required"
    r"|(?:estimated )?time to finish)[\"']?"
    rf"\s{{0,4}}(?:[:=]|(?:(?<=eta)|(?<=remain)|(?<=remaining))\s)\s{{0,4}}[\"']?{_DURATION}"
)
_TIME_LEFT = regex(rf"(?<![\w.:]){_DURATION} ?(?:left|remaining|to go)\b")
_SPENT_AND_LEFT = regex(r"\d:\d\d \[\d{1,6}:\d\d(?::\d\d)?/(\d{1,6}:\d\d(?::\d\d)?)\]")  # OpenPCDet
_EPOCH = regex(
    r"(?<![\w/.\-])(?:(?:train|training|trainer|time)/)?ep(?:o?ch)?(?:\s?\(train\))?[\"']?\.{0,3}\s{0,40}[:=#|│]?"
    r"\s{0,12}[\"'\[(]?\s{0,3}"
    r"(\d{1,9}(?:\.\d{0,20})?(?:e[+-]?\d{1,3})?)(?![\w.])\s{0,3}(?:(?:/|\bof\b)\s{0,3}(\d{1,9}))?\s{0,3}\]?"
)
_TIMM_EPOCH = regex(
    r"(?<![\w])train:\s{0,6}(\d{1,9})(?:/(\d{1,9}))?\s{0,4}(?:\(\s{0,3}\d{1,3}%\)\s{0,4})?(?=\[\s{0,8}\d)"
)
_INSIDE_EPOCH = regex(
    r"[\s,|:\-]{0,6}\[?(?:(steps?|iter|iteration|batch)\s{0,2}[:=]?\s{0,3})?"
    r"[\[(]?\s{0,12}(\d{1,12})\s{0,3}/\s{0,3}(\d{1,12})"
)
# Bars of Keras 2 and 3, rich and ultralytics, which count within an epoch: count, total, remaining time
_DRAWN_BARS = (
    regex(r"(?:^|\s)(\d{1,9})/(\d{1,9}) \[[=>. ]{1,80}\](?! - \d)()"),
    regex(r"(?:^|\s)(\d{1,9})/(\d{1,9}) [━╸╺─ ]{5,80}(?<=[━╸╺─ ])(\d[\d:]{0,9}s?) \d{1,9}[mu]?s/"),
    regex(r"(?<=[━╸╺─ ])(\d{1,9})/(\d{1,9}) \d[\d:]{3,9} • (\d[\d:]{3,9}|-)"),
    regex(r"(?<=[━╸╺─] )(\d{1,9})/(\d{1,9}) [\d.]{1,9}(?:it/s|s/it) [\d.:]{1,12}[smh]?<([\d.:]{1,12}[smh]?)"),
)

_SECTIONS = ("train/", "training/", "trainer/", "actor/", "optim/", "time/", "throughput/")

_STEP_NAMES = (
    "global_step",
    "global_steps",
    "num_updates",
    "nupdates",
    "train_num_updates",
    "current_steps",
    "current_step",
    "global_step/max_steps",
    "total_timesteps",
    "training_iteration",
    "optimizer_step",
    "train_step",
    "training_step",
    "steps_completed",
    "completed_steps",
    "acc_iter",
    "num-trees",
    "step",
    "iter",
    "iteration",
)
_STEP_NAMES_WITH_TOTAL = ("steps", "iters", "iterations", "batch", "update")
_MICRO_NAMES = ("iter", "iteration")
_TOTAL_NAMES = (
    "total_steps",
    "max_steps",
    "total_iters",
    "max_iters",
    "total_iterations",
    "max_iterations",
    "max_updates",
)
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
    "step_loss",
    "batch_loss",
    "current_loss",
    "running_loss",
    "reduced_train_loss",
    "train_loss_step",
    "loss_step",
    "loss/train/total",
    "loss/train",
    "loss/total_loss",
    "crossentropyloss",
    "pg_loss",
    "loss/policy_avg",
    "policy_loss",
)
_NUMBER_FIELDS: Mapping[str, tuple[str, ...]] = {
    "learning_rate": ("lr", "learning_rate", "train_lr", "learning-rate", "learningrate", "current_lr", "cur_lr"),
    "grad_norm": ("grad_norm", "gnorm", "gradnorm", "grad-norm", "gradient_norm", "total_grad_norm"),
    "tokens_per_second": (
        "tps",
        "tokens_per_sec",
        "tokens_per_second",
        "tokens/s",
        "tokens/sec",
        "tok/s",
        "tok/sec",
        "wps",
        "throughput_tokens_per_sec",
    ),
    "samples_per_second": ("samples_per_second", "samples_per_sec", "samples/sec", "samples/s", "samplespersec", "fps"),
    "steps_per_second": (
        "steps_per_second",
        "steps_per_sec",
        "interval_steps_per_second",
        "ups",
        "u/sec",
        "train_speed(iter/s)",
        "global_step/sec",
    ),
}
# Fields whose names may combine words freely: the required word, and the words allowed beside it
_SPELLED_FIELDS: Mapping[str, tuple[str, frozenset[str]]] = {
    "loss": (
        "loss",
        frozenset(
            "train training avg average mean total tot step batch epoch iter running current cur lm all overall global"
            " sum smoothed ema reduced losses".split()
        ),
    ),
    "learning_rate": (
        "lr",
        frozenset(
            "train training current cur avg optim optimizer opt actor policy model group pg group0 pg0 param 0 step"
            " new".split()
        ),
    ),
    "steps_per_second": ("steps_per_second", frozenset()),
}
# `lr-DecoupledAdamW/group0`, `optim0_lr0`, `learning_rate_group0`, `lr(LinearWarmup)`: the first group's rate
_FIRST_RATE = regex(
    r"lr-\w{0,20}(?:adam|sgd|lion|adafactor|rmsprop|lamb|muon)\w{0,20}(?:/(?:group|pg)0)?|optim0_lr0|lr\([\w ]{1,20}\)"
    r"|(?:lr|learning_rate)[/_\-](?:pg_?|group_?)?0"
)
# Seconds per step, by the name alone, or (second table) only on a line that also counts steps.
_STEP_TIMES = frozenset(
    {
        "elapsed_time_per_iteration",
        "step_avg",
        "time_this_iter",
        "train_speed(s/it)",
        "s/it",
        "s/b",
        "ms_per_step",
        "ms/step",
        "ms/batch",
        "ms/iter",
    }
)
_STEP = r"(?:step|iter|iteration|batch|update)"
_STEP_TIME = regex(
    rf"(?:(?:train|training|avg|average|mean|median|cur|current|last|perf)[_/.\-]){{0,3}}(?:(?:per[_\-])?{_STEP}"
    rf"[_\-]?(?:time|timing|cost|latency|duration)|(?:time|secs?|seconds|duration)(?:_per_|[/_]){_STEP})"
)
_STEP_RATE = regex(
    r"(?:(?:train|training|global|optimizer|throughput|device|speed|perf)[_/.\-]){0,3}(?:its?|steps?|iters?|iterations?|batch(?:es)?"
    r"|updates?)(?:_per_|/)(?:s|sec|secs|second)"
)
_COUNTED_STEP_TIMES = frozenset({"time", "seconds", "dt"})
_TIME_SUFFIX = regex(r"([\w/.\-]{1,60})_(ms|s)(?:ec)?")
_STEPS_TOOK = regex(
    r"(?<![\w.])(\d{1,9}) (?:training |train )?(?:steps?|iters?|iterations?|batch(?:es)?|updates?)\)?"
    r"(?: took| take| in|:|) (\d{1,9}(?:\.\d{1,9})?) ?s(?:ec(?:ond)?s?)?(?![\w/])"
)
_COLUMN_MS = regex(r"\|\s{0,9}(\d{1,9}(?:\.\d{1,9})?)\s?ms\s{0,9}(?=\||$)")
_RATE_FIELDS = (
    (("it", "st", "ba", "up"), "steps_per_second"),
    (("tok",), "tokens_per_second"),
    (("",), "samples_per_second"),
)
_SECONDS_LEFT = ("eta_seconds", "eta_sec", "eta_s", "remaining_seconds")
_STEP_RANK = {name: rank for rank, name in enumerate(_STEP_NAMES + _STEP_NAMES_WITH_TOTAL)}
_FIELD_OF_NAME = {  # with its rank among the names of the field
    name: (field, rank)
    for field, names in (("loss", _LOSS_NAMES), *_NUMBER_FIELDS.items())
    for rank, name in enumerate(names)
}
_KNOWN_NAMES = frozenset((*_STEP_RANK, *_TOTAL_NAMES, *_SECONDS_LEFT, *_FIELD_OF_NAME))
_UNIT_FACTOR = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "k": 1e3, "": 1.0}


class Reading(NamedTuple):
    """One `name: number` pair of a line; `total` is the number after a slash."""

    text: str
    number: float
    unit: str
    total: int | None


class _Pair(NamedTuple):
    """Where a `name: number` pair stands in a line; `name` is None if it has digits, `total` if there is none."""

    name: str | None
    name_at: slice
    text: slice
    unit: str
    total: slice | None


@dataclass(frozen=True, slots=True)
class _Finds:
    """What the patterns find in all lines of a shape, once these use the known words."""

    pairs: tuple[_Pair, ...]
    has_epoch: bool
    has_rate: bool
    bar: re.Pattern[str] | None
    eta: re.Pattern[str] | None
    has_column: bool
    has_steps_took: bool


def read_fields(line: str) -> dict[str, Any]:
    """Return the fields of `Progress` in one lower-case line; never raises.

    Returns:
        Field name to value. `step` and `total_steps` count the job, `epoch_step` and `epoch_steps` the epoch. `counter`
        is not a field: it is the name that gave the step, "update" when the line also counts smaller iterations.
    """
    finds = _find(line)
    if finds is None:
        return {}
    line = in_known_words(line)
    readings = _readings(line, finds)
    fields = _epoch_fields(line, readings) if finds.has_epoch else {}
    fields.update(_step_fields(readings, fields))
    for field, found in _numbers(readings).items():
        if math.isfinite(found.number) or not field.endswith("_per_second"):
            fields[field] = found.number * (1e3 if found.unit == "k" else 1.0)
    left = _add_drawn_bar(line, finds, fields)
    _add_speed(line, finds, readings, fields)
    _add_eta(line, finds, left, readings, fields)
    return fields


@by_shape
def _find(line: str) -> _Finds | None:
    line = in_known_words(line)
    eta = next((pattern for pattern in (_ETA, _SPENT_AND_LEFT) if pattern.search(line)), None)
    if eta is None and any(words in line for words in (" left", " remaining", " to go")):
        eta = _TIME_LEFT if _TIME_LEFT.search(line) else None
    found = _Finds(
        pairs=tuple(_pairs(line)),
        has_epoch=bool(_EPOCH.search(line) or _TIMM_EPOCH.search(line)),
        has_rate=_RATE.search(line) is not None,
        bar=next((pattern for pattern in _DRAWN_BARS if pattern.search(line)), None),
        eta=eta,
        has_column=_COLUMN_MS.search(line) is not None,
        has_steps_took=_STEPS_TOOK.search(line) is not None,
    )
    is_empty = not (found.pairs or found.has_epoch or found.has_rate or found.eta or found.has_steps_took)
    return None if is_empty else found


def _pairs(line: str) -> Iterator[_Pair]:
    """Yield the pairs whose names may matter."""
    for found in _PAIR.finditer(line):
        name = None if any(map(str.isdigit, found[1])) else _plain(found[1])
        if name is None or _is_known(name):
            total = slice(*found.span(4)) if found[4] else None
            yield _Pair(name, slice(*found.span(1)), slice(*found.span(2)), found[3] or "", total)


def _readings(line: str, finds: _Finds) -> dict[str, Reading]:
    readings = {}
    for name, name_at, text_at, unit, total_at in finds.pairs:
        text = line[text_at]
        total = int(line[total_at].replace(",", "")) if total_at else None
        readings[name or _plain(line[name_at])] = Reading(text, float(text.replace(",", "")), unit, total)
    return readings


def _numbers(readings: Mapping[str, Reading]) -> dict[str, Reading]:
    """Return the readings that are fields of their own: by the first known name, or else by a spelled one."""
    ranked: dict[str, tuple[int, Reading]] = {}
    for name, reading in readings.items():
        field, rank = _FIELD_OF_NAME.get(name) or (_spelled_field(name), len(_FIELD_OF_NAME))
        if field is not None and (field not in ranked or rank < ranked[field][0]):
            ranked[field] = rank, reading
    return {field: reading for field, (_, reading) in ranked.items()}


@lru_cache(maxsize=1024)
def _spelled_field(name: str) -> str | None:
    """Return the field of a name in no table, if all of its words belong to that field: `train_loss_epoch`."""
    if name.endswith(("/lr", "/learning_rate")):
        return "learning_rate"
    words = set(re.split(r"[_/.\-]", name.replace("learning_rate", "lr")))
    for field, (subject, others) in _SPELLED_FIELDS.items():
        if subject in words and words - {subject} <= others:
            return field
    return "steps_per_second" if _STEP_RATE.fullmatch(name) else None


@lru_cache(maxsize=1024)
def _is_step_time(name: str) -> bool:
    return name in _STEP_TIMES or _STEP_TIME.fullmatch(name) is not None


def _is_known(name: str) -> bool:
    """Whether a pair of this name can tell anything: a field, a counter or a time, or that others are measured."""
    suffixed = _TIME_SUFFIX.fullmatch(name)
    names = {name, suffixed[1]} if suffixed else {name}
    if "loss" in name or name == "batch_cost" or names & (_KNOWN_NAMES | _COUNTED_STEP_TIMES):
        return True
    return _spelled_field(name) is not None or any(map(_is_step_time, names))


@lru_cache(maxsize=1024)
def _plain(name: str) -> str:
    name = name.rstrip("./-").removesuffix("(train)")
    if _is_step_time(name):
        return name
    if _FIRST_RATE.fullmatch(name):
        return "lr"
    if name.endswith("/global_step"):
        return "global_step"
    return next((name[len(section) :] for section in _SECTIONS if name.startswith(section)), name)


def _epoch_fields(line: str, readings: dict[str, Reading]) -> dict[str, Any]:
    """Return the epoch and totals, and remove counters of the epoch from the readings."""
    found = last_match(_EPOCH, line) or _TIMM_EPOCH.search(line)
    if not found:
        return {}
    total = int(found[2]) if found[2] else None
    fields: dict[str, Any] = {"epoch": float(found[1])}
    if total is not None:
        fields["total_epochs"] = total
    inside = _INSIDE_EPOCH.match(line, found.end())
    if inside and total != 1 and not (inside[1] in ("step", "steps") and total is None):
        if "batch_cost" in readings and total is None and inside[1]:
            return fields  # PaddleSeg prints the counter of the job this way
        fields["epoch_step"], fields["epoch_steps"] = int(inside[2]), int(inside[3])
        readings.pop(inside[1] or "", None)
    elif inside is None:
        for name in _STEP_NAMES_WITH_TOTAL:  # without a total: it counts the epoch, or is a size
            if name in readings and readings[name].total is None:
                del readings[name]
    return fields


def _step_fields(readings: Mapping[str, Reading], fields: Mapping[str, Any]) -> dict[str, Any]:
    for name in sorted(readings.keys() & _STEP_RANK.keys(), key=_STEP_RANK.__getitem__):
        reading = readings[name]
        if not _counts_steps(name, reading, readings):
            continue
        step = as_whole(reading.number)
        if step is None or step < 0:
            continue
        total = reading.total or next((as_whole(readings[key].number) for key in _TOTAL_NAMES if key in readings), None)
        if name in _MICRO_NAMES and reading.total and _beside_epoch(fields, step, reading.total):
            return {"epoch_step": step, "epoch_steps": reading.total}
        counter = "update" if name not in _MICRO_NAMES and any(key in readings for key in _MICRO_NAMES) else name
        return {"step": step, "counter": counter, **({} if total is None else {"total_steps": total})}
    return {}


def _beside_epoch(fields: Mapping[str, Any], step: int, total: int) -> bool:
    """Whether a counter cannot count the job: epoch 3 of 200 does not fit step 120 of 1202."""
    epoch, epochs = fields.get("epoch"), fields.get("total_epochs")
    return epoch is not None and epochs is not None and not epoch - 1 <= epochs * step / total <= epoch + 1


def _counts_steps(name: str, reading: Reading, readings: Mapping[str, Reading]) -> bool:
    """Whether a reading counts steps, unlike `step: 1172.13` (a time), `steps: 4000` (a setting) or `step=3.1e+4`."""
    if name in _STEP_NAMES_WITH_TOTAL and reading.total is None:
        is_measured = any("loss" in other or other in _NUMBER_FIELDS["learning_rate"] for other in readings)
        return is_measured and name != "iterations" and not reading.unit and reading.text.isdigit()
    if reading.unit or "e" in reading.text:
        return False
    return "." not in reading.text.rstrip(".") or name == "global_step"


def _add_drawn_bar(line: str, finds: _Finds, fields: dict[str, Any]) -> str | None:
    """Add the counts of a bar within an epoch; return its remaining time or "", None without a bar."""
    bar = finds.bar and finds.bar.search(line)
    if bar is None or "step" in fields or not ("loss" in fields or "epoch" in fields):
        return None
    fields["epoch_step"], fields["epoch_steps"] = int(bar[1]), int(bar[2])
    return bar[3] or "" if int(bar[1]) < int(bar[2]) else ""


def _add_speed(line: str, finds: _Finds, readings: Mapping[str, Reading], fields: dict[str, Any]) -> None:
    for number, thousand, unit in _RATE.findall(line) if finds.has_rate else ():
        rate = float(number.replace(",", "")) * (1e3 if thousand else 1.0)
        over, _, below = unit.partition("/")
        if below not in ("s", "sec", "second"):
            rate = 1.0 / (rate * _UNIT_FACTOR.get(over, 1.0)) if rate > 0 else 0.0
            over = "step"
        if rate > 0:
            fields.setdefault(next(field for words, field in _RATE_FIELDS if over.startswith(words)), rate)
    counted = "step" in fields or "epoch_step" in fields
    seconds = _seconds_per_step(readings, counted)
    column = _COLUMN_MS.search(line) if finds.has_column and counted and seconds is None else None
    seconds = float(column[1]) * 1e-3 if column else seconds
    if seconds is None and finds.has_steps_took and (took := _STEPS_TOOK.search(line)) and int(took[1]):
        seconds = float(took[2]) / int(took[1])
    if seconds and 1e-9 < seconds < 1e9 and "steps_per_second" not in fields:
        fields["steps_per_second"] = 1.0 / seconds


def _seconds_per_step(readings: Mapping[str, Reading], counted: bool) -> float | None:
    for is_time in (_is_step_time, _COUNTED_STEP_TIMES.__contains__) if counted else (_is_step_time,):
        for name, reading in readings.items():
            suffixed = _TIME_SUFFIX.fullmatch(name)
            base, unit = (suffixed[1], suffixed[2]) if suffixed else (name, "ms" if name.startswith("ms") else "s")
            if reading.number > 0 and (is_time(name) or is_time(base)):
                own = reading.unit if reading.unit in ("ms", "s") else unit
                return reading.number * _UNIT_FACTOR[own] * (1e3 if reading.unit == "k" else 1.0)
    return None


def _add_eta(
    line: str, finds: _Finds, left: str | None, readings: Mapping[str, Reading], fields: dict[str, Any]
) -> None:
    found = finds.eta and finds.eta.search(line)
    shown = left or (found[1] if found else None)
    counted = next((readings[name].number for name in _SECONDS_LEFT if name in readings), None)
    seconds = parse_duration(shown) if shown else counted
    if seconds is not None and 0 <= seconds < math.inf:
        fields["eta_seconds"] = seconds
        fields["eta_scope"] = "epoch" if left is not None or _ends_with_epoch(line, seconds, fields) else "job"


def _ends_with_epoch(line: str, eta: float, fields: Mapping[str, Any]) -> bool:
    """Whether an ETA is that of the epoch: MetricLogger's is, Paddle's is the job's, for others the numbers decide."""
    if "batch_cost" in line or "epoch_step" not in fields:
        return False
    if re.search(r"\bepoch: ?\[", line):
        return True
    rate, epochs = fields.get("steps_per_second"), fields.get("total_epochs")
    rest = (fields["epoch_steps"] - fields["epoch_step"]) / rate if rate else 0.0
    return epochs is not None and rest > 1 and 0.5 < eta / rest < 2 and fields["epoch"] < epochs - 1
