"""When and how soon a job is started again. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from training_monitor.errors import SettingsError
from training_monitor.models import Checkpoint, JobView


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Counts are restarts, times seconds. The delay doubles with every restart, up to `max_delay`."""

    max_retries: int = 10
    retry_delay: float = 60.0
    max_delay: float = 900.0
    jitter: float = 0.1
    stagnation_threshold: float = 300.0
    check_interval: float = 30.0
    fresh_start: bool = False

    def __post_init__(self) -> None:
        for name, lowest in (("max_retries", 0), ("retry_delay", 0), ("max_delay", 0), ("jitter", 0)):
            if not getattr(self, name) >= lowest:
                raise SettingsError(name, getattr(self, name), f"a number from {lowest}")
        for name in ("stagnation_threshold", "check_interval"):
            if not getattr(self, name) > 0:
                raise SettingsError(name, getattr(self, name), "more than 0 seconds")


def restart_delay(policy: RestartPolicy, retry: int, chance: float) -> float:
    """Seconds before restart number `retry` (from 1); `chance` in 0..1 spreads it by up to `jitter`.

    >>> [restart_delay(RestartPolicy(), retry, 0.0) for retry in (1, 2, 3, 9)]
    [60.0, 120.0, 240.0, 900.0]
    """
    delay = min(policy.retry_delay * 2.0 ** min(retry - 1, 60), max(policy.max_delay, policy.retry_delay))
    return delay * (1.0 + policy.jitter * chance)


_CANNOT_RUN = {126: "is not executable", 127: "is not found"}


def cannot_run(view: JobView, *, made_steps: bool) -> str | None:
    """Why the command can never run, by the exit status of `sh` before any step; None when it may."""
    if made_steps or view.progress.step is not None or view.exit_code not in _CANNOT_RUN:
        return None
    return f"the command, or one it calls, {_CANNOT_RUN[view.exit_code]} (exit status {view.exit_code})"


@dataclass(frozen=True, slots=True)
class ResumeChoice:
    """Where the next attempt starts: a checkpoint, or fresh; `refusal` when it must not start at all."""

    checkpoint: Checkpoint | None
    refused: tuple[Checkpoint, ...] = ()
    refusal: str | None = None


def choose_resume(checkpoints: list[Checkpoint], *, wrote_one: bool, fresh_start: bool) -> ResumeChoice:
    """The newest complete checkpoint; from the start only when there never was one, or `fresh_start` says so.

    `refused` are the damaged ones newer than the choice.
    """
    chosen = next((each for each in reversed(checkpoints) if each.complete), None)
    refused = tuple(each for each in checkpoints if not each.complete and (chosen is None or each.step > chosen.step))
    if chosen or fresh_start or not (checkpoints or wrote_one):
        return ResumeChoice(chosen, refused)
    if not checkpoints:
        return ResumeChoice(None, refused, "the job wrote checkpoints before, and now there is none")
    reasons = "; ".join(f"step {each.step}: {each.problem}" for each in refused[-3:])
    return ResumeChoice(None, refused, f"none of {len(checkpoints)} checkpoints is complete ({reasons})")
