"""No room below the command line names its options or commands in a message: a hint names them neutrally.

`Hint("... {take_over=True}")` and `Hint("... {stop_job}", target, job_id)` are spelled by whoever shows them.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from training_monitor.agents.mcp.answers import error_of
from training_monitor.cli.command_table import find_command
from training_monitor.cli.parsing import build_parser
from training_monitor.core.errors import CALLS, AlreadySupervised, Hint, TrainingMonitorError

PACKAGE = Path(__file__).parents[2] / "training_monitor"
# The surface of these is the shell: notices name the next command, the tools of the server take options of commands.
SHELL = ("cli/", "agents/mcp/", "notify/notice_text.py", "notify/templates.py", "core/errors.py")
COMMAND = re.compile(r"training-monitor [a-z]")
TOOLS = re.compile(
    r"\b(?:kubectl|ssh(?:-\w+)?|vastai|docker|pip|ray|rsync|tar|curl|git|hf|aws|az|gcloud|sysctl|nvidia-smi|squeue)\b"
)


@cache
def options() -> re.Pattern[str]:
    """Every option of our commands."""
    found = set[str]()
    for actions in (parser._actions for parser in commands().values()):
        found |= {option for action in actions for option in action.option_strings if option.startswith("--")}
    return re.compile(rf"(?<![\w-])(?:{'|'.join(sorted(map(re.escape, found)))})(?![\w-])")


def commands() -> Mapping[str, argparse.ArgumentParser]:
    return build_parser().commands


def messages(code: str) -> Iterator[tuple[int, str]]:
    """What a module may write to people: its texts without docstrings, and the keys of its errors as sentences."""
    tree = ast.parse(code)
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="SettingsError"), args=[ast.Constant(value=str(key)), *_]):
                yield node.lineno, f"{key} is wrong"
            case ast.JoinedStr(values=parts):
                skipped |= {id(part) for part in parts}
                yield node.lineno, "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in parts)
            case ast.Constant(value=str(text)) if id(node) not in skipped:
                yield node.lineno, text


def named(code: str) -> list[str]:
    """Where code names an option or command of ours in a message."""
    return [
        f"{line}: {text[:90]!r}"
        for line, text in messages(code)
        if COMMAND.search(text) or (" " in text.strip() and options().search(text) and not TOOLS.search(text))
    ]


def test_no_message_below_the_command_line_names_our_options_or_commands() -> None:
    wrong = []
    for file in sorted(PACKAGE.rglob("*.py")):
        place = file.relative_to(PACKAGE).as_posix()
        if not place.startswith(SHELL):
            wrong += [f"{place}:{each}" for each in named(file.read_text(encoding="utf-8"))]
    assert not wrong, "name it with a Hint, or in words:\n" + "\n".join(wrong)


def test_the_search_finds_what_names_an_option() -> None:
    for code, count in [
        ('raise E("x", hint="stop that supervisor, or add --take-over")', 1),
        ('raise E("x", hint=f"stop it: training-monitor stop {job}")', 1),
        ('raise SettingsError("--heartbeat", 1, "a URL")', 1),
        ('raise E("x", hint=Hint("add {take_over=True}"))', 0),
        ('"""Take over with --take-over."""', 0),
        ('argv = ["vastai", "show", "--raw", "--limit"]', 0),
    ]:
        assert len(named(code)) == count


def test_a_hint_names_an_argument_as_its_reader_writes_it() -> None:
    for surface, said in [
        ("python", "add take_over=True"),
        ("shell", "add --take-over"),
        ("mcp", "add take_over: true"),
    ]:
        error = AlreadySupervised("x is supervised", hint=Hint("stop it, or add {take_over=True}"))
        assert error.spell(surface) == f"x is supervised. Try: stop it, or {said}"
        assert str(error) == error.spell("python") and error_of(error)["hint"] == "stop it, or add take_over: true"
    error = TrainingMonitorError("no", hint="set {take_over=True} in {file}")
    assert error.spell("shell") == "no. Try: set {take_over=True} in {file}"


def test_a_hint_names_a_call_that_exists_with_its_values_quoted() -> None:
    hint = Hint("stop it first: {stop_job}", "ssh://me@gpu1", "it's")
    assert hint == "stop it first: stop_job('ssh://me@gpu1', \"it's\")"
    assert hint.spell("shell") == "stop it first: training-monitor stop ssh://me@gpu1 'it'\"'\"'s'"
    for call in CALLS.values():
        assert call.shell.split()[0] == "training-monitor" and find_command(call.shell.split()[1:]) in commands()
        assert call.python and call.mcp
