"""Which members the words of `fleet` stand for."""

from __future__ import annotations

import pytest

from training_monitor.cli.fleet import read_specs
from training_monitor.core.errors import SettingsError
from training_monitor.core.settings_table import Place
from training_monitor.fleet.config import FleetConfig, read_fleet_config

LORA = [{"target": "ssh://gpu2", "job": "process:train", "name": "llama-lora"}]
GROUPS = {"groups": {"group1": ["ssh://gpu1", "head"], "lora": LORA}}


@pytest.fixture
def config() -> FleetConfig:
    place = Place()
    config = read_fleet_config(GROUPS, place)
    assert not place.faults
    return config


def keys(config: FleetConfig, *words: str) -> list[str]:
    return [spec.key for spec in read_specs(words, config)]


def test_a_group_stands_for_its_members_and_a_bare_word_for_a_pod(config: FleetConfig) -> None:
    assert keys(config, "group1", "trainer-0") == ["ssh://gpu1", "head", "trainer-0"]
    assert keys(config) == ["ssh://gpu1", "head", "ssh://gpu2#process:train"]
    for word in [
        "lora-0",
        "group1-7f9c",
        "head",
        "heads",
        "local",
        "ssh://lora1",
        "gruop1#process:x",
        "k8s://default/gruop1",
    ]:
        assert keys(config, word) == [word]
    assert keys(FleetConfig(), "gruop1") == ["gruop1"]


@pytest.mark.parametrize(
    ("word", "meant"),
    [("gruop1", "group1"), ("groups1", "group1"), ("lorra", "lora"), ("llama-lroa", "ssh://gpu2#process:train"),
     ("llama-lora", "ssh://gpu2#process:train")],
)  # fmt: skip
def test_a_word_that_is_like_a_name_of_the_settings_is_asked_about(config: FleetConfig, word: str, meant: str) -> None:
    with pytest.raises(SettingsError) as refused:
        read_specs([word], config)
    told = f"no group or member has this name; did you mean {meant}? For a pod, use k8s://NAMESPACE/{word}"
    assert told in str(refused.value)
