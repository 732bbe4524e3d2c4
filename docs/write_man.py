"""Write docs/training-monitor.1 from what the help is made of: `python3 docs/write_man.py`."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))

from training_monitor import __version__  # noqa: E402
from training_monitor.cli.arguments import every_command  # noqa: E402
from training_monitor.cli.command_table import DESCRIPTION, EXIT_STATUSES, GROUPS, command_named  # noqa: E402
from training_monitor.core.command_arguments import ONE, OPTIONAL, REST, SEVERAL, Argument  # noqa: E402
from training_monitor.targets.kinds import KINDS  # noqa: E402

FILE = DOCS / "training-monitor.1"
WIDTH = 78
_SIGNS = {"\\": "\\e", "-": "\\-", "'": "\\(aq", '"': "\\(dq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"}
_VALUES = {ONE: "{}", OPTIONAL: "[{}]", SEVERAL: "[{} ...]", REST: "[{} ...]"}


def write_man() -> str:
    """The page, in the macros of man(7)."""
    takes = every_command()
    lines = [
        '.\\" Made by docs/write_man.py from the help of the commands; without a date, to change only with them.',
        f'.TH TRAINING\\-MONITOR 1 "" "training\\-monitor {__version__}"',
        *(".SH NAME", f"training\\-monitor \\- {_text(DESCRIPTION[0].lower() + DESCRIPTION[1:].rstrip('.'))}"),
        *(".SH SYNOPSIS", ".B training\\-monitor", _text("COMMAND [ARGUMENT ...]")),
        ".SH DESCRIPTION",
        *_lines("The commands below inspect trainings, judge their state and act on them."),
        *(".P", *_lines("TARGET is where commands run:")),
        *_items(_targets()),
    ]
    for title, group in GROUPS.items():
        lines.append(f".SH COMMANDS TO {_text(title.upper())}")
        for name, help in group.items():
            lines += _command(name, help, takes[name])
    lines += [".SH EXIT STATUS", *_items((str(number), meaning) for number, meaning in EXIT_STATUSES.items())]
    lines += [".SH ENVIRONMENT", *_items(_variables())]
    more = "`training-monitor COMMAND --help`; the pages in docs/ of the source distribution."
    lines += [".SH SEE ALSO", *_lines(more)]
    return "\n".join(lines) + "\n"


def _command(name: str, help: str, takes: Sequence[Argument]) -> Iterator[str]:
    yield f".SS {_text(name)}"
    places = " ".join(_place(each) for each in takes if not each.names)
    yield from (f"\\fBtraining\\-monitor {_text(name)}\\fR", _text(f"[OPTION ...] {places}".rstrip()))
    yield from (".P", *_lines(f"{help[0].upper()}{help[1:]}."))
    told = [each for each in takes if each.help and each.names != ("-h", "--help")]
    yield from _items((_heading(each), each.help.replace("see below", "see DESCRIPTION")) for each in told)
    examples = command_named(name).examples
    yield from (".P", "Examples:" if len(examples) > 1 else "Example:", ".P", ".nf", ".RS 4")
    yield from (_text(f"training-monitor {name} {words}".rstrip()) for words in examples)
    yield from (".RE", ".fi")


def _place(argument: Argument) -> str:
    return _VALUES[argument.values].format(argument.metavar)


def _heading(argument: Argument) -> str:
    if not argument.names:
        return argument.metavar
    value = _VALUES.get(argument.values, "").format(argument.metavar)
    return f"`{', '.join(argument.names)}` {value}".rstrip()


def _targets() -> Iterator[tuple[str, str]]:
    """The forms of a target and their meanings."""
    yield "POD", "the name of a pod in the namespace set by --namespace"
    yield from ((kind.form, kind.is_a) for kind in KINDS.values())


def _variables() -> list[tuple[str, str]]:
    """The variables and their meanings, as the table in docs/targets.md lists them."""
    rows = re.findall(r"^\| (`[A-Z].*?) \| (.*) \|$", (DOCS / "targets.md").read_text(), re.MULTILINE)
    return [(names, re.sub(r"\[(.*?)\]\(.*?\)", r"\1", meaning)) for names, meaning in rows]


# ---------------------------------------------------------------- roff


def _items(items: Iterable[tuple[str, str]]) -> Iterator[str]:
    for heading, meaning in items:
        yield from (".TP", _text(heading), *_lines(meaning))


def _lines(text: str) -> Iterator[str]:
    """Wrap a text, each sentence on lines of its own."""
    for sentence in re.split(r"(?<=\.) (?=[A-Z])", text):
        yield from textwrap.wrap(_text(sentence), WIDTH, break_long_words=False, break_on_hyphens=False)


def _text(text: str) -> str:
    """Escape a text, with what is in backquotes in bold; a line of it may begin with anything."""
    pieces = re.split(r"`([^`]*)`", text)
    escaped = ["".join(_SIGNS.get(char, char) for char in piece) for piece in pieces]
    line = "".join(f"\\fB{piece}\\fR" if number % 2 else piece for number, piece in enumerate(escaped))
    return f"\\&{line}" if line.startswith(".") else line


if __name__ == "__main__":
    FILE.write_text(write_man(), encoding="utf-8")
