"""Lines as frameworks print them at each step, with numbers, times, memory and units that change as theirs do.

Written after the format strings of the frameworks. Floats that a framework prints as Python prints them have as many
digits as they happen to have.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

Line = Callable[[int], str]
_CHANCE = random.Random(7)
_TOTAL = 90_000


def loss(at: int) -> float:
    return 1.5 + 6 / (1 + at / 900) + _CHANCE.gauss(0, 0.03)


def near(value: float, spread: float = 0.02) -> float:
    return value * (1 + _CHANCE.gauss(0, spread))


def rate(at: int) -> float:
    return 3e-4 * 0.5 * (1 + math.cos(math.pi * (at % _TOTAL) / _TOTAL))


def clock(seconds: float) -> str:
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute:02d}:{second:02d}"


def stamp(at: int, between: str = " ") -> str:
    seconds = at * 3
    return f"2026-11-{1 + seconds // 86400 % 28:02d}{between}" + (
        f"{seconds // 3600 % 24:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    )


def bar(name: str, at: int, total: int, notes: str = "", speed: str = "") -> str:
    """A bar of tqdm, redrawn."""
    done = at % total
    drawn = "█" * (10 * done // total) + ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][80 * done // total % 8]
    spent, left = clock(done * 0.8), clock((total - done) * 0.8)
    speed = speed or f"{near(1.25):5.2f}it/s"
    return f"\r{name}{100 * done // total:3d}%|{drawn:<10}| {done}/{total} [{spent}<{left}, {speed}{notes}]"


def huggingface(at: int) -> str:
    return (
        f"{{'loss': {round(loss(at), 4)}, 'grad_norm': {near(1.3, 0.3)}, 'learning_rate': {rate(at)},"
        f" 'epoch': {round(at / 3000, 2)}}}\n"
    )


def huggingface_5(at: int) -> str:
    return (
        f"{{'loss': '{loss(at):.4g}', 'grad_norm': '{near(1.3, 0.3):.4g}', 'learning_rate': '{rate(at):.4g}',"
        f" 'epoch': '{at / 3000:.4g}'}}\n"
    )


def axolotl(at: int) -> str:
    said = (
        f"{{'loss': {round(loss(at), 4)}, 'grad_norm': {near(1.3, 0.3):.4f}, 'learning_rate': {rate(at):.4e},"
        f" 'memory/max_mem_active(gib)': {near(61.0):.2f}, 'memory/device_mem_reserved(gib)': 74.31,"
        f" 'epoch': {at / 3000:.2f}}}"
    )
    return bar("", at, _TOTAL) + said + "\n"


def tqdm(at: int) -> str:
    return bar("Training: ", at, _TOTAL, f", loss={loss(at):.4f}, lr={rate(at):.2e}, mem={near(40.1):.1f}GB")


def described(at: int) -> str:
    return bar(f"Epoch 1 loss {loss(at):.4f} lr {rate(at):.2e}: ", at, _TOTAL)


def lightning(at: int) -> str:
    return bar("Epoch 0: ", at, _TOTAL, f", v_num=3, train_loss={loss(at):.3f}, gpu_mem={near(40.1):.1f}G")


def lightning_rich(at: int) -> str:
    done = at % _TOTAL
    drawn = "━" * (30 * done // _TOTAL) + "╸"
    return (
        f"\x1b[37mEpoch 0/9 \x1b[0m \x1b[38;2;98;6;224m{drawn:<31}\x1b[0m \x1b[37m{done}/{_TOTAL}\x1b[0m"
        f" \x1b[38;5;245m{clock(3600 + done)} • {clock(3600 + _TOTAL - done)}\x1b[0m \x1b[38;5;249m{near(1.25):.2f}it/s"
        f"\x1b[0m \x1b[37mv_num: 3.000 train_loss: {loss(at):.3f}\x1b[0m\n"
    )


def deepspeed(at: int) -> str:
    return (
        f"[{stamp(at)},{at * 37 % 1000:03d}] [INFO] [logging.py:96:log_dist] [Rank 0] step={at}, skipped=0,"
        f" lr=[{rate(at)}], mom=[(0.9, 0.95)]\n"
    )


def megatron(at: int) -> str:
    return (
        f" [{stamp(at)}] iteration {at:8d}/ 900000 | consumed samples: {at * 512:12d} | elapsed time per iteration"
        f" (ms): {near(2310.0):.1f} | throughput per GPU (TFLOP/s/GPU): {near(410.0):.1f} |"
        f" learning rate: {rate(at):.6E} | global batch size:   512"
        f" | lm loss: {loss(at):.6E} | loss scale: 1.0 | grad norm: {near(0.9, 0.2):.3f}"
        " | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    )


def nemo(at: int) -> str:
    return (
        f"[NeMo I {stamp(at)} progress:42] Training epoch 0, iteration {at}/900000 | lr: {rate(at):.3e} |"
        f" consumed_samples: {at * 512} | global_batch_size: 512 | global_step: {at} | peak_memory_usage:"
        f" {_CHANCE.randrange(60_000_000_000, 60_000_999_999)} | reduced_train_loss: {loss(at):.4g} |"
        f" train_step_timing in s: {near(2.3):.4g}\n"
    )


def torchtune(at: int) -> str:
    return bar(f"1|{at}|Loss: {loss(at)}: ", at, _TOTAL)


def torchtitan(at: int) -> str:
    return (
        f"[rank0]:[titan] {stamp(at)},{at * 37 % 1000:03d} - root - INFO - \x1b[31mstep: {at:2}  \x1b[32mloss:"
        f" {loss(at):7.4f}  \x1b[38;2;180;60;0mgrad_norm: {near(1.3, 0.3):7.4f}  \x1b[33mmemory: {near(40.1):5.2f}GiB"
        f"(50.62%)  \x1b[34mtps: {round(near(7123)):,}  \x1b[36mtflops: {near(412):,.2f}"
        f"  \x1b[35mmfu: {near(41.3):.2f}%\x1b[39m\n"
    )


def fairseq(at: int) -> str:
    return (
        f"{stamp(at)} | INFO | train_inner | epoch 001: {at:6d} / 900000 loss={loss(at):.3f}, nll_loss="
        f"{loss(at):.3f}, ppl={near(12.5):.2f}, wps={near(51234.0):.1f}, ups={near(1.25):.2f}, wpb=4000.1, bsz=128,"
        f" num_updates={at}, lr={rate(at):.6g}, gnorm={near(1.3, 0.3):.3f}, clip=0,"
        f" train_wall={_CHANCE.randrange(70, 99)}, gb_free={near(31.2):.1f}, wall={at * 3}\n"
    )


def nanogpt(at: int) -> str:
    return f"iter {at}: loss {loss(at):.4f}, time {near(250.0):.2f}ms, mfu {near(41.3):.2f}%\n"


def keras(at: int) -> str:
    done = 1 + at % 1874
    drawn = "=" * (29 * done // 1875) + ">"
    return (
        f"\r{done:4d}/1875 [{drawn:.<30}] - ETA: {(1875 - done) * 3 // 1000}s - loss: {loss(at):.4f} -"
        f" accuracy: {near(0.8):.4f}"
    )


def keras_3(at: int) -> str:
    done = 1 + at % 1874
    drawn = "━" * (20 * done // 1875)
    return (
        f"\r\x1b[1m{done:4d}/1875\x1b[0m \x1b[32m{drawn}\x1b[0m\x1b[37m{'━' * (20 - len(drawn))}\x1b[0m"
        f" \x1b[1m{(1875 - done) * 3 // 1000}s\x1b[0m {_CHANCE.randrange(2, 5)}ms/step - accuracy: {near(0.8):.4f} -"
        f" loss: {loss(at):.4f}"
    )


def maxtext(at: int) -> str:
    return (
        f"completed step: {at}, seconds: {near(2.3):.3f}, TFLOP/s/device: {near(212.0):.3f},"
        f" Tokens/s/device: {near(7123.0):.3f}, total_weights: 65536, loss: {loss(at):.3f}\n"
    )


def detectron2(at: int) -> str:
    return (
        f"\x1b[32m[{stamp(at)[5:].replace('-', '/')} d2.utils.events]: \x1b[0m eta: {clock(3 * (900_000 - at))}  iter:"
        f" {at}  total_loss: {loss(at):.4g}  loss_cls: {near(0.5):.4g}  loss_box_reg: {near(0.3):.4g}    time: "
        f"{near(0.3):.4f}  last_time: {near(0.3):.4f}  data_time: {near(0.01):.4f}   lr: {rate(at):.5g}"
        "  max_mem: 9120M\n"
    )


def mmengine(at: int) -> str:
    return (
        f"{stamp(at).replace('-', '/')} - mmengine - INFO - Epoch(train)  [1][{at % _TOTAL:5d}/{_TOTAL}]  lr:"
        f" {rate(at):.4e}  eta: 1 day, {clock(3600 + 3 * at % 70_000)}  time: {near(0.3):.4f}"
        f"  data_time: {near(0.01):.4f}  memory: {round(near(9120))}  loss: {loss(at):.4f}  loss_cls: {near(0.5):.4f}\n"
    )


def yolo(at: int) -> str:
    done = at % 1875
    drawn = "━" * (12 * done // 1875)
    return (
        f"\r\x1b[K      1/100      {near(9.1):.2f}G     {near(1.2):.4g}     {near(2.1):.4g}     {near(1.3):.4g}"
        f"         {_CHANCE.randrange(20, 99)}        640: {100 * done // 1875}% {drawn:─<12} {done}/1875"
        f" {near(7.5):.1f}it/s {clock(60 + done // 8)}<{clock(60 + (1875 - done) // 8)}"
    )


def xgboost(at: int) -> str:
    return f"[{at}]\ttrain-rmse:{loss(at):.5f}\ttest-rmse:{loss(at):.5f}\n"


def lightgbm(at: int) -> str:
    return f"[{at}]\tvalid_0's l2: {loss(at):.6g}\tvalid_0's auc: {near(0.8):.6g}\n"


def catboost(at: int) -> str:
    return f"{at}:\tlearn: {loss(at):.7f}\ttest: {loss(at):.7f}\ttotal: {clock(at)}\tremaining: {near(12.5):.1f}s\n"


def timm(at: int) -> str:
    done = at % 1251
    return (
        f"Train: 3 [{done:>4d}/1251 ({100 * done // 1251:>3d}%)]  Loss: {loss(at):#.3g} ({loss(at):#.3g})  Time:"
        f" {near(0.3):.3f}s, {near(850.0):>7.2f}/s  ({near(0.3):.3f}s, {near(850.0):>7.2f}/s)  LR: {rate(at):.3e}"
        f"  Data: {near(0.01):.3f} ({near(0.01):.3f})\n"
    )


def swin(at: int) -> str:
    done = at % 1251
    return (
        f"[{stamp(at)} swin] (main.py 227): INFO Train: [0/300][{done}/1251]\teta {clock(3600 + (1251 - done) // 3)} lr"
        f" {rate(at):.6f}\t wd 0.0500\ttime {near(0.3):.4f} ({near(0.3):.4f})\tloss {loss(at):.4f} ({loss(at):.4f})\t"
        f"grad_norm {near(1.3):.4f} ({near(1.3):.4f})\tmem 11234MB\n"
    )


def table(at: int) -> str:
    """A table of values, as PyTorch recipes that write CSV print it."""
    return f"{at},{loss(at):.4f},{rate(at):.3e},{near(0.3):.3f}\n" if at else "step,loss,lr,time\n"


def verbose(at: int) -> str:
    """Thousands, a host, a GPU's figures and an ETA, as scripts of one's own print them."""
    return (
        f"{stamp(at)} node-{at % 8:02d} step {at:,}/900,000 | loss {loss(at):.4f} | lr {rate(at):.2e} | eta"
        f" {clock(3 * (900_000 - at))} | gpu 0: {_CHANCE.randrange(90, 100)}% | gpu_mem {near(40.1):.1f}/80.0GB\n"
    )


def diverged(at: int) -> str:
    return f"{{'loss': nan, 'grad_norm': nan, 'learning_rate': {rate(at):.3e}, 'epoch': {at / 3000:.2f}}}\n"


def diverged_plain(at: int) -> str:
    return f"step {at}/900000 | loss nan | lr {rate(at):.2e} | gpu_mem {near(40.1):.1f}GB\n"


FRAMEWORKS: dict[str, Line] = {
    "HF Trainer": huggingface,
    "HF Trainer of transformers 5": huggingface_5,
    "axolotl, with progress bar": axolotl,
    "tqdm": tqdm,
    "tqdm, loss in the description": described,
    "Lightning": lightning,
    "Lightning, rich": lightning_rich,
    "DeepSpeed": deepspeed,
    "Megatron-LM": megatron,
    "NeMo": nemo,
    "torchtune": torchtune,
    "torchtitan": torchtitan,
    "fairseq": fairseq,
    "nanoGPT": nanogpt,
    "Keras 2": keras,
    "Keras 3": keras_3,
    "MaxText": maxtext,
    "detectron2": detectron2,
    "MMEngine": mmengine,
    "YOLO": yolo,
    "XGBoost": xgboost,
    "LightGBM": lightgbm,
    "CatBoost": catboost,
    "timm": timm,
    "Swin": swin,
    "a CSV table": table,
    "lines with thousands separators, host names and GPU figures": verbose,
    "NaN loss, HF Trainer": diverged,
    "NaN loss, plain lines": diverged_plain,
}
