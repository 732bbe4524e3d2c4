"""What is trained: a FLUX LoRA by ai-toolkit (https://github.com/ostris/ai-toolkit), checked before anything is rented.

The file that ai-toolkit reads is YAML, of which JSON is a part: written as JSON, no name can break out of it. Its keys
are those of ai-toolkit's example `config/examples/train_lora_flux_24gb.yaml`.
"""

from __future__ import annotations

import json
from typing import Any

from training_monitor.renting import TrainingSpec

SAMPLE_SIDE = 1024


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
