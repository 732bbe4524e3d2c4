"""Find what a piece of a training log consists of: words and bars, and where in them the numbers stand. Pure.

It depends on the shape of the piece alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from training_monitor.core.checkpoint_layouts import PREFIXES
from training_monitor.core.regex import regex
from training_monitor.logs.fields import (
    TIME_UNIT,
    Finds,
    Numbers,
    find_fields,
    find_numbers,
    is_beside_epoch,
    may_have_fields,
    read_found,
)
from training_monitor.logs.job_progress import EpochSigns, epoch_signs
from training_monitor.logs.shapes import MOST_SHAPES, by_shape, shape_of
from training_monitor.logs.text import (
    Parts,
    in_known_words,
    joined,
    last_match,
    message_start,
    parse_count,
    parse_duration,
    places_of,
)

_COUNT = r"\d{1,3}(?:,\d{3}){1,4}|\d{1,12}(?:\.\d{1,3})?[kKMG]?"
# `name:  10%|█  | 10/100 [00:12<01:48,  1.20s/it, loss=0.5]`, also cut at the end of the text
BAR = regex(
    rf"(?<![\w./,])(?P<count>{_COUNT})(?:/(?P<total>{_COUNT}|\?)|it) {{1,3}}\[(?P<elapsed>[^<,\]\[]{{0,20}})"
    r"(?:<(?P<eta>\s?(?:\d{1,4} days?, )?[^,\]]{0,30}))?,\s{0,4}"
    r"(?:(?P<rate>\d{1,3}(?:,\d{3}){1,3}|\d{1,12}(?:\.\d{1,9})?|\?)\s?"
    r"(?P<unit>[A-Za-z]{1,12}/[A-Za-z]{1,12})|(?=[A-Za-z]\w{0,40}=))(?P<notes>[^\]]{0,1500})\]?"
)
# tqdm_loggable: `Progress on:train 512it/10.0kit rate:1.1it/s remaining:2:23:45 elapsed:09:11 postfix:loss=4.2`
_SPELLED_BAR = regex(
    rf"progress on:\s?(\S{{0,80}}) ({_COUNT})it/({_COUNT}|\?)(?:it)? rate:[^\n]{{0,200}}? remaining:", re.IGNORECASE
)
_WHOLE = regex(r"[\d,]+")
_STEP_UNITS = frozenset({"it", "its", "step", "steps", "ba", "batch", "batches", "iter", "iters", "update", "updates"})
_EPOCH_UNITS = frozenset({"epoch", "epochs", "ep"})
_UNIT_SCALES = {"k": 1e3, "m": 1e6, "g": 1e9}
OTHER_WORK = regex(
    r"validat|evaluat|generat|loading|download|fetching|quantiz|tokeniz|cach(?:e|ing)|processed prompts|rollout"
    r"|resolving|sampler\b|denois|sanity check|preprocess|pre-process|cuda graph|safetensors|upload|log ?probs|box\(p"
    r"|(?:^|\s|[\[(](?![a-z]{1,7}-))(?:val(?:id)?|eval|test(?:ing)?)\b"
    r"|(?:^|\s)(?:map|filter|pack|score|inference|shards?|predict|warmup|make_experience)\b"
    r"|\brequests\b|^\s*batches\s?:?\s*$"
)
# `Merging weights`, `train: Scanning labels`: a bar about an activity other than training
_OTHER_DOING = regex(
    r"(?:^|: |\[)\s{0,9}(?!(?:pre|[a-z]{1,12}-)?(?:train|fine-?tun|learn|optimi|fitt|distill|runn|start))"
    r"[a-z\-]{3,20}ing\b|^\W*(?:add|build|convert|encode|extract|index|load|parse|prepare|read)\b(?!-)"
)
_EPOCH_NAME = regex(r"(?:^|\s)(?:epoch|episode)s?\s{0,4}:?\s{0,4}\[?\s{0,3}(\d{1,9})(?:\s?/\s?(\d{1,9}))?")
# `Train [2/5]`, `2/5:` or `[fold 1] 2/5`, nothing else: an epoch, unless it repeats the counter of the bar
_BARE_EPOCH_NAME = regex(
    r"\W{0,4}(?:\[[a-z][^\]\n]{0,30}\]\s{1,3})?(?:(?:train(?:ing)?|ep?)\W{1,4})?(\d{1,9})\s?/\s?(\d{1,9})\W{0,4}\Z"
)
_EPOCHS_NAME = regex(r"(?:^|\s)(?:epochs?|training epochs?)\s?:?\s*$")
_STEPS_NAME = regex(r"[,\d] steps\s?:?\s*$")
_TORCHTUNE_NAME = regex(r"(\d{1,9})\|(\d{1,12})\|(?=loss)")
_NAME_FIELDS = frozenset({"loss", "learning_rate", "step", "epoch", "total_epochs"})
_NOT_PROGRESS = regex(
    r"running entrypoint|\bresum(?:e|ed|ing)\b(?! normal)|\brestor(?:e|ed|ing)\b"
    r"|\bload(?:ed|ing)\b[^\n]{0,200}\bcheckpoint"
    r"|\bload(?:ed|ing)\b[^\n|:=,]{0,200}\b(?:model|weights|state)\b"
    r"|\bcontinu(?:e|ing) (?:training )?from\b|\b(?:namespace|arguments?|config|configuration)\s?[({=]"
    r"|^\s*(?:[+$] )?(?:python\d?|torchrun|accelerate|deepspeed|srun|mpirun|bash|ray job) "
    r"|(?:epoch|iter)[\s\d/]{0,12}\((?:val|valid|validation|eval|test|dev)\)|\bbox\(p\b|\bsaving dict for\b"
    r"|\b(?:adjusting|reducing) learning rate of group\b"
    r"|(?:^|[:\]\-] )(?:last|latest|best) checkpoint\b"
    r"|^(?:train|eval)_\w{1,60}\s{1,40}=\s{2}|(?:^|[\]\d] )(?:wandb|swanlab|neptune|mlflow|comet \w{4,8}):|\bschedule: "
    r"|^(?:step|epoch|iter|iteration)\s{1,9}\d{1,12}: (?:val|valid|eval|test)\s{1,4}(?!loss|acc|ppl)\w"
    r"|[\"'](?:_?type|mode|split|phase|stage|event|kind|subset)[\"']: ?[\"'](?:val|eval|test)"
    r"|\bgen(?:eration)? throughput\b|\bprogress on:\s?(?:val|eval|test)"
)
_BEST = regex(  # with nothing behind it that is the present position
    r"(?:best|highest|lowest)(?!-)\b(?![^\n]*\bcurrent (?:epoch|step|iter)\w* \d)"
    r"(?:[^\n]{0,60}?(?: at|@|[(:])| (?:global )?)? ?(?:epoch|step|iter)(?! time)"
)
_EVALUATION_WORDS = (
    r"(?:val|valid|validat(?:e|ion|ing)|eval|evaluat(?:e|ion|ing)|test|testing|inference|cv|(?:hold|held)-?out"
    r"|(?:验证|驗證|评估|测试|検証|評価|검증|평가)集?"
    r"|dev(?=\s?:(?! ?step)|[ -]?set\b|\]? (?:batch|loss|acc|\d{1,9}/\d{1,9}(?![/\d])))(?:[ -]?set)?)"
)
# A line whose message begins with these words is about evaluation; `val loss` is only one number in a line
_EVALUATION_LINE = regex(
    rf"\[?{_EVALUATION_WORDS}(?:\s?[:：\[\]|(]|\s(?!(?:loss|acc|accuracy|ppl|perplexity|score)\b)|$)"
)
_EVALUATION_PART = regex(
    rf"(?:(?<=\s)|(?<=\[))(?<!policy ){_EVALUATION_WORDS}"
    r"(?:\s?:(?P<value>\s?(?:[\d.\-]|nan|n/a|none))?|\s{0,9}[\]\[|]| on '|(?<=ing) (?:batch|step)\b)"
)
_MEASURED = regex(r"(?:loss|learn|train|perte)\b[\"']?\s?[:=]?\s{0,9}[\d\-]")
# "Step 2: install", "Step 3/12 : RUN", "Compiling the model (step 1/3)": the stages of a script or of docker
_NUMBERED_STAGE = regex(
    r"^\W{0,10}(?:(?:step|schritt|étape|pass?o|шаг) |(?:步骤|ステップ|스텝)\s?)\d{1,4}(?:/\d{1,4})?"
    r"\s?(?:[:.\-]\s{1,4}|：\s?)[^\W\d_]"
)
_TRANSFER = regex(r"\b\d{1,6}(?:\.\d{1,3})? ?[kmgt]i?b/s\b")  # gsutil, rclone, wget
_STAGE_OF_WORK = regex(
    r"(?!train|pretrain|fine|runn|start|finish)[a-z]{3,20}ing\b[^\n]{0,120}\(step \d"
    r"|(?:lr|last [a-z]{4,12}|learning.rate)\b[^\n]{0,60}?(?:\bat|since|@|[(:]) ?(?:epoch|step)"
)
_KEPT = r"\b(?:checkpoint|ckpt|snapshot|file|folder|model|weights)"
_REMOV = r"(?:remov|delet|prun|purg)"
_COUNTER = r"\b(?:step|epoch|iter)\w{0,6}[\s:=#]{1,3}\d{1,12}(?!\d)"
# What is removed, comes later or was the best, unless the line has its own position
_MENTIONED = regex(
    rf"(?![^\n]{{0,100}}?(?:{_COUNTER}(?:\s?[/|]\s?\d| of \d)|[.;] {_COUNTER}))(?:(?!{_COUNTER})[^\n]){{0,200}}?"
    rf"(?:\b{_REMOV}(?:e[sd]?|ing)\b[^\n]{{0,80}}?{_KEPT}|{_KEPT}[^\n]{{0,80}}?\W{_REMOV}ed\b"
    r"|\b(?:will|next(?! token)|(?:due(?! to (?!be\b|begin|end|start|stop|run\b|finish|occur|happen))"
    r"|scheduled|planned|expected)(?=:| (?:to|for|at|on|by|in|until|end|start))"
    r"|(?:begin|end|start|stop|grow|rise|increase|double|drop|fall|decrease|halve|decay|switche"
    r"|change|(?:un)?freeze|finishe|goe)s|turns? (?:on|off))\b[^\n;|]{0,80}?"
    rf"(?: (?:at|on|for|by|in|until|from|after|before|around|is) (?:\w{{2,13}} ){{0,3}}|: |[(@>] ?){_COUNTER}(?!\.\d))"
)
# Behind the line's own position: `step 12 loss 0.5, next checkpoint: step 100`
_BESIDE = regex(
    rf"{_COUNTER}[^\n]{{0,200}}?[ ,|(;](?=(?:next|last|latest|best|newest|oldest)"
    rf" (?!\w+ (?:batch|global|optimizer)\b|batch|global|optimizer)(?:[a-z]{{2,12}} ?){{1,2}}(?:[:=@(] ?)?{_COUNTER}"
    rf"(?![^\n]*(?:loss|{_COUNTER})))"
)
_NEW_ATTEMPT = regex(
    r"running entrypoint|running training|traceback \(most recent|exception (?:ignored|was never|in thread)"
    r"|logging error -|error in atexit|a matching triton is|the above exception"
    r"|\bresum(?:e|ed|ing)\b(?! normal)|\bstarting (?:(?:pre-?)?training|fine-?tuning)\b"
    r"(?! (?:on rank|data|log|report|set|summary))"
)
STARTS = regex(r"(?!.*\bresum).*\bstarting (?:pre|train|fine)")  # a training, or some also print it for each epoch
# Work that draws an unnamed bar next
_OTHER_WORK_BEGINS = regex(
    r"(?:caching|checking cache|generating|sampling|running (?:validation|evaluation|inference|eval)\b)[^\[%]{0,400}"
)
_SAVE = regex(
    r"\b(?:saved?(?! (?:every|each))|saving|wrote|writing|written|stored|storing)\b[^\n]{0,120}?"
    r"(?:checkpoint|ckpt|model|state|weights|safetensors|step)|\bcheckpoint (?:\S{1,200} )?(?:saved|written|at step)"
)
_SAVED_STEP = regex(
    r"(?:checkpoints?[-_ ]|steps?[-_ =:]{1,9}|iter(?:ation)?[-_ =:]{1,9})(\d{1,12})(?![\w.]*\d)"
    rf"|(?<!epoch)[-_](\d{{1,12}})\.(?:safetensors|pth?|ckpt|bin)\b|\b(?:{PREFIXES})(\d{{1,12}})(?!\d)"
)
_SAVED_AT_STEP = regex(
    r"\b(?:at|after) (?:(?:global|training|train) )?(?:step|iteration|iter|update)[ :=#]{1,9}(\d{1,12})\b(?![.,]\d)"
    r"|\bcheckpoints? for (\d{1,12}) into\b"
)
_TRAINING = r"(?:(?:pre-?)?training|fine-?tuning)"
_MOST = r"max(?:imum)?[ _](?:number of )?(?:train(?:ing)?[ _])?(?:epochs?|steps?|iter(?:ation)?s?)\b"
_FINISHED = regex(
    rf"\b{_TRAINING} (?:(?:loop|job|process|procedure|run|script) )?"
    rf"(?!is done (?:on|with|using|by|via|in(?! \d[\d.]{{0,20}} ?(?:{TIME_UNIT}\b|:\d)))\b)"
    r"(?:is |has |was )?(?:been )?(?:completed?|finished|done)\b"
    r"(?! (?:iteration|epoch|step)|:? ?\d{1,2}(?:\.\d{1,9})? ?%)"
    rf"|(?<!the )(?<!\ba )(?<!not )\b(?:finished|completed|done) {_TRAINING}\b(?! (?:epoch|step|iteration|batch))"
    r"|\btrain completed, best_metric|\bsaved pipeline to output directory"
    r"|\btraining of experiment is done\b|\btraining took \d|reporting training success"
    r"|\btrial \S{1,100} completed after \d{1,12} iterations"
    rf"|\bstop(?:ped|ping)? training: (?:reached )?{_MOST}"
    rf"|\breached (?:the )?{_MOST}[^\n]{{0,40}}\b(?:stop|end|finish)\w{{0,4}} training\b"
)
# At the start of a message, and all that its first clause says: of BasicSR, Joey NMT, flair, LightGBM, Tesseract
_FINISHED_BARE = regex(
    r"\W*(?:end of training(?! in\b)"
    r"|training ended (?:after\s{1,9}\d{1,9} epochs|since minimum lr [\d.e\-]{1,20} was reached)"
    r"|learning rate too small \W quitting training|did not meet early stopping\. best iteration is:$"
    r"|finished! selected model with minimal training error rate.*"
    r"|(?:所有)?(?:模型)?训练(?:已经?|全部){0,2}(?:完成|结束|完毕)了?|(?:学習|トレーニング)[がを]?(?:完了|終了)(?:しました)?"
    r"|학습(?:이|을)? ?완료(?:되었습니다|했습니다)?|обучение (?:модели )?(?:завершено|окончено)"
    r"|(?:el )?entrenamiento (?:completado|finalizado|terminado)|entra[iî]nement terminé"
    r"|(?:o )?treinamento (?:concluído|finalizado)|(?:das )?training (?:ist )?(?:abgeschlossen|beendet))"
    r"(?: (?:in|nach|en|em|за) \d[\d.,:]{0,9} ?[a-zа-я]"
    r"|[\s=*\-]{0,60}(?:$|[!.。！，](?!\d)|,(?! (?:wenn|sobald|falls))))"
)
# Before its last step; some then repeat the line of the best step
_STOPPED_EARLY = regex(
    r"(?:^|[\]|] |\w - |\b(?:epoch \d{1,9}|(?:info|warning)(?::[\w.]{1,60})?): ?)early[ \-]?stop(?:ping|ped)?"
    r"(?:!{1,3}\s*$|(?<=\d: early stopping)\s*$|[,:]? (?:(?:condition|criteri(?:on|a)|patience|was|has been) ){0,2}"
    r"(?:triggered|occurred|met\b|reached|exhausted|stopped|best iteration is:"
    r"|(?:at|on|after) (?:epoch|step|iter(?:ation)?|round) \d))"
    r"|\b(?:not improved?|no improvement|patience|time limit reached)\b[^\n]{0,120}(?<!before )(?<!for )(?<!early )"
    r"\b(?:stopp(?:ing|ed)|stop training|trainer to stop)(?: training)?(?: at \w{4,9} \d{1,12})?[.!]?\s*$"
    r"|\btraining (?:was |is )?stopped early\b|^stopping\. best iteration:|^\*{3} best metric: \d"
    r"|\bstopped by overfitting detector\b"
)
_NOT_STOPPED = regex(
    r"\bnot stop|\bfalse\b|\bdisabled\b|\bif\b|\bwill\b|\bleft\b|\d ?/ ?\d|\d of \d|\b(?:trial|fold|client) \d"
)
# What launchers and frameworks only print after a training that ended well; a script may print the above in any case
_SUCCEEDED = regex(
    r"\btrain_runtime['\"]?\s{0,40}[:=]|trainer\.fit` stopped: `max_(?:epochs|steps)=\d{1,12}` reached"
    r"|\b\d{1,9} epochs completed in [\d.]{1,12} hours|\bloss for final step: "
    r"|\bjob '[^']{1,200}' succeeded|local worker group finished|worker group successfully finished"
    r"|\bjob (?:\S{1,100} )?(?:finished|completed) \(status: succeeded|^\W{0,20}state: succeeded"
    r"|\bprocess \d{1,9} exits successfully"
)
_PART = r"(?:stage|phase|fold|round|seed|trial|client|model|member|agent|layer|task|generation|run|tree|shard)"
# The end of another training, before the one that matters begins, or of a part of it, or one that may come
_OTHER_FINISHED = regex(
    r"(?<!training in )\bepoch \d"
    rf"|\b(?:if|whether|until|once|when|before) (?:the )?{_TRAINING} (?:\w{{2,9}} ){{0,3}}(?:complete|finish|done)"
    rf"|\bafter {_TRAINING} [^\n]{{0,40}}\bwill\b"
    r"|\b(?:warm-?up|tokenizer|vocab(?:ulary)?|probe|local|discriminator|generator|critic|(?:auto)?encoder|codebook"
    rf"|teacher|reward model|{_PART} (?:\d{{1,3}}|one|two)(?: ?(?:/|of) ?\d{{1,3}})?)"
    rf"[\]):]{{0,2}}[ \-]{{1,3}}{_TRAINING}\b"
    rf"|\b{_TRAINING} [^\n]{{0,20}}\b(?:for|on|of) {_PART}[ _#]?\d{{1,4}}\b"
    r"|[,.;] (?:now )?(?:start|beginn|switch|mov|proceed)ing\b(?: (?:on|the|to|with)\b){0,2}"
    r"(?: (?!post|eval|valid|test|infer)[\w\-]{1,12})? (?!training set)"
    r"(?:(?:pre-?)?training|(?:fine-?)?tuning|stage|phase|ppo|dpo|grpo|distill)"
)
# In a line that says that the training has ended: it failed
FAILED_END = regex(
    r"\bexit(?:ed)?(?: with)? (?:code|status)[ :=]{1,3}-?\d*[1-9]"
    r"|\bwith (?:an? |some |fatal |[1-9]\d{0,5} )?(?:errors?|failures?)\b(?! rate)(?!\W{0,3}(?:0\b|\d+[.%]))"
    r"|\b(?:completed?|done|finished)(?: abnormally| unexpectedly|[ (]{1,2}interrupted by"
    r"|\s?[:(]\s?(?:status\W{1,2})?fa(?:iled|lse)(?=\W*$|[,;.)]))"
)
# What some print after each epoch, too
_TOOK = regex(
    rf"(?:main: )?(?:total )?training time:? (?:(?:\d{{1,5}} days?, )?\d{{1,6}}:\d\d:\d\d|[\d.]{{1,20}} ?{TIME_UNIT}\b)"
    r"(?! ?/|\W{1,3}(?:per|left|remaining|to go|estimated|expected|elapsed|so far|limit)\b)"
)
ANNOUNCED = (
    (
        "total_steps",
        regex(
            r"\btotal (?:optimization |training |train )?steps\b"
            r"(?:[^:=\d]{0,20}[:=]\s{0,4}| (?=[\d,]{1,16} \(warmup))(\d[\d,]{0,15})"
        ),
    ),
    ("total_epochs", regex(r"\bnum(?:ber of)? (?:train(?:ing)? )?epochs\b[^:=\d]{0,20}[:=]\s{0,4}(\d{1,9})")),
    ("total_epochs", regex(r"\bstopped: `max_epochs=(\d{1,9})` reached")),
    ("total_epochs", regex(r"^(?:namespace\((?:[^\n]{0,5000}?, )?)?epochs=(\d{1,9})(?=[,)]|$)")),
)
_FRAME = regex(r"""\s{0,60}file ["'][^"']{1,400}["'], line \d""")
MOST_COLUMNS = 40
_COUNTERS = regex(r"(?:epoch|step|iter|batch)(?: (?:epoch|step|iter|batch))+")
_HEADER = regex(r"[\s|#]{0,20}(?:epoch|step|iter|iteration|round|e|it)s?(?:[\s|]{1,40}|,)[^:=]{1,400}")
_COLUMN_GAP = regex(r"[|,]|\s{2,40}")
_CELL = regex(
    r"-?\d[\d,]{0,15}(?:\.\d{0,20})?(?:e[+-]?\d{1,3})?%?|\d{1,6}(?::\d\d){1,2}"
    r"|\d{1,6}(?:\.\d{1,3})?[smh]|nan|-?inf|no log|-"
)
_SPACED_CELL = regex(r"[^\s|]+")
_COMMA_CELL = regex(r"(?:(?<=,)|^)[^,]*")
_ROW = regex(r"[\s|]*\d[\s|\d,.:%+\-aefghilmnos]*")  # only what cells consist of
# Texts of which a line contains one if it tells anything else than fields and rows
_SIGNS = (
    *("train", "resum", "running ", "traceback", "cach", "generating", "sampling", "checking", "total ", "stop"),
    *("ignored", "exception was", "exception in", "in atexit", "triton is", "logging error", "above exception"),
    *("state:", "job ", "group", "success", "process ", "trial ", "sav", "tuning"),
    *("wrote", "writ", "stor", "checkpoint", "训练", "学習", "トレーニング", "학습", "обучение", "entr", "treina"),
)
_SHORT_NAMES = {"e": "epoch", "#": "step", "it": "step", "iter": "step", "iteration": "step", "round": "step"}


class Bar(NamedTuple):
    """Where the bars of a shape show what; None for what they do not show.

    Attributes:
        key: the words of its name without its numbers: equal for every redraw of the bar.
        counts: steps | epochs | samples (or tokens, images and such, which are no steps) | other work.
        doing: whether its name is that of an activity other than training, which counts where nothing is measured.
        rate, scale, is_inverse: of the speed: its number, the thousand of `kit/s`, and whether it is `s/it`.
    """

    name: slice
    in_name: _Name
    key: str
    notes: slice
    in_notes: Finds | None
    counts: str
    doing: bool
    done: slice
    total: slice
    eta: slice
    rate: slice | None
    scale: float
    is_inverse: bool
    signs: EpochSigns


class _Name:
    """Where the names of bars show fields: `Epoch 2/3`, `1|40|Loss: 0.5`, `Episode [1/1]`, `Epoch 3 loss 0.5`.

    `tune` is the epoch, the step and the rest of a torchtune name. Hashed by identity.
    """

    def __init__(self, name: str) -> None:
        tune, epoch, bare = _TORCHTUNE_NAME.search(name), _EPOCH_NAME.search(name), _BARE_EPOCH_NAME.match(name)
        rest_at = _stripped(name, (tune.end(), len(name)), " :", before="") if tune else None
        self.tune = (slice(*tune.span(1)), slice(*tune.span(2)), rest_at) if tune and rest_at else None
        self.fields = None if bare else find_fields(name[rest_at] if rest_at else name.strip())
        self.is_bare, epoch = bare is not None, epoch or bare
        self.epoch = (slice(*epoch.span(1)), slice(*epoch.span(2))) if epoch else None
        self.is_of_steps = _STEPS_NAME.search(name) is not None
        self.is_of_epochs = _EPOCHS_NAME.search(name) is not None


def _find_bar(piece: str, name_at: slice, bar: re.Match[str]) -> Bar:
    name, notes_at = piece[name_at].lower(), _stripped(piece, bar.span("notes"), " ,")
    unit, scale = _unit_of(bar["unit"] or "it/s")
    counts = "steps" if unit in _STEP_UNITS else "epochs" if unit in _EPOCH_UNITS else "samples"
    if OTHER_WORK.search(name) or _FRAME.match(name):  # drawn after a line of a traceback
        counts = "other work"
    signs = epoch_signs(f"{name} {bar['notes']}".lower())
    return Bar(
        name=name_at,
        in_name=_Name(name),
        key=" ".join(re.findall(r"[a-z]{2,}", name)),
        notes=notes_at,
        in_notes=find_fields(piece[notes_at].lower()),
        counts=counts,
        doing=_OTHER_DOING.search(name) is not None,
        done=slice(*bar.span("count")),
        total=slice(*bar.span("total")),
        eta=slice(*bar.span("eta")),
        rate=slice(*bar.span("rate")) if bar["rate"] else None,
        scale=scale,
        is_inverse=(bar["unit"] or "").lower().startswith("s/"),
        signs=signs._replace(result=signs.result and counts != "samples"),
    )


def _stripped(text: str, span: tuple[int, int], signs: str | None = None, before: str | None = None) -> slice:
    """Return where a part of a text stands without these signs at its ends."""
    part = text[slice(*span)].rstrip(signs)
    start = span[0] if before == "" else span[0] + len(part) - len(part.lstrip(signs))
    return slice(start, span[0] + len(part))


def _name_span(head: str) -> tuple[int, int, int]:
    """Return where other loggers' words end in the text before a bar's counter, and where the bar's own name stands."""
    percent = head.rfind("%")
    drawn = head[:percent].rstrip("0123456789.").rstrip() if percent >= 0 else head.rstrip("| ")
    words = drawn.rfind("}") + 1
    return words, max(words, len(drawn) - 200), len(drawn)


def read_bar(piece: str, name: str, bar: Bar) -> dict[str, Any]:
    """Return the fields of `Progress` that a bar shows, given its lower-case name; empty when it counts other work."""
    fields = read_found(bar.in_notes, piece[bar.notes].lower()) if bar.in_notes else {}
    if bar.counts == "other work" or (bar.doing and not ("loss" in fields or "learning_rate" in fields)):
        return {}
    count, total = parse_count(piece[bar.done]), parse_count(piece[bar.total])
    if count is None:
        return {}
    in_name = _read_name(name, bar.in_name)
    if not (bar.in_name.is_bare and in_name["total_epochs"] == total):
        fields.update(in_name)
    if bar.counts == "samples":
        return {key: fields[key] for key in fields.keys() & _NAME_FIELDS - {"step"}} if "loss" in fields else {}
    epochs = bar.counts == "epochs" or bar.in_name.is_of_epochs
    epochs = epochs or (fields.get("epoch"), fields.get("total_epochs")) == (count, total)
    scope = "job"
    if epochs:
        scope = fields.get("eta_scope", "job")
        fields.pop("inside_epoch", None)
        fields.update(epoch=float(count), total_epochs=total, epochs_done=float(count))
    elif _is_epoch_bar(fields, count) or (total and is_beside_epoch(fields, count, total)):
        fields["epoch_step"], fields["epoch_steps"], scope = count, total, "epoch"
    else:
        fields["step"], fields["total_steps"] = count, total
    eta = parse_duration(piece[bar.eta]) if total is not None else None
    fields["eta_seconds"], fields["eta_scope"] = eta, scope if eta is not None else None
    if not epochs and bar.rate:
        fields["steps_per_second"] = _steps_per_second(piece[bar.rate], bar)
    return fields


def shows_progress(piece: str, shape: bytes) -> bool:
    """Whether reading a piece may change what is known of the progress; the same for all pieces of its shape."""
    return bool(parts_of(piece, shape))


def find_numbers_in(piece: str, columns: tuple[str, ...] | None) -> Numbers | None:
    """Return where the numbers stand in a piece that shows progress and tells nothing else.

    None where other pieces of its shape may differ in more than the values of these numbers. `columns` are those of the
    table that is being read.
    """
    if len(piece.lower()) != len(piece):
        return None
    numbers: Numbers | None = Numbers()
    for words, told, bar in parts_of(piece):
        if told and numbers:
            found = _find_numbers_of_words(piece[words].lower(), told, columns)
            found = found and found.moved(range(words.start, words.stop))
            numbers = found and numbers.and_later(found)
        if bar and numbers:
            found = _find_numbers_of_bar(piece, bar)
            numbers = found and numbers.and_later(found)
    return numbers


def _find_numbers_of_words(line: str, told: Told, columns: tuple[str, ...] | None) -> Numbers | None:
    cells = parts_of_row(columns, shape_of(line)) if columns else None
    if cells:
        line = joined(cells, line)
        told = told_by(line)
    found = find_numbers(told.fields, line[: told.end]) if told.is_of_fields else None
    return found and found.moved(places_of(cells)) if cells else found


def _find_numbers_of_bar(piece: str, bar: Bar) -> Numbers | None:
    """Return where the numbers of a bar stand if its name and total say what it counts."""
    name, total = piece[bar.name].lower(), parse_count(piece[bar.total])
    in_name = _read_name(name, bar.in_name)
    counts_steps = bar.counts == "steps" and not bar.in_name.is_of_epochs and in_name.get("total_epochs") != total
    noted, named = find_numbers(bar.in_notes, piece[bar.notes].lower()), _find_numbers_of_name(name, bar.in_name)
    if noted is None or named is None or not counts_steps or not _WHOLE.fullmatch(piece[bar.done]):
        return None
    if ("step" in in_name and not bar.in_name.tune) or (bar.in_notes and bar.in_notes.counts):
        return None
    noted = noted.moved(range(bar.notes.start, bar.notes.stop))
    named = named.moved(range(bar.name.start, bar.name.stop))
    both = noted and named and noted.and_later(named._replace(counts=False))
    if not both:
        return None
    shown = both.shown | {"steps_per_second"} if bar.rate else both.shown
    counter = both.counter if bar.in_name.tune else bar.done
    return both._replace(fixed=(bar.total, *both.fixed), counter=counter, shown=shown, counts=True)


def _find_numbers_of_name(name: str, places: _Name) -> Numbers | None:
    """Return where the numbers stand in the lower-case name of a bar."""
    rest = places.tune[2] if places.tune else _stripped(name, (0, len(name)))
    found = find_numbers(places.fields, name[rest])
    found = found and found.moved(range(rest.start, rest.stop))
    if not found:
        return None
    epochs = [at for at in places.epoch or () if at.stop > at.start]
    if places.tune:
        return found._replace(fixed=(places.tune[0], *found.fixed), counter=places.tune[1])
    return found._replace(fixed=(*epochs, *found.fixed), shown=found.shown & _NAME_FIELDS)


def read_spelled_bar(line: str) -> dict[str, Any]:
    """Return the step and total of a tqdm_loggable bar; empty without one, or when it counts other work."""
    found = _SPELLED_BAR.search(line)
    if not found or OTHER_WORK.search(found[1]) or (count := parse_count(found[2])) is None:
        return {}
    return {"step": count, "total_steps": parse_count(found[3])}


def _unit_of(unit: str) -> tuple[str, float]:
    """Return the unit and its factor: `it` for `s/it` and `it/s`; for `kit/s` also the thousand."""
    over, _, below = unit.lower().partition("/")
    name = below if over == "s" else over
    if name not in _STEP_UNITS and name[:1] in _UNIT_SCALES and name[1:] in _STEP_UNITS:
        return name[1:], _UNIT_SCALES[name[0]]
    return name, 1.0


def _steps_per_second(rate: str, bar: Bar) -> float | None:
    number = float(rate.replace(",", "")) * bar.scale if rate != "?" else 0.0
    if number <= 0:
        return None
    return 1.0 / number if bar.is_inverse else number


@lru_cache(maxsize=256)
def _read_name(name: str, places: _Name) -> Mapping[str, Any]:
    """Return the fields in a bar's name, and whether it counts within the epoch that it names."""
    if places.tune:
        epoch_at, step_at, rest_at = places.tune
        found = read_found(places.fields, name[rest_at]) if places.fields else {}
        return {**found, "epoch": float(name[epoch_at]), "step": int(name[step_at]), "inside_epoch": True}
    fields: dict[str, Any] = {}
    if places.fields:
        found = read_found(places.fields, name.strip())
        fields = {key: value for key, value in found.items() if key in _NAME_FIELDS}
    if places.epoch:
        epoch, total = name[places.epoch[0]], name[places.epoch[1]]
        fields["epoch"] = float(epoch)
        if total:
            fields["total_epochs"] = int(total)
    if "epoch" in fields:
        fields["inside_epoch"] = fields.get("total_epochs") != 1 and not places.is_of_steps
    return fields


def _is_epoch_bar(fields: dict[str, Any], count: int) -> bool:
    """Whether a bar counts within an epoch: its name says so, or its notes contain a different step of the job."""
    return bool(fields.pop("inside_epoch", False)) or abs(fields.get("step", count) - count) > 1


class Told(NamedTuple):
    """What the words of a line tell, whatever its numbers are.

    Attributes:
        finished: whether it says that the training has ended; `took`: only how long it, or an epoch, took.
        end: where it stops being about training.
        fields: where its fields stand, up to there.
        may_be_row: whether it may be a row of a table.
    """

    restart: bool
    totals: bool
    other_begins: bool
    finished: bool
    took: bool
    succeeded: bool
    no_progress: bool
    header: bool
    end: int
    spelled_bar: bool
    save: bool
    other_work: bool
    fields: Finds | None
    may_be_row: bool
    signs: EpochSigns

    @property
    def is_of_fields(self) -> bool:
        """Whether a line of this shape tells nothing but its fields."""
        tells = self.restart or self.totals or self.other_begins or self.finished or self.header or self.spelled_bar
        return not (tells or self.save or self.other_work or self.signs.may_end)

    @property
    def is_nothing(self) -> bool:
        """Whether reading a line of this shape changes nothing."""
        if self.restart or self.totals or self.other_begins or self.finished:
            return False
        shows = self.fields or self.header or self.spelled_bar or self.save or self.may_be_row or self.signs.may_end
        return self.no_progress or not shows


class _Part(NamedTuple):
    """A part of a piece: words, unless they tell nothing, and the bar that follows them, if one does."""

    words: slice
    told: Told | None
    bar: Bar | None


@by_shape
def parts_of(piece: str) -> tuple[_Part, ...]:
    """Return the parts of a piece that tell something."""
    found, start = [], 0
    for bar in BAR.finditer(piece):
        words, name, end = _name_span(piece[start : bar.start()])
        part = _words_part(piece, start, start + words)
        found.append(part._replace(bar=_find_bar(piece, slice(start + name, start + end), bar)))
        start = bar.end()
    last = _words_part(piece, start, len(piece))
    return (*found, *((last,) if last.told else ()))


def _words_part(piece: str, start: int, end: int) -> _Part:
    at = _stripped(piece, (start, end))
    line = piece[at].lower()
    tells = any(map(line.__contains__, _SIGNS)) or may_have_fields(line) or _ROW.fullmatch(line)
    told = told_by(line) if tells else None
    return _Part(at, None if told is None or told.is_nothing else told, None)


@by_shape
def _stopped_early(line: str) -> bool:
    return bool(_STOPPED_EARLY.search(line)) and not _NOT_STOPPED.search(line)


def told_by(line: str) -> Told:
    message = message_start(line)
    succeeded = _SUCCEEDED.search(line) is not None
    is_end = succeeded or _FINISHED.search(line) is not None or _FINISHED_BARE.match(line, message) is not None
    took = not is_end and _TOOK.match(line, message) is not None
    end = _training_end(line, message)
    no_progress = (_NOT_PROGRESS.search(line) or _BEST.match(line, message)) is not None
    fields = None if no_progress else find_fields(line[:end])
    spelled_bar = _SPELLED_BAR.search(line[:end]) is not None
    return Told(
        restart=_NEW_ATTEMPT.search(line) is not None,
        totals=any(pattern.search(line) for _, pattern in ANNOUNCED),
        other_begins=_OTHER_WORK_BEGINS.fullmatch(line, message) is not None,
        finished=_stopped_early(line) or ((is_end or took) and not _OTHER_FINISHED.search(line)),
        took=took,
        succeeded=succeeded,
        no_progress=no_progress,
        header=read_header(line) is not None,
        end=end,
        spelled_bar=spelled_bar,
        save=_SAVE.search(line[:end]) is not None,
        other_work=_is_other_work(line[:end], message),
        fields=fields,
        may_be_row=_ROW.fullmatch(line) is not None,
        signs=epoch_signs(line, fields is not None or spelled_bar),
    )


def _training_end(line: str, message: int) -> int:
    """Return where a line stops being about training: 0 for an evaluation line, its length if all of it is."""
    if _EVALUATION_LINE.match(line, message):
        return 0
    for found in _EVALUATION_PART.finditer(line):
        if not _MEASURED.search(line, 0, found.start()):
            return 0
        if not found["value"]:
            return found.start()
    beside = _BESIDE.search(line, message)
    return beside.end() if beside else len(line)


def _is_other_work(line: str, message: int) -> bool:
    """Whether a line counts the stages of a script, or reports work other than training."""
    stage = _NUMBERED_STAGE.search(line) or _STAGE_OF_WORK.match(line, message)
    mentioned = _MENTIONED.match(line, message) or _OTHER_WORK_BEGINS.match(line, message)
    return bool(stage or mentioned or _TRANSFER.search(line))


def saved_step(line: str) -> int | None:
    found = _SAVED_AT_STEP.search(line) or last_match(_SAVED_STEP, line)
    return int(next(filter(None, found.groups()))) if found else None


def read_header(line: str) -> tuple[str, ...] | None:
    """Return the column names if a lower-case line is the header of a table whose first column counts."""
    if not _HEADER.fullmatch(line):
        return None
    apart = tuple(name.strip() for name in _COLUMN_GAP.split(line.strip(" |#")) if name)
    if apart and _COUNTERS.fullmatch(apart[0]):
        apart = (*apart[0].split(), *apart[1:])
    if len(apart) <= 2 and "loss" not in line:
        return None
    names = apart if len(apart) > 2 else tuple(in_known_words(line).replace("|", " ").split())
    if not 2 <= len(names) <= MOST_COLUMNS or any(_CELL.match(name) for name in names):
        return None
    if any(map(str.isdigit, names[0])):  # `step 12 | loss 0.5 | lr 0.1`
        return None
    return tuple(_SHORT_NAMES.get(name, name) for name in names)


def row_as_pairs(names: tuple[str, ...], line: str) -> str | None:
    """Rewrite a row of the table as `name: number` pairs; None for any other line."""
    parts = parts_of_row(names, shape_of(line))
    return None if parts is None else joined(parts, line)


@lru_cache(MOST_SHAPES)
def parts_of_row(names: tuple[str, ...], shape: bytes) -> Parts | None:
    """Return the names and cells of a row of the table, given its shape; None for any other line."""
    line = shape.decode(errors="surrogatepass")
    cells = [*_SPACED_CELL.finditer(line)]
    cells = cells if len(cells) > 1 else [*_COMMA_CELL.finditer(line)]
    texts = [cell[0] for cell in cells]
    if len(texts) != len(names) or not texts[0].isdigit() or not all(map(_CELL.fullmatch, texts)):
        return None
    named = zip(names, cells, strict=True)
    parts = [part for name, cell in named for part in (f", {name}: ", slice(*cell.span()))]
    return (f"{names[0]}: ", *parts[1:])
