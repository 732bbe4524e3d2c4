"""Every error this package raises: what happened, where, and what to try.

TrainingMonitorError
├─ SettingsError (also ValueError)   key, value, expected
├─ CommandError                      .argv .result .target .answered
│  ├─ ToolNotFound                   the program is not installed
│  ├─ CommandTimedOut                no answer in time: nothing is known
│  ├─ TargetUnreachable              the target did not answer: nothing is known
│  │  └─ TargetNotFound              the target does not exist (pod deleted, instance gone)
│  ├─ AccessDenied                   credentials or permissions
│  ├─ IncompleteAnswer               part of it could not be listed: nothing follows from what is missing
│  ├─ CommandFailed                  the target was asked and said no
│  └─ LocalFailure                   our own side failed (not started here, wrong container): nothing is known
├─ StateError                        the state folder of this machine cannot be used: nothing is kept, or known
├─ RestError                         an HTTP API or a mail server said no, or nothing: .status .retry_after .temporary
├─ ParseError                        .source .excerpt
├─ JobNotFound  JobExists  CheckpointNotFound  InstanceNotFound  NoOffers
├─ AlreadySupervised                 another supervisor holds this job
├─ LeaseLost                         another worker has the job now: .owner .number
└─ InvalidTransition  InsufficientCredits
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from training_monitor.models import CommandResult

_NAMES = r"(?:api[_-]?key|access[_-]?key|token|secret|password|passwd)"
_SECRET = re.compile(
    rf"""(?ix)
    ( authorization \\?["']? \s* [:=] \s* \\?["']? (?: (?:bearer|basic|token) \s+ )?
    | {_NAMES} \\?["']? \s* [:=] \s* \\?["']?
    | (?<![\w-]) --? (?: [a-z0-9]+ [_-] )* {_NAMES} \s+ ["']?
    ) [^\s"'&,;\\]{{4,}}
    | (\b bearer \s+) [^\s"'&,;\\]{{8,}}
    | (:// [^\s/:@]{{0,200}} :) [^\s/]{{1,500}} (?=@)
    | \b (?: hf_[A-Za-z0-9]{{8,}} | sk-[A-Za-z0-9_-]{{8,}} | gh[pousr]_[A-Za-z0-9]{{8,}} )
    """
)
_SECRET_OPTION = re.compile(rf"--?(?:[a-z0-9]+[_-])*{_NAMES}", re.IGNORECASE)


def redact(text: str) -> str:
    """Replace what looks like a key, token or password by ***."""
    return _SECRET.sub(lambda found: f"{found[1] or found[2] or found[3] or ''}***", text)


def _redact_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """Each word redacted; the word after an option such as --token, whatever it is."""
    before = ("", *argv)
    return tuple("***" if _SECRET_OPTION.fullmatch(last) else redact(word) for last, word in zip(before, argv))


def last_lines(text: str, count: int = 4, width: int = 300) -> str:
    """The last lines of a tool's output that say something, cut and on one line."""
    lines = [line.strip()[:width] for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-count:])


class TrainingMonitorError(Exception):
    """What, where, what to try."""

    def __init__(self, what: str, *, hint: str | None = None) -> None:
        self.what, self.hint = redact(what), hint
        super().__init__(f"{self.what}. Try: {hint}" if hint else self.what)


class SettingsError(TrainingMonitorError, ValueError):
    """`key` names the value for people, with the `file` it is in where it is in one, and `name` without that.

    `path` are the keys in that file that lead to it, as far as they are there. `whole` is the path of the table that
    cannot be used, where more of it than this value may be missing or wrong.
    """

    def __init__(
        self,
        key: str,
        value: object,
        expected: str,
        *,
        file: str = "",
        path: tuple[str, ...] | None = None,
        whole: tuple[str, ...] = (),
    ) -> None:
        self.name, self.value, self.expected = key, value, expected
        self.key = f"{file}: {key}" if file else key
        self.path, self.whole = (key,) if path is None else path, whole
        try:
            shown = repr(value)
        except ValueError:  # of a whole number with more digits than Python writes
            shown = "a number that is far too long"
        super().__init__(f"{self.key}: got {shown}, expected {expected}")


def closest(name: str, names: Collection[str]) -> str:
    """What is expected where a name is that is none: the one that is most like it, or any of them."""
    import difflib  # which takes longer than most of what imports this module

    close = difflib.get_close_matches(name, names, 1)
    return close[0] if close else f"one of {', '.join(names)}"


class CommandError(TrainingMonitorError):
    """`answered`: the target as a whole did answer, and only what this one question asks for is not known."""

    def __init__(
        self,
        what: str,
        *,
        hint: str | None = None,
        argv: tuple[str, ...] = (),
        result: CommandResult | None = None,
        target: str | None = None,
    ) -> None:
        self.argv = _redact_argv(argv)
        if result:
            result = replace(
                result, argv=_redact_argv(result.argv), stdout=redact(result.stdout), stderr=redact(result.stderr)
            )
        self.result, self.target = result, target
        self.answered = False
        where = f"{target}: " if target else ""
        super().__init__(where + what, hint=hint)


class ToolNotFound(CommandError):
    pass


class CommandTimedOut(CommandError):
    pass


class TargetUnreachable(CommandError):
    pass


class TargetNotFound(TargetUnreachable):
    pass


class AccessDenied(CommandError):
    pass


class IncompleteAnswer(CommandError):
    pass


class CommandFailed(CommandError):
    pass


class LocalFailure(CommandError):
    """The command was not started here, was put wrongly, or printed too much to be taken: the target said nothing."""


class StateError(TrainingMonitorError):
    """The state folder cannot be read or written (a full or read-only disk): neither a job nor its target failed."""


class RestError(TrainingMonitorError):
    """`retry_after` is how many seconds the other side asks to wait; `temporary` says that another try may succeed."""

    def __init__(
        self,
        what: str,
        *,
        status: int | None = None,
        hint: str | None = None,
        retry_after: float | None = None,
        temporary: bool | None = None,
    ) -> None:
        self.status, self.retry_after = status, retry_after
        self.temporary = status is None or status == 429 or status >= 500 if temporary is None else temporary
        super().__init__(what, hint=hint)


class ParseError(TrainingMonitorError, ValueError):
    def __init__(self, what: str, *, source: str, text: str = "") -> None:
        self.source, self.excerpt = source, redact(last_lines(text, 3, 200))
        shown = f": {self.excerpt}" if self.excerpt else ""
        super().__init__(f"{source}: {what}{shown}")


class JobNotFound(TrainingMonitorError):
    pass


class JobExists(TrainingMonitorError):
    pass


class CheckpointNotFound(TrainingMonitorError):
    pass


class InstanceNotFound(TrainingMonitorError):
    pass


class NoOffers(TrainingMonitorError):
    pass


class AlreadySupervised(TrainingMonitorError):
    pass


class LeaseLost(TrainingMonitorError):
    """Another worker has the job now, or may have it: whoever gets this touches it no more.

    `owner` names the other one, where that is known; `number` counts the owners of a claim.
    """

    def __init__(self, what: str, *, hint: str | None = None, owner: str | None = None, number: int = 0) -> None:
        self.owner, self.number = owner, number
        super().__init__(what, hint=hint)


class InvalidTransition(TrainingMonitorError):
    pass


class InsufficientCredits(TrainingMonitorError):
    pass
