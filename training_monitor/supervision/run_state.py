"""The state of a supervised run, which is saved before every action, and the report at its end.

    starting ──► watching ──► stopping ──► waiting ──► starting …
      │            │            │
      └────────────┴────────────┴──► done

An unfinished run continues in its phase: every action is idempotent. The record of an attempt says how far it came,
why it failed, and whether it came further than all before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import inf, isfinite
from typing import Any

from training_monitor.core.fields import shared_fields
from training_monitor.core.models import Checkpoint, Failure, JobView, RunOutcome
from training_monitor.core.reports import AttemptReport, RestartReport, report_of
from training_monitor.core.values import CheckpointListing, KeptRollCall, Observation, WatchedJob
from training_monitor.logs.job_progress import format_standing, job_progress
from training_monitor.logs.training_log import ProgressReader, parse_progress
from training_monitor.supervision.counters import with_new_steps, with_steps_lost
from training_monitor.verdict.goodput import run_goodput, seen_phases, steps_lost
from training_monitor.verdict.restart import LedgerEntry, RestartDecision, RestartPolicy, decide_restart

LATE_SECONDS = 10.0  # the file system may still write a job's files for this long after the job ended


@dataclass(frozen=True, slots=True)
class RunState:
    key: str
    target: str
    job_name: str
    checkpoint_dir: str
    started_at: float
    phase: str = "starting"
    config: Mapping[str, Any] | None = None
    job_id: str | None = None
    retries: int = 0
    restart_at: float = 0.0
    stop_reason: str | None = None
    wrote_checkpoint: bool = False
    bad_checkpoints: tuple[str, ...] = ()
    suspect_checkpoints: tuple[str, ...] = ()
    avoid_nodes: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    attempts: tuple[AttemptReport, ...] = ()
    followed: WatchedJob | None = None  # the process of a job that Ray has forgotten
    requeues: int | None = None  # of its job by its scheduler, as last seen
    success: bool = False
    outcome: RunOutcome | None = None
    reason: str | None = None
    ended_at: float | None = None

    def report(self) -> RestartReport:
        """Return the documented result."""
        ended = self.ended_at or self.started_at
        steps = [attempt["final_step"] for attempt in self.attempts if attempt["final_step"] is not None]
        share, spent = run_goodput(self.attempts, self.started_at, ended)
        return RestartReport(
            success=self.success,
            final_step=steps[-1] if steps else None,
            total_retries=self.retries,
            reason=self.reason or "unexpected_exit",
            outcome=self.outcome.value if self.outcome else None,
            job_id=self.job_id,
            attempts=list(self.attempts),
            steps_lost=steps_lost(self.attempts),
            goodput=share,
            badput=spent,
            duration=ended - self.started_at,
            explanation=next((text for each in reversed(self.attempts) if (text := each["explanation"])), None),
        )


def plan_attempt(
    run: RunState,
    job_id: str,
    checkpoint: Checkpoint | None,
    refused: tuple[Checkpoint, ...],
    now: float,
    *,
    adopted: bool = False,
) -> RunState:
    """Record the next attempt before it starts, and how many steps the earlier ones lost.

    The step from which an `adopted` job resumed is unknown.
    """
    attempt = report_of(
        AttemptReport,
        None,
        number=len(run.attempts) + 1,
        job_id=job_id,
        checkpoint=checkpoint.path if checkpoint else None,
        checkpoint_content=checkpoint.content if checkpoint else None,
        refused_checkpoints=[f"{each.path}: {each.problem}" for each in refused],
        start_step=None if adopted else checkpoint.step if checkpoint else 0,
        final_step_known=True,
        started_at=now,
        status="PLANNED",
    )
    return replace(
        run,
        phase="starting",
        job_id=job_id,
        followed=None,
        requeues=None,
        stop_reason=None,
        attempts=with_steps_lost((*run.attempts, attempt)),
        wrote_checkpoint=run.wrote_checkpoint or checkpoint is not None,
    )


def update_attempt(run: RunState, **changes: Any) -> RunState:
    """Change the record of the last attempt."""
    if not run.attempts:
        return run
    changed: AttemptReport = {**run.attempts[-1], **changes}  # type: ignore[typeddict-item]
    return replace(run, attempts=(*run.attempts[:-1], changed))


def note_look(run: RunState, view: JobView, now: float) -> RunState:
    """Record one look in the last attempt."""
    last, step = run.attempts[-1], job_progress(view.progress).step
    wrote = run.wrote_checkpoint or view.progress.checkpoint_step is not None
    nan_step = last["nan_step"]
    if view.progress.loss is not None:
        nan_step = None if isfinite(view.progress.loss) else nan_step or _first_nan_step(view)
    run = update_attempt(run, status=view.status.value, final_step_known=view.log_known, nan_step=nan_step)
    run = replace(run, wrote_checkpoint=wrote)
    if view.pod and view.pod.node:
        run = update_attempt(run, node=view.pod.node)
    if step is None:
        return run
    moved_at = now if step != last["final_step"] else last["last_step_at"]
    run = update_attempt(run, first_step_at=last["first_step_at"] or now, last_step_at=moved_at)
    return replace(run, attempts=with_new_steps(run.attempts, view, run.config))


def note_phases(run: RunState, looks: Sequence[Observation], until: float = inf) -> RunState:
    """Record how long the last attempt was seen in each phase, by the looks at its job up to a time."""
    last = run.attempts[-1]
    seen = [each for each in looks if run.started_at <= each.timestamp <= until]
    return update_attempt(run, phases=seen_phases(seen, None if last["start_step"] is None else last["started_at"]))


def _first_nan_step(view: JobView) -> int | None:
    """Return the step after the newest one with a finite loss, or else the first one with a NaN loss."""
    reader, found = ProgressReader(), None
    for line in view.log_tail.splitlines():
        reader.read_text(line)
        step, loss = job_progress(reader.progress).step, reader.progress.loss
        if loss is not None and step is not None:
            found = step + 1 if isfinite(loss) else step if found is None else found
    return found


def note_last_words(run: RunState, log_tail: str) -> RunState:
    """Record how far a lost attempt came, by the end of its log; without a log it stays unknown."""
    if not log_tail or not run.attempts or run.attempts[-1]["status"] != "LOST":
        return run
    step, seen = job_progress(parse_progress(log_tail)).step, run.attempts[-1]["final_step"]
    return update_attempt(run, final_step_known=True, final_step=max(filter(None, (step, seen)), default=None))


def describe_look(view: JobView) -> str:
    """Describe one look in a line: the job, its status, and its position or what it waits for."""
    loss = f" loss {view.progress.loss:.4g}" if view.progress.loss is not None else ""
    return f"{view.job_id} {format_standing(view.status, view.progress, view.message)}{loss}"


def failure_evidence(view: JobView) -> str:
    """Return the exit code of a job and the last line of its output."""
    lines = (line.strip() for line in view.log_tail.splitlines())
    said = [line for line in lines if line and not line.startswith("Running entrypoint for job ")]  # Ray's own line
    last = f"; last output: {said[-1][:200]}" if said else ""
    return f"{view.message or 'no reason given'}{last}"


def own_failure(status: str, reason: str, faulty_nodes: Sequence[str] = ()) -> Failure:
    """Return a failure found by the supervisor instead of in a log: STALLED, LOST or NOT_STARTED.

    With faulty nodes, the hardware is at fault, and the next attempt should run elsewhere.
    """
    error_class = "hardware" if faulty_nodes else "external_stop" if status == "LOST" else "ambiguous"
    action = "restart_elsewhere" if faulty_nodes else "restart"
    return Failure(status.lower(), error_class, action, reason, fingerprint=status.lower())


def requeued_failure() -> Failure:
    """Return the failure of an attempt whose job its scheduler runs again."""
    return Failure("preemption", "external_stop", "restart", "the scheduler requeued the job", fingerprint="preemption")


def note_roll_call(run: RunState, kept: KeptRollCall) -> RunState:
    """Record what the roll call said of the last attempt."""
    nodes: dict[str, Any] = {"suspect_nodes": list(kept.suspect_nodes), "faulty_nodes": list(kept.faulty_nodes)}
    return update_attempt(run, explanation=kept.text, roll_call=kept.folder, **nodes)


def note_end(run: RunState, status: str, reason: str, failure: Failure, checkpoints: CheckpointListing) -> RunState:
    """Record how the last attempt ended, unless that is known already, and whether it made progress."""
    last = run.attempts[-1]
    known = last["failure"] or asdict(failure)
    return update_attempt(
        run,
        status=status,
        reason=last["reason"] or reason,
        final_step_known=last["final_step_known"] and status != "LOST",
        failure=known,
        progress=_made_progress(run, status, checkpoints),
        stepped=_made_a_step(run, known["action"], status, checkpoints),
    )


def _made_a_step(run: RunState, action: str, status: str, checkpoints: CheckpointListing) -> bool | None:
    """Return whether the last attempt made a step after its start; None if unknown.

    A log without steps shows that none was made only if the log of another attempt had some, or if loading failed.
    """
    last = run.attempts[-1]
    start, step, took = last["start_step"] or 0, last["final_step"], (last["ended_at"] or 0.0) - last["started_at"]
    if any(each.step > start and each.age is not None and each.age < took for each in checkpoints.checkpoints):
        return True
    if step is not None and step not in (0, start):  # a smaller one is that of a counter of its own
        return True
    if status == "LOST" or not last["final_step_known"]:
        return None
    has_steps = step is not None or any(each["final_step"] is not None for each in run.attempts)
    return False if has_steps or action == "restart_previous_checkpoint" else None


def _made_progress(run: RunState, status: str, checkpoints: CheckpointListing) -> bool | None:
    """Return whether the last attempt made or saved a step beyond all earlier ones; None if unknown."""
    *before, last = run.attempts
    best = max([each["final_step"] or 0 for each in before] + [last["start_step"] or 0])
    saved = checkpoints.newest_complete
    if (last["final_step"] or 0) > best or (saved is not None and saved.step > best):
        return True
    is_known = all(each.complete is not None or each.step <= best for each in checkpoints.checkpoints)
    return False if is_known and status != "LOST" else None


def checkpoint_problem(run: RunState, checkpoint: Checkpoint, now: float) -> str | None:
    """Return why a complete checkpoint is not to be used: it failed to load, or its weights may be NaN."""
    if checkpoint.content in run.bad_checkpoints:
        return "loading it failed twice"
    saved_at = now - (checkpoint.age or 0.0)
    for each in run.attempts:
        nan_step, ended_at = each["nan_step"], each["ended_at"]
        if nan_step is not None and checkpoint.step >= nan_step and saved_at <= (ended_at or now) + LATE_SECONDS:
            return f"saved after the loss of {each['job_id']} became NaN at step {nan_step}"
    return None


def decide(run: RunState, policy: RestartPolicy) -> RestartDecision:
    """Apply `decide_restart` to the last attempt of a run, whose end is recorded."""
    *before, last = [
        LedgerEntry(
            Failure(**each["failure"]),
            each["progress"],
            each["checkpoint_content"],
            each["node"],
            tuple(each["suspect_nodes"] or ()),
            tuple(each["faulty_nodes"] or ()),
            each["stepped"],
        )
        for each in run.attempts
        if each["failure"]
    ]
    return decide_restart(before, policy=policy, **shared_fields(LedgerEntry, last))
