"""What completes a command line, and the scripts of the shells that ask for it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.requirements import require
from training_monitor.cli.arguments import every_command
from training_monitor.cli.candidates import complete, find_candidates
from training_monitor.cli.command_table import list_commands
from training_monitor.cli.known_names import KINDS
from training_monitor.cli.main import main
from training_monitor.core.command_arguments import NO_VALUE, OPTIONAL, SEVERAL, Argument

COMMANDS = every_command()


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def options(takes: Sequence[Argument]) -> list[str]:
    return [name for each in takes for name in each.names]


def test_every_command_is_described_with_what_its_parser_takes() -> None:
    assert [*COMMANDS] == [*list_commands()]
    assert {"-h", "--help", "--json", "-n", "--namespace", "--tail"} == {*options(COMMANDS["logs"])}
    [priority] = [each for each in COMMANDS["notify"] if "--priority" in each.names]
    assert priority.choices == ("low", "normal", "high", "urgent") and "default: normal" in priority.help
    values = {name: each.values for each in COMMANDS["fleet"] for name in each.names or (each.metavar,)}
    assert (values["TARGET"], values["--notify"], values["--once"]) == (SEVERAL, OPTIONAL, NO_VALUE)
    assert find_candidates([""])[1]["rent"] == "train on rented machines"


def test_every_command_and_option_is_a_candidate_of_a_known_kind() -> None:
    kinds = {each.completes for takes in COMMANDS.values() for each in takes}
    assert kinds == {"", "files", "folders", *KINDS}
    for name, takes in COMMANDS.items():
        kind, found = find_candidates([name, "-"])
        assert kind == "words" and [*found] == options(takes), name
    found = find_candidates(["wait", "local", "--json", "--for", "stalled", "--"])[1]
    assert "--json" not in found and {"--for", "--handle"} <= {*found}
    assert not {"-n", "--namespace"} & {*find_candidates(["gpu", "-n", "x", "local", "-"])[1]}


def test_a_word_is_completed_by_its_place(home: Path) -> None:
    cases: dict[str, tuple[str, list[str]]] = {
        "check ": ("words", ["local"]),
        "check local ": ("words", options(COMMANDS["check"])),
        "metrics --textfile ": ("files", []),
        "metrics --textfile=a": ("files", []),
        "rent dataset ": ("folders", []),
        "rent d": ("words", "launch queue worker sweep instances offers dataset keys credits".split()),
        "config --init ": ("files", []),
        "notify x --priority ": ("words", ["low", "normal", "high", "urgent"]),
        "run --target=": ("words", ["--target=local"]),
        "run --name --": ("words", []),
        "run --name -- -": ("command", []),
        "run -- python3 --resume ": ("command", []),
        "check --no-such ": ("words", ["local"]),
        "nonsense ": ("words", []),
    }
    for line, expected in cases.items():
        kind, found = find_candidates(line.split(" "))
        assert (kind, [*found]) == expected


def test_bash_gets_the_rest_of_the_word_quoted(home: Path) -> None:
    settings = home / ".config" / "training_monitor" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"fleet": {"groups": {"my $(runs)": ["vast://1"]}}}))
    assert [*complete("bash", ["training-monitor fleet my", "my"])] == ["words", "my\\ \\$\\(runs\\)"]
    assert [*complete("bash", ["training-monitor fleet my\\ ", "my\\ "])] == ["words", "my\\ \\$\\(runs\\)"]
    assert [*complete("bash", ["training-monitor fleet 'my", "'my"])] == ["words"]
    assert [*complete("bash", ["training-monitor fleet 'va", "'va"])] == ["words", "'vast://1"]
    assert [*complete("bash", ["training-monitor gpu vast://", "//"])] == ["words", "//1"]
    assert [*complete("bash", ["training-monitor why 'a b' --als", "--als"])] == ["words", "--also"]


def test_the_script_for_bash_has_no_finding_of_shellcheck(capsys: pytest.CaptureFixture[str]) -> None:
    check = [require("shellcheck"), "--shell=bash", "--severity=style", "-"]
    done = subprocess.run(check, input=script("bash", capsys), text=True, capture_output=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_a_shell_reads_its_script_without_a_word(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = subprocess.run([require(shell), "-n"], input=script(shell, capsys), text=True, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
