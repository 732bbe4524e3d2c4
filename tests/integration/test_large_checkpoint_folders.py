"""Folders with more checkpoints, and checkpoints with more files, than one look can see: newest first, and what was not
seen is neither complete nor broken.

One test makes as many files as one look lists at most; the others have a tenth of that limit, and of the files.
"""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.integration.conftest import Place
from tests.integration.test_target_checkpoints import write_safetensors, write_torch
from training_monitor.checkpoints import checkpoints
from training_monitor.checkpoints.checkpoints import find_latest_checkpoint, get_checkpoint_listing
from training_monitor.cli.main import main
from training_monitor.core.results import CommandResult
from training_monitor.core.values import CheckpointListing
from training_monitor.targets.transport import LocalTransport, Stream

MANY, FEWER = 12_000, 1_200  # of two files each: more files than one look lists, at most and in most tests
STEPS, SHARDS = 60, 39  # more files than one look lists, and more in each than a first look inspects


@dataclass
class Counting:
    """The local transport, and how many bytes each command printed."""

    inner: LocalTransport = field(default_factory=LocalTransport)
    printed: list[int] = field(default_factory=list)

    def run(self, argv: Sequence[str], *, timeout: float, input: str | None = None) -> CommandResult:
        result = self.inner.run(argv, timeout=timeout, input=input)
        self.printed.append(len(result.stdout))
        return result

    def stream(self, argv: Sequence[str], *, input: str | None = None) -> Stream:
        return self.inner.stream(argv, input=input)


def look(place: Place, folder: Path) -> tuple[CheckpointListing, list[int]]:
    """The listing, and how many bytes each round trip brought. It must not need more memory than a few answers.

    Memory is measured on this machine only: that takes most of the time, and what a pod prints is the same.
    """
    transport = Counting()
    with MemoryPeak() if place.address == "local" else nullcontext() as memory:
        found = get_checkpoint_listing(str(folder), place.address, transport=transport)
    assert found and max(transport.printed) < 2 * checkpoints.MOST_BYTES
    assert memory is None or memory.peak < 25 * checkpoints.MOST_BYTES
    return found, transport.printed


class MemoryPeak:
    """How much memory of Python a block needs at most, in bytes."""

    peak = 0

    def __enter__(self) -> MemoryPeak:
        tracemalloc.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()


def judged(found: CheckpointListing) -> dict[int, bool]:
    """Whether it is complete, of each step of which that is known."""
    return {each.step: each.complete for each in found.checkpoints if each.complete is not None}


@pytest.fixture(params=["local", "in_pod"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What a small valid safetensors file holds."""
    found = tmp_path_factory.mktemp("weights") / "model.safetensors"
    write_safetensors(found, numbers=1)
    return found.read_bytes()


@pytest.fixture
def tenth(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look lists and inspects a tenth of what it does otherwise."""
    for name in ("MOST_FILES", "MOST_BYTES", "ENOUGH", "MOST"):
        monkeypatch.setattr(checkpoints, name, getattr(checkpoints, name) // 10)


def make_checkpoints(folder: Path, count: int, weights: bytes) -> Path:
    """Make checkpoints, their folders in no order."""
    folder.mkdir(exist_ok=True)
    for number in range(count):
        checkpoint = folder / f"checkpoint-{number * 7919 % count}"
        checkpoint.mkdir()
        (checkpoint / "model.safetensors").write_bytes(weights)
        (checkpoint / "trainer_state.json").write_text("{}")
    return folder


@pytest.fixture(scope="module")
def fewer(tmp_path_factory: pytest.TempPathFactory, weights: bytes) -> Path:
    return make_checkpoints(tmp_path_factory.mktemp("fewer"), FEWER, weights)


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory, weights: bytes) -> Path:
    """60 checkpoints of 40 files: shards, and their index."""
    folder = tmp_path_factory.mktemp("sharded")
    names = [f"model-{number + 1:05d}-of-{SHARDS:05d}.safetensors" for number in range(SHARDS)]
    index = {"metadata": {"total_size": 4 * SHARDS}, "weight_map": dict(zip(map(str, range(SHARDS)), names))}
    for step in (number * 7 % STEPS for number in range(STEPS)):
        checkpoint = folder / f"checkpoint-{step}"
        checkpoint.mkdir()
        (checkpoint / "model.safetensors.index.json").write_text(json.dumps(index))
        for name in names:
            (checkpoint / name).write_bytes(weights)
    return folder


class Damage:
    """Files replaced by others, until the end of a test."""

    def __init__(self, kept: Path) -> None:
        self._kept, self._files = kept, list[tuple[Path, Path]]()

    def cut(self, file: Path) -> None:
        self._put_aside(file)
        file.write_bytes((self._kept / str(len(self._files) - 1)).read_bytes()[:-1])

    def remove(self, file: Path) -> None:
        self._put_aside(file)

    def _put_aside(self, file: Path) -> None:
        kept = self._kept / str(len(self._files))
        file.rename(kept)
        self._files.append((kept, file))

    def undo(self) -> None:
        for kept, file in self._files:
            kept.replace(file)


@pytest.fixture
def damage(tmp_path: Path) -> Damage:
    (tmp_path / "kept").mkdir()
    return Damage(tmp_path / "kept")


@pytest.fixture(autouse=True)
def _undo(damage: Damage) -> object:
    yield
    damage.undo()


def look_at_newest(place: Place, folder: Path, count: int) -> None:
    found, printed = look(place, folder)
    assert found.newest_complete and found.newest_complete.path == f"{folder}/checkpoint-{count - 1}"
    assert len(printed) == 1 and found.unlooked_step is not None
    assert judged(found) == dict.fromkeys(range(found.unlooked_step + 1, count), True)
    assert found.unlisted == found.unlooked_step + 1


def test_of_12_000_checkpoints_the_newest_is_found_in_one_round_trip(
    local: Place, weights: bytes, memory_path: Path
) -> None:
    look_at_newest(local, make_checkpoints(memory_path / "many", MANY, weights), MANY)


@pytest.mark.usefixtures("tenth")
def test_of_many_checkpoints_in_a_pod_the_newest_is_found_in_one_round_trip(in_pod: Place, fewer: Path) -> None:
    look_at_newest(in_pod, fewer, FEWER)


@pytest.mark.usefixtures("tenth")
def test_the_newest_complete_of_many_checkpoints_is_found(local: Place, fewer: Path, damage: Damage) -> None:
    broken = 3 * checkpoints.ENOUGH
    for step in range(FEWER - broken, FEWER):
        damage.cut(fewer / f"checkpoint-{step}" / "model.safetensors")
    found, printed = look(local, fewer)
    known, best = judged(found), FEWER - broken - 1
    assert found.newest_complete and found.newest_complete.step == best and 1 < len(printed) <= 3
    assert {step for step in known if not known[step]} == set(range(best + 1, FEWER))


@pytest.mark.usefixtures("tenth")
def test_of_many_single_files_the_newest_is_found(local: Place, weights: bytes, memory_path: Path) -> None:
    folder = memory_path / "files"
    folder.mkdir()
    for step in range(checkpoints.MOST_FILES + 1):
        (folder / f"lora_{step:09d}.safetensors").write_bytes(weights)
    found, printed = look(local, folder)
    assert found.newest_complete and found.newest_complete.step == checkpoints.MOST_FILES and len(printed) == 1
    assert found.unlisted > 0 and all(judged(found).values())


@pytest.mark.usefixtures("tenth")
def test_of_many_sharded_checkpoints_the_newest_is_found(in_pod: Place, sharded: Path) -> None:
    found, printed = look(in_pod, sharded)
    assert found.newest_complete and found.newest_complete.path == f"{sharded}/checkpoint-{STEPS - 1}"
    assert len(printed) == 1 and judged(found) == {STEPS - 1: True} and found.unlisted == STEPS - 1


@pytest.mark.usefixtures("tenth")
@pytest.mark.parametrize(("place", "how"), [("local", "cut"), ("in_pod", "remove")], indirect=["place"])
def test_the_next_is_found_where_the_newest_sharded_one_is_incomplete(
    place: Place, sharded: Path, damage: Damage, how: str
) -> None:
    getattr(damage, how)(sharded / f"checkpoint-{STEPS - 1}" / f"model-00030-of-{SHARDS:05d}.safetensors")
    found, printed = look(place, sharded)
    assert found.newest_complete and found.newest_complete.path == f"{sharded}/checkpoint-{STEPS - 2}"
    assert len(printed) == 2 and judged(found)[STEPS - 1] is False
    assert all(complete for step, complete in judged(found).items() if step < STEPS - 1)


@pytest.mark.usefixtures("tenth")
def test_a_file_missing_since_the_previous_checkpoint_is_noticed(local: Place, sharded: Path, weights: bytes) -> None:
    extra = [sharded / f"checkpoint-{step}" / "optimizer.safetensors" for step in (STEPS - 3, STEPS - 2)]
    for each in extra:
        each.write_bytes(weights)
    found, _ = look(local, sharded)
    for each in extra:
        each.unlink()
    assert judged(found)[STEPS - 1] is False and found.newest_complete and found.newest_complete.step == STEPS - 2


@pytest.mark.usefixtures("tenth")
def test_checkpoints_of_many_rank_files_are_not_called_broken(in_pod: Place) -> None:
    folder = in_pod.folder / "ranks"
    write_torch(in_pod.folder / "rank.pt")
    for step in range(STEPS):
        (folder / f"global_step{step}").mkdir(parents=True)
        for rank in range(40):
            os.link(
                in_pod.folder / "rank.pt",
                folder / f"global_step{step}" / f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt",
            )
    found, _ = look(in_pod, folder)
    assert found.newest_complete and found.newest_complete.step == STEPS - 1 and set(judged(found).values()) == {True}


@pytest.mark.usefixtures("tenth")
def test_a_checkpoint_with_too_many_files_is_unknown(local: Place, weights: bytes) -> None:
    folder = local.folder / "runs"
    for name in ("step_1", "step_2"):
        (folder / name).mkdir(parents=True)
        (folder / name / "model.safetensors").write_bytes(weights)
    for number in range(checkpoints.MOST_FILES + 1):
        (folder / "step_2" / f"{number}.txt").touch()
    found, _ = look(local, folder)
    assert {each.step: each.complete for each in found.checkpoints} == {1: True, 2: None}
    assert found.checkpoints[-1].problem == "not inspected: it has too many files"
    assert find_latest_checkpoint(str(folder)) == f"{folder}/step_1"


def test_unseen_checkpoints_are_unknown_in_a_complete_listing_too(local: Place, weights: bytes) -> None:
    folder = local.folder / "runs"
    folder.mkdir()
    for step in range(2 * checkpoints.ENOUGH):
        (folder / f"step_{step}.safetensors").write_bytes(weights)
    found, _ = look(local, folder)
    assert found.unlisted == 0 and len(found.checkpoints) == 2 * checkpoints.ENOUGH
    assert found.newest_complete and found.newest_complete.step == 2 * checkpoints.ENOUGH - 1
    unknown = [each.problem for each in found.checkpoints if each.complete is None]
    assert len(unknown) > checkpoints.ENOUGH and set(unknown) == {
        "not inspected: newer checkpoints are inspected first"
    }


@pytest.mark.usefixtures("tenth")
def test_the_command_names_what_it_did_not_look_at(fewer: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoints", "local", str(fewer)]) == 0
    shown = capsys.readouterr().out
    assert "older checkpoints or unreadable folders, not inspected" in shown and f"* step{FEWER - 1:>10}" in shown
    assert main(["checkpoints", "local", str(fewer), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["checkpoint"]["step"] == FEWER - 1 and said["unlisted_checkpoints"] + len(said["checkpoints"]) >= FEWER
