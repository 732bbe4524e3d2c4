"""The state of a supervised run: what is written to disk before every act, and the report it ends in.

        starting ──► watching ──► stopping ──► waiting ──► starting …
           │            │            │
           └────────────┴────────────┴──► done

A run that is found unfinished goes on in its phase: every act is one that can be done twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from training_monitor.errors import TrainingMonitorError
from training_monitor.models import Checkpoint, RunOutcome
from training_monitor.policy.goodput import goodput, run_events, steps_lost
from training_monitor.reports import AttemptReport, RestartReport

_NOTHING_KNOWN = dict.fromkeys(AttemptReport.__annotations__)


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
    labels: dict[str, str] = field(default_factory=dict)
    attempts: tuple[AttemptReport, ...] = ()
    success: bool = False
    outcome: RunOutcome | None = None
    reason: str | None = None
    ended_at: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> RunState:
        """A state from disk, also of an earlier version. Raises TrainingMonitorError for that of a later one."""
        if unknown := set(state) - {each.name for each in fields(cls)}:
            raise TrainingMonitorError(
                f"the state of {state.get('key')} was written by a later version ({', '.join(sorted(unknown))})",
                hint="install that version again to go on with this run",
            )
        attempts = tuple(AttemptReport(**{**_NOTHING_KNOWN, **each}) for each in state["attempts"])  # type: ignore[typeddict-item]
        return cls(**{**state, "attempts": attempts, "outcome": _outcome(state)})

    def report(self) -> RestartReport:
        """The documented result."""
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
        )


def _outcome(state: Mapping[str, Any]) -> RunOutcome | None:
    """How a run ended; earlier versions wrote that down only as the first word of its reason."""
    outcome = state.get("outcome") or (state.get("reason") or "").partition(":")[0]
    return RunOutcome(outcome) if outcome in RunOutcome._value2member_map_ else None


def plan_attempt(
    run: RunState,
    job_id: str,
    checkpoint: Checkpoint | None,
    refused: tuple[Checkpoint, ...],
    now: float,
    *,
    adopted: bool = False,
) -> RunState:
    """Note the next attempt before it is started, and what the last one lost now that its successor is known.

    Of a job that was `adopted`, nobody knows from which step it resumed.
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
    )
    earlier = run.attempts
    if earlier and (made := earlier[-1]["final_step"]) is not None:
        resumed = max(checkpoint.step if checkpoint else 0, earlier[-1]["start_step"] or 0)
        is_known = earlier[-1]["final_step_known"] and made >= resumed  # else it came further than anybody saw
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
    """Change the last attempt's record."""
    if not run.attempts:
        return run
    changed: AttemptReport = {**run.attempts[-1], **changes}  # type: ignore[typeddict-item]
    return replace(run, attempts=(*run.attempts[:-1], changed))
