"""The configuration of a training: the documented defaults, and what is refused before money is spent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from training_monitor.core.errors import SettingsError
from training_monitor.rent.instance_steps import format_training_config
from training_monitor.vast.training_request import TrainingSpec


def process(spec: TrainingSpec) -> dict[str, Any]:
    config = json.loads(format_training_config(spec, dataset="/workspace/dataset", output="/workspace/output"))
    assert config["job"] == "extension" and config["config"]["name"] == spec.name
    found: dict[str, Any] = config["config"]["process"][0]
    return found


def test_the_defaults_are_those_of_the_document() -> None:
    found = process(TrainingSpec("my-lora", "mylora"))
    assert (found["train"]["steps"], found["train"]["lr"], found["save"]["save_every"]) == (4000, 0.0001, 250)
    assert (found["network"]["linear"], found["network"]["linear_alpha"]) == (32, 32)
    assert found["datasets"][0]["caption_dropout_rate"] == 0.05 and found["model"]["is_flux"] is True
    assert found["trigger_word"] == "mylora" and found["datasets"][0]["folder_path"] == "/workspace/dataset"


@pytest.mark.parametrize("trigger", ['a": "b', "x\\y", "né ☃", "{[:", "- a", "'"])
def test_no_trigger_breaks_out_of_the_file(trigger: str) -> None:
    assert process(TrainingSpec("my-lora", trigger))["trigger_word"] == trigger


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("name", ["../x", "", "-x"]),
        ("trigger", [" ", "a\nb"]),
        ("steps", [0, 1.5, True]),
        ("learning_rate", [1.0, float("nan")]),
        ("rank", [0]),
        ("alpha", [-1]),
        ("dropout", [1.0]),
        ("save_every", [4001]),
        ("resolutions", [(), (500,)]),
        ("base_model", ["flux"]),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_name(key: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(SettingsError) as caught:
            TrainingSpec(**{"name": "my-lora", "trigger": "mylora", key: value})
        assert caught.value.key == key
