"""The state of a supervised run, which is saved before every action, and the report at its end.

    starting ──► watching ──► stopping ──► waiting ──► starting …
      │            │            │
      └────────────┴────────────┴──► done

An unfinished run continues in its phase: every action is idempotent. The record of an attempt says how far it came,
why it failed, and whether it came further than all before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from training_monitor.core.frozen import asdict, dataclass, field, replace
from training_monitor.core.models import Checkpoint, Failure, JobView, RunOutcome
from training_monitor.core.reports import AttemptReport, RestartReport
from training_monitor.core.store import Store
from training_monitor.core.values import CheckpointListing, KeptRollCall
from training_monitor.judging.goodput import goodput, run_events, steps_lost
from training_monitor.judging.restart import LedgerEntry, RestartDecision, RestartPolicy, decide_restart
from training_monitor.logs.job_progress import format_position, job_progress
from training_monitor.logs.training_log import parse_progress


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
    avoid_nodes: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    attempts: tuple[AttemptReport, ...] = ()
    success: bool = False
    outcome: RunOutcome | None = None
    reason: str | None = None
    ended_at: float | None = None

    def report(self) -> RestartReport:
        """Return the documented result."""
        ended = self.ended_at or self.started_at
        steps = [attempt["final_step"] for attempt in self.attempts if attempt["final_step"] is not None]
        spent = goodput(run_events(self.attempts, self.started_at, ended))
        return RestartReport(
            success=self.success,
            final_step=steps[-1] if steps else None,
            total_retries=self.retries,
            reason=self.reason or "unexpected_exit",
            outcome=self.outcome.value if self.outcome else None,
            job_id=self.job_id,
            attempts=list(self.attempts),
            steps_lost=steps_lost(self.attempts),
            goodput=spent.goodput,
            badput={cause: seconds for cause, seconds in spent.seconds.items() if cause != "productive"},
            duration=ended - self.started_at,
            explanation=next((text for each in reversed(self.attempts) if (text := each["explanation"])), None),
        )


def load_run_state(store: Store, key: str, *, finished: bool = False) -> RunState | None:
    """Load the state of a run. Earlier versions wrote its outcome only as the first word of its reason."""
    run = store.load_run(key, RunState, finished=finished)
    if run is None or run.outcome is not None:
        return run
    outcome = (run.reason or "").partition(":")[0]
    return replace(run, outcome=RunOutcome(outcome)) if outcome in RunOutcome._value2member_map_ else run


def plan_attempt(
    run: RunState,
    job_id: str,
    checkpoint: Checkpoint | None,
    refused: tuple[Checkpoint, ...],
    now: float,
    *,
    adopted: bool = False,
) -> RunState:
    """Record the next attempt before it starts, and how many steps the last one lost.

    The step from which an `adopted` job resumed is unknown.
    """
    attempt = AttemptReport(
        number=len(run.attempts) + 1,
        job_id=job_id,
        checkpoint=checkpoint.path if checkpoint else None,
        refused_checkpoints=[f"{each.path}: {each.problem}" for each in refused],
        start_step=None if adopted else checkpoint.step if checkpoint else 0,
        final_step=None,
        final_step_known=True,
        started_at=now,
        ended_at=None,
        status="PLANNED",
        reason=None,
        steps_lost=None,
        failure=None,
        progress=None,
        node=None,
        first_step_at=None,
        last_step_at=None,
        explanation=None,
        roll_call=None,
        suspect_nodes=None,
        faulty_nodes=None,
    )
    earlier = run.attempts
    if earlier and (made := earlier[-1]["final_step"]) is not None:
        resumed = max(checkpoint.step if checkpoint else 0, earlier[-1]["start_step"] or 0)
        is_known = earlier[-1]["final_step_known"] and made >= resumed  # else it came further than was seen
        lost = made - resumed if is_known and not adopted else None
        earlier = (*earlier[:-1], {**earlier[-1], "steps_lost": lost})
    return replace(
        run,
        phase="starting",
        job_id=job_id,
        attempts=(*earlier, attempt),
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
    run = update_attempt(run, status=view.status.value, final_step_known=view.log_known)
    run = replace(run, wrote_checkpoint=wrote)
    if step is None:
        return run
    moved_at = now if step != last["final_step"] else last["last_step_at"]
    return update_attempt(run, final_step=step, first_step_at=last["first_step_at"] or now, last_step_at=moved_at)


def note_last_words(run: RunState, log_tail: str) -> RunState:
    """Record how far a lost attempt came, by the end of its log; without a log it stays unknown."""
    if not log_tail or not run.attempts or run.attempts[-1]["status"] != "LOST":
        return run
    step, seen = job_progress(parse_progress(log_tail)).step, run.attempts[-1]["final_step"]
    return update_attempt(run, final_step_known=True, final_step=max(filter(None, (step, seen)), default=None))


def describe_look(view: JobView) -> str:
    """Describe one look in a line: the job, its status, and its position."""
    loss = f" loss {view.progress.loss:.4g}" if view.progress.loss is not None else ""
    return f"{view.job_id} {view.status} {format_position(job_progress(view.progress))}{loss}"


def failure_evidence(view: JobView) -> str:
    """Return the exit status of a job and the last line of its output."""
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


def note_roll_call(run: RunState, kept: KeptRollCall) -> RunState:
    """Record what the roll call said of the last attempt."""
    nodes: dict[str, Any] = {"suspect_nodes": list(kept.suspect_nodes), "faulty_nodes": list(kept.faulty_nodes)}
    return update_attempt(run, explanation=kept.text, roll_call=kept.folder, **nodes)


def note_end(run: RunState, status: str, reason: str, failure: Failure, checkpoints: CheckpointListing) -> RunState:
    """Record how the last attempt ended, unless that is known already, and whether it made progress."""
    last = run.attempts[-1]
    known = last["failure"]
    return update_attempt(
        run,
        status=status,
        reason=last["reason"] or reason,
        final_step_known=last["final_step_known"] and status != "LOST",
        failure=known or asdict(failure),
        progress=_made_progress(run, status, checkpoints),
    )


def _made_progress(run: RunState, status: str, checkpoints: CheckpointListing) -> bool | None:
    """Return whether the last attempt made or saved a step beyond all earlier ones; None if unknown."""
    *before, last = run.attempts
    best = max([each["final_step"] or 0 for each in before] + [last["start_step"] or 0])
    saved = checkpoints.newest_complete
    if (last["final_step"] or 0) > best or (saved is not None and saved.step > best):
        return True
    is_known = all(each.complete is not None or each.step <= best for each in checkpoints.checkpoints)
    return False if is_known and status != "LOST" else None


def decide(run: RunState, policy: RestartPolicy) -> RestartDecision:
    """Apply `decide_restart` to the last attempt of a run, whose end is recorded."""
    *before, last = [
        LedgerEntry(
            Failure(**each["failure"]),
            each["progress"],
            each["checkpoint"],
            each["node"],
            tuple(each["suspect_nodes"] or ()),
            tuple(each["faulty_nodes"] or ()),
        )
        for each in run.attempts
        if each["failure"]
    ]
    told: dict[str, Any] = {"suspect_nodes": last.suspect_nodes, "faulty_nodes": last.faulty_nodes}
    return decide_restart(
        before, last.failure, last.progress, policy, checkpoint=last.checkpoint, node=last.node, **told
    )
