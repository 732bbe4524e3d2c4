"""`config` as people and scripts run it: what is read, what is wrong, and no secret on any stream."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.integration.commands import run_command

SECRET = "123456:AAAAsecretAAAAsecretAAAAsecretAAAA"
RIGHT = {
    "fleet": {"groups": {"nightly": ["vast://1", "local#process:x"]}, "alerts": [{"name": "a", "when": "loss is nan"}]},
    "notifications": {"telegram": {"token": SECRET, "chat_id": "1"}},
}
toml_only = pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no tomllib")


def config(home: Path, *argv: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run `config` with a configuration folder of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TRAINING_MONITOR_")}
    with patch.dict(os.environ, kept, clear=True):
        done = run_command("config", *argv, XDG_CONFIG_HOME=str(home), **changes)
    assert SECRET not in done.stdout + done.stderr and "Traceback" not in done.stderr
    return done


def write(file: Path, settings: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(settings if isinstance(settings, str) else json.dumps(settings, indent=1), encoding="utf-8")
    file.chmod(0o600)
    return file


def test_a_file_that_is_fine_says_what_was_read(tmp_path: Path) -> None:
    file = write(tmp_path / "training_monitor" / "settings.json", RIGHT)
    done = config(tmp_path, "--check")
    assert (done.returncode, done.stdout) == (0, f"{file}: ok: 1 group, 1 alert rule, 1 channel\n"), done


def test_all_that_is_wrong_is_said_a_line_each(tmp_path: Path) -> None:
    wrong = {
        **RIGHT,
        "fleet": {"interval": 0, "alerts": [{"name": "a", "when": "gpu_utilisation < 5"}]},
        "fleat": SECRET,
    }
    file = write(tmp_path / "x.json", wrong)
    done = config(tmp_path, "--check", "--file", str(file))
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        f"{file}:3: fleet.interval: 0: expected seconds (at least 1), or a duration such as 15m",
        f'{file}:7: fleet.alerts[0].when: "gpu_utilisation < 5": expected gpu_utilization at column 1, '
        "but found 'gpu_utilisation'",
        f"{file}:17: fleat: expected fleet",
    ]


@toml_only
def test_toml_has_lines_too_and_the_variable_names_the_file(tmp_path: Path) -> None:
    text = '[fleet.groups]\nnightly = [\n  "local",\n  "nope://x",\n]\n[service]\nsweep_interval = "5min"\n'
    file = write(tmp_path / "my settings.toml", text)
    done = config(tmp_path, "--check", TRAINING_MONITOR_SETTINGS=str(file))
    first, second = done.stdout.splitlines()
    assert done.returncode == 1
    assert first.startswith(f'{file}:4: fleet.groups.nightly[1]: "nope://x": expected local, a pod name')
    assert second == f'{file}:7: service.sweep_interval: "5min": expected seconds (above 0), or a duration such as 15m'


def test_a_file_that_is_no_json_is_one_line(tmp_path: Path) -> None:
    file = write(tmp_path / "x.json", '{\n  "fleet": {,}\n}')
    done = config(tmp_path, "--check", "--file", str(file))
    [line] = done.stdout.splitlines()
    assert done.returncode == 1 and line.startswith(f"{file}:2: expected a readable file (")


def test_a_file_that_was_named_and_is_not_there_is_a_problem(tmp_path: Path) -> None:
    done = config(tmp_path, "--check", "--file", str(tmp_path / "none.toml"))
    assert (done.returncode, done.stdout) == (1, f"{tmp_path}/none.toml: expected an existing file\n")


def test_no_file_is_fine_and_says_where_it_would_be(tmp_path: Path) -> None:
    for argv in ((), ("--check",)):
        done = config(tmp_path, *argv)
        folder = tmp_path / "training_monitor"
        assert done.returncode == 0
        assert done.stdout == f"no settings file was found: no {folder}/settings.toml and no {folder}/settings.json\n"


def test_hostile_names_stay_on_their_line_and_steer_no_terminal(tmp_path: Path) -> None:
    name = "x\x1b[31m\n\u202eok: 5 groups"
    file = write(tmp_path / "a\nb.json", {"fleet": {"groups": {name: [f"ssh://{name}"]}, name: 1}, name: {name: name}})
    for argv in (("--check",), ()):
        done = config(tmp_path, *argv, "--file", str(file))
        assert done.returncode in (1, 2)
        assert all(line.isprintable() for line in (done.stdout + done.stderr).splitlines())
    done = config(tmp_path, "--check", "--file", str(file))
    assert len(done.stdout.splitlines()) == 3 and all("expected" in line for line in done.stdout.splitlines())


def test_json_has_all_of_it(tmp_path: Path) -> None:
    file = write(tmp_path / "x.json", {"fleet": {"interval": 0}})
    done = config(tmp_path, "--check", "--json", "--file", str(file))
    expected = "seconds (at least 1), or a duration such as 15m"
    problem = {"line": 3, "key": "fleet.interval", "value": "0", "expected": expected}
    assert done.returncode == 1
    told = {"file": str(file), "problems": [problem], "counts": {}}
    assert json.loads(done.stdout) == {"schema": "training_monitor.config/1", **told}


def test_without_check_the_file_and_its_keys_are_shown(tmp_path: Path) -> None:
    file = write(tmp_path / "training_monitor" / "settings.json", RIGHT)
    done = config(tmp_path)
    assert (done.returncode, done.stdout.splitlines()) == (
        0,
        [str(file), "  fleet          groups, alerts", "  notifications  telegram"],
    )
    tables = {"fleet": ["groups", "alerts"], "notifications": ["telegram"]}
    told = {"schema": "training_monitor.config/1", "file": str(file), "tables": tables}
    assert json.loads(config(tmp_path, "--json").stdout) == told


def test_without_check_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    done = config(tmp_path, "--file", str(write(tmp_path / "x.json", "{")))
    assert done.returncode == 2 and "x.json" in done.stderr and done.stdout == ""
