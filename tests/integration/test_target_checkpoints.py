"""Checkpoints of a directory on this machine, in a pod through kubectl, and on a host through ssh."""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path

import pytest

from tests.integration.conftest import Place
from training_monitor.errors import CheckpointNotFound
from training_monitor.probes.checkpoints import find_latest_checkpoint, list_checkpoints


def write_safetensors(file: Path, numbers: int = 256) -> None:
    """One tensor of 32-bit floats: header length, header, data."""
    tensor = {"dtype": "F32", "shape": [numbers], "data_offsets": [0, 4 * numbers]}
    header = json.dumps({"__metadata__": {"format": "pt"}, "weight": tensor}).encode()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4 * numbers))


def write_torch(file: Path) -> None:
    """What torch.save writes: a zip archive, its end record last."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
        archive.writestr("archive/data/0", bytes(4096))
        archive.writestr("archive/version", b"3\n")


def write_checkpoint(folder: Path) -> None:
    write_safetensors(folder / "model.safetensors")
    write_torch(folder / "optimizer.pt")
    (folder / "trainer_state.json").write_text("{}")


def write_sharded(folder: Path, shards: int = 3) -> None:
    names = [f"model-{number + 1:05d}-of-{shards:05d}.safetensors" for number in range(shards)]
    for name in names:
        write_safetensors(folder / name)
    index = {"metadata": {}, "weight_map": {f"layer.{number}": name for number, name in enumerate(names)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))


def cut(file: Path, size: int = -1) -> None:
    """Leave the first `size` bytes, or all but the last ones."""
    file.write_bytes(file.read_bytes()[:size])


def problems(target: Place, folder: Path) -> dict[int, str | None]:
    return {each.step: each.problem for each in list_checkpoints(str(folder), target.address)}


@pytest.fixture
def runs(target: Place) -> Path:
    folder = target.folder / "runs"
    folder.mkdir()
    return folder


class TestCheckpoints:
    def test_the_highest_step_is_the_newest_not_the_last_name_or_time(self, target: Place, runs: Path) -> None:
        for step in (1000, 500, 90):
            write_checkpoint(runs / f"checkpoint-{step}")
        found = list_checkpoints(str(runs), target.address)
        assert [(each.step, each.complete) for each in found] == [(90, True), (500, True), (1000, True)]
        assert all(each.size_bytes > 5000 for each in found)
        assert find_latest_checkpoint(str(runs), target.address) == f"{runs}/checkpoint-1000"

    def test_a_directory_can_have_any_name(self, target: Place, runs: Path) -> None:
        folder = runs / '-it\'s "my" $(run) `x` \\ 训练 DIR'
        write_checkpoint(folder / "sub 'folder'" / "checkpoint-5")
        write_safetensors(folder / "it's a -lora_000000250.safetensors")
        cut(folder / "it's a -lora_000000250.safetensors")
        assert find_latest_checkpoint(str(folder), target.address) == f"{folder}/sub 'folder'/checkpoint-5"
        assert "truncated" in (problems(target, folder)[250] or "")

    def test_a_directory_with_a_leading_dash_is_a_directory(
        self, local: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(local.folder)
        for name in ("-P", "--help"):
            write_checkpoint(local.folder / name / "checkpoint-5")
            assert find_latest_checkpoint(name) == f"{name}/checkpoint-5"

    @pytest.mark.parametrize("size", [0, 5, 8, 60, 200, -512, -1])
    def test_a_cut_safetensors_file_is_damaged(self, local: Place, size: int) -> None:
        write_checkpoint(local.folder / "checkpoint-10")
        write_checkpoint(local.folder / "checkpoint-20")
        cut(local.folder / "checkpoint-20" / "model.safetensors", size)
        assert "model.safetensors" in (problems(local, local.folder)[20] or "")
        assert find_latest_checkpoint(str(local.folder)) == f"{local.folder}/checkpoint-10"

    @pytest.mark.parametrize("size", [0, 100, 2000, -22])
    def test_a_cut_torch_file_is_damaged(self, local: Place, size: int) -> None:
        write_torch(local.folder / "step_10.pt")
        write_torch(local.folder / "step_20.pt")
        cut(local.folder / "step_20.pt", size)
        assert "step_20.pt" in (problems(local, local.folder)[20] or "")
        assert find_latest_checkpoint(str(local.folder)) == f"{local.folder}/step_10.pt"

    @pytest.mark.parametrize(
        ("name", "begin", "problem"),
        [
            ("step_20.pt", b"", "only zeros at its start"),
            ("step_20.bin", b"", "only zeros at its start"),
            ("step_20.pth", b"\x13\x37garbage", "neither a zip archive nor a pickle"),
            ("step_20.ckpt", b"text, not weights", "neither a zip archive nor a pickle"),
            ("step_20.bin", b"\x86\xdaa format of one's own", None),
            ("step_20.pt", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", None),
            ("step_20.pt", b"\x80\x05\x95", None),
            ("step_20.ckpt", b"\x1f\x8b\x08", None),
            ("step_20.safetensors", b"garbage instead of a header", "no safetensors header"),
            ("step_20.safetensors", b"\x0a\0\0\0\0\0\0\0garbage of ten", "no safetensors header"),
        ],
    )
    def test_a_file_is_what_its_first_bytes_say(
        self, local: Place, name: str, begin: bytes, problem: str | None
    ) -> None:
        (local.folder / name).write_bytes(begin + bytes(4096))
        found = problems(local, local.folder)[20]
        assert found is None if problem is None else problem in (found or "")

    def test_bytes_behind_the_end_of_safetensors_are_named_as_that(self, local: Place) -> None:
        write_safetensors(local.folder / "step_20.safetensors")
        with (local.folder / "step_20.safetensors").open("ab") as file:
            file.write(b"more")
        assert "4 bytes too long" in (problems(local, local.folder)[20] or "")

    def test_every_damage_is_passed_over_and_named(self, target: Place, runs: Path) -> None:
        for step in (10, 20, 30, 40, 50):
            write_checkpoint(runs / f"checkpoint-{step}")
        cut(runs / "checkpoint-20" / "model.safetensors")
        cut(runs / "checkpoint-30" / "optimizer.pt", 500)
        cut(runs / "checkpoint-40" / "optimizer.pt", 0)
        (runs / "checkpoint-50" / "optimizer.pt").unlink()
        write_checkpoint(runs / "tmp-checkpoint-60")
        write_safetensors(runs / "lora-step00000070.safetensors.tmp")
        found = problems(target, runs)
        words = {20: "truncated", 30: "zip end record", 40: "empty", 50: "missing", 60: "unfinished", 70: "unfinished"}
        assert found.pop(10) is None
        assert {step: word in (found[step] or "") for step, word in words.items()} == dict.fromkeys(words, True)
        assert find_latest_checkpoint(str(runs), target.address) == f"{runs}/checkpoint-10"

    def test_a_missing_shard_is_named(self, target: Place, runs: Path) -> None:
        for step in (10, 20, 30):
            write_sharded(runs / f"checkpoint-{step}")
        missing = "model-00002-of-00003.safetensors"
        (runs / "checkpoint-20" / missing).unlink()
        (runs / "checkpoint-30" / missing).unlink()
        (runs / "checkpoint-30" / "model.safetensors.index.json").unlink()
        found = problems(target, runs)
        assert found[10] is None
        assert all("2" in (found[step] or "") and "missing" in (found[step] or "") for step in (20, 30))
        assert find_latest_checkpoint(str(runs), target.address) == f"{runs}/checkpoint-10"

    def test_a_symlink_called_latest_is_no_checkpoint_of_its_own(self, target: Place, runs: Path) -> None:
        write_checkpoint(runs / "checkpoint-10")
        write_checkpoint(runs / "checkpoint-20")
        cut(runs / "checkpoint-20" / "model.safetensors")
        (runs / "latest").symlink_to("checkpoint-20")
        (runs / "checkpoint-30").symlink_to("nowhere")
        assert list(problems(target, runs)) == [10, 20]
        assert find_latest_checkpoint(str(runs), target.address) == f"{runs}/checkpoint-10"

    def test_the_directory_itself_may_be_a_symlink(self, target: Place, runs: Path) -> None:
        write_checkpoint(runs / "real" / "checkpoint-10")
        (runs / "link").symlink_to("real")
        assert find_latest_checkpoint(f"{runs}/link", target.address) == f"{runs}/link/checkpoint-10"

    def test_a_directory_that_is_missing_or_empty_has_none(self, target: Place, runs: Path) -> None:
        for folder in (str(runs), str(runs / "nowhere")):
            assert list_checkpoints(folder, target.address) == []
            assert find_latest_checkpoint(folder, target.address) is None

    def test_only_damaged_checkpoints_are_an_error_that_says_why(self, target: Place, runs: Path) -> None:
        for step in (10, 20):
            write_checkpoint(runs / f"checkpoint-{step}")
            cut(runs / f"checkpoint-{step}" / "model.safetensors")
        with pytest.raises(CheckpointNotFound) as caught:
            find_latest_checkpoint(str(runs), target.address)
        assert "step 10" in str(caught.value) and "step 20" in str(caught.value)
        assert "truncated" in str(caught.value)
