"""The progress a training log shows, whatever framework wrote it.

What it answers: the newest step, epoch, loss, speed and remaining time, in text order; never the largest number.
What it refuses: counting validation, download, generation and preprocessing bars, settings echoed at the start
(`save_steps=500`), the command line Ray prints, the step a run resumed from, or a total it was not told.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from training_monitor.models import Progress
from training_monitor.parse.epoch_count import EpochCount
from training_monitor.parse.log_bars import BAR, bar_key, read_bar, read_spelled_bar, split_name
from training_monitor.parse.log_fields import read_fields
from training_monitor.parse.log_tables import read_header, row_as_pairs
from training_monitor.parse.log_text import last_match, log_pieces, message_start

_NOT_PROGRESS = re.compile(
    r"running entrypoint|\bresum(?:e|ed|ing)\b|\brestor(?:e|ed|ing)\b|\bload(?:ed|ing)\b[^\n]{0,200}\bcheckpoint"
    r"|\bload(?:ed|ing)\b[^\n|:=,]{0,200}\b(?:model|weights|state)\b"
    r"|\bcontinu(?:e|ing) (?:training )?from\b|\b(?:namespace|arguments?|config|configuration)\s?[({=]"
    r"|^\s*(?:[+$] )?(?:python3?|torchrun|accelerate|deepspeed|srun|mpirun|bash|ray job) "
    r"|(?:epoch|iter)\s?\((?:val|test)\)|\bbox\(p\b|\bsaving dict for\b|\bprogress on:\s?(?:val|eval|test)"
    r"|^(?:train|eval)_\w{1,60}\s{1,40}=\s{2}"  # HF's closing table
    r"|^(?:step|epoch|iter|iteration)\s{1,9}\d{1,12}: (?:val|valid|eval|test)\s{1,4}(?!loss|acc|ppl)\w"
    r"|[\"'](?:_?type|mode|split|phase|stage)[\"']: ?[\"'](?:val|eval|test)"
)
_EVALUATION_WORDS = r"(?:val|valid|validat(?:e|ion|ing)|eval|evaluat(?:e|ion|ing)|test|testing|inference|cv)"
# A line whose message begins so is about evaluation; `val loss` names one number of it
_EVALUATION_LINE = re.compile(
    rf"\[?{_EVALUATION_WORDS}(?:\s?[:\[\]|(]|\s(?!(?:loss|acc|accuracy|ppl|perplexity|score)\b)|$)"
)
_EVALUATION_PART = re.compile(
    rf"(?:(?<=\s)|(?<=\[))(?<!policy ){_EVALUATION_WORDS}"
    r"(?:\s?:(?P<value>\s?(?:[\d.\-]|nan|n/a|none))?|\s?[\]\[|]| on ')"
)
_MEASURED = re.compile(r"(?:loss|learn|train)\b[\"']?\s?[:=]?\s{0,9}[\d\-]")
# "Step 2: install", "Step 3/12 : RUN", "Compiling the model (step 1/3)": a script's or docker's own counting
_NUMBERED_STAGE = re.compile(r"^\W{0,10}step \d{1,4}(?:/\d{1,4})?\s?[:.\-]\s{1,4}[a-z]")
_TRANSFER = re.compile(r"\b\d{1,6}(?:\.\d{1,3})? ?[kmgt]i?b/s\b")  # gsutil, rclone, wget
_STAGE_OF_WORK = re.compile(r"(?!train|pretrain|fine|runn|start|finish)[a-z]{3,20}ing\b[^\n]{0,120}\(step \d")
_NEW_ATTEMPT = re.compile(r"running entrypoint|running training|traceback \(most recent|\bresum(?:e|ed|ing)\b")
# Work that draws a bar without a name next
_OTHER_WORK_BEGINS = re.compile(
    r"(?:caching|checking cache|generating|sampling|running (?:validation|evaluation|inference|eval)\b)[^\[%]{0,400}"
)
_SAVE = re.compile(
    r"\b(?:saved?|saving|wrote|writing|written|stored|storing)\b[^\n]{0,120}?"
    r"(?:checkpoint|ckpt|model|state|weights|safetensors|step)|\bcheckpoint (?:\S{1,200} )?(?:saved|written|at step)"
)
_SAVED_STEP = re.compile(
    r"(?:checkpoints?[-_ ]|steps?[-_ =:]{1,3}|iter(?:ation)?[-_ =:]{1,3})(\d{1,12})(?![\w.]*\d)"
    r"|(?<!epoch)[-_](\d{1,12})\.(?:safetensors|pth?|ckpt|bin)\b"
)
_FINISHED = re.compile(
    r"\btraining (?:is |has |was )?(?:been )?(?:completed?|finished|done)\b(?! (?:iteration|epoch|step))"
    r"|\b(?:finished|completed|done) training\b(?! (?:epoch|step|iteration|batch))|\btrain_runtime['\"]?\s{0,40}[:=]"
    r"|\bjob '[^']{1,200}' succeeded|local worker group finished|worker group successfully finished"
    r"|trainer\.fit` stopped: `max_(?:epochs|steps)=\d{1,12}` reached"
    r"|\b\d{1,9} epochs completed in [\d.]{1,12} hours|\bloss for final step: |\btraining of experiment is done\b"
    r"|\btraining took \d|\bjob (?:\S{1,100} )?(?:finished|completed) \(status: succeeded"
    r"|^\W{0,20}state: succeeded|reporting training success"
    r"|\bstop(?:ped|ping)? training: max(?:imum)?[ _]epochs?\b"
    r"|\btrial \S{1,100} completed after \d{1,12} iterations|\bprocess \d{1,9} exits successfully"
)
# What another training that is over says before the one that matters begins
_OTHER_FINISHED = re.compile(
    r"(?<!training in )\bepoch \d"
    r"|\b(?:warm-?up|tokenizer|vocab(?:ulary)?|probe|(?:stage|phase|fold|round) \d{1,3}) training\b"
)
_FINISHED_MESSAGE = re.compile(
    r"(?:main: )?(?:total )?training time:? (?:(?:\d{1,5} days?, )?\d{1,6}:\d\d:\d\d|[\d.]{1,12} ?s\b)"
)
_ANNOUNCED = (
    (
        "total_steps",
        re.compile(r"\btotal (?:optimization |training |train )?steps\b[^:=\d]{0,20}[:=]\s{0,4}(\d[\d,]{0,15})"),
    ),
    ("total_epochs", re.compile(r"\bnum(?:ber of)? (?:train(?:ing)? )?epochs\b[^:=\d]{0,20}[:=]\s{0,4}(\d{1,9})")),
    ("total_epochs", re.compile(r"\bstopped: `max_epochs=(\d{1,9})` reached")),
    ("total_epochs", re.compile(r"^(?:namespace\((?:[^\n]{0,5000}?, )?)?epochs=(\d{1,9})(?=[,)]|$)")),
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
    return read_progress(text, EpochCount())


def read_progress(text: str, epochs: EpochCount) -> Progress:
    """The same of the next part of a log, by what the parts before it showed of its epochs; `epochs` takes it in."""
    reader = ProgressReader(epochs)
    for piece in log_pieces(text):
        reader.read(piece)
    return reader.progress


def read_samples(samples: Sequence[str]) -> EpochCount:
    """What places spread evenly over a log, in text order, show of how it counts; for `read_progress` of its end."""
    epochs, counters = EpochCount(), list[tuple[float | None, int | None, int | None]]()
    for sample in samples:
        read_progress(sample, epochs)
        counters.append((epochs.counted_in, epochs.step, epochs.steps))
    return epochs.learn_from_samples(counters)


class _Job(NamedTuple):
    """What counts the job: a bar (`key` is its name, "" for none) or a line (None); `measured`: a loss came with it."""

    key: str | None
    total: int
    measured: bool


class ProgressReader:
    """Reads pieces in text order; what a later piece says replaces what an earlier one said."""

    def __init__(self, epochs: EpochCount) -> None:
        self.progress = Progress()
        self._epochs = epochs
        self._finished_at: int | None = None
        self._job: _Job | None = None
        self._after_job: tuple[_Job, Mapping[str, Any]] | None = None  # a bar behind the full one, and what it shows
        self._other_begins = False
        self._other_total: int | None = None
        self._micro = self._counted = self._epochs_drawn = False
        self._columns: tuple[str, ...] | None = None  # of the table whose rows come one by one

    def read(self, piece: str) -> None:
        """One piece: bars, and what other loggers wrote before, between and behind them on the same line."""
        start = 0
        for bar in BAR.finditer(piece):
            words, name = split_name(piece[start : bar.start()])
            self._read_words(words)
            self._read_bar(name.lower(), bar)
            start = bar.end()
        self._read_words(piece[start:])

    def _read_words(self, words: str) -> None:
        line = words.strip().lower()
        if not line:
            return
        if _NEW_ATTEMPT.search(line):
            self._job = self._after_job = self._other_total = None
            self._other_begins = self._epochs_drawn = False
            self._epochs.restart()
        self._read_announced(line)
        message = message_start(line)
        self._other_begins = self._other_begins or _OTHER_WORK_BEGINS.fullmatch(line, message) is not None
        if (_FINISHED.search(line) or _FINISHED_MESSAGE.match(line, message)) and not _OTHER_FINISHED.search(line):
            self.progress, self._finished_at = replace(self.progress, finished=True), self.progress.step
        if _NOT_PROGRESS.search(line):
            return
        self._columns = read_header(line) or self._columns
        line = (self._columns and row_as_pairs(self._columns, line)) or line
        self._take(self._line_fields(line[: _training_end(line, message)], message), line)

    def _line_fields(self, line: str, message: int) -> dict[str, Any]:
        fields = {**read_fields(line), **read_spelled_bar(line)} if line else {}
        if "train_runtime" in line:
            fields.pop("loss", None)
        measured = "loss" in fields or "learning_rate" in fields or "grad_norm" in fields
        if _SAVE.search(line):
            saved = _saved_step(line)
            fields = fields if "loss" in fields else {}
            fields.update({"checkpoint_step": saved} if saved is not None else {})
        elif not measured and _is_other_work(line, message):
            return {}
        if self._is_other_counter(fields.pop("counter", None), fields):
            fields.pop("step", None)
            fields.pop("total_steps", None)
        if "loss" in fields:
            self._measure_job()
        if fields.get("total_steps") and self._job is None:
            self._job = _Job(None, fields["total_steps"], measured)
        return fields

    def _is_other_counter(self, counter: str | None, fields: Mapping[str, Any]) -> bool:
        """`iter` where a line counted `step` beside it, and environment steps where a line counted iterations."""
        if counter is None:
            return False
        self._micro = self._micro or counter == "update"
        self._counted = self._counted or (counter != "total_timesteps" and "total_steps" in fields)
        return (self._micro and counter == "iter") or (self._counted and counter == "total_timesteps")

    def _read_announced(self, line: str) -> None:
        for field, pattern in _ANNOUNCED:
            found = pattern.search(line)
            if found and not (field == "total_steps" and self._job and self.progress.step):
                total = int(found[1].replace(",", ""))
                self._show({field: total, **self._epochs.announce({field: total})})
                if field == "total_steps":
                    self._job = _Job(None, total, False)

    def _read_bar(self, name: str, bar: re.Match[str]) -> None:
        fields = read_bar(name, bar)
        fields.pop("counter", None)
        if "total_epochs" in fields and not fields.keys() & {"step", "epoch_step"}:
            self._epochs_drawn = (fields["total_epochs"] or 1) > 1
        elif self._epochs_drawn and "total_steps" in fields and "epoch" not in fields:
            fields.update(epoch_step=fields.pop("step"), epoch_steps=fields.pop("total_steps"))
            fields["eta_scope"] = fields["eta_scope"] and "epoch"
        if "total_steps" not in fields or self._is_job_bar(bar_key(name), fields):
            self._take(fields, f"{name} {bar['notes']}".lower())

    def _is_job_bar(self, key: str, fields: Mapping[str, Any]) -> bool:
        """Whether a bar is the job's: evaluation and sampling draw smaller bars, often unnamed, inside it or after."""
        total, job, measured = fields["total_steps"], self._job, "loss" in fields or "learning_rate" in fields
        if total is None:
            return True
        if job is None or total != job.total:
            if not key and self._other_begins:
                self._other_begins, self._other_total = False, total
            if not key and total == self._other_total and not measured:
                return False
        found = _Job(key, total, measured)
        if job is not None and not measured:
            full = (self.progress.step or 0) >= job.total
            renamed = job.key is not None and key != job.key
            if (total < job.total and (renamed or not key)) or (renamed and job.measured and not full):
                self._after_job = (found, fields) if full else None
                return False
        self._job, self._after_job = found._replace(measured=measured or bool(job and job.measured)), None
        return True

    def _measure_job(self) -> None:
        """A loss belongs to the bar in sight; one that began behind a full bar is the next job's."""
        if self._after_job is not None:
            self._job, fields = self._after_job
            self._after_job = None
            self._take(fields, "")
        if self._job is None:
            self._other_total = None
        else:
            self._job = self._job._replace(measured=True)

    def _take(self, fields: Mapping[str, Any], text: str) -> None:
        self._show(self._epochs.read(fields, text))

    def _show(self, changes: dict[str, Any]) -> None:
        if not changes:
            return
        step, before = changes.get("step"), self.progress
        if step is not None and "total_steps" not in changes and step > (before.total_steps or step):
            changes["total_steps"] = None
        if before.finished and step is not None and step not in (self._finished_at, changes.get("total_steps")):
            changes["finished"] = None
        self.progress = replace(before, **changes)


def _training_end(line: str, message: int) -> int:
    """Where a line stops being about training: 0 for an evaluation line, its length when nothing else is on it."""
    if _EVALUATION_LINE.match(line, message):
        return 0
    for found in _EVALUATION_PART.finditer(line):
        if not _MEASURED.search(line, 0, found.start()):
            return 0
        if not found["value"]:
            return found.start()
    return len(line)


def _is_other_work(line: str, message: int) -> bool:
    """The line numbers a script's stages, or tells of work that is not training."""
    stage = _NUMBERED_STAGE.search(line) or _STAGE_OF_WORK.match(line, message)
    return bool(stage or _TRANSFER.search(line) or _OTHER_WORK_BEGINS.match(line, message))


def _saved_step(line: str) -> int | None:
    found = last_match(_SAVED_STEP, line)
    return int(found[1] or found[2]) if found else None
