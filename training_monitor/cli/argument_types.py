"""Types of option values, and the parser of a command with the options that several commands share.

Every start of the command line imports this module, so it imports argparse and little else.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from math import nan
from typing import Any, NoReturn

from training_monitor.cli.columns import terminal_columns
from training_monitor.core.units import parse_duration

# What shells complete an argument with: files and folders of this machine, or a kind of `known_names`.
FILES, FOLDERS = "files", "folders"
TARGETS, MEMBERS, MEMBER_GROUPS, USERS, HISTORY = "targets", "members", "groups", "users", "history"

_WHAT = "training: PID, log, log pattern, Ray job, process:NAME or job name"
WHAT = f"{_WHAT} (default: the only one found)"
STALLS = "time without progress that counts as a stall; 4 times as long with signs of activity"


def seconds_from(least: float, *, below: float = 1e9, above: float = -1.0) -> Callable[[str], float]:
    """Return an argparse type for seconds from `least` on, or a duration such as 15m."""

    def read(text: str) -> float:
        seconds = parse_duration(text)
        value = _number(text) if seconds is None else seconds
        if not (least <= value < below and value > above):
            bound = f"at least {least:g}" if above < least else f"above {above:g}"
            raise argparse.ArgumentTypeError(f"{text[:60]!r}: expected seconds ({bound}), or a duration such as 15m")
        return value

    return read


SECONDS = seconds_from(0)
SECONDS_ABOVE_ZERO = seconds_from(0, above=0)
_LEAST_LOOK = 5.0  # seconds


def left_to_look(args: argparse.Namespace) -> float:
    """Return the seconds of --timeout left for the look: on a starved host, to import all this takes as long."""
    began: float = args.began
    timeout: float = args.timeout
    return round(max(timeout - (time.monotonic() - began), timeout / 2, _LEAST_LOOK), 1)


def some_name(text: str) -> str:
    """Accept a name that is not empty."""
    if not text.strip():
        raise argparse.ArgumentTypeError("expected a name")
    return text


def _whole(least: int, most: int, range_: str) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"{text[:60]!r}: expected a whole number {range_}")
        return int(text)

    return read


count = _whole(0, 999_999_999, "from 0 to 999999999")
positive_count = _whole(1, 999_999_999, "from 1 to 999999999")
port = _whole(0, 65_535, "from 0 to 65535")


def _real(fits: Callable[[float], bool], range_: str) -> Callable[[str], float]:
    def read(text: str) -> float:
        value = _number(text)
        if not fits(value):
            raise argparse.ArgumentTypeError(f"{text[:60]!r}: expected a number {range_}")
        return value

    return read


amount = _real(lambda value: 0 <= value < 1e9, "of at least 0 and below 1000000000")
positive_number = _real(lambda value: 0 < value < 1e9, "above 0 and below 1000000000")


def dollars(text: str) -> float:
    """Accept an amount for the ledger: above 0, at most 1e9, with at most 6 decimals, which the ledger can store."""
    from decimal import Decimal, InvalidOperation

    try:
        value = Decimal(text)
        is_kept_exactly = 0 < value <= 10**9 and value * 10**6 == (value * 10**6).to_integral_value()
    except InvalidOperation:  # not a number, or nan
        is_kept_exactly = False
    if not is_kept_exactly:
        raise argparse.ArgumentTypeError(
            f"{text[:60]!r}: expected an amount in dollars above 0, at most 1000000000, with at most 6 decimals"
        )
    return float(value)


def _number(text: str) -> float:
    """Parse a number; nan, which is in no range, if it is invalid."""
    try:
        return float(text)
    except ValueError:
        return nan


class _Help(argparse.RawDescriptionHelpFormatter):
    """The help of a command; argparse makes one for each argument, and each would read the terminal by `shutil`."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=terminal_columns() - 2)


class WrongUse(SystemExit):
    """The end of a command line that is wrong, with exit code 2: `what` is wrong, and what to try."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(2)
        self.what, self.hint = what, hint


class CommandParser(argparse.ArgumentParser):
    """The parser of a command, with short calls for the usual kinds of arguments and those of several commands."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=_Help, **options)
        self.completes: dict[str, str] = {}  # by dest; an argument that is not there is free text
        self.commands: dict[str, CommandParser] = {}  # of the whole command line, by name

    @property
    def options(self) -> list[str]:
        """The options of this command that begin with --."""
        return [name for name in self._option_string_actions if name.startswith("--")]

    def error(self, message: str) -> NoReturn:
        """Print the usage and the error to stderr, and raise WrongUse."""
        try:
            super().error(message)
        except SystemExit:
            raise WrongUse(message, f"{self.prog} --help") from None

    def flag(self, name: str, help: str) -> None:
        """Declare an option without a value."""
        self.add_argument(name, action="store_true", help=help)

    def value(self, name: str, metavar: str, help: str, completes: str = "", **more: Any) -> None:
        """Declare a positional argument or an option with a value.

        Args:
            completes: what shells complete it with.
            more: for `add_argument`.
        """
        self.completes[self.add_argument(name, metavar=metavar, help=help, **more).dest] = completes

    def several(self, name: str, metavar: str, help: str, completes: str = "", **more: Any) -> None:
        """Declare an option that may be repeated: its value is the list of what was given."""
        self.value(name, metavar, help, completes, action="append", default=[], **more)

    def duration(
        self,
        name: str,
        help: str,
        default: float | None = None,
        type: Callable[[str], float] = SECONDS,
        short: str = "",
    ) -> None:
        """Declare an option for a duration."""
        flags = [short, name] if short else [name]
        self.add_argument(*flags, type=type, default=default, metavar="DURATION", help=help)

    def time_limit(self, seconds: int) -> None:
        """Declare --timeout, see `left_to_look`."""
        what = f"time limit (default: {seconds}s)"
        self.duration("--timeout", what, default=float(seconds), type=seconds_from(_LEAST_LOOK, below=600))

    def target(self, *, is_optional: bool = False) -> None:
        """Declare TARGET, with --namespace."""
        if is_optional:
            self.value(
                "target", "TARGET", "where to look, see below (default: local)", TARGETS, nargs="?", default="local"
            )
        else:
            self.value("target", "TARGET", "where commands run, see below", TARGETS)
        self.namespace()

    def what(self, *, or_all: bool = False) -> None:
        """Declare WHAT, the training on TARGET; with `or_all`, all of them by default."""
        self.value("what", "WHAT", f"{_WHAT} (default: all found)" if or_all else WHAT, nargs="?", type=some_name)

    def namespace(self) -> None:
        """Declare --namespace."""
        self.add_argument(
            "-n",
            "--namespace",
            help="namespace of pods (default: that of kubectl's context)",
        )

    def take_over(self) -> None:
        """Declare --take-over."""
        self.flag("--take-over", "take over from another machine's supervisor, which then exits")

    def roll_call(self) -> None:
        """Declare --roll-call-timeout."""
        self.duration(
            "--roll-call-timeout",
            "time limit for inspecting all ranks (see training-monitor why) before a hanging attempt is terminated: at "
            "least 5s, or 0 for no inspection (default: 20s)",
            default=20.0,
        )

    def notify(self) -> None:
        """Declare --notify."""
        self.value(
            "--notify",
            "USER",
            "send notices, see `training-monitor notify`",
            USERS,
            nargs="?",
            const="",
        )

    def heartbeat(self) -> None:
        """Declare --heartbeat."""
        self.value(
            "--heartbeat",
            "URL",
            "send a GET request to this URL after every successful look, so that a dead man's switch alerts you when "
            "the requests stop; env:NAME reads the URL from a variable",
        )

    def outage_after(self) -> None:
        """Declare --outage-after."""
        self.duration(
            "--outage-after",
            "send a notice when all queries have failed, or the state folder has been unusable, for this long "
            "(default: 10m)",
        )
