"""Checkpoints of a directory on this machine, in a pod through kubectl, and on a host through ssh."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import struct
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.integration.conftest import Place
from tests.requirements import require
from training_monitor.checkpoints.checkpoints import (
    ENOUGH,
    checkpoints_question,
    find_latest_checkpoint,
    list_checkpoints,
)
from training_monitor.core.errors import CheckpointNotFound

KINDS = ("over_ssh",)  # of targets: what a shell does is the same on all


def write_safetensors(file: Path, numbers: int = 256, **metadata: str) -> None:
    """One tensor of 32-bit floats: header length, header, data."""
    tensor = {"dtype": "F32", "shape": [numbers], "data_offsets": [0, 4 * numbers]}
    header = json.dumps({"__metadata__": {"format": "pt"} | metadata, "weight": tensor}).encode()
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


def write_sharded(folder: Path, shards: int = 3, total: int = 3072) -> None:
    names = [f"model-{number + 1:05d}-of-{shards:05d}.safetensors" for number in range(shards)]
    for name in names:
        write_safetensors(folder / name)
    index = {
        "metadata": {"total_size": total},
        "weight_map": {f"layer.{number}": name for number, name in enumerate(names)},
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))


def cut(file: Path, size: int = -1) -> None:
    """Leave the first `size` bytes, or all but the last ones."""
    file.write_bytes(file.read_bytes()[:size])


def write_deepspeed(folder: Path, step: int, ranks: int = 4) -> None:
    (folder / "latest").parent.mkdir(parents=True, exist_ok=True)
    for rank in range(ranks):
        write_torch(folder / f"global_step{step}" / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
    write_torch(folder / f"global_step{step}" / "mp_rank_00_model_states.pt")
    (folder / "latest").write_text(f"global_step{step}")


def make_hole(file: Path, size: int = 1_000_000) -> None:
    """What a writer leaves that reserved the size, wrote both ends, and died: a zip archive of the right size."""
    write_torch(file)
    archive = file.read_bytes()
    with file.open("wb") as out:
        out.write(archive[:2000])
        out.seek(size)
        out.write(archive[2000:])


def counts_blocks(folder: Path) -> bool:
    command = ["stat", "-f", "-c", "%T", str(folder)]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return found in ("ext2/ext3", "xfs", "tmpfs")


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

    def test_a_cut_safetensors_file_is_damaged(self, local: Place) -> None:
        sizes = (0, 5, 8, 60, 200, -512, -1)
        for step in range(10, 20 + len(sizes)):
            write_checkpoint(local.folder / f"checkpoint-{step}")
        for step, size in enumerate(sizes, 20):
            cut(local.folder / f"checkpoint-{step}" / "model.safetensors", size)
        found = problems(local, local.folder)
        assert all("model.safetensors" in (found[step] or "") for step, _ in enumerate(sizes, 20)), found
        assert find_latest_checkpoint(str(local.folder)) == f"{local.folder}/checkpoint-19"

    def test_a_cut_torch_file_is_damaged(self, local: Place) -> None:
        for step, size in enumerate((0, 100, 2000, -22), 20):
            write_torch(local.folder / "step_10.pt")
            write_torch(local.folder / f"step_{step}.pt")
            cut(local.folder / f"step_{step}.pt", size)
            assert f"step_{step}.pt" in (problems(local, local.folder)[step] or ""), size
        assert find_latest_checkpoint(str(local.folder)) == f"{local.folder}/step_10.pt"

    def test_a_file_is_what_its_first_bytes_say(self, local: Place) -> None:
        for number, (name, begin, problem) in enumerate(
            (
                ("step_20.pt", b"", "only zeros at its start"),
                ("step_20.bin", b"", "only zeros at its start"),
                ("step_20.pth", b"\x13\x37garbage", "neither a zip archive nor a pickle"),
                ("step_20.ckpt", b"text, not weights", "neither a zip archive nor a pickle"),
                ("step_20.bin", b"\x86\xdaa format of one's own", None),
                ("step_20.pt", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", None),
                ("step_20.pt", b"\x80\x05\x95", "truncated: no end of the pickle"),
                ("step_20.pkl", pickle.dumps(bytes(5000)), None),
                ("step_20.pkl", pickle.dumps(bytes(5000))[:4999], "truncated: no end of the pickle"),
                ("step_20.bin", b"\x80\x02 a format of one's own", None),
                ("step_20.ckpt", b"\x1f\x8b\x08", None),
                ("step_20.safetensors", b"garbage instead of a header", "no safetensors header"),
                ("step_20.safetensors", b"\x0a\0\0\0\0\0\0\0garbage of ten", "no safetensors header"),
            )
        ):
            folder = local.folder / str(number)
            folder.mkdir()
            (folder / name).write_bytes(begin.ljust(4096, b"\0"))
            found = problems(local, folder)[20]
            assert found is None if problem is None else problem in (found or ""), (name, begin)

    @pytest.mark.parametrize(("version", "at"), [(0, 40), (3, 28)])
    def test_a_cut_hdf5_file_is_damaged(self, local: Place, version: int, at: int) -> None:
        content = (b"\x89HDF\r\n\x1a\n" + bytes([version])).ljust(at, b"\0") + struct.pack("<Q", 4096)
        for epoch in (10, 20):
            (local.folder / f"ckpt-epoch-{epoch}.weights.h5").write_bytes(content.ljust(4096 if epoch == 10 else 3000))
        found = problems(local, local.folder)
        assert found[10] is None and "truncated: 3000 of 4096 bytes" in (found[20] or "")

    def test_a_file_that_the_metadata_of_torch_lists_is_missed(self, local: Place) -> None:
        names = [f"__{rank}_{part}.distcp" for rank in range(4) for part in range(2)]
        for step in (10, 20):
            (folder := local.folder / f"step-{step}").mkdir()
            (folder / ".metadata").write_bytes(b"\x80\x02(X" + b"\0\n\xff".join(map(str.encode, names)) + b"u.")
            for name in names:
                write_torch(folder / name)
        (local.folder / "step-20" / names[-1]).unlink()
        found = problems(local, local.folder)
        assert found[10] is None and "__3_1.distcp is missing" in (found[20] or "")

    @pytest.mark.parametrize("name", ["trainer_state.json", "model.safetensors.index.json"])
    def test_a_cut_json_file_is_damaged(self, local: Place, name: str) -> None:
        for step in (10, 20):
            write_checkpoint(local.folder / f"checkpoint-{step}")
            (local.folder / f"checkpoint-{step}" / name).write_text(
                '{"a": 1,\n "b": {}\n}\n' if step == 10 else '{"a": 1,'
            )
        found = problems(local, local.folder)
        assert found[10] is None and "no closing brace" in (found[20] or "")

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

    def test_a_symlink_called_latest_is_no_checkpoint_of_its_own(self, target: Place, runs: Path) -> None:
        write_checkpoint(runs / "checkpoint-10")
        write_checkpoint(runs / "checkpoint-20")
        cut(runs / "checkpoint-20" / "model.safetensors")
        (runs / "latest").symlink_to("checkpoint-20")
        (runs / "LAST").symlink_to("checkpoint-50")
        (runs / "checkpoint-30").symlink_to("nowhere")
        (runs / "checkpoint-40").symlink_to("../elsewhere")
        write_checkpoint(runs.parent / "elsewhere")
        assert list(problems(target, runs)) == [10, 20, 40, 50] and "symbolic link" in (
            problems(target, runs)[40] or ""
        )
        assert find_latest_checkpoint(str(runs), target.address) == f"{runs}/checkpoint-10"

    def test_the_directory_itself_may_be_a_symlink(self, target: Place, runs: Path) -> None:
        write_checkpoint(runs / "real" / "checkpoint-10")
        (runs / "link").symlink_to("real")
        assert find_latest_checkpoint(f"{runs}/link", target.address) == f"{runs}/link/checkpoint-10"

    def test_only_damaged_checkpoints_are_an_error_that_says_why(self, target: Place, runs: Path) -> None:
        for step in (10, 20):
            write_checkpoint(runs / f"checkpoint-{step}")
            cut(runs / f"checkpoint-{step}" / "model.safetensors")
        with pytest.raises(CheckpointNotFound) as caught:
            find_latest_checkpoint(str(runs), target.address)
        assert "step 10" in str(caught.value) and "step 20" in str(caught.value)
        assert "truncated" in str(caught.value)

    def test_the_ranks_of_deepspeed_and_its_tracker_file(self, target: Place, runs: Path) -> None:
        for step in (10, 20, 30, 40):
            write_deepspeed(runs, step)
        (runs / "latest").write_text("global_step30\n")
        (runs / "global_step20" / "bf16_zero_pp_rank_2_mp_rank_00_optim_states.pt").unlink()
        cut(runs / "global_step30" / "bf16_zero_pp_rank_3_mp_rank_00_optim_states.pt", 1000)
        found = problems(target, runs)
        words = {20: "3 of 4 files", 30: "zip end record", 40: "newer than the one named"}
        assert found.pop(10) is None
        assert {step: word in (found[step] or "") for step, word in words.items()} == dict.fromkeys(words, True)
        (runs / "latest").write_text("global_step50")
        assert problems(target, runs)[50] == "latest names global_step50, which does not exist"
        assert find_latest_checkpoint(str(runs), target.address) == f"{runs}/global_step40"

    @pytest.mark.parametrize("tracker", ["latest_checkpointed_iteration.txt", "last_checkpoint", "latest-rank0.pt"])
    def test_a_tracker_that_names_what_is_missing(self, target: Place, runs: Path, tracker: str) -> None:
        if tracker == "latest-rank0.pt":
            for rank in (0, 1):
                write_torch(runs / f"ep1-ba100-rank{rank}.pt")
            (runs / tracker).symlink_to("ep1-ba200-rank0.pt")
        else:
            write_torch(runs / ("iter_0000100" if tracker.endswith(".txt") else "") / "iter_100.pth")
            (runs / tracker).write_text("200" if tracker.endswith(".txt") else "/gone/work_dirs/iter_200.pth")
        found = problems(target, runs)
        assert found[100] is None and f"{tracker} names" in (found[200] or "")
        newest = find_latest_checkpoint(str(runs), target.address) or ""
        assert newest.startswith(f"{runs}/") and "100" in newest and "rank1" not in newest

    def test_the_step_of_a_header_or_of_a_state_file(self, target: Place, runs: Path) -> None:
        write_safetensors(runs / "kohya-000004.safetensors", ss_steps="2000", ss_epoch="4")
        write_safetensors(runs / "kohya-000004-state" / "model.safetensors")
        (runs / "kohya-000004-state" / "train_state.json").write_text('{"current_epoch": 4, "current_step": 2000}')
        write_safetensors(runs / "tool_000000250.safetensors", training_info=json.dumps({"step": 250, "epoch": 1}))
        write_safetensors(runs / "tool.safetensors", training_info=json.dumps({"epoch": 9, "step": 3000}))
        write_safetensors(runs / "base.safetensors", ss_steps="9000", software=json.dumps({"name": "x"}))
        found = [(each.path.rpartition("/")[2], each.step) for each in list_checkpoints(str(runs), target.address)]
        steps = {"tool_000000250.safetensors": 250, "kohya-000004.safetensors": 2000, "kohya-000004-state": 2000}
        assert found == [*steps.items(), ("tool.safetensors", 3000)]

    @pytest.mark.parametrize("name", ["weights/last.pt", "model_final.pth", "final_model.zip"])
    def test_what_is_overwritten_in_place_is_the_last_resort(self, local: Place, name: str) -> None:
        write_torch(local.folder / "runs" / name)
        runs = local.folder / "runs"
        assert find_latest_checkpoint(str(runs)) == f"{runs}/{name}"
        write_torch(runs / "step_5.pt")
        assert find_latest_checkpoint(str(runs)) == f"{runs}/step_5.pt"
        (runs / "step_5.pt").unlink()
        cut(runs / name, 2000)
        with pytest.raises(CheckpointNotFound, match="zip end record"):
            find_latest_checkpoint(str(runs))

    def test_zip_archives_of_other_names_are_looked_into(self, local: Place) -> None:
        names = {7: "checkpoint-7.pth.tar", 8: "rl_model_8_steps.zip", 9: "step_9.npz"}
        for name in names.values():
            write_torch(local.folder / name)
        assert problems(local, local.folder) == dict.fromkeys(names)
        for name in names.values():
            cut(local.folder / name, 2000)
        assert all("zip end record" in (each or "") for each in problems(local, local.folder).values())

    def test_the_bytes_of_all_shards_against_the_index(self, target: Place, runs: Path) -> None:
        write_sharded(runs / "checkpoint-10")
        write_sharded(runs / "checkpoint-20", total=300_000)
        found = problems(target, runs)
        assert found[10] is None and "says 300000" in (found[20] or "")

    def test_a_file_with_a_hole_is_damaged(self, target: Place, runs: Path) -> None:
        if not counts_blocks(runs):
            pytest.skip("blocks tell nothing on this file system")
        for step in (10, 20):
            (runs / f"step_{step}").mkdir()
            (runs / f"step_{step}" / "model.pt").write_bytes(b"\x80\x02" + bytes(1_000_000) + b".")
        make_hole(runs / "step_20" / "model.pt")
        found = problems(target, runs)
        assert found[10] is None and "are on disk" in (found[20] or "")

    def test_no_name_of_a_file_or_folder_forges_another_checkpoint(self, target: Place, runs: Path) -> None:
        for name in ("x\nfile 9 9 .", "y\\nfile 9 9 .", "z&|\\0"):
            (runs / name / "step_999").mkdir(parents=True)
            (runs / name / "step_999" / "a.pt").write_bytes(b"not torch")
            write_sharded(runs / name / "step_5")
        (runs / "latest-rank0.pt").symlink_to("x\nfile 9 9 ./step_998/a.pt")
        found = list_checkpoints(str(runs), target.address)
        assert sorted({each.path for each in found if each.complete}) == [
            f"{runs}/y\\nfile 9 9 ./step_5",
            f"{runs}/z&|\\0/step_5",
        ]

    def test_the_highest_steps_are_looked_into_however_old_they_are(self, local: Place) -> None:
        write_torch(local.folder / "step_100000.pt")
        cut(local.folder / "step_100000.pt", 500)
        os.utime(local.folder / "step_100000.pt", (1, 1))
        for step in range(ENOUGH + 20):
            (local.folder / f"step_{step}.pt").write_bytes(b"\x80\x02K\x01.")
        assert "zip end record" in (problems(local, local.folder)[100000] or "")


def test_the_tools_of_busybox_list_the_same(tmp_path: Path) -> None:
    busybox, folder = require("busybox"), tmp_path / "runs"
    for step in range(3):
        write_checkpoint(folder / f"checkpoint-{step}")
    write_safetensors(folder / "1234" / "ckpt-7" / "model.safetensors", ss_steps="7")
    write_safetensors(folder / "lora.safetensors", ss_steps="9")
    (folder / "latest").write_text("checkpoint-2")
    (folder / "latest-rank0").symlink_to("nowhere")
    (tmp_path / "bin").mkdir()
    for name in subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split():
        (tmp_path / "bin" / name).symlink_to(busybox)
    said = []
    for tools in (os.defpath, str(tmp_path / "bin")):
        script = checkpoints_question(str(folder)).script
        environment = {"PATH": tools, "LC_ALL": "C"}
        shell = shutil.which("sh", path=tools)
        found = subprocess.run([str(shell), "-s"], input=script, capture_output=True, text=True, env=environment)
        said.append(sorted(line for line in found.stdout.splitlines() if not line.startswith(("now ", "link "))))
    assert said[0] == said[1] and any(line.startswith("looked ") for line in said[0])


def test_a_missing_folder_on_this_machine_is_an_error_without_head_pod(tmp_path: Path) -> None:
    missing = str(tmp_path / "nowhere")
    with pytest.raises(CheckpointNotFound, match="head_pod="):
        find_latest_checkpoint(missing)
    assert find_latest_checkpoint(missing, "local") is None
