"""Classify why a job failed, from the end of its log, its exit code and its pod. Pure.

What comes last decides: steps, losses or a new attempt cancel the lines before them. Root causes come before
cascades: a named cause explains the processes that died of it, and those explain the time-outs of the ranks that
waited for them; among signatures of one rank, the earliest line is the root. Advice, ongoing retries and counts of
zero are never evidence. The default is to restart; stopping needs proof.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from math import isfinite
from typing import NamedTuple

from training_monitor.core.models import Failure
from training_monitor.core.regex import regex
from training_monitor.core.results import PodState
from training_monitor.logs.events import without_results
from training_monitor.logs.shapes import by_shape, shape_of
from training_monitor.logs.text import CHAINED, IGNORED, begins_traceback, launcher_prefix, pieces_and_lines, strip_ansi
from training_monitor.logs.training_log import ProgressReader
from training_monitor.targets.pods import describe_end, outlived_kill
from training_monitor.verdict import failure_table as table

MAX_PIECE = 2000
EVIDENCE_LENGTH = 300
_TOO_EARLY = regex(rf"^(?=.{{{EVIDENCE_LENGTH + 1}}}).+? (?=.{{0,{EVIDENCE_LENGTH}}}\Z)")  # runtimes put the cause last

# Why a pod is disrupted, as Kubernetes and Kueue call it: what follows these words differs by version and controller.
_DISRUPTED = regex(r"(Preemption|WorkloadEvicted)|(?:Deletion|Eviction|Termination)By")
# The node refused the pod before any container ran.
_REJECTED = regex(r"(?:OutOf|NodeAffinity|NodeName|NodePorts|TopologyAffinity)[\w./-]*: |[\w./-]+: Pod was rejected")

_ADVICE, _NEVER, _AVERTED = regex(table.ADVICE), regex(table.NEVER), regex(table.AVERTED)
_FROM_OUTSIDE = regex(table.FROM_OUTSIDE)
_XID = regex(
    r"(?<!no )(?<!check )(?<!parse )\bxid[ :]{0,3}(?:\([^)]{0,40}\))?[ :]{0,3}(\d{1,3})\b(?! (?:check|table|handl))"
)
_RETRIED = regex(
    r"^\W{0,5}(?:.{0,60}\b)?(?:retrying|retry \d|trying to resume|will retry|attempt \d+ ?(?:/|of)"
    r"|attempting to recover|skipping (?:this |the )?batch)|\b(?:ok|succe\w{2,8}|worked) (?:on|at|after) .{0,20}\btry\b"
    r"|^(?!.{0,80}\b(?:tip|hint|try|consider|options?|need|fix|suggest|by)\b).{0,80}\b(?:reduc|decreas|lower|halv)(?:ing|ed)"
    r" .{0,20}batch.{0,30}\b(?:to|from)\W{0,3}\d"
)
_SERVER_BACK = regex(r"\bnfs: server (\S{1,80}) ok\b")
_TRACKER = regex(  # its client goes on
    r"^.{0,40}(?:^(?:wandb: |comet (?:error|warning)\b)"
    r"|\b(?:backoff:|aim\.|clearml\.|comet_ml\.|mlflow\.|neptune\b|posthog\b|swanlab\b))"
)
_OF_SERVERS = ("network_error", "hub_auth")
_UNCHOSEN = regex(r"\bignoring this choice\b")  # of a kernel, which the line before reports as failed
_WENT_ON = regex(r"\bwill be retried\b|\b(?:retry|retrying|trying again|reconnect|reconnecting) in \d")
_RETRIED_CATEGORIES = ("network_error", "nccl_network_error", "cuda_oom")
_NEW_ATTEMPT = regex(
    r"\brunning training\b|running entrypoint|starting with jobenvironment"
    r"|(?:restarting (?:the )?|\] starting |rendezvous'ing )worker group"
    r"|\bresum(?:e|ed|ing) (?:\w{1,20} )?from\b|\bstarting (?:(?:pre-?)?training|fine-?tuning|attempt \d)"
    r"|\battempt \d+:? (?:started|begins)"
    r"|\brestart(?:ing|ed) (?:the )?(?:training|job|run)\b|\btrial \S{1,60} (?:finished|completed|started)\b"
)
_POSITION = ("step", "epoch", "epoch_step")
_ENDS = table.DECREED, table.HARDWARE, table.DEATH
_WEAK = table.HANDLED, table.WARNED
# Where a line says how work went on, they may have ended a part of the job.
_OF_PARTS = ("time_limit", "host_oom", "node_lost", "evicted", "evicted_disk", "evicted_memory")
_ENDS_STEP = ("nccl_timeout", "nccl_network_error", "sigabrt", "exit_status", "command_not_found")
_GRACE_ENDS = ("killed_sigkill", "sigterm")  # how a scheduler ends what it announced
_WAITS = regex(r"waiting (?:for )?\d")
_OF_JOB = regex(r"\b(?:job|wall|run|allocation|service)")
_STATES = regex(r"\s*\|.*\|\s*|.*\b[1-9]\d* running\b.*")  # of tasks: a row of a table, or counts while some run
_FRAME = regex(r"""file ["'][^"']{1,400}["'], line \d+""")
_JSON_ERROR = regex(
    r"""\{.{0,4000}"(?:level|levelname|severity|lvl|log\.level)": ?"(?:error|critical|fatal|alert|emergency)\""""
)
_JSON_TRACEBACK = regex(r'"((?:[^"\\]|\\.)*?Traceback \(most recent call last\):\\n(?:[^"\\]|\\.)*)')
_SOURCE = regex(r"\s*(?:-{1,9}> ?\d+ |[│❱╭╰]|raise |\d+ +(?:raise|assert|if|except|return) )")
_NAMED = regex(r"\W{0,3}[\w.]{2,120}(?::|$)")
_WARNS = regex(
    r"^(?!warning {2,9}\w).{0,80}?(?:\bwarning\b|[\[|] ?warn ?[\]|]|: w [\w/.-]{1,80}\.(?:cc|cu|h|py):\d|\[nemo w )"
)
# A loss scaler skips a step with such a gradient
_SCALED = regex(
    r"(?!.*loss\W{1,6}(?:is )?-?(?:nan|inf)).*\bloss\W{1,6}(?!0+(?:\.0*)?(?:\D|$))\d"
    r".*\bgrad(?:ient)?[ _-]?norm\W{1,6}nan\b"
)
_XID_FATAL = regex(r"(?<!non)(?<!non-)\bfatal|reset required|reboot required|drain and reset|restart_bm")
_EXCEPTION = regex(
    r"^(?:.{0,160}\] |.{0,160}\b(?:error ?message|reason: error|caused by)\b)?\W{0,10}(?:[\w.\]\[ ]{0,200}[. \]])?"
    r"(?!\w{1,60}_error: -?\d)((?:os|io|[a-z_]\w{2,60}?)(?:error|exception|notfound))\b(?::|$)"
)
# An exception by its position: a class in a module of exceptions, or the last line of a traceback (or else a warning)
_RAISED = regex(
    r"(?:\w{1,40}\.){0,8}(?:(?:exceptions?|errors?)\.(?:\w{1,40}\.){0,2}[a-z_]\w{1,80}(?::|$)|[a-z]{3,30}warning: )"
)
_RAISED_LAST = regex(r"(?:\w{1,40}\.){0,10}[a-z_]\w{1,80}(?:: |$)")
_ERRORLIKE = regex(
    r"^\W{0,3}(?:\[rank\d{1,5}\]:)?\[[ef]\d{3,4} \d\d:"
    r"|\b(?:error\b(?! rate)(?!\W{0,3}\d{0,9}\.\d)|exception|fatal|fail(?:ed|ure)(?! to improve)|abort(?:ed)?"
    r"|crash(?:ed)?|panic|killed|traceback|halted|tim(?:ed|es) out|died|evicted|preempted|i/o error"
    r"|(?:terminated|exited) (?:abruptly|unexpectedly)|exited with(?! (?:(?:exit )?(?:code|status)[ :=]{1,3})?0\b))\b"
)
# By Slurm, which kills it soon, and does not start it again as one that was preempted
_CANCELLED = regex(
    r"\*\*\* (?:job|step(?=.{1,200} due to time limit)) \S{1,40} (?:on \S{1,80} )?cancelled at \S{1,40}"
    r" (?:\*\*\*|due to time limit)"
)
# By a person, or by Slurm after a task failed
_STEP_ENDED = regex(r"\*\*\* step .{1,120} cancelled at \S{1,40} \*\*\*|^srun: error: .{1,200}: terminated$")
_STDIO_BUFFER = 8192
_UNCAUGHT = regex(r"\[rank\d{1,5}\]: \Z")  # PyTorch writes this before each line of an exception that ends a rank
_TO_ZERO = str.maketrans("123456789", "000000000")
_RANK = regex(r"\[?\brank[ :=_-]{0,2}(\d{1,6})\b|\[default(\d{1,6})\]|local_rank: (\d{1,6})")

_TOKEN = regex(r"\\.|\{[\d,]+\}|\[(?:\\.|[^\]\\])+\]|\d")  # of a pattern: escape, repeat, set of characters, digit

_PLAIN = r"[^()\[\\]|\\.|\[(?:\\.|[^\]\\])+\]"  # of a pattern: no parenthesis
_NESTED = rf"(?:{_PLAIN}|\((?:{_PLAIN}|\((?:{_PLAIN}|\((?:{_PLAIN})*\))*\))*\))*"
_REFUSES = regex(rf"\(\?<?!{_NESTED}\)")


def _for_any_digit(pattern: str) -> str:
    """Return a pattern that matches what the given one does, and that with other digits too."""

    def relaxed(token: re.Match[str]) -> str:
        is_set = token[0][0] == "[" and token[0][1] != "^"
        if token[0].isdigit():
            return r"\d"
        return rf"{token[0][:-1]}\d]" if is_set and re.search(r"(?<!\\)\d", token[0]) else token[0]

    def allowed(refused: re.Match[str]) -> str:  # what refuses one digit must not refuse all
        names_digit = any(relaxed(token) != token[0] for token in _TOKEN.finditer(refused[0]))
        return "" if names_digit else refused[0]

    return _TOKEN.sub(relaxed, _REFUSES.sub(allowed, pattern))


_EXIT = {
    0: ("none", "exit code 0"),
    124: ("time_limit", "exit code 124: stopped by the timeout command"),
    126: ("command_not_found", "exit code 126: not executable"),
    127: ("command_not_found", "exit code 127: command not found"),
}
_EXIT |= {128 + each: (name, f"exit code {128 + each} ({signal})") for each, (signal, name) in table.SIGNALS.items()}
_PREEMPTED = ("preemption", "restart_elsewhere")
_POD = {
    "OOMKilled": ("host_oom", None),
    "Evicted": ("evicted", None),
    "Preempting": _PREEMPTED,
    "Preempted": _PREEMPTED,
    "NodeLost": ("node_lost", None),
    "DeletionByPodGC": ("node_lost", None),
    "NodeShutdown": _PREEMPTED,
    "Shutdown": _PREEMPTED,
    "Terminated": _PREEMPTED,
    "UnexpectedAdmissionError": ("rejected", "restart_elsewhere"),
    "Rejected": ("rejected", None),  # our word for all that the node may say before it starts anything
    "ImagePullBackOff": ("environment", None),
    "ErrImagePull": ("environment", None),
    "CreateContainerConfigError": ("environment", None),
    "DeadlineExceeded": ("time_limit", None),
}


class _Found(NamedTuple):
    level: int
    category: str
    action: str | None  # None: that of the category
    piece: str = ""
    raw: str = ""  # the line of the piece, with the prefixes of launchers
    is_uncaught: bool = False  # only a new attempt can follow
    is_final: bool = False  # only what the job prints until it is killed, or a new attempt, can follow


def classify_failure(text: str, *, exit_code: int | None = None, pod: PodState | None = None) -> Failure:
    """Classify why a job failed. docs/failures.md lists the categories.

    Args:
        text: the end of the job's log, and other messages (from the kernel log or the scheduler).
        exit_code: the job's exit code as reported by a shell (137 is SIGKILL); negative numbers are signals.
        pod: the pod that ran the job, as reported by Kubernetes. If the reason why the pod ended is known, it takes
        precedence over the log.

    Returns:
        A Failure. If there is no sign of a failure, its category is `none`, with action `ignore`. If the cause is
        unknown, the category is `unknown`, with action `restart`. Never raises.
    """
    told = None if pod is None else pod.reason or (pod.terminated if pod.exit_code == 137 else None)
    reason = told or ""
    if reason not in _POD and (disrupted := _DISRUPTED.match(reason)):
        reason = "Preempted" if disrupted[1] else "Evicted"
    if pod is not None and reason not in _POD and _REJECTED.match(f"{reason}: {pod.message}"):
        reason = "Rejected"
    of_pod, _ = _read((pod and pod.phase == "Failed" and pod.message) or "")
    if pod is not None and (reason in _POD or pod.category):
        category, action = (pod.category, None) if pod.category else _POD[reason]
        if of_pod and of_pod.level <= table.HARDWARE and category in ("evicted", "rejected"):
            category, action = of_pod.category, of_pod.action
        return _failure(category, describe_end(pod), action, sign=told)
    found, unnamed = _read(text)
    if found is None and of_pod:
        is_early = _read(of_pod.piece[:EVIDENCE_LENGTH])[0]
        found = of_pod if is_early else of_pod._replace(piece=_TOO_EARLY.sub("", of_pod.piece))
    code = 128 - exit_code if exit_code is not None and exit_code < 0 else exit_code
    if found and (found.level < table.SUMMARY or code in (None, 0) or code not in _EXIT):
        return replace(_failure(found.category, found.piece, found.action), rank=_rank_of(found.raw))
    if pod and outlived_kill(pod):
        return _failure("host_oom", describe_end(pod), sign=pod.terminated)
    if code in _EXIT:
        category, words = _EXIT[code]
        part = pod.message if pod and pod.kind == "job" else None  # of a heterogeneous job
        return _failure(category, ", ".join(filter(None, (words, part))), sign=f"{code}")
    if unnamed:
        return _failure("unknown", unnamed)
    if code is None and pod is not None and pod.phase == "Failed":
        return _failure("unknown", describe_end(pod), sign=pod.reason)
    return _failure("none", "") if code is None else _failure("unknown", f"exit code {code}", sign=f"{code}")


def is_warning(failure: Failure) -> bool:
    """Return whether only a warning, or what a tool or a tracker said, speaks for a failure."""
    found = _read(failure.evidence)[0]
    if found is None or found.level in _WEAK:
        return found is not None
    return found.category == "nccl_network_error" and _WARNS.search(failure.evidence.lower()) is not None


def _read(text: str) -> tuple[_Found | None, str]:
    """Return what is closest to the root cause, of equals the first one, and the last error without a known name."""
    evidence = _Evidence()
    evidence.read(text)
    return min(evidence.found, key=lambda each: each.level, default=None), evidence.unnamed


def _read_lines(text: str) -> Iterator[tuple[str, str]]:
    """Yield the pieces of a log with their lines, and those of a text with a traceback in a JSON record of an error."""
    for piece, raw in pieces_and_lines(text):
        has_one = "Traceback (most recent" in piece and _JSON_ERROR.match(piece.lower())
        value = _JSON_TRACEBACK.search(piece) if has_one else None
        if value is None:
            yield piece, raw
            continue
        yield piece[: value.start(1)] + piece[value.end() :], raw
        for line in value[1].replace(r"\"", '"').split(r"\n"):
            if line:
                yield line, raw


def _rank_of(raw: str) -> int | None:
    """Return the rank that wrote a line, from its prefix or its words."""
    seen = _RANK.search(strip_ansi(raw[:1000])[:400].lower())
    return int(next(group for group in seen.groups() if group)) if seen else None


class _Evidence:
    """The lines of a log that no later progress, retry or new attempt has cancelled.

    Attributes:
        found: named failures, in text order.
        unnamed: the last line that reports an error without a known name.
    """

    def __init__(self) -> None:
        self.found: list[_Found] = []
        self.unnamed = ""
        self._chain = 0  # where the findings of the present traceback begin
        self._is_chained = self._in_traceback = self._is_ignored = False
        self._decrees = list[_Found]()  # those that only steps of their grace period follow
        self._of_parts = dict[str, _Found]()  # since the last step, by category
        self._prefix = ""  # what stands before each line of the present traceback, its digits as zeros
        self._frame: int | None = None  # the column of `File "...", line N`: what is deeper below is source code
        self._reader: ProgressReader | None = None  # from the first evidence on
        self._uncaught = list[_Found]()  # of a rank that died; others may print late what they printed before that
        self._late = 0  # characters of steps since then
        self._buffered = 0  # characters of losses without a step since the last step

    def read(self, text: str) -> None:
        """Read the lines of a log."""
        lines = [*_read_lines(text)]
        for number, (whole, raw) in enumerate(lines):
            head = self._prefix_length(whole)
            piece = whole[head:]
            line = piece[:MAX_PIECE].lower()
            told = _told_by(line)
            if not (told.is_sign or self._in_traceback or self._reader or self._frame is not None):
                continue
            is_source, ends_traceback = self._is_source(line), self._follow_traceback(line)
            is_uncaught = ends_traceback and _UNCAUGHT.search(launcher_prefix(raw) + whole[:head]) is not None
            if self._reader:
                begins, before = told.new_attempt and not _ERRORLIKE.search(line), self._position()
                if begins or self._moves(whole):
                    decrees = [each for each in (*self._decrees, *self.found) if each.level == table.DECREED]
                    is_new = begins or self._position() < before
                    self._decrees = [] if is_new else decrees
                    if is_new or not all(each.is_final for each in self.found):
                        all_died = not is_new and all(each.is_uncaught for each in self.found)
                        self._uncaught, self._late = self.found if all_died else [], 0
                    self._late += len(whole)
                    keeps = not is_new and self._late < _STDIO_BUFFER
                    self.found = [each for each in self.found if keeps and each.is_final]
                    self._of_parts, self.unnamed, self._chain = {}, "", len(self.found)
            self._retract(line)
            if told.retried and not _ADVICE.search(line):
                self.unnamed = ""
                last = [each for each in self.found if each.piece == self.found[-1].piece]
                if any(each.category in _RETRIED_CATEGORIES for each in last):
                    self.found = [each for each in self.found if each not in last]
            if begins_traceback(line):
                before_it = lines[number - 1][0].lower() if number else ""
                goes_on = self._is_ignored and CHAINED.search(before_it) is not None
                self._is_ignored = goes_on or IGNORED.match(before_it) is not None
            is_ignored = self._is_ignored and (self._in_traceback or ends_traceback or self._is_chained)
            is_raised = ends_traceback and told.exception and not _WENT_ON.search(line)
            if is_source or is_ignored or IGNORED.match(line) or (not is_raised and _is_harmless(line, told)):
                continue
            self._add(piece, raw, told, ends_traceback, is_uncaught)
            if self._reader is None and (self.found or self.unnamed):
                self._reader = ProgressReader()
                self._reader.read_text("\n".join(piece for piece, _ in lines[: number + 1]))

    def _retract(self, line: str) -> None:
        """Drop what a line says is over: a kernel that did not fit, a server that answers again."""
        if self.found and _UNCHOSEN.search(line):
            self.unnamed, unchosen = "", self.found[-1].piece
            self.found = [each for each in self.found if each.piece != unchosen]
        elif self.found and (back := _SERVER_BACK.search(line)):
            missed = f"nfs: server {back[1]} not responding"
            self.found = [each for each in self.found if missed not in each.piece.lower()]
            self.unnamed = "" if missed in self.unnamed.lower() else self.unnamed

    def _add(self, piece: str, raw: str, told: _Told, ends_traceback: bool, is_uncaught: bool) -> None:
        line = piece[:MAX_PIECE].lower()
        if told.signatures or told.exception or ends_traceback or "xid" in line:
            is_warning, is_averted = (pattern.search(line) is not None for pattern in (_WARNS, _AVERTED))
            for each in (
                _read_xid(line),
                _read_signatures(line, told.signatures),
                _read_exception(line, ends_traceback),
            ):
                if each:
                    if each.category in _GRACE_ENDS and all(other.level in _WEAK for other in self.found):
                        kills = each.level == table.DEATH
                        of_parts = [one for one in self._of_parts.values() if kills or one.level == table.DECREED]
                        self.found += self._decrees + of_parts
                    is_weak = is_warning and table.DECREED < each.level < table.DEATH
                    is_weak = is_weak or (each.category == "loss_nan" and _SCALED.match(line) is not None)
                    level = table.WARNED if is_weak else each.level
                    ends_others = each.level in (table.CASCADE, table.SUMMARY) or each.category == "unknown"
                    follows = ends_others and not is_warning
                    only_weak = all(one.level in _WEAK or _WARNS.search(one.piece.lower()) for one in self.found)
                    if follows and only_weak and self._late < _STDIO_BUFFER:
                        self.found += self._uncaught
                    if each.category in _OF_SERVERS and not ends_traceback and _TRACKER.match(line):
                        level = max(level, table.WARNED)
                    is_final = _CANCELLED.search(line) is not None
                    if is_final:  # what was cancelled before was another job
                        self._late, self.found = 0, [other for other in self.found if not other.is_final]
                    if _STEP_ENDED.search(line) and any(one.category in _ENDS_STEP for one in self.found):
                        level = table.SUMMARY
                    seen = _Found(level, each.category, each.action, piece, raw, is_uncaught, is_final)
                    is_waited_for = seen.category == "time_limit" and _WAITS.search(line)
                    if is_averted and seen.category in _OF_PARTS and not is_waited_for:
                        self._of_parts[seen.category] = seen  # it counts if a signal follows at once
                        seen = seen._replace(level=table.WARNED if seen.level == table.CAUSE else table.HANDLED)
                    self.found.append(seen)
        if told.errorlike and not (_ADVICE.search(line) or _STATES.fullmatch(line) or _WARNS.search(line)):
            self.unnamed = piece if _ERRORLIKE.search(without_results(line)) else self.unnamed

    def _position(self) -> tuple[float, ...]:
        assert self._reader
        return tuple(self._reader.shown.get(name) or 0 for name in ("epoch", *_POSITION))

    def _moves(self, piece: str) -> bool:
        """Whether a piece shows another position, or a loss of none; bars are drawn again when a process ends."""
        assert self._reader
        before = {name: self._reader.shown.get(name) for name in _POSITION}
        shown = self._reader.read_piece(piece, shape_of(piece))
        at = {name: shown[name] for name in _POSITION if shown.get(name) is not None}
        loss = shown.get("loss")
        if "step" not in at and before["step"] is not None and self._reader.epochs.fractional:
            self._buffered += len(piece)  # if its bar counts the steps, until the process ended
            return self._buffered > _STDIO_BUFFER
        self._buffered = 0 if "step" in at else self._buffered
        if not at:
            return loss is not None and isfinite(loss)
        if "%|" in piece:
            at = {name: value for name, value in at.items() if before[name] is not None}
        return any(value != before[name] for name, value in at.items()) and (loss is not None or any(at.values()))

    def _is_source(self, line: str) -> bool:
        """Whether a line is one that a traceback quotes."""
        if _SOURCE.match(line):
            return True
        if frame := _FRAME.search(line):
            self._frame = frame.start()
            return True
        if self._frame is None:
            return False
        if line[self._frame : self._frame + 2].isspace() or not (self._frame or _NAMED.match(line)):
            return True
        self._frame = None
        return False

    def _prefix_length(self, line: str) -> int:
        """Return where a line of a traceback begins, behind what a logger or a collector wrote before each of them."""
        if not (self._in_traceback and self._prefix):
            return 0
        length = len(self._prefix)
        return length if line[:length].lower().translate(_TO_ZERO) == self._prefix else 0

    def _follow_traceback(self, line: str) -> bool:
        """Return whether a line ends a traceback; of a chain of exceptions, the last one counts."""
        if chained := CHAINED.search(line):
            keeps = table.CAUSE if chained[1] else table.DECREED
            self.found[self._chain :] = [
                each if each.level <= keeps else each._replace(level=max(each.level, table.HANDLED))
                for each in self.found[self._chain :]
            ]
            self._is_chained = True
        if begins_traceback(line):
            self._chain = self._chain if self._is_chained else len(self.found)
            self._is_chained, self._in_traceback = False, True
            self._prefix = line[: line.index("traceback (most")].translate(_TO_ZERO)
            return False
        was_inside = self._in_traceback
        self._in_traceback = was_inside and (not line[:1] or line[0] in " |+")
        return was_inside and not self._in_traceback


@lru_cache(maxsize=1)
def _signatures() -> tuple[tuple[table.Signature, re.Pattern[str], re.Pattern[str]], ...]:
    """Return each signature with its pattern, and with the one for lines of its shape."""
    return tuple((each, regex(each.pattern), regex(_for_any_digit(each.pattern))) for each in table.SIGNATURES)


@lru_cache(maxsize=1)
def _errorlike_shape() -> re.Pattern[str]:
    return regex(_for_any_digit(_ERRORLIKE.pattern))


class _Told(NamedTuple):
    """What a line may tell by its words, whatever its numbers are; `signatures` counts in `_signatures`."""

    signatures: tuple[int, ...]
    exception: bool
    retried: bool
    errorlike: bool
    new_attempt: bool
    is_sign: bool  # whether the line matters where nothing was found yet


@by_shape
def _told_by(line: str) -> _Told:
    signatures = tuple(number for number, (*_, pattern) in enumerate(_signatures()) if pattern.search(line))
    exception = bool(_EXCEPTION.match(line) or _RAISED.match(line))
    errorlike = _errorlike_shape().search(line) is not None
    return _Told(
        signatures=signatures,
        exception=exception,
        retried=_RETRIED.search(line) is not None,
        errorlike=errorlike,
        new_attempt=_NEW_ATTEMPT.search(line) is not None,
        is_sign=bool(signatures or exception or errorlike or "xid" in line or _FRAME.search(line))
        or begins_traceback(line),
    )


def _read_signatures(line: str, numbers: Iterable[int]) -> _Found | None:
    """Return the first of these signatures in a line, unless advice precedes it."""
    advice = _ADVICE.search(line)
    for each, pattern, _ in map(_signatures().__getitem__, numbers):
        found = pattern.search(line)
        if found and not (advice and advice.start() <= found.start()):
            return _Found(each.rank, each.category, each.action)
    return None


def _is_harmless(line: str, told: _Told) -> bool:
    """Whether a line is never evidence, or says how a problem was averted and names no end."""
    if _NEVER.search(line):
        return True
    if not _AVERTED.search(line):
        return False
    named = _read_xid(line) or _read_signatures(line, told.signatures)
    if named and named.category == "time_limit":
        return not _OF_JOB.search(line)
    return not (named and (named.level in _ENDS or named.category in ("host_oom", "sigterm")))


def _read_xid(line: str) -> _Found | None:
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
    return _Found(level, "xid", action)


def _read_exception(line: str, ends_traceback: bool) -> _Found | None:
    """Return what a Python exception means by its name."""
    seen = _EXCEPTION.match(line)
    advice = _ADVICE.search(line)
    if advice and advice.start() <= (seen.start(1) if seen else 0):
        return None
    if _FROM_OUTSIDE.search(line):
        return None  # its signature decides
    raised = seen or _RAISED.match(line) or (ends_traceback and _RAISED_LAST.match(line))
    if not raised:
        return None
    name = seen[1] if seen else raised[0].rstrip(": ").rpartition(".")[2]
    if name in table.SECOND_HAND or "see root cause above" in line:
        return _Found(table.SUMMARY, "runtime_error", None)
    by_name = "python_exception" if name.endswith(("notfound", "notfounderror")) else "runtime_error"
    category = table.EXCEPTIONS.get(name, by_name)
    is_users = table.CATEGORIES[category].error_class == "user"
    return _Found(table.EXCEPTION if is_users else table.DEATH, category, None)


def _failure(category: str, evidence: str, action: str | None = None, *, sign: str | None = None) -> Failure:
    """Make a failure; `sign` identifies it within its category, by default the stable part of the evidence."""
    import hashlib

    shown, row = evidence.strip()[:EVIDENCE_LENGTH], table.CATEGORIES[category]
    told = f"{category} {_steady(shown) if sign is None else sign}"
    mark = hashlib.sha256(told.encode()).hexdigest()[:12]
    return Failure(category, row.error_class, action or row.action, shown, fingerprint=mark, advice=row.advice)


_VOLATILE = regex(
    r"0x[0-9a-f]+|\b[0-9a-f]{8,}(?:-[0-9a-f]{4,}){0,4}\b|\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?|(?:/[\w.@+-]+){2,}|\d+"
)


def _steady(evidence: str) -> str:
    """Return the evidence without its variable parts: numbers, addresses, paths, ranks, dates."""
    words = re.sub(r"[^a-z#]+", " ", _VOLATILE.sub("#", evidence.lower()))
    return " ".join(word for word in words.split() if word != "#" and not word.startswith("rank"))[:160]
