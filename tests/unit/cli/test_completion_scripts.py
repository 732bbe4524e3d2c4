"""The scripts of the shells have every command and option, and never evaluate a name."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence

import pytest

from tests.requirements import require
from training_monitor.cli.arguments import NO_VALUE, OPTIONAL, SEVERAL, Argument, every_command
from training_monitor.cli.bash_completion import bash_script
from training_monitor.cli.command_table import GROUPS
from training_monitor.cli.fish_completion import fish_script
from training_monitor.cli.known_names import KINDS
from training_monitor.cli.zsh_completion import zsh_script

COMMANDS = every_command()
SCRIPTS = {"bash": bash_script(COMMANDS), "zsh": zsh_script(COMMANDS), "fish": fish_script(COMMANDS)}


def options(takes: Sequence[Argument]) -> list[str]:
    return [name for each in takes for name in each.names]


def test_every_command_is_described_with_what_its_parser_takes() -> None:
    assert [*COMMANDS] == [name for group in GROUPS.values() for name in group]
    assert {"-h", "--help", "--json", "-n", "--namespace", "--tail"} == {*options(COMMANDS["logs"])}
    [priority] = [each for each in COMMANDS["notify"] if "--priority" in each.names]
    assert priority.choices == ("low", "normal", "high", "urgent") and "default: normal" in priority.help
    assert "--poll-interval" not in options(COMMANDS["watch"]), "an earlier name is accepted, but not shown"
    values = {name: each.values for each in COMMANDS["fleet"] for name in each.names or (each.metavar,)}
    assert (values["TARGET"], values["--notify"], values["--once"]) == (SEVERAL, OPTIONAL, NO_VALUE)


def test_every_kind_that_an_argument_names_exists() -> None:
    kinds = {each.completes for takes in COMMANDS.values() for each in takes}
    assert kinds == {"", "files", "folders", *KINDS}


@pytest.mark.parametrize("shell", SCRIPTS)
def test_a_script_has_every_option_of_every_command(shell: str, subtests: pytest.Subtests) -> None:
    parts = commands_in(shell, SCRIPTS[shell], COMMANDS)
    for name, takes in COMMANDS.items():
        with subtests.test(name):
            assert {*options(takes)} == {*parts[name]}


def commands_in(shell: str, script: str, commands: Mapping[str, object]) -> dict[str, list[str]]:
    """The options of each command, as the script has them."""
    found = {}
    for name in commands:
        if shell == "fish":
            lines = re.findall(rf"^complete .* -n '__training_monitor_is {name}' (-[ls] .*)", script, re.MULTILINE)
            names = [word for line in lines for word in re.findall(r"-([ls]) ([\w-]+)", line.partition(" -d ")[0])]
            found[name] = [("--" if kind == "l" else "-") + word for kind, word in names]
        else:
            [part] = re.findall(rf"^    {name}\)\n(.*?);;$", script, re.M | re.S)
            pattern = r"options='(.*)'" if shell == "bash" else r"^            '(?:\*|\(.*?\))?(-[\w-]+)"
            found[name] = " ".join(re.findall(pattern, part, re.M)).split()
    return found


def test_bash_expands_no_name() -> None:
    assert "compgen -W" not in SCRIPTS["bash"] and "eval" not in SCRIPTS["bash"]


def test_the_script_for_bash_has_no_finding_of_shellcheck() -> None:
    check = [require("shellcheck"), "--shell=bash", "--severity=style", "-"]
    done = subprocess.run(check, input=SCRIPTS["bash"], text=True, capture_output=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_a_shell_reads_its_script_without_a_word(shell: str) -> None:
    done = subprocess.run([require(shell), "-n"], input=SCRIPTS[shell], text=True, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
