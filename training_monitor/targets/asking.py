"""Ask a target many questions in one round trip, and many targets at once.

All scripts travel in one `sh -s` on stdin (never in argv). On the target they run in parallel, each with its own time
limit, at which all its processes are killed, even those that left its process group. Each output is collected in memory
(a full disk does not matter) and printed between marks that contain a random nonce, so no output can forge a frame.
Only sh, head, cat and sleep are needed (tested with dash, bash and busybox).

A reply without its closing mark is unknown, whatever the exit code, and is asked again: kubectl exec can exit 0 and
lose the output. Every script must therefore be idempotent.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, TypeVar, cast

from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.errors import (
    AccessDenied,
    CommandError,
    CommandFailed,
    CommandTimedOut,
    ParseError,
    SettingsError,
    TargetEnded,
    TargetUnreachable,
    TargetWaits,
    TrainingMonitorError,
)
from training_monitor.core.models import Answer, Question, Reply
from training_monitor.core.read_fence import DENIED, HINT, REFUSED, WHY_REFUSED, format_fence, is_fenced
from training_monitor.core.regex import regex
from training_monitor.core.results import CommandResult
from training_monitor.targets.scripts import Quoted, format_call
from training_monitor.targets.target import RESOLVE_SECONDS, Target, parse_target
from training_monitor.targets.transport import (
    MOST_PROGRAMS,
    HeldScript,
    LocalTransport,
    Stream,
    Transport,
    Until,
    Within,
    explain_failure,
    explain_timeout,
)

MAX_ANSWER_BYTES = 4 * 1024 * 1024
MAX_SCRIPT_BYTES = 131_000  # Linux limits one environment variable of a new process to 128 KiB
CONNECT_SECONDS = 20.0
ASK_ATTEMPTS = 3
_LEAST_SECONDS = 1.0  # for a call whose time is over
_ASKED = regex(r"ask (\d{1,4}) (\d{1,12}(?:\.\d{1,9})?) (\d{1,12}(?:\.\d{1,9})?)(?:\n|\Z)", re.ASCII)
_ENDED = regex(r"\s*exit (\d{1,3})\s*\Z", re.ASCII)
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Site:
    """A target, the transport that reaches it (None: the programs of this machine), and the clock to wait by.

    `until` is the monotonic time at which all that is asked there has ended; see `within`. `turn` is held while replies
    are read: threads that did so at the same time would compete for the interpreter. `reach` leads to the target
    itself, where a caller keeps the way from one round trip to the next.
    """

    target: Target
    transport: Transport | None = None
    clock: Clock = SYSTEM_CLOCK
    until: float = field(default=math.inf, compare=False)
    turn: AbstractContextManager[object] = field(default=nullcontext(), compare=False)
    reach: Transport | None = field(default=None, compare=False)

    @classmethod
    def of(
        cls,
        target: str | Target,
        namespace: str = "default",
        transport: Transport | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> Site:
        """Return the site of a target string; a bare name is a pod in `namespace`. Raises SettingsError."""
        return cls(parse_target(target, namespace=namespace), transport, clock)

    def at(self, target: Target) -> Site:
        """Return another target, reached in the same way."""
        return replace(self, target=target, reach=None)

    def within(self, seconds: float) -> Site:
        """Return it for questions that end in so many seconds from now, or before, when its own time is over.

        What is not answered by then is unknown.
        """
        return replace(self, until=min(self.until, time.monotonic() + seconds))

    def left(self, most: float = math.inf) -> float:
        """Return the seconds that a call may take."""
        return min(most, max(_LEAST_SECONDS, self.until - time.monotonic()))

    def resolve(self, timeout: float = RESOLVE_SECONDS) -> Site:
        """Return the site at the address where the target is now. Raises CommandError.

        Args:
            timeout: seconds for each call that it takes.
        """
        return self.at(self.target.resolve(self.transport, self.left(timeout)))

    def __str__(self) -> str:
        return str(self.target)

    def ask(self, *questions: Question[Any], timeout: float | None = None) -> list[Answer[Any]]:
        """Ask all `questions` in one round trip; see `ask`. `timeout` is for all attempts and waits together.

        Of a target that has ended each answer is TargetEnded, but for what is asked beside it.
        """
        site = self.within(timeout) if timeout else self
        most = min(Within(self.left(timeout or math.inf)), self.target.longest)
        if most < math.inf:
            timeout = most
            questions = tuple(replace(each, limit=min(each.limit, longest_limit(timeout))) for each in questions)
        beside = [question for question in questions if question.beside]
        if not beside:
            return site._ask_there(questions, timeout)
        there = [question for question in questions if not question.beside]
        calls = [partial(site._ask_there, there, timeout)] if there else []
        answers = side_by_side([*calls, *(partial(self._ask_beside, each) for each in beside)])
        if there and isinstance(answers[0], TrainingMonitorError):
            raise answers[0]
        every = [each for part in answers if not isinstance(part, TrainingMonitorError) for each in part]
        in_turn = {True: iter(every[len(there) :]), False: iter(every[: len(there)])}
        return [next(in_turn[question.beside is not None]) for question in questions]

    def _ask_beside(self, question: Question[Any]) -> list[Answer[Any]]:
        assert question.beside
        try:
            return [_answer(question, question.beside(self))]
        except TrainingMonitorError as error:
            return [Answer(question.name, None, error)]

    def _ask_there(self, questions: Sequence[Question[Any]], timeout: float | None) -> list[Answer[Any]]:
        try:
            return self._ask_shell(questions, timeout)
        except TargetUnreachable as error:
            if not isinstance(error, TargetEnded) and not self.target.may_stand(error.what):
                raise
            from training_monitor.targets.pod_advice import advise_start  # few targets end
            from training_monitor.targets.pods import ENDED, WAITING, describe_end

            pod = None
            with suppress(TrainingMonitorError):
                pod = self.target.read_standing(self.transport, self.left(RESOLVE_SECONDS))
            if pod is None:
                raise
            if pod.phase in (*ENDED, *WAITING):
                has_ended = pod.phase in ENDED
                kind, hint = (TargetEnded, error.hint) if has_ended else (TargetWaits, pod.resume or advise_start(pod))
                error = kind(describe_end(pod), target=str(self), hint=hint)
                error.pod = pod
            elif pod.ended_container:
                others = ", ".join(each for each in pod.containers if each != pod.ended_container)
                advice = f"specify another container of the pod: {others}"
                raise TargetUnreachable(describe_end(pod), target=str(self), hint=advice) from error
            return [Answer(question.name, None, error) for question in questions]

    def _ask_shell(self, questions: Sequence[Question[Any]], timeout: float | None) -> list[Answer[Any]]:
        reach = self.reach or self.target.connect(self._bounded())
        limit = timeout or max((question.limit for question in questions), default=0.0) + CONNECT_SECONDS
        end = time.monotonic() + limit
        for attempts_left in reversed(range(ASK_ATTEMPTS)):
            nonce = os.urandom(12).hex()
            script = self._fenced(format_script(questions, nonce))
            try:
                result = reach.run(["sh", "-s"], timeout=limit, input=script)
            except CommandTimedOut as error:
                if error.result:
                    what = f"{error.result.argv[0]} did not respond within {round(limit, 1):g} s"
                    raise explain_timeout(_without(nonce, error.result), what, str(self)) from error
                raise
            with self.turn:
                frames = read_frames(result.stdout, nonce)
                if frames is not None:
                    del result  # it may have megabytes, and so may what is made of each reply
                    return [_answer(question, frames.pop(number, None)) for number, question in enumerate(questions)]
            if result.exit_code != 0 or not attempts_left:
                break
            limit = Within(max(0.1, end - time.monotonic())) if timeout else limit
        raise explain_failure(_without(nonce, result), str(self))

    def _bounded(self) -> Transport | None:
        """Return the transport, limited to the time left, for what a target has to ask before it is reached."""
        return self.transport if self.until == math.inf else Until(self.transport or LocalTransport(), self.until)

    def ask_one(self, question: Question[R]) -> R:
        """Return the answer to one question. Raises the failure if it is unknown."""
        [answer] = self.ask(question)
        return cast(R, answer.get())

    def stream(self, script: str) -> Stream:
        """Start a script and return its output as it comes. Raises CommandError."""
        return self.target.connect(self.transport).stream(["sh", "-s"], input=self._fenced(_held(script)))

    def _fenced(self, script: HeldScript) -> HeldScript:
        return HeldScript(f"{format_fence(self.target)}{script}")


def _without(nonce: str, result: CommandResult) -> CommandResult:
    """Return a result without the outputs that have pieces of our own frames, which explain nothing."""
    out, err = ("" if nonce in text else text for text in (result.stdout, result.stderr))
    return replace(result, stdout=out, stderr=err)


def longest_limit(timeout: float) -> float:
    """Return the limit of a question in a round trip of so many seconds: one that hangs then hides no other."""
    return timeout - max(1.5, 0.15 * timeout) if timeout > 3 else timeout


def ask(
    target: str | Target,
    *questions: Question[Any],
    timeout: float | None = None,
    namespace: str = "default",
    transport: Transport | None = None,
) -> list[Answer[Any]]:
    """Send all `questions` to a target in one round trip.

    Args:
        timeout: maximum seconds for the whole round trip. Each question has its own, shorter limit. Default: the limit
            of the longest question, plus 20 s to connect.

    Returns:
        One Answer per question, in the same order. The Answer to a question that failed or timed out is unknown.

    Raises:
        CommandError: the target did not respond at all (see errors.py for the kinds of errors).
    """
    return Site.of(target, namespace, transport).ask(*questions, timeout=timeout)


def _held(script: str) -> HeldScript:
    """Return a script that ends when its input does. Of a group, sh reads all before it runs any."""
    hold = format_call("held", "hold")
    return HeldScript(f'{{\n[ -z "${{_held:-}}" ] || {{\n{hold}}}\nexec </dev/null\n{script}\nexit\n}}\n')


def format_script(questions: Sequence[Question[Any]], nonce: str) -> HeldScript:
    """Return the program for `sh -s` that asks all questions and prints a frame for each."""
    words = [word for question in questions for word in (question.limit, question.script)]
    ends = _format_ends(frozenset(question.limit for question in questions))
    script = format_call("ask", "ask_all", *words, _nonce=nonce, _most=MAX_ANSWER_BYTES, _ends=ends)
    return HeldScript(script.rstrip("\n") + "; exit\n")


@lru_cache(maxsize=64)  # limits that follow from the time left are new each time
def _format_ends(limits: frozenset[float]) -> str:
    """Format when to kill what: at each limit the question's processes, a second later their reader."""
    ends = sorted([(limit, "TM_ASK", limit) for limit in limits] + [(limit + 1, "TM_READ", limit) for limit in limits])
    words, now = [], 0.0
    for at, mark, limit in ends:
        words.append(f"{at - now:g} {mark} {limit:g}")
        now = at
    return " ".join(words)


def read_frames(text: str, nonce: str) -> dict[int, Reply | None] | None:
    """Return the replies by question number; None when the closing mark is missing.

    A shell of the target may print before the first mark and, when it exits, after the last one. A reply
    without an end, of too many bytes, or given twice is None.
    """
    parts = _find_parts(text, nonce)
    if not parts or text[slice(*parts[-1])].partition("\n")[0].strip() != "close":
        return None
    replies: dict[int, Reply | None] = {}
    for (start, end), following in zip(parts, parts[1:]):
        asked = _ASKED.match(text, start, end)
        if asked:
            begin = asked.end()
            ended = _ENDED.match(text, *following)
            number, duration = int(asked[1]), max(0.0, float(asked[3]) - float(asked[2]))
            is_whole = number not in replies and end - begin <= MAX_ANSWER_BYTES
            replies[number] = Reply(text[begin:end], int(ended[1]), duration) if ended and is_whole else None
    return replies


def _find_parts(text: str, nonce: str) -> list[tuple[int, int]]:
    """Find what lies between the marks, as positions: a copy of each would be megabytes more."""
    mark = f"\n{nonce} "
    marks = [-1] if text.startswith(mark[1:]) else []
    at = text.find(mark)
    while at >= 0:
        marks.append(at)
        at = text.find(mark, at + len(mark))
    return [(at + len(mark), end) for at, end in zip(marks, [*marks[1:], len(text)])]


def _answer(question: Question[Any], reply: Reply | None) -> Answer[Any]:
    told = (reply.exit_code, reply.duration) if reply else (None, None)
    try:
        return Answer(question.name, _read(question, reply), None, *told)
    except TrainingMonitorError as error:
        if isinstance(error, CommandError):
            error.answered = True
        return Answer(question.name, None, error, *told)


def _read(question: Question[Any], reply: Reply | None) -> Any:
    """Parse the reply. Raises what its parser raises; CommandTimedOut or CommandFailed without a usable reply."""
    name, limit = question.name, question.limit
    if reply is None:
        raise CommandTimedOut(f"{name} took longer than {limit:g} s, or printed more than {MAX_ANSWER_BYTES} bytes")
    if reply.exit_code == 137 and reply.duration >= limit * 0.95 and not question.takes_cut:
        ended = CommandResult((), reply.exit_code, reply.output, "", reply.duration)
        raise explain_timeout(ended, f"{name}: still running after {limit:g} s, so it was killed")
    if reply.exit_code == REFUSED and is_fenced():
        raise AccessDenied(f"{name}: {WHY_REFUSED}", hint=HINT)
    if reply.exit_code == DENIED and is_fenced():
        raise AccessDenied(
            f"{name}: no permission to read it", hint="run this as another user, or change the file's permissions"
        )
    if reply.exit_code == 126 and (size := len(question.script.encode())) > MAX_SCRIPT_BYTES:
        raise CommandFailed(f"{name}: a script of {size} bytes is too long to be run on the target")
    try:
        return question.parse(reply)
    except TrainingMonitorError:
        raise
    except Exception as error:  # the target may be hostile: whatever its answer does to the parser, it is unknown
        what = f"the reply cannot be read ({type(error).__name__})"
        raise ParseError(what, source=name, text=reply.output[-2000:]) from error


def read_text(reply: Reply) -> str:
    """Return the output of a script as the answer. Raises CommandFailed for a non-zero exit code."""
    if reply.exit_code != 0:
        raise CommandFailed(f"exit code {reply.exit_code}: {reply.output.strip()[-300:] or 'it printed nothing'}")
    return reply.output


def quote_path(path: str) -> Quoted:
    """Quote a path as one word of a script that is never an option; `~/` is the target's home folder.

    Raises SettingsError.
    """
    if not path or "\0" in path:
        raise SettingsError("path", path, "the path of a file or folder")
    if path.startswith("~/"):
        return Quoted('"$HOME"/' + shlex.quote(path[2:]))
    return Quoted(shlex.quote(path if path.startswith("/") else f"./{path}"))


def side_by_side(calls: Sequence[Callable[[], R]]) -> list[R | TrainingMonitorError]:
    """Run the calls, at most MOST_PROGRAMS at a time; return, in order, the result of each or the error it raised."""
    from training_monitor.core.engine import begin_thread

    left, results = deque(enumerate(calls)), dict[int, R | TrainingMonitorError]()
    defects = list[BaseException]()

    def work() -> None:
        while True:
            try:
                number, call = left.popleft()
            except IndexError:
                return
            try:
                results[number] = call()
            except TrainingMonitorError as error:
                results[number] = error

    def work_beside() -> None:
        try:
            work()
        except BaseException as error:
            defects.append(error)

    # Daemon threads: those of an executor would keep an interrupted command alive until the last answer.
    beside = [begin_thread(work_beside, "question") for _ in range(min(MOST_PROGRAMS, len(calls)) - 1)]
    try:
        work()
        for thread in filter(None, beside):
            thread.join()
    finally:
        left.clear()
    if defects:
        raise defects[0]
    return [results[number] for number in range(len(calls))]


def ask_many(
    targets: Sequence[str | Target],
    *questions: Question[Any],
    timeout: float | None = None,
    namespace: str = "default",
    transport: Transport | None = None,
) -> list[list[Answer[Any]]]:
    """Send the same questions to every target. If a target does not respond, all its answers are unknown."""
    asked = partial(ask, timeout=timeout, namespace=namespace, transport=transport)
    results = side_by_side([partial(asked, target, *questions) for target in targets])
    return [
        [Answer(question.name, None, result) for question in questions]
        if isinstance(result, TrainingMonitorError)
        else result
        for result in results
    ]
