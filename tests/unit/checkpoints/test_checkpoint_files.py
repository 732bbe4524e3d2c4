"""Which steps a listing holds, and which checkpoints are complete: every layout, every reason, hostile names."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from training_monitor.checkpoints.completeness import group_checkpoints
from training_monitor.checkpoints.listing import format_ranking, parse_listing
from training_monitor.core.checkpoint_layouts import LAYOUTS
from training_monitor.core.errors import ParseError
from training_monitor.core.models import Checkpoint
from training_monitor.core.values import CheckpointListing
from training_monitor.logs.events import CheckpointCounter
from training_monitor.logs.parts import saved_step
from training_monitor.look.training_command import folder_of_checkpoint

PAGE = Path(__file__).parents[3] / "docs" / "checkpoints.md"


def listing(*files: str, size: int = 100, more: str = "", now: int = 2000, time: int = 1000) -> str:
    """A reply with these files, each of `size` bytes unless it says `SIZE:path`."""
    lines = []
    for file in files:
        given, colon, path = file.partition(":") if file.partition(":")[0].isdigit() else ("", ":", file)
        lines.append(f"file {given or size} {time} ./{path}")
    return "\n".join(["state=there", f"now {now}", *lines, "looked .", more])


def read(*files: str, more: str = "", **options: int) -> list[Checkpoint]:
    found = parse_listing(listing(*files, more=more))
    assert found is not None
    return list(group_checkpoints(found, "/c", **options).checkpoints)


def shown(*files: str, more: str = "") -> list[tuple[str, int, str | None]]:
    return [(each.path, each.step, each.problem) for each in read(*files, more=more)]


def problem(*files: str, more: str = "") -> str | None:
    """The problem of the last checkpoint."""
    last = read(*files, more=more)[-1]
    assert last.complete == (last.problem is None)
    return last.problem


def test_files_that_are_no_checkpoint_are_named_where_nothing_else_is_there() -> None:
    page = parse_listing(listing("step_10.json", "step_20.json"))
    assert page is not None
    found = group_checkpoints(page, "/c")
    said = "no file has the name of a checkpoint, such as step_100.pt or checkpoint-100: step_10.json, step_20.json"
    assert found.count == 0 and found.why_none_is_complete == said
    assert not group_checkpoints(parse_listing(listing("step_10.json", "step_5.pt")), "/c").unrecognized  # type: ignore[arg-type]


def test_every_usual_name_is_understood() -> None:
    for file, root, step in [
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
        ("epoch=1-step=500-v1.ckpt", "epoch=1-step=500-v1.ckpt", 500),
        ("epoch=1-step=500.ckpt/checkpoint/mp_rank_00_model_states.pt", "epoch=1-step=500.ckpt", 500),
        ("epoch=03-val_loss=0.25.ckpt", "epoch=03-val_loss=0.25.ckpt", 3),
        ("model_name=0--val_loss=0.00-step=18-consumed_samples=9728.0-last.ckpt",) * 2 + (18,),
        ("n=0--step=18-consumed_samples=9.0-last/weights/common.pt", "n=0--step=18-consumed_samples=9.0-last", 18),
        ("_actor/global_step20/mp_rank_00_model_states.pt", "_actor/global_step20", 20),
        ("iter_0000500/mp_rank_00_000/model_optim_rng.pt", "iter_0000500", 500),
        ("global_step_500/data.pt", "global_step_500", 500),
        ("my-lora-000004-state/model.safetensors", "my-lora-000004-state", 4),
        ("my-lora-step00000500-state/model.safetensors", "my-lora-step00000500-state", 500),
        ("epoch_0/model-00001-of-00001.safetensors", "epoch_0", 0),
        ("step_50/model.safetensors", "step_50", 50),
        ("checkpoint/step-500/.metadata", "checkpoint/step-500", 500),
        ("TorchTrainer_7f8e9_00000_0_2024-01-01/checkpoint_000012/a.pt",)
        + ("TorchTrainer_7f8e9_00000_0_2024-01-01/checkpoint_000012", 12),
        ("1000/_CHECKPOINT_METADATA", "1000", 1000),
        ("ep1-ba100-rank0.pt", "ep1-ba100-rank0.pt", 100),
        ("ep1-ba100/.metadata", "ep1-ba100", 100),
        ("checkpoint1.pt", "checkpoint1.pt", 1),
        ("checkpoint_1_50.pt", "checkpoint_1_50.pt", 50),
        ("checkpoint_1_1000.pt", "checkpoint_1_1000.pt", 1000),
        ("epoch_1.pth", "epoch_1.pth", 1),
        ("iter_1000.pth", "iter_1000.pth", 1000),
        ("best_coco_epoch_7.pth", "best_coco_epoch_7.pth", 7),
        ("model_0004999.pth", "model_0004999.pth", 4999),
        ("checkpoint-12.pth.tar", "checkpoint-12.pth.tar", 12),
        ("recovery-3-500.pth.tar", "recovery-3-500.pth.tar", 3),
        ("weights/epoch5.pt", "weights/epoch5.pt", 5),
        ("rl_model_1000_steps.zip", "rl_model_1000_steps.zip", 1000),
        ("iter-640-ckpt.pth", "iter-640-ckpt.pth", 640),
        ("runs/a/step-640-ckpt.pt", "runs/a/step-640-ckpt.pt", 640),
        ("step700-unsharded/model.safetensors", "step700-unsharded", 700),
        ("step700-unsharded/train.pt", "step700-unsharded", 700),
        ("network-snapshot-000640.pkl", "network-snapshot-000640.pkl", 640),
        ("checkpoint_700.pkl", "checkpoint_700.pkl", 700),
        ("checkpoint_9120", "checkpoint_9120", 9120),
        ("logs/ckpt-12", "logs/ckpt-12", 12),
        ("G_800.pth", "G_800.pth", 800),
        ("model_epoch_12.keras", "model_epoch_12.keras", 12),
        ("ckpt-epoch-30.weights.h5", "ckpt-epoch-30.weights.h5", 30),
        ("model_state_epoch_12.th", "model_state_epoch_12.th", 12),
        ("model020000.pt", "model020000.pt", 20000),
        ("chkpnt7000.pth", "chkpnt7000.pth", 7000),
        ("epoch_2/step_1500/model.pt", "epoch_2/step_1500", 1500),
        ("net_epoch_012_loss_0.0342.pt", "net_epoch_012_loss_0.0342.pt", 12),
        ("epoch_60_ckpt.pth", "epoch_60_ckpt.pth", 60),
        ("unet_ep12_val0.893.pth", "unet_ep12_val0.893.pth", 12),
        ("iter_500.pth/mp_rank_00_model_states.pt", "iter_500.pth", 500),
        ("step2000-tokens8B/model.safetensors", "step2000-tokens8B", 2000),
        ("weights.06-0.29.hdf5", "weights.06-0.29.hdf5", 6),
        ("last_Hopper_ep_300_rew__4702.9_.pth", "last_Hopper_ep_300_rew__4702.9_.pth", 300),
        ("save/dog_12-40-09-save-750-3-50.safetensors", "save/dog_12-40-09-save-750-3-50.safetensors", 750),
        ("checkpoint-9/model_state.pdparams", "checkpoint-9", 9),
    ]:
        assert shown(file) == [(f"/c/{root}", step, None)]


def test_the_parts_of_a_tensorflow_checkpoint_are_one() -> None:
    padded = ("cp-0070.ckpt.index", "cp-0070.ckpt.data-00000-of-00001")
    assert shown(*padded) == [("/c/cp-0070.ckpt", 70, None)]
    for name in ("model.ckpt", "run/model.ckpt", "ckpt"):
        index, one, two = f"{name}-70.index", f"{name}-70.data-00000-of-00002", f"{name}-70.data-00001-of-00002"
        for files, reason in [
            ((index, one, two), None),
            ((index, one, two, f"{name}-70.meta"), None),
            ((index, f"{name}-70.data-00000-of-00001"), None),
            ((index, one), f"{name}-70.data-00001-of-00002 is missing"),
            ((one, two), f"{name}-70.index is missing"),
            ((f"{name}-70.meta",), f"{name}-70.index is missing"),
            ((index, f"{name}-70.meta"), f"{name}-70.data-* is missing"),
        ]:
            assert shown(*files) == [(f"/c/{name}-70", 70, reason)]


def test_the_networks_of_a_gan_are_one_checkpoint() -> None:
    older = ("G_800.pth", "D_800.pth")
    assert shown(*older, "G_900.pth", "D_900.pth") == [("/c/G_800.pth", 800, None), ("/c/G_900.pth", 900, None)]
    assert problem(*older, "G_900.pth", "D_900.pth", more="bad truncated ./D_900.pth") == "D_900.pth: truncated"
    assert problem(*older, "G_900.pth", "0:D_900.pth") == "D_900.pth: empty file"
    assert problem(*older, "G_900.pth") == "D_800.pth is missing, but the previous checkpoint has it"
    assert problem(*older, "D_900.pth") == "it contains no weights"


def test_a_short_number_is_a_step_only_in_a_series() -> None:
    assert shown("Tower-1.pth", "Tower-2.pth", "Tower-10.pth") == [
        (f"/c/Tower-{step}.pth", step, None) for step in (1, 2, 10)
    ]
    assert problem("Tower-1.pth", "0:Tower-2.pth") == "Tower-2.pth: empty file"
    assert shown("resnet-50.pth") == shown("weights_rank_0.pt", "weights_rank_1.pt") == []
    assert [step for _, step, _ in shown("Tower-1.pth", "Tower-2.pth", "step_500.pth")] == [500]


def test_a_folder_without_weights_is_not_complete() -> None:
    for files in [
        ("step=9-last/context/io.json", "step=9-last/context/model.yaml"),
        ("step=9-last/context/nemo_tokenizer/tokenizer.model",),
        ("checkpoint-9/trainer_state.json", "checkpoint-9/tokenizer.json", "checkpoint-9/special_tokens_map.json"),
        ("step_9/config.json", "step_9/README.md"),
        ("checkpoint-9/trainer_state.json", "checkpoint-9/optimizer.pt", "checkpoint-9/rng_state_0.pth"),
        ("step_9/optimizer.bin", "step_9/scheduler.bin", "step_9/random_states_0.pkl"),
        ("checkpoint-9/latest", "checkpoint-9/global_step9/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"),
        ("samples/step_9/0001.png", "samples/step_9/prompts.txt"),
        ("profile_trace/iteration_9/rank0_trace.json",),
    ]:
        assert problem(*files) == "it contains no weights"
    assert problem("step=9-last/context/io.json", "step=9-last/weights/common.pt") is None


def test_a_folder_of_checkpoints_is_no_checkpoint_even_with_a_number_in_its_name() -> None:
    sweep = ("x_batch_64/checkpoint-200/a.pt", "x_batch_64/checkpoint-400/a.pt")
    assert [(path, step) for path, step, _ in shown(*sweep)] == [
        ("/c/x_batch_64/checkpoint-200", 200),
        ("/c/x_batch_64/checkpoint-400", 400),
    ]
    assert shown("checkpoint-50/global_step48/a.pt", "checkpoint-50/b.pt") == [("/c/checkpoint-50", 50, None)]
    assert shown("48213/last.ckpt", "48213/best.ckpt", "48309/last.ckpt")[-1] == ("/c/48309/last.ckpt", 0, None)


def test_the_optimizer_of_a_model_in_another_file_belongs_to_it() -> None:
    pairs = "model_{}.pt optimizer_{}.pt  model0{}.pt opt0{}.pt  a_{}.pt ema_{}.pt  step_{}.pt ema_step_{}.pt"
    for pair in f"{pairs}  model_00{{}}.bin state_00{{}}_00001.bin".split("  "):
        model, other = pair.split()
        older = (model.format(300), other.format(300))
        assert shown(*older) == [(f"/c/{older[0]}", 300, None)]
        assert problem(*older, model.format(600), other.format(600), more=f"bad cut ./{model.format(600)}") is not None
        assert "missing, but the previous" in str(problem(*older, model.format(600)))
        assert problem(*older, other.format(600)) == "it contains no weights"
    assert problem("muon_optimizer_step_300.pt", "muon_optimizer_step_600.pt") is None  # the name of a run


def test_a_last_file_beside_other_weights_hides_no_checkpoint() -> None:
    found = shown("step_500/model.pt", "step_1000/model.pt", "step_1000/last.pt")
    assert [step for _, step, _ in found] == [500, 1000]


def test_the_state_of_an_optimizer_replaces_no_weights() -> None:
    lost = problem("900000:step_5/adapter.bin", "900000:step_6/optim.pt", "9:step_6/data.pt")
    assert lost == "adapter.bin is missing, but the previous checkpoint has it"


def test_a_number_that_one_file_has_may_belong_to_the_name_of_a_model() -> None:
    for name in ("vit_large_224.pth", "weights/swin_base_512.pth"):
        assert shown(name, "last.ckpt") == [("/c/last.ckpt", 0, None)]
        assert shown(name, "step_5.pt") == [("/c/step_5.pt", 5, None)]
        assert shown(name, "Tower-1.pth", "Tower-2.pth")[-1] == ("/c/Tower-2.pth", 2, None)
        assert [step for _, step, _ in shown(name)] == [224 if "vit" in name else 512]
    for name in ("model_500.pt", "lora_0500.pt", "net_10500.pt"):
        assert [path for path, _, _ in shown(name, "last.ckpt")] == [f"/c/{name}"]
    assert [step for _, step, _ in shown("net_400.pth", "net_800.pth", "step_5.pt")] == [5, 400, 800]
    assert shown("net_90.pth", "net_100.pth", "last.ckpt") == [("/c/net_100.pth", 100, None)]


def test_the_newest_is_taken_whatever_else_has_a_number() -> None:
    for files, newest in [
        (["model_100.pt", "model_200.pt", "model_final_350.pt"], "model_final_350.pt"),
        (["run1_100.pt", "run1_200.pt", "run_resumed_400.pt"], "run_resumed_400.pt"),
        (["sft_ep3/checkpoint-50/model.safetensors", "sft_ep3/trainer_log.jsonl"], "sft_ep3/checkpoint-50"),
        (["run_batch_32_lr_0.01/net_1000.pth", "run_batch_32_lr_0.01/args.json"], "run_batch_32_lr_0.01/net_1000.pth"),
        (["best_epoch_3_loss_0.25.pth", "last.pth"], "last.pth"),
        (["checkpoint_1000.pt", "metrics_ep_2000.pkl"], "checkpoint_1000.pt"),
        (["state_100.pt", "state_150.pt", "model_100.pt"], "state_150.pt"),
        (["iter_0000100/mp_rank_00/model_rng.pt", "iter_0000100/mp_rank_00_000/optim.pt"], "iter_0000100"),
        (["step_200/training_state.pt", "step_200/config.json"], "step_200"),
        (["epoch_2.pdparams", "epoch_2.pdopt", "epoch_3.pdopt"], "epoch_2.pdparams"),
        (["checkpoint.1.pt", "checkpoint.pt"], "checkpoint.pt"),
    ]:
        assert [path for path, _, problem in shown(*files) if problem is None][-1] == f"/c/{newest}", files
    assert problem(*(f"step_100/model_rank{rank}-of-4.pt" for rank in (0, 1, 3))), "one of four is missing"
    chunks = ["9/_CHECKPOINT_METADATA", "9/w/0", "20/w/0"]
    assert shown(*chunks)[-1][:2] == ("/c/20", 20), "a chunk is no checkpoint"


def test_steps_that_begin_again_with_each_epoch_are_ordered_by_their_epochs() -> None:
    names = ["epoch_0_step_300.pt", "epoch_0_step_900.pt", "epoch_1_step_200.pt", "epoch_1_step_300.pt"]
    for files in (names, names[::-1]):
        assert [(path, step) for path, step, _ in shown(*files)] == [
            (f"/c/{name}", step) for name, step in zip(names, (0, 0, 1, 1))
        ]
    assert [step for _, step, _ in shown("epoch_0_step_300.pt", "epoch_1_step_600.pt")] == [300, 600]
    assert [step for _, step, _ in shown("epoch=0-step=300.ckpt", "epoch=1-step=200.ckpt")] == [200, 300]


def test_the_parts_of_nanotron_are_of_stages_that_do_not_all_have_each_layer() -> None:
    files = [
        f"60/model/{layer}_pp-rank-{stage}-of-2_tp-rank-{part}-of-2.safetensors"
        for layer, stage in (("a", 0), ("b", 1))
        for part in (0, 1)
    ]
    assert shown(*files, more="tracker ./latest.txt\t60") == [("/c/60", 60, None)]
    assert problem(*files, more="tracker ./latest.txt\t40") == "newer than the step in latest.txt: 40"
    assert problem("step_60.pt", more="tracker ./latest.txt\t3") is None, "of another framework, and of epochs"


def test_a_time_in_a_name_is_no_step_but_an_order() -> None:
    found = shown("model_20250612_090000.pt", "model_20250611_153000.pt")
    assert found[-1] == ("/c/model_20250612_090000.pt", 0, None)


def test_what_carries_no_step_is_no_checkpoint() -> None:
    for file in """
        config.json README.md model.safetensors best.pt checkpoint_best.pt model_best.pth.tar tmp.pth.tar
        last.ckpt.tmp optimizer.pt recipe_state/recipe_state.pt step_500.safetensors.lock latest model_last-unfinished
        model-00001-of-00005.safetensors runs/events.out.tfevents.1700000000.host logs/version_0/hparams.yaml
        checkpoints/config.yaml stepping/x.pt v2/model.pt train_500.log val_predictions_step_500.pt
        .Trash-0/files/checkpoint-500/a.pt ._step_500.pt
    """.split():
        assert shown(file) == []


def test_what_is_overwritten_in_place_counts_only_where_nothing_has_a_number() -> None:
    for file, step in [
        ("last.ckpt", 0),
        ("lightning_logs/version_0/checkpoints/last-v1.ckpt", 0),
        ("last.ckpt/checkpoint/mp_rank_00_model_states.pt", 0),
        ("weights/last.pt", 0),
        ("last.pth.tar", 0),
        ("ckpt.pt", 0),
        ("snapshot.pt", 0),
        ("checkpoint_last.pt", 0),
        ("latest-rank0.pt", 0),
        ("model_final.pth", 0),
        ("final_model.zip", 0),
        ("my_lora.safetensors", 3000),
    ]:
        more = f"step ./{file}\t{step}" if step else ""
        root = file.partition("/checkpoint/")[0]
        assert shown(file, more=more) == [(f"/c/{root}", step, None)]
        assert shown(file, "step_5/a.pt", more=more) == [("/c/step_5", 5, None)]
        assert problem(file, more=f"{more}\nbad truncated ./{file}") == f"{file}: truncated"


def test_of_those_in_place_the_last_version_is_the_newest_or_the_named_one() -> None:
    found = shown("version_10/last.ckpt", "version_9/last-v1.ckpt", "version_9/last.ckpt")
    paths = ["/c/version_9/last.ckpt", "/c/version_9/last-v1.ckpt", "/c/version_10/last.ckpt"]
    assert [path for path, _, _ in found] == paths
    assert shown("release/mp_rank_00/a.pt", more=f"tracker ./{NAMED}\trelease") == [("/c/release", 0, None)]
    assert shown("mine/mp_rank_00_model_states.pt", more="tracker ./latest\tmine") == [("/c/mine", 0, None)]
    assert shown("mine/mp_rank_00_model_states.pt") == []


def test_the_final_file_has_the_step_of_its_header_beside_those_with_a_number() -> None:
    more = "step ./lora.safetensors\t3000\nstep ./other.safetensors\t9000"
    found = shown("lora_000002750.safetensors", "lora.safetensors", "other.safetensors", more=more)
    assert [(path, step) for path, step, _ in found] == [
        ("/c/lora_000002750.safetensors", 2750),
        ("/c/lora.safetensors", 3000),
    ]


def test_the_step_that_kohya_writes_counts_and_not_the_epoch_in_the_name() -> None:
    more = "step ./a-000004.safetensors\t2000\nstep ./a-000004-state/train_state.json\t2000"
    more += "\nstep ./a-state/train_state.json\t2500\nstep ./a-step00000500.safetensors\t499"
    files = ("a-000004.safetensors", "a-000004-state/train_state.json", "a-state/train_state.json")
    found = [(path, step) for path, step, _ in shown(*files, "a-step00000500.safetensors", more=more)]
    steps = [("a-step00000500.safetensors", 499), ("a-000004.safetensors", 2000), ("a-000004-state", 2000)]
    assert found == [(f"/c/{path}", step) for path, step in [*steps, ("a-state", 2500)]]


def test_at_one_step_a_best_or_recovery_file_is_not_the_newest() -> None:
    files = ("epoch_7.pth", "best_x_epoch_7.pth", "checkpoint-7.pth.tar", "recovery-7-900.pth.tar", "global_step7/a.pt")
    found = [path.removeprefix("/c/") for path, _, _ in shown(*files)]
    assert set(found[:2]) == {"best_x_epoch_7.pth", "recovery-7-900.pth.tar"} and found[-1] == "global_step7/a.pt"[:12]
    assert shown("recovery-7-90.pth.tar", "recovery-7-900.pth.tar")[-1][0] == "/c/recovery-7-900.pth.tar"


def test_the_ranks_and_companions_of_a_single_file_are_one_checkpoint() -> None:
    composer = [f"ep1-ba100-rank{rank}.pt" for rank in range(4)]
    [only] = read(*composer)
    assert (only.path, only.step, only.size_bytes) == ("/c/ep1-ba100-rank0.pt", 100, 400)
    steps = [(f"m_{n}_steps.zip", f"m_replay_buffer_{n}_steps.pkl", f"m_vecnormalize_{n}_steps.pkl") for n in (50, 100)]
    assert shown(*steps[0], *steps[1]) == [("/c/m_50_steps.zip", 50, None), ("/c/m_100_steps.zip", 100, None)]
    assert (
        problem(*steps[0], steps[1][0]) == "m_replay_buffer_50_steps.pkl is missing, but the previous checkpoint has it"
    )
    assert problem(*steps[0], steps[1][1]) == "it contains no weights"


def test_steps_are_numbers_and_times_do_not_decide_their_order() -> None:
    found = shown("step_1000/a.pt", "step_90/a.pt", "step_200/a.pt")
    assert [step for _, step, _ in found] == [90, 200, 1000]
    text = "state=there\nnow 9\nfile 1 900 ./step_1/a.pt\nfile 1 100 ./step_2/a.pt"
    found = parse_listing(text)
    assert found and [each.step for each in group_checkpoints(found, "/c").checkpoints] == [1, 2]


def test_the_size_is_the_sum_of_its_files_and_an_empty_directory_has_none() -> None:
    found = parse_listing(listing("10:step_5/a.pt", "20:step_5/b/c.json"))
    assert found and group_checkpoints(found, "/c/").checkpoints == (Checkpoint("/c/step_5", 5, 30, True),)
    assert read() == []
    assert parse_listing("state=missing\n") is None


def test_a_directory_that_could_not_be_read_is_an_error_and_not_empty() -> None:
    for text in ["", "sh: syntax error", "state=no permission to enter it", "state=not a directory"]:
        with pytest.raises(ParseError, match="checkpoint directory"):
            parse_listing(text)


GOOD = "step_1/model.safetensors"


def test_what_a_look_at_the_bytes_found_is_the_reason_of_this_checkpoint_alone() -> None:
    for reason in ("truncated:_474_of_948_bytes", "truncated:_no_zip_end_record", "no_safetensors_header"):
        found = problem(GOOD, "step_2/model.safetensors", more=f"bad {reason} ./step_2/model.safetensors")
        assert found == f"step_2/model.safetensors: {reason.replace('_', ' ')}"
    found = shown(GOOD, "step_2/model.safetensors", more="bad truncated ./step_1/model.safetensors")
    assert [reason is None for _, _, reason in found] == [False, True]


def test_empty_weights_are_refused_and_one_empty_marker_is_fine() -> None:
    for name in ["model.safetensors", "model.pt", "x.ckpt", "x.bin", "__0_0.distcp", "optimizer.pth", "flax.msgpack"]:
        assert problem("step_5/config.json", f"0:step_5/{name}") == f"step_5/{name}: empty file"
    assert problem("0:step_5/done", "0:step_5/x.json") == "only empty files"
    assert problem("0:step_5/done", "step_5/x.pt") is None


def test_a_temporary_name_is_refused_with_its_step() -> None:
    for files in [
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
        ("checkpoint_1_500.pt.tmp",),
        ("500/default.orbax-checkpoint-tmp-17/a.bin", "500/_CHECKPOINT_METADATA"),
        ("500.partial_save.orbax-checkpoint-tmp/a.bin",),
        ("step_500/.metadata.tmp", "step_500/__0_0.distcp"),
        ("step_500/model.pt", "step_500/.optimizer.pt.k2LmZ8"),
        ("step_500/model.safetensors", "step_500/model.safetensors.aria2"),
        ("step_500.pt.partial",),
    ]:
        [(_, step, reason)] = shown(*files)
        assert step == 500 and str(reason).startswith("unfinished: ")


def test_a_name_with_the_letters_of_a_temporary_one_is_not_refused() -> None:
    assert problem("LightMPNN-epoch=11-step=500.ckpt") is None


def test_a_missing_shard_is_refused_and_so_are_other_bytes_than_the_index_says() -> None:
    shards = [f"checkpoint-5/model-0000{number}-of-00005.safetensors" for number in (1, 2, 4, 5)]
    assert problem(*shards) == "checkpoint-5/model-00003-of-00005.safetensors is missing"
    assert problem(*shards, "checkpoint-5/model-00003-of-00005.safetensors") is None
    index = "checkpoint-5/model.safetensors.index.json"
    more = f"shard ./{index}\ta.safetensors\nshard ./{index}\tb.safetensors"
    assert problem(index, "checkpoint-5/a.safetensors", more=more) == f"b.safetensors is missing, but {index} lists it"
    assert problem(index, "checkpoint-5/a.safetensors", "checkpoint-5/b.safetensors", more=more) is None
    index = "checkpoint-5/model.safetensors.index.json"
    shards = "".join(f"\nshard ./{index}\t{name}" for name in ("a.safetensors", "b.safetensors"))
    files = (index, "500:checkpoint-5/a.safetensors", "500:checkpoint-5/b.safetensors")
    assert problem(*files, more=f"total ./{index}\t1000{shards}") is None
    assert problem(*files, more=f"total ./{index}\t1001{shards}") == (
        f"the shards have 1000 bytes, but {index} says 1001"
    )
    assert problem(*files, more=f"total ./{index}\t{shards}") is None


def test_an_index_that_the_one_before_has_must_be_there_and_not_be_empty() -> None:
    shards = {step: [f"checkpoint-{step}/m-0000{n}-of-00002.safetensors" for n in (1, 2)] for step in (5, 6)}
    older = (*shards[5], "checkpoint-5/m.safetensors.index.json")
    assert "index.json is missing" in str(problem(*older, *shards[6]))
    assert problem(*shards[5], "0:checkpoint-5/m.safetensors.index.json") is not None
    assert problem(*older, "200:checkpoint-6/m.safetensors") is None


def test_weights_in_another_format_replace_those_of_the_one_before() -> None:
    assert problem("400:checkpoint-5/pytorch_model.bin", "400:checkpoint-6/model.safetensors") is None
    assert problem("400:checkpoint-5/pytorch_model.bin", "40:checkpoint-6/model.safetensors") is not None


def test_the_ranks_of_nemo_1_are_folders_around_the_file() -> None:
    older = ("mp_rank_00/gpt-step=3.ckpt", "mp_rank_01/gpt-step=3.ckpt")
    assert shown(*older) == [("/c/mp_rank_00/gpt-step=3.ckpt", 3, None)]
    assert problem(*older, "mp_rank_00/gpt-step=4.ckpt") is not None
    assert len(shown(*(f"mp_rank_{rank:02}/gpt-step=3.ckpt" for rank in range(16)))) == 1


def test_a_distributed_checkpoint_without_its_metadata_is_refused() -> None:
    assert problem("step_5/__0_0.distcp", "0:step_5/.metadata") is not None
    assert (
        problem("step_5/__0_0.distcp", "step_5/__1_0.distcp")
        == "unfinished: .metadata, which torch writes last, is missing"
    )
    assert problem("step_5/__0_0.distcp", "step_5/.metadata") is None


def test_every_distributed_part_needs_metadata_of_its_own() -> None:
    unfinished = "unfinished: .metadata, which torch writes last, is missing"
    assert problem("step_5/__0_0.distcp", "step_5/__1_0.distcp") == unfinished
    assert problem("step_5/__0_0.distcp", "step_5/.metadata") is None
    model = ["step_5/model_0/__0_0.distcp", "step_5/model_0/.metadata"]
    assert problem(*model, "step_5/optimizer_0/__0_0.distcp") == unfinished
    assert problem(*model, "step_5/optimizer_0/__0_0.distcp", "step_5/optimizer_0/.metadata") is None


def test_ranks_that_may_be_on_another_node_are_not_missed() -> None:
    metadata = "step_5/.metadata"
    there, gone = ([f"__{rank}_0.distcp" for rank in ranks] for ranks in ((0, 1), (2, 3)))

    def lost(there: list[str], gone: list[str]) -> str | None:
        more = "\n".join(f"shard ./{metadata}\t{name}" for name in gone)
        return problem(metadata, *(f"step_5/{name}" for name in there), more=more)

    assert lost(there, gone) is None
    for here, away, first in (
        (gone, there, there[0]),
        (there, gone[:1], gone[0]),
        ([there[0], gone[0]], ["__1_0.distcp"], there[1]),
    ):
        assert lost(here, away) == f"{first} is missing, but {metadata} lists it"


NAMED = "latest_checkpointed_iteration.txt"


def test_what_is_newer_than_the_tracker_file_is_refused_if_that_has_a_number() -> None:
    for file, folder in [("iter_0000500/a.pt", ""), ("run/global_step_500/a.pt", "run/")]:
        tracker = f"tracker ./{folder}{NAMED}\t"
        assert problem(file, more=tracker + "400") == f"newer than the step in {NAMED}: 400"
        assert problem(file, more=tracker + "500") is None
        assert shown(file, more=tracker + "600") == [
            (f"/c/{file.partition('/a.pt')[0]}", 500, None),
            (f"/c/{folder}{NAMED}", 600, f"{NAMED} names 600, which does not exist"),
        ]
    for content in ["release", "", "²", "４００", "-5", "4e2"]:
        assert problem("iter_5/a.pt", more=f"tracker ./{NAMED}\t{content}") is None


def test_a_weights_file_that_the_one_before_has_must_be_there() -> None:
    found = shown("step_5/model.pt", "step_5/optimizer.pt", "step_6/model.pt", "step_7/model.pt", "step_7/optimizer.pt")
    lost = "optimizer.pt is missing, but the previous checkpoint has it"
    assert [reason for _, _, reason in found] == [None, lost, None]
    assert problem("step_5/a.pt", "step_5/eval.json", "step_6/a.pt") is None
    assert problem("step_5/a.pt") is None
    files = ("step_5/a.pt", "step_6/a.pt", "step_6/b.pt", "step_7/a.pt")
    assert problem(*files, more="bad truncated ./step_6/b.pt") is None
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
    assert group_checkpoints(found, "/c").checkpoints[0].complete
    assert group_checkpoints(found, "/c", quiet_seconds=30).checkpoints[0].complete
    [early] = group_checkpoints(found, "/c", quiet_seconds=60).checkpoints
    assert early.problem == "written 30 s ago, so it may be unfinished"
    found = parse_listing(listing("step_5/a.pt", now=800))  # by a clock that is wrong
    assert found
    [unknown] = group_checkpoints(found, "/c", quiet_seconds=60).checkpoints
    assert unknown.complete and unknown.age is None


ZERO = [
    f"global_step9/bf16_zero_pp_rank_{rank}_mp_rank_0{part}_optim_states.pt" for part in (0, 1) for rank in range(4)
]
MODEL = [f"global_step9/mp_rank_0{part}_model_states.pt" for part in (0, 1)]
ZERO_3 = [name.replace("bf16_", "").replace("optim", "model") for name in ZERO]
FSDP = [
    f"global_step_9/actor/{what}_world_size_4_rank_{n}.pt" for what in ("model", "optim", "extra") for n in range(4)
]


def test_all_ranks_there_is_complete() -> None:
    for files in [
        ZERO + MODEL,
        ZERO + ZERO_3,
        FSDP,
        ["checkpoint-9/a.pt", *(f"checkpoint-9/rng_state_{rank}.pth" for rank in range(4))],
        ["checkpoint-9/a.pt", *(f"checkpoint-9/rng_state_{rank}.pth" for rank in range(8, 16))],
        FSDP[:2] + FSDP[4:6] + FSDP[8:10],  # on the disk of one of two nodes
        [f"iter_0000009/mp_rank_0{a}_00{b}/model_optim_rng.pt" for a in (0, 1) for b in (0, 1, 2)],
        [f"step_9/__{rank}_0.distcp" for rank in (0, 2)] + ["step_9/.metadata"],
        ["step_9/lora_rank_16.safetensors", "step_9/lora_rank_64.safetensors"],
        ["step_9/model_rank_0.pt", "step_9/model_rank_1.pt", "step_9/loader_rank_0.pt"],
        ["step_9/layer_01-model_00-model_states.pt", "step_9/layer_03-model_00-model_states.pt"],
        ["step_9/x_rank_999999999.pt", "step_9/x_rank_999999.pt"],
    ]:
        assert problem(*files) is None


def test_a_gap_in_the_ranks_or_a_rank_of_one_kind_only_is_refused() -> None:
    for files, lost, reason in [
        (ZERO + MODEL, ZERO[1], "7 of 8 files global_step9/bf16_zero_pp_rank_*_mp_rank_*_optim_states.pt"),
        (ZERO + MODEL, ZERO[7], "7 of 8 files global_step9/bf16_zero_pp_rank_*_mp_rank_*_optim_states.pt"),
        (ZERO + MODEL, MODEL[1], "1 ranks of global_step9/mp_rank_*_model_states.pt, but 2 of global_step9/bf16_zero"),
        (
            ZERO[:4] + ZERO_3[:4],
            ZERO[3],
            "3 ranks of global_step9/bf16_zero_pp_rank_*_mp_rank_*_optim_states.pt, but 4",
        ),
        (FSDP, FSDP[1], "3 of 4 files global_step_9/actor/model_world_size_4_rank_*.pt"),
        (FSDP, FSDP[7], "3 of 4 files global_step_9/actor/optim_world_size_4_rank_*.pt"),
        (
            ["checkpoint-9/a.pt", *(f"checkpoint-9/rng_state_{n}.pth" for n in range(4))],
            "checkpoint-9/rng_state_2.pth",
            "3 of 4 files check",
        ),
        (["ep1-ba9-rank0.pt", "ep1-ba9-rank1.pt", "ep1-ba9-rank2.pt"], "ep1-ba9-rank0.pt", "2 of 3 files ep1-ba9-rank"),
        (["ep1-ba9-rank0.pt", "ep1-ba9-rank1.pt", "ep1-ba9-rank2.pt"], "ep1-ba9-rank1.pt", "2 of 3 files ep1-ba9-rank"),
        ([f"iter_0000009/mp_rank_0{n}/a.pt" for n in range(3)], "iter_0000009/mp_rank_01/a.pt", "2 of 3 files iter"),
    ]:
        assert problem(*files) is None
        assert (problem(*[file for file in files if file != lost]) or "").startswith(reason)


def test_the_parts_of_deepspeed_have_one_size() -> None:
    large = [f"100000:{name}" for name in ZERO]
    assert problem(*large, *MODEL) is None
    assert "differ: 50000 and 100000 bytes" in (problem(f"50000:{ZERO[0]}", *large[1:], *MODEL) or "")


@pytest.mark.parametrize("ranks", [4, 16])
def test_another_number_of_ranks_of_the_same_weight_is_no_lost_file(ranks: int) -> None:
    def distributed(step: int, count: int, total: int = 8_000_000) -> list[str]:
        return [f"{total // count}:step_{step}/__{n}_0.distcp" for n in range(count)] + [f"step_{step}/.metadata"]

    before = distributed(5, 8)
    assert problem(*before, *distributed(6, ranks)) is None
    lost = problem(*before, *distributed(6, 4, 4_000_000))
    assert lost == "__4_0.distcp is missing, but the previous checkpoint has it"


def test_a_marker_that_others_or_its_writer_always_have_must_be_there() -> None:
    for marker in """
        trainer_state.json train_state.json _CHECKPOINT_METADATA commit_success.txt weights/metadata.json
    """.split():
        steps = [f"step_{step}/{name}" for step in (5, 6, 7) for name in ("a.pt", marker)]
        assert problem(*steps) is None
        assert problem(*steps[:-1]) == f"{marker} is missing, but other checkpoints have it"
        assert shown(*steps[:2], *steps[3:])[0][2] is None
        assert problem("other-5/a.pt", "step_7/a.pt", "epoch_7/a.pt", f"epoch_8/{marker}", "epoch_8/a.pt") is None
    files = ("checkpoint-5/training_args.bin", "checkpoint-5/model.safetensors")
    assert problem(*files) == "unfinished: trainer_state.json, which transformers writes last, is missing"
    assert problem(*files, "checkpoint-5/trainer_state.json") is None


def test_a_file_much_smaller_than_the_one_of_its_name_before_is_refused_once() -> None:
    sizes = {5: 1_000_000, 6: 950_000, 7: 500_000, 8: 500_000}
    found = shown(*[f"{size}:step_{step}/model.pt" for step, size in sizes.items()])
    reason = "step_7/model.pt has 500000 bytes, but 950000 in the previous checkpoint"
    assert [each for _, _, each in found] == [None, None, reason, None]
    for name in ["data.pt", "scheduler.pt", "replay.json", "metrics.bin"]:
        assert problem(f"900000:step_5/{name}", "step_5/a.pt", f"100000:step_6/{name}", "step_6/a.pt") is None
    assert problem("900000:a_000000500.safetensors", "100000:b_000001000.safetensors") is None
    smaller = problem("900000:a_000000500.safetensors", "100000:a_000001000.safetensors")
    assert "in the previous checkpoint" in str(smaller)
    assert problem("step_5/model.pt", "lora_000000500.safetensors") is None


def test_deepspeeds_latest_refuses_what_is_newer_and_names_what_must_be_there() -> None:
    steps = ("run/global_step100/a.pt", "run/global_step200/a.pt", "run/best_global_step300/a.pt")
    found = shown(*steps, more="tracker ./run/latest\tglobal_step100")
    newer = "newer than the one named in the file `latest`: global_step100"
    assert [each for _, _, each in found] == [None, newer, None]
    more = "tracker ./checkpoint-5/latest\tglobal_step5"
    files = ("checkpoint-5/latest", "checkpoint-5/model.pt")
    assert problem(*files, more=more) == "checkpoint-5/latest names global_step5, which does not exist"
    assert shown(*files, "checkpoint-5/global_step5/a.pt", more=more) == [("/c/checkpoint-5", 5, None)]


def test_what_a_tracker_names_and_is_missing_is_listed_as_that() -> None:
    for line, there, missing, step in [
        ("tracker ./latest\tglobal_step300", "global_step200/a.pt", "global_step300", 300),
        ("tracker ./_actor/latest\tglobal_step300", "_actor/global_step200/a.pt", "_actor/global_step300", 300),
        ("tracker ./last_checkpoint\t/elsewhere/work/epoch_12.pth", "epoch_11.pth", "epoch_12.pth", 12),
        ("tracker ./last_checkpoint\tmodel_0004999.pth", "model_0003999.pth", "model_0004999.pth", 4999),
        ("link lrwxrwxrwx 1 a a 18 ./latest -> step_3000/", "step_2000/a.pt", "step_3000", 3000),
        ("link lrwxrwxrwx 1 a a 18 ./last.ckpt -> step=900.ckpt", "step=800.ckpt", "step=900.ckpt", 900),
        ("link lrwxrwxrwx 1 a a 18 ./latest-rank0.pt -> ep1-ba100-rank0.pt",)
        + ("ep1-ba90-rank0.pt", "ep1-ba100-rank0.pt", 100),
    ]:
        before, after = shown(there, more=line)
        assert before[2] is None and after[:2] == (f"/c/{missing}", step)
        assert str(after[2]).endswith(", which does not exist")
        file = missing if "." in missing else f"{missing}/a.pt"
        assert shown(there, file, more=line)[-1] == (f"/c/{missing}", step, None)


def test_a_tracker_without_a_known_name_adds_nothing() -> None:
    for content in ["", "mine", "5", "model_final.pth", "best.pth", "\0", "../.."]:
        for tracker in ["latest", "last_checkpoint"]:
            assert shown("step_4/a.pt", more=f"tracker ./{tracker}\t{content}") == [("/c/step_4", 4, None)]


def test_the_marker_of_an_unfinished_nemo_checkpoint_refuses_it() -> None:
    for root, file in (
        ("a--step=18-last", "a--step=18-last.ckpt"),
        ("a--step=18-last", "a--step=18-last/weights/x.pt"),
    ):
        assert problem(file, f"0:{root}-unfinished") == f"unfinished: the file {root}-unfinished exists"
        assert problem(file, "0:a--step=9-last-unfinished") is None


def test_a_file_with_a_hole_is_refused_on_a_local_disk() -> None:
    for disk, size, blocks, name, reason in [
        ("ext2/ext3", 1_000_000, 100, "a.pt", "step_5/a.pt: only 51200 of its 1000000 bytes are on disk"),
        ("xfs", 1_000_000, 0, "a.safetensors", "step_5/a.safetensors: only 0 of its 1000000 bytes are on disk"),
        ("tmpfs", 1_000_000, 1700, "a.pt", "step_5/a.pt: only 870400 of its 1000000 bytes are on disk"),
        ("xfs", 1_000_000, 1953, "a.pt", None),
        ("zfs", 1_000_000, 100, "a.pt", None),
        ("btrfs", 1_000_000, 100, "a.pt", None),
        ("nfs", 1_000_000, 100, "a.pt", None),
        ("", 1_000_000, 100, "a.pt", None),
        ("xfs", 1000, 0, "a.pt", None),
        ("xfs", 1_000_000, 100, "a.dat", None),
    ]:
        found = parse_listing(
            f"state=there\nnow 2000\ndisk {disk}\nfile {size} 1000 {blocks} ./step_5/{name}\nlooked ."
        )
        assert found and [each.problem for each in group_checkpoints(found, "/c").checkpoints] == [reason]


def test_odd_names_stay_what_they_are() -> None:
    for name in [*'"*\udcff\u2028\r\x0b\x85ü', "with space", "it's", "$(id)", "a\tb", "-rf", "x ./y", "..", "a=b"]:
        file = f"{name}/step_5/model {name}.pt"
        [(path, step, reason)] = shown(file, more=f"bad truncated ./{file}")
        assert (path, step) == (f"/c/{name}/step_5", 5) and reason == f"{file}: truncated"


def test_no_name_can_forge_another_line() -> None:
    for mark in ["\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"]:
        found = shown("step_5/a.pt", f"logs/x{mark}file 100 1000 ./step_999/a.pt")
        assert all(step == 5 or mark in path for path, step, _ in found)
        forged = (f"step_5/x{mark}bad truncated .", f"step_5/x{mark}bad truncated ./step_5/a.pt")
        assert problem("step_5/a.pt", *forged) is None


def test_a_cut_line_or_a_number_too_long_adds_nothing_and_breaks_nothing() -> None:
    for line in (
        "file | file x y ./step_5/a.pt | file 5 ./step_5/a.pt | bad | shard | tracker x | now | total | step x | link x"
    ).split(" | "):
        assert [step for _, step, _ in shown("step_4/a.pt", more=line)] == [4]
    assert shown("step_" + "9" * 5000 + "/a.pt") == []


def saved(*files: tuple[str, int | None]) -> list[tuple[str, int]]:
    """Path and step of what a listing with these files, and the steps in their headers, makes."""
    headers = "\n".join(f"step ./{name}\t{step}" for name, step in files if step is not None)
    return [(path, step) for path, step, _ in shown(*(name for name, _ in files), more=headers)]


def test_the_header_outranks_digits_that_belong_to_the_name_of_the_model() -> None:
    for name in ["lora-001", "portrait_2024", "flux_v2-000100", "2024", "step_5", "run-step00000099"]:
        found = saved(
            (f"{name}_000000010.safetensors", 10), (f"{name}_000000030.safetensors", 30), (f"{name}.safetensors", 40)
        )
        assert found[-1] == (f"/c/{name}.safetensors", 40)
        assert [step for _, step in found] == [10, 30, 40]
        assert saved((f"{name}.safetensors", 40)) == [(f"/c/{name}.safetensors", 40)]


def test_a_final_file_is_as_far_as_its_header_or_the_others_unless_it_is_old() -> None:
    for name in ("lora-001", "portrait_2024", "lora"):
        found = saved((f"{name}.safetensors", 40), (f"{name}_000000040.safetensors", 40))
        assert found[-1] == (f"/c/{name}.safetensors", 40)
    for name in ("lora-001", "portrait_2024"):
        for extension in ("safetensors", "pt"):
            names = [f"{name}_000000010.{extension}", f"{name}_000000030.{extension}", f"{name}.{extension}"]
            assert [(each.path, each.step) for each in read(*names)][-1] == (f"/c/{names[-1]}", 30)
    more = "file 100 1500 ./lora-001_000000030.safetensors"
    assert [each.path for each in read("lora-001.safetensors", more=more)] == ["/c/lora-001_000000030.safetensors"]


def seen(*lines: str, up_to: int | None = None) -> CheckpointListing:
    found = parse_listing("\n".join(["state=there", "now 2000", *lines]))
    assert found is not None
    return group_checkpoints(found, "/c", up_to=up_to)


def states(listing: CheckpointListing) -> dict[int, bool | None]:
    return {each.step: each.complete for each in listing.checkpoints}


STEP_8 = ("file 100 1000 ./step_8/a.pt", "file 100 1000 ./step_8/b.pt", "listed ./step_8", "looked ./step_8")


def test_what_may_not_be_read_or_is_a_link_is_unknown(subtests: pytest.Subtests) -> None:
    for line in (
        "shut ./step_6/b.pt",
        "shut ./step_6.pt",
        "linked ./step_6",
        "linked ./step_6/b.pt",
        "linked ./step_6.pt",
    ):
        with subtests.test(line=line):
            file = "step_6.pt" if line.endswith("step_6.pt") else "step_6/a.pt"
            for files in (("step_5/a.pt", file), ("step_5/a.pt",)):
                assert [(each.step, each.complete) for each in read(*files, more=line)] == [(5, True), (6, None)]
    for line in ("linked ./coco_2017", "linked ./step_5/tokenizer.json", "linked ./data/img_7.bin", "shut ./best.pt"):
        found = parse_listing(listing("step_5/a.pt", "best.pt", more=line))
        assert found and group_checkpoints(found, "/c").unknown == 0


def test_in_a_cut_listing_only_what_was_listed_whole_is_judged() -> None:
    found = seen("cut", *STEP_8, "file 100 1000 ./step_7/a.pt", "file 100 1000 ./step_6.pt", "rest 5 7")
    assert states(found) == {6: None, 7: None, 8: True}
    assert found.checkpoints[0].size_bytes is None and found.checkpoints[0].problem
    assert (found.unlisted, found.unknown, found.unlooked_step) == (5, 7, 7)
    below = ("file 100 1000 ./step_7/a.pt", "file 100 1000 ./step_7/b.pt", "file 9 1 ./step_7/c.pt", "listed ./step_7")
    found = seen("cut", *STEP_8, *below, "rest 5 7")
    assert states(found) == {7: None, 8: False}
    assert found.checkpoints[1].problem == "c.pt is missing, but the previous checkpoint has it"
    found = seen("cut", *STEP_8, "rest 5 9")
    assert states(found) == {8: True} and found.newest_complete is None


def test_an_unseen_checkpoint_or_one_of_too_many_files_is_never_complete() -> None:
    old = ("file 0 1000 ./step_3/a.pt", "file 100 1000 ./step_5/a.pt", "file 100 1000 ./step_5/b.pt", "rest 2 5")
    found = seen(*STEP_8, *old)
    assert states(found) == {3: False, 5: None, 8: True} and found.newest_complete == found.checkpoints[-1]
    assert (found.unlisted, found.unknown) == (0, 1)
    found = seen("cut", "over ./a/step_9", "over ./step_10_steps.pkl.step_7.pt", *STEP_8)
    assert states(found) == {7: None, 8: True, 9: None}
    unknown = {each.problem for each in found.checkpoints if each.complete is None}
    assert unknown == {"not inspected: it has too many files"}


def test_a_tracker_of_a_cut_listing_does_not_report_missing_files() -> None:
    tracker = "tracker ./latest_checkpointed_iteration.txt\t{}"
    for named, highest_of_rest in [(5, 7), (7, 7), (0, 0)]:
        assert states(seen("cut", *STEP_8, tracker.format(named), f"rest 5 {highest_of_rest}")) == {8: False}
    assert states(seen("cut", *STEP_8, tracker.format(9), "rest 5 7")) == {8: True, 9: False}
    assert states(seen("cut", *STEP_8, tracker.format(9), "rest 5 7", up_to=8)) == {8: True}


def test_a_file_in_place_does_not_count_where_those_with_a_number_were_cut() -> None:
    last = ("file 100 1000 ./last.ckpt", "listed ./last.ckpt", "looked ./last.ckpt")
    assert states(seen("cut", *last)) == {0: True}
    assert states(seen("cut", *last, "rest 5 7")) == {}


def test_names_have_the_step_in_the_ranking_of_sed_that_they_have_here() -> None:
    for name in (
        "step_500 | global_step500 | checkpoint-00500 | iter_0000500 | epoch=3 | 1000 | 1000.orbax-checkpoint-tmp-7 | "
        "run_epoch50_bs16 | n=0--step=18-consumed_samples=9.0-last | TMP-Checkpoint-60 | my-lora-000004-state | "
        "version | ep1-ba100 | checkpoint-5.tmp | step_7.part | model-2 | checkpoint_000012 | Step 5 | "
        "epoch=1-step=500.ckpt"
    ).split(" | "):
        assert ranked(f"d ./a b/{name}") == [each.step for each in read(f"a b/{name}/model.pt")]
    for name in """
        epoch=1-step=500-val_loss=0.25-last.ckpt lora_000000250.safetensors ep1-ba100-rank0.pt checkpoint_1_50.pt
        rl_model_1000_steps.zip checkpoint-12.pth.tar recovery-3-500.pth.tar best_coco_epoch_7.pth ckpt-50.pt
        model_0004999.pth step_5.pt.tmp.part epoch=03-val_loss=0.25.ckpt rl_model_replay_buffer_9_steps.pkl
    """.split():
        assert ranked(f"f ./a b/{name}") == [each.step for each in read(f"a b/{name}")]


def ranked(line: str) -> list[int]:
    """The steps that the program for sed finds in a line."""
    command = ["sed", "-nE", format_ranking()]
    done = subprocess.run(command, input=f"{line}\n", capture_output=True, text=True, check=True)
    found = (each.partition("/")[0] for each in done.stdout.splitlines())
    return [int(step) for step in found if step.isdigit()]


def test_logs_and_open_files_name_the_layouts_that_are_listed() -> None:
    line = "saved checkpoint to /w/runs/ep1-ba500-rank0.pt"
    counter = CheckpointCounter()
    counter.read(line)
    assert saved_step(line) == 500 and counter.seen == [("step", 500)]
    assert saved_step("saving network-snapshot-000200.pkl") == 200
    assert folder_of_checkpoint("/w/runs/ep1-ba500/model.pt") == "/w/runs"


def test_the_page_names_every_framework() -> None:
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert not [name for each in LAYOUTS for name in each.made_by.split(", ") if name not in page]
