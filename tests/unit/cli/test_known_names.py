"""Names that completion offers and that "did you mean" knows: from the settings, the state and ssh's configuration."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from training_monitor.cli.known_names import MOST_CHARACTERS, MOST_NAMES, known_names, meant_target, read_ssh_config
from training_monitor.cli.main import main
from training_monitor.core.store import STATE_FILE, Store


def configure(home: Path, settings: object) -> None:
    file = home / ".config" / "training_monitor" / "settings.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(settings if isinstance(settings, str) else json.dumps(settings))


def remember(home: Path, *members: str) -> Path:
    folder = home / ".local" / "state" / "training_monitor"
    with Store(str(folder)).transaction() as execute:
        for number, key in enumerate(members):
            execute("INSERT INTO history_members (key, first, last) VALUES (?, 0, ?)", (key, number))
    return folder


def test_without_any_file_only_local_is_known(home: Path) -> None:
    assert known_names("targets") == known_names("members") == ["local"]
    assert known_names("groups") == known_names("users") == known_names("history") == known_names("nonsense") == []
    assert not [*home.iterdir()], "asking for names makes no file"


def test_names_come_from_the_settings_the_state_and_ssh(home: Path) -> None:
    groups = {"nightly": ["vast://1", {"target": "pod-a", "job": "raysubmit_x"}, "local#process:x", 5]}
    configure(home, {"fleet": {"groups": groups}, "users": {"anna": {}}})
    folder = remember(home, "ssh://old#/x/a b.log", "ssh://newer")
    Store(str(folder)).add_look("k8s://default/seen process:y", 1.0, {})
    (home / ".ssh").mkdir()
    (home / ".ssh" / "config").write_text("Host gpu1 *.x\n")
    targets = ["local", "vast://1", "pod-a", "ssh://newer", "ssh://old", "k8s://default/seen", "ssh://gpu1"]
    assert known_names("targets") == targets
    assert {"nightly", "local#process:x", "ssh://old", "ssh://old#/x/a b.log"} <= {*known_names("members")}
    assert known_names("groups") == ["nightly"] and known_names("users") == ["anna"]
    assert known_names("history") == ["ssh://newer", "ssh://old#/x/a b.log"]
    typos = {"locl": "local", "podd-a": "pod-a", "ssh://gpuu1": "ssh://gpu1", "nighty": "nightly", "gpu1": "ssh://gpu1"}
    assert {typo: meant_target(typo) for typo in typos} == typos
    for known in ("k8s://default/seen", "seen", "pod-a", "ssh://newer", "ssh://neewer"):
        assert meant_target(known) is None, "it is known, or the like of it was only seen"


def test_reading_the_state_leaves_nothing_beside_it(home: Path) -> None:
    folder = remember(home, "ssh://old")
    before = sorted(each.name for each in folder.iterdir())
    assert known_names("history") == ["ssh://old"]
    assert sorted(each.name for each in folder.iterdir()) == before


@pytest.mark.parametrize("settings", ["{", "[]", '{"fleet": []}', '{"fleet": {"groups": {"a": 5}}, "users": []}'])
def test_a_file_that_is_wrong_gives_no_names_and_no_error(home: Path, settings: str) -> None:
    configure(home, settings)
    assert known_names("targets") == ["local"] and known_names("users") == []


def test_a_state_file_that_is_damaged_or_a_link_gives_no_names(home: Path) -> None:
    folder = remember(home, "ssh://old")
    file = folder / STATE_FILE
    file.write_bytes(b"no database, but long enough to be taken for one" * 50)
    assert known_names("history") == [] and file.exists()
    file.rename(folder / "elsewhere")
    file.symlink_to(folder / "elsewhere")
    assert known_names("history") == []


def test_odd_or_too_many_names_are_left_out(home: Path) -> None:
    odd = ("ssh://a\nb", "ssh://x\u202e", "ssh://" + "x" * MOST_CHARACTERS)
    remember(home, "two words", *odd, "my-pod?y", "ssh://fine")
    assert known_names("targets") == ["local", "ssh://fine"]
    assert known_names("history") == ["ssh://fine", "my-pod?y", "two words"]
    configure(home, {"users": {f"user{number}": {} for number in range(MOST_NAMES + 9)}})
    assert len(known_names("users")) == MOST_NAMES


def test_hosts_and_included_files_are_read_once_as_ssh_does(home: Path) -> None:
    (home / ".ssh" / "conf.d").mkdir(parents=True)
    (home / ".ssh" / "config").write_text("Include conf.d/*\nInclude ~/.ssh/config missing\nHost last\n")
    (home / ".ssh" / "conf.d" / "a").write_text(f'Host "first"\nInclude {home}/.ssh/config\n')
    os.mkfifo(home / ".ssh" / "conf.d" / "b")
    assert known_names("targets") == ["local", "ssh://last", "ssh://first"]
    text = '  HOST=a "b c"\thost\nHostName no\n# Host no\nMatch host no\nhost *.x ?y !z d\nInclude "x y" z\n\tHost   \n'
    assert read_ssh_config(text) == (["a", "b c", "host", "d"], ["x y", "z"])


def test_the_command_prints_how_to_complete_and_a_name_a_line(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configure(home, {"users": {"anna": {}, "berta": {}}})
    assert main(["completion", "--complete", "zsh", "fleet", "--notify", ""]) == 0
    assert capsys.readouterr() == ("words\nanna\nberta\n", "")
