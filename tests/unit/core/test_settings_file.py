"""The settings file: patterns of a user's own, and errors that name file, key and what was expected."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from training_monitor.core.errors import SettingsError
from training_monitor.fleet.fleet import load_fleet_config
from training_monitor.logs.patterns import LogPattern, load_log_patterns, parse_metrics
from training_monitor.rent.queue import load_service_config

REWARD = r"reward[=: ]+(\S+)"


def write(folder: Path, settings: Any, name: str = "settings.json") -> str:
    file = folder / name
    file.write_text(settings if isinstance(settings, str) else json.dumps(settings))
    return str(file)


def test_patterns_are_texts_or_tables(tmp_path: Path) -> None:
    tokens = {"pattern": r"tokens=(\d+)", "kind": "int"}
    found = load_log_patterns(write(tmp_path, {"log_patterns": {"reward": REWARD, "tokens": tokens}}))
    assert found == [LogPattern("reward", REWARD), LogPattern("tokens", r"tokens=(\d+)", "int")]
    assert parse_metrics("step 1 reward: 0.5 tokens=7", found) == {"reward": 0.5, "tokens": 7}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no tomllib")
def test_toml_is_read_where_python_can(tmp_path: Path) -> None:
    text = f"[log_patterns]\nreward = '{REWARD}'\n"
    assert load_log_patterns(write(tmp_path, text, "settings.toml")) == [LogPattern("reward", REWARD)]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"log_patterns": []}, "log_patterns: got"),
        ({"log_patterns": {"reward": 5}}, "log_patterns.reward: got 5, expected a pattern"),
        ({"log_patterns": {"reward": {"pattern": REWARD, "colour": "red"}}}, "log_patterns.reward"),
        ({"log_patterns": {"reward": "no group"}}, r"log_patterns.reward: got 'no group', expected one group"),
        ({"log_patterns": {"reward": {"pattern": REWARD, "kind": "date"}}}, "log_patterns.reward.kind"),
        ({"log_patterns": {"reward": {"pattern": 5}}}, "log_patterns.reward"),
        ([], "a table at the top level"),
        ("{", "readable file"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, settings: Any, words: str) -> None:
    file = write(tmp_path, settings)
    with pytest.raises(SettingsError, match=words) as raised:
        load_log_patterns(file)
    assert file in str(raised.value)


def test_a_file_of_another_kind_is_told_which_ones_are_read(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("fleet:\n  interval: 5\n")
    with pytest.raises(SettingsError, match="TOML in settings.toml .* or JSON in settings.json"):
        load_log_patterns(str(file))
    file.write_text("{}")
    assert load_log_patterns(str(file)) == []


@pytest.mark.parametrize(("load", "table"), [(load_service_config, "service"), (load_fleet_config, "fleet")])
def test_a_wrong_value_of_the_service_or_the_fleet_names_file_and_key(tmp_path: Path, load: Any, table: str) -> None:
    key = "poll_interval" if table == "service" else "interval"
    file = write(tmp_path, {table: {key: -1}})
    with pytest.raises(SettingsError) as raised:
        load(file)
    assert raised.value.key.startswith(f"{file}: ") and raised.value.key.endswith(key)
    with pytest.raises(SettingsError, match="a table"):
        load(write(tmp_path, {table: 5}))
