"""What is trained: a FLUX LoRA by ai-toolkit (https://github.com/ostris/ai-toolkit), checked before anything is rented.

The file that ai-toolkit reads is YAML, of which JSON is a part: written as JSON, no name can break out of it. Its keys
are those of ai-toolkit's example `config/examples/train_lora_flux_24gb.yaml`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from math import isfinite
from typing import Any

from training_monitor.errors import SettingsError

BASE_MODEL = "black-forest-labs/FLUX.1-dev"
SAMPLE_SIDE = 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_REPOSITORY = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}")
# name: (smallest, largest) of what makes sense; outside of it money would be spent on nothing
_WHOLE = {"steps": (1, 100_000), "rank": (1, 512), "save_every": (1, 100_000), "batch_size": (1, 64), "keep": (1, 1000)}
_SHARES = {"learning_rate": (1e-7, 1e-2), "alpha": (0.1, 1024), "dropout": (0.0, 0.9)}


@dataclass(frozen=True, slots=True)
class TrainingSpec:
    """One LoRA training. `dropout` is the share of captions that are left out; `keep` is how many checkpoints stay.

    `samples` are prompts of test images; `[trigger]` in them is the trigger word.
    """

    name: str
    trigger: str
    steps: int = 4000
    learning_rate: float = 1e-4
    rank: int = 32
    alpha: float = 32
    dropout: float = 0.05
    save_every: int = 250
    batch_size: int = 1
    keep: int = 4
    resolutions: tuple[int, ...] = (512, 768, 1024)
    base_model: str = BASE_MODEL
    samples: tuple[str, ...] = ("[trigger], portrait photo", "[trigger] in a forest, morning light")

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise SettingsError("name", self.name, "letters, digits, '.', '_' and '-', at most 64")
        if not self.trigger.strip() or not self.trigger.isprintable() or len(self.trigger) > 100:
            raise SettingsError("trigger", self.trigger[:100], "a word of at most 100 characters")
        if not _REPOSITORY.fullmatch(self.base_model):
            raise SettingsError("base_model", self.base_model, "OWNER/NAME on the hub")
        for key, (least, most) in _WHOLE.items():
            value = getattr(self, key)
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                raise SettingsError(key, value, f"a whole number, {least} to {most}")
        for key, (low, high) in _SHARES.items():
            value = getattr(self, key)
            if not isinstance(value, (int, float)) or not isfinite(value) or not low <= value <= high:
                raise SettingsError(key, value, f"{low:g} to {high:g}")
        if self.save_every > self.steps:
            raise SettingsError(
                "save_every", self.save_every, f"at most the steps, {self.steps}: nothing is saved before"
            )
        if not self.resolutions or not all(256 <= each <= 2048 and each % 64 == 0 for each in self.resolutions):
            raise SettingsError("resolutions", self.resolutions, "multiples of 64 between 256 and 2048")


def format_training_config(spec: TrainingSpec, *, dataset: str, output: str) -> str:
    """The configuration file of ai-toolkit, `python run.py FILE`.

    Args:
        dataset: the folder of images and captions on the instance. output: where NAME/ with the checkpoints goes.
    """
    process = {
        "type": "sd_trainer",
        "training_folder": output,
        "device": "cuda:0",
        "trigger_word": spec.trigger,
        "network": {"type": "lora", "linear": spec.rank, "linear_alpha": spec.alpha},
        "save": {"dtype": "float16", "save_every": spec.save_every, "max_step_saves_to_keep": spec.keep},
        "datasets": [_dataset(spec, dataset)],
        "train": _train(spec),
        "model": {"name_or_path": spec.base_model, "is_flux": True, "quantize": True},
        "sample": _sample(spec),
    }
    config = {"name": spec.name, "process": [process]}
    whole = {"job": "extension", "config": config, "meta": {"name": "[name]", "version": "1.0"}}
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def _dataset(spec: TrainingSpec, folder: str) -> dict[str, Any]:
    return {
        "folder_path": folder,
        "caption_ext": "txt",
        "caption_dropout_rate": spec.dropout,
        "shuffle_tokens": False,
        "cache_latents_to_disk": True,
        "resolution": list(spec.resolutions),
    }


def _train(spec: TrainingSpec) -> dict[str, Any]:
    return {
        "batch_size": spec.batch_size,
        "steps": spec.steps,
        "gradient_accumulation_steps": 1,
        "train_unet": True,
        "train_text_encoder": False,
        "gradient_checkpointing": True,
        "noise_scheduler": "flowmatch",
        "optimizer": "adamw8bit",
        "lr": spec.learning_rate,
        "ema_config": {"use_ema": True, "ema_decay": 0.99},
        "dtype": "bf16",
    }


def _sample(spec: TrainingSpec) -> dict[str, Any]:
    return {
        "sampler": "flowmatch",
        "sample_every": spec.save_every,
        "width": SAMPLE_SIDE,
        "height": SAMPLE_SIDE,
        "prompts": list(spec.samples),
        "neg": "",
        "seed": 42,
        "walk_seed": True,
        "guidance_scale": 4,
        "sample_steps": 20,
    }
