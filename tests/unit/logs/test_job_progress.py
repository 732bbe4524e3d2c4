"""Where a job stands by its log: read as a whole, in pieces with the state kept in between, and by its end alone."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from training_monitor.core.models import Progress
from training_monitor.core.records import format_record, read_record
from training_monitor.logs.job_progress import LONGEST_ETA, JobProgress, format_position, job_progress
from training_monitor.logs.totals import LogTotals
from training_monitor.logs.training_log import parse_progress, read_progress, read_samples


def whole(log: str) -> JobProgress:
    """By the whole log, which one reader and one that is kept after each line agree on."""
    totals = LogTotals()
    for line in log.splitlines(keepends=True):
        totals.feed(line if line.endswith(("\n", "\r")) else f"{line}\n")
        totals = read_record(LogTotals, format_record(totals))
    found = job_progress(parse_progress(log))
    assert job_progress(totals.progress) == found
    return found


def spoken(epochs: int, counts: Iterable[tuple[int, int]], total: int, note: str = "loss 0.5") -> str:
    return "".join(f"Epoch {epoch}/{epochs} | Step {step}/{total} | {note}\n" for epoch, step in counts)


def lightning(epochs: range, steps: int = 50, note: str = "v_num=0, loss=0.3") -> str:
    return "".join(
        f"Epoch {epoch}: {100 * step // steps}%|██▍  | {step}/{steps} [00:10<00:{steps - step:02d}, 2.0it/s, {note}]\r"
        for epoch in epochs
        for step in range(0, steps + 1, 5)
    )


def test_steps_that_rise_over_the_end_of_an_epoch_are_those_of_the_job() -> None:
    counts = [(1 + 3 * step // 9826, step) for step in (*range(100, 6500, 100), 6527)]
    found = whole(spoken(3, counts, 9826, "2.0 it/s"))
    assert (found.step, found.total_steps, round(100 * (found.fraction or 0))) == (6527, 9826, 66)
    assert found.eta_seconds == (9826 - 6527) / 2
    found = whole("Total optimization steps = 9826\nEpoch 2/3 | Step 6527/9826")
    assert (found.step, found.total_steps) == (6527, 9826)
    end = spoken(3, counts[:-1], 9826)[-1600:]
    assert job_progress(parse_progress(end)).step == 6400


def test_steps_that_begin_again_with_an_epoch_are_those_of_the_epoch() -> None:
    counts = [(1, step) for step in range(100, 1001, 100)] + [(2, step) for step in range(100, 501, 100)]
    found = whole(spoken(3, counts, 1000, "2.0 it/s"))
    assert (found.step, found.total_steps, found.fraction, found.eta_seconds) == (1500, 3000, 0.5, 750.0)
    assert whole("Epoch 2/3 | Step 500/1000").step == 1500
    assert whole("Epoch 2/3 | Step 100/1000").step == 1100  # the job cannot be at 10 % in its second of three epochs


def test_samples_from_all_over_a_log_tell_it_where_its_end_does_not() -> None:
    for epochs, done in [(3, 1.1), (3, 1.99), (3, 2.5), (10, 2.2), (10, 9.5), (2, 1.02), (30, 17.7), (6, 5.001)]:
        for per_epoch in [True, False]:
            made = round(1000 * done)
            numbers = [(1 + (step - 1) // 1000, step) for step in range(1, made + 1)]
            counts = [(epoch, step - 1000 * (epoch - 1) if per_epoch else step) for epoch, step in numbers]
            log = spoken(epochs, counts, 1000 if per_epoch else 1000 * epochs).splitlines(keepends=True)
            places = [round(number / 8 * len(log)) for number in range(8)]
            samples = ["".join(log[place : place + 10]) for place in places] + ["".join(log[-10:])]
            found = job_progress(read_progress("".join(log[-50:]), read_samples(samples)))
            assert (found.step, found.total_steps) == (made, 1000 * epochs)
    samples = [spoken(3, [(1, step)], 3000) for step in range(100, 900, 100)]
    assert read_samples(samples).job_steps is None and read_samples([]).job_steps is None


def test_what_a_log_has_shown_holds_for_the_lines_that_follow() -> None:
    totals = LogTotals()
    totals.feed(spoken(3, [(1, 3200), (2, 3300)], 9826))
    totals = read_record(LogTotals, format_record(totals))
    totals.feed(spoken(3, [(2, 6527)], 9826))
    assert (totals.as_dict()["last_step"], round(totals.as_dict()["progress_percent"])) == (6527, 66)
    log = spoken(3, [(1, 900), (2, 100), (2, 900)], 1000)
    assert whole(log + "Resuming from checkpoint-1000\n" + spoken(3, [(2, 50)], 1000)).step == 1050


@pytest.mark.parametrize("per_epoch", [True, False])
def test_steps_under_a_heading_of_the_epoch_are_told_apart_too(per_epoch: bool) -> None:
    most = 1000 if per_epoch else 3000
    lines = []
    for epoch, count in ((1, 1000), (2, 500)):
        base = 0 if per_epoch else 1000 * (epoch - 1)
        lines += [f"Epoch {epoch}/3", *(f"Step {base + each}/{most} loss 0.5" for each in range(100, count + 1, 100))]
    found = whole("\n".join(lines))
    assert (found.step, found.total_steps, found.fraction) == (1500, 3000, 0.5)


def test_a_bar_of_lightning_stands_within_the_job() -> None:
    found = whole(lightning(range(2)) + lightning(range(2, 3))[:200])
    assert (found.step, found.epoch, found.fraction, found.eta_seconds) == (110, 2.2, None, None)
    alone = job_progress(parse_progress("Epoch 2:  34%|███▍ | 17/50 [00:10<00:20, 1.6it/s, v_num=0, loss=0.3]"))
    assert (alone.step, alone.epoch) == (117, 2.34)
    log = lightning(range(4)) + "\n`Trainer.fit` stopped: `max_epochs=4` reached.\n"
    assert parse_progress(log).finished is True
    found = whole(log)
    assert (found.step, found.total_steps, found.fraction, found.is_complete) == (200, 200, 1.0, True)


def test_the_rest_of_an_epoch_is_not_the_rest_of_the_job() -> None:
    bar = "Epoch 2/4:  40%|██  | 20/50 [00:10<00:{left}, {rate}it/s, loss=0.3]"
    assert job_progress(parse_progress(bar.format(left="15", rate="2.0"))).eta_seconds == 65.0
    assert job_progress(parse_progress(bar.format(left="15", rate="?"))).eta_seconds == 65.0
    assert job_progress(parse_progress("Epoch: [1][20/50]  eta: 0:00:15  loss: 0.3 (0.4)")).eta_seconds is None
    assert job_progress(Progress(step=1, total_steps=10**12, steps_per_second=1e-9)).eta_seconds is None
    assert job_progress(Progress(eta_seconds=2 * LONGEST_ETA, eta_scope="job")).eta_seconds is None
    assert job_progress(Progress(eta_seconds=-1.0, eta_scope="job")).eta_seconds is None
    assert job_progress(Progress(step=5, total_steps=10, steps_per_second=float("inf"))).eta_seconds is None
    assert job_progress(Progress(eta_seconds=90.0, eta_scope="job")).eta_seconds == 90.0
    assert job_progress(Progress(step=10, total_steps=10)).eta_seconds == 0.0
    assert job_progress(Progress(step=10, total_steps=10, eta_seconds=5.0, eta_scope="job")).eta_seconds == 0.0
    progress = Progress(step=50, total_steps=100, steps_per_second=2.0, eta_seconds=9.0, eta_scope="job")
    assert job_progress(progress).eta_seconds == 25.0


def test_epochs_in_brackets_count_from_zero_and_a_metric_logger_closes_them() -> None:
    lines = [
        f"Epoch: [{epoch}][{step:3d}/50]\tTime 0.500 (0.600)\tLoss 2.1e+00 (2.3e+00)"
        for epoch in range(3)
        for step in range(0, 50, 10)
    ]
    assert whole("\n".join(lines)).step == 140
    found = whole("\n".join(["Namespace(data='x', epochs=90, warmup_epochs=5)", *lines]))
    assert (found.step, found.total_steps) == (140, 4500)
    lines = [f"Epoch: [1]  [{step}/50]  eta: 0:00:10  loss: 4.5 (4.6)  time: 1.0  data: 0.1" for step in (0, 49)]
    assert whole("\n".join([*lines, "Epoch: [1] Total time: 0:00:50 (1.0 s / it)"])).step == 100


def test_epochs_that_count_from_zero_or_are_absurd_or_of_unknown_length() -> None:
    for log, epoch, total in [
        ("Epoch 0/24\n----\nEpoch 3/24", 3.0, 25),
        ("Train: [3/300][0/1251]\teta 0:00:01 lr 0.5\ttime 0.5 (0.5)", 3.0, 300),
        ("[0/5][50/100] Loss_D: 0.5\n[4/5][50/100] Loss_D: 0.5", 4.5, 5),
        ("[0/4][50/100] Loss_D: 0.5\n[4/4][50/100] Loss_D: 0.5", 4.5, 5),
        ("Epoch 3/3 ━━━━━━━━━━━━━━━━ 25/50 0:00:10 • 0:00:05 4.90it/s v_num: 0.000", 3.5, 4),
    ]:
        found = whole(log)
        assert (found.epoch, found.total_epochs) == (epoch, total)
    log = "".join(
        f"Epoch {epoch}: : {step}it [00:10,  3.2it/s, v_num=0]\r" for epoch in (0, 1) for step in (10, 20, 30)
    )
    found = whole(log)
    assert (found.step, found.total_steps, found.fraction) == (60, None, None)
    for line in ["Epoch 1e999 loss 0.5", "Epoch 999999999/1 | Step 5/0", "Epoch 1/0 loss 0.1", "epoch=1e300/9"]:
        whole(f"{line}\n{line}\nEpoch 0/0 | Step 1/0\n{line}")


def test_an_epoch_that_has_begun_is_not_done() -> None:
    for log, fraction in [
        ("Epoch 3/3", 2 / 3),
        ("Epoch 1/3", 0.0),
        ("Starting epoch 3/3, lr 0.001", 2 / 3),
        ("Epoch 3/3, loss 0.2, val_loss 0.3", 1.0),
        ("Epoch 3/3 - train_loss: nan", 1.0),
        ("Epoch 2/3 finished in 12 s", 2 / 3),
        ("Epoch 1/3 loss 0.5\nEpoch 1/3 loss 0.4\nEpoch 2/3 loss 0.3\nEpoch 2/3 loss 0.2", 1 / 3),
        ("Epoch 2/3 loss 0.5\nEpoch 3/3", 2 / 3),
        ("Epochs:  67%|██| 2/3 [01:00<00:30, 30.0s/epoch]", 2 / 3),
        ("Num Epochs = 3\n{'loss': 1.2, 'grad_norm': 1.0, 'learning_rate': 1e-4, 'epoch': 1.53}", 0.51),
        ("Num Epochs = 3\n{'loss': 1.2, 'grad_norm': 1.0, 'learning_rate': 1e-4, 'epoch': 1.0}", 1 / 3),
        ("Num Epochs = 3\n{'loss': '1.2', 'grad_norm': '1.0', 'epoch': '3'}", 1.0),
    ]:
        assert whole(log).fraction == pytest.approx(fraction)
    for end in ["[==============================] - 3s 8ms/step", "- 3s"]:
        done = "".join(f"Epoch {epoch}/3\n15/15 {end} - loss: 0.04 - val_loss: 0.3\n" for epoch in (1, 2, 3))
        assert whole(done).is_complete
        assert whole(done.rpartition("15/15")[0]).fraction == pytest.approx(2 / 3)


def test_a_fraction_is_between_nothing_and_all_or_unknown() -> None:
    for progress, fraction in [
        (Progress(step=11, total_steps=10), 1.0),
        (Progress(step=15, total_steps=10), None),
        (Progress(step=15, total_steps=10, epochs_done=1.5, epochs_planned=4), 0.375),
        (Progress(step=-5, total_steps=10), 0.0),
        (Progress(step=5, total_steps=0), None),
        (Progress(step=5, total_steps=0, epochs_done=1.0, epochs_planned=4), 0.25),
        (Progress(epochs_done=float("nan"), epochs_planned=4), None),
        (Progress(epochs_done=float("inf"), epochs_planned=4), None),
        (Progress(epochs_done=9.0, epochs_planned=4), 1.0),
    ]:
        assert job_progress(progress).fraction == fraction
    assert job_progress(Progress()) == JobProgress()
    assert job_progress(Progress(finished=True)).fraction is None
    assert job_progress(Progress(epoch=2.0, epoch_step=5, epoch_steps=10)).step is None


def test_a_position_is_said_by_what_is_known() -> None:
    for log, position in [
        ("Epoch 2/3 | Step 500/1000", "step 1500/3000"),
        ("Epoch: [1][20/50] Loss 0.5 (0.6)", "step 70"),
        ("Num Epochs = 3\n{'loss': 1.2, 'learning_rate': 1e-4, 'epoch': 1.536}", "epoch 1.54/3"),
        ("{'loss': 1.2, 'learning_rate': 1e-4, 'epoch': 1.5}", "epoch 1.5"),
        ("hello", "step ?"),
    ]:
        assert format_position(whole(log)) == position
