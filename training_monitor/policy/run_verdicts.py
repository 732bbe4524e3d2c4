"""What a look at a run that writes a progress file tells the one judge. Pure.

The file says how far the run is and when its last batch began; its processes say whether they compute. That the file is
written to says nothing of the training: a thread of its own does that while a hang lasts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from training_monitor.models import Failure, JobStatus
from training_monitor.policy.failure import classify_failure
from training_monitor.policy.judge import judge
from training_monitor.policy.run_columns import loss_of
from training_monitor.policy.run_rows import without_outlook
from training_monitor.policy.run_values import (
    CANCELED,
    FAILED,
    FINISHED,
    KILLED,
    PROCESS,
    RUNNING,
    UNKNOWN,
    FolderLook,
    Identity,
    Run,
    RunRow,
)
from training_monitor.policy.stall_history import thin_looks
from training_monitor.verdicts import Observation, Verdict

MOST_LOOKS = 80  # of one run; older ones are thinned
LOOK_SPACING = 30.0  # seconds between those that are kept
_JOB_STATUS = {
    RUNNING: JobStatus.RUNNING,
    FINISHED: JobStatus.SUCCEEDED,
    CANCELED: JobStatus.STOPPED,
    FAILED: JobStatus.FAILED,
    KILLED: JobStatus.FAILED,
}


def observe_run(row: RunRow, look: FolderLook, seen_at: float) -> Observation:
    """What one look saw of a run.

    Args:
        row: the run as `judge_look` shows it.
        look: that it is from; ages are by its clock.
        seen_at: epoch seconds by the clock of whoever looked.
    """
    run, now = row.run, look.timestamp
    status = _JOB_STATUS.get(row.status, JobStatus.UNKNOWN)
    processes = [node for node in row.tree if node.kind == PROCESS]
    rate = row.rate if row.rate and row.rate > 0 else None
    return Observation(
        seen_at,
        step := _step(run),
        total_steps=_total_steps(run, step),
        eta_seconds=row.eta_seconds,
        steps_per_second=rate,
        loss=loss_of(row),
        phase=run.phase,
        epoch=_epochs_done(run),
        total_epochs=run.total_epochs,
        status=status,
        message=row.reason or run.last_words,
        exit_code=run.exit_code,
        is_running=None if status == JobStatus.UNKNOWN else status == JobStatus.RUNNING,
        finished=None if status == JobStatus.UNKNOWN else status == JobStatus.SUCCEEDED,
        failure=_failure(row) if status == JobStatus.FAILED else None,
        runtime=_since(run.started_at, now),
        process=_name_of(run.process),
        boot=run.process.boot_id if run.process else None,
        step_age=_since(run.step_at, now),
        step_interval=None if rate is None else 1 / rate,
        cpu_seconds=_cpu_seconds(row, look),
        cpu_cores=None if row.cpu_percent is None else row.cpu_percent / 100,
        blocked=sum(node.state == "D" for node in processes) if processes else None,
    )


def judge_run(row: RunRow, seen: Sequence[Observation], now: float) -> RunRow:
    """The row with what `judge` says of its looks.

    Of a run that cannot be seen, its last looks prove nothing. When a stalled run will end is not known.
    """
    if row.status == UNKNOWN:
        return replace(row, verdict=Verdict("unknown", "unknown", row.reason or "whether it runs is not known"))
    verdict = judge(seen, now=now)
    if verdict.state != "stalled":
        return replace(row, verdict=verdict)
    return replace(row, verdict=verdict, run=without_outlook(row.run), eta_seconds=None)


def add_look(past: Sequence[Observation], new: Observation) -> tuple[Observation, ...]:
    """The looks at a run that are kept, oldest first, with one more.

    One of another process begins anew. Those of a time that is still to come are of a clock that was set back since.
    Of a run that has ended the first look is enough.
    """
    if past and new.status.is_terminal and past[-1].status == new.status and past[-1].process == new.process:
        return tuple(past)
    kept = [each for each in past if each.timestamp < new.timestamp and each.process == new.process]
    if len(kept) > 1 and new.timestamp - kept[-2].timestamp < LOOK_SPACING:
        kept.pop()
    return tuple(thin_looks([*kept, new], MOST_LOOKS))


def _step(run: Run) -> int | None:
    """The step of the whole run; where it does not count them, as the earlier ttop, by its epoch and batch."""
    if run.step is not None or run.batch is None:
        return run.step
    before = max(0, (run.epoch or 1) - 1)
    if before and run.total_batches is None:
        return None
    return before * (run.total_batches or 0) + run.batch


def _total_steps(run: Run, step: int | None) -> int | None:
    """The steps of the whole run, counted as its steps are: from where it began, which may be amid an epoch."""
    if run.total_steps is not None:
        return run.total_steps
    if step is None or run.batch is None or run.total_batches is None or run.epoch is None or run.total_epochs is None:
        return None
    return step + max(0, run.total_batches - run.batch) + max(0, run.total_epochs - run.epoch) * run.total_batches


def _epochs_done(run: Run) -> float | None:
    """Epochs that are done, with the part of the one under way where that is known.

    A validation is a part of the batch after which it comes, so that each of its own batches shows.
    """
    if run.epoch is None:
        return None
    validated = run.validation_batch or 0
    part = validated / (max(validated, run.total_validation_batches or 0) + 1)
    done = (max(0, (run.batch or 0) - 1) + part) / run.total_batches if run.total_batches else part
    return max(0, run.epoch - 1) + min(1.0, done)


def _failure(row: RunRow) -> Failure | None:
    """Why it failed, as far as its exit and its script's last words tell; nothing of one that was killed."""
    failure = classify_failure(row.run.error_message or "", exit_code=row.run.exit_code)
    return None if failure.category == "none" else failure


def _since(moment: float | None, now: float) -> float | None:
    return None if moment is None else max(0.0, now - moment)


def _name_of(process: Identity | None) -> str | None:
    """PID START BOOT."""
    return f"{process.pid} {process.start_ticks} {process.boot_id}" if process else None


def _cpu_seconds(row: RunRow, look: FolderLook) -> float | None:
    """CPU time of its processes since they began; that of those that ended is not in it."""
    if look.machine is None:
        return None
    samples = [look.machine.processes.get(node.identity.pid) for node in row.tree if node.kind == PROCESS]
    ticks = [sample.cpu_ticks for sample in samples if sample]
    return sum(ticks) / look.machine.ticks if ticks else None
