"""Command lines that are trainings, and those that only look like one."""

from __future__ import annotations

import shlex

from training_monitor.look.training_command import (
    folder_of_checkpoint,
    folders_of_arguments,
    is_training,
    may_train,
    script_of,
    split_command,
)

TRAININGS = """
python demo_training.py
python generative_finetune.py
python train.py
python3.11 -u '/workspace/my project/train_llama.py'
/opt/venv/bin/python -X dev -W ignore -m torch.distributed.run --nproc-per-node 8 x.py
/usr/bin/python3 /usr/local/bin/torchrun --nproc_per_node=8 main.py
torchrun --standalone x.py
python -um accelerate.commands.launch x.py
accelerate launch --config_file a.yaml x.py
/opt/bin/python /opt/bin/accelerate launch x.py
deepspeed --num_gpus 8 x.py
python -m axolotl.cli.train config.yml
axolotl train config.yml
llamafactory-cli train config.yaml
lightning run model x.py
python run_clm.py --model gpt2
python examples/sft.py
python -m verl.trainer.main_ppo algorithm=grpo
python main.py --epochs 3 --lr 0.1
python main.py --max_steps=100
python main.py trainer.max_epochs=10
python main.py --cfg a.yaml optim.base_lr 0.01
python main.py --trainer.max_epochs 10
python -m nanogpt fit --config x
mpirun -np 8 python x.py
srun --ntasks=8 torchrun x.py
./train_gpt2cu -i data
python fine-tune.py
python finetune.py
python myTrainer.py
tune run lora_finetune_single_device --config x
trl sft --model x
python train_gpt.py\x20--name 'a b'
python -m cProfile -o prof.out train.py
python -m coverage run -m pkg.train
python /opt/debugpy --connect 127.0.0.1:4123 /app/train.py
python /venv/bin/ipython train.py
python /app/trainer/__main__.py --config a.yaml
julia -t 8 --project=. train.jl
vision segment train data=d.yaml epochs=60
vision task=segment mode=train data=d.yaml
python main.py --do_train
python create_and_train_model.py
python -m build_agent.train_ppo
python -m make_moe.finetune_lora
python -m inspect_ai.rlhf
python build_model.py --epochs 10
python generator.py --epochs 100
python predict.py --do_train
python eval.py --lr 0.1
ray::MyTrainable.save()
python main.py max_steps=100_000
"""
OTHERS = """
python serve.py --port 80
python -m training_monitor watch train.py
training-monitor check
python /usr/bin/jupyter-lab --port 8888
python -m ipykernel_launcher -f x.json
vim train.py
tail -f train.log
bash train.sh
/bin/sh ./train.sh
-bash
grep -r train .
ssh box python train.py
kubectl exec pod -- torchrun train.py
docker run image python train.py
sudo python train.py
tmux new -d python train.py
python -m pytest tests/test_train.py
python -m tensorboard.main --logdir train
tensorboard --logdir train
accelerate config
axolotl preprocess x.yml
python constraint_solver.py
python strain.py
python -c pass
python
python -m
mpirun hostname
python pretrained_server.py
/usr/bin/python3 /usr/bin/networkd-dispatcher --run-startup-triggers
srun
ray::IDLE
python serve_finetuned.py --port 80
python /venv/bin/celery -A trainer.tasks worker
python finetuned_api.py
python eval_lora.py
coverage html train.py
python -m tools.prepare_train_data
python -m coverage run -m pytest tests/test_train.py
python -m cProfile -m
ipython
vision segment val data=d.yaml
python list_trainable_layers.py
python split_train_set.py
python show.py epoch=3-step=60.ckpt
python show.py epoch=3-step=60
python -m tools.make_train_data
python merge_qwen2.5_lora.py
python -m tools.merge_lora.main
python plot_v1.train_curves.py
python eval.py --epoch 3
python -m prepare_data.pretrain_data
python -m tools.inference --max_steps=50
python generate.py max_steps=1000
"""


def test_trainings_are_recognised_and_others_are_not() -> None:
    for lines, expected in ((TRAININGS, True), (OTHERS, False)):
        for line in lines.strip().splitlines():
            assert is_training(shlex.split(line)) is expected, split_command(shlex.split(line))
    assert is_training(["torchrun --nproc_per_node 8 train.py   "]), "it has a title"
    assert split_command(["ray::TrainWorker.run() x"]) == ("ray::TrainWorker.run()", ("x",))
    for words in [[], [""], [" "], ["", "", ""], ["\n"], ["python", "-m", ""], ["\udcff" * 4096] * 50]:
        assert not is_training(words) and folders_of_arguments(words, None) == ()


def test_what_holds_a_gpu_and_trains_nothing_is_left_out() -> None:
    lines = ["/usr/lib/xorg/Xorg :0", "ollama serve", "python -m vllm.entrypoints.openai.api_server", "nvtop", "zsh"]
    assert not any(may_train(line.split()) for line in lines)
    assert may_train(["python", "x.py"]) and may_train(["./a.out"]) and may_train(["python", "-c", "code"])


def test_the_arguments_say_where_checkpoints_go() -> None:
    for line, folders in [
        ("python t.py --output_dir out", ["/w/out"]),
        ("python t.py --output-dir=../out", ["/out"]),
        ("python t.py --save_dir '/a b/c' --ckpt-dir ck", ["/a b/c", "/w/ck"]),
        ("python t.py --save /ckpt/ --load /old --save-interval 5", ["/ckpt"]),
        ("python t.py output_dir=x trainer.default_root_dir=/r ++checkpoint.save_dir=/s", ["/w/x", "/r", "/s"]),
        ("python t.py --resume_from_checkpoint /c --pretrained_model_path /m --data_dir /d --logging_dir /l", []),
        ("python t.py --output_dir --fp16", []),
        ("python t.py --output_dir s3://bucket/x", []),
        ("python t.py --out_dir=~/out", ["~/out"]),
        ("python t.py --save_strategy steps --checkpoint_path /p", ["/p"]),
    ]:
        assert list(folders_of_arguments(shlex.split(line), "/w")) == folders
    assert folders_of_arguments(["t", "--output_dir", "x", "--save_dir", "/y"], None) == ("/y",)


def test_a_file_of_a_checkpoint_says_where_all_of_them_are() -> None:
    for path, folder in [
        ("/w/out/checkpoint-500/model.safetensors", "/w/out"),
        ("/w/out/checkpoint-500/global_step500/mp_rank_00.pt", "/w/out"),
        ("/w/out/tmp-checkpoint-500/optimizer.pt", "/w/out"),
        ("/w/ckpt/iter_0000500/mp_rank_00/model_optim_rng.pt", "/w/ckpt"),
        ("/w/lightning_logs/version_0/checkpoints/epoch=1-step=10.ckpt", "/w/lightning_logs/version_0/checkpoints"),
        ("/w/last.ckpt", "/w"),
        ("/model.pt", "/"),
        ("/w/model.safetensors.tmp", "/w"),
        ("/w/train.log", None),
        ("/w/events.out.tfevents.1", None),
        ("", None),
    ]:
        assert folder_of_checkpoint(path) == folder


def test_the_script_of_a_command_is_that_of_its_ranks_whoever_starts_them() -> None:
    for command, script in [
        ("python /home/me/train.py --lr 0.1", "train.py"),
        ("python '/home/me/my project/train.py' --lr 0.1", "train.py"),
        ("python -um pkg.train --lr 0.1", "pkg.train"),
        ("./train_gpt2cu -i data", "train_gpt2cu"),
        ("torchrun --nproc-per-node 8 src/train.py --config eval.py", "train.py"),
        ("/usr/bin/python3 /usr/local/bin/torchrun --nnodes=2 -m pkg.train", "pkg.train"),
        ("python -m torch.distributed.run --module pkg.train", "pkg.train"),
        ("accelerate launch --config_file a.yaml x.py", "x.py"),
        ("mpirun -np 8 python x.py", "x.py"),
        ("srun --ntasks=8 torchrun x.py", "x.py"),
        ("python -m cProfile -o prof.out src/train.py --lr 1", "train.py"),
        ("python -m pdb -m pkg.train", "pkg.train"),
        ("/usr/lib/R/bin/exec/R --no-echo --file=src/train.R", "train.R"),
        ("mpirun -np 8 ./train", None),
        ("axolotl train config.yml", None),
        ("torchrun --nproc-per-node 8", None),
        ("python -c import_train", None),
        ("python3.11", None),
        ("", None),
    ]:
        assert script_of(shlex.split(command)) == script
