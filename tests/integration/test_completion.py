"""Completion typed in the real bash, zsh and fish: what the line becomes, and what the command gets."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.commands import run_command
from tests.integration.conftest import wait_until
from tests.integration.screens import PATIENCE, ROOT, Screen
from tests.requirements import require
from training_monitor.core.store import Store

HOSTILE = "a$(touch${IFS}pwned)`touch pwned`;touch pwned;'\"\\ b&c|d>e!f*?[g]{h,i}~#^=%()€"
GROUPS = {
    "nightly": ["local#process:train", "vast://30007012"],
    "my runs": ["ssh://me@gpu1:2222"],
    f"bad {HOSTILE}": ["local"],
    "steer\x1b[31m": ["local"],
}
SSH = 'Host box1 *.example !no\n  User me\nHost "$(touch pwned)" x;touch${IFS}pwned\ninclude more/*\n'
# The shell's own settings: a plain prompt, all candidates at the first Tab, and no questions.
RC = {
    "bash": """
PS1='ready$ '; HISTFILE=
bind 'set show-all-if-ambiguous on'; bind 'set bell-style none'; bind 'set page-completions off'
bind 'set completion-query-items 0'; bind 'set enable-bracketed-paste off'
""",
    "zsh": """
PROMPT='ready$ '; unsetopt beep prompt_sp list_ambiguous; LISTMAX=9999
autoload -Uz compinit && compinit -u
""",
    "fish": """
function fish_prompt; echo -n 'ready$ '; end
set -g fish_greeting
set -g fish_autosuggestion_enabled 0
""",
}
START = {
    "bash": lambda folder: ("bash", "--noprofile", "--rcfile", str(folder / "rc"), "-i"),
    "zsh": lambda folder: ("env", f"ZDOTDIR={folder / 'zsh'}", "zsh", "-d", "-i"),
    "fish": lambda folder: ("fish", "-i", "-C", f"source {folder / 'rc'}"),
}
FILES = {"zsh": ".zfunc/_training-monitor", "fish": ".config/fish/completions/training-monitor.fish"}
# Answers completion, and writes down the words of every other call.
COMMAND = """\
#!/bin/sh
"exec" {python} "$0" "$@"  # a first line takes no path with a space
import json, os, sys
if sys.argv[1:2] == ["completion"]:
    sys.path.insert(0, {root!r})
    from training_monitor.cli.main import main
    sys.exit(main())
with open({asked!r} + ".new", "w") as file:
    json.dump(sys.argv[1:], file)
os.rename({asked!r} + ".new", {asked!r})
"""


class Shell:
    """One shell in a terminal, in which `training-monitor` can be completed."""

    def __init__(self, name: str, folder: Path, *, by_file: bool = False) -> None:
        self.name, self.folder, self.screen, self.asked = name, folder, Screen(folder), folder / "asked"
        home = folder / "home"
        _write_home(home)
        command = folder / "bin" / "training-monitor"
        command.parent.mkdir()
        command.write_text(COMMAND.format(python=_quoted(sys.executable), root=str(ROOT), asked=str(self.asked)))
        command.chmod(0o755)
        made = f"{shlex.quote(str(command))} completion {name}"
        rc = RC[name] + (f"{made} | source\n" if name == "fish" else f'eval "$({made})"\n')
        if by_file:  # which the shell loads at the first Tab
            rc = RC[name].replace("autoload", "fpath=($HOME/.zfunc $fpath); autoload")
            file = home / FILES[name]
            file.parent.mkdir(parents=True)
            file.write_text(run_command("completion", name).stdout)
        for file in (folder / "rc", folder / "zsh" / ".zshrc"):
            file.parent.mkdir(exist_ok=True)
            file.write_text(rc)
        program = require(name) if name != "bash" else "bash"
        words = [program if word == name else word for word in START[name](folder)]
        environ = {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config"), "XDG_DATA_HOME": str(home / "data")}
        environ |= {"TRAINING_MONITOR_STATE_DIR": str(home / "state"), "TERM": "xterm-256color"}
        environ["PATH"] = f"{command.parent}:/usr/bin:/bin"
        self.screen.start("120x40", *words, **environ)
        self.screen.shows(r"^ready\$")

    def completes(self, line: str, *expected: str) -> None:
        """Type a line and Tab; wait for what must then be on the screen, and clear it."""
        self.screen.type(f"training-monitor {line}")
        self.screen.press("Tab")
        self.screen.shows(*expected)
        self.clear()

    def close(self) -> None:
        self.screen.tmux("kill-server")

    def clear(self) -> None:
        self.screen.press("C-u")
        self.screen.press("C-l")
        self.screen.hides("training-monitor")

    def gets(self, line: str, *, is_completed: bool = True) -> list[str]:
        """Type a line, Tab and Enter; return the words that the command gets."""
        self.screen.type(f"training-monitor {line}")
        self.screen.shows(f"{re.escape(line)}$")
        before = self.screen.text()
        self.screen.press("Tab")
        if is_completed:
            assert wait_until(lambda: self.screen.text() != before, PATIENCE), before
        self.screen.press("Enter")
        assert wait_until(self.asked.exists, PATIENCE), self.screen.text()
        words: list[str] = json.loads(self.asked.read_text())
        self.asked.unlink()
        self.clear()
        return words


def _quoted(path: str) -> str:
    """A path as a string of both sh and Python."""
    return json.dumps(path)


def _write_home(home: Path) -> None:
    (home / ".ssh" / "more").mkdir(parents=True)
    (home / ".ssh" / "config").write_text(SSH)
    (home / ".ssh" / "more" / "a").write_text("HOST=box2\n")
    settings = home / ".config" / "training_monitor" / "settings.json"
    settings.parent.mkdir(parents=True)
    users = {"anna": {"email": "a@example.org"}, "berta": {"email": "b@example.org"}}
    settings.write_text(json.dumps({"fleet": {"groups": GROUPS}, "users": users}))
    with Store(str(home / "state")).transaction() as execute:
        for number, key in enumerate(("ssh://old", f"local#/runs/{HOSTILE}.log", "my-pod?x", "ssh://o\nld")):
            execute("INSERT INTO history_members (key, first, last) VALUES (?, 0, ?)", (key, number))


@pytest.fixture(scope="module", params=["bash", "zsh", "fish"])
def started(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with closing(Shell(request.param, tmp_path_factory.mktemp(request.param))) as shell:
        yield shell


@pytest.fixture
def shell(started: Shell) -> Iterator[Shell]:
    yield started
    assert not [*started.folder.rglob("*pwned*")], "a name was executed"
    started.clear()


def test_commands_and_options_are_completed(shell: Shell) -> None:
    shell.completes("chec", r"\bcheck\b", r"\bcheckpoints\b")
    shell.completes("checkp", r"^ready\$ training-monitor checkpoints\b")
    shell.completes("watch local --ter", r"terminate\b.*\n.*terminate-busy\b|--terminate +--terminate-busy\b")
    shell.completes("gpu --js", r"^ready\$ training-monitor gpu --json\b")
    shell.completes("--ver", r"^ready\$ training-monitor --version\b")
    if shell.name == "bash":
        shell.completes("run ", r"--name\b", r"--checkpoint-dir\b", r"--resume-argument\b")


@pytest.mark.parametrize("name", ["zsh", "fish"])
def test_a_file_that_the_shell_loads_does_the_same(name: str, tmp_path: Path) -> None:
    with closing(Shell(name, tmp_path, by_file=True)) as shell:
        shell.completes("checkp", r"^ready\$ training-monitor checkpoints\b")
        assert shell.gets("gpu vas") == ["gpu", "vast://30007012"]


def test_values_are_completed(shell: Shell) -> None:
    (shell.folder / "my file.prom").touch()
    (shell.folder / "my folder").mkdir()
    shell.completes("completion z", r"^ready\$ training-monitor completion zsh\b")
    shell.completes("notify x --priority u", r"--priority urgent\b")
    shell.completes("fleet --notify a", r"--notify anna\b")
    shell.completes("fleet --group n", r"--group nightly\b")
    assert shell.gets("metrics --textfile my\\ fi") == ["metrics", "--textfile", "my file.prom"]
    assert shell.gets("why local --py-spy my\\ fi") == ["why", "local", "--py-spy", "my file.prom"]
    assert shell.gets("config --init my\\ fi") == ["config", "--init", "my file.prom"]
    words = shell.gets("rent dataset my\\ fo")
    assert words[:2] == ["rent", "dataset"] and words[2].rstrip("/") == "my folder"


def test_behind_two_dashes_another_command_line_is_completed(shell: Shell) -> None:
    (shell.folder / "my script.py").touch()
    assert shell.gets("run --name x -- python3 my\\ sc")[-2:] == ["python3", "my script.py"]
    assert shell.gets("run -- shellch") == ["run", "--", "shellcheck"]


def test_targets_are_completed(shell: Shell) -> None:
    shell.completes("check l", r"^ready\$ training-monitor check local\b")
    shell.completes("gpu ssh://", "old", "box1", "box2", "me@gpu1:2222")
    assert shell.gets("gpu vas") == ["gpu", "vast://30007012"]
    assert shell.gets("gpu ssh://me@") == ["gpu", "ssh://me@gpu1:2222"]
    assert shell.gets("gpu ssh://me@gpu1:2") == ["gpu", "ssh://me@gpu1:2222"]
    assert shell.gets("gpu -n default vas") == ["gpu", "-n", "default", "vast://30007012"]
    assert shell.gets("run --target=vas") == ["run", "--target=vast://30007012"]
    assert shell.gets("why local --also vas") == ["why", "local", "--also", "vast://30007012"]
    assert shell.gets("fleet local nigh") == ["fleet", "local", "nightly"]


def test_a_name_arrives_as_it_is_whatever_is_in_it(shell: Shell) -> None:
    assert shell.gets("fleet my") == ["fleet", "my runs"]
    assert shell.gets("fleet --group bad") == ["fleet", "--group", f"bad {HOSTILE}"]
    assert shell.gets("fleet local bad") == ["fleet", "local", f"bad {HOSTILE}"]
    assert shell.gets("history local#/r") == ["history", f"local#/runs/{HOSTILE}.log"]


def test_what_is_no_target_or_steers_a_terminal_is_not_offered(shell: Shell) -> None:
    shell.completes("gpu ssh://o", r"^ready\$ training-monitor gpu ssh://old\b")
    assert shell.gets("fleet --group steer", is_completed=False) == ["fleet", "--group", "steer"]


def test_within_quotes_no_name_ends_them(shell: Shell) -> None:
    assert shell.gets("gpu 'vas")[1] == "vast://30007012"
    assert shell.gets('gpu "vas')[1] == "vast://30007012"
