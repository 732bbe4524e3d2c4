"""What is written down of an attempt: how far it came, why it failed, and whether it came further than before."""

from __future__ import annotations

from dataclasses import asdict, replace

from training_monitor.models import Failure, JobView
from training_monitor.parse.training_log import parse_progress
from training_monitor.policy.job_progress import format_position, job_progress
from training_monitor.policy.restart import LedgerEntry, RestartDecision, RestartPolicy, decide_restart
from training_monitor.supervise.run_state import RunState, update_attempt
from training_monitor.watching import CheckpointListing


def note_look(run: RunState, view: JobView, now: float) -> RunState:
    """Write one look into the last attempt."""
    last, step = run.attempts[-1], job_progress(view.progress).step
    wrote = run.wrote_checkpoint or view.progress.checkpoint_step is not None
    run = update_attempt(run, status=view.status.value, final_step_known=view.log_known)
    run = replace(run, wrote_checkpoint=wrote)
    if step is None:
        return run
    moved_at = now if step != last["final_step"] else last["last_step_at"]
    return update_attempt(run, final_step=step, first_step_at=last["first_step_at"] or now, last_step_at=moved_at)


def note_last_words(run: RunState, log_tail: str) -> RunState:
    """Take in how far a lost attempt came by the end of its log; without a log, nobody knows how far."""
    if not log_tail or not run.attempts or run.attempts[-1]["status"] != "LOST":
        return run
    step, seen = job_progress(parse_progress(log_tail)).step, run.attempts[-1]["final_step"]
    return update_attempt(run, final_step_known=True, final_step=max(filter(None, (step, seen)), default=None))


def describe_look(view: JobView) -> str:
    """One look in a line: the job, its status, and where it stands."""
    loss = f" loss {view.progress.loss:.4g}" if view.progress.loss is not None else ""
    return f"{view.job_id} {view.status} {format_position(job_progress(view.progress))}{loss}"


def failure_evidence(view: JobView) -> str:
    """Its exit status, and the last thing it said."""
    lines = (line.strip() for line in view.log_tail.splitlines())
    said = [line for line in lines if line and not line.startswith("Running entrypoint for job ")]  # Ray's, may be last
    last = f"; last output: {said[-1][:200]}" if said else ""
    return f"{view.message or 'no reason given'}{last}"


def own_failure(status: str, reason: str) -> Failure:
    """STALLED, LOST and NOT_STARTED are found by the supervisor, not in a log."""
    error_class = "external_stop" if status == "LOST" else "ambiguous"
    return Failure(status.lower(), error_class, "restart", reason, fingerprint=status.lower())


def note_end(run: RunState, status: str, reason: str, failure: Failure, checkpoints: CheckpointListing) -> RunState:
    """Write into the last attempt how it ended, unless that was known before, and whether it made progress."""
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
    """Whether the last attempt made a step, or saved one, beyond all before; None when nobody could see."""
    *before, last = run.attempts
    best = max([each["final_step"] or 0 for each in before] + [last["start_step"] or 0])
    saved = checkpoints.newest_complete
    if (last["final_step"] or 0) > best or (saved is not None and saved.step > best):
        return True
    is_known = all(each.complete is not None or each.step <= best for each in checkpoints.checkpoints)
    return False if is_known and status != "LOST" else None


def decide(run: RunState, policy: RestartPolicy) -> RestartDecision:
    """What `decide_restart` says of the last attempt of a run, whose end was noted."""
    *before, last = (
        LedgerEntry(Failure(**each["failure"]), each["progress"], each["checkpoint"], each["node"])
        for each in run.attempts
        if each["failure"]
    )
    return decide_restart(before, last.failure, last.progress, policy, checkpoint=last.checkpoint, node=last.node)
