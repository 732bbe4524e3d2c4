"""Frozen values of judging: what one look at a training saw, and what is concluded from all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from training_monitor.models import Failure, JobStatus


@dataclass(frozen=True, slots=True)
class Observation:
    """What one look at one training saw; None is "not known", never zero.

    Attributes:
        timestamp: when it was seen, epoch seconds by the clock of whoever looked.
        step, total_steps: of the job, over all epochs; None before the first step.
        eta_seconds, steps_per_second, loss: as the log tells them.
        phase: what the end of the log says is done besides steps (see `find_phase`).
        gpu_utilization, gpu_power_fraction: of its GPU that works hardest (see `gpu_load`): per cent, and the power
            drawn over its limit.
        log_size: bytes.
        epoch, total_epochs: epochs done, with the fraction of the one under way; of so many.
        status: the job's own; UNKNOWN where it has none. exit_code, message: what goes with it.
        is_running: whether its processes run. finished: whether its log shows the end.
        failure: why it failed; only of one that runs no more, or whose log ends in an error.
        runtime: seconds since it began. process: its identity `PID START BOOT`; another one is another start.
        awake_seconds: for how long the target has been awake since its boot `boot`: tells elapsed time although clocks
            jump and machines sleep.
        log_age: seconds since its log was written to. step_age: since the line with its newest step was.
        step_interval: usual seconds between lines with a step, and step_time: seconds a step takes at its usual best,
            both by the times and rates in its own log.
        file_age: seconds since the newest file where its checkpoints go was written to.
        cpu_seconds, written_bytes: CPU time and bytes written by its processes since they began, ended children
            included. cpu_cores, write_rate: the same per second, during the look itself.
        blocked: how many of its processes wait in the kernel for a disk (state D).
        compilers: how many compilers work for it.
        oom_kills: processes that were killed for memory there, counted by the kernel.
        gpu_errors: what is wrong with its GPUs, a text for each.
        processes: how many processes of it were seen; 0 says that none has its log open, or that none may be seen.
    """

    timestamp: float
    step: int | None
    total_steps: int | None = None
    eta_seconds: float | None = None
    steps_per_second: float | None = None
    loss: float | None = None
    phase: str | None = None
    gpu_utilization: float | None = None
    gpu_power_fraction: float | None = None
    log_size: int | None = None
    epoch: float | None = None
    total_epochs: float | None = None
    status: JobStatus = JobStatus.UNKNOWN
    exit_code: int | None = None
    message: str | None = None
    is_running: bool | None = None
    finished: bool | None = None
    failure: Failure | None = None
    runtime: float | None = None
    process: str | None = None
    boot: str | None = None
    awake_seconds: float | None = None
    log_age: float | None = None
    step_age: float | None = None
    step_interval: float | None = None
    step_time: float | None = None
    file_age: float | None = None
    cpu_seconds: float | None = None
    written_bytes: int | None = None
    cpu_cores: float | None = None
    write_rate: float | None = None
    blocked: int | None = None
    compilers: int | None = None
    oom_kills: int | None = None
    gpu_errors: tuple[str, ...] = ()
    processes: int | None = None


@dataclass(frozen=True, slots=True)
class StallAnalysis:
    """The verdict of `analyze_stall`, which says what its words mean. Times are epoch seconds, durations seconds."""

    is_stalling: bool
    kind: str | None
    confidence: str
    reason: str
    recommendation: str
    current_step: int | None = None
    total_steps: int | None = None
    stall_detected_at: float | None = None
    grace_period_remaining: float | None = None
    signals: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What `judge` says of a training; every command shows this and no other.

    Attributes:
        state: starting | running | slow | stalled | finished | failed | stopped | unknown.
        verdict: ok | warning | failed | unknown. What decides the exit status: 0 for ok and warning, 1, 3.
        reason: one sentence with the evidence: the silence and its limit, the line that failed, or why nobody knows.
        since: from when on it is so, epoch seconds.
        confidence: none | low | medium | high.
        recommendation: continue | alert | terminate.
        seconds_without_step, limit_seconds: the silence, and from when on it is a stall.
        remedies: what to try, or what would sharpen the answer.
        failure: why it failed, of one that did.
        stall: the part of it that `analyze_stall` found.
    """

    state: str
    verdict: str
    reason: str
    since: float | None = None
    confidence: str = "none"
    recommendation: str = "continue"
    seconds_without_step: float | None = None
    limit_seconds: float | None = None
    remedies: tuple[str, ...] = ()
    failure: Failure | None = None
    stall: StallAnalysis | None = None


@dataclass(frozen=True, slots=True)
class LossAnalysis:
    """The verdict of `analyze_loss`: kind nan | spike | divergence | plateau, or None."""

    kind: str | None
    reason: str
    last: float | None
    best: float | None
