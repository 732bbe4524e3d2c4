"""Read one line of a training log into fields of `Progress`, by tables of names rather than by framework. Pure.

A name counts only when all of it is in a table: `loss_scale`, `eval_loss`, `timing_s/step`, `save_steps` and
`max_train_steps` are other names. Formats: Megatron-LM, DeepSpeed, nanoGPT, LitGPT, torchtitan, Nanotron, NeMo, HF
Trainer dictionaries (transformers 5 writes numbers as strings), LLaMA-Factory, verl, fairseq, Detectron2, MMEngine,
MetricLogger, timm, Keras, Stable-Baselines3 tables.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from training_monitor.core.regex import regex
from training_monitor.logs.shapes import MOST_SHAPES, by_shape, shape_of
from training_monitor.logs.text import WORDS_ABROAD, as_whole, joined, parse_duration, parts_in_known_words, places_of

_COMMA = r"\d{1,15},(?!\d{3}(?!\d))\d{1,20}(?![.,]\d)"  # of a decimal, unless three digits follow
_NUMBER = rf"[+-]?(?:(?:{_COMMA}|\d{{1,15}}(?:[,_]\d\d\d){{,4}}(?:\.\d{{,20}})?)(?:e[+-]?\d{{1,4}})?|nan|inf(?:inity)?)"
_WHOLE = r"(?![\d_]|[.'’]\d|,\d{3}|e\d|[kmgb]\b)"  # after a total: `100k` is not 100
# Before a counter that is not the position of the job, if the line has another one
_ASIDE = regex(
    r"(?:\([^()\n]{0,80}|@\s?|\b(?:at|since|best|next|last|prev(?:ious)?|target|micro|accum\w{0,12}|inner|rollout|sampl\w{1,8}|diffusion)"
    r"[\s:=_-]{1,3})$"
)
_PART_OF_STEP = regex(r"\b(?:micro|accum\w{0,12}|inner)[\s_-]$")  # `micro batch 3/8`
_DECIMAL_COMMA = regex(rf"[+-]?(?:0,\d{{3}}|{_COMMA})(?:e.*)?")
_PAIR = regex(
    r"(?<![\w/.\-])([a-z][\w/.\-]{0,80}(?:\([\w/ ]{1,20}\))?)[\"']?(?:\s{0,20}(?:::|[:=|│])\s{0,20}|\s{1,40})"
    r"(?:tensor|array|(?:np\.)?float\d\d)?[\"'(\[#]{0,2}\s{0,12}"
    rf"({_NUMBER})\s?(ms\b|s\b|k\b)?(?!\w|[.'’]\d|[:\-]\d\d| \d\d\d ?/)(?:\s{{0,6}}(?:/|\(?\b(?:out )?of\b)\s{{0,12}}"
    rf"((?:\d{{1,3}}(?:[,_]\d{{3}}){{1,5}}|\d{{1,19}}){_WHOLE}))?"
)
_RATE = regex(
    r"(?<![\w.+])(\d{1,12}(?:,\d{3}){0,4}(?:\.\d{1,20})?(?:e[+-]\d{1,3})?)(k?)\s?"
    r"((?:its?|steps?|iters?|iterations?|batch(?:es)?|updates?|tok(?:en)?s?|samples?|seqs?|sequences?|images?|imgs?|examples?)/s(?:ec(?:ond)?)?"
    r"|(?:us|µs|ms|s|secs?|seconds?)/(?:it|step|iter|iteration|ba|batch|update))(?![\w/])"
)
TIME_UNIT = r"(?:d(?:ays?)?|h(?:ours?|rs?)?|m(?:in(?:ute)?s?)?|s(?:ec(?:ond)?s?)?)"
_DURATION = (
    r"((?:\d{1,5} days?,? )?\d{1,6}:\d\d(?::\d\d)?(?:\.\d{1,9})?"
    rf"|(?:\d{{1,9}}(?:\.\d{{1,9}})? ?{TIME_UNIT},? ?(?:and )?){{1,4}}(?: \d{{1,3}}ms)?)(?![\w:])"
)
_ETA = regex(
    r"(?<!\w)(?:(?:total_)?eta|remaining[_ ]time|(?:time[_ ]?)?remain(?:ing)?|time[_ ]left|left[_ ]time|required"
    r"|(?:estimated )?time to finish)[\"']?"
    rf"\s{{0,4}}(?:[:=]|(?:(?<=eta)|(?<=remain)|(?<=remaining))\s)\s{{0,4}}[\"']?{_DURATION}"
)
_TIME_LEFT = regex(rf"(?<![\w.:]){_DURATION} ?(?:left|remaining|to go)\b")
_SPENT_AND_LEFT = regex(r"\d:\d\d \[\d{1,6}:\d\d(?::\d\d)?/(\d{1,6}:\d\d(?::\d\d)?)\]")  # OpenPCDet
_EPOCH = regex(
    r"(?<![\w/.\-])(?:(?:train|training|trainer|time)/)?ep(?:o?ch|(?!:\w{1,9} epch))(?:\s?\(train\))?[\"']?\.{0,3}"
    r"\s{0,40}[:=#|│]?\s{0,12}[\"'\[(]?\s{0,3}"
    r"(\d{1,9}(?:\.\d{0,20})?(?:e[+-]?\d{1,3})?)(?![\w.])\s{0,3}(?:(?:/|\bof\b)\s{0,3}(\d{1,9}))?\s{0,3}\]?"
)
_TIMM_EPOCH = regex(
    r"(?<![\w])train:\s{0,6}(\d{1,9})(?:/(\d{1,9}))?\s{0,4}(?:\(\s{0,3}\d{1,3}%\)\s{0,4})?(?=\[\s{0,8}\d)"
)
_INSIDE_EPOCH = regex(
    r"[\s,|:\-]{0,6}\[?(?:(steps?|iter|iteration|batch)\s{0,2}[:=]?\s{0,3})?"
    rf"[\[(]?\s{{0,12}}(\d{{1,12}})\s{{0,3}}/\s{{0,3}}(\d{{1,12}}){_WHOLE}"
)
_BATCH_OF_EPOCH = regex(
    r"[\s,;|:\-\[\])]{0,6}(?:mini-?)?batch(?:[_ ]?(?:idx|index|id|number|no))?\s{0,2}[:=#]?\s{0,3}\[?(\d{1,12})"
    r"(?![\w.%]|/\d|:\d|\s?(?:/|of)\s?\d)"
)
_BATCH_BEFORE_EPOCH = regex(r"\biters: ?(\d{1,12}), $")  # Informer, and projects derived from it
# Bars of Keras 2 and 3, rich and ultralytics, which count within an epoch: count, total, remaining time
_DRAWN_BARS = (
    regex(r"(?:^|\s)(\d{1,9})/(\d{1,9}) \[[=>. ]{1,80}\](?! - \d)()"),
    regex(r"(?:^|\s)(\d{1,9})/(\d{1,9}) [━╸╺─ ]{5,80}(?<=[━╸╺─ ])(\d[\d:]{0,9}s?) \d{1,9}[mu]?s/"),
    regex(r"(?<=[━╸╺─ ])(\d{1,9})/(\d{1,9}) \d[\d:]{3,9} (?:• )?(\d[\d:]{3,9}|-)"),
    regex(r"(?<=[━╸╺─] )(\d{1,9})/(\d{1,9}) [\d.]{1,9}(?:it/s|s/it) [\d.:]{1,12}[smh]?<([\d.:]{1,12}[smh]?)"),
)

_SECTIONS = ("train/", "training/", "trainer/", "main/", "actor/", "optim/", "time/", "throughput/")
_TRAIN_SECTION = regex(r"train-[\w\-]{1,40}/(?=\w)")

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
        "tokens/s/device",
        "tokens/s/gpu",
        "tokens/sec/device",
        "tokens/sec/gpu",
        "tok/s/device",
        "tok/s/gpu",
        "wps",
        "throughput_tokens_per_sec",
    ),
    "samples_per_second": (
        "samples_per_second",
        "samples_per_sec",
        "samples/sec",
        "samples/s",
        "samplespersec",
        "fps",
        "samples/s/device",
        "samples/s/gpu",
    ),
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
# Texts of which a line contains one if it has a field, and names that are no part of a word
FIELD_SIGNS = tuple(
    "loss l.r learn norm step iter itr ep up. cost update batch time sec eta remain left required / [ %) tok sample"
    " throughput trees _per_".split()
) + ("to go", "tick ", *WORDS_ABROAD)
_SHORT_NAMES = regex(r"(?<![a-z])(?:lr|dt|tps|wps|ups|fps)(?![a-z])")
_DECIMALS = frozenset("0123456789.,")
_DIGITS = frozenset("0123456789,")
_UNIT_FACTOR = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "k": 1e3, "": 1.0}


class _Pair(NamedTuple):
    """A `name: number` pair of a shape: where they stand in its lines; `name` is None if it has digits.

    `form` of its number: digits | decimal | exponent | other.
    """

    name: str | None
    name_at: slice
    at: slice
    form: str
    unit: str
    total_at: slice | None


class _Rate(NamedTuple):
    """A rate (`1.2it/s`) of a shape: its field, and how its number becomes that field's."""

    field: str
    at: slice
    thousands: float
    seconds_each: float | None  # of a unit that counts seconds: `ms/step`


class Finds:
    """What the patterns find in all lines of a shape, once these use the known words. Hashed by identity."""

    def __init__(self, shape: str) -> None:
        self.parts = parts_in_known_words(shape)  # None: it is in these words already
        line = shape if self.parts is None else joined(self.parts, shape)
        self.shape = shape_of(line)
        self.pairs = tuple(sorted(_pairs(line), key=lambda pair: not _ASIDE.search(line[: pair.name_at.start])))
        self.digit_names = tuple(pair.name_at for pair in self.pairs if pair.name is None)
        epochs = sorted(_EPOCH.finditer(line), key=lambda found: _rank_epoch(line, found))
        epoch = epochs[-1] if epochs else _TIMM_EPOCH.search(line)
        self.epoch = _spans(epoch, 1, 2) if epoch else ()
        inside = _INSIDE_EPOCH.match(line, epoch.end()) if epoch else None
        self.inside = (inside[1] or "", *_spans(inside, 2, 3)) if inside else None
        batch = _BATCH_OF_EPOCH.match(line, epoch.end()) if epoch else None
        if epoch and not batch:
            batch = _BATCH_BEFORE_EPOCH.search(line, 0, epoch.start())
        self.batch = _span(batch, 1) if batch and ("loss" in line or batch.end() == len(line)) else None
        self.rates = tuple(map(_rate, _RATE.finditer(line)))
        bar = next(filter(None, (pattern.search(line) for pattern in _DRAWN_BARS)), None)
        self.bar = _spans(bar, 1, 2, 3) if bar else ()
        eta = _ETA.search(line) or _SPENT_AND_LEFT.search(line)
        if eta is None and any(words in line for words in (" left", " remaining", " to go")):
            eta = _TIME_LEFT.search(line)
        self.eta = _span(eta, 1) if eta else None
        column, took = _COLUMN_MS.search(line), _STEPS_TOOK.search(line)
        self.column = _span(column, 1) if column else None
        self.took = _spans(took, 1, 2) if took else ()
        self.names_batch_cost = "batch_cost" in line
        self.is_metric_logger = re.search(r"\bepoch: ?\[", line) is not None

    @property
    def counts(self) -> bool:
        """Whether steps or epochs may stand there."""
        return bool(self.epoch) or any(pair.name is None or pair.name in _STEP_RANK for pair in self.pairs)

    @property
    def is_empty(self) -> bool:
        return not (self.pairs or self.epoch or self.rates or self.eta or self.took)


class _Counter(NamedTuple):
    """A number that may count steps; `total_at` is after its slash, `named_total_at` that of `total_steps` and such."""

    name: str
    at: slice
    total_at: slice | None
    named_total_at: slice | None
    is_micro: bool


class _Plan(NamedTuple):
    """How the fields of the lines of a shape are read from their places.

    Attributes:
        inside: the counter within the epoch, and its total if it has one.
        counters: the best first.
        numbers: field, place and factor.
        times, counted_times: place and two factors of what may be the seconds of a step: always, and beside a step.
        seconds_left: the place of an ETA in seconds.
    """

    inside: tuple[slice, slice | None] | None
    counters: tuple[_Counter, ...]
    numbers: tuple[tuple[str, slice, float], ...]
    times: tuple[tuple[slice, float, float], ...]
    counted_times: tuple[tuple[slice, float, float], ...]
    seconds_left: slice | None


class Numbers(NamedTuple):
    """Where the numbers of a line stand, if other lines of its shape may differ from it in their values only.

    Attributes:
        fixed: the texts that say what the others are: totals, names and epochs.
        counter, loss: the counter of steps, and the loss.
        shown: the fields that a number out of range, such as a speed of 0, would leave out.
        fractional: whether the epoch is one of the other numbers: the fraction of the job that is done.
        counts: whether a counter or an epoch that is not such a fraction is among them.
    """

    fixed: tuple[slice, ...] = ()
    counter: slice | None = None
    loss: slice | None = None
    shown: frozenset[str] = frozenset()
    fractional: bool = False
    counts: bool = False

    def moved(self, places: Sequence[int]) -> Numbers | None:
        """Return the places in the text that this one was made from, of which each character stood at one of `places`.

        None where a number was not in one piece.
        """
        counter, loss = (at and _origin(places, at) for at in (self.counter, self.loss))
        if (counter is None) != (self.counter is None) or (loss is None) != (self.loss is None):
            return None
        kept = [[place for place in places[at] if place >= 0] for at in self.fixed]
        fixed = tuple(slice(min(each), max(each) + 1) for each in kept if each)
        return self._replace(fixed=fixed, counter=counter, loss=loss)

    def and_later(self, later: Numbers) -> Numbers | None:
        """Return the numbers of two parts of a line; None where both count."""
        if self.counts and later.counts:
            return None
        return Numbers(
            fixed=self.fixed + later.fixed,
            counter=later.counter or self.counter,
            loss=later.loss or self.loss,
            shown=self.shown | later.shown,
            fractional=self.fractional or later.fractional,
            counts=self.counts or later.counts,
        )


def _origin(places: Sequence[int], at: slice) -> slice | None:
    start, length = places[at.start], at.stop - at.start
    return slice(start, start + length) if start >= 0 and places[at.stop - 1] - start == length - 1 else None


def may_have_fields(line: str) -> bool:
    return any(map(line.__contains__, FIELD_SIGNS)) or _SHORT_NAMES.search(line) is not None


@by_shape
def find_fields(line: str) -> Finds | None:
    """Return where the fields stand in a lower-case line; None if it has none."""
    if not may_have_fields(line):
        return None
    found = Finds(line)
    return None if found.is_empty else found


def read_found(finds: Finds, line: str) -> dict[str, Any]:
    """Return the fields of `Progress` in a line of the shape in which these places were found, by name.

    `step` and `total_steps` count the job, `epoch_step` and `epoch_steps` the epoch. `counter` is not a field: it is
    the name that gave the step, "update" when the line also counts smaller iterations.
    """
    if finds.parts is not None:
        line = joined(finds.parts, line)
    fields: dict[str, Any] = {}
    total = None
    if finds.epoch:
        epoch_at, total_at = finds.epoch
        fields["epoch"] = float(line[epoch_at])
        if total_at is not None:
            fields["total_epochs"] = total = int(line[total_at])
    plan = _plan(finds, tuple([line[at] for at in finds.digit_names]), total == 1)
    if plan.inside:
        step_at, steps_at = plan.inside
        fields["epoch_step"] = int(line[step_at])
        fields["epoch_steps"] = None if steps_at is None else int(line[steps_at])
    for counter in plan.counters:
        if _read_counter(counter, line, fields):
            break
    for field, at, factor in plan.numbers:
        number = _number(line[at])
        if math.isfinite(number) or not field.endswith("_per_second"):
            fields[field] = number * factor
    left = _add_drawn_bar(line, finds.bar, fields) if finds.bar else None
    _add_speed(line, finds, plan, fields)
    if finds.eta or left or plan.seconds_left:
        _add_eta(line, finds, plan, left, fields)
    return fields


def find_numbers(finds: Finds | None, line: str) -> Numbers | None:
    """Return where the numbers stand in a line of the shape in which these places were found.

    None where a value may decide what another one is.
    """
    if finds is None:
        return Numbers()
    line = line if finds.parts is None else joined(finds.parts, line)
    is_one_epoch = bool(finds.epoch and finds.epoch[1]) and int(line[finds.epoch[1]]) == 1
    return _find_numbers(finds, tuple([line[at] for at in finds.digit_names]), is_one_epoch)


@lru_cache(maxsize=MOST_SHAPES)
def _find_numbers(finds: Finds, digit_names: tuple[str, ...], is_one_epoch: bool) -> Numbers | None:
    found = _numbers_in(finds, _plan(finds, digit_names, is_one_epoch))
    return found and found.moved(places_of(finds.parts)) if finds.parts else found


def _numbers_in(finds: Finds, plan: _Plan) -> Numbers | None:
    line, (epoch_at, epochs_at) = finds.shape.decode(errors="surrogatepass"), finds.epoch or (None, None)
    counter = next(iter(plan.counters), None)
    fractional = epoch_at is not None and "." in line[epoch_at]
    rates = [at for field, at, _ in plan.numbers if field.endswith("_per_second")]
    if epoch_at and ("e" in line[epoch_at] or (epochs_at and fractional)):
        return None
    if not all(set(line[at]) <= _DECIMALS for at in rates):
        return None
    if counter and (not set(line[counter.at]) <= _DIGITS or (counter.is_micro and epochs_at)):
        return None
    losses = [at for field, at, factor in plan.numbers if field == "loss" and factor == 1.0 and "," not in line[at]]
    bar = finds.bar if not counter and (losses or epoch_at) else ()
    if bar and plan.inside:
        return None
    inside = (bar[0], bar[1]) if bar else plan.inside
    fixed = [*finds.digit_names, None if fractional else epoch_at, epochs_at]
    fixed += [counter and counter.total_at, counter and counter.named_total_at, inside and inside[1]]
    shown = {rate.field for rate in finds.rates} | {field for field, *_ in plan.numbers if field == "steps_per_second"}
    if plan.times or finds.took or ((counter or inside) and (plan.counted_times or finds.column)):
        shown.add("steps_per_second")
    if finds.eta or plan.seconds_left or (bar and line[bar[2]]):
        shown.add("eta_seconds")
    return Numbers(
        fixed=tuple(at for at in fixed if at is not None),
        counter=counter.at if counter else inside[0] if inside else None,
        loss=next(iter(losses), None),
        shown=frozenset(shown),
        fractional=fractional,
        counts=bool(counter or inside or (epoch_at and not fractional)),
    )


def _rank_epoch(line: str, epoch: re.Match[str]) -> tuple[bool, bool]:
    """Rank an epoch above those aside, and one with a counter behind it above the others, such as an average."""
    return not _ASIDE.search(line[: epoch.start()]), _INSIDE_EPOCH.match(line, epoch.end()) is not None


def _span(found: re.Match[str], group: int) -> slice:
    return slice(*found.span(group))


def _spans(found: re.Match[str], *groups: int) -> tuple[Any, ...]:
    """Return where the groups stand; None for those that are not there."""
    return tuple(None if found[group] is None else _span(found, group) for group in groups)


def _pairs(line: str) -> Iterator[_Pair]:
    """Yield the pairs whose names may matter."""
    for found in _PAIR.finditer(line):
        name = None if any(map(str.isdigit, found[1])) else _plain(found[1])
        is_part = name in _STEP_RANK and _PART_OF_STEP.search(line, 0, found.start())
        if name is None or (_is_known(name) and not is_part):
            name_at, at, total_at = _spans(found, 1, 2, 4)
            yield _Pair(name, name_at, at, _form(found[2]), found[3] or "", total_at)


def _form(number: str) -> str:
    if "e" in number:
        return "exponent"
    return "digits" if number.isdigit() else "decimal" if "." in number.rstrip(".") else "other"


def _rate(found: re.Match[str]) -> _Rate:
    over, _, below = found[3].partition("/")
    seconds_each = None if below in ("s", "sec", "second") else _UNIT_FACTOR.get(over, 1.0)
    over = over if seconds_each is None else "step"
    field = next(field for words, field in _RATE_FIELDS if over.startswith(words))
    return _Rate(field, _span(found, 1), 1e3 if found[2] else 1.0, seconds_each)


@lru_cache(maxsize=MOST_SHAPES)
def _plan(finds: Finds, digit_names: tuple[str, ...], is_one_epoch: bool) -> _Plan:
    """Return how lines of a shape are read, given the names in them that have digits."""
    names = iter(digit_names)
    pairs = {_plain(next(names)) if pair.name is None else pair.name: pair for pair in finds.pairs}
    inside = _take_inside(finds, pairs, is_one_epoch) if finds.epoch else None
    return _Plan(
        inside=inside,
        counters=tuple(_counters(pairs)),
        numbers=tuple(_numbers(pairs)),
        times=tuple(_times(pairs, _is_step_time)),
        counted_times=tuple(_times(pairs, _COUNTED_STEP_TIMES.__contains__)),
        seconds_left=next((pairs[name].at for name in _SECONDS_LEFT if name in pairs), None),
    )


def _take_inside(finds: Finds, pairs: dict[str, _Pair], is_one_epoch: bool) -> tuple[slice, slice | None] | None:
    """Return the counter of the epoch, and remove counters of the epoch from the pairs."""
    if finds.inside is None:
        for name in _STEP_NAMES_WITH_TOTAL:  # without a total: it counts the epoch, or is a size
            if name in pairs and pairs[name].total_at is None:
                del pairs[name]
        return (finds.batch, None) if finds.batch else None
    name, *at = finds.inside
    if is_one_epoch or (finds.epoch[1] is None and (name in ("step", "steps") or (name and "batch_cost" in pairs))):
        return None  # PaddleSeg, with batch_cost, prints the counter of the job this way
    pairs.pop(name, None)
    return at[0], at[1]


def _counters(pairs: Mapping[str, _Pair]) -> Iterator[_Counter]:
    named_total_at = next((pairs[key].at for key in _TOTAL_NAMES if key in pairs), None)
    has_micro = any(key in pairs for key in _MICRO_NAMES)
    for name in sorted(pairs.keys() & _STEP_RANK.keys(), key=_STEP_RANK.__getitem__):
        pair, is_micro = pairs[name], name in _MICRO_NAMES
        if _counts_steps(name, pair, pairs):
            called = "update" if has_micro and not is_micro else name
            yield _Counter(called, pair.at, pair.total_at, named_total_at, is_micro)


def _counts_steps(name: str, pair: _Pair, pairs: Mapping[str, _Pair]) -> bool:
    """Whether a number counts steps, unlike `step: 1172.13` (a time), `steps: 4000` (a setting) or `step=3.1e+4`."""
    if name in _STEP_NAMES_WITH_TOTAL and pair.total_at is None:
        is_measured = any("loss" in other for other in pairs)
        return is_measured and name != "iterations" and not pair.unit and pair.form == "digits"
    return not pair.unit and pair.form != "exponent" and (pair.form != "decimal" or name == "global_step")


def _numbers(pairs: Mapping[str, _Pair]) -> Iterator[tuple[str, slice, float]]:
    """Yield the pairs that are fields of their own: by the first known name, or else by a spelled one."""
    ranked: dict[str, tuple[int, _Pair]] = {}
    for name, pair in pairs.items():
        field, rank = _FIELD_OF_NAME.get(name) or (_spelled_field(name), len(_FIELD_OF_NAME))
        if field is not None and (field not in ranked or rank < ranked[field][0]):
            ranked[field] = rank, pair
    for field, (_, pair) in ranked.items():
        yield field, pair.at, 1e3 if pair.unit == "k" else 1.0


def _times(pairs: Mapping[str, _Pair], is_time: Callable[[str], bool]) -> Iterator[tuple[slice, float, float]]:
    for name, pair in pairs.items():
        suffixed = _TIME_SUFFIX.fullmatch(name)
        base, unit = (suffixed[1], suffixed[2]) if suffixed else (name, "ms" if name.startswith("ms") else "s")
        if is_time(name) or is_time(base):
            own = pair.unit if pair.unit in ("ms", "s") else unit
            yield pair.at, _UNIT_FACTOR[own], 1e3 if pair.unit == "k" else 1.0


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
    if section := _TRAIN_SECTION.match(name):
        return name[section.end() :]
    return next((name[len(section) :] for section in _SECTIONS if name.startswith(section)), name)


def _number(text: str) -> float:
    return float(text.replace(",", "." if "," in text and _DECIMAL_COMMA.fullmatch(text) else ""))


def _read_counter(counter: _Counter, line: str, fields: dict[str, Any]) -> bool:
    """Add the step that a counter shows; False if its number is none."""
    text = line[counter.at]
    step = int(text) if text.isdigit() else as_whole(_number(text))
    if step is None or step < 0:
        return False
    total = int(line[counter.total_at].replace(",", "")) if counter.total_at else None
    is_decimal = "," in text and "," not in line[counter.total_at or counter.at]  # `1,250/3`
    if total is not None and step > total and (counter.name == "batch" or is_decimal):  # `by batch 512/256`
        return False
    of_epoch = counter.name == "batch" and "epoch" in fields and fields.get("total_epochs") != 1
    if total and (of_epoch or (counter.is_micro and is_beside_epoch(fields, step, total))):
        fields["epoch_step"], fields["epoch_steps"] = step, total
        return True
    fields["step"], fields["counter"] = step, counter.name
    if not total and counter.named_total_at:
        total = as_whole(_number(line[counter.named_total_at]))
    elif not total:
        total = None
    if total is not None:
        fields["total_steps"] = total
    return True


def is_beside_epoch(fields: Mapping[str, Any], step: int, total: int) -> bool:
    """Whether a counter cannot count the job: epoch 3 of 200 does not fit step 120 of 1202."""
    epoch, epochs = fields.get("epoch"), fields.get("total_epochs")
    return epoch is not None and epochs is not None and not epoch - 1 <= epochs * step / total <= epoch + 1


def _add_drawn_bar(line: str, bar: tuple[slice, slice, slice], fields: dict[str, Any]) -> str | None:
    """Add the counts of a bar within an epoch; return its remaining time or "", None without a bar."""
    count, total = int(line[bar[0]]), int(line[bar[1]])
    is_epochs = (count, total) == (fields.get("epoch"), fields.get("total_epochs"))
    if is_epochs or "step" in fields or not ("loss" in fields or "epoch" in fields):
        return None
    fields["epoch_step"], fields["epoch_steps"] = count, total
    return line[bar[2]] if count < total and bar[2] else ""


def _add_speed(line: str, finds: Finds, plan: _Plan, fields: dict[str, Any]) -> None:
    for field, at, thousands, seconds_each in finds.rates:
        rate = _number(line[at]) * thousands
        if seconds_each is not None:
            rate = 1.0 / (rate * seconds_each) if rate > 0 else 0.0
        if rate > 0:
            fields.setdefault(field, rate)
    counted = "step" in fields or "epoch_step" in fields
    seconds = _seconds_per_step(line, plan.times)
    if counted and seconds is None:
        seconds = _seconds_per_step(line, plan.counted_times)
        if seconds is None and finds.column:
            seconds = float(line[finds.column]) * 1e-3
    if seconds is None and finds.took and (steps := int(line[finds.took[0]])):
        seconds = float(line[finds.took[1]]) / steps
    if seconds and "steps_per_second" not in fields:
        fields["steps_per_second"] = 1.0 / seconds
    if not 1e-9 < fields.get("steps_per_second", 1.0) < 1e9:
        del fields["steps_per_second"]


def _seconds_per_step(line: str, times: tuple[tuple[slice, float, float], ...]) -> float | None:
    for at, unit, thousands in times:
        if (number := _number(line[at])) > 0:
            return number * unit * thousands
    return None


def _add_eta(line: str, finds: Finds, plan: _Plan, left: str | None, fields: dict[str, Any]) -> None:
    shown = left or (line[finds.eta] if finds.eta else None)
    if shown:
        seconds = parse_duration(shown)
    else:
        seconds = _number(line[plan.seconds_left]) if plan.seconds_left else None
    if seconds is not None and 0 <= seconds < math.inf:
        fields["eta_seconds"] = seconds
        fields["eta_scope"] = "epoch" if left is not None or _ends_with_epoch(finds, seconds, fields) else "job"


def _ends_with_epoch(finds: Finds, eta: float, fields: Mapping[str, Any]) -> bool:
    """Whether an ETA is that of the epoch: MetricLogger's is, Paddle's is the job's, for others the numbers decide."""
    if finds.names_batch_cost or "epoch_step" not in fields:
        return False
    if finds.is_metric_logger:
        return True
    rate, epochs = fields.get("steps_per_second"), fields.get("total_epochs")
    rest = (fields["epoch_steps"] - fields["epoch_step"]) / rate if rate and fields["epoch_steps"] else 0.0
    return epochs is not None and rest > 1 and 0.5 < eta / rest < 2 and fields["epoch"] < epochs - 1
