"""Which notices follow from a look at a run, and whether it is to be ended. Pure; what was told is kept between looks.

A stall is told once, and again only after the run made steps in between. It recovered when it made a step, not when it
merely was not looked at. What had been reached before the first look is not told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from training_monitor.models import JobStatus
from training_monitor.notify import templates
from training_monitor.policy.job_progress import job_progress
from training_monitor.policy.judge import ENDS
from training_monitor.policy.watch_config import WatchConfig
from training_monitor.probes.checkpoints import newest_complete
from training_monitor.units import format_duration
from training_monitor.verdicts import StallAnalysis
from training_monitor.watching import Notice, TrainingStatus

SILENT = ("idle", "spinning", "quiet", "blocked")  # pauses in which nothing shows that a run without steps works
STALL_REASON = "Stall detected, grace period expired"


@dataclass(frozen=True, slots=True)
class Told:
    """What was told of a run, JSON-ready by `as_dict`.

    `episode` counts what was told of its stalls; `stalled_step` is where the present one began, and `warned` that its
    end was announced. `stalled_at`, in epoch seconds, is since when it was watched to be one that a run is ended for;
    None while it is not. `looked_at` is the last look; `limits` are those that were told.
    """

    generation: int = -1
    milestones: tuple[float, ...] = ()
    episode: int = 0
    stalled: bool = False
    stalled_step: int | None = None
    stalled_at: float | None = None
    nan: bool = False
    warned: bool = False
    looked_at: float | None = None
    limits: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, told: dict[str, Any]) -> Told:
        lists = {name: tuple(told.get(name, ())) for name in ("milestones", "limits")}
        return cls(**{**told, **lists}) if told else cls()


def decide_alerts(
    told: Told, status: TrainingStatus, config: WatchConfig, job: str, *, ends: bool
) -> tuple[Told, list[Notice]]:
    """What is to be told now, and what has been told then. `ends`: a stall ends the run after the grace period."""
    if told.generation != status.generation:
        told = replace(told, generation=status.generation, milestones=_reached(status, config), nan=False, limits=())
    if told.looked_at is not None and status.timestamp - told.looked_at > 3.0 * config.poll_interval + 30.0:
        told = replace(told, stalled_at=None)  # what was not watched does not count
    told, stall = _stall_notices(told, status, config, job, ends=ends)
    new = tuple(each for each in _reached(status, config) if each not in told.milestones)
    limits = [each for each in _limits(status, config, job) if each.kind not in told.limits]
    notices = [*stall, *_milestones(new, status, job), *limits]
    nan = bool(status.loss and status.loss.kind == "nan")
    if nan and not told.nan:
        notices.append(templates.loss_nan(job, **_where(status), checkpoint_step=_saved(status)))
    told = replace(told, limits=told.limits + tuple(each.kind for each in limits))
    return replace(told, milestones=told.milestones + new, nan=nan or told.nan, looked_at=status.timestamp), notices


def _stall_notices(
    told: Told, status: TrainingStatus, config: WatchConfig, job: str, *, ends: bool
) -> tuple[Told, list[Notice]]:
    stall = status.stall
    ending = may_end(stall, config)
    if stall.is_stalling:
        since = status.timestamp if told.stalled_at is None else told.stalled_at
        told = replace(told, stalled_at=since if ending else None)
    if stall.is_stalling and (not told.stalled or (ends and ending and not told.warned)):
        told = replace(
            told,
            episode=told.episode + 1,
            stalled=True,
            stalled_step=stall.current_step,
            warned=ends and ending,
        )
        notice = templates.stall_detected(
            job,
            step=stall.current_step,
            total_steps=stall.total_steps,
            reason=stall.reason,
            grace_seconds=config.grace_period if ends and ending else None,
            checkpoint_step=_saved(status),
            is_spared=ends and shows_work(stall) and not ending,
            generation=told.episode,
        )
        return told, [notice]
    if stall.is_stalling:
        return told, []
    if told.stalled and _advanced(told, status):
        notice = templates.recovered(job, **{**_where(status), "generation": told.episode})
        return replace(told, stalled=False, stalled_step=None, stalled_at=None, warned=False), [notice]
    return replace(told, stalled_at=None), []


def _advanced(told: Told, status: TrainingStatus) -> bool:
    step = status.stall.current_step
    step = job_progress(status.progress).step if step is None else step
    return step is not None and step != told.stalled_step


def may_end(stall: StallAnalysis, config: WatchConfig) -> bool:
    """Whether a stall is one that a run is ended for: sure enough, more than slowness, and not a log without steps."""
    if stall.kind in (None, "slow", "eta_not_converging"):
        return False
    if stall.kind == "not_started":
        return stall.confidence != "low" and stall.signals.get("pause") in SILENT
    return config.terminate_busy or not shows_work(stall)


def shows_work(stall: StallAnalysis) -> bool:
    """Whether a run that makes no steps still shows signs of work: GPUs that compute, a log that grows, ..."""
    return stall.kind in ("hang_idle", "hang_spinning", "diverging_eta") and stall.confidence == "low"


def reason_to_end(told: Told, status: TrainingStatus, config: WatchConfig) -> str | None:
    """Why the run is to be ended now; None while it is not."""
    if status.is_running is not True:
        return None
    if config.hard_limit is not None and status.runtime is not None and status.runtime >= config.hard_limit:
        return f"Hard limit of {format_duration(config.hard_limit)} passed"
    if status.status is JobStatus.PENDING:
        return None
    waited = told.stalled_at is not None and status.timestamp - told.stalled_at >= config.grace_period
    return STALL_REASON if status.stall.is_stalling and may_end(status.stall, config) and waited else None


def decide_end(status: TrainingStatus) -> tuple[str, str] | None:
    """(finished | failed | stopped | ended, why) of a run that has ended; None while it runs, or that is not known."""
    verdict = status.verdict
    if verdict is None or (status.is_running is not False and verdict.state != "finished"):
        return None
    return (verdict.state if verdict.state in ENDS else "ended"), verdict.reason


def end_notice(end: str, reason: str, status: TrainingStatus, config: WatchConfig, job: str) -> Notice:
    """The notice of a run that runs no more."""
    where, cost = _where(status), _cost(status, config)
    if end == "finished":
        return templates.finished(job, **where, runtime=status.runtime, cost=cost)
    if end == "failed":
        return templates.failed(job, **where, reason=reason, checkpoint_step=_saved(status))
    return templates.ended(job, **where, reason=reason, checkpoint_step=_saved(status))


def _milestones(new: tuple[float, ...], status: TrainingStatus, job: str) -> Iterator[Notice]:
    for percent in sorted(new)[-1:]:  # of several at once the last one says it
        yield templates.milestone(job, percent=round(percent), **_where(status), runtime=status.runtime)


def _reached(status: TrainingStatus, config: WatchConfig) -> tuple[float, ...]:
    fraction = job_progress(status.progress).fraction
    return () if fraction is None else tuple(each for each in config.milestones if round(100 * fraction, 9) >= each)


def _limits(status: TrainingStatus, config: WatchConfig, job: str) -> Iterator[Notice]:
    """Those that are passed."""
    if config.soft_limit is not None and status.runtime is not None and status.runtime >= config.soft_limit:
        hard = "" if config.hard_limit is None else f"; it is ended at {format_duration(config.hard_limit)}"
        reason = f"Run time of {format_duration(config.soft_limit)} passed{hard}"
        yield templates.soft_limit(job, reason=reason, **_where(status))
    cost = _cost(status, config)
    if config.budget is not None and cost is not None and cost >= config.budget:
        yield templates.budget_passed(job, cost=cost, budget=config.budget, **_where(status))


def _cost(status: TrainingStatus, config: WatchConfig) -> float | None:
    if config.cost_per_hour is None or status.runtime is None:
        return None
    return config.cost_per_hour * status.runtime / 3600.0


def _where(status: TrainingStatus) -> dict[str, Any]:
    job = job_progress(status.progress)
    return {"step": job.step, "total_steps": job.total_steps, "generation": status.generation}


def _saved(status: TrainingStatus) -> int | None:
    newest = newest_complete(status.checkpoints or ())
    return newest.step if newest else status.progress.checkpoint_step
