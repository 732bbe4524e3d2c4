"""Every error this package raises: what happened, where, and what to try. Pure.

TrainingMonitorError
├─ SettingsError (also ValueError)   key, value, expected
├─ CommandError                      .argv .result .target .answered
│  ├─ ToolNotFound                   the program is not installed
│  ├─ CommandTimedOut                no answer in time: the result is unknown
│  ├─ TargetUnreachable              the target did not answer: the result is unknown
│  │  └─ TargetNotFound              the target does not exist (pod deleted, instance gone)
│  ├─ AccessDenied                   credentials or permissions
│  ├─ IncompleteAnswer               part of it could not be listed: a missing item may still exist
│  ├─ CommandFailed                  the target answered with an error
│  └─ LocalFailure                   our own side failed (not started here, wrong container): the result is unknown
├─ StateError                        the state folder of this machine cannot be used
├─ RestError                         an HTTP API or mail server failed: .status .retry_after .temporary
├─ ParseError                        .source .excerpt
├─ JobNotFound  JobExists  CheckpointNotFound  InstanceNotFound  NoOffers
├─ AlreadySupervised                 another supervisor holds this job
├─ LeaseLost                         another worker owns the job now: .owner .number
├─ InvalidTransition  InsufficientCredits
└─ Defect                            this program went wrong: the result is unknown

`kind_of` names the class of an error for programs: these names are all that JSON documents of errors have.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from training_monitor.core.frozen import replace
from training_monitor.core.masking import is_secret_key, redact, redact_argv
from training_monitor.core.regex import regex

if TYPE_CHECKING:
    from training_monitor.core.models import CommandResult


_ENDS = ".?!"  # of a sentence
_NUMBER = regex(r"\d+")


def last_lines(text: str, count: int = 4, width: int = 300) -> str:
    """Return the last non-empty lines of a tool's output, masked, then shortened and joined into one line."""
    lines = [line.strip()[:width] for line in redact(text).splitlines() if line.strip()]
    return " | ".join(lines[-count:])


class TrainingMonitorError(Exception):
    """The base of all errors: what happened, where, and what to try."""

    def __init__(self, what: str, *, hint: str | None = None) -> None:
        said = redact(what)
        self.what, self.hint = said, hint
        end = "" if said[-1:] in _ENDS else "."
        super().__init__(f"{said}{end} Try: {hint}" if hint else said)


class SettingsError(TrainingMonitorError, ValueError):
    """An invalid setting; `key` names it, together with the `file` that holds it if there is one."""

    def __init__(self, key: str, value: object, expected: str, *, file: str = "") -> None:
        self.value, self.expected = value, expected
        self.key = f"{file}: {key}" if file else key
        try:
            told = f"a value of type {type(value).__name__}" if value and is_secret_key(key) else repr(value)
            shown = "nothing" if value is None else told
        except ValueError:  # an integer with more digits than Python converts
            shown = "a number that is far too long"
        super().__init__(f"{self.key}: got {shown}, expected {expected}")


def similar_names(name: str, names: Collection[str], most: int = 3) -> list[str]:
    """Return the known names that look like `name`, the most similar first."""
    import difflib  # imported late, because the import is slow

    return difflib.get_close_matches(name, names, most)


def meant_name(name: str, names: Collection[str]) -> str | None:
    """Return the known name of which `name` is probably a typo, if any.

    A name that differs only in its numbers is no typo: gpu2 is not gpu1, and one instance is not another.
    """
    others = [each for each in names if _NUMBER.sub("0", each) != _NUMBER.sub("0", name)]
    return next(iter(similar_names(name, others, 1)), None)


def closest(name: str, names: Collection[str]) -> str:
    """Return what to suggest for an unknown name: the closest known one, or the list of all."""
    return meant_name(name, names) or f"one of {', '.join(names)}"


def did_you_mean(name: str, names: Collection[str]) -> str:
    """Return ` (did you mean X?)` for the end of an error about an unknown name; "" if no known name is close."""
    meant = meant_name(name, names)
    return f" (did you mean {meant}?)" if meant else ""


class CommandError(TrainingMonitorError):
    """A failed command. `answered`: the target did answer, and only the result of this one question is unknown."""

    def __init__(
        self,
        what: str,
        *,
        hint: str | None = None,
        argv: tuple[str, ...] = (),
        result: CommandResult | None = None,
        target: str | None = None,
    ) -> None:
        self.argv = redact_argv(argv)
        if result:
            result = replace(
                result, argv=redact_argv(result.argv), stdout=redact(result.stdout), stderr=redact(result.stderr)
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
    """The command could not be started here, was malformed, or printed too much; the target's state is unknown."""


class StateError(TrainingMonitorError):
    """The state folder cannot be read or written (full or read-only disk); neither a job nor its target failed."""


class RestError(TrainingMonitorError):
    """A failed request. `retry_after`: seconds to wait, as the server asked; `temporary`: a retry may succeed."""

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
        self.source, self.excerpt = source, last_lines(text, 3, 200)
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
    """Another worker owns the job now, or may own it: the caller must not touch it any more.

    `owner` names the other worker if it is known; `number` counts the owners of a claim.
    """

    def __init__(self, what: str, *, hint: str | None = None, owner: str | None = None, number: int = 0) -> None:
        self.owner, self.number = owner, number
        super().__init__(what, hint=hint)


class InvalidTransition(TrainingMonitorError):
    pass


class InsufficientCredits(TrainingMonitorError):
    pass


class Defect(TrainingMonitorError):
    """An error that nobody expected: a defect of this program. Whatever was asked is unknown."""


def kind_of(error: TrainingMonitorError) -> str:
    """Return the name of the error's class, or of the first class above it that this module defines."""
    return next(each.__name__ for each in type(error).__mro__ if each.__module__ == __name__)


def text_of(value: object) -> str:
    """Return str(value), or a placeholder when it raises."""
    try:
        return str(value)
    except Exception as error:  # `__str__` of a class that is not ours
        return f"(its text raises {type(error).__name__})"
