"""`config --init`: a file that sets nothing, and that is right with every line of it uncommented."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.integration.commands import run_command
from training_monitor.cli.commands.config import check_settings
from training_monitor.cli.settings_template import settings_template
from training_monitor.core.settings_file import TABLES, load_settings, parse_settings
from training_monitor.core.settings_table import Place, meanings_of, settings_of
from training_monitor.fleet.config import AlertRule, FleetConfig, read_fleet_config
from training_monitor.fleet.metrics import Thresholds
from training_monitor.fleet.values import MemberSpec
from training_monitor.logs.patterns import LogPattern
from training_monitor.notify.channels import CHANNELS, classes_of
from training_monitor.notify.configure import load_channels, load_users, settings_of_channel
from training_monitor.notify.people import NotifiedUser
from training_monitor.rent.config import ServiceConfig
from training_monitor.verdict.limits import WatchConfig, read_watch_config

toml_only = pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no tomllib")
ROOT = Path(__file__).parents[3]
RUN = "import sys; from training_monitor.cli.main import main; sys.exit(main())"
TABLE_CLASSES = (FleetConfig, Thresholds, MemberSpec, AlertRule, WatchConfig, ServiceConfig, LogPattern, NotifiedUser)


def uncommented(text: str) -> str:
    """The template with every setting in force; what is a remark has a space behind its #."""
    return re.sub(r"^#(?! |$)", "", text, flags=re.MULTILINE)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        file = tmp_path / "settings.toml"
        file.write_text(text, encoding="utf-8")
        file.chmod(0o600)
        return str(file)

    return write


@toml_only
def test_as_it_is_it_changes_nothing(write: Callable[[str], str]) -> None:
    file = write(settings_template())
    assert check_settings(file, {}).problems == ()
    settings = load_settings(file, {})[1]
    assert {*settings} < {*TABLES} and not [each for table in settings.values() for each in table.values() if each]
    place = Place()
    assert read_fleet_config(settings["fleet"], place) == FleetConfig() and not place.faults
    assert load_channels({}, file) == [] and load_users({}, file) == {}


@toml_only
def test_every_line_may_be_uncommented(write: Callable[[str], str]) -> None:
    file = write(uncommented(settings_template()))
    check = check_settings(file, {})
    assert check.problems == ()
    assert check.counts == {"groups": 2, "alert_rules": 1, "log_patterns": 2, "channels": len(CHANNELS), "users": 1}
    assert {*load_settings(file, {})[1]} == {*TABLES}


@toml_only
def test_each_line_may_be_uncommented_alone_where_its_table_is_not() -> None:
    text = settings_template()
    for table, rest in zip(*[iter(re.split(r"^(\[\w+(?:\.\w+)?\])$", text, flags=re.MULTILINE)[1:])] * 2):
        for line in re.findall(r"^#\w.*", re.split(r"^#\[", rest, flags=re.MULTILINE)[0], re.MULTILINE):
            assert parse_settings("x.toml", f"{table}\n{line[1:]}")


@toml_only
def test_every_key_has_its_default_or_an_example() -> None:
    settings: Any = parse_settings("x.toml", uncommented(settings_template()))
    fleet, monitoring = settings["fleet"], settings["monitoring"]
    assert {*fleet} == {*settings_of(FleetConfig)} and {*fleet["thresholds"]} == {*settings_of(Thresholds)}
    assert {*fleet["alerts"][0]} == {*settings_of(AlertRule)}
    assert {*settings["service"]} == {*settings_of(ServiceConfig)}
    assert {*monitoring} - {"jobs"} == {*settings_of(WatchConfig)}
    assert {key for each in fleet["groups"]["cluster"] for key in each} == {*settings_of(MemberSpec)}
    assert {*settings["users"]["anna"]} == {*settings_of(NotifiedUser)}
    for name in CHANNELS:
        assert {*settings["notifications"][name]} == {*settings_of_channel(name)}
    given = {key: value for key, value in monitoring.items() if key != "jobs"}
    for name, value in ((each.name, each.default) for each in fields(WatchConfig)):
        assert value is None or getattr(read_watch_config(given), name) == value
    assert ServiceConfig(**{**settings["service"], "daily_budget": None}) == ServiceConfig()
    assert Thresholds(**fleet["thresholds"]) == Thresholds()


def test_every_key_has_a_meaning_and_remarks_fit() -> None:
    for made in (*TABLE_CLASSES, *(each for name in CHANNELS for each in classes_of(name))):
        assert {*meanings_of(made)} == {*settings_of(made)}, made
    remarks = re.findall(r"^# .*", settings_template(), re.MULTILINE)
    assert len(remarks) > 100 and not [line for line in remarks if len(line) > 100 or ".." in line.replace("...", "")]
    assert not [line for line in remarks if re.search(r"\bNone\b", line)]


def init(home: Path, *words: str, **environ: str) -> Any:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TRAINING_MONITOR_")}
    with patch.dict(os.environ, kept, clear=True):
        return run_command("config", "--init", *words, XDG_CONFIG_HOME=str(home), **environ)


@toml_only
def test_it_is_written_where_it_is_looked_for_and_only_for_its_owner(tmp_path: Path) -> None:
    with_umask = os.umask(0)
    try:
        done = init(tmp_path / "new")
    finally:
        os.umask(with_umask)
    file = tmp_path / "new" / "training_monitor" / "settings.toml"
    assert done.returncode == 0 and str(file) in done.stdout and file.read_text() == settings_template()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert run_command("config", "--check", XDG_CONFIG_HOME=str(tmp_path / "new")).returncode == 0


@toml_only
def test_nothing_is_overwritten_or_put_in_front_of_another_file(tmp_path: Path) -> None:
    folder = tmp_path / "training_monitor"
    folder.mkdir()
    (folder / "settings.json").write_text("{}")
    done = init(tmp_path)
    assert done.returncode == 2 and "settings.json" in done.stderr and not (folder / "settings.toml").exists()
    for path in (tmp_path / "mine.toml", tmp_path / "link.toml"):
        (tmp_path / "mine.toml").write_text("[fleet]\n")
        (tmp_path / "link.toml").unlink(missing_ok=True)
        (tmp_path / "link.toml").symlink_to(tmp_path / "elsewhere.toml")
        done = init(tmp_path, str(path))
        assert done.returncode == 2 and "existing files are not overwritten" in done.stderr
    assert (tmp_path / "mine.toml").read_text() == "[fleet]\n" and not (tmp_path / "elsewhere.toml").exists()


@toml_only
def test_a_file_by_its_name_in_a_folder_of_its_own(tmp_path: Path) -> None:
    done = init(tmp_path, str(tmp_path / "a b" / "mine.toml"), "--json")
    assert done.returncode == 0 and (tmp_path / "a b" / "mine.toml").read_text() == settings_template()
    assert "mine.toml" in done.stdout and done.stdout.startswith("{")


def test_json_has_no_comments(tmp_path: Path) -> None:
    done = init(tmp_path, str(tmp_path / "x.json"))
    assert done.returncode == 2 and "JSON has no comments" in done.stderr and not (tmp_path / "x.json").exists()


@pytest.mark.skipif(sys.version_info >= (3, 11), reason="this Python reads TOML")
def test_a_python_that_could_not_read_it_writes_none(tmp_path: Path) -> None:
    done = init(tmp_path)
    assert done.returncode == 2 and "TOML needs Python 3.11" in done.stderr and not [*tmp_path.iterdir()]


@toml_only
def test_a_write_that_fails_leaves_no_half_of_it(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); {RUN}"
    words = [sys.executable, "-B", "-c", limited, "config", "--init", str(file)]
    done = subprocess.run(words, text=True, capture_output=True, cwd=ROOT, env={**os.environ, "HOME": str(tmp_path)})
    assert done.returncode == 2 and "File too large" in done.stderr and not file.exists()
