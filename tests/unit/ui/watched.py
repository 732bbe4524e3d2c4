"""A watched training made by hand, at moments that its screen shows differently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from training_monitor.core.models import Checkpoint, Event, Gpu, JobStatus, Progress
from training_monitor.core.values import LossAnalysis, StallAnalysis, TrainingStatus, Verdict
from training_monitor.ui.kit import keys, page
from training_monitor.ui.kit.view import Do, Frame
from training_monitor.ui.watch.app import APP
from training_monitor.ui.watch.view import ProcessFacts, WatchSnapshot, WatchView

NOW = 1_770_000_000.0  # 02:40:00 UTC
RUNS = Verdict(
    "running",
    "ok",
    "step 1500 of 3000, 1.21 steps/s",
    NOW - 7200,
    "high",
    seconds_without_step=1.0,
    limit_seconds=450.0,
)
HANGS = Verdict(
    "stalled",
    "failed",
    "no step for 7m50s, limit 7m30s: GPUs full at idle power, as in a collective that waits for a missing rank",
    NOW - 470,
    "high",
    "terminate",
    seconds_without_step=470.0,
    limit_seconds=450.0,
    remedies=("look at the stack of each rank: py-spy dump --pid PID", "end it; it resumes from step 1400"),
)
PROGRESS = Progress(
    step=1500,
    total_steps=3000,
    epoch=1.53,
    total_epochs=3,
    epochs_done=1.53,
    loss=0.4321,
    learning_rate=1.2e-5,
    grad_norm=0.873,
    steps_per_second=1.21,
    tokens_per_second=48_211.0,
)


def gpu(index: int, **changes: object) -> Gpu:
    known = Gpu(
        index,
        uuid=f"GPU-{index}",
        name="NVIDIA H100 80GB HBM3",
        utilization=97.0,
        memory_used_mb=71_200.0,
        memory_total_mb=81_559.0,
        power_draw_watts=655.0,
        power_limit_watts=700.0,
        temperature_celsius=64.0,
    )
    return replace(known, **changes)  # type: ignore[arg-type]


GPUS = (gpu(0), gpu(1, utilization=3.0, power_draw_watts=120.0), *(gpu(number) for number in range(2, 6)))
ODD_GPUS = (gpu(6, error="Unable to determine the device handle: GPU is lost"), gpu(7, temperature_celsius=93.0))
CHECKPOINTS = (
    Checkpoint("/data/out/checkpoint-1300", 1300, 13_000_000_000, True, age=240.0),
    Checkpoint("/data/out/checkpoint-1400", 1400, 13_000_000_000, True, age=124.0),
    Checkpoint("/data/out/checkpoint-1500", 1500, 4_000_000_000, False, "shard 3 of 8 is missing", age=2.0),
)
STATUS = TrainingStatus(
    is_running=True,
    progress=PROGRESS,
    stall=StallAnalysis(False, None, "none", "no", "continue"),
    checkpoints=CHECKPOINTS,
    recent_output="",
    timestamp=NOW - 3,
    status=JobStatus.RUNNING,
    runtime=7200.0,
    step=1500,
    verdict=RUNS,
)
EVENTS = (
    (NOW - 100_000, Event("progress", "25 % done: Progress: 750/3000 (25%)")),
    (NOW - 900, Event("unreachable", "cannot ask: ssh: no answer within 15 s; the run is left alone")),
    (NOW - 700, Event("reached", "ssh://me@gpu1 answers again after 3m20s")),
)
RUNNING = WatchSnapshot(
    now=NOW,
    training="/data/runs/llama-3/train.log",
    target="ssh://me@gpu1",
    folder="/data/out",
    status=STATUS,
    progress=PROGRESS,
    progress_at=NOW - 1,
    step_at=NOW - 1,
    gpus=(*GPUS, *ODD_GPUS),
    process=ProcessFacts(4711, 3.2, 12_300_000_000, 9, 0, NOW - 7200, "python train.py --config llama.yaml"),
    losses=tuple(3.0 / (1 + number / 20) for number in range(200)),
    lines=tuple(f"step {step}/3000 loss={600 / step:.4f} lr=1.2e-05" for step in range(1301, 1501)),
    partial="evaluating:  40%|####      | 4/10",
    first_line=1201,
    events=EVENTS,
    next_look_at=NOW + 57,
)
STALLED = RUNNING._replace(
    status=replace(
        STATUS,
        verdict=HANGS,
        stall=StallAnalysis(True, "hang_spinning", "high", HANGS.reason, "terminate"),
        loss=LossAnalysis("divergence", "the loss is rising: about 2.1 now, 0.43 at its lowest", 2.1, 0.43),
        errors=("checkpoints: find: no answer within 10 s",),
        checkpoints=None,
    ),
    step_at=None,
    progress_at=NOW - 3,
    ends_at=NOW + 430,
    partial="",
    gpus=tuple(gpu(number, utilization=100.0, power_draw_watts=130.0) for number in range(8)),
    events=(*EVENTS, (NOW - 20, Event("detected", "Training Stall Detected: Issue: no step for 7m50s"))),
)
SILENT = RUNNING._replace(
    error="ssh://me@gpu1: no answer within 15 s",
    stale_since=NOW - 200,
    failing_since=NOW - 130,
    next_look_at=NOW + 35,
    step_at=None,
    status=replace(STATUS, timestamp=NOW - 200),
    progress_at=NOW - 200,
)
ENDING = STALLED._replace(
    phase="uploading",
    next_look_at=None,
    events=(
        *STALLED.events,
        (
            NOW - 15,
            Event(
                "explained",
                "7 of 8 ranks wait in all_reduce, called at train.py:88; rank 1 (pid 4713) is in data.py:41 "
                "load_batch, which waits for a pipe: look there. Of its children, pid 4790 waits for a disk.",
            ),
        ),
        (
            NOW - 14,
            Event("stopping", "stopping train.log: SIGTERM to its remaining processes, then SIGKILL after 10 s"),
        ),
        (NOW - 4, Event("stopped", "nothing of train.log is left")),
        (NOW - 3, Event("progress", "2 checkpoints; the newest complete one is at step 1400 (12.1 GiB)")),
        (NOW - 1, Event("progress", "uploading /data/out/checkpoint-1400 to hf:me/my-lora")),
    ),
)
UNKNOWN = WatchSnapshot(NOW, "train.log", "local")
SNAPSHOTS = {"running": RUNNING, "stalled": STALLED, "silent": SILENT, "ending": ENDING, "unknown": UNKNOWN}
START = WatchView()


def update(view: WatchView, key: str, snapshot: WatchSnapshot = RUNNING) -> tuple[WatchView, Sequence[Do]]:
    return keys.update(APP, view, key, snapshot)


def after(view: WatchView, *pressed: str, snapshot: WatchSnapshot = RUNNING) -> WatchView:
    """The view after these keys, drawn on 80x24 before each of them."""
    for key in pressed:
        view, _ = update(render(snapshot, view, 80, 24).view, key, snapshot)
    return view


def render(snapshot: WatchSnapshot, view: WatchView, width: int, height: int) -> Frame[WatchView]:
    return page.render_screen(APP, snapshot, view, width, height)
