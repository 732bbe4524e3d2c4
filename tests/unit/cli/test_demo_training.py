"""The demo's training, run for real as its own process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from statistics import mean

import pytest

from training_monitor.cli import demo_training

STEP = re.compile(r"^step (\d+)/(\d+) loss=([\d.]+) lr=([\d.]+)$", re.MULTILINE)
Ran = tuple[Path, subprocess.CompletedProcess[str]]
NO_FAULTS = ("--crash-at", "0", "--hang-at", "0")


def run_training(
    output: Path, *options: str, timeout: float = 60, resume_variable: str | None = None
) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "RESUME_FROM_CHECKPOINT"}
    if resume_variable is not None:
        environment["RESUME_FROM_CHECKPOINT"] = resume_variable
    words = [sys.executable, demo_training.__file__, "--output", str(output), "--step-seconds", "0", *options]
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=timeout, check=False)


def printed_steps(output: str) -> list[int]:
    return [int(step) for step, *_ in STEP.findall(output)]


def is_complete(file: Path) -> bool:
    """By the safetensors format alone: header and data cover the file exactly."""
    raw = file.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    try:
        header = json.loads(raw[8 : 8 + length])
    except ValueError:
        return False
    metadata = header.pop("__metadata__")
    assert all(isinstance(value, str) for value in metadata.values())
    return len(raw) == 8 + length + max(int(tensor["data_offsets"][1]) for tensor in header.values())


def checkpoints(output: Path) -> dict[str, bool]:
    """Folder name -> complete."""
    return {file.parent.name: is_complete(file) for file in output.glob("step_*/model.safetensors")}


def weights_of(output: Path, step: int) -> bytes:
    return (output / f"step_{step}" / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    output = tmp_path_factory.mktemp("uninterrupted")
    return output, run_training(output, *NO_FAULTS)


@pytest.fixture
def crashed(tmp_path: Path) -> Ran:
    output = tmp_path / "output"
    return output, run_training(output, "--hang-at", "0")


def test_it_trains_to_the_end_and_the_loss_falls(uninterrupted: Ran) -> None:
    output, finished = uninterrupted
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.splitlines()[-1] == "Training completed at step 200"
    assert printed_steps(finished.stdout) == list(range(1, 201))
    losses = [float(loss) for _, _, loss, _ in STEP.findall(finished.stdout)]
    tenths = [mean(losses[start : start + 40]) for start in range(0, 200, 40)]
    assert tenths == sorted(tenths, reverse=True)
    assert tenths[-1] < tenths[0] / 5
    assert checkpoints(output) == {f"step_{step}": True for step in range(20, 201, 20)}
    assert not list(output.glob(".*")), "nothing temporary is left"
    raw = weights_of(uninterrupted[0], 40)
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    assert header["__metadata__"]["step"] == "40"
    assert header["hidden.bias"]["dtype"] == "F32"
    begin, end = header["hidden.bias"]["data_offsets"]
    assert end - begin == 4 * header["hidden.bias"]["shape"][0]


def test_a_crash_leaves_one_truncated_checkpoint_after_the_complete_ones(crashed: Ran) -> None:
    output, failed = crashed
    assert failed.returncode == 1
    assert "Traceback (most recent call last):" in failed.stderr
    assert "RuntimeError: CUDA error: uncorrectable ECC error" in failed.stderr.splitlines()[-1]
    assert checkpoints(output) == {"step_20": True, "step_40": True, "step_60": True, "step_70": False}
    assert printed_steps(failed.stdout)[-1] == 70


def test_a_truncated_or_missing_checkpoint_is_refused(crashed: Ran, tmp_path: Path) -> None:
    output, _ = crashed
    refused = run_training(output, *NO_FAULTS, "--resume", str(output / "step_70"))
    assert refused.returncode == 2
    assert re.search(r"Refusing to resume: .*step_70.* is truncated .*\d+ bytes instead of \d+", refused.stderr)
    assert "Traceback" not in refused.stderr
    assert printed_steps(refused.stdout) == []
    refused = run_training(tmp_path / "output", *NO_FAULTS, "--resume", str(tmp_path / "step_9"))
    assert refused.returncode == 2
    assert "cannot read" in refused.stderr


@pytest.mark.parametrize("kept", [0, 5, 40, -1], ids=["empty", "no length", "cut header", "one byte short"])
def test_any_cut_is_refused(tmp_path: Path, uninterrupted: Ran, kept: int) -> None:
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(weights_of(uninterrupted[0], 20)[:kept])
    refused = run_training(tmp_path / "output", *NO_FAULTS, "--resume", str(cut))
    assert (refused.returncode, "truncated" in refused.stderr) == (2, True)


def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(crashed: Ran, uninterrupted: Ran) -> None:
    output, _ = crashed
    resumed = run_training(output, "--hang-at", "0", "--resume", str(output / "step_60"))
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout.splitlines()[0] == f"Resuming from {output / 'step_60'} at step 60"
    assert printed_steps(resumed.stdout) == list(range(61, 201)), "the crash at 70 happens once"
    assert weights_of(output, 200) == weights_of(uninterrupted[0], 200)


def test_the_argument_wins_over_the_environment(crashed: Ran) -> None:
    output, _ = crashed
    short = (*NO_FAULTS, "--steps", "61")
    from_variable = run_training(output, *short, resume_variable=str(output / "step_40"))
    assert printed_steps(from_variable.stdout)[0] == 41
    named = ("--resume", str(output / "step_60"))
    from_argument = run_training(output, *short, *named, resume_variable=str(output / "step_40"))
    assert printed_steps(from_argument.stdout) == [61]


def test_a_hang_is_silent_until_sigterm_and_happens_once(tmp_path: Path) -> None:
    options = ("--crash-at", "0", "--hang-at", "5", "--steps", "10", "--save-every", "4")
    hanging = subprocess.Popen(
        [sys.executable, demo_training.__file__, "--output", str(tmp_path), "--step-seconds", "0", *options],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert hanging.stdout is not None
    lines = iter(hanging.stdout.readline, "")
    assert any(line.startswith("step 5/") for line in lines)
    with pytest.raises(subprocess.TimeoutExpired):
        hanging.wait(timeout=0.3)
    hanging.terminate()
    rest, _ = hanging.communicate(timeout=10)
    assert (hanging.returncode, rest) == (-15, "")
    again = run_training(tmp_path, *options, "--resume", str(tmp_path / "step_4"))
    assert again.stdout.splitlines()[-1] == "Training completed at step 10"


def test_faults_can_be_switched_off_and_numbers_chosen(tmp_path: Path) -> None:
    finished = run_training(tmp_path, *NO_FAULTS, "--steps", "7", "--save-every", "3")
    assert finished.returncode == 0
    assert checkpoints(tmp_path) == {"step_3": True, "step_6": True, "step_7": True}
