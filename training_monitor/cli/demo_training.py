"""The training that the demo supervises: a small network that really learns, crashes once and hangs once.

Self-contained, so that it can be copied to any machine with Python 3.10 or later:

    python3 demo_training.py --output DIR [--crash-at 70] [--hang-at 130] [--resume DIR/step_60]

It fits sin(3x) with a two-layer network by SGD, prints one line per step and writes safetensors checkpoints.
Without --resume it uses the environment variable RESUME_FROM_CHECKPOINT.
Weights are float32 throughout and batches depend only on the step, so a resumed run ends with the very same weights.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import struct
import sys
import threading
import time
from array import array
from pathlib import Path

HIDDEN = 48
BATCH = 32
LEARNING_RATE = 0.02
SHAPES = {"hidden.weight": [HIDDEN, 1], "hidden.bias": [HIDDEN], "output.weight": [1, HIDDEN], "output.bias": [1]}

Weights = dict[str, "array[float]"]


class BadCheckpoint(Exception):
    """The checkpoint to resume from is missing, truncated or of another model."""


def new_weights(seed: int = 7) -> Weights:
    rng = random.Random(seed)
    limits = {name: 3.0 if name.startswith("hidden") else 0.5 for name in SHAPES}
    return {
        name: array("f", (rng.uniform(-1, 1) * limits[name] for _ in range(math.prod(shape))))
        for name, shape in SHAPES.items()
    }


def train_step(weights: Weights, step: int) -> float:
    """Do one SGD step on the batch of `step`, in place, and return the loss before the update."""
    rng, loss = random.Random(step), 0.0
    w1, b1, w2, b2 = parameters = [weights[name] for name in SHAPES]
    d_w1, d_b1, d_w2, d_b2 = gradients = [[0.0] * len(values) for values in parameters]
    for _ in range(BATCH):
        x = rng.uniform(-1, 1)
        activations = [math.tanh(w1[unit] * x + b1[unit]) for unit in range(HIDDEN)]
        error = sum(w2[unit] * activations[unit] for unit in range(HIDDEN)) + b2[0] - math.sin(3 * x)
        loss += error * error / BATCH
        slope = 2 * error / BATCH
        for unit, activation in enumerate(activations):
            back = slope * w2[unit] * (1 - activation * activation)
            d_w1[unit] += back * x
            d_b1[unit] += back
            d_w2[unit] += slope * activation
        d_b2[0] += slope
    for values, gradient in zip(parameters, gradients, strict=True):
        for index, change in enumerate(gradient):
            values[index] -= LEARNING_RATE * change
    return loss


def encode_checkpoint(weights: Weights, step: int) -> bytes:
    """Encode as safetensors: 8 bytes little-endian header length, JSON header, float32 data."""
    header: dict[str, object] = {"__metadata__": {"step": str(step), "model": "demo"}}
    data = b""
    for name, values in weights.items():
        raw = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": SHAPES[name], "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def save_checkpoint(output: Path, weights: Weights, step: int) -> None:
    """Save atomically: write under a temporary name, then rename."""
    folder, temporary = output / f"step_{step}", output / f".step_{step}.tmp"
    with temporary.open("wb") as file:
        file.write(encode_checkpoint(weights, step))
        file.flush()
        os.fsync(file.fileno())
    folder.mkdir(exist_ok=True)
    os.replace(temporary, folder / "model.safetensors")
    print(f"Saved checkpoint to {folder}", flush=True)


def load_checkpoint(path: Path) -> tuple[Weights, int]:
    """Load weights and step of a `step_N` folder or a file. Raises BadCheckpoint."""
    file = path / "model.safetensors" if path.is_dir() else path
    try:
        raw = file.read_bytes()
        body = 8 + int.from_bytes(raw[:8], "little")
        if len(raw) < max(9, body):
            raise BadCheckpoint(f"{file} is truncated within its header ({len(raw)} bytes)")
        header = json.loads(raw[8:body])
        step, spans = int(header["__metadata__"]["step"]), {name: header[name]["data_offsets"] for name in SHAPES}
        expected = body + max(end for _, end in spans.values())
        if len(raw) != expected:
            raise BadCheckpoint(f"{file} is truncated or damaged: {len(raw)} bytes instead of {expected}")
        unpack = {name: f"<{math.prod(shape)}f" for name, shape in SHAPES.items()}
        data = raw[body:]
        return {name: array("f", struct.unpack(unpack[name], data[slice(*spans[name])])) for name in SHAPES}, step
    except OSError as error:
        raise BadCheckpoint(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise BadCheckpoint(f"{file} is not a checkpoint of this model: {error!r}") from error


def first_time(marker: Path) -> bool:
    """Return True once per output folder, remembered by the marker file."""
    seen = marker.exists()
    marker.touch()
    return not seen


def crash(output: Path, weights: Weights, step: int) -> None:
    """Die in the middle of a save: half a checkpoint under its final name, then an uncaught error."""
    data, folder = encode_checkpoint(weights, step), output / f"step_{step}"
    folder.mkdir(exist_ok=True)
    (folder / "model.safetensors").write_bytes(data[: len(data) // 2])
    raise RuntimeError(
        f"CUDA error: uncorrectable ECC error encountered (device 0, step {step}): "
        "the gradient all-reduce was lost and the NCCL communicator aborted [injected by the demo]"
    )


def hang() -> None:
    """Stay alive and silent, like a collective that waits for a lost rank; SIGTERM ends it."""
    while True:
        time.sleep(3600)


def end_with(process: int) -> None:
    """End this training, also in a hang, soon after that process has ended."""

    def watch() -> None:
        while True:
            time.sleep(0.5)
            try:
                os.kill(process, 0)
            except ProcessLookupError:
                os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def train(options: argparse.Namespace, weights: Weights, start: int) -> None:
    for step in range(start + 1, options.steps + 1):
        loss = train_step(weights, step)
        print(f"step {step}/{options.steps} loss={loss:.4f} lr={LEARNING_RATE:g}", flush=True)
        if step == options.crash_at and first_time(options.output / ".crashed"):
            crash(options.output, weights, step)
        if step == options.hang_at and first_time(options.output / ".hung"):
            hang()
        if step % max(1, options.save_every) == 0 or step == options.steps:
            save_checkpoint(options.output, weights, step)
        time.sleep(options.step_seconds)
    print(f"Training completed at step {max(start, options.steps)}", flush=True)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A small training run that crashes once and hangs once.")
    parser.add_argument("--output", type=Path, required=True, help="where checkpoints go")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--step-seconds", type=float, default=0.03, help="pause after each step")
    parser.add_argument("--save-every", type=int, default=20, help="steps between checkpoints")
    parser.add_argument("--crash-at", type=int, default=70, help="step at which to crash once (0: never)")
    parser.add_argument("--hang-at", type=int, default=130, help="step of the one hang, 0 for none")
    parser.add_argument("--resume", default=os.environ.get("RESUME_FROM_CHECKPOINT"), help="checkpoint folder or file")
    parser.add_argument("--end-with", type=int, metavar="PID", help="end when that process does")
    return parser.parse_args()


def main() -> int:
    options = parse_options()
    options.output.mkdir(parents=True, exist_ok=True)
    if options.end_with:
        end_with(options.end_with)
    weights, start = new_weights(), 0
    if options.resume:
        try:
            weights, start = load_checkpoint(Path(options.resume))
        except BadCheckpoint as error:
            print(f"Refusing to resume: {error}", file=sys.stderr)
            return 2
        print(f"Resuming from {options.resume} at step {start}", flush=True)
    train(options, weights, start)
    return 0


if __name__ == "__main__":
    sys.exit(main())
