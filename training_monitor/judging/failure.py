"""Classify why a job failed, from the end of its log, its exit status and its pod. Pure.

Root causes come before cascades: a named cause explains the processes that died of it, and those explain the time-outs
of the ranks that waited for them; among signatures of one rank, the earliest line is the root. Advice, ongoing retries
and counts of zero are never evidence. The default is to restart; stopping needs proof.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from training_monitor.core.frozen import dataclass, replace
from training_monitor.core.models import Failure, PodState
from training_monitor.core.regex import regex
from training_monitor.core.required_text import required_texts
from training_monitor.judging import failure_table as table
from training_monitor.logs.shapes import by_shape
from training_monitor.logs.text import begins_traceback, log_pieces
from training_monitor.logs.training_log import parse_progress

MAX_PIECE = 2000
EVIDENCE_LENGTH = 300

_ADVICE, _NEVER = regex(table.ADVICE), regex(table.NEVER)
_OF_OTHER_RANKS = regex(table.OF_OTHER_RANKS)
_XID = regex(r"\bxid[ :]{0,3}(?:\([^)]{0,40}\))?[ :]{0,3}(\d{1,3})\b")
_RETRIED = regex(r"^\W{0,5}(?:.{0,60}\b)?(?:retrying|retry \d|trying to resume|will retry|attempt \d+ ?(?:/|of))")
_XID_FATAL = regex(r"(?<!non)(?<!non-)\bfatal|reset required|reboot required|drain and reset|restart_bm")
_EXCEPTION = regex(
    r"^(?:.{0,160}\] |.{0,160}\b(?:error ?message|reason: error|caused by)\b)?\W{0,10}(?:[\w.\]\[ ]{0,200}[. \]])?"
    r"((?:os|io|[a-z_]\w{2,60}?)(?:error|exception|unsupported|systemexit|notfound))\b(?::|$)"
)
# An exception by its position: a class in a module of exceptions, or the last line of a traceback
_RAISED = regex(r"(?:\w{1,40}\.){0,8}(?:exceptions?|errors?)\.(?:\w{1,40}\.){0,2}[a-z_]\w{1,80}(?::|$)")
_RAISED_LAST = regex(r"(?:\w{1,40}\.){0,10}[a-z_]\w{1,80}(?:: |$)")
_ERRORLIKE = regex(
    r"^\W{0,3}(?:\[rank\d{1,5}\]:)?\[[ef]\d{3,4} \d\d:"
    r"|\b(?:error\b(?! rate)(?!\W{0,3}\d{0,9}\.\d)|exception|fatal|fail(?:ed|ure)|abort(?:ed)?|crash(?:ed)?|panic"
    r"|killed|traceback|halted|tim(?:ed|es) out|died|evicted|preempted|i/o error"
    r"|terminated (?:abruptly|unexpectedly)|exited (?:unexpectedly|with))\b"
)
_RANK = regex(r"\[?\brank[ :=_-]{0,2}(\d{1,6})\b|\[default(\d{1,6})\]|local_rank: (\d{1,6})")

_START = 4  # characters of a text by which it is found: few enough that nearly all have them
_TOKEN = regex(r"\\.|\{[\d,]+\}|\[(?:\\.|[^\]\\])+\]|\d")  # of a pattern: escape, repeat, set of characters, digit


def _for_any_digit(pattern: str) -> str:
    """Return a pattern that matches what the given one does, and that with other digits too."""

    def relaxed(token: re.Match[str]) -> str:
        is_set = token[0][0] == "[" and token[0][1] != "^"
        if token[0].isdigit():
            return r"\d"
        return rf"{token[0][:-1]}\d]" if is_set and re.search(r"(?<!\\)\d", token[0]) else token[0]

    return _TOKEN.sub(relaxed, pattern)


_EXIT = {
    0: ("none", "transient", "ignore", "exit status 0"),
    126: ("command_not_found", "user", "stop", "exit status 126: not executable"),
    127: ("command_not_found", "user", "stop", "exit status 127: command not found"),
    130: ("interrupted", "external_stop", "stop", "exit status 130 (SIGINT)"),
    134: ("sigabrt", "ambiguous", "restart", "exit status 134 (SIGABRT)"),
    135: ("segfault", "ambiguous", "restart", "exit status 135 (SIGBUS)"),
    137: ("killed_sigkill", "ambiguous", "restart", "exit status 137 (SIGKILL)"),
    139: ("segfault", "ambiguous", "restart", "exit status 139 (SIGSEGV)"),
    143: ("sigterm", "external_stop", "restart", "exit status 143 (SIGTERM)"),
}
_POD = {
    "OOMKilled": ("host_oom", "ambiguous", "restart"),
    "Evicted": ("evicted", "external_stop", "restart_elsewhere"),
    "Preempting": ("preemption", "external_stop", "restart_elsewhere"),
    "Preempted": ("preemption", "external_stop", "restart_elsewhere"),
    "NodeLost": ("node_lost", "external_stop", "restart_elsewhere"),
    "NodeShutdown": ("preemption", "external_stop", "restart_elsewhere"),
    "Terminated": ("preemption", "external_stop", "restart_elsewhere"),
    "UnexpectedAdmissionError": ("gpu_lost", "hardware", "restart_elsewhere"),
    "ImagePullBackOff": ("environment", "user", "stop"),
    "ErrImagePull": ("environment", "user", "stop"),
    "CreateContainerConfigError": ("environment", "user", "stop"),
    "DeadlineExceeded": ("time_limit", "external_stop", "restart"),
}


_Meaning = tuple[int, tuple[str, str, str]]  # rank of the signature; category, class, action


@dataclass(frozen=True, slots=True)
class _Found:
    level: int
    meaning: tuple[str, str, str]
    piece: str


def classify_failure(text: str, *, exit_code: int | None = None, pod: PodState | None = None) -> Failure:
    """Classify why a job failed.

    Args:
        text: the end of its log, and other messages (kernel log, scheduler), in text order.
        exit_code: its exit status as a shell reports it (137 is SIGKILL); negative numbers are signals.
        pod: the pod it ran in, as Kubernetes reports it; the reason of a pod's end explains its log.

    Returns:
        A Failure; category `none` with action `ignore` if nothing indicates a failure, `unknown` with action `restart`
        if something failed for an unknown reason. Never raises.
    """
    if pod is not None and pod.reason in _POD:
        category, error_class, action = _POD[pod.reason]
        said = f"pod {pod.name}: {pod.reason} {pod.message or ''}".strip()
        return _failure(category, error_class, action, said, sign=pod.reason)
    found = min(_without_retried(_read(text)), key=_order, default=None)  # the first of equals
    code = 128 - exit_code if exit_code is not None and exit_code < 0 else exit_code
    if found and (found.level < table.SUMMARY or code in (None, 0) or code not in _EXIT):
        return replace(_failure(*found.meaning, found.piece), rank=_rank_of(text, found.piece))
    return _failure(*_EXIT[code], sign=f"{code}") if code in _EXIT else _unknown(text, code)


def _order(found: _Found) -> tuple[int, bool]:
    """Return the rank of its signature; a source line in a traceback counts less than the exception below it."""
    return found.level, found.piece.lstrip().startswith("raise ")


def _rank_of(text: str, piece: str) -> int | None:
    """Return the rank that wrote a piece, from its prefix or its words."""
    at = text.find(piece[:200])
    if at < 0:
        return None
    seen = _RANK.search(text[text.rfind("\n", 0, at) + 1 : at + 400].partition("\n")[0].lower())
    return int(next(group for group in seen.groups() if group)) if seen else None


def _unknown(text: str, code: int | None) -> Failure:
    said = None
    for piece in log_pieces(text):
        line = piece[:MAX_PIECE].lower()
        told = _told_by(line)
        if told.retried:
            said = None
        elif said is not None and _goes_on(piece):
            said = None
        elif told.errorlike and not _NEVER.search(line) and not _ADVICE.search(line):
            said = piece
    if said is None and code is None:
        return _failure("none", "transient", "ignore", "")
    if said is None:
        return _failure("unknown", "ambiguous", "restart", f"exit status {code}", sign=f"{code}")
    return _failure("unknown", "ambiguous", "restart", said)


def _goes_on(piece: str) -> bool:
    """Whether a line shows training steps, so that an earlier error did not end the training."""
    shown = parse_progress(piece)
    return shown.loss is not None and any(each is not None for each in (shown.step, shown.epoch, shown.epoch_step))


def _without_retried(found: Iterable[_Found | None]) -> list[_Found]:
    """Drop a network error that is followed by None, which means that it was retried."""
    kept: list[_Found] = []
    for each in found:
        if each is not None:
            kept.append(each)
        elif kept and kept[-1].meaning[0] == "network_error":
            kept.pop()
    return kept


def _read(text: str) -> Iterator[_Found | None]:
    """Yield every meaningful line, in text order, and None for a retry."""
    in_traceback = False
    for piece in log_pieces(text):
        line = piece[:MAX_PIECE].lower()
        told, (last, in_traceback) = _told_by(line), _traceback(line, in_traceback)
        if told.retried:
            yield None
        if not (told.signatures or told.exception or last or "xid" in line) or _NEVER.search(line):
            continue
        for found in (_read_xid(line), _read_signatures(line, told.signatures), _read_exception(line, last)):
            if found:
                yield _Found(*found, piece)


@lru_cache(maxsize=1)
def _signatures() -> tuple[tuple[table.Signature, re.Pattern[str], re.Pattern[str]], ...]:
    """Return each signature with its pattern, and with the one for lines of its shape."""
    return tuple((each, regex(each.pattern), regex(_for_any_digit(each.pattern))) for each in table.SIGNATURES)


@lru_cache(maxsize=1)
def _signatures_by_start() -> dict[str, list[tuple[str, int]]]:
    """Return the texts of which a signature's lines contain one, with its number, by their first characters."""
    by_start = defaultdict[str, list[tuple[str, int]]](list)
    for number, (*_, pattern) in enumerate(_signatures()):
        for text in required_texts(pattern.pattern, 0) or ("",):
            by_start[text[:_START] if len(text) >= _START else ""].append((text, number))
    return by_start


def _may_have(line: str) -> list[int]:
    """Return the numbers of the signatures of which a line contains a required text."""
    by_start = _signatures_by_start()
    starts = by_start.keys() & {"", *[line[at : at + _START] for at in range(len(line))]}
    return sorted({number for start in starts for text, number in by_start[start] if text in line})


class _Told(NamedTuple):
    """What a line may tell by its words, whatever its numbers are; `signatures` counts in `_signatures`."""

    signatures: tuple[int, ...]
    exception: bool
    retried: bool
    errorlike: bool


@by_shape
def _told_by(line: str) -> _Told:
    return _Told(
        signatures=tuple(number for number in _may_have(line) if _signatures()[number][-1].search(line)),
        exception=bool(_EXCEPTION.match(line) or _RAISED.match(line)),
        retried=_RETRIED.search(line) is not None,
        errorlike=_ERRORLIKE.search(line) is not None,
    )


def _read_signatures(line: str, numbers: Iterable[int]) -> _Meaning | None:
    """Return the meaning of the first of these signatures in a line, unless advice precedes it."""
    advice = _ADVICE.search(line)
    for each, pattern, _ in map(_signatures().__getitem__, numbers):
        found = pattern.search(line)
        if found and not (advice and advice.start() <= found.start()):
            return each.rank, (each.category, each.error_class, each.action)
    return None


def _read_xid(line: str) -> _Meaning | None:
    seen = _XID.search(line) if "xid" in line and "sxid" not in line else None
    if not seen:
        return None
    number = int(seen[1])
    if number == 154 or number in table.XID_BY_TEXT:
        said = line.rpartition(" to ")[2]  # message 154: changed from A to B
        action = "restart_elsewhere" if _XID_FATAL.search(said) else "ignore" if number == 154 else "monitor"
    elif number in table.XID_ELSEWHERE:
        action = "restart_elsewhere"
    elif number in table.XID_RESTART:
        action = "restart"
    else:
        action = "ignore" if number in table.XID_IGNORE else "monitor"
    level = {"restart_elsewhere": table.HARDWARE, "restart": table.EXCEPTION}.get(action, table.HARMLESS)
    return level, ("xid", "hardware", action)


def _traceback(line: str, inside: bool) -> tuple[bool, bool]:
    """Whether a line ends a traceback, and whether the next line is inside one."""
    if begins_traceback(line):
        return False, True
    goes_on = inside and (not line[:1] or line[0] in " |+")
    return inside and not goes_on, goes_on


def _read_exception(line: str, ends_traceback: bool) -> _Meaning | None:
    """Return the meaning of a Python exception without a signature."""
    seen = _EXCEPTION.match(line)
    advice = _ADVICE.search(line)
    if advice and advice.start() <= (seen.start(1) if seen else 0):
        return None
    if _OF_OTHER_RANKS.search(line):
        return None  # its signature decides
    if not seen:
        raised = _RAISED.match(line) or (ends_traceback and _RAISED_LAST.match(line))
        return (table.DEATH, ("python_exception", "ambiguous", "restart")) if raised else None
    if seen[1] in table.SECOND_HAND or "see root cause above" in line:
        return table.SUMMARY, ("python_exception", "ambiguous", "restart")
    if seen[1] in table.USER_EXCEPTIONS or seen[1].endswith(("notfound", "notfounderror")):
        return table.EXCEPTION, ("python_exception", "user", "stop")
    return table.DEATH, ("python_exception", "ambiguous", "restart")


def _failure(category: str, error_class: str, action: str, evidence: str, *, sign: str | None = None) -> Failure:
    """Make a failure; `sign` identifies it within its category, by default the stable part of the evidence."""
    import hashlib

    shown = evidence.strip()[:EVIDENCE_LENGTH]
    told = f"{category} {_steady(shown) if sign is None else sign}"
    return Failure(category, error_class, action, shown, fingerprint=hashlib.sha256(told.encode()).hexdigest()[:12])


_VOLATILE = regex(
    r"0x[0-9a-f]+|\b[0-9a-f]{8,}(?:-[0-9a-f]{4,}){0,4}\b|\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?|(?:/[\w.@+-]+){2,}|\d+"
)


def _steady(evidence: str) -> str:
    """Return the evidence without its variable parts: numbers, addresses, paths, ranks, dates."""
    words = re.sub(r"[^a-z#]+", " ", _VOLATILE.sub("#", evidence.lower()))
    return " ".join(word for word in words.split() if word != "#" and not word.startswith("rank"))[:160]
