"""What a whole log adds up to, in whatever chunks it comes."""

from __future__ import annotations

import json
import math
import random
import sys
from typing import Any

from training_monitor.logs.totals import LogTotals
from training_monitor.logs.training_log import parse_progress

KEYS = [
    "last_step", "total_steps", "progress_percent", "last_loss", "loss_history", "last_learning_rate",
    "checkpoints_saved", "checkpoint_paths", "errors", "warnings", "gpu_utilization", "memory_usage",
    "samples_generated", "steps_per_second", "estimated_time_remaining",
]  # fmt: skip


def totals(*lines: str) -> dict[str, Any]:
    found = LogTotals()
    found.feed("\n".join(lines))
    found.close()
    return found.as_dict()


def losses(found: dict[str, Any]) -> list[float]:
    return [entry["loss"] for entry in found["loss_history"]]


def bar(count: int, total: int, rate: str = "1.00it/s", notes: str = "", name: str = "") -> str:
    return f"{name} {100 * count // total}%|##   | {count}/{total} [00:10<01:30, {rate}{notes}]"


def test_an_empty_log_says_nothing() -> None:
    empty: dict[str, Any] = dict.fromkeys(KEYS)
    empty |= {"loss_history": [], "checkpoint_paths": [], "errors": [], "warnings": []}
    empty |= {"checkpoints_saved": 0, "samples_generated": 0}
    assert LogTotals().as_dict() == empty
    assert list(empty) == KEYS


def test_a_loss_that_is_no_number_is_a_loss_and_an_error() -> None:
    for word in ("nan", "NaN", "inf", "-inf"):
        found = totals("step 5/10 loss: 0.5", f"step 6/10 loss: {word}")
        assert not math.isfinite(found["last_loss"]) and len(found["loss_history"]) == 2
        assert found["errors"] == [f"step 6/10 loss: {word}"]


def test_losses_come_in_text_order_each_once_and_the_newest_are_kept() -> None:
    found = totals("loss=0.3", "train_loss: 0.5")
    assert found["last_loss"] == 0.5
    assert found["loss_history"] == [{"index": 0, "loss": 0.3}, {"index": 1, "loss": 0.5}]
    drawn = [bar(1, 9, notes=", loss=0.5"), bar(1, 9, notes=", loss=0.5"), bar(2, 9, notes=", loss=0.5")]
    assert losses(totals("\r".join(drawn))) == [0.5, 0.5]
    found = totals(*(f"step {number} loss: {number}.5" for number in range(1, 1202)))
    kept = found["loss_history"]
    assert len(kept) == 700 and kept[-1] == {"index": 1200, "loss": 1201.5} and kept[0]["index"] == 501
    assert totals("lr=1e-4", "step 3 lr: 5e-5 loss: 1")["last_learning_rate"] == 5e-5


LOG = "\r\n".join(
    [
        "Resuming from step 5", bar(6, 50, notes=", loss=1.5, lr=1e-4"), "checkpoint saved to out/step-6.safetensors",
        "RuntimeError: bad ünïcode ✓", "x" * 20000 + f" {bar(7, 50, notes=', loss=1.25')}", "WARNING: slow",
        "Generating sample 1", "GPU: 87%, VRAM 10.5/24 GB", bar(3, 9), bar(8, 50, notes=", loss=1.0"), "",
    ]
)  # fmt: skip


def test_chunks_may_be_cut_anywhere() -> None:
    for seed in range(20):
        cutter, found, position = random.Random(seed), LogTotals(), 0
        while position < len(LOG):
            size = cutter.choice([1, 2, 7, 100, 5000])
            found.feed(LOG[position : position + size])
            position += size
        whole = totals(LOG)
        assert found.as_dict() == whole
        assert (whole["last_step"], losses(whole), len(whole["errors"])) == (8, [1.5, 1.25, 1.0], 1)


def test_an_unfinished_line_counts_when_it_ends_and_once() -> None:
    found = LogTotals()
    found.feed("step 1/100\nstep 1")
    assert found.as_dict()["last_step"] == 1
    found.feed("2/100 loss: 0.")
    found.feed("25\n")
    found.close()
    found.close()
    assert (found.as_dict()["last_step"], losses(found.as_dict())) == (12, [0.25])


def test_the_totals_can_be_written_as_json_and_are_no_window_to_the_inside() -> None:
    found = LogTotals()
    found.feed("step 1/9 loss: 0.5\nVRAM 1/2 GB\n")
    first = found.as_dict()
    assert json.loads(json.dumps(first)) == first
    first["loss_history"][0]["loss"] = 9
    first["memory_usage"]["used"] = 9
    first["errors"].append("x")
    assert found.as_dict() == totals("step 1/9 loss: 0.5", "VRAM 1/2 GB")


def test_nothing_in_a_log_raises() -> None:
    noise = random.Random(3)
    words = ["loss", "nan", "1/0 [", "step", "=", ":", "saving", "model", "/", "\\", "(", "%|", "\r", "\0", "9" * 400]
    words += ["error", "MiB", "gpu", ".bin", "'", "e", "-", " ", "100%", "generating samples", "\x1b[", "😀"]
    found = LogTotals()
    for _ in range(3000):
        found.feed("".join(noise.choices(words, k=12)) + noise.choice(["\n", ""]))
    found.close()
    assert list(found.as_dict()) == KEYS


def test_the_time_left_is_unknown_or_the_logs_own_without_a_speed() -> None:
    found = totals(bar(100, 100))
    assert (found["progress_percent"], found["estimated_time_remaining"]) == (100.0, None)
    assert totals("step 5/10 loss: 0.5 eta: 0:01:30")["estimated_time_remaining"] == 90
    assert totals("steps_per_second 5e-324", "step 5/10")["estimated_time_remaining"] is None


def test_one_checkpoint_counts_once() -> None:
    for lines, count, paths in [
        (["Saving checkpoint at step 100", "checkpoint saved"], 1, []),
        (["Saving checkpoint...", "Saved model to out/final.safetensors"], 1, ["out/final.safetensors"]),
        (["saving checkpoint", "checkpoint saved", "saving checkpoint", "checkpoint saved"], 2, []),
        (["saving checkpoint", "saving checkpoint"], 2, []),
        (["saving checkpoint: out/lora-20.safetensors"], 1, ["out/lora-20.safetensors"]),
        (["checkpoint saved", "checkpoint saved"], 2, []),
        (
            ["saving checkpoint: a-1.pt", "saving checkpoint: a-2.pt", "saving checkpoint: a-2.pt"],
            2,
            ["a-1.pt", "a-2.pt"],
        ),
        (
            [
                "Saving model checkpoint to out/checkpoint-500",
                "Configuration saved in out/checkpoint-500/config.json",
                "Model weights saved in out/checkpoint-500/model.safetensors",
            ],
            1,
            ["out/checkpoint-500", "out/checkpoint-500/model.safetensors"],
        ),
        (
            [
                "Saving checkpoint to out/step_7",
                "writing to out/step_7/model-00001-of-00002.safetensors",
                "writing to out/step_7/model-00002-of-00002.safetensors",
            ],
            1,
            None,
        ),
        (
            [
                "writing to out/final/model-00001-of-00002.safetensors",
                "loss=1",
                "writing to out/final/model-00002-of-00002.safetensors",
            ],
            1,
            None,
        ),
        (["Saved state to 's3://bucket/my run/checkpoint-3'"], 1, ["s3://bucket/my run/checkpoint-3"]),
        (["Saving checkpoint at step 100", *["loss=1"] * 60, "Saved model to out/final.safetensors"], 2, None),
        (
            [
                "Loading saved model from out/model.safetensors",
                "Skipping saving checkpoint",
                "save_steps=500",
                "Failed to save checkpoint",
                "will save a checkpoint every 500 steps",
                "Loaded checkpoint a-1.pt",
            ],
            0,
            [],
        ),
        (["Saving model: 50%|# | 1/2 [00:01<00:01, 1.0it/s]", "Saving dataset to out/data.json"], 0, []),
    ]:
        found = totals(*lines)
        assert found["checkpoints_saved"] == count
        assert paths is None or found["checkpoint_paths"] == paths


def test_the_newest_paths_of_thousands_of_checkpoints_are_kept() -> None:
    found = totals(*(f"saving checkpoint: out/m-{number}.safetensors" for number in range(2500)))
    assert found["checkpoints_saved"] == 2500
    assert 500 <= len(found["checkpoint_paths"]) <= 1000
    assert found["checkpoint_paths"][-1] == "out/m-2499.safetensors"
    found = LogTotals()
    for _ in range(200):
        found.feed("y" * 100_000)
    assert sys.getsizeof(found._line) < 50_000


def test_an_error_is_reported_and_what_only_sounds_like_one_is_none() -> None:
    for line in [
        "RuntimeError: shape mismatch",
        "torch.cuda.OutOfMemoryError: CUDA out of memory.",
        "CUDA error: 700",
        "[ERROR] disk is full",
        "2030-01-01 10:00:00 ERROR trainer: no data",
        "error: unknown option",
        "3 errors found",
        "an error occurred while reading",
        "Segmentation fault (core dumped)",
        "gradient is nan",
        "KeyError: 'x'",
        "Exception in thread Thread-3:",
        "Error: 28",
        "ERROR: 0 of 8 ranks are up",
        "error: 0.5 GB left",
        "subprocess.CalledProcessError (exit status 1)",
        "Test error: no such file",
        "Train Error in worker 3",
        "error resolving host",
    ]:
        assert totals(line)["errors"] == [line]
    for line in [
        "no errors",
        "finished without any error",
        "errors: 0",
        "error=None",
        "word_error_rate: 0.12",
        "mean squared error: 0.5",
        "error: 0.25",
        "step: 3 error: 2e-3 loss: 1",
        "errors=0 warnings=0 ok=1",
        "{'error': None, 'errors': []}",
        "ignore_errors=True",
        "--on-error stop",
        "mirror of terror",
        "    raise ValueError('x')",
        "    except KeyError:",
        "error handling is on",
        "loss: 0.5 finance 3",
        "0 errors found, error_rate=0",
        "Train Error: Avg loss: 0.41",
        "Test Error: ",
        "Validation error (%): 4.2",
        "val error: accuracy 81%",
        "wandb: Network error resolved after 0:00:10, resuming normal operation.",
    ]:
        assert (totals(line)["errors"], totals(line)["warnings"]) == ([], [])
    for line in [
        "WARNING: error rate is high",
        "UserWarning: old",
        "[WARN] retry after error",
        "x.py:3: FutureWarning: old",
    ]:
        found = totals(line)
        assert (found["warnings"], found["errors"]) == ([line], [])
    found = totals("ERROR: " + "x" * 500, "ERROR: a", "ERROR: a", "no warnings", "0 warnings")
    assert [len(text) for text in found["errors"]] == [200, 8] and found["warnings"] == []
    many = totals(*(f"ERROR: rank {number}" for number in range(101)))["errors"]
    assert many == [f"ERROR: rank {number}" for number in range(51, 101)]


def test_the_gpu_utilization_and_memory_are_read() -> None:
    for line, percent in [
        ("GPU: 87%", 87.0),
        ("gpu 0 utilization: 12.5 %", 12.5),
        ("gpu_util=99", 99.0),
        ("GPU temperature 60C", None),
        ("| 30%  45C P2 200W / 300W | 12345MiB / 24564MiB |  98%  Default |", 98.0),
        ("gpu: 870%", None),
    ]:
        assert totals(line)["gpu_utilization"] == percent
    for line, memory in [
        ("VRAM: 20.5/24 GB", (20992.0, 24576.0)),
        ("GPU memory 1000 MiB / 8000 MiB", (1000.0, 8000.0)),
        ("| 30%  45C P2 200W / 300W | 12345MiB / 24564MiB |  98%  Default |", (12345.0, 24564.0)),
        ("memory used: 512MB of 1GB", (512.0, 1024.0)),
        ("RAM memory 3/4 GB", None),
        ("Downloading 1.2GB/5GB", None),
    ]:
        assert totals(line)["memory_usage"] == (None if memory is None else {"used": memory[0], "total": memory[1]})


def test_samples_are_counted() -> None:
    for lines, count in [
        (["Generating sample 1", "Sample generated", "Generating sample 2", "Saving sample image out/2.png"], 2),
        (["sample generated", "sample generated"], 2),
        (["generating baseline samples"], 1),
        ([f"Generating Images: {percent}%|#| 1/2 [00:01<00:01]" for percent in (0, 50, 100, 100)], 1),
        (["sample rate 16000", "samples per second: 3"], 0),
    ]:
        assert totals(*lines)["samples_generated"] == count


def test_totals_clean_a_line_once_as_the_newest_progress_does() -> None:
    """A tab of CatBoost becomes a space, which a second cleaning would take for the prefix of `srun --label`."""
    line = "40:\tlearn: 0.5\ttest: 0.75\ttotal: 2s\tremaining: 12.5s"
    assert totals(line)["last_step"] == parse_progress(line).step == 40
