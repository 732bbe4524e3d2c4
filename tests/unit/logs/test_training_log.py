"""What a training log says about progress: newest in text order, and nothing that is not progress."""

from __future__ import annotations

import math

import pytest

from training_monitor.core.models import Progress
from training_monitor.logs.events import find_phase
from training_monitor.logs.job_progress import job_progress
from training_monitor.logs.training_log import parse_progress

BAR = "{name} {percent}%|###       | {count}/{total} [00:10<01:30, {rate}{notes}]"


def bar(count: int, total: int, *, name: str = "", rate: str = "1.00it/s", notes: str = "") -> str:
    return BAR.format(name=name, percent=100 * count // total, count=count, total=total, rate=rate, notes=notes)


def test_a_step_is_read_in_every_wording() -> None:
    for line, step, total in [
        ("step 12/400", 12, 400),
        ("step: 12", 12, None),
        ("step:12 - actor/pg_loss:0.25 - timing_s/step:96.5", 12, None),
        ("step=12, lr=[5e-05]", 12, None),
        ("Step 12", 12, None),
        ("iteration       12/     400 | lm loss: 2.5E+00 | loss scale: 65536.0 |", 12, 400),
        ("iter 12: loss 2.5, time 895.0ms", 12, None),
        ("INFO global_step=12 loss=2.5", 12, None),
        ("step 12 of 400", 12, 400),
        ("step 1,200/10,000", 1200, 10000),
        ('{"current_steps": 12, "total_steps": 400, "loss": 2.5}', 12, 400),
        ("[rank3]: step 12/400", 12, 400),
        ("[dev] 2031/02/03 04:05:06 step 12/400", 12, 400),
        ("[1,0]<stdout>:step 12/400", 12, 400),
        ("0: step 12/400", 12, 400),
        ("(TaskRunner pid=2222) step:12 - actor/pg_loss:0.5", 12, None),
        ("\x1b[36m(W pid=27, ip=10.0.0.7)\x1b[0m step 12/400\x1b[32m [repeated 3x across cluster]\x1b[0m", 12, 400),
        ("2030-01-01T10:00:00.123456789Z step 12/400", 12, 400),
        ("100%|\u00a0\u00a0| 12/400 [00:10<01:30, 1.00it/s]", 12, 400),
    ]:
        found = parse_progress(line)
        assert (found.step, found.total_steps) == (step, total)


def test_settings_resumes_and_other_work_are_not_progress() -> None:
    for line in [
        "total_steps: 4000",
        "save_steps=500",
        "max_train_steps: 4000",
        "steps: 4000",
        "warmup step 100",
        "Running entrypoint for job x: python a.py --step 500",
        "python a.py --step 500",
        "Resuming from step 5000",
        "checkpoint step 700",
        "loading checkpoint at step 700",
        "step: 1172.13",
        "timing_s/step:96.5",
        "Step 2/5: Downloading the data",
        "Skipping step. Attempted loss scale: 65536",
        "inference step 20",
        "Namespace(step=500, lr=0.1)",
        "next step 900",
        "Test: [ 10/100] loss: 0.5",
    ]:
        found = parse_progress(line)
        assert (found.step, found.loss) == (None, None)
    for line in [
        "Preprocessing step 3 of 7: join",
        "Compiling the graph (step 1/3): wait",
        "Loaded model weights at step 90",
        f"{bar(5, 9, name='Merging weights:')}",
        f"{bar(5, 9, name='train: Scanning labels... 5 images:')}",
        f"{bar(5, 9, name='reference log probs:')}",
        f"caching latents...\n{bar(5, 9)}",
    ]:
        assert parse_progress(line) == Progress()


def test_other_bars_are_not_progress() -> None:
    for name in [
        "Validation DataLoader 0:",
        "Generating Samples:",
        "Loading checkpoint shards:",
        "Processed prompts:",
        "Map:",
        "Tokenizing train:",
        "Quantizing:",
        "Downloading data:",
        "Evaluating:",
        "Sanity Checking:",
        "Caching latents:",
        "Batches:",
        "Running loglikelihood requests:",
    ]:
        assert parse_progress(bar(3, 7, name=name)).step is None
        text = f"{bar(10, 100)}\n{bar(3, 7, name=name)}"
        assert (parse_progress(text).step, parse_progress(text).total_steps) == (10, 100)
    assert parse_progress("m.safetensors:  7%|#  | 1.95G/26.3G [15:11<2:37:06, 2.58MB/s]").step is None
    assert parse_progress(bar(500, 1000, rate="900.00 examples/s")).step is None
    text = f"{bar(500, 1000)}\r{bar(3, 38, rate='40.0it/s')}\r{bar(20, 38, rate='40.0it/s')}"
    assert (parse_progress(text).step, parse_progress(text).total_steps) == (500, 1000)


def test_a_loss_may_be_no_number_and_other_losses_are_not_the_loss() -> None:
    found = parse_progress("step 5/10 loss: nan")
    assert found.step == 5 and found.loss is not None and math.isnan(found.loss)
    assert parse_progress("loss: inf").loss == math.inf
    for name in ["loss_scale", "loss scale", "eval_loss", "val loss", "loss_cls", "value_loss", "kl_loss"]:
        assert parse_progress(f"step 3 | {name}: 65536.0").loss is None
    assert parse_progress("0 errors found, error_rate=0") == Progress()


def test_the_newest_of_a_text_wins_and_never_the_largest() -> None:
    assert parse_progress("step 900/1000\nstep 12/1000").step == 12
    text = f"{bar(500, 1000)}\nTraceback (most recent call last):\n{bar(3, 800)}"
    assert (parse_progress(text).step, parse_progress(text).total_steps) == (3, 800)
    found = parse_progress("max_train_steps: 4000\nsteps: 3/4000 loss: 0.5")
    assert (found.step, found.total_steps, found.loss) == (3, 4000, 0.5)
    found = parse_progress("Resuming from step 5000\nstep 10/100")
    assert (found.step, found.total_steps) == (10, 100)
    assert parse_progress("loss=0.3\ntrain_loss: 0.5").loss == 0.5


def test_a_trainers_dictionary_and_the_notes_of_a_bar_are_read() -> None:
    numbers = parse_progress("{'loss': 0.5, 'grad_norm': 1.5, 'learning_rate': 2e-05, 'epoch': 0.25}")
    strings = parse_progress("{'loss': '0.5', 'grad_norm': '1.5', 'learning_rate': '2e-05', 'epoch': '0.25'}")
    assert numbers == strings == Progress(loss=0.5, grad_norm=1.5, learning_rate=2e-05, epoch=0.25, epochs_done=0.25)
    found = parse_progress(bar(10, 100) + "{'loss': 0.5, 'epoch': 0.25}" + bar(11, 100, rate="2.00s/it"))
    assert (found.step, found.loss, found.epoch, found.steps_per_second) == (11, 0.5, 0.25, 0.5)
    found = parse_progress(bar(10, 100, name="steps:", notes=", avr_loss=nan, lr=1e-4"))
    assert found.step == 10 and found.learning_rate == 1e-4 and math.isnan(found.loss or 0.0)
    found = parse_progress(f"tokenizer loaded\r{bar(10, 100)}")
    assert (found.step, found.total_steps) == (10, 100)


def test_an_epoch_bar_counts_inside_the_epoch() -> None:
    found = parse_progress(bar(40, 100, name="Epoch 2/3:", notes=", loss=0.5"))
    assert (found.epoch, found.total_epochs, found.epoch_step, found.epoch_steps) == (2, 3, 40, 100)
    assert (found.step, found.total_steps, found.eta_scope, found.loss) == (None, None, "epoch", 0.5)
    found = parse_progress(bar(40, 100, name="Epoch 2:", notes=", loss=0.5, global_step=240"))
    assert (found.step, found.epoch_step) == (240, 40)
    assert parse_progress(bar(40, 100, name="Episode [1/1]:")).step == 40
    found = parse_progress(f"{bar(2, 9, name='Epochs:')}\n{bar(30, 80)}")
    assert (found.step, found.epoch, found.epoch_step, found.eta_scope) == (None, 2, 30, "epoch")
    found = parse_progress("Epoch 1:   2%|   | 20/900 [05:12<4:15:12, v_num=a, reduced_train_loss=7.1]")
    assert (found.epoch_step, found.epoch_steps, found.eta_seconds, found.loss) == (20, 900, 15312, 7.1)
    assert found.steps_per_second is None


def test_lines_and_announced_totals_of_epochs_are_read() -> None:
    found = parse_progress("Epoch 2/3")
    assert (found.epoch, found.total_epochs) == (2, 3)
    found = parse_progress("Epoch [4][50/100]  lr: 1.0e-03, eta: 1:00:00, time: 0.5, loss: 0.25")
    assert (found.epoch, found.epoch_step, found.epoch_steps, found.steps_per_second) == (4, 50, 100, 2.0)
    assert parse_progress("Epoch [1/5], Step [100/600], Loss: 0.3") == Progress(
        epoch=1, total_epochs=5, epoch_step=100, epoch_steps=600, loss=0.3, epochs_done=100 / 600, epochs_planned=5
    )
    found = parse_progress("  Num Epochs = 3\n  Total optimization steps = 1,200")
    assert (found.step, found.total_steps, found.total_epochs) == (None, 1200, 3)


def test_a_percentage_or_a_batch_of_an_epoch_is_not_its_end_nor_the_job() -> None:
    for line, done in [
        ("Epoch 3/8 ━━━╸━━━ 45% 0:01:12 loss=0.5", 2),
        ("Epoch 3/8 (45%) loss 0.5", 2),
        ("Epoch 3/8 100% loss 0.5", 3),
        ("Epoch 3/8 | 45% acc | loss 0.5", 3),
        ("Epoch 3/8 | rate 0.1 | batch 40/100 | loss 0.5", 2.4),
    ]:
        assert job_progress(parse_progress(line)).epoch == pytest.approx(done)
    assert parse_progress("Epoch 1/1 | rate 0.1 | batch 40/100 | loss 0.5").total_steps == 100


def test_the_remaining_time_says_whether_it_ends_with_the_job_or_the_epoch() -> None:
    job = parse_progress(bar(10, 100))
    assert (job.eta_seconds, job.eta_scope) == (90, "job")
    meter = parse_progress("Epoch: [0]  [  10/100]  eta: 0:01:30  lr: 0.01  loss: 4.5 (4.6)  time: 1.0  data: 0.1")
    assert (meter.eta_seconds, meter.eta_scope, meter.loss) == (90, "epoch", 4.5)
    assert parse_progress("{'loss': 0.5, 'remaining_time': '41m 48s'}").eta_seconds == 41 * 60 + 48
    assert parse_progress(" 0%|   | 0/300 [00:00<?, ?it/s]") == Progress(step=0, total_steps=300)
    assert parse_progress("900it [00:03, 300.00it/s]").eta_seconds is None
    found = parse_progress("Learning iteration 12/150\n Total timesteps: 98304\n Iteration time: 0.25s\n ETA: 34.5s")
    assert (found.step, found.total_steps, found.steps_per_second, found.eta_seconds) == (12, 150, 4, 34.5)


def test_the_speed_is_steps_per_second() -> None:
    for line, speed in [
        ("step 3 | 4.0 it/s", 4.0),
        ("step 3 (0.25 sec/step)", 4.0),
        ("iter 3: loss 1.0, time 250.00ms", 4.0),
        ("iteration 3/ 9 | elapsed time per iteration (ms): 250.0/300.0 |", 4.0),
        ("step 3 step_time 0.25 s", 4.0),
    ]:
        assert parse_progress(line).steps_per_second == pytest.approx(speed)
    for none in ["1e-320 it/s", "steps_per_second: 1e-320", "1e-320 s/it", "step_time: 1e300"]:
        assert parse_progress(f"step 3 | {none}").steps_per_second is None
    text = "\r".join([bar(10, 100, rate="3.21it/s"), bar(11, 100, rate="9.00s/it")])
    assert parse_progress(text).steps_per_second == pytest.approx(1 / 9)
    assert parse_progress("step: 3  loss:  6.2  tps: 123,400  mfu: 31.5%").tokens_per_second == 123400
    assert parse_progress("step 3 1,200 tokens/s").tokens_per_second == 1200
    assert parse_progress("step 3 loss 0.5 Speed: 7.5 samples/sec").samples_per_second == 7.5
    for words in [
        "train_step_timing in s: 0.25",
        "iter time (s): 0.25",
        "time (data): 0.25 (0.01)",
        "batch_cost: 0.25",
        "Batch (t): 0.25",
        "ms/batch 250",
        "dt: 250.0ms",
        "step_avg:250.0ms",
        "per-step time 0.25s",
        "Time/step: 0.25s",
        "250000us/step",
        "interval_steps_per_second: 4.0",
        "throughput/batches_per_sec: 4.0",
        "0.25 seconds per step",
    ]:
        assert parse_progress(f"step: 3 | {words}").steps_per_second == pytest.approx(4)


def test_a_saved_checkpoint_is_a_checkpoint_and_no_step() -> None:
    found = parse_progress("step 40/100\nsaving checkpoint at step 50")
    assert (found.step, found.checkpoint_step) == (40, 50)
    found = parse_progress(bar(60, 100) + "[INFO|trainer.py:1] Saving model checkpoint to out/checkpoint-60")
    assert (found.step, found.checkpoint_step) == (60, 60)
    assert parse_progress("saving checkpoint: out/m-1.safetensors").checkpoint_step == 1
    assert parse_progress("Checkpoint saved to out/model_epoch_12.pth").checkpoint_step is None
    line = "saving checkpoint at iteration      50 to /ckpt\n successfully saved checkpoint from iteration      50"
    assert [parse_progress(each).checkpoint_step for each in (line, line.partition("\n")[2])] == [50, 50]


def test_wordings_are_read() -> None:
    for line, fields in [
        # counters without a name, in brackets and first columns
        ("Iter(train) [  50/ 900]  lr: 1.0e-02  eta: 0:07:05  time: 0.5", {"step": 50, "total_steps": 900}),
        ("Training  [  50/900]  eta: 0:07:05  total_loss: 2.5 (2.6)", {"step": 50, "total_steps": 900, "loss": 2.5}),
        (
            "| [  2/ 4][ 30/ 80] |   60/160 batches | ms/batch 50.0 | train_loss 2.5",
            {"step": 30, "total_steps": 80, "epoch": 2, "total_epochs": 4, "epoch_step": 60, "steps_per_second": 20},
        ),
        ("[2/9][30/80]\tLoss_D: 0.5\tLoss_G: 2.5", {"step": None, "epoch": 2, "total_epochs": 9, "epoch_step": 30}),
        ("Epoch... (2/9 | Loss: 2.5, Learning Rate: 0.5)", {"epoch": 2, "total_epochs": 9, "loss": 2.5}),
        ("notes: 2.0 steps/s, 5.0% (40/800), ETA: 6m", {"step": 40, "total_steps": 800, "eta_seconds": 360}),
        ("I0101 10:00:00.1 77 writer.py:9] [40] accuracy=0.5, loss=2.5", {"step": 40, "loss": 2.5}),
        ("[40]\tvalid_0's l2: 0.5", {"step": 40, "loss": None}),
        ("[40]\ttrain-rmse:0.5\ttest-rmse:0.75", {"step": 40}),
        ("40:\tlearn: 0.5\ttest: 0.75\ttotal: 2s\tremaining: 12.5s", {"step": 40, "eta_seconds": 12.5}),
        ("40 | loss 2.5 | lr 0.5 | 250.0ms | mfu 9.0%", {"step": 40, "loss": 2.5, "steps_per_second": 4}),
        ("[1/2][3/4] linking", {"epoch": None}),
        ("[3] device: 3", {"step": None}),
        # which counter is the job's
        ("epoch=1/micro_step=80/global_step=20, RunningAvgSamplesPerSec=4.0", {"step": 20, "epoch": 1}),
        ("Epoch: 2 | Step: 9 | PPO Epoch: 5 | Actor Loss: 0.5", {"epoch": 2, "step": 9, "loss": None}),
        ('{"global_step": 9, "max_steps": 90, "train_loss": 2.5}', {"step": 9, "total_steps": 90, "loss": 2.5}),
        (
            "[Train][Epoch 2/9][Iter: 30/80] loss: 2.5, batch_cost: 0.5 s, eta: 9:00:00",
            {"step": None, "epoch_step": 30, "eta_scope": "job", "steps_per_second": 2},
        ),
        ('{"epoch": "2/90", "eta": "0:01:00", "iter": "60/80", "loss": 2.5}', {"step": None, "epoch_step": 60}),
        (
            "epoch: 2, iter: 300/8000, loss: 2.5, batch_cost: 0.5 | ETA 01:04:10",
            {"step": 300, "total_steps": 8000, "eta_seconds": 3850, "eta_scope": "job"},
        ),
        (
            "Ep. 2 : Up. 300 : Sen. 4,000 : Cost 2.5 : Time 9.00s : 700.0 words/s : L.r. 5.0e-01",
            {"step": 300, "epoch": 2, "loss": 2.5, "learning_rate": 0.5, "steps_per_second": None},
        ),
        (
            "7epoch:train:1-50batch: iter_time=1.0e-03, forward_time=0.5, loss=2.5, optim0_lr0=0.5",
            {"epoch": 7, "loss": 2.5, "learning_rate": 0.5, "steps_per_second": None},
        ),
        # evaluation on the same line
        (
            "Epoch 2 | iter 80 step 20 | loss train: 2.5, val: n/a | iter time: 250.0 ms",
            {"epoch": 2, "step": 20, "loss": 2.5, "steps_per_second": 4},
        ),
        ("7epoch results: [train] loss=2.5, time=9 seconds, [valid] loss=3.5", {"epoch": 7, "loss": 2.5}),
        # losses and rates
        ("step 3 loss tensor(2.5, device='cuda:0')", {"loss": 2.5}),
        ("step 3 | Loss=2.5, Depth Loss=0.0", {"loss": 2.5}),
        ("{'Loss/total_loss': 2.5,", {"loss": 2.5}),
        ("train/CrossEntropyLoss=2.5", {"loss": 2.5}),
        ("| > current_lr: 0.5", {"learning_rate": 0.5}),
        ("Train lr-DecoupledLionW/group0: 0.5", {"learning_rate": 0.5}),
        # remaining time
        ("Train: [2/9][30/80]\teta 0:00:25 lr 0.5\ttime 0.5 (0.5)", {"eta_seconds": 25, "eta_scope": "epoch"}),
        (
            "Train: 2/9 ( 22%) [ 30/80 ( 37%)] Loss: 2.5 Time cost: 00:15/00:25 [00:55/05:25] Acc_iter 110",
            {"step": 110, "eta_seconds": 325, "eta_scope": "job"},
        ),
        ("120 iter, 2 epoch / 9 epochs", {"step": 120, "epoch": 2, "total_epochs": 9}),
        ("Estimated time to finish: 1:00:10.5.", {"eta_seconds": 3610.5, "eta_scope": "job"}),
        ("300 (1.00%)    250.0 ms    2 m, 5 s    10.0 K", {"step": 300, "eta_seconds": 125, "steps_per_second": 4}),
    ]:
        found = parse_progress(line)
        assert {name: getattr(found, name) for name in fields} == fields


def test_an_evaluation_line_leaves_the_loss_alone() -> None:
    for line in [
        "validate step: 9  loss: 3.5",
        "INFO eval metrics after step: 9, loss=3.5",
        "Test: [9/20] loss 3.5",
        "INFO:x:Saving dict for global step 9: loss = 3.5",
        "iter 9: val loss 3.5, val time: 90.0 ms",
        "valid | step 9 | loss 3.5",
        '{"_type": "val_iter", "loss": 3.5}',
        '{"event": "eval_batch", "step": 9, "loss": 3.5}',
        '{"val": {"loss": 3.5, "step": 9}, "loss": 2.5}',
        "dev: batch 9/20, loss = 3.5",
        "[dev] batch 9/20 loss 3.5",
        "Epoch 9 (valid): acc: 0.5 | loss: 3.5",
        "held-out: 9/20 done, loss 3.5",
        "验证集：step 9/20 loss 3.5",
        "  train_loss    =     3.5",
    ]:
        found = parse_progress(f"iter 8 step 2 | loss: 2.5\n{line}")
        assert (found.loss, found.step, found.steps_per_second) == (2.5, 2, None)


def test_a_smaller_bar_does_not_take_the_job_over_but_a_next_training_does() -> None:
    for other in [bar(3, 20), f"generating sample images at step: 50\n{bar(3, 20)}", bar(3, 20, name="sampler:")]:
        for step in [50, 100]:
            found = parse_progress(f"{bar(step, 100, name='steps:', notes=', avr_loss=2.5')}\n{other}")
            assert (found.step, found.total_steps) == (step, 100)
    text = f"{bar(100, 100)}\n{bar(3, 20)}"
    assert parse_progress(text).step == 100
    assert parse_progress(f"{text}\n{{'loss': 2.5, 'epoch': 0.5}}").step == 3
    assert parse_progress(f"{bar(100, 100)}\n{bar(3, 20, name='tune:', notes=', loss=2.5')}").step == 3


def test_a_longer_unnamed_bar_is_the_job_only_when_a_loss_follows_it() -> None:
    text = f"{bar(40, 70)}\n{{'loss': 2.5, 'epoch': 0.5}}\n{bar(90, 310)}"
    assert (parse_progress(text).step, parse_progress(text).total_steps) == (40, 70)
    assert parse_progress(f"{text}\n{bar(41, 70)}\n{{'loss': 2.4, 'epoch': 0.6}}").step == 41
    assert parse_progress(f"{text}\n{{'loss': 2.4, 'epoch': 0.6}}").step == 90


def test_bars_with_thousands_and_those_drawn_inside_an_epoch_are_read() -> None:
    found = parse_progress("10% | 12,000/120,000  [ 0:00:10 < 0:01:30 , 1,200 it/s ]")
    assert (found.step, found.total_steps, found.eta_seconds, found.steps_per_second) == (12000, 120000, 90, 1200)
    found = parse_progress("10%|# | 1.20k/12.0k [00:10<01:30, 1.50kit/s]")
    assert (found.step, found.total_steps, found.steps_per_second) == (1200, 12000, 1500)
    found = parse_progress("Progress on:train 12it/1.50kit rate:2.0it/s remaining:12:24 elapsed:00:06 postfix:loss=2.5")
    assert (found.step, found.total_steps, found.eta_seconds, found.loss) == (12, 1500, 744, 2.5)
    for line, eta in [
        (" 30/80 [==>.....] - ETA: 25s - loss: 2.5", 25),
        (" 30/80 ━━━━━━━━━━ 25s 500ms/step - loss: 2.5", 25),
        (" 80/80 ━━━━━━━━━━ 25s 500ms/step - loss: 2.5", None),
        ("Epoch 2/9 ━━━━━━━━ 30/80 0:00:15 • 0:00:25 2.00it/s train_loss: 2.5", 25),
        ("Fit ━━━━╸━━━━ 30/80 0:00:15 0:00:25 loss: 2.5", 25),
        ("  2/9   1.5G   2.5   0.5    20    640: 37% ━━━━──── 30/80 2.0it/s 15.0s<0:25", 25),
    ]:
        found = parse_progress(line)
        assert (found.epoch_steps, found.step, found.eta_seconds, found.loss) == (80, None, eta, 2.5)
        assert found.eta_scope == ("epoch" if eta else None)


def test_an_unmistakable_end_is_finished() -> None:
    for line in [
        "Training completed. Do not forget to share your model",
        "{'train_runtime': 12.5, 'train_loss': 1.25}",
        "9 epochs completed in 0.5 hours.",
        "INFO Total training time: 0:30:12 (0:00:10 on hooks)",
        "Training time 1 day, 3:12:45",
        "INFO: The training was finished at 9 epochs",
        "INFO:x:Loss for final step: 2.5.",
        "\x1b[32mJob 'x' succeeded\x1b[39m",
        "[INFO] Local worker group finished (WorkerState.SUCCEEDED).",
        "Training time: 583.36s",
        "[INFO] [launch.py:347:main] Process 77 exits successfully.",
        "Reached max_steps (5), stopping training.",
        "Stopping training: reached maximum number of iterations",
        "Early stopping!",
        "2031-02-03 04:05:06,789 - INFO - early stopping triggered after 7 rounds",
        "Metric f1 did not improve in the last 4 records. Signaling Trainer to stop.",
        "Stopped by overfitting detector  (20 iterations wait)",
        "2031-02-03 04:05:06,789 INFO: End of training. Time consumed: 7:08:09",
        "2031-02-03 04:05:06,789 - INFO - x.training - Training ended after   7 epochs.",
        "learning rate too small - quitting training!",
        "Did not meet early stopping. Best iteration is:",
        "Finished! Selected model with minimal training error rate (BCER) = 0.25",
    ]:
        assert parse_progress(f"{{'loss': 0.5}}\n{line}") == Progress(loss=0.5, finished=True)
    for line in [
        "Training finished iteration 1",
        "Epoch 3 training complete",
        "training step 3",
        "",
        "Epoch 3 training time: 0:05:00",
        "Estimated training time: 1:00:00",
        "EarlyStopping counter: 2 out of 7",
        "Callbacks: checkpoint, early stopping",
        "  early stopping: true",
        "with early stopping",
        "Early stopping...",
        "Optimization Finished!",
        "End of training in 3 h (estimated)",
        "Optimization finished in 0.5 s",
        "Optimization finished: 3 of 7 layers",
        "anchor optimization done.",
        "early stopping: patience 7",
        "Patience (epochs before stopping): 7",
        "no improvement for 2 epochs (early stopping after 7)",
        "End of training epoch 3",
        "end of training data, starting over",
        "Training ended unexpectedly",
        "Training ended with exit code 1",
        "learning rate too small: it is raised",
        "this will stop training: early stopping: patience 7",
    ]:
        assert parse_progress(line).finished is None
    assert parse_progress("step 9/9\nTraining completed\nstep 1/9").finished is None
    assert parse_progress("{'train_runtime': 3.0}\n" + bar(9, 9)).finished is True
    assert parse_progress("Training ended since minimum lr 1e-07 was reached.").finished is True
    assert parse_progress("step 5 loss 0.5\nreached max_steps (500), resetting the episode").finished is None


def test_an_epoch_after_an_end_is_a_new_run_unless_it_is_the_best_one() -> None:
    for later, finished in [
        ("epoch 1/7 loss 0.9", None),
        ("epoch 8 loss 0.2", None),
        ("best was epoch 4 loss 0.1", True),
    ]:
        assert parse_progress(f"epoch 7/7 loss 0.3\nTraining completed\n{later}").finished is finished
    folds = "Epoch {}: 100%|##| 9/9 [00:03<00:00, 3.0it/s]\n"
    text = f"{folds.format(3)}`Trainer.fit` stopped: `max_epochs=4` reached.\n{folds.format(0)}"
    assert parse_progress(text).finished is None


def test_what_does_not_stop_is_no_early_stop() -> None:
    for line in [
        "val loss not improved for 2 of 5 evals, not stopping",
        "EarlyStopping patience reached: 3/5",
        "Early stopping triggered: False",
        "Early stopping on epoch 10 disabled",
        "Patience: Number of epochs with no improvement after which training will be stopped.",
        "Callbacks - early stopping",
        "Trial 3: no improvement, stopping",
    ]:
        assert parse_progress(f"step 5 loss 0.5\n{line}").finished is None
    assert parse_progress("Training completed\nEpoch 1/100 loss 0.5\nEpoch 2/100 loss 0.4").finished is None
    assert parse_progress("Epoch 19\nEarly stopping triggered\nResumed from epoch 5\nEpoch 6").finished is None


def test_the_best_round_that_follows_an_early_stop_is_not_a_new_run() -> None:
    rounds = "\n".join(f"[{number}]\ttrain-rmse:0.5" for number in (70, 71, 72))
    assert parse_progress(f"{rounds}\nStopping. Best iteration:\n[52]\ttrain-rmse:0.4").finished is True
    assert parse_progress(f"{rounds}\nEarly stopping at step 73").finished is True


def test_a_decimal_comma_is_one_where_it_cannot_group_thousands() -> None:
    for text, number in [("0,25", 0.25), ("0,125", 0.125), ("12,75", 12.75), ("1,5e-05", 1.5e-5), ("1,250", 1250)]:
        assert parse_progress(f"step 9 loss: {text}, lr: {text}") == Progress(9, loss=number, learning_rate=number)
    assert parse_progress("step 12,300/45,000 loss 1,234.5") == Progress(12300, 45000, loss=1234.5)
    assert parse_progress("step=7,loss=0.5") == Progress(7, loss=0.5)
    assert parse_progress("step 12,34/100 loss 0,5") == Progress(loss=0.5)
    assert parse_progress("step 2,500/100 loss 0,5") == Progress(loss=0.5)
    assert parse_progress("step 12,300/10,000 loss 0.5") == Progress(12300, 10000, loss=0.5)
    assert parse_progress("step 7/100,5 loss 0,5") == Progress(7, 100, loss=0.5)
    assert parse_progress("step 12_300/45_000 loss 0.5") == Progress(12300, 45000, loss=0.5)
    for total in ("100k", "1.5k", "2M", "1e5", "45'000"):
        for line in (f"step 80/{total} loss 0.5", f"epoch 3 | step 80 of {total} | loss 0.5"):
            assert (parse_progress(line).step, parse_progress(line).total_steps) == (80, None)
    for count in ("12'300/45'000", "12’300/45’000", "12 300 / 45 000", "12.5M/50M"):
        assert parse_progress(f"step {count} loss 0.5") == Progress(loss=0.5)


def test_a_position_counts_although_words_of_removal_or_an_end_stand_beside_it() -> None:
    for line, step in [
        ("Loss at step 95 = 0.25", 95),
        ("heartbeat at step 95", 95),
        ("12:30:00 INFO step 95/120, removed 3 outliers", 95),
        ("step=95 removed=3 time=0.5s", 95),
        ("training crashed at step 95", 95),
        ("Training completed at step 95\nfinal: step 95, loss 0.5", 95),
    ]:
        assert parse_progress(f"step 90 loss 0.5\n{line}").step == step, line
    assert parse_progress("Epoch 7 loss 0.5\nEarly stopping at epoch 8\nEpoch 8: best loss 0.25").finished is True


def test_a_counter_that_is_mentioned_beside_the_own_one_is_not_the_position() -> None:
    for line, step, epoch in [
        ("epoch 7/30 loss 0.5 | best f1 0.75 (epoch 4)", 90, 7),
        ("step 91 | loss 0.5 | best loss 0.25 (step 44)", 91, 6),
        ("epoch 7 loss 0.5 (next evaluation at epoch 9)", 90, 7),
        ("step 91 loss 0.5, next checkpoint: step 100", 91, 6),
        ("step 91 loss 0.5 last checkpoint: step 80", 91, 6),
        ("turns: 3 (step 91) reward 0.5", 91, 6),
        ("mixup turns off at step 99", 90, 6),
        ("epoch 7 | last batch step 91", 91, 7),
        ("update skipped due to overflow (step 91)", 91, 6),
        ("Best f1: 0.75 (epoch 4)", 90, 6),
        ("2031-02-03 04:05:06,789 - INFO - x - Best validation result (greedy) at step     44:   7.5 bleu.", 90, 6),
        ("INFO: best step so far: 44", 90, 6),
        ("Highest f1 0.75 was reached in epoch 4 (step 44)", 90, 6),
        ("Best-of-N sampling: step 91 loss 0.5", 91, 6),
        ("No improvement since epoch 4", 90, 6),
        ("Next evaluation at step 99", 90, 6),
        ("micro step 8/8, step 91/1000, loss 0.1", 91, 6),
        ("step: 91/1000 | micro step: 8/8", 91, 6),
        ("target epoch 100 | current epoch 7 | loss 0.1", 90, 7),
        ("saved at step 50; now step 91 loss 1", 91, 6),
        ("checkpoint of epoch 4 removed", 90, 6),
        ("Deleting old checkpoint: step 40", 90, 6),
        ("the rate will be halved at epoch 9", 90, 6),
        ("unfreezing is planned for step 99", 90, 6),
        ("the agent died at step 12", 90, 6),
        ("step 91, loss 0.5, next save at step 99", 91, 6),
        ("starting next epoch 7", 90, 7),
        ("trainer starts epoch 7", 90, 7),
        ("caches will be freed. epoch 7 begins", 90, 7),
        ("deleted the model on the GPU. Step: 91", 91, 6),
        ("training will continue with epoch 7", 90, 7),
        ("drops=0 step=91", 91, 6),
        ("expected return 3.5 at step 91", 91, 6),
        ("Next checkpoint: step 99", 90, 6),
        ("next validation on step 99", 90, 6),
        ("warmup ends (step 99)", 90, 6),
        ("will warm up until the end of epoch 9", 90, 6),
        ("next checkpoint at about optimizer step 99", 90, 6),
        ("removed checkpoint | step 50", 90, 6),
        ("loss 0.5, best 0.25 (ep 4)", 90, 6),
        ("the mask ratio drops to 0.5 at step 99", 90, 6),
        ("eta refreshed, next one at step 99", 90, 6),
        ("patience 2/9 (best: 0.25 in epoch 4)", 90, 6),
        ("step 91, loss 0.5 (lowest 0.25 @ step 44)", 91, 6),
        ("step 91, loss 0.5 (lowest 0.25, step 44)", 91, 6),
        ("stopped: best result at epoch 4, weights kept", 90, 6),
        ("epoch 7: removing old checkpoints", 90, 7),
        ("now at step 91", 91, 6),
        ("micro batch 3/8", 90, 6),
        ("accumulation step 2/4 loss 1", 90, 6),
        ("accuracy at epoch 7: 0.5", 90, 7),
    ]:
        found = parse_progress(f"step 90 epoch 6 loss 0.5\n{line}")
        assert (found.step, found.epoch) == (step, epoch)
    found = parse_progress("Epoch 3/8 [====>   ] 45% loss: 0.5")
    assert (found.epoch, found.total_epochs, found.epoch_step) == (3, 8, None)


def test_trackers_and_servers_beside_a_training_are_not_the_training() -> None:
    for line in [
        "wandb:        step 3",
        "2031-02-03 04:05:06 wandb: train/loss 0.25",
        "COMET INFO:     loss [41]  : (0.25, 3.5)",
        "INFO 02-03 04:05:06 metrics.py:9] Avg prompt throughput: 3.5 tokens/s, generation throughput: 7.0 tokens/s",
    ]:
        assert parse_progress(f"step 5 loss 0.5\n{line}") == Progress(5, loss=0.5)


def test_any_text_is_read_and_of_a_long_line_its_head_and_newest_redraw() -> None:
    for text in [
        "",
        "\x00\x01\x02",
        "\ud800",
        "1" * 300_000,
        "loss" + " " * 50_000,
        "10/100 [" * 20_000,
        "\x1b]" * 50_000,
        "epoch 1e999 step 99999999999999999999 loss 1e999",
        "step -5",
        "[" * 50_000,
        "it/s\r" * 20_000,
    ]:
        assert isinstance(parse_progress(text), Progress)
    metrics = "step:7 - " + " - ".join(f"timing/part_{n}:{n}.0" for n in range(1500))
    assert parse_progress(metrics).step == 7
    assert parse_progress(" ".join(bar(n, 999) for n in range(1, 500))).step == 499


PREFIXES = [
    "",
    "worker-3: ",
    "trainer-1  | ",
    "node12: 3: ",
    "[rank0]: ",
    "i.pretrain/0 [default0]:",
    "[pod/a-0/main] ",
    "Mar  2 04:05:06 ",
    "Mar 12 04:05:06 box fit.sh[91]: ",
    "2026-03-02T04:05:06+0000 box fit[91]: ",
]


def test_a_launchers_prefix_hides_neither_training_nor_evaluation() -> None:
    for prefix in PREFIXES:
        lines = ["step: 40  loss:  2.5  lr: 1.0e-4", "validate step: 40  loss:  9.5", "Validation iteration 3/32"]
        found = parse_progress("\n".join(prefix + line for line in lines))
        assert (found.step, found.loss) == (40, 2.5)
        bars = [" 50%|##  | 40/80 [01:20<01:20,  2.00s/it]", "100%|####| 9/9 [00:03<00:00,  3.00it/s]"]
        found = parse_progress("\n".join(prefix + line for line in bars))
        assert (found.step, found.total_steps) == (40, 80)


TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 2, in run\nValueError: bad step=7 of the data\n'


def test_a_script_that_prints_its_end_after_an_exception_is_not_finished() -> None:
    for line in ["Training finished.", "Total training time: 0:12:11 (0:00:01 on hooks)"]:
        assert parse_progress(f"step 5/9 loss 0.5\n{TRACEBACK}{line}").finished is None
        assert parse_progress(f"step 5/9 loss 0.5\n{TRACEBACK}step 9/9 loss 0.4\n{line}").finished is True
    launcher = "Job 'raysubmit_1' succeeded"  # the exception was one of a thread
    assert parse_progress(f"step 9/9 loss 0.5\n{TRACEBACK}{launcher}").finished is True
    at_exit = "Exception ignored in: <function f at 0x7f>\nTraceback (most recent call last):\nOSError: closed\n"
    assert parse_progress(f"step 9/9 loss 0.5\nTraining finished.\n{at_exit}").finished is True
    for beside in ("Exception in thread Thread-7 (drain):", "Error in atexit._run_exitfuncs:"):
        ends = at_exit.replace("Exception ignored in: <function f at 0x7f>", beside)
        assert parse_progress(f"step 9/9 loss 0.5\nTraining finished.\n{ends}").finished is True
        chain = "\nDuring handling of the above exception, another exception occurred:\n\n"
        ends += f"{chain}Traceback (most recent call last):\nKeyError: 3\n"
        for after, finished in (("", True), (TRACEBACK, None)):
            ended = f"step 9/9 loss 0.5\nTraining finished.\n{ends}{after}"
            assert parse_progress(ended).finished is finished
    of_logging = f"--- Logging error ---\n{TRACEBACK}Call stack:\n"
    assert parse_progress(f"step 9/9 loss 0.5\n{of_logging}Training finished.").finished is True
    assert parse_progress(f"step 9/9 loss 0.5\nTraining finished.\n{at_exit}{TRACEBACK}").finished is None
    for stage in ("fold 2/5 training complete", "[phase 1/2] training finished", "seed 3: training done"):
        assert parse_progress(f"step 9/9 loss 0.5\n{stage}").finished is None


def test_a_bar_of_a_next_stage_replaces_that_of_the_stage_before() -> None:
    before = "Pretrain epoch [{}/10]: 100%|###| 40/40 [00:10<00:00, 4.0it/s]"
    for epoch, total in ((7, 3), (10, 1)):
        found = parse_progress(f"{before.format(epoch)}\nTune epoch [1/{total}]:  50%|##| 9/20 [00:05<00:05, 4.0it/s]")
        assert 9 in (found.step, found.epoch_step)


def test_a_full_counter_is_not_the_job_when_an_epoch_before_the_last_follows() -> None:
    for full in [bar(40, 40), bar(40, 40, name="Teacher scores:"), "iter 40/40 loss 0.5"]:
        for line in ["Epoch 1/4 loss 0.25", bar(4, 80, name="Epoch 1/4:", notes=", loss=0.25")]:
            assert (job_progress(parse_progress(f"{full}\n{line}")).fraction or 0) <= 0.25
    assert parse_progress(f"{bar(40, 40)}\nEpoch 4/4 loss 0.25").step == 40
    assert parse_progress(f"Epoch 0/3 loss 0.5\n{bar(40, 40)}\nEpoch 3/4 loss 0.25").step == 40


def test_a_bar_shorter_than_an_epoch_that_was_counted_is_not_the_job() -> None:
    for epoch in [bar(80, 80, name="Epoch 1/4:", notes=", loss=0.5"), "Epoch 1/4 batch 80/80 loss 0.5"]:
        assert job_progress(parse_progress(f"{epoch}\n{bar(20, 20)}")).fraction == 0.25
        assert parse_progress(f"{epoch}\nResuming from epoch 1\n{bar(5, 20)}").step == 5


def test_what_counts_a_stage_or_fold_is_not_the_total_of_the_job() -> None:
    for line in ["[stage 1/3] epoch 5/5 loss 0.5", "fold 2/4 | step 300/300 | loss 0.5"]:
        assert job_progress(parse_progress(line)).fraction is None
    found = parse_progress("fold 2/4 epoch 5/9 batch 3/40 loss 0.5")
    assert (found.epoch, found.total_epochs, found.epoch_step, found.epoch_steps) == (5, None, 3, 40)


def test_a_loss_of_validation_with_a_dot_is_not_the_loss() -> None:
    assert (
        parse_progress("Epoch: 03\n\tTrain Loss: 1.51 | Train PPL: 4.5\n\t Val. Loss: 9.9 | Val. PPL: 21").loss == 1.51
    )
    for line in ("loss: 1.51", "step 100 new best. Loss: 1.51", "Avg. loss: 1.51"):
        assert parse_progress(line).loss == 1.51, line


@pytest.mark.parametrize("name", ["", "train: "])
def test_a_bar_that_begins_again_after_its_end_is_not_the_whole_job(name: str) -> None:
    bar = "".join(f"\r{name}{5 * step}%|##  | {step}/20 [00:01<00:01, 9.9it/s]" for step in (0, 7, 19, 20))
    drawn = parse_progress(f"{bar}\nloss 0.6\n{bar}\nloss 0.5\n")
    assert (drawn.step, drawn.total_steps, drawn.loss) == (20, None, 0.5)
    of_ranks = bar + bar[bar.index(f"\r{name}95%") :]
    next_run = f"{bar}\n{{'train_runtime': 9.1, 'train_loss': 0.5}}\n{bar}"
    for log in (bar, of_ranks, next_run, f"{bar}{bar}\nEpoch 2/2, loss: 0.5"):
        assert job_progress(parse_progress(log)).fraction == 1.0, log


@pytest.mark.parametrize("name", ["Train [2/5]", "[Train 2/5]", "Training (2/5)"])
def test_a_bar_named_by_a_bare_count_counts_inside_that_epoch(name: str) -> None:
    drawn = parse_progress(f"{name}: 100%|###| 30/30 [00:09<00:00, 3.31it/s, loss=0.52]")
    assert (drawn.step, drawn.epoch, drawn.total_epochs, drawn.epoch_step) == (None, 2, 5, 30)


@pytest.mark.parametrize("name", ["[2/5] Training", "Fold 2/5", "Training [12/30]", "12/30"])
def test_a_bar_named_by_a_stage_or_its_own_counter_counts_steps(name: str) -> None:
    drawn = parse_progress(f"{name}:  40%|##  | 12/30 [00:04<00:05, 3.31it/s, loss=0.52]")
    assert (drawn.step, drawn.total_steps, drawn.epoch) == (12, 30, None)


def test_a_bar_of_samples_shows_a_loss_and_an_epoch_but_no_step() -> None:
    found = parse_progress(bar(400, 900, name="Epoch 3/50:", rate="99.0img/s", notes=", loss (batch)=0.25"))
    assert found == Progress(epoch=3, total_epochs=50, loss=0.25, epochs_done=2, epochs_planned=50)
    assert parse_progress(bar(400, 900, rate="99.0img/s")) == Progress()


def test_a_bar_of_inner_epochs_or_behind_a_traceback_is_not_the_job() -> None:
    outer = "Episode [2/16]:   1%|   | 3/309 [03:58<20:21:11, 237.90s/it]"
    inner = "Update epoch [1/1]:  50%|###   | 4/8 [01:00<01:00, 15.12s/it, loss=0.3]"
    for lines in ([outer, inner], [inner, outer, inner], [inner, inner, outer]):
        found = parse_progress("\n".join(lines))
        assert (found.step, found.total_steps, found.finished) == (None, None, None)
        assert (found.epoch, found.epoch_step, found.epoch_steps, found.total_epochs) == (2, 3, 309, 16)
        assert found.loss == 0.3
    frame = '  File "/env/worker.py", line 937, in get##### | 37.0/37.0 [08:36<00:00, 3.90s/it]'
    found = parse_progress(f"Running step:   3%|#  | 1.00/36.0 [08:41<5:04:11, 521s/step]\n{frame}")
    assert (found.step, found.total_steps) == (1, 36)


def test_the_last_line_names_the_phase() -> None:
    for line, phase in (
        ("Saving out/step_7/rank_0_model_states.pt...", "checkpoint"),
        ("Validation DataLoader 0:  30%|###  | 3/10 [00:05<00:12,  5.8it/s]", "evaluation"),
        ("saving out/step_7/zero_pp_rank_0_mp_rank_00_optim_states.pt", "checkpoint"),
        ("Saving out/pytorch_model-00001-of-00002.bin", "checkpoint"),
        ("Writing runs/a/last_checkpoint.pt", "checkpoint"),
        ("Saving out/best_model", "checkpoint"),
        ("writing events to runs/my_model.v2/events", None),
        ("Saving plot to loss_model_a.png", None),
        ("Saving run_model_a.bin", "checkpoint"),
        ("saving the remodelled table", None),
        ("writing events to runs/my_model/events", None),
        ("Gathering the full model state on rank 0", "checkpoint"),
        ("INFO (0/4) Computing validation loss", "evaluation"),
        ("eval model::  40%|##  | 40/100 [00:02<00:03, 16.1it/s]", "evaluation"),
        ("Epoch(val)  [1][ 50/625]    eta: 0:00:35", "evaluation"),
        ("Epoch 3:  80%|##  | 400/500 [02:00<00:30, 3.33it/s, val_loss=0.3]", None),
        ("Processed prompts:  40%|##  | 26/64 [00:10<00:15, 2.5it/s]", "sampling"),
        ("Map (num_proc=8):  43%|##  | 22310/52002 [00:11<00:14, 2010.1 examples/s]", "loading"),
        ("Gathering rollouts for the reward model", None),
        ("Merging data shards into model input", None),
        ("step 5 | loss 0.5 | test [3/4]", None),
        ("step 5 - prompts: 512, loss: 0.5", None),
        ("compile mode: max-autotune", None),
        ("saved out/model.safetensors: 5 GB", None),
    ):
        assert find_phase(f"step 7/9 loss 0.5\n{line}") == phase


def test_an_end_with_errors_or_of_a_fold_is_not_the_end() -> None:
    for line, finished in (
        ("Training completed with errors: 3", None),
        ("Training completed with errors: 0", True),
        ("Training completed with error: 0.03", True),
        ("Training finished with error 12%", True),
        ("Training stopped early at epoch 13", True),
        ("Fold 2: training stopped early at epoch 13", None),
    ):
        assert parse_progress(f"step 90/90 loss 0.5\n{line}").finished is finished, line


def test_a_bar_of_another_length_after_the_bar_of_an_epoch_is_an_evaluation() -> None:
    fit = "".join(f"Epoch {epoch}/10\n100/100 ━━━━━━━━━━ 9s 50ms/step - loss: 1.2\n" for epoch in (9, 10))
    after = parse_progress(f"{fit}\n 5/25 ━━━━━━━━━━ 1s 20ms/step - loss: 0.6\n")
    assert (after.epoch_step, after.epoch_steps, after.loss, after.epochs_done) == (100, 100, 1.2, 10)
    for lines, step, steps, loss in (
        ("Epoch 1/3\n 5/25 ━━━━━━━━━━ 1s 20ms/step - loss: 0.6", 5, 25, 0.6),  # of another training
        ("100/100 ━━━━━━━━━━ 9s 50ms/step - loss: 1.1 - val_loss: 1.3", 100, 100, 1.1),
        ("Epoch 10/10\n 5/25 ━━━━━━━━━━ 1s 20ms/step - loss: 0.6", 5, 25, 0.6),  # begun again, on other GPUs or data
    ):
        found = parse_progress(f"{fit}{lines}")
        assert (found.epoch_step, found.epoch_steps, found.loss) == (step, steps, loss)
    from_zero = "Epoch 0\n90/90 ━━━━━━━━━━ 9s 50ms/step - loss: 1.2\nEpoch 1\n 5/80 ━━━━━━━━━━ 1s 20ms/step - loss: 0.6"
    assert parse_progress(from_zero).epoch_step == 5
