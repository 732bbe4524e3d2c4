"""Which steps a listing holds, and which checkpoints are complete: every layout, every reason, hostile names."""

from __future__ import annotations

import pytest

from training_monitor.errors import ParseError
from training_monitor.models import Checkpoint
from training_monitor.parse.checkpoint_files import group_checkpoints, parse_listing


def listing(*files: str, size: int = 100, more: str = "", now: int = 2000, time: int = 1000) -> str:
    """A reply with these files, each of `size` bytes unless it says `SIZE:path`."""
    lines = []
    for file in files:
        given, colon, path = file.partition(":") if file.partition(":")[0].isdigit() else ("", ":", file)
        lines.append(f"file {given or size} {time} ./{path}")
    return "\n".join(["state=there", f"now {now}", *lines, more])


def read(*files: str, more: str = "", **options: int) -> list[Checkpoint]:
    found = parse_listing(listing(*files, more=more))
    assert found is not None
    return group_checkpoints(found, "/c", **options)


def shown(*files: str, more: str = "") -> list[tuple[str, int, str | None]]:
    return [(each.path, each.step, each.problem) for each in read(*files, more=more)]


def problem(*files: str, more: str = "") -> str | None:
    """The problem of the last checkpoint."""
    last = read(*files, more=more)[-1]
    assert last.complete == (last.problem is None)
    return last.problem


# ---------------------------------------------------------------- layouts


@pytest.mark.parametrize(
    ("file", "root", "step"),
    [
        ("step_500/model.pt", "step_500", 500),
        ("step-500/model.pt", "step-500", 500),
        ("global_step_500/actor/model_world_size_8_rank_0.pt", "global_step_500", 500),
        ("global_step500/mp_rank_00_model_states.pt", "global_step500", 500),
        ("checkpoint-500/model.safetensors", "checkpoint-500", 500),
        ("checkpoint-500/global_step500/zero_pp_rank_0.pt", "checkpoint-500", 500),
        ("iter_0000500/mp_rank_00/model_optim_rng.pt", "iter_0000500", 500),
        ("iter_0000500/__0_0.pt", "iter_0000500", 500),
        ("500/default/data.bin", "500", 500),
        ("my-run/step_500/model.pt", "my-run/step_500", 500),
        ("lightning_logs/version_0/checkpoints/epoch=1-step=500.ckpt",) * 2 + (500,),
        ("epoch=1-step=500.ckpt", "epoch=1-step=500.ckpt", 500),
        ("epoch_3/model.pt", "epoch_3", 3),
        ("my_lora_000000500.safetensors", "my_lora_000000500.safetensors", 500),
        ("my-lora-step00000500.safetensors", "my-lora-step00000500.safetensors", 500),
        ("my-lora-000010.safetensors", "my-lora-000010.safetensors", 10),
        ("model_500.pth", "model_500.pth", 500),
        ("ckpt-50.pt", "ckpt-50.pt", 50),
        ("step_500.safetensors", "step_500.safetensors", 500),
        ("a folder/step_500/model.pt", "a folder/step_500", 500),
    ],
)
def test_every_usual_name_is_understood(file: str, root: str, step: int) -> None:
    assert shown(file) == [(f"/c/{root}", step, None)]


@pytest.mark.parametrize(
    "file",
    [
        "config.json",
        "README.md",
        "model.safetensors",
        "last.ckpt",
        "best.pt",
        "model-00001-of-00005.safetensors",
        "runs/events.out.tfevents.1700000000.host",
        "logs/version_0/hparams.yaml",
        "checkpoints/config.yaml",
        "stepping/x.pt",
        "v2/model.pt",
        "train_500.log",
    ],
)
def test_what_carries_no_step_is_no_checkpoint(file: str) -> None:
    assert shown(file) == []


def test_steps_are_numbers_and_never_sorted_as_text() -> None:
    found = shown("step_1000/a.pt", "step_90/a.pt", "step_200/a.pt")
    assert [step for _, step, _ in found] == [90, 200, 1000]


def test_times_do_not_decide_the_order() -> None:
    text = "state=there\nnow 9\nfile 1 900 ./step_1/a.pt\nfile 1 100 ./step_2/a.pt"
    found = parse_listing(text)
    assert found and [each.step for each in group_checkpoints(found, "/c")] == [1, 2]


def test_the_size_is_the_sum_of_its_files_and_the_path_has_no_double_slash() -> None:
    found = parse_listing(listing("10:step_5/a.pt", "20:step_5/b/c.json"))
    assert found and group_checkpoints(found, "/c/") == [Checkpoint("/c/step_5", 5, 30, True)]


def test_an_empty_directory_has_none_and_a_missing_one_is_told_apart() -> None:
    assert read() == []
    assert parse_listing("state=missing\n") is None


@pytest.mark.parametrize("text", ["", "sh: syntax error", "state=no permission to enter it", "state=not a directory"])
def test_a_directory_that_could_not_be_read_is_an_error_and_not_empty(text: str) -> None:
    with pytest.raises(ParseError, match="checkpoint directory"):
        parse_listing(text)


# ---------------------------------------------------------------- refusals

GOOD = "step_1/model.safetensors"


@pytest.mark.parametrize(
    "reason", ["truncated:_474_of_948_bytes", "truncated:_no_zip_end_record", "no_safetensors_header"]
)
def test_what_a_look_at_the_bytes_found_is_the_reason(reason: str) -> None:
    found = problem(GOOD, "step_2/model.safetensors", more=f"bad {reason} ./step_2/model.safetensors")
    assert found == f"step_2/model.safetensors: {reason.replace('_', ' ')}"


def test_damage_of_one_checkpoint_is_not_that_of_another() -> None:
    found = shown(GOOD, "step_2/model.safetensors", more="bad truncated ./step_1/model.safetensors")
    assert [reason is None for _, _, reason in found] == [False, True]


@pytest.mark.parametrize("name", ["model.safetensors", "model.pt", "x.ckpt", "x.bin", "__0_0.distcp", "optimizer.pth"])
def test_an_empty_weights_file_is_refused(name: str) -> None:
    assert problem("step_5/config.json", f"0:step_5/{name}") == f"step_5/{name}: empty file"


def test_a_folder_with_only_empty_files_is_refused_but_one_empty_marker_is_fine() -> None:
    assert problem("0:step_5/done", "0:step_5/x.json") == "only empty files"
    assert problem("0:step_5/done", "step_5/x.pt") is None


@pytest.mark.parametrize(
    "files",
    [
        ("tmp-checkpoint-500/model.pt",),
        ("checkpoint-500.tmp/model.pt",),
        ("checkpoint-500-tmp/model.pt",),
        ("500.orbax-checkpoint-tmp-1712345678/a.bin",),
        ("step_500-unfinished/model.pt",),
        ("step_500/model.pt.tmp", "step_500/config.json"),
        ("step_500/model.safetensors.part", "step_500/config.json"),
        ("step_500/model.safetensors.incomplete", "step_500/config.json"),
        ("step_500.safetensors.tmp",),
        ("step_500.pt.part",),
    ],
)
def test_a_temporary_name_is_refused_with_its_step(files: tuple[str, ...]) -> None:
    [(_, step, reason)] = shown(*files)
    assert step == 500 and str(reason).startswith("unfinished: ")


def test_a_missing_shard_of_a_numbered_set_is_refused() -> None:
    shards = [f"checkpoint-5/model-0000{number}-of-00005.safetensors" for number in (1, 2, 4, 5)]
    assert problem(*shards) == "shard 3 of 5 is missing"
    assert problem(*shards, "checkpoint-5/model-00003-of-00005.safetensors") is None


def test_a_shard_that_the_index_names_and_that_is_missing_is_refused() -> None:
    index = "checkpoint-5/model.safetensors.index.json"
    more = f"shard ./{index}\ta.safetensors\nshard ./{index}\tb.safetensors"
    assert problem(index, "checkpoint-5/a.safetensors", more=more) == f"b.safetensors is named in {index} and missing"
    assert problem(index, "checkpoint-5/a.safetensors", "checkpoint-5/b.safetensors", more=more) is None


def test_a_distributed_checkpoint_without_its_metadata_is_refused() -> None:
    assert problem("step_5/__0_0.distcp", "step_5/__1_0.distcp") == "no .metadata: torch writes it last"
    assert problem("step_5/__0_0.distcp", "step_5/.metadata") is None


def test_every_distributed_part_needs_metadata_of_its_own() -> None:
    model = ["step_5/model_0/__0_0.distcp", "step_5/model_0/.metadata"]
    assert problem(*model, "step_5/optimizer_0/__0_0.distcp") == "no .metadata: torch writes it last"
    assert problem(*model, "step_5/optimizer_0/__0_0.distcp", "step_5/optimizer_0/.metadata") is None


@pytest.mark.parametrize(("file", "folder"), [("iter_0000500/a.pt", ""), ("run/global_step_500/a.pt", "run/")])
def test_what_is_newer_than_the_tracker_file_is_refused(file: str, folder: str) -> None:
    tracker = f"tracker ./{folder}latest_checkpointed_iteration.txt\t"
    assert problem(file, more=tracker + "400") == "newer than latest_checkpointed_iteration.txt, which says 400"
    assert problem(file, more=tracker + "500") is None
    assert problem(file, more=tracker + "600") is None


@pytest.mark.parametrize("content", ["release", "", "²", "４００", "-5", "4e2"])
def test_a_tracker_file_without_a_number_decides_nothing(content: str) -> None:
    assert problem("iter_5/a.pt", more=f"tracker ./latest_checkpointed_iteration.txt\t{content}") is None


def test_a_weights_file_that_the_one_before_has_must_be_there() -> None:
    found = shown("step_5/model.pt", "step_5/optimizer.pt", "step_6/model.pt", "step_7/model.pt", "step_7/optimizer.pt")
    assert [reason for _, _, reason in found] == [None, "optimizer.pt is missing, which the one before has", None]


def test_other_files_may_differ_and_a_first_one_has_none_before_it() -> None:
    assert problem("step_5/a.pt", "step_5/eval.json", "step_6/a.pt") is None
    assert problem("step_5/a.pt") is None


def test_a_damaged_one_is_no_measure_for_the_next() -> None:
    files = ("step_5/a.pt", "step_6/a.pt", "step_6/b.pt", "step_7/a.pt")
    assert problem(*files, more="bad truncated ./step_6/b.pt") is None


def test_a_name_that_carries_the_step_is_the_same_file_in_the_next() -> None:
    assert problem("step_500/model_500.pt", "step_1000/model_1000.pt") is None
    assert problem("checkpoint-5/global_step5/x.pt", "checkpoint-10/global_step10/x.pt") is None
    assert problem("step_500/model_500.pt", "step_500/opt_500.pt", "step_1000/model_1000.pt") is not None


@pytest.mark.parametrize("steps", [(8, 16), (1, 2), (2, 5), (0, 8)])
def test_a_step_that_is_also_a_rank_or_world_size_is_no_lost_file(steps: tuple[int, int]) -> None:
    names = [f"model_world_size_8_rank_{rank}.pt" for rank in range(8)]
    names += [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    found = shown(*[f"global_step_{step}/{name}" for step in steps for name in names])
    assert [reason for _, _, reason in found] == [None, None]


def test_what_was_written_just_now_may_be_unfinished_where_that_is_asked() -> None:
    found = parse_listing(listing("step_5/a.pt", now=1030))
    assert found
    assert group_checkpoints(found, "/c")[0].complete
    assert group_checkpoints(found, "/c", quiet_seconds=30)[0].complete
    assert group_checkpoints(found, "/c", quiet_seconds=60)[0].problem == "written 30 s ago: may not be finished"


# ---------------------------------------------------------------- hostile names


@pytest.mark.parametrize(
    "name",
    [
        "with space",
        "it's",
        '"',
        "$(id)",
        "a\tb",
        "-rf",
        "ü",
        "\udcff",
        "x ./y",
        "..",
        "a=b",
        "*",
        "\u2028",
        "\r",
        "\x0b",
        "\x85",
    ],
)
def test_odd_names_stay_what_they_are(name: str) -> None:
    file = f"{name}/step_5/model {name}.pt"
    [(path, step, reason)] = shown(file, more=f"bad truncated ./{file}")
    assert (path, step) == (f"/c/{name}/step_5", 5) and reason == f"{file}: truncated"


@pytest.mark.parametrize("mark", ["\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"])
def test_no_name_can_forge_another_line(mark: str) -> None:
    found = shown("step_5/a.pt", f"logs/x{mark}file 100 1000 ./step_999/a.pt")
    assert all(step == 5 or mark in path for path, step, _ in found)
    assert (
        problem("step_5/a.pt", f"step_5/x{mark}bad truncated .", f"step_5/x{mark}bad truncated ./step_5/a.pt") is None
    )


@pytest.mark.parametrize(
    "line", ["file", "file x y ./step_5/a.pt", "file 5 ./step_5/a.pt", "bad", "shard", "tracker x", "now"]
)
def test_a_line_that_is_cut_adds_nothing_and_breaks_nothing(line: str) -> None:
    assert [step for _, step, _ in shown("step_4/a.pt", more=line)] == [4]


def test_a_number_too_long_for_a_step_is_no_step() -> None:
    assert shown("step_" + "9" * 5000 + "/a.pt") == []
