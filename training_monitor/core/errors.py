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

import shlex
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from training_monitor.core.masking import is_secret_key, redact, redact_argv
from training_monitor.core.regex import regex
from training_monitor.core.shown import text_of

if TYPE_CHECKING:
    from training_monitor.core.results import CommandResult, PodState


_ENDS = ".?!"  # of a sentence
_MOST_VALUE, _MOST_MESSAGE = 200, 3000  # characters of one value, and of a message
_MOST_OUTPUT = 65536  # characters at the end of an output that an error keeps
_NUMBER = regex(r"\d+")
_PLACE = regex(r"\{(\w+)(?:=([^{}]*))?\}")


def _shorten(text: str, most: int = _MOST_MESSAGE) -> str:
    """Leave out the middle of a long text."""
    half = most // 2 - 3
    return text if len(text) <= most else f"{text[:half]} ... {text[-half:]}"


def masked_end(text: str) -> str:
    """Return the end of a tool's output, masked: more than it is read, so that no secret is cut in two at its start."""
    return redact(text[-2 * _MOST_OUTPUT :])[-_MOST_OUTPUT:]


def last_lines(text: str, count: int = 4, width: int = 300) -> str:
    """Return the last non-empty lines of a tool's output, masked, then joined into one line.

    A long one keeps both ends: a cause is often at the end.
    """
    lines = [line.strip() for line in masked_end(text).splitlines() if line.strip()]
    return " | ".join(_shorten(line, width) for line in lines[-count:])


class Call(NamedTuple):
    """A call in Python, the command in a shell, and the tool of the MCP server, with a place for each value."""

    python: str
    shell: str
    mcp: str


CALLS: Mapping[str, Call] = {
    "find_trainings": Call("check_training(target)", "training-monitor check TARGET", "check"),
    "list_waits": Call(
        "supervision.kept_waits.list_waits(store)", "training-monitor wait --list", "wait with list: true"
    ),
    "list_queue": Call("rent.TrainingQueue().list_jobs()", "training-monitor rent queue", "rentals with action: queue"),
    "search_offers": Call("vast.search_offers(query)", "training-monitor rent offers", "rentals with action: offers"),
    "read_under": Call(*["training-monitor mcp --read-under DIR"] * 3),
    "serve_acts": Call(*["training-monitor web --allow-write"] * 3),
    "send_py_spy": Call("explain_training(target, py_spy=FILE)", *["training-monitor why TARGET --py-spy FILE"] * 2),
    "stop_job": Call("stop_job({0}, {1})", "training-monitor stop {0} {1}", "stop"),
    "withdraw": Call(
        "rent.Credits().withdraw({0}, dollars, reason, payment_id=id)",
        *["training-monitor rent credits {0} --withdraw DOLLARS --reason TEXT --payment ID"] * 2,
    ),
}


class Hint(str):
    """What to try, as Python reads it; `spell` returns it in the language of another surface.

        Hint("stop that supervisor, or add {take_over=True}")
        Hint("stop it first: {stop_job}", target, job_id)

    A `{name=VALUE}` is an argument of the call that failed, a `{name}` one of CALLS, with the values given to it.
    """

    template: str
    values: tuple[object, ...]

    def __new__(cls, template: str, *values: object) -> Hint:
        made = super().__new__(cls, _spell(template, values, "python"))
        made.template, made.values = template, values
        return made

    def spell(self, surface: str) -> str:
        """Return the hint for `python`, `shell` or `mcp`."""
        return _spell(self.template, self.values, surface)

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (self.template, *self.values)


def spell(hint: str | None, surface: str) -> str | None:
    """Return a hint in the language of a surface: `python`, `shell` or `mcp`."""
    return hint.spell(surface) if isinstance(hint, Hint) and surface in _ARGUMENT else hint


def _spell(template: str, values: tuple[object, ...], surface: str) -> str:
    quote: Callable[[str], str] = repr if surface == "python" else shlex.quote
    words = [quote(str(value)) for value in values]

    def replaced(found: Any) -> str:
        name, value = found[1], found[2]
        if value is None:
            return str(getattr(CALLS[name], surface)).format(*words)
        return _ARGUMENT[surface](name, value)

    return _PLACE.sub(replaced, template)


def _option(name: str, value: str) -> str:
    option = f"--{name.replace('_', '-')}"
    return option if value == "True" else f"{option} {value}"


_ARGUMENT: Mapping[str, Callable[[str, str], str]] = {
    "python": lambda name, value: f"{name}={value}",
    "shell": _option,
    "mcp": lambda name, value: f"{name}: {'true' if value == 'True' else value}",
}


class TrainingMonitorError(Exception):
    """The base class of all errors. The message describes what failed and where, and what to try."""

    def __init__(self, what: str, *, hint: str | None = None) -> None:
        said = _shorten(redact(text_of(what)))
        self.what, self.hint = said, hint if hint is None or isinstance(hint, Hint) else _shorten(text_of(hint))
        super().__init__(self.spell("python"))

    def spell(self, surface: str) -> str:
        """Return the message with its hint worded for `python`, `shell` or `mcp`."""
        said, hint = self.what, spell(self.hint, surface)
        end = "" if said[-1:] in _ENDS else "."
        return f"{said}{end} Try: {hint}" if hint else said


class SettingsError(TrainingMonitorError, ValueError):
    """An invalid setting. `key` is the name of the setting, with the prefix `FILE: ` if the setting is from a file."""

    def __init__(self, key: str, value: object, expected: str, *, file: str = "") -> None:
        self.value, self.expected = value, expected
        self.key = f"{text_of(file)}: {text_of(key)}" if file else text_of(key)
        try:
            told = f"a value of type {type(value).__name__}" if value and is_secret_key(text_of(key)) else _brief(value)
            shown = "nothing" if value is None else told
        except ValueError:  # an integer with more digits than Python converts
            shown = "a number that is far too long"
        except Exception as problem:  # of a class that is not ours
            shown = f"a value that cannot be shown ({type(problem).__name__})"
        super().__init__(f"{self.key}: got {shown}, expected {text_of(expected)}")


def _brief(value: object) -> str:
    """Return the `repr` of a value, the middle of a long one left out."""
    import reprlib

    brief = reprlib.Repr()
    brief.maxstring = brief.maxother = brief.maxlong = _MOST_VALUE
    brief.maxlist = brief.maxtuple = brief.maxdict = brief.maxset = 20
    return brief.repr(value)


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
    """A failed command. If `answered` is true, the target responded, and only the result of this command is unknown."""

    def __init__(
        self,
        what: str,
        *,
        hint: str | None = None,
        argv: tuple[str, ...] = (),
        result: CommandResult | None = None,
        target: str | None = None,
    ) -> None:
        self.argv = redact_argv(tuple(map(text_of, argv)) if isinstance(argv, (tuple, list)) else ())
        if result is not None and hasattr(result, "stderr"):
            out, err = masked_end(result.stdout), masked_end(result.stderr)
            result = replace(result, argv=redact_argv(result.argv), stdout=out, stderr=err)
        self.result, self.target = result, target
        self.answered = False
        where = f"{text_of(target)}: " if target else ""
        super().__init__(where + text_of(what), hint=hint)


class ToolNotFound(CommandError):
    pass


class CommandTimedOut(CommandError):
    pass


class TargetUnreachable(CommandError):
    """The target did not respond, so the result of the command is unknown.

    `has_no_ray`: the target itself responded, and there is no Ray on it.
    """

    has_no_ray = False


class TargetNotFound(TargetUnreachable):
    pass


class TargetEnded(TargetUnreachable):
    """Nothing can be asked of a target any more, since it has ended: `pod` says how, where that is known."""

    pod: PodState | None = None


class TargetWaits(TargetUnreachable):
    """Nothing can be asked of a target yet, or for now: it was not started, or is suspended, see `pod`."""

    pod: PodState | None = None


class AccessDenied(CommandError):
    pass


class IncompleteAnswer(CommandError):
    pass


class CommandFailed(CommandError):
    pass


class LocalFailure(CommandError):
    """The command could not be started here, was malformed, or printed too much. The target's state is unknown."""


class StateError(TrainingMonitorError):
    """The state folder cannot be read or written (full or read-only disk); neither a job nor its target failed."""


class RestError(TrainingMonitorError):
    """A failed HTTP request.

    `retry_after` is the number of seconds to wait, as requested by the server. `temporary` is true if a retry may
    succeed. `body` is the beginning of the server's response, with secrets masked.
    """

    def __init__(
        self,
        what: str,
        *,
        status: int | None = None,
        hint: str | None = None,
        retry_after: float | None = None,
        temporary: bool | None = None,
        body: str = "",
    ) -> None:
        self.status, self.retry_after, self.body = status, retry_after, redact(body)
        self.temporary = status is None or status == 429 or status >= 500 if temporary is None else temporary
        super().__init__(what, hint=hint)


class ParseError(TrainingMonitorError, ValueError):
    """The output of a program or the content of a file is not in the expected format."""

    def __init__(self, what: str, *, source: str, text: str = "") -> None:
        self.source, self.excerpt = source, last_lines(text_of(text), 3, 200)
        shown = f": {self.excerpt}" if self.excerpt else ""
        super().__init__(f"{text_of(source)}: {text_of(what)}{shown}")


class JobNotFound(TrainingMonitorError):
    """No such job, training or wait exists."""


class JobExists(TrainingMonitorError):
    pass


class CheckpointNotFound(TrainingMonitorError):
    """No usable checkpoint was found."""


class InstanceNotFound(TrainingMonitorError):
    pass


class NoOffers(TrainingMonitorError):
    pass


class AlreadySupervised(TrainingMonitorError):
    """Another supervisor already supervises this training."""


class LeaseLost(TrainingMonitorError):
    """Another worker owns the job, or may own it. The caller must stop working on the job.

    `owner` is the other worker, if known. `number` is the number of the claim, which increases with every owner.
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
