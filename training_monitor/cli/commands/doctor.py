"""`doctor`: which tools, contexts and keys work here, and what to do."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from functools import partial

from training_monitor.cli.argument_types import TARGETS, CommandParser
from training_monitor.cli.columns import terminal_columns
from training_monitor.cli.command_table import Command
from training_monitor.cli.output import BAD, OK, UNCUT, print_json, put_lines
from training_monitor.cli.probes import BROKEN, MISSING, PROBES, WORKS, Check, probe_target, run_probe
from training_monitor.targets.asking import side_by_side
from training_monitor.ui.kit.text import ASCII, Glyphs, Piece, clip, safe

_STYLES = {WORKS: "good", MISSING: "warn", BROKEN: "bad"}
_MARKS = {WORKS: "✓", MISSING: "–", BROKEN: "✗"}
_PLAIN_MARKS = {WORKS: "+", MISSING: "-", BROKEN: "x"}
_INDENT = 30


def declare(command: CommandParser) -> None:
    command.value("targets", "TARGET", "also check that these targets respond", TARGETS, nargs="*")


def run(args: Namespace) -> int:
    """Run the command; exit code 1 when something that is there does not work, or a target does not answer."""
    calls = [partial(run_probe, group, probe) for group, probe in PROBES]
    calls += [partial(run_probe, "targets", partial(probe_target, each)) for each in args.targets]
    found = side_by_side(calls)
    checks = [check for each in found if not isinstance(each, Exception) for check in each]
    if not print_json(args, {"checks": checks}):
        put_lines(screen(checks, terminal_columns(UNCUT), _glyphs()))
    return BAD if any(check.state == BROKEN for check in checks) else OK


def _glyphs() -> Glyphs:
    try:
        from training_monitor.ui.kit.terminal import terminal_glyphs
    except ImportError:  # of curses, which some builds of Python lack
        return ASCII
    return terminal_glyphs()


def screen(checks: Sequence[Check], width: int, glyphs: Glyphs) -> Iterator[list[Piece]]:
    """Yield the lines: the checks by group, and a summary. What works is cut to `width`."""
    marks, arrow = (_PLAIN_MARKS, "->") if glyphs.ascii else (_MARKS, "→")
    for group in dict.fromkeys(check.group for check in checks):
        yield [(group, "bold")]
        for check in (each for each in checks if each.group == group):
            found = safe(" ".join(check.found.split()), glyphs)
            shown = clip(found, width - _INDENT, glyphs) if check.state == WORKS else found
            sign = (f"{marks[check.state]} {check.state:<7}", _STYLES[check.state])
            yield [("  ", ""), sign, (f" {safe(check.name, glyphs):<17} {shown}", "")]
            if check.remedy and check.state != WORKS:
                yield [(f"{'':<{_INDENT - 3}}{arrow} {safe(check.remedy, glyphs)}", "")]
    yield [(_summary(checks), "")]


def _summary(checks: Sequence[Check]) -> str:
    broken, missing = (sum(check.state == state for check in checks) for state in (BROKEN, MISSING))
    if not broken and not missing:
        return "all checks passed"
    of_missing = f"{missing} missing (only a problem if you need them)" if missing else ""
    return ", ".join(part for part in (f"{broken} broken" if broken else "", of_missing) if part)


COMMAND = Command(run, declare, ("", "my-pod ssh://me@gpu1"))
