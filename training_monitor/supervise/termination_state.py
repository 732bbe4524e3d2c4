"""How far the ending of a run is, as it is written down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from training_monitor.errors import TrainingMonitorError
from training_monitor.models import Checkpoint
from training_monitor.probes.checkpoints import newest_complete
from training_monitor.probes.pid_files import ProcessIdentity
from training_monitor.watching import TerminationPlan, TerminationReport, UploadedFile, UploadReport


@dataclass(frozen=True, slots=True)
class Termination:
    """How far the sequence is; JSON-ready by `dataclasses.asdict`. `generation` is that of the run."""

    key: str
    plan: TerminationPlan
    started_at: float
    phase: str = "stopping"
    generation: int = 0
    step: int | None = None
    total_steps: int | None = None
    identity: ProcessIdentity | None = None
    stopped: bool | None = None
    left: tuple[str, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    unlisted_checkpoints: int = 0
    uploads: tuple[UploadReport, ...] = ()
    destroyed: bool | None = None
    gone: bool | None = None
    kept: str | None = None
    errors: tuple[str, ...] = ()
    ended_at: float | None = None

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Termination:
        """A state from disk. Raises TrainingMonitorError for that of a later version."""
        if unknown := set(state) - {each.name for each in fields(cls)}:
            raise TrainingMonitorError(
                f"the state of {state.get('key')} was written by a later version ({', '.join(sorted(unknown))})",
                hint="install that version again to go on with it",
            )
        chosen = {name: tuple(state["plan"][name]) for name in ("upload_to", "tags")}
        plan = TerminationPlan(**{**state["plan"], **chosen})
        checkpoints = tuple(Checkpoint(**each) for each in state["checkpoints"])
        uploads = tuple(
            UploadReport(**{**each, "files": tuple(UploadedFile(**file) for file in each["files"])})
            for each in state["uploads"]
        )
        identity = ProcessIdentity(**state["identity"]) if state["identity"] else None
        lists = {name: tuple(state[name]) for name in ("left", "errors")}
        return cls(
            **{**state, **lists, "plan": plan, "checkpoints": checkpoints, "uploads": uploads, "identity": identity}
        )

    @property
    def checkpoint(self) -> Checkpoint | None:
        """What is uploaded: the newest complete one."""
        return newest_complete(self.checkpoints)

    @property
    def is_saved(self) -> bool:
        return any(each.verified for each in self.uploads)

    def report(self) -> TerminationReport:
        saved = self.is_saved or not self.plan.upload_to
        to_destroy = self.plan.destroy and (self.plan.upload_to or self.plan.destroy_without_upload)
        return TerminationReport(
            success=bool(self.stopped) and saved and not (to_destroy and self.gone is False),
            end=self.plan.end,
            reason=self.plan.reason,
            stopped=self.stopped,
            left=self.left,
            checkpoints=self.checkpoints,
            unlisted_checkpoints=self.unlisted_checkpoints,
            checkpoint=self.checkpoint,
            uploads=self.uploads,
            destroyed=self.destroyed,
            gone=self.gone,
            kept=self.kept,
            duration=(self.ended_at or self.started_at) - self.started_at,
            errors=self.errors,
        )
