"""Read events other than progress from single log lines: checkpoints, samples, errors, warnings, GPU figures. Pure."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from training_monitor.core.checkpoint_layouts import PREFIXES
from training_monitor.core.regex import regex
from training_monitor.logs.shapes import by_shape
from training_monitor.logs.text import last_match

MOST_PATHS, KEPT_PATHS = 1000, 500
OPEN_LINES = 50
_WEIGHTS = r"\.(?:safetensors|pth?|ckpt|bin|distcp|msgpack|h\d|keras|nemo|gguf|npz|tar|zip)(?![\w.])"
_BAR = regex(r"%\||\d/\d{1,12} \[\d")

# Texts of which a line contains one if it tells of an event
_SIGNS = tuple(
    "sav writ stor wrot sampl image error warn exception fatal critical mem segmentation dumped traceback loss grad gpu"
    " mib vram cuda".split()
)


class Events(NamedTuple):
    """What a line tells of by its words, whatever its numbers are: `message` is an error or a warning."""

    save: bool
    sample: bool
    message: bool
    gpu_utilization: bool
    gpu_memory: bool


NO_EVENTS = Events(False, False, False, False, False)


@by_shape
def events_in(line: str) -> Events:
    """Return which readers of this module have to look at a line."""
    if line.isascii() and not any(map(line.lower().__contains__, _SIGNS)):
        return NO_EVENTS
    found = Events(
        save=_SAVE.search(line) is not None,
        sample=_SAMPLE.search(line) is not None,
        message=_may_be_message(line),
        gpu_utilization=_UTILIZATION.search(line) is not None,
        gpu_memory=_shows_gpu_memory(line) and _MEMORY.search(line) is not None,
    )
    return found if any(found) else NO_EVENTS


# ---------------------------------------------------------------- errors, warnings

_HINT = regex(
    r"error|warn|exception|fatal|critical|out of memory|segmentation fault|core dumped|traceback:"
    r"|(?:loss|gradients?|grad[_ ]norm) (?:is |became |are )?(?:nan|inf)",
    re.IGNORECASE,
)
_VALUE_END = r"\s{0,3}(?:$|[,;|)\]}]|[\w/.\-]{1,60}\s{0,3}[=:])"
_NO_MESSAGE_WHATEVER_ITS_DIGITS = rf"""
      \b(?:no|zero|without(?:[ ]any)?)[ ](?:more[ ]|further[ ]|\w{{1,20}}[ ])?(?:errors?|warnings?)\b
    | \b(?:(?:errors?|warnings?|exceptions?)["']?|fail(?:ed|ures?)["'])\s{{0,3}}[:=]\s{{0,3}}
      (?:none|null|false|\[\]|\{{\}}|""|'')(?={_VALUE_END})
    | (?<![\w/.\-])[\w/.\-]{{0,80}}(?:[_/\-]|\b)errors?(?:[_\-]\w{{1,40}})?["']?\s{{0,3}}[:=]\s{{0,3}}
      [+-]?(?:\d{{0,15}}\.\d{{1,20}}(?:e[+-]?\d{{1,4}})?|\d{{1,15}}e[+-]?\d{{1,4}})%?(?={_VALUE_END})
    | (?<![\w\-])[\w\-]{{0,80}}[_\-](?:errors?|warnings?)["']?\s{{0,3}}(?:[:=]|\s)\s{{0,3}}\w{{1,40}}
    | \b(?:mean|squared|absolute|standard|relative|percentage|reconstruction|validation|training|word|character)
      [ ](?:\w{{1,20}}[ ])?errors?\b
    | \b(?:train(?:ing)?|test(?:ing)?|val(?:id(?:ation)?)?|eval(?:uation)?|dev|top-?\d|avg|average|final|best|prediction
        |quantization)[ _-]errors?\b(?=[\s:=(]{{0,6}}(?:$|[\d.%]|avg|average|mean|accuracy|loss|nan|min|max))
    | \berrors?[ ](?:(?:was|has[ ]been|is)[ ])?(?:resolved|recovered|cleared)\b
    | \berror[ \-](?:handling|handler|correct(?:ion|ing|ed|or)|rates?|bars?|free|margin|log(?:ging|s)?|level|checking
        |feedback)\b
    | ^\s{{0,200}}(?:raise|except|warnings\.warn)\b.*
    """
_NO_MESSAGE_OF_ANY_SHAPE = regex(_NO_MESSAGE_WHATEVER_ITS_DIGITS, re.IGNORECASE | re.VERBOSE)
_NO_MESSAGE = regex(
    rf"""
      \b0[ ](?:more[ ]|further[ ]|\w{{1,20}}[ ])?(?:errors?|warnings?)\b
    | \b(?:errors?|warnings?)["']?\s{{0,3}}[:=]\s{{0,3}}0(?={_VALUE_END})
    | {_NO_MESSAGE_WHATEVER_ITS_DIGITS}
    """,
    re.IGNORECASE | re.VERBOSE,
)
_ERROR = regex(
    r"""
      \berrors?\b | \b(?:fatal|critical)\b(?=\s{0,3}[\]:|!-]) | \bException\b(?=:|[ ]in\b)
    | (?<!\w)(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,80}(?:Error|Exception)\b(?=\s{0,3}[:(]|\s{0,3}$|[ ]\()
    | (?i:out[ ]of[ ]memory|\bsegmentation[ ]fault|\bcore[ ]dumped|\bbus[ ]error\b|\btraceback:)
    | (?i:\b(?:loss|gradients?|grad[_ ]norm)[ ](?:is[ ]|became[ ]|are[ ])?(?:nan|inf)\b)
    | \b(?:ERRORS?|Errors?|FATAL|CRITICAL)\b
    """,
    re.VERBOSE,
)
_WARNING = regex(r"\bwarn(?:ing)?s?\b|\w{1,60}Warning\b(?=:|\()", re.IGNORECASE)


def without_results(line: str) -> str:
    """Remove what only has the name of an error or a warning: counts of 0, metrics, options."""
    return _NO_MESSAGE.sub(" ", line)


def is_error(line: str) -> bool:
    """Whether a line reports an error; not a count of 0, a metric, an option, or a warning about errors."""
    if not _HINT.search(line):
        return False
    rest = without_results(line)
    error, warning = _ERROR.search(rest), _WARNING.search(rest)
    return error is not None and (warning is None or error.start() < warning.start())


def is_warning(line: str) -> bool:
    """Whether a line reports a warning."""
    return bool(_HINT.search(line) and _WARNING.search(without_results(line)))


def _may_be_message(line: str) -> bool:
    """Whether a line of this shape may be an error or a warning: only a count of 0 may be none."""
    if not _HINT.search(line):
        return False
    rest = _NO_MESSAGE_OF_ANY_SHAPE.sub(" ", line)
    return bool(_ERROR.search(rest) or _WARNING.search(rest))


# ---------------------------------------------------------------- checkpoints

_KIND = r"(?:checkpoints?|ckpt|model|weights|lora|adapter|training state|train state)"
_SAVE = regex(
    rf"\b(?P<begin>saving|writing|storing)\b[^\n]{{0,160}}?(?:\b{_KIND}\b|{_WEIGHTS})"
    rf"|\b(?:saved?|wrote|written|stored)\b[^\n]{{0,160}}?(?:\b{_KIND}\b|{_WEIGHTS})"
    rf"|\b{_KIND} (?:\S{{1,200}} )?(?:is |was |has been |successfully )?(?:saved|written|stored)\b",
    re.IGNORECASE,
)
_NO_SAVE = regex(
    r"\b(?:not|never|skip\w{0,6}|fail\w{0,6}|errors?|cannot|can't|will|would|every|load\w{0,6}|resum\w{0,6}"
    r"|restor\w{0,6}|if|when|should|before)\b|save_\w",
    re.IGNORECASE,
)
_QUOTED = regex(r"[\"'`]([^\"'`\n]{1,400})[\"'`]")
_WORD = regex(r"[^\s\"'`,;()\[\]=]{1,400}")
_WEIGHTS_FILE = regex(rf"{_WEIGHTS}$", re.IGNORECASE)
_NO_PATH = regex(
    r"https?://.*|[\d.]{0,20}(?:its?|s|steps?|tok\w{0,5}|samples?|[kmg]i?b)/\w{1,8}|[^A-Za-z]*", re.IGNORECASE
)
_OTHER_FILE = regex(r"\.(?:json|jsonl|ya?ml|txt|csv|png|jpe?g|gif|webp|mp4|wav|html|log|py|md|model)$")
_SHARD = regex(r"[-_.]\d{1,6}-of-\d{1,6}")
_STEP = regex(
    rf"(?<!total_)(?<!max_)(?:checkpoints?|ckpt|steps?|iter(?:ation)?)[-_ =:#]{{0,3}}(\d{{1,12}})(?!\d)"
    rf"|(?<!epoch)[-_](\d{{1,12}}){_WEIGHTS}|\b(?:{PREFIXES})(\d{{1,12}})(?!\d)",
    re.IGNORECASE,
)
_FILE_OF_A_FOLDER = regex(
    r"/(?:pytorch_|adapter_|diffusion_pytorch_)?(?:model|optimizer|consolidated|mp_rank|zero_pp|rng_state|scheduler|ema)"
    r"[\w.\-]{0,100}$"
)

Item = TypeVar("Item", bound=Hashable)
_Key = tuple[str, int | str]


class _Save(NamedTuple):
    """One line about saving: whether it begins a save, and the step and path that it names."""

    begins: bool
    step: int | None
    path: str | None

    @property
    def key(self) -> _Key | None:
        if self.step is not None:
            return "step", self.step
        return ("path", _FILE_OF_A_FOLDER.sub("", _SHARD.sub("", self.path))) if self.path else None


@dataclass
class CheckpointCounter:
    """Counts distinct checkpoints by step, or else by path; overwriting a file does not count again.

    "Saving ..." and a later line about the same save ("... saved", "writing to X") count once together.

    Attributes:
        seen, paths: the counted keys, and the distinct paths that were named, oldest first.
        open, open_for: the key of the save in progress, and for how many more lines it can be continued.
    """

    count: int = 0
    seen: list[_Key] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    open: _Key | None = None
    open_for: int = 0

    def skip(self, lines: int) -> None:
        """Pass over lines that tell of no save."""
        self.open_for -= lines

    def read(self, line: str) -> None:
        """Count the checkpoint in a line, unless an earlier line counted it."""
        save = _read_save(line)
        self.open_for -= 1
        if save is None:
            return
        goes_on = self._goes_on(save)
        self.count += not goes_on and save.key not in self.seen
        if save.path:
            remember(self.paths, [save.path], MOST_PATHS, KEPT_PATHS)
        if save.key:
            remember(self.seen, [save.key], MOST_PATHS, KEPT_PATHS)
        self.open = save.key or (self.open if goes_on else None)
        self.open_for = OPEN_LINES if save.begins else 0

    def _goes_on(self, save: _Save) -> bool:
        """Whether a line continues the save in progress: no contradiction, and no second anonymous begin."""
        if self.open_for <= 0:
            return False
        if self.open is None or save.key is None:
            return save.key is not None or not save.begins
        return self.open == save.key or self.open[0] != save.key[0]


def remember(known: list[Item], found: Iterable[Item], most: int, kept: int) -> None:
    """Add what is new; beyond `most` items, keep only the last `kept`."""
    distinct = set(known)
    for new in found:
        if new not in distinct:
            known.append(new)
            distinct.add(new)
            if len(known) > most:
                del known[:-kept]
                distinct = set(known)


def _read_save(line: str) -> _Save | None:
    found = _SAVE.search(line)
    if not found or _NO_SAVE.search(line) or _BAR.search(line):
        return None
    rest = line[found.start() :]
    words = _QUOTED.findall(rest) + [word.strip(":.") for word in _WORD.findall(rest)]
    path = next((word for word in words if _is_path(word)), None)
    if path and _OTHER_FILE.search(path):
        return None
    steps = _STEP.findall(_SHARD.sub("", line))
    step = int("".join(steps[-1])) if steps else None
    return _Save(found["begin"] is not None, step, path)


def _is_path(word: str) -> bool:
    return bool(_WEIGHTS_FILE.search(word) or ("/" in word.strip("/") and not _NO_PATH.fullmatch(word)))


# ---------------------------------------------------------------- samples

_SAMPLE = regex(
    r"(?P<begin>\bgenerating (?:\w{1,20} ){0,2}samples?\b)|\bsamples? generated\b"
    r"|\bsav(?:ing|ed) (?:\w{1,20} )?sample images?\b|\bvalidation images?\b|\bgenerating images\b",
    re.IGNORECASE,
)


@dataclass
class SampleCounter:
    """Counts generated samples: a begin and its end are one, and a bar counts when it reaches 100 %."""

    count: int = 0
    open: bool = False
    bar_done: bool = False

    def read(self, line: str) -> None:
        """Count the sample that a line tells of, if it does."""
        found = _SAMPLE.search(line)
        if not found:
            return
        if _BAR.search(line) or "%" in line:
            done = "100%" in line
            self.count += done and not self.bar_done
            self.bar_done = done
            return
        begins = found["begin"] is not None
        self.count += begins or not self.open
        self.open = begins


# ---------------------------------------------------------------- phases

_PHASES = (
    (
        "checkpoint",
        r"^upload\b.{0,60}\d%\||\b(?:saving|writing|uploading|consolidating)\b"
        r".{0,120}(?:\b(?:checkpoint|ckpt|model|state|weights)"
        r"|_(?:checkpoint|ckpt|model|states?|weights)(?:\b(?!/|\.\w)|[\w\-]{0,40}\."
        r"(?!(?:csv|gif|html|jpe?g|json|log|md|pdf|png|svg|txt|ya?ml)\b)[a-z]\w{0,12}\b(?!/)))"
        r"|\bpushing to (?:the )?hub"
        r"|\b(?:gathering|merging|pushing)(?: (?:adapter|all|final|full|lora|optimizer|sharded|the)){0,3}"
        r" (?:adapter|checkpoint|ckpt|model|state_?dict|weights)",
    ),
    (
        "evaluation",
        r"\b(?:running|starting|beginning)\b.{0,40}\b(?:evaluation|validation|eval|inference)\b|\b(?:evaluat|validat)ing\b"
        r"|\b(?:validation|testing|sanity checking) dataloader \d|\bcomputing validation|\binference done \d{1,9}/"
        r"|map50-95\):"
        r"|^(?:(?!loss).){0,80}?(?<![\w./])(?:val(?:id(?:ation)?)?|eval(?:uation)?|test)\b[^,=]{0,20}(?:\d%\||\[\s{0,9}\d{1,9}\s?/)",
    ),
    (
        "sampling",
        r"\b(?:generating|sampling)\b.{0,40}\b(?:sample|image|output|completion|rollout)s?\b"
        r"|\bprompts:\s{0,9}\d{1,3}%\|",
    ),
    ("compilation", r"\b(?:re)?compiling\b|\bcapturing cuda ?graphs?\b|\bautotuning\b|^autotune \w{1,40}\("),
    ("loading", r"\bloading\b.{0,80}\b(?:checkpoint|model|weights|shards|dataset|data)\b"),
    (
        "loading",
        r"\.safetensors:\s{1,9}\d{1,3}%\|"
        r"|^(?:map|filter|downloading|fetching|resolving|running tokenizer|tokenizing)\b(?![-@]).{0,60}\d%\|",
    ),
)
_PHASE = tuple((name, regex(pattern, re.IGNORECASE)) for name, pattern in _PHASES)


def find_phase(text: str) -> str | None:
    """Return what the last line of a log says that the training is doing instead of steps.

    Returns: checkpoint | evaluation | sampling | compilation | loading, or None.
    """
    lines = text[-4096:].replace("\r", "\n").split("\n")
    line = next((line for line in reversed(lines) if line.strip()), "")
    return next((name for name, pattern in _PHASE if pattern.search(line)), None)


# ---------------------------------------------------------------- GPU figures

_AMOUNT = r"(\d{1,12}(?:\.\d{1,9})?)"
_UTILIZATION = regex(
    r"\bgpus?(?:[ _]?\d{1,2})?(?:[ _/\-]?(?:util(?:i[sz]ation)?|usage|load))?[\"']?\s{0,3}[:=]?\s{0,4}"
    rf"{_AMOUNT}\s?%"
    rf"|\bgpu[ _](?:util(?:i[sz]ation)?)[\"']?\s{{0,3}}[:=]\s{{0,4}}{_AMOUNT}(?![\w.])"
    rf"|\d{{1,7}}MiB\s{{0,3}}/\s{{0,3}}\d{{1,7}}MiB\s{{0,3}}\|\s{{0,6}}{_AMOUNT}%",
    re.IGNORECASE,
)
_MEMORY = regex(
    rf"(?<![\w.]){_AMOUNT}\s?(MiB|MB|GiB|GB)?\s{{0,3}}(?:/|\bof\b)\s{{0,3}}{_AMOUNT}\s?(MiB|MB|GiB|GB)(?![\w/])",
    re.IGNORECASE,
)
_GPU_MEMORY = regex(r"\b(?:gpu|vram|cuda|mem|memory)(?![a-z])|\dMiB\b", re.IGNORECASE)
_OTHER_MEMORY = regex(r"\b(?:cpu|ram|host|system|disk|swap)\b|download", re.IGNORECASE)


def read_gpu_utilization(line: str) -> float | None:
    """Return the per cent in `GPU: 87%`, `gpu_util=87` or nvidia-smi's table; None without one."""
    found = last_match(_UTILIZATION, line)
    if found is None:
        return None
    percent = float(found[1] or found[2] or found[3])
    is_fraction = found[2] is not None and 0 < percent < 1
    return None if is_fraction or percent > 100 else percent


def read_gpu_memory(line: str) -> dict[str, float] | None:
    """Return what is used and the total in MB from `VRAM 20.5/24 GB` or nvidia-smi's table; None without one."""
    if not _shows_gpu_memory(line):
        return None
    found = last_match(_MEMORY, line)
    if not found:
        return None
    factors = [1024.0 if unit.lower().startswith("g") else 1.0 for unit in (found[2] or found[4], found[4])]
    used, total = float(found[1]) * factors[0], float(found[3]) * factors[1]
    return {"used": used, "total": total} if used <= total else None


def _shows_gpu_memory(line: str) -> bool:
    return _GPU_MEMORY.search(line) is not None and not _OTHER_MEMORY.search(line)
