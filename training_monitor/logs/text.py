"""Split a log into clean pieces: no colours or rank prefixes, one piece per redraw, bounded length. Pure.

A carriage return (or the backspaces of Keras 2) starts a new piece like a newline does: a progress bar redraws itself
on one line, and only its newest drawing counts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from training_monitor.core.regex import regex
from training_monitor.logs.shapes import LONGEST_SHAPE, by_shape, shape_of, shapes_and_lines

HEAD_LENGTH = 6000
TAIL_LENGTH = 2000

_ESCAPE = regex(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])|\[\d{1,2}(?:;\d{1,3}){0,4}m")
_BLANKS = "\u00a0\t\ufeff\x00"
_BLANK = regex(f"[{_BLANKS}]")
_SPACES = str.maketrans(dict.fromkeys(_BLANKS, " "))
_PREFIX = regex(
    r"""\s*(?:
      \((?:[^()\n]{1,80}[ ,])?pid=\d{1,10}[^()\n]{0,60}\)[ ]?     # Ray actors and tasks, NeMo-Run
    | \d{1,4}:[ ](?![\d.]{1,20},)                                 # srun --label
    | [\w.\-]{1,60}/\d{1,6}[ ](?=\[(?:default|rank)\d)             # torchx, NeMo-Run
    | (?:worker|node|trainer|host|master|gpu|pod|ip)[\w.\-]{0,60}[ ]{0,9}[|:][ ]  # pdsh, docker compose
    | (?:ERROR|INFO|WARNING|DEBUG)[ ]\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\s
      (?=[^\n]{0,300}(?:\d/\d{1,12}[ ]\[|\b(?:step|epoch|iter)\b))       # a cloud's logger of standard error
    | \[\d{1,4},\d{1,5}\]<std(?:out|err)>:                        # mpirun --tag-output
    | \[(?:rank|default)[ ]?\d{1,5}\]:?[ ]?                       # torchrun
    | \[pod/[^\]\s]{1,200}\][ ]                                   # kubectl logs --prefix
    | (?:[A-Z][a-z]{2}[ ][ \d]\d[ ]\d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?[+-]\d\d:?\d\d)[ ]
      (?:[\w.\-]{1,64}[ ](?!systemd|earlyoom|(?i:epoch|step|iter)\[)  # ts, syslog, journalctl
         [\w./@\-]{1,64}\[\d{1,10}\]:[ ])?
    | \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)[ ]  # kubectl logs --timestamps
    )""",
    re.VERBOSE,
)
RAY_REPEATED = regex(r"\s{0,8}\[repeated \d{1,9}x across cluster\](?: \(Ray deduplicates logs[^\n]*)?")
_MESSAGE_PREFIX = regex(
    r"""[\s|>:;=*#\-]{0,40}(?:
      \[(?!\s{0,9}\d{1,12}\s{0,9}(?:/\s{0,9}\d{1,12}[^\]\n:]{0,12})?\]|val|eval|test|train)[^\[\]\n]{1,160}\]
    | \((?=[^()\n]{0,60}\d\))[^()\n]{1,60}\)
    | \d{2,4}[-/]\d\d[-/]\d{2,4}(?![\w/])
    | t?\d\d:\d\d:\d\d\S{0,16}
    | [iwef]\d{4,8}\s(?:\d\d:\d\d:\d\d\S{0,16}\s{1,9})?\d{1,20}\s[\w./]{1,80}:\d{1,6}\]
    | [\w./]{1,80}\.py:\d{1,6}\]?
    | (?:debug|info|warning|warn|error|critical)\b(?::[\w.]{1,60}:)?
    | (?!step|iter|epoch|batch|update|val|eval|test|train|infer)[\w.<>]{1,80}(?::\d{1,6})?
      (?:\s[|\-]\s|\s(?=(?:debug|info|warning|error)\b))
    )""",
    re.VERBOSE | re.IGNORECASE,
)
_MESSAGE_SIGNS = regex(r"[\s|>:;=*#\-]{0,40}")
_CLOCK = regex(r"(?:(\d{1,5}) days?,? )?(?:(\d{1,6}):)?(\d{1,6}):(\d\d(?:\.\d{1,9})?)")
# Before the traceback of an exception that ends nothing; beside the training: that ends at most its thread
IGNORED = regex(
    r"\W*(?:exception ignored\b|logging error -|\w{1,9} exception was never|future: <"
    r"|.{0,80}\ba matching triton is not available)"
)
CHAINED = regex(r"\b(?:during handling of the above exception|was the (direct cause) of the following exception)")
BESIDE = regex(rf"{IGNORED.pattern}|\W*(?:exception in thread\b|error in atexit\b)")
_COUNT = regex(r"(\d{1,3}(?:,\d{3}){1,4}|\d{1,12}(?:\.\d{1,3})?)([kKMG]?)")
_THOUSANDS = {"": 1, "k": 1000, "m": 10**6, "g": 10**9}
_SPOKEN = regex(r"(\d{1,9}(?:\.\d{1,9})?) ?(d|h|m|s)[a-z]{0,6}", re.IGNORECASE | re.ASCII)
_SPOKEN_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}

_LOSS = r"(?<!packet)(?<!packet_)loss"
_METRIC = (  # of a training, and not of a server
    r"(?=(?:(?:train|valid|test|eval|cv)\w{0,20}(?:'s |[\-_/])[\w@.\-]{1,40}"
    rf"|(?:(?:train|training|avg|mean|total) )?[\w/.\-]{{0,40}}(?:{_LOSS}|acc(?![eo]|um)|auc"
    r"|err(?!ors|ed|u|(?:or)?_)|ms[el](?!c)|mae|(?<!a)lr|learning_rate|steps_per_sec|reward|norm(?!al)|ppl(?![iy]))[\w\-]{0,20}"
    r"|(?:token|sample|image|sequence|example|frame)s?_per_sec\s?[=:]\s?[\d.]{1,20}"
    rf"[^\n]{{0,60}}[\s,]\w{{0,20}}{_LOSS})\s?[=:]\s?(?:-?\d|nan))"
)
_BRACKET = r"\[\s{0,6}(\d{1,12})\s{0,6}/\s{0,6}(\d{1,12})(?:\s{0,4}\(\s{0,4}\d{1,3}%\))?\]"
# Rewrites different wordings into those that the field tables know, and names that would be misread into others. Each
# comes first with texts of which a line must contain one: a text search costs a tenth of a pattern search.
_EPOCHS = ("轮", "エポック", "에폭", "epoche", "époque", "época", "epoca", "эпоха")
_STEPS = ("步", "迭代", "ステップ", "스텝", "schritt", "étape", "paso", "passo", "шаг")
_LOSSES = ("损失", "損失", "손실", "verlust", "perte", "pérdida", "perda", "потери")
_OF_TRAINING = r"(?=\W|$|训练|迭代|平均|损失)"  # not of a conversation
WORDS_ABROAD = (*_EPOCHS, *_STEPS, *_LOSSES, "批次")
_WORDINGS = tuple(
    (needs, regex(pattern), wording)
    for needs, pattern, wording in (
        (("轮",), rf"第\s?(\d{{1,9}})\s?(?:/|轮\s?[/,，(（]?\s?共)\s?(\d{{1,9}})\s?轮{_OF_TRAINING}", r"epoch \1/\2 "),
        (("轮",), rf"第\s?(\d{{1,9}})\s?轮{_OF_TRAINING}", r"epoch \1 "),
        (_EPOCHS, rf"(?<!\w)(?:训练)?(?:{'|'.join(_EPOCHS)})[次数]?\s?[:：#]?\s?(?=\[?\d{{1,9}}\s?/)", "epoch "),
        (_STEPS, rf"(?<!\w)(?:训练)?(?:{'|'.join(_STEPS)})(?:数|骤|次数)?\s?[:：]?\s?(?=\[?\d{{1,12}}\s?/)", "step "),
        (("批次",), r"(?<!\w)(?:训练)?批次\s?[:：]?\s?(?=\[?\d{1,12}\s?/)", "batch "),
        (
            _LOSSES,
            rf"(?<!\w)(?<![^\W\d_] )(?:(?:train(?:ing)?|训练集?|平均|总|학습|学習) ?)?"
            rf"(?:{'|'.join(_LOSSES)})值?\s?[:：=]\s?(?=-?\d|nan)",
            "loss: ",
        ),
        (("step/epoch",), r"\bstep/epoch \[(\d{1,12})/(\d{1,9})\]", r"step \1 epoch \2 "),
        (("g ",), r"^(\d{1,6}/\d{1,6})\s{1,12}[\d.]{1,8}g\s{1,12}(?=\d)", r"epoch \1 loss "),
        (("  ",), r"^(\d{1,6}/\d{1,6})\s{2,12}(?=[\d.]{1,12}\s{2,12}[\d.])", r"epoch \1 "),
        (("[",), rf"(?:^|(?<=\] ))\[(\d{{1,12}})(?: \| [\d.]{{1,20}})?\]\s{{1,4}}{_METRIC}", r"step \1 "),
        (
            ("[",),
            rf"(?:^|(?<=\d:\d\d )|(?<=\d:\d\d\] )|(?<=[a-z]\] ))\[\s{{0,6}}(\d{{1,12}}/\d{{1,12}})\]:?\s{{1,4}}"
            rf"(?!val|eval|test|dev)(?:{_METRIC}|(?=[a-z]{{1,12}}\s{{1,8}}\|\s{{1,3}}loss\s{{1,3}}\d))",
            r"step \1 ",
        ),
        ((" | loss",), r"^(\d{1,12}) \| (?=loss\b)", r"step \1 | "),
        (("] | gnorm",), r"\[\s{0,9}(\d{1,12})\] \| (?=gnorm )", r"step \1 | "),
        ((":",), r"^(\d{1,12}):\s{1,4}(?=(?:learn|loss)\b)", r"step \1 "),
        (
            ("batches",),
            rf"(?<!\w){_BRACKET}\s?{_BRACKET}(?=\s{{0,4}}\|\s{{0,4}}\d{{1,12}}/\s{{0,6}}\d{{1,12}} batches)",
            r"step \3/\4 epoch \1/\2",
        ),
        (("[",), rf"(?<![\w\]]){_BRACKET}\s?(?={_BRACKET}[^\n]{{0,150}}?(?:loss|\blr\b|\beta\b))", r"epoch \1/\2 "),
        (
            ("': {", '": {', "best", "lowest", "next ", "no impr", "died", "lost"),  # an evaluation, or another step
            r"[\"'](?:val(?:id(?:ation)?)?|eval(?:uation)?|test|dev)(?:_\w{1,20})?[\"']: ?\{[^{}\n]{0,2000}\}"
            r"|(?<!new )\b(?:best|lowest|next|no improvement|died|lost)\b[^\n;|]{1,80}?(?:\b(?:at|in|of|by|from"
            r"|since|until|before)|[@(]) ?(?:(?:global|training)[_ ])?(?:ep|epoch|step|iter) \d{1,12}(?!\s?[/:])",
            "",
        ),
        (("/",), r"\b((?:stage|phase|fold) \d{1,3}/\d{1,3}\b[^\n]{1,80}?\b(?:epoch|step) \d{1,9})/\d{1,9}", r"\1"),
        (("training",), r"(?:^|(?<=\] ))training\s{1,4}(?=\[\s{0,9}\d{1,12}/)", "step "),
        (("[train",), r"(?:^|(?<=\]))\s?\[train(?:ing)?\]\s?\((\d{1,12}/\d{1,12})\)", r" step \1 "),
        (("train: [", "train ["), r"(?<!\w)train:? \[(\d{1,9})\](?=\[\d{1,12}/)", r"epoch: [\1]"),
        (
            ("] loss",),
            r"(?:^|(?<=\] ))\[(\d{1,9}), {0,9}(\d{1,12})\] (?=loss[:=]?\s?(?:\d|nan))",
            r"epoch \1 batch \2 ",
        ),
        (
            ("train loss ",),
            r"^train loss (\d{1,12}) ([\d.]{1,20}|nan) grad norm (?=[\d.]{1,20} )",
            r"step \1 loss \2 grad_norm ",
        ),
        (("batch ",), r"(?:^|(?<=info ))\s{0,9}batch\s{1,9}(\d{1,12}):(?=\s[^\n]{0,300}\blr\b)", r"step \1:"),
        (("-- iter: ",), r"-- iter: (?=\d{1,12}/\d)", "-- samples "),
        (("tick ",), r"^tick (\d{1,12})(?=\s{1,12}kimg\b)", r"step \1"),
        ((" loss total",), r"\b([a-z]{2,20}) loss total\b", r"\1_loss_total"),
        (("loss at ",), r"\bloss at (step|iteration|iter|epoch) (\d{1,12}):", r"\1 \2 loss:"),
        (("steps/s",), r"(?<=steps/s, )[\d.]{1,8}% \((?=\d{1,12}/\d{1,12}\))", "step "),
        (
            ("%) ",),
            r"^(\d{1,12}) \(\d{1,3}\.\d{1,4}%\)\s{1,40}([\d.]{1,12}) ms\s{1,40}(?=\d)",
            r"step \1 step_time_ms \2 eta: ",
        ),
        ((" iter, ",), r"^(\d{1,12}) iter, (\d{1,9}) epoch / (\d{1,9}) epochs", r"step \1 epoch \2/\3"),
        (
            (" avg loss",),
            r"^(\d{1,12}): ([\d.]{1,20}), [\d.]{1,20} avg loss, ([\d.]{1,20}) rate, ([\d.]{1,20}) seconds",
            r"step \1 loss \2 lr \3 step_time \4",
        ),
        (("epoch",), r"(?<![\w./])(\d{1,9}/\d{1,9}) ?epochs?(?=[:, ])(?! \d)", r"epoch \1 "),
        (("batch:",), r"(?<![\w.])(\d{1,9})epoch:train:\d{1,12}-(\d{1,12})batch:", r"epoch \1 batch \2:"),
        (("epoch",), r"(?<![\w.])(\d{1,9})epoch(?=[: ])", r"epoch \1 "),
        (("tot_loss",), r"\btot_loss\[loss\b", "tot_loss["),
        (("forward_time",), r"\biter_time(?==[\d.e+\-]{1,20}, forward_time)", "data_time"),
        (("/",), r"(?<=\d)/(?=[a-z_]{3,30}=\d)", " "),
        (("ep. ",), r"\bep\. (?=\d)", "epoch "),
        (("up. ",), r"\bup\. (?=\d)", "step "),
        (("cost ",), r"\bcost (?=[\d.]{1,20} [*:])", "loss "),
        (("words/s",), r"\btime (?=[\d.]{1,20}s : [\d.]{1,20} words/s)", "interval_time "),
        (("l.r. ",), r"\bl\.r\. (?=\d)", "lr "),
        (("itr", "it "), r"\bit(?:r\b|(?=\s{1,4}\d[\d,]{0,15}\s?/\s?\d))", "iter"),
        (("iteration (",), r"\biteration (?=\(\d{1,12}, \d{1,12}\))", "iteration_"),
        (("loss is ", "loss of "), r"\bloss (?:is|of) (?:now )?(?=[\d.\-]|nan)", "loss: "),
        (("loss ",), r"\bloss (?:train\b|\((?:train|batch|step|iter|avg|mean|ema)\))(?: \(curr\))?", "loss"),
        (("time (data",), r"\btime \(data\)", "time"),
        (("batch (t",), r"\bbatch \(t\)", "batch_time"),
        (
            (" loss", " time"),
            r"(?<![\w./])([a-z]\w{0,30}) (loss|time)(?=\s{0,3}(?:\((?:m?s|sec)\))?\s{0,3}[:=])",
            r"\1_\2",
        ),
        ((" per ",), r"(\d) ?(ms|s|secs?|seconds?) per (step|iteration|iter|batch)\b", r"\1 \2/\3"),
        ((" per sec",), r"(\d) ?(steps|iterations|iters) per sec(?:ond)?\b", r"\1 \2/s"),
        ((" per ",), r"\b(samples|tokens|steps|iterations) (per) (second|sec)\b", r"\1_\2_\3"),
        (("elapsed time",), r"\b(elapsed) (time) (per) (iteration)\b", r"\1_\2_\3_\4"),
        ((" in ", "("), r"\b([a-z][\w/]{1,40}) (?:in |\()(ms|s|sec)\)?(?=\s?[:=])", r"\1_\2"),
        (
            (" rate", " step", " norm", " scale", " time"),
            r"\b(learning|global|grad|gradient|loss|iter|step|total) (rate|step|norm|scale|time|timesteps)\b",
            r"\1_\2",
        ),
        (("train",), r"\b(train|training) (step)\b", r"\1_\2"),
        (
            (" loss",),
            r"\b(train|training|lm|total|mean|avg|average|val|valid|validation|eval|evaluation|test|value|kl|entropy"
            r"|policy|critic|aux|auxiliary|reg|best|min|lowest|prev|previous|history|smooth|target|final|ave|generator"
            r"|discriminator)(?:(?<=val)\.|(?<=valid)\.)? (loss)\b(?!/)",
            r"\1_\2",
        ),
        (
            ("step", "iter"),
            r"\b(warmup|warm-up|save|eval|evaluation|log|checkpoint|ckpt|max|maximum|total|num|decay|accumulation"
            r"|resume|start|last|best|every|per|next|final|inference|inner|from|until|till|to|reach|reaches|before|after|skip"
            r"|(?!(?:pre-?)?training|running|(?:fine-?)?tuning|learning)[a-z\-]{3,20}ing)"
            r"[ -]((?:global[_ ])?(?:steps?|iters?|iterations?))\b",
            r"\1_\2",
        ),
        ((" epoch",), r"\b(ppo|sub|inner|warmup|max|total|num|every|per|best|last|save|eval) (epoch)\b", r"\1_\2"),
    )
)

Parts = tuple[slice | str, ...]  # of a line, and texts between them: what all lines of its shape are rewritten to


def joined(parts: Parts, line: str) -> str:
    """Return what a line of the shape of these parts is rewritten to."""
    if len(parts) == 1:
        return line[parts[0]] if isinstance(parts[0], slice) else parts[0]
    return "".join([part if isinstance(part, str) else line[part] for part in parts])


def places_of(parts: Parts) -> list[int]:
    """Return where the characters of a rewritten line stood before; -1 for those that are new."""
    found = list[int]()
    for part in parts:
        found += [-1] * len(part) if isinstance(part, str) else range(part.start, part.stop)
    return found


class _Rewritten:
    """A line that is being rewritten, and where its characters stood, -2 for new ones."""

    def __init__(self, line: str) -> None:
        self.text = line
        self._places: Sequence[int] = range(len(line))

    def cut(self, length: int) -> None:
        """Remove characters at the start."""
        self.text, self._places = self.text[length:], self._places[length:]

    def replace(self, pattern: re.Pattern[str], wording: str) -> None:
        """Do what `pattern.sub` does."""
        matches = [*pattern.finditer(self.text)]
        if not matches:
            return
        text, places, end, words = list[str](), list[int](), 0, re.split(r"\\(\d)", wording)
        for found in matches:
            spans = [(end, found.start()), *(found.span(int(group)) for group in words[1::2])]
            for span, literal in zip(spans, words[::2], strict=True):
                text += self.text[slice(*span)], literal
                places += [*self._places[slice(*span)], *[-2] * len(literal)]
            end = found.end()
        self.text, self._places = "".join(text) + self.text[end:], [*places, *self._places[end:]]

    def parts(self) -> Parts:
        places = self._places
        if isinstance(places, range):
            return (slice(places.start, places.stop),)
        pairs = zip(places, places[1:], strict=False)
        ends = [at for at, (one, next_) in enumerate(pairs, 1) if next_ - one != 1 and (one >= 0 or next_ >= 0)]
        spans = zip([0, *ends], [*ends, len(places)], strict=True)
        return tuple(
            self.text[start:end] if places[start] < 0 else slice(places[start], places[end - 1] + 1)
            for start, end in spans
            if start < end
        )


def strip_ansi(text: str) -> str:
    """Remove terminal control sequences, including colours that lost their escape byte (`[32m`)."""
    return _ESCAPE.sub("", text)


def strip_prefixes(line: str) -> str:
    """Remove launcher prefixes (Ray, srun, mpirun, torchrun, kubectl) and Ray's repeat note from a line."""
    start = _prefix_length(line)
    return RAY_REPEATED.sub("", line[start:]) if "[repeated " in line else line[start:]


def launcher_prefix(raw: str) -> str:
    """Return what launchers wrote before a line, without colours."""
    line = strip_ansi(raw)
    return line[: _prefix_length(line)]


def _prefix_length(line: str) -> int:
    start = 0
    for _ in range(4):
        found = _PREFIX.match(line, start)
        if not found:
            break
        start = found.end()
    return start


def message_start(line: str) -> int:
    """Return where the message of a line begins, after dates, levels, logger names and bracketed source locations."""
    start = 0
    for _ in range(12):
        found = _MESSAGE_PREFIX.match(line, start)
        if not found:
            break
        start = found.end()
    signs = _MESSAGE_SIGNS.match(line, start)
    return signs.end() if signs else start


def in_known_words(line: str) -> str:
    """Rewrite the counters and names of a lower-case line into the words that the field tables know."""
    parts = parts_in_known_words(line)
    return line if parts is None else joined(parts, line)


@by_shape
def parts_in_known_words(line: str) -> Parts | None:
    """Return what a line consists of in those words; None if it is in them already."""
    known = _Rewritten(line)
    for needs, pattern, wording in _WORDINGS:
        if any(map(known.text.__contains__, needs)):
            known.replace(pattern, wording)
    return None if known.text == line else known.parts()


def log_pieces(text: str) -> Iterator[str]:
    """Yield the pieces of a log in text order, cleaned and at most HEAD_LENGTH + TAIL_LENGTH long.

    A longer piece keeps its head (metric lines of several thousand characters name the step first) and its tail (of
    many redraws on one line, the newest is last).
    """
    for piece, _ in pieces_and_lines(text):
        yield piece


def pieces_and_lines(text: str) -> Iterator[tuple[str, str]]:
    """Yield each piece of a log with the line that it was cleaned from."""
    for shape, raw in shapes_and_lines(text):
        piece, _, _ = clean_line(raw, shape)
        if piece:
            yield piece, raw


def clean_line(raw: str, shape: bytes) -> tuple[str, bytes, Parts | None]:
    """Return the clean piece in a line, its shape, and the parts of the line that it consists of; "" for a blank line.

    Lines that are too long to have a shape are not taken apart.
    """
    if len(raw) > LONGEST_SHAPE:
        piece = "" if raw.isspace() else strip_prefixes(strip_ansi(_cut(raw))).translate(_SPACES)
        return piece, shape_of(piece), None
    parts, of_piece = _clean_parts(raw, shape)
    return joined(parts, raw), of_piece, parts


@by_shape
def _clean_parts(raw: str) -> tuple[Parts, bytes]:
    """Return the parts of a line that its clean text consists of, and the shape of that text."""
    if raw.isspace():
        return (), b""
    clean = _Rewritten(raw)
    clean.replace(_ESCAPE, "")
    clean.cut(_prefix_length(clean.text))
    if "[repeated " in clean.text:
        clean.replace(RAY_REPEATED, "")
    clean.replace(_BLANK, " ")
    return clean.parts(), shape_of(clean.text)


def _cut(raw: str) -> str:
    if len(raw) <= HEAD_LENGTH + TAIL_LENGTH:
        return raw
    head, tail = raw[:HEAD_LENGTH], raw[-TAIL_LENGTH:]
    return f"{head.rpartition(' ')[0]} ; {tail.partition(' ')[2]}"


def parse_duration(text: str) -> float | None:
    """Parse `47:06`, `1171:22:19`, `4:36:45.7`, `1 day, 2:03:04`, `41m 48s` or `90.5s` into seconds; else None."""
    text = text.strip()
    clock = _CLOCK.fullmatch(text)
    if clock:
        days, hours, minutes, seconds = (float(part or 0) for part in clock.groups())
        return days * 86400 + hours * 3600 + minutes * 60 + seconds
    parts = _SPOKEN.findall(text[:60])
    if not parts or _SPOKEN.sub("", text[:60]).replace(" and ", "").strip(" ,"):
        return None
    return sum(float(number) * _SPOKEN_SECONDS[unit.lower()] for number, unit in parts)


def parse_number(text: str) -> float | None:
    """Parse a number, also nan, inf and thousands separators; None for anything else."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def parse_count(text: str) -> int | None:
    """Parse a count as bars print it: `500`, `410,112`, `5.00k`; None for `?` and anything else."""
    if text.isdecimal() and len(text) <= 12:
        return int(text)
    found = _COUNT.fullmatch(text)
    return round(float(found[1].replace(",", "")) * _THOUSANDS[found[2].lower()]) if found else None


def last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """Return the last match of a pattern in a text."""
    found = list(pattern.finditer(text))
    return found[-1] if found else None


def as_whole(number: float | None) -> int | None:
    """Return an integral number below 1e15 as an int, else None."""
    if number is None or not math.isfinite(number) or abs(number) >= 1e15 or number != int(number):
        return None
    return int(number)


def begins_traceback(line: str) -> bool:
    """Return whether a line of a log, in lower case, is the first of a Python traceback."""
    return "traceback (most recent call last)" in line
